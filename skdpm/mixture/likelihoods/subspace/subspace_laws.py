# SPDX-License-Identifier: BSD-3-Clause
"""Laws of a row under `Subspace`, of which any entries may be known.

A row is x = center + A z + R e, where z = loc + scale^(1/2) g / sqrt(w) in a cluster, g and e are
standard normal, and w ~ Gamma(df / 2, rate=df / 2). So z is t, but entries of x are in general
neither t nor independent. Given w all is normal, and w is integrated out by the trapezoidal rule
in u = log w, which is exact up to rounding for smooth integrands that vanish at the ends.

With a small probability a row departs along the axes of e, which is then multiplied by one of
`SPREADS`. So densities have heavy tails there, and are sums of those with R multiplied.

Let L L' = R R' + A G A', which all clusters share. L^-1 (x - center) is white, and unknown entries
move it in the span of L^-1 E. With L^-1 [E, A] = [Q1, Q] [[J, C], [0, M]], where Q1 and Q are
orthonormal, Q has at most n_axes columns. The covariance of Q' L^-1 (x - center) in a cluster is
P + T / w, and 1 in directions beyond both. With B' (P + T) B = 1 and B' T B diagonal, it becomes
lambda / w + mu. Where R is multiplied by s, P, mu and the 1 are by s^2.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular
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
# mu, of at most 1, below which it is a rounding error, and to which it is raised as a divisor.
SMALLEST_REST, LEAST_WIDTH = 1e-24, 1e-33
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
    """White coordinates of rows with the same unknown entries, for all clusters."""

    inside: np.ndarray  # Q1
    basis: np.ndarray  # Q
    gaps: np.ndarray  # J
    beside: np.ndarray  # C
    weights: np.ndarray  # M
    noise_along: np.ndarray  # Q' L^-1 R
    log_det: float  # of the root of the covariance of known entries


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

    width = 2 * N_NODES
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

    @cached_property
    def _white(self):
        """L^-1, L^-1 A, L^-1 R and log |L|."""
        roots = np.hstack([self.rest, self.axes @ factors(self.scale.mean(axis=0)[None])[0]])
        # Of the roots themselves: a sum of their squares would leave narrow directions no digits.
        triangle = np.linalg.qr(roots.T, mode="r").T
        inverse = solve_triangular(triangle, np.eye(len(triangle)), lower=True)
        log_det = np.log(np.abs(np.diagonal(triangle))).sum()
        return inverse, inverse @ self.axes, inverse @ self.rest, log_det

    def _frame(self, known):
        inverse, axes, noise, log_det = self._white
        n = np.count_nonzero(~known)
        basis, weights = np.linalg.qr(np.hstack([inverse[:, ~known], axes]))
        inside, basis = basis[:, :n], basis[:, n:]
        gaps, *parts = weights[:n, :n], weights[:n, n:], weights[n:, n:]
        log_det = log_det + np.log(np.abs(np.diagonal(gaps))).sum()
        return Frame(inside, basis, gaps, *parts, basis.T @ noise, log_det)

    def _coordinates(self, X, frame):
        """L^-1 (x - center) with unknown entries at the center, beyond their span, and along Q."""
        y = np.clip(np.where(np.isnan(X), 0.0, X - self.center), -FARTHEST, FARTHEST)
        y = np.clip(y @ self._white[0].T, -FARTHEST, FARTHEST)  # squares are finite
        inside = y @ frame.inside
        y = y - inside @ frame.inside.T
        return inside, y, y @ frame.basis

    def _spectra(self, frame, clusters):
        """lambda, mu, B and log |P + T| of clusters."""
        noise = frame.noise_along @ frame.noise_along.T
        spread = frame.weights @ self.scale[clusters] @ frame.weights.T
        factor = factors(noise + spread)
        half = np.linalg.solve(factor, spread)
        half = np.linalg.solve(factor, half.swapaxes(1, 2))
        along, vectors = np.linalg.eigh(0.5 * (half + half.swapaxes(1, 2)))
        B = np.linalg.solve(factor.swapaxes(1, 2), vectors)
        rest = np.sum((frame.noise_along.T @ B) ** 2, axis=1)
        log_det = 2.0 * np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
        return np.maximum(along, 0.0), rest, B, log_det

    def log_density(self, X, log_weights=None):
        out = np.zeros((len(X), len(self.loc)))
        step = max(1, MOST_ENTRIES // (len(self.loc) * (8 * len(SPREADS) + self.axes.shape[1])))
        for rows, known in patterns(X):
            if known.any():
                frame = self._frame(known)
                spectra = self._spectra(frame, slice(None))
                for first in range(0, len(rows), step):
                    part = rows[first : first + step]
                    out[part] = self._log_density(X[part], frame, spectra, log_weights)
        return out

    def _log_density(self, X, frame, spectra, log_weights):
        _, y, z = self._coordinates(X, frame)
        along, rest, B, log_det = spectra
        squares = ((z - (self.loc @ frame.weights.T)[:, None]) @ B) ** 2
        # Where both are large, the difference of their squares would be a rounding error.
        far = np.sum((y - z @ frame.basis.T) ** 2, axis=1)
        shares, spreads = np.array([[0.0], [1.0]])
        if self.departs:
            shares, spreads = log_shares(self.n_rows), SPREADS
        n_known, n = X.shape[1] - frame.inside.shape[1], z.shape[1]
        shares = shares - 0.5 * n_known * np.log(2.0 * np.pi) - (n_known - n) * np.log(spreads)
        common = shares[:, None] - 0.5 * far / spreads[:, None] ** 2 - frame.log_det
        # Terms of a spread and a cluster, along the axes: covariances are P + T again.
        # Wide spreads would make variances of rounding errors.
        rest = np.where(rest > SMALLEST_REST, rest, 0.0) * spreads[:, None, None] ** 2
        widths = along + rest
        base = common[:, None] - 0.5 * (log_det + np.log(widths).sum(axis=2))[:, :, None]
        distances = np.einsum("knr,skr->skn", squares, 1.0 / widths, optimize=True)
        kept = self._that_matter(base, distances, n, log_weights)
        out, along, rest = np.full(base.shape, -np.inf), along / widths, rest / widths
        step = max(1, MOST_ENTRIES // (len(X) * 256))
        for first in range(0, len(kept[0]), step):
            s, k = (places[first : first + step] for places in kept)
            parts = along[s, k], rest[s, k], squares[k] / widths[s, k][:, None]
            _, log_p = self._integrand(self.df[k], *parts)
            out[s, k] = base[s, k] + logsumexp(log_p, axis=2)
        return logsumexp(out, axis=0).T

    def _that_matter(self, base, squares, n, log_weights):
        """Spreads and clusters that may matter for a row, by bounds, see `_integrand`. Without
        weights, each cluster does, with some spreads."""
        if np.isinf(self.df).all():
            return np.nonzero(np.ones(base.shape[:2]))
        among = 0 if log_weights is None else (0, 1)
        base = base if log_weights is None else base + log_weights[:, None]
        df, a = self.df[:, None], 0.5 * self.df[:, None]
        # P + T / w is between P + T and (P + T) / w, whether w is below 1 or above. So the
        # exponential of the square is at most exp(-w q / 2) below 1 and exp(-q / 2) above.
        log_moment = gammaln(a + 0.5 * n) - gammaln(a) - 0.5 * n * np.log(a)
        upper = base + np.logaddexp(-a * np.log1p(squares / df), log_moment - 0.5 * squares)
        # At least the part of w between `least` and 1, where exp(-q / 2) is smaller.
        least = np.maximum(0.5, 1.0 - 1.0 / np.sqrt(a))
        part = np.log(gammainc(a, a) - gammainc(a, a * least)) + 0.5 * n * np.log(least)
        lower = base + part - 0.5 * squares
        limit = lower.max(axis=among, keepdims=True) - NEGLIGIBLE
        return np.nonzero((upper >= limit - np.log(base[:, :, 0].size)).any(axis=2))

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

    def _conditioned(self, X, clusters, columns):
        """For each pattern with unknown entries in `columns`: rows, positions there, the frame,
        coordinates along Q, spectra and distances from the mean along B, covariances with these
        over w and without, numbers, axes and roots that give the entries, and nodes w with p."""
        for rows, known in patterns(X):
            places = np.flatnonzero(~known[columns])
            if not len(places):
                continue
            at, frame = columns[places], self._frame(known)
            chosen, which = np.unique(clusters[rows], return_inverse=True)
            along, fixed, B, _ = (values[which] for values in self._spectra(frame, chosen))
            inside, _, z = self._coordinates(X[rows], frame)
            gaps = np.einsum("mr,mrs->ms", z - (self.loc[chosen] @ frame.weights.T)[which], B)
            w, p = self._posterior(self.df[clusters[rows]], along, fixed, gaps**2)
            # Unknown entries are center + J^-1 (C z + Q1' L^-1 (R e - x + center)).
            back = solve_triangular(frame.gaps, np.eye(len(frame.gaps)))[np.cumsum(~known)[at] - 1]
            axes, rest = back @ frame.beside, back @ frame.inside.T @ self._white[2]
            over_w = (axes @ self.scale[chosen] @ frame.weights.T)[which] @ B
            loadings = over_w, rest @ frame.noise_along.T @ B
            free = self.center[at] - inside @ back.T, axes, rest
            yield rows, places, frame, z, (along, fixed, B, gaps), loadings, free, w, p

    def given(self, X, clusters, columns):
        n_nodes = 1 if np.isinf(self.df).all() else N_NODES
        columns = np.asarray(columns, dtype=np.intp)
        loc = np.repeat(X[:, columns].T[..., None], n_nodes, axis=2)
        scale, weights = np.ones(loc.shape), np.repeat(np.eye(1, n_nodes), len(X), axis=0)
        for rows, places, *_, spectra, (over_w, fixed), free, w, p in self._conditioned(
            X, clusters, columns
        ):
            (along, rest, _, gaps), (shared, axes, noise), v = spectra, free, w[:, None]
            weights[rows] = p
            # Widths times v, as squares of small v are no doubles: (n_rows, n_axes, n_nodes).
            widths = along[..., None] + np.maximum(rest, LEAST_WIDTH)[..., None] * v
            steps = gaps[..., None] / widths
            means = (shared + self.loc[clusters[rows]] @ axes.T)[..., None]
            means = means + over_w @ steps + fixed @ (steps * v)
            variances = np.sum(axes @ self.scale[clusters[rows]] * axes, axis=2)
            variances = variances[..., None] / v + np.sum(noise**2, axis=1)[:, None]
            variances -= over_w**2 @ (1.0 / (widths * v)) + fixed**2 @ (v / widths)
            variances -= 2.0 * (over_w * fixed) @ (1.0 / widths)
            loc[np.ix_(places, rows)] = means.swapaxes(0, 1)
            scale[np.ix_(places, rows)] = np.sqrt(np.maximum(variances, 1e-300)).swapaxes(0, 1)
        return [NormalMixtures(*column, weights) for column in zip(loc, scale, strict=True)]

    def fill(self, X, clusters, rng):
        filled = X.copy()
        for rows, places, frame, z, spectra, (over_w, fixed), free, w, p in self._conditioned(
            X, clusters, np.arange(X.shape[1])
        ):
            (along, rest, B, _), (shared, axes, roots) = spectra, free
            v = w[np.arange(len(rows)), drawn_places(p, rng)][:, None]
            # A free row, corrected by the known entries (Matheron's rule).
            normal = rng.standard_normal((len(rows), self.axes.shape[1]))
            points = np.einsum("mqr,mr->mq", factors(self.scale[clusters[rows]]), normal)
            points = self.loc[clusters[rows]] + points / np.sqrt(v)
            noise = rng.standard_normal((len(rows), self.rest.shape[1]))
            gaps = z - points @ frame.weights.T - noise @ frame.noise_along.T
            steps = np.einsum("mr,mrs->ms", gaps, B) / (along / v + rest)
            steps = np.einsum("mar,mr->ma", over_w / v[..., None] + fixed, steps)
            filled[np.ix_(rows, places)] = shared + points @ axes.T + noise @ roots.T + steps
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
