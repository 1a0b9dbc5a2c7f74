# SPDX-License-Identifier: BSD-3-Clause
"""Densities of rows under mixtures, tile by tile, without clusters far away (`_core/_culling`).

For a row, let t_k be the log weight of cluster k plus the log density under it. The density of the
row is the sum of exp(t_k), in the order of the clusters, over those k whose t_k is not below

    max_j t_j - log(2^60 K).

The terms left out are less than 2^-60 of the sum. This rule depends on the row alone. A cluster
whose upper bound is below the limits of all rows of a tile need not be evaluated there, and no bit
of the result depends on the tile of a row or on the other rows. The largest t_j is not known in
advance; the t_j of any one cluster is a lower bound of it, and the cluster with the largest bound
gives a close one. The most likely cluster is found in the same way, with max_j t_j as the limit.
"""
from libc.math cimport INFINITY, log

import numpy as np

from skdpm._core._culling cimport Backoff, bounds_pay, part_near, skips_bounds
from skdpm.mixture.state._tiles cimport RowTiles
from skdpm.mixture.likelihoods.contract._base cimport STRIP, ClusterModel, as_indices

cdef enum:
    # A cluster with statistics wider than WIDE, which fill much of a cache, is evaluated for
    # several strips of rows in turn: at most MOST_STRIPS, with at most ENTRIES weights.
    WIDE = 2048
    MOST_STRIPS = 16
    ENTRIES = 262144


cdef extern from "tiles.h" nogil:
    double exp_negative(double x)
    void tile_sum_exp(
        const double* w, const Py_ssize_t* order, Py_ssize_t n_terms, Py_ssize_t n,
        const double* top, const double* limit, double* total
    )


# Logarithm of a share of the probability of a row that its entropy ignores.
cdef double NEGLIGIBLE = -36.0

# Fewest rows and clusters for tiles: making them takes as long as some evaluations of each row.
FEWEST_TILED = 128
FEWEST_CULLED = 48


def mixture_rows(likelihood, data, model, n_clusters):
    """Make the `MixtureRows` of encoded data and a model bound to them, in tiles if that is likely
    to pay for mixtures of `n_clusters` clusters in all."""
    points = None
    if model.n_samples > FEWEST_TILED and n_clusters > FEWEST_CULLED:
        points = likelihood.box_points(data)
        if points is not None and np.isnan(points).any():
            points = None
    return MixtureRows(model, None if points is None else RowTiles(points))


cdef class MixtureRows:
    """The rows of a kernel, whose clusters are in the slots 0, 1, ..., to be evaluated under
    mixtures of these. Without tiles, of up to STRIP rows, every cluster is evaluated for each."""
    cdef readonly ClusterModel model
    cdef RowTiles tiles
    cdef readonly Py_ssize_t n_evaluated    # evaluations of a row under a cluster so far
    cdef readonly Py_ssize_t n_bounded      # tiles with bounds so far
    cdef Py_ssize_t n_rows, tile_size, n_tiles, n_clusters
    cdef const double[::1] log_weights      # (n_clusters,)
    cdef Py_ssize_t room                    # maximum number of clusters in memory
    cdef Py_ssize_t[::1] order              # (n_rows,): the rows, tile after tile
    cdef Py_ssize_t[::1] slots              # (room,): cluster of each line of log_w
    cdef Py_ssize_t[::1] kept               # (room,): the same clusters in ascending order
    cdef Py_ssize_t[::1] lines              # (room,): line of each of these
    cdef double[::1] bounds                 # (room,)
    cdef double[::1] log_w                  # (n_clusters, rows of the tile)
    cdef Backoff backoff                    # tiles that go without bounds
    cdef double cutoff                      # terms this far below the largest one are left out
    cdef Py_ssize_t first, n                # the tile: place of its first row in the order; rows
    cdef double top[STRIP * MOST_STRIPS]    # for each row of the tile, as the next two
    cdef double limit[STRIP * MOST_STRIPS]
    cdef double total[STRIP * MOST_STRIPS]

    def __init__(self, ClusterModel model, RowTiles tiles=None):
        self.model = model
        self.tiles = tiles
        self.n_rows = model.n_samples
        if tiles is not None and (tiles.n_rows != self.n_rows or tiles.tile_size > STRIP):
            raise ValueError("tiles are of other rows, or too large")
        self.order = np.arange(self.n_rows) if tiles is None else tiles.order

    cdef int take(self, log_weights) except -1:
        """Set the weights of the first clusters."""
        self.log_weights = np.ascontiguousarray(log_weights, dtype=np.float64)
        self.n_clusters = self.log_weights.shape[0]
        if not 0 < self.n_clusters <= self.model.n_slots:
            raise ValueError(f"{self.n_clusters} weights for {self.model.n_slots} clusters")
        if self.n_clusters > self.room:
            self.room = self.n_clusters
            self.slots, self.kept, self.lines = np.empty((3, self.room), dtype=np.intp)
            self.bounds = np.empty(self.room)
        if self.tiles is not None:
            self.tile_size = self.tiles.tile_size
            self.n_tiles = self.tiles.n_tiles
        else:
            self.tile_size = STRIP
            if self.model.width >= WIDE:
                self.tile_size *= max(1, min(MOST_STRIPS, ENTRIES // (STRIP * self.n_clusters)))
            self.n_tiles = (self.n_rows + self.tile_size - 1) // self.tile_size
        self.log_w = np.empty(self.n_clusters * self.tile_size)
        self.cutoff = log(2.0) * 60.0 + log(<double>self.n_clusters)
        self.model.settle()
        self.backoff.pause = self.backoff.last = 0

    cdef inline Py_ssize_t start(self, Py_ssize_t t) noexcept nogil:
        """The place of a tile in the order; for the tile after the last, the number of rows."""
        if self.tiles is not None:
            return self.tiles.starts[t]
        return min(t * self.tile_size, self.n_rows)

    cdef void evaluate(
        self, Py_ssize_t line, Py_ssize_t n_lines, const Py_ssize_t* items, Py_ssize_t n
    ) noexcept nogil:
        """Fill lines of log_w, for the clusters in the same places of `slots`."""
        cdef double* out = &self.log_w[line * n]
        cdef const Py_ssize_t* slots = &self.slots[line]
        self.n_evaluated += n * n_lines
        if self.model.factorizes and n <= STRIP:
            self.model.log_predictive_tile(as_indices(slots, n_lines), as_indices(items, n), out)
        elif self.model.factorizes:
            for k in range(n_lines):
                for i in range((n + STRIP - 1) // STRIP):
                    m = i * STRIP
                    self.model.log_predictive_tile(
                        as_indices(&slots[k], 1),
                        as_indices(items + m, min(<Py_ssize_t>STRIP, n - m)), out + k * n + m
                    )
        else:
            lines = as_indices(slots, n_lines)
            for i in range(n):
                self.model.log_predictive_many(lines, items[i], &self.bounds[0])
                for k in range(n_lines):
                    out[k * n + i] = self.bounds[k]
        if self.model.constants != NULL:
            for i in range(n):
                for k in range(n_lines):
                    out[k * n + i] += self.model.constants[items[i]]
        for k in range(n_lines):
            log_weight = self.log_weights[slots[k]]
            for i in range(n):
                out[k * n + i] += log_weight

    cdef Py_ssize_t weigh(self, Py_ssize_t t, double cutoff) noexcept nogil:
        """Evaluate the clusters that may have a t_k within `cutoff` of the largest of a row of the
        tile; `kept` and `lines` list them. Sets `first`, `n` and `top`. Returns their number."""
        cdef Py_ssize_t best = 0
        cdef Py_ssize_t n_kept = 0
        cdef Py_ssize_t n_slots = 0
        cdef Py_ssize_t n_clusters = self.n_clusters
        cdef Py_ssize_t first = self.start(t)
        cdef Py_ssize_t n = self.start(t + 1) - first
        cdef const Py_ssize_t* items = &self.order[first]
        self.first = first
        self.n = n
        if self.tiles is None or skips_bounds(&self.backoff):
            for k in range(n_clusters):
                self.slots[k] = self.kept[k] = self.lines[k] = k
            self.evaluate(0, n_clusters, items, n)
            n_kept = n_clusters
        else:
            self.n_bounded += 1
            for k in range(n_clusters):
                self.kept[k] = k
            self.model.log_predictive_bound_many(
                as_indices(&self.kept[0], n_clusters), &self.tiles.boxes[t, 0, 0], &self.bounds[0]
            )
            for k in range(n_clusters):
                self.bounds[k] += self.log_weights[k]
                if self.bounds[k] > self.bounds[best]:
                    best = k
            self.slots[0] = best
            self.evaluate(0, 1, items, n)
            least = self.log_w[0]
            for i in range(1, n):
                least = min(least, self.log_w[i])
            least -= cutoff
            n_kept = part_near(&self.bounds[0], n_clusters, least, &self.kept[0])
            n_slots = 1
            for k in range(n_kept):
                self.lines[k] = 0       # of `best`, whose bound is above its rows' values
                if self.kept[k] != best:
                    self.slots[n_slots] = self.kept[k]
                    self.lines[k] = n_slots
                    n_slots += 1
            if n_slots > 1:
                self.evaluate(1, n_slots - 1, items, n)
            bounds_pay(&self.backoff, n_kept, n_clusters)
        for i in range(n):
            self.top[i] = -INFINITY
        for k in range(n_kept):
            line = &self.log_w[k * n]
            for i in range(n):
                self.top[i] = line[i] if line[i] > self.top[i] else self.top[i]
        return n_kept

    cdef Py_ssize_t add_up(self, Py_ssize_t t) noexcept nogil:
        """`weigh`, then set `total` to the sums of exp(t_k - top)."""
        cdef Py_ssize_t n_kept = self.weigh(t, self.cutoff)
        for i in range(self.n):
            self.limit[i] = self.top[i] - self.cutoff
            self.total[i] = 0.0
        tile_sum_exp(
            &self.log_w[0], &self.lines[0], n_kept, self.n, self.top, self.limit, self.total
        )
        for i in range(self.n):
            if self.top[i] == INFINITY or self.top[i] == -INFINITY:
                self.total[i] = 1.0
        return n_kept

    cdef void join(self, double[::1] tops, double[::1] totals) noexcept nogil:
        """Add the sums of `add_up` to exp(tops) * totals."""
        for i in range(self.n):
            item = self.order[self.first + i]
            top = self.top[i] + self.model.log_apart_of(item)
            gap = top - tops[item]
            if gap > 0.0:
                totals[item] = totals[item] * exp_negative(-gap) + self.total[i]
                tops[item] = top
            elif top == tops[item]:     # also where both are infinite
                totals[item] += self.total[i]
            else:
                totals[item] += self.total[i] * exp_negative(gap)

    def add_log_densities(self, log_weights, double[::1] tops, double[::1] totals):
        """Add the density of each row under a mixture of the clusters to exp(tops) * totals, which
        start with minus infinity and 0."""
        self.take(log_weights)
        if tops.shape[0] != self.n_rows or totals.shape[0] != self.n_rows:
            raise ValueError("tops and totals need an entry for each row")
        with nogil:
            for t in range(self.n_tiles):
                self.add_up(t)
                self.join(tops, totals)

    def most_probable(self, log_weights):
        """Cluster with the largest weight times density for each row, the first of ties: intp."""
        self.take(log_weights)
        cdef Py_ssize_t[::1] labels = np.zeros(self.n_rows, dtype=np.intp)
        with nogil:
            for t in range(self.n_tiles):
                n_kept = self.weigh(t, 0.0)
                for k in range(n_kept - 1, -1, -1):
                    line = &self.log_w[self.lines[k] * self.n]
                    for i in range(self.n):
                        if line[i] == self.top[i]:
                            labels[self.order[self.first + i]] = self.kept[k]
        return np.asarray(labels)

    def label_entropy(self, log_weights, const unsigned char[::1] counts):
        """Sum of the entropies of the clusters of the rows that count, in nats."""
        cdef double entropy = 0.0
        self.take(log_weights)
        with nogil:
            for t in range(self.n_tiles):
                n_kept = self.add_up(t)
                # sum p (log total - x), with p = exp(x) / total
                for i in range(self.n):
                    if counts[self.order[self.first + i]]:
                        entropy += log(self.total[i])
                for k in range(n_kept):
                    line = &self.log_w[self.lines[k] * self.n]
                    for i in range(self.n):
                        x = line[i] - self.top[i]
                        if x > NEGLIGIBLE and counts[self.order[self.first + i]]:
                            entropy -= x * exp_negative(x) / self.total[i]
        return entropy

    def fill_log_probabilities(
        self, log_weights, double[:, ::1] out, double[::1] tops=None, double[::1] totals=None
    ):
        """Log probability of each cluster given each row, (n_rows, n_clusters); evaluates all
        clusters. Densities are added to `tops` and `totals`, if given, as by `add_log_densities`.
        """
        self.take(log_weights)
        if out.shape[0] != self.n_rows or out.shape[1] != self.n_clusters:
            raise ValueError("out must have shape (n_rows, n_clusters)")
        with nogil:
            for t in range(self.n_tiles):
                self.backoff.pause = 1
                self.add_up(t)
                if tops is not None:
                    self.join(tops, totals)
                for i in range(self.n):
                    self.total[i] = log(self.total[i])
                    for k in range(self.n_clusters):
                        # In this order: the total would be lost in the large top of a far row.
                        out[self.order[self.first + i], k] = (
                            self.log_w[k * self.n + i] - self.top[i] - self.total[i]
                        )
