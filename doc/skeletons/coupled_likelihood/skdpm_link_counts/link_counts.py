# SPDX-License-Identifier: BSD-3-Clause
"""Counts of links between the nodes of a network."""

import numpy as np
from scipy.special import gammaln

from skdpm._validation import check_real
from skdpm.mixture.likelihoods.contract.base import Likelihood, read_only
from skdpm_link_counts._link_counts import LinkCountsModel


class LinkCounts(Likelihood):
    """Clusters of the nodes of a network with counts of links: messages, meetings, trade.

    The counts between nodes of two clusters are Poisson with a common mean, which has a
    Gamma(shape, rate) prior.

    Parameters
    ----------
    shape, rate : float, default=1.0
        Parameters of the Gamma prior.

    Notes
    -----
    X is the symmetric matrix of counts 0, 1, 2, ...; its diagonal is ignored. To predict or score
    m new nodes, X has shape (m, n): their links to the n nodes of `fit`.
    """

    capabilities = frozenset({"joint"})  # not "product": clusters are coupled
    pairwise = True
    positive_only = True

    def __init__(self, shape=1.0, rate=1.0):
        self.shape = shape
        self.rate = rate

    def resolve(self, X):
        if X.shape[0] != X.shape[1] or not np.array_equal(X, X.T):
            raise ValueError(f"LinkCounts needs a square, symmetric X; its shape is {X.shape}")
        return self._copy(
            shape=check_real(self.shape, "LinkCounts.shape", low=0.0),
            rate=check_real(self.rate, "LinkCounts.rate", low=0.0),
        )

    def encode(self, X):
        X = X.copy()
        np.fill_diagonal(X, 0.0)
        return self.encode_new(X)

    def encode_new(self, X):
        """New nodes: their links to all nodes of `fit`; row i is not node i."""
        # Larger counts are no longer exact as doubles.
        bad = ~((X >= 0) & (X < 2.0**53) & (X == np.floor(X)))
        self._check_columns(X, bad, "counts 0, 1, 2, ...")
        X = np.ascontiguousarray(X, dtype=np.float64)
        return read_only({"X": X, "log_factorials": gammaln(X + 1.0)})

    def bind(self, data, tables):
        return LinkCountsModel(
            data["X"], data["log_factorials"], self.shape, self.rate, tables["n_max"]
        )

    def cluster_params(self, stats):
        """`means` of the counts between two nodes: shape (n_clusters, n_clusters)."""
        sizes, totals = stats[:, 0], stats[:, 1:]
        n_pairs = np.outer(sizes, sizes)
        np.fill_diagonal(n_pairs, sizes * (sizes - 1) / 2)
        return {"means": (self.shape + totals) / (self.rate + n_pairs)}
