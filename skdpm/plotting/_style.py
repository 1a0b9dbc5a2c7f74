# SPDX-License-Identifier: BSD-3-Clause
"""Colours, axes, legends and access to estimators, shared by all displays."""

import colorsys
import functools
import inspect
import itertools
import math
import re
import textwrap
from typing import Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_n_features, check_is_fitted

from skdpm._estimator import ChainEstimator
from skdpm._tables import n_rows_of
from skdpm._validation import check_choice, check_integer, imported, is_dask
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.rows.noise import alone

# Distinct for any colour vision: six colours of Okabe & Ito (2008), three of Tol (2021).
PALETTE = (
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (230, 159, 0),
    (86, 180, 233),
    (204, 121, 167),
    (51, 34, 136),
    (136, 34, 85),
    (153, 153, 51),
)
# Shades for further clusters: darker (below 0) or lighter.
SHADES = (0.0, -0.4, 0.45)

# Share of the default size of a display below which its texts are smaller.
ROOM = 0.45
# Width of a letter, in font sizes.
WIDTH = 0.5
# Width of the key of a word in a legend, in letters.
KEY = 6

# Longest name of a column, in characters.
LONGEST_NAME = 28

# Colour of rows that are noise.
NOISE = (0.6, 0.6, 0.6)

# Colours of text and lines, and of background elements, between the background, 0, and text, 1.
DARK, LIGHT = 0.75, 0.18
# Colours of what is drawn, and their shares in paler ones.
MAIN, ACCENT, PALE, PALER = "#0072B2", "#D55E00", 0.4, 0.2
# Sum of red, green and blue of a background below which it is dark.
DIM = 1.5


def cluster_colors(n_clusters) -> np.ndarray:
    """Colours of clusters 0, 1, ... in all displays.

    >>> from skdpm.plotting import cluster_colors
    >>> cluster_colors(2).round(2)
    array([[0.  , 0.45, 0.7 ],
           [0.84, 0.37, 0.  ]])

    Parameters
    ----------
    n_clusters : int

    Returns
    -------
    colors : ndarray of shape (n_clusters, 3)
        Red, green and blue, from 0 to 1. The first nine are distinct for any colour vision;
        darker and lighter shades of them follow. From 27 on all differ, but some are alike.
    """
    base = np.array(PALETTE) / 255.0
    shaded = [base * (1.0 + s) if s < 0 else base + s * (1.0 - base) for s in SHADES]
    colors = np.concatenate(shaded)
    # Low-discrepancy sequences of hue, saturation and value.
    parts = np.arange(len(colors), n_clusters)[:, None] * [0.618, 0.755, 0.57] % 1.0
    further = [colorsys.hsv_to_rgb(h, 0.35 + 0.55 * s, 0.4 + 0.5 * v) for h, s, v in parts]
    return np.array([*colors, *further])[:n_clusters]


def is_dark(ax):
    """Whether the background of an axis is dark."""
    from matplotlib.colors import to_rgb

    return sum(to_rgb(ax.get_facecolor())) < DIM


def shade(ax, strength=DARK, color=None):
    """Colour between the background of an axis, 0, and a colour, 1, by default that of text. So
    pictures suit any style of matplotlib. On a dark axis shares are larger."""
    from matplotlib import rcParams
    from matplotlib.colors import to_rgb

    background = np.array(to_rgb(ax.get_facecolor()))
    color = np.array(to_rgb(rcParams["text.color"] if color is None else color))
    strength = strength**0.75 if is_dark(ax) else strength
    return tuple(background + strength * (color - background))


def readable(ax, color, strength):
    """A colour of `cluster_colors` for text: a share of it, and for the rest that of text."""
    strength = min(strength, 0.6) if is_dark(ax) else strength
    return tuple(strength * np.asarray(color) + (1.0 - strength) * np.array(shade(ax, 1.0)))


def ramp(ax, cmap, color=None):
    """A colour map, None: from the background of an axis to a colour, and on towards text."""
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    ends = [shade(ax, 0.0), shade(ax, 1.0, color)]
    ends += [] if color is None else [readable(ax, to_rgb(color), 0.6)]
    made = LinearSegmentedColormap.from_list("skdpm", ends)
    return cmap or made.with_extremes(bad=shade(ax, LIGHT, ACCENT))


def colors_on(ax, n_clusters):
    """`cluster_colors`, of which dark ones are lighter on a dark axis: (n_clusters, 3)."""
    colors = cluster_colors(n_clusters)
    least = 0.35 if is_dark(ax) else 0.0
    luminance = colors @ [[0.2126], [0.7152], [0.0722]]
    return colors + np.maximum(least - luminance, 0.0) / (1.0 - luminance) * (1.0 - colors)


def colors_of_rows(ax, labels):
    """Colours of rows by their clusters, grey for noise, -1: (n_rows, 3)."""
    colors = colors_on(ax, int(np.max(labels, initial=-1)) + 1)
    return np.vstack([colors, NOISE])[labels]


# First and last parameters in the docstrings of `from_estimator`, the same for all displays.
ESTIMATOR = "----------\nestimator : fitted estimator, or a pipeline or search that ends in one"
DRAWN = """
ax : matplotlib Axes or array-like of Axes, default=None
    Axis, or axes, to draw on, as in `plot`. None: a new figure.

Returns
-------
display : {}
    Display, which has been drawn.
"""


class Display:
    """Base class of displays."""

    def __init_subclass__(cls):
        """Describe what all `from_estimator` take and return, and let texts fit on small axes."""
        method = cls.from_estimator.__func__
        words = inspect.cleandoc(method.__doc__ or "").replace("----------", ESTIMATOR, 1)
        method.__doc__ = words + DRAWN.format(cls.__name__)
        plot = cls.plot

        @functools.wraps(plot)
        def plot_in_context(self, *args, **options):
            plt = imported("matplotlib.pyplot", cls.__name__, "'skdpm[plotting]'")
            with plt.rc_context():
                plot(self, *args, **options)
                self._keep_font_size()
            return self

        cls.plot = plot_in_context

    def __new__(cls, *args, **kwargs):
        if args and isinstance(args[0], BaseEstimator):
            raise TypeError(
                f"{cls.__name__} is made of arrays; a fitted estimator is drawn by "
                f"{cls.__name__}.from_estimator"
            )
        return super().__new__(cls)

    def plot(self, ax=None) -> Self:
        """Draw the display, also again or elsewhere.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of Axes, default=None
            Axis to draw on. A display with `axes_` draws on that many, or divides the one axis of
            a grid (``plt.subplots``) that is given. None: a new figure.

        Returns
        -------
        self : Display
            This object, with the figure and its parts as attributes.
        """
        raise NotImplementedError

    def _axis(self, ax, figsize, framed=False):
        """Axis to draw on, new if none is given, without a frame at the top and the right unless
        `framed`; sets `ax_` and `figure_`."""
        from matplotlib import pyplot as plt

        if ax is None:
            _, ax = plt.subplots(figsize=figsize, layout="compressed" if framed else "constrained")
        self.ax_ = ax
        self._prepare([ax], figsize, framed)
        return ax

    def _axes(self, ax, shape, figsize, framed=False, **ratios):
        """Axes in rows and columns, a shape; sets `axes_`, flattened, and `figure_`. `ratios` are
        `width_ratios` and `height_ratios`."""
        from matplotlib import pyplot as plt

        n_axes = shape[0] * shape[1]
        if ax is None:
            figure = plt.figure(figsize=figsize, layout="constrained")
            axes = figure.subplots(*shape, squeeze=False, gridspec_kw=ratios)
        elif hasattr(ax, "get_subplotspec"):
            spec = ax.get_subplotspec()
            if spec is None:
                raise ValueError(
                    f"{type(self).__name__} draws on {n_axes} axes: pass that many, or one axis "
                    "of a grid (plt.subplots) to be divided"
                )
            ax.set_axis_off()
            axes = spec.subgridspec(*shape, **ratios).subplots(squeeze=False)
        else:
            axes = np.asarray(ax, dtype=object)
            if axes.size != n_axes:
                raise ValueError(
                    f"{type(self).__name__} draws on {n_axes} axes, but got {axes.size}"
                )
        self.axes_ = axes.ravel()
        self._prepare(self.axes_, figsize, framed)
        return self.axes_

    def _prepare(self, axes, figsize, framed):
        """Remove frames, and make all texts smaller on axes that have less than a share, `ROOM`,
        of the place on a figure of this size."""
        from matplotlib import rcParams
        from matplotlib.transforms import Bbox

        self.figure_ = axes[0].figure
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(framed)
        place = Bbox.union([ax.get_window_extent() for ax in axes]).size / axes[0].figure.dpi
        share = float(np.min(place / (ROOM * np.array(figsize))))
        self._resized = list(axes) if share < 1.0 else []
        if not self._resized:
            return
        rcParams["font.size"] *= share
        for ax in axes:
            texts = ax.xaxis.label, ax.yaxis.label, ax.title, ax._left_title, ax._right_title
            for text in (*texts, ax.xaxis.offsetText, ax.yaxis.offsetText):
                text.set_fontsize("medium")
            ax.tick_params(labelsize="medium", length=3.5 * share, pad=3.5 * share)

    def _keep_font_size(self):
        """On small axes keep later ticks as small as earlier ones, and few; break long labels."""
        from matplotlib.ticker import MaxNLocator

        bar = getattr(self, "colorbar_", None)
        for ax in [*self._resized, *([] if bar is None or not self._resized else [bar.ax])]:
            width, height = ax.get_window_extent().size
            ax._left_title.set_text(broken(ax._left_title, 0.6 * width))
            for axis, length in ((ax.xaxis, width), (ax.yaxis, height)):
                if isinstance(axis.get_major_locator(), MaxNLocator):
                    axis.get_major_locator().set_params(nbins=3 if letters(ax) > 24 else 2)
                for tick in axis.get_major_ticks()[:1]:
                    axis.set_tick_params(labelsize=tick.label1.get_fontsize())
                if axis.label.get_horizontalalignment() == "center":
                    axis.label.set_text(broken(axis.label, 0.7 * length))

    def _add_colorbar(self, image, ax, label):
        self.colorbar_ = self.figure_.colorbar(image, ax=ax, label=label, shrink=0.85)
        self.colorbar_.outline.set_visible(False)

    def _shortened(self, words, ax):
        """Words of at most `LONGEST_NAME` characters, and half of a small axis; units go first."""
        most = min(LONGEST_NAME, max(letters(ax) // 2, 6)) if self._resized else LONGEST_NAME
        words = words if len(words) <= most else re.sub(r" *\([^()]*\)$", "", words)
        end = most // 2 - 1  # names often differ at their ends
        return words if len(words) <= most else f"{words[: most - end - 1]}…{words[-end:]}"

    @classmethod
    def _mixture(cls, estimator, X=None):
        """As `unwrapped`, for mixtures only, and X in memory."""
        if is_dask(X):
            raise ValueError(
                f"{cls.__name__} needs rows in memory: compute a sample of the dask array, as in "
                "X[::100].compute()"
            )
        estimator, X, names = unwrapped(estimator, X)
        if not isinstance(estimator, BaseMixture):
            raise TypeError(
                f"{cls.__name__} takes a DPMixture or FiniteMixture; got {estimator!r}"
            )
        if X is not None:
            _check_n_features(estimator, X, reset=False)
        return estimator, X, names

    @classmethod
    def _partitions(cls, estimator, of="clusters"):
        """All draws of the clusters or components of a mixture: (n_draws, n_samples)."""
        check_choice(of, "of", ("clusters", "components"))
        estimator._check_label_draws(cls.__name__, "ClustersDisplay")
        draws = estimator.cluster_samples_ if of == "clusters" else estimator.label_samples_
        draws = draws.reshape(-1, draws.shape[-1])
        # Rows that are noise, -1, share no cluster.
        return alone(draws) if draws.dtype.kind == "i" else draws


def letters(ax):
    """Number of small letters that fit into the width of an axis."""
    from matplotlib import rcParams

    inches = ax.get_window_extent().width / ax.figure.dpi
    return max(int(72.0 * inches / (WIDTH * 0.833 * rcParams["font.size"])), 1)


def size_of_lines(ax, n_lines, share=0.8, side=1):
    """Size of small text, in points, of which so many lines fill a share of the height of an axis,
    or, with side 0, of its width."""
    from matplotlib import rcParams

    length = 72.0 * ax.get_window_extent().size[side] / ax.figure.dpi
    return min(0.833 * rcParams["font.size"], share * length / max(n_lines, 1))


def broken(label, length):
    """The words of a matplotlib Text, in lines that fit into a length in pixels."""
    most = int(length / (label.figure.dpi / 72.0 * label.get_fontsize() * WIDTH))
    lines = label.get_text().splitlines()
    parts = [textwrap.wrap(line, max(most, 1), break_long_words=False) for line in lines]
    return "\n".join(itertools.chain(*parts))


def legend_above(ax, handles, words, **options):
    """Put a legend above an axis, at its right end, in one line if that is wide enough."""
    n_letters = sum(map(len, words)) + KEY * len(words)
    n_lines = math.ceil(n_letters / letters(ax))
    ax.legend(
        handles,
        words,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        ncols=math.ceil(len(words) / n_lines),
        frameon=False,
        fontsize="small",
        columnspacing=1.0,
        borderaxespad=0.2,
        **options,
    )


def mark_estimate(ax, at, estimate, words="point estimate"):
    """Mark the place of a point estimate, x and y, or none, by a triangle."""
    (triangle,) = ax.plot(*at, "v", color=ACCENT, ms=8, label=f"{words}: {estimate}")
    return triangle


def labels_of_fit(estimator, X):
    """Clusters from 0 if X has as many rows as the fit and both are in memory, else None."""
    labels = estimator._clusters
    return None if is_dask(labels) or n_rows_of(X) != len(labels) else labels


def unwrapped(estimator, X=None):
    """The fitted estimator within a search or a pipeline, and X transformed by the steps before
    it. Last, the names of the columns of the fit, or None."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    names = None
    if isinstance(estimator, Pipeline):
        before = estimator[:-1]
        if X is not None and len(before.steps):
            X = before.transform(X)
        estimator = estimator[-1]
    check_is_fitted(estimator)
    if not isinstance(estimator, ChainEstimator):
        raise TypeError(
            "displays take DPMixture, FiniteMixture or FeatureAllocation, or a pipeline or search "
            f"that ends in one; got {type(estimator).__name__}"
        )
    if hasattr(estimator, "feature_names_in_"):
        names = list(estimator.feature_names_in_)
    elif hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    return estimator, X, names


def whole_numbers(axis, **options):
    """Put ticks of a matplotlib Axis at whole numbers."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, **options))


def column_name(column, names):
    """Name of a column, given those of all, or None."""
    return f"column {column}" if names is None else str(names[column])


def evenly(n, max_rows):
    """Positions of at most `max_rows`, a parameter of displays, evenly spaced items among n."""
    most = min(n, check_integer(max_rows, "max_rows", low=1))
    return np.arange(most) * n // max(most, 1)
