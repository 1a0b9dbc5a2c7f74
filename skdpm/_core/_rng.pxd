# SPDX-License-Identifier: BSD-3-Clause
"""Random draws inside kernels, from numpy's bit generators.

A `bitgen_t*` is an argument of every function that draws, never an attribute or a global.
"""
from cpython.pycapsule cimport PyCapsule_GetPointer
from libc.math cimport INFINITY, exp, log
from libc.stdint cimport int64_t

# Declarations of our own: numpy's .pxd files also declare arrays, and Cython would write code for
# these into every module (a fifth of the build's time).
cdef extern from "numpy/random/bitgen.h":
    ctypedef struct bitgen_t:
        void* state
        double (*next_double)(void* state) noexcept nogil

cdef extern from "numpy/random/distributions.h":
    double random_beta(bitgen_t* rng, double a, double b) noexcept nogil
    double random_standard_exponential(bitgen_t* rng) noexcept nogil
    double random_standard_gamma(bitgen_t* rng, double shape) noexcept nogil
    double random_standard_normal(bitgen_t* rng) noexcept nogil
    int64_t random_poisson(bitgen_t* rng, double mean) noexcept nogil


cdef inline bitgen_t* bit_generator_pointer(bit_generator) except NULL:
    """The C interface of a numpy bit generator; use it `with bit_generator.lock, nogil`."""
    return <bitgen_t*>PyCapsule_GetPointer(bit_generator.capsule, "BitGenerator")


cdef inline double uniform(bitgen_t* rng) noexcept nogil:
    """Uniform on [0, 1)."""
    return rng.next_double(rng.state)


cdef inline Py_ssize_t integer(bitgen_t* rng, Py_ssize_t n) noexcept nogil:
    """Uniform on {0, ..., n - 1}. A double has 53 random bits: the bias is below n / 2**53."""
    return <Py_ssize_t>(rng.next_double(rng.state) * n)


cdef inline double log_gamma_variate(bitgen_t* rng, double shape) noexcept nogil:
    """log of a Gamma(shape, 1) variate, also if the variate would underflow: for a small shape,
    the variate is Gamma(shape + 1) times U^(1 / shape)."""
    if shape >= 1.0:
        return log(random_standard_gamma(rng, shape))
    return log(random_standard_gamma(rng, shape + 1.0)) + log(1.0 - uniform(rng)) / shape


cdef inline Py_ssize_t categorical_log_at(
    double u, double* log_w, Py_ssize_t n,        # INOUT (n,): exp(log_w - max) on return
    Py_ssize_t first
) noexcept nogil:
    """Index j with probability proportional to exp(log_w[j]), from a number u that is uniform on
    [0, 1); -1 if there is no such distribution. `first` is drawn if u times the sum of all weights
    is below its weight; the others follow in their order.

    A NaN always reaches `total`, so that the caller notices it.
    """
    cdef Py_ssize_t j
    cdef Py_ssize_t last = first
    cdef double top = -INFINITY, total = 0.0
    for j in range(n):
        top = log_w[j] if log_w[j] > top else top
    if not (-INFINITY < top < INFINITY):
        return -1
    for j in range(n):
        # A term below exp(-50) adds nothing to a total of at least one.
        log_w[j] = 0.0 if log_w[j] - top < -50.0 else exp(log_w[j] - top)
        total += log_w[j]
    if not (0.0 < total < INFINITY):
        return -1
    u = u * total - log_w[first]
    if u < 0.0:
        return first
    for j in range(n):
        if j != first and log_w[j] > 0.0:
            last = j
            u -= log_w[j]
            if u < 0.0:
                return j
    # Rounding may leave u at 0 after the last positive weight; never return a weight of zero. The
    # total is positive, so one weight is positive.
    return last


cdef inline Py_ssize_t categorical_log(
    bitgen_t* rng, double* log_w, Py_ssize_t n    # INOUT (n,): exp(log_w - max) on return
) noexcept nogil:
    """Index j with probability proportional to exp(log_w[j]); -1 if there is no such distribution.
    """
    return categorical_log_at(uniform(rng), log_w, n, 0)
