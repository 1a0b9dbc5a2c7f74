# SPDX-License-Identifier: BSD-3-Clause
"""Partitions by labels under symmetric Dirichlet weights of k0 components, unlabelled:

    p = k0!/(k0-k)! Gamma(A)/Gamma(n + A) prod_j Gamma(n_j + a)/Gamma(a),    a = A/k0, k <= k0.
"""
from libc.math cimport INFINITY, log

from skdpm.mixture.priors._two_parameter cimport TwoParameterPrior


cdef class FiniteDirichletPrior(TwoParameterPrior):
    """Finite symmetric Dirichlet: sigma = -a, a = concentration / n_components.

    Parameters
    ----------
    n_samples : int
    concentration : float
        Total of the Dirichlet parameters of all components.
    n_components : int
    """
    capabilities = TwoParameterPrior.capabilities | {"n_components"}

    def __init__(self, Py_ssize_t n_samples, double concentration, Py_ssize_t n_components):
        self.n_components = n_components
        self.set_concentration(concentration)

    @property
    def most_clusters(self):
        return min(self.n_components, self.n_samples)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return -concentration / self.n_components

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        if k >= self.n_components:
            return -INFINITY
        return log((self.n_components - k) * (concentration / self.n_components))
