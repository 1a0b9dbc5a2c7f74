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
scatter (packed) | log |S_n|, log c_n |S_n|^(-1/2), (nu + n + 1) / 2, rho, a bound, and for each
weight log p(w) h^(D/2) (G) and h (G); m (D), the factor of S_n (packed).
"""
cimport cython
from libc.math cimport INFINITY, NAN
from libc.math cimport M_PI as PI
from libc.math cimport exp, fabs, lgamma, log
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._gaussian cimport combine_moments, far_square, unpack_scale
from skdpm.mixture.likelihoods._gaussian_hyper cimport (
    fill_log_norm, labels_show, log_norm_at, log_step, own_size
)
from skdpm.mixture.likelihoods._tails cimport RowWeights

from skdpm.mixture.likelihoods._base import HyperSampler
from skdpm.mixture.likelihoods._gaussian import FullLaws

cdef double LOG_PI = log(PI)
cdef double LOG_1E100 = log(1e100)

cdef enum:
    # See _gaussian.
    LEARNING_ROWS = 40
    MOST_PERIOD = 10

    NONE = -1
    MANY = 64           # slots that are evaluated together
    MOST_WEIGHTS = 8
    FEW = 10
    COUNTS = 1          # place of the numbers of items with each weight
    # Cached terms of a row, behind its statistics.
    LOG_DET = 0
    LOG_PEAK = 1
    EXPONENT = 2
    PRECISION = 3       # rho
    LOG_BOUND = 4       # see `open_rest`
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
    void tile_log(double* x, Py_ssize_t n)
    void tile_exp(double* x, Py_ssize_t n)
    void tile_weigh(
        double rho, const double* w, const double* log_p, double half, Py_ssize_t n_weights,
        double* out
    )
    void tile_scale_mixtures(
        const double* squares, const double* exponents, const double** weighed, Py_ssize_t n,
        Py_ssize_t n_weights, double* shares, double* logs
    )


@cython.final
cdef class GaussianTailsModel(ClusterModel):
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
    cdef Py_ssize_t n_features      # D
    cdef Py_ssize_t n_packed        # D (D + 1) / 2
    cdef Py_ssize_t n_set           # numbers of a set of moments: 1 + D + D (D + 1) / 2
    cdef Py_ssize_t first_set       # place of the first one in a row
    cdef Py_ssize_t n_weights, n_sets   # G, ...
    cdef Py_ssize_t n_lanes             # weights with those that do not exist: see tiles.h
    cdef Py_ssize_t center          # place of m behind the statistics
    cdef Py_ssize_t first_law       # first hyperparameter of the law of the weights
    cdef bint diagonal
    cdef double log_n_features
    cdef const double* X
    cdef double* prior_mean         # (D,)
    cdef double* scale              # (n_packed,)
    cdef const double* log_norm
    cdef Py_ssize_t n_tabled, n_shared
    cdef double mean_precision, df
    cdef double* work               # (3 D + n_packed + n_set,)
    cdef double* own
    cdef Py_ssize_t pending_slot    # the row that still holds `pending_item`, or NONE
    cdef Py_ssize_t pending_item
    cdef Py_ssize_t pending_weight
    # Of the last item whose densities were summed over weights, in some slots:
    cdef Py_ssize_t n_last              # number of slots; 0 if rows have changed since
    cdef Py_ssize_t last[MANY]          # these slots
    cdef double squares[MANY]           # q
    cdef double exponents[MANY]
    cdef double peaks[MANY]             # log c_n |S_n|^(-1/2)
    cdef const double* weighed[MANY]    # log p(w) h^(D/2), then h
    cdef double shares[MANY * MOST_WEIGHTS]     # of the weights, up to a factor per slot
    cdef double own_weighed[2 * MOST_WEIGHTS]   # of the pending cluster without the item
    cdef double log_det_prior
    cdef object origin, spread, floor
    cdef const double[::1] origin_view
    cdef RowWeights weights
    cdef object _owners

    def __init__(
        self, data, tables, mean, double mean_precision, double df, scale, law, law_values
    ):
        cdef const double[:, ::1] X = data["X"]
        cdef const double[::1] log_norm = tables["log_norm"]
        cdef Py_ssize_t n_features = X.shape[1]
        self._owners = (X, log_norm)
        self.drifts = True
        self.n_samples = X.shape[0]
        self.n_features = n_features
        self.log_n_features = log(<double>n_features)
        self.bounds_rest = True
        self.n_packed = n_features * (n_features + 1) // 2
        self.n_set = 1 + n_features + self.n_packed
        self.n_max = tables["n_max"]
        self.X = &X[0, 0]
        self.log_norm = &log_norm[0]
        self.n_tabled = self.n_shared = log_norm.shape[0]
        self.origin = self.origin_view = tables["origin"]
        self.spread = tables["spread"]
        self.floor = tables["floor"]
        self.diagonal = scale.ndim == 1
        self.hyper_period = min(MOST_PERIOD, max(1, <Py_ssize_t>(
            LEARNING_ROWS * n_features / <double>self.n_max + 0.5
        )))
        self.pending_slot = self.pending_item = NONE
        self.weights = RowWeights(law, self.n_samples)
        self.n_weights = self.weights.n_weights
        self.n_lanes = self.weights.n_lanes
        self.n_sets = self.weights.n_sets
        self.first_set = COUNTS + self.n_weights
        self.center = WEIGHED + 2 * self.n_lanes
        self.work = <double*>malloc(
            (3 * n_features + self.n_packed + self.n_set) * sizeof(double)
        )
        self.prior_mean = <double*>malloc((n_features + self.n_packed) * sizeof(double))
        if self.work == NULL or self.prior_mean == NULL:
            raise MemoryError
        self.scale = self.prior_mean + n_features
        self.first_law = n_features + 2 + scale.size
        self.declare_hyperparameters(
            ("mean",) * n_features + ("mean_precision", "df") + ("scale",) * scale.size
            + law.parameters,
            np.concatenate([mean, [mean_precision, df], np.ravel(scale), law_values]),
        )
        self.allocate(
            self.first_set + self.n_sets * self.n_set,
            self.first_set + self.n_sets * self.n_set + self.center + n_features + self.n_packed,
        )
        self.take_hyperparameters()
        self.declare_incomplete(data["incomplete"])

    def __dealloc__(self):
        free(self.work)
        free(self.prior_mean)
        free(self.own)

    # Hyperparameters.

    cdef int take_hyperparameters(self) except -1:
        """Set the attributes that follow from `hyper`, and the empty row."""
        cdef Py_ssize_t d
        cdef double* cached = self.empty + self.n_stats
        cdef double* factor = cached + self.center + self.n_features
        for d in range(self.n_features):
            cached[self.center + d] = self.hyper[d] - self.origin_view[d]
            self.prior_mean[d] = cached[self.center + d]
        self.mean_precision = self.hyper[self.n_features]
        self.df = self.hyper[self.n_features + 1]
        self.weights.take([self.hyper[d] for d in range(self.first_law, self.n_hyper)])
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
        cdef double r = self.hyper[self.n_features]
        cdef double nu = self.hyper[self.n_features + 1]
        if not (r > 0.0 and nu > self.n_features - 1):
            raise ValueError("Gaussian.mean_precision or Gaussian.df is out of range")
        self.own = <double*>resized(self.own, size, sizeof(double))
        with nogil:
            fill_log_norm(self.own, size, r, nu, self.n_features)
        self.log_norm = self.own
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

    cdef inline double* set_of(self, double* stats, Py_ssize_t g) noexcept nogil:
        """The moments of the items with weight number g."""
        return stats + self.first_set + self.weights.sets[g] * self.n_set

    cdef inline void weigh(self, double rho, double* weighed) noexcept nogil:    # OUT (2 n_lanes,)
        """log p(w) h^(D/2) and h of each weight."""
        tile_weigh(
            rho, &self.weights.values[0], &self.weights.log_probabilities[0],
            0.5 * self.n_features, self.n_lanes, weighed
        )

    cdef bint finish(self, double* stats, bint positive_definite) noexcept nogil:
        """Set the cached terms that follow from the numbers of items and log |S_n|."""
        cdef Py_ssize_t g
        cdef double* cached = stats + self.n_stats
        self.n_last = 0
        cached[PRECISION] = self.mean_precision
        for g in range(self.n_weights):
            cached[PRECISION] += stats[COUNTS + g] * self.weights.values[g]
        cached[LOG_PEAK] = self.log_norm_of(stats[0]) - 0.5 * cached[LOG_DET]
        cached[EXPONENT] = 0.5 * (self.df + stats[0] + 1.0)
        cached[LOG_BOUND] = self.log_bound_of(cached[EXPONENT])
        self.weigh(cached[PRECISION], cached + WEIGHED)
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

    cdef void count(
        self, double* stats, const double* x, Py_ssize_t g, double sign
    ) noexcept nogil:
        """The statistics of an item of weight number g enter (sign = 1) or leave (-1)."""
        cdef Py_ssize_t d, e, k
        cdef Py_ssize_t n_features = self.n_features
        cdef double* moments = self.set_of(stats, g)
        cdef double* mean = moments + 1
        cdef double* scatter = mean + n_features
        cdef double* gap = self.work
        cdef double by
        cdef double before = moments[0]
        stats[0] += sign
        stats[COUNTS + g] += sign
        # The mass from the numbers of items, without rounding errors that add up.
        moments[0] = 0.0
        for k in range(self.n_weights):
            if self.weights.sets[k] == self.weights.sets[g]:
                moments[0] += stats[COUNTS + k] * self.weights.relative[k]
        if not moments[0] > 0.0:
            memset(moments, 0, self.n_set * sizeof(double))
            return
        by = sign * self.weights.relative[g] / moments[0]
        for d in range(n_features):
            gap[d] = x[d] - mean[d]
            mean[d] += by * gap[d]
        by *= before
        for d in range(n_features):
            for e in range(d, n_features):
                scatter[e - d] += by * gap[d] * gap[e]
            scatter += n_features - d

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
        self.count(stats, x, g, sign)
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
        self.count(stats, x, old, -1.0)
        self.count(stats, x, new, 1.0)
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
        cdef Py_ssize_t k
        cdef double* stats = row(self, dst)
        cdef double* other = row(self, src)
        self.settle()
        if other[0] == 0.0:
            return
        for k in range(self.first_set):
            stats[k] += other[k]
        for k in range(self.n_sets):
            combine_moments(
                stats + self.first_set + k * self.n_set, other + self.first_set + k * self.n_set,
                self.n_features, self.work
            )
        self.factorize(row(self, dst))

    # Marginal likelihoods.

    cdef double log_evidence(
        self, const double* stats, double r, double rho, double nu, double log_det_prior,
        double log_det
    ) noexcept nogil:
        """log p(items | weights), up to the powers of the weights."""
        cdef Py_ssize_t d
        cdef double n = stats[0]
        cdef double total = 0.5 * (
            nu * log_det_prior - (nu + n) * log_det
            + self.n_features * (log(r) - log(rho) - n * LOG_PI)
        )
        for d in range(self.n_features):
            total += lgamma(0.5 * (nu + n - d)) - lgamma(0.5 * (nu - d))
        return total

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t g
        cdef const double* stats = row(self, slot)
        cdef double total = 0.0
        self.settle()
        for g in range(self.n_weights):
            total += stats[COUNTS + g] * (
                self.weights.log_probabilities[g]
                + 0.5 * self.n_features * self.weights.log_values[g]
            )
        return total + self.log_evidence(
            stats, self.mean_precision, stats[self.n_stats + PRECISION], self.df,
            self.log_det_prior, stats[self.n_stats + LOG_DET]
        )

    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil:
        """Of hyperparameters of the law of the weights, only the factors of sets of moments, which
        are the last of them, may differ from the current ones."""
        cdef Py_ssize_t d, g
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double r = hyper[n_features]
        cdef double* center = self.work + n_features
        cdef double* prior_mean = self.work + 2 * n_features
        cdef double* factor = self.work + 3 * n_features
        cdef double factors[MOST_WEIGHTS]
        cdef double log_det, log_det_prior, value
        cdef double rho = r
        cdef double total = 0.0
        if stats[0] == 0.0:
            return 0.0
        for g in range(self.n_sets):
            factors[g] = 1.0 if g == 0 else 1.0 / hyper[self.n_hyper - 1]
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
            value = self.weights.relative[g] * factors[self.weights.sets[g]]
            rho += stats[COUNTS + g] * value
            total += stats[COUNTS + g] * (
                self.weights.log_probabilities[g] + 0.5 * n_features * log(value)
            )
        return total + self.log_evidence(
            stats, r, rho, hyper[n_features + 1], log_det_prior, log_det
        )

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """Draw hyperparameters given the partition, the weights of the rows and the data. Those of
        the law of the weights stay as long as the weights are those of the start.

        Parameters, Returns, Raises: see `ClusterModel`.
        """
        law = self.weights.law
        stats = self.dump(slots)
        of_law = {name: priors[name] for name in law.parameters if name in priors}
        if of_law and self.weights.drawn and len(stats):
            values = self.named_hyperparameters()
            parameters = {name: float(values[name][0]) for name in law.parameters}
            law.resample(
                stats[:, COUNTS : self.first_set].sum(axis=0), parameters, of_law,
                lambda name, prior: self.slice_hyperparameter(slots, name, prior, bit_generator),
                np.random.Generator(bit_generator),
            )
            for name, value in parameters.items():
                values[name] = [value]
            self.set_hyperparameters(np.concatenate(list(values.values())))
        rest = {name: prior for name, prior in priors.items() if name not in of_law}
        if not rest:
            return self.hyperparameters()
        values = self.named_hyperparameters()
        scale = values["scale"]
        if not self.diagonal:
            scale = scale.reshape(self.n_features, self.n_features)
        moments = law.moments(stats, self.n_features, np.asarray(self.weights.factors))
        masses = moments[:, 0].copy()
        moments[:, 0] = stats[:, 0]
        laws = FullLaws(
            rest, values, self.spread, self.origin, self.floor, moments, masses, scale
        )
        return laws.resample(self, bit_generator)

    def slice_hyperparameter(self, slots, name, prior, bit_generator):
        """Draw a hyperparameter, a number, by a slice step: see `HyperSampler`."""
        sampler = HyperSampler(self, slots)
        return sampler.draw(self.hyper_names.index(name), prior, bit_generator)

    # Weights of rows.

    def complete(self, values=None):
        self.settle()
        self.weights.complete(values)

    def completion(self):
        return self.weights.completion()

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        self.weights.is_open[i] = 1
        self.n_last = 0

    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil:
        self.weights.is_open[i] = 0

    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        cdef Py_ssize_t g
        cdef Py_ssize_t k = 0
        cdef const double* shares
        cdef double ignored
        cdef double total = 0.0
        while k < self.n_last and self.last[k] != slot:
            k += 1
        if k >= self.n_last:
            k = 0
            self.log_sum_some(&slot, 1, i, &ignored)
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

    cdef double open_rest(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t own, Py_ssize_t i,
        const double* log_prior                                     # IN (n_slots,)
    ) noexcept nogil:
        """The sum over weights p(w) h^(D/2) (1 + q h)^-exponent is at most its largest term for
        any h, so one logarithm and one exponential serve all weights of a cluster."""
        cdef Py_ssize_t _part, first, k, m, n
        cdef Py_ssize_t slot = slots[own]
        cdef const double* cached
        cdef double log_own, square
        cdef double total = 0.0
        cdef double half = 0.5 * self.n_features
        cdef double logs[MANY]
        if self.n_lanes == 2 and n_slots < FEW:
            return INFINITY     # bounds would save nothing
        if self.pending_item != i:
            self.settle()
        self.log_sum_some(&slot, 1, i, &log_own)
        log_own += log_prior[own]
        if not -1e300 < log_own < 1e300:
            return INFINITY
        for _part in range((n_slots + MANY - 1) // MANY):
            first = _part * MANY
            n = min(n_slots - first, <Py_ssize_t>MANY)
            for k in range(n):
                cached = row(self, slots[first + k]) + self.n_stats
                square = gap_squared(
                    cached + self.center + self.n_features, self.n_features,
                    self.X + i * self.n_features, cached + self.center, self.work
                )
                # A smaller square has a larger bound; NaN has none.
                logs[k] = 1e-300 if square < 1e-300 else 1e300 if square > 1e300 else square
            m = (n + 7) // 8 * 8
            for k in range(n, m):
                logs[k] = 1.0
            tile_log(logs, m)
            for k in range(n):
                cached = row(self, slots[first + k]) + self.n_stats
                logs[k] = cached[LOG_PEAK] + cached[LOG_BOUND] - half * logs[k]
                logs[k] += log_prior[first + k] - log_own
                logs[k] += 1e-10 * (1.0 + fabs(log_own) + fabs(cached[LOG_PEAK]))
                if first + k == own:
                    logs[k] = -INFINITY
                if not logs[k] <= 0.0:
                    return INFINITY
            for k in range(n, m):
                logs[k] = -INFINITY
            tile_exp(logs, m)
            for k in range(n):
                total += logs[k]
        return total

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
                self.weigh(rho, self.own_weighed)
                self.weighed[k] = self.own_weighed
                return
            # The item makes up nearly all of the scatter in its direction: remove it at once.
            self.settle()
            self.squares[k] = gap_squared(
                factor, self.n_features, x, cached + self.center, self.work
            )
        self.peaks[k] = cached[LOG_PEAK]
        self.exponents[k] = cached[EXPONENT]
        self.weighed[k] = cached + WEIGHED

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i, its weight | items of each slot); the sum over weights if that of the item is
        open."""
        cdef Py_ssize_t m
        if self.pending_slot != NONE and self.pending_item != i:
            self.settle()
        while n_slots > 0:
            m = min(n_slots, <Py_ssize_t>MANY)
            if self.weights.is_open[i]:
                self.log_sum_some(slots, m, i, out)
            else:
                self.log_predictive_some(slots, m, i, out)
            slots += m
            out += m
            n_slots -= m

    cdef inline void log_predictive_some(
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

    cdef inline void log_sum_some(
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
