"""Joint distribution tests: alternating model and sampler leaves the prior (Geweke 2004), and
ranks of the truth among posterior draws are uniform (Talts et al. 2018)."""

import itertools
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.likelihoods import log_likelihood, log_posterior_concentration
from reference.priors import log_eppf
from reference.simulate import (
    PRIOR_CASES,
    enumeration_case,
    simulate_data,
    simulate_partitions,
)
from scipy.stats import ks_2samp
from support.cases import make_estimator
from support.exactness import (
    SAMPLER_CASES,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
)
from support.pvalues import assert_p, assert_p_matrix, chi_squared_p, correct_for_number

from skdpm.hyperpriors import Gamma

CONCENTRATION_PRIOR = (1.6, 1.1)


def graphs(n, directed):
    pairs = [(i, j) for i in range(n) for j in range(n) if (i != j if directed else i < j)]
    for links in itertools.product([0.0, 1.0], repeat=len(pairs)):
        A = np.zeros((n, n))
        for (i, j), link in zip(pairs, links, strict=True):
            A[i, j] = link
            if not directed:
                A[j, i] = link
        yield A


def tables(n, rows):
    yield from (np.array(X, dtype=float) for X in itertools.product(rows, repeat=n))


class Design(NamedTuple):
    """A model whose data sets can all be listed."""

    likelihood: str
    params: dict  # over those of the enumeration case
    simulation: dict  # further keywords of `simulate_data`
    data: list


DESIGNS = {
    "relational": Design("relational", {}, {}, list(graphs(4, False))),
    "relational_directed": Design("relational_directed", {}, {}, list(graphs(3, True))),
    "bernoulli": Design(
        "bernoulli",
        {},
        {"n_features": 2},
        list(tables(3, [(0, 0), (0, 1), (1, 0), (1, 1)])),
    ),
    "categorical": Design(
        "categorical",
        {"n_categories": [2, 3]},
        {"n_features": 2},
        list(tables(3, list(itertools.product(range(2), range(3))))),
    ),
    "multinomial": Design(
        "multinomial",
        {},
        {"n_features": 3, "totals": [1, 1, 1, 1]},
        list(tables(4, [(1, 0, 0), (0, 1, 0), (0, 0, 1)])),
    ),
}


def joint_run(
    name, prior_case, sampler, *, n_chains=4_000, n_alternations=5, planted=None, planted_rate=None
):
    """A run for `assert_p`: (concentration, partition, X) from the prior, then alternations of
    one iteration of a chain given X and of X given the partition. The end has the law of the
    start, which is known: cells (partition, X) and (partition, bin of the concentration).

    `planted`, a dict, and `planted_rate`: hyperparameters of the chain, but not of the model.
    """
    design = DESIGNS[name]
    prior, params = PRIOR_CASES[prior_case]
    params = {key: value for key, value in params.items() if key != "concentration"}
    hyper = {**enumeration_case(design.likelihood).params, **design.params}
    n = len(design.data[0])
    partitions = enumerate_partitions(n)

    # The law of partition and concentration: the posterior where no entry was observed.
    shape, rate = CONCENTRATION_PRIOR
    law = log_posterior_concentration(
        np.full((n, 1), np.nan),
        "bernoulli",
        prior,
        likelihood_params={"a": 1.0, "b": 1.0},
        prior_params=params,
        concentration_prior=CONCENTRATION_PRIOR,
    )
    p_data = np.exp(
        [
            [log_likelihood(X, labels, design.likelihood, **hyper) for X in design.data]
            for labels in partitions
        ]
    )
    p_data /= p_data.sum(axis=1, keepdims=True)
    joint_law = law.probabilities.sum(axis=1)[:, None] * p_data

    partition_prior = make_prior(prior, n, concentration=1.0, **params)
    likelihood = make_likelihood(design.likelihood, **{**design.params, **(planted or {})})
    states = [make_state(likelihood, X, partition_prior) for X in design.data]
    index = {X.tobytes(): x for x, X in enumerate(design.data)}
    kernel = sampler.kernel()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        size = round(n_chains * factor)
        concentration = rng.gamma(shape, 1 / rate, size=size)
        labels = simulate_partitions(prior, n, size, rng, concentration=concentration, **params)

        def draw_data():
            X = simulate_data(design.likelihood, labels, rng, **design.simulation, **hyper)
            return [index[x.tobytes()] for x in X]

        data = draw_data()
        for _ in range(n_alternations):
            for s in range(size):
                state = states[data[s]]
                partition_prior.set_concentration(concentration[s])
                state.assign(labels[s])
                kernel.run(state, rng.bit_generator)
                partition_prior.resample(
                    state.cluster_sizes(), Gamma(shape, planted_rate or rate), rng.bit_generator
                )
                labels[s] = state.cluster_labels()
                concentration[s] = partition_prior.concentration
            labels = canonical_labels(labels)
            data = draw_data()
        with_data = np.zeros(joint_law.shape, dtype=np.int64)
        np.add.at(with_data, (partition_index(labels), data), 1)
        p = [
            chi_squared_p(with_data, joint_law / joint_law.sum()),
            chi_squared_p(law.count(labels, concentration), law.probabilities),
        ]
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(s, id=repr(s), marks=[pytest.mark.slow] if name == "arm" else [])
        for name, cases in SAMPLER_CASES.items()
        for s in cases
    ],
)
def test_model_and_sampler_agree(sampler, seed_sequence, record_property):
    """Sweeps, updates of the concentration and fresh data, from prior to prior."""
    runs = {
        f"{name} {prior}": joint_run(name, prior, sampler)
        for name in DESIGNS
        if DESIGNS[name].likelihood in likelihood_names()
        and sampler.requires in make_likelihood(DESIGNS[name].likelihood).capabilities
        for prior in ("dp", "pitman_yor", "finite")
        if prior == "dp" or name in ("relational", "bernoulli")
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, planted",
    [
        ("relational", {"planted": {"a": 3.0}}),
        ("relational_directed", {"planted": {"b": 5.0}}),
        ("relational", {"planted_rate": 1.4}),
    ],
)
def test_wrong_hyperparameters_are_seen(name, planted, seed_sequence):
    """The power of the above. So few rows say little about a likelihood's hyperparameters; see
    the enumerations, and the larger networks below."""
    run = joint_run(name, "dp", SAMPLER_CASES["gibbs"][0], n_chains=20_000, **planted)
    assert run(seed_sequence, 1) < 1e-6


def network_run(name, planted=None, *, n=14, n_chains=3_000, n_alternations=5):
    """As `joint_run`, on networks too large for an enumeration: the end is compared with fresh
    draws from the prior, by functions of partition, network and concentration."""
    case = enumeration_case(name)
    shape, rate = CONCENTRATION_PRIOR
    likelihood = make_likelihood(name, **(planted or {}))
    partition_prior = make_prior("dp", n, concentration=1.0)
    kernel = SAMPLER_CASES["gibbs"][0].kernel()

    def functions(concentration, labels, X, rng):
        together = labels[:, :, None] == labels[:, None, :]
        values = [
            concentration,
            labels.max(axis=1) + 1,
            X.sum(axis=(1, 2)),
            (X * together).sum(axis=(1, 2)) / together.sum(axis=(1, 2)),
            ((X @ together.astype(float)) ** 2).sum(axis=(1, 2)),
        ]
        return [v + 1e-9 * rng.random(len(v)) for v in values]  # without ties

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))

        def draw(size):
            concentration = rng.gamma(shape, 1 / rate, size=size)
            labels = simulate_partitions("dp", n, size, rng, concentration=concentration)
            return concentration, labels, simulate_data(name, labels, rng, **case.params)

        fresh = functions(*draw(round(40_000 * factor)), rng)
        concentration, labels, X = draw(round(n_chains * factor))
        for _ in range(n_alternations):
            for s in range(len(labels)):
                partition_prior.set_concentration(concentration[s])
                state = make_state(likelihood, X[s], partition_prior, labels[s])
                kernel.run(state, rng.bit_generator)
                partition_prior.resample(
                    state.cluster_sizes(), Gamma(shape, rate), rng.bit_generator
                )
                labels[s] = state.cluster_labels()
                concentration[s] = partition_prior.concentration
            labels = canonical_labels(labels)
            X = simulate_data(name, labels, rng, **case.params)
        ends = functions(concentration, labels, X, rng)
        p = [ks_2samp(*pair).pvalue for pair in zip(ends, fresh, strict=True)]
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", ["relational", "relational_directed"])
def test_networks(name, seed_sequence):
    assert_p(network_run(name), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, planted", [("relational", {"a": 0.9}), ("relational_directed", {"b": 1.4})]
)
def test_wrong_link_probabilities_are_seen(name, planted, seed_sequence):
    assert network_run(name, planted)(seed_sequence, 1) < 1e-6


def sbc_ranks(likelihood, prior_case, seed, *, n_replicates, n_draws=19):
    """Ranks (n_replicates, 4) of the true concentration, number of clusters, log joint and
    co-clustering of two rows among the draws of a fit, ties broken at random."""
    rng = np.random.default_rng(seed)
    case = enumeration_case(likelihood)
    prior, params = PRIOR_CASES[prior_case]
    params = {key: value for key, value in params.items() if key != "concentration"}
    n = 8
    simulation = {"n_features": case.X.shape[1]}
    if likelihood == "multinomial":
        simulation["totals"] = np.arange(1, n + 1)
    if likelihood == "categorical":
        simulation["n_features"] = 2
    shape, rate = CONCENTRATION_PRIOR
    ranks = np.empty((n_replicates, 4), dtype=np.int64)
    for r in range(n_replicates):
        concentration = rng.gamma(shape, 1 / rate)
        labels = simulate_partitions(prior, n, 1, rng, concentration=concentration, **params)[0]
        X = simulate_data(likelihood, labels, rng, **simulation, **case.params)
        estimator = make_estimator(
            make_likelihood(likelihood),
            prior_case,
            resampled=True,
            concentration_prior=CONCENTRATION_PRIOR,
            n_warmup=100,
            n_draws=n_draws,
            thin=20,
            n_chains=1,
            point_estimate="last",
            random_state=int(rng.integers(2**31)),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            estimator.fit(X)
        draws = estimator.label_samples_[0]
        log_prior = log_eppf(np.bincount(labels), prior, concentration=concentration, **params)
        pairs = [
            (concentration, estimator.concentration_samples_[0]),
            (labels.max() + 1, estimator.n_components_samples_[0]),
            (
                log_prior + log_likelihood(X, labels, likelihood, **case.params),
                # Equal partitions at equal concentrations differ in the last digits.
                estimator.log_joint_samples_[0],
            ),
            (labels[0] == labels[1], draws[:, 0] == draws[:, 1]),
        ]
        for q, (truth, values) in enumerate(pairs):
            ties = np.count_nonzero(values == truth)
            ranks[r, q] = np.count_nonzero(values < truth) + rng.integers(ties + 1)
    return ranks


@pytest.mark.slow
def test_simulation_based_calibration(seed_sequence, record_property):
    """The whole estimator, from data simulated from the prior: uniform ranks."""
    names = ("concentration", "n_components", "log_joint", "pair")
    cells = [(likelihood, "dp") for likelihood in likelihood_names()]
    cells += [("relational", "finite"), ("gaussian", "pitman_yor"), ("bernoulli", "finite")]

    def make_run(likelihood, prior):
        def run(seed, factor):
            ranks = sbc_ranks(likelihood, prior, seed, n_replicates=round(500 * factor))
            p = [
                chi_squared_p(np.bincount(ranks[:, q], minlength=20), np.full(20, 1 / 20))
                for q in range(len(names))
            ]
            return correct_for_number(min(p), len(p))

        return run

    runs = {f"{likelihood} {prior}": make_run(likelihood, prior) for likelihood, prior in cells}
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))
