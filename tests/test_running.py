"""Limits of time and of effective sample size, callbacks, messages, saving and notebooks."""

import functools
import inspect
import itertools
import pickle
import re
import threading
import types

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import v_measure_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import has_fit_parameter
from support.cases import FAST
from support.designs import everyday
from support.fits import assert_same_fit

from skdpm import (
    DPMixture,
    FeatureAllocation,
    FiniteMixture,
    _convergence,
    _estimator,
    _halts,
    chains,
)
from skdpm._names import ATTRIBUTES, OF_DPMIXTURE
from skdpm._run import Run
from skdpm.chains import ChainProgram
from skdpm.diagnostics import bulk_ess
from skdpm.features import samplers as feature_samplers
from skdpm.features.chains.program import FeatureChain
from skdpm.mixture.chains.program import RowChain
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SAMPLERS, SMC
from skdpm.partitions import coclustering_matrix, credible_ball
from skdpm.plotting import (
    ClustersDisplay,
    CoclusteringDisplay,
    NumberOfClustersDisplay,
    TraceDisplay,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

MODELS = {"mixture": DPMixture, "features": FeatureAllocation}


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 2)) + 3 * np.eye(3)[np.arange(30) % 3, :2]


@pytest.fixture
def clock(monkeypatch):
    """Time that goes by with the iterations alone, in each of which `clock.pace` seconds do."""
    clock = types.SimpleNamespace(now=0.0, pace=1.0, lock=threading.Lock())
    fake = types.SimpleNamespace(monotonic=lambda: clock.now, process_time=lambda: clock.now)
    monkeypatch.setattr(chains, "time", fake)
    monkeypatch.setattr(_halts, "time", fake)
    monkeypatch.setattr(_estimator, "time", fake)
    for live in (RowChain, FeatureChain):

        def step(self, iteration, original=live.step):
            original(self, iteration)
            with clock.lock:
                clock.now += clock.pace

        monkeypatch.setattr(live, "step", step)
    return clock


def _assert_whole(estimator, X):
    """A fit is, to the last bit of what goes on from it, one without limits."""
    n_draws = estimator.draws_.n_draws
    assert estimator.n_iter_ == estimator.n_warmup_ + estimator.thin * n_draws
    limits = {"n_warmup": estimator.n_warmup_, "n_draws": n_draws}
    limits |= {"max_time": None, "target_ess": None}
    whole = type(estimator)(**{**estimator.get_params(deep=False), **limits}).fit(X)
    for one, other in zip(estimator._run.chains, whole._run.chains, strict=True):
        assert one["iteration"] == other["iteration"] == estimator.n_iter_
        assert one.get("n_warmup", estimator.n_warmup_) == estimator.n_warmup_
        one = {name: value for name, value in one.items() if name != "n_warmup"}
        assert repr(one) == repr(other)
    if isinstance(estimator, DPMixture):
        assert_same_fit(estimator, whole, X)
        assert repr(estimator.acceptance_rate_) == repr(whole.acceptance_rate_)
    else:
        np.testing.assert_array_equal(estimator.log_joint_samples_, whole.log_joint_samples_)
        np.testing.assert_array_equal(estimator.allocations_, whole.allocations_)
        np.testing.assert_array_equal(estimator.score_samples(X), whole.score_samples(X))


# Time.


@pytest.mark.parametrize(
    "model, thin, n_jobs",
    everyday(
        itertools.product(MODELS, [1, 3], [1, 2]),
        *(("mixture", 3, 2), ("features", 1, 1)),
        n_values=3,
    ),
)
@pytest.mark.some(1)
def test_time_stops_all_chains_at_one_draw(model, thin, n_jobs, blobs, clock):
    clock.pace = 2.0**-7
    limits = {"max_time": 100 * clock.pace, "n_draws": 1000}
    estimator = MODELS[model](**{**FAST, **limits}, n_jobs=n_jobs, thin=thin).fit(blobs)
    assert estimator.fit_time_ == clock.now
    # The summaries may take 15 of 50 iterations.
    assert estimator.n_warmup_ == 10 and estimator.draws_.n_draws == (50 - 15 - 10) // thin
    _assert_whole(estimator, blobs)


@pytest.mark.slow
def test_time_that_is_not_as_foreseen(blobs, clock, monkeypatch):
    """Where iterations become slower, a round ends late, but ends alike in all chains."""
    estimator = DPMixture(**{**FAST, "n_draws": 1000}, max_time=1.0)
    clock.pace = 0.001
    original = RowChain.keep

    def keep(self, draw, log_joint):
        clock.pace = 0.001 * (1 + draw)
        return original(self, draw, log_joint)

    monkeypatch.setattr(RowChain, "keep", keep)
    estimator.fit(blobs)
    assert 0.7 < clock.now < 1.3
    _assert_whole(estimator, blobs)


@pytest.mark.slow
def test_n_draws_may_come_first(blobs, clock):
    estimator = DPMixture(**FAST, max_time=1e6, target_ess=1e-3).fit(blobs)
    assert_same_fit(estimator, DPMixture(**FAST).fit(blobs), blobs)


def test_time_over_in_warm_up(blobs, clock):
    estimator = DPMixture(**FAST, max_time=5.0)
    with pytest.warns(
        ConvergenceWarning,
        match="2 of 10 warm-up iterations and 1 draw of .* a whole fit takes about 1 minute",
    ) as record:
        estimator.fit(blobs)
    assert record[0].filename == __file__
    assert estimator.n_warmup_ == 2 and estimator.draws_.n_draws == 1 and estimator.n_iter_ == 3
    _assert_whole(estimator, blobs)


@pytest.mark.long
def test_limits_are_no_part_of_a_warm_start(blobs, clock):
    clock.pace = 0.01
    estimator = DPMixture(**FAST, warm_start=True, max_time=0.3).fit(blobs)
    n_cut, n_draws = estimator.n_warmup_, estimator.draws_.n_draws
    assert 0 < n_draws < 12 and 0 < n_cut < 10
    estimator.set_params(max_time=None).fit(blobs)
    assert_same_fit(estimator, DPMixture(**FAST).fit(blobs), blobs)
    # The draws after the cut were made for nothing.
    assert estimator.fit_time_ == pytest.approx(0.01 * 2 * (10 + 12 + n_draws))


@pytest.mark.parametrize("method", ["fit", "partial_fit"])
def test_particles_have_no_limits(method, blobs):
    estimator = DPMixture(sampler="smc", max_time=3.0, **FAST)
    with pytest.raises(ValueError, match="max_time must be None with SMC"):
        getattr(estimator, method)(blobs)


# Effective sample size.


def _least_ess(estimator, n_draws):
    names = ("log_joint", "n_components", "concentration")
    return min(bulk_ess(estimator.draws_[name][:, :n_draws]) for name in names)


@pytest.mark.slow
@pytest.mark.parametrize("model", everyday(MODELS, "features"))
def test_the_first_look_that_sees_enough_is_the_last(model, blobs):
    params = {**FAST, "n_draws": 400, "n_chains": 3}
    long = MODELS[model](**params).fit(blobs)
    looks = [50]
    while looks[-1] < 400:
        looks.append(int(np.ceil(1.1 * looks[-1])))
    found = [_least_ess(long, n) for n in looks if n < 400]
    target = float(np.median(np.maximum.accumulate(found)))
    expected = looks[int(np.argmax(np.array(found) >= target))]
    for n_jobs in (1, 2):
        estimator = MODELS[model](**params, target_ess=target, n_jobs=n_jobs).fit(blobs)
        assert estimator.draws_.n_draws == expected < 400
        assert _least_ess(estimator, expected) >= target
    _assert_whole(estimator, blobs)


@pytest.mark.parametrize("slow", ["log_joint", "n_components", "concentration"])
def test_the_slowest_quantity_counts(slow):
    rng = np.random.default_rng(0)
    names = ("log_joint", "n_components", "concentration")
    draws = {name: rng.normal(size=(2, 100)) for name in names}
    draws[slow] = np.repeat(draws[slow][:, :10], 10, axis=1)
    saved = [{"draws": {name: draws[name][c] for name in names}} for c in range(2)]
    for concentration in (None, 1.0):
        counts = names if concentration is None else names[:2]
        expected = min(bulk_ess(draws[name][:, :80]) for name in counts)
        program = types.SimpleNamespace(concentration=concentration)
        program.quantities = ChainProgram.quantities.fget(program)
        run = Run(entropy=0, signature={}, chains=saved, program=program)
        assert run.least_ess(80) == run.least_ess(80, draws) == expected
        assert (expected < 40) == (slow in counts)


def test_a_target_that_is_not_reached(blobs):
    estimator = DPMixture(**FAST, target_ess=1e5)
    with pytest.warns(ConvergenceWarning, match=r"target_ess=100000.0 was not reached") as record:
        estimator.fit(blobs)
    assert f"size is {_least_ess(estimator, 12):.3g} after 12 draws" in str(record[0].message)


# Callbacks.


class Recorder:
    """A callback that writes down what it is told, and may ask for an end."""

    def __init__(self, end_after=None, fitted=None):
        self.tasks, self.fits, self.threads = [], [], set()
        self.end_after, self.fitted = end_after, fitted

    def setup(self, estimator, context):
        self.tasks.append("setup")

    def teardown(self, estimator, context):
        self.tasks.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.threads.add(threading.current_thread())

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None, y=None):
        self.tasks.append((context.task_name, context.task_id))
        if self.fitted is not None and fitted_estimator is not None:
            self.fits.append((fitted_estimator, y))
        return self.tasks.count(("iterations", self.end_after)) > 0


@pytest.fixture
def recorder():
    pytest.importorskip("sklearn.callback")
    return Recorder


@pytest.mark.parametrize(
    "model, n_jobs",
    everyday(
        itertools.product([*MODELS, "particles"], [1, 2]),
        *(("mixture", 2), ("features", 1), ("particles", 1)),
        n_values=2,
    ),
)
@pytest.mark.some(1)
@pytest.mark.long
def test_callbacks_see_chains_and_change_nothing(model, n_jobs, blobs, recorder):
    cls = MODELS.get(model, DPMixture)
    params = {**FAST, "n_jobs": n_jobs, "n_warmup": 3, "n_draws": 4}
    if model == "particles":
        params["sampler"] = SMC(10)
    callback = recorder()
    estimator = cls(**params).set_callbacks(callback).fit(blobs)
    plain = cls(**params).fit(blobs)
    np.testing.assert_array_equal(estimator.log_joint_samples_, plain.log_joint_samples_)
    assert callback.threads == {threading.main_thread()}
    n_parts = 1 if model == "particles" else 7
    assert callback.tasks[0] == "setup" and callback.tasks[-1] == "teardown"
    for part in range(n_parts):
        assert callback.tasks.count(("iterations", part)) == 2
    assert callback.tasks[-4:-1] == [("chain", 0), ("chain", 1), ("fit", 0)]


@pytest.mark.slow
def test_callbacks_get_a_fit_as_if_it_ended_there(blobs, recorder):
    y = np.arange(30)
    callback = recorder(fitted=True)
    params = {**FAST, "n_draws": 6}
    DPMixture(**params, thin=2).set_callbacks(callback).fit(blobs, y)
    *fits, last = callback.fits
    for n_draws, (seen, given) in enumerate(fits, start=1):
        assert given is y
        assert_same_fit(seen, DPMixture(**{**FAST, "n_draws": n_draws}, thin=2).fit(blobs), blobs)
    assert n_draws == last[0].draws_.n_draws == 6


@pytest.mark.parametrize(("end_after", "n_draws"), [(2, 4), (15, 6)])
@pytest.mark.some(1)
@pytest.mark.long
def test_callbacks_may_end_a_fit(end_after, n_draws, blobs, recorder):
    """In warm-up, after a few draws."""
    estimator = DPMixture(**FAST).set_callbacks(recorder(end_after)).fit(blobs)
    assert estimator.draws_.n_draws == n_draws
    _assert_whole(estimator, blobs)


@pytest.mark.slow
def test_callbacks_of_a_grid_search(blobs, recorder):
    class Propagated(recorder):
        max_propagation_depth = None

    callback = Propagated()
    model = DPMixture(**{**FAST, "n_warmup": 2, "n_draws": 3})
    grid = GridSearchCV(model, {"discount": [0.0, 0.1]}, cv=2)
    grid.set_callbacks(callback).fit(blobs)
    assert callback.tasks.count("setup") == callback.tasks.count("teardown") == 1
    assert callback.tasks.count(("chain", 1)) == 2 * 2 + 1
    assert not hasattr(grid.best_estimator_, "_skl_callbacks")


@pytest.mark.slow
def test_scores_while_a_fit_runs(blobs):
    callback = pytest.importorskip("sklearn.callback")
    y, params = np.arange(30) % 3, {**FAST, "point_estimate": "vi"}
    monitor = callback.ScoringMonitor(scoring="v_measure_score")
    DPMixture(**params).set_callbacks(monitor).fit(blobs, y)
    rows = [row for row in monitor.get_logs().data if row["task_name"] == "iterations"]
    rows.sort(key=lambda row: row["task_id"])
    shorter = [DPMixture(**{**params, "n_draws": n}).fit(blobs) for n in (1, 2, 12)]
    expected = [v_measure_score(y, fit.predict(blobs)) for fit in shorter]
    assert [rows[n - 1]["v_measure_score"] for n in (1, 2, 12)] == expected
    assert len(rows) == 12 and len(set(expected)) > 1


def test_progress_bar_of_scikit_learn(blobs, capsys):
    callback = pytest.importorskip("sklearn.callback")
    pytest.importorskip("rich")
    DPMixture(**FAST).set_callbacks(callback.ProgressBar()).fit(blobs)
    assert "DPMixture - chain #1" in capsys.readouterr().out


# Saving.


def _keys(value):
    """Keys of all dicts within."""
    if isinstance(value, dict):
        yield from value
    if hasattr(value, "__dict__"):
        value = vars(value)
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, (dict, list, tuple)) or hasattr(part, "__dict__"):
            yield from _keys(part)


@pytest.mark.parametrize("sampler", ["gibbs", "sub_cluster", "smc", "stream"])
@pytest.mark.some(2)
def test_dicts_can_be_json(sampler, blobs):
    """skops takes keys of dicts as JSON does."""
    estimator = DPMixture(**FAST, sampler=SMC(10) if sampler in ("smc", "stream") else sampler)
    (estimator.partial_fit if sampler == "stream" else estimator.fit)(blobs)
    assert {type(key) for key in _keys(vars(estimator))} <= {str, int}


@pytest.mark.slow
def test_skops(blobs):
    skops = pytest.importorskip("skops.io")
    whole = DPMixture(**FAST).fit(blobs)
    saved = skops.dumps(DPMixture(**{**FAST, "n_draws": 5}, warm_start=True).fit(blobs))
    loaded = skops.loads(saved, trusted=skops.get_untrusted_types(data=saved))
    assert_same_fit(loaded.set_params(n_draws=12).fit(blobs), whole, blobs)


# Messages.


@pytest.mark.long
def test_parameters_of_others():
    with pytest.raises(TypeError, match=r"no parameter 'n_components': .* FiniteMixture\(n_comp"):
        DPMixture(n_components=3)
    with pytest.raises(TypeError, match="'n_clusters': its name is n_components"):
        FiniteMixture(n_clusters=3)
    with pytest.raises(TypeError, match="'max_iter': iterations are n_warmup and n_draws"):
        FeatureAllocation(max_iter=3)
    for name in ("k", "max_components"):
        with pytest.raises(TypeError, match=f"'{name}': the number of clusters is inferred"):
            DPMixture(**{name: 3})
        with pytest.raises(TypeError, match=f"'{name}': its name is n_components"):
            FiniteMixture(**{name: 3})
    with pytest.raises(TypeError, match="'seed': its name is random_state"):
        DPMixture(seed=1)
    with pytest.raises(TypeError, match="'eps': no distance is given"):
        FiniteMixture(2, eps=0.5)
    with pytest.raises(TypeError, match=r"'reg_covar': .* Gaussian\(scale=\.{3}\)"):
        FiniteMixture(2, reg_covar=1e-6)
    with pytest.raises(TypeError, match=r"prior': use concentration, the total of all components"):
        FiniteMixture(2, weight_concentration_prior=0.5)
    with pytest.raises(TypeError, match=r"prior': its name is concentration$"):
        DPMixture(weight_concentration_prior=0.5)
    with pytest.raises(ValueError, match=r"init must be .* 'k-means\+\+'; did you mean 'kmeans'?"):
        DPMixture(init="k-means++").fit(np.eye(9))
    known = {*OF_DPMIXTURE, *DPMixture().get_params(), "copy_x", "verbose_interval"}
    for others in (GaussianMixture, BayesianGaussianMixture, KMeans):
        assert others().get_params().keys() <= known
    with pytest.raises(TypeError, match=r"'tail_df': .* tails=StudentTails\(df=3\)"):
        Gaussian(tail_df=3)
    with pytest.raises(TypeError, match=r"'inflation': .*tails=ContaminatedTails\(inflation=10\)"):
        Gaussian(inflation=4.0)
    with pytest.raises(ValueError, match=r"set_params .* 'tail_df': .* tails=StudentTails\(df=3"):
        DPMixture(likelihood=Gaussian()).set_params(likelihood__tail_df=3)
    with pytest.raises(ValueError, match="'alpha': its name is concentration"):
        DPMixture().set_params(alpha=1.0)
    with pytest.raises(TypeError, match="unexpected keyword argument 'covariance_type'"):
        FeatureAllocation(covariance_type="full")
    with pytest.raises(ValueError, match=r"'n_components': .* FiniteMixture\(n_comp"):
        GridSearchCV(Pipeline([("dp", DPMixture())]), {"dp__n_components": [2]}).fit(np.eye(9))
    assert inspect.signature(DPMixture).parameters.keys() == DPMixture().get_params().keys()
    of_fit = list(inspect.signature(DPMixture.fit).parameters)
    assert of_fit == ["self", "X", "y", "known_labels", "exposure"]


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture, FeatureAllocation])
def test_attributes_before_a_fit(cls, blobs):
    estimator = cls(**FAST)
    listed = set(re.findall(r"^    ?(\w+_)(?:, \w+_)* :", inspect.getdoc(cls), re.MULTILINE))
    for name in {*listed, "converged_", "diagnostics_", "draws_"} - ATTRIBUTES.keys():
        assert not hasattr(estimator, name) and not hasattr(clone(estimator), name)
        if not name.endswith("_in_"):
            with pytest.raises(NotFittedError, match=f"{name}: it is not fitted; call fit first"):
                getattr(estimator, name)
    assert pickle.loads(pickle.dumps(estimator.fit(blobs))).converged_ == estimator.converged_


@pytest.mark.long
def test_names_that_users_try(blobs):
    estimator = DPMixture(**FAST).fit(blobs)
    for name, way in ATTRIBUTES.items():
        assert not hasattr(estimator, name) and name not in dir(estimator)
        with pytest.raises(AttributeError) as found:
            getattr(estimator, name)
        assert str(found.value) == f"DPMixture has no {name}: {way}"
    # True of a given number of clusters, too.
    assert "inferred" not in ATTRIBUTES["bic"] and "score(X)" in ATTRIBUTES["bic"]
    with pytest.raises(AttributeError, match=r"'DPMixture' object has no attribute 'mean_'$"):
        estimator.mean_  # noqa: B018
    with pytest.raises(AttributeError, match="labels_samples_'; did you mean 'label_samples_'"):
        estimator.labels_samples_  # noqa: B018
    stream = DPMixture(sampler="smc", n_chains=1, random_state=0).partial_fit(blobs)
    with pytest.raises(AttributeError, match="no label_samples_: not kept by partial_fit"):
        stream.label_samples_  # noqa: B018
    for question in (estimator.probability_of_number, estimator.probability_together):
        with pytest.raises(TypeError, match=rf"^{question.__name__}\(\) missing"):
            question()
    with pytest.raises(TypeError, match=r"label_samples must be labels: pass model\.label_sam"):
        coclustering_matrix(estimator)
    with pytest.raises(AttributeError, match="for_prediction keeps no draws: use the fit itself"):
        estimator.for_prediction().describe()
    with pytest.raises(ValueError, match=r"as \(1, 9\) for a mean share of 0.1; got 0.1"):
        DPMixture(noise=0.1).fit(blobs)
    with pytest.raises(TypeError, match=r"got 3 without .*estimate_labels\(max_clusters=\.{3}\)"):
        estimator.estimate_labels(3)
    with pytest.raises(TypeError, match="no parameter 'n_clusters': its name is max_clusters"):
        estimator.estimate_labels(n_clusters=3)
    with pytest.raises(TypeError, match=r"fit got \[0\] without .*\.fit\(known_labels=\.{3}\)"):
        estimator.fit(blobs, None, [0])
    with pytest.raises(TypeError, match=r"is drawn by ClustersDisplay\.from_estimator"):
        ClustersDisplay(estimator)


@pytest.mark.long
def test_summary_of_particles_has_the_evidence(blobs):
    model = DPMixture(sampler=SMC(10), n_chains=2, n_draws=4, random_state=0).fit(blobs)
    error = model.diagnostics_["log_evidence"]["std"] / 2**0.5
    assert f"  {model.log_evidence_:.6g} +- {error:.2g}" in model.summary()
    alone = DPMixture(sampler=SMC(10), n_chains=1, n_draws=4, random_state=0).fit(blobs)
    assert alone.summary().count("+-") == 0 and f"  {alone.log_evidence_:.6g}" in alone.summary()
    assert "evidence" not in DPMixture(**FAST).fit(blobs).summary()


@pytest.mark.long
def test_numbers_in_a_terminal_and_in_the_log(blobs, caplog):
    estimator = DPMixture(**FAST)
    assert str(estimator) == repr(estimator)
    with caplog.at_level("INFO", logger="skdpm"):
        estimator.fit(blobs)
    assert str(estimator) == f"{estimator!r}\n{estimator.summary()}"
    assert estimator._repr_mimebundle_()["text/plain"] == str(estimator)
    begins, ends = [record.getMessage() for record in caplog.records if record.name == "skdpm"]
    assert begins.startswith("DPMixture.fit begins: Gaussian(")
    assert ends == f"DPMixture.fit ends\n{estimator.summary()}"


@pytest.mark.long
def test_summary_says_which_reading_its_numbers_are_of(blobs):
    def line(estimator, name="clusters"):
        lines = dict(words.split("  ", 1) for words in estimator.summary().splitlines())
        return lines[name].strip()

    estimator = FiniteMixture(5, **FAST).fit(blobs)
    assert line(estimator, "components").endswith(", of at most 5")
    # The same range as in the figure.
    few = estimator.n_components_samples_
    low, high = NumberOfClustersDisplay.from_estimator(estimator, of="components").interval_
    ends = f"{low}" if low == high else f"{low} to {high}"
    assert line(estimator, "components") == f"in 90 % of the draws {ends}, of at most 5"
    assert np.mean((few >= low) & (few <= high)) >= 0.9
    of_hills, drawn = line(estimator), estimator.n_clusters_samples_
    assert of_hills.startswith(f"{estimator.n_clusters_} (in 90 % of the draws ")
    assert "component" not in of_hills
    estimator.estimate_labels(max_clusters=1)
    assert line(estimator) == of_hills.replace(of_hills[:3], "1 (at most 1 asked for; ", 1)
    assert_array_equal(estimator.n_clusters_samples_, drawn)
    estimator.estimate_labels(loss="vi", max_clusters=9)
    assert "(at most 9 asked for; in 90 %" in line(estimator)
    assert line(estimator).endswith(", one for each component)")
    for loss in ("binder", ("vi", 0.5)):
        assert "asked" not in line(estimator.estimate_labels(loss=loss))
    assert line(estimator.estimate_labels(loss="adaptive")) == of_hills
    estimator.n_clusters_samples_ = drawn + 9
    assert line(estimator).endswith("; no draw has as few as labels_)")
    estimator.n_clusters_samples_ = np.zeros_like(drawn)
    assert line(estimator).endswith("; no draw has as many as labels_)")
    # The shortest range, not quantiles, which would be 3 to 4.
    estimator.n_clusters_samples_ = np.repeat([[3], [4]], [93, 7], axis=0)
    assert "in 90 % of the draws 3" in line(estimator) and "3 to 4" not in line(estimator)
    # A large R-hat that leaves answers usable is explained.
    figures = estimator.diagnostics_
    for name in figures:
        figures[name] = figures[name] | {"r_hat": 1.0}
    figures["log_density"] |= {"r_hat": 1.76, "difference_chains": 0.03}
    estimator.converged_ = False
    assert line(estimator, "largest R-hat") == "1.76 (log_density)"
    estimator.converged_ = True
    said = line(estimator, "largest R-hat")
    assert said == (
        "1.76 (log_density), acceptable for labels and densities: chains differ by 0.03 nats "
        "per row and column"
    )
    figures["log_density"]["difference_chains"] = 0.5
    assert line(estimator, "largest R-hat") == "1.76 (log_density)"
    figures["log_density"]["r_hat"] = 1.0
    figures["n_components"]["r_hat"] = 1.5
    acceptable = "1.50 (n_components), acceptable for labels and densities: probabilities of a num"
    assert line(estimator, "largest R-hat").startswith(acceptable)
    # One that counts is named before a larger one that does not.
    figures["log_density"]["r_hat"] = 1.3
    assert line(estimator, "largest R-hat") == "1.30 (log_density)"
    estimator.set_params(point_estimate="map").fit(blobs)
    assert line(estimator).endswith(", one for each component)")


@pytest.mark.long
def test_copy_for_prediction(blobs):
    known = np.where(np.arange(30) < 3, np.arange(30), -1)
    estimator = DPMixture(**FAST, noise=True).fit(blobs, known_labels=known)
    light = estimator.for_prediction()
    new = np.array([[0.0, 3.0], [9.0, 9.0]])
    for copied in (light, pickle.loads(pickle.dumps(light)), light.for_prediction()):
        for method in ("predict", "predict_proba", "score_samples", "score"):
            expected = getattr(estimator, method)(new)
            assert_array_equal(getattr(copied, method)(new), expected)
        for given in (None, {0: 1.0}):
            for found, expected in zip(
                copied.sample(5, given), estimator.sample(5, given), strict=True
            ):
                assert_array_equal(found, expected)
        gaps = np.array([[np.nan, 1.0]])
        assert_array_equal(copied.impute(gaps), estimator.impute(gaps))
        assert repr(copied) == str(copied)
        lines = dict(line.split("  ", 1) for line in copied.summary().splitlines())
        assert lines["clusters"].strip() == str(estimator.n_clusters_)
        assert "likelihood" in lines and "the fit itself has draws" in lines["draws"]
        assert "_run" not in vars(copied) and not hasattr(copied, "labels_")
        with pytest.raises(AttributeError, match="estimate_labels needs label draws"):
            copied.estimate_labels(max_clusters=2)
    many = DPMixture(**FAST).fit(np.random.default_rng(0).normal(size=(1000, 2)))
    assert len(pickle.dumps(many.for_prediction())) < len(pickle.dumps(many)) / 3
    assert_same_fit(light.fit(blobs, known_labels=known), estimator, blobs)  # it can be fitted
    assert "the fit itself" not in light.summary()


def test_scores_after_pickling_say_what_has_them(blobs):
    again = pickle.loads(pickle.dumps(DPMixture(**FAST).fit(blobs)))
    with pytest.raises(AttributeError, match=r"pass them as X to outlier_scores\(X\), or"):
        _ = again.outlier_scores_
    assert again.outlier_scores(blobs).shape == (len(blobs),)


@pytest.mark.long
def test_copy_for_prediction_keeps_no_entries_of_the_fit():
    X = np.random.default_rng(0).normal(size=(400, 3))
    gaps = np.where(np.random.default_rng(1).random(X.shape) < 0.4, np.nan, X)
    estimator = DPMixture(n_chains=2, n_warmup=3, n_draws=40, random_state=0).fit(gaps)
    size = len(pickle.dumps(estimator._predictor))
    light = estimator.for_prediction()
    assert len(pickle.dumps(light._predictor)) < size - 8 * 80 * np.isnan(gaps).sum() / 2
    for method in ("predict", "score_samples", "outlier_scores"):
        expected = getattr(estimator, method)(X[:5])
        assert_array_equal(getattr(light, method)(X[:5]), expected)
    assert "completion" in estimator.draws_.scored.draws[0]


@pytest.mark.long
def test_copy_for_prediction_says_what_it_lacks(blobs):
    estimator = DPMixture(sampler=SMC(n_particles=20), n_draws=5, random_state=0).fit(blobs)
    light = estimator.for_prediction()
    for name in ("effective_sample_size_", "log_evidence_", "log_evidence_chains_"):
        assert_array_equal(getattr(light, name), getattr(estimator, name))
    assert light.diagnostics_.keys() == estimator.diagnostics_.keys()
    for copied in (light, light.for_prediction(), pickle.loads(pickle.dumps(light))):
        asked = [
            lambda copied=copied: copied.labels_,
            lambda copied=copied: copied.label_samples_,
            lambda copied=copied: copied.partial_fit(blobs),
            *(
                functools.partial(display.from_estimator, copied)
                for display in (CoclusteringDisplay, NumberOfClustersDisplay, TraceDisplay)
            ),
        ]
        for ask in asked:
            with pytest.raises(AttributeError, match=r"for_prediction keeps no .*use the fit"):
                ask()
        with pytest.raises(AttributeError, match="only a fit with the likelihood Product"):
            copied.relevance_  # noqa: B018


def test_rows_of_other_seeds_differ(blobs):
    estimator = DPMixture(**FAST).fit(blobs)
    first, _ = estimator.sample(5, random_state=1)
    assert_array_equal(first, estimator.sample(5, random_state=1)[0])
    assert not np.isin(first, estimator.sample(5, random_state=2)[0]).any()
    # The seed of the estimator is the same in each call.
    assert_array_equal(estimator.sample(5)[0], estimator.sample(5)[0])
    assert not np.isin(first, estimator.sample(5)[0]).any()


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture, FeatureAllocation])
def test_sample_weight_is_refused_with_words(cls, blobs):
    assert not has_fit_parameter(cls(), "sample_weight")
    with pytest.raises(TypeError, match=r"rows have no weights\. Draw a sample"):
        cls().fit(blobs, sample_weight=np.ones(30))
    if cls is not FeatureAllocation:
        with pytest.raises(TypeError, match=r"partial_fit has no parameter 'sample_weight'"):
            cls(sampler="smc").partial_fit(blobs, sample_weight=np.ones(30))
    with pytest.raises(TypeError, match="unexpected keyword argument 'weight'"):
        cls().fit(blobs, weight=np.ones(30))
    with pytest.raises(TypeError, match="'random_sate': did you mean random_state"):
        cls(random_sate=0)
    with pytest.raises(TypeError, match=r"'n_cluster': .*n_components"):
        cls(n_cluster=3)
    assert cls().set_params(n_chains=3).n_chains == 3


def test_text_is_found(blobs):
    table = pd.DataFrame(blobs, columns=["a", "b"]).assign(city="Paris")
    with pytest.raises(
        ValueError, match="'Paris', in column 'city' of X; use likelihood=\"mixed\""
    ):
        DPMixture(likelihood="gaussian").fit(table)
    with pytest.raises(ValueError, match=r"'Paris', in column 2 of X; use likelihood"):
        DPMixture(likelihood="gaussian").fit(table.to_numpy().tolist())
    with pytest.raises(ValueError, match=r"in column 'city' of X$"):
        FeatureAllocation().fit(table)
    for name in ("multinomial", "von_mises_fisher"):
        with pytest.raises(ValueError, match=r"CountVectorizer, for likelihood=\"multinomial\""):
            DPMixture(likelihood=name).fit(["a b c", "c d"])
    for texts in (["a b c", "c d"], np.array(["a b c", "c d"]), pd.Series(["a b c", "c d"])):
        with pytest.raises(ValueError, match=r"CountVectorizer, for likelihood=\"multinomial\""):
            DPMixture().fit(texts)
    with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
        DPMixture(likelihood="mixed").fit(blobs[:, 0])
    counts = csr_array(np.eye(4))
    with pytest.raises(TypeError, match=r'dense rows: for counts.*"multinomial".*or pass X\.toar'):
        DPMixture().fit(counts)
    with pytest.raises(ValueError, match=r"did you mean 'gaussian', fitted to np\.log\(X\)\?"):
        DPMixture(likelihood="lognormal").fit(blobs)
    for name, hint in [("pyclone", "mutation_design makes X"), ("relational", "matrix of links")]:
        with pytest.raises(ValueError, match=hint):
            DPMixture(likelihood=name).fit(table)
    with pytest.raises(ValueError, match="did you mean 'von_mises_fisher'"):
        DPMixture(likelihood="cosine").fit(blobs)
    with pytest.raises(ValueError, match=r'did you mean FeatureAllocation\(likelihood="lfrm"\)\?'):
        DPMixture(likelihood="lfrm").fit(blobs)
    for cls in set(SAMPLERS.values()) | set(feature_samplers.SAMPLERS.values()):
        if "from_paper" not in vars(cls):
            continue
        estimator = DPMixture if cls in SAMPLERS.values() else FeatureAllocation
        for variant in cls.from_paper.variants:
            assert cls.from_paper(variant).kernel
            for word in {variant, variant.lower()} - set(SAMPLERS):
                with pytest.raises(ValueError, match=re.escape(f".from_paper('{variant}')")):
                    estimator(sampler=word).fit(blobs)
        assert repr(variant) in cls.from_paper.__doc__
    for estimator, word, meant in [
        (DPMixture, "GIBBS", "'gibbs'"),
        (DPMixture, "GIBBS+SAMS", "'sams'"),
        (DPMixture, "SM", "'split_merge'"),
        (DPMixture, "FSD", 'FiniteMixture(100, sampler="blocked_gibbs")'),
        (FeatureAllocation, "DPF", "'discrete_particle_filter'"),
        (FeatureAllocation, "automatic", "'auto'"),
    ]:
        with pytest.raises(ValueError, match=re.escape(f"did you mean {meant}?")):
            estimator(sampler=word).fit(blobs)


# Notebooks.


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.some(1)
def test_html_has_the_fit(model, blobs):
    estimator = MODELS[model](**FAST)
    assert "R-hat" not in estimator._repr_html_()
    estimator.fit(blobs)
    page = estimator._repr_html_()
    assert "12 of each of 2 chains" in page and "largest R-hat" in page
    assert {"mixture": "clusters", "features": "features"}[model] + "</th>" in page
    assert "12 of each of 2 chains" in estimator._repr_mimebundle_()["text/html"]
    assert "12 of each" not in repr(estimator)
    judged = _convergence.judged(estimator.diagnostics_)
    worst = max(figures["r_hat"] for figures in judged.values())
    assert f">{worst:.2f} (" in page


def test_html_of_one_short_chain(blobs):
    page = DPMixture(n_chains=1, n_draws=1, n_warmup=0).fit(blobs)._repr_html_()
    assert "1 of one chain" in page and "R-hat" not in page


def test_arrays_are_short(blobs):
    draws = DPMixture(**FAST).fit(blobs).label_samples_
    ball = credible_ball(draws)
    assert repr(ball) == (
        f"CredibleBall: 95% of 24 draws are within {ball.radius:.3g} ('vi') of a centre with "
        f"{len(np.unique(ball.center))} clusters"
    )
