# SPDX-License-Identifier: BSD-3-Clause
"""Tables of numbers that kernels share, and coordinates of rows, for Python."""

import numpy as np

from skdpm._core._math cimport MAX_TABLE, fill_log_gamma


cdef extern from "tiles.h" nogil:
    void tile_rotate(
        const double* x, Py_ssize_t n, Py_ssize_t n_features, const double* center,
        const double* axes, Py_ssize_t n_axes, double* out
    )


def log_gamma_table(double shift, largest):
    """log Gamma(shift + m) for the counts m = 0, ..., largest, at most 2**20 of them: an ndarray
    for `count_table` of `_math.pxd`, which computes values beyond its end."""
    values = np.empty(min(int(largest) + 1, MAX_TABLE))
    cdef double[::1] view = values
    if values.size == 0:
        return values
    with nogil:
        fill_log_gamma(&view[0], view.shape[0], shift)
    return values


def rotate(X, const double[::1] center, const double[:, ::1] axes):
    """Coordinates of the rows of X, (n_rows, n_features), on some axes, (n_features, n_axes), from
    the origin `center`: (n_rows, n_axes). Their bits do not depend on the other rows."""
    cdef const double[:, ::1] rows = np.ascontiguousarray(X, dtype=np.float64)
    cdef Py_ssize_t n = rows.shape[0], n_axes = axes.shape[1]
    if rows.shape[1] != center.shape[0] or rows.shape[1] != axes.shape[0]:
        raise ValueError(f"rows of {rows.shape[1]} columns, axes of {axes.shape[0]}")
    cdef double[:, ::1] points = np.zeros((n, n_axes))
    if n > 0 and n_axes > 0 and rows.shape[1] > 0:
        with nogil:
            tile_rotate(
                &rows[0, 0], n, rows.shape[1], &center[0], &axes[0, 0], n_axes, &points[0, 0]
            )
    return np.asarray(points)
