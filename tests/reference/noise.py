"""The posterior over noise and partitions, enumerated: n items have as many as n + 1 have
partitions, whose last item marks the noise."""

from typing import NamedTuple

import numpy as np
from scipy.special import betaln, logsumexp

from reference.enumerate import enumerate_partitions, partition_index
from reference.likelihoods import LOG_MARGINALS, log_likelihood
from reference.priors import log_eppf


def noise_labels(n_samples):
    """All labels of n items, -1 for noise: (n_states, n_samples), in the order of the partitions
    of n + 1 items."""
    partitions = enumerate_partitions(n_samples + 1)
    states = np.where(partitions == partitions[:, -1:], -1, partitions)[:, :-1].copy()
    for state in states:
        inside = state >= 0
        if inside.any():
            state[inside] = np.unique(state[inside], return_inverse=True)[1]
    return states


def log_noise_prior(labels, beta, prior, prior_params):
    """log p(which items are noise, partition of the others)."""
    labels = np.asarray(labels)
    a, b = beta
    n_noise = (labels < 0).sum()
    total = betaln(a + n_noise, b + len(labels) - n_noise) - betaln(a, b)
    if n_noise < len(labels):
        sizes = np.unique(labels[labels >= 0], return_counts=True)[1]
        total += log_eppf(sizes, prior, **prior_params)
    return total


def log_noise_likelihood(X, labels, log_noise, likelihood, params):
    """log p(X | noise and partition)."""
    labels = np.asarray(labels)
    inside = labels >= 0
    total = np.asarray(log_noise)[~inside].sum()
    if callable(likelihood):
        total += sum(likelihood(X[labels == k], **params) for k in np.unique(labels[inside]))
    elif inside.any():
        total += log_likelihood(X[inside], labels[inside], likelihood, **params)
    return total


class NoisePosterior(NamedTuple):
    """The law of noise and partition."""

    partitions: np.ndarray  # (n_states, n_samples): labels, -1 for noise
    log_joint: np.ndarray  # (n_states,)

    @property
    def probabilities(self):
        return np.exp(self.log_joint - logsumexp(self.log_joint))

    def draw(self, size, rng):
        """Independent draws, (size, n_samples)."""
        weights = self.probabilities
        return self.partitions[rng.choice(len(weights), size=size, p=weights / weights.sum())]

    def count(self, labels):
        """How often each state occurs among labels, (m, n_samples)."""
        return np.bincount(self.index(labels), minlength=len(self.partitions))

    def index(self, labels):
        """Number of the state of each row of labels, (m, n_samples)."""
        labels = np.asarray(labels).astype(np.int64)
        return partition_index(np.column_stack([labels, np.full(len(labels), -1)]))

    @property
    def log_evidence(self):
        return float(logsumexp(self.log_joint))


def log_noise_posterior(X, likelihood, prior, *, likelihood_params, prior_params, log_noise, beta):
    """Enumerate the posterior over noise and partitions of the rows of X.

    Parameters
    ----------
    X : array-like of shape (n, n_features), n <= 6 or so
    likelihood, prior, likelihood_params, prior_params
        As in `log_posterior`.
    log_noise : ndarray of shape (n,)
        Log density of each row if it is noise.
    beta : tuple (a, b)
        Law of the probability of noise.
    """
    X = np.asarray(X)
    if likelihood in LOG_MARGINALS:
        likelihood = _once_per_rows(LOG_MARGINALS[likelihood])
    states = noise_labels(len(X))
    log_priors = {}  # by sizes, that of the noise first
    log_joint = []
    for labels in states:
        n_noise, *sizes = np.bincount(labels + 1)
        sizes = n_noise, *sorted(sizes)
        if sizes not in log_priors:
            log_priors[sizes] = log_noise_prior(labels, beta, prior, prior_params)
        log_likelihood = log_noise_likelihood(X, labels, log_noise, likelihood, likelihood_params)
        log_joint.append(log_priors[sizes] + log_likelihood)
    return NoisePosterior(states, np.array(log_joint))


def log_box(X, rows):
    """Log density of rows under the uniform law on the box of X; gaps count for nothing."""
    distances, half, _ = _distances(X, rows)
    log_density = np.where(np.isnan(distances), 0.0, -np.log(2.0 * half)).sum(axis=1)
    return np.where((distances > 1.0).any(axis=1), -np.inf, log_density)


def log_open_box(X, rows):
    """The same for new rows, which may be outside the box."""
    m, half, far = _distances(X, rows)
    m = np.maximum(m, 1.0)
    shape = (1.0 - far) * m**-21.0 + far / m / (1.0 + np.log(m)) ** 2
    density = shape / (2.0 * half * (1.0 + (1.0 - far) / 20.0 + far))
    return np.where(np.isnan(m), 0.0, np.log(density)).sum(axis=1)


def share_between(X, low, high):
    """Probability that new noise is between two numbers, both outside the interval of a column."""
    m, _, (far,) = _distances(X[:, None], np.array([[low], [high]]))
    beyond = (1.0 - far) * m**-20.0 / 20.0 + far / (1.0 + np.log(m))
    return 1.0 - beyond.mean() / (1.0 + (1.0 - far) / 20.0 + far)


def _distances(X, rows):
    """Distances from the middle of the box in halves of its sides, these halves, and the share of
    far rows in each column."""
    low, high = np.nanmin(X, axis=0), np.nanmax(X, axis=0)
    middle, half = (low + high) / 2.0, 1.05 * (high - low) / 2.0
    n_known = (~np.isnan(X)).sum(axis=0)
    return np.abs(rows - middle) / half, half, np.minimum(2.0 / (n_known + 1), 0.5)


def _once_per_rows(log_marginal):
    """A log marginal that computes one value for the same rows."""
    known = {}

    def of(rows, **params):
        key = rows.shape, rows.tobytes()
        if key not in known:
            known[key] = log_marginal(rows, **params)
        return known[key]

    return of
