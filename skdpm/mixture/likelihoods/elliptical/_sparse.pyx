# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters in which every column depends on few others: Geiger & Heckerman (2002).

Column d has parents p, columns before it in an order that all clusters share. In each cluster

    v ~ InvGamma(nu / 2, rate s_d / 2),  b | v ~ N(0, v diag(1 / s_p)),
    x_d | x_p, mu, b, v ~ N(mu_d + b'(x_p - mu_p), v),  mu | all v, b ~ N(u, Sigma / r)

with the covariance Sigma that follows from all v and b. With n items of mean x_bar, and for a
column and its parents the matrix

    S = diag(s) + C + (r n / rho) (x_bar - u)(x_bar - u)',  rho = r + n,

of their scatter C, the column last, let L L' = S, m = (r u + n x_bar) / rho, L (w, e) = x - m,
a = (rho + 1) / rho + |w|^2 and l the last entry of L. (Kernels have L with ones on its diagonal,
and a diagonal D: L D L' = S.) Then

    p(x_d | x_p, cluster) = g / l a^((nu + n) / 2) (a + e^2)^(-(nu + n + 1) / 2),
    g = pi^(-1/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n) / 2),
    p(items)_d = pi^(-n/2) (r / rho)^(1/2) Gamma((nu + n) / 2) / Gamma(nu / 2)
                 s_d^(nu/2) l^-(nu + n) |diag(s_p)|^(1/2) |L_p|^-1.

A removal is deferred (see _full). If x is among the n items, then with a = (rho - 1) / rho - |w|^2

    p(x_d | x_p, cluster without x) = g / l a^-((nu + n - 2) / 2) (a - e^2)^((nu + n - 1) / 2),
    g = pi^(-1/2) Gamma((nu + n) / 2) / Gamma((nu + n - 1) / 2).

Rows, statistics, u are relative to an origin (u if fixed). Hyperparameters: u (D), r, nu, s (D).

A missing parent is a column D that is 0 in all rows, of scale 1: it changes no factor, to the bit.

Row: n, x_bar (D), entries of C (families.h) | log of the density at m without a; L and 1 / D, m of
all members.
"""
cimport cython
from libc.math cimport INFINITY, M_PI as PI, exp, fabs, log, sqrt
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, log_gamma_variate, random_standard_normal
from skdpm._core._tiles cimport tile_log
from skdpm.mixture.likelihoods.contract._base cimport Indices, row
from skdpm.mixture.likelihoods.contract._parametric cimport LD, TILE
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
        Py_ssize_t size, double sign, double c, double half, double least
    )
    void families_log_normal(
        const double* x, Py_ssize_t ld_rows, Py_ssize_t n_rows, const double* params,
        const Py_ssize_t* families, Py_ssize_t n, Py_ssize_t ld, Py_ssize_t size, double* out
    )
    void families_rests(
        const double* factor, double scale, Py_ssize_t ld, Py_ssize_t size, Py_ssize_t member,
        double* of_parents, double* of_all
    )
    double skdpm_log_product(const double* x, Py_ssize_t n)


MOST_PARENTS = SKDPM_LARGEST_FAMILY - 1


def padded(Py_ssize_t n_features):
    """Length of the runs of families.h."""
    return (n_features + SKDPM_WIDTH - 1) // SKDPM_WIDTH * SKDPM_WIDTH


@cython.final
cdef class Families:
    """Families of all columns, and what kernels do with rows, moments and factors. `columns`,
    (size, ld), has the members, the columns themselves last; n_features where there is none."""
    cdef Py_ssize_t n_features, size, ld
    cdef Py_ssize_t n_scatter       # numbers of the matrices of all families
    cdef const Py_ssize_t[:, ::1] columns
    cdef double[::1] gap            # (D + 1,): of the columns, and 0
    cdef double[::1] gaps           # (size * ld,): of the members
    cdef double[::1] scales         # (size * ld,): s of the members

    def __init__(self, columns, Py_ssize_t n_features):
        self.columns = columns
        self.size = self.columns.shape[0]
        self.ld = self.columns.shape[1]
        expect_shape("families", self.columns, (self.size, padded(n_features)))
        self.n_features = n_features
        self.n_scatter = self.size * (self.size + 1) // 2 * self.ld
        self.gap = np.zeros(n_features + 1)
        self.gaps, self.scales = np.zeros((2, self.size * self.ld))

    cdef void gather(self, double* members) noexcept nogil:
        """Entries of all members from `gap`."""
        cdef const Py_ssize_t* column = &self.columns[0, 0]
        for k in range(self.size * self.ld):
            members[k] = self.gap[column[k]]

    cdef void gather_row(self, const double* x, double* members) noexcept nogil:
        """Entries of all members from those of the columns."""
        memcpy(&self.gap[0], x, self.n_features * sizeof(double))
        self.gather(members)

    cdef void take_scale(self, const double* scale) noexcept nogil:
        self.gap[self.n_features] = 1.0
        self.gather_row(scale, &self.scales[0])
        self.gap[self.n_features] = 0.0

    cdef double move(self, double* moments, const double* x, double sign) noexcept nogil:
        """A row enters (sign = 1) or leaves (-1). Returns the factor of `gap`^2 in the scatter."""
        cdef double before = moments[0]
        moments[0] += sign
        by = sign / moments[0]
        for d in range(self.n_features):
            self.gap[d] = x[d] - moments[1 + d]
            moments[1 + d] += by * self.gap[d]
        self.gather(&self.gaps[0])
        families_add(moments + 1 + self.n_features, &self.gaps[0], by * before, self.ld, self.size)
        return by * before

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        """See `_elliptical.combine_moments`."""
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

    cdef void factorize(
        self, const double* moments, double n, const double* u, double r,
        double* factor, double* center                              # OUT
    ) noexcept nogil:
        """L and D of families, m of members. `center` may be `gaps`, or any mean of no items."""
        for d in range(self.n_features):
            self.gap[d] = moments[1 + d] - u[d] if n > 0.0 else 0.0
        self.gather(&self.gaps[0])
        families_factor(
            moments + 1 + self.n_features, &self.scales[0], &self.gaps[0], r * n / (r + n),
            self.ld, self.size, factor
        )
        for d in range(self.n_features):
            self.gap[d] = u[d] + n / (r + n) * self.gap[d]
        self.gather(center)

    cdef double sum_logs(self, const double* factor, Py_ssize_t member) noexcept nogil:
        """Sum over columns of the logarithms of 1 / D of a member."""
        cdef const double* x = factor + (member * (member + 3) // 2) * self.ld
        cdef double total = 0.0
        for first in range(0, self.n_features, 4):
            total += skdpm_log_product(x + first, min(4, self.n_features - first))
        return total

    cdef double log_evidence(
        self, double n, const double* factor, double r, double nu
    ) noexcept nogil:
        """log p(items), from L and D of all families."""
        cdef double total = self.n_features * log_evidence_norm(n, r, nu)
        if n == 0.0:
            return 0.0
        for l in range(self.size):
            power = nu if l + 1 == self.size else 1.0
            for d in range(self.n_features):
                total += 0.5 * log(self.scales[l * self.ld + d]) * power
            power += n if l + 1 == self.size else 0.0
            total += 0.5 * self.sum_logs(factor, l) * power
        return total


@cython.final
cdef class SparseModel(EllipticalModel):
    """Kernel of Gaussian clusters in which columns depend on few others. Besides the `tables` of
    `EllipticalModel` it has `families`, those of `Families`."""
    cdef Families families
    cdef double[::1] members        # (size * ld,): scratch of a row
    cdef double[::1] before         # (ld,): scratch

    cdef int begin(self, tables, scale) except -1:
        self.families = Families(tables["families"], self.n_features)
        self.members = np.zeros(self.families.size * self.families.ld)
        self.before = np.empty(self.families.ld)
        self.n_set = 1 + self.n_features + self.families.n_scatter
        self.defers = self.finds_near = True
        return self.lay_out(FACTOR + self.families.n_scatter + self.members.shape[0])

    cdef int take_hyperparameters(self) except -1:
        EllipticalModel.take_hyperparameters(self)
        self.families.take_scale(self.hyper + self.n_features + 2)
        self.compute(self.empty)

    cdef int retabulate(self) except -1:
        if not np.min(self.hyperparameters()[self.n_features :]) > 0.0:
            raise ValueError("Gaussian.mean_precision, Gaussian.df or Gaussian.scale is not > 0")
        return self.take_hyperparameters()

    cdef void compute(self, double* stats) noexcept nogil:
        cdef double* cached = stats + self.n_stats
        self.families.factorize(
            stats, stats[0], &self.prior_mean[0], self.mean_precision, cached + FACTOR,
            cached + FACTOR + self.families.n_scatter
        )
        cached[PEAK] = log_rising(0.5 * (self.df + stats[0]), 0.5) - 0.5 * LOG_PI
        cached[PEAK] *= self.n_features
        cached[PEAK] += 0.5 * self.families.sum_logs(cached + FACTOR, self.families.size - 1)

    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil:
        cdef const double* gap = &self.families.gap[0]
        cdef Py_ssize_t last = self.families.n_scatter - self.families.ld
        cdef const double* squares = stats + 1 + self.n_features + last
        cdef const double* scale = &self.families.scales[self.members.shape[0] - self.families.ld]
        # 1 / D of the columns given their parents.
        cdef const double* pivots = stats + self.n_stats + FACTOR + last
        cdef double by = self.families.move(stats, self.X + i * self.n_features, sign)
        cdef bint good = True
        if sign < 0.0:
            # A far item takes the digits of the others along.
            for d in range(self.n_features):
                good &= -by * gap[d] * gap[d] < LARGEST_LOSS * LARGEST_LOSS * (
                    squares[d] + scale[d]
                )
            memcpy(&self.before[0], pivots, self.families.ld * sizeof(double))
        self.compute(stats)
        if sign < 0.0:
            for d in range(self.n_features):
                good &= pivots[d] < LARGEST_LOSS * LARGEST_LOSS * self.before[d]
        return good

    cdef void combine(self, double* moments, const double* other) noexcept nogil:
        self.families.combine(moments, other)

    cdef double log_density(self, Py_ssize_t slot, double least) noexcept nogil:
        """log p(x | items of a slot) of the row in `members`, without the row if its removal is
        deferred; a number below `least` if it is."""
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef double sign = -1.0 if slot == self.pending_slot else 1.0
        cdef double rho = self.mean_precision + stats[0]
        cdef double half = 0.5 * (self.df + stats[0])
        cdef double peak = cached[PEAK]
        if sign < 0.0:
            peak += self.n_features * (log_rising(half - 0.5, 0.5) - log_rising(half, 0.5))
            half = 1.0 - half
        found = peak + families_log_density(
            &self.members[0], cached + FACTOR + self.families.n_scatter, cached + FACTOR,
            self.n_features, self.families.ld, self.families.size, sign, (rho + sign) / rho, half,
            least - peak if sign > 0.0 else -INFINITY
        )
        if sign < 0.0 and not found < INFINITY:
            self.leave()
            return self.log_density(slot, least)
        return found

    cdef void take_row(self, Py_ssize_t i) noexcept nogil:
        """Set `members`."""
        if self.pending_item != i:
            self.leave()
        self.families.gather_row(self.X + i * self.n_features, &self.members[0])

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot), O(size^2 D) for each."""
        self.take_row(i)
        for k in range(slots.n):
            out[k] = self.log_density(slots.at[k], -INFINITY)

    cdef Py_ssize_t find_near(
        self, Indices slots, Py_ssize_t i, double* log_least, Py_ssize_t* near
    ) noexcept nogil:
        """Most clusters are ruled out by the first columns."""
        cdef Py_ssize_t n_near = 0
        self.take_row(i)
        for k in range(slots.n):
            log_least[k] -= 1e-9 * (1.0 + fabs(log_least[k]))
            if not self.log_density(slots.at[k], log_least[k]) < log_least[k]:
                near[n_near] = k
                n_near += 1
        return n_near

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        self.settle()
        return self.families.log_evidence(
            stats[0], stats + self.n_stats + FACTOR, self.mean_precision, self.df
        )

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return SparseLaws(priors, values, *self.units, stats, self.families.columns)


@cython.final
cdef class SparseLaws(GaussianLaws):
    """Conditional laws of hyperparameters; `families` are the columns of `Families`. Here the runs
    of families.h are over clusters, because one column changes at a time."""
    cdef Py_ssize_t size, ld
    cdef double[::1] n                  # (ld,)
    cdef double[:, ::1] mean            # (D, ld)
    cdef double[:, ::1] pulled          # (D + 1, ld): x_bar - u times (r n / rho)^(1/2), and 0
    cdef double[:, :, ::1] scatter      # (D, n_entries, ld)
    cdef const Py_ssize_t[:, ::1] families      # (D, size)
    # Families with column d, and its place there: owners[starts[d] : ...], places[starts[d] : ...]
    cdef const Py_ssize_t[::1] starts, owners, places
    cdef double[:, ::1] gaps, scales    # (size, ld): scratch
    cdef double[::1] factor             # (n_entries * ld,): scratch
    cdef double[:, :, ::1] rests        # (2, largest number of owners, ld), see `prepare_column`
    cdef double[::1] logs               # (ld,): scratch
    cdef double[::1] system, b, noise

    def __init__(self, priors, values, spread, origin, floor, stats, families):
        GaussianLaws.__init__(self, priors, values, spread, origin, 0.0, floor)
        n_features = self.n_features
        self.n_clusters = len(stats)
        self.ld = padded(max(self.n_clusters, 1))
        stats = np.pad(stats, ((0, self.ld - self.n_clusters), (0, 0)))
        self.size, length = np.shape(families)
        families = np.asarray(families)[:, :n_features]
        self.families = np.ascontiguousarray(families.T)
        self.n = stats[:, 0].copy()
        self.mean = np.ascontiguousarray((stats[:, 1 : 1 + n_features] / spread).T)
        self.pulled = np.zeros((n_features + 1, self.ld))
        units = np.append(spread, 1.0)[families]
        first, second = np.tril_indices(self.size)
        entries = stats[:, 1 + n_features :].reshape(self.ld, -1, length)[:, :, :n_features]
        entries = entries / units[first] / units[second]
        self.scatter = np.ascontiguousarray(entries.transpose(2, 1, 0))
        columns = families.T.ravel()
        order = np.argsort(columns, kind="stable")
        self.owners, self.places = np.divmod(order, self.size)
        self.starts = np.searchsorted(columns[order], np.arange(n_features + 1))
        self.gaps, self.scales = np.empty((2, self.size, self.ld))
        self.factor = np.empty(len(first) * self.ld)
        self.rests = np.empty((2, np.diff(self.starts).max(), self.ld))
        self.logs = np.empty(self.ld)
        self.system = np.empty(n_features * (n_features + 1) // 2)
        self.b, self.noise = np.empty((2, n_features))

    cdef void pull(self, double r) noexcept nogil:
        """Set `pulled`."""
        for k in range(self.n_clusters):
            self.noise[0] = sqrt(r * self.n[k] / (r + self.n[k]))
            for d in range(self.n_features):
                self.pulled[d, k] = self.noise[0] * (self.mean[d, k] - self.u[d])

    cdef void factorize(self, Py_ssize_t d, double excess) noexcept nogil:
        """L and D of the family of a column in all clusters."""
        for l in range(self.size):
            j = self.families[d, l]
            scale = 1.0 if j == self.n_features else self.any_scale(j, excess)
            memcpy(&self.gaps[l, 0], &self.pulled[j, 0], self.ld * sizeof(double))
            for k in range(self.ld):
                self.scales[l, k] = scale
        families_factor(
            &self.scatter[d, 0, 0], &self.scales[0, 0], &self.gaps[0, 0], 1.0, self.ld, self.size,
            &self.factor[0]
        )

    cdef double sum_logs(
        self, const double* x, double shift, double power, double share
    ) noexcept nogil:
        """Sum over clusters of (power + share n) log(x + shift)."""
        cdef double total = 0.0
        for k in range(self.ld):
            self.logs[k] = x[k] + shift
        tile_log(&self.logs[0], self.ld)
        for k in range(self.n_clusters):
            total += (power + share * self.n[k]) * self.logs[k]
        return total

    cdef double log_evidence(self, double r, double excess) noexcept nogil:
        cdef double total = 0.0
        for k in range(self.n_clusters):
            total += 2.0 * self.n_features * log_evidence_norm(self.n[k], r, excess)
        self.pull(r)
        for d in range(self.n_features):
            self.factorize(d, excess)
            for l in range(self.size):
                power = excess if l + 1 == self.size else 1.0
                total += power * self.n_clusters * log(self.scales[l, 0])
                total += self.sum_logs(
                    &self.factor[l * (l + 3) // 2 * self.ld], 0.0, power, l + 1 == self.size
                )
        return 0.5 * total

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        return self.log_evidence(r, self.excess)

    cdef double log_evidence_df(self, double excess) noexcept nogil:
        return self.log_evidence(self.r, excess)

    cdef bint prepare_scale(self) noexcept nogil:
        self.pull(self.r)
        return True

    cdef bint prepare_column(self, Py_ssize_t d) noexcept nogil:
        """In a family with column d, |S| is (s_d + rest) times a determinant without s_d. Its
        rests are those of S without and with the last member."""
        for i in range(self.starts[d + 1] - self.starts[d]):
            self.factorize(self.owners[self.starts[d] + i], self.excess)
            families_rests(
                &self.factor[0], self.any_scale(d, self.excess), self.ld, self.size,
                self.places[self.starts[d] + i], &self.rests[0, i, 0], &self.rests[1, i, 0]
            )
        return True

    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil:
        cdef Py_ssize_t n_owners = self.starts[d + 1] - self.starts[d]
        cdef double scale = self.scale_of(d, self.excess, t)
        cdef double total = (n_owners - 1 + self.excess) * self.n_clusters * log(scale)
        for i in range(n_owners):
            total -= self.sum_logs(&self.rests[1, i, 0], scale, self.excess, 1.0)
            if self.places[self.starts[d] + i] + 1 < self.size:
                total += self.sum_logs(&self.rests[0, i, 0], scale, self.excess - 1.0, 1.0)
        return 0.5 * total

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """The precision matrix of a cluster is the sum over columns of a a'."""
        cdef Py_ssize_t k, l
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t columns[SKDPM_LARGEST_FAMILY]
        cdef double factor[MOST_ENTRIES], a[SKDPM_LARGEST_FAMILY]
        memset(&self.system[0], 0, self.system.shape[0] * sizeof(double))
        for d in range(n_features):
            self.system[place(d, d, n_features)] = 1.0
            self.b[d] = 0.0
        self.pull(self.r)
        for d in range(n_features):
            self.factorize(d, self.excess)
            for k in range(self.n_clusters):
                weight = 1.0 / (1.0 / self.r + 1.0 / self.n[k])
                for t in range(self.size * (self.size + 1) // 2):
                    factor[t] = self.factor[t * self.ld + k]
                draw_slopes(factor, self.size, self.excess + self.n[k], a, rng)
                gap = 0.0
                for l in range(self.size):
                    columns[l] = self.families[d, l]
                    if columns[l] == n_features:        # none: add 0 anywhere
                        columns[l] = a[l] = 0
                    gap += a[l] * (self.mean[columns[l], k] - self.center[columns[l]])
                for l in range(self.size):
                    self.b[columns[l]] += weight * gap * a[l]
                    for j in range(l + 1):
                        t = place(columns[l], columns[j], n_features)
                        self.system[t] += weight * a[l] * a[j]
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
    cdef double[::1] center, factor     # (size * ld,), (n_scatter,): scratch

    def __init__(
        self, X, mean, const double[::1] scale, double mean_precision, double df, families
    ):
        cdef Py_ssize_t n_features = X.shape[1]
        self.families = Families(families, n_features)
        ParametricElliptical.__init__(
            self, X, mean, mean_precision, df, 1 + n_features + self.families.n_scatter
        )
        expect_shape("scale", scale, (n_features,))
        self.n_params = 1 + n_features * (self.families.size + 1)
        self.n_dimensions = 0       # no bounds
        self.center = np.empty(self.families.size * self.families.ld)
        self.factor = np.empty(self.families.n_scatter)
        self.families.take_scale(&scale[0])

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t ld = self.families.ld
        cdef Py_ssize_t size = self.families.size
        cdef double* a = params + 1
        cdef double L[MOST_ENTRIES]
        cdef double n = power * stats[0]
        memcpy(&self.moments[0], stats, (1 + n_features) * sizeof(double))
        for k in range(1 + n_features, self.n_stats):
            self.moments[k] = power * stats[k]
        self.families.factorize(
            &self.moments[0], n, &self.mean[0], self.mean_precision, &self.factor[0],
            &self.center[0]
        )
        params[0] = 0.0
        for d in range(n_features):
            for k in range(size * (size + 1) // 2):
                L[k] = self.factor[k * ld + d]
            draw_slopes(L, size, self.df + n, a, rng)
            params[0] += log(a[size - 1]) - 0.5 * log(2.0 * PI)
            a[size] = random_standard_normal(rng) / sqrt(self.mean_precision + n)
            for l in range(size):
                a[size] += a[l] * self.center[l * ld + d]
            a += size + 1

    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        Indices which, double* out      # OUT (which.n, TILE)
    ) noexcept nogil:
        for k in range(which.n):
            families_log_normal(
                self.columns + first, LD, n_items, params + which.at[k] * self.n_params,
                &self.families.columns[0, 0], self.n_features, self.families.ld,
                self.families.size, out + k * TILE
            )

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        for i in range(items.n):
            self.families.move(stats, self.points + items.at[i] * self.n_features, 1.0)

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        self.families.combine(stats, other)


cdef inline void draw_slopes(
    const double* L, Py_ssize_t size, double df, double* a, bitgen_t* rng
) noexcept nogil:
    """Draw a of a column, see `ParametricGaussianSparse`, from L and 1 / D of its family by rows,
    with 1 / v = 2 gamma / D_d and b = L_p^-T (last row + (v / D_p)^(1/2) z)."""
    cdef Py_ssize_t q = size - 1
    a[q] = sqrt(2.0 * exp(log_gamma_variate(rng, 0.5 * df)) * L[q * (q + 3) // 2])
    for l in range(q):
        a[l] = -L[q * (q + 1) // 2 + l] * a[q]
        a[l] -= sqrt(L[l * (l + 3) // 2]) * random_standard_normal(rng)
    for l in range(q - 1, -1, -1):
        for j in range(l + 1, q):
            a[l] -= L[j * (j + 1) // 2 + l] * a[j]


cdef inline Py_ssize_t place(Py_ssize_t d, Py_ssize_t e, Py_ssize_t n) noexcept nogil:
    """Place of an entry of a symmetric matrix in its lower triangle, packed by columns."""
    cdef Py_ssize_t first = min(d, e)
    return first * n - first * (first - 1) // 2 + max(d, e) - first
