"""Smallest variances of clusters of repeated rows under `Gaussian`, pair by pair."""

import itertools

import numpy as np


def repeats(X, variances):
    """h_d and m c of the notes of `Gaussian`.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Rows without missing entries, whose columns all have ties and vary.
    variances : ndarray of shape (n_features,)

    Returns
    -------
    spacing : ndarray of shape (n_features,)
    crowd : float
    """
    n, n_features = X.shape
    gaps = np.array([np.median(np.diff(np.unique(column))) for column in X.T])
    different = sorted(set(map(tuple, X)))
    counts = np.array([sum(tuple(row) == other for row in X) for other in different])
    n_equal = n_near = n_far = 0
    for i in range(n):
        for j in range(i):
            gap = np.abs(X[i] - X[j])
            n_equal += not gap.any()
            n_near += gap.any() and (gap <= 1.5 * gaps).all()
            n_far += gap.any() and (gap <= 2.5 * gaps).all()
    cells = [np.array(list(itertools.product(range(-k, k + 1), repeat=2))) for k in (1, 2)]
    # Mean squared distance of the cells in two columns, without the cell itself: by column.
    squares = [(each**2).sum() / 2.0 / len(each) for each in cells]
    n_cells = [3**n_features - 1, 5**n_features - 1]
    near, far = (n_features * s * (n + 1) / n for s, n in zip(squares, n_cells, strict=True))
    expected = n_near / n_cells[0]
    if n_near:
        rise = np.log(expected) - np.log(n_far / n_cells[1])
        expected *= np.exp(np.clip(rise * near / (far - near), 0.0, 1.0))
    unexplained = max(0.0, 1.0 - (expected + 2.0 * np.sqrt(expected)) / n_equal) ** 2
    share = sum(count for count in counts if count > 1) / n * unexplained
    m = int(np.ceil(2 + 2 * (n / len(different) - 1) * unexplained))
    m = min(len(different) - 1, 64, m)
    total = np.zeros(n_features)
    for row, count in zip(different, counts, strict=True):
        squares = (np.array(different) - row) ** 2
        nearest = np.argsort((squares / variances).sum(axis=1))[1 : m + 1]
        total += (count - 1) * squares[nearest].mean(axis=0)
    factor = max(1.0, np.exp(1.0 - 2.0 * (1.0 + np.log(m)) / n_features))
    return share * factor * 0.5 * total / (n - len(different)), m * n / len(different)
