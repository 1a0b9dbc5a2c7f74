# SPDX-License-Identifier: BSD-3-Clause
"""Laws of unknown entries of rows, given the known ones.

Let w_sc be the weight of cluster c in draw s and p_sc its law of a row. Given the known entries b,
the other entries have the law

    p(a | b) = sum_sc omega_sc p_sc(a | b),  omega_sc = w_sc p_sc(b) / sum_sc w_sc p_sc(b).

The sum runs over draws as well as clusters: a draw under which b is unlikely counts less. NaN
marks an entry that is not known.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy.special import logsumexp

from skdpm.mixture.likelihoods.laws.laws import Laws

# Largest number of pairs of a row and a cluster that are weighed at once (8 MiB).
BLOCK_PAIRS = 2**20
# Largest number of entries of laws of pairs at once (32 MiB): for each `Laws.width` and column.
BLOCK_ENTRIES = 2**22
# Terms below this share of the largest, divided by their number, are left out of a sum.
SMALLEST_SHARE = 2.0**-50
# Bisections that halve an interval of doubles to neighbouring ones, nearly.
BISECTIONS = 60


@dataclass
class Pairs:
    """Rows, each with the clusters that explain its known entries.

    - `rows`, `clusters`: (n_pairs,), intp. Row of each pair, in increasing order, and cluster in
      `laws`.
    - `weights`: (n_pairs,). Weights, which sum to 1 for each row.
    """

    X: np.ndarray
    laws: Laws
    rows: np.ndarray
    clusters: np.ndarray
    weights: np.ndarray

    def columns(self, columns):
        """The laws of columns: list of `Mixture`, or of None for a column that is not modelled."""
        steps = [
            self.laws.given(self.X[self.rows[some]], self.clusters[some], columns)
            for some in _slices(len(self.rows), self.laws, self.X)
        ]
        return [
            None
            if parts[0] is None
            else Mixture(type(parts[0]).joined(parts), self.rows, self.weights, len(self.X))
            for parts in zip(*steps, strict=True)
        ]

    def parts(self):
        """Yield the pairs of some rows after the other, so that laws take little memory."""
        n_gaps = max(1, np.count_nonzero(np.isnan(self.X).any(axis=0)))
        starts = np.searchsorted(self.rows, np.arange(len(self.X) + 1))
        group = starts[:-1] // max(1, BLOCK_ENTRIES // (self.laws.width * n_gaps))
        for a, b in pairwise([0, *(np.flatnonzero(np.diff(group)) + 1), len(self.X)]):
            of = slice(starts[a], starts[b])
            chosen = self.rows[of] - a, self.clusters[of], self.weights[of]
            yield Pairs(self.X[a:b], self.laws, *chosen)

    def draw(self, rng):
        """Draw the unknown entries of each row: (n_rows, n_features)."""
        cumulated = np.cumsum(self.weights)
        ends = np.searchsorted(self.rows, np.arange(len(self.X)), side="right")
        starts = np.concatenate([[0.0], cumulated[ends[:-1] - 1]])
        u = starts + rng.random(len(self.X)) * (cumulated[ends - 1] - starts)
        chosen = np.searchsorted(cumulated, u, side="right")
        chosen = np.clip(chosen, np.concatenate([[0], ends[:-1]]), ends - 1)
        return fill(self.laws, self.X, self.clusters[chosen], rng)


def fill(laws, X, clusters, rng):
    """`Laws.fill`, a limited number of pairs at a time."""
    parts = [laws.fill(X[some], clusters[some], rng) for some in _slices(len(X), laws, X)]
    return np.concatenate(parts) if parts else X.copy()


def _slices(n_pairs, laws, X):
    step = max(1, BLOCK_ENTRIES // (laws.width * X.shape[1]))
    return [slice(first, first + step) for first in range(0, n_pairs, step)]


@dataclass
class Mixture:
    """Law of one column in each of some rows: a mixture of the laws of pairs."""

    law: object
    rows: np.ndarray
    weights: np.ndarray
    n_rows: int

    @property
    def is_discrete(self):
        """Whether values are whole numbers from 0."""
        return self.law.is_discrete

    def _sum(self, values):
        return np.bincount(self.rows, self.weights * values, self.n_rows)

    def mean(self):
        """Mean in each row: (n_rows,)."""
        means = self.law.mean()
        # Relative to one of the means, so that the mean of equal ones is their value.
        first = means[np.searchsorted(self.rows, np.arange(self.n_rows))]
        return first + self._sum(means - first[self.rows])

    def probabilities(self):
        """Probabilities of the categories in each row, (n_rows, n_categories); None for
        numbers."""
        of_pairs = self.law.probabilities()
        return None if of_pairs is None else np.array([*map(self._sum, of_pairs.T)]).T

    def quantile(self, p):
        """Quantile p in each row: (n_rows,)."""
        lowest, highest = self.law.bracket(p)
        low, high = np.full(self.n_rows, np.inf), np.full(self.n_rows, -np.inf)
        np.minimum.at(low, self.rows, lowest)
        np.maximum.at(high, self.rows, highest)
        if self.is_discrete:
            low = low - 1.0
        for _ in range(BISECTIONS):
            middle = low + 0.5 * (high - low)
            if self.is_discrete:
                middle = np.floor(middle)
            # Half a rounding error, so that the limits themselves count as reached.
            reached = self._sum(self.law.cdf(middle[self.rows])) >= p - 1e-15
            high = np.where(reached, middle, high)
            low = np.where(reached, low, middle)
        return high


class ConditionalLaws:
    """The law of unknown entries of new rows under a resolved likelihood, over all scored draws
    (`ScoredDraws.mixtures`)."""

    def __init__(self, likelihood, mixtures):
        self.likelihood = likelihood
        laws, log_weights = [], []
        for mixture in mixtures:
            stats = np.pad(mixture.stats, ((0, 1), (0, 0)))  # and an empty cluster
            laws.append(likelihood.at(mixture.values).laws(stats))
            log_weights.append(mixture.log_weights + np.log(mixture.weight))
        self.laws = type(laws[0]).joined(laws)
        self.log_weights = np.concatenate(log_weights)
        self.block = max(1, BLOCK_PAIRS // len(self.log_weights))

    def log_density(self, X):
        """log density of the known entries of each row: (n_rows,)."""
        blocks = self.weighed(X, self.laws.departing())
        return np.concatenate([logsumexp(block, axis=1) for block in blocks])

    def pairs(self, X):
        """Pair rows with the clusters that explain their known entries: `Pairs`."""
        rows, clusters, weights, first = [], [], [], 0
        cutoff = np.log(SMALLEST_SHARE) - np.log(len(self.log_weights))
        for block in self.weighed(X, self.laws):
            top = block.max(axis=1, keepdims=True)
            if not np.isfinite(top).all():
                row = first + int(np.flatnonzero(~np.isfinite(top[:, 0]))[0])
                raise ValueError(
                    f"no cluster can explain the known entries of row {row}; check their units"
                )
            kept = np.nonzero(block - top > cutoff)
            weight = np.exp((block - top)[kept])
            weight /= np.bincount(kept[0], weight, len(block))[kept[0]]
            rows.append(first + kept[0])
            clusters.append(kept[1])
            weights.append(weight)
            first += len(block)
        return Pairs(X, self.laws, *map(np.concatenate, (rows, clusters, weights)))

    def completions(self, row, n_rows, rng):
        """Draw the unknown entries of one row, (1, n_features): (n_rows, n_features)."""
        pairs = self.pairs(row)
        clusters = rng.choice(pairs.clusters, n_rows, p=pairs.weights)
        return fill(self.laws, np.repeat(row, n_rows, axis=0), clusters, rng)

    def weighed(self, X, laws):
        """Log weights of the clusters plus log densities, for blocks of rows."""
        for first in range(0, len(X), self.block):
            rows = X[first : first + self.block]
            with np.errstate(over="ignore"):  # squares of far entries, of density 0
                log_density = laws.log_density(rows, self.log_weights)
            yield self.log_weights + log_density


class OwnLaws:
    """The law of missing entries of rows of the fit, in the cluster of each row in each scored
    draw. The clusters do not contain the row itself, whose known entries count as known."""

    def __init__(self, likelihood, training, draws):
        self.likelihood, self.training, self.draws = likelihood, training, draws
        self.scored = draws.scored.draws
        self.weights = np.array([draw["weight"] for draw in self.scored])
        self.block = max(1, BLOCK_PAIRS // (len(self.scored) * draws.scored.stats.shape[1]))

    def pairs(self, rows):
        """Pair rows of the fit, given by their positions, with their clusters: `Pairs`."""
        rows = self.training.places(rows)
        statistics = self.training.statistics_without(
            self.likelihood, self.draws, self.scored, rows
        )
        laws = [
            self.likelihood.at(draw["values"]).laws(stats)
            for draw, stats in zip(self.scored, statistics, strict=True)
        ]
        n_rows, n_draws = len(rows), len(laws)
        clusters = np.arange(n_rows * n_draws).reshape(n_draws, n_rows).T.ravel()
        return Pairs(
            self.training.X[rows],
            type(laws[0]).joined(laws),
            np.repeat(np.arange(n_rows), n_draws),
            clusters,
            np.tile(self.weights, n_rows),
        )

    def draw_tables(self, rows, n_tables, rng):
        """Draw completed rows of the fit: iterator of n_tables ndarrays. The rows of a table
        share a draw of the partition, and their clusters one draw of the parameters."""
        rows = self.training.places(rows)
        again = n_tables > np.count_nonzero(self.weights)
        for s in rng.choice(len(self.scored), n_tables, again, self.weights):
            draw = self.scored[s]
            labels = self.draws["labels"][draw["chain"], draw["draw"]].astype(np.intp)
            stats = next(self.training.statistics_of_each(self.likelihood, self.draws, [draw]))
            laws = self.likelihood.at(draw["values"]).laws(stats, rng)
            yield fill(laws, self.training.X[rows], labels[rows], rng)


class NewLaws:
    """The law of missing entries of new, checked rows, in any of their clusters: as `OwnLaws`."""

    def __init__(self, laws, X):
        self.laws, self.X, self.block = laws, X, laws.block

    def pairs(self, rows):
        return self.laws.pairs(self.X[rows])

    def draw_tables(self, rows, n_tables, rng):
        pairs = self.pairs(rows)
        yield from (pairs.draw(rng) for _ in range(n_tables))


def blocks(laws, rows):
    """Yield the `Pairs` of blocks of rows, given by their positions."""
    for first in range(0, max(1, len(rows)), laws.block):
        yield from laws.pairs(rows[first : first + laws.block]).parts()


def most_likely(laws, X, rows):
    """A copy of X in which missing entries of some rows are posterior means or modes."""
    filled, first = X.copy(), 0
    for pairs in blocks(laws, rows) if len(rows) else ():
        at = rows[first : first + len(pairs.X)]
        first += len(at)
        gaps = np.isnan(pairs.X)
        columns = [int(d) for d in np.flatnonzero(gaps.any(axis=0))]
        for d, law in zip(columns, pairs.columns(columns), strict=True):
            if law is not None:
                probabilities = law.probabilities()
                best = law.mean() if probabilities is None else probabilities.argmax(axis=1)
                filled[at[gaps[:, d]], d] = best[gaps[:, d]]
    return filled


def completed_tables(laws, X, rows, n_tables, rng):
    """List of n_tables copies of X in which missing entries of some rows are drawn."""
    tables = [X.copy() for _ in range(n_tables)]
    if len(rows):
        for table, part in zip(tables, laws.draw_tables(rows, n_tables, rng), strict=True):
            table[rows] = part
    return tables
