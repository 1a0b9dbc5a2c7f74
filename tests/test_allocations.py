"""skdpm.allocations against trying all orders of columns and all matrices."""

import itertools

import numpy as np
import pytest
from reference.allocations import distance, smallest_expected_distance

from skdpm import allocations
from skdpm.allocations import allocation_distances, nearest_draws, point_estimate

BOTH = pytest.mark.parametrize("complements", [False, True])


def random_draws(rng, n_draws, n_samples, most):
    """Draws around one matrix, with columns that are turned, left out or in another order."""
    Z = rng.random((n_samples, most)) < 0.5
    draws = []
    for _ in range(n_draws):
        draw = Z ^ (rng.random(Z.shape) < 0.2) ^ (rng.random(most) < 0.2)
        draws.append(draw[:, rng.permutation(most)[: rng.integers(most + 1)]])
    return draws


@BOTH
def test_distance_is_that_of_the_best_order(complements):
    rng = np.random.default_rng(0)
    for n_samples, most in [(1, 2), (3, 3), (4, 4), (6, 3)]:
        draws = random_draws(rng, 12, n_samples, most)
        for Z in draws[:6]:
            found = allocation_distances(draws, Z, complements=complements)
            assert found.tolist() == [distance(Z, draw, complements) for draw in draws]


@BOTH
def test_distance_is_a_distance(complements):
    rng = np.random.default_rng(1)
    draws = random_draws(rng, 20, 30, 5)
    table = np.array([allocation_distances(draws, Z, complements=complements) for Z in draws])
    np.testing.assert_array_equal(table, table.T)
    assert (np.diag(table) == 0.0).all()
    for i, j, k in itertools.permutations(range(20), 3):
        assert table[i, k] <= table[i, j] + table[j, k]
    turned = [~Z[:, ::-1] for Z in draws]
    others = [
        allocation_distances([Z], W, complements=complements)[0]
        for Z, W in zip(draws, turned, strict=True)
    ]
    assert (np.array(others) == 0.0).all() == complements


@BOTH
@pytest.mark.some(1)
@pytest.mark.long
def test_estimate_has_the_smallest_expected_distance(complements):
    """Of all matrices with three rows and at most two columns, none is closer to the draws."""
    rng = np.random.default_rng(2)
    for n_draws in (1, 2, 3, 5, 9, 9, 9):
        draws = random_draws(rng, n_draws, 3, 2)
        Z = point_estimate(draws, complements=complements)
        found = allocation_distances(draws, Z, complements=complements).mean()
        assert found == pytest.approx(smallest_expected_distance(draws, 2, complements))


def test_estimate_weighs_all_draws():
    """None of the draws is right in every entry, and each has its own order; a feature that few
    draws have is left out."""
    rng = np.random.default_rng(3)
    Z = rng.random((40, 4)) < [0.5, 0.4, 0.3, 0.2]
    draws = []
    for s in range(60):
        draw = Z ^ (rng.random(Z.shape) < 0.1)
        if s % 3 == 0:
            draw = np.hstack([draw, rng.random((40, 1)) < 0.3])
        draws.append(draw[:, rng.permutation(draw.shape[1])])
    found = point_estimate(draws)
    assert allocation_distances(draws, Z).min() > 0
    assert allocation_distances([found], Z)[0] == 0
    assert found.dtype == bool and (np.diff(found.sum(axis=0)) <= 0).all()


def test_complements_are_one_feature():
    """Two thirds of the draws have the complement of the first feature."""
    rng = np.random.default_rng(4)
    Z = rng.random((40, 2)) < [0.3, 0.7]
    draws = [Z ^ np.array([s % 3 > 0, False]) ^ (rng.random(Z.shape) < 0.05) for s in range(20)]
    found = point_estimate(draws, complements=True)
    assert allocation_distances([found], Z, complements=True)[0] == 0
    assert found.sum(axis=0).max() <= 20
    assert allocation_distances([point_estimate(draws)], Z)[0] > 5


@BOTH
def test_draws_without_features(complements):
    empty, one = np.zeros((4, 0), dtype=bool), np.array([[1], [0], [0], [0]])
    assert point_estimate([empty], complements=complements).shape == (4, 0)
    assert point_estimate([empty, empty, one], complements=complements).shape == (4, 0)
    found = point_estimate([empty, one, one], complements=complements)
    np.testing.assert_array_equal(found, one)
    expected = [0.0, 1.0]
    assert allocation_distances([empty, one], empty, complements=complements).tolist() == expected
    assert nearest_draws([empty, empty, one], found, 2, complements)[0][0] == 2
    # Columns of zeros are none.
    assert point_estimate(np.zeros((3, 4, 2)), complements=complements).shape == (4, 0)


def test_nearest_draws_show_their_columns():
    rng = np.random.default_rng(5)
    Z = rng.random((30, 3)) < 0.5
    orders = [[2, 0, 1], [1, 0, 2], [0, 1]]
    draws = [Z[:, order] for order in orders]
    draws[1] = draws[1] ^ (rng.random((30, 3)) < 0.1)
    (first, columns), (second, others) = nearest_draws(draws, Z, 5, False)
    assert (first, second) == (0, 1)  # the third has too few columns
    assert columns.tolist() == [1, 2, 0] and others.tolist() == [1, 0, 2]


@pytest.mark.long
def test_many_entries_mean_fewer_draws(monkeypatch):
    rng = np.random.default_rng(6)
    draws = random_draws(rng, 300, 20, 4)
    whole, distances = point_estimate(draws), allocation_distances(draws, draws[0])
    monkeypatch.setattr(allocations, "MOST_ENTRIES", 1000)
    np.testing.assert_array_equal(allocation_distances(draws, draws[0]), distances)
    assert allocation_distances([point_estimate(draws)], whole)[0] < 12


def test_chains_are_flattened():
    rng = np.random.default_rng(7)
    draws = random_draws(rng, 6, 5, 2)
    chains = [draws[:3], [Z.astype(int) for Z in draws[3:]]]
    for function in (point_estimate, lambda d: allocation_distances(d, draws[0])):
        np.testing.assert_array_equal(function(chains), function(draws))
    lists = [Z.astype(int).tolist() for Z in draws if Z.shape[1]]
    assert len(allocation_distances(lists, draws[0])) == len(lists)


@pytest.mark.parametrize(
    ("draws", "Z", "message"),
    [
        ([], [[1]], "must not be empty"),
        ([[]], [[1]], "must not be empty"),
        ([np.eye(2), np.eye(3)], np.eye(2), "equally many rows"),
        ([2 * np.eye(2)], np.eye(2), "a draw of allocation_samples must be binary"),
        ([np.eye(2)], 2 * np.eye(2), "Z must be binary"),
        ([np.eye(2)], np.eye(3), "Z must have 2 rows, as the draws, got 3"),
    ],
)
def test_bad_allocations(draws, Z, message):
    with pytest.raises(ValueError, match=message):
        allocation_distances(draws, Z)


def test_bad_complements():
    with pytest.raises(ValueError, match="complements"):
        point_estimate([np.eye(2)], complements="yes")
