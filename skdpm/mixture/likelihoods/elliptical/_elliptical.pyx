# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters: what does not depend on the shape of their covariances.

A kernel is a shape (_full, _columns, _sparse, _tied), with weights of rows if tails are heavy and
with missing entries that a chain draws (_gaps). Here is how items enter and leave, how rows get
weights and entries, and how weights are summed over. A shape defines the statistics of a cluster,
the terms that follow from them, and the density of a row.

With weights, x_i | mu, Sigma, w_i ~ N(mu, Sigma / w_i), where w_i is one of G numbers with
probabilities p_g. With W = sum w_i, x_bar = sum w_i x_i / W, C = sum w_i (x_i - x_bar)(x_i -
x_bar)' and rho = r + W, the posterior of a cluster is that of items without weights, with W for n
where that is a precision of the mean. The density of a row depends on its weight by
h = rho w / (rho + w) alone. Without weights w = 1, W = n.

Rows with some weights may have moments of their own, multiplied by a factor that is a
hyperparameter: W, x_bar and C are then those of all sets of moments together. So statistics do not
depend on hyperparameters.

Row: n, the number of items with each weight (G), then sets of moments | terms of the shape, of
which PEAK is the first, then if there are weights a bound, rho, and for each weight
log p(w) h^(D/2) (G) and h (G). Without weights there is one set, and n is its mass.
"""
from libc.math cimport INFINITY, NAN, fabs
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from skdpm._core._memory cimport as_indices, expect_shape
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.likelihoods.contract._base cimport read_row, row
from skdpm.mixture.likelihoods.contract._parametric cimport LD, MOST_DIMENSIONS, tile_gather
from skdpm.mixture.likelihoods.elliptical._hyper cimport RUN, fill_log_norm, labels_show, own_size

from skdpm.mixture.likelihoods.contract._base import HyperSampler

cdef double ONE = 1.0


cdef extern from "tiles.h" nogil:
    enum: SKDPM_STRIP
    double log_below(double x)
    double exp_above(double x)
    void tile_scatter(const double* x, Py_ssize_t n, Py_ssize_t n_features, double* out)
    void tile_weigh(
        double rho, const double* w, const double* log_p, double half, Py_ssize_t n_weights,
        double* out
    )


cdef inline void combine_moments(
    double* stats, const double* other, Py_ssize_t n_features, double* gap    # scratch (D,)
) noexcept nogil:
    """Counts, means and scatters of two clusters: Chan, Golub & LeVeque (1983), eq. 1.5; without
    cancellation."""
    cdef Py_ssize_t t = 1 + n_features
    cdef double n = stats[0] + other[0]
    if other[0] == 0.0:
        return
    weight = stats[0] * other[0] / n
    for d in range(n_features):
        gap[d] = other[1 + d] - stats[1 + d]
        stats[1 + d] += gap[d] * other[0] / n
    for d in range(n_features):
        for e in range(d, n_features):
            stats[t] += other[t] + weight * gap[d] * gap[e]
            t += 1
    stats[0] = n


cdef class RowWeights:
    """Weights of rows under a law with heavy tails, a `Tails`: x | w ~ N(mean, Sigma / w). To a
    state the weight of a row is what its missing entries are."""

    def __init__(self, law, Py_ssize_t n_rows):
        self.law = law
        self.n_rows = n_rows
        self.relative = np.array(law.relative, dtype=np.float64)
        self.sets = np.array(law.sets, dtype=np.intp)
        self.n_weights = self.relative.shape[0]
        if self.n_weights > MOST_WEIGHTS:
            raise ValueError(f"at most {MOST_WEIGHTS} weights, got {self.n_weights}")
        self.n_lanes = 2 if self.n_weights <= 2 else MOST_WEIGHTS
        self.n_sets = max(law.sets) + 1
        self.chosen = np.full(n_rows, law.first, dtype=np.uint8)
        self.is_open = np.ones(n_rows, dtype=np.uint8)

    cdef int take(self, parameters) except -1:
        """Set what follows from the parameters of the law."""
        log_probabilities, factors = self.law.log_law(parameters)
        values = self.law.weights(parameters)[1]
        more = 0, self.n_lanes - self.n_weights
        self.log_probabilities = np.pad(log_probabilities, more, constant_values=-np.inf)
        self.factors = np.array(factors)
        self.values = np.pad(values, more, constant_values=1.0)

    def complete(self, chosen=None):
        """Give every row a weight; see `ClusterModel.complete`."""
        if chosen is None:
            self.chosen[:] = self.law.first
        else:
            chosen = np.asarray(chosen)
            if chosen.shape != (self.n_rows,) or not (
                (0 <= chosen) & (chosen < self.n_weights)
            ).all():
                raise ValueError(
                    f"expected {self.n_rows} numbers of weights below {self.n_weights}"
                )
            self.chosen = chosen.astype(np.uint8)
        self.is_open[:] = 0
        self.drawn = chosen is not None

    def completion(self):
        """Numbers of the weights: ndarray of shape (n_rows,), uint8."""
        return np.array(self.chosen)


cdef class EllipticalModel(ClusterModel):
    """Kernel of Gaussian clusters.

    - `data`: dict. `X`, rows minus the origin, NaN for a missing entry; see `Gaps` if a chain
      draws missing entries.
    - `tables`: dict. `n_max`; `origin` of the rows; `spread`, units of the columns in which
      hyperparameters are drawn; `floor`, smallest diagonal of S, if that is learned.
    - `mean`, `mean_precision`, `df`: u, not relative to the origin, r and nu.
    - `scale`: S, or what a shape has in its place.
    - `law`, `law_values`: `Tails`, the law of the weights, and values of its parameters.
    """

    def __init__(
        self, data, tables, mean, double mean_precision, double df, scale, law=None, law_values=()
    ):
        cdef const double[:, ::1] X = data["X"]
        names = ("mean",) * X.shape[1] + ("mean_precision", "df") + ("scale",) * scale.size
        drawn = []
        self.rows = X
        self.drifts = True
        self.n_samples = X.shape[0]
        self.n_features = X.shape[1]
        self.n_packed = self.n_features * (self.n_features + 1) // 2
        self.n_set = 1 + self.n_features + self.n_packed
        self.half = 0.5 * self.n_features
        self.n_max = tables["n_max"]
        self.X = &X[0, 0]
        self.pending_slot = self.pending_item = NONE
        self.n_sets = 1
        self.factors = &ONE
        expect_shape("scale", scale, (self.n_features,) * scale.ndim)
        self.origin = tables["origin"]
        expect_shape("origin", self.origin, (self.n_features,))
        self.units = tables["spread"], tables["origin"], tables["floor"]
        self.prior_mean = np.empty(self.n_features)
        self.first_law = len(names)
        if law is not None:
            self.weights = RowWeights(law, self.n_samples)
            self.bounds_rest = True
            self.n_weights = self.weights.n_weights
            self.first_set = COUNTS + self.n_weights
            self.n_lanes = self.weights.n_lanes
            self.n_sets = self.weights.n_sets
            names += law.parameters
            drawn.append(np.arange(self.n_samples))
        start = [mean, [mean_precision, df], np.ravel(scale), law_values]
        self.declare_hyperparameters(names, np.concatenate(start))
        if "gap_columns" in data:
            self.gaps = Gaps(data)
            drawn.append(self.gaps.gap_items)
        if drawn:
            self.declare_incomplete(np.concatenate(drawn))
        self.begin(tables, scale)
        self.take_hyperparameters()

    cdef int lay_out(self, Py_ssize_t n_terms) except -1:
        """Allocate the arena, for `n_terms` terms of the shape."""
        cdef Py_ssize_t n_stats = self.first_set + self.n_sets * self.n_set
        self.terms = n_terms
        if self.weights is not None:
            n_terms += WEIGHED + 2 * self.n_lanes
            self.keeps = not self.defers
        if self.keeps:
            self.kept = np.empty(2 * n_stats + n_terms)
        self.allocate(n_stats, n_stats + n_terms)

    cdef int take_hyperparameters(self) except -1:
        """Set what follows from `hyper`. A shape also takes the scale, and sets the empty row."""
        for d in range(self.n_features):
            self.prior_mean[d] = self.hyper[d] - self.origin[d]
        self.mean_precision = self.hyper[self.n_features]
        self.df = self.hyper[self.n_features + 1]
        if not self.mean_precision > 0.0:
            raise ValueError("Gaussian.mean_precision must be positive")
        self.kept_item = NONE
        if self.weights is not None:
            self.weights.take([self.hyper[d] for d in range(self.first_law, self.n_hyper)])
            self.factors = &self.weights.factors[0]

    cdef int share_norms(self, const double[::1] log_norms, double free) except -1:
        """Take the table of log c_n that kernels share."""
        self.log_norms = log_norms
        self.n_tabled = self.n_shared = log_norms.shape[0]
        self.free = free

    cdef int renew_norms(self) except -1:
        """Begin a table for hyperparameters that have changed. It is filled where it is read: a
        stream makes many kernels, for a row each."""
        self.n_tabled = own_size(self.n_max, self.n_shared, self.n_samples)
        self.own_norms = np.full(self.n_tabled, NAN)
        self.log_norms = self.own_norms     # Cython 3.2 crashes if one line sets both

    cdef void fill_norms(self, Py_ssize_t n) noexcept nogil:
        """Fill the run of the table that has entry n."""
        cdef Py_ssize_t first = n // RUN * RUN
        cdef const double* r_nu = self.hyper + self.n_features
        fill_log_norm(
            &self.own_norms[first], first, min(first + RUN, self.n_tabled), r_nu[0], r_nu[1],
            self.free
        )

    cdef void weigh(self, double rho, double* weighed) noexcept nogil:
        """log p(w) h^(D/2) and h = rho w / (rho + w) of each weight: OUT (2 n_lanes,)."""
        tile_weigh(
            rho, &self.weights.values[0], &self.weights.log_probabilities[0],
            0.5 * self.n_features, self.n_lanes, weighed
        )

    cdef void finish_weights(self, double* stats, double rho, double bound) noexcept nogil:
        """Set the terms of weights."""
        cdef double* terms = stats + self.n_stats + self.terms
        self.n_last = 0
        terms[BOUND] = bound
        terms[PRECISION] = rho
        self.weigh(rho, terms + WEIGHED)

    # What a shape implements.

    cdef int begin(self, tables, scale) except -1:
        """Allocate what the shape needs, and lay out rows."""

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        """Add another set of moments: by default of masses, means and scatters."""
        combine_moments(moments, other, self.n_features, &self.work[0])

    cdef void compute(self, double* stats) noexcept nogil:
        """Compute all terms from the statistics."""

    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil:
        """Item i enters with weight number g (sign = 1) or leaves (-1): statistics and terms.
        False if rounding has spoilt them."""
        return False

    cdef bint reweigh(
        self, double* stats, Py_ssize_t i, Py_ssize_t old, Py_ssize_t new
    ) noexcept nogil:
        """Item i changes its weight. False if rounding has spoilt the terms."""
        return False

    cdef void row_changes(self, Py_ssize_t slot) noexcept nogil:
        """The row of a slot will change, if removals are deferred."""

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        """log p(x_i, w | items of a slot) for n weights, of these numbers."""

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """A number q for item i: the sum over weights of p(x_i, w | items of the slot) is at most
        exp(PEAK + BOUND) q^-half. NaN: no bound."""
        return NAN

    cdef void row_changed(self, Py_ssize_t i) noexcept nogil:
        """Missing entries of a row have other values."""

    cdef bint draw_missing(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        """Draw missing entries of a row given the rest and its weight. False if that fails."""
        return False

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
        """log p(items of a cluster, their weights) from statistics and factors of the moments."""
        return NAN

    # Items enter and leave. An item that leaves mostly comes back at once. So a removal is
    # deferred, or the row before it is kept: then nothing is rounded.

    cdef void recover(self, Py_ssize_t slot) noexcept nogil:
        """Rounding has spoilt a row: start from its items, if labels show them, or statistics."""
        cdef double* stats = row(self, slot)
        cdef bint good = labels_show(self, slot, stats[0])
        if good:
            memcpy(stats, self.empty, self.width * sizeof(double))
            for i in range(self.n_samples):
                if self.labels[i] == slot:
                    good &= self.shift(stats, i, self.weight_of(i), 1.0)
        if not good:
            self.compute(stats)

    cdef void settle(self) noexcept nogil:
        self.leave()

    cdef void leave(self) noexcept nogil:
        """Do the deferred removal."""
        cdef Py_ssize_t slot = self.pending_slot
        if slot == NONE:
            return
        self.pending_slot = NONE
        self.row_changes(slot)
        if not self.shift(row(self, slot), self.pending_item, self.pending_weight, -1.0):
            self.recover(slot)

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        if slot == self.pending_slot:
            self.pending_slot = NONE
        self.row_changes(slot)
        ClusterModel.release(self, slot)

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        self.row_changes(slot)
        ClusterModel.reset(self, slot)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        cdef Py_ssize_t g = self.weight_of(i)
        cdef bint good
        if self.keeps and self.comes_back(stats, i):
            return
        if slot == self.pending_slot and i == self.pending_item:
            self.pending_slot = NONE
            good = g == self.pending_weight or self.reweigh(stats, i, self.pending_weight, g)
        else:
            self.leave()
            self.row_changes(slot)
            good = self.shift(stats, i, g, 1.0)
        if not good:
            self.recover(slot)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        self.leave()
        if stats[0] == 1.0:
            self.row_changes(slot)
            memcpy(stats, self.empty, self.width * sizeof(double))
        elif self.defers:
            self.pending_slot = slot
            self.pending_item = i
            self.pending_weight = self.weight_of(i)
        elif not self.keeps:
            if not self.shift(stats, i, 0, -1.0):
                self.recover(slot)
        else:
            self.kept_item = i
            self.kept_weight = self.weight_of(i)
            memcpy(&self.kept[0], stats, self.width * sizeof(double))
            if not self.shift(stats, i, self.kept_weight, -1.0):
                self.recover(slot)
            memcpy(&self.kept[self.width], stats, self.n_stats * sizeof(double))

    cdef bint comes_back(self, double* stats, Py_ssize_t i) noexcept nogil:
        """An item mostly comes back to the cluster that it left, with the statistics
        as they were then. The row is then that which was kept, without rounding. What was kept
        serves once, so that continued chains have the same bits."""
        cdef bint is_kept = i == self.kept_item
        self.kept_item = NONE
        if (
            not is_kept or self.weight_of(i) != self.kept_weight
            or memcmp(stats, &self.kept[self.width], self.n_stats * sizeof(double)) != 0
        ):
            return False
        self.n_last = 0
        memcpy(stats, &self.kept[0], self.width * sizeof(double))
        return True

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute(row(self, slot))

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        cdef double* stats = row(self, dst)
        cdef const double* other = row(self, src)
        self.settle()
        for k in range(self.first_set):
            stats[k] += other[k]
        for k in range(self.n_sets):
            self.combine(
                stats + self.first_set + k * self.n_set, other + self.first_set + k * self.n_set
            )
        self.compute(stats)

    # Weights and missing entries of rows: in a completion the weights come first.

    cdef int take_rows(self) except -1:
        """All rows have been completed."""
        self.X = &self.gaps.rows[0, 0]

    def complete(self, values=None):
        weights = values
        self.settle()
        self.kept_item = NONE
        self.n_last = 0
        if self.weights is not None:
            if self.gaps is not None:
                if values is not None:
                    weights, values = np.split(values, [self.n_samples])
                values = self.gaps.checked(values)      # before the weights change
            self.weights.complete(weights)
        if self.gaps is not None:
            self.gaps.complete(values)
            self.take_rows()

    def completion(self):
        drawn = [cell.completion() for cell in (self.weights, self.gaps) if cell is not None]
        if len(drawn) < 2:
            return drawn[0] if drawn else ClusterModel.completion(self)
        return np.concatenate(drawn)

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        if self.weights is not None:
            self.weights.is_open[i] = 1
            self.n_last = 0
        if self.has_missing(i):
            self.leave()        # by the values that the row has now
            self.gaps.is_open[i] = 1

    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil:
        if self.weights is not None:
            self.weights.is_open[i] = 0
        if self.gaps is not None:
            self.gaps.is_open[i] = 0

    cdef void read_gaps(self, Py_ssize_t i, double* completion) noexcept nogil:
        if self.weights is not None:
            completion[i] = self.weights.chosen[i]
            completion += self.n_samples
        if self.gaps is not None:
            self.gaps.read(i, completion)

    cdef void write_gaps(self, Py_ssize_t i, const double* completion) noexcept nogil:
        if self.weights is not None:
            self.weights.chosen[i] = <unsigned char>completion[i]
            self.weights.is_open[i] = 0
            completion += self.n_samples
        if self.has_missing(i):
            self.settle()       # by the values that the row has now
            self.kept_item = NONE
            self.gaps.write(i, completion)
            self.row_changed(i)

    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        if self.weights is not None and not self.draw_weight(slot, i, rng):
            return False
        if not self.has_missing(i):
            return True
        self.kept_item = NONE
        if not self.draw_missing(slot, i, rng):
            return False
        self.row_changed(i)
        return True

    cdef bint draw_weight(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        """Draw the weight of a row in the cluster of a slot. False if that fails."""
        cdef Py_ssize_t k = 0
        cdef double ignored
        cdef double total = 0.0
        while k < self.n_last and self.last[k] != slot:
            k += 1
        if k >= self.n_last:
            k = 0
            self.log_sum_some(as_indices(&slot, 1), i, &ignored)
        shares = self.shares + k * self.n_lanes
        for g in range(self.n_weights):
            total += shares[g]
        if not 0.0 < total < INFINITY:
            return False
        total *= uniform(<bitgen_t*>rng)
        # Rounding may leave nothing of the total; never choose a share of zero.
        for g in range(self.n_weights):
            if shares[g] > 0.0:
                self.weights.chosen[i] = g
                total -= shares[g]
                if total < 0.0:
                    break
        self.weights.is_open[i] = 0
        self.weights.drawn = True
        return True

    # Densities of rows with weights.

    cdef void log_sum_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot), <= MANY, summed over weights; sets `last`, `shares`."""
        cdef double logs[MANY]
        for k in range(slots.n):
            self.log_terms(slots.at[k], i, 0, self.n_lanes, self.shares + k * self.n_lanes)
            self.last[k] = slots.at[k]
        tile_mixtures(self.shares, slots.n, self.n_lanes, logs)
        for k in range(slots.n):
            out[k] = logs[k]
        self.n_last = slots.n

    cdef void log_predictive_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """The same given the weight of the item: log p(x_i, its weight | items of each slot)."""
        for k in range(slots.n):
            self.log_terms(slots.at[k], i, self.weights.chosen[i], 1, out + k)

    cdef void log_weighted_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i, its weight | items of each slot); the sum over weights if its own is open."""
        while slots.n > 0:
            m = min(slots.n, <Py_ssize_t>MANY)
            if self.weights.is_open[i]:
                self.log_sum_some(as_indices(slots.at, m), i, out)
            else:
                self.log_predictive_some(as_indices(slots.at, m), i, out)
            slots.at += m
            out += m
            slots.n -= m

    cdef double open_rest(
        self, Indices slots, Py_ssize_t own, Py_ssize_t i, const double* log_prior
    ) noexcept nogil:
        """The sum over weights p(w) f(h) is at most the largest f(h) for any h. So bounds of one
        logarithm and of one exponential serve all weights of a cluster."""
        cdef Py_ssize_t slot = slots.at[own]
        cdef double log_least
        cdef double total = 0.0
        if self.is_open(i):
            return INFINITY
        self.log_predictive_many(as_indices(&slot, 1), i, &log_least)
        log_least += log_prior[own]
        if not -1e300 < log_least < 1e300:
            return INFINITY
        log_least -= 1e-10 * (1.0 + fabs(log_least))
        for k in range(slots.n):
            if k == own:
                continue
            square = self.bound_square(slots.at[k], i)
            if not square == square:
                return INFINITY
            # A smaller square has a larger bound.
            square = 1e-300 if square < 1e-300 else 1e300 if square > 1e300 else square
            cached = read_row(self, slots.at[k]) + self.n_stats
            value = cached[PEAK] + cached[self.terms + BOUND] - self.half * log_below(square)
            value += log_prior[k] - log_least + 1e-10 * (1.0 + fabs(cached[PEAK]))
            if not value <= 0.0:
                return INFINITY
            total += exp_above(value)
        return total

    # Marginal likelihoods and hyperparameters.

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        self.settle()
        return self.log_marginal_of(row(self, slot), self.factors)

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        """Only the factors of the sets of moments, of which the last hyperparameter is one, may
        differ from the current ones: all others are drawn without this."""
        cdef double[2] factors
        factors[0], factors[1] = 1.0, 1.0 / hyper[self.n_hyper - 1]
        return self.log_marginal_of(row(self, slot), factors)

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """See _hyper. The parameters of the law of the weights stay as long as the weights are
        those of the start."""
        stats = self.dump(slots)
        if self.weights is not None:
            priors = self.resample_law(slots, priors, stats, bit_generator)
        if not priors:
            return self.hyperparameters()
        laws = self.gaussian_laws(priors, self.named_hyperparameters(), stats, bit_generator)
        return laws.resample(self, bit_generator)

    def resample_law(self, slots, priors, stats, bit_generator):
        """Draw the parameters of the law of the weights. Returns the priors of the others."""
        law = self.weights.law
        of_law = {name: priors[name] for name in law.parameters if name in priors}
        if of_law and self.weights.drawn and len(stats):
            values = self.named_hyperparameters()
            parameters = {name: float(values[name][0]) for name in law.parameters}
            law.resample(
                stats[:, COUNTS : COUNTS + self.n_weights].sum(axis=0), parameters, of_law,
                lambda name, prior: HyperSampler(self, slots).draw(
                    self.hyper_names.index(name), prior, bit_generator
                ),
                np.random.Generator(bit_generator),
            )
            for name, value in parameters.items():
                values[name] = [value]
            self.set_hyperparameters(np.concatenate(list(values.values())))
        return {name: prior for name, prior in priors.items() if name not in of_law}

    def gaussian_laws(self, priors, values, stats, bit_generator):
        """The `GaussianLaws` of `values`, which may change before, in place, and of statistics."""
        raise NotImplementedError

    def pooled(self, stats):
        """Statistics as without weights, all sets of moments together, and the precisions of
        means of clusters. For shapes with scatter matrices."""
        if self.weights is None:
            return stats, stats[:, 0]
        moments = self.weights.law.moments(
            stats, self.n_features, np.asarray(self.weights.factors)
        )
        masses = moments[:, 0].copy()
        moments[:, 0] = stats[:, 0]
        return moments, masses


cdef class ParametricElliptical(ParametricModel):
    """Gaussian rows under drawn parameters: what does not depend on the shape of covariances. By
    default statistics are numbers of items, means and scatters.

    - `X`, `mean`: Rows, NaN for a missing entry, and u, minus the origin.
    - `mean_precision`, `df`: r and nu.
    - `n_stats`: Number of the statistics, and of the parameters.
    """

    def __init__(
        self, const double[:, ::1] X, const double[::1] mean, double mean_precision, double df,
        Py_ssize_t n_stats
    ):
        cdef Py_ssize_t n_features = X.shape[1]
        expect_shape("mean", mean, (n_features,))
        self.rows = X
        self.mean = mean
        self.n_samples = X.shape[0]
        self.n_features = n_features
        self.n_packed = n_features * (n_features + 1) // 2
        self.n_stats = self.n_params = n_stats
        self.points = &X[0, 0] if X.shape[0] else NULL
        self.n_dimensions = n_features if n_features <= MOST_DIMENSIONS else 0
        self.mean_precision = mean_precision
        self.df = df
        self.work = np.zeros(n_features * LD)
        self.moments = np.empty(n_stats)
        self.columns = <double*>self.resized(
            NULL, (2 * n_features + 1) * LD + SKDPM_STRIP, sizeof(double)
        )
        self.gaps = self.columns + n_features * LD + SKDPM_STRIP

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        tile_gather(self.points, self.n_features, items.at, items.n, self.columns, LD)
        self.log_density_loaded(0, items.n, params, which, out)

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        """The moments of the items by themselves, about their own mean; then both together."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double* mean = &self.moments[1]
        cdef double* centred = &self.work[0]
        memset(mean, 0, (n_features + self.n_packed) * sizeof(double))
        self.moments[0] = items.n
        for i in range(items.n):
            x = &self.rows[items.at[i], 0]
            for d in range(n_features):
                mean[d] += x[d]
        for d in range(n_features):
            mean[d] /= items.n
        for i in range(items.n):
            x = &self.rows[items.at[i], 0]
            for d in range(n_features):
                centred[i * n_features + d] = x[d] - mean[d]
        tile_scatter(centred, items.n, n_features, mean + n_features)
        self.combine(stats, &self.moments[0])

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        combine_moments(stats, other, self.n_features, &self.work[0])
