# SPDX-License-Identifier: BSD-3-Clause
"""Summaries of posterior draws of a feature allocation: distances and a point estimate.

A feature allocation is a binary matrix with a row for each row of X and a column for each feature.
The order of the columns means nothing, and draws differ in their number.

The distance of two allocations is the FARO loss of Dahl, Johnson & Andros (2023) with unit costs:
the number of entries that differ after the columns are matched one to one in the best way. A
column without a partner is compared with zeros.

Take columns with a and b ones, of which m are in the same rows. They differ in a + b - 2 m
entries, so a match saves 2 m entries. It costs none: the assignment of the largest saving is best.

With `complements`, a column and its complement are the same feature, as in a linear Gaussian model
with an intercept. The distance d of two columns of n entries is then min(d, n - d), also from a
column of zeros. It obeys the triangle inequality, so a match never costs any entries here either.
"""

import itertools

import numpy as np
from scipy.optimize import linear_sum_assignment

from skdpm._validation import check_binary, check_bool

__all__ = ["allocation_distances", "point_estimate"]
__dir__ = __all__.copy

# The search starts from at most N_STARTS draws, and ends when N_AGREEING starts have led to the
# same smallest expected distance. It reads at most MOST_SEARCHED draws, the final descent at most
# MOST_DRAWS, thinned evenly. More entries than MOST_ENTRIES mean fewer draws.
N_STARTS, N_AGREEING = 16, 4
MOST_SEARCHED, MOST_DRAWS, FEWEST_DRAWS = 200, 1000, 50
MOST_ENTRIES = 1 << 25


def allocation_distances(allocation_samples, Z, *, complements: bool = False) -> np.ndarray:
    """Distance of each draw to one feature allocation.

    >>> from skdpm.allocations import allocation_distances
    >>> draws = [[[1, 0], [1, 1], [0, 1]], [[1], [0], [0]]]
    >>> allocation_distances(draws, [[0, 1], [1, 1], [1, 0]])
    array([0., 3.])

    Parameters
    ----------
    allocation_samples : sequence of array-like of shape (n_samples, K_s)
        Draws of a feature allocation, 0 or 1. A sequence of chains, such as the
        `allocation_samples_` of `FeatureAllocation`, is flattened.
    Z : array-like of shape (n_samples, n_latent)
        The feature allocation, 0 or 1.
    complements : bool, default=False
        Whether a column and its complement are the same feature.

    Returns
    -------
    distances : ndarray of shape (n_draws,), float64
        Numbers of entries that differ after the columns are matched one to one in the best way. A
        column without a partner is compared with zeros.

    References
    ----------
    Dahl, Johnson & Andros (2023), "Comparison and Bayesian estimation of feature allocations".
    """
    draws = _as_draws(allocation_samples)
    check_bool(complements, "complements")
    Z = check_binary(Z, "Z")
    if len(Z) != len(draws[0]):
        raise ValueError(f"Z must have {len(draws[0])} rows, as the draws, got {len(Z)}")
    size = max(1, MOST_ENTRIES // max(1, sum(draw.size for draw in draws) // len(draws)))
    return np.concatenate(
        [
            AlignedDraws(draws[first : first + size], complements).match(Z)[0]
            for first in range(0, len(draws), size)
        ]
    )


def point_estimate(allocation_samples, *, complements: bool = False) -> np.ndarray:
    """Feature allocation of smallest posterior expected distance to the draws.

    >>> from skdpm.allocations import point_estimate
    >>> draws = [[[1, 0], [1, 1], [0, 1]], [[0, 1], [0, 1], [1, 0]], [[1], [1], [0]]]
    >>> point_estimate(draws).astype(int)
    array([[1, 0],
           [1, 0],
           [0, 1]])

    The search starts from several draws. It matches the columns of all draws with those of the
    start, puts a one where most matched entries are ones, and repeats both until the mean distance
    does not fall. The best result is returned. A feature that fewer than half of the draws have
    is left out.

    Parameters
    ----------
    allocation_samples, complements
        As in `allocation_distances`. If complements are the same feature, columns of the result
        have ones in at most half of the rows.

    Returns
    -------
    Z : ndarray of shape (n_samples, n_latent), bool
        Features by decreasing use.

    References
    ----------
    Dahl, Johnson & Andros (2023), "Comparison and Bayesian estimation of feature allocations".
    """
    draws = _as_draws(allocation_samples)
    check_bool(complements, "complements")
    draws = [draws[s] for s in _spaced(draws, MOST_DRAWS)]
    searched = [draws[s] for s in _spaced(draws, MOST_SEARCHED)]
    aligned = AlignedDraws(searched, complements)
    best, smallest, n_agreeing = None, np.inf, 0
    # Multiples of the golden section spread the first starts, too, over all chains.
    for position in np.arange(min(N_STARTS, len(searched))) * 0.618 % 1.0:
        Z, total = _descend(aligned, searched[int(position * len(searched))])
        n_agreeing = n_agreeing + 1 if total == smallest else n_agreeing
        if total < smallest:
            best, smallest, n_agreeing = Z, total, 1
        if n_agreeing == N_AGREEING:
            break
    if len(searched) < len(draws):
        best, _ = _descend(AlignedDraws(draws, complements), best)
    return best[:, np.argsort(-best.sum(axis=0), kind="stable")]


def nearest_draws(draws, Z, most, complements):
    """Find the at most `most` draws nearest to Z among those with as many columns or more: list of
    their numbers, each with the columns that match those of Z."""
    wide = [s for s, draw in enumerate(draws) if draw.shape[1] >= Z.shape[1]]
    wide = [wide[j] for j in _spaced([draws[s] for s in wide], MOST_DRAWS)]
    aligned = AlignedDraws([draws[s] for s in wide], complements)
    distances, pairs = aligned.match(Z)
    return [
        (wide[j], np.nonzero(pairs[:, aligned.bounds[j] : aligned.bounds[j + 1]])[1])
        for j in np.argsort(distances, kind="stable")[:most]
    ]


def _spaced(draws, most):
    """Positions of at most `most` draws, evenly spaced; of fewer if draws have many entries."""
    per_draw = max(1, sum(draw.size for draw in draws) // len(draws))
    most = min(most, max(FEWEST_DRAWS, MOST_ENTRIES // per_draw))
    return np.linspace(0, len(draws) - 1, min(len(draws), most)).astype(int)


class AlignedDraws:
    """Draws, (n_samples, K_s), side by side, whose columns are matched with those of one
    allocation. `bounds` has the first column of each draw, and the number of columns of all draws.
    """

    def __init__(self, draws, complements):
        self.n_samples, self.complements = len(draws[0]), complements
        columns = np.concatenate([Z.T for Z in draws])
        self.columns = columns.astype(np.float32)  # sums of counts are exact, and by BLAS
        self.sizes = self.columns.sum(axis=1, dtype=np.float64)
        self.alone = self._to_zeros(self.sizes)
        self.bounds = np.cumsum([0, *(Z.shape[1] for Z in draws)])

    def match(self, Z):
        """Match the columns of all draws with those of Z.

        Returns `distances`: (n_draws,), and `pairs`: (n_latent, n_columns), float32, 1 if a column
        of Z is matched with a column of a draw, -1 if with its complement, and 0 if not.
        """
        sizes, Z = Z.sum(axis=0), Z.T.astype(np.float32)
        differ = sizes[:, None] + self.sizes - 2.0 * (Z @ self.columns.T)
        turned = self.complements & (2.0 * differ > self.n_samples)
        alone = self._to_zeros(sizes)
        savings = alone[:, None] + self.alone
        savings -= np.where(turned, self.n_samples - differ, differ)
        pairs = np.zeros(savings.shape, dtype=np.float32)
        distances = alone.sum() + np.diff(np.append(0.0, np.cumsum(self.alone))[self.bounds])
        for s, (first, end) in enumerate(itertools.pairwise(self.bounds)):
            k, j = linear_sum_assignment(savings[:, first:end], maximize=True)
            j += first
            pairs[k, j] = np.where(turned[k, j], -1.0, 1.0)
            distances[s] -= savings[k, j].sum()
        return distances, pairs

    def _to_zeros(self, sizes):
        """Distances of columns with these numbers of ones from a column of zeros."""
        return np.minimum(sizes, self.n_samples - sizes) if self.complements else sizes

    def majority(self, pairs):
        """The allocation with a one where most of the entries that `pairs` matches are ones."""
        counts = pairs @ self.columns + np.count_nonzero(pairs < 0.0, axis=1)[:, None]
        return self.settled(2.0 * counts.T > len(self.bounds) - 1)

    def settled(self, Z):
        """Z with columns of at most half of the rows if complements are equal; no empty ones."""
        if self.complements:
            Z = Z ^ (2 * Z.sum(axis=0) > self.n_samples)
        return Z[:, Z.any(axis=0)]


def _descend(aligned, Z):
    """Improve Z until its total distance to the draws does not fall; return both."""
    Z = aligned.settled(Z)
    distances, pairs = aligned.match(Z)
    smallest, total = np.inf, distances.sum()
    while total < smallest:  # ends: sums of integers are exact
        best, smallest = Z, total
        Z = aligned.majority(pairs)
        distances, pairs = aligned.match(Z)
        total = distances.sum()
    return best, smallest


def _as_draws(allocation_samples):
    draws = list(allocation_samples)
    if draws and not (len(draws[0]) and np.ndim(draws[0][0]) < 2):
        draws = [Z for chain in draws for Z in chain]
    if not draws:
        raise ValueError("allocation_samples must not be empty")
    draws = [check_binary(Z, "a draw of allocation_samples") for Z in draws]
    if len({len(Z) for Z in draws}) > 1:
        raise ValueError("the draws in allocation_samples must have equally many rows")
    return draws
