"""Every sampler with every likelihood and every prior, against enumerated posteriors.

Five rows have 52 partitions, so the posterior is known exactly, from a reference that imports no
kernel. Invariance: starts drawn from the posterior follow it after a few iterations too.
Convergence: so do chains from one fixed partition. `test_power.py` shows what these tests see.
"""

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from support.cases import make_estimator
from support.designs import cover, everyday
from support.exactness import (
    IN_DEPTH,
    MANY_ITERATIONS,
    N_ITERATIONS,
    OF_ALL_ROWS,
    SAMPLER_CASES,
    VARIANTS,
    case_posterior,
    case_state,
    cells,
    complete_names,
    convergence_run,
    estimator_run,
    invariance_run,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
    moves_rows,
    record_worst,
)
from support.pvalues import assert_p_matrix

from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.samplers import SAMPLERS

SAMPLER_OBJECTS = [
    pytest.param(name, sampler, id=repr(sampler))
    for name, samplers in SAMPLER_CASES.items()
    for sampler in samplers
]


def test_matrix_is_complete():
    """A registered likelihood or sampler without a line in the matrix is an error."""
    names = likelihood_names()
    assert {VARIANTS.get(name, name) for name in names} >= set(LIKELIHOODS) - OF_ALL_ROWS
    assert set(SAMPLER_CASES) == {name for name, cls in SAMPLERS.items() if moves_rows(cls)}
    joint = [s for samplers in SAMPLER_CASES.values() for s in samplers if s.requires == "joint"]
    for sampler in joint:
        assert len(cells(sampler)) == len(names) * len(PRIOR_CASES) + len(complete_names())


@pytest.mark.parametrize("name, sampler", SAMPLER_OBJECTS)
@pytest.mark.long
def test_invariance(name, sampler, seed_sequence, record_property):
    """Starts drawn from the posterior still follow it after one, two and three iterations. With
    each likelihood and each prior; `test_invariance_in_depth` runs over all pairs of them."""
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            sampler.kernel(),
            case_posterior(likelihood, prior),
            n_starts=2_000,
        )
        for likelihood, prior in cover(cells(sampler))
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


STARTS = ("single", "singletons")


def convergence_runs(name, sampler, cells, starts, n_steps=30_000):
    """Runs of chains from one cluster, or from as many clusters as the prior allows; `starts` of
    the number of a cell has names in STARTS. `n_steps` of all chains of a cell together."""
    runs = {}
    n_iterations = N_ITERATIONS.get(name, MANY_ITERATIONS)
    for number, (likelihood, prior) in enumerate(cells):
        posterior = case_posterior(likelihood, prior)
        for start in starts(number):
            if start == "single":
                labels = np.zeros(5, dtype=np.int64)
            else:
                labels = np.minimum(np.arange(5), PRIOR_CASES[prior][1].get("n_components", 5) - 1)
            runs[f"{likelihood} {prior} {start}"] = convergence_run(
                case_state(likelihood, prior),
                sampler.kernel(),
                posterior,
                labels,
                n_chains=n_steps // n_iterations,
                n_iterations=n_iterations,
            )
    return runs


# Those of which every iteration is several moves of the others converge with them.
OF_OTHERS = ("alternate", "arm")


@pytest.mark.parametrize(
    "name, sampler", [case for case in SAMPLER_OBJECTS if case.values[0] not in OF_OTHERS]
)
def test_convergence(name, sampler, seed_sequence, record_property):
    """Chains from either start, in turn, reach the posterior."""
    covering = cover(cells(sampler))
    runs = convergence_runs(
        name, sampler, covering, lambda number: STARTS[number % 2 :][:1], 12_000
    )
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("name, sampler", SAMPLER_OBJECTS)
def test_convergence_from_every_start(name, sampler, seed_sequence, record_property):
    runs = convergence_runs(name, sampler, cells(sampler), lambda number: STARTS)
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, sampler", everyday(SAMPLER_OBJECTS, "Gibbs()", "SAMS(gibbs_sweeps=0)", n_values=2)
)
def test_rare_clusters(name, sampler, seed_sequence, record_property):
    """A second cluster of probability 0.04 and 0.001 (no data speak for it): what is next to
    impossible must not become impossible, as by dropping small weights."""
    n = 5
    nothing = np.full((n, 1), np.nan)
    runs = {}
    for concentration, n_starts in ((0.02, 10_000), (5e-4, 50_000)):
        posterior = log_posterior(
            nothing,
            "bernoulli",
            "dp",
            likelihood_params=enumeration_case("bernoulli").params,
            prior_params={"concentration": concentration},
        )
        state = make_state(
            make_likelihood("bernoulli"), nothing, make_prior("dp", n, concentration=concentration)
        )
        runs[f"{concentration}"] = invariance_run(
            state, sampler.kernel(), posterior, n_starts=n_starts
        )
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("name, sampler", SAMPLER_OBJECTS)
def test_invariance_in_depth(name, sampler, seed_sequence, record_property):
    """The same with many times the starts."""
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            sampler.kernel(),
            case_posterior(likelihood, prior),
            n_starts=IN_DEPTH if name == "gibbs" else 20_000,
        )
        for likelihood, prior in cells(sampler)
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def case_run(likelihood, prior_case, *, resampled, n_chains):
    """`estimator_run` of a case of the matrix."""
    prior, params = PRIOR_CASES[prior_case]
    estimator = make_estimator(make_likelihood(likelihood), prior_case)
    n_warmup = 30 if resampled else N_ITERATIONS["gibbs"]
    return estimator_run(
        estimator,
        likelihood,
        prior,
        params,
        resampled=resampled,
        n_chains=n_chains,
        n_warmup=n_warmup,
    )


def test_estimators_sample_the_posterior(seed_sequence, record_property):
    """`fit` of DPMixture and FiniteMixture with many chains: the law of the partition or, where
    the concentration is resampled, of both."""
    designs = [
        ("relational", "dp", True),
        ("gaussian", "pitman_yor", True),
        ("bernoulli", "finite", False),
    ]
    runs = {
        f"{likelihood} {prior} {resampled}": case_run(
            likelihood, prior, resampled=resampled, n_chains=1_500
        )
        for likelihood, prior, resampled in designs
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_estimators_sample_every_posterior(seed_sequence, record_property):
    """The same with every likelihood and prior; every second time the concentration is
    resampled."""
    runs = {}
    for k, likelihood in enumerate(likelihood_names()):
        for j, (prior, (_, params)) in enumerate(PRIOR_CASES.items()):
            resampled = (k + j) % 2 == 0 and params["concentration"] > 0
            runs[f"{likelihood} {prior} {resampled}"] = case_run(
                likelihood, prior, resampled=resampled, n_chains=1_500
            )
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_cases_cover_all_partitions():
    """No case is so concentrated that the matrix would test a handful of partitions only."""
    for likelihood in likelihood_names():
        for prior in PRIOR_CASES:
            posterior = case_posterior(likelihood, prior)
            assert len(posterior.partitions) == len(enumerate_partitions(5)) == 52
            assert (20_000 * posterior.probabilities >= 5).sum() >= 15
