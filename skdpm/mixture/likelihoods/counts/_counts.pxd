# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._math cimport MAX_TABLE
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel
from skdpm.mixture.likelihoods.contract._parametric cimport ParametricModel


cdef enum:
    LARGE = MAX_TABLE // 2      # the sum of two smaller counts is within the longest table
    N_HEAD = 3      # statistics before those of columns


cdef class CountModel(ClusterModel):
    """Sums and numbers of entries of the columns. A likelihood overrides `change` and `compute`.
    """
    cdef Py_ssize_t n_features      # D
    cdef const double[:, ::1] X
    cdef const double[::1] log_large
    cdef const double[::1] exposure     # None: 1 for every item
    cdef bint missing

    cdef int take_counts(self, data, tables) except -1
    cdef void move(self, double* stats, Py_ssize_t i, double by) noexcept nogil
    cdef void compute(self, double* stats) noexcept nogil


cdef class ParametricCounts(ParametricModel):
    """A likelihood overrides `draw_params`."""
    cdef Py_ssize_t n_features
    cdef const double[:, ::1] X
    cdef double shape, rate
    cdef bint missing, large
    cdef double[::1] work       # (n_features * LD,)

    cdef double log_large_of(self, Py_ssize_t i) noexcept nogil
