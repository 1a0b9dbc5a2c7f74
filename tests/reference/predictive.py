"""The predictive density of a new row given a partition, as differences of joint densities.

Appending row x with label k to the data multiplies p(partition) by the weight of cluster k and
p(X | partition) by the density of x there. Nothing else is used: no formula for a weight, none
for a predictive density.
"""

import numpy as np
from scipy.special import logsumexp

from reference.likelihoods import LOG_LIKELIHOODS, log_likelihood
from reference.priors import log_eppf


def _sizes(labels):
    return np.unique(labels, return_counts=True)[1]


def append_row(X, x, likelihood):
    """The data with one more row.

    A new node of a network brings its links to the others: outgoing ones where directed, and then
    nothing is known of the incoming ones.
    """
    if likelihood not in LOG_LIKELIHOODS:
        return np.vstack([X, x])
    incoming = np.full(len(x), np.nan) if likelihood.endswith("directed") else x
    return np.block([[X, incoming[:, None]], [x, np.zeros(1)]])


def log_weights(labels, prior, prior_params):
    """log p(label of the next row | labels 0..K-1) for each cluster and, last, a new one."""
    labels = np.asarray(labels)
    now = log_eppf(_sizes(labels), prior, **prior_params)
    return np.array(
        [
            log_eppf(_sizes(np.append(labels, k)), prior, **prior_params) - now
            for k in range(labels.max() + 2)
        ]
    )


def log_densities(X, labels, X_new, likelihood, likelihood_params):
    """log p(new row | X, its label), shape (m, K + 1), the last column that of a new cluster."""
    X, labels = np.asarray(X), np.asarray(labels)

    def density(x, k):
        # Clusters that the row does not join cancel out, but in networks.
        some = (labels == k) | (likelihood in LOG_LIKELIHOODS)
        before = X[some], labels[some]
        after = append_row(X[some], x, likelihood), np.append(labels[some], k)
        return np.subtract(
            *(log_likelihood(*rows, likelihood, **likelihood_params) for rows in (after, before))
        )

    return np.array(
        [[density(x, k) for k in range(labels.max() + 2)] for x in np.asarray(X_new, dtype=float)]
    )


def log_predictive(X, labels, X_new, likelihood, prior, *, likelihood_params, prior_params):
    """log p(new row | X, partition), (m,): over all clusters and a new one."""
    terms = log_densities(X, labels, X_new, likelihood, likelihood_params)
    return logsumexp(terms + log_weights(labels, prior, prior_params), axis=1)


def without_row(X, i, likelihood):
    """The data without a row; of a network, without a node."""
    X = np.delete(X, i, axis=0)
    return np.delete(X, i, axis=1) if likelihood in LOG_LIKELIHOODS else X


def log_leave_one_out(X, labels, i, likelihood, prior, *, likelihood_params, prior_params):
    """log p(row i | the other rows and their partition), as a difference of joint densities with
    all labels that the row may have, and with none."""
    others = np.unique(np.delete(labels, i), return_inverse=True)[1]

    def log_joint(X, labels):
        log_prior = log_eppf(_sizes(labels), prior, **prior_params)
        return log_prior + log_likelihood(X, labels, likelihood, **likelihood_params)

    with_row = [log_joint(X, np.insert(others, i, k)) for k in range(others.max(initial=-1) + 2)]
    if len(others) == 0:
        return with_row[0]
    return logsumexp(with_row) - log_joint(without_row(X, i, likelihood), others)
