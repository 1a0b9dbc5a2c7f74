# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of feature allocations."""

import math
from dataclasses import KW_ONLY
from typing import Self

import numpy as np

from skdpm._validation import check_integer, parameters
from skdpm.features.estimators import FeatureAllocation
from skdpm.plotting import _style as style

# Columns that are named below a heat map, at most.
MOST_NAMES = 30

# Share of a tile that is left free beside it.
GAP = 0.15


@parameters
class FeaturesDisplay(style.Display):
    """Components of the features, as a heat map or as images, and which rows have them.

    >>> from skdpm import FeatureAllocation
    >>> from skdpm.datasets import make_cambridge_bars
    >>> from skdpm.plotting import FeaturesDisplay
    >>> X, _, _ = make_cambridge_bars(40, random_state=0)
    >>> model = FeatureAllocation(n_chains=1, n_warmup=50, n_draws=20, random_state=0).fit(X)
    >>> display = FeaturesDisplay.from_estimator(model, image_shape=(6, 6))
    >>> display.allocations.shape == (40, model.n_components_)
    True

    Features are numbered by decreasing use, and have the colours of clusters. Rows are ordered by
    the features that they have: first those that have feature 0.

    Parameters
    ----------
    components : ndarray of shape (n_components, n_columns)
    allocations : ndarray of shape (n_rows, n_components), bool
        Features of the rows, which are in the order of the picture.
    rows : ndarray of shape (n_rows,), int
        Numbers of these rows in X.
    sizes : ndarray of shape (n_components,), int
        Number of rows of X with each feature.
    image_shape : tuple (height, width), default=None
        Shape of the image that each row of `components` holds. None: rows are lines of a heat map.
    column_names : list of str, default=None
    what : str, default="component"
        Name of the quantity that `components` holds, for the colorbar.

    Attributes
    ----------
    axes_ : ndarray of 2 matplotlib Axes
        Axes of the components and of the allocations.
    figure_ : matplotlib Figure
    components_im_ : matplotlib AxesImage
    allocations_im_ : matplotlib AxesImage
    numbers_ : list of matplotlib Text
        Numbers of the features above their images; empty for a heat map.
    colorbar_ : matplotlib Colorbar
    """

    components: np.ndarray
    allocations: np.ndarray
    rows: np.ndarray
    sizes: np.ndarray
    _: KW_ONLY
    image_shape: tuple | None = None
    column_names: list | None = None
    what: str = "component"

    @classmethod
    def from_estimator(
        cls, estimator, *, image_shape=None, max_features=36, max_rows=2000, ax=None
    ) -> Self:
        """Draw the features of a fitted feature allocation.

        Parameters
        ----------
        image_shape : tuple (height, width), default=None
            Where columns of X are pixels, line by line. None: a heat map.
        max_features : int, default=36
            Of more features, so many are shown: those that most rows have.
        max_rows : int, default=2000
            Of more rows, so many are shown: evenly spaced ones in the order of the picture.
        """
        max_features = check_integer(max_features, "max_features", low=1)
        estimator, _, names = style.unwrapped(estimator)
        if not isinstance(estimator, FeatureAllocation):
            raise TypeError(f"{cls.__name__} takes a FeatureAllocation; got {estimator!r}")
        allocations = estimator.allocations_[:, :max_features]
        # Those with feature 0 first; of these, those with feature 1; and so on.
        rows = np.lexsort(tuple(~allocations.T[::-1]) or (np.zeros(len(allocations)),))
        rows = rows[style.evenly(len(rows), max_rows)]
        name = estimator.likelihood_.feature_params[0]
        components = getattr(estimator, f"{name}_")[:max_features]
        if image_shape is not None:
            image_shape = tuple(check_integer(n, "image_shape", low=1) for n in image_shape)
            if len(image_shape) != 2 or math.prod(image_shape) != components.shape[1]:
                raise ValueError(
                    f"image_shape must be (height, width) with height times width the "
                    f"{components.shape[1]} columns, got {image_shape}"
                )
        return cls(
            components,
            allocations[rows],
            rows,
            allocations.sum(axis=0),
            image_shape=image_shape,
            column_names=names if name == "components" else None,
            what=name.removesuffix("s"),
        ).plot(ax)

    def plot(self, ax=None) -> Self:
        left, right = self._axes(ax, (1, 2), (8.4, 4.2), framed=True, width_ratios=[1.6, 1.0])
        colors = style.colors_on(right, len(self.components))
        self._draw_components(left, colors)
        self._draw_allocations(right, colors)
        if not len(colors):
            for axis in (left, right):
                axis.text(0.5, 0.5, "no features", ha="center", transform=axis.transAxes)
        return self

    def _draw_components(self, ax, colors):
        K, n_columns = self.components.shape
        shown = self.components if K else np.full((1, n_columns), np.nan)
        if self.image_shape is not None:
            shown, corners = _montage(self.components, self.image_shape)
        most = np.max(np.abs(self.components), initial=0.0) or 1.0
        signed = np.min(self.components, initial=0.0) < -0.02 * most
        self.components_im_ = ax.imshow(
            shown,
            cmap="RdBu_r" if signed else "Blues",
            vmin=-most if signed else 0.0,
            vmax=most,
            interpolation="nearest",
            aspect="auto" if self.image_shape is None else "equal",
        )
        self._add_colorbar(self.components_im_, ax, self.what)
        ax.spines[:].set_visible(False)
        self.numbers_ = []
        if self.image_shape is not None:
            ax.set(xticks=[], yticks=[])
            ax.set_xlabel("features, and the number of rows that have them")
            height, width = self.image_shape
            look = {"ha": "center", "va": "bottom", "fontsize": "small"}
            for k, (y, x) in enumerate(corners):
                at, color = (x + (width - 1) / 2.0, y - 0.5 - 0.03 * height), colors[k]
                words = ax.text(*at, f"{k}: {self.sizes[k]}", **look)
                words.set_color(style.readable(ax, color, 0.8))
                self.numbers_.append(words)
            return
        _number(ax.yaxis, K, colors)
        ax.set_ylabel("feature")
        if self.column_names is None or n_columns > MOST_NAMES:
            ax.set_xlabel("column")
            return
        upright = n_columns > 6
        names = [self._shortened(str(name), ax) for name in self.column_names]
        n_lines = n_columns if upright else sum(map(len, names)) / 2.0
        size = style.size_of_lines(ax, n_lines, 0.6, side=0)
        ax.set_xticks(range(n_columns), names, rotation=90 * upright, fontsize=size)
        ax.tick_params(axis="x", length=0)

    def _draw_allocations(self, ax, colors):
        n_rows, K = self.allocations.shape
        blank = np.full((n_rows, max(K, 1), 3), style.shade(ax, 0.0))
        image = np.where(self.allocations[:, :, None], colors, blank) if K else blank
        how = "nearest" if n_rows < 400 else "antialiased"
        self.allocations_im_ = ax.imshow(image, aspect="auto", interpolation=how)
        _number(ax.xaxis, K, colors)
        for k in range(K - 1):
            ax.axvline(k + 0.5, color=style.shade(ax, 0.0), lw=1.0)
        ax.set(xlabel="feature", ylabel="rows, by their features", yticks=[])
        ax.spines[:].set_color(style.shade(ax))


def _number(axis, K, colors):
    """Number features along an axis, in their colours, as many as there is place for."""
    most = max(min(12, style.letters(axis.axes) // 3), 1)
    shown = np.arange(0, K, 1 + (K - 1) // most) if K else []
    axis.set_ticks(shown, [str(k) for k in shown])
    axis.set_tick_params(length=0)
    for k, label in zip(shown, axis.get_ticklabels(), strict=True):
        label.set_color(style.readable(axis.axes, colors[k], 0.8))


def _montage(components, shape):
    """Images side by side, NaN between them, and the row and column where each begins."""
    height, width = shape
    K = max(len(components), 1)
    n_across = min(K, max(1, math.ceil(math.sqrt(K * height / width))))
    n_down = -(-K // n_across)
    # Room for a number above each.
    down, across = height + max(1, round(2.2 * GAP * height)), width + max(1, round(GAP * width))
    out = np.full((n_down * down, n_across * across), np.nan)
    corners = []
    for k, component in enumerate(components):
        y, x = (k // n_across + 1) * down - height, (k % n_across) * across
        out[y : y + height, x : x + width] = component.reshape(shape)
        corners.append((y, x))
    return out, corners
