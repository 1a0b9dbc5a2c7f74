# SPDX-License-Identifier: BSD-3-Clause
"""Small objects that a sampler, its state and the rows exchange; all can be pickled.

The rows of X are cut into *blocks* of consecutive rows, numbered from 1. A row's *code* is
2 k + s: cluster k, and s = 0 or 1 for its left or right sub-cluster (Chang & Fisher 2013); without
sub-clusters s is 0. A row that is noise has the code NOISE_CODE. A random split has two *sides*,
each with two sub-clusters: its four *parts*. In a *launch* the rows of a union of one or two
clusters draw new sides, regardless of the sides they are on. A *key* (entropy, chain, iteration)
names random streams; together with a block and a stream number it names one of them.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from skdpm.chains import stream
from skdpm.mixture.blocks._launch import draw_sides
from skdpm.mixture.blocks._visit import BlockTask

# Two from the end of a table of codes.
NOISE_CODE = -2


@dataclass(frozen=True, slots=True)
class Sweep:
    """Clusters from which every row draws its code."""

    params: np.ndarray  # (n_clusters, n_params)
    log_weights: np.ndarray  # (n_clusters,)
    sub_params: np.ndarray | None = None  # (2 n_clusters, n_params); None: no sub-clusters
    sub_log_weights: np.ndarray | None = None  # (2 n_clusters,)
    log_noise_weight: float | None = None  # None: no row becomes noise
    block_task: ClassVar[type] = BlockTask  # does the sweep on a block
    in_tiles: ClassVar[bool] = True  # whether it can pass over clusters far from close rows


@dataclass(frozen=True, slots=True)
class TrialSplit:
    """A random split of a cluster, to be evaluated."""

    cluster: int
    share: float  # probability of the first side, for each row of the cluster
    stream_number: int  # from 1; 0 is the sweep's


@dataclass(frozen=True, slots=True)
class Task:
    """Work to be done on every block."""

    n_clusters: int
    sweep: Sweep | None = None  # None: codes do not change
    splits: tuple = ()  # TrialSplit: random splits of the clusters after the sweep
    held_clusters: tuple = ()  # rows of these clusters keep their codes in the sweep
    held_rows: tuple = ()  # and so do these, which are numbered from the first of all, ascending


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a block that keep their codes in a sweep, ascending, and these codes."""

    rows: np.ndarray
    codes: np.ndarray

    @classmethod
    def of_clusters(cls, codes, clusters, rows=()):
        """The rows in the given clusters, and the given rows; None if neither are given."""
        if not (len(clusters) or len(rows)):
            return None
        is_held = np.isin(codes >> 1, clusters)
        is_held[np.asarray(rows, dtype=np.intp)] = True
        rows = np.flatnonzero(is_held)
        return cls(rows, codes[rows])


@dataclass(frozen=True, slots=True)
class Collected:
    """Statistics of groups of rows, within a block or over all blocks."""

    stats: np.ndarray  # (n_groups, n_stats); the first statistic is the number of rows
    first_rows: np.ndarray  # (n_groups,): first row of each group, -1 if it is empty

    @classmethod
    def of_no_rows(cls, n_groups, n_stats):
        return cls(np.zeros((n_groups, n_stats)), np.full(n_groups, -1))

    def __len__(self):
        return len(self.first_rows)

    def put(self, places, other):
        """Replace some groups."""
        self.stats[places], self.first_rows[places] = other.stats, other.first_rows

    def __getitem__(self, groups):
        return Collected(self.stats[groups], self.first_rows[groups])


@dataclass(frozen=True, slots=True)
class Relabelling:
    """A change of codes by a table: new code of each old one, int32."""

    table: np.ndarray

    def apply(self, codes, block, model=None):
        """Return the new codes of a block."""
        return np.append(self.table, 2 * [np.int32(NOISE_CODE)])[codes]


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
        """Return the new codes of a block: rows draw the sides that were evaluated, from the same
        stream, and those of the second side move. Sub-clusters stay."""
        codes, rows = codes.copy(), np.flatnonzero(codes >> 1 == self.cluster)
        rng = np.random.Generator(stream(*self.key, block, self.trial.stream_number))
        moved = rows[rng.random(len(rows)) >= self.trial.share]
        codes[moved] += 2 * (self.new_cluster - self.cluster)
        return codes


@dataclass(frozen=True, slots=True)
class Launch:
    """Unions of clusters whose rows draw sides."""

    unions: tuple  # tuples of the one or two clusters of each union; unions are disjoint
    params: np.ndarray  # (2 n_unions, n_params): of the two sides of each union
    log_weights: np.ndarray  # (2 n_unions,)


@dataclass(frozen=True, slots=True)
class Sides:
    """Sides drawn in a `Launch`, within a block or over all blocks."""

    collected: Collected  # statistics of the two sides of each union
    log_q: np.ndarray  # (n_unions, 4): log probabilities, see `_launch`


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
        codes = codes.copy()
        draw_sides(model, codes, self, stream(*self.key, block, self.stream_number))
        return codes


def change_codes(codes, changes, block, model=None):
    """Apply changes (`Relabelling`, `RandomSplit` or `LaunchedSplit`) to the codes of a block in
    turn and return the codes. A `LaunchedSplit` needs the model, bound to the rows."""
    for change in changes:
        codes = change.apply(codes, block, model)
    return codes


@dataclass(frozen=True, slots=True)
class KeptPartition:
    """Compact record from which the labels and clusters of a draw can be reconstructed."""

    labels: object  # from `Rows.keep`
    # (n_slots,), int64: number of each cluster of the state, by decreasing size, then first row.
    cluster_numbers: np.ndarray
    stats: np.ndarray  # (n_clusters, n_stats), in the order of these numbers
