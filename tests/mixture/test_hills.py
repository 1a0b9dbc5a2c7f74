# SPDX-License-Identifier: BSD-3-Clause
"""`point_estimate="modal"`: components without a valley between them are one cluster."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions
from reference.hills import hills, unimodal
from scipy.stats import multivariate_normal, norm
from sklearn.datasets import make_moons
from sklearn.metrics import adjusted_rand_score
from support.designs import everyday
from support.hills import read_hills

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.answers import bricks, reading
from skdpm.mixture.answers import components as _components
from skdpm.mixture.answers import hills as _hills
from skdpm.mixture.answers._components import valleys
from skdpm.mixture.answers.components import points_of
from skdpm.mixture.answers.hills import Hills
from skdpm.mixture.answers.predictive import Predictor
from skdpm.mixture.answers.reading import join_fragments, read_draws
from skdpm.mixture.likelihoods import Gaussian

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_chains": 2, "n_warmup": 60, "n_draws": 60, "random_state": 0}


@pytest.fixture
def four_rows(monkeypatch):
    """Hills of four rows."""
    monkeypatch.setattr(_components, "LEAST_ROWS", 4)


def random_line(rng):
    """Rows along a bent line in 1 to 4 columns, and components that are pieces of it."""
    n, d = int(rng.integers(30, 140)), int(rng.integers(1, 5))
    t = np.sort(rng.uniform(0, 6, size=n))
    X = np.column_stack([t, np.sin(t), 0.3 * t**2, np.cos(2 * t)])[:, :d]
    labels = np.searchsorted(np.sort(rng.uniform(0, 6, size=int(rng.integers(1, 7)))), t)
    X = X + rng.normal(scale=rng.choice([0.1, 0.4]), size=(n, d))
    return X, labels


def random_plates(rng):
    """Two plates with a gap between them, each with several round components."""
    n = int(rng.integers(60, 200))
    X = rng.uniform(size=(n, 2)) * [1.0, 2.0]
    plate = rng.integers(2, size=n)
    centres = rng.uniform(size=(8, 2)) * [1.0, 2.0]
    far = ((X[:, None] - centres) ** 2).sum(axis=2) + rng.gumbel(scale=0.05, size=(n, 8))
    labels = 4 * plate + np.where(plate == 0, far[:, :4].argmin(axis=1), far[:, 4:].argmin(axis=1))
    X[:, 0] += plate * (1.0 + rng.choice([0.0, 0.2, 0.5, 3.0]))
    return X, labels


def random_case(rng):
    X, labels = random_line(rng) if rng.random() < 0.5 else random_plates(rng)
    labels = np.unique(labels, return_inverse=True)[1]
    for _ in range(rng.integers(3)):  # a few rows far away; two such groups may be close
        n, d = int(rng.integers(1, 4)), X.shape[1]
        places = np.full((n, d), rng.choice([-300.0, 10.0, 30.0, 100.0]))
        X = np.vstack([X, places + rng.normal(size=(n, d))])
        labels = np.append(labels, np.full(n, labels.max() + 1))
    return points_of(X), rng.permutation(labels.max() + 1)[labels]


def random_cases(n_cases):
    rng = np.random.default_rng(0)
    for _ in range(n_cases):
        yield random_case(rng)


def assert_seen(**planted):
    """Two of the cases are read otherwise than by hills with an error."""
    n_seen = 0
    for points, labels in random_cases(150):
        wrong = hills(points, labels, **planted)[labels]
        found = read_hills(points, labels)
        n_seen += not np.array_equal(canonical_labels(found), canonical_labels(wrong))
        if n_seen == 2:
            return
    raise AssertionError(f"{planted} makes a difference in {n_seen} of 150 cases")


@pytest.mark.slow
def test_hills_are_the_definition(four_rows):
    merged = []
    for points, labels in random_cases(150):
        expected = hills(points, labels, least_rows=4)[labels]
        found = read_hills(points, labels)
        np.testing.assert_array_equal(canonical_labels(found), canonical_labels(expected))
        assert (np.diff(np.bincount(found)) <= 0).all()
        merged.append((labels.max() + 1, found.max() + 1))
    before, after = np.array(merged).T
    assert (after < before).sum() > 50 and (after > 1).sum() > 50


@pytest.mark.parametrize(
    "error",
    [
        "sign",
        "order",
        "higher end",
        "higher hill",
        "peak",
        "no weights",
        "no pieces",
        "far pieces",
        "sparse pieces",
        "no sum",
        "all face",
        "deep faces",
        "one pair",
        "height",
        "row of islands",
        "one far",
        "single island",
    ],
)
@pytest.mark.slow
def test_planted_errors_are_seen(error, four_rows):
    assert_seen(least_rows=4, error=error)


@pytest.mark.parametrize("least_rows", [1, 8])
@pytest.mark.slow
def test_the_smallest_hill_matters(least_rows, four_rows):
    assert_seen(least_rows=least_rows)


@pytest.mark.slow
def test_stricter_separation_gives_no_more_clusters(monkeypatch, four_rows):
    falls = 0
    for points, labels in random_cases(80):
        counts = []
        for least in (0.0, 0.3, 0.7, 1.5, 5.0):
            monkeypatch.setattr(_hills, "LEAST_EVIDENCE", least)
            counts.append(read_hills(points, labels).max() + 1)
        assert (np.diff(counts) <= 0).all()
        falls += counts[-1] < counts[0]
    assert falls > 10


def line_between(distance, rows, share=0.5, deviation=1.0):
    """Depth and evidence of two normal laws with given rows of both."""
    n_a = round(share * len(rows))
    depth, evidence = np.empty((2, 2, 2))
    faces = np.empty((2, 2), dtype=np.uint8)
    valleys(
        np.asarray(rows, dtype=float).reshape(-1, 1),
        np.array([0, n_a, len(rows)]),
        np.array([0, 1]),
        np.array([[0.0], [distance]]),
        np.array([[[1.0]], [[deviation**2]]]),
        0,
        3.0,
        2.0,
        depth,
        evidence,
        faces,
    )
    return depth[0, 1], evidence[0, 1]


@pytest.mark.parametrize(("n_far", "expected"), [(1, 2), (2, 3), (4, 3)])
@pytest.mark.long
def test_few_rows_far_away_are_a_cluster(n_far, expected):
    rng = np.random.default_rng(0)
    near = np.vstack([rng.normal(size=(60, 3)), rng.normal(6.0, size=(40, 3))])
    X = np.vstack([near, rng.normal(100.0, size=(n_far, 3))])
    model = DPMixture(**FAST).fit(X)
    assert model.n_clusters_ == expected
    if expected == 3:
        assert (model.labels_[100:] == 2).all()
        # No mean of a cluster is where no row is.
        assert np.abs(model.cluster_params_["means"][:2]).max() < 7.0


def test_a_hundred_rows_of_very_many_show_a_valley():
    """They are half a percent of the rows, and too near for an island."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [23_880, 120])
    X = rng.normal(size=(len(labels), 2)) + np.outer(labels, [5.0, 0.0])
    np.testing.assert_array_equal(read_hills(points_of(X), labels), labels)
    np.testing.assert_array_equal(read_hills(points_of(X[:-30]), labels[:-30]), 0)


@pytest.mark.parametrize("n_few", [10, 20])
def test_a_small_group_beside_thousands_is_a_cluster_and_a_tail_is_not(n_few):
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [2000, n_few])
    X = rng.normal(size=(len(labels), 3)) * np.where(labels, 0.6, 1.0)[:, None]
    group = points_of(X + np.outer(labels, [5.5, 3.0, 0.0]))
    np.testing.assert_array_equal(read_hills(group, labels), labels)
    for law in (rng.laplace(size=(2000, 3)), rng.lognormal(sigma=0.5, size=(2000, 3))):
        of_tail = (law[:, 0] >= np.sort(law[:, 0])[-n_few]).astype(int)
        np.testing.assert_array_equal(read_hills(points_of(law), of_tail), 0)


def test_small_components_behind_valleys_are_the_definition(monkeypatch):
    for name, value in (("LEAST_SHARE", 1.0), ("ENOUGH_ROWS", 30), ("LEAST_ROWS", 4)):
        monkeypatch.setattr(_components, name, value)
    rng, n_seen = np.random.default_rng(0), 0
    for _ in range(40):
        sizes = [200, *rng.integers(2, 12, size=3)]
        labels = np.repeat(np.arange(4), sizes)
        means = np.vstack([[0.0, 0.0], rng.uniform(3.0, 7.0, size=(3, 2))])
        points = points_of(means[labels] + rng.normal(size=(len(labels), 2)))
        found = canonical_labels(read_hills(points, labels))
        expected = hills(points, labels, least_rows=30, island_rows=4)[labels]
        np.testing.assert_array_equal(found, canonical_labels(expected))
        n_seen += not np.array_equal(
            found, canonical_labels(hills(points, labels, least_rows=30)[labels])
        )
    assert n_seen > 5


@pytest.mark.long
def test_rows_of_a_law_with_heavy_tails_are_no_islands():
    for seed in range(2):
        X = np.random.default_rng(seed).standard_t(1.5, size=(300, 2))
        assert DPMixture(**{**FAST, "n_chains": 1}).fit(X).n_clusters_ == 1


@pytest.mark.parametrize("covariance_type", ["diag", "full"])
@pytest.mark.parametrize("is_missing", [True, False])
@pytest.mark.some(2)
@pytest.mark.long
def test_rows_that_lack_the_column_between_clusters_are_no_island(covariance_type, is_missing):
    rng = np.random.default_rng(1)
    two = [rng.normal([at, 0.0, 0.0], size=(60, 3)) for at in (-50.0, 50.0)]
    few = np.column_stack([np.full(3, 50.0), rng.normal(4.5, 0.3, size=(3, 2))])
    few[:, 0] = np.nan if is_missing else 50.0
    model = DPMixture(likelihood=Gaussian(covariance_type=covariance_type), **FAST)
    model.fit(np.vstack([*two, few]))
    assert model.n_clusters_ == 2 and (model.n_clusters_samples_ == 2).all()


def test_the_largest_of_many_islands_are_hills(monkeypatch):
    monkeypatch.setattr(_hills, "MOST_ISLANDS", 2)
    rng = np.random.default_rng(0)
    sizes = [1000, 2, 4, 3, 5]
    labels = np.repeat(np.arange(5), sizes)
    points = points_of(
        1000.0 * labels[:, None] * [1.0, -labels.mean()] + rng.normal(size=(1014, 2))
    )
    hill = Hills.of(points, labels).of_components
    assert len({hill[0], hill[2], hill[4]}) == 3 and {hill[1], hill[3]} <= {hill[2], hill[4]}


def test_two_normal_laws_have_a_valley_if_their_means_are_two_deviations_apart():
    rows = np.zeros(10)
    for distance in (0.5, 1.0, 1.5, 2.0):
        assert line_between(distance, rows)[0] == 0.0
    for distance in (2.5, 3.0, 4.0, 6.0):
        peak = norm.pdf(0.0) + norm.pdf(distance)
        depth = np.log(peak / (2.0 * norm.pdf(distance / 2.0)))
        # The highest of the nodes is not quite the peak.
        np.testing.assert_allclose(line_between(distance, rows)[0], depth, atol=0.02)


@pytest.mark.parametrize("share, deviation", [(0.5, 1.0), (0.2, 0.3)])
def test_evidence_of_rows_with_and_without_a_valley(share, deviation):
    """Its mean is n times the divergence; rows that fill the valley speak against it."""
    rng = np.random.default_rng(0)
    n, distance = 4_000, 3.0
    n_a = round(share * n)
    rows = np.concatenate([rng.normal(size=n_a), distance + deviation * rng.normal(size=n - n_a)])
    _, with_valley = line_between(distance, rows, share, deviation)
    nodes = np.linspace(-6.0, 9.0, 20_001)
    f = share * norm.pdf(nodes) + (1.0 - share) * norm.pdf(nodes, distance, deviation)
    ratio = np.log(f / unimodal(nodes, f))
    mean = (f * ratio).sum() / f.sum()
    error = np.sqrt(n * ((f * ratio**2).sum() / f.sum() - mean**2))
    assert abs(with_valley - n * mean) < 4.0 * error and n * mean > 10.0
    filled = np.where((rows > 0) & (rows < distance), rng.uniform(0, distance, size=n), rows)
    assert line_between(distance, filled, share, deviation)[1] < -20.0
    # Rows beyond both laws count for neither.
    far = np.concatenate([rows, [-50.0, 90.0]])
    further = line_between(distance, np.sort(far), (n_a + 1) / (n + 2), deviation)[1]
    np.testing.assert_allclose(further, with_valley, rtol=0.02)


def test_the_first_of_the_most_probable_components_is_found():
    rng = np.random.default_rng(0)
    means, roots = rng.normal(size=(7, 3)), rng.normal(size=(7, 3, 3)) / 2.0
    laws = _components.NormalLaws.of(
        rng.uniform(1, 9, size=7), means, np.eye(3) + roots @ roots.mT
    )
    laws = laws.take([0, 1, 2, 3, 4, 5, 6, 6, 0])
    points = rng.normal(size=(500, 3))
    points[::9, 1] = np.nan
    whole = np.nan_to_num(points)
    parts = zip(laws.sizes, laws.means, laws.covariances, strict=True)
    densities = [n * multivariate_normal(mean, cov).pdf(whole) for n, mean, cov in parts]
    expected = np.argmax(densities, axis=0)
    assert len(set(expected)) == 7
    np.testing.assert_array_equal(laws.most_probable(points), expected)


def ring(rng, n=600, n_pieces=8):
    angle = rng.uniform(0, 2 * np.pi, size=n)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(scale=0.05, size=(n, 2))
    return X, (angle / (2 * np.pi) * n_pieces).astype(int)


def test_pieces_of_a_ring_are_one_cluster_and_what_is_inside_another():
    rng = np.random.default_rng(0)
    X, pieces = ring(rng)
    inside = rng.normal(scale=0.1, size=(200, 2))
    found = read_hills(points_of(np.r_[X, inside]), np.r_[pieces, np.full(200, 8)])
    np.testing.assert_array_equal(found, np.repeat([0, 1], [600, 200]))


@pytest.mark.parametrize("n_pieces", [40, 60, 120])
@pytest.mark.parametrize("deviation", [0.001, 0.03])
def test_bricks_of_any_length_along_thin_rings_leave_no_gap(n_pieces, deviation):
    rng = np.random.default_rng(1)
    angle = rng.uniform(0, 2 * np.pi, size=1200)
    which = rng.integers(2, size=1200)
    X = np.column_stack([np.cos(angle) + 2.5 * which, np.sin(angle)])
    cuts = np.sort(rng.uniform(0, 2 * np.pi, size=n_pieces))
    pieces = np.unique(np.searchsorted(cuts, angle) * 2 + which, return_inverse=True)[1]
    points = points_of(X + rng.normal(scale=deviation, size=X.shape))
    assert adjusted_rand_score(read_hills(points, pieces), which) > 0.95


@pytest.mark.parametrize("n_pieces", [40, 60])
def test_of_many_rows_every_brick_has_evidence_and_none_is_a_cluster(n_pieces):
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, size=40_000)
    X = np.column_stack([np.cos(angle), np.sin(angle)]) + rng.normal(scale=0.1, size=(40_000, 2))
    cuts = (np.arange(n_pieces) + rng.uniform(0.0, 0.5, size=n_pieces)) * 2 * np.pi / n_pieces
    pieces = np.searchsorted(cuts, angle) % n_pieces
    assert read_hills(points_of(X), pieces).max() == 0


def test_rows_of_noise_do_not_fill_a_gap():
    rng = np.random.default_rng(0)
    X, pieces = random_grid(rng, 600)
    noise = rng.uniform([-0.2, -0.2], [2.6, 1.2], size=(30, 2))
    points = points_of(np.vstack([X, noise]))
    found = read_hills(points, np.append(pieces, pieces.max() + 1 + np.arange(30)))
    assert adjusted_rand_score(found[:600], X[:, 0] > 1.2) == 1.0


def random_grid(rng, n):
    """Two filled squares with a gap, cut into nine pieces each."""
    X, which = rng.uniform(size=(n, 2)), rng.integers(2, size=n)
    cells = (3 * X).astype(int)
    X[:, 0] += 1.4 * which
    return X, 9 * which + 3 * cells[:, 0] + cells[:, 1]


def test_labels_of_a_draw_do_not_depend_on_order_names_or_units():
    rng = np.random.default_rng(1)
    for points, labels in random_cases(20):
        expected = canonical_labels(read_hills(points, labels))
        order = rng.permutation(len(points))
        found = np.empty(len(points), dtype=int)
        found[order] = read_hills(points[order], labels[order])
        np.testing.assert_array_equal(canonical_labels(found), expected)
        renamed = (3 * labels.max() - 2 * labels).astype(np.uint8)
        np.testing.assert_array_equal(canonical_labels(read_hills(points, renamed)), expected)
        d = points.shape[1]
        mixed = points_of(1e4 * points @ rng.normal(size=(d, d)) + 7.0)
        np.testing.assert_array_equal(canonical_labels(read_hills(mixed, labels)), expected)


def test_missing_entries_constant_and_many_columns():
    rng = np.random.default_rng(2)
    X, pieces = ring(rng)
    whole = read_hills(points_of(X), pieces)
    gaps = X.copy()
    gaps[::40, 0] = np.nan
    assert adjusted_rand_score(read_hills(points_of(gaps), pieces), whole) == 1.0
    constant = np.column_stack([X, np.full(len(X), 3.0), np.full(len(X), np.nan)])
    np.testing.assert_array_equal(points_of(constant), points_of(X))
    assert read_hills(points_of(np.ones((5, 2))), np.arange(5)).tolist() == [0] * 5
    y = np.repeat([0, 1], 200)
    wide = rng.normal(size=(400, 60)) + 6.0 * np.outer(y, rng.normal(size=60) / 8)
    assert points_of(wide).shape == (400, _components.MOST_COLUMNS)
    pieces = 2 * y + rng.integers(2, size=400)
    assert adjusted_rand_score(read_hills(points_of(wide), pieces), y) == 1.0


def test_draws_are_read_evenly_and_threads_make_no_difference(monkeypatch):
    rng = np.random.default_rng(3)
    X, pieces = ring(rng)
    draws = np.array([[np.minimum(pieces, k) for k in range(9)]] * 2)
    monkeypatch.setattr(reading, "MOST_READ", 6)
    chosen, clusters, *_ = read_draws(X, draws)
    assert chosen.tolist() == [0, 4, 8] and clusters.shape == (2, 3, 600)
    for s, found in zip(chosen, clusters[1], strict=True):
        np.testing.assert_array_equal(found, read_hills(points_of(X), draws[1, s]))
    np.testing.assert_array_equal(read_draws(X, draws, n_jobs=2)[1], clusters)


def test_of_many_components_fewer_draws_are_read(monkeypatch):
    X, pieces = ring(np.random.default_rng(3))
    draws = np.array([[pieces] * 9] * 2)
    wide = np.hstack([X, np.random.default_rng(0).normal(size=(600, 38))])
    for most_pairs, n_read in [(18 * 64, 9), (18 * 64 - 1, 8), (8 * 64, 4), (64, 1), (1, 1)]:
        # Pairs in many columns take longer, up to those that are looked at.
        for points, factor in [(X, 1.0), (wide[:, :10], 2.0), (wide, 6.4)]:
            monkeypatch.setattr(reading, "MOST_PAIRS", factor * most_pairs)
            chosen, clusters, *_ = read_draws(points, draws)
            assert len(chosen) == n_read and clusters.shape == (2, n_read, 600)
            assert chosen[-1] == 8


def test_draws_of_clusters_take_little_memory(monkeypatch):
    X, pieces = ring(np.random.default_rng(3))
    draws = np.array([[pieces]])
    assert read_draws(X, draws)[1].dtype == np.uint8
    monkeypatch.setattr(
        bricks.DrawnHills, "clusters", lambda draw, *_: np.tile(np.arange(draw.n_samples), (2, 1))
    )
    assert read_draws(X, draws)[1].dtype == np.uint16


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", everyday([1, 2, 5], 2))
def test_hundreds_of_components(n_columns):
    rng = np.random.default_rng(n_columns)
    centres = rng.uniform(size=(120, n_columns))
    X = rng.uniform(size=(1500, n_columns))
    labels = ((X[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)
    labels = np.unique(labels, return_inverse=True)[1]
    points = points_of(X)
    expected = hills(points, labels, least_rows=15)[labels]
    np.testing.assert_array_equal(
        canonical_labels(read_hills(points, labels)), canonical_labels(expected)
    )


def test_pairs_are_tested_in_parts(monkeypatch, four_rows):
    cases = list(random_cases(40))
    expected = [read_hills(*case) for case in cases]
    monkeypatch.setattr(_components, "MOST_NUMBERS", 1)
    for case, clusters in zip(cases, expected, strict=True):
        np.testing.assert_array_equal(read_hills(*case), clusters)


@pytest.mark.slow
def test_posterior_of_the_number_of_clusters(monkeypatch):
    """All partitions of six rows, each with its number of clusters."""
    monkeypatch.setattr(_components, "LEAST_ROWS", 1)
    monkeypatch.setattr(reading, "MOST_READ", 10**6)
    X = np.array([0.0, 0.3, 0.5, 4.0, 4.2, 9.0])[:, None]
    partitions = enumerate_partitions(6)
    _, clusters, *_ = read_draws(X, partitions[None])
    expected = [len(set(hills(points_of(X), z, least_rows=1))) for z in partitions]
    np.testing.assert_array_equal(clusters[0].max(axis=1) + 1, expected)
    assert len(set(expected)) >= 3
    model = DPMixture(
        point_estimate="modal", n_draws=500, n_chains=1, n_warmup=50, random_state=0
    ).fit(X)
    weights = np.array([(model.label_samples_[0] == z).all(axis=1).mean() for z in partitions])
    assert weights.sum() == pytest.approx(1.0)
    counts = np.bincount(model.n_clusters_samples_[0], minlength=7) / 500
    np.testing.assert_allclose(counts, np.bincount(expected, weights, minlength=7), atol=1e-9)


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(400, noise=0.06, random_state=0)
    return X, y, DPMixture(**FAST).fit(X)


@pytest.mark.slow
def test_crescents(moons):
    _, y, model = moons
    assert adjusted_rand_score(y, model.labels_) > 0.99
    assert np.median(model.n_components_samples_) > 4
    assert np.median(model.n_clusters_samples_) == 2 == model.n_clusters_
    assert model.cluster_samples_.shape == (2, 39, 400)
    np.testing.assert_array_equal(
        model.n_clusters_samples_, model.cluster_samples_.max(axis=2) + 1
    )
    assert model.n_clusters_samples_.dtype == np.int64
    assert len(model.weights_) == len(model.cluster_params_["means"]) == 2
    assert model.probabilities_.min() > 0.3
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.n_clusters_samples_, model.n_clusters_samples_)


@pytest.mark.long
def test_new_rows_follow_the_hills(moons):
    X, y, model = moons
    assert (model.predict(X) == model.labels_).mean() >= 0.995
    new, truth = make_moons(500, noise=0.06, random_state=1)
    swapped = model.labels_[0] != y[0]
    assert (model.predict(new) == np.where(swapped, 1 - truth, truth)).mean() > 0.99
    proba = model.predict_proba(new)
    assert proba.shape == (500, 2)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_array_equal(proba.argmax(axis=1), model.predict(new))
    with_new = model.predict_proba(new, new_cluster=True)
    assert with_new.shape == (500, 3)
    np.testing.assert_allclose(with_new.sum(axis=1), 1.0, rtol=1e-12)
    # No row depends on the others.
    np.testing.assert_array_equal(model.predict_proba(new[::7]), proba[::7])
    rows, labels = model.sample(300)
    assert rows.shape == (300, 2) and set(labels) == {0, 1}


@pytest.mark.long
def test_probabilities_and_weights_are_sums_over_components(moons):
    X, _, model = moons
    predictor = copy.copy(model._predictor)
    params, weights, owners = predictor.components()
    assert len(params["means"]) == len(weights) == len(owners) > 4
    predictor.partition = dataclasses.replace(predictor.partition, owners=None)
    parts = predictor.predict_proba(X[:40], new_cluster=True)
    for new_cluster in (False, True):
        found = model.predict_proba(X[:40], new_cluster=new_cluster)
        whole = parts if new_cluster else parts[:, :-1] / parts[:, :-1].sum(axis=1, keepdims=True)
        for k in range(model.n_clusters_):
            expected = whole[:, np.flatnonzero(owners == k)].sum(axis=1)
            np.testing.assert_allclose(found[:, k], expected, rtol=1e-10)
    np.testing.assert_allclose(found[:, -1], parts[:, -1], rtol=1e-12)
    for k in range(model.n_clusters_):
        np.testing.assert_allclose(model.weights_[k], weights[owners == k].sum(), rtol=1e-12)


def test_probabilities_do_not_exceed_one_by_rounding(moons, monkeypatch):
    X, _, model = moons
    above = np.nextafter(1.0, 2.0)
    monkeypatch.setattr(Predictor, "_probabilities", lambda *args: np.array([[above, 0.0]]))
    assert model.predict_proba(X[:1]).tolist() == [[1.0, 0.0]]


@pytest.mark.slow
def test_fewer_clusters_are_unions(moons):
    X, _, model = moons
    model = pickle.loads(pickle.dumps(model))
    model.estimate_labels(loss="vi", X=X)
    assert model.n_clusters_ > 2
    np.testing.assert_array_equal(model.n_clusters_samples_, model.n_components_samples_)
    np.testing.assert_array_equal(model.cluster_samples_, model.label_samples_)
    model.estimate_labels(max_clusters=1)
    assert model.n_clusters_ == 1 and model.predict_proba(X).shape == (400, 1)
    tree = model.estimate_labels().merge_tree()
    np.testing.assert_array_equal(tree.labels, model.labels_)


@pytest.mark.slow
def test_chains_and_threads_change_no_label():
    X, _ = make_moons(200, noise=0.06, random_state=2)
    one = DPMixture(**FAST, n_jobs=1).fit(X)
    two = DPMixture(**FAST, n_jobs=2).fit(X)
    np.testing.assert_array_equal(one.labels_, two.labels_)
    np.testing.assert_array_equal(one.cluster_samples_, two.cluster_samples_)


@pytest.mark.slow
def test_modal_is_the_default_and_vi_where_rows_are_no_points():
    rng = np.random.default_rng(0)
    X = (rng.random((60, 6)) < np.where(np.arange(60)[:, None] < 30, 0.2, 0.8)).astype(float)
    for estimator in (DPMixture, FiniteMixture):
        assert estimator().point_estimate == "auto"
        params = {"likelihood": "bernoulli", **FAST}
        modal = estimator(**params, point_estimate="modal").fit(X)
        found = estimator(**params).fit(X)
        by_vi = estimator(**params, point_estimate="vi").fit(X)
        np.testing.assert_array_equal(modal.labels_, by_vi.labels_)
        joined = join_fragments(by_vi.labels_, by_vi.cluster_samples_)
        np.testing.assert_array_equal(found.labels_, joined)
        np.testing.assert_array_equal(found.cluster_samples_, found.label_samples_)
