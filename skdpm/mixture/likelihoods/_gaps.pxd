# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._rng cimport bitgen_t


cdef class Gaps:
    """Rows with missing entries, and values of these that a chain draws: see the head of _gaps."""
    cdef readonly Py_ssize_t n_values
    cdef Py_ssize_t n_features
    cdef const double[:, ::1] data      # the rows, NaN for missing entries
    cdef const Py_ssize_t[::1] items, starts, columns
    cdef const double[::1] first        # values from which chains start, if any
    cdef double[:, ::1] rows            # the completed rows
    cdef unsigned char[::1] is_open     # whether the entries of an item are missing at the moment
    cdef double[::1] work
    # Of the last `project`:
    cdef Py_ssize_t n_missing
    cdef const Py_ssize_t* missing      # (n_missing,)
    cdef double* system                 # its packed factor of M
    cdef double* along                  # (n_missing,): b
    cdef double* noise                  # (n_missing,): scratch
    cdef double log_det                 # log |M|

    cdef double project(
        self, const double* factor, const double* center, Py_ssize_t i, double unit
    ) noexcept nogil
    cdef bint draw(
        self, const double* center, Py_ssize_t i, double spread, bitgen_t* rng
    ) noexcept nogil
