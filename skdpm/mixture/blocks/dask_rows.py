# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit in the chunks of a dask array, visited where they are.

Labels are not kept anywhere. What a chain holds of them, its *recipe*, is the sweep that last drew
them, small arrays and the key of its random streams, the few rows that it held back, and the
changes made since: with the rows it gives the labels again, to the bit. So a worker that is lost
costs the work it did, and nothing else.
"""

from itertools import pairwise

import dask
import dask.array
import numpy as np

from skdpm.mixture.blocks.rows import (
    change_codes,
    even_blocks,
    fold_summaries,
    held_rows,
    reduce_visits,
    summarise_block,
    visit_block,
)

# Chunks are looked for anew after so many maps: workers come and go.
MAPS_PER_PLACING = 20


class DaskRows:
    """Rows of a dask array; the counterpart of `RowBlocks`, with recipes for codes.

    Each chunk is cut into blocks as an array in memory is. Where the blocks are the same, so are
    the results, to the bit.

    Parameters
    ----------
    X : dask.array.Array of shape (n_samples, n_features)
        Its chunks may be cut along the rows only, and have known sizes. On a cluster of
        `dask.distributed` they are persisted while this object lives.
    block_size : int
        Most rows in a block.
    """

    def __init__(self, X, block_size):
        self.source = X
        self._first_row = None
        self.n_samples = X.shape[0]
        starts = np.concatenate([[0], np.cumsum(X.chunks[0])])
        # Of each chunk, the bounds of its blocks.
        self.bounds = [
            even_blocks(stop - start, block_size) if stop > start else np.zeros(1, dtype=int)
            for start, stop in pairwise(starts)
        ]
        n_blocks = np.array([len(bounds) - 1 for bounds in self.bounds])
        self.first_blocks = 1 + np.concatenate([[0], np.cumsum(n_blocks)[:-1]])
        self.starts = np.concatenate(
            [start + bounds[:-1] for start, bounds in zip(starts, self.bounds, strict=False)]
        )
        self.client = _client()
        self.chunks = list(X.to_delayed().ravel())
        if self.client is not None:
            self.chunks = self.client.compute(self.chunks)
        self._n_maps = 0
        self._places = None

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        pass

    def _map(self, function, *arguments):
        """function(rows, number of the block, *arguments) of all blocks, in their order."""
        if self.client is None:
            tasks = [
                dask.delayed(_over_blocks, pure=False)(chunk, bounds, first, function, arguments)
                for chunk, bounds, first in zip(
                    self.chunks, self.bounds, self.first_blocks, strict=True
                )
            ]
            parts = dask.compute(*tasks, optimize_graph=False, traverse=False)
        else:
            parts = self._map_on_cluster(function, arguments)
        return [result for part in parts for result in part]

    def _map_on_cluster(self, function, arguments):
        """The parts of each chunk, by one task for all chunks that are in one place: the scheduler
        needs milliseconds for each task, about as long as a chunk is worked on."""
        if self._n_maps % MAPS_PER_PLACING == 0:
            self._places = _places(self.client, self.chunks)
        self._n_maps += 1
        tasks = []
        for place in self._places:
            chunks, *others = (
                [values[c] for c in place]
                for values in (self.chunks, self.bounds, self.first_blocks)
            )
            tasks.append(
                self.client.submit(_over_chunks, chunks, *others, function, arguments, pure=False)
            )
        parts = [None] * len(self.chunks)
        for place, results in zip(self._places, self.client.gather(tasks), strict=True):
            for c, result in zip(place, results, strict=True):
                parts[c] = result
        return parts

    def summary(self, likelihood):
        """The likelihood's summary of all rows."""
        return fold_summaries(likelihood, self._map(_summarise, likelihood))

    def log_constant(self, likelihood):
        """`Likelihood.log_constant` of all rows."""
        return sum(self._map(_log_constant, likelihood))

    def first_row(self):
        if self._first_row is None:
            self._first_row = self.source[:1].compute()
        return self._first_row

    def codes(self, labels):
        """The recipe of labels that are all equal, the only ones to start from."""
        return {"task": None, "key": None, "held": {}, "changes": ()}

    def visit(self, likelihood, recipe, task, key):
        """Recipe, statistics and first rows after `visit_block` of every block."""
        parts = self._map(_visit, likelihood, recipe, task, key)
        if task["sweep"] is not None:
            # Held rows by number, not by the clusters they were in: no recipe needs another.
            recipe = {
                "task": {**task, "halves": [], "numbers": [], "held": []},
                "key": key,
                "held": {block + 1: held for block, (*_, held) in enumerate(parts) if held},
                "changes": (),
            }
        return recipe, *reduce_visits(
            likelihood.parametric(self.first_row()[:0]), [part[:2] for part in parts], self.starts
        )

    def changed(self, recipe, changes):
        """The recipe after some relabellings (`change_codes`)."""
        return {**recipe, "changes": (*recipe["changes"], *changes)}

    def keep(self, recipe):
        """What lets a draw's labels be told later."""
        return recipe

    def kept_labels(self, recipe, numbers, likelihood):
        """The number of each row's cluster, as a lazy dask array."""
        task = dask.delayed((likelihood, recipe, np.asarray(numbers, dtype=np.int64)))
        chunks = [
            dask.array.from_delayed(
                dask.delayed(_chunk_labels)(chunk, bounds, first, task),
                shape=(bounds[-1],),
                dtype=np.int64,
            )
            for chunk, bounds, first in zip(
                self.source.to_delayed().ravel(), self.bounds, self.first_blocks, strict=True
            )
        ]
        return dask.array.concatenate(chunks)


def _client():
    """The client of the cluster that dask works on, if there is one."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _places(client, chunks):
    """Numbers of the chunks that one thread is to visit: those on its worker, dealt in turn."""
    from distributed import wait

    wait(chunks)
    holders = client.who_has(chunks)
    n_threads = client.nthreads()
    held = {}
    for c, chunk in enumerate(chunks):
        held.setdefault(min(holders[chunk.key], default=None), []).append(c)
    return [
        place
        for worker, numbers in held.items()
        for place in (
            numbers[t :: n_threads.get(worker, 1)] for t in range(n_threads.get(worker, 1))
        )
        if place
    ]


# What is done where the chunks are.


def _over_chunks(chunks, bounds, first_blocks, function, arguments):
    return [
        _over_blocks(*chunk, function, arguments)
        for chunk in zip(chunks, bounds, first_blocks, strict=True)
    ]


def _over_blocks(X, bounds, first_block, function, arguments):
    return [
        function(X[start:stop], first_block + j, *arguments)
        for j, (start, stop) in enumerate(pairwise(bounds))
    ]


def _summarise(X, block, likelihood):
    return summarise_block(likelihood, X)


def _log_constant(X, block, likelihood):
    return likelihood.log_constant(X)


def _codes(X, block, likelihood, recipe):
    """The codes of a block of rows from their recipe."""
    if recipe["task"] is None:
        codes = np.zeros(X.shape[0], dtype=np.int32)
    else:
        held = recipe["held"].get(block)
        codes = visit_block(likelihood, X, None, recipe["task"], recipe["key"], block, held)[0]
    return change_codes(codes, recipe["changes"], block)


def _visit(X, block, likelihood, recipe, task, key):
    codes = held = None
    if task["sweep"] is None or task["held"]:
        codes = _codes(X, block, likelihood, recipe)
    if task["held"]:
        held = held_rows(codes, task["held"])
    return *visit_block(likelihood, X, codes, task, key, block, held)[1:], held


def _chunk_labels(X, bounds, first_block, task):
    likelihood, recipe, numbers = task
    codes = _over_blocks(X, bounds, first_block, _codes, (likelihood, recipe))
    return numbers[np.concatenate([np.empty(0, dtype=np.int32), *codes]) >> 1]


# Lazy predictions.


def lazily(function, X, dtype, n_columns=None):
    """function(rows) over the chunks of X, as a lazy dask array.

    Parameters
    ----------
    function : callable
        Of an array of rows; gives an entry per row, or `n_columns` of them.
    X : dask.array.Array of shape (n_samples, n_features)
    dtype : dtype
        Of the result.
    n_columns : int or None
    """
    X = X.rechunk({1: -1})
    shape = (0,) if n_columns is None else (0, n_columns)
    layout = {"drop_axis": 1} if n_columns is None else {"chunks": (X.chunks[0], (n_columns,))}
    empty = np.empty(shape, dtype=dtype)
    return X.map_blocks(_of_block, function, empty, dtype=dtype, meta=empty, **layout)


def _of_block(X, function, empty):
    return function(X) if X.shape[0] else empty
