# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with heavy tails: the prior and the symbols of _gaussian, and

    x_i | mu, Sigma, w_i ~ N(mu, Sigma / w_i),

where each weight w_i is one of G numbers, with probabilities p_g (see _tails). With n items of a
cluster, W = sum w_i, x_bar = sum w_i x_i / W, C = sum w_i (x_i - x_bar)(x_i - x_bar)', and
rho = r + W,

    m   = (r u + W x_bar) / rho,    S_n = S + C + (r W / rho) (x_bar - u)(x_bar - u)',
    p(x_i, w_i of the items) = prod_i p(w_i) w_i^(D/2) times the marginal likelihood of _gaussian
                               with rho for r + n where that is a precision of the mean,
    p(x, w | cluster) = p(w) c_n |S_n|^(-1/2) h^(D/2) (1 + q h)^(-(nu + n + 1) / 2),
    h   = rho w / (rho + w),    q = (x - m)' S_n^-1 (x - m),
    c_n = pi^(-D/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n + 1 - D) / 2).

So q, the slow part, is the same for all weights. Rows with some weights may have moments of their
own, multiplied by a factor that is a hyperparameter: W, x_bar and C are then those of all sets of
moments together. So statistics do not depend on hyperparameters.

A removal is deferred, as in _gaussian. Let x have the weight w and be among the items, and let
rho' = rho - w be without it. Then q = p / (1 - w rho' p / rho), with p = q_with (rho / rho')^2, is
that without it, and |S_n| without it is |S_n| (1 - w rho' p / rho). An item that comes back with
another weight changes S_n by one rank.

Hyperparameters: those of _gaussian, then those of the law of the weights.

Row: n, number of items with each weight (G), then for each set of moments its mass, mean (D) and
scatter (packed) | log c_n |S_n|^(-1/2), a bound, log |S_n|, (nu + n + 1) / 2, rho, and for each
weight log p(w) h^(D/2) (G) and h (G); m (D), the factor of S_n (packed).
"""
cimport cython
from libc.math cimport INFINITY, NAN
from libc.math cimport exp, log
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, row
from skdpm.mixture.likelihoods.gaussian._gaussian cimport far_square, log_evidence, unpack_scale
from skdpm.mixture.likelihoods.gaussian._gaussian_hyper cimport (
    labels_show, log_norm_at, log_step, own_log_norm, own_size
)
from skdpm.mixture.likelihoods.gaussian._tails cimport (
    BOUND, COUNTS, MANY, MOST_WEIGHTS, PEAK, ScatterModel, WeighedModel, weigh
)

from skdpm.mixture.likelihoods.gaussian._gaussian import FullLaws

cdef double LOG_1E100 = log(1e100)

cdef enum:
    # See _gaussian.
    LEARNING_ROWS = 40
    MOST_PERIOD = 10

    NONE = -1
    # Cached terms of a row, behind its statistics.
    LOG_DET = 2         # after PEAK and BOUND
    EXPONENT = 3
    PRECISION = 4       # rho
    WEIGHED = 5         # log p(w) h^(D/2), then h, each (n_lanes,)


cdef extern from "cholesky.h" nogil:
    bint cholesky(double* packed, Py_ssize_t n, double* log_det)
    bint cholesky_above(
        double* packed, Py_ssize_t n, const double* least, double* log_det
    )
    bint cholesky_update(
        double* packed, Py_ssize_t n, double* vector, double alpha, double* log_det
    )
    double gap_squared(
        const double* packed, Py_ssize_t n, const double* x, const double* c, double* vector
    )


cdef extern from "tiles.h" nogil:
    double log_positive(double x)
    void tile_scale_mixtures(
        const double* squares, const double* exponents, const double** weighed, Py_ssize_t n,
        Py_ssize_t n_weights, double* shares, double* logs
    )


@cython.final
cdef class GaussianTailsModel(ScatterModel):
    """Kernel of Gaussian clusters with full covariances and heavy tails.

    Parameters
    ----------
    data, tables, mean, mean_precision, df, scale
        See `GaussianModel`. No entry is missing.
    law : Tails
        Law of the weights.
    law_values : ndarray of shape (n_law_values,)
        Its parameters.
    """
    cdef Py_ssize_t center          # place of m behind the statistics
    cdef bint diagonal
    cdef double log_n_features
    cdef double* scale              # (n_packed,)
    cdef const double* log_norm
    cdef Py_ssize_t n_tabled, n_shared
    cdef double* work               # (3 D + n_packed + n_set,)
    cdef double* own
    cdef Py_ssize_t pending_slot    # the row that still holds `pending_item`, or NONE
    cdef Py_ssize_t pending_item
    cdef Py_ssize_t pending_weight
    # Of the last item, in some slots:
    cdef double squares[MANY]           # q
    cdef double exponents[MANY]
    cdef double peaks[MANY]             # log c_n |S_n|^(-1/2)
    cdef const double* weighed[MANY]    # log p(w) h^(D/2), then h
    cdef double own_weighed[2 * MOST_WEIGHTS]   # of the pending cluster without the item
    cdef double log_det_prior

    def __init__(
        self, data, tables, mean, double mean_precision, double df, scale, law, law_values
    ):
        cdef const double[::1] log_norm = tables["log_norm"]
        cdef Py_ssize_t n_features
        self.begin(data, tables, mean, mean_precision, df, scale, law, law_values)
        self._owners = (data["X"], log_norm)
        n_features = self.n_features
        self.log_n_features = log(<double>n_features)
        self.n_packed = n_features * (n_features + 1) // 2
        self.n_set = 1 + n_features + self.n_packed
        self.log_norm = &log_norm[0]
        self.n_tabled = self.n_shared = log_norm.shape[0]
        self.diagonal = scale.ndim == 1
        self.hyper_period = min(MOST_PERIOD, max(1, <Py_ssize_t>(
            LEARNING_ROWS * n_features / <double>self.n_max + 0.5
        )))
        self.pending_slot = self.pending_item = NONE
        self.center = WEIGHED + 2 * self.n_lanes
        self.work = <double*>malloc(
            (3 * n_features + self.n_packed + self.n_set) * sizeof(double)
        )
        self.scale = <double*>malloc(self.n_packed * sizeof(double))
        if self.work == NULL or self.scale == NULL:
            raise MemoryError
        self.allocate(
            self.first_set + self.n_sets * self.n_set,
            self.first_set + self.n_sets * self.n_set + self.center + n_features + self.n_packed,
        )
        self.take_hyperparameters()
        self.declare_incomplete(data["incomplete"])

    def __dealloc__(self):
        free(self.work)
        free(self.scale)
        free(self.own)

    # Hyperparameters.

    cdef int take_hyperparameters(self) except -1:
        """Set the attributes that follow from `hyper`, and the empty row."""
        cdef Py_ssize_t d
        cdef double* cached = self.empty + self.n_stats
        cdef double* factor = cached + self.center + self.n_features
        self.take_prior()
        for d in range(self.n_features):
            cached[self.center + d] = self.prior_mean[d]
        unpack_scale(
            self.hyper + self.n_features + 2, self.diagonal, self.n_features, self.scale
        )
        memcpy(factor, self.scale, self.n_packed * sizeof(double))
        if not self.finish(self.empty, cholesky(factor, self.n_features, cached + LOG_DET)):
            raise ValueError("Gaussian.scale must be positive definite")
        self.log_det_prior = cached[LOG_DET]
        return 0

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t size = own_size(self.n_max, self.n_shared, self.n_samples)
        self.log_norm = self.own = own_log_norm(
            self.own, size, self.hyper[self.n_features], self.hyper[self.n_features + 1],
            self.n_features
        )
        self.n_tabled = size
        return self.take_hyperparameters()

    cdef inline double log_norm_of(self, double n) noexcept nogil:
        """log c_n. The table has the factor (rho / (rho + 1))^(D/2), with rho = r + n."""
        cdef double value
        if n < self.n_tabled:
            value = self.log_norm[<Py_ssize_t>n]
        else:
            value = log_norm_at(n, self.mean_precision, self.df, self.n_features)
        return value + 0.5 * self.n_features * log_step(self.mean_precision + n, 1.0)

    # Rows.

    cdef bint finish(self, double* stats, bint positive_definite) noexcept nogil:
        """Set the cached terms that follow from the numbers of items and log |S_n|."""
        cdef double* cached = stats + self.n_stats
        self.n_last = 0
        cached[PRECISION] = self.rho_of(stats)
        cached[PEAK] = self.log_norm_of(stats[0]) - 0.5 * cached[LOG_DET]
        cached[EXPONENT] = 0.5 * (self.df + stats[0] + 1.0)
        cached[BOUND] = self.log_bound_of(cached[EXPONENT])
        weigh(self, cached[PRECISION], cached + WEIGHED)
        return positive_definite

    cdef inline double log_bound_of(self, double exponent) noexcept nogil:
        """log of the largest h^(D/2) (1 + q h)^-exponent for any h > 0, times q^(D/2): at
        q h = D / (2 exponent - D)."""
        cdef double rest = 2.0 * exponent - self.n_features
        return (
            0.5 * self.n_features * (self.log_n_features - log_positive(rest))
            - exponent * log_step(rest, self.n_features)
        )

    cdef bint factor_at(
        self, const double* stats, const double* factors, double r,
        const double* prior_mean, const double* least,
        double* center, double* factor, double* log_det     # INOUT factor: S; OUT the others
    ) noexcept nogil:
        """Factor S_n from statistics, with these factors of the sets of moments: O(D^3). False if
        rounding leaves no factor."""
        cdef Py_ssize_t d, k, t
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set
        cdef double* gap = self.work
        cdef double mass, share
        cdef double total = 0.0
        cdef bint good
        for k in range(self.n_sets):
            if moments[0] > 0.0:
                for t in range(self.n_packed):
                    factor[t] += factors[k] * moments[1 + n_features + t]
            moments += self.n_set
        good = cholesky_above(factor, n_features, least, log_det)
        moments = stats + self.first_set
        for k in range(self.n_sets):
            mass = factors[k] * moments[0]
            if mass > 0.0:
                share = mass / (total + mass)
                for d in range(n_features):
                    if total == 0.0:
                        center[d] = moments[1 + d]
                    gap[d] = moments[1 + d] - center[d]
                    center[d] += share * gap[d]
                if total > 0.0:
                    good = good and cholesky_update(
                        factor, n_features, gap, share * total, log_det
                    )
                total += mass
            moments += self.n_set
        share = total / (r + total)
        for d in range(n_features):
            if total == 0.0:
                center[d] = prior_mean[d]
            gap[d] = center[d] - prior_mean[d]
            center[d] = prior_mean[d] + share * gap[d]
        return good and cholesky_update(factor, n_features, gap, share * r, log_det)

    cdef bint factorize(self, double* stats) noexcept nogil:
        """Compute the cached terms from the statistics. False, and a determinant of NaN, if
        rounding leaves no factor."""
        cdef double* cached = stats + self.n_stats
        cdef double* factor = cached + self.center + self.n_features
        cdef bint good
        memcpy(factor, self.scale, self.n_packed * sizeof(double))
        good = self.factor_at(
            stats, &self.weights.factors[0], self.mean_precision, self.prior_mean,
            self.empty + self.n_stats + self.center + self.n_features,
            cached + self.center, factor, cached + LOG_DET
        )
        if not good:
            cached[LOG_DET] = NAN
        return self.finish(stats, good)

    cdef void recover(self, Py_ssize_t slot) noexcept nogil:
        """Rounding has spoilt the factor of a row: start from its items, if the labels show them,
        else from its statistics. If that fails, the determinant is NaN, and samplers refuse it."""
        cdef Py_ssize_t i
        cdef double* stats = row(self, slot)
        cdef bint good = labels_show(self, slot, stats[0])
        if good:
            memcpy(stats, self.empty, self.width * sizeof(double))
            for i in range(self.n_samples):
                if self.labels[i] == slot:
                    good &= self.shift(
                        stats, self.X + i * self.n_features, self.weights.chosen[i], 1.0
                    )
        if not good:
            self.factorize(stats)

    cdef bint shift(
        self, double* stats, const double* x, Py_ssize_t g, double sign
    ) noexcept nogil:
        """Item x of weight number g enters (sign = 1) or leaves (-1): all terms of the row,
        O(D^2). False if the factor is no longer positive definite."""
        cdef Py_ssize_t d
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + self.center
        cdef double* gap = self.work
        cdef double before = cached[PRECISION]
        cdef double by = sign * self.weights.values[g]
        cdef bint good
        self.count(stats, x, g, sign, gap)
        by /= before + by
        for d in range(self.n_features):
            gap[d] = x[d] - center[d]
            center[d] += by * gap[d]
        good = cholesky_update(
            center + self.n_features, self.n_features, gap, by * before, cached + LOG_DET
        )
        return self.finish(stats, good)

    cdef bint reweigh(
        self, double* stats, const double* x, Py_ssize_t old, Py_ssize_t new
    ) noexcept nogil:
        """Item x of the row changes its weight: as if it left and entered, but S_n changes by one
        rank. With rho and m without the item, it adds (rho w / (rho + w)) (x - m)(x - m)'."""
        cdef Py_ssize_t d
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + self.center
        cdef double* gap = self.work
        cdef double before = self.weights.values[old]
        cdef double after = self.weights.values[new]
        cdef double rho = cached[PRECISION] - before
        cdef bint good
        self.count(stats, x, old, -1.0, gap)
        self.count(stats, x, new, 1.0, gap)
        for d in range(self.n_features):
            gap[d] = (x[d] - center[d]) * ((rho + before) / rho)
            center[d] = x[d] - gap[d] * (rho / (rho + after))
        good = cholesky_update(
            center + self.n_features, self.n_features, gap,
            rho * (after / (rho + after) - before / (rho + before)), cached + LOG_DET
        )
        return self.finish(stats, good)

    cdef void settle(self) noexcept nogil:
        """Do the deferred removal."""
        cdef Py_ssize_t slot = self.pending_slot
        cdef Py_ssize_t i = self.pending_item
        if slot == NONE:
            return
        self.pending_slot = NONE
        if not self.shift(
            row(self, slot), self.X + i * self.n_features, self.pending_weight, -1.0
        ):
            self.recover(slot)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t g = self.weights.chosen[i]
        cdef const double* x = self.X + i * self.n_features
        if slot == self.pending_slot and i == self.pending_item:
            self.pending_slot = NONE
            if g != self.pending_weight and not self.reweigh(
                row(self, slot), x, self.pending_weight, g
            ):
                self.recover(slot)
            return
        self.settle()
        if not self.shift(row(self, slot), x, g, 1.0):
            self.recover(slot)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.settle()
        if row(self, slot)[0] == 1.0:
            memcpy(row(self, slot), self.empty, self.width * sizeof(double))
        else:
            self.pending_slot = slot
            self.pending_item = i
            self.pending_weight = self.weights.chosen[i]

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        if slot == self.pending_slot:
            self.pending_slot = NONE
        ClusterModel.release(self, slot)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        if row(self, slot)[0] == 0.0:
            self.reset(slot)  # to the bit, as in chains that continue
        else:
            self.factorize(row(self, slot))

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Statistics combine, and the factor anew: O(D^3)."""
        cdef double* stats = row(self, dst)
        cdef double* other = row(self, src)
        self.settle()
        if other[0] == 0.0:
            return
        self.add_moments(stats, other, self.work)
        self.factorize(stats)

    # Marginal likelihoods.

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        self.settle()
        return self.log_law(
            stats + COUNTS, stats + COUNTS, self.n_features, &self.weights.factors[0]
        ) + log_evidence(
            stats[0], self.mean_precision, stats[self.n_stats + PRECISION], self.df,
            self.log_det_prior, stats[self.n_stats + LOG_DET], self.n_features
        )

    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil:
        cdef Py_ssize_t d, g
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double r = hyper[n_features]
        cdef double* center = self.work + n_features
        cdef double* prior_mean = self.work + 2 * n_features
        cdef double* factor = self.work + 3 * n_features
        cdef double factors[MOST_WEIGHTS]
        cdef double log_det, log_det_prior
        cdef double rho = r
        if stats[0] == 0.0:
            return 0.0
        self.take_factors(hyper, factors)
        unpack_scale(hyper + n_features + 2, self.diagonal, n_features, factor)
        if not cholesky(factor, n_features, &log_det_prior):
            return NAN
        unpack_scale(hyper + n_features + 2, self.diagonal, n_features, factor)
        for d in range(n_features):
            prior_mean[d] = hyper[d] - self.origin_view[d]
        if not self.factor_at(
            stats, factors, r, prior_mean, NULL, center, factor, &log_det
        ):
            return NAN
        for g in range(self.n_weights):
            rho += (
                stats[COUNTS + g] * self.weights.relative[g] * factors[self.weights.sets[g]]
            )
        return log_evidence(
            stats[0], r, rho, hyper[n_features + 1], log_det_prior, log_det, n_features
        ) + self.log_law(stats + COUNTS, stats + COUNTS, n_features, factors)

    def gaussian_laws(self, priors, values, stats, factors, bit_generator):
        scale = values["scale"]
        if not self.diagonal:
            scale = scale.reshape(self.n_features, self.n_features)
        moments = self.weights.law.moments(stats, self.n_features, factors)
        masses = moments[:, 0].copy()
        moments[:, 0] = stats[:, 0]
        return FullLaws(
            priors, values, self.spread, self.origin, self.floor, moments, masses, scale
        )

    # Densities.

    cdef double log_far_square(self, const double* x, const double* cached) noexcept nogil:
        """log q for a row so far away that q overflows."""
        cdef Py_ssize_t n_steps
        cdef const double* center = cached + self.center
        cdef double q = far_square(
            x, center, center + self.n_features, self.n_features, self.work, &n_steps
        )
        return log(q) + 2.0 * n_steps * LOG_1E100

    cdef inline void read_terms(self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        """The terms of the density of item i, which is in no cluster, in the cluster of a slot:
        entries k of `squares`, ..."""
        cdef const double* x = self.X + i * self.n_features
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* factor = cached + self.center + self.n_features
        cdef double rest, rho, with_item
        self.squares[k] = gap_squared(
            factor, self.n_features, x, cached + self.center, self.work
        )
        if slot == self.pending_slot:
            with_item = cached[PRECISION]
            rho = with_item - self.weights.values[self.pending_weight]
            # w rho' p / rho = w (rho / rho') q.
            rest = 1.0 - self.squares[k] * (
                self.weights.values[self.pending_weight] * with_item / rho
            )
            if rest > 1e-6:
                self.squares[k] *= with_item / rho * (with_item / rho) / rest
                self.peaks[k] = (
                    self.log_norm_of(row(self, slot)[0] - 1.0)
                    - 0.5 * (cached[LOG_DET] + log_positive(rest))
                )
                self.exponents[k] = cached[EXPONENT] - 0.5
                weigh(self, rho, self.own_weighed)
                self.weighed[k] = self.own_weighed
                return
            # The item makes up nearly all of the scatter in its direction: remove it at once.
            self.settle()
            self.squares[k] = gap_squared(
                factor, self.n_features, x, cached + self.center, self.work
            )
        self.peaks[k] = cached[PEAK]
        self.exponents[k] = cached[EXPONENT]
        self.weighed[k] = cached + WEIGHED

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """q. The terms are h^(D/2) (1 + q h)^-exponent up to factors without h."""
        cdef const double* cached = row(self, slot) + self.n_stats
        return gap_squared(
            cached + self.center + self.n_features, self.n_features,
            self.X + i * self.n_features, cached + self.center, self.work
        )

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        if self.pending_slot != NONE and self.pending_item != i:
            self.settle()
        WeighedModel.log_predictive_many(self, slots, n_slots, i, out)

    cdef void log_predictive_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """The same for at most MANY slots, given the weight of the item."""
        cdef Py_ssize_t k
        cdef Py_ssize_t g = self.weights.chosen[i]
        cdef double tail
        self.n_last = 0
        for k in range(n_slots):
            self.read_terms(slots[k], i, k)
            if self.squares[k] < 1e300:
                tail = log_positive(1.0 + self.squares[k] * self.weighed[k][self.n_lanes + g])
            else:
                tail = self.log_far_square(
                    self.X + i * self.n_features, row(self, slots[k]) + self.n_stats
                ) + log(self.weighed[k][self.n_lanes + g])
            out[k] = self.peaks[k] + self.weighed[k][g] - self.exponents[k] * tail

    cdef void log_sum_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """The same for at most MANY slots, summed over weights."""
        cdef Py_ssize_t k
        cdef double logs[MANY]
        for k in range(n_slots):
            self.read_terms(slots[k], i, k)
            self.last[k] = slots[k]
        tile_scale_mixtures(
            self.squares, self.exponents, self.weighed, n_slots, self.n_lanes, self.shares, logs
        )
        for k in range(n_slots):
            if not self.squares[k] < 1e300:
                logs[k] = self.log_sum_far(slots[k], i, k)
            out[k] = self.peaks[k] + logs[k]
        self.n_last = n_slots

    cdef double log_sum_far(self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        """`tile_scale_mixtures` of a row so far away that q overflows."""
        cdef Py_ssize_t g
        cdef double* shares = self.shares + k * self.n_lanes
        cdef double top = -INFINITY
        cdef double total = 0.0
        cdef double log_square = self.log_far_square(
            self.X + i * self.n_features, row(self, slot) + self.n_stats
        )
        for g in range(self.n_lanes):
            shares[g] = self.weighed[k][g] - self.exponents[k] * (
                log_square + log(self.weighed[k][self.n_lanes + g])
            )
            top = shares[g] if shares[g] > top else top
        for g in range(self.n_lanes):
            shares[g] = exp(shares[g] - top)
            total += shares[g]
        return top + log(total)
