"""Learned hyperparameters of Gaussian clusters, as the chains draw them.

One of them learned: partition and hyperparameter by enumeration and quadrature, from starts that
are drawn from that law and must still follow it. All of them: starts drawn from prior and model, of
which every marginal law is known. Both move real chains, of rows in memory and of rows in blocks.
"""

import copy
import dataclasses

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.hyperparameters import gaussian_joint, gaussian_log_marginals
from reference.likelihoods import log_marginal_gaussian
from reference.priors import log_eppf
from reference.simulate import simulate_partitions
from scipy import stats
from support.pvalues import Cells, assert_p_matrix, correct_for_number

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.blocks.rows import open_rows
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import BlockedGibbs

NAMES = ("mean", "mean_precision", "df", "scale")
FIXED = {"mean": [0.3, -0.5], "mean_precision": 0.4, "scale": [1.2, 0.8]}
ROWS = np.array([[0.1, -0.6], [1.9, 0.7], [2.3, -1.9], [-0.4, -0.2]])
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


def likelihood_of(covariance_type, learned):
    fixed = {**FIXED, "df": 4.5 if covariance_type == "full" else 3.5}
    free = {name: None if name in learned else value for name, value in fixed.items()}
    return Gaussian(covariance_type=covariance_type, **free)


def rows_of(covariance_type):
    X = ROWS.copy()
    if covariance_type == "diag":
        X[1, 0] = np.nan
    return X


# From the unit cube, on which the hyperprior is uniform, to values.


def n_dimensions(name):
    return 2 if name in ("mean", "scale") else 1


def from_uniform(likelihood, name, u):
    """Values of a learned hyperparameter at points of the cube: (n, n_dimensions)."""
    prior = likelihood.hyperpriors[name]
    if name == "mean":
        return stats.norm.ppf(u, prior.mean, np.sqrt(prior.variance))
    values = prior.low + stats.gamma.ppf(u, prior.shape, scale=1.0 / np.asarray(prior.rate))
    return values * beyond(likelihood, likelihood.df) if name == "scale" else values


def to_uniform(likelihood, name, values, df):
    prior = likelihood.hyperpriors[name]
    if name == "mean":
        return stats.norm.cdf(values, prior.mean, np.sqrt(prior.variance))
    if name == "scale":
        values = values / beyond(likelihood, df)
    return stats.gamma.cdf(values - prior.low, prior.shape, scale=1.0 / np.asarray(prior.rate))


def beyond(likelihood, df):
    return df - (len(likelihood.mean) - 1 if likelihood.covariance_type == "full" else 0)


# Chains.


class Chains:
    """Real chains that start anywhere: iterations after which hyperparameters are drawn."""

    def __init__(self, name, likelihood, X):
        self.estimator = ESTIMATORS[name][0].__sklearn_clone__()
        self.estimator.set_params(likelihood=likelihood, concentration=CONCENTRATION, n_warmup=0)
        self.program = self.estimator._program(X, likelihood, self.estimator._resolved("sampler"))
        self.in_blocks = name == "blocks"

    def over(self, X):
        """The same over other rows: hyperpriors stay."""
        other = copy.copy(self)
        program = self.program
        data = program.likelihood.encode(X)
        changed = {"data": data, "tables": program.likelihood.tables(data, len(X))}
        if self.in_blocks:
            changed["rows"] = open_rows(X, 2)
        other.program = dataclasses.replace(program, **changed)
        return other

    def step(self, labels, values, rng, n_iterations=1):
        """Labels and values of hyperparameters after some iterations."""
        program = self.program
        chain = program.chain(int(rng.integers(2**62)), 0)
        start = {"values": dict(values), "concentration": CONCENTRATION}
        if self.in_blocks:
            state = BlockState.start(program.rows, program.likelihood, labels, 3)
            chain.update(start, state=state)
        else:
            bit_generator = np.random.PCG64(rng.integers(2**62)).state
            chain["replicas"] = [{**start, "labels": labels, "bit_generator": bit_generator}]
        with program.resume(chain) as live:
            period = live.state.model.hyper_period
            for iteration in range(1, n_iterations + 1):
                live.step(iteration * period - 1)
            return live.state.cluster_labels(), live.values


# One of them is learned.


def invariance_run(kind, covariance_type, name, far=False):
    """A run for `assert_p_matrix`: (partition, cell of the hyperparameter) after an iteration or
    two, from draws of both; or, if `far`, after many from the same point in the prior's tail."""
    X = rows_of(covariance_type)
    chains = Chains(kind, likelihood_of(covariance_type, (name,)), X)
    likelihood = chains.program.likelihood
    prior, params = ESTIMATORS[kind][1]
    partitions = enumerate_partitions(len(X))
    n_dims = n_dimensions(name)
    n_points, n_bins = (480, 6) if n_dims == 1 else (45, 3)
    u = (np.arange(n_points) + 0.5) / n_points
    grid = np.stack(np.meshgrid(*[u] * n_dims, indexing="ij"), axis=-1).reshape(-1, n_dims)
    values = {
        other: np.broadcast_to(
            np.asarray(getattr(likelihood, other)),
            (len(grid), 2) if n_dimensions(other) == 2 else len(grid),
        )
        for other in NAMES
    }
    values[name] = from_uniform(likelihood, name, grid).reshape(values[name].shape)
    joint = gaussian_joint(
        X,
        lambda sizes: log_eppf(sizes, prior, concentration=CONCENTRATION, **params),
        partitions,
        values,
        full=covariance_type == "full",
    )

    def cells(u):
        """Number of the cell that holds each point."""
        at = np.minimum((u * n_bins).astype(int), n_bins - 1)
        return at @ n_bins ** np.arange(n_dims)

    law = np.zeros((len(partitions), n_bins**n_dims))
    np.add.at(law, (slice(None), cells(grid)), joint)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        size = (400 if far else 1200 if kind == "rows" else 600) * factor
        chosen = rng.choice(joint.size, size=size, p=joint.ravel() / joint.sum())
        labels = partitions[chosen // len(grid)]
        starts = grid[chosen % len(grid)] + (rng.random((size, n_dims)) - 0.5) / n_points
        labels = labels.copy()
        if far:
            starts[:], labels[:] = 0.995, 0
        starts = from_uniform(likelihood, name, starts)
        ends = np.empty_like(starts)
        for s in range(size):
            start = starts[s] if n_dims == 2 else starts[s, 0]
            n_iterations = 30 if far else 1 + s % 2
            labels[s], after = chains.step(labels[s], {name: start}, rng, n_iterations)
            ends[s] = after[name]
        ends = to_uniform(likelihood, name, ends, likelihood.df)
        seen = np.zeros(law.shape, dtype=int)
        np.add.at(seen, (partition_index(labels), cells(ends)), 1)
        return Cells(seen, law)

    return run


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.parametrize("covariance_type", TYPES)
def test_chains_keep_the_law_of_partition_and_hyperparameter(kind, covariance_type, seed_sequence):
    runs = {name: invariance_run(kind, covariance_type, name) for name in NAMES}
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
            root = np.sqrt(scale)[:, None] * np.linalg.inv(A).T
        else:
            root = np.diag(np.sqrt(0.5 * scale / rng.gamma(0.5 * df, size=D)))
        center = mean + root @ rng.normal(size=D) / np.sqrt(r)
        X[labels == k] = center + rng.normal(size=(np.sum(labels == k), D)) @ root.T
    return X


def joint_run(kind, covariance_type, n=8):
    """A run for `assert_p_matrix`: hyperparameters, partition and data from prior and model, then
    iterations given the data. All follow their law as before."""
    # Rows that the model makes are of any size; those of `fit` only fix the hyperprior.
    chains = Chains(kind, likelihood_of(covariance_type, NAMES), rows_of("full").repeat(2, axis=0))
    likelihood = chains.program.likelihood
    prior, params = ESTIMATORS[kind][1]

    def functions(labels, values, X):
        """Of everything together."""
        gaps = (X - values["mean"]) / np.sqrt(values["scale"])
        within = [np.ptp(X[labels == k], axis=0).sum() for k in np.unique(labels)]
        return [
            values["mean_precision"] * np.median(np.abs(gaps)),
            np.median(np.abs(gaps)) * len(within),
            np.sum(within) / np.sqrt(values["scale"][0]),
            values["df"] * np.abs(gaps).max(),
            np.abs(gaps).min() * values["scale"][0],
        ]

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        size = (1000 if kind == "rows" else 600) * factor
        labels = simulate_partitions(prior, n, size, rng, concentration=CONCENTRATION, **params)
        u = {name: rng.random((size, n_dimensions(name))) for name in NAMES}
        before, after, drawn = [], [], []
        for s in range(size):
            values = {name: from_uniform(likelihood, name, u[name][s]) for name in NAMES}
            values["mean_precision"] = values["mean_precision"].item()
            values["df"] = values["df"].item()
            values["scale"] *= beyond(likelihood, values["df"]) / beyond(likelihood, likelihood.df)
            X = simulate(likelihood, labels[s], values, rng)
            before.append(functions(labels[s], values, X))
            there = chains.over(X)
            z, values = there.step(labels[s], values, rng, 3)
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


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_chains_keep_the_joint_law_of_all(kind, seed_sequence):
    runs = {name: joint_run(kind, name) for name in TYPES}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.parametrize("covariance_type", TYPES)
def test_chains_reach_the_law_from_afar(covariance_type, seed_sequence):
    """What invariance cannot show: that anything moves."""
    runs = {
        name: invariance_run("rows", covariance_type, name, far=True)
        for name in ("mean", "mean_precision", "df", "scale")
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)
