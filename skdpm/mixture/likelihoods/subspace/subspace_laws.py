# SPDX-License-Identifier: BSD-3-Clause
"""Laws of a row under `Subspace`, of which any entries may be known.

A row is x = center + A z + R e, where z = loc + scale^(1/2) g / sqrt(w) in a cluster, g and e are
standard normal, and w ~ Gamma(df / 2, rate=df / 2). So z is t, but entries of x are in general
neither t nor independent. Given w all is normal, and w is integrated out by the trapezoidal rule
in u = log w, which is exact up to rounding for smooth integrands that vanish at the ends.

With a small probability a row departs along the axes of e, which is then multiplied by one of
`SPREADS`. So densities have heavy tails there, and are sums of those with R multiplied.

Let b be the known entries. A matrix S = R_b R_b' + A_b G A_b' = L L' is shared by all clusters,
and L^-1 A_b = Q M has at most n_axes columns. The covariance of Q' L^-1 (x_b - center_b) in a
cluster is P + T / w; in the other directions it is 1. With B' (P + T) B = 1 and B' T B diagonal,
the covariance becomes lambda / w + mu.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gammainc, gammaln, logsumexp, ndtr, ndtri

from skdpm.mixture.likelihoods.laws.laws import (
    ColumnLaw,
    Laws,
    drawn_places,
    factors,
    log_succession,
    patterns,
)

# Largest number of entries of arrays of rows, clusters and nodes (32 MiB).
MOST_ENTRIES = 2**22
# Largest distance, whose square times a weight is finite, and smallest logarithm of a weight.
FARTHEST, LOWEST = 1e145, -690.0
# Terms of an integral, or a sum over clusters, below exp(-NEGLIGIBLE) of the largest do not count.
NEGLIGIBLE = 40.0
# Largest steps of nodes: in standard deviations of a sharp posterior of u, and absolute. The strip
# in which the integrand is analytic and bounded has the half-width pi / 2.
STEP, LONGEST_STEP = 0.6, 0.3
# Standard deviations of rows that follow and of far rows, in those of the rows of `fit`. The steps
# grow with the distance: their number is that of powers of 1.6, up to 1e140.
SPREADS = 2.0 ** ((1.6 ** np.arange(13) - 1.0) / 0.6)
# Nodes of the posterior of u, and their range in standard deviations.
N_NODES, RANGE = 31, 8.5


def log_of_rest(squares, size, n_rows):
    """log density of `size` white coordinates, whose squares sum to `squares`. A far row loses
    little more than the logarithm of its distance in each."""
    with np.errstate(over="ignore"):
        terms = -size * np.log(SPREADS) - 0.5 * (np.sqrt(squares)[:, None] / SPREADS) ** 2
    terms += log_shares(n_rows) - 0.5 * size * np.log(2.0 * np.pi)
    return logsumexp(terms, axis=1)


def log_shares(n_rows):
    """log probabilities of `SPREADS` after `n_rows` rows, of which none is far."""
    follows, departs = log_succession(n_rows)
    return np.append(follows, np.full(len(SPREADS) - 1, departs - np.log(len(SPREADS) - 1)))


class NormalMixtures(ColumnLaw):
    """Mixtures of normal laws: (n_clusters, n_terms) each."""

    def __init__(self, loc, scale, p):
        self.loc, self.scale, self.p = loc, scale, p

    def mean(self):
        return np.sum(self.p * self.loc, axis=1)

    def cdf(self, x):
        return np.sum(self.p * ndtr((x[:, None] - self.loc) / self.scale), axis=1)

    def bracket(self, p):
        quantiles = self.loc + ndtri(p) * self.scale
        # Terms without weight do not count.
        kept = self.p > 0.0
        low = np.where(kept, quantiles, np.inf).min(axis=1)
        return low, np.where(kept, quantiles, -np.inf).max(axis=1)


@dataclass(eq=False)
class Frame:
    """Coordinates of known entries that all clusters share."""

    known: np.ndarray  # columns
    factor: np.ndarray  # L
    basis: np.ndarray  # Q
    weights: np.ndarray  # M
    noise: np.ndarray  # L^-1 R_b
    noise_along: np.ndarray  # Q' L^-1 R_b


@dataclass(eq=False)
class SubspaceLaws(Laws):
    """Multivariate t along some axes, normal along the others.

    - `loc`: (n_clusters, n_axes)
    - `scale`: (n_clusters, n_axes, n_axes)
    - `df`: (n_clusters,). Infinite for all clusters if the laws are normal.
    - `center`: (n_features,)
    - `axes`: (n_features, n_axes)
    - `rest`: (n_features, n_others). Roots of the covariance of the other coordinates.
    - `n_rows`: int. Number of rows of `fit`, of which none departs along these: `log_of_rest`.
    - `departs`: bool. Whether densities take this into account.
    """

    width = 16
    of_clusters = ("loc", "scale", "df")

    loc: np.ndarray
    scale: np.ndarray
    df: np.ndarray
    center: np.ndarray
    axes: np.ndarray
    rest: np.ndarray
    n_rows: int
    departs: bool = False

    def departing(self):
        return replace(self, departs=True)

    def blurred(self, errors):
        return replace(self, rest=np.hstack([self.rest, np.diag(errors)]))

    def _frame(self, known):
        known = np.flatnonzero(known)
        axes, rest = self.axes[known], self.rest[known]
        common = self.scale.mean(axis=0)
        factor = factors((rest @ rest.T + axes @ common @ axes.T)[None])[0]
        basis, weights = np.linalg.qr(np.linalg.solve(factor, axes))
        noise = np.linalg.solve(factor, rest)
        return Frame(known, factor, basis, weights, noise, basis.T @ noise)

    def _white(self, X, frame):
        """Known entries as L^-1 (x - center), and along the basis."""
        y = np.linalg.solve(frame.factor, (X[:, frame.known] - self.center[frame.known]).T).T
        y = np.clip(y, -FARTHEST, FARTHEST)  # squares are finite
        return y, y @ frame.basis

    def _covariances(self, frame, clusters):
        """P and T."""
        noise = frame.noise_along @ frame.noise_along.T
        return noise, frame.weights @ self.scale[clusters] @ frame.weights.T

    def _spectra(self, frame, clusters):
        """lambda, mu, B and log |P + T| of clusters."""
        noise, spread = self._covariances(frame, clusters)
        factor = factors(noise + spread)
        half = np.linalg.solve(factor, spread)
        half = np.linalg.solve(factor, half.swapaxes(1, 2))
        along, vectors = np.linalg.eigh(0.5 * (half + half.swapaxes(1, 2)))
        B = np.linalg.solve(factor.swapaxes(1, 2), vectors)
        rest = np.sum((frame.noise_along.T @ B) ** 2, axis=1)
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        return np.maximum(along, 0.0), rest, B, log_det

    def log_density(self, X, log_weights=None):
        if not self.departs or not self.rest.any():
            return self._log_density_of(X, log_weights)
        terms = [
            share + replace(self, rest=self.rest * spread)._log_density_of(X, log_weights)
            for share, spread in zip(log_shares(self.n_rows), SPREADS, strict=True)
        ]
        return logsumexp(terms, axis=0)

    def _log_density_of(self, X, log_weights):
        """Densities without departures."""
        out = np.zeros((len(X), len(self.loc)))
        for rows, known in patterns(X):
            if known.any():
                frame = self._frame(known)
                step = max(1, MOST_ENTRIES // (len(self.loc) * 256))
                for first in range(0, len(rows), step):
                    part = rows[first : first + step]
                    out[part] = self._log_density(X[part], frame, log_weights)
        return out

    def _log_density(self, X, frame, log_weights):
        y, along = self._white(X, frame)
        # Where both are large, the difference of their squares would be a rounding error.
        common = -0.5 * np.sum((y - along @ frame.basis.T) ** 2, axis=1)
        common -= np.log(np.diagonal(frame.factor)).sum()
        common -= 0.5 * len(frame.known) * np.log(2.0 * np.pi)
        gaps = along[:, None] - self.loc @ frame.weights.T
        kept = self._that_matter(frame, gaps, log_weights)
        out = np.full(gaps.shape[:2], -np.inf)
        *spectra, B, log_det = self._spectra(frame, kept)
        squares = (gaps[:, kept].swapaxes(0, 1) @ B) ** 2  # (n_kept, n_rows, n_axes)
        _, log_terms = self._integrand(self.df[kept], *spectra, squares)
        out[:, kept] = logsumexp(log_terms, axis=2).T - 0.5 * log_det
        return out + common[:, None]

    def _that_matter(self, frame, gaps, log_weights):
        """Clusters that may matter for a row, by bounds, see `_integrand`: all without weights."""
        if log_weights is None or np.isinf(self.df).all():
            return np.arange(len(self.loc))
        noise, spread = self._covariances(frame, slice(None))
        factor = factors(noise + spread)
        squares = np.sum(np.linalg.solve(factor, gaps.transpose(1, 2, 0)) ** 2, axis=1).T
        log_dets = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        n = gaps.shape[2]
        a = 0.5 * self.df
        # P + T / w is between P + T and (P + T) / w, whether w is below 1 or above. So the
        # exponential of the square is at most exp(-w q / 2) below 1 and exp(-q / 2) above.
        log_moment = gammaln(a + 0.5 * n) - gammaln(a) - 0.5 * n * np.log(a)
        base = log_weights - log_dets
        upper = base + np.logaddexp(-a * np.log1p(squares / self.df), log_moment - 0.5 * squares)
        # At least the part of w between `least` and 1, where exp(-q / 2) is smaller.
        least = np.maximum(0.5, 1.0 - 1.0 / np.sqrt(a))
        part = np.log(gammainc(a, a) - gammainc(a, a * least)) + 0.5 * n * np.log(least)
        lower = base + part - 0.5 * squares
        limit = lower.max(axis=1, keepdims=True) - NEGLIGIBLE - np.log(len(self.loc))
        return np.flatnonzero((upper >= limit).any(axis=0))

    def _integrand(self, df, along, rest, squares):
        """Nodes u, (n_clusters, n_nodes), and logarithms of the terms of the integral over u of
        the density of the coordinates, without |P + T|: (n_clusters, n_rows, n_nodes)."""
        if np.isinf(df).all():
            return np.zeros((len(df), 1)), -0.5 * squares.sum(axis=2, keepdims=True)
        low, high = limits(df, squares.shape[2], along, squares)
        step = np.minimum(LONGEST_STEP, STEP * np.sqrt(2.0 / (df + squares.shape[2])))
        n_nodes = 2 + int(np.max((high - low) / step))
        u = np.linspace(low, high, n_nodes, axis=1)
        log_steps = np.log((high - low) / (n_nodes - 1))
        return u, log_terms(u, df, along, rest, squares) + log_steps[:, None, None]

    def _posterior(self, df, along, rest, squares):
        """Nodes w and their probabilities, (n_pairs, n_nodes), from squares (n_pairs, n_axes)."""
        squares = squares[:, None]
        u, log_p = self._integrand(df, along, rest, squares)
        if u.shape[1] == 1:
            return np.ones_like(u), np.ones_like(u)
        p = np.exp(log_p[:, 0] - logsumexp(log_p[:, 0], axis=1, keepdims=True))
        center = np.sum(p * u, axis=1, keepdims=True)
        spread = np.sqrt(np.sum(p * (u - center) ** 2, axis=1, keepdims=True))
        u = center + spread * np.linspace(-RANGE, RANGE, N_NODES)
        log_p = log_terms(u, df, along, rest, squares)[:, 0]
        return np.exp(u), np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))

    def _conditioned(self, X, clusters):
        """For each pattern with unknown entries: rows, the frame, clusters and cluster of each
        row, their spectra, and nodes w with probabilities."""
        for rows, known in patterns(X):
            if known.all():
                continue
            chosen, which = np.unique(clusters[rows], return_inverse=True)
            frame = self._frame(known)
            along, rest, B, _ = self._spectra(frame, chosen)
            y, z = self._white(X[rows], frame)
            gaps = z - (self.loc[chosen] @ frame.weights.T)[which]
            coordinates = np.einsum("mr,mrs->ms", gaps, B[which])
            w, p = self._posterior(
                self.df[clusters[rows]], along[which], rest[which], coordinates**2
            )
            yield rows, frame, chosen, which, (along, rest, B), y, coordinates, w, p

    def _loadings(self, frame, chosen, columns, B):
        """Covariances of columns with coordinates: parts over w and without, and the shared part
        with the other coordinates."""
        beside = self.rest[columns] @ frame.noise.T
        along = beside @ frame.basis
        over_w = self.axes[columns] @ self.scale[chosen] @ frame.weights.T @ B
        return over_w, along @ B, beside - along @ frame.basis.T

    def given(self, X, clusters, columns):
        n_nodes = 1 if np.isinf(self.df).all() else N_NODES
        loc, scale = np.zeros((2, len(columns), len(X), n_nodes))
        scale += 1.0
        weights = np.zeros((len(X), n_nodes))
        weights[:, 0] = 1.0
        columns = np.asarray(columns, dtype=np.intp)
        for rows, frame, chosen, which, spectra, y, z, w, p in self._conditioned(X, clusters):
            over_w, fixed, others = self._loadings(frame, chosen, columns, spectra[2])
            axes, rest = self.axes[columns], self.rest[columns]
            means = self.center[columns] + self.loc[chosen] @ axes.T
            variances = np.einsum("aq,kqr,ar->ka", axes, self.scale[chosen], axes)
            remaining = np.sum(rest**2, axis=1) - np.sum(others**2, axis=1)
            weights[rows] = p
            shared = means[which] + y @ others.T
            for j in range(p.shape[1]):
                v = w[:, j, None]
                widths = spectra[0][which] / v + spectra[1][which]
                loadings = over_w[which] / v[..., None] + fixed[which]
                loc[:, rows, j] = (shared + np.einsum("mar,mr->ma", loadings, z / widths)).T
                variance = variances[which] / v + remaining
                variance -= np.sum((loadings / np.sqrt(widths)[:, None]) ** 2, axis=2)
                scale[:, rows, j] = np.sqrt(np.maximum(variance, 1e-300)).T
        return [NormalMixtures(*column, weights) for column in zip(loc, scale, strict=True)]

    def fill(self, X, clusters, rng):
        filled = X.copy()
        for rows, frame, chosen, which, spectra, _, _, w, p in self._conditioned(X, clusters):
            v = w[np.arange(len(rows)), drawn_places(p, rng)][:, None]
            # A free row, corrected by the known entries (Matheron's rule).
            roots = factors(self.scale[chosen])
            normal = rng.standard_normal((len(rows), self.axes.shape[1]))
            points = self.loc[clusters[rows]]
            points = points + np.einsum("mqr,mr->mq", roots[which], normal) / np.sqrt(v)
            noise = rng.standard_normal((len(rows), self.rest.shape[1]))
            free = self.center + points @ self.axes.T + noise @ self.rest.T
            gaps = X[rows][:, frame.known] - free[:, frame.known]
            y = np.linalg.solve(frame.factor, gaps.T).T
            z = np.einsum("mr,mrs->ms", y @ frame.basis, spectra[2][which])
            columns = np.flatnonzero(np.isnan(X[rows[0]]))
            over_w, fixed, others = self._loadings(frame, chosen, columns, spectra[2])
            z = z / (spectra[0][which] / v + spectra[1][which])
            loadings = over_w[which] / v[..., None] + fixed[which]
            steps = y @ others.T + np.einsum("mar,mr->ma", loadings, z)
            filled[np.ix_(rows, columns)] = free[:, columns] + steps
        return filled


def log_terms(u, df, along, rest, squares):
    """Logarithm of the density of u = log w times that of coordinates given w, with variances
    lambda / w + mu, and squares of shape (n_clusters, n_rows, n_axes)."""
    widths = along[:, None] * np.exp(-u)[..., None] + rest[:, None]
    half = 0.5 * df[:, None]
    log_prior = half * np.log(half) - gammaln(half) + half * (u - np.exp(u))
    log_prior -= 0.5 * np.log(widths).sum(axis=2)
    return log_prior[:, None] - 0.5 * squares @ (1.0 / widths).swapaxes(1, 2)


def limits(df, n, along, squares):
    """Limits of u beyond which the integrand is negligible, for each cluster."""
    total = squares.sum(axis=2).max(axis=1)
    free = (squares / np.maximum(along, 1e-12)[:, None]).sum(axis=2).max(axis=1)
    # At smaller u the prior loses more than the other factors can gain.
    low = np.maximum(
        -(total + 2.0 * NEGLIGIBLE) / df, -np.log1p(free / df) - 2.0 - 2.0 * NEGLIGIBLE / df
    )
    low = np.maximum(low, LOWEST)
    high = 10.0 + np.log1p(100.0 * (n + 2.0 * NEGLIGIBLE) / df)
    for _ in range(50):
        high = np.log(1.0 + high + (n * high + 2.0 * NEGLIGIBLE) / df)
    return low, high
