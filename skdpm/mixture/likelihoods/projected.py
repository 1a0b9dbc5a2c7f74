# SPDX-License-Identifier: BSD-3-Clause
"""Columns that the other columns of X determine: constants and affine combinations."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular

from skdpm._validation import ColumnError

# Largest residual of a dependent column in the first rows, and root of the mean square in all
# rows, in standard deviations. The latter comes from a scatter matrix, which has fewer digits.
RESIDUAL, RESIDUAL_OF_SCATTER = 1e-7, 1e-5


@dataclass(frozen=True, eq=False)
class Projection:
    """Independent columns, and the affine map from them to all columns.

    Attributes
    ----------
    columns : ndarray of shape (n_independent,), intp
        Positions of the independent columns, increasing.
    origin : ndarray of shape (n_features,)
    weights : ndarray of shape (n_features, n_independent)
        A row with the independent entries x is origin + weights @ (x - origin[columns]).
    """

    columns: np.ndarray
    origin: np.ndarray
    weights: np.ndarray

    def project(self, X):
        """Return the independent columns of rows, C-contiguous."""
        return np.ascontiguousarray(X[:, self.columns])

    def rebuild(self, points):
        """Return all columns of rows, given the independent ones."""
        X = self.origin + (points - self.origin[self.columns]) @ self.weights.T
        X[:, self.columns] = points
        return X

    @contextmanager
    def errors(self):
        """Translate columns in errors to columns of X."""
        try:
            yield
        except ColumnError as error:
            column = self.columns[error.column]
            raise ColumnError(error.before, column, error.after) from None


def projection_of(summary):
    """Find the columns that others determine.

    Parameters
    ----------
    summary : dict
        `Gaussian.summarise` of the rows. Without "scatter", only constants are found.

    Returns
    -------
    projection : Projection, or None
        None: no column depends on others, or all columns are constant.
    """
    smallest, largest = summary["smallest"], summary["largest"]
    n_features = len(smallest)
    constant = smallest == largest
    if constant.all():
        return None
    weights = np.zeros((n_features, n_features))
    independent = np.flatnonzero(~constant)
    if "scatter" in summary:
        independent = _without_combinations(summary, independent, weights)
    if len(independent) == n_features:
        return None
    weights[independent, independent] = 1.0
    origin = np.where(constant, smallest, summary["mean"])
    return Projection(independent, origin, weights[:, independent])


def _without_combinations(summary, columns, weights):
    """Leave out columns that are combinations of earlier ones, and write their weights."""
    head, n_features = summary["head"][:, columns], len(columns)
    scatter = summary["scatter"][np.ix_(columns, columns)]
    spreads = np.sqrt(np.diagonal(scatter) / np.maximum(summary["n"][columns], 1))
    # Any n_features + 1 rows lie in a hyperplane.
    if not np.isfinite(scatter).all() or not (spreads > 0.0).all():
        return columns
    if len(head) < n_features + 2 or len(np.unique(head, axis=0)) < n_features + 2:
        return columns
    scatter = scatter / np.outer(spreads, spreads) / summary["n"][columns]
    head = (head - summary["mean"][columns]) / spreads
    kept, factor = [], np.zeros((n_features, n_features))
    for d in range(n_features):
        m = len(kept)
        along = solve_triangular(factor[:m, :m], scatter[kept, d], lower=True) if m else []
        rest = scatter[d, d] - np.dot(along, along)
        if m and rest < RESIDUAL_OF_SCATTER**2:
            found = np.linalg.lstsq(head[:, kept], head[:, d])[0]
            if np.abs(head[:, d] - head[:, kept] @ found).max() < RESIDUAL:
                weights[columns[d], columns[kept]] = found * spreads[d] / spreads[kept]
                continue
        factor[m, :m] = along
        factor[m, m] = np.sqrt(max(rest, 1e-15))
        kept.append(d)
    return columns[kept]


def columns_of(summary, columns):
    """The summary of some columns."""
    return {
        name: value
        if name == "missing"
        else value[:, columns]
        if name == "head"
        else value[np.ix_(columns, columns)]
        if name == "scatter"
        else value[columns]
        for name, value in summary.items()
    }
