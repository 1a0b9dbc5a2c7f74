# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters, with full or diagonal covariances."""

import numpy as np

from skdpm._validation import check_choice, check_real
from skdpm.mixture.likelihoods._gaussian import GaussianModel, ParametricGaussian
from skdpm.mixture.likelihoods._gaussian_diag import GaussianDiagModel, ParametricGaussianDiag
from skdpm.mixture.likelihoods._gaussian_hyper import log_evidence_norm_table, log_norm_table
from skdpm.mixture.likelihoods.base import (
    MOST_BOXED,
    Gamma,
    Likelihood,
    Normal,
    bounds,
    read_only,
)
from skdpm.mixture.likelihoods.coordinates import standardised

# Hyperpriors, all of them without units: v stands for the variance of a column.
R_SHAPE, R_RATE = 0.5, 5.0  # mean_precision ~ Gamma
DF_LOW, DF_SHAPE, DF_RATE = 1.0, 2.0, 0.2  # k = df beyond the smallest possible: k - low ~ Gamma
S_SHAPE, S_RATE = 0.5, 1.0  # scale / k, beyond a floor, ~ Gamma(S_SHAPE, S_RATE / v)

# Where chains start: the prior mean counts as a tenth of a row, and of a column's variance this
# share is expected inside a cluster.
MEAN_PRECISION = 0.1
WITHIN = 0.5

# The resolution of a column is told from so many rows, the first.
HEAD = 4096
# The smallest scale / k that may be learned, as a share of v.
SMALLEST_SHARE = 1e-8

# Beyond this, draws of a learned scale might be infinite, or their sum.
LARGEST_VARIANCE = 1e290

# The square of a column's spread must be a normal double.
SMALLEST_SPREAD = 1e-150


class Gaussian(Likelihood):
    """Gaussian clusters.

    Full covariances have a normal-inverse-Wishart prior: Sigma ~ IW(df, scale), mu given Sigma ~
    N(mean, Sigma / mean_precision). Diagonal ones have, in each column d, an independent
    normal-inverse-gamma prior: variance ~ InvGamma(shape=df / 2, rate=scale_d / 2), mu given the
    variance ~ N(mean_d, variance / mean_precision).

    Parameters
    ----------
    mean : float, array-like of shape (n_features,) or None, default=None
        Prior mean. None: learned, as any of the four, see the notes.
    mean_precision : float or None, default=None
        Pseudo-observations of the prior mean.
    df : float or None, default=None
        Degrees of freedom, > n_features - 1 (full) or > 0 (diagonal).
    scale : float, array-like of shape (n_features,) or (n_features, n_features), or None, \
default=None
        In squared units of the columns. A float s is s times the identity, a vector the diagonal.
        None: learned, and diagonal.
    covariance_type : {"full", "diag"}, default="full"
        NaN in X stands for a missing entry with `"diag"` and is refused with `"full"`.

    Notes
    -----
    A parameter that is None is learned, in every iteration or, where columns are many beside the
    rows, in every second, third, ..., tenth. With m_d and v_d for the mean and the variance of
    column d in `fit`, and k = df - (n_features - 1) (full) or k = df (diagonal), its prior is::

        mean_d                     ~ Normal(m_d, v_d)
        mean_precision             ~ Gamma(0.5, rate=5)
        k - 1                      ~ Gamma(2, rate=0.2)
        scale_d / k - f_d (1 + c_d / k)  ~ Gamma(0.5, rate=1 / v_d)

    so that no unit of a column matters. f_d is 1e-8 v_d, but larger where values are tied: else
    the best answer to a column of integers could be a cluster for each of its values, of no width.
    With c_d for the number of ties of the most frequent value and g for the median gap between
    different values, both of the first 4096 rows, it is the variance of rounding, g² / 12, and no
    cluster of ties is narrower; but c_d f_d is at most v_d / 2, as it is where a column is
    constant.

    What they say, and how each moves the number of clusters. `scale` / k is about the variance
    of a column inside a cluster: the smaller, the more clusters. `df` says how alike the
    covariances of clusters are: large, nearly the same for all, and small or elongated groups
    become no clusters of their own; small, each of its own form. `mean_precision` says how far
    apart clusters are: 0.01, their means spread over ten times the width of a cluster; a larger
    one, closer together, makes a new cluster cheaper. `mean` says around which point, and matters
    least.

    Chains start at mean = m, mean_precision = 0.1, df = n_features + 2 (full) or 4 (diagonal) and
    `scale = 0.5 * v * (df - n_features - 1)` (full) or `0.5 * v * (df - 2)` (diagonal; a factor 1
    where the bracket is not positive), so that half of the variance is expected inside a cluster.

    The variance of a constant column counts as the square of 1e-6 times its absolute value, or 1
    where that is 0, so that the priors exist for any data and for one row.

    References
    ----------
    Rasmussen (2000), The infinite Gaussian mixture model. Goerur & Rasmussen (2010), Dirichlet
    process Gaussian mixture models: choice of the base distribution. Murphy (2007), Conjugate
    Bayesian analysis of the Gaussian distribution.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    hyperparameters = ("mean", "mean_precision", "df", "scale")

    def __init__(
        self, mean=None, mean_precision=None, df=None, scale=None, covariance_type="full"
    ):
        self.mean = mean
        self.mean_precision = mean_precision
        self.df = df
        self.scale = scale
        self.covariance_type = covariance_type

    @property
    def allow_nan(self):
        # Also where the parameter is wrong: the message is to be about it, not about NaN.
        return self.covariance_type != "full"

    nan_hint = 'Gaussian(covariance_type="diag") takes NaN for a missing entry'

    def summarise(self, X):
        """Counts, means and sums of squares of the columns, their ranges, and the first rows."""
        self._check_covariance_type()
        X = np.asarray(X, dtype=np.float64)
        counts = np.count_nonzero(~np.isnan(X), axis=0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            means = np.nansum(X / np.maximum(counts, 1), axis=0)
            squares = np.nansum((X - means) ** 2, axis=0)
        return {
            "n": counts,
            "mean": means,
            "squares": squares,
            "smallest": np.fmin.reduce(X, axis=0, initial=np.inf),
            "largest": np.fmax.reduce(X, axis=0, initial=-np.inf),
            "missing": bool((counts < len(X)).any()),
            "head": X[:HEAD].copy(),
        }

    def merge_summaries(self, first, second):
        n = first["n"] + second["n"]
        share = second["n"] / np.maximum(n, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = second["mean"] - first["mean"]
            return {
                "n": n,
                "mean": first["mean"] + gap * share,
                "squares": first["squares"] + second["squares"] + gap**2 * first["n"] * share,
                "smallest": np.minimum(first["smallest"], second["smallest"]),
                "largest": np.maximum(first["largest"], second["largest"]),
                "missing": first["missing"] or second["missing"],
                "head": np.concatenate([first["head"], second["head"]])[:HEAD],
            }

    def resolve_summary(self, summary):
        full = self._check_covariance_type() == "full"
        n_features = len(summary["mean"])
        low = n_features - 1.0 if full else 0.0
        hyperpriors = {}
        floor = np.zeros(n_features)
        if self.mean is None or self.scale is None:
            variances = _column_variances(summary)
        if self.scale is None:
            smallest, ties = _resolutions(summary, variances)
            floor = smallest * ties
        if self.mean is None:
            mean = summary["mean"]
            _refuse_overflow(mean)
            hyperpriors["mean"] = Normal(mean, variances)
        else:
            mean = _as_vector(self.mean, n_features, "Gaussian.mean")
        if self.mean_precision is None:
            mean_precision = MEAN_PRECISION
            hyperpriors["mean_precision"] = Gamma(R_SHAPE, R_RATE)
        else:
            mean_precision = check_real(self.mean_precision, "Gaussian.mean_precision", low=0.0)
        if self.df is None:
            df = low + (3.0 if full else 4.0)
            hyperpriors["df"] = Gamma(DF_SHAPE, DF_RATE, low + DF_LOW)
        else:
            df = check_real(self.df, "Gaussian.df", low=low)
        if self.scale is None:
            factor = df - low - 2.0
            scale = WITHIN * variances * (factor if factor > 0 else 1.0)
            scale += (df - low) * smallest + floor
            hyperpriors["scale"] = Gamma(S_SHAPE, S_RATE / variances, smallest)
        else:
            scale = _as_scale(self.scale, n_features, full)
        resolved = self._copy(mean=mean, mean_precision=mean_precision, df=df, scale=scale)
        resolved._hyperpriors = hyperpriors
        resolved._origin = mean
        resolved._floor = floor
        # Units in which the kernels learn.
        if "mean" in hyperpriors or "scale" in hyperpriors:
            resolved._spread = np.sqrt(variances)
        else:
            resolved._spread = np.sqrt(scale if scale.ndim == 1 else np.diagonal(scale))
        resolved._fitted_missing = summary["missing"]
        with np.errstate(over="ignore", invalid="ignore"):
            extreme = np.maximum(mean - summary["smallest"], summary["largest"] - mean)
            _refuse_uncentred((extreme == np.inf) & (summary["n"] > 0))
            # The sum of squares about the prior mean, which the clusters' scatters make up.
            squares = summary["squares"] + summary["n"] * (summary["mean"] - mean) ** 2
        _refuse_overflow(squares)
        _refuse_underflow(summary["largest"] - summary["smallest"])
        return resolved

    def _check_covariance_type(self):
        return check_choice(self.covariance_type, "Gaussian.covariance_type", ("full", "diag"))

    def encode(self, X):
        return self.encode_new(X)

    def encode_new(self, X):
        with np.errstate(over="ignore"):
            centred = np.ascontiguousarray(X - self._origin, dtype=np.float64)
        _refuse_uncentred(np.isinf(centred).any(axis=0))
        return read_only({"X": centred, "missing": bool(np.isnan(centred).any())})

    def coordinates(self, X):
        return None if np.isnan(X).any() else standardised(X)

    def box_points(self, data):
        X = data["X"]
        return None if data["missing"] or X.shape[1] > MOST_BOXED else X

    def tables(self, data, n_max):
        # A batch of a stream may be complete, and clusters of former ones not.
        missing = n_max is None or data["missing"] or self._fitted_missing
        n_max, n_tabled = bounds(n_max)
        # log c_n, and of one column log g_n.
        free = 1.0 if self.covariance_type == "diag" else len(self.mean)
        log_gain = log_norm_table(n_tabled, self.mean_precision, self.df, free)
        shared = {
            "n_max": n_max,
            "origin": self._origin,
            "spread": self._spread,
            "floor": self._floor,
        }
        if self.covariance_type != "diag":
            return read_only({**shared, "log_norm": log_gain})
        log_scale = np.log(self.scale)[None]
        if missing:
            log_scale = np.where(np.isnan(data["X"]), 0.0, log_scale)
        return read_only(
            {
                **shared,
                "missing": missing,
                "log_gain": log_gain,
                "log_norm": log_evidence_norm_table(n_tabled, self.mean_precision, self.df),
                "log_scale": np.broadcast_to(log_scale.sum(axis=1), len(data["X"])).copy(),
            }
        )

    def bind(self, data, tables):
        model = GaussianDiagModel if self.covariance_type == "diag" else GaussianModel
        return model(data, tables, self.mean, self.mean_precision, self.df, self.scale)

    def parametric(self, X):
        centred = _centred(X, self._origin)
        mean = self.mean - self._origin
        if self.covariance_type == "diag":
            return ParametricGaussianDiag(
                centred, mean, self.scale, self.mean_precision, self.df, self._fitted_missing
            )
        return ParametricGaussian(
            centred, mean, self._scale_matrix(), self.mean_precision, self.df
        )

    def log_hyperprior(self, values):
        """That of `scale` is the density of (scale - floor) / k: see the class."""
        values = dict(values)
        total = 0.0
        if "scale" in self.hyperpriors:
            low = len(self.mean) - 1.0 if self.covariance_type != "diag" else 0.0
            beyond = values.get("df", self.df) - low
            values["scale"] = (np.asarray(values["scale"]) - self._floor) / beyond
            total -= len(self.mean) * np.log(beyond)
        return total + super().log_hyperprior(values)

    def draw_hyperparameters(self, rng):
        values = super().draw_hyperparameters(rng)
        if "scale" in values:
            low = len(self.mean) - 1.0 if self.covariance_type != "diag" else 0.0
            values["scale"] = self._floor + (values.get("df", self.df) - low) * values["scale"]
        return values

    def _scale_matrix(self):
        return np.diag(self.scale) if np.ndim(self.scale) == 1 else self.scale

    def divergences(self, params):
        n_features = len(self.mean)
        K = len(params)
        out = np.empty((K, K))
        if self.covariance_type == "diag":
            w, center, log_w = np.split(params[:, 1:], 3, axis=1)
            means = center / w
            for k in range(K):
                ratio = np.exp(2.0 * (log_w[k] - log_w))
                gap = (w[k] * (means - means[k])) ** 2
                out[k] = 0.5 * (ratio + gap - 1.0).sum(axis=1)
            return out + out.T
        rows, columns = np.tril_indices(n_features)
        W = np.zeros((K, n_features, n_features))
        W[:, rows, columns] = params[:, 1 + n_features :]
        try:
            V = np.linalg.inv(W)
        except np.linalg.LinAlgError:
            raise FloatingPointError("a cluster's drawn precision matrix is singular") from None
        means = (V @ params[:, 1 : 1 + n_features, None])[..., 0]
        for k in range(K):
            # tr(W_k'W_k V_m V_m'), and the gaps of means on the scale of cluster k.
            ratio = np.sum((W[k] @ V) ** 2, axis=(1, 2))
            gap = np.sum(((means - means[k]) @ W[k].T) ** 2, axis=1)
            out[k] = 0.5 * (ratio + gap - n_features)
        return out + out.T

    def cluster_params(self, stats):
        """`means`: (n_clusters, n_features); `covariances`: (n_clusters, n_features, n_features),
        or the variances, (n_clusters, n_features), where covariances are diagonal.

        Posterior means. That of an inverse-Wishart distribution exists for df + n > n_features + 1
        (inverse gamma: > 2); else its mode stands in.
        """
        if self.covariance_type == "diag":
            means, scales, df, _ = self._posterior_diag(stats)
            return {"means": means, "covariances": scales / np.where(df > 2.0, df - 2.0, df + 2.0)}
        means, scales, df = self._posterior(stats)
        n_features = means.shape[1]
        divisor = np.where(df > n_features + 1, df - n_features - 1, df + n_features + 1)
        return {"means": means, "covariances": scales / divisor[:, None, None]}

    def centres(self, stats):
        return self.cluster_params(stats)["means"]

    def draw(self, stats, rng):
        if self.covariance_type == "diag":
            means, scales, df, rho = self._posterior_diag(stats)
            spread = np.sqrt(scales * (rho + 1.0) / (rho * df))
            return means + spread * rng.standard_t(df)
        means, _, df = self._posterior(stats)
        # The pull of the prior mean on its own, as an independent normal variate in its
        # direction: added to the rest it could take all of its digits.
        pull, scales = self._pull(stats), self._scale_matrix() + self._scatter(stats)
        rho = self.mean_precision + stats[:, 0]
        df_t = df - means.shape[1] + 1.0
        try:
            factor = np.linalg.cholesky(scales)
        except np.linalg.LinAlgError:
            raise FloatingPointError("a cluster's scatter is singular to rounding") from None
        normal = np.einsum("kde,ke->kd", factor, rng.standard_normal(means.shape))
        normal += pull * rng.standard_normal((len(means), 1))
        factors = (rho + 1.0) / (rho * df_t) / (rng.chisquare(df_t) / df_t)
        return means + normal * np.sqrt(factors)[:, None]

    def column_posterior(self, stats, column):
        if self.covariance_type == "diag":
            means, scales, df, rho = self._posterior_diag(stats)
            return means[:, column], rho[:, column], df[:, column], scales[:, column], 0.0
        # The marginal of a normal-inverse-Wishart law.
        means, scales, df = self._posterior(stats)
        rho = self.mean_precision + stats[:, 0]
        df = df - means.shape[1] + 1.0
        return means[:, column], rho, df, scales[:, column, column], 0.0

    def _posterior(self, stats):
        """Means, scale matrices and degrees of freedom of the clusters' posteriors."""
        n = stats[:, :1]
        rho = self.mean_precision + n
        pull = self._pull(stats)
        scales = self._scale_matrix() + self._scatter(stats)
        scales = scales + pull[:, :, None] * pull[:, None, :]
        return self.mean + n / rho * self._gaps(stats), scales, self.df + n[:, 0]

    def _gaps(self, stats):
        """Means of the clusters relative to the prior mean: those of `stats` are to the origin."""
        return stats[:, 1 : 1 + len(self.mean)] - (self.mean - self._origin)

    def _scatter(self, stats):
        """Scatter matrices: packed by columns, lower triangle, so by rows the upper one."""
        n_features = len(self.mean)
        upper = np.triu_indices(n_features)
        scatter = np.zeros((len(stats), n_features, n_features))
        scatter[:, upper[0], upper[1]] = stats[:, 1 + n_features :]
        scatter[:, upper[1], upper[0]] = stats[:, 1 + n_features :]
        return scatter

    def _pull(self, stats):
        """The vectors whose squares the prior mean adds to the scale matrices."""
        n = stats[:, :1]
        weight = self.mean_precision * n / (self.mean_precision + n)
        return np.sqrt(weight) * self._gaps(stats)

    def _posterior_diag(self, stats):
        """The same per column, (n_clusters, n_features) each, and rho = mean_precision + n."""
        n, centre, scatter = np.split(stats[:, 1:], 3, axis=1)
        rho = self.mean_precision + n
        gap = centre - (self.mean - self._origin)
        scales = self.scale + scatter + self.mean_precision * n / rho * gap**2
        return self.mean + n / rho * gap, scales, self.df + n, rho

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((12, 3)) * [1.0, 2.0, 0.5] + 1.0
        yield cls(), X
        yield cls(mean=0.5, mean_precision=0.3, df=4.5, scale=[1.0, 2.0, 0.7]), X
        yield cls(), X[:, :1]
        diag = {"covariance_type": "diag"}
        yield cls(**diag), X
        yield cls(mean=0.5, mean_precision=0.3, df=0.5, scale=[1.0, 2.0, 0.7], **diag), X
        Y = X.copy()
        Y[rng.random(Y.shape) < 0.3] = np.nan
        yield cls(**diag), Y


def _column_variances(summary):
    """Variances of the columns, with a floor: see the notes of `Gaussian`."""
    smallest, largest = summary["smallest"], summary["largest"]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        variances = summary["squares"] / np.maximum(summary["n"], 1)
        extent = np.where(summary["n"] > 0, np.maximum(np.abs(smallest), np.abs(largest)), 0.0)
        constant = ~(largest > smallest)
        # Below 1e-12 of its values, what varies in a column is mostly rounding.
        floor = np.where(extent > 0, (np.where(constant, 1e-6, 1e-12) * extent) ** 2, 1.0)
    variances = np.maximum(variances, np.maximum(floor, np.finfo(float).tiny))
    # A scale that is learned is many times as large at times.
    _refuse_overflow(np.where(variances < LARGEST_VARIANCE, variances, np.inf))
    return variances


def _resolutions(summary, variances):
    """Of each column, the smallest scale / k that may be learned, and how many ties a value has:
    see the notes of `Gaussian`."""
    rows = summary["head"]
    smallest, ties = np.zeros((2, rows.shape[1]))
    for d, column in enumerate(rows.T):
        values, counts = np.unique(column[~np.isnan(column)], return_counts=True)
        if len(values) == 0:
            continue
        ties[d] = (counts.max() - 1) * summary["n"][d] / counts.sum()
        if len(values) == 1:
            smallest[d] = np.inf
        elif ties[d] > 0:
            with np.errstate(over="ignore", under="ignore"):
                smallest[d] = np.median(np.diff(values)) ** 2 / 12.0
    largest = WITHIN * variances / np.maximum(ties, 1.0)
    return np.clip(smallest, SMALLEST_SHARE * variances, largest), ties


def _refuse_overflow(per_column):
    if not np.isfinite(per_column).all():
        column = int(np.flatnonzero(~np.isfinite(per_column))[0])
        raise ValueError(
            f"Gaussian: the values in column {column} of X are so large that their variance "
            "overflows; rescale the column"
        )


def _refuse_underflow(spreads):
    tiny = np.flatnonzero((spreads > 0.0) & (spreads < SMALLEST_SPREAD))
    if tiny.size:
        raise ValueError(
            f"Gaussian: the values in column {tiny[0]} of X differ by so little that their "
            "variance underflows; rescale the column"
        )


def _centred(X, origin):
    """Rows minus the origin, in rows of doubles."""
    n_rows, n_features = X.shape
    if n_features > 16 or X.dtype != np.float64 or not X.flags.c_contiguous:
        return np.ascontiguousarray(np.subtract(X, origin, dtype=np.float64))
    # Many short rows in one: NumPy takes time for each.
    out = np.empty((n_rows, n_features))
    n_long = n_rows // 64
    shape = (n_long, 64 * n_features)
    n_rows = 64 * n_long
    np.subtract(X[:n_rows].reshape(shape), np.tile(origin, 64), out=out[:n_rows].reshape(shape))
    np.subtract(X[n_rows:], origin, out=out[n_rows:])
    return out


def _refuse_uncentred(columns):
    if columns.any():
        column = int(np.flatnonzero(columns)[0])
        raise ValueError(f"Gaussian: column {column} of X holds values too large to centre")


def _as_vector(value, n_features, name):
    try:
        vector = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or one per column, got {value!r}") from None
    if vector.ndim == 0:
        vector = np.full(n_features, vector)
    if vector.shape != (n_features,) or not np.isfinite(vector).all():
        raise ValueError(f"{name} must be finite, a number or one per column ({n_features})")
    return vector


def _as_scale(value, n_features, full):
    """The scale matrix (full) or its diagonal, checked: a vector stays one."""
    name = "Gaussian.scale"
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, a vector or a matrix, got {value!r}") from None
    if matrix.ndim < 2:
        vector = _as_vector(matrix, n_features, name)
        if not (vector > 0).all():
            raise ValueError(f"{name} must be positive, got {value!r}")
        return vector
    if not full:
        raise ValueError(f'{name} must be a number or a vector with covariance_type="diag"')
    if matrix.shape != (n_features, n_features) or not np.isfinite(matrix).all():
        raise ValueError(f"{name} must be finite, of shape ({n_features}, {n_features})")
    if not np.allclose(matrix, matrix.T):
        raise ValueError(f"{name} must be symmetric")
    if not np.linalg.eigvalsh(matrix)[0] > 0:
        raise ValueError(f"{name} must be positive definite")
    return np.ascontiguousarray(matrix)
