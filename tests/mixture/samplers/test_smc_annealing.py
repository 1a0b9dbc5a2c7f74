"""Concentrations that change while rows come in, the active block, and runs weighed anew."""

from functools import cache

import numpy as np
import pytest
from reference.enumerate import canonical_labels, partition_index
from reference.likelihoods import LOG_MARGINALS, log_posterior
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES, enumeration_case
from reference.smc import blocks, filter_rows
from scipy.special import logsumexp
from support.cases import fit_case
from support.exactness import case_rows, make_likelihood, make_prior
from support.kernels import bind

from skdpm.mixture._particles import log_weights_at
from skdpm.mixture.samplers._smc import ParticleSystem, concentration_nodes

CONCENTRATION_PRIOR = (2.0, 0.8)
INTEGRATED = [name for name, (_, params) in PRIOR_CASES.items() if params["concentration"] > 0]


def bind_rows(likelihood, X):
    likelihood = likelihood.resolve(X)
    return bind(likelihood, likelihood.encode(X), len(X))


def all_labels(system):
    return canonical_labels([system.labels_of(p) for p in range(system.n_current)])


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
def test_evidence_at_other_concentrations(prior, integrated):
    """From one run that follows all partitions: enumeration at each, also from its saved state."""
    name, params = PRIOR_CASES[prior]
    X = case_rows("bernoulli")
    kernel = make_prior(name, len(X), **params)
    gamma = CONCENTRATION_PRIOR if integrated else None
    system = ParticleSystem(52, "optimal", 0.5, kernel, gamma)
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    concentrations = [0.1, 2.0, 35.0]
    expected = [
        enumerated("bernoulli", prior, concentration=concentration).log_evidence
        for concentration in concentrations
    ]
    actual = system.log_evidence_at(concentrations)
    np.testing.assert_allclose(actual, expected, atol=1e-10)
    chain = {"system": system.get_state()}
    again = logsumexp(log_weights_at(chain, kernel, concentrations, gamma), axis=1)
    np.testing.assert_allclose(again, expected, atol=1e-10)
    if not integrated:
        assert abs(system.log_evidence_at([kernel.concentration]) - system.log_evidence) < 1e-12
    with pytest.raises(ValueError, match="finite and above"):
        system.log_evidence_at([1.0, kernel.lowest_concentration])


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
    nodes, log_weights = concentration_nodes(*CONCENTRATION_PRIOR, 0.0625)
    return logsumexp(log_weights + log_eppf(sizes, name, **{**params, "concentration": nodes}))


def annealed_system(prior, n_samples, *, n_particles, scheme, threshold=0.5):
    return new_system(prior, n_samples, n_particles, scheme, threshold, annealing=ANNEALING[prior])


def new_system(prior, n_samples, n_particles, scheme, threshold, *, gamma=None, annealing=None):
    name, params = PRIOR_CASES[prior]
    kernel = make_prior(name, n_samples, **params)
    return ParticleSystem(n_particles, scheme, threshold, kernel, gamma, annealing)


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
    system = ParticleSystem(2, "systematic", 0.5, kernel, None, (8.0, rate))
    system.begin([bind_rows(make_likelihood("bernoulli"), np.full((9, 1), np.nan))])
    system.run(np.random.PCG64(0), 0, 1)
    assert system.concentration == 8.0
    system.run(np.random.PCG64(0), 1, 9)
    assert system.concentration == (8.0 if rate == 0.0 else 0.25)
    with pytest.raises(ValueError, match="fixed concentration"):
        ParticleSystem(2, "systematic", 0.5, kernel, (1.0, 1.0), (8.0, rate))


@pytest.mark.parametrize("prior", PRIOR_CASES)
def test_annealed_enumeration(prior):
    """All partitions are followed: the ratios of priors cancel, but for the last of them. The
    weights that go on are joint densities under the last annealed prior."""
    X, posterior = case_rows("bernoulli"), enumerated("bernoulli", prior)
    system = annealed_system(prior, len(X), n_particles=52, scheme="optimal")
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    system.audit()
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
    for value in (system.log_evidence_at([2.5]), again):
        assert abs(value - other) < 1e-10


WAYS = [
    (prior, how)
    for prior in PRIOR_CASES
    for how in ("fixed", "annealed", "integrated")
    if how != "integrated" or prior in INTEGRATED
]


@pytest.mark.parametrize("active_block", [0, 1, 3, 20])
@pytest.mark.parametrize("prior, how", WAYS)
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
                gamma=CONCENTRATION_PRIOR if how == "integrated" else None,
                annealing=ANNEALING[prior] if how == "annealed" else None,
            )
            if state is None:
                system.begin([model])
            else:
                system.set_state([model], state)
            system.run(bit_generator, first, stop, active_block)
            system.audit()
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
    system = new_system("dp", n, 2, "systematic", 0.5)
    system.begin([bind_rows(make_likelihood("bernoulli"), np.full((n, 1), np.nan))])
    turns, n_cycles, start = [], 0, 0
    for m, block in enumerate(blocks(n, n_block)):
        assert system.block_start == block.start == start
        system.run(np.random.PCG64(m), m, m + 1, n_block)
        turns += block
        start = block.stop
        if block.stop == m:
            assert turns == list(range(m))
            turns, start = [], 0
            n_cycles += 1
    assert n_cycles > 3
