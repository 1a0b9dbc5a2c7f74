# SPDX-License-Identifier: BSD-3-Clause
"""A slice step for one real variable: Neal (2003), Slice sampling, figures 3 and 5."""
from libc.math cimport INFINITY, NAN

from skdpm._core._rng cimport bitgen_t, random_standard_exponential, uniform


cdef class SliceSampled:

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the variable, up to a constant. A subclass implements it."""
        return NAN

    cdef double slice_step(self, double x, bitgen_t* rng) noexcept nogil:
        """The next value after x: stepping out in steps of 1, then shrinkage.

        Returns NaN if the density is NaN or infinite at x, or if the interval shrinks to x while
        proposals have NaN. A NaN elsewhere counts as a density of 0.
        """
        cdef double level = self.log_density(x) - random_standard_exponential(rng)
        cdef double left = x - uniform(rng)
        cdef double right = left + 1.0
        cdef bint failed = False
        # At most 50 steps in all, split at random between the two sides: still exact.
        cdef Py_ssize_t n_left = <Py_ssize_t>(50 * uniform(rng))
        cdef Py_ssize_t n_right = 49 - n_left
        if not -INFINITY < level < INFINITY:
            return NAN
        while n_left > 0 and self.log_density(left) > level:
            left -= 1.0
            n_left -= 1
        while n_right > 0 and self.log_density(right) > level:
            right += 1.0
            n_right -= 1
        # Ends: every turn cuts the interval at a uniform point, and an interval below 1e-12, or of
        # NaN, is the last.
        while right - left > 1e-12:
            proposal = left + (right - left) * uniform(rng)
            log_density = self.log_density(proposal)
            if log_density >= level:
                return proposal
            failed |= log_density != log_density
            if proposal < x:
                left = proposal
            else:
                right = proposal
        return NAN if failed or x != x else x
