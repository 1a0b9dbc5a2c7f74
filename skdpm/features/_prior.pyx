# SPDX-License-Identifier: BSD-3-Clause
"""Priors over binary matrices Z of N rows, normalised. With m_k the sum of column k:

Indian buffet process (Griffiths & Ghahramani 2011), over matrices of K labelled non-empty columns,

    p(Z) = exp(-A H_N) A^K / K! prod_k B(m_k, N - m_k + 1),    H_N = 1 + 1/2 + ... + 1/N,

and finite Beta-Bernoulli with K columns, a = A / K,

    p(Z) = prod_k B(a + m_k, 1 + N - m_k) / B(a, 1),

where A is the concentration. Given the other rows, where column k has sum m, a row has feature k
with probability m / N (IBP; Poisson(A / N) further features are its own) or (m + a) / (N + a).
"""
from libc.math cimport INFINITY, NAN, exp, lgamma, log
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport random_standard_gamma

import numpy as np
from scipy.special import gammaln

from skdpm._core._rng cimport bit_generator_pointer


cdef inline double log_beta(double x, double y) noexcept nogil:
    return lgamma(x) + lgamma(y) - lgamma(x + y)


cdef class FeaturePrior:

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.log_odds = <double*>malloc((n_samples + 1) * sizeof(double))
        if self.log_odds == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.log_odds)

    cdef void tabulate(self) noexcept nogil:
        """Fill `log_odds` and `new_rate` for the concentration."""
        self.new_rate = NAN

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
        """log p(Z) at any concentration."""
        return NAN

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the concentration given Z, up to a constant. The factor
        A in the density of log A is the Jacobian."""
        cdef double concentration
        if not -700.0 < x < 700.0:
            return -INFINITY
        concentration = exp(x)
        return (
            self.shape * x - self.rate * concentration
            + self.log_probability_at(concentration, self.col_sums, self.n_latent)
        )

    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil:
        return exp(self.slice_step(log(self.concentration), rng))

    # The Python boundary.

    def set_concentration(self, double concentration):
        self.concentration = concentration
        self.tabulate()

    def log_probability(self, col_sums):
        """log p(Z) for columns with the given sums, at the current concentration."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(col_sums, dtype=np.intp)
        return self.log_probability_at(
            self.concentration, &view[0] if view.shape[0] else NULL, view.shape[0]
        )

    def resample(self, col_sums, double shape, double rate, bit_generator):
        """Draw the concentration given Z under its Gamma(shape, rate) prior."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(col_sums, dtype=np.intp)
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.col_sums = &view[0] if view.shape[0] else NULL
        self.n_latent = view.shape[0]
        self.shape = shape
        self.rate = rate
        with bit_generator.lock, nogil:
            # A tiny shape can underflow to 0, whose logarithm would end the chain.
            self.concentration = max(self.draw_concentration(rng), 1e-300)
        self.col_sums = NULL
        self.tabulate()

    def log_odds_new(self, col_sums):
        """log odds of each feature in a further row, given all rows.

        Returns
        -------
        log_odds : ndarray of shape (n_latent,)
        """
        raise NotImplementedError(f"{type(self).__name__} must write `log_odds_new`")

    def log_pmf_extra(self, n_latent, most):
        """log probability that a further row has m of the features that no row has, m = 0, 1, ...,
        `most` at most; `n_latent` is the number of features that some row has.

        Returns
        -------
        log_pmf : ndarray
        """
        raise NotImplementedError(f"{type(self).__name__} must write `log_pmf_extra`")

    def draw(self, rng):
        """A matrix from the prior.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_latent), uint8
        """
        raise NotImplementedError(f"{type(self).__name__} must write `draw`")


cdef class IndianBuffetPrior(FeaturePrior):
    """The Indian buffet process."""
    cdef double harmonic        # H_N

    def __init__(self, Py_ssize_t n_samples, double concentration):
        self.harmonic = (1.0 / np.arange(1, n_samples + 1)).sum()
        self.least_shared = 1
        self.set_concentration(concentration)

    cdef void tabulate(self) noexcept nogil:
        cdef Py_ssize_t m
        for m in range(self.n_samples):
            self.log_odds[m] = log(<double>m / (self.n_samples - m))
        self.new_rate = self.concentration / self.n_samples

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
        cdef Py_ssize_t k
        cdef double total = (
            n_latent * log(concentration) - concentration * self.harmonic - lgamma(n_latent + 1.0)
        )
        for k in range(n_latent):
            total += log_beta(col_sums[k], self.n_samples - col_sums[k] + 1.0)
        return total

    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil:
        """Its full conditional, Gamma(shape + K, rate + H_N)."""
        return random_standard_gamma(rng, self.shape + self.n_latent) / (self.rate + self.harmonic)

    def log_odds_new(self, col_sums):
        m = np.asarray(col_sums, dtype=np.float64)
        return np.log(m / (self.n_samples + 1.0 - m))

    def log_pmf_extra(self, n_latent, most):
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


cdef class BetaBernoulliPrior(FeaturePrior):
    """Finite Beta-Bernoulli with K columns, Beta(A / K, 1) for the probability of each."""
    cdef readonly Py_ssize_t n_components

    def __init__(self, Py_ssize_t n_samples, double concentration, Py_ssize_t n_components):
        self.n_components = n_components
        self.least_shared = 0
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

    def log_pmf_extra(self, n_latent, most):
        n_unused = self.n_components - n_latent
        a = self.concentration / self.n_components
        m = np.arange(min(n_unused, most) + 1)
        log_choices = gammaln(n_unused + 1) - gammaln(m + 1) - gammaln(n_unused - m + 1)
        # A feature that none of N rows has is in the next one with odds a to N + 1.
        log_odds = np.log(a / (self.n_samples + 1.0))
        return log_choices + m * log_odds - n_unused * np.logaddexp(0.0, log_odds)

    def draw(self, rng):
        a = self.concentration / self.n_components
        probabilities = rng.beta(a, 1.0, size=self.n_components)
        shape = (self.n_samples, self.n_components)
        return (rng.random(shape) < probabilities).astype(np.uint8)
