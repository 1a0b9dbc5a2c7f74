# SPDX-License-Identifier: BSD-3-Clause
"""The state of a chain of a feature allocation model."""
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bit_generator_pointer


cdef class FeatureState:
    """State of one chain.

    Parameters
    ----------
    model : FeatureModel
        Bound to the rows, with the parameters of the features of Z.
    prior : FeaturePrior
    Z : ndarray of shape (n_samples, n_latent)
        0 or 1; no column of zeros under the Indian buffet process.
    """

    def __init__(self, FeatureModel model, FeaturePrior prior, Z):
        cdef const unsigned char[:, ::1] view = np.ascontiguousarray(Z, dtype=np.uint8)
        cdef Py_ssize_t i, k
        self.model = model
        self.prior = prior
        self.n_samples = model.n_samples
        if view.shape[0] != self.n_samples or view.shape[1] != model.n_latent:
            raise ValueError(
                f"Z has shape ({view.shape[0]}, {view.shape[1]}), not "
                f"({self.n_samples}, {model.n_latent})"
            )
        self.reserve(max(view.shape[1], 1))
        self.n_latent = view.shape[1]
        for i in range(self.n_samples):
            for k in range(self.n_latent):
                if view[i, k]:
                    self.set(i, k, True)

    def __dealloc__(self):
        free(self.Z)
        free(self.col_sums)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        """Room for so many features, here and in the model."""
        cdef Py_ssize_t capacity = max(n_latent, 2 * self.capacity)
        cdef Py_ssize_t i
        cdef unsigned char* wider
        if n_latent <= self.capacity:
            return 0
        self.model.reserve(capacity)
        self.col_sums = <Py_ssize_t*>resized(self.col_sums, capacity, sizeof(Py_ssize_t))
        for i in range(self.capacity, capacity):
            self.col_sums[i] = 0
        wider = <unsigned char*>calloc(self.n_samples * capacity, 1)
        if wider == NULL:
            raise MemoryError
        for i in range(self.n_samples):
            memcpy(wider + i * capacity, self.Z + i * self.capacity, self.n_latent)
        free(self.Z)
        self.Z = wider
        self.capacity = capacity
        return 0

    cdef void set(self, Py_ssize_t i, Py_ssize_t k, bint on) noexcept nogil:
        """Row i has feature k, or not."""
        cdef unsigned char* z = self.Z + i * self.capacity + k
        self.col_sums[k] += on - <int>z[0]
        z[0] = on

    cdef int add_feature(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        """Add a feature that row i alone has, its parameters from their prior."""
        if self.n_latent == self.capacity:
            with gil:
                self.reserve(self.n_latent + 1)
        self.model.add_feature(rng)
        self.n_latent += 1
        self.set(i, self.n_latent - 1, True)
        return 0

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """Remove feature k; the last one takes its place."""
        cdef Py_ssize_t i
        cdef Py_ssize_t last = self.n_latent - 1
        cdef unsigned char* z
        SKDPM_CHECK(0 <= k <= last, "no such feature")
        for i in range(self.n_samples):
            z = self.Z + i * self.capacity
            z[k] = z[last]
            z[last] = 0
        self.col_sums[k] = self.col_sums[last]
        self.col_sums[last] = 0
        self.n_latent = last
        self.model.remove_feature(k)
        return 0

    # The Python boundary.

    def allocations(self):
        """Z, an ndarray of shape (n_samples, n_latent), uint8."""
        Z = np.empty((self.n_samples, self.n_latent), dtype=np.uint8)
        cdef unsigned char[:, ::1] view = Z
        cdef Py_ssize_t i
        if self.n_latent > 0:
            for i in range(self.n_samples):
                memcpy(&view[i, 0], self.Z + i * self.capacity, self.n_latent)
        return Z

    def column_sums(self):
        """Rows that have each feature, an ndarray of shape (n_latent,), intp."""
        return np.array([self.col_sums[k] for k in range(self.n_latent)], dtype=np.intp)

    def compute_log_joint(self):
        """log p(Z | concentration) + log p(X | Z, parameters) + log p(parameters), natural
        logarithms, hyperpriors excluded."""
        return (
            self.prior.log_probability_at(self.prior.concentration, self.col_sums, self.n_latent)
            + self.model.log_likelihood(self.Z, self.capacity)
            + self.model.log_prior()
        )

    def update_params(self, bit_generator):
        """One step of the parameters and hyperparameters given Z."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        with bit_generator.lock, nogil:
            self.model.update_params(self.Z, self.capacity, rng)

    def mean_params(self):
        """The parameters take their means given Z and X."""
        with nogil:
            self.model.mean_params(self.Z, self.capacity)

    def compute_log_marginal(self):
        """log p(Z | concentration) + log p(X | Z, hyperparameters), the features' parameters
        integrated out."""
        return (
            self.prior.log_probability_at(self.prior.concentration, self.col_sums, self.n_latent)
            + self.model.log_marginal(self.Z, self.capacity)
        )
