# SPDX-License-Identifier: BSD-3-Clause
"""What a chain reads of the state that its draws are made from."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class StateView(Protocol):
    """A partition with the statistics of its clusters.

    `MixtureState` (rows in memory), `BlockState` (rows in blocks) and `ParticleView` (rows that
    are gone) all provide it.

    - `prior`: PartitionPrior. The prior at the concentration of the draw.
    """

    prior: object
    n_clusters: int

    def cluster_sizes(self):
        """Number of items of each cluster: ndarray of shape (n_clusters,)."""

    def dump(self, clusters=None):
        """Statistics of the given clusters, by default all: ndarray (n, n_stats)."""


@runtime_checkable
class LabelledStateView(StateView, Protocol):
    """A state whose rows are still there: `MixtureState` and `BlockState`."""

    def cluster_labels(self):
        """Cluster of each row, in the order of `cluster_sizes`: ndarray of shape (n_samples,)."""

    def compute_log_joint(self):
        """log p(rows, partition | concentration, hyperparameters) in nats."""
