"""Concentrations that change while rows come in, the active block, and runs weighed anew."""

import warnings
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from reference.enumerate import canonical_labels, partition_index
from reference.likelihoods import LOG_MARGINALS, log_posterior
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES, enumeration_case
from reference.smc import blocks, filter_rows
from scipy.special import logsumexp
from sklearn.base import clone
from support.cases import fit_case, make_estimator
from support.designs import cover, everyday
from support.exactness import case_rows, make_likelihood, make_prior
from support.probes import audit
from support.pvalues import assert_p_matrix, mean_p, whole_of
from support.smc import (
    CONCENTRATION_PRIOR,
    INTEGRATED,
    all_labels,
    bind_rows,
    labels_of,
    log_evidence_at,
    sums_by_run,
)

from skdpm.hyperpriors import Gamma
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.particles.program import log_weights_at
from skdpm.papers._annealed import AnnealedSystem
from skdpm.papers.smc import AnnealedSMC


def enumerated(likelihood, prior, **changes):
    """The posterior of an enumeration case, some parameters of its prior changed."""
    name, params = PRIOR_CASES[prior]
    return log_posterior(
        case_rows(likelihood),
        likelihood,
        name,
        likelihood_params=enumeration_case(likelihood).params,
        prior_params={**params, **changes},
    )


@pytest.mark.parametrize(
    "prior, integrated",
    [(prior, False) for prior in PRIOR_CASES] + [(prior, True) for prior in INTEGRATED],
)
@pytest.mark.some(3)
def test_evidence_at_other_concentrations(prior, integrated):
    """From one run that follows all partitions: enumeration at each, also from its saved state."""
    name, params = PRIOR_CASES[prior]
    X = case_rows("bernoulli")
    kernel = make_prior(name, len(X), **params)
    gamma = Gamma(*CONCENTRATION_PRIOR) if integrated else None
    system = ParticleSystem(52, "optimal", 0.5, kernel, gamma)
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    concentrations = [0.1, 2.0, 35.0]
    expected = [
        enumerated("bernoulli", prior, concentration=concentration).log_evidence
        for concentration in concentrations
    ]
    actual = log_evidence_at(system, concentrations)
    np.testing.assert_allclose(actual, expected, atol=1e-10)
    chain = {"system": system.get_state()}
    again = logsumexp(log_weights_at(chain, kernel, concentrations, gamma), axis=1)
    np.testing.assert_allclose(again, expected, atol=1e-10)
    if not integrated:
        assert abs(log_evidence_at(system, [kernel.concentration]) - system.log_evidence) < 1e-12
    with pytest.raises(ValueError, match="finite and above"):
        log_evidence_at(system, [1.0, kernel.lowest_concentration])


# Concentrations of the first row, far from those of PRIOR_CASES, and rates.
ANNEALING = {
    "dp": (9.0, 0.3),
    "pitman_yor": (-0.3, 0.4),
    "pitman_yor_negative": (7.0, 0.25),
    "finite": (30.0, 0.3),
    "mfm": (12.0, 0.3),
}


def concentration_of(prior, n):
    """By the recursion of the paper."""
    last = PRIOR_CASES[prior][1]["concentration"]
    alpha, rate = ANNEALING[prior]
    for _ in range(n - 1):
        alpha += rate * (last - alpha)
    return alpha


@cache
def log_prior_of(prior, how, sizes):
    """log p(sizes): "fixed", "annealed" (at the concentration of so many rows) or "integrated"."""
    name, params = PRIOR_CASES[prior]
    if how == "fixed":
        return log_eppf(sizes, name, **params)
    if how == "annealed":
        params = {**params, "concentration": concentration_of(prior, sum(sizes))}
        return log_eppf(sizes, name, **params)
    nodes, log_weights = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    return logsumexp(log_weights + log_eppf(sizes, name, **{**params, "concentration": nodes}))


def annealed_system(prior, n_samples, *, n_particles, scheme, threshold=0.5, block=0):
    annealing = ANNEALING[prior]
    return new_system(
        prior, n_samples, n_particles, scheme, threshold, annealing=annealing, block=block
    )


def new_system(
    prior, n_samples, n_particles, scheme, threshold, *, gamma=None, annealing=None, block=0
):
    name, params = PRIOR_CASES[prior]
    kernel = make_prior(name, n_samples, **params)
    return AnnealedSystem(n_particles, scheme, threshold, kernel, gamma, annealing, block)


@pytest.mark.parametrize("prior", PRIOR_CASES)
def test_schedule(prior):
    """The concentration of n rows, also that of a system made from the state of another."""
    X = np.full((60, 1), np.nan)
    system = annealed_system(prior, 60, n_particles=3, scheme="systematic")
    assert system.concentration is not None
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    for n in (1, 2, 3, 20, 60):
        system.run(np.random.PCG64(n), system.n_rows, n)
        expected = concentration_of(prior, n)
        assert abs(system.concentration - expected) < 1e-12 * abs(expected)
        nodes, _ = system.concentration_weights(0)
        assert nodes == [system.concentration]
        state = system.get_state()
        system = annealed_system(prior, 60, n_particles=3, scheme="systematic")
        system.set_state([bind_rows(make_likelihood("bernoulli"), X)], state)
        assert system.concentration_weights(0)[0] == nodes


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_schedule_at_its_ends(rate):
    kernel = make_prior("dp", 9, concentration=0.25)
    system = AnnealedSystem(2, "systematic", 0.5, kernel, None, (8.0, rate))
    system.begin([bind_rows(make_likelihood("bernoulli"), np.full((9, 1), np.nan))])
    system.run(np.random.PCG64(0), 0, 1)
    assert system.concentration == 8.0
    system.run(np.random.PCG64(0), 1, 9)
    assert system.concentration == (8.0 if rate == 0.0 else 0.25)
    with pytest.raises(ValueError, match="fixed concentration"):
        AnnealedSystem(2, "systematic", 0.5, kernel, (1.0, 1.0), (8.0, rate))


@pytest.mark.parametrize("prior", PRIOR_CASES)
def test_annealed_enumeration(prior):
    """All partitions are followed: the ratios of priors cancel, but for the last of them. The
    weights that go on are joint densities under the last annealed prior."""
    X, posterior = case_rows("bernoulli"), enumerated("bernoulli", prior)
    system = annealed_system(prior, len(X), n_particles=52, scheme="optimal")
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    audit(system)
    assert abs(system.log_evidence - posterior.log_evidence) < 1e-10
    at = partition_index(all_labels(system))
    assert len(set(at)) == system.n_current == np.isfinite(posterior.log_joint).sum()
    log_w = posterior.log_joint[at]
    np.testing.assert_allclose(system.final_log_weights(), log_w, atol=1e-10)
    ess = np.exp(2 * logsumexp(log_w) - logsumexp(2 * log_w))
    assert abs(system.effective_sample_size - ess) < 1e-9
    annealed = enumerated("bernoulli", prior, concentration=concentration_of(prior, len(X)))
    np.testing.assert_allclose(system.log_weights(), annealed.log_joint[at], atol=1e-10)
    # From the annealed particles to any other concentration.
    other = enumerated("bernoulli", prior, concentration=2.5).log_evidence
    chain = {"system": system.get_state()}
    kernel = make_prior(PRIOR_CASES[prior][0], len(X), **PRIOR_CASES[prior][1])
    again = logsumexp(log_weights_at(chain, kernel, [2.5]), axis=1)
    for value in (log_evidence_at(system, [2.5]), again):
        assert abs(value - other) < 1e-10


WAYS = [
    (prior, how)
    for prior in PRIOR_CASES
    for how in ("fixed", "annealed", "integrated")
    if how != "integrated" or prior in INTEGRATED
]


@pytest.mark.parametrize("active_block", everyday([0, 1, 4], 4))
@pytest.mark.parametrize("prior, how", everyday(WAYS, *cover(WAYS), n_values=2))
@pytest.mark.some(2)
def test_filter_is_the_reference(prior, how, active_block):
    """The same uniform numbers give the same particles and weights, also where every part of the
    rows is taken by a system made from the state of another."""
    case = fit_case("bernoulli", n_samples=12)
    n_resampled = 0
    for n_particles, threshold, scheme in (
        (1, 0.5, "systematic"),
        (5, 1.0, "stratified"),
        (8, 0.6, "optimal"),
    ):
        model, state = bind_rows(case.likelihood, case.X), None
        bit_generator = np.random.PCG64(n_particles)
        for first, stop in ((0, 7), (7, 8), (8, 12)):
            system = new_system(
                prior,
                12,
                n_particles,
                scheme,
                threshold,
                gamma=Gamma(*CONCENTRATION_PRIOR) if how == "integrated" else None,
                annealing=ANNEALING[prior] if how == "annealed" else None,
                block=active_block,
            )
            if state is None:
                system.begin([model])
            else:
                system.set_state([model], state)
            system.run(bit_generator, first, stop)
            audit(system)
            state = system.get_state()
        expected = filter_rows(
            12,
            lambda rows: LOG_MARGINALS["bernoulli"](case.X[list(rows)], **case.params),
            lambda sizes: log_prior_of(prior, how, tuple(sorted(sizes))),
            np.random.Generator(np.random.PCG64(n_particles)).random,
            n_particles=n_particles,
            scheme=scheme,
            threshold=threshold,
            active_block=active_block,
        )
        np.testing.assert_array_equal(all_labels(system), canonical_labels(expected.labels))
        np.testing.assert_allclose(system.log_weights(), expected.log_w, atol=1e-9)
        sizes = [tuple(sorted(np.bincount(z))) for z in expected.labels]
        final = np.zeros(len(sizes))
        if how == "annealed":
            final = [log_prior_of(prior, "fixed", m) - log_prior_of(prior, how, m) for m in sizes]
        np.testing.assert_allclose(system.final_log_weights(), expected.log_w + final, atol=1e-9)
        n_resampled += expected.n_resampled
    assert n_resampled > 0


@pytest.mark.parametrize("n_block", [2, 4, 9, 50])
def test_active_blocks_are_cycles(n_block):
    """In every cycle each old row has its turn once."""
    n = 60
    system = new_system("dp", n, 2, "systematic", 0.5, block=n_block)
    system.begin([bind_rows(make_likelihood("bernoulli"), np.full((n, 1), np.nan))])
    turns, n_cycles, start = [], 0, 0
    for m, block in enumerate(blocks(n, n_block)):
        assert system.block_start == block.start == start
        system.run(np.random.PCG64(m), m, m + 1)
        turns += block
        start = block.stop
        if block.stop == m:
            assert turns == list(range(m))
            turns, start = [], 0
            n_cycles += 1
    assert n_cycles > 3


@pytest.mark.parametrize("prior", INTEGRATED)
def test_law_of_the_concentration_follows_the_block(prior):
    """After many rows that left and came back, products of factors are the law in closed form."""
    n = 60
    X = np.random.default_rng(3).integers(2, size=(n, 6)).astype(float)
    name, params = PRIOR_CASES[prior]
    system = new_system(prior, n, 4, "systematic", 0.8, gamma=Gamma(*CONCENTRATION_PRIOR), block=7)
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(1), 0, n)
    nodes, log_hyper = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    for p in range(4):
        sizes = system.sizes_of(p)
        log_law = log_hyper + log_eppf(sizes, name, **{**params, "concentration": nodes})
        expected = np.exp(log_law - logsumexp(log_law))
        np.testing.assert_allclose(system.concentration_weights(p)[1], expected, atol=1e-11)


@pytest.mark.parametrize(
    "prior, integrated",
    everyday([("dp", False), ("dp", True), ("finite", True)], ("dp", False), n_values=2),
)
def test_without_data_the_evidence_is_one(prior, integrated, monkeypatch):
    """Where clusters come and go; also where tables and nodes have to be made for more, and new
    memory holds no number."""
    make = np.empty
    monkeypatch.setattr(
        np,
        "empty",
        lambda shape, dtype=float: np.full_like(
            make(shape, dtype), np.nan if np.dtype(dtype).kind == "f" else 99
        ),
    )
    n = 100
    kernel = make_prior(prior, n, concentration=600.0, n_components=400)
    gamma = Gamma(600.0, 1.0) if integrated else None
    system = AnnealedSystem(3, "systematic", 1.0, kernel, gamma, active_block=9)
    system.begin([bind_rows(make_likelihood("bernoulli"), np.full((n, 1), np.nan))])
    system.run(np.random.PCG64(1), 0, n)
    audit(system)
    assert min(len(system.sizes_of(p)) for p in range(3)) > 64
    assert abs(system.log_evidence) < 1e-9


def test_an_outlier_of_one_particle():
    """Old rows that are drawn anew do not underflow next to a tight cluster of another
    particle."""
    X = np.repeat([[0.0], [1e4]], 4, axis=0)
    likelihood = make_likelihood("gaussian_diag").set_params(
        mean=0.0, mean_precision=1.0, df=400.0, scale=1e-12
    )
    models = [bind_rows(likelihood, X) for _ in range(2)]
    values = models[1].hyperparameters()
    values[-1] = 1e12
    models[1].set_hyperparameters(values)
    kernel = make_prior("finite", len(X), concentration=1.0, n_components=1)
    ends = []
    for active_block in (0, 3):
        system = AnnealedSystem(2, "systematic", 0.0, kernel, active_block=active_block)
        system.begin(models)
        system.run(np.random.PCG64(0), 0, len(X))
        ends.append(system.log_weights())
    np.testing.assert_allclose(ends[1], ends[0], rtol=1e-6)


def test_families_take_the_same_part():
    """Particles with kernels of their own, all alike, are those that share one."""
    case = fit_case("poisson", n_samples=30)
    ends = []
    for n_families in (1, 5):
        system = annealed_system(
            "finite", 30, n_particles=5, scheme="systematic", threshold=0.9, block=4
        )
        system.begin([bind_rows(case.likelihood, case.X) for _ in range(n_families)])
        system.run(np.random.PCG64(0), 0, 30)
        audit(system)
        assert system.n_resampled > 0
        ends.append(system)
    np.testing.assert_array_equal(all_labels(ends[1]), all_labels(ends[0]))
    np.testing.assert_allclose(ends[1].log_weights(), ends[0].log_weights(), atol=1e-9)


def test_a_block_needs_all_rows():
    system = new_system("dp", 9, 2, "systematic", 0.5, block=2)
    system.begin([bind_rows(make_likelihood("bernoulli"), np.zeros((9, 1)))])
    system.run(np.random.PCG64(0), 0, 4)
    with pytest.raises(ValueError, match="labels of all rows"):
        system.run(np.random.PCG64(0), 3, 5)
    state = {**system.get_state(), "labels": np.empty((2, 0), int)}
    system.set_state(system.models, state)
    with pytest.raises(ValueError, match="labels of all rows"):
        system.run(np.random.PCG64(0), 4, 5)


def unbiased_run(likelihood, prior, how, scheme, active_block):
    """A run for `assert_p`: the mean over systems of the final weight on each partition."""
    X, posterior = case_rows(likelihood), enumerated(likelihood, "dp")
    sizes = [tuple(sorted(np.bincount(z))) for z in posterior.partitions]
    final = "integrated" if how == "integrated" else "fixed"
    # Of another prior.
    log_joint = posterior.log_joint - [log_prior_of("dp", "fixed", m) for m in sizes]
    log_joint += [log_prior_of(prior, final, m) for m in sizes]
    log_evidence = logsumexp(log_joint)
    probabilities = np.exp(log_joint - log_evidence)
    system = new_system(
        prior,
        len(X),
        3,
        scheme,
        1.0,
        gamma=Gamma(*CONCENTRATION_PRIOR) if how == "integrated" else None,
        annealing=ANNEALING[prior] if how == "annealed" else None,
        block=active_block,
    )
    model = bind_rows(make_likelihood(likelihood), X)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        n_runs, n_resampled = whole_of(1_000, factor), 0
        labels, log_weights = [], []
        for _ in range(n_runs):
            system.begin([model])
            system.run(bit_generator, 0, len(X))
            n_resampled += system.n_resampled
            labels.append(labels_of(system))
            log_weights.append(system.final_log_weights() - log_evidence)
        assert n_resampled > n_runs / 2
        cells = partition_index(np.concatenate(labels))
        return mean_p(sums_by_run(cells, log_weights, len(probabilities)), probabilities)

    return run


@pytest.mark.slow
def test_unbiased(seed_sequence):
    """Three particles, resampled before every draw: on average the weight on each partition is
    its joint density."""
    designs = [
        ("bernoulli", "dp", "annealed", "systematic", 0),
        ("gaussian", "pitman_yor", "fixed", "stratified", 2),
        ("poisson", "finite", "annealed", "multinomial", 3),
        ("categorical", "mfm", "annealed", "optimal", 2),
        ("bernoulli", "finite", "integrated", "systematic", 2),
        ("gaussian", "dp", "integrated", "systematic", 9),
    ]
    runs = {" ".join(map(str, design)): unbiased_run(*design) for design in designs}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_outputs_of_an_annealed_fit():
    """All partitions are followed, far from the concentration of the model: each output is of the
    model, also where rows come in batches."""
    X, x_new = case_rows("bernoulli"), np.array([[1.0, 0.0, 1.0], [0.0, 1.0, np.nan]])
    posterior = enumerated("bernoulli", "dp", concentration=0.1)
    annealed = enumerated("bernoulli", "dp", concentration=12.0)
    n_clusters = posterior.partitions.max(axis=1) + 1.0
    mean_clusters = posterior.probabilities @ n_clusters
    assert annealed.probabilities @ n_clusters > mean_clusters + 1.0
    sampler = AnnealedSMC(
        52, active_block=0, initial_concentration=20.0, annealing_rate=0.1, resample_threshold=0.5
    )
    settings = {"concentration": 0.1, "n_draws": 100, "n_chains": 1, "point_estimate": "map"}
    estimator = make_estimator(make_likelihood("bernoulli"), sampler=sampler, **settings)
    log_score = [
        log_posterior(
            np.vstack([X, x]),
            "bernoulli",
            "dp",
            likelihood_params=enumeration_case("bernoulli").params,
            prior_params={"concentration": 0.1},
        ).log_evidence
        - posterior.log_evidence
        for x in x_new
    ]
    ess = 1.0 / (posterior.probabilities**2).sum()
    for stops in ((5,), (3, 5), (1, 2, 5)):
        for how in ("fit", "partial_fit"):
            estimator = clone(estimator)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                getattr(estimator, how)(X[: stops[0]])
                for first, stop in pairwise(stops):
                    estimator.partial_fit(X[first:stop])
            np.testing.assert_allclose(
                estimator.log_evidence_chains_, posterior.log_evidence, atol=1e-9
            )
            assert abs(estimator.effective_sample_size_[0] - ess) < 1e-6
            # Draws are spread evenly over the weights.
            assert abs(estimator.n_components_samples_.mean() - mean_clusters) < 0.1
            np.testing.assert_allclose(estimator.score_samples(x_new), log_score, atol=0.05)
            assert (estimator.concentration_samples_ == 0.1).all()
            if hasattr(estimator, "label_samples_"):
                at = partition_index(estimator.label_samples_[0].astype(int))
                shares = np.bincount(at, minlength=52) / 100
                np.testing.assert_allclose(shares, posterior.probabilities, atol=0.03)
                np.testing.assert_allclose(
                    estimator.log_joint_samples_[0], posterior.log_joint[at], atol=1e-9
                )
