# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of which columns are in a clustering."""

from dataclasses import KW_ONLY

import numpy as np

from skdpm._validation import check_integer, parameters
from skdpm.plotting._style import ACCENT, DARK, MAIN, PALE, Display, column_name, shortened


@parameters
class RelevanceDisplay(Display):
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
    def from_estimator(cls, estimator, *, max_columns=40, ax=None):
        """Draw the relevance of the columns of a fitted mixture.

        Parameters
        ----------
        estimator : DPMixture or FiniteMixture
            Fitted mixture with the likelihood ``Product(select=True)``, or a pipeline or search
            that ends in one.
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

    def plot(self, ax=None):
        relevance = np.asarray(self.relevance, dtype=float)
        most = check_integer(self.max_columns, "max_columns", low=1)
        shown = np.flatnonzero(~np.isnan(relevance))
        order = np.argsort(-relevance[shown], kind="stable")
        self.columns_ = shown[order][:most]
        values = relevance[self.columns_]
        ax = self._axis(ax, (5.0, 0.8 + 0.24 * len(values)))
        y = np.arange(len(values))
        colors = np.where(values > 0.5, MAIN, PALE)
        self.bars_ = ax.barh(y, values, height=0.7, color=colors)
        ax.axvline(0.5, color=ACCENT, linewidth=1.0, linestyle="--")
        ax.set_yticks(y, [shortened(column_name(d, self.names)) for d in self.columns_])
        ax.tick_params(axis="y", length=0, labelsize="small", labelcolor=DARK)
        ax.set(xlim=(0.0, 1.0), ylim=(len(values) - 0.4, -0.6))
        ax.set_xlabel("probability of being in the clustering", fontsize="small")
        return self
