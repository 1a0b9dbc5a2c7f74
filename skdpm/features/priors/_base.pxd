# SPDX-License-Identifier: BSD-3-Clause
from libc.math cimport lgamma
from numpy.random cimport bitgen_t

from skdpm._core._slice cimport SliceSampled


cdef inline double log_beta(double x, double y) noexcept nogil:
    return lgamma(x) + lgamma(y) - lgamma(x + y)


cdef class FeaturePrior(SliceSampled):
    """An exchangeable prior over binary matrices, as the conditional laws of one row."""
    cdef readonly Py_ssize_t n_samples
    cdef readonly double concentration
    # Rows bring features that no other row has, and a feature of no row is none (IBP). If not, the
    # number of features is fixed.
    cdef readonly bint grows
    cdef double new_rate            # Poisson rate of a row's singletons; 0 where it does not grow
    cdef double* log_odds           # (n_samples,): of having a feature that m other rows have
    # The conditional law of the concentration, while it is resampled.
    cdef const Py_ssize_t* col_sums
    cdef Py_ssize_t n_latent
    cdef double shape, rate

    # A prior overrides these.
    cdef void tabulate(self) noexcept nogil
    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* col_sums, Py_ssize_t n_latent    # IN
    ) noexcept nogil
    # ... and this where it knows better.
    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil
