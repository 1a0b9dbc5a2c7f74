"""Fits that go on: warm starts, Ctrl-C, errors, pickles. All to the bit."""

import pickle
import signal
import threading
import warnings
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.utils.validation import check_is_fitted
from support.cases import FAST, NAMES, PRIORS, SPARSE, fit_case, make_estimator, reference_scores
from support.designs import combinations, everyday
from support.fits import assert_same_fit

from skdpm import DPMixture, FiniteMixture, _estimator, chains
from skdpm._halts import Halts
from skdpm.mixture.likelihoods import Bernoulli, Gaussian
from skdpm.mixture.samplers import PGSM, SAMPLERS, SAMS, Alternate, Gibbs, SplitMerge
from skdpm.mixture.samplers._pgsm import RESAMPLING
from skdpm.mixture.samplers.base import Sampler

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 2)) + 3 * np.eye(3)[np.arange(30) % 3, :2]


# Warm starts.


@combinations(name=NAMES, prior=PRIORS)
@pytest.mark.some(2)
def test_warm_start_equals_one_run(name, prior):
    case = fit_case(name)
    resampled = prior != "pitman_yor_negative"
    whole = make_estimator(case.likelihood, prior, resampled=resampled, n_draws=17).fit(case.X)
    parts = make_estimator(case.likelihood, prior, resampled=resampled, warm_start=True)
    for n_draws in (1, 6, 17):
        assert parts.set_params(n_draws=n_draws).fit(case.X) is parts
        assert parts.log_joint_samples_.shape == (2, n_draws)
    assert_same_fit(parts, whole, case.X_new)


@pytest.mark.slow
def test_500_then_1000(blobs):
    """Past the iterations at which statistics are computed anew and scored draws thin out."""
    params = {"n_warmup": 30, "random_state": 0, "warm_start": True, "concentration": 1.0}
    whole = DPMixture(n_draws=1000, **params).fit(blobs)
    parts = DPMixture(n_draws=500, **params).fit(blobs)
    parts.set_params(n_draws=1000).fit(blobs)
    assert_same_fit(parts, whole, blobs)


@combinations(
    params=[
        {"thin": 3},
        {"n_warmup": 0},
        {"n_chains": 1},
        {"n_chains": 3},
        {"init": "kmeans"},
        {"init": "singletons"},
        {"point_estimate": "map"},
        {"point_estimate": "last", "store_labels": False},
        {"point_estimate": "map", "store_labels": False},
        {"sampler": Gibbs(n_sweeps=2)},
        {"random_state": 2**70},
    ],
    way=["plain", "pickle", "more threads", "fewer threads"],
)
@pytest.mark.some(2)
@pytest.mark.long
def test_warm_start_with(params, way, blobs):
    params = {**FAST, **params}
    whole = DPMixture(**{**params, "n_draws": 13}).fit(blobs)
    n_jobs = {"more threads": (1, 3), "fewer threads": (2, None)}.get(way, (None, None))
    parts = DPMixture(**{**params, "n_draws": 5}, warm_start=True, n_jobs=n_jobs[0]).fit(blobs)
    if way == "pickle":
        parts = pickle.loads(pickle.dumps(parts))
    parts.set_params(n_draws=13, n_jobs=n_jobs[1]).fit(blobs)
    assert_same_fit(parts, whole, blobs)


@pytest.mark.slow
def test_scored_draws_of_a_warm_start(blobs):
    """101 draws keep every second one for scores, 201 every fourth."""
    params = {**FAST, "n_chains": 1, "warm_start": True}
    parts = DPMixture(**params)
    for n_draws in (90, 101, 199, 230):
        parts.set_params(n_draws=n_draws).fit(blobs)
        whole = DPMixture(**{**params, "n_draws": n_draws}).fit(blobs)
        assert_same_fit(parts, whole, blobs)


@pytest.mark.slow
def test_warm_start_switched_on_later(blobs):
    parts = DPMixture(**FAST).fit(blobs)
    parts.set_params(warm_start=True, n_draws=20).fit(blobs)
    assert_same_fit(parts, DPMixture(**{**FAST, "n_draws": 20}).fit(blobs), blobs)


def test_without_warm_start_a_fit_starts_anew(blobs):
    estimator = DPMixture(**FAST).fit(blobs)
    signs = blobs[:, [0, 1, 0]] > [0.0, 0.0, 1.0]
    estimator.set_params(n_draws=5, likelihood="bernoulli").fit(signs[:20])
    expected = DPMixture(**{**FAST, "n_draws": 5}, likelihood="bernoulli")
    assert_same_fit(estimator, expected.fit(signs[:20]), signs[20:])
    assert estimator.n_features_in_ == 3


def test_parameters_that_may_change(blobs):
    whole = DPMixture(**{**FAST, "n_draws": 20}, point_estimate="last").fit(blobs)
    parts = DPMixture(**FAST, warm_start=True).fit(blobs)
    parts.set_params(
        n_draws=20,
        point_estimate="last",
        n_jobs=2,
        random_state=99,
        likelihood=Gaussian(),
        sampler=parts.sampler_,  # what "gaussian" and "auto" stand for
    ).fit(blobs)
    assert_same_fit(parts, whole, blobs)


def _refused(estimator, X, match, **params):
    """The fit is refused, and the estimator neither changed nor broken."""
    before = {name: getattr(estimator, name) for name in vars(estimator) if name.endswith("_")}
    old = {name: getattr(estimator, name) for name in params}
    estimator.set_params(**params)
    with pytest.raises(ValueError, match=match):
        estimator.fit(X)
    after = {name: getattr(estimator, name) for name in vars(estimator) if name.endswith("_")}
    assert before.keys() == after.keys()
    assert all(before[name] is after[name] for name in before)
    estimator.set_params(**old)


@pytest.mark.long
def test_refusals(blobs):
    estimator = DPMixture(
        likelihood=Gaussian(df=5.0), sampler=Gibbs(), **FAST, warm_start=True
    ).fit(blobs)
    estimator.set_params(n_draws=20)
    _refused(estimator, blobs, "n_draws", n_draws=11)
    _refused(estimator, blobs[:-1], "X differs")
    _refused(estimator, blobs[::-1], "X differs")
    _refused(estimator, np.nextafter(blobs, np.inf), "X differs")
    _refused(estimator, blobs.T.copy().reshape(30, 2), "X differs")
    _refused(estimator, blobs[:, :1], "1 features")
    for name, value in {
        "likelihood": Gaussian(df=6.0),
        "sampler": Gibbs(n_sweeps=2),
        "concentration": 1.0,
        "concentration_prior": (1.0, 0.2),
        "discount": 0.1,
        "n_warmup": 11,
        "thin": 2,
        "n_chains": 3,
        "init": "singletons",
    }.items():
        _refused(estimator, blobs, f"but {name} changed", **{name: value})
    _refused(estimator, blobs, "store_labels", store_labels=False, point_estimate="map")
    _refused(
        estimator, blobs, "but likelihood and thin changed", likelihood=Gaussian(df=6.0), thin=2
    )
    _refused(estimator, blobs > 0, "X differs", likelihood=Bernoulli())
    _refused(estimator, blobs[:-1], "X differs", thin=2)
    whole = clone(estimator).fit(blobs)
    assert_same_fit(estimator.fit(blobs), whole, blobs)


def test_finite_mixture_refuses_other_components(blobs):
    estimator = FiniteMixture(4, **FAST, warm_start=True).fit(blobs)
    estimator.set_params(n_draws=20)
    _refused(estimator, blobs, "but n_components changed", n_components=5)


def test_nested_parameters_count(blobs):
    estimator = DPMixture(likelihood=Gaussian(), sampler=Gibbs(), **FAST, warm_start=True)
    estimator.fit(blobs).set_params(n_draws=20)
    estimator.likelihood.set_params(mean_precision=0.5)
    with pytest.raises(ValueError, match="but likelihood changed"):
        estimator.fit(blobs)


def test_equal_draws_warn_and_return(blobs):
    estimator = DPMixture(**FAST, warm_start=True).fit(blobs)
    before = pickle.dumps(estimator)
    with pytest.warns(UserWarning, match="all 12 draws exist already") as record:
        assert estimator.fit(blobs) is estimator
    assert record[0].filename == __file__
    assert pickle.dumps(estimator) == before


@pytest.mark.parametrize("store_labels", [True, False])
def test_equal_draws_follow_another_point_estimate(blobs, store_labels):
    """The draws are all there; how they are summed up may change."""
    settings = {**FAST, "init": "singletons", "store_labels": store_labels}
    loose = DPMixture(**settings, point_estimate="map", warm_start=True).fit(blobs)
    last = DPMixture(**settings, point_estimate="last").fit(blobs)
    assert not np.array_equal(loose.labels_, last.labels_)  # else nothing is tested
    with pytest.warns(UserWarning, match="exist already"):
        loose.set_params(point_estimate="last").fit(blobs)
    assert_same_fit(loose, last, blobs)


@pytest.mark.slow
def test_same_data_in_another_guise(blobs, tmp_path):
    X = blobs.astype(np.float32).astype(float)
    np.save(tmp_path / "X.npy", X)
    whole = DPMixture(**{**FAST, "n_draws": 20}).fit(X)
    for guise in (
        np.asfortranarray(X),
        X.astype(np.float32),
        X.tolist(),
        X.astype(">f8"),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        np.repeat(X, 2, axis=0)[::2],
    ):
        parts = DPMixture(**FAST, warm_start=True).fit(X)
        assert_same_fit(parts.set_params(n_draws=20).fit(guise), whole, X)


@pytest.mark.parametrize("name", [name for name in NAMES if name in SPARSE])
@pytest.mark.some(2)
def test_warm_start_with_sparse_data(name):
    case = fit_case(name)
    X = sp.csr_array(case.X)
    parts = make_estimator(case.likelihood, warm_start=True).fit(X)
    X.sort_indices(), X.sum_duplicates()  # sets flags only
    assert X.has_canonical_format
    parts.set_params(n_draws=20).fit(X.copy())
    whole = make_estimator(case.likelihood, n_draws=20).fit(X)
    assert_same_fit(parts, whole, case.X_new)
    X.data[np.abs(X.data - 1).argmin()] = 0.0
    parts.set_params(n_draws=30)
    with pytest.raises(ValueError, match=r"X differs|symmetric"):
        parts.fit(X)


# Turns, threads.


@pytest.mark.parametrize(
    "sampler",
    everyday(
        [
            *SAMPLERS,
            *(
                PGSM(n_anchors=3, resampling=resampling, resample_threshold=1.0)
                for resampling in RESAMPLING
            ),
            PGSM(anchors="threshold_informed", gibbs_sweeps=0),
            SAMS(anchors="cluster_informed", gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=2, gibbs_sweeps=0),
            Alternate([SAMS(gibbs_sweeps=0), PGSM(gibbs_sweeps=0), Gibbs()]),
        ],
        *(name for name in SAMPLERS if name not in ("smc", "sub_cluster", "split_merge")),
    ),
    ids=repr,
)
@pytest.mark.some(2)
def test_turns_do_not_show(blobs, sampler, monkeypatch):
    """A chain that stops after every iteration is the chain that runs through."""
    params = {**FAST, "n_draws": 8, "point_estimate": "map", "sampler": sampler}
    cls = FiniteMixture if sampler == "blocked_gibbs" else DPMixture
    whole = cls(**params, n_jobs=2).fit(blobs)
    monkeypatch.setattr(chains, "TURN", 0.0)
    n_jobs = None if sampler == "pgsm" else 2
    assert_same_fit(cls(**params, n_jobs=n_jobs).fit(blobs), whole, blobs)


@pytest.mark.long
def test_fit_outside_the_main_thread(blobs):
    results = []
    thread = threading.Thread(target=lambda: results.append(DPMixture(**FAST).fit(blobs)))
    thread.start()
    thread.join()
    assert_same_fit(results[0], DPMixture(**FAST).fit(blobs), blobs)


def in_threads(*functions):
    """What the functions return, called at the same moment, each in a thread of its own."""
    found = [None] * len(functions)
    start = threading.Barrier(len(functions))

    def work(f):
        start.wait()
        found[f] = functions[f]()

    threads = [threading.Thread(target=work, args=(f,)) for f in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("names", everyday([NAMES[::3], NAMES], NAMES[::3]), ids=len)
def test_fits_in_several_threads_do_not_disturb_each_other(names):
    """Every likelihood twice, which share what its module holds, with threads of their own."""
    cases = [fit_case(name, n_samples=60) for name in names for _ in range(2)]

    def fit(seed, n_jobs):
        params = {**FAST, "random_state": seed, "n_jobs": n_jobs}
        return DPMixture(likelihood=cases[seed].likelihood, **params).fit(cases[seed].X)

    found = in_threads(*(partial(fit, s, n_jobs=2) for s in range(len(cases))))
    for s, (one, case) in enumerate(zip(found, cases, strict=True)):
        assert_same_fit(one, fit(s, n_jobs=1), case.X_new)


@pytest.mark.slow
def test_long_sweeps_in_several_threads_do_not_disturb_each_other():
    """Kernels of several fits run at once here: scratch that they shared would show."""
    X = np.random.default_rng(0).normal(size=(300, 6)) + 3 * np.eye(6)[np.arange(300) % 6]

    def fit(seed, n_jobs):
        params = {**FAST, "n_draws": 40, "random_state": seed, "point_estimate": "map"}
        return DPMixture(**params, n_jobs=n_jobs).fit(X)

    found = in_threads(*(partial(fit, s, n_jobs=2) for s in range(3)))
    for s, one in enumerate(found):
        assert_same_fit(one, fit(s, n_jobs=1))


def test_predictions_in_several_threads_do_not_disturb_each_other(blobs):
    """Of one fitted estimator, whose caches none has filled yet."""
    fitted = DPMixture(**FAST, n_jobs=1).fit(blobs)
    methods = ("score_samples", "predict", "predict_proba", "score") * 2
    X = np.vstack([blobs + shift for shift in range(20)])
    found = in_threads(*(partial(getattr(fitted, method), X) for method in methods))
    for method, values in zip(methods, found, strict=True):
        np.testing.assert_array_equal(values, getattr(fitted, method)(X), err_msg=method)


# Ctrl-C and errors. A sampler that does something in one iteration, counted over all chains.


class Disturbed(Sampler):
    """Gibbs, and `act()` after iteration number `at` of all chains together."""

    at = None
    act = None
    count = 0
    lock = threading.Lock()

    def kernel(self):
        return _DisturbedKernel(Gibbs().kernel())


class _DisturbedKernel:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def run(self, *args):
        self.kernel.run(*args)
        with Disturbed.lock:
            Disturbed.count += 1
            due = Disturbed.count == Disturbed.at
        if due:
            Disturbed.act()


@pytest.fixture
def disturb(monkeypatch):
    """A function (at, act) that arms `Disturbed`."""

    def arm(at, act=None):
        monkeypatch.setattr(Disturbed, "at", at)
        monkeypatch.setattr(Disturbed, "act", staticmethod(act) if act else None)
        monkeypatch.setattr(Disturbed, "count", 0)

    yield arm


@pytest.fixture
def ctrl_c(disturb, monkeypatch):
    """A function (at) that presses Ctrl-C after that many iterations of a fit."""
    monkeypatch.setattr(chains, "TURN", 0.0)
    handled = threading.Event()
    original = chains.Interruption._request

    def request(self, *args):
        handled.set()
        original(self, *args)

    monkeypatch.setattr(chains.Interruption, "_request", request)

    def act():
        handled.clear()
        signal.raise_signal(signal.SIGINT)
        # Only the main thread handles signals; a worker waits until it has.
        assert threading.current_thread() is threading.main_thread() or handled.wait(30)

    before = signal.getsignal(signal.SIGINT)
    yield lambda at: disturb(at, act)
    assert signal.getsignal(signal.SIGINT) is before


def _n_draws(estimator):
    return getattr(estimator, "log_joint_samples_", np.empty((1, 0))).shape[1]


def _interrupted(estimator, X, match):
    with pytest.warns(RuntimeWarning, match=match) as record, pytest.raises(KeyboardInterrupt):
        estimator.fit(X)
    assert any(warning.filename == __file__ for warning in record)


@pytest.mark.parametrize("name", everyday(["gaussian", "relational", "bernoulli"], "relational"))
@pytest.mark.parametrize("thin", everyday([1, 2], 2))
@pytest.mark.parametrize("n_jobs", everyday([1, 2, 3], 3))
def test_interruption(name, n_jobs, thin, ctrl_c):
    case = fit_case(name)
    params = {
        "sampler": Disturbed(),
        "resampled": True,
        "n_chains": 3,
        "n_draws": 20,
        "thin": thin,
    }
    whole = make_estimator(case.likelihood, **params).fit(case.X)
    estimator = make_estimator(case.likelihood, **params, warm_start=True, n_jobs=n_jobs)
    ctrl_c(3 * 10 + 3 * 10 + 1)
    _interrupted(estimator, case.X, r"interrupted after \d+ of 20 draws")
    n_draws = _n_draws(estimator)
    if n_jobs < 3:  # else a thread may be far behind or ahead of the one that stops them all
        assert n_draws == 10 // thin if n_jobs == 1 else 0 < n_draws < 20
    if n_draws > 0:
        # The attributes are those of a shorter fit; the chains themselves may be ahead of it.
        shorter = make_estimator(case.likelihood, **{**params, "n_draws": n_draws}).fit(case.X)
        shorter.n_iter_ = estimator.n_iter_
        assert_same_fit(estimator, shorter, case.X_new)
    # Again, while it goes on.
    if n_jobs < 3:
        ctrl_c(1)
        _interrupted(estimator, case.X, r"interrupted after \d+ of 20 draws")
        assert n_draws <= _n_draws(estimator) < 20
    ctrl_c(None)
    if min(chain["iteration"] for chain in estimator._run.chains) < whole.n_iter_:
        estimator.fit(case.X)
    assert_same_fit(estimator, whole, case.X_new)


@pytest.mark.parametrize("store_labels", everyday([True, False], True))
@pytest.mark.long
def test_a_fit_goes_on_from_what_is_shown(blobs, store_labels, ctrl_c, monkeypatch):
    """One chain is ahead when Ctrl-C comes: what it has beyond the others is shown, draw by draw,
    when that many are asked for."""
    params = {
        **FAST,
        "sampler": Disturbed(),
        "store_labels": store_labels,
        "point_estimate": "last",
    }
    estimator = DPMixture(**params, warm_start=True)
    ctrl_c(22 + 10 + 3)
    monkeypatch.setattr(chains, "TURN", 1e9)
    _interrupted(estimator, blobs, "interrupted after 3 of 12 draws")
    assert [chain["iteration"] for chain in estimator._run.chains] == [22, 13]
    assert estimator.n_iter_ == 13
    ctrl_c(None)
    with pytest.raises(
        ValueError, match="at least 3 with warm_start=True, because 3 draws exist; got 2"
    ):
        estimator.set_params(n_draws=2).fit(blobs)
    with pytest.warns(UserWarning, match="all 3 draws exist already"):
        estimator.set_params(n_draws=3).fit(blobs)
    for n_draws in (4, 9, 12, 14):
        estimator.set_params(n_draws=n_draws).fit(blobs)
        whole = DPMixture(**{**params, "n_draws": n_draws}).fit(blobs)
        for name in ("label_samples_", "log_joint_samples_", "n_components_samples_"):
            if hasattr(whole, name):
                np.testing.assert_array_equal(getattr(estimator, name), getattr(whole, name))
        assert estimator.n_iter_ == whole.n_iter_ == 10 + n_draws


@pytest.mark.slow
def test_interruption_as_scored_draws_thin_out(ctrl_c):
    """One chain has 34 draws and scores every second one, the others have 33 and score all: after
    the cut, every second one of each."""
    case = fit_case("bernoulli", n_samples=8)
    params = {"sampler": Disturbed(), "n_chains": 3, "n_draws": 40, "resampled": True}
    estimator = make_estimator(case.likelihood, **params)
    ctrl_c(3 * (10 + 33) + 1)
    _interrupted(estimator, case.X, "interrupted after 33 of 40 draws")
    expected = reference_scores(estimator, case, "bernoulli", case.X_new, slice(None, None, 2))
    np.testing.assert_allclose(estimator.score_samples(case.X_new), expected, rtol=1e-10)


@pytest.mark.parametrize("point_estimate", everyday(["map", "last"], "map"))
def test_interruption_without_stored_labels(blobs, point_estimate, ctrl_c):
    params = {
        **FAST,
        "sampler": Disturbed(),
        "store_labels": False,
        "point_estimate": point_estimate,
    }
    whole = DPMixture(**params).fit(blobs)
    estimator = DPMixture(**params, warm_start=True)
    ctrl_c(20 + 7)
    _interrupted(estimator, blobs, "interrupted after 3 of 12 draws")
    assert not hasattr(estimator, "label_samples_")
    assert estimator.labels_.shape == (30,)
    assert_same_fit(estimator.fit(blobs), whole, blobs)


@pytest.mark.long
def test_interrupted_estimators_can_be_pickled(blobs, ctrl_c):
    params = {**FAST, "sampler": Disturbed()}
    whole = DPMixture(**params).fit(blobs)
    estimator = DPMixture(**params, warm_start=True)
    ctrl_c(30)
    _interrupted(estimator, blobs, "interrupted after 5 of 12 draws")
    estimator = pickle.loads(pickle.dumps(estimator))
    assert_same_fit(estimator.fit(blobs), whole, blobs)


@pytest.mark.parametrize("n_jobs", everyday([1, 2], 1))
@pytest.mark.long
def test_a_warm_up_that_is_interrupted_ends(blobs, n_jobs, ctrl_c, monkeypatch):
    """Chains have draws then, those of a fit with this warm-up. The time for these begins when all
    chains have ended it."""
    places = []

    def halts(run, *arguments, **limits):
        if limits.get("max_time") == _estimator.MOMENT:
            places.extend(chain["iteration"] for chain in run.chains)
        return Halts(run, *arguments, **limits)

    monkeypatch.setattr(_estimator, "Halts", halts)
    params = {**FAST, "n_warmup": 40, "sampler": Disturbed()}
    estimator = DPMixture(**params, n_jobs=n_jobs)
    ctrl_c(7)
    _interrupted(estimator, blobs, r"after 12 of 12 draws of each chain, and \d+ of 40 warm-up")
    assert estimator.n_warmup_ < 40 and not estimator.converged_
    assert places == [estimator.n_warmup_] * params["n_chains"]
    assert {chain["iteration"] for chain in estimator._run.chains} == {estimator.n_iter_}
    ctrl_c(None)
    params["n_warmup"] = estimator.n_warmup_
    whole = DPMixture(**params).fit(blobs)
    whole.converged_ = False
    assert_same_fit(estimator, whole, blobs)
    # A fit that continues it has the rest of the warm-up first.
    estimator.set_params(warm_start=True)
    again = pickle.loads(pickle.dumps(estimator))
    whole = DPMixture(**{**params, "n_warmup": 40}).fit(blobs)
    assert_same_fit(estimator.fit(blobs), whole, blobs)
    assert_same_fit(
        again.set_params(n_draws=11).fit(blobs).set_params(n_draws=12).fit(blobs), whole, blobs
    )


@pytest.mark.parametrize(
    "warm_start, at, how",
    [
        (False, 7, r"set_params\(warm_start=True\) and fit again to continue"),
        (False, 2 * 22 - 1, r"set_params\(warm_start=True\) and fit again to continue"),
        (True, 7, "fit again to continue"),
    ],
)
@pytest.mark.long
def test_an_interruption_says_how_to_go_on(warm_start, at, how, blobs, ctrl_c):
    params = {**FAST, "n_warmup": 10 if at > 7 else 40, "sampler": Disturbed()}
    estimator = DPMixture(**params, warm_start=warm_start)
    ctrl_c(at)
    _interrupted(estimator, blobs, f"; {how}")
    ctrl_c(None)
    estimator.set_params(warm_start=True).fit(blobs)
    assert_same_fit(estimator, DPMixture(**params).fit(blobs), blobs)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", everyday([1, 2], 2))
@pytest.mark.parametrize("at", everyday([1, 2, 7], 2))
def test_interruption_in_warm_up(blobs, n_jobs, at, ctrl_c):
    params = {**FAST, "n_warmup": 30, "sampler": Disturbed()}
    whole = DPMixture(**params).fit(blobs)
    estimator = DPMixture(**params, n_jobs=n_jobs, warm_start=True)
    for fitted_before in (False, True):
        # Without a warm start chains that have all begun would make draws.
        ctrl_c(1 if fitted_before else at)
        _interrupted(estimator, blobs, "interrupted after 0 of 12 draws .*; nothing is fitted")
        assert not [name for name in vars(estimator) if name.endswith("_")], fitted_before
        with pytest.raises(NotFittedError):
            check_is_fitted(estimator)
        for method in ("predict", "predict_proba", "score_samples"):
            with pytest.raises(NotFittedError):
                getattr(estimator, method)(blobs)
        with pytest.raises(NotFittedError):
            estimator.sample()
        # The chains go on where they were.
        done = [chain["iteration"] for chain in estimator._run.chains]
        assert 1 <= max(done) and min(done) < 30
        ctrl_c(None)
        assert_same_fit(pickle.loads(pickle.dumps(estimator)).fit(blobs), whole, blobs)
        # An earlier fit, to other data, does not shine through.
        estimator.set_params(warm_start=False, sampler="gibbs").fit(blobs[:, :1])
        estimator.set_params(sampler=Disturbed())
        if not fitted_before:
            estimator.set_params(warm_start=False, n_jobs=1)


def test_interruption_after_the_last_iteration_still_raises(blobs, ctrl_c):
    """So that a grid search stops too."""
    estimator = DPMixture(**{**FAST, "n_chains": 1}, sampler=Disturbed())
    ctrl_c(22)
    _interrupted(estimator, blobs, "interrupted after 12 of 12 draws")
    whole = DPMixture(**{**FAST, "n_chains": 1}, sampler="gibbs").fit(blobs)
    assert_same_fit(estimator, whole, blobs)


@pytest.mark.long
def test_ctrl_c_stops_a_grid_search(blobs, ctrl_c):
    grid = GridSearchCV(
        DPMixture(sampler=Disturbed(), **FAST), {"discount": [0.0, 0.1, 0.2]}, cv=3
    )
    ctrl_c(100)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        grid.fit(blobs)
    assert Disturbed.count < 150  # of 9 fits of 44


@pytest.mark.slow
def test_second_ctrl_c_leaves_the_last_fit(blobs, disturb):
    estimator = DPMixture(**FAST, sampler=Disturbed(), warm_start=True).fit(blobs)
    whole = DPMixture(**{**FAST, "n_draws": 20}, sampler=Disturbed()).fit(blobs)
    before = estimator.log_joint_samples_

    def twice():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    disturb(5, twice)
    with pytest.raises(KeyboardInterrupt):
        estimator.set_params(n_draws=20).fit(blobs)
    assert estimator.log_joint_samples_ is before
    disturb(None)
    assert_same_fit(estimator.fit(blobs), whole, blobs)


@pytest.mark.parametrize("n_jobs", everyday([1, 2], 2))
@pytest.mark.parametrize("store_labels", [True, False])
@pytest.mark.some(1)
def test_an_error_in_one_chain(blobs, n_jobs, store_labels, disturb):
    params = {
        **FAST,
        "sampler": Disturbed(),
        "n_jobs": n_jobs,
        "store_labels": store_labels,
        "point_estimate": "last",
    }

    def fail():
        raise FloatingPointError("item 3: no cluster has positive weight")

    estimator = DPMixture(**params, warm_start=True)
    disturb(15, fail)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(FloatingPointError, match="item 3"):
        estimator.fit(blobs)
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(NotFittedError):
        estimator.predict(blobs)
    disturb(None)
    estimator.fit(blobs)

    # One that goes wrong while a fit goes on leaves the fit as it was.
    whole = DPMixture(**{**params, "n_draws": 20}).fit(blobs)
    disturb(5, fail)
    estimator.set_params(n_draws=20)
    labels, scores = estimator.labels_, estimator.score_samples(blobs)
    with pytest.raises(FloatingPointError, match="item 3"):
        estimator.fit(blobs)
    assert estimator.labels_ is labels
    np.testing.assert_array_equal(estimator.score_samples(blobs), scores)
    disturb(None)
    assert_same_fit(estimator.fit(blobs), whole, blobs)


# Pickles.


@combinations(name=NAMES, protocol=[2, pickle.HIGHEST_PROTOCOL])
@pytest.mark.some(2)
def test_pickles(name, protocol):
    case = fit_case(name)

    def copy(estimator):
        return pickle.loads(pickle.dumps(estimator, protocol=protocol))

    whole = make_estimator(case.likelihood, resampled=True, n_draws=20).fit(case.X)
    estimator = copy(make_estimator(case.likelihood, resampled=True, warm_start=True))
    estimator = copy(copy(estimator).fit(case.X))
    estimator = copy(estimator.set_params(n_draws=20).fit(case.X))
    assert_same_fit(estimator, whole, case.X_new)


def test_pickling_does_not_fit_nor_warn(blobs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pickle.loads(pickle.dumps(DPMixture(sampler=Gibbs(), likelihood=Gaussian())))
