# SPDX-License-Identifier: BSD-3-Clause
"""What `DPMixture().fit(X)` answers, beside other methods that need no tuning.

    python benchmarks/default_answer.py DATA --cache cells.json
    python benchmarks/default_answer.py DATA --cache cells.json --sets iris wine --methods new gmm
    python benchmarks/default_answer.py DATA --cache cells.json --show

DATA is the folder of data sets that are not bundled (`-`: none). The methods:

- "new": `DPMixture()`, all defaults; rows that are not numbers need the name of their likelihood;
- "tuned": the same with `df` and `scale` of the Gaussian prior chosen by held-out score, three
  folds of the rows of the fit, what is learned among the choices;
- "gmm": `GaussianMixture` with the number of components of least BIC among 1..30 ("fifty": 60);
- "bgmm": `BayesianGaussianMixture(30)`; "hdbscan": `HDBSCAN()`, noise as one cluster;
- "mclust": R's mclust, 14 families of covariances, 1 to 30 components, by BIC; if R has it.

Each cell is a separate process with one thread: a fit to all rows (labels against the true
ones, number of clusters, R-hats, processor time) or to a split of 80 % of them (mean log density
of the others, natural logarithm; nodes of a network by their links to the 80 %). Cells that
--cache has are not measured, except with --again.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from sklearn.cluster import HDBSCAN
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, v_measure_score
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, ShuffleSplit
from suite.data_sets import HELD_BACK, SETS, load

METHODS = {
    "new": "`DPMixture()`",
    "tuned": "tuned",
    "gmm": "GM, BIC",
    "bgmm": "BGM",
    "hdbscan": "HDBSCAN",
    "mclust": "mclust",
}
# What users read, and the largest R-hat with which they can rely on it.
R_HATS = {
    "density of rows": 1.05,
    "clusters": 1.05,
    "components": 1.05,
    "co-clustering": 1.05,
    "log joint": 1.1,
}
DASH, MINUS, TIMES = "\N{EN DASH}", "\N{MINUS SIGN}", "\N{MULTIPLICATION SIGN}"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

MCLUST = """
suppressMessages(library(mclust))
arguments <- commandArgs(TRUE)
read <- function(name) as.matrix(read.csv(file.path(arguments[1], name), header = FALSE))
X <- read("train.csv")
set.seed(0)
began <- proc.time()
fit <- Mclust(X, G = 1:as.integer(arguments[2]), verbose = FALSE)
used <- proc.time() - began
cat(used[["user.self"]] + used[["sys.self"]], fit$modelName, fit$G, "\\n")
cat(fit$classification, "\\n")
if (file.exists(file.path(arguments[1], "test.csv")))
  cat(dens(read("test.csv"), fit$modelName, fit$parameters, logarithm = TRUE), "\\n")
"""


# One cell, in a separate process.


def measure(name, method, part, folder):
    """The figures of one method on a data set: part "full", or the number of a split."""
    data = load(name, folder)
    if part == "full":
        train, test = np.arange(data.X.shape[0]), None
    else:
        splits = ShuffleSplit(part + 1, test_size=0.2, random_state=0)
        train, test = list(splits.split(np.empty((data.X.shape[0], 1))))[part]
    if data.likelihood == "relational":  # new nodes are scored by their links to those of the fit
        X, X_test = data.X[np.ix_(train, train)], test if test is None else data.X[test][:, train]
    else:
        X, X_test = data.X[train], None if test is None else data.X[test]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if method in ("new", "tuned"):
            labels, log_density, figures = fit_ours(data, X, X_test, tuned=method == "tuned")
        elif method == "gmm":
            labels, log_density, figures = fit_by_bic(X, X_test, data.most_components)
        elif method == "bgmm":
            model = BayesianGaussianMixture(n_components=30, max_iter=1000, random_state=0)
            labels, log_density, figures = fit_sklearn(model, X, X_test)
        elif method == "hdbscan":
            labels, log_density, figures = fit_hdbscan(X)
        else:
            labels, log_density, figures = fit_mclust(X, X_test, data.most_components)
    if test is not None:
        return figures if log_density is None else {**figures, "held_out": np.mean(log_density)}
    figures["k"] = len(np.unique(labels))
    figures["shape"] = data.X.shape
    if data.y is not None:
        known = data.y >= 0
        figures["true_k"] = len(np.unique(data.y[known]))
        figures["v"] = v_measure_score(data.y[known], labels[known])
        figures["ari"] = adjusted_rand_score(data.y[known], labels[known])
    return figures


def timed(function):
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def fit_ours(data, X, X_test, tuned=False):
    from skdpm import DPMixture
    from skdpm.diagnostics import split_rhat

    model = DPMixture(likelihood=data.likelihood, random_state=0)
    _, chosen = timed(lambda: model.set_params(likelihood=tuned_prior(X))) if tuned else (None, 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _, seconds = timed(lambda: model.fit(X))

    def r_hat(name):
        return model.diagnostics_.get(name, {}).get("r_hat", np.nan)

    figures = {
        "seconds": seconds + chosen,
        "warned": any(issubclass(each.category, ConvergenceWarning) for each in caught),
        "density of rows": r_hat("log_density"),
        "clusters": split_rhat(model.n_clusters_samples_),
        "components": split_rhat(model.n_components_samples_),
        "co-clustering": r_hat("coclustering"),
        "log joint": r_hat("log_joint"),
    }
    return model.labels_, None if X_test is None else model.score_samples(X_test), figures


def tuned_prior(X):
    """The Gaussian prior of best held-out score among 13, with short fits of one chain."""
    from skdpm import DPMixture
    from skdpm.mixture.likelihoods import Gaussian

    n_features = X.shape[1]
    priors = [Gaussian()] + [
        Gaussian(df=n_features + more, scale=within * (more - 1) * X.var(axis=0))
        for more in (3, 10, 30)
        for within in (0.5, 0.2, 0.1, 0.05)
    ]
    quick = DPMixture(n_chains=1, n_warmup=100, n_draws=100, random_state=0)
    folds = KFold(3, shuffle=True, random_state=0)
    search = GridSearchCV(quick, {"likelihood": priors}, cv=folds, refit=False).fit(X)
    return search.best_params_["likelihood"]


def fit_sklearn(model, X, X_test):
    _, seconds = timed(lambda: model.fit(X))
    scores = None if X_test is None else model.score_samples(X_test)
    return model.predict(X), scores, {"seconds": seconds}


def fit_by_bic(X, X_test, most_components):
    def search():
        models = [
            GaussianMixture(k, random_state=0).fit(X)
            for k in range(1, min(most_components, len(X)) + 1)
        ]
        return min(models, key=lambda model: model.bic(X))

    model, seconds = timed(search)
    scores = None if X_test is None else model.score_samples(X_test)
    return model.predict(X), scores, {"seconds": seconds}


def fit_hdbscan(X):
    model = HDBSCAN(copy=True)
    _, seconds = timed(lambda: model.fit(X))
    return model.labels_, None, {"seconds": seconds}


def fit_mclust(X, X_test, most_components):
    with tempfile.TemporaryDirectory() as scratch:
        np.savetxt(Path(scratch) / "train.csv", X, delimiter=",", fmt="%.17g")
        if X_test is not None:
            np.savetxt(Path(scratch) / "test.csv", X_test, delimiter=",", fmt="%.17g")
        script = Path(scratch) / "fit.R"
        script.write_text(MCLUST)
        command = ["Rscript", "--vanilla", script, scratch, str(most_components)]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    head, labels, *rest = lines.splitlines()
    seconds, *_ = head.split()
    scores = np.array(rest[0].split(), dtype=float) if rest else None
    return np.array(labels.split(), dtype=int), scores, {"seconds": float(seconds)}


# The cells that are asked for.


def has_mclust():
    try:
        command = ["Rscript", "--vanilla", "-e", "library(mclust)"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def cells_of(name, arguments):
    """The method and part of each cell of a data set that can be measured."""
    try:
        likelihood = load(name, folder_of(arguments)).likelihood
    except FileNotFoundError as error:
        print(f"{name} is left out: no {error}", file=sys.stderr)
        return []
    methods = [m for m in arguments.methods if m == "new" or likelihood == "auto"]
    return [
        (method, part)
        for method in methods
        for part in ["full", *range(arguments.splits)]
        if method != "hdbscan" or part == "full"
    ]


def run_cell(name, method, part, arguments):
    """Measure a cell in a new process; {"failed": why} if it has no answer in time."""
    cell = json.dumps([name, method, part])
    command = [sys.executable, str(Path(__file__).resolve()), str(folder_of(arguments) or "-")]
    with tempfile.TemporaryDirectory() as scratch:  # elsewhere, a folder could shadow skdpm
        try:
            done = subprocess.run(
                [*command, "--cell", cell],
                cwd=scratch,
                env={**os.environ, **dict.fromkeys(THREADS, "1")},
                capture_output=True,
                text=True,
                timeout=arguments.time_limit,
            )
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {arguments.time_limit:g} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def fill(cells, arguments):
    """Measure the cells that are missing or to be measured again, one after the other."""
    for name in arguments.sets:
        for method, part in cells_of(name, arguments):
            key = f"{name}/{method}/{part}"
            if key in cells and not arguments.again:
                continue
            cells[key] = run_cell(name, method, part, arguments)
            print(key, json.dumps(cells[key]), file=sys.stderr, flush=True)
            if arguments.cache:
                keep(arguments.cache, key, cells[key])


def keep(path, key, figures):
    """Write one cell; others may have been written meanwhile by another process."""
    cells = read_cache(path)
    cells[key] = figures
    scratch = path.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(cells, indent=0, sort_keys=True))
    scratch.replace(path)


def read_cache(path):
    return json.loads(path.read_text()) if path and path.exists() else {}


def folder_of(arguments):
    return None if arguments.data == "-" else Path(arguments.data).resolve()


# The tables.


class Results:
    """The figures of all cells, by data set and method."""

    def __init__(self, cells, arguments):
        self.cells, self.methods = cells, arguments.methods
        self.parts = ["full", *range(arguments.splits)]
        self.sets = [name for name in arguments.sets if any(self.fits(name))]

    def fits(self, name, method=None):
        """The cells of a data set, of one method or of all: list of dicts, empty if missing."""
        methods = self.methods if method is None else [method]
        return [self.cells.get(f"{name}/{m}/{part}", {}) for m in methods for part in self.parts]

    def full(self, name, figure, methods=None):
        """A figure of the fits to all rows: ndarray of one number per method, or NaN."""
        methods = self.methods if methods is None else methods
        return np.array([self.fits(name, m)[0].get(figure, np.nan) for m in methods])

    def density(self, name):
        """Mean held-out log density of the splits: ndarray of one number per method, or NaN."""
        splits = [self.fits(name, m)[1:] for m in self.methods]
        return np.array(
            [
                np.mean([cell.get("held_out", np.nan) for cell in cells] or [np.nan])
                for cells in splits
            ]
        )

    def over_gmm(self, name):
        """Processor time of "new" over that of "gmm": the median of all fits."""
        ratios = [
            new["seconds"] / gmm["seconds"]
            for new, gmm in zip(self.fits(name, "new"), self.fits(name, "gmm"), strict=True)
            if "seconds" in new and "seconds" in gmm
        ]
        return np.median(ratios) if ratios else np.nan

    def warnings(self, name):
        """Number of splits on which "new" warns."""
        warned = [cell["warned"] for cell in self.fits(name, "new")[1:] if "warned" in cell]
        return sum(warned) if warned else np.nan

    def title(self, name):
        """Name, shape and true number of clusters of a data set."""
        facts = next((cell for cell in self.fits(name) if "shape" in cell), {})
        title = written(name)
        if "shape" in facts and " x " not in name:
            title += ", {} {} {}".format(facts["shape"][0], TIMES, facts["shape"][1])
        return f"{title} ({facts['true_k']})" if "true_k" in facts else title

    def report(self):
        """All tables and the summary, as Markdown."""
        sections = (
            ("Labels: V-measure, adjusted Rand index (clusters)", self.labels()),
            ("Mean log density of held-out rows, in nats", self.densities()),
            ("Processor time of the fit to all rows, in seconds", self.times()),
            ("R-hat of the default's fit to all rows; splits on which it warns", self.r_hats()),
            ("Summary", self.summary()),
            ("Failed", self.failures()),
        )
        return "\n\n".join(
            "\n".join([f"### {title}", "", *lines]) for title, lines in sections if lines
        )

    def labels(self):
        rows = []
        for name in self.sets:
            v = shown(self.full(name, "v"), ".2f", best=True)
            ari = shown(self.full(name, "ari"), ".2f", best=True)
            k = shown(self.full(name, "k"), ".0f")
            cells = [
                DASH if n == DASH else f"({n})" if score == DASH else f"{score}, {other} ({n})"
                for score, other, n in zip(v, ari, k, strict=True)
            ]
            rows.append([self.title(name), *cells])
        return table(["data (true clusters)", *self.columns()], rows)

    def densities(self):
        rows = []
        for name in self.sets:
            values = self.density(name)
            cells = shown(values, ".2f", best=True)
            pairs = zip(cells, collapsed(values), strict=True)
            rows.append([written(name), *("collapses" if bad else cell for cell, bad in pairs)])
        return table(["data", *self.columns()], rows)

    def times(self):
        rows = [
            [
                written(name),
                *shown(self.full(name, "seconds"), ".2f"),
                *shown([self.over_gmm(name)], ".1f"),
            ]
            for name in self.sets
        ]
        return table(["data", *self.columns(), "over gmm"], rows)

    def r_hats(self):
        rows = []
        for name in self.sets:
            r_hats = [self.full(name, what, ["new"])[0] for what in R_HATS]
            counts = shown([self.warnings(name)], ".0f")
            rows.append([written(name), *shown(r_hats, ".2f"), *counts])
        return table(["data", *R_HATS, "warns"], rows)

    def summary(self):
        lines = []
        for what, most in R_HATS.items():
            r_hats = {name: self.full(name, what, ["new"])[0] for name in self.sets}
            r_hats = {name: value for name, value in r_hats.items() if not np.isnan(value)}
            missed = [f"{name} ({value:.2f})" for name, value in r_hats.items() if value > most]
            count = f"{len(r_hats) - len(missed)} of {len(r_hats)} sets"
            but = f"; not {', '.join(missed)}" if missed else ""
            lines.append(f"- R-hat of {what} at most {most:g}: {count}{but}")
        warns = [name for name in self.sets if self.warnings(name) > 0]
        lines.append(f"- warns on a split: {len(warns)} of {len(self.sets)} sets")
        ratios = np.array([self.over_gmm(name) for name in self.sets])
        if not np.isnan(ratios).all():
            median, most = np.nanmedian(ratios), np.nanmax(ratios)
            lines.append(f"- over gmm: median of the sets {median:.1f}, largest {most:.1f}")
        lines += self.means("V", [self.full(name, "v") for name in self.sets])
        lines += self.means("ARI", [self.full(name, "ari") for name in self.sets])
        densities = [self.density(name) for name in self.sets]
        kept = [values for values in densities if not collapsed(values).any()]
        return lines + self.means("density, where none collapses", kept)

    def means(self, title, values):
        """The mean of each method over the sets on which all methods that have any have one."""
        values = np.array(values).reshape(-1, len(self.methods))
        measured = ~np.isnan(values).all(axis=0)
        values = values[:, measured]
        values = values[~np.isnan(values).any(axis=1)]
        if not values.size:
            return []
        methods = np.array(self.methods)[measured]
        means = zip(methods, shown(values.mean(axis=0), ".3f"), strict=True)
        words = ", ".join(f"{method} {mean}" for method, mean in means)
        return [f"- mean {title} ({len(values)} sets): {words}"]

    def failures(self):
        return [
            f"- {name}, {method}: {cell['failed']}"
            for name in self.sets
            for method in self.methods
            for cell in self.fits(name, method)
            if "failed" in cell
        ]

    def columns(self):
        return [METHODS[method] for method in self.methods]


def written(name):
    """The name of a data set on a page; with a star if no default was chosen on it."""
    return name.replace(" x ", f" {TIMES} ") + "*" * (name in HELD_BACK)


def collapsed(densities):
    """Whether each mean log density is more than 1000 below the largest."""
    return densities < np.max(densities, initial=-np.inf, where=~np.isnan(densities)) - 1000.0


def shown(values, form, best=False):
    """Numbers as text, NaN as a dash; the largest of several in bold, if `best`."""
    texts = [format(value, form) for value in values]
    numbers = [float(text) for text in texts if text != "nan"]
    best = best and len(numbers) > 1
    bold = ["**" * (best and float(text) == max(numbers)) for text in texts]
    texts = [DASH if text == "nan" else text.replace("-", MINUS) for text in texts]
    return [f"{mark}{text}{mark}" for mark, text in zip(bold, texts, strict=True)]


def table(head, rows):
    """The lines of a Markdown table, without rows and columns that have dashes only."""
    rows = [row for row in rows if set(row[1:]) != {DASH}]
    if not rows:
        return []
    kept = [j for j in range(len(head)) if any(row[j] != DASH for row in rows)]
    head, *rows = [f"| {' | '.join(row[j] for j in kept)} |" for row in (head, *rows)]
    return [head, "|" + "---|" * len(kept), *rows]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder of the data sets that are not bundled; -: none")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, choices=range(6), default=3)
    parser.add_argument("--cache", type=Path, metavar="JSON", help="where cells are kept")
    parser.add_argument("--again", action="store_true", help="also measure cells of the cache")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds of a cell")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        name, method, part = json.loads(arguments.cell)
        print(json.dumps(measure(name, method, part, folder_of(arguments)), default=float))
        return
    cells = read_cache(arguments.cache)
    if not arguments.show:
        if not has_mclust():
            arguments.methods = [method for method in arguments.methods if method != "mclust"]
        fill(cells, arguments)
    print(Results(cells, arguments).report())


if __name__ == "__main__":
    main()
