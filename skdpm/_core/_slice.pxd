# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._rng cimport bitgen_t


cdef class SliceSampled:
    """Something with a real variable (mostly the logarithm of a positive parameter) that is
    updated by slice sampling. The caller of `slice_step` refuses NaN: it says that the density is
    none, and names the parameter in a FloatingPointError."""

    cdef double log_density(self, double x) noexcept nogil
    cdef double slice_step(self, double x, bitgen_t* rng) noexcept nogil
