# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with one variance each, the same in all columns.

    v ~ InvGamma(nu / 2, rate s / 2),  mu | v ~ N(u, v / r 1),  x | mu, v ~ N(mu, v 1)

Missing entries drop out. A cluster has n_d entries in column d, N in all, of means x_bar_d and
centred sums of squares C_d. With rho_d = r + n_d,

    m_d = (r u_d + n_d x_bar_d) / rho_d,
    S   = s + sum_d [C_d + (r n_d / rho_d) (x_bar_d - u_d)^2],
    t_d^2 = (x_d - m_d)^2 rho_d / ((rho_d + 1) S),

and for a row with entries in M columns, sums and products over these,

    p(x | cluster) = Gamma((nu + N + M) / 2) / Gamma((nu + N) / 2) (pi S)^(-M/2)
                     prod_d (rho_d / (rho_d + 1))^(1/2) (1 + sum_d t_d^2)^(-(nu + N + M) / 2).

With weights (see _elliptical) h_d is in the place of rho_d / (rho_d + 1), and t_d^2 without it.

The statistics, and how they change, are those of _columns, as are the terms with weights; without
weights these are log S, whether all n_d are n, log of the density at m (if they are), m (D),
t / (x - m) (D), log(rho / (rho + 1)) (D, if entries may be missing).

Hyperparameters: u (D), r, nu, s, those of the law of the weights.
"""
cimport cython
from libc.math cimport INFINITY, NAN
from libc.math cimport M_PI as PI
from libc.math cimport exp, fabs, log, log1p, sqrt

import numpy as np

from skdpm._core._culling cimport ABOVE, BELOW, SLACK
from skdpm._core._math cimport log_rising
from skdpm._core._rng cimport bitgen_t, log_gamma_variate, random_standard_normal
from skdpm.mixture.likelihoods.contract._base cimport row
from skdpm.mixture.likelihoods.elliptical._columns cimport (
    N_TERMS, DiagLaws, DiagonalModel, ParametricGaussianDiag
)
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    BOUND, COUNTS, PEAK, WEIGHED
)
from skdpm.mixture.likelihoods.elliptical._hyper cimport log_step
from skdpm.mixture.likelihoods.elliptical._moments cimport log_positive

cdef double LOG_PI = log(PI)
cdef double FAR = 300.0 * log(10.0)     # log of 1e150^2

cdef enum:
    EXPONENT = 2        # with weights: see _columns


cdef inline double log_far_tail(
    const double* x, const double* center, const double* spread, Py_ssize_t n_features
) noexcept nogil:
    """log sum_d t_d^2 where a square overflows."""
    cdef Py_ssize_t d
    cdef double most = 0.0
    cdef double total = 0.0
    cdef double t
    for d in range(n_features):
        if x[d] == x[d]:
            most = max(most, fabs(x[d] - center[d]))
    for d in range(n_features):
        if x[d] == x[d]:
            t = (x[d] - center[d]) / most * (spread[d] / spread[0])
            total += t * t
    return 2.0 * (log(most) + log(spread[0])) + log(total)


@cython.final
cdef class SphericalModel(DiagonalModel):
    """Kernel of Gaussian clusters with one variance each. `tables` are those of `EllipticalModel`
    and `missing` of `DiagonalModel`; `scale` is s, ()."""

    cdef void compute_terms(self, double* stats) noexcept nogil:
        """Cached terms of clusters without weights, O(D)."""
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* counts = stats + 1
        cdef const double* mean = counts + n_features
        cdef const double* scatter = mean + n_features
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + N_TERMS
        cdef double* spread = center + n_features
        cdef double* log_ratio = spread + n_features
        cdef double r = self.mean_precision
        cdef double last = -1.0
        cdef double root = 0.0
        cdef double shrink = 0.0
        cdef double total = self.scale[0]
        cdef double n_entries = 0.0
        cdef bint complete = True
        cdef double gap
        for d in range(n_features):
            if counts[d] != last:
                last = counts[d]
                shrink = last / (r + last)
                root = sqrt((r + last) / (r + last + 1.0))
            n_entries += last
            complete &= last == stats[0]
            gap = mean[d] - self.prior_mean[d]
            center[d] = self.prior_mean[d] + shrink * gap
            spread[d] = root
            total += scatter[d] + r * shrink * gap * gap
        gap = 1.0 / sqrt(total)
        for d in range(n_features):
            if self.missing:
                log_ratio[d] = 2.0 * log(spread[d])
            spread[d] *= gap
        cached[0] = log(total)
        cached[1] = complete
        cached[2] = log_rising(0.5 * (self.df + n_entries), 0.5 * n_features) - n_features * (
            0.5 * (log(PI) + cached[0]) - log(root)
        )

    cdef void finish(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef double* cached = stats + self.n_stats
        cdef double* spread = cached + N_TERMS + n_features
        cdef double total = self.scale[0]
        cdef double size = self.df
        cdef double root
        for d in range(n_features):
            total += spread[d]
            size += spread[n_features + d]
        root = 1.0 / sqrt(total)
        for d in range(n_features):
            spread[d] = root
        cached[PEAK] = log_rising(0.5 * size, 0.5 * n_features) - 0.5 * n_features * (
            LOG_PI + log(total)
        )
        cached[EXPONENT] = 0.5 * (size + n_features)
        # At the largest h^(D/2) (1 + q h)^-e: q h = D / (2 e - D).
        cached[self.terms + BOUND] = 0.5 * (
            n_features * log(n_features / size)
            - (size + n_features) * log_step(size, n_features)
        )

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        return self.log_marginal_of(row(self, slot), self.factors)

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
        cdef Py_ssize_t d
        cdef double r = self.mean_precision
        cdef double last = r
        cdef double log_ratio = 0.0
        cdef double n_entries = 0.0
        cdef double squares = 0.0
        cdef double total = 0.0
        cdef double n, rho, m
        for d in range(self.n_features):
            squares += self.pool(stats, d, factors, r, self.prior_mean[d], &n, &rho, &m)
            if rho != last:
                last = rho
                log_ratio = log1p((rho - r) / r)
            n_entries += n
            total -= log_ratio
        return log_rising(0.5 * self.df, 0.5 * n_entries) + 0.5 * (
            total - n_entries * (log(PI) + log(self.scale[0]))
            - (self.df + n_entries) * log1p(squares / self.scale[0])
        ) + self.log_law(stats + COUNTS, stats + COUNTS + self.n_weights, 1.0, factors)

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return SphericalLaws(priors, values, *self.units, *self.pooled(stats))

    # Densities of rows with weights.

    cdef double square(
        self, const double* x, const double* center, double unit
    ) noexcept nogil:
        """The square of the distance of the known entries, times unit^2."""
        cdef Py_ssize_t d
        cdef double total = 0.0
        cdef double t
        for d in range(self.n_features):
            t = (x[d] - center[d]) * unit
            if t == t:
                total += t * t
        return total

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        cdef Py_ssize_t g
        cdef const double* x = self.X + i * self.n_features
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* center = cached + N_TERMS
        cdef const double* weighed = cached + self.terms + WEIGHED + first
        cdef double q
        if not self.is_complete(cached, x):
            self.log_terms_entries(slot, x, first, n, out)
            return
        q = self.square(x, center, center[self.n_features])
        for g in range(n):
            out[g] = cached[PEAK] + weighed[g] - cached[EXPONENT] * self.log_tail(
                q, weighed[self.n_lanes + g], x, center
            )

    cdef inline double log_tail(
        self, double q, double h, const double* x, const double* center
    ) noexcept nogil:
        """log(1 + q h), also if the square overflows."""
        if q < 1e300:
            return log_positive(1.0 + q * h)
        q = self.square(x, center, 1e-150 * center[self.n_features])
        return log(q) + FAR + log(h)

    cdef void log_terms_entries(
        self, Py_ssize_t slot, const double* x, Py_ssize_t first, Py_ssize_t n_terms, double* out
    ) noexcept nogil:
        cdef Py_ssize_t d, g
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* center = row(self, slot) + self.n_stats + N_TERMS
        cdef const double* spread = center + n_features
        cdef const double* n = spread + n_features
        cdef const double* rho = n + n_features
        cdef double size = self.df
        cdef double n_known = 0.0
        cdef double q, w, peak
        for d in range(n_features):
            size += n[d]
            n_known += x[d] == x[d]
        peak = log_rising(0.5 * size, 0.5 * n_known) + n_known * (
            log(spread[0]) - 0.5 * LOG_PI
        )
        for g in range(n_terms):
            w = self.weights.values[first + g]
            out[g] = self.weights.log_probabilities[first + g] + peak
            for d in range(n_features):
                if x[d] == x[d]:
                    out[g] += 0.5 * log(rho[d] * w / (rho[d] + w))
            q = self.weighed_square(x, center, spread[0], w)
            if q < 1e300:
                q = log1p(q)
            else:
                q = log(self.weighed_square(x, center, 1e-150 * spread[0], w)) + FAR
            out[g] -= 0.5 * (size + n_known) * q

    cdef double weighed_square(
        self, const double* x, const double* center, double unit, double w
    ) noexcept nogil:
        """The sum of t^2 h over the known entries at a weight w, times unit^2 S."""
        cdef Py_ssize_t d
        cdef const double* rho = center + 3 * self.n_features
        cdef double total = 0.0
        cdef double t
        for d in range(self.n_features):
            t = (x[d] - center[d]) * unit
            if t == t:
                total += t * t * (rho[d] * w / (rho[d] + w))
        return total

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef const double* x = self.X + i * self.n_features
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* center = cached + N_TERMS
        if not self.is_complete(cached, x):
            return NAN
        return self.square(x, center, center[self.n_features])

    # Without weights.

    cdef double log_predictive_entries(self, const double* stats, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef const double* counts = stats + 1
        cdef const double* cached = stats + self.n_stats
        cdef const double* center = cached + N_TERMS
        cdef const double* spread = center + n_features
        cdef const double* log_ratio = spread + n_features
        cdef double n_entries = 0.0
        cdef double n_present = 0.0
        cdef double q = 0.0
        cdef double total = 0.0
        cdef double t
        for d in range(n_features):
            n_entries += counts[d]
            if x[d] == x[d]:
                n_present += 1.0
                t = (x[d] - center[d]) * spread[d]
                q += t * t
                total += log_ratio[d]
        q = log1p(q) if q < 1e300 else log_far_tail(x, center, spread, n_features)
        n_entries += self.df
        return log_rising(0.5 * n_entries, 0.5 * n_present) + 0.5 * (
            total - n_present * (log(PI) + cached[0]) - (n_entries + n_present) * q
        )

    cdef double log_predictive_complete(self, const double* stats, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef const double* cached = stats + self.n_stats
        cdef const double* center = cached + N_TERMS
        cdef const double* spread = center + n_features
        cdef double q = 0.0
        cdef double t
        for d in range(n_features):
            t = (x[d] - center[d]) * spread[d]
            q += t * t
        q = log1p(q) if q < 1e300 else log_far_tail(x, center, spread, n_features)
        return cached[2] - 0.5 * (self.df + (stats[0] + 1.0) * n_features) * q

    cdef double log_bound(self, Py_ssize_t slot, const double* box) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef const double* center = cached + N_TERMS
        cdef const double* spread = center + n_features
        cdef double q = 0.0
        cdef double t
        for d in range(n_features):
            t = (fabs(box[d] - center[d]) * BELOW - box[n_features + d] * ABOVE) * spread[d]
            if t > 0.0:
                q += t * t
        # Farther away, any lower bound of q will do.
        q = 0.5 * (self.df + (stats[0] + 1.0) * n_features) * log1p(min(q, 1e300))
        return cached[2] - q + SLACK * (1.0 + fabs(cached[2]) + q)

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """As in `DiagonalModel`, with t = |x - m| over all columns: an item's density is

            c_{n-1} S^(-D/2) (1 - a)^((nu + (n - 1) D) / 2),  a = t^2 rho / ((rho - 1) S)."""
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef const double* center = cached + N_TERMS
        cdef const double* spread = center + n_features
        cdef double rho = self.mean_precision + stats[0]
        cdef double nu = self.df + (stats[0] - 1.0) * n_features
        cdef double q = 0.0
        cdef double peak, t
        if cached[1] != 1.0:
            return -INFINITY
        for d in range(n_features):
            t = (fabs(box[d] - center[d]) + box[n_features + d]) * ABOVE * spread[d]
            q += t * t
        # From the spread, which is for a new row, rho / ((rho + 1) S).
        q = 1.0 - q * ABOVE * (rho + 1.0) / (rho - 1.0)
        if not q > 1e-3:    # few digits are left, and little time would be saved
            return -INFINITY
        q = 0.5 * nu * log(q)
        peak = log_rising(0.5 * nu, 0.5 * n_features) - 0.5 * n_features * (
            log(PI) + cached[0] - log1p(-1.0 / rho)
        )
        return peak + q - SLACK * (1.0 + fabs(peak) - q)


@cython.final
cdef class SphericalLaws(DiagLaws):
    """Conditional laws of hyperparameters of spherical covariances. All columns have the same
    spread."""
    cdef double[::1] totals         # (K,): sums of squares, then 1 / v
    cdef const double[::1] sizes    # (K,): N

    def __init__(self, priors, values, spread, origin, floor, stats, masses=None):
        DiagLaws.__init__(self, priors, values, spread, origin, floor, stats, masses)
        self.totals = np.empty(self.n_clusters)
        self.sizes = stats[:, 1 : 1 + self.n_features].sum(axis=1)

    cdef inline double sum_squares(self, Py_ssize_t k, double r) noexcept nogil:
        """sum_d C + w (x_bar - u)^2."""
        cdef Py_ssize_t d
        cdef double total = 0.0
        for d in range(self.n_features):
            if self.stats[k, 0, d] > 0.0:
                total += self.square(k, d, r)
        return total

    cdef double log_ratios(self, Py_ssize_t k, double r, double excess) noexcept nogil:
        cdef double ratio = self.sum_squares(k, r) / self.any_scale(0, excess)
        return (excess + self.sizes[k]) * log1p(ratio)

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        cdef Py_ssize_t k
        cdef double scale = self.any_scale(0, excess)
        cdef double total = 0.0
        for k in range(self.n_clusters):
            total += log_rising(0.5 * excess, 0.5 * self.sizes[k]) - 0.5 * (
                self.sizes[k] * log(scale) + self.log_ratios(k, self.r, excess)
            )
        return total

    cdef bint prepare_scale(self) noexcept nogil:
        cdef Py_ssize_t k
        for k in range(self.n_clusters):
            self.totals[k] = self.sum_squares(k, self.r)
        return True

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        cdef Py_ssize_t k
        cdef double scale = self.scale_of(0, self.excess, t)
        cdef double total = 0.0
        for k in range(self.n_clusters):
            total -= self.sizes[k] * log(scale)
            total -= (self.excess + self.sizes[k]) * log1p(self.totals[k] / scale)
        return 0.5 * total

    cdef double draw_precision(self, Py_ssize_t k, Py_ssize_t d, bitgen_t* rng) noexcept nogil:
        return self.totals[k]

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        cdef Py_ssize_t k
        cdef double half
        for k in range(self.n_clusters):
            half = 0.5 * (self.sum_squares(k, self.r) + self.any_scale(0, self.excess))
            self.totals[k] = log_gamma_variate(rng, 0.5 * (self.excess + self.sizes[k]))
            self.totals[k] = exp(self.totals[k]) / half
        return DiagLaws.draw_given_covariances(self, rng)


@cython.final
cdef class ParametricGaussianSpherical(ParametricGaussianDiag):
    """Gaussian rows under drawn means and one drawn variance for each cluster.

    With S, m and rho as above, 1 / v ~ Gamma((nu + N) / 2, rate S / 2) and mu | v ~ N(m, v / rho).
    Parameters are those of `ParametricGaussianDiag`, with the same w in all columns.
    `scale` is s, (1,).
    """

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* counts = stats + 1
        cdef const double* mean = counts + n_features
        cdef const double* scatter = mean + n_features
        cdef double* w = params + 1
        cdef double* center = w + n_features
        cdef double* log_w = center + n_features
        cdef double n_entries = 0.0
        cdef double total = self.scale[0]
        cdef double gap, n, rho, value
        for d in range(n_features):
            n = power * counts[d]
            gap = mean[d] - self.mean[d]
            n_entries += n
            total += power * scatter[d]
            total += self.mean_precision * n / (self.mean_precision + n) * gap * gap
        value = 0.5 * (log_gamma_variate(rng, 0.5 * (self.df + n_entries)) - log(0.5 * total))
        for d in range(n_features):
            n = power * counts[d]
            rho = self.mean_precision + n
            w[d] = exp(value)
            center[d] = (self.mean[d] + n / rho * (mean[d] - self.mean[d])) * w[d]
            center[d] += random_standard_normal(rng) / sqrt(rho)
            log_w[d] = value - 0.5 * log(2.0 * PI)
        params[0] = n_features * log_w[0]
