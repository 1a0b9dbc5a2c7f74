# SPDX-License-Identifier: BSD-3-Clause
"""Pitman's two-parameter family: V_{n,1} = Gamma(A + 1) / Gamma(A + n), A the concentration, and

                         sigma    V_{n,k+1} / V_{n,k}
    Dirichlet process      0      A
    Pitman-Yor             d      A + k d
    finite Dirichlet      -a      (k0 - k) a,    a = A / k0

where d is the discount and k0 the number of components. No ratio depends on n.
"""
from libc.math cimport INFINITY, log

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._rng cimport bitgen_t, random_standard_gamma, uniform


cdef class TwoParameterPrior:

    capabilities = frozenset({"weights", "constant_ratios"})

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        return log(concentration + k * self.sigma_at(concentration))

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        cdef double total = -log_rising(concentration + 1.0, n - 1.0)
        for j in range(1, k):
            total += self.log_new_weight(concentration, n, j)
        return total

    cdef void fill_log_v(
        self, double concentration, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last, double* log_v
    ) noexcept nogil:
        if first == 1:
            log_v[1] = -log_rising(concentration + 1.0, n - 1.0)
            first = 2
        for k in range(first, last + 1):
            log_v[k] = log_v[k - 1] + self.log_new_weight(concentration, n, k - 1)

    def weight_parameters(self, sizes):
        """n_k - sigma, and A + K sigma for all others, 0 if there are none: Pitman (1996), Some
        developments of the Blackwell-MacQueen urn scheme, corollary 20."""
        sizes = np.asarray(sizes, dtype=np.float64)
        others = max(self.concentration + len(sizes) * self.sigma, 0.0)
        return np.append(sizes - self.sigma, others)


cdef class DirichletProcessPrior(TwoParameterPrior):
    """Dirichlet process: sigma = 0, and a new cluster weighs the concentration A:

        p = A^k Gamma(A) / Gamma(A + n) prod_j Gamma(n_j).
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
        cdef Py_ssize_t n = 0
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


cdef class FiniteDirichletPrior(TwoParameterPrior):
    """Finite symmetric Dirichlet: sigma = -a, a = A / k0. Partitions by labels under symmetric
    Dirichlet weights of k0 components, unlabelled, have

        p = k0! / (k0 - k)! Gamma(A) / Gamma(n + A) prod_j Gamma(n_j + a) / Gamma(a),    k <= k0.

    `concentration` is the total of the Dirichlet parameters of all components.
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


cdef class PitmanYorPrior(TwoParameterPrior):
    """Pitman-Yor process: sigma = d, the discount, and

        p = prod_{0<i<k} (A + i d) / prod_{0<i<n} (A + i) prod_j Gamma(n_j - d) / Gamma(1 - d).

    - `concentration`: Above -discount.
    - `discount`: In [0, 1).
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
