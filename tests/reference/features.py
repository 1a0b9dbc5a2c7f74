"""Feature allocation models, slowly and obviously: enumeration of Z, priors, likelihoods."""

import itertools
from typing import NamedTuple

import numpy as np
from scipy.special import betaln, gammaln, log_expit, logsumexp
from scipy.stats import multivariate_normal, norm

from reference.likelihoods import log_pyclone


def enumerate_matrices(n_samples, n_latent):
    """Every binary matrix once.

    Returns
    -------
    matrices : ndarray of shape (2**(n_samples * n_latent), n_samples, n_latent), uint8
    """
    bits = list(itertools.product((0, 1), repeat=n_samples * n_latent))
    return np.array(bits, dtype=np.uint8).reshape(len(bits), n_samples, n_latent)


def matrix_index(Z):
    """Row of `enumerate_matrices` that holds Z, (..., n_samples, n_latent)."""
    flat = np.asarray(Z).reshape(*np.shape(Z)[:-2], -1).astype(np.int64)
    return flat @ (1 << np.arange(flat.shape[-1] - 1, -1, -1))


def log_beta_bernoulli(Z, concentration):
    """log p(Z) with Beta(concentration / K, 1) for the probability of each of the K columns."""
    n_samples, n_latent = Z.shape
    a = concentration / n_latent
    m = Z.sum(axis=0)
    return (betaln(a + m, 1 + n_samples - m) - betaln(a, 1)).sum()


def log_indian_buffet(Z, concentration):
    """log p(Z) over matrices with K labelled columns, none of zeros."""
    n_samples, n_latent = Z.shape
    m = Z.sum(axis=0).astype(float)
    harmonic = sum(1 / i for i in range(1, n_samples + 1))
    return (
        n_latent * np.log(concentration)
        - concentration * harmonic
        - gammaln(n_latent + 1)
        + (gammaln(m) + gammaln(n_samples - m + 1) - gammaln(n_samples + 1)).sum()
    )


def log_linear_gaussian(X, Z, V, noise_precision, b=0.0):
    """log p(X | Z, V, b) of the observed entries."""
    terms = norm.logpdf(X, b + Z @ V, 1 / np.sqrt(noise_precision))
    return np.nansum(terms)


def log_linear_gaussian_marginal(X, Z, noise_precision, component_precision, intercept=None):
    """log p(X | Z), the components integrated out, and the intercept where its prior's mean and
    precision are given: column by column a Gaussian vector."""
    Z = Z.astype(float)
    total = 0.0
    mean, variance = np.zeros(X.shape[1]), 0.0
    if intercept is not None:
        mean, variance = intercept[0], 1 / intercept[1]
    for x, m in zip(X.T, mean, strict=True):
        seen = ~np.isnan(x)
        if seen.any():
            z = Z[seen]
            covariance = np.eye(len(z)) / noise_precision + z @ z.T / component_precision
            covariance += variance
            total += multivariate_normal.logpdf(x[seen], np.full(len(z), m), covariance)
    return total


def observed_links(X):
    """The links i -> j that X (n_samples, n_samples) observes: not those of a row to itself."""
    return [(i, j) for i, j in np.argwhere(~np.isnan(X)) if i != j]


def log_weighted_links(X, Z, W, noise_precision):
    """log p(X | Z, W) of links x_ij ~ N(z_i' W z_j, 1 / noise_precision)."""
    return sum(
        norm.logpdf(X[i, j], Z[i] @ W @ Z[j], 1 / np.sqrt(noise_precision))
        for i, j in observed_links(X)
    )


def log_weighted_links_marginal(X, Z, noise_precision, weight_precision):
    """log p(X | Z), the weights integrated out: all links are one Gaussian vector."""
    links = observed_links(X)
    design = np.array([np.outer(Z[i], Z[j]).ravel() for i, j in links], dtype=float)
    covariance = np.eye(len(links)) / noise_precision + design @ design.T / weight_precision
    x = np.array([X[i, j] for i, j in links])
    return multivariate_normal.logpdf(x, np.zeros(len(links)), covariance)


def log_lfrm(X, Z, W, bias, directed):
    """log p(X | Z, W) of links with log odds bias + z_i' W z_j; undirected ones once."""
    total = 0.0
    for i, j in observed_links(X):
        if directed or i < j:
            logit = bias + Z[i].astype(float) @ W @ Z[j]
            total += log_expit(logit if X[i, j] else -logit)
    return total


class MatrixPosterior(NamedTuple):
    """A law on the binary matrices of one shape."""

    matrices: np.ndarray
    probabilities: np.ndarray

    def draw(self, n, rng):
        """i.i.d. matrices, (n, n_samples, n_latent)."""
        return self.matrices[rng.choice(len(self.matrices), size=n, p=self.probabilities)]

    def count(self, drawn):
        """How often each matrix is among those drawn."""
        return np.bincount(matrix_index(drawn), minlength=len(self.matrices))


def log_subclones(X, Z, F, **params):
    """Reads of mutations of which the prevalence is the sum of those of the clones that have them.

    F is (n_latent, n_tumour_samples), `params` are those of `reference.likelihoods.log_pyclone`.
    """
    phi = np.asarray(Z, dtype=float) @ F
    return sum(
        log_pyclone(cell, [f], **params)[0]
        for row, means in zip(X, phi, strict=True)
        for cell, f in zip(row.reshape(-1, 6), means, strict=True)
    )


def matrix_posterior(n_samples, n_latent, log_weight):
    """The law with log probabilities `log_weight(Z)`, up to a constant."""
    matrices = enumerate_matrices(n_samples, n_latent)
    log_w = np.array([log_weight(Z) for Z in matrices])
    return MatrixPosterior(matrices, np.exp(log_w - logsumexp(log_w)))


def left_ordered(Z):
    """The class of Z: its columns as binary numbers (first row first), in decreasing order."""
    powers = 1 << np.arange(len(Z) - 1, -1, -1)
    return tuple(sorted((int(c) for c in powers @ Z.astype(np.int64)), reverse=True))


def classes_of_buffet(n_samples, most, concentration):
    """The classes of matrices with at most `most` features and their prior probabilities; of a
    class's orderings of columns, all are counted.

    Returns
    -------
    classes : list of tuple
        As `left_ordered` writes them.
    probabilities : ndarray
    """
    columns = range(2**n_samples - 1, 0, -1)
    classes, log_p = [], []
    for n_latent in range(most + 1):
        for chosen in itertools.combinations_with_replacement(columns, n_latent):
            Z = (
                np.array(chosen, dtype=np.int64)[None, :]
                >> np.arange(n_samples - 1, -1, -1)[:, None]
            ) & 1
            repeats = [chosen.count(c) for c in set(chosen)]
            orderings = gammaln(n_latent + 1) - sum(gammaln(r + 1) for r in repeats)
            classes.append(chosen)
            log_p.append(
                log_indian_buffet(Z.reshape(n_samples, n_latent), concentration) + orderings
            )
    return classes, np.exp(log_p)
