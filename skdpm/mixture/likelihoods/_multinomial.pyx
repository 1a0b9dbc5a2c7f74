# SPDX-License-Identifier: BSD-3-Clause
"""Rows of counts, multinomial given their total, with a Dirichlet prior over the columns.

With c_d counts of column d and N counts of all columns in a cluster, pseudo-counts a and A = D a,
a row x of total t has

    p(x | cluster) = t! / prod_d x_d!  Gamma(A + N) / Gamma(A + N + t)
                     prod_d Gamma(a + c_d + x_d) / Gamma(a + c_d),
    p(cluster)     = prod_i (t_i! / prod_d x_id!)  Gamma(A) / Gamma(A + N)
                     prod_d Gamma(a + c_d) / Gamma(a).

Only stored entries are visited; a count of 1, the most frequent, costs a cached log(a + c_d).

Row: n, sum of the rows' log coefficients (whole parts, fractions), N, c_d (D) | log(a + c_d) (D).
"""
cimport cython
from libc.stdlib cimport free, malloc
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._math cimport CountTable, count_table, log_count, log_gamma_ratio
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._parametric cimport (
    TILE, ParametricModel, draw_log_dirichlet, number
)


cdef extern from "tiles.h" nogil:
    const int SKDPM_LANES
    void tile_counts(
        const double* params, Py_ssize_t n_params, const Py_ssize_t* which, Py_ssize_t n_which,
        Py_ssize_t n_levels, const Py_ssize_t* items, Py_ssize_t n, const Py_ssize_t* indptr,
        const int* indices, const double* counts, double* table, double* out, Py_ssize_t ld
    )


cdef enum:
    N_HEAD = 4      # statistics before the counts of columns


cdef class MultinomialModel(ClusterModel):
    """Kernel of multinomial rows.

    Parameters
    ----------
    data : dict
        indptr : ndarray of shape (n_samples + 1,), intp
            The entries of item i are indptr[i], ..., indptr[i + 1] - 1.
        repeated : ndarray of shape (n_samples,), intp
            The entries of each item from here on are above 1, those before are 1.
        indices : ndarray of shape (n_entries,), int32
            Columns.
        counts : ndarray of shape (n_entries,)
            Positive.
        totals : ndarray of shape (n_samples,)
        n_features : int
    tables : dict
        n_max : int
            Most items that one cluster may hold.
        whole, fraction : ndarray of shape (n_samples,)
            Log coefficients, in two parts, whose sums are exact.
        log_counts, gamma_column, gamma_total : ndarray
            log(a + m), log Gamma(a + m) and log Gamma(A + m), m = 0, 1, ...
    concentration : float
        a.
    """
    cdef Py_ssize_t n_features      # D
    cdef const Py_ssize_t* indptr
    cdef const Py_ssize_t* repeated
    cdef const int* indices
    cdef const double* counts
    cdef const double* totals
    cdef const double* whole
    cdef const double* fraction
    cdef CountTable log_counts, gamma_column, gamma_total
    cdef object _owners

    def __init__(self, data, tables, double concentration):
        cdef Py_ssize_t d
        cdef const Py_ssize_t[::1] indptr = data["indptr"]
        cdef const Py_ssize_t[::1] repeated = data["repeated"]
        cdef const int[::1] indices = data["indices"]
        cdef const double[::1] counts = data["counts"]
        cdef const double[::1] totals = data["totals"]
        cdef const double[::1] whole = tables["whole"]
        cdef const double[::1] fraction = tables["fraction"]
        cdef const double[::1] log_counts = tables["log_counts"]
        cdef const double[::1] gamma_column = tables["gamma_column"]
        cdef const double[::1] gamma_total = tables["gamma_total"]
        self._owners = (
            indptr, repeated, indices, counts, totals, whole, fraction, log_counts, gamma_column,
            gamma_total
        )
        self.n_samples = totals.shape[0]
        self.n_features = data["n_features"]
        self.n_max = tables["n_max"]
        self.indptr = &indptr[0]
        self.repeated = &repeated[0]
        self.indices = &indices[0] if indices.shape[0] else NULL
        self.counts = &counts[0] if counts.shape[0] else NULL
        self.totals = &totals[0]
        self.whole = &whole[0]
        self.fraction = &fraction[0]
        self.log_counts = count_table(log_counts, concentration)
        self.gamma_column = count_table(gamma_column, concentration)
        self.gamma_total = count_table(gamma_total, concentration * self.n_features)
        self.allocate(N_HEAD + self.n_features, N_HEAD + 2 * self.n_features)
        for d in range(self.n_features):
            self.empty[self.n_stats + d] = log_count(&self.log_counts, 0.0)

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Count item i in (by = 1) or out (by = -1)."""
        cdef Py_ssize_t m
        cdef double* count
        stats[0] += by
        stats[1] += by * self.whole[i]
        stats[2] += by * self.fraction[i]
        stats[3] += by * self.totals[i]
        for m in range(self.indptr[i], self.indptr[i + 1]):
            count = stats + N_HEAD + self.indices[m]
            count[0] += by * self.counts[m]
            count[self.n_features] = log_count(&self.log_counts, count[0])

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, -1.0)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef double* counts = row(self, slot) + N_HEAD
        for d in range(self.n_features):
            counts[self.n_features + d] = log_count(&self.log_counts, counts[d])

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        cdef double total = 0.0
        for d in range(self.n_features):
            if counts[d] > 0.0:
                total += log_gamma_ratio(&self.gamma_column, 0.0, counts[d])
        return stats[1] + stats[2] + total - log_gamma_ratio(&self.gamma_total, 0.0, stats[3])

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot), O(n_slots * entries of the row)."""
        cdef Py_ssize_t k, m
        cdef Py_ssize_t first = self.indptr[i]
        cdef Py_ssize_t repeated = self.repeated[i]
        cdef Py_ssize_t stop = self.indptr[i + 1]
        cdef Py_ssize_t paired = repeated - (repeated - first) % 2
        cdef const int* indices = self.indices
        cdef const double* stats
        cdef const double* values
        cdef double a, b
        for k in range(n_slots):
            stats = row(self, slots[k])
            values = stats + self.n_stats
            # Two sums, so that an addition need not wait for the one before.
            a = self.whole[i] + self.fraction[i]
            b = -log_gamma_ratio(&self.gamma_total, stats[3], self.totals[i])
            for m in range(first, paired, 2):
                a += values[indices[m]]
                b += values[indices[m + 1]]
            for m in range(paired, repeated):
                a += values[indices[m]]
            for m in range(repeated, stop):
                b += log_gamma_ratio(
                    &self.gamma_column, stats[N_HEAD + indices[m]], self.counts[m]
                )
            out[k] = a + b


@cython.final
cdef class ParametricMultinomial(ParametricModel):
    """Rows of counts under drawn probabilities of the columns, theta ~ Dirichlet(a + c_d).

    Parameters: log theta_d (D).

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), intp
        The entries of item i are indptr[i], ..., indptr[i + 1] - 1.
    indices : ndarray of shape (n_entries,), int32
        Columns; in any order, repeated ones add up.
    counts : ndarray of shape (n_entries,)
    n_features : int
    concentration : float
        a.
    """
    cdef Py_ssize_t n_features
    cdef const Py_ssize_t* indptr
    cdef const int* indices
    cdef const double* counts
    cdef double concentration
    cdef double* table      # (n_features, SKDPM_LANES)
    cdef object _owners

    def __init__(
        self, const Py_ssize_t[::1] indptr, const int[::1] indices, const double[::1] counts,
        Py_ssize_t n_features, double concentration
    ):
        self._owners = (indptr, indices, counts)
        self.n_samples = indptr.shape[0] - 1
        self.n_features = n_features
        self.n_stats = N_HEAD + n_features
        self.n_params = n_features
        self.indptr = &indptr[0]
        self.indices = &indices[0] if indices.shape[0] else NULL
        self.counts = &counts[0] if counts.shape[0] else NULL
        self.concentration = concentration
        self.table = <double*>malloc(n_features * SKDPM_LANES * sizeof(double))
        if self.table == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.table)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            params[d] = self.concentration + power * stats[N_HEAD + d]
        draw_log_dirichlet(rng, self.n_features, params)

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items,              # IN (n_items,), <= TILE
        const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out                                                     # OUT (n_which, TILE)
    ) noexcept nogil:
        tile_counts(
            params, self.n_params, which, n_which, self.n_features, items, n_items, self.indptr,
            self.indices, self.counts, self.table, out, TILE
        )

    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items    # n_items <= TILE
    ) noexcept nogil:
        cdef Py_ssize_t i, m
        cdef double* counts = stats + N_HEAD
        cdef double total = 0.0
        stats[0] += n_items
        for i in range(n_items):
            for m in range(self.indptr[items[i]], self.indptr[items[i] + 1]):
                counts[self.indices[m]] += self.counts[m]
                total += self.counts[m]
        stats[3] += total


def nonzero_entries(const number[:, :] X):
    """The entries of a dense matrix that are not zero, row by row.

    Returns
    -------
    indptr, indices, counts : ndarray
        As in `ParametricMultinomial`.
    """
    cdef Py_ssize_t d, i
    cdef Py_ssize_t m = 0
    indptr = np.zeros(X.shape[0] + 1, dtype=np.intp)
    cdef Py_ssize_t[::1] indptr_view = indptr
    with nogil:
        for i in range(X.shape[0]):
            for d in range(X.shape[1]):
                m += X[i, d] != 0
            indptr_view[i + 1] = m
    indices = np.empty(m, dtype=np.int32)
    counts = np.empty(m)
    cdef int[::1] indices_view = indices
    cdef double[::1] counts_view = counts
    m = 0
    with nogil:
        for i in range(X.shape[0]):
            for d in range(X.shape[1]):
                if X[i, d] != 0:
                    indices_view[m] = <int>d
                    counts_view[m] = <double>X[i, d]
                    m += 1
    return indptr, indices, counts
