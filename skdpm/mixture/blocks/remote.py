# SPDX-License-Identifier: BSD-3-Clause
"""What is done with the blocks of a dask array where they are.

On a cluster each worker has a `Place`: which chunks it visits, in which order it takes their rows,
and the codes that it drew last. It is the result of a task, so that dask drops it with the chunks.
Nothing is lost with it that cannot be computed again: codes follow from a recipe
(`dask_rows.Recipe`), and are taken from the store only where they were drawn by the same sweep, of
the same streams and with the same rows held back.
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

# Of codes, that a worker keeps for one fit; a row and chain takes two, or four with many clusters.
STORE_BYTES = 2**28


class Lost(Exception):
    """A worker does not have what it is asked for, any more."""


# Blocks.


def blocks_of(chunks):
    """Yield (rows, number, first row) of each block of some chunks.

    Parameters
    ----------
    chunks : iterable of (array, bounds, first_block, start)
        Rows of a chunk, bounds of its blocks within it, the number of the first of these, and the
        number of the first row.
    """
    for X, bounds, first_block, start in chunks:
        for j, (low, high) in enumerate(pairwise(bounds)):
            yield X[low:high], first_block + j, start + low


def visit_by_recipe(X, block, start, store, likelihood, recipe, task, key, name):
    """Do a task on a block.

    Parameters
    ----------
    X : array of shape (n_rows, n_features)
    block, start : int
        Its number, and that of its first row.
    store : BlockStore or None
    likelihood : Likelihood
    recipe : Recipe or None
        Of the codes so far. None where they are not needed.
    task : Task
    key : tuple of int, or None
    name : bytes
        Of the sweep, from `sweep_name`.

    Returns
    -------
    collected : Collected
    held : Held or None
        Rows that were held back.
    """
    codes = held = None
    if recipe is not None:
        codes = recipe_codes(X, block, likelihood, recipe, store)
        held = Held.of_clusters(codes, task.held_clusters)
    orders = None if store is None else store.orders
    codes, collected = visit_block(likelihood, X, codes, task, key, block, held, orders)
    if store is not None and task.sweep is not None:
        store.put((key[:-1], block), name, held, codes)
    return numbered_from(collected, start), held


def recipe_codes(X, block, likelihood, recipe, store=None):
    """Return the codes of a block of rows from their recipe."""
    if recipe.task is None:
        codes = np.zeros(X.shape[0], dtype=np.int32)
    else:
        where, held = (recipe.key[:-1], block), recipe.held.get(block)
        name = None if store is None else sweep_name(recipe.task, recipe.key)
        codes = None if store is None else store.find(where, name, held)
        if codes is None:
            orders = None if store is None else store.orders
            codes, _ = visit_block(
                likelihood, X, None, recipe.task, recipe.key, block, held, orders
            )
            if store is not None:
                store.put(where, name, held, codes)
    if not recipe.changes:
        return codes
    return change_codes(codes, recipe.changes, block, likelihood.parametric(X))


def launch_by_recipe(X, block, start, store, likelihood, recipe, launch, key):
    """Have the rows of a block draw sides: Sides."""
    codes = recipe_codes(X, block, likelihood, recipe, store)
    return launch_block(likelihood, X, codes, launch, key, block, start)


def sweep_name(task, key):
    """Return what tells the codes that a task draws from those of any other: bytes.

    Rows held back are not told: they depend on the codes before, and are compared one by one.
    """
    digest = hashlib.blake2b(digest_size=16)
    _feed(digest, (task, key))
    return digest.digest()


def _feed(digest, value):
    """Feed a digest with what a value is, the same in all processes."""
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
    """Return what some blocks have collected together, and the rows that they held back.

    Parameters
    ----------
    likelihood : Likelihood
    no_rows : array of shape (0, n_features)
    n_blocks : int
        Of the whole array.
    results : list of (int, (Collected, Held or None))
        The number of each block, and what `visit_by_recipe` returned.

    Returns
    -------
    nodes : dict of (int, int) to Collected
        From `add_up`.
    held : dict of int to Held
    """
    nodes = {(0, block - 1): collected for block, (collected, _) in results}
    held = {block: rows for block, (_, rows) in results if rows}
    return add_up(likelihood.parametric(no_rows), nodes, n_blocks), held


class BlockStore:
    """What is kept of blocks while a fit lasts: the codes that chains have last drawn, and the
    orders in which rows are visited, four bytes a row. Threads share it.

    Two sweeps of each block and chain are kept, as a second visit of an iteration, in which rows
    are held back, asks for the codes from before the first. Where memory is short, what was not
    used for longest goes first.

    Parameters
    ----------
    n_bytes : int
        That the codes may take.

    Attributes
    ----------
    orders : dict
        See `visit_block`.
    """

    def __init__(self, n_bytes):
        self.n_bytes = n_bytes
        self.orders = {}
        self._size = 0
        self._sweeps = OrderedDict()  # (chain, block) -> list of (name, held, codes)
        self._lock = threading.Lock()

    def find(self, where, name, held):
        """Return the codes drawn by the sweep of this name, int32, or None.

        Parameters
        ----------
        where : tuple
            The chain and the block.
        name : bytes
            From `sweep_name`.
        held : Held or None
            The rows that it held back.
        """
        with self._lock:
            sweeps = self._sweeps.get(where, [])
            for j, (its_name, its_held, codes) in enumerate(sweeps):
                if its_name == name and _same(its_held, held):
                    self._sweeps.move_to_end(where)
                    sweeps.append(sweeps.pop(j))
                    return codes.astype(np.int32)
        return None

    def put(self, where, name, held, codes):
        """Keep codes in place of the older of two."""
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
    """What a worker has of a fit.

    Parameters
    ----------
    jobs : dict of int to tuple
        Key, bounds of the blocks, first block and first row of each of its chunks.
    worker : str
        Address of the worker. A place that is made elsewhere, since this one was lost, is of no
        use: its task fails, which tells the client.
    n_threads : int
    token_before : str or None
        Names the place that this one follows, and whose store it takes over.
    """

    def __init__(self, jobs, worker, n_threads, token_before):
        from distributed import get_worker

        if get_worker().address != worker:
            raise Lost(f"{worker} was lost before it was told of its chunks")
        before = get_worker().data.get(place_key(token_before, worker))
        self.jobs = jobs
        self.n_threads = n_threads
        self.store = BlockStore(STORE_BYTES) if before is None else before.store

    def __getstate__(self):
        # Where a worker is short of memory it writes values to disk: codes had better be dropped.
        return self.jobs, self.n_threads

    def __setstate__(self, state):
        self.jobs, self.n_threads = state
        self.store = BlockStore(STORE_BYTES)


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """What a worker has done.

    Parameters
    ----------
    chunks : tuple of int
        The chunks that it has visited.
    result : object
        Of their blocks.
    seconds : float
        That a thread took, on average.
    """

    chunks: tuple
    result: object
    seconds: float


async def call_place(token, which, function, arguments, finish, dask_worker=None):
    """Call a function for all blocks of a worker's chunks: see `DaskRows._exchange`.

    The threads are those of the worker, who shares them out between this and its tasks.

    Parameters
    ----------
    token : str
        Names the places that the client has told workers of.
    which : set of int, or None
        Chunks. None: all of the place.
    function, finish : callable
    arguments : tuple
    dask_worker : distributed.Worker
        Set by dask.

    Returns
    -------
    answer : Answer or Lost
    """
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
    """Visit blocks, as one of several threads, while there are any. Returns the number and result
    of each, and the seconds that this took."""
    began = time.perf_counter()
    try:
        results = [
            (block, function(X, block, start, store, *arguments)) for X, block, start in blocks
        ]
    except BaseException:
        blocks.close()  # no use in visiting the others
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
