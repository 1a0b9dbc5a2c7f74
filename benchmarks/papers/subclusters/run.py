# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons of Chang & Fisher (2013), section 6, and the growth of the cost of an iteration.

    python benchmarks/papers/subclusters/run.py synthetic --out FOLDER
    python benchmarks/papers/subclusters/run.py all --data FOLDER --out FOLDER
    python benchmarks/papers/subclusters/run.py targets --data FOLDER

FOLDER of the data holds mnist70k.npz (images as rows of an array X, digits y) and kos.npz (bags
of words, a scipy.sparse file). Each figure writes its traces (npz), a table (txt) and a picture
(png); `--redraw` makes the last two again from the traces.

Chains start from one cluster, or from labels drawn uniformly among 50, the same for all samplers;
the concentration is fixed. Time is the processor time of the chain if all chains of a panel have
one thread, otherwise wall time, which depends on the load of the machine.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.cluster import MiniBatchKMeans
from sklearn.decomposition import PCA
from sklearn.metrics import v_measure_score
from threadpoolctl import threadpool_limits

from skdpm import DPMixture, FiniteMixture
from skdpm.datasets import make_gaussian_mixture, make_high_dimensional_gaussians
from skdpm.mixture.likelihoods import Gaussian, Multinomial
from skdpm.mixture.samplers import SAMS, BlockedGibbs, Gibbs, SubCluster

sys.path.append(str(Path(__file__).parents[1] / "pgsm"))
import traces

traces.LABELS["log_joint"] = "log joint (nats per row)"

SAMPLERS = {
    "GIBBS": Gibbs(),
    "GIBBS+SAMS": SAMS(),
    "SUBC": SubCluster(),
    "SUBC+SUPC": SubCluster.from_paper("SUBC+SUPC"),
    "SUBC+SUPC APPROX": SubCluster.from_paper("SUBC+SUPC APPROX"),
    "FSD": BlockedGibbs(),
}
PARALLEL = ("SUBC", "SUBC+SUPC", "SUBC+SUPC APPROX", "FSD")
N_COMPONENTS = 100  # of FSD
STYLES = {
    "GIBBS": {"color": "0.3"},
    "GIBBS+SAMS": {"color": "C1"},
    "SUBC": {"color": "C0"},
    "SUBC+SUPC": {"color": "C3"},
    "SUBC+SUPC APPROX": {"color": "C2", "linestyle": "--"},
    "FSD": {"color": "C4"},
}
N_MARKS = 80
MOST_ITERATIONS = 100_000


# Chains and their clocks.


def estimator(sampler, n_threads, **params):
    """One chain of `n_threads` threads that keeps no labels."""
    settings = {
        "sampler": sampler,
        "n_chains": 1,
        "n_jobs": n_threads,
        "n_warmup": 0,
        "n_draws": MOST_ITERATIONS,
        "store_labels": False,
        "point_estimate": "last",
        **params,
    }
    if isinstance(sampler, BlockedGibbs):
        return FiniteMixture(N_COMPONENTS, **settings)
    return DPMixture(**settings)


class Chain:
    """The chain that `fit` would run, with a clock.

    Parameters
    ----------
    model : DPMixture or FiniteMixture
    X : array
    seed : int
    wall : bool
        Measure time on the wall, not processor time of this thread.
    """

    def __init__(self, model, X, seed, *, wall=False):
        self.program = model._program(X, model._resolved("likelihood"), model._resolved("sampler"))
        self.state = self.program.chain(seed, 0)
        self.clock = time.perf_counter if wall else time.thread_time
        self.times = np.zeros(0)  # at the ends of iterations

    def run(self, seconds=np.inf, n_iterations=MOST_ITERATIONS):
        """Iterations until one ends after `seconds` of this call, `n_iterations` at most."""
        times = []

        def go_on(**figures):
            times.append(self.clock() - began)
            return times[-1] < seconds

        began = self.clock()
        self.program.advance(self.state, self.state["iteration"] + n_iterations, go_on)
        elapsed = self.times[-1] if self.times.size else 0.0
        self.times = np.append(self.times, elapsed + np.array(times))

    @property
    def draws(self):
        return self.state["draws"]

    def labels(self):
        """Labels of the last draw."""
        _, kept = self.state["candidates"]["last"]
        return self.program.kept_partition(kept)[0]

    def passes(self):
        """Share of the passes over the rows that held no row back; NaN where none can."""
        proposed, accepted = self.state["acceptance"].get("sweep", (0, 0))
        return accepted / proposed if proposed else np.nan


def median_iteration(model, X, seconds, *, wall=False):
    """Median seconds of an iteration, after a first one, and the clusters at the end."""
    chain = Chain(model, X, 0, wall=wall)
    chain.run(n_iterations=2)
    chain.run(seconds)
    return np.median(np.diff(chain.times)[1:]), int(chain.draws["n_components"][-1])


def watch(X, y, names, n_threads, seconds, n_seeds, *, n_start, concentration, likelihood):
    """Traces {sampler: arrays} of chains from `n_start` clusters.

    `log_joint` and `n_clusters`, of shape (n_seeds, N_MARKS), are those of the last iteration that
    ended before each of the times `cpu_seconds`; NaN before the first.
    """
    n_samples = X.shape[0]
    wall = n_threads > 1
    found = {}
    for name in names:
        seeds = []
        for seed in range(n_seeds):
            init = np.random.default_rng(seed).integers(n_start, size=n_samples)
            model = estimator(
                SAMPLERS[name],
                n_threads if name in PARALLEL else 1,
                init=init,
                concentration=concentration,
                likelihood=likelihood,
            )
            chain = Chain(model, X, seed, wall=wall)
            chain.run(seconds)
            seeds.append(resampled(chain, seconds, n_samples, y))
            print(
                f"  {name} {seed}: {len(chain.times)} iterations, log joint per row "
                f"{seeds[-1]['log_joint'][-1]:.4f}, {seeds[-1]['n_clusters'][-1]:.0f} clusters",
                flush=True,
            )
        found[name] = {key: np.array([one[key] for one in seeds]) for key in seeds[0]}
    return found


def resampled(chain, seconds, n_samples, y):
    marks = traces.marks(seconds, n_marks=N_MARKS, first=seconds / 500)
    # The last iteration counts though it ended after the time was over.
    ends = np.minimum(chain.times, seconds)
    last = np.searchsorted(ends, marks, side="right")
    log_joint = np.append(np.nan, chain.draws["log_joint"] / n_samples)
    n_clusters = np.append(np.nan, chain.draws["n_components"])
    return {
        "cpu_seconds": marks,
        "log_joint": log_joint[last],
        "n_clusters": n_clusters[last],
        "v_measure": np.nan if y is None else v_measure_score(y, chain.labels()),
        "iterations": len(chain.times),
        "total_seconds": chain.times[-1],
        "passes": chain.passes(),
    }


# Figures 4 and 5.


@cache
def ten_gaussians():
    return make_gaussian_mixture(100_000, n_clusters=10, spread=0.03, random_state=0)


@cache
def mnist_components(folder):
    """Rows of 50 principal components, and digits."""
    with np.load(Path(folder) / "mnist70k.npz") as arrays:
        X, y = arrays["X"].reshape(len(arrays["X"]), -1), arrays["y"]
    return PCA(50, random_state=0).fit_transform(X.astype(np.float32) / 255), y


def synthetic(args):
    """Figure 4: 100,000 x 2 in ten clusters, starts, concentrations and threads varied."""
    X, y = ten_gaussians()
    panels = {}
    for n_threads, concentrations in ((1, (1.0, 100.0)), (args.threads, (1.0,))):
        names = SAMPLERS if n_threads == 1 else PARALLEL
        for concentration in concentrations:
            for n_start in (1, 50):
                panel = f"K₀ = {n_start}, $\\alpha$ = {concentration:g}, threads: {n_threads}"
                print(panel, flush=True)
                panels[panel] = watch(
                    X,
                    y,
                    names,
                    n_threads,
                    args.seconds,
                    args.seeds,
                    n_start=n_start,
                    concentration=concentration,
                    likelihood=Gaussian(),
                )
    return panels


def mnist(args):
    """Figure 5a: MNIST, 70,000 x 50 principal components, from 1 and from 50 clusters."""
    X, y = mnist_components(args.data)
    return two_starts("MNIST", X, y, Gaussian(), args.seconds_mnist, 1, args.threads)


def kos(args):
    """As figure 5b to e: KOS, 3430 bags of 6906 words, from 1 and from 50 clusters."""
    X = scipy.sparse.csr_array(scipy.sparse.load_npz(Path(args.data) / "kos.npz"))
    return two_starts(
        "KOS", X, None, Multinomial(concentration=1.0), args.seconds, args.seeds, args.threads
    )


def two_starts(data, X, y, likelihood, seconds, n_seeds, n_threads):
    panels = {}
    for n_start in (1, 50):
        panel = f"{data}, K₀ = {n_start}"
        print(panel, flush=True)
        panels[panel] = watch(
            X,
            y,
            [name for name in SAMPLERS if name != "SUBC+SUPC APPROX"],
            n_threads,
            seconds,
            n_seeds,
            n_start=n_start,
            concentration=1.0,
            likelihood=likelihood,
        )
    return panels


def comparison_picture(panels, n_columns, units):
    """Panels filled column by column, with the unit of time of each, and one legend above."""
    n_rows = len(panels) // n_columns
    plt = traces.plt
    fig, grid = plt.subplots(n_rows, n_columns, figsize=(9.5, 0.7 + 2.5 * n_rows), squeeze=False)
    for axes, (panel, found) in zip(grid.T.flat, panels.items(), strict=True):
        traces.draw(axes, found, "log_joint", STYLES)
        axes.set_title(panel, fontsize=8)
        axes.tick_params(labelsize=7)
    for axes in grid[:, 0]:
        axes.set_ylabel(traces.LABELS["log_joint"], fontsize=8)
    for axes, unit in zip(grid[-1], units, strict=True):
        axes.set_xlabel(unit, fontsize=8)
    handles, names = grid[0, 0].get_legend_handles_labels()
    fig.legend(handles, names, loc="upper center", ncols=6, fontsize=8, frameon=False)
    fig.tight_layout(rect=(0, 0, 1, 1 - 0.3 / fig.get_figheight()))
    return fig


def comparison_table(panels):
    """Means over seeds, at the end; seconds of each seed until it is near the best chain."""
    lines = [
        f"{'':46}{'log joint':>11}{'clusters':>10}{'V':>7}{'iterations':>12}{'s/iter.':>9}"
        "  passes   s to within 0.01 of the best"
    ]
    for panel, found in panels.items():
        best = max(np.nanmax(arrays["log_joint"]) for arrays in found.values())
        for name, arrays in found.items():
            reached = []
            for seconds, values in zip(arrays["cpu_seconds"], arrays["log_joint"], strict=True):
                near = np.flatnonzero(values >= best - 0.01)
                reached.append(f"{seconds[near[0]]:.2f}" if near.size else "-")
            cost = arrays["total_seconds"].sum() / arrays["iterations"].sum()
            lines.append(
                f"{panel + ': ' + name:46}{arrays['log_joint'][:, -1].mean():11.4f}"
                f"{arrays['n_clusters'][:, -1].mean():10.1f}{arrays['v_measure'].mean():7.3f}"
                f"{arrays['iterations'].mean():12.1f}{cost:9.4f}{arrays['passes'].mean():8.2f}   "
                f"{' '.join(reached)}"
            )
    return "\n".join(lines)


# Growth.

NS = (10_000, 30_000, 100_000, 300_000, 1_000_000)
KS = (5, 10, 20, 40, 80)
DS = (2, 10, 50)


def clusters_of(n_samples, n_features, n_clusters):
    """Separate clusters, whose labels a chain that starts there keeps."""
    if n_features > 2:
        return make_high_dimensional_gaussians(
            n_samples, n_features, n_clusters=n_clusters, random_state=0
        )
    separation = 0.5 / np.sqrt(n_clusters)
    return make_gaussian_mixture(
        n_samples,
        n_clusters=n_clusters,
        separation=separation,
        spread=separation / 8,
        random_state=0,
    )


def growth(args):
    """Seconds of a SubCluster iteration with n and with K, one thread."""
    cases = {"n, 2 columns, 6 clusters": [(n, 2, 6) for n in NS]}
    for n_features in DS:
        cases[f"K, 100,000 rows, {n_features} columns"] = [(100_000, n_features, k) for k in KS]
    panels = {}
    for line, shapes in cases.items():
        found = []
        for shape in shapes:
            X, y = clusters_of(*shape)
            model = estimator(SubCluster(), 1, init=y, concentration=1.0)
            found.append((*shape, *median_iteration(model, X, args.seconds / 4)))
            print(f"  {shape}: {found[-1][3]:.4f} s, {found[-1][4]} clusters", flush=True)
        panels[line] = {"SUBC": {"cost": np.array(found, dtype=np.float64)}}
    return panels


def slope(line, cost):
    """Of log seconds on log n or K."""
    x = cost[:, 0] if line.startswith("n") else cost[:, 2]
    return x, np.polyfit(np.log(x), np.log(cost[:, 3]), 1)[0]


def growth_picture(panels):
    fig, grid = traces.plt.subplots(1, 2, figsize=(8.5, 3.0))
    for k, (line, found) in enumerate(panels.items()):
        cost = found["SUBC"]["cost"]
        x, exponent = slope(line, cost)
        label = f"{line.partition(', ')[2]}: slope {exponent:.2f}"
        grid[int(line.startswith("K"))].loglog(x, cost[:, 3], "o-", color=f"C{k}", label=label)
    for axes, name in zip(grid, ("rows", "clusters"), strict=True):
        axes.set_xlabel(name, fontsize=8)
        axes.set_ylabel("seconds per iteration", fontsize=8)
        axes.tick_params(labelsize=7)
        axes.grid(alpha=0.25)
        low, high = axes.get_ylim()
        axes.set_ylim(low, 3.0 * high)  # room for the legend
        axes.legend(fontsize=7, loc="upper left")
    grid[1].set_xticks(KS, labels=[str(k) for k in KS])
    grid[1].set_xticks([], minor=True)
    fig.tight_layout()
    return fig


def growth_table(panels):
    lines = []
    for line, found in panels.items():
        cost = found["SUBC"]["cost"]
        x, exponent = slope(line, cost)
        points = ", ".join(f"{at:.0f}: {s:.4f}" for at, s in zip(x, cost[:, 3], strict=True))
        lines.append(f"{line}: slope {exponent:.2f}; seconds {points}")
    return "\n".join(lines)


# Targets.


def targets(args):
    """The project's speed targets, each with its measurement."""
    report("what", "measured", "target")
    X, y = make_gaussian_mixture(10**6, n_clusters=6, separation=0.2, random_state=0)
    times = {}
    for n_threads in (1, args.threads):
        model = estimator(SubCluster(), n_threads, init=y)
        chain = Chain(model, X, 0, wall=True)
        chain.run(n_iterations=30)
        costs = np.diff(chain.times)
        times[n_threads] = costs.min(), np.median(costs)
    (least, median), target = times[1], "0.12 s"
    report("1,000,000 x 2, 6 clusters, 1 thread", f"{median:.3f} s (least {least:.3f})", target)
    least, median = times[args.threads]
    ratio = times[1][1] / median, times[1][0] / least
    report(
        f"the same, {args.threads} threads",
        f"{median:.3f} s (least {least:.3f}): {ratio[0]:.2f} times faster ({ratio[1]:.2f})",
        "1.7 times",
    )
    X, y = make_gaussian_mixture(100_000, n_clusters=10, spread=0.02, random_state=0)
    for name in ("SUBC", "SUBC APPROX"):
        sampler = SubCluster.from_paper(name)
        found = [first_reach(sampler, X, y, seed) for seed in range(3)]
        report(
            f"100,000 x 2, one cluster to V >= 0.95, {name}",
            ", ".join(f"{seconds:.2f} s ({n} iterations)" for seconds, n in found),
            "2 s",
        )
    X, y = mnist_components(args.data)
    init = MiniBatchKMeans(30, random_state=0, n_init=1).fit_predict(X)
    for n_threads in (1, args.threads):
        model = estimator(SubCluster(), n_threads, init=init)
        chain = Chain(model, X, 0, wall=True)
        chain.run(n_iterations=12)
        costs = np.diff(chain.times)
        clusters = chain.draws["n_components"]
        report(
            f"MNIST-PCA50, {clusters[0]} to {clusters[-1]} clusters, {n_threads} thread(s)",
            f"{np.median(costs):.3f} s (least {costs.min():.3f})",
            "0.6 s" if n_threads > 1 else "",
        )
    size, above = peak_memory()
    report(
        f"memory-mapped 1,000,000 x 50, float32, {size:.0f} MB",
        f"peak {above:.0f} MB, data + {above - size:.0f} MB",
        "data + 200 MB",
    )


def report(*cells):
    print(f"{cells[0]:62}{cells[1]:56}{cells[2]}", flush=True)


def first_reach(sampler, X, y, seed, level=0.95, limit=30.0):
    """Processor time and iterations of a chain from one cluster to a V-measure of `level`."""
    chain = Chain(estimator(sampler, 1), X, seed)
    while not chain.times.size or chain.times[-1] < limit:
        chain.run(n_iterations=1)
        if v_measure_score(y, chain.labels()) >= level:
            return chain.times[-1], len(chain.times)
    return np.nan, len(chain.times)


def peak_memory():
    """MB of a file of rows, and the peak of a process that fits it above what it had before."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        X = np.lib.format.open_memmap(path, "w+", np.float32, (10**6, 50))
        rng = np.random.default_rng(0)
        centres = 5.0 * rng.standard_normal((6, 50))
        for start in range(0, len(X), 50_000):
            labels = rng.integers(6, size=50_000)
            X[start : start + 50_000] = centres[labels] + rng.standard_normal((50_000, 50))
        X.flush()
        size = X.nbytes / 2**20
        del X
        command = [sys.executable, __file__, "fit", "--data", str(path)]
        above = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return size, float(above)


def fit(args):
    """Fit the rows of an .npy file, memory-mapped, and print the peak of memory in MB."""
    before = peak_resident()
    model = estimator(SubCluster(), args.threads, n_draws=5)
    model.fit(np.load(args.data, mmap_mode="r"))
    print(peak_resident() - before)


def peak_resident():
    """MB of this process, on Linux. (getrusage would count the parent before exec.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


FIGURES = {"synthetic": synthetic, "mnist": mnist, "kos": kos, "growth": growth}


def make(name, args):
    """The traces, the table and the picture of a figure."""
    stem = Path(args.out) / f"subclusters_{name}"
    if not args.redraw:
        traces.save(stem.with_suffix(".npz"), FIGURES[name](args))
    panels = traces.load(stem.with_suffix(".npz"))
    if name == "growth":
        table, picture = growth_table(panels), growth_picture(panels)
    else:
        table = comparison_table(panels)
        units = ["time (s)"] * 2
        if name == "synthetic":
            units = ["processor time (s)"] * 2 + ["time (s)"]
        picture = comparison_picture(panels, len(units), units)
    stem.with_suffix(".txt").write_text(table + "\n")
    traces.write(picture, stem.with_suffix(".png"))
    print(f"{name}: {FIGURES[name].__doc__}\n{table}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*FIGURES, "all", "targets", "fit"])
    parser.add_argument("--data", help="folder of the data sets; fit: an .npy file")
    parser.add_argument("--out", help="folder for traces, tables and pictures")
    parser.add_argument("--seeds", type=int, default=2, help="1 for MNIST")
    parser.add_argument("--seconds", type=float, default=8.0, help="per chain")
    parser.add_argument("--seconds-mnist", type=float, default=45.0, help="per chain")
    parser.add_argument("--threads", type=int, default=2, help="of the parallel samplers")
    parser.add_argument("--redraw", action="store_true", help="from the traces that are there")
    args = parser.parse_args()
    threadpool_limits(1)
    if args.what in ("targets", "fit"):
        (targets if args.what == "targets" else fit)(args)
        return
    Path(args.out).mkdir(parents=True, exist_ok=True)
    for name in FIGURES if args.what == "all" else [args.what]:
        make(name, args)


if __name__ == "__main__":
    main()
