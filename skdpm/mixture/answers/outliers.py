# SPDX-License-Identifier: BSD-3-Clause
"""Outlier scores: tail probabilities of rows among rows simulated from a fit.

A row has two surprises: -log of its density in the clusters, blurred by an error in each column as
large as the spread within clusters, so that neither ties nor clusters of a few outliers hide it;
and the sum of -log tail probabilities of its columns (ECOD, Li et al., 2023, with columns of the
model for empirical ones). A score is -log of the probability that a simulated row has a smaller
tail probability in one of the two. Seeds are fixed, so that nothing depends on other rows.
"""

import copy

import numpy as np
from scipy.special import logsumexp

from skdpm.mixture.answers.conditional import ConditionalLaws, fill

# Standard deviation of the error of a column, in those of the column within clusters.
BLUR = 1.0
# Share of simulated rows whose column does not count for its standard deviation, on either side.
CLIPPED = 0.005
# Numbers of draws, of simulated rows and of completions of a row with missing entries.
N_DRAWS, N_SIMULATED, N_COMPLETIONS = 10, 2500, 10
# Share of simulated rows whose excess gives the tail beyond them, which is exponential.
TAIL = 0.02
# Least mean excess, in nats. Values of discrete columns tie, so that few lie beyond a quantile.
LEAST_EXCESS = 0.5
SEED = 20261128
# Number of rows whose clusters without the row are evaluated at once. Only the own one counts.
BLOCK_OWN = 32


class Outliers:
    """Outlier scores under some of the scored draws of a `Predictor`, evenly spaced."""

    def __init__(self, predictor):
        self.likelihood, scored = predictor.likelihood, predictor.scored
        places = np.unique(np.linspace(0, len(scored) - 1, N_DRAWS).astype(np.intp))
        self.draws = [scored.draws[place] for place in places]
        mixtures = [scored.mixture_of(draw, 1.0 / len(places)) for draw in self.draws]
        self.laws = ConditionalLaws(self.likelihood, mixtures)
        sizes = np.array([len(mixture.log_weights) for mixture in mixtures])
        if (sizes > 1).any():  # rows of new clusters are what is looked for
            self.laws.log_weights[np.cumsum(sizes) - 1] = -np.inf
        rng = np.random.Generator(np.random.PCG64(SEED))
        shares = np.exp(self.laws.log_weights - logsumexp(self.laws.log_weights))
        clusters = rng.choice(len(shares), size=N_SIMULATED, p=shares)
        nothing = np.full((N_SIMULATED, predictor.n_features), np.nan)
        rows = fill(self.laws.laws, nothing, clusters, rng)
        one = self.laws.laws.given(nothing[:1], np.zeros(1, np.intp), range(rows.shape[1]))
        kinds = [law is not None and law.probabilities() is not None for law in one]
        self.columns = [ColumnTails(x, kind) for x, kind in zip(rows.T, kinds, strict=True)]
        self.errors = BLUR * np.nan_to_num(_within(rows, clusters))
        self.blurred = copy.copy(self.laws)
        self.blurred.laws = self.laws.laws.blurred(self.errors)
        pair = self._surprises(rows)
        self.tails = [Tail(values) for values in pair]
        self.joint = Tail(self._larger(pair))

    def scores(self, X, own=None):
        """Scores of checked rows: (n_rows,). Those of rows that depart in a column left out are
        infinite. At most about alpha of the rows with gaps are above -log(alpha), because their
        surprises are means over completions. `own` is the `OwnClusters` of rows of the fit."""
        incomplete = np.isnan(X[:, [c.known for c in self.columns]]).any(axis=1)
        rows, tables = [np.flatnonzero(~incomplete)], [X[~incomplete]]
        gaps = np.flatnonzero(incomplete)
        for row in gaps[np.isfinite(self.laws.log_density(X[gaps]))] if len(gaps) else ():
            rng = np.random.Generator(np.random.PCG64(SEED))
            tables.append(self.laws.completions(X[[row]], N_COMPLETIONS, rng))
            rows.append(np.repeat(row, N_COMPLETIONS))
        rows = np.concatenate(rows)
        pair, counts = np.full((2, len(X)), np.inf), np.bincount(rows, minlength=len(X))
        for found, x in zip(pair, self._surprises(np.concatenate(tables), own, rows), strict=True):
            np.divide(np.bincount(rows, x, len(X)), counts, out=found, where=counts > 0)
        scores = self.joint.surprise(self._larger(pair))
        if self.likelihood.left_out is not None:
            scores[self.likelihood.left_out.departs(X).any(axis=1)] = np.inf
        return scores

    def _larger(self, pair):
        return np.maximum(*(tail.surprise(x) for tail, x in zip(self.tails, pair, strict=True)))

    def _surprises(self, X, own=None, rows=None):
        """Surprises of complete rows and of their columns, in nats: (2, n_rows)."""
        of_columns = sum(column.surprise(x) for column, x in zip(self.columns, X.T, strict=True))
        if not len(X):
            return np.empty((2, 0))
        together = self.blurred.log_density(X) if own is None else own.log_density(X, rows)
        return np.array([-together, of_columns])


def _within(rows, clusters):
    """Standard deviations of columns within clusters, without the few farthest rows of each
    column: (n_features,)."""
    rows = np.clip(rows, *np.quantile(rows, [CLIPPED, 1.0 - CLIPPED], axis=0))
    _, owner, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), rows.shape[1]))
    np.add.at(sums, owner, rows)
    gaps = rows - (sums / sizes[:, None])[owner]
    return np.sqrt((gaps**2).sum(axis=0) / max(1, len(rows) - len(sizes)))


class OwnClusters:
    """The clusters of a fit as each of its rows finds them: its own one without the row."""

    def __init__(self, outliers, training, draws):
        self.outliers, self.training, self.draws = outliers, training, draws

    def log_density(self, X, rows):
        """Blurred log density of completed rows, given their positions in the rows of the fit,
        and the mean over draws: (n_rows,)."""
        found = [self._of_draw(draw, X, rows) for draw in self.outliers.draws]
        return logsumexp(found, axis=0) - np.log(len(found))

    def _of_draw(self, draw, X, rows):
        likelihood, training = self.outliers.likelihood, self.training
        drawn, errors = likelihood.at(draw["values"]), self.outliers.errors
        labels = self.draws["labels"][draw["chain"], draw["draw"]].astype(np.intp)
        sizes = np.bincount(labels[labels >= 0])
        prior = training.prior_of(self.draws, draw)
        stats = next(training.statistics_of_each(likelihood, self.draws, [draw]))
        laws = drawn.laws(np.pad(stats, ((0, 1), (0, 0)))).blurred(errors)  # and of a new cluster
        out = []
        for part in np.array_split(np.arange(len(X)), -(-len(X) // self.outliers.laws.block)):
            found, of = np.unique(labels[rows[part]], return_inverse=True)
            log_weights = np.array([_without(prior, sizes, k) for k in found])[of]
            weighed = log_weights + laws.log_density(X[part])
            own = part[labels[rows[part]] >= 0]
            stats = next(training.statistics_without(likelihood, self.draws, [draw], rows[own]))
            for first in range(0, len(own), BLOCK_OWN):
                some, without = own[first : first + BLOCK_OWN], stats[first : first + BLOCK_OWN]
                density = drawn.laws(without).blurred(errors).log_density(X[some])
                at = some - part[0], labels[rows[some]]
                weighed[at] = log_weights[at] + np.diagonal(density)
            # As for new rows, a new cluster counts only if there is no other.
            weighed[np.isfinite(weighed[:, :-1]).any(axis=1), -1] = -np.inf
            out.append(logsumexp(weighed, axis=1))
        return np.concatenate(out) + np.log1p(-draw["noise_weight"])


def _without(prior, sizes, cluster):
    """Log weights for a row of a cluster, or of noise (-1), without it: (n_clusters + 1,)."""
    rest = sizes - (np.arange(len(sizes)) == cluster)
    out = np.full(len(sizes) + 1, -np.inf)
    out[np.append(rest > 0, True)] = prior.log_weights(rest[rest > 0])
    return out


class ColumnTails:
    """Tail probabilities of a column among simulated rows: two-sided, or of categories that are
    not more frequent."""

    def __init__(self, values, is_category):
        self.known = not np.isnan(values).any()
        categorical = is_category and self.known
        self.counts = np.append(np.bincount(values.astype(np.intp)), 0) if categorical else None
        self.values = np.sort(values if self.counts is None else self._counts(values))

    def _counts(self, x):
        return self.counts[np.minimum(x, len(self.counts) - 1).astype(np.intp)]

    def surprise(self, x):
        """-log of the tail probability, 0 for a column that is not modelled: (n_rows,)."""
        if not self.known:
            return np.zeros(len(x))
        n, x = len(self.values), x if self.counts is None else self._counts(x)
        tail = np.searchsorted(self.values, x, "right")
        if self.counts is None:
            tail = 2.0 * np.minimum(tail, n - np.searchsorted(self.values, x, "left")) + 0.5
        return -np.log(np.minimum(1.0, (tail + 0.5) / (n + 1.0)))


class Tail:
    """Upper tail of simulated values, exponential beyond a share of them."""

    def __init__(self, values):
        self.values = np.sort(values)
        self.start = np.quantile(self.values, 1.0 - TAIL)
        self.level = np.log(np.mean(self.values >= self.start))
        beyond = self.values[self.values > self.start] - self.start
        self.excess = max(LEAST_EXCESS, beyond.mean() if len(beyond) else 0.0)

    def surprise(self, x):
        """-log of the probability of at least x: (n,)."""
        n = len(self.values)
        among = np.log((n + 1.0) / (n - np.searchsorted(self.values, x, "left") + 1.0))
        beyond = (x - self.start) / self.excess - self.level
        return np.where(x > self.start, beyond, np.minimum(among, -self.level))
