# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Subspace`: Gaussian clusters in a subspace, for many columns."""

import numpy as np
from scipy.special import multigammaln

from skdpm._core._numerics import rotate
from skdpm._validation import check_integer, parameters, warn
from skdpm.mixture.likelihoods.contract.base import Likelihood, read_only
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian, recording_in
from skdpm.mixture.likelihoods.gaussian.projected import LARGEST, columns_of, projection_of
from skdpm.mixture.likelihoods.laws.background import box
from skdpm.mixture.likelihoods.laws.columns import far_columns, filled_columns
from skdpm.mixture.likelihoods.laws.coordinates import bulk, standardised
from skdpm.mixture.likelihoods.laws.laws import JointLaws, ScaledLaws
from skdpm.mixture.likelihoods.laws.means import normal_means
from skdpm.mixture.likelihoods.subspace.subspace_laws import SubspaceLaws, log_of_rest

# Shares of the largest entry: variation below the first is mostly rounding, and the second is the
# standard deviation of a constant.
ROUNDING, CONSTANT = 1e-12, 1e-6

# Share of the largest eigenvalue below which an eigenvalue counts as 0.
SMALLEST_EIGENVALUE = 1e-13
# Ratio of the largest standard deviation to the median one above which a column determines axes.
MOST_UNEQUAL = 100.0

# Numbers of rows with a shared variance along the other axes.
ROWS_ALIKE = np.append(0.0, np.geomspace(1.0, 1e4, 41))

# Fewest rows for which samplers that visit rows one after the other would take many minutes.
BLOCK_ROWS = 20_000


class Condensed(np.ndarray):
    """Result of `Subspace.condense`: coordinates along the axes, and log p of the others."""


@parameters
class Subspace(Likelihood):
    """Gaussian clusters along the principal axes of the data, for many columns.

    >>> from skdpm import DPMixture
    >>> from skdpm.datasets import make_embeddings
    >>> from skdpm.mixture.likelihoods import Subspace
    >>> X, y = make_embeddings(200, 40, n_clusters=3, random_state=0)
    >>> model = DPMixture(likelihood=Subspace(n_axes=4), n_chains=1, n_draws=50, random_state=0)
    >>> model.fit(X).likelihood_.axes_.shape
    (4, 40)

    Clusters differ along the first `n_axes` principal axes of the rows of `fit`. There, each
    cluster has a mean and a full covariance with the prior of `Gaussian`. Along the other axes all
    rows have the same law: normal, with a small probability of a far row. So a row costs n_axes²
    operations per cluster. Columns should have a common unit. Constant columns are left out.

    Parameters
    ----------
    n_axes : int, default=12
        Number of axes along which clusters differ, at most that of directions in which rows vary.
    mean, mean_precision, df, scale, hyperpriors
        As in ``Gaussian(covariance_type="full")``, for coordinates along the axes, of mean 0.

    Attributes
    ----------
    axes_ : ndarray of shape (n_axes, n_features)
        Orthonormal axes by decreasing variance of the rows. Set in `likelihood_`.
    center_ : ndarray of shape (n_features,)
        Mean of the rows, the origin of coordinates. Set in `likelihood_`.

    References
    ----------
    Bouveyron & Brunet-Saumard (2014), Model-based clustering of high-dimensional data: a review.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    has_points = True
    hyperparameters = ("mean", "mean_precision", "df", "scale")
    nan_hint = "use Gaussian() for missing entries, which Subspace refuses"

    n_axes: int = 12
    mean: object = None
    mean_precision: float | None = None
    df: float | None = None
    scale: object = None
    hyperpriors: dict | None = None

    def doubtful(self, X, least):
        if not isinstance(X, np.ndarray):
            return {}
        ends = self._recording.ends
        far = {} if ends is None else far_columns(X, *ends)
        return far | filled_columns(X, far)

    _keeps_columns = False
    keeping_columns = Gaussian.keeping_columns

    def suits_blocks(self, n_samples, n_features):
        return n_samples >= BLOCK_ROWS

    # What `resolve` learns.

    def summarise(self, X):
        """The summary of `Gaussian`, and the scatter matrix."""
        summary = Gaussian(covariance_type="diag").summarise(X)
        # Far entries do not turn the axes.
        X = bulk(np.ascontiguousarray(X, dtype=np.float64))
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            gaps = np.nan_to_num(X - summary["mean"], copy=False)
            return {**summary, "scatter": gaps.T @ gaps}

    merge_summaries = Gaussian.merge_summaries

    def resolve_summary(self, summary):
        n_axes = check_integer(self.n_axes, "Subspace.n_axes", low=1)
        # Raises errors about columns.
        Gaussian(covariance_type="diag").keeping_columns().resolve_summary(summary)
        center, varies = summary["mean"].copy(), summary["high"] > summary["low"]
        deviations = np.sqrt(summary["squares"] / np.maximum(summary["n"], 1))
        vary = np.where(varies, deviations**2, 0.0)
        recording = recording_in(summary, vary, of_stream=self._keeps_columns)
        constant = None if self._keeps_columns else projection_of({**summary, "scatter": None})
        if constant is not None and len(constant.columns):
            summary = columns_of(summary, constant.columns)
            deviations = deviations[constant.columns]
        else:
            constant = None
        n_axes = min(n_axes, len(summary["mean"]))
        n = summary["n"].max()
        extents = np.maximum(np.abs(summary["low"]), np.abs(summary["high"]))
        extent = extents.max()
        variances, axes = _principal_axes(summary, extent)
        _warn_of_units(deviations[deviations > ROUNDING * extents])
        if not hasattr(self, "axes_"):
            # Without axes along which nothing varies: clusters would have no width there. (A
            # likelihood that is resolved again, to check a batch, keeps its number of axes.)
            n_axes = max(1, min(n_axes, np.count_nonzero(variances)))
        lead, rest = np.ascontiguousarray(axes[:, :n_axes]), axes[:, n_axes:]
        inner = self._resolve_coordinates(summary, variances[:n_axes], extent)
        mean_variance = variances.mean() or (CONSTANT * extent) ** 2 or 1.0
        rest_spread = np.sqrt(_variances_of_rest(variances[n_axes:], n, n_axes, mean_variance))
        resolved = self._copy(n_axes=n_axes)
        resolved._recording = recording
        resolved.left_out = constant
        resolved.center_ = center
        resolved._lead, resolved._center = lead, summary["mean"]
        resolved.axes_ = np.zeros((n_axes, len(center)))
        resolved.axes_[:, resolved._columns] = lead.T
        resolved._rest = rest * rest_spread
        resolved._variances = np.zeros(len(center))
        resolved._variances[resolved._columns] = np.sum(resolved._rest**2, axis=1)
        if constant is not None:
            center[constant.left_out] = constant.origin[constant.left_out]
            resolved._variances[constant.left_out] = constant.errors**2
        resolved._whitening = np.ascontiguousarray(rest / rest_spread)
        resolved._log_peak = -np.log(rest_spread).sum()
        resolved._n_rows = int(n)
        return resolved._with(inner)

    def _resolve_coordinates(self, summary, variances, extent):
        """The likelihood of the coordinates on axes with these variances. A constant coordinate is
        allowed, with the variance of a constant column."""
        n, n_axes = summary["n"].max(), len(variances)
        spread = np.where(variances > 0.0, np.sqrt(variances), extent)
        low = np.where(variances > 0.0, -spread, spread)
        coordinates = {
            "n_rows": summary["n_rows"],
            "n": np.full(n_axes, n),
            "mean": np.zeros(n_axes),
            "squares": n * variances,
            "smallest": low,
            "largest": spread,
            "low": low,
            "high": spread,
            "at_ends": np.zeros(n_axes, dtype=bool),
            "missing": False,
            "head": np.empty((0, n_axes)),  # chains see the coordinates as they are
        }
        given = self.mean, self.mean_precision, self.df, self.scale
        try:
            gaussian = Gaussian(*given, hyperpriors=self.hyperpriors)
            return gaussian.keeping_columns().resolve_summary(coordinates)
        except ValueError as error:
            message = str(error).replace("Gaussian.", "Subspace.").replace("column", "axis")
            raise ValueError(message) from None

    @property
    def _columns(self):
        """The columns that are not left out."""
        return slice(None) if self.left_out is None else self.left_out.columns

    def _with(self, inner):
        """Take over the hyperparameters of the likelihood of the coordinates."""
        for name in self.hyperparameters:
            setattr(self, name, getattr(inner, name))
        self._inner = inner
        self.learned_priors = inner.learned_priors
        return self

    def at(self, values):
        return super().at(values)._with(self._inner.at(values))

    def without_learning(self):
        return super().without_learning()._with(self._inner.without_learning())

    def log_hyperprior(self, values):
        # A likelihood that is not resolved learns nothing.
        return self._inner.log_hyperprior(values) if self.learned else 0.0

    def draw_hyperparameters(self, rng):
        return self._inner.draw_hyperparameters(rng)

    # Rows.

    as_seen, copies = Gaussian.as_seen, Gaussian.copies

    def condense(self, X):
        return self._condensed(self.as_seen(X))

    def _condensed(self, X):
        X = self._varying(X)
        points, white = (rotate(X, self._center, by) for by in (self._lead, self._whitening))
        white = np.clip(white, -LARGEST, LARGEST)
        log_rest = log_of_rest((white**2).sum(axis=1), white.shape[1], self._n_rows)
        return np.column_stack([points, self._log_peak + log_rest]).view(Condensed)

    def _points(self, X):
        """Coordinates of rows, condensed or not."""
        if isinstance(X, Condensed):
            return np.asarray(X)[:, :-1]
        return rotate(self._varying(X), self._center, self._lead)

    def _varying(self, X):
        """Entries of the columns that are not left out, as `rotate` takes them."""
        return np.ascontiguousarray(X[:, self._columns], dtype=np.float64)

    def independent(self, X, completion=None):
        return X[:, self._columns]

    def log_constants(self, X):
        X = X if isinstance(X, Condensed) else self._condensed(X)
        return np.asarray(X)[:, -1].copy()

    def encode(self, X):
        return self.encode_new(X if isinstance(X, Condensed) else self.condense(X))

    def encode_new(self, X):
        X = X if isinstance(X, Condensed) else self._condensed(X)
        data = self._inner.encode_new(self._points(X))
        return read_only({**data, "log_constants": self.log_constants(X)})

    def tables(self, data, n_max):
        return self._inner.tables(data, n_max)

    def bind(self, data, tables):
        return self._inner.bind(data, tables).keep_log_constants(data["log_constants"])

    def coordinates(self, X):
        return standardised(self._points(X))

    def parametric(self, X):
        return self._inner.parametric(np.ascontiguousarray(self._points(X)))

    def divergences(self, params):
        return self._inner.divergences(params)

    # Clusters.

    def cluster_params(self, stats):
        """Posterior means, as in `Gaussian`: `means`, (n_clusters, n_features); `axis_means`,
        (n_clusters, n_axes), and `axis_covariances`, (n_clusters, n_axes, n_axes), of the
        coordinates along `axes_`."""
        params = self._inner.cluster_params(stats)
        return {
            "means": self.center_ + params["means"] @ self.axes_,
            "axis_means": params["means"],
            "axis_covariances": params["covariances"],
        }

    def moments(self, params, directions):
        along, rest = self.axes_ @ directions, self._rest.T @ directions[self._columns]
        covariances = along.T @ params["axis_covariances"] @ along + rest.T @ rest
        return params["means"] @ directions, covariances

    def column_posterior(self, stats, column):
        # The law of the linear combination of coordinates that gives the column.
        along = self.axes_[:, column]
        means, scales, df, rho = self._inner._structure.posterior(self._inner, stats)
        return (
            self.center_[column] + means @ along,
            rho,
            df - len(along) + 1.0,
            along @ scales @ along,
            float(self._variances[column]),
        )

    def column_means(self, stats, n_draws=None, rng=None):
        return normal_means(self, stats, len(self.center_), n_draws, rng)

    def laws(self, stats, rng=None):
        inner = self._inner.laws(stats, rng)
        shared = self._center, self._lead, self._rest, self._n_rows
        laws = SubspaceLaws(inner.loc, inner.scale, inner.df, *shared)
        if self.left_out is None:
            return laws
        places = self.left_out.columns, self.left_out.left_out
        constants = np.tile(self.center_[places[1]], (len(stats), 1))
        constant = ScaledLaws(constants, np.zeros_like(constants), np.full(len(stats), np.inf))
        return JointLaws(len(self.center_), [*places], [laws, constant])

    def background(self, X):
        return box(X, self.left_out)

    def draw_rows(self, stats, clusters, n_features, rng):
        points = self._inner.draw_rows(stats, clusters, len(self.axes_), rng)
        noise = rng.standard_normal((len(points), self._rest.shape[1]))
        X = np.tile(self.center_, (len(points), 1))
        X[:, self._columns] += points @ self._lead.T + noise @ self._rest.T
        return X


def _principal_axes(summary, extent):
    """Variances along the principal axes of rows, the largest first, 0 where they are rounding
    errors of entries of at most `extent`; and the axes, in columns."""
    counts = np.sqrt(np.maximum(summary["n"], 1))
    variances, axes = np.linalg.eigh(summary["scatter"] / np.outer(counts, counts))
    variances, axes = variances[::-1], axes[:, ::-1]
    # Signs with which the largest entry of each axis, a column, is positive.
    largest = np.abs(axes).argmax(axis=0)
    axes = axes * np.where(axes[largest, np.arange(len(axes))] < 0.0, -1.0, 1.0)
    # The rounding error of entries and of eigenvalues.
    noise = max((ROUNDING * extent) ** 2, SMALLEST_EIGENVALUE * variances[0])
    return np.where(variances > noise, variances, 0.0), axes


def _variances_of_rest(variances, n_rows, n_axes, mean_variance):
    """Variances of new rows along the other axes: those of the rows, of one more with the mean
    variance of all axes, and of as many with a shared variance as have the greatest evidence (the
    covariance is inverse Wishart). The mean and the first axes took a row each to fit."""
    size, left = len(variances), max(n_rows - n_axes - 1.0, 0.0)
    if size == 0:
        return variances
    shared = (n_rows * variances.mean() + mean_variance) / (left + 1.0)
    scales, df = mean_variance + ROWS_ALIKE * shared, 0.5 * (size + 2.0 + ROWS_ALIKE)
    logs = np.log(scales[:, None] + n_rows * variances).sum(axis=1)
    evidence = multigammaln(df + 0.5 * left, size) - multigammaln(df, size)
    evidence += size * df * np.log(scales) - (df + 0.5 * left) * logs
    best = evidence.argmax()
    return (n_rows * variances + scales[best]) / (left + 1.0 + ROWS_ALIKE[best])


def _warn_of_units(deviations):
    """Warn if a few columns would determine the axes."""
    if deviations.size and deviations.max() > MOST_UNEQUAL * np.median(deviations):
        warn(
            f"the largest standard deviation of a column is {deviations.max():.3g}, the median "
            f"{np.median(deviations):.3g}: the axes of Subspace follow columns of large numbers. "
            "Scale the columns, or choose likelihood=Gaussian()",
        )
