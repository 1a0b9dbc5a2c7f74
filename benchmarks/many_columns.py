# SPDX-License-Identifier: BSD-3-Clause
"""Rows of many columns: what `DPMixture().fit(X)` answers, in what time, and why by that law.

    python benchmarks/many_columns.py methods --data FOLDER [--sets digits] [--methods gmm]
    python benchmarks/many_columns.py likelihoods [--n-samples 20000]
    python benchmarks/many_columns.py others [--data FOLDER]
    python benchmarks/many_columns.py choice [--data FOLDER]

- "methods": labels by `DPMixture` and by what users take instead, on data with known classes, and
  on documents of which half of the words are held out. "told" has the number of classes; for
  `DPMixture` that is `estimate_labels(max_clusters=...)` of the same fit.
- "likelihoods": some iterations of one chain under several laws of a cluster, on 20,000 rows of
  the same, and the held-out density of 5000 more.
- "others": data sets that the default was not tuned to; FOLDER has those that are not bundled.
- "choice": held-out densities, labels and time of fits under the laws among which the default
  chooses, and which one that is; on digits, and tables of FOLDER with at least eight columns.

Times are processor times of all threads, except those called wall. NMI is the normalised mutual
information of labels and classes, ARI the adjusted Rand index. Rows that HDBSCAN calls noise are
one more cluster. UMAP is used if umap-learn is installed.
"""

import argparse
import importlib.util
import multiprocessing
import time
import warnings
from pathlib import Path

import numpy as np
from scipy import sparse, stats
from sklearn.cluster import HDBSCAN, KMeans, kmeans_plusplus
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import (
    adjusted_rand_score,
    normalized_mutual_info_score,
    v_measure_score,
)
from sklearn.mixture import GaussianMixture
from sklearn.preprocessing import normalize

from skdpm import DPMixture
from skdpm.datasets import make_embeddings, make_high_dimensional_gaussians
from skdpm.mixture.likelihoods import Gaussian, Subspace
from skdpm.mixture.likelihoods.composite.automatic import MANY_COLUMNS, laws_for
from skdpm.mixture.trials import best_law, scores_of_laws

N_HELD_OUT = 5000
N_STARTS = 10  # of k-means
N_COMPONENTS = (1, 2, 5, 10, 15, 20, 30, 40, 60, 80, 100)  # among which BIC chooses
LONGEST = 900  # seconds on the wall for a cell of "methods"
SMOOTHING = 0.1  # added to the counts of a word in a cluster

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


def digits(folder):
    return load_digits(return_X_y=True)


def stored(name, n_axes=None):
    """A set of the folder, or its principal components."""

    def load(folder):
        with np.load(folder / f"{name}.npz") as file:
            X, y = file["X"].astype(np.float64), file["y"]
        return (X if n_axes is None else PCA(n_axes, random_state=0).fit_transform(X)), y

    return load


def directions(n_columns, n_directions, n_samples):
    """Rows of length one around random directions, some tight and some loose."""

    def load(folder):
        rng = np.random.default_rng(0)
        sizes = rng.multinomial(n_samples, np.full(n_directions, 1.0 / n_directions))
        parts = [
            stats.vonmises_fisher(normalize(rng.standard_normal((1, n_columns)))[0], kappa).rvs(
                size, rng
            )
            for kappa, size in zip(np.geomspace(60, 1000, n_directions), sizes, strict=True)
        ]
        return np.concatenate(parts), np.repeat(np.arange(n_directions), sizes)

    return load


def words100(folder):
    """News of four groups: tf-idf of 100 words."""
    X, y = stored("news20_w100")(folder)
    X = sparse.csr_array(X[X.any(1)]), y[X.any(1)]
    return TfidfTransformer().fit_transform(X[0]).tocsr(), X[1]


SETS = {
    "digits": digits,
    "MNIST": stored("mnist70k", 50),
    "dim064": stored("dim064"),
    "embeddings20": lambda folder: make_embeddings(6000, n_clusters=20, random_state=1),
    "embeddings79": lambda folder: make_embeddings(100_000, random_state=0),
    "directions": directions(100, 12, 1800),
    "directions79": directions(128, 79, 100_000),
    "words100": words100,
}


def spherical_k_means(X, n_clusters):
    """The best of some runs of k-means with cosines, started by k-means++."""
    X = normalize(X)
    best, labels = -np.inf, None
    for seed in range(N_STARTS):
        centres = dense(kmeans_plusplus(X, n_clusters, random_state=seed)[0])
        last = None
        for _ in range(100):
            cosines = np.asarray(X @ centres.T)
            nearest = cosines.argmax(1)
            if last is not None and np.array_equal(nearest, last):
                break
            last = nearest
            members = sparse.csr_array((np.ones(len(nearest)), (nearest, range(len(nearest)))))
            members.resize(n_clusters, X.shape[0])
            centres = normalize(dense(members @ X))
        if cosines.max(1).sum() > best:
            best, labels = cosines.max(1).sum(), nearest
    return labels


def dense(X):
    return X.toarray() if sparse.issparse(X) else X


def by_bic(X):
    X = dense(X)
    models = [
        GaussianMixture(k, covariance_type="diag", random_state=0).fit(X) for k in N_COMPONENTS
    ]
    return min(models, key=lambda model: model.bic(X)).predict(X)


def hdbscan(X):
    smallest = max(5, X.shape[0] // 100)
    return HDBSCAN(min_cluster_size=smallest, min_samples=5, copy=True).fit_predict(dense(X))


def after_umap(X):
    from umap import UMAP

    return hdbscan(
        UMAP(n_components=5, n_neighbors=30, min_dist=0.0, random_state=0).fit_transform(X)
    )


def k_means(X, n_clusters):
    return KMeans(n_clusters, n_init=N_STARTS, random_state=0).fit_predict(X)


def mixture(X, n_clusters, **options):
    model = DPMixture(n_jobs=2, random_state=0, **options).fit(X)
    yield "", model.labels_
    yield ", told", model.estimate_labels(max_clusters=n_clusters).labels_


# Each gives labels by the end of the method's name.
METHODS = {
    "DPMixture": lambda X, k: mixture(dense(X), k),
    "directions": lambda X, k: mixture(X, k, likelihood="von_mises_fisher"),
    "k-means": lambda X, k: [(", told", k_means(X, k))],
    "spherical": lambda X, k: [(", told", spherical_k_means(X, k))],
    "gmm": lambda X, k: [("", by_bic(X))],
    "hdbscan": lambda X, k: [("", hdbscan(X))],
    "pca-hdbscan": lambda X, k: [("", hdbscan(PCA(10, random_state=0).fit_transform(X)))],
    "umap-hdbscan": lambda X, k: [("", after_umap(X))],
}
WORDS = {
    "DPMixture": lambda X: DPMixture(
        likelihood="multinomial", n_jobs=2, random_state=0
    ).fit_predict(X),
    "directions": lambda X: DPMixture(
        likelihood="von_mises_fisher", n_jobs=2, random_state=0
    ).fit_predict(TfidfTransformer().fit_transform(X).tocsr()),
    **{
        f"spherical, {k}": lambda X, k=k: spherical_k_means(TfidfTransformer().fit_transform(X), k)
        for k in (10, 20, 40)
    },
}


def labels_of(load, method, folder):
    """Print a row for each labelling by a method."""
    X, classes = load(folder)
    began = time.process_time(), time.perf_counter()
    for end, labels in METHODS[method](X, len(np.unique(classes))):
        used, wall = time.process_time() - began[0], time.perf_counter() - began[1]
        found, noise = len(np.unique(labels[labels >= 0])), np.mean(labels < 0)
        print(
            f"| | {method}{end} | {nmi(classes, labels):.3f} | "
            f"{adjusted_rand_score(classes, labels):.3f} | {found} | {noise:.0%} | {used:.0f} | "
            f"{wall:.0f} |",
            flush=True,
        )


def held_out_words(method, folder):
    """Print the mean log probability of the words of documents that a method has not seen."""
    counts = sparse.load_npz(folder / "kos.npz").tocsr().astype(np.int64)
    kept = counts.copy()
    kept.data = np.random.default_rng(0).binomial(counts.data, 0.5)
    kept.eliminate_zeros()
    some = np.asarray(kept.sum(1)).ravel() > 0
    new, kept = (counts - kept)[some], kept[some]
    (labels, used, wall) = timed(lambda: WORDS[method](kept.astype(np.float64)))
    members = sparse.csr_array((np.ones(len(labels)), (labels, np.arange(len(labels)))))
    shares = (members @ kept).toarray() + SMOOTHING
    shares = np.log(shares / shares.sum(1, keepdims=True))
    new = new.tocoo()
    mean = np.average(shares[labels[new.row], new.col], weights=new.data)
    found = labels.max() + 1
    print(
        f"| KOS | {method} | {mean:.3f} | {found} | {used:.0f} | {wall:.0f} |",
        flush=True,
    )


def limited(function, *arguments):
    """Call a function in a process of its own, not longer than LONGEST."""
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    process.join(LONGEST)
    if process.is_alive():
        process.kill()
        print(f"| | {arguments[-2]} | longer than {LONGEST} s | | | | | |", flush=True)


def methods(folder, sets, chosen):
    print("| data | method | NMI | ARI | clusters | noise | processor s | wall s |", flush=True)
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for name in sets or SETS:
        if name == "KOS":
            continue
        print(f"| {name} | | | | | | | |", flush=True)
        for method in chosen or METHODS:
            if method != "umap-hdbscan" or importlib.util.find_spec("umap"):
                limited(labels_of, SETS[name], method, folder)
    if not sets or "KOS" in sets:
        for method in WORDS:
            if not chosen or method in chosen:
                limited(held_out_words, method, folder)


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


def choice(folder):
    """Print a line for each set and law: standardised columns, four fifths of the rows fitted."""
    sets = {"digits": load_digits(return_X_y=True)}
    for path in [] if folder is None else sorted((folder / "tables").glob("*.npz")):
        with np.load(path) as file:
            X, labels = file["X"].astype(np.float64), file["y" if "y" in file else "labels"]
            if X.shape[1] >= MANY_COLUMNS:
                sets[path.stem] = X, labels
    print("| set | law | held out | ARI | V | clusters | components | R-hat | s |", flush=True)
    print("|---|---|---|---|---|---|---|---|---|", flush=True)
    for name, (X, labels) in sets.items():
        rows = np.random.default_rng(0).permutation(len(X))[:2500]
        X, labels = X[rows], labels[rows]
        new = np.arange(len(X)) >= 4 * len(X) // 5
        X = X[:, X[~new].std(axis=0) > 0.0]
        X = (X - X.mean(axis=0)) / X.std(axis=0)
        laws = laws_for(X)
        chosen = best_law(scores_of_laws(DPMixture(), laws, X[~new]))
        for place, law in enumerate(laws):
            model = DPMixture(likelihood=law, random_state=0, max_time=60)
            _, used, _ = timed(lambda model=model, X=X, new=new: model.fit(X[~new]))
            scores = model.score_samples(X[new])
            print(
                f"| {name} {sum(~new)} x {X.shape[1]} | {law}{' *' * (place == chosen)} | "
                f"{scores.mean():.1f} ± {scores.std() / np.sqrt(len(scores)):.1f} | "
                f"{adjusted_rand_score(labels[~new], model.labels_):.2f} | "
                f"{v_measure_score(labels[~new], model.labels_):.2f} | {model.n_clusters_} | "
                f"{model.n_components_samples_.mean():.0f} | "
                f"{model.diagnostics_['log_density']['r_hat']:.2f} | {used:.1f} |",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["methods", "likelihoods", "others", "choice"])
    parser.add_argument("--n-samples", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--sets", nargs="*", choices=[*SETS, "KOS"])
    parser.add_argument("--methods", nargs="*", choices=sorted({*METHODS, *WORDS}))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    if args.what == "methods":
        methods(args.data, args.sets, args.methods)
    elif args.what == "likelihoods":
        likelihoods(args.n_samples or 20_000)
    elif args.what == "others":
        others(args.data)
    else:
        choice(args.data)


if __name__ == "__main__":
    main()
