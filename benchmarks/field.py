# SPDX-License-Identifier: BSD-3-Clause
"""skdpm beside the tools that people use for one job. Every tool is optional.

    python benchmarks/field.py [--tasks classes networks ...] [--data FOLDER] [--seeds 2]

A task prints a line for each data set and tool: quality, and processor seconds. A tool that is not
installed is left out, by name. `--data` has `networks/*.npz` (A, y), `mclust/*.npz` and
`outliers/*.npz` (X, y), and `words.npz` (X, y; binary words). Outliers, imputation and mutations
are measured by `outliers.py`, `imputation.py` and `mutations.py`, whose functions are called here.
Results are on the page "Beside other tools".
"""

import argparse
import importlib
import shutil
import subprocess
import tempfile
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN, Birch, KMeans, MiniBatchKMeans
from sklearn.datasets import load_breast_cancer, load_iris, load_wine, make_blobs
from sklearn.decomposition import LatentDirichletAllocation
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score, roc_auc_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.neighbors import KernelDensity
from sklearn.preprocessing import StandardScaler

from skdpm import DPMixture
from skdpm.metrics import description_length
from skdpm.mixture.likelihoods import Relational

PEERS = ["scikit-learn", "stepmix", "river", "pyod", "hdbscan", "pylace", "pyclone-vi"]


def optional(name):
    """A module, or None with a message if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        print(f"  {name}: not installed")
        return None


def show(data, tool, start, **values):
    """Print a line of results; `start` is the processor time before the fit."""
    seconds = time.process_time() - start
    cells = ", ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )
    print(f"  {data} | {tool} | {cells} | {seconds:.1f} s", flush=True)


def best_by_bic(fits):
    return min(fits, key=lambda fit: fit[1])[0]


def classes(options):
    """Latent classes of binary items: StepMix with the classes given, and by BIC over 1 to 6."""
    stepmix = optional("stepmix")
    for gaps in (False, True):
        for seed in range(options.seeds):
            rng = np.random.default_rng(seed)
            y = rng.integers(3, size=600)
            probabilities = np.where(np.arange(12) % 3 == np.arange(3)[:, None], 0.85, 0.15)
            X = (rng.random((600, 12)) < probabilities[y]).astype(float)
            if gaps:
                X[rng.random(X.shape) < 0.2] = np.nan
            data = f"600 x 12, three classes{', a fifth missing' if gaps else ''}, {seed}"
            start = time.process_time()
            model = DPMixture(likelihood="bernoulli", random_state=seed).fit(X)
            ari = adjusted_rand_score(y, model.labels_)
            show(data, "skdpm", start, found=model.n_clusters_, ARI=ari)
            if stepmix is None:
                continue
            law = "binary_nan" if gaps else "binary"
            for name, numbers in (("told 3", [3]), ("BIC", range(1, 7))):
                start = time.process_time()
                fits = []
                for k in numbers:
                    fit = stepmix.StepMix(
                        k, measurement=law, n_init=5, random_state=seed, progress_bar=0, verbose=0
                    ).fit(X)
                    fits.append((fit, fit.bic(X)))
                labels = best_by_bic(fits).predict(X)
                ari = adjusted_rand_score(y, labels)
                show(data, f"StepMix {name}", start, found=len(set(labels)), ARI=ari)


def networks(options):
    """A tenth of the links is hidden: AUC against ten times as many pairs without a link.
    Description lengths and labels are those of fits to all links."""
    graph_tool = optional("graph_tool.all")
    for path in sorted((options.data / "networks").glob("*.npz")):
        stored = np.load(path)
        A = (stored["A"] != 0).astype(float)
        np.fill_diagonal(A, 0.0)
        y = stored["y"] if "y" in stored else None
        rng = np.random.default_rng(0)
        links, others = (np.argwhere(np.triu(A == value, 1)) for value in (1, 0))
        hidden = links[rng.permutation(len(links))[: len(links) // 10]]
        others = others[rng.permutation(len(others))[: 10 * len(hidden)]]
        pairs = np.concatenate([hidden, others]).T
        truth = np.repeat([1, 0], [len(hidden), len(others)])
        seen = A.copy()
        seen[hidden.T[0], hidden.T[1]] = seen[hidden.T[1], hidden.T[0]] = 0.0
        law = Relational(degree_correction=True)
        start = time.process_time()
        model = DPMixture(likelihood=law, random_state=0).fit(A)
        partitions = {"skdpm": model.labels_}
        for k in sorted({2, 3, 5, 8} | ({len(np.unique(y))} if y is not None else set())):
            if k < len(np.unique(partitions["skdpm"])):
                partitions[f"skdpm, at most {k}"] = model.estimate_labels(max_clusters=k).labels_
        if y is not None:
            partitions["truth"] = y
        for name, labels in partitions.items():
            values = {"groups": len(np.unique(labels)), "DL": description_length(A, labels)}
            if y is not None:
                values["ARI"] = adjusted_rand_score(y, labels)
            show(path.stem, name, start, **values)
        start = time.process_time()
        fitted = DPMixture(likelihood=law, random_state=0).fit(seen).fitted_values()
        show(path.stem, "skdpm", start, AUC=roc_auc_score(truth, fitted[tuple(pairs)]))
        if graph_tool is not None:
            start = time.process_time()
            graph = graph_tool.Graph(np.argwhere(np.triu(A)), directed=False)
            state = graph_tool.minimize_blockmodel_dl(graph)
            labels = state.get_blocks().a[: len(A)]
            values = {"groups": len(set(labels)), "DL": description_length(A, labels)}
            values["own DL"] = float(state.entropy())
            if y is not None:
                values["ARI"] = adjusted_rand_score(y, labels)
            show(path.stem, "graph-tool", start, **values)


def densities(options):
    """Mean log density of a held-out fifth of standardised rows."""
    sets = {"iris": load_iris, "wine": load_wine, "breast cancer": load_breast_cancer}
    for name, load in sets.items():
        A, B = train_test_split(load().data, test_size=0.2, random_state=0)
        scaler = StandardScaler().fit(A)
        A, B = scaler.transform(A), scaler.transform(B)
        widths = {"bandwidth": np.geomspace(0.05, 2.0, 20)}
        mixtures = [GaussianMixture(k, random_state=0) for k in range(1, 11)]
        tools = {
            "skdpm": [DPMixture(random_state=0)],
            "KDE, bandwidth by 5 folds": [GridSearchCV(KernelDensity(), widths)],
            "GaussianMixture, BIC over 1 to 10": mixtures,
            "BayesianGaussianMixture(30)": [
                BayesianGaussianMixture(n_components=30, random_state=0)
            ],
        }
        for tool, models in tools.items():
            start = time.process_time()
            model = models[0].fit(A)
            if len(models) > 1:
                model = min((each.fit(A) for each in models), key=lambda each: each.bic(A))
            model = getattr(model, "best_estimator_", model)
            show(name, tool, start, density=float(np.mean(model.score_samples(B))))


def streams(options):
    """Ten thousand rows of eight clusters in batches; labels of the last two thousand."""
    river = optional("river.cluster")
    for seed in range(options.seeds):
        X, y = make_blobs(10_000, centers=8, random_state=seed)
        start = time.process_time()
        model = DPMixture(random_state=seed).fit(X[:2000])
        for first in range(2000, 10_000, 500):
            model.partial_fit(X[first : first + 500])
        labels = model.predict(X[8000:])
        ari = adjusted_rand_score(y[8000:], labels)
        show(f"stream {seed}", "skdpm", start, found=len(set(labels)), ARI=ari)
        for tool, model in {
            "MiniBatchKMeans, told 8": MiniBatchKMeans(8, random_state=seed),
            "Birch(n_clusters=None)": Birch(n_clusters=None),
        }.items():
            start = time.process_time()
            for first in range(0, 10_000, 500):
                model.partial_fit(X[first : first + 500])
            labels = model.predict(X[8000:])
            ari = adjusted_rand_score(y[8000:], labels)
            show(f"stream {seed}", tool, start, found=len(set(labels)), ARI=ari)
        if river is not None:
            for tool, model in {
                "river DBSTREAM": river.DBSTREAM(clustering_threshold=1.5),
                "river STREAMKMeans, told 8": river.STREAMKMeans(n_clusters=8, seed=seed),
            }.items():
                start = time.process_time()
                labels = []
                for m, row in enumerate(X):
                    row = dict(enumerate(row))
                    if m >= 8000:
                        labels.append(model.predict_one(row))
                    model.learn_one(row)
                ari = adjusted_rand_score(y[8000:], labels)
                show(f"stream {seed}", tool, start, found=len(set(labels)), ARI=ari)


def words(options):
    """Binary words of documents: labels untold and told."""
    stored = np.load(options.data / "words.npz")
    X, y = stored["X"].astype(float), stored["y"]
    rows = np.random.default_rng(0).permutation(len(X))[:3000]
    X, y = X[rows], y[rows]
    k = len(np.unique(y))
    start = time.process_time()
    model = DPMixture(likelihood="bernoulli", random_state=0).fit(X)
    found = {"skdpm": (model.labels_, start)}
    model.estimate_labels(max_clusters=k)
    found[f"skdpm, at most {k}"] = model.labels_, start
    start = time.process_time()
    tfidf = TfidfTransformer().fit_transform(X)
    found["k-means on tf-idf, told"] = (
        KMeans(k, n_init=10, random_state=0).fit_predict(tfidf),
        start,
    )
    for name, (labels, began) in found.items():
        scores = {
            "NMI": normalized_mutual_info_score(y, labels),
            "ARI": adjusted_rand_score(y, labels),
        }
        show("words", name, began, found=len(np.unique(labels)), **scores)
    start = time.process_time()
    labels = LatentDirichletAllocation(k, random_state=0).fit_transform(X).argmax(axis=1)
    scores = {
        "NMI": normalized_mutual_info_score(y, labels),
        "ARI": adjusted_rand_score(y, labels),
    }
    show("words", "LDA, told", start, found=k, **scores)


def mclust(options):
    """mclust's own sets, if R has it; HDBSCAN beside it."""
    rscript = shutil.which("Rscript")
    if rscript is None:
        print("  R: not installed")
    for path in sorted((options.data / "mclust").glob("*.npz")):
        stored = np.load(path)
        X, y = stored["X"], stored["y"]
        for tool, model in {"skdpm": DPMixture(random_state=0), "HDBSCAN": HDBSCAN()}.items():
            start = time.process_time()
            labels = model.fit(X).labels_
            ari = adjusted_rand_score(y, labels)
            show(path.stem, tool, start, found=len(set(labels)), ARI=ari)
        if rscript is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            np.savetxt(f"{folder}/X.csv", X, delimiter=",")
            code = (
                f"library(mclust); X <- read.csv('{folder}/X.csv', header=FALSE);"
                f"write(Mclust(X, verbose=FALSE)$classification, '{folder}/labels', 1)"
            )
            start = time.process_time()
            if subprocess.run([rscript, "-e", code], check=False).returncode == 0:
                labels = np.loadtxt(f"{folder}/labels")
                ari = adjusted_rand_score(y, labels)
                show(path.stem, "mclust", start, found=len(set(labels)), ARI=ari)


def outliers(options):
    """Areas under the ROC curve on the rows held out: see `outliers.py`."""
    from outliers import measure

    for path in sorted((options.data / "outliers").glob("*.npz")):
        stored = np.load(path)
        start = time.process_time()
        areas = [measure(stored["X"], stored["y"], split) for split in range(options.seeds)]
        show(path.stem, "all", start, **{k: np.mean([run[k] for run in areas]) for k in areas[0]})


def imputation(options):
    """RMSE of entries missing at random: see `imputation.py`."""
    import imputation as measured

    for name in ("wine", "diabetes"):
        start = time.process_time()
        show(name, "all", start, results=measured.run(name, 0.2, options.seeds))


TASKS = [classes, networks, densities, streams, words, mclust, outliers, imputation]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [task.__name__ for task in TASKS]
    parser.add_argument("--tasks", nargs="+", choices=names, default=names)
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--seeds", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for peer in PEERS:
        try:
            print(peer, version(peer))
        except PackageNotFoundError:
            print(peer, "not installed")
    for task in TASKS:
        if task.__name__ in options.tasks:
            print(f"{task.__name__}: {task.__doc__.splitlines()[0]}")
            try:
                task(options)
            except FileNotFoundError as missing:
                print(f"  left out: {missing}")


if __name__ == "__main__":
    main()
