# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._memory cimport Indices, MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState


cdef enum:
    MAX_ANCHORS = 5


cdef class Members(MemoryOwner):
    """The items of each cluster, while labels change by moves of whole clusters only."""
    cdef Py_ssize_t* first              # (n_slots,): first item in the list of each cluster
    cdef Py_ssize_t* next               # (n_samples,): next item; lists have the clusters' sizes
    cdef Py_ssize_t n_samples, n_slots

    cdef int reserve(self, MixtureState state) except -1
    cdef void collect(self, MixtureState state) noexcept nogil
    cdef inline void join(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.next[i] = self.first[slot]
        self.first[slot] = i

    cdef inline Py_ssize_t at(self, Py_ssize_t slot, Py_ssize_t m) noexcept nogil:
        """The m-th item of a cluster."""
        cdef Py_ssize_t i = self.first[slot]
        for _ in range(m):
            i = self.next[i]
        return i


cdef class Snapshot:
    """A clustering from which informed anchors are drawn, with arrays for their law."""
    cdef readonly Py_ssize_t n_clusters
    cdef readonly bint seen_warmup, frozen
    cdef dict arrays                    # the five below, by name; empty: anchors are uniform
    cdef bint informed                  # whether there is a clustering
    cdef const Py_ssize_t[::1] labels           # (n_samples,): cluster of each item
    cdef const Py_ssize_t[::1] members          # (n_samples,): items, cluster by cluster
    cdef const Py_ssize_t[::1] start            # (n_clusters + 1,): first of each in `members`
    # Law of the second anchor's cluster: cumulated, given the cluster of the first anchor,
    cdef const double[:, ::1] cumulative        # (n_clusters, n_clusters), or None
    # or uniform on those that are eligible given the first anchor.
    cdef const signed char[:, ::1] eligible     # (n_samples, n_clusters), or None

    cdef Py_ssize_t second_cluster(self, bitgen_t* rng, Py_ssize_t i) noexcept nogil


cdef class AnchorProposal:
    """The law of the anchors of a split-merge move."""
    cdef readonly str kind
    cdef double threshold
    cdef Py_ssize_t n_samples           # items of the current state
    cdef Snapshot snapshot              # snapshot of its replica
    cdef list snapshots                 # one per replica
    cdef readonly bint extended         # whether the law depends on the current partition
    cdef readonly double log_q          # log q(anchors | current partition) if so, else 0

    cdef int update(self, MixtureState state, bint adapting, Py_ssize_t replica) except -1
    cdef void draw(
        self, MixtureState state, Members members, bitgen_t* rng,
        Py_ssize_t* anchors, Py_ssize_t n_anchors
    ) noexcept nogil
    cdef void weigh_clusters(self, MixtureState state, Py_ssize_t i) noexcept nogil
    cdef double log_q_together(
        self, MixtureState state, Py_ssize_t n_clusters, Py_ssize_t size
    ) noexcept nogil
    cdef double log_q_at(
        self, MixtureState state, Indices old_slots,
        const Py_ssize_t* slots, const Py_ssize_t* sizes, Py_ssize_t n_slots,
        Py_ssize_t first, Py_ssize_t a, Py_ssize_t b
    ) noexcept nogil
