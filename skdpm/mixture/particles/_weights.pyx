# SPDX-License-Identifier: BSD-3-Clause
"""Weights of particles and their resampling (_core/_resampling).

Particles are resampled when their effective sample size is small. "Optimal" follows every choice
of every particle, and thins these to N when they are more and the sample size is small.
"""
from libc.math cimport log

import numpy as np

from skdpm._core cimport _resampling
from skdpm._core._resampling cimport MULTINOMIAL, OPTIMAL, STRATIFIED, SYSTEMATIC
from skdpm._core._rng cimport bitgen_t

RESAMPLING = {
    "systematic": SYSTEMATIC,
    "stratified": STRATIFIED,
    "multinomial": MULTINOMIAL,
    "optimal": OPTIMAL,
}


cdef class Weights:

    def __init__(self, Py_ssize_t n_most, str resampling, double threshold):
        self.n_most = n_most
        self.scheme = RESAMPLING[resampling]
        self.optimal = self.scheme == OPTIMAL
        self.threshold = threshold
        self.log_w, self.w = np.empty((2, n_most))
        self.counts = np.empty(n_most, np.intp)

    cdef int reserve_children(self, Py_ssize_t n_children) except -1:
        if n_children <= self.capacity:
            return 0
        self.capacity = 2 * n_children
        self.parents, self.choices, self.child_counts = np.empty((3, self.capacity), np.intp)
        self.child_log_w, self.child_w = np.empty((2, self.capacity))

    cdef bint is_degenerate(self) noexcept nogil:
        """Whether the effective sample size is so small that particles are resampled; never if
        weights are equal up to rounding."""
        cdef double total = 0.0, squares = 0.0
        cdef double* w = &self.w[0]
        _resampling.exponentiate(&self.log_w[0], w, self.n)
        for p in range(self.n):
            total += w[p]
            squares += w[p] * w[p]
        return total * total / squares < self.threshold * self.n * (1.0 - 1e-9)

    cdef double log_total(self) noexcept nogil:
        """log of the sum of the weights. Sets `w` to the weights, relative to the largest."""
        cdef double total = 0.0
        cdef double top = _resampling.exponentiate(&self.log_w[0], &self.w[0], self.n)
        for p in range(self.n):
            total += self.w[p]
        return top + log(total)

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        """Draw the numbers of offspring, `counts`, and set every weight to the mean weight."""
        cdef double log_mean = self.log_total() - log(<double>self.n)
        _resampling.resample_freely(rng, self.scheme, &self.w[0], &self.counts[0], self.n)
        for p in range(self.n):
            self.log_w[p] = log_mean
        self.n_resampled += 1

    cdef bint thin(self, bitgen_t* rng) noexcept nogil:
        """Draw the children that survive, at most n_most, and set `counts` to their number for
        each particle. Returns False if the weights are not finite."""
        if self.n_children <= self.n_most:
            for c in range(self.n_children):
                self.child_counts[c] = 1
        else:
            if not _resampling.thin_exactly(
                rng, &self.child_log_w[0], &self.child_counts[0], &self.child_w[0],
                self.n_children, self.n_most
            ):
                return False
            self.n_resampled += 1
        for p in range(self.n):
            self.counts[p] = 0
        for c in range(self.n_children):
            self.counts[self.parents[c]] += self.child_counts[c]
        return True

    # The Python boundary.

    def load(self, log_w, n_resampled):
        self.n = len(log_w)
        np.asarray(self.log_w)[:self.n] = log_w
        self.n_resampled = n_resampled

    def array(self):
        """Log weights: ndarray of shape (n,)."""
        return np.array(self.log_w[:self.n])
