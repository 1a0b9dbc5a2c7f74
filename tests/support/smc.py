"""What tests of particle systems share."""

import warnings

import numpy as np
from reference.enumerate import canonical_labels
from reference.simulate import PRIOR_CASES
from scipy.special import logsumexp

from support.cases import make_estimator
from support.kernels import bind

# Of a concentration that is integrated out, and the priors that can have one.
CONCENTRATION_PRIOR = (2.0, 0.8)
INTEGRATED = [name for name, (_, params) in PRIOR_CASES.items() if params["concentration"] > 0]


def bind_rows(likelihood, X):
    """A kernel over some rows, of the likelihood that they resolve."""
    likelihood = likelihood.resolve(X)
    return bind(likelihood, likelihood.encode(X), len(X))


def labels_of(system):
    """Labels of all particles: (n_current, n_rows)."""
    return np.array([system.labels_of(p) for p in range(system.n_current)])


def all_labels(system):
    """The same, by first appearance."""
    return canonical_labels(labels_of(system))


def sums_by_run(cells, log_weights, n_cells):
    """Sums of weights by cell in each of several runs.

    Parameters
    ----------
    cells : ndarray of int
        Of the particles of all runs, one after another.
    log_weights : list of ndarray
        Of the particles of each run.
    n_cells : int

    Returns
    -------
    sums : ndarray of shape (n_runs, n_cells)
    """
    runs = np.repeat(np.arange(len(log_weights)), list(map(len, log_weights)))
    sums = np.zeros((len(log_weights), n_cells))
    np.add.at(sums, (runs, cells), np.exp(np.concatenate(log_weights)))
    return sums


def log_evidence_at(system, concentrations):
    """log of the estimates of p(X | concentration) by reweighted particles."""
    log_weights = system.log_weights() + system.log_ratios(concentrations)
    return logsumexp(log_weights, axis=1)


def fitted(likelihood, prior, X, sampler, **params):
    """A fit with one draw of each chain, unless `n_draws` is given."""
    estimator = make_estimator(likelihood, prior, **{"sampler": sampler, "n_draws": 1, **params})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few draws tell nothing about mixing
        return estimator.fit(X)
