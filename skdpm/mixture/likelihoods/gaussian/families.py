# SPDX-License-Identifier: BSD-3-Clause
"""The columns on which each column depends under sparse covariances, from the rows of a fit.

Columns depend on each other in a cluster as they do in differences of close rows, which are mostly
of one cluster. A column joins the others by its largest correlation with one that has joined: the
tree of these pairs is the most probable one of normal columns (Chow & Liu 1968). Its parents are
chosen among the columns before it, one after the other, by the variance that each explains.
"""

import numpy as np
from sklearn.neighbors import NearestNeighbors

from skdpm.mixture.likelihoods.laws.coordinates import standardised

# Close rows per row, and most rows.
N_CLOSE, MOST_ROWS = 5, 2000
# Added to the variances of differences, so that equal rows, or columns, determine nothing.
RIDGE = 1e-3


def parents_of(rows, n_parents):
    """Order of the columns, (n_features,), and up to n_parents parents of each, earlier in that
    order: (n_features, n_parents), -1 if a column has fewer. Rows are without NaN."""
    correlations = _close_correlations(rows)
    order = _order(correlations**2)
    parents = np.full((len(order), n_parents), -1)
    for place, column in enumerate(order):
        before = order[:place]
        variances = np.ones(place)
        rest = correlations[column, before]  # covariances given the parents so far
        steps, chosen = [], []
        for parent in range(min(n_parents, place)):
            explained = rest**2 / variances
            explained[chosen] = -1.0
            best = int(np.argmax(explained))
            chosen.append(best)
            parents[column, parent] = before[best]
            step = correlations[before[best], before] - sum(other[best] * other for other in steps)
            step = step / np.sqrt(variances[best])
            rest = rest - rest[best] / np.sqrt(variances[best]) * step
            variances = np.maximum(variances - step**2, RIDGE)
            steps.append(step)
    return order, parents


def _close_correlations(rows):
    """Correlations of the columns in differences of close rows."""
    n_rows, n_features = rows.shape
    rows = rows[np.linspace(0, n_rows - 1, min(n_rows, MOST_ROWS)).astype(int)]
    rows = np.unique(rows, axis=0)  # equal rows have no differences
    if len(rows) < 2:
        return np.eye(n_features)
    rows = standardised(rows)
    close = NearestNeighbors(n_neighbors=min(N_CLOSE, len(rows) - 1)).fit(rows)
    gaps = (rows[:, None] - rows[close.kneighbors(return_distance=False)]).reshape(-1, n_features)
    covariance = gaps.T @ gaps / len(gaps)
    variances = np.diagonal(covariance) * (1.0 + RIDGE) + np.finfo(float).tiny
    correlations = covariance / np.sqrt(variances) / np.sqrt(variances)[:, None]
    np.fill_diagonal(correlations, 1.0)
    return correlations


def _order(squares):
    """Columns from the most correlated one on, each by its largest entry with one before it."""
    order = [int(squares.sum(axis=0).argmax())]
    largest = squares[order[0]].copy()
    while len(order) < len(squares):
        largest[order] = -1.0
        order.append(int(largest.argmax()))
        largest = np.maximum(largest, squares[order[-1]])
    return np.array(order)
