# SPDX-License-Identifier: BSD-3-Clause
"""Effective draws per second of processor time where clusters overlap, by sampler.

    python benchmarks/mixing.py DATA
    python benchmarks/mixing.py DATA --sets s1 grid --settings default gibbs --draws 10000

DATA is the folder of `s1.npz` and `s2.npz` (`-`: none). "grid" is generated: 15 overlapping normal
clusters, 5000 rows of two columns. A cell of the table shows the autocorrelation time in
iterations, then the bulk effective sample size per second, then its ratio to the first setting of
the run in brackets. Warm-up is not counted. An effective sample size of 100 has an error of about
a third, so ratios below 1.5 need more draws than the default. "Fixed" settings show what the
samplers would gain if hyperparameters cost nothing; they fix them at means of the posterior.
"""

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

from skdpm import DPMixture
from skdpm.diagnostics import bulk_ess, split_rhat
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import PGSM, SAMS, Alternate, Gibbs, SplitMerge

SETTINGS = {
    "default": lambda means: {},
    "gibbs": lambda means: {"sampler": Gibbs()},
    "moves 0.2": lambda means: {"sampler": Alternate(move_share=0.2)},
    "moves 0.8": lambda means: {"sampler": Alternate(move_share=0.8)},
    "uniform anchors": lambda means: {"sampler": Alternate([Gibbs(), SAMS(gibbs_sweeps=0)])},
    "pgsm": lambda means: {"sampler": Alternate([Gibbs(), PGSM(gibbs_sweeps=0)])},
    "jain-neal": lambda means: {"sampler": Alternate([Gibbs(), SplitMerge(gibbs_sweeps=0)])},
    "three turns": lambda means: {"sampler": Alternate(n_turns=3)},
    "fixed concentration": lambda means: {"concentration": means["concentration"]},
    "fixed hyperparameters": lambda means: {"likelihood": Gaussian(**means["likelihood"])},
}


def rows(name, folder):
    if name != "grid":
        return np.load(Path(folder) / f"{name}.npz")["X"].astype(np.float64)
    rng = np.random.default_rng(3)
    centres = 2.6 * np.stack(np.divmod(np.arange(15), 3), axis=1) + rng.normal(0, 0.5, (15, 2))
    labels = rng.integers(15, size=5000)
    factors = rng.normal(0, 0.35, (15, 2, 2)) + 0.8 * np.eye(2)
    noise = rng.normal(size=(5000, 2))
    return centres[labels] + np.einsum("ide,ie->id", factors[labels], noise)


def fitted(X, n_chains, n_draws, **params):
    """A fit whose last draws were timed, and the processor time of an iteration in seconds."""
    estimator = DPMixture(
        n_chains=n_chains,
        n_warmup=300,
        n_draws=10,
        n_jobs=1,
        store_labels=False,
        point_estimate="last",
        warm_start=True,
        random_state=0,
        **params,
    ).fit(X)
    began = time.process_time()
    estimator.set_params(n_draws=10 + n_draws).fit(X)
    return estimator, (time.process_time() - began) / (n_chains * n_draws)


def posterior_means(X):
    """Values at which "fixed" settings fix what is learned."""
    estimator, _ = fitted(X, 1, 300)
    draws = estimator.hyperparameter_samples_
    return {
        "concentration": float(estimator.concentration_samples_.mean()),
        "likelihood": {name: np.mean(values, axis=(0, 1)) for name, values in draws.items()},
    }


def line(name, setting, estimator, seconds, first):
    """A line of the table; `first` has the rates of the first setting, and is filled by it."""
    cells = [name, setting, f"{1000 * seconds:.2f}"]
    quantities = {
        "log joint": estimator.log_joint_samples_,
        "components": estimator.n_components_samples_,
        "concentration": estimator.concentration_samples_,
    }
    for quantity, draws in quantities.items():
        if np.ptp(draws) == 0:
            cells.append("fixed")
            continue
        ess = bulk_ess(draws)
        rate = ess / (draws.size * seconds)
        ratio = rate / first.setdefault(quantity, rate)
        cells.append(f"{draws.size / ess:.0f}: {rate:.1f} ({ratio:.2f})")
    log_joint = quantities["log joint"]
    cells.append(f"{log_joint.mean():.0f}, {split_rhat(log_joint):.3f}")
    cells.append(f"{quantities['components'].mean():.1f}")
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", help="folder of s1.npz and s2.npz, or -")
    parser.add_argument("--sets", nargs="+", choices=("s1", "s2", "grid"))
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--draws", type=int, default=5000, help="draws of each chain")
    parser.add_argument("--chains", type=int, default=2)
    arguments = parser.parse_args()
    names = ("set", "setting", "ms", "log joint", "components", "concentration")
    names += ("mean log joint, R-hat", "mean components")
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    warnings.simplefilter("ignore")  # chains that have not mixed are what is measured
    for name in arguments.sets or (("grid",) if arguments.data == "-" else ("s1", "s2", "grid")):
        X = rows(name, arguments.data)
        fixed = any(setting.startswith("fixed") for setting in arguments.settings)
        means, first = posterior_means(X) if fixed else None, {}
        for setting in arguments.settings:
            params = SETTINGS[setting](means)
            estimator, seconds = fitted(X, arguments.chains, arguments.draws, **params)
            print(line(name, setting, estimator, seconds, first), flush=True)


if __name__ == "__main__":
    main()
