# SPDX-License-Identifier: BSD-3-Clause
"""skdpm beside the tools that people use for one job. Every tool is optional.

    python benchmarks/field.py [--tasks classes networks ...] [--data FOLDER] [--seeds 2]

A task prints a line for each data set and tool: quality, and seconds of the processor, with those
of child processes (R; not on Windows). Seconds are those of the fit and of the answer, not of the
score. A tool that is not installed is left out, by name. `--data` has `networks/*.npz` (A, perhaps
with weights, and perhaps y), `mclust/*.npz` and `outliers/*.npz` (X, y), and `words.npz` (X, y;
binary words). Outliers, imputation and mutations are measured by `outliers.py`, `imputation.py`
and `mutations.py`, whose functions are called here.
Results are on the page "Beside other tools".
"""

import argparse
import importlib
import os
import shutil
import subprocess
import tempfile
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

from skdpm import DPMixture, FiniteMixture
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


def archives(folder):
    """Paths of the data sets in a folder."""
    paths = sorted(folder.glob("*.npz"))
    if not paths:
        raise FileNotFoundError(f"no data was found: {folder} has no *.npz")
    return paths


def timed(function, *arguments, **options):
    """What a function returns, and its processor seconds with those of children that ended."""
    began = sum(os.times()[:4])
    result = function(*arguments, **options)
    return result, sum(os.times()[:4]) - began


def show(data, tool, seconds, **values):
    """Print a line of results; `seconds` is None for what was not fitted."""
    cells = ", ".join(
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}"
        for name, value in values.items()
    )
    time = "no fit" if seconds is None else f"{seconds:.1f} s"
    print(f"  {data} | {tool} | {cells} | {time}", flush=True)


def show_labels(data, tool, y, fit, *arguments):
    """Time `fit`, which returns labels, and print their number and adjusted Rand index."""
    labels, seconds = timed(fit, *arguments)
    ari = adjusted_rand_score(y, labels)
    show(data, tool, seconds, found=len(np.unique(labels)), ARI=ari)


def best_by_bic(models, X):
    """Fit all models; the one of the smallest BIC. One model alone needs no BIC."""
    for model in models:
        model.fit(X)
    return min(models, key=lambda model: model.bic(X)) if len(models) > 1 else models[0]


def labels_of_best(models, X):
    return best_by_bic(models, X).predict(X)


def labels_by_batches(model, X, first_rows=0):
    """Labels of the last rows of a stream of 10,000; the first ones are fitted together."""
    if first_rows:
        model.fit(X[:first_rows])
    for first in range(first_rows, 10_000, 500):
        model.partial_fit(X[first : first + 500])
    return model.predict(X[8000:])


def labels_by_rows(model, X):
    """Labels of the last rows of a stream, each before river's model has learned it."""
    labels = []
    for m, row in enumerate(X):
        row = dict(enumerate(row))
        if m >= 8000:
            labels.append(model.predict_one(row))
        model.learn_one(row)
    return labels


def labels_of_at_most(model, k):
    return model.estimate_labels(max_clusters=k).labels_


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
            model = DPMixture(likelihood="bernoulli", random_state=seed)
            show_labels(data, "skdpm", y, model.fit_predict, X)
            if stepmix is None:
                continue
            law = "binary_nan" if gaps else "binary"
            for name, numbers in (("told 3", [3]), ("BIC", range(1, 7))):
                models = [
                    stepmix.StepMix(
                        k, measurement=law, n_init=5, random_state=seed, progress_bar=0, verbose=0
                    )
                    for k in numbers
                ]
                show_labels(data, f"StepMix {name}", y, labels_of_best, models, X)


def shortest(model, A):
    """Labels of the shortest description among the estimates with at most 1, 2, ... clusters."""
    numbers = range(1, model.n_clusters_ + 1)
    found = [labels_of_at_most(model, k) for k in numbers]
    return min(found, key=lambda labels: description_length(A, labels))


def auc_of_hidden_links(model, W, seeds):
    """A tenth of the links is hidden: mean AUC against ten times as many pairs without a link, and
    mean seconds of a fit and its fitted values."""
    results = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        links, others = (np.argwhere(np.triu((W != 0) == value, 1)) for value in (True, False))
        hidden = links[rng.permutation(len(links))[: len(links) // 10]]
        others = others[rng.permutation(len(others))[: 10 * len(hidden)]]
        truth = np.repeat([1, 0], [len(hidden), len(others)])
        seen = W.copy()
        seen[hidden.T[0], hidden.T[1]] = seen[hidden.T[1], hidden.T[0]] = 0.0
        model.set_params(random_state=seed)
        fitted, seconds = timed(lambda seen=seen: model.fit(seen).fitted_values())
        auc = roc_auc_score(truth, fitted[tuple(np.concatenate([hidden, others]).T)])
        results.append((auc, seconds))
    return np.mean(results, axis=0).tolist()


def networks(options):
    """Description lengths and labels of fits to all links, and AUC of hidden links.

    "shortest" is the coarser reading of the guide, and its seconds are those of the reading alone.
    "few groups" has the priors that are like those of graph-tool."""
    graph_tool = optional("graph_tool.all")
    for path in archives(options.data / "networks"):
        stored = np.load(path)
        W = stored["A"].astype(float)
        np.fill_diagonal(W, 0.0)
        A = (W != 0).astype(float)
        y = stored["y"] if "y" in stored else None
        law = Relational(degree_correction=True)
        few = Relational(degree_correction=True, a=1.0)
        models = {
            "skdpm": DPMixture(likelihood=law, random_state=0),
            "skdpm, few groups": FiniteMixture(None, likelihood=few, random_state=0),
        }
        partitions = {"truth": (y, None)} if y is not None else {}
        for name, model in models.items():
            partitions[name] = timed(model.fit_predict, A)
            partitions[f"{name}, shortest"] = timed(shortest, model, A)
        if graph_tool is not None:
            graph = graph_tool.Graph(np.argwhere(np.triu(A)), directed=False)
            state, seconds = timed(graph_tool.minimize_blockmodel_dl, graph)
            partitions["graph-tool"] = state.get_blocks().a[: len(A)], seconds
        for name, (labels, seconds) in partitions.items():
            values = {"groups": len(np.unique(labels)), "DL": description_length(A, labels)}
            if y is not None:
                values["ARI"] = adjusted_rand_score(y, labels)
            if name == "graph-tool":
                values["own DL"] = float(state.entropy())
            show(path.stem, name, seconds, **values)
        compared = [(name, model, A) for name, model in models.items()]
        for corrected in (True, False) if len(np.unique(W)) > 2 else ():
            # With degree correction and without weights it is "skdpm".
            for weights, X in (("counts", W),) if corrected else ((None, A), ("counts", W)):
                law = Relational(degree_correction=corrected, weights=weights)
                name = f"degree_correction={corrected}, weights={weights}"
                compared.append((name, DPMixture(likelihood=law), X))
        for name, model, X in compared:
            auc, seconds = auc_of_hidden_links(model, X, range(options.seeds))
            show(path.stem, name, seconds, AUC=auc)


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
            model, seconds = timed(best_by_bic, models, A)
            model = getattr(model, "best_estimator_", model)
            show(name, tool, seconds, density=float(np.mean(model.score_samples(B))))


def streams(options):
    """Ten thousand rows of eight clusters in batches; labels of the last two thousand."""
    river = optional("river.cluster")
    for seed in range(options.seeds):
        X, y = make_blobs(10_000, centers=8, random_state=seed)
        data, truth = f"stream {seed}", y[8000:]
        model = DPMixture(sampler="smc", random_state=seed)
        show_labels(data, "skdpm", truth, labels_by_batches, model, X, 2000)
        for tool, model in {
            "MiniBatchKMeans, told 8": MiniBatchKMeans(8, random_state=seed),
            "Birch(n_clusters=None)": Birch(n_clusters=None),
        }.items():
            show_labels(data, tool, truth, labels_by_batches, model, X)
        if river is not None:
            for tool, model in {
                "river DBSTREAM": river.DBSTREAM(clustering_threshold=1.5),
                "river STREAMKMeans, told 8": river.STREAMKMeans(n_clusters=8, seed=seed),
            }.items():
                show_labels(data, tool, truth, labels_by_rows, model, X)


def words(options):
    """Binary words of documents: labels untold and told.
    Seconds of "then at most k" are those of the reading of the draws alone."""
    stored = np.load(options.data / "words.npz")
    X, y = stored["X"].astype(float), stored["y"]
    rows = np.random.default_rng(0).permutation(len(X))[:3000]
    X, y = X[rows], y[rows]
    k = len(np.unique(y))
    model = DPMixture(likelihood="bernoulli", random_state=0)
    means = KMeans(k, n_init=10, random_state=0)
    topics = LatentDirichletAllocation(k, random_state=0)
    tools = {
        "k-means on tf-idf, told": lambda: means.fit_predict(TfidfTransformer().fit_transform(X)),
        "LDA, told": lambda: topics.fit_transform(X).argmax(axis=1),
        "skdpm": lambda: model.fit_predict(X),
        f"skdpm, then at most {k}": lambda: labels_of_at_most(model, k),
    }
    for tool, fit in tools.items():
        labels, seconds = timed(fit)
        scores = {
            "NMI": normalized_mutual_info_score(y, labels),
            "ARI": adjusted_rand_score(y, labels),
        }
        show("words", tool, seconds, found=len(np.unique(labels)), **scores)


def mclust(options):
    """mclust's own sets, if R has it; HDBSCAN beside it."""
    rscript = shutil.which("Rscript")
    if rscript is None:
        print("  R: not installed")
    for path in archives(options.data / "mclust"):
        stored = np.load(path)
        X, y = stored["X"], stored["y"]
        for tool, model in {"skdpm": DPMixture(random_state=0), "HDBSCAN": HDBSCAN()}.items():
            show_labels(path.stem, tool, y, model.fit_predict, X)
        if rscript is None:
            continue
        with tempfile.TemporaryDirectory() as folder:
            np.savetxt(f"{folder}/X.csv", X, delimiter=",")
            code = (
                f"library(mclust); X <- read.csv('{folder}/X.csv', header=FALSE);"
                f"write(Mclust(X, verbose=FALSE)$classification, '{folder}/labels', 1)"
            )
            command = [rscript, "-e", code]  # its seconds have the start of R
            done, seconds = timed(subprocess.run, command, check=False)
            if done.returncode == 0:
                labels = np.loadtxt(f"{folder}/labels")
                ari = adjusted_rand_score(y, labels)
                show(path.stem, "mclust", seconds, found=len(set(labels)), ARI=ari)


def outliers(options):
    """Areas under the ROC curve on the rows held out: see `outliers.py`."""
    from outliers import measure

    for path in archives(options.data / "outliers"):
        stored = np.load(path)
        X, y = stored["X"], stored["y"]
        runs = [timed(measure, X, y, split) for split in range(options.seeds)]
        areas, seconds = zip(*runs, strict=True)
        means = {name: np.mean([run[name] for run in areas]) for name in areas[0]}
        show(path.stem, "all", sum(seconds), **means)


def imputation(options):
    """RMSE of entries missing at random: see `imputation.py`."""
    import imputation as measured

    for name in ("wine", "diabetes"):
        results, seconds = timed(measured.run, name, 0.2, options.seeds)
        show(name, "all", seconds, results=results)


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
