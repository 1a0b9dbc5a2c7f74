# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of a partition: which rows are together."""

from typing import Self

import numpy as np
import scipy.sparse as sp

from skdpm._validation import parameters
from skdpm.networks import adjacency, is_graph
from skdpm.partitions import coclustering_matrix
from skdpm.plotting import _style as style

# Numbers of clusters beside the matrix are at least this share of a side apart.
SMALLEST_GAP = 0.075

# Largest number of rows of a network whose names are shown.
MOST_NAMED = 40


@parameters
class CoclusteringDisplay(style.Display):
    """Matrix of the probabilities that two rows are in the same cluster, by cluster.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import CoclusteringDisplay
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> model = DPMixture(n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = CoclusteringDisplay.from_estimator(model)
    >>> len(display.borders_)
    2

    Rows are ordered by their label and, within a cluster, from those that most surely belong to it
    to those that do so least. What the draws agree on are dark squares along the diagonal; what
    they do not, paler margins of squares and shades between them.

    Parameters
    ----------
    coclustering : ndarray of shape (n_rows, n_rows)
        `skdpm.partitions.coclustering_matrix`, in the order in which it is shown.
    labels : ndarray of shape (n_rows,), int
        The cluster of each of these rows; rows of a cluster stand together.
    certainty : ndarray of shape (n_rows,)
        How surely each belongs to its cluster.
    rows : ndarray of shape (n_rows,), int
        Which rows of X these are.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    im_ : matplotlib AxesImage
        The matrix.
    borders_ : list of matplotlib Rectangle
        Around each cluster.
    strips_ : list of matplotlib Rectangle
        The colour of each cluster, beside the matrix.
    colorbar_ : matplotlib Colorbar or None
    """

    coclustering: np.ndarray
    labels: np.ndarray
    certainty: np.ndarray
    rows: np.ndarray

    @classmethod
    def from_estimator(
        cls, estimator, *, of="clusters", max_rows=2000, cmap=None, colorbar=True, ax=None
    ) -> Self:
        """Draw the matrix of a fitted mixture.

        Parameters
        ----------
        of : {"clusters", "components"}, default="clusters"
            Draws that are compared: `cluster_samples_` or `label_samples_`. They differ if
            clusters are hills.
        max_rows : int, default=2000
            Largest number of rows shown. Of more rows, evenly spaced ones in the order of the
            picture are shown, so that clusters keep their shares.
        cmap : str or matplotlib Colormap, default=None
            Colours. None: from the background to blue.
        colorbar : bool, default=True
        """
        estimator, _, _ = cls._mixture(estimator)
        draws = cls._partitions(estimator, of)
        labels = np.asarray(estimator.labels_)
        certainty = estimator.probabilities_
        rows = np.lexsort((-certainty, labels))
        rows = rows[style.evenly(len(rows), max_rows)]
        display = cls(coclustering_matrix(draws, rows), labels[rows], certainty[rows], rows)
        return display.plot(ax, cmap=cmap, colorbar=colorbar)

    def plot(self, ax=None, *, cmap=None, colorbar=True) -> Self:
        """Draw the matrix. Parameters are those of `from_estimator`."""
        ax = self._axis(ax, (5.6, 4.8), framed=True)
        # A row is surely with itself. It is drawn as with its neighbours, if its cluster has any.
        shown = np.array(self.coclustering)
        _, at, sizes = np.unique(self.labels, return_inverse=True, return_counts=True)
        beside = np.pad(np.diagonal(shown, 1), 1)
        beside = np.where(sizes[at] > 1, np.maximum(beside[1:], beside[:-1]), 1.0)
        shown[np.diag_indices(len(shown))] = beside
        _draw_matrix(self, ax, shown, cmap=style.ramp(ax, cmap, style.MAIN), vmax=1.0)
        ax.set(xlabel="rows, by cluster and certainty", ylabel="rows, by cluster and certainty")
        self.colorbar_ = None
        if colorbar:
            self._add_colorbar(self.im_, ax, "probability of the same cluster")
        return self


@parameters
class AdjacencyDisplay(style.Display):
    """Matrix of the links of a network, its rows by cluster.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.plotting import AdjacencyDisplay
    >>> X = np.kron(np.eye(2), np.ones((5, 5)))
    >>> model = DPMixture(likelihood="relational", n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> display = AdjacencyDisplay.from_estimator(model, X)
    >>> len(display.borders_)
    2

    Clusters of a `Relational` fit are blocks of rows that are linked alike; rows of a cluster that
    have more links come first. Up to 40 rows have the names of the nodes, if there are any.

    Parameters
    ----------
    adjacency : ndarray of shape (n_rows, n_rows)
        In the order in which it is shown.
    labels : ndarray of shape (n_rows,), int
        The cluster of each of these rows; rows of a cluster stand together.
    rows : ndarray of shape (n_rows,), int
        Which rows of X these are.
    names : list of str, default=None
        Names of these rows. None: the numbers of the clusters are shown.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
    im_, borders_, strips_ : as in `CoclusteringDisplay`
    """

    adjacency: np.ndarray
    labels: np.ndarray
    rows: np.ndarray
    names: list | None = None

    @classmethod
    def from_estimator(cls, estimator, X, *, max_rows=2000, cmap=None, ax=None) -> Self:
        """Draw the links of a network that a mixture was fitted to.

        Parameters
        ----------
        X : array-like, CSR matrix or DataFrame of shape (n_samples, n_samples), or graph
            The network of `fit`. NaN is a link that is not known.
        max_rows : int, default=2000
            Of more rows, so many are shown: evenly spaced ones in the order of the picture.
        cmap : str or matplotlib Colormap, default=None
            Colours. None: from the background to the colour of text.
        """
        X = adjacency(X) if is_graph(X) else X
        estimator, X, names = cls._mixture(estimator, X)
        names = X.index if hasattr(X, "iloc") else names
        X = X.tocsr() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        labels = np.asarray(estimator.labels_)
        if X.shape != (len(labels), len(labels)):
            raise ValueError(
                f"X must be the matrix of fit, {len(labels)} rows and columns; got {X.shape}"
            )
        known = X if sp.issparse(X) else np.nan_to_num(X)
        links = np.asarray(known.sum(axis=0)).ravel() + np.asarray(known.sum(axis=1)).ravel()
        rows = np.lexsort((-links, labels))
        rows = rows[style.evenly(len(rows), max_rows)]
        shown = X[rows][:, rows]
        shown = shown.toarray() if sp.issparse(shown) else shown
        shows_names = names is not None and len(rows) <= MOST_NAMED
        named = [str(names[i]) for i in rows] if shows_names else None
        return cls(shown, labels[rows], rows, named).plot(ax, cmap=cmap)

    def plot(self, ax=None, *, cmap=None) -> Self:
        """Draw the matrix. Parameters are those of `from_estimator`."""
        ax = self._axis(ax, (4.9, 4.8), framed=True)
        from matplotlib.patches import Patch

        cmap = style.ramp(ax, cmap)
        _draw_matrix(self, ax, self.adjacency, cmap=cmap)
        ax.set(xlabel="rows, by cluster", ylabel="rows, by cluster")
        values = np.unique(self.adjacency)  # NaN is the last
        if len(values[~np.isnan(values)]) > 2:
            self._add_colorbar(self.im_, ax, "weight of the link")
        else:
            words = {0.0: "no link", 1.0: "link"}
            colors = self.im_.cmap(self.im_.norm(np.ma.masked_invalid(values)))
            words = ["unknown" if np.isnan(v) else words.get(v, f"{v:g}") for v in values]
            keys = [Patch(facecolor=color, edgecolor=style.shade(ax)) for color in colors]
            style.legend_above(ax, keys, words)
        if self.names is not None:
            names = [self._shortened(name, ax) for name in self.names]
            size = style.size_of_lines(ax, len(names))
            ax.set_yticks(range(len(names)), names, fontsize=size)
            ax.set_xticks(range(len(names)), names, fontsize=size, rotation=90)
        return self


def _draw_matrix(display, ax, matrix, **options):
    """Draw a matrix whose rows are ordered by clusters, with borders, colours and numbers of the
    clusters along it; sets `im_`, `borders_` and `strips_`."""
    from matplotlib.patches import Rectangle

    n, ink = len(display.labels), style.shade(ax)
    # What has more rows than pixels is averaged.
    how = "nearest" if n < 400 else "antialiased"
    display.im_ = ax.imshow(matrix, vmin=0.0, interpolation=how, **options)
    names, first, sizes = np.unique(display.labels, return_index=True, return_counts=True)
    numbers = np.arange(len(names)) - (names < 0).sum()
    colors = dict(zip(names, style.colors_of_rows(ax, numbers), strict=True))
    display.borders_, display.strips_ = [], []
    for name, start, size in zip(names, first, sizes, strict=True):
        low = start - 0.5
        border = Rectangle((low, low), size, size, fill=False, edgecolor=ink, linewidth=0.7)
        display.borders_.append(ax.add_patch(border))
        # Beside and below the matrix: along the rows in numbers, across in shares of the axis.
        for transform, place in (
            (ax.get_yaxis_transform(), ((-0.03, low), 0.02, size)),
            (ax.get_xaxis_transform(), ((low, -0.03), size, 0.02)),
        ):
            strip = Rectangle(
                *place, transform=transform, facecolor=colors[name], linewidth=0, clip_on=False
            )
            display.strips_.append(ax.add_patch(strip))
    centres = first + (sizes - 1) / 2.0
    named, last = [], -np.inf
    for k, centre in enumerate(centres):
        if centre - last >= SMALLEST_GAP * n * (1 + bool(display._resized)):
            named.append(k)
            last = centre
    words = ["noise" if name < 0 else str(name) for name in names[named]]
    ax.set_xticks(centres[named], words)
    ax.set_yticks(centres[named], words)
    ax.tick_params(length=0, pad=9)
    ax.spines[:].set_color(ink)
