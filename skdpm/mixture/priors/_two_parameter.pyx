# SPDX-License-Identifier: BSD-3-Clause
"""Pitman's two-parameter family: V_{n,1} = Gamma(A + 1) / Gamma(A + n), A the concentration, and

                         sigma    V_{n,k+1} / V_{n,k}
    Dirichlet process      0      A
    Pitman-Yor             d      A + k d
    finite Dirichlet      -a      (k0 - k) a,    a = A / k0

where d is the discount and k0 the number of components. No ratio depends on n.
"""
from libc.math cimport log

import numpy as np

from skdpm._core._math cimport log_rising


cdef class TwoParameterPrior:

    capabilities = frozenset({"weights", "constant_ratios"})

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        return log(concentration + k * self.sigma_at(concentration))

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = -log_rising(concentration + 1.0, n - 1.0)
        for j in range(1, k):
            total += self.log_new_weight(concentration, n, j)
        return total

    cdef void fill_log_v(
        self, double concentration, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last,
        double* log_v    # INOUT (last + 1,)
    ) noexcept nogil:
        cdef Py_ssize_t k
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
