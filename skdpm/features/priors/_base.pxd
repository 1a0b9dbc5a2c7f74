# SPDX-License-Identifier: BSD-3-Clause
from skdpm._concentration cimport ConcentrationSampled


cdef class FeaturePrior(ConcentrationSampled):
    """An exchangeable prior over binary matrices, as the conditional laws of one row."""
    # Whether rows bring features that no other row has, and features of no row vanish (IBP). If
    # not, the number of features is fixed.
    cdef readonly bint grows
    cdef double new_rate            # Poisson rate of a row's singletons; 0 if it does not grow
    cdef double[::1] log_odds       # (n_samples,): log odds of a feature that m other rows have

    # A prior overrides this, `log_probability_at`, and `draw_under_gamma` if it sets `conjugate`.
    cdef void tabulate(self) noexcept nogil
