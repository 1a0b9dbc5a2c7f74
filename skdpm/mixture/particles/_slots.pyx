# SPDX-License-Identifier: BSD-3-Clause
"""Clusters that particles share by reference, and are copied when only some holders change them.

The methods that run once per particle and row are in the .pxd file, so that callers inline them.
"""
from libc.math cimport INFINITY
from libc.string cimport memset

import numpy as np

from skdpm._core._tiles cimport tile_exp
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, as_indices, log_constant


cdef class SharedSlots(MemoryOwner):

    cdef int bind(self, ClusterModel model, Py_ssize_t n_slots) except -1:
        """Count the holders of the first n_slots slots of a kernel; new slots have none."""
        self.model = model
        if n_slots > self.capacity:
            self.refs = <Py_ssize_t*>self.resized(self.refs, n_slots, sizeof(Py_ssize_t))
            memset(self.refs + self.capacity, 0, (n_slots - self.capacity) * sizeof(Py_ssize_t))
            self.capacity = n_slots


cdef class Family:

    def __init__(self, Py_ssize_t number, ClusterModel model, stats):
        """Load clusters, (n, n_stats) or (n, width) with cached terms; no particle holds them."""
        cdef const double[:, ::1] view = stats
        self.number = number
        self.n_live = self.empty = len(stats)
        self.newborn_tick = -1
        model.load(
            stats, np.arange(self.n_live + 1), np.arange(model.n_slots - 1, self.n_live, -1)
        )
        self.model = model
        self.reserve(model.n_slots)
        for slot in range(self.n_live):
            self.live[slot] = self.position[slot] = slot
            self.sizes[slot] = view[slot, 0]

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        cdef Py_ssize_t before = self.capacity
        self.model.reserve(n_slots)
        n_slots = self.model.n_slots
        if n_slots <= before:
            return 0
        self.live = <Py_ssize_t*>self.resized(self.live, n_slots + 1, sizeof(Py_ssize_t))
        self.position = <Py_ssize_t*>self.resized(self.position, n_slots, sizeof(Py_ssize_t))
        self.turns = <Turn*>self.resized(self.turns, n_slots, sizeof(Turn))
        self.sizes = <double*>self.resized(self.sizes, n_slots, sizeof(double))
        self.by_position = <double*>self.resized(self.by_position, n_slots + 1, sizeof(double))
        self.log_p = <double*>self.resized(self.log_p, n_slots, sizeof(double))
        self.v = <double*>self.resized(self.v, n_slots, sizeof(double))
        for slot in range(before, n_slots):
            self.turns[slot].tick = -1
        return self.bind(self.model, n_slots)

    cdef void count_constant(self, Py_ssize_t i, double sign) noexcept nogil:
        """Add the `log_constants` of row i times `sign`."""
        self.sum_constants += sign * log_constant(self.model, i)

    cdef double evaluate(self, Py_ssize_t i) noexcept nogil:
        """Evaluate row i in all live slots and in a new cluster. Returns the largest log density;
        a NaN counts as larger than what came before it."""
        cdef double top = -INFINITY
        if self.has_gaps(i):
            self.model.open_gaps(i)
        self.live[self.n_live] = self.empty
        self.model.log_predictive_many(as_indices(self.live, self.n_live + 1), i, self.by_position)
        for j in range(self.n_live + 1):
            if not (self.by_position[j] <= top):
                top = self.by_position[j]
        return top

    cdef void scale(self, double top, bint common, double sigma) noexcept nogil:
        """Write `log_p`, and `v`: densities relative to exp(top). Where sigma is common to all
        particles, `v` of a slot of size m is multiplied by m - sigma."""
        for j in range(self.n_live):
            # By slot: positions change when particles are resampled.
            self.log_p[self.live[j]] = self.by_position[j]
        self.log_p_new = self.by_position[self.n_live]
        for j in range(self.n_live + 1):
            self.by_position[j] -= top
        tile_exp(self.by_position, self.n_live + 1)
        for j in range(self.n_live):
            slot = self.live[j]
            self.v[slot] = self.by_position[j]
            if common:
                self.v[slot] *= self.sizes[slot] - sigma
        self.v_new = self.by_position[self.n_live]

    cdef void hold_all(self, const int* slots, Py_ssize_t n_slots) noexcept nogil:
        """A new particle of the family holds these slots."""
        for j in range(n_slots):
            self.refs[slots[j]] += 1
        self.n_members += 1

    cdef void let_go_all(self, const int* slots, Py_ssize_t n_slots) noexcept nogil:
        """A particle leaves the family, and lets go of its slots."""
        for j in range(n_slots):
            self.let_go_live(slots[j])
        self.n_members -= 1

    # The Python boundary.

    def save(self):
        """Statistics of the live slots, with the cached terms: (n_live, width)."""
        live = [self.live[j] for j in range(self.n_live)]
        return self.model.dump(np.array(live, dtype=np.intp), True)
