# SPDX-License-Identifier: BSD-3-Clause
"""The Pitman-Yor process with discount d:

    p = prod_{0<i<k} (A + i d) / prod_{0<i<n} (A + i) prod_j Gamma(n_j - d) / Gamma(1 - d).
"""
from skdpm.mixture.priors._two_parameter cimport TwoParameterPrior


cdef class PitmanYorPrior(TwoParameterPrior):
    """Pitman-Yor process: sigma = d, the discount.

    Parameters
    ----------
    n_samples : int
    concentration : float
        Concentration, above -discount.
    discount : float
        Discount, in [0, 1).
    """
    cdef readonly double discount

    def __init__(self, Py_ssize_t n_samples, double concentration, double discount):
        self.discount = discount
        self.set_concentration(concentration)

    @property
    def lowest_concentration(self):
        return 0.0 - self.discount      # avoids -0.0 in messages

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return self.discount
