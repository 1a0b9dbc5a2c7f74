# SPDX-License-Identifier: BSD-3-Clause
"""Coordinates of rows with meaningful Euclidean distances, for `Likelihood.coordinates`."""

import numpy as np

N_DIMENSIONS = 10
N_MORE = 5  # directions in addition to those that are kept
N_ITERATIONS = 3

# Weight of independent columns in correlations that predict missing entries; turns over columns.
INDEPENDENT = 0.1
N_TURNS = 20

# An entry is far if it is beyond the range of all but a share at each end, by so many times this
# range. One entry in a hundred can then move neither scales nor starts.
FEWEST_FOR_BULK = 10
FAR_SHARE, LARGEST_DISTANCE = 0.02, 3.0
# So are more entries, up to half of all, whose distance to the median is this many medians of the
# distances: scales that follow them would be coarser than all others.
FARTHEST = 1e10


def far_limits(column):
    """Numbers below and above which entries of a column, (n_rows,), are far; None: none is."""
    known = column[~np.isnan(column)]
    if len(known) < FEWEST_FOR_BULK:
        return None
    with np.errstate(over="ignore"):
        distances = np.abs(known - np.median(known))
        near = known[distances <= FARTHEST * (np.median(distances) or np.inf)]
        last = max(1, int(FAR_SHARE * len(near)))
        low, high = np.partition(near, (last, len(near) - 1 - last))[[last, -1 - last]]
        width = LARGEST_DISTANCE * (high - low)
        low, high = low - width, high + width
    if not width > 0.0 or (known.min() >= low and known.max() <= high):
        return None
    return low, high


def bulk(X):
    """Rows with NaN in place of far entries; X itself if there are none."""
    out = X
    for d, column in enumerate(X.T):
        limits = far_limits(column)
        if limits is not None:
            out = out.copy() if out is X else out
            out[(column < limits[0]) | (column > limits[1]), d] = np.nan
    return out


def drawn_in(X):
    """Rows, (n_rows, n_columns), with far entries moved to the limits; X itself without them."""
    limits = [far_limits(column) or (-np.inf, np.inf) for column in X.T]
    if not np.isfinite(limits).any():
        return X
    low, high = np.transpose(limits)
    return np.clip(X, low, high)


def standardised(X):
    """Finite rows in columns with mean 0 and variance 1, far entries moved to the limits. A column
    that varies only by rounding becomes 0; scaling would turn it into noise."""
    X = drawn_in(np.asarray(X, dtype=np.float64))
    largest = np.abs(X).max(axis=0)
    # Scaled by the spread first, so that no square is too large or too small for a double.
    spread = np.ptp(X / 2.0, axis=0)
    varies = spread > 1e-12 * largest
    points = np.where(varies, (X - X[0]) / np.where(varies, spread, 1.0), 0.0)
    points -= points.mean(axis=0)
    return points / np.where(varies, points.std(axis=0), 1.0)


def principal(matrix):
    """Rows of a CSR array in its leading singular directions, at most N_DIMENSIONS, by subspace
    iteration: Halko, Martinsson & Tropp (2011), Finding structure with randomness."""
    n_directions = min(*matrix.shape, N_DIMENSIONS + N_MORE)
    # A fixed seed, so that points are a function of the matrix.
    rng = np.random.Generator(np.random.PCG64(0))
    directions = matrix @ rng.standard_normal((matrix.shape[1], n_directions))
    for _ in range(N_ITERATIONS):
        directions = matrix @ (matrix.T @ np.linalg.qr(directions)[0])
    directions = np.linalg.qr(directions)[0]
    left, singular, _ = np.linalg.svd((matrix.T @ directions).T, full_matrices=False)
    return ((directions @ left) * singular)[:, :N_DIMENSIONS]


def completed(X, drawn=False):
    """Rows with guesses in place of NaN: about their means given the known entries under one
    normal law, or `drawn`, as chains start, because without variance learned scales are small, and
    rows that lack the same columns a cluster, for hundreds of iterations. Correlations are those
    of pairs of known entries, mixed with independence. Every column in turn is predicted from the
    others (Gauss-Seidel) or drawn given these (Gibbs)."""
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
    rng = np.random.Generator(np.random.PCG64(0))  # so that fits follow from X and their seeds
    for _ in range(N_TURNS):
        for d in np.flatnonzero(missing.any(axis=0)):
            at = missing[:, d]
            found = rows[at] @ precision[d]
            if drawn:
                found -= np.sqrt(precision[d, d]) * rng.standard_normal(len(found))
            rows[at, d] -= found / precision[d, d]
    rows = mean + rows * spread * np.where(largest > 0.0, largest, 1.0)
    return np.where(missing, rows, X)
