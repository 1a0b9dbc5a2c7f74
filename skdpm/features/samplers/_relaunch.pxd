# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.features.likelihoods._allocations cimport Allocations
from skdpm.features.state._state cimport FeatureState
from skdpm.features.likelihoods._base cimport FeatureModel


cdef enum:
    MOST_LAUNCHED = 4       # features of a launch
    MOST_RECODED = 3        # features of a recoding

cdef enum Proposal:         # where new columns of a move come from
    LAUNCH                  # from one row of each
    MAP                     # a function of the codes of old ones, then a sweep; in warm-up only
    UNION                   # two columns and their union, either way


cdef class RelaunchKernel:
    """A Markov kernel that replaces some columns of Z, and their parameters, by others."""
    cdef readonly Py_ssize_t n_moves
    cdef FeatureModel whole                 # the model that `part` was made from
    cdef FeatureModel part                  # of `whole`: the features of the move
    cdef Allocations Z                      # (n_samples, MOST_LAUNCHED): matrix of `part`
    cdef unsigned char[:, ::1] present      # (n_samples, MOST_LAUNCHED): columns to replace
    cdef unsigned char[:, ::1] columns      # (n_samples, MOST_LAUNCHED): proposed columns
    cdef unsigned char[::1] groups          # (n_samples,): codes of rows before a recoding
    cdef Py_ssize_t n_reserved              # capacity of the arrays below
    cdef Py_ssize_t[::1] features           # (n_reserved,): features with rows, shuffled
    cdef Py_ssize_t[::1] col_sums           # (n_reserved,): scratch
    cdef double[::1] weights                # (n_reserved,): scratch
    cdef Py_ssize_t proposed[MOST_LAUNCHED + 1][MOST_LAUNCHED + 1]
    cdef Py_ssize_t accepted[MOST_LAUNCHED + 1][MOST_LAUNCHED + 1]

    cdef int prepare(self, FeatureState state) except -1
    cdef int step(self, FeatureState state, bint adapting, bitgen_t* rng) except -1 nogil
    cdef int choose(
        self, FeatureState state, Py_ssize_t n, Py_ssize_t n_used, bint adapting, bitgen_t* rng
    ) except -1 nogil
    cdef int move(
        self, FeatureState state, Py_ssize_t n_old, Py_ssize_t n_new, Proposal proposal,
        bint adapting, bitgen_t* rng
    ) except -1 nogil
    cdef int recode(
        self, FeatureState state, Py_ssize_t n, bint adapting, bitgen_t* rng
    ) except -1 nogil
    cdef Py_ssize_t list_used(self, FeatureState state) except -1 nogil
