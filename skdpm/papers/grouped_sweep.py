# SPDX-License-Identifier: BSD-3-Clause
"""Sweeps in groups of similar clusters: super-clusters of Chang & Fisher (2013, Algorithm 1).

A sweep in groups draws the cluster of each row among those of the group that its last cluster is
in. `SubCluster.from_paper` makes a sampler that uses it.
"""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from skdpm.mixture.blocks.records import Sweep
from skdpm.papers._grouped_visit import GroupedTask


@dataclass(frozen=True, slots=True)
class GroupedSweep(Sweep):
    """A sweep in which each row draws its cluster from one group of clusters."""

    groups: np.ndarray = None  # (n_clusters,), intp: group of each cluster, from 0
    block_task: ClassVar[type] = GroupedTask
    in_tiles: ClassVar[bool] = False

    @classmethod
    def of(cls, sweep, groups):
        """Make the sweep with the same parameters and weights in groups."""
        parts = {field.name: getattr(sweep, field.name) for field in fields(Sweep)}
        return cls(**parts, groups=groups)


def draw_groups(divergences, rng):
    """Draw groups of clusters: the connected components of a graph in which each cluster draws one
    other cluster as its neighbour, with probability proportional to exp(-divergence).

    In the paper a cluster may also draw itself, at divergence 0. Clusters that are apart would
    then nearly all be groups of one, and no row could leave its cluster.

    Divergences have shape (n_clusters, n_clusters). Returns the groups of a `GroupedSweep`; raises
    a FloatingPointError if a divergence is NaN.
    """
    n_clusters = len(divergences)
    if n_clusters == 1:
        return np.zeros(1, dtype=np.intp)
    others = np.minimum(divergences, np.finfo(np.float64).max)
    np.fill_diagonal(others, np.inf)
    for k in np.flatnonzero(np.isnan(others).any(axis=1)):
        raise FloatingPointError(f"a divergence of cluster {k} from another one is NaN")
    # Relative to the nearest cluster, as all may be far away.
    affinities = np.cumsum(np.exp(others.min(axis=1, keepdims=True) - others), axis=1)
    u = rng.random((n_clusters, 1)) * affinities[:, -1:]
    neighbours = (u >= affinities).sum(axis=1)
    graph = np.zeros((n_clusters, n_clusters), dtype=bool)
    graph[np.arange(n_clusters), neighbours] = True
    return connected_components(graph, directed=False)[1].astype(np.intp)
