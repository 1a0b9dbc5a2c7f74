# SPDX-License-Identifier: BSD-3-Clause
"""
A density and its uncertainty
=============================

A mixture of unknown size is a density estimate that chooses its own smoothness. `score_samples`
gives the posterior mean density. The draws of the posterior give its uncertainty too: each is a
partition of the rows, which with the likelihood's conjugate prior says how the weights, means and
variances of the clusters are distributed. One random mixture from each draw, and the quantiles of
their densities at each point make the band.

The data are the petal lengths of 150 irises.
"""

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.mixture import BayesianGaussianMixture
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity

from skdpm import DPMixture

rng = np.random.default_rng(0)
x = load_iris().data[:, [2]]  # cm
x = x[rng.permutation(len(x))]  # the file is sorted by species; folds below should not be

# Small clusters come and go slowly: thinning buys draws worth having without storing four times as
# many.
start = time.perf_counter()
model = DPMixture(n_warmup=500, n_draws=500, thin=4, random_state=0).fit(x)
seconds = time.perf_counter() - start
print(f"{model.n_chains} chains of {model.n_iter_} iterations took {seconds:.1f} s")
for name, figures in model.diagnostics_.items():
    print(f"  {name:27} R-hat {figures['r_hat']:.3f}, effective draws {figures['ess_bulk']:.0f}")

grid = np.linspace(0, 8.5, 400)
mean_density = np.exp(model.score_samples(grid[:, None]))


def random_density(labels, concentration, prior):
    """Density on `grid` of a mixture drawn from its posterior given the partition."""
    sizes = np.bincount(labels)
    *weights, rest = rng.dirichlet([*sizes, concentration])
    prior_mean, prior_scale = prior.mean[0], prior.scale[0]
    density = np.zeros_like(grid)
    for k, size in enumerate(sizes):
        members = x[labels == k, 0]
        precision = prior.mean_precision + size
        mean = (prior.mean_precision * prior_mean + members.sum()) / precision
        scale = prior_scale + np.sum((members - members.mean()) ** 2)
        scale += prior.mean_precision * size / precision * (members.mean() - prior_mean) ** 2
        variance = stats.invgamma.rvs((prior.df + size) / 2, scale=scale / 2, random_state=rng)
        mean = rng.normal(mean, np.sqrt(variance / precision))
        density += weights[k] * stats.norm.pdf(grid, mean, np.sqrt(variance))
    # What is left for clusters without members: their expected density, as it is small.
    spread = np.sqrt(prior_scale / prior.df * (1 + 1 / prior.mean_precision))
    return density + rest * stats.t.pdf(grid, prior.df, prior_mean, spread)


n_rows = len(x)
partitions = model.label_samples_.reshape(-1, n_rows)
concentrations = model.concentration_samples_.ravel()
kept = np.arange(0, len(partitions), 8)
# Every draw has its own hyperparameters, which are learned.
learned = {
    name: values.reshape(len(partitions), *values.shape[2:])
    for name, values in model.hyperparameter_samples_.items()
}
priors = [model.likelihood_.at({name: learned[name][s] for name in learned}) for s in kept]
densities = np.array(
    [
        random_density(partitions[s], concentrations[s], prior)
        for s, prior in zip(kept, priors, strict=True)
    ]
)
low, high = np.quantile(densities, [0.05, 0.95], axis=0)

# Held-out score, in nats per flower, of this and of two scikit-learn estimators.
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
        scores /= n_rows / 5  # its score is the sum over rows, not their mean
    print(f"  {name:40} {scores.mean():.3f}")

fig, (left, right) = plt.subplots(
    1, 2, figsize=(10, 4), width_ratios=[2.4, 1], layout="constrained"
)
left.hist(x[:, 0], bins=np.arange(0.95, 7.0, 0.2), density=True, color="0.85", label="150 irises")
left.fill_between(grid, low, high, color="#0072B2", alpha=0.3, lw=0, label="90% band, pointwise")
left.plot(grid, mean_density, color="#0072B2", label="posterior mean (score_samples)")
bgm_density = np.exp(bgm.fit(x).score_samples(grid[:, None]))
left.plot(grid, bgm_density, color="#D55E00", ls="--", label="BayesianGaussianMixture")
left.set(xlim=(grid[0], grid[-1]), xlabel="petal length (cm)", ylabel="density (1/cm)")
left.set_ylim(0)
left.set_title("Posterior predictive density and its uncertainty")
left.legend(frameon=False)

counts, frequency = np.unique(model.n_components_samples_, return_counts=True)
right.bar(counts, frequency / frequency.sum(), color="#0072B2")
right.set(xlabel="clusters", ylabel="posterior probability", xlim=(0.4, 10.6))
right.set_xticks(range(1, 11))
right.set_title("Number of clusters")

fig.savefig("plot_density.png", dpi=120)
print("figure: plot_density.png")
