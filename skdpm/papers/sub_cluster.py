# SPDX-License-Identifier: BSD-3-Clause
"""Variants of sub-cluster splits that Chang & Fisher (2013) compare."""

from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np
from scipy.sparse.csgraph import connected_components

from skdpm._validation import check_choice
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.records import Sweep
from skdpm.mixture.samplers.sub_cluster import SubCluster, SubClusterKernel
from skdpm.papers._grouped_visit import GroupedTask

# Random moves of an iteration, one of them a split on average. The paper does not say how many it
# makes; with 999 merges each pair of 45 clusters is tried once.
N_RANDOM_MOVES = 1000


def make(variant, **params):
    """Make a sampler of Chang & Fisher (2013), whose sub-clusters are split in every iteration.

    >>> from skdpm.mixture.samplers import SubCluster
    >>> SubCluster.from_paper("SUBC")
    PaperSubCluster(variant='SUBC')

    An iteration draws weights, parameters and all labels, makes random splits and merges, and
    proposes to split each cluster into its sub-clusters. These splits are never undone by a merge
    of the same kind, as in the paper, so that draws do not follow the posterior: on five rows the
    total variation distance is 0.17. Chains start at the estimator's `init`.

    The sampler deviates from the paper in these points. A cluster that would lose all its rows
    keeps them, because the paper's pass over the rows is not exact. Sub-clusters burn in by their
    marginal likelihood, in place of the likelihood at drawn parameters, and start anew if they
    have gained nothing for 20 iterations. The numbers of random moves are ours: 1000 an iteration,
    999 of them merges of uniform pairs, because the paper leaves them to its supplement. Not all
    pairs are proposed in each iteration: a number that follows the clusters is not exact. The
    ratio of a split has that of the partition prior, which need not be a Dirichlet process.

    Parameters
    ----------
    variant : {"SUBC", "SUBC+SUPC", "SUBC APPROX", "SUBC+SUPC APPROX"}
        "SUBC": sub-clusters, which may be split off once they have burned in, that is when their
        marginal likelihood no longer rises. "SUPC": each row is restricted to its super-cluster, a
        group of similar clusters that is drawn anew in every iteration (their algorithm 1 with the
        J-divergence, except that no cluster is its own neighbour); not possible with Dask arrays.
        "APPROX": splits do not wait until sub-clusters have burned in. Not with a noise component.
    **params
        Parameters of `SubCluster` to change.
    """
    return PaperSubCluster(variant, **params)


class PaperSubCluster(SubCluster):
    """`SubCluster.from_paper`: splits into sub-clusters in every iteration."""

    takes_noise = False

    def __init__(self, variant, block_size=65536):
        super().__init__(block_size)
        self.variant = variant

    @property
    def needs_labels(self):
        return "SUPC" in str(self.variant)

    def kernel(self):
        check_choice(self.variant, "SubCluster.variant", SubCluster.from_paper.variants)
        return PaperSubClusterKernel(self.needs_labels, wait="APPROX" not in self.variant)


class PaperSubClusterKernel(SubClusterKernel):
    """One iteration of a variant: whether rows are restricted to groups of clusters, and whether
    splits wait for sub-clusters. Other options are parameters of `SubClusterKernel`."""

    looks_around = False

    def __init__(self, in_groups=False, wait=True, random_moves=None, **options):
        if random_moves is None:
            random_moves = RandomMoves(N_RANDOM_MOVES, 1.0 / N_RANDOM_MOVES)
        super().__init__(random_moves=random_moves, **options)
        self.in_groups = in_groups
        self.wait = wait

    def acceptance(self):
        counts = {**self.counts, **self.random_moves.counts}
        return {move: values.copy() for move, values in counts.items()}

    def step(self, state, rng, key, adapting=0.0):
        self._pass_and_move(state, rng, key, self.sub_splits)

    def _ready(self):
        return self.memory.ready | (not self.wait)

    def _parameters(self, state, totals, rng):
        sweep = super()._parameters(state, totals, rng)
        if not self.in_groups:
            return sweep
        return GroupedSweep.of(sweep, draw_groups(state.likelihood.divergences(sweep.params), rng))


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
