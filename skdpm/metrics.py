# SPDX-License-Identifier: BSD-3-Clause
"""Measures of how close estimated feature allocations are to the true ones."""

from typing import Any

import numpy as np

from skdpm._validation import check_binary

__all__ = ["b_cubed_score", "relative_log_density"]
__dir__ = __all__.copy

# Number of pairs of rows in a block.
_BLOCK_PAIRS = 1 << 20


def b_cubed_score(Z_true, Z_pred) -> float:
    """Extended B-cubed F-measure of two feature allocations, or overlapping clusterings.

    >>> from skdpm.metrics import b_cubed_score
    >>> Z = [[1, 0], [1, 1], [0, 1]]
    >>> b_cubed_score(Z, [[0, 1], [1, 1], [1, 0]])
    1.0
    >>> b_cubed_score(Z, [[1], [1], [1]])   # precision 7/9, recall 17/18
    0.8530...

    The score depends on which features rows share, so the order and the number of columns do not
    matter. With one feature per row it is the B-cubed F-measure of two partitions. Pass it to
    `sklearn.metrics.make_scorer` to score with scikit-learn.

    Let t(i, j) and p(i, j) be the numbers of features that rows i and j share in `Z_true` and in
    `Z_pred`. The precision of row i is the mean of min(t(i, j), p(i, j)) / p(i, j) over all rows j
    (including i) that share a feature with it in `Z_pred`. The precision is the mean over the rows
    that have features in `Z_pred`. The recall is the same with `Z_true` and `Z_pred` swapped. The
    score is the harmonic mean of both. It is 0 if only one of the two has no features at all, and
    1 if neither has any.

    Time is quadratic in the number of distinct rows of (`Z_true`, `Z_pred`); memory is linear.

    Parameters
    ----------
    Z_true : array-like of shape (n_samples, n_true)
        True features of each row, 0 or 1.
    Z_pred : array-like of shape (n_samples, n_pred)
        Estimated features; n_pred may differ from n_true.

    Returns
    -------
    score : float
        Score from 0 to 1. It is 1 if and only if all pairs of rows (and each row with itself)
        share the same number of features in `Z_pred` as in `Z_true`. The score is symmetric.

    References
    ----------
    Amigo, Gonzalo, Artiles & Verdejo (2009), section 6.
    """
    Z_true = check_binary(Z_true, "Z_true")
    Z_pred = check_binary(Z_pred, "Z_pred")
    if len(Z_true) != len(Z_pred):
        raise ValueError(f"Z_true has {len(Z_true)} rows, but Z_pred has {len(Z_pred)}")
    # Rows that are alike in both share all their terms.
    rows, counts = np.unique(np.hstack([Z_true, Z_pred]), axis=0, return_counts=True)
    rows = rows.astype(np.float32)  # products of counts are exact, and by BLAS
    true, pred = rows[:, : Z_true.shape[1]], rows[:, Z_true.shape[1] :]
    if not true.any() and not pred.any():
        return 1.0
    totals = np.zeros(2)  # of precisions and recalls
    step = max(1, _BLOCK_PAIRS // len(rows))
    for first in range(0, len(rows), step):
        block = slice(first, first + step)
        shared_true = true[block] @ true.T
        shared_pred = pred[block] @ pred.T
        both = np.minimum(shared_true, shared_pred)
        for side, shared in enumerate((shared_pred, shared_true)):
            terms = both / np.maximum(shared, 1.0, dtype=np.float64)
            weights = (shared > 0) @ counts
            totals[side] += counts[block] @ (terms @ counts / np.maximum(weights, 1))
    n_rows = [counts @ side.any(axis=1) for side in (pred, true)]
    precision, recall = totals / np.maximum(n_rows, 1)
    if precision + recall == 0.0:
        return 0.0
    return float(2.0 * precision * recall / (precision + recall))


def relative_log_density(log_density, log_density_true) -> Any:
    """Difference of a log density from that of the truth, relative to the latter.

    >>> from skdpm.metrics import relative_log_density
    >>> relative_log_density([-1500.0, -1000.0, -990.0], -1000.0)
    array([-0.5 ,  0.  ,  0.01])

    The value is (l - l_true) / abs(l_true) for l = `log_density`. Higher is better, 0 is as good
    as the truth, and draws from a posterior may exceed 0.

    Bouchard-Cote & Roth divide by l_true itself, so that low values are better if l_true < 0. With
    the absolute value the sign always means the same.

    Parameters
    ----------
    log_density : array-like of float
        Log densities of the data, for example of draws.
    log_density_true : float or array-like of float
        Log density at the true parameters, not 0; broadcast with `log_density`.

    Returns
    -------
    relative : float or ndarray
        Relative differences, in the broadcast shape.

    References
    ----------
    Bouchard-Cote & Roth, section 3.
    """
    log_density = np.asarray(log_density, dtype=np.float64)
    log_density_true = np.asarray(log_density_true, dtype=np.float64)
    if np.isnan(log_density).any() or np.isposinf(log_density).any():
        raise ValueError("log_density must be less than infinity and not NaN")
    if not np.isfinite(log_density_true).all() or (log_density_true == 0.0).any():
        raise ValueError("log_density_true must be finite and not 0")
    relative = (log_density - log_density_true) / np.abs(log_density_true)
    return float(relative) if np.ndim(relative) == 0 else relative
