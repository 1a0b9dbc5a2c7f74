# SPDX-License-Identifier: BSD-3-Clause
"""
A density and its uncertainty
=============================

A mixture of unknown size is a density estimate that chooses its own smoothness. `score_samples`
gives the posterior mean density, and the draws give its uncertainty. Each draw is a partition of
the rows. The weights, means and variances of its clusters have a known distribution, because the
prior is conjugate. `DensityDisplay` draws a few random mixtures for each partition. Quantiles of
their densities at each point make the band.

The data are the petal lengths of 150 irises.
"""

# sphinx_gallery_thumbnail_path = "images/cards/density.png"

import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity

from skdpm import DPMixture
from skdpm.plotting import DensityDisplay, NumberOfClustersDisplay

x = load_iris(as_frame=True).data[["petal length (cm)"]]
x = x.sample(frac=1.0, random_state=0)  # the file is sorted by species, and folds must not be

# Small clusters come and go slowly. Thinning runs longer chains without storing more draws.
start = time.perf_counter()
model = DPMixture(n_warmup=250, n_draws=250, thin=4, random_state=0).fit(x)
seconds = time.perf_counter() - start
print(f"{model.n_chains} chains of {model.n_iter_} iterations took {seconds:.1f} s")
for name, figures in model.diagnostics_.items():
    print(f"  {name:27} R-hat {figures['r_hat']:.3f}, effective draws {figures['ess_bulk']:.0f}")

# Held-out score, in nats per flower, of this model and of two scikit-learn estimators.
bgm = BayesianGaussianMixture(n_components=10, random_state=0)
kde = GridSearchCV(KernelDensity(), {"bandwidth": np.geomspace(0.05, 1, 15)})
print("held-out log density per flower, mean of 5 folds")
for name, rival in [
    ("DPMixture", clone(model).set_params(thin=1)),
    ("BayesianGaussianMixture", bgm),
    ("KernelDensity, bandwidth by grid search", kde),
]:
    scores = cross_val_score(rival, x, cv=5)
    if rival is kde:
        scores /= len(x) / 5  # its score is a sum over rows, not a mean
    print(f"  {name:40} {scores.mean():.3f}")

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), width_ratios=[2.4, 1], layout="constrained"
)
density = DensityDisplay.from_estimator(model, x, grid=np.linspace(0, 8.5, 400), ax=left)
bgm_density = np.exp(bgm.fit(x.to_numpy()).score_samples(density.grid[:, None]))
left.plot(density.grid, bgm_density, color="k", lw=1, ls=":", label="BayesianGaussianMixture")
left.legend(frameon=False, loc="upper right")
left.set_title("Petals of 150 irises: density and its uncertainty", loc="left", weight="bold")
NumberOfClustersDisplay.from_estimator(model, ax=right)
right.set_title("Number of clusters", loc="left", weight="bold")

fig.savefig("plot_density.png", dpi=120)
print("figure: plot_density.png")
