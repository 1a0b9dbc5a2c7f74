# SPDX-License-Identifier: BSD-3-Clause
"""Counts of failures before a success."""

import numpy as np

from skdpm._validation import check_real
from skdpm.mixture.likelihoods.contract.base import Likelihood, read_only
from skdpm_geometric._geometric import GeometricModel


class Geometric(Likelihood):
    """Independent columns of counts 0, 1, 2, ...: failures before the first success.

    Parameters
    ----------
    a, b : float, default=1.0
        Pseudo-counts of successes and of failures: parameters of the Beta prior of each column's
        probability of success.
    """

    positive_only = True  # for scikit-learn's checks: no negative values

    def __init__(self, a=1.0, b=1.0):
        self.a = a
        self.b = b

    def resolve(self, X):
        return self._copy(
            a=check_real(self.a, "Geometric.a", low=0.0),
            b=check_real(self.b, "Geometric.b", low=0.0),
        )

    def encode(self, X):
        # Larger counts are no longer exact as doubles.
        bad = ~((X >= 0) & (X < 2.0**53) & (X == np.floor(X)))
        self._check_columns(X, bad, "counts 0, 1, 2, ...")
        return read_only({"X": np.ascontiguousarray(X, dtype=np.float64)})

    def bind(self, data, tables):
        return GeometricModel(data["X"], self.a, self.b, tables["n_max"])

    def cluster_params(self, stats):
        """`probabilities` of a success: shape (n_clusters, n_features)."""
        successes, failures = self._posterior(stats)
        return {"probabilities": successes / (successes + failures)}

    def draw(self, stats, rng):
        return rng.geometric(rng.beta(*self._posterior(stats))) - 1.0

    def _posterior(self, stats):
        failures = self.b + stats[:, 1:]
        return np.broadcast_to(self.a + stats[:, :1], failures.shape), failures
