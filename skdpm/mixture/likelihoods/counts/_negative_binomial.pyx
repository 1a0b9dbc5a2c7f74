# SPDX-License-Identifier: BSD-3-Clause
"""Independent negative binomial columns with conjugate priors; missing entries drop out.

With the dispersion phi of a column, the same in all clusters, and r = 1 / phi,

    p ~ Beta(A, B),  x ~ NB(r, p):  p(x) = Gamma(x + r) / (Gamma(r) x!) p^r (1 - p)^x.

The mean of the column in a cluster is mu = r (1 - p) / p, its variance mu + phi mu^2. With

    A = 1 + k r,  B = k m,  m = a / b,  k = b + a phi

this is the prior of Diaconis & Ylvisaker (1979), worth k items of mean m: mu is Gamma(a, rate b)
for phi -> 0 and InvGamma(1 + a, a m) for phi -> infinity. With n entries of sum s in a column of a
cluster,

    p(cluster) = B(A + n r, B + s) / B(A, B) prod_i h(x_i),
    p(x | cluster) = B(A + (n + 1) r, B + s + x) / B(A + n r, B + s) h(x),
    h(x) = Gamma(x + r) / (Gamma(r) x!) = 1 / (x B(r, x)),

where B(.,.) is the beta function. log h(x) is the item's `log_constants`, which therefore vary
with phi. A draw of phi takes their sum from the numbers of the different values ("levels").

If items have exposures e, x ~ NB(e r, p), like the sum of e independent counts with exposure 1. In
all formulas n is then the sum of the exposures, and r of an item is e r.

Small counts x cost x products and a logarithm: Gamma(y + x) is Gamma(y) y (y + 1) ... (y + x - 1).
Tables of the slots keep the densities of the levels: for the cluster as it is, and for a row that
has just left it. A table knows for which statistics it is valid.

Row: that of `_counts` | for each column s and n for which the following are valid, A + (n + 1) r,
log Gamma of this, -log B(A + n r, B + s), log p(0 | cluster).
"""
cimport cython
from libc.math cimport INFINITY, NAN, ceil, exp, fabs, floor, log, log1p
from libc.string cimport memcpy

import numpy as np

from skdpm._core._math cimport log_beta, log_gamma_function
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, read_row, row
from skdpm.mixture.likelihoods.counts._counts cimport N_HEAD, CountModel, ParametricCounts
from skdpm.mixture.likelihoods.contract._parametric cimport draw_log_dirichlet


cdef enum:
    N_TERMS = 6         # cached terms of a column, the first two of which are its statistics
    MOST_LEVELS = 1024  # of a column with tables
    N_OF_LEVEL = 3      # smallest number of items per level of such a column
    N_FACTORS = 12      # largest count that is small
    N_SHARED = 2        # hyperparameters before the dispersions

# Largest number of doubles of the tables of all slots.
cdef Py_ssize_t MOST_TABLED = 2**19

# Below this argument the difference of two log Gammas has enough digits.
cdef double MODERATE = 2.0**20
# Rounding error of a density, as a share of its largest term.
cdef double ROUNDING = 1e-13


cdef inline double log_h(double x, double r) noexcept nogil:
    return -log(x) - log_beta(r, x) if x > 0.0 else 0.0


def level_terms(
    const double[::1] levels, const double[::1] exposures, const Py_ssize_t[::1] starts,
    const double[::1] dispersion
):
    """log h of the levels of all columns: ndarray. NaN has the term 0.

    - `levels`, `exposures`: (n_levels,). Different values, with the exposures of their items, of
      the first column, then of the second, ...
    - `starts`: (n_features + 1,), intp. First level of each column.
    - `dispersion`: (n_features,)
    """
    expect_shape("exposures", exposures, (levels.shape[0],))
    expect_shape("starts", starts, (dispersion.shape[0] + 1,))
    cdef double[::1] out = np.empty(levels.shape[0])
    for d in range(dispersion.shape[0]):
        for v in range(starts[d], starts[d + 1]):
            out[v] = log_h(levels[v], exposures[v] / dispersion[d])
    return np.asarray(out)


def sums_of_terms(const double[::1] terms, const int[:, ::1] codes):
    """Sum of the terms of the levels of each item: ndarray of shape (n_samples,)."""
    cdef double[::1] out = np.empty(codes.shape[0])
    if codes.shape[0]:
        add_terms(&terms[0], &codes[0, 0], codes.shape[0], codes.shape[1], &out[0])
    return np.asarray(out)


cdef void add_terms(
    const double* terms, const int* codes, Py_ssize_t n, Py_ssize_t n_features, double* out
) noexcept nogil:
    for i in range(n):
        total = 0.0
        for d in range(n_features):
            total += terms[codes[i * n_features + d]]
        out[i] = total


@cython.final
cdef class NegativeBinomialModel(CountModel):
    """Kernel of negative binomial columns.

    - `data`: dict. See `CountModel.take_counts` and, of `levels`, `level_exposures` and `starts`,
      `level_terms`; `codes`, (n_samples, n_features), positions of the entries in `levels`.
    - `tables`: dict. See `CountModel.take_counts`; `n_fitted`, number of rows of the fit, and
      `fitted_levels`, `fitted_exposures`, `fitted_starts`, levels of its columns, with the number
      of entries of each, `fitted_tally`.
    - `shape`, `rate`: a and b.
    """
    cdef double shape, rate
    cdef const double[::1] levels, level_exposures
    cdef const Py_ssize_t[::1] starts
    cdef const int[:, ::1] codes
    cdef const double[::1] fitted_levels, fitted_exposures, fitted_tally
    cdef const Py_ssize_t[::1] fitted_starts
    cdef Py_ssize_t n_fitted
    cdef double[:, ::1] prior       # (n_features, 3): A, B, log B(A, B)
    cdef double[::1] r              # (n_features,)
    cdef double[::1] terms          # (n_levels + 1,): log h
    cdef double[::1] own_constants  # (n_samples,)
    # Of each slot: s and n of the columns (D, D); densities of the levels (n_tabled) for a cluster
    # with these statistics, and for an item that has just left it (n_tabled).
    cdef double* tables
    cdef Py_ssize_t n_tables        # number of slots with tables, the first ones
    cdef Py_ssize_t table_width, n_tabled
    cdef Py_ssize_t[::1] table_starts   # (D + 1,): first levels of columns; equal: not in tables
    cdef double[:, ::1] left_terms  # (D, N_TERMS): cached terms of the cluster that the item left
    cdef Py_ssize_t left_slot, left_item
    # Tally of the items whose clusters are those of a draw of hyperparameters, by its levels.
    cdef double[::1] tally
    cdef const double[::1] tally_of, tally_levels, tally_exposures
    cdef const Py_ssize_t[::1] tally_starts

    def __init__(self, data, tables, double shape, double rate, dispersion):
        self.take_counts(data, tables)
        self.levels, self.level_exposures = data["levels"], data["level_exposures"]
        self.starts, self.codes = data["starts"], data["codes"]
        self.fitted_levels = tables["fitted_levels"]
        self.fitted_exposures = tables["fitted_exposures"]
        self.fitted_starts = tables["fitted_starts"]
        self.fitted_tally = tables["fitted_tally"]
        self.n_fitted = tables["n_fitted"]
        self.prior = np.empty((self.n_features, 3))
        self.r = np.empty(self.n_features)
        self.terms, self.tally = np.empty((2, self.levels.shape[0] + 1))
        self.left_terms = np.empty((self.n_features, N_TERMS))
        self.table_starts = np.zeros(self.n_features + 1, dtype=np.intp)
        for d in range(self.n_features):
            v = self.starts[d + 1] - self.starts[d]
            v = v if v <= min(MOST_LEVELS, self.n_samples // N_OF_LEVEL) else 0
            if self.exposure is not None:
                v = 0
            self.table_starts[d + 1] = self.table_starts[d] + v
        self.n_tabled = self.table_starts[self.n_features]
        self.table_width = 2 * (self.n_features + self.n_tabled)
        self.left_slot = self.left_item = -1
        self.constants_vary = True
        self.own_constants = np.empty(self.n_samples)
        self.keep_log_constants(self.own_constants)
        names = ("shape", "rate") + self.n_features * ("dispersion",)
        self.declare_hyperparameters(names, (shape, rate, *dispersion))
        self.allocate(N_HEAD + 2 * self.n_features, N_HEAD + (2 + N_TERMS) * self.n_features)
        self.retabulate()

    def dump(self, slots, bint cached=False):
        cdef Py_ssize_t slot
        for slot in slots if cached else ():
            for d in range(self.n_features if 0 <= slot < self.n_slots else 0):
                self.terms_of(row(self, slot), d, False)
        return ClusterModel.dump(self, slots, cached)

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        ClusterModel.reserve(self, n_slots)
        self.make_tables()

    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept:
        ClusterModel.place(self, stats, stride, n_slots)
        self.make_tables()

    cdef void make_tables(self) noexcept:
        """Make tables for the slots; without memory for more there are fewer."""
        cdef Py_ssize_t n = min(self.n_slots, MOST_TABLED // self.table_width)
        if n <= self.n_tables:
            return
        try:
            self.tables = <double*>self.resized(self.tables, n * self.table_width, sizeof(double))
        except MemoryError:
            return
        self.forget_tables(self.n_tables, n)
        self.n_tables = n

    cdef void forget_tables(self, Py_ssize_t first, Py_ssize_t stop) noexcept nogil:
        """Make the tables of slots valid for no statistics."""
        for k in range(first, stop):
            for d in range(self.n_features):
                self.tables[k * self.table_width + d] = -1.0

    cdef int retabulate(self) except -1:
        self.shape = self.hyper[0]
        self.rate = self.hyper[1]
        with nogil:
            for d in range(self.n_features):
                phi = self.hyper[N_SHARED + d]
                self.r[d] = 1.0 / phi
                set_prior(self.shape, self.rate, phi, &self.prior[d, 0])
                for v in range(self.starts[d], self.starts[d + 1]):
                    self.terms[v] = log_h(self.levels[v], self.level_exposures[v] * self.r[d])
            if self.n_samples > 0:
                add_terms(
                    &self.terms[0], &self.codes[0, 0], self.n_samples, self.n_features,
                    &self.own_constants[0]
                )
            self.forget_tables(0, self.n_tables)
            for d in range(self.n_features):
                self.compute_terms(self.empty, d, &self.left_terms[d, 0])
            self.compute(self.empty)

    cdef const double* compute_terms(
        self, const double* stats, Py_ssize_t d, double* terms              # OUT (N_TERMS,)
    ) noexcept nogil:
        """Terms of a column from its statistics: `terms`."""
        cdef const double* prior = &self.prior[d, 0]
        cdef double n = stats[N_HEAD + self.n_features + d]
        cdef double alpha = prior[0] + n * self.r[d]
        cdef double beta = prior[1] + stats[N_HEAD + d]
        terms[0] = stats[N_HEAD + d]
        terms[1] = n
        terms[2] = prior[0] + (n + 1.0) * self.r[d]
        terms[3] = log_gamma_function(terms[2])
        if terms[2] + beta < MODERATE:
            of_alpha = log_gamma_function(alpha)
            of_sum = log_gamma_function(alpha + beta)
            terms[4] = of_sum - of_alpha - log_gamma_function(beta)
            terms[5] = (terms[3] - of_alpha) - (log_gamma_function(terms[2] + beta) - of_sum)
        else:
            terms[4] = -log_beta(alpha, beta)
            terms[5] = log_beta(terms[2], beta) + terms[4]
        if n == 0.0:
            terms[4] = -prior[2]
        return terms

    cdef inline const double* terms_of(
        self, const double* stats, Py_ssize_t d, bint left
    ) noexcept nogil:
        """Terms of a column, computed anew if the statistics have changed. Those of the cluster
        that the item has just left are kept apart, as the item is likely to come back."""
        cdef double* terms = <double*>stats + self.n_stats + N_TERMS * d
        if left:
            terms = &self.left_terms[d, 0]
        if terms[0] == stats[N_HEAD + d] and terms[1] == stats[N_HEAD + self.n_features + d]:
            return terms
        return self.renew_terms(stats, d, terms)

    cdef const double* renew_terms(
        self, const double* stats, Py_ssize_t d, double* terms              # OUT (N_TERMS,)
    ) noexcept nogil:
        """`terms_of` new statistics, which are known after the item left for another cluster."""
        cdef const double* known = &self.left_terms[d, 0]
        if known[0] == stats[N_HEAD + d] and known[1] == stats[N_HEAD + self.n_features + d]:
            memcpy(terms, known, N_TERMS * sizeof(double))
            return terms
        return self.compute_terms(stats, d, terms)

    cdef void compute(self, double* stats) noexcept nogil:
        for d in range(self.n_features):
            self.compute_terms(stats, d, stats + self.n_stats + N_TERMS * d)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        self.move(row(self, slot), i, by)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        CountModel.remove(self, slot, i)
        self.left_slot = slot
        self.left_item = i

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """`log_marginal_at` the current hyperparameters, from cached terms."""
        cdef const double* stats = row(self, slot)
        cdef double total = 0.0
        for d in range(self.n_features):
            total -= self.terms_of(stats, d, False)[4] + self.prior[d, 2]
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
        """Accurate relative to s log s, the size of its largest terms."""
        cdef double total = 0.0
        for d in range(self.n_features):
            total += self.log_column_at(slot, d, hyper)
        return total

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """From the tally of the items of the same slots, if it is a dispersion."""
        cdef Py_ssize_t d = h - N_SHARED
        cdef double total = 0.0
        if h < N_SHARED:
            return ClusterModel.log_likelihood_at(self, slots, hyper, h)
        for k in range(slots.n):
            total += self.log_column_at(slots.at[k], d, hyper)
        for v in range(self.tally_starts[d], self.tally_starts[d + 1]):
            if self.tally_of[v] > 0.0:
                total += self.tally_of[v] * log_h(
                    self.tally_levels[v], self.tally_exposures[v] / hyper[h]
                )
        return total

    cdef int tally_slots(self, slots) except -1:
        """Count how often each level is among the items of the slots: those that have labels of
        clusters or, without labels, the first items of this kernel or, if there are more, all rows
        of the fit, which are seen in blocks."""
        cdef double n = 0.0
        cdef Py_ssize_t n_labelled = self.count_labelled()
        for slot in slots:
            n += row(self, slot)[0]
        if n > self.n_samples:
            if n != self.n_fitted:
                raise ValueError(f"clusters of {n:.0f} items, not of {self.n_fitted}")
            self.tally_levels = self.fitted_levels
            self.tally_exposures = self.fitted_exposures
            self.tally_starts = self.fitted_starts
            self.tally_of = self.fitted_tally
        else:
            self.tally[:] = 0.0
            for i in range(self.n_samples if n == n_labelled else <Py_ssize_t>n):
                if n == n_labelled and self.labels[i] < 0:
                    continue
                for d in range(self.n_features):
                    self.tally[self.codes[i, d]] += 1.0
            self.tally_levels = self.levels
            self.tally_exposures = self.level_exposures
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

    cdef Py_ssize_t count_labelled(self) noexcept nogil:
        """Number of items whose labels are clusters; -1 if no labels of the items are bound."""
        cdef Py_ssize_t n = 0
        if self.n_labels != self.n_samples:
            return -1
        for i in range(self.n_samples):
            n += self.labels[i] >= 0
        return n

    cdef inline double log_ratio(self, double x, double y, const double* terms) noexcept nogil:
        """log p(x | column), without h, by log Gammas; y = B + s."""
        if terms[2] + y + x < MODERATE:
            return (
                (log_gamma_function(y + x) - log_gamma_function(terms[2] + y + x))
                + terms[3] + terms[4]
            )
        return log_beta(terms[2], y + x) + terms[4]

    cdef double log_predictive_column(
        self, double x, const double* stats, Py_ssize_t d, bint left
    ) noexcept nogil:
        """log p(x | column d), without h; `left` as for `terms_of`."""
        cdef const double* terms = self.terms_of(stats, d, left)
        cdef double y = self.prior[d, 1] + stats[N_HEAD + d]
        cdef double z = y + terms[2]
        cdef double above = y
        cdef double below = z
        if x == 0.0:
            return terms[5]
        if x > N_FACTORS or z > 1e20:
            return self.log_ratio(x, y, terms)
        for j in range(1, <Py_ssize_t>x):
            above *= y + j
            below *= z + j
        return terms[5] + log(above / below)

    cdef double log_predictive_exposed(
        self, double x, double exposure, const double* stats, Py_ssize_t d, bint left
    ) noexcept nogil:
        """The same for an item with an exposure."""
        cdef const double* terms = self.terms_of(stats, d, left)
        cdef double alpha = self.prior[d, 0] + (
            stats[N_HEAD + self.n_features + d] + exposure
        ) * self.r[d]
        return log_beta(alpha, self.prior[d, 1] + stats[N_HEAD + d] + x) + terms[4]

    cdef double* table_of(
        self, Py_ssize_t slot, const double* stats, Py_ssize_t i, bint left
    ) noexcept nogil:
        """Densities of the levels for a slot or, with `left`, for item i that it has just lost;
        NaN if not yet computed. NULL: there is no table."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = &self.X[i, 0]
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + n_features
        cdef double back
        cdef bint same = True
        if slot >= self.n_tables or self.n_tabled == 0:
            return NULL
        known = self.tables + slot * self.table_width
        if left:
            for d in range(n_features):
                back = x[d] == x[d]
                same &= (sums[d] + (x[d] if back else 0.0) == known[d])
                same &= (counts[d] + back == known[n_features + d])
        else:
            for d in range(n_features):
                same &= (sums[d] == known[d]) & (counts[d] == known[n_features + d])
        if not same:
            self.begin_table(known, stats, x, left)
        known += 2 * n_features
        return known + self.n_tabled if left else known

    cdef void begin_table(
        self, double* known, const double* stats, const double* x, bint left
    ) noexcept nogil:
        """Make a table valid for a cluster; with `left`, for this and an item x more."""
        cdef double* table = known + 2 * self.n_features
        for d in range(self.n_features):
            s = stats[N_HEAD + d]
            n = stats[N_HEAD + self.n_features + d]
            if left and x[d] == x[d]:
                s += x[d]
                n += 1.0
            if s != known[d] or n != known[self.n_features + d]:
                known[d] = s
                known[self.n_features + d] = n
                for v in range(self.table_starts[d], self.table_starts[d + 1]):
                    table[v] = table[self.n_tabled + v] = NAN

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef const double* x = &self.X[i, 0]
        cdef const int* codes = &self.codes[i, 0]
        cdef double* at
        cdef bint left
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            left = slots.at[k] == self.left_slot and i == self.left_item
            table = self.table_of(slots.at[k], stats, i, left)
            total = 0.0
            for d in range(self.n_features):
                if not x[d] == x[d]:
                    continue
                at = NULL
                if table != NULL and self.table_starts[d] < self.table_starts[d + 1]:
                    at = table + self.table_starts[d] + (codes[d] - self.starts[d])
                    if at[0] == at[0]:
                        total += at[0]
                        continue
                if self.exposure is None:
                    value = self.log_predictive_column(x[d], stats, d, left)
                else:
                    value = self.log_predictive_exposed(x[d], self.exposure[i], stats, d, left)
                total += value
                if at != NULL:
                    at[0] = value
            out[k] = total

    cdef double slack(self, const double* stats, Py_ssize_t d, double highest) noexcept nogil:
        """Bound of the rounding errors of the densities of a column, for counts up to `highest`.
        The terms of log Gamma(z) are below (1 + z) log(2 + z)."""
        cdef double z = self.terms_of(stats, d, False)[2] + self.prior[d, 1] + (
            stats[N_HEAD + d] + highest
        )
        return ROUNDING * (1.0 + z) * (
            2.0 + log(2.0 + z) + fabs(log(self.prior[d, 1])) + log1p(self.r[d])
        )

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        """The largest p(x) for the counts x in an interval, column by column. With alpha = A + n r
        and beta = B + s,

            p(x + 1) / p(x) = (x + r) (beta + x) / ((x + 1) (alpha + r + beta + x)),

        which is at least 1 if and only if (1 + alpha) x <= (r - 1) beta - alpha - r. So p rises up
        to the mode floor((r - 1) (beta - 1) / (1 + alpha)), or 0 if that is negative, and then
        falls: p is largest at the count nearest to the mode. If rounding moves the mode, p is
        equal there up to rounding. Only for rows without missing entries."""
        cdef Py_ssize_t n_features = self.n_features
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            total = 0.0
            for d in range(n_features):
                alpha = self.terms_of(stats, d, False)[2] - self.r[d]
                beta = self.prior[d, 1] + stats[N_HEAD + d]
                high = floor(box[d] + box[n_features + d])
                mode = 0.0
                if self.r[d] > 1.0:
                    mode = floor((self.r[d] - 1.0) * (beta - 1.0) / (1.0 + alpha))
                x = max(0.0, max(ceil(box[d] - box[n_features + d]), min(mode, high)))
                total += self.log_predictive_column(x, stats, d, False) + log_h(x, self.r[d])
                total += self.slack(stats, d, max(high, x))
            out[k] = total

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """With alpha and beta of the cluster with the item, a column gives

            p(x | others) = h(x) B(alpha, beta) / B(alpha - r, beta - x),
            p(x + 1 | others) / p(x | others)
                = (x + r) (beta - x - 1) / ((x + 1) (alpha - r + beta - x - 1)).

        As alpha > 1, the ratio is at least 1 up to some x, and then less: p is smallest at an end
        of the interval. No item has more than s."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* stats = row(self, slot)
        cdef double total = 0.0
        if self.missing:
            return -INFINITY
        for d in range(n_features):
            low = box[d] - box[n_features + d]
            high = box[d] + box[n_features + d]
            low = min(stats[N_HEAD + d], max(0.0, ceil(low)))
            high = min(stats[N_HEAD + d], max(0.0, floor(high)))
            total += min(
                self.log_leaving(stats, d, low), self.log_leaving(stats, d, high)
            ) - self.terms_of(stats, d, False)[4] - self.slack(stats, d, high)
        return total

    cdef inline double log_leaving(
        self, const double* stats, Py_ssize_t d, double x
    ) noexcept nogil:
        """log of p(x | others) / B(alpha, beta) of a column."""
        cdef double alpha = self.terms_of(stats, d, False)[2] - 2.0 * self.r[d]
        cdef double beta = self.prior[d, 1] + (stats[N_HEAD + d] - x)
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
    """
    cdef const double[::1] dispersion

    def __init__(self, X, double shape, double rate, const double[::1] dispersion, bint missing):
        super().__init__(X, shape, rate, missing, False)
        self.dispersion = dispersion

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
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
