# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture._state cimport MixtureState


cdef enum:
    MAX_ANCHORS = 5


cdef class Snapshot:
    """A clustering that informed anchors look at, with what their law needs."""
    cdef readonly Py_ssize_t n_samples
    cdef readonly Py_ssize_t n_clusters
    cdef readonly bint seen_warmup
    cdef readonly bint frozen
    cdef bint informed                  # there is a clustering; else anchors are uniform
    # It is in arrays that live in `arrays`.
    cdef const Py_ssize_t* labels       # (n_samples,) cluster of each item
    cdef const Py_ssize_t* members      # (n_samples,) items, cluster by cluster
    cdef const Py_ssize_t* start        # (n_clusters + 1,) first of each cluster in `members`
    cdef const double* cumulative       # (n_clusters, n_clusters): of the second anchor's cluster
    cdef const signed char* eligible    # (n_samples, n_clusters): may the second anchor be there?
    cdef dict arrays

    cdef Py_ssize_t second_cluster(self, bitgen_t* rng, Py_ssize_t i) noexcept nogil


cdef class AnchorProposal:
    """h(s): how a split-merge move picks its anchors; never a function of the current state."""
    cdef readonly str kind
    cdef double threshold
    cdef Py_ssize_t n_samples           # of the state under update
    cdef Snapshot snapshot              # of its replica
    cdef list snapshots                 # of each replica

    cdef int update(self, MixtureState state, bint adapting, Py_ssize_t replica) except -1
    cdef void draw(self, bitgen_t* rng, Py_ssize_t* anchors, Py_ssize_t n_anchors) noexcept nogil
