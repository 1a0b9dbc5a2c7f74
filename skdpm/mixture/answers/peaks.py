# SPDX-License-Identifier: BSD-3-Clause
"""Clusters as peaks of the predictive density, each of one or more components.

Where the rows of a cluster do not follow the likelihood's law, the best density has several
components there: one for its middle and others for its flanks. Components are fused with one whose
centre is denser if the density has no valley on the straight way between the centres (cf. Hennig
2010, who looks for valleys of the density of two components; here that of all of them, averaged
over the draws, is meant, which does not depend on where one draw has its components).
"""

import numpy as np
import scipy.sparse as sp

from skdpm.partitions import relabel_by_size

# A valley: less than this share of the density at the lower of the two centres.
VALLEY = 0.8
# Points of a way between two centres.
N_STEPS = 8
# Neighbours of a component that are looked at, and points of ways per row of the fit: a fit scores
# each row some thousand times, so that this is a small part of its time.
MOST_NEIGHBOURS, POINTS_PER_ROW = 8, 2.0
# Draws that tell which components are neighbours.
MOST_DRAWS = 100


def fuse_to_peaks(labels, draws, centres, log_density):
    """Fuse the clusters of a partition that are on the slope of the same peak.

    In the order of the density at their centres, each cluster joins the one with a denser centre
    that it shares most with, in the draws, of those to which no valley is on the way; where there
    is none, it is a peak of its own. Two peaks are never joined by a cluster that lies between
    them, as it joins one of the two.

    Parameters
    ----------
    labels : ndarray of int of shape (n_samples,)
        From 0, without gaps.
    draws : ndarray of int of shape (n_draws, n_samples)
        Partitions. Clusters that share no cluster of a draw are not neighbours.
    centres : ndarray of shape (n_clusters, n_features)
    log_density : callable
        Of rows: (n_rows,).

    Returns
    -------
    labels : ndarray of int64 of shape (n_samples,)
        From 0 by decreasing size.
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
        # The most shared first, ties by density.
        nearest = np.lexsort((rank[others], -amount))[:most]
        ways += [(cluster, other) for other in others[nearest]]
    root = np.arange(n_clusters)
    if ways:
        low, high = np.array(ways).T
        share = (np.arange(1, N_STEPS + 1) / (N_STEPS + 1))[:, None]
        points = centres[low, None] * (1.0 - share) + centres[high, None] * share
        lowest = log_density(points.reshape(-1, centres.shape[1])).reshape(-1, N_STEPS).min(axis=1)
        # NaN, where a density overflows, is a valley.
        open_ways = lowest >= height[low] + np.log(VALLEY)
        fused = np.zeros(n_clusters, dtype=bool)
        for w in np.flatnonzero(open_ways):
            if not fused[low[w]]:
                root[low[w]], fused[low[w]] = root[high[w]], True
    return relabel_by_size(root[labels])


def _shared(labels, draws):
    """How often rows of two clusters share a cluster of a draw, per pair of rows: CSR."""
    n_clusters = int(labels.max()) + 1
    step = -(-len(draws) // MOST_DRAWS)
    tables = []
    for draw in draws[::step]:
        shape = (n_clusters, int(draw.max()) + 1)
        # Becomes small at once: equal pairs are added up.
        tables.append(sp.csr_array((np.ones(len(labels)), (labels, draw)), shape=shape))
    table = sp.hstack(tables, format="csr")
    sizes = np.bincount(labels).astype(np.float64)
    rates = sp.diags_array(1.0 / sizes) @ table
    shared = sp.csr_array(rates @ rates.T)
    shared.sort_indices()
    return shared
