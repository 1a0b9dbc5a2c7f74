# SPDX-License-Identifier: BSD-3-Clause
"""The infinite relational model."""

import numpy as np
import scipy.sparse as sp

from skdpm._core._numerics import log_gamma_table
from skdpm._validation import check_bool, check_real
from skdpm.mixture.likelihoods._relational import RelationalModel
from skdpm.mixture.likelihoods.base import Likelihood, read_only
from skdpm.mixture.likelihoods.categorical import PSEUDO_COUNT_PRIOR
from skdpm.mixture.likelihoods.coordinates import principal


class Relational(Likelihood):
    """Infinite relational model: clusters of the nodes of a network.

    Links between nodes of two clusters have a common probability with a Beta(a, b) prior.

    Parameters
    ----------
    a, b : float or None, default=None
        Pseudo-counts of links and of absent links. None: learned, see below.
    directed : bool, default=False
        Whether X[i, j] and X[j, i] are two links. Where they are one, X must be symmetric.

    Notes
    -----
    X is the square adjacency matrix of 0 and 1, dense or CSR; the diagonal is ignored and NaN
    marks a pair that was not observed. To predict or score new nodes, X is (m, n): their links to
    the n nodes of `fit`, outgoing ones where `directed`. Rows given to `predict` are always new
    nodes, each on its own.

    A pseudo-count that is learned has the prior Gamma(1, 1). Where both are, the mean a / (a + b)
    of the link probabilities is uniform a priori and independent of the strength a + b, which is
    Gamma(2, 1). The strength says how alike the link probabilities of pairs of clusters are: where
    it comes out small, some pairs have nearly all links and some nearly none, and more clusters
    are found than at a = b = 1. Chains start at the strength 2 and the frequency of links in
    `fit`.

    References
    ----------
    Kemp et al. (2006), Learning systems of concepts with an infinite relational model; Herlau et
    al., Adaptive reconfiguration moves for MCMC inference in Dirichlet process mixtures, sec. 3.2.
    """

    capabilities = frozenset({"joint"})
    hyperparameters = ("a", "b")
    allow_nan = True
    accept_sparse = True
    pairwise = True

    def __init__(self, a=None, b=None, directed=False):
        self.a = a
        self.b = b
        self.directed = directed

    def resolve(self, X):
        values, hyperpriors = {}, {}
        for name in self.hyperparameters:
            value = getattr(self, name)
            if value is None:
                hyperpriors[name] = PSEUDO_COUNT_PRIOR
            else:
                values[name] = check_real(value, f"Relational.{name}", low=0.0)
        check_bool(self.directed, "Relational.directed")
        if X.shape[0] != X.shape[1]:
            raise ValueError(
                f"Relational needs a square adjacency matrix; X has shape {tuple(X.shape)}"
            )
        links, holes = _links_and_holes(X, diagonal=False)
        if not self.directed:
            for part in (links, holes):
                differs = (part != part.T).tocoo()
                if differs.nnz:
                    i, j = int(differs.row[0]), int(differs.col[0])
                    raise ValueError(
                        "Relational(directed=False) needs a symmetric X, but the entries "
                        f"({i}, {j}) and ({j}, {i}) differ"
                    )
        n_pairs = X.shape[0] * (X.shape[0] - 1) - holes.nnz
        frequency = (links.nnz + 0.5) / (n_pairs + 1.0)
        values = {"a": 2.0 * frequency, "b": 2.0 * (1.0 - frequency), **values}
        resolved = self._copy(**values, directed=bool(self.directed))
        resolved._hyperpriors = hyperpriors
        return resolved

    def encode(self, X):
        links, holes = _links_and_holes(X, diagonal=False)
        into = (_csr_arrays(links.T), _csr_arrays(holes.T)) if self.directed else None
        out = (_csr_arrays(links), _csr_arrays(holes))
        return read_only({"shape": X.shape, "out": out, "in": into})

    def encode_new(self, X):
        """New nodes: their links to all nodes of `fit`; row i is not node i."""
        links, holes = _links_and_holes(X, diagonal=True)
        out = (_csr_arrays(links), _csr_arrays(holes))
        return read_only({"shape": X.shape, "out": out, "in": None})

    def tables(self, data, n_max):
        """Tables of counts of pairs; all nodes of `fit` and a new one may be in one cluster."""
        n_max = data["shape"][1] + 1
        return read_only(
            {
                "n_max": n_max,
                "gamma_a": log_gamma_table(self.a, n_max**2),
                "gamma_b": log_gamma_table(self.b, n_max**2),
                "gamma_ab": log_gamma_table(self.a + self.b, n_max**2),
            }
        )

    def coordinates(self, X):
        """Nodes by the leading singular directions of their links: nodes that link to the same
        ones are near, whether or not they link to each other."""
        links = _links_and_holes(X, diagonal=False)[0].astype(np.float64)
        return principal(sp.csr_array(sp.hstack([links, links.T])) if self.directed else links)

    def bind(self, data, tables):
        return RelationalModel(data, tables, self.a, self.b, self.directed)

    def cluster_params(self, stats):
        """`link_probabilities`: (n_clusters, n_clusters), from a row's cluster to a column's."""
        n_clusters = len(stats)
        links = stats[:, 1 : 1 + n_clusters]
        pairs = stats[:, 1 + n_clusters :]
        return {"link_probabilities": (self.a + links) / (self.a + self.b + pairs)}

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = (rng.random((10, 10)) < 0.4).astype(np.float64)
        yield cls(a=0.8, b=1.3, directed=True), X
        Y = np.triu(X, 1) + np.triu(X, 1).T
        yield cls(), Y
        Z = np.where(rng.random(Y.shape) < 0.1, np.nan, Y)
        yield cls(b=0.6), Z + Z.T - Y


def _links_and_holes(X, *, diagonal):
    """Where X is 1 and where it is NaN, as boolean CSR arrays; an entry must be 0, 1 or NaN."""
    X = sp.coo_array(X)
    bad = ~((X.data == 0) | (X.data == 1) | np.isnan(X.data))
    if not diagonal:
        bad &= X.row != X.col
    if bad.any():
        at = np.flatnonzero(bad)[0]
        raise ValueError(
            "Relational needs 0, 1 or NaN (unobserved); column "
            f"{X.col[at]} of X holds {X.data[at]:g}"
        )
    parts = []
    for keep in (X.data == 1, np.isnan(X.data)):
        if not diagonal:
            keep = keep & (X.row != X.col)
        entries = (np.ones(keep.sum(), dtype=bool), (X.row[keep], X.col[keep]))
        parts.append(sp.csr_array(entries, shape=X.shape))
    return parts


def _csr_arrays(matrix):
    matrix = matrix.tocsr()
    matrix.sort_indices()
    return matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
