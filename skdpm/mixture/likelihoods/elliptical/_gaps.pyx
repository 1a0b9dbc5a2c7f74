# SPDX-License-Identifier: BSD-3-Clause
"""Missing entries of rows under elliptical laws: those of the other entries, and draws.

Let q = (x - m)' S^-1 (x - m), S = L D L', and let A be the missing columns of a row, B the others.
With z = L^-1 (x - m) for x_A = m_A, G the columns A of L^-1, M = G' D^-1 G = (S^-1)_AA and
b = G' D^-1 z,

    q_B    = (x_B - m_B)' S_BB^-1 (x_B - m_B) = z' D^-1 z - b' M^-1 b,
    |S_BB| = |S| |M|,
    E(x_A | x_B) = m_A - M^-1 b,  and the conditional scale matrix is M^-1.

So the factor of S serves every set of missing columns, in O(D^2) for each of them.

A cluster with a far outlier leaves M no digits. Then rotations make R triangular, where R R' = S
with the rows of B first (`rotate`). With z = R_BB^-1 (x_B - m_B) the square is q_B = z'z, and
x_A = m_A + R_AB z + R_AA times normal variates.

A kernel with `Gaps` holds completed rows. `MixtureState.place` draws x_A with the cluster.
"""
from libc.math cimport INFINITY, fabs, hypot, log, sqrt
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._cholesky cimport (
    cholesky, dot, draw_normal, products_of_four, solve_squared, substitute_four
)
from skdpm._core._rng cimport bitgen_t, random_standard_normal


# Smallest pivot of M, as a share of its diagonal entry, that has enough digits.
cdef double LEAST_PIVOT = 1e-8


cdef class Gaps:
    """Missing entries of rows, from `data` with

    - `X`: (n_samples, n_features). Rows; NaN for a missing entry.
    - `incomplete`: (n_incomplete,). Rows with missing entries, increasing.
    - `gap_starts`: (n_samples + 1,). Place of each row's first missing entry in `gap_columns`.
    - `gap_columns`: (n_gaps,). Columns of the missing entries, row by row, increasing.
    - `gap_values`: (n_gaps,). Values from which chains start; absent for new rows.
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
        cdef Py_ssize_t n_vectors = 4 * (most // 4 + 1)
        self.work = np.empty(
            (n_vectors + 2 + self.n_features) * self.n_features + most * (most + 1) // 2 + 3 * most
        )
        self.weight = &self.work[0]
        self.vectors = self.weight + self.n_features
        self.system = self.vectors + n_vectors * self.n_features
        self.along = self.system + most * (most + 1) // 2
        self.noise = self.along + most
        self.diagonal = self.noise + most
        self.rotated = self.diagonal + most
        self.along_rotated = self.rotated + self.n_features * self.n_features
        self.is_open = np.zeros(self.data.shape[0], dtype=np.uint8)
        self.is_open.base[data["incomplete"]] = 1

    @property
    def gap_items(self):
        """Row of each missing entry: ndarray of shape (n_gaps,)."""
        return np.repeat(np.arange(self.data.shape[0]), np.diff(self.starts))

    def checked(self, values=None):
        """Values of the missing entries; None: the first ones."""
        if values is None:
            if self.first is None:
                raise ValueError("new rows have no values of missing entries")
            values = self.first
        values = np.asarray(values, dtype=np.float64)
        if values.shape != (self.n_values,) or not np.isfinite(values).all():
            raise ValueError(f"expected {self.n_values} finite values of missing entries")
        return values

    def complete(self, values=None):
        """Complete all rows, (n_samples, n_features): see `ClusterModel.complete`."""
        rows = np.array(self.data)
        rows[np.isnan(rows)] = self.checked(values)
        self.rows = rows
        self.is_open[:] = 0
        return rows

    def completion(self):
        """Values of the missing entries: ndarray of shape (n_gaps,)."""
        return self.rows.base[np.isnan(self.data)]

    cdef void list_missing(self, Py_ssize_t i) noexcept nogil:
        self.n_missing = self.starts[i + 1] - self.starts[i]
        self.missing = &self.columns[self.starts[i]]

    cdef void read(self, Py_ssize_t i, double* completion) noexcept nogil:
        """Copy the values of the missing entries of row i to a completion."""
        for m in range(self.starts[i], self.starts[i + 1]):
            completion[m] = self.rows[i, self.columns[m]]

    cdef void write(self, Py_ssize_t i, const double* completion) noexcept nogil:
        """Undo `read`, and close the gaps of the row."""
        for m in range(self.starts[i], self.starts[i + 1]):
            self.rows[i, self.columns[m]] = completion[m]
        self.is_open[i] = 0

    cdef bint prepare(self, const double* precision, Py_ssize_t i) noexcept nogil:
        """Factor M of row i, from S^-1. False (determinant NaN) if it is not positive definite."""
        cdef Py_ssize_t t = 0
        self.list_missing(i)
        self.is_rotated = False
        for a in range(self.n_missing):
            for c in range(a, self.n_missing):
                self.system[t] = precision[self.missing[a] * self.n_features + self.missing[c]]
                t += 1
        return cholesky(self.system, self.n_missing, &self.log_det)

    cdef double reduce(self, const double* inverse, const double* z, double q) noexcept nogil:
        """q_B, after `prepare`, from F^-1 (F F' = S) by columns, z = F^-1 (x - m) and q = z'z."""
        cdef Py_ssize_t n = self.n_features
        for a in range(self.n_missing):
            d = self.missing[a]
            self.along[a] = self.noise[a] = dot(inverse + d * n + d, z + d, n - d)
        q -= solve_squared(self.system, self.n_missing, self.noise)
        return 0.0 if q < 0.0 else q if q < 1e300 else INFINITY

    cdef double project(
        self, const double* factor, const double* center, Py_ssize_t i, double unit
    ) noexcept nogil:
        """q_B of row i times unit^2, from the factor of S; sets what `draw` needs. NaN: no answer.

        z, for x_A = m_A, and the columns of G are vectors 0, 1, ..., n_missing, four side by side:
        their products are q, b and M."""
        cdef Py_ssize_t n = self.n_features
        cdef const double* x = &self.data[i, 0]
        cdef double* v = self.vectors
        cdef double products[16]
        cdef double q = 0.0
        self.list_missing(i)
        m = self.n_missing
        memset(v, 0, 4 * n * (m // 4 + 1) * sizeof(double))
        t = 0
        for d in range(n):
            self.weight[d] = factor[t]
            t += n - d
            v[4 * d] = (x[d] - center[d]) * unit
        for a in range(m):
            v[4 * self.missing[a]] = 0.0
        for a in range(m):
            v[4 * (n * ((a + 1) // 4) + self.missing[a]) + (a + 1) % 4] = 1.0
        for g in range(m // 4 + 1):
            substitute_four(factor, n, v + 4 * n * g)
        for g in range(m // 4 + 1):
            for h in range(g, m // 4 + 1):
                products_of_four(v + 4 * n * g, v + 4 * n * h, self.weight, n, products)
                for b in range(4 * g, min(4 * g + 4, m + 1)):
                    for c in range(max(b, 4 * h), min(4 * h + 4, m + 1)):
                        if b > 0:
                            t = (b - 1) * m - (b - 1) * (b - 2) // 2 + (c - b)
                            self.system[t] = products[4 * (b % 4) + c % 4]
                        elif c > 0:
                            self.along[c - 1] = self.noise[c - 1] = products[c % 4 + 4 * (b % 4)]
                        else:
                            q = products[0]
        t = 0
        for a in range(m):
            self.diagonal[a] = self.system[t]
            t += m - a
        self.is_rotated = not cholesky(self.system, m, &self.log_det)
        t = 0
        for a in range(m):
            self.is_rotated |= not self.system[t] * self.diagonal[a] < 1.0 / LEAST_PIVOT
            t += m - a
        if self.is_rotated:
            return self.rotate(factor, center, unit, x)
        q -= solve_squared(self.system, m, self.noise)
        return 0.0 if q < 0.0 else q if q < 1e300 else INFINITY

    cdef double rotate(
        self, const double* factor, const double* center, double unit, const double* x
    ) noexcept nogil:
        """The same without M, in O(D^3): see the head of this file."""
        cdef Py_ssize_t a, e
        cdef Py_ssize_t n = self.n_features
        cdef Py_ssize_t n_known = n - self.n_missing
        cdef double* R = self.rotated       # (D, D) by rows
        cdef double* z = self.along_rotated
        cdef const double* column = factor
        cdef double q = 0.0
        self.log_det = 0.0
        memset(R, 0, n * n * sizeof(double))
        for j in range(n):
            self.log_det += log(column[0])      # -log |S| in all
            length = sqrt(1.0 / column[0])
            a = e = 0
            for d in range(n):
                if a < self.n_missing and self.missing[a] == d:
                    r = n_known + a
                    a += 1
                else:
                    r = e
                    e += 1
                if d >= j:
                    R[r * n + j] = length if d == j else length * column[d - j]
            column += n - j
        for r in range(n):
            for j in range(r + 1, n):
                length = hypot(R[r * n + r], R[r * n + j])
                if R[r * n + j] == 0.0:
                    continue
                c = R[r * n + r] / length
                s = R[r * n + j] / length
                for d in range(r, n):
                    v = R[d * n + j]
                    R[d * n + j] = c * v - s * R[d * n + r]
                    R[d * n + r] = c * R[d * n + r] + s * v
                R[r * n + j] = 0.0
        a = r = 0
        for d in range(n):
            if a < self.n_missing and self.missing[a] == d:
                a += 1
                continue
            v = (x[d] - center[d]) * unit
            for j in range(r):
                v -= R[r * n + j] * z[j]
            z[r] = v / R[r * n + r]
            q += z[r] * z[r]
            self.log_det += 2.0 * log(fabs(R[r * n + r]))
            r += 1
        return q if q < 1e300 or q != q else INFINITY

    cdef bint draw(
        self, const double* center, Py_ssize_t i, double spread, bitgen_t* rng
    ) noexcept nogil:
        """x_A ~ N(c_A - M^-1 b, spread^2 M^-1), where b is that of `reduce` for x_A = c_A; without
        a centre, c_A = 0. The gaps of the row are then closed. False if a value is not finite."""
        cdef double* row = &self.rows[i, 0]
        cdef Py_ssize_t n = self.n_features
        cdef bint good = True
        for a in range(self.n_missing):
            self.along[a] = -self.along[a]
            self.noise[a] = spread * random_standard_normal(rng)
        if self.is_rotated:
            d = n - self.n_missing
            memcpy(self.along_rotated + d, self.noise, self.n_missing * sizeof(double))
            for a in range(self.n_missing):
                d = n - self.n_missing + a
                self.along[a] = dot(self.rotated + d * n, self.along_rotated, d + 1)
        else:
            draw_normal(self.system, self.n_missing, self.along, self.noise)
        for a in range(self.n_missing):
            row[self.missing[a]] = self.along[a]
            if center != NULL:
                row[self.missing[a]] += center[self.missing[a]]
            good &= row[self.missing[a]] - row[self.missing[a]] == 0.0
        self.is_open[i] = 0
        return good
