# SPDX-License-Identifier: BSD-3-Clause
"""Basins of the density of a draw: rows from which it rises to one peak.

The density of a draw is smooth, so rows that climb to the densest of their neighbours arrive at
its peaks. Two peaks are one if the pass between them is hardly lower than the lower one. See
`doc/background/clusters.md`.

Related: clusters by prominence on a graph of neighbours (Chazal, Guibas, Oudot & Skraba 2013),
modal clustering (Chacon 2015).
"""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from skdpm.mixture.answers.components import whitening
from skdpm.partitions import without_gaps

# Number of neighbours of a row to which it can climb, with the row itself.
N_NEIGHBOURS = 12
# Points on the line between two peaks at which the density is evaluated.
SHARES = np.arange(1, 10) / 10.0


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Nearest rows of rows, in units in which all rows have unit covariance.

    - `white`: (n_samples, n_directions). Rows in these units.
    - `rows`: (n_some,), int. Rows that climb: all, or some of many. Of rows with the same entries,
      one climbs: others of its kind would be its only neighbours.
    - `points`: (n_some, n_columns). Their points.
    - `of_rows`: (n_some, n_neighbours), int. Positions in `rows` of their nearest ones.
    - `nearest`: (n_samples,), int. Position in `rows` of the nearest one to each row.
    """

    white: np.ndarray
    rows: np.ndarray
    points: np.ndarray
    of_rows: np.ndarray
    nearest: np.ndarray

    @classmethod
    def of(cls, points, step):
        """Neighbours of every `step`-th of the points, (n_samples, n_columns), without NaN."""
        white = points @ whitening(points)
        climbing, first, nearest = np.unique(
            points[::step], axis=0, return_index=True, return_inverse=True
        )
        tree = cKDTree(white[first * step])
        of_rows = tree.query(tree.data, np.arange(1, min(N_NEIGHBOURS, len(first)) + 1))[1]
        nearest = nearest.reshape(-1) if step == 1 else tree.query(white)[1]
        return cls(white, first * step, np.ascontiguousarray(climbing), of_rows, nearest)

    def basins(self, laws, hills, prominence):
        """Basin of each row, 0, ..., B - 1: (n_samples,), int.

        - `laws`: NormalLaws. Laws of the components.
        - `hills`: (n_samples,). Hill of each row. Rows climb on their hill.
        - `prominence`: float. Nats by which each of two peaks is higher than the pass between
          them if they are two.
        """
        n_rows, of_all, hills = len(self.rows), hills, hills[self.rows]
        log_densities, here = laws.log_densities(self.points), np.arange(n_rows)
        near = np.where(hills[self.of_rows] == hills[:, None], self.of_rows, here[:, None])
        up = near[here, log_densities[near].argmax(axis=1)]
        up = np.where(log_densities[up] > log_densities, up, here)
        while True:
            higher = up[up]
            if np.array_equal(higher, up):
                break
            up = higher
        peaks, basins = np.unique(up, return_inverse=True)
        # The pass between two basins is the highest pair of neighbours, one in each.
        one, other = np.repeat(here, near.shape[1]), near.ravel()
        meets = basins[one] != basins[other]
        one, other = one[meets], other[meets]
        passes = np.full((len(peaks),) * 2, -np.inf)
        np.maximum.at(
            passes,
            (basins[one], basins[other]),
            np.minimum(log_densities[one], log_densities[other]),
        )
        passes = np.maximum(passes, passes.T)
        low, high = np.nonzero(np.triu(passes > -np.inf))
        # In many columns no row may be near the path between two peaks.
        ends = self.points[peaks]
        between = ends[low, None] + SHARES[:, None] * (ends[high] - ends[low])[:, None]
        lowest = laws.log_densities(between.reshape(-1, ends.shape[1])).reshape(-1, len(SHARES))
        heights = np.maximum(passes[low, high], lowest.min(axis=1))
        height, owner = log_densities[peaks], list(range(len(peaks)))

        def top(peak):
            while owner[peak] != peak:
                peak = owner[peak]
            return peak

        for k in np.argsort(-heights, kind="stable"):
            first, second = sorted((top(low[k]), top(high[k])), key=height.__getitem__)
            if first != second and height[first] - heights[k] < prominence:
                owner[first] = second
        basins = np.array([top(peak) for peak in range(len(peaks))])[basins]
        found, others = basins[self.nearest], hills[self.nearest] != of_all
        for h in np.unique(of_all[others]):
            lost, inside = np.flatnonzero(others & (of_all == h)), np.flatnonzero(hills == h)
            found[lost] = found.max() + 1
            if len(inside):
                tree = cKDTree(self.white[self.rows[inside]])
                found[lost] = basins[inside[tree.query(self.white[lost])[1]]]
        found = without_gaps(found)
        return found.astype(np.min_scalar_type(found.max()))
