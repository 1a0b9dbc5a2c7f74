# SPDX-License-Identifier: BSD-3-Clause
"""The priors over binary matrices: one class per prior."""
from libc.math cimport lgamma, log

import numpy as np
from scipy.special import gammaln

from skdpm._core._rng cimport bitgen_t, random_standard_gamma
from skdpm.features.priors._base cimport FeaturePrior


cdef inline double log_beta(double x, double y) noexcept nogil:
    return lgamma(x) + lgamma(y) - lgamma(x + y)


cdef class BetaBernoulliPrior(FeaturePrior):
    """Finite Beta-Bernoulli with N rows and K columns, Beta(a, 1) for the probability of each,
    where a = A / K and A is the concentration:

        p(Z) = prod_k B(a + m_k, 1 + N - m_k) / B(a, 1).

    A row has feature k with probability (m + a) / (N + a) if m of the other rows have it.
    """
    cdef readonly Py_ssize_t n_components

    def __init__(self, Py_ssize_t n_samples, double concentration, Py_ssize_t n_components):
        self.n_components = n_components
        self.grows = False
        self.set_concentration(concentration)

    cdef void tabulate(self) noexcept nogil:
        cdef double a = self.concentration / self.n_components
        for m in range(self.n_samples):
            self.log_odds[m] = log((m + a) / (self.n_samples - m))
        self.new_rate = 0.0

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
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


cdef class IndianBuffetPrior(FeaturePrior):
    """The Indian buffet process (Griffiths & Ghahramani 2011). Over matrices of N rows and K
    labelled non-empty columns, column k with the sum m_k,

        p(Z) = exp(-A H_N) A^K / K! prod_k B(m_k, N - m_k + 1),    H_N = 1 + 1/2 + ... + 1/N.

    A row has feature k, of m other rows, with probability m / N, and Poisson(A / N) singletons.
    """
    cdef double harmonic        # H_N

    def __init__(self, Py_ssize_t n_samples, double concentration):
        self.harmonic = (1.0 / np.arange(1, n_samples + 1)).sum()
        self.grows = True
        self.conjugate = True
        self.set_concentration(concentration)

    cdef void tabulate(self) noexcept nogil:
        for m in range(self.n_samples):
            self.log_odds[m] = log(<double>m / (self.n_samples - m))
        self.new_rate = self.concentration / self.n_samples

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
        cdef double total = (
            n_latent * log(concentration) - concentration * self.harmonic - lgamma(n_latent + 1.0)
        )
        for k in range(n_latent):
            total += log_beta(col_sums[k], self.n_samples - col_sums[k] + 1.0)
        return total

    cdef double draw_under_gamma(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil:
        """Draw from the full conditional, Gamma(shape + K, rate + H_N)."""
        return random_standard_gamma(rng, shape + n_counts) / (rate + self.harmonic)

    def log_odds_new(self, col_sums):
        m = np.asarray(col_sums, dtype=np.float64)
        return np.log(m / (self.n_samples + 1.0 - m))

    def log_pmf_new(self, n_latent, most):
        rate = self.concentration / (self.n_samples + 1)
        m = np.arange(most + 1)
        return m * np.log(rate) - rate - gammaln(m + 1)

    def draw(self, rng):
        columns = np.zeros((self.n_samples, 0), dtype=np.uint8)
        for i in range(self.n_samples):
            columns[i] = rng.random(columns.shape[1]) < columns.sum(axis=0) / (i + 1.0)
            new = rng.poisson(self.concentration / (i + 1.0))
            columns = np.pad(columns, ((0, 0), (0, new)))
            columns[i, columns.shape[1] - new:] = 1
        return columns
