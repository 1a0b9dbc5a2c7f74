# SPDX-License-Identifier: BSD-3-Clause
"""A task on a block of rows: draw the codes, collect the statistics.

Given weights and parameters the labels of rows are independent. What is done with a block is
therefore a pure function of its rows, of a few arrays and of random streams, and what that returns
is small: the statistics of the clusters within the block. Adding these up over blocks, wherever
they were computed, is all that an iteration needs. `records` has the words used here.

Rows are taken a tile at a time. The *draw* phase of a tile fills `clusters` and `subs`, by the
position of the item in the tile, and sorts the items by clusters; the *collect* phase adds them to
the statistics. With K clusters, row 2 k + s of the statistics belongs to sub-cluster s of cluster
k, and row 2 K + 4 j + 2 t + s to sub-cluster s of side t of the j-th random split.
"""
from contextlib import ExitStack

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


cdef class BlockTask:
    """A task on the rows of one block, with the memory that it takes.

    Parameters
    ----------
    model : ParametricModel
        Bound to the rows.
    codes, task, bit_generators, held
        See `draw_and_collect`.
    """
    cdef ParametricModel model
    cdef Py_ssize_t n_clusters
    cdef const int* codes       # (n_rows,), those so far; NULL: not known
    # The sweep.
    cdef bint sweeping
    cdef const double* params           # (n_clusters, n_params)
    cdef const double* log_weights      # (n_clusters,)
    cdef const double* sub_params       # (2 n_clusters, n_params); NULL: no sub-clusters
    cdef const double* sub_log_weights  # (2 n_clusters,)
    cdef Py_ssize_t n_groups
    cdef const Py_ssize_t* groups       # (n_clusters,): the group of each
    cdef const Py_ssize_t* members      # (n_clusters,), by groups
    cdef const Py_ssize_t* group_starts     # (n_groups + 1,): where each group's members start
    cdef bitgen_t* rng
    # Rows held back, ascending, and their codes; those before `h` are behind the tile.
    cdef Py_ssize_t n_held
    cdef Py_ssize_t h
    cdef const Py_ssize_t* held_rows
    cdef const Py_ssize_t* held_codes
    # Random splits.
    cdef Py_ssize_t n_splits
    cdef const Py_ssize_t* split_clusters
    cdef const double* split_shares
    cdef bitgen_t** split_rngs
    # The result.
    cdef int* new_codes             # (n_rows,)
    cdef double* stats              # (2 n_clusters + 4 n_splits, n_stats)
    cdef Py_ssize_t* first_rows     # the same number, -1 where there is none
    cdef readonly tuple result      # the three as arrays
    cdef list arrays                # whatever is pointed to
    # Scratch memory.
    cdef double* log_w          # (max(n_clusters, 2), TILE)
    cdef double* u              # (TILE,) each
    cdef double* top
    cdef double* total
    cdef Py_ssize_t* clusters   # of the items of the tile, by position in the tile
    cdef Py_ssize_t* subs
    cdef Py_ssize_t* draws
    cdef Py_ssize_t* items      # the tile's items, sorted by some key
    cdef Py_ssize_t* starts     # (n_clusters + 1,): where each key's items start in `items`
    cdef Py_ssize_t* chosen     # (TILE,)

    def __cinit__(self, ParametricModel model, codes, task, list bit_generators, held):
        cdef Py_ssize_t j
        cdef Py_ssize_t n_clusters = task.n_clusters
        self.model = model
        self.n_clusters = n_clusters
        self.n_splits = len(task.splits)
        self.arrays = []
        self.log_w = <double*>resized(NULL, max(n_clusters, 2) * TILE, sizeof(double))
        self.u = <double*>resized(NULL, 3 * TILE, sizeof(double))
        self.top = self.u + TILE
        self.total = self.top + TILE
        self.clusters = <Py_ssize_t*>resized(NULL, 5 * TILE, sizeof(Py_ssize_t))
        self.subs = self.clusters + TILE
        self.draws = self.subs + TILE
        self.items = self.draws + TILE
        self.chosen = self.items + TILE
        self.starts = <Py_ssize_t*>resized(NULL, n_clusters + 2, sizeof(Py_ssize_t))
        self.split_rngs = <bitgen_t**>resized(NULL, self.n_splits, sizeof(bitgen_t*))
        for j in range(self.n_splits):
            self.split_rngs[j] = bit_generator_pointer(bit_generators[1 + j])
        self.split_clusters = self.indices([split.cluster for split in task.splits])
        self.split_shares = self.doubles([split.share for split in task.splits])
        if task.sweep is not None:
            self.rng = bit_generator_pointer(bit_generators[0])
            self.set_sweep(task.sweep)
        if held is not None:
            self.n_held = len(held.rows)
            self.held_rows = self.indices(held.rows)
            self.held_codes = self.indices(held.codes)
        self.set_codes(codes)
        n = 2 * n_clusters + 4 * self.n_splits
        cdef int[::1] new_codes = np.empty(max(model.n_samples, 1), dtype=np.int32)
        cdef double[:, ::1] stats = np.zeros((n, model.n_stats))
        cdef Py_ssize_t[::1] first_rows = np.full(n, -1, dtype=np.intp)
        self.new_codes = &new_codes[0]
        self.stats = &stats[0, 0]
        self.first_rows = &first_rows[0]
        self.result = (
            np.asarray(new_codes)[: model.n_samples], np.asarray(stats), np.asarray(first_rows)
        )

    def __dealloc__(self):
        free(self.log_w)
        free(self.u)
        free(self.clusters)
        free(self.starts)
        free(self.split_rngs)

    cdef const double* doubles(self, values) except? NULL:
        """Point to doubles, kept as long as this object; NULL where there are none."""
        cdef const double[::1] flat = np.ascontiguousarray(values, dtype=np.float64).ravel()
        self.arrays.append(flat)
        return &flat[0] if flat.shape[0] > 0 else NULL

    cdef const Py_ssize_t* indices(self, values) except? NULL:
        """Point to indices, kept as long as this object; NULL where there are none."""
        cdef const Py_ssize_t[::1] flat = np.ascontiguousarray(values, dtype=np.intp)
        self.arrays.append(flat)
        return &flat[0] if flat.shape[0] > 0 else NULL

    cdef int set_sweep(self, sweep) except -1:
        groups = sweep.groups
        if groups is None:
            groups = np.zeros(self.n_clusters, dtype=np.intp)
        self.sweeping = True
        self.params = self.doubles(sweep.params)
        self.log_weights = self.doubles(sweep.log_weights)
        if sweep.sub_params is not None:
            self.sub_params = self.doubles(sweep.sub_params)
            self.sub_log_weights = self.doubles(sweep.sub_log_weights)
        self.n_groups = max(groups) + 1
        self.groups = self.indices(groups)
        self.members = self.indices(np.argsort(groups, kind="stable"))
        self.group_starts = self.indices(np.cumsum(np.bincount(groups + 1)))
        return 0

    cdef int set_codes(self, codes) except -1:
        cdef const int[::1] view
        if codes is None:
            if not self.sweeping or self.n_groups > 1:
                raise ValueError("codes are needed for a task without a sweep, or one in groups")
            return 0
        if len(codes) != self.model.n_samples:
            raise ValueError(f"{len(codes)} codes for {self.model.n_samples} rows")
        if self.model.n_samples > 0:
            view = codes
            self.arrays.append(view)
            self.codes = &view[0]
        return 0

    # What both phases are made of.

    cdef bint choose(
        self, const Py_ssize_t* items, Py_ssize_t n_items, const double* params,
        const double* log_weights, const Py_ssize_t* which, Py_ssize_t n_which
    ) noexcept nogil:
        """Draw draws[i] = j with probability proportional to weight times density of `which[j]`.
        False where that is no distribution."""
        cdef Py_ssize_t i, j
        cdef double* row
        cdef bitgen_t* rng = self.rng
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
        """Sort the items first, ..., first + n_items - 1 by their keys, stably."""
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

    # The draw phase.

    cdef bint draw(self, Py_ssize_t first, Py_ssize_t n_items) noexcept nogil:
        """Give codes to the items of a tile, and sort them by clusters. False where the weights
        of an item are no distribution."""
        cdef Py_ssize_t i
        cdef Py_ssize_t h_first = self.h
        if self.sweeping:
            if not self.draw_clusters(first, n_items):
                return False
        else:
            for i in range(n_items):
                self.clusters[i] = self.codes[first + i] // 2
        while self.h < self.n_held and self.held_rows[self.h] < first + n_items:    # h grows
            self.clusters[self.held_rows[self.h] - first] = self.held_codes[self.h] // 2
            self.h += 1
        self.sort(self.clusters, self.n_clusters, first, n_items)
        if not self.sweeping:
            for i in range(n_items):
                self.subs[i] = self.codes[first + i] % 2
        elif self.sub_params != NULL:
            if not self.draw_subs(first):
                return False
        else:
            for i in range(n_items):
                self.subs[i] = 0
        for i in range(h_first, self.h):
            self.subs[self.held_rows[i] - first] = self.held_codes[i] % 2
        for i in range(n_items):
            self.new_codes[first + i] = <int>(2 * self.clusters[i] + self.subs[i])
        return True

    cdef bint draw_clusters(self, Py_ssize_t first, Py_ssize_t n_items) noexcept nogil:
        """Draw a cluster for each item of the tile, among those of its cluster's group."""
        cdef Py_ssize_t g, i, n_which, n
        cdef const Py_ssize_t* which
        cdef const Py_ssize_t* items
        if self.n_groups == 1:
            for i in range(n_items):
                self.items[i] = first + i
            if not self.choose(
                self.items, n_items, self.params, self.log_weights, self.members, self.n_clusters
            ):
                return False
            for i in range(n_items):
                self.clusters[i] = self.draws[i]
            return True
        for i in range(n_items):
            self.subs[i] = self.groups[self.codes[first + i] // 2]
        self.sort(self.subs, self.n_groups, first, n_items)
        for g in range(self.n_groups):
            which = self.members + self.group_starts[g]
            n_which = self.group_starts[g + 1] - self.group_starts[g]
            items = self.items + self.starts[g]
            n = self.starts[g + 1] - self.starts[g]
            if n == 0:
                continue
            if not self.choose(items, n, self.params, self.log_weights, which, n_which):
                return False
            for i in range(n):
                self.clusters[items[i] - first] = which[self.draws[i]]
        return True

    cdef bint draw_subs(self, Py_ssize_t first) noexcept nogil:
        """Draw a sub-cluster of its own cluster for each item of the tile, sorted by clusters."""
        cdef Py_ssize_t i, k, n
        cdef Py_ssize_t which[2]
        cdef const Py_ssize_t* items
        for k in range(self.n_clusters):
            which[0] = 2 * k
            which[1] = 2 * k + 1
            items = self.items + self.starts[k]
            n = self.starts[k + 1] - self.starts[k]
            if n == 0:
                continue
            if not self.choose(items, n, self.sub_params, self.sub_log_weights, which, 2):
                return False
            for i in range(n):
                self.subs[items[i] - first] = self.draws[i]
        return True

    # The collect phase.

    cdef void collect(self, Py_ssize_t first) noexcept nogil:
        """Add the items of the tile, sorted by clusters, to the statistics of their codes and of
        the parts of random splits."""
        cdef Py_ssize_t j, k
        for k in range(self.n_clusters):
            self.collect_keys(k, first, self.subs, 2, 2 * k)
        for j in range(self.n_splits):
            k = self.split_clusters[j]
            self.draw_parts(k, first, self.split_shares[j], self.split_rngs[j])
            self.collect_keys(k, first, self.draws, 4, 2 * self.n_clusters + 4 * j)

    cdef void draw_parts(
        self, Py_ssize_t k, Py_ssize_t first, double share, bitgen_t* rng
    ) noexcept nogil:
        """Draw a side for each item of cluster k, the first with probability `share`; draws are
        2 * side + sub-cluster."""
        cdef Py_ssize_t i, m
        for i in range(self.starts[k], self.starts[k + 1]):
            m = self.items[i] - first
            self.draws[m] = 2 * (uniform(rng) >= share) + self.subs[m]

    cdef void collect_keys(
        self, Py_ssize_t k, Py_ssize_t first, const Py_ssize_t* keys, Py_ssize_t n_keys,
        Py_ssize_t row      # of the statistics of the first key
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
                self.model.accumulate(
                    self.stats + (row + s) * self.model.n_stats, self.chosen, m
                )
                if self.first_rows[row + s] < 0:
                    self.first_rows[row + s] = self.chosen[0]

    cdef bint run(self) noexcept nogil:
        """Do the task, a tile at a time. False where the weights of a row are no distribution."""
        cdef Py_ssize_t first, tile
        for tile in range((self.model.n_samples + TILE - 1) // TILE):
            first = tile * TILE
            if not self.draw(first, min(<Py_ssize_t>TILE, self.model.n_samples - first)):
                return False
            self.collect(first)
        return True


def draw_and_collect(ParametricModel model, codes, task, list bit_generators, held=None):
    """Draw new codes of a block's rows and collect statistics.

    Parameters
    ----------
    model : ParametricModel
        Bound to the rows.
    codes : ndarray of shape (n_rows,), int32, or None
        The rows' codes so far. None: not known, and not needed.
    task : Task
    bit_generators : list of numpy bit generators
        The sweep's (None without a sweep), then one for each random split.
    held : Held or None
        Rows that keep a code. The others draw what they would have drawn without them.

    Returns
    -------
    codes : ndarray of shape (n_rows,), int32
    stats : ndarray of shape (2 n_clusters + 4 len(task.splits), n_stats)
        Of each code; then, for each random split, of the sub-clusters of the first side and of
        those of the second.
    first_rows : ndarray of shape (2 n_clusters + 4 len(task.splits),), intp
        The first row of each, -1 where there is none.

    Raises
    ------
    FloatingPointError
        Where a row has no cluster of positive weight, or one whose weight is no number.
    """
    cdef bint good
    cdef BlockTask block = BlockTask(model, codes, task, bit_generators, held)
    with ExitStack() as locks:
        for bit_generator in bit_generators:
            if bit_generator is not None:
                locks.enter_context(bit_generator.lock)
        with nogil:
            good = block.run()
    if not good:
        raise FloatingPointError(
            "a row has no cluster of positive weight, or one whose weight is no number"
        )
    return block.result


def split_codes(int[::1] codes, split, Py_ssize_t new_cluster, bit_generator):
    """Carry out a `TrialSplit` that `draw_and_collect` looked at, in place, from the same stream.

    The first side stays in its cluster, the second goes to `new_cluster`; sub-clusters stay.
    """
    cdef Py_ssize_t i
    cdef Py_ssize_t cluster = split.cluster
    cdef double share = split.share
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    with bit_generator.lock, nogil:
        for i in range(codes.shape[0]):
            if codes[i] // 2 == cluster:
                if uniform(rng) >= share:
                    codes[i] = <int>(2 * new_cluster + codes[i] % 2)
