"""Kernels refuse arrays of other shapes than they read: they have no checks of bounds."""

import numpy as np
import pytest

from skdpm import _partitions
from skdpm.mixture.answers._components import most_probable, valleys
from skdpm.mixture.blocks._launch import draw_sides, launch_sides
from skdpm.mixture.blocks.records import Launch, LaunchedSplit
from skdpm.mixture.chains._start import merged_stats
from skdpm.mixture.likelihoods import Categorical, Gaussian
from skdpm.mixture.likelihoods.counts._categorical import ParametricCategorical
from skdpm.mixture.likelihoods.counts._negative_binomial import level_terms
from skdpm.mixture.likelihoods.directions._von_mises_fisher import draw_directions
from skdpm.mixture.likelihoods.elliptical._full import ParametricGaussian
from skdpm.mixture.likelihoods.elliptical._tied import whitened

rng = np.random.default_rng(0)
X = rng.normal(size=(6, 2))
BITS = np.random.PCG64(0)


def ints(*shape):
    return np.zeros(shape, np.int32)


def places(*shape):
    return np.zeros(shape, np.intp)


# A function, arguments of shapes that agree, and the number and value of one that does not.
CALLS = {
    "whitened": (whitened, [X, np.eye(2)], {1: [np.eye(1), np.eye(3), np.ones((2, 3))]}),
    "draw_directions": (draw_directions, [np.eye(3), np.ones(3), BITS], {1: [np.ones(2)]}),
    "level_terms": (
        level_terms,
        [np.ones(3), np.ones(3), places(3), np.ones(2)],
        {1: [np.ones(2)], 2: [places(2)]},
    ),
    "add_row_keys": (
        _partitions.add_row_keys,
        [ints(2, 3), 0, 1, np.zeros(3, np.uint64)],
        {3: [np.zeros(2, np.uint64)]},
    ),
    "joint_sums": (
        _partitions.joint_sums,
        [ints(2, 3), ints(3), np.array([0, 3]), 1, np.ones(4), np.zeros(2)],
        {1: [ints(2)], 5: [np.zeros(1)]},
    ),
    "add_company": (
        _partitions.add_company,
        [ints(2, 3), ints(3), np.array([0, 3]), 1, np.zeros(3, np.int64)],
        {1: [ints(2)], 4: [np.zeros(2, np.int64)]},
    ),
    "add_agreements": (_partitions.add_agreements, [ints(3, 2), ints(3, 3)], {1: [ints(3, 2)]}),
    "expand_agreements": (
        _partitions.expand_agreements,
        [ints(2, 2), places(3), 1, np.zeros((3, 3))],
        {0: [ints(2, 1)], 3: [np.zeros((3, 2))]},
    ),
    "valleys": (
        valleys,
        [
            X,
            np.array([0, 3, 6]),
            places(2),
            np.ones((2, 2)),
            np.ones((2, 2, 2)),
            1,
            3.0,
            2.0,
            np.zeros((1, 2)),
            np.zeros((1, 2)),
            np.zeros((1, 2), np.uint8),
        ],
        {
            3: [np.ones((2, 1)), np.ones((3, 2))],
            4: [np.ones((2, 2, 1))],
            8: [np.ones((2, 2)), np.ones((1, 3))],
            9: [np.ones((1, 1))],
            10: [np.zeros((2, 2), np.uint8)],
        },
    ),
    "most_probable": (
        most_probable,
        [X, np.ones((3, 2)), np.ones((3, 2, 2)), np.ones(3), places(6)],
        {1: [np.ones((3, 1))], 2: [np.ones((2, 2, 2))], 3: [np.ones(2)], 4: [places(5)]},
    ),
    "ParametricGaussian": (
        ParametricGaussian,
        [X, np.zeros(2), np.eye(2), 1.0, 3.0],
        {1: [np.zeros(1)], 2: [np.eye(1)]},
    ),
    "ParametricCategorical": (
        ParametricCategorical,
        [ints(4, 2), np.array([0, 2, 5], np.int32), np.ones(5)],
        {1: [np.array([0, 2], np.int32)], 2: [np.ones(4)]},
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_functions(name):
    function, arguments, others = CALLS[name]
    function(*arguments)
    for place, values in others.items():
        for value in values:
            wrong = [*arguments[:place], value, *arguments[place + 1 :]]
            with pytest.raises(ValueError, match="shape"):
                function(*wrong)


@pytest.mark.parametrize("tails", [None, "t"])
@pytest.mark.parametrize("covariance_type", ["full", "diag", "spherical", "tied"])
def test_gaussian_kernels(covariance_type, tails):
    """Rows of two columns under parameters of three, and the other way round."""
    gaussian = Gaussian(covariance_type=covariance_type, tails=tails)
    wide = np.hstack([X, X[:, :1] ** 2])
    for one, other in ((X, wide), (wide, X)):
        likelihood = gaussian.resolve(one)
        data = gaussian.resolve(other).encode(other)
        tables = gaussian.resolve(other).tables(data, None)
        with pytest.raises(ValueError, match=r"shape|values of"):
            likelihood.bind(data, tables)


def test_categorical_kernels():
    codes = rng.integers(0, 3, size=(6, 3)).astype(np.float64)
    narrow, wide = (Categorical(0.5, n_categories=3).resolve(codes[:, :d]) for d in (2, 3))
    data = narrow.encode(codes[:, :2])
    tables = wide.tables(wide.encode(codes), None)
    with pytest.raises(ValueError, match="shape"):
        narrow.bind(data, tables)


def test_kernels_of_clusters_and_blocks():
    likelihood = Gaussian().resolve(X)
    data = likelihood.encode(X)
    model = likelihood.bind(data, likelihood.tables(data, None))
    stats = np.zeros((2, model.n_stats))
    assert merged_stats(model, stats, np.array([0, 0])).shape == (1, model.n_stats)
    with pytest.raises(ValueError, match="clusters has the shape"):
        merged_stats(model, stats, np.array([0, 0, 1]))
    block = likelihood.parametric(X)
    params, weights = np.zeros((2, block.n_params)), np.zeros(2)
    for wrong in ({"codes": ints(5)}, {"params": params[:1]}, {"log_weights": weights[:1]}):
        given = {"codes": ints(6), "params": params, "log_weights": weights, **wrong}
        launch = Launch(((0,),), given["params"], given["log_weights"])
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} has the shape"):
            launch_sides(block, given["codes"], launch, [BITS])
        split = LaunchedSplit(0, 1, given["params"], given["log_weights"], (), 0)
        with pytest.raises(ValueError, match=f"{next(iter(wrong))} has the shape"):
            draw_sides(block, given["codes"], split, BITS)
