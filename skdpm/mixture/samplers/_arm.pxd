# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture.state._state cimport MixtureState


cdef class Reconfiguration:
    """The construction of `_arm`, and the memory it needs."""
    cdef bint has_blocks, outer_blocks
    # What a move is drawn by. Without past states `za` is NULL.
    cdef Py_ssize_t i, j
    cdef const Py_ssize_t* za           # (n_samples,): z^a
    cdef const Py_ssize_t* zb           # (n_samples,): z^b
    cdef Py_ssize_t* order              # (n_samples,): the rows
    # The construction under way.
    cdef readonly double log_t
    cdef readonly long long work        # row evaluations so far
    cdef Py_ssize_t slot_i, slot_j      # clusters of i and j in z
    cdef Py_ssize_t b_i, b_j            # and now
    cdef Py_ssize_t* start              # (n_samples,): z, by slot
    cdef Py_ssize_t* home               # (n_slots,): home of each cluster of z; -1: none is left
    cdef Py_ssize_t* left               # (n_slots,): number of its rows that are at home
    cdef const Py_ssize_t* target       # (n_samples,): the partition to end in, or NULL
    cdef Py_ssize_t* owner              # (n_labels,): by label of the target, the outer cluster
    cdef Py_ssize_t* target_slot        # ... that its rows come from; its slot so far, or -1
    # Blocks of the refinement, in the order of loop 1.
    cdef Py_ssize_t n_blocks
    cdef Py_ssize_t* begin              # (n_blocks + 1,): first of each in `members`
    cdef Py_ssize_t* members            # (n_samples,): rows, in the order of the move
    cdef Py_ssize_t* block              # (n_samples,): block of each row
    cdef signed char* is_done           # (n_samples,): does loop 2 leave the row out?
    cdef Py_ssize_t* scratch            # (4, n_labels)
    cdef Py_ssize_t* options            # (n_slots,)
    cdef double* weights                # (n_slots,)
    cdef Py_ssize_t n_samples, n_slots, n_labels

    cdef int reserve(self, MixtureState state) except -1
    cdef int make_room(self, MixtureState state) except -1 nogil
    cdef void shuffle(self, Py_ssize_t n, bitgen_t* rng) noexcept nogil
    cdef inline bint inside(self, Py_ssize_t x) noexcept nogil:
        """Is row x in U?"""
        return self.start[x] == self.slot_i or self.start[x] == self.slot_j

    cdef Py_ssize_t refine_by(
        self, const Py_ssize_t* labels, const Py_ssize_t* rows, Py_ssize_t n_rows,
        Py_ssize_t n_blocks
    ) noexcept nogil
    cdef void refine(self, Py_ssize_t n) noexcept nogil
    cdef int construct(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* target, double limit
    ) except -1 nogil
    cdef bint is_over(self, double limit) noexcept nogil
    cdef void begin_from(self, MixtureState state) noexcept nogil
    cdef Py_ssize_t place_first(
        self, MixtureState state, Py_ssize_t x, Py_ssize_t slot, bint refined
    ) except -1 nogil
    cdef int put(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* rows, Py_ssize_t n_rows
    ) except -1 nogil
    cdef Py_ssize_t take_out(
        self, MixtureState state, const Py_ssize_t* rows, Py_ssize_t n_rows
    ) noexcept nogil
    cdef Py_ssize_t wanted_slot(self, Py_ssize_t x) noexcept nogil
    cdef Py_ssize_t choose(
        self, bitgen_t* rng, const double* log_w, Py_ssize_t n, Py_ssize_t pick
    ) noexcept nogil
    cdef bint reached(self, MixtureState state) noexcept nogil
