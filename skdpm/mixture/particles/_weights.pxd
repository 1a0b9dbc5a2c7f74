# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._rng cimport bitgen_t


cdef class Weights:
    """Unnormalised log weights of particles, and the choices that "optimal" resampling follows."""
    cdef readonly Py_ssize_t n_most         # most particles
    cdef Py_ssize_t n                       # particles
    cdef readonly long long n_resampled
    cdef readonly bint optimal
    cdef int scheme
    cdef double threshold
    cdef double[::1] log_w, w               # (n_most,); w is scratch
    cdef Py_ssize_t[::1] counts             # (n_most,): offspring of each particle
    # Children, the choices of all particles: (capacity,).
    cdef Py_ssize_t n_children, capacity
    cdef Py_ssize_t[::1] parents, choices, child_counts
    cdef double[::1] child_log_w, child_w

    cdef int reserve_children(self, Py_ssize_t n_children) except -1
    cdef bint is_degenerate(self) noexcept nogil
    cdef double log_total(self) noexcept nogil
    cdef void resample(self, bitgen_t* rng) noexcept nogil
    cdef bint thin(self, bitgen_t* rng) noexcept nogil
