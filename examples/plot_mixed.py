# SPDX-License-Identifier: BSD-3-Clause
"""
A table of mixed columns
========================

The rows are trips with hired bicycles. Length and speed are measured, stops are counted, the
purpose is one of four words, and the weekend is yes or no; some entries are missing. `Product`
gives each part of the columns a separate likelihood. The rows are clustered as they are: nothing
is binned, scaled, encoded or imputed.

The figure shows the clusters in the measured columns and in the others. The measurements alone do
not separate two kinds of trips.
"""

# sphinx_gallery_thumbnail_path = "images/cards/table.png"

import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import adjusted_rand_score

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Gaussian, Poisson, Product
from skdpm.plotting import cluster_colors

# Three kinds of trips: to work, to the shops, and tours. The first two are equally long.
PURPOSES = ["work", "shopping", "leisure", "other"]
rng = np.random.default_rng(0)
kind = rng.choice(3, size=300, p=[0.45, 0.3, 0.25])
shares = np.array([[0.8, 0.05, 0.05, 0.1], [0.1, 0.7, 0.1, 0.1], [0.0, 0.1, 0.8, 0.1]])
trips = pd.DataFrame(
    {
        "log_km": rng.normal(np.array([1.2, 1.2, 2.9])[kind], 0.3),
        "speed": rng.normal(np.array([16.0, 15.0, 11.0])[kind], 1.5),
        "stops": rng.poisson(np.array([0.3, 3.0, 4.0])[kind]).astype(float),
        "purpose": [PURPOSES[rng.choice(4, p=shares[k])] for k in kind],
        "weekend": pd.array(rng.random(300) < np.array([0.05, 0.5, 0.7])[kind], dtype="boolean"),
    }
)
trips = trips.mask(rng.random(trips.shape) < 0.05)
measured = trips[["log_km", "speed"]]
print(f"{len(trips)} trips, {trips.isna().to_numpy().sum()} entries missing")

# From the data frame to clusters.
likelihood = Product(
    [
        ("length", Gaussian(covariance_type="diag"), ["log_km", "speed"]),
        ("counts", Poisson(), ["stops"]),
        ("purpose", Categorical(), ["purpose"]),
        ("flags", Bernoulli(), ["weekend"]),
    ]
)
start = time.perf_counter()
model = DPMixture(likelihood=likelihood, thin=4, random_state=0).fit(trips)
print(f"{model.n_clusters_} clusters in {time.perf_counter() - start:.1f} s")
alone = DPMixture(likelihood=Gaussian(covariance_type="diag"), thin=4, random_state=0)
alone.fit(measured)
large = np.flatnonzero(np.bincount(model.labels_) > 3)  # the others are single unusual trips
print(f"{len(large)} of them have more than 3 trips")
print(f"adjusted Rand index, all columns: {adjusted_rand_score(kind, model.labels_):.2f}")
print(f"measured columns alone: {adjusted_rand_score(kind, alone.labels_):.2f}")

# What the clusters are like.
params = model.cluster_params_
categories = model.likelihood_.purpose__categories_[0]
colors = cluster_colors(model.n_clusters_)
width = 0.8 / len(large)
fig, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
for k in range(model.n_clusters_):
    trip = model.labels_ == k
    left.plot(trips["log_km"][trip], trips["speed"][trip], "o", ms=4, alpha=0.6, color=colors[k])
for j, k in enumerate(large):
    at = np.arange(len(categories)) + (j + 0.5) * width - 0.4
    middle.bar(at, params["purpose"]["probabilities"][k, 0], width, color=colors[k])
    right.plot(
        params["counts"]["rates"][k, 0],
        params["flags"]["probabilities"][k, 0],
        "o",
        ms=10 + 30 * model.weights_[k],
        color=colors[k],
    )
left.set(xlabel="log kilometres", ylabel="kilometres per hour", title="Trips by cluster")
middle.set(xticks=range(len(categories)), xticklabels=categories, title="Purpose, by cluster")
right.set(xlabel="mean number of stops", ylabel="share on weekends", title="Stops and weekends")
right.set(xlim=(0, None), ylim=(0, 1))

fig.savefig("plot_mixed.png", dpi=120)
print("figure: plot_mixed.png")
