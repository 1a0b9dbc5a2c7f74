# SPDX-License-Identifier: BSD-3-Clause
"""Moves of the warm-up, which are not exact: splits into sub-clusters (Chang & Fisher 2013) and
merges of close clusters."""

from dataclasses import dataclass, fields

import numpy as np

from skdpm._validation import refuse_nan

# Sub-clusters that have not gained for this many passes start anew.
MOST_IDLE = 20

# Number of nearest clusters that each cluster is paired with for merges.
N_NEAR = 4


def split_into_sub_clusters(state, memory, ready, rng):
    """Propose to split those clusters that are `ready` into their sub-clusters, by the ratio of
    Chang & Fisher's eq. 21 with the prior's ratio in place of alpha and the Gamma functions.
    Returns the numbers of proposed and accepted splits."""
    both = (state.stats[:, 0] > 0).reshape(-1, 2).all(axis=1)
    candidates = np.flatnonzero(both & ~memory.fresh & ready)
    table = np.arange(2 * state.n_slots, dtype=np.int32)
    n_clusters = state.n_slots
    for k in candidates:
        left, right = state.stats[2 * k : 2 * k + 2, 0]
        log_ratio = memory.gain[k] + state.prior.log_split(n_clusters, left, right)
        refuse_nan(log_ratio, f"the log ratio of the sub-cluster split of cluster {k}")
        if not np.log1p(-rng.random()) < log_ratio:
            continue
        # Each side becomes the left sub-cluster of its cluster.
        table[2 * k + 1] = 2 * n_clusters
        n_clusters += 1
        memory.append(k)
        memory.renew(k)
        memory.renew(-1)
    n_accepted = n_clusters - state.n_slots
    if n_accepted:
        state.relabel(table, n_clusters)
    return len(candidates), n_accepted


def merge_close_clusters(state, memory, margin, rng):
    """Merge disjoint pairs of close clusters, the pair that gains most first, while the partition
    becomes more likely by more than `margin` for each row of the smaller cluster.

    All pairs are merged in one change of the labels: a change visits all rows.
    """
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
        if free[pairs[p]].all() and state.may_join(*pairs[p]):
            free[pairs[p]] = False
            chosen.append(tuple(pairs[p]))
    if chosen:
        kept = state.join_clusters(chosen)
        memory.take(kept)
        for k in np.flatnonzero(~free[kept]):
            memory.renew(k)


def close_pairs(state, totals, rng):
    """Pair each cluster with the N_NEAR nearest ones by the divergence of drawn parameters:
    ndarray of shape (n_pairs, 2)."""
    params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
    divergences = np.nan_to_num(state.likelihood.divergences(params), nan=np.inf)
    np.fill_diagonal(divergences, np.inf)
    n_near = min(N_NEAR, len(totals) - 1)
    near = np.argpartition(divergences, n_near - 1, axis=1)[:, :n_near]
    pairs = np.stack([np.repeat(np.arange(len(totals)), n_near), near.ravel()], axis=1)
    return np.unique(np.sort(pairs, axis=1), axis=0)


def sub_cluster_gains(state):
    """Log marginal likelihood of each cluster's sub-clusters minus its own: (n_slots,)."""
    log_m = state.model.log_marginals(np.concatenate([state.stats, state.totals()]))
    n = 2 * state.n_slots
    gains = log_m[:n].reshape(-1, 2).sum(axis=1) - log_m[n:]
    for k in np.flatnonzero(np.isnan(gains)):
        refuse_nan(gains[k], f"the log ratio of the sub-cluster split of cluster {k}")
    return gains


@dataclass(slots=True)
class SubClusterMemory:
    """History of sub-clusters over the passes, one entry per cluster.

    The gain of sub-clusters over their cluster, in log marginal likelihood, rises until they have
    burned in. Sub-clusters start anew if they have not gained for long without being split off, or
    if one of them has lost all its rows.
    """

    fresh: np.ndarray  # whether the sub-clusters have no rows yet
    ready: np.ndarray  # whether they have burned in
    gain: np.ndarray  # log marginal likelihood beyond the cluster's
    best: np.ndarray  # the largest gain so far
    idle: np.ndarray  # passes since then

    @classmethod
    def start(cls, n_clusters):
        """Make the memory of n_clusters clusters whose sub-clusters start."""
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
        """Keep the entries of the given clusters, in their order."""
        for name in self._names():
            setattr(self, name, getattr(self, name)[clusters])

    def append(self, k):
        """Add a last cluster with a copy of the entry of cluster k."""
        self.take(np.append(np.arange(len(self)), k))

    def renew(self, k):
        """Start the sub-clusters of cluster k anew."""
        new = SubClusterMemory.start(1)
        for name in self._names():
            getattr(self, name)[k] = getattr(new, name)[0]

    def observe(self, gain, is_empty):
        """Update all entries after a pass, given the gains and whether sub-clusters are empty,
        (2 n_clusters,)."""
        # Sub-clusters that are clear no longer change, and neither does their gain.
        self.ready |= ~self.fresh & (gain <= self.gain)
        self.idle = np.where(gain > self.best, 0, self.idle + 1)
        self.best = np.maximum(gain, self.best)
        self.gain = gain
        self.fresh = is_empty.reshape(-1, 2).any(axis=1)
        for k in np.flatnonzero(self.fresh | (self.idle > MOST_IDLE)):
            self.renew(k)

    def follow(self, gain):
        """Update the gains of clusters that random moves have changed."""
        changed = ~self.fresh & (gain != self.gain)
        self.gain[changed] = self.best[changed] = gain[changed]
        self.idle[changed] = 0

    def _names(self):
        return [field.name for field in fields(self)]
