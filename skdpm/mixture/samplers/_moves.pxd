# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, as_indices
from skdpm.mixture.samplers._anchors cimport MAX_ANCHORS, AnchorProposal, Members


cdef class Closure:
    """The items of the anchors' clusters, in the random order of a move."""
    cdef readonly Py_ssize_t n_items
    cdef readonly Py_ssize_t n_cells        # clusters of the closure
    cdef readonly Py_ssize_t n_outside      # number of all other clusters
    cdef Py_ssize_t[::1] items              # (n_items,): the anchors first
    cdef signed char[::1] cells             # (n_items,): cluster of each, by first appearance
    cdef Py_ssize_t slots[MAX_ANCHORS]      # (n_cells,)
    cdef Py_ssize_t sizes[MAX_ANCHORS]      # (n_cells,)
    cdef signed char[::1] cell_of           # (n_slots,): cell of a cluster of the closure, else -1
    cdef Members members                    # items of all clusters
    cdef AnchorProposal proposal
    cdef Py_ssize_t n_anchors
    cdef Py_ssize_t place[2]                # positions in `items` of the first two anchors drawn
    cdef Py_ssize_t n_samples, n_slots

    cdef int reserve(self, MixtureState state) except -1
    cdef bint pick(self, MixtureState state, Py_ssize_t n_anchors, bitgen_t* rng) noexcept nogil
    cdef void gather(self, MixtureState state, bitgen_t* rng) noexcept nogil
    cdef double log_anchors(
        self, MixtureState state, const signed char* cells,
        const Py_ssize_t* slots, const Py_ssize_t* sizes, Py_ssize_t n_slots
    ) noexcept nogil
    cdef void replace(
        self, MixtureState state, const signed char* cells, Indices slots
    ) noexcept nogil


cdef class Trial:
    """Proposed clusters of the items of a closure, its *sides*; the state stays as it is."""
    cdef readonly Closure closure
    cdef readonly Py_ssize_t n_sides        # number of proposed clusters
    cdef Py_ssize_t side[MAX_ANCHORS]       # slots of the sides
    cdef Py_ssize_t size[MAX_ANCHORS]       # numbers of their items
    cdef signed char[::1] sides             # (n_items,): side of each item of the closure
    cdef Py_ssize_t n_open                  # number of slots taken
    cdef Py_ssize_t n_samples

    cdef int reserve(self, MixtureState state) except -1
    cdef void begin(self, MixtureState state, Py_ssize_t n_sides) noexcept nogil
    cdef inline void join(self, MixtureState state, Py_ssize_t m, Py_ssize_t b) noexcept nogil:
        """Item m of the closure, on no side so far, joins one."""
        cdef Py_ssize_t i = self.closure.items[m]
        state.model.add(self.side[b], i)
        state.labels[i] = self.side[b]
        self.size[b] += 1
        self.sides[m] = <signed char>b

    cdef inline void leave(self, MixtureState state, Py_ssize_t m) noexcept nogil:
        """Item m of the closure leaves its side."""
        cdef Py_ssize_t i = self.closure.items[m]
        cdef Py_ssize_t b = self.sides[m]
        state.labels[i] = -1
        self.size[b] -= 1
        state.model.remove(self.side[b], i)

    cdef double log_current(self, MixtureState state) noexcept nogil
    cdef double log_union_ratio(self, MixtureState state) noexcept nogil
    cdef double log_proposed(self, MixtureState state) noexcept nogil
    cdef void accept(self, MixtureState state) noexcept nogil
    cdef void restore(self, MixtureState state) noexcept nogil
    cdef void unite(self, MixtureState state) noexcept nogil
    # These depend on whether clusters are independent.
    cdef void vacate(self, MixtureState state, Indices slots) noexcept nogil
    cdef void put_back(self, MixtureState state) noexcept nogil
    cdef double log_likelihood(self, MixtureState state, Indices slots) noexcept nogil


cdef Trial make_trial(ClusterModel model, Closure closure)
cdef double log_predictive_block(MixtureState state, Indices items, Py_ssize_t slot) noexcept nogil
