# SPDX-License-Identifier: BSD-3-Clause
"""
Clusters of mutations, and the clones of a tumour
=================================================

Sequencing counts the reads of a sample that show a mutation. Given copy numbers and the share of
cancer cells in the sample, `PyClone` infers the cellular prevalence of each mutation, its share of
the cancer cells, and the mutations that belong together. The truth is known here: 300 mutations of
five clusters in three samples of a tumour, with changes of copy number. One line in twenty is
missing from the table, as if the mutation was not covered. In the figure, colours are the clusters
found; the mean of a mutation lies between two clusters if it may belong to either.

The second model sees the same kind of data as clones that make up the cells of a sample, each with
a set of mutations. The prevalence of a mutation is the sum over the clones that have it.
"""

# sphinx_gallery_thumbnail_path = "images/cards/mutations.png"

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.metrics import v_measure_score

from skdpm import DPMixture, FeatureAllocation
from skdpm.datasets import make_pyclone, make_subclones
from skdpm.metrics import b_cubed_score
from skdpm.mutations import FIELDS, mutation_design, mutation_table

SAMPLES = ("primary", "lymph node", "relapse")

X, labels, prevalences = make_pyclone(
    300,
    3,
    n_clusters=5,
    depth=200,
    copy_numbers=((1, 1), (1, 1), (1, 2)),
    tumour_content=(0.8, 0.5, 0.7),
    random_state=1,
)
# The long table that PyClone and PyClone-VI read: a line for each mutation in each sample.
lines = pd.DataFrame(X.reshape(-1, len(FIELDS)), columns=FIELDS)
lines["mutation_id"] = np.repeat([f"m{i}" for i in range(300)], 3)
lines["sample_id"] = SAMPLES * 300
lines = lines.sample(frac=0.95, random_state=0).sort_index()

design = mutation_design(lines)
model = DPMixture(likelihood="pyclone", random_state=0).fit(design)
table = mutation_table(model, design)
print(table.head(6).round(3).to_string(index=False))

rows = design.index.str.removeprefix("m").astype(int)
truth = prevalences[labels[rows]].ravel()
error = np.abs(table["mutation_prevalence"] - truth)
print(
    f"{model.n_clusters_} clusters; V-measure {v_measure_score(labels[rows], model.labels_):.3f}"
)
print(f"mean error of a prevalence: {error.mean():.3f}")
low, high = table["mutation_prevalence_low"], table["mutation_prevalence_high"]
# The grid has steps of 0.01.
inside = np.mean((low - 0.005 <= truth) & (truth <= high + 0.005))
print(f"true prevalences inside the 95 % intervals: {inside:.0%}")

# Clones. Their number must be given; the guide explains the effect of too many.
reads, Z, shares = make_subclones(200, 4, 4, depth=400, random_state=1)
clones = FeatureAllocation(likelihood="subclones", n_components=4, random_state=0).fit(reads)
of_clones = mutation_table(clones, reads)
print(f"agreement with the true clones (B-cubed): {b_cubed_score(Z, clones.allocations_):.3f}")

# Mutations of a cluster have one true prevalence, so points are moved a little to the side.
aside = np.random.default_rng(0).uniform(-0.015, 0.015, len(table))
fig, axes = plt.subplots(1, 4, figsize=(13, 3.6), layout="constrained")
for ax, sample in zip(axes, SAMPLES, strict=False):
    here = (table["sample_id"] == sample).to_numpy()
    found, expected = table[here], (truth + aside)[here]
    ends = [found["mutation_prevalence_low"], found["mutation_prevalence_high"]]
    ax.vlines(expected, *ends, color="0.7", linewidth=0.8, zorder=0)
    ax.scatter(
        expected,
        found["mutation_prevalence"],
        c=found["cluster_id"] % 10,
        cmap="tab10",
        vmin=0,
        vmax=9,
        s=12,
    )
    ax.set_title(sample)
phi = (Z @ shares).ravel()
axes[3].scatter(phi, of_clones["mutation_prevalence"], color="#0072B2", s=8, alpha=0.4)
axes[3].set_title("sums of clones, four samples")
for ax in axes:
    ax.plot([0, 1], [0, 1], color="0.5", linewidth=0.8, zorder=-1)
    ax.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), xlabel="true prevalence")
axes[0].set_ylabel("prevalence, mean and 95 % interval")

fig.savefig("plot_mutations.png", dpi=110)
print("figure: plot_mutations.png")
