# SPDX-License-Identifier: BSD-3-Clause
"""Coordinates of rows with meaningful Euclidean distances, for `Likelihood.coordinates`."""

import numpy as np

N_DIMENSIONS = 10
N_MORE = 5  # directions in addition to those that are kept
N_ITERATIONS = 3

# Weight of independent columns in the correlations from which missing entries are predicted, and
# turns over the columns.
INDEPENDENT = 0.1
N_TURNS = 20


def standardised(X):
    """Rows in columns with mean 0 and variance 1.

    A column that varies only by rounding becomes 0; scaling would turn it into noise.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Finite rows.

    Returns
    -------
    points : ndarray of the same shape, float64
    """
    X = np.asarray(X, dtype=np.float64)
    largest = np.abs(X).max(axis=0)
    # Scaled by the spread first, so that no square is too large or too small for a double.
    spread = np.ptp(X / 2.0, axis=0)
    varies = spread > 1e-12 * largest
    points = np.where(varies, (X - X[0]) / np.where(varies, spread, 1.0), 0.0)
    points -= points.mean(axis=0)
    return points / np.where(varies, points.std(axis=0), 1.0)


def principal(matrix):
    """Rows of a matrix in its leading singular directions, by subspace iteration.

    Parameters
    ----------
    matrix : CSR array of shape (n_rows, n_columns)

    Returns
    -------
    points : ndarray of shape (n_rows, N_DIMENSIONS), or fewer columns

    References
    ----------
    Halko, Martinsson & Tropp (2011), Finding structure with randomness.
    """
    n_directions = min(*matrix.shape, N_DIMENSIONS + N_MORE)
    # A fixed seed, so that points are a function of the matrix.
    rng = np.random.Generator(np.random.PCG64(0))
    directions = matrix @ rng.standard_normal((matrix.shape[1], n_directions))
    for _ in range(N_ITERATIONS):
        directions = matrix @ (matrix.T @ np.linalg.qr(directions)[0])
    directions = np.linalg.qr(directions)[0]
    left, singular, _ = np.linalg.svd((matrix.T @ directions).T, full_matrices=False)
    return ((directions @ left) * singular)[:, :N_DIMENSIONS]


def completed(X):
    """Rows with guesses of missing entries, from which chains start: about their means given the
    known entries under one normal law.

    Its correlations are those of the pairs of known entries, mixed with independence. Every column
    in turn is predicted from the others (Gauss-Seidel iterations).

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Rows; NaN for a missing entry.

    Returns
    -------
    rows : ndarray of the same shape
    """
    missing = np.isnan(X)
    counts = np.maximum((~missing).sum(axis=0), 1)
    mean = np.where(missing, 0.0, X / counts).sum(axis=0)
    largest = np.abs(np.where(missing, 0.0, X - mean)).max(axis=0)
    rows = np.where(missing, 0.0, X - mean) / np.where(largest > 0.0, largest, 1.0)
    spread = np.sqrt((rows**2).sum(axis=0) / counts)
    spread = np.where(spread > 0.0, spread, 1.0)
    rows /= spread
    known = (~missing).astype(np.float64)
    correlations = (rows.T @ rows) / np.maximum(known.T @ known, 1.0)
    values, vectors = np.linalg.eigh((1.0 - INDEPENDENT) * correlations)
    precision = (vectors / (np.maximum(values, 0.0) + INDEPENDENT)) @ vectors.T
    for _ in range(N_TURNS):
        for d in np.flatnonzero(missing.any(axis=0)):
            at = missing[:, d]
            found = rows[at] @ precision[d]
            rows[at, d] -= found / precision[d, d]
    rows = mean + rows * spread * np.where(largest > 0.0, largest, 1.0)
    return np.where(missing, rows, X)
