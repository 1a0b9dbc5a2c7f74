# SPDX-License-Identifier: BSD-3-Clause
"""The exact posterior over the partitions of six rows, by enumeration."""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import gammaln

COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"]
x = np.array([-2.2, -1.8, -1.3, 0.4, 1.7, 2.1])
CONCENTRATION, MEAN_PRECISION, DF, SCALE = 1.0, 0.05, 4.0, 0.8


def partitions(n):
    """All partitions of n rows as labels by first appearance."""
    if n == 0:
        yield ()
        return
    for head in partitions(n - 1):
        for k in range(max(head, default=-1) + 2):
            yield (*head, k)


def log_marginal(rows):
    """log p(rows of one cluster) with mean and variance integrated out (normal-inverse-gamma)."""
    n = len(rows)
    precision, df = MEAN_PRECISION + n, DF + n
    scale = SCALE + np.sum((rows - rows.mean()) ** 2)
    scale += MEAN_PRECISION * n / precision * rows.mean() ** 2
    return (
        gammaln(df / 2)
        - gammaln(DF / 2)
        + DF / 2 * np.log(SCALE)
        - df / 2 * np.log(scale)
        + 0.5 * np.log(MEAN_PRECISION / precision)
        - n / 2 * np.log(np.pi)
    )


def log_prior(sizes):
    """log p(partition) of the Dirichlet process, up to a constant."""
    return len(sizes) * np.log(CONCENTRATION) + gammaln(sizes).sum()


every = np.array(list(partitions(len(x))))
log_joint = []
for labels in every:
    log_joint.append(
        log_prior(np.bincount(labels))
        + sum(log_marginal(x[labels == k]) for k in range(labels.max() + 1))
    )
probability = np.exp(np.array(log_joint) - max(log_joint))
probability /= probability.sum()
best = np.argsort(-probability)[:7]

fig, (left, middle, right) = plt.subplots(
    1, 3, figsize=(9.5, 3.2), layout="constrained", width_ratios=[2, 1, 1.1]
)
left.set_title(f"The 7 most probable of {len(every)} partitions")
for place, s in enumerate(best):
    left.axhline(-place, color="0.9", lw=1, zorder=0)
    left.scatter(x, np.full(len(x), -place), c=[COLORS[k] for k in every[s]], s=55, zorder=2)
left.set(yticks=[], xlabel="value of the row", ylim=(-6.6, 0.6))
middle.barh(-np.arange(len(best)), probability[best], color="0.55", height=0.6)
middle.set(yticks=[], xlabel="probability given X", ylim=(-6.6, 0.6))
for axis in (left, middle):
    axis.spines[["top", "right", "left"]].set_visible(False)
together = np.einsum("s,sij->ij", probability, every[:, :, None] == every[:, None, :])
image = right.imshow(together, cmap="Blues", vmin=0, vmax=1)
fig.colorbar(image, ax=right, shrink=0.8)
right.set(xticks=[], yticks=[])
right.set_title("P(two rows together)")
