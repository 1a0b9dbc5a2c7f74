"""Hyperparameters of likelihoods that are learned: chains, draws and scores of the estimators.

Kernels' own steps are tested beside the likelihoods. Here the joint law of partition and
hyperparameters, as fits draw it, must be the one that quadrature gives for every partition.
"""

import pickle
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.hyperparameters import poisson_joint
from reference.likelihoods import log_likelihood
from reference.predictive import log_densities, log_weights
from reference.priors import log_eppf
from scipy.special import logsumexp
from scipy.stats import gamma, nbinom
from support.designs import everyday
from support.fits import assert_same_fit
from support.pvalues import Cells, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Poisson, Product
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import BlockedGibbs, SubCluster
from skdpm.mixture.state._state import MixtureState

pytestmark = pytest.mark.filterwarnings("ignore:the chains have not mixed")

FAST = {"n_warmup": 6, "n_draws": 10, "n_chains": 2, "random_state": 0}
FEW = np.array([[0.0, 3.0], [1.0, 4.0], [9.0, 2.0], [12.0, 0.0], [2.0, 5.0]])
EDGES = ((0.7, 1.5), (0.25, 0.6))
# Estimator, prior, chains.
ESTIMATORS = {
    "gibbs": (DPMixture(sampler="gibbs"), ("pitman_yor", {"discount": 0.0}), 1_500),
    "blocked_gibbs": (
        FiniteMixture(3, sampler=BlockedGibbs(block_size=2)),
        ("finite", {"n_components": 3}),
        400,
    ),
}


@pytest.fixture(scope="module")
def counts():
    rng = np.random.default_rng(0)
    rates = np.repeat([[1.0, 8.0, 3.0], [9.0, 0.5, 3.0]], 30, axis=0)
    return rng.poisson(rates).astype(float)


def joint_run(name, error=None):
    """A run for `assert_p`: last draws of many chains against the enumerated posterior."""
    estimator, (prior, params), n_chains = ESTIMATORS[name]
    priors = Poisson().resolve(FEW).learned_priors
    partitions = enumerate_partitions(5)
    law = poisson_joint(
        FEW,
        lambda sizes: log_eppf(sizes, prior, concentration=1.2, **params),
        partitions,
        shape_prior=(priors["shape"].shape, priors["shape"].rate),
        rate_prior=(priors["rate"].shape, priors["rate"].rate),
        edges=EDGES,
    )

    def run(seed, factor):
        fit = estimator.__sklearn_clone__().set_params(
            likelihood="poisson" if error is None else error(),
            concentration=1.2,
            n_chains=round(n_chains * factor),
            n_warmup=40,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one draw tells nothing about mixing
            fit.fit(FEW)
        index = [partition_index(labels) for labels in fit.label_samples_[:, 0].astype(int)]
        bins = [
            np.searchsorted(edge, fit.hyperparameter_samples_[name][:, 0])
            for name, edge in zip(("shape", "rate"), EDGES, strict=True)
        ]
        seen = np.zeros(law.shape, dtype=int)
        np.add.at(seen, (index, *bins), 1)
        return Cells(seen, law)

    return run


@pytest.mark.slow
def test_partitions_and_hyperparameters_follow_their_joint_posterior(seed_sequence):
    assert_p_matrix({name: joint_run(name) for name in ESTIMATORS}, seed_sequence=seed_sequence)


class WrongPrior(Poisson):
    """The rate under a prior that is not the documented one."""

    def resolve_summary(self, summary):
        resolved = super().resolve_summary(summary)
        rate = resolved.learned_priors["rate"]
        resolved.learned_priors["rate"] = Gamma(rate.shape, 4.0 * rate.rate)
        return resolved


class Unbounded(Poisson):
    """Without the factor that the shape has in the prior's density of its logarithm."""

    def resolve_summary(self, summary):
        resolved = super().resolve_summary(summary)
        shape = resolved.learned_priors["shape"]
        resolved.learned_priors["shape"] = Gamma(shape.shape - 1.0, shape.rate)
        return resolved


@pytest.mark.slow
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("error", [WrongPrior, Unbounded])
def test_planted_errors(name, error, seed_sequence):
    assert chi_squared_p(*joint_run(name, error)(seed_sequence, 1)[:2]) < 1e-6


# Draws.


@pytest.mark.parametrize("sampler", everyday(["pgsm", "sams", SubCluster(block_size=25)], "pgsm"))
def test_draws_and_posterior_means(sampler, counts):
    fixed = DPMixture(likelihood=Poisson(shape=2.0), sampler=sampler, **FAST).fit(counts)
    assert list(fixed.hyperparameter_samples_) == ["rate"]
    assert fixed.likelihood_.shape == 2.0
    model = DPMixture(likelihood="poisson", sampler=sampler, **FAST).fit(counts)
    assert list(model.hyperparameter_samples_) == ["shape", "rate"]
    for name, values in model.hyperparameter_samples_.items():
        assert values.shape == (2, 10) and len(np.unique(values)) > 15
        assert getattr(model.likelihood_, name) == pytest.approx(values.mean())
        assert model.draws_[f"likelihood__{name}"] is values
        assert f"likelihood__{name}" in model.diagnostics_
    assert model.get_params()["likelihood"] == "poisson"
    none = DPMixture(likelihood=Poisson(1.0, 1.0), sampler=sampler, **FAST).fit(counts)
    assert none.hyperparameter_samples_ == {}


def test_log_joints_and_scores_are_those_of_their_own_values(counts):
    model = DPMixture(likelihood=Poisson(rate=0.5), sampler="gibbs", **FAST).fit(counts)
    X_new = counts[::7] + 1.0
    terms = []
    for c, s in np.ndindex(2, 10):
        labels = model.label_samples_[c, s].astype(int)
        hyper = {name: v[c, s] for name, v in model.hyperparameter_samples_.items()}
        hyper["rate"] = 0.5
        prior = {"concentration": model.concentration_samples_[c, s], "discount": 0.0}
        sizes = np.unique(labels, return_counts=True)[1]
        expected = log_likelihood(counts, labels, "poisson", **hyper)
        expected += log_eppf(sizes, "pitman_yor", **prior)
        assert model.log_joint_samples_[c, s] == pytest.approx(expected, rel=1e-10)
        densities = log_densities(counts, labels, X_new, "poisson", hyper)
        terms.append(logsumexp(densities + log_weights(labels, "pitman_yor", prior), axis=1))
    expected = logsumexp(terms, axis=0) - np.log(20)
    np.testing.assert_allclose(model.score_samples(X_new), expected, rtol=1e-10)


def test_clusters_are_shared_by_draws_with_other_values(counts):
    model = DPMixture(likelihood=Poisson(rate=0.5), sampler="gibbs", **FAST).fit(counts)
    scored = model.draws_.scored
    assert len(scored.mixtures) == len(scored) == 20  # values differ, so mixtures do
    n_clusters = sum(len(draw["clusters"]) for draw in scored.draws)
    assert len(scored.stats) < n_clusters


@pytest.mark.parametrize("exposed", [False, True])
@pytest.mark.long
def test_far_counts_have_densities_under_unknown_rates_of_the_prior(exposed, counts):
    """Of each draw's new clusters, by quadrature over the logarithm of the rate."""
    exposure = np.linspace(0.5, 2.0, len(counts)) if exposed else np.ones(len(counts))
    model = DPMixture(likelihood="poisson", sampler="gibbs", **FAST)
    model.fit(counts, exposure=exposure if exposed else None)
    X_new = 10.0 ** np.arange(2.0, 8.0)[:, None] * [1.0, 0.5, 0.0] // 1.0
    e_new = np.full(len(X_new), 1.5 if exposed else 1.0)
    law = Gamma(2.0, counts.sum() / (counts.shape[1] * exposure.sum()))
    u = np.linspace(-25.0, 10.0, 14_001)
    beyond = [one for one in model.draws_.scored.beyond if np.log(one.values["rate"]) > u[0]]
    log_rates = np.log([one.values["rate"] for one in beyond])
    terms, weights = [], np.zeros(len(beyond))
    for c, s in np.ndindex(2, 10):
        labels = model.label_samples_[c, s].astype(int)
        shape = model.hyperparameter_samples_["shape"][c, s]
        sums = np.array([counts[labels == k].sum(axis=0) for k in np.unique(labels)])
        depths = np.array([exposure[labels == k].sum() for k in np.unique(labels)])
        log_p = gamma.logpdf(np.exp(u), law.shape, scale=1.0 / law.rate) + u
        log_p += sums.size * shape * u
        for total, depth in zip(sums.sum(axis=1), depths, strict=True):
            log_p -= (3.0 * shape + total) * np.log(np.exp(u) + depth)
        log_p -= logsumexp(log_p)
        own = {"concentration": model.concentration_samples_[c, s], "discount": 0.0}
        log_new = log_weights(labels, "pitman_yor", own)[-1]
        density = np.exp(log_p) / (u[1] - u[0])
        # The rates below those of the draws halve from one to the next.
        shares = np.log(2.0) * np.interp(log_rates, u, density)
        weights += np.exp(log_new) / 20 * shares / (1.0 + shares.sum())
        for x, e in zip(X_new, e_new, strict=True):
            p = np.exp(u) / (np.exp(u) + e)
            of_columns = nbinom.logpmf(x[:, None], shape, p)
            terms.append(log_new + logsumexp(log_p + of_columns.sum(axis=0)))
    expected = logsumexp(np.reshape(terms, (20, -1)), axis=0) - np.log(20)
    found = [one.weight * np.exp(one.log_weights[0]) for one in beyond]
    np.testing.assert_allclose(found, weights, rtol=1e-4, atol=1e-200)
    found = model.score_samples(X_new, exposure=e_new if exposed else None)
    # Other shapes have a part in them, and the rates are a grid.
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=0.25)
    ordinary = counts[:, :1]
    single = DPMixture(likelihood="poisson", sampler="gibbs", **FAST).fit(ordinary)
    total = logsumexp(single.score_samples(np.arange(30_000.0)[:, None]))
    assert total == pytest.approx(0.0, abs=1e-6)
    parts = [("a", Poisson(), [0, 1, 2]), ("b", "bernoulli", [3])]
    both = DPMixture(likelihood=Product(parts), sampler="gibbs", **FAST)
    both.fit(np.column_stack([counts, np.arange(len(counts)) % 2]))
    far = both.score_samples(np.column_stack([X_new, np.zeros(len(X_new))]))
    assert (far > 1.5 * expected - 50.0).all()


@pytest.mark.parametrize("store_labels", [True, False])
def test_map_weighs_values_by_their_hyperprior(store_labels, counts):
    model = DPMixture(
        likelihood="poisson",
        sampler="gibbs",
        concentration=1.0,
        point_estimate="map",
        store_labels=store_labels,
        **FAST,
    ).fit(counts)
    priors = Poisson().resolve(counts).learned_priors
    value = model.log_joint_samples_ + sum(
        gamma.logpdf(model.hyperparameter_samples_[name], p.shape, scale=1 / p.rate)
        for name, p in priors.items()
    )
    c, s = np.unravel_index(np.argmax(value), value.shape)
    whole = DPMixture(likelihood="poisson", sampler="gibbs", concentration=1.0, **FAST)
    labels = whole.fit(counts).label_samples_[c, s]
    np.testing.assert_array_equal(
        model.labels_[:, None] == model.labels_, labels[:, None] == labels
    )


@pytest.mark.parametrize("sampler", [SubCluster(block_size=25), BlockedGibbs(block_size=25)])
def test_kernels_of_blocks_do_not_grow_with_iterations(sampler, counts):
    estimator = FiniteMixture(4, likelihood="poisson", sampler=sampler, n_chains=1, n_warmup=0)
    estimator.set_params(n_draws=60, random_state=0)
    likelihood = estimator._resolved("likelihood")
    program = estimator._program(counts, likelihood, sampler)
    with program.resume(program.chain(0, 0)) as live:
        for iteration in range(60):
            live.step(iteration)
            live.compute_log_joint()
        assert live.state.model.n_slots < 10


def test_tables_of_a_value_are_short_and_large_counts_are_computed(counts):
    """Tables are made anew in every iteration: a kernel's own end early."""
    X = 40.0 * counts
    likelihood = Poisson().resolve(X)
    data = likelihood.encode(X)
    tables = likelihood.tables(data, len(X))
    labels = np.repeat([0, 1], 30)
    values = np.array([0.7, 0.3])
    for model in (likelihood.bind(data, tables), likelihood.at({"shape": 0.7, "rate": 0.3})):
        if isinstance(model, Poisson):
            model = model.bind(data, model.tables(data, len(X)))
        else:
            model.set_hyperparameters(values)
        state = MixtureState(model, DirichletProcessPrior(len(X), 1.0), labels)
        expected = log_likelihood(X, labels, "poisson", shape=0.7, rate=0.3)
        expected += log_eppf([30, 30], "dp", concentration=1.0)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)


# Continuation.


@pytest.mark.parametrize("sampler", everyday(["pgsm", SubCluster(block_size=25)], "pgsm"))
@pytest.mark.parametrize("copy", [lambda model: model, lambda m: pickle.loads(pickle.dumps(m))])
def test_warm_starts_go_on_with_the_values(sampler, copy, counts):
    whole = DPMixture(likelihood="poisson", sampler=sampler, n_jobs=2, **FAST).fit(counts)
    params = {**FAST, "n_draws": 4}
    parts = DPMixture(likelihood="poisson", sampler=sampler, warm_start=True, **params)
    parts = copy(parts.fit(counts)).set_params(n_draws=10).fit(counts)
    assert_same_fit(whole, parts, counts)
    for name, values in whole.hyperparameter_samples_.items():
        np.testing.assert_array_equal(parts.hyperparameter_samples_[name], values)


@pytest.mark.slow
def test_the_same_on_dask(counts):
    da = pytest.importorskip("dask.array")
    params = {**FAST, "likelihood": "poisson", "sampler": SubCluster(block_size=25)}
    params |= {"point_estimate": "last", "store_labels": False, "init": "single"}
    here = DPMixture(**params).fit(counts)
    there = DPMixture(**params).fit(da.from_array(counts, chunks=(60, 3)))
    np.testing.assert_array_equal(here.log_joint_samples_, there.log_joint_samples_)
    for name, values in here.hyperparameter_samples_.items():
        np.testing.assert_array_equal(there.hyperparameter_samples_[name], values)
    np.testing.assert_array_equal(here.labels_, there.labels_.compute())
