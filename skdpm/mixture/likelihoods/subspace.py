# SPDX-License-Identifier: BSD-3-Clause
"""Gaussian clusters in a subspace: for many columns."""

import warnings

import numpy as np

from skdpm._validation import check_integer
from skdpm.mixture.likelihoods._subspace import rotate
from skdpm.mixture.likelihoods.base import Likelihood, read_only
from skdpm.mixture.likelihoods.coordinates import standardised
from skdpm.mixture.likelihoods.gaussian import Gaussian

# Below this share of the largest entry, what varies is mostly rounding; the standard deviation of
# what is constant counts as the second share.
ROUNDING, CONSTANT = 1e-12, 1e-6

# Eigenvalues are told from 0 by this share of the largest.
SMALLEST_EIGENVALUE = 1e-13
# The largest standard deviation of a column, in terms of the median: beyond it, it sets the axes.
MOST_UNEQUAL = 100.0

# Of a row so far off that its density is 0.
LEAST = -1e300


class Condensed(np.ndarray):
    """Rows as `Subspace.condense` makes them: their coordinates, and log p of the rest."""


class Subspace(Likelihood):
    """Gaussian clusters along the principal axes of the data, for many columns.

    Clusters differ along the first `n_axes` principal axes of the rows of `fit`: there each has a
    mean and a full covariance with the prior of `Gaussian`. Along the other axes all rows have one
    normal law, that of the data. So a row weighs n_axes² numbers per cluster, however many columns
    there are, and hundreds of columns of noise cannot drown the few directions in which clusters
    are apart.

    Parameters
    ----------
    n_axes : int, default=12
        Axes along which clusters differ; no more than there are columns, or directions in which
        the rows vary at all.
    mean, mean_precision, df, scale : float, array-like or None, default=None
        Those of ``Gaussian(covariance_type="full")``, of the coordinates along the axes; those of
        the data have mean 0. None: learned, as there.

    Attributes
    ----------
    axes_ : ndarray of shape (n_axes, n_features)
        Of a resolved likelihood, as estimators have it in `likelihood_`: orthonormal, those along
        which the rows vary most first; the largest entry of each is positive.
    center_ : ndarray of shape (n_features,)
        The mean of the rows, from which coordinates are counted.

    Notes
    -----
    Columns should have a unit in common, as those of embeddings, pixels or spectra do: an axis
    follows columns of large numbers. Otherwise scale them first. The axes and the law along the
    others are a function of the rows of `fit`, and known from then on: what is learned is given
    them. The variance along each other axis is that of the rows and one more, which counts with
    the mean variance of a column: new rows may differ where those of `fit` do not.

    The density of a row is that of all its columns, so that `score` can be compared with that of
    any other likelihood. With as many axes as columns it is ``Gaussian()`` in other coordinates.

    References
    ----------
    Bouveyron & Brunet-Saumard (2014), Model-based clustering of high-dimensional data: a review.

    Examples
    --------
    >>> from skdpm import DPMixture
    >>> from skdpm.datasets import make_embeddings
    >>> from skdpm.mixture.likelihoods import Subspace
    >>> X, y = make_embeddings(200, 40, n_clusters=3, random_state=0)
    >>> model = DPMixture(likelihood=Subspace(n_axes=4), n_chains=1, n_draws=50, random_state=0)
    >>> model.fit(X).likelihood_.axes_.shape
    (4, 40)
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    hyperparameters = ("mean", "mean_precision", "df", "scale")
    many_columns = True
    nan_hint = Gaussian.nan_hint

    def __init__(
        self,
        n_axes=12,
        mean=None,
        mean_precision=None,
        df=None,
        scale=None,
        hyperpriors=None,
    ):
        self.n_axes = n_axes
        self.mean = mean
        self.mean_precision = mean_precision
        self.df = df
        self.scale = scale
        self.hyperpriors = hyperpriors

    # What `resolve` learns.

    def summarise(self, X):
        """That of `Gaussian`, and the scatter matrix."""
        X = np.ascontiguousarray(X, dtype=np.float64)
        summary = Gaussian().summarise(X)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            gaps = X - summary["mean"]
            return {**summary, "scatter": gaps.T @ gaps}

    def merge_summaries(self, first, second):
        merged = Gaussian().merge_summaries(first, second)
        weight = first["n"][0] * second["n"][0] / max(merged["n"][0], 1)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = second["mean"] - first["mean"]
            between = weight * np.outer(gap, gap)
            merged["scatter"] = first["scatter"] + second["scatter"] + between
        return merged

    def resolve_summary(self, summary):
        n_features = len(summary["mean"])
        n_axes = min(check_integer(self.n_axes, "Subspace.n_axes", low=1), n_features)
        Gaussian(covariance_type="diag").resolve_summary(summary)  # refuses columns, by number
        n = summary["n"][0]
        variances, axes = np.linalg.eigh(summary["scatter"] / max(n, 1))
        variances, axes = variances[::-1], _oriented(axes[:, ::-1])
        extent = max(np.abs(summary["smallest"]).max(), np.abs(summary["largest"]).max())
        # What eigenvalues are rounded to, and numbers.
        noise = max((ROUNDING * extent) ** 2, SMALLEST_EIGENVALUE * variances[0])
        variances = np.where(variances > noise, variances, 0.0)
        extents = np.maximum(np.abs(summary["smallest"]), np.abs(summary["largest"]))
        deviations = np.sqrt(summary["squares"] / np.maximum(summary["n"], 1))
        _warn_of_units(deviations[deviations > ROUNDING * extents])
        if not hasattr(self, "axes_"):
            # Axes along which nothing varies would tell of clusters of no width. (Resolved again,
            # to see whether a batch may be learned, it keeps as many as it has.)
            n_axes = max(1, min(n_axes, np.count_nonzero(variances)))
        lead, rest = np.ascontiguousarray(axes[:, :n_axes]), axes[:, n_axes:]
        # A coordinate that is constant is refused nowhere, and has the variance of such a column.
        spread = np.where(variances > 0.0, np.sqrt(variances), extent)[:n_axes]
        coordinates = {
            "n": summary["n"][:n_axes],
            "mean": np.zeros(n_axes),
            "squares": n * variances[:n_axes],
            "smallest": np.where(variances[:n_axes] > 0.0, -spread, spread),
            "largest": spread,
            "missing": False,
            "head": rotate(summary["head"], summary["mean"], lead),
        }
        try:
            inner = self._gaussian().resolve_summary(coordinates)
        except ValueError as error:
            message = str(error).replace("Gaussian.", "Subspace.").replace("column", "axis")
            raise ValueError(message) from None
        mean_variance = variances.mean() or (CONSTANT * extent) ** 2 or 1.0
        rest_spread = np.sqrt((n * variances[n_axes:] + mean_variance) / (n + 1.0))
        resolved = self._copy(n_axes=n_axes)
        resolved.center_ = summary["mean"]
        resolved.axes_ = lead.T
        resolved._lead = lead
        resolved._rest = rest * rest_spread
        resolved._whitening = np.ascontiguousarray(rest / rest_spread)
        resolved._log_peak = -np.log(np.sqrt(2.0 * np.pi) * rest_spread).sum()
        return resolved._with(inner)

    def _gaussian(self):
        return Gaussian(
            self.mean, self.mean_precision, self.df, self.scale, hyperpriors=self.hyperpriors
        )

    def _with(self, inner):
        """Take the values of the likelihood of the coordinates, and what it has learnt."""
        for name in self.hyperparameters:
            setattr(self, name, getattr(inner, name))
        self._inner = inner
        self._hyperpriors = inner.learned_priors
        return self

    def at(self, values):
        return super().at(values)._with(self._inner.at(values))

    def without_learning(self):
        return super().without_learning()._with(self._inner.without_learning())

    def log_hyperprior(self, values):
        # One that is not resolved learns nothing.
        return self._inner.log_hyperprior(values) if self.learned else 0.0

    def draw_hyperparameters(self, rng):
        return self._inner.draw_hyperparameters(rng)

    # Rows.

    def condense(self, X):
        points = rotate(X, self.center_, self._lead)
        squares = rotate(X, self.center_, self._whitening) ** 2
        log_rest = self._log_peak - 0.5 * squares.sum(axis=1)
        return np.column_stack([points, np.maximum(log_rest, LEAST)]).view(Condensed)

    def _points(self, X):
        """Coordinates of rows, condensed or not."""
        if isinstance(X, Condensed):
            return np.asarray(X)[:, :-1]
        return rotate(X, self.center_, self._lead)

    def log_constants(self, X):
        X = X if isinstance(X, Condensed) else self.condense(X)
        return np.asarray(X)[:, -1].copy()

    def encode(self, X):
        X = X if isinstance(X, Condensed) else self.condense(X)
        data = self._inner.encode(self._points(X))
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
        """`means`: (n_clusters, n_features); `axis_means` and `axis_covariances`: (n_clusters,
        n_axes) and (n_clusters, n_axes, n_axes), of the coordinates along `axes_`.

        Posterior means, as those of `Gaussian`.
        """
        params = self._inner.cluster_params(stats)
        return {
            "means": self.center_ + params["means"] @ self.axes_,
            "axis_means": params["means"],
            "axis_covariances": params["covariances"],
        }

    def moments(self, params, directions):
        along, rest = self.axes_ @ directions, self._rest.T @ directions
        covariances = along.T @ params["axis_covariances"] @ along + rest.T @ rest
        return params["means"] @ directions, covariances

    def column_posterior(self, stats, column):
        # Of the sum of the coordinates times what the axes have of the column.
        along = self.axes_[:, column]
        means, scales, df, rho = self._inner._structure.posterior(self._inner, stats)
        return (
            self.center_[column] + means @ along,
            rho,
            df - len(along) + 1.0,
            along @ scales @ along,
            float(np.sum(self._rest[column] ** 2)),
        )

    def centres(self, stats):
        return self.cluster_params(stats)["means"]

    def draw(self, stats, rng):
        points = self._inner.draw(stats, rng)
        noise = rng.standard_normal((len(points), self._rest.shape[1]))
        return self.center_ + points @ self.axes_ + noise @ self._rest.T

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((12, 3)) * [1.0, 2.0, 0.5] + 1.0
        yield cls(n_axes=2), X
        yield cls(n_axes=1, mean=0.5, mean_precision=0.3, df=1.5, scale=0.7), X
        yield cls(), X


def _warn_of_units(deviations):
    """Say so where a few columns would set the axes."""
    if deviations.size and deviations.max() > MOST_UNEQUAL * np.median(deviations):
        warnings.warn(
            f"the largest standard deviation of a column is {deviations.max():.3g}, the median "
            f"{np.median(deviations):.3g}: the axes of Subspace follow columns of large numbers. "
            "Scale the columns, or choose likelihood=Gaussian()",
            UserWarning,
            stacklevel=2,
        )


def _oriented(axes):
    """The sign of an axis is free: the largest entry of each, a column, is positive."""
    largest = np.abs(axes).argmax(axis=0)
    return axes * np.where(axes[largest, np.arange(axes.shape[1])] < 0.0, -1.0, 1.0)
