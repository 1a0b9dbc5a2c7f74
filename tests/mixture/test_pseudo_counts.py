"""Learned pseudo-counts of likelihoods of discrete data, from the kernel to the estimator.

Where one number is learned, the joint law of partition and number is enumerated; where there are
several, values, partition and data drawn from the model must keep their law.
"""

import functools
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.hyperparameters import learned_joint
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from support.pvalues import Cells, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import Bernoulli, Categorical
from skdpm.mixture.samplers import BlockedGibbs

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
}
EDGES = (0.3, 0.8, 1.6)
ROWS = (
    DPMixture(sampler="gibbs", init="single"),
    ("pitman_yor", {"discount": 0.0}),
    1_500,
)
BLOCKS = (
    FiniteMixture(3, sampler=BlockedGibbs(block_size=2), init="single"),
    ("finite", {"n_components": 3}),
    400,
)


@functools.cache
def enumerated(name, prior):
    """The law of partition and bin of the learned number."""
    cls, fixed, learned, rows = CASES[name]
    X = np.array(rows, dtype=float)
    hyperprior = cls(**fixed).resolve(X).hyperpriors[learned]
    prior, params = prior
    return learned_joint(
        lambda labels, value: log_likelihood(
            X, labels, cls.__name__.lower(), **{**fixed, learned: value}
        ),
        lambda sizes: log_eppf(sizes, prior, concentration=1.2, **dict(params)),
        enumerate_partitions(len(X)),
        log_hyperprior=hyperprior.log_density,
        edges=EDGES,
    )


def enumeration_run(name, program, error=None):
    """A run for `assert_p`: last draws of many chains against the enumerated posterior."""
    cls, fixed, learned, rows = CASES[name]
    estimator, (prior, params), n_chains = program
    law = enumerated(name, (prior, tuple(params.items())))

    def run(seed, factor):
        fit = estimator.__sklearn_clone__().set_params(
            likelihood=(error or cls)(**fixed),
            concentration=1.2,
            n_chains=n_chains * factor,
            n_warmup=40,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one draw tells nothing about mixing
            fit.fit(np.array(rows, dtype=float))
        index = [partition_index(labels) for labels in fit.label_samples_[:, 0].astype(int)]
        values = fit.hyperparameter_samples_[learned].reshape(len(index))
        seen = np.zeros(law.shape, dtype=int)
        np.add.at(seen, (index, np.searchsorted(EDGES, values)), 1)
        return Cells(seen, law)

    return run


@pytest.mark.parametrize("program", [ROWS, BLOCKS], ids=["rows", "blocks"])
def test_partitions_and_pseudo_counts_follow_their_joint_posterior(program, seed_sequence):
    assert_p_matrix(
        {
            name: enumeration_run(name, program)
            for name in CASES
            if program is ROWS or "instantiated" in CASES[name][0].capabilities
        },
        seed_sequence=seed_sequence,
    )
