# SPDX-License-Identifier: BSD-3-Clause
"""Functions of counts, from tables where the count is small enough."""
from libc.math cimport M_PI as PI
from libc.math cimport floor, lgamma, log, log1p, rint
from libc.stdlib cimport free, malloc

cdef enum:
    # A table of a function of counts ends here (8 MiB); beyond it the function itself is called.
    MAX_TABLE = 1 << 20


cdef struct CountTable:
    double* values      # (size,): f(shift + m) for m = 0, 1, ...
    Py_ssize_t size
    double shift


cdef inline int fill_log(CountTable* table, double shift, Py_ssize_t largest) except -1:
    """Tabulate log(shift + m) for the counts m = 0, ..., largest."""
    cdef Py_ssize_t m
    table.shift = shift
    table.size = min(largest + 1, <Py_ssize_t>MAX_TABLE)
    table.values = <double*>malloc(table.size * sizeof(double))
    if table.values == NULL:
        table.size = 0
        raise MemoryError
    for m in range(table.size):
        table.values[m] = log(shift + m)
    return 0


cdef inline int fill_log_gamma(CountTable* table, double shift, Py_ssize_t largest) except -1:
    """Tabulate log Gamma(shift + m) for the counts m = 0, ..., largest."""
    cdef Py_ssize_t m
    table.shift = shift
    table.size = min(largest + 1, <Py_ssize_t>MAX_TABLE)
    table.values = <double*>malloc(table.size * sizeof(double))
    if table.values == NULL:
        table.size = 0
        raise MemoryError
    for m in range(table.size):
        table.values[m] = lgamma(shift + m)
    return 0


cdef inline void free_table(CountTable* table) noexcept:
    free(table.values)
    table.values = NULL
    table.size = 0


cdef inline double log_count(const CountTable* table, double m) noexcept nogil:
    """log(shift + m)."""
    if m < table.size:
        return table.values[<Py_ssize_t>m]
    return log(table.shift + m)


cdef inline double log_gamma(const CountTable* table, double m) noexcept nogil:
    """log Gamma(shift + m)."""
    if m < table.size:
        return table.values[<Py_ssize_t>m]
    return lgamma(table.shift + m)


cdef inline double stirling_error(double z) noexcept nogil:
    """log Gamma(z) - [(z - 1/2) log z - z + log(2 pi) / 2]."""
    cdef double u
    if z < 20.0:
        return lgamma(z) - ((z - 0.5) * log(z) - z + 0.5 * log(2.0 * PI))
    u = 1.0 / (z * z)
    return (1.0 / 12 - u * (1.0 / 360 - u * (1.0 / 1260 - u / 1680))) / z


cdef inline double log_rising(double z, double v) noexcept nogil:
    """log Gamma(z + v) - log Gamma(z), v >= 0. At z = 1e12 either of the two has an error of 4e-3;
    here what they share is cancelled before it is computed."""
    return (
        (z - 0.5) * log1p(v / z) + v * (log(z + v) - 1.0)
        + (stirling_error(z + v) - stirling_error(z))
    )


cdef inline double log_gamma_ratio(const CountTable* table, double m, double v) noexcept nogil:
    """log Gamma(shift + m + v) - log Gamma(shift + m)."""
    if m + v < table.size:
        return table.values[<Py_ssize_t>(m + v)] - table.values[<Py_ssize_t>m]
    return log_rising(table.shift + m, v)


cdef inline double exact_grid(Py_ssize_t n_max) noexcept:
    """The finest power of two whose multiples in [0, 1] still add up exactly, `n_max` of them."""
    cdef double grid = 4503599627370496.0   # 2**52
    while n_max > 0:
        grid *= 0.5
        n_max >>= 1
    return grid


cdef inline void split_exactly(
    double value, double grid,
    double* whole, double* fraction     # OUT: value = whole + fraction, up to 1 / grid
) noexcept nogil:
    """Sums of wholes and sums of fractions are exact, so that a sum of real constants that come
    and go neither drifts nor depends on the order."""
    whole[0] = floor(value)
    fraction[0] = rint((value - whole[0]) * grid) / grid
