"""The laws that every factorising kernel obeys, on `support.examples` of its likelihood.

Laws of coupled kernels are in `test_coupled.py`, numerics of particular likelihoods in
`test_gaussian.py` and `test_counts.py`.
"""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from scipy import stats
from sklearn.base import clone
from support.kernels import bind
from support.laws import (
    Case,
    assert_equal,
    cases,
    densities,
    every_product,
    few,
    fill,
    log_marginal,
    log_reference,
    numbers_of,
    random_subsets,
    reference_of,
    seeds,
)
from support.probes import Probe
from support.pvalues import assert_p

from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Product,
    PyClone,
    Subspace,
    VonMisesFisher,
)

# Densities.


@every_product
@given(seed=seeds)
@few
def test_log_marginal_equals_reference(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    (items,) = random_subsets(rng, case.n, 1)
    slot = fill(probe, items)
    assert_equal(log_marginal(probe, slot, items), log_reference(case, items), rtol=1e-9)


@every_product
@given(seed=seeds)
@few
@pytest.mark.some(2)
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
    total = log_marginal(probe, slot, items)
    for i in rng.permutation(others):
        total += probe.log_predictive(slot, i)
        probe.add(slot, i)
    items = np.concatenate([items, others])
    assert_equal(log_marginal(probe, slot, items), total, rtol=1e-9, atol=1e-8)


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
    actual = sum(log_marginal(probe, *each) for each in zip(slots, sets, strict=True))
    assert_equal(actual, sum(log_reference(case, s) for s in sets))
    rest = sum(probe.log_marginal(slot) for slot in slots)
    assert_equal(probe.log_likelihood(slots), rest)


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
def test_log_merge_many_is_a_ratio_of_densities(case, seed):
    rng = np.random.default_rng(seed)
    probe = case.probe()
    parts = [*random_subsets(rng, case.n, 3), []]
    slots = np.array([fill(probe, part) for part in parts], dtype=np.intp)
    rows, free_slots = probe.model.dump(slots, True), probe.model.free_list()
    for src in range(4):
        others = rng.permutation(np.delete(np.arange(4), src))
        expected = [
            log_reference(case, np.concatenate([parts[k], parts[src]]).astype(int))
            - log_reference(case, parts[k])
            - log_reference(case, parts[src])
            if len(parts[k]) and len(parts[src])
            else 0.0
            for k in others
        ]
        actual = probe.log_merge_many(slots[others], slots[src])
        assert_equal(actual, expected, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(probe.model.dump(slots, True), rows)
    np.testing.assert_array_equal(probe.model.free_list(), free_slots)


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
@pytest.mark.parametrize(
    "action",
    [
        *("release", "release, add", "release, merge"),
        *("merge", "copy", "rebuild", "add"),
    ],
)
def test_a_removal_is_not_undone_by_what_happens_next(case, action):
    """Kernels may put a removal off until the item is seen to come back."""
    probe = case.probe()
    a, b = fill(probe, [0, 1, 2]), fill(probe, [3, 4])
    probe.remove(a, 1)
    items = [0, 2]
    if action.startswith("release"):
        probe.release(a)
        a = probe.acquire()
        items = []
        if action == "release, add":
            items = [5, 6]
            for i in items:
                probe.add(a, i)
        elif action == "release, merge":
            items = [3, 4]
            probe.merge(a, b)
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
    for n_slots in (3, 40, 1000):
        probe.reserve(n_slots)
        assert probe.model.n_slots == n_slots
        np.testing.assert_array_equal(probe.model.dump(slots, True), rows)
        # The new ones are free, and not those in use.
        slot = probe.acquire()
        assert slot not in slots
        assert probe.model.n_free == n_slots - 3
        probe.release(slot)
    assert sorted(probe.model.free_list()) == list(range(2, 1000))


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
    if case.likelihood.allow_nan and not sp.issparse(case.X):
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
    # What is learned in the case is fixed in a copy.
    expected = Case(clone(case.likelihood), case.X).probe()
    assert probe.log_marginal(fill(probe, [0, 1])) == expected.log_marginal(fill(expected, [0, 1]))


@every_product
def test_resolve_changes_neither_the_object_nor_what_is_resolved(case):
    again = case.likelihood.resolve(case.X)
    assert again is not case.likelihood
    first, second = (each.get_params(deep=False) for each in (case.likelihood, again))
    for name in first:
        if name == "parts":
            assert [repr(part) for part in first[name]] == [repr(part) for part in second[name]]
        else:
            np.testing.assert_array_equal(first[name], second[name])


def _nan_cases():
    found = [case for case in cases(coupled=False) if _takes_nan(case.values[0].likelihood)]
    return [case for case in found if not sp.issparse(case.values[0].X)]


def _takes_nan(likelihood):
    if likelihood.draws_gaps:
        return False  # tests/mixture/test_gaps.py
    if isinstance(likelihood, Product):
        return all(part.allow_nan for _, part, _ in likelihood.parts)
    return likelihood.allow_nan


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
    if isinstance(case.likelihood, (PyClone, VonMisesFisher)):
        pytest.skip("entries are missing together, of columns that depend on others")
    X = np.array(case.X)
    X[np.isnan(X)] = 1.0
    likelihood = clone(case.likelihood).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), case.n), 3)
    rows = probe.model.dump([fill(probe, [0, 1, 5])])
    # Of a mutation, the columns of a sample are missing together.
    size = 6 if isinstance(case.likelihood, PyClone) else 1
    n_entries = X.shape[1] // size
    entries = np.kron(np.eye(n_entries), np.ones(size)) == 1
    Y = np.repeat(X[3:4], n_entries + 1, axis=0)
    Y[:-1][entries] = np.nan
    only = np.where(entries, X[3], np.nan)
    new = Probe(bind(likelihood, likelihood.encode_new(np.vstack([Y, only])), case.n), 2)
    new.model.load(rows)
    log_density = new.model.log_predictive_rows([0], 0, new.model.n_samples)[0]
    without, complete, alone = np.split(log_density, [n_entries, n_entries + 1])
    assert_equal(complete, probe.log_predictive(0, 3))
    if getattr(likelihood, "covariance_type", None) == "spherical":
        log_marginal, hyper = reference_of(likelihood, X), numbers_of(likelihood)
        expected = [log_marginal(np.vstack([X[[0, 1, 5]], y]), **hyper) for y in [*Y, only[0]]]
        expected = np.array(expected) - log_marginal(X[[0, 1, 5]], **hyper)
        assert_equal(log_density[: len(expected)], expected)
    else:  # columns are independent, given the cluster
        assert_equal(without + alone, np.repeat(complete, n_entries))


# Draws and parameters.


def _generating():
    return [
        case for case in cases(coupled=False) if case.values[0].likelihood.lacks("draw") is None
    ]


def draws_p(case, seed, n, *, wrong=False):
    """Draws x of the predictive p of three items: the mean of q(x) / p(x) is 1 for a density q, if
    draws and densities agree. Here q is the predictive of more items, so narrower: nine that are
    drawn from p, so the two overlap. `wrong`: the draws are those of q."""
    rng = np.random.default_rng(seed)
    X = case.X.toarray() if sp.issparse(case.X) else case.X
    three = case.probe()
    stats_ = three.model.dump([fill(three, range(3))])
    more = case.likelihood.draw_rows(stats_, np.zeros(9, np.intp), X.shape[1], rng)
    assert more.shape == (9, X.shape[1])
    data = case.likelihood.encode(np.vstack([X[:3], more]))
    probe = Probe(bind(case.likelihood, data, 12), 2)
    rows = probe.model.dump([fill(probe, range(3)), fill(probe, range(12))])
    Y = case.likelihood.draw_rows(rows, np.full(n, int(wrong)), X.shape[1], rng)
    new = bind(case.likelihood, case.likelihood.encode_new(Y), 12)
    new.load(rows)
    log_p, log_q = new.log_predictive_rows([0, 1], 0, n)
    ratio = np.exp(log_q - log_p)
    assert ratio.std() > 0.01
    return stats.ttest_1samp(ratio, 1.0).pvalue


@pytest.mark.parametrize("case", _generating())
def test_draws_follow_the_predictive(case, seed_sequence):
    assert_p(
        lambda seed, factor: draws_p(case, seed, round(10_000 * factor)),
        seed_sequence=seed_sequence,
    )


@pytest.mark.parametrize("case", _generating())
@pytest.mark.slow
def test_draws_of_another_predictive_are_seen(case, seed_sequence):
    assert draws_p(case, seed_sequence, 40_000, wrong=True) < 1e-6


@every_product
def test_cluster_params_are_finite(case):
    probe = case.probe()
    rows = probe.model.dump([fill(probe, [0, 1, 2]), fill(probe, [5])])
    params = case.likelihood.cluster_params(rows)
    parts = params.values() if isinstance(case.likelihood, Product) else [params]
    for value in (value for part in parts for value in part.values()):
        assert len(value) == 2
        assert np.isfinite(value).all()


# Numerics.


def _drift(case, n_moves):
    """Largest change of a density after `n_moves` removals and additions, in units of the largest
    density where that is above 1e3: what comes and goes is as large, and is rounded so."""
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
    exact = densities(case, probe, [slot])
    return np.abs(drifted - exact).max() / max(1.0, np.abs(exact).max() / 1e3)


@every_product
def test_drift(case):
    assert _drift(case, 20_000) < 1e-8


@pytest.mark.slow
@every_product
def test_drift_long(case):
    if not case.probe().model.drifts:
        pytest.skip("exact statistics, compared in test_drift")
    assert _drift(case, 1_000_000) < 1e-8


@every_product
def test_duplicates(case):
    """Many copies of one row; rows are added to and removed from the copies."""
    rows = np.array([0] * 9 + [1, 2])
    X = case.X[rows]
    twin = Case.__new__(Case)
    twin.likelihood, twin.X, twin.n = case.likelihood, X, len(rows)
    twin.data, twin.fitted = case.likelihood.encode(X), case.X
    probe = twin.probe()
    slot = fill(probe, np.arange(9))
    found = log_marginal(probe, slot, np.arange(9))
    assert_equal(found, log_reference(twin, np.arange(9)), rtol=1e-9)
    probe.add(slot, 9)
    probe.add(slot, 10)
    probe.remove(slot, 9)
    probe.remove(slot, 10)
    found = log_marginal(probe, slot, np.arange(9))
    assert_equal(found, log_reference(twin, np.arange(9)), rtol=1e-8)


@every_product
def test_one_row_and_one_column(case):
    n_columns = {PyClone: 6, VonMisesFisher: 2}.get(type(case.likelihood), 1)
    if isinstance(case.likelihood, Product):
        n_columns = case.X.shape[1]
    for X in (case.X[:1], case.X[:, :n_columns], case.X[:1, :n_columns]):
        likelihood = clone(case.likelihood)
        if isinstance(likelihood, Gaussian | Subspace):
            likelihood.set_params(mean=None, mean_precision=None, df=None, scale=None)
        if isinstance(likelihood, Categorical):
            likelihood.set_params(n_categories=None, concentration=None)
        if isinstance(likelihood, Multinomial):
            likelihood.set_params(base="uniform")
        if isinstance(likelihood, Bernoulli):
            likelihood.set_params(a=None, b=0.7)
        if isinstance(likelihood, NegativeBinomial):
            likelihood.set_params(dispersion=0.7)
        if type(likelihood) is Grid:
            likelihood.set_params(log_weights=None)
            if likelihood.log_likelihood is None:
                likelihood.set_params(grid=None)
        # Clusters are not made of columns that are constant, as all are in one row.
        small = Case(likelihood.keeping_columns(), X)
        probe = small.probe()
        slot = fill(probe, np.arange(small.n))
        items = np.arange(small.n)
        assert_equal(log_marginal(probe, slot, items), log_reference(small, items))
