# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit, in blocks that threads visit; `dask_rows` has those of dask arrays.

A visit is a map over blocks and a reduction. The map, `visit_block`, is a pure function of the
rows of a block, the few arrays of a sweep and the key of random streams. So it does not matter
where, in which order and how often a block is computed. The reduction adds up statistics over a
binary tree above the blocks, which depend on the number of rows and `block_size` alone: any part
of the tree may be added up where its blocks are. `records` explains the words used here.
"""

import abc
import contextlib
import functools
import threading
from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from skdpm._validation import ColumnError
from skdpm.chains import stream
from skdpm.mixture.blocks._launch import launch_sides
from skdpm.mixture.blocks._visit import BATCH_ROWS, TILE_ROWS, draw_and_collect
from skdpm.mixture.blocks.records import Collected, Held, Sides, change_codes
from skdpm.mixture.state._tiles import RowTiles

# With fewer clusters bounds cost more than they save.
FEWEST_CLUSTERS = 8


class Rows(contextlib.AbstractContextManager):
    """Base class of rows in blocks; threads may share one.

    The labels of a chain are an object that depends on the subclass, the chain's `codes`. Chains
    visit the rows within a ``with`` statement.
    """

    n_samples: int
    first_rows: np.ndarray  # number of the first row of each block
    keeps_labels = True  # whether `labels` returns those of every draw
    # (n_samples,): log density of each row as noise, less `log_constants`; (0,): there is none.
    log_noise = np.empty(0)

    def __exit__(self, *exception):
        return None

    @abc.abstractmethod
    def _map(self, function, *arguments):
        """Call function(rows, number of the block, *arguments) for all blocks: list, in order."""

    def summary(self, likelihood):
        """Check the entries of all rows and return the likelihood's summary of them."""
        return functools.reduce(likelihood.merge_summaries, self._map(_summarise, likelihood))

    def condense(self, likelihood):
        """Store rows in the form that a resolved likelihood prefers, if that pays."""

    def log_constant(self, likelihood):
        """Return the sum of `Likelihood.log_constants` over all rows."""
        return sum(self._map(lambda X, block: float(likelihood.log_constants(X).sum())))

    def sample(self, n_rows, key):
        """Draw n_rows rows, or all, from every block in proportion to its size. They stay in their
        order. The key, a tuple of int, and a block name a random stream."""
        n_rows = min(n_rows, self.n_samples)
        bounds = np.append(self.first_rows, self.n_samples)
        counts = np.diff(bounds * n_rows // self.n_samples)
        parts = self._map(_some_rows, counts, key)
        if isinstance(parts[0], np.ndarray):
            return np.concatenate(parts).view(type(parts[0]))
        return sp.vstack(parts)

    @abc.abstractmethod
    def first_row(self):
        """Return the first row: X of shape (1, n_features)."""

    @abc.abstractmethod
    def codes(self, labels):
        """Return codes to start from, with all rows in left sub-clusters. Without labels, which
        are (n_samples,), all rows are in one cluster."""

    @abc.abstractmethod
    def visit(self, likelihood, codes, task, key):
        """Do a task on all blocks; the given codes are not changed.

        The key is (entropy, chain, iteration), or None if nothing is drawn. Returns the codes and
        `Collected` statistics of each code, then of the four parts of each random split.
        """

    @abc.abstractmethod
    def launch(self, likelihood, codes, launch, key):
        """Draw sides for the rows of unions of clusters and return them (`Sides`); codes do not
        change. The key, a block and the number of a union, from 0, name a random stream."""

    @abc.abstractmethod
    def changed(self, codes, changes, likelihood=None):
        """Apply changes in turn (`Relabelling`, `RandomSplit` or `LaunchedSplit`, which needs the
        likelihood) and return the codes."""

    def labels(self, codes, cluster_numbers):
        """Return the number of each row's cluster: ndarray of shape (n_samples,)."""
        raise TypeError(f"{type(self).__name__} keeps no labels")

    @abc.abstractmethod
    def keep(self, codes):
        """Return a record of a draw's labels for `kept_labels`."""

    @abc.abstractmethod
    def kept_labels(self, kept, cluster_numbers, likelihood):
        """Return the number of each row's cluster, an int64 array, from a record of `keep`."""


class MemoryRows(Rows):
    """Rows in memory (or mapped into it), never copied whole, in blocks of at most `block_size`
    rows; codes are an int32 array."""

    def __init__(self, X, block_size, n_threads=1):
        self.X = X
        self.n_samples = X.shape[0]
        bounds = even_blocks(self.n_samples, block_size)
        self.first_rows = bounds[:-1]
        self.slices = [slice(*pair) for pair in pairwise(bounds)]
        self.n_threads = min(n_threads, len(self.slices))
        self.orders = {}  # order of each block that has been visited in one
        # Chains share the rows; the thread of each has its own pool.
        self._own = threading.local()

    def __enter__(self):
        if self.n_threads > 1:
            from concurrent.futures import ThreadPoolExecutor

            self._own.pool = ThreadPoolExecutor(self.n_threads)
        return self

    def __exit__(self, *exception):
        if self.n_threads > 1:
            self._own.pool.shutdown()
            self._own.pool = None

    def _map(self, function, *arguments):
        def call(j):
            return function(self.X[self.slices[j]], j + 1, *arguments)

        pool = getattr(self._own, "pool", None)
        return list((map if pool is None else pool.map)(call, range(len(self.slices))))

    def condense(self, likelihood):
        parts = self._map(lambda X, block: likelihood.condense(X))
        if parts[0] is not None:
            self.X = np.concatenate(parts).view(type(parts[0]))

    def first_row(self):
        return self.X[:1]

    def codes(self, labels):
        if labels is None:
            return np.zeros(self.n_samples, dtype=np.int32)
        return 2 * labels.astype(np.int32)

    def visit(self, likelihood, codes, task, key):
        new_codes = np.empty(self.n_samples, dtype=np.int32)

        def visit_slice(X, block):
            where = self.slices[block - 1]
            rows = np.asarray(task.held_rows)
            rows = rows[slice(*np.searchsorted(rows, (where.start, where.stop)))] - where.start
            held = self.hold_back(codes[where], task.held_clusters, rows)
            noise = self.log_noise[where]
            new_codes[where], collected = visit_block(
                likelihood, X, codes[where], task, key, block, held, self.orders, noise
            )
            return numbered_from(collected, where.start)

        nodes = {(0, j): collected for j, collected in enumerate(self._map(visit_slice))}
        (collected,) = add_up(likelihood.parametric(self.X[:0]), nodes, len(nodes)).values()
        return new_codes, collected

    def admit_noise(self, noise, likelihood):
        """Rows may be noise from now on, with this law: Noise."""
        self.log_noise = np.asarray(noise.log_density) - likelihood.log_constants(self.X)

    def sum_noise(self, codes, n_clusters):
        """Sums of `log_noise` in the first clusters and, last, in noise: (n_clusters + 1,)."""
        clusters = codes >> 1
        chosen = clusters < n_clusters
        places = np.where(clusters < 0, n_clusters, clusters)[chosen]
        return np.bincount(places, self.log_noise[chosen], n_clusters + 1)

    def hold_back(self, codes, clusters, rows):
        """Rows of a block that stay, in the given clusters and the given ones: Held, or None."""
        return Held.of_clusters(codes, clusters, rows)

    def launch(self, likelihood, codes, launch, key):
        def launch_slice(X, block):
            where = self.slices[block - 1]
            return launch_block(likelihood, X, codes[where], launch, key, block, where.start)

        parts = dict(enumerate(self._map(launch_slice), start=1))
        return add_up_sides(likelihood.parametric(self.X[:0]), parts)

    def changed(self, codes, changes, likelihood=None):
        new_codes = np.empty_like(codes)

        def change_slice(X, block):
            where = self.slices[block - 1]
            model = None if likelihood is None else likelihood.parametric(X)
            new_codes[where] = change_codes(codes[where], changes, block, model)

        self._map(change_slice)
        return new_codes

    def labels(self, codes, cluster_numbers):
        return np.append(cluster_numbers, -1)[codes >> 1]

    def keep(self, codes):
        n_clusters = int(codes.max()) // 2 + 1
        most = n_clusters if codes.min() >= 0 else -max(n_clusters, 1)
        return (codes >> 1).astype(np.min_scalar_type(most))

    def kept_labels(self, kept, cluster_numbers, likelihood):
        return np.append(np.asarray(cluster_numbers, dtype=np.int64), -1)[kept]


# The map and the reduction.


def even_blocks(n_rows, block_size):
    """Return the bounds of the fewest blocks of at most `block_size` rows, nearly equal:
    ndarray of shape (n_blocks + 1,)."""
    n_blocks = -(-n_rows // block_size)
    return np.arange(n_blocks + 1) * n_rows // n_blocks


def visit_block(likelihood, X, codes, task, key, block, held=None, orders=None, log_noise=None):
    """Do a task on the block of rows X: see `Rows.visit` and `draw_and_collect`. New orders of
    blocks are added to the dict `orders`, if there is one. Returns codes and `Collected`
    statistics, with rows numbered from the first of the block."""
    order = None
    if uses_order(task):
        orders = {} if orders is None else orders
        if block not in orders:  # two threads may make the same one
            orders[block] = row_order(likelihood, X)
        order = orders[block]
    streams = [None if task.sweep is None else stream(*key, block, 0)]
    streams += [stream(*key, block, split.stream_number) for split in task.splits]
    codes, stats, first_rows = draw_and_collect(
        likelihood.parametric(X), codes, task, streams, held, order, log_noise=log_noise
    )
    return codes, Collected(stats, first_rows)


def add_up(model, nodes, n_blocks):
    """Add up nodes of the tree above n_blocks blocks as far as possible: the fewest nodes with the
    same content, a single one if all blocks are given.

    Node (0, j) of the tree is the j-th block, from 0; node (l + 1, j) has the nodes (l, 2 j) and
    (l, 2 j + 1) below it, in this order, or the former alone if it is the last. So sums of all
    blocks have the same bits whichever nodes are added up beforehand, and where. No given node is
    above another, and rows are numbered from the first of all.
    """
    levels = [{} for _ in range(max(n_blocks - 1, 0).bit_length() + 1)]
    for (level, j), collected in nodes.items():
        levels[level][j] = collected
    width = n_blocks
    for here, above in pairwise(levels):
        lefts = [j for j in here if j % 2 == 0 and j + 1 in here]
        if lefts:
            pairs = [(here.pop(j), here.pop(j + 1)) for j in lefts]
            for j, collected in zip(lefts, _unions(model, pairs), strict=True):
                above[j // 2] = collected
        if width % 2 == 1 and width - 1 in here:
            above[width // 2] = here.pop(width - 1)
        width = (width + 1) // 2
    return {(level, j): here[j] for level, here in enumerate(levels) for j in sorted(here)}


def _unions(model, pairs):
    """Return the union of each pair; the rows of the first come before those of the second."""
    lefts, rights = zip(*pairs, strict=True)
    n_groups = len(lefts[0])
    stats = model.combined(*(np.concatenate([c.stats for c in side]) for side in (lefts, rights)))
    return [
        Collected(
            stats[k * n_groups : (k + 1) * n_groups],
            np.where(left.first_rows >= 0, left.first_rows, right.first_rows),
        )
        for k, (left, right) in enumerate(pairs)
    ]


def numbered_from(collected, start):
    """Number the rows of a block as if it began at row `start`."""
    first_rows = collected.first_rows
    return Collected(collected.stats, np.where(first_rows >= 0, first_rows + start, -1))


def launch_block(likelihood, X, codes, launch, key, block, start):
    """Draw sides for the rows of one block, whose first row has number `start`: Sides."""
    streams = [stream(*key, block, j) for j in range(len(launch.unions))]
    stats, first_rows, log_q = launch_sides(likelihood.parametric(X), codes, launch, streams)
    return Sides(numbered_from(Collected(stats, first_rows), start), log_q)


def add_up_sides(model, parts):
    """Return the sides of all blocks, from a dict of block numbers to the sides of each."""
    nodes = {(0, block - 1): part.collected for block, part in parts.items()}
    (collected,) = add_up(model, nodes, len(parts)).values()
    return Sides(collected, sum(parts[block].log_q for block in sorted(parts)))


def _summarise(X, block, likelihood):
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X)  # sums round differently over rows in another order
    elif likelihood.accept_sparse is not True:
        raise ValueError(f"{type(likelihood).__name__} needs dense rows, got {type(X).__name__}")
    try:
        likelihood.check_entries(X)
        return likelihood.summarise(X)
    except ColumnError as error:
        error.row = None  # its number is that in the block
        raise


def _some_rows(X, block, counts, key):
    rng = np.random.Generator(stream(*key, block))
    return X[np.sort(rng.choice(X.shape[0], counts[block - 1], replace=False))]


# The order in which a sweep visits the rows of a block, in which close rows follow one another. It
# depends on the rows alone: results depend neither on where a block is computed nor on whether its
# order was kept. Making an order takes longer than most sweeps.


def uses_order(task):
    """Whether a task visits close rows together, if the likelihood has bounds."""
    sweep = task.sweep
    return sweep is not None and sweep.in_tiles and task.n_clusters >= FEWEST_CLUSTERS


def row_order(likelihood, X):
    """Make the order of a block's rows X: ndarray of shape (n_rows,), int32, or None if the
    resolved likelihood has no bounds for these rows."""
    if likelihood.parametric(X[:0]).n_dimensions == 0:
        return None
    points = likelihood.box_points(likelihood.encode(X))
    if points is None:
        return None
    return np.asarray(RowTiles(points, TILE_ROWS, BATCH_ROWS // TILE_ROWS).order, dtype=np.int32)
