# SPDX-License-Identifier: BSD-3-Clause
from libc.math cimport lgamma

from skdpm._concentration cimport ConcentrationSampled


cdef inline double log_beta(double x, double y) noexcept nogil:
    return lgamma(x) + lgamma(y) - lgamma(x + y)


cdef class FeaturePrior(ConcentrationSampled):
    """An exchangeable prior over binary matrices, as the conditional laws of one row."""
    # Rows bring features that no other row has, and a feature of no row is none (IBP). If not, the
    # number of features is fixed.
    cdef readonly bint grows
    cdef double new_rate            # Poisson rate of a row's singletons; 0 where it does not grow
    cdef double* log_odds           # (n_samples,): of having a feature that m other rows have

    # A prior overrides this, and `log_probability_at` of its base; `draw_concentration` where it
    # knows better than a slice step.
    cdef void tabulate(self) noexcept nogil
