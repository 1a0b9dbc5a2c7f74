"""States of small cases, and their densities by the reference."""

from dataclasses import replace

import numpy as np
from reference.likelihoods import LOG_LIKELIHOODS, log_likelihood
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES

from support.cases import fit_case
from support.exactness import case_rows, make_likelihood, make_prior, make_state
from support.kernels import bind


def log_likelihood_of(name, case, labels):
    """log p of the rows that have a label, by the reference."""
    labels, name = np.asarray(labels), name.removesuffix("_complete")
    kept = np.flatnonzero(labels >= 0)
    X = case.X[np.ix_(kept, kept)] if name in LOG_LIKELIHOODS else case.X[kept]
    return log_likelihood(X, labels[kept], name, **case.params)


def case_of(name, n_samples=18):
    """`fit_case`, also without missing entries; see `exactness.case_rows`."""
    case = fit_case(name.removesuffix("_complete"), n_samples=n_samples)
    if name.endswith("_complete"):
        case = replace(case, X=np.nan_to_num(case.X, nan=1.0))
    return case


def log_joint_of(name, case, labels, prior_name):
    prior, params = PRIOR_CASES[prior_name]
    return log_eppf(np.bincount(labels), prior, **params) + log_likelihood_of(name, case, labels)


def new_model(name):
    """The kernel of an enumeration case's likelihood."""
    X = case_rows(name)
    likelihood = make_likelihood(name).resolve(X)
    return bind(likelihood, likelihood.encode(X), len(X))


def new_state(name, case, prior_name, labels=None):
    prior, params = PRIOR_CASES[prior_name]
    return make_state(case.likelihood, case.X, make_prior(prior, len(case.X), **params), labels)
