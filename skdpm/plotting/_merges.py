# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of how clusters merge, and of what it costs to have fewer."""

from dataclasses import KW_ONLY
from typing import Self

import numpy as np
from scipy.cluster.hierarchy import dendrogram

from skdpm._validation import check_integer, parameters
from skdpm.mixture.estimate import expected_losses
from skdpm.partitions import MergeTree
from skdpm.plotting import _style as style

# Words for the losses.
LOSSES = {"vi": "variation of information, nats", "binder": "Binder's loss"}

# Smallest size of the names of clusters, in points; smaller ones are left out.
LEAST_SIZE = 4.0


@parameters
class MergeTreeDisplay(style.Display):
    """Tree of merges of the clusters of the point estimate, and the cost of each merge.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import MergeTreeDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = MergeTreeDisplay.from_estimator(model)
    >>> display.leaves_.tolist()
    [0, 1]

    Clusters that merge early are the least certain to be two. A number at a merge is the
    probability that rows of its two sides share a cluster. The curve shows the expected loss of
    the partition for each number of clusters. To the left of the point where it bends upwards,
    merges join clusters that the draws keep apart.

    Parameters
    ----------
    merge_tree : MergeTree
        Result of `skdpm.partitions.merge_tree` or of the method `merge_tree`.

    Attributes
    ----------
    axes_ : ndarray of 2 matplotlib Axes
        Axes of the tree and of the expected losses.
    figure_ : matplotlib Figure
    merges_ : matplotlib LineCollection
        Brackets of the merges, the lowest first.
    leaves_ : ndarray of shape (n_clusters,), int
        Clusters from top to bottom.
    probabilities_ : list of matplotlib Text
        Probabilities of the merges, in their order, from 0.005.
    losses_ : matplotlib Line2D
    """

    merge_tree: MergeTree

    @classmethod
    def from_estimator(cls, estimator, *, ax=None) -> Self:
        """Draw the tree of a fitted mixture. The small number at a merge is the probability that
        rows of its two sides share a cluster.

        Parameters
        ----------
        """
        estimator, _, _ = cls._mixture(estimator)
        cls._partitions(estimator)  # raises if they are missing
        return cls(estimator.merge_tree()).plot(ax)

    def plot(self, ax=None) -> Self:
        tree = self.merge_tree
        sizes = np.bincount(tree.labels[tree.labels >= 0])  # without noise
        K = len(sizes)
        left, right = self._axes(
            ax, (1, 2), figsize=(8.4, min(2.6 + 0.2 * K, 12.0)), width_ratios=[1.5, 1.0]
        )
        from matplotlib.collections import LineCollection

        colors = style.colors_on(left, K)
        brackets, heights = [], np.zeros(0)
        self.leaves_ = np.arange(K)
        # The tree starts at the loss of the partition itself, the smallest of all.
        start = float(tree.expected_losses[0])
        if K > 1:
            # Numbers of merges as heights, which may have ties, tell which bracket is which merge.
            numbered = tree.linkage.copy()
            numbered[:, 2] = np.arange(1, K)
            drawn = dendrogram(numbered, no_plot=True)
            self.leaves_ = np.array(drawn["leaves"])
            merges = np.array(drawn["dcoord"]).astype(int)
            order = np.argsort(merges[:, 1])
            # scipy puts leaves at 5, 15, ..., at height 0.
            places = (np.array(drawn["icoord"])[order] - 5.0) / 10.0
            heights = np.concatenate([[start], tree.linkage[:, 2]])[merges[order]]
            brackets = np.stack([heights, places], axis=2)
        self.merges_ = left.add_collection(
            LineCollection(brackets, colors=[style.shade(left)], linewidths=1.2, capstyle="round")
        )
        size = style.size_of_lines(left, K)
        has_names = size >= LEAST_SIZE
        dots = {"s": min(42.0, size**2), "linewidths": 0, "zorder": 3}
        left.scatter(np.full(K, start), np.arange(K), c=colors[self.leaves_], **dots)
        self.probabilities_ = []
        if K > 1 and tree.probabilities is not None and has_names:
            self.probabilities_ = [
                left.text(height[1], place[1:3].mean(), f" {probability:.2f}", size="x-small")
                for probability, height, place in zip(
                    tree.probabilities, heights, places, strict=True
                )
                if probability >= 0.005
            ]
        names = np.arange(K) if tree.names is None else tree.names
        words = [f"{names[k]} ({sizes[k]} row{'s' * int(sizes[k] > 1)})" for k in self.leaves_]
        left.set_yticks(np.arange(K), words if has_names else [""] * K, fontsize=size)
        left.tick_params(axis="y", length=0)
        for k, label in zip(self.leaves_, left.get_yticklabels(), strict=True):
            label.set_color(style.readable(left, colors[k], 0.8))
        left.set_ylim(K - 0.5, -0.5)
        top = max(float(heights.max(initial=0.0)), start)
        margin = 0.05 * (top - start) or 0.5
        left.set_xlim(start - margin, top + margin)
        words = f"mean difference from the draws\n({_words(tree.loss)})"
        if self.probabilities_:
            words += "\nnumbers: probability that rows of the two sides are together"
        left.set(xlabel=words, ylabel="cluster")
        self.losses_, _ = _draw_losses(right, tree.expected_losses[::-1], K)
        right.set(xlabel="number of clusters", ylabel="mean difference from the draws")
        left.spines["left"].set_visible(False)
        return self


@parameters
class ExpectedLossDisplay(style.Display):
    """Posterior expected loss for each number of clusters, and the cost of each cluster fewer.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import ExpectedLossDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = ExpectedLossDisplay.from_estimator(model)
    >>> display.losses.round(2)
    array([0.71, 0.01])

    A point of the curve is the loss of the best labels that `estimate_labels` finds with this
    ``max_clusters``. With `noise` it is the loss between rows that can be in clusters, before some
    of them are called noise, so that `estimate_labels` may find fewer. A bar shows how much the
    loss grows from one number to the next smaller one. Small clusters, and clusters that draws
    often join, cost little. Choose a number to the left of which bars are tall, and pass it to
    `estimate_labels`. Grey bars are of numbers below those of all draws. The nearest clusters
    merge there, and large ones cost most, so these bars say nothing for or against a number.

    Parameters
    ----------
    losses : ndarray of shape (n_numbers,)
        Expected losses of 1, 2, ... clusters.
    estimate : int
        Number of clusters of `labels_`.
    loss : {"vi", "binder"} or tuple (name, split_cost), default="vi"
        Loss between partitions.
    fewest : int, default=1
        Smallest number of clusters of a draw.

    Attributes
    ----------
    axes_ : ndarray of 2 matplotlib Axes
        Axes of the losses and of the costs.
    figure_ : matplotlib Figure
    losses_ : matplotlib Line2D
    costs_ : matplotlib BarContainer
        Bars between the numbers, from 1 and 2 on.
    estimate_ : matplotlib Line2D
        Triangle at the number of clusters of `labels_`, if it is on the axis.
    """

    losses: np.ndarray
    estimate: int
    _: KW_ONLY
    loss: str | tuple = "vi"
    fewest: int = 1

    @classmethod
    def from_estimator(cls, estimator, *, max_clusters=None, loss=None, X=None, ax=None) -> Self:
        """Draw the losses of a fitted mixture.

        Parameters
        ----------
        max_clusters : int, default=None
            Largest number of clusters shown. It is at most the number that the loss finds without
            a limit. None: this number, or 20 if it is smaller and numbers need searches.
        loss : {"adaptive", "modal", "vi", "binder"} or tuple (name, split_cost), default=None
            Loss, as in `estimate_labels`. With noise, and with "adaptive" and "modal" if the
            likelihood has hills of a density, or with more than 50,000 labels of draws, a single
            path of merges has all numbers. Otherwise each needs a search.
        X : array-like or CSR matrix of shape (n_samples, n_features), default=None
            Rows of `fit`. Needed only after pickling.
        """
        if max_clusters is not None:
            max_clusters = check_integer(max_clusters, "max_clusters", low=1)
        estimator, X, _ = cls._mixture(estimator, X)
        cls._partitions(estimator)  # raises if they are missing
        losses, fewest, loss = expected_losses(estimator, loss, max_clusters, X)
        return cls(losses, estimator.n_clusters_, loss=loss, fewest=fewest).plot(ax)

    def plot(self, ax=None) -> Self:
        upper, lower = self._axes(ax, (2, 1), figsize=(5.6, 5.6))
        n_numbers = len(self.losses)
        self.losses_, self.estimate_ = _draw_losses(upper, self.losses, self.estimate)
        numbers = np.arange(1, n_numbers)
        is_drawn = numbers >= self.fewest
        colors = [style.shade(lower, style.LIGHT), style.shade(lower, style.PALE, style.MAIN)]
        colors = [colors[drawn] for drawn in is_drawn.astype(int)]
        self.costs_ = lower.bar(numbers + 0.5, -np.diff(self.losses), width=0.8, color=colors)
        if not is_drawn.all():
            style.legend_above(lower, [self.costs_[0]], ["no draw has so few clusters"])
        _number_axis(lower, n_numbers)
        words = f"mean difference from the draws\n({_words(self.loss)})"
        upper.set(ylabel="expected loss" if self._resized else words)
        upper.tick_params(labelbottom=False)
        words = "added loss" if self._resized else "difference added\nby one cluster fewer"
        lower.set(xlabel="number of clusters", ylabel=words)
        return self


def _draw_losses(ax, losses, estimate):
    """Draw expected losses of 1, 2, ... clusters: the curve, and a triangle at the estimate."""
    n_numbers = len(losses)
    numbers, size = np.arange(1, n_numbers + 1), 4 if n_numbers <= 25 else 2
    (curve,) = ax.plot(numbers, losses, "o-", color=style.MAIN, ms=size, lw=1.4)
    at = ([estimate], [losses[estimate - 1]]) if 1 <= estimate <= n_numbers else ([], [])
    triangle = style.mark_estimate(ax, at, estimate)
    style.legend_above(ax, *ax.get_legend_handles_labels())
    _number_axis(ax, n_numbers)
    return curve, triangle


def _number_axis(ax, n_numbers):
    ax.set_xlim(0.5, n_numbers + 0.5)
    if n_numbers == 1:
        ax.text(0.5, 0.75, "one cluster, so nothing merges", transform=ax.transAxes, ha="center")
    style.whole_numbers(ax.xaxis, nbins=10)


def _words(loss):
    if isinstance(loss, tuple):
        return f"{LOSSES[loss[0]]}, split cost {loss[1]:g}"
    return LOSSES[loss]
