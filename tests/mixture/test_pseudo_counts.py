"""Learned pseudo-counts of likelihoods of discrete data, from the kernel to the estimator.

Where one number is learned, the joint law of partition and number is enumerated; where there are
several, values, partition and data drawn from the model must keep their law.
"""

import functools
import warnings

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.hyperparameters import learned_joint
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from support.pvalues import Cells, assert_p_matrix, chi_squared_p

from skdpm import FiniteMixture
from skdpm.mixture._state import MixtureState
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Multinomial
from skdpm.mixture.likelihoods.base import Gamma
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import BlockedGibbs, Gibbs

NAN = np.nan
# Likelihood, what is fixed, what is learned, rows.
CASES = {
    "bernoulli": (Bernoulli, {"b": 1.4}, "a", [[1], [1], [0], [1], [0]]),
    "bernoulli_missing": (Bernoulli, {"a": [0.6]}, "b", [[1], [NAN], [0], [0], [1]]),
    "categorical": (
        Categorical,
        {"n_categories": 3},
        "concentration",
        [[2], [2], [0], [1], [2]],
    ),
    "multinomial": (
        Multinomial,
        {"base": "uniform"},
        "concentration",
        [[2, 0, 2], [20, 0, 1], [1, 0, 2], [5, 0, 0], [0, 0, 0]],
    ),
    "multinomial_frequencies": (
        Multinomial,
        {"base": [0.6, 0.3, 2.1]},
        "concentration",
        [[2, 0, 2], [2, 0, 4], [1, 0, 2], [25, 0, 0], [0, 2, 0]],
    ),
}
EDGES = (0.3, 0.8, 1.6)
BLOCKS = FiniteMixture(3, sampler=BlockedGibbs(block_size=2), init="single", concentration=1.2)
PRIORS = {"rows": ("dp", {}), "blocks": ("finite", {"n_components": 3})}
GIBBS = Gibbs().kernel()


@functools.cache
def enumerated(name, program):
    """The law of partition and learned number: of the latter bins between EDGES, and a grid."""
    cls, fixed, learned, rows = CASES[name]
    X = np.array(rows, dtype=float)
    hyperprior = cls(**fixed).resolve(X).hyperpriors[learned]
    prior, params = PRIORS[program]
    return learned_joint(
        lambda labels, value: log_likelihood(
            X, labels, cls.__name__.lower(), **{**fixed, learned: value}
        ),
        lambda sizes: log_eppf(sizes, prior, concentration=1.2, **params),
        enumerate_partitions(len(X)),
        log_hyperprior=hyperprior.log_density,
        edges=EDGES,
    )


def counted(labels, values, law):
    """Partitions and bins of values as `Cells`."""
    seen = np.zeros(law.bins.shape, dtype=int)
    np.add.at(seen, (partition_index(labels), np.searchsorted(EDGES, values)), 1)
    return Cells(seen, law.bins)


def rows_run(name, cls=None, n_starts=2_000, n_steps=3):
    """A run for `assert_p`: starts from the posterior, some sweeps and draws of the number, which
    must follow it again."""
    likelihood_class, fixed, learned, rows = CASES[name]
    law = enumerated(name, "rows")
    X = np.array(rows, dtype=float)
    right = likelihood_class(**fixed).resolve(X)
    hyperpriors = (cls or likelihood_class)(**fixed).resolve(X).hyperpriors
    data = right.encode(X)
    prior = DirichletProcessPrior(len(X), 1.2)
    model = right.bind(data, right.tables(data, len(X)))
    state = MixtureState(model, prior, np.zeros(len(X), dtype=np.intp))
    h = model.hyper_names.index(learned)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels, values = law.draw(n_starts * factor, rng)
        for s in range(len(values)):
            hyper = model.hyperparameters()
            hyper[h] = values[s]
            model.set_hyperparameters(hyper)
            state.assign(labels[s].astype(np.intp))
            for _ in range(n_steps):
                GIBBS.run(state, rng.bit_generator)
                hyper = model.resample_hyperparameters(
                    state.cluster_slots(), hyperpriors, rng.bit_generator
                )
            labels[s], values[s] = state.cluster_labels(), hyper[h]
        return counted(canonical_labels(labels), values, law)

    return run


def blocks_run(name, cls=None, n_chains=250):
    """A run for `assert_p`: last draws of many chains, all from one cluster."""
    likelihood_class, fixed, learned, rows = CASES[name]
    law = enumerated(name, "blocks")

    def run(seed, factor):
        fit = BLOCKS.__sklearn_clone__().set_params(
            likelihood=(cls or likelihood_class)(**fixed),
            n_chains=n_chains * factor,
            n_warmup=24,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one draw tells nothing about mixing
            fit.fit(np.array(rows, dtype=float))
        labels = fit.label_samples_[:, 0].astype(int)
        return counted(labels, fit.hyperparameter_samples_[learned].reshape(len(labels)), law)

    return run


def test_partitions_and_pseudo_counts_keep_their_joint_posterior(seed_sequence):
    assert_p_matrix({name: rows_run(name) for name in CASES}, seed_sequence=seed_sequence)


def test_blocks_reach_the_joint_posterior(seed_sequence):
    assert_p_matrix(
        {name: blocks_run(name) for name in ("bernoulli", "multinomial_frequencies")},
        seed_sequence=seed_sequence,
    )


def wrong(cls, change):
    """A likelihood that draws its pseudo-counts under another prior than the documented one."""

    class Wrong(cls):
        def resolve(self, X):
            resolved = super().resolve(X)
            resolved._hyperpriors = {
                name: change(prior) for name, prior in resolved._hyperpriors.items()
            }
            return resolved

        def resolve_summary(self, summary):
            resolved = super().resolve_summary(summary)
            resolved._hyperpriors = {
                name: change(prior) for name, prior in resolved._hyperpriors.items()
            }
            return resolved

    return Wrong


PLANTED = {
    # The density of the logarithm without its Jacobian is that of a shape less by one.
    "no Jacobian": lambda prior: Gamma(prior.shape - 0.9, prior.rate),
    "wrong rate": lambda prior: Gamma(prior.shape, 3.0 * prior.rate),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("error", PLANTED)
def test_planted_hyperpriors_are_seen(error, name, seed_sequence):
    cls = wrong(CASES[name][0], PLANTED[error])
    cells = rows_run(name, cls, n_starts=4_000, n_steps=4)(seed_sequence, 1)
    assert chi_squared_p(*cells[:2]) < 1e-6


@pytest.mark.parametrize("error", PLANTED)
def test_planted_hyperpriors_are_seen_in_blocks(error, seed_sequence):
    cls = wrong(Bernoulli, PLANTED[error])
    assert chi_squared_p(*blocks_run("bernoulli", cls, 600)(seed_sequence, 1)[:2]) < 1e-6
