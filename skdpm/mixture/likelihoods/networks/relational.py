# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Relational`, for networks."""

from operator import attrgetter

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from skdpm._core._numerics import log_gamma_table
from skdpm._validation import check_bool, check_counts, check_real, parameters
from skdpm.mixture.likelihoods.contract.base import Likelihood, read_only
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.counts.categorical import PSEUDO_COUNT_PRIOR
from skdpm.mixture.likelihoods.laws.coordinates import principal
from skdpm.mixture.likelihoods.networks._relational import DegreeCorrectedModel, RelationalModel
from skdpm.networks import LIST_HINT, check_directions, entries, links_and_holes


@parameters
class Relational(Likelihood):
    """Infinite relational model: clusters of the nodes of a network.

    Two groups of 40 nodes with hubs. Without degree correction, the groups are divided by numbers
    of links; with it, the groups are found.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Relational
    >>> rng = np.random.default_rng(0)
    >>> group = np.repeat([0, 1], 40)
    >>> propensity = np.tile(np.geomspace(0.3, 5.0, 40), 2)
    >>> rate = np.where(group[:, None] == group, 0.2, 0.02)
    >>> X = np.triu(rng.random(rate.shape) < rate * np.outer(propensity, propensity), 1)
    >>> X = (X | X.T).astype(float)
    >>> model = DPMixture(likelihood=Relational(), random_state=0).fit(X)
    >>> model.n_clusters_
    7
    >>> model.set_params(likelihood=Relational(degree_correction=True)).fit(X).n_clusters_
    2
    >>> bool(np.array_equal(model.labels_ == model.labels_[0], group == 0))
    True

    Links between nodes of two clusters have a common probability with a Beta(a, b) prior. With
    degree correction they have a common rate with a Gamma(a, b) prior, multiplied by a propensity
    of each node. X is the square adjacency matrix of 0 and 1, or of numbers of links with degree
    correction, dense or CSR. NaN marks a pair that was not observed. New nodes are rows of links
    to the nodes of `fit`.

    Parameters
    ----------
    a, b : float or None, default=None
        Pseudo-counts of links and of absent links; with degree correction, of links and of pairs.
        None: learned.
    directed : bool, default=False
        Whether X[i, j] and X[j, i] are two links. If not, X must be symmetric.
    degree_correction : bool, default=False
        Whether nodes of a cluster may differ in their numbers of links.
    degree_concentration : float or None, default=None
        Pseudo-count of the propensities; smaller values mean more uneven numbers of links in a
        cluster. None: learned.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.

    References
    ----------
    Kemp et al. (2006); Herlau, Schmidt & Mørup (2014).
    """

    capabilities = frozenset({"joint"})
    nan_hint = "use degree_correction=False if pairs were not observed"
    accept_sparse = True
    pairwise = True
    text_hint = LIST_HINT

    a: float | None = None
    b: float | None = None
    directed: bool = False
    degree_correction: bool = False
    degree_concentration: float | None = None
    hyperpriors: dict | None = None

    @property
    def _law(self):
        """Law of the links of a pair of clusters: `_Binary` or `_Counted`."""
        corrected = self.degree_correction
        return _Counted if isinstance(corrected, (bool, np.bool_)) and corrected else _Binary

    hyperparameters = property(attrgetter("_law.hyperparameters"))
    projective = property(attrgetter("_law.projective"))
    allow_nan = property(attrgetter("_law.allow_nan"))

    def uninformative(self, X):
        if sp.issparse(X):
            return super().uninformative(X)
        known = ~np.isnan(X)
        np.fill_diagonal(known, False)
        return ~(known.any(axis=0) | known.any(axis=1))

    def resolve(self, X):
        check_bool(self.directed, "Relational.directed")
        check_bool(self.degree_correction, "Relational.degree_correction")
        if self.degree_concentration is not None:  # also without degree correction
            check_real(self.degree_concentration, "Relational.degree_concentration", low=0.0)
        links, holes, self_links = self._law.read(X)
        check_directions(self, links, holes)
        n_pairs = X.shape[0] * (X.shape[0] - 1) - holes.nnz
        frequency = (links.sum() + 0.5) / (n_pairs + 1.0)
        first = self._law.start(frequency).items()
        resolved = self._start({name: Start(value, PSEUDO_COUNT_PRIOR) for name, value in first})
        resolved._degrees = _degrees(links, self_links, self.directed)
        return resolved

    def encode_new(self, X):
        """Encode the links of new nodes to all nodes of `fit`; row i is not node i."""
        return self.encode(X, new=True)

    def encode(self, X, *, new=False):
        links, holes, self_links = self._law.read(X, new=new)
        sides = (
            [(links, holes)] if new or not self.directed else [(links, holes), (links.T, holes.T)]
        )
        out, into = [tuple(map(_csr_arrays, side)) for side in sides] + [None] * (2 - len(sides))
        data = {"shape": X.shape, "out": out, "in": into}
        if self_links is not None:
            data["counts"] = tuple(_csr(side[0]).data for side in sides)
            data["self_links"] = self_links
            data["new"] = new
            # A pair of nodes of `fit` is counted in both rows if links are undirected.
            in_two_rows = not (new or self.directed)
            values = gammaln(links.data + 1.0), links.indices, links.indptr
            log_multiplicities = sp.csr_array(values, shape=links.shape).sum(axis=1)
            log_multiplicities *= 0.5 if in_two_rows else 1.0
            log_multiplicities += gammaln(self_links + 1.0)
            if not self.directed:
                log_multiplicities += self_links * np.log(2.0)
            data["log_constants"] = -log_multiplicities
            data["degrees"] = self._degrees if new else _degrees(links, self_links, self.directed)
        return read_only(data)

    def tables(self, data, n_max):
        """Tables for counts of pairs. One cluster may hold all nodes of `fit` and a new one."""
        n_max = data["shape"][1] + 1
        tables = {
            name: log_gamma_table(shift, size)
            for name, (shift, size) in self._law.table_sizes(self, data, n_max).items()
        }
        return read_only({"n_max": n_max, **tables})

    def coordinates(self, X):
        """Coordinates of nodes in the leading singular directions of their links: nodes that link
        to the same nodes are close, whether or not they link to each other."""
        links, _, self_links = self._law.read(X)
        return self._law.points(links.astype(np.float64), self_links, self.directed)

    def bind(self, data, tables):
        values = (getattr(self, name) for name in self.hyperparameters)
        return self._law.kernel(data, tables, *values, self.directed)

    def cluster_params(self, stats):
        """`link_probabilities`, (n_clusters, n_clusters), from the cluster of a row to that of a
        column; with degree correction `link_rates`, between nodes with propensity 1."""
        n_clusters = len(stats)
        links = stats[:, 1 : 1 + n_clusters]
        pairs = stats[:, 1 + n_clusters :]
        return self._law.posterior_means(self, links, pairs)

    def expected_links(self, stats, labels):
        """Posterior means of all links given the clusters of the nodes: (n, n). Propensities of a
        cluster, over its size, are Dirichlet given X, and independent of rates."""
        (means,) = self.cluster_params(stats).values()
        means = means[labels][:, labels]
        if not self.degree_correction:
            np.fill_diagonal(means, 0.0)
            return means
        # Pseudo-counts of the nodes, for each kind of ends of links, and of their clusters.
        alpha = self.degree_concentration + self._degrees
        total = np.array([np.bincount(labels, ends) for ends in alpha])[:, labels]
        shares = np.bincount(labels)[labels] * alpha / total
        means *= np.outer(shares[0], shares[-1])
        if not self.directed:  # the propensities of two nodes of a cluster depend on each other
            together = labels[:, None] == labels
            means *= np.where(together, (total / (total + 1.0)).T, 1.0)
            means[np.diag_indices_from(means)] *= 0.5 * (1.0 + 1.0 / alpha[0])
        return means

    def draw_links(self, draw, rng):
        """Draw links of all pairs given a draw of clusters, without degree correction: (n, n) of
        0 and 1. Those between two clusters share their probability."""
        law, labels = self.at(draw["values"]), draw["labels"].astype(np.intp)
        _, links, pairs = np.split(draw["stats"], [1, 1 + len(draw["stats"])], axis=1)
        chances = rng.beta(law.a + links, law.b + pairs - links)
        uniform = rng.random((len(labels), len(labels)))
        if not self.directed:
            chances, uniform = (np.triu(M) + np.triu(M, 1).T for M in (chances, uniform))
        drawn = (uniform < chances[labels][:, labels]).astype(np.float64)
        np.fill_diagonal(drawn, 0.0)
        return drawn


class _Binary:
    """Binary links, with a probability for each pair of clusters."""

    hyperparameters = ("a", "b")
    projective = True
    allow_nan = True
    kernel = RelationalModel

    @staticmethod
    def read(X, new=False):
        """Return links, unobserved pairs, and None in place of links of nodes with themselves."""
        hint = ", or use degree_correction=True for numbers of links"
        return *links_and_holes(X, "Relational", new=new, hint=hint), None

    @staticmethod
    def start(frequency):
        return {"a": 2.0 * frequency, "b": 2.0 * (1.0 - frequency)}

    @staticmethod
    def table_sizes(likelihood, data, n_max):
        a, b, size = likelihood.a, likelihood.b, n_max**2
        return {"gamma_a": (a, size), "gamma_b": (b, size), "gamma_ab": (a + b, size)}

    @staticmethod
    def points(links, self_links, directed):
        return _principal(links, directed)

    @staticmethod
    def posterior_means(likelihood, links, pairs):
        a, b = likelihood.a, likelihood.b
        return {"link_probabilities": (a + links) / (a + b + pairs)}


class _Counted:
    """Numbers of links, with a rate for each pair of clusters and a propensity for each node."""

    hyperparameters = ("a", "b", "degree_concentration")
    projective = False
    allow_nan = False
    kernel = DegreeCorrectedModel

    @staticmethod
    def read(X, new=False):
        """Return numbers of links, unobserved pairs (none) and links of nodes with themselves."""
        links, self_links = _counts(X, new=new)
        return links, sp.csr_array(links.shape, dtype=bool), self_links

    @staticmethod
    def start(frequency):
        return {"a": 2.0 * frequency, "b": 2.0, "degree_concentration": 1.0}

    @staticmethod
    def table_sizes(likelihood, data, n_max):
        return {"gamma_a": (likelihood.a, data["degrees"].sum())}

    @staticmethod
    def points(links, self_links, directed):
        """Directions of nodes after scaling by their numbers of links (Qin & Rohe 2013), because
        the distance of a node from the origin depends on its number of links."""
        degrees = _degrees(links, self_links, directed)
        out, into = ((ends + ends.mean() + 1.0) ** -0.5 for ends in degrees[[0, -1]])
        points = _principal(
            sp.csr_array(sp.diags_array(out) @ links @ sp.diags_array(into)), directed
        )
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0.0)

    @staticmethod
    def posterior_means(likelihood, links, pairs):
        return {"link_rates": (likelihood.a + links) / (likelihood.b + pairs)}


def _principal(links, directed):
    return principal(sp.csr_array(sp.hstack([links, links.T])) if directed else links)


def _counts(X, *, new):
    """Numbers of links between different nodes, a CSR array without zeros, and of nodes with
    themselves, 0 for new nodes."""
    X, way = entries(X, "Relational", new=new)
    hint = Relational.nan_hint if np.isnan(X.data).any() else way
    check_counts(X, "Relational(degree_correction=True)", hint=hint)
    apart = (X.data > 0.0) & (new | (X.row != X.col))
    links = sp.csr_array((X.data[apart], (X.row[apart], X.col[apart])), shape=X.shape)
    return links, np.zeros(X.shape[0]) if new else X.diagonal()


def _degrees(links, self_links, directed):
    """Numbers of ends of links of each node, (1, n); of outgoing and incoming links, (2, n), if
    directed."""
    if self_links is None:
        return None
    if directed:
        return np.array([links.sum(axis=1) + self_links, links.sum(axis=0) + self_links])
    return (links.sum(axis=1) + 2.0 * self_links)[None]


def _csr(matrix):
    matrix = matrix.tocsr()
    matrix.sort_indices()
    return matrix


def _csr_arrays(matrix):
    matrix = _csr(matrix)
    return matrix.indptr.astype(np.int32), matrix.indices.astype(np.int32)
