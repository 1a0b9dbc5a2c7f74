# SPDX-License-Identifier: BSD-3-Clause
"""
Clusters of any law
===================

`Grid` takes any likelihood with few parameters: a function that returns the log density of each
row at each point of a grid. Here are four mixtures without a conjugate prior:

- *beta-binomial*: successes in a number of trials that differs between rows, with more spread than
  a binomial law allows. The grid is over share and precision.
- *Student t*: locations that a few outliers do not move. With a Gaussian likelihood the outliers
  would become separate clusters.
- *von Mises*: directions, for which 360° equals 0°. The grid is over direction and concentration.
- *Weibull*: times to early failure and to failure by wear. The grid is over shape and scale.
"""

# sphinx_gallery_thumbnail_path = "images/cards/laws.png"

import time

import matplotlib.pyplot as plt
import numpy as np
from scipy import stats

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Grid

rng = np.random.default_rng(0)
colours = np.array(["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "0.5"])


def product(*axes):
    """All combinations of the values of some parameters, one per row."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def fit(name, X, truth, likelihood):
    start = time.process_time()
    model = DPMixture(likelihood=likelihood, n_chains=2, random_state=0).fit(X)
    seconds = time.process_time() - start
    print(f"{name}: {model.n_clusters_} clusters found ({truth.max() + 1} true), {seconds:.1f} s")
    return model


def describe(model, *names):
    """Means and standard deviations of the parameters of the larger clusters."""
    params = model.cluster_params_
    for k in np.flatnonzero(np.bincount(model.labels_) >= 10):
        means = np.atleast_1d(params["means"][k, 0])
        stds = np.atleast_1d(params["stds"][k, 0])
        values = zip(names, means, stds, strict=True)
        print("   ", ", ".join(f"{name} {mean:.2f} ± {std:.2f}" for name, mean, std in values))


def histogram(ax, x, labels, bins):
    """Stacked histogram of the rows of each cluster, as a density."""
    groups = [x[labels == k] for k in range(labels.max() + 1)]
    weights = [np.full(len(group), 1 / len(x) / np.diff(bins)[0]) for group in groups]
    shades = colours[np.minimum(range(len(groups)), len(colours) - 1)]
    ax.hist(groups, bins, weights=weights, stacked=True, color=list(shades), alpha=0.6)


def density(ax, model, at):
    ax.plot(at, np.exp(model.score_samples(at[:, None])), color="black", lw=1)


fig, axes = plt.subplot_mosaic(
    [["beta-binomial", "Student t"], ["von Mises", "Weibull"]],
    per_subplot_kw={"von Mises": {"projection": "polar"}},
    figsize=(10, 7.5),
    layout="constrained",
)


# Successes and trials: the law of successes given the trials, which are not modelled.
def beta_binomial(X, grid):
    successes, trials = X[:, :1], X[:, 1:]
    share, precision = grid.T
    return stats.betabinom.logpmf(successes, trials, share * precision, (1 - share) * precision)


truth = rng.choice(3, size=200, p=[0.5, 0.3, 0.2])
trials = rng.integers(10, 80, size=200)
share = rng.beta(*np.array([[6.0, 24, 36], [54, 36, 4]])[:, truth])
X = np.column_stack([rng.binomial(trials, share), trials]).astype(float)
grid = product(np.linspace(0.01, 0.99, 50), np.geomspace(4, 400, 10))
model = fit("beta-binomial", X, truth, Grid(beta_binomial, grid))
describe(model, "share", "precision")
ax = axes["beta-binomial"]
ax.scatter(X[:, 1], X[:, 0] / X[:, 1], s=12, c=colours[model.labels_])
ax.set(xlabel="trials", ylabel="share of successes", ylim=(0, 1), title="Beta-binomial")


# Measurements; one in twelve is a gross error.
def student_t(X, grid):
    return stats.t.logpdf(X, df=2, loc=grid, scale=0.3)


truth = rng.choice(3, size=200)
x = np.array([-3.0, 0.0, 2.5])[truth] + 0.3 * rng.normal(size=200)
x[::12] = rng.uniform(-8, 8, size=len(x[::12]))
X = x[:, None]
gaussian = fit("Gaussian", X, truth, "gaussian")
model = fit("Student t", X, truth, Grid(student_t, np.linspace(-10, 10, 401)))
describe(model, "location")
ax = axes["Student t"]
histogram(ax, x, model.labels_, np.linspace(-8, 8, 81))
density(ax, model, np.linspace(-8, 8, 500))
found = f"{model.n_clusters_} clusters, {gaussian.n_clusters_} under a Gaussian likelihood"
ax.set(
    xlabel="measurement",
    ylabel="density",
    yscale="log",
    ylim=(5e-3, None),
    title=f"Student t: {found}",
)


# Directions, in radians.
def von_mises(X, grid):
    direction, concentration = grid.T
    return stats.vonmises.logpdf(X, concentration, loc=direction)


truth = rng.choice(3, size=200, p=[0.4, 0.4, 0.2])
x = rng.vonmises(np.array([0.1, 2.2, -2.3])[truth], np.array([6.0, 4.0, 20.0])[truth])
grid = product(np.arange(-36, 36) * np.pi / 36, np.geomspace(1, 60, 10))
model = fit("von Mises", x[:, None], truth, Grid(von_mises, grid))
describe(model, "direction", "concentration")
ax = axes["von Mises"]
histogram(ax, x % (2 * np.pi), model.labels_, np.linspace(0, 2 * np.pi, 49))
density(ax, model, np.linspace(0, 2 * np.pi, 400))
ax.set(yticklabels=[], title="von Mises")


# Times to failure.
def weibull(X, grid):
    shape, scale = grid.T
    return stats.weibull_min.logpdf(X, shape, scale=scale)


truth = rng.choice(2, size=200, p=[0.4, 0.6])
x = np.array([30.0, 400.0])[truth] * rng.weibull(np.array([1.0, 6.0])[truth])
grid = product(np.geomspace(0.5, 12, 12), np.geomspace(10, 1000, 100))
model = fit("Weibull", x[:, None], truth, Grid(weibull, grid))
describe(model, "shape", "scale")
ax = axes["Weibull"]
histogram(ax, x, model.labels_, np.linspace(0, 600, 61))
density(ax, model, np.linspace(0.5, 600, 600))
ax.set(xlabel="time to failure (hours)", ylabel="density", xlim=(0, 600), title="Weibull")

fig.savefig("plot_grid.png", dpi=120)
print("figure: plot_grid.png")
