# SPDX-License-Identifier: BSD-3-Clause
"""What displays share: colours, axes, and how an estimator is taken apart."""

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from skdpm._estimator import ChainEstimator
from skdpm._validation import is_dask
from skdpm.features.estimators import FeatureAllocation
from skdpm.mixture.base import BaseMixture

# Told apart with any colour vision: six colours of Okabe & Ito (2008), three of Tol (2021).
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
# Of further clusters: the same, this much darker (below 0) or lighter.
SHADES = (0.0, -0.4, 0.45)

# Of what is no cluster: text and lines, and what stands back.
DARK, LIGHT, ACCENT = "0.25", "0.85", "#D55E00"
MAIN, PALE, PALER = "#0072B2", "#A9CBE2", "#DCE9F3"


def cluster_colors(n_clusters):
    """Colours of clusters 0, 1, ... in all displays.

    Parameters
    ----------
    n_clusters : int

    Returns
    -------
    colors : ndarray of shape (n_clusters, 3)
        Red, green and blue, from 0 to 1. The first nine can be told apart with any colour vision,
        then come darker and lighter shades of these; after 27 they begin again.

    Examples
    --------
    >>> from skdpm.plotting import cluster_colors
    >>> cluster_colors(2).round(2)
    array([[0.  , 0.45, 0.7 ],
           [0.84, 0.37, 0.  ]])
    """
    base = np.array(PALETTE) / 255.0
    shaded = [base * (1.0 + s) if s < 0 else base + s * (1.0 - base) for s in SHADES]
    colors = np.concatenate(shaded)
    return colors[np.arange(n_clusters) % len(colors)]


def pyplot(caller):
    """matplotlib.pyplot, imported for the display of that name."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"{caller} needs matplotlib, which is not installed: pip install 'skdpm[plotting]'"
        ) from error
    return plt


def one_axis(display, ax, figsize):
    """The axis to draw on, a new one where none is given; sets `ax_` and `figure_`."""
    plt = pyplot(type(display).__name__)
    if ax is None:
        _, ax = plt.subplots(figsize=figsize, layout="constrained")
    display.ax_ = ax
    display.figure_ = ax.figure
    return ax


def several_axes(display, ax, shape, figsize, **ratios):
    """Axes in rows and columns: new ones, within the place of the one given, or those given; sets
    `axes_`, in one row, and `figure_`.

    Parameters
    ----------
    display : object
    ax : matplotlib Axes, array-like of Axes or None
    shape : tuple (n_rows, n_columns)
    figsize : tuple (width, height)
    **ratios
        `width_ratios` and `height_ratios`.
    """
    plt = pyplot(type(display).__name__)
    n_axes = shape[0] * shape[1]
    if ax is None:
        figure = plt.figure(figsize=figsize, layout="constrained")
        axes = figure.subplots(*shape, squeeze=False, gridspec_kw=ratios)
    elif hasattr(ax, "get_subplotspec"):
        spec = ax.get_subplotspec()
        if spec is None:
            raise ValueError(
                f"{type(display).__name__} draws on {n_axes} axes: give so many, or one of a grid "
                "(plt.subplots), whose place they share"
            )
        ax.set_axis_off()
        grid = spec.subgridspec(*shape, **ratios)
        axes = grid.subplots(squeeze=False)
    else:
        axes = np.asarray(ax, dtype=object)
        if axes.size != n_axes:
            raise ValueError(
                f"{type(display).__name__} draws on {n_axes} axes, but got {axes.size}"
            )
    display.axes_ = axes.ravel()
    display.figure_ = display.axes_[0].figure
    return display.axes_


def tidy(ax):
    """Leave the lines of an axis that numbers stand at."""
    ax.spines[["top", "right"]].set_visible(False)


def unwrapped(estimator, X=None):
    """The mixture or feature allocation within a search or a pipeline, and what the steps before
    it make of X.

    Returns
    -------
    estimator : ChainEstimator
        Fitted.
    X : object
    names : list of str or None
        Of the columns that it was fitted on.
    """
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
            "displays are of DPMixture, FiniteMixture and FeatureAllocation, or of pipelines and "
            f"searches that end in one; got {type(estimator).__name__}"
        )
    if hasattr(estimator, "feature_names_in_"):
        names = list(estimator.feature_names_in_)
    elif hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    return estimator, X, names


def mixture_of(estimator, display, X=None):
    """As `unwrapped`, of mixtures alone."""
    estimator, X, names = unwrapped(estimator, X)
    if not isinstance(estimator, BaseMixture):
        raise TypeError(f"{display} is of DPMixture and FiniteMixture; got {estimator!r}")
    return estimator, X, names


def features_of(estimator, display):
    """As `unwrapped`, of feature allocations alone."""
    estimator, _, names = unwrapped(estimator)
    if not isinstance(estimator, FeatureAllocation):
        raise TypeError(f"{display} is of FeatureAllocation; got {estimator!r}")
    return estimator, names


def kept_partitions(estimator, display):
    """All draws of the partition of a mixture: (n_draws, n_samples)."""
    if not hasattr(estimator, "label_samples_"):
        if is_dask(estimator.labels_):
            why = "label draws of a dask array are not kept: fit a sample of the rows"
        elif estimator.store_labels:
            why = "rows of a stream are not kept: fit them"
        else:
            why = "fit with store_labels=True, the default"
        raise ValueError(f"{display} needs the kept partitions (label_samples_); {why}")
    draws = estimator.label_samples_
    return draws.reshape(-1, draws.shape[-1])


def evenly(n, most):
    """Positions of `most` of n things in order, evenly spaced, or of all where they are fewer."""
    if n <= most:
        return np.arange(n)
    return np.arange(most) * n // most
