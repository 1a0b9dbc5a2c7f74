# SPDX-License-Identifier: BSD-3-Clause
"""How split-merge moves pick their anchors: Bouchard-Cote, Doucet & Roth (2017), appendix F.

A move is invariant for any law h(s) of the anchors that does not depend on the current state. The
informed laws look at a *snapshot* of a clustering instead. In warm-up, whose draws are dropped,
the snapshot follows the chain; the one taken after the last iteration of warm-up stays for good,
and is part of the chain's saved state. A chain without warm-up has uniform anchors throughout.
"""
from libc.math cimport INFINITY, exp
from libc.stdlib cimport free
from libc.string cimport memset
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport integer, uniform
from skdpm.mixture._state cimport MixtureState
from skdpm.mixture.likelihoods._base cimport ClusterModel

cdef enum:
    # Of more clusters than this no snapshot is taken: it costs a merge per pair of them.
    MAX_CLUSTERS = 512


ANCHORS = ("uniform", "cluster_informed", "threshold_informed")


cdef class AnchorProposal:
    """The law of the anchors.

    Parameters
    ----------
    kind : {"uniform", "cluster_informed", "threshold_informed"}
        Informed laws concern the second anchor; a third and further ones are uniform.
    threshold : float
        Least attachment probability of a cluster that may hold the second anchor, for
        "threshold_informed".
    """

    def __init__(self, str kind, double threshold=0.01):
        self.kind = kind
        self.threshold = threshold
        self.arrays = {}

    cdef int update(self, MixtureState state, bint adapting) except -1:
        """Before a move: let the snapshot follow the chain, or freeze it."""
        self.n_samples = state.n_samples
        if self.kind == "uniform" or self.frozen:
            return 0
        if adapting:
            self.seen_warmup = True
            if state.n_clusters != self.n_clusters:
                self.take(state)
        else:
            self.frozen = True
            if self.seen_warmup:
                self.take(state)
        return 0

    def take(self, MixtureState state):
        """Take a snapshot of the clustering, with what its law needs."""
        self.informed = False
        self.n_clusters = state.n_clusters
        self.arrays = {}
        if not 2 <= state.n_clusters <= MAX_CLUSTERS:
            return
        labels = state.cluster_labels()
        start = np.zeros(state.n_clusters + 1, dtype=np.intp)
        np.cumsum(state.cluster_sizes(), out=start[1:])
        arrays = {
            "labels": labels,
            "members": np.argsort(labels, kind="stable").astype(np.intp),
            "start": start,
        }
        if self.kind == "cluster_informed":
            arrays["cumulative"] = self.merge_probabilities(state)
        else:
            arrays["eligible"] = self.attachment(state)
        self.bind(arrays)

    def bind(self, dict arrays):
        """Use the arrays of a snapshot."""
        cdef const Py_ssize_t[::1] labels = arrays["labels"]
        cdef const Py_ssize_t[::1] members = arrays["members"]
        cdef const Py_ssize_t[::1] start = arrays["start"]
        cdef const double[:, ::1] cumulative
        cdef const signed char[:, ::1] eligible
        self.arrays = arrays
        self.labels = &labels[0]
        self.members = &members[0]
        self.start = &start[0]
        self.n_samples = labels.shape[0]
        self.n_clusters = start.shape[0] - 1
        if "cumulative" in arrays:
            cumulative = arrays["cumulative"]
            self.cumulative = &cumulative[0, 0]
        if "eligible" in arrays:
            eligible = arrays["eligible"]
            self.eligible = &eligible[0, 0]
        self.informed = True

    def merge_probabilities(self, MixtureState state):
        """Algorithm 4, for each cluster of the first anchor: cumulated probabilities of that of
        the second, proportional to L(union) / (L(one) L(other)); the mean of these for its own.
        """
        cdef Py_ssize_t a, b
        cdef Py_ssize_t k = state.n_clusters
        cdef ClusterModel model = state.model
        cdef Py_ssize_t scratch
        alone = np.empty(k)
        ratios = np.full((k, k), -np.inf)
        cdef double[::1] log_marginal = alone
        cdef double[:, ::1] log_ratio = ratios
        state.reserve(k + 2)
        scratch = model.acquire()
        for a in range(k):
            log_marginal[a] = model.log_marginal(state.slots[a])
        for a in range(k):
            for b in range(a):
                model.copy(scratch, state.slots[a])
                model.merge(scratch, state.slots[b])
                log_ratio[a, b] = (
                    model.log_marginal(scratch) - log_marginal[a] - log_marginal[b]
                )
                log_ratio[b, a] = log_ratio[a, b]
        model.release(scratch)
        weights = np.exp(ratios - ratios.max(axis=1, keepdims=True))
        weights[np.arange(k), np.arange(k)] = weights.sum(axis=1) / (k - 1)
        return np.cumsum(weights / weights.sum(axis=1, keepdims=True), axis=1)

    def attachment(self, MixtureState state):
        """Algorithm 5: whether each item, taken out of its cluster, would join each cluster with
        at least the threshold's probability."""
        cdef Py_ssize_t i, j, own, size
        cdef Py_ssize_t k = state.n_clusters
        cdef ClusterModel model = state.model
        cdef double total, top
        weights = np.empty(k)
        cdef double[::1] w = weights
        eligible = np.zeros((self.n_samples, k), dtype=np.int8)
        cdef signed char[:, ::1] may = eligible
        with nogil:
            for i in range(self.n_samples):
                own = state.labels[i]
                if state.sizes[own] > 1:
                    state.labels[i] = -1
                    model.remove(own, i)
                model.log_predictive_many(state.slots, k, i, &w[0])
                top = -INFINITY
                for j in range(k):
                    size = state.sizes[state.slots[j]] - (state.slots[j] == own)
                    w[j] += state.prior.log_join[size]    # log 0 for a cluster of i alone
                    top = max(top, w[j])
                total = 0.0
                for j in range(k):
                    w[j] = exp(w[j] - top)
                    total += w[j]
                for j in range(k):
                    may[i, j] = w[j] >= self.threshold * total
                if state.sizes[own] > 1:
                    model.add(own, i)
                    state.labels[i] = own
            model.settle()
        return eligible

    cdef void draw(self, bitgen_t* rng, Py_ssize_t* anchors, Py_ssize_t n_anchors) noexcept nogil:
        """n_anchors different items, the first one uniform."""
        cdef Py_ssize_t first = integer(rng, self.n_samples)
        cdef Py_ssize_t cluster, n_members, i, j, n
        cdef bint known
        anchors[0] = first
        n = 1
        if self.informed:
            cluster = self.second_cluster(rng, first)
            if cluster >= 0:
                n_members = self.start[cluster + 1] - self.start[cluster]
                if cluster == self.labels[first]:
                    n_members -= 1
                if n_members > 0:
                    i = self.members[self.start[cluster] + integer(rng, n_members)]
                    if i == first:
                        i = self.members[self.start[cluster] + n_members]
                    anchors[1] = i
                    n = 2
                else:
                    anchors[0] = integer(rng, self.n_samples)
        while n < n_anchors:
            i = integer(rng, self.n_samples)
            known = False
            for j in range(n):
                known = known or anchors[j] == i
            if not known:
                anchors[n] = i
                n += 1

    cdef Py_ssize_t second_cluster(self, bitgen_t* rng, Py_ssize_t i) noexcept nogil:
        """Cluster of the snapshot that is to hold the second anchor; -1 where there is none."""
        cdef Py_ssize_t k
        cdef Py_ssize_t n_eligible = 0
        cdef const double* cumulative
        cdef const signed char* eligible
        cdef double u
        if self.cumulative != NULL:
            cumulative = self.cumulative + self.labels[i] * self.n_clusters
            u = uniform(rng) * cumulative[self.n_clusters - 1]
            for k in range(self.n_clusters - 1):
                if u < cumulative[k]:
                    return k
            return self.n_clusters - 1
        eligible = self.eligible + i * self.n_clusters
        for k in range(self.n_clusters):
            n_eligible += eligible[k]
        if n_eligible == 0:
            return -1
        n_eligible = integer(rng, n_eligible)
        for k in range(self.n_clusters):
            n_eligible -= eligible[k]
            if n_eligible < 0:
                return k
        return -1

    def get_state(self):
        """Plain objects from which `set_state` goes on."""
        return {
            "seen_warmup": bool(self.seen_warmup),
            "frozen": bool(self.frozen),
            "n_clusters": self.n_clusters,
            "arrays": dict(self.arrays),
        }

    def set_state(self, saved):
        self.seen_warmup = saved["seen_warmup"]
        self.frozen = saved["frozen"]
        self.n_clusters = saved["n_clusters"]
        if saved["arrays"]:
            self.bind(dict(saved["arrays"]))


cdef class Closure:

    def __dealloc__(self):
        free(self.items)
        free(self.blocks)
        free(self.block_of)

    cdef int reserve(self, MixtureState state) except -1:
        """Room for all items and slots of the state; call it once the state has reserved its."""
        if state.n_samples > self.n_samples:
            self.items = <Py_ssize_t*>resized(self.items, state.n_samples, sizeof(Py_ssize_t))
            self.blocks = <signed char*>resized(self.blocks, state.n_samples, 1)
            self.n_samples = state.n_samples
        if state.capacity > self.n_slots:
            self.block_of = <signed char*>resized(self.block_of, state.capacity, 1)
            memset(self.block_of, -1, state.capacity)
            self.n_slots = state.capacity
        return 0

    cdef void gather(
        self, MixtureState state, AnchorProposal proposal, Py_ssize_t n_anchors, bitgen_t* rng
    ) noexcept nogil:
        """Draw the anchors, collect the items of their clusters, and order these: the anchors
        first, in random order, then all others, in random order (algorithm 2)."""
        cdef Py_ssize_t anchors[MAX_ANCHORS]
        cdef Py_ssize_t i, j, m, slot
        cdef Py_ssize_t n = n_anchors
        cdef bint is_anchor
        proposal.draw(rng, anchors, n_anchors)
        self.n_blocks = 0
        for j in range(n_anchors):
            m = j + integer(rng, n_anchors - j)
            anchors[j], anchors[m] = anchors[m], anchors[j]
            slot = state.labels[anchors[j]]
            if self.block_of[slot] < 0:
                self.block_of[slot] = <signed char>self.n_blocks
                self.slots[self.n_blocks] = slot
                self.n_blocks += 1
            self.items[j] = anchors[j]
        for i in range(state.n_samples):
            if self.block_of[state.labels[i]] >= 0:
                is_anchor = False
                for j in range(n_anchors):
                    is_anchor = is_anchor or anchors[j] == i
                if not is_anchor:
                    self.items[n] = i
                    n += 1
        for j in range(n_anchors, n):
            m = j + integer(rng, n - j)
            i = self.items[m]
            self.items[m] = self.items[j]
            self.items[j] = i
        for j in range(n):
            self.blocks[j] = self.block_of[state.labels[self.items[j]]]
        for j in range(self.n_blocks):
            self.block_of[self.slots[j]] = -1
        self.n_items = n
        self.n_outside = state.n_clusters - self.n_blocks
