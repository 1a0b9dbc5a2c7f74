"""What the statistical tests see: each planted error must make them fail.

A statistical test without a demonstrated failure does not count. The errors here need no other
build: the chain runs under another prior, likelihood or sampler than the enumerated posterior.
"""

import numpy as np
import pytest
from reference.enumerate import partition_sizes
from reference.likelihoods import log_posterior_concentration
from reference.priors import log_eppf, log_eppf_finite
from reference.simulate import COVARIANCE_NAMES, PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from scipy.stats import poisson
from support.exactness import (
    IN_DEPTH,
    SAMPLER_CASES,
    case_posterior,
    case_state,
    convergence_run,
    invariance_run,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
)
from support.pvalues import assert_p, assert_p_matrix, chi_squared_p

from skdpm.hyperpriors import Gamma

pytestmark = pytest.mark.slow  # what other tests are able to find

GIBBS = SAMPLER_CASES["gibbs"][0]

# Sizes of errors, if not 1.25. The prior of the means is wide under a fixed covariance, so small
# shifts of it hardly change the law of partitions.
FACTORS = {"gaussian": 1.4, "gaussian_tied": 1.75, "gaussian_sparse": 1.5}


# Starts with which errors of ten percent are looked for: few, then those of the tests in depth.
N_STARTS = 20_000, IN_DEPTH


def p_value(run, seed_sequence, factor=1):
    counts, probabilities, *_ = run(seed_sequence.spawn(1)[0], factor)
    return chi_squared_p(counts, probabilities)


def planted_run(name, prior_case, likelihood_changes, prior_changes, **options):
    """Starts from the posterior of a case, and a chain with some other hyperparameters."""
    prior, params = PRIOR_CASES[prior_case]
    state = make_state(
        make_likelihood(name, **likelihood_changes),
        enumeration_case(name).X,
        make_prior(prior, 5, **{**params, **prior_changes}),
    )
    return invariance_run(state, GIBBS.kernel(), case_posterior(name, prior_case), **options)


def prior_errors(prior_case, factor):
    """Each hyperparameter of a prior times a factor, and errors that no factor gives."""
    params = PRIOR_CASES[prior_case][1]
    for key, value in params.items():
        if key == "n_components_prior":
            yield {key: "geometric"}
        else:
            yield {key: value + 1 if key == "n_components" else value * factor}
    if params.get("discount") and params["concentration"] > 0:
        yield {"discount": 0.0}


def likelihood_errors(name, factor):
    """Each hyperparameter of a likelihood times a factor (means: that much further)."""
    params = enumeration_case(name).params
    for key, value in params.items():
        if key == "n_categories":
            yield {key: [value[0], value[1] + 1]}
        elif key == "mean":
            for d, by in enumerate((factor - 1, 1 - factor)):
                yield {key: [v + by * (place == d) for place, v in enumerate(value)]}
        elif key == "n_parents":
            yield {key: value - 1}
        elif isinstance(value, list):
            yield {key: (np.array(value) * factor).tolist()}
        elif key == "genotype_prior":
            yield {key: "total"}
        elif key not in ("covariance_type", "directed", "density", "n_grid") and not callable(
            value
        ):
            yield {key: value * factor}
    if {"a", "b"} <= set(params):
        yield {"a": params["b"], "b": params["a"]}
    if name == "gaussian":
        yield {"scale": [[1.2, -0.4], [-0.4, 0.8]]}


def case_ids(change):
    return str(change) if isinstance(change, dict) else None


@pytest.mark.parametrize(
    "prior, changes",
    [
        (prior, changes)
        for prior in PRIOR_CASES
        # With an unknown number of components the concentration says less of partitions.
        for changes in prior_errors(prior, 2.0 if prior == "mfm" else 1.25)
    ],
    ids=case_ids,
)
def test_wrong_prior(prior, changes, seed_sequence):
    run = planted_run("categorical", prior, {}, changes, n_iterations=2)
    assert p_value(run, seed_sequence) < 1e-6


@pytest.mark.parametrize(
    "name, changes",
    [
        (name, changes)
        for name in (*likelihood_names(), *COVARIANCE_NAMES)
        for changes in likelihood_errors(name, FACTORS.get(name, 1.25))
    ],
    ids=case_ids,
)
def test_wrong_likelihood(name, changes, seed_sequence):
    run = planted_run(name, "dp", changes, {}, n_iterations=2)
    assert p_value(run, seed_sequence) < 1e-6


@pytest.mark.parametrize(
    "name, prior",
    [
        (name, prior)
        for name in likelihood_names()
        for prior in PRIOR_CASES
        if prior == "dp" or name in ("bernoulli", "gaussian", "relational")
    ],
)
def test_errors_of_ten_percent(name, prior, seed_sequence):
    """Every hyperparameter of every likelihood, and every prior under likelihoods of three kinds,
    as `test_invariance_in_depth` runs them; of the mixture of finite mixtures larger errors."""
    errors = [(changes, {}) for changes in likelihood_errors(name, 1.1) if prior == "dp"]
    # An unknown number of components leaves few clusters, whose number says less.
    prior_factor = 2.0 if prior == "mfm" else 1.1
    errors += [({}, changes) for changes in prior_errors(prior, prior_factor)]
    for error in errors:
        # Most errors show in fewer starts.
        runs = (planted_run(name, prior, *error, n_starts=n, n_iterations=2) for n in N_STARTS)
        assert any(p_value(run, seed_sequence) < 1e-6 for run in runs), error


def test_failing_stages(seed_sequence):
    """A planted error does not only have a small p-value: `assert_p` raises."""
    run = planted_run("bernoulli", "dp", {}, {"concentration": 1.7})
    with pytest.raises(AssertionError, match="do not follow the law"):
        assert_p(run, seed_sequence=seed_sequence)


def test_missing_entry_taken_for_a_value(seed_sequence):
    X = enumeration_case("bernoulli").X
    prior, params = PRIOR_CASES["dp"]
    filled = np.where(np.isnan(X), 0.0, X)
    state = make_state(make_likelihood("bernoulli"), filled, make_prior(prior, 5, **params))
    run = invariance_run(state, GIBBS.kernel(), case_posterior("bernoulli", "dp"))
    assert p_value(run, seed_sequence) < 1e-6


def test_finite_prior_without_the_number_of_labellings(seed_sequence):
    """The right kernel against a law without k0!/(k0 - j)!, where a new cluster would weigh a
    instead of (k0 - j) a (errata 1)."""
    posterior = case_posterior("bernoulli", "finite")
    n_clusters = (partition_sizes(posterior.partitions) > 0).sum(axis=1)
    labellings = np.array([1, 3, 6, 6, 1, 1])[n_clusters]  # k0 = 3; more clusters have p = 0
    wrong = posterior.probabilities / labellings
    with np.errstate(divide="ignore"):
        law = posterior._replace(log_prob=np.log(wrong / wrong.sum()))
    run = invariance_run(case_state("bernoulli", "finite"), GIBBS.kernel(), law)
    assert p_value(run, seed_sequence) < 1e-6


@pytest.mark.parametrize("error", ["total", "ratio"])
def test_mixture_of_finite_mixtures_with_another_law(error, seed_sequence):
    """The right kernel against laws that a plausible mistake would give: the concentration split
    over the components, or V without the factor of the concentration per cluster."""
    posterior = case_posterior("bernoulli", "mfm")
    _, params = PRIOR_CASES["mfm"]
    concentration = params["concentration"]
    sizes = [row[row > 0] for row in partition_sizes(posterior.partitions)]
    if error == "total":
        log_pmf = poisson(1, loc=1).logpmf
        terms = [
            [log_eppf_finite(s, concentration, k) + log_pmf(k) for k in range(1, 30)]
            for s in sizes
        ]
        wrong = logsumexp(terms, axis=1)
    else:
        wrong = np.array([log_eppf(s, "mfm", **params) for s in sizes])
        wrong = wrong - np.log(concentration) * np.array([len(s) for s in sizes])
    right = np.array([log_eppf(s, "mfm", **params) for s in sizes])
    log_prob = posterior.log_prob + wrong - right
    law = posterior._replace(log_prob=log_prob - logsumexp(log_prob))
    run = invariance_run(case_state("bernoulli", "mfm"), GIBBS.kernel(), law, n_iterations=2)
    assert p_value(run, seed_sequence) < 1e-6


def test_too_many_clusters_are_impossible(seed_sequence):
    """One visit to a partition of probability 0 fails at once."""
    prior, params = PRIOR_CASES["finite"]
    wrong = make_prior(prior, 5, **{**params, "n_components": 5})
    state = make_state(make_likelihood("bernoulli"), enumeration_case("bernoulli").X, wrong)
    run = invariance_run(
        state, GIBBS.kernel(), case_posterior("bernoulli", "finite"), n_starts=200
    )
    assert p_value(run, seed_sequence) == 0


def test_one_wrong_cell_fails_the_matrix(seed_sequence):
    """One of many runs is enough."""
    prior, params = PRIOR_CASES["dp"]
    wrong = make_prior(prior, 5, concentration=1.2 * params["concentration"])
    X = enumeration_case("bernoulli").X
    runs = {
        f"{name} {p}": invariance_run(
            case_state(name, p), GIBBS.kernel(), case_posterior(name, p), n_starts=2_000
        )
        for name in likelihood_names()
        for p in PRIOR_CASES
    }
    runs["planted"] = invariance_run(
        make_state(make_likelihood("bernoulli"), X, wrong),
        GIBBS.kernel(),
        case_posterior("bernoulli", "dp"),
        n_starts=60_000,
    )
    with pytest.raises(AssertionError, match=f"1 of {len(runs)} runs") as error:
        assert_p_matrix(runs, seed_sequence=seed_sequence)
    assert "planted" in str(error.value)


# Samplers.


class Idle:
    """A sampler that does nothing."""

    def run(self, state, bit_generator):
        pass


class FirstRowOnly:
    """Leaves the posterior invariant and is not irreducible: row 4 stays with its partners."""

    def __init__(self):
        self.kernel = GIBBS.kernel()

    def run(self, state, bit_generator):
        before = state.cluster_labels()
        self.kernel.run(state, bit_generator)
        after = state.cluster_labels()
        if not np.array_equal(before[-1] == before[:-1], after[-1] == after[:-1]):
            state.assign(before)


class Greedy:
    """Keeps a sweep only where it does not lower the log joint."""

    def __init__(self):
        self.kernel = GIBBS.kernel()

    def run(self, state, bit_generator):
        before, log_joint = state.cluster_labels(), state.compute_log_joint()
        self.kernel.run(state, bit_generator)
        if state.compute_log_joint() < log_joint - 3.0:
            state.assign(before)


@pytest.mark.parametrize("sampler", [Idle, FirstRowOnly])
@pytest.mark.parametrize("start", [[0, 0, 0, 0, 0], [0, 1, 2, 3, 4]])
def test_sampler_that_does_not_reach_all(sampler, start, seed_sequence):
    """Passes the invariance form, fails the convergence form."""
    posterior, state = case_posterior("bernoulli", "dp"), case_state("bernoulli", "dp")
    run = convergence_run(state, sampler(), posterior, start, n_chains=2_000)
    assert p_value(run, seed_sequence) < 1e-6
    if sampler is Idle:
        run = invariance_run(state, sampler(), posterior, n_starts=5_000)
        assert_p(run, seed_sequence=seed_sequence)


def test_sampler_that_is_not_invariant(seed_sequence):
    run = invariance_run(
        case_state("gaussian", "dp"), Greedy(), case_posterior("gaussian", "dp"), n_starts=5_000
    )
    assert p_value(run, seed_sequence) < 1e-6


def test_too_few_iterations(seed_sequence):
    """Chains that have not forgotten their start fail the convergence form."""
    run = convergence_run(
        case_state("gaussian", "dp"),
        GIBBS.kernel(),
        case_posterior("gaussian", "dp"),
        [0, 0, 0, 0, 0],
        n_chains=2_000,
        n_iterations=1,
    )
    assert p_value(run, seed_sequence) < 1e-6


# The update of the concentration.


@pytest.mark.parametrize("prior", ["dp", "pitman_yor", "finite", "mfm"])
@pytest.mark.parametrize("error", ["shape", "rate", "sizes", "ten_times"])
def test_wrong_update_of_the_concentration(prior, error, seed_sequence):
    shape, rate = 2.0, 0.8
    name, params = PRIOR_CASES[prior]
    params = {key: value for key, value in params.items() if key != "concentration"}
    case = enumeration_case("categorical")
    law = log_posterior_concentration(
        case.X,
        "categorical",
        name,
        likelihood_params=case.params,
        prior_params=params,
        concentration_prior=(shape, rate),
    )
    kernel = make_prior(name, 5, concentration=1.0, **params)
    wrong_shape = 1.2 * shape if error == "shape" else shape
    wrong_rate = 1.2 * rate if error == "rate" else rate

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        labels, concentration = law.draw(round(20_000 * factor), rng)
        sizes = partition_sizes(labels)
        for s, row in enumerate(sizes):
            row = row[row > 0]
            if error == "sizes" and len(row) > 1:  # the last two clusters taken for one
                row = np.append(row[:-2], row[-2:].sum())
            if error == "ten_times":  # as often is every row counted
                row = 10 * row
            kernel.set_concentration(concentration[s])
            kernel.resample(row, Gamma(wrong_shape, wrong_rate), rng.bit_generator)
            concentration[s] = kernel.concentration
        return law.count(labels, concentration), law.probabilities

    assert p_value(run, seed_sequence) < 1e-6
