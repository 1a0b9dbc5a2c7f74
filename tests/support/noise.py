"""What tests of the noise component share: laws of five rows that can be enumerated."""

import numpy as np
from reference.noise import log_noise_posterior
from reference.simulate import PRIOR_CASES, enumeration_case

from skdpm.mixture.state._state import Noise
from support.cases import LEVELS

BETA = (1.5, 3.0)


def log_noise_of(likelihood):
    """Log densities of the five rows as noise: near those of a cluster, different for each."""
    n_samples = len(enumeration_case(likelihood).X)
    return LEVELS[likelihood] + np.linspace(-0.8, 0.8, n_samples)


def noise_of(likelihood, shift=0.0):
    """The law of noise of the five rows, for kernels."""
    return Noise(*BETA, log_noise_of(likelihood) + shift)


def noise_law(likelihood, prior, beta=BETA, shift=0.0, **changes):
    name, params = PRIOR_CASES[prior]
    case = enumeration_case(likelihood)
    return log_noise_posterior(
        case.X,
        likelihood,
        name,
        likelihood_params=case.params,
        prior_params={**params, **changes},
        log_noise=log_noise_of(likelihood) + shift,
        beta=beta,
    )
