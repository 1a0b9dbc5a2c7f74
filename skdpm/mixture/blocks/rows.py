# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit, visited in blocks: by threads here, by Dask in `dask_rows`.

A visit is a map over blocks and a reduction. The map is `visit_block`: a pure function of the rows
of a block, of the few arrays that a sweep needs and of the key of a random stream. So it does not
matter where, in which order and how often a block is computed. The reduction adds up statistics in
the order of the blocks, which depend on the number of rows and `block_size` alone.
"""

import functools
import threading
from itertools import pairwise

import numpy as np

from skdpm._validation import check_finite
from skdpm.chains import stream
from skdpm.mixture.blocks._visit import split_codes, visit


def even_blocks(n_rows, block_size):
    """Bounds of the fewest blocks of at most `block_size` rows, nearly equal: shape (B + 1,)."""
    n_blocks = -(-n_rows // block_size)
    return np.arange(n_blocks + 1) * n_rows // n_blocks


def summarise_block(likelihood, X):
    """What the likelihood needs to know of a block, its entries checked."""
    if isinstance(X, np.ndarray):
        X = np.ascontiguousarray(X)  # sums round differently over rows in another order
    elif not likelihood.accept_sparse:
        raise ValueError(f"{type(likelihood).__name__} needs dense rows, got {type(X).__name__}")
    check_finite(X, allow_nan=likelihood.allow_nan)
    return likelihood.summarise(X)


def fold_summaries(likelihood, summaries):
    """The summary of all blocks from those of each, in their order."""
    return functools.reduce(likelihood.merge_summaries, summaries)


def visit_block(likelihood, X, codes, task, key, block, held=None):
    """`blocks._visit.visit` of one block.

    Parameters
    ----------
    likelihood : Likelihood
        Resolved.
    X : ndarray or CSR array
        The block's rows.
    codes : ndarray or None
    task : dict
        See `visit_task`.
    key : tuple of int
        Entropy, chain and iteration.
    block : int
    held : tuple of two ndarrays, or None
        Rows of the block that keep a code, and these.
    """
    model, sweep = likelihood.parametric(X), task["sweep"]
    streams = [None if sweep is None else stream(*key, block, 0)]
    streams += [stream(*key, block, number) for number in task["numbers"]]
    return visit(model, task["n_clusters"], codes, sweep, task["halves"], streams, held)


def held_rows(codes, clusters):
    """The rows of a block that are in some clusters, which hold them back, and their codes."""
    rows = np.flatnonzero(np.isin(codes >> 1, clusters))
    return rows, codes[rows]


def change_codes(codes, changes, block):
    """The codes of a block after relabellings, each a table of codes or an accepted random split
    (cluster, new cluster, share of the cluster, key and number of its stream)."""
    for change in changes:
        if isinstance(change, np.ndarray):
            codes = change[codes]
        else:
            cluster, new_cluster, share, key, number = change
            codes = codes.copy()
            split_codes(codes, cluster, new_cluster, share, stream(*key, block, number))
    return codes


def reduce_visits(model, parts, starts):
    """Statistics and first rows of all blocks, from those of each, in their order."""
    (stats, firsts), *others = parts
    firsts = np.where(firsts >= 0, firsts + starts[0], -1)
    for start, (more_stats, more_firsts) in zip(starts[1:], others, strict=True):
        stats = model.combined(stats, more_stats)
        firsts = np.where((firsts < 0) & (more_firsts >= 0), more_firsts + start, firsts)
    return stats, firsts


class RowBlocks:
    """Rows in memory (or mapped into it), never copied whole.

    What a chain holds of its labels, its *codes*, is an int32 array; `dask_rows` has
    another.

    Parameters
    ----------
    X : ndarray or CSR array of shape (n_samples, n_features), of any numeric type
    block_size : int
        Most rows in a block.
    n_threads : int
    """

    def __init__(self, X, block_size, n_threads=1):
        self.X = X
        self.n_samples = X.shape[0]
        self.bounds = even_blocks(self.n_samples, block_size)
        self.n_threads = min(n_threads, len(self.bounds) - 1)
        # Chains share the rows, each in a thread that has a pool of its own.
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

    def _map(self, function):
        """function(rows of the block, slice of its rows, number from 1) over all blocks."""
        slices = [slice(*bounds) for bounds in pairwise(self.bounds)]

        def call(block):
            return function(self.X[slices[block]], slices[block], block + 1)

        pool = getattr(self._own, "pool", None)
        return list((map if pool is None else pool.map)(call, range(len(slices))))

    def summary(self, likelihood):
        """The likelihood's summary of all rows."""
        return fold_summaries(
            likelihood, self._map(lambda X, where, block: summarise_block(likelihood, X))
        )

    def log_constant(self, likelihood):
        """`Likelihood.log_constant` of all rows."""
        return sum(self._map(lambda X, where, block: likelihood.log_constant(X)))

    def first_row(self):
        return self.X[:1]

    def codes(self, labels):
        """Codes of given labels, all rows in the left sub-cluster; None: all in one cluster."""
        if labels is None:
            return np.zeros(self.n_samples, dtype=np.int32)
        return (2 * labels).astype(np.int32)

    def visit(self, likelihood, codes, task, key):
        """Codes, statistics and first rows after `visit_block` of every block."""
        new_codes = np.empty(self.n_samples, dtype=np.int32)

        def visit_one(X, where, block):
            new_codes[where], stats, firsts = visit_block(
                likelihood,
                X,
                codes[where],
                task,
                key,
                block,
                held_rows(codes[where], task["held"]) if task["held"] else None,
            )
            return stats, firsts

        parts = self._map(visit_one)
        model = likelihood.parametric(self.X[:0])
        return new_codes, *reduce_visits(model, parts, self.bounds[:-1])

    def changed(self, codes, changes):
        """Codes after some relabellings (`change_codes`)."""
        new_codes = np.empty_like(codes)

        def change_one(X, where, block):
            new_codes[where] = change_codes(codes[where], changes, block)

        self._map(change_one)
        return new_codes

    def labels(self, codes, numbers):
        """The number of each row's cluster."""
        return numbers[codes >> 1]

    def keep(self, codes):
        """What lets a draw's labels be told later: here, the labels."""
        n_clusters = int(codes.max()) // 2 + 1
        return (codes >> 1).astype(np.min_scalar_type(n_clusters))

    def kept_labels(self, kept, numbers, likelihood):
        """The number of each row's cluster, int64."""
        return np.asarray(numbers, dtype=np.int64)[kept]


def visit_task(n_clusters, sweep=None, halves=(), numbers=(), held=()):
    """The part of a visit that is the same for all blocks.

    Parameters
    ----------
    n_clusters : int
    sweep : dict or None
    halves : sequence of (int, float)
        See `blocks._visit.visit`.
    numbers : sequence of int
        Of the stream of each, from 1.
    held : sequence of int
        Clusters whose rows keep their codes in the sweep.
    """
    return {
        "n_clusters": n_clusters,
        "sweep": sweep,
        "halves": list(halves),
        "numbers": list(numbers),
        "held": list(held),
    }
