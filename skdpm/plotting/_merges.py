# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of how clusters merge."""

import numpy as np
from scipy.cluster.hierarchy import dendrogram

from skdpm.plotting._style import (
    ACCENT,
    DARK,
    MAIN,
    cluster_colors,
    kept_partitions,
    legend_above,
    mixture_of,
    several_axes,
    tidy,
)

# Words for the losses.
LOSSES = {"vi": "variation of information", "binder": "Binder's loss"}

# Style of the probabilities of merges.
NUMBERS = {"size": 6.5, "va": "bottom", "color": DARK}


class MergeTreeDisplay:
    """Tree of merges of the clusters of the point estimate, and the cost of each merge.

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

    See Also
    --------
    skdpm.partitions.merge_tree : The tree; its method `cut` gives partitions.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import MergeTreeDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = MergeTreeDisplay.from_estimator(model)
    >>> display.leaves_.tolist()
    [0, 1]
    """

    def __init__(self, merge_tree):
        self.merge_tree = merge_tree

    @classmethod
    def from_estimator(cls, estimator, *, ax=None):
        """Draw the tree of a fitted mixture.

        Parameters
        ----------
        estimator : DPMixture or FiniteMixture
            Mixture fitted with `store_labels=True`, or a pipeline or search that ends in one.
        ax : matplotlib Axes or array-like of 2 Axes, default=None
            Two axes, or one axis of a grid to be divided. None: a new figure.

        Returns
        -------
        display : MergeTreeDisplay

        Raises
        ------
        ValueError
            If the fit did not keep draws of the partition.
        """
        estimator, _, _ = mixture_of(estimator, cls.__name__)
        kept_partitions(estimator, cls.__name__)  # raises if they are missing
        return cls(estimator.merge_tree()).plot(ax)

    def plot(self, ax=None):
        """Draw the tree and the expected losses.

        Parameters
        ----------
        ax : matplotlib Axes or array-like of 2 Axes, default=None
            Two axes, or one axis of a grid to be divided. None: a new figure.

        Returns
        -------
        display : MergeTreeDisplay
        """
        tree = self.merge_tree
        sizes = np.bincount(tree.labels[tree.labels >= 0])  # without noise
        K = len(sizes)
        left, right = several_axes(
            self, ax, (1, 2), figsize=(8.4, min(2.6 + 0.2 * K, 12.0)), width_ratios=[1.5, 1.0]
        )
        from matplotlib.collections import LineCollection
        from matplotlib.ticker import MaxNLocator

        colors = cluster_colors(K)
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
            LineCollection(brackets, colors=DARK, linewidths=1.2, capstyle="round")
        )
        left.scatter(
            np.full(K, start), np.arange(K), c=colors[self.leaves_], s=42, linewidths=0, zorder=3
        )
        self.probabilities_ = []
        if K > 1 and tree.probabilities is not None:
            self.probabilities_ = [
                left.text(height[1], place[1:3].mean(), f" {probability:.2f}", **NUMBERS)
                for probability, height, place in zip(
                    tree.probabilities, heights, places, strict=True
                )
                if probability >= 0.005
            ]
        small = {} if K <= 25 else {"fontsize": max(4.0, 400.0 / K)}
        left.set_yticks(np.arange(K), [f"{k} ({_rows(sizes[k])})" for k in self.leaves_], **small)
        left.tick_params(axis="y", length=0)
        for k, label in zip(self.leaves_, left.get_yticklabels(), strict=True):
            label.set_color(tuple(0.8 * colors[k]))
        left.set_ylim(K - 0.5, -0.5)
        top = max(float(heights.max(initial=0.0)), start)
        margin = 0.05 * (top - start) or 0.5
        left.set_xlim(start - margin, top + margin)
        left.set(xlabel=f"expected {_words(tree.loss)}", ylabel="cluster")
        counts = np.arange(K, 0, -1)
        (self.losses_,) = right.plot(
            counts, tree.expected_losses, color=MAIN, marker="o", ms=4 if K <= 25 else 2, lw=1.4
        )
        right.plot(
            counts[:1],
            tree.expected_losses[:1],
            color=ACCENT,
            marker="v",
            ms=8,
            ls="none",
            label=f"point estimate: {K}",
        )
        legend_above(right, *right.get_legend_handles_labels())
        right.set_xlim(0.5, K + 0.5)
        right.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True, min_n_ticks=1))
        right.set(xlabel="number of clusters", ylabel="expected loss")
        tidy(left)
        left.spines["left"].set_visible(False)
        tidy(right)
        return self


def _rows(size):
    return "1 row" if size == 1 else f"{size} rows"


def _words(loss):
    if isinstance(loss, tuple):
        return f"{LOSSES[loss[0]]}, split cost {loss[1]:g}"
    return LOSSES[loss]
