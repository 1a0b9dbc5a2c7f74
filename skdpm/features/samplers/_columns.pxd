# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._relaunch cimport RelaunchKernel


cdef class ColumnKernel:
    """A Markov kernel on whole columns of Z, with their parameters."""
    cdef readonly Py_ssize_t n_moves    # 0: no moves at all
    cdef readonly RelaunchKernel relaunch

    cdef int step(self, FeatureState state, bint adapting, bitgen_t* rng) except -1 nogil
    cdef int exchange(self, FeatureState state, Py_ssize_t k, bitgen_t* rng) except -1 nogil
    cdef int split_off(self, FeatureState state, bitgen_t* rng) except -1 nogil
    cdef int absorb(self, FeatureState state, bitgen_t* rng) except -1 nogil
