"""Chains that are left out: what is left is a fit without them."""

import pickle

import numpy as np
import pandas as pd
import pytest
from support.designs import everyday
from support.fits import assert_same_fit

from skdpm import DPMixture, FeatureAllocation
from skdpm.mixture.samplers import SMC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# As many draws as are scored of each of three chains, and of two as well.
FAST = {"n_warmup": 5, "n_draws": 25, "random_state": 0}


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).normal(size=(40, 2)) + np.tile([0, 2], 20)[:, None]


@pytest.mark.parametrize(
    "params",
    [
        {"likelihood": "gaussian"},
        {"likelihood": "gaussian", "store_labels": False, "point_estimate": "map"},
        {"likelihood": "gaussian", "sampler": "sub_cluster", "point_estimate": "last"},
    ],
    ids=["labels", "map", "blocks"],
)
@pytest.mark.some(1)
@pytest.mark.long
def test_the_rest_is_a_fit_of_its_own(params, X):
    """Chains do not depend on their number."""
    model = DPMixture(n_chains=3, **params, **FAST).fit(X)
    two = DPMixture(n_chains=2, **params, **FAST).fit(X)
    assert model.drop_chains(2, X) is model
    assert_same_fit(model, two, X)
    assert model.converged_ == two.converged_
    for move, rates in two.acceptance_rate_.items():
        np.testing.assert_array_equal(model.acceptance_rate_[move], rates)
    if model.point_estimate in ("auto", "modal"):
        values = [fit.pointwise_log_likelihood(X) for fit in (model, two)]
        np.testing.assert_array_equal(*values)


@pytest.mark.slow
def test_chains_go_on_without_the_others(X):
    params = {"likelihood": "gaussian", "warm_start": True, **FAST}
    whole = DPMixture(n_chains=3, **params).set_params(n_draws=40).fit(X)
    model = DPMixture(n_chains=3, **params).fit(X).drop_chains([1], X)
    assert model.draws_.n_chains == 2
    np.testing.assert_array_equal(model.label_samples_, whole.label_samples_[[0, 2], :25])
    model = pickle.loads(pickle.dumps(model)).set_params(n_draws=40).fit(X)
    np.testing.assert_array_equal(model.label_samples_, whole.label_samples_[[0, 2]])
    assert_same_fit(model, whole.drop_chains([1], X), X)
    assert model.drop_chains([0], X).log_joint_samples_.shape == (1, 40)


@pytest.mark.parametrize("likelihood", everyday(["mixed", "categorical"], "categorical"))
def test_tables_of_categories(likelihood, X):
    """Likelihoods that learn what columns hold."""
    table = pd.DataFrame(
        {"kind": np.tile(["a", "b"], 20), "side": np.where(X[:, 1] > 1, "r", "l")}
    )
    if likelihood == "mixed":
        table["size"] = X[:, 0]
    model = DPMixture(likelihood=likelihood, n_chains=3, **FAST).fit(table)
    two = DPMixture(likelihood=likelihood, n_chains=2, **FAST).fit(table)
    model.drop_chains(2, table)
    np.testing.assert_array_equal(model.label_samples_, two.label_samples_)
    for method in ("score_samples", "predict_proba"):
        np.testing.assert_array_equal(getattr(model, method)(table), getattr(two, method)(table))


def test_features(X):
    model = FeatureAllocation(n_chains=3, **FAST).fit(X)
    two = FeatureAllocation(n_chains=2, **FAST).fit(X)
    model.drop_chains([2], X)
    for name in ("allocations_", "components_", "log_joint_samples_", "intercept_samples_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(two, name), err_msg=name)
    assert len(model.allocation_samples_) == 2
    assert model.diagnostics_ == two.diagnostics_
    np.testing.assert_array_equal(model.score_samples(X), two.score_samples(X))


@pytest.mark.long
def test_what_is_refused(X):
    model = DPMixture(likelihood="gaussian", n_chains=3, **FAST).fit(X)
    for chains in (3, [-1], [0.0], [True, False], ["0"]):
        with pytest.raises(ValueError, match="chains must be numbers from 0 to 2"):
            model.drop_chains(chains, X)
    with pytest.raises(ValueError, match="must keep a chain, got all 3"):
        model.drop_chains([0, 1, 2], X)
    with pytest.raises(ValueError, match="X differs"):
        model.drop_chains([0], X + 1)
    with pytest.raises(ValueError, match="but concentration changed"):
        model.set_params(concentration=1.0).drop_chains([0], X)
    model.set_params(concentration=None)
    assert model.draws_.n_chains == 3
    with pytest.raises(ValueError, match="needs the chains of fit"):
        pickle.loads(pickle.dumps(model)).drop_chains([0], X)
    particles = DPMixture(likelihood="gaussian", sampler=SMC(4), n_chains=2, **FAST).fit(X)
    with pytest.raises(ValueError, match="needs the chains of fit"):
        particles.drop_chains([0], X)
