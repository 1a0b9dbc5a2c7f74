# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `VonMisesFisher`."""

from functools import partial

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, softmax

from skdpm._validation import WORDS_HINT, check_finite, check_real, parameters
from skdpm.hyperpriors import Gamma, Shifted
from skdpm.mixture.likelihoods.contract.base import (
    Likelihood,
    bounds,
    j_divergences,
    read_only,
    readable,
)
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.directions._von_mises_fisher import (
    MOST_CONCENTRATED,
    ParametricVonMisesFisher,
    VonMisesFisherModel,
    draw_directions,
    grid,
    interpolation,
    log_hypergeometric,
    unit_entries,
    unit_rows,
)
from skdpm.mixture.likelihoods.laws.laws import drawn_places
from skdpm.mixture.likelihoods.laws.means import ColumnMeans

# In units of the number of columns.
CONCENTRATION_PRIOR = Gamma(1.0, 1.0)
SPREAD_PRIOR = Gamma(2.0, 1.0)
FIRST_SPREAD = 2.5
# Beyond these, angles have no digits.
CHECKS = {
    "concentration": partial(check_real, low=0.0, high=MOST_CONCENTRATED),
    "spread": partial(check_real, low=0.0, high=20.0),
}


class Directions(np.ndarray):
    """Result of `VonMisesFisher.condense`: rows of unit length."""


@parameters
class VonMisesFisher(Likelihood):
    """Directions of rows, with a von Mises-Fisher law in each cluster.

    Rows, dense or CSR, are scaled to unit length. A row of zeros, or of NaN in all columns, says
    nothing. The law of a cluster has a mean direction, which is uniform on the sphere, and a
    concentration κ: the density is proportional to exp(κ cos φ), with the angle φ to the mean
    direction. Embeddings are examples. tf-idf vectors of texts are, too, but `Multinomial` mostly
    finds subjects better, from counts of words.

    Parameters
    ----------
    concentration : float or None, default=None
        Typical concentration of clusters: the geometric middle of a grid. None: learned.
    spread : float or None, default=None
        Range of the concentrations: the largest of the grid is exp(spread) times the middle, the
        smallest exp(-spread) times. None: learned.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.

    References
    ----------
    Banerjee, Dhillon, Ghosh & Sra (2005); Gopal & Yang (2014).
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    hyperparameters = ("concentration", "spread")
    accept_sparse = True
    reads_directions = True
    text_hint = WORDS_HINT
    allow_nan = True
    nan_hint = "VonMisesFisher needs all columns: set all of the row to NaN, or impute the entries"

    concentration: float | None = None
    spread: float | None = None
    hyperpriors: dict | None = None

    def suits_blocks(self, n_samples, n_features):
        return n_samples >= 20_000

    def check_entries(self, X, gaps=False):
        check_finite(_complete(X), allow_nan=False, hint=self.nan_hint)

    def needs_laws(self, X):
        return np.isnan(_complete(X)).any(axis=1) if not sp.issparse(X) else super().needs_laws(X)

    def summarise(self, X):
        """Number of columns."""
        return {"n_features": X.shape[1]}

    def merge_summaries(self, first, second):
        return first

    def resolve_summary(self, summary):
        n_features = summary["n_features"]
        if n_features < 2:
            raise ValueError(
                "VonMisesFisher needs at least two columns, because a single column has only the "
                "directions + and -; of angles or hours pass cosines and sines, else use Gaussian"
            )
        prior = Shifted(CONCENTRATION_PRIOR, 0.0, n_features)
        concentration = Start(float(n_features), prior, CHECKS["concentration"])
        spread = Start(FIRST_SPREAD, SPREAD_PRIOR, CHECKS["spread"])
        resolved = self._start({"concentration": concentration, "spread": spread})
        resolved._n_features = n_features
        return resolved

    def encode(self, X):
        return read_only({**_unit(X), "log_constants": self.log_constants(X)})

    def tables(self, data, n_max):
        polynomials = interpolation(0.5 * data["n_features"] - 1.0)
        return read_only({"n_max": bounds(n_max)[0], "polynomials": polynomials})

    def bind(self, data, tables):
        return VonMisesFisherModel(data, tables, self.concentration, self.spread)

    def condense(self, X):
        return None if sp.issparse(X) else unit_rows(_complete(X)).view(Directions)

    def parametric(self, X):
        return ParametricVonMisesFisher(_unit(X), X.shape[0], self.concentration, self.spread)

    def log_constants(self, X):
        return np.where(_has_direction(X), -log_area(X.shape[1]), 0.0)

    def uninformative(self, X):
        return ~_has_direction(X)

    def divergences(self, params):
        naturals = params[:, 1:]
        kappa = np.linalg.norm(naturals, axis=1)
        ratios = _mean_cosine(kappa, naturals.shape[1]) / kappa
        return j_divergences(naturals * ratios[:, None], naturals)

    def _grid(self):
        """The concentrations of the grid: (n_points,)."""
        return grid(self.concentration, self.spread)

    def _posterior(self, stats):
        """Mean directions (n_clusters, n_features), lengths of the sums of rows (n_clusters,), and
        probabilities of the points of the grid, (n_clusters, n_points)."""
        nu = 0.5 * self._n_features - 1.0
        points = self._grid()
        sums, n_directed = stats[:, 1:-1], stats[:, 0] - stats[:, -1]
        lengths = np.linalg.norm(sums, axis=1)
        log_p = log_hypergeometric(np.multiply.outer(lengths, points), nu)
        log_p -= np.multiply.outer(n_directed, log_hypergeometric(points, nu))
        directions = np.zeros((len(stats), self._n_features))
        directions[:, 0] = lengths == 0.0  # any direction, whose weight is then 0
        np.divide(sums, lengths[:, None], out=directions, where=lengths[:, None] > 0.0)
        return directions, lengths, softmax(log_p, axis=1)

    def cluster_params(self, stats):
        """`mean_directions`, (n_clusters, n_features), of unit length, and posterior means of the
        `concentrations`, (n_clusters,)."""
        directions, _, p = self._posterior(stats)
        return {"mean_directions": directions, "concentrations": p @ self._grid()}

    def draw(self, stats, rng):
        directions, concentrations = self._draw_params(stats, rng)
        return draw_directions(directions, concentrations, rng.bit_generator)

    def _draw_params(self, stats, rng):
        """Mean directions and concentrations of clusters from their posterior."""
        directions, lengths, p = self._posterior(stats)
        kappa = self._grid()[drawn_places(p, rng)]
        return draw_directions(directions, kappa * lengths, rng.bit_generator), kappa

    def column_means(self, stats, n_draws=None, rng=None):
        """Means of the columns of rows of unit length."""
        if n_draws is None:
            directions, lengths, p = self._posterior(stats)
            points = self._grid()
            cosines = _mean_cosine(np.multiply.outer(lengths, points), self._n_features)
            cosines = (p * cosines) @ _mean_cosine(points, self._n_features)
            means = directions * cosines[:, None]
        else:
            directions, kappa = self._draw_params(np.tile(stats, (n_draws, 1)), rng)
            means = directions * _mean_cosine(kappa, self._n_features)[:, None]
            means = means.reshape(n_draws, len(stats), -1)
        return ColumnMeans.of_columns("number", np.split(means, self._n_features, axis=-1))

    def scaled(self, X):
        data = _unit(X)
        if not sp.issparse(X):
            return data["X"]
        return sp.csr_array((data["entries"], data["indices"], data["indptr"]), shape=X.shape)

    def coordinates(self, X):
        return None if sp.issparse(X) else unit_rows(_complete(X))

    def background(self, X):
        return Sphere(X.shape[1])


class Sphere:
    """Law of a row that is noise, uniform on the sphere. It has the interface of `Background`."""

    def __init__(self, n_features):
        self.n_features = n_features

    def log_density(self, X, new=False):
        """log density of rows: (n_rows,)."""
        return np.where(_has_direction(X), -log_area(self.n_features), 0.0)

    def column(self, d):
        """None: no column has a law that does not depend on the others."""

    def draw(self, n_rows, rng):
        """Draw rows: (n_rows, n_features)."""
        X = rng.normal(size=(n_rows, self.n_features))
        return X / np.linalg.norm(X, axis=1, keepdims=True)


def log_area(n_features):
    """log of the area of the unit sphere."""
    return np.log(2.0) + 0.5 * n_features * np.log(np.pi) - gammaln(0.5 * n_features)


def _mean_cosine(kappa, n_features):
    """Mean cosine of the angle to the mean direction, I_{D/2}(kappa) / I_{D/2-1}(kappa)."""
    nu = 0.5 * n_features - 1.0
    log_ratio = log_hypergeometric(kappa, nu + 1.0) - log_hypergeometric(kappa, nu)
    return kappa / n_features * np.exp(log_ratio)


def _unit(X):
    """Rows scaled to unit length as data of the kernel."""
    data = {"X": None, "n_features": X.shape[1]}
    if not sp.issparse(X):
        if isinstance(X, Directions):
            return {**data, "X": np.asarray(X)}
        return {**data, "X": unit_rows(_complete(X))}
    if not X.has_canonical_format:
        X = sp.csr_array(X, copy=True)
        X.sum_duplicates()
    indptr = np.ascontiguousarray(X.indptr, dtype=np.intp)
    entries = unit_entries(indptr, np.ascontiguousarray(X.data, dtype=np.float64))
    indices = np.ascontiguousarray(X.indices, dtype=np.int32)
    return {**data, "indptr": indptr, "indices": indices, "entries": entries}


def _complete(X):
    """X with zeros in place of rows of NaN, dense rows in a dtype that kernels read."""
    if sp.issparse(X):
        return X
    X = readable(X)
    nothing = np.isnan(X[:, 0])  # of few rows, if any, the other columns are looked at
    nothing[nothing] = np.isnan(X[nothing]).all(axis=1)
    return np.where(nothing[:, None], 0.0, X) if nothing.any() else X


def _has_direction(X):
    """Whether each row has an entry other than 0: ndarray of bool."""
    if sp.issparse(X):
        return np.bincount(X.nonzero()[0], minlength=X.shape[0]) > 0
    return _complete(X).any(axis=1)
