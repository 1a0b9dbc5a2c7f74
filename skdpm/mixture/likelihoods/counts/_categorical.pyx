# SPDX-License-Identifier: BSD-3-Clause
"""Independent categorical columns with Dirichlet priors. Bernoulli columns have two categories.

With c_t items of category t in a cluster, pseudo-counts a_t, A_d = sum_t a_t over the categories
of column d and n_d the items whose column d is observed,

    p(x_i | cluster) = prod_d (a_t + c_t) / (A_d + n_d),    t = category of x_id,
    p(cluster)       = prod_d Gamma(A_d) / Gamma(A_d + n_d) prod_t Gamma(a_t + c_t) / Gamma(a_t).

The categories of all columns are numbered in one sequence. The number after the last marks a
missing entry.

Densities are products of factors, and one logarithm serves as many as cannot overflow. Most
entries of a column are often in one category, the usual one. A cluster keeps the log density of a
row of usual entries (`base`), and a row lists its other entries: their factors, over those of the
usual categories. So words that few documents contain cost nothing in other documents. Columns
without a usual category are in all lists.

Row: n, c_t (n_levels), n_d (n_features) | factors (n_levels), A_d + n_d (n_features), base. The
factors are a_t + c_t; over A_d + n_d if entries may be missing. Otherwise the product of all
A_d + n_d is a part of `base`. It depends only on n, and is tabulated for the n that occur.
"""
cimport cython
from libc.math cimport NAN, ceil, log, log2

import numpy as np

from skdpm._core._math cimport log_rising_count
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, row
from skdpm.mixture.likelihoods.contract._parametric cimport (
    SKDPM_LANES, TILE, ParametricModel, draw_log_dirichlet, number, tile_entries
)


cdef enum:
    # Number of rows for which learning takes a quarter of a sweep, for any number of columns.
    LEARNING_ROWS = 4000
    MOST_PERIOD = 5


cdef inline double product(const double* factors, const int* which, Py_ssize_t n) noexcept nogil:
    """Product of the factors at n places."""
    cdef Py_ssize_t m
    cdef Py_ssize_t n_even = n - n % 4
    # Four products, so that multiplications do not wait for each other.
    cdef double a = 1.0
    cdef double b = 1.0
    cdef double c = 1.0
    cdef double e = 1.0
    for m in range(0, n_even, 4):
        a *= factors[which[m]]
        b *= factors[which[m + 1]]
        c *= factors[which[m + 2]]
        e *= factors[which[m + 3]]
    for m in range(n_even, n):
        a *= factors[which[m]]
    return (a * b) * (c * e)


@cython.final
cdef class CategoricalModel(ClusterModel):
    """Kernel of the categorical likelihoods.

    - `data`: dict. `codes`, (n_samples, n_features), number of the category of each entry in the
      common sequence, `n_levels` if missing; `first`, (n_features + 1,), first category of each
      column, then `n_levels`.
    - `tables`: dict. Result of `Levels.tables`.
    - `hyper_names`: Name of the hyperparameter of each pseudo-count.
    - `pseudo_counts`: (n_hyper,)
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int[:, ::1] codes
    cdef const int[::1] first, kinds, usual
    cdef bint missing
    cdef double[::1] shifts         # (n_levels + n_features,): a_t, A_d
    # The listed entries of item i are at starts[2 i], ..., and the usual categories in their place
    # at starts[2 i + 1], ...; then come the two parts of `base`.
    cdef Py_ssize_t[::1] starts     # (2 n_samples + 5,)
    cdef int[::1] listed
    # Number of factors whose product cannot overflow. 0: a quotient of two may.
    cdef Py_ssize_t n_product
    # (n_max + 1,): minus the sum of log(A_d + n), NaN until it is needed. Empty if entries may be
    # missing.
    cdef double[::1] norms
    cdef Py_ssize_t[::1] columns    # (n_hyper,): the only column of a pseudo-count, or -1

    def __init__(self, data, tables, hyper_names, pseudo_counts):
        cdef Py_ssize_t d, kind, t
        self.codes, self.first = data["codes"], data["first"]
        self.kinds, self.usual = tables["kinds"], tables["usual"]
        self.n_samples = self.codes.shape[0]
        self.n_features = self.codes.shape[1]
        self.n_levels = self.kinds.shape[0]
        expect_shape("first", self.first, (self.n_features + 1,))
        expect_shape("usual", self.usual, (self.n_features,))
        expect_shape("kinds", self.kinds, (self.first[self.n_features],))
        self.n_max = tables["n_max"]
        self.missing = tables["missing"]
        self.columns = np.full(len(pseudo_counts), -2)
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                kind = self.kinds[t]
                self.columns[kind] = d if self.columns[kind] in (-2, d) else -1
        self.hyper_period = min(
            MOST_PERIOD, max(1, <Py_ssize_t>ceil(LEARNING_ROWS / <double>self.n_max))
        )
        self.shifts = np.empty(self.n_levels + self.n_features)
        self.starts = np.empty(2 * self.n_samples + 5, dtype=np.intp)
        self.list_entries(NULL)
        self.listed = np.empty(self.starts[2 * self.n_samples + 4] + 1, dtype=np.int32)
        self.list_entries(&self.listed[0])
        self.declare_hyperparameters(hyper_names, pseudo_counts)
        self.allocate(
            1 + self.n_levels + self.n_features, 2 + 2 * (self.n_levels + self.n_features)
        )
        self.retabulate()

    cdef void list_entries(self, int* out) noexcept nogil:
        """Write `starts`, and the entries to `out` unless that is NULL."""
        cdef Py_ssize_t d, i, side
        cdef Py_ssize_t n = 0
        cdef int place
        for i in range(self.n_samples + 2):
            for side in range(2):
                self.starts[2 * i + side] = n
                for d in range(self.n_features):
                    if i == self.n_samples:
                        place = self.usual[d] if side == 0 else -1
                    elif i > self.n_samples:
                        place = -1 if side == 0 or self.missing else <int>(self.n_levels + d)
                    elif self.codes[i, d] == self.usual[d]:
                        place = -1
                    elif side == 1:
                        place = self.usual[d]
                    else:
                        place = self.codes[i, d] if self.codes[i, d] < self.n_levels else -1
                    if place >= 0:
                        if out != NULL:
                            out[n] = place
                        n += 1
        self.starts[2 * self.n_samples + 4] = n

    cdef double log_quotient(self, const double* factors, Py_ssize_t i) noexcept nogil:
        """Log of the product of the factors in the first list of item i over that in the second.
        The parts of `base` are those of the items `n_samples` and `n_samples + 1`."""
        cdef const int* up = &self.listed[self.starts[2 * i]]
        cdef const int* down = &self.listed[self.starts[2 * i + 1]]
        cdef Py_ssize_t n_up = self.starts[2 * i + 1] - self.starts[2 * i]
        cdef Py_ssize_t n_down = self.starts[2 * i + 2] - self.starts[2 * i + 1]
        cdef Py_ssize_t a, b
        cdef Py_ssize_t most = max(1, self.n_product)
        cdef double total = 0.0
        while n_up + n_down > 0:
            a = min(n_up, most)
            b = min(n_down, most)
            if self.n_product > 0:
                total += log(product(factors, up, a) / product(factors, down, b))
            else:
                total += log(product(factors, up, a)) - log(product(factors, down, b))
            up += a
            down += b
            n_up -= a
            n_down -= b
        return total

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t d, t, u
        cdef double least = 1.0
        cdef double most = 1.0
        for d in range(self.n_features):
            u = self.n_levels + d
            self.shifts[u] = 0.0
            for t in range(self.first[d], self.first[d + 1]):
                self.shifts[t] = self.hyper[self.kinds[t]]
                self.shifts[u] += self.shifts[t]
                least = min(least, self.shifts[t])
            most = max(most, self.shifts[u])
        # Quotients of products stay within 2^-1000 and 2^1000. With missing entries the number
        # does not depend on `n_max`, which must not change a bit of new rows.
        most += 2.0**53 if self.missing else self.n_max
        self.n_product = <Py_ssize_t>(1000.0 / (1.0 + log2(most) - log2(least)))
        self.norms = np.full(0 if self.missing else self.n_max + 1, NAN)
        self.refresh_row(self.empty)
        return 0

    cdef inline void compute_column(self, double* stats, Py_ssize_t d) noexcept nogil:
        """Cached factors of column d."""
        cdef Py_ssize_t t
        cdef Py_ssize_t u = self.n_levels + d
        cdef double* factors = stats + self.n_stats
        factors[u] = self.shifts[u] + stats[1 + u]
        for t in range(self.first[d], self.first[d + 1]):
            factors[t] = self.shifts[t] + stats[1 + t]
            if self.missing:
                factors[t] /= factors[u]

    cdef void refresh_row(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.compute_column(stats, d)
        stats[self.width - 1] = self.compute_base(stats)

    cdef double compute_base(self, double* stats) noexcept nogil:
        cdef double base = self.log_quotient(stats + self.n_stats, self.n_samples)
        cdef double* norm
        if not self.missing:
            norm = &self.norms[<Py_ssize_t>stats[0]]
            if norm[0] != norm[0]:
                norm[0] = self.log_quotient(stats + self.n_stats, self.n_samples + 1)
            base += norm[0]
        return base

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.refresh_row(row(self, slot))

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Add item i (by = 1) or remove it (by = -1)."""
        cdef Py_ssize_t d, t, u
        cdef const int* codes = &self.codes[i, 0]
        cdef const double* shifts = &self.shifts[0]
        cdef double* counts = stats + 1
        cdef double* factors = stats + self.n_stats
        stats[0] += by
        if self.missing:
            for d in range(self.n_features):
                if codes[d] < self.n_levels:
                    counts[codes[d]] += by
                    counts[self.n_levels + d] += by
                    self.compute_column(stats, d)
        else:
            for d in range(self.n_features):
                t = codes[d]
                counts[t] += by
                factors[t] = shifts[t] + counts[t]
            for u in range(self.n_levels, self.n_levels + self.n_features):
                counts[u] += by
                factors[u] = shifts[u] + counts[u]
        stats[self.width - 1] = self.compute_base(stats)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, -1.0)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        return self.log_marginal_at(slot, &self.hyper[0])

    cdef void log_merge_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t src, double* out
    ) noexcept nogil:
        """From the counts m of `src`, which are mostly few. With (z)_m = Gamma(z + m) / Gamma(z)
        and counts c and n of a slot, the ratio is the product of (a_t + c_t)_{m_t} over categories
        t, over the product of (A_d + n_d)_{m_d} over columns, over the marginal of `src`."""
        cdef Py_ssize_t d, k, t
        cdef const double* joins = row(self, src) + 1
        cdef const double* counts
        cdef double alone = self.log_marginal(src)
        cdef double total, start, gained
        cdef double last_start, last_gained, last
        for k in range(n_slots):
            counts = row(self, slots[k]) + 1
            total = -alone
            for t in range(self.n_levels):
                if joins[t] > 0.0:
                    total += log_rising_count(self.shifts[t] + counts[t], joins[t])
            last_start = last_gained = last = 0.0
            for d in range(self.n_features):
                start = self.shifts[self.n_levels + d] + counts[self.n_levels + d]
                gained = joins[self.n_levels + d]
                # Columns of complete rows often have equal numbers.
                if start != last_start or gained != last_gained:
                    last_start, last_gained = start, gained
                    last = log_rising_count(start, gained)
                total -= last
            out[k] = total

    cdef double log_column_at(
        self, const double* stats, Py_ssize_t d, const double* hyper
    ) noexcept nogil:
        """log p(column d of a cluster) under other pseudo-counts."""
        cdef Py_ssize_t t
        cdef const double* counts = stats + 1
        cdef double pseudo_count
        cdef double norm = 0.0
        cdef double total = 0.0
        for t in range(self.first[d], self.first[d + 1]):
            pseudo_count = hyper[self.kinds[t]]
            norm += pseudo_count
            if counts[t] > 0.0:
                total += log_rising_count(pseudo_count, counts[t])
        if counts[self.n_levels + d] > 0.0:
            total -= log_rising_count(norm, counts[self.n_levels + d])
        return total

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Py_ssize_t d
        cdef double total = 0.0
        for d in range(self.n_features):
            total += self.log_column_at(row(self, slot), d, hyper)
        return total

    cdef double log_likelihood_at(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """The log likelihood of the only column with the hyperparameter, or of all columns."""
        cdef Py_ssize_t k
        cdef Py_ssize_t d = self.columns[h]
        cdef double total = 0.0
        if d < 0:
            return ClusterModel.log_likelihood_at(self, slots, n_slots, hyper, h)
        for k in range(n_slots):
            total += self.log_column_at(row(self, slots[k]), d, hyper)
        return total

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        cdef Py_ssize_t k
        cdef const double* stats
        for k in range(n_slots):
            stats = row(self, slots[k])
            out[k] = stats[self.width - 1] + self.log_quotient(stats + self.n_stats, i)


@cython.final
cdef class ParametricCategorical(ParametricModel):
    """Rows of categories under drawn probabilities theta_d ~ Dirichlet(a_t + c_t).

    Parameters: log theta_t (n_levels), and 0 for a missing entry. `codes` and `first` are those of
    `CategoricalModel`, `pseudo_counts` those of each category, (n_levels,).
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int[:, ::1] codes
    cdef const int[::1] first
    cdef const double[::1] pseudo_counts
    cdef double[::1] table      # (n_params * SKDPM_LANES,)

    def __init__(
        self, const int[:, ::1] codes, const int[::1] first, const double[::1] pseudo_counts
    ):
        expect_shape("first", first, (codes.shape[1] + 1,))
        expect_shape("pseudo_counts", pseudo_counts, (first[codes.shape[1]],))
        self.codes, self.first, self.pseudo_counts = codes, first, pseudo_counts
        self.n_samples = codes.shape[0]
        self.n_features = codes.shape[1]
        self.n_levels = first[self.n_features]
        self.n_stats = 1 + self.n_levels + self.n_features
        self.n_params = self.n_levels + 1
        self.table = np.empty(self.n_params * SKDPM_LANES)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d, t
        cdef const double* counts = stats + 1
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                params[t] = self.pseudo_counts[t] + power * counts[t]
            draw_log_dirichlet(rng, self.first[d + 1] - self.first[d], params + self.first[d])
        params[self.n_levels] = 0.0

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items, const double* params,
        const Py_ssize_t* which, Py_ssize_t n_which, double* out
    ) noexcept nogil:
        tile_entries(
            params, self.n_params, which, n_which, self.n_params, items, n_items, NULL,
            self.n_features, &self.codes[0, 0], NULL, &self.table[0], out, TILE
        )

    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items    # n_items <= TILE
    ) noexcept nogil:
        cdef Py_ssize_t d, i, t
        cdef const int* codes
        cdef double* counts = stats + 1
        cdef double* observed = counts + self.n_levels
        stats[0] += n_items
        for i in range(n_items):
            codes = &self.codes[items[i], 0]
            for d in range(self.n_features):
                t = codes[d]
                if t < self.n_levels:
                    counts[t] += 1.0
                    observed[d] += 1.0


def number_levels(const number[:, :] X, const int[::1] first):
    """Codes from 0 of each column, NaN if missing, as the `codes` of `CategoricalModel`."""
    cdef Py_ssize_t d, i
    expect_shape("first", first, (X.shape[1] + 1,))
    cdef int missing = first[X.shape[1]]
    codes = np.empty((X.shape[0], X.shape[1]), dtype=np.int32)
    cdef int[:, ::1] view = codes
    with nogil:
        for i in range(X.shape[0]):
            for d in range(X.shape[1]):
                view[i, d] = first[d] + <int>X[i, d] if X[i, d] == X[i, d] else missing
    return codes
