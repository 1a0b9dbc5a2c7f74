# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.likelihoods.elliptical._elliptical cimport ParametricElliptical


cdef class ParametricDiagonal(ParametricElliptical):
    cdef bint missing
