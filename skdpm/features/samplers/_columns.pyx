# SPDX-License-Identifier: BSD-3-Clause
"""Moves of whole columns of Z, which sweeps over the rows make slowly or never.

If an intercept can make up for a feature (`InterceptFeatureModel`), two moves keep the law of X:

- A feature is exchanged for its complement: the rows that lack it have it. Given the parameters
  the proposal is an involution; its ratio is that of the priors of Z and of the parameters.
- A feature that all rows have is absorbed by the intercept, or split off. This is for the Indian
  buffet process only, in which such a feature has no complement. The sum u of intercept and
  feature does not change. The parameters of a feature that is split off are drawn given u. The
  acceptance ratio is then that of the densities of u with and without the feature, times the
  ratio of the priors of Z and of the proposals: columns have no order, so that K of them with n
  that all rows have are reached from K - 1 in one way, and left in n.
"""
from libc.math cimport log, log1p

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, integer, uniform
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._relaunch cimport RelaunchKernel


cdef inline bint taken(double log_ratio, bitgen_t* rng) except -1 nogil:
    """Decide a Metropolis step."""
    if log_ratio != log_ratio:
        raise FloatingPointError("a move of a whole column of Z has no probability")
    return log1p(-uniform(rng)) < log_ratio


cdef inline double log_prior(FeatureState state, Py_ssize_t n_latent) noexcept nogil:
    """log p(Z | concentration) if the column sums were as they are now."""
    return state.prior.log_probability_at(state.prior.concentration, state.Z.col_sums, n_latent)


cdef inline Py_ssize_t count_full(FeatureState state) noexcept nogil:
    cdef Py_ssize_t n = 0
    for k in range(state.Z.n_latent):
        n += state.Z.col_sums[k] == state.n_samples
    return n


cdef class ColumnKernel:
    """A Markov kernel on whole columns of Z, with their parameters.

    - `n_moves`: int. Proposals of `RelaunchKernel` per iteration; 0: no moves at all.
    - `relaunches`: bool, default=True. If not, only the moves above are made.
    """
    cdef readonly Py_ssize_t n_moves
    cdef readonly RelaunchKernel relaunch

    def __init__(self, Py_ssize_t n_moves, bint relaunches=True):
        self.n_moves = n_moves
        self.relaunch = RelaunchKernel(n_moves if relaunches else 0)

    cdef int step(self, FeatureState state, bint adapting, bitgen_t* rng) except -1 nogil:
        if self.n_moves == 0:
            return 0
        if state.intercepted is not None:
            for k in range(state.Z.n_latent):
                self.exchange(state, k, rng)
            if state.prior.grows:
                if uniform(rng) < 0.5:
                    self.split_off(state, rng)
                else:
                    self.absorb(state, rng)
        if state.model.has_parts:
            self.relaunch.step(state, adapting, rng)

    cdef int exchange(self, FeatureState state, Py_ssize_t k, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t m = state.Z.col_sums[k]
        if state.prior.grows and m == state.n_samples:
            return 0    # its complement has no rows
        log_ratio = state.intercepted.log_complement(k) - log_prior(state, state.Z.n_latent)
        state.Z.col_sums[k] = state.n_samples - m
        log_ratio += log_prior(state, state.Z.n_latent)
        state.Z.col_sums[k] = m
        if taken(log_ratio, rng):
            state.complement(k)

    cdef int split_off(self, FeatureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t k = state.Z.n_latent
        if k == state.Z.stride:
            with gil:
                state.reserve(k + 1)
        log_ratio = state.intercepted.log_common(-1) - log_prior(state, k)
        state.Z.col_sums[k] = state.n_samples
        log_ratio += log_prior(state, k + 1)
        state.Z.col_sums[k] = 0
        log_ratio += log(k + 1.0) - log(count_full(state) + 1.0)
        if taken(log_ratio, rng):
            state.add_feature(0, rng)
            state.intercepted.split_off(k, rng)
            for i in range(state.n_samples):
                state.Z.set(i, k, True)

    cdef int absorb(self, FeatureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t k = 0
        cdef Py_ssize_t n_latent = state.Z.n_latent
        cdef Py_ssize_t n_full = count_full(state)
        cdef Py_ssize_t skipped
        if n_full == 0:
            return 0
        skipped = integer(rng, n_full)
        while state.Z.col_sums[k] != state.n_samples or skipped > 0:
            # Ends: more than `skipped` of the columns are full.
            skipped -= state.Z.col_sums[k] == state.n_samples
            k += 1
        log_ratio = -state.intercepted.log_common(k) - log_prior(state, n_latent)
        last = state.Z.col_sums + n_latent - 1
        state.Z.col_sums[k] = last[0]
        log_ratio += log_prior(state, n_latent - 1)
        state.Z.col_sums[k] = state.n_samples
        log_ratio += log(<double>n_full) - log(<double>n_latent)
        if taken(log_ratio, rng):
            state.intercepted.absorb(k)
            state.remove_feature(k)

    # The Python boundary.

    def run(self, FeatureState state, bit_generator, bint adapting=False):
        """Do the moves of one iteration, drawing from a numpy bit generator."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        if self.n_moves > 0 and state.model.has_parts:
            self.relaunch.prepare(state)
        with bit_generator.lock, nogil:
            self.step(state, adapting, rng)
