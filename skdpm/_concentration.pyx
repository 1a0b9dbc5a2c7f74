# SPDX-License-Identifier: BSD-3-Clause
"""The concentration of a prior given the counts of clusters or features, for both families:

    p(A | counts) ~ p(A) p(counts | A),

updated by a slice step of log A, or in closed form if p(A) is Gamma and the prior is conjugate.
"""
from libc.math cimport INFINITY, NAN, exp, log

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t
from skdpm._hyperpriors cimport GammaDensity


cdef class ConcentrationSampled:

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* counts, Py_ssize_t n_counts    # IN
    ) noexcept nogil:
        """log p(counts) at any concentration, in any state of the tables."""
        return NAN

    cdef double draw_under_gamma(
        self, const Py_ssize_t* counts, Py_ssize_t n_counts, double shape, double rate,
        bitgen_t* rng
    ) noexcept nogil:
        """Draw the next concentration under a Gamma hyperprior."""
        return NAN

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the concentration, up to a constant."""
        if not -700.0 < x < 700.0:
            return -INFINITY
        return self.given_density.at(x) + self.log_probability_at(
            exp(x), self.given_counts, self.n_given
        )

    # The Python boundary.

    def set_concentration(self, double concentration):
        """Change the concentration."""
        self.concentration = concentration

    def log_probability(self, counts):
        """log probability of the counts under the prior with its concentration."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(counts, dtype=np.intp)
        cdef Py_ssize_t n_counts = view.shape[0]
        return self.log_probability_at(
            self.concentration, &view[0] if n_counts > 0 else NULL, n_counts
        )

    def resample(self, counts, hyperprior, bit_generator):
        """Draw the concentration given the counts. Raises FloatingPointError if it has no density.
        """
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(counts, dtype=np.intp)
        cdef Py_ssize_t n_counts = view.shape[0]
        cdef const Py_ssize_t* given = &view[0] if n_counts > 0 else NULL
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef LogDensity density = hyperprior.density
        cdef bint closed_form = self.conjugate and isinstance(density, GammaDensity)
        if closed_form:
            shape, rate = (<GammaDensity>density).shape, (<GammaDensity>density).rate
            with bit_generator.lock, nogil:
                concentration = self.draw_under_gamma(given, n_counts, shape, rate, rng)
        else:
            self.given_counts = given
            self.n_given = n_counts
            self.given_density = density
            with bit_generator.lock, nogil:
                concentration = exp(self.slice_step(log(self.concentration), rng))
            self.given_counts = NULL
        if not concentration < INFINITY:
            raise FloatingPointError("the concentration has no density")
        # A draw with a tiny shape can underflow to 0, whose logarithm would end the chain.
        self.set_concentration(max(concentration, 1e-300))
