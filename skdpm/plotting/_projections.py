# SPDX-License-Identifier: BSD-3-Clause
"""Columns and directions in which clusters are far apart, or rows vary."""

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.decomposition import PCA

from skdpm._tables import numeric_columns, take_rows
from skdpm.plotting._style import evenly

# Numbers of rows and of columns that are compared to choose two columns.
ROWS_OF_CHOICE, COLUMNS_OF_CHOICE = 2000, 40


def most_apart(X, labels, columns):
    """The two columns, among those given, with the smallest Wilks' lambda of the labels:
    |scatter within clusters| / |scatter|."""
    if len(columns) == 2:
        return tuple(columns)
    some = np.flatnonzero(labels >= 0)  # not noise
    some = some[evenly(len(some), ROWS_OF_CHOICE)]
    X = numeric_columns(take_rows(X, some))[:, columns]
    X, within, usable, _ = _standardised(X, labels[some])
    if len(usable) < 2:
        return tuple(columns[:2])
    best = np.sort(np.argsort((within**2).sum(axis=0), kind="stable")[:COLUMNS_OF_CHOICE])
    X, within = X[:, best], within[:, best]
    total, inner = X.T @ X, within.T @ within
    # A small ridge, for columns that are multiples of each other.
    ridge = 1e-6 * len(X)
    lambdas = _minors(inner, ridge) / _minors(total, ridge)
    lambdas[np.tril_indices(len(best))] = np.inf
    first, second = np.unravel_index(np.argmin(lambdas), lambdas.shape)
    return tuple(columns[usable[best[[first, second]]]])


def discriminants(X, labels, columns):
    """Rows along the two directions that separate clusters best (Fisher's), their origin, and the
    directions, (n_features, 2)."""
    some = np.flatnonzero(labels >= 0)  # not noise
    some = some[evenly(len(some), ROWS_OF_CHOICE)]
    X = numeric_columns(X)
    chosen, within, usable, scale = _standardised(X[some][:, columns], labels[some])
    if len(usable) < 2:
        raise ValueError("discriminants need two columns of numbers that vary")
    inner = within.T @ within / len(within)
    # Shrunk towards the unit matrix: there may be many columns, or collinear ones.
    inner = 0.95 * inner + 0.05 * np.eye(len(inner)) * np.trace(inner) / max(len(inner), 1)
    inner += 1e-6 * np.eye(len(inner))
    _, vectors = scipy.linalg.eigh(chosen.T @ chosen / len(chosen), inner)
    leading = vectors[:, ::-1][:, :2]
    # The sign of a direction is free: its largest entry is positive.
    leading = leading * np.sign(leading[np.abs(leading).argmax(axis=0), [0, 1]])
    directions = np.zeros((X.shape[1], 2))
    directions[columns[usable]] = leading / scale[usable, None]
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    origin = np.nanmean(X, axis=0)
    return (X - origin) @ directions, origin, directions


def principals(X, columns):
    """Rows along the two principal axes of numeric columns, their origin, and the directions,
    (n_features, 2). X may be a CSR array."""
    sparse = sp.issparse(X)
    if not sparse:
        X = numeric_columns(X)
        X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    some = X[evenly(X.shape[0], ROWS_OF_CHOICE)][:, columns]
    if min(some.shape) < 3:
        raise ValueError(
            "principal axes need three rows and three columns of numbers; choose two columns, as "
            "in columns=(0, 1)"
        )
    origin = np.zeros(X.shape[1])
    if sparse:
        origin[columns] = np.asarray(some.mean(axis=0)).ravel()
    else:
        origin[columns] = np.nanmean(some, axis=0)
        some = np.where(np.isnan(some), origin[columns], some)
    axes = PCA(2, svd_solver="arpack", random_state=0).fit(some).components_
    directions = np.zeros((X.shape[1], 2))
    directions[columns] = axes.T
    return X @ directions - origin @ directions, origin, directions


def _standardised(X, labels):
    """Columns that vary, standardised, with missing entries at the mean; the same minus the means
    of clusters; positions of these columns; standard deviations of all."""
    labels = np.unique(labels, return_inverse=True)[1]
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    X = X - np.nanmean(X, axis=0)
    X = np.where(np.isnan(X), 0.0, X)
    scale = np.sqrt((X**2).mean(axis=0))
    usable = np.flatnonzero(scale > 0.0)
    X = X[:, usable] / scale[usable]
    sizes = np.bincount(labels)
    means = np.zeros((len(sizes), X.shape[1]))
    np.add.at(means, labels, X)
    return X, X - (means / sizes[:, None])[labels], usable, scale


def _minors(matrix, ridge):
    """Determinants of all 2 x 2 principal submatrices."""
    diagonal = np.diagonal(matrix) + ridge
    return np.outer(diagonal, diagonal) - matrix**2
