# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm._core._slice cimport SliceSampled


cdef class FeaturePrior(SliceSampled):
    """An exchangeable prior over binary matrices, as the conditional laws of one row."""
    cdef readonly Py_ssize_t n_samples
    cdef readonly double concentration
    # A feature of fewer other rows than this belongs to one row alone (1: IBP, 0: finite).
    cdef readonly Py_ssize_t least_shared
    cdef readonly double new_rate   # Poisson rate of the features that a row has for itself
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
    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil
