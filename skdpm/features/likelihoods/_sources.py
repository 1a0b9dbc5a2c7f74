# SPDX-License-Identifier: BSD-3-Clause
"""Quick and rough binary factors of a matrix, at which chains of `LinearGaussian` start.

Rows that are sums of independent parts are a linear mixture of independent sources with two values
each. Independent component analysis finds these sources much faster than a sampler from a random
start; a threshold makes them binary.
"""

import functools

import numpy as np

# Largest number of sources; the time grows with its square.
MOST_SOURCES = 64
# Smallest number of components. If a few columns all contain signal, noise cannot be recognised.
FEWEST_COMPONENTS = 3
# Decimals of the entries, scaled to at most 1.
N_DECIMALS = 6
# Steps of the fixed-point iteration, and the change of a direction at which it ends.
N_STEPS = 200
TOLERANCE = 1e-4


class BinarySources:
    """Binary sources of rows. Terms common to all guesses are computed once.

    - `X`: (n_samples, n_features).
    - `observed`: ndarray of the same shape, 0 or 1, or None. None: all entries are observed.

    References
    ----------
    Hyvarinen (1999), Fast and robust fixed-point algorithms for independent component analysis.
    """

    def __init__(self, X, observed):
        self.X = X
        self.observed = observed
        self._principal_scores = functools.cache(self._principal_scores)

    def draw(self, most, rng):
        """At most `most` sources in a bootstrap sample of the rows, so that starts differ as far
        as the data leave them open: (n_samples, n_sources), bool. Each is on in at least one row
        and in at most half of them."""
        n_samples, n_features = self.X.shape
        most = min(most, MOST_SOURCES, n_samples - 1, n_features)
        if most < 1:
            return np.zeros((n_samples, 0), dtype=bool)
        scores = self._principal_scores(most)
        sample = scores[rng.integers(n_samples, size=n_samples)]
        sample = sample - sample.mean(axis=0)
        # Whitening: uncorrelated scores of variance 1, without directions that the sample lacks.
        values, vectors = np.linalg.eigh(sample.T @ sample / n_samples)
        kept = values > 1e-12 * values.max(initial=0.0)
        if not kept.any():
            return np.zeros((n_samples, 0), dtype=bool)
        whitening = vectors[:, kept] / np.sqrt(values[kept])
        sources = scores @ whitening @ _unmixing(sample @ whitening, rng).T
        Z = np.column_stack([_two_groups(source) for source in sources.T])
        return Z[:, Z.any(axis=0)]

    def _principal_scores(self, most):
        """Scores on the principal components above noise; these also predict missing entries."""
        X, observed = self.X, self.observed
        # Rounded, so that the cut between groups does not depend on the units of X.
        filled = X = np.round(X / max(np.abs(X).max(), np.finfo(float).tiny), N_DECIMALS)
        if observed is not None:
            mean = (X * observed).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
            filled = np.where(observed, X, mean)
        for _step in range(1 if observed is None else 6):
            mean = filled.mean(axis=0)
            U, lengths, directions = np.linalg.svd(filled - mean, full_matrices=False)
            n_kept = _n_above_noise(lengths**2 / len(X), len(X))
            n_kept = min(max(n_kept, FEWEST_COMPONENTS), most, len(lengths))
            scores = U[:, :n_kept] * lengths[:n_kept]
            if observed is not None:
                filled = np.where(observed, X, mean + scores @ directions[:n_kept])
        return scores


def _n_above_noise(variances, n_samples):
    """Count the principal variances above the edge of the Marchenko-Pastur law of the rest."""
    n = len(variances)
    for k in range(n):
        edge = (1.0 + np.sqrt((n - k) / n_samples)) ** 2
        if variances[k] <= variances[k:].mean() * edge:
            return k
    return n


def _unmixing(whitened, rng):
    """Directions in which whitened rows are least Gaussian, all at once (contrast log cosh)."""
    n_samples, n = whitened.shape
    W = _orthogonal(rng.standard_normal((n, n)))
    for _step in range(N_STEPS):
        projected = np.tanh(whitened @ W.T)
        slope = (1.0 - projected**2).mean(axis=0)
        last, W = W, _orthogonal(projected.T @ whitened / n_samples - slope[:, None] * W)
        if np.abs(np.abs((W * last).sum(axis=1)) - 1.0).max() < TOLERANCE:
            break
    return W


def _orthogonal(W):
    """The orthogonal matrix nearest to W."""
    U, _, Vt = np.linalg.svd(W)
    return U @ Vt


def _two_groups(values):
    """Mark the values in the smaller of the two groups with the least squares."""
    ordered = np.sort(values - values.mean())
    n_low = np.arange(1, len(ordered))
    between = np.cumsum(ordered)[:-1] ** 2 / (n_low * (len(ordered) - n_low))
    cut = ordered[np.argmax(between)]
    high = values - values.mean() > cut
    return high if 2 * high.sum() <= len(values) else ~high
