# SPDX-License-Identifier: BSD-3-Clause
"""
Outliers
========

A row that fits no cluster gets a separate cluster. `score_samples` then finds the row less unusual
than it is, because the row itself raises the density at its place. `outlier_scores_` removes the
row from its cluster first and scores it given all other rows.

The data are the petals of 150 irises and eight mistakes: flowers with their columns exchanged, or
with one number far too large or too small.
"""

# sphinx_gallery_thumbnail_path = "images/cards/outliers.png"

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import LocalOutlierFactor

from skdpm import DPMixture

rng = np.random.default_rng(3)
petals = load_iris().data[:, 2:]  # length and width, cm
flowers = petals[50 + rng.choice(100, size=8, replace=False)]  # the two larger species
mistakes = flowers.copy()
mistakes[:3] = flowers[:3, ::-1]  # columns exchanged
mistakes[np.arange(3, 8), [0, 1, 0, 1, 1]] *= [0.2, 2.8, 2.2, 2.1, 0.1]
X = np.concatenate([petals, mistakes])
wrong = np.arange(len(X)) >= len(petals)

model = DPMixture(n_warmup=500, n_draws=500, random_state=0).fit(X)
scores = model.outlier_scores_

print("area under the ROC curve, mistakes against flowers")
for name, score in {
    "outlier_scores_": scores,
    "-score_samples(X)": -model.score_samples(X),
    "IsolationForest": -IsolationForest(random_state=0).fit(X).score_samples(X),
    "LocalOutlierFactor": -LocalOutlierFactor().fit(X).negative_outlier_factor_,
}.items():
    print(f"  {name:20} {roc_auc_score(wrong, score):.3f}")
print("row  length  width  outlier score, nats  P(belongs with its cluster)")
for row in np.argsort(-scores)[:10]:
    length, width = X[row]
    mark = " a mistake" if wrong[row] else ""
    print(
        f"{row:3}  {length:5.1f}  {width:5.1f}  {scores[row]:15.2f}"
        f"  {model.probabilities_[row]:20.2f}{mark}"
    )

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4.2), width_ratios=[1.3, 1], layout="constrained"
)
x, y = np.meshgrid(np.linspace(-0.5, 14, 200), np.linspace(-0.5, 7, 160))
grid = np.c_[x.ravel(), y.ravel()]
none = model.predict_proba(grid, new_cluster=True)[:, -1].reshape(x.shape)
left.contourf(x, y, none, levels=[0.5, 0.9, 1.0], colors=["0.93", "0.86"])
points = left.scatter(*X.T, c=scores, s=24, cmap="viridis_r", edgecolors="k", linewidths=0.3)
left.scatter(*X[wrong].T, s=110, facecolors="none", edgecolors="#D55E00", label="mistakes")
left.set(xlabel="petal length (cm)", ylabel="petal width (cm)")
left.set_title("Grey: a new row would open a new cluster\n(probability above 0.5, 0.9)")
left.legend(loc="upper right")
fig.colorbar(points, ax=left, label="outlier_scores_ (nats)")

right.scatter(-model.score_samples(X)[~wrong], scores[~wrong], s=14, label="flowers")
right.scatter(
    -model.score_samples(X)[wrong], scores[wrong], s=40, color="#D55E00", label="mistakes"
)
right.set(xlabel="-score_samples(X), row included", ylabel="outlier_scores_, row left out")
right.set_title("Scores with and without the row itself")
right.legend(loc="lower right")

fig.savefig("plot_outliers.png", dpi=120)
print("figure: plot_outliers.png")
