# SPDX-License-Identifier: BSD-3-Clause
"""Covariance structures of `Gaussian`: one class each, and its kernel.

A new structure is a subclass of `Covariance`, listed in `COVARIANCES`, with kernels for clusters
and for drawn parameters. Methods take the resolved likelihood as `g`, with the parameters `mean`,
`mean_precision`, `df` and `scale`. Rows and statistics are relative to `g._origin`.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc, gammainccinv, gammaln, multigammaln

from skdpm.hyperpriors import Gamma, Shifted, wishart_root
from skdpm.mixture.likelihoods.elliptical._columns import (
    DiagonalModel,
    ParametricGaussianDiag,
    SphericalModel,
)
from skdpm.mixture.likelihoods.elliptical._full import FullModel, ParametricGaussian
from skdpm.mixture.likelihoods.elliptical._hyper import log_norm_table
from skdpm.mixture.likelihoods.elliptical._sparse import (
    ParametricGaussianSparse,
    SparseModel,
    padded,
)
from skdpm.mixture.likelihoods.elliptical._tied import (
    ParametricGaussianTied,
    TiedModel,
    shared_scatter,
    whitened,
)
from skdpm.mixture.likelihoods.gaussian.families import parents_of
from skdpm.mixture.likelihoods.laws.laws import (
    IndependentLaws,
    MatrixLaws,
    MixedLaws,
    ScaledLaws,
    Student,
    factors,
)

# scale / k above a floor, in units of the variance of a column, ~ Gamma(S_SHAPE, S_RATE).
S_SHAPE, S_RATE = 0.5, 1.0
# Share of the variance of a column that is expected inside a cluster at the start of chains.
WITHIN = 0.5
# Smallest learned scale / k, as a share of v.
SMALLEST_SHARE = 1e-16
# The same per row under full covariances. Rows of a cluster may lie in a plane, and the scale must
# be larger than the rounding errors of their scatter.
SMALLEST_PER_ROW = 2.0**-48
# The same if chains draw missing entries: those of a few rows may otherwise follow each other to a
# cluster that is too narrow for doubles.
SMALLEST_WITH_GAPS = 1e-8
# Smallest probability of a tail that inverse functions take.
TINY = 1e-290
# Largest length of a table over numbers of rows: kernels compute the values beyond its end.
MOST_TABLED = 2**20
# Degrees of freedom that represent a known variance.
KNOWN = 1e6


@dataclass(frozen=True)
class Normal:
    """Hyperprior of a vector of independent normal entries, each of its own mean and variance."""

    mean: np.ndarray
    variance: np.ndarray

    def draw(self, rng, shape=()):
        """Draw a vector of the shape of `mean`."""
        return rng.normal(self.mean, np.sqrt(self.variance))

    def log_density(self, value):
        """Natural logarithm of the density of the vector."""
        squares = (np.asarray(value) - self.mean) ** 2 / self.variance
        return float(-0.5 * np.sum(squares + np.log(2.0 * np.pi * self.variance)))


@dataclass(frozen=True)
class InverseWishart:
    """Law of a covariance matrix: Sigma ~ IW(df, scale)."""

    df: float
    scale: np.ndarray

    def draw(self, rng):
        """Draw a matrix of the shape of `scale`."""
        root = drawn_root(self.df, np.linalg.cholesky(self.scale), rng)
        return root @ root.T


@dataclass(frozen=True)
class HierarchicalInverseWishart:
    """Hyperprior of a covariance matrix: Sigma ~ IW(df, diag(t)), t_d ~ Gamma(S_SHAPE, rate_d)
    above low_d (Huang & Wand, 2013). So the prior follows the variance of a column given the
    others, which may be far below its own. Densities integrate t out; laws given rows draw it."""

    df: float
    rate: np.ndarray
    low: np.ndarray

    def draw(self, rng, shape=()):
        """Draw a matrix of shape (n_features, n_features)."""
        return self._given_scale(S_SHAPE, self.rate, rng).draw(rng)

    def log_density(self, value):
        """Natural logarithm of the density of a matrix."""
        n, half = len(self.low), 0.5 * self.df
        rate = self.rate + _half_precisions(value)
        by_column = _log_upper_gamma(S_SHAPE + half, rate, self.low)
        by_column -= _log_upper_gamma(S_SHAPE, self.rate, self.low)
        return float(
            by_column.sum()
            - half * n * np.log(2.0)
            - 0.5 * (self.df + n + 1.0) * np.linalg.slogdet(value)[1]
            - multigammaln(half, n)
        )

    def given(self, value, n, scatter, rng):
        """`InverseWishart` given n rows of known mean and scatter, and t given the matrix."""
        rate = self.rate + _half_precisions(value)
        law = self._given_scale(S_SHAPE + 0.5 * self.df, rate, rng)
        return InverseWishart(law.df + n, law.scale + scatter)

    def _given_scale(self, shape, rate, rng):
        """The law given t ~ Gamma(shape, rate) above low. A tail that is no double, which only a
        constant column of many rows has, counts as exponential."""
        above = gammaincc(shape, rate * self.low)
        excess = rng.exponential(size=len(rate))
        t = gammainccinv(shape, above * np.exp(-excess)) / rate
        t = np.where(above > TINY, t, self.low + excess / rate)
        return InverseWishart(self.df, np.diag(t))


@dataclass(frozen=True)
class ScaleMatrix(Shifted):
    """Hyperprior of a matrix Lambda: correlations and variances / unit are of a family `LKJ`. With
    Lambda = A diag(t) A', where A is triangular with ones on its diagonal, all t are above the
    limits `low`: the density is that of the family there, without its normalising constant.

    - `free`: (n_features,). Columns that may be correlated with others.
    """

    free: np.ndarray | None = None

    def draw(self, rng, shape=()):
        """Draw a matrix of the shape of Lambda."""
        matrix = np.zeros((len(self.free), len(self.free)))
        free = np.flatnonzero(self.free)
        while True:
            variances = self.unit * self.family.variances.draw(rng, len(matrix))
            matrix[np.ix_(free, free)] = self.family.draw_correlations(len(free), rng)
            matrix[np.diag_indices(len(matrix))] = 1.0
            matrix *= np.sqrt(variances[:, None] * variances)
            if self.supports(matrix):
                return matrix

    def supports(self, matrix):
        """Whether all t are above their limits."""
        try:
            factor = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            return False
        return bool((np.diagonal(factor) ** 2 > self.low).all())

    def log_density(self, value):
        """Natural logarithm of the density of a matrix, with respect to its free entries."""
        if not self.supports(value):
            return -np.inf
        variances = np.diagonal(value)
        total = np.sum(self.family.variances.log_density(variances / self.unit))
        total -= np.log(self.unit).sum()
        free = np.flatnonzero(self.free)
        roots = np.sqrt(variances[free])
        if len(free) < 2:
            return float(total)
        total += self.family.log_density_correlations(
            value[np.ix_(free, free)] / roots / roots[:, None]
        )
        return float(total - (len(free) - 1.0) * np.log(roots).sum())

    @property
    def n_entries(self):
        """Number of free entries of a matrix."""
        n_free = np.count_nonzero(self.free)
        return len(self.free) + n_free * (n_free - 1) // 2


def _half_precisions(value):
    """Half of the diagonal of the inverse of a covariance matrix."""
    roots = np.sqrt(np.diagonal(value))
    return 0.5 * np.diagonal(np.linalg.inv(value / roots / roots[:, None])) / roots**2


def _log_upper_gamma(shape, rate, low):
    """log of the integral of t^(shape - 1) exp(-rate t) over t above low."""
    above = gammaincc(shape, rate * low)
    tail = (shape - 1.0) * np.log(low) - rate * low - np.log(rate)
    log_above = np.log(np.maximum(above, TINY)) + gammaln(shape) - shape * np.log(rate)
    return np.where(above > TINY, log_above, tail)


def drawn_root(df, factor, rng):
    """Draw R with R R' ~ IW(df, S), from a Cholesky factor of S (Bartlett, for the inverse)."""
    # (scipy.linalg.solve_triangular starts threads, which take milliseconds for any matrix.)
    return np.linalg.solve(wishart_root(df, len(factor), rng), factor.T).T


class Covariance:
    """Base class of covariance structures.

    - `start`: float. Initial value of k = df - `low`.
    - `learns_df`: bool. Whether `df` is learned. Otherwise None means the initial value.
    - `correlates`: bool. Whether columns may be correlated in a cluster. If not, missing entries
      are integrated out of all densities; else chains draw them.
    - `takes`: Besides rows: "gaps" (missing entries), "tails", "blocks" (drawn parameters).
    - `model`: Kernel of clusters. `name`: `covariance_type`, if matrices are refused as `scale`.
    - `families(n_parents, summary)`: Attributes of the resolved likelihood that follow from rows.
    - `tables(g, data, n_tabled, missing)`: Its tables besides `n_max`, `origin`, `spread` and
      `floor`: dict.
    - `parametric(g, rows)`: Kernel of drawn parameters, for rows minus the origin.
    - `cluster_params(g, stats)`, `column_posterior(g, stats, column)`: See `Gaussian`.
    - `laws_given(g, stats, rng, weights)`: Laws of a row with each of these weights: list.
    """

    start = 4.0
    learns_df = True
    correlates = False
    takes = frozenset({"gaps", "tails", "blocks"})

    def low(self, n_features):
        """Largest number that `df` must exceed."""
        return 0.0

    def families(self, n_parents, summary):
        return {}

    def pooled(self, variances, varies):
        """Variances of the columns for the hyperpriors: ndarray of shape (n_features,). `varies`
        shows which columns have two different values."""
        return variances

    def check_scale(self, value, n_features):
        """Check the parameter `scale`, an array: a diagonal of shape (n_features,)."""
        if value.ndim > 1:
            words = f'must be a number or a vector with covariance_type="{self.name}"'
            raise ValueError(f"Gaussian.scale {words}")
        vector = as_vector(value, n_features, "Gaussian.scale")
        if not (vector > 0).all():
            raise ValueError(f"Gaussian.scale must be positive, got {value!r}")
        return vector

    def learn_scale(self, variances, varies, n_rows, df, smallest=SMALLEST_SHARE, family=None):
        """Initial value of a learned scale, its hyperprior, and its floor.

        - `variances`, `varies`, `n_rows`: (n_features,). Variance of each column, whether it has
          two different values, and the number of its entries.
        - `df`: float
        - `smallest`: float. Smallest scale / k, in units of the variances.
        - `family`: `LKJ` if a full covariance has correlated columns a priori.
        """
        k = df - self.low(len(variances))
        smallest = smallest * variances
        # In a constant column large clusters must not be narrower than small ones.
        floor = np.where(varies, 0.0, WITHIN * variances)
        to_mean = k - 2.0 if k > 2.0 else 1.0
        start = WITHIN * variances * to_mean + k * smallest + floor
        return start, Shifted(Gamma(S_SHAPE, S_RATE), smallest, variances), floor

    def scale_to_share(self, g, values):
        """The function of `scale` to which its hyperprior applies, and the log of the Jacobian.
        `values` holds `scale`, and `df` if that is learned."""
        floor, k = self._floor_and_k(g, values)
        scale = np.asarray(values["scale"])
        n_entries = getattr(g.learned_priors["scale"], "n_entries", scale.size)
        return (scale - floor) / k, -n_entries * np.log(k)

    def share_to_scale(self, g, values):
        """The inverse of `scale_to_share`."""
        floor, k = self._floor_and_k(g, values)
        return floor + k * values["scale"]

    def _floor_and_k(self, g, values):
        floor = np.diag(g._floor) if np.ndim(values["scale"]) == 2 else g._floor
        return floor, values.get("df", g.df) - self.low(len(g.mean))

    def variances(self, g):
        """Squared units of the columns, from the scale."""
        return g.scale

    def bind(self, g, data, tables):
        """The kernel of clusters."""
        law = g._law_of_weights
        weights = () if law is None else (law, np.array(g._tail_values))
        return self.model(
            data, tables, g.mean, g.mean_precision, self.df(g), np.asarray(g.scale), *weights
        )

    def df(self, g):
        """The number that kernels have for `df`."""
        return g.df

    def integrated(self, g, values, stats):
        """See `Likelihood.integrated`: covariances of clusters are no hyperparameters."""
        return values

    def divergences(self, g, params):
        """See `Likelihood.divergences`. Parameters of a column are w, w mu and log w."""
        w, center, log_w = np.split(params[:, 1:], 3, axis=1)
        means = center / w
        out = np.empty((len(params), len(params)))
        for k in range(len(params)):
            ratio = np.exp(2.0 * (log_w[k] - log_w))
            gap = (w[k] * (means - means[k])) ** 2
            out[k] = 0.5 * (ratio + gap - 1.0).sum(axis=1)
        return out + out.T

    def draw_rows(self, g, stats, clusters, rng):
        """See `Likelihood.draw_rows`; of the columns of g."""
        nothing = np.full((len(clusters), len(g.mean)), np.nan)
        return self.laws(g, stats, None).fill(nothing, clusters, rng)

    def laws(self, g, stats, rng):
        """See `Likelihood.laws`."""
        if g._law_of_weights is None:
            return self.laws_given(g, stats, rng, np.ones(1))[0]
        log_probabilities, weights = g._law_of_weights.weights(g._tail_values)
        log_weights = np.tile(log_probabilities, (len(stats), 1))
        return MixedLaws(log_weights, self.laws_given(g, stats, rng, weights))


class ByColumn(Covariance):
    """Base class of structures whose statistics are counts, means and sums of squares of columns.

    - `posterior(g, stats)`: Means, scales, degrees of freedom and mean_precision + n of the
      clusters' posteriors: (n_clusters, n_features) each.
    - `n_variances`: Number of variances of a cluster. None: one for each column.
    """

    n_variances = None

    def parametric(self, g, rows):
        return ParametricGaussianDiag(
            rows,
            g.mean - g._origin,
            np.atleast_1d(g.scale),
            g.mean_precision,
            g.df,
            g._fitted_missing,
        )

    def moments(self, g, stats):
        """Posterior means, sums of squares about the prior mean, counts and mean_precision + n,
        or the sum of weights for n: (n_clusters, n_features) each."""
        law = g._law_of_weights
        if law is None:
            n, center, scatter = np.split(stats[:, 1:], 3, axis=1)
            mass = n
        else:
            weights = law.log_law(g._tail_values)[1]
            n, mass, center, scatter = law.moments_by_column(stats, len(g.mean), weights)
        rho = g.mean_precision + mass
        gap = center - (g.mean - g._origin)
        squares = scatter + g.mean_precision * mass / rho * gap**2
        return g.mean + mass / rho * gap, squares, n, rho

    def cluster_params(self, g, stats):
        means, scales, df, _ = self.posterior(g, stats)
        return {"means": means, "covariances": scales / np.where(df > 2.0, df - 2.0, df + 2.0)}

    def column_posterior(self, g, stats, column):
        means, scales, df, rho = (each[:, column] for each in self.posterior(g, stats))
        return means, rho, df, scales, 0.0

    def laws_given(self, g, stats, rng, weights):
        means, scales, df, rho = self.posterior(g, stats)
        if rng is None:
            return [
                self.student(means, np.sqrt(scales * (rho + w) / (rho * df * w)), df)
                for w in weights
            ]
        spread = np.sqrt(scales / rng.chisquare(df[:, : self.n_variances]))
        means = means + spread / np.sqrt(rho) * rng.standard_normal(means.shape)
        df = np.full_like(df, np.inf)
        return [ByColumn.student(self, means, spread / np.sqrt(w), df) for w in weights]

    def student(self, means, spread, df):
        """Laws of rows that are Student in every column, here independent."""
        return IndependentLaws(
            [Student(*column) for column in zip(means.T, spread.T, df.T, strict=True)]
        )


class Diagonal(ByColumn):
    """A variance for each column of each cluster."""

    name = "diag"
    model = DiagonalModel

    def tables(self, g, data, n_tabled, missing):
        if g.weighs_rows:
            return {"missing": missing}
        log_scale = np.log(g.scale)[None]
        if missing:
            log_scale = np.where(np.isnan(data["X"]), 0.0, log_scale)
        return {
            "missing": missing,
            "log_norms": log_norm_table(n_tabled, g.mean_precision, g.df, 1.0),
            "log_scale": np.broadcast_to(log_scale.sum(axis=1), len(data["X"])).copy(),
        }

    def posterior(self, g, stats):
        means, squares, n, rho = self.moments(g, stats)
        return means, g.scale + squares, g.df + n, rho


class Spherical(ByColumn):
    """One variance for each cluster, the same in every column."""

    model = SphericalModel
    n_variances = 1

    def pooled(self, variances, varies):
        pooled = variances[varies].mean() if varies.any() else variances.mean()
        return np.full(len(variances), pooled)

    def check_scale(self, value, n_features):
        if np.ndim(value) > 0:
            raise ValueError('Gaussian.scale must be a number with covariance_type="spherical"')
        return super().check_scale(value, 1)[0]

    def learn_scale(self, variances, varies, n_rows, df, smallest=SMALLEST_SHARE, family=None):
        start, law, floor = super().learn_scale(variances[:1], varies.any(), n_rows, df, smallest)
        return start[0], Shifted(law.family, law.low[0], law.unit[0]), floor[0]

    def variances(self, g):
        return np.full(len(g.mean), g.scale)

    def tables(self, g, data, n_tabled, missing):
        return {"missing": missing}

    def posterior(self, g, stats):
        means, squares, n, rho = self.moments(g, stats)
        scales = g.scale + squares.sum(axis=1, keepdims=True)
        df = g.df + n.sum(axis=1, keepdims=True)
        return means, scales + 0.0 * means, df + 0.0 * means, rho

    def student(self, means, spread, df):
        return ScaledLaws(means, spread, df[:, 0])


class Matrix(Covariance):
    """Base class of structures whose statistics are counts, means and scatter matrices.

    - `combination_posterior(g, stats, weights, constant)`: `column_posterior` of a linear
      combination of the columns.
    - `scales_given(g, stats, rng)`: Posterior means of the clusters, mean_precision + mass, roots
      of scale matrices, degrees of freedom of rows, and what the matrices are divided by. With
      `rng`, roots of drawn covariances.
    """

    start = 3.0
    correlates = True

    def low(self, n_features):
        return n_features - 1.0

    def check_scale(self, value, n_features):
        if np.ndim(value) < 2:
            return super().check_scale(value, n_features)
        shape = (n_features, n_features)
        if value.shape != shape or not np.isfinite(value).all():
            raise ValueError(f"Gaussian.scale must be finite, of shape {shape}")
        if not np.allclose(value, value.T):
            raise ValueError("Gaussian.scale must be symmetric")
        if not np.linalg.eigvalsh(value)[0] > 0:
            raise ValueError("Gaussian.scale must be positive definite")
        return np.ascontiguousarray(value)

    def moments(self, g, stats):
        """Masses (without weights, numbers of items), means and scatters of clusters."""
        law = g._law_of_weights
        if law is None:
            return stats
        return law.moments(stats, len(g.mean), law.log_law(g._tail_values)[1])

    def gaps(self, g, moments):
        """Means of the clusters relative to the prior mean."""
        return moments[:, 1 : 1 + len(g.mean)] - (g.mean - g._origin)

    def means(self, g, moments):
        """Posterior means of the clusters, and mean_precision + mass: (n_clusters, 1)."""
        mass = moments[:, :1]
        rho = g.mean_precision + mass
        return g.mean + mass / rho * self.gaps(g, moments), rho

    def pull(self, g, moments):
        """Vectors whose outer products the prior mean adds to the scale matrices."""
        mass = moments[:, :1]
        weight = g.mean_precision * mass / (g.mean_precision + mass)
        return np.sqrt(weight) * self.gaps(g, moments)

    def learn_scale(self, variances, varies, n_rows, df, smallest=SMALLEST_SHARE, family=None):
        smallest = np.maximum(smallest, SMALLEST_PER_ROW * n_rows)
        return super().learn_scale(variances, varies, n_rows, df, smallest)

    def variances(self, g):
        return np.diagonal(as_matrix(g.scale))

    def column_posterior(self, g, stats, column):
        return self.combination_posterior(g, stats, np.eye(len(g.mean))[column], 0.0)

    def laws_given(self, g, stats, rng, weights):
        means, rho, roots, df, divisor = self.scales_given(g, stats, rng)
        n_features = means.shape[1]
        if rng is None:
            by = (rho[:, None] + weights) / (rho * divisor)[:, None] / weights
        else:
            normal = rng.standard_normal((*means.shape, 1))
            means = means + (roots @ normal)[..., 0] / np.sqrt(rho)[:, None]
            df = np.full(len(df), np.inf)
            by = np.tile(1.0 / weights, (len(stats), 1))
        everything = np.arange(n_features), np.zeros(n_features), np.eye(n_features)
        return [
            MatrixLaws(means, roots * factor[:, None, None], df, *everything)
            for factor in np.sqrt(by).T
        ]


class Full(Matrix):
    """A covariance matrix for each cluster."""

    model = FullModel

    def learn_scale(self, variances, varies, n_rows, df, smallest=SMALLEST_SHARE, family=None):
        start, law, floor = super().learn_scale(variances, varies, n_rows, df, smallest)
        if family is None:
            return start, law, floor
        return np.diag(start), ScaleMatrix(family, law.low, law.unit, varies), floor

    def tables(self, g, data, n_tabled, missing):
        free = float(len(g.mean))
        n_tabled = min(n_tabled, MOST_TABLED)
        return {"log_norms": log_norm_table(n_tabled, g.mean_precision, g.df, free)}

    def parametric(self, g, rows):
        mean = g.mean - g._origin
        return ParametricGaussian(rows, mean, as_matrix(g.scale), g.mean_precision, g.df)

    def divergences(self, g, params):
        n_features = len(g.mean)
        rows, columns = np.tril_indices(n_features)
        roots = np.zeros((len(params), n_features, n_features))
        roots[:, rows, columns] = params[:, 1 + n_features :]
        return divergences_between(roots, params[:, 1 : 1 + n_features])

    def posterior(self, g, stats):
        """Posterior means, scale matrices, degrees of freedom and mean_precision + mass."""
        moments = self.moments(g, stats)
        means, rho = self.means(g, moments)
        pull = self.pull(g, moments)
        scales = self.scatters(g, moments) + pull[:, :, None] * pull[:, None, :]
        return means, scales, g.df + stats[:, 0], rho[:, 0]

    def scatters(self, g, moments):
        """Scale matrix plus the scatter of each cluster. The packed lower triangle by columns is
        the upper triangle by rows."""
        n_features = len(g.mean)
        upper = np.triu_indices(n_features)
        scatter = np.zeros((len(moments), n_features, n_features))
        scatter[:, upper[0], upper[1]] = moments[:, 1 + n_features :]
        scatter[:, upper[1], upper[0]] = moments[:, 1 + n_features :]
        return as_matrix(g.scale) + scatter

    def cluster_params(self, g, stats):
        means, scales, df, _ = self.posterior(g, stats)
        n_features = means.shape[1]
        divisor = np.where(df > n_features + 1, df - n_features - 1, df + n_features + 1)
        return {"means": means, "covariances": scales / divisor[:, None, None]}

    def scales_given(self, g, stats, rng):
        means, _, df, rho = self.posterior(g, stats)
        roots = self.factors(g, stats)
        if rng is not None:
            roots = np.array([drawn_root(*law, rng) for law in zip(df, roots, strict=True)])
        df = df - means.shape[1] + 1.0
        return means, rho, roots, df, df

    def factors(self, g, stats):
        """Cholesky factors of the scale matrices of the posteriors."""
        moments = self.moments(g, stats)
        least = np.diagonal(np.linalg.cholesky(as_matrix(g.scale))) ** 2
        return factors(self.scatters(g, moments), self.pull(g, moments), least)

    def combination_posterior(self, g, stats, weights, constant):
        # The marginal of a normal-inverse-Wishart law.
        means, scales, df, rho = self.posterior(g, stats)
        spread = weights @ scales @ weights
        return constant + means @ weights, rho, df - means.shape[1] + 1.0, spread, 0.0


class Tied(Matrix):
    """One covariance matrix, `scale` itself, for all clusters."""

    model = TiedModel
    learns_df = False

    def check_scale(self, value, n_features):
        return as_matrix(super().check_scale(value, n_features))

    def learn_scale(self, variances, varies, n_rows, df, smallest=SMALLEST_SHARE, family=None):
        # For a constant column large clusters must not be narrower than small ones.
        unit = (df - self.low(len(variances))) * variances
        share = np.where(varies, SMALLEST_PER_ROW, WITHIN) * n_rows
        low = unit * np.maximum(smallest, share)
        start = np.where(varies, WITHIN, 2.0 * WITHIN) * variances
        law = HierarchicalInverseWishart(df, S_RATE / unit, low)
        return np.diag(start), law, np.zeros(len(variances))

    def scale_to_share(self, g, values):
        return values["scale"], 0.0

    def share_to_scale(self, g, values):
        return values["scale"]

    def df(self, g):
        return g._row_df

    def integrated(self, g, values, stats):
        """Sigma given the clusters is inverse Wishart, so rows are Student."""
        if "scale" not in values:
            return values
        law, g = g.learned_priors["scale"], g.at(values)
        moments = self.moments(g, stats)
        scatter = shared_scatter(moments, self.gaps(g, moments), g.mean_precision, moments[:, 0])
        # A seed from the draw itself: answers draw no other random numbers.
        rng = np.random.default_rng(np.frombuffer(g.scale[0].tobytes(), np.uint32))
        law = law.given(g.scale, stats[:, 0].sum(), scatter, rng)
        df = law.df - self.low(len(g.mean))
        return {**values, "scale": law.scale / df, "df": df}

    def tables(self, g, data, n_tabled, missing):
        return {"white": whitened(data["X"], g.scale)}

    def parametric(self, g, rows):
        return ParametricGaussianTied(rows, g.mean - g._origin, g.scale, g.mean_precision)

    def cluster_params(self, g, stats):
        means, _ = self.means(g, self.moments(g, stats))
        return {"means": means, "covariances": np.tile(g.scale, (len(stats), 1, 1))}

    def scales_given(self, g, stats, rng):
        means, rho = self.means(g, self.moments(g, stats))
        roots = np.tile(np.linalg.cholesky(g.scale), (len(stats), 1, 1))
        return means, rho[:, 0], roots, np.full(len(stats), g._row_df or np.inf), 1.0

    def draw_rows(self, g, stats, clusters, rng):
        if g._law_of_weights is not None:
            return super().draw_rows(g, stats, clusters, rng)
        means, rho = self.means(g, stats)
        # One root for all rows is faster than their laws.
        normal = rng.standard_normal((len(clusters), len(g.mean))) @ np.linalg.cholesky(g.scale).T
        if g._row_df:
            normal /= np.sqrt(rng.chisquare(g._row_df, (len(normal), 1)) / g._row_df)
        return means[clusters] + np.sqrt((rho + 1.0) / rho)[clusters] * normal

    def combination_posterior(self, g, stats, weights, constant):
        means, rho = self.means(g, self.moments(g, stats))
        df = np.full(len(stats), KNOWN)
        return constant + means @ weights, rho[:, 0], df, df * (weights @ g.scale @ weights), 0.0


class Sparse(Matrix):
    """A covariance for each cluster, in which every column depends on few others."""

    name = "sparse"
    model = SparseModel
    takes = frozenset({"blocks"})
    check_scale = Covariance.check_scale

    def low(self, n_features):
        return 0.0

    def families(self, n_parents, summary):
        rows = np.where(np.isnan(summary["head"]), summary["mean"], summary["head"])
        n_features = rows.shape[1]
        order, parents = parents_of(rows, min(n_parents, max(n_features - 1, 1)))
        families = np.full((parents.shape[1] + 1, padded(n_features)), n_features)
        families[:-1, :n_features] = np.where(parents < 0, n_features, parents).T
        families[-1, :n_features] = np.arange(n_features)
        return {"parents_": parents, "_order": order, "_families": families}

    def tables(self, g, data, n_tabled, missing):
        return {"families": g._families}

    def parametric(self, g, rows):
        mean = g.mean - g._origin
        return ParametricGaussianSparse(rows, mean, g.scale, g.mean_precision, g.df, g._families)

    def divergences(self, g, params):
        n_features = len(g.mean)
        members = g._families[:, :n_features].T
        slopes = params[:, 1:].reshape(len(params), n_features, -1)
        roots = np.zeros((len(params), n_features, n_features + 1))
        roots[:, np.arange(n_features)[:, None], members] = slopes[..., :-1]
        return divergences_between(roots[..., :-1], slopes[..., -1])

    def posterior(self, g, stats):
        """Means, matrices S of the families (see _sparse), (n_clusters, n_features, size, size),
        degrees of freedom and mean_precision + n of the clusters' posteriors."""
        n_features = len(g.mean)
        families = g._families[:, :n_features]
        means, rho = self.means(g, stats)
        lower = np.tril_indices(len(families))
        shape = len(stats), len(lower[0]), g._families.shape[1]
        entries = stats[:, 1 + n_features :].reshape(shape)
        scatter = np.zeros((len(stats), n_features, len(families), len(families)))
        scatter[:, :, lower[0], lower[1]] = entries[:, :, :n_features].transpose(0, 2, 1)
        scatter[:, :, lower[1], lower[0]] = scatter[:, :, lower[0], lower[1]]
        pull = np.pad(self.pull(g, stats), ((0, 0), (0, 1)))[:, families.T]
        scatter += pull[..., None] * pull[..., None, :]
        members = np.arange(len(families))
        scatter[:, :, members, members] += np.append(g.scale, 1.0)[families.T]
        return means, scatter, g.df + stats[:, 0], rho[:, 0]

    def roots(self, g, scatter, divisor, rng=None):
        """R, where R R' are covariances of the clusters. Without `rng`, expected ones, if the
        expected variance of a column given its parents is its sum of squares over a divisor,
        (n_clusters,); else drawn ones, the divisor from its chi-squared law."""
        least = np.append(g.scale, 1.0)[g._families[:, : len(g.mean)].T]
        factor = factors(
            scatter.reshape(-1, *scatter.shape[2:]), least=np.tile(least, (len(scatter), 1))
        ).reshape(scatter.shape)
        inverse = np.linalg.inv(factor[..., :-1, :-1])
        slopes = factor[..., -1, :-1].copy()
        if rng is not None:
            divisor = rng.chisquare(np.tile(divisor[:, None], factor.shape[1]))
            spread = factor[..., -1, -1] / np.sqrt(divisor)
            slopes += spread[..., None] * rng.standard_normal(slopes.shape)
        else:
            spread = factor[..., -1, -1] / np.sqrt(divisor[:, None])
        slopes = (slopes[..., None, :] @ inverse)[..., 0, :]
        roots = np.zeros((len(scatter), *2 * (len(g.mean),)))
        for d in g._order:
            known = np.flatnonzero(g.parents_[d] >= 0)
            of_parents = roots[:, g.parents_[d, known]]
            roots[:, d] = np.einsum("kp,kpe->ke", slopes[:, d, known], of_parents)
            roots[:, d, d] = spread[:, d]
            if rng is None:  # slopes vary, too
                more = inverse[:, d][:, :, known] @ of_parents
                roots[:, d, d] *= np.sqrt(1.0 + np.sum(more**2, axis=(1, 2)))
        return roots

    def cluster_params(self, g, stats):
        means, scatter, df, _ = self.posterior(g, stats)
        roots = self.roots(g, scatter, np.where(df > 2.0, df - 2.0, df + 2.0))
        return {"means": means, "covariances": roots @ roots.swapaxes(1, 2)}

    def scales_given(self, g, stats, rng):
        """Without `rng`, those of multivariate t laws with about the same means and covariances:
        laws of some columns given others have no closed form."""
        means, scatter, df, rho = self.posterior(g, stats)
        return means, rho, self.roots(g, scatter, df, rng), df, 1.0

    def draw_rows(self, g, stats, clusters, rng):
        # Laws are exact given parameters, which are drawn for every row.
        nothing = np.full((len(clusters), len(g.mean)), np.nan)
        return self.laws(g, stats[clusters], rng).fill(nothing, np.arange(len(clusters)), rng)

    def combination_posterior(self, g, stats, weights, constant):
        means, scatter, df, rho = self.posterior(g, stats)
        spread = df * np.sum((weights @ self.roots(g, scatter, df)) ** 2, axis=1)
        return constant + means @ weights, rho, df, spread, 0.0


COVARIANCES = {
    "full": Full(),
    "diag": Diagonal(),
    "sparse": Sparse(),
    "tied": Tied(),
    "spherical": Spherical(),
}


def divergences_between(roots, centers):
    """See `Likelihood.divergences`, of normal laws with precision matrices W'W and means mu. Roots
    are W, (n_clusters, n_features, n_features), and centers W mu, (n_clusters, n_features)."""
    try:
        inverse = np.linalg.inv(roots)
    except np.linalg.LinAlgError:
        raise FloatingPointError(
            "a drawn precision matrix is singular; rescale the columns"
        ) from None
    means = (inverse @ centers[..., None])[..., 0]
    out = np.empty((len(roots), len(roots)))
    for k, root in enumerate(roots):
        # tr(W_k'W_k V_m V_m'), and the gaps of means on the scale of cluster k.
        ratio = np.sum((root @ inverse) ** 2, axis=(1, 2))
        gap = np.sum(((means - means[k]) @ root.T) ** 2, axis=1)
        out[k] = 0.5 * (ratio + gap - centers.shape[1])
    return out + out.T


def as_matrix(scale):
    """A diagonal as a matrix; a matrix unchanged."""
    return np.diag(scale) if np.ndim(scale) == 1 else scale


def as_vector(value, n_features, name):
    """Check a number, or one number per column: ndarray of shape (n_features,)."""
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or one per column, got {value!r}") from None
    if vector.ndim == 0:
        vector = np.full(n_features, vector)
    if vector.shape != (n_features,) or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite, a number or one per column ({n_features})")
    return vector
