# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t


cdef class SliceSampled:
    """Something with a positive parameter that is updated by slice sampling of its logarithm."""

    cdef double log_density(self, double x) noexcept nogil
    cdef double slice_step(self, double x, bitgen_t* rng) noexcept nogil
