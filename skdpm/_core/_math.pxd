# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
"""Functions of counts, from tables for small counts.

`lgamma` also writes the global `signgam` of the C library, possibly from several threads. This is
harmless: nobody reads it, and for positive arguments all threads write the same value. `lgamma_r`,
which does not write it, is missing from some C libraries.
"""
from libc.math cimport INFINITY, exp, lgamma, log, log1p

cdef extern from *:
    """
    #if defined(_MSC_VER)
    #define SKDPM_CALLED __declspec(noinline)
    #else
    #define SKDPM_CALLED __attribute__((noinline, unused))
    #endif
    #include <math.h>
    #define SKDPM_HALF_LOG_2_PI 0.9189385332046727

    /* log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]. */
    static inline double skdpm_stirling_error(double z) {
        double u;
        if (z < 20.0)
            return lgamma(z) - ((z - 0.5) * log(z) - z + SKDPM_HALF_LOG_2_PI);
        u = 1.0 / (z * z);
        return (1.0 / 12 - u * (1.0 / 360 - u * (1.0 / 1260 - u / 1680))) / z;
    }

    /* Never inlined: it would take the registers of the loops around a table. */
    static SKDPM_CALLED double skdpm_log_gamma(double z) {
        if (z < 20.0)
            return lgamma(z);
        return (z - 0.5) * log(z) - z + SKDPM_HALF_LOG_2_PI + skdpm_stirling_error(z);
    }
    """
    # log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]
    double stirling_error "skdpm_stirling_error"(double z) noexcept nogil
    # log Gamma(z), z > 0, by Stirling's series if that has all digits of a double
    const double HALF_LOG_2_PI "SKDPM_HALF_LOG_2_PI"
    double log_gamma_function "skdpm_log_gamma"(double z) noexcept nogil


cdef enum:
    # Largest number of entries of a table of a function of counts (8 MiB).
    MAX_TABLE = 1 << 20


cdef struct CountTable:
    # A view of values that the caller owns. Beyond its end the function is computed, which gives
    # the values of a longer table, to the bit.
    const double* values    # (size,): f(shift + m) for m = 0, 1, ...
    Py_ssize_t size
    double shift


cdef inline CountTable count_table(const double[::1] values, double shift) noexcept:
    """The table in an array that the caller keeps (`_numerics.log_gamma_table`)."""
    cdef CountTable table
    table.values = &values[0] if values.shape[0] else NULL
    table.size = values.shape[0]
    table.shift = shift
    return table


cdef inline void fill_log_gamma(double* values, Py_ssize_t size, double shift) noexcept nogil:
    """log Gamma(shift + m) for the counts m = 0, ..., size - 1: a logarithm each."""
    for m in range(size):
        values[m] = log_gamma_function(shift + m)


cdef inline double log_gamma(const CountTable* table, double m) noexcept nogil:
    """log Gamma(shift + m)."""
    if 0.0 <= m < table.size:
        return table.values[<Py_ssize_t>m]
    return log_gamma_function(table.shift + m)


cdef inline double log_rising(double z, double v) noexcept nogil:
    """log Gamma(z + v) - log Gamma(z), v >= 0. At z = 1e12 each of the two has an error of 4e-3;
    here their common terms cancel before they are computed."""
    return (
        (z - 0.5) * log1p(v / z) + v * (log(z + v) - 1.0)
        + (stirling_error(z + v) - stirling_error(z))
    )


cdef inline double log_beta(double a, double b) noexcept nogil:
    """log of the beta function of positive numbers, of which one may be very large: the sum of
    three log Gammas would have few digits then."""
    return (
        HALF_LOG_2_PI - 0.5 * log(a + b) - (a - 0.5) * log1p(b / a) - (b - 0.5) * log1p(a / b)
        + ((stirling_error(a) - stirling_error(a + b)) + stirling_error(b))
    )


cdef inline double log_rising_count(double z, double m) noexcept nogil:
    """log Gamma(z + m) - log Gamma(z) for a count m that is often small: 0 at 0."""
    cdef double product = 1.0
    if m <= 8.0 and 1e-30 < z < 1e30:
        for j in range(<Py_ssize_t>m):
            product *= z + j
        return log(product)
    if z < 20.0:
        return log_gamma_function(z + m) - lgamma(z)
    return log_rising(z, m)


cdef inline void add_term(double log_term, double* top, double* total) noexcept nogil:
    """Add a term to a sum relative to its largest one."""
    if log_term > top[0]:
        total[0] = total[0] * exp(top[0] - log_term) + 1.0
        top[0] = log_term
    elif log_term > -INFINITY:
        total[0] += exp(log_term - top[0])
