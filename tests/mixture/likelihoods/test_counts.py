"""Likelihoods of counts and codes: sums over all rows, large counts, forms of the data."""

import itertools
from decimal import Decimal, localcontext

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import betaln
from support.kernels import bind
from support.laws import Case, assert_equal, densities, fill, log_marginal, log_reference
from support.probes import Probe, log_likelihoods_at, log_marginals_at

from skdpm.mixture.likelihoods import Bernoulli, Categorical, Multinomial, Poisson

PI = Decimal("3.14159265358979323846264338327950288419716939937510")


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
    items = np.arange(5, 40)
    assert_equal(log_marginal(probe, slot, items), log_reference(case, items), rtol=rtol)


def test_poisson_table_end_is_seamless():
    """Columns on either side of the end of the table, and rows beyond it."""
    X = np.full((6, 2), 170_000.0)
    X[:, 1] = 180_000.0  # sums to more than 2**20
    X += np.arange(12).reshape(6, 2)
    likelihood = Poisson(shape=1.5, rate=1e-5).resolve(X)
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
@pytest.mark.some(2)
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


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(("low", "high"), [(0.01, 2.0), (1e-200, 1e100)])
def test_products_of_many_factors_neither_overflow_nor_depend_on_usual_values(low, high, gaps):
    """Binary columns, most of them mostly 0 or mostly 1, under extreme pseudo-counts."""
    rng = np.random.default_rng(0)
    n, D = 30, 130
    shares = np.repeat([0.02, 0.5, 0.97], [60, 40, 30])
    X = (rng.random((n, D)) < shares).astype(float)
    if gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
    a, b = (np.exp(rng.uniform(np.log(low), np.log(high), D)) for _ in range(2))
    likelihood = Bernoulli(a, b).resolve(X)
    data = likelihood.encode(X)
    probe = Probe(likelihood.bind(data, likelihood.tables(data, n)), 2)
    slot = probe.acquire()
    for i in range(20):
        probe.add(slot, i)
    probe.remove(slot, 3)
    seen = np.delete(X[:20], 3, axis=0)
    ones, entries = np.nansum(seen, axis=0), (~np.isnan(seen)).sum(axis=0)
    of_one, of_zero = np.log(a + ones), np.log(b + (entries - ones))
    for i in [3, *range(20, n)]:
        terms = np.where(X[i] == 1, of_one, of_zero) - np.log(a + b + entries)
        expected = terms[~np.isnan(X[i])].sum()
        assert probe.log_predictive(slot, i) == pytest.approx(expected, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("gaps", [False, True])
def test_marginal_likelihoods_of_many_rows(gaps):
    """Counts beyond those whose factors are multiplied one by one, under the present pseudo-counts
    and under others."""
    rng = np.random.default_rng(0)
    X = (rng.random((120, 4)) < [0.2, 0.5, 0.7, 0.9]).astype(float)
    if gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
    a, b = np.array([[0.3, 1.7, 6.0, 40.0], [2.5, 0.9, 30.0, 0.4]])
    likelihood = Bernoulli(a, b).resolve(X)
    data = likelihood.encode(X)
    probe = Probe(likelihood.bind(data, likelihood.tables(data, 120)), 2)
    clusters = np.arange(80), np.arange(80, 120)
    slots = [fill(probe, items) for items in clusters]

    def expected(a, b):
        ones = np.array([np.nansum(X[items], axis=0) for items in clusters])
        zeros = np.array([(X[items] == 0).sum(axis=0) for items in clusters])
        return (betaln(a + ones, b + zeros) - betaln(a, b)).sum(axis=1)

    assert_equal([probe.log_marginal(slot) for slot in slots], expected(a, b))
    assert_equal(log_marginals_at(probe.model, slots, np.append(2 * a, b)), expected(2 * a, b))
    for h in range(8):
        values = np.append(a, b) * np.where(np.arange(8) == h, [[1.0], [1.6]], 1.0)
        change = np.diff(log_likelihoods_at(probe.model, slots, values, h))
        assert_equal(change, np.diff([expected(v[:4], v[4:]).sum() for v in values]))


def test_pseudo_counts_too_far_apart_for_missing_entries_are_refused():
    X = np.eye(4, 3)
    X[0, 1] = np.nan
    likelihood = Bernoulli([1.0, 1.0, 1e-300], [1.0, 1.0, 1e300]).resolve(X)
    with pytest.raises(ValueError, match=r"column 2 of X has .*by less than a factor of 1e300"):
        likelihood.tables(likelihood.encode(X), len(X))


def test_a_probability_below_all_doubles_has_a_logarithm():
    a, b = 1e-300, 1e300
    X = np.eye(4, 3)
    likelihood = Bernoulli(a, b).resolve(X)
    data = likelihood.encode(X)
    probe = Probe(likelihood.bind(data, likelihood.tables(data, len(X))), 2)
    slot, empty = fill(probe, [0, 3]), probe.acquire()
    for place, i, ones in [(empty, 0, a), (slot, 0, 1.0 + a), (slot, 1, a)]:
        expected = np.log(ones) - np.log(b)
        assert probe.log_predictive(place, i) == pytest.approx(expected, rel=1e-14)
