"""Samplers that visit rows in blocks, against enumerated posteriors.

`SubCluster` is exact but for its splits into sub-clusters, so that its kernel is tested without
these. As in `test_enumeration.py`; the planted errors show what the tests see.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES
from scipy import integrate, stats
from scipy.special import betaln
from support import pvalues
from support.designs import cover, everyday
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
    prior_cases,
    record_worst,
)
from support.probes import accumulated
from support.pvalues import (
    FAIL_BELOW,
    IMPOSSIBLE,
    Cells,
    assert_p,
    assert_p_matrix,
    chi_squared_p,
    correct_for_number,
)

from skdpm.mixture.blocks._visit import draw_and_collect
from skdpm.mixture.blocks.kernel import log_gamma_variates
from skdpm.mixture.blocks.moves.launched import LaunchedMoves, Nodes
from skdpm.mixture.blocks.moves.random import DrawnMoves, RandomMoves
from skdpm.mixture.blocks.moves.sub_clusters import (
    SubClusterMemory,
    merge_close_clusters,
    split_into_sub_clusters,
)
from skdpm.mixture.blocks.records import Collected, Held, RandomSplit, Sweep, Task, TrialSplit
from skdpm.mixture.blocks.rows import MemoryRows, visit_block
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SAMPLERS
from skdpm.mixture.samplers.base import BlockSampler
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbsKernel
from skdpm.mixture.samplers.sub_cluster import SubCluster, SubClusterKernel
from skdpm.papers.sub_cluster import GroupedSweep, PaperSubClusterKernel


class KernelCase(NamedTuple):
    """A kernel, of which a test may replace the parts by others with an error."""

    kernel: type
    options: dict
    moves: dict | None = None  # of its random moves; None: it has none
    launched: dict | None = None  # of its launched moves; None: it has none
    n_iterations: int | None = None  # after which a chain on five rows has forgotten its start


# The parts of an iteration alone, and what may be put together. As many random splits as merges
# show in few iterations what they do.
MOVES_ONLY = {"sweep": False}
NO_MOVES = {"n_moves": 0}
KERNELS = {
    "sweep": KernelCase(SubClusterKernel, {}, NO_MOVES),
    "in_groups": KernelCase(
        PaperSubClusterKernel,
        {"in_groups": True, "sub_splits": False},
        {"n_moves": 2, "split_share": 0.5},
        n_iterations=40,
    ),
    "moves": KernelCase(SubClusterKernel, MOVES_ONLY, {}),
    "even_moves": KernelCase(SubClusterKernel, MOVES_ONLY, {"n_moves": 4, "split_share": 0.5}),
    "many_merges": KernelCase(
        SubClusterKernel, MOVES_ONLY, {"n_moves": 40, "split_share": 0.05}, n_iterations=60
    ),
    "sweep_and_moves": KernelCase(
        SubClusterKernel, {}, {"n_moves": 2, "split_share": 0.5}, n_iterations=40
    ),
    "launched": KernelCase(
        SubClusterKernel, MOVES_ONLY, NO_MOVES, {"n_unions": 2, "n_passes": 1}, n_iterations=30
    ),
    "everything": KernelCase(
        SubClusterKernel,
        {},
        {"n_moves": 1, "split_share": 0.5},
        {"n_unions": 1, "n_passes": 1},
        n_iterations=20,
    ),
    "blocked_gibbs": KernelCase(BlockedGibbsKernel, {}, n_iterations=60),
}

# A few cells, one for every day: (kernel, prior, most rows in a block).
EVERY_DAY = [
    ("sweep", "dp", 2),
    ("in_groups", "pitman_yor_negative", 5),
    ("sweep_and_moves", "pitman_yor", 3),
    ("blocked_gibbs", "finite", 2),
]
# Starts and iterations of each cell. `test_planted_errors` shows what so many see.
POWER = {"n_starts": 600, "n_iterations": 6}


def make_kernel(case, error=None):
    """A kernel; `error` is a class in place of that of the kernel or of its random moves."""
    cls, options, moves, launched, _ = KERNELS[case]
    if error is not None and issubclass(error, cls):
        cls = error
    if moves is not None:
        of_moves = error if error is not None and issubclass(error, RandomMoves) else RandomMoves
        options = {**options, "random_moves": of_moves(**moves)}
    if launched is not None:
        of_moves = error if error is not None and issubclass(error, LaunchedMoves) else None
        moves = (of_moves or LaunchedMoves)(**launched)
        options = {**options, "launched_moves": moves, "launch_every": 1}
    return cls(**options)


def make_rows(X, block_size, error=None):
    cls = error if error is not None and issubclass(error, MemoryRows) else MemoryRows
    return cls(X, block_size)


def make_runs(case, likelihood, prior, block_size, error=None):
    rows = make_rows(case_rows(likelihood), block_size, error)
    return block_case(likelihood, prior, make_kernel(case, error), rows)


def block_samplers():
    """Samplers that visit rows in blocks, those of the registry and the variant of a paper, by the
    class of their kernel."""
    samplers = [cls() for cls in SAMPLERS.values() if issubclass(cls, BlockSampler)]
    samplers.append(SubCluster.from_paper("SUBC+SUPC"))
    return {type(sampler.kernel()): sampler for sampler in samplers}


def priors_of(case):
    """The cases of priors under which a kernel can run."""
    sampler = block_samplers()[KERNELS[case].kernel]
    names = []
    for name, (prior, params) in PRIOR_CASES.items():
        try:
            sampler.check_prior(make_prior(prior, 5, **params))
        except ValueError:
            continue
        names.append(name)
    return names


def test_matrix_is_complete():
    """Every sampler of the registry that visits rows in blocks has cases, on every day as well,
    and each case a sampler; the other samplers are in test_enumeration.py. All cases are in
    `test_invariance_in_depth`."""
    assert {case.kernel for case in KERNELS.values()} == set(block_samplers())
    assert {KERNELS[kernel].kernel for kernel, *_ in EVERY_DAY} == set(block_samplers())
    assert {prior for _, prior, _ in EVERY_DAY} <= set(PRIOR_CASES)


def block_likelihoods():
    """The cases that can be instantiated."""
    names = likelihood_names()
    return [n for n in names if "instantiated" in make_likelihood(n).capabilities]


def invariance(kernel, likelihood, prior, block_size, error=None, **options):
    """A run for `assert_p`: starts from the posterior, some with an error planted."""
    runs = make_runs(kernel, likelihood, prior, block_size, error)
    options = {**POWER, **options}
    if kernel == "everything":  # each part of it is a case of its own
        options["n_iterations"] = 2
    return invariance_run(runs, runs, case_posterior(likelihood, prior), **options)


@pytest.mark.parametrize("first", everyday(range(len(EVERY_DAY)), 0))
@pytest.mark.long
def test_invariance(first, seed_sequence, record_property):
    """Starts drawn from the posterior still follow it after 6, 12 and 18 iterations."""
    kernel, prior, block_size = EVERY_DAY[first]
    likelihood = block_likelihoods()[first % len(block_likelihoods())]
    name = f"{kernel} {likelihood} {prior} {block_size}"
    runs = {name: invariance(kernel, likelihood, prior, block_size, n_starts=150)}
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_invariance_in_depth(seed_sequence, record_property):
    """Every kernel under every prior, and every likelihood under every prior."""
    likelihoods = block_likelihoods()
    designs = [
        (kernel, likelihoods[(k + p) % len(likelihoods)], prior, (2, 5, 1, 3)[(k + p) % 4])
        for k, kernel in enumerate(KERNELS)
        for p, prior in enumerate(priors_of(kernel))
    ]
    designs += [
        (kernel, likelihood, prior, 3)
        for kernel in ("everything", "blocked_gibbs")
        for likelihood in likelihoods
        for prior in priors_of(kernel)
    ]
    runs = {" ".join(map(str, design)): invariance(*design, n_starts=300) for design in designs}
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


def convergence_runs(designs, error=None):
    runs = {}
    for kernel, likelihood, prior in designs:
        chains = make_runs(kernel, likelihood, prior, 3, error)
        runs[f"{kernel} {likelihood} {prior}"] = convergence_run(
            chains,
            chains,
            case_posterior(likelihood, prior),
            np.zeros(5, dtype=np.int64),
            n_chains=250,
            n_iterations=KERNELS[kernel].n_iterations,
        )
    return runs


@pytest.mark.slow
def test_convergence(seed_sequence, record_property):
    """Chains from one cluster end up i.i.d. from the posterior: with part of the draws under a
    few priors for each kernel."""
    likelihoods = block_likelihoods()
    designs = [
        (kernel, likelihoods[(k + p) % len(likelihoods)], prior)
        for k, (kernel, case) in enumerate(KERNELS.items())
        if case.n_iterations is not None
        for p, prior in enumerate(priors_of(kernel))
    ]
    if pvalues.first_factor < 1:
        designs = cover(designs)
    runs = convergence_runs(designs)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


# Without rows to learn from, weights decide alone.

SAME_CLUSTERS = {"mean": 0.0, "mean_precision": 1e9, "df": 1e9, "scale": 1e9}


def prior_run(kernel, prior_case, error=None):
    """A run for `assert_p`: every cluster has the same parameters, and the posterior is the
    prior. Rows are alike, so that the sizes of clusters show all there is to see."""
    prior, params = PRIOR_CASES[prior_case]
    X = case_rows("gaussian")
    chains = BlockRuns(
        Gaussian(**SAME_CLUSTERS),
        X,
        make_prior(prior, 5, **params),
        make_kernel(kernel, error),
        make_rows(X, 5, error),
    )
    law = log_posterior(X, "gaussian", prior, likelihood_params=SAME_CLUSTERS, prior_params=params)
    run = invariance_run(chains, chains, law, n_starts=3000, n_iterations=2)

    def run_sizes(seed, factor):
        counts, probabilities, partitions = run(seed, factor)
        sizes = [tuple(sorted(np.bincount(labels)[np.unique(labels)])) for labels in partitions]
        names = sorted(set(sizes))
        which = [names.index(one) for one in sizes]
        return Cells(np.bincount(which, counts), np.bincount(which, probabilities), names)

    return run_sizes


@pytest.mark.slow
def test_weights(seed_sequence, record_property):
    runs = {
        f"{kernel} {prior}": prior_run(kernel, prior)
        for kernel, prior in [("sweep", "dp"), ("blocked_gibbs", "finite")]
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("prior", prior_cases("weights"))
def test_weights_are_drawn_given_sizes_and_prior(prior, monkeypatch):
    """Gamma shapes of the weights: sizes minus sigma, 0, d or -a (see the module of priors)."""
    name, params = PRIOR_CASES[prior]
    sigma = params.get("discount", 0.0)
    if name == "finite":
        sigma = -params["concentration"] / params["n_components"]
    shapes = []

    def recorded(values, rng):
        shapes.append(values)
        return np.zeros(len(values))

    kernels = [k for k in ("sweep", "blocked_gibbs") if prior in priors_of(k)]
    assert kernels
    for kernel in kernels:
        monkeypatch.setattr("skdpm.mixture.blocks.kernel.log_gamma_variates", recorded)
        chain = make_runs(kernel, "gaussian", prior, 5)
        chain.assign(np.array([0, 1, 1, 0, 1]))
        chain.run(chain, np.random.PCG64(0))
        empty = [0] * (kernel == "blocked_gibbs")
        np.testing.assert_allclose(shapes.pop(), np.array([2, 3, *empty]) - sigma)


# Random moves.


def shares_run(alpha, split_share, law):
    """A run for `assert_p`: the p-value of the shares that random splits draw."""

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        moves = DrawnMoves.draw(rng, alpha, round(2_000 * factor), split_share)
        assert np.isnan(moves.shares[~moves.is_split]).all()
        shares = moves.shares[moves.is_split]
        return stats.kstest(shares, law.cdf).pvalue

    return run


@pytest.mark.parametrize("alpha", [0.7, 2.4])
def test_random_splits_draw_their_shares(alpha, seed_sequence):
    """Share ~ Beta(alpha / 2, alpha / 2); a Beta(alpha, alpha) would be seen."""
    law = stats.beta(0.5 * alpha, 0.5 * alpha)
    assert_p(shares_run(alpha, 0.5, law), seed_sequence=seed_sequence)
    assert shares_run(alpha, 0.5, stats.beta(alpha, alpha))(seed_sequence, 1) < FAIL_BELOW


def kinds_run(moves, split_share):
    """A run for `assert_p`: how many of the moves are splits."""
    state = make_runs("sweep", "gaussian", "dp", 5)
    state.assign(np.zeros(5, dtype=np.int64))

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        drawn = [moves.draw(state.state, rng) for _ in range(round(400 * factor))]
        n_splits = sum(one.is_split.sum() for one in drawn)
        assert [drawn[0].trial(m, 1).stream_number for m in range(len(drawn[0]))] == [1, 2, 3]
        return Cells([n_splits, 3 * len(drawn) - n_splits], [split_share, 1.0 - split_share])

    return run


def test_so_many_random_moves_are_splits(seed_sequence):
    moves = RandomMoves(n_moves=3, split_share=0.3)
    assert_p(kinds_run(moves, 0.3), seed_sequence=seed_sequence)
    counts, probabilities, _ = kinds_run(moves, 0.4)(seed_sequence, 1)
    assert chi_squared_p(counts, probabilities) < FAIL_BELOW
    with pytest.raises(AssertionError):
        kinds_run(SweepStream(n_moves=3, split_share=0.3), 0.3)(seed_sequence, 1)


@pytest.mark.parametrize("prior", PRIOR_CASES)
@pytest.mark.parametrize("split_share", [0.1, 0.5])
def test_ratio_of_random_splits_has_the_law_of_their_sides(prior, split_share):
    """p(sides) in the ratio is the mean of share^left (1 - share)^right over proposed shares."""
    chain = make_runs("moves", "gaussian", prior, 5)
    chain.assign(np.zeros(5, dtype=np.int64))
    concentration, K = chain.prior.concentration, 2
    half = 0.5 * (concentration if concentration > 0 else 1.0)
    moves = RandomMoves(split_share=split_share)
    for left, right in [(1, 1), (1, 3), (2, 2)]:
        # share^(half - 1) (1 - share)^(half - 1) are the weights of the quadrature.
        sides, total = (
            integrate.quad(function, 0, 1, weight="alg", wvar=(half - 1, half - 1))[0]
            for function in (lambda x: x**left * (1 - x) ** right, lambda x: 1.0)  # noqa: B023
        )
        split = split_share / K * 2.0 * sides / total
        merge = (1.0 - split_share) / (K * (K + 1) / 2)
        expected = chain.prior.log_split(K, left, right) + np.log(merge / split)
        actual = moves.log_ratio(chain.state, K, left, right)
        assert actual == pytest.approx(expected, rel=1e-9)


def drawn_moves(is_split, log_u, u):
    """`DrawnMoves` with the given numbers, and shares of one half."""
    shares = np.where(is_split, 0.5, np.nan)
    return DrawnMoves(np.array(is_split), np.array(log_u), np.array(u), shares)


def test_pairs_to_merge_are_uniform():
    u = [((one + 0.5) / 4, (other + 0.5) / 3) for one in range(4) for other in range(3)]
    pairs = drawn_moves([False] * 12, [0.0] * 12, u).pairs(slice(None), 4)
    assert (pairs[:, 0] < pairs[:, 1]).all()
    counts = np.unique(pairs, axis=0, return_counts=True)[1]
    assert counts.tolist() == [2] * 6


def test_a_merge_has_the_ratio_of_the_split_that_undoes_it():
    """Both ask for the ratio of the same split: of two clusters into three."""
    ratios = []

    class Recorded(RandomMoves):
        def log_ratio(self, state, n_clusters, left, right):
            ratios.append((n_clusters, left.item(), right.item()))
            return super().log_ratio(state, n_clusters, left, right)

    moves, chain = Recorded(), make_runs("moves", "gaussian", "dp", 5)
    certain = drawn_moves([False], [-np.inf], [(0.1, 0.1)])
    chain.assign(np.array([0, 1, 1, 0, 2]))
    assert moves.merge(chain.state, certain, 0, 1, None) == (True, 1)
    assert sorted(np.bincount(chain.cluster_labels())) == [1, 4]
    chain.assign(np.array([0, 0, 0, 0, 1]))
    model = chain.likelihood.parametric(chain.rows.X)
    nothing = np.zeros(model.n_stats)
    sides = [accumulated(model, nothing, rows) for rows in ([0, 3], [1, 2])]
    parts = Collected(np.array([sides[0], nothing, sides[1], nothing]), np.array([0, -1, 1, -1]))
    trial = TrialSplit(0, 0.5, 1)
    assert moves.split(chain.state, (0, 0, 1), -np.inf, trial, parts, None)
    assert chain.state.n_slots == 3
    assert ratios == [(2, 2.0, 2.0)] * 2


# Splits into sub-clusters, in warm-up.


class Adapting(SubClusterKernel):
    """In warm-up."""

    def step(self, state, rng, key):
        super().step(state, rng, key, 0.75)


def in_warm_up(kernel):
    """The class of a kernel in warm-up."""
    return type("Adapting", (Adapting, kernel), {})


def sub_splits_run(probability, error=0.0):
    """A run for `assert_p`: how many of certain splits are accepted."""
    chain = make_runs("sweep", "gaussian", "finite", 5)
    codes = np.array([0, 1, 1, 0, 1], dtype=np.int32)
    _, collected = chain.rows.visit(chain.likelihood, codes, Task(1), None)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        n_proposed = n_accepted = 0
        for _ in range(round(800 * factor)):
            chain.assign(np.zeros(5, dtype=np.int64))
            chain.state.codes, chain.state.collected = codes, collected
            memory = SubClusterMemory.start(1)
            memory.fresh[:] = False
            log_prior = chain.prior.log_split(1, 2, 3)
            memory.gain[:] = np.log(probability) - log_prior + error
            proposed, accepted = split_into_sub_clusters(chain.state, memory, True, rng)
            n_proposed += proposed
            n_accepted += accepted
            labels = chain.cluster_labels()
            assert labels.tolist() in ([0] * 5, [0, 1, 1, 0, 1])
        assert n_proposed == round(800 * factor)
        counts = [n_accepted, n_proposed - n_accepted]
        return Cells(counts, [probability, 1.0 - probability])

    return run


def test_splits_into_sub_clusters_are_accepted_by_their_ratio(seed_sequence):
    """Eq. 21, with the prior's own ratio; one that is 30 % larger would be seen."""
    assert_p(sub_splits_run(0.4), seed_sequence=seed_sequence)
    counts, probabilities, _ = sub_splits_run(0.4, error=np.log(1.3))(seed_sequence, 1)
    assert chi_squared_p(counts, probabilities) < FAIL_BELOW


@pytest.mark.parametrize("wait", [True, False])
def test_splits_wait_for_sub_clusters(wait):
    """After a single pass nothing can have burned in."""
    kernel = PaperSubClusterKernel(wait=wait, random_moves=RandomMoves(n_moves=0))
    kernel.__class__ = in_warm_up(PaperSubClusterKernel)
    X = np.random.default_rng(0).normal(size=(40, 2))
    prior = make_prior("dp", 40, concentration=1.0)
    chain = BlockRuns(Gaussian(), X, prior, kernel, MemoryRows(X, 15))
    chain.assign(np.zeros(40, dtype=np.int64))
    chain.run(chain, np.random.PCG64(0))
    assert kernel.counts["sub_cluster_split"][0] == (not wait)


# The statistics that decide are those of the rows.


def assert_consistent(state, memory):
    """The statistics, first rows and memory of clusters, against their labels."""
    _, collected = state.run_task(None)
    np.testing.assert_allclose(state.stats, collected.stats, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(state.collected.first_rows, collected.first_rows)
    assert (state.totals()[:, 0] > 0).all()
    if memory is not None:
        assert len(memory) == len(memory.gain) == state.n_slots
        known = ~memory.fresh
        log_m = state.model.log_marginals(np.concatenate([state.totals(), state.stats]))
        gain = log_m[state.n_slots :].reshape(-1, 2).sum(axis=1) - log_m[: state.n_slots]
        np.testing.assert_allclose(memory.gain[known], gain[known], rtol=1e-9, atol=1e-9)


def test_tasks_over_many_tiles():
    """Statistics and first rows of codes, and of the parts of random splits, from the rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 2))
    rows = MemoryRows(X, 1400)
    likelihood = Gaussian().resolve(X)
    codes = rng.choice([0, 1, 2, 3, 5], size=3000).astype(np.int32)
    codes[:800][codes[:800] == 1] = 0
    key = (0, 0, 1)
    trials = (TrialSplit(1, 0.4, 7), TrialSplit(0, 0.7, 2))
    _, collected = rows.visit(likelihood, codes, Task(3, splits=trials), key)
    split = rows.changed(codes, [RandomSplit(trials[0], 3, key), RandomSplit(trials[1], 4, key)])
    # All codes, then the parts of each split.
    expected = [codes == code for code in range(6)]
    expected += [split == code for code in (2, 3, 6, 7, 0, 1, 8, 9)]
    model = likelihood.parametric(X)
    for mask, row, first in zip(expected, collected.stats, collected.first_rows, strict=True):
        sums = accumulated(model, np.zeros(model.n_stats), np.flatnonzero(mask))
        np.testing.assert_allclose(row, sums, rtol=1e-9, atol=1e-9)
        assert first == (mask.argmax() if mask.any() else -1)
    assert 0.35 < (split[codes // 2 == 1] // 2 == 1).mean() < 0.45


def streams_run(one, other):
    """A run for `assert_p`: the p-value that two streams, (block, number) of a split or block of
    a sweep, decide independently. Of either, which rows of a cluster of all rows it picks."""

    def run(seed, factor):
        X = np.zeros((round(1000 * factor), 1))
        likelihood = Gaussian(mean=0.0, scale=1.0).resolve(X)
        model = likelihood.parametric(X)
        stats_of_all = accumulated(model, np.zeros(model.n_stats))[None]
        params = np.repeat(model.draw(stats_of_all, np.ones(1), np.random.PCG64(0)), 2, axis=0)
        nothing, key = np.zeros(len(X), dtype=np.int32), (int(seed.generate_state(1)[0]), 0, 1)
        picked = []
        for block, number in (one, other):
            if number is None:  # a sweep over two equal clusters
                task = Task(2, Sweep(params, np.zeros(2)))
                codes, _ = visit_block(likelihood, X, nothing, task, key, block)
            else:
                change = RandomSplit(TrialSplit(0, 0.5, number), 1, key)
                codes = change.apply(nothing, block)
            picked.append(codes > 0)
        table = [[(a & b).sum() for b in (picked[1], ~picked[1])] for a in (picked[0], ~picked[0])]
        assert min(picked[0].mean(), picked[1].mean()) > 0.4
        return stats.fisher_exact(table).pvalue

    return run


def test_random_streams_are_independent(seed_sequence, record_property):
    """Of the sweep and each random split, and in each block; equal ones would be seen."""
    pairs = [
        ((1, None), (1, 1)),
        ((1, None), (2, None)),
        ((1, 1), (1, 2)),
        ((1, 1), (2, 1)),
    ]
    runs = {f"{one} {other}": streams_run(one, other) for one, other in pairs}
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))
    for same in [((1, None), (1, 0)), ((2, 3), (2, 3))]:
        assert streams_run(*same)(seed_sequence, 1) < IMPOSSIBLE


def test_many_random_splits_in_one_visit():
    X = np.random.default_rng(0).normal(size=(700, 2))
    rows, likelihood = MemoryRows(X, 600), Gaussian().resolve(X)
    trials = tuple(TrialSplit(0, 0.5, 1 + j) for j in range(80))
    codes = rows.codes(None)
    _, collected = rows.visit(likelihood, codes, Task(1, splits=trials), (0, 0, 1))
    assert len(collected) == 2 + 4 * 80
    for j, trial in enumerate(trials):
        split = rows.changed(codes, [RandomSplit(trial, 1, (0, 0, 1))])
        sizes = [(split == code).sum() for code in range(4)]
        assert collected.stats[2 + 4 * j : 6 + 4 * j, 0].tolist() == sizes


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_held_rows_keep_their_codes_and_others_draw_the_same(n_clusters):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1300, 2))
    rows, likelihood = MemoryRows(X, 700), Gaussian().resolve(X)
    codes = rng.integers(0, 2 * n_clusters, size=1300).astype(np.int32)
    _, collected = rows.visit(likelihood, codes, Task(n_clusters), None)
    model = likelihood.parametric(X)
    powers, bit_generator = np.ones(2 * n_clusters), np.random.PCG64(0)
    params = model.draw(collected.stats, powers, bit_generator)
    sweep = Sweep(params[::2].copy(), np.zeros(n_clusters), params, np.zeros(2 * n_clusters))
    free, _ = rows.visit(likelihood, codes, Task(n_clusters, sweep), (0, 0, 1))
    assert (free != codes).any()
    held = Task(n_clusters, sweep, held_clusters=(0,))
    new, collected = rows.visit(likelihood, codes, held, (0, 0, 1))
    stay = codes // 2 == 0
    np.testing.assert_array_equal(new[stay], codes[stay])
    # Sub-clusters are drawn after clusters, so that held rows shift their streams.
    np.testing.assert_array_equal(new[~stay] // 2, free[~stay] // 2)
    for code in range(2 * n_clusters):
        assert collected.stats[code, 0] == (new == code).sum()


def long_run(kernel, seed_sequence, n_iterations=300, error=None, adapting=False):
    """State and memory of a chain on a few dozens of rows."""
    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    X = rng.normal(size=(40, 2)) + 2 * np.eye(2)[np.arange(40) % 2]
    prior = make_prior("dp", len(X), concentration=1.5)
    kernel = make_kernel(kernel, error)
    if adapting:
        kernel.__class__ = in_warm_up(type(kernel))
    chain = BlockRuns(Gaussian(), X, prior, kernel, MemoryRows(X, 15))
    chain.assign(np.arange(40) % 4)
    for _ in range(n_iterations):
        chain.run(chain, rng.bit_generator)
        yield chain.state, kernel.memory


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", everyday(["moves", "sweep_and_moves", "launched", "everything"], "launched")
)
def test_statistics_are_those_of_the_labels(kernel, seed_sequence):
    numbers = set()
    for state, memory in long_run(kernel, seed_sequence):
        assert_consistent(state, memory)
        numbers.add(state.n_slots)
    assert len(numbers) > 1


@pytest.mark.slow
def test_statistics_are_those_of_the_labels_in_warm_up(seed_sequence):
    """Many splits and merges at once, from twelve starts."""
    numbers = set()
    for seed in seed_sequence.spawn(12):
        for state, memory in long_run("everything", seed, 30, adapting=True):
            assert_consistent(state, memory)
            numbers.add(state.n_slots)
    assert len(numbers) > 2


class LastRows(BlockState):
    """An error: of codes that meet, the last first row is taken for the first."""

    def relabel(self, table, n_clusters):
        old = self.collected.first_rows
        super().relabel(table, n_clusters)
        for code in np.flatnonzero(old >= 0):
            self.collected.first_rows[table[code]] = old[code]


@pytest.mark.parametrize("cls", [BlockState, LastRows])
def test_codes_that_meet(cls):
    """Codes 0, 2 and 5 of three clusters become the left sub-cluster of the second of two."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    prior = make_prior("dp", 40, concentration=1.0)
    chain = BlockRuns(Gaussian(), X, prior, SubClusterKernel(), MemoryRows(X, 15))
    chain.assign(np.arange(40) % 3)
    state = chain.state
    state.codes = np.array([2, 0, 5, 4])[np.arange(40) % 4].astype(np.int32)
    _, state.collected = state.run_task(None)
    state.__class__ = cls
    state.relabel(np.array([2, 0, 2, 0, 1, 2], dtype=np.int32), 2)
    np.testing.assert_array_equal(state.codes, np.where(np.arange(40) % 4 == 3, 1, 2))
    if cls is LastRows:
        with pytest.raises(AssertionError):
            assert_consistent(state, None)
    else:
        assert_consistent(state, None)


@pytest.mark.parametrize("margin, n_left", [(0.5, 3), (5.0, 12)])
def test_parts_of_clusters_are_merged_in_warm_up(margin, n_left):
    """Each of three clusters in four parts; none gains as much as five for each row."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2)) + 9 * np.array([[0, 0], [0, 1], [1, 0]])[np.arange(600) % 3]
    prior = make_prior("dp", 600, concentration=1.0)
    chain = BlockRuns(Gaussian(scale=np.eye(2)), X, prior, SubClusterKernel(), MemoryRows(X, 250))
    chain.assign(np.arange(600) % 12)
    memory = SubClusterMemory.start(12)
    for _ in range(4):
        merge_close_clusters(chain.state, memory, margin, rng)
    assert_consistent(chain.state, memory)
    assert chain.state.n_slots == n_left


@pytest.mark.parametrize("length", [1, 4])
def test_memory_follows_clusters(length):
    """`append`, `renew` and `take`, against lists."""
    memory = SubClusterMemory.start(length)
    memory.gain, memory.best = np.arange(length) + 0.5, np.arange(length) + 1.0
    memory.idle[:] = np.arange(length)
    entries = memory.gain.tolist()
    copy = memory.copy()
    memory.append(length - 1)
    assert memory.gain.tolist() == [*entries, entries[-1]]
    memory.renew(-1)
    assert memory.gain.tolist() == [*entries, -np.inf] and memory.fresh[-1]
    memory.gain[-1] = 9.5
    memory.take(np.arange(length, 0, -1))
    assert memory.gain.tolist() == [9.5, *entries[:0:-1]]
    assert {len(getattr(memory, name)) for name in ("fresh", "ready", "best", "idle")} == {length}
    assert copy.gain.tolist() == entries


def test_another_likelihood_may_take_its_place():
    """A chain whose likelihood has hyperparameters goes on with others."""
    chain = make_runs("sweep", "gaussian", "dp", 5)
    chain.assign(np.array([0, 1, 1, 0, 1]))
    other = make_likelihood("gaussian", df=1e6, scale=1e-2 * np.eye(2)).resolve(chain.rows.X)
    before = chain.state.parametric
    chain.state.replace_likelihood(other)
    assert chain.state.likelihood is other
    draws = [
        model.draw(chain.state.totals(), np.zeros(2), np.random.PCG64(0))
        for model in (before, chain.state.parametric, other.parametric(chain.rows.X[:0]))
    ]
    assert (draws[0] != draws[1]).any()
    np.testing.assert_array_equal(draws[1], draws[2])
    chain.run(chain, np.random.PCG64(0))


# No answer is no weight and no rejection.


@pytest.mark.parametrize("n_clusters", [1, 2, 3, 9])
@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_a_weight_that_is_no_number_is_refused(n_clusters, bad):
    """Of any cluster, or of any sub-cluster of a cluster that has rows."""
    X = np.random.default_rng(0).normal(size=(600, 2))
    rows, likelihood = MemoryRows(X, 600), Gaussian().resolve(X)
    model = likelihood.parametric(X)
    stats = np.tile(accumulated(model, np.zeros(model.n_stats)), (2 * n_clusters, 1))
    params = model.draw(stats, np.ones(2 * n_clusters), np.random.PCG64(0))
    for name, n in (("log_weights", n_clusters), ("sub_log_weights", 2 * n_clusters)):
        good = Sweep(params[:n_clusters], np.zeros(n_clusters), params, np.zeros(2 * n_clusters))
        rows.visit(likelihood, rows.codes(None), Task(n_clusters, good), (0, 0, 1))
        for k in range(n):
            weights = np.zeros(n)
            weights[k] = bad
            task = Task(n_clusters, replace(good, **{name: weights}))
            with pytest.raises(FloatingPointError, match="no number"):
                rows.visit(likelihood, rows.codes(None), task, (0, 0, 1))


def test_a_weight_of_zero_is_a_weight():
    X = np.random.default_rng(0).normal(size=(600, 2))
    rows, likelihood = MemoryRows(X, 600), Gaussian().resolve(X)
    model = likelihood.parametric(X)
    stats = np.tile(accumulated(model, np.zeros(model.n_stats)), (3, 1))
    params = model.draw(stats, np.ones(3), np.random.PCG64(0))
    sweep = Sweep(params, np.array([-np.inf, 0.0, -np.inf]))
    codes, _ = rows.visit(likelihood, rows.codes(None), Task(3, sweep), (0, 0, 1))
    assert (codes == 2).all()
    sweep = Sweep(params, np.full(3, -np.inf))
    with pytest.raises(FloatingPointError, match="no cluster of positive weight"):
        rows.visit(likelihood, rows.codes(None), Task(3, sweep), (0, 0, 1))


class NoMarginal:
    """A `ClusterModel` without an answer for clusters of so many rows."""

    def __init__(self, model, size):
        self.model = model
        self.size = size

    def log_marginals(self, stats):
        return np.where(stats[:, 0] == self.size, np.nan, self.model.log_marginals(stats))


@pytest.mark.parametrize(
    "size, message",
    [
        (4, "random merge of clusters 0 and 1 is NaN"),
        (3, "random merge of clusters 0 and 1 is NaN"),
        (1, "random split of cluster 1 is NaN"),
    ],
)
def test_random_moves_without_an_answer_are_refused(size, message):
    """By name of the move and its clusters."""
    chain, moves = make_runs("moves", "gaussian", "dp", 5), RandomMoves(n_moves=1)
    chain.assign(np.array([0, 1, 1, 1, 2]))
    chain.state.model = NoMarginal(chain.model, size)
    is_split = "split" in message
    move = drawn_moves([is_split], [0.0], [(0.5 if is_split else 0.1, 0.1)])
    with pytest.raises(FloatingPointError, match=message):
        # Some key splits the cluster of three into 2 and 1.
        for iteration in range(100):
            moves.make(chain.state, (0, 0, iteration), move, {}, None)


def test_sub_cluster_splits_without_an_answer_are_refused():
    X = np.random.default_rng(0).normal(size=(40, 2))
    kernel = Adapting(random_moves=RandomMoves(n_moves=0))
    prior = make_prior("dp", 40, concentration=1.0)
    chain = BlockRuns(Gaussian(), X, prior, kernel, MemoryRows(X, 15))
    chain.assign(np.zeros(40, dtype=np.int64))
    chain.state.model = NoMarginal(chain.model, 40)
    with pytest.raises(FloatingPointError, match="sub-cluster split of cluster 0 is NaN"):
        chain.run(chain, np.random.PCG64(0))


def test_launched_moves_without_an_answer_are_refused():
    """Of a pair as of a single cluster."""
    chain, moves = make_runs("launched", "gaussian", "dp", 5), LaunchedMoves(n_unions=1)
    rng = np.random.default_rng(0)
    chain.assign(np.array([0, 0, 0, 1, 1]))
    chain.state.model = NoMarginal(chain.model, 5)  # of the union of both
    with pytest.raises(FloatingPointError, match=r"launched move of the clusters .* is NaN"):
        for iteration in range(100):
            moves.make(chain.state, rng, (0, 0, iteration))


class GuardedStream:
    """A bit generator that tells when its lock is held."""

    def __init__(self, bit_generator, held):
        self.bit_generator = bit_generator  # owns what the capsule points to
        self.capsule = bit_generator.capsule
        self.lock = self
        self.held = held

    def __enter__(self):
        self.held.append(self)

    def __exit__(self, *exception):
        pass


def test_streams_are_locked_while_they_are_drawn_from():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = Gaussian().resolve(X).parametric(X)
    stats = accumulated(model, np.zeros(model.n_stats))[None]
    sweep = Sweep(model.draw(stats, np.ones(1), np.random.PCG64(0)), np.zeros(1))
    trial, held = TrialSplit(0, 0.5, 1), []
    streams = [GuardedStream(np.random.PCG64(j), held) for j in range(2)]
    codes = np.zeros(30, dtype=np.int32)
    draw_and_collect(model, codes, Task(1, sweep, (trial,)), streams)
    assert held == streams


# What these tests see.


class Ratio(RandomMoves):
    """The ratio of random splits and merges times something."""

    def log_ratio(self, state, n_clusters, left, right):
        log_ratio = super().log_ratio(state, n_clusters, left, right)
        return log_ratio + self.log_error(state, n_clusters, left, right)


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
        return betaln(half + left, half + right) - betaln(half, half)


class NoClusterChoice(Ratio):
    """The choice of the cluster to split left out."""

    def log_error(self, state, n_clusters, left, right):
        return -np.log(n_clusters)


class Parameters(SubClusterKernel):
    """The arrays of a sweep, changed."""

    def _parameters(self, state, totals, rng):
        sweep = super()._parameters(state, totals, rng)
        spoiled = self.spoiled(sweep, state, totals, rng)
        if "groups" in spoiled:
            return GroupedSweep.of(sweep, **spoiled)
        return replace(sweep, **spoiled)


class GroupsOfLabels(Parameters):
    """Super-clusters that depend on the labels: on the clusters' sizes."""

    def spoiled(self, sweep, state, totals, rng):
        big = totals[:, 0] > 1
        return {"groups": np.unique(big, return_inverse=True)[1].astype(np.intp)}


class GroupsOfWeights(Parameters):
    """No error: super-clusters may depend on parameters and weights."""

    def spoiled(self, sweep, state, totals, rng):
        big = sweep.log_weights > np.median(sweep.log_weights)
        return {"groups": np.unique(big, return_inverse=True)[1].astype(np.intp)}


class WrongWeights(Parameters):
    """Dirichlet(N_k + alpha) in place of N_k."""

    def spoiled(self, sweep, state, totals, rng):
        shapes = totals[:, 0] + state.prior.concentration
        return {"log_weights": log_gamma_variates(shapes, rng)}


class WrongComponentWeights(BlockedGibbsKernel):
    """Dirichlet(N_k + alpha) in place of N_k + alpha / K."""

    def step(self, state, rng, key):
        totals = state.totals()
        params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
        shapes = totals[:, 0] + state.prior.concentration
        sweep = Sweep(params, log_gamma_variates(shapes, rng))
        state.codes, state.collected = state.run_task(key, sweep)


class PriorParameters(Parameters):
    """Parameters that do not know of the rows."""

    def spoiled(self, sweep, state, totals, rng):
        nothing = np.zeros(state.n_slots)
        return {"params": state.parametric.draw(totals, nothing, rng.bit_generator)}


class WrongPower(Parameters):
    """Parameters as if every row counted half."""

    def spoiled(self, sweep, state, totals, rng):
        half = np.full(state.n_slots, 0.5)
        return {"params": state.parametric.draw(totals, half, rng.bit_generator)}


class Dropping(SubClusterKernel):
    """Clusters that a pass has emptied are dropped, as published; no row is held back."""

    def _pass(self, state, rng, key, moves):
        codes, collected = self.visited(state, key, self._parameters(state, state.totals(), rng))
        used = np.flatnonzero(collected.stats[0::2, 0] + collected.stats[1::2, 0])
        table = np.zeros(len(collected), dtype=np.int32)
        table[2 * used] = 2 * np.arange(len(used))
        table[2 * used + 1] = 2 * np.arange(len(used)) + 1
        state.codes = table[codes]
        state.collected = collected[np.sort(np.concatenate([2 * used, 2 * used + 1]))]
        return {}

    def visited(self, state, key, sweep):
        return state.run_task(key, sweep)


class HeldAndDropped(Dropping):
    """Rows of clusters that a pass empties stay, but clusters that this empties are dropped."""

    def visited(self, state, key, sweep):
        _, collected = state.run_task(key, sweep)
        emptied = np.flatnonzero(collected.stats[0::2, 0] + collected.stats[1::2, 0] == 0)
        return state.run_task(key, sweep, held_clusters=emptied)


class OneStays(MemoryRows):
    """Of a cluster that a pass would empty only the first row stays."""

    def hold_back(self, *arguments):
        held = super().hold_back(*arguments)
        if held is None:
            return None
        first = np.sort(np.unique(held.codes >> 1, return_index=True)[1])
        return Held(held.rows[first], held.codes[first])


class SweepStream(RandomMoves):
    """Random splits on the random stream of the labels."""

    def draw(self, state, rng):
        moves = super().draw(state, rng)
        return FirstStream(moves.is_split, moves.log_u, moves.u, moves.shares)


class FirstStream(DrawnMoves):
    """Splits on the random stream of the labels."""

    def trial(self, m, n_clusters):
        return replace(super().trial(m, n_clusters), stream_number=0)


class AsManyAsPairs(RandomMoves):
    """A number of moves that depends on the clusters: that of their pairs."""

    def draw(self, state, rng):
        self.n_moves = max(1, state.n_slots * (state.n_slots - 1) // 2)
        return super().draw(state, rng)


class MergesOfBefore(RandomMoves):
    """Merges weighed before an accepted one, whose clusters are no longer these."""

    def make(self, state, key, moves, evaluated, memory):
        self.before = None
        return super().make(state, key, moves, evaluated, memory)

    def log_ratios(self, state, pairs):
        every = np.argwhere(np.triu(np.ones((5, 5)), 1)).tolist()
        if self.before is None:
            mine = [pair for pair in every if pair[1] < state.n_slots]
            found = super().log_ratios(state, np.array(mine))
            self.before = dict(zip(map(tuple, mine), found, strict=True))
        return np.array([self.before.get(tuple(pair), -np.inf) for pair in pairs])


class FirstSides(SubClusterKernel):
    """The sides of random splits among the labels as drawn, before any row is held back."""

    def _pass(self, state, rng, key, moves):
        run_task, seen = state.run_task, []

        def recorded(*args, **kwargs):
            seen.append(run_task(*args, **kwargs))
            return seen[-1]

        state.run_task = recorded
        looked_at = super()._pass(state, rng, key, moves)
        del state.run_task
        n = 2 * state.n_slots
        _, collected = seen[0]
        return {
            number: (trial, collected[n + 4 * j : n + 4 * j + 4])
            for j, (number, (trial, _)) in enumerate(looked_at.items())
        }


class MixedParts(RandomMoves):
    """Sides and sub-clusters taken for each other."""

    def split(self, state, key, move, trial, parts, memory):
        return super().split(state, key, move, trial, parts[[0, 2, 1, 3]], memory)


class NoSides(LaunchedMoves):
    """The probability of the sides left out."""

    def log_ratio(self, state, nodes, j, log_q):
        return super().log_ratio(state, nodes, j, np.zeros(4))


class OneLabelling(LaunchedMoves):
    """The sides in one order only."""

    def log_ratio(self, state, nodes, j, log_q):
        return super().log_ratio(state, nodes, j, np.array([log_q[0], -np.inf, log_q[2], -np.inf]))


class Knowing(LaunchedMoves):
    """A launch that sees on which sides the rows of a pair are."""

    def first_params(self, state, unions, rng):
        params = super().first_params(state, unions, rng)
        for j, union in enumerate(unions):
            if len(union) == 2:
                stats = state.totals(list(union))
                params[2 * j : 2 * j + 2] = state.parametric.draw(
                    stats, np.ones(2), rng.bit_generator
                )
        return params


class SameChoice(LaunchedMoves):
    """Unions as probable after a move as before."""

    def make(self, state, rng, key):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Nodes, "log_choice", lambda nodes: 0.0)
            super().make(state, rng, key)


class UniformPairs(LaunchedMoves):
    """Pairs are drawn by closeness, and their probability is that of uniform ones."""

    def make(self, state, rng, key):
        class Uniform(Nodes):
            def log_choice(self):
                closeness = self.closeness
                self.closeness = np.zeros_like(closeness)
                value = super().log_choice()
                self.closeness = closeness
                return value

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(f"{LaunchedMoves.__module__}.Nodes", Uniform)
            super().make(state, rng, key)


# What is planted in which kernel; and what shows where rows say nothing.
ERRORS = [
    (NoLabellings, "even_moves"),
    (PairsBefore, "even_moves"),
    (NoAllocation, "even_moves"),
    (NoClusterChoice, "even_moves"),
    (AsManyAsPairs, "even_moves"),
    (MergesOfBefore, "many_merges"),
    (GroupsOfLabels, "sweep"),
    (PriorParameters, "sweep"),
    (WrongPower, "sweep"),
    (Dropping, "sweep"),
    (NoSides, "launched"),
    (OneLabelling, "launched"),
    (Knowing, "launched"),
    (SameChoice, "launched"),
    (UniformPairs, "launched"),
]
ERRORS_OF_WEIGHTS = [
    (WrongWeights, "sweep", "dp"),
    (WrongComponentWeights, "blocked_gibbs", "finite"),
    (Dropping, "sweep", "dp"),
    (OneStays, "sweep", "dp"),
    (HeldAndDropped, "sweep", "dp"),
]


def p_value(run, seed_sequence, factor=1):
    try:
        counts, probabilities, *_ = run(seed_sequence.spawn(1)[0], factor)
    except RuntimeError:  # a cluster without rows
        return 0.0
    return chi_squared_p(counts, probabilities)


@pytest.mark.slow
@pytest.mark.parametrize("error, kernel", ERRORS)
def test_planted_errors(error, kernel, seed_sequence):
    p = p_value(invariance(kernel, "gaussian", "dp", 5, error), seed_sequence)
    print(error.__name__, p)
    assert correct_for_number(p, len(EVERY_DAY)) < FAIL_BELOW


@pytest.mark.slow
@pytest.mark.parametrize("error, kernel, prior", ERRORS_OF_WEIGHTS)
def test_planted_errors_of_weights(error, kernel, prior, seed_sequence):
    p = p_value(prior_run(kernel, prior, error), seed_sequence)
    print(error.__name__, p)
    assert correct_for_number(p, 2) < FAIL_BELOW


@pytest.mark.slow
def test_convergence_sees_wrong_weights(seed_sequence):
    designs = [("blocked_gibbs", "gaussian", "finite")]
    (run,) = convergence_runs(designs, WrongComponentWeights).values()
    assert correct_for_number(p_value(run, seed_sequence, 6), 2) < FAIL_BELOW


@pytest.mark.slow
def test_groups_may_depend_on_weights(seed_sequence):
    assert_p(
        invariance("sweep", "gaussian", "dp", 5, GroupsOfWeights), seed_sequence=seed_sequence
    )


def test_wrong_statistics(seed_sequence):
    with pytest.raises((AssertionError, ValueError)):
        for state, memory in long_run(
            "everything", seed_sequence, error=MixedParts, adapting=True
        ):
            assert_consistent(state, memory)


class CheckedSides(SubClusterKernel):
    """The sides of random splits hold the rows that their cluster has after the pass."""

    def _pass(self, state, rng, key, moves):
        looked_at = super()._pass(state, rng, key, moves)
        for trial, parts in looked_at.values():
            assert parts.stats[:, 0].sum() == state.totals()[trial.cluster, 0]
        return looked_at


@pytest.mark.slow
def test_sides_are_those_of_the_labels_kept(seed_sequence):
    for _ in long_run("sweep_and_moves", seed_sequence, error=CheckedSides):
        pass
    wrong = type("Wrong", (CheckedSides, FirstSides), {})
    with pytest.raises(AssertionError):
        for _ in long_run("sweep_and_moves", seed_sequence, error=wrong):
            pass
