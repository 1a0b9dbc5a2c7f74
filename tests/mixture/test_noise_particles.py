"""A noise component in sequential Monte Carlo: particles, fits with SMC, and streams."""

import itertools
import warnings

import numpy as np
import pytest
from reference.noise import (
    NoisePosterior,
    log_box,
    log_noise_likelihood,
    log_noise_prior,
    log_open_box,
    noise_labels,
)
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from support.designs import combinations, everyday
from support.exactness import make_likelihood, make_prior
from support.noise import BETA, log_noise_of, noise_law, noise_of
from support.probes import audit
from support.pvalues import assert_p, mean_p, whole_of
from support.smc import CONCENTRATION_PRIOR, INTEGRATED, bind_rows, fitted, labels_of, sums_by_run

from skdpm import DPMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.state._state import MixtureState, Noise
from skdpm.papers._annealed import AnnealedSystem
from skdpm.papers.smc import AnnealedSMC

LIKELIHOODS = ("gaussian", "bernoulli", "negative_binomial", "categorical")
ANNEALING = {
    "dp": (9.0, 0.3),
    "pitman_yor": (-0.3, 0.4),
    "pitman_yor_negative": (7.0, 0.25),
    "finite": (30.0, 0.3),
    "mfm": (12.0, 0.3),
}
GAMMA = Gamma(*CONCENTRATION_PRIOR)


def new_system(prior, n_particles, scheme, threshold=1.0, noise=None, n_samples=5, **settings):
    name, params = PRIOR_CASES[prior]
    kernel = make_prior(name, n_samples, **params)
    return AnnealedSystem(n_particles, scheme, threshold, kernel, noise=noise, **settings)


def integrated_law(likelihood, prior):
    """The law with the concentration summed over the kernel's nodes."""
    case, (name, params) = enumeration_case(likelihood), PRIOR_CASES[prior]
    nodes, log_weights = concentration_nodes(GAMMA, 0.0625)
    params = {**params, "concentration": nodes}
    states = noise_labels(5)
    log_joint = [
        logsumexp(log_weights + log_noise_prior(labels, BETA, name, params))
        + log_noise_likelihood(case.X, labels, log_noise_of(likelihood), likelihood, case.params)
        for labels in states
    ]
    return NoisePosterior(states, np.array(log_joint))


@combinations(likelihood=LIKELIHOODS, prior=PRIOR_CASES, how=["fixed", "annealed", "integrated"])
def test_following_all_choices_is_enumeration(likelihood, prior, how):
    """With a particle for each state "optimal" drops none: weights are joint densities, and sum to
    the evidence."""
    if how == "integrated" and prior not in INTEGRATED:
        pytest.skip("the concentration cannot be learned")
    X = enumeration_case(likelihood).X
    settings = {
        "fixed": {},
        "annealed": {"annealing": ANNEALING[prior]},
        "integrated": {"concentration_prior": GAMMA},
    }[how]
    law = noise_law(likelihood, prior)
    if how == "integrated":
        law = integrated_law(likelihood, prior)
    system = new_system(prior, 203, "optimal", noise=noise_of(likelihood), **settings)
    system.begin([bind_rows(make_likelihood(likelihood), X)])
    system.run(np.random.PCG64(0), 0, 5)
    audit(system)
    assert system.n_resampled == 0
    assert abs(system.log_evidence - law.log_evidence) < 1e-10
    at = law.index(labels_of(system))
    assert len(set(at)) == system.n_current == np.isfinite(law.log_joint).sum()
    np.testing.assert_allclose(system.final_log_weights(), law.log_joint[at], atol=1e-10)
    if how != "fixed":
        return
    # Joint densities, also by way of a state, and back.
    kernel = make_prior(PRIOR_CASES[prior][0], 5, **PRIOR_CASES[prior][1])
    model = bind_rows(make_likelihood(likelihood), X)
    state = MixtureState(model, kernel, noise=noise_of(likelihood))
    order = np.array([3, 0, 4, 1, 2])
    moved = noise_of(likelihood).of(np.argsort(order))
    other = bind_rows(make_likelihood(likelihood), X[np.argsort(order)])
    other = MixtureState(other, kernel, noise=moved)
    for p in range(system.n_current):
        assert abs(system.log_joint_of(p, kernel) - law.log_joint[at[p]]) < 1e-10
        system.lend(p, state)
        assert abs(state.compute_log_joint() - law.log_joint[at[p]]) < 1e-10
        system.lend(p, other, order)
        assert abs(other.compute_log_joint() - law.log_joint[at[p]]) < 1e-10
        np.testing.assert_array_equal(other.cluster_labels()[order] < 0, system.labels_of(p) < 0)
        system.take(p, state)
    system.renew()
    audit(system)
    np.testing.assert_array_equal(law.index(labels_of(system)), at)
    assert abs(system.log_joint_of(0, kernel) - law.log_joint[at[0]]) < 1e-10


def particle_run(likelihood, prior, scheme, n_particles, law=None, n_runs=2_000, **settings):
    """Mean weights of particles by state are their joint densities."""
    integrated = "concentration_prior" in settings
    if law is None:
        law = integrated_law(likelihood, prior) if integrated else noise_law(likelihood, prior)
    X = enumeration_case(likelihood).X
    system = new_system(prior, n_particles, scheme, noise=noise_of(likelihood), **settings)
    model = bind_rows(make_likelihood(likelihood), X)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        labels, log_weights = [], []
        log_evidence = law.log_evidence
        for _ in range(whole_of(n_runs, factor)):
            system.begin([model])
            system.run(bit_generator, 0, 5)
            labels.append(labels_of(system))
            log_weights.append(system.final_log_weights() - log_evidence)
        cells = law.index(np.concatenate(labels))
        Y = sums_by_run(cells, log_weights, len(law.partitions))
        return mean_p(Y, law.probabilities)

    return run


PLAIN = [
    ("gaussian", "dp", "systematic", 3, {}),
    ("bernoulli", "mfm", "optimal", 5, {}),
    ("poisson", "pitman_yor", "stratified", 2, {"concentration_prior": GAMMA}),
    ("categorical", "finite", "multinomial", 3, {"annealing": ANNEALING["finite"]}),
]
REDRAWN = [
    ("gaussian", "dp", "systematic", 2, {"active_block": 3}),
    ("gaussian", "mfm", "optimal", 8, {"active_block": 2}),
    (
        "bernoulli",
        "pitman_yor",
        "systematic",
        3,
        {"active_block": 4, "annealing": (-0.3, 0.4)},
    ),
    ("poisson", "dp", "stratified", 2, {"active_block": 3, "concentration_prior": GAMMA}),
    ("gaussian", "finite", "systematic", 3, {"active_block": 4, "concentration_prior": GAMMA}),
]


@pytest.mark.parametrize(
    "likelihood, prior, scheme, n_particles, settings",
    everyday([*PLAIN, *REDRAWN], PLAIN[1], n_values=5),
)
@pytest.mark.long
def test_weights_are_unbiased(likelihood, prior, scheme, n_particles, settings, seed_sequence):
    """Few particles, resampled after every row, and old rows that are drawn again."""
    run = particle_run(likelihood, prior, scheme, n_particles, **settings)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("active_block", [0, 3])
def test_planted_errors_are_seen(active_block, seed_sequence):
    """Particles under a law with another beta or density."""
    for law in (
        noise_law("gaussian", "dp", beta=(1.2, 3.0)),
        noise_law("gaussian", "dp", shift=0.2),
    ):
        run = particle_run("gaussian", "dp", "systematic", 3, law, active_block=active_block)
        assert run(seed_sequence, 4) < 1e-4


@pytest.mark.parametrize("prior", everyday(INTEGRATED, "dp", "finite"))
@pytest.mark.parametrize("active_block", [0, 7])
def test_laws_of_the_concentration(prior, active_block):
    """Products of factors are the law in closed form, given the rows in clusters."""
    n = 80
    X = np.random.default_rng(3).integers(2, size=(n, 6)).astype(float)
    noise = Noise(2.0, 5.0, np.full(n, -4.2))
    settings = {"concentration_prior": GAMMA, "active_block": active_block, "noise": noise}
    system = new_system(prior, 4, "systematic", n_samples=n, **settings)
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    bit_generator = np.random.PCG64(1)
    system.run(bit_generator, 0, 40)
    again = new_system(prior, 4, "systematic", n_samples=n, **settings)
    again.set_state([bind_rows(make_likelihood("bernoulli"), X)], system.get_state())
    system = again
    system.run(bit_generator, 40, n)
    audit(system)
    name, params = PRIOR_CASES[prior]
    nodes, log_hyper = concentration_nodes(GAMMA, 0.0625)
    for p in range(4):
        assert 5 < system.n_noise_of(p) < 70
        sizes = system.sizes_of(p)
        log_law = log_hyper + log_eppf(sizes, name, **{**params, "concentration": nodes})
        expected = np.exp(log_law - logsumexp(log_law))
        np.testing.assert_allclose(system.concentration_weights(p)[1], expected, atol=1e-11)


def test_labels_of_many_clusters():
    """Noise stays noise where labels become wider."""
    n = 65_600
    noise = Noise(1.0, 9.0, np.full(n, -3.0))
    settings = {"noise": noise, "n_samples": n}
    system = new_system("dp", 1, "systematic", **settings)
    X = np.zeros((n, 1))
    model = bind_rows(make_likelihood("bernoulli"), X)
    stats = np.tile([1.0, *np.zeros(model.n_stats - 1)], (65_530, 1))
    labels = np.append(np.arange(65_530, dtype=np.uint16), [65_535]).astype(np.uint16)
    state = {
        "n_rows": 65_531,
        "sum_constants": 0.0,
        "n_resampled": 0,
        "log_w": np.zeros(1),
        "family": np.zeros(1, np.intp),
        "slots": [np.arange(65_530)],
        "stats": [stats],
        "labels": labels[None],
        "n_noise": [1],
        "log_outside": [-3.0],
    }
    system.set_state([model], state)
    assert system.labels_of(0)[-1] == -1
    saved = system.get_state()
    system.set_state([model], saved)
    assert (system.labels_of(0) < 0).sum() == 1
    wide = {**saved, "slots": [np.arange(65_540)], "stats": [np.tile(stats[:1], (65_540, 1))]}
    system.set_state([model], wide)
    assert system.all_labels().dtype == np.uint32
    np.testing.assert_array_equal(np.flatnonzero(system.labels_of(0) < 0), [65_530])


# Fits and streams.


def box_law(beta, prior="dp", box_rows=slice(None)):
    """The law of fits: noise is uniform on the box of some of the rows, and others are new."""
    case, (name, params) = enumeration_case("gaussian"), PRIOR_CASES[prior]
    states, log_noise = noise_labels(5), log_open_box(case.X[box_rows], case.X)
    log_noise[box_rows] = log_box(case.X[box_rows], case.X[box_rows])
    log_joint = [
        log_noise_prior(labels, beta, name, params)
        + log_noise_likelihood(case.X, labels, log_noise, "gaussian", case.params)
        for labels in states
    ]
    return NoisePosterior(states, np.array(log_joint))


def test_the_box_of_a_stream_is_that_of_rows_as_chains_see_them():
    X = np.repeat(np.arange(6.0), 10)[:, None]
    model = DPMixture(sampler="smc", noise=True, n_chains=1, n_draws=2, random_state=0)
    model.partial_fit(X)
    seen = np.asarray(model.likelihood_.as_seen(X, 0))
    assert np.ptp(seen) > 5.2
    np.testing.assert_allclose(
        model._run.noise_law.of(seen).log_density, log_box(seen, seen), atol=1e-12
    )
    assert np.isfinite(model._run.noise_law.of(seen).log_density).all()


@pytest.mark.parametrize("covariance_type", ["full", "tied", "diag", "spherical", "sparse"])
def test_all_rows_may_be_noise(covariance_type):
    """Hyperparameters are learned, and answers are given, without clusters."""
    X = np.random.default_rng(0).normal(size=(4, 5))
    likelihood = Gaussian(covariance_type=covariance_type)
    model = DPMixture(
        likelihood=likelihood,
        sampler=SMC(20),
        noise=True,
        concentration=1.0,
        n_chains=2,
        n_draws=20,
        random_state=3,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    assert (model.draws_["n_noise"] == 4).any()
    assert np.isfinite(model.score_samples(X)).all()
    assert (model.predict_proba(X).sum(axis=1) < 1.0).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(
            SMC(3, rejuvenation="gibbs", growth=1.01, resample_threshold=1.0),
            id="gibbs",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            SMC(2, growth=1.3, resample_threshold=1.0, resampling="stratified"), id="sams"
        ),
        pytest.param(
            AnnealedSMC(2, active_block=2, resample_threshold=1.0),
            id="block",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_fits_have_the_evidence_and_the_posterior(sampler, seed_sequence):
    """The evidence times the indicator of one draw has the joint density for its mean; with moves
    of whole particles, whose rows come in a random order."""
    beta, case = (1.0, 1.5), enumeration_case("gaussian")
    law = box_law(beta)
    common = law.probabilities > 0.02
    cells = np.where(common, np.cumsum(common), 0)
    expected = np.bincount(cells, weights=law.probabilities)

    def run(seed, factor):
        model = fitted(
            make_likelihood("gaussian"),
            "dp",
            case.X,
            sampler,
            concentration=PRIOR_CASES["dp"][1]["concentration"],
            noise=beta,
            n_chains=whole_of(300, factor),
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        at = law.index(model.label_samples_[:, 0])
        log_joint = model.log_joint_samples_[:, 0]
        np.testing.assert_allclose(log_joint, law.log_joint[at], atol=1e-9)
        Y = np.zeros((len(at), len(expected)))
        Y[np.arange(len(at)), cells[at]] = np.exp(model.log_evidence_chains_ - law.log_evidence)
        return mean_p(Y, expected)

    assert_p(run, seed_sequence=seed_sequence)


def test_a_fit_that_follows_all_choices():
    beta, case = (1.0, 1.5), enumeration_case("gaussian")
    law = box_law(beta)
    settings = {"concentration": PRIOR_CASES["dp"][1]["concentration"], "noise": beta}
    sampler = SMC(203, rejuvenation=None)
    model = fitted(make_likelihood("gaussian"), "dp", case.X, sampler, n_draws=8, **settings)
    assert model.log_evidence_ == pytest.approx(law.log_evidence, abs=1e-10)


@pytest.mark.long
def test_streams_follow_all_choices():
    """The box is that of the first batch; rows outside may be noise too. What is read off draws
    is that of the particles."""
    beta, case = (1.0, 1.5), enumeration_case("gaussian")
    law = box_law(beta, box_rows=slice(3))
    assert not np.isfinite(log_box(case.X[:3], case.X)).all()
    model = fitted(  # for its parameters
        make_likelihood("gaussian"),
        "dp",
        case.X,
        SMC(203),
        noise=beta,
        n_draws=40,
        concentration=PRIOR_CASES["dp"][1]["concentration"],
        point_estimate="map",
    )
    model.set_params(random_state=3)
    model._forget()
    del model._run
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.partial_fit(case.X[:3])
        model.partial_fit(case.X[3:])
    assert model.log_evidence_ == pytest.approx(law.log_evidence, abs=1e-10)
    of_noise = law.probabilities @ (law.partitions < 0)
    np.testing.assert_allclose(model.noise_probabilities_, of_noise[3:], atol=1e-10)
    found = np.round(model.log_joint_samples_, 8)
    assert np.isin(found, np.round(law.log_joint, 8)).all()
    rows = np.random.default_rng(0).uniform(-30.0, 30.0, size=(4, 2))
    weights = model.predict_proba(rows, new_cluster=True).sum(axis=1)
    assert (weights < 1.0).all()


def noisy_blobs(n_samples, seed, share=0.2):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n_samples)
    X = 12.0 * np.column_stack([labels % 2, labels // 2]) + rng.normal(size=(n_samples, 2))
    is_noise = rng.random(n_samples) < share
    X[is_noise] = rng.uniform(-8.0, 20.0, size=(is_noise.sum(), 2))
    labels[is_noise] = -1
    return X, labels


@pytest.mark.slow
def test_fits_find_noise():
    """Rows of noise are on blobs, too: the area is .943 to .967 with sixteen seeds."""
    X, labels = noisy_blobs(300, 0)
    model = DPMixture(sampler=SMC(60), noise=True, n_chains=2, n_draws=50, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X)
    assert model.n_clusters_ == 4
    assert roc_auc_score(labels < 0, model.noise_probabilities_) > 0.93
    scores = model.outlier_scores_
    assert roc_auc_score(model.labels_ < 0, scores) > 0.95
    n_noise = (model.label_samples_ < 0).sum(axis=2)
    np.testing.assert_array_equal(model.draws_["n_noise"], n_noise)


@pytest.mark.slow
def test_streams_find_noise():
    """Batches, also after a fit; results do not depend on how rows are batched."""
    X, labels = noisy_blobs(900, 1)
    settings = {"sampler": SMC(100), "noise": True, "n_chains": 2, "n_draws": 30}
    ends = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batches in ([200, 500, 900], [200, 331, 500, 900]):
            model = DPMixture(**settings, random_state=2)
            for first, stop in zip([0, *batches], batches, strict=False):
                model.partial_fit(X[first:stop])
            ends.append(model)
        fit = DPMixture(**settings, random_state=2).fit(X[:200]).partial_fit(X[200:])
    np.testing.assert_array_equal(ends[0].noise_probabilities_, ends[1].noise_probabilities_)
    np.testing.assert_array_equal(ends[0].labels_, ends[1].labels_)
    assert ends[0].labels_.shape == ends[0].noise_probabilities_.shape == (400,)
    for model, truth in ((ends[0], labels[500:]), (fit, labels[200:])):
        # Rows that came early stay where they are.
        assert roc_auc_score(truth < 0, model.noise_probabilities_) > 0.85
        assert adjusted_rand_score(truth, model.labels_) > 0.7
        shares = model.predict_proba(X)
        assert model.weights_.sum() == pytest.approx(0.8, abs=0.1)
        assert roc_auc_score(labels < 0, 1.0 - shares.sum(axis=1)) > 0.9
        _, drawn = model.sample(1_000)
        assert 0.1 < (drawn < 0).mean() < 0.3
        grid = np.linspace(-30.0, 45.0, 151)
        plane = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
        mass = np.exp(model.score_samples(plane)).sum() * 0.25
        assert mass == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("first", ["fit", "partial_fit"])
def test_streams_keep_the_law_of_noise_of_their_first_rows(first):
    """However later rows are divided; other first rows make another law."""
    X = np.random.default_rng(0).normal(size=(24, 2)) * np.linspace(1.0, 3.0, 24)[:, None]

    def stream(*edges):
        settings = {"n_draws": 2, "n_chains": 1, "random_state": 0}
        estimator = DPMixture(sampler=SMC(5), noise=True, **settings)
        getattr(estimator, first)(X[: edges[0]])
        for start, stop in itertools.pairwise((*edges, 24)):
            estimator.partial_fit(X[start:stop])
        return estimator

    whole, parts, other = stream(12), stream(12, 13, 20), stream(6)
    assert whole.log_evidence_ == parts.log_evidence_ != other.log_evidence_
    np.testing.assert_array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
