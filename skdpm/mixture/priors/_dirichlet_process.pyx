# SPDX-License-Identifier: BSD-3-Clause
"""The Chinese restaurant process: p = A^k Gamma(A) / Gamma(A + n) prod_j Gamma(n_j)."""
from libc.math cimport log

from skdpm._core._rng cimport bitgen_t, random_standard_gamma, uniform
from skdpm.mixture.priors._two_parameter cimport TwoParameterPrior


cdef class DirichletProcessPrior(TwoParameterPrior):
    """Dirichlet process: sigma = 0, and a new cluster weighs the concentration.

    Parameters
    ----------
    n_samples : int
    concentration : float
    """

    def __init__(self, Py_ssize_t n_samples, double concentration):
        self.conjugate = True
        self.set_concentration(concentration)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return 0.0

    cdef double draw_under_gamma(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil:
        """Escobar & West (1995), eqs. (13)-(14): exact, through eta ~ Beta(A + 1, n)."""
        cdef Py_ssize_t j
        cdef Py_ssize_t n = 0
        cdef double g, h, new_rate, odds, new_shape
        for j in range(n_counts):
            n += counts[j]
        if n == 0:
            return random_standard_gamma(rng, shape) / rate
        g = random_standard_gamma(rng, self.concentration + 1.0)
        h = random_standard_gamma(rng, <double>n)
        new_rate = rate - log(g / (g + h))
        odds = (shape + n_counts - 1.0) / (n * new_rate)
        new_shape = shape + n_counts
        if uniform(rng) * (1.0 + odds) >= odds:
            new_shape -= 1.0
        return random_standard_gamma(rng, new_shape) / new_rate
