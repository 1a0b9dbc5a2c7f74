# SPDX-License-Identifier: BSD-3-Clause
"""How far chains of default fits stay below chains that start at the truth.

    python benchmarks/modes.py --cases 500 --cache modes.json
    python benchmarks/modes.py --cases 100 --families full diag --largest 20000 --limit 60
    python benchmarks/modes.py --data FOLDER --cache modes.json

A case is a partition and rows that are drawn from the model: a likelihood and its
hyperparameters, 1 to 60 columns, 30 to `--largest` rows, 1 to n / 10 clusters of equal or skewed
sizes. In half of the cases the fit knows the hyperparameters, in the others it learns them. With
--data, cases are the labelled data sets of a folder instead (npz files with `X` and `y` or
`labels`), and the truth is the partition by their labels.

The level of a chain is the mean of its draws of log p(partition, X) plus the log densities of the
hyperpriors, natural logarithm. The gap is the mean level of the chains that start at the truth
minus that of the default chains, in nats. A level is not the mass of a mode: it lacks the entropy
of the labels, so that where clusters overlap chains of one mode may stay hundreds of nats apart.
The gap of masses compares estimates of the log mass (doc/guide/convergence.md) in the same way. A
case is "below" if the first gap is above 8 nats, and a miss if the second is; it is silent if
`converged_` is True. Cases that take longer than --limit seconds of processor time are left out;
--max-time is the parameter of the default fits, in seconds.
Numbers in brackets are the differences between the default chains. After ± is the standard error
of the gap of masses, by the variance between chains: slow chains have gaps by chance. Effective
draws are those of the log joint, per second.
"""

import argparse
import json
import signal
import time
import warnings
from pathlib import Path

import numpy as np

from skdpm import DPMixture
from skdpm.diagnostics import bulk_ess, split_rhat
from skdpm.draws import column_of
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Relational,
    VonMisesFisher,
)

MISS = 8.0
FEWEST_ROWS, MOST_COLUMNS = 30, 60


# Rows from the model. Each function takes a generator, labels and a number of columns, and returns
# rows and the likelihood with the hyperparameters that they were drawn with.


def full(rng, y, d):
    kappa, df = _mean_precision(rng), d + 1.0 + rng.gamma(2.0, 5.0)
    scale = df * np.diag(np.exp(rng.normal(size=d)))
    X = np.empty((len(y), d))
    for k in range(y.max() + 1):
        root = np.linalg.inv(_wishart_root(rng, df, d)).T @ np.sqrt(scale)
        mean = root.T @ rng.normal(size=d) / np.sqrt(kappa)
        X[y == k] = mean + rng.normal(size=(np.sum(y == k), d)) @ root
    return X, Gaussian(mean=0.0, mean_precision=kappa, df=df, scale=scale)


def diag(rng, y, d):
    kappa, df, scale = _mean_precision(rng), 1.0 + rng.gamma(2.0, 5.0), np.exp(rng.normal(size=d))
    deviation = np.sqrt(df * scale / rng.chisquare(df, size=(y.max() + 1, d)))
    means = deviation * rng.normal(size=deviation.shape) / np.sqrt(kappa)
    X = means[y] + deviation[y] * rng.normal(size=(len(y), d))
    return X, Gaussian(0.0, kappa, df, df * scale, covariance_type="diag")


def spherical(rng, y, d):
    kappa, df = _mean_precision(rng), 1.0 + rng.gamma(2.0, 5.0)
    deviation = np.sqrt(df / rng.chisquare(df, size=(y.max() + 1, 1)))
    means = deviation * rng.normal(size=(len(deviation), d)) / np.sqrt(kappa)
    X = means[y] + deviation[y] * rng.normal(size=(len(y), d))
    return X, Gaussian(0.0, kappa, df, df, covariance_type="spherical")


def tied(rng, y, d):
    kappa, scale = _mean_precision(rng), np.diag(np.exp(rng.normal(size=d)))
    means = rng.normal(size=(y.max() + 1, d)) / np.sqrt(kappa)
    X = (means[y] + rng.normal(size=(len(y), d))) @ np.sqrt(scale)
    return X, Gaussian(0.0, kappa, scale=scale, covariance_type="tied")


def bernoulli(rng, y, d):
    a, b = rng.uniform(0.2, 1.5, size=2)
    p = rng.beta(a, b, size=(y.max() + 1, d))
    return (rng.random((len(y), d)) < p[y]).astype(float), Bernoulli(a=a, b=b)


def categorical(rng, y, d):
    concentration, n_categories = rng.uniform(0.2, 1.0), int(rng.integers(2, 7))
    X = np.empty((len(y), d))
    for k in range(y.max() + 1):
        for j, p in enumerate(rng.dirichlet(np.full(n_categories, concentration), size=d)):
            X[y == k, j] = rng.choice(n_categories, size=np.sum(y == k), p=p)
    return X, Categorical(concentration=concentration, n_categories=n_categories)


def poisson(rng, y, d):
    shape, rate = rng.uniform(0.5, 3.0), rng.uniform(0.05, 1.0)
    rates = rng.gamma(shape, 1.0 / rate, size=(y.max() + 1, d))
    return rng.poisson(rates[y]).astype(float), Poisson(shape=shape, rate=rate)


def negative_binomial(rng, y, d):
    X, _ = poisson(rng, y, d)
    dispersion = rng.uniform(1.0, 10.0)
    X = rng.poisson(X * rng.gamma(dispersion, 1.0 / dispersion, size=X.shape)).astype(float)
    return X, NegativeBinomial()


def multinomial(rng, y, d):
    d, concentration = max(d, 3), rng.uniform(0.1, 1.0)
    p = rng.dirichlet(np.full(d, concentration), size=y.max() + 1)
    totals = rng.poisson(rng.uniform(10.0, 100.0), size=len(y)) + 1
    X = np.array([rng.multinomial(n, p[k]) for n, k in zip(totals, y, strict=True)])
    return X.astype(float), Multinomial(concentration=concentration)


def von_mises_fisher(rng, y, d):
    d = max(d, 3)
    means = rng.normal(size=(y.max() + 1, d))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    # Projected normal rows around the means: close to the law, and its partition is the same.
    X = means[y] + rng.normal(size=(len(y), d)) * rng.uniform(0.05, 0.5) / np.sqrt(d)
    return X / np.linalg.norm(X, axis=1, keepdims=True), VonMisesFisher()


def relational(rng, y, d):
    y = y[:300]
    eta = rng.beta(0.5, 1.0, size=(y.max() + 1, y.max() + 1))
    eta = np.tril(eta) + np.tril(eta, -1).T
    links = np.tril(rng.random((len(y), len(y))) < eta[np.ix_(y, y)], -1)
    return (links + links.T).astype(float), Relational(a=0.5, b=1.0)


FAMILIES = {
    make.__name__: make
    for make in (
        full,
        diag,
        spherical,
        tied,
        bernoulli,
        categorical,
        poisson,
        negative_binomial,
        multinomial,
        von_mises_fisher,
        relational,
    )
}


def _mean_precision(rng):
    return max(rng.gamma(0.5, 0.2), 5e-4)


def _wishart_root(rng, df, d):
    """Lower Cholesky factor of a Wishart draw, by Bartlett's decomposition."""
    root = np.tril(rng.normal(size=(d, d)), -1)
    root[np.diag_indices(d)] = np.sqrt(rng.chisquare(df - np.arange(d)))
    return root


def simulate(family, case, largest):
    """Rows, labels, and the likelihood of a fit to them."""
    rng = np.random.default_rng([case, list(FAMILIES).index(family)])
    n = round(np.exp(rng.uniform(np.log(FEWEST_ROWS), np.log(largest))))
    d = round(np.exp(rng.uniform(0.0, np.log(MOST_COLUMNS))))
    n_clusters = round(np.exp(rng.uniform(0.0, np.log(n / 10))))
    shares = np.full(n_clusters, 1.0 / n_clusters)
    if rng.random() < 0.5:
        shares = rng.dirichlet(np.ones(n_clusters))
    y = np.unique(rng.choice(n_clusters, size=n, p=shares), return_inverse=True)[1]
    X, known = FAMILIES[family](rng, y, d)
    if rng.random() < 0.5:
        return X, y[: len(X)], known
    learned = type(known)()
    if isinstance(known, Gaussian):
        learned = Gaussian(covariance_type=known.covariance_type)
    elif isinstance(known, Categorical):
        learned = Categorical(n_categories=known.n_categories)
    return X, y[: len(X)], learned


def labelled(folder):
    """Files of labelled sets in a folder, smallest first: dict of names and paths."""
    paths = [p for p in Path(folder).rglob("*.npz") if "outliers" not in p.parts]
    paths.sort(key=lambda path: (path.stat().st_size, path))
    return {str(path.relative_to(folder)): path for path in paths}


def read(path, most_rows=3000):
    with np.load(path, allow_pickle=False) as arrays:
        arrays = dict(arrays)
    if "X" not in arrays:
        return None
    X = arrays["X"].astype(float)
    if "labels" in arrays:
        y = np.atleast_2d(arrays["labels"])[0]
    elif "y" in arrays:
        y = arrays["y"]
    else:
        return None
    if len(X) > most_rows:
        rows = np.sort(np.random.default_rng(0).choice(len(X), most_rows, replace=False))
        X, y = X[rows], y[rows]
    return X, np.unique(y, return_inverse=True)[1], "auto"


# Chains.


def levels(model):
    """Log joint densities with hyperpriors of the draws: ndarray of shape (n_chains, n_draws)."""
    draws, program = model.draws_, model._run_program
    value = draws["log_joint"] + program.log_hyperprior(draws["concentration"])
    names = program.likelihood.learned
    for c, s in np.ndindex(value.shape) if names else ():
        value[c, s] += program.likelihood.log_hyperprior(
            {name: draws[column_of(name)][c, s] for name in names}
        )
    return value


def masses(model):
    """Mean of the estimates of the log mass around the draws of each chain."""
    return [
        np.mean([mass for i, mass in chain.get("masses", ()) if i > model.n_warmup_] or np.nan)
        for chain in model._run.chains
    ]


def error_of_gap(cell):
    """Standard error of the gap of masses of a case."""
    return np.sqrt(sum(np.var(cell[m], ddof=1) / len(cell[m]) for m in ("mass", "mass_truth")))


class Observed(DPMixture):
    """`DPMixture` that keeps its program, which has the hyperpriors."""

    def _publish(self, draws, program):
        super()._publish(draws, program)
        self._run_program = program


def fit(X, likelihood, **parameters):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        began = time.process_time()
        model = Observed(likelihood=likelihood, random_state=0, n_jobs=1, **parameters).fit(X)
        seconds = time.process_time() - began
    model.told_ = [str(w.message)[:200] for w in caught if "Convergence" in w.category.__name__]
    return model, seconds


def measure_within(seconds, *problem):
    """`measure`, or TimeoutError after some seconds of processor time."""

    def stop(*_):
        raise TimeoutError(f"{seconds} s were not enough")

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return measure(*problem)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def measure(X, y, likelihood, max_time=None):
    model, seconds = fit(X, likelihood, max_time=max_time)
    reference, _ = fit(X, likelihood, init=y, n_warmup=150, n_draws=100)
    ours, theirs = levels(model), levels(reference)
    return {
        "shape": X.shape,
        "likelihood": str(model.likelihood_)[:60].split("(")[0],
        "K": int(y.max() + 1),
        "k": float(np.mean(model.n_components_samples_)),
        "k_truth": float(np.mean(reference.n_components_samples_)),
        "levels": np.round(ours.mean(axis=1), 1).tolist(),
        "truth": np.round(theirs.mean(axis=1), 1).tolist(),
        "gap": float(theirs.mean() - ours.mean()),
        "mass": np.round(masses(model), 1).tolist(),
        "mass_truth": np.round(masses(reference), 1).tolist(),
        "mass_gap": float(np.mean(masses(reference)) - np.mean(masses(model))),
        "n_starts": model.diagnostics_["log_joint"].get("n_starts", 0.0),
        "sd": float(ours.std(axis=1).mean()),
        "r_hat": float(split_rhat(ours)),
        "converged": bool(model.converged_),
        "told": model.told_,
        "seconds": seconds,
        "ess_per_s": float(bulk_ess(ours) / seconds),
        "n": [model.n_warmup_, model.draws_.n_draws],
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--families", nargs="+", default=list(FAMILIES), choices=FAMILIES)
    parser.add_argument("--largest", type=int, default=2000)
    parser.add_argument("--limit", type=float, default=1e6)
    parser.add_argument("--max-time", type=float)
    parser.add_argument("--data")
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--cache", type=Path)
    given = parser.parse_args()
    cells = {}
    if given.cache is not None and given.cache.exists():
        cells = json.loads(given.cache.read_text())
    if given.data is None:
        names = [
            f"{given.families[i % len(given.families)]}-{i}-{given.largest}"
            for i in range(given.first, given.first + given.cases)
        ]
    else:
        paths = labelled(given.data)
        names = [n for n in paths if given.only is None or any(o in n for o in given.only)]
    shown = []
    for name in names:
        if name not in cells:
            if given.data is None:
                family, case, largest = name.split("-")
                problem = simulate(family, int(case), int(largest))
            else:
                problem = read(paths[name])
                if problem is None:
                    continue
            try:
                cells[name] = measure_within(given.limit, *problem, given.max_time)
            except (FloatingPointError, TimeoutError) as error:
                print(f"{name:28s} fails: {error}")
                continue
            if given.cache is not None:
                given.cache.write_text(json.dumps(cells, indent=1))
        cell = cells[name]
        shown.append(cell)
        notes = [
            "" if cell["converged"] else "told",
            "MISS" if cell["mass_gap"] > MISS else "below" if cell["gap"] > MISS else "",
        ]
        print(
            f"{name:28s} {cell['shape'][0]:5d} x {cell['shape'][1]:2d}  K {cell['K']:3d} "
            f"k {cell['k']:6.1f} {cell['k_truth']:6.1f}  level {cell['gap']:8.1f} "
            f"({np.ptp(cell['levels']):6.1f})  "
            f"mass {cell['mass_gap']:8.1f} ± {error_of_gap(cell):4.1f} "
            f"({np.ptp(cell['mass']):6.1f})  starts {cell['n_starts']:.0f}  "
            f"{cell['seconds']:6.1f} s  {cell['ess_per_s']:6.1f} / s  {' '.join(notes)}",
            flush=True,
        )
    for what in ("gap", "mass_gap"):
        missed = [cell for cell in shown if cell[what] > MISS]
        print(
            f"{what}: {len(missed)} of {len(shown)} cases above {MISS:.0f} nats, "
            f"{sum(cell['converged'] for cell in missed)} of them with converged_"
        )
    print(
        f"{sum(not c['converged'] for c in shown)} did not converge, "
        f"{sum(c['r_hat'] <= 1.1 for c in shown)} have an R-hat of the level of at most 1.1; "
        f"{sum(c['seconds'] for c in shown):.0f} s of fits"
    )


if __name__ == "__main__":
    main()
