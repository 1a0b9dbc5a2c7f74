# SPDX-License-Identifier: BSD-3-Clause
"""The picture of the README and the start page.

python doc/figures/start.py doc/images/start.png
"""

import sys

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from skdpm import DPMixture
from skdpm.plotting import ClustersDisplay, CoclusteringDisplay, NumberOfClustersDisplay

X = load_iris(as_frame=True).data
model = DPMixture(thin=4, random_state=0).fit(X)
fig, axes = plt.subplots(
    1, 3, figsize=(13, 4.5), layout="constrained", width_ratios=[1.3, 1.2, 0.8]
)
columns = ["petal length (cm)", "sepal length (cm)"]
ClustersDisplay.from_estimator(model, X, columns=columns, ax=axes[0])
CoclusteringDisplay.from_estimator(model, ax=axes[1])
NumberOfClustersDisplay.from_estimator(model, ax=axes[2])
axes[2].set(ylim=(0, 1.25), yticks=[0, 0.25, 0.5, 0.75, 1])
titles = ("Clusters and their certainty", "Which belong together", "How many clusters")
for ax, title in zip(axes, titles, strict=True):
    ax.set_title(title, loc="left", weight="bold", pad=22)
if __name__ == "__main__":
    fig.savefig(sys.argv[1], dpi=110)
