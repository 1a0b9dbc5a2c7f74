# SPDX-License-Identifier: BSD-3-Clause
"""Sub-cluster splits and random splits and merges, over rows visited in blocks."""

import numpy as np
from scipy.sparse.csgraph import connected_components
from scipy.special import gammaln

from skdpm._validation import check_bool, check_integer
from skdpm.mixture.samplers.base import BlockSampler, log_gamma_variates

# Random splits and merges per iteration, and the share of splits among them. A merge costs no
# visit to the rows, and as a pair is drawn blindly it takes many to find one that should merge.
N_RANDOM_MOVES = 10
SPLIT_SHARE = 0.1

# Sub-clusters start from parameters drawn as if their cluster had this many rows: as far apart as
# its rows are. (From random labels both would have nearly the same, and take long to part.)
N_FRESH_ROWS = 1

# Sub-clusters that have not gained for this many passes start anew.
MOST_IDLE = 20


# No sub-cluster of fewer rows becomes a cluster. Nothing undoes such splits but the random merges,
# which cannot keep up where many small clusters are to be had; random splits make small ones.
SMALLEST_SIDE = 10


class SubCluster(BlockSampler):
    """Sub-cluster splits (Chang & Fisher 2013): parallel, for many rows.

    An iteration draws the weights and parameters of clusters, then all labels in one pass over
    the rows, each independent of the others. Every cluster has two sub-clusters, fitted in the
    same pass, which a split of it would make into clusters. Random splits and merges are proposed
    besides.

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
        paper's approximate variant), which finds clusters sooner.
    block_size : int, default=65536
        Most rows in a block, which is visited by one thread, on one random stream. Results
        depend on it, but not on `n_jobs`.

    Notes
    -----
    What is exact. The pass over the rows leaves the posterior invariant: as only clusters in use
    are drawn from, the rows of a cluster that would lose all of them stay where they are, which
    takes a second pass (the published sampler has no such rule, and is not invariant). So do the
    random splits and merges, and super-clusters, which depend on the parameters alone.

    `acceptance_rate_` has the share of iterations in which no row was held back ("sweep") and of
    the proposed "sub_cluster_split", "random_split" and "random_merge" that were accepted.

    What is not. A split into sub-clusters is accepted by the ratio of eq. 21, but its reverse is
    never proposed, as in the paper: chains have somewhat too many clusters. With many rows the
    difference vanishes beside the likelihood. Sub-clusters of fewer than 10 rows are not split
    off, so that with few rows nothing inexact is left. (On an enumerated posterior of five rows
    and with splits of any size, as published, the total variation between it and the chain's law
    is about 0.16 in the long run, and 0.37 with ``wait=False``, with 2.9 and 3.4 clusters on
    average where the posterior has 2.6; super-clusters change neither.)

    What to expect. Clusters are found one split after another: the log joint rises in steps, with
    plateaus of some dozens of iterations between. The ratio of eq. 21 compares two partitions;
    where clusters overlap much, that of any single partition into both is far below that of their
    union, and they stay united, though a held-out score may favour two. PGSM parts them.

    Any likelihood with the capability "instantiated" will do, and any partition prior with the
    capability "weights": all but mixtures of finite mixtures.

    References
    ----------
    Chang & Fisher (2013), Parallel sampling of DP mixture models using sub-cluster splits.
    """

    def __init__(self, super_clusters=False, wait=True, block_size=65536):
        self.super_clusters = super_clusters
        self.wait = wait
        self.block_size = block_size

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
        if "weights" not in prior.capabilities:
            raise ValueError(
                "SubCluster draws the weights of clusters, whose law under "
                f"{type(prior).__name__} is not Dirichlet: choose a sampler that needs no "
                "weights, such as Gibbs or PGSM, or with FiniteMixture fix n_components"
            )


class SubClusterKernel:
    """One iteration of `SubCluster` on a `BlockState`.

    The three parts can be left out one by one, so that each can be tested on its own: the pass
    over the rows (`sweep`), `n_random_moves` random splits and merges, and `sub_splits`.
    """

    def __init__(
        self,
        super_clusters=False,
        wait=True,
        sweep=True,
        n_random_moves=N_RANDOM_MOVES,
        sub_splits=True,
    ):
        self.super_clusters = super_clusters
        self.wait = wait
        self.sweep = sweep
        self.n_random_moves = n_random_moves
        self.sub_splits = sub_splits
        self.counts = {
            move: np.zeros(2, dtype=np.int64)
            for move in ("sweep", "sub_cluster_split", "random_split", "random_merge")
        }

    def n_slots(self, prior, n_clusters):
        """Clusters that a chain starts with, empty ones included."""
        return n_clusters

    def acceptance(self):
        """Moves proposed and accepted so far, by name."""
        return {move: counts.copy() for move, counts in self.counts.items()}

    def step(self, state, rng, key):
        """Advance the state; `rng` decides what concerns clusters, `key` names the streams of the
        rows."""
        if not state.memory:
            state.memory = _fresh_memory(state.n_slots)
        moves = [
            _RandomMove(rng, _alpha(state), number) for number in range(1, 1 + self.n_random_moves)
        ]
        halves = self._pass(state, rng, key, moves)
        self._move(state, key, moves, halves)
        if self.sub_splits:
            self._split(state, rng)

    # The pass over the rows.

    def _pass(self, state, rng, key, moves):
        """Draw labels and collect statistics, those of the random splits to come as well. Returns
        these by the number of the move.

        Only clusters in use are drawn from, so one that loses all its rows would be lost, and the
        posterior is not invariant (the published sampler). Instead the rows of such clusters stay,
        and if that empties others, so do theirs, until no cluster is empty. From where this leads,
        the way back is as probable: let the rows that stayed draw the same, and the others what
        they were; then the same clusters are emptied, in the same order, and their rows stay.
        """
        if not self.sweep:
            return {}
        splits = [move for move in moves if move.is_split]
        clusters = [move.cluster(state.n_slots) for move in splits]
        shares = [(cluster, move.share) for cluster, move in zip(clusters, splits, strict=True)]
        totals = state.totals()
        n = 2 * state.n_slots
        sweep = self._parameters(state, totals, rng)
        held = np.empty(0, dtype=np.intp)
        while True:
            codes, stats, firsts = state.visit(
                key,
                sweep,
                shares,
                [move.number for move in splits],
                held,
            )
            emptied = np.flatnonzero(stats[0:n:2, 0] + stats[1:n:2, 0] == 0)
            if len(emptied) == 0:
                break
            if np.isin(emptied, held).any():
                raise RuntimeError(f"clusters {emptied} have no rows that could stay")
            held = np.append(held, emptied)
        self.counts["sweep"] += 1, len(held) == 0
        state.codes, state.stats, state.firsts = codes, stats[:n], firsts[:n]
        self._observe(state)
        return {
            move.number: (cluster, stats[n + 4 * j :][:4], firsts[n + 4 * j :][:4])
            for j, (cluster, move) in enumerate(zip(clusters, splits, strict=True))
        }

    def _parameters(self, state, totals, rng):
        """Weights and parameters of clusters and sub-clusters, given the labels: eqs. 7, 8, 13
        and 14, for any of the partition priors."""
        n_slots = state.n_slots
        sizes = totals[:, 0]
        params = state.parametric.draw(totals, np.ones(n_slots), rng.bit_generator)
        log_weights = log_gamma_variates(state.prior.weight_parameters(sizes)[:-1], rng)
        groups = None
        if self.super_clusters:
            groups = _super_clusters(state.likelihood.divergences(params), rng)
        sub_params = sub_log_weights = None
        if self.sub_splits:
            fresh = np.repeat(state.memory["fresh"], 2)
            sub_stats = np.where(fresh[:, None], np.repeat(totals, 2, axis=0), state.stats)
            powers = np.where(fresh, np.minimum(N_FRESH_ROWS / np.repeat(sizes, 2), 1.0), 1.0)
            sub_params = state.parametric.draw(sub_stats, powers, rng.bit_generator)
            sub_log_weights = log_gamma_variates(state.stats[:, 0] + 0.5 * _alpha(state), rng)
            sub_log_weights[fresh] = 0.0
        return {
            "params": params,
            "log_weights": log_weights,
            "groups": groups,
            "sub_params": sub_params,
            "sub_log_weights": sub_log_weights,
        }

    def _observe(self, state):
        """Have sub-clusters burned in? What they gain over their cluster, in marginal likelihood,
        rises until they have. Those that gain no more, and are not accepted, start anew, as do
        those of which one has lost all its rows."""
        if not self.sub_splits:
            return
        memory = state.memory
        gain = _gains(state)
        # Where sub-clusters are clear their labels, and the gain, no longer change.
        memory["ready"] |= ~memory["fresh"] & (gain <= memory["gain"])
        memory["idle"] = np.where(gain > memory["best"], 0, memory["idle"] + 1)
        memory["best"] = np.maximum(gain, memory["best"])
        memory["gain"] = gain
        memory["fresh"] = (state.stats[:, 0] == 0).reshape(-1, 2).any(axis=1)
        for k in np.flatnonzero(memory["fresh"] | (memory["idle"] > MOST_IDLE)):
            renew(memory, k)

    def _observe_again(self, state):
        """What the sub-clusters gain of clusters that random splits and merges have changed."""
        memory = state.memory
        gain = _gains(state)
        changed = ~memory["fresh"] & (gain != memory["gain"])
        memory["gain"][changed] = memory["best"][changed] = gain[changed]
        memory["idle"][changed] = 0

    # Random splits and merges.

    def _move(self, state, key, moves, halves):
        """Random splits and merges, in turn: exact. The paper leaves them to its supplement.
        `halves` are the sides of splits, until a move changes the clusters."""
        changed = False
        for move in moves:
            n_slots = state.n_slots
            if move.is_split:
                if move.number not in halves:
                    cluster = move.cluster(n_slots)
                    _, stats, firsts = state.visit(
                        key, None, [(cluster, move.share)], [move.number]
                    )
                    halves = {move.number: (cluster, stats[2 * n_slots :], firsts[2 * n_slots :])}
                accepted = self._random_split(state, key, move, *halves[move.number])
            else:
                accepted = n_slots > 1 and self._random_merge(state, move)
            if accepted:
                changed = True
                halves = {}
        if changed and self.sub_splits:
            self._observe_again(state)

    def _random_split(self, state, key, move, cluster, parts, firsts):
        self.counts["random_split"][0] += 1
        halves = state.parametric.combined(parts[0::2], parts[1::2])
        first, second = halves[:, 0]
        if first == 0 or second == 0:
            return False
        total = state.totals([cluster])
        log_m = state.model.log_marginals(np.concatenate([halves, total]))
        log_ratio = log_m[0] + log_m[1] - log_m[2]
        log_ratio += self._log_move_ratio(state, state.n_slots, first, second)
        if not move.log_u < log_ratio:
            return False
        self.counts["random_split"][1] += 1
        state.change((cluster, state.n_slots, move.share, key, move.number))
        state.append_cluster(cluster, parts, firsts, state.memory_of(cluster))
        return True

    def _random_merge(self, state, move):
        self.counts["random_merge"][0] += 1
        kept, gone = move.pair(state.n_slots)
        pair = state.totals([kept, gone])
        both = state.parametric.combined(pair[:1], pair[1:])
        log_m = state.model.log_marginals(np.concatenate([pair, both]))
        log_ratio = log_m[0] + log_m[1] - log_m[2]
        log_ratio += self._log_move_ratio(state, state.n_slots - 1, *pair[:, 0])
        if not move.log_u < -log_ratio:
            return False
        self.counts["random_merge"][1] += 1
        state.merge_clusters(kept, gone)
        return True

    def _log_move_ratio(self, state, n_clusters, left, right):
        """log of the ratio of a split's acceptance without the marginal likelihoods: prior,
        the merge's probability and the split's."""
        half = 0.5 * _alpha(state)
        log_allocation = (
            gammaln(2 * half)
            + gammaln(half + left)
            + gammaln(half + right)
            - gammaln(2 * half + left + right)
            - 2 * gammaln(half)
        )
        log_merge = np.log1p(-SPLIT_SHARE) - np.log(n_clusters * (n_clusters + 1) / 2)
        # Two labellings of the sides give one partition.
        log_split = np.log(SPLIT_SHARE) - np.log(n_clusters) + np.log(2) + log_allocation
        return state.prior.log_split(n_clusters, left, right) + log_merge - log_split

    # Splits into sub-clusters.

    def _split(self, state, rng):
        """Propose to split each cluster into its sub-clusters: eq. 21, with the prior's own ratio
        in place of alpha and the Gamma functions."""
        memory = state.memory
        both = (state.stats[:, 0] >= SMALLEST_SIDE).reshape(-1, 2).all(axis=1)
        candidates = both & ~memory["fresh"] & (memory["ready"] | (not self.wait))
        for k in np.flatnonzero(candidates):
            left, right = state.stats[2 * k : 2 * k + 2, 0]
            log_ratio = memory["gain"][k] + state.prior.log_split(state.n_slots, left, right)
            self.counts["sub_cluster_split"][0] += 1
            if not np.log1p(-rng.random()) < log_ratio:
                continue
            self.counts["sub_cluster_split"][1] += 1
            table = np.arange(2 * state.n_slots, dtype=np.int32)
            table[2 * k + 1] = 2 * state.n_slots
            state.change(table)
            sides = np.zeros((4, state.stats.shape[1]))
            sides[0::2] = state.stats[2 * k : 2 * k + 2]
            firsts = np.full(4, -1)
            firsts[0::2] = state.firsts[2 * k : 2 * k + 2]
            state.append_cluster(k, sides, firsts, _fresh_memory(1))


class _RandomMove:
    """What a random split or merge draws beforehand, whatever the clusters will be."""

    def __init__(self, rng, alpha, number):
        self.number = number  # of its random stream over the rows
        self.is_split = rng.random() < SPLIT_SHARE
        self.log_u = np.log1p(-rng.random())
        self.u = rng.random(2)
        self.share = rng.beta(0.5 * alpha, 0.5 * alpha) if self.is_split else None

    def cluster(self, n_clusters):
        return int(self.u[0] * n_clusters)

    def pair(self, n_clusters):
        """Two different clusters, the lower one first."""
        one = int(self.u[0] * n_clusters)
        other = int(self.u[1] * (n_clusters - 1))
        other += other >= one
        return min(one, other), max(one, other)


def _alpha(state):
    """The paper's alpha where it only shapes proposals: a Pitman-Yor concentration may not be
    positive."""
    return state.prior.concentration if state.prior.concentration > 0 else 1.0


def _super_clusters(divergences, rng):
    """Groups of clusters, numbered from 0: the connected components of a graph in which each
    cluster has one neighbour, another one, drawn with probability proportional to
    exp(-divergence).

    The paper's sum includes the cluster itself, at divergence 0: of clusters that are apart nearly
    all would then stand alone, and no row could leave one.
    """
    n_clusters = len(divergences)
    if n_clusters == 1:
        return np.zeros(1, dtype=np.intp)
    others = np.minimum(divergences, np.finfo(np.float64).max)
    np.fill_diagonal(others, np.inf)
    # Relative to the nearest, as all may be far away.
    affinities = np.cumsum(np.exp(others.min(axis=1, keepdims=True) - others), axis=1)
    u = rng.random((n_clusters, 1)) * affinities[:, -1:]
    neighbours = (u >= affinities).sum(axis=1)
    graph = np.zeros((n_clusters, n_clusters), dtype=bool)
    graph[np.arange(n_clusters), neighbours] = True
    return connected_components(graph, directed=False)[1].astype(np.intp)


def _gains(state):
    """What the sub-clusters of each cluster have beyond it in log marginal likelihood."""
    log_m = state.model.log_marginals(np.concatenate([state.stats, state.totals()]))
    n = 2 * state.n_slots
    return log_m[:n].reshape(-1, 2).sum(axis=1) - log_m[n:]


def _fresh_memory(n_slots):
    """What is remembered of sub-clusters, an entry per cluster."""
    return {
        "fresh": np.ones(n_slots, dtype=bool),  # without rows of their own so far
        "ready": np.zeros(n_slots, dtype=bool),  # burned in
        "gain": np.full(n_slots, -np.inf),  # log marginal likelihood beyond the cluster's
        "best": np.full(n_slots, -np.inf),  # the largest gain so far
        "idle": np.zeros(n_slots, dtype=np.intp),  # passes since then
    }


def renew(memory, k):
    """Let the sub-clusters of cluster k start anew."""
    for name, value in _fresh_memory(1).items():
        memory[name][k] = value[0]
