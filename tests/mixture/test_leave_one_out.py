"""Densities of rows given all others, against differences of enumerated joint densities, and what
follows from them: outlier scores, which must find what was planted."""

import inspect
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import log_posterior
from reference.predictive import log_leave_one_out as reference_density
from reference.predictive import without_row
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from sklearn.metrics import roc_auc_score
from support.cases import NAMES, PRIORS, fit_case, make_estimator, prior_name, prior_params
from support.designs import combinations, cover, everyday
from support.exactness import complete_names, make_likelihood, make_prior, make_state

from skdpm import DPMixture
from skdpm.mixture.answers._leave_one_out import log_leave_one_out
from skdpm.mixture.answers.training import outlier_scores
from skdpm.mixture.likelihoods import Gaussian, Poisson, Relational

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def expected_densities(estimator, X, name, params, every=1):
    """By the reference, (n_chains, n_scored_draws, n_samples)."""
    labels = estimator.label_samples_[:, ::every].astype(int)
    concentrations = estimator.concentration_samples_[:, ::every]
    of_draw = params if callable(params) else lambda c, s: params
    return np.array(
        [
            [
                [
                    reference_density(
                        X,
                        labels[c, s],
                        i,
                        name,
                        prior_name(estimator),
                        likelihood_params=of_draw(c, s),
                        prior_params=prior_params(estimator, concentrations[c, s]),
                    )
                    for i in range(len(X))
                ]
                for s in range(labels.shape[1])
            ]
            for c in range(len(labels))
        ]
    )


@combinations(name=NAMES, prior=PRIORS)
@pytest.mark.some(2)
def test_densities(name, prior):
    case = fit_case(name, n_samples=5)
    params = {"resampled": prior != "pitman_yor_negative", "n_warmup": 0, "thin": 3, "n_draws": 2}
    estimator = make_estimator(case.likelihood, prior, **params).fit(case.X)
    log_densities = estimator.pointwise_log_likelihood(case.X)
    expected = expected_densities(estimator, case.X, name, case.params)
    np.testing.assert_allclose(log_densities, expected, rtol=1e-9, atol=1e-9)
    if estimator.likelihood_.lacks("laws"):
        scores = np.log(np.exp(-expected).mean(axis=(0, 1)))
        np.testing.assert_allclose(estimator.outlier_scores_, scores, rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_hyperparameters_of_each_draw():
    X = np.random.default_rng(0).poisson(np.repeat([[3.0], [20.0]], 2, axis=0), (4, 2)) * 1.0
    estimator = make_estimator(Poisson(), resampled=True, n_draws=52, n_chains=2).fit(X)
    assert np.ptp(estimator.hyperparameter_samples_["shape"][:, ::2]) > 0.1

    def params(c, s):
        return {
            name: values[c, 2 * s] for name, values in estimator.hyperparameter_samples_.items()
        }

    np.testing.assert_allclose(
        estimator.pointwise_log_likelihood(X),
        expected_densities(estimator, X, "poisson", params, every=2),
        rtol=1e-9,
    )


CELLS = [(name, prior) for name in NAMES for prior in PRIORS]
CELLS += [(name, "dp") for name in complete_names()]


@pytest.mark.parametrize(("name", "prior"), everyday(CELLS, *cover(CELLS), n_values=2))
@pytest.mark.some(6)
def test_mean_over_all_partitions_is_exact(name, prior):
    plain = name.removesuffix("_complete")
    X, params, _ = enumeration_case(plain)
    X = X if name == plain else np.nan_to_num(X, nan=1.0)
    family, prior_params = PRIOR_CASES[prior]
    keywords = {"likelihood_params": params, "prior_params": prior_params}
    posterior = log_posterior(X, plain, family, **keywords)
    kernel = make_prior(family, len(X), **prior_params)
    log_densities = [
        log_leave_one_out(make_state(make_likelihood(name), X, kernel, labels.astype(np.intp)))
        for labels in posterior.partitions
    ]
    scores = outlier_scores(np.array(log_densities), posterior.probabilities)
    expected = [
        log_posterior(without_row(X, i, plain), plain, family, **keywords).log_evidence
        - posterior.log_evidence
        for i in range(len(X))
    ]
    np.testing.assert_allclose(scores, expected, rtol=1e-10, atol=1e-10)


def test_mean_over_hyperparameters_is_exact():
    """A shape that is one of two, as likely before the data."""
    rng = np.random.default_rng(1)
    X = rng.poisson([[1.0], [2.0], [9.0], [12.0]], (4, 2)) * 1.0
    prior = {"concentration": 1.3}
    terms, log_weights, evidence = [], [], []
    for shape in (0.4, 5.0):
        params = {"shape": shape, "rate": 0.5}
        keywords = {"likelihood_params": params, "prior_params": prior}
        posterior = log_posterior(X, "poisson", "dp", **keywords)
        log_weights.append(posterior.log_joint)
        kernel = make_prior("dp", 4, **prior)
        terms += [
            log_leave_one_out(make_state(Poisson(**params), X, kernel, labels.astype(np.intp)))
            for labels in posterior.partitions
        ]
        evidence.append(
            [
                log_posterior(np.delete(X, i, axis=0), "poisson", "dp", **keywords).log_evidence
                for i in range(4)
            ]
        )
    log_weights = np.concatenate(log_weights)
    weights = np.exp(log_weights - logsumexp(log_weights))
    expected = logsumexp(evidence, axis=0) - logsumexp(log_weights)
    np.testing.assert_allclose(outlier_scores(np.array(terms), weights), expected, rtol=1e-10)


@pytest.mark.slow
def test_outliers_with_gaps_are_found():
    """A density of fewer entries is larger, which hides them."""
    rng = np.random.default_rng(0)
    X = np.repeat([[0.0], [9.0]], 100, axis=0) + rng.normal(size=(200, 4))
    is_outlier = np.arange(200) % 20 == 0
    X[is_outlier] = rng.uniform(-4.0, 13.0, size=(10, 4))
    X[rng.random(X.shape) < rng.uniform(0.0, 0.6, size=(200, 1))] = np.nan
    model = DPMixture(n_warmup=30, n_draws=20, n_chains=1, random_state=0).fit(X)
    plain = logsumexp(-model.pointwise_log_likelihood(X)[0], axis=0)
    assert roc_auc_score(is_outlier, plain) < 0.85
    assert roc_auc_score(is_outlier, model.outlier_scores_) > 0.9
    again = pickle.loads(pickle.dumps(model.set_params(n_jobs=2)))
    del again.outlier_scores_
    again.pointwise_log_likelihood(X)
    np.testing.assert_array_equal(again.outlier_scores_, model.outlier_scores_)


def test_state_is_as_before():
    case = fit_case("gaussian_diag")
    labels = np.arange(18, dtype=np.intp) % 5
    labels[7] = 5  # alone
    state = make_state(case.likelihood, case.X, make_prior("dp", 18, concentration=1.0), labels)
    log_joint = state.compute_log_joint()
    first = log_leave_one_out(state)
    assert len(np.unique(np.c_[labels, state.cluster_labels()], axis=0)) == 6
    np.testing.assert_allclose(state.compute_log_joint(), log_joint, rtol=1e-12)
    np.testing.assert_allclose(log_leave_one_out(state), first, rtol=1e-12)


# What is kept, and refused.


@pytest.mark.long
def test_rows_of_fit_are_asked_for_again_after_pickling():
    case = fit_case("gaussian")
    model = make_estimator(case.likelihood, resampled=True).fit(case.X)
    other = pickle.loads(pickle.dumps(model))
    scores = model.outlier_scores_
    assert not hasattr(other, "outlier_scores_")
    with pytest.raises(AttributeError, match=r"not pickled.* pointwise_log_likelihood\(X\)"):
        other.outlier_scores_  # noqa: B018
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        other.pointwise_log_likelihood(case.X[::-1])
    other.pointwise_log_likelihood(case.X.tolist())
    np.testing.assert_array_equal(other.outlier_scores_, scores)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).outlier_scores_, scores)
    model.fit(case.X[:-1])
    assert model.outlier_scores_.shape == (17,)


def test_rows_that_have_changed_are_seen():
    case = fit_case("gaussian")
    X = case.X.copy()
    model = make_estimator(case.likelihood).fit(X)
    X[0] += 1.0
    with pytest.raises(AttributeError, match="has changed since"):
        model.outlier_scores_  # noqa: B018
    assert model.pointwise_log_likelihood(case.X).shape == (2, 12, 18)


def test_without_label_draws():
    case = fit_case("gaussian")
    model = make_estimator(case.likelihood, store_labels=False, point_estimate="last")
    assert not hasattr(model, "outlier_scores_")
    model.fit(case.X)
    stream = make_estimator(case.likelihood, sampler="smc").partial_fit(case.X)
    for fitted in (model, stream):
        for name in ("outlier_scores_", "probabilities_"):
            with pytest.raises(AttributeError, match=f"{name} needs label draws"):
                getattr(fitted, name)
        with pytest.raises(AttributeError, match=r"use score_samples\(X\)"):
            fitted.pointwise_log_likelihood(case.X)


def test_without_densities_given_the_others():
    A = np.random.default_rng(0).poisson(1.0, (8, 8)) * 1.0
    likelihood = Relational(a=1.0, b=1.0, degree_correction=True, degree_concentration=1.0)
    model = make_estimator(likelihood).fit(A + A.T)
    assert model.probabilities_.shape == (8,)
    with pytest.raises(AttributeError, match="outlier_scores_ needs a likelihood under which"):
        model.outlier_scores_  # noqa: B018
    with pytest.raises(ValueError, match="the law of the other rows depends on the row"):
        model.pointwise_log_likelihood(A + A.T)


@pytest.mark.long
def test_scores_are_computed_by_those_who_ask_for_them():
    case = fit_case("gaussian")
    model = make_estimator(case.likelihood).fit(case.X)
    assert dict(inspect.getmembers(model))["probabilities_"] is model.probabilities_
    assert "outlier_scores_" not in {*dir(model), *vars(model)}
    assert model.outlier_scores_ is vars(model)["outlier_scores_"]
    assert "outlier_scores_" in dir(model)
    model.set_params(store_labels=False, point_estimate="last").fit(case.X)
    assert not {"outlier_scores_", "probabilities_"} & {*dir(model), *vars(model)}


@pytest.mark.slow
def test_threads_and_samplers():
    case = fit_case("bernoulli", n_samples=6)
    for sampler in ("sub_cluster", "smc", "alternate"):
        model = make_estimator(case.likelihood, resampled=True, sampler=sampler, n_draws=3)
        model.fit(case.X)
        log_densities = model.pointwise_log_likelihood(case.X)
        expected = expected_densities(model, case.X, "bernoulli", case.params)
        np.testing.assert_allclose(log_densities, expected, rtol=1e-9)
        model.set_params(n_jobs=2)
        np.testing.assert_array_equal(model.pointwise_log_likelihood(case.X), log_densities)


def test_sparse_network_and_single_row():
    A = fit_case("relational", n_samples=6).X
    A[np.isnan(A)] = 0.0
    model = make_estimator(Relational(a=0.7, b=1.2), n_draws=3).fit(sp.csr_array(A))
    expected = expected_densities(model, A, "relational", {"a": 0.7, "b": 1.2})
    np.testing.assert_allclose(model.outlier_scores_, np.log(np.exp(-expected).mean((0, 1))))
    likelihood = Gaussian(mean=0.0, mean_precision=0.1, df=3.0, scale=1.0)
    model = make_estimator(likelihood).fit([[0.5, 1.0]])
    found = model.pointwise_log_likelihood([[0.5, 1.0]])
    np.testing.assert_allclose(found[0, 0, 0], model.log_joint_samples_[0, 0])
    assert np.isfinite(model.outlier_scores_).all()
    assert model.probabilities_.tolist() == [1.0]


@pytest.mark.slow
def test_outliers_that_are_clusters_of_their_own_come_first():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [8.0, 0.0], [0.0, 8.0]])
    X = np.repeat(centres, 60, axis=0) + rng.normal(size=(180, 2))
    outliers = np.array([[30.0, 30.0], [-25.0, 20.0], [25.0, -25.0], [4.0, 30.0]])
    model = DPMixture(likelihood=Gaussian(), n_warmup=50, n_draws=50, random_state=0)
    model.fit(np.r_[X, outliers])
    planted = np.arange(184) >= 180
    assert roc_auc_score(planted, model.outlier_scores_) == 1.0
    # As new rows they are likely: each is a cluster that has been seen.
    assert roc_auc_score(planted, -model.score_samples(np.r_[X, outliers])) < 1.0
