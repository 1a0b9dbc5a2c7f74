# SPDX-License-Identifier: BSD-3-Clause
"""
Model choice: evidence and held-out score
=========================================

How many components, and full or diagonal covariances? Two numbers compare models.

- The evidence, log p(X | model), is the density of all rows with everything unknown integrated
  out. Each row is predicted from the rows before it, so the evidence counts the cost of learning
  the model. `log_evidence` estimates it by sequential Monte Carlo, with its error.
- The held-out score is the density of rows that the fit has not seen, by cross-validation. Each
  row is predicted from most of the others, so the score does not count that cost.

One run of a Dirichlet process mixture gives the evidence for every concentration, by reweighting
its particles.

The data are petal lengths and widths of 150 irises of three species.
"""

# sphinx_gallery_thumbnail_path = "images/cards/evidence.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from threadpoolctl import threadpool_limits

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SMC
from skdpm.model_selection import concentration_curve, log_evidence

threadpool_limits(1)  # small matrices: more BLAS threads only wait for each other
X = load_iris().data[:, 2:]  # cm
names = ["2", "3", "4", "DP"]
models = {}
settings = {"sampler": SMC(n_particles=50), "random_state": 0}  # few particles: a quick look
for covariances in ("full", "diag"):
    settings["likelihood"] = Gaussian(covariance_type=covariances)
    for k in (2, 3, 4):
        models[covariances, str(k)] = FiniteMixture(k, **settings)
    models[covariances, "DP"] = DPMixture(**settings)

start = time.perf_counter()
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # error bars show how chains differ
    results = log_evidence(models, X)
evidence = dict(zip(models, results["log_evidence"], strict=True))
error = dict(zip(models, results["std_error"], strict=True))
print(f"evidence of {len(models)} models: {time.perf_counter() - start:.1f} s")

start = time.perf_counter()
folds = KFold(5, shuffle=True, random_state=0)  # the file is sorted by species
short = {"sampler": "auto", "n_chains": 1, "n_warmup": 50, "n_draws": 50}
with warnings.catch_warnings():
    warnings.simplefilter("ignore", ConvergenceWarning)  # chains are short
    scores = {
        key: cross_val_score(clone(model).set_params(**short), X, cv=folds)
        for key, model in models.items()
    }
held_out = {key: len(X) * of_folds.mean() for key, of_folds in scores.items()}
print(f"five-fold scores of the same models: {time.perf_counter() - start:.1f} s")

print("covariances, components   log evidence   log Bayes factor   held-out score x 150")
for key in models:
    factor = evidence[key] - max(evidence.values())
    print(
        f"{key[0]:>11}, {key[1]:>10}   {evidence[key]:7.1f} +- {error[key]:.1f}"
        f"   {factor:16.1f}   {held_out[key]:20.1f}"
    )

concentrations = np.geomspace(0.01, 30, 40)
curve = concentration_curve(models["full", "DP"], X, concentrations)

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), width_ratios=[1.5, 1], layout="constrained"
)
position = np.arange(len(names))
for covariances, colour in (("full", "#0072B2"), ("diag", "#D55E00")):
    keys = [(covariances, name) for name in names]
    left.errorbar(
        position,
        [evidence[key] for key in keys],
        yerr=[2 * error[key] for key in keys],
        color=colour,
        marker="o",
        capsize=3,
        label=f"log evidence (2 standard errors), {covariances}",
    )
    left.plot(
        position,
        [held_out[key] for key in keys],
        color=colour,
        marker="s",
        mfc="white",
        ls="--",
        label=f"held-out score x 150, {covariances}",
    )
left.set(xlabel="components", ylabel="nats", ylim=(-265, -140))
left.set_xticks(position, names)
left.set_title("Petals of 150 irises: evidence and held-out score")
left.legend(frameon=False, fontsize=8, loc="lower right")

y, width = curve["log_evidence"], 2 * curve["std_error"]
enough = curve["effective_sample_size"] >= 20
right.fill_between(
    concentrations, y - width, y + width, where=enough, color="#0072B2", alpha=0.3, lw=0
)
right.plot(concentrations, np.where(enough, y, np.nan), color="#0072B2", label="one run")
right.plot(
    concentrations, y, color="#0072B2", lw=0.8, ls=":", label="effective sample size below 20"
)
right.set(xscale="log", xlabel="concentration", ylim=(y.max() - 15, y.max() + 3))
right.set_title("log p(X | concentration), full")
right.legend(frameon=False, fontsize=8, loc="lower center")

fig.savefig("plot_evidence.png", dpi=120)
print("figure: plot_evidence.png")
