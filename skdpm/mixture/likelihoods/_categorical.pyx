# SPDX-License-Identifier: BSD-3-Clause
"""Independent categorical columns with Dirichlet priors; Bernoulli columns are the case of two.

With c_t items of category t in a cluster, pseudo-counts a_t, A_d = sum_t a_t over the categories
of column d and n_d the items whose column d is observed,

    p(x_i | cluster) = prod_d (a_t + c_t) / (A_d + n_d),    t = category of x_id,
    p(cluster)       = prod_d Gamma(A_d) / Gamma(A_d + n_d) prod_t Gamma(a_t + c_t) / Gamma(a_t).

The categories of all columns are numbered in one sequence; the number after the last stands for a
missing entry, and its logarithm is 0. Counts are integers, so logarithms come from tables.

Row: n, c_t (n_levels), n_d (n_features) | log values (n_levels + 1). Where entries are missing a
log value includes its -log(A_d + n_d); else that sum depends on n alone and is tabulated.
"""
cimport cython
from libc.math cimport log
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._math cimport CountTable, count_table, log_count, log_gamma, log_gamma_function
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._parametric cimport (
    TILE, ParametricModel, draw_log_dirichlet, number
)


cdef extern from "tiles.h" nogil:
    const int SKDPM_LANES
    void tile_categories(
        const double* params, Py_ssize_t n_params, const Py_ssize_t* which, Py_ssize_t n_which,
        Py_ssize_t n_levels, const Py_ssize_t* items, Py_ssize_t n, Py_ssize_t n_entries,
        const int* indices, double* table, double* out, Py_ssize_t ld
    )


cdef enum:
    MAX_KINDS = 2   # distinct pseudo-counts: one per category within a Bernoulli column


cdef class CategoricalModel(ClusterModel):
    """Kernel of the categorical likelihoods.

    Parameters
    ----------
    data : dict
        codes : ndarray of shape (n_samples, n_features), int32
            Number of each entry's category in the common sequence, `n_levels` where missing.
        first : ndarray of shape (n_features + 1,), int32
            First category of each column, then `n_levels`.
    tables : dict
        From `tables_of_levels`.
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int* codes
    cdef const int* first
    cdef const int* kinds
    cdef bint missing
    cdef CountTable log_counts[MAX_KINDS]
    cdef CountTable log_gammas[MAX_KINDS]
    cdef const double* totals
    cdef const double* log_norm
    cdef object _owners

    def __init__(self, data, tables):
        cdef Py_ssize_t kind
        cdef const int[:, ::1] codes = data["codes"]
        cdef const int[::1] first = data["first"]
        cdef const int[::1] kinds = tables["kinds"]
        cdef const double[::1] pseudo_counts = tables["pseudo_counts"]
        cdef const double[:, ::1] log_counts = tables["log_counts"]
        cdef const double[:, ::1] log_gammas = tables["log_gammas"]
        cdef const double[::1] totals = tables["totals"]
        cdef const double[::1] log_norm = tables["log_norm"]
        self._owners = (codes, first, kinds, log_counts, log_gammas, totals, log_norm)
        self.n_samples = codes.shape[0]
        self.n_features = codes.shape[1]
        self.n_levels = kinds.shape[0]
        self.n_max = tables["n_max"]
        self.codes = &codes[0, 0]
        self.first = &first[0]
        self.kinds = &kinds[0]
        self.missing = tables["missing"]
        if pseudo_counts.shape[0] > MAX_KINDS:
            raise ValueError(f"{pseudo_counts.shape[0]} kinds of pseudo-counts")
        for kind in range(pseudo_counts.shape[0]):
            self.log_counts[kind] = count_table(log_counts[kind], pseudo_counts[kind])
            self.log_gammas[kind] = count_table(log_gammas[kind], pseudo_counts[kind])
        self.totals = &totals[0]
        self.log_norm = &log_norm[0]
        self.allocate(
            1 + self.n_levels + self.n_features, 2 + 2 * self.n_levels + self.n_features
        )
        self.compute_log_values(self.empty)

    cdef void compute_column(self, double* stats, Py_ssize_t d) noexcept nogil:
        """Cached log values of column d."""
        cdef Py_ssize_t t
        cdef const double* counts = stats + 1
        cdef double* values = stats + self.n_stats
        cdef double norm = log(self.totals[d] + counts[self.n_levels + d]) if self.missing else 0.0
        for t in range(self.first[d], self.first[d + 1]):
            values[t] = log_count(&self.log_counts[self.kinds[t]], counts[t]) - norm

    cdef void compute_log_values(self, double* stats) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.compute_column(stats, d)
        stats[self.n_stats + self.n_levels] = 0.0

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.compute_log_values(row(self, slot))

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Count item i in (by = 1) or out (by = -1)."""
        cdef Py_ssize_t d, t
        cdef const int* codes = self.codes + i * self.n_features
        cdef double* counts = stats + 1
        cdef double* observed = counts + self.n_levels
        cdef double* values = stats + self.n_stats
        stats[0] += by
        if self.missing:
            for d in range(self.n_features):
                t = codes[d]
                if t < self.n_levels:
                    counts[t] += by
                    observed[d] += by
                    self.compute_column(stats, d)
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

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * n_features)."""
        cdef Py_ssize_t d, k
        cdef Py_ssize_t n_features = self.n_features
        cdef Py_ssize_t n_paired = n_features - n_features % 4
        cdef const int* codes = self.codes + i * n_features
        cdef const double* stats
        cdef const double* values
        cdef double a, b, c, e
        for k in range(n_slots):
            stats = row(self, slots[k])
            values = stats + self.n_stats
            # Four sums, so that an addition need not wait for the one before.
            a = b = c = e = 0.0
            for d in range(0, n_paired, 4):
                a += values[codes[d]]
                b += values[codes[d + 1]]
                c += values[codes[d + 2]]
                e += values[codes[d + 3]]
            for d in range(n_paired, n_features):
                a += values[codes[d]]
            out[k] = (a + b) + (c + e) - self.log_norm[<Py_ssize_t>stats[0]]


@cython.final
cdef class ParametricCategorical(ParametricModel):
    """Rows of categories under drawn probabilities theta_d ~ Dirichlet(a_t + c_t).

    Parameters: log theta_t (n_levels), and 0 for a missing entry.

    Parameters
    ----------
    codes : ndarray of shape (n_samples, n_features), int32
        As in `CategoricalModel`.
    first : ndarray of shape (n_features + 1,), int32
        First category of each column, then `n_levels`.
    pseudo_counts : ndarray
        Of all categories (one number) or of those of every column, in their order.
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int* codes
    cdef const int* first
    cdef const double* pseudo_counts
    cdef Py_ssize_t n_pseudo_counts
    cdef double* table      # (n_params, SKDPM_LANES)
    cdef object _owners

    def __init__(
        self, const int[:, ::1] codes, const int[::1] first, const double[::1] pseudo_counts
    ):
        self._owners = (codes, first, pseudo_counts)
        self.n_samples = codes.shape[0]
        self.n_features = codes.shape[1]
        self.n_levels = first[self.n_features]
        self.n_stats = 1 + self.n_levels + self.n_features
        self.n_params = self.n_levels + 1
        self.codes = &codes[0, 0] if codes.shape[0] else NULL
        self.first = &first[0]
        self.pseudo_counts = &pseudo_counts[0]
        self.n_pseudo_counts = pseudo_counts.shape[0]
        self.table = <double*>malloc(self.n_params * SKDPM_LANES * sizeof(double))
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d, t
        cdef const double* counts = stats + 1
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                params[t] = (
                    self.pseudo_counts[(t - self.first[d]) % self.n_pseudo_counts]
                    + power * counts[t]
                )
            draw_log_dirichlet(rng, self.first[d + 1] - self.first[d], params + self.first[d])
        params[self.n_levels] = 0.0

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items,              # IN (n_items,), <= TILE
        const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out                                                     # OUT (n_which, TILE)
    ) noexcept nogil:
        tile_categories(
            params, self.n_params, which, n_which, self.n_params, items, n_items, self.n_features,
            self.codes, self.table, out, TILE
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
            codes = self.codes + items[i] * self.n_features
            for d in range(self.n_features):
                t = codes[d]
                if t < self.n_levels:
                    counts[t] += 1.0
                    observed[d] += 1.0


def number_levels(const number[:, :] X, const int[::1] first):
    """Codes per column to numbers in the common sequence.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Integer codes from 0, NaN where missing.
    first : ndarray of shape (n_features + 1,), int32
        First category of each column, then the number of all.

    Returns
    -------
    codes : ndarray of shape (n_samples, n_features), int32
        The number of all where missing.
    """
    cdef Py_ssize_t d, i
    cdef int missing = first[X.shape[1]]
    codes = np.empty((X.shape[0], X.shape[1]), dtype=np.int32)
    cdef int[:, ::1] view = codes
    with nogil:
        for i in range(X.shape[0]):
            for d in range(X.shape[1]):
                view[i, d] = first[d] + <int>X[i, d] if X[i, d] == X[i, d] else missing
    return codes
