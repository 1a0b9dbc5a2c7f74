# SPDX-License-Identifier: BSD-3-Clause
"""The picture of the README and the start page, and the one that narrow screens show.

    python doc/figures/start.py doc/images/start.png doc/images/start_stacked.png
    python doc/figures/start.py --check doc/images/start.png doc/images/start_stacked.png

The numbers that they show are saved in them. With --check they are compared with those of a new
fit. The panels of a file called `*_stacked.png` are below each other.
"""

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from sklearn.datasets import load_iris

from skdpm import DPMixture
from skdpm.plotting import ClustersDisplay, CoclusteringDisplay, NumberOfClustersDisplay

X = load_iris(as_frame=True).data
model = DPMixture(random_state=0).fit(X)


def draw(stacked):
    shape = {"figsize": (13, 4.5), "ncols": 3, "width_ratios": [1.3, 1.2, 0.8]}
    if stacked:
        shape = {"figsize": (5, 12), "nrows": 3, "height_ratios": [1.3, 1.2, 0.8]}
    fig, axes = plt.subplots(layout="constrained", **shape)
    columns = ["petal length (cm)", "sepal length (cm)"]
    ClustersDisplay.from_estimator(model, X, columns=columns, ax=axes[0])
    CoclusteringDisplay.from_estimator(model, ax=axes[1])
    NumberOfClustersDisplay.from_estimator(model, ax=axes[2])
    axes[2].set(ylim=(0, 1.25), yticks=[0, 0.25, 0.5, 0.75, 1])
    # The label of a colorbar is no label of the next axis.
    fig.get_layout_engine().set(wspace=0.06, hspace=0.06)
    titles = ("Clusters and their certainty", "Which belong together", "How many clusters")
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, loc="left", weight="bold", pad=22)
    return fig


if __name__ == "__main__":
    numbers = np.unique(model.n_clusters_samples_, return_counts=True)
    shown = {
        "sizes": np.bincount(model.labels_).tolist(),
        "numbers": [found.tolist() for found in numbers],
    }
    for path in map(Path, sys.argv[1:]):
        if path.suffix != ".png":
            continue
        if "--check" in sys.argv:
            saved = json.loads(Image.open(path).text["shown"])
            assert saved == shown, f"{path} is stale: it shows {saved}, the code draws {shown}"
        else:
            fig = draw(path.stem.endswith("_stacked"))
            fig.savefig(path, dpi=110, metadata={"shown": json.dumps(shown)})
