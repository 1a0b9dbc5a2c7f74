"""Tied, spherical and sparse covariances: samplers against enumerated posteriors, and the laws of
what is learned. The laws that every kernel obeys are tested for all examples of `Gaussian`."""

import dataclasses
import itertools

import numpy as np
import pytest
from reference.likelihoods import log_marginal_gaussian
from reference.predictive import log_weights
from reference.simulate import COVARIANCE_NAMES, PRIOR_CASES, simulate_partitions
from scipy import integrate, stats
from scipy.special import logsumexp, multigammaln
from support.chains import LearningChains
from support.designs import cover
from support.exactness import (
    SAMPLER_CASES,
    block_case,
    case_posterior,
    case_rows,
    case_state,
    invariance_run,
)
from support.probes import Probe
from support.pvalues import assert_p, assert_p_matrix, correct_for_number, part_of

from skdpm import DPMixture, FiniteMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.likelihoods import Gaussian, Product
from skdpm.mixture.likelihoods.elliptical._tied import whitened
from skdpm.mixture.likelihoods.gaussian.covariances import (
    HierarchicalInverseWishart,
    InverseWishart,
)
from skdpm.mixture.samplers import BlockedGibbs, SubCluster

SAMPLERS = {name: samplers[0] for name, samplers in SAMPLER_CASES.items()}
BLOCK_PRIORS = {"sub_cluster": ["dp", "pitman_yor"], "blocked_gibbs": ["finite"]}
BLOCK_SAMPLERS = {"sub_cluster": SubCluster(), "blocked_gibbs": BlockedGibbs()}

# Partitions.


def enumeration_run(name, sampler, prior, n_starts):
    posterior = case_posterior(name, prior)
    if sampler in SAMPLERS:
        kernel = SAMPLERS[sampler].kernel()
        return invariance_run(case_state(name, prior), kernel, posterior, n_starts=n_starts)
    rows = MemoryRows(case_rows(name), 2)
    runs = block_case(name, prior, BLOCK_SAMPLERS[sampler].kernel(), rows)
    return invariance_run(runs, runs, posterior, n_starts=n_starts // 10, n_iterations=3)


@pytest.mark.slow
def test_samplers_sample_the_posterior(seed_sequence):
    """Starts drawn from the enumerated posterior still follow it."""
    designs = [("gibbs", "pitman_yor"), ("split_merge", "dp"), ("pgsm", "finite")]
    designs += [("sub_cluster", "dp"), ("blocked_gibbs", "finite")]
    runs = {
        f"{name} {sampler} {prior}": enumeration_run(name, sampler, prior, 1_000)
        for name, (sampler, prior) in cover(itertools.product(COVARIANCE_NAMES, designs))
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_every_sampler_samples_every_posterior(seed_sequence):
    runs = {
        f"{name} {sampler} {prior}": enumeration_run(name, sampler, prior, 6_000)
        for name in COVARIANCE_NAMES
        for sampler in (*SAMPLERS, *BLOCK_SAMPLERS)
        for prior in BLOCK_PRIORS.get(sampler, PRIOR_CASES)
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


# Hyperparameters: values, partition and data from prior and model, then iterations given the data.
# All follow their law as before.

ESTIMATORS = {
    "rows": (DPMixture(sampler="gibbs", concentration=1.2), "dp", {}),
    "blocks": (
        FiniteMixture(3, sampler=BlockedGibbs(block_size=2), concentration=1.2),
        "finite",
        {"n_components": 3},
    ),
}
# They fix the hyperpriors.
FITTED = np.array([[0.1, -0.6], [3.9, 0.7], [2.3, -4.9], [-3.4, -0.2], [0.4, 1.5]])


def draw_values(likelihood, rng):
    """All hyperparameters from their documented laws."""
    priors = likelihood.learned_priors
    variance = priors["mean"].variance
    values = {
        "mean": rng.normal(FITTED.mean(axis=0), np.sqrt(variance)),
        "mean_precision": rng.gamma(0.5, 1 / 5),
    }
    if likelihood.covariance_type == "tied":
        scale = np.diag(rng.gamma(0.5, 3.0 * FITTED.var(axis=0)))
        return values | {"scale": stats.invwishart(4, scale).rvs(random_state=rng)}
    df = 1.0 + rng.gamma(2.0, 1 / 0.2)
    if likelihood.covariance_type == "sparse":
        return values | {"df": df, "scale": df * rng.gamma(0.5, variance)}
    share = 1e-8 * variance[0] + rng.gamma(0.5, variance[0])
    return values | {"df": df, "scale": df * share}


def pivots(likelihood, values):
    """Functions of the values that are uniform under these laws."""
    v = FITTED.var(axis=0)
    tied = likelihood.covariance_type == "tied"
    if likelihood.covariance_type == "spherical":
        v = np.full(2, v.mean())
    out = list(stats.norm.cdf(values["mean"], FITTED.mean(axis=0), np.sqrt(v)))
    out.append(stats.gamma.cdf(values["mean_precision"], 0.5, scale=1 / 5))
    if tied:
        # Standard deviations are half-t with 3 degrees of freedom, correlations of density
        # proportional to sqrt(1 - correlation^2) (Huang & Wand, 2013).
        variances = np.diagonal(values["scale"])
        correlation = values["scale"][0, 1] / np.sqrt(variances.prod())
        out.extend(stats.f.cdf(variances / (v / 2), 1, 3))
        return [*out, stats.beta.cdf((1.0 + correlation) / 2, 1.5, 1.5)]
    out.append(stats.gamma.cdf(values["df"] - 1.0, 2.0, scale=1 / 0.2))
    if likelihood.covariance_type == "sparse":
        return [*out, *stats.gamma.cdf(values["scale"] / values["df"], 0.5, scale=v)]
    share = values["scale"] / values["df"] - 1e-8 * v[0]
    return [*out, stats.gamma.cdf(share, 0.5, scale=v[0])]


def simulate(likelihood, labels, values, rng):
    """Rows of the model given a partition and hyperparameters."""
    X = np.empty((len(labels), 2))
    for k in np.unique(labels):
        if likelihood.covariance_type == "tied":
            root = np.linalg.cholesky(values["scale"])
        elif likelihood.covariance_type == "sparse":
            # The second column depends on the first.
            root = np.diag(np.sqrt(values["scale"] / rng.chisquare(values["df"], 2)))
            slope = rng.normal() * root[1, 1] / np.sqrt(values["scale"][0])
            root[1, 0] = slope * root[0, 0]
        else:
            root = np.sqrt(values["scale"] / rng.chisquare(values["df"])) * np.eye(2)
        centre = values["mean"] + root @ rng.normal(size=2) / np.sqrt(values["mean_precision"])
        X[labels == k] = centre + rng.normal(size=(np.sum(labels == k), 2)) @ root.T
    return X


def joint_run(kind, covariance_type, size, planted=None, n=7):
    """A run for `assert_p`. `planted`: hyperpriors that the chain takes in place of some."""
    estimator, prior, params = ESTIMATORS[kind]
    chains = LearningChains(estimator, Gaussian(covariance_type=covariance_type), FITTED)
    likelihood = chains.program.likelihood
    assert np.all(likelihood._floor == 0.0)
    told = likelihood.without_learning()
    told.learned_priors = likelihood.learned_priors | (planted or {})
    chains.program = dataclasses.replace(chains.program, likelihood=told)

    def functions(labels, values, X):
        spread = np.sqrt(np.ravel(values["scale"])[0])
        gaps = (X - values["mean"])[:, 0] / spread
        within = [np.ptp(X[labels == k, 0]) for k in np.unique(labels)]
        return [
            values["mean_precision"] * np.median(np.abs(gaps)),
            np.median(np.abs(gaps)) * len(within),
            np.sum(within) / spread,
        ]

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels = simulate_partitions(
            prior, n, part_of(size, factor, 25), rng, concentration=1.2, **params
        )
        before, after, uniform = [], [], []
        for z in labels:
            values = draw_values(likelihood, rng)
            X = simulate(likelihood, z, values, rng)
            before.append(functions(z, values, X))
            z, values = chains.over(X).step(z, values, rng, 3)
            after.append(functions(z, values, X))
            uniform.append(pivots(likelihood, values))
        half = len(labels) // 2
        p = [stats.kstest(column, "uniform").pvalue for column in np.transpose(uniform)]
        p += [
            stats.ks_2samp(a[:half], b[half:]).pvalue
            for a, b in zip(np.transpose(before), np.transpose(after), strict=True)
        ]
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.parametrize("covariance_type", ["sparse", "spherical", "tied"])
def test_chains_keep_the_joint_law_of_all(covariance_type, seed_sequence):
    assert_p(joint_run("rows", covariance_type, 100), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("covariance_type", ["sparse", "spherical", "tied"])
def test_chains_keep_the_joint_law_in_depth(covariance_type, kind, seed_sequence):
    assert_p(joint_run(kind, covariance_type, 1500), seed_sequence=seed_sequence)


class Miscounted(HierarchicalInverseWishart):
    """Takes means as given where they are integrated out, a row too few."""

    def given(self, value, n, scatter, rng):
        return super().given(value, n - 1.0, scatter, rng)


class Fixed(HierarchicalInverseWishart):
    """Draws no scale given the matrix."""

    def given(self, value, n, scatter, rng):
        return InverseWishart(self.df + n, np.diag(0.5 / self.rate) + scatter)


def planted_priors():
    """Errors, as other hyperpriors for the chain."""
    for covariance_type in ("sparse", "spherical", "tied"):
        priors = Gaussian(covariance_type=covariance_type).resolve(FITTED).learned_priors
        for name, law in priors.items():
            if name == "mean":
                change = {"mean": law.mean + np.sqrt(law.variance)}
            elif name == "scale" and covariance_type == "tied":
                for kind, rate in ((Miscounted, 1.0), (Fixed, 1.0), (type(law), 3.0)):
                    yield covariance_type, {name: kind(law.df, rate * law.rate, law.low)}
                continue
            else:
                family = Gamma(law.family.shape, 1.6 * law.family.rate)
                change = {"family": family} if name != "mean_precision" else {"rate": family.rate}
            yield covariance_type, {name: dataclasses.replace(law, **change)}


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type, planted", list(planted_priors()))
def test_planted_errors_are_seen(covariance_type, planted, seed_sequence):
    n_starts = 600 if {"mean", "df"} & planted.keys() else 5_000
    run = joint_run("rows", covariance_type, n_starts, planted)
    assert run(seed_sequence, 1) < 1e-4


# Parts.


def log_tied_density(value, variances, df):
    """log p(Sigma) by integrals over the scales t of IW(df, diag(t)), independent of each other
    given Sigma: t_d / (k variance_d) ~ Gamma(1 / 2, 1), k = df - n_features + 1."""
    n_features, half = len(value), 0.5 * df
    total = -0.5 * (df + n_features + 1.0) * np.linalg.slogdet(value)[1]
    total -= half * n_features * np.log(2.0) + multigammaln(half, n_features)
    for half_precision, v in zip(np.diagonal(np.linalg.inv(value)) / 2, variances, strict=True):
        unit = (df - n_features + 1.0) * v
        found = integrate.quad(
            lambda root, unit=unit, p=half_precision: (
                (unit * root**2) ** half * np.exp(-(root**2) * (1.0 + unit * p)) * 2.0
            ),
            0.0,
            np.inf,
        )
        total += np.log(found[0] / np.sqrt(np.pi))
    return total


def test_the_hyperprior_of_a_tied_covariance():
    X = np.array([[1.0, 1.0, 0.0], [1.0, 2.0, 5.0], [1.0, 4.0, 3.0], [3.0, 7.0, 5.0]])
    likelihood = Gaussian(covariance_type="tied").keeping_columns().resolve(X)
    law, v = likelihood.learned_priors["scale"], X.var(axis=0)
    assert law.df == likelihood.df == 5.0
    value = np.cov(np.random.default_rng(0).normal(size=(9, 3)).T)
    assert law.log_density(value) == pytest.approx(log_tied_density(value, v, 5.0), abs=1e-6)
    # Standard deviations of one column are half-t.
    law = Gaussian(covariance_type="tied").resolve(X[:, 1:2]).learned_priors["scale"]
    expected = stats.f.logpdf(0.3 / (v[1] / 2), 1, 3) - np.log(v[1] / 2)
    assert law.log_density(np.array([[0.3]])) == pytest.approx(expected, abs=1e-6)
    values = {name: getattr(likelihood, name) for name in likelihood.learned}
    rest = {name: values[name] for name in ("mean", "mean_precision")}
    priors = likelihood.learned_priors
    total = sum(np.sum(priors[name].log_density(rest[name])) for name in rest)
    total += priors["scale"].log_density(values["scale"])
    assert likelihood.log_hyperprior(values) == pytest.approx(total)


@pytest.mark.parametrize("n_rows", [4, 30, 3000])
def test_a_constant_column_has_half_its_variance_for_each_row(n_rows, seed_sequence):
    X = np.column_stack([np.arange(float(n_rows)), np.full(n_rows, 5.0)])
    law = Gaussian(covariance_type="tied").keeping_columns().resolve(X).learned_priors["scale"]
    variance = 5e-6**2
    rng, sigma = np.random.default_rng(seed_sequence), np.diag([1.0, variance])
    drawn = np.array([np.diagonal(law.given(sigma, 0, 0.0, rng).scale) for _ in range(400)])
    least = 3.0 * n_rows * variance / 2
    assert drawn[:, 1].min() > least
    # Beyond its limit t has the tail of Gamma(5 / 2, rate 1 / (3 variance) + 1 / (2 variance)).
    rate = (1.0 / 3.0 + 0.5) / variance
    if n_rows < 3000:
        share = stats.gamma(2.5).sf(rate * drawn[:, 1]) / stats.gamma(2.5).sf(rate * least)
    else:  # exponential up to rounding
        share = np.exp(-rate * (drawn[:, 1] - least))
    assert stats.kstest(share, "uniform").pvalue > 1e-4
    assert np.isfinite(law.log_density(sigma))


def test_draws_of_an_inverse_wishart(seed_sequence):
    law = InverseWishart(6.5, np.array([[2.0, 0.7], [0.7, 1.0]]))
    rng, a = np.random.default_rng(seed_sequence), np.array([1.0, -0.7])
    draws = [law.draw(rng) for _ in range(2000)]
    ratio = [(np.linalg.inv(x) @ a @ a) / (np.linalg.inv(law.scale) @ a @ a) for x in draws]
    assert stats.kstest(ratio, stats.chi2(6.5).cdf).pvalue > 1e-4
    ratio = [(law.scale @ a @ a) / (x @ a @ a) for x in draws]
    assert stats.kstest(ratio, stats.chi2(5.5).cdf).pvalue > 1e-4


# New rows under a shared covariance that is integrated out given the clusters of a draw.


def log_evidence(X, labels, mean, mean_precision, df, scale):
    """log p(X | partition) under Sigma ~ IW(df, scale): the ratio of two normalising constants."""
    n, n_features = X.shape
    gaps = X - mean
    same = np.equal.outer(labels, labels)
    between = np.eye(n) + same / mean_precision
    scatter = gaps.T @ np.linalg.solve(between, gaps)
    total = multigammaln(0.5 * (df + n), n_features) - multigammaln(0.5 * df, n_features)
    total -= 0.5 * (n * n_features * np.log(np.pi) + n_features * np.linalg.slogdet(between)[1])
    total += 0.5 * df * np.linalg.slogdet(scale)[1]
    return total - 0.5 * (df + n) * np.linalg.slogdet(scale + scatter)[1]


def log_scores(X, X_new, model, law):
    """log of the mean over all draws of the density of new rows."""
    labels = model.label_samples_.reshape(-1, len(X)).astype(int)
    means = model.hyperparameter_samples_["mean"].reshape(len(labels), -1)
    precisions = model.hyperparameter_samples_["mean_precision"].ravel()
    terms = []
    sigmas = model.hyperparameter_samples_["scale"].reshape(len(labels), X.shape[1], X.shape[1])
    concentrations = model.concentration_samples_.ravel()
    for z, u, r, sigma, alpha in zip(
        labels, means, precisions, sigmas, concentrations, strict=True
    ):
        scale = law.given(sigma, 0, 0.0, np.random.default_rng(sigma[0].view(np.uint32))).scale
        before = log_evidence(X, z, u, r, law.df, scale)
        weights = log_weights(z, "dp", {"concentration": alpha})
        densities = [
            [
                log_evidence(np.vstack([X, x]), np.append(z, k), u, r, law.df, scale) - before
                for k in range(z.max() + 2)
            ]
            for x in X_new
        ]
        terms.append(logsumexp(densities + weights, axis=1))
    return logsumexp(terms, axis=0) - np.log(len(terms))


def test_the_reference_is_an_integral_over_the_covariance():
    X, labels, law = np.array([[0.3], [1.1], [4.0]]), np.array([0, 0, 1]), (3.5, np.eye(1) * 0.8)

    def joint(s):
        clusters = [
            log_marginal_gaussian(
                X[labels == k],
                mean=0.4,
                mean_precision=0.3,
                df=1.0,
                scale=s,
                covariance_type="tied",
            )
            for k in range(2)
        ]
        return np.exp(sum(clusters)) * stats.invgamma.pdf(s, 1.75, scale=0.4)

    expected = np.log(integrate.quad(joint, 0.0, np.inf, epsabs=0.0, epsrel=1e-9)[0])
    assert log_evidence(X, labels, 0.4, 0.3, *law) == pytest.approx(expected, rel=1e-7)


FEW_DRAWS = {"n_chains": 2, "n_warmup": 5, "n_draws": 10, "random_state": 0}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.long
def test_scores_integrate_the_shared_covariance_out(n_features):
    """Under a drawn covariance rows at a distance of 1e3 would lose a million nats."""
    rng = np.random.default_rng(n_features)
    X = rng.normal(size=(9, n_features)) + 6.0 * (np.arange(9) % 2)[:, None]
    X_new = np.vstack(
        [X[:3] + 0.1, rng.normal(size=(3, n_features)) * 10.0 ** np.arange(1, 4)[:, None]]
    )
    model = DPMixture(likelihood=Gaussian(covariance_type="tied"), **FEW_DRAWS).fit(X)
    law = model.likelihood_.learned_priors["scale"]
    expected = log_scores(X, X_new, model, law)
    np.testing.assert_allclose(model.score_samples(X_new), expected, rtol=1e-9)
    assert expected.min() > -200.0
    # Bounds of the densities of many rows leave no cluster out.
    many = rng.normal(size=(60, n_features)) * 3.0 ** rng.integers(0, 6, size=(60, 1))
    one_by_one = [model.score_samples(x[None])[0] for x in many]
    np.testing.assert_array_equal(model.score_samples(many), one_by_one)
    # A row with a gap has the density of the law of the others.
    if n_features > 1:
        grid = np.linspace(-60.0, 60.0, 4001)
        rows = np.tile(X[:1], (len(grid), 1))
        rows[:, -1] = grid
        gap = np.append(X[0, :-1], np.nan)[None]
        found = integrate.simpson(np.exp(model.score_samples(rows)), x=grid)
        assert found == pytest.approx(np.exp(model.score_samples(gap)[0]), rel=1e-3)
    # So have rows that are drawn.
    drawn = np.sort(model.sample(20_000)[0][:, 0])
    ends = np.full((2, n_features), np.nan)
    ends[:, 0] = drawn[[2000, 18_000]]
    grid = np.linspace(*ends[:, 0], 2001)
    rows = np.full((len(grid), n_features), np.nan)
    rows[:, 0] = grid
    within = integrate.simpson(np.exp(model.score_samples(rows)), x=grid)
    assert within == pytest.approx(0.8, abs=0.02)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("tails", ["t", "contaminated"])
@pytest.mark.long
def test_tails_have_the_same_integral(tails):
    """The kernel against laws of rows, which know nothing of it; and a part of a `Product`."""
    rng = np.random.default_rng(3)
    X = rng.standard_t(2.0, size=(12, 2))
    likelihood = Gaussian(covariance_type="tied", tails=tails)
    model = DPMixture(likelihood=likelihood, **FEW_DRAWS).fit(X)
    X_new = np.vstack([X[:2], 1e3 * X[:2]])
    expected = model._predictor.conditional.log_density(X_new)
    np.testing.assert_allclose(model.score_samples(X_new), expected, rtol=1e-9)
    product = Product([("a", likelihood, [0, 1])])
    model = DPMixture(likelihood=product, **FEW_DRAWS).fit(X)
    np.testing.assert_allclose(
        model.score_samples(X_new), model._predictor.conditional.log_density(X_new), rtol=1e-9
    )
    assert model.score_samples(X_new).min() > -200.0


def test_whitened_rows_have_the_same_bits_whatever_the_others():
    rng = np.random.default_rng(0)
    X, sigma = rng.normal(size=(50, 7)), np.cov(rng.normal(size=(20, 7)).T)
    white = whitened(X, sigma)
    np.testing.assert_allclose(white, np.linalg.solve(np.linalg.cholesky(sigma), X.T).T)
    np.testing.assert_array_equal(whitened(X[3:4], sigma), white[3:4])


def test_outliers_leave_no_trace():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[10] = 1e9
    likelihood = Gaussian(0.0, 0.1, scale=1.0, covariance_type="tied").resolve(X)
    data = likelihood.encode(X)
    kernel = likelihood.bind(data, likelihood.tables(data, 30))
    probe, labels = Probe(kernel, 2), np.zeros(30, dtype=np.intp)
    kernel.bind_labels(labels)
    assert probe.acquire() == 0
    for i in range(30):
        probe.add(0, i)
    labels[10] = -1
    probe.remove(0, 10)
    fresh = Probe(likelihood.bind(data, likelihood.tables(data, 30)), 2)
    assert fresh.acquire() == 0
    for i in np.flatnonzero(labels == 0):
        fresh.add(0, i)
    assert probe.log_marginal(0) == pytest.approx(fresh.log_marginal(0), abs=1e-9)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_learned_covariances_are_those_of_the_rows():
    rng = np.random.default_rng(0)
    sigma = np.array([[2.0, 0.9], [0.9, 0.6]])
    labels = np.arange(300) % 3
    X = np.array([[0.0, 0.0], [8.0, -4.0], [-6.0, 6.0]])[labels]
    X = X + rng.normal(size=(300, 2)) @ np.linalg.cholesky(sigma).T
    params = {"n_warmup": 40, "n_draws": 60, "n_chains": 2, "random_state": 0}
    model = DPMixture(likelihood=Gaussian(covariance_type="tied"), **params).fit(X)
    assert model.n_clusters_ == 3
    assert model.hyperparameter_samples_["scale"].shape == (2, 60, 2, 2)
    assert model.cluster_params_["covariances"].shape == (3, 2, 2)
    np.testing.assert_allclose(model.likelihood_.scale, sigma, rtol=0.25)
    # Round clusters of unlike sizes, turned about the origin: the draws are the same.
    X = np.array([[0.0, 0.0], [8.0, -4.0], [-6.0, 6.0]])[labels]
    X += np.array([0.3, 1.0, 2.0])[labels, None] * rng.normal(size=(300, 2))
    model = DPMixture(likelihood=Gaussian(covariance_type="spherical"), **params).fit(X)
    assert model.n_clusters_ == 3
    variances = model.cluster_params_["covariances"]
    assert variances.shape == (3, 2) and np.all(variances[:, 0] == variances[:, 1])
    found = np.sort(np.sqrt(variances[:, 0]))
    np.testing.assert_allclose(found, [0.3, 1.0, 2.0], rtol=0.2)
