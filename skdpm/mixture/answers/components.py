# SPDX-License-Identifier: BSD-3-Clause
"""Components of a draw, as normal laws of points."""

import functools
import itertools
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from skdpm.mixture.answers._components import log_densities, most_probable
from skdpm.mixture.likelihoods.laws.coordinates import drawn_in

# More columns than this are replaced by their principal axes.
MOST_COLUMNS = 32
# Number of rows that determine the principal axes.
AXIS_ROWS = 20_000
# Smallest component with a hill: this share of the rows, and this number; with ENOUGH_ROWS it has
# one, as these show valleys. Smaller ones have hills until this share of all rows is in components
# with hills.
LEAST_SHARE, LEAST_ROWS, ENOUGH_ROWS = 0.01, 5, 100
LEAST_COVERED = 0.75
# Directions count if their variance is more than this share of the largest one.
LEAST_VARIANCE = 1e-9
# Largest number of temporary numbers.
MOST_NUMBERS = 2**20


def points_of(X):
    """Rows as points with centred columns of unit variance: (n_samples, n_columns), with at most
    `MOST_COLUMNS`. NaN marks a missing entry."""
    points = standardised_columns(X)
    if points.shape[1] > MOST_COLUMNS:
        points = np.nan_to_num(points, copy=False)
        some = points[:: max(1, len(points) // AXIS_ROWS)]
        largest = points.shape[1] - MOST_COLUMNS, points.shape[1] - 1
        points = points @ scipy.linalg.eigh(some.T @ some, subset_by_index=largest)[1]
    return np.ascontiguousarray(points)


def standardised_columns(X, most=np.inf):
    """Columns that vary, centred and with unit variance: (n_samples, n_columns), float64. Only the
    first of them if they are more than `most`, and one more than this number."""
    X = np.asarray(X)
    columns = np.empty(X.shape[::-1])
    n_columns = 0
    for column in X.T:  # one at a time: X may fill most of the memory
        column = drawn_in(column.astype(np.float64)[:, None])[:, 0]
        scale = 0.0 if np.isnan(column).all() else np.nanstd(column)
        if scale > 0.0:
            columns[n_columns] = (column - np.nanmean(column)) / scale
            n_columns += 1
        if n_columns > most:
            break
    return columns[:n_columns].T


def whitening(rows):
    """Matrix that gives centred rows, (n_rows, n_columns), unit covariance: (n_columns, rank)."""
    variances, directions = np.linalg.eigh(rows.T @ rows / len(rows))
    varies = variances > LEAST_VARIANCE * variances.max(initial=0.0)
    return directions[:, varies] / np.sqrt(variances[varies])


def rows_of_mean_covariance(n_columns):
    """Number of rows as which the mean covariance within components counts in that of each."""
    return n_columns + 2.0


@dataclass(frozen=True, eq=False)
class NormalLaws:
    """Normal laws of components, weighted by their sizes.

    - `sizes`: (n_components,). Numbers of rows.
    - `means`: (n_components, n_columns)
    - `covariances`: (n_components, n_columns, n_columns)
    - `whiteners`: of the same shape. Inverses of their Cholesky factors.
    - `heights`: (n_components,). Logs of the weighted densities at the means, up to one term for
      all.
    """

    sizes: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    whiteners: np.ndarray
    heights: np.ndarray

    @classmethod
    def of(cls, sizes, means, covariances):
        """Laws with these sizes and moments."""
        whiteners = np.linalg.inv(np.linalg.cholesky(covariances))
        roots = np.diagonal(whiteners, axis1=1, axis2=2)
        heights = np.log(sizes) + np.log(roots).sum(axis=1)
        return cls(sizes, means, covariances, whiteners, heights)

    def take(self, which):
        """Laws of some components."""
        return NormalLaws(*(values[which] for values in vars(self).values()))

    def most_probable(self, points, guess=None):
        """Most probable component at each point: (n_points,), int. A missing entry is replaced
        by 0, the mean of all rows. It is found sooner if it is the guess, which is overwritten."""
        out = np.zeros(len(points), dtype=np.intp) if guess is None else guess
        most_probable(points, self.means, self.whiteners, self.heights, out)
        return out

    def log_densities(self, points):
        """Logs of the weighted sums of the densities at points, (n_points,), up to one term for
        all. A missing entry is replaced by 0."""
        return log_densities(points, self.means, self.whiteners, self.heights)

    def nearest(self, which, among):
        """Component, of those `among`, that is most probable at the mean of each: (n,), int."""
        return among[self.take(among).most_probable(self.means[which])]


@dataclass(frozen=True, eq=False)
class Components:
    """Rows of the components of a draw, and their moments.

    - `rows`: (n_samples, n_columns). Points by component. A missing entry is replaced by the mean
      of its component.
    - `bounds`: (n_components + 1,). Position of the first row of each component, and the number of
      rows.
    - `means`: (n_components, n_columns)
    - `scatters`: (n_components, n_columns, n_columns). Sums of products of deviations from the
      means.
    - `are_known`: (n_components,), bool. Whether each column has an entry that is not missing.
    """

    rows: np.ndarray
    bounds: np.ndarray
    means: np.ndarray
    scatters: np.ndarray
    are_known: np.ndarray

    @classmethod
    def of(cls, points, labels):
        """Components 0, ..., K - 1 of points; all of them have rows."""
        sizes = np.bincount(labels)
        bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        # Small integers are sorted several times as fast.
        small = labels.astype(np.min_scalar_type(len(sizes)))
        rows = points[np.argsort(small, kind="stable")]
        parts = [rows[first:stop] for first, stop in itertools.pairwise(bounds)]
        are_known = np.ones(len(sizes), dtype=bool)
        if np.isnan(points).any():
            for k, part in enumerate(parts):
                known = ~np.isnan(part)
                are_known[k] = known.any(axis=0).all()
                means = np.where(known, part, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                part[...] = np.where(known, part, means)
        means = np.add.reduceat(rows, bounds[:-1], axis=0) / sizes[:, None]
        gaps = rows - np.repeat(means, sizes, axis=0)
        parts = [gaps[first:stop] for first, stop in itertools.pairwise(bounds)]
        return cls(rows, bounds, means, np.array([part.T @ part for part in parts]), are_known)

    @property
    def sizes(self):
        """Number of rows of each component."""
        return np.diff(self.bounds)

    @functools.cached_property
    def laws(self):
        """Normal laws of the components. Covariances are shrunk towards the mean covariance within
        components."""
        n_columns = self.rows.shape[1]
        within = self.scatters.sum(axis=0) / len(self.rows) + 1e-9 * np.eye(n_columns)
        more = rows_of_mean_covariance(n_columns)
        covariances = (self.scatters + more * within) / (self.sizes + more)[:, None, None]
        return NormalLaws.of(self.sizes, self.means, covariances)

    def large(self):
        """Components with enough rows for a hill."""
        n_rows = len(self.rows)
        falling = np.sort(self.sizes)[::-1]
        covering = falling[np.searchsorted(np.cumsum(falling), LEAST_COVERED * n_rows)]
        least = np.clip(LEAST_SHARE * n_rows, LEAST_ROWS, ENOUGH_ROWS)
        return np.flatnonzero(self.sizes >= min(least, covering))


def distances_between(points, labels):
    """Mahalanobis distances of the means of clusters 0, ..., K - 1, by the mean of the covariances
    of both: (K, K)."""
    laws = Components.of(points, labels).laws
    out = np.zeros((len(laws.sizes),) * 2)
    for k, (mean, covariance) in enumerate(zip(laws.means, laws.covariances, strict=True)):
        gaps = (laws.means - mean)[:, :, None]
        both = (laws.covariances + covariance) / 2.0
        out[k] = np.sqrt((gaps * np.linalg.solve(both, gaps)).sum(axis=(1, 2)))
    return out
