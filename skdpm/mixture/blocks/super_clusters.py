# SPDX-License-Identifier: BSD-3-Clause
"""Super-clusters: groups of similar clusters (Chang & Fisher 2013, Algorithm 1)."""

import numpy as np
from scipy.sparse.csgraph import connected_components


def draw_super_clusters(divergences, rng):
    """Draw groups of clusters, numbered from 0: the connected components of a graph in which each
    cluster has one neighbour, another one, drawn with probability proportional to
    exp(-divergence).

    The paper's sum includes the cluster itself, at divergence 0: of clusters that are apart nearly
    all would then stand alone, and no row could leave one.

    Parameters
    ----------
    divergences : ndarray of shape (n_clusters, n_clusters)
    rng : numpy.random.Generator

    Returns
    -------
    groups : ndarray of shape (n_clusters,), intp

    Raises
    ------
    FloatingPointError
        Where a divergence is NaN.
    """
    n_clusters = len(divergences)
    if n_clusters == 1:
        return np.zeros(1, dtype=np.intp)
    others = np.minimum(divergences, np.finfo(np.float64).max)
    np.fill_diagonal(others, np.inf)
    for k in np.flatnonzero(np.isnan(others).any(axis=1)):
        raise FloatingPointError(f"a divergence of cluster {k} from another one is NaN")
    # Relative to the nearest, as all may be far away.
    affinities = np.cumsum(np.exp(others.min(axis=1, keepdims=True) - others), axis=1)
    u = rng.random((n_clusters, 1)) * affinities[:, -1:]
    neighbours = (u >= affinities).sum(axis=1)
    graph = np.zeros((n_clusters, n_clusters), dtype=bool)
    graph[np.arange(n_clusters), neighbours] = True
    return connected_components(graph, directed=False)[1].astype(np.intp)
