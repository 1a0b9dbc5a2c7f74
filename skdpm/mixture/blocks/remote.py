# SPDX-License-Identifier: BSD-3-Clause
"""The part of visits to a dask array that runs where its blocks are.

On a cluster each worker has a `Place`: the chunks that it visits, the orders of their rows, and
the codes that it drew last. It is the result of a task, so that dask drops it with the chunks. All
of it can be computed again: codes follow from a recipe (`dask_rows.Recipe`). The store gives codes
only if they were drawn by the same sweep, on the same streams, with the same rows held back.
"""

import asyncio
import dataclasses
import hashlib
import pickle
import threading
import time
from collections import OrderedDict
from itertools import pairwise

import numpy as np

from skdpm.mixture.blocks.records import Held, change_codes
from skdpm.mixture.blocks.rows import add_up, launch_block, numbered_from, visit_block

# Memory for a fit's codes in a process; a row takes two bytes per chain, four with many clusters.
STORE_BYTES = 2**28


class Lost(Exception):
    """A worker no longer has the data that a message refers to."""


# Blocks.


def blocks_of(chunks):
    """Yield (rows, number, first row) of each block of chunks: tuples of the rows of a chunk, the
    bounds of its blocks within it, the number of the first of these, that of the first row, and
    the subclass of ndarray that rows have (Dask loses it)."""
    for X, bounds, first_block, start, kind in chunks:
        rows = X.view(kind) if isinstance(X, np.ndarray) else X
        for j, (low, high) in enumerate(pairwise(bounds)):
            yield rows[low:high], first_block + j, start + low


def visit_by_recipe(X, block, start, store, likelihood, recipe, task, key, name):
    """Do a task on a block; for other parameters see `visit_block`.

    Without a recipe the codes so far are not needed; `name` is the `sweep_name`. Returns
    `Collected` statistics and the rows that were held back, `Held` or None.
    """
    codes = held = None
    if recipe is not None:
        codes = recipe_codes(X, block, likelihood, recipe, store)
        held = Held.of_clusters(codes, task.held_clusters)
    codes, collected = visit_block(likelihood, X, codes, task, key, block, held, store.orders)
    if task.sweep is not None:
        store.put((key[:-1], block), name, held, codes)
    return numbered_from(collected, start), held


def recipe_codes(X, block, likelihood, recipe, store):
    """Return the codes of a block of rows from their recipe."""
    if recipe.task is None:
        codes = np.zeros(X.shape[0], dtype=np.int32)
    else:
        where, held = (recipe.key[:-1], block), recipe.held.get(block)
        name = sweep_name(recipe.task, recipe.key)
        codes = store.find(where, name, held)
        if codes is None:
            codes, _ = visit_block(
                likelihood, X, None, recipe.task, recipe.key, block, held, store.orders
            )
            store.put(where, name, held, codes)
    if not recipe.changes:
        return codes
    return change_codes(codes, recipe.changes, block, likelihood.parametric(X))


def launch_by_recipe(X, block, start, store, likelihood, recipe, launch, key):
    """Draw sides for the rows of a block: Sides."""
    codes = recipe_codes(X, block, likelihood, recipe, store)
    return launch_block(likelihood, X, codes, launch, key, block, start)


def sweep_name(task, key):
    """Return bytes that identify the codes drawn by a task, except for rows held back, which
    depend on the previous codes."""
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, (task, key))
    return digest.digest()


def _feed(digest, value):
    """Feed a digest with a value, in the same way in all processes."""
    if dataclasses.is_dataclass(value):
        value = tuple(getattr(value, field.name) for field in dataclasses.fields(value))
    if isinstance(value, tuple):
        digest.update(b"tuple%d" % len(value))
        for item in value:
            _feed(digest, item)
    elif isinstance(value, np.ndarray):
        digest.update(f"{value.dtype.str}{value.shape}".encode())
        digest.update(np.ascontiguousarray(value))
    else:
        digest.update(pickle.dumps(value))


def add_up_visits(likelihood, no_rows, n_blocks, results):
    """Add up the statistics of blocks, and list the rows that they held back.

    `results` are tuples of the number of a block and the result of `visit_by_recipe`; `no_rows` is
    an array of shape (0, n_features). Returns the nodes of `add_up` for `n_blocks` blocks in all,
    and a dict of block to `Held`.
    """
    nodes = {(0, block - 1): collected for block, (collected, _) in results}
    held = {block: rows for block, (_, rows) in results if rows}
    return add_up(likelihood.parametric(no_rows), nodes, n_blocks), held


class BlockStore:
    """Store of blocks during a fit: the codes that chains drew last, and the orders in which rows
    are visited, of four bytes a row. Codes take at most `n_bytes`. Threads share it.

    It keeps two sweeps of each block and chain: the second visit of an iteration, in which rows
    are held back, needs the codes from before the first. If memory is short, the codes that have
    not been used for longest are dropped.
    """

    def __init__(self, n_bytes=STORE_BYTES):
        self.n_bytes = n_bytes
        self.orders = {}
        self._size = 0
        self._sweeps = OrderedDict()  # (chain, block) -> list of (name, held, codes)
        self._lock = threading.Lock()

    def __reduce__(self):
        # A worker short of memory writes values to disk; it is better to drop codes.
        return BlockStore, (self.n_bytes,)

    def find(self, where, name, held):
        """Return the codes, int32, that the sweep of a name drew for `where`, a chain and a block,
        when it held back the rows `held`; None if they are not stored."""
        with self._lock:
            sweeps = self._sweeps.get(where, [])
            for j, (its_name, its_held, codes) in enumerate(sweeps):
                if its_name == name and _same(its_held, held):
                    self._sweeps.move_to_end(where)
                    sweeps.append(sweeps.pop(j))
                    return codes.astype(np.int32)
        return None

    def put(self, where, name, held, codes):
        """Store codes in place of the older of two."""
        small = codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
        with self._lock:
            sweeps = self._sweeps.setdefault(where, [])
            self._sweeps.move_to_end(where)
            sweeps.append((name, held, small))
            self._size += small.nbytes
            if len(sweeps) > 2:
                self._size -= sweeps.pop(0)[2].nbytes
            while self._size > self.n_bytes:
                _, gone = self._sweeps.popitem(last=False)
                self._size -= sum(codes.nbytes for _, _, codes in gone)


def _same(one, other):
    if one is None or other is None:
        return one is other
    return np.array_equal(one.rows, other.rows) and np.array_equal(one.codes, other.codes)


# On a worker.


class Place:
    """Data of a fit on a worker. `jobs` has the key of each of its chunks, and what `blocks_of`
    takes besides its rows. It takes over the store of the previous place, if there was one.

    If the place is made again elsewhere because the worker was lost, its task fails, which informs
    the client.
    """

    def __init__(self, jobs, worker, n_threads, token_before):
        from distributed import get_worker

        if get_worker().address != worker:
            raise Lost(f"{worker} was lost before it received its list of chunks")
        before = get_worker().data.get(place_key(token_before, worker))
        self.jobs = jobs
        self.n_threads = n_threads
        self.store = BlockStore() if before is None else before.store


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """Answer of a worker in an exchange."""

    chunks: tuple  # numbers of the chunks that it has visited
    result: object  # combined result of their blocks
    seconds: float  # mean duration over its threads


async def call_place(token, which, function, arguments, finish, dask_worker=None):
    """Call a function for all blocks of a worker's chunks, or of those in `which`, on the threads
    that also run its tasks: see `DaskRows._exchange`. Returns an `Answer` or `Lost`. `token` is
    the name of the places; dask sets `dask_worker`."""
    data = dask_worker.data
    place = data.get(place_key(token, dask_worker.address))
    if place is None:
        return Lost(f"{dask_worker.address} does not know of {token}")
    jobs = {c: job for c, job in place.jobs.items() if which is None or c in which}
    chunks = ((_chunk(data, key), *job) for key, *job in jobs.values())
    blocks = _Shared(blocks_of(chunks))
    loop, pool = asyncio.get_running_loop(), dask_worker.executors["default"]
    try:
        strands = await asyncio.gather(
            *(
                loop.run_in_executor(pool, _strand, blocks, function, place.store, arguments)
                for _ in range(place.n_threads)
            )
        )
        results = [result for results, _ in strands for result in results]
        result = await loop.run_in_executor(pool, finish, results)
    except Lost as error:
        return error
    seconds = sum(seconds for _, seconds in strands) / len(strands)
    return Answer(tuple(jobs), result, seconds)


def place_key(token, worker):
    """Return the key of a worker's place."""
    return f"{token}-{worker}"


def _chunk(data, key):
    try:
        return data[key]
    except KeyError:
        raise Lost(f"chunk {key} has gone") from None


def _strand(blocks, function, store, arguments):
    """Visit blocks, as one of several threads, until none are left. Returns the number and result
    of each, and the duration in seconds."""
    began = time.perf_counter()
    try:
        results = [
            (block, function(X, block, start, store, *arguments)) for X, block, start in blocks
        ]
    except BaseException:
        blocks.close()  # the other blocks are not needed
        raise
    return results, time.perf_counter() - began


class _Shared:
    """A generator that several threads take from."""

    def __init__(self, generator):
        self._generator = generator
        self._lock = threading.Lock()

    def __iter__(self):
        return self

    def __next__(self):
        with self._lock:
            return next(self._generator)

    def close(self):
        with self._lock:
            self._generator.close()
