# SPDX-License-Identifier: BSD-3-Clause
"""Particle systems of Ulker, Gunsel & Cemgil (2010): an annealed concentration, an active block.

The concentration changes with n: p_n, the prior of n rows, moves from alpha_1 to kappa, the
concentration of the model. Before row n a weight is multiplied by p_n(z) / p_{n-1}(z), z being the
partition of the rows before it, and where results are read by p_kappa(z) / p_n(z).

After row n Gibbs draws some old rows again, each given all other rows: the *active block*, the
next rows in turn, whatever their labels. That leaves p_n(z) p(X | z) and the weights as they are.
All particles that hold a cluster lose the row at once; then it joins as a new row does.
"""
from libc.math cimport INFINITY, pow

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.particles._labels cimport OUTSIDE
from skdpm.mixture.particles._slots cimport Family
from skdpm.mixture.particles._system cimport FAINT, ParticleSystem
from skdpm.mixture.priors._base cimport PartitionPrior
from skdpm.mixture.state._state cimport Noise


cdef class AnnealedSystem(ParticleSystem):
    """A particle system whose concentration changes, and that draws old rows again.

    - `annealing`: tuple (first, rate) or None. The concentration of n rows is that of the prior
      plus its distance to `first` times (1 - rate)^(n - 1). Needs a fixed concentration.
    - `active_block`: int. Number of old rows drawn again after each row. The kernels must have all
      rows.
    """
    cdef readonly Py_ssize_t block_start    # first row of the next active block
    cdef Py_ssize_t active_block
    cdef bint annealed
    cdef double first_concentration, rate
    # The old row that is drawn again: (n_particles,).
    cdef Py_ssize_t[::1] origins        # cluster that it comes from, or OUTSIDE ...
    cdef unsigned char[::1] alone       # ... and whether it was alone there

    def __init__(
        self, Py_ssize_t n_particles, str resampling, double resample_threshold,
        PartitionPrior prior, concentration_prior=None, annealing=None,
        Py_ssize_t active_block=0, Noise noise=None
    ):
        super().__init__(
            n_particles, resampling, resample_threshold, prior, concentration_prior, noise
        )
        self.active_block = active_block
        if annealing is not None:
            if concentration_prior is not None:
                raise ValueError("annealing needs a fixed concentration")
            self.annealed = True
            self.first_concentration, self.rate = annealing
            self.nodes.concentration = self.concentration_of(0)
        self.origins = np.empty(n_particles, np.intp)
        self.alone = np.empty(n_particles, np.uint8)

    cdef int step(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        if self.annealed:
            self.anneal()
        self.place(i, rng)
        if self.active_block > 0:
            self.move_block(rng)
        return 0

    # The concentration.

    cdef double concentration_of(self, Py_ssize_t n) noexcept nogil:
        """The concentration of the prior of n rows."""
        cdef double last = self.nodes.prior.concentration
        return last + (self.first_concentration - last) * pow(
            1.0 - self.rate, max(n - 1.0, 0.0)
        )

    cdef void anneal(self) noexcept nogil:
        """Change to the prior of one more row. A particle's weight follows the probability of its
        partition: V_{n,k} and, if sigma changes, the factors of its clusters."""
        cdef Py_ssize_t f, j, k, p, slot
        cdef double before = self.nodes.concentration
        cdef double after = self.concentration_of(self.n_rows + 1)
        cdef double old_sigma = self.nodes.sigmas[0]
        # By k, scratch: a ratio, and the number of rows in clusters that it is for.
        cdef double* log_ratio = &self.nodes.join_k[0]
        cdef double* known_at = &self.nodes.new_k[0]
        cdef double sigma
        cdef double* v
        cdef const double* sizes
        if after == before:
            return
        self.count()
        for k in range(self.k_most + 1):
            known_at[k] = -1.0
        for p in range(self.weights.n):
            k = self.n_clusters[p]
            if k == 0:
                continue
            if known_at[k] != self.n_inside(p):
                known_at[k] = self.n_inside(p)
                log_ratio[k] = (
                    self.nodes.prior.log_v_at(after, self.n_inside(p), k)
                    - self.nodes.prior.log_v_at(before, self.n_inside(p), k)
                )
            self.weights.log_w[p] += log_ratio[k]
        sigma = self.nodes.prior.sigma_at(after)
        self.nodes.concentration = self.nodes.values[0] = after
        self.nodes.sigmas[0] = sigma
        self.nodes.ratios.forget()
        self.nodes.forget_factors()
        for k in range(self.k_capacity + 2):
            self.nodes.known[k] = False
        if sigma == old_sigma:
            return
        for f in range(self.n_families):
            v = (<Family>self.family_at[f]).v       # scratch until the row is evaluated
            sizes = (<Family>self.family_at[f]).sizes
            for j in range((<Family>self.family_at[f]).n_live):
                slot = (<Family>self.family_at[f]).live[j]
                v[slot] = (
                    log_rising(1.0 - sigma, sizes[slot] - 1.0)
                    - log_rising(1.0 - old_sigma, sizes[slot] - 1.0)
                )
        for p in range(self.weights.n):
            v = (<Family>self.kin[p]).v
            for j in range(self.n_clusters[p]):
                self.weights.log_w[p] += v[self.slots[p, j]]

    # Old rows.

    cdef int move_block(self, bitgen_t* rng) except -1 nogil:
        """Draw the rows of the active block again, one after the other. The block ends before the
        newest row; one that gets there is the last of a cycle."""
        cdef Py_ssize_t i, k, p
        cdef Py_ssize_t n_old = self.n_rows - 1
        cdef Py_ssize_t stop = min(self.block_start + self.active_block, n_old)
        self.count()
        for k in range(self.k_capacity + 2):
            self.nodes.new_k[k] = -1.0      # not known, see `average_ratio`
        for i in range(self.block_start, stop):
            if not self.has_room(0):
                with gil:
                    self.make_room(0)
            self.row_at_hand = i
            self.detach(i)
            self.evaluate(i)
            for p in range(self.weights.n):
                if not self.redraw(p, rng):
                    raise FloatingPointError(f"row {i}: no cluster has a positive weight")
            self.reattach(i, rng)
            if self.is_stuck():
                raise FloatingPointError(f"row {i}: its missing entries have no law")
        self.block_start = stop if stop < n_old else 0
        return 0

    cdef void detach(self, Py_ssize_t i) noexcept nogil:
        """An old row leaves its cluster in all particles. A cluster of this row alone stays, but
        is no choice."""
        cdef Py_ssize_t p
        self.tick += 1
        for p in range(self.weights.n):
            self.origins[p] = self.labels.at(p, i)
            if self.origins[p] == OUTSIDE:
                self.alone[p] = False
                self.n_noise[p] -= 1
                self.log_outside[p] -= self.log_as_noise(p, i)
                continue
            if (<Family>self.kin[p]).has_gaps(i):
                # As they are in the cluster, for all who share it.
                (<Family>self.kin[p]).model.write_gaps(i, &self.completions[p, 0])
            self.alone[p] = (<Family>self.kin[p]).leave(
                self.slots[p, self.origins[p]], i, self.tick
            )

    cdef double average_ratio(self, Py_ssize_t k) noexcept nogil:
        """r of all rows, averaged over the law of the concentration given k clusters, where sigma
        is common. That is the weight of a new cluster for an old row, the other rows being in k
        clusters; a cluster of m has m - sigma."""
        cdef Py_ssize_t g
        cdef const double* r
        if self.nodes.new_k[k] < 0.0:
            if not self.nodes.known[k]:
                self.nodes.make_law(k, self.n_rows)
            r = self.nodes.ratios.at(self.n_rows, k)
            self.nodes.new_k[k] = 0.0
            for g in range(self.nodes.n_nodes):
                self.nodes.new_k[k] += self.nodes.by_k[k, g] * r[g]
        return self.nodes.new_k[k]

    cdef void hide_origin(self, Py_ssize_t p) noexcept nogil:
        """Exclude the cluster that a particle's row comes from: it becomes the last, not counted.
        """
        cdef Py_ssize_t last = self.n_clusters[p] - 1
        cdef Py_ssize_t j = self.origins[p]
        self.slots[p, j], self.slots[p, last] = self.slots[p, last], self.slots[p, j]
        self.n_clusters[p] = last

    cdef void show_origin(self, Py_ssize_t p) noexcept nogil:
        """Undo `hide_origin`."""
        cdef Py_ssize_t last = self.n_clusters[p]
        cdef Py_ssize_t j = self.origins[p]
        self.slots[p, j], self.slots[p, last] = self.slots[p, last], self.slots[p, j]
        self.n_clusters[p] = last + 1

    cdef void take_out(self, Py_ssize_t p) noexcept nogil:
        """Divide the law of a particle, where each has one, by the factor of the current row, and
        average the factors of all choices. V in the law is that of one more row in clusters than
        the other rows are."""
        cdef Py_ssize_t g, k
        cdef Py_ssize_t n = self.n_inside(p)
        cdef double s_join = 0.0
        cdef double s_new = 0.0
        cdef double s_sigma = 0.0
        cdef double size
        cdef double* w = &self.nodes.own[p, 0]
        cdef const double* r
        if self.origins[p] == OUTSIDE:
            k = self.n_clusters[p]
            if k > 0:
                r = self.nodes.ratios.at(n, k)
                for g in range(self.nodes.n_nodes):
                    w[g] /= n - 1 - self.nodes.sigmas[g] * k + r[g]
        elif self.alone[p]:
            # Anew, as a product would not recover from underflow.
            self.hide_origin(p)
            k = self.n_clusters[p]
            self.renew_own_law(p)
            self.show_origin(p)
        else:
            k = self.n_clusters[p]
            size = (<Family>self.kin[p]).sizes[self.slots[p, self.origins[p]]]
            for g in range(self.nodes.n_nodes):
                w[g] /= size - self.nodes.sigmas[g]
        if k == 0:      # all other rows are noise
            s_join = s_new = 1.0
        else:
            r = self.nodes.ratios.at(n, k)
            for g in range(self.nodes.n_nodes):
                s_join += w[g]
                s_sigma -= w[g] * self.nodes.sigmas[g]
                s_new += w[g] * r[g]
        self.nodes.slope[p] = s_join
        self.nodes.offset[p] = s_sigma / s_join
        self.nodes.fresh[p] = s_new
        if self.noise is not None:
            # The weights of the clusters sum to V_{n-1,k} / V_{n,k}.
            self.inside_share[p] = self.noise.b + (n - 1)
            self.noise_share[p] = (self.noise.a + self.n_noise[p]) * (
                (n - 1) * s_join + k * s_sigma + s_new
            )

    cdef void put_back(self, Py_ssize_t p, Py_ssize_t j) noexcept nogil:
        """Multiply the law of a particle by the factor of the row's new cluster, or of noise."""
        cdef Py_ssize_t g
        cdef Py_ssize_t n = self.n_inside(p)
        cdef Py_ssize_t k = self.n_clusters[p] - self.alone[p]
        cdef double size, scale
        cdef double* w = &self.nodes.own[p, 0]
        cdef const double* r
        if k == 0:
            return
        if j == OUTSIDE:
            r = self.nodes.ratios.at(n, k)
            scale = (self.noise.a + self.n_noise[p]) / self.noise_share[p]
            for g in range(self.nodes.n_nodes):
                w[g] *= (n - 1 - self.nodes.sigmas[g] * k + r[g]) * scale
        elif j < self.n_clusters[p]:
            size = (<Family>self.kin[p]).sizes[self.slots[p, j]]
            scale = 1.0 / (self.nodes.slope[p] * (size + self.nodes.offset[p]))
            for g in range(self.nodes.n_nodes):
                w[g] *= (size - self.nodes.sigmas[g]) * scale
        else:
            r = self.nodes.ratios.at(n, k)
            scale = 1.0 / self.nodes.fresh[p]
            for g in range(self.nodes.n_nodes):
                w[g] *= r[g] * scale

    cdef bint redraw(self, Py_ssize_t p, bitgen_t* rng) noexcept nogil:
        """Draw the cluster of an old row given all other rows. Uses one uniform number. Returns
        False if no choice has a positive weight."""
        cdef Py_ssize_t j
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef Py_ssize_t left_out = self.origins[p] if self.alone[p] else -1
        cdef const int* slots = &self.slots[p, 0]
        cdef Py_ssize_t n_choices = k + 1 + (self.noise is not None)
        cdef const double* v = (<Family>self.kin[p]).v
        cdef double* terms = &self.terms[0]
        cdef double top, total
        if self.nodes.common:
            self.nodes.slope[p] = 1.0
            self.nodes.offset[p] = -self.nodes.sigmas[0]
            self.nodes.fresh[p] = self.average_ratio(k - self.alone[p])
            for j in range(k):
                terms[j] = v[slots[j]]
            terms[k] = (<Family>self.kin[p]).v_new * self.nodes.fresh[p]
        else:
            self.take_out(p)
            self.list_terms(p, self.top, terms)
        total = sum_without(terms, n_choices, left_out)
        if total < FAINT:
            if self.alone[p]:
                self.hide_origin(p)
                top = self.top_of(p)
                self.show_origin(p)
            else:
                top = self.top_of(p)
            self.list_terms(p, top, terms)
            total = sum_without(terms, n_choices, left_out)
        if not (0.0 < total < INFINITY):
            return False
        self.choices[p] = self.pick(terms, k, uniform(rng) * total)
        if not self.nodes.common:
            self.put_back(p, self.choices[p])
        return True

    cdef void reattach(self, Py_ssize_t i, bitgen_t* rng) noexcept nogil:
        """The old row joins the cluster that each particle has chosen."""
        cdef Py_ssize_t j, p, slot
        for p in range(self.weights.n):
            j = self.choices[p]
            if j != OUTSIDE and j < self.n_clusters[p]:
                (<Family>self.kin[p]).choose(self.slots[p, j], self.tick)
        for p in range(self.weights.n):
            j = self.choices[p]
            if self.alone[p]:
                (<Family>self.kin[p]).let_go_live(self.slots[p, self.origins[p]])
                if j == self.n_clusters[p]:     # alone again
                    slot = (<Family>self.kin[p]).enter_newborn(i, self.tick, p, rng)
                    self.slots[p, self.origins[p]] = <int>slot
                    self.keep_gaps(p, slot, i)
                    continue
                j = self.close(p, self.origins[p], j)
            self.labels.set(p, i, j)
            if j == OUTSIDE:
                self.leave_out(p, i)
            else:
                self.enter(p, j, i, rng)
        self.close_gaps(i)

    # The Python boundary.

    def run(self, bit_generator, Py_ssize_t first, Py_ssize_t stop):
        if self.active_block > 0 and (first != self.n_rows or self.labels.n_before > 0):
            raise ValueError("an active block needs the labels of all rows")
        super().run(bit_generator, first, stop)

    def final_log_weights(self):
        log_w = self.log_weights()
        if not self.annealed:
            return log_w
        return log_w + self.log_ratios([self.nodes.prior.concentration])[0]

    def get_state(self):
        block = {"block_start": self.block_start} if self.active_block > 0 else {}
        return {**super().get_state(), **block}

    def set_state(self, models, state):
        if self.annealed:
            self.nodes.concentration = self.concentration_of(state["n_rows"])
        super().set_state(models, state)
        self.block_start = state.get("block_start", 0)


cdef inline double sum_without(double* terms, Py_ssize_t n, Py_ssize_t left_out) noexcept nogil:
    """Sum of the terms; the one left_out, unless it is -1, is set to 0."""
    cdef Py_ssize_t j
    cdef double total = 0.0
    if left_out >= 0:
        terms[left_out] = 0.0
    for j in range(n):
        total += terms[j]
    return total
