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
from skdpm.mixture.likelihoods.counts.bernoulli import FLAG_PRIOR
from skdpm.mixture.likelihoods.counts.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian
from skdpm.mixture.likelihoods.laws.coordinates import principal
from skdpm.mixture.likelihoods.networks._relational import (
    PREFIX,
    DegreeCorrectedModel,
    RelationalModel,
    apart,
)
from skdpm.networks import LIST_HINT, check_directions, entries, links_and_holes

WEIGHTS = {"counts": NegativeBinomial, "real": Gaussian}


@parameters
class Relational(Likelihood):
    """Infinite relational model: clusters of the nodes of a network.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Relational
    >>> X = np.kron(np.eye(2), np.ones((5, 5))) - np.eye(10)
    >>> model = DPMixture(likelihood=Relational(degree_correction=True), random_state=0)
    >>> model.fit_predict(X).tolist()
    [0, 0, 0, 0, 0, 1, 1, 1, 1, 1]

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
    weights : {"counts", "real"}, NegativeBinomial, Gaussian or None, default=None
        Law of the weights of links in a pair of clusters. An entry of X that is not 0 is then a
        link with this weight. "counts" are 1, 2, ..., one more than `NegativeBinomial()` numbers.
        "real" are `Gaussian()`. Objects may fix parameters. None: links have no weights.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.

    References
    ----------
    Kemp et al. (2006); Herlau, Schmidt & Mørup (2014); Peixoto (2018), Nonparametric weighted
    stochastic block models.
    """

    capabilities = frozenset({"joint"})
    nan_hint = "use degree_correction=False if pairs were not observed"
    accept_sparse = True
    pairwise = True
    text_hint = LIST_HINT
    objects = (("weights", "NegativeBinomial(dispersion=0.5) or Gaussian(mean=0.0)"),)

    a: float | None = None
    b: float | None = None
    directed: bool = False
    degree_correction: bool = False
    degree_concentration: float | None = None
    weights: object = None
    hyperpriors: dict | None = None

    @property
    def _law(self):
        """Law of the links of a pair of clusters: `BINARY` or `COUNTED`."""
        corrected = self.degree_correction
        return COUNTED if isinstance(corrected, (bool, np.bool_)) and corrected else BINARY

    @property
    def _law_of_weights(self):
        """The likelihood of weights, perhaps not resolved; None without weights."""
        return WEIGHTS[self.weights]() if str(self.weights) in WEIGHTS else self.weights

    @property
    def _least(self):
        """What is taken away from weights: counts are 1 or more."""
        return float(isinstance(self._law_of_weights, NegativeBinomial))

    @property
    def hyperparameters(self):
        of_weights = getattr(self._law_of_weights, "hyperparameters", ())
        return (*self._law.hyperparameters, *map(PREFIX.__add__, of_weights))

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
        X, weights = self._parted(X)
        links, holes, self_links = self._law.read(X)
        check_directions("Relational", self.directed, links, holes, *weights)
        n_pairs = X.shape[0] * (X.shape[0] - 1) - holes.nnz
        frequency = (links.sum() + 0.5) / (n_pairs + 1.0)
        first = self._law.start(frequency).items()
        starts = {name: Start(value, FLAG_PRIOR) for name, value in first}
        law = _resolved(self._law_of_weights, self._once(*weights)[2]) if weights else None
        resolved = self._start(starts, weights=law)
        if weights:
            values = {name: getattr(law, name) for name in law.hyperparameters}
            vars(resolved).update(_prefixed(values))
            resolved.learned_priors |= _prefixed(law.learned_priors)
            resolved._n_weights = weights[0].nnz
        resolved._degrees = _degrees(links, self_links, self.directed)
        return resolved

    def _parted(self, X, new=False):
        """Links without weights and, if links have weights, a tuple of these, a CSR array."""
        if self.weights is None:
            return X, ()
        X, _ = entries(X, "Relational", new=new)
        if self._least:
            hint = 'use weights="real" for other numbers'
            check_counts(X, 'Relational(weights="counts")', allow_nan=True, hint=hint)
        counted = new | self.degree_correction | (X.row != X.col)
        weights = sp.csr_array((np.nan_to_num(X.data * counted), (X.row, X.col)), X.shape)
        weights.eliminate_zeros()
        X.data = np.where(np.isnan(X.data), X.data, X.data != 0.0)
        return X, (weights,)

    def _once(self, weights, new=False):
        """Rows, columns and weights, (n, 1), of links: of an undirected one once."""
        listed = sp.coo_array(weights if new or self.directed else sp.triu(weights))
        return listed.row, listed.col, listed.data[:, None] - self._least

    def _encode_weights(self, weights, new):
        """The weights for `LinkModel`, and one more, of no link: new nodes may have none."""
        i, j, values = self._once(weights, new)
        places = sp.csr_array((np.arange(1, len(i) + 1), (i, j)), weights.shape)
        of_selves = np.zeros(weights.shape[0])
        if not new:
            of_selves += places.diagonal()
            places = places - sp.diags_array(of_selves)
        if not (new or self.directed):
            places = places + places.T
        sides = (places, places.T)[: 2 if self.directed and not new else 1]
        values = np.append(values, [[1.0]], axis=0) if new else values
        data = (self.weights.encode_new if new else self.weights.encode)(values)
        return {
            "of_links": tuple(_csr(side).data.astype(np.int32) - 1 for side in sides),
            "of_selves": of_selves.astype(np.int32) - 1,
            "values": data["X"][:, 0],
            "centred": not self._least,
            "data": data,
        }

    def encode_new(self, X):
        """Encode the links of new nodes to all nodes of `fit`; row i is not node i."""
        return self.encode(X, new=True)

    def encode(self, X, *, new=False):
        X, weights = self._parted(X, new)
        links, holes, self_links = self._law.read(X, new=new)
        sides = (
            [(links, holes)] if new or not self.directed else [(links, holes), (links.T, holes.T)]
        )
        out, into = [tuple(map(_csr_arrays, side)) for side in sides] + [None] * (2 - len(sides))
        data = {"shape": X.shape, "out": out, "in": into}
        if weights:
            data["weights"] = self._encode_weights(*weights, new)
        if self_links is not None:
            data["counts"] = tuple(_csr(side[0]).data for side in sides)
            data["self_links"] = self_links
            data["new"] = new
            # A pair of nodes of `fit` is counted in both rows if links are undirected.
            share = 1.0 if new or self.directed else 0.5
            values = share * gammaln(links.data + 1.0), links.indices, links.indptr
            log_multiplicities = sp.csr_array(values, shape=links.shape).sum(axis=1)
            log_multiplicities += gammaln(self_links + 1.0)
            log_multiplicities += 0.0 if self.directed else self_links * np.log(2.0)
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
        if self.weights is not None:
            of_weights = data["weights"]["data"]
            tables["weights"] = self.weights.tables(of_weights, self._n_weights + n_max)
        return read_only({"n_max": n_max, **tables})

    def coordinates(self, X):
        """Coordinates of nodes in the leading singular directions of their links: nodes that link
        to the same nodes are close, whether or not they link to each other."""
        X, weights = self._parted(X)
        links, _, self_links = self._law.read(X)
        links = links.astype(np.float64)
        for links in weights:
            order = np.unique(links.data, return_inverse=True)[1]
            links.data = 0.5 + order / order.max()
        return self._law.points(links, self_links, self.directed)

    def bind(self, data, tables):
        values = (getattr(self, name) for name in self._law.hyperparameters)
        weights = self.weights
        if weights is not None:
            weights = weights.bind(data["weights"]["data"], tables["weights"])
        return self._law.kernel(data, tables, *values, self.directed, weights)

    def at(self, values):
        other, of_weights = super().at(values), apart(values)[1]
        other.weights = self.weights.at(of_weights) if of_weights else self.weights
        return other

    def log_hyperprior(self, values):
        own, of_weights = apart(values)
        priors = apart(self.learned_priors)[0].items()
        total = float(sum(prior.log_density(own[name]) for name, prior in priors))
        return total + (self.weights.log_hyperprior(of_weights) if of_weights else 0.0)

    def draw_hyperparameters(self, rng):
        priors = apart(self.learned_priors)[0].items()
        drawn = {name: float(prior.draw(rng, ())) for name, prior in priors}
        return drawn | _prefixed(self.weights.draw_hyperparameters(rng) if self.weights else {})

    def cluster_params(self, stats):
        """`link_probabilities`, (n_clusters, n_clusters), from the cluster of a row to that of a
        column; with degree correction `link_rates`, between nodes with propensity 1. Of weights
        `weight_means` and, if real, `weight_covariances`."""
        links, pairs, *sums = self._cells(stats)
        params = self._law.posterior_means(self, links, pairs)
        if sums:
            of_weights = self.weights.cluster_params(self._weight_stats(links, *sums))
            params |= {f"weight_{key}": x.reshape(links.shape) for key, x in of_weights.items()}
            params["weight_means"] += self._least
        return params

    @staticmethod
    def _cells(stats):
        """Numbers of links and pairs of cells, and perhaps sums of weights and of squares."""
        return np.split(stats[:, 1:], (stats.shape[1] - 1) // len(stats), axis=1)

    def _weight_stats(self, links, totals, squares):
        """Statistics of the weights of each cell, as the kernel makes them in `put_weights`."""
        n, totals, squares = map(np.ravel, (links, totals, squares))
        means = totals / np.maximum(n, 1.0)
        if not self._least:
            return np.column_stack([n, n, means, np.maximum(squares - totals * means, 0.0)])
        return np.column_stack([n, 0.0 * n, 0.0 * n, totals, n])

    def expected_links(self, stats, labels):
        """Posterior means of all links, times their weights, given the clusters of the nodes: (n,
        n). Propensities of a cluster, over its size, are Dirichlet given X, and independent of
        rates; weights are independent of both."""
        means, *of_weights = self.cluster_params(stats).values()
        means = means * of_weights[0] if of_weights else means
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
        0 and 1, or of weights. Those between two clusters share their parameters."""
        law, labels = self.at(draw["values"]), draw["labels"].astype(np.intp)
        links, pairs, *sums = self._cells(draw["stats"])
        first, second = np.broadcast_arrays(labels[:, None], labels)
        if not self.directed:
            first, second = np.minimum(first, second), np.maximum(first, second)
        chances = rng.beta(law.a + links, law.b + pairs - links)
        drawn = (rng.random(first.shape) < chances[first, second]).astype(np.float64)
        if sums:
            (of_cells,) = law.weights.laws(law._weight_stats(links, *sums), rng).columns
            values = of_cells.take((len(links) * first + second).ravel()).draw(rng)
            drawn *= values.reshape(drawn.shape) + law._least
        if not self.directed:
            drawn = np.triu(drawn) + np.triu(drawn, 1).T
        np.fill_diagonal(drawn, 0.0)
        return drawn


class _Binary:
    """Binary links, with a probability for each pair of clusters."""

    hyperparameters = ("a", "b")
    projective = True
    allow_nan = True
    kernel = RelationalModel

    def read(self, X, new=False):
        """Return links, unobserved pairs, and None in place of links of nodes with themselves."""
        hint = ", or use degree_correction=True for numbers of links"
        return *links_and_holes(X, "Relational", new=new, hint=hint), None

    def start(self, frequency):
        return {"a": 2.0 * frequency, "b": 2.0 * (1.0 - frequency)}

    def table_sizes(self, likelihood, data, n_max):
        a, b, size = likelihood.a, likelihood.b, n_max**2
        return {"gamma_a": (a, size), "gamma_b": (b, size), "gamma_ab": (a + b, size)}

    def points(self, links, self_links, directed):
        return _principal(links, directed)

    def posterior_means(self, likelihood, links, pairs):
        a, b = likelihood.a, likelihood.b
        return {"link_probabilities": (a + links) / (a + b + pairs)}


class _Counted:
    """Numbers of links, with a rate for each pair of clusters and a propensity for each node."""

    hyperparameters = ("a", "b", "degree_concentration")
    projective = False
    allow_nan = False
    kernel = DegreeCorrectedModel

    def read(self, X, new=False):
        """Return numbers of links, unobserved pairs (none) and links of nodes with themselves."""
        links, self_links = _counts(X, new=new)
        return links, sp.csr_array(links.shape, dtype=bool), self_links

    def start(self, frequency):
        return {"a": 2.0 * frequency, "b": 2.0, "degree_concentration": 1.0}

    def table_sizes(self, likelihood, data, n_max):
        return {"gamma_a": (likelihood.a, data["degrees"].sum())}

    def points(self, links, self_links, directed):
        """Directions of nodes after scaling by their numbers of links (Qin & Rohe 2013), because
        the distance of a node from the origin depends on its number of links."""
        degrees = _degrees(links, self_links, directed)
        out, into = ((ends + ends.mean() + 1.0) ** -0.5 for ends in degrees[[0, -1]])
        scaled = sp.csr_array(sp.diags_array(out) @ links @ sp.diags_array(into))
        points = _principal(scaled, directed)
        lengths = np.linalg.norm(points, axis=1, keepdims=True)
        return np.divide(points, lengths, out=np.zeros_like(points), where=lengths > 0.0)

    def posterior_means(self, likelihood, links, pairs):
        return {"link_rates": (likelihood.a + links) / (likelihood.b + pairs)}


BINARY, COUNTED = _Binary(), _Counted()


def _resolved(law, values):
    if not isinstance(law, tuple(WEIGHTS.values())) or getattr(law, "tails", None) is not None:
        raise ValueError(
            'Relational.weights must be "counts", "real", a NegativeBinomial, a Gaussian without '
            f"tails or None, got {law!r}"
        )
    if len(np.unique(values)) < 2:
        raise ValueError(
            "Relational(weights=...) needs links of different weights, but those in X are "
            f"{'all the same' if len(values) else 'none'}; use weights=None or, for a graph G "
            'with weights, X = skdpm.networks.adjacency(G, weight="weight")'
        )
    shape = {"covariance_type": "diag"} if isinstance(law, Gaussian) else {}
    return law._copy(**shape).resolve(values)


def _prefixed(values):
    return {PREFIX + name: value for name, value in values.items()}


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
    """Numbers of ends of links of nodes, (1, n); of links out and in, (2, n), if directed."""
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
