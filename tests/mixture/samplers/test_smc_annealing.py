"""Concentrations that change while rows come in, the active block, and runs weighed anew."""

import numpy as np
import pytest
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from support.exactness import case_rows, make_likelihood, make_prior
from support.kernels import bind

from skdpm.mixture._particles import log_weights_at
from skdpm.mixture.samplers._smc import ParticleSystem

CONCENTRATION_PRIOR = (2.0, 0.8)
INTEGRATED = [name for name, (_, params) in PRIOR_CASES.items() if params["concentration"] > 0]


def bind_rows(likelihood, X):
    likelihood = likelihood.resolve(X)
    return bind(likelihood, likelihood.encode(X), len(X))


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
