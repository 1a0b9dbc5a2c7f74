# SPDX-License-Identifier: BSD-3-Clause
"""
Pictures of a fit
=================

`skdpm.plotting` has displays in scikit-learn's style, which draw a fitted mixture in a line or
two. Four of them show 178 wines with 13 chemical measurements:

- the clusters, in the two columns that separate them best;
- the probability that two wines belong together, for each pair;
- the number of clusters in the draws;
- the traces of the chains.
"""

# sphinx_gallery_thumbnail_path = "images/cards/matrix.png"

import time

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine

from skdpm import DPMixture
from skdpm.plotting import (
    ClustersDisplay,
    CoclusteringDisplay,
    NumberOfClustersDisplay,
    TraceDisplay,
)

X = load_wine(as_frame=True).data
start = time.perf_counter()
model = DPMixture(thin=4, random_state=0).fit(X)
print(f"{model.n_clusters_} clusters in {time.perf_counter() - start:.1f} s")

fig, axes = plt.subplots(2, 2, figsize=(11, 9), layout="constrained")
clusters = ClustersDisplay.from_estimator(model, X, ax=axes[0, 0])
coclustering = CoclusteringDisplay.from_estimator(model, ax=axes[0, 1])
numbers = NumberOfClustersDisplay.from_estimator(model, ax=axes[1, 0])
traces = TraceDisplay.from_estimator(model, ax=axes[1, 1])
for display, title in (
    (clusters, "Which wines are alike"),
    (coclustering, "How certain that is"),
    (numbers, "How many kinds there are"),
):
    display.ax_.set_title(title, loc="left", weight="bold")

print(f"columns shown: {' and '.join(clusters.column_names)}")
unsure = (clusters.certainty < 0.5).sum()
print(f"{unsure} of {len(X)} wines have an uncertain cluster (certainty below 0.5)")
print("90% of the draws have {} to {} clusters".format(*numbers.interval_))

fig.savefig("plot_displays.png", dpi=120)
print("figure: plot_displays.png")
