# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters in which every column depends on few others: Geiger & Heckerman (2002).

Column d has parents p, columns before it in an order that all clusters share. In each cluster

    v ~ InvGamma(nu / 2, rate s_d / 2),  b | v ~ N(0, v diag(1 / s_p)),
    x_d | x_p, mu, b, v ~ N(mu_d + b'(x_p - mu_p), v),  mu | all v, b ~ N(u, Sigma / r)

with the covariance Sigma that follows from all v and b. With n items of mean x_bar, and for a
column and its parents the matrix

    S = diag(s) + C + (r n / rho) (x_bar - u)(x_bar - u)',  rho = r + n,

of their scatter C, the column last, let L L' = S, m = (r u + n x_bar) / rho, L (w, e) = x - m,
a = (rho + 1) / rho + |w|^2 and l the last entry of L. Then

    p(x_d | x_p, cluster) = g / l a^((nu + n) / 2) (a + e^2)^(-(nu + n + 1) / 2),
    g = pi^(-1/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n) / 2),
    p(items)_d = pi^(-n/2) (r / rho)^(1/2) Gamma((nu + n) / 2) / Gamma(nu / 2)
                 s_d^(nu/2) l^-(nu + n) |diag(s_p)|^(1/2) |L_p|^-1.

Rows and statistics, and u above, are relative to an origin (u itself if that is fixed).
Hyperparameters: u (D), r, nu, s (D).

A missing parent is a column D that is 0 in all rows, of scale 1: it changes no factor, to the bit.

Row: n, x_bar (D), entries of C (families.h) | log of the density at m without a; L with inverse
diagonals, m of all members.
"""
cimport cython
from libc.math cimport INFINITY
from libc.math cimport M_PI as PI
from libc.math cimport exp, fabs, log, sqrt
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, log_gamma_variate, random_standard_normal
from skdpm.mixture.likelihoods.contract._base cimport row
from skdpm.mixture.likelihoods.contract._parametric cimport LD, TILE, tile_gather
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    LARGEST_LOSS, PEAK, EllipticalModel, ParametricElliptical
)
from skdpm.mixture.likelihoods.elliptical._hyper cimport GaussianLaws, log_evidence_norm

cdef double LOG_PI = log(PI)

cdef enum:
    MOST_ENTRIES = 17 * 18 // 2     # of the matrix of a family
    FACTOR = 1                      # place of L behind the statistics


cdef extern from "families.h" nogil:
    enum: SKDPM_WIDTH
    enum: SKDPM_LARGEST_FAMILY
    void families_add(double* scatter, const double* v, double by, Py_ssize_t ld, Py_ssize_t size)
    void families_factor(
        const double* scatter, const double* scale, const double* v, double pull, Py_ssize_t ld,
        Py_ssize_t size, double* factor
    )
    double families_log_density(
        const double* x, const double* center, const double* factor, Py_ssize_t n, Py_ssize_t ld,
        Py_ssize_t size, double c, double half, double least
    )
    void families_log_normal(
        const double* x, Py_ssize_t ld_rows, Py_ssize_t n_rows, const double* params,
        const Py_ssize_t* families, Py_ssize_t n, Py_ssize_t ld, Py_ssize_t size, double* out
    )
    double skdpm_log_product(const double* x, Py_ssize_t n)


MOST_PARENTS = SKDPM_LARGEST_FAMILY - 1


def padded(Py_ssize_t n_features):
    """Length of the runs of families.h."""
    return (n_features + SKDPM_WIDTH - 1) // SKDPM_WIDTH * SKDPM_WIDTH


@cython.final
cdef class Families:
    """Members of the families of all columns.

    - `columns`: (size, ld). Members, the columns themselves last; n_features if there is no such
      member.
    """
    cdef Py_ssize_t n_features, size, ld
    cdef Py_ssize_t n_scatter       # numbers of the matrices of all families
    cdef const Py_ssize_t[:, ::1] columns
    cdef double[::1] gap            # (D + 1,): of the columns, and 0
    cdef double[::1] gaps           # (size * ld,): of the members

    def __init__(self, columns, Py_ssize_t n_features):
        self.columns = columns
        self.size = self.columns.shape[0]
        self.ld = self.columns.shape[1]
        expect_shape("families", self.columns, (self.size, padded(n_features)))
        self.n_features = n_features
        self.n_scatter = self.size * (self.size + 1) // 2 * self.ld
        self.gap = np.zeros(n_features + 1)
        self.gaps = np.empty(self.size * self.ld)

    cdef void gather(self, double* members) noexcept nogil:
        """Entries of all members from `gap`."""
        cdef Py_ssize_t k
        cdef const Py_ssize_t* column = &self.columns[0, 0]
        for k in range(self.size * self.ld):
            members[k] = self.gap[column[k]]

    cdef void gather_row(self, const double* x, double* members) noexcept nogil:
        """Entries of all members from those of the columns."""
        memcpy(&self.gap[0], x, self.n_features * sizeof(double))
        self.gather(members)

    cdef void gather_scale(self, const double* scale, double* members) noexcept nogil:
        self.gap[self.n_features] = 1.0
        self.gather_row(scale, members)
        self.gap[self.n_features] = 0.0

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        """See `_moments.combine_moments`."""
        cdef Py_ssize_t d, k
        cdef double* scatter = moments + 1 + self.n_features
        cdef double n = moments[0] + other[0]
        if other[0] == 0.0:
            return
        for d in range(self.n_features):
            self.gap[d] = other[1 + d] - moments[1 + d]
            moments[1 + d] += self.gap[d] * other[0] / n
        for k in range(self.n_scatter):
            scatter[k] += other[1 + self.n_features + k]
        self.gather(&self.gaps[0])
        families_add(scatter, &self.gaps[0], moments[0] * other[0] / n, self.ld, self.size)
        moments[0] = n


@cython.final
cdef class SparseModel(EllipticalModel):
    """Kernel of Gaussian clusters in which columns depend on few others.

    `tables` are those of `EllipticalModel`, and `families`: Those of `Families`.
    """
    cdef Families families
    cdef Py_ssize_t size, ld
    cdef double[::1] members        # (size * ld,): scratch of a row
    cdef double[::1] scales         # (size * ld,): s of all members
    cdef double[::1] factor         # (n_scatter,): scratch

    cdef int begin(self, tables, scale) except -1:
        self.families = Families(tables["families"], self.n_features)
        self.size = self.families.size
        self.ld = self.families.ld
        self.members, self.scales = np.zeros((2, self.size * self.ld))
        self.factor = np.empty(self.families.n_scatter)
        self.n_set = 1 + self.n_features + self.families.n_scatter
        self.keeps = self.finds_near = True
        return self.lay_out(FACTOR + self.families.n_scatter + self.size * self.ld)

    cdef int take_hyperparameters(self) except -1:
        EllipticalModel.take_hyperparameters(self)
        self.families.gather_scale(self.hyper + self.n_features + 2, &self.scales[0])
        self.compute(self.empty)
        return 0

    cdef int retabulate(self) except -1:
        if not np.min(self.hyperparameters()[self.n_features :]) > 0.0:
            raise ValueError("Gaussian.mean_precision, Gaussian.df or Gaussian.scale is not > 0")
        return self.take_hyperparameters()

    cdef void factorize(
        self, const double* stats, const double* u, double r, double* factor
    ) noexcept nogil:
        """L of all families; leaves the gaps between mean and u."""
        cdef Py_ssize_t d
        cdef double* gap = &self.families.gap[0]
        cdef double* gaps = &self.families.gaps[0]
        for d in range(self.n_features):
            gap[d] = stats[1 + d] - u[d] if stats[0] > 0.0 else 0.0
        self.families.gather(gaps)
        families_factor(
            stats + 1 + self.n_features, &self.scales[0], gaps,
            r * stats[0] / (r + stats[0]), self.ld, self.size, factor
        )

    cdef inline double sum_logs(self, const double* factor, Py_ssize_t member) noexcept nogil:
        """Sum over columns of the logarithms of the inverse pivots of a member."""
        cdef Py_ssize_t first
        cdef const double* x = factor + (member * (member + 3) // 2) * self.ld
        cdef double total = 0.0
        for first in range(0, self.n_features, 4):
            total += skdpm_log_product(x + first, min(4, self.n_features - first))
        return total

    cdef void compute(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        cdef double* cached = stats + self.n_stats
        cdef double* gap = &self.families.gap[0]
        cdef double nu = self.df + stats[0]
        cdef double shrink = stats[0] / (self.mean_precision + stats[0])
        self.factorize(stats, &self.prior_mean[0], self.mean_precision, cached + FACTOR)
        for d in range(self.n_features):
            gap[d] = self.prior_mean[d] + shrink * gap[d]
        self.families.gather(cached + FACTOR + self.families.n_scatter)
        cached[PEAK] = self.n_features * (log_rising(0.5 * nu, 0.5) - 0.5 * LOG_PI)
        cached[PEAK] += self.sum_logs(cached + FACTOR, self.size - 1)

    cdef bint shift(
        self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* x = self.X + i * self.n_features
        cdef double* gap = &self.families.gap[0]
        cdef double* gaps = &self.families.gaps[0]
        cdef double* scatter = stats + 1 + self.n_features
        cdef const double* squares = scatter + self.families.n_scatter - self.ld
        # Inverse pivots of the columns given their parents, now and before the item leaves.
        cdef Py_ssize_t pivots = self.n_stats + FACTOR + self.families.n_scatter - self.ld
        cdef double before = stats[0]
        cdef double by = self.count(stats, g, sign)
        cdef bint good = True
        by /= stats[0]
        for d in range(self.n_features):
            gap[d] = x[d] - stats[1 + d]
            stats[1 + d] += by * gap[d]
        by *= before
        self.families.gather(gaps)
        families_add(scatter, gaps, by, self.ld, self.size)
        if sign < 0.0:
            # A far item takes the digits of the others along.
            for d in range(self.n_features):
                good &= -by * gap[d] * gap[d] < LARGEST_LOSS * LARGEST_LOSS * (
                    squares[d] + self.scales[(self.size - 1) * self.ld + d]
                )
        self.compute(stats)
        if sign < 0.0:
            for d in range(self.n_features):
                good &= stats[pivots + d] < LARGEST_LOSS * self.kept[pivots + d]
        return good

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        self.families.combine(moments, other)

    cdef inline double log_density(self, Py_ssize_t slot, double least) noexcept nogil:
        """log p(x | items of a slot) of the row in `members`; a number below `least` if it is."""
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef double rho = self.mean_precision + stats[0]
        return cached[PEAK] + families_log_density(
            &self.members[0], cached + FACTOR + self.families.n_scatter, cached + FACTOR,
            self.n_features, self.ld, self.size, (rho + 1.0) / rho, 0.5 * (self.df + stats[0]),
            least - cached[PEAK]
        )

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(size^2 D) for each."""
        cdef Py_ssize_t k
        self.families.gather_row(self.X + i * self.n_features, &self.members[0])
        for k in range(n_slots):
            out[k] = self.log_density(slots[k], -INFINITY)

    cdef Py_ssize_t find_near(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* log_least,
        Py_ssize_t* near
    ) noexcept nogil:
        """Most clusters are ruled out by the first columns."""
        cdef Py_ssize_t k
        cdef Py_ssize_t n_near = 0
        self.families.gather_row(self.X + i * self.n_features, &self.members[0])
        for k in range(n_slots):
            log_least[k] -= 1e-9 * (1.0 + fabs(log_least[k]))
            if not self.log_density(slots[k], log_least[k]) < log_least[k]:
                near[n_near] = k
                n_near += 1
        return n_near

    cdef double log_evidence(
        self, double n, const double* factor, double r, double nu
    ) noexcept nogil:
        """log p(items), from L of all families, at the scales of `scales`."""
        cdef Py_ssize_t d, l
        cdef const double* scale = &self.scales[0]
        cdef double total = self.n_features * log_evidence_norm(n, r, nu)
        if n == 0.0:
            return 0.0
        for l in range(self.size):
            total += self.sum_logs(factor, l) * (nu + n if l + 1 == self.size else 1.0)
            for d in range(self.n_features):
                total += 0.5 * log(scale[d]) * (nu if l + 1 == self.size else 1.0)
            scale += self.ld
        return total

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        return self.log_evidence(
            stats[0], stats + self.n_stats + FACTOR, self.mean_precision, self.df
        )

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double total
        for d in range(n_features):
            self.members[d] = hyper[d] - self.origin[d]
        self.families.gather_scale(hyper + n_features + 2, &self.scales[0])
        self.factorize(stats, &self.members[0], hyper[n_features], &self.factor[0])
        total = self.log_evidence(
            stats[0], &self.factor[0], hyper[n_features], hyper[n_features + 1]
        )
        self.families.gather_scale(self.hyper + n_features + 2, &self.scales[0])
        return total

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return SparseLaws(priors, values, *self.units, stats, self.families.columns)


@cython.final
cdef class SparseLaws(GaussianLaws):
    """Conditional laws of hyperparameters.

    - `stats`: (n_clusters, n_stats)
    - `families`: Columns of `Families`.
    """
    cdef Py_ssize_t size, n_entries
    cdef double[::1] n
    cdef double[:, ::1] mean            # (K, D)
    cdef double[:, :, ::1] scatter      # (K, D, n_entries)
    cdef const Py_ssize_t[:, ::1] families      # (D, size)
    cdef const Py_ssize_t[::1] starts, owners   # families with column d: owners[starts[d] : ...]
    cdef double[::1] system, b, noise

    def __init__(self, priors, values, spread, origin, floor, stats, families):
        GaussianLaws.__init__(self, priors, values, spread, origin, 0.0, floor)
        n_features = self.n_features
        self.size, ld = np.shape(families)
        families = np.asarray(families)[:, :n_features]
        self.n_clusters = len(stats)
        self.n_entries = self.size * (self.size + 1) // 2
        self.n = stats[:, 0].copy()
        self.mean = stats[:, 1 : 1 + n_features] / spread
        units = np.append(spread, 1.0)[families]
        first, second = np.tril_indices(self.size)
        entries = stats[:, 1 + n_features :].reshape(-1, self.n_entries, ld)[:, :, :n_features]
        entries = entries / units[first] / units[second]
        self.scatter = np.ascontiguousarray(entries.transpose(0, 2, 1))
        self.families = np.ascontiguousarray(families.T)
        columns = families.T.ravel()
        order = np.argsort(columns, kind="stable")
        self.owners = (order // self.size)[columns[order] < n_features]
        self.starts = np.searchsorted(columns[order], np.arange(n_features + 1))
        if not self.learns_scale:
            self.t = np.ascontiguousarray(values["scale"] / spread / spread)
        self.system = np.empty(n_features * (n_features + 1) // 2)
        self.b, self.noise = np.empty((2, n_features))

    cdef inline double scale_at(self, Py_ssize_t d, double excess) noexcept nogil:
        if d == self.n_features:
            return 1.0
        return self.scale_of(d, excess, self.t[d]) if self.learns_scale else self.t[d]

    cdef double factorize(
        self, Py_ssize_t k, Py_ssize_t d, double r, double excess, double* factor   # OUT
    ) noexcept nogil:
        """L of the family of a column in cluster k, by rows. Returns the log evidence of the
        column up to `log_evidence_norm`."""
        cdef Py_ssize_t i, j, l
        cdef Py_ssize_t t = 0
        cdef const Py_ssize_t* columns = &self.families[d, 0]
        cdef double* last
        cdef double gaps[SKDPM_LARGEST_FAMILY]
        cdef double pull = r * self.n[k] / (r + self.n[k])
        cdef double total = 0.0
        cdef double scale, x
        for l in range(self.size):
            j = columns[l]
            gaps[l] = self.mean[k, j] - self.u[j] if j < self.n_features else 0.0
            last = factor + t
            scale = self.scale_at(j, excess)
            for j in range(l + 1):
                x = self.scatter[k, d, t] + pull * gaps[l] * gaps[j]
                for i in range(j):
                    x -= last[i] * factor[j * (j + 1) // 2 + i]
                if j < l:
                    last[j] = x / factor[j * (j + 3) // 2]
                else:
                    last[l] = sqrt(max(x + scale, scale))
                t += 1
            if l + 1 < self.size:
                total += 0.5 * log(scale) - log(last[l])
            else:
                total += 0.5 * excess * log(scale) - (excess + self.n[k]) * log(last[l])
        return total

    cdef double log_evidence(self, double r, double excess) noexcept nogil:
        cdef Py_ssize_t d, k
        cdef double factor[MOST_ENTRIES]
        cdef double total = 0.0
        for k in range(self.n_clusters):
            total += self.n_features * log_evidence_norm(self.n[k], r, excess)
            for d in range(self.n_features):
                total += self.factorize(k, d, r, excess, factor)
        return total

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        return self.log_evidence(r, self.excess)

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        return self.log_evidence(self.r, excess)

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        cdef Py_ssize_t i, k
        cdef double factor[MOST_ENTRIES]
        cdef double before = self.t[d]
        cdef double total = 0.0
        self.t[d] = t
        for k in range(self.n_clusters):
            for i in range(self.starts[d], self.starts[d + 1]):
                total += self.factorize(k, self.owners[i], self.r, self.excess, factor)
        self.t[d] = before
        return total

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """The precision matrix of a cluster is the sum over columns of a a'."""
        cdef Py_ssize_t d, j, k, l
        cdef Py_ssize_t n_features = self.n_features
        cdef const Py_ssize_t* columns
        cdef double factor[MOST_ENTRIES]
        cdef double a[SKDPM_LARGEST_FAMILY]
        cdef double gap, weight
        memset(&self.system[0], 0, self.system.shape[0] * sizeof(double))
        for d in range(n_features):
            self.system[place(d, d, n_features)] = 1.0
            self.b[d] = 0.0
        for k in range(self.n_clusters):
            weight = 1.0 / (1.0 / self.r + 1.0 / self.n[k])
            for d in range(n_features):
                columns = &self.families[d, 0]
                self.factorize(k, d, self.r, self.excess, factor)
                draw_slopes(factor, self.size, self.excess + self.n[k], a, rng)
                gap = 0.0
                for l in range(self.size):
                    j = columns[l]
                    if j < n_features:
                        gap += a[l] * (self.mean[k, j] - self.center[j])
                for l in range(self.size):
                    if columns[l] == n_features:
                        continue
                    self.b[columns[l]] += weight * gap * a[l]
                    for j in range(l + 1):
                        if columns[j] < n_features:
                            self.system[place(columns[l], columns[j], n_features)] += (
                                weight * a[l] * a[j]
                            )
        return self.draw_mean_of(&self.system[0], &self.b[0], &self.noise[0], rng)


@cython.final
cdef class ParametricGaussianSparse(ParametricElliptical):
    """Gaussian rows under drawn parameters. With a = v^(-1/2) at the column and -v^(-1/2) b at its
    parents, a row has log density sum_d [log a_d - log(2 pi) / 2 - (a'(x - mu))^2 / 2].

    Parameters: the sum of the logarithms, then for each column a of its members and a'mu.

    - `scale`: (n_features,). s.
    - `families`: Columns of `Families`.
    """
    cdef Families families
    cdef const double[::1] scale
    cdef double[::1] scales, gaps, factor

    def __init__(
        self, X, mean, const double[::1] scale, double mean_precision, double df, families
    ):
        cdef Py_ssize_t n_features = X.shape[1]
        self.families = Families(families, n_features)
        ParametricElliptical.__init__(
            self, X, mean, mean_precision, df, 1 + n_features + self.families.n_scatter
        )
        self.n_params = 1 + n_features * (self.families.size + 1)
        self.n_dimensions = 0       # no bounds
        self.scale = scale
        self.scales, self.gaps = np.empty((2, self.families.size * self.families.ld))
        self.factor = np.empty(self.families.n_scatter)
        self.families.gather_scale(&self.scale[0], &self.scales[0])

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d, k, l
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t ld = self.families.ld
        cdef Py_ssize_t size = self.families.size
        cdef double* a = params + 1
        cdef double* center = &self.families.gap[0]
        cdef double L[MOST_ENTRIES]
        cdef double n = power * stats[0]
        cdef double rho = self.mean_precision + n
        for k in range(self.families.n_scatter):
            self.moments[k] = power * stats[1 + n_features + k]
        for d in range(n_features):
            center[d] = stats[1 + d] - self.mean[d] if n > 0.0 else 0.0
        self.families.gather(&self.gaps[0])
        families_factor(
            &self.moments[0], &self.scales[0], &self.gaps[0], self.mean_precision * n / rho, ld,
            size, &self.factor[0]
        )
        for d in range(n_features):
            center[d] = self.mean[d] + n / rho * center[d]
        self.families.gather(&self.gaps[0])
        params[0] = 0.0
        for d in range(n_features):
            for k in range(size * (size + 1) // 2):
                L[k] = self.factor[k * ld + d]
            for l in range(size):
                L[l * (l + 3) // 2] = 1.0 / L[l * (l + 3) // 2]
            draw_slopes(L, size, self.df + n, a, rng)
            params[0] += log(a[size - 1]) - 0.5 * log(2.0 * PI)
            a[size] = random_standard_normal(rng) / sqrt(rho)
            for l in range(size):
                a[size] += a[l] * self.gaps[l * ld + d]
            a += size + 1

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items, const double* params,
        const Py_ssize_t* which, Py_ssize_t n_which, double* out
    ) noexcept nogil:
        cdef Py_ssize_t k
        tile_gather(self.points, self.n_features, items, n_items, &self.work[0], LD)
        for k in range(n_which):
            families_log_normal(
                &self.work[0], LD, n_items, params + which[k] * self.n_params,
                &self.families.columns[0, 0], self.n_features, self.families.ld,
                self.families.size, out + k * TILE
            )

    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items
    ) noexcept nogil:
        cdef Py_ssize_t d, i
        cdef Py_ssize_t n_features = self.n_features
        cdef double* mean = &self.moments[1]
        cdef double* gap = &self.families.gap[0]
        memset(&self.moments[0], 0, self.n_stats * sizeof(double))
        self.moments[0] = n_items
        for i in range(n_items):
            for d in range(n_features):
                mean[d] += self.points[items[i] * n_features + d] / n_items
        for i in range(n_items):
            for d in range(n_features):
                gap[d] = self.points[items[i] * n_features + d] - mean[d]
            self.families.gather(&self.gaps[0])
            families_add(
                mean + n_features, &self.gaps[0], 1.0, self.families.ld, self.families.size
            )
        self.combine(stats, &self.moments[0])

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        self.families.combine(stats, other)


cdef inline void draw_slopes(
    const double* L, Py_ssize_t size, double df, double* a, bitgen_t* rng
) noexcept nogil:
    """Draw a of a column, see `ParametricGaussianSparse`, from the factor L of its family by rows,
    with 1 / v = 2 gamma / l^2 and b = L_p^-T (last row + v^(1/2) z)."""
    cdef Py_ssize_t j, l
    cdef Py_ssize_t q = size - 1
    a[q] = sqrt(2.0 * exp(log_gamma_variate(rng, 0.5 * df))) / L[q * (q + 3) // 2]
    for l in range(q):
        a[l] = -L[q * (q + 1) // 2 + l] * a[q] - random_standard_normal(rng)
    for l in range(q - 1, -1, -1):
        for j in range(l + 1, q):
            a[l] -= L[j * (j + 1) // 2 + l] * a[j]
        a[l] /= L[l * (l + 3) // 2]


cdef inline Py_ssize_t place(Py_ssize_t d, Py_ssize_t e, Py_ssize_t n) noexcept nogil:
    """Place of an entry of a symmetric matrix in its lower triangle, packed by columns."""
    cdef Py_ssize_t first = min(d, e)
    return first * n - first * (first - 1) // 2 + max(d, e) - first
