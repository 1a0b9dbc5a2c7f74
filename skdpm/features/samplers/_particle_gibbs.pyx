# SPDX-License-Identifier: BSD-3-Clause
"""Particle Gibbs for the shared features of a row (PGFA, sections 2.7-2.9; algorithms 3-5).

The T features are decided one by one, in random order. In generation t a particle is
xi_1, ..., xi_t; undecided features have the values of a test path. Its target is (eq. 11)

    gamma_t = p(x_i | xi_1..t, test path)^((t/T)^beta) prod_{s<=t} rho_s^xi_s (1-rho_s)^(1-xi_s),

and gamma_T is the row's conditional law. Factors common to all particles are omitted: the
likelihood is relative to that of the test path, and a one has weight rho / (1 - rho).

Particle Gibbs proposes the two values in proportion to their targets, so that a particle's weight
grows by the sum of both (eqs. 8-9), and resamples particles if their effective sample size is
small. The discrete particle filter makes both children of every particle and keeps about
n_particles of them. Particles with the same history are one node, computed once.
"""
from libc.math cimport INFINITY, exp, log1p, pow
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core cimport _resampling
from skdpm._core._resampling cimport MULTINOMIAL
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel

cdef inline double log_add(double a, double b) noexcept nogil:
    """log(exp(a) + exp(b)); NaN if either is."""
    if a < b:
        a, b = b, a
    return a if b == -INFINITY else a + log1p(exp(b - a))


cdef class RowFilterKernel(FeatureKernel):
    """A conditional particle filter over the features of a row.

    A subclass overrides `choose` and, if it resamples between generations, `resample`.
    """

    def __init__(self, Py_ssize_t n_particles, double annealing_power):
        self.n_particles = n_particles
        self.annealing_power = annealing_power
        self.particles = np.empty(n_particles, dtype=np.intp)

    cdef int prepare(self, FeatureState state) except -1:
        self.test, self.base = np.empty((2, self.n_reserved), np.uint8)
        reserve_nodes(self, state, max(self.n_nodes, self.least_nodes))

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        memcpy(&self.base[0], self.values, self.n_shared)
        if self.choose_test_path(state, rng) < 0:
            return -1
        return self.filter(state, rng, True, self.values)

    cdef int choose_test_path(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        """Set the values of undecided features in the targets of particles: zeros."""
        memset(&self.test[0], 0, self.n_shared)
        return 0

    cdef int filter(
        self, FeatureState state, bitgen_t* rng, bint conditional,
        unsigned char* drawn    # OUT (n_shared,): may be `test` or, if conditional, `values`
    ) except? -1 nogil:
        """Run the particle filter along the test path, then draw a history."""
        cdef Py_ssize_t n = self.n_shared
        cdef double last_power = 0.0
        for j in range(n):
            if self.base[j] != self.test[j]:
                state.model.flip(0, self.features[j], self.test[j])
                self.base[j] = self.test[j]
        self.n_free -= 1
        self.nodes[0].slot = self.free_slots[self.n_free]
        self.nodes[0].count = self.n_first
        self.nodes[0].log_w = 0.0
        self.nodes[0].log_ratio = 0.0
        state.model.copy(self.nodes[0].slot, 0)
        self.n_current = 1
        self.retained = 0 if conditional else -1
        for t in range(n):
            power = pow((t + 1.0) / n, self.annealing_power)
            self.resample(rng)
            if not extend(self, state, rng, t, power, last_power):
                return -1
            if t < n - 1:
                self.branch(state, t)
            last_power = power
        j = _resampling.draw_node(rng, self.log_w, self.counts, self.weights, 2 * self.n_current)
        if j < 0:
            return -1
        memcpy(drawn, self.histories + self.nodes[j >> 1].slot * self.n_reserved, n - 1)
        drawn[n - 1] = self.base[n - 1] ^ (j & 1)
        for j in range(self.n_current):
            self.free_slots[self.n_free] = self.nodes[j].slot
            self.n_free += 1
        return 0

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        """Resample the particles of the current generation; by default, do nothing."""

    cdef bint choose(self, Py_ssize_t t, Py_ssize_t kept, bitgen_t* rng) noexcept nogil:
        """Set the counts and log weights of the children in generation t; `kept` is the retained
        child (-1: none). Returns 0 if the weights are no distribution."""
        return False

    cdef int branch(self, FeatureState state, Py_ssize_t t) except -1 nogil:
        """Make nodes of the surviving children. One of two takes over its parent's candidate."""
        cdef Py_ssize_t n_next = 0, kept = -1
        cdef bint other = not self.base[t]
        for c in range(2 * self.n_current):
            n_next += self.counts[c] > 0
        if n_next > self.n_nodes:
            with gil:
                reserve_nodes(self, state, 2 * n_next)
        for g in range(self.n_current):
            if self.counts[2 * g] == 0 and self.counts[2 * g + 1] == 0:
                self.free_slots[self.n_free] = self.nodes[g].slot
                self.n_free += 1
        n_next = 0
        for c in range(2 * self.n_current):
            if self.counts[c] == 0:
                continue
            g = c >> 1
            slot = self.nodes[g].slot
            if c & 1:
                if self.counts[c - 1] > 0:
                    self.n_free -= 1
                    slot = self.free_slots[self.n_free]
                    state.model.copy(slot, self.nodes[g].slot)
                    memcpy(
                        self.histories + slot * self.n_reserved,
                        self.histories + self.nodes[g].slot * self.n_reserved, t
                    )
                state.model.flip(slot, self.features[t], other)
            self.histories[slot * self.n_reserved + t] = other if c & 1 else self.base[t]
            node = &self.next_nodes[n_next]
            node.slot = slot
            node.count = self.counts[c]
            node.log_w = self.log_w[c]
            node.log_ratio = self.log_ratios[c]
            if c == self.retained:
                kept = n_next
            n_next += 1
        self.nodes, self.next_nodes = self.next_nodes, self.nodes
        self.n_current = n_next
        self.retained = kept


cdef int reserve_nodes(RowFilterKernel self, FeatureState state, Py_ssize_t n_nodes) except -1:
    """Grow the arrays to `n_nodes` nodes, keeping their contents."""
    self.nodes = <Node*>self.resized(self.nodes, n_nodes, sizeof(Node))
    self.next_nodes = <Node*>self.resized(self.next_nodes, n_nodes, sizeof(Node))
    self.slots = <Py_ssize_t*>self.resized(self.slots, n_nodes, sizeof(Py_ssize_t))
    self.free_slots = <Py_ssize_t*>self.resized(self.free_slots, n_nodes, sizeof(Py_ssize_t))
    self.histories = <unsigned char*>self.resized(self.histories, n_nodes + 1, self.n_reserved)
    self.log_w = <double*>self.resized(self.log_w, 2 * n_nodes, sizeof(double))
    self.log_ratios = <double*>self.resized(self.log_ratios, 2 * n_nodes, sizeof(double))
    self.weights = <double*>self.resized(self.weights, 2 * n_nodes, sizeof(double))
    self.counts = <Py_ssize_t*>self.resized(self.counts, 2 * n_nodes, sizeof(Py_ssize_t))
    for slot in range(self.n_nodes + 1, n_nodes + 1):
        self.free_slots[self.n_free] = slot
        self.n_free += 1
    state.model.reserve_candidates(n_nodes + 1)
    self.n_nodes = n_nodes


cdef bint extend(
    RowFilterKernel self, FeatureState state, bitgen_t* rng, Py_ssize_t t, double power,
    double last_power
) noexcept nogil:
    """Make and weigh both children of each node; choose who survives. 0 if weights are no law."""
    cdef Py_ssize_t kept = -1       # the retained child
    cdef bint other = not self.base[t]
    cdef double one = self.log_odds[t]
    for g in range(self.n_current):
        self.slots[g] = self.nodes[g].slot
    state.model.log_flip_many(self.slots, self.n_current, self.features[t], other, self.weights)
    for g in range(self.n_current):
        node = &self.nodes[g]
        self.log_ratios[2 * g] = node.log_ratio
        self.log_ratios[2 * g + 1] = node.log_ratio + self.weights[g]
        for c in range(2 * g, 2 * g + 2):
            self.log_w[c] = node.log_w + power * self.log_ratios[c] - last_power * node.log_ratio
            self.counts[c] = 1
        self.log_w[2 * g + other] += one
        if g == self.retained:
            kept = 2 * g + (self.values[t] != self.base[t])
    # From here to `branch`, `retained` is the number of a child.
    self.retained = kept
    return self.choose(t, kept, rng)


cdef class ParticleGibbsKernel(RowFilterKernel):
    """Kernel of `ParticleGibbs`."""

    def __init__(self, Py_ssize_t n_particles, double annealing_power, double resample_threshold):
        super().__init__(n_particles, annealing_power)
        self.resample_threshold = resample_threshold
        self.n_first = self.least_nodes = n_particles

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        """Conditional multinomial resampling if the relative effective sample size is small.
        (Equations 10 and 17 of the paper mean the weight of the chosen ancestor.)"""
        for g in range(self.n_current):
            self.log_w[g] = self.nodes[g].log_w
            self.counts[g] = self.nodes[g].count
        if _resampling.resample_if_uneven(
            rng, MULTINOMIAL, self.resample_threshold, self.log_w, self.weights, self.counts,
            self.n_current, self.retained, &self.particles[0]
        ):
            for g in range(self.n_current):
                self.nodes[g].count = self.counts[g]
                self.nodes[g].log_w = self.log_w[g]

    cdef bint choose(self, Py_ssize_t t, Py_ssize_t kept, bitgen_t* rng) noexcept nogil:
        """Draw each particle's child in proportion to the two weights; its weight is their sum."""
        cdef Py_ssize_t others
        for g in range(self.n_current):
            node = &self.nodes[g]
            node.log_w = log_add(self.log_w[2 * g], self.log_w[2 * g + 1])
            share = exp(self.log_w[2 * g + 1] - node.log_w)
            if node.count > 0 and not (0.0 <= share < INFINITY):
                return False
            others = node.count
            for c in range(2 * g, 2 * g + 2):
                self.log_w[c] = node.log_w
                self.counts[c] = c == kept
                others -= c == kept
            for _particle in range(others):
                self.counts[2 * g + (uniform(rng) < share)] += 1
        return True


cdef class DiscreteFilterKernel(RowFilterKernel):
    """Kernel of `DiscreteParticleFilter`."""

    def __init__(self, Py_ssize_t n_particles, double annealing_power):
        super().__init__(n_particles, annealing_power)
        self.n_first = 1
        # The number of nodes is random, with mean and variance at most n_particles.
        self.least_nodes = 2 * n_particles + 32

    cdef bint choose(self, Py_ssize_t t, Py_ssize_t kept, bitgen_t* rng) noexcept nogil:
        """Keep about `n_particles` children by optimal resampling; all in the last generation."""
        if t == self.n_shared - 1 or 2 * self.n_current <= self.n_particles:
            return True
        return _resampling.resample_optimal(
            rng, self.log_w, self.counts, self.weights, 2 * self.n_current, kept, self.n_particles
        )
