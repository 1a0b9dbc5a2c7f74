# SPDX-License-Identifier: BSD-3-Clause
"""Groups of similar clusters, of which rows change clusters."""

import numpy as np
import pytest

from skdpm.mixture.blocks.records import Task
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.likelihoods import Gaussian
from skdpm.papers.sub_cluster import GroupedSweep, draw_groups


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e6, np.inf])
def test_no_cluster_stands_alone_however_far_the_others_are(scale):
    rng = np.random.default_rng(0)
    places = rng.standard_normal(30)
    distances = np.abs(places[:, None] - places)
    divergences = np.multiply(scale, distances, where=distances > 0, out=np.zeros((30, 30)))
    for _ in range(20):
        assert np.bincount(draw_groups(divergences, rng)).min() >= 2


def test_the_nearest_is_the_neighbour_where_others_are_far():
    pairs = np.repeat(np.arange(5), 2)
    divergences = np.where(pairs[:, None] == pairs, 50.0, 2000.0)
    np.fill_diagonal(divergences, 0.0)
    groups = draw_groups(divergences, np.random.default_rng(0))
    assert groups.tolist() == pairs.tolist()


def test_no_divergence_is_refused():
    divergences = np.ones((3, 3)) - np.eye(3)
    divergences[1, 2] = np.nan
    with pytest.raises(FloatingPointError, match="divergence of cluster 1"):
        draw_groups(divergences, np.random.default_rng(0))


def test_one_cluster_is_a_group():
    assert draw_groups(np.zeros((1, 1)), np.random.default_rng(0)).tolist() == [0]


def test_rows_move_within_their_group():
    X = np.random.default_rng(0).standard_normal((1500, 2))
    rows = MemoryRows(X, 700)
    likelihood = Gaussian().resolve(X)
    groups = np.array([0, 1, 0, 2, 1])
    codes = rows.codes(np.arange(1500) % 5)
    _, collected = rows.visit(likelihood, codes, Task(5), None)
    params = likelihood.parametric(X).draw(
        collected.stats[0::2].copy(), np.ones(5), np.random.PCG64(0)
    )
    task = Task(5, GroupedSweep(params, np.zeros(5), groups=groups))
    new_codes, _ = rows.visit(likelihood, codes, task, (0, 0, 1))
    np.testing.assert_array_equal(groups[new_codes // 2], groups[codes // 2])
    assert len(np.unique(5 * (codes // 2) + new_codes // 2)) == 9  # every pair within a group
