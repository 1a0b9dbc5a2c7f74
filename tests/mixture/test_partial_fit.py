"""`partial_fit`: batches of any size give the same bits, failures change nothing, and every output
against enumeration or `fit`."""

import copy
import pickle
import signal
import warnings
from dataclasses import replace

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions
from reference.likelihoods import LOG_MARGINALS, log_posterior_concentration
from reference.priors import log_eppf
from reference.simulate import LIKELIHOOD_NAMES, PRIOR_CASES
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from support.cases import fit_case, make_estimator
from support.designs import combinations, everyday
from support.exactness import case_posterior, case_rows, make_likelihood
from support.fits import assert_same_fit
from support.laws import numbers_of

from skdpm import DPMixture, FiniteMixture, chains
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from skdpm.mixture.particles import program as _particles
from skdpm.mixture.particles import streams as _streams
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import SAMPLERS, SMC, Gibbs
from skdpm.papers.smc import AnnealedSMC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PRODUCT = [name for name in LIKELIHOOD_NAMES if not name.startswith("relational")]
FILTER = {"n_particles": 6, "rejuvenation": None, "order": "given"}
STREAM_ATTRIBUTES = {
    "cluster_params_",
    "concentration_samples_",
    "diagnostics_",
    "draws_",
    "effective_sample_size_",
    "fit_time_",
    "hyperparameter_samples_",
    "labels_",
    "likelihood_",
    "log_evidence_",
    "log_evidence_chains_",
    "log_joint_samples_",
    "converged_",
    "n_clusters_",
    "n_clusters_samples_",
    "n_components_samples_",
    "n_features_in_",
    "n_iter_",
    "n_warmup_",
    "n_samples_seen_",
    "sampler_",
    "weights_",
}


def public(estimator):
    estimator._read()
    return {name for name in vars(estimator) if name.endswith("_")}


def stream(case, prior="dp", **params):
    # A narrow law of the concentration has few nodes.
    settings = {"sampler": SMC(**FILTER), "concentration_prior": (40.0, 20.0), **params}
    return make_estimator(case.likelihood, prior, **settings)


def learn(estimator, X, stops=(), way="plain"):
    """The estimator after the rows in batches; `way` is what happens between two of them."""
    for n, batch in enumerate(np.split(X, stops)):
        if way == "pickle":
            estimator = pickle.loads(pickle.dumps(estimator))
        if way == "threads":
            estimator.set_params(n_jobs=1 + n % 2)
        assert estimator.partial_fit(batch) is estimator
        assert len(estimator.labels_) == len(batch)
    return estimator


def assert_equal_bits(one, other, where=""):
    """Of nested dicts, lists and tuples of arrays and numbers."""
    if isinstance(one, dict):
        assert list(one) == list(other), where
        for name in one:
            assert_equal_bits(one[name], other[name], f"{where} {name}")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), where
        for a, b in zip(one, other, strict=True):
            assert_equal_bits(a, b, where)
    else:
        np.testing.assert_array_equal(one, other, err_msg=where)


def assert_same_outputs(one, other, X):
    """All that describes all rows seen, to the bit: not the labels of the last batch."""
    assert public(one) == public(other)
    assert (one.log_evidence_, one.n_samples_seen_) == (other.log_evidence_, other.n_samples_seen_)
    assert one.n_iter_ == other.n_iter_ == one.n_samples_seen_
    for name in ("log_evidence_chains_", "effective_sample_size_", "weights_", "n_clusters_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("draws_", "cluster_params_", "diagnostics_", "hyperparameter_samples_"):
        assert_equal_bits(dict(getattr(one, name)), dict(getattr(other, name)), name)
    for method in ("score_samples", "predict_proba"):
        pair = [getattr(estimator, method)(X) for estimator in (one, other)]
        # Clusters of several draws are added up in another order where rows tell which are equal.
        np.testing.assert_allclose(*pair, rtol=1e-13, err_msg=method)


def assert_same_stream(one, other, X):
    """The outputs, and what both go on from."""
    assert_same_outputs(one, other, X)
    n = min(len(one.labels_), len(other.labels_))
    np.testing.assert_array_equal(one.labels_[-n:], other.labels_[-n:])
    assert_equal_bits(one._run.chains, other._run.chains)
    np.testing.assert_array_equal(one.score_samples(X), other.score_samples(X))


CELLS = [
    ("gaussian", "dp", False),
    ("gaussian", "mfm", True),
    ("gaussian_diag", "pitman_yor", True),
    ("bernoulli", "finite", True),
    ("categorical", "pitman_yor_negative", False),
    ("multinomial", "dp", True),
    ("poisson", "mfm", False),
]


@pytest.mark.parametrize(
    "likelihood, prior, resampled", everyday(CELLS, CELLS[0], CELLS[5], n_values=3)
)
@pytest.mark.some(1)
@pytest.mark.long
def test_batches_give_the_bits_of_one(likelihood, prior, resampled):
    case = fit_case(likelihood, n_samples=41)
    # Entries are missing in the middle alone: some batches are complete, clusters may not be.
    hole = np.isnan(case.X).any(axis=1)
    X = np.vstack([case.X[~hole][:9], case.X[hole], case.X[~hole][9:]])
    whole = learn(stream(case, prior, resampled=resampled), X)
    for stops, way in (
        ([1, 2, 9, 33], "plain"),
        ([20], "pickle"),
        ([3, 7, 40], "pickle"),
        ([13, 26], "threads"),
    ):
        parts = learn(stream(case, prior, resampled=resampled), X, stops, way)
        assert_same_stream(parts, whole, case.X_new)
    assert whole._run.chains[0]["system"]["n_resampled"] > 0


@pytest.mark.parametrize("scheme", ["systematic", "stratified", "multinomial", "optimal"])
@pytest.mark.some(2)
def test_batches_under_any_resampling(scheme):
    case = fit_case("gaussian", n_samples=60)
    sampler = SMC(5, resampling=scheme, resample_threshold=0.9)
    whole = learn(stream(case, sampler=sampler, resampled=True), case.X)
    parts = learn(stream(case, sampler=sampler, resampled=True), case.X, [11, 12, 35], "pickle")
    assert_same_stream(parts, whole, case.X_new)
    assert whole._run.chains[1]["system"]["n_resampled"] > 3


@pytest.mark.parametrize(
    "likelihood, prior, resampled", everyday(CELLS, CELLS[0], CELLS[3], CELLS[5], n_values=3)
)
def test_a_stream_is_a_fit_of_the_same_rows(likelihood, prior, resampled):
    """With a filter alone in the order given; the labels too. Rows of which nothing is known are
    left out, because only a fit can tell them from the rows of their cluster."""
    case = fit_case(likelihood, n_samples=44)
    case = replace(case, X=case.X[~np.isnan(case.X).all(axis=1)][:41])
    fit = stream(case, prior, resampled=resampled, point_estimate="map").fit(case.X)
    seen = learn(stream(case, prior, resampled=resampled), case.X, [1, 19, 33], "pickle")
    gone = {"acceptance_rate_", "cluster_samples_", "label_samples_", "probabilities_"}
    assert public(fit) - gone == public(seen) == STREAM_ATTRIBUTES
    fit.draws_._values.pop("labels")
    for name in gone:
        delattr(fit, name)
    assert_same_outputs(seen, fit, case.X_new)
    np.testing.assert_array_equal(seen.labels_, fit.labels_[33:])
    assert seen.labels_.dtype == np.int64
    np.testing.assert_array_equal(seen.predict(case.X_new), fit.predict(case.X_new))


@combinations(likelihood=PRODUCT, prior=PRIOR_CASES)
def test_following_all_choices_is_enumeration(likelihood, prior):
    """Particles for all partitions, and the evidence in batches: each raises it by the log
    predictive density of its rows."""
    X, posterior = case_rows(likelihood), case_posterior(likelihood, prior)
    estimator = make_estimator(make_likelihood(likelihood), prior, sampler=SMC(52), n_draws=4)
    estimator.partial_fit(X[:2])
    name, params = PRIOR_CASES[prior]
    log_marginal = LOG_MARGINALS[likelihood]
    case_params = make_likelihood(likelihood).get_params()
    case_params = {k: case_params[k] for k in log_keys(likelihood, case_params)}
    first = logsumexp(
        [
            log_eppf(np.bincount(z), name, **params)
            + sum(log_marginal(X[:2][z == k], **case_params) for k in range(z.max() + 1))
            for z in enumerate_partitions(2)
        ]
    )
    np.testing.assert_allclose(estimator.log_evidence_chains_, first, atol=1e-10)
    estimator.partial_fit(X[2:])
    np.testing.assert_allclose(estimator.log_evidence_chains_, posterior.log_evidence, atol=1e-10)
    assert estimator.n_samples_seen_ == len(X)
    assert np.isin(
        np.round(estimator.log_joint_samples_, 8), np.round(posterior.log_joint, 8)
    ).all()


def log_keys(likelihood, params):
    """The keywords that the reference of a likelihood takes."""
    return fit_case(likelihood).params.keys() & params.keys()


@pytest.mark.parametrize("prior", ["dp", "finite"])
def test_the_concentration_is_integrated_out(prior):
    X, (name, params) = case_rows("bernoulli"), PRIOR_CASES[prior]
    law = log_posterior_concentration(
        X,
        "bernoulli",
        name,
        likelihood_params=numbers_of(make_likelihood("bernoulli")),
        prior_params={k: v for k, v in params.items() if k != "concentration"},
        concentration_prior=(2.0, 0.8),
    )
    estimator = make_estimator(
        make_likelihood("bernoulli"),
        prior,
        sampler=SMC(52),
        resampled=True,
        concentration_prior=(2.0, 0.8),
    )
    learn(estimator, X, [1, 4])
    np.testing.assert_allclose(estimator.log_evidence_chains_, law.log_evidence, atol=1e-9)
    assert len(np.unique(estimator.concentration_samples_)) == 24


@pytest.mark.parametrize("learned", [False, True])
def test_goes_on_from_a_fit(learned):
    """One particle is one draw: the next row is predicted as `score_samples` does, by its clusters
    and hyperparameters."""
    case = fit_case("poisson", n_samples=30)
    likelihood = Poisson(rate=0.5) if learned else case.likelihood
    settings = {"sampler": SMC(1), "n_chains": 1, "n_draws": 2, "random_state": 3}
    estimator = make_estimator(likelihood, **settings).fit(case.X)
    assert hasattr(estimator, "label_samples_") and hasattr(estimator, "acceptance_rate_")
    assert estimator.n_samples_seen_ == 30
    values = estimator.hyperparameter_samples_
    assert (len(values) == 1) == learned
    for n, row in enumerate(case.X_new):
        before, score = estimator.log_evidence_, estimator.score_samples(row[None])[0]
        if n == 2:
            estimator = pickle.loads(pickle.dumps(estimator))
        estimator.partial_fit(row[None])
        assert abs(estimator.log_evidence_ - before - score) < 1e-9
        assert public(estimator) == STREAM_ATTRIBUTES
        assert estimator.n_samples_seen_ == estimator.n_iter_ == 31 + n
        assert_equal_bits(estimator.hyperparameter_samples_, values)


@pytest.mark.parametrize(
    "likelihood",
    everyday([Gaussian(), Poisson(), Bernoulli(a=1.0, b=1.0)], "Poisson()"),
    ids=repr,
)
@pytest.mark.long
def test_batches_after_a_fit(likelihood):
    """Particles with hyperparameters of their own, moved in `fit`: bits do not depend on batches
    and pickles, and the values stay."""
    rng = np.random.default_rng(1)
    X = rng.poisson(rng.choice([1.0, 9.0], size=(90, 1)), size=(90, 2)).astype(float)
    if isinstance(likelihood, Bernoulli):
        X = (X > 3).astype(float)
    fit = make_estimator(likelihood, sampler=SMC(7), resampled=True).fit(X[:50])
    values = [values for chain in fit._run.chains for values in chain["family_values"]]
    copies = [pickle.loads(pickle.dumps(fit)) for _ in range(2)]
    whole = learn(copies[0], X[50:])
    parts = learn(copies[1], X[50:], [1, 9, 30], "pickle")
    assert_same_stream(parts, whole, X)
    assert whole.log_evidence_ < fit.log_evidence_
    for name in whole.hyperparameter_samples_:
        for draw in whole.hyperparameter_samples_[name].reshape(24, -1):
            assert any(np.array_equal(draw, np.ravel(one[name])) for one in values)
    # Families without particles are dropped.
    for chain in whole._run.chains:
        family = chain["system"]["family"]
        assert sorted(set(family)) == list(range(len(chain["family_values"])))


def test_nothing_moves():
    """Rejuvenation and the active block are of `fit` alone; so "auto" is "optimal"."""
    case = fit_case("gaussian", n_samples=40)
    plain = learn(stream(case, sampler=SMC(5, rejuvenation=None)), case.X)
    for sampler in (
        SMC(5),
        AnnealedSMC(5, active_block=3, resample_threshold=0.5),
        SMC(5, resampling="optimal", order="given"),
    ):
        assert_same_stream(learn(stream(case, sampler=sampler), case.X, [9]), plain, case.X_new)
    other = learn(stream(case, sampler=SMC(5, resampling="systematic")), case.X)
    assert other.log_evidence_ != plain.log_evidence_


@pytest.mark.slow
@pytest.mark.parametrize("prior", everyday(["dp", "finite"], "dp"))
def test_annealing(prior):
    """Batches are weighed under the schedule, all outputs under the prior itself; the schedule
    goes on after a fit."""
    X, posterior = case_rows("gaussian"), case_posterior("gaussian", prior)
    sampler = AnnealedSMC(
        52, initial_concentration=7.0, annealing_rate=0.3, resample_threshold=0.5
    )
    params = {"sampler": sampler, "n_draws": 2000, "n_chains": 1, "random_state": 0}
    estimator = make_estimator(make_likelihood("gaussian"), prior, **params)
    estimator = learn(estimator, X, [2, 3], "pickle")
    assert abs(estimator.log_evidence_ - posterior.log_evidence) < 1e-10
    assert abs(estimator.log_joint_samples_.max() - posterior.log_joint.max()) < 1e-10
    # Draws are spread evenly: a share of them is within about log(2000) / 2000 of its probability.
    n_clusters = np.array([z.max() + 1 for z in posterior.partitions])
    for k in range(1, 6):
        share = (estimator.n_components_samples_ == k).mean()
        assert abs(share - posterior.probabilities[n_clusters == k].sum()) < 0.01
    case = fit_case("gaussian", n_samples=60)
    fit = stream(
        case,
        prior,
        sampler=AnnealedSMC(
            6,
            rejuvenation="sams",
            active_block=0,
            initial_concentration=7.0,
            resample_threshold=0.5,
        ),
    ).fit(case.X[:20])
    copies = [pickle.loads(pickle.dumps(fit)) for _ in range(2)]
    whole = learn(copies[0], case.X[20:])
    parts = learn(copies[1], case.X[20:], [1, 9, 30], "pickle")
    assert_same_stream(parts, whole, case.X_new)
    for chain in whole._run.chains:
        kappa = PRIOR_CASES[prior][1]["concentration"]
        expected = kappa + (7.0 - kappa) * 0.99**59
        assert abs(chain["system"]["concentration"] - expected) < 1e-12


def test_a_stream_learns_no_hyperparameters():
    """Those that are None have the values of the first batch for good."""
    case = fit_case("gaussian", n_samples=30)
    estimator = DPMixture(sampler=SMC(5), n_draws=6, n_chains=2, random_state=0)
    estimator.partial_fit(case.X[:10])
    first = Gaussian().resolve(case.X[:10])
    assert estimator.hyperparameter_samples_ == {}
    for _ in range(2):
        for name in first.hyperparameters:
            np.testing.assert_array_equal(
                getattr(estimator.likelihood_, name), getattr(first, name)
            )
        estimator.partial_fit(case.X[10:])
    explicit = DPMixture(
        likelihood=Gaussian(**{name: getattr(first, name) for name in first.hyperparameters}),
        sampler=SMC(5),
        n_draws=6,
        n_chains=2,
        random_state=0,
    )
    explicit.partial_fit(case.X[:10]).partial_fit(case.X[10:]).partial_fit(case.X[10:])
    assert_same_outputs(explicit, estimator, case.X_new)


# What follows a call.


@pytest.fixture
def blobs():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, 0], [30, 30, 60, 40])
    return rng.normal(size=(160, 2)) + 30 * np.eye(3)[y, :2], y


def gaussian_stream(cls=DPMixture, **params):
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=5.0, scale=2.0)
    settings = {"sampler": SMC(20), "concentration": 1.0, "n_draws": 8, "n_chains": 2}
    return cls(likelihood=likelihood, random_state=0, **{**settings, **params})


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture])
def test_attributes(cls, blobs):
    """Clusters are numbered by all rows seen, labels are those of the last batch."""
    X, y = blobs
    estimator = gaussian_stream(cls)
    first = estimator.partial_fit(X[:60])
    assert public(first) == STREAM_ATTRIBUTES
    assert first.draws_.keys() == {"log_joint", "concentration", "n_components"}
    assert first.log_joint_samples_.shape == first.n_components_samples_.shape == (2, 8)
    last = estimator.partial_fit(X[60:120]).partial_fit(X[120:])
    assert last.n_samples_seen_ == last.n_iter_ == 160
    assert last.n_clusters_ == len(last.weights_) == len(last.cluster_params_["means"]) == 3
    assert (np.diff(last.weights_) < 0).all()
    # Of 70, 60 and 30 rows; the last batch has rows of the first alone.
    assert last.labels_.dtype == np.int64
    np.testing.assert_array_equal(last.labels_, np.zeros(40))
    np.testing.assert_array_equal(last.predict(X), np.array([0, 2, 1])[y])
    np.testing.assert_allclose(
        last.cluster_params_["means"], [X[y == k].mean(axis=0) for k in (0, 2, 1)], atol=0.05
    )
    expected = np.array([70, 60, 30]) / 161.0
    if cls is FiniteMixture:
        expected = (np.array([70, 60, 30]) + 0.1) / 161
    np.testing.assert_allclose(last.weights_, expected)
    log_evidence = last.log_evidence_chains_
    assert abs(last.log_evidence_ - (logsumexp(log_evidence) - np.log(2))) < 1e-12
    assert last.diagnostics_["log_evidence"]["std"] == np.std(log_evidence, ddof=1)
    assert last.diagnostics_["log_joint"].keys() == {"r_hat"}
    copy = pickle.loads(pickle.dumps(last))
    for method in ("predict", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(copy, method)(X), getattr(last, method)(X))
    np.testing.assert_array_equal(copy.sample(5)[0], last.sample(5)[0])


@pytest.mark.slow
def test_point_estimates():
    """The draw of the largest log joint of all; or the first one."""
    X = 3.0 * np.random.default_rng(0).normal(size=(60, 2))
    sampler, seen = SMC(6, resampling="systematic"), set()
    for seed in range(4):
        params = {"sampler": sampler, "concentration": 10.0, "n_draws": 30}
        estimators = {
            name: gaussian_stream(point_estimate=name, **params).set_params(random_state=seed)
            for name in ("map", "last", "modal", ("vi", 1.5))
        }
        for estimator in estimators.values():
            learn(estimator, X, [30])
        for name in ("modal", ("vi", 1.5)):
            np.testing.assert_array_equal(estimators[name].labels_, estimators["map"].labels_)
        draws = estimators["map"].draws_
        best = np.unravel_index(np.argmax(draws["log_joint"]), (2, 30))
        assert estimators["map"].n_clusters_ == draws["n_components"][best]
        assert estimators["last"].n_clusters_ == draws["n_components"][0, 0]
        seen.add((best[0], estimators["last"].n_clusters_ != draws["n_components"][best]))
    assert (1, True) in seen  # the best draw is another chain's


@pytest.mark.slow
def test_warnings_tell_what_is_new():
    """Each quantity that chains disagree about is told once, by `fit` or by the first batch after
    which the rows have grown by a quarter; never by an attribute that is read."""
    X = 3.0 * np.random.default_rng(0).normal(size=(90, 2))
    estimator, told = gaussian_stream(sampler=SMC(3), concentration=10.0, n_draws=50), set()
    n_rows = n_compared = 0
    for batch in np.split(X, [10, *range(11, 90)]):
        n_rows += len(batch)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            estimator.fit(batch) if n_rows == 10 else estimator.partial_fit(batch)
            figures = estimator.diagnostics_
        del figures["n_clusters"]  # is not judged
        if n_rows > 10:
            if n_rows < 1.25 * n_compared:
                assert not caught
                continue
            n_compared = n_rows
        bad = {name for name, f in figures.items() if not f.get("r_hat", 1.0) <= 1.05}
        bad |= {name for name, f in figures.items() if not f.get("std", 0.0) <= 1.0}
        assert len(caught) == bool(bad - told)
        for warning in caught:
            assert warning.category is ConvergenceWarning and warning.filename == __file__
            said = {name for name in figures if f"{name}: " in str(warning.message)}
            assert said == bad - told
            assert "SMC(n_particles=...)" in str(warning.message)
        told |= bad
    assert told == {"log_joint", "n_components", "log_evidence"}


def test_draws_are_made_when_they_are_read(blobs, monkeypatch):
    """And once, under the parameters of the call; what says how the rows fare does not wait."""
    X, _ = blobs
    calls, drawn = [], _streams.StreamProgram.drawn

    def counted(self, chain):
        calls.append(chain["index"])
        return drawn(self, chain)

    monkeypatch.setattr(_streams.StreamProgram, "drawn", counted)
    estimator = gaussian_stream().fit(X[:70])
    estimator.summary()
    estimator.partial_fit(X[70:100])
    assert calls == [0, 1]
    expected = pickle.loads(pickle.dumps(estimator)).partial_fit(X[100:103])
    for n in range(100, 103):
        estimator.partial_fit(X[n : n + 1])
        assert estimator.n_samples_seen_ == n + 1 and np.isfinite(estimator.log_evidence_)
        assert estimator.fit_time_ > 0.0 and estimator.n_features_in_ == 2
        assert not hasattr(estimator, "feature_names_in_")
    assert calls == [0, 1]
    # Nothing of earlier draws is left.
    rest = {"_exposure", "_known", "_run", "_unread", "n_features_in_", "fit_time_"}
    rest |= {"n_samples_seen_", "effective_sample_size_", "log_evidence_", "log_evidence_chains_"}
    assert vars(estimator).keys() - estimator.get_params().keys() == rest
    estimator.set_params(point_estimate="last", n_draws=2)
    with pytest.raises(AttributeError, match=r"needs label draws.* no partial_fit"):
        estimator.probabilities_  # noqa: B018
    assert calls == [0, 1] * 2 and estimator.draws_.n_draws == 8
    estimator.set_params(point_estimate="auto", n_draws=8)
    assert_same_stream(estimator, expected, X)
    assert calls == [0, 1] * 3 and clone(estimator).get_params() is not None
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name_'"):
        estimator.no_such_name_  # noqa: B018


def test_draws_do_not_touch_the_stream(blobs):
    """Any number of them, and summaries of another kind: the particles are the same. Fewer draws
    are the first of more."""
    X, _ = blobs
    one, other = (
        gaussian_stream(n_draws=3, concentration=None),
        gaussian_stream(concentration=None),
    )
    for batch in np.split(X, [70]):
        one.partial_fit(batch)
        other.partial_fit(batch)
        assert_equal_bits(one._run.chains, other._run.chains)
        for name in ("log_joint", "concentration", "n_components"):
            np.testing.assert_array_equal(one.draws_[name], other.draws_[name][:, :3])
        one.set_params(n_draws=3, point_estimate="last", random_state=99, n_jobs=2, verbose=False)


def test_nothing_of_the_rows_is_kept():
    """One component, so one cluster: what is pickled grows with no row."""
    rng = np.random.default_rng(0)
    estimator = gaussian_stream(FiniteMixture, n_components=1)
    sizes = []
    for _ in range(6):
        estimator.partial_fit(rng.normal(size=(300, 2)))
        sizes.append(len(pickle.dumps(estimator)))
    assert max(sizes[1:]) - min(sizes[1:]) < 100
    for chain in estimator._run.chains:
        assert chain["system"]["labels"].shape[1] == 0
        assert chain.keys() == set(_particles.CARRIED)


def test_more_rows_than_tables_hold():
    """In two batches, which end before and after: the bits of one, and the evidence of the only
    partition."""
    rng = np.random.default_rng(0)
    X = rng.poisson(3.0, size=(20_000, 1)).astype(float)
    likelihood = Poisson(shape=2.0, rate=0.7)
    settings = {"sampler": SMC(2), "concentration": 1.0, "n_draws": 2, "n_chains": 1}
    whole = FiniteMixture(1, likelihood=likelihood, **settings).partial_fit(X)
    parts = FiniteMixture(1, likelihood=likelihood, **settings)
    parts.partial_fit(X[:9_000]).partial_fit(X[9_000:])
    assert parts.log_evidence_ == whole.log_evidence_
    expected = LOG_MARGINALS["poisson"](X, shape=2.0, rate=0.7)
    assert abs(whole.log_evidence_ / expected - 1.0) < 1e-10
    assert abs(whole.log_joint_samples_[0, 0] / expected - 1.0) < 1e-10


@pytest.mark.slow
def test_many_clusters_to_the_bit():
    """More than there is room for at first: the nodes of the concentration are then others."""
    X = np.full((400, 1), np.nan)
    settings = {
        "likelihood": Bernoulli(a=1.0, b=1.0),
        "sampler": SMC(4, resampling="systematic", resample_threshold=1.0),
        "concentration_prior": (60.0, 1.0),
        "n_draws": 4,
        "n_chains": 2,
        "random_state": 0,
    }
    for prior in (DPMixture(**settings), FiniteMixture(500, **settings)):
        whole = clone(prior).partial_fit(X)
        parts = learn(clone(prior), X, [40, 110, 111, 390], "pickle")
        assert whole.n_clusters_ > 70
        assert_same_stream(parts, whole, X[:1])
        assert abs(whole.log_evidence_) < 1e-8


def test_room_for_clusters_that_are_gone():
    """The only particle of many clusters dies, then another has as many: that makes room, and laws
    of the concentration anew, unless the room is still there."""
    X = np.full((60, 1), np.nan)
    likelihood = Bernoulli(a=1.0, b=1.0).resolve(X)
    data = likelihood.encode(X)

    def new():
        prior = DirichletProcessPrior(1, 1.0)
        return ParticleSystem(3, "systematic", 0.7, prior, Gamma(30.0, 0.5))

    def model():
        return likelihood.bind(data, likelihood.tables(data, None))

    sizes = np.repeat([10.0, 9.0, 35.0], [70, 62, 20])  # with two more: 700 rows of each particle
    sizes = np.append(sizes, 142.0)
    start = {
        "n_rows": 700,
        "n_resampled": 0,
        "log_w": np.array([-800.0, 0.0, 0.0]),
        "family": np.zeros(3, int),
        "slots": [np.arange(70), np.append(np.arange(70, 132), 152), np.arange(132, 152)],
        "stats": [np.column_stack([sizes, np.zeros((153, 3))])],
        "labels": np.empty((3, 0), int),
    }
    ends = []
    for saved in (False, True):
        system, bit_generator = new(), np.random.PCG64(0)
        system.set_state([model()], start)
        system.run(bit_generator, 0, 1)
        assert system.n_resampled == 1
        assert max(len(system.sizes_of(p)) for p in range(3)) < 65
        if saved:
            state, system = system.get_state(), new()
            system.set_state([model()], state)
        laws = []
        for first in range(1, 60):
            system.run(bit_generator, first, first + 1)
            laws.append([system.concentration_weights(p)[1] for p in range(3)])
        assert max(len(system.sizes_of(p)) for p in range(3)) > 64
        ends.append(laws)
    assert_equal_bits(*ends)


def test_a_law_of_the_number_of_components():
    """Given by a function, which is tabulated alike for any number of rows."""

    def log_pmf(K):
        return np.log(0.05) + (K - 1) * np.log(0.95)

    case = fit_case("gaussian", n_samples=30)
    settings = {"n_components_prior": log_pmf, "likelihood": case.likelihood, "sampler": SMC(5)}
    settings |= {"concentration": 1.0, "n_draws": 4, "n_chains": 2, "random_state": 0}
    whole = FiniteMixture(None, **settings).partial_fit(case.X)
    parts = learn(FiniteMixture(None, **settings), case.X, [7, 20])
    assert_same_stream(parts, whole, case.X_new)


# Calls that fail.


def snapshot(estimator):
    """Attributes as objects, and all that is in them as bytes."""
    content = pickle.dumps(estimator)
    return dict(vars(estimator)), content


def assert_untouched(estimator, before):
    attributes, content = before
    assert vars(estimator).keys() == attributes.keys()
    for name, value in vars(estimator).items():
        assert value is attributes[name], name
    assert pickle.dumps(estimator) == content


@pytest.fixture
def small_blocks(monkeypatch):
    for module in (_particles, _streams):
        monkeypatch.setattr(module, "BLOCK", 8)


@pytest.fixture
def disturb(small_blocks, monkeypatch):
    """A function (chain, row, act): `act` is called before a chain takes the block of that row."""
    step = _particles.ParticleChain.step

    def arm(index, row, act):
        def disturbed(self, iteration):
            if self.index == index and iteration <= row < iteration + 8:
                act()
            step(self, iteration)

        monkeypatch.setattr(_particles.ParticleChain, "step", disturbed)

    return arm


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def fail():
    raise FloatingPointError("row 3: no cluster has a positive weight")


@pytest.mark.parametrize(
    "started", everyday(["not", "by partial_fit", "by fit", "by another sampler"], "not", "by fit")
)
@pytest.mark.parametrize(
    "act, error",
    [(ctrl_c, KeyboardInterrupt), (fail, FloatingPointError)],
    ids=["interruption", "failure"],
)
@pytest.mark.filterwarnings("ignore:partial_fit starts anew")
def test_transactions(act, error, started, disturb):
    case = fit_case("gaussian", n_samples=60)
    estimator = stream(case, sampler=SMC(5))
    n = 20
    if started == "by partial_fit":
        estimator.partial_fit(case.X[:n])
    elif started == "by fit":
        estimator.fit(case.X[:n])
    else:
        n = 0
        if started == "by another sampler":
            estimator.set_params(sampler="gibbs").fit(case.X[:20])
            estimator.set_params(sampler=SMC(5))
    before = snapshot(estimator)
    undisturbed = pickle.loads(before[1]).partial_fit(case.X[n:])
    handler = signal.getsignal(signal.SIGINT)
    disturb(1, n + 25, act)
    with pytest.raises(error):
        estimator.partial_fit(case.X[n:])
    assert_untouched(estimator, before)
    assert signal.getsignal(signal.SIGINT) is handler
    disturb(None, 0, None)
    assert_same_stream(estimator.partial_fit(case.X[n:]), undisturbed, case.X_new)


def test_starting_anew_is_said():
    case = fit_case("gaussian")
    estimator = stream(case).set_params(sampler="gibbs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(case.X)
    with pytest.warns(UserWarning, match="starts anew") as caught:
        estimator.set_params(sampler=SMC(5)).partial_fit(case.X[:4])
    assert caught[0].filename == __file__
    assert estimator.n_samples_seen_ == 4


def test_a_warning_that_is_an_error_changes_nothing():
    rows = np.random.default_rng(0).normal(size=(40, 2)) * [1.0, 5.0]
    mixture = DPMixture(sampler=SMC(1), n_draws=20, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        with pytest.raises(ConvergenceWarning):
            mixture.partial_fit(rows)
    assert not hasattr(mixture, "n_samples_seen_")
    with pytest.warns(ConvergenceWarning):
        assert mixture.partial_fit(rows).n_samples_seen_ == len(rows)


def test_turns(small_blocks, monkeypatch):
    """Chains that take turns within a batch."""
    case = fit_case("gaussian", n_samples=40)
    whole = stream(case, resampled=True, n_chains=3).partial_fit(case.X)
    monkeypatch.setattr(chains, "TURN", 0.0)
    turns = learn(stream(case, resampled=True, n_chains=3), case.X, [15])
    assert_same_stream(turns, whole, case.X_new)


def test_a_row_that_nothing_explains(monkeypatch):
    """Named by its number in the call."""
    module = "skdpm.mixture.likelihoods.gaussian.gaussian"
    monkeypatch.setattr(f"{module}._refuse_overflow", lambda values: None)
    X = np.linspace(-1.0, 1.0, 700)[:, None]
    estimator = gaussian_stream(sampler=SMC(3)).partial_fit(X[:50])
    X[600] = 1e200
    before = snapshot(estimator)
    with pytest.raises(FloatingPointError, match=r"row 55[01]: "):
        estimator.partial_fit(X[50:])
    assert_untouched(estimator, before)


@pytest.mark.parametrize("started", [False, True])
def test_refused_rows(started):
    X = np.array([[0.0, 1.0], [1.0, 2.0], [0.0, 0.0], [1.0, 1.0]])
    estimator = DPMixture(
        likelihood=Categorical(n_categories=[2, 3]), sampler=SMC(5), n_draws=2, random_state=0
    )
    if started:
        estimator.partial_fit(X)
    before = snapshot(estimator)
    wrong = [(X + [0, 1], "column 1 of X holds the code 3"), (X[:0], "0 sample"), (X - 1, "codes")]
    wrong += [(np.full((2, 2), np.inf), "infinity"), (X[0], "2D array"), (X[:, :, None], "dim")]
    if started:
        wrong += [(X[:, :1], "X has 1 features, but DPMixture is expecting 2 features")]
    for rows, message in wrong:
        with pytest.raises(ValueError, match=message):
            estimator.partial_fit(rows)
        assert_untouched(estimator, before)
    if not started:
        with pytest.raises(NotFittedError):
            estimator.predict(X)


def test_rows_are_checked_in_every_batch(blobs):
    """Those whose squares overflow are refused by name, before any is learned."""
    X, _ = blobs
    estimator = gaussian_stream().partial_fit(X)
    before = snapshot(estimator)
    with pytest.raises(ValueError, match="column 1"):
        estimator.partial_fit(X * [1.0, 1e200])
    assert_untouched(estimator, before)


def test_codes_of_the_first_batch():
    """Without their number, later ones are unseen."""
    estimator = DPMixture(likelihood="categorical", sampler=SMC(5), n_draws=2, random_state=0)
    estimator.partial_fit([[0.0], [2.0]]).partial_fit([[1.0]])
    with pytest.raises(ValueError, match=r"code 3, but its categories are 0 to 2"):
        estimator.partial_fit([[1.0], [3.0]])
    assert estimator.n_samples_seen_ == 3


def test_parameters_stay(blobs):
    X, _ = blobs
    estimator = gaussian_stream().partial_fit(X)
    for params, names in (
        ({"concentration": 2.0}, "concentration"),
        ({"n_chains": 3, "sampler": SMC(21)}, "n_chains and sampler"),
        ({"likelihood": Gaussian()}, "likelihood"),
    ):
        old = {name: getattr(estimator, name) for name in params}
        estimator.set_params(**params)
        before = snapshot(estimator)
        with pytest.raises(ValueError, match=f"but {names} changed:"):
            estimator.partial_fit(X)
        assert_untouched(estimator, before)
        estimator.set_params(**old)
    # What a stream does not use is not compared.
    estimator.set_params(n_warmup=3, thin=2, store_labels=False).partial_fit(X)
    estimator.set_params(n_draws=0)
    with pytest.raises(ValueError, match="n_draws"):
        estimator.partial_fit(X)
    estimator.set_params(n_draws=4, warm_start=True).partial_fit(X)
    assert estimator.log_joint_samples_.shape == (2, 4)


def test_a_stream_goes_on_after_a_later_fit_that_failed():
    estimator = DPMixture(likelihood="poisson", sampler=SMC(5), n_draws=2, random_state=0)
    estimator.fit([[1.0, 2.0], [3.0, 0.0]])
    other = copy.deepcopy(estimator)
    with pytest.raises(ValueError, match="-1"):
        estimator.fit([[1.0, 2.0, -1.0]])
    with pytest.raises(ValueError, match="3 features, but DPMixture is expecting 2"):
        estimator.partial_fit([[1.0, 2.0, 1.0]])
    assert_same_fit(estimator.partial_fit([[2.0, 2.0]]), other.partial_fit([[2.0, 2.0]]))


def test_only_where_particles_go_on():
    for sampler in ("auto", "gibbs", Gibbs(), "no such name", None):
        estimator = DPMixture(sampler=sampler)
        assert not hasattr(estimator, "partial_fit")
        message = 'DPMixture has no partial_fit: .* needs all rows at once; set sampler="smc"'
        with pytest.raises(AttributeError, match=message):
            estimator.partial_fit([[0.0]])
    for cls in (DPMixture, FiniteMixture):
        assert hasattr(cls(sampler="smc"), "partial_fit")
        assert hasattr(cls(sampler=SMC(5)), "partial_fit")
    relational = DPMixture(likelihood="relational", sampler="smc")
    with pytest.raises(ValueError, match="Relational"):
        relational.partial_fit(np.zeros((3, 3)))


def test_fit_starts_anew(blobs, disturb):
    X, _ = blobs
    fresh = gaussian_stream().fit(X[:50])
    estimator = gaussian_stream().partial_fit(X[:, :1]).fit(X[:50])
    np.testing.assert_array_equal(estimator.label_samples_, fresh.label_samples_)
    assert estimator.log_evidence_ == fresh.log_evidence_
    assert estimator.n_samples_seen_ == 50
    # An interrupted one leaves no particles.
    disturb(0, 0, ctrl_c)
    with warnings.catch_warnings(), pytest.raises(KeyboardInterrupt):
        warnings.simplefilter("ignore")
        estimator.fit(X)
    disturb(None, 0, None)
    assert not public(estimator)
    new = gaussian_stream().partial_fit(X[:20])
    assert_same_stream(estimator.partial_fit(X[:20]), new, X)


# Dask arrays.


@pytest.mark.long
def test_chunks_of_a_dask_array(blobs):
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    X, _ = blobs
    expected = learn(gaussian_stream(), X, [50, 51, 120])
    chunks = da.from_array(X, chunks=((50, 1, 0, 69, 40, 0), (1, 1)))
    estimator = gaussian_stream().partial_fit(chunks)
    assert_same_stream(estimator, expected, X)
    assert len(estimator.labels_) == 40
    np.testing.assert_array_equal(estimator.predict(chunks).compute(), expected.predict(X))
    unknown = chunks[chunks[:, 0] > -1e9]
    assert_same_stream(gaussian_stream().partial_fit(unknown), expected, X)
    # All chunks or none.
    before = snapshot(estimator)
    bad = X.copy()
    bad[130] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        estimator.partial_fit(da.from_array(bad, chunks=(40, 2)))
    assert_untouched(estimator, before)
    with pytest.raises(ValueError, match="0 sample"):
        estimator.partial_fit(da.zeros((0, 2)))
    with pytest.raises(ValueError, match="partial_fit takes the chunks of a dask array"):
        estimator.fit(chunks)
    assert_untouched(estimator, before)


@pytest.mark.parametrize("sampler", ["gibbs", "sub_cluster", "stream"])
def test_chains_read_states_by_one_protocol(sampler):
    case = fit_case("gaussian", n_samples=20)
    if sampler == "stream":
        system = ParticleSystem(3, "systematic", 0.7, DirichletProcessPrior(20, 1.0))
        likelihood = case.likelihood.resolve(case.X)
        data = likelihood.encode(case.X)
        system.begin([likelihood.bind(data, likelihood.tables(data, None))])
        system.run(np.random.PCG64(0), 0, 20)
        state = _streams.ParticleView(system, 0, DirichletProcessPrior(20, 1.0))
    else:
        model = make_estimator(case.likelihood, "dp")
        program = model._program(case.X, case.likelihood, SAMPLERS[sampler]())
        with program.resume(program.chain(0, 0)) as live:
            state = live.state
    of_rows = ("cluster_labels", "compute_log_joint")
    assert all(hasattr(state, name) for name in ("prior", "n_clusters", "cluster_sizes", "dump"))
    assert [hasattr(state, name) for name in of_rows] == [sampler != "stream"] * 2
    assert state.cluster_sizes().sum() == 20
    assert len(state.dump()) == len(state.dump([*range(state.n_clusters)])) == state.n_clusters
