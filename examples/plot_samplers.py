# SPDX-License-Identifier: BSD-3-Clause
"""
Four samplers from the same start
=================================

All samplers draw from the same posterior. They differ in how soon they get there. Here each starts
with all rows in one cluster (`init="single"`), because the default start leaves little to do.
`Gibbs` moves one row at a time, so a cluster splits only if a few rows happen to leave it
together. `SAMS`, `SplitMerge` (Jain-Neal) and `PGSM` propose whole splits and merges, with Gibbs
sweeps in between. The figure shows the log joint and the agreement with the true clusters
(V-measure) against the time spent in `fit`.

`warm_start=True` makes it possible to watch a chain: each `fit` with a larger `n_draws` continues
it exactly. Times vary between runs; draws do not.
"""

# sphinx_gallery_thumbnail_path = "images/cards/split.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import PGSM, SAMS, Gibbs, SplitMerge

# Chains from a bad start do not converge, which is the point of this example.
warnings.simplefilter("ignore", ConvergenceWarning)

X, truth = make_blobs(2000, centers=10, cluster_std=0.7, random_state=8)

# With fixed hyperparameters the log joints of all chains are comparable.
fixed = {"mean": X.mean(axis=0), "mean_precision": 0.01, "df": 4.0, "scale": X.var(axis=0) / 2}

# Without warm-up the figure shows the start. (PGSM would use warm-up to learn which pairs of rows
# to choose as anchors; without it, anchors are uniform.)
settings = {"init": "single", "n_chains": 1, "n_warmup": 0, "point_estimate": "last"}
settings |= {"likelihood": Gaussian(**fixed), "warm_start": True}
samplers = {
    "Gibbs": (Gibbs(), 450, "#0072B2"),
    "SAMS": (SAMS(), 300, "#E69F00"),
    "Jain-Neal": (SplitMerge(), 220, "#009E73"),
    "PGSM": (PGSM(), 220, "#D55E00"),
}
seeds = [0, 1]


def watch(sampler, n_iterations, seed):
    """Seconds, log joint and V-measure of a chain at about 35 iterations, and its estimator."""
    model = DPMixture(sampler=sampler, random_state=seed, **settings)
    seconds, log_joint, v_measure = [0.0], [], []
    for n_draws in np.unique(np.geomspace(1, n_iterations, 40).astype(int)):
        model.set_params(n_draws=int(n_draws))
        began = time.perf_counter()
        model.fit(X)
        seconds.append(seconds[-1] + time.perf_counter() - began)
        log_joint.append(model.log_joint_samples_[0, -1])
        v_measure.append(v_measure_score(truth, model.labels_))
    return np.array(seconds[1:]), np.array(log_joint), np.array(v_measure), model


# A chain that starts at the truth shows where the others should end.
reference = DPMixture(likelihood=Gaussian(**fixed), init=truth, n_chains=1, random_state=0).fit(X)
goal = reference.log_joint_samples_.mean()
v_goal = np.mean([v_measure_score(truth, labels) for labels in reference.label_samples_[0, ::10]])
print(f"from the true clusters: log joint {goal:.0f}, V-measure {v_goal:.3f}")

fig, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, (sampler, n_iterations, color) in samplers.items():
    for seed in seeds:
        seconds, log_joint, v_measure, model = watch(sampler, n_iterations, seed)
        label = name if seed == seeds[0] else None
        for ax, values in zip(axes, [log_joint, v_measure], strict=True):
            ax.plot(seconds, values, color=color, lw=1.5, alpha=0.8, label=label)
        rates = ", ".join(f"{m} {r.mean():.2f}" for m, r in model.acceptance_rate_.items())
        print(
            f"{name:10} {n_iterations} iterations in {seconds[-1]:.2f} s: log joint "
            f"{log_joint[-1]:.0f}, V-measure {v_measure[-1]:.3f}, {model.n_clusters_} clusters"
            + (f"; acceptance: {rates}" if rates else "")
        )
for ax, value in zip(axes, [goal, v_goal], strict=True):
    ax.axhline(value, color="0.3", ls="--", lw=1, zorder=0, label="from the true clusters")
    ax.set(xscale="log", xlabel="seconds in fit")
axes[0].set(title="Log joint", ylabel="log p(X, partition) (nats)")
axes[1].set(title="Agreement with the true clusters", ylabel="V-measure", ylim=(-0.03, 1.03))
fig.legend(
    *axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False
)
fig.suptitle(f"{len(X)} rows in 10 clusters, {len(seeds)} chains each, all from one cluster")

fig.savefig("plot_samplers.png", dpi=120)
print("figure: plot_samplers.png")
