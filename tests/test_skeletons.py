"""The skeletons of doc/: what lives outside skdpm, likelihoods, a sampler and a partition prior,
built and tested.

They are compiled against the skdpm that is installed, as a stranger's would be, and then pass
what skdpm's own likelihoods, samplers and priors must pass.
"""

import importlib
import sys
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index, partition_sizes
from reference.features import classes_of_buffet, left_ordered
from reference.likelihoods import PartitionPosterior, log_likelihoods
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy import stats
from scipy.special import betaln, logsumexp
from scipy.stats import poisson
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from support.exactness import (
    SAMPLER_CASES,
    case_posterior,
    case_state,
    convergence_run,
    invariance_run,
    make_likelihood,
    make_prior,
    make_state,
)
from support.flips import check_flips
from support.kernels import bind
from support.probes import Probe
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p
from support.skeletons import build

from skdpm import DPMixture, FeatureAllocation
from skdpm.features.priors import IndianBuffetPrior
from skdpm.features.samplers import SAMPLERS as FEATURE_SAMPLERS
from skdpm.features.state._state import FeatureState
from skdpm.hyperpriors import Gamma
from skdpm.metrics import b_cubed_score
from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.samplers import SAMPLERS

pytestmark = pytest.mark.slow  # four packages to compile


@pytest.fixture(scope="module")
def skeletons(tmp_path_factory):
    """The classes Geometric, MoveOne and PoissonSum and the module skdpm_gnedin, freshly built."""
    folder = tmp_path_factory.mktemp("skeletons")
    build("likelihood", folder)
    build("sampler", folder)
    build("feature_likelihood", folder)
    build("prior", folder)
    sys.path.insert(0, str(folder))
    try:
        yield (
            importlib.import_module("skdpm_geometric").Geometric,
            importlib.import_module("skdpm_move_one").MoveOne,
            importlib.import_module("skdpm_poisson_sum").PoissonSum,
            importlib.import_module("skdpm_gnedin"),
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


@pytest.fixture
def gnedin(skeletons):
    return skeletons[3]


def log_marginal(X, a, b):
    """log p(X | the rows form one cluster), the columns' probabilities integrated out."""
    return (betaln(a + len(X), b + X.sum(axis=0)) - betaln(a, b)).sum()


def probe_of(likelihood, X, n_slots=4):
    likelihood = likelihood.resolve(X)
    return Probe(bind(likelihood, likelihood.encode(X), len(X)), n_slots)


def test_likelihood_laws(Geometric, seed_sequence):
    """Predictives add up to marginals; removing, merging, copying do what their names say."""
    rng = np.random.default_rng(seed_sequence)
    for likelihood, X in (
        (Geometric(), rng.geometric(0.3, size=(12, 3)) - 1.0),
        (Geometric(a=0.7, b=2.5), rng.geometric([0.05, 0.8], size=(12, 2)) - 1.0),
    ):
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
    assert model.cluster_params_["probabilities"].shape == (model.n_clusters_, 2)
    grid = np.stack(np.meshgrid(np.arange(400.0), np.arange(400.0)), axis=-1).reshape(-1, 2)
    assert 0.9 < np.exp(model.score_samples(grid)).sum() < 1 + 1e-9
    drawn, labels = model.sample(50)
    assert drawn.shape == (50, 2) and set(labels) <= set(range(model.n_clusters_))
    np.testing.assert_array_equal(model.predict(drawn), model.predict_proba(drawn).argmax(axis=1))


def test_in_a_particle_system(Geometric, MoveOne):
    """A stream in several batches is the stream in one, to the bit; and particles move by a
    sampler from elsewhere."""
    X = np.random.default_rng(0).geometric(0.3, size=(60, 2)) - 1.0
    sampler = SAMPLERS["smc"](12, rejuvenation=MoveOne())
    evidence = []
    for cuts in ([], [1, 30]):
        model = DPMixture(likelihood=Geometric(1.0, 0.5), sampler=sampler, random_state=0)
        for rows in np.split(X, cuts):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.partial_fit(rows)
        evidence.append(model.log_evidence_chains_)
    np.testing.assert_array_equal(*evidence)
    moved = fit_quietly(model, X)
    assert (moved.acceptance_rate_["move_one"] > 0).all()
    assert abs(moved.log_evidence_ - evidence[0].mean()) < 10.0


def test_bad_input(Geometric, MoveOne):
    X = np.ones((4, 2))
    with pytest.raises(ValueError, match=r"Geometric needs counts 0, 1, 2, ...; column 1.* 0\.5"):
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


def log_eppf_gnedin(sizes, concentration):
    """Gnedin (2010), eq. 9: products only, with c = 1 / (1 + concentration)."""
    n, k, c = sum(sizes), len(sizes), 1 / (1 + np.asarray(concentration, dtype=float)[..., None])
    i, m = np.arange(1, k), np.arange(1, n)
    log_v = np.log(c + np.arange(n - k)).sum(-1) + np.log(i * (i - c)).sum(-1)
    log_v -= np.log(m * (m + c)).sum(-1)
    return log_v + sum(np.log(np.arange(1, size + 1)).sum() for size in sizes)


@pytest.mark.parametrize("concentration", [0.05, 1.0, 30.0])
def test_prior_laws(gnedin, concentration):
    """Tables and EPPF agree with the paper's, sum to 1, and those of n items are the sums of those
    of n + 1, of which the weights are the ratios."""
    for n in (1, 2, 5, 7):
        prior = gnedin.GnedinPrior(n, concentration)
        state = make_state(SAMPLE_NOTHING, np.full((n, 1), np.nan), prior)
        total = 0.0
        for labels in enumerate_partitions(n):
            sizes = np.bincount(labels)
            log_p = prior.log_probability(sizes)
            assert log_p == pytest.approx(log_eppf_gnedin(sizes, concentration), abs=1e-12)
            state.assign(labels)
            assert state.compute_log_joint() == pytest.approx(log_p, abs=1e-12)
            joined = [sizes + one for one in np.eye(len(sizes), dtype=int)]
            steps = [prior.log_probability(s) for s in [*joined, np.append(sizes, 1)]]
            np.testing.assert_allclose(
                prior.log_weights(sizes), np.array(steps) - log_p, atol=1e-12
            )
            total += np.exp(log_p)
        assert total == pytest.approx(1.0, abs=1e-12)


SAMPLE_NOTHING = LIKELIHOODS["bernoulli"]()


def gnedin_run(gnedin, likelihood, sampler, concentration, *, planted=1.0, resampled=False):
    """A run for `assert_p`: the chain keeps the enumerated posterior under Gnedin's prior, or that
    of partition and binned concentration; `planted` times the concentration is the chain's."""
    case = enumeration_case(likelihood)
    partitions = enumerate_partitions(5)
    log_data = log_likelihoods(case.X, likelihood, **case.params)
    # The concentration has one value, or many, equally probable ones of its prior.
    shape, rate = 2.0, 1.0
    grid = stats.gamma.ppf((np.arange(2000) + 0.5) / 2000, shape, scale=1 / rate)
    values = grid if resampled else np.array([concentration])
    log_p = log_data[:, None] + [
        log_eppf_gnedin(sizes[sizes > 0], values) for sizes in partition_sizes(partitions)
    ]
    p = np.exp(log_p - logsumexp(log_p))
    n_bins = 4 if resampled else 1
    law = p.reshape(len(p), n_bins, -1).sum(axis=-1)
    edges = stats.gamma.ppf(np.arange(1, n_bins) / n_bins, shape, scale=1 / rate)
    prior = gnedin.GnedinPrior(5, 1.0)
    state = make_state(make_likelihood(likelihood), case.X, prior)
    kernel = sampler.kernel()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        starts = rng.choice(p.size, size=round(6_000 * factor), p=p.ravel())
        counts = np.zeros(law.shape, dtype=np.int64)
        for start in starts:
            labels, value = np.divmod(start, len(values))
            prior.set_concentration(planted * values[value])
            state.assign(partitions[labels])
            kernel.run(state, rng.bit_generator)
            if resampled:
                prior.resample(
                    state.cluster_sizes(), Gamma(planted * shape, rate), rng.bit_generator
                )
            cell = partition_index(state.cluster_labels())
            counts[cell, np.digitize(prior.concentration, edges)] += 1
        return Cells(counts, law)

    return run


def test_prior_enumeration(gnedin, seed_sequence):
    """Every sampler that needs no weights keeps the enumerated posterior."""
    runs = {}
    for sampler in (s for cases in SAMPLER_CASES.values() for s in cases):
        for likelihood in ("bernoulli", "gaussian", "relational"):
            if sampler.requires in make_likelihood(likelihood).capabilities:
                runs[f"{sampler!r} {likelihood}"] = gnedin_run(gnedin, likelihood, sampler, 1.5)
    gibbs = SAMPLERS["gibbs"]()
    runs["resampled"] = gnedin_run(gnedin, "bernoulli", gibbs, 1.5, resampled=True)
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.parametrize("resampled", [False, True])
def test_enumeration_sees_a_wrong_prior(gnedin, resampled, seed_sequence):
    gibbs = SAMPLERS["gibbs"](n_sweeps=2)
    run = gnedin_run(gnedin, "bernoulli", gibbs, 1.5, planted=1.6, resampled=resampled)
    cells = run(seed_sequence, 3)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def test_prior_in_an_estimator(gnedin):
    rng = np.random.default_rng(0)
    truth = np.arange(60) % 2
    X = rng.normal(size=(60, 2)) + 6 * truth[:, None]
    model = fit_quietly(clone(gnedin.GnedinMixture(n_chains=2, random_state=0)), X)
    assert v_measure_score(truth, model.labels_) == 1.0
    assert 0.0 < model.weights_.sum() < 1.0
    assert len(np.unique(model.concentration_samples_)) > 100
    assert np.isfinite(model.score(X))
    with pytest.raises(ValueError, match="concentration must be finite and > 0"):
        model.set_params(concentration=0.0).fit(X)
    with pytest.raises(ValueError, match=r"SubCluster draws the weights.*GnedinPrior"):
        gnedin.GnedinMixture(sampler="sub_cluster").fit(X)


def test_feature_likelihood_laws(PoissonSum):
    rng = np.random.default_rng(0)
    check_flips(PoissonSum(), rng.poisson(2.0, size=(6, 3)).astype(float))
    check_flips(PoissonSum(0.5, 2.0, 0.3), rng.poisson(20.0, size=(5, 1)).astype(float))


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
        for _ in range(round(n_starts * factor)):
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
    model = FeatureAllocation(
        likelihood=PoissonSum(rate=0.1), n_components=4, n_chains=2, random_state=0
    )
    model = fit_quietly(model.set_params(likelihood__shape=1.5), X)
    assert b_cubed_score(Z, model.allocations_) > 0.9
    assert model.rates_.shape == (model.n_components_, 3)
    assert len(model.rate_samples_[0]) == model.draws_.n_draws
    assert np.isfinite(model.score(X)) and not model.exact_
    with pytest.raises(ValueError, match=r"PoissonSum needs .*counts"):
        model.fit(X + 0.5)
