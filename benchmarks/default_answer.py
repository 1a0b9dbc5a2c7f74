# SPDX-License-Identifier: BSD-3-Clause
"""What `DPMixture().fit(X)` answers, beside other methods that need no tuning.

    python benchmarks/default_answer.py DATA --cache cells.json --base-python OTHER/bin/python
    python benchmarks/default_answer.py DATA --cache cells.json --only iris wine --methods new gmm
    python benchmarks/default_answer.py DATA --cache cells.json --show

DATA is the folder of data sets that are not bundled (`-`: none). The methods:

- "new": `DPMixture` of the Python that runs this, all defaults but the name of the likelihood;
- "tuned": the same with `df` and `scale` of the Gaussian prior chosen by held-out score, three
  folds of the rows of the fit, what is learned among the choices;
- "today": the same under --base-python, a Python with another version of skdpm;
- "gmm": `GaussianMixture` with the number of components of least BIC among 1..30 ("fifty": 60);
- "bgmm": `BayesianGaussianMixture(30)`; "hdbscan": `HDBSCAN()`, noise as one cluster;
- "mclust": R's mclust, 14 families of covariances, 1 to 30 components, by BIC; where R has it.

Each cell is a separate process with one thread: a fit to all rows (labels against the true
ones, number of clusters, convergence, processor time) or to a split of 80 % of them (mean log
density of the others, natural logarithm; nodes of a network by their links to the 80 %). Cells
are kept in --cache, and measured again only where --again names their method.
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

METHODS = ("new", "tuned", "today", "gmm", "bgmm", "hdbscan", "mclust")
OURS = ("new", "tuned", "today")
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
        if method in OURS:
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
    if data.y is not None:
        known = data.y >= 0
        figures["v"] = v_measure_score(data.y[known], labels[known])
        figures["ari"] = adjusted_rand_score(data.y[known], labels[known])
    return figures


def timed(function):
    began = time.process_time()
    result = function()
    return result, time.process_time() - began


def fit_ours(data, X, X_test, tuned=False):
    from skdpm import DPMixture

    model = DPMixture(likelihood=data.likelihood, random_state=0)
    _, chosen = timed(lambda: model.set_params(likelihood=tuned_prior(X))) if tuned else (None, 0)
    _, seconds = timed(lambda: model.fit(X))
    seconds += chosen
    figures = {"seconds": seconds, "mean_k": model.n_components_samples_.mean()}
    for quantity in ("log_joint", "n_components"):
        figures[f"r_hat {quantity}"] = model.diagnostics_[quantity]["r_hat"]
        figures[f"ess {quantity}"] = model.diagnostics_[quantity]["ess_bulk"]
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
    seconds, family, _ = head.split()
    scores = np.array(rest[0].split(), dtype=float) if rest else None
    return (
        np.array(labels.split(), dtype=int),
        scores,
        {
            "seconds": float(seconds),
            "family": family,
        },
    )


# The cells that are asked for.


def has_mclust():
    try:
        command = ["Rscript", "--vanilla", "-e", "library(mclust)"]
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def applies(method, name, part, folder):
    """Whether a cell means anything, and can be read; others are left out."""
    try:
        likelihood = load(name, folder).likelihood
    except FileNotFoundError:
        return False
    if method == "hdbscan" and part != "full":
        return False
    return method in ("new", "today") or likelihood == "gaussian"


def run_cell(name, method, part, arguments):
    """Measure a cell in a new process; {"failed": why} where it has no answer in time."""
    python = arguments.base_python if method == "today" else sys.executable
    cell = json.dumps([name, method, part])
    command = [python, str(Path(__file__).resolve()), str(folder_of(arguments) or "-")]
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
    asked = [
        (name, method, part)
        for name in arguments.only
        for method in arguments.methods
        for part in ["full", *range(arguments.splits)]
        if applies(method, name, part, folder_of(arguments))
    ]
    for name, method, part in asked:
        key = f"{name}/{method}/{part}"
        if key in cells and method not in arguments.again:
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


def summary(cells, name, method, splits):
    """All figures of a method on a data set; "failed" where a cell has none."""
    parts = [cells.get(f"{name}/{method}/{part}", {}) for part in ["full", *range(splits)]]
    figures = dict(parts[0])
    held_out = [part.get("held_out", np.nan) for part in parts[1:]] or [np.nan]
    figures["held_out"] = float(np.mean(held_out))
    for part in parts:
        if "failed" in part:
            figures["failed"] = part["failed"]
    for quantity in ("log_joint", "n_components"):
        if f"ess {quantity}" in figures:
            figures[f"ess/s {quantity}"] = figures[f"ess {quantity}"] / max(
                figures["seconds"], 1e-3
            )
    return figures


TABLES = (
    ("Held-out log density per row", "held_out", ".3f", METHODS),
    ("V-measure", "v", ".3f", METHODS),
    ("Adjusted Rand index", "ari", ".3f", METHODS),
    ("Clusters", "k", ".0f", METHODS),
    ("R-hat of the log joint", "r_hat log_joint", ".2f", OURS),
    ("R-hat of the number of clusters", "r_hat n_components", ".2f", OURS),
    ("Effective draws of the log joint per second", "ess/s log_joint", ".3g", OURS),
    ("Effective draws of the number of clusters per second", "ess/s n_components", ".3g", OURS),
    ("Seconds of processor time of the full fit", "seconds", ".3g", METHODS),
)


def markdown(table, arguments):
    """The tables, one row per data set; the sets that no default was chosen on are starred."""
    lines = []
    for title, figure, form, methods in TABLES:
        methods = [method for method in methods if method in arguments.methods]
        rows = []
        for name in arguments.only:
            values = [table[name][method].get(figure, np.nan) for method in methods]
            if not np.isnan(values).all():
                shown = ["-" if np.isnan(value) else format(value, form) for value in values]
                rows.append(f"| {name}{'*' * (name in HELD_BACK)} | {' | '.join(shown)} |")
        if rows:
            lines += [f"### {title}", "", f"| data | {' | '.join(methods)} |"]
            lines += ["|---|" + "---|" * len(methods), *rows, ""]
    lines += verdicts(table, arguments)
    failed = [
        f"- {name}, {method}: {table[name][method]['failed']}"
        for name in arguments.only
        for method in arguments.methods
        if "failed" in table[name][method]
    ]
    return "\n".join([*lines, *(["", "### Failed", "", *failed] if failed else [])])


def verdicts(table, arguments):
    """How often "new" reaches what the default is to reach, and where it does not."""

    def best(name, figure, methods):
        values = [table[name][m].get(figure, np.nan) for m in methods if m in table[name]]
        return np.nan if np.isnan(values).all() else np.nanmax(values)

    others = [method for method in METHODS if method not in ("new", "tuned")]
    rules = (
        ("held-out at least the best other", "held_out", others, lambda new, other: new >= other),
        ("V at least max(today, gmm) - 0.02", "v", ("today", "gmm"), lambda n, o: n >= o - 0.02),
        ("V at least max(today, gmm) - 0.05", "v", ("today", "gmm"), lambda n, o: n >= o - 0.05),
        ("seconds at most twice gmm's", "seconds", ("gmm",), lambda n, o: n <= 2 * o),
    )
    lines = ["### Targets", ""]
    for title, figure, methods, holds in rules:
        compared = {
            name: (table[name]["new"].get(figure, np.nan), best(name, figure, methods))
            for name in arguments.only
            if "new" in table[name]
        }
        compared = {n: pair for n, pair in compared.items() if not np.isnan(pair).any()}
        missed = [
            f"{name} ({new:.3f}, {other:.3f})"
            for name, (new, other) in compared.items()
            if not holds(new, other)
        ]
        lines.append(_verdict(title, len(compared), missed))
    for quantity in ("log_joint", "n_components"):
        values = {
            name: table[name]["new"].get(f"r_hat {quantity}", np.nan)
            for name in arguments.only
            if "new" in table[name]
        }
        values = {name: value for name, value in values.items() if not np.isnan(value)}
        missed = [f"{name} ({value:.2f})" for name, value in values.items() if not value <= 1.05]
        lines.append(_verdict(f"R-hat of {quantity} at most 1.05", len(values), missed))
    return lines


def _verdict(title, n_compared, missed):
    line = f"- {title}: {n_compared - len(missed)} of {n_compared}"
    return f"{line}; not {', '.join(missed)}" if missed else line


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", help="folder of the data sets that are not bundled; -: none")
    parser.add_argument("--only", nargs="+", choices=SETS, default=list(SETS), metavar="SET")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--splits", type=int, choices=range(6), default=5)
    parser.add_argument("--base-python", metavar="PATH", help='for "today"; without it, left out')
    parser.add_argument("--cache", type=Path, metavar="JSON", help="where cells are kept")
    parser.add_argument(
        "--again", nargs="*", choices=METHODS, default=["new"], help="measured anew; default: new"
    )
    parser.add_argument("--show", action="store_true", help="the tables of the cache only")
    parser.add_argument("--json", type=Path, metavar="JSON", help="write all figures there")
    parser.add_argument("--time-limit", type=float, default=3600.0, help="seconds of a cell")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cell:
        name, method, part = json.loads(arguments.cell)
        print(json.dumps(measure(name, method, part, folder_of(arguments)), default=float))
        return
    cells = read_cache(arguments.cache)
    if not arguments.show:
        if not arguments.base_python:
            arguments.methods = [method for method in arguments.methods if method != "today"]
        if not has_mclust():
            arguments.methods = [method for method in arguments.methods if method != "mclust"]
        fill(cells, arguments)
    table = {
        name: {m: summary(cells, name, m, arguments.splits) for m in arguments.methods}
        for name in arguments.only
    }
    print(markdown(table, arguments))
    if arguments.json:
        arguments.json.write_text(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()
