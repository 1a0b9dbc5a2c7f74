"""The law of one entry of a row given others, by sums and integrals of joint densities.

A likelihood is a list of parts (name of a law or log marginal likelihood, columns,
hyperparameters), independent given the cluster. Densities of a row are differences of marginal
likelihoods; unknown entries are integrated out numerically. No formula of a conditional law is
used.
"""

import numpy as np
from scipy.special import logsumexp

from reference.likelihoods import LOG_MARGINALS
from reference.predictive import log_weights


def real_line(center, scale, n=400):
    """Nodes and weights on the real line: Gauss-Legendre under v = center + scale tan(u)."""
    u, w = np.polynomial.legendre.leggauss(n)
    u, w = u * np.pi / 2, w * np.pi / 2
    return center + scale * np.tan(u), w * scale / np.cos(u) ** 2


def log_predictive_of_parts(X, labels, rows, parts, prior, prior_params, of_clusters=None):
    """log p(row | X, labels) of each row: over all clusters and a new one. `of_clusters` has the
    densities given the rows of clusters of other draws; others are added."""
    of_clusters = {} if of_clusters is None else of_clusters
    terms = np.empty((len(rows), labels.max() + 2))
    for k in range(terms.shape[1]):
        key = (labels == k).tobytes()
        if key not in of_clusters:
            members = X[labels == k]
            found = [_log_marginal(np.vstack([members, x]), parts) for x in rows]
            of_clusters[key] = np.array(found) - _log_marginal(members, parts)
        terms[:, k] = of_clusters[key]
    return logsumexp(terms + log_weights(labels, prior, prior_params), axis=1)


def _log_marginal(X, parts):
    return sum(
        LOG_MARGINALS.get(name, name)(X[:, columns], **params) for name, columns, params in parts
    )


def log_mean_predictive(X, draws, rows, parts, prior, prior_params):
    """The same for the mean density over draws of the labels."""
    different, counts = np.unique(draws, axis=0, return_counts=True)
    given = parts, prior, prior_params, {}
    of_draws = [log_predictive_of_parts(X, z, rows, *given) for z in different]
    return logsumexp(of_draws, axis=0, b=counts[:, None] / len(draws))


def filled(row, columns, values):
    """A row with each of some values in some columns."""
    rows = np.repeat(row[None], len(values), axis=0)
    rows[:, columns] = values
    return rows


def own_law(X, labels, i, columns, values, parts):
    """log p(values in the missing columns of row i | the other entries, labels), unnormalised."""
    members = np.flatnonzero(labels == labels[i])
    inside = int(np.flatnonzero(members == i)[0])
    out = np.zeros(len(values))
    for m, value in enumerate(values):
        rows = X[members].copy()
        rows[inside, columns] = value
        out[m] = _log_marginal(rows, parts)
    return out
