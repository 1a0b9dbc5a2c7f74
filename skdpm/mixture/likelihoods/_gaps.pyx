# SPDX-License-Identifier: BSD-3-Clause
"""Missing entries of rows under elliptical laws: those of the other entries, and draws.

Let q = (x - m)' S^-1 (x - m), S = L D L', and let A be the missing columns of a row, B the others.
With z = L^-1 (x - m) for x_A = m_A, G the columns A of L^-1, M = G' D^-1 G = (S^-1)_AA and
b = G' D^-1 z,

    q_B    = (x_B - m_B)' S_BB^-1 (x_B - m_B) = z' D^-1 z - b' M^-1 b,
    |S_BB| = |S| |M|,
    E(x_A | x_B) = m_A - M^-1 b,  and the conditional scale matrix is M^-1.

So the factor of S serves every set of missing columns, in O(D^2) for each of them.

A kernel with `Gaps` holds completed rows. Samplers that move partitions see no missing entries. A
Gibbs update of a row with gaps draws them with its cluster: it weighs the clusters by the densities
of x_B, and draws x_A given x_B and the cluster (`MixtureState.place`).
"""
from libc.math cimport INFINITY, NAN
from libc.string cimport memset

import numpy as np

from skdpm._core._rng cimport bitgen_t, random_standard_normal


cdef extern from "cholesky.h" nogil:
    bint cholesky(double* packed, Py_ssize_t n, double* log_det)
    void substitute(const double* packed, Py_ssize_t n, double* vector)
    double dot(const double* x, const double* y, Py_ssize_t n)
    double solve_squared(const double* packed, Py_ssize_t n, double* vector)
    void draw_normal(const double* packed, Py_ssize_t n, double* vector, const double* noise)


cdef class Gaps:
    """Missing entries of rows.

    Parameters
    ----------
    data : dict
        X : ndarray of shape (n_samples, n_features)
            Rows; NaN for a missing entry.
        incomplete : ndarray of shape (n_incomplete,), intp
            Rows with missing entries, increasing.
        gap_starts : ndarray of shape (n_samples + 1,), intp
            Place of the first missing entry of each row in `gap_columns`.
        gap_columns : ndarray of shape (n_gaps,), intp
            Columns of the missing entries, row by row, increasing.
        gap_values : ndarray of shape (n_gaps,)
            Values from which chains start; absent for new rows.
    """

    def __init__(self, data):
        self.data = data["X"]
        self.n_features = self.data.shape[1]
        self.items = data["incomplete"]
        self.starts = data["gap_starts"]
        self.columns = data["gap_columns"]
        self.first = data.get("gap_values")
        self.n_values = self.columns.shape[0]
        cdef Py_ssize_t most = np.diff(data["gap_starts"]).max(initial=1)
        self.work = np.empty((most + 2) * self.n_features + most * (most + 1) // 2 + 2 * most)
        self.weight = &self.work[0] + self.n_features
        self.inverse = self.weight + self.n_features
        self.system = self.inverse + most * self.n_features
        self.along = self.system + most * (most + 1) // 2
        self.noise = self.along + most
        self.is_open = np.zeros(self.data.shape[0], dtype=np.uint8)
        self.is_open.base[data["incomplete"]] = 1

    def complete(self, values=None):
        """Complete all rows; see `ClusterModel.complete`. Returns them, (n_samples,
        n_features)."""
        if values is None:
            if self.first is None:
                raise ValueError("new rows have no values of missing entries")
            values = self.first
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (self.n_values,) or not np.isfinite(values).all():
            raise ValueError(f"expected {self.n_values} finite values of missing entries")
        rows = np.array(self.data)
        rows[np.isnan(rows)] = values
        self.rows = rows
        self.is_open[:] = 0
        return rows

    def completion(self):
        """Values of the missing entries: ndarray of shape (n_gaps,)."""
        return self.rows.base[np.isnan(self.data)]

    cdef void list_missing(self, Py_ssize_t i) noexcept nogil:
        self.n_missing = self.starts[i + 1] - self.starts[i]
        self.missing = &self.columns[self.starts[i]]

    cdef bint prepare(self, const double* factor, Py_ssize_t i) noexcept nogil:
        """Factor M for row i, from that of S. False, and a determinant of NaN, if M is not
        positive definite."""
        cdef Py_ssize_t a, c, d, first
        cdef Py_ssize_t n = self.n_features
        cdef Py_ssize_t t = 0
        cdef double* weight = self.weight
        cdef double* g = self.inverse
        self.list_missing(i)
        for d in range(n):
            weight[d] = factor[t]
            t += n - d
        t = 0
        for a in range(self.n_missing):
            first = self.missing[a]
            memset(g, 0, n * sizeof(double))
            g[first] = 1.0
            substitute(factor + first * n - first * (first - 1) // 2, n - first, g + first)
            # The columns before have their weights.
            for c in range(a):
                self.system[c * self.n_missing - c * (c - 1) // 2 + a - c] = dot(
                    self.inverse + c * n + first, g + first, n - first
                )
            self.system[a * self.n_missing - a * (a - 1) // 2] = 0.0
            for d in range(first, n):
                self.system[a * self.n_missing - a * (a - 1) // 2] += g[d] * (weight[d] * g[d])
                g[d] *= weight[d]
            g += n
        return cholesky(self.system, self.n_missing, &self.log_det)

    cdef bint prepare_white(self, const double* precision, Py_ssize_t i) noexcept nogil:
        """The same from a matrix S^-1, (D, D); `reduce_white` follows."""
        cdef Py_ssize_t a, c
        cdef Py_ssize_t t = 0
        self.list_missing(i)
        for a in range(self.n_missing):
            for c in range(a, self.n_missing):
                self.system[t] = precision[self.missing[a] * self.n_features + self.missing[c]]
                t += 1
        return cholesky(self.system, self.n_missing, &self.log_det)

    cdef double reduce(
        self, const double* inverse, const double* z, double q
    ) noexcept nogil:
        """q_B, from z and q = z' D^-1 z for any x_A. `inverse` is D^-1 G by columns, after
        `prepare_white` all columns of D^(-1/2) L^-1, with D^(-1/2) z in place of z."""
        cdef Py_ssize_t a, d
        cdef Py_ssize_t n = self.n_features
        for a in range(self.n_missing):
            d = self.missing[a]
            self.along[a] = self.noise[a] = dot(
                inverse + (a if inverse == self.inverse else d) * n + d, z + d, n - d
            )
        q -= solve_squared(self.system, self.n_missing, self.noise)
        return 0.0 if q < 0.0 else q if q < 1e300 else INFINITY

    cdef double project(
        self, const double* factor, const double* center, Py_ssize_t i, double unit
    ) noexcept nogil:
        """`prepare`, and q_B divided by unit^2, from z for x_A = m_A. NaN if M is not positive
        definite."""
        cdef Py_ssize_t a, d
        cdef Py_ssize_t n = self.n_features
        cdef const double* x = &self.data[i, 0]
        cdef double* z = &self.work[0]
        cdef double q = 0.0
        if not self.prepare(factor, i):
            return NAN
        for d in range(n):
            z[d] = (x[d] - center[d]) * unit
        for a in range(self.n_missing):
            z[self.missing[a]] = 0.0
        substitute(factor, n, z)
        for d in range(n):
            q += z[d] * (z[d] * self.weight[d])
        return self.reduce(self.inverse, z, q)

    cdef bint draw(
        self, const double* center, Py_ssize_t i, double spread, bitgen_t* rng
    ) noexcept nogil:
        """x_A ~ N(c_A - M^-1 b, spread^2 M^-1), where b is that of `reduce` for x_A = c_A; without
        a centre, c_A = 0. The gaps of the row are then closed. False if a value is not finite."""
        cdef Py_ssize_t a
        cdef double* row = &self.rows[i, 0]
        cdef bint good = True
        for a in range(self.n_missing):
            self.along[a] = -self.along[a]
            self.noise[a] = spread * random_standard_normal(rng)
        draw_normal(self.system, self.n_missing, self.along, self.noise)
        for a in range(self.n_missing):
            row[self.missing[a]] = self.along[a]
            if center != NULL:
                row[self.missing[a]] += center[self.missing[a]]
            good &= row[self.missing[a]] - row[self.missing[a]] == 0.0
        self.is_open[i] = 0
        return good
