# SPDX-License-Identifier: BSD-3-Clause
"""Pictures of fitted models, in scikit-learn's style.

A display is made from a fitted estimator by `from_estimator`, which draws it, or from computed
data by its constructor, which does not; `plot` draws it, also again and on another axis. The
figure and the axes are then in `figure_` and `ax_`, or `axes_` where there are several. A cluster
has the same colour in all displays, by its number in `labels_`. Matplotlib is imported when
something is drawn, and none of its settings is changed.
"""

from skdpm.plotting._clusters import ClustersDisplay
from skdpm.plotting._density import DensityDisplay
from skdpm.plotting._draws import NumberOfClustersDisplay, TraceDisplay
from skdpm.plotting._features import FeaturesDisplay
from skdpm.plotting._merges import ExpectedLossDisplay, MergeTreeDisplay
from skdpm.plotting._partitions import AdjacencyDisplay, CoclusteringDisplay
from skdpm.plotting._profiles import ProfilesDisplay, RelevanceDisplay
from skdpm.plotting._style import cluster_colors

__all__ = [
    "AdjacencyDisplay",
    "ClustersDisplay",
    "CoclusteringDisplay",
    "DensityDisplay",
    "ExpectedLossDisplay",
    "FeaturesDisplay",
    "MergeTreeDisplay",
    "NumberOfClustersDisplay",
    "ProfilesDisplay",
    "RelevanceDisplay",
    "TraceDisplay",
    "cluster_colors",
]
__dir__ = __all__.copy
