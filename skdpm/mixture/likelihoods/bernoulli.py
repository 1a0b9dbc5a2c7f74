# SPDX-License-Identifier: BSD-3-Clause
"""Binary columns."""

import numpy as np

from skdpm._validation import check_real
from skdpm.mixture.likelihoods._categorical import (
    CategoricalModel,
    ParametricCategorical,
    number_levels,
)
from skdpm.mixture.likelihoods.base import Likelihood, readable
from skdpm.mixture.likelihoods.categorical import (
    encode_levels,
    first_levels,
    log_probabilities_divergences,
    tables_of_levels,
)


class Bernoulli(Likelihood):
    """Independent binary columns, the probability of a 1 under a Beta(a, b) prior.

    Parameters
    ----------
    a, b : float, default=1.0
        Pseudo-counts of ones and of zeros.

    Notes
    -----
    X holds 0 and 1, NaN where an entry is missing.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    allow_nan = True

    def __init__(self, a=1.0, b=1.0):
        self.a = a
        self.b = b

    def summarise(self, X):
        self._check_binary(X)
        return {"missing": bool(np.isnan(X).any())}

    def merge_summaries(self, first, second):
        return {"missing": first["missing"] or second["missing"]}

    def resolve_summary(self, summary):
        resolved = self._copy(
            a=check_real(self.a, "Bernoulli.a", low=0.0),
            b=check_real(self.b, "Bernoulli.b", low=0.0),
        )
        resolved._fitted_missing = summary["missing"]
        return resolved

    def encode(self, X):
        self._check_binary(X)
        return encode_levels(X, np.full(X.shape[1], 2))

    def encode_new(self, X):
        # One way of adding up whether or not a row has holes: no row's bits depend on another's.
        return {**self.encode(X), "missing": True}

    def tables(self, data, n_max):
        return tables_of_levels(
            data,
            n_max,
            data["missing"] or self._fitted_missing,
            np.tile([0, 1], len(data["first"]) - 1),
            np.array([self.b, self.a]),
        )

    def bind(self, data, tables):
        return CategoricalModel(data, tables)

    def parametric(self, X):
        first = first_levels(np.full(X.shape[1], 2))
        return ParametricCategorical(
            number_levels(readable(X), first), first, np.array([self.b, self.a])
        )

    def divergences(self, params):
        return log_probabilities_divergences(params[:, :-1])

    def cluster_params(self, stats):
        """`probabilities`: (n_clusters, n_features), of a 1."""
        return {"probabilities": self._probabilities(stats)}

    def draw(self, stats, rng):
        probabilities = self._probabilities(stats)
        return (rng.random(probabilities.shape) < probabilities).astype(np.float64)

    def _probabilities(self, stats):
        n_features = (stats.shape[1] - 1) // 3
        zeros, ones = stats[:, 1 : 1 + 2 * n_features].reshape(len(stats), n_features, 2).T
        return ((self.a + ones) / (self.a + ones + self.b + zeros)).T

    def _check_binary(self, X):
        bad = (X != 0) & (X != 1) & ~np.isnan(X)
        self._check_columns(X, bad, "0 or 1 (NaN = missing)")

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = (rng.random((12, 3)) < 0.4).astype(np.float64)
        yield cls(a=0.8, b=1.7), X
        Y = X.copy()
        Y[rng.random(Y.shape) < 0.3] = np.nan
        yield cls(), Y
