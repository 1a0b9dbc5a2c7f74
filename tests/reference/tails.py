"""Rows with weights under Gaussian clusters: enumerations over partitions and weights.

Given their weights w and a covariance Sigma, the rows X of a cluster are matrix normal: their
columns have the covariance Sigma, and their rows diag(1 / w) + 11' / r. So they are matrix t with
Sigma integrated out, and the same column by column if Sigma is diagonal. No formula of a
posterior or of a predictive law is used.
"""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, multigammaln
from scipy.stats import gamma

from reference.enumerate import enumerate_partitions, partition_sizes
from reference.priors import log_eppf

# Weights of the t law, and the limits of the cells of the Gamma law that they stand for.
T_WEIGHTS = np.array([2.25, 1.0, *(2.25**-k for k in range(1, 7))])
T_LIMITS = np.sqrt(T_WEIGHTS[:-1] * T_WEIGHTS[1:])


def law_of_weights(tails, values):
    """Weights, and their probabilities."""
    if tails == "contaminated":
        share, inflation = values
        return np.array([1.0, 1.0 / inflation]), np.array([1.0 - share, share])
    (df,) = values
    cdf = np.array([1.0, *gamma.cdf(T_LIMITS, 0.5 * df, scale=2.0 / df), 0.0])
    return T_WEIGHTS, cdf[:-1] - cdf[1:]


def log_marginal_weighted(X, w, *, mean, mean_precision, df, scale, covariance_type="full"):
    """log p(known entries of the rows of a cluster | weights of the rows)."""
    law = {"full": matrix_t, "diag": by_column, "spherical": one_variance, "tied": one_normal}
    gaps = X - np.asarray(mean)
    return law[covariance_type](gaps, np.asarray(w), mean_precision, df, scale) if len(X) else 0.0


def rows_of(w, r):
    """Covariance of the rows of a column, in units of the variance of the cluster."""
    return np.diag(1.0 / w) + 1.0 / r


def matrix_t(gaps, w, r, df, scale):
    n, n_features = gaps.shape
    rows = rows_of(w, r)
    scatter = np.asarray(scale) + gaps.T @ np.linalg.solve(rows, gaps)
    return (
        multigammaln(0.5 * (df + n), n_features)
        - multigammaln(0.5 * df, n_features)
        - 0.5 * n * n_features * np.log(np.pi)
        - 0.5 * n_features * np.linalg.slogdet(rows)[1]
        + 0.5 * df * np.linalg.slogdet(scale)[1]
        - 0.5 * (df + n) * np.linalg.slogdet(scatter)[1]
    )


def known_columns(gaps, w):
    """Known entries of each column, and their weights."""
    for column in gaps.T:
        known = ~np.isnan(column)
        yield column[known], w[known]


def by_column(gaps, w, r, df, scale):
    scales = np.broadcast_to(scale, gaps.shape[1])
    return sum(
        matrix_t(x[:, None], v, r, df, [[s]]) if len(x) else 0.0
        for (x, v), s in zip(known_columns(gaps, w), scales, strict=True)
    )


def one_variance(gaps, w, r, df, scale):
    n = np.count_nonzero(~np.isnan(gaps))
    squares = log_det = 0.0
    for x, v in known_columns(gaps, w):
        rows = rows_of(v, r)
        squares += x @ np.linalg.solve(rows, x)
        log_det += np.linalg.slogdet(rows)[1]
    return (
        gammaln(0.5 * (df + n))
        - gammaln(0.5 * df)
        - 0.5 * (n * np.log(np.pi) + log_det)
        + 0.5 * df * np.log(scale)
        - 0.5 * (df + n) * np.log(scale + squares)
    )


def one_normal(gaps, w, r, df, scale):
    covariance = np.kron(rows_of(w, r), scale)
    squares = gaps.ravel() @ np.linalg.solve(covariance, gaps.ravel())
    return -0.5 * (gaps.size * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + squares)


class TailPosterior(NamedTuple):
    """The joint posterior of the partition and of the numbers of the weights."""

    partitions: np.ndarray  # (Bell(n), n)
    chosen: np.ndarray  # (G^n, n)
    log_joint: np.ndarray  # (Bell(n), G^n): log p(partition, weights, X)

    @property
    def probabilities(self):
        return np.exp(self.log_joint - logsumexp(self.log_joint))

    def draw(self, size, rng):
        """Independent draws: labels and numbers of weights, (size, n) each."""
        p = self.probabilities.ravel()
        which = rng.choice(len(p), size=size, p=p)
        z, w = np.divmod(which, len(self.chosen))
        return self.partitions[z], self.chosen[w]


def tail_posterior(
    X, weights, probabilities, prior, prior_params, log_marginal=log_marginal_weighted, **hyper
):
    """The `TailPosterior` of a few rows whose weights have these probabilities."""
    n, n_weights = len(X), len(weights)
    partitions = enumerate_partitions(n)
    chosen = np.array(list(itertools.product(range(n_weights), repeat=n)))

    def of_rows(rows):
        """log p(rows | weights), for all numbers of weights of all rows."""
        values = np.array(
            [
                log_marginal(X[rows], weights[list(some)], **hyper)
                for some in itertools.product(range(n_weights), repeat=len(rows))
            ]
        )
        codes = chosen[:, rows] @ n_weights ** np.arange(len(rows) - 1, -1, -1)
        return values[codes]

    subsets = {
        rows: of_rows(list(rows))
        for size in range(1, n + 1)
        for rows in itertools.combinations(range(n), size)
    }
    log_prior = [log_eppf(s, prior, **prior_params) for s in partition_sizes(partitions)]
    log_joint = np.array(
        [
            total + sum(subsets[tuple(np.flatnonzero(z == k))] for k in np.unique(z))
            for z, total in zip(partitions, log_prior, strict=True)
        ]
    )
    with np.errstate(divide="ignore"):
        log_joint += np.log(probabilities)[chosen].sum(axis=1)
    return TailPosterior(partitions, chosen, log_joint)
