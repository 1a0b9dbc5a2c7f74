"""Upper bounds of densities over boxes of rows, on which passing over clusters rests: against the
densities of rows in the boxes, and, where a bound is the largest density, for being no higher."""

import itertools

import numpy as np
import pytest
from support.designs import combinations
from support.kernels import bind
from support.probes import Probe, log_predictive_bounds

from skdpm.mixture.likelihoods import Gaussian, Poisson
from skdpm.mixture.state._tiles import RowTiles

SIZES = (0, 1, 1, 2, 3, 5, 40)  # of clusters
N_OLD = sum(SIZES)


def fill(likelihood, X):
    """A kernel of rows with clusters of the first of them, in the slots 0, 1, ..."""
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), len(SIZES))
    items = iter(range(N_OLD))
    for size in SIZES:
        slot = probe.acquire()
        for i in itertools.islice(items, size):
            probe.add(slot, i)
    return probe.model


def assert_bounds(bounds, log_densities):
    """bounds: (n_slots,); log_densities: (n_slots, n_rows)."""
    assert np.isfinite(log_densities).all()
    above = log_densities - bounds[:, None]
    assert (above <= 0.0).all(), f"a bound is too low, by {above.max():g}"


def random_rows(rng, n_features, n_rows):
    """Clusters of unlike forms: most of them far apart, some of several items nearly in a line."""
    labels = np.append(np.repeat(np.arange(len(SIZES)), SIZES), rng.integers(0, 9, n_rows - N_OLD))
    centres = rng.normal(size=(9, n_features)) * 10.0 ** rng.integers(-1, 4, size=(9, 1))
    forms = rng.normal(size=(9, n_features, n_features)) * 10.0 ** rng.uniform(
        -3.0, 1.0, size=(9, 1, n_features)
    )
    noise = rng.normal(size=(n_rows, 1, n_features))
    return centres[labels] + (noise @ forms[labels])[:, 0]


# Hyperparameters: scale and offset of the data, then of the prior relative to these.
UNITS = [(1.0, 0.0, 1.0), (1.0, 0.0, 1e-12), (1.0, 0.0, 1e12), (1e-12, 0.0, 1.0)]
UNITS += [(1e12, 0.0, 1.0), (1.0, 1e8, 1.0), (1e-3, 1e8, 1e-6)]


@combinations(
    unit=UNITS, n_features=[1, 2, 3, 6], covariance_type=["full", "diag", "tied", "spherical"]
)
def test_gaussian(covariance_type, n_features, unit, seed_sequence):
    spread, offset, share = unit
    rng = np.random.default_rng(seed_sequence)
    X = random_rows(rng, n_features, N_OLD + 200)
    X[-20:] *= 1e5
    X[-3:] *= 1e40
    X[-1] = X[0]
    scale = share * spread**2 * 10.0 ** rng.uniform(-1.0, 1.0, size=n_features)
    likelihood = Gaussian(
        mean=offset + spread * rng.normal(size=n_features),
        mean_precision=10.0 ** rng.uniform(-6.0, 3.0),
        df=n_features - 0.9 + 10.0 ** rng.uniform(-2.0, 3.0),
        scale=scale[0] if covariance_type == "spherical" else scale,
        covariance_type=covariance_type,
    ).resolve(offset + spread * X)
    X = offset + spread * X
    model = fill(likelihood, X)
    points = np.ascontiguousarray(likelihood.box_points(likelihood.encode(X))[N_OLD:])
    slots = np.arange(len(SIZES))
    log_densities = model.log_predictive_rows(slots, N_OLD, len(X))
    for size in (1, 2, 3, 32):
        tiles = RowTiles(points, size)
        bounds = log_predictive_bounds(model, slots, tiles.boxes)
        order = np.asarray(tiles.order)
        for t, bound in enumerate(bounds):
            assert_bounds(bound, log_densities[:, order[t * size : (t + 1) * size]])
        if size == 1:
            np.testing.assert_allclose(bounds.T, log_densities[:, order], rtol=1e-6, atol=1e-6)
    # Points anywhere in boxes of many sizes, and their corners.
    corners = np.array(list(itertools.product([-1.0, 1.0], repeat=n_features)))
    for centre in points[:15]:
        half = spread * 10.0 ** rng.uniform(-3.0, 3.0, size=n_features)
        inside = np.concatenate([corners, rng.uniform(-1.0, 1.0, size=(30, n_features))])
        near = Probe(
            bind(likelihood, {"X": centre + half * inside, "missing": False}, len(X)), 0
        ).model
        near.load(model.dump(slots))
        (bound,) = log_predictive_bounds(
            near, slots, np.stack([centre, half * (1.0 + 1e-12) + 1e-15 * abs(centre)])[None]
        )
        assert_bounds(bound, near.log_predictive_rows(slots, 0, len(inside)))


def test_gaussian_diag_is_no_higher_than_the_highest_density():
    """That of the point of the box which is nearest to the centre, column by column."""
    rng = np.random.default_rng(0)
    X = random_rows(rng, 2, N_OLD)
    likelihood = Gaussian(covariance_type="diag").resolve(X)
    model = fill(likelihood, X)
    slots = np.arange(len(SIZES))
    sizes = np.array(SIZES)[:, None]
    r = likelihood.mean_precision
    means = np.array(
        [X[sum(SIZES[:k]) : sum(SIZES[: k + 1])].sum(axis=0) for k in range(len(SIZES))]
    )
    means = (means + r * likelihood.mean) / (r + sizes)
    for _ in range(20):
        centre, half = X[rng.integers(len(X))], 10.0 ** rng.uniform(-2.0, 2.0, size=2)
        nearest = np.clip(means, centre - half, centre + half)
        near = bind(likelihood, likelihood.encode_new(nearest), len(X))
        near.load(model.dump(slots))
        point = likelihood.encode_new(centre[None])["X"][0]
        (bound,) = log_predictive_bounds(near, slots, np.stack([point, half])[None])
        highest = np.diag(near.log_predictive_rows(slots, 0, len(slots)))
        np.testing.assert_allclose(bound, highest, rtol=1e-6, atol=1e-6)


def test_missing_entries():
    """Clusters may have some where the rows in question have none."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N_OLD + 10, 2))
    X[:N_OLD:3, 0] = np.nan
    likelihood = Gaussian(covariance_type="diag").resolve(X)
    assert likelihood.box_points(likelihood.encode(X)) is None
    slots = np.arange(len(SIZES))
    data = likelihood.encode_new(X[N_OLD:])
    model = bind(likelihood, data, None)
    model.load(fill(likelihood, X).dump(slots))
    (bound,) = log_predictive_bounds(model, slots, RowTiles(likelihood.box_points(data)).boxes)
    assert_bounds(bound, model.log_predictive_rows(slots, 0, len(X) - N_OLD))


# Counts.

PRIORS = [(1.0, 1.0), (0.3, 1e-3), (1e-12, 1e-12), (1e12, 1e12), (1e-3, 1e6), (50.0, 1e-12)]


@pytest.mark.parametrize("prior", PRIORS)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.some(3)
def test_poisson_by_all_counts_of_boxes(prior, missing, seed_sequence):
    """The bound is the largest density of all rows of counts in the box."""
    rng = np.random.default_rng(seed_sequence)
    shape, rate = prior
    n_features = 2
    means = 10.0 ** rng.uniform(-1.0, 2.0, size=(N_OLD, n_features))
    X = rng.poisson(np.sort(means, axis=0)).astype(float)
    X[: N_OLD // 2] = np.minimum(X[: N_OLD // 2], 3.0)
    if missing:
        X[::3, 0] = np.nan
    likelihood = Poisson(shape=shape, rate=rate).resolve(X)
    stats = fill(likelihood, X).dump(np.arange(len(SIZES)))
    slots = np.arange(len(SIZES))
    for _ in range(25):
        low = rng.integers(0, [3, 100])[rng.permutation(2)]
        width = rng.integers(0, 8, size=2) * rng.integers(0, 2, size=2)
        counts = [np.arange(a, a + w + 1.0) for a, w in zip(low, width, strict=True)]
        rows = np.array(list(itertools.product(*counts)))
        data = likelihood.encode_new(rows)
        model = bind(likelihood, data, None)
        model.load(stats)
        tiles = RowTiles(likelihood.box_points(data), len(rows))
        (bound,) = log_predictive_bounds(model, slots, tiles.boxes)
        log_densities = model.log_predictive_rows(slots, 0, len(rows))
        assert_bounds(bound, log_densities)
        highest = log_densities.max(axis=1)
        largest = shape + np.nanmax(stats[:, 3:5], axis=1) + rows.max()
        slack = 1e-6 * np.abs(highest) + 1e-6 + 1e-11 * largest * np.log(largest + 2.0)
        assert (bound <= highest + slack).all()


@pytest.mark.parametrize("unit", [1e2, 1e5, 1e9, 1e13])
def test_poisson_of_large_counts(unit, seed_sequence):
    """Beyond the tables as well."""
    rng = np.random.default_rng(seed_sequence)
    X = np.floor(rng.gamma(0.5, unit, size=(N_OLD + 200, 3)))
    X[::7, 1] = 0.0
    likelihood = Poisson(shape=2.0, rate=1e-3).resolve(X)
    model = fill(likelihood, X)
    points = likelihood.box_points(likelihood.encode(X))[N_OLD:]
    slots = np.arange(len(SIZES))
    log_densities = model.log_predictive_rows(slots, N_OLD, len(X))
    for size in (1, 2, 3, 32):
        tiles = RowTiles(points, size)
        order = np.asarray(tiles.order)
        for t, bound in enumerate(log_predictive_bounds(model, slots, tiles.boxes)):
            assert_bounds(bound, log_densities[:, order[t * size : (t + 1) * size]])


def test_rows_without_points():
    X = np.ones((5, 13))
    X[0] = 3.0
    for likelihood in (Gaussian(), Gaussian(covariance_type="diag"), Poisson()):
        for rows, has_points in ((X, False), (X[:, :12], True)):
            rows = np.ascontiguousarray(rows) + np.arange(5.0)[:, None]
            resolved = likelihood.resolve(rows)
            points = resolved.box_points(resolved.encode(rows))
            assert (points is not None) == has_points
    counts = np.array([[1.0, np.nan], [2.0, 0.0]])
    resolved = Poisson().resolve(counts)
    assert resolved.box_points(resolved.encode(counts)) is None
