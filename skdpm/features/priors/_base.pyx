# SPDX-License-Identifier: BSD-3-Clause
"""Priors over binary matrices Z as conditional laws of one row: a feature that m other rows have
is on with log odds `log_odds[m]`; features of no other row, singletons, are Poisson(new_rate).

A subclass writes `tabulate`, `log_probability_at` and the last three Python methods. A missing one
gives NaN, which samplers refuse, or raises.
"""
from libc.math cimport NAN

import numpy as np


cdef class FeaturePrior:
    """Base class of priors over binary matrices of `n_samples` rows. A subclass takes this number
    first, then the concentration, and calls `set_concentration`."""

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.log_odds = np.full(n_samples, NAN)
        self.concentration = self.new_rate = NAN

    cdef void tabulate(self) noexcept nogil:
        """Fill `log_odds` and `new_rate` for the concentration."""

    # The Python boundary.

    def set_concentration(self, double concentration):
        """Set the concentration."""
        self.concentration = concentration
        self.tabulate()

    def log_odds_new(self, col_sums):
        """Log odds of each feature in another row, given all rows: (n_latent,)."""
        raise NotImplementedError(f"{type(self).__name__} must implement `log_odds_new`")

    def log_pmf_new(self, n_latent, most):
        """Log probabilities of m new features in another row, for m = 0, 1, ... up to at most
        `most`: ndarray. The rows so far have `n_latent` features."""
        raise NotImplementedError(f"{type(self).__name__} must implement `log_pmf_new`")

    def draw(self, rng):
        """Draw a matrix: (n_samples, n_latent), uint8."""
        raise NotImplementedError(f"{type(self).__name__} must implement `draw`")
