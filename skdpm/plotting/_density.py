# SPDX-License-Identifier: BSD-3-Clause
"""The predictive density of one column, and what is not known of it.

A draw of the posterior is a partition. Given it, weights of clusters are a Dirichlet vector, and
means and variances have laws that the likelihood states (`column_posterior`): so each draw stands
for many densities. The mean is over all of them, in closed form where it has one; the band holds
their quantiles, point by point, of a few random densities for each draw. With draws of partitions
alone it would be too narrow, and have no width where all draws agree.
"""

import numpy as np
from scipy import stats as laws

from skdpm._validation import check_real, is_dask
from skdpm.plotting._clusters import _column, _n_rows, _positions
from skdpm.plotting._style import LIGHT, MAIN, cluster_colors, mixture_of, one_axis, tidy

# Points at which densities are computed, and random densities of the band.
N_POINTS, N_CURVES = 400, 500

# Variances of a cluster over which normal laws are averaged, where that is no Student law.
N_VARIANCES = 48

# Rows that are each a line below the density.
MOST_TICKS = 1000


class DensityDisplay:
    """Predictive density of one column, with a band for what is not known of it.

    The line is the density of a new row, averaged over the posterior: where X has one column, that
    of `score_samples`. The band holds, at each point, the given share of the densities that the
    posterior takes for possible. Thin lines are the clusters of the point estimate, times their
    weights.

    Parameters
    ----------
    grid : ndarray of shape (n_points,)
    density : ndarray of shape (n_points,)
    low, high : ndarray of shape (n_points,)
        The band.
    clusters : ndarray of shape (n_clusters, n_points), default=None
        Densities of clusters, times their weights.
    values : ndarray of shape (n_rows,), default=None
        Of rows, for a histogram and, of up to 1000 rows, lines below it.
    labels : ndarray of shape (n_rows,), int, default=None
        Their clusters, which colour the lines.
    level : float, default=0.9
    column_name : str, default="column 0"

    Attributes
    ----------
    ax_ : matplotlib Axes
    figure_ : matplotlib Figure
    line_ : matplotlib Line2D
    band_ : matplotlib PolyCollection
    cluster_lines_ : list of matplotlib Line2D
    histogram_ : matplotlib BarContainer or None
    rug_ : matplotlib LineCollection or None

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import DensityDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = DensityDisplay.from_estimator(model, X)
    >>> bool((display.low <= display.high).all())
    True
    """

    def __init__(
        self,
        grid,
        density,
        low,
        high,
        *,
        clusters=None,
        values=None,
        labels=None,
        level=0.9,
        column_name="column 0",
    ):
        self.grid = grid
        self.density = density
        self.low = low
        self.high = high
        self.clusters = clusters
        self.values = values
        self.labels = labels
        self.level = level
        self.column_name = column_name

    @classmethod
    def from_estimator(
        cls, estimator, X=None, column=None, *, level=0.9, grid=None, clusters=True, ax=None
    ):
        """Draw the density of a column under a fitted mixture of normal laws.

        Parameters
        ----------
        estimator : DPMixture or FiniteMixture
            Fitted with a Gaussian likelihood, `Subspace` included; or a pipeline or search that
            ends in one. A pipeline's first steps are applied to X, and the picture is of what
            comes out of them.
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features), default=None
            Rows for the histogram; those of `fit` are coloured by `labels_`. None: no histogram.
        column : int or str, default=None
            May be None where there is only one.
        level : float, default=0.9
            In (0, 1): what the band holds.
        grid : array-like of shape (n_points,), default=None
            Where the density is computed. None: 400 points, a little beyond the rows of X or what
            the clusters reach.
        clusters : bool, default=True
            Whether the clusters of the point estimate are shown.
        ax : matplotlib Axes, default=None
            None: a new figure.

        Returns
        -------
        display : DensityDisplay

        Raises
        ------
        ValueError
            Where the likelihood has no density of a column, or the column is not there.
        """
        level = check_real(level, "level", low=0.0, high=1.0)
        if is_dask(X):
            raise ValueError(
                "DensityDisplay needs rows in memory: compute a sample of those of the dask "
                "array, as in X[::100].compute()"
            )
        estimator, X, names = mixture_of(estimator, cls.__name__, X)
        n_columns = estimator.n_features_in_
        if column is None:
            if n_columns > 1:
                raise ValueError(f"X has {n_columns} columns: name the one to show (column=...)")
            column = 0
        column = _position(column, names, n_columns)
        stats = estimator._predictor.partition.stats
        estimate = _posterior(estimator.likelihood_, stats, column)
        values = labels = None
        if X is not None:
            values = _column(X, column)
            if not is_dask(estimator.labels_) and _n_rows(X) == len(estimator.labels_):
                labels = estimator.labels_
        if grid is None:
            grid = _reach(estimate, estimator.weights_, values)
        grid = np.asarray(grid, dtype=np.float64)
        mixtures = _mixtures(estimator, column)
        density, curves = _densities(mixtures, grid)
        tail = (1.0 - level) / 2.0
        low, high = np.quantile(curves, [tail, 1.0 - tail], axis=0)
        display = cls(
            grid,
            density,
            low,
            high,
            clusters=estimator.weights_[:, None] * _predictive(estimate, grid)
            if clusters
            else None,
            values=values,
            labels=labels,
            level=level,
            column_name=f"column {column}" if names is None else str(names[column]),
        )
        return display.plot(ax)

    def plot(self, ax=None):
        """Draw the density.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            None: a new figure.

        Returns
        -------
        display : DensityDisplay
        """
        ax = one_axis(self, ax, figsize=(5.6, 3.8))
        from matplotlib.collections import LineCollection

        self.histogram_ = self.rug_ = None
        if self.values is not None:
            values = self.values[np.isfinite(self.values)]
            bins = np.histogram_bin_edges(values, bins="auto")
            fewest = min(24, len(values) // 5 + 2)
            bins = np.linspace(bins[0], bins[-1], min(max(len(bins), fewest), 101))
            *_, self.histogram_ = ax.hist(
                values, bins=bins, density=True, color=LIGHT, label=f"{len(values)} rows"
            )
            if len(values) <= MOST_TICKS:
                colors = "0.3"
                if self.labels is not None:
                    colors = cluster_colors(self.labels.max() + 1)[self.labels]
                    colors = colors[np.isfinite(self.values)]
                self.rug_ = LineCollection(
                    [[(value, -0.035), (value, -0.01)] for value in values],
                    colors=colors,
                    linewidths=0.6,
                    transform=ax.get_xaxis_transform(),
                    clip_on=False,
                )
                ax.add_collection(self.rug_, autolim=False)
                ax.tick_params(axis="x", pad=8)
        self.band_ = ax.fill_between(
            self.grid,
            self.low,
            self.high,
            color=MAIN,
            alpha=0.28,
            linewidth=0,
            label=f"{self.level:.0%} band",
        )
        self.cluster_lines_ = []
        if self.clusters is not None and len(self.clusters) > 1:
            for curve, color in zip(
                self.clusters, cluster_colors(len(self.clusters)), strict=True
            ):
                self.cluster_lines_ += ax.plot(self.grid, curve, color=color, lw=1, ls="--")
            self.cluster_lines_[0].set_label("clusters")
        (self.line_,) = ax.plot(
            self.grid, self.density, color="#004C78", lw=1.8, label="predictive density"
        )
        handles, words = ax.get_legend_handles_labels()
        order = sorted(
            range(len(words)), key=lambda i: ("density" not in words[i], "band" not in words[i])
        )
        ax.legend(
            [handles[i] for i in order],
            [words[i] for i in order],
            loc="lower right",
            bbox_to_anchor=(1.0, 1.0),
            ncols=len(order),
            frameon=False,
            fontsize="small",
            handlelength=1.3,
            columnspacing=1.1,
            borderaxespad=0.2,
        )
        ax.set_xlim(self.grid.min(), self.grid.max())
        ax.set_ylim(bottom=0.0)
        ax.set(xlabel=self.column_name, ylabel="density")
        tidy(ax)
        return self


def _position(column, names, n_columns):
    return _positions((column, 0), names, n_columns)[0]


def _posterior(likelihood, stats, column):
    """`column_posterior` of a likelihood, or of the part of it that the column is in."""
    if hasattr(likelihood, "parts"):
        for _, part, where, own in likelihood._split_stats(stats):
            if column in where:
                return _posterior(part, own, list(where).index(column))
    if likelihood.column_posterior is None:
        raise ValueError(
            "DensityDisplay needs clusters that are normal in the column, as those of Gaussian "
            f"are; got {type(likelihood).__name__}"
        )
    return likelihood.column_posterior(stats, column)


def _mixtures(estimator, column):
    """The draws that densities are averaged over: list of (share, weights of the clusters and of
    a new one, number of rows and concentration together, their `column_posterior`)."""
    scored = estimator.draws_.scored
    concentrations = estimator.draws_["concentration"]
    mixtures = []
    for draw in scored.draws:
        stats = scored.stats[draw["clusters"]]
        stats = np.concatenate([stats, np.zeros((1, stats.shape[1]))])
        likelihood = estimator.likelihood_.at(draw["values"])
        total = stats[:, 0].sum() + concentrations[draw["chain"], draw["draw"]]
        weights = np.exp(draw["log_weights"])
        mixtures.append((draw["weight"], weights, total, _posterior(likelihood, stats, column)))
    return mixtures


def _predictive(posterior, grid):
    """Density of a new row of each cluster: (n_clusters, n_points)."""
    mean, rho, df, scale, rest = posterior
    factor = (rho + 1.0) / rho
    if rest == 0.0:
        spread = np.sqrt(scale * factor / df)
        return laws.t.pdf(grid, df[:, None], mean[:, None], spread[:, None])
    # The mean over variances, at the middles of ranges that are equally probable.
    shares = (np.arange(N_VARIANCES) + 0.5) / N_VARIANCES
    density = 0.0
    for chi in laws.chi2.ppf(shares[:, None], df):
        spread = np.sqrt(scale / chi * factor + rest)[:, None]
        density = density + np.exp(-0.5 * ((grid - mean[:, None]) / spread) ** 2) / spread
    return density / (N_VARIANCES * np.sqrt(2.0 * np.pi))


def _densities(mixtures, grid):
    """The mean density, and random ones: (n_points,), (n_curves, n_points)."""
    rng = np.random.default_rng(0)
    shares = np.array([share for share, *_ in mixtures])
    # Curves of each draw, by systematic sampling.
    ends = np.floor(np.cumsum(shares) * N_CURVES + 0.5).astype(int)
    repeats = np.diff(ends, prepend=0)
    density, curves = np.zeros(len(grid)), []
    for (share, weights, total, posterior), n_curves in zip(mixtures, repeats, strict=True):
        density += share * (weights @ _predictive(posterior, grid))
        if n_curves == 0:
            continue
        mean, rho, df, scale, rest = posterior
        held = rng.dirichlet(np.maximum(total * weights, 1e-12), size=n_curves)
        variance = scale / rng.chisquare(df, size=held.shape)
        centre = rng.normal(mean, np.sqrt(variance / rho))
        spread = np.sqrt(variance + rest)
        # What is left for clusters without rows has its expected density, as it is small.
        curve = held[:, -1:] * _predictive((mean[-1:], rho[-1:], df[-1:], scale[-1:], rest), grid)
        for k in range(held.shape[1] - 1):
            z = (grid - centre[:, k, None]) / spread[:, k, None]
            peak = held[:, k] / (spread[:, k] * np.sqrt(2.0 * np.pi))
            curve += peak[:, None] * np.exp(-0.5 * z**2)
        curves.append(curve)
    return density, np.concatenate(curves)


def _reach(posterior, weights, values):
    """A grid over the rows, or over what clusters reach where there are none."""
    if values is not None and np.isfinite(values).any():
        low, high = np.nanmin(values), np.nanmax(values)
        margin = 0.08 * (high - low)
    else:
        low = high = margin = 0.0
    if not high > low:
        mean, rho, df, scale, rest = posterior
        spread = np.sqrt(scale * (rho + 1.0) / (rho * df) + rest)
        large = weights >= 0.2 * weights.max()
        low = (mean - 3.5 * spread)[large].min()
        high = (mean + 3.5 * spread)[large].max()
    return np.linspace(low - margin, high + margin, N_POINTS)
