# SPDX-License-Identifier: BSD-3-Clause
"""Ulker, Gunsel & Cemgil (2010), section V: their comparisons of sequential samplers, repeated.

    python benchmarks/papers/smc/run.py table2 --out FOLDER [--data FOLDER]
    python benchmarks/papers/smc/run.py table3 --out FOLDER [--data FOLDER]
    python benchmarks/papers/smc/run.py figure1 --out FOLDER [--data FOLDER]

FOLDER of the data may hold ulker_d1.npz and ulker_d2.npz, draws from the published mixtures;
without them others are drawn. Results are kept in FOLDER/cells, a file each: a run that was
stopped goes on where it was; after a change of the samplers, take another folder. Tables (txt) and
pictures (png) are made anew every time. --methods and --runs choose what is made. The base
measure, which is not published, is half the variance of the rows inside a cluster, three degrees
of freedom and a hundredth of a row for the mean.
"""

import argparse
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SMC, Alternate, Gibbs

sys.path.extend(str(Path(__file__).parents[1] / paper) for paper in ("arm", "pgsm"))
from chains import Cells
from traces import write

# Weights, means and standard deviations (table I).
MIXTURES = {
    "D-1": ((1 / 3, 1 / 3, 1 / 3), (0.0, 1.5, 3.0), (0.5, 0.5, 0.5)),
    "D-2": ((1 / 2, 1 / 6, 1 / 3), (0.0, 2.0, 4.0), (0.5, 0.5, 2.5)),
}
SIZES = (200, 500, 1000)

METHODS = {
    **{name: partial(SMC.from_paper, name) for name in ("PF", "SMC-G", "SMC-A")},
    "PF optimal": lambda: SMC(1000, rejuvenation=None),
    "SMC()": SMC,
}
# What all are held against.
LONG = {"N = 1000": lambda: SMC(1000, growth=10 / 9)}
CHAINS = {"Gibbs": Gibbs, "Alternate": Alternate}

# Mean number of components in the paper, and its variance over runs.
PAPER = {
    ("D-1", 0.05, "SMC-G"): ("2.05 (.002)", "2.54 (.249)", "2.71 (.255)"),
    ("D-1", 0.05, "SMC-A"): ("2.13 (.003)", "3.05 (.012)", "3.07 (.003)"),
    ("D-1", 0.05, "Gibbs"): ("2.16", "3.09", "3.11"),
    ("D-1", 0.5, "SMC-G"): ("2.99 (.037)", "3.58 (.041)", "3.69 (.035)"),
    ("D-1", 0.5, "SMC-A"): ("3.00 (.033)", "3.57 (.025)", "3.65 (.024)"),
    ("D-1", 0.5, "PF"): ("2.95 (.032)", "3.55 (.226)", "3.69 (.285)"),
    ("D-1", 0.5, "Gibbs"): ("", "", "3.73"),
    ("D-2", 0.5, "SMC-G"): ("4.17 (.039)", "4.57 (.075)", "4.66 (.126)"),
    ("D-2", 0.5, "SMC-A"): ("4.16 (.026)", "4.54 (.081)", "4.65 (.115)"),
    ("D-2", 0.5, "PF"): ("4.16 (.037)", "4.55 (.145)", "4.76 (.357)"),
    ("D-2", 0.5, "Gibbs"): ("", "", "4.63"),
}

RUNS_OF_A_CELL = 10


def read(name, folder):
    """1000 draws of a mixture: those of the folder, or our own."""
    path = None if folder is None else Path(folder) / f"ulker_{name.replace('-', '').lower()}.npz"
    if path is not None and path.exists():
        with np.load(path) as arrays:
            return np.asarray(arrays["X"], dtype=float)
    weights, means, deviations = MIXTURES[name]
    rng = np.random.default_rng([2010, int(name[-1])])
    component = rng.choice(len(weights), size=max(SIZES), p=weights)
    return rng.normal(np.take(means, component), np.take(deviations, component))[:, None]


def base_measure(X):
    return Gaussian(
        mean=X.mean(axis=0), mean_precision=0.01, df=X.shape[1] + 2.0, scale=0.5 * X.var(axis=0)
    )


def fitted(X, **params):
    """A fit that keeps no labels, and says nothing of chains that differ: tables do."""
    model = DPMixture(store_labels=False, point_estimate="last", **params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X)


def independent_runs(X, concentration, sampler, n_runs, seed):
    """Runs of a particle system: expected number of components, log evidence and seconds of each.

    A thousand draws of a run stand for its weighted particles.
    """
    began = time.process_time()
    model = fitted(
        X,
        likelihood=base_measure(X),
        concentration=concentration,
        sampler=sampler,
        n_chains=n_runs,
        n_draws=1000,
        random_state=seed,
    )
    return {
        "components": model.n_components_samples_.mean(axis=1),
        "log_evidence": model.log_evidence_chains_,
        "effective": model.effective_sample_size_,
        "seconds": np.full(n_runs, (time.process_time() - began) / n_runs),
    }


def long_chains(X, concentration, sampler, n_sweeps):
    """Expected number of components in each of eight Markov chains, which start as by default."""
    model = fitted(
        X,
        likelihood=base_measure(X),
        concentration=concentration,
        sampler=sampler,
        n_chains=8,
        n_warmup=n_sweeps // 10,
        n_draws=n_sweeps - n_sweeps // 10,
        random_state=0,
    )
    return {
        "components": model.n_components_samples_.mean(axis=1),
        "r_hat": np.array(model.diagnostics_["n_components"]["r_hat"]),
    }


def gather(args, name, concentration, n, method, make, n_runs):
    """All runs of a method on the first n rows, in cells of a few."""
    X = read(name, args.data)[:n]
    found = []
    for first in range(0, n_runs, RUNS_OF_A_CELL):
        sampler = make().set_params(order=args.order)
        key = f"{name}_{concentration:g}_{n}_{method}_{args.order}_{first}"
        many = min(RUNS_OF_A_CELL, n_runs - first)
        if many < RUNS_OF_A_CELL:
            key += f"_of_{many}"
        found.append(args.cells.get(key, independent_runs, X, concentration, sampler, many, first))
    return {key: np.concatenate([cell[key] for cell in found]) for key in found[0]}


def log_mean(log_values):
    return np.logaddexp.reduce(log_values) - np.log(len(log_values))


def compare(args, name, concentration):
    """Lines of a table: numbers of components, then evidence, of methods by rows."""
    counts = [f"{name}, concentration {concentration:g}: E K, mean (variance over runs) [paper]"]
    evidence = ["    log evidence, log mean (sd over runs); seconds a run"]
    for method, make in {**METHODS, **LONG}.items():
        if method not in args.methods:
            continue
        n_runs = args.runs if method in METHODS else max(1, args.runs // 10)
        left, right = f"  {method:12}", f"  {method:12}"
        for k, n in enumerate(SIZES):
            found = gather(args, name, concentration, n, method, make, n_runs)
            EK, log_z = found["components"], found["log_evidence"]
            paper = PAPER.get((name, concentration, method), ("",) * 3)[k]
            if method in LONG:
                w = np.exp(log_z - log_z.max())
                mean = w @ EK / w.sum()  # its systems weighed by their evidence
            else:
                mean = EK.mean()
            cell = f"{mean:.2f} ({EK.var(ddof=1):.3f})" if n_runs > 1 else f"{mean:.2f}"
            left += f"{n:>6}: {cell:13}{f'[{paper}]' if paper else '':14}"
            sd = log_z.std(ddof=1) if n_runs > 1 else np.nan
            cell = f"{log_mean(log_z):.2f} ({sd:.2f})"
            right += f"{n:>6}: {cell:18}{found['seconds'].mean():5.2f}"
        counts.append(f"{left}  {n_runs} runs")
        evidence.append(right)
        print(counts[-1], evidence[-1], sep="\n", flush=True)
    for method, make in CHAINS.items():
        if method not in args.methods:
            continue
        line = f"  {method:12}"
        for k, n in enumerate(SIZES):
            key = f"{name}_{concentration:g}_{n}_{method}_{args.sweeps}"
            X = read(name, args.data)[:n]
            found = args.cells.get(key, long_chains, X, concentration, make(), args.sweeps)
            EK = found["components"]
            paper = PAPER.get((name, concentration, method), ("",) * 3)[k]
            cell = f"{EK.mean():.2f} +- {EK.std(ddof=1) / np.sqrt(len(EK)):.2f}"
            line += f"{n:>6}: {cell:13}{f'[{paper}]' if paper else '':14}"
        counts.append(f"{line}  8 chains of {args.sweeps}")
        print(counts[-1], flush=True)
    return [*counts, *evidence]


def table2(args):
    """Table II: three components that overlap, and a prior that expects few."""
    return "\n".join(compare(args, "D-1", 0.05)), {}


def table3(args):
    """Table III: a prior that expects more."""
    return "\n".join([*compare(args, "D-1", 0.5), *compare(args, "D-2", 0.5)]), {}


# Figure 1.


def densities(X, sampler, grid, n_runs, seed):
    """Predictive density and log evidence of single runs: (n_runs, n_grid), (n_runs,)."""
    found = []
    for run in range(seed, seed + n_runs):
        model = fitted(
            X,
            likelihood=base_measure(X),
            concentration=0.05,
            sampler=sampler,
            n_chains=1,
            n_draws=100,
            random_state=run,
        )
        found.append((np.exp(model.score_samples(grid[:, None])), model.n_components_samples_))
    return {
        "density": np.array([density for density, _ in found]),
        "components": np.array([K.mean() for _, K in found]),
    }


def figure1(args):
    """Figure 1: estimated densities of single runs on D-1, concentration 0.05."""
    X = read("D-1", args.data)
    grid = np.linspace(-2.0, 5.0, 141)
    methods = [method for method in ("PF", "SMC-G", "SMC-A", "SMC()") if method in args.methods]
    fig, axes = plt.subplots(
        1, len(methods), figsize=(2.6 * len(methods), 2.5), sharey=True, squeeze=False
    )
    weights, means, deviations = MIXTURES["D-1"]
    truth = sum(
        w * np.exp(-0.5 * ((grid - m) / s) ** 2) / (s * np.sqrt(2 * np.pi))
        for w, m, s in zip(weights, means, deviations, strict=True)
    )
    lines = ["share of runs with fewer than 2.5 components, and rms error of the density"]
    for ax, method in zip(axes[0], methods, strict=True):
        cells = []
        for first in range(0, args.runs, RUNS_OF_A_CELL):
            many = min(RUNS_OF_A_CELL, args.runs - first)
            sampler = METHODS[method]().set_params(order=args.order)
            key = f"figure1_{method}_{args.order}_{first}_{many}"
            cells.append(args.cells.get(key, densities, X, sampler, grid, many, first))
        density = np.concatenate([cell["density"] for cell in cells])
        stuck = np.concatenate([cell["components"] for cell in cells]) < 2.5
        ax.plot(grid, density.T, color="C0", linewidth=0.4, alpha=0.25, rasterized=True)
        ax.plot(grid, truth, color="k", linewidth=0.9, linestyle="--")
        ax.set_title(f"{method}: {stuck.sum()} of {len(stuck)} with two", fontsize=8)
        ax.tick_params(labelsize=7)
        rms = np.sqrt(np.mean((density - truth) ** 2))
        lines.append(f"  {method:12}{stuck.mean():6.2f}{rms:9.4f}")
        print(lines[-1], flush=True)
    axes[0, 0].set_ylim(0)
    fig.tight_layout()
    return "\n".join(lines), {"figure1": fig}


RESULTS = {"table2": table2, "table3": table3, "figure1": figure1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*RESULTS, "all"])
    parser.add_argument("--out", required=True, help="folder for cells, tables and pictures")
    parser.add_argument("--data", help="folder of data sets")
    parser.add_argument("--methods", default=",".join([*METHODS, *LONG, *CHAINS]))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--sweeps", type=int, default=50_000, help="of the long chains")
    parser.add_argument("--order", default="given", choices=("given", "random"))
    args = parser.parse_args()
    args.methods = args.methods.split(",")
    threadpool_limits(1)
    out = Path(args.out)
    args.cells = Cells(out / "cells")
    for name in RESULTS if args.what == "all" else [args.what]:
        table, pictures = RESULTS[name](args)
        (out / f"smc_{name}.txt").write_text(table + "\n")
        for picture, fig in pictures.items():
            write(fig, out / f"smc_{picture}.png")
        print(f"{name}: {RESULTS[name].__doc__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
