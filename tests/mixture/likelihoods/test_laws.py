"""The laws that every likelihood's kernel obeys, on its `_examples()`.

A factorising kernel goes through all of them; a coupled one (relational), whose clusters can be
neither copied nor merged, through those that make sense for it, on a whole partition.
"""

import itertools
from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import likelihoods as reference
from scipy.integrate import quad
from sklearn.base import clone
from support.kernels import bind

from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Relational,
)
from skdpm.mixture.likelihoods._base import Probe

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=20)
PI = Decimal("3.14159265358979323846264338327950288419716939937510")


class Case:
    """One example of a likelihood, resolved on its data."""

    def __init__(self, likelihood, X):
        self.likelihood, self.X = likelihood.resolve(X), X
        self.n = X.shape[0]
        self.data = self.likelihood.encode(X)

    def probe(self, n_slots=6):
        return Probe(bind(self.likelihood, self.data, self.n), n_slots)


def _cases(coupled):
    return list(_iterate_cases(coupled))


def _iterate_cases(coupled):
    for name, cls in LIKELIHOODS.items():
        for number, (likelihood, X) in enumerate(cls._examples()):
            if ("product" not in likelihood.capabilities) == coupled:
                yield pytest.param(Case(likelihood, X), id=f"{name}{number}")


every_product = pytest.mark.parametrize("case", _cases(coupled=False))
every_coupled = pytest.mark.parametrize("case", _cases(coupled=True))


def assert_equal(actual, desired, *, rtol=1e-10, atol=1e-9):
    np.testing.assert_allclose(actual, desired, rtol=rtol, atol=atol)


def random_subsets(rng, n, n_sets):
    """Disjoint sets of items, none of them empty; the last items are in none."""
    items = rng.permutation(n)
    cuts = np.sort(rng.choice(np.arange(1, n - 1), size=n_sets, replace=False))
    return np.split(items[: cuts[-1]], cuts[:-1])


def fill(probe, items, *, slot=None):
    """A cluster with these items in a slot that has been used before."""
    if slot is None:
        slot = probe.acquire()
        for i in items[::-1]:
            probe.add(slot, i)
        if len(items) > 1:
            probe.remove(slot, items[-1])
        probe.release(slot)
        assert probe.acquire() == slot
    for i in items:
        probe.add(slot, i)
    return slot


def densities(case, probe, slots):
    """All that a row says, cached terms included, as far as it can be observed."""
    slots = np.asarray(slots, dtype=np.intp)
    return np.concatenate(
        [[probe.log_marginal(k) for k in slots]]
        + [probe.log_predictive_many(slots, i) for i in range(case.n)]
    )


def log_reference(case, items):
    """log p(items form one cluster), from the reference."""
    likelihood, X = case.likelihood, case.X
    X = X.toarray() if sp.issparse(X) else X
    hyper = likelihood.get_params(deep=False)
    return reference.LOG_MARGINALS[type(likelihood).__name__.lower()](X[items], **hyper)


# Densities.


@every_product
@given(seed=seeds)
@few
def test_log_marginal_equals_reference(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    (items,) = random_subsets(rng, case.n, 1)
    slot = fill(probe, items)
    assert_equal(probe.log_marginal(slot), log_reference(case, items), rtol=1e-9)


@every_product
@given(seed=seeds)
@few
def test_log_predictive_equals_reference(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    (items,) = random_subsets(rng, case.n, 1)
    slot = fill(probe, items)
    before = log_reference(case, items)
    for i in np.setdiff1d(np.arange(case.n), items):
        expected = log_reference(case, [*items, i]) - before
        assert_equal(probe.log_predictive(slot, i), expected, rtol=1e-8, atol=1e-8)


@every_product
def test_empty_cluster_has_log_marginal_zero_and_the_prior_predictive(case):
    probe = case.probe()
    slot = fill(probe, [2, 0])
    probe.remove(slot, 0)
    probe.remove(slot, 2)
    assert probe.log_marginal(slot) == 0.0
    for i in range(case.n):
        assert_equal(probe.log_predictive(slot, i), log_reference(case, [i]), rtol=1e-9)


@every_product
@given(seed=seeds)
@few
def test_predictives_along_any_order_add_up_to_the_marginal(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    items, others = random_subsets(rng, case.n, 2)
    slot = fill(probe, items)
    total = probe.log_marginal(slot)
    for i in rng.permutation(others):
        total += probe.log_predictive(slot, i)
        probe.add(slot, i)
    assert_equal(probe.log_marginal(slot), total, rtol=1e-9, atol=1e-8)


@every_product
@given(seed=seeds)
@few
def test_order_of_adds_is_irrelevant(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    (items,) = random_subsets(rng, case.n, 1)
    a, b = fill(probe, items), fill(probe, rng.permutation(items))
    assert_equal(probe.model.dump([a], True), probe.model.dump([b], True), rtol=1e-8)
    assert_equal(densities(case, probe, [a]), densities(case, probe, [b]))


@every_product
@given(seed=seeds)
@few
def test_many_equals_one_by_one(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    slots = [fill(probe, items) for items in random_subsets(rng, case.n, 3)]
    slots = np.array([slots[2], probe.acquire(), slots[0], slots[1], slots[0]], dtype=np.intp)
    for i in range(case.n):
        one_by_one = [probe.log_predictive(slot, i) for slot in slots]
        np.testing.assert_array_equal(probe.log_predictive_many(slots, i), one_by_one)
    rows = probe.model.log_predictive_rows(slots, 2, case.n)
    expected = [[probe.log_predictive(slot, i) for i in range(2, case.n)] for slot in slots]
    np.testing.assert_array_equal(rows, expected)


@every_product
def test_log_likelihood_is_the_sum_of_the_marginals(case):
    probe = case.probe()
    sets = random_subsets(np.random.default_rng(0), case.n, 3)
    slots = np.array([fill(probe, items) for items in sets], dtype=np.intp)
    assert probe.model.factorizes
    assert_equal(probe.log_likelihood(slots), sum(log_reference(case, s) for s in sets))


# Statistics.


@every_product
@given(seed=seeds)
@few
def test_add_then_remove_restores_the_row(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    items, others = random_subsets(rng, case.n, 2)
    slot = fill(probe, items)
    row, before = probe.model.dump([slot], True), densities(case, probe, [slot])
    for i in others:
        probe.add(slot, i)
    for i in rng.permutation(others):
        probe.remove(slot, i)
    if probe.model.drifts:
        assert_equal(probe.model.dump([slot], True), row, rtol=1e-8, atol=1e-8)
    else:
        np.testing.assert_array_equal(probe.model.dump([slot], True), row)
    assert_equal(densities(case, probe, [slot]), before, rtol=1e-8)


@every_product
@given(seed=seeds)
@few
def test_remove_then_add_restores_the_row(case, seed):
    """With what samplers do in between: densities under the reduced cluster and under others."""
    rng = np.random.default_rng(seed)
    probe = case.probe()
    items, others = random_subsets(rng, case.n, 2)
    slots = np.array([fill(probe, items), fill(probe, others), probe.acquire()], dtype=np.intp)
    row, before = probe.model.dump(slots, True), densities(case, probe, slots)
    for m in range(len(items)):
        probe.remove(slots[0], items[m])
        rest = np.delete(items, m)
        expected = [
            log_reference(case, [*cluster, items[m]]) - log_reference(case, cluster)
            if len(cluster)
            else log_reference(case, [items[m]])
            for cluster in (rest, others, [])
        ]
        actual = probe.log_predictive_many(slots, items[m])
        assert_equal(actual, expected, rtol=1e-8, atol=1e-8)
        probe.add(slots[0], items[m])
    assert_equal(probe.model.dump(slots, True), row, rtol=1e-8)
    assert_equal(densities(case, probe, slots), before)


@every_product
@given(seed=seeds)
@few
def test_an_item_moves_between_clusters(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    a, b = (list(items) for items in random_subsets(rng, case.n, 2))
    slots = [fill(probe, a), fill(probe, b)]
    for _ in range(20):
        source = int(rng.integers(2))
        if not (a, b)[source]:
            continue
        item = (a, b)[source].pop(rng.integers(len((a, b)[source])))
        probe.remove(slots[source], item)
        (a, b)[1 - source].append(item)
        probe.add(slots[1 - source], item)
    fresh = [fill(probe, a), fill(probe, b)]
    assert_equal(densities(case, probe, slots), densities(case, probe, fresh), rtol=1e-8)


@every_product
@given(seed=seeds)
@few
def test_merge_adds_the_items_of_the_source(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    a, b = random_subsets(rng, case.n, 2)
    dst, src, both = fill(probe, a), fill(probe, b), fill(probe, np.concatenate([a, b]))
    empty = probe.acquire()
    source = probe.model.dump([src], True)
    probe.merge(dst, empty)
    probe.merge(dst, src)
    probe.merge(empty, dst)
    assert_equal(probe.model.dump([dst], True), probe.model.dump([both], True), rtol=1e-8)
    expected = densities(case, probe, [both])
    assert_equal(densities(case, probe, [dst]), expected)
    assert_equal(densities(case, probe, [empty]), expected)
    np.testing.assert_array_equal(probe.model.dump([src], True), source)


@every_product
@given(seed=seeds)
@few
def test_a_copy_is_independent_of_its_source(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    items, others = random_subsets(rng, case.n, 2)
    source, target = fill(probe, items), fill(probe, others)
    before = densities(case, probe, [source])
    probe.copy(target, source)
    np.testing.assert_array_equal(densities(case, probe, [target]), before)
    for i in others:
        probe.add(target, i)
    np.testing.assert_array_equal(densities(case, probe, [source]), before)
    changed = densities(case, probe, [target])
    probe.remove(source, items[0])
    probe.release(source)
    np.testing.assert_array_equal(densities(case, probe, [target]), changed)


@every_product
@pytest.mark.parametrize("action", ["release", "merge", "copy", "rebuild", "add"])
def test_a_removal_is_not_undone_by_what_happens_next(case, action):
    """Kernels may put a removal off until the item is seen to come back."""
    probe = case.probe()
    a, b = fill(probe, [0, 1, 2]), fill(probe, [3, 4])
    probe.remove(a, 1)
    items = [0, 2]
    if action == "release":
        probe.release(a)
        a = probe.acquire()
        items = []
    elif action == "merge":
        probe.merge(a, b)
        items = [0, 2, 3, 4]
    elif action == "copy":
        probe.copy(a, b)
        items = [3, 4]
    elif action == "rebuild":
        items = [5, 6]
        probe.rebuild(a, np.array(items))
    else:
        probe.add(b, 7)
    probe.add(a, 1)
    expected = fill(probe, [*items, 1])
    assert_equal(densities(case, probe, [a]), densities(case, probe, [expected]), rtol=1e-8)


@every_product
def test_rebuild_replaces_the_items(case):
    probe = case.probe()
    slot, expected = fill(probe, [5, 1, 3]), fill(probe, [0, 2, 4, 6])
    probe.rebuild(slot, np.array([0, 2, 4, 6]))
    assert_equal(densities(case, probe, [slot]), densities(case, probe, [expected]))


@every_product
@pytest.mark.parametrize("cached", [False, True])
def test_dump_and_load(case, cached):
    probe = case.probe()
    sets = random_subsets(np.random.default_rng(1), case.n, 3)
    slots = [fill(probe, items) for items in sets]
    probe.remove(slots[0], sets[0][0])
    probe.add(slots[0], sets[0][0])
    rows = probe.model.dump(slots[::-1], cached)
    width = probe.model.width if cached else probe.model.n_stats
    assert rows.shape == (3, width)
    np.testing.assert_array_equal(rows[:, 0], [len(items) for items in sets[::-1]])
    expected = densities(case, probe, slots[::-1])
    for target in (probe, case.probe()):
        target.model.load(rows)
        actual = densities(case, target, [0, 1, 2])
        if cached:
            np.testing.assert_array_equal(actual, expected)
        else:
            assert_equal(actual, expected)


@every_product
def test_slots_keep_their_rows_when_the_arena_grows(case):
    probe = case.probe(n_slots=2)
    slots = [fill(probe, [0, 1]), fill(probe, [2])]
    rows = probe.model.dump(slots, True)
    larger = case.probe(n_slots=40)
    larger.model.load(rows)
    np.testing.assert_array_equal(larger.model.dump([0, 1], True), rows)


# Data.


@every_product
@given(seed=seeds)
@few
def test_a_new_row_has_the_density_it_had_in_training(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    slots = [fill(probe, items) for items in random_subsets(rng, case.n, 2)]
    rows = probe.model.dump(slots)
    trained = probe.model.log_predictive_rows(slots, 0, case.n)
    some = rng.permutation(case.n)[: rng.integers(1, case.n)]
    new = Probe(bind(case.likelihood, case.likelihood.encode_new(case.X[some]), case.n), 3)
    new.model.load(rows)
    assert_equal(new.model.log_predictive_rows([0, 1], 0, len(some)), trained[:, some])


@every_product
def test_new_rows_do_not_depend_on_each_other(case):
    """To the bit: predictions are row by row. (Where another row has missing entries, the last
    digits of categorical ones change.)"""
    probe = case.probe()
    rows = probe.model.dump([fill(probe, [0, 1, 2, 5]), fill(probe, [3, 4])])

    def log_densities(X):
        new = bind(case.likelihood, case.likelihood.encode_new(X), case.n)
        new.load(rows)
        return new.log_predictive_rows([0, 1, 2], 0, X.shape[0])

    together = log_densities(case.X)
    for i in range(case.n):
        np.testing.assert_array_equal(log_densities(case.X[i : i + 1]), together[:, i : i + 1])
    if case.likelihood.allow_nan:
        X = np.vstack([case.X, np.full_like(case.X[:1], np.nan)])
        assert_equal(log_densities(X)[:, :-1], together, rtol=1e-14, atol=1e-14)


@every_product
def test_the_data_are_not_modified(case):
    X = case.X.copy()
    likelihood = clone(case.likelihood)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), case.n), 3)
    fill(probe, [0, 1, 2])
    if sp.issparse(X):
        X, original = X.toarray(), case.X.toarray()
    else:
        original = case.X
    np.testing.assert_array_equal(X, original)


@every_product
def test_read_only_data(case):
    if sp.issparse(case.X):
        X = case.X.copy()
        for array in (X.data, X.indices, X.indptr):
            array.flags.writeable = False
    else:
        X = case.X.copy()
        X.flags.writeable = False
    likelihood = clone(case.likelihood).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), case.n), 3)
    expected = case.probe()
    assert probe.log_marginal(fill(probe, [0, 1])) == expected.log_marginal(fill(expected, [0, 1]))


@every_product
def test_resolve_changes_neither_the_object_nor_what_is_resolved(case):
    again = case.likelihood.resolve(case.X)
    assert again is not case.likelihood
    first, second = (each.get_params(deep=False) for each in (case.likelihood, again))
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def _nan_cases():
    return [case for case in _cases(coupled=False) if case.values[0].likelihood.allow_nan]


@pytest.mark.parametrize("case", _nan_cases())
def test_a_row_without_entries_has_density_one(case):
    X = np.array(case.X)
    X[3] = np.nan
    likelihood = clone(case.likelihood).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), case.n), 4)
    slot, empty = fill(probe, [0, 1, 5]), probe.acquire()
    assert_equal(probe.log_predictive_many(np.array([slot, empty]), 3), [0.0, 0.0], atol=1e-13)
    before = densities(case, probe, [slot])
    probe.add(slot, 3)
    assert_equal(densities(case, probe, [slot]), before)
    probe.add(empty, 3)
    assert probe.log_marginal(empty) == 0.0
    new = likelihood.encode_new(np.full((2, X.shape[1]), np.nan))
    new = Probe(bind(likelihood, new, case.n), 3)
    new.model.load(probe.model.dump([slot]))
    assert_equal(new.model.log_predictive_rows([0], 0, 2), [[0.0, 0.0]], atol=1e-13)


@pytest.mark.parametrize("case", _nan_cases())
def test_missing_entries_in_new_rows_alone(case):
    """`fit` without NaN, `predict` with: the density is that of the other entries."""
    X = np.array(case.X)
    X[np.isnan(X)] = 1.0
    likelihood = clone(case.likelihood).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), case.n), 3)
    rows = probe.model.dump([fill(probe, [0, 1, 5])])
    Y = np.repeat(X[3:4], X.shape[1] + 1, axis=0)
    Y[np.arange(X.shape[1]), np.arange(X.shape[1])] = np.nan
    only = np.full_like(Y[:-1], np.nan)
    only[np.arange(X.shape[1]), np.arange(X.shape[1])] = X[3]
    new = Probe(bind(likelihood, likelihood.encode_new(np.vstack([Y, only])), case.n), 2)
    new.model.load(rows)
    log_density = new.model.log_predictive_rows([0], 0, new.model.n_samples)[0]
    without, complete, alone = np.split(log_density, [X.shape[1], X.shape[1] + 1])
    assert_equal(complete, probe.log_predictive(0, 3))
    assert_equal(without + alone, np.repeat(complete, X.shape[1]))


def _total_probability(likelihood, X, rows, values):
    """Sum of the predictive densities of all rows of `values`, for each row of statistics."""
    probe = Probe(bind(likelihood, likelihood.encode_new(values), len(X)), 4)
    probe.model.load(rows)
    slots = np.arange(len(rows) + 1)  # the last one is empty: the prior predictive
    return np.exp(probe.model.log_predictive_rows(slots, 0, len(values))).sum(axis=1)


@pytest.mark.parametrize(
    ("likelihood", "X", "values"),
    [
        (
            Bernoulli(a=0.4, b=2.0),
            [[0, 1], [1, 1], [1, np.nan], [0, 0]],
            list(itertools.product([0.0, 1.0], repeat=2)),
        ),
        (
            Categorical(concentration=0.6, n_categories=[3, 2]),
            [[0, 1], [2, 1], [1, np.nan], [0, 0]],
            list(itertools.product([0.0, 1.0, 2.0], [0.0, 1.0])),
        ),
        (
            Multinomial(concentration=0.6),
            [[3, 1, 0], [0, 0, 2], [1, 1, 1], [0, 0, 0]],
            [x for x in itertools.product(range(5), repeat=3) if sum(x) == 4],
        ),
        (
            Poisson(shape=3.0, rate=4.0),
            [[3, 1], [0, np.nan], [1, 1], [0, 0]],
            list(itertools.product(range(60), repeat=2)),
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "resolve") else "",
)
def test_discrete_predictives_sum_to_one(likelihood, X, values):
    X = np.array(X, dtype=float)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), 4)
    rows = probe.model.dump([fill(probe, [0, 1, 2]), fill(probe, [3])])
    totals = _total_probability(likelihood, X, rows, np.array(values, dtype=float))
    assert_equal(totals, np.ones(3), rtol=1e-9)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("n_items", [0, 1, 2, 5])
def test_gaussian_predictive_integrates_to_one(covariance_type, n_items):
    X = np.array([[0.3], [1.7], [-4.0], [2.0], [2.1]])
    likelihood = Gaussian(
        mean=0.5, mean_precision=0.4, df=2.5, scale=1.3, covariance_type=covariance_type
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 5), 2)
    rows = probe.model.dump([fill(probe, range(n_items))])

    def density(u):
        x = np.array([[np.tan(u)]])  # the whole line, with the Jacobian 1 + x^2
        new = Probe(bind(likelihood, likelihood.encode_new(x), 5), 2)
        new.model.load(rows)
        return np.exp(new.log_predictive(0, 0)) * (1 + x[0, 0] ** 2)

    total, _ = quad(density, -np.pi / 2, np.pi / 2, epsabs=1e-10, limit=200)
    assert total == pytest.approx(1.0, abs=1e-8)


# Draws and parameters.


@every_product
def test_draws_follow_the_predictive(case):
    """The mean of p(x) / q(x) over draws x of p is 1 for a density q only if draws and densities
    agree; with q = p shifted to another cluster's predictive: E_p[q / p] = 1."""
    if case.likelihood.draw is None:
        pytest.skip("cannot generate")
    rng = np.random.default_rng(0)
    probe = case.probe()
    slots = [fill(probe, range(9)), fill(probe, range(2, 12))]
    rows = probe.model.dump(slots)
    n = 20_000
    Y = case.likelihood.draw(np.repeat(rows[:1], n, axis=0), rng)
    assert Y.shape == (n, case.X.shape[1])
    new = Probe(bind(case.likelihood, case.likelihood.encode_new(Y), case.n), 3)
    new.model.load(rows)
    log_p, log_q = new.model.log_predictive_rows([0, 1], 0, n)
    if np.median(log_p - log_q) > 5.0:
        pytest.skip("the two clusters do not overlap")
    ratio = np.exp(log_q - log_p)
    assert abs(ratio.mean() - 1.0) < 5.0 * ratio.std() / np.sqrt(n)
    # ... and the entropy of draws under p: a draw too wide or too narrow shows here.
    assert ratio.std() > 0.01


@every_product
def test_cluster_params_are_finite(case):
    probe = case.probe()
    rows = probe.model.dump([fill(probe, [0, 1, 2]), fill(probe, [5])])
    params = case.likelihood.cluster_params(rows)
    for value in params.values():
        assert len(value) == 2
        assert np.isfinite(value).all()


def test_cluster_params_gaussian_diag():
    X = np.array([[1.0, np.nan], [2.0, 4.0], [6.0, np.nan]])
    likelihood = Gaussian(
        mean=0.5, mean_precision=0.5, df=1.0, scale=[1.0, 2.0], covariance_type="diag"
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 3), 2)
    params = likelihood.cluster_params(probe.model.dump([fill(probe, [0, 1, 2])]))
    # Column 0: three entries, df 4, mean of the variance; column 1: df 2, its mode.
    scale_0 = 1.0 + 14.0 + 0.5 * 3 / 3.5 * 2.5**2
    scale_1 = 2.0 + 0.5 / 1.5 * 3.5**2
    assert_equal(params["means"], [[(0.5 * 0.5 + 9.0) / 3.5, (0.5 * 0.5 + 4.0) / 1.5]])
    assert_equal(params["covariances"], [[scale_0 / 2.0, scale_1 / 4.0]])


def test_cluster_params_counts():
    X = np.array([[1.0, 0.0], [2.0, 4.0]])
    for likelihood, name, expected in (
        (Multinomial(concentration=0.5), "probabilities", [[3.5 / 8, 4.5 / 8]]),
        (Poisson(shape=2.0, rate=3.0), "rates", [[5.0 / 5, 6.0 / 5]]),
    ):
        likelihood = likelihood.resolve(X)
        probe = Probe(bind(likelihood, likelihood.encode(X), 2), 2)
        params = likelihood.cluster_params(probe.model.dump([fill(probe, [0, 1])]))
        assert list(params) == [name]
        assert_equal(params[name], expected)


# Numerics.


def _drift(case, n_moves):
    """Largest change of a density after `n_moves` removals and additions."""
    rng = np.random.default_rng(0)
    probe = case.probe()
    slot = probe.acquire()
    inside, outside = np.arange(0, case.n, 2), np.arange(1, case.n, 2)
    for i in inside:
        probe.add(slot, i)
    leave, join = np.empty((2, n_moves), dtype=np.intp)
    at_inside = rng.integers(len(inside), size=n_moves)
    at_outside = rng.integers(len(outside), size=n_moves)
    for m, (j, k) in enumerate(zip(at_inside, at_outside, strict=True)):
        leave[m], join[m] = inside[j], outside[k]
        inside[j], outside[k] = outside[k], inside[j]
    probe.shuffle(slot, leave, join)
    drifted = densities(case, probe, [slot])
    row = probe.model.dump([slot], True)
    probe.rebuild(slot, inside)
    if not probe.model.drifts:
        np.testing.assert_array_equal(row, probe.model.dump([slot], True))
    return np.abs(drifted - densities(case, probe, [slot])).max()


@every_product
def test_drift(case):
    assert _drift(case, 20_000) < 1e-8


@pytest.mark.slow
@every_product
def test_drift_long(case):
    assert _drift(case, 1_000_000) < 1e-8


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_gaussian_shift_and_scale(covariance_type, scale, shift):
    """With default hyperparameters densities change by the Jacobian alone."""
    rng = np.random.default_rng(0)
    # Multiples of 2**-10: the shift rounds nothing.
    X = np.round(rng.normal(size=(12, 3)) * [1.0, 3.0, 0.5] * 1024) / 1024
    if covariance_type == "diag":
        X[rng.random(X.shape) < 0.2] = np.nan
    items = [0, 2, 3, 7, 8, 11]

    def log_marginal(X):
        case = Case(Gaussian(covariance_type=covariance_type), X)
        probe = case.probe()
        return probe.log_marginal(fill(probe, items))

    jacobian = np.log(scale) * np.count_nonzero(~np.isnan(X[items]))
    actual = log_marginal(scale * (X + shift))
    # Scaling by 1e-6 rounds the shifted data themselves.
    atol = 1e-9 if scale == 1.0 or shift == 0.0 else 1e-7
    assert_equal(actual, log_marginal(X) - jacobian, atol=atol)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((4, 2)),
        np.full((4, 2), 1e6),
        np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0], [2.0, 5.0]]),
        np.array([[3.0, -1.0]]),
        np.arange(12.0).reshape(3, 4) ** 2,
        np.array([[1.0], [2.0], [2.0]]),
        np.array([[1e-300], [2e-300], [0.0]]),
        np.array([[1e140], [-1e140], [0.0]]),
    ],
    ids=["zeros", "constant", "constant column", "n=1", "D>n", "D=1", "tiny", "huge"],
)
def test_gaussian_defaults_on_degenerate_data(covariance_type, X):
    case = Case(Gaussian(covariance_type=covariance_type), X)
    probe = case.probe()
    slot = probe.acquire()
    total = 0.0
    for i in range(case.n):
        total += probe.log_predictive(slot, i)
        probe.add(slot, i)
    assert np.isfinite(total)
    assert_equal(probe.log_marginal(slot), total, rtol=1e-8, atol=1e-7)
    for i in range(case.n):
        probe.remove(slot, i)
    assert probe.log_marginal(slot) == 0.0


@every_product
def test_duplicates(case):
    """Many copies of one row; rows are added to and removed from the copies."""
    rows = np.array([0] * 9 + [1, 2])
    X = case.X[rows]
    twin = Case.__new__(Case)
    twin.likelihood, twin.X, twin.n = case.likelihood, X, len(rows)
    twin.data = case.likelihood.encode(X)
    probe = twin.probe()
    slot = fill(probe, np.arange(9))
    assert_equal(probe.log_marginal(slot), log_reference(twin, np.arange(9)), rtol=1e-9)
    probe.add(slot, 9)
    probe.add(slot, 10)
    probe.remove(slot, 9)
    probe.remove(slot, 10)
    assert_equal(probe.log_marginal(slot), log_reference(twin, np.arange(9)), rtol=1e-8)


@every_product
def test_one_row_and_one_column(case):
    for X in (case.X[:1], case.X[:, :1], case.X[:1, :1]):
        likelihood = clone(case.likelihood)
        if isinstance(likelihood, Gaussian):
            likelihood.set_params(mean=None, mean_precision=None, df=None, scale=None)
        if isinstance(likelihood, Categorical):
            likelihood.set_params(n_categories=None)
        small = Case(likelihood, X)
        probe = small.probe()
        slot = fill(probe, np.arange(small.n))
        assert_equal(probe.log_marginal(slot), log_reference(small, np.arange(small.n)))


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("value", [1e20, 1e150, 1e200, -1e300, 1.7e308])
@pytest.mark.parametrize("n_features", [1, 3, 40])
def test_gaussian_rows_far_away(covariance_type, value, n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, n_features))
    case = Case(Gaussian(covariance_type=covariance_type), X)
    probe = case.probe()
    rows = probe.model.dump([fill(probe, np.arange(50))])
    new = X[:3].copy()
    new[0, 0] = value
    new[1] = value
    model = bind(case.likelihood, case.likelihood.encode_new(new), case.n)
    model.load(rows)
    log_density = model.log_predictive_rows([0, 1], 0, 3)
    assert np.isfinite(log_density).all()
    # Where a Student t has its tail, the density falls by a power of the distance.
    model = bind(case.likelihood, case.likelihood.encode_new(new / 16.0), case.n)
    model.load(rows)
    near = model.log_predictive_rows([0, 1], 0, 3)
    df = case.likelihood.df + np.array([50, 0])
    if covariance_type == "diag":
        power = np.outer(df + 1.0, [1.0, n_features])
    else:
        power = np.outer(df + 1.0, [1.0, 1.0])
    if n_features == 1:
        expected = power * np.log(16.0)
        assert_equal(near[:, :2] - log_density[:, :2], expected, rtol=1e-9)
    assert (near[:, :2] > log_density[:, :2]).all()


def test_gaussian_diag_outliers_leave_no_trace():
    """An outlier that leaves takes the digits with it; the labels bring them back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[10] = 1e12
    X[20, 1] = -1e9
    likelihood = Gaussian(
        mean=0.0, mean_precision=0.1, df=4.0, scale=1.0, covariance_type="diag"
    ).resolve(X)
    model = bind(likelihood, likelihood.encode(X), 30)
    probe = Probe(model, 4)
    labels = np.zeros(30, dtype=np.intp)
    model.bind_labels(labels)
    slot = fill(probe, np.arange(30))
    assert slot == 0
    for i in (10, 20, 3):
        labels[i] = -1
        probe.remove(slot, i)
    expected = reference.log_marginal_gaussian(X[labels == 0], **likelihood.get_params(deep=False))
    assert_equal(probe.log_marginal(slot), expected)


def test_gaussian_diag_removals_never_leave_a_negative_scatter():
    X = np.array([[1e8], [1.0], [1.0]])
    likelihood = Gaussian(
        mean=0.0, mean_precision=1e-9, df=4.0, scale=1e-12, covariance_type="diag"
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 3), 2)
    slot = fill(probe, [1, 0, 2])
    probe.remove(slot, 0)
    assert probe.model.dump([slot])[0, 3] >= 0.0
    assert np.isfinite(probe.log_marginal(slot))
    assert np.isfinite(probe.log_predictive(slot, 0))


@given(seed=seeds, n_features=st.integers(1, 70), log_scale=st.integers(-60, 60))
@settings(max_examples=60)
def test_gaussian_diag_many_columns(seed, n_features, log_scale):
    """Products of many factors neither overflow nor lose a column, with NaN or without."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, n_features)) * np.exp(log_scale * rng.random(n_features))
    X[4:] *= rng.choice([1e-4, 1.0, 1e4, 1e8], size=(4, 1))
    Y = X.copy()
    Y[rng.random(X.shape) < rng.choice([0.05, 0.4])] = np.nan
    Y[:2] = X[:2]
    for data in (X, Y):
        case = Case(Gaussian(mean=0.1, scale=0.7, covariance_type="diag"), data)
        probe = case.probe()
        slot = fill(probe, [0, 1, 2, 3])
        before = log_reference(case, [0, 1, 2, 3])
        assert_equal(probe.log_marginal(slot), before)
        for i in range(4, 8):
            expected = log_reference(case, [0, 1, 2, 3, i]) - before
            assert_equal(probe.log_predictive(slot, i), expected, rtol=1e-9)


def log_gamma(z):
    """log Gamma in 50 digits: Stirling's series (coefficients B_2k / (2k (2k - 1))), from z >= 50
    by recurrence. A double-precision log Gamma has no digits left after the point at 1e12."""
    bernoulli = ["1/6", "-1/30", "1/42", "-1/30", "5/66", "-691/2730", "7/6", "-3617/510"]
    z = Decimal(z)
    total = Decimal(0)
    while z < 50:
        total -= z.ln()
        z += 1
    total += (z - Decimal("0.5")) * z.ln() - z + (2 * PI).ln() / 2
    for k, number in enumerate(bernoulli, start=1):
        numerator, denominator = map(Decimal, number.split("/"))
        total += numerator / denominator / (2 * k * (2 * k - 1)) / z ** (2 * k - 1)
    return total


def log_negative_binomial(x, size, rho):
    with localcontext(prec=50):
        x, size, rho = Decimal(float(x)), Decimal(float(size)), Decimal(float(rho))
        value = log_gamma(size + x) - log_gamma(size) - log_gamma(x + 1)
        return float(value + size * (rho / (rho + 1)).ln() - x * (rho + 1).ln())


@pytest.mark.parametrize("magnitude", [10, 1e5, 1e7, 1e9, 1e12])
def test_poisson_large_counts(magnitude):
    """Predictives keep their digits where log Gamma has none left."""
    rng = np.random.default_rng(0)
    X = np.floor(magnitude * rng.uniform(0.999, 1.001, size=(40, 2)))
    X[3, 0] = 0.0
    X[4, 1] = 7.0
    case = Case(Poisson(shape=2.5, rate=1.5 / magnitude), X)
    probe = case.probe()
    slot = fill(probe, np.arange(5, 40))
    sums = 2.5 + X[5:].sum(axis=0)
    rho = 35 + case.likelihood.rate
    for i in range(5):
        expected = sum(log_negative_binomial(X[i, d], sums[d], rho) for d in range(2))
        assert_equal(probe.log_predictive(slot, i), expected, rtol=1e-9, atol=1e-7)
    assert np.isfinite(probe.log_marginal(slot))
    rtol = max(1e-9, 1e-14 * magnitude)
    assert_equal(probe.log_marginal(slot), log_reference(case, np.arange(5, 40)), rtol=rtol)


def test_poisson_table_end_is_seamless():
    """Columns on either side of the end of the table, and rows beyond it."""
    X = np.full((6, 2), 170_000.0)
    X[:, 1] = 180_000.0  # sums to more than 2**20
    X += np.arange(12).reshape(6, 2)
    likelihood = Poisson(shape=1.5, rate=1e-5).resolve(X)
    assert likelihood._large.tolist() == [False, True]
    probe = Probe(bind(likelihood, likelihood.encode(X), 6), 2)
    rows = probe.model.dump([fill(probe, np.arange(6))])
    new = np.array([[175_000.0, 181_000.0], [30_000_000.0, 30_000_000.0]])
    model = bind(likelihood, likelihood.encode_new(new), 6)
    model.load(rows)
    expected = [
        sum(log_negative_binomial(x[d], 1.5 + X[:, d].sum(), 6 + 1e-5) for d in range(2))
        for x in new
    ]
    assert_equal(model.log_predictive_rows([0], 0, 2)[0], expected, rtol=1e-9, atol=1e-7)


@pytest.mark.parametrize("magnitude", [1.0, 1e4, 1e7, 1e10])
def test_multinomial_large_counts(magnitude):
    rng = np.random.default_rng(0)
    X = np.floor(magnitude * rng.random((20, 4)) * 3)
    X[5] = [1.0, 0.0, 1.0, 0.0]
    case = Case(Multinomial(concentration=0.5), X)
    probe = case.probe()
    slot = fill(probe, np.arange(6, 20))
    counts = [Decimal(c) for c in X[6:].sum(axis=0) + 0.5]
    for i in range(6):
        with localcontext(prec=50):
            x = [Decimal(v) for v in X[i]]
            exact = log_gamma(sum(x) + 1) + log_gamma(sum(counts))
            exact -= log_gamma(sum(counts) + sum(x))
            for c, v in zip(counts, x, strict=True):
                exact += log_gamma(c + v) - log_gamma(c) - log_gamma(v + 1)
        # What is left of the cancellation is that within the row itself.
        atol = max(1e-8, 1e-14 * magnitude)
        assert_equal(probe.log_predictive(slot, i), float(exact), atol=atol)


def test_multinomial_sparse_forms():
    """Explicit zeros, unsorted and duplicate entries, int64 pointers: the same as dense."""
    X = np.array([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 5.0, 1.0]])
    messy = sp.csr_matrix(
        (
            np.array([1, 1, 0, 1, 1, 4, 1, 0], dtype=np.int64),
            np.array([2, 0, 1, 0, 2, 1, 1, 0], dtype=np.int64),
            np.array([0, 4, 4, 8], dtype=np.int64),
        ),
        shape=(3, 3),
    )
    np.testing.assert_array_equal(messy.toarray(), X)
    before = [array.copy() for array in (messy.data, messy.indices, messy.indptr)]
    values = []
    for data in (X, X.astype(int), sp.csr_array(X), sp.csr_matrix(X), messy):
        likelihood = Multinomial(concentration=0.4).resolve(data)
        probe = Probe(bind(likelihood, likelihood.encode(data), 3), 2)
        values.append(densities(Case(Multinomial(), X), probe, [fill(probe, [0, 2])]))
    for value in values[1:]:
        np.testing.assert_array_equal(value, values[0])
    for array, copy in zip((messy.data, messy.indices, messy.indptr), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_multinomial_row_of_zeros_has_probability_one():
    X = np.array([[2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 5.0, 1.0]])
    for data in (X, sp.csr_array(X), np.zeros((3, 3)), sp.csr_array((3, 3))):
        case = Case(Multinomial(), data)
        probe = case.probe()
        slot, empty = fill(probe, [0, 2]), probe.acquire()
        assert probe.log_predictive(slot, 1) == 0.0
        assert probe.log_predictive(empty, 1) == 0.0


# Coupled likelihoods: laws of a whole partition.


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
    hyper = case.likelihood.get_params(deep=False)
    X = case.X.copy()
    X[labels < 0] = X[:, labels < 0] = np.nan
    return reference.log_likelihood_relational(X, labels, **hyper)


@every_coupled
@given(seed=seeds)
@few
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
    new[rng.random(new.shape) < 0.2] = np.nan
    model = bind(case.likelihood, case.likelihood.encode_new(new), case.n)
    model.bind_labels(bound)
    model.load(probe.model.dump(slots))
    actual = model.log_predictive_rows(np.arange(len(slots) + 1), 0, 4)
    X = np.full((case.n + 1, case.n + 1), np.nan)
    X[:-1, :-1] = case.X
    hyper = case.likelihood.get_params(deep=False)
    before = reference.log_likelihood_relational(case.X, labels, **hyper)
    for i in range(4):
        X[-1, :-1] = new[i]
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
