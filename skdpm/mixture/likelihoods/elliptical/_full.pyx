# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with a normal-inverse-Wishart prior: Murphy (2007), section 9.

    Sigma ~ IW(nu, S),  mu | Sigma ~ N(u, Sigma / r),  x | mu, Sigma ~ N(mu, Sigma).

With n items, mean x_bar and scatter C = sum (x - x_bar)(x - x_bar)', and rho = r + n,

    m   = (r u + n x_bar) / rho,    S_n = S + C + (r n / rho) (x_bar - u)(x_bar - u)',
    p(x | cluster) = c_n |S_n|^(-1/2) (1 + q rho / (rho + 1))^(-(nu + n + 1) / 2),
    q   = (x - m)' S_n^-1 (x - m),
    c_n = pi^(-D/2) (rho / (rho + 1))^(D/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n + 1 - D) / 2).

The kernel keeps the Cholesky factor of S_n = L D L', which changes by one rank per item. Rows and
statistics, and u below, are relative to an origin (u itself if that is fixed). A factor that is
computed anew is that of S + C, and the terms of means follow by updates of one rank: in a sum with
them, S + C would lose its digits as soon as a cluster is far from u on the scale of S.

A removal is deferred: an item that leaves a cluster mostly comes back at once, and then nothing is
rounded. In between, its density given the others follows from the factor with it. With
h = q rho / (rho - 1),

    p(x | cluster without x) = c_{n-1} |S_n|^(-1/2) (1 - h)^((nu + n - 1) / 2).

With m entries missing (see _gaps) the other entries have density

    c_n (pi (rho + 1) / rho)^(m/2) Gamma((nu + n + 1 - m) / 2) / Gamma((nu + n + 1) / 2)
        |S_BB|^(-1/2) (1 + q_B rho / (rho + 1))^(-(nu + n + 1 - m) / 2),

and the missing ones given these are t distributed: N(E(x_A | x_B), s^2 M^-1) with
s^2 = (q_B + (rho + 1) / rho) / chi^2 of nu + n + 1 - m degrees of freedom.

With weights (see _elliptical) the same holds with W for n in rho and x_bar, h for rho / (rho + 1),
and

    p(x, w | cluster) = p(w) c_n |S_n|^(-1/2) h^(D/2) (1 + q h)^(-(nu + n + 1) / 2),
    c_n = pi^(-D/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n + 1 - D) / 2).

Let x have the weight w and be among the items, and let rho' = rho - w be without it. Then q = p /
(1 - w rho' p / rho), with p = q_with (rho / rho')^2, is that without it, and |S_n| without it is
|S_n| (1 - w rho' p / rho). An item that comes back with another weight changes S_n by one rank.

Hyperparameters: u (D), r, nu, S (its diagonal, or all of it by rows), those of the weights.

`find_near` knows q of all clusters: that of a row whose turn comes is computed with those of the
STRIP - 1 rows that follow it, the block, which are side by side in the registers of the processor.
These numbers hold until the row of the cluster changes; then they are computed again for the next
few rows. Items with gaps use none. `settle` ends the block: other code writes rows only after it.

A set of moments: mass, mean (D), scatter (packed). Terms: log c_n |S_n|^(-1/2), without weights
times h^(D/2); log |S_n|, rho / (rho + 1), (nu + n + 1) / 2, m (D), the factor (packed, by columns,
1 / D on the diagonal).
"""
cimport cython
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, M_PI as PI, exp, fabs, lgamma, log, log1p, sqrt
from libc.string cimport memcmp, memcpy, memmove, memset

import numpy as np

from skdpm._core._cholesky cimport (
    add_square, cholesky, cholesky_above, cholesky_update, gap_squared, solve_squared
)
from skdpm._core._culling cimport ABOVE, BELOW, SLACK
from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, log_gamma_variate, random_standard_normal
from skdpm._core._tiles cimport tile_exp, tile_log
from skdpm._hyperpriors cimport GammaDensity
from skdpm.mixture.likelihoods.contract._base cimport (
    STRIP, ClusterModel, Indices, as_indices, read_row, row,
)
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    COUNTS, MANY, MOST_WEIGHTS, NONE, PEAK, PRECISION, WEIGHED, EllipticalModel,
    ParametricElliptical, log_positive, tile_keyed_moments, tile_mixtures
)
from skdpm.mixture.likelihoods.elliptical._hyper cimport GaussianLaws, log_step
from skdpm.mixture.likelihoods.elliptical._hyper import packed_places
from skdpm.mixture.likelihoods.contract._parametric cimport LD, TILE, ParametricModel, tile_gather

cdef double LOG_PI = log(PI)
cdef double FAR_UNIT = 1e-200      # of distances whose squares overflow

cdef enum:
    # Learning costs a sweep over about 10 D rows, and should take less than a quarter of a sweep.
    LEARNING_ROWS = 40  # times D
    MOST_PERIOD = 10

    N_NORMS = 512       # of rows with gaps
    # With fewer columns or clusters there are no blocks.
    FEWEST_COLUMNS = 4
    FEWEST_CLUSTERS = 6
    AGAIN = 8           # rows for which a cluster that has changed is evaluated again
    # Cached terms of a row, behind its statistics and after PEAK.
    LOG_DET = 1
    SHRINKAGE = 2
    EXPONENT = 3
    CENTER = 4


cdef extern from "tiles.h" nogil:
    void tile_scale_mixtures(
        const double* squares, const double* exponents, const double** weighed, Py_ssize_t n,
        Py_ssize_t n_weights, double* shares, double* logs
    )
    void tile_gaussian_columns(
        const double* x, Py_ssize_t ld, Py_ssize_t n, Py_ssize_t n_features, const double* w,
        const double* c, double top, double* out
    )
    void tile_tails(
        const double* x, Py_ssize_t n, Py_ssize_t n_features, const double* packed,
        const double* c, double by, double* z, double* out
    )


cdef inline double log_evidence(
    double n, double r, double rho, double nu, double log_det_prior, double log_det,
    Py_ssize_t n_features
) noexcept nogil:
    """log p(n items), Murphy (2007), eq. 266; of items with weights, up to the powers of these."""
    cdef double total = 0.5 * (
        nu * log_det_prior - (nu + n) * log_det + n_features * (log(r) - log(rho) - n * log(PI))
    )
    for d in range(n_features):
        total += lgamma(0.5 * (nu + n - d)) - lgamma(0.5 * (nu - d))
    return total


cdef inline void substitute_box(
    const double* factor, Py_ssize_t n_features, const double* center,
    const double* box,              # (2 D,)
    double* z, double* r            # OUT (D,) each
) noexcept nogil:
    """z = L^-1 (c - m) of the box's centre c, and the largest change r of each z_d from there to a
    point of the box: r_d = h_d + sum_{e < d} |L_de| r_e, by forward substitution."""
    for d in range(n_features):
        z[d] = box[d] - center[d]
        r[d] = box[n_features + d]
    for d in range(n_features):
        for i in range(1, n_features - d):
            z[d + i] -= z[d] * factor[i]
            r[d + i] += r[d] * fabs(factor[i])
        factor += n_features - d


cdef inline double draw_root_row(
    const double* factor, Py_ssize_t n_features, Py_ssize_t d, double df,
    double* w,                                      # OUT (d + 1,)
    bitgen_t* rng
) noexcept nogil:
    """Row d of a triangular W with W'W ~ Wishart(df, A^-1), from the factor of A: with A = L D L',
    W = B' D^(-1/2) L^-1, where the upper triangular B has independent entries: standard normal, on
    the diagonal the roots of chi-squared variates (Bartlett's decomposition, its order reversed so
    that W is triangular). Rows are to be drawn in their order. Returns the logarithm of B_dd."""
    cdef Py_ssize_t t = 0
    for e in range(d):
        w[e] = random_standard_normal(rng) * sqrt(factor[t])
        t += n_features - e
    # By its logarithm: with df close to D - 1 a draw from the prior is often no double.
    value = 0.5 * (log(2.0) + log_gamma_variate(rng, 0.5 * (df - n_features + 1 + d)))
    w[d] = exp(value) * sqrt(factor[t])
    # Times L^-1 from the right, from the last column on.
    for e in range(d - 1, -1, -1):
        t -= n_features - e
        column = factor + t
        for f in range(e + 1, d + 1):
            w[e] -= w[f] * column[f - e]
    return value


@cython.final
cdef class FullModel(EllipticalModel):
    """Kernel of Gaussian clusters with full covariances.

    - `tables`: dict. Those of `EllipticalModel`, and `log_norms`.
    - `scale`: (n_features,) or (n_features, n_features). S, or its diagonal.
    """
    cdef bint diagonal              # is S, and given as a vector?
    cdef double[::1] scale          # (n_packed,): S, packed by columns
    cdef double[::1] strip          # (2 n_features, STRIP): of items that are evaluated together
    cdef double log_det_prior
    # The cluster for which `gaps` has projected the open row last, or NONE, and q_B.
    cdef Py_ssize_t gap_slot
    cdef double gap_square
    cdef double[:, ::1] norms       # (N_NORMS, 3): see `log_observed_norm`
    cdef double[:, ::1] spreads     # (n_slots, n_packed + 1 + D): see `spread_of`
    cdef Py_ssize_t block[STRIP]    # rows that are evaluated together, in the order of their turns
    cdef Py_ssize_t n_block
    cdef Py_ssize_t at              # the place of the last row in the block; earlier ones are over
    cdef double[::1] rows_ahead     # (n_features, STRIP): of the block
    cdef double[:, ::1] tails       # (n_slots, STRIP): 1 + q rho / (rho + 1)
    cdef Py_ssize_t[::1] n_known    # (n_slots,): places from `at` up to this one have tails
    # Of the last item with a weight, in some slots:
    cdef double squares[MANY]           # q
    cdef double exponents[MANY]
    cdef double peaks[MANY]             # log c_n |S_n|^(-1/2)
    cdef const double* weighed[MANY]    # log p(w) h^(D/2), then h
    cdef double own_weighed[2 * MOST_WEIGHTS]   # of the pending cluster without the item

    cdef int begin(self, tables, scale) except -1:
        cdef Py_ssize_t n_features = self.n_features
        self.share_norms(tables["log_norms"], n_features)
        self.diagonal = scale.ndim == 1
        self.hyper_period = min(MOST_PERIOD, max(1, <Py_ssize_t>(
            LEARNING_ROWS * n_features / <double>self.n_max + 0.5
        )))
        self.gap_slot = NONE
        self.defers = True
        self.rows_ahead = np.empty(n_features * STRIP)
        self.n_known = np.empty(0, dtype=np.intp)
        self.finds_near = self.weights is None and n_features >= FEWEST_COLUMNS
        self.work = np.empty(2 * n_features + self.n_packed)
        self.scale = np.empty(self.n_packed)
        self.strip = np.empty(2 * n_features * STRIP)
        if self.gaps is not None:
            self.norms = np.full((N_NORMS, 3), -1.0)
            self.spreads = np.empty((0, self.n_packed + 1 + n_features))
        return self.lay_out(CENTER + n_features + self.n_packed)

    def reread(self, data):
        cdef const double[:, ::1] X = data["X"]
        if self.gaps is not None or "gap_columns" in data or self.weights is not None:
            return False
        self.settle()
        self.rows = X
        self.X = &X[0, 0]
        self.n_samples = X.shape[0]
        return True

    cdef int prepare(self, Py_ssize_t n_slots) except -1:
        ClusterModel.prepare(self, n_slots)
        if self.finds_near and self.n_known.shape[0] < n_slots:
            self.tails = np.empty((n_slots, STRIP))
            self.n_known = np.empty(n_slots, dtype=np.intp)
            self.n_block = 0
        if self.gaps is not None and self.spreads.shape[0] < n_slots:
            self.spreads = np.full((n_slots, self.spreads.shape[1]), np.nan)

    cdef int take_hyperparameters(self) except -1:
        cdef Py_ssize_t t = 0
        cdef const double* scale = self.hyper + self.n_features + 2
        cdef double* center = self.empty + self.n_stats + CENTER
        cdef double* factor = center + self.n_features
        cdef double* log_det = self.empty + self.n_stats + LOG_DET
        EllipticalModel.take_hyperparameters(self)
        memcpy(center, &self.prior_mean[0], self.n_features * sizeof(double))
        for d in range(self.n_features):
            for e in range(d, self.n_features):
                if self.diagonal:
                    self.scale[t] = scale[d] if d == e else 0.0
                else:
                    self.scale[t] = scale[d * self.n_features + e]
                t += 1
        memcpy(factor, &self.scale[0], self.n_packed * sizeof(double))
        if not self.finish(self.empty, cholesky(factor, self.n_features, log_det)):
            raise ValueError("Gaussian.scale must be positive definite")
        self.log_det_prior = log_det[0]

    cdef int retabulate(self) except -1:
        cdef double r = self.hyper[self.n_features]
        cdef double nu = self.hyper[self.n_features + 1]
        if not (r > 0.0 and nu > self.n_features - 1):
            raise ValueError("Gaussian.mean_precision or Gaussian.df is out of range")
        self.renew_norms()
        if self.gaps is not None:
            self.norms[:] = -1.0
            self.spreads[:] = np.nan
        return self.take_hyperparameters()

    # Rows.

    cdef bint finish(self, double* stats, bint positive_definite) noexcept nogil:
        """Set the cached terms that follow from the numbers of items and log |S_n|."""
        cdef double* cached = stats + self.n_stats
        cdef double rho = self.mean_precision + stats[0]
        cached[PEAK] = self.log_norm_of(stats[0]) - 0.5 * cached[LOG_DET]
        cached[SHRINKAGE] = rho / (rho + 1.0)
        cached[EXPONENT] = 0.5 * (self.df + stats[0] + 1.0)
        if self.weights is not None:
            self.finish_weights(stats, self.rho_of(stats), self.log_bound_of(cached[EXPONENT]))
        return positive_definite

    cdef inline double log_bound_of(self, double exponent) noexcept nogil:
        """log of the largest h^(D/2) (1 + q h)^-exponent for any h > 0, times q^(D/2): at
        q h = D / (2 exponent - D)."""
        cdef double rest = 2.0 * exponent - self.n_features
        return (
            0.5 * self.n_features * (log(<double>self.n_features) - log_positive(rest))
            - exponent * log_step(rest, self.n_features)
        )

    cdef void add_scatters(
        self, const double* stats, const double* factors, double* factor    # INOUT (packed)
    ) noexcept nogil:
        """Add C to S, with these factors of the sets of moments."""
        cdef const double* scatter = stats + self.first_set + 1 + self.n_features
        for k in range(self.n_sets):
            for t in range(self.n_packed):
                factor[t] += factors[k] * scatter[t]
            scatter += self.n_set

    cdef bint add_means(
        self, const double* stats, const double* factors,
        double* center, double* factor, double* log_det     # INOUT factor; OUT the others
    ) noexcept nogil:
        """Update the factor of S + C to that of S_n: by one rank for each set of moments, and for
        the prior mean. False if rounding leaves no factor."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set
        cdef double* gap = &self.work[0]
        cdef const double* prior_mean = &self.prior_mean[0]
        cdef double r = self.mean_precision
        cdef double total = 0.0
        cdef bint good = True
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

    cdef bint factorize(self, double* stats, const double* other=NULL) noexcept nogil:
        """Add the items of another cluster, if given, and compute the cached terms from the
        statistics, O(D^3). False, and a determinant of NaN, if rounding leaves no factor."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double* log_det = stats + self.n_stats + LOG_DET
        cdef double* center = stats + self.n_stats + CENTER
        cdef double* factor = center + n_features
        cdef double* moments = stats + self.first_set
        memcpy(factor, &self.scale[0], self.n_packed * sizeof(double))
        self.add_scatters(stats, self.factors, factor)
        if other != NULL:
            self.add_scatters(other, self.factors, factor)
        good = cholesky_above(
            factor, n_features, self.empty + self.n_stats + CENTER + n_features, log_det
        )
        if other != NULL:
            for g in range(self.first_set):
                stats[g] += other[g]
            other += self.first_set
            for k in range(self.n_sets):
                if other[0] > 0.0:
                    weight = self.factors[k] * moments[0] * other[0] / (moments[0] + other[0])
                    self.combine(moments, other)
                    good = good and cholesky_update(
                        factor, n_features, &self.work[0], weight, log_det
                    )
                moments += self.n_set
                other += self.n_set
        good = good and self.add_means(stats, self.factors, center, factor, log_det)
        if not good:
            log_det[0] = NAN
        return self.finish(stats, good)

    cdef void compute(self, double* stats) noexcept nogil:
        self.factorize(stats)

    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil:
        """O(D^2). False if the factor is no longer positive definite."""
        cdef const double* x = self.X + i * self.n_features
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + CENTER
        cdef double* gap = &self.work[0]
        cdef double by = sign * self.value_of(g)
        # Sums of the numbers of items have no rounding errors.
        if self.weights is None:
            before = self.mean_precision + stats[0]
            self.count_scatter(stats, i, g, sign, gap)
            by /= self.mean_precision + stats[0]
        else:
            before = cached[self.terms + PRECISION]
            self.count_scatter(stats, i, g, sign, gap)
            by /= before + by
        for d in range(self.n_features):
            gap[d] = x[d] - center[d]
            center[d] += by * gap[d]
        return self.finish(stats, cholesky_update(
            center + self.n_features, self.n_features, gap, by * before, cached + LOG_DET
        ))

    cdef bint reweigh(
        self, double* stats, Py_ssize_t i, Py_ssize_t old, Py_ssize_t new
    ) noexcept nogil:
        """Item i of the row changes its weight: as if it left and entered, but S_n changes by one
        rank. With rho and m without the item, it adds (rho w / (rho + w)) (x - m)(x - m)'."""
        cdef const double* x = self.X + i * self.n_features
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + CENTER
        cdef double* gap = &self.work[0]
        cdef double before = self.weights.values[old]
        cdef double after = self.weights.values[new]
        cdef double rho = cached[self.terms + PRECISION] - before
        self.count_scatter(stats, i, old, -1.0, gap)
        self.count_scatter(stats, i, new, 1.0, gap)
        for d in range(self.n_features):
            gap[d] = (x[d] - center[d]) * ((rho + before) / rho)
            center[d] = x[d] - gap[d] * (rho / (rho + after))
        return self.finish(stats, cholesky_update(
            center + self.n_features, self.n_features, gap,
            rho * (after / (rho + after) - before / (rho + before)), cached + LOG_DET
        ))

    cdef void row_changes(self, Py_ssize_t slot) noexcept nogil:
        if self.n_block > 0:
            self.n_known[slot] = 0

    cdef void settle(self) noexcept nogil:
        self.leave()
        self.n_block = 0

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.row_changes(slot)
        if row(self, slot)[0] == 0.0:
            self.reset(slot)  # to the bit, as in chains that continue
        else:
            self.factorize(row(self, slot))

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Statistics combine, and the factor anew: O(D^3)."""
        self.settle()
        if row(self, src)[0] > 0.0:
            self.factorize(row(self, dst), row(self, src))

    # Marginal likelihoods and hyperparameters.

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        self.settle()
        return self.log_law(
            stats + COUNTS, stats + COUNTS, self.n_features, self.factors
        ) + log_evidence(
            stats[0], self.mean_precision, self.rho_of(stats), self.df, self.log_det_prior,
            stats[self.n_stats + LOG_DET], self.n_features
        )

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
        cdef double* factor = &self.work[2 * self.n_features]
        cdef double log_det
        cdef double rho = self.mean_precision
        memcpy(factor, &self.scale[0], self.n_packed * sizeof(double))
        self.add_scatters(stats, factors, factor)
        if not (
            cholesky(factor, self.n_features, &log_det)
            and self.add_means(stats, factors, &self.work[self.n_features], factor, &log_det)
        ):
            return NAN
        for k in range(self.n_sets):
            rho += factors[k] * stats[self.first_set + k * self.n_set]
        return log_evidence(
            stats[0], self.mean_precision, rho, self.df, self.log_det_prior, log_det,
            self.n_features
        ) + self.log_law(stats + COUNTS, stats + COUNTS, self.n_features, factors)

    def gaussian_laws(self, priors, values, stats, bit_generator):
        scale = values["scale"]
        if not self.diagonal:
            scale = scale.reshape(self.n_features, self.n_features)
        return FullLaws(priors, values, *self.units, *self.pooled(stats), scale)

    # Densities.

    cdef double log_far_square(self, const double* x, const double* cached) noexcept nogil:
        """log q for a row so far away that q overflows."""
        cdef const double* center = cached + CENTER
        cdef double* gap = &self.work[0]
        for d in range(self.n_features):
            gap[d] = (x[d] - center[d]) * FAR_UNIT
        q = solve_squared(center + self.n_features, self.n_features, gap)
        return log(q) - 2.0 * log(FAR_UNIT)

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        if self.is_open(i) or self.pending_item != i:
            self.leave()
        if self.weights is not None:
            self.log_weighted_many(slots, i, out)
            return
        if self.is_open(i):
            for m in range(slots.n):
                out[m] = self.log_observed(slots.at[m], i)
            return
        while slots.n > 0:
            m = min(slots.n, <Py_ssize_t>MANY)
            self.log_predictive_many_of(as_indices(slots.at, m), self.X + i * self.n_features, out)
            slots.at += m
            out += m
            slots.n -= m

    # Rows with weights.

    cdef inline void read_terms(self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        """The terms of the density of item i, which is in no cluster, in the cluster of a slot:
        entries k of `squares`, ..."""
        cdef const double* x = self.X + i * self.n_features
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* factor = cached + CENTER + self.n_features
        self.squares[k] = gap_squared(factor, self.n_features, x, cached + CENTER, &self.work[0])
        if slot == self.pending_slot:
            with_item = cached[self.terms + PRECISION]
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
                factor, self.n_features, x, cached + CENTER, &self.work[0]
            )
        self.peaks[k] = cached[PEAK]
        self.exponents[k] = cached[EXPONENT]
        self.weighed[k] = cached + self.terms + WEIGHED

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """q. The terms are h^(D/2) (1 + q h)^-exponent up to factors without h."""
        cdef const double* cached = row(self, slot) + self.n_stats
        return gap_squared(
            cached + CENTER + self.n_features, self.n_features,
            self.X + i * self.n_features, cached + CENTER, &self.work[0]
        )

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        """Of a row with open gaps: p(w) h^((D - m) / 2) (1 + q_B h)^-e, with e = (nu + n + 1 - m)
        / 2 and m missing entries, up to factors without w."""
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* weighed = cached + self.terms + WEIGHED + first
        cdef double unit = 1.0
        cdef double q = self.project_far(slot, i, &unit)
        cdef double peak = self.log_observed_peak(slot)
        cdef double half = 0.5 * self.gaps.n_missing
        for g in range(n):
            h = weighed[self.n_lanes + g]
            tail = log_positive(1.0 + q * h) if unit == 1.0 else log(q * h) - 2.0 * log(unit)
            out[g] = peak + weighed[g] - half * log(h) - (cached[EXPONENT] - half) * tail

    cdef void log_predictive_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef Py_ssize_t g = self.weights.chosen[i]
        if self.is_open(i):
            EllipticalModel.log_predictive_some(self, slots, i, out)
            return
        self.n_last = 0
        for k in range(slots.n):
            self.read_terms(slots.at[k], i, k)
            if self.squares[k] < 1e300:
                tail = log_positive(1.0 + self.squares[k] * self.weighed[k][self.n_lanes + g])
            else:
                tail = self.log_far_square(
                    self.X + i * self.n_features, row(self, slots.at[k]) + self.n_stats
                ) + log(self.weighed[k][self.n_lanes + g])
            out[k] = self.peaks[k] + self.weighed[k][g] - self.exponents[k] * tail

    cdef void log_sum_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef double logs[MANY]
        if self.is_open(i):
            EllipticalModel.log_sum_some(self, slots, i, out)
            return
        for k in range(slots.n):
            self.read_terms(slots.at[k], i, k)
            self.last[k] = slots.at[k]
        tile_scale_mixtures(
            self.squares, self.exponents, self.weighed, slots.n, self.n_lanes, self.shares, logs
        )
        for k in range(slots.n):
            if not self.squares[k] < 1e300:
                logs[k] = self.log_sum_far(slots.at[k], i, k)
            out[k] = self.peaks[k] + logs[k]
        self.n_last = slots.n

    cdef double log_sum_far(self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t k) noexcept nogil:
        """`tile_scale_mixtures` of a row so far away that q overflows."""
        cdef double* shares = self.shares + k * self.n_lanes
        cdef double log_sum
        cdef double log_square = self.log_far_square(
            self.X + i * self.n_features, row(self, slot) + self.n_stats
        )
        for g in range(self.n_lanes):
            shares[g] = self.weighed[k][g] - self.exponents[k] * (
                log_square + log(self.weighed[k][self.n_lanes + g])
            )
        tile_mixtures(shares, 1, self.n_lanes, &log_sum)
        return log_sum

    # Missing entries.

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        EllipticalModel.open_gaps(self, i)
        self.gap_slot = NONE

    cdef void row_changed(self, Py_ssize_t i) noexcept nogil:
        self.gap_slot = NONE

    cdef int take_rows(self) except -1:
        self.gap_slot = NONE
        return EllipticalModel.take_rows(self)

    cdef double log_observed_norm(self, double n, Py_ssize_t m) noexcept nogil:
        """log of c_n and of the factors of the density that follow from n and m = n_missing.
        Values are remembered."""
        cdef double half = 0.5 * m
        cdef double shape = 0.5 * (self.df + n + 1.0) - half
        cdef double* norm = &self.norms[(31 * <Py_ssize_t>n + m) % N_NORMS, 0]
        if norm[0] != n or norm[1] != m:
            norm[0] = n
            norm[1] = m
            # h^(D/2) is in the terms of weights, if there are any.
            norm[2] = LOG_PI
            if self.weights is None:
                norm[2] += log1p(1.0 / (self.mean_precision + n))
            norm[2] = self.log_norm_of(n) + half * norm[2] - (
                log_rising(shape, half) if shape > 20.0 else lgamma(shape + half) - lgamma(shape)
            )
        return norm[2]

    cdef double project(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """q_B of row i."""
        cdef const double* center = row(self, slot) + self.n_stats + CENTER
        self.gap_slot = slot
        self.gap_square = self.gaps.project(center + self.n_features, center, i, 1.0)
        return self.gap_square

    cdef double project_far(self, Py_ssize_t slot, Py_ssize_t i, double* unit) noexcept nogil:
        """The same times unit^2: a unit below 1 if q_B overflows."""
        cdef const double* center = row(self, slot) + self.n_stats + CENTER
        cdef double q = self.project(slot, i)
        if q == INFINITY:
            self.gap_slot = NONE
            unit[0] = FAR_UNIT
            q = self.gaps.project(center + self.n_features, center, i, unit[0])
        return q

    cdef inline double log_observed_peak(self, Py_ssize_t slot) noexcept nogil:
        """log of the density of the known entries of a row that has been projected, at q_B = 0; if
        there are weights, without these."""
        return (
            self.log_observed_norm(row(self, slot)[0], self.gaps.n_missing)
            - 0.5 * (row(self, slot)[self.n_stats + LOG_DET] + self.gaps.log_det)
        )

    cdef double log_observed(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """log p of the known entries of row i: see the head of this file."""
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef double unit = 1.0
        cdef double tail = self.project_far(slot, i, &unit)
        if unit == 1.0:
            tail = log_positive(1.0 + tail * cached[SHRINKAGE])
        else:
            tail = log(tail * cached[SHRINKAGE]) - 2.0 * log(unit)
        return self.log_observed_peak(slot) - (cached[EXPONENT] - 0.5 * self.gaps.n_missing) * tail

    cdef const double* spread_of(self, Py_ssize_t slot) noexcept nogil:
        """An upper bound of the largest eigenvalue of the correlation matrix of S_n, and the
        numbers 1 / S_dd; kept behind the factor of S_n as long as this does not change.

        The eigenvalues have mean 1 and, with r the correlations, variance (2 / D) sum r^2. So the
        largest is at most 1 + sqrt((D - 1) (2 / D) sum r^2)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* factor = stats + self.n_stats + CENTER + n_features
        cdef const double* scale = &self.scale[0]
        cdef const double* scatter = stats + 1 + n_features
        cdef double* kept = &self.spreads[slot, 0]
        cdef double* bound = kept + self.n_packed
        cdef double* inverse = bound + 1
        cdef double* gap = &self.work[0]
        if memcmp(kept, factor, self.n_packed * sizeof(double)) == 0:
            return bound
        memcpy(kept, factor, self.n_packed * sizeof(double))
        pull = self.mean_precision * stats[0] / (self.mean_precision + stats[0])
        for d in range(n_features):
            gap[d] = stats[1 + d] - self.prior_mean[d]
            inverse[d] = 1.0 / (scale[0] + scatter[0] + pull * gap[d] * gap[d])
            scale += n_features - d
            scatter += n_features - d
        scale = &self.scale[0]
        scatter = stats + 1 + n_features
        bound[0] = 0.0
        for d in range(n_features):
            total = 0.0
            for e in range(d + 1, n_features):
                entry = scale[e - d] + scatter[e - d] + pull * gap[d] * gap[e]
                total += entry * (entry * inverse[e])
            bound[0] += total * inverse[d]
            scale += n_features - d
            scatter += n_features - d
        bound[0] = 1.0 + sqrt(2.0 * (n_features - 1) / n_features * bound[0])
        return bound

    cdef bint log_open_bound_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """With g = x - m, q_B is at least every g_d^2 / S_dd, and their sum divided by the largest
        eigenvalue of the correlations. |M| is at least the product of 1 / D_a over the missing a,
        as G has a unit triangle there."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double total
        if self.weights is not None or not self.is_open(i):
            return False
        self.leave()
        self.gaps.list_missing(i)
        x = &self.gaps.data[i, 0]
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            n = row(self, slots.at[k])[0]
            spread = self.spread_of(slots.at[k])
            q = total = 0.0
            for d in range(n_features):
                square = x[d] - cached[CENTER + d]
                square *= square * spread[1 + d]
                if square == square:
                    total += square
                    q = square if square > q else q
            q = max(q, total / spread[0])
            product = 1.0
            for a in range(self.gaps.n_missing):
                d = self.gaps.missing[a]
                product *= cached[CENTER + n_features + d * n_features - d * (d - 1) // 2]
            out[k] = (
                self.log_observed_norm(n, self.gaps.n_missing)
                - 0.5 * (cached[LOG_DET] + log(product))
                - (cached[EXPONENT] - 0.5 * self.gaps.n_missing)
                * log_positive(1.0 + BELOW * min(q, 1e300) * cached[SHRINKAGE])
            )
            out[k] += SLACK * (1.0 + fabs(out[k]) + fabs(cached[LOG_DET]))
        return True

    cdef bint draw_missing(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef double h = cached[SHRINKAGE]
        if self.weights is not None:
            h = cached[self.terms + WEIGHED + self.n_lanes + self.weights.chosen[i]]
        if slot != self.gap_slot:       # else `gaps` has seen this row and cluster last
            self.leave()
            self.project(slot, i)
        square = log_gamma_variate(<bitgen_t*>rng, cached[EXPONENT] - 0.5 * self.gaps.n_missing)
        square = (self.gap_square + 1.0 / h) / (2.0 * exp(square))
        return self.gaps.draw(cached + CENTER, i, sqrt(square), <bitgen_t*>rng)

    # Without weights.

    cdef inline void log_predictive_many_of(
        self, Indices slots, const double* x, double* out
    ) noexcept nogil:
        """log p(x | items of each slot) of at most MANY. An item whose removal is deferred is x.
        Logarithms, the slowest part, are taken together."""
        cdef Py_ssize_t with_item = NONE    # the index of the slot that still holds x
        cdef Py_ssize_t n_features = self.n_features
        cdef double tails[MANY]
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            q = gap_squared(
                cached + CENTER + n_features, n_features, x, cached + CENTER, &self.work[0]
            )
            if slots.at[k] == self.pending_slot:
                rho = self.mean_precision + row(self, slots.at[k])[0]
                rest = 1.0 - q * rho / (rho - 1.0)
                if rest > 1e-6:
                    tails[k] = rest
                    with_item = k
                    continue
                # The item makes up nearly all of the scatter in its direction. 1 - h has too few
                # digits, so remove the item at once.
                self.leave()
                q = gap_squared(
                    cached + CENTER + n_features, n_features, x, cached + CENTER, &self.work[0]
                )
            # log1p would be slower, for digits that the sum below loses anyway.
            tails[k] = 1.0 + q * cached[SHRINKAGE] if q < 1e300 else INFINITY
        if slots.n <= 2:
            for k in range(slots.n):
                tails[k] = log_positive(tails[k])
        else:
            for k in range(slots.n, (slots.n + 7) // 8 * 8):
                tails[k] = 1.0
            tile_log(tails, (slots.n + 7) // 8 * 8)
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            if k == with_item:
                out[k] = (
                    self.log_norm_of(row(self, slots.at[k])[0] - 1.0) - 0.5 * cached[LOG_DET]
                    + (cached[EXPONENT] - 1.0) * tails[k]
                )
                continue
            if tails[k] > 700.0:
                tails[k] = self.log_far_square(x, cached) + log(cached[SHRINKAGE])
            out[k] = cached[PEAK] - cached[EXPONENT] * tails[k]

    cdef Py_ssize_t find_near(
        self, Indices slots, Py_ssize_t i, double* log_least, Py_ssize_t* near
    ) noexcept nogil:
        """The density is at least exp(l) if 1 + q rho / (rho + 1) <= exp((peak - l)/exponent)."""
        cdef Py_ssize_t n_near = 0
        p = self.find_in_block(i) if slots.n >= FEWEST_CLUSTERS else -1
        if p < 0:
            return -1
        if self.pending_item != i:
            self.leave()
        for k in range(slots.n):
            if self.n_known[slots.at[k]] <= p:
                self.evaluate_ahead(slots.at[k], p)
            cached = read_row(self, slots.at[k]) + self.n_stats
            log_least[k] = (log_least[k] - cached[PEAK]) / cached[EXPONENT]
            if log_least[k] > 0.0:      # NaN stays: its cluster is near
                log_least[k] = 0.0
        tile_exp(log_least, (slots.n + 7) // 8 * 8)
        for k in range(slots.n):
            if not log_least[k] * self.tails[slots.at[k], p] > ABOVE:
                near[n_near] = k
                n_near += 1
        return n_near

    cdef inline Py_ssize_t find_in_block(self, Py_ssize_t i) noexcept nogil:
        """Place of item i in the block, perhaps a new one; -1 if it is unknown what comes next."""
        for p in range(self.at, self.n_block):
            if self.block[p] == i:
                self.at = p
                return p
        if self.n_coming == 0:
            return -1
        self.n_block = min(self.n_coming, <Py_ssize_t>STRIP)
        self.at = 0
        for p in range(self.n_block):
            self.block[p] = i + p if self.coming == NULL else self.coming[p]
        self.gather_strip(as_indices(self.block, self.n_block), &self.rows_ahead[0])
        memset(&self.n_known[0], 0, self.n_known.shape[0] * sizeof(Py_ssize_t))
        return 0

    cdef void evaluate_ahead(self, Py_ssize_t slot, Py_ssize_t p) noexcept nogil:
        """Evaluate a cluster for the whole block, or for the next places from p on."""
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef Py_ssize_t first = p // AGAIN * AGAIN
        cdef Py_ssize_t n = AGAIN if p > 0 else self.n_block
        tile_tails(
            &self.rows_ahead[first], n, self.n_features, cached + CENTER + self.n_features,
            cached + CENTER, cached[SHRINKAGE], &self.strip[0], &self.tails[slot, first]
        )
        self.n_known[slot] = first + n

    cdef inline void gather_strip(self, Indices items, double* x) noexcept nogil:
        """Copy rows to a strip of columns, (n_features, STRIP), and fill it up with the first."""
        tile_gather(self.X, self.n_features, items.at, items.n, x, STRIP)
        for d in range(self.n_features):
            for i in range(items.n, STRIP):
                x[d * STRIP + i] = x[d * STRIP]

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        """With z = L^-1 (x - m), q is the sum of z_d^2 / D_d, and |z_d| at least
        max(0, |z_d(c)| - r_d): see `substitute_box`."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double* z = &self.work[0]
        cdef double* r = &self.work[n_features]
        cdef double tails[MANY]
        while slots.n > 0:
            m = min(slots.n, <Py_ssize_t>MANY)
            for k in range(m):
                cached = read_row(self, slots.at[k]) + self.n_stats
                factor = cached + CENTER + n_features
                q = 0.0
                substitute_box(factor, n_features, cached + CENTER, box, z, r)
                for d in range(n_features):
                    least = fabs(z[d]) * BELOW - r[d] * ABOVE
                    if least > 0.0:
                        q += least * (least * factor[0])
                    factor += n_features - d
                # Beyond, any lower bound is enough.
                tails[k] = 1.0 + min(q, 1e300) * cached[SHRINKAGE]
            for k in range(m, (m + 7) // 8 * 8):
                tails[k] = 1.0
            tile_log(tails, (m + 7) // 8 * 8)
            for k in range(m):
                cached = read_row(self, slots.at[k]) + self.n_stats
                tails[k] *= cached[EXPONENT]
                out[k] = cached[PEAK] - tails[k]
                out[k] += SLACK * (1.0 + fabs(cached[PEAK]) + tails[k])
            slots.at += m
            out += m
            slots.n -= m

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """As above |z_d| is at most |z_d(c)| + r_d; and the density of an item given the others
        falls with q, see the head of this file."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef const double* factor = cached + CENTER + n_features
        cdef double* z = &self.work[0]
        cdef double* r = &self.work[n_features]
        cdef double q = 0.0
        cdef double rho = self.mean_precision + stats[0]
        substitute_box(factor, n_features, cached + CENTER, box, z, r)
        for d in range(n_features):
            tail = fabs(z[d]) * ABOVE + r[d] * ABOVE
            q += tail * (tail * factor[0])
            factor += n_features - d
        tail = 1.0 - q * ABOVE * rho / (rho - 1.0)
        if not tail > 1e-3:     # few digits are left, and little time would be saved
            return -INFINITY
        peak = self.log_norm_of(stats[0] - 1.0) - 0.5 * cached[LOG_DET]
        tail = (cached[EXPONENT] - 1.0) * log_positive(tail)
        return peak + tail - SLACK * (1.0 + fabs(peak) - tail)

    cdef void log_predictive_tile(self, Indices slots, Indices items, double* out) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef double* x = &self.strip[0]
        cdef double tails[STRIP]
        if self.weights is not None:
            ClusterModel.log_predictive_tile(self, slots, items, out)
            return
        self.settle()
        self.gather_strip(items, x)
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            factor = cached + CENTER + n_features
            tile_tails(
                x, items.n, n_features, factor, cached + CENTER, cached[SHRINKAGE],
                x + n_features * STRIP, tails
            )
            tile_log(tails, (items.n + 7) // 8 * 8)
            for i in range(items.n):
                if tails[i] > 700.0:
                    far = self.X + items.at[i] * n_features
                    tails[i] = self.log_far_square(far, cached) + log(cached[SHRINKAGE])
                out[i] = cached[PEAK] - cached[EXPONENT] * tails[i]
            out += items.n
        if self.gaps is None:
            return
        for i in range(items.n):
            if self.gaps.is_open[items.at[i]]:
                for k in range(slots.n):
                    out[(k - slots.n) * items.n + i] = self.log_observed(slots.at[k], items.at[i])


@cython.final
cdef class FullLaws(GaussianLaws):
    """Conditional laws of hyperparameters of full covariances.

    A learned S is (nu - low) A diag(t) A' plus the floors of constant columns. A has ones on the
    diagonal and zeros above it: t_d changes S by one rank, along a column of A, 0 before entry d.
    A is the identity if S is diagonal. Otherwise the prior of Lambda = A diag(t) A' is
    that of `ScaleMatrix` in covariances.py: with p = eta + (D - 1) / 2 - a and y its diagonal,

        p(Lambda) ~ |Lambda|^(eta - 1) prod_d y_d^-p exp(-b y_d),    all t above their limits.

    Given covariances this is the law of a Wishart matrix but for y^-p, which is the integral of
    omega^(p - 1) exp(-omega y) / Gamma(p) over omega > 0. So `draw_matrix` draws omega_d ~
    Gamma(p, y_d), and then Lambda from the Wishart law of 2 eta + D - 1 + K nu degrees of freedom
    with the inverse scale (nu - low) sum_k Sigma_k^-1 + 2 diag(omega + b). It stays where it is
    if a t would be below its limit. Constant columns have no part in this: D is without them.

    - `stats`: (n_clusters, n_stats). Numbers of items, means and scatters.
    - `masses`: (n_clusters,). Precisions of the means, in units of Sigma_k^-1: the numbers of
      items, unless these have weights.
    - `scale`: (n_features,) or (n_features, n_features). S, or its diagonal.
    """
    cdef Py_ssize_t n_packed
    cdef const double[:, ::1] stats     # in units of the spreads
    cdef const double[::1] masses       # (K,)
    cdef double[:, ::1] factors         # (K, n_packed): of S_n, while columns take their steps
    cdef double[::1] squares            # (K,): g' (S + C)^-1 g with g = x_bar - u; or a' S_n^-1 a
    cdef double[::1] shape              # (n_packed,): Lambda, or S if it is fixed
    cdef double[::1] axes               # (n_packed,): A, by columns
    cdef double[::1] work               # (3 D + 4 n_packed,)
    # If A is learned:
    cdef unsigned char[::1] is_free     # of each column: whether it is not constant
    cdef Py_ssize_t n_free
    cdef double eta                     # concentration of the prior
    cdef GammaDensity y_density         # of y in its units

    def __init__(self, priors, values, spread, origin, floor, stats, masses, scale):
        cdef Py_ssize_t n_features = len(spread)
        GaussianLaws.__init__(self, priors, values, spread, origin, n_features - 1.0, floor)
        upper = packed_places(n_features)
        products = spread[upper[0]] * spread[upper[1]]
        self.n_packed = len(products)
        self.n_clusters = len(stats)
        # Clusters of equal numbers of items, which share terms, are adjacent; single items first.
        order = np.argsort(stats[:, 0], kind="stable")
        self.stats = stats[order] / np.concatenate([[1.0], spread, products])
        self.masses = masses[order]
        self.factors = np.empty((self.n_clusters, self.n_packed))
        self.squares = np.empty(self.n_clusters)
        self.work = np.empty(3 * n_features + 4 * self.n_packed)
        if not self.learns_scale:
            self.shape = (np.diag(scale) if scale.ndim == 1 else scale)[upper] / products
            return
        self.axes = np.eye(n_features)[upper]
        self.learns_matrix = scale.ndim == 2
        if not self.learns_matrix:
            self.shape = np.diag(self.t)[upper]
            return
        law = priors["scale"]
        self.is_free = law.free.astype(np.uint8)
        self.n_free = np.count_nonzero(law.free)
        self.eta = law.family.concentration
        self.y_density = self.t_density
        self.shape = (scale - np.diag(floor))[upper] / products / self.excess
        if not self.take_matrix(&self.shape[0], False):
            raise FloatingPointError("the matrix Gaussian.scale is singular; rescale the columns")
        for d in range(n_features):
            # Rounding may have moved a t to its limit.
            self.move_column(d, max(self.t[d], self.t_low[d] + self.least_step(d, self.excess)))

    def scale_values(self, spread, floor):
        if not self.learns_matrix:
            return GaussianLaws.scale_values(self, spread, floor)
        upper = packed_places(self.n_features)
        scale = np.empty((self.n_features, self.n_features))
        scale[upper] = self.excess * np.asarray(self.shape) * (spread[upper[0]] * spread[upper[1]])
        scale.T[upper] = scale[upper]
        return (scale + np.diag(floor)).ravel()

    cdef bint take_matrix(self, const double* matrix, bint limited) noexcept nogil:
        """Factor Lambda, packed, to A and t. False, without the effect, if that fails or if, with
        `limited`, a t is not above its limit."""
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n_features = self.n_features
        cdef double* factor = &self.work[3 * n_features + 3 * self.n_packed]
        cdef double log_det
        memcpy(factor, matrix, self.n_packed * sizeof(double))
        if not cholesky(factor, n_features, &log_det):
            return False
        for d in range(n_features):
            if limited and not (
                1.0 / factor[t] - self.t_low[d] >= self.least_step(d, self.excess)
            ):
                return False
            t += n_features - d
        memmove(&self.shape[0], matrix, self.n_packed * sizeof(double))
        memcpy(&self.axes[0], factor, self.n_packed * sizeof(double))
        t = 0
        for d in range(n_features):
            self.t[d] = 1.0 / factor[t]
            self.axes[t] = 1.0
            t += n_features - d
        return True

    cdef double* factor_of(
        self, Py_ssize_t k, double excess, double* factor, double* log_det, double* square,
        bint follows        # cluster k - 1 has just been factored here
    ) noexcept nogil:
        """Factor S + C of cluster k; `square` becomes g' (S + C)^-1 g. NULL if that fails. A
        single item has C = 0, so clusters of one item share the factor."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = &self.stats[k, 0]
        cdef double by = excess if self.learns_scale else 1.0
        for d in range(n_features):
            self.work[d] = stats[1 + d] - self.u[d]
        if not follows or stats[0] > 1.0:
            for t in range(self.n_packed):
                factor[t] = stats[1 + n_features + t] + by * self.shape[t]
            t = 0
            for d in range(n_features):
                factor[t] += self.floor[d]
                t += n_features - d
            if not cholesky(factor, n_features, log_det):
                return NULL
        square[0] = solve_squared(factor, n_features, &self.work[0])
        return factor

    cdef bint prepare_precision(self) noexcept nogil:
        cdef double log_det
        cdef double* factor = &self.work[3 * self.n_features]
        for k in range(self.n_clusters):
            if self.factor_of(k, self.excess, factor, &log_det, &self.squares[k], k > 0) == NULL:
                return False
        return True

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        cdef double total = 0.0
        for k in range(self.n_clusters):
            mass = self.masses[k]
            total -= 0.5 * (
                self.n_features * log1p(mass / r)
                + (self.low + self.excess + self.stats[k, 0])
                * log1p(self.squares[k] / (1.0 / r + 1.0 / mass))
            )
        return total

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        cdef double* factor = &self.work[3 * self.n_features]
        cdef double log_det, square
        cdef double nu = self.low + excess
        cdef double total = 0.0
        cdef double log_gammas = 0.0
        if self.learns_scale:
            for d in range(self.n_features):
                total += log(self.scale_of(d, excess, self.t[d]))
        else:
            memcpy(factor, &self.shape[0], self.n_packed * sizeof(double))
            if not cholesky(factor, self.n_features, &total):
                return NAN
        total *= 0.5 * nu * self.n_clusters
        for k in range(self.n_clusters):
            if self.factor_of(k, excess, factor, &log_det, &square, k > 0) == NULL:
                return NAN
            n = self.stats[k, 0]
            total -= 0.5 * (nu + n) * (
                log_det + log1p(square / (1.0 / self.r + 1.0 / self.masses[k]))
            )
            if k == 0 or n > self.stats[k - 1, 0]:
                log_gammas = 0.0
                for d in range(self.n_features):
                    log_gammas += log_rising(0.5 * (nu - d), 0.5 * n)
            total += log_gammas
        return total

    cdef bint refactor(self, Py_ssize_t k) noexcept nogil:
        """Factor S_n of cluster k."""
        cdef double log_det, square
        cdef const double* stats = &self.stats[k, 0]
        if self.factor_of(k, self.excess, &self.factors[k, 0], &log_det, &square, False) == NULL:
            return False
        for d in range(self.n_features):
            self.work[d] = stats[1 + d] - self.u[d]
        return cholesky_update(
            &self.factors[k, 0], self.n_features, &self.work[0],
            1.0 / (1.0 / self.r + 1.0 / self.masses[k]), &log_det
        )

    cdef bint prepare_scale(self) noexcept nogil:
        cdef bint good = True
        for k in range(self.n_clusters):
            good &= self.refactor(k)
        return good

    cdef inline Py_ssize_t axis(self, Py_ssize_t d) noexcept nogil:
        """Write column d of A, from entry d on, to `work`. Returns the start of column d."""
        cdef Py_ssize_t first = d * self.n_features - d * (d - 1) // 2
        memcpy(&self.work[0], &self.axes[first], (self.n_features - d) * sizeof(double))
        return first

    cdef bint prepare_column(self, Py_ssize_t d) noexcept nogil:
        for k in range(self.n_clusters):
            first = self.axis(d)
            self.squares[k] = solve_squared(
                &self.factors[k, first], self.n_features - d, &self.work[0]
            )
        return True

    cdef double log_prior_scale(self, Py_ssize_t d, double x) noexcept nogil:
        """If A is learned, that of the t_d of Lambda = A diag(t) A' given A: |Lambda| is the
        product of all t, and d Lambda has a factor t_d for each free column after d."""
        cdef Py_ssize_t first = d * self.n_features - d * (d - 1) // 2
        cdef Py_ssize_t t = first
        cdef double after = self.t_low[d] + exp(x)
        cdef double power = self.eta + 0.5 * (self.n_free - 1)
        if not self.learns_matrix:
            return GaussianLaws.log_prior_scale(self, d, x)
        log_y = log(after)
        if not self.is_free[d]:
            return x - log_y + self.t_density.at(log_y - self.t_log_unit[d])
        total = x + (self.eta - 2.0) * log_y
        for e in range(d, self.n_features):
            if self.is_free[e]:
                total += log_y  # of a factor t_d for each free column, of which d is one too many
        for e in range(d, self.n_features):
            if self.is_free[e]:
                log_y = log(
                    self.shape[t]
                    + (after - self.t[d]) * self.axes[first + e - d] * self.axes[first + e - d]
                )
                total += self.t_density.at(log_y - self.t_log_unit[e]) - power * log_y
            t += self.n_features - e
        return total

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        cdef double nu = self.low + self.excess
        cdef double change = self.excess * (t - self.t[d])
        cdef double total = 0.5 * nu * self.n_clusters * log(self.scale_of(d, self.excess, t))
        for k in range(self.n_clusters):
            total -= 0.5 * (nu + self.stats[k, 0]) * log1p(change * self.squares[k])
        return total

    cdef Py_ssize_t move_column(self, Py_ssize_t d, double t) noexcept nogil:
        """Set t_d and change Lambda. Returns the start of a factor's column d."""
        cdef Py_ssize_t first = self.axis(d)
        cdef Py_ssize_t at = first
        cdef double change = t - self.t[d]
        for e in range(d, self.n_features):
            for f in range(e, self.n_features):
                self.shape[at + f - e] += change * self.work[e - d] * self.work[f - d]
            at += self.n_features - e
        self.t[d] = t
        return first

    cdef bint take_column(self, Py_ssize_t d, double t) noexcept nogil:
        cdef double log_det = 0.0
        cdef double change = t - self.t[d]
        cdef Py_ssize_t first = self.move_column(d, t)
        for k in range(self.n_clusters):
            self.axis(d)
            if not cholesky_update(
                &self.factors[k, first], self.n_features - d, &self.work[0], self.excess * change,
                &log_det
            ) and not self.refactor(k):
                return False
        return True

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """u is normal given covariances, of precision 1 + sum_k w_k Sigma_k^-1."""
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n_features = self.n_features
        cdef double* b = &self.work[0]
        cdef double* root = b + n_features
        cdef double* noise = b + 2 * n_features
        cdef double* system = b + 3 * n_features
        cdef double* precision = system + self.n_packed     # sum_k Sigma_k^-1
        cdef const double* mean
        if not self.learns_scale and not self.prepare_scale():
            return False
        memset(b, 0, (3 * n_features + 2 * self.n_packed) * sizeof(double))
        for d in range(n_features):
            system[t] = 1.0
            t += n_features - d
        for k in range(self.n_clusters):
            weight = 1.0 / (1.0 / self.r + 1.0 / self.masses[k])
            mean = &self.stats[k, 1]
            memset(root, 0, n_features * sizeof(double))
            for d in range(n_features):
                draw_root_row(
                    &self.factors[k, 0], n_features, d, self.low + self.excess + self.stats[k, 0],
                    root, rng
                )
                part = 0.0
                for e in range(d + 1):
                    part += root[e] * (mean[e] - self.center[e])
                for e in range(d + 1):
                    b[e] += weight * root[e] * part
                add_square(system, n_features, root, weight)
                if self.learns_matrix:
                    add_square(precision, n_features, root, 1.0)
        if self.learns_matrix and self.n_free > 1 and not self.draw_matrix(precision, root, rng):
            return False
        return not self.learns_mean or self.draw_mean_of(system, b, noise, rng)

    cdef bint draw_matrix(
        self, double* precision, double* root, bitgen_t* rng    # root: scratch (D,)
    ) noexcept nogil:
        """Draw Lambda given the sum of the precisions, which is overwritten."""
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n = 0
        cdef Py_ssize_t n_free = self.n_free
        cdef double* matrix = precision + self.n_packed
        cdef double power = self.eta + 0.5 * (n_free - 1) - self.y_density.shape
        cdef double df = 2.0 * self.eta + n_free - 1.0
        cdef double log_det
        df += self.n_clusters * (self.low + self.excess)
        for d in range(self.n_features):
            for e in range(d, self.n_features):
                if self.is_free[d] and self.is_free[e]:
                    precision[n] = self.excess * precision[t]
                    if e == d:
                        omega = exp(log_gamma_variate(rng, power)) / self.shape[t]
                        precision[n] += 2.0 * (
                            omega + self.y_density.rate * exp(-self.t_log_unit[d])
                        )
                    n += 1
                t += 1
        if not cholesky(precision, n_free, &log_det):
            return False
        memset(matrix, 0, n * sizeof(double))
        memset(root, 0, n_free * sizeof(double))
        for d in range(n_free):
            draw_root_row(precision, n_free, d, df, root, rng)
            add_square(matrix, n_free, root, 1.0)
        # Back to all columns, from the last on: entries of the free ones move to later places.
        for d in range(self.n_features - 1, -1, -1):
            for e in range(self.n_features - 1, d - 1, -1):
                t -= 1
                if self.is_free[d] and self.is_free[e]:
                    n -= 1
                    matrix[t] = matrix[n]
                else:
                    matrix[t] = self.t[d] if d == e else 0.0
        self.take_matrix(matrix, True)
        return True


@cython.final
cdef class ParametricGaussian(ParametricElliptical):
    """Gaussian rows under drawn means and covariances, S a matrix. For W'W see `draw_root_row`.

    Parameters: log |W| - D log(2 pi) / 2, W mu (D), W (packed by rows).
    """
    cdef double[::1] prior      # S, packed
    cdef double[::1] factor     # of S, packed

    def __init__(self, X, mean, const double[:, ::1] scale, double mean_precision, double df):
        cdef double log_det
        n_features = X.shape[1]
        expect_shape("scale", scale, (n_features, n_features))
        self.prior = np.asarray(scale).T[packed_places(n_features)]
        self.factor = np.array(self.prior)
        ParametricElliptical.__init__(
            self, X, mean, mean_precision, df, 1 + n_features + len(self.prior)
        )
        cholesky(&self.factor[0], n_features, &log_det)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef double n = power * stats[0]
        cdef double rho = self.mean_precision + n
        cdef double weight = self.mean_precision * n / rho
        cdef const double* mean = stats + 1
        cdef const double* scatter = mean + n_features
        cdef double* factor = &self.moments[0]
        cdef double* center = params + 1
        cdef double* w = center + n_features
        cdef double log_det
        for t in range(self.n_packed):
            factor[t] = self.prior[t] + power * scatter[t]
        for d in range(n_features):
            self.work[d] = mean[d] - self.mean[d]
        # As in `FullModel.factorize`. NaN if that fails, also in params[0].
        if not (
            cholesky_above(factor, n_features, &self.factor[0], &log_det)
            and cholesky_update(factor, n_features, &self.work[0], weight, &log_det)
        ):
            log_det = NAN
        total = -0.5 * n_features * log(2.0 * PI) - 0.5 * log_det
        for d in range(n_features):
            total += draw_root_row(factor, n_features, d, self.df + n, w, rng)
            value = random_standard_normal(rng) / sqrt(rho)
            for e in range(d + 1):
                value += w[e] * (self.mean[e] + n / rho * (mean[e] - self.mean[e]))
            center[d] = value
            w += d + 1
        params[0] = total

    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        Indices which, double* out      # OUT (which.n, TILE)
    ) noexcept nogil:
        for k in range(which.n):
            theta = params + which.at[k] * self.n_params
            tile_gaussian_columns(
                self.columns + first, LD, n_items, self.n_features, theta + 1 + self.n_features,
                theta + 1, theta[0], out + k * TILE
            )

    cdef void accumulate_loaded(
        self, double* stats, Py_ssize_t first, Py_ssize_t n_items,
        const Py_ssize_t* keys, Py_ssize_t key      # IN (n_items,): those with the key join
    ) noexcept nogil:
        if self.n_features > 4:
            ParametricModel.accumulate_loaded(self, stats, first, n_items, keys, key)
            return
        tile_keyed_moments(
            self.columns + first, LD, n_items, keys, key, self.n_features, self.gaps,
            &self.moments[0]
        )
        if self.moments[0] > 0.0:
            self.combine(stats, &self.moments[0])

    cdef void log_density_bound_many(
        self, const double* params, Indices which, const double* box, double* lower, double* upper
    ) noexcept nogil:
        """With z = W x - W mu the log density is a constant less sum_d z_d^2 / 2. From the box's
        centre c, with half-widths h, to x, z_d changes by at most r_d = sum_e |W_de| h_e, so that
        |z_d| is between max(0, |z_d(c)| - r_d) and |z_d(c)| + r_d. r_d includes the rounding of
        z_d, a share of the terms that it is the sum of."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* half = box + n_features
        cdef double most
        cdef double share = 4.0 * (n_features + 4) * DBL_EPSILON
        for k in range(which.n):
            top = params[which.at[k] * self.n_params]
            c = params + which.at[k] * self.n_params + 1
            w = c + n_features
            least = most = 0.0
            for d in range(n_features):
                z = -c[d]
                size = fabs(c[d])
                r = 0.0
                for e in range(d + 1):
                    value = w[e] * box[e]
                    z += value
                    size += fabs(value)
                    r += fabs(w[e]) * half[e]
                w += d + 1
                r = r * ABOVE + share * (size + r)
                z = fabs(z)
                most += (z + r) * (z + r)
                z -= r
                if not z <= 0.0:
                    least += z * z
            # A row that is farther away has the density 0.
            least = 0.5 * min(least, 1e300)
            most *= 0.5
            lower[k] = top - most - SLACK * (1.0 + fabs(top) + most)
            upper[k] = top - least + SLACK * (1.0 + fabs(top) + least)
