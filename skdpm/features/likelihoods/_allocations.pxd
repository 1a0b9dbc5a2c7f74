# SPDX-License-Identifier: BSD-3-Clause
cimport cython

from skdpm._core._memory cimport MemoryOwner


@cython.final
cdef class Allocations(MemoryOwner):
    """A binary matrix Z with room for more columns, and column sums. A state's model reads it."""
    cdef readonly Py_ssize_t n_samples
    cdef readonly Py_ssize_t n_latent       # columns in use
    cdef readonly Py_ssize_t stride         # capacity for columns, at least 1
    cdef unsigned char* entries             # (n_samples, stride), 0 beyond n_latent
    cdef Py_ssize_t* col_sums               # (stride,), 0 beyond n_latent

    cdef int reserve(self, Py_ssize_t stride) except -1
    cdef void append(self) noexcept nogil
    cdef void remove(self, Py_ssize_t k) noexcept nogil

    cdef inline const unsigned char* row(self, Py_ssize_t i) noexcept nogil:
        """Point to the features of row i, (n_latent,). Only `set` changes them."""
        return self.entries + i * self.stride

    cdef inline void set(self, Py_ssize_t i, Py_ssize_t k, bint on) noexcept nogil:
        """Give feature k to row i, or take it away."""
        cdef unsigned char* z = self.entries + i * self.stride + k
        self.col_sums[k] += on - <int>z[0]
        z[0] = on
