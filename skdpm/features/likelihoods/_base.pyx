# SPDX-License-Identifier: BSD-3-Clause
"""What every likelihood of features shares: candidates for the row under update."""
from libc.math cimport NAN
from libc.stdlib cimport free
from libc.string cimport memcpy
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bit_generator_pointer


cdef class FeatureModel:

    def __dealloc__(self):
        free(self.candidates)

    cdef int reserve_candidates(self, Py_ssize_t n_candidates) except -1:
        """Room for so many; those there are stay as they are."""
        if n_candidates > self.n_candidates:
            self.candidates = <double*>resized(
                self.candidates, n_candidates * max(self.width, 1), sizeof(double)
            )
            self.n_candidates = n_candidates
        return 0

    cdef void copy(self, Py_ssize_t target, Py_ssize_t source) noexcept nogil:
        SKDPM_CHECK(target < self.n_candidates and source < self.n_candidates, "no such candidate")
        memcpy(
            self.candidates + target * self.width, self.candidates + source * self.width,
            self.width * sizeof(double)
        )

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        """Room for the parameters of so many features."""
        raise NotImplementedError(f"{type(self).__name__} does not override `reserve`")

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        """Row i is under update: candidate 0 is its value z."""
        pass

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on,
        double* out     # OUT (n,)
    ) noexcept nogil:
        """log p(x_i | candidate with feature k switched on, or off) - log p(x_i | candidate), for
        candidates of which none, or each, has it."""
        cdef Py_ssize_t j
        for j in range(n):
            out[j] = NAN

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        """Switch feature k of a candidate on, or off."""
        pass

    cdef void end_row(self, const unsigned char* z) noexcept nogil:
        """The row under update has its new value, z."""
        pass

    cdef void add_feature(self, bitgen_t* rng) noexcept nogil:
        """A further feature, its parameters drawn from their prior; room was reserved."""
        pass

    cdef void remove_feature(self, Py_ssize_t k) noexcept nogil:
        """Remove feature k; the last one takes its place."""
        pass

    cdef int update_params(
        self, const unsigned char* Z, Py_ssize_t stride, bitgen_t* rng
    ) except -1 nogil:
        """A step of a Markov chain that leaves p(parameters | Z, X) invariant."""
        with gil:
            raise RuntimeError(f"{type(self).__name__} does not override `update_params`")

    cdef double log_likelihood(self, const unsigned char* Z, Py_ssize_t stride) noexcept nogil:
        """log p(X | Z, parameters), with all constants."""
        return NAN

    cdef double log_prior(self) noexcept nogil:
        """log density of the features' parameters given the hyperparameters."""
        return NAN

    cdef int mean_params(self, const unsigned char* Z, Py_ssize_t stride) except -1 nogil:
        """The features' parameters take their means given Z and X; they stay where that is not
        known."""
        return 0

    cdef double log_marginal(self, const unsigned char* Z, Py_ssize_t stride) noexcept nogil:
        """log p(X | Z, hyperparameters), the features' parameters integrated out; given them where
        that is impossible."""
        return self.log_likelihood(Z, stride)

    cdef void log_rows(
        self, const Py_ssize_t* features, const double* log_odds, Py_ssize_t n,
        double* out     # OUT (2**n,)
    ) noexcept nogil:
        """log p(x_i | z) plus the log odds of the features that are on, less its value where all
        are off, for all values of the n features: feature j is on in out[r] where bit j of r is.

        Candidate 0 has these features off, before and after. The values are walked in the order
        of a Gray code, one feature switched at a time.
        """
        cdef Py_ssize_t j
        cdef Py_ssize_t r = 0
        cdef Py_ssize_t candidate = 0
        cdef unsigned long long step
        cdef double value = 0.0
        cdef double change
        cdef bint on
        out[0] = 0.0
        for step in range(1, (<unsigned long long>1) << n):
            j = 0
            while not (step >> j) & 1:
                j += 1
            on = not (r >> j) & 1
            self.log_flip_many(&candidate, 1, features[j], on, &change)
            self.flip(0, features[j], on)
            value += change + (log_odds[j] if on else -log_odds[j])
            r ^= (<Py_ssize_t>1) << j
            out[r] = value
        if n > 0:
            self.flip(0, features[n - 1], False)  # the code ends with the last feature alone

    cdef Py_ssize_t draw_n_singletons(
        self, Py_ssize_t n, double rate, bint adapting, bitgen_t* rng
    ) noexcept nogil:
        """The next number of features that the row under update has for itself, n being the last:
        a step that leaves its conditional law invariant, under a Poisson(rate) prior and with
        their parameters integrated out. Candidate 0 has none of them. In warm-up (`adapting`) it
        may be another such step. Only where `collapses`."""
        return -1

    cdef void draw_singletons(
        self, const Py_ssize_t* features, Py_ssize_t n, bitgen_t* rng
    ) noexcept nogil:
        """Draw the parameters of the n features that are the row's own given the row. Candidate 0
        has none of them. Only where `collapses`."""
        pass

    cdef double log_row(self) noexcept nogil:
        """log p(x_i | candidate 0), with all constants."""
        return NAN

    cdef void set_n_new(self, Py_ssize_t n_new) noexcept nogil:
        """Until this is called again, densities of rows are those of rows with so many further
        features, their parameters integrated out. After `load`; only where `collapses`."""
        pass

    cdef double log_bound(self, Py_ssize_t n_new, double gain) noexcept nogil:
        """An upper bound of log p(x_i | z, m further features) over all z and m >= n_new, where
        `gain` bounds log p(x_i | z) - log p(x_i | candidate 0). Only where `collapses`."""
        return NAN

    # The Python boundary.

    def save(self):
        """Parameters and hyperparameters, as a dict of plain objects."""
        raise NotImplementedError(f"{type(self).__name__} must write `save`")

    def load(self, saved):
        """Take the parameters of `save`."""
        raise NotImplementedError(f"{type(self).__name__} must write `load`")

    def start(self, Py_ssize_t n_latent, bit_generator):
        """Begin with `n_latent` features, their parameters drawn from their prior."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef Py_ssize_t k, _feature
        self.reserve(n_latent)
        self.start_hyperparameters()
        with bit_generator.lock, nogil:
            for k in range(self.n_latent - 1, -1, -1):
                self.remove_feature(k)
            for _feature in range(n_latent):
                self.add_feature(rng)

    def start_hyperparameters(self):
        """Give those that are not fixed the values at which a chain starts."""


cdef class FeatureProbe:
    """A likelihood's kernel for tests: its functions, callable from Python."""
    cdef readonly FeatureModel model

    def __init__(self, FeatureModel model, Py_ssize_t n_candidates=4):
        self.model = model
        model.reserve_candidates(n_candidates)

    def begin_row(self, Py_ssize_t i, z):
        cdef const unsigned char[::1] view = np.ascontiguousarray(z, dtype=np.uint8)
        self.model.begin_row(i, &view[0] if view.shape[0] else NULL)

    def copy(self, Py_ssize_t target, Py_ssize_t source):
        self.model.copy(target, source)

    def flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on):
        self.model.flip(candidate, k, on)

    def log_flip_many(self, candidates, Py_ssize_t k, bint on):
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(candidates, dtype=np.intp)
        cdef double[::1] out = np.empty(view.shape[0])
        self.model.log_flip_many(&view[0], view.shape[0], k, on, &out[0])
        return np.asarray(out)

    def log_rows(self, features, log_odds):
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(features, dtype=np.intp)
        cdef const double[::1] odds = np.ascontiguousarray(log_odds, dtype=np.float64)
        cdef Py_ssize_t n = view.shape[0]
        cdef double[::1] out = np.empty(1 << n)
        self.model.log_rows(
            &view[0] if n else NULL, &odds[0] if n else NULL, n, &out[0]
        )
        return np.asarray(out)

    def log_likelihood(self, Z):
        cdef const unsigned char[:, ::1] view = np.ascontiguousarray(Z, dtype=np.uint8)
        return self.model.log_likelihood(
            &view[0, 0] if view.size else NULL, view.shape[1]
        )

    def log_prior(self):
        return self.model.log_prior()
