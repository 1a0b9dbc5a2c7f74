# SPDX-License-Identifier: BSD-3-Clause
"""Independent negative binomial columns with conjugate priors; missing entries drop out.

With the dispersion phi of a column, the same in all clusters, and r = 1 / phi,

    p ~ Beta(A, B),  x ~ NB(r, p):  p(x) = Gamma(x + r) / (Gamma(r) x!) p^r (1 - p)^x.

The mean of the column in a cluster is mu = r (1 - p) / p, its variance mu + phi mu^2. With

    A = 1 + k r,  B = k m,  m = a / b,  k = b + a phi

this is the prior of Diaconis & Ylvisaker (1979), worth k items of mean m. For every phi the mean
of mu is m, and the posterior mean is (k m + s) / (k + n). With this k, the parameter a keeps its
meaning: mu is Gamma(a, rate b) for phi -> 0 and InvGamma(1 + a, a m) for phi -> infinity. So this
is the law of Poisson clusters if phi is small. With n entries of sum s in a column of a cluster,

    p(cluster) = B(A + n r, B + s) / B(A, B) prod_i h(x_i),
    p(x | cluster) = B(A + (n + 1) r, B + s + x) / B(A + n r, B + s) h(x),
    h(x) = Gamma(x + r) / (Gamma(r) x!) = 1 / (x B(r, x)),

where B(.,.) is the beta function. log h(x) is the item's `log_constants`, which therefore vary
with phi. A draw of phi needs their sum over all items: it is computed from the numbers of the
different values ("levels") of the column.

Small counts x cost x products, and a logarithm for all columns: Gamma(y + x) is Gamma(y) y (y + 1)
... (y + x - 1).

Row: that of `_counts` | for each column A + (n + 1) r, log Gamma of this, -log B(A + n r, B + s),
log p(0 | cluster).
"""
cimport cython
from libc.math cimport INFINITY, ceil, exp, fabs, floor, log, log1p
from libc.stdlib cimport free
from libc.string cimport memset

import numpy as np

from skdpm._core._math cimport log_beta, log_gamma_function
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._counts cimport N_HEAD, CountModel, ParametricCounts
from skdpm.mixture.likelihoods._parametric cimport draw_log_dirichlet


cdef enum:
    N_TERMS = 4         # cached terms of a column
    N_FACTORS = 12      # largest count that is small
    N_SHARED = 2        # hyperparameters before the dispersions

# Below this argument the difference of two log Gammas has enough digits.
cdef double MODERATE = 2.0**20
# Rounding error of a density, as a share of its largest term.
cdef double ROUNDING = 1e-13


cdef inline double log_h(double x, double r) noexcept nogil:
    return -log(x) - log_beta(r, x) if x > 0.0 else 0.0


def level_terms(
    const double[::1] levels, const Py_ssize_t[::1] starts, const double[::1] dispersion
):
    """log h of the levels of all columns: ndarray. NaN has the term 0.

    Parameters
    ----------
    levels : ndarray of shape (n_levels,)
        Different values of the first column, then of the second, ...
    starts : ndarray of shape (n_features + 1,), intp
        First level of each column.
    dispersion : ndarray of shape (n_features,)
    """
    out = np.empty(levels.shape[0])
    cdef double[::1] view = out
    cdef Py_ssize_t d, v
    for d in range(dispersion.shape[0]):
        for v in range(starts[d], starts[d + 1]):
            view[v] = log_h(levels[v], 1.0 / dispersion[d])
    return out


def sums_of_terms(const double[::1] terms, const int[:, ::1] codes):
    """Sum of the terms of the levels of each item: ndarray of shape (n_samples,)."""
    out = np.empty(codes.shape[0])
    cdef double[::1] view = out
    if codes.shape[0]:
        add_terms(&terms[0], &codes[0, 0], codes.shape[0], codes.shape[1], &view[0])
    return out


cdef void add_terms(
    const double* terms, const int* codes, Py_ssize_t n, Py_ssize_t n_features, double* out
) noexcept nogil:
    cdef Py_ssize_t d, i
    cdef double total
    for i in range(n):
        total = 0.0
        for d in range(n_features):
            total += terms[codes[i * n_features + d]]
        out[i] = total


cdef class NegativeBinomialModel(CountModel):
    """Kernel of negative binomial columns.

    Parameters
    ----------
    data : dict
        X, log_large, drifts
            See `CountModel.take_counts`.
        levels, starts
            See `level_terms`.
        codes : ndarray of shape (n_samples, n_features), int32
            Position of each entry in `levels`.
    tables : dict
        n_max, missing
            See `CountModel.take_counts`.
        n_fitted : int
            Number of rows of the fit.
        fitted_levels, fitted_starts
            Levels of its columns.
        fitted_tally : ndarray
            Number of entries of each of these.
    shape, rate : float
        a and b.
    dispersion : ndarray of shape (n_features,)
    """
    cdef double shape, rate
    cdef const double* levels
    cdef const Py_ssize_t* starts
    cdef const int* codes
    cdef const double* fitted_levels
    cdef const Py_ssize_t* fitted_starts
    cdef const double* fitted_tally
    cdef Py_ssize_t n_fitted
    cdef double* prior              # (3, n_features): A, B, log B(A, B)
    cdef double* r                  # (n_features,)
    cdef double* terms              # (n_levels,): log h
    cdef double* own_constants      # (n_samples,)
    # Tally of the items whose clusters are those of a draw of hyperparameters, by its levels.
    cdef double* tally
    cdef const double* tally_of
    cdef const double* tally_levels
    cdef const Py_ssize_t* tally_starts
    cdef object _owners

    def __init__(self, data, tables, double shape, double rate, dispersion):
        cdef const double[::1] levels = data["levels"]
        cdef const Py_ssize_t[::1] starts = data["starts"]
        cdef const int[:, ::1] codes = data["codes"]
        cdef const double[::1] fitted_levels = tables["fitted_levels"]
        cdef const Py_ssize_t[::1] fitted_starts = tables["fitted_starts"]
        cdef const double[::1] fitted_tally = tables["fitted_tally"]
        cdef double[::1] constants
        self.take_counts(data, tables)
        self._owners = (levels, starts, codes, fitted_levels, fitted_starts, fitted_tally)
        self.levels = &levels[0] if levels.shape[0] else NULL
        self.starts = &starts[0]
        self.codes = &codes[0, 0] if codes.shape[0] else NULL
        self.fitted_levels = &fitted_levels[0] if fitted_levels.shape[0] else NULL
        self.fitted_starts = &fitted_starts[0]
        self.fitted_tally = &fitted_tally[0] if fitted_tally.shape[0] else NULL
        self.n_fitted = tables["n_fitted"]
        self.prior = <double*>resized(NULL, 3 * self.n_features, sizeof(double))
        self.r = <double*>resized(NULL, self.n_features, sizeof(double))
        self.terms = <double*>resized(NULL, levels.shape[0] + 1, sizeof(double))
        self.tally = <double*>resized(NULL, levels.shape[0] + 1, sizeof(double))
        self.constants_vary = True
        own = np.empty(self.n_samples)
        if self.n_samples > 0:
            constants = own
            self.own_constants = &constants[0]
        self.keep_log_constants(own)
        names = ("shape", "rate") + self.n_features * ("dispersion",)
        self.declare_hyperparameters(names, (shape, rate, *dispersion))
        self.allocate(N_HEAD + 2 * self.n_features, N_HEAD + (2 + N_TERMS) * self.n_features)
        self.retabulate()

    def __dealloc__(self):
        free(self.prior)
        free(self.r)
        free(self.terms)
        free(self.tally)

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t d, v
        cdef double phi
        self.shape = self.hyper[0]
        self.rate = self.hyper[1]
        with nogil:
            for d in range(self.n_features):
                phi = self.hyper[N_SHARED + d]
                self.r[d] = 1.0 / phi
                set_prior(self.shape, self.rate, phi, self.prior + 3 * d)
                for v in range(self.starts[d], self.starts[d + 1]):
                    self.terms[v] = log_h(self.levels[v], self.r[d])
            if self.n_samples > 0:
                add_terms(
                    self.terms, self.codes, self.n_samples, self.n_features, self.own_constants
                )
            self.compute(self.empty)
        return 0

    cdef inline void compute_column(self, double* stats, Py_ssize_t d) noexcept nogil:
        """Cached terms of a column from its statistics."""
        cdef const double* prior = self.prior + 3 * d
        cdef double* terms = stats + self.n_stats + N_TERMS * d
        cdef double n = stats[N_HEAD + self.n_features + d]
        terms[0] = prior[0] + (n + 1.0) * self.r[d]
        terms[1] = log_gamma_function(terms[0])
        if n > 0.0:
            terms[2] = -log_beta(prior[0] + n * self.r[d], prior[1] + stats[N_HEAD + d])
        else:
            terms[2] = -prior[2]
        terms[3] = self.log_predictive_column(0.0, stats, d)

    cdef void compute(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.compute_column(stats, d)

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* x = self.X + i * self.n_features
        self.move(stats, i, by)
        for d in range(self.n_features):
            if x[d] == x[d]:
                self.compute_column(stats, d)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """Accurate relative to s log s, the size of its largest terms."""
        cdef Py_ssize_t d
        cdef const double* stats = row(self, slot)
        cdef const double* terms = stats + self.n_stats
        cdef double total = 0.0
        for d in range(self.n_features):
            total -= terms[N_TERMS * d + 2] + self.prior[3 * d + 2]
        return total

    cdef double log_column_at(
        self, Py_ssize_t slot, Py_ssize_t d, const double* hyper
    ) noexcept nogil:
        """log p(column d of the items of a slot), without h, under other hyperparameters."""
        cdef double[3] prior
        cdef const double* stats = row(self, slot)
        cdef double n = stats[N_HEAD + self.n_features + d]
        if n == 0.0:
            return 0.0
        set_prior(hyper[0], hyper[1], hyper[N_SHARED + d], prior)
        return log_beta(
            prior[0] + n / hyper[N_SHARED + d], prior[1] + stats[N_HEAD + d]
        ) - prior[2]

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Py_ssize_t d
        cdef double total = 0.0
        for d in range(self.n_features):
            total += self.log_column_at(slot, d, hyper)
        return total

    cdef double log_likelihood_at(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots,      # IN (n_slots,)
        const double* hyper, Py_ssize_t h                       # IN (n_hyper,)
    ) noexcept nogil:
        """From the tally of the items of the same slots, if it is a dispersion."""
        cdef Py_ssize_t k, v
        cdef Py_ssize_t d = h - N_SHARED
        cdef double total = 0.0
        if h < N_SHARED:
            return ClusterModel.log_likelihood_at(self, slots, n_slots, hyper, h)
        for k in range(n_slots):
            total += self.log_column_at(slots[k], d, hyper)
        for v in range(self.tally_starts[d], self.tally_starts[d + 1]):
            if self.tally_of[v] > 0.0:
                total += self.tally_of[v] * log_h(self.tally_levels[v], 1.0 / hyper[h])
        return total

    def resample_hyperparameters(self, slots, priors, bit_generator):
        self.tally_items(slots)
        return ClusterModel.resample_hyperparameters(self, slots, priors, bit_generator)

    def log_likelihoods_at(self, slots, values, Py_ssize_t h):
        self.tally_items(slots)
        return ClusterModel.log_likelihoods_at(self, slots, values, h)

    cdef int tally_items(self, slots) except -1:
        """Count how often each level is among the items of the slots: those that have labels of
        clusters or, without labels, the first items of this kernel or, if there are more, all rows
        of the fit, which are seen in blocks."""
        cdef Py_ssize_t d, i, v
        cdef double n = 0.0
        cdef Py_ssize_t n_labelled = self.count_labelled()
        for slot in slots:
            n += row(self, slot)[0]
        if n > self.n_samples:
            if n != self.n_fitted:
                raise ValueError(f"clusters of {n:.0f} items, not of {self.n_fitted}")
            self.tally_levels = self.fitted_levels
            self.tally_starts = self.fitted_starts
            self.tally_of = self.fitted_tally
        else:
            memset(self.tally, 0, self.starts[self.n_features] * sizeof(double))
            for i in range(self.n_samples if n == n_labelled else <Py_ssize_t>n):
                if n == n_labelled and self.labels[i] < 0:
                    continue
                for d in range(self.n_features):
                    self.tally[self.codes[i * self.n_features + d]] += 1.0
            self.tally_levels = self.levels
            self.tally_starts = self.starts
            self.tally_of = self.tally
        # Their sums show whether these are the items.
        for d in range(self.n_features):
            total = 0.0
            for v in range(self.tally_starts[d], self.tally_starts[d + 1]):
                if self.tally_levels[v] > 0.0:
                    total += self.tally_of[v] * self.tally_levels[v]
            for slot in slots:
                total -= row(self, slot)[N_HEAD + d]
            if total != 0.0:
                raise ValueError(
                    "the clusters do not consist of the items with labels, nor of the first items "
                    "of the kernel"
                )
        return 0

    cdef Py_ssize_t count_labelled(self) noexcept nogil:
        """Number of items whose labels are clusters; 0 if no labels of the items are bound."""
        cdef Py_ssize_t i
        cdef Py_ssize_t n = 0
        if self.n_labels == self.n_samples:
            for i in range(self.n_samples):
                n += self.labels[i] >= 0
        return n

    cdef double log_predictive_column(
        self, double x, const double* stats, Py_ssize_t d
    ) noexcept nogil:
        """log p(x | column d), without h."""
        cdef const double* terms = stats + self.n_stats + N_TERMS * d
        cdef double y = self.prior[3 * d + 1] + stats[N_HEAD + d] + x
        if terms[0] + y < MODERATE:
            return (
                (log_gamma_function(y) - log_gamma_function(terms[0] + y)) + terms[1] + terms[2]
            )
        return log_beta(terms[0], y) + terms[2]

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot) less its `log_constants`, O(n_slots * D)."""
        cdef Py_ssize_t d, j, k
        cdef const double* x = self.X + i * self.n_features
        cdef const double* stats
        cdef const double* terms
        cdef double above, below, product, total, y, z
        for k in range(n_slots):
            stats = row(self, slots[k])
            total = 0.0
            product = 1.0
            for d in range(self.n_features):
                if not x[d] == x[d]:
                    continue
                terms = stats + self.n_stats + N_TERMS * d
                y = self.prior[3 * d + 1] + stats[N_HEAD + d]
                z = y + terms[0]
                if x[d] > N_FACTORS or z > 1e20:
                    total += self.log_predictive_column(x[d], stats, d)
                    continue
                total += terms[3]
                if x[d] == 0.0:
                    continue
                above = y
                below = z
                for j in range(1, <Py_ssize_t>x[d]):
                    above *= y + j
                    below *= z + j
                # A ratio is below 1, and hardly any below 1e-150.
                product *= above / below
                if product < 1e-150:
                    total += log(product)
                    product = 1.0
            out[k] = total + log(product)

    cdef double slack(
        self, const double* stats, Py_ssize_t d, double highest
    ) noexcept nogil:
        """Bound of the rounding errors of the densities of a column, for counts up to `highest`.
        The terms of log Gamma(z) are below (1 + z) log(2 + z)."""
        cdef double z = stats[self.n_stats + N_TERMS * d] + self.prior[3 * d + 1] + (
            stats[N_HEAD + d] + highest
        )
        return ROUNDING * (1.0 + z) * (
            2.0 + log(2.0 + z) + fabs(log(self.prior[3 * d + 1])) + log1p(self.r[d])
        )

    cdef void log_predictive_bound_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots,                  # IN (n_slots,)
        const double* box,                                                  # IN (2 D,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """The largest p(x) for the counts x in an interval, column by column. With alpha = A + n r
        and beta = B + s,

            p(x + 1) / p(x) = (x + r) (beta + x) / ((x + 1) (alpha + r + beta + x)),

        which is at least 1 if and only if (1 + alpha) x <= (r - 1) beta - alpha - r. So p rises up
        to the mode floor((r - 1) (beta - 1) / (1 + alpha)), or 0 if that is negative, and then
        falls: p is largest at the count nearest to the mode. If rounding moves the mode, p is
        equal there up to rounding. Only for rows without missing entries."""
        cdef Py_ssize_t d, k
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats
        cdef double alpha, beta, high, mode, total, x
        for k in range(n_slots):
            stats = row(self, slots[k])
            total = 0.0
            for d in range(n_features):
                alpha = stats[self.n_stats + N_TERMS * d] - self.r[d]
                beta = self.prior[3 * d + 1] + stats[N_HEAD + d]
                high = floor(box[d] + box[n_features + d])
                mode = 0.0
                if self.r[d] > 1.0:
                    mode = floor((self.r[d] - 1.0) * (beta - 1.0) / (1.0 + alpha))
                x = max(0.0, max(ceil(box[d] - box[n_features + d]), min(mode, high)))
                total += self.log_predictive_column(x, stats, d) + log_h(x, self.r[d])
                total += self.slack(stats, d, max(high, x))
            out[k] = total

    cdef double log_predictive_floor(
        self, Py_ssize_t slot, const double* box                            # IN (2 D,)
    ) noexcept nogil:
        """With alpha and beta of the cluster with the item, a column gives

            p(x | others) = h(x) B(alpha, beta) / B(alpha - r, beta - x),
            p(x + 1 | others) / p(x | others)
                = (x + r) (beta - x - 1) / ((x + 1) (alpha - r + beta - x - 1)).

        As alpha > 1, the ratio is at least 1 up to some x, and then less: p is smallest at an end
        of the interval. No item has more than s."""
        cdef Py_ssize_t d
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double total = 0.0
        cdef double high, low
        if self.missing:
            return -INFINITY
        for d in range(n_features):
            low = box[d] - box[n_features + d]
            high = box[d] + box[n_features + d]
            low = min(stats[N_HEAD + d], max(0.0, ceil(low)))
            high = min(stats[N_HEAD + d], max(0.0, floor(high)))
            total += min(
                self.log_leaving(stats, d, low), self.log_leaving(stats, d, high)
            ) - stats[self.n_stats + N_TERMS * d + 2] - self.slack(stats, d, high)
        return total

    cdef inline double log_leaving(
        self, const double* stats, Py_ssize_t d, double x
    ) noexcept nogil:
        """log of p(x | others) / B(alpha, beta) of a column."""
        cdef double alpha = stats[self.n_stats + N_TERMS * d] - 2.0 * self.r[d]
        cdef double beta = self.prior[3 * d + 1] + (stats[N_HEAD + d] - x)
        return log_h(x, self.r[d]) - log_beta(alpha, beta)


cdef inline void set_prior(double shape, double rate, double phi, double* out) noexcept nogil:
    """A, B and log B(A, B)."""
    cdef double k = rate + shape * phi
    out[0] = 1.0 + k / phi
    out[1] = k * (shape / rate)
    out[2] = log_beta(out[0], out[1])


@cython.final
cdef class ParametricNegativeBinomial(ParametricCounts):
    """Rows of counts under drawn probabilities p ~ Beta(A + n r, B + s), column by column.

    Parameters: the sum of r log p, log(1 - p) (D), -r log p (D).

    Parameters
    ----------
    X, missing
        See `ParametricCounts`.
    shape, rate : float
        a and b.
    dispersion : ndarray of shape (n_features,)
    """
    cdef double shape, rate
    cdef const double* dispersion
    cdef object _dispersion_owner

    def __init__(
        self, X, double shape, double rate, const double[::1] dispersion, bint missing
    ):
        ParametricCounts.__init__(self, X, missing, False)
        self.shape = shape
        self.rate = rate
        self.dispersion = &dispersion[0]
        self._dispersion_owner = dispersion

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + self.n_features
        cdef double* log_rest = params + 1
        cdef double* costs = log_rest + self.n_features
        cdef double[2] log_p
        cdef double[3] prior
        params[0] = 0.0
        for d in range(self.n_features):
            set_prior(self.shape, self.rate, self.dispersion[d], prior)
            log_p[0] = prior[0] + power * counts[d] / self.dispersion[d]
            log_p[1] = prior[1] + power * sums[d]
            draw_log_dirichlet(rng, 2, log_p)
            # Of the larger of the two, the complement has more digits.
            if log_p[0] > log_p[1]:
                log_p[0] = log1p(-exp(log_p[1]))
            else:
                log_p[1] = log1p(-exp(log_p[0]))
            log_rest[d] = log_p[1]
            costs[d] = -log_p[0] / self.dispersion[d]
            params[0] -= costs[d]
