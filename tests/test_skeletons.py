"""The skeletons of doc/: a likelihood and a sampler that live outside skdpm, built and tested.

They are compiled against the skdpm that is installed, as a stranger's would be, and then pass
what skdpm's own likelihoods and samplers must pass.
"""

import importlib
import sys
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_sizes
from reference.features import classes_of_buffet, left_ordered
from reference.likelihoods import PartitionPosterior
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from scipy.special import betaln, logsumexp
from scipy.stats import poisson
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from support.exactness import (
    case_posterior,
    case_state,
    convergence_run,
    invariance_run,
    make_prior,
    make_state,
)
from support.features import check_flips
from support.kernels import bind
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p
from support.skeletons import build

from skdpm import DPMixture, FeatureAllocation
from skdpm.features._state import FeatureState
from skdpm.features.priors import IndianBuffetPrior
from skdpm.features.samplers import SAMPLERS as FEATURE_SAMPLERS
from skdpm.metrics import b_cubed_score
from skdpm.mixture.likelihoods._base import Probe
from skdpm.mixture.samplers import SAMPLERS

pytestmark = pytest.mark.slow  # three packages to compile


@pytest.fixture(scope="module")
def skeletons(tmp_path_factory):
    """The class Geometric and the class MoveOne, freshly built."""
    folder = tmp_path_factory.mktemp("skeletons")
    build("likelihood", folder)
    build("sampler", folder)
    build("feature_likelihood", folder)
    sys.path.insert(0, str(folder))
    try:
        yield (
            importlib.import_module("skdpm_geometric").Geometric,
            importlib.import_module("skdpm_move_one").MoveOne,
            importlib.import_module("skdpm_poisson_sum").PoissonSum,
        )
    finally:
        sys.path.remove(str(folder))


@pytest.fixture
def Geometric(skeletons):
    return skeletons[0]


@pytest.fixture
def MoveOne(skeletons):
    return skeletons[1]


@pytest.fixture
def PoissonSum(skeletons):
    return skeletons[2]


def log_marginal(X, a, b):
    """log p(X | the rows form one cluster), the columns' probabilities integrated out."""
    return (betaln(a + len(X), b + X.sum(axis=0)) - betaln(a, b)).sum()


def probe_of(likelihood, X, n_slots=4):
    likelihood = likelihood.resolve(X)
    return Probe(bind(likelihood, likelihood.encode(X), len(X)), n_slots)


def test_likelihood_laws(Geometric, seed_sequence):
    """Predictives add up to marginals; removing, merging, copying do what their names say."""
    rng = np.random.default_rng(seed_sequence)
    for likelihood, X in Geometric._examples():
        a, b, n = likelihood.a, likelihood.b, len(X)
        probe = probe_of(likelihood, X)
        order = rng.permutation(n)
        slot = probe.acquire()
        total = 0.0
        for m, i in enumerate(order):
            total += probe.log_predictive(slot, i)
            probe.add(slot, i)
            expected = log_marginal(X[order[: m + 1]], a, b)
            assert total == pytest.approx(expected, rel=1e-12)
            assert probe.log_marginal(slot) == pytest.approx(expected, rel=1e-12)
        before = probe.model.dump([slot], True)
        probe.remove(slot, order[3])
        probe.add(slot, order[3])
        np.testing.assert_array_equal(probe.model.dump([slot], True), before)
        first, second = probe.acquire(), probe.acquire()
        for i in order[:5]:
            probe.add(first, i)
        for i in order[5:]:
            probe.add(second, i)
        probe.merge(first, second)
        np.testing.assert_array_equal(probe.model.dump([first], True), before)
        probe.release(second)
        recycled = probe.acquire()
        probe.copy(recycled, first)
        probe.remove(first, order[0])
        np.testing.assert_array_equal(probe.model.dump([recycled], True), before)
        many = probe.log_predictive_many(np.array([recycled, slot]), order[0])
        assert many.tolist() == [probe.log_predictive(recycled, order[0])] * 2


def test_likelihood_predictive_sums_to_one(Geometric):
    X = np.r_[[2.0, 0.0, 4.0], np.arange(3000)][:, None]
    probe = probe_of(Geometric(a=3.0, b=1.5), X)
    slot = probe.acquire()
    for i in range(3):
        probe.add(slot, i)
    total = np.exp([probe.log_predictive(slot, i) for i in range(3, len(X))]).sum()
    assert total == pytest.approx(1.0, abs=1e-6)


def geometric_posterior(X, prior, params, a, b):
    partitions = enumerate_partitions(len(X))
    log_joint = np.array(
        [
            log_eppf(sizes, prior, **params)
            + sum(log_marginal(X[labels == k], a, b) for k in range(labels.max() + 1))
            for sizes, labels in zip(partition_sizes(partitions), partitions, strict=True)
        ]
    )
    log_evidence = logsumexp(log_joint)
    return PartitionPosterior(partitions, log_joint, log_joint - log_evidence, log_evidence)


X_FIVE = np.array([[0.0, 4.0], [1.0, 7.0], [9.0, 0.0], [0.0, 2.0], [5.0, 1.0]])


def test_likelihood_enumeration(Geometric, MoveOne, seed_sequence):
    """Both samplers, our Gibbs and the skeleton's, keep the enumerated posterior of the skeleton's
    likelihood, under every prior."""
    runs = {}
    for name, (prior, params) in PRIOR_CASES.items():
        posterior = geometric_posterior(X_FIVE, prior, params, 0.8, 1.7)
        for sampler in (SAMPLERS["gibbs"](), MoveOne(n_proposals=1)):
            state = make_state(Geometric(0.8, 1.7), X_FIVE, make_prior(prior, 5, **params))
            run = invariance_run(state, sampler.kernel(), posterior)
            runs[f"{name} {sampler!r}"] = run
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def test_enumeration_sees_a_wrong_likelihood(Geometric, seed_sequence):
    prior, params = PRIOR_CASES["dp"]
    posterior = geometric_posterior(X_FIVE, prior, params, 0.8, 1.7)
    state = make_state(Geometric(0.8, 1.7 * 1.2), X_FIVE, make_prior(prior, 5, **params))
    run = invariance_run(state, SAMPLERS["gibbs"]().kernel(), posterior, n_starts=50_000)
    cells = run(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.parametrize("prior", PRIOR_CASES)
@pytest.mark.parametrize("likelihood", ["gaussian", "bernoulli", "relational"])
def test_sampler_enumeration(MoveOne, likelihood, prior, seed_sequence):
    """From one partition to the enumerated posterior, and staying in it."""
    posterior = case_posterior(likelihood, prior)
    kernel = MoveOne(n_proposals=4).kernel()
    start = np.zeros(5, dtype=np.int64)
    invariance, convergence = seed_sequence.spawn(2)
    state = case_state(likelihood, prior)
    assert_p(invariance_run(state, kernel, posterior), seed_sequence=invariance)
    assert_p(convergence_run(state, kernel, posterior, start), seed_sequence=convergence)
    proposed, accepted = kernel.acceptance()["move_one"]
    assert 0 < accepted < proposed


def fit_quietly(model, X):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def test_in_an_estimator(Geometric, MoveOne):
    """Objects from elsewhere serve like our own: parameters, predictions, scores, samples."""
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    X = rng.geometric(np.array([[0.9, 0.05], [0.05, 0.9]])[truth]) - 1.0
    model = DPMixture(likelihood=Geometric(), sampler=MoveOne(), n_chains=2, random_state=0)
    model = clone(model).set_params(likelihood__b=0.5, sampler__n_proposals=5)
    assert model.likelihood.b == 0.5
    labels = fit_quietly(model, X).labels_
    assert v_measure_score(truth, labels) > 0.6
    rates = model.acceptance_rate_["move_one"]
    assert rates.shape == (2,) and (rates > 0).all() and (rates < 1).all()
    assert model.cluster_params_["probabilities"].shape == (model.n_components_, 2)
    grid = np.stack(np.meshgrid(np.arange(400.0), np.arange(400.0)), axis=-1).reshape(-1, 2)
    assert 0.9 < np.exp(model.score_samples(grid)).sum() < 1 + 1e-9
    drawn, labels = model.sample(50)
    assert drawn.shape == (50, 2) and set(labels) <= set(range(model.n_components_))
    np.testing.assert_array_equal(model.predict(drawn), model.predict_proba(drawn).argmax(axis=1))


def test_bad_input(Geometric, MoveOne):
    X = np.ones((4, 2))
    with pytest.raises(ValueError, match=r"Geometric needs counts.*column 1 of X holds 0\.5"):
        DPMixture(likelihood=Geometric()).fit([[1, 0.5], [0, 2]])
    with pytest.raises(ValueError, match=r"Geometric\.a"):
        DPMixture(likelihood=Geometric(a=0)).fit(X)
    with pytest.raises(ValueError, match=r"MoveOne\.n_proposals"):
        DPMixture(likelihood=Geometric(), sampler=MoveOne(n_proposals=0)).fit(X)


def test_same_seed_same_draws(Geometric, MoveOne):
    fits = []
    for n_jobs in (1, 2):
        model = DPMixture(likelihood=Geometric(), sampler=MoveOne(), n_warmup=10, n_draws=20)
        fits.append(fit_quietly(model.set_params(random_state=3, n_jobs=n_jobs), X_FIVE))
    np.testing.assert_array_equal(fits[0].label_samples_, fits[1].label_samples_)


def test_feature_likelihood_laws(PoissonSum):
    for likelihood, X in PoissonSum._examples():
        check_flips(likelihood, X)


def test_feature_likelihood_joint(PoissonSum, seed_sequence):
    """Under every sampler the joint law of Z and X stays, parameters drawn on the way."""
    runs = {
        name: counts_run(PoissonSum(0.3, 1.5, 0.7), cls().kernel())
        for name, cls in FEATURE_SAMPLERS.items()
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def counts_run(likelihood, kernel, n_starts=1_500):
    """The class of Z keeps its prior law under alternate steps of the chain and of X, and X[0, 0]
    that of a Poisson count given Z and the rates."""
    n, d, concentration = 3, 2, 0.7
    classes, probabilities = classes_of_buffet(n, 3, concentration)
    index = {c: j for j, c in enumerate(classes)}
    joint = np.outer(np.append(probabilities, 1 - probabilities.sum()), np.full(2, 0.5))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        prior = IndianBuffetPrior(n, concentration)
        counts = np.zeros(joint.shape, dtype=np.int64)
        for _ in range(n_starts * factor):
            Z = prior.draw(rng)
            W = rng.gamma(likelihood.shape, size=(Z.shape[1], d)) / likelihood.rate
            for _ in range(3):
                X = rng.poisson(likelihood.background + Z @ W).astype(float)
                model = likelihood.bind(likelihood.encode(X))
                model.load({"rates": W})
                state = FeatureState(model, prior, Z)
                kernel.run(state, bit_generator)
                state.update_params(bit_generator)
                Z, W = state.allocations(), model.save()["rates"]
            # The randomised distribution function of a count is uniform given Z and W.
            law = poisson(likelihood.background + (Z @ W)[0, 0])
            u = law.cdf(X[0, 0] - 1) + rng.random() * law.pmf(X[0, 0])
            counts[index.get(left_ordered(Z), len(classes)), int(2 * u)] += 1
        return Cells(counts, joint)

    return run


def test_feature_likelihood_in_an_estimator(PoissonSum):
    rng = np.random.default_rng(0)
    Z = rng.random((60, 2)) < 0.5
    X = rng.poisson(0.1 + Z @ [[20.0, 0.0, 10.0], [0.0, 15.0, 10.0]]).astype(float)
    model = FeatureAllocation(PoissonSum(rate=0.1), n_components=4, n_chains=2, random_state=0)
    model = fit_quietly(model.set_params(likelihood__shape=1.5), X)
    assert b_cubed_score(Z, model.allocations_) > 0.9
    assert model.rates_.shape == (model.n_components_, 3)
    assert len(model.rate_samples_[0]) == 250
    assert np.isfinite(model.score(X)) and not model.exact_
    with pytest.raises(ValueError, match=r"PoissonSum needs .*counts"):
        model.fit(X + 0.5)
