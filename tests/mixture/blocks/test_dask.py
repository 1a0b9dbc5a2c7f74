"""Fits of dask arrays: the bits of fits in memory, wherever chunks are computed and how often."""

import contextlib
import itertools
import os
import pickle
import signal
import threading
import time
import types
import warnings
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from support.designs import everyday
from support.fits import assert_same_fit

from skdpm import DPMixture, FeatureAllocation, FiniteMixture
from skdpm.mixture.samplers import PGSM, BlockedGibbs, SubCluster

dask = pytest.importorskip("dask", reason="dask is not installed")
da = pytest.importorskip("dask.array", reason="dask is not installed")
dd = pytest.importorskip("dask.dataframe", reason="dask.dataframe is not installed")
distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

# Needs dask.
from skdpm.mixture.blocks import dask_rows, program  # noqa: E402
from skdpm.mixture.blocks.dask_rows import DaskRows, Recipe, all_paces, moves  # noqa: E402
from skdpm.mixture.blocks.records import LaunchedSplit  # noqa: E402
from skdpm.mixture.blocks.remote import Answer, BlockStore, Lost, blocks_of, place_key  # noqa: E402
from skdpm.mixture.samplers import sub_cluster  # noqa: E402

# Importing and closing a cluster warns of its own affairs.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

# In memory chains would start elsewhere by default: where labels are kept, rows can be cut up.
SETTINGS = {
    "init": "single",
    "n_warmup": 8,
    "n_draws": 12,
    "n_chains": 2,
    "point_estimate": "last",
    "random_state": 0,
}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [9.0, 1.0], [-8.0, 5.0], [2.0, -9.0]])
    return rng.standard_normal((1200, 2)) + centres[rng.integers(0, 4, 1200)]


@pytest.fixture(autouse=True)
def no_warning_of_short_chains():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the chains have not mixed")
        yield


@pytest.mark.slow
@pytest.mark.parametrize("point_estimate", everyday(["last", "map"], "map"))
@pytest.mark.parametrize(
    "cls, sampler",
    everyday(
        [(DPMixture, SubCluster), (FiniteMixture, SubCluster), (FiniteMixture, BlockedGibbs)],
        *((DPMixture, SubCluster), (FiniteMixture, BlockedGibbs)),
        n_values=2,
    ),
)
def test_the_bits_of_a_fit_in_memory(X, cls, sampler, point_estimate):
    settings = {**SETTINGS, "point_estimate": point_estimate}
    here = cls(sampler=sampler(block_size=300), store_labels=False, **settings).fit(X)
    there = cls(sampler=sampler(), **settings).fit(da.from_array(X, chunks=(300, 2)))
    assert isinstance(there.labels_, da.Array) and there.labels_.chunks == ((300,) * 4,)
    assert there.labels_.dtype == np.int64
    assert not hasattr(there, "label_samples_")
    assert_same_fit(here, there)


@pytest.mark.slow
@pytest.mark.parametrize("most_sampled", everyday([100, 20_000], 100))
@pytest.mark.parametrize("recorded", [False, True], ids=["any numbers", "whole numbers"])
def test_chunks_are_cut_into_blocks(X, most_sampled, recorded, monkeypatch):
    """And chains start from the same sample of rows, as chains see them."""
    X = np.round(X) if recorded else X
    monkeypatch.setattr(program, "MOST_SAMPLED", most_sampled)
    settings = {**SETTINGS, "init": "auto"}
    here = DPMixture(sampler=SubCluster(block_size=200), store_labels=False, **settings).fit(X)
    assert (here.n_components_samples_[:, 0] >= 4).all()
    there = DPMixture(sampler=SubCluster(block_size=250), **settings)
    assert_same_fit(here, there.fit(da.from_array(X, chunks=(400, 1))))


@pytest.mark.long
def test_without_a_cluster_codes_are_kept_too(X, monkeypatch):
    """Rows that are held back need the codes of the last sweep, which are not drawn again."""
    found = []

    class Counting(BlockStore):
        def find(self, *args):
            found.append(super().find(*args) is not None)
            return super().find(*args)

    monkeypatch.setattr(dask_rows.remote, "BlockStore", Counting)
    DPMixture(sampler=SubCluster(), **SETTINGS).fit(da.from_array(X, chunks=(300, 2)))
    assert found and all(found)


@pytest.mark.slow
def test_chunks_of_unknown_and_of_no_size(X):
    rows = da.from_array(X, chunks=(300, 2))
    some = rows[rows[:, 0] > -np.inf]
    assert np.isnan(some.shape[0])
    expected = DPMixture(sampler=SubCluster(), **SETTINGS).fit(rows)
    assert_same_fit(expected, DPMixture(sampler=SubCluster(), **SETTINGS).fit(some))
    edges = [0, 300, 300, 600, 900, 1200]
    pieces = [X[start:stop] for start, stop in pairwise(edges)]
    with_empty = da.zeros((5, 2), chunks=(1, 2)).map_blocks(
        lambda block, block_id: pieces[block_id[0]],
        chunks=(tuple(np.diff(edges).tolist()), (2,)),
        dtype=float,
    )
    assert 0 in with_empty.chunks[0]
    fitted = DPMixture(sampler=SubCluster(), **SETTINGS).fit(with_empty)
    assert_same_fit(expected, fitted)
    assert len(fitted.predict(with_empty).compute()) == len(X)


@pytest.mark.slow
def test_recipes_know_held_rows_and_accepted_moves(X, monkeypatch):
    """Labels have the sizes of the clusters, whatever has happened since the last pass."""
    monkeypatch.setattr(sub_cluster, "LAUNCH_EVERY", 1)
    rows = da.from_array(X[:60], chunks=(25, 2))
    moved = launched = held = 0
    # Samplers of the paper propose no launched splits.
    samplers = SubCluster(), SubCluster.from_paper("SUBC APPROX")
    for seed, sampler in itertools.product(range(16), samplers):
        settings = {**SETTINGS, "random_state": seed, "concentration": 9.0, "n_chains": 1}
        settings |= {"n_warmup": 0, "n_draws": 2 + seed % 8}
        estimator = DPMixture(sampler=sampler, **settings).fit(rows)
        sizes = np.bincount(estimator.labels_.compute())
        np.testing.assert_array_equal(sizes, np.sort(sizes)[::-1])
        np.testing.assert_allclose(sizes, estimator._predictor.partition.stats[:, 0])
        recipe = estimator._run.chains[0]["state"]["codes"]
        moved += bool(recipe.changes)
        launched += any(isinstance(change, LaunchedSplit) for change in recipe.changes)
        held += bool(recipe.held)
    assert moved > 0 and launched > 0 and held > 0


@pytest.mark.slow
def test_warm_start_goes_on_through_a_pickle(X):
    rows = da.from_array(X, chunks=(300, 2))
    whole = DPMixture(sampler=SubCluster(), **SETTINGS).fit(rows)
    parts = DPMixture(sampler=SubCluster(), warm_start=True, **{**SETTINGS, "n_draws": 5}).fit(
        rows
    )
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=12).fit(rows)
    assert_same_fit(whole, parts)
    with pytest.raises(ValueError, match="X differs"):
        parts.set_params(n_draws=20).fit(rows + 1.0)


@pytest.mark.parametrize("sampler", everyday(["pgsm", SubCluster()], "pgsm"))
def test_predictions_stay_lazy_and_blockwise(X, sampler):
    fitted = DPMixture(sampler=sampler, **SETTINGS).fit(X[:300])
    rows = da.from_array(X.astype(np.float32), chunks=(500, 1))
    here = X.astype(np.float32)
    for name in ("predict", "predict_proba", "score_samples"):
        there = getattr(fitted, name)(rows)
        expected = getattr(fitted, name)(here)
        assert isinstance(there, da.Array) and there.chunks[0] == (500, 500, 200)
        assert there.dtype == expected.dtype and there.shape == expected.shape
        np.testing.assert_array_equal(there.compute(), expected)
    there = fitted.predict_proba(rows, new_cluster=True)
    expected = fitted.predict_proba(here, new_cluster=True)
    assert there.shape == expected.shape == (len(X), fitted.n_clusters_ + 1)
    np.testing.assert_array_equal(there.compute(), expected)
    assert fitted.score(rows) == pytest.approx(fitted.score(here), rel=1e-12)
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict(rows[:, :1])


def test_refusals_name_the_way_out(X):
    rows = da.from_array(X, chunks=(300, 2))
    refused = [
        ({"sampler": PGSM()}, rows, "SubCluster"),
        ({"point_estimate": "vi"}, rows, "point_estimate"),
        ({"point_estimate": "binder"}, rows, "point_estimate"),
        ({"sampler": SubCluster.from_paper("SUBC+SUPC")}, rows, r"SubCluster\(\)"),
        ({"init": "kmeans"}, rows, "init"),
        ({"init": np.zeros(len(X), int)}, rows, "init"),
        ({}, rows.map_blocks(sp.csr_array), "Gaussian needs dense rows"),
        ({}, rows[:, 0], "two-dimensional"),
        ({}, rows.astype(str), "numbers"),
        ({}, da.where(rows > 9, np.nan, rows), "NaN in X: SubCluster cannot draw"),
        ({}, da.where(rows > 9, np.inf, rows), "infinity in column"),
    ]
    for changes, data, message in refused:
        settings = {"sampler": SubCluster(), **SETTINGS, **changes}
        with pytest.raises(ValueError, match=message):
            DPMixture(**settings).fit(data)


class FakeChunk:
    """A future that is done."""

    status = "finished"

    def __init__(self, value):
        self.key = object()
        self.value = value


class FakeClient:
    """Two workers, which hold other chunks whenever they are looked for, and do what they are
    told when they are told. `script` has what becomes of the next calls of a worker: answers in
    place of its own, or functions to call before."""

    def __init__(self):
        self.script = []
        self.n_looks = self.n_calls = 0
        self.n_visits = 0
        self.places = {}

    def compute(self, chunks):
        return [FakeChunk(chunk.compute()) for chunk in chunks]

    def nthreads(self):
        return {"one": 1, "two": 1}

    def who_has(self, chunks):
        self.n_looks += 1
        firsts = chunks[:2] if self.n_looks % 2 else [chunks[3], chunks[0]]
        return {chunk.key: ["one" if chunk in firsts else "two"] for chunk in chunks}

    def submit(self, function, jobs, worker, n_threads, token_before, **settings):
        key = settings["key"]
        chunk_of = {chunk.key: chunk for chunk in self.rows.chunks}
        self.places[key] = {c: (chunk_of[job[0]].value, *job[1:]) for c, job in jobs.items()}
        return FakeChunk(None)

    def run(self, call, token, which, function, arguments, finish, workers, on_error):
        assert on_error == "return" and workers is None
        self.n_calls += 1
        answers = {
            worker: self.answer(token, which, function, arguments, finish, worker)
            for worker in ("one", "two")
        }
        answers["idle"] = Lost("no place")
        return {worker: answer for worker, answer in answers.items() if answer != "gone"}

    def answer(self, token, which, function, arguments, finish, worker):
        event = self.script.pop(0) if self.script else None
        if isinstance(event, Exception) or event == "gone":
            return event
        if event is not None:
            thread = threading.Thread(target=event)
            thread.start()
            thread.join()
        jobs = self.places[place_key(token, worker)]
        jobs = {c: job for c, job in jobs.items() if which is None or c in which}
        self.n_visits += len(jobs)
        results = [
            (block, function(X, block, start, None, *arguments))
            for X, block, start in blocks_of(jobs.values())
        ]
        return Answer(tuple(jobs), finish(results), 1.0)


@pytest.fixture
def fake(X, monkeypatch):
    """A fake client, its rows, and the sum of each block."""
    client = FakeClient()
    monkeypatch.setattr(dask_rows, "_find_client", lambda: client)
    monkeypatch.setattr(dask_rows, "_wait", lambda *arguments: None)
    monkeypatch.setattr(dask_rows, "PAUSE", 0.0)
    client.rows = DaskRows(da.from_array(X, chunks=(300, 2)), 300)
    expected = [float(X[start : start + 300, 0].sum()) for start in range(0, 1200, 300)]
    return client, client.rows, expected


def _sum(rows, block):
    return float(rows[:, 0].sum())


def test_chains_share_a_client_while_chunks_move(fake, monkeypatch):
    """The results of each chunk are its own though another chain looks for the chunks anew
    while the first waits for its answers."""
    client, rows, expected = fake
    monkeypatch.setattr(dask_rows, "SECONDS_PER_PLACING", -1.0)
    monkeypatch.setattr(dask_rows, "TIMES_PER_PLACING", -1.0)
    others = []
    for _ in range(3):
        client.script = [lambda: others.append(rows._map(_sum))]
        assert rows._map(_sum) == expected
    assert others == [expected] * 3 and client.n_looks == client.n_calls == 6


def test_what_lost_workers_did_is_done_by_others(fake):
    """Only what is missing is done again, wherever it is by then."""
    client, rows, expected = fake
    assert rows._map(_sum) == expected
    assert client.n_looks == client.n_calls == 1
    for script in (
        [None, OSError("lost")],
        [Lost("no place")],
        ["gone"],
        [Lost("no place"), OSError("lost")],
        [],
    ):
        client.n_calls = client.n_visits = 0
        expected_calls = 2 if script else 1
        client.script = script
        assert rows._map(_sum) == expected
        assert client.n_calls == expected_calls and client.n_visits == 4
    client.n_calls = 0
    client.script = [OSError(f"lost {turn}") for turn in range(1000)]
    with pytest.raises(RuntimeError, match="in 11 attempts, at last because lost"):
        rows._map(_sum)
    assert client.n_calls == dask_rows.MOST_FAILURES + 1
    client.script = [None, ValueError("not lost")]
    with pytest.raises(ValueError, match="not lost"):
        rows._map(_sum)


def test_a_place_that_fails_is_looked_for_anew(fake):
    client, rows, expected = fake
    assert rows._map(_sum) == rows._map(_sum) == expected
    assert client.n_looks == 1
    rows._placing.places[0].status = "error"
    assert rows._map(_sum) == expected
    assert client.n_looks == 2


def test_chunks_are_computed_anew_once_if_the_scheduler_has_lost_track(fake, monkeypatch):
    _, rows, expected = fake
    waits = []

    def stall(*arguments):
        waits.append(None)
        if len(waits) in stalls:
            raise dask_rows.Idle("planted")

    monkeypatch.setattr(dask_rows, "_wait", stall)
    before, stalls = rows.chunks, [1]
    assert rows._map(_sum) == expected
    assert not {chunk.key for chunk in before} & {chunk.key for chunk in rows.chunks}
    rows._forget(rows._placing)
    waits.clear()
    stalls = [1, 2]
    with pytest.raises(dask_rows.Idle):
        rows._map(_sum)


@pytest.fixture
def waiting(monkeypatch):
    """Time that goes by while futures are waited for, which are never done."""
    now = types.SimpleNamespace(seconds=0.0, pending=FakeChunk(None))
    now.pending.status = "pending"

    def wait(futures, timeout):
        now.seconds += timeout
        raise TimeoutError

    monkeypatch.setattr(distributed, "wait", wait)
    monkeypatch.setattr(dask_rows, "time", types.SimpleNamespace(monotonic=lambda: now.seconds))
    return now


@pytest.mark.parametrize(("n_workers", "words"), [(0, "has none"), (2, "has 2 workers, which")])
def test_a_wait_ends_unless_a_worker_is_at_work(n_workers, words, waiting):
    client = types.SimpleNamespace(
        run_on_scheduler=lambda function, keys: (n_workers, waiting.seconds < 900.0)
    )
    with pytest.raises(dask_rows.Idle, match=words):
        dask_rows._wait(client, [waiting.pending], 30.0)
    assert 928.0 < waiting.seconds < 930.0 + 3 * dask_rows.LOOK


def test_what_counts_as_work():
    class Task(types.SimpleNamespace):
        __hash__ = object.__hash__
        __eq__ = object.__eq__

    def task(state, *needed):
        return Task(state=state, dependencies=set(needed))

    at_work, done, queued = task("processing"), task("memory"), task("queued")
    tasks = {
        "begun": task("waiting", done, task("waiting", at_work)),
        "queued": task("waiting", queued),
        "stalled": task("waiting", done, task("no-worker")),
    }
    for key, expected in (("begun", True), ("queued", True), ("stalled", False), ("gone", False)):
        for workers in ({}, {"one": None}):
            scheduler = types.SimpleNamespace(tasks=tasks, workers=workers)
            found = dask_rows._progress([key], dask_scheduler=scheduler)
            assert found == (len(workers), expected and len(workers) > 0)


def test_chunks_move_to_workers_that_have_time():
    sizes = [100] * 16
    even = {"one": list(range(8)), "two": list(range(8, 16))}
    assert moves(even, sizes, {"one": 1.0, "two": 1.1}) == {}
    # A third worker gets its share, of both.
    added = moves(
        {**even, "three": []},
        sizes,
        all_paces({"one": 1.0, "two": 1.0}, {"one": 1, "two": 1, "three": 1}),
    )
    assert sorted(added.values()) == ["three"] * 5
    assert {2, 3} == {sum(c < 8 for c in added), sum(c >= 8 for c in added)}
    # One that takes three times as long keeps a quarter.
    slow = moves(even, sizes, {"one": 3.0, "two": 1.0})
    assert set(slow.values()) == {"two"} and len(slow) == 4
    assert moves({}, [], {}) == moves({"one": []}, [], {"one": 1.0}) == {}
    assert all_paces({}, {"one": 2, "two": 1}) == {"one": 0.5, "two": 1.0}
    assert all_paces({"one": 3.0, "gone": 9.0}, {"one": 1, "two": 3}) == {"one": 3.0, "two": 1.0}


def test_rows_without_labels(X):
    """A recipe has no labels to ask for, and none that could be given."""
    rows = DaskRows(da.from_array(X, chunks=(300, 2)), 300)
    codes = rows.codes(None)
    assert codes == Recipe() and pickle.loads(pickle.dumps(codes)) == codes
    with pytest.raises(TypeError, match="DaskRows keeps no labels"):
        rows.labels(codes, np.zeros(1, dtype=int))
    with pytest.raises(ValueError, match="cannot start from labels"):
        rows.codes(np.zeros(len(X), dtype=int))


def _n_known_blocks(token, dask_worker):
    place = dask_worker.data.get(place_key(token, dask_worker.address))
    return 0 if place is None else len(place.store._sweeps)


def _known_keys(dask_worker):
    return list(dask_worker.data)


@contextlib.contextmanager
def local_cluster(threads_per_worker, processes):
    """Two workers, and a client of theirs."""
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=threads_per_worker,
            processes=processes,
            dashboard_address=":0",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture
def threads_cluster():
    """Workers with two threads each, in this process."""
    with local_cluster(2, processes=False) as client:
        yield client


def at_visit(monkeypatch, number, function):
    """Call a function before that visit of all rows of dask arrays. Returns the visits so far."""
    visit, visits = DaskRows.visit, []

    def visit_and_call(self, *arguments):
        visits.append(None)
        if len(visits) == number:
            function()
        return visit(self, *arguments)

    monkeypatch.setattr(DaskRows, "visit", visit_and_call)
    return visits


def assert_the_same_on_a_cluster(X, chunk=100):
    """Two chains at once, in chunks that are cut into blocks of 50 rows."""
    here = DPMixture(sampler=SubCluster(block_size=50), store_labels=False, **SETTINGS).fit(X)
    there = DPMixture(sampler=SubCluster(block_size=50), n_jobs=2, **SETTINGS)
    assert_same_fit(here, there.fit(da.from_array(X, chunks=(chunk, 2))))


@pytest.mark.slow
def test_threads_of_workers_share_blocks(X, threads_cluster):
    assert_the_same_on_a_cluster(X)
    assert_the_same_on_a_cluster(np.round(X))
    # With the rows all that workers have of the fit goes, as soon as they hear of it.
    end = time.monotonic() + 10.0
    while any(threads_cluster.run(_known_keys).values()):
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.slow
def test_a_worker_that_leaves_and_one_that_joins_change_no_bit(X, threads_cluster, monkeypatch):
    """One is retired, and its chunks go to the other; then one comes and gets a share."""
    # Before every visit: on a fast machine all visits take less than any interval.
    monkeypatch.setattr(dask_rows, "SECONDS_PER_PLACING", 0.0)
    monkeypatch.setattr(dask_rows, "TIMES_PER_PLACING", 0.0)
    workers = list(threads_cluster.nthreads())
    shares = []

    left = threading.Event()

    def leave():
        threads_cluster.retire_workers(workers[:1])
        left.set()

    def join():
        assert left.wait(30.0)  # another chain's visit
        threads_cluster.cluster.scale(3)  # it still counts the one that left
        threads_cluster.wait_for_workers(2, timeout=20)

    place = DaskRows._place
    stores = []

    def place_and_tell(self):
        placing = place(self)
        stores.append(threads_cluster.run(_n_known_blocks, placing.token))
        shares.append(sorted(len(chunks) for chunks in placing.chunks.values()))
        return placing

    monkeypatch.setattr(DaskRows, "_place", place_and_tell)
    at_visit(monkeypatch, 9, leave)
    at_visit(monkeypatch, 17, join)
    assert_the_same_on_a_cluster(X)
    assert len(shares[0]) == 2 and [12] in shares
    assert len(shares[-1]) > 1 and max(shares[-1]) < 12
    # What a worker knew of blocks it knows when it is told of its chunks anew.
    assert sum(stores[0].values()) == 0 and sum(stores[-1].values()) > 0


@pytest.mark.slow
def test_chunks_that_go_to_disk_change_no_bit(X):
    """A worker that holds less than its chunks in memory."""
    # What the process takes besides chunks is not to count.
    limits = {"target": 0.25, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": at for name, at in limits.items()}),
        distributed.LocalCluster(
            n_workers=1,
            threads_per_worker=2,
            processes=False,
            dashboard_address=":0",
            memory_limit="40kB",
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert_the_same_on_a_cluster(X)
        metrics = client.run(_disk_reads)
        assert sum(metrics.values()) > 12


@pytest.mark.slow
@pytest.mark.parametrize("scattered", [False, True])
def test_a_fit_ends_without_workers_and_without_rows(scattered, X, threads_cluster, monkeypatch):
    """All workers leave, or one with chunks that were scattered."""
    monkeypatch.setattr(dask_rows, "LONGEST_IDLE", 4.0)
    monkeypatch.setattr(dask_rows, "LOOK", 0.5)
    rows, words = da.from_array(X, chunks=(300, 2)), "cluster has none, for 4 seconds"
    if scattered:
        parts = threads_cluster.scatter([X[start : start + 300] for start in range(0, 1200, 300)])
        parts = [da.from_delayed(part, (300, 2), dtype=float) for part in parts]
        rows, words = da.concatenate(parts), "chunks of X are lost"

    def leave():
        cluster = threads_cluster.cluster
        if scattered:
            cluster.sync(next(iter(cluster.workers.values())).close)
        else:
            cluster.scale(0)

    at_visit(monkeypatch, 7, leave)
    with pytest.raises(RuntimeError, match=words):
        DPMixture(sampler=SubCluster(), **SETTINGS).fit(rows)


def _disk_reads(dask_worker):
    return dask_worker.data.cumulative_metrics["disk-read", "count"]


@pytest.fixture(scope="module")
def cluster():
    """Worker processes."""
    with local_cluster(1, processes=True) as client:
        yield client


@pytest.mark.slow
def test_a_killed_worker_changes_no_bit(X, cluster, monkeypatch):
    """Two worker processes, one of which dies between two passes, while it holds rows."""

    def kill():
        os.kill(next(iter(cluster.run(os.getpid).values())), signal.SIGKILL)

    X = np.round(X)  # chunks are made of those of the array
    visits = at_visit(monkeypatch, 7, kill)
    settings = {**SETTINGS, "n_chains": 1}
    here = DPMixture(sampler=SubCluster(block_size=300), store_labels=False, **settings).fit(X)
    workers = set(cluster.scheduler_info()["workers"])
    assert len(workers) == 2
    there = DPMixture(sampler=SubCluster(), **settings).fit(da.from_array(X, chunks=(300, 2)))
    assert len(visits) > 7
    assert set(cluster.scheduler_info()["workers"]) != workers
    assert_same_fit(here, there)
    np.testing.assert_array_equal(
        there.predict(da.from_array(X, chunks=(300, 2))).compute(), here.predict(X)
    )


@pytest.mark.parametrize("n_features", [2, 40])
def test_automatic_sampler(n_features):
    rows = da.from_array(np.random.default_rng(0).normal(size=(60, n_features)), chunks=(30, -1))
    settings = {"n_chains": 1, "n_warmup": 2, "n_draws": 2, "random_state": 0}
    fitted = DPMixture(**settings).fit(rows)
    assert type(fitted.sampler_) is SubCluster
    best = DPMixture(point_estimate="map", **settings).fit(rows)
    np.testing.assert_array_equal(fitted.labels_.compute(), best.labels_.compute())
    with pytest.raises(ValueError, match='choose point_estimate="auto", "last"'):
        DPMixture(point_estimate="modal", **settings).fit(rows)


# Data frames.


@pytest.mark.slow
def test_frames_are_their_arrays(X):
    frame = pd.DataFrame(X, columns=["a", "b"])
    rows, table = da.from_array(X, chunks=(400, 2)), dd.from_pandas(frame, npartitions=3)
    settings = {"n_chains": 2, "n_warmup": 8, "n_draws": 12, "random_state": 0}
    here, there = DPMixture(**settings).fit(rows), DPMixture(**settings).fit(table)
    assert_same_fit(here, there)
    assert list(there.feature_names_in_) == ["a", "b"]
    for name in ("predict", "predict_proba", "score_samples"):
        lazy = getattr(there, name)(table)
        assert isinstance(lazy, da.Array)
        expected = getattr(there, name)(frame)
        np.testing.assert_array_equal(lazy.compute(), expected)
    assert there.score(table) == pytest.approx(there.score(frame), rel=1e-14)  # sums by blocks
    with pytest.raises(ValueError, match="feature names should match"):
        there.predict(table.rename(columns={"a": "c"}))
    bad = table.assign(b=table["b"].where(table["b"] < 5.0, np.inf))
    with pytest.raises(ValueError, match="infinity in column 'b' of X"):
        DPMixture(**settings).fit(bad)
    with pytest.raises(ValueError, match="infinity in column 'b' of X"):
        there.predict(bad).compute()
    stream = {"sampler": "smc", "n_draws": 3, "n_chains": 1, "random_state": 0}
    parts = DPMixture(**stream).partial_fit(table.partitions[:2])
    whole = DPMixture(**stream).partial_fit(frame[:400]).partial_fit(frame[400:800])
    np.testing.assert_array_equal(parts.score_samples(frame), whole.score_samples(frame))


@pytest.mark.slow
def test_frames_with_other_columns(X):
    z = np.arange(len(X)) % 2
    frame = pd.DataFrame({"a": X[:, 0] + 9 * z, "flag": z == 1, "town": np.array(["u", "v"])[z]})
    table = dd.from_pandas(frame, npartitions=3)
    settings = {"sampler": "sub_cluster", "n_chains": 1, "n_warmup": 4, "n_draws": 4}
    settings |= {"random_state": 0, "likelihood": "mixed"}
    with pytest.raises(ValueError, match=r"column 'town' of X holds strings.*X\.categorize\(\)"):
        DPMixture(**settings).fit(table)
    known = table.categorize()
    fitted = DPMixture(**settings).fit(known)
    np.testing.assert_array_equal(fitted.score_samples(known), fitted.score_samples(frame))
    for data, message in [
        (known, "'u', in column 'town' of X; use likelihood="),
        (table[["a"]].assign(t=pd.Timestamp("2024-01-01")), "column 't' of X holds dates"),
    ]:
        with pytest.raises(ValueError, match=message):
            DPMixture().fit(data)
    for method in (FeatureAllocation().fit, DPMixture(sampler="gibbs").fit, fitted.impute):
        with pytest.raises((TypeError, ValueError), match="in memory"):
            method(table[["a"]])


def test_masked_chunks_are_missing_entries(X):
    fitted = DPMixture(**SETTINGS).fit(X)
    rows = da.ma.masked_greater(da.from_array(X, chunks=(300, 2)), 9.0)
    expected = fitted.score_samples(np.where(X > 9.0, np.nan, X))
    np.testing.assert_array_equal(fitted.score_samples(rows).compute(), expected)
    with pytest.raises(ValueError, match="NaN in X"):
        DPMixture(**SETTINGS).fit(rows)
