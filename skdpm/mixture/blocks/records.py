# SPDX-License-Identifier: BSD-3-Clause
"""Small objects that a sampler, its state and the rows exchange; all can be pickled.

The rows of X are cut into *blocks* of consecutive rows, numbered from 1. A row's *code* is
2 k + s: cluster k, and s = 0 or 1 for its left or right sub-cluster (Chang & Fisher 2013); without
sub-clusters s is 0. A random split has two *sides*, each with two sub-clusters: its four *parts*.
In a *launch* the rows of a union of one or two clusters draw new sides, regardless of the sides
they are on. A *key* (entropy, chain, iteration) names random streams; together with a block and a
stream number it names one of them.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from skdpm.chains import stream
from skdpm.mixture.blocks._launch import draw_sides
from skdpm.mixture.blocks._visit import BlockTask, split_codes


@dataclass(frozen=True, slots=True)
class Sweep:
    """Clusters from which every row draws its code.

    Parameters
    ----------
    params : ndarray of shape (n_clusters, n_params)
    log_weights : ndarray of shape (n_clusters,)
    sub_params : ndarray of shape (2 n_clusters, n_params), or None
        Parameters of the sub-clusters; None without sub-clusters.
    sub_log_weights : ndarray of shape (2 n_clusters,), or None
    """

    params: np.ndarray
    log_weights: np.ndarray
    sub_params: np.ndarray | None = None
    sub_log_weights: np.ndarray | None = None
    block_task: ClassVar[type] = BlockTask  # does the sweep on a block
    in_tiles: ClassVar[bool] = True  # whether it can pass over clusters far from close rows


@dataclass(frozen=True, slots=True)
class TrialSplit:
    """A random split of a cluster, to be evaluated.

    Each row of the cluster goes to the first side with probability `share`.
    """

    cluster: int
    share: float
    stream_number: int  # from 1; 0 is the sweep's


@dataclass(frozen=True, slots=True)
class Task:
    """Work to be done on every block.

    Parameters
    ----------
    n_clusters : int
    sweep : Sweep or None
        None: codes stay as they are.
    splits : tuple of TrialSplit
        Splits of the clusters as they are after the sweep.
    held_clusters : tuple of int
        Rows of these clusters keep their codes in the sweep.
    """

    n_clusters: int
    sweep: Sweep | None = None
    splits: tuple = ()
    held_clusters: tuple = ()


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a block that keep their codes in a sweep, ascending, and these codes."""

    rows: np.ndarray
    codes: np.ndarray

    @classmethod
    def of_clusters(cls, codes, clusters):
        """Find the rows that are in the given clusters; None if no cluster is given."""
        if not clusters:
            return None
        rows = np.flatnonzero(np.isin(codes >> 1, clusters))
        return cls(rows, codes[rows])


@dataclass(frozen=True, slots=True)
class Collected:
    """Statistics of groups of rows, within a block or over all blocks.

    Parameters
    ----------
    stats : ndarray of shape (n_groups, n_stats)
        The first statistic of each is the number of rows.
    first_rows : ndarray of shape (n_groups,), intp
        The first row of each; -1 for an empty group.
    """

    stats: np.ndarray
    first_rows: np.ndarray

    def __len__(self):
        return len(self.first_rows)

    def __getitem__(self, groups):
        return Collected(self.stats[groups], self.first_rows[groups])


@dataclass(frozen=True, slots=True)
class Relabelling:
    """A change of codes by a table: new code of each old one, int32."""

    table: np.ndarray

    def apply(self, codes, block, model=None):
        """Return the new codes of a block."""
        return self.table[codes]


@dataclass(frozen=True, slots=True)
class RandomSplit:
    """A change of codes by a random split: its second side becomes a new cluster."""

    trial: TrialSplit
    new_cluster: int
    key: tuple

    @property
    def cluster(self):
        return self.trial.cluster

    def apply(self, codes, block, model=None):
        """Return the new codes of a block."""
        codes = codes.copy()
        bit_generator = stream(*self.key, block, self.trial.stream_number)
        split_codes(codes, self.trial, self.new_cluster, bit_generator)
        return codes


@dataclass(frozen=True, slots=True)
class Launch:
    """Unions of clusters whose rows draw sides.

    Parameters
    ----------
    unions : tuple of tuple of int
        The cluster or the two clusters of each union, no cluster in two of them.
    params : ndarray of shape (2 n_unions, n_params)
        Parameters of the two sides of each union.
    log_weights : ndarray of shape (2 n_unions,)
    """

    unions: tuple
    params: np.ndarray
    log_weights: np.ndarray


@dataclass(frozen=True, slots=True)
class Sides:
    """Sides drawn in a `Launch`, within a block or over all blocks.

    Parameters
    ----------
    collected : Collected
        Statistics of the two sides of each union.
    log_q : ndarray of shape (n_unions, 4)
        Log probabilities of the sides drawn and of the opposite sides; then, if the union is two
        clusters, of the sides that the rows are on now and of the opposite sides.
    """

    collected: Collected
    log_q: np.ndarray


@dataclass(frozen=True, slots=True)
class LaunchedSplit:
    """A change of codes by sides drawn in a `Launch`: the second side becomes a new cluster."""

    cluster: int
    new_cluster: int
    params: np.ndarray
    log_weights: np.ndarray
    key: tuple
    stream_number: int

    def apply(self, codes, block, model):
        """Return the new codes of a block."""
        codes = codes.copy()
        draw_sides(model, codes, self, stream(*self.key, block, self.stream_number))
        return codes


def change_codes(codes, changes, block, model=None):
    """Apply changes to the codes of a block in turn and return the codes.

    Parameters
    ----------
    codes : ndarray of shape (n_rows,), int32
    changes : iterable of Relabelling, RandomSplit or LaunchedSplit
    block : int
    model : ParametricModel or None
        Bound to the rows; needed by a `LaunchedSplit`.
    """
    for change in changes:
        codes = change.apply(codes, block, model)
    return codes


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """Compact record from which the labels and clusters of a draw can be reconstructed.

    Parameters
    ----------
    labels : object
        From `Rows.keep`.
    cluster_numbers : ndarray of shape (n_slots,), int64
        Number of each cluster of the state, by decreasing size and then by the first row.
    stats : ndarray of shape (n_clusters, n_stats)
        Statistics in the order of these numbers.
    """

    labels: object
    cluster_numbers: np.ndarray
    stats: np.ndarray
