# SPDX-License-Identifier: BSD-3-Clause
"""Sub-cluster splits, launched and random splits and merges, over rows visited in blocks."""

from dataclasses import dataclass, fields

import numpy as np

from skdpm._validation import check_bool, check_integer, refuse_nan
from skdpm.mixture.blocks.kernel import BlockKernel, log_gamma_variates
from skdpm.mixture.blocks.launched_moves import N_FRESH_ROWS, LaunchedMoves
from skdpm.mixture.blocks.random_moves import RandomMoves, proposal_alpha
from skdpm.mixture.blocks.records import Sweep
from skdpm.mixture.blocks.super_clusters import draw_super_clusters
from skdpm.mixture.samplers.base import BlockSampler

# Sub-clusters that have not gained for this many passes start anew.
MOST_IDLE = 20

# Of many columns, where samplers that visit rows one after the other would take many minutes.
MANY_ROWS = 20_000


# In the last part of the warm-up all is exact.
EXACT_SHARE = 0.5

# Launched moves take several passes over some of the rows: they are made after so many iterations
# of the draws, and of the last part of the warm-up.
LAUNCH_EVERY = 10
EXACT_EVERY = 3

# In warm-up, so many clusters that are near to each are looked at for merges.
N_NEAR = 4


# In warm-up, what a merge must gain at first for each row of the smaller cluster: halves of one
# cluster gain twice as much, neighbours less, though while they have rows of each other more than
# nothing.
CLEAR_GAIN = 0.5


class SubCluster(BlockSampler):
    """Sub-cluster splits (Chang & Fisher 2013): parallel, for many rows.

    An iteration draws the weights and parameters of clusters, then all labels in one pass over
    the rows, each independent of the others. In the first half of the warm-up every cluster has
    two sub-clusters, fitted in the same pass, which a split of it makes into clusters, and close
    clusters are merged. From then on splits and merges are exact.

    Parameters
    ----------
    super_clusters : bool, default=False
        Restrict each row to the clusters of its super-cluster, a group of similar clusters that
        is drawn anew in every iteration (their Algorithm 1, with the J-divergence, except that no
        cluster is its own neighbour). The passes are faster with many clusters; not possible with
        Dask arrays.
    wait : bool, default=True
        Wait with the split of a cluster until its sub-clusters have burned in: until their
        marginal likelihood rises no more. False: propose one in every iteration (the
        paper's approximate variant). Of the warm-up alone.
    block_size : int, default=65536
        Most rows in a block, which is visited by one thread, on one random stream. Results
        depend on it, but not on `n_jobs`.

    Notes
    -----
    What is exact: the draws, and the second half of the warm-up. The pass over the rows leaves the
    posterior invariant: as only clusters in use are drawn from, the rows of a cluster that would
    lose all of them stay where they are, which takes a second pass (the published sampler has no
    such rule, and is not invariant). So do random splits and merges, super-clusters, which depend
    on the parameters alone, and launched splits and merges, in every tenth iteration: a split is
    drawn row by row under parameters that are fitted to all rows of a cluster, and a merge of two
    close clusters is accepted by how probable the split that undoes it is (Jain & Neal 2004, for
    rows in blocks).

    What is not: the first half of the warm-up. Chains look for clusters in a sample of 20,000
    rows, as those of ``init="auto"`` do before they start, and go to them where they are more
    likely. Splits into sub-clusters are accepted by the ratio of eq. 21, whose reverse is never
    proposed, and close clusters are merged where that raises the log joint. Without a warm-up
    nothing of this is done.

    What to expect. Two clusters that overlap much have very many partitions, each far less
    probable than that of their union: launched splits may part them, and the log joint falls.
    Where clusters have many rows few launched moves are accepted, most of all merges.

    `acceptance_rate_` has the share of iterations in which no row was held back ("sweep") and of
    the proposed "random_split", "random_merge", "launched_split" and "launched_merge" that were
    accepted.

    Any likelihood with the capability "instantiated" will do, and any partition prior with the
    capability "weights": all but mixtures of finite mixtures.

    References
    ----------
    Chang & Fisher (2013), Parallel sampling of DP mixture models using sub-cluster splits.
    Jain & Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
    mixture model.
    """

    def __init__(self, super_clusters=False, wait=True, block_size=65536):
        self.super_clusters = super_clusters
        self.wait = wait
        self.block_size = block_size

    @classmethod
    def automatic(cls, likelihood, n_samples, make_prior):
        if not likelihood.many_columns or n_samples < MANY_ROWS:
            return None
        return cls() if cls.suits(make_prior(n_samples)) else None

    @staticmethod
    def suits(prior):
        """Whether the prior has the weights that are drawn."""
        return "weights" in prior.capabilities

    @property
    def needs_labels(self):
        return bool(self.super_clusters)

    def kernel(self):
        check_integer(self.block_size, "SubCluster.block_size", low=1)
        return SubClusterKernel(
            check_bool(self.super_clusters, "SubCluster.super_clusters"),
            check_bool(self.wait, "SubCluster.wait"),
        )

    def check_prior(self, prior):
        if not self.suits(prior):
            raise ValueError(
                "SubCluster draws the weights of clusters, whose law under "
                f"{type(prior).__name__} is not Dirichlet: choose a sampler that needs no "
                "weights, such as Gibbs or PGSM, or with FiniteMixture fix n_components"
            )


class SubClusterKernel(BlockKernel):
    """One iteration of `SubCluster` on a `BlockState`.

    The three parts can be left out one by one, so that each can be tested on its own.

    Parameters
    ----------
    super_clusters, wait : bool
        See `SubCluster`.
    sweep : bool, default=True
        Whether to pass over the rows.
    random_moves : RandomMoves or None
        None: of the usual number.
    sub_splits : bool, default=True
        Whether there are sub-clusters in warm-up, and splits into them, and merges.
    launched_moves : LaunchedMoves or None
        None: of the usual number.
    launch_every : int or None
        Iterations from one time that these are made, after warm-up, to the next. None: the usual
        number.
    """

    looks_around = True

    def __init__(
        self,
        super_clusters=False,
        wait=True,
        sweep=True,
        random_moves=None,
        sub_splits=True,
        launched_moves=None,
        launch_every=None,
    ):
        self.super_clusters = super_clusters
        self.wait = wait
        self.sweep = sweep
        self.random_moves = RandomMoves() if random_moves is None else random_moves
        self.sub_splits = sub_splits
        self.launched_moves = LaunchedMoves() if launched_moves is None else launched_moves
        self.launch_every = LAUNCH_EVERY if launch_every is None else launch_every
        self.memory = None  # SubClusterMemory, in warm-up
        self.counts = {
            move: np.zeros(2, dtype=np.int64) for move in ("sweep", "sub_cluster_split")
        }

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
        if not finding:
            self.memory = None
        elif self.memory is None:
            self.memory = SubClusterMemory.start(state.n_slots)
        moves = self.random_moves.draw(state, rng)
        looked_at = self._pass(state, rng, key, moves)
        changed = self.random_moves.make(state, key, moves, looked_at, self.memory)
        if finding:
            if changed:
                self.memory.follow(_gains(state))
            self._split(state, rng)
            self._merge(state, rng, CLEAR_GAIN * adapting)
        elif key[-1] % (EXACT_EVERY if adapting else self.launch_every) == 0:
            self.launched_moves.make(state, rng, key)

    # The pass over the rows.

    def _pass(self, state, rng, key, moves):
        """Draw labels and collect statistics, those of the random splits to come as well. Returns
        these as `RandomMoves.make` wants them.

        Only clusters in use are drawn from, so one that loses all its rows would be lost, and the
        posterior is not invariant (the published sampler). Instead the rows of such clusters stay,
        and if that empties others, so do theirs, until no cluster is empty. From where this leads,
        the way back is as probable: let the rows that stayed draw the same, and the others what
        they were; then the same clusters are emptied, in the same order, and their rows stay.
        """
        if not self.sweep:
            return {}
        n_slots = state.n_slots
        trials = [move.trial(n_slots) for move in moves if move.is_split]
        sweep = self._parameters(state, state.totals(), rng)
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
        state.codes, state.collected = codes, collected[: 2 * n_slots]
        if self.memory is not None:
            self.memory.observe(_gains(state), state.stats[:, 0] == 0)
        parts = [collected[first : first + 4] for first in range(2 * n_slots, len(collected), 4)]
        return {
            trial.stream_number: (trial, four) for trial, four in zip(trials, parts, strict=True)
        }

    def _parameters(self, state, totals, rng):
        """Draw weights and parameters of clusters and sub-clusters, given the labels: eqs. 7, 8,
        13 and 14, for any of the partition priors."""
        sizes = totals[:, 0]
        params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
        log_weights = log_gamma_variates(state.prior.weight_parameters(sizes)[:-1], rng)
        groups = None
        if self.super_clusters:
            groups = draw_super_clusters(state.likelihood.divergences(params), rng)
        if self.memory is None:
            return Sweep(params, log_weights, groups)
        fresh = np.repeat(self.memory.fresh, 2)
        stats = np.where(fresh[:, None], np.repeat(totals, 2, axis=0), state.stats)
        powers = np.where(fresh, np.minimum(N_FRESH_ROWS / np.repeat(sizes, 2), 1.0), 1.0)
        sub_params = state.parametric.draw(stats, powers, rng.bit_generator)
        sub_log_weights = log_gamma_variates(state.stats[:, 0] + 0.5 * proposal_alpha(state), rng)
        sub_log_weights[fresh] = 0.0
        return Sweep(params, log_weights, groups, sub_params, sub_log_weights)

    # Splits into sub-clusters.

    def _split(self, state, rng):
        """Propose to split each cluster into its sub-clusters: eq. 21, with the prior's own ratio
        in place of alpha and the Gamma functions."""
        memory = self.memory
        both = (state.stats[:, 0] > 0).reshape(-1, 2).all(axis=1)
        candidates = both & ~memory.fresh & (memory.ready | (not self.wait))
        table = np.arange(2 * state.n_slots, dtype=np.int32)
        n_clusters = state.n_slots
        for k in np.flatnonzero(candidates):
            left, right = state.stats[2 * k : 2 * k + 2, 0]
            log_ratio = memory.gain[k] + state.prior.log_split(n_clusters, left, right)
            refuse_nan(log_ratio, f"the log ratio of the sub-cluster split of cluster {k}")
            self.counts["sub_cluster_split"][0] += 1
            if not np.log1p(-rng.random()) < log_ratio:
                continue
            self.counts["sub_cluster_split"][1] += 1
            # Each becomes the left sub-cluster of its cluster.
            table[2 * k + 1] = 2 * n_clusters
            n_clusters += 1
            memory.append(k)
            memory.renew(k)
            memory.renew(-1)
        if n_clusters > state.n_slots:
            state.relabel(table, n_clusters)

    # Merges of close clusters.

    def _merge(self, state, rng, margin):
        """Merge pairs of close clusters where that makes the partition more likely, by more than
        `margin` for each row of the smaller one: for the warm-up, as nothing undoes it by the same
        ratio."""
        K = state.n_slots
        if K == 1:
            return
        totals = state.totals()
        pairs = close_pairs(state, totals, rng)
        unions = state.parametric.combined(totals[pairs[:, 0]], totals[pairs[:, 1]])
        log_m = state.model.log_marginals(np.concatenate([totals, unions]))
        gains = log_m[K:] - log_m[pairs].sum(axis=1)
        for p, sizes in enumerate(totals[pairs, 0]):
            gains[p] -= state.prior.log_split(K - 1, *sizes) + margin * min(sizes)
        chosen, free = [], np.ones(K, dtype=bool)
        for p in np.argsort(-gains):
            if not gains[p] > 0:
                break
            if free[pairs[p]].all():
                free[pairs[p]] = False
                chosen.append(tuple(pairs[p]))
        if chosen:
            kept = state.join_clusters(chosen)
            self.memory.take(kept)
            for k in np.flatnonzero(~free[kept]):
                self.memory.renew(k)


def close_pairs(state, totals, rng):
    """Return each cluster with those that drawn parameters say are nearest: (n_pairs, 2)."""
    params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
    divergences = np.nan_to_num(state.likelihood.divergences(params), nan=np.inf)
    np.fill_diagonal(divergences, np.inf)
    n_near = min(N_NEAR, len(totals) - 1)
    near = np.argpartition(divergences, n_near - 1, axis=1)[:, :n_near]
    pairs = np.stack([np.repeat(np.arange(len(totals)), n_near), near.ravel()], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def _gains(state):
    """Compute what the sub-clusters of each cluster have beyond it in log marginal likelihood."""
    log_m = state.model.log_marginals(np.concatenate([state.stats, state.totals()]))
    n = 2 * state.n_slots
    gains = log_m[:n].reshape(-1, 2).sum(axis=1) - log_m[n:]
    for k in np.flatnonzero(np.isnan(gains)):
        refuse_nan(gains[k], f"the log ratio of the sub-cluster split of cluster {k}")
    return gains


@dataclass(slots=True)
class SubClusterMemory:
    """What is remembered of sub-clusters, an entry per cluster.

    Have sub-clusters burned in? What they gain over their cluster, in marginal likelihood, rises
    until they have. Those that gain no more, and are not accepted, start anew, as do those of
    which one has lost all its rows.
    """

    fresh: np.ndarray  # without rows of their own so far
    ready: np.ndarray  # burned in
    gain: np.ndarray  # log marginal likelihood beyond the cluster's
    best: np.ndarray  # the largest gain so far
    idle: np.ndarray  # passes since then

    @classmethod
    def start(cls, n_clusters):
        """Make the memory of so many clusters whose sub-clusters are to start."""
        return cls(
            fresh=np.ones(n_clusters, dtype=bool),
            ready=np.zeros(n_clusters, dtype=bool),
            gain=np.full(n_clusters, -np.inf),
            best=np.full(n_clusters, -np.inf),
            idle=np.zeros(n_clusters, dtype=np.intp),
        )

    def __len__(self):
        return len(self.fresh)

    def copy(self):
        return SubClusterMemory(*(getattr(self, name).copy() for name in self._names()))

    def take(self, clusters):
        """Keep the entries of some clusters, in their order."""
        for name in self._names():
            setattr(self, name, getattr(self, name)[clusters])

    def append(self, k):
        """Give the entry of cluster k to a new one as well, the last."""
        self.take(np.append(np.arange(len(self)), k))

    def merge(self, gone):
        """Drop the entry of a cluster that has joined another; the last takes its place."""
        clusters = np.arange(len(self) - 1)
        clusters[gone : gone + 1] = len(self) - 1
        self.take(clusters)

    def renew(self, k):
        """Let the sub-clusters of cluster k start anew."""
        new = SubClusterMemory.start(1)
        for name in self._names():
            getattr(self, name)[k] = getattr(new, name)[0]

    def observe(self, gain, is_empty):
        """Look at the sub-clusters after a pass.

        Parameters
        ----------
        gain : ndarray of shape (n_clusters,)
        is_empty : ndarray of shape (2 n_clusters,), bool
            Of each sub-cluster.
        """
        # Where sub-clusters are clear their labels, and the gain, no longer change.
        self.ready |= ~self.fresh & (gain <= self.gain)
        self.idle = np.where(gain > self.best, 0, self.idle + 1)
        self.best = np.maximum(gain, self.best)
        self.gain = gain
        self.fresh = is_empty.reshape(-1, 2).any(axis=1)
        for k in np.flatnonzero(self.fresh | (self.idle > MOST_IDLE)):
            self.renew(k)

    def follow(self, gain):
        """Look again, after random moves have changed some clusters."""
        changed = ~self.fresh & (gain != self.gain)
        self.gain[changed] = self.best[changed] = gain[changed]
        self.idle[changed] = 0

    def _names(self):
        return [field.name for field in fields(self)]
