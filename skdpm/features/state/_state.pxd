# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations
from skdpm.features.likelihoods._base cimport (
    CollapsedFeatureModel, FeatureModel, InterceptFeatureModel
)
from skdpm.features.priors._base cimport FeaturePrior


cdef class FeatureState:
    """Z and the features' parameters, always in agreement."""
    cdef readonly FeatureModel model        # reads Z
    # The model; None if it cannot integrate parameters out, or has no intercept.
    cdef CollapsedFeatureModel collapsed
    cdef InterceptFeatureModel intercepted
    cdef bint collapses                     # singletons have their parameters integrated out
    cdef readonly FeaturePrior prior
    cdef readonly Py_ssize_t n_samples
    cdef Allocations Z

    cdef int reserve(self, Py_ssize_t n_latent) except -1
    cdef int add_feature(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil
    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil
    cdef int complement(self, Py_ssize_t k) except -1 nogil
