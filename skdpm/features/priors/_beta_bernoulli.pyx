# SPDX-License-Identifier: BSD-3-Clause
"""Finite Beta-Bernoulli with N rows and K columns. With a = A / K, where A is the concentration,

    p(Z) = prod_k B(a + m_k, 1 + N - m_k) / B(a, 1).

A row has feature k with probability (m + a) / (N + a) if m of the other rows have it.
"""
from libc.math cimport log

import numpy as np
from scipy.special import gammaln

from skdpm.features.priors._base cimport FeaturePrior, log_beta


cdef class BetaBernoulliPrior(FeaturePrior):
    """Finite Beta-Bernoulli with K columns, Beta(A / K, 1) for the probability of each."""
    cdef readonly Py_ssize_t n_components

    def __init__(self, Py_ssize_t n_samples, double concentration, Py_ssize_t n_components):
        self.n_components = n_components
        self.grows = False
        self.set_concentration(concentration)

    cdef void tabulate(self) noexcept nogil:
        cdef Py_ssize_t m
        cdef double a = self.concentration / self.n_components
        for m in range(self.n_samples):
            self.log_odds[m] = log((m + a) / (self.n_samples - m))
        self.new_rate = 0.0

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
        cdef Py_ssize_t k
        cdef double a = concentration / self.n_components
        cdef double total = 0.0
        for k in range(n_latent):
            # B(a, 1) = 1 / a
            total += log_beta(a + col_sums[k], 1.0 + self.n_samples - col_sums[k]) + log(a)
        return total

    def log_odds_new(self, col_sums):
        m = np.asarray(col_sums, dtype=np.float64)
        a = self.concentration / self.n_components
        return np.log((m + a) / (self.n_samples + 1.0 - m))

    def log_pmf_new(self, n_latent, most):
        n_unused = self.n_components - n_latent
        a = self.concentration / self.n_components
        m = np.arange(min(n_unused, most) + 1)
        log_choices = gammaln(n_unused + 1) - gammaln(m + 1) - gammaln(n_unused - m + 1)
        # A feature that none of N rows has is on in the next one with odds a / (N + 1).
        log_odds = np.log(a / (self.n_samples + 1.0))
        return log_choices + m * log_odds - n_unused * np.logaddexp(0.0, log_odds)

    def draw(self, rng):
        a = self.concentration / self.n_components
        probabilities = rng.beta(a, 1.0, size=self.n_components)
        shape = (self.n_samples, self.n_components)
        return (rng.random(shape) < probabilities).astype(np.uint8)
