# SPDX-License-Identifier: BSD-3-Clause
"""Priors over binary matrices Z, as samplers see them: given the other rows, of which m have a
feature, a row has it with log odds `log_odds[m]`, and features that no other row has, its
singletons, are Poisson(new_rate) many.

A subclass writes `tabulate` and `log_probability_at`, and the three Python methods at the end. One
that is forgotten answers NaN, which samplers refuse, or raises.
"""
from libc.math cimport NAN
from libc.stdlib cimport free, malloc

import numpy as np


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

    # The Python boundary.

    def set_concentration(self, double concentration):
        """Take another concentration."""
        self.concentration = concentration
        self.tabulate()

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
