# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of rows in two columns."""

import math
from dataclasses import KW_ONLY
from functools import partial
from typing import Self

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from sklearn.decomposition import PCA

from skdpm._tables import called, n_rows_of, numeric_column, numeric_columns, take_rows
from skdpm._validation import check_integer, parameters
from skdpm.mixture.likelihoods.composite.tables import positions_of
from skdpm.plotting import _style as style

# Opacity of rows with an arbitrary label, and of rows with a certain one.
PALEST, FULL = 0.12, 0.9

# Points of more rows than this are pixels in a vector graphic.
MOST_VECTORS = 2000

# Ellipses of more clusters than this are thin lines.
MOST_FILLED = 12

# Fewest rows of a cluster whose number may cover some; it is above fewer.
FEWEST_COVERED = 5

# Smallest share of its cluster at which a component has an ellipse.
LEAST_SHARE = 0.05

# Numbers of rows and of columns that are compared to choose two columns.
ROWS_OF_CHOICE, COLUMNS_OF_CHOICE = 2000, 40


@parameters
class ClustersDisplay(style.Display):
    """Rows in two columns of X, coloured by cluster, with ellipses for their components.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import ClustersDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(-4, 1, size=(30, 2)), rng.normal(4, 1, size=(20, 2))]
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = ClustersDisplay.from_estimator(model, X)
    >>> len(display.ellipses_)
    4

    Pale rows are uncertain members of their cluster; a cluster is as pale as its rows are on
    average. Ellipses show the posterior mean of a component's mean, and one and two posterior mean
    standard deviations: 39 % and 86 % of a normal law in two columns. A cluster of several
    components (a hill of the density) has an ellipse of one deviation for each. Rows of a fit
    with `VonMisesFisher` are shown at unit length, without ellipses. Whole numbers are moved by up
    to 0.3 at random, so that rows do not hide each other.

    Parameters
    ----------
    points : ndarray of shape (n_rows, 2)
        Rows shown.
    labels : ndarray of shape (n_rows,), int
    certainty : ndarray of shape (n_rows,)
        Probabilities that rows belong to their clusters.
    means : ndarray of shape (n_components, 2), default=None
        Means of the components. None: no ellipses.
    covariances : ndarray of shape (n_components, 2, 2), default=None
    owners : ndarray of shape (n_components,), int, default=None
        Cluster of each component. None: component k is cluster k.
    column_names : tuple of str, default=("column 0", "column 1")
    names : array-like of int of shape (n_clusters,), default=None
        Numbers of the clusters to show. None: 0, 1, ...
    max_clusters : int, default=20
        Largest number of clusters that are not grey: those with the most rows.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    points_ : matplotlib PathCollection
    ellipses_ : list of matplotlib Ellipse
        Ellipses of one standard deviation for the components in order, then those of two for
        clusters with a single component.
    numbers_ : list of matplotlib Text
        Numbers of the clusters.
    """

    points: np.ndarray
    labels: np.ndarray
    certainty: np.ndarray
    _: KW_ONLY
    means: np.ndarray | None = None
    covariances: np.ndarray | None = None
    owners: np.ndarray | None = None
    column_names: tuple = ("column 0", "column 1")
    names: np.ndarray | None = None
    max_clusters: int = 20

    @classmethod
    def from_estimator(
        cls, estimator, X, columns=None, *, max_rows=20_000, max_clusters=20, ax=None
    ) -> Self:
        """Draw the clusters of a fitted mixture, in X as the steps of a pipeline transform it.

        Parameters
        ----------
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features)
            Rows of `fit`, or another number of new rows, shown with predicted labels.
        columns : pair of int or str, "discriminant", "principal" or None, default=None
            Two columns. "discriminant": the two linear combinations of numeric columns that
            separate clusters best (Fisher's), which flatter clusters, as they use their labels.
            "principal": the two principal axes of numeric columns. None: the two columns that
            separate the clusters best (Wilks' lambda of the labels), or "principal" for
            `VonMisesFisher` with more than two columns.
        max_rows : int, default=20_000
            Largest number of rows shown; of more rows, evenly spaced ones are shown.
        max_clusters : int, default=20
            Largest number of clusters that are not grey.
        """
        max_clusters = check_integer(max_clusters, "max_clusters", low=1)
        estimator, X, names = cls._mixture(estimator, X)
        n_rows = n_rows_of(X)
        rows = style.evenly(n_rows, max_rows)
        fitted = style.labels_of_fit(estimator, X)
        taken = X if len(rows) == n_rows else take_rows(X, rows)
        labels = estimator._numbers(estimator.predict(taken)) if fitted is None else fitted[rows]
        if fitted is not None and hasattr(estimator, "label_samples_"):
            certainty = estimator.probabilities_[rows]
        else:
            proba = estimator.predict_proba(taken)
            proba = np.column_stack([proba, 1.0 - proba.sum(axis=1)])  # noise, -1, is the last
            certainty = proba[np.arange(len(rows)), labels]
        n_columns = estimator.n_features_in_
        if n_columns < 2:
            raise ValueError("ClustersDisplay shows two columns, X has one: see DensityDisplay")
        likelihood = estimator.likelihood_
        params, weights, owners = estimator._predictor.components()
        if estimator.n_clusters_ == 0:
            raise ValueError("ClustersDisplay needs a cluster; all rows of the fit are noise")
        with_means = likelihood.columns_with_means(params, n_columns)
        if likelihood.reads_directions:
            taken = sp.csr_array(taken) if sp.issparse(taken) else numeric_columns(taken)
            taken = likelihood.scaled(taken)
            if columns is None and n_columns > 2:
                columns = "principal"
        if columns is None:
            columns = most_apart(taken, labels, with_means)
        plane = _plane(taken, columns, labels, with_means, names, n_columns)
        points, origin, directions, column_names = plane
        means, covariances = likelihood.moments(params, directions)
        if means is not None:
            shown = weights >= LEAST_SHARE * estimator.weights_[owners]
            means, covariances = (means - origin @ directions)[shown], covariances[shown]
            owners = owners[shown]
        return cls(
            points,
            labels,
            certainty,
            means=means,
            covariances=covariances,
            owners=owners,
            column_names=column_names,
            names=getattr(estimator, "classes_", None),
            max_clusters=max_clusters,
        ).plot(ax)

    def plot(self, ax=None) -> Self:
        ax = self._axis(ax, figsize=(5.6, 4.6))
        from matplotlib.lines import Line2D

        n_rows, owners = len(self.points), np.arange(0)
        if self.means is not None:
            owners = np.asarray(np.arange(len(self.means)) if self.owners is None else self.owners)
        n_clusters = 1 + max(int(np.max(each, initial=-1)) for each in (self.labels, owners))
        sizes = np.bincount(self.labels[self.labels >= 0], minlength=n_clusters)
        named = np.zeros(n_clusters, dtype=bool)
        named[np.argsort(-sizes, kind="stable")[: self.max_clusters]] = True
        shown = np.where(np.append(named, False)[self.labels], self.labels, -1)
        rng = np.random.default_rng(0)
        points = np.column_stack([_jittered(column, rng) for column in self.points.T])
        self.points_ = ax.scatter(
            *points.T,
            c=np.column_stack([style.colors_of_rows(ax, shown), _opacity(self.certainty)]),
            s=float(np.clip(20_000.0 / max(n_rows, 1), 2.5, 22.0)),
            linewidths=0,
            rasterized=n_rows > MOST_VECTORS,
        )
        if self.means is None:
            clusters = np.flatnonzero(named & (sizes > 0))
            centres = {k: np.nanmedian(self.points[self.labels == k], axis=0) for k in clusters}
        else:
            # The number of a cluster is at its largest component, the first.
            first = np.unique(owners, return_index=True)[1]
            centres = {owners[k]: self.means[k] for k in first if named[owners[k]]}
        self._draw_ellipses(ax, owners, named, sizes)
        self._draw_numbers(ax, centres, sizes)
        ax.set(xlabel=self.column_names[0], ylabel=self.column_names[1])
        dot = partial(Line2D, [], [], ls="none", marker="o", ms=5, mew=0, color=style.shade(ax))
        keys = [dot(alpha=_opacity(level)) for level in (1.0, 0.75, 0.5)]
        words, n_others = ["certain", "75%", "50%"], n_clusters - int(named.sum())
        if n_others:
            keys.append(dot(color=style.NOISE))
            words.append(f"{n_others} other clusters")
        style.legend_above(ax, keys, words, handletextpad=0.1)
        return self

    def _draw_ellipses(self, ax, owners, named, sizes):
        """Draw ellipses of the components of the clusters that are `named`; sets `ellipses_`."""
        from matplotlib.patches import Ellipse

        self.ellipses_ = []
        colors, few = style.colors_on(ax, len(named)), named.sum() <= MOST_FILLED
        inside = self.labels >= 0
        sure = np.bincount(self.labels[inside], self.certainty[inside], len(named))
        sure = _opacity(sure / np.maximum(sizes, 1))
        shown, single = np.flatnonzero(named[owners]), np.bincount(owners)[owners] == 1
        pairs = [(j, 1.0, 1.0) for j in shown]
        pairs += [(j, 2.0, 0.5 if few else 0.25) for j in shown if single[j]]
        for j, n_deviations, strength in pairs:
            k = owners[j]
            variances, directions = np.linalg.eigh(self.covariances[j])
            x, y = directions[:, 1]  # the longer axis
            deviations = np.sqrt(np.maximum(variances[::-1], 0.0))
            ellipse = Ellipse(
                self.means[j],
                *(2.0 * n_deviations * deviations),
                angle=math.degrees(math.atan2(y, x)),
                facecolor=(*colors[k], 0.08 * sure[k] if few else 0.0),
                edgecolor=(*style.readable(ax, colors[k], 0.8), strength * sure[k]),
                linewidth=1.4 if few else 0.8,
                zorder=2,
            )
            self.ellipses_.append(ax.add_patch(ellipse))

    def _draw_numbers(self, ax, centres, sizes):
        """Write the numbers of clusters at their centres; sets `numbers_`."""
        from matplotlib.patheffects import withStroke

        halo = withStroke(linewidth=2.5, foreground=style.shade(ax, 0.0), alpha=0.85)
        colors = style.colors_on(ax, len(sizes))
        self.numbers_ = [
            ax.annotate(
                str(k if self.names is None else self.names[k]),
                centre,
                (0.0, 0.0 if sizes[k] >= FEWEST_COVERED else 9.0),
                textcoords="offset points",
                color=style.readable(ax, colors[k], 0.55),
                weight="bold",
                ha="center",
                va="center",
                fontsize="medium" if len(centres) <= MOST_FILLED else "small",
                path_effects=[halo],
                annotation_clip=True,
                zorder=3,
            )
            for k, centre in centres.items()
        ]


def _jittered(column, rng):
    """A column of repeated whole numbers, moved at random; any other as it is."""
    known = column[np.isfinite(column)]
    if (known != np.round(known)).any() or len(np.unique(known)) > len(known) // 2:
        return column
    return column + rng.uniform(-0.3, 0.3, len(column))


def _opacity(certainty):
    return PALEST + (FULL - PALEST) * np.clip(certainty, 0.0, 1.0)


def _plane(X, columns, labels, with_means, names, n_columns):
    """Rows in the plane that is shown, its origin and directions, and the names of its axes."""
    if isinstance(columns, str) and columns == "discriminant":
        return *discriminants(X, labels, with_means), ("discriminant 1", "discriminant 2")
    if isinstance(columns, str) and columns == "principal":
        return *principals(X, with_means), ("principal axis 1", "principal axis 2")
    asked = [] if isinstance(columns, str) else columns
    if len(at := positions_of(asked, n_columns, names, None, "columns").tolist()) != 2:
        raise ValueError(
            f'columns must be two numbers or names, "discriminant" or "principal", got {columns!r}'
        )
    points = np.column_stack([_checked_column(X, d, names) for d in at])
    origin, directions = np.zeros(n_columns), np.zeros((n_columns, 2))
    directions[at, [0, 1]] = 1.0
    return points, origin, directions, tuple(style.column_name(d, names) for d in at)


def _checked_column(X, d, names):
    try:
        return numeric_column(X, d)
    except (TypeError, ValueError):
        what = f"{called(d, names)} holds no numbers; choose two columns of numbers"
        raise ValueError(f"{what}, as in columns=(0, 1)") from None


# Columns and directions in which clusters are far apart, or rows vary.


def _rows_of_clusters(labels):
    """Positions of evenly spaced rows that are not noise."""
    some = np.flatnonzero(labels >= 0)
    return some[style.evenly(len(some), ROWS_OF_CHOICE)]


def most_apart(X, labels, columns):
    """The two columns, among those given, with the smallest Wilks' lambda of the labels:
    |scatter within clusters| / |scatter|."""
    if len(columns) == 2:
        return tuple(columns)
    some = _rows_of_clusters(labels)
    X = numeric_columns(take_rows(X, some))[:, columns]
    X, within, usable, _ = _standardised(X, labels[some])
    if len(usable) < 2:
        return tuple(columns[:2])
    best = np.sort(np.argsort((within**2).sum(axis=0), kind="stable")[:COLUMNS_OF_CHOICE])
    X, within = X[:, best], within[:, best]
    total, inner = X.T @ X, within.T @ within
    # A small ridge, for columns that are multiples of each other.
    ridge = 1e-6 * len(X)
    lambdas = _minors(inner, ridge) / _minors(total, ridge)
    lambdas[np.tril_indices(len(best))] = np.inf
    first, second = np.unravel_index(np.argmin(lambdas), lambdas.shape)
    return tuple(columns[usable[best[[first, second]]]])


def discriminants(X, labels, columns):
    """Rows along Fisher's two best directions, their origin, and directions, (n_features, 2)."""
    some, X = _rows_of_clusters(labels), numeric_columns(X)
    chosen, within, usable, scale = _standardised(X[some][:, columns], labels[some])
    if len(usable) < 2:
        raise ValueError("discriminants need two columns of numbers that vary")
    inner = within.T @ within / len(within)
    # Shrunk towards the unit matrix: there may be many columns, or collinear ones.
    inner = 0.95 * inner + 0.05 * np.eye(len(inner)) * np.trace(inner) / max(len(inner), 1)
    inner += 1e-6 * np.eye(len(inner))
    _, vectors = scipy.linalg.eigh(chosen.T @ chosen / len(chosen), inner)
    leading = vectors[:, ::-1][:, :2]
    # The sign of a direction is free: its largest entry is positive.
    leading = leading * np.sign(leading[np.abs(leading).argmax(axis=0), [0, 1]])
    directions = np.zeros((X.shape[1], 2))
    directions[columns[usable]] = leading / scale[usable, None]
    X = _without_empty(X)
    origin = np.nanmean(X, axis=0)
    return (X - origin) @ directions, origin, directions


def principals(X, columns):
    """Rows along the two principal axes of numeric columns, their origin, and the directions,
    (n_features, 2). X may be a CSR array."""
    sparse = sp.issparse(X)
    if not sparse:
        X = _without_empty(numeric_columns(X))
    some = X[style.evenly(X.shape[0], ROWS_OF_CHOICE)][:, columns]
    if min(some.shape) < 3:
        raise ValueError(
            "principal axes need three rows and three columns of numbers; choose two columns, as "
            "in columns=(0, 1)"
        )
    origin = np.zeros(X.shape[1])
    if sparse:
        origin[columns] = np.asarray(some.mean(axis=0)).ravel()
    else:
        origin[columns] = np.nanmean(some, axis=0)
        some = np.where(np.isnan(some), origin[columns], some)
    axes = PCA(2, svd_solver="arpack", random_state=0).fit(some).components_
    directions = np.zeros((X.shape[1], 2))
    directions[columns] = axes.T
    return X @ directions - origin @ directions, origin, directions


def _without_empty(X):
    return np.where(np.isnan(X).all(axis=0), 0.0, X)


def _standardised(X, labels):
    """Columns that vary, standardised, with missing entries at the mean; the same minus the means
    of clusters; positions of these columns; standard deviations of all."""
    labels = np.unique(labels, return_inverse=True)[1]
    X = _without_empty(X)
    X = np.nan_to_num(X - np.nanmean(X, axis=0))
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
