# SPDX-License-Identifier: BSD-3-Clause
"""Latent feature relational model (Miller, Griffiths & Jordan 2009):

    P(x_ij = 1 | Z, W) = 1 / (1 + exp(-(b + z_i' W z_j))),    w_kl ~ N(0, 1 / tau),

over the counted pairs: those with i != j that are observed. Directed links have ordered pairs;
undirected ones have i < j, and W is symmetric with free entries k <= l. b is fixed or
N(0, 1 / tau_b), tau fixed or Gamma.

A pair's sign is +1 for a link, -1 for none, 0 if it is not counted. The running terms of a
candidate are y = sign * (b + z_i' W z_j) of the row's counted pairs, outgoing ones first, so that
a flip costs one pass over them.

Given Z, the weights and b are proposed together from the Gaussian approximation of their law at
its mode, if there are few. Its tails are too light where features decide links. Some updates are
therefore made by Polya-Gamma blocks, which mix slowly when links are rare (Johndrow et al. 2019),
and by slice steps, and all of them if there are many weights.
"""
from libc.math cimport M_PI as PI, exp, fabs, isfinite, log, log1p, sqrt

import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.utils import gen_batches

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._cholesky cimport draw_normal, factorize
from skdpm._core._polya_gamma cimport N_SHARES, polya_gamma, tabulate_shares
from skdpm._core._rng cimport bitgen_t, integer, log_gamma_variate, random_standard_normal, uniform
from skdpm._core._slice cimport SliceSampled
from skdpm.features.likelihoods._allocations cimport Allocations
from skdpm.features.likelihoods._base cimport N_CACHED, CachedFlipModel, FeatureModel, add_scaled

cdef extern from "tiles.h" nogil:
    double tile_log_sigmoids(const double* y, const double* effects, double by, Py_ssize_t n)

cdef enum:
    MOST_WEIGHTS = 512  # up to which the joint mode is computed
    MOST_REFITTED = 64  # weights proposed together; those of a move's features are not counted
    MOST_TYPES = 64     # of rows with the same features, up to which that is done
    N_SWEEPS = 10       # per iteration, in this case
    MOST_STEPS = 50     # of Newton's method for the weights of a move; five are usual


cdef double LOWEST = 1e-12
cdef double LARGEST = 1e12
# Gains of a step at which Newton's method ends: for proposals, and in launches.
cdef double CLOSE = 1e-8
cdef double NEAR = 1e-2
cdef double[N_SHARES] SHARES    # of `polya_gamma`
tabulate_shares(SHARES)


cdef inline Py_ssize_t n_weights(Py_ssize_t n, bint directed) noexcept nogil:
    """Number of weights of n features among themselves."""
    return n * n if directed else n * (n + 1) // 2


cdef class WeightSlice(SliceSampled):
    """A weight, or b, in units of `width`, given the pairs that it is part of."""
    cdef double[::1] y          # (n,): sign * log odds, at the value `origin`
    cdef double[::1] effects    # (n,): sign * how often the pair has the weight
    cdef Py_ssize_t n, capacity
    cdef double origin, precision, width

    cdef int reserve(self, Py_ssize_t n) except -1:
        if n > self.capacity:
            self.capacity = max(n, 2 * self.capacity)
            self.y, self.effects = np.empty((2, self.capacity))

    cdef double log_density(self, double x) noexcept nogil:
        cdef double v = x * self.width
        return tile_log_sigmoids(&self.y[0], &self.effects[0], v - self.origin, self.n) - (
            0.5 * self.precision * v * v
        )

    cdef inline void add(self, double sign, double logit, double times) noexcept nogil:
        self.y[self.n] = sign * logit
        self.effects[self.n] = sign * times
        self.n += 1


cdef class LinkFlipModel(CachedFlipModel):
    """Flips of a row's features, whose running terms are sign * log odds of its counted pairs."""
    cdef const signed char[:, ::1] signs
    cdef bint is_new, directed, draws_b
    cdef double b, tau, tau_b, first_b
    cdef Py_ssize_t n_partners
    cdef Py_ssize_t row_links           # counted pairs of the row under update
    cdef double[:, ::1] effects         # (capacity, most_links): what a feature adds to each y

    cdef void begin_row(self, Py_ssize_t i, const unsigned char* z) noexcept nogil:
        if self.Z.n_samples != self.n_partners:
            self.spoil(0)       # the model is not bound to the partners' features
            return
        self.row_links = 0
        for j in range(self.n_partners):
            if self.signs[i, j] != 0:
                self.begin_link(i, j, self.signs[i, j], False)
        if self.directed and not self.is_new:
            for j in range(self.n_partners):
                if self.signs[j, i] != 0:
                    self.begin_link(i, j, self.signs[j, i], True)
        for k in range(self.n_latent):
            if z[k]:
                self.flip_terms(self.candidates + N_CACHED, k, True)
        self.begin_terms()

    cdef void begin_link(
        self, Py_ssize_t i, Py_ssize_t j, double sign, bint incoming
    ) noexcept nogil:
        """Add the pair of row i with partner j."""

    cdef double log_terms(self, const double* terms) noexcept nogil:
        return tile_log_sigmoids(terms, terms, 0.0, self.row_links)

    cdef double log_flipped(self, const double* terms, Py_ssize_t k, bint on) noexcept nogil:
        return tile_log_sigmoids(terms, &self.effects[k, 0], 1.0 if on else -1.0, self.row_links)

    cdef void flip_terms(self, double* terms, Py_ssize_t k, bint on) noexcept nogil:
        add_scaled(terms, 1.0 if on else -1.0, &self.effects[k, 0], self.row_links)


cdef class LFRMPart(LinkFlipModel)


cdef class LFRMModel(LinkFlipModel):
    """Kernel of `LFRM`.

    - `signs`: (n_samples, n_partners). Signs of pairs; symmetric unless directed, 0 on the
      diagonal except for new rows.
    - `is_new`: Whether rows are not among the partners; their links only go out.
    - `bias`, `weight_precision`: None: drawn.
    """
    cdef bint draws_tau
    cdef public double share_of_blocks  # of the updates of few weights
    cdef LFRMPart part                  # without features; made when it is needed
    cdef double shape, rate
    cdef Py_ssize_t capacity, most_links
    cdef Py_ssize_t n_pairs             # that are counted
    cdef double[:, ::1] W               # (capacity, capacity)
    cdef WeightSlice slice
    # For the weights given Z.
    cdef Py_ssize_t[:, ::1] active      # (n_samples, capacity): features that a row has
    cdef Py_ssize_t[::1] n_active       # (n_samples,)
    cdef double[:, ::1] sums            # (n_samples, capacity): z_i' W
    # Scratch of a block of weights.
    cdef double[:, ::1] gram            # (capacity, capacity): below the diagonal
    cdef double[::1] factor             # packed by columns
    cdef double[:, ::1] vectors         # (4, capacity)
    cdef Py_ssize_t[:, ::1] indices     # (2, capacity)
    cdef Py_ssize_t[:, ::1] members     # (2, n_samples)

    def __init__(
        self, const signed char[:, ::1] signs, bint is_new, bint directed, bias, bias_precision,
        weight_precision, weight_precision_prior
    ):
        array = np.asarray(signs)
        counted = np.count_nonzero(array, axis=1)
        if directed and not is_new:
            counted += np.count_nonzero(array, axis=0)
        self.signs = signs
        self.n_samples, self.n_partners = array.shape
        self.is_new, self.directed = is_new, directed
        self.most_links = counted.max(initial=0)
        self.width = N_CACHED + self.most_links
        self.max_bits = 12              # flipping a feature of a new row costs O(n_partners)
        self.has_parts = not is_new
        self.share_of_blocks = 0.1
        self.n_pairs = np.count_nonzero(array)
        n_links = np.count_nonzero(array == 1)
        self.first_b = log((n_links + 0.5) / (self.n_pairs - n_links + 0.5))
        self.draws_b, self.draws_tau = bias is None, weight_precision is None
        self.b = 0.0 if self.draws_b else bias
        self.tau = 1.0 if self.draws_tau else weight_precision
        self.tau_b = bias_precision
        self.shape, self.rate = weight_precision_prior
        self.slice = WeightSlice()
        self.reserve_candidates(1)
        if not is_new:
            self.n_active = np.empty(self.n_samples, dtype=np.intp)
            self.members = np.empty((2, self.n_samples), dtype=np.intp)
            self.slice.reserve(self.n_samples)
        self.reserve(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        cdef Py_ssize_t n = self.n_latent
        if n_latent <= self.capacity:
            return 0
        W = np.zeros((n_latent, n_latent))
        if n > 0:
            W[:n, :n] = self.W[:n, :n]
        self.W = W
        self.effects = np.empty((n_latent, max(self.most_links, 1)))
        if not self.is_new:
            self.active = np.empty((self.n_samples, n_latent), dtype=np.intp)
            self.sums = np.empty((self.n_samples, n_latent))
            self.gram = np.empty((n_latent, n_latent))
            self.factor = np.empty(n_latent * (n_latent + 1) // 2)
            self.vectors = np.empty((4, n_latent))
            self.indices = np.empty((2, n_latent), dtype=np.intp)
        self.capacity = n_latent

    cdef void begin_link(
        self, Py_ssize_t i, Py_ssize_t j, double sign, bint incoming
    ) noexcept nogil:
        """The weight of the row's feature k and the partner's feature l is W[k * by_own + l *
        by_other], W flat."""
        cdef Py_ssize_t by_own = 1 if incoming else self.capacity
        cdef Py_ssize_t by_other = self.capacity if incoming else 1
        cdef Py_ssize_t stride = self.effects.shape[1]
        cdef const unsigned char* partner = self.Z.row(j)
        cdef const double* W = &self.W[0, 0]
        cdef double* effects = &self.effects[0, self.row_links]
        self.candidates[N_CACHED + self.row_links] = sign * self.b
        for k in range(self.n_latent):
            effects[k * stride] = 0.0
        for l in range(self.n_latent):
            if partner[l]:
                for k in range(self.n_latent):
                    effects[k * stride] += sign * W[k * by_own + l * by_other]
        self.row_links += 1

    # Features.

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t k = self.n_latent
        cdef double deviation = 1.0 / sqrt(self.tau)
        for l in range(k + 1):
            self.W[k, l] = deviation * random_standard_normal(rng)
            if self.directed and l < k:
                self.W[l, k] = deviation * random_standard_normal(rng)
            else:
                self.W[l, k] = self.W[k, l]
        self.n_latent += 1

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """The last row takes the place of row k, then the last column that of column k."""
        cdef Py_ssize_t last = self.n_latent - 1
        for l in range(self.n_latent):
            self.W[k, l] = self.W[last, l]
        for l in range(self.n_latent):
            self.W[l, k] = self.W[l, last]
        self.n_latent = last

    # Parameters given Z.

    cdef void tabulate(self) noexcept nogil:
        """List every row's features, and compute z_i' W."""
        for i in range(self.n_samples):
            z = self.Z.row(i)
            sums = &self.sums[i, 0]
            self.n_active[i] = 0
            for l in range(self.n_latent):
                sums[l] = 0.0
            for k in range(self.n_latent):
                if z[k]:
                    self.active[i, self.n_active[i]] = k
                    self.n_active[i] += 1
                    add_scaled(sums, 1.0, &self.W[k, 0], self.n_latent)

    cdef inline double logit(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """b + z_i' W z_j, after `tabulate`."""
        cdef double total = self.b
        cdef const double* sums = &self.sums[i, 0]
        cdef const Py_ssize_t* active = &self.active[j, 0]
        for a in range(self.n_active[j]):
            total += sums[active[a]]
        return total

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        """Draw the weights and b, in one step or by blocks and slices, then tau."""
        cdef double shape = self.shape + 0.5 * n_weights(self.n_latent, self.directed)
        cdef bint is_cheap = self.prepare_part()
        if adapting:
            self.n_sweeps = N_SWEEPS if is_cheap else 1
        if is_cheap and uniform(rng) >= self.share_of_blocks:
            self.draw_together(rng)
        else:
            self.draw_by_blocks(rng)
        if self.draws_tau:
            self.tau = exp(log_gamma_variate(rng, shape) - log(self.rate + 0.5 * self.square()))
            # The same limits as for a fixed precision.
            self.tau = max(LOWEST, min(self.tau, LARGEST))

    cdef bint prepare_part(self) except -1 nogil:
        """Make `part` that of all weights and b. Returns whether proposals are cheap given Z."""
        if n_weights(self.n_latent, self.directed) > MOST_REFITTED:
            return False
        if self.part is None:
            with gil:
                self.part = self.restricted()
                self.part.reserve(0)
                self.part.bind_allocations(Allocations(np.zeros((self.n_samples, 0))))
        self.part.restrict_from(self, NULL, 0)
        return self.part.n_kinds <= MOST_TYPES

    cdef int draw_together(self, bitgen_t* rng) except -1 nogil:
        """Propose all weights and b from their Gaussian approximation, a Metropolis step."""
        cdef double log_ratio = self.part.redraw(rng)
        if log_ratio != log_ratio:
            raise FloatingPointError("LFRM: weights have no law given Z")
        if log1p(-uniform(rng)) < log_ratio:
            self.part.settle_params(rng)
            self.part.give_back(self, NULL)

    cdef int draw_by_blocks(self, bitgen_t* rng) except -1 nogil:
        """Draw rows of W (and columns, if links are directed) and b by Polya-Gamma blocks, then
        every weight and b by a slice step."""
        cdef Py_ssize_t* order = &self.indices[0, 0]
        self.tabulate()
        for k in range(self.n_latent):
            order[k] = k
        for j in range(self.n_latent - 1, 0, -1):
            other = integer(rng, j + 1)
            order[j], order[other] = order[other], order[j]
        for j in range(self.n_latent):
            self.draw_block(order[j], False, rng)
            if self.directed:
                self.draw_block(order[j], True, rng)
        if self.draws_b:
            self.draw_bias(rng)
        for k in range(self.n_latent):
            for l in range(0 if self.directed else k, self.n_latent):
                self.slice_weight(k, l, rng)
        if self.draws_b:
            self.slice_bias(rng)

    cdef int draw_block(self, Py_ssize_t k, bint incoming, bitgen_t* rng) except -1 nogil:
        """Draw row k of W, or column k (`incoming`), given all else: a Gaussian regression on the
        partners' features, with omega ~ PG(1, log odds) for each pair."""
        cdef Py_ssize_t n_terms
        cdef Py_ssize_t n = self.n_latent
        cdef Py_ssize_t* terms = &self.indices[1, 0]
        cdef double* weights = &self.vectors[0, 0]
        cdef double* target = &self.vectors[1, 0]
        cdef double* design = &self.vectors[2, 0]
        cdef double* noise = &self.vectors[3, 0]
        cdef double log_det
        cdef int sign
        cdef bint both
        for a in range(n):
            weights[a] = self.W[a, k] if incoming else self.W[k, a]
            target[a] = 0.0
            noise[a] = random_standard_normal(rng)
            for c in range(a + 1):
                self.gram[a, c] = 0.0
        for i in range(self.n_samples):
            z = self.Z.row(i)
            if not z[k]:
                continue
            for j in range(self.n_samples):
                sign = self.signs[j, i] if incoming else self.signs[i, j]
                partner = self.Z.row(j)
                both = not self.directed and partner[k]
                if sign == 0 or (both and j < i):
                    continue    # both rows have the feature: row j has had the pair
                logit = self.logit(j, i) if incoming else self.logit(i, j)
                omega = polya_gamma(logit, SHARES, rng)
                # The weights of feature k with those of j and, if j has it too, with others of i.
                n_terms = 0
                residual = logit
                for a in range(n):
                    terms[n_terms] = a
                    design[n_terms] = partner[a] + (z[a] if both and a != k else 0)
                    residual -= design[n_terms] * weights[a]
                    n_terms += design[n_terms] > 0.0
                residual = 0.5 * sign - omega * residual
                for a in range(n_terms):
                    target[terms[a]] += design[a] * residual
                    for c in range(a + 1):
                        self.gram[terms[a], terms[c]] += omega * design[a] * design[c]
        for j in range(n):
            self.gram[j, j] += self.tau
        if not factorize(&self.gram[0, 0], n, self.gram.shape[1], &self.factor[0], &log_det):
            raise FloatingPointError(f"LFRM: the weights of feature {k} have no law given Z")
        draw_normal(&self.factor[0], n, target, noise)
        for a in range(n):
            if incoming or not self.directed:
                self.W[a, k] = target[a]
            if not incoming:
                self.W[k, a] = target[a]
        self.tabulate()

    cdef int draw_bias(self, bitgen_t* rng) except -1 nogil:
        cdef double precision = self.tau_b
        cdef double target = 0.0
        for i in range(self.n_samples):
            for j in range(0 if self.directed else i + 1, self.n_samples):
                if self.signs[i, j] != 0:
                    logit = self.logit(i, j)
                    omega = polya_gamma(logit, SHARES, rng)
                    precision += omega
                    target += 0.5 * self.signs[i, j] - omega * (logit - self.b)
        self.b = target / precision + random_standard_normal(rng) / sqrt(precision)

    cdef void add_links(self, Py_ssize_t i) noexcept nogil:
        """Add the pairs of row i to the slice; over all rows every pair comes once."""
        for j in range(0 if self.directed else i + 1, self.n_samples):
            if self.signs[i, j] != 0:
                self.slice.add(self.signs[i, j], self.logit(i, j), 1.0)

    cdef int slice_bias(self, bitgen_t* rng) except -1 nogil:
        if self.n_pairs > self.slice.capacity:
            with gil:
                self.slice.reserve(self.n_pairs)
        self.slice.n = 0
        for i in range(self.n_samples):
            self.add_links(i)
        self.b = self.take_slice(self.b, self.tau_b, 1.0, rng)
        if not isfinite(self.b):
            raise FloatingPointError("LFRM: the bias has no law given Z")

    cdef double take_slice(
        self, double value, double precision, double width, bitgen_t* rng
    ) noexcept nogil:
        self.slice.origin = value
        self.slice.precision = precision
        self.slice.width = width
        return width * self.slice.slice_step(value / width, rng)

    cdef int slice_weight(self, Py_ssize_t k, Py_ssize_t l, bitgen_t* rng) except -1 nogil:
        """Draw weight (k, l) given the pairs that it concerns: rows with k and rows with l."""
        cdef Py_ssize_t n_own = 0, n_other = 0
        cdef Py_ssize_t* own = &self.members[0, 0]
        cdef Py_ssize_t* other = &self.members[1, 0]
        cdef double value = self.W[k, l]
        for i in range(self.n_samples):
            if self.Z.row(i)[k]:
                own[n_own] = i
                n_own += 1
            if self.Z.row(i)[l]:
                other[n_other] = i
                n_other += 1
        if n_own * n_other > self.slice.capacity:
            with gil:
                self.slice.reserve(n_own * n_other)
        self.slice.n = 0
        for a in range(n_own):
            i = own[a]
            for c in range(n_other):
                j = other[c]
                if self.signs[i, j] == 0:
                    continue
                times = 1.0
                if not self.directed and self.Z.row(i)[l] and self.Z.row(j)[k]:
                    if j < i:
                        continue        # undirected pairs of both features come twice
                    times = 1.0 if k == l else 2.0
                self.slice.add(self.signs[i, j], self.logit(i, j), times)
        if self.slice.n == 0:
            return 0        # its block has drawn it from the prior
        by = self.take_slice(value, self.tau, 2.0, rng) - value
        if not isfinite(by):
            raise FloatingPointError(f"LFRM: the weight of features {k}, {l} has no law")
        self.W[k, l] = value + by
        for a in range(n_own):
            self.sums[own[a], l] += by
        if not self.directed and k != l:
            self.W[l, k] = value + by
            for c in range(n_other):
                self.sums[other[c], k] += by

    cdef double log_likelihood(self) noexcept nogil:
        cdef double total = 0.0
        self.tabulate()
        for i in range(self.n_samples):
            self.slice.n = 0
            self.add_links(i)
            total += tile_log_sigmoids(&self.slice.y[0], &self.slice.effects[0], 0.0, self.slice.n)
        return total

    cdef double square(self) noexcept nogil:
        """The sum of the squares of the weights."""
        cdef double total = 0.0
        for k in range(self.n_latent):
            for l in range(0 if self.directed else k, self.n_latent):
                total += self.W[k, l] * self.W[k, l]
        return total

    cdef double log_prior(self) noexcept nogil:
        cdef Py_ssize_t n = n_weights(self.n_latent, self.directed)
        return 0.5 * (n * log(self.tau / (2.0 * PI)) - self.tau * self.square())

    cdef int mean_params(self) except -1 nogil:
        """Set the weights to their joint posterior mode given Z, b and tau, if they are at most
        MOST_WEIGHTS; otherwise leave them."""
        if 0 < n_weights(self.n_latent, self.directed) <= MOST_WEIGHTS:
            with gil:
                W = np.asarray(self.W)[:self.n_latent, :self.n_latent]
                W[:] = mode_of_weights(
                    W, self.Z.to_array(), np.asarray(self.signs), self.b, self.tau, self.directed
                )

    cdef FeatureModel restricted(self):
        return LFRMPart(self)

    def start_hyperparameters(self):
        """The bias from the frequency of links."""
        if self.draws_b:
            self.b = self.first_b
        if self.draws_tau:
            self.tau = 1.0

    def get_adaptation(self):
        return {"n_sweeps": self.n_sweeps}

    def set_adaptation(self, adaptation):
        self.n_sweeps = adaptation["n_sweeps"]

    def save(self):
        cdef Py_ssize_t n = self.n_latent
        W = np.asarray(self.W)[:n, :n].copy()
        return {"weights": W, "weight_precision": self.tau, "bias": self.b}

    def load(self, saved):
        cdef Py_ssize_t n = len(saved["weights"])
        self.n_latent = 0
        self.reserve(n)
        self.n_latent = n
        np.asarray(self.W)[:n, :n] = saved["weights"]
        self.tau = saved["weight_precision"]
        self.b = saved["bias"]


cdef class LFRMPart(LinkFlipModel):
    """Some features of an `LFRMModel`, given which rows have the others. The weights of the others
    among themselves are parameters too if at most MOST_REFITTED; if not, they are given.

    The parameters theta are b, if it is drawn; the weights of the others among themselves; then
    for each feature its weights with the others and with features up to itself. Their law given Z
    and X is log concave. q is its Gaussian approximation at the mode. Newton's method finds the
    mode from a fixed start, so that q depends on Z and on the given weights only.

    Rows with the same features are of one *type*. Pairs of two types have the same log odds, and
    are counted.
    """
    cdef bint refits
    cdef Py_ssize_t room                # capacity for other features
    cdef Py_ssize_t n_whole             # features of the whole model that need room
    cdef Py_ssize_t n_others
    cdef Py_ssize_t[::1] others         # (room,): features in `whole`
    # Types of rows by their other features.
    cdef Py_ssize_t n_kinds
    cdef Py_ssize_t[::1] kind           # (n_samples,)
    cdef Py_ssize_t[:, ::1] active      # (n_kinds, room): which of `others` it has
    cdef Py_ssize_t[::1] n_active       # (n_kinds,)
    cdef double[:, ::1] base            # (n_kinds, n_kinds): log odds by the others, without b
    cdef double[:, ::1] out_of          # (n_kinds, n_reserved): sum of W[a, l] over its others l
    cdef double[:, ::1] into            # (n_kinds, n_reserved): sum of W[l, a]
    # Types of rows by all features.
    cdef Py_ssize_t n_types
    cdef Py_ssize_t[::1] type_of        # (n_samples,)
    cdef Py_ssize_t[::1] example        # (n_types,): a row
    cdef Py_ssize_t[::1] found          # (n_samples << n_reserved,): type by kind and code
    cdef double[:, :, ::1] counts       # (n_types, n_types, 2): pairs without and with a link
    cdef Py_ssize_t n_reserved
    # Parameters, those that `propose_params` kept, the mode, and scratch of Newton's method.
    cdef Py_ssize_t n_room
    cdef double[::1] theta, kept, mode, attempt, gradient, towards
    cdef double[:, ::1] gram            # minus the Hessian, below the diagonal
    cdef double[::1] factor             # packed by columns
    cdef double log_det
    cdef Py_ssize_t[::1] terms          # of a pair: parameters in its log odds

    def __init__(self, LFRMModel whole):
        n = whole.n_samples
        self.signs = whole.signs
        self.directed, self.draws_b = whole.directed, whole.draws_b
        self.tau_b, self.first_b = whole.tau_b, whole.first_b
        self.n_whole = whole.capacity
        self.n_samples = self.n_partners = n
        self.width = whole.width
        self.kind, self.n_active, self.type_of, self.example = np.zeros((4, n), np.intp)
        self.base = np.zeros((0, 0))
        self.counts = np.zeros((0, 0, 2))
        self.reserve_candidates(1)

    cdef int reserve(self, Py_ssize_t n_latent) except -1:
        cdef Py_ssize_t room = self.n_whole
        cdef Py_ssize_t n = max(n_latent, self.n_reserved)
        if room <= self.room and n <= self.n_reserved:
            return 0
        self.room, self.n_reserved = room, n
        self.others = np.empty(room, dtype=np.intp)
        self.active = np.empty((self.n_samples, room), dtype=np.intp)
        self.out_of, self.into = np.zeros((2, self.n_samples, n))
        self.found = np.empty(self.n_samples << n, dtype=np.intp)
        self.effects = np.empty((n, max(self.width - N_CACHED, 1)))
        self.terms = np.empty((n + room) * (n + room) + 1, dtype=np.intp)
        # At most this many parameters, whether the weights of the others are given or not.
        self.n_room = 1 + 2 * n * room + n * n + MOST_REFITTED
        self.theta, self.kept, self.mode, self.attempt, self.gradient, self.towards = np.zeros(
            (6, self.n_room)
        )
        self.gram = np.empty((self.n_room, self.n_room))
        self.factor = np.empty(self.n_room * (self.n_room + 1) // 2)

    cdef int make_room(self) except -1 with gil:
        """Allocate tables of the kinds and types, which are often much fewer than rows."""
        if self.n_kinds > self.base.shape[0]:
            n = min(2 * self.n_kinds, self.n_samples)
            self.base = np.zeros((n, n))
        if self.n_types > self.counts.shape[0]:
            n = min(2 * self.n_types, self.n_samples)
            self.counts = np.zeros((n, n, 2))

    # Where parameters are in theta.

    cdef inline Py_ssize_t first_of(self, Py_ssize_t a) noexcept nogil:
        """The first parameter of feature a; the number of parameters, if there are a features."""
        cdef Py_ssize_t first = n_weights(self.n_others, self.directed) if self.refits else 0
        first += self.draws_b + n_weights(a, self.directed)
        return first + (2 if self.directed else 1) * a * self.n_others

    cdef inline Py_ssize_t of_others(self, Py_ssize_t l, Py_ssize_t m) noexcept nogil:
        """W[l, m] for l and m in `others`."""
        if self.directed:
            return self.draws_b + l * self.n_others + m
        return self.draws_b + max(l, m) * (max(l, m) + 1) // 2 + min(l, m)

    cdef inline Py_ssize_t with_other(
        self, Py_ssize_t a, Py_ssize_t l, bint incoming
    ) noexcept nogil:
        """W[a, l], or W[l, a], for l in `others`."""
        return self.first_of(a) + (incoming and self.directed) * self.n_others + l

    cdef inline Py_ssize_t within(self, Py_ssize_t a, Py_ssize_t c) noexcept nogil:
        """W[a, c]."""
        if not self.directed:
            return self.first_of(max(a, c)) + self.n_others + min(a, c)
        if c <= a:
            return self.first_of(a) + 2 * self.n_others + c
        return self.first_of(c) + 2 * self.n_others + c + 1 + a

    cdef int restrict_from(
        self, FeatureModel whole, const Py_ssize_t* features, Py_ssize_t n
    ) except -1 nogil:
        cdef Py_ssize_t width = (<LFRMModel>whole).capacity
        cdef double total
        if width > self.room:
            self.n_whole = width
            with gil:
                self.reserve(self.n_reserved)
        W = &(<LFRMModel>whole).W[0, 0]
        self.tau = (<LFRMModel>whole).tau
        self.n_others = whole.list_others(features, n, &self.others[0])
        self.refits = n_weights(self.n_others, self.directed) <= MOST_REFITTED
        # Kinds.
        self.n_kinds = 0
        for i in range(self.n_samples):
            z = whole.Z.row(i)
            for t in range(self.n_kinds):
                other = whole.Z.row(self.example[t])
                l = 0
                while l < self.n_others and z[self.others[l]] == other[self.others[l]]:
                    l += 1      # ends: l grows
                if l == self.n_others:
                    self.kind[i] = t
                    break
            else:
                t = self.n_kinds
                self.n_kinds += 1
                self.kind[i] = t
                self.example[t] = i
                self.n_active[t] = 0
                for l in range(self.n_others):
                    if z[self.others[l]]:
                        self.active[t, self.n_active[t]] = l
                        self.n_active[t] += 1
        if self.n_kinds > self.base.shape[0]:
            self.make_room()
        for s in range(0 if self.refits else self.n_kinds):
            for t in range(self.n_kinds):
                total = 0.0
                for a in range(self.n_active[s]):
                    k = self.others[self.active[s, a]] * width
                    for c in range(self.n_active[t]):
                        total += W[k + self.others[self.active[t, c]]]
                self.base[s, t] = total
        # Present parameters.
        self.b = (<LFRMModel>whole).b
        if self.draws_b:
            self.kept[0] = self.b
        if self.refits:
            for l in range(self.n_others):
                for m in range(self.n_others):
                    self.kept[self.of_others(l, m)] = W[self.others[l] * width + self.others[m]]
        for a in range(n):
            for l in range(self.n_others):
                self.kept[self.with_other(a, l, False)] = W[features[a] * width + self.others[l]]
                if self.directed:
                    k = self.others[l] * width
                    self.kept[self.with_other(a, l, True)] = W[k + features[a]]
            for c in range(n):
                self.kept[self.within(a, c)] = W[features[a] * width + features[c]]

    cdef int give_back(self, FeatureModel whole, const Py_ssize_t* features) except -1 nogil:
        cdef double* W = &(<LFRMModel>whole).W[0, 0]
        cdef Py_ssize_t width = (<LFRMModel>whole).capacity
        cdef bint is_own
        (<LFRMModel>whole).b = self.b
        if self.refits:
            for l in range(self.n_others):
                for m in range(self.n_others):
                    W[self.others[l] * width + self.others[m]] = self.theta[self.of_others(l, m)]
        for a in range(self.n_latent):
            k = features[a]
            for l in range(self.n_others):
                is_own = False      # a feature without rows may have become one of these
                for j in range(self.n_latent):
                    is_own |= features[j] == self.others[l]
                if not is_own:
                    W[k * width + self.others[l]] = self.theta[self.with_other(a, l, False)]
                    W[self.others[l] * width + k] = self.theta[self.with_other(a, l, True)]
            for c in range(self.n_latent):
                W[k * width + features[c]] = self.theta[self.within(a, c)]

    cdef int add_feature(self, bitgen_t* rng) except -1 nogil:
        self.n_latent += 1
        for p in range(self.first_of(self.n_latent - 1), self.first_of(self.n_latent)):
            self.theta[p] = random_standard_normal(rng) / sqrt(self.tau)

    cdef int remove_feature(self, Py_ssize_t k) except -1 nogil:
        """Remove the last feature."""
        SKDPM_CHECK(k == self.n_latent - 1, "a part removes its last feature")
        self.n_latent -= 1

    # Parameters.

    cdef void tabulate(self) noexcept nogil:
        """Compute what theta adds to the log odds of rows."""
        if self.draws_b:
            self.b = self.theta[0]
        for s in range(self.n_kinds):
            for a in range(self.n_latent):
                self.out_of[s, a] = self.into[s, a] = 0.0
                for c in range(self.n_active[s]):
                    l = self.active[s, c]
                    self.out_of[s, a] += self.theta[self.with_other(a, l, False)]
                    self.into[s, a] += self.theta[self.with_other(a, l, True)]
            for t in range(self.n_kinds if self.refits else 0):
                total = 0.0
                for a in range(self.n_active[s]):
                    for c in range(self.n_active[t]):
                        total += self.theta[self.of_others(self.active[s, a], self.active[t, c])]
                self.base[s, t] = total

    cdef int count_pairs(self) except -1 nogil:
        """List the types, and count pairs of each two."""
        for i in range(self.n_kinds << self.n_latent):
            self.found[i] = -1
        self.n_types = 0
        for i in range(self.n_samples):
            z = self.Z.row(i)
            code = self.kind[i]
            for a in range(self.n_latent):
                code = 2 * code + z[a]
            if self.found[code] < 0:
                self.found[code] = self.n_types
                self.example[self.n_types] = i
                self.n_types += 1
            self.type_of[i] = self.found[code]
        if self.n_types > self.counts.shape[0]:
            self.make_room()
        for s in range(self.n_types):
            for t in range(self.n_types):
                self.counts[s, t, 0] = self.counts[s, t, 1] = 0.0
        for i in range(self.n_samples):
            s = self.type_of[i]
            for j in range(0 if self.directed else i + 1, self.n_samples):
                if self.signs[i, j] != 0:
                    t = self.type_of[j]
                    if s <= t or self.directed:
                        self.counts[s, t, self.signs[i, j] > 0] += 1.0
                    else:
                        self.counts[t, s, self.signs[i, j] > 0] += 1.0

    cdef Py_ssize_t list_terms(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil:
        """List the parameters in the log odds of a link from row i to row j, some of them twice.
        """
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t s = self.kind[i]
        cdef Py_ssize_t t = self.kind[j]
        cdef const unsigned char* z = self.Z.row(i)
        cdef const unsigned char* partner = self.Z.row(j)
        if self.draws_b:
            self.terms[0] = 0
            n = 1
        if self.refits:
            for a in range(self.n_active[s]):
                for c in range(self.n_active[t]):
                    self.terms[n] = self.of_others(self.active[s, a], self.active[t, c])
                    n += 1
        for a in range(self.n_latent):
            if z[a]:
                for c in range(self.n_active[t]):
                    self.terms[n] = self.with_other(a, self.active[t, c], False)
                    n += 1
                for c in range(self.n_latent):
                    if partner[c]:
                        self.terms[n] = self.within(a, c)
                        n += 1
            if partner[a]:
                for c in range(self.n_active[s]):
                    self.terms[n] = self.with_other(a, self.active[s, c], True)
                    n += 1
        return n

    cdef double log_joint(self, const double[::1] theta) noexcept nogil:
        """log p(X, theta | Z), and its derivatives in `gradient` and `gram`; after `count_pairs`.
        """
        cdef Py_ssize_t s, t
        cdef Py_ssize_t n = self.first_of(self.n_latent)
        cdef double total = 0.0
        for p in range(n):
            precision = self.tau_b if self.draws_b and p == 0 else self.tau
            total += 0.5 * (log(precision / (2.0 * PI)) - precision * theta[p] * theta[p])
            self.gradient[p] = -precision * theta[p]
            for q in range(p):
                self.gram[p, q] = 0.0
            self.gram[p, p] = precision
        for s in range(self.n_types):
            for t in range(0 if self.directed else s, self.n_types):
                n_links = self.counts[s, t, 1]
                n_pairs = self.counts[s, t, 0] + n_links
                if n_pairs == 0.0:
                    continue
                logit = 0.0 if self.draws_b else self.b
                if not self.refits:
                    logit += self.base[self.kind[self.example[s]], self.kind[self.example[t]]]
                m = self.list_terms(self.example[s], self.example[t])
                for x in range(m):
                    logit += theta[self.terms[x]]
                size = exp(-fabs(logit))
                total -= (
                    max(-logit, 0.0) * n_links + max(logit, 0.0) * (n_pairs - n_links)
                    + n_pairs * log1p(size)
                )
                mean = (1.0 if logit > 0.0 else size) / (1.0 + size)
                slope = n_pairs * size / ((1.0 + size) * (1.0 + size))
                mean = n_links - n_pairs * mean
                for x in range(m):
                    p = self.terms[x]
                    self.gradient[p] += mean
                    for y in range(m):
                        q = self.terms[y]
                        if q <= p:
                            self.gram[p, q] += slope
        return total

    cdef int find_mode(self, double close) except -1 nogil:
        """Set `mode`, up to a gain of `close`, and factorize the precision there."""
        cdef Py_ssize_t _step
        cdef Py_ssize_t n = self.first_of(self.n_latent)
        self.count_pairs()
        for p in range(n):
            self.mode[p] = 0.0
        if self.draws_b:
            self.mode[0] = self.first_b
        value = self.log_joint(self.mode)
        for _step in range(MOST_STEPS):
            if not factorize(
                &self.gram[0, 0], n, self.gram.shape[1], &self.factor[0], &self.log_det
            ):
                raise FloatingPointError("LFRM: weights have no law given Z")
            for p in range(n):
                self.towards[p] = self.gradient[p]
            draw_normal(&self.factor[0], n, &self.towards[0], NULL)
            gain = 0.0
            for p in range(n):
                gain += self.towards[p] * self.gradient[p]
            if gain < close:
                break
            length = 1.0
            while True:     # ends: `length` is halved
                for p in range(n):
                    self.attempt[p] = self.mode[p] + length * self.towards[p]
                other = self.log_joint(self.attempt)
                if other >= value or length < 1e-6:
                    break
                length *= 0.5
            if other < value:
                break           # the rest is rounding
            value = other
            for p in range(n):
                self.mode[p] = self.attempt[p]

    cdef int draw(self, double[::1] theta, bitgen_t* rng) except -1 nogil:
        """Draw theta from q, whose mode was found."""
        cdef Py_ssize_t n = self.first_of(self.n_latent)
        for p in range(n):
            theta[p] = 0.0
            self.attempt[p] = random_standard_normal(rng)
        if n > 0:
            draw_normal(&self.factor[0], n, &theta[0], &self.attempt[0])
        for p in range(n):
            theta[p] += self.mode[p]

    cdef double log_ratio(self, const double[::1] theta) noexcept nogil:
        """log p(X, theta | Z) - log q(theta); the mode was found."""
        cdef Py_ssize_t c = 0
        cdef Py_ssize_t n = self.first_of(self.n_latent)
        cdef double square = 0.0
        for q in range(n):
            scale = self.factor[c]      # the precision is L D L', with 1 / D in place of diag(L)
            total = theta[q] - self.mode[q]
            c += 1
            for p in range(q + 1, n):
                total += self.factor[c] * (theta[p] - self.mode[p])
                c += 1
            square += total * total / scale
        return self.log_joint(theta) - 0.5 * (self.log_det - n * log(2.0 * PI) - square)

    cdef double redraw(self, bitgen_t* rng) except? -1.0 nogil:
        """Draw parameters from q and keep them. Returns the log acceptance ratio of this step."""
        cdef double log_ratio = -self.log_weight()
        self.draw(self.kept, rng)
        return log_ratio + self.log_ratio(self.kept)

    cdef int update_params(self, bint adapting, bitgen_t* rng) except -1 nogil:
        self.find_mode(NEAR)
        self.draw(self.theta, rng)
        self.tabulate()

    cdef void gather(self, Py_ssize_t i, Py_ssize_t k, bitgen_t* rng) noexcept nogil:
        """To no others, to the nodes that are linked to i, or to a random share of all nodes: a
        feature that explains little may be in any of them."""
        cdef Py_ssize_t way = integer(rng, 3)
        if way == 1:
            share = uniform(rng)
            for j in range(self.n_samples):
                if uniform(rng) < share:
                    self.Z.set(j, k, True)
        elif way == 2:
            for j in range(self.n_samples):
                if self.signs[i, j] > 0 or self.signs[j, i] > 0:
                    self.Z.set(j, k, True)

    cdef double log_weight(self) except? -1.0 nogil:
        self.find_mode(CLOSE)
        return self.log_ratio(self.kept)

    cdef double propose_params(self, bitgen_t* rng) except? -1.0 nogil:
        self.find_mode(CLOSE)
        self.draw(self.kept, rng)
        return self.log_ratio(self.kept)

    cdef int settle_params(self, bitgen_t* rng) except -1 nogil:
        for p in range(self.first_of(self.n_latent)):
            self.theta[p] = self.kept[p]
        if self.draws_b:
            self.b = self.theta[0]

    cdef void begin_link(
        self, Py_ssize_t i, Py_ssize_t j, double sign, bint incoming
    ) noexcept nogil:
        cdef Py_ssize_t own = self.kind[i], other = self.kind[j]
        cdef double* effects = &self.effects[0, self.row_links]
        cdef Py_ssize_t stride = self.effects.shape[1]
        cdef const unsigned char* partner = self.Z.row(j)
        cdef double logit = self.b + (self.base[other, own] if incoming else self.base[own, other])
        for a in range(self.n_latent):
            if partner[a]:
                logit += self.out_of[own, a] if incoming else self.into[own, a]
            effects[a * stride] = self.into[other, a] if incoming else self.out_of[other, a]
            for c in range(self.n_latent):
                if partner[c]:
                    effects[a * stride] += self.theta[
                        self.within(c, a) if incoming else self.within(a, c)
                    ]
            effects[a * stride] *= sign
        self.candidates[N_CACHED + self.row_links] = sign * logit
        self.row_links += 1


def mode_of_weights(W, Z, signs, bias, precision, bint directed):
    """The mode of p(W | Z, X), which is log concave, by Newton's method from W.

    For W[k, l] and W[m, o] the Hessian has the sum over pairs of omega_ij z_ik z_im z_jl z_jo;
    `both` holds the products z_ik z_im of one row.
    """
    n = Z.shape[1]
    Z = Z.astype(np.float64)
    both = (Z[:, :, None] * Z[:, None, :]).reshape(len(Z), -1)
    at = np.arange(n * n).reshape(n, n)
    if not directed:
        at = np.minimum(at, at.T)   # two entries of W are one weight
        precision = 2.0 * precision     # since every pair comes twice
    first, weight = np.unique(at, return_index=True, return_inverse=True)[1:]
    v = W.ravel()[first]
    spread = sp.csr_array((np.ones(n * n), (np.arange(n * n), weight.ravel())))

    def log_density(v):
        """It but for a constant, its gradient and minus its Hessian, by blocks for the cache."""
        W = (spread @ v).reshape(n, n)
        value, slopes, curvatures = -0.5 * precision * (v @ v), 0.0, 0.0
        for rows in gen_batches(len(Z), 128):
            sign = signs[rows].astype(np.float64)
            y = sign * (bias + Z[rows] @ W @ Z.T)
            p = expit(-y)
            value += (np.minimum(y, 0.0) + np.log(np.maximum(p, 1.0 - p))).sum()
            slopes += Z[rows].T @ (sign * p) @ Z
            curvatures += both[rows].T @ (sign * sign * p * (1.0 - p) @ both)
        curvatures = curvatures.reshape(n, n, n, n).swapaxes(1, 2).reshape(n * n, n * n)
        hessian = spread.T @ curvatures @ spread + precision * np.eye(len(v))
        return value, spread.T @ slopes.ravel() - precision * v, hessian

    value, gradient, hessian = log_density(v)
    for _step in range(MOST_STEPS):
        towards = np.linalg.solve(hessian, gradient)
        gain, length = gradient @ towards, 1.0
        while length * gain > 1e-9:     # ends: it is halved
            attempt = v + length * towards
            other, gradient, hessian = log_density(attempt)
            if other > value:
                break
            length *= 0.5
        else:
            break           # the rest is rounding
        v, value = attempt, other
    return (spread @ v).reshape(n, n)
