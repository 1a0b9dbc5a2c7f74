# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of numbers for Python: tables that kernels share, and sums of exponentials."""
from libc.math cimport INFINITY, exp, log

import numpy as np

from skdpm._core._math cimport MAX_TABLE, fill_log_gamma


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


def log_table(double shift, largest):
    """log(shift + m) for the counts m = 0, ..., largest, like `log_gamma_table`."""
    cdef Py_ssize_t m
    values = np.empty(min(int(largest) + 1, MAX_TABLE))
    cdef double[::1] view = values
    with nogil:
        for m in range(view.shape[0]):
            view[m] = log(shift + m)
    return values


def log_sum_exp(const double[:, ::1] terms):
    """log of the sum of exp(terms) down each column: ndarray of shape (n_columns,).

    Terms are added from top to bottom, so that the bits of a column do not depend on its
    neighbours. In the sums of NumPy and SciPy they do.
    """
    cdef Py_ssize_t k, j
    cdef Py_ssize_t n_terms = terms.shape[0]
    cdef Py_ssize_t n_columns = terms.shape[1]
    sums = np.zeros(n_columns)
    tops = np.full(n_columns, -np.inf)
    cdef double[::1] total = sums
    cdef double[::1] top = tops
    with nogil:
        for k in range(n_terms):
            for j in range(n_columns):
                if not (terms[k, j] <= top[j]):
                    top[j] = terms[k, j]
        for k in range(n_terms):
            for j in range(n_columns):
                if -INFINITY < top[j] < INFINITY:
                    total[j] += exp(terms[k, j] - top[j])
        for j in range(n_columns):
            if -INFINITY < top[j] < INFINITY:
                top[j] += log(total[j])
    return tops
