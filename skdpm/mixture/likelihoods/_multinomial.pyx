# SPDX-License-Identifier: BSD-3-Clause
"""Rows of counts, multinomial given their total, with a Dirichlet prior over the columns.

With c_d counts of column d and N counts of all columns in a cluster, pseudo-counts a_d of sum A, a
row x of total t has

    p(x | cluster) = t! / prod_d x_d!  Gamma(A + N) / Gamma(A + N + t)
                     prod_d Gamma(a_d + c_d + x_d) / Gamma(a_d + c_d),
    p(cluster)     = prod_i (t_i! / prod_d x_id!)  Gamma(A) / Gamma(A + N)
                     prod_d Gamma(a_d + c_d) / Gamma(a_d).

The factors t! / prod_d x_d! are the item's `log_constants` and left out below.

Only stored entries are visited. A count of 1, the most frequent, needs a cached log(a_d + c_d).
Larger counts use a table if all a_d are equal; otherwise the logarithm of the product of
a_d + c_d, a_d + c_d + 1, ..., one logarithm for many entries. A merge of two clusters changes only
the terms of columns in which both have counts.

The hyperparameter is c in a_d = c w_d, with fixed weights w_d of mean 1. Given the partition its
density is a product of c w + j over weights w and j, and most counts are small. So the number of
clusters and columns of a weight with more than j counts is tallied once per slice step.

Row: n, N, c_d (D) | log(a_d + c_d) (D).
"""
cimport cython
from libc.math cimport log
from libc.stdlib cimport free
from libc.string cimport memset

import numpy as np

from skdpm._core._math cimport (
    CountTable, count_table, fill_log_gamma, log_count, log_gamma_ratio, log_rising,
    log_rising_count
)
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bitgen_t
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
    N_HEAD = 2      # statistics before the counts of columns
    N_FACTORS = 8   # largest count for which the product is computed
    N_TALLIED = 16  # counts up to here are tallied
    OWN_TABLE = 1024    # largest number of entries of tables filled for a value of c


@cython.final
cdef class MultinomialModel(ClusterModel):
    """Kernel of multinomial rows.

    Parameters
    ----------
    data : dict
        indptr : ndarray of shape (n_samples + 1,), intp
            Positions of entries: item i has indptr[i], ..., indptr[i + 1] - 1.
        repeated : ndarray of shape (n_samples,), intp
            Position of the first entry above 1 of each item; the entries before it are 1.
        indices : ndarray of shape (n_entries,), int32
            Columns.
        counts : ndarray of shape (n_entries,)
            Positive counts.
        totals, log_constants : ndarray of shape (n_samples,)
        n_features : int
    tables : dict
        n_max : int
            Largest number of items of a cluster.
        classes : ndarray of shape (n_features,), int32
            Position in `weights` of the weight of each column.
        weights : ndarray of shape (n_weights,)
            Distinct weights.
        pseudo_counts : ndarray of shape (n_features,)
            a_d.
        log_counts, gamma_column, gamma_total : ndarray
            log(a + m), log Gamma(a + m) and log Gamma(A + m), m = 0, 1, ...; empty if the a_d
            differ.
    concentration : float
        c.
    """
    cdef Py_ssize_t n_features      # D
    cdef const Py_ssize_t* indptr
    cdef const Py_ssize_t* repeated
    cdef const int* indices
    cdef const double* counts
    cdef const double* totals
    cdef const int* classes
    cdef const double* weights
    cdef Py_ssize_t n_weights
    cdef double total_weight
    cdef const double* pseudo_counts
    # If the hyperparameter has changed: a_d, then a table of each kind.
    cdef double* own                # (n_features + 2 n_tabled,)
    cdef Py_ssize_t n_tabled        # 0 if the a_d differ
    cdef int* present               # (n_features,): scratch
    cdef CountTable log_counts, gamma_column, gamma_total
    # Number of counts above j, j < N_TALLIED, of clusters in columns of each weight.
    cdef double* tally              # (n_weights, N_TALLIED)
    cdef Py_ssize_t n_large         # number of counts above N_TALLIED
    cdef double* large              # (n_large,): these counts
    cdef int* large_class           # (n_large,): weights of their columns
    cdef object _owners

    def __init__(self, data, tables, double concentration):
        cdef Py_ssize_t d
        cdef const Py_ssize_t[::1] indptr = data["indptr"]
        cdef const Py_ssize_t[::1] repeated = data["repeated"]
        cdef const int[::1] indices = data["indices"]
        cdef const double[::1] counts = data["counts"]
        cdef const double[::1] totals = data["totals"]
        cdef const double[::1] log_counts = tables["log_counts"]
        cdef const int[::1] classes = tables["classes"]
        cdef const double[::1] weights = tables["weights"]
        cdef const double[::1] pseudo_counts = tables["pseudo_counts"]
        cdef const double[::1] gamma_column = tables["gamma_column"]
        cdef const double[::1] gamma_total = tables["gamma_total"]
        self._owners = (
            indptr, repeated, indices, counts, totals, classes, weights, pseudo_counts, log_counts,
            gamma_column, gamma_total
        )
        self.n_samples = totals.shape[0]
        self.n_features = data["n_features"]
        self.n_max = tables["n_max"]
        self.indptr = &indptr[0]
        self.repeated = &repeated[0]
        self.indices = &indices[0] if indices.shape[0] else NULL
        self.counts = &counts[0] if counts.shape[0] else NULL
        self.totals = &totals[0]
        self.keep_log_constants(data["log_constants"])
        self.classes = &classes[0]
        self.weights = &weights[0]
        self.n_weights = weights.shape[0]
        self.pseudo_counts = &pseudo_counts[0]
        for d in range(self.n_features):
            self.total_weight += weights[classes[d]]
        self.log_counts = count_table(log_counts, concentration)
        self.gamma_column = count_table(gamma_column, concentration)
        self.gamma_total = count_table(gamma_total, concentration * self.total_weight)
        self.n_tabled = min(self.log_counts.size, <Py_ssize_t>OWN_TABLE)
        self.present = <int*>resized(NULL, self.n_features, sizeof(int))
        self.declare_hyperparameters(("concentration",), (concentration,))
        self.allocate(N_HEAD + self.n_features, N_HEAD + 2 * self.n_features)
        self.compute_empty()

    def __dealloc__(self):
        free(self.own)
        free(self.present)
        free(self.tally)
        free(self.large)
        free(self.large_class)

    cdef void compute_empty(self) noexcept:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.empty[self.n_stats + d] = self.log_pseudo(d, 0.0)

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t d, m
        cdef Py_ssize_t size = self.n_tabled
        cdef double* logs
        self.own = <double*>resized(self.own, self.n_features + 2 * size, sizeof(double))
        for d in range(self.n_features):
            self.own[d] = self.hyper[0] * self.weights[self.classes[d]]
        self.pseudo_counts = self.own
        logs = self.own + self.n_features
        for m in range(size):
            logs[m] = log(self.own[0] + m)
        fill_log_gamma(logs + size, size, self.own[0])
        self.log_counts = CountTable(logs, size, self.own[0])
        self.gamma_column = CountTable(logs + size, size, self.own[0])
        self.gamma_total.size = 0
        self.gamma_total.shift = self.hyper[0] * self.total_weight
        self.compute_empty()
        return 0

    cdef inline double log_pseudo(self, Py_ssize_t d, double count) noexcept nogil:
        """log(a_d + count)."""
        if self.log_counts.size > 0:
            return log_count(&self.log_counts, count)
        return log(self.pseudo_counts[d] + count)

    cdef void change(self, double* stats, Py_ssize_t i, double by) noexcept nogil:
        """Add item i (by = 1) or remove it (by = -1)."""
        cdef Py_ssize_t m
        cdef double* count
        cdef bint tabled = self.log_counts.size > 0
        stats[0] += by
        stats[1] += by * self.totals[i]
        for m in range(self.indptr[i], self.indptr[i + 1]):
            count = stats + N_HEAD + self.indices[m]
            count[0] += by * self.counts[m]
            count[self.n_features] = (
                log_count(&self.log_counts, count[0]) if tabled
                else log(self.pseudo_counts[self.indices[m]] + count[0])
            )

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        self.change(row(self, slot), i, -1.0)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef double* counts = row(self, slot) + N_HEAD
        for d in range(self.n_features):
            counts[self.n_features + d] = (
                self.log_pseudo(d, counts[d]) if counts[d] > 0.0
                else self.empty[self.n_stats + d]
            )

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        cdef double total = 0.0
        if self.gamma_column.size == 0:
            return self.log_marginal_at(slot, self.hyper)
        for d in range(self.n_features):
            if counts[d] > 0.0:
                total += log_gamma_ratio(&self.gamma_column, 0.0, counts[d])
        return total - log_gamma_ratio(&self.gamma_total, 0.0, stats[1])

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Py_ssize_t d
        cdef const double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        cdef double total = 0.0
        for d in range(self.n_features):
            if counts[d] > 0.0:
                total += log_rising_count(hyper[0] * self.weights[self.classes[d]], counts[d])
        if stats[1] > 0.0:
            total -= log_rising_count(hyper[0] * self.total_weight, stats[1])
        return total

    cdef void log_merge_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t src,  # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        cdef Py_ssize_t d, k, m
        cdef Py_ssize_t n_present = 0
        cdef const double* of_src = row(self, src)
        cdef const double* other
        cdef double a, b, total
        for d in range(self.n_features):
            if of_src[N_HEAD + d] > 0.0:
                self.present[n_present] = <int>d
                n_present += 1
        for k in range(n_slots):
            other = row(self, slots[k])
            total = 0.0
            for m in range(n_present):
                d = self.present[m]
                a = of_src[N_HEAD + d]
                b = other[N_HEAD + d]
                if b > 0.0:
                    total += self.log_joint_gain(d, a, b)
            a = min(of_src[1], other[1])
            b = max(of_src[1], other[1])
            total -= log_gamma_ratio(&self.gamma_total, b, a)
            out[k] = total + log_gamma_ratio(&self.gamma_total, 0.0, a)

    cdef inline double log_joint_gain(self, Py_ssize_t d, double a, double b) noexcept nogil:
        """log of Gamma(a_d + a + b) Gamma(a_d) / (Gamma(a_d + a) Gamma(a_d + b))."""
        cdef const double* table = self.gamma_column.values
        if a + b < self.gamma_column.size:
            return (
                (table[<Py_ssize_t>(a + b)] - table[<Py_ssize_t>a])
                - (table[<Py_ssize_t>b] - table[0])
            )
        return (
            log_rising_count(self.pseudo_counts[d] + max(a, b), min(a, b))
            - log_rising_count(self.pseudo_counts[d], min(a, b))
        )

    cdef double log_likelihood_at(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots,      # IN (n_slots,)
        const double* hyper, Py_ssize_t h                       # IN (n_hyper,)
    ) noexcept nogil:
        """From the tally of the same slots."""
        cdef Py_ssize_t j, k, u
        cdef const double* stats
        cdef const double* above
        cdef double a
        cdef double total = 0.0
        for u in range(self.n_weights):
            above = self.tally + u * N_TALLIED
            a = hyper[0] * self.weights[u]
            for j in range(N_TALLIED):
                if above[j] == 0.0:
                    break
                total += above[j] * log(a + j)
        for k in range(n_slots):
            stats = row(self, slots[k])
            if stats[1] > 0.0:
                total -= log_rising_count(hyper[0] * self.total_weight, stats[1])
        for j in range(self.n_large):
            a = hyper[0] * self.weights[self.large_class[j]] + N_TALLIED
            total += log_rising(a, self.large[j] - N_TALLIED)
        return total

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot) less `log_constants`, O(n_slots * entries of row i)."""
        cdef Py_ssize_t k, m
        cdef Py_ssize_t first = self.indptr[i]
        cdef Py_ssize_t repeated = self.repeated[i]
        cdef Py_ssize_t stop = self.indptr[i + 1]
        cdef Py_ssize_t paired = repeated - (repeated - first) % 2
        cdef bint tabled = self.gamma_column.size > 0
        cdef const int* indices = self.indices
        cdef const double* stats
        cdef const double* values
        cdef double a, b
        for k in range(n_slots):
            stats = row(self, slots[k])
            values = stats + self.n_stats
            # Two sums, so that additions do not wait for each other.
            a = 0.0
            b = -log_gamma_ratio(&self.gamma_total, stats[1], self.totals[i])
            for m in range(first, paired, 2):
                a += values[indices[m]]
                b += values[indices[m + 1]]
            for m in range(paired, repeated):
                a += values[indices[m]]
            for m in range(repeated, stop if tabled else repeated):
                b += log_gamma_ratio(
                    &self.gamma_column, stats[N_HEAD + indices[m]], self.counts[m]
                )
            out[k] = a + b
        if not tabled:
            # A separate loop, which leaves registers to the one above.
            for k in range(n_slots):
                out[k] += self.log_repeated(row(self, slots[k]) + N_HEAD, repeated, stop)

    cdef double log_repeated(
        self, const double* counts, Py_ssize_t first, Py_ssize_t stop
    ) noexcept nogil:
        """Sum of log Gamma(a_d + c_d + x) - log Gamma(a_d + c_d) over some entries."""
        cdef Py_ssize_t d, j, m
        cdef double z
        cdef double product = 1.0
        cdef double total = 0.0
        for m in range(first, stop):
            d = self.indices[m]
            z = self.pseudo_counts[d] + counts[d]
            if self.counts[m] > N_FACTORS or not 1e-12 < z < 1e12:
                total += log_rising_count(z, self.counts[m])
                continue
            for j in range(<Py_ssize_t>self.counts[m]):
                product *= z + j
            # A further entry may change the product by a hundred powers of ten.
            if not 1e-150 < product < 1e150:
                total += log(product)
                product = 1.0
        return total + log(product)

    def resample_hyperparameters(self, slots, priors, bit_generator):
        self.tally_counts(slots)
        return ClusterModel.resample_hyperparameters(self, slots, priors, bit_generator)

    def log_likelihoods_at(self, slots, values, Py_ssize_t h):
        self.tally_counts(slots)
        return ClusterModel.log_likelihoods_at(self, slots, values, h)

    cdef int tally_counts(self, slots) except -1:
        cdef Py_ssize_t d, j, k, n_large
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef Py_ssize_t size = self.n_weights * N_TALLIED
        cdef double* above
        cdef const double* counts
        self.tally = <double*>resized(self.tally, size, sizeof(double))
        n_large = 0
        with nogil:
            memset(self.tally, 0, size * sizeof(double))
            for k in range(view.shape[0]):
                counts = row(self, view[k]) + N_HEAD
                for d in range(self.n_features):
                    if counts[d] > 0.0:
                        above = self.tally + self.classes[d] * N_TALLIED
                        above[min(<Py_ssize_t>counts[d], <Py_ssize_t>N_TALLIED) - 1] += 1.0
                        n_large += counts[d] > N_TALLIED
        self.large = <double*>resized(self.large, n_large, sizeof(double))
        self.large_class = <int*>resized(self.large_class, n_large, sizeof(int))
        self.n_large = 0
        with nogil:
            for k in range(self.n_weights):
                above = self.tally + k * N_TALLIED
                for j in range(N_TALLIED - 2, -1, -1):
                    above[j] += above[j + 1]
            for k in range(view.shape[0]):
                counts = row(self, view[k]) + N_HEAD
                for d in range(self.n_features):
                    if counts[d] > N_TALLIED:
                        self.large[self.n_large] = counts[d]
                        self.large_class[self.n_large] = self.classes[d]
                        self.n_large += 1
        return 0


@cython.final
cdef class ParametricMultinomial(ParametricModel):
    """Rows of counts under drawn probabilities of the columns, theta ~ Dirichlet(a_d + c_d).

    Parameters: log theta_d (D).

    Parameters
    ----------
    indptr : ndarray of shape (n_samples + 1,), intp
        The entries of item i are indptr[i], ..., indptr[i + 1] - 1.
    indices : ndarray of shape (n_entries,), int32
        Columns; in any order, repeated ones add up.
    counts : ndarray of shape (n_entries,)
    pseudo_counts : ndarray of shape (n_features,)
        a_d.
    """
    cdef Py_ssize_t n_features
    cdef const Py_ssize_t* indptr
    cdef const int* indices
    cdef const double* counts
    cdef const double* pseudo_counts
    cdef double* table      # (n_features, SKDPM_LANES)
    cdef object _owners

    def __init__(
        self, const Py_ssize_t[::1] indptr, const int[::1] indices, const double[::1] counts,
        const double[::1] pseudo_counts
    ):
        cdef Py_ssize_t n_features = pseudo_counts.shape[0]
        self._owners = (indptr, indices, counts, pseudo_counts)
        self.n_samples = indptr.shape[0] - 1
        self.n_features = n_features
        self.n_stats = N_HEAD + n_features
        self.n_params = n_features
        self.indptr = &indptr[0]
        self.indices = &indices[0] if indices.shape[0] else NULL
        self.counts = &counts[0] if counts.shape[0] else NULL
        self.pseudo_counts = &pseudo_counts[0]
        self.table = <double*>resized(NULL, n_features * SKDPM_LANES, sizeof(double))

    def __dealloc__(self):
        free(self.table)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t d
        for d in range(self.n_features):
            params[d] = self.pseudo_counts[d] + power * stats[N_HEAD + d]
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
        stats[1] += total


def nonzero_entries(const number[:, :] X):
    """The nonzero entries of a dense matrix, row by row.

    Returns
    -------
    indptr, indices, counts : ndarray
        Arguments of `ParametricMultinomial`.
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
