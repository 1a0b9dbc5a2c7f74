# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo: weighted partitions of the rows so far, the particles, take one row
after the other. For every partition z, the unnormalised weights W satisfy

    E sum_i W_i 1(z_i = z) = p(z) p(X | z),

so the sum of the weights is an unbiased estimate of the evidence p(X).

Let y be row n, and let a particle have k clusters of the n - 1 rows before it. Under a prior of
Gibbs type (priors/_base) the terms of the choices of y are

    join a cluster of m:  (m - sigma) V_{n,k} / V_{n-1,k} p(y | cluster)
    a new one:            V_{n,k+1} / V_{n-1,k} p(y)

If rows may be noise, with a probability of the law Beta(a, b), let n_0 of the n - 1 rows be noise.
V is then that of the rows in clusters alone. The terms above are multiplied by
(b + n - 1 - n_0) / (a + b + n - 1), and there is one more choice, with the term
(a + n_0) / (a + b + n - 1) g(y). z then says which rows are noise, too.

A cluster is drawn with probabilities proportional to the terms, and W is multiplied by their sum.
`_nodes` computes the prior's factors and integrates out an unknown concentration. Particles are
resampled between weighing and drawing (`_weights`), and share clusters by reference (`_slots`).

If entries of y are missing and a likelihood draws them (elliptical/_gaps), p(y | cluster) is the
density of the others, and once y has joined a cluster, the missing ones follow their law given it.
So E sum_i W_i 1(z_i = z, u_i in du) = p(z) p(X, du | z), u being the entries drawn so far, and the
evidence is that of the known entries. Particles that share a cluster share the entries of its
rows, which changes no expectation.

A row x that is forgotten leaves its cluster, and W is divided by the sum of the terms that x, as
the next row, would have then: p(x | z, other rows). Summed over the choices of x, E sum W 1(z)
was p(z) p(X | z) p(x | z, other rows) for partitions z of the other rows, so it is that of these
rows again. The labels of rows are in the places of the kernels' rows then.
"""
from libc.math cimport INFINITY, exp, log
from libc.string cimport memcpy

import numpy as np
from scipy.special import logsumexp

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, uniform
from skdpm._core._tiles cimport tile_exp
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, as_indices, log_constant, row
from skdpm.mixture.particles._labels cimport MOST_NARROW, OUTSIDE, KeptLabels
from skdpm.mixture.particles._nodes cimport ConcentrationNodes
from skdpm.mixture.particles._slots cimport Family
from skdpm.mixture.particles._weights cimport Weights
from skdpm.mixture.priors._base cimport PartitionPrior
from skdpm.mixture.state._state cimport NOISE, MixtureState, Noise

from skdpm.mixture.particles._labels import signed
from skdpm.mixture.particles._nodes import STEP, log_ratios

cdef enum:
    FEWEST_CLUSTERS = 64    # initial capacity

# Terms are relative to the best cluster of all particles. If the sum of a particle's terms is less
# than this, they are computed again relative to its own best cluster.
cdef double FAINT = 1e-200


cdef class ParticleSystem(MemoryOwner):
    """Particles of one chain, and the rows they have taken.

    - `n_particles`: int. Largest number of particles.
    - `resampling`: {"systematic", "stratified", "multinomial", "optimal"}
    - `resample_threshold`: float. Threshold of the effective sample size per particle.
    - `prior`: PartitionPrior. Prior, of any number of rows: its tables are not used.
    - `concentration_prior`: Hyperprior or None. Prior of a concentration that is integrated out.
      None: that of `prior` is fixed.
    - `noise`: Noise or None. Law of rows that are noise, with densities of rows of the kernels.

    Attributes:

    - `n_rows`: int. Number of rows taken so far.
    - `n_current`: int. Number of particles.
    - `n_resampled`: int. Number of times that particles were resampled.
    - `row_at_hand`: int. Number of the last placed row in the kernels.
    """

    def __init__(
        self, Py_ssize_t n_particles, str resampling, double resample_threshold,
        PartitionPrior prior, concentration_prior=None, Noise noise=None
    ):
        cdef Py_ssize_t n = n_particles
        self.noise = noise
        self.weights = Weights(n, resampling, resample_threshold)
        self.nodes = ConcentrationNodes(prior, concentration_prior, n, noise is not None)
        self.families = []
        self.kin = <void**>self.resized(NULL, n, sizeof(void*))
        self.n_clusters, self.choices = np.empty((2, n), np.intp)
        self.tops, self.totals = np.empty((2, n))
        self.n_noise, self.log_outside = np.zeros(n, np.intp), np.zeros(n)

    # Memory, which needs the interpreter's lock.

    cdef int reserve_clusters(self, Py_ssize_t k) except -1:
        """Make room for particles of k clusters, with the nodes they need."""
        cdef Py_ssize_t capacity = max(self.k_capacity, FEWEST_CLUSTERS)
        while capacity < k:
            capacity *= 2
        if capacity == self.k_capacity:
            return 0
        slots = np.empty((self.weights.n_most, capacity), np.intc)
        if self.k_capacity > 0:
            slots[:, :self.k_capacity] = self.slots
        self.slots = slots
        self.terms = np.empty(capacity + 2)
        self.k_capacity = capacity
        self.nodes.resize(capacity)
        for p in range(self.weights.n):
            self.renew_own_law(p)

    cdef int make_room(self, Py_ssize_t n_new) except -1:
        """Reserve the memory of the next placement, with n_new new rows."""
        cdef Family family
        for family in self.families:
            if not family.has_room(self.weights.n_most):
                family.reserve(2 * family.n_live + family.most_born(self.weights.n_most) + 2)
        self.reserve_clusters(self.k_most + 1)
        self.labels.reserve(n_new, self.labels.wide or self.k_most >= MOST_NARROW)
        self.weights.reserve_children(self.most_children())

    cdef Py_ssize_t most_children(self) noexcept nogil:
        """Largest number of choices that "optimal" resampling follows."""
        return self.weights.n * (self.k_most + 2) if self.weights.optimal else 0

    cdef bint has_room(self, Py_ssize_t n_new) noexcept nogil:
        for f in range(self.n_families):
            if not (<Family>self.family_at[f]).has_room(self.weights.n_most):
                return False
        return (
            self.k_most < self.k_capacity
            and self.labels.has_room(n_new, self.k_most)
            and self.most_children() <= self.weights.capacity
        )

    # Particles.

    cdef void drop(self, Py_ssize_t p) noexcept nogil:
        """A particle dies and releases its slots."""
        (<Family>self.kin[p]).let_go_all(&self.slots[p, 0], self.n_clusters[p])

    cdef void branch(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Dead particle dst becomes a copy of particle src, without its weight and choice."""
        cdef Py_ssize_t k = self.n_clusters[src]
        self.kin[dst] = self.kin[src]
        self.n_clusters[dst] = k
        self.tops[dst] = self.tops[src]
        self.totals[dst] = self.totals[src]
        self.n_noise[dst] = self.n_noise[src]
        self.log_outside[dst] = self.log_outside[src]
        (<Family>self.kin[src]).hold_all(&self.slots[src, 0], k)
        memcpy(&self.slots[dst, 0], &self.slots[src, 0], k * sizeof(int))
        self.labels.copy(dst, src)
        if self.completions.shape[1] > 0:
            memcpy(
                &self.completions[dst, 0], &self.completions[src, 0],
                self.completions.shape[1] * sizeof(double)
            )
        self.nodes.branch(dst, src)

    cdef void count(self) noexcept nogil:
        """Update the laws of the concentration to the particles."""
        self.k_most = self.nodes.count(&self.n_clusters[0], self.weights.n, self.n_rows)

    cdef void renew_own_law(self, Py_ssize_t p) noexcept nogil:
        """Compute the law of the concentration of a particle in closed form, unless the law is
        common to particles with the same number of clusters."""
        if not self.nodes.common:
            self.nodes.make_own_law(
                p, self.n_inside(p), (<Family>self.kin[p]).sizes, &self.slots[p, 0],
                self.n_clusters[p]
            )

    # A row.

    cdef void evaluate(self, Py_ssize_t i) noexcept nogil:
        """Compute the density of row i in all clusters."""
        self.top = -INFINITY
        for f in range(self.n_families):
            if (<Family>self.family_at[f]).n_members > 0:
                top = (<Family>self.family_at[f]).evaluate(i)
                if self.noise is not None:
                    top = max(
                        top,
                        self.noise.log_density[i]
                        - log_constant((<Family>self.family_at[f]).model, i)
                    )
                if not (top <= self.top):
                    self.top = top
        for f in range(self.n_families):
            if (<Family>self.family_at[f]).n_members > 0:
                (<Family>self.family_at[f]).scale(
                    self.top, self.nodes.common, self.nodes.sigmas[0]
                )

    cdef double list_terms(self, Py_ssize_t p, double top, double* terms) noexcept nogil:
        """Write the terms of all choices, times exp(-top): (n_clusters + 1,), then that of noise,
        if rows may be noise. Returns the sum."""
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef const int* slots = &self.slots[p, 0]
        cdef const double* v = (<Family>self.kin[p]).v
        cdef const double* log_p = (<Family>self.kin[p]).log_p
        cdef const double* sizes = (<Family>self.kin[p]).sizes
        cdef double slope = self.nodes.slope[p]
        cdef double offset = self.nodes.offset[p]
        cdef double total = 0.0
        if top == self.top and self.nodes.common:
            for j in range(k):
                terms[j] = slope * v[slots[j]]
                total += terms[j]
            terms[k] = self.nodes.fresh[p] * (<Family>self.kin[p]).v_new
            return total + terms[k]
        if top == self.top:
            for j in range(k):
                terms[j] = v[slots[j]]
            terms[k] = (<Family>self.kin[p]).v_new
        else:
            for j in range(k):
                terms[j] = log_p[slots[j]] - top
            terms[k] = (<Family>self.kin[p]).log_p_new - top
            tile_exp(terms, k + 1)
        for j in range(k):
            terms[j] *= slope * (sizes[slots[j]] + offset)
            total += terms[j]
        terms[k] *= self.nodes.fresh[p]
        total += terms[k]
        if self.noise is not None:
            share = (self.noise.a + self.n_noise[p]) / (self.noise.a + self.noise.b + self.n_rows)
            for j in range(k + 1):
                terms[j] *= 1.0 - share
            terms[k + 1] = share * exp(self.log_as_noise(p, self.row_at_hand) - top)
            return total * (1.0 - share) + terms[k + 1]
        return total

    cdef double top_of(self, Py_ssize_t p) noexcept nogil:
        """The largest log density of the row among the choices of a particle."""
        cdef const int* slots = &self.slots[p, 0]
        cdef const double* log_p = (<Family>self.kin[p]).log_p
        cdef double top = -INFINITY
        if self.nodes.fresh[p] > 0.0:
            top = (<Family>self.kin[p]).log_p_new
        for j in range(self.n_clusters[p]):
            if log_p[slots[j]] > top:
                top = log_p[slots[j]]
        if self.noise is not None:
            top = max(top, self.log_as_noise(p, self.row_at_hand))
        return top

    cdef bint weigh(self, Py_ssize_t p, double sign) noexcept nogil:
        """Multiply a particle's weight by the sum of its terms to the power of `sign`. Returns
        False unless the sum is a positive number."""
        cdef const int* slots = &self.slots[p, 0]
        cdef const double* v = (<Family>self.kin[p]).v
        cdef double total = 0.0
        if self.nodes.common:
            # Without a list of terms, which takes longer.
            for j in range(self.n_clusters[p]):
                total += v[slots[j]]
            total = total * self.nodes.slope[p] + (<Family>self.kin[p]).v_new * self.nodes.fresh[p]
        else:
            total = self.list_terms(p, self.top, &self.terms[0])
        self.tops[p] = self.top
        if total < FAINT:
            # The row may be an outlier for this particle only.
            self.tops[p] = self.top_of(p)
            if self.tops[p] == -INFINITY:
                return False
            total = self.list_terms(p, self.tops[p], &self.terms[0])
        if not (0.0 < total < INFINITY):
            return False
        self.totals[p] = total
        self.weights.log_w[p] += sign * (self.tops[p] + log(total))
        if (<Family>self.kin[p]).model.constants_vary:
            self.weights.log_w[p] += sign * log_constant(
                (<Family>self.kin[p]).model, self.row_at_hand
            )
        return True

    cdef Py_ssize_t draw(self, Py_ssize_t p, bitgen_t* rng) noexcept nogil:
        """Draw the cluster that the row joins in a particle. Uses one uniform number."""
        cdef const int* slots = &self.slots[p, 0]
        cdef const double* v = (<Family>self.kin[p]).v
        cdef double u = uniform(rng) * self.totals[p]
        cdef double left = u - (<Family>self.kin[p]).v_new * self.nodes.fresh[p]
        if self.tops[p] == self.top and self.nodes.common and left >= 0.0:
            left /= self.nodes.slope[p]
            for j in range(self.n_clusters[p]):
                left -= v[slots[j]]
                if left < 0.0:
                    return j
        self.list_terms(p, self.tops[p], &self.terms[0])
        return self.pick(&self.terms[0], self.n_clusters[p], u)

    cdef Py_ssize_t pick(self, const double* terms, Py_ssize_t k, double u) noexcept nogil:
        """The choice that u, below the sum of the terms of `list_terms`, selects."""
        if self.noise is not None:
            u -= terms[k + 1]
            if u < 0.0:
                return OUTSIDE
        u -= terms[k]
        if u < 0.0:
            return k
        for j in range(k):
            u -= terms[j]
            if u < 0.0:
                return j
        # Rounding may leave u at 0: never take a choice of weight zero.
        for j in range(k, -1, -1):
            if terms[j] > 0.0:
                return j
        return OUTSIDE

    cdef int step(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        """Take row i of the kernels. Other systems override this."""
        return self.place(i, rng, True)

    cdef int place(self, Py_ssize_t i, bitgen_t* rng, bint is_new) except -1 nogil:
        """Weigh the particles by row i of the kernels, resample them, and let the row join. A row
        that was taken away and is not new changes no weight, and its label is kept in place i."""
        if not self.has_room(is_new):
            with gil:
                self.make_room(is_new)
        self.weigh_all(i, is_new)
        if not is_new:
            self.draw_all(rng)
        elif not self.weights.optimal:
            if self.weights.is_degenerate():
                self.resample(rng)
            self.draw_all(rng)
        elif not self.follow_children(rng):
            raise FloatingPointError(f"row {i}: the weights are no distribution")
        if is_new:
            self.nodes.follow_laws(self.n_rows)
        if not self.grow(i, self.labels.n_kept if is_new else i, rng):
            raise FloatingPointError(f"row {i}: its missing entries have no law")
        self.n_rows += 1
        if is_new:
            self.labels.n_kept += 1
            self.count_constant(i, 1.0)

    cdef int weigh_all(self, Py_ssize_t i, double sign) except -1 nogil:
        """Compute the terms of all choices of row i, the next row, and multiply each weight by
        their sum to the power of `sign`; 0: laws by k have counted the row."""
        cdef Py_ssize_t n = self.weights.n
        cdef bint counted = sign == 0.0
        self.row_at_hand = i
        self.evaluate(i)
        self.k_most = self.nodes.count(&self.n_clusters[0], n, self.n_rows + counted)
        self.nodes.weigh(&self.n_clusters[0], &self.n_noise[0], n, self.n_rows, counted)
        for p in range(n):
            if not self.weigh(p, sign):
                raise FloatingPointError(f"row {i}: no cluster has a positive weight")

    cdef void count_constant(self, Py_ssize_t i, double sign) noexcept nogil:
        if (<Family>self.family_at[0]).model.constants_vary:
            for f in range(self.n_families):
                (<Family>self.family_at[f]).count_constant(i, sign)
        else:
            self.sum_constants += sign * log_constant((<Family>self.family_at[0]).model, i)

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        """Replace the particles by as many of equal weight. Survivors keep their places."""
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t* counts = &self.weights.counts[0]
        self.weights.resample(rng)
        for p in range(self.weights.n):
            if counts[p] == 0:
                self.drop(p)
        for p in range(self.weights.n):
            for _copy in range(counts[p] - 1):
                while counts[place] > 0:        # ends: there is a place for each copy
                    place += 1
                self.branch(place, p)
                place += 1

    cdef void draw_all(self, bitgen_t* rng) noexcept nogil:
        for p in range(self.weights.n):
            self.choices[p] = self.draw(p, rng)

    cdef bint follow_children(self, bitgen_t* rng) noexcept nogil:
        """Turn all choices of all particles into particles, thinned to the maximum number. If
        there are already that many particles, with even weights, each draws one choice. Returns
        False if the weights are not finite."""
        cdef Py_ssize_t j
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t n = self.weights.n
        cdef Py_ssize_t* counts = &self.weights.counts[0]
        cdef double* terms = &self.terms[0]
        if n == self.weights.n_most and not self.weights.is_degenerate():
            self.draw_all(rng)
            return True
        self.weights.n_children = 0
        for p in range(n):
            k = self.n_clusters[p]
            log_scale = self.weights.log_w[p] - log(self.totals[p])
            self.list_terms(p, self.tops[p], terms)
            for j in range(k + 1 + (self.noise is not None)):
                if terms[j] > 0.0:
                    c = self.weights.n_children
                    self.weights.child_log_w[c] = log_scale + log(terms[j])
                    self.weights.parents[c] = p
                    self.weights.choices[c] = j if j <= k else <Py_ssize_t>OUTSIDE
                    self.weights.n_children += 1
        if not self.weights.thin(rng):
            return False
        for p in range(n):
            if counts[p] == 0:
                self.drop(p)
        # The first child takes its parent's place, the others take free ones.
        for c in range(self.weights.n_children):
            if self.weights.child_counts[c] == 0:
                continue
            p = self.weights.parents[c]
            if counts[p] > 0:
                counts[p] = -1
                j = p
            else:
                while place < n and counts[place] != 0:
                    place += 1
                j = place
                place += 1
                self.branch(j, p)
            self.choices[j] = self.weights.choices[c]
            self.weights.log_w[j] = self.weights.child_log_w[c]
        self.weights.n = max(n, place)
        return True

    cdef bint grow(self, Py_ssize_t i, Py_ssize_t m, bitgen_t* rng) noexcept nogil:
        """The row joins the cluster that each particle has chosen, with its label in place m.
        False if its missing entries have no draw."""
        cdef bint stuck = False
        self.tick += 1
        for p in range(self.weights.n):
            j = self.choices[p]
            if j == OUTSIDE:
                continue
            if j == self.n_clusters[p]:
                if not self.nodes.common:
                    self.nodes.follow(p, j, self.n_inside(p), 0.0)
                continue
            slot = self.slots[p, j]
            if not self.nodes.common:
                self.nodes.follow(
                    p, self.n_clusters[p], self.n_inside(p), (<Family>self.kin[p]).sizes[slot]
                )
            (<Family>self.kin[p]).choose(slot, self.tick)
        for p in range(self.weights.n):
            self.labels.set(p, m, self.choices[p])
            if self.choices[p] == OUTSIDE:
                self.leave_out(p, i, 1)
            else:
                self.enter(p, self.choices[p], i, rng)
        for f in range(self.n_families):
            if self.noise is not None and (<Family>self.family_at[f]).has_gaps(i):
                # It may have joined no cluster.
                (<Family>self.family_at[f]).model.close_gaps(i)
            stuck |= (<Family>self.family_at[f]).stuck
        return not stuck

    cdef void leave_out(self, Py_ssize_t p, Py_ssize_t i, Py_ssize_t sign) noexcept nogil:
        """The row is noise in a particle, or no longer if `sign` is -1."""
        self.n_noise[p] += sign
        self.log_outside[p] += sign * self.log_as_noise(p, i)

    cdef void enter(self, Py_ssize_t p, Py_ssize_t j, Py_ssize_t i, bitgen_t* rng) noexcept nogil:
        """The row joins cluster j of a particle, or a new one; choosers have been counted."""
        if j < self.n_clusters[p]:
            slot = (<Family>self.kin[p]).enter(self.slots[p, j], i, p, rng)
        else:
            slot = (<Family>self.kin[p]).enter_newborn(i, self.tick, p, rng)
            self.n_clusters[p] += 1
            self.k_most = max(self.k_most, self.n_clusters[p])
        self.slots[p, j] = <int>slot
        if (<Family>self.kin[p]).has_gaps(i):
            # As they were drawn in the slot, for all who joined it.
            first = (<Family>self.kin[p]).turns[slot].first
            if first != p:
                (<Family>self.kin[p]).model.write_gaps(i, &self.completions[first, 0])
            (<Family>self.kin[p]).model.read_gaps(i, &self.completions[p, 0])

    # A row that leaves.

    cdef void take_away(self, Py_ssize_t i) noexcept nogil:
        """Row i of the kernels leaves its cluster in all particles, and their own laws of the
        concentration follow. A cluster of this row alone ends. Places of labels stay."""
        self.n_rows -= 1
        self.tick += 1
        for p in range(self.weights.n):
            j = self.labels.at(p, i)
            self.labels.set(p, i, OUTSIDE)
            if j == OUTSIDE:
                self.leave_out(p, i, -1)
                continue
            slot = self.slots[p, j]
            if (<Family>self.kin[p]).has_gaps(i):
                # As they are in the cluster, for all who share it.
                (<Family>self.kin[p]).model.write_gaps(i, &self.completions[p, 0])
            if (<Family>self.kin[p]).leave(slot, i, self.tick):
                (<Family>self.kin[p]).let_go_live(slot)
                self.close(p, j)
                # Anew, as a product would not recover from underflow.
                self.renew_own_law(p)
            elif not self.nodes.common:
                self.nodes.unfollow(
                    p, self.n_clusters[p], self.n_inside(p), (<Family>self.kin[p]).sizes[slot]
                )

    cdef void close(self, Py_ssize_t p, Py_ssize_t place) noexcept nogil:
        """The last cluster of a particle takes the place of an empty one."""
        cdef Py_ssize_t last = self.n_clusters[p] - 1
        self.n_clusters[p] = last
        if place == last:
            return
        self.slots[p, place] = self.slots[p, last]
        for m in range(self.labels.n_kept):
            if self.labels.at(p, m) == last:
                self.labels.set(p, m, place)

    # The Python boundary.

    @property
    def n_particles(self):
        return self.weights.n_most

    @property
    def n_current(self):
        return self.weights.n

    @property
    def n_resampled(self):
        return self.weights.n_resampled

    @property
    def models(self):
        """Kernels of the families."""
        return [family.model for family in self.families]

    def begin(self, models):
        """Start without rows, with one kernel for all particles or one for each."""
        n = self.weights.n_most
        if len(models) == 1 and self.weights.optimal:
            n = 1       # its choices are followed
        self.set_state(models, {
            "n_rows": 0,
            "sum_constants": 0.0,
            "n_resampled": 0,
            "log_w": np.full(n, -np.log(n)),
            "family": np.arange(n) if len(models) > 1 else np.zeros(n, np.intp),
            "slots": [np.empty(0, np.intp)] * n,
            "stats": [np.empty((0, model.n_stats)) for model in models],
            "labels": np.empty((n, 0), np.intp),
        })

    def run(self, bit_generator, Py_ssize_t first, Py_ssize_t stop):
        """Take the rows first, ..., stop - 1 of the kernels.

        Raises FloatingPointError if no cluster can explain a row, which the message names.
        """
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        for model in self.models:
            if not 0 <= first <= stop <= model.n_samples:
                raise IndexError(f"rows {first}:{stop} of {model.n_samples}")
        self.labels.reserve(stop - first, self.labels.wide)
        with bit_generator.lock, nogil:
            for i in range(first, stop):
                self.step(i, rng)

    def forget(self, Py_ssize_t i):
        """Forget row i of the kernels, which have all rows, none noise and without missing entries
        that are drawn. Weights become those of the rows that stay, with the same sum."""
        cdef double shift = self.weights.log_total()
        self.take_away(i)
        self.renew()
        self.weigh_all(i, -1.0)
        self.count_constant(i, -1.0)
        shift -= self.weights.log_total()
        if not (<Family>self.family_at[0]).model.constants_vary:
            shift += log_constant((<Family>self.family_at[0]).model, i)
        for p in range(self.weights.n):
            self.weights.log_w[p] += shift

    def rebuild(self):
        """Compute the statistics of all clusters from their rows, against rounding errors."""
        cdef Py_ssize_t n, slot
        cdef Py_ssize_t[::1] items = np.empty(self.labels.n_kept, dtype=np.intp)
        cdef Family family
        self.tick += 1
        for p in range(self.weights.n):
            family = self.families[self.family_of(p)]
            for j in range(self.n_clusters[p]):
                slot = self.slots[p, j]
                if family.turns[slot].tick == self.tick:
                    continue
                family.choose(slot, self.tick)
                n = 0
                for m in range(self.labels.n_kept):
                    if self.labels.at(p, m) == j:
                        items[n] = m
                        n += 1
                family.model.rebuild(slot, as_indices(&items[0], n))

    def expect(self, Py_ssize_t n_more):
        """Take memory for the labels of n_more rows."""
        self.labels.reserve(n_more, self.labels.wide)

    @property
    def log_evidence(self):
        """log of the estimate of p(rows so far), the sum of the final weights."""
        return float(logsumexp(self.final_log_weights()))

    @property
    def effective_sample_size(self):
        """Effective sample size of the final weights."""
        log_w = self.final_log_weights()
        return float(np.exp(2.0 * logsumexp(log_w) - logsumexp(2.0 * log_w)))

    @property
    def concentration(self):
        """Concentration of the current weights; None if it is integrated out."""
        return self.nodes.concentration if self.nodes.hyperprior is None else None

    def log_weights(self):
        """Log weights, not normalised, with the constants of the rows so far: (n_current,)."""
        return self.weights.array() + self.sum_constants

    def final_log_weights(self):
        """Unnormalised log weights under the prior of the model: ndarray (n_current,)."""
        return self.log_weights()

    def labels_of(self, Py_ssize_t p):
        """Labels of the rows in a particle, if kept: (n_kept,), intp. Labels are positions in
        `sizes_of` and `stats_of`, or OUTSIDE, -1, for noise."""
        self._check_particle(p)
        return signed(self.labels.array(slice(p, p + 1))[0])

    def all_labels(self):
        """Labels in particles: (n_current, n_kept), uint16 or uint32; the largest is noise."""
        return self.labels.array(slice(self.weights.n))

    def n_noise_of(self, Py_ssize_t p):
        """Number of rows that are noise in a particle."""
        self._check_particle(p)
        return self.n_noise[p]

    def noise_probabilities(self):
        """Weighted share of particles in which each row with labels is noise: (n_kept,)."""
        log_w = self.final_log_weights()
        return np.exp(log_w - logsumexp(log_w)) @ (signed(self.all_labels()) == OUTSIDE)

    def sizes_of(self, Py_ssize_t p):
        """Numbers of items of the clusters of a particle: (n_clusters,)."""
        cdef Family family = self.families[self.family_of(p)]
        return np.array([family.sizes[slot] for slot in self.slots_of(p)], dtype=np.intp)

    def slots_of(self, Py_ssize_t p):
        """Slots of the clusters of a particle in the kernel of its family: (n_clusters,)."""
        self._check_particle(p)
        return np.array(self.slots[p, :self.n_clusters[p]], dtype=np.intp)

    def family_of(self, Py_ssize_t p):
        """Number of the family of a particle, an index of `models`."""
        self._check_particle(p)
        return (<Family>self.kin[p]).number

    def stats_of(self, Py_ssize_t p):
        """Statistics of the clusters of a particle: (n_clusters, n_stats)."""
        return self.models[self.family_of(p)].dump(self.slots_of(p))

    def log_ratios(self, concentrations):
        """log p(partition | concentration) of every particle, minus its log prior probability in
        the current weights: (len(concentrations), n_current)."""
        sizes = [self.sizes_of(p) for p in range(self.weights.n)]
        return log_ratios(self.nodes.prior, sizes, concentrations, *self.nodes.arrays())

    def log_joint_of(self, Py_ssize_t p, PartitionPrior prior):
        """log p(partition) + log p(rows so far | it) of a particle, without the prior's tables."""
        cdef Family family = self.families[self.family_of(p)]
        cdef ClusterModel model = family.model
        cdef double total = prior.log_probability(self.sizes_of(p)) + family.sum_constants
        if self.noise is not None:
            total += self.noise.log_law(self.n_noise[p], self.n_inside(p)) + self.log_outside[p]
        model.settle()
        for j in range(self.n_clusters[p]):
            total += model.log_marginal(self.slots[p, j])
        return total + self.sum_constants

    def concentration_weights(self, Py_ssize_t p):
        """Law of the concentration given a particle's partition: nodes and weights, (n_nodes,)."""
        self._check_particle(p)
        self.count()
        return np.array(self.nodes.values), np.array(self.nodes.law(p, self.n_clusters[p]))

    def draw_concentration(self, Py_ssize_t p, bit_generator):
        """Draw a node by this law. Uses one uniform number."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        nodes, weights = self.concentration_weights(p)
        with bit_generator.lock:
            u = uniform(rng)
        at = np.searchsorted(np.cumsum(weights), u * weights.sum(), side="right")
        return nodes[min(at, len(nodes) - 1)]

    def lend(self, Py_ssize_t p, MixtureState state, order=None):
        """Copy the partition of a particle, with its clusters, to a state of n_rows items, all of
        whose labels are kept. Its kernel takes over the hyperparameters. `order` is the number of
        each row in the state, by default 0, 1, ..."""
        cdef const Py_ssize_t[::1] items
        cdef const Py_ssize_t* first = NULL
        self._check_state(p, state)
        if order is not None:
            items = order
            if items.shape[0] != self.n_rows:
                raise ValueError(f"an order of {items.shape[0]} items, not {self.n_rows}")
            first = &items[0]
        if self.completions.shape[1] > 0:
            state.model.complete(self._completion_of(p, state.model, order))
        state.adopt(
            (<Family>self.kin[p]).model, &self.slots[p, 0], self.n_clusters[p],
            &self.labels.memory[p, 0], self.labels.wide, first
        )

    def _completion_of(self, Py_ssize_t p, model, order):
        """Missing entries of a particle, in the order of a kernel over the rows in another order.
        Those of one row have the same order in all kernels."""
        values = np.asarray(self.completions)[p]
        if order is None:
            return values
        moved = np.empty_like(values)
        places = np.argsort(model.gap_items, kind="stable")
        moved[places] = values[np.argsort(order[self.models[0].gap_items], kind="stable")]
        return moved

    def take(self, Py_ssize_t p, MixtureState state):
        """Replace a particle by the partition and hyperparameters of a state, whose items are the
        rows in their order. The particle shares no cluster afterwards and, if there are several
        families, no family. Call `renew` once all particles are replaced."""
        cdef Py_ssize_t n_clusters = state.n_clusters
        cdef ClusterModel model
        self._check_state(p, state)
        cdef Family family = self.families[self.family_of(p)]
        if self.n_families > 1 and family.n_members > 1:
            # The other members keep their hyperparameters.
            for family in self.families:
                if family.n_members == 0:
                    break
            else:
                raise ValueError(f"{self.n_families} families for {self.weights.n} particles")
        self.reserve_clusters(n_clusters + 1)
        self.labels.reserve(0, self.labels.wide or n_clusters >= MOST_NARROW)
        if self.completions.shape[1] > 0:
            np.asarray(self.completions)[p] = state.model.completion()
        self.drop(p)
        self.kin[p] = <void*>family
        model = family.model
        if family.n_members == 0:
            model.set_hyperparameters(state.model.hyperparameters())
            model.reset(family.empty)
            if model.constants_vary:
                family.sum_constants = model.sum_constants(self.n_rows)
        if model.n_free < n_clusters:
            family.reserve(2 * family.n_live + n_clusters + 2)
        state.model.settle()
        for k in range(n_clusters):
            slot = family.open_live()
            memcpy(
                row(model, slot), row(state.model, state.slots[k]), model.width * sizeof(double)
            )
            family.sizes[slot] = state.sizes[state.slots[k]]
            self.slots[p, k] = <int>slot
        family.hold_all(&self.slots[p, 0], n_clusters)
        self.n_clusters[p] = n_clusters
        self.k_most = max(self.k_most, n_clusters)
        if self.noise is not None:
            self.n_noise[p] = state.n_noise
            self.log_outside[p] = state.log_likelihood_noise()
        with nogil:
            for m in range(self.n_rows):
                if state.labels[m] == NOISE:
                    self.labels.set(p, m, OUTSIDE)
                else:
                    self.labels.set(p, m, state.position[state.labels[m]])

    def renew(self):
        """Compute the laws of the concentration in closed form after particles were replaced."""
        self.nodes.known[:] = False      # laws by k, made anew when they are next used
        self.count()
        for p in range(self.weights.n):
            self.renew_own_law(p)

    def get_state(self):
        """Return a dict of plain objects for `set_state`. Slots are numbered within families."""
        cdef Py_ssize_t n = self.weights.n
        cdef Family family
        self.count()
        slots = []
        for p in range(self.weights.n):
            family = self.families[self.family_of(p)]
            slots.append(
                np.array([family.position[slot] for slot in self.slots_of(p)], dtype=np.intp)
            )
        return {
            "n_rows": self.n_rows,
            "sum_constants": self.sum_constants,
            "n_resampled": self.n_resampled,
            "concentration": self.concentration,
            "log_w": self.weights.array(),
            "family": np.array([self.family_of(p) for p in range(self.weights.n)], np.intp),
            "slots": slots,
            "stats": [family.save() for family in self.families],
            "family_constants": [(<Family>family).sum_constants for family in self.families],
            "hyperparameters": [model.hyperparameters() for model in self.models],
            "labels": self.all_labels(),
            "completions": np.array(self.completions[:n]) if self.completions.shape[1] else None,
            "step": self.nodes.step,
            "k_capacity": self.k_capacity,
            "vectors": self.nodes.save(self.weights.n),
            **({} if self.noise is None else {
                "n_noise": np.array(self.n_noise[:n]),
                "log_outside": np.array(self.log_outside[:n]),
            }),
        }

    def set_state(self, models, state):
        """Continue from `get_state` or from other partitions.

        - `models`: list of ClusterModel. Kernels of the families, whose slots are replaced.
        - `state`: dict

          - `n_rows`, `n_resampled`: int
          - `log_w`: (n_current,)
          - `family`: (n_current,) indices of `models`
          - `slots`: list of (n_clusters,) indices of the stats of the particle's family
          - `stats`: list of (n, n_stats) or, with the terms cached from them, (n, width)
          - `labels`: (n_current, n_kept), labels of the last rows
          - `completions`: (n_current, n_gap_values) or None, missing entries as drawn; without
            them any
          - `sum_constants`: float; without it that of before
          - `n_noise`, `log_outside`: (n_current,), with noise; without them no row is noise
          - `hyperparameters`: list of (n_hyper,), those of the families; without it the kernels
            have them
          - `family_constants`: list of float, if `log_constants` vary: their sum in each family;
            without it the rows so far are the first ones of the kernels
          - `step`, `k_capacity`, `vectors`: laws of the concentration; without them they are
            computed in closed form, as after every growth of the capacity
        """
        cdef Py_ssize_t n = len(state["log_w"])
        cdef Family family
        if not 1 <= n <= self.weights.n_most:
            raise ValueError(f"{n} particles; expected 1 to {self.weights.n_most}")
        for model in models:
            if not (<ClusterModel?>model).factorizes:
                raise ValueError(f"clusters of {type(model).__name__} are not independent")
        self._load_families(models, state)
        completion = models[0].completion().astype(np.float64)
        self.completions = np.tile(completion, (self.weights.n_most, 1))
        if state.get("completions") is not None:
            np.asarray(self.completions)[:n] = state["completions"]
        self.n_rows = state["n_rows"]
        self.sum_constants = state.get("sum_constants", self.sum_constants)
        self.weights.n = 0
        self.k_most = max(len(slots) for slots in state["slots"])
        self.k_capacity = 0
        self.nodes.step = state.get("step", STEP)
        self.reserve_clusters(max(self.k_most + 1, state.get("k_capacity", 0)))
        self.labels = KeptLabels(self.weights.n_most, state["labels"], self.k_most >= MOST_NARROW)
        self.weights.load(state["log_w"], state["n_resampled"])
        np.asarray(self.n_noise)[:n] = state.get("n_noise", 0)
        np.asarray(self.log_outside)[:n] = state.get("log_outside", 0.0)
        for p in range(n):
            family = self.families[state["family"][p]]
            k = len(state["slots"][p])
            self.kin[p] = <void*>family
            self.n_clusters[p] = k
            np.asarray(self.slots)[p, :k] = state["slots"][p]
            family.hold_all(&self.slots[p, 0], k)
        if "vectors" in state:
            self.nodes.load(state["vectors"])
            self.count()
        else:
            self.renew()

    def _load_families(self, models, state):
        """Make the families, with the hyperparameters, statistics and constants of a state."""
        cdef Family family
        for model, values in zip(models, state.get("hyperparameters", ())):
            model.set_hyperparameters(values)
        self.families = [
            Family(f, model, stats)
            for f, (model, stats) in enumerate(zip(models, state["stats"], strict=True))
        ]
        self.family_at = <void**>self.resized(self.family_at, len(models), sizeof(void*))
        self.n_families = len(models)
        for f, family in enumerate(self.families):
            family.model.complete()
            self.family_at[f] = <void*>family
            if "family_constants" in state:
                family.sum_constants = state["family_constants"][f]
            elif family.model.constants_vary:
                family.sum_constants = family.model.sum_constants(state["n_rows"])

    def _check_state(self, Py_ssize_t p, MixtureState state):
        self._check_particle(p)
        if self.labels.n_kept < self.n_rows:
            raise ValueError("labels of rows have been forgotten")
        if state.n_samples != self.n_rows:
            raise ValueError(f"a state of {state.n_samples} items, not {self.n_rows}")
        model = self.models[self.family_of(p)]
        if type(state.model) is not type(model) or state.model.width != model.width:
            raise ValueError("the state has another kind of kernel")

    def _check_particle(self, Py_ssize_t p):
        if not 0 <= p < self.weights.n:
            raise IndexError(f"particle {p} of {self.weights.n}")
