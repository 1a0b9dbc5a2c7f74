# SPDX-License-Identifier: BSD-3-Clause
"""A sweep over the rows of Z, which updates a row's features in two parts (Bouchard-Cote & Roth,
particle Gibbs for feature allocation, section 2.5). The sampler draws the features that other rows
have. Another step, the same for all samplers, draws those of the row alone, its singletons, under
the Indian buffet process.
"""
from libc.math cimport exp

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, integer, random_poisson, uniform
from skdpm.features.state._state cimport FeatureState


cdef enum:
    MOST_SINGLETONS = 10000     # expected for a row by the prior; more would exhaust memory


cdef class FeatureKernel(MemoryOwner):

    cdef int reserve(self, FeatureState state) except -1:
        cdef Py_ssize_t n = state.Z.stride
        if n > self.n_reserved:
            self.features = <Py_ssize_t*>self.resized(self.features, n, sizeof(Py_ssize_t))
            self.log_odds = <double*>self.resized(self.log_odds, n, sizeof(double))
            self.values = <unsigned char*>self.resized(self.values, n, 1)
            self.singletons = <Py_ssize_t*>self.resized(self.singletons, n, sizeof(Py_ssize_t))
            self.n_reserved = n
        self.prepare(state)

    cdef int prepare(self, FeatureState state) except -1:
        """Allocate memory of the sampler; called by `reserve`."""

    cdef int step(self, FeatureState state, bitgen_t* rng) except -1 nogil:
        for i in range(state.n_samples):
            self.update(state, i, rng)

    cdef int update(self, FeatureState state, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        cdef const unsigned char* z = state.Z.row(i)
        # If features come and go, one that no other row has is a singleton.
        cdef Py_ssize_t least = 1 if state.prior.grows else 0
        cdef double rate = state.prior.new_rate
        self.n_shared = self.n_singletons = 0
        for k in range(state.Z.n_latent):
            m = state.Z.col_sums[k] - z[k]
            if m >= least:
                self.features[self.n_shared] = k
                self.log_odds[self.n_shared] = state.prior.log_odds[m]
                self.n_shared += 1
            else:
                self.singletons[self.n_singletons] = k
                self.n_singletons += 1
        if self.n_shared > 0:
            shuffle(self, rng)
            for j in range(self.n_shared):
                self.values[j] = z[self.features[j]]
            state.model.begin_row(i, z)
            if self.update_row(state, rng) < 0:
                raise FloatingPointError(f"row {i}: no value has a positive weight")
            for j in range(self.n_shared):
                state.Z.set(i, self.features[j], self.values[j])
        if rate != 0.0:
            if not 0.0 < rate <= MOST_SINGLETONS:
                raise FloatingPointError(
                    f"row {i}: the prior expects {rate:g} features that no other row has"
                )
            if state.collapses:
                update_singletons_collapsed(self, state, i, rate, rng)
            else:
                update_singletons(self, state, i, rate, rng)
            if state.Z.stride > self.n_reserved:
                with gil:
                    self.reserve(state)
        state.model.end_row(state.Z.row(i))

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        """Draw `values` from a kernel that leaves their conditional law invariant. Candidate 0 is
        the present row at first and anything afterwards. Returns -1 if no weight is positive."""
        raise NotImplementedError(f"{type(self).__name__} does not override `update_row`")

    # The Python boundary.

    def run(self, FeatureState state, bit_generator, bint adapting=False):
        """Do one sweep over the rows of `state`, drawing from a numpy bit generator."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.adapting = adapting
        self.reserve(state)
        with bit_generator.lock, nogil:
            self.step(state, rng)


cdef int update_singletons_collapsed(
    FeatureKernel self, FeatureState state, Py_ssize_t i, double rate, bitgen_t* rng
) except -1 nogil:
    """Update the number of the row's singletons with their parameters integrated out, then
    draw the parameters given the row (Doshi-Velez & Ghahramani 2009)."""
    for j in range(self.n_singletons):
        state.Z.set(i, self.singletons[j], False)
    state.model.begin_row(i, state.Z.row(i))
    n = state.collapsed.draw_n_singletons(self.n_singletons, rate, self.adapting, rng)
    if n < 0:
        raise FloatingPointError(
            f"row {i}: the number of features that no other row has cannot be drawn"
        )
    while self.n_singletons > n:
        # Ends: one fewer each time. From the last down: a free place goes to none of those left.
        self.n_singletons -= 1
        state.remove_feature(self.singletons[self.n_singletons])
    for j in range(self.n_singletons):
        state.Z.set(i, self.singletons[j], True)
    for j in range(self.n_singletons, n):
        state.add_feature(i, rng)
        if state.Z.stride > self.n_reserved:
            with gil:
                self.reserve(state)
        self.singletons[j] = state.Z.n_latent - 1
    self.n_singletons = n
    state.collapsed.draw_singletons(self.singletons, n, rng)


cdef int update_singletons(
    FeatureKernel self, FeatureState state, Py_ssize_t i, double rate, bitgen_t* rng
) except -1 nogil:
    """Propose a new number of singletons and their parameters from the prior: a Metropolis
    step with the likelihood ratio as its acceptance ratio."""
    cdef Py_ssize_t first = state.Z.n_latent
    cdef Py_ssize_t n = random_poisson(rng, rate)
    cdef double log_ratio = 0.0
    if n == 0 and self.n_singletons == 0:
        return 0
    for j in range(n):
        state.add_feature(i, rng)
        state.Z.set(i, first + j, False)
    state.model.begin_row(i, state.Z.row(i))
    for j in range(self.n_singletons + n):
        k = self.singletons[j] if j < self.n_singletons else first + j - self.n_singletons
        log_ratio += state.model.log_flip(k, j >= self.n_singletons)
        state.model.flip(0, k, j >= self.n_singletons)
    if log_ratio != log_ratio:
        raise FloatingPointError(f"row {i}: no value has a positive weight")
    if uniform(rng) < exp(log_ratio):
        for j in range(n):
            state.Z.set(i, first + j, True)
        for j in range(self.n_singletons - 1, -1, -1):
            state.remove_feature(self.singletons[j])
    else:
        for j in range(n - 1, -1, -1):
            state.remove_feature(first + j)


cdef void shuffle(FeatureKernel self, bitgen_t* rng) noexcept nogil:
    for j in range(self.n_shared - 1, 0, -1):
        other = integer(rng, j + 1)
        self.features[j], self.features[other] = self.features[other], self.features[j]
        self.log_odds[j], self.log_odds[other] = self.log_odds[other], self.log_odds[j]
