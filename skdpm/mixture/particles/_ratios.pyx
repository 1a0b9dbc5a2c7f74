# SPDX-License-Identifier: BSD-3-Clause
"""Weights of a new cluster, V_{n,k+1} / V_{n,k}, at many concentrations.

They are constant in n for priors with the capability "constant_ratios". For other priors each
value may be a long sum. So from n = 64 on, log r is interpolated in n by polynomials through 12
Chebyshev points, each valid until n has grown by a half. They depend on the node and on k alone,
not on the earlier rows. The error is checked at two other points; if it exceeds 1e-10, the node is
computed directly.
"""
from libc.math cimport INFINITY, cos, exp, fabs
from libc.math cimport M_PI as PI

import numpy as np

cdef extern from "tiles.h" nogil:
    void tile_exp(double* x, Py_ssize_t n)
    void tile_combine(
        const double* table, const double* by, Py_ssize_t n_rows, Py_ssize_t n, double* out
    )

cdef double LARGEST_ERROR = 1e-10       # of an interpolated log r


cdef class NewClusterRatios:

    def __init__(self, PartitionPrior prior):
        self.prior = prior
        self.constant = "constant_ratios" in prior.capabilities

    def resize(self, const double[::1] nodes, Py_ssize_t n_k):
        """Set the concentrations, and make room for k = 0, ..., n_k - 1."""
        self.nodes = nodes
        self.n_nodes = n = nodes.shape[0]
        self.table = np.empty((n_k, n))
        self.tabulated = np.zeros(n_k, np.intp)
        if not self.constant:
            self.log_at_points = np.empty((n_k, N_POINTS, n))
            self.first = np.zeros(n_k, np.intp)
            self.inexact = np.empty((n_k, n), np.uint8)

    cdef void forget(self) noexcept nogil:
        """Forget all values after a change of the nodes."""
        cdef Py_ssize_t k
        for k in range(self.tabulated.shape[0]):
            self.tabulated[k] = 0
            if not self.constant:
                self.first[k] = 0

    cdef const double* at(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """r of n rows and k clusters: (n_nodes,)."""
        cdef Py_ssize_t g
        if self.constant:
            n = 1
        if self.tabulated[k] != n:
            self.tabulated[k] = n
            if self.constant or n < FIRST_PIECE or self.n_nodes == 1:
                for g in range(self.n_nodes):
                    self.table[k, g] = exp(self.prior.log_new_weight(self.nodes[g], n, k))
            else:
                self.interpolate(n, k)
        return &self.table[k, 0]

    cdef void interpolate(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t g, j
        cdef Py_ssize_t first = FIRST_PIECE
        cdef double* r = &self.table[k, 0]
        cdef Py_ssize_t points[N_POINTS]
        cdef double by[N_POINTS]
        cdef double top = -INFINITY
        while first + first // 2 <= n:      # ends: it grows by a half
            first += first // 2
        for j in range(N_POINTS):
            points[j] = first + <Py_ssize_t>(
                0.5 * (first // 2 - 1) * (1.0 - cos(PI * j / (N_POINTS - 1))) + 0.5
            )
        if self.first[k] != first:
            self.first[k] = first
            self.fit(points, k)
        lagrange(points, n, by)
        tile_combine(&self.log_at_points[k, 0, 0], by, N_POINTS, self.n_nodes, r)
        for g in range(self.n_nodes):
            if self.inexact[k, g]:
                r[g] = self.prior.log_new_weight(self.nodes[g], n, k)
            if not r[g] <= top:
                top = r[g]
        if top == -INFINITY:
            top = 0.0
        for g in range(self.n_nodes):
            r[g] -= top
        tile_exp(r, self.n_nodes)
        top = exp(top)
        for g in range(self.n_nodes):
            r[g] *= top

    cdef void fit(self, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil:
        """Compute log r at the points, and check the polynomials near an end and in the middle."""
        cdef Py_ssize_t g, j
        for g in range(self.n_nodes):
            self.inexact[k, g] = False
            for j in range(N_POINTS):
                self.log_at_points[k, j, g] = self.prior.log_new_weight(
                    self.nodes[g], points[j], k
                )
        self.check((points[1] + points[2]) // 2, points, k)
        self.check((points[N_POINTS // 2] + points[N_POINTS // 2 + 1]) // 2, points, k)

    cdef void check(self, Py_ssize_t n, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil:
        """Note the nodes whose polynomial is not exact at n."""
        cdef Py_ssize_t g, j
        cdef double by[N_POINTS]
        cdef double error
        lagrange(points, n, by)
        for g in range(self.n_nodes):
            error = -self.prior.log_new_weight(self.nodes[g], n, k)
            for j in range(N_POINTS):
                error += by[j] * self.log_at_points[k, j, g]
            self.inexact[k, g] |= not fabs(error) <= LARGEST_ERROR


cdef void lagrange(const Py_ssize_t* points, Py_ssize_t n, double* by) noexcept nogil:
    """Weights, at n, of the values at N_POINTS points."""
    cdef Py_ssize_t i, j
    for j in range(N_POINTS):
        by[j] = 1.0
        for i in range(N_POINTS):
            if i != j:
                by[j] *= (n - points[i]) / <double>(points[j] - points[i])
