# SPDX-License-Identifier: BSD-3-Clause
"""Kernels of the automatic start: pieces of the items are merged greedily.

Merging clusters a and b of a partition into k clusters changes log p(partition, X) by

    log m(a + b) - log m(a) - log m(b)                                  (marginal likelihoods)
    + log (1 - sigma)_{n_a + n_b - 1} - the same of n_a and of n_b
    + log V_{n,k-1} - log V_{n,k},

see `priors/_base`. The first two lines are the *gain* of the pair. It does not change while other
clusters merge, so the gains are kept in a matrix, and a merge recomputes one row of it. The last
line is common to all pairs and decides when to stop. It is infinite if V_{n,k} is 0 (more clusters
than components); then the pair that loses least is merged.

If clusters are coupled, every merge changes all gains, and all are recomputed.
"""
from libc.float cimport DBL_MAX

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport expect_shape
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, as_indices, row
from skdpm.mixture.priors._base cimport PartitionPrior


cdef double own_terms(ClusterModel model, PartitionPrior prior, Py_ssize_t slot) noexcept nogil:
    """Contribution of a cluster to log p(partition, X)."""
    return model.log_marginal(slot) + log_rising(1.0 - prior.sigma, row(model, slot)[0] - 1.0)


def load_clusters(ClusterModel model, stats):
    """Load clusters into slots 0, ..., K - 1 and an empty one into K; all others are free."""
    model.load(stats, None, np.arange(model.n_slots - 1, len(stats), -1))


cdef class Merger:
    """Greedy merging of clusters, given by `stats`, (n_pieces, n_stats), in a kernel whose
    clusters are replaced. Cluster a is in slot a of the kernel."""
    cdef ClusterModel model
    cdef PartitionPrior prior
    cdef Py_ssize_t n_pieces, n_clusters
    cdef Py_ssize_t scratch             # an empty cluster's slot
    cdef double n_items
    cdef double[:, ::1] gains           # (n_pieces, n_pieces), symmetric
    cdef double[::1] own                # (n_pieces,)
    # (n_pieces,): best partner of each cluster among the clusters that are not newer. The best
    # pair of all is stored with its newer member.
    cdef Py_ssize_t[::1] partner
    cdef Py_ssize_t[::1] parent         # (n_pieces,): cluster it was merged into, or itself
    cdef Py_ssize_t[::1] merged         # (n_pieces,): merged clusters, in order

    def __init__(self, ClusterModel model, PartitionPrior prior, stats):
        self.model = model
        self.prior = prior
        self.n_pieces = self.n_clusters = self.scratch = len(stats)
        self.n_items = stats[:, 0].sum()
        load_clusters(model, stats)
        self.gains = np.full((self.n_pieces, self.n_pieces), -DBL_MAX)
        self.own = np.empty(self.n_pieces)
        self.parent = np.arange(self.n_pieces)
        self.merged, self.partner = np.empty((2, self.n_pieces), np.intp)
        with nogil:
            for a in range(self.n_pieces):
                self.own[a] = own_terms(model, prior, a)
                for b in range(a):
                    self.gains[a, b] = self.gains[b, a] = self.gain(a, b)
            for a in range(self.n_pieces):
                self.find_partner(a)

    cdef double gain(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """Gain of merging two clusters; NaN counts as no gain."""
        self.model.copy(self.scratch, a)
        self.model.merge(self.scratch, b)
        gain = own_terms(self.model, self.prior, self.scratch) - self.own[a] - self.own[b]
        return gain if gain > -DBL_MAX else -DBL_MAX

    cdef void find_partner(self, Py_ssize_t a) noexcept nogil:
        """Find the cluster with which a gains most, or a itself if there is no other."""
        self.partner[a] = a
        for b in range(self.n_pieces):
            if b != a and self.parent[b] == b:
                if self.partner[a] == a or self.gains[a, b] > self.gains[a, self.partner[a]]:
                    self.partner[a] = b

    cdef double top(self, Py_ssize_t a) noexcept nogil:
        return self.gains[a, self.partner[a]]

    cdef void merge(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil:
        """The items of b join a."""
        self.model.merge(a, b)
        self.parent[b] = a
        self.merged[self.n_pieces - self.n_clusters] = b
        self.n_clusters -= 1
        self.own[a] = own_terms(self.model, self.prior, a)
        for c in range(self.n_pieces):
            if c != a and self.parent[c] == c:
                self.gains[a, c] = self.gains[c, a] = self.gain(a, c)
        for c in range(self.n_pieces):
            if self.parent[c] != c:
                continue
            # A cluster that now gains more with a keeps its partner: the pair is stored with a.
            if c == a or self.partner[c] == a or self.partner[c] == b:
                self.find_partner(c)

    cdef void run(self) noexcept nogil:
        """Merge the pair that gains most until none gains."""
        while self.n_clusters > 1:
            best = -1
            for a in range(self.n_pieces):
                if self.parent[a] != a:
                    continue
                if best < 0 or self.top(a) > self.top(best):
                    best = a
            log_v_ratio = self.prior.log_new_weight(
                self.prior.concentration, <Py_ssize_t>self.n_items, self.n_clusters - 1
            )
            if not self.top(best) > log_v_ratio:
                return
            self.merge(best, self.partner[best])

    def merge_all(self):
        """Merge the pair that gains most until none gains. Returns the slots of clusters, (K,),
        and the position in these of the cluster of each piece, (n_pieces,)."""
        with nogil:
            self.run()
        return self.clusters_at(self.n_clusters)

    def clusters_at(self, Py_ssize_t n_clusters):
        """The result of `merge_all` if it had stopped at `n_clusters`, or its own result if that
        has more clusters. The kernel does not hold these clusters.

        Returns `slots`, `clusters`: ndarray
        """
        roots = np.arange(self.n_pieces)
        cdef Py_ssize_t[::1] root = roots
        # The last merge first, so that the root of the parent is known.
        for m in range(self.n_pieces - max(n_clusters, self.n_clusters) - 1, -1, -1):
            b = self.merged[m]
            root[b] = root[self.parent[b]]
        return np.unique(roots, return_inverse=True)


def merged_stats(ClusterModel model, stats, clusters):
    """Statistics of unions of clusters, (K, n_stats), from those of clusters, (n_pieces, n_stats).
    The union of each is in `clusters`, (n_pieces,): 0, ..., K - 1, none of them empty. The model's
    own clusters are replaced."""
    cdef const Py_ssize_t[::1] union_of = clusters
    expect_shape("clusters", union_of, (len(stats),))
    slots = np.unique(clusters, return_index=True)[1]
    cdef const Py_ssize_t[::1] slot = slots
    load_clusters(model, stats)
    for a in range(len(stats)):
        if slot[union_of[a]] != a:
            model.merge(slot[union_of[a]], a)
    return model.dump(slots)


# Coupled clusters.

def merge_coupled(MixtureState state):
    """Merge the best pair of coupled clusters of a state until none gains. All its items are in
    clusters, no more than the prior allows. The state holds the result."""
    cdef Py_ssize_t[::1] items = np.empty(state.n_samples, dtype=np.intp)
    state.prior.tabulate()
    with nogil:
        state.model.settle()
        while state.n_clusters > 1 and merge_best(state, &items[0]):
            pass


cdef bint merge_best(
    MixtureState state, Py_ssize_t* items       # (n_samples,): scratch
) noexcept nogil:
    """Merge the pair that gains most; False where none gains."""
    cdef Py_ssize_t src = -1, n_items = 0
    cdef double top = 0.0
    for a in range(1, state.n_clusters):
        state.model.log_merge_many(as_indices(state.slots, a), state.slots[a], state.log_w)
        for b in range(a):
            gain = state.log_w[b] + state.log_prior_gain(state.slots[b], state.slots[a])
            if gain > top:
                top, dst, src = gain, state.slots[b], state.slots[a]
    if src < 0:
        return False
    for i in range(state.n_samples):
        if state.labels[i] == src:
            items[n_items] = i
            n_items += 1
    state.join(dst, src, as_indices(items, n_items))
    return True


# Pieces.

def assign_in_turn(MixtureState state, order, bint by_size=False):
    """Move the items of `order`, one after the other, to the cluster under which they are most
    likely. No cluster is created: there must be one; an empty one is removed. If `by_size`, the
    prior weighs clusters and single items stay. The log joint density then never falls."""
    cdef const Py_ssize_t[::1] items = np.ascontiguousarray(order, dtype=np.intp)
    cdef double* log_w = state.log_w
    state.prior.tabulate()
    with nogil:
        for m in range(items.shape[0]):
            if state.labels[items[m]] >= 0:
                if state.n_clusters == 1:
                    continue
                if by_size and state.sizes[state.labels[items[m]]] == 1:
                    continue
                state.detach(items[m])
            slots = as_indices(state.slots, state.n_clusters)
            state.model.log_predictive_many(slots, items[m], log_w)
            if by_size:
                for k in range(state.n_clusters):
                    log_w[k] += state.prior.log_join[state.sizes[state.slots[k]]]
            j = 0
            for k in range(1, state.n_clusters):
                if log_w[k] > log_w[j]:
                    j = k
            state.attach(items[m], state.slots[j])
        state.model.settle()
