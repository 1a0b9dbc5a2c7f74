# SPDX-License-Identifier: BSD-3-Clause
"""Clusters as hills of the density: components of a draw without a valley between them.

If the rows of a cluster do not follow the law of the likelihood, a draw has several components
there. They belong to one cluster if the rows support no valley of the density between them. The
test for a pair of components is on the line that separates them best, so it works in any number
of columns; chains of pairs follow clusters of any shape. See `doc/background/clusters.md`.

Related: ridgelines and tests of pairs (Hennig 2010), clusters by prominence (Chazal, Guibas, Oudot
& Skraba 2013), fusing components of a posterior (Dombowsky & Dunson 2024).
"""

import hashlib
import itertools
from dataclasses import dataclass

import joblib
import numpy as np
import scipy.linalg

from skdpm.mixture.answers import bricks
from skdpm.mixture.answers._valleys import valleys
from skdpm.mixture.likelihoods.laws.coordinates import drawn_in
from skdpm.mixture.rows.known import UNLABELLED

# Evidence (nats) from which a valley separates two components or two hills, if at most two pairs
# of components have a valley; log(m / 2) more for m pairs, as some of many are large by chance.
LEAST_EVIDENCE = 1.5
# Log of the smallest ratio of the lower of two peaks to the pass between them that separates two
# hills.
LEAST_PROMINENCE = np.log(2.0)
# Smallest component with a hill: this share of the rows, and this number. Smaller ones have hills
# until this share of all rows is in components with hills.
LEAST_SHARE, LEAST_ROWS = 0.01, 5
LEAST_COVERED = 0.75
# Two components whose means differ by more than this multiple of the sum of their standard
# deviations are separate, whatever lies between them.
FARTHEST = 3.0
# Depth (natural logarithm) up to which a valley is shallow. Others need no test of hills.
DEEPEST = 2.0
# More columns than this are replaced by their principal axes.
MOST_COLUMNS = 32
# Number of rows that determine the principal axes.
AXIS_ROWS = 20_000
# Largest number of draws that are read, and of pairs of components in them: draws of more than 500
# components take seconds each, and fewer are read.
MOST_READ = 40
MOST_PAIRS = 10**7
# Largest number of temporary numbers for balls around pairs of components.
MOST_NUMBERS = 2**20


def points_of(X):
    """Rows as points with centred columns of unit variance: (n_samples, n_columns), with at most
    `MOST_COLUMNS`. NaN marks a missing entry."""
    points = standardised_columns(X)
    if points.shape[1] > MOST_COLUMNS:
        points = np.nan_to_num(points, copy=False)
        some = points[:: max(1, len(points) // AXIS_ROWS)]
        n_axes = points.shape[1]
        _, axes = scipy.linalg.eigh(
            some.T @ some, subset_by_index=(n_axes - MOST_COLUMNS, n_axes - 1)
        )
        points = points @ axes
    return np.ascontiguousarray(points)


def standardised_columns(X):
    """Columns that vary, centred and with unit variance: (n_samples, n_columns), float64."""
    X = np.asarray(X)
    columns = np.empty(X.shape[::-1])
    n_columns = 0
    for column in X.T:  # one at a time: X may fill most of the memory
        column = drawn_in(column.astype(np.float64)[:, None])[:, 0]
        scale = 0.0 if np.isnan(column).all() else np.nanstd(column)
        if scale > 0.0:
            columns[n_columns] = (column - np.nanmean(column)) / scale
            n_columns += 1
    return columns[:n_columns].T


def read_draws(
    X, draws, n_jobs=None, completed=None, known=UNLABELLED, adaptive=False, recorded=None
):
    """Clusters of draws of the partition into components.

    - `draws`: (n_chains, n_draws, n_samples), int. Components of the rows, -1 for rows that are
      noise.
    - `n_jobs`: int or None. Number of threads. The result does not depend on it.
    - `completed`: dict of (int, int) to callable, or None. If chains drew missing entries: for
      some draws, given by chain and number, a function that returns the rows with these entries.
      Only these draws are read.
    - `known`: KnownLabels or Unlabelled
    - `adaptive`: bool. Whether the components of a hill are clusters where they are more than
      bricks of it; see `bricks`.
    - `recorded`: array-like (n_samples, n_features) or None. Rows as they were recorded, if X has
      rounded numbers that were spread out.

    Returns

    - `chosen`: (n_read,), int. Numbers of the draws that are read, evenly spaced in each chain; at
      most `MOST_READ` with `MOST_PAIRS` pairs of components in all, and at least one per chain.
    - `clusters`: (n_chains, n_read, n_samples). Clusters of the rows, numbered as by `read_hills`,
      in the smallest unsigned type; if some rows are noise, -1, in the smallest signed type.
    """
    n_chains, n_draws = draws.shape[:2]
    n_components = draws.max(axis=2) + 1.0
    most = min(MOST_READ, MOST_PAIRS / max(np.mean(n_components**2), 1.0))
    n_read = min(n_draws, max(int(most // n_chains), 1))
    numbers = np.arange(n_draws)
    if completed is not None:
        numbers = np.array(sorted({s for _, s in completed}))
        n_read = min(n_read, len(numbers))
    chosen = numbers[np.linspace(len(numbers) - 1, 0, n_read).round().astype(int)[::-1]]
    points = points_of(X) if completed is None else None
    wanted = [(c, s) for c in range(n_chains) for s in chosen]
    # Equal partitions of complete rows have equal hills.
    keys = wanted
    if completed is None:
        keys = [hashlib.blake2b(draws[place].tobytes()).digest() for place in wanted]
    first = dict(zip(reversed(keys), reversed(wanted), strict=True))
    signed = draws.min() < 0

    def points_in(c, s):
        return points if completed is None else points_of(completed[c, s]())

    def inside(c, s):
        return np.flatnonzero(draws[c, s] >= 0) if signed else slice(None)

    def read(c, s):
        rows = inside(c, s)
        if signed and not len(rows):
            return None
        return Hills.of(points_in(c, s)[rows], draws[c, s][rows], known.take(rows))

    def placed(c, s, hills, split=None):
        clusters = np.full(draws.shape[2], -1)
        if hills is not None:
            rows = inside(c, s)
            clusters[rows] = hills.clusters(known.take(rows), split)
        most = clusters.max(initial=0)
        return clusters.astype(np.min_scalar_type(-1 - most if signed else most))

    def likeliest(c, s, hills):
        some = points_in(c, s)[:: -(-draws.shape[2] // bricks.MOST_ROWS)]
        if hills is None:
            return np.zeros(len(some), dtype=np.intp)
        return bricks.likeliest(some, hills.sizes, hills.means, hills.covariances)

    def tied(c, s, hills):
        if hills is None or not hills.has_parts or columns.shape[1] > MOST_COLUMNS:
            return np.zeros(0 if hills is None else len(hills.sizes), dtype=bool)
        return bricks.tied(columns[inside(c, s)], hills.labels)

    pool = joblib.Parallel(n_jobs=n_jobs, require="sharedmem")

    def each(function, *arguments):
        return pool(
            joblib.delayed(function)(*place, *others)
            for place, *others in zip(first.values(), *arguments, strict=True)
        )

    hills = each(read)
    split = [None] * len(hills)
    if adaptive and any(draw is not None and draw.has_parts for draw in hills):
        components = each(likeliest, hills)
        columns = standardised_columns(X if recorded is None else recorded)
        number = {key: i for i, key in enumerate(first)}
        grid = np.array([number[key] for key in keys]).reshape(n_chains, n_read)
        # Draws of other chains, or of a single chain those that are the farthest.
        half = n_read // 2
        others = [
            np.delete(grid[:, s], c) if n_chains > 1 else grid[0, [(s + half) % n_read]][:half]
            for c, s in (np.argwhere(grid == i)[0] for i in range(len(first)))
        ]
        evidence = bricks.evidence_of(
            hills,
            [inside(*place) for place in first.values()],
            draws.shape[2],
            components,
            each(tied, hills),
            others,
            np.bincount(grid.ravel()),
        )
        split = [
            None if values is None else bricks.are_clusters(values, draw.means.shape[1])
            for draw, values in zip(hills, evidence, strict=True)
        ]
    found = each(placed, hills, split)
    of_key = dict(zip(first, found, strict=True))
    return chosen, np.array([of_key[key] for key in keys]).reshape(n_chains, n_read, -1)


def read_hills(points, labels, known=UNLABELLED):
    """Clusters of one partition into components.

    - `points`: (n_samples, n_columns). Result of `points_of`.
    - `labels`: (n_samples,), int. Component of each row.
    - `known`: KnownLabels or Unlabelled. Known labels. Hills of two classes do not join. Those of
      one class are one cluster, whatever is between them.

    Returns `clusters`: (n_samples,), int64. From 0 by decreasing size, with known labels as by
    `KnownLabels.clusters`.
    """
    return Hills.of(points, labels, known).clusters(known)


@dataclass(frozen=True, eq=False)
class Components:
    """Components of a draw.

    - `rows`: (n_samples, n_columns). Points by component.
    - `bounds`: (n_components + 1,). Position of the first row of each component, and the number of
      rows.
    - `means`: (n_components, n_columns)
    - `covariances`: (n_components, n_columns, n_columns). Covariances, shrunk towards the mean
      covariance within components.
    - `large`: ndarray of int. Components with enough rows for a hill.
    """

    rows: np.ndarray
    bounds: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    large: np.ndarray

    @classmethod
    def of(cls, points, labels):
        """Components 0, ..., K - 1 of points; all of them have rows."""
        n_rows, n_columns = points.shape
        sizes = np.bincount(labels)
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        # Small integers are sorted several times as fast.
        small = labels.astype(np.min_scalar_type(len(sizes)))
        rows = points[np.argsort(small, kind="stable")]
        parts = [rows[first:stop] for first, stop in itertools.pairwise(bounds)]
        if np.isnan(points).any():
            # A missing entry is replaced by the mean of its component.
            for part in parts:
                known = ~np.isnan(part)
                means = np.where(known, part, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
                part[...] = np.where(known, part, means)
        means = np.array([part.mean(axis=0) for part in parts])
        scatters = np.array(
            [(part - mean).T @ (part - mean) for part, mean in zip(parts, means, strict=True)]
        )
        within = scatters.sum(axis=0) / n_rows + 1e-9 * np.eye(n_columns)
        more = n_columns + 2.0
        covariances = (scatters + more * within) / (sizes + more)[:, None, None]
        falling = np.sort(sizes)[::-1]
        covering = falling[np.searchsorted(np.cumsum(falling), LEAST_COVERED * n_rows)]
        least = min(max(LEAST_ROWS, LEAST_SHARE * n_rows), covering)
        large = np.flatnonzero(sizes >= least)
        return cls(rows, bounds.astype(np.intp), means, covariances, large)

    @property
    def sizes(self):
        """Number of rows of each component."""
        return np.diff(self.bounds)

    def log_densities(self):
        """Log of the weighted normal density of each large component at all means:
        (n_large, n_components)."""
        out = np.empty((len(self.large), len(self.means)))
        factors = np.linalg.cholesky(self.covariances[self.large])
        inverses = np.linalg.inv(factors)
        heights = np.log(self.sizes[self.large])
        heights -= np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(axis=1)
        for j, k in enumerate(self.large):
            z = (self.means - self.means[k]) @ inverses[j].T
            out[j] = heights[j] - 0.5 * (z * z).sum(axis=1)
        return out

    def valleys(self, j):
        """Valleys between the large component number j and those after it: three arrays
        (n_after,).

        Depths and evidence are those of `_valleys`, infinite if the components are far apart. A
        valley is facing if it is shallow, and no mean of a large component is in the ball with the
        two means as poles, in the metric of the line.
        """
        a, others = self.large[j], self.large[j + 1 :]
        sizes, means = self.sizes, self.means
        depths, evidence = np.full((2, len(others)), np.inf)
        facing = np.zeros(len(others), dtype=bool)
        if len(others) == 0:
            return depths, evidence, facing
        share = (sizes[others] / (sizes[a] + sizes[others]))[:, None, None]
        pooled = (1.0 - share) * self.covariances[a] + share * self.covariances[others]
        gaps = means[others] - means[a]
        directions = np.linalg.solve(pooled, gaps[:, :, None])[:, :, 0]
        places = np.column_stack(
            [directions @ means[a], np.einsum("md,md->m", directions, means[others])]
        )
        variances = np.column_stack(
            [
                np.einsum("md,de,me->m", directions, self.covariances[a], directions),
                np.einsum("md,mde,me->m", directions, self.covariances[others], directions),
            ]
        )
        deviations = np.sqrt(variances)
        near = np.flatnonzero(
            (places[:, 1] - places[:, 0] <= FARTHEST * deviations.sum(axis=1))
            & (deviations > 0.0).all(axis=1)
        )
        found = np.zeros((2, len(near)))
        valleys(
            self.rows,
            self.bounds,
            a,
            others[near].astype(np.intp),
            np.ascontiguousarray(directions[near]),
            np.ascontiguousarray(places[near]),
            np.ascontiguousarray(deviations[near]),
            *found,
        )
        depths[near], evidence[near] = found
        shallow = near[(found[0] > 0.0) & (found[0] <= DEEPEST)]
        from_a = means[self.large] - means[a]
        step = max(1, MOST_NUMBERS // from_a.size)
        for first in range(0, len(shallow), step):
            some = shallow[first : first + step]
            # Exactly 0 for components with the mean of a or of the other one.
            from_b = from_a - gaps[some, None]
            inner = ((from_a @ np.linalg.inv(pooled[some])) * from_b).sum(axis=2)
            inner[:, j] = inner[np.arange(len(some)), j + 1 + some] = 0.0
            facing[some] = (inner >= 0.0).all(axis=1)
        return depths, evidence, facing


def distances_between(points, labels):
    """Mahalanobis distances of the means of clusters 0, ..., K - 1, by the mean of the covariances
    of both: (K, K)."""
    clusters = Components.of(points, labels)
    out = np.zeros((len(clusters.sizes),) * 2)
    for k, (mean, covariance) in enumerate(zip(clusters.means, clusters.covariances, strict=True)):
        gaps = (clusters.means - mean)[:, :, None]
        both = (clusters.covariances + covariance) / 2.0
        out[k] = np.sqrt((gaps * np.linalg.solve(both, gaps)).sum(axis=(1, 2)))
    return out


@dataclass(frozen=True, eq=False)
class Hills:
    """Hills of a draw.

    - `labels`: (n_samples,), int. Component of each row, 0, ..., K - 1.
    - `classes`: (n_components,). Known class of each component, -1 if it has none.
    - `of_components`: (n_components,). Hill of each component, 0, ..., H - 1.
    - `sizes`, `means`, `covariances`: as of `Components`.
    - `facing`: (n_facing, 2). Hill and evidence of the valleys between two components of a hill
      that face each other.
    """

    labels: np.ndarray
    classes: np.ndarray
    of_components: np.ndarray
    sizes: np.ndarray
    means: np.ndarray
    covariances: np.ndarray
    facing: np.ndarray

    @property
    def n_hills(self):
        """Number of hills."""
        return self.of_components.max() + 1

    @property
    def has_parts(self):
        """Whether a hill has several components, which can be clusters."""
        return self.n_hills < len(self.sizes) and self.means.size > 0

    @classmethod
    def of(cls, points, labels, known=UNLABELLED):
        """Hills of the components of a draw; parameters are those of `read_hills`."""
        labels = np.unique(labels, return_inverse=True)[1]
        classes = known.of_components(labels)
        n_components = len(classes)
        components = Components.of(points, labels)
        hills = np.zeros(n_components, dtype=np.int64)
        facing = np.empty((0, 2))
        if n_components > 1 and points.shape[1] > 0:
            hills, facing = _hills(components, classes)
        small = labels.astype(np.min_scalar_type(n_components))
        laws = components.sizes, components.means, components.covariances
        return cls(small, classes, hills, *laws, facing)

    def clusters(self, known, split=None):
        """Clusters of the rows.

        - `split`: (n_hills,), bool, or None. Hills whose components are clusters.
        """
        groups = self.of_components
        if split is not None:
            groups = np.where(split[groups], len(groups) + bricks.parts_of(self), groups)
            groups = np.unique(groups, return_inverse=True)[1]
        return known.clusters(groups, self.classes, self.labels)


def _hills(components, classes):
    """Hill of each component, and the valleys between components that face each other, as in
    `Hills`. Hills of two classes do not join.

    Open pairs of large components are taken by falling level, the lower of their heights: the
    density of a component at its mean. Two hills join if the lower of their peaks is not prominent
    over the level, and the valleys between components that face each other have too little
    evidence in sum. Small components join the large component with the highest density at their
    mean.
    """
    large = components.large
    n_large = len(large)
    evidence, depths = np.full((2, n_large, n_large), np.inf)
    facing = np.full((n_large, n_large), np.nan)
    for j in range(n_large - 1):
        depths[j, j + 1 :], evidence[j, j + 1 :], found = components.valleys(j)
        facing[j, j + 1 :][found] = evidence[j, j + 1 :][found]
    # From here on, the sums of evidence between hills that face each other.
    between = np.nan_to_num(facing)
    between = between + between.T
    n_shallow = ((depths > 0.0) & (depths <= DEEPEST)).sum()
    least = LEAST_EVIDENCE + np.log(max(n_shallow / 2.0, 1.0))
    densities = components.log_densities()
    height = densities[np.arange(n_large), large]
    low, high = np.nonzero(evidence < least)
    level = np.minimum(height[low], height[high])
    hill, peak = np.arange(n_large), height.copy()
    class_of = classes[large]
    for pair in np.lexsort((depths[low, high], -level)):
        one, other = hill[low[pair]], hill[high[pair]]
        pair_classes = sorted((class_of[one], class_of[other]))
        if one == other or 0 <= pair_classes[0] != pair_classes[1]:
            continue
        if peak[one] < peak[other]:
            one, other = other, one
        if peak[other] - level[pair] < LEAST_PROMINENCE and between[one, other] < least:
            hill[hill == other] = one
            class_of[one] = pair_classes[1]
            between[one] += between[other]
            between[:, one] += between[:, other]
    hills = hill[densities.argmax(axis=0)]
    hills[large] = hill
    # A small component with a class says nothing about the hill that it is on.
    alone = np.setdiff1d(np.flatnonzero(classes >= 0), large)
    hills[alone] = n_large + np.arange(len(alone))
    one, other = np.nonzero(~np.isnan(facing) & (hill[:, None] == hill))
    hills = np.unique(hills, return_inverse=True)[1]
    return hills, np.column_stack([hills[large[one]], facing[one, other]])
