# SPDX-License-Identifier: BSD-3-Clause
"""Counts of rows with exposures, against a reference that imports no kernel."""

import itertools
import pickle

import numpy as np
import pytest
from reference.likelihoods import (
    log_marginal_categorical,
    log_marginal_negative_binomial,
    log_marginal_poisson,
    log_posterior,
)
from scipy.special import logsumexp
from sklearn import config_context
from sklearn.metrics import v_measure_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from support.designs import everyday
from support.exactness import convergence_run, invariance_run, make_prior, make_state
from support.kernels import bind
from support.probes import Probe, log_likelihoods_at, log_marginals_at
from support.pvalues import assert_p_matrix

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import Categorical, Gaussian, NegativeBinomial, Poisson, Product
from skdpm.mixture.samplers import SAMS, SMC, Gibbs, SubCluster

PRIOR = {"shape": 1.5, "rate": 0.4}
CASES = {
    "poisson": (Poisson, PRIOR, log_marginal_poisson),
    "negative_binomial": (
        NegativeBinomial,
        {**PRIOR, "dispersion": [0.3, 1.2]},
        log_marginal_negative_binomial,
    ),
}
EXPOSURE = np.array([0.3, 2.5, 1.0, 0.7, 4.0])
X = np.array([[2.0, 11.0], [np.nan, 9.0], [11.0, 1.0], [1.0, np.nan], [13.0, 17.0]])


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def exposed(log_marginal, params):
    """The log marginal of rows whose last column holds exposures."""
    return lambda X: log_marginal(X[:, :-1], **params, exposure=X[:, -1])


def with_exposure(X, exposure=EXPOSURE):
    return np.column_stack([X, exposure])


@pytest.mark.parametrize("unit", [1.0, 1e6])
@pytest.mark.parametrize("complete", [True, False])
def test_densities_of_clusters(case, complete, unit):
    """Also of large counts, of other hyperparameters, and after rows have left."""
    cls, params, reference = case
    rows = np.round((np.nan_to_num(X, nan=3.0) if complete else X) * unit)
    Y = with_exposure(rows)
    likelihood = cls(**params).with_exposure().resolve(Y)
    probe = Probe(bind(likelihood, likelihood.encode(Y), len(Y)), 2)
    slot, empty = probe.acquire(), probe.acquire()
    for i in (0, 1, 2, 3):
        probe.add(slot, i)
    probe.remove(slot, 1)
    of_cluster, rtol = [0, 2, 3], 1e-12 if unit == 1.0 else 1e-9
    for values in (params, {**params, "shape": 0.7, "rate": 0.1}):
        if values is not params:
            flat = likelihood.at(values).flat_hyperparameters()
            at = log_marginals_at(probe.model, [slot], flat)[0]
            probe.model.set_hyperparameters(flat)
            assert probe.log_marginal(slot) == pytest.approx(at, rel=1e-9)
        log_marginal, constants = exposed(reference, values), probe.model.log_constants
        expected = log_marginal(Y[of_cluster])
        found = probe.log_marginal(slot) + constants[of_cluster].sum()
        assert found == pytest.approx(expected, rel=rtol)
        for i in (1, 4):
            expected = log_marginal(Y[[*of_cluster, i]]) - log_marginal(Y[of_cluster])
            found = probe.log_predictive(slot, i)
            assert found == pytest.approx(expected, rel=1e-10 if unit == 1.0 else 1e-6)
            found = probe.log_predictive(empty, i)
            assert found == pytest.approx(log_marginal(Y[[i]]), rel=1e-10 * unit**0.5)


def test_what_rounding_leaves_of_exposures(case):
    """0.1 + 0.2 - 0.1 - 0.2 is positive, in other orders it is negative: a column without entries
    has the densities of an empty one."""
    cls, params, log_marginal = case
    exposure = np.array([0.1, 0.2, 0.7, 3.0, 0.4])
    rows = np.array([[2.0, 3.0], [1.0, 2.0], [4.0, 1.0], [np.nan, 5.0], [6.0, 2.0]])
    reference = exposed(log_marginal, params)
    full = with_exposure(rows, exposure)
    likelihood = cls(**params).with_exposure().resolve(full)
    expected = reference(full[[3, 4]]) - reference(full[[3]])
    for joining in itertools.permutations(range(3)):
        for leaving in itertools.permutations(range(3)):
            probe = Probe(bind(likelihood, likelihood.encode(full), len(full)), 1)
            slot = probe.acquire()
            for i in (*joining, 3):
                probe.add(slot, i)
            for i in leaving:
                probe.remove(slot, i)
            found = probe.log_predictive(slot, 4)
            assert found == pytest.approx(expected, abs=1e-10)


def test_laws_have_the_densities_of_kernels(case):
    cls, params, _ = case
    Y = with_exposure(X)
    likelihood = cls(**params).with_exposure().resolve(Y)
    probe = Probe(bind(likelihood, likelihood.encode(Y), len(Y)), 2)
    slot = probe.acquire()
    probe.acquire()
    for i in (0, 2, 3):
        probe.add(slot, i)
    laws = likelihood.laws(probe.model.dump([0, 1]))
    expected = probe.model.log_predictive_rows([0, 1], 0, len(Y)).T
    np.testing.assert_allclose(laws.log_density(Y), expected, rtol=1e-9)


def test_dispersions_are_drawn_given_exposures():
    cls, _, reference = CASES["negative_binomial"]
    Y = with_exposure(X)
    likelihood = cls(**PRIOR).with_exposure().resolve(Y)
    probe = Probe(bind(likelihood, likelihood.encode(Y), len(Y)), 1)
    for i in range(len(Y)):
        probe.add(probe.acquire() if i == 0 else 0, i)
    values = np.array([[1.5, 0.4, phi, 0.2] for phi in (0.05, 0.6, 3.0)])
    found = log_likelihoods_at(probe.model, [0], values, 2)
    expected = [reference(X, **PRIOR, dispersion=v[2:], exposure=EXPOSURE) for v in values]
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-10)


@pytest.mark.long
def test_samplers_keep_and_reach_the_posterior(seed_sequence):
    runs = {}
    for name, (cls, params, reference) in CASES.items():
        Y = with_exposure(X)
        posterior = log_posterior(
            Y,
            exposed(reference, params),
            "dp",
            likelihood_params={},
            prior_params={"concentration": 1.3},
        )
        prior = make_prior("dp", len(Y), concentration=1.3)
        for sampler in (Gibbs(), SAMS()):
            state = make_state(cls(**params).with_exposure(), Y, prior)
            runs[f"{name} {sampler!r}"] = invariance_run(
                state, sampler.kernel(), posterior, n_starts=3_000
            )
        runs[f"{name} from one cluster"] = convergence_run(
            state, Gibbs().kernel(), posterior, np.zeros(5, np.int64), n_chains=1_000
        )
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def test_particles_estimate_the_evidence(case):
    """Learned in two batches."""
    cls, params, reference = case
    model = DPMixture(
        likelihood=cls(**params), sampler=SMC(n_particles=2_000), concentration=1.3, random_state=0
    )
    model.partial_fit(X[:2], exposure=EXPOSURE[:2])
    model.partial_fit(X[2:], exposure=EXPOSURE[2:])
    posterior = log_posterior(
        with_exposure(X),
        exposed(reference, params),
        "dp",
        likelihood_params={},
        prior_params={"concentration": 1.3},
    )
    assert model.log_evidence_ == pytest.approx(posterior.log_evidence, abs=0.1)


@pytest.fixture
def one_cluster(case):
    """A mixture of one component: its answers have closed forms."""
    cls, params, _ = case
    return FiniteMixture(1, likelihood=cls(**params), random_state=0, n_chains=1).fit(
        X, exposure=EXPOSURE
    )


def test_answers_of_one_cluster(case, one_cluster):
    _, params, reference = case
    log_marginal, model, Y = exposed(reference, params), one_cluster, with_exposure(X)
    new = np.array([[5.0, 40.0], [0.0, 3.0], [np.nan, 2.0]])
    exposure = np.array([3.0, 0.2, 1.5])

    def predictive(rows, exposure):
        rows = with_exposure(rows, exposure)
        return np.array([log_marginal(np.vstack([Y, row])) - log_marginal(Y) for row in rows])

    expected = predictive(new, exposure)
    np.testing.assert_allclose(model.score_samples(new, exposure=exposure), expected, rtol=1e-9)
    assert model.score(new, exposure=exposure) == pytest.approx(expected.mean())
    given = np.column_stack([new[:, 0], np.full(3, np.nan)])
    np.testing.assert_allclose(
        model.score_samples(new, given=0, exposure=exposure),
        expected - predictive(given, exposure),
        rtol=1e-9,
    )
    own = [log_marginal(Y) - log_marginal(np.delete(Y, i, axis=0)) for i in range(5)]
    np.testing.assert_allclose(model.pointwise_log_likelihood(X)[0, 0], own, rtol=1e-9)
    complete = ~np.isnan(X).any(axis=1)
    np.testing.assert_allclose(model.outlier_scores_[complete], -np.array(own)[complete])

    # Laws of single entries: their densities sum to 1, and have the means and quantiles told.
    found = model.predict_columns(new, 0, quantiles=0.3, exposure=exposure)[0]
    counts = np.arange(3_000.0)
    known = np.array([[np.nan, 40.0], [np.nan, 3.0], [np.nan, 2.0]])
    for i, e in enumerate(exposure):
        rows = np.column_stack([counts, np.full((3_000, 1), known[i, 1])])
        log_p = model.score_samples(rows, given=1, exposure=np.full(3_000, e))
        assert logsumexp(log_p) == pytest.approx(0.0, abs=1e-5)
        assert found.mean[i] == pytest.approx(counts @ np.exp(log_p), rel=1e-3)
        assert found.quantiles[i, 0] == np.searchsorted(np.exp(log_p).cumsum(), 0.3)
    filled = model.impute(known, exposure=exposure)
    np.testing.assert_allclose(filled[:, 0], found.mean)
    drawn = model.impute(np.tile(known[:1], (2_000, 1)), n_draws=1, exposure=np.full(2_000, 3.0))
    assert drawn[0][:, 0].mean() == pytest.approx(found.mean[0], rel=0.1)
    rates = next(iter(model.cluster_params_.values()))[0]
    np.testing.assert_allclose(found.mean, exposure * rates[0], rtol=1e-9)


def test_a_pickle_remembers_the_exposures(one_cluster):
    again = pickle.loads(pickle.dumps(one_cluster))
    expected = one_cluster.pointwise_log_likelihood(X)
    np.testing.assert_array_equal(again.pointwise_log_likelihood(X), expected)
    rows, labels = one_cluster.sample(3)
    assert rows.shape == (3, 2) and (labels == 0).all()
    filled = one_cluster.impute(X, n_draws=2, exposure=EXPOSURE)
    assert [table.shape for table in filled] == [X.shape] * 2
    assert one_cluster.sample(3, given={0: 5.0})[0].shape == (3, 2)


@pytest.mark.some(1)
def test_later_rows_need_exposures_too(one_cluster):
    """Also those of a stream, and dask arrays, which can have none."""
    stream = DPMixture(likelihood="poisson", sampler=SMC(n_particles=5), n_chains=1)
    stream.partial_fit(X, exposure=EXPOSURE)
    ask = [one_cluster.predict, one_cluster.predict_proba, one_cluster.score_samples]
    ask += [one_cluster.score, one_cluster.impute, stream.partial_fit]
    for method in [*ask, lambda X: one_cluster.predict_columns(X, 0)]:
        with pytest.raises(
            ValueError, match=r"pass exposure=, a number for each row.*set_score_request"
        ):
            method(X)
    chunks = pytest.importorskip("dask.array").from_array(X)
    for method in (one_cluster.predict, one_cluster.score_samples):
        with pytest.raises(ValueError, match="must be in memory"):
            method(chunks)


def test_exposures_of_one_change_nothing(case):
    cls, _, _ = case
    Y = with_exposure(X, np.ones(5))
    plain, ones = cls().resolve(X), cls().with_exposure().resolve(Y)
    assert ones.rate == pytest.approx(plain.rate)
    np.testing.assert_allclose(ones.log_constants(Y), plain.log_constants(X), rtol=1e-12)
    # The mean count of a unit of exposure.
    tenfold = cls().with_exposure().resolve(with_exposure(X, np.full(5, 10.0)))
    assert tenfold.rate == pytest.approx(10.0 * plain.rate)


@pytest.fixture(scope="module")
def groups():
    """Three groups of rows that differ in some columns, and in their totals by chance."""
    rng = np.random.default_rng(0)
    kinds, depth = np.repeat(np.arange(3), 20), rng.uniform(0.2, 4.0, 60)
    rates = rng.gamma(2.0, 20.0, 30) * np.where(rng.random((3, 30)) < 0.3, 4.0, 1.0)[kinds]
    return rates * depth[:, None], kinds


@pytest.mark.parametrize("name", everyday(CASES, "poisson"))
def test_groups_of_unequal_depth(name, groups):
    means, kinds = groups
    rng = np.random.default_rng(1)
    if name == "negative_binomial":
        # A fixed dispersion, whatever the depth: not the law of the model.
        means = means * rng.gamma(5.0, 0.2, means.shape)
    counts = rng.poisson(means)
    exposure = counts.sum(axis=1) / counts.sum(axis=1).mean()
    model = DPMixture(likelihood=name, n_chains=1, n_warmup=40, n_draws=20, random_state=0)
    model.fit(counts, exposure=exposure)
    assert v_measure_score(kinds, model.labels_) > 0.95
    # Deep and shallow rows are told apart by their shares alone.
    new = model.predict(counts, exposure=exposure)
    np.testing.assert_array_equal(new, model.labels_)
    table = model.describe()
    rates = model.cluster_params_["rates" if name == "poisson" else "means"]
    found = table.sort_index()["mean"].to_numpy().reshape(rates.shape)
    np.testing.assert_allclose(found, rates, rtol=0.2)


@pytest.mark.some(1)
@pytest.mark.long
def test_parts_of_a_product(case):
    cls, params, reference = case
    table = np.column_stack([[0.0, 1.0, 1.0, 0.0, 1.0], X])
    parts = [
        ("kind", Categorical(concentration=0.7, n_categories=2), [0]),
        ("counts", cls(**params), [1, 2]),
    ]
    model = FiniteMixture(1, likelihood=Product(parts), random_state=0, n_chains=1)
    model.fit(table, exposure=EXPOSURE)

    def log_marginal(rows, exposure):
        of_kinds = log_marginal_categorical(rows[:, :1], concentration=0.7, n_categories=2)
        return of_kinds + reference(rows[:, 1:], **params, exposure=exposure)

    new, exposure = np.array([[1.0, 5.0, 40.0]]), [3.0]
    both = log_marginal(np.vstack([table, new]), np.append(EXPOSURE, exposure))
    expected = both - log_marginal(table, EXPOSURE)
    assert model.score_samples(new, exposure=exposure)[0] == pytest.approx(expected)
    given = model.score_samples(new, given=[0], exposure=exposure)
    rest = model.score_samples([[1.0, np.nan, np.nan]], exposure=exposure)
    assert given[0] == pytest.approx(expected - rest[0])
    assert model.impute(table, exposure=EXPOSURE).shape == table.shape
    assert model.sample(2)[0].shape == (2, 3)
    assert len(model.describe()) == 4  # two categories, two counts
    assert list(model.part_columns_["counts"]) == [1, 2]


def test_metadata_routing(groups):
    counts = np.random.default_rng(2).poisson(groups[0])[::3]
    exposure = counts.sum(axis=1) / counts.sum(axis=1).mean()
    with config_context(enable_metadata_routing=True):
        model = DPMixture(likelihood="poisson", n_chains=1, n_warmup=5, n_draws=5, random_state=0)
        model.set_fit_request(exposure=True).set_score_request(exposure=True)
        model.set_predict_request(exposure=True)
        pipeline = make_pipeline(FunctionTransformer(), model).fit(counts, exposure=exposure)
        found = pipeline.predict(counts, exposure=exposure)
        mixture = pipeline[-1]
        np.testing.assert_array_equal(found, mixture.predict(counts, exposure=exposure))
        search = GridSearchCV(model, {"concentration": [0.5, 1.0]}, cv=2, error_score="raise")
        search.fit(counts, exposure=exposure)
        half = len(counts) // 2
        again = DPMixture(**{**model.get_params(deep=False), "concentration": 0.5})
        again.fit(counts[half:], exposure=exposure[half:])
        expected = again.score(counts[:half], exposure=exposure[:half])
        assert search.cv_results_["split0_test_score"][0] == pytest.approx(expected)


@pytest.mark.parametrize(
    "exposure, words",
    [
        ([1.0, 2.0], "one number for each of the 5 rows"),
        ([1.0, 2.0, 0.0, 1.0, 1.0], "is 0 for row 2"),
        ([1.0, 2.0, 1.0, np.nan, 1.0], "is nan for row 3"),
        (["2.5"] * 5, "holds '2.5'; convert it, such as by pd.to_numeric"),
        (np.array(["a", 1.0, 1.0, 1.0, 1.0], dtype=object), "must hold numbers, but it holds 'a'"),
        (np.ma.array([1.0] * 5, mask=[0, 0, 0, 0, 1]), "is nan for row 4"),
        (np.full(5, "2020-01-01", dtype="M8[D]"), "must hold numbers"),
    ],
)
def test_bad_exposures_are_refused(exposure, words):
    with pytest.raises(ValueError, match=words):
        DPMixture(likelihood="poisson").fit(X, exposure=exposure)


@pytest.mark.parametrize(
    "settings, words",
    [
        (
            {"likelihood": Gaussian()},
            "exposure cannot be used: the likelihood Gaussian has no means of counts that "
            "exposures multiply; use NegativeBinomial, Poisson or a Product with one of these",
        ),
        ({}, 'exposure cannot be used: name the law of counts, likelihood="negative_binomial"'),
        ({"likelihood": "multinomial"}, "exposure cannot be used: the likelihood Multinomial"),
        ({"likelihood": "poisson", "noise": True}, "set noise=None"),
        ({"likelihood": "poisson", "sampler": SubCluster()}, "rows in blocks, which have no exp"),
    ],
)
def test_what_takes_no_exposures_says_so(settings, words):
    with pytest.raises(ValueError, match=words):
        DPMixture(**settings).fit(np.nan_to_num(X), exposure=EXPOSURE)
    model = DPMixture(likelihood="poisson", n_chains=1, n_warmup=1, n_draws=1).fit(X)
    with pytest.raises(ValueError, match="pass exposure to fit"):
        model.predict(X, exposure=EXPOSURE)
