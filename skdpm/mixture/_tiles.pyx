# SPDX-License-Identifier: BSD-3-Clause
"""Tiles of rows that are close, and boxes around them.

Rows are cut at a median of their widest column (in units of its standard deviation), and so are
both halves, as in a k-d tree (Bentley 1975), until a tile is left: any rows, in any number of
columns, in n log n steps, without random numbers. Cuts are made at multiples of a group of tiles,
then of a tile, so that all but the last ones are full.

A kernel that can bound a density over a box (`ClusterModel.log_predictive_bound_many`) spares its
caller the clusters that are too far from a tile to weigh anything there.
"""
from libc.float cimport DBL_EPSILON, DBL_MIN
from libc.math cimport fabs
from libc.stdlib cimport free

import numpy as np

from skdpm._core._memory cimport resized


cdef void select(
    const double* x, Py_ssize_t stride, Py_ssize_t* order, Py_ssize_t n, Py_ssize_t middle
) noexcept nogil:
    """Arrange row numbers so that those before `middle` have values not above, and those from it
    on not below, one another's: Hoare's quickselect."""
    cdef Py_ssize_t i, j, t
    cdef Py_ssize_t low = 0
    cdef Py_ssize_t high = n - 1
    cdef double a, b, c, pivot
    while low < high:
        a = x[order[low] * stride]
        b = x[order[(low + high) // 2] * stride]
        c = x[order[high] * stride]
        pivot = max(min(a, b), min(max(a, b), c))
        i = low
        j = high
        while i <= j:
            while x[order[i] * stride] < pivot:
                i += 1
            while x[order[j] * stride] > pivot:
                j -= 1
            if i <= j:
                t = order[i]
                order[i] = order[j]
                order[j] = t
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


cdef void enclose(
    const double* x, Py_ssize_t n_features, const Py_ssize_t* order, Py_ssize_t n,
    double* box     # OUT (2 n_features,)
) noexcept nogil:
    """The least box around some rows, rounded up."""
    cdef Py_ssize_t d, i
    cdef double value
    cdef double* low = box
    cdef double* high = box + n_features
    for d in range(n_features):
        low[d] = high[d] = x[order[0] * n_features + d]
    for i in range(1, n):
        for d in range(n_features):
            value = x[order[i] * n_features + d]
            low[d] = min(low[d], value)
            high[d] = max(high[d], value)
    for d in range(n_features):
        value = 0.5 * low[d] + 0.5 * high[d]
        high[d] = max(high[d] - value, value - low[d])
        high[d] += 4.0 * DBL_EPSILON * (fabs(value) + high[d]) + DBL_MIN
        low[d] = value


cdef void cut(
    const double* x, Py_ssize_t n_features, const double* scale, Py_ssize_t* order,
    Py_ssize_t n, Py_ssize_t group, Py_ssize_t tile,     # rows in them
    double* box                                          # scratch
) noexcept nogil:
    """Order some rows: see the head of this file."""
    cdef Py_ssize_t d, unit, middle
    cdef Py_ssize_t widest = 0
    if n <= tile:
        return
    enclose(x, n_features, order, n, box)
    for d in range(1, n_features):
        if box[n_features + d] * scale[d] > box[n_features + widest] * scale[widest]:
            widest = d
    unit = group if n > group else tile
    middle = (n // 2 + unit - 1) // unit * unit
    select(x + widest, n_features, order, n, middle)
    cut(x, n_features, scale, order, middle, group, tile, box)
    cut(x, n_features, scale, order + middle, n - middle, group, tile, box)


cdef class RowTiles:
    """Rows in an order in which close ones follow one another, in tiles, and these in groups.

    Parameters
    ----------
    points : ndarray of shape (n_rows, n_features)
        Finite; n_features > 0.
    tile_size : int, default=32
        Rows in a tile.
    group_size : int, default=16
        Tiles in a group.
    """

    def __cinit__(
        self, const double[:, ::1] points, Py_ssize_t tile_size=32, Py_ssize_t group_size=16
    ):
        cdef Py_ssize_t first, t
        cdef Py_ssize_t n_rows = points.shape[0]
        cdef Py_ssize_t n_features = points.shape[1]
        cdef Py_ssize_t group = tile_size * group_size
        cdef const double[::1] scale
        cdef const double* x = &points[0, 0] if n_rows else NULL
        if n_features < 1 or tile_size < 1 or group_size < 1:
            raise ValueError("tiles need columns, rows and groups tiles")
        self.n_rows = n_rows
        self.n_features = n_features
        self.tile_size = tile_size
        self.group_size = group_size
        self.n_tiles = (n_rows + tile_size - 1) // tile_size
        self.n_groups = (n_rows + group - 1) // group
        self.order = <Py_ssize_t*>resized(NULL, n_rows, sizeof(Py_ssize_t))
        self.boxes = <double*>resized(NULL, 2 * n_features * self.n_tiles, sizeof(double))
        self.group_boxes = <double*>resized(
            NULL, 2 * n_features * (self.n_groups + 1), sizeof(double)
        )
        deviations = np.std(points, axis=0) if n_rows else np.ones(n_features)
        with np.errstate(divide="ignore", over="ignore"):
            inverse = np.where(deviations > 0.0, 1.0 / deviations, 0.0)
        scale = np.nan_to_num(inverse)
        with nogil:
            for t in range(n_rows):
                self.order[t] = t
            # The last box, of no group, is scratch memory.
            cut(
                x, n_features, &scale[0], self.order, n_rows, group, tile_size,
                self.group_boxes + 2 * n_features * self.n_groups
            )
            for t in range(self.n_tiles):
                first = t * tile_size
                enclose(
                    x, n_features, self.order + first, min(tile_size, n_rows - first),
                    self.boxes + 2 * n_features * t
                )
            for t in range(self.n_groups):
                first = t * group
                enclose(
                    x, n_features, self.order + first, min(group, n_rows - first),
                    self.group_boxes + 2 * n_features * t
                )

    def __dealloc__(self):
        free(self.order)
        free(self.boxes)
        free(self.group_boxes)

    def row_order(self):
        """The order of the rows: ndarray of shape (n_rows,), intp."""
        order = np.empty(self.n_rows, dtype=np.intp)
        cdef Py_ssize_t[::1] view = order
        cdef Py_ssize_t i
        for i in range(self.n_rows):
            view[i] = self.order[i]
        return order

    def tile_boxes(self):
        """Centres, then half-widths, of the tiles' boxes: ndarray of shape (n_tiles, 2,
        n_features)."""
        boxes = np.empty((self.n_tiles, 2, self.n_features))
        cdef double[::1] view = boxes.ravel()
        cdef Py_ssize_t t
        for t in range(view.shape[0]):
            view[t] = self.boxes[t]
        return boxes
