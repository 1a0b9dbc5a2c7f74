# SPDX-License-Identifier: BSD-3-Clause
"""Densities of hyperpriors, of x = log(v) for a positive number v. Hyperparameters are moved on
this scale, so each density is p(v) times the Jacobian v = exp(x). All are normalised.
"""
from libc.math cimport M_PI as PI, NAN, exp, fabs, lgamma, log, log1p

import numpy as np


cdef class LogDensity:

    cdef double at(self, double x) noexcept nogil:
        """log density of the logarithm x."""
        return NAN

    def __call__(self, x):
        """`at` each entry of an array: ndarray of the same shape."""
        cdef const double[::1] view = np.ravel(np.asarray(x, dtype=np.float64))
        values = np.empty(np.shape(x))
        cdef double[::1] out = values.reshape(-1)
        for i in range(view.shape[0]):
            out[i] = self.at(view[i])
        return values


cdef class GammaDensity(LogDensity):
    """Gamma(shape, rate): rate^shape / Gamma(shape) v^(shape - 1) exp(-rate v) v."""

    def __init__(self, double shape, double rate):
        self.shape = shape
        self.rate = rate
        self.log_constant = shape * log(rate) - lgamma(shape)

    cdef double at(self, double x) noexcept nogil:
        return self.shape * x - self.rate * exp(x) + self.log_constant


cdef class HalfCauchyDensity(LogDensity):
    """Half-Cauchy: 2 / (pi s) / (1 + (v / s)^2) v for the scale s."""
    cdef double log_scale

    def __init__(self, double scale):
        self.log_scale = log(scale)

    cdef double at(self, double x) noexcept nogil:
        # With z = |x - log s| the density of x is 2 / pi exp(-z) / (1 + exp(-2 z)).
        cdef double z = fabs(x - self.log_scale)
        return log(2.0 / PI) - z - log1p(exp(-2.0 * z))


cdef class LogNormalDensity(LogDensity):
    """Log-normal: x ~ N(mean, sd^2)."""
    cdef double mean, sd, log_constant

    def __init__(self, double mean, double sd):
        self.mean = mean
        self.sd = sd
        self.log_constant = -0.5 * log(2.0 * PI) - log(sd)

    cdef double at(self, double x) noexcept nogil:
        cdef double z = (x - self.mean) / self.sd
        return self.log_constant - 0.5 * z * z
