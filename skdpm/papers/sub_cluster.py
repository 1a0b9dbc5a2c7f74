# SPDX-License-Identifier: BSD-3-Clause
"""Variants of sub-cluster splits that Chang & Fisher (2013) compare."""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.blocks.records import Sweep
from skdpm.mixture.samplers.sub_cluster import SubCluster, SubClusterKernel
from skdpm.papers._grouped_visit import GroupedTask

# Variants of the paper: whether they restrict rows to super-clusters, and whether splits wait
# until sub-clusters have burned in.
VARIANTS = {
    "SUBC+SUPC": (True, True),
    "SUBC APPROX": (False, False),
    "SUBC+SUPC APPROX": (True, False),
}


def make(variant, **params):
    """Make a variant that Chang & Fisher (2013) compare, for reproductions.

    Parameters
    ----------
    variant : {"SUBC", "SUBC+SUPC", "SUBC APPROX", "SUBC+SUPC APPROX"}
        "SUBC": `SubCluster`. "SUPC": each row is restricted to its super-cluster, a group of
        similar clusters that is drawn anew in every iteration (their Algorithm 1 with the
        J-divergence, except that no cluster is its own neighbour); not possible with Dask
        arrays. "APPROX": in warm-up a split into sub-clusters is proposed in every iteration,
        without waiting until the sub-clusters have burned in, that is until their marginal
        likelihood no longer rises.
    **params
        Parameters of `SubCluster` to change.
    """
    check_choice(variant, "variant of SubCluster.from_paper", ("SUBC", *VARIANTS))
    return SubCluster(**params) if variant == "SUBC" else PaperSubCluster(variant, **params)


class PaperSubCluster(SubCluster):
    """A variant of `SubCluster`; see `SubCluster.from_paper`."""

    takes_noise = False

    def __init__(self, variant, block_size=65536):
        super().__init__(block_size)
        self.variant = variant

    @property
    def needs_labels(self):
        return VARIANTS.get(self.variant, (False, True))[0]

    def kernel(self):
        check_integer(self.block_size, "SubCluster.block_size", low=1)
        check_choice(self.variant, "SubCluster.variant", VARIANTS)
        in_groups, wait = VARIANTS[self.variant]
        return PaperSubClusterKernel(in_groups=in_groups, wait=wait)


class PaperSubClusterKernel(SubClusterKernel):
    """One iteration of a variant; see `VARIANTS`. Options are parameters of `SubClusterKernel`."""

    def __init__(self, in_groups=False, wait=True, **options):
        super().__init__(**options)
        self.in_groups = in_groups
        self.wait = wait

    def _ready(self):
        return self.memory.ready | (not self.wait)

    def _parameters(self, state, totals, rng):
        sweep = super()._parameters(state, totals, rng)
        if not self.in_groups:
            return sweep
        divergences = state.likelihood.divergences(sweep.params)
        return GroupedSweep.of(sweep, draw_groups(divergences, rng))


@dataclass(frozen=True, slots=True)
class GroupedSweep(Sweep):
    """A sweep in which each row draws its cluster among those of the group of clusters that its
    last cluster is in: super-clusters of Chang & Fisher (2013, Algorithm 1)."""

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
