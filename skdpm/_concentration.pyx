# SPDX-License-Identifier: BSD-3-Clause
"""The concentration of a prior given what the prior says of the labels, for both families:

    p(A | counts) ~ Gamma(A; shape, rate) p(counts | A),

updated by a slice step of log A, or as a prior knows better.
"""
from libc.math cimport INFINITY, NAN, exp, log
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer


cdef class ConcentrationSampled:

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* counts, Py_ssize_t n_counts    # IN
    ) noexcept nogil:
        """log p(counts) at any concentration, in any state of the tables."""
        return NAN

    cdef double draw_concentration(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil:
        """The next concentration after the current one; NaN where it has no density."""
        cdef double x = log(self.concentration)
        self.given_counts = counts
        self.n_given = n_counts
        self.given_shape = shape
        self.given_rate = rate
        x = self.slice_step(x, rng)
        self.given_counts = NULL
        return exp(x)

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the concentration, up to a constant. The factor A in
        the density of log A is the Jacobian."""
        cdef double concentration
        if not -700.0 < x < 700.0:
            return -INFINITY
        concentration = exp(x)
        return (
            self.given_shape * x - self.given_rate * concentration
            + self.log_probability_at(concentration, self.given_counts, self.n_given)
        )

    # The Python boundary.

    def set_concentration(self, double concentration):
        """Go on with another concentration."""
        self.concentration = concentration

    def log_probability(self, counts):
        """log of the probability that the prior gives to the counts, at the concentration."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(counts, dtype=np.intp)
        cdef Py_ssize_t n_counts = view.shape[0]
        return self.log_probability_at(
            self.concentration, &view[0] if n_counts > 0 else NULL, n_counts
        )

    def resample(self, counts, double shape, double rate, bit_generator):
        """Draw the concentration given the counts under its Gamma(shape, rate) prior."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(counts, dtype=np.intp)
        cdef Py_ssize_t n_counts = view.shape[0]
        cdef const Py_ssize_t* given = &view[0] if n_counts > 0 else NULL
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef double concentration
        with bit_generator.lock, nogil:
            concentration = self.draw_concentration(given, n_counts, shape, rate, rng)
        if not concentration < INFINITY:
            raise FloatingPointError("the concentration has no density")
        # A tiny shape can underflow to 0, whose logarithm would end the chain.
        self.set_concentration(max(concentration, 1e-300))
