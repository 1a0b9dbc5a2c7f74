# SPDX-License-Identifier: BSD-3-Clause
"""Clusters as hills of the density: components of a draw without a valley between them.

If the rows of a cluster do not follow the law of the likelihood, a draw has several components
there. They belong to one cluster if the rows support no valley of the density between them. The
test for a pair of components is on the line that separates them best, so it works in any number
of columns; chains of pairs follow clusters of any shape. See `doc/background/clusters.md`.

Related: ridgelines and tests of pairs (Hennig 2010), clusters by prominence (Chazal, Guibas, Oudot
& Skraba 2013), fusing components of a posterior (Dombowsky & Dunson 2024).
"""

import math
from dataclasses import dataclass

import numpy as np

from skdpm.mixture.answers import components as _components
from skdpm.mixture.answers._components import valleys
from skdpm.mixture.answers.components import Components, NormalLaws
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.partitions import without_gaps

# Evidence (nats) from which a valley separates two components or two hills, if at most two pairs
# of components have a valley; log(m / 2) more for m pairs, as some of many are large by chance.
LEAST_EVIDENCE = 1.5
# Log of the smallest ratio of the mean height of each of two hills to the pass between them that
# separates them: many rows have evidence for any difference of bricks.
LEAST_PROMINENCE = math.log(1.5)
# Evidence (nats) that a small component is less dense than its neighbour, from which it is no
# piece of it. It is larger, as the density of a few rows is known badly.
LEAST_SPARSE = 10.0
# Two components whose means differ by more than this multiple of the sum of their standard
# deviations are separate, whatever lies between them.
FARTHEST = 3.0
# Depth (natural logarithm) up to which a valley is shallow. Others need no test of hills.
DEEPEST = 2.0
# Evidence (nats) from which a small component of several rows is an island: a hill of its own.
# The largest so many are: pairs of thousands would take minutes.
LEAST_ISLAND, MOST_ISLANDS = 3.0, 100


@dataclass(frozen=True, eq=False)
class Hills:
    """Hills of a draw.

    - `labels`: (n_samples,), int. Component of each row, 0, ..., K - 1.
    - `classes`: (n_components,). Known class of each component, -1 if it has none.
    - `of_components`: (n_components,). Hill of each component, 0, ..., H - 1.
    - `laws`: NormalLaws. Laws of the components.
    - `facing`: (n_facing, 3). Two components of a hill that face each other, and the evidence of
      the valley between them.
    """

    labels: np.ndarray
    classes: np.ndarray
    of_components: np.ndarray
    laws: NormalLaws
    facing: np.ndarray

    @property
    def n_hills(self):
        """Number of hills."""
        return self.of_components.max() + 1

    @property
    def has_parts(self):
        """Whether a hill has several components, which can be clusters."""
        return self.n_hills < len(self.of_components) and self.laws.means.size > 0

    @classmethod
    def of(cls, points, labels, known=UNLABELLED, given=None):
        """Hills of the components of a draw.

        - `points`: (n_samples, n_columns). Result of `points_of`.
        - `labels`: (n_samples,), int. Component of each row, not negative.
        - `known`: KnownLabels or Unlabelled. Hills of two classes do not join.
        - `given`: (n_samples, n_features) or None. Rows with NaN for an entry that was drawn, if
          points have these entries.
        """
        labels = without_gaps(labels.astype(np.intp))
        classes = known.of_components(labels)
        n_components = len(classes)
        components = Components.of(points, labels)
        laws, hills, facing = components.laws, np.zeros(n_components, int), np.empty((0, 3))
        if n_components > 1 and points.shape[1] > 0:
            large = components.large()
            islands = _islands(components, large)
            # Where an entry of a row is missing, it may be near any component.
            recorded = ~np.isnan(points if given is None else given) if len(islands) else None
            islands = [k for k in islands if recorded[labels == k].any(axis=0).all()]
            large = np.union1d(large, islands).astype(np.intp)
            whole = _wholes(laws, np.flatnonzero(classes < 0), large)
            names, parts = np.unique(whole, return_inverse=True)
            merged = components
            if len(names) < n_components:
                merged = Components.of(components.rows, np.repeat(parts, components.sizes))
            hills, facing = _hills(merged, classes[names], np.searchsorted(names, large))
            hills, facing[:, :2] = hills[parts], names[facing[:, :2].astype(np.intp)]
        return cls(labels.astype(np.min_scalar_type(n_components)), classes, hills, laws, facing)


def _valleys(components, laws, large):
    """Valleys between two large components that are not far apart: their positions in `large`,
    their depths, their evidence, and whether the two face each other; five arrays (n_pairs,)."""
    n_large, found = len(large), []
    step = max(1, _components.MOST_NUMBERS // n_large)
    for first in range(0, n_large, step):
        shape = min(step, n_large - first), n_large
        outputs = *np.empty((2, *shape)), np.empty(shape, dtype=np.uint8)
        moments = laws.means, laws.covariances
        where = components.rows, components.bounds, large
        valleys(*where, *moments, first, FARTHEST, DEEPEST, *outputs)
        pairs = np.nonzero(np.isfinite(outputs[0]))
        found.append((first + pairs[0], pairs[1], *(values[pairs] for values in outputs)))
    return [np.concatenate(part) for part in zip(*found, strict=True)]


def _islands(components, large):
    """Small components of several rows apart from each large one: (n_islands,)."""
    laws = components.laws
    small = np.setdiff1d(np.flatnonzero(laws.sizes > 1), large)
    nearest = laws.nearest(small, large)
    small = small[[_are_apart(components, *pair) for pair in zip(small, nearest, strict=True)]]
    small = small[np.argsort(-laws.sizes[small], kind="stable")][:MOST_ISLANDS]
    return small[[_are_apart(components, k, large) for k in small]]


def _are_apart(components, small, others):
    """Whether a component is far from each of the others, or behind a valley that its rows and
    theirs support."""
    laws, which = components.laws, np.append(small, others)
    _, evidence, _ = outputs = *np.empty((2, 1, len(which))), np.empty((1, len(which)), np.uint8)
    where = components.rows, components.bounds, which
    valleys(*where, laws.means, laws.covariances, 0, np.inf, DEEPEST, *outputs)
    has_valley = (evidence[0, 1:] > LEAST_EVIDENCE) & np.isfinite(evidence[0, 1:])
    has_valley &= laws.sizes[small] >= _components.LEAST_ROWS
    return (has_valley | (_isolation(laws, small, which[1:]) >= LEAST_ISLAND)).all()


def _wholes(laws, free, large):
    """Component that each one is a piece of, or itself: (n_components,). A small component, of
    those that are `free`, is a piece of the most probable large one, unless this is far or much
    denser: many bricks along a thin curve are small, and without them the curve has gaps."""
    whole = np.arange(len(laws.sizes))
    small = np.setdiff1d(free, large)
    nearest = laws.nearest(small, large)
    gaps = laws.heights[nearest] - laws.heights[small]
    sparse = [_sparsity(*pair) for pair in zip(laws.sizes[small], gaps, strict=True)]
    is_piece = (_isolation(laws, small, nearest) < 0.0) & (np.array(sparse) < LEAST_SPARSE)
    whole[small[is_piece]] = nearest[is_piece]
    return whole


def _sparsity(n_rows, gap):
    """Evidence (nats) that the density at `n_rows` rows is lower than another one, whose logarithm
    is larger by `gap`: the log likelihood ratio of Poisson laws with the rates of the two."""
    gap = min(max(gap, 0.0), 50.0)
    return n_rows * (math.expm1(gap) - gap)


def _isolation(laws, one, other):
    """Evidence (nats) that the rows of components are far from others, (n,): for each row the log
    of the gap, as a multiple of that at which large components are separate."""
    gaps = (laws.means[one] - laws.means[other])[..., None]
    share = (laws.sizes[one] / (laws.sizes[one] + laws.sizes[other]))[..., None, None]
    both = laws.covariances[one], laws.covariances[other]
    line = np.linalg.solve(share * both[0] + (1.0 - share) * both[1], gaps)
    widths = sum(np.sqrt((line * (c @ line)).sum(axis=(1, 2))) for c in both)
    with np.errstate(divide="ignore", invalid="ignore"):
        return laws.sizes[one] * np.log((line * gaps).sum(axis=(1, 2)) / (FARTHEST * widths))


def _hills(components, classes, large):
    """Hill of each component, and the valleys between components that face each other, as in
    `Hills`. Hills of two classes do not join.

    Open pairs of large components are taken by falling level, the lower of their heights: the
    density of a component at its mean. Two hills are separate if the level is clearly lower than
    the mean height of either hill, also by the evidence of the rows of the lower component, or if
    the valleys between components that face each other have evidence in sum. Small components join
    the large component with the highest density at their mean. Islands are among `large`.
    """
    laws = components.laws
    low, high, depths, evidence, faces = _valleys(components, laws, large)
    n_shallow = ((depths > 0.0) & (depths <= DEEPEST)).sum()
    least = LEAST_EVIDENCE + np.log(max(n_shallow / 2.0, 1.0))
    size, height = laws.sizes[large], laws.heights[large]
    lower = np.where(height[low] < height[high], low, high)
    level, upper = height[lower], np.maximum(height[low], height[high])
    pairs = np.flatnonzero(evidence < least)
    pairs = pairs[np.lexsort((-upper[pairs], depths[pairs], -level[pairs]))]
    is_facing = faces > 0
    # From here on lists, as single numbers of arrays are slow. For each hill the sums of evidence
    # between it and those that it faces, its components, its rows and the sum of their heights.
    between, members = [{} for _ in large], [[k] for k in range(len(large))]
    facing = (values[is_facing].tolist() for values in (low, high, evidence))
    for a, b, nats in zip(*facing, strict=True):
        between[a][b] = between[b][a] = nats
    hill, class_of = list(range(len(large))), classes[large].tolist()
    rows, heights = size.tolist(), (size * height).tolist()
    by_level = (values[pairs].tolist() for values in (low, high, level, size[lower]))
    for a, b, pass_, n_rows in zip(*by_level, strict=True):
        one, other = hill[a], hill[b]
        pair_classes = sorted((class_of[one], class_of[other]))
        if one == other or 0 <= pair_classes[0] != pair_classes[1]:
            continue
        gap = min(heights[one] / rows[one], heights[other] / rows[other]) - pass_
        is_low = gap >= LEAST_PROMINENCE and _sparsity(n_rows, gap) >= least
        if not is_low and between[one].get(other, 0.0) < least:
            for k in members[other]:
                hill[k] = one
            members[one] += members[other]
            rows[one] += rows[other]
            heights[one] += heights[other]
            class_of[one] = pair_classes[1]
            for k, nats in between[other].items():
                del between[k][other]
                if k != one:
                    between[one][k] = between[k][one] = between[one].get(k, 0.0) + nats
    hill = np.array(hill)
    hills = hill[laws.take(large).most_probable(laws.means)]
    hills[large] = hill
    # A small component with a class says nothing about the hill that it is on.
    alone = classes >= 0
    alone[large] = False
    hills[alone] = len(large) + np.arange(alone.sum())
    inside = is_facing & (hill[low] == hill[high])
    hills = without_gaps(hills)
    pairs = large[low[inside]], large[high[inside]]
    return hills, np.column_stack([*pairs, evidence[inside]])
