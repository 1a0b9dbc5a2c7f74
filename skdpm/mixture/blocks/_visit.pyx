# SPDX-License-Identifier: BSD-3-Clause
"""A task on a block of rows: draw codes, collect statistics.

Given weights and parameters, the labels of rows are independent. A task is therefore a pure
function of the block's rows, of a few arrays and of random streams. Its result is small:
statistics of the clusters within the block, which are added up over blocks. Words: see `records`.

Rows are taken in batches. Each has two uniforms, for its cluster and its sub-cluster. Rows whose
clusters are known are *placed*: sorted by cluster, given sub-clusters, and added to the
statistics. With K clusters, row 2 k + s of the statistics belongs to sub-cluster s of cluster k,
and row 2 K + 4 j + 2 t + s to sub-cluster s of side t of the j-th random split. Rows that are
noise have the code NOISE_CODE and no statistics. In draws, noise is a choice after the clusters.

Given an order in which close rows follow one another, a batch is cut into tiles, and only clusters
that may matter in a tile are evaluated for its rows (`_core/_culling`).
"""
from contextlib import ExitStack

from libc.math cimport INFINITY, exp, log

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._culling cimport bounds_pay, join_boxes, log_sum_far, part_near, skips_bounds
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, categorical_log, uniform
from skdpm.mixture.likelihoods.contract._parametric cimport TILE, ParametricModel, as_indices


cdef extern from "draws.h" nogil:
    bint tile_categorical(
        double* w, Py_ssize_t n_terms, Py_ssize_t ld, Py_ssize_t n, double* u, double* top,
        double* total, Py_ssize_t* out
    )
    void tile_select(
        double* w, const double* by, Py_ssize_t n_terms, Py_ssize_t ld, Py_ssize_t n,
        const double* u, double rest, double* scratch, Py_ssize_t* out
    )
    void tile_halves(
        const double* a, const double* b, double by_a, double by_b, Py_ssize_t n, const double* u,
        const Py_ssize_t* keys, Py_ssize_t key, Py_ssize_t code, Py_ssize_t* out
    )
    Py_ssize_t tile_count(const Py_ssize_t* keys, Py_ssize_t n, Py_ssize_t key)


BATCH_ROWS = TILE
TILE_ROWS = 128     # rows of a batch that are bounded together


cdef class BlockTask:
    """A task on the rows of one block, with its memory; see `draw_and_collect`."""

    def __cinit__(
        self, ParametricModel model, codes, task, list bit_generators, held, order,
        Py_ssize_t tile_rows, log_noise=None
    ):
        cdef Py_ssize_t n_clusters = task.n_clusters
        cdef Py_ssize_t n_boxes = TILE // max(tile_rows, 1) + 2
        self.model = model
        self.n_clusters = n_clusters
        self.n_splits = len(task.splits)
        self.arrays = []
        self.log_w = <double*>self.doubles(np.empty(max(n_clusters + 1, 2) * TILE))
        x = <double*>self.doubles(np.empty(3 * n_clusters + 1 + 2 * model.n_dimensions * n_boxes))
        self.lower, self.upper, self.shifts = x, x + n_clusters, x + 2 * n_clusters
        self.box = self.shifts + n_clusters + 1
        self.boxes = self.box + 2 * model.n_dimensions
        self.ends = <Py_ssize_t*>self.indices(np.zeros(3 * n_clusters + 1))
        self.near = self.ends + n_clusters + 1
        self.nearest = self.near + n_clusters
        self.split_rngs = <bitgen_t**>self.indices(np.empty(self.n_splits, dtype=np.intp))
        for j in range(self.n_splits):
            self.split_rngs[j] = bit_generator_pointer(bit_generators[1 + j])
        self.split_clusters = self.indices([split.cluster for split in task.splits])
        self.split_shares = self.doubles([split.share for split in task.splits])
        self.backoff.pause = self.backoff.last = 0
        if task.sweep is not None:
            self.rng = bit_generator_pointer(bit_generators[0])
            self.sweeping = True
            self.params = self.doubles(task.sweep.params)
            self.log_weights = self.doubles(task.sweep.log_weights)
            if task.sweep.sub_params is not None:
                self.sub_params = self.doubles(task.sweep.sub_params)
                self.sub_log_weights = self.doubles(task.sweep.sub_log_weights)
            self.all_clusters = self.indices(np.arange(n_clusters))
            if task.sweep.log_noise_weight is not None:
                if len(log_noise) != model.n_samples:
                    raise ValueError(
                        f"{len(log_noise)} densities of noise for {model.n_samples} rows"
                    )
                self.log_noise = self.doubles(log_noise)
                self.log_noise_weight = task.sweep.log_noise_weight
        if held is not None and len(held.rows) > 0:
            held_codes = np.full(model.n_samples, -1, dtype=np.int32)
            held_codes[held.rows] = held.codes
            self.held_codes = self.integers(held_codes)
        if order is not None and model.n_samples > 0:
            if len(order) != model.n_samples:
                raise ValueError(f"an order of {len(order)} for {model.n_samples} rows")
            self.order = self.integers(order)
            if model.n_dimensions > 0:
                self.tile_rows = min(tile_rows, <Py_ssize_t>TILE)
        if codes is None:
            if not self.sweeping:
                raise ValueError("a task without a sweep needs codes")
        elif len(codes) != model.n_samples:
            raise ValueError(f"{len(codes)} codes for {model.n_samples} rows")
        else:
            self.codes = self.integers(codes)
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

    cdef const double* doubles(self, values) except? NULL:
        """Pointer to doubles, kept as long as this object; NULL if there are none."""
        cdef const double[::1] flat = np.ascontiguousarray(values, dtype=np.float64).ravel()
        self.arrays.append(flat)
        return &flat[0] if flat.shape[0] > 0 else NULL

    cdef const Py_ssize_t* indices(self, values) except? NULL:
        """`doubles` for indices."""
        cdef const Py_ssize_t[::1] flat = np.ascontiguousarray(values, dtype=np.intp)
        self.arrays.append(flat)
        return &flat[0] if flat.shape[0] > 0 else NULL

    cdef const int* integers(self, values) except? NULL:
        """`doubles` for integers."""
        cdef const int[::1] flat = np.ascontiguousarray(values, dtype=np.int32)
        self.arrays.append(flat)
        return &flat[0] if flat.shape[0] > 0 else NULL

    # Parts of all tasks.

    cdef bint choose(
        self, Indices items, const double* params,
        const double* log_weights, Indices which, const double* u
    ) noexcept nogil:
        """Draw draws[i] = j with probability proportional to weight times density of `which[j]`,
        by u[i]. False if the weights of an item are no distribution."""
        weigh(self, items, params, log_weights, which)
        return draw_weighed(self, items.n, which.n, u)

    cdef Py_ssize_t sort(
        self, const Py_ssize_t* keys, const Py_ssize_t* items, const double* u, Py_ssize_t n_items
    ) noexcept nogil:
        """Sort items, and their uniforms, by keys, in the order in which keys first occur. Returns
        the number of keys in `present`."""
        cdef Py_ssize_t n = 0, total = 0
        cdef Py_ssize_t* ends = self.ends
        for i in range(n_items):
            SKDPM_CHECK(0 <= keys[i] <= self.n_clusters, "sort: a key out of range")
            if ends[keys[i]] == 0:
                self.present[n] = keys[i]
                n += 1
            ends[keys[i]] += 1
        for k in range(n):
            self.starts[k] = total
            m = ends[self.present[k]]
            ends[self.present[k]] = total
            total += m
        self.starts[n] = total
        for i in range(n_items):
            m = ends[keys[i]]
            ends[keys[i]] += 1
            self.positions[m] = i
            self.sorted_items[m] = items[i]
            self.sorted_u[m] = u[i]
        for k in range(n):
            ends[self.present[k]] = 0
        return n

    # Drawing clusters.

    cdef bint draw_clusters(
        self, const Py_ssize_t* items, const double* u, Py_ssize_t n_items
    ) noexcept nogil:
        """Draw `clusters`, or noise, of all items. False if weights are no distribution."""
        cdef Py_ssize_t n = self.n_clusters
        rows = as_indices(items, n_items)
        weigh(self, rows, self.params, self.log_weights, as_indices(self.all_clusters, n))
        if self.log_noise != NULL:
            weigh_noise(self, rows, self.log_noise_weight, self.log_w + n * TILE)
            n += 1
        if not draw_weighed(self, n_items, n, u):
            return False
        for i in range(n_items):
            self.clusters[i] = self.draws[i]
        return True


cdef bint draw_weighed(
    BlockTask self, Py_ssize_t n_items, Py_ssize_t n_which, const double* u
) noexcept nogil:
    """`choose` by the logarithms in `log_w`."""
    for i in range(n_items):
        self.scaled_u[i] = u[i]
    return tile_categorical(
        self.log_w, n_which, TILE, n_items, self.scaled_u, self.scratch, self.scratch + TILE,
        self.draws
    )


cdef void weigh(
    BlockTask self, Indices items, const double* params, const double* log_weights, Indices which
) noexcept nogil:
    """Logarithms of weights times densities, in `log_w`."""
    self.model.log_density_many(items, params, which, self.log_w)
    for j in range(which.n):
        row = self.log_w + j * TILE
        log_weight = log_weights[which.at[j]]
        for i in range(items.n):
            row[i] += log_weight


cdef double weigh_noise(
    BlockTask self, Indices items, double log_weight, double* log_w
) noexcept nogil:
    """Write logarithms of the weight of noise times densities: (items.n,). Returns the top."""
    cdef double top = -INFINITY
    for i in range(items.n):
        log_w[i] = log_weight + self.log_noise[items.at[i]]
        top = max(top, log_w[i])
    return top


cdef void collect(
    BlockTask self, const Py_ssize_t* items, const Py_ssize_t* keys, Py_ssize_t n_items,
    Py_ssize_t n_keys, Py_ssize_t row       # of the statistics of the first key
) noexcept nogil:
    cdef Py_ssize_t m
    for s in range(n_keys):
        m = 0
        for i in range(n_items):
            self.chosen[m] = items[i]
            m += keys[i] == s
        if m > 0:
            stats = self.stats + (row + s) * self.model.n_stats
            self.model.accumulate(stats, as_indices(self.chosen, m))


cdef Py_ssize_t sift(
    BlockTask self, const double* box, Indices which, double below,
    Py_ssize_t* out, double* rest       # IN, OUT: log of the weights left out so far
) noexcept nogil:
    """List the clusters whose weight in a box may exceed exp(below) times the likely weight of
    the heaviest one, and bound the sum of the others. The lower bounds of those listed are in
    `lower`, and their largest upper bound is `top`."""
    cdef double likely = -INFINITY
    self.model.log_density_bound_many(self.params, which, box, self.lower, self.upper)
    for k in range(which.n):
        self.lower[k] += self.log_weights[which.at[k]]
        self.upper[k] += self.log_weights[which.at[k]]
        likely = max(likely, 0.5 * self.lower[k] + 0.5 * self.upper[k])
    n = part_near(self.upper, which.n, likely + below, out)
    rest[0] = log_sum_far(self.upper, out + n, which.n - n, rest[0])
    self.top = -INFINITY
    for j in range(n):
        k = out[j]
        self.top = max(self.top, self.upper[k])
        self.lower[j] = self.lower[k]
        out[j] = which.at[k]
    return n


cdef bint draw_near(BlockTask self, Py_ssize_t n_items) noexcept nogil:
    """Draw clusters for the batch from those that may matter, and place its rows, except those
    left for later. False if weights are no distribution."""
    cdef double rest = -INFINITY
    cdef Py_ssize_t n_tiles = (n_items + self.tile_rows - 1) // self.tile_rows
    self.model.load(as_indices(self.items, n_items))
    for t in range(n_tiles):
        first = t * self.tile_rows
        n = min(self.tile_rows, n_items - first)
        self.model.enclose(first, n, self.boxes + t * 2 * self.model.n_dimensions)
    join_boxes(self.boxes, n_tiles, self.model.n_dimensions, self.box)
    everywhere = as_indices(self.all_clusters, self.n_clusters)
    n_near = sift(self, self.box, everywhere, -log(4.0 * self.n_clusters) - 7.0, self.near, &rest)
    if not bounds_pay(&self.backoff, n_near, self.n_clusters):
        return draw_all(self, self.items, self.u, self.v, n_items)
    for t in range(n_tiles):
        first = t * self.tile_rows
        n = min(self.tile_rows, n_items - first)
        if not draw_tile(
            self, first, n, self.boxes + t * 2 * self.model.n_dimensions, n_near, rest
        ):
            return False
    return True


cdef void draw_sifted(
    BlockTask self, Py_ssize_t first, Py_ssize_t n_items, Py_ssize_t n, double rest
) noexcept nogil:
    """Draw places of clusters among the n in `nearest`, n for noise; -1 if others may matter."""
    cdef Py_ssize_t n_choices = n + (self.log_noise != NULL)
    if n_choices == 1:
        share = 1.0
        if self.lower[0] < INFINITY:
            share = exp(min(rest - self.lower[0], 0.0)) + 1e-11
        low = (1.0 - 1e-11) / (1.0 + share)
        for i in range(n_items):
            self.draws[i] = 0 if share <= self.u[first + i] < low else -1
        return
    self.model.log_density_loaded(
        first, n_items, self.params, as_indices(self.nearest, n), self.log_w
    )
    top = self.top
    if self.log_noise != NULL:
        items = as_indices(self.items + first, n_items)
        self.shifts[n] = weigh_noise(self, items, self.log_noise_weight, self.log_w + n * TILE)
        top = max(top, self.shifts[n])
        self.shifts[n] = -top
    for j in range(n):
        self.shifts[j] = self.log_weights[self.nearest[j]] - top
    tile_select(
        self.log_w, self.shifts, n_choices, TILE, n_items, self.u + first,
        exp(min(rest - top, 700.0)), self.scratch, self.draws
    )


cdef bint draw_tile(
    BlockTask self, Py_ssize_t first, Py_ssize_t n_items, const double* box, Py_ssize_t n_near,
    double rest
) noexcept nogil:
    """The same for a tile of the batch, among the clusters near the batch."""
    cdef Py_ssize_t code
    cdef Py_ssize_t which[2]
    cdef const Py_ssize_t* items = self.items + first
    cdef Py_ssize_t* codes = self.tile_codes
    # A cluster is evaluated for the tile where that costs less than the rows left without it.
    near = as_indices(self.near, n_near)
    n = sift(self, box, near, -log(1.5 * self.n_clusters), self.nearest, &rest)
    draw_sifted(self, first, n_items, n, rest)
    if self.held_codes != NULL:
        for i in range(n_items):
            if self.held_codes[items[i]] >= 0:
                self.draws[i] = -1
    for i in range(n_items):
        codes[i] = -3 if self.draws[i] == n else -1
    for j in range(n):
        n_kept = tile_count(self.draws, n_items, j)
        if n_kept == 0:
            continue
        k = self.nearest[j]
        which[0] = 2 * k
        which[1] = 2 * k + 1
        if self.sub_params == NULL:
            for i in range(n_items):
                if self.draws[i] == j:
                    codes[i] = 2 * k
        else:
            self.model.log_density_loaded(
                first, n_items, self.sub_params, as_indices(which, 2), self.log_w
            )
            tile_halves(
                self.log_w, self.log_w + TILE, self.sub_log_weights[2 * k],
                self.sub_log_weights[2 * k + 1], n_items, self.v + first, self.draws, j, k,
                codes
            )
        for code in range(2 * k, 2 * k + 1 + (self.sub_params != NULL)):
            self.model.accumulate_loaded(
                self.stats + code * self.model.n_stats, first, n_items, codes, code
            )
    for i in range(n_items):
        if codes[i] >= 0:
            self.new_codes[items[i]] = <int>codes[i]
        elif codes[i] == -2:
            return False
        elif codes[i] == -3:
            self.new_codes[items[i]] = NOISE_CODE
        else:
            self.left[self.n_left] = items[i]
            self.u_left[self.n_left] = self.u[first + i]
            self.v_left[self.n_left] = self.v[first + i]
            self.n_left += 1
    return True


cdef bint draw_all(
    BlockTask self, const Py_ssize_t* items, const double* u, const double* v, Py_ssize_t n_items
) noexcept nogil:
    """Draw clusters for items from all clusters, and place these items."""
    return self.draw_clusters(items, u, n_items) and place(self, items, v, n_items)


cdef bint draw_left(BlockTask self) noexcept nogil:
    """The same for rows that were left for later, at most a batch of them."""
    cdef Py_ssize_t n = min(self.n_left, <Py_ssize_t>TILE)
    if not draw_all(self, self.left, self.u_left, self.v_left, n):
        return False
    self.n_left -= n
    for i in range(self.n_left):
        self.left[i] = self.left[n + i]
        self.u_left[i] = self.u_left[n + i]
        self.v_left[i] = self.v_left[n + i]
    return True


# Rows whose clusters are known.


cdef bint place(
    BlockTask self, const Py_ssize_t* items, const double* v, Py_ssize_t n_items
) noexcept nogil:
    """Give items in known clusters sub-clusters; add to sums. False if weights are no law."""
    cdef Py_ssize_t which[2]
    cdef const Py_ssize_t* rows
    if self.held_codes != NULL:
        for i in range(n_items):
            if self.held_codes[items[i]] >= 0:
                self.clusters[i] = self.held_codes[items[i]] // 2
    n_present = self.sort(self.clusters, items, v, n_items)
    for j in range(n_present):
        k = self.present[j]
        first = self.starts[j]
        n = self.starts[j + 1] - first
        rows = self.sorted_items + first
        if k == self.n_clusters:
            for i in range(n):
                self.new_codes[rows[i]] = NOISE_CODE
            continue
        if not self.sweeping:
            for i in range(n):
                self.draws[i] = self.codes[rows[i]] % 2
        elif self.sub_params != NULL:
            which[0] = 2 * k
            which[1] = 2 * k + 1
            if not self.choose(
                as_indices(rows, n), self.sub_params, self.sub_log_weights, as_indices(which, 2),
                self.sorted_u + first
            ):
                return False
        else:
            for i in range(n):
                self.draws[i] = 0
        if self.held_codes != NULL:
            for i in range(n):
                if self.held_codes[rows[i]] >= 0:
                    self.draws[i] = self.held_codes[rows[i]] % 2
        for i in range(n):
            self.new_codes[rows[i]] = <int>(2 * k + self.draws[i])
        collect(self, rows, self.draws, n, 2, 2 * k)
    return True


cdef void draw_split(BlockTask self, Py_ssize_t j) noexcept nogil:
    """Draw a side for each row of a cluster, the first with probability `share`, and add the
    row to the statistics of its part. Rows are in their own order, as in `RandomSplit`."""
    cdef Py_ssize_t n = 0
    cdef Py_ssize_t k = self.split_clusters[j]
    cdef Py_ssize_t row = 2 * self.n_clusters + 4 * j
    cdef double share = self.split_shares[j]
    cdef bitgen_t* rng = self.split_rngs[j]
    for i in range(self.model.n_samples):
        if self.new_codes[i] // 2 == k:
            self.items[n] = i
            self.draws[n] = 2 * (uniform(rng) >= share) + self.new_codes[i] % 2
            if self.first_rows[row + self.draws[n]] < 0:
                self.first_rows[row + self.draws[n]] = i
            n += 1
            if n == TILE:
                collect(self, self.items, self.draws, n, 4, row)
                n = 0
    collect(self, self.items, self.draws, n, 4, row)


cdef void find_first_rows(BlockTask self) noexcept nogil:
    cdef Py_ssize_t n_left = 0
    for code in range(2 * self.n_clusters):
        n_left += self.stats[code * self.model.n_stats] != 0.0
    for i in range(self.model.n_samples):
        if self.new_codes[i] != NOISE_CODE and self.first_rows[self.new_codes[i]] < 0:
            self.first_rows[self.new_codes[i]] = i
            n_left -= 1
            if n_left == 0:
                return


cdef bint run_task(BlockTask self) noexcept nogil:
    """Do the task, a batch at a time. False if the weights of a row are no distribution."""
    cdef bint good
    for batch in range((self.model.n_samples + TILE - 1) // TILE):
        first = batch * TILE
        n = min(<Py_ssize_t>TILE, self.model.n_samples - first)
        for i in range(n):
            self.items[i] = first + i if self.order == NULL else self.order[first + i]
        if not self.sweeping:
            for i in range(n):
                self.clusters[i] = self.codes[self.items[i]] // 2
                if self.clusters[i] < 0:
                    self.clusters[i] = self.n_clusters
            good = place(self, self.items, self.v, n)
        else:
            for i in range(n):
                self.u[i] = uniform(self.rng)
            if self.sub_params != NULL:
                for i in range(n):
                    self.v[i] = uniform(self.rng)
            if self.tile_rows == 0 or skips_bounds(&self.backoff):
                good = draw_all(self, self.items, self.u, self.v, n)
            else:
                good = draw_near(self, n) and (self.n_left < TILE or draw_left(self))
        if not good:
            return False
    if self.n_left > 0 and not draw_left(self):
        return False
    find_first_rows(self)
    for j in range(self.n_splits):
        draw_split(self, j)
    return True


def draw_and_collect(
    ParametricModel model, codes, task, list bit_generators, held=None, order=None,
    Py_ssize_t tile_rows=TILE_ROWS, log_noise=None
):
    """Draw new codes of a block's rows and collect statistics.

    - `model`: ParametricModel. Bound to the rows.
    - `codes`: (n_rows,), int32, or None. Codes of the rows so far; None: the task needs none.
    - `task`: Task
    - `bit_generators`: list of numpy bit generators. One for the sweep (None without a sweep),
      then one for each random split.
    - `held`: Held or None. Rows that keep a code. The others draw the same with and without them.
    - `order`: (n_rows,), or None. Order in which the rows are visited, each with the next numbers
      of the stream. None: their own order, with every cluster evaluated for each row.
    - `tile_rows`: int. Maximum number of rows bounded together; 0: every cluster is evaluated.
    - `log_noise`: (n_rows,), or None. Natural log density of each row as noise, less its
      `log_constants`, for a sweep with a weight of noise.

    Returns

    - `codes`: (n_rows,), int32
    - `stats`: (2 n_clusters + 4 len(task.splits), n_stats). Statistics of each code; then, for
      each random split, of the sub-clusters of the first side and of those of the second.
    - `first_rows`: (2 n_clusters + 4 len(task.splits),), intp. First row of each; -1 without rows.

    Raises FloatingPointError if a row has no cluster of positive weight, or a weight is NaN.
    """
    task_class = BlockTask if task.sweep is None else task.sweep.block_task
    cdef BlockTask block = task_class(
        model, codes, task, bit_generators, held, order, tile_rows, log_noise
    )
    with ExitStack() as locks:
        for bit_generator in bit_generators:
            if bit_generator is not None:
                locks.enter_context(bit_generator.lock)
        with nogil:
            good = run_task(block)
    if not good:
        raise FloatingPointError(
            "a row has no cluster of positive weight, or one whose weight is no number"
        )
    return block.result


def draw_in_turn(
    int[::1] codes, const Py_ssize_t[::1] classes, const double[:, ::1] log_w, log_halves,
    double[::1] sizes, Py_ssize_t[::1] counts, Py_ssize_t[::1] owners, Py_ssize_t least,
    bit_generator
):
    """Draw codes of rows of known classes in turn, in place, among clusters without another class.

    - `codes`, `classes`: (n_rows,)
    - `log_w`: (n_clusters, n_rows). Logarithms of weights times densities.
    - `log_halves`: (2 n_clusters, n_rows), or None. The same of sub-clusters.
    - `sizes`, `counts`: (n_clusters,). Number of rows of each cluster, and of those with a class.
      They follow the draws.
    - `owners`: (n_clusters,). Class of each cluster with a count.
    - `least`: int. Number of rows, 0 or 1, that each cluster keeps.

    Raises FloatingPointError if the weights of a row are no distribution.
    """
    cdef Py_ssize_t half = 0
    cdef Py_ssize_t n_clusters = sizes.shape[0]
    cdef bint may_join
    cdef bint in_halves = log_halves is not None
    cdef const double[:, ::1] halves = log_halves
    cdef double[::1] w = np.empty(max(n_clusters, 2))
    cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
    with bit_generator.lock, nogil:
        for i in range(codes.shape[0]):
            k = codes[i] // 2
            sizes[k] -= 1.0
            counts[k] -= 1
            if sizes[k] >= least:
                for j in range(n_clusters):
                    may_join = counts[j] == 0 or owners[j] == classes[i]
                    w[j] = log_w[j, i] if may_join else -INFINITY
                k = categorical_log(rng, &w[0], n_clusters)
            if in_halves and k >= 0:
                w[0], w[1] = halves[2 * k, i], halves[2 * k + 1, i]
                half = categorical_log(rng, &w[0], 2)
            if min(k, half) < 0:
                raise FloatingPointError("a row has no cluster of positive weight")
            codes[i] = <int>(2 * k + half)
            sizes[k] += 1.0
            counts[k] += 1
            owners[k] = classes[i]
