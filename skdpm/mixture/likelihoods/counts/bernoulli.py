# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Bernoulli`."""

from functools import partial

import numpy as np

from skdpm._validation import check_positive, parameters
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.counts.categorical import Levels
from skdpm.mixture.likelihoods.laws.means import ColumnMeans, means_of_columns

# Of both pseudo-counts, also of links: their mean is then uniform.
FLAG_PRIOR = Gamma(1.0, 1.0)


@parameters
class Bernoulli(Levels):
    """Independent binary columns; the probability of a 1 has a Beta(a, b) prior.

    X holds 0 and 1; NaN marks a missing entry. Sparse rows are made dense.

    Parameters
    ----------
    a, b : float, array-like of shape (n_features,) or None, default=None
        Pseudo-counts of ones and of zeros, for all columns or for each. None: learned for each.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.
    """

    hyperparameters = ("a", "b")
    accept_sparse = "as dense"

    a: object = None
    b: object = None
    hyperpriors: dict | None = None

    def summarise(self, X):
        """Numbers of ones and of entries of each column."""
        self._checked(X)
        return {
            "ones": (X == 1).sum(axis=0),
            "entries": (~np.isnan(X)).sum(axis=0),
            "rows": len(X),
        }

    def resolve_summary(self, summary):
        frequencies = (summary["ones"] + 0.5) / (summary["entries"] + 1.0)
        check = partial(check_positive, n_entries=len(frequencies))
        a = Start(2.0 * frequencies, FLAG_PRIOR, check)
        b = Start(2.0 * (1.0 - frequencies), FLAG_PRIOR, check)
        resolved = self._start({"a": a, "b": b})
        resolved._fitted_missing = bool((summary["entries"] < summary["rows"]).any())
        return resolved

    def _sizes(self, n_features):
        return np.full(n_features, 2)

    def _kinds(self, n_features):
        columns = np.arange(n_features)
        a, b = (columns if np.ndim(value) else 0 * columns for value in (self.a, self.b))
        return np.stack([np.size(self.a) + b, a], axis=1).ravel()

    def cluster_params(self, stats):
        """`probabilities` of a 1: (n_clusters, n_features)."""
        ones, zeros = self._totals(stats)
        return {"probabilities": ones / (ones + zeros)}

    def draw(self, stats, rng):
        probabilities = self.cluster_params(stats)["probabilities"]
        return (rng.random(probabilities.shape) < probabilities).astype(np.float64)

    def _totals(self, stats):
        """Pseudo-counts plus counts of ones and of zeros: (n_clusters, n_features) each."""
        n_features = (stats.shape[1] - 1) // 3
        counts = stats[:, 1 : 1 + 2 * n_features].reshape(len(stats), n_features, 2)
        return self.a + counts[:, :, 1], self.b + counts[:, :, 0]

    def column_means(self, stats, n_draws=None, rng=None):
        values = means_of_columns(self, stats, n_draws, rng)
        return ColumnMeans.of_columns("share", [column[..., 1:] for column in values])

    def _of_columns(self, stats):
        ones, zeros = self._totals(stats)
        return list(np.stack([zeros, ones], axis=-1).swapaxes(0, 1))

    def _checked(self, X):
        self._check_columns(X, (X != 0) & (X != 1) & ~np.isnan(X), "0 or 1")
        return X
