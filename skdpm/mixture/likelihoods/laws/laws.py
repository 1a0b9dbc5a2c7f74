# SPDX-License-Identifier: BSD-3-Clause
"""Laws of a row in each of some clusters, of which any entries may be known.

`Likelihood.laws` makes them from the statistics of clusters. NaN marks an entry that is not known.
A *pair* is a row together with the number of a cluster; the law of a pair is that of the unknown
entries of the row in this cluster, given the known ones.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy.special import (
    betainc,
    betaincinv,
    betaln,
    expit,
    gammaln,
    logsumexp,
    ndtr,
    ndtri,
    pdtr,
    stdtr,
    stdtrit,
    xlogy,
)
from scipy.stats import nbinom, poisson

# Largest number of entries of the matrices that are factorised at once (32 MiB).
MOST_ENTRIES = 2**22

# Share of the norm of a combination of columns, below which known columns determine it.
DETERMINED = 1e-9
# Smallest squared pivot of a Cholesky factor, as a share of the diagonal, that has enough digits.
LEAST_PIVOT = 1e-6
# Distance of which the square may overflow; largest distance.
FAR, LARGEST = 1e150, 1e308

# Largest number of nodes of an integral over a parameter.
MOST_NODES = 4096

# Power with which the density of new values falls at the edges of an interval. Their probability
# to be just outside is about 1 over it.
EDGE = 20.0

# Largest rate of a Poisson variate.
LARGEST_RATE = 1e15


# Laws of one column.


class ColumnLaw:
    """Law of a column in each of some clusters. Its arrays have the clusters as first axis.

    - `is_discrete`: bool. Whether the values are whole numbers from 0.
    - `log_density(x)`: log density of each number under each cluster: (n, n_clusters).
    - `mean()`: Mean in each cluster; the location if there is no mean.
    - `cdf(x)`: Probability of at most x[k] in cluster k.
    - `quantile(p)`: Quantile p in each cluster.
    - `draw(rng)`: Value in each cluster.
    """

    is_discrete = False

    def take(self, clusters):
        """The law of each of these clusters, which may be repeated."""
        return type(self)(*(taken(values, clusters) for values in vars(self).values()))

    @classmethod
    def joined(cls, laws):
        """One law of the clusters of several laws."""
        return cls(*map(joined, zip(*(vars(law).values() for law in laws), strict=True)))

    def bracket(self, p):
        """Lower and upper bounds of quantile p in each cluster: two arrays."""
        quantile = self.quantile(p)
        return quantile, quantile

    def probabilities(self):
        """Probabilities of categories: (n_clusters, n_categories). None: values are numbers."""

    def blurred(self, error):
        """The law with an error of this standard deviation; the same law if it has none."""
        return self


class Student(ColumnLaw):
    """Student's t with a location, a scale and degrees of freedom, which may be infinite. With the
    scale 0 the value is known, and has no density."""

    def __init__(self, loc, scale, df):
        self.loc, self.scale, self.df = loc, scale, df

    def log_density(self, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            distances = np.abs(x[:, None] - self.loc) / self.scale
            found = log_student(distances, np.log(self.scale), self.df, 1.0)
        return np.where(self.scale > 0.0, found, 0.0)

    def mean(self):
        return self.loc

    def cdf(self, x):
        with np.errstate(divide="ignore", invalid="ignore"):
            z = (x - self.loc) / self.scale
        z = np.where(self.scale > 0.0, z, np.where(x >= self.loc, np.inf, -np.inf))
        return np.where(np.isinf(self.df), ndtr(z), stdtr(self.df, z))

    def quantile(self, p):
        z = np.where(np.isinf(self.df), ndtri(p), stdtrit(self.df, p))
        return self.loc + np.where(self.scale > 0.0, z, 0.0) * self.scale

    def blurred(self, error):
        return Student(self.loc, np.hypot(self.scale, error), self.df)

    def draw(self, rng):
        normal = rng.standard_normal(self.loc.shape)
        return self.loc + self.scale * normal / np.sqrt(shared_factors(self.df, rng))


class Uniform(ColumnLaw):
    """Uniform between two numbers."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def log_density(self, x):
        inside = (x[:, None] >= self.low) & (x[:, None] <= self.high)
        return np.where(inside, -np.log(self.high - self.low), -np.inf)

    def mean(self):
        return self.low + 0.5 * (self.high - self.low)

    def cdf(self, x):
        return np.clip((x - self.low) / (self.high - self.low), 0.0, 1.0)

    def quantile(self, p):
        return self.low + p * (self.high - self.low)

    def draw(self, rng):
        return self.quantile(rng.random(self.low.shape))


class OpenUniform(Uniform):
    """Law of new values of a column whose values so far are uniform between two numbers.

    At a distance m from the middle, in halves of the interval, the density is that of the edges
    times (1 - far) / m^(p + 1) + far / (m (1 + log m)^2) for m > 1, with p = `EDGE`. The second
    term has the share `far` of the weight of the interval, and falls more slowly than any power
    1 / m^(1 + e). So a far value is in no cluster with heavy tails. Values are drawn inside.
    """

    def __init__(self, low, high, far):
        super().__init__(low, high)
        self.far = far

    def log_density(self, x):
        half = 0.5 * (self.high - self.low)
        middle = 0.5 * self.low + 0.5 * self.high
        m = np.log(np.maximum(np.abs(x[:, None] / half - middle / half), 1.0))
        near, far = np.log1p(-self.far) - EDGE * m, np.log(self.far) - 2.0 * np.log1p(m)
        total = 1.0 + (1.0 - self.far) / EDGE + self.far
        return np.logaddexp(near, far) - m - np.log(2.0 * half) - np.log(total)


class Counts(ColumnLaw):
    """Negative binomial: Poisson with a rate from a Gamma of this shape and rate."""

    is_discrete = True

    def __init__(self, shape, rate):
        self.shape, self.rate = shape, rate

    def log_density(self, x):
        x = x[:, None]
        log_gammas = -betaln(self.shape, x + 1.0) - np.log(self.shape + x)
        return log_gammas - self.shape * np.log1p(1.0 / self.rate) - x * np.log1p(self.rate)

    def mean(self):
        return self.shape / self.rate

    def cdf(self, x):
        x = np.floor(x)
        found = betainc(self.shape, np.maximum(x, 0.0) + 1.0, self.rate / (self.rate + 1.0))
        return np.where(x >= 0.0, found, 0.0)

    def quantile(self, p):
        return nbinom.ppf(p, self.shape, self.rate / (self.rate + 1.0))

    def draw(self, rng):
        return rng.poisson(rng.gamma(self.shape, 1.0 / self.rate)).astype(np.float64)


class OpenCounts(Counts):
    """Law of new values of a column of counts: with the probability `far` it has the survival
    function P(x or more) = 1 / (1 + log(1 + x / unit)). Values are drawn from the other law."""

    def __init__(self, shape, rate, far, unit):
        super().__init__(shape, rate)
        self.far, self.unit = far, unit

    def log_density(self, x):
        now, after = (1.0 + np.log1p((x[:, None] + more) / self.unit) for more in (0.0, 1.0))
        step = np.log1p(1.0 / (self.unit + x[:, None]))
        far = np.log(self.far * step) - np.log(now * after)
        return np.logaddexp(np.log1p(-self.far) + super().log_density(x), far)


class BetaNegativeBinomial(ColumnLaw):
    """Negative binomial with a size and a probability p ~ Beta(alpha, beta)."""

    is_discrete = True

    def __init__(self, size, alpha, beta):
        self.size, self.alpha, self.beta = size, alpha, beta

    def log_density(self, x):
        x = x[:, None]
        with np.errstate(divide="ignore", invalid="ignore"):
            log_h = np.where(x > 0.0, -np.log(x) - betaln(self.size, x), 0.0)
        return (
            betaln(self.alpha + self.size, self.beta + x) - betaln(self.alpha, self.beta) + log_h
        )

    def mean(self):
        return self.size * self.beta / (self.alpha - 1.0)

    def cdf(self, x):
        """The mean over p of the incomplete beta function, by the trapezoidal rule in the
        logarithm of (1 - p) / p. There the law of p is smooth with exponential tails, so the error
        falls exponentially with the number of nodes."""
        x = np.floor(x)
        low = np.log(betaincinv(self.beta, self.alpha, 1e-16))
        low -= np.log1p(-np.exp(low))
        high = -np.log(betaincinv(self.alpha, self.beta, 1e-16))
        high += np.log1p(-np.exp(-high))
        # Steps are small compared with the widths of both laws.
        width = np.sqrt(1.0 / self.alpha + 1.0 / self.beta)
        sharp = np.sqrt(1.0 / self.size + 1.0 / (1.0 + np.maximum(x, 0.0)))
        step = np.min(np.minimum(width, sharp)) / 4.0
        t = np.linspace(low, high, int(np.clip(np.max(high - low) / step, 100, MOST_NODES)))
        log_weights = self.beta * t - (self.alpha + self.beta) * np.logaddexp(0.0, t)
        weights = np.exp(log_weights - log_weights.max(axis=0))
        below = betainc(self.size, np.maximum(x, 0.0) + 1.0, expit(-t))
        return np.where(x >= 0.0, (weights * below).sum(axis=0) / weights.sum(axis=0), 0.0)

    def quantile(self, p):
        low, high = self.bracket(p)
        while np.any(high - low > 1.0):
            middle = np.floor((low + high) / 2.0)
            enough = self.cdf(middle) >= p
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return high

    def bracket(self, p):
        low = np.full(len(self.size), -1.0)
        high = np.ceil(np.maximum(self.mean(), 1.0))
        while True:
            short = self.cdf(high) < p
            if not short.any():
                return low, high
            low, high = np.where(short, high, low), np.where(short, 4.0 * high, high)

    def draw(self, rng):
        rates = rng.gamma(self.size) * rng.gamma(self.beta) / rng.gamma(self.alpha)
        return rng.poisson(np.minimum(rates, LARGEST_RATE)).astype(np.float64)


class Rates(ColumnLaw):
    """Poisson with a known rate."""

    is_discrete = True

    def __init__(self, rate):
        self.rate = rate

    def log_density(self, x):
        x = x[:, None]
        return xlogy(x, self.rate) - self.rate - gammaln(x + 1.0)

    def mean(self):
        return self.rate

    def cdf(self, x):
        x = np.floor(x)
        return np.where(x >= 0.0, pdtr(np.maximum(x, 0.0), self.rate), 0.0)

    def quantile(self, p):
        return poisson.ppf(p, self.rate)

    def draw(self, rng):
        return rng.poisson(self.rate).astype(np.float64)


class Shares(ColumnLaw):
    """Categories 0, 1, ... by probabilities (n_clusters, n_categories). Others are unknown."""

    is_discrete = True

    def __init__(self, p):
        self.p = p

    def log_density(self, x):
        known = x < self.p.shape[1]
        codes = np.where(known, x, 0).astype(np.intp)
        with np.errstate(divide="ignore"):
            return np.where(known[:, None], np.log(self.p).T[codes], 0.0)

    def mean(self):
        return self.p @ np.arange(self.p.shape[1])

    def draw(self, rng):
        return drawn_places(self.p, rng).astype(np.float64)

    def probabilities(self):
        return self.p


class MixedLaw(ColumnLaw):
    """A mixture of the laws `parts` in each cluster, with `log_weights`, (n_clusters, n_parts)."""

    def __init__(self, log_weights, parts):
        self.log_weights, self.parts = log_weights, parts

    @property
    def is_discrete(self):
        return self.parts[0].is_discrete

    def _sum(self, values):
        return sum(np.exp(self.log_weights[:, j]) * value for j, value in enumerate(values))

    def log_density(self, x):
        densities = np.stack([part.log_density(x) for part in self.parts], axis=-1)
        return logsumexp(densities + self.log_weights, axis=-1)

    def mean(self):
        return self._sum(part.mean() for part in self.parts)

    def blurred(self, error):
        return MixedLaw(self.log_weights, [part.blurred(error) for part in self.parts])

    def cdf(self, x):
        return self._sum(part.cdf(x) for part in self.parts)

    def bracket(self, p):
        lowest, highest = zip(*(part.bracket(p) for part in self.parts), strict=True)
        return np.min(lowest, axis=0), np.max(highest, axis=0)

    def draw(self, rng):
        chosen = drawn_places(np.exp(self.log_weights), rng)
        return np.choose(chosen, [part.draw(rng) for part in self.parts])


# Laws of rows.


class Laws:
    """Laws of a row in each of some clusters.

    - `width`: int. Numbers per column that answers about a pair take, about.
    - `log_density(X, log_weights=None)`: log density of the known entries of each row in each
      cluster, (n_rows, n_clusters); 0 for a row of which nothing is known. With log weights of a
      mixture, densities of clusters that do not matter to it may be minus infinity.
    - `given(X, clusters, columns)`: Law of each of some columns, with an entry for each pair of a
      row and its cluster, given the known entries of the row. None if it is not modelled.
    - `fill(X, clusters, rng)`: Rows with drawn unknown entries; NaN if they are not modelled.
    - `of_clusters`: tuple of str. Attributes that clusters have separately. They share the others.
    - `blurred(errors)`: Laws with an error of this standard deviation in each column of numbers,
      (n_features,). Where the law is t, the error has its factor.
    - `rebuilt(projection)`: Laws of all columns, if these are the laws of the independent ones.
    - `departing()`: Laws whose densities are those of rows that may depart from what all rows of
      `fit` had in common. Others are of rows that follow it.
    """

    @property
    def width(self):
        return max((part.width for part in getattr(self, "parts", ())), default=4)

    def departing(self):
        return self

    def take(self, clusters):
        """The laws of some clusters."""
        values = {name: taken(getattr(self, name), clusters) for name in self.of_clusters}
        return replace(self, **values)

    @classmethod
    def joined(cls, laws):
        """The laws of the clusters of several laws of one likelihood."""
        values = {name: joined([getattr(law, name) for law in laws]) for name in cls.of_clusters}
        return replace(laws[0], **values)


@dataclass(eq=False)
class IndependentLaws(Laws):
    """Columns independent given the cluster: `columns` has a `ColumnLaw`, or None, of each."""

    of_clusters = ("columns",)

    columns: list

    def log_density(self, X, log_weights=None):
        total = 0.0
        for law, x in zip(self.columns, X.T, strict=True):
            known = ~np.isnan(x)[:, None]
            total = total + np.where(known, law.log_density(np.where(known[:, 0], x, 0.0)), 0.0)
        return total

    def given(self, X, clusters, columns):
        return [self.columns[d].take(clusters) for d in columns]

    def fill(self, X, clusters, rng):
        filled = X.copy()
        for d, law in enumerate(self.columns):
            rows = np.flatnonzero(np.isnan(X[:, d]))
            if len(rows):
                filled[rows, d] = law.take(clusters[rows]).draw(rng)
        return filled

    def blurred(self, errors):
        pairs = zip(self.columns, errors, strict=True)
        return IndependentLaws([law and law.blurred(error) for law, error in pairs])

    def rebuilt(self, projection):
        # The other columns are constant.
        one = np.ones(len(self.columns[0].loc))
        columns = [Student(value * one, 0.0 * one, np.inf * one) for value in projection.origin]
        for d, column in zip(projection.columns, self.columns):  # noqa: B905 - perhaps none
            columns[d] = column
        return IndependentLaws(columns)


@dataclass(eq=False)
class ExposedLaws(IndependentLaws):
    """Columns of rows with exposures, which are in the last column of rows.

    - `columns`: list of ColumnLaw. Law of each other column for the exposure 1.
    - `at`: callable. Function of a law and exposures that returns the law for these. The exposures
      are one for each cluster, or a column of them, one for each row.

    `fill` also takes rows without the last column, whose exposures are 1.
    """

    at: Callable

    def log_density(self, X, log_weights=None):
        laws = [self.at(law, X[:, -1:]) for law in self.columns]
        return IndependentLaws(laws).log_density(X[:, :-1])

    def given(self, X, clusters, columns):
        return [self.at(law, X[:, -1]) for law in super().given(X, clusters, columns)]

    def fill(self, X, clusters, rng):
        if X.shape[1] == len(self.columns):
            return super().fill(X, clusters, rng)
        laws = self.given(X, clusters, range(len(self.columns)))
        filled = IndependentLaws(laws).fill(X[:, :-1], np.arange(len(X)), rng)
        return np.column_stack([filled, X[:, -1]])


@dataclass(eq=False)
class ScaledLaws(Laws):
    """Multivariate t with one scale factor for all columns and no correlations.

    - `loc`, `scale`: (n_clusters, n_features). With scale 0 a column is known, without density.
    - `df`: (n_clusters,)
    """

    of_clusters = ("loc", "scale", "df")

    loc: np.ndarray
    scale: np.ndarray
    df: np.ndarray

    def log_density(self, X, log_weights=None):
        n_known, distances, log_scales = np.zeros((3, len(X), len(self.loc)))
        for d, x in enumerate(X.T):
            known = ~np.isnan(x)[:, None] & (self.scale[:, d] > 0.0)
            scale = np.where(self.scale[:, d] > 0.0, self.scale[:, d], 1.0)
            n_known += known
            gaps = np.where(known, (x[:, None] - self.loc[:, d]) / scale, 0.0)
            distances = np.hypot(distances, gaps)
            log_scales += np.where(known, np.log(scale), 0.0)
        return log_student(distances, log_scales, self.df, n_known)

    def _updated(self, X, clusters):
        """Degrees of freedom, and factors of the scales, given the known entries."""
        loc, scale, df = self.loc[clusters], self.scale[clusters], self.df[clusters]
        known = ~np.isnan(X) & (scale > 0.0)
        gaps = np.where(known, X - loc, 0.0) / np.where(known, scale, 1.0)
        return conditioned(df, known.sum(axis=1), norms(gaps))

    def given(self, X, clusters, columns):
        df, factor = self._updated(X, clusters)
        return [
            Student(self.loc[clusters, d], factor * self.scale[clusters, d], df) for d in columns
        ]

    def fill(self, X, clusters, rng):
        df, factor = self._updated(X, clusters)
        spread = factor / np.sqrt(shared_factors(df, rng))
        normal = rng.standard_normal(X.shape)
        drawn = self.loc[clusters] + self.scale[clusters] * spread[:, None] * normal
        return np.where(np.isnan(X), drawn, X)

    def blurred(self, errors):
        return ScaledLaws(self.loc, np.hypot(self.scale, errors), self.df)

    def rebuilt(self, projection):
        # The other columns are constant.
        loc = np.tile(projection.origin, (len(self.loc), 1))
        scale = np.zeros_like(loc)
        loc[:, projection.columns], scale[:, projection.columns] = self.loc, self.scale
        return ScaledLaws(loc, scale, self.df)


@dataclass(eq=False)
class MatrixLaws(Laws):
    """Multivariate t with a scale matrix for each cluster.

    The columns of a row are a linear function of a t vector z. Columns of `base` are entries of z,
    and the others are origin + weights @ (z - origin[base]).

    - `loc`: (n_clusters, n_base)
    - `root`: (n_clusters, n_base, n_base). R, where R R' is the scale matrix.
    - `df`: (n_clusters,). Infinite if the law is normal.
    - `base`: (n_base,), intp. Columns that determine the others.
    - `origin`: (n_features,)
    - `weights`: (n_features, n_base)

    Known columns outside `base` count as far as the known ones before do not determine them.
    """

    of_clusters = ("loc", "root", "df")

    loc: np.ndarray
    root: np.ndarray
    df: np.ndarray
    base: np.ndarray
    origin: np.ndarray
    weights: np.ndarray

    @property
    def width(self):
        return len(self.weights)

    @cached_property
    def scale(self):
        """Scale matrices: (n_clusters, n_base, n_base)."""
        return self.root @ self.root.swapaxes(1, 2)

    def log_density(self, X, log_weights=None):
        out = np.empty((len(X), len(self.loc)))
        for rows, known in patterns(X):
            step = max(1, MOST_ENTRIES // (1 + len(self.base) * max(len(self.base), len(rows))))
            frame, y = self._frame(X[rows], known)
            n_known = y.shape[1]
            frame, chosen = frame[:n_known], np.flatnonzero(known[self.base])
            for first in range(0, len(self.loc), step):
                part = slice(first, first + step)
                if len(chosen) == n_known:  # without products of matrices
                    loc = self.loc[part][:, chosen]
                    scale = self.scale[part][:, chosen[:, None], chosen]
                else:
                    loc = self.loc[part] @ frame.T
                    scale = frame @ self.scale[part] @ frame.T
                factor = self._factors(scale, frame, part)
                white = np.linalg.solve(factor, (y[:, None] - loc).transpose(1, 2, 0))
                log_scales = np.log(np.diagonal(factor, axis1=1, axis2=2)).sum(axis=1)
                distances = norms(white).T
                out[rows, part] = log_student(distances, log_scales, self.df[part], n_known)
        return out

    def _factors(self, scale, frame, clusters):
        """Cholesky factors of scale matrices of frame @ z in some clusters. A triangle of the root
        replaces one without digits."""
        factor = tried(scale)
        poor = np.flatnonzero(without_digits(factor, scale))
        if len(poor) and len(frame):
            root = frame @ self.root[clusters][poor]
            triangle = np.linalg.qr(root.swapaxes(1, 2), mode="r").swapaxes(1, 2)
            signs = np.where(np.diagonal(triangle, axis1=1, axis2=2) < 0.0, -1.0, 1.0)
            factor[poor] = triangle * signs[:, None]
        return factor

    def _conditioned(self, X, clusters):
        """For each pattern of known entries: rows, the map from its coordinates y to the columns,
        and of each row the first entries of y, means of the others, their factor and df."""
        for rows, known in patterns(X):
            frame, y = self._frame(X[rows], known)
            n_known = y.shape[1]
            back = self.weights @ np.linalg.inv(frame)
            chosen, which = np.unique(clusters[rows], return_inverse=True)
            loc = self.loc[chosen] @ frame.T
            factor = self._factors(frame @ self.scale[chosen] @ frame.T, frame, chosen)
            gaps = y - loc[which, :n_known]
            white = _forward(factor, which, gaps)
            along = factor[:, n_known:, :n_known][which] @ white[..., None]
            rest = loc[which, n_known:] + along[..., 0]
            df, spread = conditioned(self.df[clusters[rows]], n_known, norms(white))
            means = self._shift() + y @ back[:, :n_known].T + rest @ back[:, n_known:].T
            # (n_chosen, n_features, n_unknown)
            roots = back[:, n_known:] @ factor[:, n_known:, n_known:]
            yield rows, means, roots, which, df, spread

    def blurred(self, errors):
        base = np.flatnonzero(errors > 0.0)  # other columns are constant
        weights = self.weights[base]
        loc = self._shift()[base] + self.loc @ weights.T
        scale = weights @ self.scale @ weights.T
        scale[:, range(len(base)), range(len(base))] += errors[base] ** 2
        unit = np.eye(len(self.origin))[:, base]
        return replace(self, loc=loc, root=factors(scale), base=base, weights=unit)

    def rebuilt(self, projection):
        found = projection
        return replace(self, base=found.columns, origin=found.origin, weights=found.weights)

    def _shift(self):
        """Columns of the row with z = 0; 0 for columns of the base."""
        return self.origin - self.weights @ self.origin[self.base]

    def _frame(self, X, known):
        """Coordinates y = frame @ z of rows with these known columns: (n_base, n_base). The first
        are known, and are returned for each row: (n_rows, n_known)."""
        inside = known[self.base]
        unit = np.eye(len(self.base))
        z = np.where(inside, X[:, self.base], 0.0)
        chosen, y, free = [*unit[inside]], [*z[:, inside].T], unit[~inside]
        if len(free) and len(self.origin) > len(self.base):
            shift = self._shift()
            for d in np.setdiff1d(np.flatnonzero(known), self.base):
                # The part of the column that depends on entries of z not determined yet. The other
                # part is known; with it, scale matrices would have few digits.
                along = (free @ self.weights[d]) @ free
                if np.linalg.norm(along) > DETERMINED * np.linalg.norm(self.weights[d]):
                    rest = self.weights[d] - along
                    y.append(X[:, d] - shift[d] - z @ rest)
                    chosen.append(along)
                    z = z + np.outer(y[-1] / (along @ along), along)
                    free = np.linalg.svd((free @ along)[None])[2][1:] @ free  # orthogonal to it
        frame = np.array([*chosen, *free]).reshape(unit.shape)
        return frame, np.array(y).reshape(-1, len(X)).T

    def given(self, X, clusters, columns):
        loc, scale = np.empty((2, len(columns), len(X)))
        dfs = np.empty(len(X))
        for rows, means, roots, which, df, spread in self._conditioned(X, clusters):
            loc[:, rows], dfs[rows] = means[:, columns].T, df
            scale[:, rows] = spread * np.linalg.norm(roots[:, columns], axis=2)[which].T
        return [Student(*column, dfs) for column in zip(loc, scale, strict=True)]

    def fill(self, X, clusters, rng):
        filled = X.copy()
        for rows, means, roots, which, df, spread in self._conditioned(X, clusters):
            normal = rng.standard_normal((len(rows), roots.shape[2]))
            spread = spread / np.sqrt(shared_factors(df, rng))
            drawn = means + spread[:, None] * (roots[which] @ normal[..., None])[..., 0]
            filled[rows] = np.where(np.isnan(X[rows]), drawn, X[rows])
        return filled


@dataclass(eq=False)
class MixedLaws(Laws):
    """A mixture of laws of a row in each cluster, with `log_weights`, (n_clusters, n_parts)."""

    of_clusters = ("log_weights", "parts")

    log_weights: np.ndarray
    parts: list

    def log_density(self, X, log_weights=None):
        densities = [
            self.log_weights[:, j] + part.log_density(X) for j, part in enumerate(self.parts)
        ]
        return logsumexp(densities, axis=0)

    def _posterior(self, X, clusters):
        """Log weights of the parts given the known entries of each pair: (n_pairs, n_parts)."""
        log_weights = self.log_weights[clusters]
        known = ~np.isnan(X).all(axis=1)
        for k in np.unique(clusters[known]):
            rows = np.flatnonzero(known & (clusters == k))
            for j, part in enumerate(self.parts):
                log_weights[rows, j] += part.take(np.array([k])).log_density(X[rows])[:, 0]
        return log_weights - logsumexp(log_weights, axis=1, keepdims=True)

    def given(self, X, clusters, columns):
        log_weights = self._posterior(X, clusters)
        columns = zip(*(part.given(X, clusters, columns) for part in self.parts), strict=True)
        return [MixedLaw(log_weights, list(laws)) for laws in columns]

    def fill(self, X, clusters, rng):
        chosen = drawn_places(np.exp(self._posterior(X, clusters)), rng)
        filled = np.empty(X.shape)
        for j, part in enumerate(self.parts):
            rows = np.flatnonzero(chosen == j)
            if len(rows):
                filled[rows] = part.fill(X[rows], clusters[rows], rng)
        return filled

    def blurred(self, errors):
        return MixedLaws(self.log_weights, [part.blurred(errors) for part in self.parts])

    def rebuilt(self, projection):
        return MixedLaws(self.log_weights, [part.rebuilt(projection) for part in self.parts])


@dataclass(eq=False)
class JointLaws(Laws):
    """Groups of columns that are independent given the cluster: the `positions` of the columns of
    each group, ndarrays of intp, and their laws, `parts`."""

    of_clusters = ("parts",)

    n_features: int
    positions: list
    parts: list

    def log_density(self, X, log_weights=None):
        return sum(
            part.log_density(X[:, columns])
            for columns, part in zip(self.positions, self.parts, strict=True)
        )

    def given(self, X, clusters, columns):
        laws = [None] * len(columns)
        for positions, part in zip(self.positions, self.parts, strict=True):
            inside = {int(d): j for j, d in enumerate(positions)}
            wanted = {m: inside[d] for m, d in enumerate(columns) if d in inside}
            if wanted:
                found = part.given(X[:, positions], clusters, list(wanted.values()))
                for m, law in zip(wanted, found, strict=True):
                    laws[m] = law
        return laws

    def fill(self, X, clusters, rng):
        filled = X.copy()
        for columns, part in zip(self.positions, self.parts, strict=True):
            filled[:, columns] = part.fill(X[:, columns], clusters, rng)
        return filled

    def departing(self):
        return replace(self, parts=[part.departing() for part in self.parts])

    def blurred(self, errors):
        pairs = zip(self.positions, self.parts, strict=True)
        parts = [part.blurred(errors[columns]) for columns, part in pairs]
        return JointLaws(self.n_features, self.positions, parts)


def taken(values, clusters):
    """What some clusters have: an array, a law, None, or those of a list."""
    if isinstance(values, list):
        return [taken(each, clusters) for each in values]
    if isinstance(values, (ColumnLaw, Laws)):
        return values.take(clusters)
    return None if values is None else values[clusters]


def joined(values):
    """What the clusters of several laws have."""
    if isinstance(values[0], list):
        return [joined(same) for same in zip(*values, strict=True)]
    if isinstance(values[0], (ColumnLaw, Laws)):
        return values[0].joined(values)
    return np.concatenate(values)


def log_student(distances, log_scales, df, n_columns):
    """log density of multivariate t, from distances from the mean, log determinants of the roots
    of the scale matrices, degrees of freedom (infinite: normal) and the number of columns."""
    df, normal = np.where(np.isinf(df), 1.0, df), np.isinf(df)
    squares = np.minimum(distances, FAR) ** 2
    with np.errstate(divide="ignore"):
        far = 2.0 * np.log(distances) - np.log(df)
    tails = np.where(distances < FAR, np.log1p(squares / df), far)
    found = (
        gammaln(0.5 * (df + n_columns)) - gammaln(0.5 * df) - 0.5 * n_columns * np.log(df * np.pi)
        - 0.5 * (df + n_columns) * tails
    )  # fmt: skip
    found = np.where(normal, -0.5 * squares - 0.5 * n_columns * np.log(2.0 * np.pi), found)
    return found - log_scales


def conditioned(df, n_known, distances):
    """Degrees of freedom of a multivariate t given `n_known` of its columns, and the factor of
    its scales, from their distance from the mean."""
    finite = np.where(np.isinf(df), 1.0, df)
    factor = np.hypot(np.sqrt(finite), distances) / np.sqrt(finite + n_known)
    return df + n_known, np.where(np.isinf(df), 1.0, factor)


def norms(vectors):
    """Norms along the second axis, also if squares overflow; at most the largest double."""
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.sqrt(np.sum(vectors**2, axis=1))
        if not (found < FAR).all():
            found = np.where(found < FAR, found, np.linalg.norm(vectors * 1e-200, axis=1) * 1e200)
    return np.where(found < LARGEST, found, LARGEST)


def drawn_places(weights, rng):
    """Draw places in the last axis by their weights: intp, of the shape of the other axes."""
    below = np.cumsum(weights, axis=-1)
    u = rng.random(below.shape[:-1])[..., None] * below[..., -1:]
    return np.minimum((u >= below).sum(axis=-1), below.shape[-1] - 1)


def shared_factors(df, rng):
    """Draw chi-squared variates divided by their degrees of freedom; 1 if these are infinite."""
    finite = np.where(np.isinf(df), 1.0, df)
    return np.where(np.isinf(df), 1.0, rng.chisquare(finite) / finite)


def log_succession(n_rows):
    """log probabilities that a new row is as all of `n_rows` rows were, and that it departs, by
    Laplace's rule of succession."""
    return np.log1p(-1.0 / (n_rows + 2.0)), -np.log(n_rows + 2.0)


def patterns(X):
    """Yield (rows, known) for each set of known columns: positions of rows, and a mask."""
    known = ~np.isnan(X)
    packed = np.packbits(known, axis=1)
    _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    bounds = np.flatnonzero(np.diff(which.ravel()[order])) + 1
    for rows, start in zip(np.split(order, bounds), first, strict=True):
        yield rows, known[start]


def tried(scales):
    """Cholesky factors of matrices, NaN if one is not positive definite to rounding."""
    try:
        return np.linalg.cholesky(scales)
    except np.linalg.LinAlgError:
        if len(scales) > 1:
            return np.concatenate([tried(scales[k : k + 1]) for k in range(len(scales))])
        return np.full_like(scales, np.nan)


def without_digits(factor, scales):
    """Whether rounding has left a pivot of Cholesky factors few digits: (n,)."""
    pivots, full = (np.diagonal(each, axis1=1, axis2=2) for each in (factor, scales))
    return ~(pivots**2 > LEAST_PIVOT * full).all(axis=1)


def factors(scales, pulls=None, least=0.0):
    """Cholesky factors of positive definite matrices.

    - `scales`: (n, n_columns, n_columns)
    - `pulls`: (n, n_columns). Vectors whose outer products are added to the matrices. In a sum,
      large ones would leave no digits.
    - `least`: float or (n, n_columns). Numbers that no squared pivot of the matrices is below.
      Rounding may make pivots smaller, or negative.
    """
    total = scales if pulls is None else scales + pulls[:, :, None] * pulls[:, None]
    factor = tried(total)
    poor = np.flatnonzero(without_digits(factor, total))
    if len(poor):
        factor[poor] = _careful(scales[poor], np.broadcast_to(least, total.shape[:2])[poor])
        if pulls is not None:
            _update(factor, poor, pulls[poor])
    return factor


def _forward(factor, which, values):
    """Vectors that lower triangular matrices, one for each vector, map to the values: (n,
    n_columns). A general solver would take the time of a factorisation for each vector."""
    found = np.empty(values.T.shape)
    for j, column in enumerate(values.T):
        along = np.einsum("ik,ki->i", factor[which, j, :j], found[:j])
        found[j] = (column - along) / factor[which, j, j]
    return found.T


def _careful(scales, least):
    """`factors` column by column, with pivots that are not below `least` or rounding."""
    rest, factor = scales.copy(), np.zeros_like(scales)
    least = np.maximum(least, 2.0**-50 * np.diagonal(scales, axis1=1, axis2=2))
    for j in range(scales.shape[1]):
        pivot = np.sqrt(np.maximum(rest[:, j, j], least[:, j]))
        factor[:, j:, j] = rest[:, j:, j] / pivot[:, None]
        factor[:, j, j] = pivot
        below = factor[:, j + 1 :, j]
        rest[:, j + 1 :, j + 1 :] -= below[:, :, None] * below[:, None]
    return factor


def _update(factor, which, vectors):
    """Factors of matrices plus outer products of vectors, by rotations, in place."""
    vectors = vectors.copy()
    for j in range(factor.shape[1]):
        column = factor[which, j:, j]
        rest = vectors[:, j:]
        length = np.hypot(column[:, :1], rest[:, :1])
        c, s = column[:, :1] / length, rest[:, :1] / length
        factor[which, j:, j] = c * column + s * rest
        vectors[:, j:] = c * rest - s * column


def depends(weights, columns):
    """Whether each row of weights depends on some columns, a mask, up to rounding."""
    along = np.linalg.norm(weights[:, columns], axis=1)
    return along > DETERMINED * np.linalg.norm(weights, axis=1)
