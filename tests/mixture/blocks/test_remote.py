"""What workers do with blocks: sums over parts of the tree, and codes that are kept or drawn
again. The planted errors show what the tests see."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from support.designs import everyday

from skdpm.mixture.blocks import remote
from skdpm.mixture.blocks.records import Collected, Held, RandomSplit, Sweep, Task, TrialSplit
from skdpm.mixture.blocks.remote import (
    BlockStore,
    Place,
    add_up_visits,
    blocks_of,
    recipe_codes,
    sweep_name,
    visit_by_recipe,
)
from skdpm.mixture.blocks.rows import MemoryRows, add_up
from skdpm.mixture.likelihoods import Gaussian

dask_rows = pytest.importorskip("skdpm.mixture.blocks.dask_rows", reason="dask is not installed")
Recipe = dask_rows.Recipe


@pytest.fixture
def model():
    return (
        Gaussian()
        .resolve(np.random.default_rng(0).standard_normal((50, 2)))
        .parametric(np.empty((0, 2)))
    )


def parts(rng, model, n_blocks, n_groups=3):
    """Statistics of blocks of rows, some groups of them empty, that round when they are added."""
    likelihood = Gaussian().resolve(rng.standard_normal((50, 2)))
    found, start = [], 0
    for _ in range(n_blocks):
        X = rng.standard_normal((rng.integers(1, 9), 2)) * 10.0 ** rng.integers(-3, 4)
        codes = rng.integers(0, 2 * n_groups, len(X)).astype(np.int32)
        collected = remote.visit_block(likelihood, X, codes, Task(n_groups), None, 1)[1]
        found.append(remote.numbered_from(collected, start))
        start += len(X)
    return found


def root(model, nodes, n_blocks):
    ((at, collected),) = add_up(model, nodes, n_blocks).items()
    assert at == (max(n_blocks - 1, 0).bit_length(), 0)
    return collected


@pytest.mark.parametrize("n_blocks", [1, 2, 3, 5, 8, 13, 32, 37])
def test_sums_have_the_same_bits_wherever_blocks_are(model, n_blocks, seed):
    """Blocks are dealt out at random, to be added up in two rounds."""
    rng = np.random.default_rng(seed)
    blocks = parts(rng, model, n_blocks)
    whole = root(model, {(0, j): block for j, block in enumerate(blocks)}, n_blocks)
    one_by_one = blocks[0].stats
    for block in blocks[1:]:
        one_by_one = model.combined(one_by_one, block.stats)
    np.testing.assert_allclose(whole.stats, one_by_one, rtol=1e-9)
    first_rows = np.array([block.first_rows for block in blocks])
    first_rows = np.where(first_rows < 0, np.iinfo(np.intp).max, first_rows).min(axis=0)
    first_rows[first_rows == np.iinfo(np.intp).max] = -1
    np.testing.assert_array_equal(whole.first_rows, first_rows)
    for n_workers in (2, 3):
        worker = rng.integers(0, n_workers, n_blocks)
        nodes = {}
        for w in range(n_workers):
            mine = {(0, j): blocks[j] for j in rng.permutation(np.flatnonzero(worker == w))}
            nodes |= add_up(model, mine, n_blocks)
        there = root(model, nodes, n_blocks)
        np.testing.assert_array_equal(there.stats, whole.stats)
        np.testing.assert_array_equal(there.first_rows, whole.first_rows)


def test_consecutive_blocks_are_few_nodes(model, seed):
    """A worker sends two nodes for each level of the tree at most."""
    blocks = parts(np.random.default_rng(seed), model, 100)
    for low, high in ((0, 64), (1, 63), (37, 100), (40, 41)):
        nodes = add_up(model, {(0, j): blocks[j] for j in range(low, high)}, 100)
        assert len(nodes) <= 2 * (high - low).bit_length()
    assert list(add_up(model, {(0, j): blocks[j] for j in range(64)}, 100)) == [(6, 0)]


def test_a_sum_in_another_order_is_seen(model, seed):
    """Planted: blocks that are added one after the other."""
    blocks = parts(np.random.default_rng(seed), model, 37)
    whole = root(model, {(0, j): block for j, block in enumerate(blocks)}, 37)
    stats = blocks[0].stats
    for block in blocks[1:]:
        stats = model.combined(stats, block.stats)
    assert not np.array_equal(stats, whole.stats)


# Codes that are kept.


class History:
    """Sweeps of two chains over two blocks, with splits and with rows held back, as a sampler
    does them: what `visit_by_recipe` returns with a store is compared with what it returns with
    one that keeps nothing."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.X = self.rng.standard_normal((600, 2)) * 3.0
        self.likelihood = Gaussian().resolve(self.X)
        self.recipes = [Recipe(), Recipe()]

    def sweep(self, n_clusters=3):
        X = self.X
        groups = self.rng.integers(0, n_clusters, len(X)).astype(np.int32)
        rows = MemoryRows(X, len(X))
        model = self.likelihood.parametric(X[:0])
        codes = (2 * groups + self.rng.integers(0, 2, len(X))).astype(np.int32)
        _, collected = rows.visit(self.likelihood, codes, Task(n_clusters), None)
        totals = model.combined(collected.stats[0::2], collected.stats[1::2])
        bits = self.rng.bit_generator
        return Sweep(
            model.draw(totals, np.ones(n_clusters), bits),
            np.zeros(n_clusters),
            model.draw(collected.stats, np.ones(2 * n_clusters), bits),
            np.zeros(2 * n_clusters),
        )

    def visits(self, store, n_iterations=20):
        """All that is collected and held back; the recipe that is asked for is sometimes one
        that the store has, and sometimes not."""
        found = []
        for iteration in range(1, n_iterations + 1):
            chain = int(self.rng.integers(2))
            key = (5, chain, iteration)
            sweep = self.sweep()
            trial = TrialSplit(int(self.rng.integers(3)), 0.4, 1)
            before = self.recipes[chain]
            held_clusters = ()
            if before.task is not None and self.rng.random() < 0.5:
                # As where the clusters of the first try are empty, once or twice.
                found += self.visit(store, None, Task(3, sweep, (trial,)), key)[0]
                held_clusters = tuple(self.rng.permutation(3)[: self.rng.integers(1, 3)])
                found += self.visit(store, before, Task(3, sweep, (), held_clusters[:1]), key)[0]
            task = Task(3, sweep, (trial,), held_clusters)
            recipe = before if held_clusters else None
            collected, held = self.visit(store, recipe, task, key)
            found += collected
            drawn = replace(task, splits=(), held_clusters=())
            recipe = Recipe(drawn, key, held, ())
            if self.rng.random() < 0.5:
                changes = (RandomSplit(trial, 3, key),)
                recipe = replace(recipe, changes=changes)
                looked = Task(4, None, (replace(trial, stream_number=2),))
                found += self.visit(store, recipe, looked, key)[0]
            self.recipes[chain] = recipe
        return found

    def visit(self, store, recipe, task, key):
        name = sweep_name(replace(task, splits=(), held_clusters=()), key)
        collected, held = [], {}
        for X, block, start in blocks_of([(self.X, np.array([0, 250, 600]), 1, 0, np.ndarray)]):
            # As sent to a worker.
            sent = pickle.loads(pickle.dumps((recipe, task)))
            one, rows = visit_by_recipe(
                X, block, start, store, self.likelihood, sent[0], sent[1], key, name
            )
            collected.append(one)
            if rows is not None:
                held[block] = rows
        return collected, held


class Forgetful(BlockStore):
    """Has forgotten a share of what it is asked for, and counts what it does not have."""

    def __init__(self, n_bytes, share):
        super().__init__(n_bytes)
        self.rng = np.random.default_rng(0)
        self.share = share
        self.missed = 0

    def find(self, where, name, held):
        codes = super().find(where, name, held) if self.rng.random() >= self.share else None
        self.missed += codes is None
        return codes


def assert_same_visits(one, other):
    assert len(one) == len(other)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a.stats, b.stats)
        np.testing.assert_array_equal(a.first_rows, b.first_rows)


@pytest.mark.parametrize("n_bytes", everyday([2**20, 900, 0], 900))
def test_a_store_of_codes_changes_no_bit(n_bytes, seed):
    """Whole, dropped at random, or too small for all."""
    expected = History(seed).visits(BlockStore(0))
    stores = Forgetful(n_bytes, 0.0), Forgetful(n_bytes, 0.5)
    for store in stores:
        assert_same_visits(History(seed).visits(store), expected)
    if n_bytes == 2**20:
        assert stores[0].missed == 0 and stores[1].missed > 0


@pytest.mark.slow
@pytest.mark.parametrize("error", ["any sweep", "any chain", "changed codes"])
def test_codes_of_another_recipe_are_seen(error, seed, monkeypatch):
    """Planted: a store that gives out the codes of another sweep, or of another chain, or wrong
    ones."""
    expected = History(seed).visits(BlockStore(0))
    store = BlockStore(2**20)
    put, find = store.put, store.find
    if error == "any sweep":
        monkeypatch.setattr(store, "put", lambda where, name, *rest: put(where, b"", *rest))
        monkeypatch.setattr(store, "find", lambda where, name, held: find(where, b"", held))
    elif error == "any chain":
        monkeypatch.setattr(store, "put", lambda where, name, *rest: put(where[1], b"", *rest))
        monkeypatch.setattr(store, "find", lambda where, name, held: find(where[1], b"", held))
    else:
        monkeypatch.setattr(store, "put", lambda *args: put(*args[:-1], args[-1] ^ 1))
    with pytest.raises(AssertionError):
        assert_same_visits(History(seed).visits(store), expected)


def test_a_store_takes_no_more_than_it_may():
    store = BlockStore(1000)
    for block in range(30):
        store.put((0, block), b"one", None, np.full(100, block, dtype=np.int32))
        store.put((0, block), b"two", None, np.full(100, 300, dtype=np.int32))
        assert store._size <= 1000
    assert store.find((0, 0), b"one", None) is None
    np.testing.assert_array_equal(store.find((0, 29), b"one", None), np.full(100, 29))
    codes = store.find((0, 29), b"two", None)
    np.testing.assert_array_equal(codes, np.full(100, 300))
    assert codes.dtype == np.int32
    held = Held(np.array([1]), np.array([2], dtype=np.int32))
    assert store.find((0, 29), b"two", held) is None
    # The third takes the place of the one that was longest not asked for.
    store.put((0, 29), b"three", held, np.zeros(100, dtype=np.int32))
    assert store.find((0, 29), b"one", None) is None
    assert store.find((0, 29), b"two", None) is not None
    assert store.find((0, 29), b"three", None) is None
    assert store.find((0, 29), b"three", Held(held.rows, held.codes)) is not None
    store.put((0, 29), b"none", None, np.zeros(0, dtype=np.int32))
    sizes = [codes.nbytes for sweeps in store._sweeps.values() for _, _, codes in sweeps]
    assert sum(sizes) == store._size


def test_a_place_on_disk_has_no_codes():
    place = object.__new__(Place)
    place.jobs, place.n_threads, place.store = {3: ("key", None, 1, 0)}, 2, BlockStore()
    place.store.put((0, 1), b"one", None, np.zeros(10, dtype=np.int32))
    again = pickle.loads(pickle.dumps(place))
    assert again.jobs == place.jobs and again.n_threads == 2
    assert again.store.find((0, 1), b"one", None) is None


def test_recipes_give_the_codes_of_visits(seed):
    """Codes from a recipe are those that the visit drew, with a store that has them or not."""
    history = History(seed)
    task, key = Task(3, history.sweep()), (5, 0, 1)
    store = BlockStore(2**20)
    history.visit(store, None, task, key)
    for X, block, _ in blocks_of([(history.X, np.array([0, 250, 600]), 1, 0, np.ndarray)]):
        drawn = remote.visit_block(history.likelihood, X, None, task, key, block)[0]
        for where in (BlockStore(0), store, BlockStore(2**20)):
            codes = recipe_codes(X, block, history.likelihood, Recipe(task, key), where)
            np.testing.assert_array_equal(codes, drawn)


def test_what_visits_hold_back_is_told_by_block(seed):
    likelihood = Gaussian().resolve(np.random.default_rng(seed).standard_normal((50, 2)))
    blocks = parts(np.random.default_rng(seed), None, 3)
    held = Held(np.array([0]), np.array([4], dtype=np.int32))
    results = [(3, (blocks[2], None)), (2, (blocks[1], held)), (1, (blocks[0], None))]
    nodes, rows = add_up_visits(likelihood, np.empty((0, 2)), 5, results)
    assert rows == {2: held} and set(nodes) == {(1, 0), (0, 2)}
    assert isinstance(nodes[1, 0], Collected)
