# SPDX-License-Identifier: BSD-3-Clause
"""Rows of many columns: what `DPMixture().fit(X)` answers, in what time, and why by that law.

    python benchmarks/many_columns.py defaults [--n-samples 100000] [--n-jobs 2]
    python benchmarks/many_columns.py likelihoods [--n-samples 20000]
    python benchmarks/many_columns.py others [--data FOLDER]

- "defaults": on `make_embeddings` (128 columns, 79 classes), beside k-means and scikit-learn's
  variational mixture of diagonal Gaussians, which both get the number of classes.
- "likelihoods": some iterations of one chain under several laws of a cluster, on 20,000 rows of
  the same, and the held-out density of 5000 more.
- "others": data sets that the default was not tuned to; FOLDER has those that are not bundled.

Times are processor times of all threads, except those called wall. NMI is the normalised mutual
information of labels and classes.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.metrics import normalized_mutual_info_score
from sklearn.mixture import BayesianGaussianMixture

from skdpm import DPMixture
from skdpm.datasets import make_embeddings, make_high_dimensional_gaussians
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.likelihoods import Gaussian, Subspace

N_CLASSES = 79
N_HELD_OUT = 5000

LIKELIHOODS = {
    "Gaussian full": Gaussian(),
    "Gaussian diag": Gaussian(covariance_type="diag"),
    "axes, diag": Gaussian(covariance_type="diag"),  # of X along all of its principal axes
    **{f"Subspace({r})": Subspace(r) for r in (8, 12, 16, 24)},
}


def timed(function):
    """What a function returns, its processor time and its wall time."""
    began = time.process_time(), time.perf_counter()
    result = function()
    return result, time.process_time() - began[0], time.perf_counter() - began[1]


def nmi(classes, labels):
    return normalized_mutual_info_score(classes, labels)


def defaults(n_samples, n_jobs):
    X, classes = make_embeddings(n_samples, random_state=0)
    print(f"{n_samples} x {X.shape[1]}, {N_CLASSES} classes")
    model = KMeans(n_clusters=N_CLASSES, n_init=1, random_state=0)
    labels, used, _ = timed(lambda: model.fit_predict(X))
    print(f"KMeans({N_CLASSES}): NMI {nmi(classes, labels):.3f}, {used:.0f} s", flush=True)
    model = BayesianGaussianMixture(n_components=N_CLASSES, covariance_type="diag", random_state=0)
    labels, used, _ = timed(lambda: model.fit_predict(X))
    name = f"BayesianGaussianMixture({N_CLASSES}, diag)"
    print(f"{name}: NMI {nmi(classes, labels):.3f}, {used:.0f} s", flush=True)
    parts = {}
    summarise = BaseMixture._summarise

    def watched(*arguments):
        parts["summary"] = timed(lambda: summarise(*arguments))[1:]

    BaseMixture._summarise = watched
    start = DPMixture(n_chains=1, n_warmup=0, n_draws=1, point_estimate="last", random_state=0)
    _, used, _ = timed(lambda: start.fit(X))
    print(
        f"start of a chain: NMI {nmi(classes, start.labels_):.3f}, "
        f"{start.n_clusters_} clusters, {used:.1f} s",
        flush=True,
    )
    model = DPMixture(n_jobs=n_jobs, random_state=0)
    _, used, wall = timed(lambda: model.fit(X))
    print(
        f"DPMixture(): NMI {nmi(classes, model.labels_):.3f}, {model.n_clusters_} clusters "
        f"({model.n_components_samples_.mean():.0f} components), {used:.0f} s of the processor "
        f"({parts['summary'][0]:.0f} s of it summing up), {wall:.0f} s wall; "
        f"{model.sampler_}, {type(model.likelihood_).__name__}"
    )
    labels, used, _ = timed(lambda: model.predict(X[:10_000]))
    print(f"predict, 10,000 rows: {used:.1f} s")


def one_chain(name, likelihood, X, classes, new, sampler, n_iterations):
    """Print a line: one chain, half of it warm-up."""
    model = DPMixture(
        likelihood=likelihood,
        sampler=sampler,
        n_chains=1,
        n_warmup=n_iterations // 2,
        n_draws=n_iterations // 2,
        random_state=0,
    )
    _, used, _ = timed(lambda: model.fit(X))
    print(
        f"{name:26s} NMI {nmi(classes, model.labels_):.3f}, {model.n_clusters_:4d} clusters "
        f"({model.n_components_samples_.mean():.0f} components), held out "
        f"{model.score(new):.2f}, {used:.1f} s",
        flush=True,
    )


def likelihoods(n_samples):
    X, classes = make_embeddings(n_samples + N_HELD_OUT, random_state=0)
    new, X, classes = X[n_samples:], X[:n_samples], classes[:n_samples]
    axes = np.linalg.eigh(np.cov(X.T))[1]
    for name, likelihood in LIKELIHOODS.items():
        along = axes if "axes" in name else np.eye(len(axes))
        rows = X @ along, new @ along
        one_chain(name, likelihood, rows[0], classes, rows[1], "sub_cluster", 60)


def others(folder):
    sets = {"digits": load_digits(return_X_y=True)}
    rng = np.random.default_rng(0)
    X, classes = make_high_dimensional_gaussians(random_state=0)
    sets["high-dimensional"] = X, classes
    sets["the same, noisy"] = X + 40.0 * rng.standard_normal(X.shape), classes
    sets["20 classes"] = make_embeddings(6000, n_clusters=20, random_state=1)
    if folder is not None:
        for name in ("dim064", "mnist70k"):
            with np.load(folder / f"{name}.npz") as file:
                sets[name] = file["X"].astype(np.float64), file["y"]
    for name, (X, classes) in sets.items():
        rows = rng.permutation(len(X))[:6000]
        cut = len(rows) // 5
        new, rows = X[rows[:cut]], rows[cut:]
        for law, likelihood in LIKELIHOODS.items():
            if "axes" not in law and (X.shape[1] <= 128 or law != "Gaussian full"):
                one_chain(f"{name}, {law}", likelihood, X[rows], classes[rows], new, "auto", 60)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["defaults", "likelihoods", "others"])
    parser.add_argument("--n-samples", type=int)
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.what == "defaults":
        defaults(args.n_samples or 100_000, args.n_jobs)
    elif args.what == "likelihoods":
        likelihoods(args.n_samples or 20_000)
    else:
        others(args.data)


if __name__ == "__main__":
    main()
