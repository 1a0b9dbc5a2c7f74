# SPDX-License-Identifier: BSD-3-Clause
"""
Classes from a few known labels
===============================

Three rows of each crescent have a known class, and nothing is known of the third group. A mixture
gives the other rows their classes. It needs no number of classes and finds that the third group is
none of them. A classifier has to choose among the classes that it knows.
"""

# sphinx_gallery_thumbnail_path = "images/cards/new_rows.png"

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.semi_supervised import LabelSpreading

from skdpm import DPMixture
from skdpm.plotting import cluster_colors

rng = np.random.default_rng(0)
crescents, truth = make_moons(400, noise=0.07, random_state=0)
X = np.r_[crescents, rng.normal([2.4, 1.3], 0.15, (80, 2))]
truth = np.r_[truth, np.full(80, 2)]
known = np.full(len(X), -1)
for k in range(2):
    known[rng.choice(np.flatnonzero(truth == k), 3, replace=False)] = k

model = DPMixture(random_state=0).fit(X, known_labels=known)
classifier = LabelSpreading(kernel="knn", n_neighbors=7).fit(X, known)
print(f"classes and new clusters: {model.classes_.tolist()}")

fig, axes = plt.subplots(1, 2, figsize=(9.6, 3.6), sharey=True, layout="constrained")
colors = cluster_colors(3)
found = {"DPMixture": model.labels_, "LabelSpreading": classifier.transduction_}
for ax, (name, labels) in zip(axes, found.items(), strict=True):
    right = np.mean(labels == truth)
    ax.scatter(*X.T, c=colors[labels], s=9, linewidths=0)
    labelled = known >= 0
    ax.scatter(*X[labelled].T, c=colors[known[labelled]], s=90, marker="*", edgecolors="black")
    ax.set_title(f"{name}: {right:.0%} of the rows right", loc="left", fontsize="medium")
    ax.set_aspect("equal")
plt.show()
