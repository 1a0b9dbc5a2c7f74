# SPDX-License-Identifier: BSD-3-Clause
"""What kernels with covariance matrices share: counts, means and scatter matrices of clusters, n,
x_bar (D), C (packed by columns), scale matrices, and squares of far rows."""
from libc.math cimport INFINITY
from libc.math cimport M_PI as PI
from libc.math cimport lgamma, log
from libc.string cimport memset


cdef extern from "cholesky.h" nogil:
    bint cholesky(double* packed, Py_ssize_t n, double* log_det)
    double solve_squared(const double* packed, Py_ssize_t n, double* vector)
    void draw_normal(const double* packed, Py_ssize_t n, double* vector, const double* noise)


cdef extern from "tiles.h" nogil:
    enum: SKDPM_STRIP
    double log_positive(double x)
    void tile_keyed_moments(
        const double* x, Py_ssize_t ld, Py_ssize_t n, const Py_ssize_t* keys, Py_ssize_t key,
        Py_ssize_t n_features, double* gaps, double* out
    )
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


cdef inline void unpack_scale(
    const double* scale, bint diagonal, Py_ssize_t n_features,
    double* packed          # OUT (D (D + 1) / 2,)
) noexcept nogil:
    """S, given by rows or as its diagonal, packed by columns."""
    cdef Py_ssize_t d, e
    cdef Py_ssize_t t = 0
    for d in range(n_features):
        for e in range(d, n_features):
            if diagonal:
                packed[t] = scale[d] if d == e else 0.0
            else:
                packed[t] = scale[d * n_features + e]
            t += 1


cdef inline double log_evidence(
    double n, double r, double rho, double nu, double log_det_prior, double log_det,
    Py_ssize_t n_features
) noexcept nogil:
    """log p(n items), Murphy (2007), eq. 266; of items with weights, up to the powers of these."""
    cdef Py_ssize_t d
    cdef double total = 0.5 * (
        nu * log_det_prior - (nu + n) * log_det
        + n_features * (log(r) - log(rho) - n * log(PI))
    )
    for d in range(n_features):
        total += lgamma(0.5 * (nu + n - d)) - lgamma(0.5 * (nu - d))
    return total


cdef inline double far_square(
    const double* x, const double* center, const double* factor, Py_ssize_t n_features,
    double* work,           # scratch (D,)
    Py_ssize_t* n_steps     # OUT
) noexcept nogil:
    """The square of a row so far away that it overflows, times 1e-200 for each of `n_steps`: from
    distances divided by 1e100 until it does not."""
    cdef Py_ssize_t d, _step
    cdef double q = INFINITY
    n_steps[0] = 0
    while not q < 1e300 and n_steps[0] < 5:
        n_steps[0] += 1
        for d in range(n_features):
            work[d] = x[d] - center[d]
            for _step in range(n_steps[0]):
                work[d] *= 1e-100
        q = solve_squared(factor, n_features, work)
    return q
