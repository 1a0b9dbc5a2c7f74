# SPDX-License-Identifier: BSD-3-Clause
"""Prior of Gnedin (2010), A species sampling model with finitely many types. Its sigma is -1, and

    V_{n,k} = (c)_{n-k} (1 - c)_{k-1} (k - 1)! / ((1 + c)_{n-1} (n - 1)!),    0 < c < 1.

It is a mixture over the number K of components, with uniform weights, Dirichlet(1, ..., 1), and
p(K) = c (1 - c)_{K-1} / K!, whose tail is as heavy as that of K^(-1 - c). Here c = 1 / (1 + A)
with the concentration A > 0: the larger it is, the more clusters.
"""
from libc.math cimport lgamma

from skdpm._core._math cimport log_rising
from skdpm.mixture.priors._base cimport PartitionPrior


cdef class GnedinPrior(PartitionPrior):
    """Gnedin's prior of partitions, with an unknown, finite number of components.

    Parameters
    ----------
    n_samples : int
    concentration : float
    """

    def __init__(self, Py_ssize_t n_samples, double concentration):
        self.set_concentration(concentration)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return -1.0

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        cdef double c = 1.0 / (1.0 + concentration)
        return (
            log_rising(c, n - k) + log_rising(concentration * c, k - 1.0) + lgamma(<double>k)
            - log_rising(1.0 + c, n - 1.0) - lgamma(<double>n)
        )
