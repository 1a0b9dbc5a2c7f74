# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of rows in two columns."""

import math

import numpy as np
import scipy.linalg
import scipy.sparse as sp

from skdpm._validation import check_integer, is_dask
from skdpm.plotting._style import (
    DARK,
    cluster_colors,
    evenly,
    mixture_of,
    one_axis,
    tidy,
)

# Opacity of rows whose label is as good as any other, and of those that are certain.
PALEST, FULL = 0.12, 0.9

# Points of more rows than this are pixels in a vector graphic.
MOST_VECTORS = 2000

# Ellipses of more clusters than this are thin lines.
MOST_FILLED = 12

# Rows, and columns, of which all pairs are looked at, that tell which two columns to show.
ROWS_OF_CHOICE, COLUMNS_OF_CHOICE = 2000, 40


class ClustersDisplay:
    """Rows in two columns of X, coloured by cluster, with an ellipse around each cluster.

    The paler a row, the less surely it belongs to its cluster; a cluster is as pale as its rows
    are on average. Ellipses are at the posterior mean of a cluster's mean and one and two
    posterior mean standard deviations wide: of a normal law in two columns, 39 % and 86 % are
    within them.

    Parameters
    ----------
    points : ndarray of shape (n_rows, 2)
        The rows that are shown.
    labels : ndarray of shape (n_rows,), int
    certainty : ndarray of shape (n_rows,)
        From 0 to 1.
    means : ndarray of shape (n_clusters, 2), default=None
        None: no ellipses.
    covariances : ndarray of shape (n_clusters, 2, 2), default=None
    column_names : tuple of str, default=("column 0", "column 1")

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    points_ : matplotlib PathCollection
    ellipses_ : list of matplotlib Ellipse
        Of clusters 0, 1, ..., first all of one standard deviation, then all of two.
    numbers_ : list of matplotlib Text
        The clusters' numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import ClustersDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(-4, 1, size=(30, 2)), rng.normal(4, 1, size=(20, 2))]
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = ClustersDisplay.from_estimator(model, X)
    >>> len(display.ellipses_)
    4
    """

    def __init__(
        self,
        points,
        labels,
        certainty,
        *,
        means=None,
        covariances=None,
        column_names=("column 0", "column 1"),
    ):
        self.points = points
        self.labels = labels
        self.certainty = certainty
        self.means = means
        self.covariances = covariances
        self.column_names = column_names

    @classmethod
    def from_estimator(cls, estimator, X, columns=None, *, max_rows=20_000, ax=None):
        """Draw the clusters of a fitted mixture.

        Parameters
        ----------
        estimator : DPMixture or FiniteMixture
            Fitted; or a pipeline or search that ends in one. A pipeline's first steps are applied
            to X, and the picture is of what comes out of them.
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features)
            The rows of `fit`, which are those of `labels_`. Where the number of rows is another,
            new ones: they get the labels and the probabilities that the fit predicts.
        columns : pair of int or str, "discriminant" or None, default=None
            Numbers or names of two columns. None: the two in which the clusters are most apart,
            together (Wilks' lambda of the labels). "discriminant": the two linear combinations of
            all columns of numbers in which they are (Fisher's), counted from the mean of the rows;
            a view that may flatter the clusters, as it was found with the help of their labels.
        max_rows : int, default=20_000
            Of more rows, so many are shown, evenly spaced ones.
        ax : matplotlib Axes, default=None
            None: a new figure.

        Returns
        -------
        display : ClustersDisplay

        Raises
        ------
        ValueError
            Where X has no two columns of numbers, or is a dask array.
        """
        max_rows = check_integer(max_rows, "max_rows", low=1)
        if is_dask(X):
            raise ValueError(
                "ClustersDisplay needs rows in memory: compute a sample of those of the dask "
                "array, as in X[::100].compute()"
            )
        estimator, X, names = mixture_of(estimator, cls.__name__, X)
        n_rows = _n_rows(X)
        rows = evenly(n_rows, max_rows)
        of_fit = not is_dask(estimator.labels_) and n_rows == len(estimator.labels_)
        taken = X if len(rows) == n_rows else _rows_of(X, rows)
        labels = estimator.labels_[rows] if of_fit else estimator.predict(taken)
        if of_fit and hasattr(estimator, "label_samples_"):
            certainty = estimator.probabilities_[rows]
        else:
            certainty = estimator.predict_proba(taken)[np.arange(len(rows)), labels]
        n_columns = estimator.n_features_in_
        if n_columns < 2:
            raise ValueError("ClustersDisplay shows two columns, X has one: see DensityDisplay")
        if isinstance(columns, str) and columns == "discriminant":
            points, origin, directions = _discriminants(taken, labels, _with_moments(estimator))
            column_names = ("discriminant 1", "discriminant 2")
        else:
            if columns is None:
                columns = _most_apart(taken, labels, _with_moments(estimator))
            columns = _positions(columns, names, n_columns)
            points = np.column_stack([_checked_column(taken, d, names) for d in columns])
            origin, directions = np.zeros(n_columns), np.zeros((n_columns, 2))
            directions[columns, [0, 1]] = 1.0
            column_names = tuple(
                f"column {d}" if names is None else str(names[d]) for d in columns
            )
        means, covariances = _moments(estimator, origin, directions)
        display = cls(
            points,
            labels,
            certainty,
            means=means,
            covariances=covariances,
            column_names=column_names,
        )
        return display.plot(ax)

    def plot(self, ax=None):
        """Draw the clusters.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None: a new figure.

        Returns
        -------
        display : ClustersDisplay
        """
        ax = one_axis(self, ax, figsize=(5.6, 4.6))
        from matplotlib.lines import Line2D
        from matplotlib.patches import Ellipse
        from matplotlib.patheffects import withStroke

        n_rows = len(self.points)
        n_clusters = int(self.labels.max()) + 1 if n_rows else 0
        if self.means is not None:
            n_clusters = max(n_clusters, len(self.means))
        colors = cluster_colors(n_clusters)
        shades = np.column_stack([colors[self.labels], _opacity(self.certainty)])
        self.points_ = ax.scatter(
            *self.points.T,
            c=shades,
            s=float(np.clip(20_000.0 / max(n_rows, 1), 2.5, 22.0)),
            linewidths=0,
            rasterized=n_rows > MOST_VECTORS,
        )
        self.ellipses_ = []
        centres = {}
        if self.means is not None:
            centres = dict(enumerate(self.means))
            # Thinner where there are many.
            few = n_clusters <= MOST_FILLED
            width = 1.4 if few else 0.8
            # Clusters that hardly any draw has are as pale as their rows.
            sizes = np.bincount(self.labels, minlength=n_clusters)
            sure = np.bincount(self.labels, self.certainty, minlength=n_clusters)
            sure = _opacity(sure / np.maximum(sizes, 1))
            for n_deviations, strength in ((1.0, 1.0), (2.0, 0.5 if few else 0.25)):
                for k in range(len(self.means)):
                    size, angle = _extent(self.covariances[k])
                    ellipse = Ellipse(
                        self.means[k],
                        *(2.0 * n_deviations * size),
                        angle=angle,
                        facecolor=(*colors[k], 0.08 * sure[k] if few else 0.0),
                        edgecolor=(*(0.8 * colors[k]), strength * sure[k]),
                        linewidth=width,
                        zorder=2,
                    )
                    self.ellipses_.append(ax.add_patch(ellipse))
        else:
            for k in np.unique(self.labels):
                centres[k] = np.nanmedian(self.points[self.labels == k], axis=0)
        self.numbers_ = [
            ax.text(
                *centre,
                str(k),
                color=tuple(0.55 * colors[k]),
                weight="bold",
                ha="center",
                va="center",
                fontsize="medium" if n_clusters <= MOST_FILLED else "small",
                path_effects=[withStroke(linewidth=2.5, foreground="white", alpha=0.85)],
                clip_on=True,
                zorder=3,
            )
            for k, centre in centres.items()
        ]
        ax.set(xlabel=self.column_names[0], ylabel=self.column_names[1])
        keys = [
            Line2D([], [], ls="none", marker="o", ms=5, mew=0, color=DARK, alpha=_opacity(level))
            for level in (1.0, 0.75, 0.5)
        ]
        ax.legend(
            keys,
            ["certain", "75%", "50%"],
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=3,
            frameon=False,
            fontsize="small",
            handletextpad=0.1,
            columnspacing=0.9,
            borderaxespad=0.2,
        )
        tidy(ax)
        return self


def _opacity(certainty):
    return PALEST + (FULL - PALEST) * np.clip(certainty, 0.0, 1.0)


def _extent(covariance):
    """Standard deviations along the longer and the shorter axis, and the angle of the longer, in
    degrees."""
    variances, directions = np.linalg.eigh(covariance)
    x, y = directions[:, 1]
    return np.sqrt(np.maximum(variances[::-1], 0.0)), math.degrees(math.atan2(y, x))


def _n_rows(X):
    return X.shape[0] if hasattr(X, "shape") else len(X)


def _rows_of(X, rows):
    """Some rows of an array, a table or a list."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]


def _column(X, d):
    """One column as doubles."""
    if hasattr(X, "iloc"):
        column = X.iloc[:, d].to_numpy(dtype=np.float64, na_value=np.nan)
    elif sp.issparse(X):
        column = X[:, [d]].toarray()[:, 0]
    else:
        column = np.asarray(X)[:, d]
    return np.asarray(column, dtype=np.float64)


def _positions(columns, names, n_columns):
    """Numbers of columns that are given by number or by name."""
    if isinstance(columns, str) or len(columns) != 2:
        raise ValueError(f"columns must be two numbers or names of columns, got {columns!r}")
    positions = []
    for column in columns:
        if isinstance(column, str):
            if names is None or column not in names:
                known = "X has no names" if names is None else f"there are {', '.join(names)}"
                raise ValueError(f"no column is called {column!r}: {known}")
            positions.append(names.index(column))
            continue
        column = check_integer(column, "a column", low=-n_columns, high=n_columns - 1)
        positions.append(column % n_columns)
    return positions


def _checked_column(X, d, names):
    try:
        return _column(X, d)
    except (TypeError, ValueError):
        name = d if names is None else repr(names[d])
        raise ValueError(
            f"ClustersDisplay: column {name} of X holds no numbers; columns=(first, second) names "
            "two that do, and DensityDisplay shows one"
        ) from None


def _with_moments(estimator):
    """Columns in which clusters have means, or all where there are not two."""
    if hasattr(estimator.likelihood_, "parts"):
        columns = [
            d
            for name, _, where in estimator.likelihood_._bound()
            if {"means", "rates"} & estimator.cluster_params_[name].keys()
            for d in where
        ]
        if len(columns) > 1:
            return np.sort(columns)
    return np.arange(estimator.n_features_in_)


def _most_apart(X, labels, columns):
    """The two of some columns in which clusters are most apart: those of the smallest Wilks'
    lambda, |scatter within clusters| / |scatter|, in their order."""
    if len(columns) == 2:
        return tuple(columns)
    some = evenly(len(labels), ROWS_OF_CHOICE)
    X = _numbers(_rows_of(X, some))[:, columns]
    X, within, usable, _ = _standardised(X, labels[some])
    if len(usable) < 2:
        return tuple(columns[:2])
    best = np.sort(np.argsort((within**2).sum(axis=0), kind="stable")[:COLUMNS_OF_CHOICE])
    X, within = X[:, best], within[:, best]
    total, inner = X.T @ X, within.T @ within
    # A little of the unit matrix: for columns that are multiples of each other.
    ridge = 1e-6 * len(X)
    lambdas = _minors(inner, ridge) / _minors(total, ridge)
    lambdas[np.tril_indices(len(best))] = np.inf
    first, second = np.unravel_index(np.argmin(lambdas), lambdas.shape)
    return tuple(columns[usable[best[[first, second]]]])


def _discriminants(X, labels, columns):
    """Rows along the two directions in which clusters are most apart in some columns, the point
    that they are counted from, and the directions, (n_features, 2)."""
    some = evenly(len(labels), ROWS_OF_CHOICE)
    X = _numbers(X)
    chosen, within, usable, scale = _standardised(X[some][:, columns], labels[some])
    if len(usable) < 2:
        raise ValueError("discriminants need two columns of numbers that vary")
    inner = within.T @ within / len(within)
    # Shrunk a little towards the unit matrix: columns may be many, and multiples of each other.
    inner = 0.95 * inner + 0.05 * np.eye(len(inner)) * np.trace(inner) / max(len(inner), 1)
    inner += 1e-6 * np.eye(len(inner))
    _, vectors = scipy.linalg.eigh(chosen.T @ chosen / len(chosen), inner)
    leading = vectors[:, ::-1][:, :2]
    # The sign of a direction is free: its largest entry is positive.
    leading = leading * np.sign(leading[np.abs(leading).argmax(axis=0), [0, 1]])
    directions = np.zeros((X.shape[1], 2))
    directions[columns[usable]] = leading / scale[usable, None]
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    origin = np.nanmean(X, axis=0)
    return (X - origin) @ directions, origin, directions


def _numbers(X):
    """X as doubles, columns that hold no numbers as NaN."""
    if hasattr(X, "iloc"):
        return np.column_stack([_column_or_nan(X, d) for d in range(X.shape[1])])
    return X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)


def _column_or_nan(X, d):
    # Codes of categories are numbers that mean nothing.
    if X.dtypes.iloc[d].name == "category":
        return np.full(X.shape[0], np.nan)
    try:
        return _column(X, d)
    except (TypeError, ValueError):
        return np.full(X.shape[0], np.nan)


def _standardised(X, labels):
    """Columns that vary, in units of their standard deviations, missing entries at the mean; the
    same minus the means of clusters; which columns these are, and the units of all."""
    labels = np.unique(labels, return_inverse=True)[1]
    X = np.where(np.isnan(X).all(axis=0), 0.0, X)
    X = X - np.nanmean(X, axis=0)
    X = np.where(np.isnan(X), 0.0, X)
    scale = np.sqrt((X**2).mean(axis=0))
    usable = np.flatnonzero(scale > 0.0)
    X = X[:, usable] / scale[usable]
    sizes = np.bincount(labels)
    means = np.zeros((len(sizes), X.shape[1]))
    np.add.at(means, labels, X)
    return X, X - (means / sizes[:, None])[labels], usable, scale


def _minors(matrix, ridge):
    """Determinants of all 2 x 2 principal submatrices."""
    diagonal = np.diagonal(matrix) + ridge
    return np.outer(diagonal, diagonal) - matrix**2


def _moments(estimator, origin, directions):
    """Means and covariances of the clusters along two directions, (n_clusters, 2) and (n_clusters,
    2, 2), or None twice where the likelihood has none."""
    likelihood, params = estimator.likelihood_, estimator.cluster_params_
    if not hasattr(likelihood, "parts"):
        moments = _moments_of_part(likelihood, params, directions)
    else:
        # Parts are independent: what they add to a direction adds up.
        own = []
        known = np.zeros(len(directions), dtype=bool)
        for name, part, where in likelihood._bound():
            known[where] = True
            if directions[where].any():
                own.append(_moments_of_part(part, params[name], directions[where]))
        if directions[~known].any() or any(means is None for means, _ in own):
            return None, None
        moments = tuple(sum(terms) for terms in zip(*own, strict=True))
    means, covariances = moments
    return means if means is None else means - origin @ directions, covariances


def _moments_of_part(likelihood, params, directions):
    if "axis_covariances" in params:
        means = params["means"]
        covariances = likelihood.projected_covariances(params["axis_covariances"], directions)
        return means @ directions, covariances
    if "rates" in params:
        # Of a Poisson law, the variance is the mean.
        means = covariances = params["rates"]
    elif "means" in params and "covariances" in params:
        means, covariances = params["means"], params["covariances"]
    else:
        return None, None
    if covariances.ndim == 2:
        covariances = np.einsum("kd,da,db->kab", covariances, directions, directions)
    else:
        covariances = directions.T @ covariances @ directions
    return means @ directions, covariances
