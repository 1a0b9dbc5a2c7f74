"""Rows in tiles, bounds of what clusters weigh over them, and sweeps that pass over clusters.

What a sweep in tiles passes over cannot change a draw: so its draws are those of a sweep that
weighs every cluster, and the law is that of Gibbs.
"""

import numpy as np
import pytest
from reference.likelihoods import log_posterior
from support.designs import combinations
from support.exactness import invariance_run, make_prior, record_worst
from support.kernels import bind
from support.probes import StateProbe, log_predictive_floors
from support.pvalues import assert_p_matrix

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, Poisson
from skdpm.mixture.priors import DirichletProcessPrior, FiniteDirichletPrior
from skdpm.mixture.samplers import PGSM, SAMS, Gibbs, SplitMerge
from skdpm.mixture.state._state import MixtureState
from skdpm.mixture.state._tiles import RowTiles

SIZES = [(1, 1), (2, 1), (3, 2), (16, 16)]


def grid(n_samples, n_clusters, step, n_features, seed):
    """Clusters on a grid, a few rows far from all of them, and labels, some of them wrong."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(n_clusters, size=n_samples)
    digits = np.column_stack([labels // 5**d % 5 for d in range(n_features)])
    X = step * digits + rng.normal(size=(n_samples, n_features))
    X[:5] *= 30.0
    labels[:20] = rng.integers(n_clusters, size=20)
    return X, np.unique(labels, return_inverse=True)[1]


def tiled_state(likelihood, X, labels, prior, tile_size, group_size, *, at_gaps=True):
    likelihood = likelihood.resolve(X)
    data = likelihood.encode(X)
    tiles = RowTiles(likelihood.box_points(data), tile_size, group_size, at_gaps)
    state = MixtureState(bind(likelihood, data, len(X)), prior, labels, tiles=tiles)
    state.bounds.always = True
    return state


def gaussian(covariance_type, X, df=6.0):
    return Gaussian(
        covariance_type=covariance_type,
        mean=X.mean(axis=0),
        mean_precision=0.01,
        df=df + X.shape[1],
        scale=df,
    )


# Tiles.


@pytest.mark.parametrize("at_gaps", [False, True])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 1000])
@pytest.mark.parametrize("n_features", [1, 3])
def test_tiles_cover_the_rows(n, n_features, at_gaps):
    rng = np.random.default_rng(n)
    for points in (
        rng.normal(size=(n, n_features)) ** 3,
        np.zeros((n, n_features)),
        rng.integers(3, size=(n, n_features)) * 1e9 + 1.0,
    ):
        tiles = RowTiles(points, 8, 4, at_gaps)
        order, starts = np.asarray(tiles.order), np.asarray(tiles.starts)
        np.testing.assert_array_equal(np.sort(order), np.arange(n))
        assert starts[0] == 0 and starts[-1] == n
        sizes = np.diff(starts)
        assert (sizes >= 1).all() and (sizes <= 8).all()
        if not at_gaps:
            assert (sizes[:-1] == 8).all()
        centres, halves = np.asarray(tiles.boxes).transpose(1, 0, 2)
        tile = np.repeat(np.arange(len(sizes)), sizes)
        assert (np.abs(points[order] - centres[tile]) <= halves[tile]).all()
        slack = 1e-14 * np.abs(points).max(axis=0) + 1e-300
        assert (halves <= np.ptp(points, axis=0) * (0.5 + 1e-9) + slack).all()
        np.testing.assert_array_equal(order, RowTiles(points, 8, 4, at_gaps).order)


def test_tiles_are_cut_at_gaps():
    """Few tiles have rows of two clusters that are far from each other; at medians many have."""
    X, labels = grid(1000, 10, 20.0, 2, seed=0)
    X, labels = X[20:], labels[20:]
    mixed = []
    for at_gaps in (False, True):
        tiles = RowTiles(X, 16, 16, at_gaps)
        parts = np.split(labels[tiles.order], tiles.starts[1:-1])
        mixed.append(sum(len(set(part)) > 1 for part in parts))
    assert mixed[0] > 15 and mixed[1] < 6


def test_tiles_need_columns():
    with pytest.raises(ValueError, match="columns"):
        RowTiles(np.empty((3, 0)))


def test_tiles_of_other_rows_are_refused():
    X, labels = grid(30, 2, 5.0, 2, seed=0)
    likelihood = gaussian("full", X).resolve(X)
    model = bind(likelihood, likelihood.encode(X), 30)
    with pytest.raises(ValueError, match="tiles of 29 rows for 30 items"):
        MixtureState(model, DirichletProcessPrior(30, 1.0), labels, tiles=RowTiles(X[1:]))


# Bounds.


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("n_features", [1, 2, 5])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied", "spherical"])
@pytest.mark.some(9)
def test_floors_hold(covariance_type, n_features, scale):
    """No item weighs less in its own cluster, given the others, than the floor of its box; and
    the floor of a box of one row is its weight."""
    X, labels = grid(200, 12, 4.0, n_features, seed=1)
    rng = np.random.default_rng(2)
    X = scale * (X @ rng.normal(size=(n_features, n_features)) + 1e3)
    likelihood = Gaussian(covariance_type=covariance_type)
    prior = DirichletProcessPrior(len(X), 1.0)
    for tile_size in (1, 3, 16):
        state = tiled_state(likelihood, X, labels, prior, tile_size, 4)
        tiles, probe, slots = state.bounds.tiles, StateProbe(state), state.cluster_slots()
        floors = log_predictive_floors(state.model, slots, tiles.boxes)
        tile = np.empty(len(X), dtype=np.intp)
        tile[tiles.order] = np.repeat(np.arange(tiles.n_tiles), np.diff(tiles.starts))
        n_tight = 0
        for i in range(0, len(X), 3):
            k = state.cluster_labels()[i]
            if state.cluster_sizes()[k] == 1:
                continue
            probe.detach(i)
            weight = probe.log_predictive(i)[k]
            probe.attach(i, k)
            floor = floors[tile[i], k]
            assert floor <= weight
            n_tight += np.isclose(floor, weight, rtol=1e-6, atol=1e-6)
        if tile_size == 1:
            assert n_tight > 40


# Sweeps.


@combinations(
    covariance_type=["full", "diag", "tied", "spherical", "poisson"], n_features=[1, 2, 4]
)
@pytest.mark.some(1)
def test_draws_are_those_of_all_weights(covariance_type, n_features):
    """Chains with bounds and without, 300 and 2000 rows: the same draws from the same seed, while
    clusters overlap, move, begin and end."""
    for n, n_clusters, step in ((300, 6, 2.0), (300, 20, 6.0), (2000, 25, 4.0)):
        X, labels = grid(n, n_clusters, step, n_features, seed=n_clusters)
        if covariance_type == "poisson":
            X, likelihood = np.floor(3.0 * np.abs(X)), Poisson(shape=0.5, rate=0.05)
        else:
            likelihood = gaussian(covariance_type, X)
        for sizes in SIZES if n == 300 else SIZES[-1:]:
            states = [
                tiled_state(likelihood, X, labels, DirichletProcessPrior(n, 2.0), *sizes)
                for _ in range(2)
            ]
            states[1].bounds.off = True
            streams = [np.random.PCG64(5) for _ in states]
            kernels = [Gibbs(n_sweeps=3).kernel() for _ in states]
            n_clusters_seen = set()
            for _ in range(8 if n == 300 else 2):
                for state, kernel, stream in zip(states, kernels, streams, strict=True):
                    kernel.run(state, stream)
                np.testing.assert_array_equal(*(state.cluster_labels() for state in states))
                n_clusters_seen.add(states[0].n_clusters)
            if n == 300:
                assert len(n_clusters_seen) > 1


@pytest.mark.parametrize(
    ("n_features", "own_first"), [(4, True), (4, False), (9, False), (18, False)]
)
def test_clusters_that_are_not_near_change_no_draw(n_features, own_first):
    """Chains that weigh the clusters near a row, and chains that weigh all: the same draws, while
    moves write rows and hyperparameters change."""
    X, labels = grid(400, 20, 2.5, n_features, seed=n_features)
    likelihood = gaussian("full", X).resolve(X)
    data = likelihood.encode(X)
    tiles = RowTiles(likelihood.box_points(data), 16, 4) if own_first else None
    states = []
    for finds_near in (True, False):
        model = bind(likelihood, data, len(X))
        assert model.finds_near
        model.finds_near = finds_near
        prior = DirichletProcessPrior(len(X), 4.0)
        states.append(MixtureState(model, prior, labels, tiles=tiles))
        if own_first:
            states[-1].bounds.off = True
    streams = [np.random.PCG64(5) for _ in states]
    kernels = [SAMS(gibbs_sweeps=1).kernel() for _ in states]
    values = states[0].model.hyperparameters()
    n_clusters_seen = set()
    for t in range(12):
        values[n_features] = 0.01 + 0.02 * (t % 3)
        for state, kernel, stream in zip(states, kernels, streams, strict=True):
            state.model.set_hyperparameters(values)
            kernel.run(state, stream)
            if t % 4 == 3:
                state.rebuild()
        np.testing.assert_array_equal(*(state.cluster_labels() for state in states))
        n_clusters_seen.add(states[0].n_clusters)
    assert len(n_clusters_seen) > 1 and max(n_clusters_seen) > 8


def rows_on_lines(rng, n_features):
    """Rows on 15 lines, a line after the other, and labels: the first row of each is alone. Each
    row that joins it brings the next ones nearer to the cluster."""
    line = np.repeat(np.arange(15), 16)
    X, along = rng.normal(size=(2, 15, n_features))
    X = 10.0 * X[line] + along[line] * rng.uniform(-8.0, 8.0, len(line))[:, None]
    labels = np.where(np.arange(len(line)) % 16 == 0, line, 15)
    return X + rng.normal(size=X.shape), labels


def rows_of_no_cluster(rng, n_features):
    """Noise, and labels at random: rows that leave small clusters change these most."""
    return rng.normal(size=(65, n_features)), np.arange(65) % 12


@pytest.mark.parametrize("gaps", [False, True])
@pytest.mark.parametrize(
    ("make", "n_features", "scale"), [(rows_on_lines, 6, 1.0), (rows_of_no_cluster, 20, 0.1)]
)
def test_clusters_are_ruled_out_as_they_are_now(make, n_features, scale, gaps):
    """Draws are those of chains that weigh all clusters, while each row changes small ones."""
    params = {"mean": np.zeros(n_features), "mean_precision": 0.01, "df": n_features + 0.5}
    for seed in range(12):
        X, labels = make(np.random.default_rng(seed), n_features)
        if gaps:
            X[::5, 1] = np.nan
        likelihood = Gaussian(**params, scale=scale * np.eye(n_features)).resolve(X)
        draws = []
        for finds_near in (True, False):
            model = bind(likelihood, likelihood.encode(X), len(X))
            assert model.finds_near
            model.finds_near = finds_near
            state = MixtureState(model, DirichletProcessPrior(len(X), 1.0), labels)
            kernel, stream = Gibbs().kernel(), np.random.PCG64(seed)
            for _ in range(6):
                kernel.run(state, stream)
            draws.append(state.cluster_labels())
        np.testing.assert_array_equal(*draws)


def test_clusters_far_from_a_group_count():
    """A row that is alone between its cluster and another, which is far from all others of its
    group: it leaves in the first sweep."""
    X = np.concatenate([np.linspace(-2, 2, 47), [35.0], np.linspace(58, 62, 200)])[:, None]
    labels = np.repeat([0, 1], [48, 200])
    likelihood = Gaussian(mean=30.0, mean_precision=1e-3, df=200.0, scale=200.0)
    # No new cluster can begin: the row has these two to choose from.
    for off in (False, True):
        state = tiled_state(likelihood, X, labels, FiniteDirichletPrior(len(X), 1.0, 2), 16, 3)
        state.bounds.off = off
        Gibbs().kernel().run(state, np.random.PCG64(0))
        new = state.cluster_labels()
        assert new[47] == new[-1] != new[0]


FIVE_ROWS = {
    "near": np.array([[0.0, 0.0], [0.4, -0.3], [1.5, 1.2], [2.0, 0.9], [0.9, 0.6]]),
    "apart": np.array([[0.0, 0.0], [0.3, 0.1], [9.0, 8.0], [9.5, 8.4], [-40.0, 3.0]]),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        Gibbs(),
        PGSM(n_particles=3, gibbs_sweeps=1),
        SAMS(gibbs_sweeps=1),
        SplitMerge(n_restricted_scans=1, gibbs_sweeps=1),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_invariance_in_tiles(sampler, seed_sequence, record_property):
    """Five rows in tiles of one, two and three: the posterior of every partition, enumerated."""
    runs = {}
    params = {"mean": [0.3, -0.5], "mean_precision": 0.7, "df": 4.5}
    scales = {"gaussian": [[1.2, 0.4], [0.4, 0.8]], "gaussian_diag": [1.2, 0.8]}
    for rows, X in FIVE_ROWS.items():
        for name, scale in scales.items():
            posterior = log_posterior(
                X,
                name,
                "dp",
                likelihood_params={**params, "scale": np.array(scale)},
                prior_params={"concentration": 1.3},
            )
            covariance_type = "diag" if name == "gaussian_diag" else "full"
            likelihood = Gaussian(covariance_type=covariance_type, **{**params, "scale": scale})
            for tile_size in (1, 2, 3):
                prior = make_prior("dp", 5, concentration=1.3)
                start = np.zeros(5, dtype=np.intp)
                runs[f"{name}, {rows}, tiles of {tile_size}"] = invariance_run(
                    tiled_state(likelihood, X, start, prior, tile_size, 2, at_gaps=False),
                    sampler.kernel(),
                    posterior,
                    n_starts=5_000,
                )
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def test_bounds_that_spare_nothing_are_left_out():
    """Where every draw depends on every cluster, groups do without bounds in most visits."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    labels = np.arange(600) % 8
    state = tiled_state(gaussian("full", X), X, labels, DirichletProcessPrior(600, 1.0), 16, 16)
    state.bounds.always = False
    kernel, stream = Gibbs().kernel(), np.random.PCG64(0)
    kernel.run(state, stream)
    before = state.bounds.n_bounded
    kernel.run(state, stream)
    assert state.bounds.n_bounded == before > 0


def test_a_fit_sweeps_in_tiles():
    X, _ = grid(200, 4, 8.0, 2, seed=3)
    for likelihood, in_tiles in (
        (Gaussian(), True),
        (Gaussian(covariance_type="diag"), True),
        ("grid", False),
    ):
        if likelihood == "grid":
            X = np.where(np.arange(200)[:, None] % 7 == 0, np.nan, X)
            likelihood = Gaussian(covariance_type="diag")
        program = DPMixture()._program(X, likelihood, Gibbs())
        chain = program.resume(program.chain(0, 0))
        assert (chain.state.bounds is not None) == in_tiles
