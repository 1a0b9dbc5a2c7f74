"""Posteriors of learned hyperparameters given the partition, on grids."""

from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import gamma

from reference.likelihoods import log_marginal_poisson


def poisson_posterior(X, labels, *, shape_prior, rate_prior):
    """p(shape, rate | partition, X) of Poisson columns, the two a priori Gamma and independent.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    labels : ndarray of shape (n,)
    shape_prior, rate_prior : tuple
        (shape, rate) of the Gamma priors.

    Returns
    -------
    laws : dict of str to callable
        Marginal distribution functions of the logarithms of "shape" and "rate".
    """
    log_shape, log_rate = np.linspace(-9.0, 5.0, 561), np.linspace(-10.0, 5.0, 601)
    a, b = np.exp(log_shape)[:, None], np.exp(log_rate)
    log_density = np.zeros((len(log_shape), len(log_rate)))
    for cluster in (X[labels == k] for k in np.unique(labels)):
        n = len(cluster)
        for total in cluster.sum(axis=0):
            log_density += gammaln(a + total) - gammaln(a) + a * np.log(b)
            log_density -= (a + total) * np.log(b + n)
    # The same as the marginal likelihood of every cluster, up to the factorials.
    at = (300, 200)
    expected = sum(
        log_marginal_poisson(X[labels == k], shape=a[at[0], 0], rate=b[at[1]])
        for k in np.unique(labels)
    )
    if abs(log_density[at] - gammaln(X + 1.0).sum() - expected) > 1e-8:
        raise AssertionError("the grid is not the likelihood")
    for x, law in ((a, shape_prior), (b, rate_prior)):
        # Jacobian of the logarithm.
        log_density = log_density + gamma.logpdf(x, law[0], scale=1.0 / law[1]) + np.log(x)
    p = np.exp(log_density - logsumexp(log_density))
    laws = {}
    for name, grid, mass in (("shape", log_shape, p.sum(1)), ("rate", log_rate, p.sum(0))):
        if max(mass[0], mass[-1]) > 1e-6:
            raise AssertionError(f"the grid is too narrow for the {name}")
        # The mass of a point lies half on either side of it.
        cdf = np.cumsum(mass) - 0.5 * mass
        laws[name] = lambda x, grid=grid, cdf=cdf: np.interp(x, grid, cdf)
    return laws


def poisson_joint(X, log_prior, partitions, *, shape_prior, rate_prior, edges):
    """p(partition, bins of shape and rate | X), by quadrature over the two.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
    log_prior : callable
        log p of the sizes of a partition.
    partitions : ndarray of shape (n_partitions, n)
    shape_prior, rate_prior : tuple
        (shape, rate) of the Gamma priors.
    edges : tuple of two sequences
        Where bins of shape and of rate meet.

    Returns
    -------
    probabilities : ndarray of shape (n_partitions, n_bins, n_bins)
    """
    log_shape, log_rate = np.linspace(-8.0, 4.5, 401), np.linspace(-9.0, 4.5, 401)
    a, b = np.exp(log_shape)[:, None], np.exp(log_rate)
    log_hyper = np.zeros((len(log_shape), len(log_rate)))
    for x, law in ((a, shape_prior), (b, rate_prior)):
        log_hyper = log_hyper + gamma.logpdf(x, law[0], scale=1.0 / law[1]) + np.log(x)
    known = {}
    bins = [
        np.searchsorted(np.log(edge), grid)
        for edge, grid in zip(edges, (log_shape, log_rate), strict=True)
    ]
    shape = [len(edge) + 1 for edge in edges]
    log_p = np.empty((len(partitions), *shape))
    for p, labels in enumerate(partitions):
        total = log_hyper + log_prior(np.unique(labels, return_counts=True)[1])
        for k in np.unique(labels):
            members = (labels == k).tobytes()
            if members not in known:
                cluster = X[labels == k]
                known[members] = sum(
                    gammaln(a + s)
                    - gammaln(a)
                    + a * np.log(b)
                    - (a + s) * np.log(b + len(cluster))
                    for s in cluster.sum(axis=0)
                )
            total = total + known[members]
        for i, j in np.ndindex(*shape):
            log_p[p, i, j] = logsumexp(total[np.ix_(bins[0] == i, bins[1] == j)])
    return np.exp(log_p - logsumexp(log_p))


def gaussian_log_marginals(X, *, mean, mean_precision, df, scale, full):
    """log p(rows of X form one cluster) under many values of the hyperparameters at once.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        NaN is missing where `full` is false.
    mean : ndarray of shape (n_values, n_features)
    scale : ndarray of shape (n_values, n_features) or (n_values, n_features, n_features)
        Diagonals or, if `full`, matrices.
    mean_precision, df : ndarray of shape (n_values,)
    full : bool

    Returns
    -------
    log_marginals : ndarray of shape (n_values,)
    """
    if not full:
        columns = [(x[~np.isnan(x)][:, None], d) for d, x in enumerate(X.T)]
        return sum(
            gaussian_log_marginals(
                x,
                mean=mean[:, [d]],
                mean_precision=mean_precision,
                df=df,
                scale=scale[:, [d]],
                full=True,
            )
            for x, d in columns
            if len(x)
        ) + np.zeros(len(df))
    n, n_features = X.shape
    # As `_log_matrix_t` of reference.likelihoods, but for L: 1 1' / r has one eigenvector.
    log_omega = np.log1p(n / mean_precision)
    gaps = X - mean[:, None]
    centred = gaps - gaps.mean(axis=1, keepdims=True)
    squares = np.einsum("gid,gie->gde", centred, centred)
    middle = gaps.mean(axis=1) * np.sqrt(n / (1.0 + n / mean_precision))[:, None]
    if scale.ndim == 2:
        scale = np.eye(n_features) * scale[:, None]
    squares += middle[:, :, None] * middle[:, None, :] + scale
    d = np.arange(n_features)[:, None]
    return (
        (gammaln((df + n - d) / 2) - gammaln((df - d) / 2)).sum(axis=0)
        - n * n_features / 2 * np.log(np.pi)
        - n_features / 2 * log_omega
        + df / 2 * np.linalg.slogdet(scale)[1]
        - (df + n) / 2 * np.linalg.slogdet(squares)[1]
    )


def gaussian_joint(X, log_prior, partitions, values, *, full):
    """p(partition, hyperparameters | X) where the latter have one of so many values, which are
    equally probable a priori: ndarray of shape (n_partitions, n_values).

    Parameters
    ----------
    X, full, values : see `gaussian_log_marginals`, whose keywords are in `values`
    log_prior : callable
        log p of the sizes of a partition.
    partitions : ndarray of shape (n_partitions, n)
    """
    known = {}
    log_p = np.empty((len(partitions), len(values["df"])))
    for p, labels in enumerate(partitions):
        log_p[p] = log_prior(np.unique(labels, return_counts=True)[1])
        for k in np.unique(labels):
            members = labels == k
            if members.tobytes() not in known:
                known[members.tobytes()] = gaussian_log_marginals(X[members], full=full, **values)
            log_p[p] += known[members.tobytes()]
    return np.exp(log_p - logsumexp(log_p))


def learned_joint(log_likelihood, log_prior, partitions, *, log_hyperprior, edges):
    """p(partition, bin of one hyperparameter | X), by quadrature over its logarithm.

    Parameters
    ----------
    log_likelihood : callable
        log p(X | labels, value).
    log_prior : callable
        log p of the sizes of a partition.
    partitions : ndarray of shape (n_partitions, n)
    log_hyperprior : callable
        log density of the hyperparameter at a value.
    edges : sequence
        Where bins of the hyperparameter meet.

    Returns
    -------
    law : LearnedLaw
    """
    grid = np.linspace(-9.0, 8.0, 341)
    # Jacobian of the logarithm.
    log_hyper = np.array([log_hyperprior(np.exp(x)) + x for x in grid])
    log_p = np.empty((len(partitions), len(grid)))
    for p, labels in enumerate(partitions):
        log_p[p] = log_hyper + np.array([log_likelihood(labels, np.exp(x)) for x in grid])
        log_p[p] += log_prior(np.unique(labels, return_counts=True)[1])
    p = np.exp(log_p - logsumexp(log_p))
    if max(p[:, 0].sum(), p[:, -1].sum()) > 1e-3:
        raise AssertionError("the grid is too narrow")
    starts = np.concatenate([[0], np.searchsorted(grid, np.log(edges))])
    return LearnedLaw(partitions, np.exp(grid), p, np.add.reduceat(p, starts, axis=1))


class LearnedLaw(NamedTuple):
    """Law of a partition and a hyperparameter."""

    partitions: np.ndarray
    grid: np.ndarray
    probabilities: np.ndarray  # (n_partitions, n_grid)
    bins: np.ndarray  # (n_partitions, n_bins)

    def draw(self, size, rng):
        """Draw partitions, (size, n), and values, (size,), within their cells of the grid."""
        at = rng.choice(self.probabilities.size, size=size, p=self.probabilities.ravel())
        partition, value = np.divmod(at, len(self.grid))
        width = np.log(self.grid[1] / self.grid[0])
        values = self.grid[value] * np.exp(width * (rng.random(size) - 0.5))
        return self.partitions[partition].copy(), values
