"""What tests of known labels share: laws of five rows that can be enumerated."""

from functools import partial

import numpy as np
from reference.gaps import log_known
from reference.likelihoods import LOG_MARGINALS, log_posterior
from reference.noise import log_noise_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp

from support.noise import BETA, log_noise_of

# Of five rows: two classes, three classes, and a class of which all other rows may be.
CODES = {
    "two": np.array([0, -1, 1, -1, 0]),
    "three": np.array([1, -1, 0, 2, -1]),
    "one": np.array([-1, 0, -1, -1, -1]),
}


def united(labels, codes):
    """Whether a component of labels has rows of two classes."""
    known = codes >= 0
    pairs = np.unique(np.column_stack([labels[known], codes[known]]), axis=0)
    return len(np.unique(pairs[:, 0])) < len(pairs)


def allowed(partitions, codes):
    """Whether no component has rows of two classes, and no row of a class is noise, -1."""
    return [not united(z, codes) and (z[codes >= 0] >= 0).all() for z in np.asarray(partitions)]


def restricted(posterior, codes):
    """An enumerated posterior given that no component has rows of two classes."""
    may_be = allowed(posterior.partitions, codes)
    log_joint = np.where(may_be, posterior.log_joint, -np.inf)
    total = logsumexp(log_joint)
    return posterior._replace(log_joint=log_joint, log_prob=log_joint - total, log_evidence=total)


def case_law(likelihood, prior, codes, gap=False, **changes):
    """The enumerated posterior of a case with known labels, and perhaps with a missing entry."""
    name, params = PRIOR_CASES[prior]
    case = enumeration_case(likelihood)
    hyper = case.params
    if gap:
        log_marginal = partial(LOG_MARGINALS[likelihood], **hyper)
        likelihood, hyper = partial(log_known, log_marginal=log_marginal), {}
    posterior = log_posterior(
        case_rows(case.X, gap),
        likelihood,
        name,
        likelihood_params=hyper,
        prior_params={**params, **changes},
    )
    return restricted(posterior, codes)


def case_rows(X, gap):
    if gap:
        X = X.copy()
        X[1, 1] = np.nan
    return X


def noisy_law(likelihood, prior, codes, log_noise=None, beta=BETA):
    """The enumerated posterior over noise and partitions of a case with known labels."""
    name, params = PRIOR_CASES[prior]
    case = enumeration_case(likelihood)
    law = log_noise_posterior(
        case.X,
        likelihood,
        name,
        likelihood_params=case.params,
        prior_params=params,
        log_noise=log_noise_of(likelihood) if log_noise is None else log_noise,
        beta=beta,
    )
    may_be = allowed(law.partitions, codes)
    return law._replace(log_joint=np.where(may_be, law.log_joint, -np.inf))
