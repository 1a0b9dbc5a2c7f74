# SPDX-License-Identifier: BSD-3-Clause
"""Counts, means and scatter matrices of clusters: n, x_bar (D), C (packed by columns)."""
from libc.string cimport memset


cdef extern from "tiles.h" nogil:
    void tile_scatter(const double* x, Py_ssize_t n, Py_ssize_t n_features, double* out)


cdef inline void combine_moments(
    double* stats, const double* other, Py_ssize_t n_features, double* gap    # scratch (D,)
) noexcept nogil:
    """Counts, means and scatters of two clusters: Chan, Golub & LeVeque (1983), eq. 1.5; without
    cancellation."""
    cdef Py_ssize_t d, e
    cdef Py_ssize_t t = 1 + n_features
    cdef double n = stats[0] + other[0]
    cdef double weight
    if other[0] == 0.0:
        return
    weight = stats[0] * other[0] / n
    for d in range(n_features):
        gap[d] = other[1 + d] - stats[1 + d]
        stats[1 + d] += gap[d] * other[0] / n
    for d in range(n_features):
        for e in range(d, n_features):
            stats[t] += other[t] + weight * gap[d] * gap[e]
            t += 1
    stats[0] = n


cdef inline void moments_of(
    const double* X, const Py_ssize_t* items, Py_ssize_t n_items, Py_ssize_t n_features,
    double* work,           # scratch (n_items * D,)
    double* moments         # OUT (1 + D + D (D + 1) / 2,)
) noexcept nogil:
    """The moments of some rows, about their own mean."""
    cdef Py_ssize_t d, i
    cdef double* mean = moments + 1
    cdef const double* x
    cdef double* centred = work
    memset(moments, 0, (1 + n_features + n_features * (n_features + 1) // 2) * sizeof(double))
    moments[0] = n_items
    for i in range(n_items):
        x = X + items[i] * n_features
        for d in range(n_features):
            mean[d] += x[d]
    for d in range(n_features):
        mean[d] /= n_items
    for i in range(n_items):
        x = X + items[i] * n_features
        for d in range(n_features):
            centred[d] = x[d] - mean[d]
        centred += n_features
    tile_scatter(work, n_items, n_features, mean + n_features)
