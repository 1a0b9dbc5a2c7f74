# SPDX-License-Identifier: BSD-3-Clause
"""
Communities in a network
========================

The nodes are 200 images of handwritten digits, each linked to the six most similar images. The
likelihood `Relational`, the infinite relational model, sees only links. It clusters nodes that
link to the same clusters. The digits serve for comparison only. You can pass another network as a
file with an adjacency matrix `A` and, optionally, labels `y` of the nodes:

    python plot_network.py football.npz

Chains of two samplers start with all nodes in one cluster. `Gibbs` moves one node at a time and
gets stuck. `ARM` moves whole blocks of nodes, which it learns in warm-up from earlier partitions;
its chains agree. Both samplers take about the same time and have the same posterior.
"""

# sphinx_gallery_thumbnail_path = "images/cards/network.png"

import sys
import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from sklearn.neighbors import kneighbors_graph

from skdpm import DPMixture
from skdpm.diagnostics import split_rhat
from skdpm.mixture.likelihoods import Relational
from skdpm.mixture.samplers import ARM, Gibbs
from skdpm.partitions import coclustering_matrix

if len(sys.argv) > 1:
    given = np.load(sys.argv[1])
    A, kind = given["A"].astype(float), "label"
    known = given["y"] if "y" in given else np.zeros(len(A), dtype=int)
else:
    images, digits = load_digits(return_X_y=True)
    near = kneighbors_graph(images[:200], 6).toarray()
    A, known = np.maximum(near, near.T), digits[:200]  # links have no direction
    kind = "digit"
names, known = np.unique(known, return_inverse=True)
n_nodes = len(A)

# With fixed hyperparameters the log joints of all chains are comparable.
settings = {"likelihood": Relational(a=1.0, b=1.0), "concentration": 1.0, "init": "single"}
settings |= {"n_chains": 4, "n_warmup": 150, "n_draws": 200, "random_state": 0}
samplers = {"Gibbs": (Gibbs(n_sweeps=25), "#0072B2"), "ARM": (ARM(), "#D55E00")}

models = {}
for name, (sampler, _) in samplers.items():
    began = time.process_time()
    with warnings.catch_warnings():
        # The example shows that the chains of one sampler do not converge.
        warnings.simplefilter("ignore", ConvergenceWarning)
        models[name] = model = DPMixture(sampler=sampler, **settings).fit(A)
    seconds = time.process_time() - began
    means = ", ".join(f"{mean:.0f}" for mean in model.log_joint_samples_.mean(axis=1))
    print(
        f"{name}: {seconds:.1f} s of processor time, log joint of the chains {means}, R-hat "
        f"{split_rhat(model.log_joint_samples_):.2f}; {model.n_clusters_} clusters, V-measure "
        f"with the {kind}s {v_measure_score(known, model.labels_):.2f}"
    )

model = models["ARM"]
rates = ", ".join(f"{move} {rate.mean():.2f}" for move, rate in model.acceptance_rate_.items())
print(f"ARM accepted: {rates}")

# Order clusters by their most frequent digit, and nodes of a cluster by digit.
labels = model.labels_
most = np.array([np.bincount(known[labels == k]).argmax() for k in range(model.n_clusters_)])
order = np.lexsort((known, labels, most[labels]))
edges = np.flatnonzero(np.diff(labels[order])) + 0.5
together = coclustering_matrix(model.label_samples_)

fig, axes = plt.subplots(1, 3, figsize=(13, 4.3), layout="constrained")
i, j = np.nonzero(A[np.ix_(order, order)])
n_known = len(names)
colours = plt.get_cmap("tab10" if n_known <= 10 else "tab20", n_known)
axes[0].scatter(j, i, c=known[order][i], s=3, cmap=colours, vmin=-0.5, vmax=n_known - 0.5)
for edge in edges:
    axes[0].axhline(edge, color="0.8", lw=0.5, zorder=0)
    axes[0].axvline(edge, color="0.8", lw=0.5, zorder=0)
axes[0].set(title="Links, nodes ordered by cluster", xlim=(-1, n_nodes), ylim=(n_nodes, -1))
axes[0].set_aspect("equal")
bar = fig.colorbar(axes[0].collections[0], ax=axes[0], ticks=range(n_known), shrink=0.85)
bar.set_ticklabels(names)
bar.set_label(f"{kind} of the row's node")
shown = axes[1].imshow(together[np.ix_(order, order)], cmap="magma_r", vmin=0, vmax=1)
fig.colorbar(shown, ax=axes[1], shrink=0.85, label="share of draws together")
axes[1].set(title="Co-clustering, in the same order")
for ax in axes[:2]:
    ax.set(xlabel="node", ylabel="node")
for name, (_, color) in samplers.items():
    for chain, log_joint in enumerate(models[name].log_joint_samples_):
        axes[2].plot(log_joint, color=color, lw=0.8, label=name if chain == 0 else None)
axes[2].set(title="Four chains each, from one cluster", ylabel="log joint (nats)")
axes[2].set_xlabel("draw after warm-up")
axes[2].legend()

fig.savefig("plot_network.png", dpi=120)
print("figure: plot_network.png")
