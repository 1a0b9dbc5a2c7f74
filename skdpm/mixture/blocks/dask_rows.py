# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit in the chunks of a dask array, visited where they are.

Labels are not kept anywhere. What a chain holds of them, its *recipe*, is the sweep that last drew
them, small arrays and the key of its random streams, the few rows that it held back, and the
changes made since: with the rows it gives the labels again, to the bit. So a worker that is lost
costs the work it did, and nothing else.
"""

import threading
from dataclasses import dataclass, field, replace
from itertools import pairwise

import dask
import dask.array
import numpy as np

from skdpm.mixture.blocks.records import Held, Task, change_codes
from skdpm.mixture.blocks.rows import (
    Rows,
    add_up,
    add_up_sides,
    even_blocks,
    launch_block,
    visit_block,
)

# Chunks are looked for anew after so many maps: workers come and go.
MAPS_PER_PLACING = 20


@dataclass(frozen=True, slots=True)
class Recipe:
    """What the codes of all rows follow from; the default has them all in one cluster.

    Parameters
    ----------
    task : Task or None
        With the last sweep.
    key : tuple of int or None
        Of its random streams.
    held : dict of int to Held
        Rows that it held back, by the number of the block.
    changes : tuple of Relabelling or RandomSplit
        Since then.
    """

    task: Task | None = None
    key: tuple | None = None
    held: dict = field(default_factory=dict)
    changes: tuple = ()


class DaskRows(Rows):
    """Rows of a dask array; codes are a `Recipe`.

    Each chunk is cut into blocks as an array in memory is. Where the blocks are the same, so are
    the results, to the bit.

    Parameters
    ----------
    X : dask.array.Array of shape (n_samples, n_features)
        Its chunks may be cut along the rows only, and have known sizes (`check_dask`). On a
        cluster of `dask.distributed` they are persisted while this object lives.
    block_size : int
        Most rows in a block.
    """

    keeps_labels = False

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
        self.first_rows = np.concatenate(
            [start + bounds[:-1] for start, bounds in zip(starts, self.bounds, strict=False)]
        )
        self.client = _find_client()
        self.chunks = list(X.to_delayed().ravel())
        if self.client is not None:
            self.chunks = self.client.compute(self.chunks)
        self._placing = threading.Lock()  # of the next two, which chains share
        self._n_maps = 0
        self._places = None

    def _map(self, function, *arguments):
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
        places = self._current_places()
        tasks = []
        for place in places:
            chunks, *others = (
                [values[c] for c in place]
                for values in (self.chunks, self.bounds, self.first_blocks)
            )
            tasks.append(
                self.client.submit(_over_chunks, chunks, *others, function, arguments, pure=False)
            )
        parts = [None] * len(self.chunks)
        for place, results in zip(places, self.client.gather(tasks), strict=True):
            for c, result in zip(place, results, strict=True):
                parts[c] = result
        return parts

    def _current_places(self):
        """Where the chunks are, for one whole map: meanwhile another chain may look anew."""
        with self._placing:
            if self._n_maps % MAPS_PER_PLACING == 0:
                self._places = _find_places(self.client, self.chunks)
            self._n_maps += 1
            return self._places

    def first_row(self):
        if self._first_row is None:
            self._first_row = self.source[:1].compute()
        return self._first_row

    def codes(self, labels):
        """Return the recipe of labels that are all equal, the only ones to start from."""
        if labels is not None:
            raise ValueError("chains on dask arrays start from a single cluster")
        return Recipe()

    def visit(self, likelihood, codes, task, key):
        parts = self._map(_visit_by_recipe, likelihood, codes, task, key)
        if task.sweep is not None:
            # Held rows by number, not by the clusters they were in: no recipe needs another.
            codes = Recipe(
                task=replace(task, splits=(), held_clusters=()),
                key=key,
                held={block + 1: held for block, (_, held) in enumerate(parts) if held},
            )
        model = likelihood.parametric(self.first_row()[:0])
        return codes, add_up(model, [collected for collected, _ in parts], self.first_rows)

    def launch(self, likelihood, codes, launch, key):
        parts = self._map(_launch_by_recipe, likelihood, codes, launch, key)
        model = likelihood.parametric(self.first_row()[:0])
        return add_up_sides(model, parts, self.first_rows)

    def changed(self, codes, changes, likelihood=None):
        return replace(codes, changes=(*codes.changes, *changes))

    def keep(self, codes):
        return codes

    def kept_labels(self, kept, cluster_numbers, likelihood):
        """Return the number of each row's cluster, as a lazy dask array."""
        source = (likelihood, kept, np.asarray(cluster_numbers, dtype=np.int64))
        source = dask.delayed(source, traverse=False)
        chunks = [
            dask.array.from_delayed(
                dask.delayed(_chunk_labels)(chunk, bounds, first, source),
                shape=(bounds[-1],),
                dtype=np.int64,
            )
            for chunk, bounds, first in zip(
                self.source.to_delayed().ravel(), self.bounds, self.first_blocks, strict=True
            )
        ]
        return dask.array.concatenate(chunks)


def check_dask(X, sampler, *, init, point_estimate):
    """Return X with chunks of known sizes that are cut along the rows only.

    Parameters
    ----------
    X : dask.array.Array
    sampler : Sampler
    init, point_estimate : object
        The estimator's parameters.

    Raises
    ------
    ValueError
        Where a dask array, or this one, does not go together with the rest: names the way out.
    """
    if sampler.needs_labels:
        raise ValueError(
            f"{sampler!r} draws labels given the last ones, which are not kept for a dask "
            "array; choose super_clusters=False"
        )
    if isinstance(point_estimate, tuple) or point_estimate in ("peaks", "vi", "binder"):
        raise ValueError(
            f"point_estimate={point_estimate!r} needs the kept partitions, and label "
            'draws are not kept for a dask array; choose point_estimate="last" or "map"'
        )
    if not (isinstance(init, str) and init in ("auto", "single")):
        raise ValueError(f'a dask array needs init="auto" or "single", got {init!r}')
    if X.ndim != 2 or X.dtype.kind not in "biuf":
        raise ValueError(
            f"X must be a two-dimensional array of numbers, got shape {X.shape} and dtype "
            f"{X.dtype}"
        )
    X = X.rechunk({1: -1})
    if np.isnan(X.shape[0]):
        X = X.compute_chunk_sizes()
    if 0 in X.shape:
        raise ValueError(f"X must have rows and columns, got shape {X.shape}")
    return X


def _find_client():
    """Return the client of the cluster that dask works on; None where there is none."""
    try:
        from distributed import default_client

        return default_client()
    except (ImportError, ValueError):
        return None


def _find_places(client, chunks):
    """Return the numbers of the chunks that each thread is to visit: those on its worker, dealt
    in turn."""
    from distributed import wait

    wait(chunks)
    holders = client.who_has(chunks)
    n_threads = client.nthreads()
    chunks_of = {}
    for c, chunk in enumerate(chunks):
        chunks_of.setdefault(min(holders[chunk.key], default=None), []).append(c)
    return [
        place
        for worker, numbers in chunks_of.items()
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


def _recipe_codes(X, block, likelihood, recipe):
    """Return the codes of a block of rows from their recipe."""
    if recipe.task is None:
        codes = np.zeros(X.shape[0], dtype=np.int32)
    else:
        held = recipe.held.get(block)
        codes, _ = visit_block(likelihood, X, None, recipe.task, recipe.key, block, held)
    return change_codes(codes, recipe.changes, block, likelihood.parametric(X))


def _visit_by_recipe(X, block, likelihood, recipe, task, key):
    """Return what is collected in a block, and the rows that it holds back."""
    codes = held = None
    if task.sweep is None or task.held_clusters:
        codes = _recipe_codes(X, block, likelihood, recipe)
        held = Held.of_clusters(codes, task.held_clusters)
    return visit_block(likelihood, X, codes, task, key, block, held)[1], held


def _launch_by_recipe(X, block, likelihood, recipe, launch, key):
    codes = _recipe_codes(X, block, likelihood, recipe)
    return launch_block(likelihood, X, codes, launch, key, block)


def _chunk_labels(X, bounds, first_block, source):
    likelihood, recipe, cluster_numbers = source
    codes = _over_blocks(X, bounds, first_block, _recipe_codes, (likelihood, recipe))
    return cluster_numbers[np.concatenate([np.empty(0, dtype=np.int32), *codes]) >> 1]
