"""Learned hyperparameters of Gaussian clusters, as the chains draw them.

One of them learned: partition and hyperparameter by enumeration and quadrature, from starts that
are drawn from that law and must still follow it. All of them: starts drawn from prior and model,
of which every marginal law is known. Both move real chains, of rows in memory and of blocks.
"""

import itertools

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.hyperparameters import gaussian_joint, gaussian_log_marginals
from reference.likelihoods import log_likelihood, log_marginal_gaussian
from reference.predictive import log_densities, log_weights
from reference.priors import log_eppf
from reference.simulate import simulate_partitions
from scipy import stats
from scipy.special import logsumexp
from sklearn.base import clone
from support.chains import LearningChains
from support.designs import combinations, everyday
from support.kernels import bind
from support.pvalues import Cells, assert_p, assert_p_matrix, correct_for_number

from skdpm import DPMixture, FiniteMixture
from skdpm.hyperpriors import LKJ, Gamma
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import BlockedGibbs, SubCluster
from skdpm.mixture.state._state import MixtureState

NAMES = ("mean", "mean_precision", "df", "scale")
FIXED = {"mean": [0.3, -0.5], "mean_precision": 0.4, "scale": [1.2, 0.8]}
ROWS = np.array([[0.1, -0.6], [3.9, 0.7], [2.3, -4.9], [-3.4, -0.2]])
# Estimator, and its prior as `reference` calls it.
ESTIMATORS = {
    "rows": (DPMixture(sampler="gibbs"), ("pitman_yor", {"discount": 0.0})),
    "blocks": (
        FiniteMixture(3, sampler=BlockedGibbs(block_size=2)),
        ("finite", {"n_components": 3}),
    ),
}
CONCENTRATION = 1.2
TYPES = ("full", "diag")
# "full" and a scale whose correlations are learned.
MATRIX = "matrix"
PRIOR = LKJ(1.4, Gamma(0.5, 1.0))


def likelihood_of(covariance_type, learned):
    fixed = {**FIXED, "df": 3.5 if covariance_type == "diag" else 4.5}
    free = {name: None if name in learned else value for name, value in fixed.items()}
    if covariance_type == MATRIX:
        return Gaussian(hyperpriors={"scale": PRIOR}, **free)
    return Gaussian(covariance_type=covariance_type, **free)


def rows_of(covariance_type):
    X = ROWS.copy()
    if covariance_type == "diag":
        X[1, 0] = np.nan
    return X


# From the unit cube, on which the hyperprior is uniform, to values.


def n_dimensions(name, covariance_type=None):
    if name == "scale" and covariance_type == MATRIX:
        return 3
    return 2 if name in ("mean", "scale") else 1


def from_uniform(likelihood, name, u):
    """Values of a learned hyperparameter at points of the cube: (n, n_dimensions); matrices from
    two variances and a correlation."""
    prior = likelihood.learned_priors[name]
    if name == "mean":
        return stats.norm.ppf(u, prior.mean, np.sqrt(prior.variance))
    if name == "scale" and u.shape[-1] == 3:
        gamma, eta = prior.family.variances, prior.family.concentration
        roots = np.sqrt(
            prior.unit * stats.gamma.ppf(u[..., :2], gamma.shape, scale=1 / gamma.rate)
        )
        matrices = roots[..., None] * roots[..., None, :] * beyond(likelihood, likelihood.df)
        correlation = 2.0 * stats.beta.ppf(u[..., 2], eta, eta) - 1.0
        matrices[..., [0, 1], [1, 0]] *= correlation[..., None]
        return matrices
    values = from_gamma(prior, u)
    if name == "scale":
        return likelihood._floor + values * beyond(likelihood, likelihood.df)
    return values


def from_gamma(prior, u):
    return prior.low + prior.unit * stats.gamma.ppf(u, *gamma_of(prior))


def gamma_of(prior):
    """Shape, lower limit and scale of the family, as scipy takes them."""
    return prior.family.shape, 0.0, 1.0 / prior.family.rate


def to_uniform(likelihood, name, values, df):
    prior = likelihood.learned_priors[name]
    if name == "mean":
        return stats.norm.cdf(values, prior.mean, np.sqrt(prior.variance))
    if name == "scale" and np.shape(values)[-2:] == (2, 2):
        gamma, eta = prior.family.variances, prior.family.concentration
        y = np.diagonal(values, axis1=-2, axis2=-1)
        correlation = values[..., 0, 1] / np.sqrt(y.prod(axis=-1))
        y = y / beyond(likelihood, df) / prior.unit
        return np.concatenate(
            [
                stats.gamma.cdf(y, gamma.shape, scale=1 / gamma.rate),
                stats.beta.cdf(0.5 * (1.0 + correlation), eta, eta)[..., None],
            ],
            axis=-1,
        )
    if name == "scale":
        values = (values - likelihood._floor) / beyond(likelihood, df)
    return stats.gamma.cdf((values - prior.low) / prior.unit, *gamma_of(prior))


def beyond(likelihood, df):
    return df - (len(likelihood.mean) - 1 if likelihood.covariance_type == "full" else 0)


# Chains.


def chains_of(name, likelihood, X):
    estimator = ESTIMATORS[name][0].__sklearn_clone__()
    return LearningChains(estimator.set_params(concentration=CONCENTRATION), likelihood, X)


# One of them is learned.


def invariance_run(kind, likelihood, X, name, far=False):
    """A run for `assert_p_matrix`: (partition, cell of the hyperparameter) after a few
    iterations, from draws of both; or, if `far`, after many from the
    same point in the prior's tail."""
    chains = chains_of(kind, likelihood, X)
    likelihood = chains.program.likelihood
    prior, params = ESTIMATORS[kind][1]
    partitions = enumerate_partitions(len(X))
    is_matrix = name == "scale" and isinstance(likelihood.learned_priors[name].family, LKJ)
    n_dims = n_dimensions(name, MATRIX if is_matrix else None)
    n_points, n_bins = {1: (480, 6), 2: (45, 3), 3: (24, 2)}[n_dims]
    u = (np.arange(n_points) + 0.5) / n_points
    grid = np.stack(np.meshgrid(*[u] * n_dims, indexing="ij"), axis=-1).reshape(-1, n_dims)
    values = {}
    for other in set(NAMES) - {name}:
        value = np.asarray(getattr(likelihood, other))
        values[other] = np.broadcast_to(value, (len(grid), *value.shape))
    values[name] = from_uniform(likelihood, name, grid)
    if n_dims == 1:
        values[name] = values[name][:, 0]
    joint = gaussian_joint(
        X,
        lambda sizes: log_eppf(sizes, prior, concentration=CONCENTRATION, **params),
        partitions,
        values,
        full=likelihood.covariance_type == "full",
    )

    def cells(u):
        """Number of the cell that holds each point."""
        at = np.minimum((u * n_bins).astype(int), n_bins - 1)
        return at @ n_bins ** np.arange(n_dims)

    law = np.zeros((len(partitions), n_bins**n_dims))
    np.add.at(law, (slice(None), cells(grid)), joint)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        size = round((400 if far else 1200 if kind == "rows" else 600) * factor)
        chosen = rng.choice(joint.size, size=size, p=joint.ravel() / joint.sum())
        labels = partitions[chosen // len(grid)]
        starts = grid[chosen % len(grid)] + (rng.random((size, n_dims)) - 0.5) / n_points
        labels = labels.copy()
        if far:
            starts[:], labels[:] = 0.995, 0
        starts = from_uniform(likelihood, name, starts)
        ends = []
        for s in range(size):
            start = starts[s] if n_dims > 1 else starts[s, 0]
            n_iterations = 30 if far else 1 + s % 2 if kind == "rows" else 5 + s % 2
            labels[s], after = chains.step(labels[s], {name: start}, rng, n_iterations)
            ends.append(after[name])
        ends = to_uniform(likelihood, name, np.array(ends), likelihood.df).reshape(size, n_dims)
        seen = np.zeros(law.shape, dtype=int)
        np.add.at(seen, (partition_index(labels), cells(ends)), 1)
        return Cells(seen, law)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_chains_keep_the_law_of_partition_and_hyperparameter(kind, covariance_type, seed_sequence):
    X = rows_of(covariance_type)
    runs = {
        name: invariance_run(kind, likelihood_of(covariance_type, (name,)), X, name)
        for name in NAMES
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.parametrize("full", [True, False])
def test_the_grid_is_the_likelihood(full):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4, 3))
    values = {
        "mean": rng.normal(size=(5, 3)),
        "mean_precision": rng.gamma(1.0, size=5),
        "df": 2.0 + rng.gamma(1.0, size=5),
        "scale": rng.gamma(1.0, size=(5, 3)),
    }
    if not full:
        X[2, 1] = np.nan
    expected = [
        log_marginal_gaussian(
            X,
            covariance_type="full" if full else "diag",
            **{name: each[g] for name, each in values.items()},
        )
        for g in range(5)
    ]
    np.testing.assert_allclose(gaussian_log_marginals(X, full=full, **values), expected)


# All of them are learned.


def simulate(likelihood, labels, values, rng):
    """Rows of the model given a partition and hyperparameters."""
    n, D = len(labels), len(likelihood.mean)
    X = np.empty((n, D))
    mean, r, df, scale = (values[name] for name in NAMES)
    for k in np.unique(labels):
        if likelihood.covariance_type == "full":
            # Bartlett's decomposition of the inverse: S^-1/2 A A' S^-1/2.
            A = np.tril(rng.normal(size=(D, D)), -1)
            A[np.diag_indices(D)] = np.sqrt(rng.chisquare(df - np.arange(D)))
            root = np.linalg.cholesky(scale if scale.ndim == 2 else np.diag(scale))
            root = root @ np.linalg.inv(A).T
        else:
            root = np.diag(np.sqrt(0.5 * scale / rng.gamma(0.5 * df, size=D)))
        center = mean + root @ rng.normal(size=D) / np.sqrt(r)
        X[labels == k] = center + rng.normal(size=(np.sum(labels == k), D)) @ root.T
    return X


def joint_run(kind, covariance_type, n=8, hidden=0.0):
    """A run for `assert_p_matrix`: hyperparameters, partition and data from prior and model, then
    iterations given the data. All follow their law as before. A share `hidden` of the entries is
    missing for the chains, which start with the true values."""
    # Rows that the model makes are of any size; those of `fit` only fix the hyperprior.
    rows = rows_of("full").repeat(n // 4, axis=0)
    chains = chains_of(kind, likelihood_of(covariance_type, NAMES), rows)
    likelihood = chains.program.likelihood
    prior, params = ESTIMATORS[kind][1]

    def functions(labels, values, X):
        """Of everything together."""
        scale = values["scale"]
        variances = np.diagonal(scale) if scale.ndim == 2 else scale
        gaps = (X - values["mean"]) / np.sqrt(variances)
        within = [np.ptp(X[labels == k], axis=0).sum() for k in np.unique(labels)]
        centred = X[labels == np.bincount(labels).argmax()]
        centred = centred - centred.mean(axis=0)
        lengths = np.sqrt((centred**2).sum(axis=0)) + 1e-150
        return [
            values["mean_precision"] * np.median(np.abs(gaps)),
            np.median(np.abs(gaps)) * len(within),
            np.sum(within) / np.sqrt(variances[0]),
            values["df"] * np.abs(gaps).max(),
            np.abs(gaps).min() * variances[0],
            np.abs(centred[:, 0] @ centred[:, 1]) / lengths.prod(),
            centred[:, 0] @ centred[:, 1] * scale[-1].min() / lengths.prod() / variances[1],
        ]

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        size = round((4000 if hidden else 1000 if kind == "rows" else 600) * factor)
        labels = simulate_partitions(prior, n, size, rng, concentration=CONCENTRATION, **params)
        u = {name: rng.random((size, n_dimensions(name, covariance_type))) for name in NAMES}
        before, after, drawn = [], [], []
        for s in range(size):
            values = {name: from_uniform(likelihood, name, u[name][s]) for name in NAMES}
            values["mean_precision"] = values["mean_precision"].item()
            values["df"] = values["df"].item()
            # There is no constant column, so no floor.
            values["scale"] *= beyond(likelihood, values["df"]) / beyond(likelihood, likelihood.df)
            X = simulate(likelihood, labels[s], values, rng)
            before.append(functions(labels[s], values, X))
            if hidden:
                gaps = rng.random(X.shape) < hidden
                there = chains.over(np.where(gaps, np.nan, X))
                truth = (X - likelihood._origin)[gaps]
                z, values, filled = there.step(labels[s], values, rng, 8, truth)
                X = X.copy()
                X[gaps] = filled + np.broadcast_to(likelihood._origin, X.shape)[gaps]
            else:
                z, values = chains.over(X).step(labels[s], values, rng, 3)
            after.append(functions(z, values, X))
            drawn.append(
                np.concatenate(
                    [
                        np.ravel(to_uniform(likelihood, name, values[name], values["df"]))
                        for name in NAMES
                    ]
                )
            )
        p = [stats.kstest(column, "uniform").pvalue for column in np.transpose(drawn)]
        half = size // 2
        for first, second in zip(np.transpose(before), np.transpose(after), strict=True):
            p.append(stats.ks_2samp(first[:half], second[half:]).pvalue)
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_chains_keep_the_joint_law_of_all(kind, seed_sequence):
    runs = {name: joint_run(kind, name) for name in (*TYPES, MATRIX)}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_chains_keep_the_joint_law_with_missing_entries(seed_sequence):
    """Hyperparameters, partition and missing entries together."""
    cases = (("full", 0.2), ("full", 0.5), (MATRIX, 0.2))
    runs = {
        f"{name} {hidden}": joint_run("rows", name, n=20, hidden=hidden) for name, hidden in cases
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", TYPES)
def test_chains_reach_the_law_from_afar(covariance_type, seed_sequence):
    """What invariance cannot show: that anything moves."""
    X = rows_of(covariance_type)
    runs = {
        name: invariance_run("rows", likelihood_of(covariance_type, (name,)), X, name, far=True)
        for name in NAMES
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ESTIMATORS)
def test_chains_keep_the_law_of_partition_and_scale_matrix(kind, seed_sequence):
    likelihood = likelihood_of(MATRIX, ("scale",))
    run = invariance_run(kind, likelihood, rows_of(MATRIX), "scale")
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.long
def test_kernels_reach_the_law_of_a_scale_matrix_given_the_partition(seed_sequence):
    """Three columns, one of them constant; without chains, so that many draws take no time. Few
    clusters and degrees of freedom, so that the prior matters."""
    rows = np.array([[-3.1, -2.2], [3.9, 3.7], [2.3, 1.1], [-2.4, -3.2]])  # correlated
    X = np.insert(rows, 1, 5.0, axis=1)
    labels, df = np.array([0, 0, 0, 1]), 2.4
    likelihood = likelihood_of(MATRIX, ("scale",))
    likelihood.set_params(mean=[0.3, 5.0, -0.5], df=df)
    likelihood = likelihood.keeping_columns().resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    state = MixtureState(model, DirichletProcessPrior(len(X), 1.0), labels)
    # The constant column, which is at its mean, is a factor of the densities of clusters.
    two = likelihood_of(MATRIX, ("scale",)).set_params(df=df - 1.0).resolve(X[:, [0, 2]])
    n_points, n_bins = 30, 3
    u = (np.arange(n_points) + 0.5) / n_points
    grid = np.stack(np.meshgrid(u, u, u, indexing="ij"), axis=-1).reshape(-1, 3)
    values = {name: np.asarray(getattr(two, name)) for name in NAMES[:3]}
    values = {name: np.broadcast_to(v, (len(grid), *v.shape)) for name, v in values.items()}
    values |= {"df": np.full(len(grid), df), "scale": from_uniform(two, "scale", grid)}
    log_p = sum(
        gaussian_log_marginals(X[labels == k][:, [0, 2]], full=True, **values) for k in range(2)
    )
    law = np.zeros(n_bins**3)

    def cells(u):
        return np.minimum((u * n_bins).astype(int), n_bins - 1) @ n_bins ** np.arange(3)

    np.add.at(law, cells(grid), np.exp(log_p - logsumexp(log_p)))
    moments = model.dump(state.cluster_slots())
    priors, start = likelihood.learned_priors, model.named_hyperparameters()

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        ends = []
        for _ in range(round(4000 * factor)):
            bits = np.random.PCG64(rng.integers(2**62))
            laws = model.gaussian_laws(priors, {**start}, moments, bits)
            for _ in range(12):
                drawn = laws.resample(model, bits)
            matrix = drawn[-9:].reshape(3, 3)
            assert (matrix[1, [0, 2]] == 0.0).all()
            ends.append(matrix[np.ix_([0, 2], [0, 2])])
        seen = np.bincount(cells(to_uniform(two, "scale", np.array(ends), two.df)), minlength=27)
        return Cells(seen, law)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("name", ["mean_precision", "df"])
@pytest.mark.long
def test_kernels_reach_the_law_of_a_number_given_the_partition(name, seed_sequence):
    """Clusters of six, two and one rows, in no order of their sizes; without chains."""
    labels = np.repeat([0, 1, 2, 3, 4], [6, 1, 2, 1, 2])
    X = np.random.default_rng(1).normal(size=(12, 2)) * [3.0, 1.0] + [[0.3, -0.5]]
    likelihood = likelihood_of("full", (name,)).resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    state = MixtureState(model, DirichletProcessPrior(len(X), 1.0), labels)
    n_bins, grid = 12, (np.arange(1200) + 0.5) / 1200
    values = {other: np.asarray(getattr(likelihood, other)) for other in NAMES}
    values = {other: np.broadcast_to(v, (len(grid), *v.shape)) for other, v in values.items()}
    values[name] = from_uniform(likelihood, name, grid)
    log_p = sum(gaussian_log_marginals(X[labels == k], full=True, **values) for k in range(5))
    law = np.exp(log_p - logsumexp(log_p)).reshape(n_bins, -1).sum(axis=1)
    moments = model.dump(state.cluster_slots())
    priors, start = likelihood.learned_priors, model.named_hyperparameters()

    def run(seed, factor):
        bits = np.random.PCG64(seed)
        laws = model.gaussian_laws(priors, start, moments, bits)
        drawn = []
        for _ in range(round(10_000 * factor)):
            for _ in range(4):
                found = laws.resample(model, bits)
            drawn.append(found[2 + (name == "df")])
        u = to_uniform(likelihood, name, np.array(drawn), likelihood.df)
        return Cells(np.bincount((u * n_bins).astype(int), minlength=n_bins), law)

    assert_p(run, seed_sequence=seed_sequence)


def test_columns_take_their_steps_one_given_the_other(seed_sequence):
    """Columns that are nearly one: so are their scales."""
    X = np.array([[-5.0, -5.2], [5.0, 5.1], [-9.0, -8.7], [8.0, 8.3]])
    likelihood = likelihood_of("full", ("scale",))
    assert_p(invariance_run("rows", likelihood, X, "scale"), seed_sequence=seed_sequence)


# Fits.

FAST = {"sampler": "gibbs", "n_warmup": 6, "n_draws": 10, "n_chains": 2, "random_state": 0}
quiet = pytest.mark.filterwarnings("ignore:the chains have not mixed")


def two_groups(n=100):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) * [1.0, 3.0] + np.outer(np.arange(n) % 2, [6.0, -9.0])


@pytest.mark.slow
@quiet
@pytest.mark.parametrize("covariance_type", everyday((*TYPES, MATRIX), "full"))
def test_log_joints_and_scores_are_those_of_their_own_values(covariance_type):
    X = two_groups()
    model = DPMixture(likelihood=likelihood_of(covariance_type, NAMES), **FAST).fit(X)
    X_new, terms = X[::5] + 1.0, []
    name = "gaussian_diag" if covariance_type == "diag" else "gaussian"
    for c, s in np.ndindex(2, 10):
        labels = model.label_samples_[c, s].astype(int)
        hyper = {key: v[c, s] for key, v in model.hyperparameter_samples_.items()}
        prior = {"concentration": model.concentration_samples_[c, s], "discount": 0.0}
        expected = log_likelihood(X, labels, name, **hyper)
        expected += log_eppf(np.bincount(labels), "pitman_yor", **prior)
        assert model.log_joint_samples_[c, s] == pytest.approx(expected, rel=1e-9)
        densities = log_densities(X, labels, X_new, name, hyper)
        terms.append(logsumexp(densities + log_weights(labels, "pitman_yor", prior), axis=1))
    expected = logsumexp(terms, axis=0) - np.log(20)
    np.testing.assert_allclose(model.score_samples(X_new), expected, rtol=1e-9)


@quiet
@combinations(
    names=[n for m in range(5) for n in itertools.combinations(NAMES, m)],
    sampler=["gibbs", SubCluster(block_size=20)],
    covariance_type=(*TYPES, MATRIX),
)
@pytest.mark.some(2)
def test_any_of_them_may_be_learned(names, sampler, covariance_type):
    X = two_groups()
    likelihood = likelihood_of(covariance_type, names)
    model = DPMixture(likelihood=likelihood, **{**FAST, "sampler": sampler}).fit(X)
    assert tuple(model.hyperparameter_samples_) == names
    for name, draws in model.hyperparameter_samples_.items():
        n_numbers = n_dimensions(name, covariance_type)  # of a matrix 3, and one of them twice
        assert draws.shape == {1: (2, 10), 2: (2, 10, 2), 3: (2, 10, 2, 2)}[n_numbers]
        assert len(np.unique(draws)) == 20 * n_numbers
        np.testing.assert_allclose(
            getattr(model.likelihood_, name), draws.mean(axis=(0, 1)), rtol=1e-12
        )
    for name in set(NAMES) - set(names):
        np.testing.assert_array_equal(getattr(model.likelihood_, name), getattr(likelihood, name))
    assert np.isfinite(model.log_joint_samples_).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.sample(5)[0]).all()


@quiet
def test_a_matrix_may_be_fixed_where_others_are_learned():
    scale = np.array([[1.5, 0.7], [0.7, 2.0]])
    model = DPMixture(likelihood=Gaussian(scale=scale), **FAST).fit(two_groups())
    assert tuple(model.hyperparameter_samples_) == ("mean", "mean_precision", "df")
    np.testing.assert_array_equal(model.likelihood_.scale, scale)


@quiet
@pytest.mark.parametrize("covariance_type", everyday((*TYPES, MATRIX), "full"))
@pytest.mark.parametrize("sampler", everyday(["gibbs", SubCluster(block_size=20)], "gibbs"))
def test_units_do_not_matter(covariance_type, sampler):
    """Powers of two: not a digit of the data is lost."""
    X = two_groups()
    unit = np.array([2.0**20, 2.0**-20])
    estimator = DPMixture(likelihood=likelihood_of(covariance_type, NAMES), **FAST)
    estimator.set_params(sampler=sampler)
    model, other = estimator.fit(X), clone(estimator).fit(unit * X)
    np.testing.assert_array_equal(other.label_samples_, model.label_samples_)
    of_scale = np.outer(unit, unit) if covariance_type == MATRIX else unit**2
    for name, by in zip(NAMES, (unit, 1.0, 1.0, of_scale), strict=True):
        np.testing.assert_allclose(
            other.hyperparameter_samples_[name],
            by * model.hyperparameter_samples_[name],
            rtol=1e-6,
        )


DEGENERATE = {
    "zeros": np.zeros((6, 2)),
    "constant column": np.column_stack([np.arange(20.0) ** 2, np.full(20, 7.0)]),
    "n=1": np.array([[3.0, -1.0]]),
    "n=2": np.array([[3.0, -1.0], [4.0, 7.0]]),
    "D>n": np.random.default_rng(0).normal(size=(6, 20)),
    "ties": np.random.default_rng(0).normal(size=(5, 2)).repeat(10, axis=0),
    "tiny": np.array([[1e-145], [2e-145], [0.0]]),
    "huge": np.array([[1e140], [-1e140], [0.0]]),
    "outlier": np.vstack([two_groups(), [[1e9, 1e9]]]),
}


@pytest.mark.filterwarnings(
    "ignore:.*are copies", "ignore:.*as far out as other entries", "ignore:all entries of X are 0"
)
@quiet
@combinations(
    rows=DEGENERATE,
    sampler=["gibbs", SubCluster(block_size=20)],
    covariance_type=(*TYPES, MATRIX),
)
@pytest.mark.some(1)
def test_degenerate_data(covariance_type, sampler, rows):
    X = DEGENERATE[rows]
    estimator = DPMixture(likelihood=likelihood_of(covariance_type, NAMES), **FAST)
    model = estimator.set_params(sampler=sampler, n_draws=40).fit(X)
    assert np.isfinite(model.log_joint_samples_).all()
    assert np.isfinite(model.score_samples(X)).all()
    for draws in model.hyperparameter_samples_.values():
        assert np.isfinite(draws).all()


@quiet
@pytest.mark.parametrize("covariance_type", everyday(TYPES, "full"))
@pytest.mark.long
def test_integers_do_not_become_a_cluster_for_each_value(covariance_type):
    rng = np.random.default_rng(0)
    X = np.round(np.concatenate([rng.normal(50.0, 4.0, 200), rng.normal(80.0, 5.0, 200)]))
    likelihood = Gaussian(covariance_type=covariance_type)
    # From where every value has its own: the way into the pole.
    start = np.unique(X, return_inverse=True)[1]
    params = {**FAST, "n_warmup": 100, "n_draws": 50, "init": start}
    model = DPMixture(likelihood=likelihood, **params).fit(X[:, None])
    assert model.n_components_samples_.mean() < 12
    assert model.hyperparameter_samples_["scale"].min() > 1.0


# Parts.


def test_periods_keep_learning_below_a_quarter_of_a_sweep():
    def period(n, D, covariance_type="full"):
        X = np.random.default_rng(0).normal(size=(n, D))
        likelihood = Gaussian(covariance_type=covariance_type).resolve(X)
        return bind(likelihood, likelihood.encode(X), n).hyper_period

    assert period(400, 2) == period(150, 4) == period(20, 30, "diag") == 1
    assert period(200, 20) == 4
    assert period(10, 50) == 10


@pytest.mark.parametrize("sampler", ["gibbs", BlockedGibbs(block_size=4)])
def test_chains_learn_once_in_a_period(sampler):
    X = np.random.default_rng(0).normal(size=(10, 3))
    estimator = FiniteMixture(3, n_chains=1, n_warmup=0, n_draws=24, random_state=0)
    model = estimator.set_params(sampler=sampler).fit(X)
    r = model.hyperparameter_samples_["mean_precision"][0]
    # 10 rows, 3 columns: every tenth.
    np.testing.assert_array_equal(np.flatnonzero(np.diff(r)), [8, 18])


@pytest.mark.parametrize("free", everyday([1, 2, 7, 100], 1, 2))
def test_tables_of_other_values_are_the_constants(free):
    """By the densities of empty and of large clusters, whose factor is known."""
    X = np.random.default_rng(0).normal(size=(3000, free))
    likelihood = Gaussian(covariance_type="diag" if free == 1 else "full").resolve(X)
    data = likelihood.encode(X)
    model = likelihood.bind(data, likelihood.tables(data, 3000))
    other = likelihood.at({"mean_precision": 1e-9, "df": free + 0.3})
    model.set_hyperparameters(other.flat_hyperparameters())
    expected = other.bind(data, other.tables(data, 3000))
    rows = np.zeros((3001, model.n_stats))
    rows[:, 0] = np.arange(3001)
    if free == 1:
        rows[:, 1] = rows[:, 0]
    for each in (model, expected):
        each.load(rows)
    actual, expected = (
        each.log_predictive_rows(np.arange(3001), 0, 1)[:, 0] for each in (model, expected)
    )
    np.testing.assert_allclose(actual, expected, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_log_hyperprior_is_the_documented_density(covariance_type):
    X = two_groups()
    likelihood = Gaussian(covariance_type=covariance_type).resolve(X)
    values = {"mean": [1.0, -2.0], "mean_precision": 0.3, "df": 5.5, "scale": np.array([2.0, 9.0])}
    priors = likelihood.learned_priors
    k = 4.5 if covariance_type == "full" else 5.5
    expected = stats.norm.logpdf(values["mean"], X.mean(axis=0), X.std(axis=0)).sum()
    for name, value in (("mean_precision", 0.3), ("df", 5.5)):
        prior = priors[name]
        expected += stats.gamma.logpdf(value - prior.low, *gamma_of(prior))
    assert priors["df"].low == pytest.approx(5.5 - k + 1.0)
    prior = priors["scale"]
    smallest = 2.0**-48 * len(X) if covariance_type == "full" else 1e-16
    np.testing.assert_allclose(prior.low, smallest * X.var(axis=0))
    t = values["scale"] / k
    expected += (stats.gamma.logpdf(t, 0.5, prior.low, X.var(axis=0)) - np.log(k)).sum()
    assert likelihood.log_hyperprior(values) == pytest.approx(expected)


def test_the_hyperprior_of_a_matrix_is_a_density():
    """Its mass where variances are between 0.01 and 9 is that of the variances alone."""
    likelihood = likelihood_of(MATRIX, ("scale",)).resolve(two_groups())
    unit = likelihood.learned_priors["scale"].unit
    k = likelihood.df - 1.0
    x, weights = np.polynomial.legendre.leggauss(8)
    roots, of_roots = 0.1 + 1.45 * (1.0 + x), 1.45 * weights
    x, of_correlations = np.polynomial.legendre.leggauss(16)
    total = 0.0
    for (i, a), (j, b), (m, correlation) in itertools.product(
        enumerate(roots), enumerate(roots), enumerate(x)
    ):
        sd = np.sqrt(unit) * [a, b]
        matrix = np.outer(sd, sd) * [[1.0, correlation], [correlation, 1.0]]
        # Jacobians of k, of the roots, and of the correlation.
        jacobian = k**3 * 4.0 * a * b * unit.prod() * sd.prod()
        density = np.exp(likelihood.log_hyperprior({"scale": k * matrix}))
        total += density * jacobian * of_roots[i] * of_roots[j] * of_correlations[m]
    mass = np.diff(stats.gamma.cdf([0.01, 9.0], 0.5)).item() ** 2
    assert total == pytest.approx(mass, rel=0.005)


def test_rounding_moves_one_column_of_a_matrix_to_its_limit():
    """The others keep theirs: Lambda stays A diag(t) A'."""
    X = two_groups(40)
    likelihood = likelihood_of(MATRIX, ("scale",)).resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    state = MixtureState(model, DirichletProcessPrior(len(X), 1.0), np.zeros(len(X), dtype=int))
    law, k = likelihood.learned_priors["scale"], likelihood.df - 1.0
    variances, correlation = X.var(axis=0), 0.5
    below = k * np.diag([variances[0], law.low[1] * (1.0 - 1e-3) + correlation**2 * variances[1]])
    below[[0, 1], [1, 0]] = k * correlation * np.sqrt(variances.prod())
    model.set_hyperparameters(
        np.concatenate([X.mean(axis=0), [0.1, likelihood.df], below.ravel()])
    )
    bits = np.random.PCG64(0)
    start, moments = model.named_hyperparameters(), model.dump(state.cluster_slots())
    laws = model.gaussian_laws({"scale": law}, start, moments, bits)
    scale = laws.scale_values(np.sqrt(variances), np.zeros(2)).reshape(2, 2)
    np.testing.assert_allclose(scale, below, rtol=1e-9)
    assert np.linalg.det(scale / k) / variances[0] > 0.0


def test_columns_that_do_not_vary_have_no_correlations():
    """They have a floor, and the others are those of a fit without them."""
    X = np.insert(two_groups(), 1, 5.0, axis=1)
    likelihood = likelihood_of(MATRIX, ("scale",)).set_params(mean=[0.0, 5.0, 0.0])
    fast = {**FAST, "n_chains": 1, "n_draws": 40}
    model = DPMixture(likelihood=likelihood.keeping_columns(), **fast)
    scale = model.fit(X).hyperparameter_samples_["scale"][0]
    assert (scale[:, 1, [0, 2]] == 0.0).all()
    assert (scale[:, 1, 1] > likelihood.keeping_columns().resolve(X)._floor[1]).all()
    assert len(np.unique(scale[:, 0, 2])) == 40


def test_draws_of_the_prior_of_a_matrix():
    X = np.insert(two_groups(), 1, 5.0, axis=1)
    likelihood = likelihood_of(MATRIX, ("scale",)).set_params(mean=[0.0, 5.0, 0.0])
    law = likelihood.keeping_columns().resolve(X).learned_priors["scale"]
    rng = np.random.default_rng(0)
    draws = np.array([law.draw(rng) for _ in range(2000)])
    for d in range(3):
        assert stats.kstest(draws[:, d, d] / law.unit[d], stats.gamma(0.5).cdf).pvalue > 1e-3
    correlation = draws[:, 0, 2] / np.sqrt(draws[:, 0, 0] * draws[:, 2, 2])
    eta = PRIOR.concentration
    assert stats.kstest(0.5 * (1.0 + correlation), stats.beta(eta, eta).cdf).pvalue > 1e-3
    assert (draws[:, 1, [0, 2]] == 0.0).all()


@pytest.mark.parametrize(
    ("likelihood", "words"),
    [
        (Gaussian(covariance_type="diag", hyperpriors={"scale": LKJ()}), "prior of matrices"),
        (Gaussian(hyperpriors={"df": LKJ()}), "prior of matrices"),
        (Gaussian(hyperpriors={"scale": LKJ(-1.0)}), r"LKJ.concentration must be"),
        (Gaussian(hyperpriors={"scale": LKJ(0.01, Gamma(0.2, 1.0))}), r"at least 0.1, got 0.01"),
        (Gaussian(hyperpriors={"scale": LKJ(1.0, Gamma(1.5, 1.0))}), r"must be below .* 1.5"),
        (Gaussian(hyperpriors={"scale": LKJ(1.0, "flat")}), "LKJ.variances must be a pair"),
    ],
)
def test_priors_of_matrices_that_are_refused(likelihood, words):
    with pytest.raises(ValueError, match=words):
        DPMixture(likelihood=likelihood).fit(two_groups())


def test_a_constant_column_has_a_floor():
    X = np.array([[1.0, 1.0, 5.0], [1.0, 2.0, 5.0], [1.0, 4.0, 5.0], [3.0, 7.0, 5.0]])
    likelihood = Gaussian().keeping_columns().resolve(X)
    assert likelihood._floor.tolist() == [0.0, 0.0, pytest.approx(0.5 * (5e-6) ** 2)]


@pytest.mark.parametrize("covariance_type", ["diag", "spherical"])
def test_columns_without_entries_leave_priors_of_others(covariance_type):
    """Also in streams, which keep these columns."""
    X = np.random.default_rng(0).normal(size=(30, 3))
    likelihood = Gaussian(covariance_type=covariance_type).keeping_columns()
    alone = likelihood.resolve(X)
    wide = likelihood.resolve(np.column_stack([X, np.full(len(X), np.nan)]))
    for name in ("low", "unit"):
        expected = getattr(alone.learned_priors["scale"], name)
        found = getattr(wide.learned_priors["scale"], name)
        np.testing.assert_allclose(np.ravel(found)[: np.size(expected)], np.ravel(expected))
    expected, found = np.ravel(alone._floor), np.ravel(wide._floor)
    np.testing.assert_allclose(found[: len(expected)], expected)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_scale_at_its_lowest_stays_there_when_df_falls(covariance_type):
    """How small a scale may be depends on df: a draw of df that would leave it below has no
    density."""
    X = np.round(np.random.default_rng(0).normal(size=(30, 2)), 1)
    likelihood = Gaussian(covariance_type=covariance_type).resolve(X)
    model = bind(likelihood, likelihood.encode(X), 30)
    state = MixtureState(model, DirichletProcessPrior(30, 1.0), np.arange(30) % 3)
    floor = likelihood.tables(likelihood.encode(X), 30)["floor"]
    low, excess = likelihood.learned_priors["scale"].low, 30.0
    t = low + 1.5 * (low + floor / excess) * np.exp(-25.0)
    lowest = 0.0 if covariance_type == "diag" else 1.0
    values = np.concatenate([X.mean(axis=0), [0.1, lowest + excess], floor + excess * t])
    for seed in range(20):
        model.set_hyperparameters(values)
        drawn = model.resample_hyperparameters(
            state.cluster_slots(), likelihood.learned_priors, np.random.PCG64(seed)
        )
        assert np.isfinite(drawn).all()


@pytest.mark.filterwarnings("ignore:.*on lines or planes")
@pytest.mark.parametrize("n_features", [2, 6])
def test_rows_of_a_cluster_may_lie_in_a_plane(n_features):
    """The scatter of such a cluster is singular: its factor exists because of the scale."""
    rng = np.random.default_rng(n_features)
    axes = rng.normal(size=(2, n_features // 2, n_features))
    rows = rng.normal(size=(2, 300, n_features // 2)) @ axes
    X = 1e3 * np.concatenate(rows) + 1e5
    model = DPMixture(n_warmup=10, n_draws=10, n_chains=1, random_state=0).fit(X)
    np.testing.assert_array_equal(model.draws_["labels"][0, -1], np.repeat([0, 1], 300))
