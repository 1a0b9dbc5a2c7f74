"""Counts whose rates are sums over features: x_id ~ Poisson(b + sum_k z_ik w_kd) with
w_kd ~ Gamma(shape, rate). A candidate is a vector of rates, (D,).
"""
from libc.math cimport lgamma, log
from libc.string cimport memcpy

import numpy as np

from skdpm._core._rng cimport bitgen_t, random_standard_gamma
from skdpm.features.likelihoods._base cimport FeatureModel

cdef extern from "numpy/random/distributions.h":
    ctypedef struct binomial_t:
        int has_binomial
    long long random_binomial(
        bitgen_t* rng, double p, long long n, binomial_t* parameters
    ) noexcept nogil


cdef class PoissonSumModel(FeatureModel):
    cdef const double[:, ::1] X
    cdef double background, shape, rate
    cdef Py_ssize_t d, row, capacity
    cdef double* W              # (capacity, d)
    cdef double* counts         # (capacity, d): scratch

    def __init__(self, X, double background, double shape, double rate):
        self.X = X
        self.n_samples, self.d = X.shape
        self.width = self.d
        self.background, self.shape, self.rate = background, shape, rate
        self.reserve_candidates(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        if n_latent > self.capacity:
            # The base class frees this memory.
            self.W = <double*>self.resized(self.W, n_latent * self.d, sizeof(double))
            self.counts = <double*>self.resized(self.counts, n_latent * self.d, sizeof(double))
            self.capacity = n_latent

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        cdef Py_ssize_t j, k
        self.row = i
        for j in range(self.d):
            self.candidates[j] = self.background
        for k in range(self.n_latent):
            if z[k]:
                self.flip(0, k, True)

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on, double* out
    ) noexcept nogil:
        cdef Py_ssize_t c, j
        cdef const double* rates
        cdef double w, after
        for c in range(n):
            rates = self.candidates + candidates[c] * self.d
            out[c] = 0.0
            for j in range(self.d):
                w = self.W[k * self.d + j] if on else -self.W[k * self.d + j]
                # Rounding must not take rates below the background.
                after = max(rates[j] + w, self.background)
                out[c] += self.X[self.row, j] * log(after / rates[j]) - w

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        cdef Py_ssize_t j
        cdef double* rates = self.candidates + candidate * self.d
        for j in range(self.d):
            rates[j] += self.W[k * self.d + j] if on else -self.W[k * self.d + j]
            rates[j] = max(rates[j], self.background)

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t j
        for j in range(self.d):
            self.W[self.n_latent * self.d + j] = random_standard_gamma(rng, self.shape) / self.rate
        self.n_latent += 1

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        cdef Py_ssize_t last = self.n_latent - 1
        if k != last:
            memcpy(self.W + k * self.d, self.W + last * self.d, self.d * sizeof(double))
        self.n_latent = last

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Gibbs: divide every count among the features of its row, then draw the rates of each
        feature from Gamma(shape + its counts, rate + its number of rows)."""
        cdef Py_ssize_t i, j, k
        cdef binomial_t binomial
        cdef const unsigned char* z
        cdef double left, share
        cdef long long count, taken
        # Cache of random_binomial, which ignores it if `has_binomial` is 0.
        binomial.has_binomial = 0
        for k in range(self.n_latent * self.d):
            self.counts[k] = 0.0
        for i in range(self.n_samples):
            z = self.Z.row(i)
            self.begin_row(i, z)
            for j in range(self.d):
                left = self.candidates[j]
                count = <long long>self.X[i, j]
                for k in range(self.n_latent):
                    if z[k] and count > 0:
                        share = min(self.W[k * self.d + j] / left, 1.0)
                        taken = random_binomial(rng, share, count, &binomial)
                        self.counts[k * self.d + j] += taken
                        count -= taken
                        left = max(left - self.W[k * self.d + j], self.background)
        for k in range(self.n_latent):
            for j in range(self.d):
                self.W[k * self.d + j] = (
                    random_standard_gamma(rng, self.shape + self.counts[k * self.d + j])
                    / (self.rate + self.Z.col_sums[k])
                )

    cdef double log_row(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.d):
            total += (
                self.X[self.row, j] * log(self.candidates[j]) - self.candidates[j]
                - lgamma(self.X[self.row, j] + 1.0)
            )
        return total

    cdef double log_likelihood(self) noexcept nogil:
        cdef Py_ssize_t i
        cdef double total = 0.0
        for i in range(self.n_samples):
            self.begin_row(i, self.Z.row(i))
            total += self.log_row()
        return total

    cdef double log_prior(self) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = 0.0
        for j in range(self.n_latent * self.d):
            total += (
                self.shape * log(self.rate) - lgamma(self.shape)
                + (self.shape - 1.0) * log(self.W[j]) - self.rate * self.W[j]
            )
        return total

    def save(self):
        rates = np.empty((self.n_latent, self.d))
        cdef double[:, ::1] view = rates
        if self.n_latent > 0:
            memcpy(&view[0, 0], self.W, self.n_latent * self.d * sizeof(double))
        return {"rates": rates}

    def load(self, saved):
        cdef const double[:, ::1] view = np.ascontiguousarray(saved["rates"], dtype=np.float64)
        self.reserve(max(view.shape[0], 1))
        self.n_latent = view.shape[0]
        if self.n_latent > 0:
            memcpy(self.W, &view[0, 0], self.n_latent * self.d * sizeof(double))
