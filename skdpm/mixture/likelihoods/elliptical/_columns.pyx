# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with a variance in each column, or with the same one in all columns.

Diagonal covariances, normal-inverse-gamma: Murphy (2007), section 6.

    v ~ InvGamma(nu / 2, rate s / 2),  mu | v ~ N(u, v / r),  x | mu, v ~ N(mu, v)

in every column, independently; missing entries drop out. With n entries of mean x_bar and centred
sum of squares C in a column of a cluster, and rho = r + n,

    m = (r u + n x_bar) / rho,    S = s + C + (r n / rho) (x_bar - u)^2,
    t^2 = (x - m)^2 rho / ((rho + 1) S),
    p(x | cluster) = g_n S^(-1/2) (1 + t^2)^(-(nu + n + 1) / 2),
    g_n = (pi (rho + 1) / rho)^(-1/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n) / 2).

Spherical covariances: v and s are the same in all columns. A cluster has n_d entries in column d,
N in all. With rho_d and m_d as above, S = s + sum_d [C_d + (r n_d / rho_d) (x_bar_d - u_d)^2], and
for a row with entries in M columns, sums and products over these,

    p(x | cluster) = Gamma((nu + N + M) / 2) / Gamma((nu + N) / 2) (pi S)^(-M/2)
                     prod_d (rho_d / (rho_d + 1))^(1/2) (1 + sum_d t_d^2)^(-(nu + N + M) / 2).

Rows and statistics, and u above, are relative to an origin (u itself if that is fixed).
Hyperparameters: u (D), r, nu, s (D, or one), those of the law of the weights.

With weights (see _elliptical), one for all columns of a row, the terms of a column are

    g_n S^(-1/2) h^(1/2) (1 + t^2 h)^(-(nu + n + 1) / 2),    t^2 = (x - m)^2 / S,
    g_n = pi^(-1/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n) / 2).

A bound for any weight: h^(1/2) (1 + t^2 h)^-e with e = (nu + n + 1) / 2 is largest at
h = 1 / ((2 e - 1) t^2). As h is below the largest weight, a smaller t^2 counts as one at which
this bound is the root of that weight. Under spherical covariances h_d is in the place of
rho_d / (rho_d + 1), and t_d^2 without it.

Row: n; with weights numbers of items with each weight (G) and of their entries (G); then sets of
moments: numbers of entries, with weights their masses, means and sums of squares (D each) |

without weights  sum_d log S / s, whether all n_d are n, log g_n, m (D), t / (x - m) (D), S / s (D)
                 spherical: log S, the same, log of the density at m (if all n_d are n), m (D),
                 t / (x - m) (D), log(rho / (rho + 1)) (D, if entries may be missing)
with weights     peak, whether no entry is missing, exponent of complete rows; m, S^(-1/2), n, rho
                 (D each).
"""
cimport cython
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, NAN, M_PI as PI, exp, fabs, log, log1p, sqrt

import numpy as np

from skdpm._core._culling cimport ABOVE, BELOW, SLACK
from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, log_gamma_variate, random_standard_normal
from skdpm.mixture.likelihoods.contract._base cimport Indices, read_row, row
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    BOUND, COUNTS, LARGEST_LOSS, PEAK, WEIGHED, EllipticalModel, ParametricElliptical,
    log_positive, tile_keyed_moments
)
from skdpm.mixture.likelihoods.elliptical._hyper cimport GaussianLaws, log_step
from skdpm.mixture.likelihoods.contract._parametric cimport LD, TILE, ParametricModel, tile_gather

cdef double LOG_PI = log(PI)
cdef double LARGE = 1e150           # the product of two such numbers is finite
cdef double FAR = 300.0 * log(10.0)     # log of 1e150^2


cdef enum:
    N_TERMS = 3         # cached terms of a row before those of columns
    COMPLETE = 1        # whether no entry is missing
    EXPONENT = 2        # with weights, of complete rows
    # Rho differs between columns. The smallest t^2 is in its place: see `finish`.
    LEAST = 1


cdef extern from "tiles.h" nogil:
    bint tile_scale_products(
        const double* x, const double* center, const double* spread, Py_ssize_t n_features,
        const double* h, Py_ssize_t n_weights, double exponent, double* out
    )
    void tile_gaussian_diag(
        const double* x, Py_ssize_t ld, Py_ssize_t n, Py_ssize_t n_features, const double* w,
        const double* c, const double* log_w, double top, bint missing, double* out
    )
    void tile_moments(const double* x, Py_ssize_t n, double* count, double* mean, double* squares)


cdef inline void combine_moments(
    double* moments, const double* other, Py_ssize_t place, Py_ssize_t n_features
) noexcept nogil:
    """Numbers of entries, masses if there are weights, means (at `place`) and sums of squares of
    two clusters: Chan, Golub & LeVeque (1983), eq. 1.5; without cancellation."""
    cdef double* mass = moments + place - n_features
    cdef double* mean = moments + place
    cdef double* scatter = mean + n_features
    for d in range(n_features):
        if other[d] == 0.0:
            continue
        more = other[place - n_features + d]
        total = mass[d] + more
        gap = other[place + d] - mean[d]
        mean[d] += gap * more / total
        scatter[d] += other[place + n_features + d] + gap * gap * mass[d] * more / total
        if place > n_features:
            moments[d] += other[d]
        mass[d] = total


cdef inline double sum_logs(const double* x, Py_ssize_t n) noexcept nogil:
    """Sum of log x, with few logarithms."""
    cdef double product = 1.0, total = 0.0
    for d in range(n):
        if not 1.0 / LARGE < x[d] < LARGE:
            total += log(x[d])
            continue
        product *= x[d]
        if not 1.0 / LARGE < product < LARGE:
            total += log(product)
            product = 1.0
    return total + log(product)


cdef inline double log_factor(double x, double center, double spread) noexcept nogil:
    """log(1 + t^2), also if the square overflows."""
    cdef double t = fabs(x - center) * spread
    if t < LARGE:
        return log1p(t * t)
    return 2.0 * (log(fabs(x - center)) + log(spread))


cdef inline double log1p_square(double t, double h) noexcept nogil:
    """log(1 + t^2 h), t >= 0, also if the square overflows."""
    return log1p(t * t * h) if t < LARGE else 2.0 * log(t) + log(h)


cdef inline double log_factors(
    const double* x, const double* center, const double* spread, Py_ssize_t n    # IN (n,)
) noexcept nogil:
    """Sum of log(1 + t^2) over n columns, with few logarithms."""
    cdef double b, p, q
    cdef double product = 1.0
    cdef double total = 0.0
    # Sixteen factors between two checks for an overflow, in four products, so that no
    # multiplication waits for the one before.
    for d in range(0, n, 16):
        a = b = p = q = 1.0
        if n - d >= 16:
            for e in range(d, d + 16, 4):
                t = (x[e] - center[e]) * spread[e]
                u = (x[e + 1] - center[e + 1]) * spread[e + 1]
                v = (x[e + 2] - center[e + 2]) * spread[e + 2]
                w = (x[e + 3] - center[e + 3]) * spread[e + 3]
                a *= 1.0 + t * t
                b *= 1.0 + u * u
                p *= 1.0 + v * v
                q *= 1.0 + w * w
        else:
            for e in range(d, n):
                t = (x[e] - center[e]) * spread[e]
                a *= 1.0 + t * t
        a = (a * b) * (p * q)
        if a < LARGE:
            product *= a
            if product > LARGE:
                total += log(product)
                product = 1.0
        else:
            for e in range(d, min(d + 16, n)):
                total += log_factor(x[e], center[e], spread[e])
    return total + log(product)


cdef inline double log_far_tail(
    const double* x, const double* center, const double* spread, Py_ssize_t n_features
) noexcept nogil:
    """log sum_d t_d^2 where a square overflows."""
    cdef double total = 0.0
    for d in range(n_features):
        if x[d] == x[d]:
            t = (x[d] - center[d]) * 1e-200 * spread[d]
            total += t * t
    return log(total) - 2.0 * log(1e-200)


cdef class DiagonalModel(EllipticalModel):
    """Kernel of Gaussian clusters with diagonal covariances.

    `tables` are those of `EllipticalModel`, and

    - `missing`: Whether an entry of the data may be missing.
    - `log_norms`: Without weights, see `EllipticalModel`: log g_n.
    - `log_scale`: (n_samples,). Without weights: sum of log s over the columns of each item.
    """
    cdef const double* scale
    cdef bint missing
    cdef Py_ssize_t place_of_mean   # in a set of moments, behind numbers of entries and masses
    cdef const double[::1] log_scale    # None with weights or spherical covariances

    cdef int begin(self, tables, scale) except -1:
        cdef Py_ssize_t n_features = self.n_features
        cdef bint weighted = self.weights is not None
        expect_shape("scale", scale, (n_features,) * min(scale.ndim, 1))
        self.missing = tables["missing"]
        if scale.ndim == 1:
            self.half = 0.5     # of each column
        if "log_norms" in tables:
            self.share_norms(tables["log_norms"], 1.0)
            self.log_scale = tables["log_scale"]
        # Numbers of items with each weight, and of their entries.
        self.first_set = COUNTS + 2 * self.n_weights
        self.place_of_mean = (1 + weighted) * n_features
        self.n_set = self.place_of_mean + 2 * n_features
        return self.lay_out(N_TERMS + (3 + weighted) * n_features)

    cdef int take_hyperparameters(self) except -1:
        EllipticalModel.take_hyperparameters(self)
        self.scale = self.hyper + self.n_features + 2
        self.compute(self.empty)

    cdef int retabulate(self) except -1:
        if not np.min(self.hyperparameters()[self.n_features : self.first_law]) > 0.0:
            raise ValueError("Gaussian.mean_precision, Gaussian.df or Gaussian.scale is not > 0")
        if self.n_tabled > 0:
            self.renew_norms()
            self.sum_log_scales()
        return self.take_hyperparameters()

    cdef int sum_log_scales(self) except -1:
        """Set `log_scale`."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double total = 0.0
        cdef const double* x = self.X
        cdef const double* scale = self.hyper + n_features + 2
        cdef double[::1] log_scale = np.empty(self.n_samples)
        cdef double[::1] logs = np.empty(n_features)
        with nogil:
            for d in range(n_features):
                logs[d] = log(scale[d])
                total += logs[d]
            for i in range(self.n_samples):
                if self.missing:
                    total = 0.0
                    for d in range(n_features):
                        total += logs[d] if x[d] == x[d] else 0.0
                    x += n_features
                log_scale[i] = total
        self.log_scale = log_scale

    # Rows.

    cdef inline bint is_complete(self, const double* x) noexcept nogil:
        """Whether the item has no missing entry."""
        cdef bint complete = True
        if self.missing:
            for d in range(self.n_features):
                complete &= x[d] == x[d]
        return complete

    cdef inline double pool(
        self, const double* stats, Py_ssize_t d, const double* factors, double r, double u,
        double* n, double* rho, double* m       # OUT
    ) noexcept nogil:
        """C + (r W / rho) (x_bar - u)^2 of a column, from all sets of moments."""
        cdef Py_ssize_t place = self.place_of_mean
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set + d
        cdef double mass = 0.0, mean = 0.0, squares = 0.0
        n[0] = 0.0
        for k in range(self.n_sets):
            if moments[0] > 0.0:
                more = factors[k] * moments[place - n_features]
                gap = moments[place] - mean
                n[0] += moments[0]
                squares += factors[k] * moments[place + n_features]
                squares += mass * (more / (mass + more)) * gap * gap
                mean += more / (mass + more) * gap
                mass += more
            moments += self.n_set
        gap = mean - u if mass > 0.0 else 0.0
        rho[0] = r + mass
        m[0] = u + mass / rho[0] * gap
        return squares + r * mass / rho[0] * gap * gap

    cdef void compute_terms(self, double* stats) noexcept nogil:
        """Cached terms of clusters without weights, O(D)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef Columns c = columns_of(self, stats)
        cdef const double* scale = self.scale
        cdef const double* prior_mean = &self.prior_mean[0]
        cdef double last = -1.0, root = 0.0, shrink = 0.0
        cdef bint complete = True
        for d in range(n_features):
            if c.counts[d] != last:
                last = c.counts[d]
                rho = self.mean_precision + last
                shrink = last / rho
                root = sqrt(rho / (rho + 1.0))
                complete &= last == stats[0]
            gap = c.mean[d] - prior_mean[d]
            c.center[d] = prior_mean[d] + shrink * gap
            total = scale[d] + c.scatter[d] + self.mean_precision * shrink * gap * gap
            c.spread[d] = root / sqrt(total)
            c.ratio[d] = total / scale[d]
        c.cached[COMPLETE] = complete
        c.cached[2] = self.log_norm_of(stats[0])
        c.cached[0] = sum_logs(c.ratio, n_features)

    cdef void compute(self, double* stats) noexcept nogil:
        """O(D)."""
        cdef Columns c = columns_of(self, stats)
        cdef bint complete = True
        if self.weights is None:
            self.compute_terms(stats)
            return
        for d in range(self.n_features):
            c.spread[d] = self.pool(
                stats, d, self.factors, self.mean_precision, self.prior_mean[d], c.n + d,
                c.rho + d, c.center + d
            )
            complete &= c.n[d] == stats[0]
        c.cached[COMPLETE] = complete
        self.finish_weights(stats, c.rho[0], 0.0)
        self.finish(stats)

    cdef void finish(self, double* stats) noexcept nogil:
        """Set the cached terms of clusters with weights that differ between diagonal and spherical
        covariances, from sums of squares in the place of S^(-1/2)."""
        cdef Columns c = columns_of(self, stats)
        cdef double rest = self.df + stats[0]       # 2 e - 1
        for d in range(self.n_features):
            c.spread[d] += self.scale[d]
        total = sum_logs(c.spread, self.n_features)
        for d in range(self.n_features):
            c.spread[d] = 1.0 / sqrt(c.spread[d])
        c.cached[PEAK] = (
            self.n_features * (log_rising(0.5 * rest, 0.5) - 0.5 * LOG_PI) - 0.5 * total
        )
        c.cached[EXPONENT] = 0.5 * (rest + 1.0)
        # Squares are multiplied by 2 e - 1 in `bound_square`.
        square = -(rest + 1.0) * log_step(rest, 1.0)
        c.cached[self.terms + BOUND] = 0.5 * self.n_features * square
        c.cached[self.terms + LEAST] = exp(square) / self.weights.values[0]

    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil:
        """O(D), by Welford. False if removing x has cancelled too many digits of a column."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef double* n = self.set_of(stats, g)
        cdef double* mean = n + self.place_of_mean
        cdef double* mass = mean - n_features       # n, without weights
        cdef double* scatter = mean + n_features
        cdef double before = mass[0]
        cdef double weight = self.count(stats, g, sign)
        cdef double after = self.mass_of(stats, g)
        cdef double step = weight / after
        cdef double pull = weight * (before / after)
        cdef bint weighted = self.weights is not None
        cdef bint missing = self.missing
        for d in range(n_features):
            if missing:
                if not x[d] == x[d]:
                    continue
                before = mass[d]
                after = before + weight
                step = weight / after
                pull = weight * (before / after)
            if weighted:
                stats[self.first_set - self.n_weights + g] += sign
                n[d] += sign
            mass[d] = after
            gap = x[d] - mean[d]
            mean[d] += step * gap
            scatter[d] += pull * gap * gap
            if scatter[d] < 0.0:
                scatter[d] = 0.0
            if n[d] == 0.0:
                mass[d] = mean[d] = scatter[d] = 0.0
        self.compute(stats)
        return sign > 0.0 or not self.lost(stats, x, self.value_of(g))

    cdef bint lost(self, const double* stats, const double* x, double w) noexcept nogil:
        """Whether the removal of x has cancelled too many digits of a column."""
        cdef Columns c = columns_of(self, stats)
        cdef double largest = LARGEST_LOSS / sqrt(w)
        for d in range(self.n_features):
            if fabs(x[d] - c.center[d]) * c.spread[d] > largest:
                return True
        return False

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        combine_moments(moments, other, self.place_of_mean, self.n_features)

    # Marginal likelihoods and hyperparameters.

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
        """Murphy (2007), eq. 203, in every column."""
        cdef double n, rho, m
        cdef double last = 0.0, gain = 0.0
        cdef double r = self.mean_precision
        cdef double total = self.log_law(
            stats + COUNTS, stats + COUNTS + self.n_weights, 1.0, factors
        )
        for d in range(self.n_features):
            squares = self.pool(stats, d, factors, r, self.prior_mean[d], &n, &rho, &m)
            if n != last:
                last = n
                gain = log_rising(0.5 * self.df, 0.5 * n)
            total += gain - 0.5 * (
                log1p((rho - r) / r) + n * (LOG_PI + log(self.scale[d]))
                + (self.df + n) * log1p(squares / self.scale[d])
            )
        return total

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return DiagLaws(priors, values, *self.units, *self.pooled(stats))

    def pooled(self, stats):
        if self.weights is None:
            return stats, None
        n, masses, means, squares = self.weights.law.moments_by_column(
            stats, self.n_features, np.asarray(self.weights.factors)
        )
        return np.hstack([stats[:, :1], n, means, squares]), masses

    # Densities.

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        cdef const double* x = self.X + i * self.n_features
        cdef Columns c = columns_of(self, row(self, slot))
        cdef const double* h = c.cached + self.terms + WEIGHED + self.n_lanes
        cdef double logs[8]
        if not (c.cached[COMPLETE] and self.is_complete(x)):
            self.log_terms_entries(slot, x, first, n, out)
            return
        if n == 1:
            product = 1.0
            logs[0] = 0.0
            for d in range(self.n_features):
                t = fabs(x[d] - c.center[d]) * c.spread[d]
                if t < 1e50:
                    product *= 1.0 + t * t * h[first]
                    if product > LARGE:
                        logs[0] += log(product)
                        product = 1.0
                else:
                    logs[0] += log1p_square(t, h[first])
            logs[0] = -c.cached[EXPONENT] * (logs[0] + log_positive(product))
        elif not tile_scale_products(
            x, c.center, c.spread, self.n_features, h + first, n, c.cached[EXPONENT], logs
        ):
            self.log_terms_entries(slot, x, first, n, out)
            return
        for g in range(n):
            out[g] = c.cached[PEAK] + c.cached[self.terms + WEIGHED + first + g] + logs[g]

    cdef void log_terms_entries(
        self, Py_ssize_t slot, const double* x, Py_ssize_t first, Py_ssize_t n_terms, double* out
    ) noexcept nogil:
        """The same, entry by entry."""
        cdef Columns c = columns_of(self, row(self, slot))
        cdef double last = -1.0, gain = 0.0, exponent = 0.0
        for g in range(n_terms):
            out[g] = self.weights.log_probabilities[first + g]
        for d in range(self.n_features):
            if not x[d] == x[d]:
                continue
            if c.n[d] != last:
                last = c.n[d]
                gain = log_rising(0.5 * (self.df + last), 0.5) - 0.5 * LOG_PI
                exponent = 0.5 * (self.df + last + 1.0)
            t = fabs(x[d] - c.center[d]) * c.spread[d]
            for g in range(n_terms):
                w = self.weights.values[first + g]
                h = c.rho[d] * w / (c.rho[d] + w)
                out[g] += gain + log(c.spread[d]) + 0.5 * log(h) - exponent * log1p_square(t, h)

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """The product over columns of t^2 (2 e - 1)."""
        cdef const double* x = self.X + i * self.n_features
        cdef const double* stats = row(self, slot)
        cdef Columns c = columns_of(self, stats)
        cdef double rest = self.df + stats[0]
        cdef double least = c.cached[self.terms + LEAST]
        cdef double product = 1.0
        if not (c.cached[COMPLETE] and self.is_complete(x)):
            return NAN
        for d in range(self.n_features):
            t = (x[d] - c.center[d]) * c.spread[d]
            t *= t * rest
            product *= t if t > least else least
            if product < 1e-200:
                return NAN
            if product > 1e200:     # farther away any bound will do
                product = 1e200
        return product

    cdef double log_predictive_entries(self, const double* stats, Py_ssize_t i) noexcept nogil:
        """log p(x_i | cluster) where an entry is missing, of the row or of one in the cluster:
        entry by entry. Neighbouring columns with the same number of entries share a logarithm."""
        cdef const double* x = self.X + i * self.n_features
        cdef Columns c = columns_of(self, stats)
        cdef double n = stats[0]        # of the run
        cdef double gain = c.cached[2]
        cdef double factors = 1.0       # its product of 1 + t^2
        cdef double ratios = 1.0        # product of S / s, over runs
        cdef double total = 0.0
        for d in range(self.n_features):
            if not x[d] == x[d]:
                continue
            if c.counts[d] != n:
                total -= 0.5 * (self.df + n + 1.0) * log(factors)
                factors = 1.0
                n = c.counts[d]
                gain = self.log_norm_of(n)
            total += gain
            t = (x[d] - c.center[d]) * c.spread[d]
            t = 1.0 + t * t
            if t < LARGE and factors < LARGE:
                factors *= t
            else:
                total -= 0.5 * (self.df + n + 1.0) * log_factor(x[d], c.center[d], c.spread[d])
            if c.ratio[d] < LARGE and ratios < LARGE:
                ratios *= c.ratio[d]
            else:
                total -= 0.5 * log(c.ratio[d])
        total -= 0.5 * (self.df + n + 1.0) * log(factors)
        return total - 0.5 * log(ratios) - 0.5 * self.log_scale[i]

    cdef double log_predictive_complete(self, const double* stats, Py_ssize_t i) noexcept nogil:
        """The same where none is: a product of Student t densities, or one of all columns."""
        cdef Py_ssize_t n_features = self.n_features
        cdef Columns c = columns_of(self, stats)
        return (
            n_features * c.cached[2] - 0.5 * (self.log_scale[i] + c.cached[0])
            - 0.5 * (self.df + stats[0] + 1.0)
            * log_factors(self.X + i * n_features, c.center, c.spread, n_features)
        )

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * D)."""
        cdef const double* x = self.X + i * self.n_features
        if self.weights is not None:
            self.log_weighted_many(slots, i, out)
            return
        complete = self.is_complete(x)
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            if complete and stats[self.n_stats + COMPLETE] == 1.0:
                out[k] = self.log_predictive_complete(stats, i)
            else:
                out[k] = self.log_predictive_entries(stats, i)

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        for k in range(slots.n):
            out[k] = INFINITY
            if row(self, slots.at[k])[self.n_stats + COMPLETE] == 1.0:
                out[k] = self.log_bound(slots.at[k], box)

    cdef double log_bound(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """In each column |x - m| is at least max(0, |c - m| - h), with the centre c and the
        half-width h of the box. Only for rows without missing entries."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef Columns c = columns_of(self, stats)
        cdef double product = 1.0, tail = 0.0
        for d in range(n_features):
            t = (fabs(box[d] - c.center[d]) * BELOW - box[n_features + d] * ABOVE) * c.spread[d]
            if t > 0.0:
                product *= 1.0 + min(t * t, LARGE)  # farther away any bound will do
                if product > LARGE:
                    tail += log(product)
                    product = 1.0
        tail = 0.5 * (self.df + stats[0] + 1.0) * (tail + log(product))
        peak = n_features * c.cached[2] - 0.5 * (self.log_scale[0] + c.cached[0])
        return peak - tail + SLACK * (1.0 + fabs(n_features * c.cached[2]) + fabs(peak) + tail)

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """Let an item be at t = x - m in a column, and let rho count the item. Without it,

            S becomes S (1 - a),  a = t^2 rho / ((rho - 1) S),

        and its density is g_{n-1} S^(-1/2) (1 - a)^((nu + n - 1) / 2). This falls with |t|, which
        is at most |c - m| + h, with the centre c and the half-width h of the box."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef Columns c = columns_of(self, stats)
        cdef double rho = self.mean_precision + stats[0]
        # From the spread, which is for a new row, rho / ((rho + 1) S).
        cdef double ratio = (rho + 1.0) / (rho - 1.0) * ABOVE
        cdef double product = 1.0, tail = 0.0
        if c.cached[COMPLETE] != 1.0:
            return -INFINITY
        for d in range(n_features):
            t = (fabs(box[d] - c.center[d]) + box[n_features + d]) * ABOVE * c.spread[d]
            t = 1.0 - t * t * ratio
            if not t > 1e-3:    # few digits are left, and little time would be saved
                return -INFINITY
            product *= t
            if product < 1e-150:
                tail += log(product)
                product = 1.0
        tail = 0.5 * (self.df + stats[0] - 1.0) * (tail + log(product))
        peak = n_features * self.log_norm_of(stats[0] - 1.0)
        t = 0.5 * (self.log_scale[0] + c.cached[0])
        return peak - t + tail - SLACK * (1.0 + fabs(peak) + fabs(t) - tail)


cdef struct Columns:
    # Numbers of a cluster in its row, (D,) each except `cached`: see the head of this file.
    double* counts      # statistics, without weights
    double* mean
    double* scatter
    double* cached      # (N_TERMS,)
    double* center
    double* spread
    double* ratio       # without weights
    double* n           # with weights
    double* rho


cdef inline Columns columns_of(DiagonalModel model, const double* stats) noexcept nogil:
    cdef Columns c
    cdef Py_ssize_t n_features = model.n_features
    c.counts = <double*>stats + 1
    c.mean = c.counts + n_features
    c.scatter = c.mean + n_features
    c.cached = <double*>stats + model.n_stats
    c.center = c.cached + N_TERMS
    c.spread = c.center + n_features
    c.ratio = c.n = c.spread + n_features
    c.rho = c.n + n_features
    return c


@cython.final
cdef class SphericalModel(DiagonalModel):
    """Kernel of Gaussian clusters with one variance each. `tables` are those of `EllipticalModel`
    and `missing` of `DiagonalModel`; `scale` is s, ()."""

    cdef void compute_terms(self, double* stats) noexcept nogil:
        """Cached terms of clusters without weights, O(D)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef Columns c = columns_of(self, stats)
        cdef double r = self.mean_precision
        cdef double last = -1.0
        cdef double root = 0.0
        cdef double shrink = 0.0
        cdef double total = self.scale[0]
        cdef double n_entries = 0.0
        cdef bint complete = True
        for d in range(n_features):
            if c.counts[d] != last:
                last = c.counts[d]
                shrink = last / (r + last)
                root = sqrt((r + last) / (r + last + 1.0))
            n_entries += last
            complete &= last == stats[0]
            gap = c.mean[d] - self.prior_mean[d]
            c.center[d] = self.prior_mean[d] + shrink * gap
            c.spread[d] = root
            total += c.scatter[d] + r * shrink * gap * gap
        gap = 1.0 / sqrt(total)
        for d in range(n_features):
            if self.missing:
                c.ratio[d] = 2.0 * log(c.spread[d])
            c.spread[d] *= gap
        c.cached[0] = log(total)
        c.cached[COMPLETE] = complete
        c.cached[2] = log_rising(0.5 * (self.df + n_entries), 0.5 * n_features) - n_features * (
            0.5 * (log(PI) + c.cached[0]) - log(root)
        )

    cdef void finish(self, double* stats) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef Columns c = columns_of(self, stats)
        cdef double total = self.scale[0]
        cdef double size = self.df
        for d in range(n_features):
            total += c.spread[d]
            size += c.n[d]
        root = 1.0 / sqrt(total)
        for d in range(n_features):
            c.spread[d] = root
        c.cached[PEAK] = log_rising(0.5 * size, 0.5 * n_features) - 0.5 * n_features * (
            LOG_PI + log(total)
        )
        c.cached[EXPONENT] = 0.5 * (size + n_features)
        # At the largest h^(D/2) (1 + q h)^-e: q h = D / (2 e - D).
        c.cached[self.terms + BOUND] = 0.5 * (
            n_features * log(n_features / size) - (size + n_features) * log_step(size, n_features)
        )

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
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

    # Densities of rows with weights.

    cdef double square(self, const double* x, const double* center, double unit) noexcept nogil:
        """The square of the distance of the known entries, times unit^2."""
        cdef double total = 0.0
        for d in range(self.n_features):
            t = (x[d] - center[d]) * unit
            if t == t:
                total += t * t
        return total

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        cdef const double* x = self.X + i * self.n_features
        cdef Columns c = columns_of(self, row(self, slot))
        cdef const double* weighed = c.cached + self.terms + WEIGHED + first
        if not (c.cached[COMPLETE] and self.is_complete(x)):
            self.log_terms_entries(slot, x, first, n, out)
            return
        q = self.square(x, c.center, c.spread[0])
        for g in range(n):
            out[g] = c.cached[PEAK] + weighed[g] - c.cached[EXPONENT] * self.log_tail(
                q, weighed[self.n_lanes + g], x, c.center
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
        cdef Columns c = columns_of(self, row(self, slot))
        cdef double size = self.df
        cdef double n_known = 0.0
        for d in range(self.n_features):
            size += c.n[d]
            n_known += x[d] == x[d]
        peak = log_rising(0.5 * size, 0.5 * n_known) + n_known * (log(c.spread[0]) - 0.5 * LOG_PI)
        for g in range(n_terms):
            w = self.weights.values[first + g]
            out[g] = self.weights.log_probabilities[first + g] + peak
            for d in range(self.n_features):
                if x[d] == x[d]:
                    out[g] += 0.5 * log(c.rho[d] * w / (c.rho[d] + w))
            q = self.weighed_square(x, c.center, c.spread[0], w)
            if q < 1e300:
                q = log1p(q)
            else:
                q = log(self.weighed_square(x, c.center, 1e-150 * c.spread[0], w)) + FAR
            out[g] -= 0.5 * (size + n_known) * q

    cdef double weighed_square(
        self, const double* x, const double* center, double unit, double w
    ) noexcept nogil:
        """The sum of t^2 h over the known entries at a weight w, times unit^2 S."""
        cdef const double* rho = center + 3 * self.n_features
        cdef double total = 0.0
        for d in range(self.n_features):
            t = (x[d] - center[d]) * unit
            if t == t:
                total += t * t * (rho[d] * w / (rho[d] + w))
        return total

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef const double* x = self.X + i * self.n_features
        cdef Columns c = columns_of(self, row(self, slot))
        if not (c.cached[COMPLETE] and self.is_complete(x)):
            return NAN
        return self.square(x, c.center, c.spread[0])

    # Without weights.

    cdef double log_predictive_entries(self, const double* stats, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef Columns c = columns_of(self, stats)
        cdef double n_entries = 0.0, n_present = 0.0, q = 0.0, total = 0.0
        for d in range(n_features):
            n_entries += c.counts[d]
            if x[d] == x[d]:
                n_present += 1.0
                t = (x[d] - c.center[d]) * c.spread[d]
                q += t * t
                total += c.ratio[d]
        q = log1p(q) if q < 1e300 else log_far_tail(x, c.center, c.spread, n_features)
        n_entries += self.df
        return log_rising(0.5 * n_entries, 0.5 * n_present) + 0.5 * (
            total - n_present * (log(PI) + c.cached[0]) - (n_entries + n_present) * q
        )

    cdef double log_predictive_complete(self, const double* stats, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef Columns c = columns_of(self, stats)
        cdef double q = 0.0
        for d in range(n_features):
            t = (x[d] - c.center[d]) * c.spread[d]
            q += t * t
        q = log1p(q) if q < 1e300 else log_far_tail(x, c.center, c.spread, n_features)
        return c.cached[2] - 0.5 * (self.df + (stats[0] + 1.0) * n_features) * q

    cdef double log_bound(self, Py_ssize_t slot, const double* box) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef Columns c = columns_of(self, stats)
        cdef double q = 0.0
        for d in range(n_features):
            t = (fabs(box[d] - c.center[d]) * BELOW - box[n_features + d] * ABOVE) * c.spread[d]
            if t > 0.0:
                q += t * t
        # Farther away, any lower bound of q will do.
        q = 0.5 * (self.df + (stats[0] + 1.0) * n_features) * log1p(min(q, 1e300))
        return c.cached[2] - q + SLACK * (1.0 + fabs(c.cached[2]) + q)

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """As in `DiagonalModel`, with t = |x - m| over all columns: an item's density is

            c_{n-1} S^(-D/2) (1 - a)^((nu + (n - 1) D) / 2),  a = t^2 rho / ((rho - 1) S)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef Columns c = columns_of(self, stats)
        cdef double rho = self.mean_precision + stats[0]
        cdef double nu = self.df + (stats[0] - 1.0) * n_features
        cdef double q = 0.0
        if c.cached[COMPLETE] != 1.0:
            return -INFINITY
        for d in range(n_features):
            t = (fabs(box[d] - c.center[d]) + box[n_features + d]) * ABOVE * c.spread[d]
            q += t * t
        # From the spread, which is for a new row, rho / ((rho + 1) S).
        q = 1.0 - q * ABOVE * (rho + 1.0) / (rho - 1.0)
        if not q > 1e-3:    # few digits are left, and little time would be saved
            return -INFINITY
        q = 0.5 * nu * log(q)
        peak = log_rising(0.5 * nu, 0.5 * n_features) - 0.5 * n_features * (
            log(PI) + c.cached[0] - log1p(-1.0 / rho)
        )
        return peak + q - SLACK * (1.0 + fabs(peak) - q)


@cython.final
cdef class DiagLaws(GaussianLaws):
    """Conditional laws of hyperparameters of diagonal covariances, or spherical ones.

    - `stats`: (n_clusters, n_stats)
    - `masses`: (n_clusters, n_features), optional. Precisions of the means, in units of 1 / v.
      Default: the numbers of entries.
    """
    cdef const double[:, :, ::1] stats  # (K, 3, D): n, x_bar and C, in units of the spreads
    cdef const double[:, ::1] masses    # (K, D): precisions of the means, in units of 1 / v: n
    # Of each variance, D or one:
    cdef const double[:, ::1] sizes     # (K, n_scales): entries
    cdef const double[::1] entries      # (n_scales,): the same over all clusters
    cdef double[:, ::1] squares         # (K, n_scales): see `sum_squares`
    cdef double[::1] precisions         # (K,): 1 / v, scratch

    def __init__(self, priors, values, spread, origin, floor, stats, masses=None):
        GaussianLaws.__init__(self, priors, values, spread, origin, 0.0, floor)
        counts = np.ascontiguousarray(stats[:, 1 : 1 + self.n_features])
        self.n_clusters = len(stats)
        self.stats = stats[:, 1:].reshape(-1, 3, self.n_features) / np.stack(
            [np.ones_like(spread), spread, spread**2]
        )
        self.masses = counts if masses is None else np.ascontiguousarray(masses)
        # All rows may be noise: without clusters, reshape cannot tell a length of -1.
        n_columns = self.n_features // self.n_scales
        sizes = counts.reshape(self.n_clusters, self.n_scales, n_columns).sum(axis=2)
        self.sizes, self.entries = sizes, sizes.sum(axis=0)
        self.squares = np.empty((self.n_clusters, self.n_scales))
        self.precisions = np.empty(self.n_clusters)

    cdef inline double sum_squares(self, Py_ssize_t k, Py_ssize_t v, double r) noexcept nogil:
        """The sum of C + w (x_bar - u)^2 over the columns of a variance."""
        cdef Py_ssize_t n_columns = self.n_features // self.n_scales
        cdef double total = 0.0
        for d in range(v * n_columns, (v + 1) * n_columns):
            if self.stats[k, 0, d] > 0.0:
                gap = self.stats[k, 1, d] - self.u[d]
                total += self.stats[k, 2, d] + gap * gap / (1.0 / r + 1.0 / self.masses[k, d])
        return total

    cdef double log_ratios(self, Py_ssize_t k, double r, double excess) noexcept nogil:
        """Of cluster k: the sum over its variances of (nu + n) log(S / s). Neighbours with the
        same number of entries share a logarithm."""
        cdef double last = 0.0, product = 1.0, total = 0.0
        for v in range(self.n_scales):
            n = self.sizes[k, v]
            if n > 0.0:
                ratio = 1.0 + self.sum_squares(k, v, r) / self.any_scale(v, excess)
                if n != last or not (ratio < LARGE and product < LARGE):
                    total += (excess + last) * log(product)
                    product = 1.0
                    last = n
                if ratio < LARGE:
                    product *= ratio
                else:
                    total += (excess + n) * log(ratio)
        return total + (excess + last) * log(product)

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        cdef double last = 0.0, log_ratio = 0.0, total = 0.0
        for k in range(self.n_clusters):
            for d in range(self.n_features):
                n = self.masses[k, d]
                if n != last:
                    log_ratio = log1p(n / r)
                    last = n
                total -= log_ratio
            total -= self.log_ratios(k, r, self.excess)
        return 0.5 * total

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        cdef double last = 0.0, log_gammas = 0.0, total = 0.0
        if self.learns_scale:
            for v in range(self.n_scales):
                total -= 0.5 * self.entries[v] * log(self.any_scale(v, excess))
        for k in range(self.n_clusters):
            for v in range(self.n_scales):
                n = self.sizes[k, v]
                if n != last:
                    log_gammas = log_rising(0.5 * excess, 0.5 * n)
                    last = n
                total += log_gammas
            total -= 0.5 * self.log_ratios(k, self.r, excess)
        return total

    cdef bint prepare_scale(self) noexcept nogil:
        for k in range(self.n_clusters):
            for v in range(self.n_scales):
                self.squares[k, v] = self.sum_squares(k, v, self.r)
        return True

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        cdef double scale = self.scale_of(d, self.excess, t)
        cdef double total = -0.5 * self.entries[d] * log(scale)
        for k in range(self.n_clusters):
            total -= 0.5 * (self.excess + self.sizes[k, d]) * log1p(self.squares[k, d] / scale)
        return total

    cdef void draw_precisions(self, Py_ssize_t v, bitgen_t* rng) noexcept nogil:
        """Draw 1 / v in all clusters with entries of a variance."""
        for k in range(self.n_clusters):
            if self.sizes[k, v] > 0.0:
                half = 0.5 * (self.sum_squares(k, v, self.r) + self.any_scale(v, self.excess))
                self.precisions[k] = log_gamma_variate(rng, 0.5 * (self.excess + self.sizes[k, v]))
                self.precisions[k] = exp(self.precisions[k]) / half

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """Normal given variances, of precision 1 + sum_k w_k / v_k, column by column."""
        cdef double total, weight
        for d in range(self.n_features):
            if d < self.n_scales:
                self.draw_precisions(d, rng)
            precision = 1.0
            total = 0.0
            for k in range(self.n_clusters):
                if self.stats[k, 0, d] > 0.0:
                    weight = self.precisions[k] / (1.0 / self.r + 1.0 / self.masses[k, d])
                    precision += weight
                    total += weight * (self.stats[k, 1, d] - self.center[d])
            self.u[d] = (
                self.center[d] + total / precision + random_standard_normal(rng) / sqrt(precision)
            )
        return True


cdef class ParametricDiagonal(ParametricElliptical):
    """Gaussian rows under drawn means and precisions of columns.

    Parameters, w = v^-1/2: sum_d log w - D log(2 pi) / 2, w (D), w mu (D), log w - log(2 pi) / 2.

    - `missing`: bool. Whether an entry of the data, in this block or another, may be missing.
    """
    def __init__(self, X, mean, double mean_precision, double df, bint missing):
        ParametricElliptical.__init__(self, X, mean, mean_precision, df, 1 + 3 * X.shape[1])
        self.missing = missing

    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        Indices which, double* out      # OUT (which.n, TILE)
    ) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        for k in range(which.n):
            theta = params + which.at[k] * self.n_params
            tile_gaussian_diag(
                self.columns + first, LD, n_items, n_features, theta + 1, theta + 1 + n_features,
                theta + 1 + 2 * n_features, theta[0], self.missing, out + k * TILE
            )

    cdef void log_density_bound_many(
        self, const double* params, Indices which, const double* box, double* lower, double* upper
    ) noexcept nogil:
        """In each column |w x - w mu| is between max(0, |w c - w mu| - r) and |w c - w mu| + r,
        with the box's centre c and half-width h, and r = w h plus rounding, a share of the terms.
        Only for rows without missing entries."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* half = box + n_features
        cdef double most
        for k in range(which.n):
            w = params + which.at[k] * self.n_params + 1
            c = w + n_features
            log_w = c + n_features
            top = w[-1]
            size = fabs(top)
            least = most = 0.0
            for d in range(n_features):
                value = w[d] * box[d]
                r = w[d] * half[d]
                r = r * ABOVE + 16.0 * DBL_EPSILON * (fabs(value) + fabs(c[d]) + r)
                z = fabs(value - c[d])
                most += (z + r) * (z + r)
                z -= r
                if not z <= 0.0:
                    least += z * z
                size += fabs(log_w[d])
            # A row that is farther away has the density 0.
            least = 0.5 * min(least, 1e300)
            most *= 0.5
            lower[k] = top - most - SLACK * (1.0 + size + most)
            upper[k] = top - least + SLACK * (1.0 + size + least)


cdef inline double add_squares(
    ParametricDiagonal model, const double* stats, double power, Py_ssize_t d, double total
) noexcept nogil:
    """total plus S - s of a column."""
    cdef Py_ssize_t n_features = model.n_features
    cdef double n = power * stats[1 + d]
    cdef double gap = stats[1 + n_features + d] - model.mean[d]
    return (
        total + power * stats[1 + 2 * n_features + d]
        + model.mean_precision * n / (model.mean_precision + n) * gap * gap
    )


cdef class ParametricGaussianDiag(ParametricDiagonal):
    """Gaussian rows under drawn means and variances, one for each column or for all.

    With S, m and rho as above, 1 / v ~ Gamma((nu + n) / 2, rate S / 2), with N for n if columns
    share v, and mu | v ~ N(m, v / rho).

    - `scale`: (n_features,), or (1,) if columns share v. s.
    """
    cdef const double[::1] scale

    def __init__(
        self, X, mean, const double[::1] scale, double mean_precision, double df, bint missing
    ):
        ParametricDiagonal.__init__(self, X, mean, mean_precision, df, missing)
        self.scale = scale

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* counts = stats + 1
        cdef const double* mean = counts + n_features
        cdef double* w = params + 1
        cdef double* center = w + n_features
        cdef double* log_w = center + n_features
        cdef double n_entries = 0.0
        cdef double total = self.scale[0]
        cdef double log_root = 0.0      # log w
        cdef bint shared = self.scale.shape[0] < n_features
        for d in range(n_features if shared else 0):
            n_entries += power * counts[d]
            total = add_squares(self, stats, power, d, total)
        if shared:
            log_root = log_gamma_variate(rng, 0.5 * (self.df + n_entries))
            log_root = 0.5 * (log_root - log(0.5 * total))
        params[0] = 0.0
        for d in range(n_features):
            n = power * counts[d]
            rho = self.mean_precision + n
            if not shared:
                total = add_squares(self, stats, power, d, self.scale[d])
                log_root = 0.5 * (log_gamma_variate(rng, 0.5 * (self.df + n)) - log(0.5 * total))
            w[d] = exp(log_root)
            center[d] = (self.mean[d] + n / rho * (mean[d] - self.mean[d])) * w[d]
            center[d] += random_standard_normal(rng) / sqrt(rho)
            log_w[d] = log_root - 0.5 * log(2.0 * PI)
            params[0] += log_w[d]

    cdef void accumulate_loaded(
        self, double* stats, Py_ssize_t first, Py_ssize_t n_items,
        const Py_ssize_t* keys, Py_ssize_t key      # IN (n_items,): those with the key join
    ) noexcept nogil:
        """Loaded items have no missing entries."""
        cdef double moments[15]
        cdef double* out = &self.moments[1]
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n_features = self.n_features
        if n_features > 4:
            ParametricModel.accumulate_loaded(self, stats, first, n_items, keys, key)
            return
        tile_keyed_moments(
            self.columns + first, LD, n_items, keys, key, n_features, self.gaps, moments
        )
        self.moments[0] = moments[0]
        for d in range(n_features):
            out[d] = moments[0]
            out[n_features + d] = moments[1 + d]
            out[2 * n_features + d] = moments[1 + n_features + t]
            t += n_features - d
        if moments[0] > 0.0:
            self.combine(stats, &self.moments[0])

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        """The moments of the items by themselves, about their own mean; then both together."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double* moments = &self.moments[1]
        tile_gather(self.points, n_features, items.at, items.n, &self.work[0], LD)
        self.moments[0] = items.n
        for d in range(n_features):
            tile_moments(
                &self.work[d * LD], items.n, moments + d, moments + n_features + d,
                moments + 2 * n_features + d
            )
        self.combine(stats, &self.moments[0])

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        stats[0] += other[0]
        combine_moments(stats + 1, other + 1, self.n_features, self.n_features)
