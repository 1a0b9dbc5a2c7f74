# SPDX-License-Identifier: BSD-3-Clause
"""Tables of numbers that kernels share, for Python."""
from libc.math cimport log

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
