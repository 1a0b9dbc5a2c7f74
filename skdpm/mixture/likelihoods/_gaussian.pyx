# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters with a normal-inverse-Wishart prior: Murphy (2007), section 9.

    Sigma ~ IW(nu, S),  mu | Sigma ~ N(u, Sigma / r),  x | mu, Sigma ~ N(mu, Sigma).

With n items, mean x_bar and scatter C = sum (x - x_bar)(x - x_bar)', and rho = r + n,

    m   = (r u + n x_bar) / rho,    S_n = S + C + (r n / rho) (x_bar - u)(x_bar - u)',
    p(x | cluster) = c_n |S_n|^(-1/2) (1 + q rho / (rho + 1))^(-(nu + n + 1) / 2),
    q   = (x - m)' S_n^-1 (x - m),
    c_n = pi^(-D/2) (rho / (rho + 1))^(D/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n + 1 - D) / 2).

S_n = L D L' is kept as its Cholesky factor and changes by one rank per item. The data come centred
at u, so that u is 0 here and a far origin costs no digits. Where the factor is computed anew, it
is that of S + C, and the terms of means follow by updates of one rank: in a sum with them, S + C
would lose its digits as soon as a cluster is far from u on the scale of S. (So does C itself where
items of one cluster are that far apart; then a factor from statistics alone is as good as C.)

A removal is deferred: an item that leaves a cluster mostly comes back at once, and then nothing
has to be done (nor is anything rounded). In between, its predictive density without itself
follows from the factor with it: with h = q rho / (rho - 1),

    p(x | cluster without x) = c_{n-1} |S_n|^(-1/2) (1 - h)^((nu + n - 1) / 2).

Row: n, x_bar (D), C (packed) | log |S_n|, log c_n |S_n|^(-1/2), rho / (rho + 1),
(nu + n + 1) / 2, m (D), the factor (packed, by columns, 1 / D on the diagonal).
"""
cimport cython
from libc.math cimport INFINITY, NAN
from libc.math cimport M_PI as PI
from libc.math cimport exp, lgamma, log, sqrt
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport random_standard_normal

from skdpm._core._rng cimport log_gamma_variate
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._parametric cimport TILE, ParametricModel

cdef double LOG_PI = log(PI)
cdef double LOG_1E100 = log(1e100)

cdef enum:
    NONE = -1
    # Cached terms of a row, behind its statistics.
    LOG_DET = 0
    LOG_PEAK = 1
    SHRINKAGE = 2
    EXPONENT = 3
    CENTER = 4


cdef extern from "cholesky.h" nogil:
    bint cholesky(double* packed, Py_ssize_t n, double* log_det)
    bint cholesky_above(
        double* packed, Py_ssize_t n, const double* least, double* log_det
    )
    bint cholesky_update(
        double* packed, Py_ssize_t n, double* vector, double alpha, double* log_det
    )
    double solve_squared(const double* packed, Py_ssize_t n, double* vector)


cdef extern from "tiles.h" nogil:
    enum: SKDPM_STRIP
    void tile_gaussian(
        const double* x, Py_ssize_t n, Py_ssize_t n_features, const double* w, const double* c,
        double top, double* out
    )
    void tile_scatter(const double* x, Py_ssize_t n, Py_ssize_t n_features, double* out)


cdef inline void combine_moments(
    double* stats, const double* other, Py_ssize_t n_features, double* gap    # scratch (D,)
) noexcept nogil:
    """Counts, means and scatters of two clusters: Chan, Golub & LeVeque (1983), eq. 1.5; without
    cancellation."""
    cdef Py_ssize_t d, e
    cdef Py_ssize_t t = 1 + n_features
    cdef double n = stats[0] + other[0]
    cdef double weight
    if other[0] == 0.0:
        return
    weight = stats[0] * other[0] / n
    for d in range(n_features):
        gap[d] = other[1 + d] - stats[1 + d]
        stats[1 + d] += gap[d] * other[0] / n
    for d in range(n_features):
        for e in range(d, n_features):
            stats[t] += other[t] + weight * gap[d] * gap[e]
            t += 1
    stats[0] = n


@cython.final
cdef class GaussianModel(ClusterModel):
    """Kernel of Gaussian clusters with full covariances.

    Parameters
    ----------
    data : dict
        X : ndarray of shape (n_samples, n_features)
            Rows minus the prior mean u.
    tables : dict
        n_max : int
            Most items that one cluster may hold.
        scale : ndarray of shape (D (D + 1) / 2,)
            S, packed by columns.
        log_norm : ndarray of shape (n_max + 1,)
            log c_n.
    mean_precision, df : float
        r and nu.
    """
    cdef Py_ssize_t n_features      # D
    cdef Py_ssize_t n_packed        # D (D + 1) / 2
    cdef const double* X
    cdef const double* scale
    cdef const double* log_norm
    cdef double mean_precision, df
    cdef double* work               # (2 * n_features,)
    cdef Py_ssize_t pending_slot    # the row that still holds `pending_item`, or NONE
    cdef Py_ssize_t pending_item
    cdef double log_det_prior
    cdef object _owners

    def __init__(self, data, tables, double mean_precision, double df):
        cdef const double[:, ::1] X = data["X"]
        cdef const double[::1] scale = tables["scale"]
        cdef const double[::1] log_norm = tables["log_norm"]
        cdef double* factor
        self._owners = (X, scale, log_norm)
        self.drifts = True
        self.n_samples = X.shape[0]
        self.n_features = X.shape[1]
        self.n_packed = scale.shape[0]
        self.n_max = tables["n_max"]
        self.X = &X[0, 0]
        self.scale = &scale[0]
        self.log_norm = &log_norm[0]
        self.mean_precision = mean_precision
        self.df = df
        self.pending_slot = NONE
        self.pending_item = NONE
        self.work = <double*>malloc(2 * self.n_features * sizeof(double))
        if self.work == NULL:
            raise MemoryError
        self.allocate(
            1 + self.n_features + self.n_packed,
            1 + CENTER + 2 * (self.n_features + self.n_packed),
        )
        factor = self.empty + self.n_stats + CENTER + self.n_features
        memcpy(factor, self.scale, self.n_packed * sizeof(double))
        if not self.finish(
            self.empty, cholesky(factor, self.n_features, self.empty + self.n_stats + LOG_DET)
        ):
            raise ValueError("Gaussian.scale must be positive definite")
        self.log_det_prior = self.empty[self.n_stats + LOG_DET]

    def __dealloc__(self):
        free(self.work)

    cdef bint factorize(self, double* stats, const double* other=NULL) noexcept nogil:
        """Cached terms from the statistics, O(D^3), once the items of another cluster, if any,
        have joined. False, and a determinant of NaN, where rounding leaves no factor."""
        cdef Py_ssize_t d, t
        cdef Py_ssize_t n_features = self.n_features
        cdef double weight
        cdef double* mean = stats + 1
        cdef double* scatter = mean + n_features
        cdef double* log_det = stats + self.n_stats + LOG_DET
        cdef double* center = stats + self.n_stats + CENTER
        cdef double* factor = center + n_features
        cdef double* gap = self.work
        cdef bint good
        for t in range(self.n_packed):
            factor[t] = self.scale[t] + scatter[t]
            if other != NULL:
                factor[t] += other[1 + n_features + t]
        good = cholesky_above(
            factor, n_features, self.empty + self.n_stats + CENTER + n_features, log_det
        )
        if other != NULL:
            weight = stats[0] * other[0] / (stats[0] + other[0])
            combine_moments(stats, other, n_features, gap)
            good = good and cholesky_update(factor, n_features, gap, weight, log_det)
        weight = stats[0] / (self.mean_precision + stats[0])
        for d in range(n_features):
            center[d] = weight * mean[d]
            gap[d] = mean[d]
        weight *= self.mean_precision
        good = good and cholesky_update(factor, n_features, gap, weight, log_det)
        if not good:
            log_det[0] = NAN
        return self.finish(stats, good)

    cdef bint finish(self, double* stats, bint positive_definite) noexcept nogil:
        """The cached terms that follow from n and log |S_n|."""
        cdef double* cached = stats + self.n_stats
        cdef double rho = self.mean_precision + stats[0]
        cached[LOG_PEAK] = self.log_norm[<Py_ssize_t>stats[0]] - 0.5 * cached[LOG_DET]
        cached[SHRINKAGE] = rho / (rho + 1.0)
        cached[EXPONENT] = 0.5 * (self.df + stats[0] + 1.0)
        return positive_definite

    cdef void recover(self, Py_ssize_t slot) noexcept nogil:
        """The factor of a row was lost to rounding: start from its items, if the labels tell
        them; failing that, from its scatter. What then still fails has NaN for its determinant,
        and is refused by the sampler."""
        cdef Py_ssize_t i
        cdef bint good
        cdef Py_ssize_t n_items = 0
        cdef double* stats = row(self, slot)
        if self.n_labels == self.n_samples:
            for i in range(self.n_samples):
                n_items += self.labels[i] == slot
        good = n_items > 0 and n_items == stats[0]
        if good:
            memcpy(stats, self.empty, self.width * sizeof(double))
            for i in range(self.n_samples):
                if self.labels[i] == slot:
                    good &= self.shift(stats, self.X + i * self.n_features, 1.0)
        if not good:
            self.factorize(stats)

    cdef bint shift(self, double* stats, const double* x, double sign) noexcept nogil:
        """Item x enters (sign = 1) or leaves (-1): all terms of the row, O(D^2). False where the
        factor is no longer positive definite."""
        cdef Py_ssize_t d, e
        cdef Py_ssize_t n_features = self.n_features
        cdef double n = stats[0] + sign
        cdef double by = sign / n
        cdef double by_center = sign / (self.mean_precision + n)
        cdef double* mean = stats + 1
        cdef double* scatter = mean + n_features
        cdef double* center = stats + self.n_stats + CENTER
        cdef double* factor = center + n_features
        cdef double* u = self.work
        cdef double* v = self.work + n_features
        for d in range(n_features):
            u[d] = x[d] - mean[d]
            mean[d] += by * u[d]
            v[d] = x[d] - center[d]
            center[d] += by_center * v[d]
        # With the means before the change, sign (x - m)(x - m)' (rho - sign) / rho is the change
        # of S_n and, without r, that of C.
        by *= n - sign
        for d in range(n_features):
            for e in range(d, n_features):
                scatter[e - d] += by * u[d] * u[e]
            scatter += n_features - d
        by = by_center * (self.mean_precision + (n - sign))
        stats[0] = n
        return self.finish(
            stats, cholesky_update(factor, n_features, v, by, stats + self.n_stats + LOG_DET)
        )

    cdef void settle(self) noexcept nogil:
        """Do the removal that was put off."""
        cdef Py_ssize_t slot = self.pending_slot
        if slot == NONE:
            return
        self.pending_slot = NONE
        if not self.shift(row(self, slot), self.X + self.pending_item * self.n_features, -1.0):
            self.recover(slot)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        if slot == self.pending_slot and i == self.pending_item:
            self.pending_slot = NONE
            return
        self.settle()
        if not self.shift(row(self, slot), self.X + i * self.n_features, 1.0):
            self.recover(slot)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.settle()
        if row(self, slot)[0] == 1.0:
            memcpy(row(self, slot), self.empty, self.width * sizeof(double))
        else:
            self.pending_slot = slot
            self.pending_item = i

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        if slot == self.pending_slot:
            self.pending_slot = NONE
        ClusterModel.release(self, slot)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.factorize(row(self, slot))

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """Murphy (2007), eq. 266."""
        cdef Py_ssize_t d
        cdef double n, total
        cdef const double* stats = row(self, slot)
        self.settle()
        n = stats[0]
        total = 0.5 * (
            self.df * self.log_det_prior - (self.df + n) * stats[self.n_stats + LOG_DET]
            + self.n_features * (
                log(self.mean_precision) - log(self.mean_precision + n) - n * LOG_PI
            )
        )
        for d in range(self.n_features):
            total += lgamma(0.5 * (self.df + n - d)) - lgamma(0.5 * (self.df - d))
        return total

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Statistics combine, and the factor anew: O(D^3)."""
        self.settle()
        if row(self, src)[0] > 0.0:
            self.factorize(row(self, dst), row(self, src))

    cdef double log_far_tail(self, const double* x, const double* cached) noexcept nogil:
        """log(1 + q rho / (rho + 1)) for a new row so far away that the square q overflows: on the
        first scale, in steps of 1e100, on which it does not."""
        cdef Py_ssize_t d, _step
        cdef Py_ssize_t n_steps = 0
        cdef double q = INFINITY
        while not q < 1e300 and n_steps < 5:
            n_steps += 1
            for d in range(self.n_features):
                self.work[d] = x[d] - cached[CENTER + d]
                for _step in range(n_steps):
                    self.work[d] *= 1e-100
            q = solve_squared(cached + CENTER + self.n_features, self.n_features, self.work)
        return log(q * cached[SHRINKAGE]) + 2.0 * n_steps * LOG_1E100

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * D^2)."""
        cdef Py_ssize_t d, k
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef const double* stats
        cdef const double* cached
        cdef double* v = self.work
        cdef double q, rho, rest, log_tail
        if self.pending_slot != NONE and self.pending_item != i:
            self.settle()
        for k in range(n_slots):
            stats = row(self, slots[k])
            cached = stats + self.n_stats
            for d in range(n_features):
                v[d] = x[d] - cached[CENTER + d]
            q = solve_squared(cached + CENTER + n_features, n_features, v)
            if slots[k] == self.pending_slot:
                rho = self.mean_precision + stats[0]
                rest = 1.0 - q * rho / (rho - 1.0)
                if rest > 1e-6:
                    out[k] = (
                        self.log_norm[<Py_ssize_t>stats[0] - 1] - 0.5 * cached[LOG_DET]
                        + (cached[EXPONENT] - 1.0) * log(rest)
                    )
                else:
                    # The item is nearly all of the scatter in its direction: too few digits
                    # are left in 1 - h, so remove it in earnest.
                    self.settle()
                    out[k] = self.log_predictive(slots[k], i)
                continue
            if q < 1e300:
                # log1p would be three times slower, for digits that the sum below loses anyway.
                log_tail = log(1.0 + q * cached[SHRINKAGE])
            else:
                log_tail = self.log_far_tail(x, cached)
            out[k] = cached[LOG_PEAK] - cached[EXPONENT] * log_tail


@cython.final
cdef class ParametricGaussian(ParametricModel):
    """Gaussian rows under drawn means and covariances.

    With S_n = L L', a draw of the precision is W'W with W = B' L^-1, where the upper triangular B
    has independent entries: standard normal, on the diagonal the roots of chi-squared variates
    (Bartlett's decomposition, its order reversed so that W is triangular).

    Parameters: log |W| - D log(2 pi) / 2, W mu (D), W (packed by rows).

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Rows minus the prior mean u.
    scale : ndarray of shape (n_features, n_features)
        S.
    mean_precision, df : float
        r and nu.
    """
    cdef Py_ssize_t n_features
    cdef Py_ssize_t n_packed
    cdef const double* X
    cdef double mean_precision, df
    cdef double* prior      # packed: S, then its factor
    cdef double* work       # n_features * TILE
    cdef double* matrix     # (n_stats,)
    cdef object _owner

    def __init__(
        self, const double[:, ::1] X, const double[:, ::1] scale, double mean_precision, double df
    ):
        cdef Py_ssize_t d, e
        cdef Py_ssize_t t = 0
        cdef Py_ssize_t n_features = X.shape[1]
        cdef double log_det
        self._owner = X
        self.n_samples = X.shape[0]
        self.n_features = n_features
        self.n_packed = n_features * (n_features + 1) // 2
        self.n_stats = self.n_params = 1 + n_features + self.n_packed
        self.X = &X[0, 0] if X.shape[0] else NULL
        self.mean_precision = mean_precision
        self.df = df
        self.prior = <double*>malloc(2 * self.n_packed * sizeof(double))
        self.work = <double*>calloc(n_features * TILE, sizeof(double))
        self.matrix = <double*>malloc(self.n_stats * sizeof(double))
        if self.prior == NULL or self.work == NULL or self.matrix == NULL:
            raise MemoryError
        for d in range(n_features):
            for e in range(d, n_features):
                self.prior[t] = self.prior[self.n_packed + t] = scale[e, d]
                t += 1
        cholesky(self.prior + self.n_packed, n_features, &log_det)

    def __dealloc__(self):
        free(self.prior)
        free(self.work)
        free(self.matrix)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d, e, f
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t t
        cdef double n = power * stats[0]
        cdef double rho = self.mean_precision + n
        cdef double weight = self.mean_precision * n / rho
        cdef const double* mean = stats + 1
        cdef const double* scatter = mean + n_features
        cdef const double* column
        cdef double* factor = self.matrix
        cdef double* center = params + 1
        cdef double* w = center + n_features
        cdef double log_det, total, value
        for t in range(self.n_packed):
            factor[t] = self.prior[t] + power * scatter[t]
        for d in range(n_features):
            self.work[d] = mean[d]
        # As in `GaussianModel.factorize`; NaN where that fails, and so params[0].
        if not (
            cholesky_above(factor, n_features, self.prior + self.n_packed, &log_det)
            and cholesky_update(factor, n_features, self.work, weight, &log_det)
        ):
            log_det = NAN
        total = -0.5 * n_features * log(2.0 * PI) - 0.5 * log_det
        for d in range(n_features):
            # Row d of B' D^-1/2, then times L^-1 from the right, from the last column on.
            t = 0
            for e in range(d):
                w[e] = random_standard_normal(rng) * sqrt(factor[t])
                t += n_features - e
            value = 0.5 * (self.df + n - n_features + 1 + d)
            # By its logarithm: with df close to D - 1 a draw from the prior is often no double.
            value = 0.5 * (log(2.0) + log_gamma_variate(rng, value))
            total += value
            w[d] = exp(value) * sqrt(factor[t])
            for e in range(d - 1, -1, -1):
                t -= n_features - e
                column = factor + t
                for f in range(e + 1, d + 1):
                    w[e] -= w[f] * column[f - e]
            value = random_standard_normal(rng) / sqrt(rho)
            for e in range(d + 1):
                value += w[e] * (n / rho * mean[e])
            center[d] = value
            w += d + 1
        params[0] = total

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items,              # IN (n_items,), <= TILE
        const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out                                                     # OUT (n_which, TILE)
    ) noexcept nogil:
        cdef Py_ssize_t d, i, k
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x
        cdef const double* theta
        cdef double* strip = self.work
        for i in range(n_items):
            x = self.X + items[i] * n_features
            for d in range(n_features):
                strip[d * SKDPM_STRIP + i % SKDPM_STRIP] = x[d]
            if (i + 1) % SKDPM_STRIP == 0:
                strip += n_features * SKDPM_STRIP
        for k in range(n_which):
            theta = params + which[k] * self.n_params
            tile_gaussian(
                self.work, n_items, n_features, theta + 1 + n_features, theta + 1, theta[0],
                out + k * TILE
            )

    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items    # n_items <= TILE
    ) noexcept nogil:
        """The moments of the items by themselves, about their own mean; then both together."""
        cdef Py_ssize_t d, i
        cdef Py_ssize_t n_features = self.n_features
        cdef double* moments = self.matrix
        cdef double* mean = moments + 1
        cdef const double* x
        cdef double* centred = self.work
        memset(moments, 0, self.n_stats * sizeof(double))
        moments[0] = n_items
        for i in range(n_items):
            x = self.X + items[i] * n_features
            for d in range(n_features):
                mean[d] += x[d]
        for d in range(n_features):
            mean[d] /= n_items
        for i in range(n_items):
            x = self.X + items[i] * n_features
            for d in range(n_features):
                centred[d] = x[d] - mean[d]
            centred += n_features
        tile_scatter(self.work, n_items, n_features, mean + n_features)
        self.combine(stats, moments)

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        combine_moments(stats, other, self.n_features, self.work)
