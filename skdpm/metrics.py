# SPDX-License-Identifier: BSD-3-Clause
"""Measures of estimated feature allocations, and of partitions of networks."""

import math

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, spence
from sklearn.utils.validation import check_array, column_or_1d

from skdpm._validation import check_binary, check_counts
from skdpm.networks import adjacency, check_directions, is_graph

__all__ = ["b_cubed_score", "description_length"]
__dir__ = __all__.copy

_BLOCK_PAIRS = 1 << 20  # pairs of rows in a block

# Numbers of partitions of integers are counted up to this number of additions, and approximated
# above, where the logarithm is within 0.02 of the exact one (integers up to 600,000).
_MOST_ADDITIONS = 10**6


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


def description_length(X, labels, *, degree_correction=True, directed=False) -> float:
    """Description length of a network and a partition of its nodes, in nats; less is better.

    >>> from skdpm.metrics import description_length
    >>> X = [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 0]]
    >>> round(description_length(X, [0, 0, 0, 0]), 2)
    8.06
    >>> round(description_length(X, [0, 0, 0, 1]), 2)
    11.23

    It is -log p(X, partition) under the microcanonical stochastic block model, in which numbers of
    links between groups, and of links of nodes with degree correction, are fixed and uniform. It
    has no parameters, so partitions of any origin can be compared: of several fits, of
    `estimate_labels` with several `max_clusters`, or of other tools (`BlockState.entropy` of
    graph-tool without nesting).

    Parameters
    ----------
    X : graph of networkx, array-like or sparse matrix of shape (n_nodes, n_nodes)
        Numbers of links; for weights, `X != 0`. The diagonal has those of nodes to themselves.
    labels : array-like of shape (n_nodes,)
        Group of each node.
    degree_correction : bool, default=True
        Whether nodes of a group may differ in their numbers of links.
    directed : bool, default=False
        Whether X[i, j] and X[j, i] are two links. If not, X must be symmetric.

    Returns
    -------
    length : float
        Description length in nats.

    References
    ----------
    Peixoto (2017).
    """
    X = adjacency(X) if is_graph(X) else X
    X = sp.csr_array(check_array(X, accept_sparse="csr", dtype=np.float64), copy=True)
    X.sum_duplicates()
    labels = column_or_1d(labels)
    if (labels != labels).any():  # of numbers and of objects
        raise ValueError("labels contains NaN")
    labels = np.unique(labels, return_inverse=True)[1]
    n, n_groups = X.shape[0], labels.max() + 1
    if X.shape != (n, n) or len(labels) != n:
        raise ValueError(f"X has shape {X.shape}, but there are {len(labels)} labels of nodes")
    check_counts(X.tocoo(), "description_length", hint="for links without weights pass X != 0")
    check_directions("description_length", directed, X)
    if not directed:
        X = X + sp.diags_array(X.diagonal())  # both ends of links of nodes to themselves
    members = sp.csr_array((np.ones(n), (np.arange(n), labels)), shape=(n, n_groups))
    sizes, between = np.bincount(labels), members.T @ X @ members
    degrees = [X.sum(axis=1), X.sum(axis=0)][: 1 + directed]
    ends = [between.sum(axis=1), between.sum(axis=0)][: 1 + directed]
    n_links = X.sum() if directed else X.sum() / 2.0
    n_cells = n_groups**2 if directed else n_groups * (n_groups + 1) // 2
    # The partition, the links between groups, and their ends.
    length = _log_binomial(n - 1, n_groups - 1) + _log_factorials(n) - _log_factorials(sizes)
    length += math.log(n) + _log_binomial(n_cells + n_links - 1, n_links)
    length += _log_multiplicities(X, directed) - _log_multiplicities(between, directed)
    if not degree_correction:
        return float(length + sum(side @ np.log(sizes) for side in ends))
    for of_nodes, of_groups in zip(degrees, ends, strict=True):
        alike = np.unique(np.column_stack([labels, of_nodes]), axis=0, return_counts=True)[1]
        length += _log_factorials(of_groups) - _log_factorials(of_nodes)
        length += _log_factorials(sizes) - _log_factorials(alike)
        length += sum(map(_log_partitions, of_groups.astype(int).tolist(), sizes.tolist()))
    return float(length)


def _log_factorials(counts):
    return gammaln(np.asarray(counts) + 1.0).sum()


def _log_binomial(n, k):
    return _log_factorials(n) - _log_factorials(k) - _log_factorials(n - k)


def _log_multiplicities(links, directed):
    """Sum of log e! over pairs, and of log e!! over diagonal entries e = 2 m of undirected links,
    where e!! = 2^m m!."""
    if directed:
        return _log_factorials(links.data)
    own = links.diagonal()
    pairs = (_log_factorials(links.data) - _log_factorials(own)) / 2.0
    return pairs + own.sum() / 2.0 * math.log(2.0) + _log_factorials(own / 2.0)


def _log_partitions(m, n):
    """Log of the number of partitions of m into at most n parts: exact, or for large numbers by
    Szekeres' approximation (Peixoto 2017)."""
    n = min(m, n)
    if m * n <= _MOST_ADDITIONS:
        ways = np.ones(m + 1)  # by parts of one
        for part in range(2, n + 1):
            rows = np.pad(ways, (0, -len(ways) % part)).reshape(-1, part)
            ways = rows.cumsum(axis=0).ravel()[: m + 1]
        return math.log(ways[m])
    if n < m**0.25:
        return _log_binomial(m - 1, n - 1) - _log_factorials(n)
    u = v = n / math.sqrt(m)
    for _ in range(200):
        v = u * math.sqrt(spence(math.exp(-v)))
    rest = math.log1p(-math.exp(-v) * (1.0 + u * u / 2.0)) / 2.0
    value = math.log(v) - rest - 1.5 * math.log(2.0) - math.log(u * math.pi * m)
    return value + math.sqrt(m) * (2.0 * v / u - u * math.log1p(-math.exp(-v)))
