# SPDX-License-Identifier: BSD-3-Clause
"""Sub-cluster splits, launched and random splits and merges, over rows visited in blocks."""

import numpy as np

from skdpm._papers import paper_variants
from skdpm.mixture.blocks.kernel import BlockKernel, draw_log_weights, log_gamma_variates
from skdpm.mixture.blocks.moves import sub_clusters
from skdpm.mixture.blocks.moves.launched import N_FRESH_ROWS, LaunchedMoves
from skdpm.mixture.blocks.moves.random import RandomMoves, proposal_alpha
from skdpm.mixture.blocks.records import Sweep
from skdpm.mixture.samplers.base import BlockSampler

# Share of the warm-up, at its end, in which all moves are exact.
EXACT_SHARE = 0.5

# Launched moves take several passes over some of the rows. Iterations from one time that they are
# made to the next, in draws and in the exact part of the warm-up:
LAUNCH_EVERY = 10
EXACT_EVERY = 3

# Gain per row of the smaller cluster that a merge needs at the start of the warm-up. Halves of one
# cluster gain twice as much; neighbours gain less, but not nothing while they share rows.
CLEAR_GAIN = 0.5


class SubCluster(BlockSampler):
    """Sub-cluster splits (Chang & Fisher 2013): parallel, for many rows.

    An iteration draws the weights and parameters of clusters, then all labels in one pass over the
    rows, each independent of the others. In the first half of the warm-up every cluster has two
    sub-clusters, fitted in the same pass, into which it may be split, and close clusters are
    merged. From then on all moves are exact. Needs a likelihood whose parameters of a cluster can
    be drawn (capability "instantiated"). The guide has the details.

    Parameters
    ----------
    block_size : int, default=65536
        Maximum number of rows in a block, which is visited by one thread on one random stream.

    References
    ----------
    Chang & Fisher (2013), whose sampler is `SubCluster.from_paper("SUBC")`; Jain & Neal (2004).
    """

    takes_noise = True

    from_paper = paper_variants(
        "sub_cluster",
        ("SUBC", "SUBC+SUPC", "SUBC APPROX", "SUBC+SUPC APPROX"),
        "of Chang & Fisher (2013)",
    )

    @classmethod
    def automatic(cls, likelihood, shape, make_prior):
        suits = likelihood.suits_blocks(*shape) and cls.suits(make_prior(shape[0]))
        return cls() if suits else None

    @staticmethod
    def suits(prior):
        """Whether the prior has the weights that are drawn."""
        return "weights" in prior.capabilities

    def kernel(self):
        return SubClusterKernel()

    def check_prior(self, prior):
        if not self.suits(prior):
            raise ValueError(
                "SubCluster draws the weights of clusters, whose law under "
                f"{type(prior).__name__} is not Dirichlet: choose a sampler that needs no "
                "weights, such as Gibbs or PGSM, or with FiniteMixture fix n_components"
            )


class SubClusterKernel(BlockKernel):
    """One iteration of `SubCluster` on a `BlockState`.

    Its parts can be switched off, so that each can be tested alone: the pass over the rows, moves
    (None: default numbers), and what the warm-up does with sub-clusters. `launch_every` is the
    number of iterations between launched moves after the warm-up; None: LAUNCH_EVERY.
    """

    looks_around = True

    def __init__(
        self,
        sweep=True,
        random_moves=None,
        sub_splits=True,
        launched_moves=None,
        launch_every=None,
    ):
        self.sweep = sweep
        self.random_moves = RandomMoves() if random_moves is None else random_moves
        self.sub_splits = sub_splits
        self.launched_moves = LaunchedMoves() if launched_moves is None else launched_moves
        self.launch_every = LAUNCH_EVERY if launch_every is None else launch_every
        self.memory = None  # SubClusterMemory, in warm-up
        moves = ("sweep", "sub_cluster_split")
        self.counts = {move: np.zeros(2, dtype=np.int64) for move in moves}

    def acceptance(self):
        counts = {**self.counts, **self.random_moves.counts, **self.launched_moves.counts}
        del counts["sub_cluster_split"]  # in warm-up only
        return {move: values.copy() for move, values in counts.items()}

    def get_adaptation(self):
        return {} if self.memory is None else {"memory": self.memory}

    def set_adaptation(self, adaptation):
        memory = adaptation.get("memory")
        self.memory = None if memory is None else memory.copy()

    def step(self, state, rng, key, adapting=0.0):
        finding = self.sub_splits and adapting > EXACT_SHARE
        self._pass_and_move(state, rng, key, finding)
        if finding:
            sub_clusters.merge_close_clusters(state, self.memory, CLEAR_GAIN * adapting, rng)
        elif key[-1] % (EXACT_EVERY if adapting else self.launch_every) == 0:
            self.launched_moves.make(state, rng, key)

    def _pass_and_move(self, state, rng, key, finding):
        """Draw all labels, then propose random moves and, if `finding`, sub-cluster splits."""
        if not finding:
            self.memory = None
        elif self.memory is None:
            self.memory = sub_clusters.SubClusterMemory.start(state.n_slots)
        moves = self.random_moves.draw(state, rng)
        evaluated = self._pass(state, rng, key, moves)
        changed = self.random_moves.make(state, key, moves, evaluated, self.memory)
        if finding:
            if changed:
                self.memory.follow(sub_clusters.sub_cluster_gains(state))
            self.counts["sub_cluster_split"] += sub_clusters.split_into_sub_clusters(
                state, self.memory, self._ready(), rng
            )

    def _ready(self):
        """Return the clusters whose sub-clusters may be split off: (n_slots,), bool."""
        return self.memory.ready

    def _pass(self, state, rng, key, moves):
        """Draw labels and collect statistics, also those of the random splits among `moves`, which
        are returned as `RandomMoves.make` takes them.

        Rows with known labels are drawn one by one, then all others at once, among clusters in
        use. A cluster that loses all its rows would be lost, and the posterior would not be
        invariant (as in the published sampler). Instead the rows of such clusters stay, and if
        that empties other clusters, theirs do as well, until no cluster is empty. The way back is
        equally probable: let the rows that stayed draw the same, and the others their previous
        clusters; then the same clusters are emptied, in the same order, and their rows stay.
        """
        if not self.sweep:
            return {}
        n_slots = state.n_slots
        trials = moves.trials(n_slots)
        sweep = self._parameters(state, state.totals(), rng)
        state.draw_known(sweep, rng)
        held = np.empty(0, dtype=np.intp)
        while True:
            codes, collected = state.run_task(key, sweep, trials, held)
            sizes = collected.stats[: 2 * n_slots, 0].reshape(-1, 2).sum(axis=1)
            emptied = np.flatnonzero(sizes == 0)
            if len(emptied) == 0:
                break
            if np.isin(emptied, held).any():
                raise RuntimeError(f"clusters {emptied} have no rows that could stay")
            held = np.append(held, emptied)
        self.counts["sweep"] += 1, len(held) == 0
        state.accept(codes, collected)
        if self.memory is not None:
            self.memory.observe(sub_clusters.sub_cluster_gains(state), state.stats[:, 0] == 0)
        parts = [collected[first : first + 4] for first in range(2 * n_slots, len(collected), 4)]
        return {
            trial.stream_number: (trial, four) for trial, four in zip(trials, parts, strict=True)
        }

    def _parameters(self, state, totals, rng):
        """Draw weights and parameters of clusters and sub-clusters given the labels: eqs. 7, 8,
        13 and 14, for any of the partition priors."""
        sizes = totals[:, 0]
        params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
        log_weights, of_noise = draw_log_weights(state, state.prior.weight_parameters(sizes), rng)
        if self.memory is None:
            return Sweep(params, log_weights, log_noise_weight=of_noise)
        fresh = np.repeat(self.memory.fresh, 2)
        stats = np.where(fresh[:, None], np.repeat(totals, 2, axis=0), state.stats)
        powers = np.where(fresh, np.minimum(N_FRESH_ROWS / np.repeat(sizes, 2), 1.0), 1.0)
        sub_params = state.parametric.draw(stats, powers, rng.bit_generator)
        sub_log_weights = log_gamma_variates(state.stats[:, 0] + 0.5 * proposal_alpha(state), rng)
        sub_log_weights[fresh] = 0.0
        return Sweep(params, log_weights, sub_params, sub_log_weights, of_noise)
