# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._rng cimport bitgen_t


cdef class SliceSampled:
    """Base class for a real variable, mostly the logarithm of a positive parameter, that is
    updated by slice sampling. The caller of `slice_step` must check for NaN, which means that
    there is no density, and raise a FloatingPointError that names the parameter."""

    cdef double log_density(self, double x) noexcept nogil
    cdef double slice_step(self, double x, bitgen_t* rng) noexcept nogil
