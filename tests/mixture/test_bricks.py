# SPDX-License-Identifier: BSD-3-Clause
"""`point_estimate="adaptive"`: components of a hill are clusters, or bricks of one."""

import copy
import itertools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from reference import bricks as reference
from scipy.special import expit
from scipy.stats import multivariate_normal
from sklearn.metrics import adjusted_rand_score
from support.designs import everyday
from support.hills import read_hills

from skdpm import DPMixture, _convergence, partitions
from skdpm.diagnostics import mcse_mean
from skdpm.mixture import estimate
from skdpm.mixture.answers import bricks, components, reading
from skdpm.mixture.answers.basins import Neighbours
from skdpm.mixture.answers.components import points_of
from skdpm.mixture.answers.hills import Hills
from skdpm.mixture.answers.reading import join_fragments, read_draws
from skdpm.mixture.estimate import DrawnClusters
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.rows.known import UNLABELLED

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_chains": 2, "n_warmup": 80, "n_draws": 20, "random_state": 0}
ERRORS = ("drawn", "itself", "chance", "scale", "weights", "total", "few rows")
ERRORS += ("largest", "all", "narrow axes", "thin", "columns")
ERRORS += ("errors of means", "errors of shapes", "line", "uneven")


def random_draws(rng, n_chains=2, n_draws=2):
    """Rows of some overlapping normal laws, and draws of components that come from their cells."""
    n, d = int(rng.integers(120, 200)), int(rng.integers(1, 4))
    centres = rng.normal(scale=1.6, size=(4, d))
    X = centres[rng.integers(4, size=n)] + rng.normal(size=(n, d)) * rng.uniform(0.5, 1.5, size=d)
    X[:, 0] = np.round(X[:, 0] / 2.0) * 2.0 if rng.random() < 0.5 else X[:, 0]  # ties
    draws = np.empty((n_chains, n_draws, n), dtype=np.int64)
    for place in np.ndindex(n_chains, n_draws):
        means = centres + rng.normal(scale=0.4, size=centres.shape)
        far = ((X[:, None] - means) ** 2).sum(axis=2) + rng.gumbel(scale=0.7, size=(n, 4))
        # Some components are in a plane.
        parts = far.argmin(axis=1) + 4 * (X[:, 0] == 2.0)
        parts[rng.integers(n, size=2)] = 8
        draws[place] = np.unique(parts, return_inverse=True)[1]
    return points_of(X), draws


def found_and_expected(rng, **planted):
    points, draws = random_draws(rng)
    places = list(np.ndindex(*draws.shape[:2]))
    drawn = [
        bricks.DrawnHills.of(points, draws[place], UNLABELLED, columns=points) for place in places
    ]
    evidence = bricks.evidence_of(drawn, np.arange(len(places)).reshape(draws.shape[:2]))
    found = [draw.mean_of_hills(evidence[0]) for draw in drawn]
    of_rows = np.reshape([draw.of_rows for draw in drawn], draws.shape)
    expected = reference.evidence(points, draws, of_rows, least_rows=5, **planted)
    return np.concatenate(found), np.concatenate(expected)


@pytest.mark.long
def test_evidence_is_the_definition():
    rng = np.random.default_rng(0)
    for _ in range(6):
        np.testing.assert_allclose(*found_and_expected(rng), rtol=1e-6, atol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("error", ERRORS)
def test_planted_errors_are_seen(error):
    rng = np.random.default_rng(0)
    pairs = (found_and_expected(rng, error=error) for _ in range(6))
    assert any(np.abs(found - expected).max() > 0.01 for found, expected in pairs)


def drawn_basins(rng):
    """Points, the hills of some draws with basins of several peaks, and the draws."""
    points, draws = random_draws(rng)
    neighbours = Neighbours.of(points, 1)
    drawn = [
        bricks.DrawnHills.of(points, labels, UNLABELLED, columns=points, neighbours=neighbours)
        for labels in draws.reshape(-1, len(points))
    ]
    return points, drawn, draws


@pytest.mark.parametrize("error", [None, "metric", "hills", "line", "prominence"])
def test_basins_are_the_definition(error):
    rng = np.random.default_rng(0)
    for _ in range(4):
        X = rng.normal(size=(90, 2)) @ np.array([[1.0, 0.9], [0.0, 0.2]])
        points = points_of(X)
        labels = np.argmin(((X[:, None] - X[None, :7]) ** 2).sum(axis=2), axis=1)
        laws = components.Components.of(points, labels).laws
        hills = (points[:, 0] > rng.normal()).astype(int)
        found = Neighbours.of(points, 1).basins(laws, hills, 0.1)
        moments = list(zip(laws.sizes, laws.means, laws.covariances, strict=True))
        expected = reference.climbs(points, moments, hills, 0.1, 12, error)
        assert found.max() > 0
        if adjusted_rand_score(found, expected) < 1.0:
            assert error is not None
            return
    assert error is None


@pytest.mark.parametrize("error", [None, "drawn", "itself", "chance", "scale", "all"])
@pytest.mark.long
def test_evidence_of_basins_is_the_definition(error):
    rng = np.random.default_rng(0)
    for _ in range(6):
        points, drawn, draws = drawn_basins(rng)
        evidence = bricks.evidence_of(drawn, np.arange(4).reshape(2, 2))[1]
        found = [draw.mean_of_hills(evidence) for draw in drawn]
        of_rows = np.reshape([draw.of_rows for draw in drawn], draws.shape)
        basins = np.reshape([draw.parts[1].likely for draw in drawn], draws.shape)
        expected = reference.evidence(points, draws, of_rows, 5, error, basins)
        if np.abs(np.concatenate(found) - np.concatenate(expected)).max() > 1e-6:
            assert error is not None
            return
    assert error is None


def bricks_of_groups(rng, n=600):
    """Four groups, and draws that divide each of them anew."""
    y = rng.integers(4, size=n)
    centres = np.column_stack([y // 2, y % 2]) * 3.0
    X = centres + rng.normal(size=(n, 2))
    cuts = rng.uniform(0.0, 2 * np.pi, size=(2, 3, 4))
    angle = np.arctan2(*(X - centres).T)
    return X, 2 * y + (np.cos(angle - cuts[:, :, y]) > 0.0)


@pytest.mark.long
def test_basins_are_clusters_where_they_recur_more_often_than_components(monkeypatch):
    rng = np.random.default_rng(0)
    X, draws = bricks_of_groups(rng)
    points = points_of(X)
    evidence = np.zeros((2, len(X), 8))
    monkeypatch.setattr(bricks, "evidence_of", lambda *draws: evidence)
    monkeypatch.setattr(bricks, "log_odds", lambda evidence, n_columns: evidence[:, 1])

    def groups_of(draw, parts):
        """Most probable part of each row, if it is no small one, and the hill."""
        hills = len(X) * draw.hills.of_components[draw.most_probable].astype(int)
        if parts is None:
            return hills
        kind, several = draw.parts[parts], np.ones(draw.hills.n_hills, dtype=bool)
        return hills + kind.joined(several)[kind.likely]

    drawn = [
        bricks.DrawnHills.of(points, labels, UNLABELLED, adaptive=True, neighbours=near)
        for near in [Neighbours.of(points, 1)]
        for labels in draws.reshape(6, -1)
    ]
    assert max(draw.parts[1].hills.max() for draw in drawn) > 0
    # Recurrence and log odds of components, of basins, and what the clusters are.
    cases = [(0.5, 3.0, 0.61, 1.0, 1), (0.5, -1.0, 0.61, 1.6, 1), (0.5, 3.0, 0.59, 9.0, 0)]
    cases += [(0.5, -1.0, 0.59, 9.0, None), (0.5, -1.0, 0.61, 0.9, None)]
    for case, small in itertools.product(cases, [bricks.SMALL, 0.9]):
        monkeypatch.setattr(bricks, "SMALL", small)
        recurs, odds, more, of_basins, parts = case
        evidence[:, :, :2] = np.array([[recurs, odds], [more, of_basins]])[:, None]
        found = read_draws(X, draws, adaptive=True)[3].reshape(6, -1)
        for draw, labels in zip(drawn, found, strict=True):
            # A hill with one basin has components.
            several = np.bincount(draw.parts[1].hills, minlength=draw.hills.n_hills) > 1
            has_basins = several[draw.hills.of_components[draw.most_probable]]
            other = groups_of(draw, 0 if odds > 0.0 else None)
            expected = np.where(has_basins, groups_of(draw, parts), other)
            assert adjusted_rand_score(expected, labels) > 0.97


def test_rows_that_the_draw_has_on_another_hill_are_no_basins():
    rng = np.random.default_rng(0)
    X, draws = bricks_of_groups(rng)
    X = np.concatenate([X, X + [60.0, 0.0]])
    points, near = points_of(X), Neighbours.of(points_of(X), 1)
    for one in draws.reshape(6, -1):
        labels = np.concatenate([one, one + 8])
        labels[:4] += 8
        draw = bricks.DrawnHills.of(points, labels, UNLABELLED, adaptive=True, neighbours=near)
        left = draw.hills.of_components == draw.hills.of_components[draw.hills.labels[10]]
        of = draw.hills.of_components
        by_basins = np.isin(np.arange(draw.hills.n_hills), of[left])
        found = draw.clusters(UNLABELLED, by_basins, by_basins)
        for i in range(4):
            same = of[draw.hills.labels] == of[draw.hills.labels[i]]
            assert (found[same] == found[i]).all()


def test_home_of_a_component_is_the_basin_of_its_probable_rows():
    likely = np.array([0, 0, 0, 1, 1, 1, 1, 1])
    drawn = np.array([0, 1, 1, 1, 1, 0, 0, 0])  # most rows of 0 are in the basin of 1
    laws = components.Components.of(np.arange(8.0)[:, None], likely).laws
    parts = np.zeros(2, dtype=int), laws, drawn, likely, np.array([[0, 1, 2.5], [1, 0, 0.5]])
    parts = bricks.Parts(*parts, np.array([1.0, 0.0]), np.ones(2, dtype=bool))
    near = SimpleNamespace(basins=lambda *options: likely.astype(np.uint8))
    basins = bricks.basins_of(parts, np.arange(8.0)[:, None], near)
    np.testing.assert_array_equal(basins.drawn, drawn)
    np.testing.assert_array_equal(basins.facing, parts.facing)
    np.testing.assert_allclose(basins.are_tied, [1 / 3, 3 / 5])
    np.testing.assert_array_equal(basins.laws.sizes, [3, 5])


def test_rows_of_up_to_eight_columns_have_basins(monkeypatch):
    sought = []
    monkeypatch.setattr(Neighbours, "of", lambda *options: sought.append(options))
    X, draws = bricks_of_groups(np.random.default_rng(0), 100)
    for n_columns in (8, 9):
        wide = np.column_stack([X, np.random.default_rng(1).normal(size=(100, n_columns - 2))])
        read_draws(wide, draws, adaptive=True)
    assert len(sought) == 1


def test_basins_do_not_depend_on_units_or_the_order_of_rows():
    rng = np.random.default_rng(0)
    X, draws = bricks_of_groups(rng, 1500)
    order, turn = rng.permutation(len(X)), rng.normal(size=(2, 2))

    def basins(X, labels, step=1):
        points = points_of(X)
        laws = components.Components.of(points, labels).laws
        return Neighbours.of(points, step).basins(laws, np.zeros(len(X), dtype=int), 0.4)

    for labels in draws.reshape(6, -1):
        expected = basins(X, labels)
        found = basins(1e3 * X[order] @ turn - 5.0, labels[order])
        assert adjusted_rand_score(expected[order], found) == 1.0
        # Every second row climbs, and the others are where the nearest of these is.
        some = basins(X, labels // 2), basins(X, labels // 2, 2)
        assert adjusted_rand_score(*some) > 0.9 and some[0].max() > 1


def two_hills(rng):
    """Points, laws of their components, and the hill of each."""
    X, draws = bricks_of_groups(rng)
    points = points_of(X)
    laws = components.Components.of(points, draws[0, 0]).laws
    return points, laws, (points[:, 0] > 0.3).astype(int)


def test_copies_of_rows_change_no_basin():
    """A dozen of them were a basin of their own, and many took a gigabyte."""
    rng = np.random.default_rng(0)
    points, laws, hills = two_hills(rng)
    expected = Neighbours.of(points, 1).basins(laws, hills, 0.1)
    of_copies = rng.permutation(np.repeat(np.arange(len(points)), 13))
    neighbours = Neighbours.of(points[of_copies], 1)
    assert len(neighbours.rows) == len(points)
    found = neighbours.basins(laws, hills[of_copies], 0.1)
    assert adjusted_rand_score(expected[of_copies], found) == 1.0


def test_basins_of_rows_that_do_not_climb_are_on_their_hills():
    rng = np.random.default_rng(0)
    points, laws, hills = two_hills(rng)
    hills[1:40:4] = 2  # none of these climbs
    neighbours = Neighbours.of(points, 4)
    found = neighbours.basins(laws, hills, 0.1)
    assert (np.bincount(found) > 0).all()
    assert all(len(np.unique(hills[found == b])) == 1 for b in range(found.max() + 1))
    gaps = neighbours.white[:, None] - neighbours.white[neighbours.rows]
    far = np.where(hills[:, None] == hills[neighbours.rows], (gaps**2).sum(axis=2), np.inf)
    nearest = neighbours.rows[far.argmin(axis=1)]
    np.testing.assert_array_equal(found[hills < 2], found[nearest][hills < 2])


def test_each_kind_of_evidence_counts_in_its_direction():
    base = np.array([0.8, 0.5, 0.5, 0.5, 0.04, 0.75, 0.05, 0.0])
    steps = np.array([0.2, -0.5, 3.0, 2.0, 0.2, -0.1, -0.1])
    for i, step in enumerate(steps):
        ends = np.array([base - 4 * step * (np.arange(8) == i), base + step * (np.arange(8) == i)])
        assert (bricks.log_odds(np.maximum(ends, 0.0), 2) > 0.0).tolist() == [False, True]
    even = ends[1] + 3.0 * (np.arange(8) == 7)
    np.testing.assert_allclose(np.diff(bricks.log_odds(np.array([ends[1], even]), 2)), -3.0)
    many = base[None] * [1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert bricks.log_odds(many, 8) > 0.0 > bricks.log_odds(many, 32)


def bars(rng, n=400):
    """Two bars that cross."""
    y = rng.integers(2, size=n)
    X = rng.normal(size=(n, 2)) * np.where(y[:, None] == 0, [4.0, 0.5], [0.5, 4.0])
    return X, y


@pytest.fixture(scope="module")
def fitted_bars():
    return DPMixture(**FAST).fit(bars(np.random.default_rng(1))[0])


@pytest.fixture
def crossing(fitted_bars):
    """A fit to two bars that a test may change."""
    return copy.copy(fitted_bars)


def ring(rng, n=500):
    angle, y = rng.uniform(0, 2 * np.pi, size=n), (np.arange(n) < n // 5).astype(int)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) * np.where(y, 0.1, 1.0)[:, None]
    return X + rng.normal(scale=0.07, size=(n, 2)), y


def student(rng, n=400):
    return rng.normal(size=(n, 3)) / np.sqrt(rng.chisquare(4, size=(n, 1)) / 4), np.zeros(n)


def touching(rng, n=900):
    y = rng.integers(9, size=n)
    return np.column_stack([y // 3, y % 3]) * 3.6 + rng.normal(size=(n, 2)), y


@pytest.mark.parametrize(
    "make, n_clusters, modal", [(bars, 2, 1), (ring, 2, 2), (student, 1, 1), (touching, 9, None)]
)
@pytest.mark.some(2)
@pytest.mark.long
def test_bars_are_two_clusters_and_a_ring_is_one(make, n_clusters, modal):
    X, y = make(np.random.default_rng(1))
    model = DPMixture(**FAST).fit(X)
    assert model.n_clusters_ == n_clusters
    assert n_clusters == 1 or adjusted_rand_score(y, model.labels_) > 0.5
    assert np.mean(model.predict(X) == model.labels_) > 0.95
    assert abs(np.median(model.n_clusters_samples_) - n_clusters) <= 0.7 * n_clusters
    if modal:
        assert model.estimate_labels(loss="modal").n_clusters_ == modal


def with_core(rng, shift, n=800):
    """A core, wings of another shape around it whose centre is `shift` away, and draws of the
    two."""
    y = rng.integers(2, size=n)
    wings = np.array([4.0, 0.7])
    X = rng.normal(size=(n, 2)) * np.where(y[:, None] == 0, 0.6, wings) + y[:, None] * [shift, 0.0]
    p = multivariate_normal([shift, 0.0], np.diag(wings**2)).pdf(X)
    p /= p + multivariate_normal(np.zeros(2), 0.36 * np.eye(2)).pdf(X)
    return X, (rng.random((2, 4, n)) < p).astype(int)


def test_a_core_inside_its_wings_is_one_cluster():
    """The components recur and have different shapes, as those of bars that cross do."""
    X, draws = with_core(np.random.default_rng(0), 0.0)
    assert read_draws(X, draws, adaptive=True)[3].max() == 0
    X, draws = with_core(np.random.default_rng(0), 5.0)
    assert read_draws(X, draws, adaptive=True)[3].max() == 1
    X, draws = drawn_bars()
    assert read_draws(X, draws, adaptive=True)[3].max() == 1


def test_few_rows_in_many_columns_give_a_core_and_its_wings_no_distance():
    """Groups of 64 rows with heavy tails: their narrow and wide components recur in all draws,
    and few rows give the two other means and other covariances."""
    rng = np.random.default_rng(0)
    y, wide = np.repeat(np.arange(6), 64), rng.random(6 * 64) < 0.4
    X = rng.normal(scale=6.0, size=(6, 32))[y]
    X += rng.normal(size=X.shape) * np.where(wide, 2.5, 0.8)[:, None]
    draws = np.tile(y + 6 * wide, (2, 4, 1))
    assert adjusted_rand_score(y, read_draws(X, draws, adaptive=True)[3][0, 0]) == 1.0


def test_components_are_clusters_in_their_probable_share_of_the_draws(monkeypatch):
    """Hills of a draw have one level, and the search takes the more probable decision."""
    rng = np.random.default_rng(0)
    X, draws = with_core(rng, 0.0)
    draws = np.tile(draws, (1, 5, 1))
    X = np.concatenate([X, X[:600] + [60.0, 0.0]])
    draws = np.concatenate([draws, draws[:, :, :600] + 2], axis=2)
    evidence = np.repeat(np.repeat([0.2, -0.2], [800, 600])[:, None], 8, axis=1)
    monkeypatch.setattr(bricks, "evidence_of", lambda *draws: [evidence])
    monkeypatch.setattr(bricks, "log_odds", lambda evidence, n_columns: evidence[:, 0])
    _, clusters, cells, likely = read_draws(X, draws, adaptive=True)

    def divided(found):
        """Whether each hill is divided: two of (n_chains, n_draws)."""
        return np.array([np.ptp(part, axis=2) > 0 for part in np.split(found, [800], axis=2)])

    first, second = divided(clusters)
    of_first = expit(0.2 + np.log((1.0 + expit(-0.2)) / (1.0 + expit(0.2))))
    assert np.abs(first.mean(axis=1) - of_first).max() <= 1 / 20
    assert np.abs(second.mean(axis=1) - (1.0 - of_first)).max() <= 1 / 20
    assert first[second].all() and not np.array_equal(*first)
    assert np.abs(np.diff(first.astype(int))).sum(axis=1).min() > 4  # no order along the chain
    np.testing.assert_array_equal(divided(cells), divided(clusters))
    assert divided(likely)[0].all() and not divided(likely)[1].any()
    evidence = evidence[::-1]
    turned = read_draws(X[::-1], 3 - draws[:, :, ::-1], adaptive=True)[1]
    evidence = evidence[::-1]
    for one, other in zip(clusters.reshape(40, -1), turned.reshape(40, -1), strict=True):
        assert adjusted_rand_score(one[::-1], other) == 1.0
    # More draws are read if these decide differently.
    monkeypatch.setattr(reading, "MOST_READ", 8)
    assert len(read_draws(X, draws, adaptive=True)[0]) == 7


@pytest.mark.parametrize("n_columns", [1, 3])
def test_components_along_an_even_column_are_bricks_and_overlapping_groups_are_not(n_columns):
    """They recur in all draws."""
    rng = np.random.default_rng(0)
    parts = np.repeat([0, 1], 300)
    X = rng.normal(size=(600, n_columns))
    X[:, 0] += 2.2 * parts
    points = points_of(X)
    assert read_draws(points, np.tile(parts, (4, 5, 1)), adaptive=True)[3].max() == 1
    X[:, 0] = np.linspace(2005.0, 2024.0, 600)
    noise = rng.normal(size=(4, 5, 600))
    draws = (np.linspace(-3.0, 3.0, 600) + noise > 0.0).astype(int)
    points = points_of(X)
    hills = Hills.of(points, draws[0, 0])
    assert hills.n_hills == 1 and bricks.even(points, hills)[0] > 10.0
    assert read_draws(points, draws, adaptive=True)[3].max() == 0


def test_hills_of_several_components_are_of_one_kind_by_the_rule_of_succession(monkeypatch):
    rng = np.random.default_rng(0)
    X, draws = with_core(rng, 0.0)
    X = np.concatenate([X + [60.0 * i, 0.0] for i in range(4)])
    single = np.arange(4) == 2
    draw = np.concatenate([np.where(one, 0, draws[0, 0]) + 2 * i for i, one in enumerate(single)])
    draw = np.unique(draw, return_inverse=True)[1]
    own = np.array([3.0, 2.0, -9.0, -0.3])
    for order in (np.arange(len(X)), rng.permutation(len(X))):
        evidence = np.repeat(np.repeat(own, len(X) // 4)[order, None], 8, axis=1)
        monkeypatch.setattr(bricks, "log_odds", lambda evidence, n_columns: evidence[:, 0])
        drawn = bricks.DrawnHills.of(X[order], draw[order], UNLABELLED, adaptive=True)
        found, by_basins = drawn.log_odds([evidence])
        hills = [drawn.of_rows[np.argsort(order)][i * len(X) // 4] for i in range(4)]
        assert len(found) == 4 and not by_basins.any()
        for i in np.flatnonzero(~single):
            others = expit([own[j] for j in range(4) if j != i and not single[j]])
            odds = np.exp(own[i]) * (1.0 + others.sum()) / (1.0 + (1.0 - others).sum())
            assert found[hills[i]] == pytest.approx(np.log(odds), rel=1e-12)
    # The last hill is bricks by its own evidence, and clusters beside the first two.
    assert found[hills[3]] > 0.0


def test_components_of_one_answer_are_bricks():
    """Rows with one answer in a column are in a plane, and so in all draws."""
    rng = np.random.default_rng(0)
    X = 3.0 + (rng.random((300, 4)) < 0.15)
    draws = np.where(X[:, 0] > 3.0, 1, np.where(X[:, 1] > 3.0, 2, 0))[None, None]
    draws = np.repeat(draws, 2, axis=0)
    spread_out = X + rng.uniform(-0.5, 0.5, size=X.shape)
    assert read_draws(spread_out, draws, adaptive=True)[1].max() > 0
    assert read_draws(spread_out, draws, adaptive=True, recorded=X)[1].max() == 0
    X[::50, 2] = np.nan
    assert read_draws(spread_out, draws, adaptive=True, recorded=X)[1].max() == 0


@pytest.mark.long
def test_fits_warn_of_rows_in_a_plane():
    """They drive the scale of all clusters to 0; rows near a plane do not."""
    rng = np.random.default_rng(0)
    t = rng.uniform(-1, 1, size=(40, 1))
    line = np.array([9.0, 9.0]) + t * [3.0, 2.0]
    X = np.concatenate([rng.normal(size=(60, 2)), line])[[*range(100), 70]]  # a copy of row 70
    model = DPMixture(**FAST)
    with pytest.warns(UserWarning, match="^41 rows of X, of which the first are 60, 61 and 62,"):
        model.fit(X)
    model.fit(X + np.where(X[:, :1] > 5.0, 1e-3, 0.0) * rng.normal(size=X.shape))
    model.set_params(likelihood=Gaussian(scale=1.0)).fit(X)


def drawn_bars():
    rng = np.random.default_rng(2)
    X, y = bars(rng)
    draws = np.array([[np.where(rng.random(len(y)) < 0.005, 1 - y, y) for _ in range(4)]] * 2)
    draws[1] = draws[1, ::-1]
    return X, draws


def test_order_units_and_threads_change_no_cluster(monkeypatch):
    X, draws = drawn_bars()
    rng = np.random.default_rng(3)
    _, *expected = read_draws(X, draws, adaptive=True)
    assert expected[0].max() == 1
    np.testing.assert_array_equal(read_draws(X, draws, n_jobs=2, adaptive=True)[1:], expected)
    order = rng.permutation(len(X))
    of_order = read_draws(X[order], draws[:, :, order], adaptive=True)[1:]
    mixed = read_draws(1e3 * X @ rng.normal(size=(2, 2)) - 5.0, draws, adaptive=True)[1:]
    constant = read_draws(np.c_[X, np.ones((len(X), 8))], draws, adaptive=True)[1:]
    for i, one in enumerate(expected):
        np.testing.assert_array_equal(constant[i], one)
        for place in np.ndindex(2, 4):
            assert adjusted_rand_score(one[place][order], of_order[i][place]) == 1.0
            assert adjusted_rand_score(one[place], mixed[i][place]) == 1.0
    monkeypatch.setattr(reading, "_levels", lambda *shape: np.zeros(shape))
    copied = read_draws(np.c_[X, 1.8 * X[:, 0] + 32.0], draws, adaptive=True)[1]
    np.testing.assert_array_equal(copied, read_draws(X, draws, adaptive=True)[1])


def test_cells_are_the_most_probable_components(monkeypatch):
    """Rows between two clusters change from draw to draw, their cells do not."""
    rng = np.random.default_rng(5)
    X, y = bars(rng, 2000)
    laws = [multivariate_normal(np.zeros(2), np.diag(s)) for s in ([16.0, 0.25], [0.25, 16.0])]
    p = [law.pdf(X) for law in laws]
    sampled = (rng.random((2, 6, len(y))) < p[1] / (p[0] + p[1])).astype(int)
    _, clusters, cells, _ = read_draws(X, sampled, adaptive=True)
    assert cells.max() == 1 and not np.array_equal(cells, clusters)
    expected = (p[1] > p[0]).astype(int)
    for cell, cluster in zip(cells.reshape(12, -1), clusters.reshape(12, -1), strict=True):
        assert adjusted_rand_score(expected, cell) > 0.95
        assert adjusted_rand_score(expected, cluster) < 0.8
    X[::9, 0] = np.nan  # the component in the draw
    _, clusters, cells, _ = read_draws(X, sampled, adaptive=True)
    assert clusters.max() == 1
    for place in np.ndindex(2, 6):
        assert adjusted_rand_score(cells[place][::9], clusters[place][::9]) == 1.0
    np.testing.assert_array_equal(*read_draws(X, sampled)[1:3])  # nobody needs cells
    wide = np.column_stack([X, rng.normal(size=(len(X), 7))])
    monkeypatch.setattr(reading, "_levels", lambda *shape: np.zeros(shape))
    _, clusters, cells, _ = read_draws(wide, sampled, adaptive=True)
    np.testing.assert_array_equal(cells, clusters)


def test_rows_of_fragments_join_the_clusters_with_which_they_are():
    draws = np.repeat([0, 1], 6)[None].repeat(10, axis=0)
    draws[:6, 0], draws[6:, 5] = 1, 1  # row 0 is in either, more often in the other one
    draws = np.column_stack([draws, np.full(10, 2)])[None]  # the last row is always alone
    labels = np.repeat([1, 0, 2], [6, 6, 1])
    labels[[0, 5]] = 3, 3
    found = join_fragments(labels, draws)
    np.testing.assert_array_equal(found, [0, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 2])
    np.testing.assert_array_equal(join_fragments(found, draws), found)
    one = np.zeros(13, dtype=int)
    np.testing.assert_array_equal(join_fragments(one, draws), one)
    # Fragments of a cluster that is never with another one stay.
    parts = np.repeat([0, 1, 2, 3], [100, 30, 30, 30])
    draws = np.repeat([0, 1], [100, 90])[None, None].repeat(4, axis=1)
    np.testing.assert_array_equal(join_fragments(parts, draws), parts)


def test_more_draws_are_read_if_their_numbers_of_clusters_differ(monkeypatch):
    X, draws = drawn_bars()
    X = np.concatenate([X, X + [40.0, 0.0]])
    draws = np.concatenate([draws, draws + 2], axis=2)
    monkeypatch.setattr(reading, "MOST_READ", 4)
    assert len(read_draws(X, draws, adaptive=True)[0]) == 2
    draws[0, -1, draws[0, -1] < 2] = 0
    chosen, clusters, cells, _ = read_draws(X, draws, adaptive=True)
    assert chosen.tolist() == [0, 1, 3] and clusters.shape == cells.shape == (2, 3, len(X))
    monkeypatch.setattr(reading, "MOST_PAIRS", 4 * 16)  # few draws, because each takes long
    assert len(read_draws(X, draws, adaptive=True)[0]) == 2


@pytest.mark.long
def test_labels_are_searched_among_cells_and_have_no_fragments(monkeypatch):
    X, _ = bars(np.random.default_rng(1), 600)
    X[:, :] *= [0.5, 1.0]
    model = DPMixture(**FAST).fit(X)
    drawn = DrawnClusters(model, "adaptive")
    assert not np.array_equal(drawn.cells, drawn.clusters)
    sought = []

    def found(draws, **options):
        sought.append(draws)
        labels = np.arange(draws.shape[2]) % 2
        labels[0] = 2  # a fragment
        return labels

    monkeypatch.setattr(partitions, "point_estimate", found)
    labels = drawn.labels(9)
    np.testing.assert_array_equal(sought[0], drawn.likely)
    assert labels.max() == 1
    model.estimate_labels()
    monkeypatch.undo()
    tree, expected = model.merge_tree(), partitions.merge_tree(drawn.cells, model.labels_)
    np.testing.assert_array_equal(tree.expected_losses, expected.expected_losses)


def test_labels_of_rows_that_are_no_points_have_no_fragments(monkeypatch):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=120)
    X = (rng.random((120, 12)) < np.where(y, 0.8, 0.1)[:, None]).astype(int)
    model = DPMixture(likelihood="bernoulli", **FAST).fit(X)
    labels = np.where(np.arange(120) == 0, 2, y)
    monkeypatch.setattr(partitions, "point_estimate", lambda *draws, **options: labels)
    assert DrawnClusters(model, "adaptive").labels(9).max() == 1
    assert DrawnClusters(model, "vi").labels(9).max() == 2


def test_the_number_of_clusters_is_not_judged():
    figures = {"log_joint": {"r_hat": 1.0}, "n_clusters": {"r_hat": 2.0}}
    assert _convergence.disagreements(figures, 2, 100, 4) == []
    assert _convergence.disagreements({"log_joint": {"r_hat": 2.0}}, 2, 100, 4) == ["log_joint"]


def test_components_much_smaller_than_the_others_join_the_likeliest():
    rng = np.random.default_rng(4)
    labels = np.repeat([0, 1, 2, 3], [200, 200, 8, 60])
    centres = np.array([[0.0, 0.0], [2.0, 0.0], [2.5, 0.0], [0.0, 2.0]])
    hills = Hills.of(centres[labels] + rng.normal(size=(468, 2)), labels)
    assert hills.n_hills == 1
    nothing = (None,) * 4
    parts = bricks.Parts(hills.of_components, hills.laws, *nothing, hills.classes < 0)
    assert parts.joined(np.array([True])).tolist() == [0, 1, 1, 3]
    parts.are_free[2] = False
    assert parts.joined(np.array([True])).tolist() == [0, 1, 2, 3]


def test_a_single_draw_and_rows_without_columns_stay_hills():
    X, draws = drawn_bars()
    one = read_draws(X, draws[:1, :1], adaptive=True)[1][0, 0]
    np.testing.assert_array_equal(one, read_hills(points_of(X), draws[0, 0]))
    assert read_draws(np.ones_like(X), draws, adaptive=True)[1].max() == 0


def test_noise_and_many_rows(monkeypatch):
    X, draws = drawn_bars()
    draws[:, :, :10] = -1
    draws[0, 0] = -1
    found = read_draws(X, draws, adaptive=True)[1]
    assert (found[0, 0] == -1).all() and (found[:, :, :10] == -1).all() and found.max() == 1
    monkeypatch.setattr(bricks, "MOST_ROWS", 90)
    monkeypatch.setattr(bricks, "SOME_ROWS", 90)
    monkeypatch.setattr(components, "MOST_NUMBERS", 1)
    np.testing.assert_array_equal(read_draws(X, draws, adaptive=True)[1], found)


def test_a_chain_is_compared_with_itself_half_a_chain_later():
    X, draws = drawn_bars()
    assert read_draws(X, draws[:1], adaptive=True)[1].max() == 1
    # Bricks that lie elsewhere in the other half are not clusters.
    across = np.where(X[:, 0] + X[:, 1] > 0.0, 1, 0)
    halves = np.concatenate([draws[:1, :2], np.tile(across, (1, 2, 1))], axis=1)
    assert read_draws(X, halves, adaptive=True)[1].max() == 0


@pytest.mark.long
def test_summary_names_readings_that_are_sure_of_other_clusters(monkeypatch, crossing):
    model = crossing
    found, of_draw = [], bricks.DrawnHills.of
    with monkeypatch.context() as patched:
        patched.setattr(bricks.DrawnHills, "of", lambda *a: found.append(a[1]) or of_draw(*a))
        model.summary()
    assert len({labels.tobytes() for labels in found}) == len(found)  # each draw once
    assert "other readings" in model.summary() and '"modal" has 1 cluster:' in model.summary()
    assert '"vi" has' not in model.summary()
    model.set_params(point_estimate="modal").estimate_labels()
    assert '"adaptive" has 2 clusters, "vi" has 2 clusters' in model.summary()
    assert pickle.loads(pickle.dumps(model)).summary() == model.summary()
    model = pickle.loads(pickle.dumps(model.estimate_labels()))
    assert "other readings" not in model.summary()  # needs the rows
    X, _ = ring(np.random.default_rng(1), 200)
    assert "other readings" not in DPMixture(**FAST).fit(X).summary()


@pytest.mark.long
def test_summary_reads_large_fits_only_once(monkeypatch, crossing):
    model = crossing
    work = model.labels_.size * model.n_components_samples_.mean()
    for most, is_read in ((work - 1.0, False), (work, True)):
        monkeypatch.setattr(estimate, "MOST_READ_AGAIN", most)
        vars(model).pop("_other_readings", None)
        assert ("other readings" in model.summary()) == is_read


@pytest.mark.long
def test_summary_says_if_draws_have_different_clusters():
    X = np.random.default_rng(1).uniform(size=(60, 2))
    model = DPMixture(**FAST, concentration=8.0).fit(X)
    assert model.n_clusters_ == 1 and "uncertain" not in model.summary()
    figures = model.diagnostics_["coclustering"]
    # If draws differ by single rows, no row is in doubt.
    figures["ari_between"] = 0.1
    del model._other_readings
    assert "uncertain" not in model.summary()
    # Components divide the square elsewhere in each draw.
    model.estimate_labels(loss="vi")
    figures = model.diagnostics_["coclustering"]
    line = f"differ (mean adjusted Rand index {figures['ari_between']:.2f})"
    assert line in model.summary()
    assert line in pickle.loads(pickle.dumps(model)).summary()
    assert line + ", so one estimate may not do: see estimate_labels(n_est" in model.summary()
    figures = model.estimate_labels(loss="vi", n_estimates=2).diagnostics_["coclustering"]
    assert line + ", so one estimate may not do: see probabilities_" in model.summary()
    # If they agree, a row may be in doubt without a word about all.
    figures["ari_between"] = 0.6
    del model._other_readings
    assert "uncertain" not in model.summary()
    figures["r_hat"] = 1.31
    del model._other_readings
    assert "chains differ in which rows are together (R-hat 1.31)" in model.summary()


@pytest.mark.long
def test_probabilities_have_errors():
    X, _ = bars(np.random.default_rng(1), 100)
    model = DPMixture(**{**FAST, "n_chains": 4}, concentration=8.0).fit(X)
    numbers, clusters = model.n_clusters_samples_, model.cluster_samples_
    for k in (1, 2, 3):
        probability, error = model.probability_of_number(k)
        assert probability == np.mean(numbers == k)
        between = np.std((numbers == k).mean(axis=1), ddof=1) / 2.0
        assert error == pytest.approx(max(mcse_mean(numbers == k), between, 1 / numbers.size))
    for i, j in [(0, 1), (2, 2), (-1 % len(X), 0)]:
        probability, error = model.probability_together(i, j)
        assert probability == np.mean(clusters[:, :, i] == clusters[:, :, j])
        assert error >= 1 / numbers.size
    with pytest.raises(ValueError, match=r"second, .* of 100 rows, must be at most 99"):
        model.probability_together(0, len(X))
    with pytest.raises(ValueError, match="n_clusters must be at least 1"):
        model.probability_of_number(0)


def test_errors_count_what_differs_between_chains(crossing):
    """Alternate draws have a sample mean with a small error. Chains that differ have not."""
    model, alternate = crossing, [1, 2] * 10
    model.n_clusters_samples_ = np.array([alternate, alternate, alternate, [2] * 15 + [1] * 5])
    probability, error = model.probability_of_number(2)
    assert probability == 0.5625 and error == pytest.approx(0.0625)
    assert mcse_mean(model.n_clusters_samples_ == 2) < 0.05
    model.n_clusters_samples_ = model.n_clusters_samples_[:1]
    assert model.probability_of_number(2)[1] == max(
        mcse_mean(model.n_clusters_samples_ == 2), 1.0 / 20
    )


@pytest.mark.long
def test_summary_says_if_the_number_of_clusters_is_uncertain(crossing):
    model = crossing
    counts = np.full(model.n_clusters_samples_.shape, model.n_clusters_)
    model.n_clusters_samples_ = counts
    counts.ravel()[: counts.size // 2] += 1
    assert "uncertain" not in model.summary()
    del model._other_readings
    counts.ravel()[: round(counts.size * 0.6)] = model.n_clusters_ + 2
    line = f"40% of the draws have as many clusters as labels_, 60% have {model.n_clusters_ + 2}: "
    assert line + "see estimate_labels(n_estimates=3)" in model.summary()
    # Draws have no word about a number that was asked for, nor where components are clusters.
    model.estimate_labels(max_clusters=1).n_clusters_samples_ = counts + 1
    assert "uncertain" not in model.summary()
    model.estimate_labels(loss="vi").n_clusters_samples_ = counts + 9
    assert "as many clusters as labels_" not in model.summary()


@pytest.mark.long
def test_several_estimates_of_a_fit():
    X, _ = bars(np.random.default_rng(3))
    X = np.concatenate([X, [[np.nan, np.nan]] * 3])
    model = DPMixture(**FAST, concentration=8.0).fit(X)
    labels = model.labels_
    with pytest.raises(AttributeError, match="n_estimates"):
        _ = model.label_estimates_
    assert model.estimate_labels(n_estimates=1).label_estimates_.shape == (1, len(X))
    model.estimate_labels(n_estimates=3)
    assert np.array_equal(model.labels_, labels)
    found, weights = model.label_estimates_, model.estimate_weights_
    cells = model._cells[:, :, :-3]
    losses = [partitions.partition_distances(cells, labels) for labels in found[:, :-3]]
    assert weights == pytest.approx(np.bincount(np.argmin(losses, axis=0)) / len(losses[0]))
    # Single rows beside clusters join these, as in labels_.
    of_draws = partitions.point_estimates(cells, 3, random_state=0)[0]
    assert found.max() < of_draws.max()
    # Rows of which nothing is known are in the largest cluster.
    assert (found[:, -3:] == 0).all() and np.bincount(found[0]).argmax() == 0
    sizes = found.max(axis=1) + 1
    index = adjusted_rand_score(found[0], labels)
    assert f"numbers of clusters {sizes[0]} ({weights[0]:.0%}, {index:.2f})" in model.summary()
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.label_estimates_, found)
    assert model.estimate_labels(n_estimates=2, max_clusters=1).label_estimates_.max() == 0
    assert not hasattr(model.estimate_labels(), "label_estimates_")
    with pytest.raises(ValueError, match="n_estimates must be at least 1"):
        model.estimate_labels(n_estimates=0)
    with pytest.raises(ValueError, match=r"loss must be one of .*; got 'Vi'; did you mean 'vi'\?"):
        model.estimate_labels(loss="Vi")


@pytest.mark.long
def test_several_estimates_among_components_are_near_the_draws():
    X, _ = bars(np.random.default_rng(2), 200)
    X = np.concatenate([X, [[np.nan, np.nan]] * 3])
    model = DPMixture(**FAST, concentration=8.0, point_estimate="vi").fit(X)
    model.estimate_labels(n_estimates=2)
    draws = model.cluster_samples_[:, :, :-3]
    of_draws, _ = partitions.point_estimates(draws, 2, random_state=0)
    found, expected = (
        np.mean(np.min([partitions.partition_distances(draws, k) for k in some], axis=0))
        for some in (model.label_estimates_[:, :-3], of_draws)
    )
    assert found == pytest.approx(expected, rel=0.03)
    known = DPMixture(**FAST).fit(X[:-3], known_labels=np.where(np.arange(len(X) - 3) < 3, 0, -1))
    with pytest.raises(ValueError, match="the fit has known_labels"):
        known.estimate_labels(n_estimates=2)


@pytest.mark.filterwarnings("ignore:.*are copies")
@pytest.mark.parametrize("seed", everyday(range(3), 0))
@pytest.mark.long
def test_several_estimates_have_noise_and_copies(seed):
    rng = np.random.default_rng(seed)
    X = np.concatenate([ring(rng, 200)[0], rng.uniform(-9, 9, size=(20, 2))])
    model = DPMixture(**FAST, noise=True).fit(np.concatenate([X, X[:80]]))
    found = model.estimate_labels(n_estimates=2).label_estimates_
    assert 0 < (model.labels_ < 0).sum() < 40
    assert ((found < 0) == (model.labels_ < 0)).all()
    assert np.array_equal(found[:, :80], found[:, len(X) :])


def test_several_estimates_are_not_proposed_with_known_labels():
    rng = np.random.default_rng(0)
    known = np.repeat([0, 1, -1], [1, 1, 58])
    model = DPMixture(**FAST, likelihood="categorical").fit(
        rng.integers(3, size=(60, 5)), known_labels=known
    )
    assert "uncertain" in model.summary() and "n_estimates" not in model.summary()


def test_several_estimates_need_a_cluster():
    X = np.random.default_rng(32).uniform(size=(4, 3))
    few = {"n_warmup": 30, "n_draws": 20, "n_chains": 1, "random_state": 32}
    model = DPMixture(noise=True, **few).fit(X)
    assert (model.labels_ < 0).all()
    with pytest.raises(ValueError, match="cannot be used, because all rows are noise"):
        model.estimate_labels(n_estimates=2)


@pytest.mark.long
def test_summary_counts_clusters_and_not_noise():
    rng = np.random.default_rng(1)
    X = np.concatenate([bars(rng)[0], rng.uniform(-30, 30, size=(25, 2))])
    model = DPMixture(**FAST, noise=True, point_estimate="modal").fit(X)
    assert '"adaptive" has 2 clusters, "vi" has 2 clusters' in model.summary()
    before = model.diagnostics_["n_clusters"]
    model.estimate_labels(loss="vi")
    found = model.diagnostics_["n_clusters"]
    assert found["mcse_mean"] == mcse_mean(model.n_clusters_samples_) != before["mcse_mean"]


@pytest.mark.long
def test_rows_that_are_noise_share_no_cluster():
    X, _ = ring(np.random.default_rng(1))
    X = np.concatenate([X, [[40.0, 0.0], [0.0, -50.0]]])
    model = DPMixture(**FAST, noise=True).fit(X)
    assert (model.cluster_samples_[:, :, -2:] == -1).mean() > 0.8
    assert model.probability_together(len(X) - 1, len(X) - 2)[0] < 0.2
