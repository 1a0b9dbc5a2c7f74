"""Posteriors of learned hyperparameters given the partition, on grids."""

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
