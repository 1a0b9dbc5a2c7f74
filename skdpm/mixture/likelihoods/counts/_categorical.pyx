# SPDX-License-Identifier: BSD-3-Clause
"""Independent categorical columns with Dirichlet priors. Bernoulli columns have two categories.

With c_t items of category t in a cluster, pseudo-counts a_t, A_d = sum_t a_t over the categories
of column d and n_d the items whose column d is observed,

    p(x_i | cluster) = prod_d (a_t + c_t) / (A_d + n_d),    t = category of x_id,
    p(cluster)       = prod_d Gamma(A_d) / Gamma(A_d + n_d) prod_t Gamma(a_t + c_t) / Gamma(a_t).

The categories of all columns are numbered in one sequence. The number after the last marks a
missing entry, and its log value is 0. Counts are integers, so logarithms come from tables if there
are few different pseudo-counts and they are fixed. Learned ones would need new tables in every
iteration; their logarithms are computed.

Row: n, c_t (n_levels), n_d (n_features) | log values (n_levels + 1). If entries may be missing, a
log value includes its -log(A_d + n_d). Otherwise the sum of these depends only on n and is
tabulated; for learned pseudo-counts only for the n that occur.
"""
cimport cython
from libc.math cimport NAN, ceil, log
from libc.stdlib cimport free

import numpy as np

from skdpm._core._math cimport (
    CountTable, count_table, log_count, log_gamma, log_gamma_function, log_rising_count
)
from skdpm._core._memory cimport expect_shape, resized
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, row
from skdpm.mixture.likelihoods.contract._parametric cimport (
    SKDPM_LANES, TILE, ParametricModel, draw_log_dirichlet, number
)


cdef extern from "tiles.h" nogil:
    void tile_categories(
        const double* params, Py_ssize_t n_params, const Py_ssize_t* which, Py_ssize_t n_which,
        Py_ssize_t n_levels, const Py_ssize_t* items, Py_ssize_t n, Py_ssize_t n_entries,
        const int* indices, double* table, double* out, Py_ssize_t ld
    )


cdef enum:
    # Number of rows for which learning takes a quarter of a sweep, for any number of columns.
    LEARNING_ROWS = 4000
    MOST_PERIOD = 5


cdef class CategoricalModel(ClusterModel):
    """Kernel of the categorical likelihoods.

    - `data`: dict. `codes`, (n_samples, n_features), number of the category of each entry in the
      common sequence, `n_levels` if missing; `first`, (n_features + 1,), first category of each
      column, then `n_levels`.
    - `tables`: dict. Result of `Levels.tables`.
    - `hyper_names`: Name of the hyperparameter of each pseudo-count in `tables`.
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int[:, ::1] codes
    cdef const int[::1] first, kinds
    cdef bint missing
    cdef CountTable* log_counts     # (n_kinds,)
    cdef CountTable* log_gammas     # (n_kinds,)
    cdef const double[::1] totals
    # (n_max + 1,): NaN until it is needed; None if entries may be missing
    cdef const double[::1] log_norm
    cdef double[::1] own_norm       # the same, if no others are given
    cdef Py_ssize_t[::1] columns    # (n_hyper,): the only column of a pseudo-count, or -1
    cdef tuple _tables

    def __init__(self, data, tables, hyper_names):
        cdef Py_ssize_t d, kind, t
        cdef const double[::1] pseudo_counts = tables["pseudo_counts"]
        cdef const double[:, ::1] log_counts = tables["log_counts"]
        cdef const double[:, ::1] log_gammas = tables["log_gammas"]
        cdef Py_ssize_t n_kinds = pseudo_counts.shape[0]
        self.codes, self.first = data["codes"], data["first"]
        self.kinds, self.totals = tables["kinds"], tables["totals"]
        self.n_samples = self.codes.shape[0]
        self.n_features = self.codes.shape[1]
        self.n_levels = self.kinds.shape[0]
        expect_shape("first", self.first, (self.n_features + 1,))
        expect_shape("kinds", self.kinds, (self.first[self.n_features],))
        expect_shape("log_counts", log_counts, (n_kinds, log_counts.shape[1]))
        expect_shape("log_gammas", log_gammas, (n_kinds, log_gammas.shape[1]))
        expect_shape("totals", self.totals, (self.n_features,))
        self._tables = log_counts, log_gammas
        self.n_max = tables["n_max"]
        self.missing = tables["missing"]
        self.log_counts = <CountTable*>resized(NULL, n_kinds, sizeof(CountTable))
        self.log_gammas = <CountTable*>resized(NULL, n_kinds, sizeof(CountTable))
        self.columns = np.full(n_kinds, -2)
        for kind in range(n_kinds):
            self.log_counts[kind] = count_table(log_counts[kind], pseudo_counts[kind])
            self.log_gammas[kind] = count_table(log_gammas[kind], pseudo_counts[kind])
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                kind = self.kinds[t]
                self.columns[kind] = d if self.columns[kind] in (-2, d) else -1
        if not self.missing and len(tables["log_norm"]) > 0:
            self.log_norm = tables["log_norm"]
        else:
            self.forget_norms()
        self.hyper_period = min(
            MOST_PERIOD, max(1, <Py_ssize_t>ceil(LEARNING_ROWS / <double>self.n_max))
        )
        self.declare_hyperparameters(hyper_names, pseudo_counts)
        self.allocate(
            1 + self.n_levels + self.n_features, 2 + 2 * self.n_levels + self.n_features
        )
        self.compute_log_values(self.empty)

    def __dealloc__(self):
        free(self.log_counts)
        free(self.log_gammas)

    cdef int forget_norms(self) except -1:
        """Forget the sums over columns of log(A_d + n), which are then computed when n occurs."""
        if not self.missing:
            self.log_norm = self.own_norm = np.full(self.n_max + 1, np.nan)
        return 0

    cdef double compute_norm(self, Py_ssize_t n) noexcept nogil:
        cdef Py_ssize_t d
        cdef double total = 0.0
        for d in range(self.n_features):
            total += log(self.totals[d] + n)
        self.own_norm[n] = total
        return total

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t d, kind, t
        cdef double[::1] totals = np.zeros(self.n_features)
        for kind in range(self.n_hyper):
            self.log_counts[kind].size = self.log_gammas[kind].size = 0
            self.log_counts[kind].shift = self.log_gammas[kind].shift = self.hyper[kind]
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                totals[d] += self.hyper[self.kinds[t]]
        self.totals = totals
        self.forget_norms()
        self.compute_log_values(self.empty)
        return 0

    cdef inline void compute_column(
        self, double* stats, Py_ssize_t d, double norm
    ) noexcept nogil:
        """Cached log values of column d. `norm` is log(A_d + n_d) if entries may be missing,
        otherwise 0."""
        cdef Py_ssize_t t
        cdef const double* counts = stats + 1
        cdef double* values = stats + self.n_stats
        for t in range(self.first[d], self.first[d + 1]):
            values[t] = log_count(&self.log_counts[self.kinds[t]], counts[t]) - norm

    cdef void compute_log_values(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* observed = stats + 1 + self.n_levels
        for d in range(self.n_features):
            self.compute_column(
                stats, d, log(self.totals[d] + observed[d]) if self.missing else 0.0
            )
        stats[self.n_stats + self.n_levels] = 0.0

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute_log_values(row(self, slot))

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Add item i (by = 1) or remove it (by = -1)."""
        cdef Py_ssize_t d, t
        cdef const int* codes = &self.codes[i, 0]
        cdef double* counts = stats + 1
        cdef double* observed = counts + self.n_levels
        cdef double* values = stats + self.n_stats
        cdef double size
        cdef double last_size = NAN
        cdef double norm = NAN
        stats[0] += by
        if self.missing:
            for d in range(self.n_features):
                t = codes[d]
                if t < self.n_levels:
                    counts[t] += by
                    observed[d] += by
                    size = self.totals[d] + observed[d]
                    if size != last_size:       # columns often have equal sizes
                        last_size = size
                        norm = log(size)
                    self.compute_column(stats, d, norm)
        else:
            for d in range(self.n_features):
                t = codes[d]
                counts[t] += by
                observed[d] += by
                values[t] = log_count(&self.log_counts[self.kinds[t]], counts[t])

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, -1.0)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d, t
        cdef const double* counts = row(self, slot) + 1
        cdef const double* observed = counts + self.n_levels
        cdef double total = 0.0
        for t in range(self.n_levels):
            if counts[t] > 0:
                total += log_gamma(&self.log_gammas[self.kinds[t]], counts[t])
                total -= log_gamma(&self.log_gammas[self.kinds[t]], 0)
        for d in range(self.n_features):
            total -= (
                log_gamma_function(self.totals[d] + observed[d])
                - log_gamma_function(self.totals[d])
            )
        return total

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
                    total += log_rising_count(self.hyper[self.kinds[t]] + counts[t], joins[t])
            last_start = last_gained = last = 0.0
            for d in range(self.n_features):
                start = self.totals[d] + counts[self.n_levels + d]
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
        cdef Py_ssize_t d, k
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t n_paired = n_features - n_features % 4
        cdef const int* codes = &self.codes[i, 0]
        cdef const double* stats
        cdef const double* values
        cdef double a, b, c, e, norm
        for k in range(n_slots):
            stats = row(self, slots[k])
            values = stats + self.n_stats
            # Four sums, so that additions do not wait for each other.
            a = b = c = e = 0.0
            for d in range(0, n_paired, 4):
                a += values[codes[d]]
                b += values[codes[d + 1]]
                c += values[codes[d + 2]]
                e += values[codes[d + 3]]
            for d in range(n_paired, n_features):
                a += values[codes[d]]
            norm = 0.0
            if not self.missing:
                norm = self.log_norm[<Py_ssize_t>stats[0]]
                if norm != norm:
                    norm = self.compute_norm(<Py_ssize_t>stats[0])
            out[k] = (a + b) + (c + e) - norm


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
        tile_categories(
            params, self.n_params, which, n_which, self.n_params, items, n_items, self.n_features,
            &self.codes[0, 0], &self.table[0], out, TILE
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
