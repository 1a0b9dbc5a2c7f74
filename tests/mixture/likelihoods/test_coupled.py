"""Likelihoods whose clusters are not independent: laws of a whole partition."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from reference import likelihoods as reference
from sklearn.base import clone
from support.examples import examples_of
from support.kernels import bind
from support.laws import Case, assert_equal, cases, every_coupled, few, numbers_of, seeds
from support.probes import Probe, log_likelihoods_at

from skdpm.mixture.likelihoods import Relational


def _bound(case, labels):
    """A probe whose clusters are those of the labels; the labels stay bound."""
    model = bind(case.likelihood, case.data, case.n)
    probe = Probe(model, int(labels.max()) + 3)
    bound = np.full(case.n, -1, dtype=np.intp)
    model.bind_labels(bound)
    for k in range(labels.max() + 1):
        assert probe.acquire() == k
    for i in np.flatnonzero(labels >= 0):
        probe.add(labels[i], i)
        bound[i] = labels[i]
    return probe, bound


def _log_relational(case, labels):
    hyper = numbers_of(case.likelihood)
    if case.likelihood.degree_correction:
        return reference.log_likelihood_relational(case.X, labels, **hyper)
    X = case.X.copy()
    X[labels < 0] = X[:, labels < 0] = np.nan
    return reference.log_likelihood_relational(X, labels, **hyper)


@every_coupled
@given(seed=seeds)
@few
@pytest.mark.some(1)
@pytest.mark.long
def test_coupled_likelihood_and_predictives(case, seed):
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(3, size=case.n), return_inverse=True)[1]
    probe, bound = _bound(case, labels)
    slots = np.arange(labels.max() + 2)
    assert probe.acquire() == slots[-1]
    assert not probe.model.factorizes
    assert_equal(probe.log_likelihood(slots), _log_relational(case, labels))
    rows = probe.model.dump(slots)
    for i in range(case.n):
        bound[i] = -1
        probe.remove(labels[i], i)
        without = labels.copy()
        without[i] = -1
        expected = []
        for k in slots:
            without[i] = k
            expected.append(_log_relational(case, without))
        without[i] = -1
        expected -= _log_relational(case, without)
        actual = probe.log_predictive_many(slots, i)
        assert_equal(actual, expected)
        np.testing.assert_array_equal(actual, [probe.log_predictive(k, i) for k in slots])
        probe.add(labels[i], i)
        bound[i] = labels[i]
    np.testing.assert_array_equal(probe.model.dump(slots), rows)


@every_coupled
@given(seed=seeds)
@few
@pytest.mark.long
def test_coupled_predictives_along_any_order_add_up(case, seed):
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(3, size=case.n), return_inverse=True)[1]
    start = np.where(rng.random(case.n) < 0.5, labels, -1)
    start[np.unique(labels, return_index=True)[1]] = np.arange(labels.max() + 1)
    probe, bound = _bound(case, start)
    slots = np.arange(labels.max() + 1)
    total = probe.log_likelihood(slots)
    for i in rng.permutation(np.flatnonzero(start < 0)):
        total += probe.log_predictive(labels[i], i)
        probe.add(labels[i], i)
        bound[i] = labels[i]
    assert_equal(probe.log_likelihood(slots), total)


@every_coupled
def test_coupled_moves_leave_no_trace(case):
    rng = np.random.default_rng(0)
    labels = np.arange(case.n) % 3
    probe, bound = _bound(case, labels)
    for _ in range(500):
        i, k = rng.integers(case.n), rng.integers(3)
        bound[i] = -1
        probe.remove(labels[i], i)
        probe.add(k, i)
        bound[i] = labels[i] = k
    fresh, _ = _bound(case, labels)
    np.testing.assert_array_equal(probe.model.dump(range(3)), fresh.model.dump(range(3)))


@every_coupled
def test_coupled_clusters_stay_when_the_arena_grows(case):
    probe, _ = _bound(case, np.arange(case.n) % 3)
    rows = probe.model.dump(range(3))
    before = probe.log_likelihood(np.arange(3))
    for n_slots in (7, 100):
        probe.reserve(n_slots)
        assert probe.model.n_slots == n_slots
        np.testing.assert_array_equal(probe.model.dump(range(3)), rows)
        assert probe.log_likelihood(np.arange(3)) == before


@every_coupled
def test_coupled_dump_and_load(case):
    labels = np.arange(case.n) % 3
    probe, bound = _bound(case, labels)
    slots = np.arange(3)
    other = Probe(bind(case.likelihood, case.data, case.n), 3)
    other.model.bind_labels(bound)
    other.model.load(probe.model.dump(slots))
    assert other.log_likelihood(slots) == probe.log_likelihood(slots)


@every_coupled
@given(seed=seeds)
@few
def test_coupled_new_rows(case, seed):
    """A new node's predictive, from counts of pairs in plain Python."""
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(3, size=case.n), return_inverse=True)[1]
    probe, bound = _bound(case, labels)
    slots = np.arange(labels.max() + 1)
    new = (rng.random((4, case.n)) < 0.5).astype(float)
    counts = case.likelihood.degree_correction
    if case.likelihood.weights is not None:
        new *= rng.integers(1, 5, new.shape)
    if counts and case.likelihood.weights is None:
        new = rng.poisson(0.5, new.shape).astype(float)
    elif not counts:
        new[rng.random(new.shape) < 0.2] = np.nan
    model = bind(case.likelihood, case.likelihood.encode_new(new), case.n)
    model.bind_labels(bound)
    model.load(probe.model.dump(slots))
    actual = model.log_predictive_rows(np.arange(len(slots) + 1), 0, 4)
    X = np.full((case.n + 1, case.n + 1), 0.0 if counts else np.nan)
    X[:-1, :-1] = case.X
    if counts and case.likelihood.directed:
        X = X[:, :-1]  # a new node sends links, and receives none
    hyper = numbers_of(case.likelihood)
    before = reference.log_likelihood_relational(case.X, labels, **hyper)
    for i in range(4):
        X[-1, : case.n] = new[i]
        if X.shape[1] > case.n:
            X[:-1, -1] = np.nan if case.likelihood.directed else new[i]
        for k in range(len(slots) + 1):
            after = reference.log_likelihood_relational(X, [*labels, k], **hyper)
            assert_equal(actual[k, i], after - before)


def test_coupled_sparse_equals_dense():
    X = np.triu(np.random.default_rng(0).random((8, 8)) < 0.4, 1)
    X = (X + X.T).astype(float)
    labels = np.arange(8) % 2
    values = []
    for data in (X, sp.csr_array(X), sp.csr_matrix(X)):
        probe, _ = _bound(Case(Relational(), data), labels)
        values.append(probe.log_likelihood(np.arange(2)))
    assert values[1:] == values[:1] * 2


@every_coupled
def test_coupled_predictive_sums_to_one(case):
    """Over all rows of links of a new node to four nodes."""
    if case.likelihood.degree_correction or case.likelihood.weights is not None:
        pytest.skip("ratios of densities, see `Relational`, or infinitely many weights")
    X = case.X[:4, :4]
    small = Case(clone(case.likelihood), X)
    labels = np.array([0, 1, 1, 0])
    probe, bound = _bound(small, labels)
    values = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    model = bind(small.likelihood, small.likelihood.encode_new(values), 4)
    model.bind_labels(bound)
    model.load(probe.model.dump([0, 1]))
    totals = np.exp(model.log_predictive_rows([0, 1, 2], 0, 16)).sum(axis=1)
    assert_equal(totals, np.ones(3))


@every_coupled
@given(seed=seeds)
@few
@pytest.mark.long
def test_coupled_likelihood_at_other_hyperparameters(case, seed):
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(3, size=case.n), return_inverse=True)[1]
    probe, _ = _bound(case, labels)
    slots = np.arange(labels.max() + 1)
    start, start_of = probe.model.hyperparameters(), case.likelihood
    np.testing.assert_array_equal(start, case.likelihood.flat_hyperparameters())
    values = start * np.exp(rng.normal(size=len(start)))

    def at(values):
        named = zip(case.likelihood.hyperparameters, values, strict=True)
        shaped = {
            name: np.reshape(value, shape)
            if (shape := np.shape(getattr(start_of, name)))
            else value
            for name, value in named
        }
        return Case(start_of.at(shaped), case.X)

    def expected(values):
        return _log_relational(at(values), labels)

    n_own = len([name for name in start_of.hyperparameters if "__" not in name])
    for h in range(n_own):  # those of weights are drawn by their kernel
        other = values.copy()
        other[h] *= np.exp(rng.normal())
        change = np.diff(log_likelihoods_at(probe.model, slots, [values, other], h))
        assert_equal(change, [expected(other) - expected(values)])
    assert_equal(probe.log_likelihood(slots), expected(start))
    # As if the values had been there from the start; statistics stay.
    rows = probe.model.dump(slots)
    probe.model.set_hyperparameters(values)
    np.testing.assert_array_equal(probe.model.dump(slots), rows)
    assert_equal(probe.log_likelihood(slots), expected(values))
    fresh, _ = _bound(at(values), labels)
    i = int(rng.integers(case.n))
    for one in (probe, fresh):
        one.remove(labels[i], i)
    assert_equal(probe.log_predictive_many(slots, i), fresh.log_predictive_many(slots, i))


def _directed_with_holes():
    X = next(examples_of(Relational))[1].copy()
    X[np.random.default_rng(1).random(X.shape) < 0.15] = np.nan
    return pytest.param(Case(Relational(a=0.8, b=1.3, directed=True), X), id="directed with holes")


every_network = pytest.mark.parametrize("case", [*cases(coupled=True), _directed_with_holes()])


def _merged_problem(case, seed):
    """Clusters 0, ..., K - 1 and an empty one of some items, the others being in none."""
    rng = np.random.default_rng(seed)
    labels = np.unique(rng.integers(1 + seed % 5, size=case.n), return_inverse=True)[1]
    away = rng.permutation(case.n)[: rng.integers(case.n // 2)]
    labels[np.setdiff1d(away, np.unique(labels, return_index=True)[1])] = -1
    probe, bound = _bound(case, labels)
    assert probe.acquire() == labels.max() + 1
    return rng, labels, probe, bound


@every_network
@given(seed=seeds)
@few
def test_coupled_log_merge_many(case, seed):
    """Differences of log likelihoods, by the kernel's own way and by the base class's, which
    leave no trace."""
    rng, labels, probe, bound = _merged_problem(case, seed)
    slots = np.arange(labels.max() + 2)
    src = int(rng.integers(len(slots)))
    others = rng.permutation(np.delete(slots, src))
    rows, before = probe.model.dump(slots), bound.copy()
    apart = _log_relational(case, labels)
    expected = [_log_relational(case, np.where(labels == src, k, labels)) - apart for k in others]
    for log_merge_many in (probe.log_merge_many, probe.log_merge_many_by_default):
        assert_equal(log_merge_many(others, src), expected)
        np.testing.assert_array_equal(probe.model.dump(slots), rows)
        np.testing.assert_array_equal(bound, before)
    # What has been asked before leaves no trace either.
    for i in np.flatnonzero(labels < 0)[:2]:
        probe.log_predictive_many(slots, i)
        assert_equal(probe.log_merge_many(others, src), expected)
        without = [np.where(np.arange(case.n) == i, k, labels) for k in slots]
        predictives = [_log_relational(case, one) - apart for one in without]
        assert_equal(probe.log_predictive_many(slots, i), predictives)


@every_network
@given(seed=seeds)
@few
def test_coupled_merge_is_moving_the_items(case, seed):
    """To the bit, and the source is left without items and links, whoever sets the labels."""
    rng, labels, probe, bound = _merged_problem(case, seed)
    slots = np.arange(labels.max() + 2)
    dst, src = (int(k) for k in rng.permutation(slots)[:2])
    merged = np.where(labels == src, dst, labels)
    by_items, moved = _bound(case, labels)
    by_items.acquire()
    for i in np.flatnonzero(labels == src):
        moved[i] = -1
        by_items.remove(src, i)
        by_items.add(dst, i)
        moved[i] = dst
    by_default, moved = _bound(case, labels)
    by_default.acquire()
    by_default.merge_by_default(dst, src)
    np.testing.assert_array_equal(moved, merged)
    if (labels < 0).any():
        probe.log_predictive(dst, int(np.flatnonzero(labels < 0)[0]))
    probe.merge(dst, src)
    bound[labels == src] = dst
    for one in (probe, by_default):
        np.testing.assert_array_equal(one.model.dump(slots), by_items.model.dump(slots))
        assert not one.model.dump(slots)[src].any()
        for i in np.flatnonzero(labels < 0):
            np.testing.assert_array_equal(
                one.log_predictive_many(slots, i), by_items.log_predictive_many(slots, i)
            )


@every_network
@given(seed=seeds)
@few
def test_coupled_rebuild(case, seed):
    """Rows that are computed anew from their items are as they were; so are the labels."""
    _, labels, probe, bound = _merged_problem(case, seed)
    slots = np.arange(labels.max() + 2)
    before = probe.model.dump(slots)
    for k in slots:
        probe.rebuild(k, np.flatnonzero(labels == k))
        np.testing.assert_array_equal(probe.model.dump(slots), before)
        np.testing.assert_array_equal(bound, labels)
