# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t


cdef class History:
    """Past partitions of several chains, and pairs of them."""
    cdef readonly Py_ssize_t n_recorded     # chains with smaller numbers are recorded
    cdef readonly Py_ssize_t n_kept         # maximal number of states of each chain
    cdef readonly object iterations         # (m,): when the states were recorded
    cdef readonly object labels             # (n_chains, m, n_samples): canonical, unsigned
    cdef Py_ssize_t n_chains, n_states, n_samples
    cdef const unsigned char* data          # the bytes of `labels`
    cdef Py_ssize_t width                   # number of bytes of a label
    # The rows drawn last, and two states that disagree about them, (n_samples,).
    cdef Py_ssize_t pair[2]
    cdef Py_ssize_t[::1] za, zb
    cdef Py_ssize_t[:, ::1] scratch         # (5, n_samples + 1)

    cdef const unsigned char* state_at(self, Py_ssize_t chain, Py_ssize_t m) noexcept nogil
    cdef void read(self, const unsigned char* state, Py_ssize_t[::1] labels) noexcept nogil
    cdef int check(self, Py_ssize_t n_samples) except -1
    cdef bint draw(self, Py_ssize_t own, bitgen_t* rng) noexcept nogil
    cdef void draw_rows(self, bitgen_t* rng) noexcept nogil
