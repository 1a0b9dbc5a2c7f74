"""Grid: numerics, closed forms, and what it says of input that it cannot use."""

import warnings
from functools import partial

import numpy as np
import pytest
from reference.likelihoods import log_marginal_grid
from scipy import stats
from support.kernels import bind
from support.laws import fill, log_marginal
from support.probes import Probe

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Bernoulli, Grid


def binomial(X, grid, depth):
    """Each column a block; log of theta^x (1 - theta)^(depth - x)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        table = X[:, :, None] * np.log(grid) + (depth - X[:, :, None]) * np.log1p(-grid)
    return np.where(np.isnan(table), 0.0, table)


def probe_of(likelihood, X, n_slots=4):
    resolved = likelihood.resolve(X)
    return Probe(bind(resolved, resolved.encode(X), len(X)), n_slots), resolved


def test_a_fine_grid_gives_the_closed_form():
    """A uniform grid of the midpoints is the uniform prior, up to the error of the sum."""
    rng = np.random.default_rng(0)
    X = (rng.random((30, 2)) < [0.3, 0.8]).astype(float)
    grid = (np.arange(2000) + 0.5) / 2000
    probe, _ = probe_of(Grid(partial(binomial, depth=1), grid), X)
    exact, _ = probe_of(Bernoulli(a=1.0, b=1.0), X)
    items = np.arange(20)
    a, b = fill(probe, items), fill(exact, items)
    assert log_marginal(probe, a, items) == pytest.approx(exact.log_marginal(b), rel=1e-6)
    for i in range(20, 30):
        expected = exact.log_predictive(b, i)
        assert probe.log_predictive(a, i) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("depth", [30, 1000, 30_000])
def test_predictives_of_deep_rows_by_the_reference(depth):
    """Also of distant clusters, where the dot product underflows."""
    rng = np.random.default_rng(1)
    grid = np.linspace(0.0, 1.0, 2001)
    X = rng.binomial(depth, np.repeat([0.05, 0.5, 0.95], 4))[:, None].astype(float)
    log_weights = np.cos(7.0 * grid)
    likelihood = Grid(partial(binomial, depth=depth), grid, log_weights)
    probe, resolved = probe_of(likelihood, X)
    slots = np.array([fill(probe, np.arange(3) + first) for first in (0, 4, 8)])
    params = resolved.get_params(deep=False)
    lowest = 0.0
    for i in (3, 7, 11):
        actual = probe.log_predictive_many(slots, i)
        for k, first in enumerate((0, 4, 8)):
            items = np.arange(3) + first
            expected = log_marginal_grid(X[[*items, i]], **params)
            expected -= log_marginal_grid(X[items], **params)
            np.testing.assert_allclose(actual[k], expected, rtol=1e-11, atol=1e-9)
        lowest = min(lowest, actual.min())
    assert (lowest < -700 * 3) == (depth == 30_000)


@pytest.mark.filterwarnings("ignore:the grid of Grid is coarse")
def test_sums_of_small_terms_far_apart():
    """Where the dot product underflows, points matter that are neither the best of the cluster nor
    of the row, and several of them."""
    rng = np.random.default_rng(2)
    levels = np.array([0.0, -4.0, -9.0, -800.0, -1700.0, -2600.0, -np.inf])
    tables = rng.choice(levels, p=[0.05, 0.05, 0.1, 0.2, 0.2, 0.2, 0.2], size=(40, 2, 37))
    tables[:, :, 36] = -3000.0
    likelihood = Grid(lambda X, grid: tables[X[:, 0].astype(int)], np.arange(37.0))
    X = np.arange(40.0)[:, None]
    probe, resolved = probe_of(likelihood, X, 12)
    params = resolved.get_params(deep=False)
    sets = [np.arange(10, 10 + n) for n in range(1, 11)]
    slots = np.array([fill(probe, items) for items in sets])
    for i in range(10):
        actual = probe.log_predictive_many(slots, i)
        for k, items in enumerate(sets):
            expected = log_marginal_grid(X[[*items, i]], **params)
            expected -= log_marginal_grid(X[items], **params)
            np.testing.assert_allclose(actual[k], expected, rtol=1e-12, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the grid of Grid is coarse")
@pytest.mark.parametrize("depth", [-100.0, -1000.0, -1e10])
@pytest.mark.parametrize("best", [0, 9, 23])
def test_a_row_that_hides_where_the_others_are(best, depth):
    """While it is in the cluster, the weight of their best point is 0, or nearly so."""
    table = np.full((2, 24), -500.0)
    table[:, 10] = 0.0, -120.0
    table[:, best] = depth, 0.0
    probe, _ = probe_of(Grid(), table)
    slot = fill(probe, [0, 1])
    whole = probe.model.dump([slot], True)
    probe.remove(slot, 0)
    expected = np.logaddexp(max(depth, -1e9), -120.0)
    assert probe.log_predictive(slot, 0) == pytest.approx(expected, rel=1e-12)
    assert log_marginal(probe, slot, [1]) == pytest.approx(-np.log(24), rel=1e-12)
    probe.add(slot, 0)
    np.testing.assert_allclose(probe.model.dump([slot], True), whole, rtol=1e-12)


def test_points_that_cannot_have_made_a_row_come_and_go():
    """And leave the digits of the others as they were."""
    table = np.random.default_rng(3).normal(size=(4, 1, 3))
    table[0, 0, 0] = table[1, 0, 0] = table[1, 0, 1] = -np.inf
    likelihood = Grid(lambda X, grid: table[X[:, 0].astype(int)], np.arange(3.0))
    X = np.arange(4.0)[:, None]
    probe, resolved = probe_of(likelihood, X)
    params = resolved.get_params(deep=False)
    slot = fill(probe, [2, 3])
    before = probe.log_marginal(slot), probe.log_predictive(slot, 0)
    probe.add(slot, 0)
    probe.add(slot, 1)
    expected = log_marginal_grid(X, **params)
    assert log_marginal(probe, slot, range(4)) == pytest.approx(expected, rel=1e-13)
    np.testing.assert_allclose(
        resolved.cluster_params(probe.model.dump([slot]))["grid_weights"], [[[0.0, 0.0, 1.0]]]
    )
    probe.remove(slot, 0)
    probe.remove(slot, 1)
    after = probe.log_marginal(slot), probe.log_predictive(slot, 0)
    np.testing.assert_allclose(after, before, rtol=1e-13)
    expected = log_marginal_grid(X[[0, 2, 3]], **params) - log_marginal_grid(X[2:], **params)
    assert after[1] == pytest.approx(expected, rel=1e-13)


def test_rows_that_exclude_each_other():
    """A cluster of both has a density that nothing makes up for; a row can leave it."""
    table = np.where(np.eye(2)[np.arange(12) % 2] == 1, -3.0, -1e300)
    probe, _ = probe_of(Grid(), table)
    slot = fill(probe, [0, 1, 3])
    expected = -1e10 - 9.0 - np.log(2)  # one row against two
    assert log_marginal(probe, slot, [0, 1, 3]) == pytest.approx(expected, abs=1e-5)
    # Then two against two, which either point explains as badly.
    expected = -1e10 - 3.0 + np.log(2)
    assert probe.log_predictive(slot, 2) == pytest.approx(expected, abs=1e-5)
    assert probe.log_predictive(slot, 5) == -3.0
    probe.remove(slot, 0)
    assert probe.log_predictive(slot, 5) == -3.0
    assert log_marginal(probe, slot, [1, 3]) == -6.0 - np.log(2)


@pytest.mark.parametrize("sampler", ["auto", "gibbs", "sams", "split_merge", "pgsm", "smc"])
def test_fits_of_rows_that_exclude_each_other(sampler):
    X = np.where(np.eye(2)[np.arange(12) % 2] == 1, 0.0, -1e300)
    model = DPMixture(
        likelihood="grid",
        sampler=sampler,
        concentration=1e-3,
        init="single",
        n_warmup=30,
        n_draws=30,
        n_chains=1,
        random_state=0,
    ).fit(X)
    np.testing.assert_array_equal(model.labels_, np.arange(12) % 2)
    assert model.cluster_params_["means"].ravel().tolist() == [0.0, 1.0]
    # log(1/2) for the one cluster that a row fits into, times its share.
    expected = np.log(6 + 1e-3 / 2) - np.log(12 + 1e-3)
    np.testing.assert_allclose(model.score_samples(X[:2]), expected, rtol=1e-9)


def test_a_coarse_grid_is_told():
    rng = np.random.default_rng(0)
    X = rng.binomial(100_000, 0.505, size=(50, 1)).astype(float)
    likelihood = Grid(partial(binomial, depth=100_000), np.linspace(0.0, 1.0, 101))
    with pytest.warns(UserWarning, match="coarse for these data: .* of its 101 points"):
        likelihood.resolve(X).encode(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        likelihood.resolve(X).encode_new(X)
        likelihood.set_params(grid=np.linspace(0.0, 1.0, 1001)).resolve(X).encode(X)
        # Few points are meant as they are.
        likelihood.set_params(grid=np.linspace(0.0, 1.0, 5)).resolve(X).encode(X)


def test_parameters_of_two_numbers():
    def normal(X, grid):
        return stats.norm.logpdf(X, grid[:, 0], grid[:, 1])

    X = np.random.default_rng(0).normal(1.0, 0.5, size=(200, 1))
    locations, scales = np.meshgrid(np.linspace(0.5, 1.5, 51), np.linspace(0.1, 1, 46))
    grid = np.column_stack([locations.ravel(), scales.ravel()])
    probe, resolved = probe_of(Grid(normal, grid), X)
    params = resolved.cluster_params(probe.model.dump([fill(probe, np.arange(200))]))
    assert params["means"].shape == params["stds"].shape == (1, 1, 2)
    np.testing.assert_allclose(params["means"][0, 0], [X.mean(), X.std()], atol=0.02)
    np.testing.assert_allclose(params["stds"][0, 0], [0.5 / 200**0.5, 0.5 / 400**0.5], rtol=0.3)


X = np.arange(8.0).reshape(4, 2)


@pytest.mark.parametrize(
    ("log_likelihood", "message"),
    [
        (lambda X, grid: np.zeros((4, 2)), r"must return .*\(1, 3\) or \(1, n_blocks, 3\)"),
        (lambda X, grid: np.zeros(3), r"of shape \(3,\)"),
        (lambda X, grid: [["a"] * 3] * len(X), "must return numbers"),
        (lambda X, grid: X[:, :1] - X.mean() + 0 * grid, "rows one by one"),
        (lambda X, grid: np.where(X[:, :1] == 4, np.nan, 0 * grid), "row 2 in block 0 at point 0"),
        (lambda X, grid: np.where(X[:, :1] == 4, np.inf, 0 * grid), "point 0 is inf"),
        (lambda X, grid: np.where(X[:, :1] == 4, -np.inf, 0 * grid), r"row 2 of X \(block 0\)"),
        (lambda X, grid: 1e7 + 0 * grid + 0 * X[:, :1], "subtract a constant"),
    ],
)
def test_functions_that_cannot_be_used(log_likelihood, message):
    with pytest.raises(ValueError, match=message):
        DPMixture(likelihood=Grid(log_likelihood, [0.0, 1.0, 2.0])).fit(X)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"log_likelihood": np.subtract}, r"Grid\.grid must be given"),
        ({"grid": [0.0, 1.0, 2.0]}, "multiple of 3 columns.*X has 2"),
        ({"grid": [0.0, 1.0], "log_weights": [0.0] * 3}, "3 points, but Grid.grid has 2"),
        ({"log_weights": [[0.0, 1.0]] * 2}, "2 blocks, but the log likelihoods have 1"),
    ],
)
def test_parameters_that_do_not_agree(params, message):
    with pytest.raises(ValueError, match=message):
        DPMixture(likelihood=Grid(**params)).fit(X)


@pytest.mark.long
def test_samples_have_the_parameter_of_each_block():
    def normal(X, grid):
        return -0.5 * (X[:, :, None] - grid) ** 2

    X = np.random.default_rng(0).normal([[-3.0, 4.0]] * 60)
    likelihood = Grid(normal, np.linspace(-5.0, 5.0, 201), sample=lambda theta, rng: theta)
    model = DPMixture(likelihood=likelihood, concentration=1e-3, n_draws=20, random_state=0)
    theta, _ = model.fit(X).sample(400)
    assert model.n_clusters_ == 1
    np.testing.assert_allclose(theta.mean(axis=0), X.mean(axis=0), atol=0.05)
    np.testing.assert_allclose(theta.std(axis=0), 60**-0.5, rtol=0.2)


def test_a_sample_of_another_shape():
    model = DPMixture(likelihood=Grid(sample=lambda theta, rng: np.zeros(3)), n_draws=2).fit(X)
    with pytest.raises(ValueError, match=r"a row of 2 numbers; .* shape \(3,\)"):
        model.sample()
    assert not hasattr(DPMixture(likelihood=Grid()).fit(X), "sample")
