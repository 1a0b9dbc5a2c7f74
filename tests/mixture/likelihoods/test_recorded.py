# SPDX-License-Identifier: BSD-3-Clause
"""Columns that are recorded coarsely, rows that are copies, and far entries."""

import pickle

import numpy as np
import pytest
from scipy.special import ndtri
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Categorical, Gaussian, Product, Subspace
from skdpm.mixture.likelihoods.laws import recorded, rounded
from skdpm.mixture.likelihoods.laws.coordinates import bulk, standardised
from skdpm.mixture.likelihoods.laws.recorded import Recording, copies_in, recording_of, with_spikes
from skdpm.partitions import groups_of_equal

rng = np.random.default_rng(0)
ANSWERS = rng.integers(1, 6, size=(300, 1)).astype(float)
COUNTS = rng.poisson(3.0, size=(300, 1)).astype(float)
PARTS = Product([("a", Gaussian(), [0, 1]), ("b", Gaussian(covariance_type="diag"), [2, 3])])
FAST = {"n_chains": 1, "n_jobs": 1, "random_state": 0}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


def found(X):
    return recording_of(X, X.var(axis=0))


def half_width(X):
    values, halves = found(X).cells[0]
    assert values is None
    return float(halves)


# The cells of a column.


@pytest.mark.parametrize("unit", [1.0, 0.1, 0.25, 1.0 / ANSWERS.std(), 1e-9, 1e9])
@pytest.mark.parametrize("origin", [0.0, -0.01, 1 / 3])
def test_the_step_of_a_grid(unit, origin):
    assert half_width(unit * (ANSWERS + origin)) == pytest.approx(0.5 * unit, rel=1e-6)


def test_the_step_is_the_largest_that_all_values_share():
    prices = 5.0 * rng.integers(1, 20, size=(300, 1))
    assert half_width(prices) == pytest.approx(2.5)
    # One entry is finer: the others are heaps.
    prices[0] += 1.0
    values, halves = found(prices).cells[0]
    np.testing.assert_allclose(halves, np.where(values == prices[0], 0.5, 2.5))


def test_few_values_are_recorded_as_their_digits_say():
    """Set points do not say how far apart others might be."""
    for points, half in (([0, 4, 10], 0.5), ([0.0, 255.0], 0.5), ([0.25, 1.5], 0.005)):
        X = np.array(points)[rng.integers(len(points), size=(300, 1))]
        assert half_width(X) == pytest.approx(half)
    X = np.array([0.1, 4.345435345345, 10.234])[rng.integers(3, size=(300, 1))]
    assert found(X * np.pi).cells == {}


def test_functions_of_a_grid_have_cells_like_their_neighbours():
    values, halves = found(np.log1p(COUNTS)).cells[0]
    np.testing.assert_allclose(values[:4], np.log([1, 2, 3, 4]))
    np.testing.assert_allclose(2.0 * halves[:3], np.log([2.0, 3 / 2, 4 / 3]))
    # The cell of a value far from all others is at most three times as wide as the next one.
    halves = found(np.append(np.log1p(COUNTS), [[40.0]], axis=0)).cells[0][1]
    assert halves[-1] == pytest.approx(3.0 * halves[-2])


@pytest.mark.parametrize("decimals", [2, 4])
def test_rounded_functions_of_a_grid_have_cells_like_their_neighbours(decimals):
    """Steps of the last digit are far finer than values are apart."""
    halves = found(np.log1p(COUNTS).round(decimals)).cells[0][1]
    np.testing.assert_allclose(2.0 * halves[:3], np.log([2.0, 3 / 2, 4 / 3]), atol=0.01)


@pytest.mark.parametrize("change", [lambda x: 10.0 * x, lambda x: x + 128.0])
def test_cells_do_not_depend_on_units_and_origins(change):
    """The median distance of these values is two steps, up to rounding."""
    x = np.round(np.random.default_rng(923).lognormal(1.0, 1.5, size=(300, 1)), 1)
    unit = change(np.ones(1)) - change(np.zeros(1))
    np.testing.assert_allclose(half_width(change(x)), unit * half_width(x), rtol=1e-6)


@pytest.mark.parametrize("unit", [1.0, 0.37])
def test_three_values_are_those_of_a_function_that_another_column_shows(unit):
    rare = np.arange(300)[:, None] % 3
    halves = found(np.hstack([np.log1p(COUNTS), unit * np.log1p(rare)])).cells[1][1]
    np.testing.assert_allclose(halves, 0.5 * unit * np.log([2.0, 3 / 2, 3 / 2]))
    # Columns of other numbers of values keep theirs.
    cells = found(np.hstack([np.log1p(COUNTS), COUNTS > 2.0, COUNTS])).cells
    assert cells[1][1] == cells[2][1] == 0.5
    # Nothing says how far apart other values might be.
    points = unit * np.array([0.0, 1.0, np.pi])[rare]
    assert found(np.hstack([np.log1p(COUNTS), points])).cells.keys() == {0}
    assert found(np.hstack([points, points])).cells == {}


def test_a_value_of_many_rows_has_as_wide_a_cell_as_others_leave():
    """As 0 among amounts."""
    amounts = np.sort(rng.uniform(3.0, 5.0, size=300))
    for at, n in ((0.0, 200), (0.0, 24), (7.0, 40)):
        values, halves = found(np.append(amounts, np.full(n, at))[:, None]).cells[0]
        others = np.sort(np.abs(amounts - at))[min(n, 30) - 1]
        assert halves[values == at] == pytest.approx(0.5 * others)
    # Without a gap, as at the limit of what can be measured, also in a tail, or of too few rows.
    tail = ndtri((np.arange(300) + 0.5) / 300.0)
    assert found(np.append(tail, np.full(30, 3.1))[:, None]).cells[0][1][-1] < 0.1
    for at, n in ((amounts[0], 200), (4.0, 40), (9.0, 12)):
        values, halves = found(np.append(amounts, np.full(n, at))[:, None]).cells[0]
        assert halves[values == at] < 0.05
    # Far from others the cell is as wide as their bulk.
    values, halves = found(np.append(amounts, np.full(40, -999.0))[:, None]).cells[0]
    assert halves[0] == pytest.approx(0.5 * np.ptp(amounts[[29, 269]]), abs=0.01)
    # The levels of a scale are no spikes, nor is a single value.
    assert with_spikes(np.array([3.0]), np.array([0.5]), np.array([40])) == [0.5]
    levels = np.repeat([1.0, 2.0, 3.0, 4.0, 5.0], [90, 5, 60, 5, 90])
    assert half_width(levels[:, None]) == 0.5
    # One of a grid, too.
    whole = np.append(rng.integers(20, 60, size=300), np.zeros(200))[:, None]
    values, halves = found(whole).cells[0]
    np.testing.assert_allclose(halves[1:], 0.5)
    assert 10.0 <= halves[0] <= 13.0


@pytest.mark.parametrize("likelihood", [Gaussian(), Subspace(1)])
def test_streams_have_no_wider_cells_of_values_of_many_rows(likelihood):
    """They would divide these."""
    amounts = np.append(np.zeros(60), np.random.default_rng(0).uniform(30.0, 60.0, 140).round(1))
    X = np.column_stack([amounts, amounts[::-1]])
    for law, width in ((likelihood, 30.0), (likelihood.keeping_columns(), 0.1)):
        halves = law.resolve(X)._recording.cells[0][1]
        assert np.max(2.0 * halves) == pytest.approx(width, rel=0.2)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:column")
@pytest.mark.parametrize(
    "function",
    [np.log1p, lambda C: np.log1p(C).round(3), lambda C: np.log1p(C / C.sum(1)[:, None])],
)
def test_functions_of_counts_of_one_kind_are_one_cluster(function):
    """Also of rare counts, and of shares, of which the zeros alone are equal."""
    r = np.random.default_rng(1)
    counts = r.poisson(np.exp(r.normal(0.5, 1.2, size=10)), size=(150, 10))
    assert DPMixture(n_warmup=50, n_draws=30, **FAST).fit(function(counts)).n_clusters_ == 1


def test_heaps_have_wider_cells():
    """Half of the ages are rounded to multiples of 10, and most others to multiples of 5."""
    r = np.random.default_rng(7)
    ages = np.round(r.normal(40.0, 14.0, size=3000))
    fives, tens = r.random((2, 3000)) < [[0.6], [0.5]]
    ages[fives] = 5.0 * np.round(ages[fives] / 5.0)
    ages[tens] = 10.0 * np.round(ages[tens] / 10.0)
    for unit in (1.0, 0.1):
        values, halves = found(unit * ages[:, None]).cells[0]
        whole = np.rint(values / unit)
        expected = np.where(whole % 10 == 0, 5.0, np.where(whole % 5 == 0, 2.5, 0.5))
        np.testing.assert_allclose(halves, unit * expected, rtol=1e-6)


@pytest.mark.parametrize("n_rows", [60, 3000])
def test_other_whole_numbers_have_no_heaps(n_rows):
    r = np.random.default_rng(8)
    for column in (
        r.poisson(30.0, n_rows),
        r.negative_binomial(1, 0.03, n_rows),
        r.integers(0, 101, n_rows),
        np.round(r.lognormal(3.0, 1.0, n_rows)),
        np.round(r.normal(60.0 * (np.arange(n_rows) % 2), 3.0)),
    ):
        assert half_width(np.asarray(column, float)[:, None]) == pytest.approx(0.5)


def test_two_values_far_apart_have_cells_of_their_digits():
    assert half_width(np.repeat([0.0, 2.0**53 - 1.0], 30)[:, None]) == pytest.approx(0.5)


def test_different_values_have_no_cells():
    assert not found(rng.normal(size=(100, 3))).moves
    few = rng.normal(size=(200, 1))
    few[0] = few[1]
    assert not found(few).cells
    # Too fine for any cluster.
    assert found(np.r_[0.0, 0.0, 1e-9, 1.0, 2.5, np.pi][:, None]).cells[0][0] is not None


# Noise within cells.


@pytest.mark.parametrize("X", [ANSWERS, np.log1p(COUNTS), np.c_[ANSWERS, COUNTS]])
def test_entries_are_spread_evenly_over_their_cells(X):
    recording = found(X)
    noise = np.asarray(recording.spread(X)) - X
    for column, (values, halves) in recording.cells.items():
        for value in np.unique(X[:, column]):
            own = np.sort(noise[X[:, column] == value, column])
            half = halves if values is None else halves[values == value][0]
            c = len(own)
            expected = half * c / (c + 5.0) * ((2.0 * np.arange(c) + 1.0) / c - 1.0)
            np.testing.assert_allclose(own, expected, atol=1e-12)
    if X.shape[1] == 2:
        assert abs(np.corrcoef(noise.T)[0, 1]) < 0.15


def test_noise_is_a_function_of_the_rows():
    X = np.c_[ANSWERS, COUNTS]
    X[::7, 1] = np.nan
    recording = recording_of(X, np.nanvar(X, axis=0))
    rows = np.asarray(recording.spread(X))
    assert (np.isnan(rows) == np.isnan(X)).all()
    assert recording.spread(X).tobytes() == rows.tobytes()
    order = rng.permutation(len(X))
    again = np.asarray(recording.spread(X[order]))
    columns = [0, 1]
    for d in columns:  # equal rows may exchange their noise
        np.testing.assert_array_equal(np.sort(again[:, d]), np.sort(rows[:, d]))
    # Rows that have noise take no more.
    assert recording.spread(recording.spread(X)).tobytes() == rows.tobytes()
    # Equal rows of another batch have other noise.
    more = np.asarray(recording.spread(np.vstack([X[:50], [77.0, 88.0]])))
    assert not np.array_equal(np.asarray(recording.spread(X[:50])), more[:50], equal_nan=True)


# Copies.


def test_copies_are_draws_from_the_law_of_rows_near_them():
    different = rng.normal(size=(9, 2)) @ np.array([[2.0, 0.0], [1.0, 0.3]])
    far = different.mean(axis=0) + [100.0, -50.0]
    X = np.vstack([different, far[None], np.tile(different[0], (20_000, 1))])
    rows = np.asarray(Recording({}, np.ones(2), 0.5).spread(X))
    np.testing.assert_array_equal(rows[:10], X[:10])
    distances = np.linalg.norm(different - different[0], axis=1)
    nearest = np.argsort(distances)[:8]
    near = different[nearest[distances[nearest] <= 2.5 * distances[nearest[3]]]]
    drawn = rows[10:]
    np.testing.assert_allclose(drawn.mean(axis=0), near.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(near.T, ddof=0), atol=0.1)


def test_the_law_of_a_single_copy():
    """N(m + (x - m) / sqrt(2), V / 2), of many places that are far from each other."""
    different = rng.normal(size=(8, 2))
    places = 1e4 * np.arange(4000)[:, None, None]
    X = np.concatenate([(different + places).reshape(-1, 2), (different[:1] + places)[:, 0]])
    drawn = np.asarray(Recording({}, np.ones(2), 0.1).spread(X))[-4000:] - places[:, 0]
    distances = np.linalg.norm(different - different[0], axis=1)
    near = different[distances <= 2.5 * np.sort(distances)[3]]
    mean = near.mean(axis=0)
    expected = mean + (different[0] - mean) / np.sqrt(2.0)
    np.testing.assert_allclose(drawn.mean(axis=0), expected, atol=0.05)
    np.testing.assert_allclose(np.cov(drawn.T), np.cov(near.T, ddof=0) / 2.0, atol=0.05)


@pytest.mark.parametrize(
    "X, share",
    [
        (np.tile(rng.normal(size=(50, 3)), (3, 1)), 2 / 3),
        (np.tile(np.round(rng.normal(size=(60, 4)), 2), (4, 1)), 3 / 4),
        (np.round(2.0 * rng.normal(size=(300, 2))), 0.0),
        (np.clip(np.round(rng.normal(3, 1, size=(300, 4))), 1, 5), 0.0),
        (np.array([0.0, 1.3, 4.7, 6.1, 9.9])[rng.integers(5, size=(300, 3))], 0.0),
        (rng.normal(size=(300, 2)), 0.0),
    ],
    ids=["thrice", "decimals", "whole numbers", "answers", "set points", "different"],
)
def test_copies_are_told_from_coincidences(X, share):
    recording = found(X)
    assert recording.share == pytest.approx(share)
    assert (recording.scales is not None) == (share > 0.0)


def _bootstrap(X):
    return X[np.random.default_rng(1).integers(len(X), size=len(X))]


of_copies = np.random.default_rng(4)
IRIS = load_iris().data
ROUNDED = np.round(of_copies.normal(size=(300, 3)) + 6.0 * of_copies.integers(2, size=(300, 1)), 1)
MANY_ROUNDED = np.round(
    of_copies.normal(size=(4000, 3)) + 4.0 * of_copies.integers(3, size=(4000, 1)), 1
)
QUESTIONS = np.clip(
    np.round(of_copies.normal(3, 1, size=(1000, 1)) + of_copies.normal(size=(1000, 5))), 1, 5
)


def _answers_of_classes():
    """Answers of six classes of people, each with few answers to each question: near answers are
    no likelier than others."""
    laws = of_copies.dirichlet(np.full(5, 0.2), size=(6, 8))
    of_row = laws[of_copies.integers(6, size=1000)]
    return 1.0 + of_copies.multinomial(1, of_row).argmax(axis=2)


@pytest.mark.parametrize("X", [IRIS, ROUNDED, MANY_ROUNDED], ids=["iris", "300", "4000"])
@pytest.mark.parametrize(
    "again",
    [
        lambda X: np.repeat(X, 2, 0),
        lambda X: np.tile(X, (3, 1)),
        _bootstrap,
        lambda X: np.concatenate([X, X[: len(X) // 3]]),
    ],
    ids=["twice", "thrice", "bootstrap", "sampled up"],
)
def test_copies_of_rounded_rows_are_told_from_ties(X, again):
    assert copies_in(X) is None and found(X).share == 0.0
    rows = again(X)
    copies, n_different = copies_in(rows), len(np.unique(rows, axis=0))
    assert len(copies.first) == n_different
    assert found(rows).share == pytest.approx(1.0 - n_different / len(rows))


@pytest.mark.parametrize(
    "X",
    [
        QUESTIONS,
        _bootstrap(QUESTIONS),
        np.c_[QUESTIONS, QUESTIONS.sum(axis=1)],
        np.where(of_copies.random((1000, 1)) < 0.2, QUESTIONS[:, :1], QUESTIONS),
        np.round(of_copies.normal([40.0, 170.0], [12.0, 9.0], size=(800, 2))),
        of_copies.poisson(3.0, size=(500, 3)).astype(float),
        np.round(of_copies.exponential(size=(1000, 3)), 1),
        IRIS[:, :2],
        np.r_[IRIS, np.repeat(IRIS[:1], 100, 0)],
        np.tile(np.indices((5, 4, 3)).reshape(3, -1).T.astype(float), (4, 1)),
        np.tile(np.arange(20.0)[:, None], (3, 1)),
        _answers_of_classes(),
    ],
    ids="answers again total lazy people counts prices sepals point design one classes".split(),
)
def test_ties_of_coarse_columns_are_no_copies(X):
    assert copies_in(X) is None


def test_a_coarse_table_that_was_repeated():
    assert len(copies_in(np.tile(QUESTIONS, (2, 1))).first) == len(np.unique(QUESTIONS, axis=0))


@pytest.mark.parametrize("X", [np.repeat(ROUNDED, 3, 0), np.repeat(IRIS, 3, 0), _bootstrap(IRIS)])
def test_fit_warns_of_copies_of_rounded_rows(X):
    with pytest.warns(UserWarning, match="^[0-9]+ of [0-9]+ rows of X are copies"):
        model = DPMixture(n_warmup=50, n_draws=50, **FAST).fit(X)
    assert model.n_clusters_ < 8


def _noisy_copies(noise, n_columns, n_again):
    """Rows of three groups, some again with noise, in many units; and which they are."""
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(300, n_columns)) + 5.0 * draws.integers(3, size=(300, 1))
    of_row = draws.permutation(np.r_[:300, draws.integers(300, size=n_again)])
    X = rows[of_row] + noise * draws.normal(size=(len(of_row), n_columns))
    return 10.0 ** draws.uniform(-6, 6, size=n_columns) * X, of_row


@pytest.mark.parametrize("noise", [1e-12, 1e-8, 1e-5])
@pytest.mark.parametrize("n_columns", [2, 10, 50])
@pytest.mark.parametrize("n_again", [5, 600])
def test_copies_up_to_rounding(noise, n_columns, n_again):
    X, of_row = _noisy_copies(noise, n_columns, n_again)
    first, expected = groups_of_equal(of_row)
    copies = copies_in(X)
    np.testing.assert_array_equal(copies.first, first)
    np.testing.assert_array_equal(copies.of_row, expected)
    assert noise / 10 < copies.rounding < 10 * noise


@pytest.mark.parametrize(
    "join",
    [
        lambda X: X.astype(np.float32),
        lambda X: (X * 2.54).round(8) / 2.54,
        lambda X: [[float(f"{entry:.6g}") for entry in row] for row in X],
        lambda X: np.r_[X[:50], X[50:] + 1e-10],
    ],
    ids="single units digits half".split(),
)
def test_copies_in_another_file(join):
    X = _noisy_copies(0.0, 3, 0)[0]
    X = np.where(np.arange(900).reshape(300, 3) % 16 == 5, np.nan, X / X.std(axis=0))
    copies = copies_in(np.vstack([X, join(X)]))
    np.testing.assert_array_equal(copies.of_row, np.tile(np.arange(300), 2))


NOISE = 1e-10 * of_copies.normal(size=(1000, 6))


@pytest.mark.parametrize(
    "X",
    [
        NOISE,
        np.c_[QUESTIONS, QUESTIONS[::-1, 0]] + NOISE,
        np.eye(6)[np.arange(1000) % 3] + NOISE,
        of_copies.normal(size=(30, 6))[np.arange(1000) % 30] + NOISE,
        10.0 ** of_copies.uniform(-12, 0, size=(1000, 3)),
        np.vstack([1e-5 * of_copies.normal(size=(2000, 2)), of_copies.normal(size=(200, 2))]),
        of_copies.random(size=(2000, 1)) * [1.0, 2.0, 3.0],
        np.r_[of_copies.normal(size=(300, 2)), [[1e12, 1e12]]],
    ],
    ids="narrow answers few clusters logs spot line far".split(),
)
def test_near_rows_are_no_copies(X):
    assert copies_in(X) is None


@pytest.mark.parametrize("noise", [0.0, 1e-9])
def test_copies_are_looked_for_in_many_rows(monkeypatch, noise):
    """Also where the first of these have none."""
    X, of_row = _noisy_copies(noise, 3, 600)
    first = np.unique(of_row, return_index=True)[1]
    order = np.r_[first, np.setdiff1d(np.arange(len(X)), first)]
    monkeypatch.setattr(rounded, "MANY_ROWS", 200)
    monkeypatch.setattr(recorded, "MANY_ROWS", 200)
    np.testing.assert_array_equal(copies_in(X[order]).of_row, of_row[order])


def test_a_fit_with_copies_up_to_rounding():
    X, of_row = _noisy_copies(1e-9, 3, 300)
    with pytest.warns(
        UserWarning, match=r"300 of 600 rows .* copies .* up to rounding \(by 4e-10"
    ):
        model = DPMixture(n_warmup=20, n_draws=20, **FAST).fit(X)
    assert model.n_clusters_ < 6
    labels = model.labels_[np.unique(of_row, return_index=True)[1]]
    np.testing.assert_array_equal(model.labels_, labels[of_row])


def places(n_places, n_rows, seed=0):
    """Places in two groups, with a measurement in each row."""
    draws = np.random.default_rng(seed)
    where = draws.normal(6.0 * (np.arange(n_places) % 2)[:, None], 1.0, size=(n_places, 2))
    of_row = np.arange(n_rows) % n_places
    return np.c_[where[of_row], draws.normal(size=n_rows)], of_row


@pytest.mark.filterwarnings("ignore:.*are copies")
@pytest.mark.long
def test_rows_may_be_copies_but_for_a_column():
    X, of_row = places(40, 200)
    recording = found(X)
    assert recording.share == pytest.approx(160 / 200) and recording.copied == [0, 1]
    copies_only = Recording({}, recording.scales, recording.share, recording.copied)
    rows = np.asarray(copies_only.spread(X))
    np.testing.assert_array_equal(rows[:, 2], X[:, 2])
    stay = (rows == X).all(axis=1)
    assert (np.bincount(of_row[stay], minlength=40) == 1).all()
    np.testing.assert_array_equal(np.asarray(copies_only.spread(X[::-1]))[::-1], rows)
    labels = DPMixture(**FAST).fit(X).labels_
    assert adjusted_rand_score(of_row % 2, labels) > 0.9


def test_columns_of_few_points_or_coincidences_are_no_copies_beside_others():
    assert found(places(4, 200)[0]).share == 0.0
    X = np.c_[rng.normal(size=12)[rng.integers(12, size=(200, 2))], rng.normal(size=200)]
    assert found(X).share == 0.0


def test_copies_in_columns_are_named():
    with pytest.warns(UserWarning, match="160 of 200 .* in column 0 and column 1. .*means of"):
        DPMixture(n_warmup=2, n_draws=2, **FAST).fit(places(40, 200)[0])


def test_a_few_points_are_no_copies():
    points = rng.normal(size=(6, 2))
    recording = found(points[rng.integers(6, size=300)])
    assert recording.share == pytest.approx(294 / 300)
    assert recording.scales is None


# Fits.


def three_kinds(n_columns, n_rows=400):
    kind = np.arange(n_rows) % 3
    X = np.repeat(np.array([1.0, 3.0, 5.0])[kind][:, None], n_columns, axis=1)
    off = np.random.default_rng(1).random(X.shape) < 0.15
    X[off] += np.where(X[off] == 5.0, -1.0, 1.0)
    return X, kind


@pytest.mark.parametrize(
    "likelihood",
    [
        "auto",
        slow(Gaussian(covariance_type="diag")),
        slow(Gaussian(covariance_type="spherical")),
        slow(Gaussian(covariance_type="tied")),
        slow(Gaussian(tails="t")),
        slow(Subspace(n_axes=3)),
        slow(PARTS),
    ],
    ids=["full", "diag", "spherical", "tied", "t", "subspace", "product"],
)
def test_answers_show_kinds(likelihood):
    X, kind = three_kinds(4)
    model = DPMixture(likelihood=likelihood, **FAST).fit(X)
    assert adjusted_rand_score(kind, model.labels_) > 0.9


@pytest.mark.long
def test_rounded_ages_show_groups():
    r = np.random.default_rng(9)
    y = r.integers(0, 2, 300)
    X = np.round(r.normal(30.0 + 25.0 * y[:, None], 7.0, (300, 2)))
    X = np.where(r.random(X.shape) < 0.7, 10.0 * np.round(X / 10.0), X)
    assert adjusted_rand_score(y, DPMixture(**FAST).fit(X).labels_) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["sub_cluster", slow("smc")])
def test_answers_show_kinds_to_other_samplers(sampler):
    X, kind = three_kinds(4)
    model = DPMixture(sampler=sampler, n_warmup=60, n_draws=40, **FAST).fit(X)
    assert adjusted_rand_score(kind, model.labels_) > 0.9


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are copies")
def test_points_are_clusters():
    points = rng.uniform([45.0, 0.0], [50.0, 8.0], (12, 2))
    y = rng.integers(len(points), size=400)
    assert adjusted_rand_score(y, DPMixture(**FAST).fit(points[y]).labels_) > 0.9


TWO_GROUPS = np.random.default_rng(4).normal(size=(60, 3)) + 6.0 * (np.arange(60) % 2)[:, None]
TYPES = np.c_[TWO_GROUPS, np.arange(60) % 3]
OF_TYPES = Product([("a", Gaussian(), [0, 1, 2]), ("b", Categorical(), [3])])


@pytest.mark.filterwarnings("ignore:.*are copies", "ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "settings, X",
    [
        ({}, TWO_GROUPS),
        ({"noise": True}, TWO_GROUPS),
        ({"sampler": "sub_cluster", "point_estimate": "vi"}, TWO_GROUPS),
        slow({"sampler": "sub_cluster", "store_labels": False}, TWO_GROUPS),
        slow({"sampler": "smc"}, TWO_GROUPS),
        slow({"likelihood": Subspace(2)}, TWO_GROUPS),
        ({"likelihood": OF_TYPES}, TYPES),
        slow({"init": np.arange(60) % 2}, TWO_GROUPS),
    ],
    ids=["full", "noise", "blocks", "no labels", "smc", "subspace", "product", "init"],
)
@pytest.mark.some(2)
@pytest.mark.long
def test_copies_say_nothing_new(settings, X):
    """The fit is that of the different rows, in the order in which they come first."""
    order = np.random.default_rng(5).permutation(np.r_[np.arange(60), np.arange(40)])
    first = np.sort(np.unique(order, return_index=True)[1])
    of_row = np.searchsorted(first, [np.flatnonzero(order == i)[0] for i in order])
    settings = {**FAST, "n_warmup": 20, "n_draws": 10} | settings
    more = DPMixture(**settings)
    if "init" in settings:
        more.set_params(init=settings["init"][order])
        settings["init"] = settings["init"][order][first]
    more.fit(X[order])
    model = DPMixture(**settings).fit(X[order][first])
    for name, value in vars(model).items():
        if name in ("labels_", "probabilities_", "noise_probabilities_", "label_samples_"):
            np.testing.assert_array_equal(getattr(more, name), value[..., of_row])
        elif name in ("log_joint_samples_", "weights_", "n_clusters_", "log_evidence_"):
            np.testing.assert_array_equal(getattr(more, name), value)
    np.testing.assert_array_equal(more.score_samples(X), model.score_samples(X))
    if "store_labels" not in settings:
        np.testing.assert_array_equal(more.outlier_scores_, model.outlier_scores_[of_row])
        found = more.pointwise_log_likelihood(X[order])
        expected = model.pointwise_log_likelihood(X[order][first])
        np.testing.assert_array_equal(found, expected[..., of_row])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.long
def test_questions_after_a_fit_with_copies():
    X = np.tile(TWO_GROUPS, (2, 1))
    settings = {**FAST, "n_draws": 20, "warm_start": True}
    with pytest.warns(UserWarning, match="60 of 120 rows .* the 60 different rows"):
        model = DPMixture(**settings).fit(X)
    other = DPMixture(**settings).fit(TWO_GROUPS)
    tables = model.describe(), other.describe()
    np.testing.assert_array_equal(tables[0]["n_rows"], 2 * tables[1]["n_rows"])
    np.testing.assert_array_equal(tables[0]["mean"], tables[1]["mean"])
    np.testing.assert_array_equal(model.merge_tree().cut(1), np.tile(other.merge_tree().cut(1), 2))
    again = pickle.loads(pickle.dumps(model)).estimate_labels(max_clusters=1, X=X)
    assert (again.labels_ == np.zeros(120)).all()
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        pickle.loads(pickle.dumps(model)).estimate_labels(X=TWO_GROUPS + 1.0)
    for one, rows in ((model, X), (other, TWO_GROUPS)):
        one.set_params(n_draws=30).fit(rows)
    np.testing.assert_array_equal(model.label_samples_, np.tile(other.label_samples_, 2))


@pytest.mark.filterwarnings("ignore:.*are copies", "ignore::sklearn.exceptions.ConvergenceWarning")
def test_rows_of_a_fit_with_copies():
    """They are known again as a whole, and gaps of copies are filled as those of their rows."""
    rows = np.where(np.arange(180).reshape(60, 3) % 16 == 5, np.nan, TWO_GROUPS)
    X = np.tile(rows, (2, 1))
    settings = {**FAST, "n_warmup": 10, "n_draws": 10}
    model = DPMixture(**settings).fit(X)
    filled = DPMixture(**settings).fit(rows).impute(rows)
    # The last bit of a product of matrices depends on the number of rows.
    np.testing.assert_allclose(model.impute(X), np.tile(filled, (2, 1)), rtol=1e-13)
    (drawn,) = pickle.loads(pickle.dumps(model)).impute(X, n_draws=1)
    assert not np.isnan(drawn).any()
    np.testing.assert_array_equal(drawn[~np.isnan(X)], X[~np.isnan(X)])
    again = pickle.loads(pickle.dumps(model))
    for wrong in (rows, np.vstack([rows, TWO_GROUPS])):
        with pytest.raises(ValueError, match="X must be the rows of fit"):
            again.describe(wrong)
    with pytest.raises(ValueError, match="120 labels, one per row of X"):
        DPMixture(**settings, init=np.zeros(60)).fit(X)


@pytest.mark.filterwarnings("ignore:.*are copies")
def test_copies_of_two_classes_are_different_rows():
    X, known = np.tile(TWO_GROUPS, (3, 1)), np.full(180, -1)
    known[[0, 60]], known[[1, 61]] = 0, [0, 1]
    model = DPMixture(n_warmup=20, n_draws=10, **FAST).fit(X, known_labels=known)
    assert model.labels_[0] == model.labels_[60] == 0
    assert (model.labels_[[1, 61]] == [0, 1]).all()
    assert model._n_different == 63  # a row without a class is another one


def test_equal_rows_of_filled_grids_and_empty_rows_are_no_copies():
    counts = np.random.default_rng(6).poisson(200.0, size=300).astype(float)
    assert copies_in(np.c_[counts, 2.0 * counts, 7.0 - counts]) is None
    gaps = np.where(np.arange(60)[:, None] < 50, TWO_GROUPS, np.nan)
    assert copies_in(gaps) is None
    copies = copies_in(np.vstack([gaps, gaps]))
    np.testing.assert_array_equal(copies.first, np.r_[:60, 110:120])


def test_copies_are_found_where_only_one_entry_of_some_rows_is_known():
    X = np.tile(TWO_GROUPS[:, :2], (2, 1))
    X[np.arange(120) % 60 < 12, 1] = np.nan
    np.testing.assert_array_equal(copies_in(X).first, np.r_[:60, 60:72])
    X[:, 0] = np.round(X[:, 0])
    X[60:, 1] += 1.0
    assert copies_in(X) is None


@pytest.mark.filterwarnings("ignore:.*are copies")
@pytest.mark.parametrize("n_columns", [2, slow(6)])
def test_a_class_that_was_sampled_up_stays_a_cluster(n_columns):
    draws = np.random.default_rng(2)
    many = draws.normal(size=(300, n_columns))
    few = draws.normal(8.0 / np.sqrt(n_columns), 1.0, size=(40, n_columns))
    X = np.concatenate([many, few, few[draws.integers(40, size=260)]])
    model = DPMixture(**FAST).fit(X)
    assert adjusted_rand_score(np.repeat([0, 1], 300), model.labels_) > 0.9


# Far entries.


def test_remote_entries_keep_their_order():
    X = np.array([-1e30, -1e6, -2e3, 0.0, 0.4, 1.0, 2e3, 1e6, 1e30, 1e300])[:, None]
    ends = np.array([0.0]), np.array([1.0])
    seen = np.asarray(Recording({}, ends=ends).spread(X))[:, 0]
    assert (np.diff(seen) > 0.0).all() and np.abs(seen).max() < 1e4
    np.testing.assert_array_equal(seen[3:6], X[3:6, 0])


def test_the_bulk_of_columns():
    X = rng.normal(size=(200, 3))
    assert bulk(X) is X
    Y = X.copy()
    Y[7, 1], Y[50, 2] = 1e30, -60.0
    missing = np.isnan(bulk(Y))
    assert np.argwhere(missing).tolist() == [[7, 1], [50, 2]]
    points = standardised(Y)
    assert (points[:7].std(axis=0) > 0.6 * standardised(X)[:7].std(axis=0)).all()
    # Most entries are equal: no scale says what is far.
    zeros = np.zeros((200, 1))
    zeros[:3] = 5.0
    assert bulk(zeros) is zeros


@pytest.mark.slow
@pytest.mark.parametrize("far", [slow(1e4), slow(1e9), -1e38])
@pytest.mark.parametrize("covariance_type", ["full", slow("diag"), slow("spherical"), "tied"])
@pytest.mark.filterwarnings("ignore:.*if it means missing")
def test_a_far_entry_leaves_clusters_of_others(covariance_type, far):
    y = np.repeat([0, 1], 60)
    X = np.random.default_rng(3).normal(8.0 * y[:, None], 1.0, (120, 2))
    likelihood = Gaussian(covariance_type=covariance_type)
    alone = DPMixture(likelihood=likelihood, **FAST).fit(X)
    model = DPMixture(likelihood=likelihood, **FAST).fit(np.vstack([X, [far, 0.5]]))
    assert adjusted_rand_score(y, model.labels_[:120]) > 0.9
    lost = alone.score(X) - model.score(X)
    assert lost < 1.0
