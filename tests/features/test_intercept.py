"""The intercept of `LinearGaussian`, what exchanges features for it, and laws that keep the data's
scale."""

import numpy as np
import pytest
from reference.features import (
    log_beta_bernoulli,
    log_indian_buffet,
    log_linear_gaussian,
    log_linear_gaussian_marginal,
    matrix_posterior,
)
from scipy.stats import gamma, norm, poisson
from support.designs import combinations, everyday
from support.exactness import record_worst
from support.features import COMPONENT, CONCENTRATION, NOISE, load, make_model, make_prior
from support.probes import FeatureProbe
from support.pvalues import Cells, assert_p_matrix, chi_squared_p

from skdpm import FeatureAllocation
from skdpm.allocations import allocation_distances, point_estimate
from skdpm.features.likelihoods import LinearGaussian
from skdpm.features.likelihoods._linear_gaussian import LinearGaussianModel
from skdpm.features.samplers import (
    SAMPLERS,
    DiscreteParticleFilter,
    ElementGibbs,
    RowGibbs,
)
from skdpm.features.samplers._columns import ColumnKernel
from skdpm.features.state._state import FeatureState

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_warmup": 20, "n_draws": 10, "n_chains": 2, "random_state": 0}
INTERCEPT = np.array([0.6, -0.4]), 0.9  # its prior's mean and precision
X3 = np.array([[1.7, -1.1], [1.4, 0.4], [0.9, -0.6]])


def make_data(n_samples=60, seed=0, offset=0.0):
    """X with missing entries, rows of three parts, and Z."""
    rng = np.random.default_rng(seed)
    V = 2 * rng.normal(size=(3, 6))
    Z = rng.random((n_samples, 3)) < 0.35
    X = Z @ V + 0.3 * rng.normal(size=(n_samples, 6))
    return np.where(rng.random(X.shape) < 0.1, np.nan, X) + offset, Z


def with_holes(X):
    X = X.copy()
    X[1, 0] = np.nan
    return X


# Densities.


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("n_latent", [0, 1, 3])
@pytest.mark.parametrize("intercept", [None, INTERCEPT])
def test_log_marginal_is_that_of_a_gaussian_vector(intercept, n_latent, missing):
    X = with_holes(X3) if missing else X3
    Z = np.array([[1, 0, 1], [1, 1, 0], [1, 0, 0]], dtype=np.uint8)[:, :n_latent]
    model, prior = make_model(X, intercept=intercept), make_prior(3, None)
    load(model, np.zeros((n_latent, 2)))
    state = FeatureState(model, prior, Z)
    expected = log_linear_gaussian_marginal(X, Z, NOISE, COMPONENT, intercept)
    expected += log_indian_buffet(Z, CONCENTRATION)
    assert state.compute_log_marginal() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("missing", [False, True])
def test_means_are_those_of_the_joint_normal(missing):
    X = with_holes(X3) if missing else X3
    Z = np.array([[1, 0], [1, 1], [0, 0]], dtype=np.uint8)
    model = make_model(X, intercept=INTERCEPT)
    load(model, np.zeros((2, 2)))
    FeatureState(model, make_prior(3, None), Z).mean_params()
    saved = model.save()
    design = np.column_stack([Z, np.ones(3)])
    for j in range(2):
        seen = ~np.isnan(X[:, j])
        A = np.diag([COMPONENT, COMPONENT, INTERCEPT[1]]) + NOISE * design[seen].T @ design[seen]
        mean = np.linalg.solve(A, NOISE * design[seen].T @ (X[seen, j] - INTERCEPT[0][j]))
        np.testing.assert_allclose(saved["components"][:, j], mean[:2], rtol=1e-12)
        assert saved["intercept"][j] == pytest.approx(mean[2] + INTERCEPT[0][j], rel=1e-12)


def test_log_joint_has_the_intercept():
    X, _ = make_data(offset=5.0)
    model = FeatureAllocation(n_components=2, **FAST).fit(X)
    likelihood = model.likelihood_
    assert model.intercept_samples_.shape == (2, 10, 6)
    assert model.draws_["intercept"] is model.intercept_samples_
    deviation = likelihood.intercept_precision_**-0.5
    checked = 0
    for s in range(10):
        Z, V = model.allocation_samples_[0][s], model.component_samples_[0][s]
        if Z.shape[1] < 2:
            continue  # features without rows are not public
        checked += 1
        b, precisions = model.intercept_samples_[0, s], model.hyperparameter_samples_
        tau_x = precisions["noise_precision"][0, s]
        expected = (
            log_beta_bernoulli(Z.astype(int), model.concentration_samples_[0, s])
            + log_linear_gaussian(X, Z, V, tau_x, b)
            + norm.logpdf(V, 0, precisions["component_precision"][0, s] ** -0.5).sum()
            + norm.logpdf(b, np.nanmean(X, axis=0), deviation).sum()
        )
        assert model.log_joint_samples_[0, s] == pytest.approx(expected, rel=1e-10)
    assert checked > 3


@pytest.mark.parametrize("intercept", [True, False])
def test_exchanges_leave_the_rows_as_they_are(intercept):
    """And change the density of the parameters as they say."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(5, 4))
    m = rng.normal(size=4)
    model = make_model(X, intercept=(m, 0.7) if intercept else None)
    assert model.has_intercept == intercept
    if not intercept:
        return
    V, b = rng.normal(size=(3, 4)), rng.normal(size=4)
    Z = (rng.random((5, 3)) < 0.5).astype(np.uint8)
    Z[:, 2] = 1
    load(model, V, b=b)
    probe = FeatureProbe(model)
    before, prior = probe.log_likelihood(Z), probe.log_prior()
    change = probe.log_complement(1)
    probe.complement(1)
    Z[:, 1] = 1 - Z[:, 1]
    assert probe.log_likelihood(Z) == pytest.approx(before, rel=1e-12)
    assert probe.log_prior() - prior == pytest.approx(change, rel=1e-10)
    assert probe.log_complement(1) == pytest.approx(-change, rel=1e-10)
    # b + v ~ N(m, 1/tau_b + 1/tau_v) with feature 2, and N(m, 1/tau_b) without.
    tau_b = 0.7
    b = model.save()["intercept"]
    with_it = norm.logpdf(b + V[2], m, np.sqrt(1 / tau_b + 1 / COMPONENT)).sum()
    without = norm.logpdf(b + V[2], m, np.sqrt(1 / tau_b)).sum()
    assert probe.log_common(2) == pytest.approx(with_it - without, rel=1e-10)
    probe.absorb(2)
    probe.remove_feature(2)
    assert probe.log_likelihood(Z[:, :2]) == pytest.approx(before, rel=1e-12)
    assert probe.log_common(-1) == pytest.approx(with_it - without, rel=1e-10)
    probe.reserve(3)
    probe.add_feature()
    probe.split_off(2)
    assert probe.log_likelihood(Z) == pytest.approx(before, rel=1e-12)
    saved = model.save()
    assert saved["components"][2] != pytest.approx(V[2], rel=1e-3)
    np.testing.assert_allclose(saved["components"][2] + saved["intercept"], b + V[2], rtol=1e-12)


# Chains.


def enumeration_run(kernel, *, missing=False, n_starts=5_000, wrong=None):
    """A run for `assert_p`: Z starts from its law given X, under the finite prior, components and
    intercept integrated out, and keeps it. Planted errors: `wrong` has another concentration,
    precision or prior of the intercept in the chain."""
    X, wrong = with_holes(X3) if missing else X3, dict(wrong or {})

    def log_weight(Z):
        return log_beta_bernoulli(Z, CONCENTRATION) + log_linear_gaussian_marginal(
            X, Z, NOISE, COMPONENT, INTERCEPT
        )

    law = matrix_posterior(3, 2, log_weight)
    prior = make_prior(3, 2, wrong.pop("concentration", CONCENTRATION))
    model = make_model(X, intercept=wrong.pop("intercept", INTERCEPT))
    columns = ColumnKernel(1, relaunches=False)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        starts = law.draw(round(n_starts * factor), np.random.Generator(bit_generator))
        ends = np.empty_like(starts)
        for s, Z in enumerate(starts):
            load(model, np.zeros((2, 2)), **wrong)
            state = FeatureState(model, prior, Z)
            for _ in range(2):
                state.update_params(bit_generator)
                columns.run(state, bit_generator)
                if kernel is not None:
                    kernel.run(state, bit_generator)
            ends[s] = state.allocations()
        return Cells(law.count(ends), law.probabilities, law.matrices.tolist())

    return run


def check(runs, seed_sequence, record_property):
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.long
def test_enumeration(seed_sequence, record_property):
    runs = {
        f"{kernel} missing={missing}": enumeration_run(kernel, missing=missing)
        for kernel, missing in (
            (None, False),
            (RowGibbs().kernel(), False),
            (ElementGibbs().kernel(), True),
            (DiscreteParticleFilter(3).kernel(), True),
        )
    }
    check(runs, seed_sequence, record_property)


def assert_seen(run, seed_sequence):
    """The run has an error planted in its chain, and no second look is needed to see it."""
    cells = run(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.parametrize(
    "wrong",
    [
        {"concentration": 2.6},
        {"intercept": (INTERCEPT[0], 3.0)},
        {"intercept": (-INTERCEPT[0], 0.9)},
        {"component_precision": 2.0},
    ],
)
@pytest.mark.slow
def test_power_enumeration(wrong, seed_sequence):
    assert_seen(enumeration_run(RowGibbs().kernel(), wrong=wrong), seed_sequence)


def joint_run(
    kernel, *, tau_b=0.25, missing=False, updates=True, hyper=False, n_starts=3_000, wrong=None
):
    """A run for `assert_p`: (Z, V, b, X) from the prior, Z from the Indian buffet process, then
    alternately a step of the chain and X given Z, V and b. The numbers of features that both rows
    have, and that one has, keep their Poisson laws, and so do the first entries of b and of the
    sum of V, jointly. Without `updates`, V and b change by moves of columns and of a row's
    singletons only. With a small `tau_b` features that both rows have come and go easily, with a
    large one b is smaller where they are. With `hyper`, both precisions are drawn too, and keep
    their Gamma laws. `wrong` plants another concentration, precision or prior."""
    n, d, concentration = 2, 2, 3.0
    m, wrong = INTERCEPT[0], dict(wrong or {})
    mean = wrong.pop("mean", m)
    chain_concentration = wrong.pop("concentration", concentration)
    params = {
        "noise_precision": None if hyper else NOISE,
        "noise_precision_prior": (3.0, 1.5),
        "component_precision": None if hyper else COMPONENT,
        "component_precision_prior": (2.0, 2.0),
        "intercept_precision": tau_b,
        **wrong,
    }
    # Features of both rows, of one row: below 5 each, or more; b; the sum of V.
    laws = [np.append(poisson.pmf(np.arange(5), rate), poisson.sf(4, rate)) for rate in (1.5, 3.0)]
    joint = np.multiply.outer(np.outer(*laws), np.full((4, 2), 1 / 8))
    # Not by `make_model`, which takes a millisecond.
    observed = ~np.isnan(with_holes(np.zeros((n, d)))) if missing else np.ones((n, d), dtype=bool)
    data = {
        "observed": observed.astype(np.uint8) if missing else None,
        "missing_rows": np.array([1] if missing else [], dtype=np.intp),
        "missing_starts": np.array([0, 1, 1] if missing else [0, 0, 0], dtype=np.intp),
        "mean": mean,
    }
    columns = ColumnKernel(1, relaunches=False)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        counts = np.zeros(joint.shape, dtype=np.int64)
        hyper_counts = np.zeros((4, 4, 2), dtype=np.int64)
        for _ in range(round(n_starts * factor)):
            tau_x = rng.gamma(3.0) / 1.5 if hyper else NOISE
            tau_v = rng.gamma(2.0) / 2.0 if hyper else COMPONENT
            Z = make_prior(n, None, concentration).draw(rng)
            prior = make_prior(n, None, chain_concentration)
            V = rng.normal(size=(Z.shape[1], d)) / np.sqrt(tau_v)
            b = m + rng.normal(size=d) / np.sqrt(tau_b)
            for _ in range(3):
                X = b + Z @ V + rng.normal(size=(n, d)) / np.sqrt(tau_x)
                X = np.where(observed, X - mean, 0.0)
                model = LinearGaussianModel({**data, "X": X}, **params)
                load(model, V, tau_x, tau_v, b)
                state = FeatureState(model, prior, Z)
                if kernel is not None:
                    kernel.run(state, bit_generator)
                columns.run(state, bit_generator)
                if updates:
                    state.update_params(bit_generator)
                Z, saved = state.allocations(), model.save()
                V, b = saved["components"], saved["intercept"]
                if hyper:
                    tau_x, tau_v = saved["noise_precision"], saved["component_precision"]
            u = norm.cdf(b[0], m[0], tau_b**-0.5)
            if hyper:
                at = [gamma.cdf(1.5 * tau_x, 3.0), gamma.cdf(2.0 * tau_v, 2.0), u]
                hyper_counts[tuple((np.array([4, 4, 2]) * at).astype(int))] += 1
                continue
            total = V[:, 0].sum() if len(V) else rng.normal()
            n_full = Z.all(axis=0).sum()
            n_other = Z.shape[1] - n_full
            counts[min(n_full, 5), min(n_other, 5), min(int(4 * u), 3), int(total > 0)] += 1
        if hyper:
            return Cells(hyper_counts, np.full(32, 1 / 32))
        return Cells(counts, joint)

    return run


@pytest.mark.slow
def test_joint(seed_sequence, record_property):
    runs = {
        f"{kernel} {how}": joint_run(kernel, **how)
        for kernel, how in (
            (None, {"updates": False}),
            (None, {"updates": False, "tau_b": 4.0}),
            (RowGibbs().kernel(), {"updates": False, "missing": True}),
            (ElementGibbs().kernel(), {"missing": True}),
            (ElementGibbs().kernel(), {"hyper": True}),
        )
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.parametrize(
    "how, wrong",
    [
        ({"updates": False}, {"concentration": 4.5}),
        ({"updates": False}, {"intercept_precision": 0.8}),
        ({"missing": True}, {"mean": INTERCEPT[0] + 2.0}),
        ({"hyper": True}, {"component_precision_prior": (3.0, 2.0)}),
    ],
)
@pytest.mark.slow
def test_power_joint(how, wrong, seed_sequence):
    assert_seen(joint_run(ElementGibbs().kernel(), wrong=wrong, **how), seed_sequence)


@pytest.mark.parametrize("n_latent", [2, None])
def test_no_moves(n_latent):
    model, prior = make_model(X3, intercept=INTERCEPT), make_prior(3, n_latent)
    V, Z = np.array([[1.0, 0.5], [-0.4, 0.8]]), np.array([[1, 1], [1, 0], [1, 0]])
    load(model, V)
    state, bit_generator = FeatureState(model, prior, Z), np.random.PCG64(0)
    for kernel, moves in ((ColumnKernel(0), False), (ColumnKernel(1), True)):
        for _ in range(30):
            kernel.run(state, bit_generator)
        same = np.array_equal(state.allocations(), Z)
        assert same != moves
        assert np.array_equal(model.save()["components"], V) != moves


def test_a_move_without_a_probability_raises():
    model = make_model(X3, intercept=INTERCEPT)
    load(model, np.full((1, 2), np.nan))
    state = FeatureState(model, make_prior(3, 1), np.eye(3, 1))
    with pytest.raises(FloatingPointError, match="a move of a whole column of Z has no probab"):
        ColumnKernel(1).run(state, np.random.PCG64(0))


@pytest.mark.parametrize("name", SAMPLERS)
def test_column_moves_are_a_parameter_of_every_sampler(name):
    cls = SAMPLERS[name]
    assert cls(column_moves=3).column_kernel().n_moves == 3
    X, _ = make_data(8)
    with pytest.raises(ValueError, match=f"{cls.__name__}.column_moves must be at least 0"):
        FeatureAllocation(sampler=cls(column_moves=-1), **FAST).fit(X)


# What users see.


@pytest.mark.slow
@combinations(n_components=[None, 4], intercept=[True, False])
def test_units_do_not_matter(intercept, n_components):
    """Nor does what is added to columns, where there is an intercept."""
    X, _ = make_data()
    X[3] = np.nan

    def fit(X):
        likelihood = LinearGaussian(intercept=intercept)
        return FeatureAllocation(likelihood=likelihood, n_components=n_components, **FAST).fit(X)

    first = fit(X)
    changed = [(c, 0.0) for c in (2.0**-20, 2.0**20, 3.7, 1e-6)]
    if intercept:
        changed += [(1.0, np.arange(6) - 2.5), (1.0, 1e3), (1e3, 40.0)]
    for c, offset in changed:
        other = fit(c * X + offset)
        for chain in range(2):
            for s in range(10):
                np.testing.assert_array_equal(
                    first.allocation_samples_[chain][s], other.allocation_samples_[chain][s]
                )
        np.testing.assert_array_equal(first.allocations_, other.allocations_)
        size = c * np.abs(first.components_).max()
        np.testing.assert_allclose(other.components_, c * first.components_, atol=1e-8 * size)
        np.testing.assert_allclose(
            other.intercept_samples_, c * first.intercept_samples_ + offset, atol=1e-8 * size
        )
        np.testing.assert_allclose(
            other.impute(c * X + offset), c * first.impute(X) + offset, atol=1e-6 * size
        )


def test_default_priors_are_concrete_after_a_fit():
    X, _ = make_data(offset=3.0)
    scales = {True: np.nanvar(X, axis=0).mean(), False: np.nanmean(X**2, axis=0).mean()}
    for intercept, scale in scales.items():
        given = LinearGaussian(intercept=intercept, noise_precision_prior=(2.0, 3.0))
        resolved = given.resolve(X)
        assert given.component_precision_prior is None
        assert resolved.noise_precision_prior == (2.0, 3.0)
        assert resolved.component_precision_prior == pytest.approx((1.0, scale))
    for X in (np.full((4, 2), 7.0), np.array([[3.0, np.nan]]), np.full((3, 1), np.nan)):
        assert LinearGaussian().resolve(X).noise_precision_prior == (1.0, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("offset", everyday([0.0, 30.0], 30.0))
def test_parts_are_found_with_an_offset_or_without(offset):
    X, Z = make_data(offset=offset)
    model = FeatureAllocation(n_chains=2, n_warmup=150, n_draws=50, random_state=1).fit(X)
    assert model.n_components_ == 3
    np.testing.assert_array_equal(np.sort(model.allocations_.sum(axis=0)), np.sort(Z.sum(axis=0)))
    np.testing.assert_allclose(model.intercept_, offset, atol=0.4)
    expected = model.inverse_transform(model.allocations_)
    np.testing.assert_allclose(
        expected, model.intercept_ + model.allocations_ @ model.components_, rtol=1e-12
    )
    assert np.sqrt(np.nanmean((expected - X) ** 2)) < 0.35


def test_the_estimate_has_the_complements_of_larger_log_marginal():
    X, Z = make_data()
    likelihood = LinearGaussian().resolve(X)
    for n_latent in (3, None):
        model, prior = likelihood.bind(likelihood.encode(X)), make_prior(60, n_latent, 1.0)
        start = Z.copy()
        start[:, 1] = ~start[:, 1]
        model.load({**model.save(), "components": np.ones((3, 6))})
        state = FeatureState(model, prior, start)
        before = state.compute_log_marginal()
        state.choose_complements()
        # Of which features that nearly half of the rows have are told is another test.
        clear = np.abs(Z.sum(axis=0) - 30) > 8
        assert clear[1]
        np.testing.assert_array_equal(state.allocations()[:, clear], Z[:, clear])
        assert state.compute_log_marginal() > before


@pytest.mark.slow
def test_draws_that_differ_by_complements_have_one_estimate():
    """Half of the rows have each feature, so draws often exchange one for its complement."""
    rng = np.random.default_rng(1)
    Z = rng.random((60, 3)) < 0.5
    X = Z @ (3.0 * np.eye(3, 4)) + 0.9 * rng.normal(size=(60, 4))
    model = FeatureAllocation(n_warmup=50, n_draws=50, n_chains=2, random_state=0).fit(X)
    draws = model.allocation_samples_

    def mean_distance(Z):
        return allocation_distances(draws, Z, complements=True).mean()

    found = mean_distance(model.allocations_)
    assert found <= min(mean_distance(Z) for chain in draws for Z in chain)
    assert found < 0.6 * mean_distance(point_estimate(draws))
    assert allocation_distances([Z], model.allocations_, complements=True)[0] < 30


@pytest.mark.parametrize("n_with, adds", [(30, True), (33, True), (12, False)])
def test_of_equals_the_estimate_has_what_adds_to_rows(n_with, adds):
    """Under the buffet the odds of a feature of 33 of 60 rows and its complement are 27 to 33; 12
    are better than 48, even if the component is negative. With one feature they are even."""
    rng = np.random.default_rng(0)
    Z = (np.arange(60) < n_with)[:, None]
    sign = 1.0 if adds else -1.0
    X = 4.0 * sign * Z + 0.1 * rng.normal(size=(60, 5))
    likelihood = LinearGaussian().resolve(X)
    for n_latent in (1, None) if adds else (None,):
        for start in (Z, ~Z):
            model, prior = likelihood.bind(likelihood.encode(X)), make_prior(60, n_latent, 1.0)
            model.load({**model.save(), "components": np.ones((1, 5))})
            state = FeatureState(model, prior, start)
            state.choose_complements()
            np.testing.assert_array_equal(state.allocations(), Z)
            state.mean_params()
            assert (model.save()["components"].sum() > 0.0) == adds


def test_an_intercept_is_continued_to_the_bit():
    X, _ = make_data(offset=1e5 / 3)
    whole = FeatureAllocation(**FAST).fit(X)
    parts = FeatureAllocation(**{**FAST, "n_draws": 4}, warm_start=True).fit(X)
    parts.set_params(n_draws=10).fit(X)
    np.testing.assert_array_equal(whole.intercept_samples_, parts.intercept_samples_)
    np.testing.assert_array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
    np.testing.assert_array_equal(whole.intercept_, parts.intercept_)


def test_without_an_intercept_it_is_zero():
    X, _ = make_data()
    model = FeatureAllocation(likelihood=LinearGaussian(intercept=False), **FAST).fit(X)
    assert not model.intercept_samples_.any() and not model.intercept_.any()
