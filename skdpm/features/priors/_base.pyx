# SPDX-License-Identifier: BSD-3-Clause
"""Priors over binary matrices Z, as samplers see them: given the other rows, of which m have a
feature, a row has it with log odds `log_odds[m]`, and features that no other row has, its
singletons, are Poisson(new_rate) many.

A subclass writes `tabulate` and `log_probability_at`, and the three Python methods at the end. One
that is forgotten answers NaN, which samplers refuse, or raises.
"""
from libc.math cimport INFINITY, NAN, exp, log
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer


cdef class FeaturePrior:
    """Base class of priors over binary matrices.

    Parameters
    ----------
    n_samples : int
        Rows of the matrix. A subclass takes it first, then the concentration, and calls
        `set_concentration`.
    """

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.log_odds = <double*>malloc((n_samples + 1) * sizeof(double))
        if self.log_odds == NULL:
            raise MemoryError
        self.concentration = NAN
        FeaturePrior.tabulate(self)

    def __dealloc__(self):
        free(self.log_odds)

    cdef void tabulate(self) noexcept nogil:
        """Fill `log_odds` and `new_rate` for the concentration."""
        cdef Py_ssize_t m
        for m in range(self.n_samples):
            self.log_odds[m] = NAN
        self.new_rate = NAN

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil:
        """Compute log p(Z) at any concentration, normalised."""
        return NAN

    cdef double log_density(self, double x) noexcept nogil:
        """Compute the log density of the logarithm of the concentration given Z, up to a constant.
        The factor A in the density of log A is the Jacobian."""
        cdef double concentration
        if not -700.0 < x < 700.0:
            return -INFINITY
        concentration = exp(x)
        return (
            self.shape * x - self.rate * concentration
            + self.log_probability_at(concentration, self.col_sums, self.n_latent)
        )

    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil:
        """Draw the concentration given Z, or do a step that keeps that law."""
        return exp(self.slice_step(log(self.concentration), rng))

    # The Python boundary.

    def set_concentration(self, double concentration):
        """Take another concentration."""
        self.concentration = concentration
        self.tabulate()

    def log_probability(self, col_sums):
        """log p(Z) for columns with the given sums, at the current concentration."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(col_sums, dtype=np.intp)
        return self.log_probability_at(
            self.concentration, &view[0] if view.shape[0] else NULL, view.shape[0]
        )

    def conditional(self):
        """Tell the law of one row given the others, as samplers see it.

        Returns
        -------
        log_odds : ndarray of shape (n_samples,)
            Of having a feature that m other rows have.
        new_rate : float
            Poisson rate of the row's singletons.
        """
        return np.array([self.log_odds[m] for m in range(self.n_samples)]), self.new_rate

    def resample(self, col_sums, double shape, double rate, bit_generator):
        """Draw the concentration given Z under its Gamma(shape, rate) prior."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(col_sums, dtype=np.intp)
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef double drawn
        self.col_sums = &view[0] if view.shape[0] else NULL
        self.n_latent = view.shape[0]
        self.shape = shape
        self.rate = rate
        with bit_generator.lock, nogil:
            drawn = self.draw_concentration(rng)
        self.col_sums = NULL
        if not drawn < INFINITY:
            raise FloatingPointError(
                f"{type(self).__name__}: the concentration has no law given Z"
            )
        # A tiny shape can underflow to 0, whose logarithm would end the chain.
        self.set_concentration(max(drawn, 1e-300))

    def log_odds_new(self, col_sums):
        """log odds of each feature in a further row, given all rows.

        Returns
        -------
        log_odds : ndarray of shape (n_latent,)
        """
        raise NotImplementedError(f"{type(self).__name__} must write `log_odds_new`")

    def log_pmf_new(self, n_latent, most):
        """log probability that a further row has m of the features that no row has, m = 0, 1, ...,
        `most` at most; `n_latent` is the number of features that some row has.

        Returns
        -------
        log_pmf : ndarray
        """
        raise NotImplementedError(f"{type(self).__name__} must write `log_pmf_new`")

    def draw(self, rng):
        """Draw a matrix.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_latent), uint8
        """
        raise NotImplementedError(f"{type(self).__name__} must write `draw`")
