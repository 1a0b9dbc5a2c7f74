"""Posterior means of the parameters of clusters, by the formulas of conjugate analysis.

A function takes the rows of a cluster, and the hyperparameters as keywords; `link_probabilities`
takes the adjacency matrix and all labels.
"""

import numpy as np

from reference.likelihoods import (
    as_matrix,
    log_pyclone,
    log_von_mises_fisher_constant,
    von_mises_fisher_grid,
)


def bernoulli(B, *, a, b):
    return {"probabilities": (a + (B == 1).sum(0)) / (a + b + (~np.isnan(B)).sum(0))}


def categorical(B, *, concentration, n_categories):
    out = np.zeros((len(n_categories), max(n_categories)))
    for d, m in enumerate(n_categories):
        counts = concentration + np.array([(B[:, d] == code).sum() for code in range(m)])
        out[d, :m] = counts / counts.sum()
    return {"probabilities": out}


def multinomial(B, *, concentration):
    counts = B.sum(0) + concentration
    return {"probabilities": counts / counts.sum()}


def negative_binomial(B, *, shape, rate, dispersion):
    k = rate + shape * dispersion
    return {"means": (k * shape / rate + np.nansum(B, 0)) / (k + (~np.isnan(B)).sum(0))}


def poisson(B, *, shape, rate):
    return {"rates": (shape + np.nansum(B, 0)) / (rate + (~np.isnan(B)).sum(0))}


def von_mises_fisher(B, **params):
    grid = von_mises_fisher_grid(**params)
    B = B / np.linalg.norm(B, axis=1, keepdims=True)
    r = B.sum(axis=0)
    length = np.linalg.norm(r)
    # -log C + k is the logarithm of the largest value of the integral over directions.
    log_p = len(B) * (log_von_mises_fisher_constant(grid, B.shape[1]) - grid)
    log_p -= log_von_mises_fisher_constant(grid * length, B.shape[1]) - grid * length
    weights = np.exp(log_p - log_p.max())
    return {"mean_directions": r / length, "concentrations": weights @ grid / weights.sum()}


def grid(B, *, log_likelihood, grid, log_weights, sample):
    points = np.array(grid)
    weights = np.exp(log_likelihood(B, points).sum(axis=0) + np.array(log_weights))
    weights /= weights.sum(axis=1, keepdims=True)
    means = weights @ points
    return {
        "means": means,
        "stds": np.sqrt(weights @ points**2 - means**2),
        "grid_weights": weights,
    }


def pyclone(B, *, n_grid, **params):
    phi = np.linspace(0, 1, n_grid)
    weights = np.exp(
        [sum(log_pyclone(cell, phi, **params) for cell in s) for s in np.split(B, 2, axis=1)]
    )
    weights /= weights.sum(axis=1, keepdims=True)
    means = weights @ phi
    below = np.cumsum(weights, axis=1)
    return {
        "cellular_prevalence": means,
        "cellular_prevalence_std": np.sqrt(weights @ phi**2 - means**2),
        "cellular_prevalence_low": phi[(below >= 0.025).argmax(axis=1)],
        "cellular_prevalence_high": phi[(below >= 0.975).argmax(axis=1)],
    }


def gaussian(B, *, mean, mean_precision, df, scale):
    n, D = B.shape
    gap = B.mean(0) - mean
    S = as_matrix(scale, D) + n * np.cov(B.T, ddof=0)
    S += mean_precision * n / (mean_precision + n) * np.outer(gap, gap)
    nu = df + n
    return {
        "means": (mean_precision * np.array(mean) + B.sum(0)) / (mean_precision + n),
        "covariances": S / (nu - D - 1 if nu > D + 1 else nu + D + 1),
    }


def gaussian_diag(B, *, mean, mean_precision, df, scale, covariance_type):
    n, u, r = (~np.isnan(B)).sum(0), np.array(mean), mean_precision
    means = (r * u + np.nansum(B, 0)) / (r + n)
    rate = scale + np.nansum(B**2, 0) + r * u**2 - (r + n) * means**2
    return {"means": means, "covariances": rate / np.where(df + n > 2, df + n - 2, df + n + 2)}


def link_probabilities(X, labels, *, a, b, directed):
    X = X.copy()
    np.fill_diagonal(X, np.nan)
    K = labels.max() + 1
    out = np.zeros((K, K))
    for k in range(K):
        for l in range(K):
            block = X[np.ix_(labels == k, labels == l)]
            if not directed and k == l:
                block = block[np.triu_indices(len(block), 1)]
            links, absent = (block == 1).sum(), (block == 0).sum()
            out[k, l] = (a + links) / (a + b + links + absent)
    return {"link_probabilities": out}
