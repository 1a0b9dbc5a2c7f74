# SPDX-License-Identifier: BSD-3-Clause
cdef class LogDensity:
    """Density of the logarithm x of a positive number, as samplers evaluate it.

    A family of hyperpriors overrides `at`, and its class in `skdpm.hyperpriors` makes the object.
    """
    cdef double at(self, double x) noexcept nogil


cdef class GammaDensity(LogDensity):
    cdef readonly double shape, rate
    cdef double log_constant
