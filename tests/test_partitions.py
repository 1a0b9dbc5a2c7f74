# SPDX-License-Identifier: BSD-3-Clause
"""skdpm.partitions against definitions by pairs of rows, and searches against all partitions."""

import itertools
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from reference.enumerate import enumerate_partitions
from reference.partitions import expected_losses, together
from scipy.cluster.hierarchy import fcluster, is_valid_linkage, linkage
from scipy.spatial.distance import cdist
from sklearn.exceptions import NotFittedError
from sklearn.metrics import adjusted_rand_score, mutual_info_score, rand_score
from support.designs import combinations, everyday

from skdpm import DPMixture, FeatureAllocation, partitions
from skdpm.diagnostics import mcse_mean
from skdpm.partitions import (
    coclustering_matrix,
    compare,
    credible_ball,
    expected_loss,
    label_probabilities,
    merge_tree,
    partition_distances,
    point_estimate,
    point_estimates,
    relabel_by_size,
)

LOSSES = ["vi", "binder"]
# Splits dearer and cheaper than joins, and near the ends of what is allowed.
PRICED = [(name, cost) for name in LOSSES for cost in (0.05, 0.6, 1.5, 1.9)]


def random_posterior(rng, n=None):
    """Few rows, and draws from no structure at all to a noisy common partition."""
    n = n or int(rng.integers(1, 8))
    n_draws = int(rng.choice([1, 2, 3, 5, 10, 30, 100]))
    k = int(rng.integers(1, n + 1))
    kind = rng.integers(4)
    if kind == 0:
        return rng.integers(k, size=(n_draws, n))
    if kind == 1:
        candidates = enumerate_partitions(n)
        return candidates[rng.integers(len(candidates), size=n_draws)]
    draws = rng.integers(k, size=(n_draws, n))
    if kind == 2:  # rows that agree in all draws
        return draws[:, rng.integers(n, size=n)]
    return np.where(rng.random((n_draws, n)) < 0.4, draws, draws[0])


def shuffle_labels(rng, draws):
    """The same partitions under other labels, in another type."""
    out = np.empty(draws.shape, dtype=np.uint16)
    for new, old in zip(out, draws, strict=True):
        new[:] = rng.permutation(old.max() + 5)[old]
    return out


def mixture_draws(rng, n_draws, n, k, spread):
    """Draws of Gaussian clusters on a line: rows between two centres are uncertain."""
    x = rng.integers(k, size=n) + rng.normal(size=n) * spread
    noise = rng.gumbel(size=(n_draws, n, k))
    return np.argmax(noise - 0.5 * ((x[:, None] - np.arange(k)) / spread) ** 2, axis=2)


def check_minima(seed, n_cases, losses=LOSSES):
    rng = np.random.default_rng(seed)
    for case in range(n_cases):
        draws = random_posterior(rng)
        candidates = enumerate_partitions(draws.shape[1])
        limit = int(rng.integers(1, draws.shape[1] + 1))
        for loss in losses:
            all_losses = expected_losses(draws, candidates, loss)
            for max_clusters in (None, limit):
                found = point_estimate(draws, loss, max_clusters=max_clusters, random_state=case)
                allowed = candidates.max(1) < (max_clusters or len(found))
                minimum = all_losses[allowed].min()
                np.testing.assert_allclose(
                    expected_losses(draws, found[None], loss)[0],
                    minimum,
                    atol=1e-10,
                    err_msg=f"case {case}, {loss}, {max_clusters}, {draws.tolist()}",
                )
                assert found.max() < (max_clusters or len(found))
                np.testing.assert_array_equal(found, relabel_by_size(found))


@pytest.mark.slow
def test_point_estimate_is_the_exhaustive_minimum():
    check_minima(0, 75)


@pytest.mark.slow
def test_point_estimate_is_the_exhaustive_minimum_of_priced_losses():
    check_minima(2, 20, PRICED)


@pytest.mark.slow
def test_point_estimate_is_the_exhaustive_minimum_in_many_cases():
    check_minima(1, 200, LOSSES + PRICED)


@pytest.mark.parametrize("name", LOSSES)
def test_a_split_cost_of_one_is_the_loss_itself(name):
    draws = mixture_draws(np.random.default_rng(0), 30, 60, 4, 0.5)
    np.testing.assert_array_equal(
        partition_distances(draws, draws[3], (name, 1.0)),
        partition_distances(draws, draws[3], name),
    )
    np.testing.assert_array_equal(
        point_estimate(draws, (name, 1), random_state=0),
        point_estimate(draws, name, random_state=0),
    )


@pytest.mark.parametrize("name", LOSSES)
def test_dearer_splits_fuse_clusters_that_overlap(name):
    """Rows of the first two clusters change sides in a tenth of the draws; the third is apart."""
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 40)
    draws = np.where((truth < 2) & (rng.random((200, 120)) < 0.1), 1 - truth, truth)
    apart, fused = relabel_by_size(truth), relabel_by_size(np.maximum(truth, 1))
    np.testing.assert_array_equal(point_estimate(draws, name, random_state=0), apart)
    found = [point_estimate(draws, (name, cost), random_state=0) for cost in (0.5, 1.9)]
    np.testing.assert_array_equal(found, [apart, fused])


@pytest.mark.slow
def test_minima_never_separate_rows_that_agree_in_all_draws():
    """The claim that lets the search move such rows as one, for every minimum."""
    rng = np.random.default_rng(0)
    for case in range(30):
        draws = random_posterior(rng, 4)[:, [0, 1, 1, 2, 2, 2, 3]]
        for loss in [*LOSSES, PRICED[case % len(PRICED)]]:
            losses = expected_losses(draws, enumerate_partitions(7), loss)
            minima = enumerate_partitions(7)[losses < losses.min() + 1e-10]
            assert (minima[:, 1] == minima[:, 2]).all()
            assert (minima[:, 3:6] == minima[:, 3:4]).all()


@pytest.mark.parametrize("loss", LOSSES + PRICED)
@pytest.mark.some(3)
def test_expected_loss_is_the_definition(loss):
    rng = np.random.default_rng(0)
    for _ in range(50):
        draws = random_posterior(rng)
        candidates = enumerate_partitions(draws.shape[1])
        candidates = candidates[rng.integers(len(candidates), size=5)]
        expected = expected_losses(draws, candidates, loss)
        found = [expected_loss(draws, candidate, loss) for candidate in candidates]
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_distances_agree_with_scikit_learn():
    rng = np.random.default_rng(0)
    draws = rng.integers(6, size=(20, 300))
    partition = rng.integers(4, size=300)
    entropy = mutual_info_score(partition, partition)
    vi = [
        entropy + mutual_info_score(draw, draw) - 2 * mutual_info_score(draw, partition)
        for draw in draws
    ]
    np.testing.assert_allclose(partition_distances(draws, partition), vi, atol=1e-12)
    binder = [1 - rand_score(draw, partition) for draw in draws]
    np.testing.assert_allclose(partition_distances(draws, partition, "binder"), binder, atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES + PRICED)
def test_distance_to_an_equal_partition_is_exactly_zero(loss):
    rng = np.random.default_rng(0)
    draws = np.tile(rng.integers(40, size=1000), (5, 1))
    relabelled = shuffle_labels(rng, draws)
    assert (partition_distances(relabelled, draws[0], loss) == 0.0).all()


def test_coclustering_matrix_is_the_definition():
    rng = np.random.default_rng(0)
    for n_draws, n, k in [(1, 1, 1), (3, 5, 2), (700, 40, 6), (300, 90, 80), (5, 600, 500)]:
        draws = rng.integers(k, size=(n_draws, n))
        draws[:, n // 2] = draws[:, 0]
        found = coclustering_matrix(draws)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, together(draws).mean(0))
        rows = rng.integers(n, size=7)
        np.testing.assert_array_equal(coclustering_matrix(draws, rows), found[np.ix_(rows, rows)])


def test_label_probabilities_are_means_of_coclustering():
    rng = np.random.default_rng(0)
    for n_draws, n, k in [(1, 1, 1), (3, 5, 2), (700, 40, 6), (300, 90, 80), (50, 600, 500)]:
        draws = rng.integers(k, size=(n_draws, n))
        draws[:, : n // 2] = draws[0, : n // 2]
        labels = rng.permutation(n)[rng.integers((n + 1) // 2, size=n)]
        matrix, alone = coclustering_matrix(draws), together(draws).sum(2) == 1
        expected = []
        for i in range(n):
            others = np.flatnonzero((labels == labels[i]) & (np.arange(n) != i))
            expected.append(matrix[i, others].mean() if len(others) else alone[:, i].mean())
        assert n < 9 or 0 < np.sum(np.bincount(labels) == 1) < n
        np.testing.assert_allclose(label_probabilities(draws, labels), expected, rtol=1e-12)
        relabelled = shuffle_labels(rng, draws)[:, None]
        np.testing.assert_allclose(label_probabilities(relabelled, labels), expected, rtol=1e-12)


@pytest.mark.parametrize("loss", [*LOSSES, ("vi", 1.6), ("binder", 0.4)])
def test_merge_tree_is_greedy(loss):
    rng = np.random.default_rng(0)
    for k, spread in [(1, 0.3), (2, 0.5), (5, 0.4), (7, 0.8)]:
        draws = mixture_draws(rng, 20, 60, k, spread)
        labels = rng.permutation(k + 3)[draws[0]]
        tree = merge_tree(shuffle_labels(rng, draws).reshape(4, 5, -1), labels, loss)
        now = relabel_by_size(labels)
        np.testing.assert_array_equal(tree.labels, now)
        number = list(range(now.max() + 1))  # of the clusters of `now`, in the linkage
        np.testing.assert_allclose(
            tree.expected_losses[0], expected_loss(draws, now, loss), atol=1e-12
        )
        for m, merged in enumerate(tree.linkage):
            pairs = list(itertools.combinations(range(len(number)), 2))
            losses = [expected_loss(draws, np.where(now == j, i, now), loss) for i, j in pairs]
            i, j = (number.index(c) for c in merged[:2])
            assert merged[0] < merged[1]
            best = min(losses)
            assert losses[pairs.index((min(i, j), max(i, j)))] == pytest.approx(best, abs=1e-10)
            assert tree.expected_losses[m + 1] == pytest.approx(best, abs=1e-10)
            together = coclustering_matrix(draws)[np.ix_(now == i, now == j)].mean()
            assert tree.probabilities[m] == pytest.approx(together, abs=1e-10)
            now = np.where(now == j, i, now)
            number[i] = len(tree.expected_losses) + m
            number[j] = None
            keep = [c for c in range(len(number)) if number[c] is not None]
            now, number = np.searchsorted(keep, now), [number[c] for c in keep]
            np.testing.assert_array_equal(tree.cut(len(number)), relabel_by_size(now))
        np.testing.assert_array_equal(tree.cut(len(tree.expected_losses)), tree.labels)
        assert (np.diff(tree.linkage[:, 2]) >= 0).all()
        heights = np.maximum.accumulate(tree.expected_losses[1:])
        np.testing.assert_array_equal(tree.linkage[:, 2], heights)
        assert not len(tree.linkage) or is_valid_linkage(tree.linkage, throw=True)
        assert len(repr(tree)) < 80


def test_merge_tree_of_many_blocks():
    """More cells of clusters and blocks than there are rows, and labels with gaps."""
    rng = np.random.default_rng(0)
    draws = rng.integers(200, size=(5, 300)) * 7
    labels = rng.integers(150, size=300)
    tree = merge_tree(draws, labels)
    for n_components in (1, 40, 90):
        found = tree.expected_losses[len(tree.expected_losses) - n_components]
        assert found == pytest.approx(expected_loss(draws, tree.cut(n_components)), abs=1e-10)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.int64, np.uint64])
def test_labels_of_any_integer_type_and_shape(dtype):
    rng = np.random.default_rng(0)
    draws = rng.integers(9, size=(2, 10, 30))
    flat = draws.reshape(20, 30)
    labels = draws.astype(dtype)
    if np.dtype(dtype).itemsize == 8:
        labels *= dtype(10**15)
    labels.setflags(write=False)
    sliced = np.repeat(labels, 2, axis=1)[:, ::2]
    for x in (labels, sliced):
        np.testing.assert_array_equal(coclustering_matrix(x), coclustering_matrix(flat))
        np.testing.assert_array_equal(
            partition_distances(x, labels[0, 0]), partition_distances(flat, flat[0])
        )
        np.testing.assert_array_equal(
            point_estimate(x, random_state=0), point_estimate(flat, random_state=0)
        )


@pytest.mark.parametrize("loss", LOSSES)
def test_results_do_not_depend_on_the_labels_of_the_draws(loss):
    rng = np.random.default_rng(0)
    draws = mixture_draws(rng, 60, 80, 5, 0.4)
    other = shuffle_labels(rng, draws)
    np.testing.assert_array_equal(coclustering_matrix(draws), coclustering_matrix(other))
    np.testing.assert_array_equal(
        point_estimate(draws, loss, random_state=3), point_estimate(other, loss, random_state=3)
    )
    a, b = credible_ball(draws, draws[0], loss=loss), credible_ball(other, draws[0], loss=loss)
    for name in ("center", "distances", "vertical_upper", "vertical_lower", "horizontal"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize("make", [int, np.random.RandomState, np.random.default_rng])
def test_point_estimate_is_deterministic_given_random_state(make):
    draws = np.random.default_rng(0).integers(4, size=(50, 60))
    first = point_estimate(draws, random_state=make(7))
    np.testing.assert_array_equal(first, point_estimate(draws, random_state=make(7)))


@pytest.mark.parametrize("loss", LOSSES)
def test_repeated_draws_weigh_as_often_as_they_occur(loss):
    """Seven times one partition, three times another: blocks they share are kept once."""
    a, b = [0, 0, 0, 1, 1, 1, 2, 2], [0, 0, 1, 1, 1, 1, 2, 2]
    np.testing.assert_array_equal(point_estimate([a] * 7 + [b] * 3, loss, random_state=0), a)


@pytest.mark.parametrize("loss", LOSSES)
def test_thinned_search_recovers_planted_clusters(monkeypatch, loss):
    """The path of large problems, with limits that make a small one large."""
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(5), [30, 25, 20, 15, 10])
    draws = np.where(rng.random((400, 100)) < 0.1, rng.integers(5, size=(400, 100)), truth)
    monkeypatch.setattr(partitions, "_RUN_CELLS", 100 * 40)
    monkeypatch.setattr(partitions, "_FINAL_CELLS", 100 * 200)
    monkeypatch.setattr(partitions, "_BLOCK_CELLS", 1000)
    np.testing.assert_array_equal(point_estimate(draws, loss, random_state=0), truth)
    monkeypatch.setattr(partitions, "_MAX_WORK", 0)
    found = point_estimate(draws, loss, max_clusters=3, random_state=0)
    assert found.min() == 0 and found.max() < 3


@pytest.mark.parametrize("loss", everyday(LOSSES + PRICED, *LOSSES, ("vi", 1.5)))
def test_no_single_move_improves_the_estimate(loss):
    rng = np.random.default_rng(0)
    draws = mixture_draws(rng, 50, 40, 4, 0.5)
    found = point_estimate(draws, loss, random_state=0)
    moved = []
    for i in range(40):
        for k in range(found.max() + 2):
            moved.append(found.copy())
            moved[-1][i] = k
    losses = expected_losses(draws, np.array(moved), loss)
    assert losses.min() > expected_loss(draws, found, loss) - 1e-10
    assert all(expected_loss(draws, d, loss) >= losses.min() - 1e-10 for d in draws)


@pytest.mark.parametrize("loss", [*LOSSES, ("vi", 1.5), ("binder", 0.6)])
def test_several_estimates_are_the_exhaustive_minimum(loss):
    """Of two groups of draws: the pair of partitions with the least mean loss to the nearer one,
    among all pairs, and the share of draws near each. A local minimum is this one in 40 of 40 such
    cases with symmetric losses, and in 36 and 38 with the others."""
    everything = np.array(enumerate_partitions(4))
    for seed in range(6 if isinstance(loss, tuple) else 12):
        rng = np.random.default_rng(seed)
        centers = everything[rng.choice(len(everything), 2, replace=False)]
        draws = centers[(rng.random(30) < 0.4).astype(int)]
        moved = rng.random(30) < 0.3
        draws[moved] = everything[rng.integers(len(everything), size=moved.sum())]
        losses = np.array([partition_distances(draws, k, loss) for k in everything])
        pairs = itertools.combinations(losses, 2)
        least = min(np.minimum(*pair).mean() for pair in pairs)
        labels, weights = point_estimates(draws, 2, loss, random_state=seed)
        found = np.array([partition_distances(draws, k, loss) for k in labels])
        assert found.min(axis=0).mean() == pytest.approx(least)
        assert weights == pytest.approx(np.bincount(found.argmin(axis=0)) / 30)
        assert weights[0] >= weights[1]


@pytest.mark.long
def test_several_estimates_are_those_of_the_draws_near_them():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        draws = np.concatenate([mixture_draws(rng, 40, 24, k, 1.0) for k in (2, 3, 5)])
        labels, _ = point_estimates(draws, 3, random_state=0)
        owners = np.argmin([partition_distances(draws, k) for k in labels], axis=0)
        for k, one in enumerate(labels):
            own = draws[owners == k]
            best = point_estimate(own, random_state=1)
            assert expected_loss(own, one) <= expected_loss(own, best) + 1e-9


def test_several_estimates_of_one_kind():
    draws = mixture_draws(np.random.default_rng(0), 30, 20, 3, 0.5)
    one, weights = point_estimates(draws, 1, random_state=0)
    assert np.array_equal(one[0], point_estimate(draws, random_state=0)) and weights == [1.0]
    # No more than there are different draws; equal ones share an estimate.
    labels, weights = point_estimates([[0, 0, 1], [1, 1, 0], [0, 1, 1]], 5, random_state=0)
    assert labels.tolist() == [[0, 0, 1], [1, 0, 0]] and weights == pytest.approx([2 / 3, 1 / 3])


def test_weights_of_several_estimates_count_all_draws(monkeypatch):
    """Pairs are compared for some draws only."""
    monkeypatch.setattr(partitions, "_MOST_PAIRED", 10)
    draws = np.array([[0, 0, 0, 0]] * 69 + [[0, 0, 1, 1]] * 31)
    labels, weights = point_estimates(draws, 2, random_state=0)
    assert labels.tolist() == [[0, 0, 0, 0], [0, 0, 1, 1]] and weights.tolist() == [0.69, 0.31]


def naive_ball(draws, center, level, loss):
    distances = np.array([expected_losses(d[None], center[None], loss)[0] for d in draws])
    # Of all distances, the smallest within which the ball has the mass.
    radius = min(r for r in distances if np.mean(distances <= r + 1e-10) >= level - 1e-10)
    inside = distances <= radius + 1e-10
    n_clusters = np.array([len(set(d)) for d in draws])
    bounds = {}
    for name, chosen in (
        ("vertical_upper", inside & (n_clusters == n_clusters[inside].min())),
        ("vertical_lower", inside & (n_clusters == n_clusters[inside].max())),
        ("horizontal", inside),
    ):
        farthest = chosen & (distances > distances[chosen].max() - 1e-10)
        bounds[name] = {tuple(relabel_by_size(d)) for d in draws[farthest]}
    return distances, radius, bounds


@combinations(loss=[*LOSSES, ("vi", 1.5)], level=[0.3, 0.55, 0.95])
def test_credible_ball_is_the_definition(loss, level):
    rng = np.random.default_rng(0)
    for case in range(20):
        draws = random_posterior(rng, 6) if case else rng.integers(3, size=(100, 6))
        center = draws[rng.integers(len(draws))]
        ball = credible_ball(draws, center, level=level, loss=loss)
        distances, radius, bounds = naive_ball(draws, center, level, loss)
        np.testing.assert_allclose(ball.distances, distances, atol=1e-12)
        np.testing.assert_allclose(ball.radius, radius, atol=1e-12)
        np.testing.assert_array_equal(ball.center, relabel_by_size(center))
        for name, expected in bounds.items():
            found = getattr(ball, name)
            assert found.dtype == np.int64
            assert len(found) == len(expected)
            assert {tuple(row) for row in found} == expected


def test_credible_ball_holds_no_more_draws_than_the_level_asks_for():
    """0.55 * 100 is above 55 in floating point: the 55th distance is meant, not the 56th."""
    draws = (np.arange(200) < np.arange(100)[:, None]).astype(int)  # ever farther from the first
    ball = credible_ball(draws, draws[0], level=0.55, loss="binder")
    assert ball.radius == ball.distances[54] < ball.distances[55]


def test_credible_ball_is_around_the_point_estimate_by_default():
    draws = mixture_draws(np.random.default_rng(0), 40, 50, 3, 0.3)
    ball = credible_ball(draws, loss="binder", random_state=0)
    np.testing.assert_array_equal(ball.center, point_estimate(draws, "binder", random_state=0))
    assert (ball.level, ball.loss) == (0.95, "binder")
    assert np.sum(ball.distances <= ball.radius) >= 38


def test_relabel_by_size():
    found = relabel_by_size(np.array([9, 4, 4, 1, 9, 3], dtype=np.uint8))
    assert found.dtype == np.int64
    assert found.tolist() == [0, 1, 1, 2, 0, 3]


@pytest.mark.parametrize("loss", LOSSES)
def test_one_row_and_one_draw(loss):
    assert point_estimate([[3], [5]], loss).tolist() == [0]
    assert expected_loss([[3], [5]], [1], loss) == 0.0
    assert coclustering_matrix([[3], [5]]).tolist() == [[1.0]]
    draw = [4, 4, 0, 4, 1, 0]
    assert point_estimate(draw, loss).tolist() == [0, 0, 1, 0, 2, 1]
    ball = credible_ball(draw, loss=loss)
    assert ball.radius == 0.0
    assert ball.horizontal.tolist() == [[0, 0, 1, 0, 2, 1]]
    assert coclustering_matrix(draw, [0, 1, 2]).tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]


@pytest.mark.parametrize("loss", LOSSES)
def test_draws_of_singletons(loss):
    draws = np.tile(np.arange(300), (20, 1))
    assert point_estimate(draws, loss, random_state=0).tolist() == list(range(300))
    assert point_estimate(draws, loss, max_clusters=2, random_state=0).max() == 1


DRAWS = [[0, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coclustering_matrix([]), "label_samples must not be empty"),
        (lambda: coclustering_matrix(np.zeros((3, 0), int)), "label_samples must not be empty"),
        (lambda: point_estimate([0.0, 1.0]), "label_samples must be integers, got dtype float64"),
        (lambda: point_estimate([True, False]), "label_samples must be integers"),
        (lambda: point_estimates(DRAWS, 0), "n_estimates must be at least 1"),
        (lambda: point_estimate(3), "label_samples must have shape (..., n_samples)"),
        (lambda: point_estimate([[0, -1]]), "label_samples must not be negative"),
        (lambda: point_estimate(DRAWS, "rand"), "loss must be 'vi', 'binder' or"),
        (lambda: point_estimate(DRAWS, None), "loss must be 'vi', 'binder' or"),
        (lambda: point_estimate(DRAWS, ("rand", 1.5)), "loss must be 'vi', 'binder' or"),
        (lambda: point_estimate(DRAWS, ("vi",)), "loss must be 'vi', 'binder' or"),
        (
            lambda: point_estimate(DRAWS, ("vi", 0.0)),
            "loss[1] (split_cost) must be finite and > 0",
        ),
        (lambda: expected_loss(DRAWS, [0, 0, 0], ("binder", 2)), "loss[1] (split_cost) must be"),
        (lambda: credible_ball(DRAWS, loss=("vi", "x")), "loss[1] (split_cost) must be a number"),
        (lambda: point_estimate(DRAWS, max_clusters=0), "max_clusters must be at least 1"),
        (lambda: point_estimate(DRAWS, n_runs=1.5), "n_runs must be an integer, got 1.5"),
        (lambda: coclustering_matrix(DRAWS, [0, 3]), "rows must be in 0..2"),
        (lambda: coclustering_matrix(DRAWS, [-1]), "rows must be in 0..2"),
        (lambda: coclustering_matrix(DRAWS, []), "rows must be a non-empty"),
        (lambda: coclustering_matrix(DRAWS, [0.5]), "rows must be a non-empty"),
        (lambda: label_probabilities(DRAWS, [0, 1]), "labels must have shape (3,), got (2,)"),
        (lambda: merge_tree(DRAWS, [0, 1]), "labels must have shape (3,), got (2,)"),
        (lambda: merge_tree(DRAWS, [0, 1, 1], "v"), "loss must be 'vi'"),
        (lambda: merge_tree(DRAWS, [0, 1, 1]).cut(3), "n_clusters must be at most 2, got 3"),
        (lambda: merge_tree(DRAWS, [0, 1, 1]).cut(0), "n_clusters must be at least 1"),
        (lambda: merge_tree(DRAWS, [0, 1, 1]).cut(1.0), "n_clusters must be an integer"),
        (lambda: label_probabilities([], [0]), "label_samples must not be empty"),
        (lambda: expected_loss(DRAWS, [0, 1]), "labels must have shape (3,), got (2,)"),
        (lambda: expected_loss(DRAWS, [0.0, 1, 2]), "labels must be integers"),
        (lambda: expected_loss(DRAWS, [0, 1, 2], "v"), "loss must be 'vi'"),
        (lambda: credible_ball(DRAWS, [0, 1]), "center must have shape (3,), got (2,)"),
        (lambda: credible_ball(DRAWS, level=1.0), "level must be finite and > 0 and < 1, got 1.0"),
        (lambda: credible_ball(DRAWS, level=np.nan), "level must be finite and > 0 and < 1"),
        (lambda: credible_ball(DRAWS, loss="x"), "loss must be 'vi'"),
        (lambda: relabel_by_size(DRAWS), "labels must have shape (n_samples,), got (2, 3)"),
        (lambda: relabel_by_size([-1]), "labels must not be negative"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSSES)
def test_large_posteriors_end_at_the_planted_partition(loss):
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(15, size=100_000))
    draws = np.tile(truth.astype(np.uint8), (1000, 1))
    for draw in draws:
        moved = rng.integers(100_000, size=500)
        draw[moved] = rng.integers(15, size=500)
    np.testing.assert_array_equal(
        point_estimate(draws, loss, random_state=0), relabel_by_size(truth)
    )


@pytest.mark.parametrize("seed", range(4))
def test_clusters_that_no_draw_joins_merge_by_single_linkage(seed):
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.repeat(np.arange(7), [9, 3, 5, 4, 8, 6, 2]))
    points = rng.normal(size=(7, 1))
    tree = merge_tree([labels, labels], labels, distances=cdist(points, points))
    for k in range(1, 8):
        expected = fcluster(linkage(points, "single"), k, "maxclust")[labels]
        assert adjusted_rand_score(tree.cut(k), expected) == 1.0
    by_size = merge_tree([labels, labels], labels).cut(4)
    assert adjusted_rand_score(by_size, tree.cut(4)) < 1.0


def test_clusters_that_draws_join_merge_before_near_ones():
    labels = np.repeat([0, 1, 2, 3], 5)
    joined = np.where(labels == 3, 0, labels)
    distances = np.ones((4, 4))
    distances[0, 3] = distances[3, 0] = 100.0
    distances[1, 2] = distances[2, 1] = 0.5
    tree = merge_tree([labels, joined], labels, distances=distances)
    assert adjusted_rand_score(tree.cut(3), joined) == 1.0
    assert adjusted_rand_score(tree.cut(2), [0] * 5 + [1] * 10 + [0] * 5) == 1.0
    with pytest.raises(ValueError, match=r"distances must be a finite array of shape \(4, 4\)"):
        merge_tree([labels, joined], labels, distances=np.ones((3, 3)))


def test_two_fits_are_compared():
    def fit(labels, draws, certainty):
        labels = np.array(labels)
        return SimpleNamespace(
            labels_=labels,
            cluster_samples_=np.array(draws),
            probabilities_=np.array(certainty),
            _check_label_draws=lambda name, instead: None,
            _training=SimpleNamespace(X=None),
        )

    # Two chains of two draws each. Row 3 moves, less certainly row 6, and row 7 becomes noise.
    one, other = [0, 0, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 1, -1]
    draws = [[one, one], [one, other]]
    first = fit(one, draws, [1.0, 1.0, 1.0, 0.9, 1.0, 1.0, 0.7, 0.8])
    second = fit(other, [[other, other], [other, one]], np.ones(8))
    found = compare(first, second)
    assert found.table.tolist() == [[0, 1, 3], [1, 2, 1]]
    assert [names.tolist() for names in found.names] == [[0, 1], [-1, 0, 1]]
    assert found.moved.tolist() == [3, 7, 6]
    apart = partition_distances([one], np.array(other) + 1)[0]
    # Each fit has one draw of four at the labels of the other, so of the 16 pairs 6 are equal.
    # Of the 6 pairs of draws of a fit, 3 differ.
    assert found.distance == pytest.approx(10 / 16 * apart)
    assert found.within == pytest.approx(apart / 2)
    of_draws = mcse_mean([[0.75 * apart, 0.75 * apart], [0.75 * apart, 0.25 * apart]])
    assert_allclose(found.error, np.hypot(of_draws, of_draws))
    assert f"{found.distance:.3g} +- " in repr(found) and "[[0 1 3]\n [1 2 1]]" in repr(found)
    same = compare(first, first, loss="binder")
    assert same.distance < same.within and len(same.moved) == 0
    # Equal labels do not hide that posteriors differ.
    certain = compare(first, fit(one, [[one, one], [one, one]], np.ones(8)))
    assert certain.distance == pytest.approx(apart / 4) == certain.within
    sure = compare(fit(one, [[one] * 8], np.ones(8)), fit(one, [[other] * 8], np.ones(8)))
    assert sure.distance == pytest.approx(apart) and sure.within == 0.0
    with pytest.raises(ValueError, match="same rows, got 8 and 7 rows"):
        compare(first, fit(one[:-1], draws, np.ones(7)))
    many = np.arange(128)
    alone = fit(many, np.array([[many, many]], dtype=np.int8), np.ones(128))  # 127 + 1 wraps
    assert compare(alone, alone).distance == 0.0
    one_draw = fit(many, np.array([[many]]), np.ones(128))
    assert np.isnan(compare(one_draw, one_draw).error)


@pytest.mark.long
def test_fits_of_rows_in_different_orders_are_not_compared():
    pd = pytest.importorskip("pandas")
    X = np.random.default_rng(0).normal(size=(12, 2))
    short = {"n_chains": 1, "n_warmup": 2, "n_draws": 4, "random_state": 0}

    def fit(X):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return DPMixture(**short).fit(X)

    first, again, scaled = fit(X), fit(X.copy()), fit(X * 2.0)
    for other in (again, scaled, fit(X[:, :1])):
        assert len(compare(first, other).names) == 2
    gaps = X.copy()
    gaps[3, 1] = np.nan
    for one, other in (
        (X, X[::-1]),
        (gaps, gaps[::-1]),
        (pd.DataFrame(X), X[[1, 0, *range(2, 12)]]),
    ):
        with pytest.raises(ValueError, match="same rows in different orders"):
            compare(fit(one), fit(other))


def test_fits_without_labels_are_not_compared():
    X = np.arange(8.0)[:, None]
    short = {"n_chains": 1, "n_warmup": 2, "n_draws": 4, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        whole, bare = (DPMixture(**short, store_labels=kept).fit(X) for kept in (True, False))
    for other, error, words in (
        (DPMixture(), NotFittedError, "not fitted"),
        (bare, AttributeError, "compare needs label draws"),
        (whole.for_prediction(), AttributeError, "compare needs label draws"),
        (FeatureAllocation(), TypeError, "compare takes a fitted DPMixture .* FeatureAlloc"),
        (np.zeros(8, dtype=int), TypeError, "compare takes a fitted DPMixture or FiniteMixture"),
    ):
        with pytest.raises(error, match=words):
            compare(whole, other)
        with pytest.raises(error, match=words):
            compare(other, whole)
