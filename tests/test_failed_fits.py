"""A fit that fails changes nothing: what was fitted before can be used."""

import copy
import signal

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from support.designs import everyday
from support.fits import assert_same_fit

from skdpm import DPMixture, FeatureAllocation, FiniteMixture, MixtureImputer, chains
from skdpm.chains import ChainProgram
from skdpm.mixture.likelihoods import Gaussian, Multinomial
from skdpm.mixture.particles.program import ParticleProgram
from skdpm.mixture.samplers import SMC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"n_warmup": 4, "n_draws": 3, "n_chains": 2, "random_state": 0}
MODELS = {
    "gaussian": DPMixture(likelihood="gaussian", **SHORT),
    "tied": DPMixture(likelihood=Gaussian(covariance_type="tied"), **SHORT),
    "finite": FiniteMixture(3, likelihood="poisson", **SHORT),
    "blocks": DPMixture(sampler="sub_cluster", **SHORT),
    "particles": DPMixture(sampler=SMC(4), n_draws=3, n_chains=2, random_state=0),
    "features": FeatureAllocation(**SHORT),
    "imputer": MixtureImputer(DPMixture(**SHORT)),
}
X, WIDE = (np.random.default_rng(0).poisson(3.0, size=(24, d)).astype(float) for d in (2, 5))


def answer(estimator, rows):
    return getattr(estimator, "transform", getattr(estimator, "predict", None))(rows)


def wrong_parameter(estimator, monkeypatch):
    inner = estimator.estimator if isinstance(estimator, MixtureImputer) else estimator
    inner.set_params(concentration=-1.0)


def broken_iteration(estimator, monkeypatch):
    """An error after the iterations of the second chain."""
    for program in (ChainProgram, ParticleProgram):

        def advance_and_fail(self, chain, *arguments, advance=program.advance):
            advance(self, chain, *arguments)
            if chain["index"] == 1:
                raise FloatingPointError("planted")

        monkeypatch.setattr(program, "advance", advance_and_fail)


def broken_end(estimator, monkeypatch):
    """An error after all attributes are set, as by warnings that are errors."""

    def fail(self, *arguments):
        raise ConvergenceWarning("planted")

    monkeypatch.setattr("skdpm._estimator.ChainEstimator._warn_if_not_converged", fail)


@pytest.mark.parametrize(
    "failure", everyday([wrong_parameter, broken_iteration, broken_end], broken_end)
)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.some(2)
def test_what_was_fitted_stays(model, failure, monkeypatch):
    estimator = copy.deepcopy(MODELS[model]).fit(X)
    before, expected = dict(vars(estimator)), answer(estimator, X)
    params = estimator.get_params()
    with monkeypatch.context() as patch:
        failure(estimator, patch)
        with pytest.raises((ValueError, FloatingPointError, ConvergenceWarning)):
            estimator.fit(WIDE)
    estimator.set_params(**params)
    assert vars(estimator).keys() == before.keys()
    assert all(vars(estimator)[name] is before[name] for name in before.keys() - params.keys())
    np.testing.assert_array_equal(answer(estimator, X), expected)
    with pytest.raises(ValueError, match=r"5 features, but .* is expecting 2"):
        answer(estimator, WIDE)


@pytest.mark.parametrize(
    "failure", everyday([wrong_parameter, broken_iteration, broken_end], broken_iteration)
)
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.some(2)
def test_nothing_is_fitted_by_a_first_fit_that_fails(model, failure, monkeypatch):
    estimator = copy.deepcopy(MODELS[model])
    before = vars(estimator).keys()
    failure(estimator, monkeypatch)
    with pytest.raises((ValueError, FloatingPointError, ConvergenceWarning)):
        estimator.fit(X)
    assert vars(estimator).keys() == before


def test_the_same_after_an_interruption_before_the_first_iteration(monkeypatch):
    estimator = copy.deepcopy(MODELS["gaussian"]).fit(X, known_labels=np.arange(24) % 2)
    before = dict(vars(estimator))

    def interrupt(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(DPMixture, "_program", interrupt)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(WIDE)
    assert vars(estimator) == before


@pytest.fixture
def ctrl_c_in(monkeypatch):
    """A function (estimator, step, n_times) that presses Ctrl-C at the end of a method."""

    def disturb(estimator, step, n_times):
        method = getattr(type(estimator), step)

        def press(self, *arguments):
            found = method(self, *arguments)
            for _ in range(n_times):
                signal.raise_signal(signal.SIGINT)
            return found

        monkeypatch.setattr(type(estimator), step, press)

    return disturb


@pytest.mark.parametrize(
    "step", everyday(["_publish", "_summarise", "_with_answers"], "_summarise")
)
@pytest.mark.parametrize("is_fitted", [False, True])
@pytest.mark.parametrize(
    "model", everyday(["gaussian", "features", "particles"], "gaussian", "features")
)
def test_two_ctrl_c_while_a_fit_sums_up_change_nothing(model, is_fitted, step, ctrl_c_in):
    estimator = copy.deepcopy(MODELS[model])
    if is_fitted:
        estimator.fit(X)
    before = dict(vars(estimator))
    ctrl_c_in(estimator, step, 2)
    with pytest.raises(KeyboardInterrupt):
        estimator.fit(np.vstack([WIDE, WIDE[:, ::-1]]))
    assert vars(estimator) == before


@pytest.mark.parametrize(
    "step", everyday(["_publish", "_summarise", "_with_answers"], "_summarise")
)
@pytest.mark.parametrize(
    "model", everyday(["gaussian", "features", "particles"], "gaussian", "features")
)
@pytest.mark.long
def test_ctrl_c_while_a_fit_sums_up_keeps_the_draws(model, step, ctrl_c_in):
    """Of the fit before, which had more attributes, nothing stays."""
    whole = copy.deepcopy(MODELS[model]).fit(WIDE)
    estimator = copy.deepcopy(MODELS[model]).fit(pd.DataFrame(X, columns=["a", "b"]))
    ctrl_c_in(estimator, step, 1)
    with pytest.warns(RuntimeWarning, match="interrupted after 3 of 3 draws of each chain; the"):
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(WIDE)
    assert vars(estimator).keys() == vars(whole).keys()
    np.testing.assert_array_equal(estimator.log_joint_samples_, whole.log_joint_samples_)
    np.testing.assert_array_equal(answer(estimator, WIDE), answer(whole, WIDE))
    assert "3 of each of 2 chains" in estimator.summary()


@pytest.mark.parametrize(
    ("model", "sampler"),
    [
        ("gaussian", "split_merge"),
        ("gaussian", "pgsm"),
        ("finite", "gibbs"),
        ("blocks", "sub_cluster"),
        ("features", "auto"),
    ],
)
@pytest.mark.some(2)
@pytest.mark.long
def test_a_warm_start_that_failed_can_be_repeated(model, sampler, monkeypatch):
    """With the bits of one that did not fail, although chains had made iterations."""
    fits = [copy.deepcopy(MODELS[model]) for _ in range(2)]
    for estimator in fits:
        estimator.set_params(warm_start=True, sampler=sampler).fit(X).set_params(n_draws=9)
    advance, n_calls = ChainProgram.advance, []

    def advance_and_fail(self, *arguments):
        n_calls.append(None)
        if len(n_calls) == 6:
            raise FloatingPointError("planted")
        advance(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(chains, "TURN", -1.0)  # of one iteration
        patch.setattr(ChainProgram, "advance", advance_and_fail)
        with pytest.raises(FloatingPointError, match="planted"):
            fits[0].fit(X)
    assert fits[0].draws_.n_draws == 3
    one, other = (estimator.fit(X) for estimator in fits)
    if model == "features":
        np.testing.assert_array_equal(one.log_joint_samples_, other.log_joint_samples_)
        np.testing.assert_array_equal(one.allocations_, other.allocations_)
    else:
        assert_same_fit(one, other)


def test_an_imputer_keeps_its_mixture():
    rows = np.where(np.arange(48).reshape(24, 2) % 7 == 0, np.nan, X)
    imputer = MixtureImputer(DPMixture(**SHORT)).fit(rows)
    expected = imputer.transform(rows)
    with pytest.raises(ValueError):
        imputer.set_params(estimator=DPMixture(likelihood=Multinomial(), **SHORT)).fit(WIDE - 9.0)
    np.testing.assert_array_equal(imputer.transform(rows), expected)
