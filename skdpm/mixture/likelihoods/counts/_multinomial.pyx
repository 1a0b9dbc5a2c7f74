# SPDX-License-Identifier: BSD-3-Clause
"""Rows of counts, multinomial given their total, with a Dirichlet prior over the columns.

With c_d counts of column d and N counts of all columns in a cluster, pseudo-counts a_d of sum A, a
row x of total t has

    p(x | cluster) = t! / prod_d x_d!  Gamma(A + N) / Gamma(A + N + t)
                     prod_d Gamma(a_d + c_d + x_d) / Gamma(a_d + c_d),
    p(cluster)     = prod_i (t_i! / prod_d x_id!)  Gamma(A) / Gamma(A + N)
                     prod_d Gamma(a_d + c_d) / Gamma(a_d).

The factors t! / prod_d x_d! are the item's `log_constants` and left out below.

Only stored entries are visited. A count x of at most N_FACTORS is x factors a_d + c_d,
a_d + c_d + 1, ..., of a product whose exponent is split off from time to time, so that a row takes
one logarithm. Larger counts use a table if all a_d are equal. A merge of two clusters changes only
the terms of columns in which both have counts.

A second copy of the counts, the mirror, (n_features, n_columns), float32, has the counts of all
clusters in a column of X side by side (doc/design.md). A cluster is in it if its row says so.

The hyperparameter is c in a_d = c w_d, with fixed weights w_d of mean 1. Given the partition its
density is a product of c w + j over weights w and j, tallied once per slice step.

Row: n, N, c_d (D) | 1 if the cluster is in the mirror, else 0.
"""
cimport cython
from libc.math cimport log

import numpy as np

from skdpm._core._math cimport log_rising, log_rising_count
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport (
    ClusterModel, Indices, as_indices, read_row, row,
)
from skdpm.mixture.likelihoods.contract._parametric cimport (
    SKDPM_LANES, TILE, ParametricModel, draw_log_dirichlet, tile_entries
)


cdef extern from "tiles.h" nogil:
    const int SKDPM_COLUMNS
    double factors_of_counts(
        const double* counts, const int* columns, const unsigned char* offsets, Py_ssize_t n,
        const double* pseudo, int uniform
    )
    void tile_factors(
        const float* mirror, Py_ssize_t stride, Py_ssize_t n_clusters, const int* columns,
        const unsigned char* offsets, Py_ssize_t n, const double* pseudo, int uniform, double* out,
        double* scratch
    )
    void tile_log_rising(const double* z, double v, Py_ssize_t n, double* out)


cdef enum:
    N_HEAD = 2      # statistics before the counts of columns
    N_FACTORS = 8   # largest count that is written as factors
    N_TALLIED = 16  # counts up to here are tallied
    TABLED = 1024   # counts below are tabled if all a_d are equal
    BLOCK = 64      # clusters whose totals are evaluated together
    FEW = 8         # fewer clusters are evaluated by their rows
    SPARE = 12      # columns of the mirror for further clusters
    MOST_MIRRORED = 2048    # columns of the mirror
    LARGEST = 1 << 24       # counts below are exact in float32

# Least and largest a_d for which products cannot under- or overflow.
cdef double LEAST = 1e-18
cdef double MOST = 1e18

LARGEST_FACTOR = N_FACTORS


@cython.final
cdef class MultinomialModel(ClusterModel):
    """Kernel of multinomial rows.

    `data` has `indptr`, `indices` and `counts` (positive) of CSR rows, `n_features`, `totals` and
    `log_constants` of the items, and

    - `large`: (n_samples,). Position of the first entry above `LARGEST_FACTOR` of each item.
    - `factors`: (n_samples + 1,). Positions of factors, as `indptr` has those of entries.
    - `factor_columns`, `offsets`: (n_factors,). Offsets are 0, ..., x - 1 of an entry x.

    `tables` has `n_max`, distinct `weights`, `classes`, (n_features,), the position of the weight
    of each column among them, and `pseudo_counts`, (n_features,), a_d. `concentration` is c.
    """
    cdef Py_ssize_t n_features      # D
    cdef const Py_ssize_t[::1] indptr, large_from, factors
    cdef const int* factor_columns
    cdef const unsigned char* offsets
    cdef const int[::1] indices, classes
    cdef const double[::1] counts, totals, weights, pseudo_counts
    cdef Py_ssize_t n_weights
    cdef double total_weight
    cdef double[::1] rising         # (n_tabled,): log Gamma(a + m) - log Gamma(a)
    cdef Py_ssize_t n_tabled        # 0 if the a_d differ
    cdef int[::1] present           # (n_features + 1,): scratch
    cdef double total_pseudo        # A
    cdef bint has_products          # all a_d are from LEAST to MOST
    # The mirror, empty if n_columns is 0.
    cdef float* mirror              # (n_features, mirror_stride)
    cdef readonly Py_ssize_t n_columns
    cdef Py_ssize_t mirror_stride, mirror_room
    # Those that are evaluated, a multiple of SKDPM_COLUMNS.
    cdef Py_ssize_t first_column, end_column
    cdef Py_ssize_t* column_of      # (mirror_room,) of each slot; -1: none yet
    cdef Py_ssize_t* slot_of        # (mirror_room,) of each column
    cdef double* products           # (2 * mirror_room,): scratch
    cdef double rent                # factors evaluated under many clusters without the mirror
    cdef bint fits                  # no count has been too large for float32
    # Number of counts above j, j < N_TALLIED, of clusters in columns of each weight.
    cdef double[:, ::1] tally       # (n_weights, N_TALLIED)
    cdef double[::1] large          # counts above N_TALLIED
    cdef int[::1] large_class       # weights of their columns
    cdef tuple _owners

    def __init__(self, data, tables, double concentration):
        cdef const int[::1] factor_columns = data["factor_columns"]
        cdef const unsigned char[::1] offsets = data["offsets"]
        self._owners = factor_columns, offsets
        self.indptr, self.large_from = data["indptr"], data["large"]
        self.factors, self.indices = data["factors"], data["indices"]
        self.counts, self.totals = data["counts"], data["totals"]
        self.classes, self.weights = tables["classes"], tables["weights"]
        self.pseudo_counts = tables["pseudo_counts"]
        self.n_samples = self.totals.shape[0]
        self.n_features = data["n_features"]
        self.n_max = tables["n_max"]
        self.factor_columns = &factor_columns[0] if factor_columns.shape[0] else NULL
        self.offsets = &offsets[0] if offsets.shape[0] else NULL
        self.keep_log_constants(data["log_constants"])
        self.n_weights = self.weights.shape[0]
        for d in range(self.n_features):
            self.total_weight += self.weights[self.classes[d]]
        self.n_tabled = TABLED if self.n_weights == 1 else 0
        self.rising = np.zeros(self.n_tabled)
        self.present = np.empty(self.n_features + 1, dtype=np.int32)
        self.declare_hyperparameters(("concentration",), (concentration,))
        self.allocate(N_HEAD + self.n_features, N_HEAD + self.n_features + 1)
        self.fits = True
        self.weigh_columns()

    @property
    def merge_width(self):
        """Columns with counts in a cluster of ten items, if all are different."""
        return min(self.width, 10 * self.indptr[self.n_samples] // max(self.n_samples, 1))

    cdef void weigh_columns(self) noexcept:
        """Compute all that depends on the hyperparameter except a_d."""
        self.total_pseudo = self.hyper[0] * self.total_weight
        self.has_products = True
        for u in range(self.n_weights):
            self.has_products &= LEAST <= self.hyper[0] * self.weights[u] <= MOST
        # Differences of log Gamma would lose all digits if a is large.
        for m in range(1, self.n_tabled):
            self.rising[m] = self.rising[m - 1] + log(self.hyper[0] + (m - 1))

    cdef int retabulate(self) except -1:
        self.pseudo_counts = self.hyper[0] * np.asarray(self.weights)[np.asarray(self.classes)]
        self.weigh_columns()

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        cdef double* stats = row(self, slot)
        cdef double* counts = stats + N_HEAD
        stats[0] += by
        stats[1] += by * self.totals[i]
        for m in range(self.indptr[i], self.indptr[i + 1]):
            counts[self.indices[m]] += by * self.counts[m]
        if stats[self.n_stats] == 0.0:
            return
        column = self.mirror + self.column_of[slot]
        for m in range(self.indptr[i], self.indptr[i + 1]):
            column[self.indices[m] * self.mirror_stride] = <float>counts[self.indices[m]]
            self.fits &= counts[self.indices[m]] < LARGEST
        if not self.fits:
            self.settle()

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        row(self, slot)[self.n_stats] = 0.0

    # The mirror.

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        ClusterModel.reserve(self, n_slots)
        return self.make_room()

    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept:
        ClusterModel.place(self, stats, stride, n_slots)
        self.settle()
        try:
            self.make_room()
        except MemoryError:
            self.fits = False

    cdef int make_room(self) except -1:
        """Room for a column per slot, and one for the row of all. Unused memory is not touched."""
        cdef Py_ssize_t room = (self.n_slots // SKDPM_COLUMNS + 1) * SKDPM_COLUMNS
        if room <= self.mirror_room or room > <Py_ssize_t>MOST_MIRRORED:
            return 0
        self.settle()
        self.mirror_room = 0
        self.mirror = <float*>self.freed(self.mirror)
        self.mirror = <float*>self.resized(NULL, self.n_features * room, sizeof(float))
        self.column_of = <Py_ssize_t*>self.resized(self.column_of, room, sizeof(Py_ssize_t))
        self.slot_of = <Py_ssize_t*>self.resized(self.slot_of, room, sizeof(Py_ssize_t))
        self.products = <double*>self.resized(self.products, 2 * room, sizeof(double))
        self.mirror_room = room

    cdef void settle(self) noexcept nogil:
        """End the mirror: no row says that it is in it."""
        for c in range(self.n_columns):
            row(self, self.slot_of[c])[self.n_stats] = 0.0
        self.n_columns = 0
        self.rent = 0.0

    cdef bint mirrors(self, Indices slots, Py_ssize_t n_factors) noexcept nogil:
        """Whether to evaluate an item by the mirror, which then has all of these clusters except
        empty ones, from `first_column` to `end_column`."""
        cdef Py_ssize_t first = self.mirror_room
        cdef Py_ssize_t end = 0
        if slots.n < FEW or not self.fits or self.n_slots >= self.mirror_room:
            return False
        if self.n_columns == 0:
            self.rent += n_factors
            if self.rent < self.n_features:
                return False
            # Room for all clusters: those of a call may be a part of them.
            self.mirror_stride = max(slots.n, self.n_slots) + SPARE + SKDPM_COLUMNS - 1
            self.mirror_stride = self.mirror_stride // SKDPM_COLUMNS * SKDPM_COLUMNS
            self.mirror_stride = min(self.mirror_stride, self.mirror_room)
            for slot in range(self.mirror_room):
                self.column_of[slot] = -1
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            if stats[self.n_stats] == 0.0:
                if stats[0] == 0.0:
                    continue
                if not self.reflect(slots.at[k]):
                    self.settle()
                    return False
            first = min(first, self.column_of[slots.at[k]])
            end = max(end, self.column_of[slots.at[k]] + 1)
        self.first_column = first // SKDPM_COLUMNS * SKDPM_COLUMNS
        self.end_column = (end + SKDPM_COLUMNS - 1) // SKDPM_COLUMNS * SKDPM_COLUMNS
        return 0 < end - first <= 4 * slots.n

    cdef bint reflect(self, Py_ssize_t slot) noexcept nogil:
        """Copy a cluster to the mirror. Returns False if it has no room."""
        cdef double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        if self.column_of[slot] < 0:
            if self.n_columns == self.mirror_stride:
                return False
            self.column_of[slot] = self.n_columns
            self.slot_of[self.n_columns] = slot
            self.n_columns += 1
        column = self.mirror + self.column_of[slot]
        for d in range(self.n_features):
            column[d * self.mirror_stride] = <float>counts[d]
            self.fits &= counts[d] < LARGEST
        stats[self.n_stats] = 1.0
        return self.fits

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        cdef double total = 0.0
        if self.n_tabled == 0:
            return self.log_marginal_at(slot, self.hyper)
        # Without branches for counts of 0, whose terms are 0.
        for d in range(self.n_features):
            if counts[d] < TABLED:
                total += self.rising[<Py_ssize_t>counts[d]]
            else:
                total += log_rising_count(self.pseudo_counts[d], counts[d])
        return total - log_rising_count(self.total_pseudo, stats[1])

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef const double* stats = row(self, slot)
        cdef const double* counts = stats + N_HEAD
        cdef double total = 0.0
        for d in range(self.n_features):
            if counts[d] > 0.0:
                total += log_rising_count(hyper[0] * self.weights[self.classes[d]], counts[d])
        if stats[1] > 0.0:
            total -= log_rising_count(hyper[0] * self.total_weight, stats[1])
        return total

    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil:
        cdef Py_ssize_t n_present = 0
        cdef const double* of_src = row(self, src)
        for d in range(self.n_features):
            # Without a branch, which is hard to predict; the place may be written again.
            self.present[n_present] = <int>d
            n_present += of_src[N_HEAD + d] > 0.0
        for k in range(slots.n):
            other = read_row(self, slots.at[k])
            total = 0.0
            for m in range(n_present):
                d = self.present[m]
                a = of_src[N_HEAD + d]
                b = other[N_HEAD + d]
                total += self.log_joint_gain(d, a, b)
            a = min(of_src[1], other[1])
            b = max(of_src[1], other[1])
            total -= log_rising_count(self.total_pseudo + b, a)
            out[k] = total + log_rising_count(self.total_pseudo, a)

    cdef inline double log_joint_gain(self, Py_ssize_t d, double a, double b) noexcept nogil:
        """log of Gamma(a_d + a + b) Gamma(a_d) / (Gamma(a_d + a) Gamma(a_d + b))."""
        if a + b < self.n_tabled:
            return (
                self.rising[<Py_ssize_t>(a + b)]
                - self.rising[<Py_ssize_t>a] - self.rising[<Py_ssize_t>b]
            )
        if b == 0.0:
            return 0.0
        return (
            log_rising_count(self.pseudo_counts[d] + max(a, b), min(a, b))
            - log_rising_count(self.pseudo_counts[d], min(a, b))
        )

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """From the tally of the same slots."""
        cdef double total = 0.0
        for u in range(self.n_weights):
            a = hyper[0] * self.weights[u]
            for j in range(N_TALLIED):
                if self.tally[u, j] == 0.0:
                    break
                total += self.tally[u, j] * log(a + j)
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            if stats[1] > 0.0:
                total -= log_rising_count(hyper[0] * self.total_weight, stats[1])
        for j in range(self.large.shape[0]):
            a = hyper[0] * self.weights[self.large_class[j]] + N_TALLIED
            total += log_rising(a, self.large[j] - N_TALLIED)
        return total

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef Py_ssize_t first = self.indptr[i]
        cdef Py_ssize_t large = self.large_from[i]
        cdef Py_ssize_t stop = self.indptr[i + 1]
        cdef Py_ssize_t n = self.factors[i + 1] - self.factors[i]
        cdef const int* columns = self.factor_columns + self.factors[i]
        cdef const unsigned char* offsets = self.offsets + self.factors[i]
        cdef bint uniform = self.n_weights == 1
        cdef bint mirrors = self.has_products and self.mirrors(slots, n)
        if mirrors:
            tile_factors(
                self.mirror + self.first_column, self.mirror_stride,
                self.end_column - self.first_column, columns, offsets, n, &self.pseudo_counts[0],
                uniform, self.products, self.products + self.mirror_room
            )
        for k in range(slots.n):
            stats = read_row(self, slots.at[k])
            if not self.has_products:
                out[k] = 0.0
            elif mirrors and stats[self.n_stats] != 0.0:
                out[k] = self.products[self.column_of[slots.at[k]] - self.first_column]
            else:
                out[k] = factors_of_counts(
                    stats + N_HEAD, columns, offsets, n, &self.pseudo_counts[0], uniform
                )
        if not self.has_products:
            large = first
        if large < stop:
            for k in range(slots.n):
                for m in range(large, stop):
                    out[k] += self.log_large(row(self, slots.at[k]) + N_HEAD, m)
        for m in range((slots.n + BLOCK - 1) // BLOCK):
            k = m * BLOCK
            block = as_indices(slots.at + k, min(slots.n - k, <Py_ssize_t>BLOCK))
            self.subtract_totals(block, i, out + k)

    cdef inline double log_large(self, const double* counts, Py_ssize_t m) noexcept nogil:
        """log Gamma(a_d + c_d + x) - log Gamma(a_d + c_d) for an entry."""
        cdef Py_ssize_t d = self.indices[m]
        cdef double c = counts[d]
        if c + self.counts[m] < self.n_tabled:
            return self.rising[<Py_ssize_t>(c + self.counts[m])] - self.rising[<Py_ssize_t>c]
        return log_rising_count(self.pseudo_counts[d] + c, self.counts[m])

    cdef void subtract_totals(
        self, Indices slots, Py_ssize_t i, double* out      # INOUT (slots.n,)
    ) noexcept nogil:
        """Subtract log Gamma(A + N + t) - log Gamma(A + N) of at most BLOCK clusters."""
        cdef double z[BLOCK], rising[BLOCK]
        cdef Py_ssize_t n_padded = (slots.n + 7) // 8 * 8
        for k in range(n_padded):
            z[k] = self.total_pseudo + row(self, slots.at[min(k, slots.n - 1)])[1]
        tile_log_rising(z, self.totals[i], n_padded, rising)
        for k in range(slots.n):
            # Stirling's series is for larger numbers.
            out[k] -= rising[k] if z[k] >= 20.0 else log_rising_count(z[k], self.totals[i])

    cdef int tally_slots(self, slots) except -1:
        cdef Py_ssize_t n_large = 0
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(slots, dtype=np.intp)
        self.tally = np.zeros((self.n_weights, N_TALLIED))
        with nogil:
            for k in range(view.shape[0]):
                counts = read_row(self, view[k]) + N_HEAD
                for d in range(self.n_features):
                    if counts[d] > 0.0:
                        j = min(<Py_ssize_t>counts[d], <Py_ssize_t>N_TALLIED) - 1
                        self.tally[self.classes[d], j] += 1.0
                        n_large += counts[d] > N_TALLIED
        self.large, self.large_class = np.empty(n_large), np.empty(n_large, dtype=np.int32)
        n_large = 0
        with nogil:
            for k in range(self.n_weights):
                for j in range(N_TALLIED - 2, -1, -1):
                    self.tally[k, j] += self.tally[k, j + 1]
            for k in range(view.shape[0]):
                counts = read_row(self, view[k]) + N_HEAD
                for d in range(self.n_features):
                    if counts[d] > N_TALLIED:
                        self.large[n_large] = counts[d]
                        self.large_class[n_large] = self.classes[d]
                        n_large += 1


@cython.final
cdef class ParametricMultinomial(ParametricModel):
    """Rows of counts under drawn probabilities of the columns, theta ~ Dirichlet(a_d + c_d).

    Parameters: log theta_d (D). Rows are CSR; columns are in any order, and repeated ones add up.
    """
    cdef Py_ssize_t n_features
    cdef const Py_ssize_t* indptr
    cdef const int* indices
    cdef const double* counts
    cdef const double* pseudo_counts
    cdef double[::1] table      # (n_features * SKDPM_LANES,)
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
        self.table = np.empty(n_features * SKDPM_LANES)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        for d in range(self.n_features):
            params[d] = self.pseudo_counts[d] + power * stats[N_HEAD + d]
        draw_log_dirichlet(rng, self.n_features, params)

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        tile_entries(
            params, self.n_params, which.at, which.n, self.n_features, items.at, items.n,
            self.indptr, 0, self.indices, self.counts, &self.table[0], out, TILE
        )

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        cdef double* counts = stats + N_HEAD
        cdef double total = 0.0
        stats[0] += items.n
        for i in range(items.n):
            for m in range(self.indptr[items.at[i]], self.indptr[items.at[i] + 1]):
                counts[self.indices[m]] += self.counts[m]
                total += self.counts[m]
        stats[1] += total
