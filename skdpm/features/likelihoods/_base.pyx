# SPDX-License-Identifier: BSD-3-Clause
"""Base classes of feature models, with the candidates of the row under update.

A function that a likelihood must override raises, or gives NaN, which samplers refuse.
"""
from libc.math cimport NAN
from libc.string cimport memcpy

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations

cdef class FeatureModel(MemoryOwner):

    def __cinit__(self, *args, **kwargs):
        self.max_bits = 15
        self.n_sweeps = 1
        self.Z = Allocations(np.zeros((0, 0)))

    cdef int reserve_candidates(self, Py_ssize_t n_candidates) except -1:
        """Grow the candidate array, keeping its contents."""
        if n_candidates > self.n_candidates:
            self.candidates = <double*>self.resized(
                self.candidates, n_candidates * max(self.width, 1), sizeof(double)
            )
            self.n_candidates = n_candidates

    cdef int refuse(self, const char* function) except -1 with gil:
        """Raise the error for a function that a likelihood must override and does not."""
        name = function.decode()
        raise NotImplementedError(f"{type(self).__name__} does not override `{name}`")

    cdef void copy(self, Py_ssize_t target, Py_ssize_t source) noexcept nogil:
        SKDPM_CHECK(target < self.n_candidates and source < self.n_candidates, "no such candidate")
        memcpy(
            self.candidates + target * self.width, self.candidates + source * self.width,
            self.width * sizeof(double)
        )

    cdef void spoil(self, Py_ssize_t candidate) noexcept nogil:
        """Fill a candidate with NaN, so that its use is detected."""
        for j in range(max(self.width, 1)):
            self.candidates[candidate * self.width + j] = NAN

    cdef Py_ssize_t list_others(
        self, const Py_ssize_t* features, Py_ssize_t n, Py_ssize_t* others
    ) noexcept nogil:
        """List the features that are not among n given ones. Returns their number."""
        cdef Py_ssize_t n_others = 0
        for k in range(self.n_latent):
            others[n_others] = k
            n_others += 1
            for j in range(n):
                n_others -= features[j] == k
        return n_others

    cdef int bind_allocations(self, Allocations Z) except -1:
        """Read the features of all rows from Z from now on. A state calls this at its start and,
        after `reserve`, whenever Z has grown."""
        self.Z = Z

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        """Allocate memory for the parameters of `n_latent` features."""
        return self.refuse("reserve")

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        """Begin the update of row i: candidate 0 becomes its value z."""
        self.spoil(0)

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on, double* out
    ) noexcept nogil:
        """log p(x_i | candidate with feature k switched on, or off) - log p(x_i | candidate). The
        candidates all lack feature k, or all have it."""
        for j in range(n):
            out[j] = NAN

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        """Switch feature k of a candidate on, or off."""
        self.spoil(candidate)

    cdef double log_row(self) noexcept nogil:
        """log p(x_i | candidate 0), with all constants."""
        return NAN

    cdef void end_row(self, const unsigned char* z) noexcept nogil:
        """End the update of the row, whose new value is z. Does nothing by default."""

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        """Add a feature with parameters drawn from their prior. Memory was reserved."""
        return self.refuse("add_feature")

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """Remove feature k; the last one takes its place."""
        return self.refuse("remove_feature")

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Do a step of a Markov chain that leaves p(parameters | Z, X) invariant. In warm-up
        (`adapting`) the step may tune itself: see `get_adaptation`."""
        return self.refuse("update_params")

    cdef double log_likelihood(self) noexcept nogil:
        """log p(X | Z, parameters), with all constants."""
        return NAN

    cdef double log_prior(self) noexcept nogil:
        """log density of the features' parameters given the hyperparameters."""
        return NAN

    cdef int mean_params(self) except -1 nogil:
        """Set the features' parameters to their means given Z and X. By default they stay."""

    cdef double log_marginal(self) noexcept nogil:
        """log p(X | Z, hyperparameters), parameters integrated out; by default given them."""
        return self.log_likelihood()

    cdef void log_rows(
        self, const Py_ssize_t* features, const double* log_odds, Py_ssize_t n, double* out
    ) noexcept nogil:
        """For all values of n features, log p(x_i | z) plus the log odds of the features that are
        on, minus the same with all off. Feature j is on in out[r] if bit j of r is set. Candidate
        0 has these features off, before and after. A Gray code flips one feature at a time."""
        cdef Py_ssize_t j
        cdef Py_ssize_t r = 0
        cdef double value = 0.0
        out[0] = 0.0
        for step in range(1, (<unsigned long long>1) << n):
            j = 0
            while not (step >> j) & 1:      # ends: step > 0 has a set bit
                j += 1
            on = not (r >> j) & 1
            value += self.log_flip(features[j], on) + (log_odds[j] if on else -log_odds[j])
            self.flip(0, features[j], on)
            r ^= (<Py_ssize_t>1) << j
            out[r] = value
        if n > 0:
            self.flip(0, features[n - 1], False)  # the code ends with the last feature alone

    cdef FeatureModel restricted(self):
        """Make a part without features. Its `update_params` draws all its parameters from
        q(parameters | Z): for a `CollapsedFeatureModel` their law given X."""
        self.refuse("restricted")

    cdef int restrict_from(
        self, FeatureModel whole, const Py_ssize_t* features, Py_ssize_t n
    ) except -1 nogil:
        """Become the part of n features of `whole`, with their parameters, given its
        hyperparameters and the parameters of its other features."""
        return self.refuse("restrict_from")

    cdef int give_back(self, FeatureModel whole, const Py_ssize_t* features) except -1 nogil:
        """Copy the parameters into `whole`: feature j here is features[j] there."""
        return self.refuse("give_back")

    cdef void gather(self, Py_ssize_t i, Py_ssize_t k, bitgen_t* rng) noexcept nogil:
        """Begin a launch of feature k of a part, which row i alone has: give it to other rows that
        may share it. The choice depends on neither Z nor parameters. By default to none."""

    cdef double log_weight(self) except? -1.0 nogil:
        """log p(X, parameters | Z) - log q(parameters | Z) of a part, at the parameters
        that `restrict_from` copied. By default q is the law given X, and this is log p(X | Z)."""
        return self.log_marginal()

    cdef double propose_params(self, bitgen_t* rng) except? -1.0 nogil:
        """Draw parameters of a part from q and keep them; returns their `log_weight`. By default
        nothing has to be drawn."""
        return self.log_marginal()

    cdef int settle_params(self, bitgen_t* rng) except -1 nogil:
        """Set the parameters of a part to those that `propose_params` kept, by default to new ones
        from q. Z is what it was then."""
        return self.update_params(False, rng)

    # The Python boundary.

    def save(self):
        """Parameters and hyperparameters, as a dict of plain objects."""
        raise NotImplementedError(f"{type(self).__name__} must implement `save`")

    def load(self, saved):
        """Set the parameters to those of a dict from `save`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `load`")

    def get_adaptation(self):
        """Dict of what `update_params` tunes in warm-up, such as `n_sweeps`: plain objects."""
        return {}

    def set_adaptation(self, adaptation):
        """Continue from a dict of `get_adaptation`."""

    def see(self, Z):
        """Bind a model of new rows to Z of the rows of `fit`, an ndarray."""
        self.bind_allocations(Allocations(Z))

    def start(self, Py_ssize_t n_latent, bit_generator):
        """Start with `n_latent` features whose parameters are drawn from their prior."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.reserve(n_latent)
        self.start_hyperparameters()
        with bit_generator.lock, nogil:
            for k in range(self.n_latent - 1, -1, -1):
                self.remove_feature(k)
            for _feature in range(n_latent):
                self.add_feature(rng)

    def start_hyperparameters(self):
        """Set learned hyperparameters to the values at which a chain starts."""

    def anneal(self, Py_ssize_t n_warmup):
        """Announce a chain that begins at an arbitrary state. A model may temper its law in the
        warm-up (`update_params` while `adapting`); its progress is part of the adaptation."""


cdef class CachedFlipModel(FeatureModel):

    cdef void begin_terms(self) noexcept nogil:
        """Complete candidate 0 after its running terms were set."""
        self.candidates[0] = self.log_terms(self.candidates + N_CACHED)
        self.candidates[2] = -1.0

    cdef double log_terms(self, const double* terms) noexcept nogil:
        """log p(x_i | candidate), with all constants."""
        return NAN

    cdef double log_flipped(self, const double* terms, Py_ssize_t k, bint on) noexcept nogil:
        """log p(x_i | candidate with feature k switched on, or off)."""
        return NAN

    cdef void flip_terms(self, double* terms, Py_ssize_t k, bint on) noexcept nogil:
        """Switch feature k of a candidate on, or off."""
        terms[0] = NAN

    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on, double* out
    ) noexcept nogil:
        for j in range(n):
            candidate = self.candidates + candidates[j] * self.width
            candidate[1] = self.log_flipped(candidate + N_CACHED, k, on)
            candidate[2] = 2 * k + on
            out[j] = candidate[1] - candidate[0]

    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil:
        cdef double* terms = self.candidates + candidate * self.width
        self.flip_terms(terms + N_CACHED, k, on)
        terms[0] = terms[1] if terms[2] == 2 * k + on else self.log_terms(terms + N_CACHED)
        terms[2] = -1.0

    cdef double log_row(self) noexcept nogil:
        return self.candidates[0]


cdef class CollapsedFeatureModel(FeatureModel):

    def __cinit__(self, *args, **kwargs):
        self.has_parts = True

    cdef Py_ssize_t draw_n_singletons(
        self, Py_ssize_t n, double rate, bint adapting, bitgen_t* rng
    ) except? -1 nogil:
        """Draw the next number of singletons of the row under update, which has n now: a step that
        leaves its conditional law invariant under a Poisson(rate) prior, except in warm-up
        (`adapting`). Candidate 0 has no singletons. -1: the weights are no distribution."""
        return self.refuse("draw_n_singletons")

    cdef int draw_singletons(
        self, const Py_ssize_t* features, Py_ssize_t n, bitgen_t* rng
    ) except -1 nogil:
        """Draw the parameters of the row's n singletons given the row. Candidate 0 has none."""
        return self.refuse("draw_singletons")

    cdef int set_n_new(self, Py_ssize_t n_new) except -1 nogil:
        """Include `n_new` new features of the row under update, with their parameters integrated
        out, in all densities up to the next `begin_row`."""
        return self.refuse("set_n_new")

    cdef double log_bound(self, Py_ssize_t n_new, double gain) noexcept nogil:
        """Upper bound of log p(x_i | z, m new features) over all z and m >= n_new. `gain` is an
        upper bound of log p(x_i | z) - log p(x_i | candidate 0)."""
        return NAN


cdef class InterceptFeatureModel(CollapsedFeatureModel):

    cdef double log_complement(self, Py_ssize_t k) noexcept nogil:
        """Change of the parameters' log density under `complement(k)`, with the log Jacobian."""
        return NAN

    cdef int complement(self, Py_ssize_t k) except -1 nogil:
        """Change the parameters so that the law of X is the same after feature k is given to the
        rows that lack it and taken from the others; an involution."""
        return self.refuse("complement")

    cdef bint takes_away(self, Py_ssize_t k) except -1 nogil:
        """Whether feature k lowers a row's expected sum, so that its complement is easier to read.
        """
        return self.refuse("takes_away")

    cdef double log_common(self, Py_ssize_t k) noexcept nogil:
        """Log density ratio of the sum u of the intercept and feature k, which all rows have: u as
        such a sum against u as the intercept alone. k = -1: u is the present intercept."""
        return NAN

    cdef int absorb(self, Py_ssize_t k) except -1 nogil:
        """Change the intercept so that the law of X is the same after feature k, which all rows
        have, is removed."""
        return self.refuse("absorb")

    cdef int split_off(self, Py_ssize_t k, bitgen_t* rng) except -1 nogil:
        """Draw the parameters of feature k, new in all rows, given its sum with the intercept."""
        return self.refuse("split_off")
