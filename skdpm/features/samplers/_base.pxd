# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._memory cimport MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.features.state._state cimport FeatureState


cdef class FeatureKernel(MemoryOwner):
    """A Markov kernel on Z that leaves p(Z | X, parameters) invariant, row by row.

    It lists the features of the row under update that other rows share, with their prior log odds;
    a subclass draws their new values.
    """
    cdef readonly bint adapting         # in warm-up
    cdef Py_ssize_t n_shared
    cdef Py_ssize_t n_reserved          # capacity of the arrays below
    cdef Py_ssize_t* features           # (n_shared,)
    cdef double* log_odds               # (n_shared,)
    cdef unsigned char* values          # (n_shared,): the row's values, old, then new
    cdef Py_ssize_t* singletons         # (n_singletons,): features of the row alone
    cdef Py_ssize_t n_singletons

    cdef int reserve(self, FeatureState state) except -1
    cdef int step(self, FeatureState state, bitgen_t* rng) except -1 nogil
    cdef int update(self, FeatureState state, Py_ssize_t i, bitgen_t* rng) except -1 nogil
    # A sampler overrides these two.
    cdef int prepare(self, FeatureState state) except -1
    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil
