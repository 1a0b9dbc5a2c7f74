# SPDX-License-Identifier: BSD-3-Clause
"""Particle systems of Ulker, Gunsel & Cemgil (2010): an annealed concentration, an active block.

The concentration changes with n: p_n, the prior of n rows, moves from alpha_1 to kappa, the
concentration of the model. Before row n a weight is multiplied by p_n(z) / p_{n-1}(z), z being the
partition of the rows before it, and where results are read by p_kappa(z) / p_n(z).

After row n Gibbs draws some old rows again, each given all other rows: the *active block*, the
next rows in turn, whatever their labels. That leaves p_n(z) p(X | z) and the weights as they are.
All particles that hold a cluster lose the row at once; then it joins as a new row does.
"""
from libc.math cimport pow

from skdpm._core._math cimport log_rising
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.particles._slots cimport Family
from skdpm.mixture.particles._system cimport ParticleSystem
from skdpm.mixture.priors._base cimport PartitionPrior
from skdpm.mixture.state._state cimport Noise


cdef class AnnealedSystem(ParticleSystem):
    """A particle system whose concentration changes, and that draws old rows again.

    - `annealing`: tuple (first, rate) or None. The concentration of n rows is that of the prior
      plus its distance to `first` times (1 - rate)^(n - 1). Needs a fixed concentration.
    - `active_block`: int. Old rows drawn again after each row. The kernels must have all rows.
    """
    cdef readonly Py_ssize_t block_start    # first row of the next active block
    cdef Py_ssize_t active_block
    cdef bint annealed
    cdef double first_concentration, rate

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

    cdef int step(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        if self.annealed:
            self.anneal()
        self.place(i, rng, True)
        if self.active_block > 0:
            self.move_block(rng)

    # The concentration.

    cdef double concentration_of(self, Py_ssize_t n) noexcept nogil:
        cdef double last = self.nodes.prior.concentration
        return last + (self.first_concentration - last) * pow(1.0 - self.rate, max(n - 1.0, 0.0))

    cdef void anneal(self) noexcept nogil:
        """Change to the prior of one more row. A particle's weight follows the probability of its
        partition: V_{n,k} and, if sigma changes, the factors of its clusters."""
        cdef double before = self.nodes.concentration
        cdef double after = self.concentration_of(self.n_rows + 1)
        cdef double old_sigma = self.nodes.sigmas[0]
        # By k, scratch: a ratio, and the number of rows in clusters that it is for.
        cdef double* log_ratio = &self.nodes.join_k[0]
        cdef double* known_at = &self.nodes.new_k[0]
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
        cdef Py_ssize_t n_old = self.n_rows - 1
        cdef Py_ssize_t stop = min(self.block_start + self.active_block, n_old)
        for i in range(self.block_start, stop):
            self.take_away(i)
            self.place(i, rng, False)
        self.block_start = stop if stop < n_old else 0

    # The Python boundary.

    def run(self, bit_generator, Py_ssize_t first, Py_ssize_t stop):
        if self.active_block > 0 and (first != self.n_rows or self.labels.n_kept < self.n_rows):
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
