# SPDX-License-Identifier: BSD-3-Clause
"""Labels that particles keep of their rows."""
from libc.string cimport memcpy

import numpy as np


cdef class KeptLabels:

    def __init__(self, Py_ssize_t n_particles, labels, bint wide):
        """Keep labels of the particles there are: (n_current, n_kept)."""
        labels = np.asarray(labels)
        self.n_particles = n_particles
        self.n_kept = labels.shape[1]
        self.width = 0
        self.memory = np.empty((n_particles, 1), np.uint8)
        self.reserve(0, wide)
        self._view()[: len(labels), : labels.shape[1]] = _recoded(labels, wide)

    def _view(self):
        return np.asarray(self.memory).view(np.uint32 if self.wide else np.uint16)

    cdef int reserve(self, Py_ssize_t n_more, bint wide) except -1:
        cdef Py_ssize_t capacity = max(self.n_kept + n_more, 1)
        if capacity <= self.capacity and wide == self.wide:
            return 0
        if capacity > self.capacity:
            capacity = max(capacity, self.capacity + self.capacity // 2)
        kept = self._view()[:, :self.n_kept] if self.capacity > 0 else None
        self.capacity, self.wide, self.width = capacity, wide, 4 if wide else 2
        self.memory = np.empty((self.n_particles, capacity * self.width), np.uint8)
        if kept is not None:
            self._view()[:, :self.n_kept] = _recoded(kept, wide)

    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        memcpy(&self.memory[dst, 0], &self.memory[src, 0], self.n_kept * self.width)

    def array(self, particles):
        """Labels of a slice of particles: (n, n_kept), uint16 or uint32; the largest is noise."""
        return self._view()[particles, :self.n_kept].copy()


def _recoded(labels, bint wide):
    """Labels of any type, as numbers of 32 bits if `wide` and otherwise of 16."""
    is_signed = labels.dtype.kind == "i"
    outside = labels == (OUTSIDE if is_signed else np.iinfo(labels.dtype).max)
    recoded = labels.astype(np.uint32 if wide else np.uint16)
    recoded[outside] = np.iinfo(recoded.dtype).max
    return recoded


def signed(labels):
    """Labels of unsigned type as intp, noise as OUTSIDE."""
    found = labels.astype(np.intp)
    found[labels == np.iinfo(labels.dtype).max] = OUTSIDE
    return found
