# SPDX-License-Identifier: BSD-3-Clause
"""The binary matrix Z of a feature allocation model: which rows have which features."""
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK


cdef class Allocations(MemoryOwner):
    """Binary matrix with column sums: a copy of Z, (n_samples, n_latent), 0 or 1."""

    def __init__(self, Z):
        cdef const unsigned char[:, ::1] view = np.ascontiguousarray(Z, dtype=np.uint8)
        self.n_samples = view.shape[0]
        self.reserve(max(view.shape[1], 1))
        self.n_latent = view.shape[1]
        for i in range(self.n_samples):
            for k in range(self.n_latent):
                if view[i, k]:
                    self.set(i, k, True)

    cdef int reserve(self, Py_ssize_t stride) except -1:
        if stride <= self.stride:
            return 0
        self.col_sums = <Py_ssize_t*>self.resized(self.col_sums, stride, sizeof(Py_ssize_t))
        for i in range(self.stride, stride):
            self.col_sums[i] = 0
        wider = <unsigned char*>self.resized(NULL, self.n_samples * stride, 1)
        memset(wider, 0, self.n_samples * stride)
        for i in range(self.n_samples if self.n_latent > 0 else 0):
            memcpy(wider + i * stride, self.row(i), self.n_latent)
        self.freed(self.entries)
        self.entries = wider
        self.stride = stride

    cdef void append(self) noexcept nogil:
        """Add a column of zeros; room was reserved."""
        SKDPM_CHECK(self.n_latent < self.stride, "no room for a column")
        self.n_latent += 1

    cdef void remove(self, Py_ssize_t k) noexcept nogil:
        """Remove column k; the last one takes its place."""
        cdef Py_ssize_t last = self.n_latent - 1
        SKDPM_CHECK(0 <= k <= last, "no such feature")
        for i in range(self.n_samples):
            z = self.entries + i * self.stride
            z[k] = z[last]
            z[last] = 0
        self.col_sums[k] = self.col_sums[last]
        self.col_sums[last] = 0
        self.n_latent = last

    # The Python boundary.

    def to_array(self):
        """Copy the matrix into an ndarray of shape (n_samples, n_latent), uint8."""
        cdef unsigned char[:, ::1] Z = np.empty((self.n_samples, self.n_latent), dtype=np.uint8)
        if self.n_latent > 0:
            for i in range(self.n_samples):
                memcpy(&Z[i, 0], self.row(i), self.n_latent)
        return np.asarray(Z)

    def sums(self):
        """Copy the column sums into an ndarray of shape (n_latent,), intp."""
        return np.array([self.col_sums[k] for k in range(self.n_latent)], dtype=np.intp)
