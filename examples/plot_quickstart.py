# SPDX-License-Identifier: BSD-3-Clause
"""
Quick start: how many kinds of wine?
====================================

The rows are 178 wines of three cultivars with 13 chemical measurements. The cultivars are hidden
from the model, and the number of clusters is not given. The fit returns the posterior of that
number, and how often each pair of wines belongs together. Held-out rows then compare the fitted
density with scikit-learn's `BayesianGaussianMixture`.
"""

# sphinx_gallery_thumbnail_path = "images/cards/numbers.png"

import time
import warnings

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import ListedColormap
from scipy.special import logsumexp
from scipy.stats import multivariate_t
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.plotting import CoclusteringDisplay, NumberOfClustersDisplay

threadpool_limits(1)  # small matrices: more BLAS threads only wait for each other
X, cultivar = load_wine(return_X_y=True)

# All settings are defaults except thinning: small components come and go slowly. Columns are
# standardised only for the rivals below; `DPMixture` gives the same answer in any units.
model = make_pipeline(StandardScaler(), DPMixture(thin=4, random_state=0))
start = time.perf_counter()
labels = model.fit_predict(X)
mixture = model[-1]
seconds = time.perf_counter() - start
print(f"{mixture.n_chains} chains of {mixture.n_iter_} iterations took {seconds:.1f} s")

counts, frequency = np.unique(mixture.n_clusters_samples_, return_counts=True)
probability = frequency / frequency.sum()
print("posterior of the number of clusters:")
for count, p in zip(counts, probability, strict=True):
    print(f"  {count} clusters: {p:.3f}")
v_measure = v_measure_score(cultivar, labels)
print(f"point estimate: clusters of {np.bincount(labels)}, V-measure {v_measure:.2f}")

# Do the chains agree? The summary names the largest R-hat and says why it counts or not. Small
# components, of a few rows, come and go slowly. Do other starts reach a higher log joint?
print(mixture.summary())
print(f"mean log joint of each chain: {mixture.log_joint_samples_.mean(axis=1).round(1)}")
other = clone(mixture).set_params(init="single").fit(model[:-1].transform(X))
print(f"started in one cluster: {other.log_joint_samples_.mean(axis=1).round(1)}")

# Held-out log density per wine, in nats. All models get the same folds, scaled by the same
# training rows. scikit-learn's `score` is a lower bound, from means of logarithms. The posterior
# predictive density of its model is a mixture of Student t densities, which is also computed.


def predictive_score(pipeline, X, y=None):
    X, bgm = pipeline[:-1].transform(X), pipeline[-1]
    log_densities = []
    for k in range(bgm.n_components):
        precision = bgm.mean_precision_[k]
        df = bgm.degrees_of_freedom_[k] - X.shape[1] + 1
        shape = bgm.covariances_[k] * bgm.degrees_of_freedom_[k] / df * (1 + 1 / precision)
        log_t = multivariate_t(bgm.means_[k], shape, df).logpdf(X)
        log_densities.append(np.log(bgm.weights_[k]) + log_t)
    return logsumexp(log_densities, axis=0).mean()


folds = StratifiedKFold(4, shuffle=True, random_state=0)
with warnings.catch_warnings():
    # In some folds the short chains differ in the number of small components. This hardly affects
    # the mean density.
    warnings.simplefilter("ignore", ConvergenceWarning)
    shorter = clone(model).set_params(dpmixture__thin=1, dpmixture__n_chains=2)
    score = cross_val_score(shorter, X, cultivar, cv=folds).mean()
print(f"held-out log density per wine\n  DPMixture: {score:.2f}")
same_prior = {
    "mean_precision_prior": mixture.likelihood_.mean_precision,
    "degrees_of_freedom_prior": mixture.likelihood_.df,
    "covariance_prior": np.diag(mixture.likelihood_.scale),
}
rivals = {
    "default prior, its score": ({}, None),
    "DPMixture's prior, its score": (same_prior, None),
    "DPMixture's prior, predictive density": (same_prior, predictive_score),
}
n_components = [2, 3, 4, 6, 10]
rival_scores = {}
print(f"  BayesianGaussianMixture(n_components={n_components})")
for name, (prior, scoring) in rivals.items():
    rival_scores[name] = []
    for k in n_components:
        bgm = BayesianGaussianMixture(n_components=k, max_iter=500, random_state=0, **prior)
        bgm = make_pipeline(StandardScaler(), bgm)
        scores = cross_val_score(bgm, X, cultivar, cv=folds, scoring=scoring)
        rival_scores[name].append(scores.mean())
    print(f"    {name}: {np.round(rival_scores[name], 2)}")

fig, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained", width_ratios=[1, 1.3, 1.2])
fig.get_layout_engine().set(w_pad=0.15)
blue, orange, green = "#0072B2", "#D55E00", "#009E73"
NumberOfClustersDisplay.from_estimator(model, ax=axes[0])
axes[0].set_title("How many clusters?")

# The strip to the right of the matrix shows the cultivars, which the model has not seen.
together = CoclusteringDisplay.from_estimator(model, ax=axes[1])
strip = axes[1].inset_axes([1.015, 0, 0.03, 1])
cultivars = ListedColormap(["0.2", "0.55", "0.85"])
strip.imshow(cultivar[together.rows][:, None], cmap=cultivars, aspect="auto")
strip.set(xticks=[], yticks=[])
axes[1].set_title(f"Which belong together?\n(V-measure {v_measure:.2f}; grey: cultivar)")

ax = axes[2]
ax.axhline(score, color=blue, lw=2, label="DPMixture")
styles = zip(rival_scores.items(), [orange, "#CC79A7", green], "os^", strict=True)
for (name, scores), color, marker in styles:
    ax.plot(n_components, scores, color=color, marker=marker, label=f"BGM, {name}")
ax.set_xlabel("n_components of\nBayesianGaussianMixture (BGM)")
ax.set_ylabel("log density per wine (nats)")
ax.set_xticks(n_components)
ax.set_title("Held-out score, 4 folds")
ax.legend(frameon=False, loc="lower left", fontsize="small")

fig.savefig("plot_quickstart.png", dpi=120)
print("figure: plot_quickstart.png")
