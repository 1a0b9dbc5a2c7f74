"""Extreme but finite data and priors: a result that is finite, or an error that names its cause.

A kernel that never ends cannot be interrupted: a timeout ends the run and says where.
"""

import faulthandler
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.features import COMPONENTS, load, make_model, make_prior
from support.probes import FeatureProbe, conditional

from skdpm import FeatureAllocation
from skdpm.features.likelihoods import LinearGaussian
from skdpm.features.likelihoods._base import CachedFlipModel, InterceptFeatureModel
from skdpm.features.priors import FeaturePrior, IndianBuffetPrior
from skdpm.features.samplers import SAMPLERS, ElementGibbs
from skdpm.features.state._state import FeatureState
from skdpm.hyperpriors import Gamma

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

VAGUE = (0.001, 0.001)


@pytest.fixture(autouse=True)
def ends():
    """A fit that hangs without the interpreter's lock ends the run, and says where."""
    faulthandler.dump_traceback_later(240, exit=True, file=sys.__stderr__)
    yield
    faulthandler.cancel_dump_traceback_later()


def assert_finite(model, X):
    assert np.isfinite(model.log_joint_samples_).all()
    for samples in model.hyperparameter_samples_.values():
        assert np.isfinite(samples).all() and (samples > 0).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.impute(X)).all()
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("n_warmup", [0, 5, 100])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.some(3)
def test_a_vague_prior_of_the_precision_ends(sampler, n_warmup):
    """With no feature in use its precision is a draw from the prior, which is 0 as a double about
    every second time."""
    X = np.random.default_rng(0).normal(size=(20, 3))
    likelihood = LinearGaussian(
        component_precision_prior=VAGUE, noise_precision_prior=VAGUE, intercept=False
    )
    model = FeatureAllocation(
        likelihood=likelihood,
        sampler=sampler,
        init="empty",
        n_warmup=n_warmup,
        n_draws=20,
        n_chains=2,
        random_state=0,
    ).fit(X)
    assert_finite(model, X)


@pytest.mark.parametrize("adapting", [False, True])
@pytest.mark.parametrize(
    "noise_precision, component_precision", [(3.0, np.nan), (np.nan, 0.8), (3.0, 0.0)]
)
def test_singletons_without_a_law_raise(noise_precision, component_precision, adapting):
    model = make_model(np.ones((3, 2)))
    load(model, np.zeros((0, 2)), noise_precision, component_precision)
    state = FeatureState(model, IndianBuffetPrior(3, 2.0), np.zeros((3, 0)))
    kernel = ElementGibbs().kernel()
    with pytest.raises(FloatingPointError, match=r"row \d: .*no other row has cannot be drawn"):
        for seed in range(50):  # in warm-up only a proposal of another number asks
            kernel.run(state, np.random.PCG64(seed), adapting)


@pytest.mark.parametrize("concentration", [1e9, 1e300])
def test_a_prior_of_too_many_features_raises(concentration):
    model = make_model(np.ones((3, 2)))
    load(model, np.zeros((0, 2)))
    state = FeatureState(model, IndianBuffetPrior(3, concentration), np.zeros((3, 0)))
    with pytest.raises(FloatingPointError, match=r"row 0: the prior expects .* features"):
        ElementGibbs().kernel().run(state, np.random.PCG64(0))


@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize("init", ["empty", "prior"])
@pytest.mark.parametrize(
    "entries, message",
    [
        ([1e160], "entries within 1e.60 .* column 1 of X holds 1e.160"),
        ([-1e300], "entries within 1e.60 .* column 1 of X holds -1e.300"),
        ([1.7e308, -1.7e308], "entries within 1e.60 .* column 1 of X holds"),
        ([1e-300, 0, 0, 0, 0, 0], "more than 1e-60 from .* column 1 of X holds"),
        ([1e-90, -1e-90, 0, 0, 0, 0], "more than 1e-60 from .* column 1 of X holds"),
    ],
)
@pytest.mark.parametrize("intercept", [True, False])
def test_extreme_entries_are_refused(entries, message, init, n_components, intercept):
    X = np.random.default_rng(0).normal(size=(6, 3))
    X[: len(entries), 1] = entries
    model = FeatureAllocation(
        likelihood=LinearGaussian(intercept=intercept),
        n_components=n_components,
        init=init,
        n_warmup=0,
        n_draws=2,
        n_chains=1,
        random_state=0,
    )
    with pytest.raises(ValueError, match=message):
        model.fit(X)


def test_extreme_new_rows_are_refused():
    X = np.random.default_rng(0).normal(size=(6, 3))
    model = FeatureAllocation(n_warmup=2, n_draws=2, n_chains=1, random_state=0).fit(X)
    X[4, 2] = 1e160
    for method in ("transform", "predict", "impute", "score_samples"):
        with pytest.raises(ValueError, match=r"column 2 of X holds 1e.160"):
            getattr(model, method)(X)
    X[4, 2] = 1e50  # as large as the model can take
    assert np.isfinite(model.score_samples(X)).all()


def test_columns_in_other_units_are_warned_about():
    X = np.random.default_rng(0).normal(size=(30, 4))
    LinearGaussian().resolve(X)  # no warning
    LinearGaussian().resolve(X * [1, 1, 1, 0])
    for units in ([1, 1000, 1, 1], [1000, 1000, 1, 1000], [1, 1e-3, 1, 1e-3]):
        with pytest.warns(UserWarning, match=r"LinearGaussian has one.*Scale the columns"):
            LinearGaussian().resolve(X * units)
    rows = X[:, :1] * [1, 1000]
    with pytest.warns(UserWarning, match="columns of X differ from 0.917 to 917"):
        FeatureAllocation(n_chains=1, n_warmup=1, n_draws=1).fit(rows)


@pytest.mark.parametrize("value", [1e-200, 1e200])
def test_extreme_precisions_are_refused(value):
    for name in ("noise_precision", "component_precision"):
        model = FeatureAllocation(likelihood=LinearGaussian(**{name: value}))
        with pytest.raises(ValueError, match=f"{name} must be between 1e-140 and 1e.140"):
            model.fit(np.eye(3))


@st.composite
def problems(draw):
    """X with any shape, holes and scales, and any estimator of it."""
    n, d = draw(st.integers(1, 7)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    exponents = [draw(st.sampled_from([0, 0, 0, -55, -20, -3, 3, 20, 55])) for _ in range(d)]
    X = rng.normal(size=(n, d)) * 10.0 ** np.array(exponents)
    X += draw(st.sampled_from([0.0, 0.0, 1e3, 1e59]))
    X[:, draw(st.integers(0, d - 1))] *= draw(st.sampled_from([1.0, 0.0]))  # a constant column
    X[rng.random((n, d)) < draw(st.sampled_from([0.0, 0.3, 0.9, 1.0]))] = np.nan
    extreme = st.sampled_from([None, VAGUE, (1e-3, 1e3), (1e3, 1e-3), (1e-300, 1e-300)])
    precision = st.sampled_from([None, None, 1e-6, 1e6])
    likelihood = LinearGaussian(
        noise_precision=draw(precision),
        component_precision=draw(precision),
        noise_precision_prior=draw(extreme),
        component_precision_prior=draw(extreme),
        intercept=draw(st.booleans()),
    )
    model = FeatureAllocation(
        likelihood=likelihood,
        sampler=draw(st.sampled_from(sorted(SAMPLERS))),
        n_components=draw(st.sampled_from([None, 1, 4])),
        concentration=draw(st.sampled_from([None, 1e-3, 3.0])),
        concentration_prior=draw(st.sampled_from([(1.0, 1.0), VAGUE, (1e-300, 1e3)])),
        init=draw(st.sampled_from(["auto", "prior", "empty"])),
        n_warmup=draw(st.integers(0, 3)),
        n_draws=3,
        n_chains=1,
        random_state=draw(st.integers(0, 1000)),
    )
    return X, model


@pytest.mark.slow
@given(problems())
def test_any_data_and_priors(problem):
    """What is fitted is finite; what is refused is refused by its name."""
    X, model = problem
    try:
        model.fit(X)
    except ValueError as error:
        if "RowGibbs would have to enumerate" in str(error):
            return
        assert "column" in str(error)
        assert np.nanmax(np.abs(X)) > 1e55 or np.nanmin(np.ptp(X, axis=0)) < 1e-55
        return
    except FloatingPointError as error:
        # The scales of X, components and noise are far apart: components that the same rows have
        # are not told apart, or a row might have more than 256 of them.
        assert "have no law given Z" in str(error) or "cannot be drawn" in str(error)
        ordinary = (None, None)
        likelihood = model.likelihood
        assert np.nanmax(np.abs(X)) > 1e3 or not (
            (likelihood.noise_precision, likelihood.noise_precision_prior) == ordinary
            and (likelihood.component_precision, likelihood.component_precision_prior) == ordinary
        )
        return
    assert_finite(model, X)


def test_forgotten_overrides_are_heard_of():
    """What a likelihood does not write fills NaN or raises; nothing is left as it was."""
    probe = FeatureProbe(InterceptFeatureModel())
    probe.begin_row(0, np.zeros(0))
    assert np.isnan(probe.candidate(0)).all()
    assert np.isnan(probe.log_flip_many([0, 1], 0, True)).all()
    probe.flip(1, 0, True)
    assert np.isnan(probe.candidate(1)).all()
    assert np.isnan([probe.log_prior(), probe.log_complement(), probe.log_common()]).all()
    for name in (
        "add_feature", "remove_feature", "draw_singletons", "set_n_new", "reserve", "complement",
        "absorb", "split_off", "takes_away", "draw_n_singletons", "restricted", "restrict_from",
        "give_back",
    ):  # fmt: skip
        with pytest.raises(NotImplementedError, match=f"Model does not override `{name}`"):
            getattr(probe, name)()
    cached = FeatureProbe(CachedFlipModel())
    assert np.isnan(cached.log_flip_many([0, 1], 0, True)).all()
    cached.flip(0, 0, True)
    assert np.isnan(cached.log_row())
    for call in (probe.model.save, lambda: probe.model.load({})):
        with pytest.raises(NotImplementedError, match="FeatureModel must implement"):
            call()


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_prior_without_a_law_is_refused(name):
    prior = FeaturePrior(3)
    log_odds, new_rate = conditional(prior)
    assert np.isnan(log_odds).all() and np.isnan(new_rate) and np.isnan(prior.concentration)
    assert np.isnan(prior.log_probability([1, 2]))
    with pytest.raises(FloatingPointError, match="the concentration has no density"):
        prior.resample([1, 2], Gamma(1.0, 1.0), np.random.PCG64(0))
    for Z, message in (
        (np.eye(3, 2), "row 0: no value has a positive weight"),
        (np.zeros((3, 0)), "row 0: the prior expects nan features"),
    ):
        model = make_model(np.zeros((3, 2)))
        load(model, COMPONENTS[: Z.shape[1]])
        state = FeatureState(model, prior, Z)
        with pytest.raises(FloatingPointError, match=message):
            SAMPLERS[name]().kernel().run(state, np.random.PCG64(0))


def test_a_row_without_a_law_is_named():
    X = np.random.default_rng(0).normal(size=(6, 3))
    X[:3] += 50.0
    model = FeatureAllocation(n_components=2, n_warmup=2, n_draws=2, n_chains=1, random_state=0)
    model.fit(X)
    model._estimate["params"]["components"][:] = np.nan
    with pytest.raises(FloatingPointError, match="row 0 of X: no value has a positive weight"):
        model.transform(X)


def test_finite_priors_have_no_singletons():
    assert conditional(make_prior(3, 2))[1] == 0.0


def test_entries_far_from_others_are_named():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)) + 4.0 * rng.integers(2, size=(60, 1))
    rows = pd.DataFrame(np.vstack([X, [[1e6, 0.0, -1e6]]]), columns=list("abc")).add_prefix("c")
    few = {"n_chains": 1, "n_warmup": 5, "n_draws": 5, "random_state": 0}
    with pytest.warns(UserWarning, match=r"row 60 of column 'ca' .* 1e\+06, .* hide features"):
        FeatureAllocation(**few).fit(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        FeatureAllocation(**few).fit(np.vstack([X, [[30.0, 0.0, -30.0]]]))
