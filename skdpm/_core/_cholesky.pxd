# SPDX-License-Identifier: BSD-3-Clause
cdef extern from "cholesky.h" nogil:
    bint cholesky(double* packed, Py_ssize_t n, double* log_det)
    bint factorize(
        const double* matrix, Py_ssize_t n, Py_ssize_t stride, double* packed, double* log_det
    )
    bint cholesky_above(double* packed, Py_ssize_t n, const double* least, double* log_det)
    bint cholesky_update(
        double* packed, Py_ssize_t n, double* vector, double alpha, double* log_det
    )
    void add_square(double* packed, Py_ssize_t n, const double* v, double by)
    double dot(const double* x, const double* y, Py_ssize_t n)
    double solve_squared(const double* packed, Py_ssize_t n, double* vector)
    double gap_squared(
        const double* packed, Py_ssize_t n, const double* x, const double* c, double* vector
    )
    void draw_normal(const double* packed, Py_ssize_t n, double* vector, const double* noise)
    void substitute_four(const double* packed, Py_ssize_t n, double* vectors)
    void products_of_four(
        const double* a, const double* b, const double* weight, Py_ssize_t n, double* out
    )
