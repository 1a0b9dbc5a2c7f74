# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport NOISE, MixtureState


cdef class Reconfiguration:
    """The construction of `_arm`, with its memory."""
    cdef bint has_blocks, outer_blocks
    # Rows, past states and order of a move.
    cdef Py_ssize_t i, j
    cdef const Py_ssize_t* za           # (n_samples,): z^a; NULL: no past states
    cdef const Py_ssize_t* zb           # (n_samples,): z^b
    cdef Py_ssize_t[::1] order          # (n_samples,): the rows
    # The construction under way.
    cdef readonly double log_t
    cdef readonly long long work        # row evaluations so far
    cdef Py_ssize_t slot_i, slot_j      # clusters of i and j in z
    cdef Py_ssize_t b_i, b_j            # and now
    cdef Py_ssize_t[::1] start          # (n_samples,): slot of each row in z
    cdef Py_ssize_t[::1] home           # (n_slots,): home of each cluster of z; -1: none is left
    cdef Py_ssize_t[::1] left           # (n_slots,): number of its rows that are at home
    cdef const Py_ssize_t* target       # (n_samples,): the partition to end in, or NULL
    # By label of the target, (n_labels,):
    cdef Py_ssize_t[::1] owner          # outer cluster that its rows come from, or -1
    cdef Py_ssize_t[::1] target_slot    # its slot so far, or -1
    # Blocks of the refinement, in the order of loop 1.
    cdef Py_ssize_t n_blocks
    cdef Py_ssize_t[::1] begin          # (n_blocks + 1,): first of each in `members`
    cdef Py_ssize_t[::1] members        # (n_samples,): rows, in the order of the move
    cdef Py_ssize_t[::1] block          # (n_samples,): block of each row
    cdef signed char[::1] is_done       # (n_samples,): whether loop 2 leaves out the row
    cdef Py_ssize_t[:, ::1] scratch     # (4, n_labels)
    cdef Py_ssize_t[::1] options        # (n_slots,)
    cdef double[::1] weights            # (n_slots,)
    cdef Py_ssize_t n_samples, n_slots, n_labels

    cdef int reserve(self, MixtureState state) except -1
    cdef inline bint takes(self, Py_ssize_t x) noexcept nogil:
        """Whether the refinement has row x, which is not noise."""
        return self.start[x] != NOISE and (self.outer_blocks or self.inside(x))

    cdef inline bint inside(self, Py_ssize_t x) noexcept nogil:
        """Whether row x is in U."""
        return self.start[x] == self.slot_i or self.start[x] == self.slot_j

    cdef int construct(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* target, double limit
    ) except -1 nogil
    cdef Py_ssize_t choose(
        self, bitgen_t* rng, const double* log_w, Py_ssize_t n, Py_ssize_t pick
    ) noexcept nogil
