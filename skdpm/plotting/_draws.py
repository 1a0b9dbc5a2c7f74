# SPDX-License-Identifier: BSD-3-Clause
"""Displays of scalar draws: the number of clusters, and traces of chains."""

from dataclasses import KW_ONLY
from typing import Self

import numpy as np

from skdpm._convergence import LARGEST_R_HAT
from skdpm._display import shortest_range
from skdpm._validation import check_choice, check_real, parameters
from skdpm.features.estimators import FeatureAllocation
from skdpm.plotting import _style as style

# Largest difference of the probabilities of a number of clusters between chains that agree.
LARGEST_GAP = 0.5

# Labels of quantities.
WORDS = {"log_joint": "log joint (nats)", "concentration": "concentration"}


@parameters
class NumberOfClustersDisplay(style.Display):
    """Posterior of the number of clusters or features, as bars.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import NumberOfClustersDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = NumberOfClustersDisplay.from_estimator(model)
    >>> display.estimate
    2

    Dark bars are the shortest range that holds at least `level` of the posterior. A triangle marks
    the estimate: clusters of `labels_`, or their components. Draws often have more, small ones.

    Parameters
    ----------
    counts : ndarray of shape (n_counts,), int
        Consecutive numbers of clusters, from the smallest to the largest of any draw.
    probabilities : ndarray of shape (n_counts,)
        Posterior probabilities, which sum to 1.
    chain_probabilities : ndarray of shape (n_chains, n_counts)
        Probabilities estimated by each chain.
    estimate : int
        Number of clusters in the point estimate.
    agree : bool, default=True
        Whether the chains agree. If not, each is shown as points.
    level : float, default=0.9
        Probability of the dark bars, in (0, 1).
    what : str, default="clusters"
        Name of the things counted.
    n_draws : int, default=None
        Number of draws, which is shown below 200.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    bars_ : matplotlib BarContainer
    interval_ : tuple (low, high)
        Smallest and largest number of the dark range.
    estimate_ : matplotlib Line2D
        Triangle at the point estimate.
    chains_ : list of matplotlib Line2D
        Lines of the chains; empty if the chains agree.
    """

    counts: np.ndarray
    probabilities: np.ndarray
    chain_probabilities: np.ndarray
    estimate: int
    _: KW_ONLY
    agree: bool = True
    level: float = 0.9
    what: str = "clusters"
    n_draws: int | None = None

    @classmethod
    def from_estimator(
        cls, estimator, *, of="clusters", level=0.9, chains="auto", ax=None
    ) -> Self:
        """Draw the posterior of a fitted model.

        Parameters
        ----------
        of : {"clusters", "components"}, default="clusters"
            Draws that are counted for a mixture: `n_clusters_samples_` or
            `n_components_samples_`. They differ if clusters are hills.
        level : float, default=0.9
            Probability of the dark bars, in (0, 1).
        chains : {"auto"} or bool, default="auto"
            Whether chains are shown separately. "auto": if they disagree, by the R-hat of the
            number of components or, for clusters of several components, by their probabilities.
        """
        level = check_real(level, "level", low=0.0, high=1.0)
        estimator, _, _ = style.unwrapped(estimator)
        features = isinstance(estimator, FeatureAllocation)
        check_choice(of, "of", ("clusters", "components"))
        if features:
            numbers, estimate = estimator.n_components_samples_, int(estimator.n_components_)
        elif of == "components":
            numbers = estimator.n_components_samples_
            estimate = len(estimator._predictor.components()[1])
        else:
            numbers, estimate = estimator.n_clusters_samples_, int(estimator.n_clusters_)
        counts = np.arange(numbers.min(), numbers.max() + 1)
        of_chains = (numbers[:, :, None] == counts).mean(axis=1)
        if isinstance(chains, str):
            if chains != "auto":
                raise ValueError(f'chains must be "auto", True or False, got {chains!r}')
            # As in the warning of `fit`, NaN does not count as agreement.
            r_hat = estimator.diagnostics_.get("n_components", {}).get("r_hat", 1.0)
            chains = not r_hat <= LARGEST_R_HAT
            if numbers.shape != estimator.n_components_samples_.shape:
                # R-hat says little about the few draws that are read.
                chains = np.ptp(of_chains, axis=0).max() > LARGEST_GAP
        return cls(
            counts,
            of_chains.mean(axis=0),
            of_chains,
            estimate,
            agree=not chains,
            level=level,
            what="features" if features else of,
            n_draws=numbers.size,
        ).plot(ax)

    def plot(self, ax=None) -> Self:
        ax = self._axis(ax, figsize=(4.8, 3.6))
        low, high = shortest_range(self.probabilities, self.level)
        self.interval_ = int(self.counts[low]), int(self.counts[high])
        # Lines must stand out from the bars.
        pale, dark = [
            style.shade(ax, s, style.MAIN)
            for s in ((style.PALE, 1.0) if self.agree else (style.PALER, style.PALE))
        ]
        colors = [dark if low <= i <= high else pale for i in range(len(self.counts))]
        self.bars_ = ax.bar(self.counts, self.probabilities, width=0.8, color=colors)
        top = self.probabilities.max()
        self.chains_ = []
        if not self.agree:
            top = max(top, self.chain_probabilities.max())
            colors = style.colors_on(ax, len(self.chain_probabilities))
            aside = np.linspace(-0.25, 0.25, len(colors))
            for color, x, shares in zip(colors, aside, self.chain_probabilities, strict=True):
                self.chains_ += ax.plot(self.counts + x, shares, "o", color=color, ms=4)
            self.chains_[0].set_label("each chain")
        ends = f"{self.interval_[0]}" if low == high else "{} to {}".format(*self.interval_)
        self.bars_.patches[low].set_label(f"{self.level:.0%} of the posterior: {ends}")
        # The marker is above its bar, and the legend is above all bars.
        of_estimate = self.probabilities[self.counts == self.estimate].sum()
        at = self.estimate, of_estimate + 0.06 * top
        words = "components of labels_" if self.what == "components" else "point estimate"
        self.estimate_ = style.mark_estimate(ax, at, self.estimate, words)
        high = (1.7 if self._resized else 1.32) * top
        ax.set_ylim(0.0, high)
        ax.set_yticks([tick for tick in ax.get_yticks() if tick <= min(1.0, high)])
        edges = [*self.counts[[0, -1]], self.estimate]
        wide = max(0.9, 2.5 - 0.5 * (max(edges) - min(edges)))  # a single bar would fill the axis
        ax.set_xlim(max(min(edges) - wide, -0.9), max(edges) + wide)
        style.whole_numbers(ax.xaxis, nbins=12)
        few = f" ({self.n_draws} draws)" if (self.n_draws or 200) < 200 else ""
        ax.set(xlabel=f"number of {self.what}{few}", ylabel="posterior probability")
        ax.legend(
            handles=[self.bars_.patches[low], self.estimate_, *self.chains_[:1]],
            loc="upper right",
            fontsize="small",
            framealpha=0.8,
            edgecolor="none",
            borderaxespad=0.1,
        )
        return self


@parameters
class TraceDisplay(style.Display):
    """Traces of scalar draws: an axis for each quantity, a line for each chain.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import TraceDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=100, n_chains=2, random_state=0).fit(X)
    >>> display = TraceDisplay.from_estimator(model, ["log_joint", "likelihood__df"])
    >>> len(display.axes_), len(display.lines_["log_joint"])
    (2, 2)

    Chains that agree overlap and have no trend, and R-hat, shown above each axis, is close to 1.
    Iterations of the warm-up are not kept and not shown.

    Parameters
    ----------
    traces : dict of str to ndarray of shape (n_chains, n_draws)
    iterations : ndarray of shape (n_draws,), int
        Iteration of each draw, counted from the start of the warm-up.
    r_hats : dict of str to float, default=None
        R-hat of quantities.
    n_warmup : int, default=0
        Number of warm-up iterations.
    ordered : bool, default=True
        Whether the draws of a chain are a sequence. If not, as with "smc", they are points.
    words : dict of str to str, default=None
        Labels of quantities whose name is not shown.

    Attributes
    ----------
    axes_ : ndarray of matplotlib Axes
    figure_ : matplotlib Figure
    lines_ : dict of str to list of matplotlib Line2D
        Lines of the chains, for each quantity.
    """

    traces: dict
    iterations: np.ndarray
    _: KW_ONLY
    r_hats: dict | None = None
    n_warmup: int = 0
    ordered: bool = True
    words: dict | None = None

    @classmethod
    def from_estimator(cls, estimator, quantities=None, *, ax=None) -> Self:
        """Draw the traces of a fitted model.

        Parameters
        ----------
        quantities : list of str, default=None
            Names in `draws_` of scalar quantities. None: the log joint, the number of components
            or features, and the concentration if it is learned.
        """
        estimator, _, _ = style.unwrapped(estimator)
        draws = estimator.draws_
        numbers = [name for name in draws if np.ndim(draws[name][0][0]) == 0]
        if quantities is None:
            quantities = ["log_joint", "n_components"]
            if estimator.concentration is None:
                quantities.append("concentration")
        elif isinstance(quantities, str):
            quantities = [quantities]
        elif not isinstance(quantities, (list, tuple)):
            raise TypeError(
                "quantities must be a name or a list of names of scalar draws "
                f"({', '.join(numbers)}), got {type(quantities).__name__}; TraceDisplay takes no X"
            )
        for name in quantities:
            if not isinstance(name, str) or name not in numbers:
                raise ValueError(
                    f"quantities must be names of scalar draws ({', '.join(numbers)}), got "
                    f"{name!r}"
                )
        if not quantities:
            raise ValueError("quantities must hold at least one name")
        ordered = not getattr(estimator.sampler_, "online", False)
        n_warmup = estimator.n_warmup_ if ordered else 0
        thin = estimator.thin if ordered else 1
        features = isinstance(estimator, FeatureAllocation)
        return cls(
            {name: np.asarray(draws[name]) for name in quantities},
            n_warmup + thin * np.arange(1, draws.n_draws + 1),
            r_hats={
                name: estimator.diagnostics_[name]["r_hat"]
                for name in quantities
                if "r_hat" in estimator.diagnostics_.get(name, ())
            },
            n_warmup=n_warmup,
            ordered=ordered,
            words={"n_components": "features" if features else "components"},
        ).plot(ax)

    def plot(self, ax=None) -> Self:
        n_axes = len(self.traces)
        axes = self._axes(ax, (n_axes, 1), figsize=(6.4, 0.6 + 1.7 * n_axes))
        words = {**WORDS, **(self.words or {})}
        self.lines_ = {}
        for axis, (name, traces) in zip(axes, self.traces.items(), strict=True):
            colors = style.colors_on(axis, len(traces))
            line = {"lw": 0.8, "alpha": 0.85 if len(traces) < 6 else 0.6}
            if name == "n_components":
                line["drawstyle"] = "steps-mid"
            if not self.ordered or traces.shape[1] == 1:
                line.update(ls="none", marker=".", ms=3)
            self.lines_[name] = [
                axis.plot(self.iterations, trace, color=color, **line)[0]
                for trace, color in zip(traces, colors, strict=True)
            ]
            words_of_name = words.get(name, name.removeprefix("likelihood__").replace("_", " "))
            axis.set_title(words_of_name, loc="left", fontsize="small")
            r_hat = (self.r_hats or {}).get(name)
            if r_hat is not None:
                color = style.shade(axis) if r_hat <= LARGEST_R_HAT else style.ACCENT
                axis.set_title(f"R-hat {r_hat:.2f}", loc="right", fontsize="small", color=color)
            axis.margins(x=0.01)
            style.whole_numbers(axis.xaxis)
            if name == "n_components":
                style.whole_numbers(axis.yaxis)
            if axis is not axes[-1]:
                axis.tick_params(labelbottom=False)
        n_chains = len(traces)
        words = "iteration" if self.ordered else "draw (particles have no order)"
        words += " of 1 chain" if n_chains == 1 else f" of {n_chains} chains"
        if self.ordered and self.n_warmup:
            words += f" (the {self.n_warmup} of the warm-up are not kept)"
        axes[-1].set_xlabel(words)
        return self
