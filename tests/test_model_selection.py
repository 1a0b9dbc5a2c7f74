"""skdpm.model_selection against enumeration: runs that follow every partition have no error."""

import warnings

import numpy as np
import pytest
from reference.likelihoods import log_marginal_bernoulli, log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from support.cases import fit_case, make_estimator
from support.exactness import make_likelihood

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers.smc import SMC
from skdpm.model_selection import concentration_curve, log_evidence

CASE = enumeration_case("bernoulli")
EXACT = SMC(52, rejuvenation=None)  # as many particles as five rows have partitions


def enumerated(prior, a=CASE.params["a"], **changes):
    name, params = PRIOR_CASES[prior]
    return log_posterior(
        CASE.X,
        "bernoulli",
        name,
        likelihood_params={**CASE.params, "a": a},
        prior_params={**params, **changes},
    )


def test_models_are_compared_by_their_evidence():
    models = {
        "dp": make_estimator(make_likelihood("bernoulli"), "dp", sampler=EXACT),
        "finite": make_estimator(make_likelihood("bernoulli"), "finite", sampler=EXACT),
        "large a": make_estimator(make_likelihood("bernoulli", a=9.0), "dp", sampler=EXACT),
    }
    results = log_evidence(models, CASE.X)
    expected = [enumerated("dp"), enumerated("finite"), enumerated("dp", a=9.0)]
    expected = np.array([posterior.log_evidence for posterior in expected])
    assert results["model"] == list(models)
    np.testing.assert_allclose(results["log_evidence"], expected, atol=1e-10)
    np.testing.assert_allclose(results["log_bayes_factor"], expected - expected.max(), atol=1e-10)
    np.testing.assert_allclose(results["probability"], softmax(expected), atol=1e-10)
    np.testing.assert_allclose(results["std_error"], 0.0, atol=1e-10)
    np.testing.assert_allclose(results["std"], 0.0, atol=1e-10)
    assert [values.shape for values in results["log_evidence_chains"]] == [(2,)] * 3
    assert not any(hasattr(model, "labels_") for model in models.values())


def test_other_samplers_give_way():
    """One component, and so one partition: every particle has the evidence itself."""
    model = make_estimator(
        make_likelihood("bernoulli"), "finite", n_components=1, sampler="gibbs", warm_start=True
    )
    found = log_evidence({"one": model}, CASE.X)["log_evidence"][0]
    assert abs(found - log_marginal_bernoulli(CASE.X, **CASE.params)) < 1e-10
    assert model.sampler == "gibbs"


def test_mean_and_error_are_those_of_densities():
    """The settings of the particles are the estimator's, too: here they are few."""
    case = fit_case("gaussian")
    model = make_estimator(
        case.likelihood, sampler=SMC(2, rejuvenation=None), n_chains=40, random_state=3
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        results = log_evidence({"few": model}, case.X)
        one = log_evidence({"one": model.set_params(n_chains=1)}, case.X)
    z = np.exp(results["log_evidence_chains"][0])
    assert len(np.unique(z)) == 40
    assert abs(results["log_evidence"][0] - np.log(z.mean())) < 1e-10
    without = np.log((z.sum() - z) / 39.0)  # the jackknife has the same limit
    jackknife = np.sqrt(39.0 / 40.0 * np.sum((without - without.mean()) ** 2))
    assert abs(results["std_error"][0] / jackknife - 1.0) < 0.1
    assert np.isnan(one["std_error"][0])


def test_names_of_samplers_are_checked():
    with pytest.raises(ValueError, match=r"estimators\['k'\]: sampler must be"):
        log_evidence({"k": make_estimator("gaussian", sampler="smcc")}, [[0.0], [1.0]])


@pytest.mark.filterwarnings("ignore:.*are copies")
@pytest.mark.long
def test_models_that_count_other_rows_are_not_compared():
    X = np.tile(np.random.default_rng(0).normal(size=(20, 1)), (2, 2))
    X[:, 1] += np.arange(40) % 20
    models = {
        name: DPMixture(
            likelihood=Gaussian(**fixed), sampler=SMC(n_particles=20), n_chains=1, random_state=0
        )
        for name, fixed in (("learned", {}), ("fixed", {"scale": np.eye(2), "df": 4.0}))
    }
    with pytest.raises(ValueError, match="'learned': 20, 'fixed': 40"):
        log_evidence(models, X)
    assert len(log_evidence(models, X[:20])["log_evidence"]) == 2


def test_warns_of_models_whose_chains_differ():
    narrow = Gaussian(mean=0.0, mean_precision=0.01, df=9.0, scale=1.0)
    X = np.random.default_rng(0).normal(scale=3.0, size=(60, 1))
    models = {
        "fine": make_estimator(narrow, "finite", n_components=1),
        "rough": make_estimator(narrow, sampler=SMC(1, rejuvenation=None), n_chains=8),
    }
    with pytest.warns(ConvergenceWarning, match=r"log evidence of rough \(standard dev") as found:
        log_evidence(models, X)
    assert len(found) == 1


@pytest.mark.parametrize(
    "prior, resampled",
    [(prior, False) for prior in PRIOR_CASES]
    + [(prior, True) for prior in PRIOR_CASES if prior != "pitman_yor_negative"],
)
@pytest.mark.some(3)
def test_concentration_curve(prior, resampled):
    """All partitions are there, in each of two chains."""
    model = make_estimator(
        make_likelihood("bernoulli"),
        prior,
        resampled=resampled,
        sampler=EXACT,
        concentration_prior=(2.0, 0.8),
    )
    at = np.array([0.1, 2.0, 35.0])
    expected = [enumerated(prior, concentration=concentration) for concentration in at]
    curve = concentration_curve(model, CASE.X, at)
    log_z = np.array([posterior.log_evidence for posterior in expected])
    ess = [2.0 / np.sum(posterior.probabilities**2) for posterior in expected]
    np.testing.assert_array_equal(curve["concentration"], at)
    np.testing.assert_allclose(curve["log_evidence"], log_z, atol=1e-10)
    np.testing.assert_allclose(curve["effective_sample_size"], ess, rtol=1e-9)
    np.testing.assert_allclose(curve["std_error"], 0.0, atol=1e-10)
    assert curve["log_evidence_chains"].shape == (3, 2)
    assert not hasattr(model, "labels_")


def test_curve_passes_through_the_run():
    """Where particles were weighed with a concentration, it is the evidence of that run."""
    case = fit_case("gaussian")
    model = make_estimator(case.likelihood, sampler=SMC(10), concentration=0.7)
    curve = concentration_curve(model, case.X, [0.2, 0.7])
    run = log_evidence({"same": model}, case.X)
    assert abs(curve["log_evidence"][1] - run["log_evidence"][0]) < 1e-10
    assert abs(curve["std_error"][1] - run["std_error"][0]) < 1e-10


def test_refuses_what_has_no_evidence():
    case = fit_case("relational")
    with pytest.raises(ValueError, match=r"estimators\['links'\].*depend on each other"):
        log_evidence({"links": make_estimator(case.likelihood)}, case.X)
    with pytest.raises(TypeError, match=r"estimators\['k'\] must be a DPMixture"):
        log_evidence({"k": KMeans()}, CASE.X)
    for wrong in ({}, [make_estimator(make_likelihood("bernoulli"))]):
        with pytest.raises(ValueError, match="dict of names and mixtures"):
            log_evidence(wrong, CASE.X)
    model = make_estimator(make_likelihood("bernoulli"))
    for wrong in ([], 1.0):
        with pytest.raises(ValueError, match="list of numbers"):
            concentration_curve(model, CASE.X, wrong)
    for wrong in ([1.0, 0.0], [np.nan], ["1"]):
        with pytest.raises(ValueError, match=r"^concentrations must be"):
            concentration_curve(model, CASE.X, wrong)
    with pytest.raises(TypeError, match=r"^estimator must be"):
        concentration_curve(KMeans(), CASE.X, [1.0])
