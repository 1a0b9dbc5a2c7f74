# SPDX-License-Identifier: BSD-3-Clause
"""Laws of rows that are noise: columns are independent, and have one law each.

A column of numbers is uniform on an interval around its values in `fit` (Banfield & Raftery 1993):
the density of a row is 1 over the volume of a box, and 0 outside. A column of counts has the
negative binomial law with its mean and variance, a column of categories its shares.

A new row may be outside the range of the rows of `fit`: numbers have the law `OpenUniform`, counts
`OpenCounts`, which are densities too. Their share `far` is the probability with which one more
value of any law is outside the range of n values: 2 / (n + 1), and half of it on one side. Far
entries of `fit` (`coordinates.far_limits`) do not widen the interval of their column, whose rows
have the law of new ones.
"""

import numpy as np

from skdpm.mixture.likelihoods.laws.coordinates import far_limits
from skdpm.mixture.likelihoods.laws.laws import (
    Counts,
    IndependentLaws,
    OpenCounts,
    OpenUniform,
    Shares,
    Uniform,
)

# Width of an interval, in ranges of its column.
WIDTH = 1.05
# Width if all values are equal, relative to them.
WIDTH_OF_CONSTANT = 1.0
# Rate of the Gamma law of the rates of counts that vary no more than Poisson.
LARGEST_RATE = 1e8


class Background:
    """Law of a row that is noise.

    - `columns`: list of ColumnLaw. Laws, of a single cluster, of the independent columns.
    - `projection`: Projection or None. Independent columns, and how others follow; or None.
    - `open_columns`: list of ColumnLaw. Laws of new rows. None: `columns`.
    """

    def __init__(self, columns, projection=None, open_columns=None):
        self.laws = IndependentLaws(columns)
        self.open_laws = self.laws if open_columns is None else IndependentLaws(open_columns)
        self.projection = projection

    def log_density(self, X, new=False):
        """log density of the known entries of the independent columns of rows of `fit` or, with
        `new`, of new rows: (n_rows,)."""
        if self.projection is not None:
            X = self.projection.project(X)
        laws = self.open_laws if new else self.laws
        return laws.log_density(np.asarray(X, dtype=np.float64))[:, 0]

    def column(self, d):
        """The law of a column of new rows: `ColumnLaw`, or None if it follows from others."""
        if self.projection is None:
            return self.open_laws.columns[d]
        at = np.flatnonzero(self.projection.columns == d)
        return self.open_laws.columns[at[0]] if len(at) else None

    def draw(self, n_rows, rng):
        """Draw rows like those of `fit`: (n_rows, n_features)."""
        X = np.full((n_rows, len(self.laws.columns)), np.nan)
        X = self.laws.fill(X, np.zeros(n_rows, dtype=np.intp), rng)
        return X if self.projection is None else self.projection.rebuild(X)


class JointBackground:
    """Law of a row of a `Product` that is noise. `parts` lists the positions of the columns of
    each part, and their `Background`."""

    def __init__(self, n_features, parts):
        self.n_features = n_features
        self.parts = parts

    def log_density(self, X, new=False):
        """`Background.log_density`."""
        return sum(part.log_density(X[:, positions], new) for positions, part in self.parts)

    def column(self, d):
        """`Background.column`; None also for a column that is in no part."""
        for positions, part in self.parts:
            if d in positions:
                return part.column(int(np.flatnonzero(np.asarray(positions) == d)[0]))
        return None

    def draw(self, n_rows, rng):
        """Draw rows, NaN in columns that are in no part: (n_rows, n_features)."""
        X = np.full((n_rows, self.n_features), np.nan)
        for positions, part in self.parts:
            X[:, positions] = part.draw(n_rows, rng)
        return X


def box(X, projection=None):
    """The law of rows of numbers, uniform on a box around the rows X."""
    points = X if projection is None else projection.project(X)
    columns, open_columns = [], []
    for column in np.asarray(points, dtype=np.float64).T:
        known = column[~np.isnan(column)]
        limits = far_limits(known)
        near = known if limits is None else np.clip(known, *limits)
        near = near[near == known]
        low, high = (near.min(), near.max()) if len(near) else (0.0, 0.0)
        middle = low + 0.5 * (high - low)
        half = 0.5 * WIDTH * (high - low)
        if half == 0.0:
            half = 0.5 * WIDTH_OF_CONSTANT * (abs(middle) or 1.0)
        ends = np.array([middle - half]), np.array([middle + half])
        open_columns.append(OpenUniform(*ends, 2.0 * _share_beyond(known)))
        # Far rows of `fit` are outside the box.
        columns.append(Uniform(*ends) if limits is None else open_columns[-1])
    return Background(columns, projection, open_columns)


def _share_beyond(known):
    """Probability with which one more value is above all known ones, at most 1/4: (1,)."""
    return np.array([1.0 / max(len(known) + 1.0, 4.0)])


def shares(codes, sizes):
    """The law of rows of categories, given as codes from 0: shares in the rows `codes`, where each
    column counts one more row, divided between its categories."""
    columns = []
    for column, size in zip(np.asarray(codes, dtype=np.float64).T, sizes, strict=True):
        counts = np.bincount(column[~np.isnan(column)].astype(np.intp), minlength=size)
        counts = counts + 1.0 / size
        columns.append(Shares(counts[None] / counts.sum()))
    return Background(columns)


def overall_counts(X):
    """The law of rows of counts: negative binomial with the mean and variance of each column."""
    columns, open_columns = [], []
    for column in np.asarray(X, dtype=np.float64).T:
        known = column[~np.isnan(column)]
        # As if there were one more entry, 1, so that no column has the mean 0.
        mean = (known.sum() + 1.0) / (len(known) + 1.0)
        variance = np.mean((np.append(known, 1.0) - mean) ** 2)
        rate = mean / (variance - mean) if variance > mean else LARGEST_RATE
        rate = min(rate, LARGEST_RATE)
        law = np.array([mean * rate]), np.array([rate])
        columns.append(Counts(*law))
        unit = np.array([known.max(initial=0.0) + 1.0])
        open_columns.append(OpenCounts(*law, _share_beyond(known), unit))
    return Background(columns, open_columns=open_columns)
