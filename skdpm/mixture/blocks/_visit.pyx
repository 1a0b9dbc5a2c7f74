# SPDX-License-Identifier: BSD-3-Clause
"""One visit to a block of rows: draw the labels, collect the statistics.

Given weights and parameters the labels of rows are independent. A visit is therefore a pure
function of the rows, of a few arrays and of a random stream, and what it returns is small: the
statistics of the clusters within the block. Adding these up over blocks, wherever they were
computed, is all that an iteration needs.

A row's *code* is 2 k + s: cluster k, and s = 0 or 1 for the left or right sub-cluster of Chang &
Fisher (2013). Without sub-clusters s is 0.
"""
from libc.stdlib cimport free
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bit_generator_pointer, uniform
from skdpm.mixture.likelihoods._parametric cimport TILE, ParametricModel


cdef extern from "tiles.h" nogil:
    bint tile_categorical(
        double* w, Py_ssize_t n_terms, Py_ssize_t ld, Py_ssize_t n, double* u, double* top,
        double* total, Py_ssize_t* out
    )


cdef class BlockVisit:
    """Rows of one block with the scratch memory of a visit.

    Parameters
    ----------
    model : ParametricModel
        Bound to the rows.
    n_clusters : int
    """
    cdef ParametricModel model
    cdef Py_ssize_t n_clusters
    cdef double* log_w          # (max(n_clusters, 2), TILE)
    cdef double* u              # (TILE,) each
    cdef double* top
    cdef double* total
    cdef Py_ssize_t* clusters   # of the items of the tile, by position in the tile
    cdef Py_ssize_t* sides
    cdef Py_ssize_t* draws
    cdef Py_ssize_t* items      # the tile's items, sorted by some key
    cdef Py_ssize_t* starts     # (n_clusters + 1,): where each key's items start in `items`
    cdef Py_ssize_t* chosen     # (TILE,)

    def __cinit__(self, ParametricModel model, Py_ssize_t n_clusters):
        self.model = model
        self.n_clusters = n_clusters
        self.log_w = <double*>resized(NULL, max(n_clusters, 2) * TILE, sizeof(double))
        self.u = <double*>resized(NULL, 3 * TILE, sizeof(double))
        self.top = self.u + TILE
        self.total = self.top + TILE
        self.clusters = <Py_ssize_t*>resized(NULL, 5 * TILE, sizeof(Py_ssize_t))
        self.sides = self.clusters + TILE
        self.draws = self.sides + TILE
        self.items = self.draws + TILE
        self.chosen = self.items + TILE
        self.starts = <Py_ssize_t*>resized(NULL, n_clusters + 2, sizeof(Py_ssize_t))

    def __dealloc__(self):
        free(self.log_w)
        free(self.u)
        free(self.clusters)
        free(self.starts)

    cdef bint draw(
        self, const Py_ssize_t* items, Py_ssize_t n_items, const double* params,
        const double* log_weights, const Py_ssize_t* which, Py_ssize_t n_which, bitgen_t* rng
    ) noexcept nogil:
        """draws[i] = j with probability proportional to weight times density of `which[j]`."""
        cdef Py_ssize_t i, j
        cdef double* row
        self.model.log_density_many(items, n_items, params, which, n_which, self.log_w)
        for j in range(n_which):
            row = self.log_w + j * TILE
            for i in range(n_items):
                row[i] += log_weights[which[j]]
        for i in range(n_items):
            self.u[i] = uniform(rng)
        return tile_categorical(
            self.log_w, n_which, TILE, n_items, self.u, self.top, self.total, self.draws
        )

    cdef void sort(
        self, const Py_ssize_t* keys, Py_ssize_t n_keys, Py_ssize_t first, Py_ssize_t n_items
    ) noexcept nogil:
        """The items first, ..., first + n_items - 1 by their keys, in their order within each."""
        cdef Py_ssize_t i, j
        cdef Py_ssize_t* starts = self.starts
        for j in range(n_keys + 1):
            starts[j] = 0
        for i in range(n_items):
            SKDPM_CHECK(0 <= keys[i] < n_keys, "sort: a key out of range")
            starts[keys[i] + 1] += 1
        for j in range(n_keys):
            starts[j + 1] += starts[j]
        for i in range(n_items):
            self.items[starts[keys[i]]] = first + i
            starts[keys[i]] += 1
        for j in range(n_keys, 0, -1):
            starts[j] = starts[j - 1]
        starts[0] = 0

    cdef bint draw_labels(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        const double* log_weights, const Py_ssize_t* groups, const Py_ssize_t* members,
        const Py_ssize_t* group_starts, Py_ssize_t n_groups, const int* codes, bitgen_t* rng
    ) noexcept nogil:
        """A cluster for each item of the tile, among those of its cluster's group."""
        cdef Py_ssize_t g, i, n_which
        cdef const Py_ssize_t* which
        if n_groups == 1:
            for i in range(n_items):
                self.items[i] = first + i
            if not self.draw(
                self.items, n_items, params, log_weights, members, self.n_clusters, rng
            ):
                return False
            for i in range(n_items):
                self.clusters[i] = self.draws[i]
            return True
        for i in range(n_items):
            self.sides[i] = groups[codes[first + i] // 2]
        self.sort(self.sides, n_groups, first, n_items)
        for g in range(n_groups):
            which = members + group_starts[g]
            n_which = group_starts[g + 1] - group_starts[g]
            if self.starts[g + 1] == self.starts[g]:
                continue
            if not self.draw(
                self.items + self.starts[g], self.starts[g + 1] - self.starts[g], params,
                log_weights, which, n_which, rng
            ):
                return False
            for i in range(self.starts[g + 1] - self.starts[g]):
                self.clusters[self.items[self.starts[g] + i] - first] = which[self.draws[i]]
        return True

    cdef bint draw_sides(
        self, Py_ssize_t first, const double* params, const double* log_weights, bitgen_t* rng
    ) noexcept nogil:
        """A sub-cluster of its own cluster for each item of the tile, sorted by clusters."""
        cdef Py_ssize_t i, k
        cdef Py_ssize_t which[2]
        for k in range(self.n_clusters):
            which[0] = 2 * k
            which[1] = 2 * k + 1
            if self.starts[k + 1] == self.starts[k]:
                continue
            if not self.draw(
                self.items + self.starts[k], self.starts[k + 1] - self.starts[k], params,
                log_weights, which, 2, rng
            ):
                return False
            for i in range(self.starts[k + 1] - self.starts[k]):
                self.sides[self.items[self.starts[k] + i] - first] = self.draws[i]
        return True

    cdef void collect(
        self, Py_ssize_t k, Py_ssize_t first, const Py_ssize_t* keys, Py_ssize_t n_keys,
        double* stats, Py_ssize_t* firsts       # INOUT (n_keys, n_stats), (n_keys,)
    ) noexcept nogil:
        """Add the items of cluster k to the statistics of their keys."""
        cdef Py_ssize_t i, m, s
        for s in range(n_keys):
            m = 0
            for i in range(self.starts[k], self.starts[k + 1]):
                if keys[self.items[i] - first] == s:
                    self.chosen[m] = self.items[i]
                    m += 1
            if m > 0:
                self.model.accumulate(stats + s * self.model.n_stats, self.chosen, m)
                if firsts[s] < 0:
                    firsts[s] = self.chosen[0]

    cdef void draw_halves(
        self, Py_ssize_t k, Py_ssize_t first, double share, bitgen_t* rng
    ) noexcept nogil:
        """A half for each item of cluster k, independent of the rows: the first with probability
        `share`. Keys are 2 * half + sub-cluster."""
        cdef Py_ssize_t i, m
        for i in range(self.starts[k], self.starts[k + 1]):
            m = self.items[i] - first
            self.draws[m] = 2 * (uniform(rng) >= share) + self.sides[m]


cdef const Py_ssize_t[::1] as_indices(values):
    return np.ascontiguousarray(values, dtype=np.intp)


def visit(ParametricModel model, Py_ssize_t n_clusters, const int[::1] codes, sweep, halves,
          bit_generators, held=None):
    """Draw new labels of a block's rows and collect the statistics of clusters.

    Parameters
    ----------
    model : ParametricModel
        Bound to the rows.
    n_clusters : int
    codes : ndarray of shape (n_rows,), int32, or None
        The rows' codes so far. None: not known, and not needed.
    sweep : dict or None
        `params` (n_clusters, n_params) and `log_weights` (n_clusters,) of the clusters, `groups`
        (n_clusters,), numbered from 0, or None for a single one; `sub_params` and
        `sub_log_weights` of the sub-clusters, (2 n_clusters, ...), or None for none. The new
        label of a row is among the clusters of its group. Without a sweep the codes stay.
    halves : list of (int, float)
        Random splits to look at: cluster, and the probability of its first half.
    bit_generators : list of numpy bit generators
        The sweep's, then one for each random split.
    held : tuple of two ndarrays, or None
        Rows, ascending, that keep a code in a sweep, and these. The other rows draw what they
        would have drawn without them.

    Returns
    -------
    codes : ndarray of shape (n_rows,), int32
    stats : ndarray of shape (2 n_clusters + 4 len(halves), n_stats)
        Of each code; then, for each random split, of the sub-clusters of the first half and of
        those of the second.
    firsts : ndarray of shape (2 n_clusters + 4 len(halves),), intp
        The first row of each, -1 where there is none.

    Raises
    ------
    FloatingPointError
        Where no cluster has positive weight for a row.
    """
    cdef Py_ssize_t i, j, k, first, n_items, tile
    cdef Py_ssize_t n_halves = len(halves)
    cdef Py_ssize_t n_groups = 1
    cdef bint sweeping = sweep is not None
    cdef bint good = True
    cdef const double* params = NULL
    cdef const double* log_weights = NULL
    cdef const double* sub_params = NULL
    cdef const double* sub_log_weights = NULL
    cdef const double[:, ::1] params_view, sub_params_view
    cdef const double[::1] weights_view, sub_weights_view
    cdef const Py_ssize_t[::1] groups, members, group_starts
    cdef Py_ssize_t h = 0
    cdef const int* old = NULL
    cdef const Py_ssize_t[::1] held_rows = as_indices([] if held is None else held[0])
    cdef const Py_ssize_t[::1] held_codes = as_indices([] if held is None else held[1])
    cdef Py_ssize_t n_held = held_rows.shape[0]
    cdef Py_ssize_t h_first
    cdef bitgen_t* rng = NULL
    cdef bitgen_t* half_rngs[64]
    cdef Py_ssize_t half_clusters[64]
    cdef double half_shares[64]
    cdef BlockVisit block = BlockVisit(model, n_clusters)
    if n_halves > 64:
        raise ValueError(f"{n_halves} random splits in one visit; at most 64 are possible")
    if sweeping:
        rng = bit_generator_pointer(bit_generators[0])
        params_view = sweep["params"]
        weights_view = sweep["log_weights"]
        params = &params_view[0, 0]
        log_weights = &weights_view[0]
        if sweep["sub_params"] is not None:
            sub_params_view = sweep["sub_params"]
            sub_weights_view = sweep["sub_log_weights"]
            sub_params = &sub_params_view[0, 0]
            sub_log_weights = &sub_weights_view[0]
        labels = np.zeros(n_clusters, np.intp) if sweep["groups"] is None else sweep["groups"]
        groups = as_indices(labels)
        n_groups = max(groups) + 1
        members = as_indices(np.argsort(labels, kind="stable"))
        group_starts = as_indices(np.cumsum(np.bincount(labels + 1)))
    for j in range(n_halves):
        half_clusters[j], half_shares[j] = halves[j]
        half_rngs[j] = bit_generator_pointer(bit_generators[1 + j])
    if codes is None:
        if not sweeping or n_groups > 1:
            raise ValueError("labels are needed for a visit without a sweep, or one in groups")
    elif codes.shape[0] != model.n_samples:
        raise ValueError(f"{codes.shape[0]} codes for {model.n_samples} rows")
    elif codes.shape[0] > 0:
        old = &codes[0]
    new_codes = np.empty(model.n_samples, dtype=np.int32)
    stats = np.zeros((2 * n_clusters + 4 * n_halves, model.n_stats))
    firsts = np.full(2 * n_clusters + 4 * n_halves, -1, dtype=np.intp)
    cdef int[::1] new_view = new_codes
    cdef double[:, ::1] stats_view = stats
    cdef Py_ssize_t[::1] firsts_view = firsts
    with nogil:
        for tile in range((model.n_samples + TILE - 1) // TILE):
            first = tile * TILE
            n_items = min(<Py_ssize_t>TILE, model.n_samples - first)
            if sweeping:
                good = block.draw_labels(
                    first, n_items, params, log_weights, &groups[0], &members[0],
                    &group_starts[0], n_groups, old, rng
                )
                if not good:
                    break
            else:
                for i in range(n_items):
                    block.clusters[i] = old[first + i] // 2
            h_first = h
            while h < n_held and held_rows[h] < first + n_items:
                block.clusters[held_rows[h] - first] = held_codes[h] // 2
                h += 1
            block.sort(block.clusters, n_clusters, first, n_items)
            if not sweeping:
                for i in range(n_items):
                    block.sides[i] = old[first + i] % 2
            elif sub_params != NULL:
                good = block.draw_sides(first, sub_params, sub_log_weights, rng)
                if not good:
                    break
            else:
                for i in range(n_items):
                    block.sides[i] = 0
            for i in range(h_first, h):
                block.sides[held_rows[i] - first] = held_codes[i] % 2
            for i in range(n_items):
                new_view[first + i] = <int>(2 * block.clusters[i] + block.sides[i])
            for k in range(n_clusters):
                block.collect(
                    k, first, block.sides, 2, &stats_view[2 * k, 0], &firsts_view[2 * k]
                )
            for j in range(n_halves):
                k = half_clusters[j]
                block.draw_halves(k, first, half_shares[j], half_rngs[j])
                block.collect(
                    k, first, block.draws, 4, &stats_view[2 * n_clusters + 4 * j, 0],
                    &firsts_view[2 * n_clusters + 4 * j]
                )
    if not good:
        raise FloatingPointError("a row has no cluster of positive weight")
    return new_codes, stats, firsts


def split_codes(int[::1] codes, Py_ssize_t cluster, Py_ssize_t new_cluster, double share,
                bit_generator):
    """Carry out a random split that `visit` looked at, in place, from the same stream.

    The first half stays in `cluster`, the second goes to `new_cluster`; sub-clusters stay.
    """
    cdef Py_ssize_t i
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    with nogil:
        for i in range(codes.shape[0]):
            if codes[i] // 2 == cluster:
                if uniform(rng) >= share:
                    codes[i] = <int>(2 * new_cluster + codes[i] % 2)
