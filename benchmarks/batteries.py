# SPDX-License-Identifier: BSD-3-Clause
"""Labels on batteries of data sets, beside those of other methods that are told nothing.

    python benchmarks/batteries.py FOLDER --cache cells.json
    python benchmarks/batteries.py - --cache cells.json --methods adaptive vi --only rings moons
    python benchmarks/batteries.py FOLDER --cache cells.json --seeds 0 1
    python benchmarks/batteries.py - --cache cells.json --figure clusters.png

FOLDER has npz files with `X` (n_samples, n_features) and `labels` (reference labellings of the
rows, one per line; rows with label 0 do not count); `-` leaves them out. Other sets are generated.
The rows of FOLDER are centred and divided by one common standard deviation, plus normal noise of
deviation 1e-6. Tables, files with classes `y` in place of `labels`, are taken as they are.

Methods: "adaptive": `DPMixture()`, all defaults; "modal", "vi": the same draws with these losses;
"gmm": `GaussianMixture` with the number of components of least BIC among 1..30; "bgmm":
`BayesianGaussianMixture(30)`; "hdbscan": `HDBSCAN()`; "hdbscan1": at least 1 % of the rows in a
cluster and 5 neighbours. Rows that HDBSCAN calls noise join the cluster of the nearest other row.

The best of the reference labellings counts. ARI is the adjusted Rand index, AAA the adjusted
asymmetric accuracy (Gagolewski 2025), V the V-measure. Cells are kept in --cache, and measured
again only where --again names their method. With two --seeds, "stable" is the ARI between the
labels of the two fits.
"""

import argparse
import functools
import json
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs, make_moons
from sklearn.metrics import adjusted_rand_score, v_measure_score
from sklearn.metrics.cluster import contingency_matrix
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from threadpoolctl import threadpool_limits

from skdpm import DPMixture

METHODS = ("adaptive", "modal", "vi", "gmm", "bgmm", "hdbscan", "hdbscan1")
OURS = METHODS[:3]


def rings(rng):
    which = rng.integers(3, size=1500)
    angle = rng.uniform(0, 2 * np.pi, size=1500)
    radius = which + 1 + rng.normal(scale=0.08, size=1500)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), which


def spirals(rng):
    t, which = 3 * np.pi * np.sqrt(rng.uniform(0.05, 1, size=1500)), rng.integers(2, size=1500)
    angle = t + np.pi * which
    X = np.column_stack([t * np.cos(angle), t * np.sin(angle)]) / 9
    return X + rng.normal(scale=0.02, size=X.shape), which


def face(rng):
    n = 300
    x = rng.uniform(-1, 1, size=n)
    return np.concatenate(
        [
            rng.normal([-0.8, 1.0], 0.15, size=(n, 2)),
            rng.normal([0.8, 1.0], 0.15, size=(n, 2)),
            np.column_stack([rng.uniform(-0.1, 0.1, size=n), rng.uniform(-0.4, 0.5, size=n)]),
            np.column_stack([x, 0.6 * x**2 - 1.4 + rng.normal(scale=0.06, size=n)]),
        ]
    ), np.repeat(np.arange(4), n)


def noisy_background(rng):
    X, y = make_blobs(800, 2, centers=5, cluster_std=0.5, random_state=3)
    return np.concatenate([X, rng.uniform(-12, 12, size=(200, 2))]), np.r_[y, np.full(200, -1)]


def stretched(rng):
    X, y = make_blobs(900, 2, random_state=170, centers=3)
    return X @ np.array([[0.6, -0.6], [-0.4, 0.8]]), y


def skewed(rng, d=4, n_clusters=4, n=1200):
    means = rng.normal(scale=4, size=(n_clusters, d))
    y = rng.integers(n_clusters, size=n)
    return means[y] + rng.gamma(1.5, size=(n, d)), y


def fifteen(rng, deviation):
    means = [rng.uniform(size=2)]
    while len(means) < 15:
        mean = rng.uniform(size=2)
        if min(np.linalg.norm(mean - other) for other in means) > 0.13:
            means.append(mean)
    y = rng.integers(15, size=5000)
    return np.array(means)[y] + rng.normal(scale=deviation, size=(5000, 2)), y


def many_columns(rng, d=20, n_clusters=8, n=2000):
    means = rng.normal(size=(n_clusters, d)) * 5 / np.sqrt(d)
    y = rng.integers(n_clusters, size=n)
    return means[y] + rng.normal(size=(n, d)), y


def bundled(load):
    X, y = load(return_X_y=True)
    return (X - X.mean(axis=0)) / X.std(axis=0), y


GENERATED = {
    "moons": lambda rng: make_moons(1000, noise=0.08, random_state=0),
    "rings": rings,
    "spirals": spirals,
    "face": face,
    "noisy background": noisy_background,
    "stretched": stretched,
    "different widths": lambda rng: make_blobs(
        900, 2, centers=[[0, 0], [6, 6], [-6, 6]], cluster_std=[1, 2.5, 0.5], random_state=170
    ),
    "skewed": skewed,
    "skewed, 10 columns": lambda rng: skewed(rng, 10, 6, 2000),
    "15 apart": lambda rng: fifteen(rng, 0.03),
    "15 overlap": lambda rng: fifteen(rng, 0.05),
    "15 overlap more": lambda rng: fifteen(rng, 0.058),
    "20 columns": many_columns,
    "one normal law": lambda rng: (rng.normal(size=(300, 2)), np.zeros(300)),
    "one square": lambda rng: (rng.uniform(size=(1000, 2)), np.zeros(1000)),
    "iris": lambda rng: bundled(load_iris),
    "wine": lambda rng: bundled(load_wine),
    "breast cancer": lambda rng: bundled(load_breast_cancer),
}

# Sets of the figure.
SHOWN = (
    "moons",
    "rings",
    "face",
    "stretched",
    "different widths",
    "noisy background",
    "15 overlap",
    "one square",
)


def load(name, folder):
    """Rows, and reference labellings (n_labellings, n_samples) from 1; 0 does not count."""
    if name in GENERATED:
        X, y = GENERATED[name](np.random.default_rng(0))
        return np.asarray(X, dtype=float), np.asarray(y, dtype=int)[None] + 1
    data = np.load(Path(folder, f"{name}.npz"))
    X = data["X"].astype(float)
    if "labels" not in data:  # a table
        return X, np.unique(data["y"], return_inverse=True)[1][None] + 1
    labels = np.atleast_2d(data["labels"])
    labels = labels if labels.shape[1] == len(X) else labels.T
    X = (X - X.mean(axis=0)) / X.std(ddof=1)
    return X + np.random.default_rng(0).normal(scale=1e-6, size=X.shape), labels


def asymmetric_accuracy(truth, found):
    """Mean share of a reference cluster in the cluster that is matched with it, adjusted."""
    table = contingency_matrix(truth, found)
    shares = table / table.sum(axis=1, keepdims=True)
    k = len(shares)
    if k == 1:
        return float(shares.max())
    rows, columns = linear_sum_assignment(shares, maximize=True)
    return float((shares[rows, columns].sum() / k - 1 / k) / (1 - 1 / k))


def to_nearest(X, labels):
    known = labels >= 0
    if not known.any():
        return np.zeros(len(labels), dtype=int)
    nearest = cKDTree(X[known]).query(X)[1]
    return np.where(known, labels, labels[known][nearest])


@functools.lru_cache(maxsize=1)
def fitted(numbers, shape, seed):
    """The fit that all readings of one set share."""
    return DPMixture(random_state=seed).fit(np.frombuffer(numbers).reshape(shape))


def labels_of(method, X, seed):
    if method in OURS:
        return fitted(X.tobytes(), X.shape, seed).estimate_labels(loss=method).labels_
    if method == "gmm":
        fits = [GaussianMixture(k, random_state=seed).fit(X) for k in range(1, 31) if k < len(X)]
        return min(fits, key=lambda fit: fit.bic(X)).predict(X)
    if method == "bgmm":
        most = min(30, len(X))
        return BayesianGaussianMixture(most, random_state=seed, max_iter=1000).fit_predict(X)
    options = {"copy": True}
    if method == "hdbscan1":
        options |= {"min_cluster_size": max(2, round(0.01 * len(X))), "min_samples": 5}
    return to_nearest(X, HDBSCAN(**options).fit_predict(X))


def measure(method, name, folder, seed):
    X, references = load(name, folder)
    began = time.process_time()
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore")
        labels = labels_of(method, X, seed)
    seconds = time.process_time() - began
    scores = []
    for truth in references:
        counts = truth > 0
        pair = truth[counts], labels[counts]
        scores.append(
            (adjusted_rand_score(*pair), asymmetric_accuracy(*pair), v_measure_score(*pair))
        )
    ari, aaa, v = max(scores)
    return {
        "ari": ari,
        "aaa": aaa,
        "v": v,
        "found": int(labels.max()) + 1,
        "true": [len(np.unique(truth[truth > 0])) for truth in references],
        "seconds": seconds,
        "labels": labels.tolist(),
    }


def show(cells, names, methods, seeds):
    width = max(map(len, names)) + 2
    print(" " * width + "".join(f"{method:>16}" for method in methods) + "   ARI (clusters)")
    for name in names:
        row = [cells[f"{method}/{name}/{seeds[0]}"] for method in methods]
        words = "".join(f"{cell['ari']:>10.2f} ({cell['found']:>3})" for cell in row)
        print(f"{name:<{width}}{words}   true: {', '.join(map(str, row[0]['true']))}")
    for score in ("ari", "aaa", "v", "seconds"):
        means = [
            np.mean([cells[f"{method}/{name}/{seeds[0]}"][score] for name in names])
            for method in methods
        ]
        print(f"{'mean ' + score:<{width}}" + "".join(f"{mean:>16.3f}" for mean in means))
    for method in methods if len(seeds) > 1 else ():
        stable = [
            adjusted_rand_score(
                *(cells[f"{method}/{name}/{seed}"]["labels"] for seed in seeds[:2])
            )
            for name in names
        ]
        low = {name: round(s, 2) for name, s in zip(names, stable, strict=True) if s < 0.95}
        print(f"{method}: stable (ARI >= .95) on {len(names) - len(low)} of {len(names)}; {low}")


def draw(cells, path):
    import matplotlib.pyplot as plt

    from skdpm.plotting._style import cluster_colors

    words = {"adaptive": "skdpm", "hdbscan1": "HDBSCAN, 1 %", "gmm": "GaussianMixture, BIC"}
    figure, axes = plt.subplots(
        len(words), len(SHOWN), figsize=(14.0, 5.6), squeeze=False, layout="compressed"
    )
    for column, name in enumerate(SHOWN):
        X, _ = load(name, None)
        for row, method in enumerate(words):
            cell, ax = cells[f"{method}/{name}/0"], axes[row, column]
            labels = np.array(cell["labels"])
            order = np.argsort(-np.bincount(labels), kind="stable").argsort()
            colors = cluster_colors(cell["found"])[order[labels]]
            ax.scatter(*X.T, c=colors, s=1.5, linewidths=0, rasterized=True)
            ax.set(xticks=[], yticks=[])
            ax.text(
                0.97, 0.03, f"ARI {cell['ari']:.2f}", ha="right", transform=ax.transAxes, size=8
            )
        axes[0, column].set_title(name, size=10)
    for row, word in enumerate(words.values()):
        axes[row, 0].set_ylabel(word)
    figure.savefig(path, dpi=90)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--cache", type=Path, default=Path("batteries.json"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--only", nargs="+", help="sets")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--again", nargs="+", default=())
    parser.add_argument("--figure", type=Path)
    options = parser.parse_args()
    names = [*GENERATED]
    if options.folder != "-":
        names = sorted(path.stem for path in Path(options.folder).glob("*.npz")) + names
    if options.only:
        names = [name for name in names if name in options.only]
    if options.figure:
        options.methods, names = ["adaptive", "hdbscan1", "gmm"], [*SHOWN]
    cells = json.loads(options.cache.read_text()) if options.cache.exists() else {}
    for name in names:
        for method in options.methods:
            for seed in options.seeds:
                key = f"{method}/{name}/{seed}"
                if key not in cells or method in options.again:
                    cells[key] = measure(method, name, options.folder, seed)
                    options.cache.write_text(json.dumps(cells))
    given = [name for name in names if name not in GENERATED]
    groups = [
        [name for name in given if not name.startswith("wut-")],
        [name for name in given if name.startswith("wut-")],
        [name for name in names if name in GENERATED],
    ]
    for group in groups:
        if group:
            show(cells, group, options.methods, options.seeds)
    if options.figure:
        draw(cells, options.figure)


if __name__ == "__main__":
    main()
