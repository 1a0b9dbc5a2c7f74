# SPDX-License-Identifier: BSD-3-Clause
"""What every likelihood of features shares: candidates for the row under update.

A function that a likelihood forgets to write fills NaN, which samplers refuse, or raises.
"""
from libc.math cimport NAN
from libc.stdlib cimport free
from libc.string cimport memcpy
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bit_generator_pointer
from skdpm.features._allocations cimport Allocations

cdef enum:
    LARGEST_BITS = 15


cdef class FeatureModel:

    def __cinit__(self, *args, **kwargs):
        self.max_bits = LARGEST_BITS
        self.Z = Allocations(np.zeros((0, 0)))

    def __dealloc__(self):
        free(self.candidates)

    cdef int reserve_candidates(self, Py_ssize_t n_candidates) except -1:
        """Take room for so many; those there are stay as they are."""
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

    cdef void spoil(self, Py_ssize_t candidate) noexcept nogil:
        """Fill a candidate with NaN: whoever evaluates it hears of it."""
        cdef Py_ssize_t j
        for j in range(max(self.width, 1)):
            self.candidates[candidate * self.width + j] = NAN

    cdef int bind_allocations(self, Allocations Z) except -1:
        """Read the features of all rows in Z from now on. A state calls this when it begins and,
        after `reserve`, whenever Z has room for more features: the time for a model to compute,
        and to take memory for, what it keeps of all rows."""
        self.Z = Z
        return 0

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        """Take room for the parameters of so many features."""
        raise NotImplementedError(f"{type(self).__name__} does not override `reserve`")

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        """Begin the update of row i: candidate 0 becomes its value z."""
        self.spoil(0)

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
        self.spoil(candidate)

    cdef void end_row(self, const unsigned char* z) noexcept nogil:
        """End the update of the row: z is its new value. A model that keeps nothing of it needs
        not know."""
        pass

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        """Add a feature, its parameters drawn from their prior; room was reserved."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `add_feature`")

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """Remove feature k; the last one takes its place."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `remove_feature`")

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Do a step of a Markov chain that leaves p(parameters | Z, X) invariant; in warm-up
        (`adapting`) it may learn how to, see `get_adaptation`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `update_params`")

    cdef double log_likelihood(self) noexcept nogil:
        """log p(X | Z, parameters), with all constants."""
        return NAN

    cdef double log_prior(self) noexcept nogil:
        """log density of the features' parameters given the hyperparameters."""
        return NAN

    cdef int mean_params(self) except -1 nogil:
        """Give the features' parameters their means given Z and X; leave them as they are where
        that is not known."""
        return 0

    cdef double log_marginal(self) noexcept nogil:
        """log p(X | Z, hyperparameters), the features' parameters integrated out; given them where
        that is impossible."""
        return self.log_likelihood()

    cdef void log_rows(
        self, const Py_ssize_t* features, const double* log_odds, Py_ssize_t n,
        double* out     # OUT (2**n,)
    ) noexcept nogil:
        """log p(x_i | z) plus the log odds of the features that are on, less its value where all
        are off, for all values of the n features: feature j is on in out[r] where bit j of r is.

        Candidate 0 has these features off, before and after. The values are walked in the order
        of a Gray code, one feature flipped at a time.
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
            while not (step >> j) & 1:      # ends: step > 0 has a bit that is set
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
        """Draw the next number of singletons of the row under update, n being the last: a step
        that leaves its conditional law invariant, under a Poisson(rate) prior and with their
        parameters integrated out. Candidate 0 has none of them. In warm-up (`adapting`) it may be
        another such step. -1 where there is no such law. Only where `collapses`."""
        return -1

    cdef int draw_singletons(
        self, const Py_ssize_t* features, Py_ssize_t n, bitgen_t* rng
    ) except -1 nogil:
        """Draw the parameters of the row's n singletons given the row. Candidate 0 has none of
        them. Only where `collapses`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `draw_singletons`")

    cdef double log_complement(self, Py_ssize_t k) noexcept nogil:
        """What `complement(k)` changes in the log density of the parameters, the logarithm of the
        Jacobian included."""
        return NAN

    cdef int complement(self, Py_ssize_t k) except -1 nogil:
        """Change the parameters so that the law of X stays when feature k is given to the rows
        that lack it and taken from those that have it; twice is not at all. Only where
        `complements`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `complement`")

    cdef bint takes_away(self, Py_ssize_t k) except -1 nogil:
        """Tell whether rows with feature k have less of everything, all in all, than others: of
        it and its complement, users rather see the other. Only where `complements`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `takes_away`")

    cdef double log_common(self, Py_ssize_t k) noexcept nogil:
        """log density of what is common to all rows where feature k, which all have, is part of
        it, less that where there is no such feature; k = -1: of a feature that there might be,
        nothing being common but what is now."""
        return NAN

    cdef int absorb(self, Py_ssize_t k) except -1 nogil:
        """Change what all rows share so that the law of X stays when feature k, which all have, is
        removed: it will be. Only where `complements`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `absorb`")

    cdef int split_off(self, Py_ssize_t k, bitgen_t* rng) except -1 nogil:
        """Draw the parameters of feature k, just added, given what is common to all rows, which
        all will have it: the reverse of `absorb`. Only where `complements`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `split_off`")

    cdef FeatureModel restricted(self):
        """Make a second model of the same rows, without features, for `restrict_from`. Its
        `log_marginal` integrates all its parameters out, and its `update_params` draws them from
        their law given Z: hyperparameters are those of this model. Only where `restricts`."""
        raise NotImplementedError(f"{type(self).__name__} does not override `restricted`")

    cdef void restrict_from(
        self, FeatureModel whole, const Py_ssize_t* features, Py_ssize_t n
    ) noexcept nogil:
        """Become a model of what is left for n features of `whole`: of its rows, given its
        hyperparameters and the parameters of its other features."""
        pass

    cdef void give_back(self, FeatureModel whole, const Py_ssize_t* features) noexcept nogil:
        """Give `whole` the parameters: feature j here is features[j] there."""
        pass

    cdef double log_row(self) noexcept nogil:
        """log p(x_i | candidate 0), with all constants."""
        return NAN

    cdef int set_n_new(self, Py_ssize_t n_new) except -1 nogil:
        """Give the row under update so many new features, their parameters integrated out, in the
        densities up to the next `begin_row`. Only where `collapses`."""
        with gil:
            raise NotImplementedError(f"{type(self).__name__} does not override `set_n_new`")

    cdef double log_bound(self, Py_ssize_t n_new, double gain) noexcept nogil:
        """Bound log p(x_i | z, m new features) from above, over all z and m >= n_new, where
        `gain` bounds log p(x_i | z) - log p(x_i | candidate 0). Only where `collapses`."""
        return NAN

    # The Python boundary.

    def save(self):
        """Parameters and hyperparameters, as a dict of plain objects."""
        raise NotImplementedError(f"{type(self).__name__} must write `save`")

    def load(self, saved):
        """Take the parameters of `save`."""
        raise NotImplementedError(f"{type(self).__name__} must write `load`")

    def get_adaptation(self):
        """What `update_params` has learnt in warm-up, as a dict of plain objects."""
        return {}

    def set_adaptation(self, adaptation):
        """Go on from `get_adaptation`."""

    def see(self, Z):
        """Show Z of the rows of `fit`, an ndarray, to a model of new rows."""
        self.bind_allocations(Allocations(Z))

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

    def anneal(self, Py_ssize_t n_warmup):
        """Hear that a chain begins anywhere, with so many iterations of warm-up. A model may then
        go over to its law in these (`update_params` while `adapting`): where it stands is part of
        the adaptation."""
