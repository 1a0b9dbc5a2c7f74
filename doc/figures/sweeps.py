# SPDX-License-Identifier: BSD-3-Clause
"""States of a chain of the default sampler that starts with all rows in one cluster."""

import matplotlib.pyplot as plt
import numpy as np

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian

rng = np.random.default_rng(4)
turns = np.linspace(0, 2 * np.pi, 5, endpoint=False)
centers = 6 * np.column_stack([np.cos(turns), np.sin(turns)])
X = centers[rng.integers(5, size=300)] + rng.normal(size=(300, 2)) * [1.4, 1.0]
colors = plt.get_cmap("tab10").colors

known_width = Gaussian(df=30, scale=40.0, mean_precision=0.02)
model = DPMixture(likelihood=known_width, n_chains=1, n_warmup=0, init="single")
model.set_params(random_state=1, point_estimate="last", warm_start=True)
fig, axes = plt.subplots(1, 4, figsize=(9.5, 2.8), layout="constrained")
axes[0].scatter(*X.T, s=8, color=colors[0])
axes[0].set_title("start: one cluster")
for ax, iteration in zip(axes[1:], (1, 3, 100), strict=True):
    model.set_params(n_draws=iteration).fit(X)
    labels = model.labels_
    ax.scatter(*X.T, s=8, c=[colors[k % 10] for k in labels])
    ax.set_title(f"after {iteration}: {labels.max() + 1} clusters")
for ax in axes:
    ax.set(xticks=[], yticks=[], aspect="equal")
