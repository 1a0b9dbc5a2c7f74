"""Samplers that visit rows in blocks, against enumerated posteriors.

`SubCluster` is exact but for its splits into sub-clusters, so that its kernel is tested without
these. As in `test_enumeration.py`; the planted errors show what the tests see.
"""

import numpy as np
import pytest
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES
from support.exactness import (
    BlockRuns,
    block_case,
    case_posterior,
    case_rows,
    convergence_run,
    invariance_run,
    likelihood_names,
    make_likelihood,
    make_prior,
    record_worst,
)
from support.pvalues import assert_p, assert_p_matrix, chi_squared_p

from skdpm.mixture.blocks import rows as _rows
from skdpm.mixture.blocks.rows import RowBlocks, visit_task
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SAMPLERS, sub_cluster
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbsKernel
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel


class EvenMoves(SubClusterKernel):
    """As many random splits as merges, so that few iterations show what they do."""

    def step(self, state, rng, key):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sub_cluster, "SPLIT_SHARE", 0.5)
            super().step(state, rng, key)


class SubClustersOnly(EvenMoves):
    """Has sub-clusters, which are the sides of every code, and never splits into them."""

    def _split(self, state, rng):
        pass


# Name -> class, parameters: the parts of an iteration alone, and what may be put together.
MOVES_ONLY = {"sweep": False, "sub_splits": False}
KERNELS = {
    "sweep": (SubClusterKernel, {"n_random_moves": 0, "sub_splits": False}),
    "super_clusters": (
        SubClusterKernel,
        {"n_random_moves": 0, "sub_splits": False, "super_clusters": True},
    ),
    "moves": (SubClusterKernel, {**MOVES_ONLY, "n_random_moves": 10}),
    "even_moves": (EvenMoves, {**MOVES_ONLY, "n_random_moves": 1}),
    "sweep_and_moves": (EvenMoves, {"n_random_moves": 2, "sub_splits": False}),
    "sub_clusters": (SubClustersOnly, {"n_random_moves": 2, "super_clusters": True}),
    "blocked_gibbs": (BlockedGibbsKernel, {}),
}
# Iterations after which a chain on five rows has forgotten its start.
N_ITERATIONS = {"sweep_and_moves": 40, "sub_clusters": 60, "blocked_gibbs": 15}

# A few cells for every day: (kernel, prior, most rows in a block).
EVERY_DAY = [
    ("sweep", "dp", 2),
    ("super_clusters", "pitman_yor_negative", 5),
    ("moves", "pitman_yor", 3),
    ("even_moves", "dp", 1),
    ("sweep_and_moves", "pitman_yor_negative", 3),
    ("sub_clusters", "finite", 3),
    ("blocked_gibbs", "finite", 2),
]


def block_likelihoods():
    """The cases that can be instantiated."""
    names = likelihood_names()
    return [n for n in names if "instantiated" in make_likelihood(n).capabilities]


def make_runs(kernel, likelihood, prior, block_size, error=None):
    cls, params = KERNELS[kernel]
    if error is not None:
        cls = type(cls.__name__, (error, cls), {})
    return block_case(likelihood, prior, cls(**params), block_size)


def invariance(kernel, likelihood, prior, block_size, error=None, **options):
    """A run for `assert_p`: starts from the posterior, some with an error planted."""
    runs = make_runs(kernel, likelihood, prior, block_size, error)
    options = {"n_iterations": 3, **options}
    return invariance_run(runs, runs, case_posterior(likelihood, prior), **options)


def test_invariance(seed_sequence, record_property):
    """Starts drawn from the posterior still follow it after 3, 6 and 9 iterations."""
    runs = {}
    likelihoods = block_likelihoods()
    for k, (kernel, prior, block_size) in enumerate(EVERY_DAY):
        likelihood = likelihoods[k % len(likelihoods)]
        runs[f"{kernel} {likelihood} {prior} {block_size}"] = invariance(
            kernel, likelihood, prior, block_size, n_starts=400
        )
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_invariance_in_depth(seed_sequence, record_property):
    """Every kernel under every prior, and every likelihood under every prior."""
    likelihoods = block_likelihoods()
    designs = [
        (kernel, likelihoods[(k + p) % len(likelihoods)], prior, (2, 5, 1, 3)[(k + p) % 4])
        for k, kernel in enumerate(KERNELS)
        for p, prior in enumerate(PRIOR_CASES)
        if kernel != "blocked_gibbs" or prior == "finite"
    ]
    designs += [
        ("sub_clusters", likelihood, prior, 3)
        for likelihood in likelihoods
        for prior in PRIOR_CASES
    ]
    designs += [("blocked_gibbs", likelihood, "finite", 3) for likelihood in likelihoods]
    runs = {" ".join(map(str, design)): invariance(*design, n_starts=350) for design in designs}
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


def convergence_runs(designs, n_chains):
    runs = {}
    for kernel, likelihood, prior in designs:
        chains = make_runs(kernel, likelihood, prior, 3)
        runs[f"{kernel} {likelihood} {prior}"] = convergence_run(
            chains,
            chains,
            case_posterior(likelihood, prior),
            np.zeros(5, dtype=np.int64),
            n_chains=n_chains,
            n_iterations=N_ITERATIONS[kernel],
        )
    return runs


def test_convergence(seed_sequence, record_property):
    """Chains from one cluster end up i.i.d. from the posterior."""
    likelihood = block_likelihoods()[-1]
    designs = [("sweep_and_moves", likelihood, "dp"), ("blocked_gibbs", likelihood, "finite")]
    runs = convergence_runs(designs, n_chains=200)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_convergence_in_depth(seed_sequence, record_property):
    likelihoods = block_likelihoods()
    designs = [
        (kernel, likelihoods[(k + p) % len(likelihoods)], prior)
        for k, kernel in enumerate(N_ITERATIONS)
        for p, prior in enumerate(PRIOR_CASES)
        if kernel != "blocked_gibbs" or prior == "finite"
    ]
    runs = convergence_runs(designs, n_chains=200)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


def test_matrix_is_complete():
    """Those of the registry that visit rows in blocks are here, the others in
    test_enumeration.py."""
    names = {name for name, cls in SAMPLERS.items() if cls.blockwise}
    assert names == {"sub_cluster", "blocked_gibbs"}


# Without rows to learn from, weights decide alone.

SAME_CLUSTERS = {"mean": 0.0, "mean_precision": 1e9, "df": 1e9, "scale": 1e9}


def prior_run(kernel, prior_case, error=None, *, n_starts, n_iterations):
    """A run for `assert_p`: every cluster has the same parameters, and the posterior is the
    prior."""
    prior, params = PRIOR_CASES[prior_case]
    X = case_rows("gaussian")
    cls, options = KERNELS[kernel]
    if error is not None:
        cls = type(cls.__name__, (error, cls), {})
    chains = BlockRuns(
        Gaussian(**SAME_CLUSTERS), X, make_prior(prior, 5, **params), cls(**options), 5
    )
    law = log_posterior(X, "gaussian", prior, likelihood_params=SAME_CLUSTERS, prior_params=params)
    return invariance_run(chains, chains, law, n_starts=n_starts, n_iterations=n_iterations)


@pytest.mark.parametrize("n_starts", [800, pytest.param(4_000, marks=pytest.mark.slow)])
def test_weights(n_starts, seed_sequence, record_property):
    runs = {
        f"{kernel} {prior}": prior_run(kernel, prior, n_starts=n_starts, n_iterations=8)
        for kernel, prior in [
            ("sweep", "dp"),
            ("blocked_gibbs", "finite"),
        ]
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("prior", PRIOR_CASES)
def test_weights_are_drawn_given_sizes_and_prior(prior, monkeypatch):
    """Gamma shapes of the weights: sizes minus sigma, 0, d or -a (see `_prior.pyx`)."""
    name, params = PRIOR_CASES[prior]
    sigma = params.get("discount", 0.0)
    if name == "finite":
        sigma = -params["concentration"] / params["n_components"]
    shapes = []

    def recorded(values, rng):
        shapes.append(values)
        return np.zeros(len(values))

    kernels = ["sweep", "blocked_gibbs"] if name == "finite" else ["sweep"]
    for kernel in kernels:
        monkeypatch.setattr(f"{KERNELS[kernel][0].__module__}.log_gamma_variates", recorded)
        chain = make_runs(kernel, "gaussian", prior, 5)
        chain.assign(np.array([0, 1, 1, 0, 1]))
        chain.run(chain, np.random.PCG64(0))
        empty = [0] * (kernel == "blocked_gibbs")
        np.testing.assert_allclose(shapes.pop(), np.array([2, 3, *empty]) - sigma)


@pytest.mark.parametrize("prior", PRIOR_CASES)
def test_ratio_of_random_splits_has_the_law_of_their_sides(prior):
    """p(sides) in the ratio is the mean of share^left (1 - share)^right over proposed shares."""
    chain = make_runs("even_moves", "gaussian", prior, 5)
    chain.assign(np.zeros(5, dtype=np.int64))
    state, share_of_splits, K = chain.state, sub_cluster.SPLIT_SHARE, 2
    rng = np.random.default_rng(0)
    alpha = sub_cluster._alpha(state)
    moves = [sub_cluster._RandomMove(rng, alpha, 1) for _ in range(40_000)]
    shares = np.array([move.share for move in moves if move.is_split])
    assert len(shares) / len(moves) == pytest.approx(share_of_splits, rel=0.1)
    for left, right in [(1, 1), (1, 3), (2, 2)]:
        sides = (shares**left * (1.0 - shares) ** right).mean()
        split = share_of_splits / K * 2.0 * sides
        merge = (1.0 - share_of_splits) / (K * (K + 1) / 2)
        expected = state.prior.log_split(K, left, right) + np.log(merge / split)
        actual = chain.kernel._log_move_ratio(state, K, left, right)
        assert actual == pytest.approx(expected, abs=0.1)


def test_pairs_to_merge_are_uniform():
    move = sub_cluster._RandomMove(np.random.default_rng(0), 1.0, 1)
    pairs = []
    for one in range(4):
        for other in range(3):
            move.u = [(one + 0.5) / 4, (other + 0.5) / 3]
            pairs.append(move.pair(4))
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    assert counts.tolist() == [2] * 6


def test_a_merge_has_the_ratio_of_the_split_that_undoes_it(monkeypatch):
    chain = make_runs("moves", "gaussian", "dp", 5)
    chain.assign(np.array([0, 1, 1, 0, 2]))
    kernel, state, calls = chain.kernel, chain.state, []
    monkeypatch.setattr(kernel, "_log_move_ratio", lambda _, *args: calls.append(args) or np.nan)
    move = sub_cluster._RandomMove(np.random.default_rng(0), 1.0, 1)
    move.u, move.share = [0.1, 0.1], 0.5
    kernel._random_merge(state, move)
    parts = np.repeat(state.totals()[:1], 4, axis=0)
    kernel._random_split(state, None, move, 0, parts, np.zeros(4, dtype=int))
    assert [n_clusters for n_clusters, *_ in calls] == [2, 3]


def test_splits_into_sub_clusters_are_accepted_by_their_ratio(monkeypatch):
    """Eq. 21, with the prior's own ratio."""
    monkeypatch.setattr(sub_cluster, "SMALLEST_SIDE", 1)
    kernel, rng = SubClusterKernel(wait=False), np.random.default_rng(0)
    accepted = 0
    chain = make_runs("sub_clusters", "gaussian", "finite", 5)
    chain.assign(np.zeros(5, dtype=np.int64))
    parts = chain.rows.visit(
        chain.likelihood, np.array([0, 1, 1, 0, 1], dtype=np.int32), visit_task(1), None
    )[1]
    for _ in range(600):
        chain.assign(np.zeros(5, dtype=np.int64))
        state = chain.state
        state.stats = parts
        state.memory = sub_cluster._fresh_memory(1)
        state.memory["fresh"][:] = False
        state.memory["gain"][:] = np.log(0.4) - state.prior.log_split(1, 2, 3)
        kernel._split(state, rng)
        accepted += state.n_slots == 2
    assert accepted / 600 == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("wait", [True, False])
def test_splits_wait_for_sub_clusters(wait):
    """After a single pass nothing can have burned in."""
    kernel = SubClusterKernel(wait=wait, n_random_moves=0)
    X = np.random.default_rng(0).normal(size=(40, 2))
    chain = BlockRuns(Gaussian(), X, make_prior("dp", 40, concentration=1.0), kernel, 15)
    chain.assign(np.zeros(40, dtype=np.int64))
    chain.run(chain, np.random.PCG64(0))
    assert kernel.counts["sub_cluster_split"][0] == (not wait)


# The statistics that decide are those of the rows.


def assert_consistent(state):
    """The statistics, first rows and memory of clusters, against their labels."""
    _, stats, firsts = state.visit((0, 0, 0))
    np.testing.assert_allclose(state.stats, stats, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(state.firsts, firsts)
    assert (state.totals()[:, 0] > 0).all()
    assert {len(values) for values in state.memory.values()} <= {state.n_slots}
    if state.memory:
        known = ~state.memory["fresh"]
        log_m = state.model.log_marginals(np.concatenate([state.totals(), state.stats]))
        gain = log_m[state.n_slots :].reshape(-1, 2).sum(axis=1) - log_m[: state.n_slots]
        np.testing.assert_allclose(state.memory["gain"][known], gain[known], rtol=1e-9, atol=1e-9)


def test_visits_over_many_tiles():
    """Statistics and first rows of codes, and of the halves of a random split, from the rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    rows = RowBlocks(X, 1400)
    likelihood = Gaussian().resolve(X)
    codes = rng.choice([0, 1, 2, 3, 5], size=3000).astype(np.int32)
    codes[:800][codes[:800] == 1] = 0
    key = (0, 0, 1)
    task = visit_task(3, halves=[(1, 0.4), (0, 0.7)], numbers=[7, 2])
    _, stats, firsts = rows.visit(likelihood, codes, task, key)
    split = rows.changed(codes, [(1, 3, 0.4, key, 7), (0, 4, 0.7, key, 2)])
    # In the order of `visit`: all codes, then those of both halves of each split.
    expected = [codes == code for code in range(6)]
    expected += [split == code for code in (2, 3, 6, 7, 0, 1, 8, 9)]
    model = likelihood.parametric(X)
    for mask, row, first in zip(expected, stats, firsts, strict=True):
        sums = model.accumulated(np.zeros(model.n_stats), np.flatnonzero(mask))
        np.testing.assert_allclose(row, sums, rtol=1e-9, atol=1e-9)
        assert first == (mask.argmax() if mask.any() else -1)
    assert 0.35 < (split[codes // 2 == 1] // 2 == 1).mean() < 0.45


def long_run(kernel, seed_sequence, n_iterations=300, error=None):
    """States of a chain on a few dozens of rows."""
    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    X = rng.normal(size=(40, 2)) + 2 * np.eye(2)[np.arange(40) % 2]
    cls, params = KERNELS[kernel]
    if error is not None:
        cls = type(cls.__name__, (error, cls), {})
    prior = make_prior("dp", len(X), concentration=1.5)
    chain = BlockRuns(Gaussian(), X, prior, cls(**params), 15)
    chain.assign(np.arange(40) % 4)
    for _ in range(n_iterations):
        chain.run(chain, rng.bit_generator)
        yield chain.state


@pytest.mark.parametrize("kernel", ["moves", "sweep_and_moves", "sub_clusters"])
def test_statistics_are_those_of_the_labels(kernel, seed_sequence):
    numbers = set()
    for state in long_run(kernel, seed_sequence):
        assert_consistent(state)
        numbers.add(state.n_slots)
    assert len(numbers) > 1


# What these tests see.


class Ratio:
    """The ratio of random splits and merges times something."""

    def _log_move_ratio(self, state, n_clusters, left, right):
        ratio = super()._log_move_ratio(state, n_clusters, left, right)
        return ratio + self.log_error(state, n_clusters, left, right)


class NoLabellings(Ratio):
    """Two labellings of the sides of a split are one partition."""

    def log_error(self, state, n_clusters, left, right):
        return np.log(2)


class PairsBefore(Ratio):
    """Pairs counted among the clusters before the split."""

    def log_error(self, state, n_clusters, left, right):
        return np.log((n_clusters + 1) / max(n_clusters - 1, 1))


class NoAllocation(Ratio):
    """The probability of the sides left out."""

    def log_error(self, state, n_clusters, left, right):
        half = 0.5 * state.prior.concentration
        return (
            sub_cluster.gammaln(2 * half)
            + sub_cluster.gammaln(half + left)
            + sub_cluster.gammaln(half + right)
            - sub_cluster.gammaln(2 * half + left + right)
            - 2 * sub_cluster.gammaln(half)
        )


class NoClusterChoice(Ratio):
    """The choice of the cluster to split left out."""

    def log_error(self, state, n_clusters, left, right):
        return -np.log(n_clusters)


class Parameters:
    """The arrays of a sweep, changed."""

    def _parameters(self, state, totals, rng):
        sweep = super()._parameters(state, totals, rng)
        self.spoil(sweep, state, totals, rng)
        return sweep


class GroupsOfLabels(Parameters):
    """Super-clusters that depend on the labels: on the clusters' sizes."""

    def spoil(self, sweep, state, totals, rng):
        big = totals[:, 0] > 1
        sweep["groups"] = np.unique(big, return_inverse=True)[1].astype(np.intp)


class GroupsOfWeights(Parameters):
    """No error: super-clusters may depend on parameters and weights."""

    def spoil(self, sweep, state, totals, rng):
        big = sweep["log_weights"] > np.median(sweep["log_weights"])
        sweep["groups"] = np.unique(big, return_inverse=True)[1].astype(np.intp)


class WrongWeights(Parameters):
    """Dirichlet(N_k + alpha) in place of N_k."""

    def spoil(self, sweep, state, totals, rng):
        shapes = totals[:, 0] + state.prior.concentration
        sweep["log_weights"] = sub_cluster.log_gamma_variates(shapes, rng)


class PriorParameters(Parameters):
    """Parameters that do not know of the rows."""

    def spoil(self, sweep, state, totals, rng):
        nothing = np.zeros(state.n_slots)
        sweep["params"] = state.parametric.draw(totals, nothing, rng.bit_generator)


class WrongPower(Parameters):
    """Parameters as if every row counted half."""

    def spoil(self, sweep, state, totals, rng):
        half = np.full(state.n_slots, 0.5)
        sweep["params"] = state.parametric.draw(totals, half, rng.bit_generator)


class Dropping:
    """Clusters that a pass has emptied are dropped, as published; no row is held back."""

    def _pass(self, state, rng, key, moves):
        totals = state.totals()
        codes, stats, firsts = state.visit(key, self._parameters(state, totals, rng))
        sizes = stats[0::2, 0] + stats[1::2, 0]
        used = np.flatnonzero(sizes > 0)
        table = np.zeros(len(stats), dtype=np.int32)
        table[2 * used] = 2 * np.arange(len(used))
        table[2 * used + 1] = 2 * np.arange(len(used)) + 1
        kept = np.sort(np.concatenate([2 * used, 2 * used + 1]))
        state.codes, state.stats, state.firsts = table[codes], stats[kept], firsts[kept]
        state.memory = {name: values[used] for name, values in state.memory.items()}
        return {}


class SweepStream:
    """Random splits on the random stream of the labels."""

    def step(self, state, rng, key):
        original = sub_cluster._RandomMove
        try:
            sub_cluster._RandomMove = lambda rng, alpha, number: original(rng, alpha, 0)
            super().step(state, rng, key)
        finally:
            sub_cluster._RandomMove = original


class FirstHalves:
    """The sides of random splits among the labels as drawn, before any row is held back."""

    def _pass(self, state, rng, key, moves):
        visit, seen = state.visit, []

        def recorded(*args, **kwargs):
            seen.append(visit(*args, **kwargs))
            return seen[-1]

        state.visit = recorded
        halves = super()._pass(state, rng, key, moves)
        del state.visit
        n = 2 * state.n_slots
        _, stats, firsts = seen[0]
        return {
            number: (cluster, stats[n + 4 * j :][:4], firsts[n + 4 * j :][:4])
            for j, (number, (cluster, *_)) in enumerate(halves.items())
        }


class OneStays:
    """Of a cluster that a pass would empty only the first row stays."""

    def _pass(self, state, rng, key, moves):
        original = _rows.held_rows

        def first_of_each(codes, clusters):
            rows, held = original(codes, clusters)
            first = np.unique(held >> 1, return_index=True)[1]
            return rows[np.sort(first)], held[np.sort(first)]

        try:
            _rows.held_rows = first_of_each
            return super()._pass(state, rng, key, moves)
        finally:
            _rows.held_rows = original


class HeldAndDropped(Dropping):
    """Rows of clusters that a pass empties stay, but clusters that this empties are dropped."""

    def _pass(self, state, rng, key, moves):
        visit = state.visit

        def twice(key, sweep):
            _, stats, _ = visit(key, sweep)
            emptied = np.flatnonzero(stats[0::2, 0] + stats[1::2, 0] == 0)
            return visit(key, sweep, (), (), emptied)

        state.visit = twice
        try:
            return super()._pass(state, rng, key, moves)
        finally:
            del state.visit


class MixedSides:
    """Halves and sub-clusters taken for each other."""

    def _random_split(self, state, key, move, cluster, parts, firsts):
        return super()._random_split(state, key, move, cluster, parts[[0, 2, 1, 3]], firsts)


ERRORS = [
    (NoLabellings, "even_moves"),
    (PairsBefore, "even_moves"),
    (NoAllocation, "even_moves"),
    (NoClusterChoice, "even_moves"),
    (GroupsOfLabels, "sweep"),
    (PriorParameters, "sweep"),
    (WrongPower, "sweep"),
    (Dropping, "sweep"),
    (OneStays, "sweep"),
    (HeldAndDropped, "sweep"),
    (SweepStream, "sweep_and_moves"),
]


def p_value(run, seed_sequence):
    counts, probabilities, *_ = run(seed_sequence.spawn(1)[0], 1)
    return chi_squared_p(counts, probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("error, kernel", ERRORS)
def test_planted_errors(error, kernel, seed_sequence):
    n_starts = 10_000 if error is OneStays else 2_500  # which few passes come to
    run = invariance(kernel, "gaussian", "dp", 5, error, n_starts=n_starts, n_iterations=6)
    try:
        p = p_value(run, seed_sequence)
    except RuntimeError:  # a cluster without rows
        p = 0.0
    print(error.__name__, p)
    assert p < 1e-6


@pytest.mark.slow
def test_wrong_weights(seed_sequence):
    p = p_value(
        prior_run("sweep", "dp", WrongWeights, n_starts=4_000, n_iterations=8), seed_sequence
    )
    print(p)
    assert p < 1e-6


def test_super_clusters_may_depend_on_weights(seed_sequence):
    assert_p(
        invariance("sweep", "gaussian", "dp", 5, GroupsOfWeights, n_starts=500),
        seed_sequence=seed_sequence,
    )


def test_wrong_statistics(seed_sequence):
    with pytest.raises((AssertionError, ValueError)):
        for state in long_run("sub_clusters", seed_sequence, error=MixedSides):
            assert_consistent(state)


class CheckedHalves:
    """The halves of random splits hold the rows that their cluster has after the pass."""

    def _move(self, state, key, moves, halves):
        for cluster, parts, _ in halves.values():
            assert parts[:, 0].sum() == state.totals()[cluster, 0]
        super()._move(state, key, moves, halves)


def test_halves_are_those_of_the_labels_kept(seed_sequence):
    for _ in long_run("sweep_and_moves", seed_sequence, error=CheckedHalves):
        pass
    wrong = type("Wrong", (CheckedHalves, FirstHalves), {})
    with pytest.raises(AssertionError):
        for _ in long_run("sweep_and_moves", seed_sequence, error=wrong):
            pass
