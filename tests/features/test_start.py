"""Where chains of features start."""

import types

import numpy as np
import pytest
from support.designs import everyday

from skdpm import FeatureAllocation
from skdpm.features.chains.program import first_state
from skdpm.features.likelihoods import LinearGaussian
from skdpm.features.likelihoods._sources import BinarySources
from skdpm.features.priors import BetaBernoulliPrior, IndianBuffetPrior
from skdpm.features.state._state import FeatureState
from skdpm.metrics import b_cubed_score


def parts(n_samples=300, n_features=20, n_parts=5, *, offset=0.0, missing=0.1, seed=0):
    """Rows made of parts that each third row has, and noise of deviation 0.5."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n_samples, n_parts)) < 0.3
    X = offset + Z @ rng.normal(size=(n_parts, n_features))
    X += 0.5 * rng.normal(size=X.shape)
    X[rng.random(X.shape) < missing] = np.nan
    return X, Z


def state_of(X, *, init="auto", prior=IndianBuffetPrior, n_components=None, seed=0):
    """The state at which a chain starts, and its program."""
    likelihood = LinearGaussian().resolve(X)
    settings = () if n_components is None else (n_components,)
    program = types.SimpleNamespace(
        likelihood=likelihood,
        data=likelihood.encode(X),
        init=init,
        first_concentration=1.0,
        make_prior=lambda concentration: prior(len(X), concentration, *settings),
    )
    return first_state(program, np.random.PCG64(seed)), program


def sources(X, most=64, seed=0):
    observed = ~np.isnan(X)
    filled = np.where(observed, X - np.nanmean(X, axis=0), 0.0)
    return BinarySources(filled, None if observed.all() else observed).draw(
        most, np.random.default_rng(seed)
    )


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_sources_are_the_parts(missing):
    X, Z = parts(1000, missing=missing)
    scores = [b_cubed_score(Z, sources(X, 5, seed)) for seed in range(4)]
    assert np.median(scores) > 0.95


def test_sources_do_not_depend_on_units():
    X, _ = parts(missing=0.0)
    expected = sources(X)
    np.testing.assert_array_equal(sources(1e-9 * X), expected)
    np.testing.assert_array_equal(sources(4.0 * X + 7.0), expected)


@pytest.mark.parametrize("most", [1, 3])
def test_at_most_so_many_sources(most):
    assert sources(parts()[0], most).shape[1] == most


@pytest.mark.parametrize(
    "X",
    [
        np.zeros((5, 3)),
        np.ones((1, 3)),
        np.arange(2.0)[:, None],
        np.outer(np.arange(6.0), np.ones(4)),
        np.full((4, 2), 1e60) * [[1.0], [-1.0], [1.0], [0.0]],
    ],
)
def test_few_sources_of_little_data(X):
    Z = BinarySources(X, None).draw(64, np.random.default_rng(0))
    assert Z.shape[0] == len(X) and Z.dtype == bool
    assert Z.any(axis=0).all() and (2 * Z.sum(axis=0) <= len(X)).all()


def test_a_column_without_entries():
    X, Z = parts(1000)
    X = np.column_stack([X, np.zeros(len(X))])
    observed = ~np.isnan(X)
    observed[:, -1] = False
    found = BinarySources(np.where(observed, X, 0.0), observed).draw(5, np.random.default_rng(1))
    assert b_cubed_score(Z, found) > 0.9


@pytest.mark.parametrize("offset", [0.0, 30.0])
@pytest.mark.some(1)
def test_a_chain_starts_at_the_parts(offset):
    """Features that are none, of which a guess of many has some, are left out."""
    X, Z = parts(1000, offset=offset)
    state, _ = state_of(X)
    assert state.allocations().shape[1] == 5
    assert b_cubed_score(Z, state.allocations()) > 0.95


def test_chains_start_apart():
    X, _ = parts()
    first, second = (state_of(X, seed=seed)[0].allocations() for seed in (0, 1))
    assert first.shape != second.shape or (first != second).any()


def test_nothing_is_left_of_noise():
    X = np.random.default_rng(0).normal(size=(200, 6))
    assert state_of(X)[0].allocations().shape[1] == 0


@pytest.mark.parametrize("n_components", [2, 8])
def test_a_start_fits_the_finite_prior(n_components):
    X, Z = parts(1000)
    state, _ = state_of(X, prior=BetaBernoulliPrior, n_components=n_components)
    allocations = state.allocations()
    assert allocations.shape[1] == n_components
    used = allocations[:, allocations.any(axis=0)]
    assert used.shape[1] == min(n_components, 5)
    if n_components == 8:
        assert b_cubed_score(Z, used) > 0.95


def test_no_feature_of_a_start_is_worth_leaving_out():
    """The features' parameters integrated out, given the hyperparameters of the start."""
    X, _ = parts()
    state, program = state_of(X)
    Z = state.allocations()
    model = program.likelihood.bind(program.data)
    saved = state.model.save()

    def log_marginal(Z):
        model.load({**saved, "components": np.zeros((Z.shape[1], X.shape[1]))})
        return FeatureState(model, program.make_prior(1.0), Z).compute_log_marginal()

    complete = log_marginal(Z)
    assert all(log_marginal(np.delete(Z, k, axis=1)) < complete for k in range(Z.shape[1]))
    rng = np.random.default_rng(0)
    for _try in range(3):
        surplus = np.column_stack([Z, rng.random(len(Z)) < 0.3])
        assert log_marginal(surplus) < complete


class Clueless(LinearGaussian):
    """A likelihood that has no guess."""

    def initial_allocations(self, data, most, rng):
        return None


# Four draws after three iterations may agree on no feature.
@pytest.mark.filterwarnings("ignore:no feature was found")
def test_without_a_guess_the_start_is_from_the_prior():
    X, _ = parts(40, 4, 2)
    settings = {"n_warmup": 3, "n_draws": 2, "n_chains": 2, "random_state": 0}
    guessed = FeatureAllocation(likelihood=Clueless(), **settings).fit(X)
    drawn = FeatureAllocation(likelihood=LinearGaussian(), init="prior", **settings).fit(X)
    np.testing.assert_array_equal(guessed.log_joint_samples_, drawn.log_joint_samples_)


@pytest.mark.slow
@pytest.mark.parametrize("offset", everyday([0.0, 30.0], 30.0))
def test_parts_are_found_again(offset):
    X, Z = parts(offset=offset, seed=1)
    model = FeatureAllocation(n_warmup=40, n_draws=40, n_chains=1, random_state=0).fit(X)
    assert b_cubed_score(Z, model.allocations_) > 0.95
    assert model.n_components_ == 5
