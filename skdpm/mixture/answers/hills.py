# SPDX-License-Identifier: BSD-3-Clause
"""Clusters as hills of the density: components of a draw without a valley between them.

If the rows of a cluster do not follow the law of the likelihood, a draw has several components
there. They belong to one cluster if the rows support no valley of the density between them. The
test for a pair of components is on the line that separates them best, so it works in any number
of columns; chains of pairs follow clusters of any shape. See `doc/background/clusters.md`.

Related: ridgelines and tests of pairs (Hennig 2010), clusters by prominence (Chazal, Guibas, Oudot
& Skraba 2013), fusing components of a posterior (Dombowsky & Dunson 2024).
"""

from dataclasses import dataclass

import numpy as np

from skdpm.mixture.answers import components as _components
from skdpm.mixture.answers._valleys import valleys
from skdpm.mixture.answers.components import Components, Laws
from skdpm.mixture.rows.known import UNLABELLED

# Evidence (nats) from which a valley separates two components or two hills, if at most two pairs
# of components have a valley; log(m / 2) more for m pairs, as some of many are large by chance.
LEAST_EVIDENCE = 1.5
# Log of the smallest ratio of the lower of two peaks to the pass between them that separates two
# hills.
LEAST_PROMINENCE = np.log(2.0)
# Two components whose means differ by more than this multiple of the sum of their standard
# deviations are separate, whatever lies between them.
FARTHEST = 3.0
# Depth (natural logarithm) up to which a valley is shallow. Others need no test of hills.
DEEPEST = 2.0


@dataclass(frozen=True, eq=False)
class Hills:
    """Hills of a draw.

    - `labels`: (n_samples,), int. Component of each row, 0, ..., K - 1.
    - `classes`: (n_components,). Known class of each component, -1 if it has none.
    - `of_components`: (n_components,). Hill of each component, 0, ..., H - 1.
    - `laws`: Laws. Laws of the components.
    - `facing`: (n_facing, 2). Hill and evidence of the valleys between two components of a hill
      that face each other.
    """

    labels: np.ndarray
    classes: np.ndarray
    of_components: np.ndarray
    laws: Laws
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
    def of(cls, points, labels, known=UNLABELLED):
        """Hills of the components of a draw.

        - `points`: (n_samples, n_columns). Result of `points_of`.
        - `labels`: (n_samples,), int. Component of each row.
        - `known`: KnownLabels or Unlabelled. Hills of two classes do not join.
        """
        labels = np.unique(labels, return_inverse=True)[1]
        classes = known.of_components(labels)
        n_components = len(classes)
        components = Components.of(points, labels)
        laws, hills, facing = components.laws(), np.zeros(n_components, int), np.empty((0, 2))
        if n_components > 1 and points.shape[1] > 0:
            hills, facing = _hills(components, laws, classes)
        small = labels.astype(np.min_scalar_type(n_components))
        return cls(small, classes, hills, laws, facing)


def _valleys(components, laws, large):
    """Valleys between large components: three arrays (n_large, n_large), of which the entries
    above the diagonal count.

    Depths and evidence are those of `_valleys`, infinite if the components are far apart. A valley
    is facing if it is shallow, and no mean of a large component is in the ball with the two means
    as poles, in the metric of the line.
    """
    laws, n_columns = laws.take(large), laws.means.shape[1]
    n_large = len(large)
    depths, evidence = np.full((2, n_large, n_large), np.inf)
    facing = np.zeros((n_large, n_large), dtype=bool)
    step = max(1, _components.MOST_NUMBERS // (n_large * n_columns**2))
    for first in range(0, n_large, step):
        after = np.arange(n_large) > np.arange(first, min(first + step, n_large))[:, None]
        a, b = np.nonzero(after)
        a += first
        share = (laws.sizes[b] / (laws.sizes[a] + laws.sizes[b]))[:, None, None]
        pooled = (1.0 - share) * laws.covariances[a] + share * laws.covariances[b]
        gaps = laws.means[b] - laws.means[a]
        directions = np.linalg.solve(pooled, gaps[:, :, None])[:, :, 0]
        pair = np.stack([a, b], axis=1)
        places = (laws.means[pair] * directions[:, None]).sum(axis=2)
        on_line = (laws.covariances[pair] @ directions[:, None, :, None])[..., 0]
        deviations = np.sqrt((on_line * directions[:, None]).sum(axis=2))
        near = np.flatnonzero(
            (places[:, 1] - places[:, 0] <= FARTHEST * deviations.sum(axis=1))
            & (deviations > 0.0).all(axis=1)
        )
        found = np.zeros((2, len(near)))
        lines = directions[near], places[near], deviations[near]
        valleys(components.rows, components.bounds, large[pair[near]], *lines, *found)
        depths[a[near], b[near]], evidence[a[near], b[near]] = found
        shallow = near[(found[0] > 0.0) & (found[0] <= DEEPEST)]
        facing[a[shallow], b[shallow]] = _face(laws.means, pair[shallow], pooled[shallow])
    return depths, evidence, facing


def _face(means, pairs, covariances):
    """Whether no mean is in the ball with the means of a pair as poles: (n_pairs,), bool."""
    faces = np.empty(len(pairs), dtype=bool)
    step = max(1, _components.MOST_NUMBERS // means.size)
    for first in range(0, len(pairs), step):
        some = pairs[first : first + step]
        from_a, from_b = (means - means[end][:, None] for end in some.T)
        metrics = np.linalg.inv(covariances[first : first + step])
        inner = ((from_a @ metrics) * from_b).sum(axis=2)
        # Exactly 0 for the poles.
        np.put_along_axis(inner, some, 0.0, axis=1)
        faces[first : first + step] = (inner >= 0.0).all(axis=1)
    return faces


def _hills(components, laws, classes):
    """Hill of each component, and the valleys between components that face each other, as in
    `Hills`. Hills of two classes do not join.

    Open pairs of large components are taken by falling level, the lower of their heights: the
    density of a component at its mean. Two hills join if the lower of their peaks is not prominent
    over the level, and the valleys between components that face each other have too little
    evidence in sum. Small components join the large component with the highest density at their
    mean.
    """
    large = components.large()
    n_large = len(large)
    depths, evidence, is_facing = _valleys(components, laws, large)
    # From here on, the sums of evidence between hills that face each other.
    between = np.where(is_facing, evidence, 0.0)
    between = between + between.T
    n_shallow = ((depths > 0.0) & (depths <= DEEPEST)).sum()
    least = LEAST_EVIDENCE + np.log(max(n_shallow / 2.0, 1.0))
    densities = laws.take(large).log_densities(laws.means)
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
    one, other = np.nonzero(is_facing & (hill[:, None] == hill))
    hills = np.unique(hills, return_inverse=True)[1]
    return hills, np.column_stack([hills[large[one]], evidence[one, other]])
