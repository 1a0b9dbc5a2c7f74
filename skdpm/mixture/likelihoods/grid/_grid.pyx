# SPDX-License-Identifier: BSD-3-Clause
"""Clusters whose parameter is one of the points of a grid, for any likelihood.

    theta_d ~ sum_m w_dm delta(theta_m),  log p(x_i | theta) = sum_d l_idm where theta_d = theta_m,

in D independent blocks of M points. With S_dm the sum of l_idm over the items of a cluster and
Z_d = sum_m w_dm exp(S_dm),

    p(cluster)       = prod_d Z_d,
    p(x_i | cluster) = prod_d sum_m p_dm exp(l_idm),   p_dm = w_dm exp(S_dm) / Z_d.

The sums over m are dot products of p_dm and exp(l_idm - max_m l_idm), both of which are 0 below
TINY. A dot product so small that the lost terms might matter is computed from logarithms instead.
Most items rejoin the cluster that they have left, so removals are deferred: while the item is in
the row, p(x_i | the others) = prod_d 1 / sum_m p_dm exp(-l_idm). If that would lose terms, the
item is removed, and the row with the item is kept for its return.

An entry may be impossible, l_idm = -inf. It counts as 1e10 below the best entry of its item and
block, which no finite data outweigh, so that every cluster has a density. In a sum, entries of
that size would leave no digits to the others, so they are counted instead.

The sum over d of max_m l_idm is the item's `log_constants`.

Given the rows of a cluster, theta_d is point m with probability p_dm: `ParametricGrid` draws it.

A hyperparameter may be learned. Its law has L layers: log likelihoods for each of L values, and a
value counts as the nearest of them in the logarithm. Rows have the sums of all layers. Maxima are
over layers too, so that they do not depend on the value.

Row: n, number of impossible entries, S_dm of the others relative to the maxima (L, D, M), numbers
of impossible entries (D, M; 0 if L > 1) | log Z_d (D), and for each block the numbers of `grid.h`:
chunks of points with a weight, the largest log w + S of each chunk, p_dm, and zeros at the end.
"""
from libc.math cimport NAN, fabs, log
from libc.string cimport memcpy

import numpy as np

from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t, categorical_log
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, row
from skdpm.mixture.likelihoods.contract._parametric cimport TILE, ParametricModel


cdef extern from "grid.h" nogil:
    ctypedef struct Layout "skdpm_grid":
        Py_ssize_t n_blocks
        Py_ssize_t n_points
        Py_ssize_t n_chunks
        Py_ssize_t n_layers
        Py_ssize_t layer
        const double* log_weights
        double* log_totals
    const double _IMPOSSIBLE "SKDPM_IMPOSSIBLE"
    const Py_ssize_t CHUNK_POINTS "SKDPM_CHUNK"
    const Py_ssize_t N_HEAD "SKDPM_GRID_HEAD"
    Py_ssize_t grid_n_stats "skdpm_grid_n_stats"(const Layout* grid) noexcept
    Py_ssize_t grid_block_width "skdpm_grid_block_width"(const Layout* grid) noexcept
    void grid_compute "skdpm_grid_compute"(const Layout* grid, double* stats) noexcept
    double grid_log_norm "skdpm_grid_log_norm"(const Layout* grid, const double* stats) noexcept
    void grid_shift "skdpm_grid_shift"(
        double* sums, const double* x, Py_ssize_t n, double by
    ) noexcept
    void grid_shift_possible "skdpm_grid_shift_possible"(
        double* sums, double* counts, const double* x, Py_ssize_t n, double by
    ) noexcept
    bint grid_may_stay "skdpm_grid_may_stay"(
        const Layout* grid, const double* stats, const double* lowest
    ) noexcept
    double grid_predict_without "skdpm_grid_predict_without"(
        const Layout* grid, const double* stats, const double* relative
    ) noexcept
    void grid_predict "skdpm_grid_predict"(
        const Layout* grid, const double* arena, Py_ssize_t stride, const Py_ssize_t* slots,
        Py_ssize_t n_slots, const double* item, const double* highest, const double* relative,
        double* out
    ) noexcept


# exp(-690). Smaller terms are 0, because arithmetic with denormal numbers is slow.
TINY = 1e-300

CHUNK = CHUNK_POINTS        # points in a chunk
IMPOSSIBLE = _IMPOSSIBLE    # in place of -inf, relative to the best

cdef Py_ssize_t NONE = -1


cdef class GridModel(ClusterModel):
    """Kernel of likelihoods on a grid.

    `data` has

    - `log_likelihoods`: (n_samples, n_layers * n_blocks, n_points). Relative to the largest of
      each item and block; IMPOSSIBLE for points that are, which only a single layer allows.
    - `highest`, `lowest`: (..., n_chunks). Largest and smallest of each chunk of CHUNK points.
    - `likelihoods`: (..., n_chunks * CHUNK). exp of these; 0 below TINY, 1 after the last point.
    - `log_constants`, `impossible`: (n_samples,). Sums over blocks of the subtracted maxima, and
      numbers of IMPOSSIBLE entries.

    `tables` has `n_max`, `log_weights`, (n_blocks, n_points), log w up to a constant for each
    block, and `layers`, (n_layers,), increasing values of the hyperparameter, if there is one, of
    which `name` and `value` are given.
    """
    cdef Layout layout
    cdef Py_ssize_t n_entries       # D M
    cdef Py_ssize_t n_all           # L D M
    cdef const double[::1] layers   # (L,)
    cdef const double[:, :, ::1] log_likelihoods, highest, lowest, likelihoods
    cdef const double[::1] impossible
    cdef Py_ssize_t left_slot       # slot of the item that left last, or NONE
    cdef Py_ssize_t left_item
    cdef bint removed               # whether it was removed from the row, or that is deferred
    cdef double[::1] kept           # the row before the removal
    cdef const double[:, ::1] log_weights
    cdef double[::1] log_totals     # see `Layout`

    def __init__(self, data, tables, name=None, value=None):
        self.log_weights = tables["log_weights"]
        self.log_likelihoods = data["log_likelihoods"]
        self.highest, self.lowest = data["highest"], data["lowest"]
        self.likelihoods, self.impossible = data["likelihoods"], data["impossible"]
        self.n_samples = self.log_likelihoods.shape[0]
        self.layout.n_blocks = self.log_weights.shape[0]
        self.layout.n_layers = 1
        self.layout.n_points = self.log_likelihoods.shape[2]
        self.layout.n_chunks = self.highest.shape[2]
        self.n_entries = self.layout.n_blocks * self.layout.n_points
        if name is not None:
            self.layers = tables["layers"]
            self.layout.n_layers = self.layers.shape[0]
            self.declare_hyperparameters((name,), (value,))
            self.layout.layer = self.nearest(self.hyper)
        self.n_all = self.layout.n_layers * self.n_entries
        self.n_max = tables["n_max"]
        self.layout.log_weights = &self.log_weights[0, 0]
        self.drifts = True
        self.keep_log_constants(data["log_constants"])
        self.left_slot = NONE
        self.allocate(
            grid_n_stats(&self.layout),
            grid_n_stats(&self.layout)
            + self.layout.n_blocks * (1 + grid_block_width(&self.layout)),
        )
        self.log_totals = np.zeros(self.layout.n_blocks)
        self.layout.log_totals = &self.log_totals[0]
        self.kept = np.empty(self.width)
        grid_compute(&self.layout, self.empty)
        memcpy(
            self.layout.log_totals, self.empty + self.n_stats,
            self.layout.n_blocks * sizeof(double),
        )
        grid_compute(&self.layout, self.empty)

    cdef Py_ssize_t first_block(self) noexcept nogil:
        """Number of the first block of an item in the current layer."""
        return self.layout.layer * self.layout.n_blocks

    cdef Py_ssize_t nearest(self, const double* hyper) noexcept nogil:
        """The layer of a value of the hyperparameter."""
        cdef Py_ssize_t best = 0
        for l in range(1, self.layout.n_layers):
            if (fabs(log(hyper[0] / self.layers[l]))
                    < fabs(log(hyper[0] / self.layers[best]))):
                best = l
        return best

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Layout other = self.layout
        if self.n_hyper > 0:
            other.layer = self.nearest(hyper)
        return grid_log_norm(&other, row(self, slot))

    cdef int retabulate(self) except -1:
        self.layout.layer = self.nearest(self.hyper)
        grid_compute(&self.layout, self.empty)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        cdef double* stats = row(self, slot)
        cdef const double* x = &self.log_likelihoods[i, 0, 0]
        cdef double* sums = stats + N_HEAD
        stats[0] += by
        stats[1] += by * self.impossible[i]
        if self.impossible[i] == 0.0:
            grid_shift(sums, x, self.n_all, by)
        else:
            grid_shift_possible(sums, sums + self.n_entries, x, self.n_entries, by)
        grid_compute(&self.layout, stats)

    cdef void exchange(self, double* a, const double* b, Py_ssize_t i) noexcept nogil:
        """Copy the parts of a row that item i changes."""
        cdef Py_ssize_t n_stats = self.n_stats
        if self.impossible[i] == 0.0:
            n_stats -= self.n_entries
        memcpy(a, b, n_stats * sizeof(double))
        memcpy(a + self.n_stats, b + self.n_stats, (self.width - self.n_stats) * sizeof(double))

    cdef void settle(self) noexcept nogil:
        """Do the deferred removal, or forget the kept row."""
        cdef Py_ssize_t slot = self.left_slot
        self.left_slot = NONE
        if slot != NONE and not self.removed:
            self.change(slot, self.left_item, -1.0)

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        if slot == self.left_slot and i == self.left_item:
            self.left_slot = NONE
            if self.removed:
                self.exchange(row(self, slot), &self.kept[0], i)
            return
        self.settle()
        self.change(slot, i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        self.settle()
        self.left_slot = slot
        self.left_item = i
        self.removed = stats[0] == 1.0 or not grid_may_stay(
            &self.layout, stats, &self.lowest[i, self.first_block(), 0]
        )
        if not self.removed:
            return
        self.exchange(&self.kept[0], stats, i)
        if stats[0] == 1.0:
            memcpy(stats, self.empty, self.width * sizeof(double))
        else:
            self.change(slot, i, -1.0)

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        if slot == self.left_slot:
            self.left_slot = NONE
        ClusterModel.release(self, slot)

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        if slot == self.left_slot:
            self.left_slot = NONE
        ClusterModel.reset(self, slot)

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        self.settle()
        ClusterModel.merge(self, dst, src)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        grid_compute(&self.layout, row(self, slot))

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* log_norms = row(self, slot) + self.n_stats
        cdef double total = 0.0
        self.settle()
        for d in range(self.layout.n_blocks):
            total += log_norms[d]
        return total

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef Py_ssize_t first = self.first_block()
        cdef const double* item = &self.log_likelihoods[i, first, 0]
        cdef const double* highest = &self.highest[i, first, 0]
        cdef const double* likelihoods = &self.likelihoods[i, first, 0]
        if self.left_slot != NONE and self.left_item != i:
            self.settle()
        grid_predict(
            &self.layout, self.stats, self.stride, slots.at, slots.n, item, highest, likelihoods,
            out,
        )
        if self.left_slot != NONE and not self.removed:
            for k in range(slots.n):
                if slots.at[k] == self.left_slot:
                    out[k] = grid_predict_without(
                        &self.layout, row(self, slots.at[k]), likelihoods
                    )


cdef class ParametricGrid(ParametricModel):
    """Items at drawn points of a grid.

    Parameters: the number of the point of each block, (n_blocks,). `rows`, (n_samples, n_all + 2),
    are those of `Grid.condense`; `layer` is the one of n_layers that counts. `log_weights` are
    those of `GridModel`.
    """
    cdef Layout layout
    cdef Py_ssize_t n_entries, n_all
    cdef const double[:, ::1] rows, log_weights
    cdef double[::1] log_p      # (n_points,)

    def __init__(
        self, const double[:, ::1] rows, const double[:, ::1] log_weights, Py_ssize_t n_layers,
        Py_ssize_t layer
    ):
        self.rows, self.log_weights = rows, log_weights
        self.n_samples = rows.shape[0]
        self.layout.n_blocks, self.layout.n_points = log_weights.shape[0], log_weights.shape[1]
        self.layout.n_layers, self.layout.layer = n_layers, layer
        self.layout.log_weights = &self.log_weights[0, 0]
        self.n_entries = self.layout.n_blocks * self.layout.n_points
        self.n_all = n_layers * self.n_entries
        expect_shape("rows", rows, (self.n_samples, self.n_all + 2))
        self.n_stats = grid_n_stats(&self.layout)
        self.n_params = self.layout.n_blocks
        self.log_p = np.empty(self.layout.n_points)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef Py_ssize_t n_points = self.layout.n_points
        cdef const double* sums = stats + N_HEAD + self.layout.layer * self.n_entries
        cdef const double* counts = stats + N_HEAD + self.n_all
        for d in range(self.layout.n_blocks):
            for m in range(n_points):
                self.log_p[m] = self.log_weights[d, m] + power * (
                    sums[d * n_points + m] + _IMPOSSIBLE * counts[d * n_points + m]
                )
            m = categorical_log(rng, &self.log_p[0], n_points)
            params[d] = m if m >= 0 else NAN

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        cdef Py_ssize_t first = self.layout.layer * self.n_entries
        cdef const double* x
        cdef const double* points
        for i in range(items.n):
            x = &self.rows[items.at[i], first]
            for k in range(which.n):
                points = params + which.at[k] * self.n_params
                total = 0.0
                for d in range(self.layout.n_blocks):
                    total += x[d * self.layout.n_points + <Py_ssize_t>points[d]]
                out[k * TILE + i] = total

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        cdef double* sums = stats + N_HEAD
        for i in range(items.n):
            x = &self.rows[items.at[i], 0]
            stats[0] += 1.0
            stats[1] += x[self.n_all + 1]
            if x[self.n_all + 1] == 0.0:
                grid_shift(sums, x, self.n_all, 1.0)
            else:
                grid_shift_possible(sums, sums + self.n_entries, x, self.n_entries, 1.0)
