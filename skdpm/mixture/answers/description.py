# SPDX-License-Identifier: BSD-3-Clause
"""What the clusters of a point estimate are, and how they differ from the other rows.

Let C be the rows of a cluster, and n_k the number of them that component k of a draw holds. The
mean of a column in the cluster is that of a new row of it,

    m_C = sum_k w_k mu_k,  w ~ Dirichlet(n_1, n_2, ...),

where mu_k is the mean of the column in component k, or the probability of a category. The weights
w are those of the Dirichlet process given the labels of the draw and given that the row belongs to
C. mu_k follows the posterior of the parameters of component k given all its rows. The other rows
have the mean m_R, in the same way. A component with rows on both sides counts for both: if draws
do not separate C from the others, m_C - m_R is close to 0.
"""

from dataclasses import dataclass
from itertools import compress

import numpy as np
import scipy.sparse as sp

# Number of draws of the parameters, and the smallest if there are many clusters and columns, whose
# intervals have their levels with a standard deviation of 0.02 at either end.
MOST_DRAWS, FEWEST_DRAWS = 2000, 100
# Largest number of kept draws of means, if this leaves the fewest (128 MiB in all).
MOST_KEPT = 2**24
# Largest number of means of components that are drawn at once (32 MiB).
BLOCK_MEANS = 2**22
# Largest difference of equal values, as a share of the largest value.
ROUNDING = 1e-13


@dataclass(frozen=True, eq=False)
class Description:
    """Means and shares of columns in clusters and in the other rows.

    - `columns`, `codes`, `kinds`: (n_entries,). Column, category and kind of each entry, as in
      `ColumnMeans`.
    - `sizes`: (n_clusters,), int
    - `spreads`: (n_entries,). Standard deviations within clusters.
    - `mean`, `rest`: (n_clusters, n_entries). Posterior means of m_C and m_R. `rest` is NaN if
      there is one cluster.
    - `mean_interval`, `difference_interval`: (2, n_clusters, n_entries). Credible intervals of m_C
      and of m_C - m_R.
    - `certainty`: (n_clusters, n_entries). Posterior probability of the more probable sign of m_C
      - m_R.
    """

    columns: np.ndarray
    codes: np.ndarray
    kinds: np.ndarray
    sizes: np.ndarray
    spreads: np.ndarray
    mean: np.ndarray
    rest: np.ndarray
    mean_interval: np.ndarray
    difference_interval: np.ndarray
    certainty: np.ndarray

    @property
    def difference(self):
        """Standardised differences, m_C - m_R over the spreads: (n_clusters, n_entries)."""
        return self.standardised(self.mean - self.rest)

    def standardised(self, values):
        """Values over the spreads; 0 for a column that does not vary at all."""
        none = np.isnan(self.spreads) & ~np.isnan(values)
        return np.where(none, 0.0, values / self.spreads)

    @property
    def lift(self):
        """m_C over m_R; NaN for numbers, which need not be positive."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(self.kinds == "number", np.nan, self.mean / self.rest)

    def order(self, cluster):
        """Positions of the entries: columns by their largest standardised difference, and the
        categories of a column by theirs."""
        size = -np.abs(np.nan_to_num(self.difference[cluster]))
        largest = np.zeros(self.columns.max() + 1)
        np.minimum.at(largest, self.columns, size)
        return np.lexsort((size, self.columns, largest[self.columns]))


def describe(likelihood, training, draws, labels, level, rng):
    """Describe the clusters 0, 1, ... of labels. Rows of noise, -1, count nowhere. The resolved
    likelihood has `column_means`, and `training` has recalled its rows. `level` is the probability
    of the intervals."""
    if not (labels >= 0).any():
        raise ValueError("there is no cluster to describe; all rows are noise")
    scored, partitions, weights = _with_clusters(draws)
    sizes = np.bincount(labels[labels >= 0])
    statistics = training.statistics_of_each(likelihood, draws, scored)
    kept = None
    drawn = zip(scored, partitions, statistics, weights, strict=True)
    for s, (draw, partition, stats, weight) in enumerate(drawn):
        counts = _counts(labels, partition, len(sizes), len(stats))
        law = likelihood.at(draw["values"])
        expected = law.column_means(stats)
        if kept is None:
            kept = _Kept(counts, expected.values, weights)
        kept.expect(counts, expected.values, weight)
        for n in kept.blocks(s, len(stats)):
            kept.add(counts, law.column_means(stats, n, rng).values, rng)
    mean_interval, difference_interval = kept.intervals(level)
    # Kept draws are rounded.
    highest = np.where(expected.kinds == "share", 1.0, np.inf)
    lowest = np.where(expected.kinds == "number", -np.inf, 0.0)
    mean_interval = np.clip(mean_interval, lowest, highest)
    return Description(
        expected.columns,
        expected.codes,
        expected.kinds,
        sizes,
        _spreads(expected, likelihood.scaled(training.X), labels, sizes, kept.mean),
        kept.mean,
        kept.rest,
        mean_interval,
        difference_interval,
        kept.certainty(),
    )


def _with_clusters(draws):
    """Scored draws, their labels and their weights. Draws in which all rows are noise say nothing
    of clusters and are left out."""
    scored = draws.scored.draws
    labels = [draws["labels"][draw["chain"], draw["draw"]] for draw in scored]
    weights = [draw["weight"] for draw in scored]
    some = [(partition >= 0).any() for partition in labels]
    if not all(some):
        if not any(some):
            raise ValueError("there is no cluster to describe; all rows are noise in each draw")
        scored, labels, weights = (list(compress(of, some)) for of in (scored, labels, weights))
        weights = list(np.divide(weights, np.sum(weights)))
    return scored, labels, weights


class _Kept:
    """Sums over draws, and draws of m_C and m_C - m_R, relative to their values in the first."""

    def __init__(self, counts, means, weights):
        self.origin = _weighted(counts), _weighted(_others(counts))
        self.origin = [weights_of @ means for weights_of in self.origin]
        self.origin[1] = self.origin[0] - self.origin[1]
        shape = self.origin[0].shape
        n = int(np.clip(MOST_KEPT // self.origin[0].size, FEWEST_DRAWS, MOST_DRAWS))
        # Numbers of draws of the parameters, proportional to the weights of the draws.
        self.bounds = np.round(np.cumsum([0.0, *weights]) * n).astype(int)
        self.values = np.empty((2, self.bounds[-1], *shape), dtype=np.float32)
        self.n = 0
        self.signs = np.zeros((2, *shape))
        self.mean, self.rest = np.zeros((2, *shape))

    def blocks(self, s, n_components):
        """Numbers of draws of the parameters in scored draw s, a limited number at a time."""
        n = self.bounds[s + 1] - self.bounds[s]
        step = max(1, BLOCK_MEANS // (n_components * self.mean.shape[1]))
        return [min(step, n - first) for first in range(0, n, step)]

    def expect(self, counts, means, weight):
        """Add the expectations of m_C and m_R in a draw."""
        self.mean += weight * (_weighted(counts) @ means)
        self.rest += weight * (_weighted(_others(counts)) @ means)

    def add(self, counts, means, rng):
        """Add draws, from draws of the means of components: (n, n_components, n_entries)."""
        occupied = np.nonzero(counts)
        masses = np.zeros((len(means), *counts.shape))
        masses[:, *occupied] = rng.gamma(counts[occupied], size=(len(means), len(occupied[0])))
        # Relative to one of the means, so that equal ones do not differ by rounding.
        gaps = means - means[:, :1]
        own = _weighted(masses) @ gaps
        stop = self.n + len(means)
        self.values[0, self.n : stop] = own + (means[:, :1] - self.origin[0])
        own -= _weighted(_others(masses)) @ gaps
        for difference in own:
            self.signs += difference > 0.0, difference < 0.0
        self.values[1, self.n : stop] = own - self.origin[1]
        self.n = stop

    def intervals(self, level):
        """Credible intervals of m_C and of m_C - m_R. The kept draws are sorted: quantiles of
        sorted draws take less time."""
        self.values.sort(axis=1)
        at = (self.n - 1) * (0.5 + np.array([-0.5, 0.5]) * level)
        low = np.minimum(at.astype(int), self.n - 2)
        share = (at - low)[:, None, None]
        return [
            origin + (1.0 - share) * values[low] + share * values[low + 1]
            for values, origin in zip(self.values, self.origin, strict=True)
        ]

    def certainty(self):
        return np.where(np.isnan(self.rest), np.nan, self.signs.max(axis=0) / self.n)


def _counts(labels, partition, n_clusters, n_components):
    """Number of rows of each cluster in each component: (n_clusters, n_components)."""
    cells = labels * np.int64(n_components) + partition
    # Rows that are noise, -1, are in no cluster or in no component.
    cells = cells[(labels >= 0) & (partition >= 0)] if partition.dtype.kind == "i" else cells
    counts = np.bincount(cells, minlength=n_clusters * n_components)
    counts = counts.reshape(n_clusters, n_components)
    # Nothing is known of a cluster whose rows are noise in this draw.
    counts[counts.sum(axis=1) == 0] = 1
    return counts


def _others(masses):
    """Sums over the other clusters, without subtractions."""
    before, after = np.zeros_like(masses), np.zeros_like(masses)
    before[..., 1:, :] = np.cumsum(masses[..., :-1, :], axis=-2)
    after[..., :-1, :] = np.cumsum(masses[..., :0:-1, :], axis=-2)[..., ::-1, :]
    return before + after


def _weighted(masses):
    """Masses of components as weights, which sum to 1; NaN for no mass."""
    with np.errstate(invalid="ignore"):
        return masses / masses.sum(axis=-1, keepdims=True)


def _spreads(entries, X, labels, sizes, mean):
    """Standard deviations within clusters: of the rows, or of an indicator with the shares of the
    clusters. NaN for a column that does not vary."""
    share = sizes / sizes.sum()
    spreads = np.sqrt(share @ np.clip(mean * (1.0 - mean), 0.0, None))
    spreads[spreads == 0.0] = np.nan
    numbers = np.flatnonzero(entries.kinds != "share")
    if sp.issparse(X) and len(numbers):
        X = sp.csc_array(X)
    for e in numbers:
        spreads[e] = _spread(*_column(X, entries.columns[e], labels, sizes), len(sizes))
    return spreads


def _column(X, column, labels, sizes):
    """Known values of a column in clusters, their clusters, and numbers of rows that have them."""
    if not sp.issparse(X):
        x = X[:, column]
        known = ~np.isnan(x) & (labels >= 0)
        return x[known], labels[known], np.ones(np.count_nonzero(known))
    entries = slice(*X.indptr[column : column + 2])
    x, owner = X.data[entries], labels[X.indices[entries]]
    x, owner = x[owner >= 0], owner[owner >= 0]
    # All zeros of a cluster are one value.
    zeros = sizes - np.bincount(owner, minlength=len(sizes))
    present = np.flatnonzero(zeros)
    x = np.concatenate([x, np.zeros(len(present))])
    weights = np.concatenate([np.ones(len(owner)), zeros[present]])
    return x, np.concatenate([owner, present]), weights


def _spread(x, owner, weights, n_clusters):
    """Standard deviation of values within their clusters, with numbers of rows as weights.

    It is at least that of the rounding error of a column recorded in steps, with the median
    distance of its different values as the step. So a column that is constant in every cluster has
    a scale, too.
    """
    steps = np.diff(np.unique(x))
    steps = steps[steps > ROUNDING * np.abs(x).max(initial=0.0)]
    if not len(steps):
        return np.nan
    x = x - np.average(x, weights=weights)
    n = np.bincount(owner, weights, n_clusters)
    means = np.bincount(owner, weights * x, n_clusters) / np.maximum(n, 1.0)
    freedom = n.sum() - np.count_nonzero(n)
    gaps = x - means[owner] if freedom else x
    within = np.sqrt(weights @ gaps**2 / (freedom or n.sum()))
    return max(within, np.median(steps) / np.sqrt(12.0))
