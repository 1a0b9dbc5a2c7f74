# SPDX-License-Identifier: BSD-3-Clause
"""Speed targets of the project, each measured in one run on one machine.

    python benchmarks/sweep_yardstick.py            # all of them, some minutes
    python benchmarks/sweep_yardstick.py bare gaussian

Run it on an otherwise idle machine. Times of sweeps and scores are processor time of their thread,
the smallest of several repetitions. Compared functions alternate, so that other load affects both.
Sweeps run under a finite Dirichlet prior over the stated number of clusters, so that the number
stays the same. A missed target is printed, not raised: this is not a test.
"""

import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time
import warnings
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import gammaln
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import v_measure_score
from suite.problems import Stepper, make_problem

from skdpm import DPMixture
from skdpm.mixture.blocks import rows as block_rows
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import Gaussian, Product
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import SAMPLERS
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel

HERE = Path(__file__).resolve().parent


def report(what, value, target, unit=""):
    """Print one line of the table; a target of None is no target."""
    if target is None:
        print(f"{what:<72} {value:>9.4g} {unit}", flush=True)
    else:
        verdict = "ok" if value <= target else "MISSED"
        print(f"{what:<72} {value:>9.4g} {unit:<4} target <= {target:g}: {verdict}", flush=True)


def smallest_times(*functions, repetitions=30):
    """Seconds of processor time of each function, the smallest of several alternating calls."""
    best = [np.inf] * len(functions)
    for _ in range(repetitions):
        for f, function in enumerate(functions):
            began = time.thread_time()
            function()
            best[f] = min(best[f], time.thread_time() - began)
    return best


# The bare C loop.


class Cluster(ctypes.Structure):
    _fields_ = [
        ("center", ctypes.c_double * 2),
        ("a", ctypes.c_double),
        ("b", ctypes.c_double),
        ("c", ctypes.c_double),
        ("ratio", ctypes.c_double),
        ("power", ctypes.c_double),
        ("constant", ctypes.c_double),
    ]


def compile_bare_loop(folder):
    library = Path(folder) / "bare_loop.so"
    command = [os.environ.get("CC", "cc"), "-std=c11", "-O3", "-shared", "-fPIC"]
    subprocess.run([*command, HERE / "bare_loop.c", "-o", library, "-lm"], check=True)
    return ctypes.CDLL(str(library))


def student_clusters(gaussian, X, labels):
    """Predictive densities of the clusters for the C loop, by NumPy."""
    n_samples, n_clusters = len(X), labels.max() + 1
    u, r, nu = np.broadcast_to(gaussian.mean, 2), gaussian.mean_precision, gaussian.df
    scale = np.asarray(gaussian.scale, dtype=float)
    scale = scale if scale.ndim == 2 else np.diag(np.broadcast_to(scale, 2))
    clusters = (Cluster * n_clusters)()
    for k in range(n_clusters):
        members = X[labels == k]
        n = len(members)
        gap = members.mean(axis=0) - u
        deviations = members - members.mean(axis=0)
        scatter = scale + deviations.T @ deviations + r * n / (r + n) * np.outer(gap, gap)
        L = np.linalg.cholesky(scatter)
        power = (nu + n + 1) / 2
        constant = (
            gammaln(power)
            - gammaln(power - 1)
            + np.log((r + n) / (r + n + 1) / np.pi)
            - np.log(np.diag(L)).sum()
            + np.log(n / n_samples)
        )
        clusters[k] = Cluster(
            tuple((r * u + members.sum(axis=0)) / (r + n)),
            1 / L[0, 0],
            L[1, 0],
            1 / L[1, 1],
            (r + n) / (r + n + 1),
            power,
            constant,
        )
    return clusters


def bare():
    likelihood, X, labels = make_problem("gaussian", 5000, 2, 15)
    n_samples, n_clusters = len(X), 15
    sweeper = Stepper(likelihood, X, labels, n_components=n_clusters)
    clusters = student_clusters(sweeper.likelihood, X, labels)
    state = ctypes.c_uint64(1)
    w = np.empty(n_clusters)
    drawn = np.empty(n_samples, dtype=np.intp)
    rows = X.ctypes.data_as(ctypes.c_void_p)
    n, k = ctypes.c_ssize_t(n_samples), ctypes.c_ssize_t(n_clusters)
    with tempfile.TemporaryDirectory() as folder:
        library = compile_bare_loop(folder)
    # The same numbers on both sides, or the comparison means nothing.
    theirs = np.empty((n_samples, n_clusters))
    library.log_densities(rows, n, clusters, k, theirs.ctypes.data_as(ctypes.c_void_p))
    likelihood = sweeper.likelihood
    data = likelihood.encode(X)
    other = likelihood.bind(data, likelihood.tables(data, n_samples))
    other.load(sweeper.state.dump())
    ours = other.log_predictive_rows(np.arange(n_clusters), 0, n_samples).T
    weights = np.log(np.bincount(labels) / n_samples)
    np.testing.assert_allclose(theirs, ours + weights, rtol=1e-9, atol=1e-9)

    def loop(function):
        pointers = [w.ctypes.data_as(ctypes.c_void_p), drawn.ctypes.data_as(ctypes.c_void_p)]
        return lambda: function(rows, n, clusters, k, ctypes.byref(state), *pointers)

    for _ in range(20):
        sweeper.step()
    ours, plain, short = smallest_times(
        sweeper.step,
        loop(library.sweep),
        loop(library.sweep_with_shortcuts),
        repetitions=300,
    )
    print(
        f"Gaussian 5000 x 2, 15 clusters ({sweeper.state.n_clusters} at the end): sweep "
        f"{1e3 * ours:.3f} ms; bare C loop {1e3 * plain:.3f} ms "
        f"({1e9 * plain / n_samples / n_clusters:.1f} ns per row and cluster), with our shortcuts "
        f"{1e3 * short:.3f} ms ({1e9 * short / n_samples / n_clusters:.1f} ns)"
    )
    report("Gaussian 5000 x 2, 15 clusters: sweep / bare C loop", ours / plain, 2)
    report("  the same / bare C loop with the kernel's shortcuts", ours / short, None)


# Split-merge.


def moves():
    """Means over many moves, as the cost of a move is random."""
    n_moves = 200
    problem = make_problem("gaussian", 5000, 2, 15)
    targets = {"pgsm": 1.5, "sams": 0.1, "split_merge": None}
    steppers = [Stepper(*problem, sampler=SAMPLERS[name](gibbs_sweeps=0)) for name in targets]

    def many(stepper):
        return lambda: [stepper.step() for _ in range(n_moves)]

    sweep, *times = smallest_times(
        Stepper(*problem).step, *(many(stepper) for stepper in steppers), repetitions=15
    )
    for (name, target), seconds in zip(targets.items(), times, strict=True):
        seconds /= n_moves
        report(f"Gaussian 5000 x 2, 15 clusters: move of {name}", 1e3 * seconds, target, "ms")
        report("  the same / a Gibbs sweep", seconds / sweep, None)


def seconds_to_find(X, truth, sampler, v_measure, limit):
    """Processor time in `fit` of one chain from one cluster until a draw has the V-measure, the
    median of three seeds; inf where it takes longer than `limit`."""
    times = []
    for seed in range(3):
        model = DPMixture(
            sampler=sampler,
            n_warmup=0,
            n_draws=0,
            n_chains=1,
            point_estimate="last",
            store_labels=False,
            warm_start=True,
            random_state=seed,
        )
        seconds, found = 0.0, False
        while not found and seconds < limit:
            model.set_params(n_draws=max(model.n_draws + 1, int(1.15 * model.n_draws)))
            began = time.process_time()
            model.fit(X)
            seconds += time.process_time() - began
            found = v_measure_score(truth, model.labels_) >= v_measure
        times.append(seconds if found else np.inf)
    return np.median(times)


def from_one_cluster():
    """The default sampler's time, and those of the others as multiples of it."""
    _, X, truth = make_problem("gaussian", 5000, 2, 15)
    base = seconds_to_find(X, truth, "auto", 0.95, 60)
    report("Gaussian 5000 x 2, 15 clusters: from one cluster to V >= 0.95", base, 1.5, "s")
    for name in ("sams", "split_merge", "gibbs"):
        ratio = seconds_to_find(X, truth, name, 0.95, 10 * base) / base
        report(f"  {name} / this (inf: more than 10)", ratio, None)
    _, X, truth = make_problem("gaussian", 100_000, 2, 10)
    seconds = seconds_to_find(X, truth, "auto", 0.95, 100)
    report("Gaussian 100,000 x 2, 10 clusters: from one cluster to V >= 0.95", seconds, 10, "s")


# Times of a sweep.


def gaussian():
    sweeper = Stepper(*make_problem("gaussian", 1024, 128, 16), n_components=16)
    (seconds,) = smallest_times(sweeper.step, repetitions=20)
    clusters = f"({sweeper.state.n_clusters} at the end)"
    report(f"Gaussian 1024 x 128, 16 clusters {clusters}: sweep", 1e3 * seconds, 60, "ms")
    sweeper = Stepper(*make_problem("gaussian", 1024, 128, 16))
    (seconds,) = smallest_times(sweeper.step, repetitions=20)
    clusters = f"({sweeper.state.n_clusters} at the end)"
    report(f"  under a Dirichlet process prior {clusters}", 1e3 * seconds, None, "ms")
    # Nearly all rows change their cluster here, which costs a downdate and an update each.
    seconds = np.inf
    for seed in range(3):
        likelihood, X, labels = make_problem("gaussian", 1024, 128, 16, seed=seed)
        sweeper = Stepper(likelihood, X, np.roll(labels, 1), n_components=16)
        seconds = min(seconds, *smallest_times(sweeper.step, repetitions=1))
    report("  the first sweep from random labels, at most 16 clusters", 1e3 * seconds, None, "ms")


def bernoulli():
    sweeper = Stepper(*make_problem("bernoulli", 5000, 50, 16), n_components=16)
    (seconds,) = smallest_times(sweeper.step, repetitions=50)
    clusters = f"({sweeper.state.n_clusters} at the end)"
    report(f"Bernoulli 5000 x 50, 16 clusters {clusters}: sweep", 1e3 * seconds, 8, "ms")


def slope(sizes, name, make):
    """Slope of log time against log size, by least squares."""
    sweepers = []
    for size in sizes:
        likelihood, X, labels = make(size)
        sweepers.append(Stepper(likelihood, X, labels, n_components=labels.max() + 1))
    times = smallest_times(*(s.step for s in sweepers), repetitions=10)
    steps = np.diff(np.log(times)) / np.diff(np.log(sizes))
    fitted = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    milliseconds = ", ".join(f"{1e3 * seconds:.3g}" for seconds in times)
    print(
        f"  {name} = {list(sizes)}: {milliseconds} ms; step by step "
        f"{', '.join(f'{step:.2f}' for step in steps)}"
    )
    return fitted


def linearity():
    report(
        "slope in n (Gaussian, 2 columns, 15 clusters)",
        slope(
            (5000, 10000, 20000, 40000, 80000),
            "n",
            lambda n: make_problem("gaussian", n, 2, 15),
        ),
        1.1,
    )
    report(
        "slope in K (Gaussian, 20000 x 2)",
        slope((8, 16, 32, 64, 128), "K", lambda k: make_problem("gaussian", 20000, 2, k)),
        1.1,
    )
    report(
        "slope in D (Gaussian, 1024 rows, 16 clusters)",
        slope((16, 32, 64, 128, 256), "D", lambda d: make_problem("gaussian", 1024, d, 16)),
        2.1,
    )
    report(
        "slope in D (Bernoulli, 5000 rows, 16 clusters)",
        slope((16, 32, 64, 128, 256), "D", lambda d: make_problem("bernoulli", 5000, d, 16)),
        1.1,
    )


# Sweeps that pass over clusters.

# Unit Gaussians on a grid: name, rows, clusters, step of the grid, target ratio.
CULLED = [
    ("apart", 100_000, 100, 6.0, 10),
    ("as dense as can be separated", 100_000, 100, 4.0, None),
    ("apart", 5000, 15, 6.0, 2.5),
    ("overlapping", 5000, 15, 2.5, 1),
    ("overlapping more", 5000, 15, 1.8, 1),
    ("all in one another", 5000, 15, 1.2, 1),
]
CULLED_K = (15, 50, 150, 500, 1500)


def unit_gaussians(n_samples, n_clusters, step, covariance_type="full"):
    """Rows on a grid, their clusters, and a likelihood that expects clusters of this size (before
    a draw of its hyperparameters, the default one expects clusters as wide as the data)."""
    _, X, labels = make_problem("gaussian", n_samples, 2, n_clusters, spread=step)
    likelihood = Gaussian(
        mean=X.mean(axis=0),
        mean_precision=0.01,
        df=6.0,
        scale=3.0,
        covariance_type=covariance_type,
    )
    return likelihood, X, labels


def culled():
    """Sweeps with bounds against sweeps that weigh all clusters: means over many, as visits of a
    group of tiles differ."""
    for name, n_samples, n_clusters, step, target in CULLED:
        for kind in ("full", "diag"):
            problem = unit_gaussians(n_samples, n_clusters, step, kind)
            steppers = [Stepper(*problem, tiled=tiled) for tiled in (False, True)]
            seconds = np.zeros(2)
            n_sweeps = 200 if n_samples < 10_000 else 10
            for _ in range(n_sweeps):
                for j, stepper in enumerate(steppers):
                    began = time.thread_time()
                    stepper.step()
                    seconds[j] += time.thread_time() - began
            plain, ours = 1e9 * seconds / n_sweeps / n_samples
            wanted = "" if target is None else f"target >= {target:g}: "
            wanted += "" if target is None else "ok" if plain / ours >= target else "MISSED"
            print(
                f"{kind} {n_samples} x 2, {n_clusters} clusters {name} (step {step:g}): "
                f"{plain:.0f} ns a row, culled {ours:.0f}: {plain / ours:.1f} x {wanted}",
                flush=True,
            )
    for tiled in (False, True):
        times = growth("full", tiled)
        print(
            f"  K = {list(CULLED_K)}, 100 rows each: "
            f"{', '.join(f'{nanoseconds:.0f}' for nanoseconds in times)} ns a row"
        )
        report(
            f"slope in K, 100 rows a cluster, {'culled' if tiled else 'all weighed'}",
            np.polyfit(np.log(CULLED_K), np.log(times), 1)[0],
            0.3 if tiled else None,
        )


def growth(kind, tiled):
    """Nanoseconds per row of a sweep, for each of CULLED_K clusters of 100 rows."""
    times = []
    for n_clusters in CULLED_K:
        problem = unit_gaussians(100 * n_clusters, n_clusters, 6.0, kind)
        stepper = Stepper(*problem, tiled=tiled)
        (seconds,) = smallest_times(stepper.step, repetitions=5)
        times.append(1e9 * seconds / len(problem[1]))
    return times


def growth_picture():
    """doc/images/sweep_growth.png: a sweep's cost with the number of clusters."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for kind, colour in (("full", "C0"), ("diag", "C1")):
        for tiled, style in ((False, "--"), (True, "-")):
            name = f"{kind} covariances, {'passing over clusters' if tiled else 'weighing all'}"
            times = growth(kind, tiled)
            axes.loglog(CULLED_K, times, style, color=colour, marker="o", markersize=4, label=name)
            print(name, [round(nanoseconds) for nanoseconds in times], flush=True)
    axes.set_xlabel("clusters, of 100 rows each")
    axes.set_ylabel("Gibbs sweep: ns per row")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(HERE.parent / "doc" / "images" / "sweep_growth.png", dpi=150)


# Rows in blocks.


def product():
    """Parts of a table beside the table: sweeps, predictions and blocks of rows."""
    n_samples, n_clusters = 5000, 15
    sizes = {"gaussian_diag": 4, "categorical": 4, "poisson": 2}
    columns, parts, first = [], [], 0
    for name, size in sizes.items():
        likelihood, X, labels = make_problem(name, n_samples, size, n_clusters)
        columns.append(X)
        parts.append((name, likelihood, slice(first, first + size)))
        first += size
    table = np.hstack(columns)
    for tiled in (False, True):
        steppers = [
            Stepper(likelihood, X, labels, n_components=n_clusters, tiled=tiled)
            for likelihood, X in [
                (Product(parts), table),
                *((part[1], X) for part, X in zip(parts, columns, strict=True)),
            ]
        ]
        whole, *own = smallest_times(*(stepper.step for stepper in steppers))
        what = ", in tiles" if tiled else ""
        report(
            f"sweep of a table of 4 + 4 + 2 columns over its parts{what}", whole / sum(own), 1.1
        )
    clusters = np.arange(n_clusters)
    models = []
    for stepper in steppers:
        stepper.model.load(stepper.state.dump())
        models.append(stepper.model)
    whole, *own = smallest_times(
        *(partial(model.log_predictive_rows, clusters, 0, n_samples) for model in models)
    )
    report("  densities of new rows over those of the parts", whole / sum(own), 1.1)


def blocks():
    """Iterations of SubCluster from the true clusters, with bounds and with every cluster
    evaluated for every row."""
    fewest = block_rows.FEWEST_CLUSTERS
    for n_samples, n_clusters, spread, target in [
        (10**6, 100, 6.0, 0.1),
        (10**5, 15, 6.0, None),
        (10**5, 15, 1.0, 1.05),
    ]:
        likelihood, X, labels = make_problem("gaussian", n_samples, 2, n_clusters, spread=spread)
        likelihood = likelihood.resolve(X)
        data = likelihood.encode(X[:1])
        model = likelihood.bind(data, likelihood.tables(data, n_samples))
        prior = DirichletProcessPrior(n_samples, 1.0)
        rng, key = np.random.default_rng(0), iter(range(10**6))

        def stepper(at_least):
            rows = MemoryRows(X, 65536)  # noqa: B023
            saved = BlockState.start(rows, likelihood, labels, n_clusters)  # noqa: B023
            state = BlockState(rows, likelihood, prior, model, saved)  # noqa: B023
            kernel = SubClusterKernel()

            def step():
                block_rows.FEWEST_CLUSTERS = at_least
                kernel.step(state, rng, (0, 0, next(key)))  # noqa: B023

            return step

        here, plain = smallest_times(stepper(fewest), stepper(np.inf), repetitions=8)
        block_rows.FEWEST_CLUSTERS = fewest
        what = f"SubCluster {n_samples} x 2, {n_clusters} clusters {spread:g} apart: iteration"
        report(what, 1e3 * here, None, "ms")
        report("  the same / all clusters evaluated", here / plain, target)


# The estimator.


def scoring():
    likelihood, X, labels = make_problem("gaussian", 2024, 128, 16)
    model = DPMixture(
        likelihood=likelihood,
        init=labels[:1024],
        n_warmup=5,
        n_draws=25,
        n_chains=4,
        point_estimate="last",
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X[:1024])
    n_clusters = model.n_components_samples_.mean()
    (seconds,) = smallest_times(lambda: model.score_samples(X[1024:]), repetitions=3)
    report(
        f"score_samples: 1000 rows, 1024 x 128, 100 draws of {n_clusters:.0f} clusters",
        seconds,
        5,
        "s",
    )


MEMORY = """
import resource, sys, time, warnings
sys.path.insert(0, sys.argv[1])
from suite.problems import make_problem
from skdpm import DPMixture
warnings.simplefilter("ignore")
likelihood, X, labels = make_problem("gaussian", 100_000, 2, 15)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
began = time.perf_counter()
DPMixture(likelihood=likelihood, n_warmup=250, n_draws=250, n_chains=4, n_jobs=2,
          random_state=0).fit(X)
print(before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter() - began)
"""


def features():
    """Sweeps over the rows of Z, its parameters as they generated the data, and their update."""
    from skdpm.datasets import make_linear_gaussian_features
    from skdpm.features import samplers
    from skdpm.features.likelihoods import LinearGaussian
    from skdpm.features.priors import BetaBernoulliPrior
    from skdpm.features.state._state import FeatureState

    def state_of(n, d, k):
        X, Z, V = make_linear_gaussian_features(n, k, d, random_state=0)
        likelihood = LinearGaussian(25.0, component_precision=0.25, intercept=False).resolve(X)
        model = likelihood.bind(likelihood.encode(X))
        model.load({**model.save(), "components": V})
        return FeatureState(model, BetaBernoulliPrior(n, 2.0, k), Z)

    def seconds(state, name, repetitions=10):
        kernel, rng = samplers.SAMPLERS[name]().kernel(), np.random.PCG64(0)
        return smallest_times(lambda: kernel.run(state, rng), repetitions=repetitions)[0]

    what = "1000 x 10, 20 features"
    state, rng = state_of(1000, 10, 20), np.random.PCG64(0)
    for name, target in (
        ("element_gibbs", 2.0),
        ("particle_gibbs", 40.0),
        ("discrete_particle_filter", 60.0),
    ):
        report(f"sweep of {name}, {what}", 1e3 * seconds(state, name), target, "ms")
    update = smallest_times(lambda: state.update_params(rng))[0]
    report(f"update of components, {what}", 1e3 * update, 2.0, "ms")
    rows = seconds(state_of(20, 10, 20), "row_gibbs") / 20
    report("row of row_gibbs, 10 columns, 20 features", 1e3 * rows, 10.0, "ms")
    for axis, sizes in (("n", (500, 2000)), ("D", (10, 40)), ("K", (10, 40))):
        for name in ("element_gibbs", "particle_gibbs", "discrete_particle_filter"):
            times = [
                seconds(
                    state_of(
                        size if axis == "n" else 500,
                        size if axis == "D" else 10,
                        size if axis == "K" else 20,
                    ),
                    name,
                )
                for size in sizes
            ]
            exponent = np.log(times[1] / times[0]) / np.log(4)
            report(f"log-log slope of {name} in {axis}, {sizes[0]} to {sizes[1]}", exponent, None)


def memory():
    out = subprocess.run(
        [sys.executable, "-c", MEMORY, str(HERE)],
        check=True,
        capture_output=True,
        text=True,
        cwd=tempfile.gettempdir(),
    ).stdout
    before, peak, seconds = map(float, out.split())
    unit = 2.0**20 if sys.platform != "darwin" else 2.0**30  # ru_maxrss: KiB, on a Mac bytes
    report("100,000 x 2, 4 chains x 500 iterations: peak memory", peak / unit, 1, "GiB")
    report("  before the fit", before / unit, None, "GiB")
    report("  time of the fit, point estimate included", seconds, None, "s")


def import_time():
    program = "import time; t = time.perf_counter(); {}; print(time.perf_counter() - t)"
    best = {}
    for _ in range(9):
        for modules in ("sklearn", "sklearn, skdpm", "sklearn.mixture"):
            out = subprocess.run(
                [sys.executable, "-c", program.format(f"import {modules}")],
                check=True,
                capture_output=True,
                text=True,
                cwd=tempfile.gettempdir(),
            ).stdout
            best[modules] = min(best.get(modules, np.inf), float(out))
    added = best["sklearn, skdpm"] - best["sklearn"]
    report("import: skdpm adds to sklearn", added, 0.2, "s")
    report("  sklearn alone", best["sklearn"], None, "s")
    report(
        "  sklearn.mixture adds to sklearn", best["sklearn.mixture"] - best["sklearn"], None, "s"
    )


MEASUREMENTS = {
    "bare": bare,
    "gaussian": gaussian,
    "bernoulli": bernoulli,
    "moves": moves,
    "from_one_cluster": from_one_cluster,
    "linearity": linearity,
    "product": product,
    "blocks": blocks,
    "culled": culled,
    "growth_picture": growth_picture,
    "features": features,
    "import": import_time,
    "scoring": scoring,
    "memory": memory,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("which", nargs="*", choices=[[], *MEASUREMENTS], help="default: all")
    for which in parser.parse_args().which or MEASUREMENTS:
        MEASUREMENTS[which]()


if __name__ == "__main__":
    main()
