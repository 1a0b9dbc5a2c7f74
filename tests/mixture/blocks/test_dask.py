"""Fits of dask arrays: the bits of fits in memory, wherever chunks are computed and how often."""

import os
import pickle
import signal
import threading
import warnings
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from support.fits import assert_same_fit

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.samplers import PGSM, BlockedGibbs, SubCluster

da = pytest.importorskip("dask.array", reason="dask is not installed")
distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

# Needs dask.
from skdpm.mixture.blocks import dask_rows, program  # noqa: E402
from skdpm.mixture.blocks.dask_rows import DaskRows, Recipe  # noqa: E402

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


@pytest.mark.parametrize("point_estimate", ["last", "map"])
@pytest.mark.parametrize(
    "cls, sampler",
    [(DPMixture, SubCluster), (FiniteMixture, SubCluster), (FiniteMixture, BlockedGibbs)],
)
def test_the_bits_of_a_fit_in_memory(X, cls, sampler, point_estimate):
    settings = {**SETTINGS, "point_estimate": point_estimate}
    here = cls(sampler=sampler(block_size=300), store_labels=False, **settings).fit(X)
    there = cls(sampler=sampler(), **settings).fit(da.from_array(X, chunks=(300, 2)))
    assert isinstance(there.labels_, da.Array) and there.labels_.chunks == ((300,) * 4,)
    assert there.labels_.dtype == np.int64
    assert not hasattr(there, "label_samples_")
    assert_same_fit(here, there)


@pytest.mark.parametrize("most_sampled", [100, 20_000])
def test_chunks_are_cut_into_blocks(X, most_sampled, monkeypatch):
    """And chains start from the same sample of rows."""
    monkeypatch.setattr(program, "MOST_SAMPLED", most_sampled)
    settings = {**SETTINGS, "init": "auto"}
    here = DPMixture(sampler=SubCluster(block_size=200), store_labels=False, **settings).fit(X)
    assert (here.n_components_samples_[:, 0] >= 4).all()
    there = DPMixture(sampler=SubCluster(block_size=250), **settings)
    assert_same_fit(here, there.fit(da.from_array(X, chunks=(400, 1))))


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


def test_recipes_know_held_rows_and_accepted_moves(X):
    """Labels have the sizes of the clusters, whatever has happened since the last pass."""
    rows = da.from_array(X[:200], chunks=(80, 2))
    moved = held = 0
    for seed in range(16):
        settings = {**SETTINGS, "random_state": seed, "concentration": 3.0, "n_chains": 1}
        settings |= {"n_warmup": 0, "n_draws": 2 + seed % 8}
        estimator = DPMixture(sampler=SubCluster(wait=False), **settings).fit(rows)
        sizes = np.bincount(estimator.labels_.compute())
        np.testing.assert_array_equal(sizes, np.sort(sizes)[::-1])
        np.testing.assert_allclose(sizes, estimator._predictor.partition.stats[:, 0])
        recipe = estimator._run["chains"][0]["state"]["codes"]
        moved += bool(recipe.changes)
        held += bool(recipe.held)
    assert moved > 0 and held > 0


def test_warm_start_goes_on_through_a_pickle(X):
    rows = da.from_array(X, chunks=(300, 2))
    whole = DPMixture(sampler=SubCluster(), **SETTINGS).fit(rows)
    parts = DPMixture(sampler=SubCluster(), warm_start=True, **{**SETTINGS, "n_draws": 5}).fit(
        rows
    )
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=12).fit(rows)
    assert_same_fit(whole, parts)
    with pytest.raises(ValueError, match="other data"):
        parts.set_params(n_draws=20).fit(rows + 1.0)


@pytest.mark.parametrize("sampler", ["pgsm", SubCluster()])
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
    assert fitted.score(rows) == pytest.approx(fitted.score(here), rel=1e-12)
    with pytest.raises(ValueError, match="2 features"):
        fitted.predict(rows[:, :1])


def test_refusals_name_the_way_out(X):
    rows = da.from_array(X, chunks=(300, 2))
    refused = [
        ({"sampler": PGSM()}, rows, "SubCluster"),
        ({"point_estimate": "vi"}, rows, "point_estimate"),
        ({"point_estimate": "binder"}, rows, "point_estimate"),
        ({"sampler": SubCluster(super_clusters=True)}, rows, "super_clusters=False"),
        ({"init": "kmeans"}, rows, "init"),
        ({"init": np.zeros(len(X), int)}, rows, "init"),
        ({}, rows.map_blocks(sp.csr_array), "Gaussian needs dense rows"),
        ({}, rows[:, 0], "two-dimensional"),
        ({}, rows.astype(str), "numbers"),
        ({}, da.where(rows > 9, np.nan, rows), "NaN in column"),
        ({}, da.where(rows > 9, np.inf, rows), "infinity in column"),
    ]
    for changes, data, message in refused:
        settings = {"sampler": SubCluster(), **SETTINGS, **changes}
        with pytest.raises(ValueError, match=message):
            DPMixture(**settings).fit(data)


class OtherWorkers:
    """A client whose chunks move from worker to worker whenever they are looked for, and that lets
    another chain visit the rows while the first submits its tasks."""

    def __init__(self):
        self.interrupt = None
        self.n_looks = 0

    def compute(self, chunks):
        return [chunk.compute() for chunk in chunks]

    def submit(self, function, *arguments, pure):
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            thread = threading.Thread(target=interrupt)
            thread.start()
            thread.join()
        return function(*arguments)

    def gather(self, results):
        return results

    def find_places(self, _, chunks):
        self.n_looks += 1
        if self.n_looks % 2:
            return [[0, 1], [2, 3]]
        return [[3, 2, 1], [0]]


def test_chains_share_a_client_while_chunks_move(X, monkeypatch):
    """The results of each chunk are its own though another chain looks for the chunks anew
    before all is submitted."""
    client = OtherWorkers()
    monkeypatch.setattr(dask_rows, "_find_client", lambda: client)
    monkeypatch.setattr(dask_rows, "_find_places", client.find_places)
    monkeypatch.setattr(dask_rows, "MAPS_PER_PLACING", 1)
    rows = DaskRows(da.from_array(X, chunks=(300, 2)), 300)
    expected = [float(X[start : start + 300, 0].sum()) for start in range(0, 1200, 300)]
    others = []
    for _ in range(3):
        client.interrupt = lambda: others.append(rows._map(_sum))
        assert rows._map(_sum) == expected
    assert others == [expected] * 3 and client.n_looks == 6


def _sum(rows, block):
    return float(rows[:, 0].sum())


def test_rows_without_labels(X):
    """A recipe has no labels to ask for, and starts from a single cluster."""
    rows = DaskRows(da.from_array(X, chunks=(300, 2)), 300)
    codes = rows.codes(None)
    assert codes == Recipe() and pickle.loads(pickle.dumps(codes)) == codes
    with pytest.raises(TypeError, match="DaskRows keeps no labels"):
        rows.labels(codes, np.zeros(1, dtype=int))
    with pytest.raises(ValueError, match="single cluster"):
        rows.codes(np.zeros(len(X), dtype=int))


@pytest.fixture(scope="module")
def cluster():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def test_a_killed_worker_changes_no_bit(X, cluster, monkeypatch):
    """Two worker processes, one of which dies between two passes, while it holds rows."""
    visit, visits = DaskRows.visit, []

    def visit_and_kill(self, *arguments):
        visits.append(None)
        if len(visits) == 7:
            victim = next(iter(cluster.run(os.getpid).values()))
            os.kill(victim, signal.SIGKILL)
        return visit(self, *arguments)

    monkeypatch.setattr(DaskRows, "visit", visit_and_kill)
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
