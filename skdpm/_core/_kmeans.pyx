# SPDX-License-Identifier: BSD-3-Clause
"""k-means in one thread, with the same bits on every machine: pieces that chains start from."""
from libc.math cimport INFINITY

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, integer, uniform


cdef Py_ssize_t nearest(
    const double* x, const double[:, ::1] centres, Py_ssize_t n_centres, double* squares
) noexcept nogil:
    """The nearest of the first n_centres `centres`; squared distances go to `squares`."""
    cdef Py_ssize_t best = 0
    for k in range(n_centres):
        squares[k] = 0.0
    for d in range(centres.shape[0]):
        # The inner loop is over centres, which the compiler vectorises.
        centre = &centres[d, 0]
        for k in range(n_centres):
            gap = x[d] - centre[k]
            squares[k] += gap * gap
    for k in range(1, n_centres):
        if squares[k] < squares[best]:
            best = k
    return best


def kmeans(points, Py_ssize_t n_centres, bit_generator, Py_ssize_t n_iterations=10):
    """Cut points into pieces by k-means: k-means++ (Arthur & Vassilvitskii 2007), then Lloyd.
    Points are finite, (n, n_features). No piece is empty: there may be fewer than n_centres.

    The order of all sums is fixed, so that a seed gives the same bits for any number of threads.
    """
    cdef Py_ssize_t changes
    cdef const double[:, ::1] x = np.ascontiguousarray(points, dtype=np.float64)
    cdef Py_ssize_t n = x.shape[0], n_features = x.shape[1]
    cdef double[:, ::1] centres = np.zeros((n_features, n_centres))
    cdef double[:, ::1] sums = np.zeros((n_centres, n_features))
    cdef double[::1] sizes = np.zeros(n_centres)
    cdef double[::1] squares = np.zeros(n_centres)
    cdef double[::1] far = np.full(n, INFINITY)     # squared distance to the nearest centre
    labels = np.zeros(n, dtype=np.intp)
    cdef Py_ssize_t[::1] label = labels
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    cdef double total
    if n_features == 0:
        return labels
    with bit_generator.lock, nogil:
        for k in range(n_centres):
            if k == 0:
                i = integer(rng, n)
            else:
                total = 0.0
                for i in range(n):
                    total += far[i]
                if not total > 0.0:
                    n_centres = k
                    break
                u = uniform(rng) * total
                i = -1
                # If rounding leaves u above 0, the last point that is not a centre.
                for d in range(n):
                    if far[d] > 0.0:
                        i = d
                        u -= far[d]
                        if u < 0.0:
                            break
            for d in range(n_features):
                centres[d, k] = x[i, d]
            for i in range(n):
                total = 0.0
                for d in range(n_features):
                    gap = x[i, d] - centres[d, k]
                    total += gap * gap
                if total < far[i]:
                    far[i] = total
                    label[i] = k
        for _iteration in range(n_iterations):
            for k in range(n_centres):
                sizes[k] = 0.0
                for d in range(n_features):
                    sums[k, d] = 0.0
            for i in range(n):
                sizes[label[i]] += 1.0
                for d in range(n_features):
                    sums[label[i], d] += x[i, d]
            for k in range(n_centres):
                if sizes[k] > 0.0:
                    for d in range(n_features):
                        centres[d, k] = sums[k, d] / sizes[k]
            changes = 0
            for i in range(n):
                k = nearest(&x[i, 0], centres, n_centres, &squares[0])
                changes += k != label[i]
                label[i] = k
            if changes == 0:
                break
    return np.unique(labels, return_inverse=True)[1]
