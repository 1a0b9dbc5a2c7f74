# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._memory cimport MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations


cdef enum:
    N_CACHED = 3    # terms of a candidate of a `CachedFlipModel` before the subclass's own


cdef inline void add_scaled(
    double* target, double by, const double* source, Py_ssize_t n
) noexcept nogil:
    for j in range(n):
        target[j] += by * source[j]


cdef class FeatureModel(MemoryOwner):
    """p(X | Z, parameters); a row's law may depend on all of Z.

    A *candidate* is a possible value of the row under update, with the model's running terms for
    it (`width` doubles): particles are candidates. Candidate 0 always exists.

    `Z` is the matrix of the state that the model is bound to. It is current at every call, except
    for the row between `begin_row` and `end_row`, whose value is z or a candidate. A model of new
    rows is bound to the matrix of the rows of `fit`.
    """
    cdef readonly Py_ssize_t n_samples
    cdef readonly Py_ssize_t n_latent       # features that have parameters
    cdef readonly Py_ssize_t n_candidates, width
    cdef readonly int max_bits              # most features for which all values are summed
    cdef readonly int n_sweeps              # of rows, columns and parameters, per iteration
    cdef readonly bint has_parts            # whether `restricted` makes a model of some features
    cdef readonly Allocations Z
    cdef double* candidates                 # (n_candidates, width)

    cdef inline double log_flip(self, Py_ssize_t k, bint on) noexcept nogil:
        """`log_flip_many` of candidate 0."""
        cdef Py_ssize_t candidate = 0
        cdef double log_ratio
        self.log_flip_many(&candidate, 1, k, on, &log_ratio)
        return log_ratio

    # Written once, in _base.pyx.
    cdef int refuse(self, const char* function) except -1 with gil
    cdef int reserve_candidates(self, Py_ssize_t n_candidates) except -1
    cdef void copy(self, Py_ssize_t target, Py_ssize_t source) noexcept nogil
    cdef void spoil(self, Py_ssize_t candidate) noexcept nogil
    cdef Py_ssize_t list_others(
        self, const Py_ssize_t* features, Py_ssize_t n,
        Py_ssize_t* others      # OUT (n_latent - n,); scratch (n_latent,)
    ) noexcept nogil

    # A likelihood overrides these; z is the value of the row under update, (n_latent,).
    cdef int reserve(self, Py_ssize_t n_latent) except -1
    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil
    cdef void log_flip_many(
        self, const Py_ssize_t* candidates, Py_ssize_t n, Py_ssize_t k, bint on,
        double* out     # OUT (n,)
    ) noexcept nogil
    cdef void flip(self, Py_ssize_t candidate, Py_ssize_t k, bint on) noexcept nogil
    cdef double log_row(self) noexcept nogil
    cdef int add_feature(self, bitgen_t* rng) except -1 nogil
    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil
    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil
    cdef double log_likelihood(self) noexcept nogil
    cdef double log_prior(self) noexcept nogil

    # These have defaults.
    cdef int bind_allocations(self, Allocations Z) except -1
    cdef void end_row(self, const unsigned char* z) noexcept nogil
    cdef int mean_params(self) except -1 nogil
    cdef double log_marginal(self) noexcept nogil
    cdef void log_rows(
        self, const Py_ssize_t* features, const double* log_odds, Py_ssize_t n,
        double* out     # OUT (2**n,)
    ) noexcept nogil

    # A likelihood that sets `has_parts` overrides the first three. A *part* is a second model of
    # the same rows that has some of the features, given the parameters of the others.
    cdef FeatureModel restricted(self)
    cdef int restrict_from(
        self, FeatureModel whole, const Py_ssize_t* features, Py_ssize_t n
    ) except -1 nogil
    cdef int give_back(self, FeatureModel whole, const Py_ssize_t* features) except -1 nogil
    cdef void gather(self, Py_ssize_t i, Py_ssize_t k, bitgen_t* rng) noexcept nogil
    cdef double log_weight(self) except? -1.0 nogil
    cdef double propose_params(self, bitgen_t* rng) except? -1.0 nogil
    cdef int settle_params(self, bitgen_t* rng) except -1 nogil


cdef class CachedFlipModel(FeatureModel):
    """A model that keeps the result of the last evaluated flip, in case it is made.

    A candidate is log p(x_i | z), log p(x_i | z after the last evaluated flip), the code of that
    flip (2 k + on; -1: none), then the running terms of the subclass.
    """
    cdef void begin_terms(self) noexcept nogil
    # These replace `log_flip_many`, `flip` and `log_row`; `terms` are the running terms.
    cdef double log_terms(self, const double* terms) noexcept nogil
    cdef double log_flipped(self, const double* terms, Py_ssize_t k, bint on) noexcept nogil
    cdef void flip_terms(self, double* terms, Py_ssize_t k, bint on) noexcept nogil


cdef class CollapsedFeatureModel(FeatureModel):
    """A model that can integrate out the parameters of all features (`log_marginal`)."""
    # The row under update and its singletons, the features that no other row has.
    cdef Py_ssize_t draw_n_singletons(
        self, Py_ssize_t n, double rate, bint adapting, bitgen_t* rng
    ) except? -1 nogil
    cdef int draw_singletons(
        self, const Py_ssize_t* features, Py_ssize_t n, bitgen_t* rng
    ) except -1 nogil
    # New rows.
    cdef int set_n_new(self, Py_ssize_t n_new) except -1 nogil
    cdef double log_bound(self, Py_ssize_t n_new, double gain) noexcept nogil


cdef class InterceptFeatureModel(CollapsedFeatureModel):
    """A model in which an intercept, shared by all rows, can make up for a feature."""
    cdef readonly bint has_intercept        # if not, the functions below are not called
    cdef double log_complement(self, Py_ssize_t k) noexcept nogil
    cdef int complement(self, Py_ssize_t k) except -1 nogil
    cdef bint takes_away(self, Py_ssize_t k) except -1 nogil
    cdef double log_common(self, Py_ssize_t k) noexcept nogil
    cdef int absorb(self, Py_ssize_t k) except -1 nogil
    cdef int split_off(self, Py_ssize_t k, bitgen_t* rng) except -1 nogil
