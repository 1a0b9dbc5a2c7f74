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
    cdef double[::1] work               # scratch:
    cdef double* weight                 # (D,): D^-1
    cdef double* vectors                # (n, 4) for each four of z and the columns of G
    cdef double* system                 # packed factor of M
    cdef double* along                  # (n_missing,): b
    cdef double* noise                  # (n_missing,): scratch
    cdef double* diagonal               # (n_missing,): that of M
    cdef double* rotated                # (D, D): R, in place of the factor of M
    cdef double* along_rotated          # (D,): z, and normal variates
    cdef bint is_rotated                # whether R is in use
    cdef double log_det                 # log |M|
    cdef Py_ssize_t n_missing           # of the last row
    cdef const Py_ssize_t* missing      # (n_missing,)

    cdef void list_missing(self, Py_ssize_t i) noexcept nogil
    cdef void read(self, Py_ssize_t i, double* completion) noexcept nogil
    cdef void write(self, Py_ssize_t i, const double* completion) noexcept nogil
    cdef bint prepare(self, const double* precision, Py_ssize_t i) noexcept nogil
    cdef double reduce(self, const double* inverse, const double* z, double q) noexcept nogil
    cdef double project(
        self, const double* factor, const double* center, Py_ssize_t i, double unit
    ) noexcept nogil
    cdef double rotate(
        self, const double* factor, const double* center, double unit, const double* x
    ) noexcept nogil
    cdef bint draw(
        self, const double* center, Py_ssize_t i, double spread, bitgen_t* rng
    ) noexcept nogil
