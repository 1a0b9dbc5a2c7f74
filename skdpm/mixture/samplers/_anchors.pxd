# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture._state cimport MixtureState


cdef enum:
    MAX_ANCHORS = 5


cdef class AnchorProposal:
    """h(s): how a split-merge move picks its anchors; never a function of the current state."""
    cdef readonly str kind
    cdef double threshold
    cdef bint seen_warmup, frozen
    cdef bint informed                  # a snapshot is in force; else anchors are uniform
    cdef Py_ssize_t n_samples, n_clusters
    # The snapshot, in arrays that live in `arrays`.
    cdef const Py_ssize_t* labels       # (n_samples,) cluster of each item
    cdef const Py_ssize_t* members      # (n_samples,) items, cluster by cluster
    cdef const Py_ssize_t* start        # (n_clusters + 1,) first of each cluster in `members`
    cdef const double* cumulative       # (n_clusters, n_clusters): of the second anchor's cluster
    cdef const signed char* eligible    # (n_samples, n_clusters): may the second anchor be there?
    cdef dict arrays

    cdef int update(self, MixtureState state, bint adapting) except -1
    cdef void draw(self, bitgen_t* rng, Py_ssize_t* anchors, Py_ssize_t n_anchors) noexcept nogil
    cdef Py_ssize_t second_cluster(self, bitgen_t* rng, Py_ssize_t i) noexcept nogil


cdef class Closure:
    """The items of the clusters that hold the anchors, in the random order of a move."""
    cdef readonly Py_ssize_t n_items
    cdef readonly Py_ssize_t n_blocks       # clusters of the closure
    cdef readonly Py_ssize_t n_outside      # all other clusters
    cdef Py_ssize_t* items                  # (n_items,): the anchors first
    cdef signed char* blocks                # (n_items,): cluster of each, by first appearance
    cdef Py_ssize_t slots[MAX_ANCHORS]      # (n_blocks,)
    cdef signed char* block_of              # (n_slots,): of a cluster of the closure, else -1
    cdef Py_ssize_t n_samples, n_slots

    cdef int reserve(self, MixtureState state) except -1
    cdef void gather(
        self, MixtureState state, AnchorProposal proposal, Py_ssize_t n_anchors, bitgen_t* rng
    ) noexcept nogil
