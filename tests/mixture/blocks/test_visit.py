"""Sweeps that pass over far clusters, against sweeps that evaluate all."""

import copy

import numpy as np
import pytest
from support.designs import everyday
from support.exactness import (
    block_case,
    case_posterior,
    case_rows,
    invariance_run,
    record_worst,
)
from support.probes import accumulated, log_density_bounds
from support.pvalues import assert_p_matrix

from skdpm.chains import stream
from skdpm.mixture.blocks import rows as rows_module
from skdpm.mixture.blocks._visit import draw_and_collect
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.records import Held, Sweep, Task, TrialSplit
from skdpm.mixture.blocks.rows import MemoryRows, row_order, uses_order, visit_block
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.likelihoods.elliptical._tied import whitened
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel
from skdpm.mixture.state._tiles import RowTiles
from skdpm.papers.sub_cluster import GroupedSweep

KINDS = ("full", "diag", "tied", "spherical")


def make_clusters(covariance_type, n_rows, n_features, n_clusters, seed=0, spread=6.0):
    """Rows of clusters of many sizes, shapes and distances, and a sweep under drawn parameters."""
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_clusters, p=rng.dirichlet(np.full(n_clusters, 2.0)), size=n_rows)
    means = spread * rng.normal(size=(n_clusters, n_features))
    scales = rng.gamma(2.0, 0.5, size=(n_clusters, 1))
    X = means[labels] + scales[labels] * rng.normal(size=(n_rows, n_features))
    X[:, -1] += 0.5 * X[:, 0]
    X[::100] *= 3.0
    scale = 1.0 if covariance_type == "tied" else None
    likelihood = Gaussian(covariance_type=covariance_type, scale=scale).resolve(X)
    model = likelihood.parametric(X)
    nothing = np.zeros(model.n_stats)
    codes = (2 * labels + rng.integers(2, size=n_rows)).astype(np.int32)
    stats = [accumulated(model, nothing, np.flatnonzero(labels == k)) for k in range(n_clusters)]
    subs = [accumulated(model, nothing, np.flatnonzero(codes == k)) for k in range(2 * n_clusters)]
    draw = [
        model.draw(np.array(some), np.ones(len(some)), np.random.PCG64(seed))
        for some in (stats, subs)
    ]
    weights = 4.0 * rng.normal(size=n_clusters)
    sub_weights = rng.normal(size=2 * n_clusters)
    return likelihood, X, codes, Sweep(draw[0], weights, draw[1], sub_weights)


def sweep_in_tiles(likelihood, X, codes, sweep, tile_rows, *, held=None, splits=()):
    task = Task(len(sweep.params), sweep, splits)
    streams = [stream(1, 2, j) for j in range(1 + len(splits))]
    order = row_order(likelihood, X)
    model = likelihood.parametric(X)
    return draw_and_collect(model, codes, task, streams, held, order, tile_rows)


# Bounds.


@pytest.mark.parametrize("covariance_type", KINDS)
@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("tile_rows", [1, 2, 3, 40])
@pytest.mark.some(12)
def test_densities_are_within_their_bounds(covariance_type, n_features, tile_rows):
    """Of rows near and far, under parameters of every size."""
    likelihood, X, _, sweep = make_clusters(covariance_type, 300, n_features, 9)
    X[:8] = np.array([1e3, -1e6, 1e9, 1e12, 1e30, -1e90, 1e140, 1e-9])[:, None] * X[8:16]
    model = likelihood.parametric(X)
    params = [sweep.params, sweep.sub_params]
    for factor in (1e-8, 1e5, 1e12):  # narrower, wider
        params.append(sweep.params.copy())
        params[-1][:, 1:] *= factor
    params = np.concatenate(params)
    points = X - likelihood._origin
    if covariance_type == "tied":
        points = whitened(points, likelihood.scale)
    tiles = RowTiles(points, tile_rows, 4)
    boxes, rows = np.asarray(tiles.boxes), np.asarray(tiles.order)
    lower, upper = log_density_bounds(model, params, boxes)
    densities = model.log_densities(params)[:, rows]
    for t, bounds in enumerate(zip(lower, upper, strict=True)):
        tile = densities[:, t * tile_rows : (t + 1) * tile_rows]
        assert (tile >= bounds[0][:, None]).all()
        assert (tile <= bounds[1][:, None]).all()
    if tile_rows == 1:  # boxes without a width: the bounds are the densities
        good = densities.T > -1e299
        for bounds in (lower, upper):
            np.testing.assert_allclose(bounds[good], densities.T[good], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("covariance_type", KINDS)
def test_bounds_are_reached(covariance_type):
    """The greatest and the least density of a box in one column are at the places one knows."""
    likelihood, X, _, sweep = make_clusters(covariance_type, 60, 1, 5)
    model = likelihood.parametric(X)
    centre, half = np.array([0.3]), np.array([2.0])
    lower, upper = log_density_bounds(model, sweep.params, np.array([[centre, half]]))
    corners = np.concatenate([np.linspace(-1.7, 2.3, 20001)[:, None]]) + likelihood._origin
    densities = likelihood.parametric(corners).log_densities(sweep.params)
    inside = densities.argmax(axis=1) % 20000 != 0
    np.testing.assert_allclose(upper[0], densities.max(axis=1), atol=1e-4)
    np.testing.assert_allclose(lower[0][~inside], densities.min(axis=1)[~inside], atol=1e-9)


# The same draws.


@pytest.mark.parametrize("covariance_type", KINDS)
@pytest.mark.parametrize(
    "shape",
    everyday(
        [(3000, 2, 40), (2500, 3, 25), (1500, 1, 12), (2000, 6, 30)], (2500, 3, 25), (1500, 1, 12)
    ),
)
@pytest.mark.some(2)
def test_draws_are_those_of_a_sweep_over_all_clusters(covariance_type, shape):
    """To the last bit, in tiles of any size, with rows held back and random splits."""
    for seed, spread in [(0, 6.0), (1, 2.0), (2, 30.0)]:
        likelihood, X, codes, sweep = make_clusters(covariance_type, *shape, seed, spread)
        rows = np.flatnonzero(codes // 2 == 3)
        splits = (TrialSplit(2, 0.4, 1), TrialSplit(3, 0.7, 2))
        for held, sizes in [(None, (1, 3, 128)), (Held(rows, codes[rows]), (32, 512))]:
            plain, *actual = (
                sweep_in_tiles(likelihood, X, codes, sweep, size, held=held, splits=splits)
                for size in (0, *sizes)
            )
            assert len(np.unique(plain[0])) > 10
            for new_codes, stats, first_rows in actual:
                np.testing.assert_array_equal(new_codes, plain[0])
                np.testing.assert_allclose(stats, plain[1], rtol=1e-9, atol=1e-9)
                np.testing.assert_array_equal(first_rows, plain[2])


def test_draws_are_the_same_with_weights_of_zero_and_clusters_that_are_alike():
    likelihood, X, codes, sweep = make_clusters("full", 2000, 2, 20)
    params, weights = sweep.params.copy(), sweep.log_weights.copy()
    params[5:10] = params[4]
    weights[4:10] = 0.0
    weights[:3] = -np.inf
    weights[12] = 20.0
    sweep = Sweep(params, weights)
    plain, *_ = sweep_in_tiles(likelihood, X, codes, sweep, 0)
    assert np.isin(np.arange(4, 10), plain // 2).all()
    assert not np.isin(plain // 2, [0, 1, 2]).any()
    for tile_rows in (1, 2, 100):
        actual, *_ = sweep_in_tiles(likelihood, X, codes, sweep, tile_rows)
        np.testing.assert_array_equal(actual, plain)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["log_weights", "sub_log_weights", "params", "sub_params"])
def test_what_is_no_number_is_refused(name, bad):
    """Of the cluster that all rows of a tile are in."""
    likelihood, X, codes, sweep = make_clusters("full", 600, 2, 10, spread=20.0)
    k = codes[0] // 2 if name[0] != "s" else codes[0]
    parts = {part: copy.copy(getattr(sweep, part)) for part in sweep.__slots__}
    parts[name][(k, 0) if parts[name].ndim == 2 else k] = bad
    for tile_rows in (0, 1, 64):
        with pytest.raises(FloatingPointError, match="no number"):
            sweep_in_tiles(likelihood, X, codes, Sweep(**parts), tile_rows)


def test_clusters_far_from_a_batch_may_decide_a_row():
    """Tiles whose clusters are hundreds of nats below those of their batch: what the batch passed
    over is what decides the fifth row."""
    reach = np.sqrt(3400.0) * 10.0 / (np.sqrt(3420.0) - np.sqrt(3400.0))
    narrow = (np.sqrt(3420.0) - np.sqrt(3400.0)) / 10.0
    wide = np.sqrt(6000.0) / 10.0
    X = np.array([-reach] * 3 + [0.0, np.sqrt(1380.0) / wide, 10.0])[:, None]
    model = Gaussian(mean=0.0, mean_precision=1.0, df=3.0, scale=1.0).resolve(X).parametric(X)
    clusters = [
        (0.0, 0.0, wide),
        (200.0, -reach, narrow),
        (200.0, -reach, np.sqrt(5400.0) / reach),
    ]
    clusters += [(-670.0 - 30.0 * (k > 0), 0.0, 1e-9) for k in range(5)]
    params = np.array([[peak, root * mean, root] for peak, mean, root in clusters])
    task = Task(len(params), Sweep(params, np.zeros(len(params))))
    codes = [
        draw_and_collect(
            model, None, task, [stream(1, 2, 0)], None, np.arange(6, dtype=np.int32), tile_rows
        )[0]
        for tile_rows in (0, 1, 2, 3)
    ]
    assert codes[0][4] // 2 == 3
    for others in codes[1:]:
        np.testing.assert_array_equal(others, codes[0])


# Orders.


def test_an_order_is_for_sweeps_with_many_clusters():
    likelihood, X, _, sweep = make_clusters("full", 300, 2, 10)
    assert uses_order(Task(10, sweep))
    assert not uses_order(Task(10))
    few = Sweep(sweep.params[:3], sweep.log_weights[:3])
    assert not uses_order(Task(3, few))
    grouped = GroupedSweep.of(sweep, np.zeros(10, dtype=np.intp))
    assert not uses_order(Task(10, grouped))
    assert sorted(row_order(likelihood, X)) == list(range(300))
    many = np.random.default_rng(0).normal(size=(30, 40))
    assert row_order(Gaussian().resolve(many), many) is None


def test_results_do_not_depend_on_where_an_order_is_kept():
    likelihood, X, codes, sweep = make_clusters("full", 900, 2, 10)
    task, orders = Task(10, sweep), {}
    visits = [
        visit_block(likelihood, X, codes, task, (0, 0, 1), 1, None, where)
        for where in (None, orders, orders, None)
    ]
    assert list(orders) == [1]
    for new_codes, collected in visits[1:]:
        np.testing.assert_array_equal(new_codes, visits[0][0])
        np.testing.assert_array_equal(collected.stats, visits[0][1].stats)


# Exactly the posterior.


@pytest.mark.slow
@pytest.mark.parametrize(
    "tile_rows, likelihood, prior",
    everyday(
        [(1, "gaussian", "dp"), (2, "gaussian_diag", "pitman_yor")],
        (2, "gaussian_diag", "pitman_yor"),
        n_values=3,
    ),
)
def test_invariance(tile_rows, likelihood, prior, monkeypatch, seed_sequence, record_property):
    """Sweeps of chains on five rows, with bounds in every one: see `test_blocks`."""
    monkeypatch.setattr(rows_module, "FEWEST_CLUSTERS", 1)
    monkeypatch.setattr(
        rows_module,
        "draw_and_collect",
        lambda *arguments, **noise: draw_and_collect(*arguments, tile_rows, **noise),
    )
    kernel = SubClusterKernel(sub_splits=False, random_moves=RandomMoves(n_moves=0))
    chains = block_case(likelihood, prior, kernel, MemoryRows(case_rows(likelihood), 3))
    run = invariance_run(
        chains, chains, case_posterior(likelihood, prior), n_starts=300, n_iterations=4
    )
    worst = assert_p_matrix({likelihood: run}, seed_sequence=seed_sequence)
    record_worst(record_property, worst, 1)
