# SPDX-License-Identifier: BSD-3-Clause
"""Reads of mutations whose prevalence is the sum of those of the clones that have them:

    phi_im = sum_k z_ik f_km,    (f_1m, ..., f_Km) ~ Dirichlet(a, ..., a),
    p(b_im | d_im, phi_im) as in `skdpm.mutations`,

for mutation i in sample m, which is cell i * M + m. The prevalences of all K features in a sample
sum to 1, whether or not a mutation has them. The running terms of a candidate are phi_i1, ...,
phi_iM. Slice steps update the prevalences of a sample: for a pair of features the share u of one
in f_k + f_l, with prior Beta(a, a), which concerns the mutations that have one of the two; for one
feature against all others, whose proportions stay, u = f_k with prior Beta(a, (K - 1) a).

In the first half of warm-up the likelihood is raised to a power, which grows to 1 from the value
at which a cell has the weight of one read: a chain would else stay at the first clones that
explain some reads. Sums of prevalences are rounded: densities clip them to [0, 1].
"""
cimport cython
from libc.math cimport INFINITY, NAN, exp, isnan, lgamma, log

import numpy as np

from skdpm._core._math cimport log_rising_count
from skdpm._core._rng cimport bitgen_t, integer, random_beta, random_standard_exponential, uniform
from skdpm._core._slice cimport SliceSampled
from skdpm.features.likelihoods._base cimport N_CACHED, CachedFlipModel, add_scaled

cdef enum:
    N_SHRINKS = 200     # then an interval is shorter than the spacing of doubles

# Initial precision of the beta-binomial.
FIRST_PRECISION = 200.0

# Rounding error of shares, from 1 - u.
cdef double LEAST_SHARE = 1e-17
cdef double LARGEST_LOG_PRECISION = 60.0


@cython.final
cdef class Reads(SliceSampled):
    """log p(reads of a cell | prevalence); updates the logarithm of the beta-binomial's precision,
    with the Gamma prior (shape, rate). `data` is that of `SubclonesModel`."""
    cdef Py_ssize_t n_cells
    cdef const double[::1] n_ref, n_alt, constants  # (n_cells,)
    cdef const Py_ssize_t[::1] genotypes
    cdef const Py_ssize_t[::1] starts   # (n_genotypes + 1,)
    cdef const double[:, ::1] states    # (n_states, 5)
    cdef bint is_binomial
    cdef double precision, shape, rate
    cdef double power                   # of the likelihood
    cdef double[::1] norms              # (n_cells,): terms without state or prevalence
    cdef double[::1] phi                # (n_cells,): as last filled

    def __init__(self, data, bint is_binomial, precision_prior):
        self.n_ref, self.n_alt, self.constants, self.genotypes = (
            data[name].ravel() for name in ("ref_counts", "alt_counts", "constants", "genotypes")
        )
        self.starts, self.states = data["starts"], data["states"]
        self.n_cells = self.n_ref.shape[0]
        self.is_binomial = is_binomial
        self.shape, self.rate = precision_prior
        self.power = 1.0
        self.norms, self.phi = np.empty((2, self.n_cells))

    cdef void set_precision(self, double precision) noexcept nogil:
        self.precision = precision
        for c in range(self.n_cells):
            self.norms[c] = self.constants[c]
            if not self.is_binomial:
                self.norms[c] -= log_rising_count(precision, self.n_ref[c] + self.n_alt[c])

    cdef inline double log_state(
        self, Py_ssize_t c, const double* state, double phi
    ) noexcept nogil:
        cdef double p = (1.0 - phi) * state[0] + phi * state[1]
        cdef double r = (1.0 - phi) * state[2] + phi * state[3]
        cdef double scale = 1.0 / (p + r)
        if self.is_binomial:
            return self.n_alt[c] * log(p * scale) + self.n_ref[c] * log(r * scale) + state[4]
        scale *= self.precision
        return (
            log_rising_count(p * scale, self.n_alt[c])
            + log_rising_count(r * scale, self.n_ref[c])
            + state[4]
        )

    cdef double log_cell(self, Py_ssize_t c, double phi) noexcept nogil:
        """log p(reads of cell c | phi); 0 if nothing was measured."""
        cdef Py_ssize_t g = self.genotypes[c]
        cdef Py_ssize_t s = self.starts[g]
        cdef Py_ssize_t stop = self.starts[g + 1]
        if s == stop:
            return 0.0
        phi = 0.0 if phi < 0.0 else (1.0 if phi > 1.0 else phi)
        top = self.log_state(c, &self.states[s, 0], phi)
        total = 1.0
        for s in range(s + 1, stop):
            value = self.log_state(c, &self.states[s, 0], phi)
            if value <= top:
                total += exp(value - top)
            else:
                total = total * exp(top - value) + 1.0
                top = value
        return self.power * (self.norms[c] + top + (log(total) if total > 1.0 else 0.0))

    cdef double log_total(self) noexcept nogil:
        """log p(all reads) at the prevalences in `phi`."""
        cdef double total = 0.0
        for c in range(self.n_cells):
            total += self.log_cell(c, self.phi[c])
        return total

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the precision."""
        if not -LARGEST_LOG_PRECISION < x < LARGEST_LOG_PRECISION:
            return -INFINITY
        self.set_precision(exp(x))
        log_prior = self.shape * x - self.rate * self.precision
        return log_prior + self.log_total()


cdef class SubclonesModel(CachedFlipModel):
    """Kernel of `Subclones`.

    - `data`: dict. Result of `skdpm.mutations.encode`.
    - `precision`: Precision of the beta-binomial. None: under its prior.
    - `prevalence_concentration`: a.
    """
    cdef Reads reads
    cdef Py_ssize_t n_tumours           # M
    cdef double a
    cdef bint draws_precision
    cdef double first_precision         # initial value of chains
    cdef Py_ssize_t n_annealing, n_annealed     # iterations in which the power grows; done
    cdef Py_ssize_t capacity
    cdef Py_ssize_t row                 # under update
    cdef double[:, ::1] F               # (capacity, n_tumours)
    # The cells that a slice changes, and their prevalences as intercept + slope * u.
    cdef Py_ssize_t[::1] cells          # (n_samples,)
    cdef double[::1] intercepts, slopes

    def __init__(self, data, density, precision, precision_prior, double prevalence_concentration):
        self.reads = Reads(data, density == "binomial", precision_prior)
        self.n_samples, self.n_tumours = data["ref_counts"].shape
        self.a = prevalence_concentration
        self.draws_precision = precision is None and density != "binomial"
        self.first_precision = FIRST_PRECISION if precision is None else precision
        self.start_hyperparameters()
        self.width = N_CACHED + self.n_tumours
        self.max_bits = 14
        self.cells = np.empty(self.n_samples, dtype=np.intp)
        self.intercepts, self.slopes = np.empty((2, self.n_samples))
        self.reserve_candidates(1)
        self.reserve(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        if n_latent > self.capacity:
            F = np.empty((n_latent, self.n_tumours))
            if self.n_latent > 0:
                F[:self.n_latent] = self.F[:self.n_latent]
            self.F = F
            self.capacity = n_latent

    # Rows.

    cdef double log_row_at(self, const double* phi, const double* by, double sign) noexcept nogil:
        """log p(x_i | phi + sign * by) of the row under update."""
        cdef double total = 0.0
        cdef Py_ssize_t c = self.row * self.n_tumours
        for m in range(self.n_tumours):
            total += self.reads.log_cell(c + m, phi[m] + sign * by[m])
        return total

    cdef inline void add_up(
        self, const unsigned char* z, double* phi   # OUT (n_tumours,)
    ) noexcept nogil:
        """Compute the prevalences of a mutation that the clones z have."""
        for m in range(self.n_tumours):
            phi[m] = 0.0
        for k in range(self.n_latent):
            if z[k]:
                add_scaled(phi, 1.0, &self.F[k, 0], self.n_tumours)

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        self.row = i
        self.add_up(z, self.candidates + N_CACHED)
        self.begin_terms()

    cdef double log_terms(self, const double* terms) noexcept nogil:
        return self.log_row_at(terms, terms, 0.0)

    cdef double log_flipped(self, const double* terms, Py_ssize_t k, bint on) noexcept nogil:
        return self.log_row_at(terms, &self.F[k, 0], 1.0 if on else -1.0)

    cdef void flip_terms(self, double* terms, Py_ssize_t k, bint on) noexcept nogil:
        add_scaled(terms, 1.0 if on else -1.0, &self.F[k, 0], self.n_tumours)

    # Features. They share the cells of each sample.

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t last = self.n_latent
        for m in range(self.n_tumours):
            share = random_beta(rng, self.a, last * self.a) if last > 0 else 1.0
            for k in range(last):
                self.F[k, m] *= 1.0 - share
            self.F[last, m] = share
        self.n_latent += 1

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        self.n_latent -= 1
        for m in range(self.n_tumours):
            self.F[k, m] = self.F[self.n_latent, m]
            self.normalise(m)

    cdef void normalise(self, Py_ssize_t m) noexcept nogil:
        """Divide the prevalences of sample m by their sum."""
        cdef double total = 0.0
        for k in range(self.n_latent):
            total += self.F[k, m]
        for k in range(self.n_latent):
            if total > 0.0:
                self.F[k, m] /= total
            else:
                self.F[k, m] = 1.0 / self.n_latent

    # All rows.

    cdef void fill(self) noexcept nogil:
        for i in range(self.n_samples):
            self.add_up(self.Z.row(i), &self.reads.phi[i * self.n_tumours])

    cdef double log_likelihood(self) noexcept nogil:
        self.fill()
        return self.reads.log_total()

    cdef double log_prior(self) noexcept nogil:
        cdef double total = self.n_tumours * (
            lgamma(self.n_latent * self.a) - self.n_latent * lgamma(self.a)
        ) if self.n_latent > 0 else 0.0
        for k in range(self.n_latent):
            for m in range(self.n_tumours):
                total += (self.a - 1.0) * log(max(self.F[k, m], LEAST_SHARE))
        return total

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        cdef bint fine = True
        self.n_annealed = self.n_annealed + 1 if adapting else self.n_annealing
        self.set_power()
        self.fill()
        for m in range(self.n_tumours):
            if self.n_latent > 1:
                for _pair in range(self.n_latent):
                    fine &= self.update_pair(m, rng)
                fine &= self.update_one(m, rng)
                self.normalise(m)
        if not fine:
            raise FloatingPointError("prevalences have no law given the reads")
        if self.draws_precision:
            self.fill()
            x = self.reads.slice_step(log(self.reads.precision), rng)
            if isnan(x):
                raise FloatingPointError("precision has no law given the reads")
            self.reads.set_precision(exp(x))

    cdef void set_power(self) noexcept nogil:
        cdef double depth = 0.0
        self.reads.power = 1.0
        if self.n_annealed < self.n_annealing:
            for c in range(self.reads.n_cells):
                depth += self.reads.n_ref[c] + self.reads.n_alt[c]
            depth = max(depth / self.reads.n_cells, 1.0)
            self.reads.power = depth ** (<double>self.n_annealed / self.n_annealing - 1.0)

    cdef bint update_pair(self, Py_ssize_t m, bitgen_t* rng) noexcept nogil:
        """Redistribute the prevalence of two features in sample m: a proposed exchange, then a
        slice step. Returns 0 if the weights are no distribution."""
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t k = integer(rng, self.n_latent)
        cdef Py_ssize_t l = integer(rng, self.n_latent - 1)
        l += l >= k
        f_k = &self.F[k, m]
        f_l = &self.F[l, m]
        both = f_k[0] + f_l[0]
        if not both > 0.0:
            return both == both
        for i in range(self.n_samples):
            z = self.Z.row(i)
            c = i * self.n_tumours + m
            if z[k] != z[l] and self.reads.genotypes[c] > 0:
                self.cells[n] = c
                if z[k]:
                    self.intercepts[n] = self.reads.phi[c] - f_k[0]
                    self.slopes[n] = both
                else:
                    self.intercepts[n] = self.reads.phi[c] - f_l[0] + both
                    self.slopes[n] = -both
                n += 1
        u, v = f_k[0] / both, f_l[0] / both
        current = self.log_share(n, u, v, self.a, self.a)
        exchanged = self.log_share(n, v, u, self.a, self.a)
        if exchanged - current > -random_standard_exponential(rng):
            u, v, current = v, u, exchanged
        u = self.slice_share(n, u, current, self.a, self.a, rng)
        f_k[0] = both * u
        f_l[0] = both * (1.0 - u)
        self.place(n, u)
        return u == u

    cdef bint update_one(self, Py_ssize_t m, bitgen_t* rng) noexcept nogil:
        """Slice the prevalence of one feature against those of all others in sample m. Returns 0
        if the weights are no distribution."""
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t k = integer(rng, self.n_latent)
        cdef double share = self.F[k, m]
        cdef double others = 0.0    # sum of the other features' prevalences
        cdef double b = (self.n_latent - 1) * self.a
        for l in range(self.n_latent):
            if l != k:
                others += self.F[l, m]
        if not others > 0.0:
            return others == others
        for i in range(self.n_samples):
            c = i * self.n_tumours + m
            if self.reads.genotypes[c] > 0:
                self.cells[n] = c
                if self.Z.row(i)[k]:
                    at_zero = (self.reads.phi[c] - share) / others
                    self.slopes[n] = 1.0 - at_zero
                else:
                    at_zero = self.reads.phi[c] / others
                    self.slopes[n] = -at_zero
                self.intercepts[n] = at_zero
                n += 1
        u = share / (share + others)
        u = self.slice_share(n, u, self.log_share(n, u, 1.0 - u, self.a, b), self.a, b, rng)
        for l in range(self.n_latent):
            self.F[l, m] *= (1.0 - u) / others
        self.F[k, m] = u
        self.place(n, u)
        return u == u

    cdef double log_share(
        self, Py_ssize_t n, double u, double v, double a, double b
    ) noexcept nogil:
        """log density of a share u = 1 - v ~ Beta(a, b) given the reads of n cells."""
        cdef double total = (
            (a - 1.0) * log(max(u, LEAST_SHARE)) + (b - 1.0) * log(max(v, LEAST_SHARE))
        )
        for j in range(n):
            total += self.reads.log_cell(self.cells[j], self.intercepts[j] + self.slopes[j] * u)
        return total

    cdef double slice_share(
        self, Py_ssize_t n, double u, double current, double a, double b, bitgen_t* rng
    ) noexcept nogil:
        """Draw the next share after u, whose log density is `current`, by shrinkage from all of
        (0, 1) (Neal 2003, figure 5); NaN if the log density is not finite."""
        cdef double level = current - random_standard_exponential(rng)
        cdef double left = 0.0, right = 1.0
        cdef Py_ssize_t _shrink
        if not -INFINITY < level < INFINITY:
            return NAN
        for _shrink in range(N_SHRINKS):
            proposal = left + (right - left) * uniform(rng)
            if self.log_share(n, proposal, 1.0 - proposal, a, b) >= level:
                return proposal
            if proposal < u:
                left = proposal
            else:
                right = proposal
        return u

    cdef void place(self, Py_ssize_t n, double u) noexcept nogil:
        """Write the prevalences of the n cells at the share u."""
        for j in range(n):
            self.reads.phi[self.cells[j]] = self.intercepts[j] + self.slopes[j] * u

    # The Python boundary.

    def start_hyperparameters(self):
        self.reads.set_precision(self.first_precision)

    def anneal(self, Py_ssize_t n_warmup):
        self.n_annealing = n_warmup // 2
        self.n_annealed = 0
        self.set_power()

    def get_adaptation(self):
        return {"n_annealing": self.n_annealing, "n_annealed": self.n_annealed}

    def set_adaptation(self, adaptation):
        self.n_annealing = adaptation["n_annealing"]
        self.n_annealed = adaptation["n_annealed"]
        self.set_power()

    def save(self):
        F = np.asarray(self.F)[:self.n_latent].copy()
        return {"prevalences": F, "precision": self.reads.precision}

    def load(self, saved):
        """Prevalences are not normalised: if features that no row has were left out, the others
        sum to less than 1."""
        cdef Py_ssize_t n = len(saved["prevalences"])
        self.n_latent = 0
        self.reserve(n)
        self.n_latent = n
        np.asarray(self.F)[:n] = saved["prevalences"]
        self.start_hyperparameters()
        if "precision" in saved:
            self.reads.set_precision(saved["precision"])
