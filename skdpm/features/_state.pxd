# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.features.priors._base cimport FeaturePrior
from skdpm.features.likelihoods._base cimport FeatureModel


cdef class FeatureState:
    """Z, its column sums and the features' parameters, always in agreement."""
    cdef readonly FeatureModel model
    cdef readonly FeaturePrior prior
    cdef readonly Py_ssize_t n_samples
    cdef readonly Py_ssize_t n_latent
    cdef readonly Py_ssize_t capacity       # features that fit
    cdef unsigned char* Z                   # (n_samples, capacity), 0 beyond n_latent
    cdef Py_ssize_t* col_sums               # (capacity,)

    cdef int reserve(self, Py_ssize_t n_latent) except -1
    cdef void set(self, Py_ssize_t i, Py_ssize_t k, bint on) noexcept nogil
    cdef int add_feature(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil
    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil
