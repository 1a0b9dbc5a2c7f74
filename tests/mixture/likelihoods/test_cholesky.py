"""Updates of Cholesky factors of one rank take two columns at a time: with the bits of one."""

import math

import numpy as np
import pytest
from support.probes import add_square, cholesky_update


def columns_of(packed, n):
    """The columns of a packed triangle, from the diagonal on: list of lists."""
    ends = np.cumsum(np.arange(n, 0, -1))
    return [list(map(float, column)) for column in np.split(packed, ends[:-1])]


def by_single_columns(packed, v, alpha):
    """`cholesky_update` with numbers of Python, a column at a time."""
    columns, v = columns_of(packed, len(v)), list(map(float, v))
    change, ratio = 0.0, 1.0
    for j, column in enumerate(columns):
        p = v[j]
        square = 1.0 + alpha * (p * (p * column[0]))
        if not 1e-10 < square < 1e300:
            if not (alpha > 0.0 and square > 1.0):
                return None
            scaled = p * column[0]
            change += math.log(alpha) + math.log(abs(p)) + math.log(abs(scaled))
            column[0] = (1.0 / (alpha * p)) / p
            alpha = (1.0 / p) / scaled
            for i in range(1, len(column)):
                v[j + i] -= p * column[i]
                column[i] += v[j + i] / p
            continue
        inverse = 1.0 / square
        column[0] *= inverse
        ratio *= square
        if not 1e-100 < ratio < 1e100:
            change += math.log(ratio)
            ratio = 1.0
        by = alpha * (p * column[0])
        alpha *= inverse
        for i in range(1, len(column)):
            v[j + i] -= p * column[i]
            column[i] += by * v[j + i]
    return np.concatenate(columns), change + math.log(ratio)


def a_factor(n, rng):
    """A packed factor with ones, which are not stored, and inverse pivots on its diagonal."""
    columns = [rng.normal(size=n - j) for j in range(n)]
    for column in columns:
        column[0] = rng.uniform(0.1, 3.0)
    return np.concatenate(columns)


@pytest.mark.parametrize("n", [*range(1, 12), 16, 33])
@pytest.mark.parametrize("alpha", [0.7, -1e-3, 1e-9])
def test_two_columns_at_a_time(n, alpha, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for _ in range(5):
        packed, v = a_factor(n, rng), rng.normal(size=n) * 0.5**n
        factor, log_det, good = cholesky_update(packed, v, alpha)
        expected, change = by_single_columns(packed, v, alpha)
        assert good and log_det == change
        np.testing.assert_array_equal(factor, expected)


@pytest.mark.parametrize("size", [1e49, 1e60, 1e120, 1e148, 1e152])
@pytest.mark.parametrize("far", [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2, 3, 4]], ids=str)
def test_columns_of_extreme_values(far, size, seed_sequence):
    """Products of ratios, and squares, that are no double, in either column of a pair."""
    rng = np.random.default_rng(seed_sequence)
    packed, v = a_factor(5, rng), rng.normal(size=5)
    v[far] *= size * 100.0 ** np.arange(len(far))
    factor, log_det, good = cholesky_update(packed, v, 0.7)
    expected, change = by_single_columns(packed, v, 0.7)
    assert good and log_det == change
    np.testing.assert_array_equal(factor, expected)


@pytest.mark.parametrize("j", range(5))
def test_a_downdate_that_leaves_no_factor(j):
    packed = np.concatenate([np.eye(n)[0] for n in range(5, 0, -1)])
    assert cholesky_update(packed, 0.99 * np.eye(5)[j], -1.0)[2]
    assert not cholesky_update(packed, np.eye(5)[j], -1.0)[2]
    assert not cholesky_update(packed, np.eye(5)[j], -1.0 + 1e-12)[2]


@pytest.mark.parametrize("n", [1, 2, 7, 18])
def test_a_square_is_added(n, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    packed, v = a_factor(n, rng), rng.normal(size=n)
    expected = packed + ((0.3 * v)[:, None] * v)[np.triu_indices(n)]
    np.testing.assert_array_equal(add_square(packed, v, 0.3), expected)
