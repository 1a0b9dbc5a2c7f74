# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters that share one covariance matrix, a hyperparameter.

    mu ~ N(u, Sigma / r),  x | mu ~ N(mu, Sigma).

Given Sigma = F F', the whitened rows y = F^-1 x of a cluster are N(F^-1 mu, 1). With n items, mean
x_bar and scatter C = sum (x - x_bar)(x - x_bar)', and rho = r + n,

    m = F^-1 (r u + n x_bar) / rho,
    p(x | cluster) = |2 pi Sigma (rho + 1) / rho|^(-1/2) exp(-|y - m|^2 rho / (rho + 1) / 2),
    p(items) = |2 pi Sigma|^(-n/2) (r / rho)^(D/2)
               exp(-tr(Sigma^-1 [C + (r n / rho) (x_bar - u)(x_bar - u)']) / 2).

Statistics and u are relative to the origin of the rows, which are whitened once for each Sigma.

Learned hyperparameters are drawn one after the other, means of clusters integrated out. With
w_k = 1 / (1 / r + 1 / n_k) and the hyperprior Sigma ~ IW(nu, S), S given Sigma drawn before,

    Sigma ~ IW(nu + n, S + sum_k [C_k + w_k (x_bar_k - u)(x_bar_k - u)']),
    r       by a slice step of its logarithm, from x_bar_k ~ N(u, Sigma / w_k),
    u       normal, from the same.

With m entries missing (see _gaps) the law of the others is N(m_B, Sigma_BB (rho + 1) / rho), and
that of the missing ones given these N(E(x_A | x_B), M^-1 (rho + 1) / rho).

With weights (see _elliptical) the same holds with W for n in the terms of the mean, h for
rho / (rho + 1), and the product of w_i^(D/2) in p(items | weights).

With Sigma integrated out given the clusters of a draw (`Tied.integrated`), Sigma ~ IW(nu', S'), a
new row is Student with nu' - D + 1 degrees of freedom: Sigma is S' / (nu' - D + 1) here, and a
factor exp(-h q / 2) becomes one of a Student law.

Hyperparameters: u (D), r, degrees of freedom of rows (0: Sigma known), Sigma, those of weights.

A set of moments: mass, mean (D), scatter (packed by columns). Terms: log of the density at m,
without h if there are weights; rho / (rho + 1) / 2, m (D).
"""
cimport cython
from libc.float cimport DBL_EPSILON
from libc.math cimport INFINITY, M_PI as PI, fabs, lgamma, log, log1p, sqrt
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._cholesky cimport draw_normal, factorize
from skdpm._core._culling cimport ABOVE, BELOW, SLACK
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, random_standard_normal
from skdpm.mixture.likelihoods.contract._base cimport Indices, read_row, row
from skdpm.mixture.likelihoods.elliptical._columns cimport ParametricDiagonal
from skdpm.mixture.likelihoods.elliptical._elliptical cimport (
    COUNTS, LARGEST_LOSS, PEAK, WEIGHED, EllipticalModel
)
from skdpm.mixture.likelihoods.elliptical._hyper cimport GaussianLaws
from skdpm.mixture.likelihoods.elliptical._hyper import packed_places

cdef double LOG_2PI = log(2.0 * PI)
# Largest square of a distance. Rows beyond it count as equally far away.
cdef double FARTHEST = 1e300

# Turns in which Sigma and the scale of its hyperprior are drawn given each other.
N_TURNS = 4

cdef enum:
    # Cached terms of a row, behind its statistics and after PEAK.
    HALF_PRECISION = 1      # without weights
    CENTER = 2


cdef inline void whiten(
    const double* factor, Py_ssize_t n_features, const double* x, double* y    # OUT (D,)
) noexcept nogil:
    """y = F^-1 x, from the packed factor of Sigma."""
    for d in range(n_features):
        y[d] = x[d]
    for d in range(n_features):
        for i in range(1, n_features - d):
            y[d + i] -= y[d] * factor[i]
        y[d] *= sqrt(factor[0])
        factor += n_features - d


cdef void invert(
    const double* factor, Py_ssize_t n_features,
    double* precision,      # OUT (packed)
    double* work            # scratch (2 D,)
) noexcept nogil:
    """Sigma^-1 from the factor of Sigma, entries off its diagonal doubled: the sum of its products
    with those of C is tr(Sigma^-1 C)."""
    memset(work + n_features, 0, n_features * sizeof(double))
    for d in range(n_features):
        memset(work, 0, n_features * sizeof(double))
        work[d] = 1.0
        draw_normal(factor, n_features, work, work + n_features)
        for e in range(d, n_features):
            precision[e - d] = work[e] if d == e else 2.0 * work[e]
        precision += n_features - d


def whitened(const double[:, ::1] X, sigma):
    """Rows times the inverse of the Cholesky factor of a covariance: ndarray like X."""
    cdef Py_ssize_t n_features = X.shape[1]
    cdef const double[:, ::1] sigma_view = np.ascontiguousarray(sigma)
    cdef double[::1] factor = np.empty(n_features * (n_features + 1) // 2)
    cdef double log_det
    expect_shape("sigma", sigma, (n_features, n_features))
    out = np.empty((X.shape[0], n_features))
    cdef double[:, ::1] view = out
    if not factorize(&sigma_view[0, 0], n_features, n_features, &factor[0], &log_det):
        raise ValueError("Gaussian.scale must be positive definite")
    with nogil:
        for i in range(X.shape[0]):
            whiten(&factor[0], n_features, &X[i, 0], &view[i, 0])
    return out


@cython.final
cdef class TiedModel(EllipticalModel):
    """Kernel of Gaussian clusters with one covariance, Sigma: `scale`, (n_features, n_features).
    `tables` are those of `EllipticalModel`, and `white`, the whitened rows."""
    cdef const double[:, ::1] white
    cdef double log_det                 # log |Sigma|
    cdef double gain                    # log of a Student density over a normal one, at its centre
    cdef double[::1] factor             # (n_packed,): of Sigma
    cdef double[::1] precision          # (n_packed,): see `invert`
    cdef const double[:, ::1] matrix    # Sigma^-1 and the columns of F^-1, if there are gaps
    cdef const double[:, ::1] inverse

    cdef int begin(self, tables, scale) except -1:
        self.white = tables["white"]
        expect_shape("scale", scale, (self.n_features, self.n_features))
        expect_shape("white", self.white, (self.n_samples, self.n_features))
        self.factor, self.precision = np.empty((2, self.n_packed))
        self.work = np.empty(3 * self.n_features)
        return self.lay_out(CENTER + self.n_features)

    cdef int take_hyperparameters(self) except -1:
        cdef Py_ssize_t n_features = self.n_features
        EllipticalModel.take_hyperparameters(self)
        if not factorize(
            self.hyper + n_features + 2, n_features, n_features, &self.factor[0], &self.log_det
        ):
            raise ValueError("Gaussian.scale must be positive definite")
        invert(&self.factor[0], n_features, &self.precision[0], &self.work[0])
        self.gain = 0.0
        if self.df > 0.0:
            half = 0.5 * self.df
            self.gain = lgamma(half + self.half) - lgamma(half) - self.half * log(half)
        self.compute(self.empty)
        if self.gaps is not None:
            inverse = whitened(np.eye(n_features), self.sigma())
            self.inverse = inverse
            self.matrix = inverse @ inverse.T

    cdef int retabulate(self) except -1:
        self.take_hyperparameters()
        self.white = whitened(self.rows, self.sigma())

    cdef int take_rows(self) except -1:
        EllipticalModel.take_rows(self)
        self.rows = self.gaps.rows.base
        self.white = whitened(self.rows, self.sigma())

    def sigma(self):
        """Sigma: ndarray of shape (n_features, n_features)."""
        values = self.hyperparameters()[self.n_features + 2 : self.first_law]
        return values.reshape(self.n_features, self.n_features)

    # Rows.

    cdef void compute(self, double* stats) noexcept nogil:
        """O(D^2)."""
        cdef const double* moments = stats + self.first_set
        cdef double* center = &self.work[0]
        cdef double rho = self.mean_precision
        memcpy(center, &self.prior_mean[0], self.n_features * sizeof(double))
        for k in range(self.n_sets):
            mass = self.factors[k] * moments[0]
            rho += mass
            for d in range(self.n_features):
                center[d] += mass / rho * (moments[1 + d] - center[d])
            moments += self.n_set
        whiten(&self.factor[0], self.n_features, center, stats + self.n_stats + CENTER)
        self.finish(stats)

    cdef inline double finish(self, double* stats) noexcept nogil:
        """Set the cached terms that follow from the numbers of items. Returns rho."""
        cdef double* cached = stats + self.n_stats
        cdef double rho = self.rho_of(stats)
        if self.weights is None:
            cached[PEAK] = -0.5 * (
                self.n_features * (LOG_2PI + log1p(1.0 / rho)) + self.log_det
            ) + self.gain
            cached[HALF_PRECISION] = 0.5 * rho / (rho + 1.0)
            return rho
        cached[PEAK] = -0.5 * (self.n_features * LOG_2PI + self.log_det) + self.gain
        # The largest h^(D/2) exp(-h q / 2) is at h = D / q.
        self.finish_weights(
            stats, rho, 0.5 * self.n_features * (log(<double>self.n_features) - 1.0)
        )
        return rho

    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil:
        """O(D^2). False if too many digits of the scatter are lost."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* y = &self.white[i, 0]
        cdef const double* sigma = self.hyper + n_features + 2
        cdef const double* moments = self.set_of(stats, g)
        cdef const double* scatter = moments + 1 + n_features
        cdef double* center = stats + self.n_stats + CENTER
        cdef double* gap = &self.work[0]
        cdef double before = moments[0]
        self.count_scatter(stats, i, g, sign, gap)
        by = sign * self.value_of(g) / self.finish(stats)
        for d in range(n_features):
            center[d] += by * (y[d] - center[d])
        if sign > 0.0 or not moments[0] > 0.0:
            return True
        by = (before - moments[0]) * before / moments[0]
        for d in range(n_features):
            # The change of the column's scatter, relative to what remains.
            if by * gap[d] * gap[d] > LARGEST_LOSS * LARGEST_LOSS * (
                scatter[0] + sigma[d * (n_features + 1)]
            ):
                return False
            scatter += n_features - d
        return True

    # Marginal likelihoods and hyperparameters.

    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil:
        """The mean of a set is compared with that of the sets before, the prior mean first."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set
        cdef double* gap = &self.work[0]
        cdef double* z = gap + n_features
        cdef double* center = z + n_features
        cdef double rho = self.mean_precision
        cdef double total = stats[0] * (n_features * LOG_2PI + self.log_det)
        memcpy(center, &self.prior_mean[0], n_features * sizeof(double))
        for k in range(self.n_sets):
            mass = factors[k] * moments[0]
            if mass > 0.0:
                squares = 0.0
                for t in range(self.n_packed):
                    squares += self.precision[t] * moments[1 + n_features + t]
                total += n_features * log1p(mass / rho)
                total += factors[k] * squares
                for d in range(n_features):
                    gap[d] = moments[1 + d] - center[d]
                whiten(&self.factor[0], n_features, gap, z)
                squares = 0.0
                for d in range(n_features):
                    squares += z[d] * z[d]
                    center[d] += mass / (rho + mass) * gap[d]
                total += rho * mass / (rho + mass) * squares
                rho += mass
            moments += self.n_set
        return self.log_law(stats + COUNTS, stats + COUNTS, n_features, factors) - 0.5 * total

    def gaussian_laws(self, priors, values, stats, bit_generator):
        return given_covariance(priors, values, *self.units, *self.pooled(stats), bit_generator)

    # Densities.

    cdef inline double loss(self, double half_square) noexcept nogil:
        """-log of the factor that is exp(-h q / 2) if Sigma is known."""
        if self.df == 0.0:
            return half_square
        return (0.5 * self.df + self.half) * log1p(2.0 * half_square / self.df)

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot): normal or Student, O(n_slots * D)."""
        if self.weights is not None:
            self.log_weighted_many(slots, i, out)
            return
        if self.is_open(i):
            self.prepare_known(i)
            for k in range(slots.n):
                cached = read_row(self, slots.at[k]) + self.n_stats
                out[k] = (
                    cached[PEAK]
                    + 0.5 * self.gaps.n_missing * (LOG_2PI - log(2.0 * cached[HALF_PRECISION]))
                    - 0.5 * self.gaps.log_det
                    - cached[HALF_PRECISION] * self.square_known(slots.at[k])
                )
            return
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            q = cached[HALF_PRECISION] * self.bound_square(slots.at[k], i)
            out[k] = cached[PEAK] - self.loss(q)

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """|y - m|^2."""
        cdef const double* y = &self.white[i, 0]
        cdef const double* center = row(self, slot) + self.n_stats + CENTER
        cdef double q = 0.0
        for d in range(self.n_features):
            gap = y[d] - center[d]
            q += gap * gap
        return q if q < FARTHEST else FARTHEST

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        """p(w) h^(D/2) |2 pi Sigma|^(-1/2) exp(-h q / 2), or that of the known entries."""
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef const double* weighed = cached + self.terms + WEIGHED + first
        cdef double peak = cached[PEAK]
        cdef double half = 0.0
        if self.is_open(i):
            self.prepare_known(i)
            half = 0.5 * self.gaps.n_missing
            peak += half * LOG_2PI - 0.5 * self.gaps.log_det
            q = 0.5 * self.square_known(slot)
        else:
            q = 0.5 * self.bound_square(slot, i)
        for g in range(n):
            out[g] = peak + weighed[g] - self.loss(q * weighed[self.n_lanes + g])
            if half > 0.0:
                out[g] -= half * log(weighed[self.n_lanes + g])

    # Missing entries.

    cdef bint prepare_known(self, Py_ssize_t i) noexcept nogil:
        """Prepare `gaps`, and whiten row i with 0 for missing entries, to `work` behind its first
        D numbers. False if the missing entries have no law."""
        cdef double* x = &self.work[self.n_features]
        cdef bint good = self.gaps.prepare(&self.matrix[0, 0], i)
        for d in range(self.n_features):
            x[d] = self.gaps.data[i, d]
            if x[d] != x[d]:
                x[d] = 0.0
        whiten(&self.factor[0], self.n_features, x, x + self.n_features)
        return good

    cdef double square_known(self, Py_ssize_t slot) noexcept nogil:
        """q_B of the row of `prepare_known`, which no missing entry of x changes."""
        cdef const double* y = &self.work[2 * self.n_features]
        cdef const double* center = row(self, slot) + self.n_stats + CENTER
        cdef double* z = &self.work[0]
        cdef double q = 0.0
        for d in range(self.n_features):
            z[d] = y[d] - center[d]
            q += z[d] * z[d]
        q = self.gaps.reduce(&self.inverse[0, 0], z, q)
        return FARTHEST if q > FARTHEST else q

    cdef bint draw_missing(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        cdef const double* cached = row(self, slot) + self.n_stats
        cdef double h = 2.0 * cached[HALF_PRECISION]
        if self.weights is not None:
            h = cached[self.terms + WEIGHED + self.n_lanes + self.weights.chosen[i]]
        if not self.prepare_known(i):
            return False
        self.square_known(slot)
        return self.gaps.draw(NULL, i, sqrt(1.0 / h), <bitgen_t*>rng)

    cdef void row_changed(self, Py_ssize_t i) noexcept nogil:
        whiten(
            &self.factor[0], self.n_features, self.X + i * self.n_features,
            <double*>&self.white[i, 0]
        )

    # Bounds, without weights.

    cdef inline void whiten_box(
        self, const double* box, double* z, double* r, double* size     # OUT (D,) each
    ) noexcept nogil:
        """z = F^-1 c of the box's centre c, and a bound r of the change of each z_d to a point of
        the box: forward substitution with absolute values, plus rounding, a share of the terms."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* factor = &self.factor[0]
        cdef double share = 4.0 * (n_features + 4) * DBL_EPSILON
        whiten(factor, n_features, box, z)
        for d in range(n_features):
            r[d] = box[n_features + d]
            size[d] = fabs(box[d]) + r[d]
        for d in range(n_features):
            for i in range(1, n_features - d):
                r[d + i] += r[d] * fabs(factor[i])
                size[d + i] += size[d] * fabs(factor[i])
            root = sqrt(factor[0])
            factor += n_features - d
            r[d] = root * (r[d] * ABOVE + share * size[d])

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        """|y_d - m_d| is at least max(0, |z_d - m_d| - r_d): see `whiten_box`."""
        cdef Py_ssize_t n_features = self.n_features
        cdef double* z = &self.work[0]
        cdef double* r = z + n_features
        self.whiten_box(box, z, r, r + n_features)
        for k in range(slots.n):
            cached = read_row(self, slots.at[k]) + self.n_stats
            q = 0.0
            for d in range(n_features):
                least = fabs(z[d] - cached[CENTER + d]) * BELOW - r[d]
                if least > 0.0:
                    q += least * least
            q = self.loss(cached[HALF_PRECISION] * (q if q < FARTHEST else FARTHEST))
            out[k] = cached[PEAK] - q + SLACK * (1.0 + fabs(cached[PEAK]) + q)

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """Let rho count the item at y. Without it, its distance from the centre becomes
        (y - m) rho / (rho - 1), and its density is

            |2 pi Sigma rho / (rho - 1)|^(-1/2) exp(-|y - m|^2 rho / (rho - 1) / 2)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef const double* center = stats + self.n_stats + CENTER
        cdef double rho = self.mean_precision + stats[0]
        cdef double* z = &self.work[0]
        cdef double* r = z + n_features
        cdef double q = 0.0
        self.whiten_box(box, z, r, r + n_features)
        for d in range(n_features):
            tail = (fabs(z[d] - center[d]) + r[d]) * ABOVE
            q += tail * tail
        q *= 0.5 * rho / (rho - 1.0)
        if not q < 1e9:     # few digits are left, and little time would be saved
            return -INFINITY
        peak = -0.5 * (n_features * (LOG_2PI - log1p(-1.0 / rho)) + self.log_det)
        return peak - q - SLACK * (1.0 + fabs(peak) + q)


def shared_scatter(stats, gaps, mean_precision, masses):
    """sum_k [C_k + w_k (x_bar_k - u)(x_bar_k - u)'], with x_bar_k - u in `gaps`."""
    n_features = gaps.shape[1]
    scatter = np.zeros((n_features, n_features))
    lower = packed_places(n_features)[::-1]
    scatter[lower] = stats[:, 1 + n_features :].sum(axis=0)
    weights = 1.0 / (1.0 / mean_precision + 1.0 / masses)
    scatter += np.tril((weights * gaps.T) @ gaps)
    return scatter + np.tril(scatter, -1).T


def given_covariance(priors, values, spread, origin, floor, stats, masses, bit_generator):
    """Draw Sigma in `values` if it is learned, and return the laws of the other hyperparameters.
    `stats` and `masses` are as in `FullLaws`, with masses in units of Sigma^-1."""
    means = stats[:, 1 : 1 + len(spread)] + origin
    if "scale" in priors:
        scatter = shared_scatter(stats, means - values["mean"], values["mean_precision"], masses)
        sigma, rng = np.reshape(values["scale"], scatter.shape), np.random.Generator(bit_generator)
        for _ in range(N_TURNS):
            sigma = priors["scale"].given(sigma, stats[:, 0].sum(), scatter, rng).draw(rng)
        values["scale"] = sigma.ravel()
    others = {name: law for name, law in priors.items() if name != "scale"}
    return TiedLaws(others, values, spread, origin, floor, masses, means)


@cython.final
cdef class TiedLaws(GaussianLaws):
    """Conditional laws of r and u, given Sigma, which is by rows among the values, from means
    x_bar of clusters, not relative to the origin, and their precisions n in units of Sigma^-1."""
    cdef const double[::1] n
    cdef const double[:, ::1] means         # in units of the spreads, minus the origin
    cdef const double[:, ::1] precision     # Sigma^-1, in these units
    cdef double[::1] squares                # (K,): (x_bar - u)' Sigma^-1 (x_bar - u)
    cdef double[::1] work                   # (2 D + D (D + 1) / 2,)

    def __init__(self, priors, values, spread, origin, floor, n, means):
        cdef Py_ssize_t n_features = len(spread)
        GaussianLaws.__init__(self, priors, values, spread, origin, n_features - 1.0, floor)
        sigma = np.reshape(values["scale"], (n_features, n_features))
        self.n_clusters = len(n)
        self.n = np.ascontiguousarray(n)
        self.means = (means - origin) / spread
        self.precision = np.linalg.inv(sigma / spread / spread[:, None])
        self.squares = np.empty(self.n_clusters)
        self.work = np.empty(2 * n_features + n_features * (n_features + 1) // 2)

    cdef bint prepare_precision(self) noexcept nogil:
        for k in range(self.n_clusters):
            self.squares[k] = 0.0
            for d in range(self.n_features):
                gap = self.means[k, d] - self.u[d]
                for e in range(self.n_features):
                    self.squares[k] += gap * self.precision[d, e] * (self.means[k, e] - self.u[e])
        return True

    cdef double log_evidence_precision(self, double r) noexcept nogil:
        cdef double total = 0.0
        for k in range(self.n_clusters):
            total -= self.n_features * log1p(self.n[k] / r)
            total -= self.squares[k] / (1.0 / r + 1.0 / self.n[k])
        return 0.5 * total

    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil:
        """Normal, of precision 1 + sum_k w_k Sigma^-1."""
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n_features = self.n_features
        cdef double* b = &self.work[0]
        cdef double* noise = b + n_features
        cdef double* system = noise + n_features
        cdef double total = 0.0
        memset(noise, 0, n_features * sizeof(double))
        for k in range(self.n_clusters):
            weight = 1.0 / (1.0 / self.r + 1.0 / self.n[k])
            total += weight
            for d in range(n_features):
                noise[d] += weight * (self.means[k, d] - self.center[d])
        for d in range(n_features):
            b[d] = 0.0
            for e in range(n_features):
                b[d] += self.precision[d, e] * noise[e]
            for e in range(d, n_features):
                system[t] = total * self.precision[d, e] + (1.0 if d == e else 0.0)
                t += 1
        return self.draw_mean_of(system, b, noise, rng)


@cython.final
cdef class ParametricGaussianTied(ParametricDiagonal):
    """Gaussian rows under drawn means and one given covariance, `sigma`.

    Densities, bounds and parameters are those of `ParametricDiagonal` over whitened rows, where w
    is 1: F^-1 mu ~ N(m, 1 / rho). Statistics are those of `TiedModel`.
    """
    cdef object white               # whitened rows
    cdef double[::1] factor         # of Sigma, packed
    cdef double log_det

    def __init__(
        self, const double[:, ::1] X, mean, const double[:, ::1] sigma, double mean_precision
    ):
        cdef Py_ssize_t n_features = X.shape[1]
        self.white = whitened(X, sigma)
        ParametricDiagonal.__init__(self, self.white, mean, mean_precision, 0.0, False)
        self.rows = X
        self.n_stats = 1 + n_features + self.n_packed
        self.moments = np.empty(self.n_stats)
        self.factor = np.empty(self.n_packed)
        factorize(&sigma[0, 0], n_features, n_features, &self.factor[0], &self.log_det)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t n_features = self.n_features
        cdef double n = power * stats[0]
        cdef double rho = self.mean_precision + n
        cdef double* w = params + 1
        cdef double* center = w + n_features
        cdef double* log_w = center + n_features
        for d in range(n_features):
            w[d] = self.mean[d] + n / rho * (stats[1 + d] - self.mean[d])
        whiten(&self.factor[0], n_features, w, center)
        for d in range(n_features):
            center[d] += random_standard_normal(rng) / sqrt(rho)
            w[d] = 1.0
            log_w[d] = -0.5 * LOG_2PI
        params[0] = -0.5 * (n_features * LOG_2PI + self.log_det)
