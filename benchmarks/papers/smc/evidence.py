# SPDX-License-Identifier: BSD-3-Clause
"""Evidence on small data sets: model choice beside held-out scores, and how far estimates scatter.

    python benchmarks/papers/smc/evidence.py choice --out FOLDER [--data FOLDER] [--names iris]
    python benchmarks/papers/smc/evidence.py spread --out FOLDER --data FOLDER

Data sets are iris and wine of scikit-learn, and npz files with the rows under "X": galaxy,
acidity, faithful, or those named by --names. Results are kept as by run.py. `choice` makes the
table of the guide.
"""

import argparse
import sys
import time
import warnings
from pathlib import Path

import numpy as np
from run import Cells, base_measure, fitted, log_mean
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, cross_val_score
from threadpoolctl import threadpool_limits

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import SMC
from skdpm.model_selection import log_evidence

BUNDLED = {"iris": load_iris, "wine": load_wine}


def read(name, folder):
    if name in BUNDLED:
        return BUNDLED[name]().data
    if folder is None:
        sys.exit(f"--data FOLDER is needed for {name}")
    with np.load(Path(folder) / f"{name}.npz") as arrays:
        return np.asarray(arrays["X"], dtype=float)


def models(X):
    """What is compared: numbers of components, priors over partitions, covariances, base measures.

    Returns
    -------
    models : dict of str to BaseMixture
    """
    found = {f"FiniteMixture({k})": FiniteMixture(k) for k in range(1, 7)}
    found["FiniteMixture(None)"] = FiniteMixture(None)
    found["DPMixture()"] = DPMixture()
    found["DPMixture(discount=0.25)"] = DPMixture(discount=0.25)
    if X.shape[1] > 1:
        diagonal = Gaussian(covariance_type="diag")
        found["DPMixture(), diagonal covariances"] = DPMixture(likelihood=diagonal)
    found["DPMixture(), fixed base measure"] = DPMixture(likelihood=base_measure(X))
    narrow = base_measure(X).set_params(scale=0.05 * X.var(axis=0))
    found["DPMixture(), fixed, a tenth as wide"] = DPMixture(likelihood=narrow)
    return found


def compare(X, name, n_particles, n_chains):
    """Evidence of a model, its error and the spread of chains; held-out score of ten folds."""
    model = models(X)[name].set_params(n_chains=n_chains, random_state=0)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        results = log_evidence({name: model.set_params(sampler=SMC(n_particles))}, X)
        seconds = time.process_time() - began
        folds = KFold(10, shuffle=True, random_state=0)
        began = time.process_time()
        scores = cross_val_score(model.set_params(sampler="auto", n_chains=4), X, cv=folds)
    return {
        "log_evidence": results["log_evidence"],
        "std_error": results["std_error"],
        "chains": results["log_evidence_chains"][0],
        "scores": scores,
        "seconds": np.array([seconds, time.process_time() - began]),
    }


def choice(args):
    """Evidence of models beside their held-out scores."""
    lines = []
    for data in args.names or ("galaxy", "iris"):
        X = read(data, args.data)
        key = f"choice_{data}_{args.particles}_{args.chains}"
        found = {}
        for name in models(X):
            cell = f"{key}_{name}".replace("/", "_")
            arguments = (X, name, args.particles, args.chains)
            found[name] = args.cells.get(cell, compare, *arguments)
            print(f"{data}, {name}: {found[name]['log_evidence'][0]:.2f}", flush=True)
        best = max(cell["log_evidence"][0] for cell in found.values())
        lines += [
            f"{data} ({X.shape[0]} x {X.shape[1]}), {args.chains} chains of {args.particles} "
            "particles; seconds of the evidence and of ten fits",
            f"{'':38}{'log evidence':>13}{'error':>7}{'sd':>6}{'log Bayes f.':>13}"
            f"{'held-out, per row':>18}{'x rows':>9}{'s':>7}{'s':>7}",
        ]
        for name, cell in found.items():
            score = cell["scores"].mean()
            lines.append(
                f"  {name:36}{cell['log_evidence'][0]:13.2f}{cell['std_error'][0]:7.2f}"
                f"{cell['chains'].std(ddof=1):6.2f}{cell['log_evidence'][0] - best:13.2f}"
                f"{score:18.3f}{score * len(X):9.1f}{cell['seconds'][0]:7.1f}"
                f"{cell['seconds'][1]:7.1f}"
            )
    return "\n".join(lines)


SAMPLERS = {
    "PF, N = 100": lambda: SMC(100, rejuvenation=None),
    "PF, N = 1000": lambda: SMC(1000, rejuvenation=None),
    "SMC()": SMC,
}


def scatter(X, sampler, learned, n_runs):
    """Log evidence of single runs, the concentration integrated out."""
    began = time.process_time()
    likelihood = Gaussian() if learned else base_measure(X)
    model = fitted(
        X, likelihood=likelihood, sampler=sampler, n_chains=n_runs, n_draws=1, random_state=0
    )
    return {
        "log_evidence": model.log_evidence_chains_,
        "seconds": np.array((time.process_time() - began) / n_runs),
    }


def spread(args):
    """Standard deviation of the log evidence of single runs, the concentration unknown."""
    lines = [f"{args.runs} runs; concentration integrated out: log mean (sd), seconds a run"]
    for data in args.names or ("galaxy", "acidity", "faithful", "iris", "wine"):
        X = read(data, args.data)
        for learned in (False, True):
            line = f"  {data + (', learned' if learned else ', fixed'):20}"
            for name, make in SAMPLERS.items():
                if learned and name != "SMC()":
                    continue  # a filter does not move hyperparameters
                key = f"spread_{data}_{learned:d}_{name}_{args.runs}"
                cell = args.cells.get(key, scatter, X, make(), learned, args.runs)
                log_z = cell["log_evidence"]
                text = f"{log_mean(log_z):.2f} ({log_z.std(ddof=1):.2f})"
                line += f"{name:>14}: {text:18}{float(cell['seconds']):6.2f}"
            lines.append(line)
            print(line, flush=True)
    return "\n".join(lines)


RESULTS = {"choice": choice, "spread": spread}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=RESULTS)
    parser.add_argument("--out", required=True, help="folder for cells and tables")
    parser.add_argument("--data", help="folder of data sets")
    parser.add_argument("--names", nargs="*", help="data sets")
    parser.add_argument("--particles", type=int, default=400)
    parser.add_argument("--chains", type=int, default=8)
    parser.add_argument("--runs", type=int, default=40)
    args = parser.parse_args()
    threadpool_limits(1)
    out = Path(args.out)
    args.cells = Cells(out / "cells")
    table = RESULTS[args.what](args)
    (out / f"smc_{args.what}.txt").write_text(table + "\n")
    print(f"{args.what}: {RESULTS[args.what].__doc__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
