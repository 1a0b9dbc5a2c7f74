# SPDX-License-Identifier: BSD-3-Clause
cdef extern from "tiles.h" nogil:
    void tile_exp(double* x, Py_ssize_t n)      # INOUT (n,), at most 0
    void tile_log(double* x, Py_ssize_t n)      # INOUT (n,), n a multiple of 8
