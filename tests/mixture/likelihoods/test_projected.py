"""Columns that other columns determine: the fit is that of the other columns."""

import pickle
import warnings

import numpy as np
import pytest
from sklearn.datasets import load_iris

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, Product

TYPES = ("full", "tied", "diag", "spherical")
FAST = {"n_chains": 2, "n_warmup": 20, "n_draws": 20, "random_state": 0, "n_jobs": 1}
X = load_iris().data[::2]


def fitted(rows, covariance_type, sampler="auto", likelihood=None):
    likelihood = likelihood or Gaussian(covariance_type=covariance_type)
    model = DPMixture(likelihood=likelihood, sampler=sampler, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows)


def with_constants(rows):
    return np.column_stack(
        [rows[:, :2], np.full(len(rows), 7.1), rows[:, 2:], np.zeros(len(rows))]
    )


def with_combinations(rows):
    return np.column_stack(
        [rows, rows @ [1.0, 2.0, -1.0, 0.5] + 3.0, 1e3 * rows[:, 0], 100.0 - rows.sum(axis=1)]
    )


def same(model, other, rows, wide):
    for name in ("label_samples_", "labels_", "n_clusters_samples_", "weights_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
    for name, draws in model.hyperparameter_samples_.items():
        np.testing.assert_array_equal(other.hyperparameter_samples_[name], draws)
    np.testing.assert_array_equal(model.score_samples(rows), other.score_samples(wide))
    np.testing.assert_array_equal(model.predict_proba(rows), other.predict_proba(wide))
    np.testing.assert_array_equal(model.sample(9)[1], other.sample(9)[1])


@pytest.mark.parametrize("sampler", ["auto", "sub_cluster"])
@pytest.mark.parametrize("covariance_type", TYPES)
def test_constants_change_no_bit(covariance_type, sampler):
    model = fitted(X, covariance_type, sampler)
    wide = with_constants(X)
    other = fitted(wide, covariance_type, sampler)
    same(model, other, X, wide)
    np.testing.assert_array_equal(other.sample(9)[0], with_constants(model.sample(9)[0]))
    params, wider = model.cluster_params_, other.cluster_params_
    np.testing.assert_allclose(wider["means"], with_constants(params["means"]))
    kept = [0, 1, 3, 4]
    if covariance_type in ("full", "tied"):
        np.testing.assert_array_equal(
            wider["covariances"][:, kept][:, :, kept], params["covariances"]
        )
        assert not wider["covariances"][:, [2, 5]].any()
    else:
        np.testing.assert_array_equal(wider["covariances"][:, kept], params["covariances"])
        assert not wider["covariances"][:, [2, 5]].any()
    again = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(again.predict(wide), other.predict(wide))


def test_summaries_are_those_of_the_columns_alone():
    """Sums over a single column are rounded in another order."""
    x = np.random.default_rng(0).normal(size=(999, 1))
    expected = Gaussian().resolve(x)
    found = Gaussian().resolve(np.column_stack([np.ones(999), x]))
    for name in Gaussian.hyperparameters:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("covariance_type", ["full", "tied"])
def test_combinations_change_no_bit(covariance_type):
    model = fitted(X, covariance_type)
    wide = with_combinations(X)
    other = fitted(wide, covariance_type)
    same(model, other, X, wide)
    np.testing.assert_allclose(other.sample(9)[0], with_combinations(model.sample(9)[0]))
    params, wider = model.cluster_params_, other.cluster_params_
    np.testing.assert_allclose(wider["means"], with_combinations(params["means"]))
    slope = with_combinations(np.eye(4)).T - with_combinations(np.zeros((4, 4))).T
    np.testing.assert_allclose(
        wider["covariances"], slope @ params["covariances"] @ slope.T, rtol=1e-6, atol=1e-9
    )
    # A column of the posterior is that of the combination.
    stats = other._predictor.partition.stats
    mean, _, df, scale, _ = other.likelihood_.column_posterior(stats, 5)
    first = other.likelihood_.column_posterior(stats, 0)
    np.testing.assert_allclose([mean, scale, df], [1e3 * first[0], 1e6 * first[3], first[2]])
    constant = fitted(with_constants(X), covariance_type).likelihood_
    np.testing.assert_array_equal(constant.column_posterior(stats, 2)[0], 7.1)


def test_parts_of_products_are_reduced():
    wide = with_constants(X)
    parts = [("a", Gaussian(), [0, 1, 2]), ("b", Gaussian(covariance_type="diag"), [3, 4, 5])]
    other = fitted(wide, None, likelihood=Product(parts))
    parts = [("a", Gaussian(), [0, 1]), ("b", Gaussian(covariance_type="diag"), [2, 3])]
    same(fitted(X, None, likelihood=Product(parts)), other, X, wide)


def test_columns_that_are_not_dependent_are_kept():
    rng = np.random.default_rng(0)
    wide = np.column_stack([X, X[:, 0] + 1e-4 * rng.normal(size=len(X))])
    few = rng.normal(size=(6, 8))  # any six rows lie in a hyperplane
    late = with_combinations(rng.normal(size=(5000, 4)))
    late[4500:] += rng.normal(size=(500, 7))  # after the head
    for rows in (wide, few, late, np.full((5, 2), 3.0)):
        assert type(Gaussian().resolve(rows)) is Gaussian
    # A scale or df that is given applies to all columns.
    for given in ({"scale": 1.0}, {"df": 9.0}):
        assert type(Gaussian(**given).resolve(with_constants(X))) is Gaussian
    first = with_constants(X)[:1]
    model = DPMixture(likelihood=Gaussian(), sampler="smc", n_chains=5).partial_fit(first)
    assert type(model.likelihood_) is Gaussian


def test_dependence_is_found_in_merged_summaries():
    wide = with_combinations(X)
    likelihood = Gaussian()
    first, second = likelihood.summarise(wide[:20]), likelihood.summarise(wide[20:])
    found = likelihood.resolve_summary(likelihood.merge_summaries(first, second))
    np.testing.assert_array_equal(found.projection_.columns, np.arange(4))
    np.testing.assert_allclose(found.projection_.rebuild(X), wide)


def test_errors_name_columns_of_the_table():
    wide = with_constants(X)
    model = fitted(wide, "full")
    wide[3, 3] = 1e308
    model.likelihood_._origin = model.likelihood_._origin - 1.7e308
    with pytest.raises(ValueError, match="column 3 of X holds values too large"):
        model.likelihood_.encode_new(wide)
