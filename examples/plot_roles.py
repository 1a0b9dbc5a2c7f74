# SPDX-License-Identifier: BSD-3-Clause
"""
Overlapping roles in a network
==============================

A node of this simulated network of 120 nodes has any of six roles. A weight for every two roles
determines how strongly they attract or repel each other. A fifth of the pairs is held out. `LFRM`
learns the roles and weights from the others and predicts the held-out links. The infinite
relational model (`Relational`) does the same with clusters, but a node has only one: every
combination of roles is a separate cluster, with few nodes to learn from.
"""

# sphinx_gallery_thumbnail_path = "images/cards/known.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score, roc_curve

from skdpm import DPMixture, FeatureAllocation
from skdpm.datasets import make_lfrm
from skdpm.features.likelihoods import LFRM
from skdpm.metrics import b_cubed_score
from skdpm.mixture.likelihoods import Relational

A, roles, weights = make_lfrm(
    120, 6, concentration=5.0, weight_precision=0.1, bias=-4.0, random_state=2
)
n_nodes = len(A)
rng = np.random.default_rng(0)
held_out = np.triu(rng.random(A.shape) < 0.2, 1)
X = np.where(held_out | held_out.T, np.nan, A)


def mixture_probabilities(model, X):
    """Mean over draws of the probability of a link between each two nodes' clusters."""
    links, pairs = np.nan_to_num(X), (~np.isnan(X)).astype(float)
    np.fill_diagonal(links, 0.0)
    np.fill_diagonal(pairs, 0.0)
    mean, n_draws = 0.0, 0
    for c, s in np.ndindex(model.log_joint_samples_.shape):
        a, b = (model.draws_[f"likelihood__{name}"][c, s] for name in "ab")
        Z = np.eye(n_nodes)[model.label_samples_[c, s]]
        block = (Z.T @ links @ Z + a) / (Z.T @ pairs @ Z + a + b)
        mean = mean + Z @ block @ Z.T
        n_draws += 1
    return mean / n_draws


found = {}
began = time.process_time()
with warnings.catch_warnings():
    # Short chains suffice for predictions, whose differences between chains are small.
    warnings.simplefilter("ignore", ConvergenceWarning)
    short = {"n_chains": 2, "n_warmup": 100, "n_draws": 50}
    model = FeatureAllocation(likelihood=LFRM(), random_state=0, **short).fit(X)
    found["LFRM"] = model.fitted_values()
    seconds = time.process_time() - began
    mixture = DPMixture(likelihood=Relational(), random_state=0).fit(X)
    found["Relational"] = mixture_probabilities(mixture, X)
truth = A[held_out]
print(f"LFRM: {model.n_chains} chains of {model.n_iter_} iterations, {seconds:.1f} s")
counts, frequency = np.unique(model.n_components_samples_, return_counts=True)
for count, p in zip(counts, frequency / frequency.sum(), strict=True):
    print(f"  {count} roles: {p:.2f}")
score = b_cubed_score(roles, model.allocations_)
print(f"  agreement with the true roles (B-cubed): {score:.2f}")
print(f"Relational: {mixture.n_clusters_} clusters")
for name, p in found.items():
    print(f"{name}: AUC of {truth.size} held-out pairs {roc_auc_score(truth, p[held_out]):.3f}")

# Order nodes by their roles, the first role first.
Z = model.allocations_
order = np.lexsort(Z.T[::-1])[::-1]
fig, axes = plt.subplots(1, 4, figsize=(15, 3.9), layout="constrained")
axes[0].imshow(A[np.ix_(order, order)], cmap="Greys", interpolation="nearest")
axes[0].set(title="Links, nodes ordered by role", xlabel="node", ylabel="node")
axes[1].imshow(Z[order], cmap="Greys", aspect="auto", interpolation="nearest")
axes[1].set(title="Roles found", xlabel="role", ylabel="node", xticks=range(Z.shape[1]))
largest = np.abs(model.weights_).max()
shown = axes[2].imshow(model.weights_, cmap="RdBu_r", vmin=-largest, vmax=largest)
axes[2].set(title="Weights, in log odds", xlabel="role", ylabel="role")
axes[2].set(xticks=range(Z.shape[1]), yticks=range(Z.shape[1]))
fig.colorbar(shown, ax=axes[2], shrink=0.85)
for (name, p), color in zip(found.items(), ("#0072B2", "#D55E00"), strict=True):
    false, true, _ = roc_curve(truth, p[held_out])
    area = roc_auc_score(truth, p[held_out])
    axes[3].plot(false, true, color=color, label=f"{name}, area {area:.3f}")
axes[3].plot([0, 1], [0, 1], color="0.8", lw=0.8)
axes[3].set(title="Held-out pairs", xlabel="false links", ylabel="links found")
axes[3].legend(loc="lower right")

fig.savefig("plot_roles.png", dpi=120)
print("figure: plot_roles.png")
