"""The latent feature relational model: its laws, the draws of its weights, and its estimator."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from reference.features import classes_of_buffet, left_ordered, log_lfrm
from scipy.special import expit
from scipy.stats import chi2, gamma, kstest, norm
from sklearn.metrics import homogeneity_score
from support.designs import everyday
from support.exactness import record_worst
from support.features import (
    CONCENTRATION,
    given_params_run,
    lfrm_case,
    make_prior,
)
from support.probes import FeatureProbe, draw_polya_gamma
from support.pvalues import assert_p, assert_p_matrix, chi_squared_p

from skdpm import FeatureAllocation
from skdpm.allocations import allocation_distances
from skdpm.datasets import make_lfrm
from skdpm.features.likelihoods import LFRM
from skdpm.features.samplers import (
    SAMPLERS,
    DiscreteParticleFilter,
    ElementGibbs,
    RowGibbs,
)
from skdpm.features.state._state import FeatureState

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# Polya-Gamma variates.


def polya_gamma_cdf(z):
    """The distribution function of PG(1, z), by its series and the trapezoid rule."""
    x = np.linspace(1e-3, 3.0, 60_001)
    n = np.arange(60)[:, None]
    terms = (-1.0) ** n * (2 * n + 1) * np.exp(-((2 * n + 1) ** 2) / (8 * x))
    density = terms.sum(axis=0) / np.sqrt(2 * np.pi * x**3)
    density *= np.cosh(z / 2) * np.exp(-0.5 * z**2 * x)
    total = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(x))])
    assert total[-1] == pytest.approx(1.0, abs=1e-6)
    return lambda at: np.interp(at, x, total)


def polya_gamma_run(z, wrong=None, n=20_000):
    """Planted: draws for another z."""

    def run(seed, factor):
        at = np.full(round(n * factor), float(z if wrong is None else wrong))
        return kstest(draw_polya_gamma(at, np.random.PCG64(seed)), polya_gamma_cdf(z)).pvalue

    return run


@pytest.mark.slow
def test_polya_gamma(seed_sequence):
    # The inverse Gaussian variate is drawn in another way from z = 3.125 on.
    runs = {f"z = {z}": polya_gamma_run(z) for z in (0.0, 1.0, 3.0, -3.3, 8.0, 16.0)}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_power_polya_gamma(seed_sequence):
    assert polya_gamma_run(1.0, wrong=1.6)(seed_sequence, 1) < 1e-6


def test_means_of_polya_gamma(seed_sequence):
    """In every interval of the table that most draws are decided by, and at its ends."""
    z = np.concatenate([[1e-3], np.arange(161) / 4 + 0.2])
    mean = np.tanh(z / 2) / (2 * z)

    def run(seed, factor):
        n = round(4_000 * factor)
        x = draw_polya_gamma(np.repeat(z, n), np.random.PCG64(seed)).reshape(len(z), n)
        gaps = (x.mean(axis=1) - mean) / (x.std(axis=1) / np.sqrt(n))
        return min(1.0, 2 * len(z) * norm.sf(np.abs(gaps).max()))

    assert_p(run, seed_sequence=seed_sequence)


def test_moments_of_polya_gamma(seed_sequence):
    """Also where the density is a spike, and the hyperbolic functions overflow."""

    def moments_run(z):
        mean = np.tanh(z / 2) / (2 * z)
        # (sinh z - z) / (4 z^3 cosh^2(z / 2)), with sinh z = 2 sinh(z / 2) cosh(z / 2)
        small = 0.0 if z > 100 else z / np.cosh(z / 2) ** 2
        variance = (2 * np.tanh(z / 2) - small) / (4 * z**3)

        def run(seed, factor):
            n = round(20_000 * factor)
            x = draw_polya_gamma(np.full(n, z), np.random.PCG64(seed))
            squares = (x - mean) ** 2
            p_values = (
                2 * norm.sf(abs(x.mean() - mean) / np.sqrt(variance / n)),
                2 * norm.sf(abs(squares.mean() - variance) / (squares.std() / np.sqrt(n))),
            )
            return min(1.0, 2 * min(p_values))

        return run

    runs = {f"z = {z}": moments_run(z) for z in (0.5, 2.0, 20.0, 39.0, 41.0, 900.0, 1e6)}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def test_polya_gamma_without_a_law():
    z = np.array([np.nan, np.inf, -np.inf, 1e101])
    assert np.isnan(draw_polya_gamma(z, np.random.PCG64(0))).all()


# Densities.


def symmetric(A):
    return np.triu(A) + np.triu(A, 1).T


def random_problem(n, n_latent, directed, seed=0):
    """X with unobserved pairs and a diagonal that is none of them, Z and W."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, n)) < 0.5).astype(float)
    X[rng.random((n, n)) < 0.2] = np.nan
    np.fill_diagonal(X, rng.integers(2, size=n))
    Z = (rng.random((n, n_latent)) < 0.5).astype(np.uint8)
    W = rng.normal(size=(n_latent, n_latent))
    return (X, Z, W) if directed else (symmetric(X), Z, symmetric(W))


def make_model(X, W, *, directed, bias=0.4, weight_precision=0.7, free=False, **params):
    """`free`: bias and precision are drawn by `update_params`, from these values on."""
    values = {"bias": bias, "weight_precision": weight_precision}
    likelihood = LFRM(directed, **params, **({} if free else values)).resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    model.load({"weights": W, **values})
    return model


@pytest.mark.parametrize("directed", [False, True])
def test_densities(directed):
    X, Z, W = random_problem(7, 3, directed)
    probe = FeatureProbe(make_model(X, W, directed=directed))
    expected = log_lfrm(X, Z, W, 0.4, directed)
    assert probe.log_likelihood(Z) == pytest.approx(expected, rel=1e-13)
    free = W.ravel() if directed else W[np.triu_indices(3)]
    assert probe.log_prior() == pytest.approx(norm.logpdf(free, 0, 0.7**-0.5).sum())
    # A row's own law: all pairs of the row, those of links that come in too.
    for i in range(7):
        probe.begin_row(i, Z[i])
        without = X.copy()
        without[i] = without[:, i] = np.nan
        rest = log_lfrm(without, Z, W, 0.4, directed)
        assert probe.log_row() == pytest.approx(expected - rest, rel=1e-12)


def test_log_odds_that_are_enormous():
    """No exponential overflows: a link has log probability 0, its absence that of the odds. Pairs
    are taken one by one, and eight at a time."""
    for n, n_pairs in ((2, 1), (20, 190)):
        X = np.ones((n, n))
        for weight, expected in ((800.0, 0.0), (-800.0, -800.0), (-1e6, -1e6)):
            probe = FeatureProbe(make_model(X, [[weight]], directed=False, bias=0.0))
            total = probe.log_likelihood(np.ones((n, 1)))
            assert total == pytest.approx(n_pairs * expected, abs=1e-12)
            probe.begin_row(0, np.zeros(1))
            change = probe.log_flip_many([0], 0, True)[0]
            assert change == pytest.approx((n - 1) * (expected - np.log(0.5)), rel=1e-12)


def test_features_come_and_go_with_rows_and_columns():
    rng = np.random.default_rng(0)
    for directed in (False, True):
        X, _, W = random_problem(3, 4, directed)
        model = make_model(X, W, directed=directed)
        probe = FeatureProbe(model)
        probe.remove_feature(0)
        left = [3, 1, 2]
        np.testing.assert_array_equal(model.save()["weights"], W[np.ix_(left, left)])
        probe.reserve(9)
        for _ in range(6):
            probe.add_feature(np.random.PCG64(rng.integers(99)))
        after = model.save()["weights"]
        np.testing.assert_array_equal(after[:3, :3], W[np.ix_(left, left)])
        assert len(np.unique(after)) == (81 if directed else 45)
        assert directed or (after == after.T).all()


# Rows.


def test_given_weights(seed_sequence, record_property):
    """Links without a direction; the others are among the likelihoods of `test_enumeration`."""
    runs = {
        f"{name} missing={missing}": given_params_run(
            cls().kernel(), 2, case=lfrm_case(False), missing=missing, n_starts=6_000
        )
        for name, cls in SAMPLERS.items()
        for missing in (False, True)
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        {"spoil": lambda model, Z: model.see(Z)},  # rows see the others as before the sweep
        {"wrong": {"weights": lfrm_case(True).params(2)["weights"].T}},  # directions exchanged
    ],
    ids=["stale", "transposed"],
)
def test_power_given_weights(error, seed_sequence):
    run = given_params_run(RowGibbs().kernel(), 2, case=lfrm_case(True), n_starts=6_000, **error)
    cells = run(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# Weights, bias and precision, and features that come and go: the joint distribution.

PRIOR = {"bias_precision": 1.5, "weight_precision_prior": (4.0, 3.0)}


def joint_run(
    directed, *, n_latent=2, updates=True, blocks=0.5, sweeps=True, n_starts=1_500, wrong=None
):
    """A run for `assert_p`: (Z, W, bias, precision, X) from the prior, then three times an update
    of the parameters, a sweep over the rows, and X given all. Whatever of it is then compared has
    the prior's law: the precision, the bias, and the weights' distance from zero; and, with the
    buffet (`n_latent` None), the class of Z. `blocks`: share of updates by blocks, where others
    draw all weights together. Planted (`wrong`): other priors in the chain."""
    n, n_bins, concentration = 4 if n_latent else 3, 3, CONCENTRATION if n_latent else 0.8
    hole = (0, 2)
    chain = {**PRIOR, **(wrong or {})}

    def draw_X(Z, W, bias, rng):
        X = (rng.random((n, n)) < expit(bias + Z @ W @ Z.T)).astype(float)
        X[hole] = np.nan
        return X if directed else symmetric(X)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        kernel = ElementGibbs().kernel()
        prior = make_prior(n, n_latent, concentration)
        u = np.empty((round(n_starts * factor), 4))
        found = []
        for s in range(len(u)):
            Z = prior.draw(rng)
            shape, rate = PRIOR["weight_precision_prior"]
            precision = rng.gamma(shape) / rate
            bias = rng.normal() / np.sqrt(PRIOR["bias_precision"])
            W = rng.normal(size=(Z.shape[1],) * 2) / np.sqrt(precision)
            W = W if directed else symmetric(W)
            for _ in range(3):
                X = draw_X(Z, W, bias, rng)
                model = make_model(
                    X,
                    W,
                    directed=directed,
                    bias=bias,
                    weight_precision=precision,
                    free=True,
                    **chain,
                )
                model.share_of_blocks = blocks
                state = FeatureState(model, prior, Z)
                if updates:
                    state.update_params(bit_generator)
                if sweeps:
                    kernel.run(state, bit_generator)
                Z, saved = state.allocations(), model.save()
                W, bias, precision = (saved[k] for k in ("weights", "bias", "weight_precision"))
            free = W.ravel() if directed else W[np.triu_indices(len(W))]
            links = draw_X(Z, W, bias, rng)
            u[s] = (
                gamma.cdf(precision * rate, shape),
                norm.cdf(bias * np.sqrt(PRIOR["bias_precision"])),
                chi2.cdf(precision * (free**2).sum(), free.size) if free.size else rng.random(),
                norm.cdf(np.sqrt(precision) * free.sum() / np.sqrt(free.size))
                if free.size
                else rng.random(),
            )
            found.append((left_ordered(Z), links))
        p_values = [
            chi_squared_p(np.bincount(np.minimum(8 * v, 7).astype(int), minlength=8), [1 / 8] * 8)
            for v in u.T
        ]
        if n_latent is None:
            classes, law = classes_of_buffet(n, 4, concentration)
            index = {c: j for j, c in enumerate(classes)}
            # With the weights' distance: weights among new features belong to it.
            cells = np.zeros((len(classes) + 1, n_bins), dtype=int)
            for (c, _), v in zip(found, u[:, 2], strict=True):
                cells[index.get(c, len(classes)), min(int(n_bins * v), n_bins - 1)] += 1
            law = np.append(law, 1 - law.sum())
            p_values.append(chi_squared_p(cells, np.outer(law, [1 / n_bins] * n_bins)))
        return min(1.0, len(p_values) * min(p_values))

    return run


JOINT = {
    f"directed={directed} n_latent={n_latent} updates={updates} blocks={blocks}": {
        "directed": directed,
        "n_latent": n_latent,
        "updates": updates,
        "blocks": blocks,
    }
    for directed in (False, True)
    for n_latent, updates, blocks in (
        (2, True, 1.0),
        (2, True, 0.0),
        (None, True, 0.5),
        (None, False, 0.5),
    )
}


@pytest.mark.slow
def test_joint_distribution(seed_sequence, record_property):
    runs = {name: joint_run(**how) for name, how in JOINT.items()}
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [0.0, 1.0])
@pytest.mark.parametrize(
    "wrong", [{"bias_precision": 0.7}, {"weight_precision_prior": (4.0, 5.0)}]
)
def test_power_joint_distribution(wrong, blocks, seed_sequence):
    assert joint_run(False, blocks=blocks, wrong=wrong)(seed_sequence, 1) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [0.0, 1.0])
@pytest.mark.parametrize("directed", everyday([False, True], True))
def test_weights_have_their_posterior(directed, blocks, seed_sequence):
    """Given Z, of two features that all rows have, and the bias: only the sum of the weights is
    part of the likelihood. Its posterior is had by quadrature, and the rest is as a priori. All
    links are present, so that it is skew: a Gaussian at the mode would not do."""
    X = np.ones((3, 3))
    tau, often = 0.05, np.array([1.0, 1.0, 1.0, 1.0] if directed else [1.0, 2.0, 1.0])
    square = often @ often
    grid = np.linspace(-20, 60, 20_001)
    terms = (6 if directed else 3) * np.log(expit(grid + 0.4))
    density = np.exp(terms - 0.5 * tau * grid**2 / square)
    cdf = np.cumsum(density) / density.sum()
    prior = make_prior(3, 2)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        total, rest = np.empty((2, round(3_000 * factor)))
        for s in range(len(total)):
            w = rng.normal(size=len(often)) / np.sqrt(tau)
            w += often * (np.interp(rng.random(), cdf, grid) - often @ w) / square
            W = w.reshape(2, 2) if directed else w[[[0, 1], [1, 2]]]
            model = make_model(X, W, directed=directed, weight_precision=tau)
            model.share_of_blocks = blocks
            FeatureState(model, prior, np.ones((3, 2))).update_params(bit_generator)
            w = model.save()["weights"].ravel()[[0, 1, 2, 3] if directed else [0, 1, 3]]
            total[s] = often @ w
            rest[s] = tau * (w @ w - total[s] ** 2 / square)
        p_values = (
            kstest(total, lambda at: np.interp(at, grid, cdf)).pvalue,
            kstest(rest, chi2(len(often) - 1).cdf).pvalue,
        )
        return min(1.0, 2 * min(p_values))

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("blocks", [0.0, 1.0])
@pytest.mark.parametrize("directed", [False, True])
def test_bias_has_its_posterior(directed, blocks, seed_sequence):
    """Without features, by quadrature. With blocks, two steps draw it, the second of which nearly
    makes up for an error of the first: many starts."""
    X = np.ones((3, 3))
    grid = np.linspace(-15, 30, 20_001)
    terms = (6 if directed else 3) * np.log(expit(grid))
    density = np.exp(terms - 0.025 * grid**2)
    cdf = np.cumsum(density) / density.sum()
    prior = make_prior(3, None)
    model = make_model(X, np.zeros((0, 0)), directed=directed, free=True, bias_precision=0.05)
    model.share_of_blocks = blocks
    saved = model.save()
    state = FeatureState(model, prior, np.zeros((3, 0)))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        drawn = np.interp(
            np.random.Generator(bit_generator).random(round(40_000 * factor)), cdf, grid
        )
        for s, bias in enumerate(drawn):
            model.load({**saved, "bias": bias})
            state.update_params(bit_generator)
            drawn[s] = model.save()["bias"]
        return kstest(drawn, lambda at: np.interp(at, grid, cdf)).pvalue

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("directed", [False, True])
def test_weights_without_pairs_are_drawn_from_the_prior(directed, seed_sequence):
    """By blocks, those of a feature that no row has."""
    X, Z, W = random_problem(5, 2, directed)
    Z[:, 1] = 0

    def run(seed, factor):
        model, bit_generator = make_model(X, W, directed=directed), np.random.PCG64(seed)
        model.share_of_blocks = 1.0
        state = FeatureState(model, make_prior(5, 2), Z)
        drawn = np.empty(round(2_000 * factor))
        for s in range(len(drawn)):
            state.update_params(bit_generator)
            drawn[s] = model.save()["weights"][0, 1]
        return kstest(np.sqrt(0.7) * drawn, norm.cdf).pvalue

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("directed", [False, True])
def test_mode_of_weights(directed, free):
    """Where the density, written by the reference, has no slope, from far away too, given the
    bias, whether that is drawn or not; of an unused feature, 0."""
    X, Z, W = random_problem(9, 3, directed)
    Z[:, 1] = 0
    for far in (1.0, 30.0):
        model = make_model(X, far * W, directed=directed, free=free)
        FeatureState(model, make_prior(9, 3), Z).mean_params()
        mode = model.save()["weights"]

        def log_density(W):
            free = W.ravel() if directed else W[np.triu_indices(3)]
            return log_lfrm(X, Z, W, 0.4, directed) - 0.35 * (free**2).sum()

        top = log_density(mode)
        for k, l in np.ndindex(3, 3):
            for by in (-1e-4, 1e-4):
                other = mode.copy()
                other[k, l] += by
                if not directed:
                    other[l, k] = other[k, l]
                assert log_density(other) < top
        np.testing.assert_allclose(mode[1], 0.0, atol=1e-12)
        assert directed or (mode == mode.T).all()


# Where chains start.


@pytest.mark.parametrize("directed", [False, True])
def test_start_finds_blocks_and_active_nodes(directed):
    """Four blocks of twelve nodes with links among them, or from each to the next, and a fifth of
    nodes that have none."""
    rng = np.random.default_rng(0)
    of = np.repeat(np.arange(5), 12)
    near = of == (of[:, None] + directed) % 4
    X = np.where(near & (of < 4)[:, None], rng.random((60, 60)) < 0.8, rng.random((60, 60)) < 0.01)
    X = X.astype(float) if directed else symmetric(X.astype(float))
    X[rng.random((60, 60)) < 0.1] = np.nan
    X = X if directed else symmetric(X)
    likelihood = LFRM(directed=directed).resolve(X)
    data = likelihood.encode(X)
    Z = likelihood.initial_allocations(data, 60, np.random.default_rng(1))
    *blocks, less, more = Z.T
    np.testing.assert_array_equal(np.sum(blocks, axis=0), 1)
    linked = of < 4
    assert homogeneity_score(of[linked], np.argmax(blocks, axis=0)[linked]) > 0.75  # at random 0.3
    assert less.mean() == pytest.approx(0.7, abs=0.05)
    assert more.mean() == pytest.approx(0.3, abs=0.05)
    assert not (more & ~less).any()
    assert (less[of == 4]).sum() == 0
    other = likelihood.initial_allocations(data, 60, np.random.default_rng(2))
    assert other.shape != Z.shape or (other != Z).any()
    assert likelihood.initial_allocations(data, 5, np.random.default_rng(1)).shape[1] <= 5
    assert likelihood.initial_allocations(data, 3, np.random.default_rng(1)) is None


def test_start_where_there_is_nothing_to_find():
    for X in (np.zeros((20, 20)), np.ones((20, 20)), np.full((20, 20), np.nan), np.eye(20)[::-1]):
        for directed in (False, True):
            likelihood = LFRM(directed=directed).resolve(X)
            Z = likelihood.initial_allocations(likelihood.encode(X), 20, np.random.default_rng(0))
            assert Z.any(axis=0).all()
            assert 0 < Z.shape[1] <= 5
    likelihood = LFRM().resolve(np.zeros((4, 4)))
    data = likelihood.encode(np.zeros((4, 4)))
    assert likelihood.initial_allocations(data, 4, np.random.default_rng(0)) is None


# In an estimator.


def network(n=40, directed=False, seed=0):
    """Links of two features that overlap."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n, 2)) < 0.5
    W = np.array([[6.0, -3.0], [1.0 if directed else -3.0, 5.0]])
    X = (rng.random((n, n)) < expit(-2.0 + Z @ W @ Z.T)).astype(float)
    return (X if directed else symmetric(X)), Z, W


def fit(X, likelihood=None, **params):
    params = {
        "n_components": 3,
        "n_warmup": 60,
        "n_draws": 20,
        "n_chains": 2,
        "sampler": "element_gibbs",
        **params,
    }
    return FeatureAllocation(likelihood=likelihood or LFRM(), random_state=0, **params).fit(X)


class CountedRuns:
    """A kernel that counts its runs."""

    def __init__(self, kernel):
        self.kernel, self.n_runs = kernel, 0

    def run(self, *given):
        self.n_runs += 1
        self.kernel.run(*given)


@pytest.mark.slow
def test_few_weights_allow_more_sweeps():
    """Decided in warm-up alone, and continued chains know it."""
    rng = np.random.default_rng(0)
    X, prior = symmetric((rng.random((30, 30)) < 0.3).astype(float)), make_prior(30, 12)
    bit_generator = np.random.PCG64(0)
    updates = ((4, True, 10), (12, False, 10), (12, True, 1), (4, False, 1))
    for n_latent, adapting, n_sweeps in updates:
        if adapting:
            adaptation = {"n_sweeps": 1 if n_sweeps > 1 else 10}
        model = make_model(X, np.zeros((n_latent, n_latent)), directed=False)
        model.set_adaptation(adaptation)
        Z = rng.random((30, n_latent)) < 0.4
        FeatureState(model, prior, Z).update_params(bit_generator, adapting)
        assert model.n_sweeps == n_sweeps
        adaptation = model.get_adaptation()
    program = FeatureAllocation(likelihood="lfrm", n_warmup=9)._program(X, LFRM(), ElementGibbs())
    live = program.resume(program.chain(0, 0))
    live.kernel = CountedRuns(live.kernel)
    for iteration in range(10):
        n_sweeps, n_before = live.model.n_sweeps, live.kernel.n_runs
        live.step(iteration)
        assert live.kernel.n_runs - n_before == n_sweeps
    assert live.kernel.n_runs > 10
    parts = fit(X, n_components=None, n_draws=5, warm_start=True)
    parts.set_params(n_draws=20).fit(X)
    whole = fit(X, n_components=None)
    np.testing.assert_array_equal(parts.draws_["log_joint"], whole.draws_["log_joint"])


@pytest.mark.slow
def test_held_out_links_are_found():
    X, Z, W = network()
    held = np.triu(np.random.default_rng(1).random(X.shape) < 0.2, 1)
    shown = np.where(held | held.T, np.nan, X)
    model = fit(shown)
    fitted = model.fitted_values()
    expected = np.zeros(X.shape)
    for c in range(2):
        for s in range(20):
            Zs, Ws = model.allocation_samples_[c][s], model.weight_samples_[c][s]
            assert Ws.shape == (Zs.shape[1],) * 2
            expected += expit(model.hyperparameter_samples_["bias"][c, s] + Zs @ Ws @ Zs.T) / 40
    np.testing.assert_allclose(fitted, expected, rtol=1e-10)
    truth = expit(-2.0 + Z @ W @ Z.T)
    assert np.abs(fitted - truth)[held].mean() < 0.12
    assert model.weights_.shape == (model.n_components_,) * 2
    # Reordered features keep their weights.
    estimate = model.inverse_transform(model.allocations_)
    assert np.abs(estimate - truth)[held].mean() < 0.15


@pytest.mark.slow
@pytest.mark.parametrize("seed, fewest", [(0, 0), (1, 2)])
def test_the_estimate_weighs_all_draws(seed, fewest):
    """Draws of the first network share little, and some have no features. Such a draw has the
    largest p(Z) p(X given Z and the weights), because weights are not integrated out."""
    X, _, _ = make_lfrm(60, 4, random_state=seed)
    model = fit(X, n_components=None, n_warmup=50, n_draws=50)
    draws = [Z for chain in model.allocation_samples_ for Z in chain]
    found = allocation_distances(draws, model.allocations_).mean()
    # The search reads all draws, but starts from some.
    smallest = min(allocation_distances(draws, Z).mean() for Z in draws)
    assert found < 1.01 * smallest
    assert model.n_components_ >= fewest


def test_features_are_selected_on_both_sides():
    """As draws keep those in use, and the estimate puts them in order."""
    W = np.arange(9.0).reshape(3, 3)
    chosen = LFRM(directed=True).select({"weights": W, "bias": 0.0}, np.array([2, 0]))
    assert list(chosen) == ["weights"]
    np.testing.assert_array_equal(chosen["weights"], [[8.0, 6.0], [2.0, 0.0]])


@pytest.mark.slow
def test_sparse_and_dense_are_one():
    X, _, _ = network(12, directed=True)
    X[3, 4] = np.nan
    dense, sparse = (fit(A, LFRM(directed=True)) for A in (X, sp.csr_matrix(X)))
    np.testing.assert_array_equal(dense.log_joint_samples_, sparse.log_joint_samples_)
    np.testing.assert_array_equal(
        dense.score_samples(X[:3]), sparse.score_samples(sp.csr_matrix(X[:3]))
    )
    np.testing.assert_array_equal(dense.fitted_values(), sparse.fitted_values())


@pytest.mark.parametrize("directed", [False, True])
def test_new_nodes_are_scored_by_enumeration(directed):
    X, _, _ = network(10, directed=directed)
    model = fit(
        X, LFRM(directed=directed), n_draws=3, n_chains=1, n_components=2, concentration=1.0
    )
    new = X[:3].copy()
    new[1, 4:] = np.nan
    densities = []
    for Z, W, bias in zip(
        model.allocation_samples_[0],
        model.weight_samples_[0],
        model.hyperparameter_samples_["bias"][0],
        strict=True,
    ):
        K = Z.shape[1]
        z = (np.arange(2**K)[:, None] >> np.arange(K)) & 1
        rho = (Z.sum(axis=0) + 0.5) / 11.5
        prior = np.where(z, rho, 1 - rho).prod(axis=1) * (11 / 11.5) ** (2 - K)
        p = expit(bias + z @ W @ Z.T)
        terms = np.where(new[:, None] == 1, p, 1 - p)
        terms = np.where(np.isnan(new[:, None]), 1.0, terms)  # (3, 2**K, 10)
        densities.append(terms.prod(axis=2) @ prior)
    np.testing.assert_allclose(
        model.score_samples(new), np.log(np.mean(densities, axis=0)), rtol=1e-9
    )
    assert not model.exact_
    assert model.transform(new).shape == (3, model.n_components_)


@pytest.mark.parametrize(
    "likelihood, X, message",
    [
        (LFRM(), np.zeros((4, 3)), r"LFRM needs a square adjacency matrix; X has shape \(4, 3\)"),
        (LFRM(), np.diag(np.ones(3), 1), r"symmetric X, but the entries \(0, 1\) and \(1, 0\)"),
        (LFRM(), np.full((3, 3), 2.0), "0, 1 or NaN .unobserved.; column 0 of X holds 2"),
        (LFRM(directed="no"), np.zeros((3, 3)), "LFRM.directed"),
        (LFRM(bias="much"), np.zeros((3, 3)), "LFRM.bias must be a number"),
        (LFRM(bias_precision=0.0), np.zeros((3, 3)), "LFRM.bias_precision must be"),
        (LFRM(weight_precision=-1.0), np.zeros((3, 3)), "LFRM.weight_precision must be"),
        (LFRM(weight_precision_prior=(1.0, 0.0)), np.zeros((3, 3)), "weight_precision_prior"),
    ],
)
def test_bad_input(likelihood, X, message):
    with pytest.raises(ValueError, match=message):
        fit(X, likelihood)


def test_one_sided_holes_are_no_symmetry():
    X = np.zeros((3, 3))
    X[0, 1] = np.nan
    with pytest.raises(ValueError, match=r"entries \(0, 1\) and \(1, 0\) differ"):
        fit(X)


def test_new_nodes_are_checked():
    model = fit(network(8)[0], n_warmup=1, n_draws=2)
    with pytest.raises(ValueError, match="column 0 of X holds 3"):
        model.transform(np.full((2, 8), 3.0))
    with pytest.raises(ValueError, match="8 features"):
        model.transform(np.zeros((2, 5)))


def test_defaults():
    """A network is started from its blocks and sampled entry by entry."""
    X, _, _ = network(12)
    model = FeatureAllocation(
        likelihood="lfrm", n_warmup=0, n_draws=1, n_chains=2, random_state=0
    ).fit(X)
    assert type(model.sampler_) is ElementGibbs
    other = FeatureAllocation(likelihood="linear_gaussian", n_warmup=0, n_draws=1, n_chains=1).fit(
        X
    )
    assert type(other.sampler_) is DiscreteParticleFilter
    program = model._program(X, LFRM(), ElementGibbs())
    start = program.resume(program.chain(0, 0)).state.allocations()
    blocks = start[:, start.sum(axis=0).argsort()]
    assert any(
        (left + right == 1).all() for left in blocks.T for right in blocks.T
    )  # two blocks; by the prior, hardly


def test_the_likelihood_by_name_and_no_features():
    """K = 0 is a state like any other."""
    X = np.zeros((6, 6))
    model = fit(X, "lfrm", n_components=None, concentration=0.1, n_warmup=20, n_draws=10)
    assert (model.n_components_samples_ == 0).any()
    assert np.isfinite(model.log_joint_samples_).all()
    assert np.isfinite(model.score_samples(X)).all()
    with pytest.warns(UserWarning, match="no feature was found: .* fitted_values averages"):
        fit(X, n_components=None, concentration=1e-6, init="empty", n_warmup=1, n_draws=2)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.long
def test_imputed_networks_are_symmetric_if_undirected(directed):
    links, _, _ = make_lfrm(20, 2, bias=-1.0, directed=directed, random_state=0)
    X = links.astype(float)
    for i, j in ((0, 1), (2, 7), (3, 15)):
        X[i, j] = X[j, i] = np.nan
    model = FeatureAllocation(
        likelihood=LFRM(directed=directed), n_warmup=20, n_draws=20, n_chains=1, random_state=0
    )
    for form in (X, sp.csr_array(X)):
        model.fit(form)
        filled = model.impute(X)
        np.testing.assert_array_equal(filled, model.impute(sp.csr_array(X)).toarray())
        assert np.array_equal(filled, filled.T) != directed
        np.testing.assert_array_equal(filled[np.isnan(X)], model.fitted_values()[np.isnan(X)])
        np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])
    rows = model.impute(X[:3])  # of new nodes
    assert not np.isnan(rows).any()
    np.testing.assert_array_equal(rows, model.impute(sp.csr_array(X[:3])).toarray())
    frame = pd.DataFrame(X[:3], index=list("abc"))
    assert model.impute(frame).equals(pd.DataFrame(rows, index=frame.index))
    table = model.set_output(transform="pandas").impute(sp.csr_array(X[:3]))
    np.testing.assert_array_equal(table, rows)
    with pytest.raises(ValueError, match="X has as many rows as that network, but other entries"):
        model.impute(np.where(X > 0, np.nan, X))
