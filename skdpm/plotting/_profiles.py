# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of what distinguishes clusters, and of which columns are in a clustering."""

import math
from dataclasses import KW_ONLY
from typing import Self

import numpy as np

from skdpm._validation import check_integer, check_real, parameters
from skdpm.plotting import _style as style

# Panels in a line, at most.
MOST_PANELS = 3
# Least width of a panel with its names where a given axis is divided, the height of its title and
# ticks and of a line, and that of the words below all panels, in inches.
LEAST_WIDTH, LEAST_HEIGHT, LEAST_LINE, BELOW = 2.7, 0.5, 0.15, 0.5


@parameters
class ProfilesDisplay(style.Display):
    """Columns that distinguish each cluster most, with how it differs from the other rows.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import ProfilesDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = np.r_[rng.normal(-4, 1, size=(30, 2)), rng.normal(4, 1, size=(20, 2))]
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = ProfilesDisplay.from_estimator(model)
    >>> len(display.axes_), len(display.dots_)
    (2, 4)

    A panel per cluster, all with one scale. A dot is the difference between the mean of the column
    (or the share of the category) in the cluster and in the other rows, in standard deviations
    within clusters, with its credible interval. It is hollow if the interval contains 0. The
    number beside a name is the mean or share in the cluster.

    Parameters
    ----------
    table : DataFrame
        Table of `DPMixture.describe`, or some of its lines. Panels and dots follow its order.
    level : float, default=0.9
        Probability of the intervals, for the label of the axis.
    n_clusters : int, default=None
        Number of all clusters, which is shown if `table` has fewer.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
        Axes of the clusters.
    figure_ : matplotlib Figure
    dots_ : list of matplotlib Line2D
        Dots of each line of `table`.
    intervals_ : list of matplotlib LineCollection
        Intervals of each cluster.
    """

    table: object
    _: KW_ONLY
    level: float = 0.9
    n_clusters: int | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator,
        X=None,
        *,
        max_columns=8,
        max_clusters=6,
        level=0.9,
        feature_names=None,
        ax=None,
    ) -> Self:
        """Draw what distinguishes the clusters of a fitted mixture.

        Parameters
        ----------
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features), default=None
            Rows of `fit`. Needed only after pickling.
        max_columns : int, default=8
            Largest number of columns and categories of a cluster: those that distinguish it most.
        max_clusters : int, default=6
            Largest number of clusters: those with the most rows.
        level : float, default=0.9
            Probability of the credible intervals.
        feature_names : list of str of length n_features, default=None
            Names of all columns to show. None: those of `fit`.
        """
        max_columns = check_integer(max_columns, "max_columns", low=1)
        max_clusters = check_integer(max_clusters, "max_clusters", low=1)
        level = check_real(level, "level", low=0.0, high=1.0)
        estimator, X, _ = cls._mixture(estimator, X)
        if estimator.n_clusters_ < 2:
            raise ValueError(
                f"{cls.__name__} compares clusters, and the mixture has one; see describe()"
            )
        table = estimator.describe(X, level=level)
        if feature_names is not None:
            n_features = estimator.n_features_in_
            if len(feature_names) != n_features:
                raise ValueError(f"feature_names must have {n_features} names")
            names = getattr(estimator, "feature_names_in_", range(n_features))
            renamed = dict(zip(names, feature_names, strict=True))
            table = table.rename(index=renamed, level="column")
        table = table.loc[: table.index.unique("cluster")[:max_clusters][-1]]
        by_size = table.assign(size=table["difference"].abs()).sort_values(
            ["cluster", "size"], ascending=[True, False], kind="stable"
        )
        # Of two categories one says all.
        same = by_size["kind"].eq("share").groupby(level=["cluster", "column"])
        pair = same.transform("sum").eq(2) & by_size.index.droplevel("category").duplicated()
        table = by_size[~pair].drop(columns="size").groupby(level="cluster").head(max_columns)
        return cls(table, level=level, n_clusters=estimator.n_clusters_).plot(ax)

    def plot(self, ax=None) -> Self:
        clusters = list(self.table.index.unique("cluster"))
        n_all = max(self.n_clusters or 0, len(clusters))
        longest = max(np.count_nonzero(self.table.index.isin([k], 0)) for k in clusters)
        most, is_divided = MOST_PANELS, hasattr(ax, "get_subplotspec")
        if is_divided:
            width, height = ax.get_window_extent().size / ax.figure.dpi
            most = int(np.clip(width / LEAST_WIDTH, 1, most))
            n_fitting = int((height - BELOW) / (LEAST_HEIGHT + LEAST_LINE * longest))
            clusters = clusters[: most * max(n_fitting, 1)]
        n_lines = math.ceil(len(clusters) / most)
        n_panels = math.ceil(len(clusters) / n_lines)
        size = (0.6 + 3.9 * n_panels, (1.1 + 0.27 * longest) * n_lines)
        # Axes of the user may be in any shape.
        shape = (n_lines, n_panels) if ax is None or is_divided else (1, len(clusters))
        panels = self._axes(ax, shape, size)
        for panel in panels[len(clusters) :]:
            panel.remove()
        self.axes_ = axes = panels[: len(clusters)]
        colors = style.colors_on(axes[0], len(clusters))
        self.dots_, self.intervals_ = [], []
        for k, panel, color in zip(clusters, axes, colors, strict=True):
            self._draw_cluster(panel, self.table.loc[[k]], color)
            n_rows = int(self.table.loc[[k], "n_rows"].iloc[0])
            panel.set_title(
                f"cluster {k} ({n_rows}\N{NO-BREAK SPACE}rows)", loc="left", fontsize="medium"
            )
        # One scale, with 0 on it.
        ends = np.array([panel.get_xlim() for panel in axes])
        for panel in axes:
            panel.set_xlim(min(0.0, *ends[:, 0]), max(0.0, *ends[:, 1]))
        words = "difference from the other rows, in typical spreads within a cluster\n"
        words += f"{self.level:.0%} interval, hollow if it contains 0"
        if n_all > len(clusters):
            words += f"; {len(clusters)} of {n_all} clusters shown"
        if ax is None:
            self.figure_.supxlabel(words, fontsize="small")
        else:
            label = axes[-n_panels].set_xlabel(words, fontsize="small", loc="left")
            one, last = (panel.get_window_extent() for panel in (axes[0], axes[n_panels - 1]))
            # What is beside the panel above it would make this narrower.
            width = 0.6 * one.width if is_divided else last.x1 - one.x0
            label.set_text(style.broken(label, width))
        return self

    def _draw_cluster(self, ax, table, color):
        y = np.arange(len(table))[::-1]
        found = table[["difference", "difference_low", "difference_high"]].to_numpy()
        difference, low, high = found.T
        ax.axvline(0.0, color=style.shade(ax, style.LIGHT), linewidth=1.0, zorder=0)
        self.intervals_.append(ax.hlines(y, low, high, color=color, linewidth=1.6))
        for at, value, *interval in zip(y, difference, low, high, strict=True):
            sure = interval[0] > 0.0 or interval[1] < 0.0
            inside = color if sure else style.shade(ax, 0.0)
            (dot,) = ax.plot(value, at, "o", color=color, markersize=4.5, mfc=inside)
            self.dots_.append(dot)
        ax.set_yticks(y, [_name(*line, self, ax) for line in table[["kind", "mean"]].itertuples()])
        ax.tick_params(axis="y", length=0, labelsize=style.size_of_lines(ax, len(table), 0.45))
        ax.set_ylim(-0.6, len(table) - 0.4)


def _name(index, kind, mean, display, ax):
    """Name of a line with its value in the cluster."""
    _, column, category = index
    words = f"column {column}" if isinstance(column, (int, np.integer)) else str(column)
    if not (isinstance(category, str) and category == ""):
        words += f" = {category}"
    words = display._shortened(words, ax)
    if kind != "share":
        mean = float(f"{mean:.3g}")
        return f"{words}  {mean:,.0f}" if abs(mean) >= 1000.0 else f"{words}  {mean:g}"
    return f"{words}  {mean:.0%}" if mean >= 0.01 else f"{words}  {100.0 * mean:.2g}%"


@parameters
class RelevanceDisplay(style.Display):
    """Probability of each column to be in the clustering, with the most relevant ones on top.

    >>> from skdpm.plotting import RelevanceDisplay
    >>> display = RelevanceDisplay([0.1, 1.0, 0.4], ["age", "price", "pets"]).plot()
    >>> [label.get_text() for label in display.ax_.get_yticklabels()]
    ['price', 'pets', 'age']

    Bars of columns that are more likely in than out are dark. A line marks one half.

    Parameters
    ----------
    relevance : ndarray of shape (n_columns,)
        Probabilities; NaN for a column that is not shown.
    names : sequence of str, default=None
        Names of the columns. None: "column 0" and so on.
    max_columns : int, default=40
        Largest number of bars: the columns with the largest probabilities.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    bars_ : matplotlib BarContainer
        Bars from top to bottom.
    columns_ : ndarray of shape (n_bars,)
        Position of the column of each bar.
    """

    relevance: np.ndarray
    names: list | None = None
    _: KW_ONLY
    max_columns: int = 40

    @classmethod
    def from_estimator(cls, estimator, *, max_columns=40, ax=None) -> Self:
        """Draw the relevance of the columns of a fit of ``Product(select=True)``.

        Parameters
        ----------
        max_columns : int, default=40
            Largest number of bars.
        """
        estimator, _, names = cls._mixture(estimator)
        if not hasattr(estimator, "relevance_"):
            raise ValueError(
                f"{cls.__name__} needs relevance_: fit with the likelihood "
                "Product(parts, select=True)"
            )
        return cls(estimator.relevance_, names, max_columns=max_columns).plot(ax)

    def plot(self, ax=None) -> Self:
        relevance = np.asarray(self.relevance, dtype=float)
        most = check_integer(self.max_columns, "max_columns", low=1)
        shown = np.flatnonzero(~np.isnan(relevance))
        self.columns_ = shown[np.argsort(-relevance[shown], kind="stable")][:most]
        values = relevance[self.columns_]
        ax = self._axis(ax, (5.0, 0.8 + 0.24 * len(values)))
        y = np.arange(len(values))
        colors = [
            style.shade(ax, 1.0 if value > 0.5 else style.PALE, style.MAIN) for value in values
        ]
        self.bars_ = ax.barh(y, values, height=0.7, color=colors)
        ax.axvline(0.5, color=style.ACCENT, linewidth=1.0, linestyle="--")
        ax.set_yticks(
            y, [self._shortened(style.column_name(d, self.names), ax) for d in self.columns_]
        )
        ax.tick_params(axis="y", length=0, labelsize=style.size_of_lines(ax, len(values), 0.6))
        ax.set(xlim=(0.0, 1.0), ylim=(len(values) - 0.4, -0.6))
        ax.set_xlabel("probability of being in the clustering", fontsize="small")
        return self
