# SPDX-License-Identifier: BSD-3-Clause
"""Clusters as peaks of the predictive density, each of one or more components.

If the rows of a cluster do not follow the law of the likelihood, the best density has several
components there, for the middle and for the flanks. A component is fused with a denser one if the
predictive density has no valley on the line between their centres. (Hennig 2010 looks for valleys
of the density of two components. Here the density is that of all components, averaged over the
draws, which does not depend on the position of the components in one draw.)
"""

import numpy as np
import scipy.sparse as sp

from skdpm.partitions import relabel_by_size

# A valley is lower than this fraction of the density at the lower of the two centres.
VALLEY = 0.8
# Number of points on the line between two centres.
N_STEPS = 8
# Largest number of neighbours of a component, and of points on lines per row of the fit. A fit
# scores each row some thousand times, so this is a small part of its time.
MOST_NEIGHBOURS, POINTS_PER_ROW = 8, 2.0
# Number of draws that determine which components are neighbours.
MOST_DRAWS = 100


def fuse_to_peaks(labels, draws, centres, log_density):
    """Fuse the clusters of a partition that are on the slope of the same peak.

    In the order of the density at their centres, each cluster joins a cluster with a denser centre
    and no valley in between: the one with which it shares most clusters of the draws. If there is
    none, it is a peak. A cluster between two peaks joins one of them, so it never connects them.

    Parameters
    ----------
    labels : ndarray of int of shape (n_samples,)
        Labels from 0, without gaps.
    draws : ndarray of int of shape (n_draws, n_samples)
        Partitions. Clusters that never share a cluster of a draw are not neighbours.
    centres : ndarray of shape (n_clusters, n_features)
    log_density : callable
        Function of rows that returns their log density, (n_rows,).

    Returns
    -------
    labels : ndarray of int64 of shape (n_samples,)
        Labels from 0, by decreasing size.
    """
    n_clusters = len(centres)
    if n_clusters == 1:
        return relabel_by_size(labels)
    height = log_density(centres)
    order = np.lexsort((np.arange(n_clusters), -height))
    rank = np.empty(n_clusters, dtype=np.intp)
    rank[order] = np.arange(n_clusters)
    shared = _shared(labels, draws)
    most = int(POINTS_PER_ROW * len(labels) / (N_STEPS * n_clusters))
    most = min(max(most, 1), MOST_NEIGHBOURS)
    ways = []
    for cluster in order:
        line = slice(*shared.indptr[cluster : cluster + 2])
        others, amount = shared.indices[line], shared.data[line]
        denser = rank[others] < rank[cluster]
        others, amount = others[denser], amount[denser]
        # Clusters that share most come first; ties by density.
        nearest = np.lexsort((rank[others], -amount))[:most]
        ways += [(cluster, other) for other in others[nearest]]
    root = np.arange(n_clusters)
    if ways:
        low, high = np.array(ways).T
        share = (np.arange(1, N_STEPS + 1) / (N_STEPS + 1))[:, None]
        points = centres[low, None] * (1.0 - share) + centres[high, None] * share
        lowest = log_density(points.reshape(-1, centres.shape[1])).reshape(-1, N_STEPS).min(axis=1)
        # NaN, from a density that overflows, counts as a valley.
        open_ways = lowest >= height[low] + np.log(VALLEY)
        fused = np.zeros(n_clusters, dtype=bool)
        for w in np.flatnonzero(open_ways):
            if not fused[low[w]]:
                root[low[w]], fused[low[w]] = root[high[w]], True
    return relabel_by_size(root[labels])


def _shared(labels, draws):
    """Frequency with which rows of two clusters share a cluster of a draw, per pair of rows:
    CSR."""
    n_clusters = int(labels.max()) + 1
    step = -(-len(draws) // MOST_DRAWS)
    tables = []
    for draw in draws[::step]:
        shape = (n_clusters, int(draw.max()) + 1)
        # Equal pairs are added, so the table is small.
        tables.append(sp.csr_array((np.ones(len(labels)), (labels, draw)), shape=shape))
    table = sp.hstack(tables, format="csr")
    sizes = np.bincount(labels).astype(np.float64)
    rates = sp.diags_array(1.0 / sizes) @ table
    shared = sp.csr_array(rates @ rates.T)
    shared.sort_indices()
    return shared
