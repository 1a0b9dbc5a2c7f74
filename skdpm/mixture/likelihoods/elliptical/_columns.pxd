# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.likelihoods.elliptical._elliptical cimport ParametricElliptical


cdef class ParametricGaussianDiag(ParametricElliptical):
    cdef const double[::1] scale
    cdef bint missing
