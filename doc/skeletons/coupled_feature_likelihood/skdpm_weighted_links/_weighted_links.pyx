"""Links between rows: x_ij ~ N(z_i' W z_j, 1 / tau) for i != j, with w_kl ~ N(0, 1 / rho).

The law of a row depends on the features of all others, and a parameter belongs to two features. A
candidate is the vector of residuals of the row's links, 0 if not observed: (n_partners,) outgoing
ones and, except for new rows, (n_samples,) incoming ones.
"""
from libc.math cimport M_PI as PI
from libc.math cimport exp, log, sqrt
from libc.string cimport memcpy

import numpy as np

from skdpm._core._rng cimport bitgen_t, random_standard_normal
from skdpm.features.likelihoods._base cimport FeatureModel


cdef class WeightedLinksModel(FeatureModel):
    cdef const double[:, ::1] X         # (n_samples, n_partners), NaN where not observed
    cdef bint is_new                    # new rows have outgoing links only
    cdef double tau, rho, n_observed
    cdef double step                    # size of the proposals of weights, learned in warm-up
    cdef Py_ssize_t n_partners, capacity, row_links
    cdef double* W                      # (capacity, capacity)
    cdef double* effects                # (capacity, width): what a feature adds to the row's links
    cdef double* residuals              # (n_samples, n_partners): scratch

    def __init__(self, X, bint is_new, double tau, double rho):
        self.X = X
        self.is_new = is_new
        self.tau, self.rho, self.step = tau, rho, 1.0
        self.n_samples, self.n_partners = X.shape
        self.width = self.n_partners if is_new else 2 * self.n_samples
        self.n_observed = np.count_nonzero(~np.isnan(X))
        self.max_bits = 14              # flipping a feature of a new row costs O(n_partners)
        # The base class frees this memory.
        self.residuals = <double*>self.resized(NULL, X.size, sizeof(double))
        self.reserve_candidates(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        cdef double* W
        cdef Py_ssize_t k
        if n_latent <= self.capacity:
            return 0
        self.effects = <double*>self.resized(self.effects, n_latent * self.width, sizeof(double))
        W = <double*>self.resized(NULL, n_latent * n_latent, sizeof(double))
        for k in range(self.n_latent):
            memcpy(W + k * n_latent, self.W + k * self.capacity, self.n_latent * sizeof(double))
        self.freed(self.W)
        self.W = W
        self.capacity = n_latent

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        cdef Py_ssize_t j, k, l
        cdef const unsigned char* partner
        cdef double* out
        if self.Z.n_samples != self.n_partners:
            self.spoil(0)       # the features of the partners are not bound
            return
        self.row_links = 0
        for j in range(self.n_partners):
            self.candidates[j] = self.link(self.X[i, j])
            self.row_links += self.X[i, j] == self.X[i, j]
        if not self.is_new:
            for j in range(self.n_samples):
                self.candidates[self.n_samples + j] = self.link(self.X[j, i])
                self.row_links += self.X[j, i] == self.X[j, i]
        for k in range(self.n_latent):
            out = self.effects + k * self.width
            for j in range(self.n_partners):
                partner = self.Z.row(j)     # for j = i any value will do: there is no link
                out[j] = 0.0
                if self.X[i, j] == self.X[i, j]:
                    for l in range(self.n_latent):
                        if partner[l]:
                            out[j] += self.W[k * self.capacity + l]
                if self.is_new:
                    continue
                out[self.n_samples + j] = 0.0
                if self.X[j, i] == self.X[j, i]:
                    for l in range(self.n_latent):
                        if partner[l]:
                            out[self.n_samples + j] += self.W[l * self.capacity + k]
            if z[k]:
                self.flip(0, k, True)

    cdef inline double link(self, double x) noexcept nogil:
        return x if x == x else 0.0

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on, double* out
    ) noexcept nogil:
        cdef Py_ssize_t c, t
        cdef const double* residual
        cdef double effect
        for c in range(n):
            residual = self.candidates + candidates[c] * self.width
            out[c] = 0.0
            for t in range(self.width):
                effect = self.effects[k * self.width + t]
                if not on:
                    effect = -effect
                out[c] += self.tau * effect * (residual[t] - 0.5 * effect)

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        cdef Py_ssize_t t
        cdef double* residual = self.candidates + candidate * self.width
        cdef double sign = 1.0 if on else -1.0
        for t in range(self.width):
            residual[t] -= sign * self.effects[k * self.width + t]

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t l
        cdef Py_ssize_t k = self.n_latent
        cdef double deviation = 1.0 / sqrt(self.rho)
        for l in range(k):
            self.W[k * self.capacity + l] = deviation * random_standard_normal(rng)
            self.W[l * self.capacity + k] = deviation * random_standard_normal(rng)
        self.W[k * self.capacity + k] = deviation * random_standard_normal(rng)
        self.n_latent += 1

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """The last row takes the place of row k, then the last column that of column k."""
        cdef Py_ssize_t l
        cdef Py_ssize_t last = self.n_latent - 1
        for l in range(self.n_latent):
            self.W[k * self.capacity + l] = self.W[last * self.capacity + l]
        for l in range(self.n_latent):
            self.W[l * self.capacity + k] = self.W[l * self.capacity + last]
        self.n_latent = last

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Metropolis moves, one weight after the other; the step is learned in warm-up."""
        cdef Py_ssize_t i, k, l
        cdef double by, log_ratio
        cdef bint accepted
        for i in range(self.n_samples):
            self.begin_row(i, self.Z.row(i))
            memcpy(
                self.residuals + i * self.n_samples, self.candidates,
                self.n_samples * sizeof(double)
            )
        for k in range(self.n_latent):
            for l in range(self.n_latent):
                by = self.step * random_standard_normal(rng)
                log_ratio = self.shift(k, l, by) - self.rho * by * (
                    self.W[k * self.capacity + l] + 0.5 * by
                )
                if log_ratio != log_ratio:
                    with gil:
                        raise FloatingPointError("the density of a weight is not a number")
                accepted = log(1.0 - rng.next_double(rng.state)) < log_ratio
                if accepted:
                    self.W[k * self.capacity + l] += by
                else:
                    self.shift(k, l, -by)
                if adapting:
                    self.step *= exp(0.1 * (accepted - 0.44))

    cdef double shift(self, Py_ssize_t k, Py_ssize_t l, double by) noexcept nogil:
        """Add `by` to weight (k, l) in the residuals; return the change in log p(X | Z)."""
        cdef Py_ssize_t i, j
        cdef double change = 0.0
        cdef double* residual
        for i in range(self.n_samples):
            if self.Z.row(i)[k]:
                for j in range(self.n_samples):
                    if self.Z.row(j)[l] and self.X[i, j] == self.X[i, j]:
                        residual = self.residuals + i * self.n_samples + j
                        change += self.tau * by * (residual[0] - 0.5 * by)
                        residual[0] -= by
        return change

    cdef double log_row(self) noexcept nogil:
        cdef Py_ssize_t t
        cdef double square = 0.0
        for t in range(self.width):
            square += self.candidates[t] * self.candidates[t]
        return 0.5 * (self.row_links * log(self.tau / (2.0 * PI)) - self.tau * square)

    cdef double log_likelihood(self) noexcept nogil:
        """Count every link once, as an outgoing one."""
        cdef Py_ssize_t i, j
        cdef double square = 0.0
        for i in range(self.n_samples):
            self.begin_row(i, self.Z.row(i))
            for j in range(self.n_partners):
                square += self.candidates[j] * self.candidates[j]
        return 0.5 * (self.n_observed * log(self.tau / (2.0 * PI)) - self.tau * square)

    cdef double log_prior(self) noexcept nogil:
        cdef Py_ssize_t k, l
        cdef double square = 0.0
        for k in range(self.n_latent):
            for l in range(self.n_latent):
                square += self.W[k * self.capacity + l] * self.W[k * self.capacity + l]
        return 0.5 * (
            self.n_latent * self.n_latent * log(self.rho / (2.0 * PI)) - self.rho * square
        )

    def save(self):
        cdef Py_ssize_t k, l
        W = np.empty((self.n_latent, self.n_latent))
        cdef double[:, ::1] view = W
        for k in range(self.n_latent):
            for l in range(self.n_latent):
                view[k, l] = self.W[k * self.capacity + l]
        return {"weights": W}

    def load(self, saved):
        cdef const double[:, ::1] view = np.ascontiguousarray(saved["weights"], dtype=np.float64)
        cdef Py_ssize_t k, l
        self.n_latent = 0
        self.reserve(max(view.shape[0], 1))
        self.n_latent = view.shape[0]
        for k in range(self.n_latent):
            for l in range(self.n_latent):
                self.W[k * self.capacity + l] = view[k, l]

    def get_adaptation(self):
        return {"step": self.step}

    def set_adaptation(self, adaptation):
        self.step = adaptation["step"]
