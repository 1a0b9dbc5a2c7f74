# SPDX-License-Identifier: BSD-3-Clause
"""The rows of a fit in the chunks of a dask array, visited where they are.

On a cluster of `dask.distributed` a visit is one exchange: the scheduler sends the same message to
all workers that have chunks, and each answers with the statistics of its blocks. It uses no tasks,
as the scheduler needs milliseconds for one. This module decides which chunks each worker has;
`remote` is the part that runs on the workers.
"""

import contextlib
import threading
import time
import uuid
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import dask
import dask.array
import numpy as np

from skdpm.mixture.blocks import remote
from skdpm.mixture.blocks.records import Task
from skdpm.mixture.blocks.rows import Rows, add_up, add_up_sides, even_blocks

# Workers come and go. Time between searches for the chunks: this number of seconds, or this
# multiple of the duration of a search if that is longer.
SECONDS_PER_PLACING = 10.0
TIMES_PER_PLACING = 20.0

# Maximum number of consecutive attempts at a visit in which no worker answers, and seconds before
# the first of these, which double.
MOST_FAILURES = 10
PAUSE = 0.01

# Seconds in which no worker is at work on tasks that are needed, after which a fit ends with an
# error, and seconds between two looks. After half the time the chunks are computed anew: after the
# loss of all workers the scheduler may have forgotten tasks.
LONGEST_IDLE = 60.0
LOOK = 2.0

# Minimum relative gain of the slower of two workers for which a chunk moves to the other.
LEAST_GAIN = 0.15


@dataclass(frozen=True, slots=True)
class Recipe:
    """Recipe of the codes of all rows (doc/design.md); by default all rows are in one cluster."""

    task: Task | None = None  # with the last sweep
    key: tuple | None = None  # of its random streams
    held: dict = field(default_factory=dict)  # block -> Held, rows that it held back
    changes: tuple = ()  # changes since then: Relabelling, RandomSplit or LaunchedSplit


class DaskRows(Rows):
    """Rows of a dask array, cut along the rows only in chunks of known sizes (`check_dask`); codes
    are a `Recipe`. With `dask.distributed`, chunks are persisted while this object lives.

    Each chunk is cut into blocks of at most `block_size` rows, like an array in memory. Equal
    blocks give equal results, to the bit.
    """

    keeps_labels = False

    def __init__(self, X, block_size):
        self.source = X
        self._make = None  # makes the blocks that chains visit from those of X
        self._first_row = None
        self.n_samples = X.shape[0]
        starts = np.concatenate([[0], np.cumsum(X.chunks[0])])
        # Bounds of the blocks of each chunk.
        self.bounds = [
            even_blocks(stop - start, block_size) if stop > start else np.zeros(1, dtype=int)
            for start, stop in pairwise(starts)
        ]
        n_blocks = np.array([len(bounds) - 1 for bounds in self.bounds])
        self.n_blocks = int(n_blocks.sum())
        self.first_rows = np.concatenate(
            [start + bounds[:-1] for start, bounds in zip(starts[:-1], self.bounds, strict=True)]
        )
        first_blocks = 1 + np.cumsum(n_blocks) - n_blocks
        self.jobs = [
            (*job, np.ndarray)
            for job in zip(self.bounds, first_blocks.tolist(), starts[:-1].tolist(), strict=True)
        ]
        self.client = _find_client()
        self.store = remote.BlockStore()  # of the blocks that no worker has
        self.chunks = self._begun()
        self._lock = threading.Lock()  # guards the next two, which chains share
        self._placing = None
        self._paces = {}  # minimum seconds per row of each worker since the last placing

    def _delayed(self):
        chunks = list(self.source.to_delayed().ravel())
        if self._make is None:
            return chunks
        make = dask.delayed(self._make, traverse=False)
        return [
            dask.delayed(_made)(chunk, job[0], make)
            for chunk, job in zip(chunks, self.jobs, strict=True)
        ]

    def _begun(self):
        """The chunks; on a cluster, futures of them."""
        chunks = self._delayed()
        return chunks if self.client is None else self.client.compute(chunks)

    def _map(self, function, *arguments):
        pieces = self._exchange(_call_plainly, (function, *arguments), list)
        results = dict(pair for piece in pieces for pair in piece)
        return [results[block] for block in range(1, self.n_blocks + 1)]

    def _exchange(self, function, arguments, finish, paced=False):
        """Call a function for all blocks and combine the results of each worker on the worker:
        list of what `finish` returned, in any order.

        The function takes the rows of a block, its number, the number of its first row, a
        `BlockStore`, and `arguments`; `finish` takes a list of (number of the block,
        result). If the exchange is `paced`, its duration measures the speed of workers.
        """
        if self.client is None:
            tasks = [
                dask.delayed(_visit_chunk, pure=False)(
                    chunk, job, self.store, function, arguments, finish
                )
                for chunk, job in zip(self.chunks, self.jobs, strict=True)
            ]
            return dask.compute(*tasks, optimize_graph=False, traverse=False)
        pieces, n_failures = [], 0
        missing = {c for c, bounds in enumerate(self.bounds) if len(bounds) > 1}
        while missing:
            placing = self._current_placing()
            answers = self.client.run(
                remote.call_place,
                placing.token,
                missing if pieces else None,
                function,
                arguments,
                finish,
                workers=placing.called,
                on_error="return",
            )
            # A worker that has gone gives no answer.
            answers = {
                worker: answers.get(worker, remote.Lost(f"{worker} has gone"))
                for worker, chunks in placing.chunks.items()
                if not missing.isdisjoint(chunks)
            }
            done = [
                worker for worker, answer in answers.items() if isinstance(answer, remote.Answer)
            ]
            for worker in done:
                pieces.append(answers[worker].result)
                missing.difference_update(answers[worker].chunks)
            if paced:
                with self._lock:
                    for worker in done:
                        n_rows = sum(int(self.bounds[c][-1]) for c in answers[worker].chunks)
                        pace = answers[worker].seconds / n_rows
                        self._paces[worker] = min(pace, self._paces.get(worker, np.inf))
            if missing:
                n_failures = 0 if done else n_failures + 1
                self._refuse(answers, n_failures)
                self._forget(placing)
                if not done:
                    time.sleep(PAUSE * 2.0**n_failures)  # a lost worker is soon known to be one
        return pieces

    def _refuse(self, answers, n_failures):
        """Raise an error that a worker has raised, except for lost workers."""
        error = remote.Lost("chunks are on no worker")
        for answer in answers.values():
            if isinstance(answer, (remote.Lost, OSError)):
                error = answer
            elif isinstance(answer, Exception):
                raise answer
        if n_failures > MOST_FAILURES:
            raise RuntimeError(
                f"no worker of the Dask cluster could visit its rows in {n_failures} attempts, at "
                f"last because {error}. Look into the logs of the workers, which may lack memory; "
                "then fit again"
            ) from error

    def _current_placing(self):
        """Return the places of the chunks for one exchange; other chains may change them."""
        with self._lock:
            if self._placing is None or not self._placing.is_good():
                try:
                    self._placing = self._place()
                except Idle:
                    self.chunks = []  # the futures, so that tasks of the same names are new
                    self.chunks = self._begun()
                    self._placing = self._place()
            return self._placing

    def _forget(self, placing):
        with self._lock:
            if self._placing is placing:
                self._placing = replace(placing, expiry=-np.inf)

    def _place(self):
        """Find the chunks, move some if that helps, and send workers the list of theirs."""
        began = time.monotonic()
        n_threads = self.client.nthreads()
        chunks_of = self._find_chunks(n_threads)
        sizes = [int(bounds[-1]) for bounds in self.bounds]
        paces, self._paces = self._paces, {}
        moved = moves(chunks_of, sizes, all_paces(paces, n_threads))
        for c, worker in moved.items():
            # The scheduler still knows how the chunk was made.
            self.chunks[c] = self.client.submit(
                _itself, self.chunks[c], workers=[worker], allow_other_workers=True, pure=False
            )
        if moved:
            chunks_of = self._find_chunks(n_threads)
        token = f"skdpm-place-{uuid.uuid4().hex}"
        chunks_of = {worker: chunks for worker, chunks in chunks_of.items() if chunks}
        places = [
            self.client.submit(
                remote.Place,
                {c: (self.chunks[c].key, *self.jobs[c]) for c in chunks},
                worker,
                n_threads[worker],
                None if self._placing is None else self._placing.token,
                key=remote.place_key(token, worker),
                workers=[worker],
                allow_other_workers=True,
            )
            for worker, chunks in chunks_of.items()
        ]
        _wait(self.client, places, LONGEST_IDLE / 2)
        now = time.monotonic()
        expiry = now + max(SECONDS_PER_PLACING, TIMES_PER_PLACING * (now - began))
        # A message to a worker that has gone waits for it. So call all workers that the scheduler
        # knows, unless few of them have chunks.
        called = None if 2 * len(chunks_of) >= len(n_threads) else list(chunks_of)
        return Placing(token, chunks_of, called, places, expiry)

    def _find_chunks(self, workers):
        """Return the numbers of each worker's chunks; lost chunks are computed again."""
        _wait(self.client, self.chunks, LONGEST_IDLE / 2)
        for chunk in self.chunks:
            if chunk.status == "error":
                chunk.result()
        holders = self.client.who_has(self.chunks)
        chunks_of = {worker: [] for worker in workers}
        for c, chunk in enumerate(self.chunks):
            known = [worker for worker in holders.get(chunk.key, ()) if worker in chunks_of]
            if known and len(self.bounds[c]) > 1:
                chunks_of[min(known)].append(c)
        return chunks_of

    def condense(self, likelihood):
        # Without a cluster all that is done to chunks is done again in every visit.
        make = likelihood.as_seen if self.client is None else likelihood.condense
        first_row = make(self.first_row())
        if first_row is None or first_row is self.first_row():
            return
        self._make, self._first_row = make, first_row
        self.jobs = [(*job[:-1], type(first_row)) for job in self.jobs]
        self.chunks = self._begun()
        if self._placing is not None:
            self._forget(self._placing)

    def first_row(self):
        if self._first_row is None:
            self._first_row = self.fetch(self.source[:1])
        return self._first_row

    def fetch(self, rows):
        """Compute some rows, a dask array."""
        if self.client is None:
            return rows.compute()
        future = self.client.compute(rows)
        _wait(self.client, [future], LONGEST_IDLE)
        return future.result()

    def codes(self, labels):
        """Return the recipe of a single cluster, the only labels that need no array."""
        if labels is not None:
            raise ValueError("a dask array cannot start from labels; pass labels=None")
        return Recipe()

    def visit(self, likelihood, codes, task, key):
        no_rows = self.first_row()[:0]
        recipe = codes if task.sweep is None or task.held_clusters else None
        # Held rows are kept by number, so that a recipe does not depend on an earlier one.
        drawn = replace(task, splits=(), held_clusters=())
        pieces = self._exchange(
            remote.visit_by_recipe,
            (likelihood, recipe, task, key, remote.sweep_name(drawn, key)),
            partial(remote.add_up_visits, likelihood, no_rows, self.n_blocks),
            paced=task.sweep is not None,
        )
        nodes, held = {}, {}
        for some_nodes, some_held in pieces:
            nodes.update(some_nodes)
            held.update(some_held)
        (collected,) = add_up(likelihood.parametric(no_rows), nodes, self.n_blocks).values()
        if task.sweep is not None:
            codes = Recipe(task=drawn, key=key, held=held)
        return codes, collected

    def launch(self, likelihood, codes, launch, key):
        pieces = self._exchange(remote.launch_by_recipe, (likelihood, codes, launch, key), list)
        parts = dict(pair for piece in pieces for pair in piece)
        return add_up_sides(likelihood.parametric(self.first_row()[:0]), parts)

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
                dask.delayed(_chunk_labels)(chunk, job, source),
                shape=(job[0][-1],),
                dtype=np.int64,
            )
            for chunk, job in zip(self._delayed(), self.jobs, strict=True)
        ]
        return dask.array.concatenate(chunks)


def check_dask(X, sampler, *, init, point_estimate):
    """Return X, a dask array, with chunks of known sizes that are cut along the rows only.

    Raises ValueError if the settings do not support this dask array; it names an alternative.
    """
    if sampler.needs_labels:
        raise ValueError(
            f"{sampler!r} needs the previous label of each row, and labels are not kept for a "
            "dask array; choose SubCluster()"
        )
    if point_estimate not in ("auto", "last", "map"):
        raise ValueError(
            f"point_estimate={point_estimate!r} needs the kept partitions, and label "
            'draws are not kept for a dask array; choose point_estimate="auto", "last" or "map"'
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
    with contextlib.suppress(ImportError, ValueError):
        from distributed import default_client

        return default_client()


class Idle(RuntimeError):
    """No worker is at work on tasks that are needed."""


def _wait(client, futures, longest_idle):
    """Wait until futures are done.

    Raises Idle if no worker has been at work on them for so many seconds.
    Raises RuntimeError if their data are lost and cannot be computed again.
    """
    from distributed import CancelledError, wait

    begun = time.monotonic()
    while True:
        try:
            wait(futures, timeout=LOOK)
            return
        except CancelledError as error:
            raise RuntimeError(
                "chunks of X are lost with the workers that had them, and Dask cannot make them "
                "again, because they were scattered or their graph is gone. Make X of what "
                "workers can read again, such as files or dask.delayed functions, and fit again"
            ) from error
        except TimeoutError:
            pending = [future.key for future in futures if future.status == "pending"]
            n_workers, at_work = client.run_on_scheduler(_progress, pending)
            if at_work:
                begun = time.monotonic()
            elif time.monotonic() - begun > longest_idle:
                there = f"has {n_workers} workers, which get no task"
                raise Idle(
                    f"X needs workers, and the Dask cluster {there if n_workers else 'has none'}, "
                    f"for {LONGEST_IDLE:g} seconds now. Look into the logs of the workers, which "
                    "may lack memory; start workers, and fit again"
                ) from None


def _progress(keys, dask_scheduler):
    """Return the number of workers, and whether one is at work on a task or on what it needs, or
    will be after other tasks."""
    n_workers = len(dask_scheduler.workers)
    found = [dask_scheduler.tasks[key] for key in keys if key in dask_scheduler.tasks]
    seen = set(found)
    while found:
        task = found.pop()
        if task.state in ("processing", "queued") and n_workers > 0:
            return n_workers, True
        more = {needed for needed in task.dependencies if needed.state != "memory"} - seen
        seen |= more
        found.extend(more)
    return n_workers, False


@dataclass(frozen=True, slots=True)
class Placing:
    """Assignment of chunks to workers."""

    token: str  # name of the places
    chunks: dict  # worker -> numbers of its chunks
    called: list | None  # workers that are called in an exchange; None: all
    places: list  # futures of the places, each of which fails if its worker is lost
    expiry: float  # time of the next search, in seconds of `time.monotonic`

    def is_good(self):
        """Whether all workers are there, as far as known without asking."""
        in_time = time.monotonic() < self.expiry
        return in_time and all(place.status == "finished" for place in self.places)


def all_paces(paces, n_threads):
    """Return the seconds per row of each worker in `n_threads`, from those known, `paces`. For
    others it is the median of the known ones at the same number of threads."""
    known = [pace * n_threads[worker] for worker, pace in paces.items() if worker in n_threads]
    usual = float(np.median(known)) if known else 1.0
    return {worker: paces.get(worker, usual / max(n, 1)) for worker, n in n_threads.items()}


def moves(chunks_of, sizes, paces):
    """Choose chunks to move between workers: dict of the new worker of each chunk that moves.

    The slowest worker gives chunks away as long as both then need less than its present time by
    `LEAST_GAIN`. Results do not depend on places. `chunks_of` has the numbers of the chunks of
    each worker, `sizes` their numbers of rows, and `paces` the seconds per row of each worker.
    """
    chunks_of = {worker: list(chunks) for worker, chunks in chunks_of.items()}
    seconds = {w: paces[w] * sum(sizes[c] for c in chunks) for w, chunks in chunks_of.items()}
    moved = {}
    # The loop ends: in descending order, the workers' seconds fall lexicographically at each turn,
    # and there are finitely many ways to distribute the chunks.
    while seconds:
        slowest = max(seconds, key=seconds.get)
        if not chunks_of[slowest]:
            break
        c = min(chunks_of[slowest], key=sizes.__getitem__)
        other = min(seconds, key=lambda worker: seconds[worker] + paces[worker] * sizes[c])
        if seconds[other] + paces[other] * sizes[c] > (1.0 - LEAST_GAIN) * seconds[slowest]:
            break
        chunks_of[slowest].remove(c)
        chunks_of[other].append(c)
        seconds[slowest] -= paces[slowest] * sizes[c]
        seconds[other] += paces[other] * sizes[c]
        moved[c] = other
    return moved


# Functions that run where the chunks are; more are in `remote`.


def _itself(chunk):
    return chunk


def _made(chunk, bounds, make):
    parts = [make(chunk[slice(*pair)]) for pair in pairwise(bounds)]
    return np.concatenate(parts) if parts else chunk


def _visit_chunk(X, job, store, function, arguments, finish):
    return finish(
        [
            (block, function(rows, block, start, store, *arguments))
            for rows, block, start in remote.blocks_of([(X, *job)])
        ]
    )


def _call_plainly(X, block, start, store, function, *arguments):
    return function(X, block, *arguments)


def _chunk_labels(X, job, source):
    likelihood, recipe, cluster_numbers = source
    store = remote.BlockStore(0)
    codes = [
        remote.recipe_codes(rows, block, likelihood, recipe, store)
        for rows, block, _ in remote.blocks_of([(X, *job)])
    ]
    return cluster_numbers[np.concatenate([np.empty(0, dtype=np.int32), *codes]) >> 1]
