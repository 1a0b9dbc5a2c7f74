# SPDX-License-Identifier: BSD-3-Clause
"""The predictive density of one column, with its uncertainty.

A draw of the posterior is a partition. Given the partition, the weights of the clusters are a
Dirichlet vector, and means and variances follow the laws in `Likelihood.column_posterior`. So each
draw stands for many densities. The line is the mean over all of them. The band holds pointwise
quantiles of a few random densities for each draw; without random weights, means and variances it
would be too narrow, and would have no width where all draws agree.
"""

from dataclasses import KW_ONLY
from typing import Self

import numpy as np
from scipy import stats as laws

from skdpm._tables import numeric_column
from skdpm._validation import check_real, parameters
from skdpm.mixture.likelihoods.composite.registry import with_role
from skdpm.mixture.likelihoods.composite.tables import positions_of
from skdpm.plotting import _style as style

# Number of points of the grid, and of random densities for the band.
N_POINTS, N_CURVES = 400, 500

# Number of variances in the average of normal laws that is not a Student law.
N_VARIANCES = 48

# Largest number of rows shown as lines below the density.
MOST_TICKS = 1000


@parameters
class DensityDisplay(style.Display):
    """Predictive density of one column, with a credible band.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import DensityDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = DensityDisplay.from_estimator(model, X)
    >>> bool((display.low <= display.high).all())
    True

    The line is the density of a new row, averaged over the posterior; with one column it equals
    that of `score_samples`. The band is a pointwise credible interval for the density. Thin lines
    are the clusters of the point estimate, times their weights.

    Parameters
    ----------
    grid : ndarray of shape (n_points,)
        Points of the column.
    density : ndarray of shape (n_points,)
    low, high : ndarray of shape (n_points,)
        Limits of the band.
    clusters : ndarray of shape (n_clusters, n_points), default=None
        Densities of clusters, times their weights.
    values : ndarray of shape (n_rows,), default=None
        Values of the column for a histogram and, for up to 1000 rows, lines below it.
    labels : ndarray of shape (n_rows,), int, default=None
        Clusters of these rows, which colour the lines.
    level : float, default=0.9
    column_name : str, default="column 0"

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    line_ : matplotlib Line2D
    band_ : matplotlib PolyCollection
    cluster_lines_ : list of matplotlib Line2D
    histogram_ : matplotlib BarContainer or None
    rug_ : matplotlib LineCollection or None
    """

    grid: np.ndarray
    density: np.ndarray
    low: np.ndarray
    high: np.ndarray
    _: KW_ONLY
    clusters: np.ndarray | None = None
    values: np.ndarray | None = None
    labels: np.ndarray | None = None
    level: float = 0.9
    column_name: str = "column 0"

    @classmethod
    def from_estimator(
        cls, estimator, X=None, column=None, *, level=0.9, grid=None, clusters=True, ax=None
    ) -> Self:
        """Draw the density of a column, as transformed, under a mixture (Gaussian or `Subspace`).

        Parameters
        ----------
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features), default=None
            Rows for the histogram; those of `fit` are coloured by `labels_`. None: no histogram.
        column : int or str, default=None
            Number or name of the column; may be None if there is only one.
        level : float, default=0.9
            Probability of the band, in (0, 1).
        grid : array-like of shape (n_points,), default=None
            Points at which the density is computed. None: 400 points, a little beyond the range
            of X or of the clusters.
        clusters : bool, default=True
            Whether the clusters of the point estimate are shown.
        """
        level = check_real(level, "level", low=0.0, high=1.0)
        estimator, X, names = cls._mixture(estimator, X)
        n_columns = estimator.n_features_in_
        if column is None:
            if n_columns > 1:
                raise ValueError(f"X has {n_columns} columns; choose one, as in column=0")
            column = 0
        (column,) = positions_of([column], n_columns, names, None, "column").tolist()
        estimate = estimator._predictor.column_posterior(column)
        if estimate is None:
            raise ValueError(
                "DensityDisplay needs a column that is normal or Student in every cluster, which "
                f"{' and '.join(with_role('column_posterior'))} have; "
                f"{type(estimator.likelihood_).__name__} has another law for it. Use "
                'ProfilesDisplay, or likelihood="gaussian" if the column holds measurements'
            )
        _, weights, owners = estimator._predictor.components()
        values = labels = None
        if X is not None:
            values = numeric_column(X, column)
            labels = style.labels_of_fit(estimator, X)
        if grid is None:
            grid = _reach(estimate, weights, values)
        grid = np.asarray(grid, dtype=np.float64)
        mixtures = _mixtures(estimator, column)
        background = estimator._predictor.background
        of_noise = None
        if background is not None:
            of_noise = np.exp(background.column(column).log_density(grid)[:, 0])
        density, curves = _densities(mixtures, grid, of_noise)
        tail = (1.0 - level) / 2.0
        low, high = np.quantile(curves, [tail, 1.0 - tail], axis=0)
        curves = None
        if clusters:
            curves = np.zeros((estimator.n_clusters_, len(grid)))
            np.add.at(curves, owners, weights[:, None] * _predictive(estimate, grid))
        return cls(
            grid,
            density,
            low,
            high,
            clusters=curves,
            values=values,
            labels=labels,
            level=level,
            column_name=style.column_name(column, names),
        ).plot(ax)

    def plot(self, ax=None) -> Self:
        ax = self._axis(ax, figsize=(5.6, 3.8))
        from matplotlib.collections import LineCollection
        from matplotlib.colors import to_rgb

        self.histogram_ = self.rug_ = None
        if self.values is not None:
            values = self.values[np.isfinite(self.values)]
            bins = np.histogram_bin_edges(values, bins="auto")
            fewest = min(24, len(values) // 5 + 2)
            bins = np.linspace(bins[0], bins[-1], min(max(len(bins), fewest), 101))
            look = {"color": style.shade(ax, style.LIGHT), "label": f"{len(values)} rows"}
            *_, self.histogram_ = ax.hist(values, bins=bins, density=True, **look)
            if len(values) <= MOST_TICKS:
                colors = [style.shade(ax)]
                if self.labels is not None:
                    colors = style.colors_of_rows(ax, self.labels)
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
            color=style.MAIN,
            alpha=0.4 if style.is_dark(ax) else 0.28,
            linewidth=0,
            label=f"{self.level:.0%} band",
        )
        self.cluster_lines_ = []
        if self.clusters is not None and len(self.clusters) > 1:
            colors = style.colors_on(ax, len(self.clusters))
            for curve, color in zip(self.clusters, colors, strict=True):
                self.cluster_lines_ += ax.plot(self.grid, curve, color=color, lw=1, ls="--")
            self.cluster_lines_[0].set_label("clusters")
        (self.line_,) = ax.plot(
            self.grid,
            self.density,
            color=style.readable(ax, to_rgb(style.MAIN), 0.66),
            lw=1.8,
            label="predictive density",
        )
        bars = [] if self.histogram_ is None else self.histogram_.patches[:1]
        parts = [self.line_, self.band_, *self.cluster_lines_[:1], *bars]
        style.legend_above(ax, parts, [part.get_label() for part in parts], handlelength=1.3)
        ax.set_xlim(self.grid.min(), self.grid.max())
        ax.set_ylim(bottom=0.0)
        ax.yaxis.offsetText.set_horizontalalignment("right")  # beside the legend
        ax.set(xlabel=self.column_name, ylabel="density")
        return self


def _mixtures(estimator, column):
    """The scored draws: list of (share, weights of the clusters and of a new one, number of rows
    plus concentration, weight of noise, `column_posterior`)."""
    concentrations, predictor = estimator.draws_["concentration"], estimator._predictor
    mixtures = []
    for draw in predictor.scored.draws:
        stats = predictor.scored.stats[draw["clusters"]]
        stats = np.pad(stats, ((0, 1), (0, 0)))  # and an empty cluster
        posterior = predictor.likelihood.at(draw["values"]).column_posterior(stats, column)
        total = stats[:, 0].sum() + concentrations[draw["chain"], draw["draw"]]
        noise = draw.get("noise_weight", 0.0)
        mixtures.append((draw["weight"], np.exp(draw["log_weights"]), total, noise, posterior))
    return mixtures


def _predictive(posterior, grid):
    """Density of a new row of each cluster: (n_clusters, n_points)."""
    mean, rho, df, scale, rest = posterior
    factor = (rho + 1.0) / rho
    if rest == 0.0:
        spread = np.sqrt(scale * factor / df)
        return laws.t.pdf(grid, df[:, None], mean[:, None], spread[:, None])
    # Mean over variances at the midpoints of equally probable ranges.
    shares = (np.arange(N_VARIANCES) + 0.5) / N_VARIANCES
    density = 0.0
    for chi in laws.chi2.ppf(shares[:, None], df):
        spread = np.sqrt(scale / chi * factor + rest)[:, None]
        density = density + np.exp(-0.5 * ((grid - mean[:, None]) / spread) ** 2) / spread
    return density / (N_VARIANCES * np.sqrt(2.0 * np.pi))


def _densities(mixtures, grid, of_noise=None):
    """Mean density, and random densities: (n_points,), (n_curves, n_points). `of_noise` is the
    density of rows that are noise."""
    rng = np.random.default_rng(0)
    shares = np.array([share for share, *_ in mixtures])
    # Curves of each draw, by systematic sampling.
    ends = np.floor(np.cumsum(shares) * N_CURVES + 0.5).astype(int)
    repeats = np.diff(ends, prepend=0)
    density, curves = np.zeros(len(grid)), []
    for (share, weights, total, noise, posterior), n_curves in zip(mixtures, repeats, strict=True):
        density += share * (weights @ _predictive(posterior, grid))
        if noise > 0.0:
            density += share * noise * of_noise
        if n_curves == 0:
            continue
        mean, rho, df, scale, rest = posterior
        held = rng.dirichlet(np.maximum(total * weights, 1e-12), size=n_curves) * (1.0 - noise)
        variance = scale / rng.chisquare(df, size=held.shape)
        centre = rng.normal(mean, np.sqrt(variance / rho))
        spread = np.sqrt(variance + rest)
        # The small mass of new clusters has its expected density.
        curve = held[:, -1:] * _predictive((mean[-1:], rho[-1:], df[-1:], scale[-1:], rest), grid)
        for k in range(held.shape[1] - 1):
            z = (grid - centre[:, k, None]) / spread[:, k, None]
            peak = held[:, k] / (spread[:, k] * np.sqrt(2.0 * np.pi))
            curve += peak[:, None] * np.exp(-0.5 * z**2)
        if noise > 0.0:
            curve += noise * of_noise
        curves.append(curve)
    return density, np.concatenate(curves)


def _reach(posterior, weights, values):
    """Grid over the values or, without values, over the clusters."""
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
