# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters in which every column depends on few others: Geiger & Heckerman (2002).

Column d has parents p, earlier columns in some order, the same in all clusters. In each cluster

    v ~ InvGamma(nu / 2, rate s_d / 2),  b | v ~ N(0, v diag(1 / s_p)),
    x_d | x_p, mu, b, v ~ N(mu_d + b'(x_p - mu_p), v),  mu | all v, b ~ N(u, Sigma / r)

with the covariance Sigma that follows from all v and b. With n items of mean x_bar, and for a column
and its parents the matrix

    S = diag(s) + C + (r n / rho) (x_bar - u)(x_bar - u)',  rho = r + n,

of their scatter C, let L L' = S, with the column last, m = (r u + n x_bar) / rho, L (w, e) = x - m,
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
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    LARGEST_LOSS, PEAK, EllipticalModel, add_square
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
    double skdpm_log_product(const double* x, Py_ssize_t n)


LARGEST_FAMILY = SKDPM_LARGEST_FAMILY


def padded(Py_ssize_t n_features):
    """Length of the runs of families.h."""
    return (n_features + SKDPM_WIDTH - 1) // SKDPM_WIDTH * SKDPM_WIDTH


@cython.final
cdef class SparseModel(EllipticalModel):
    """Kernel of Gaussian clusters in which columns depend on few others.

    `tables` are those of `EllipticalModel`, and `families`: (size, ld). Members of the families, the
    columns themselves last; n_features if there is no such member.
    """
    cdef Py_ssize_t size, ld, n_entries
    cdef const Py_ssize_t[:, ::1] families
    cdef double[::1] members        # (size * ld,): scratch of a row
    cdef double[::1] gap            # (D + 1,), the last one 0
    cdef double[::1] gaps           # (size * ld,)
    cdef double[::1] scales         # (size * ld,): s of all members
    cdef double[::1] factor         # (n_entries * ld,): scratch

    cdef int begin(self, tables, scale) except -1:
        self.families = tables["families"]
        self.size = self.families.shape[0]
        self.ld = self.families.shape[1]
        self.n_entries = self.size * (self.size + 1) // 2
        expect_shape("families", self.families, (self.size, padded(self.n_features)))
        self.members, self.gaps, self.scales = np.zeros((3, self.size * self.ld))
        self.gap = np.zeros(self.n_features + 1)
        self.factor = np.empty(self.n_entries * self.ld)
        self.n_set = 1 + self.n_features + self.n_entries * self.ld
        self.keeps = self.finds_near = True
        return self.lay_out(FACTOR + (self.n_entries + self.size) * self.ld)

    cdef int take_hyperparameters(self) except -1:
        EllipticalModel.take_hyperparameters(self)
        self.gather_scales(self.hyper + self.n_features + 2)
        self.compute(self.empty)
        return 0

    cdef int retabulate(self) except -1:
        if not np.min(self.hyperparameters()[self.n_features :]) > 0.0:
            raise ValueError("Gaussian.mean_precision, Gaussian.df or Gaussian.scale is not > 0")
        return self.take_hyperparameters()

    cdef void gather(self, const double* x, double* members) noexcept nogil:
        """Entries of all members of the families, from those of the columns and 0."""
        cdef Py_ssize_t k
        cdef const Py_ssize_t* column = &self.families[0, 0]
        for k in range(self.size * self.ld):
            members[k] = x[column[k]]

    cdef void gather_row(self, Py_ssize_t i) noexcept nogil:
        memcpy(&self.gap[0], self.X + i * self.n_features, self.n_features * sizeof(double))
        self.gather(&self.gap[0], &self.members[0])

    cdef void gather_scales(self, const double* scale) noexcept nogil:
        memcpy(&self.gap[0], scale, self.n_features * sizeof(double))
        self.gap[self.n_features] = 1.0
        self.gather(&self.gap[0], &self.scales[0])
        self.gap[self.n_features] = 0.0

    cdef void factorize(
        self, const double* stats, const double* u, double r, double* factor
    ) noexcept nogil:
        """L of all families; leaves the gaps between mean and u."""
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.gap[d] = stats[1 + d] - u[d] if stats[0] > 0.0 else 0.0
        self.gather(&self.gap[0], &self.gaps[0])
        families_factor(
            stats + 1 + self.n_features, &self.scales[0], &self.gaps[0],
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
        cdef Py_ssize_t d, k
        cdef double* cached = stats + self.n_stats
        cdef double* center = cached + FACTOR + self.n_entries * self.ld
        cdef double nu = self.df + stats[0]
        cdef double shrink = stats[0] / (self.mean_precision + stats[0])
        self.factorize(stats, &self.prior_mean[0], self.mean_precision, cached + FACTOR)
        for d in range(self.n_features):
            self.gap[d] = self.prior_mean[d] + shrink * self.gap[d]
        self.gather(&self.gap[0], center)
        cached[PEAK] = self.n_features * (log_rising(0.5 * nu, 0.5) - 0.5 * LOG_PI)
        cached[PEAK] += self.sum_logs(cached + FACTOR, self.size - 1)

    cdef bint shift(
        self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* x = self.X + i * self.n_features
        cdef double* scatter = stats + 1 + self.n_features
        cdef const double* squares = scatter + (self.n_entries - 1) * self.ld
        cdef double before = stats[0]
        cdef double by = self.count(stats, g, sign)
        cdef bint good = True
        by /= stats[0]
        for d in range(self.n_features):
            self.gap[d] = x[d] - stats[1 + d]
            stats[1 + d] += by * self.gap[d]
        by *= before
        self.gather(&self.gap[0], &self.gaps[0])
        families_add(scatter, &self.gaps[0], by, self.ld, self.size)
        if sign < 0.0:
            # A far item takes the digits of the others along.
            for d in range(self.n_features):
                good &= -by * self.gap[d] * self.gap[d] < LARGEST_LOSS * LARGEST_LOSS * (
                    squares[d] + self.scales[(self.size - 1) * self.ld + d]
                )
        if good:
            self.compute(stats)
        return good

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
        for k in range(self.n_entries * self.ld):
            scatter[k] += other[1 + self.n_features + k]
        self.gather(&self.gap[0], &self.gaps[0])
        families_add(scatter, &self.gaps[0], moments[0] * other[0] / n, self.ld, self.size)
        moments[0] = n

    cdef inline double log_density(self, Py_ssize_t slot, double least) noexcept nogil:
        """log p(x | items of a slot) of the row in `members`, or a number below `least` if it is."""
        cdef const double* stats = row(self, slot)
        cdef const double* cached = stats + self.n_stats
        cdef double rho = self.mean_precision + stats[0]
        return cached[PEAK] + families_log_density(
            &self.members[0], cached + FACTOR + self.n_entries * self.ld, cached + FACTOR,
            self.n_features, self.ld, self.size, (rho + 1.0) / rho, 0.5 * (self.df + stats[0]),
            least - cached[PEAK]
        )

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(size^2 D) for each."""
        cdef Py_ssize_t k
        self.gather_row(i)
        for k in range(n_slots):
            out[k] = self.log_density(slots[k], -INFINITY)

    cdef Py_ssize_t find_near(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* log_least,
        Py_ssize_t* near
    ) noexcept nogil:
        """Most clusters are ruled out by the first columns."""
        cdef Py_ssize_t k
        cdef Py_ssize_t n_near = 0
        self.gather_row(i)
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
        self.gather_scales(hyper + n_features + 2)
        self.factorize(stats, &self.members[0], hyper[n_features], &self.factor[0])
        total = self.log_evidence(
            stats[0], &self.factor[0], hyper[n_features], hyper[n_features + 1]
        )
        self.gather_scales(self.hyper + n_features + 2)
        return total

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return SparseLaws(priors, values, *self.units, stats, self.families)


@cython.final
cdef class SparseLaws(GaussianLaws):
    """Conditional laws of hyperparameters.

    - `stats`: (n_clusters, n_stats)
    - `families`: As in `SparseModel`.
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
            self.t[:] = values["scale"] / spread / spread
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
        """The precision matrix of a cluster is the sum over columns of a a' / v, with a = 1 at the
        column and -b at its parents."""
        cdef Py_ssize_t d, j, k, l
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t q = self.size - 1
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
                # a / v^(1/2): with 1 / v = 2 gamma / l^2 and b = L_p^-T (last row + v^(1/2) z).
                a[q] = sqrt(2.0 * exp(log_gamma_variate(rng, 0.5 * (self.excess + self.n[k]))))
                a[q] /= factor[q * (q + 3) // 2]
                for l in range(q):
                    a[l] = -factor[q * (q + 1) // 2 + l] * a[q] - random_standard_normal(rng)
                for l in range(q - 1, -1, -1):
                    for j in range(l + 1, q):
                        a[l] -= factor[j * (j + 1) // 2 + l] * a[j]
                    a[l] /= factor[l * (l + 3) // 2]
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


cdef inline Py_ssize_t place(Py_ssize_t d, Py_ssize_t e, Py_ssize_t n) noexcept nogil:
    """Place of an entry of a symmetric matrix in its lower triangle, packed by columns."""
    cdef Py_ssize_t first = min(d, e)
    return first * n - first * (first - 1) // 2 + max(d, e) - first
