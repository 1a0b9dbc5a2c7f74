# SPDX-License-Identifier: BSD-3-Clause
"""Partitions of 200 rows drawn from the Dirichlet process prior, and their numbers of clusters."""

import matplotlib.pyplot as plt
import numpy as np

N_ROWS = 200
COLORS = ["#0072B2", "#D55E00", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#8C6D31", "#7F7F7F"]
rng = np.random.default_rng(3)


def sizes_of_clusters(concentration):
    """Seat the rows one by one; return cluster sizes, ordered by first row."""
    sizes = []
    for n in range(N_ROWS):
        weights = np.array([*sizes, concentration]) / (n + concentration)
        k = rng.choice(len(weights), p=weights)
        if k == len(sizes):
            sizes.append(0)
        sizes[k] += 1
    return np.array(sizes)


def number_of_clusters(concentration):
    """Its distribution: row n + 1 opens a cluster with probability A / (n + A), independently."""
    probability = np.ones(1)
    for n in range(N_ROWS):
        opens = concentration / (n + concentration)
        probability = np.convolve(probability, [1.0 - opens, opens])
    return probability


fig, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 3.4), layout="constrained", width_ratios=[1.4, 1]
)
concentrations = (0.5, 2.0, 10.0)
for row, concentration in enumerate(concentrations):
    for draw in range(3):
        y = -(row + 0.22 * draw)
        ends = np.cumsum(sizes_of_clusters(concentration))
        starts = np.r_[0, ends[:-1]]
        shades = [COLORS[k % len(COLORS)] for k in range(len(ends))]
        left.barh(y, ends - starts, left=starts, height=0.18, color=shades, ec="w", lw=0.6)
left.set(yticks=[-(r + 0.22) for r in range(3)], xlim=(0, N_ROWS), xlabel="rows, by cluster")
left.set_yticklabels([f"A = {a:g}" for a in concentrations])
left.tick_params(axis="y", length=0)
left.spines[["top", "right", "left"]].set_visible(False)
left.set_title("Three partitions drawn for each concentration")
for color, concentration in zip(COLORS, concentrations, strict=False):
    probability = number_of_clusters(concentration)
    right.plot(probability, "o-", ms=3, lw=1, color=color, label=f"A = {concentration:g}")
right.set(xlim=(0, 50), xlabel="clusters of 200 rows", ylabel="probability")
right.set_ylim(0)
right.spines[["top", "right"]].set_visible(False)
right.legend(frameon=False)
right.set_title("Prior of the number of clusters")
