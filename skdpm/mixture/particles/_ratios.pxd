# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.priors._base cimport PartitionPrior

cdef enum:
    FIRST_PIECE = 64    # the smallest n from which on ratios are interpolated in n
    N_POINTS = 12       # of a polynomial


cdef class NewClusterRatios:
    """r = V_{n,k+1} / V_{n,k} at every node of a concentration: the weight of a new cluster."""
    cdef PartitionPrior prior
    cdef readonly bint constant             # r does not depend on n
    cdef Py_ssize_t n_nodes
    cdef const double[::1] nodes
    cdef double[:, ::1] table               # (n_k, n_nodes): r
    cdef Py_ssize_t[::1] tabulated          # (n_k,): n of the table, 0 for none
    cdef double[:, :, ::1] log_at_points    # (n_k, N_POINTS, n_nodes): log r
    cdef Py_ssize_t[::1] first              # (n_k,): the first n of the polynomials, 0 for none
    cdef unsigned char[:, ::1] inexact      # (n_k, n_nodes): polynomials that are not used

    cdef void forget(self) noexcept nogil
    cdef const double* at(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil
    cdef void interpolate(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil
    cdef void fit(self, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil
    cdef void check(self, Py_ssize_t n, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil
