# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with heavy tails and diagonal or spherical covariances: the priors and the
symbols of _gaussian_diag and _gaussian_spherical, and

    x_i | mu, v, w_i ~ N(mu, v / w_i)

in every column, with one weight w_i for the row: see _gaussian_tails. Missing entries drop out.
With n entries of a column of a cluster, their weights' sum W, x_bar = sum w x / W,
C = sum w (x - x_bar)^2, rho = r + W, S = s + C + (r W / rho) (x_bar - u)^2 and
h = rho w / (rho + w), the terms of a column are

    diagonal    g_n S^(-1/2) h^(1/2) (1 + t^2 h)^(-(nu + n + 1) / 2),    t^2 = (x - m)^2 / S,
                g_n = pi^(-1/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n) / 2).

A spherical cluster has one S, the sum over columns, N entries in all, and for M entries of a row

    Gamma((nu + N + M) / 2) / Gamma((nu + N) / 2) (pi S)^(-M/2) prod_d h_d^(1/2)
    (1 + sum_d t_d^2 h_d)^(-(nu + N + M) / 2).

Bounds for any weight: h^(1/2) (1 + t^2 h)^-e with e = (nu + n + 1) / 2 is largest at
h = 1 / ((2 e - 1) t^2). As h is below the largest weight, a smaller t^2 counts as one at which
this bound is the root of that weight.

Row: n, number of items with each weight (G), of their entries (G), then for each set of moments
numbers of entries, masses, means and sums of squares (D each) | peak, a bound, whether no entry is
missing, exponent of complete rows, the smallest t^2, for each weight log p(w) h^(D/2) (G) and h
(G); m, S^(-1/2), n, rho (D each).
"""
cimport cython
from libc.math cimport NAN
from libc.math cimport M_PI as PI
from libc.math cimport exp, fabs, log, log1p, sqrt
from libc.string cimport memcpy

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm.mixture.likelihoods.contract._base cimport row
from skdpm.mixture.likelihoods.gaussian._gaussian_hyper cimport labels_show, log_step
from skdpm.mixture.likelihoods.gaussian._tails cimport (
    BOUND, COUNTS, MOST_WEIGHTS, PEAK, WeighedModel, weigh
)

from skdpm.mixture.likelihoods.gaussian._gaussian_diag import DiagLaws
from skdpm.mixture.likelihoods.gaussian._gaussian_spherical import SphericalLaws

cdef double LOG_PI = log(PI)
cdef double LARGE = 1e150
cdef double FAR = 300.0 * log(10.0)     # log of 1e150^2
# Largest square of an item that leaves, relative to what remains.
cdef double LARGEST_LOSS = 1e4

cdef enum:
    # Cached terms of a row, behind its statistics.
    COMPLETE = 2        # after PEAK and BOUND
    EXPONENT = 3
    LEAST = 4
    WEIGHED = 5         # log p(w) h^(D/2), then h, each (n_lanes,)


cdef extern from "tiles.h" nogil:
    double log_positive(double x)
    bint tile_scale_products(
        const double* x, const double* center, const double* spread, Py_ssize_t n_features,
        const double* h, Py_ssize_t n_weights, double exponent, double* out
    )


cdef inline double log1p_square(double t, double h) noexcept nogil:
    """log(1 + t^2 h), t >= 0, also if the square overflows."""
    return log1p(t * t * h) if t < LARGE else 2.0 * log(t) + log(h)


cdef class GaussianDiagTailsModel(WeighedModel):
    """Kernel of Gaussian clusters with diagonal covariances and heavy tails.

    Parameters
    ----------
    data, tables, mean, mean_precision, df, scale
        See `GaussianDiagModel`; of the tables, `n_max`, `missing`, `origin`, `spread` and `floor`.
    law : Tails
        Law of the weights.
    law_values : ndarray of shape (n_law_values,)
        Its parameters.
    """
    cdef bint missing
    cdef Py_ssize_t entries         # place of the numbers of entries with each weight
    cdef Py_ssize_t center          # place of m behind the statistics
    cdef const double* scale        # s

    def __init__(
        self, data, tables, mean, double mean_precision, double df, scale, law, law_values
    ):
        self.begin(data, tables, mean, mean_precision, df, scale, law, law_values)
        self.missing = tables["missing"]
        self.entries = COUNTS + self.n_weights
        self.first_set = self.entries + self.n_weights
        self.n_set = 4 * self.n_features
        self.center = WEIGHED + 2 * self.n_lanes
        self.half = self.bound_power()
        self.allocate(
            self.first_set + self.n_sets * self.n_set,
            self.first_set + (self.n_sets + 1) * self.n_set + self.center,
        )
        self.reserve_kept()
        self.retabulate()
        self.declare_incomplete(data["incomplete"])

    cdef double bound_power(self) noexcept nogil:
        return 0.5

    cdef int retabulate(self) except -1:
        if not np.min(self.hyperparameters()[self.n_features : self.first_law]) > 0.0:
            raise ValueError("Gaussian.mean_precision, Gaussian.df or Gaussian.scale is not > 0")
        self.take_prior()
        self.scale = self.hyper + self.n_features + 2
        self.compute(self.empty)
        return 0

    # Rows.

    cdef inline double pool(
        self, const double* stats, Py_ssize_t d, const double* factors, double r, double u,
        double* n, double* rho, double* m       # OUT
    ) noexcept nogil:
        """C + (r W / rho) (x_bar - u)^2 of a column, from all sets of moments."""
        cdef Py_ssize_t k
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set + d
        cdef double mass = 0.0
        cdef double mean = 0.0
        cdef double squares = 0.0
        cdef double gap, more
        n[0] = 0.0
        for k in range(self.n_sets):
            if moments[0] > 0.0:
                more = factors[k] * moments[n_features]
                gap = moments[2 * n_features] - mean
                n[0] += moments[0]
                squares += factors[k] * moments[3 * n_features]
                squares += mass * (more / (mass + more)) * gap * gap
                mean += more / (mass + more) * gap
                mass += more
            moments += self.n_set
        gap = mean - u if mass > 0.0 else 0.0
        rho[0] = r + mass
        m[0] = u + mass / rho[0] * gap
        return squares + r * (mass / rho[0]) * gap * gap

    cdef void compute(self, double* stats) noexcept nogil:
        """Cached terms from the statistics, O(D)."""
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + self.center
        cdef double* spread = center + n_features
        cdef double* n = spread + n_features
        cdef double* rho = n + n_features
        cdef bint complete = True
        self.n_last = 0
        for d in range(n_features):
            spread[d] = self.pool(
                stats, d, &self.weights.factors[0], self.mean_precision, self.prior_mean[d],
                n + d, rho + d, center + d
            )
            complete &= n[d] == stats[0]
        cached[COMPLETE] = complete
        weigh(self, rho[0], cached + WEIGHED)
        self.finish(stats)

    cdef void finish(self, double* stats) noexcept nogil:
        """Set the cached terms that differ between diagonal and spherical covariances, from sums
        of squares in the place of S^(-1/2)."""
        cdef Py_ssize_t d
        cdef double* cached = stats + self.n_stats
        cdef double* spread = cached + self.center + self.n_features
        cdef double product = 1.0
        cdef double total = 0.0
        cdef double rest = self.df + stats[0]       # 2 e - 1
        cdef double square
        for d in range(self.n_features):
            square = self.scale[d] + spread[d]
            spread[d] = 1.0 / sqrt(square)
            if 1.0 / LARGE < square < LARGE:
                product *= square
                if not 1.0 / LARGE < product < LARGE:
                    total += log(product)
                    product = 1.0
            else:
                total += log(square)
        total += log(product)
        cached[PEAK] = (
            self.n_features * (log_rising(0.5 * rest, 0.5) - 0.5 * LOG_PI) - 0.5 * total
        )
        cached[EXPONENT] = 0.5 * (rest + 1.0)
        # Squares are multiplied by 2 e - 1 in `bound_square`.
        square = -(rest + 1.0) * log_step(rest, 1.0)
        cached[BOUND] = 0.5 * self.n_features * square
        cached[LEAST] = exp(square) / self.weights.values[0]

    cdef void change(
        self, double* stats, const double* x, Py_ssize_t g, double by
    ) noexcept nogil:
        """Item x of weight number g enters (by = 1) or leaves (by = -1)."""
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef double* n = self.set_of(stats, g)
        cdef double* mass = n + n_features
        cdef double* mean = mass + n_features
        cdef double* scatter = mean + n_features
        cdef double weight = by * self.weights.relative[g]
        cdef double before, gap, total
        stats[0] += by
        stats[COUNTS + g] += by
        total = self.mass_of(stats, g)
        for d in range(n_features):
            if self.missing and not x[d] == x[d]:
                continue
            stats[self.entries + g] += by
            n[d] += by
            if n[d] == 0.0:
                mass[d] = mean[d] = scatter[d] = 0.0
                continue
            before = mass[d]
            mass[d] = before + weight if self.missing else total
            gap = x[d] - mean[d]
            mean[d] += weight / mass[d] * gap
            scatter[d] += weight * (before / mass[d]) * gap * gap
            if scatter[d] < 0.0:
                scatter[d] = 0.0

    cdef bint lost(self, const double* stats, const double* x, Py_ssize_t g) noexcept nogil:
        """Whether the removal of x has cancelled too many digits of a column."""
        cdef Py_ssize_t d
        cdef const double* center = stats + self.n_stats + self.center
        cdef const double* spread = center + self.n_features
        cdef double largest = sqrt(LARGEST_LOSS / self.weights.values[g])
        for d in range(self.n_features):
            if fabs(x[d] - center[d]) * spread[d] > largest:
                return True
        return False

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        if not self.comes_back(slot, i):
            self.change(stats, self.X + i * self.n_features, self.weights.chosen[i], 1.0)
            self.compute(stats)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef Py_ssize_t j
        cdef double* stats = row(self, slot)
        cdef const double* x = self.X + i * self.n_features
        if stats[0] == 1.0:
            memcpy(stats, self.empty, self.width * sizeof(double))
            return
        self.keep(slot, i)
        self.change(stats, x, self.weights.chosen[i], -1.0)
        self.compute(stats)
        # If the removal of an outlier cost digits, start from the items.
        if self.lost(stats, x, self.weights.chosen[i]) and labels_show(self, slot, stats[0]):
            memcpy(stats, self.empty, self.width * sizeof(double))
            for j in range(self.n_samples):
                if self.labels[j] == slot:
                    self.change(
                        stats, self.X + j * self.n_features, self.weights.chosen[j], 1.0
                    )
            self.compute(stats)
        self.keep_rest(slot)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute(row(self, slot))

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        cdef Py_ssize_t _set, d, k
        cdef Py_ssize_t n_features = self.n_features
        cdef double* stats = row(self, dst)
        cdef double* moments = stats + self.first_set
        cdef const double* other = row(self, src)
        cdef double gap, mass
        for k in range(self.first_set):
            stats[k] += other[k]
        other += self.first_set
        for _set in range(self.n_sets):
            for d in range(n_features):
                if other[d] == 0.0:
                    continue
                mass = moments[n_features + d] + other[n_features + d]
                gap = other[2 * n_features + d] - moments[2 * n_features + d]
                moments[d] += other[d]
                moments[2 * n_features + d] += gap * (other[n_features + d] / mass)
                moments[3 * n_features + d] += other[3 * n_features + d] + (
                    gap * gap * moments[n_features + d] * (other[n_features + d] / mass)
                )
                moments[n_features + d] = mass
            moments += self.n_set
            other += self.n_set
        self.compute(stats)

    # Marginal likelihoods.

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        return self.log_marginal_at(slot, self.hyper)

    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* scale = hyper + n_features + 2
        cdef double r = hyper[n_features]
        cdef double nu = hyper[n_features + 1]
        cdef double factors[MOST_WEIGHTS]
        cdef double n, rho, m, squares, total
        self.take_factors(hyper, factors)
        total = self.log_law(stats + COUNTS, stats + self.entries, 1.0, factors)
        for d in range(n_features):
            squares = self.pool(
                stats, d, factors, r, hyper[d] - self.origin_view[d], &n, &rho, &m
            )
            if n > 0.0:
                total += log_rising(0.5 * nu, 0.5 * n) + 0.5 * (
                    log(r / rho) - n * (LOG_PI + log(scale[d]))
                    - (nu + n) * log1p(squares / scale[d])
                )
        return total

    def gaussian_laws(self, priors, values, stats, factors, bit_generator):
        return DiagLaws(
            priors, values, self.spread, self.origin, self.floor, *self.moments_of(stats, factors)
        )

    def moments_of(self, stats, factors):
        """Statistics of clusters as by a kernel without weights, and masses of their columns."""
        n, masses, means, squares = self.weights.law.moments_by_column(
            stats, self.n_features, factors
        )
        return np.hstack([stats[:, :1], n, means, squares]), masses

    # Densities.

    cdef inline bint is_complete(self, const double* cached, const double* x) noexcept nogil:
        """Whether neither the cluster nor the item has a missing entry."""
        cdef Py_ssize_t d
        cdef bint complete = cached[COMPLETE] == 1.0
        if self.missing:
            for d in range(self.n_features):
                complete &= x[d] == x[d]
        return complete

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        cdef Py_ssize_t d, g
        cdef const double* x = self.X + i * self.n_features
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* center = cached + self.center
        cdef const double* spread = center + self.n_features
        cdef const double* h = cached + WEIGHED + self.n_lanes
        cdef double logs[8]
        cdef double product, t
        if not self.is_complete(cached, x):
            self.log_terms_entries(slot, x, first, n, out)
            return
        if n == 1:
            product = 1.0
            logs[0] = 0.0
            for d in range(self.n_features):
                t = fabs(x[d] - center[d]) * spread[d]
                if t < 1e50:
                    product *= 1.0 + t * t * h[first]
                    if product > LARGE:
                        logs[0] += log(product)
                        product = 1.0
                else:
                    logs[0] += log1p_square(t, h[first])
            logs[0] = -cached[EXPONENT] * (logs[0] + log_positive(product))
        elif not tile_scale_products(
            x, center, spread, self.n_features, h + first, n, cached[EXPONENT], logs
        ):
            self.log_terms_entries(slot, x, first, n, out)
            return
        for g in range(n):
            out[g] = cached[PEAK] + cached[WEIGHED + first + g] + logs[g]

    cdef void log_terms_entries(
        self, Py_ssize_t slot, const double* x, Py_ssize_t first, Py_ssize_t n_terms, double* out
    ) noexcept nogil:
        """The same, entry by entry."""
        cdef Py_ssize_t d, g
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* center = row(self, slot) + self.n_stats + self.center
        cdef const double* spread = center + n_features
        cdef const double* n = spread + n_features
        cdef const double* rho = n + n_features
        cdef double last = -1.0
        cdef double gain = 0.0
        cdef double exponent = 0.0
        cdef double h, t, w
        for g in range(n_terms):
            out[g] = self.weights.log_probabilities[first + g]
        for d in range(n_features):
            if not x[d] == x[d]:
                continue
            if n[d] != last:
                last = n[d]
                gain = log_rising(0.5 * (self.df + last), 0.5) - 0.5 * LOG_PI
                exponent = 0.5 * (self.df + last + 1.0)
            t = fabs(x[d] - center[d]) * spread[d]
            for g in range(n_terms):
                w = self.weights.values[first + g]
                h = rho[d] * w / (rho[d] + w)
                out[g] += gain + log(spread[d]) + 0.5 * log(h) - exponent * log1p_square(t, h)

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """The product over columns of t^2 (2 e - 1)."""
        cdef Py_ssize_t d
        cdef const double* x = self.X + i * self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef const double* center = cached + self.center
        cdef const double* spread = center + self.n_features
        cdef double rest = self.df + stats[0]
        cdef double product = 1.0
        cdef double t
        if not self.is_complete(cached, x):
            return NAN
        for d in range(self.n_features):
            t = (x[d] - center[d]) * spread[d]
            t *= t * rest
            product *= t if t > cached[LEAST] else cached[LEAST]
            if product < 1e-200:
                return NAN
            if product > 1e200:     # farther away any bound will do
                product = 1e200
        return product


@cython.final
cdef class GaussianSphericalTailsModel(GaussianDiagTailsModel):
    """Kernel of Gaussian clusters with one variance each and heavy tails.

    Parameters
    ----------
    data, tables, mean, mean_precision, df, law, law_values
        See `GaussianDiagTailsModel`.
    scale : ndarray of shape ()
        s.
    """

    cdef double bound_power(self) noexcept nogil:
        return 0.5 * self.n_features

    cdef void finish(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef double* cached = stats + self.n_stats
        cdef double* spread = cached + self.center + n_features
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
        cached[BOUND] = 0.5 * (
            n_features * log(n_features / size)
            - (size + n_features) * log_step(size, n_features)
        )

    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double r = hyper[n_features]
        cdef double nu = hyper[n_features + 1]
        cdef double scale = hyper[n_features + 2]
        cdef double factors[MOST_WEIGHTS]
        cdef double size = 0.0
        cdef double squares = 0.0
        cdef double n, rho, m, total
        self.take_factors(hyper, factors)
        total = self.log_law(stats + COUNTS, stats + self.entries, 1.0, factors)
        for d in range(n_features):
            squares += self.pool(
                stats, d, factors, r, hyper[d] - self.origin_view[d], &n, &rho, &m
            )
            size += n
            total += 0.5 * log(r / rho)
        return total + log_rising(0.5 * nu, 0.5 * size) - 0.5 * (
            size * (LOG_PI + log(scale)) + (nu + size) * log1p(squares / scale)
        )

    def gaussian_laws(self, priors, values, stats, factors, bit_generator):
        return SphericalLaws(
            priors, values, self.spread, self.origin, self.floor, *self.moments_of(stats, factors)
        )

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
        cdef const double* center = cached + self.center
        cdef double q
        if not self.is_complete(cached, x):
            self.log_terms_entries(slot, x, first, n, out)
            return
        q = self.square(x, center, center[self.n_features])
        for g in range(n):
            out[g] = cached[PEAK] + cached[WEIGHED + first + g] - cached[EXPONENT] * (
                self.log_tail(q, cached[WEIGHED + self.n_lanes + first + g], x, center)
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
        cdef const double* center = row(self, slot) + self.n_stats + self.center
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
        cdef const double* center = cached + self.center
        if not self.is_complete(cached, x):
            return NAN
        return self.square(x, center, center[self.n_features])
