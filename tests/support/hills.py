"""Clusters of one partition into components."""

from skdpm.mixture.answers.hills import Hills
from skdpm.mixture.rows.known import UNLABELLED


def read_hills(points, labels, known=UNLABELLED):
    """Hills of the components of points (`Hills.of`) as clusters."""
    hills = Hills.of(points, labels, known)
    return known.clusters(hills.of_components, hills.classes, hills.labels)
