# SPDX-License-Identifier: BSD-3-Clause
"""Comparisons of Chang & Fisher (2013), section 6, and the growth of the cost of an iteration.

    python benchmarks/papers/subclusters/run.py synthetic --out FOLDER
    python benchmarks/papers/subclusters/run.py all --data FOLDER --out FOLDER
    python benchmarks/papers/subclusters/run.py targets --data FOLDER

FOLDER of the data holds mnist70k.npz (images as rows of an array X, digits y), kos.npz and ap.npz
(bags of words, scipy.sparse files) and news20_w100.npz (words in texts X, groups y). Each figure
writes its traces (npz), a table (txt) and pictures (png) over seconds and over iterations;
`--redraw` makes these again from the traces.

Chains start from one cluster, or from labels drawn uniformly among 50, the same for all samplers;
the concentration and the hyperparameters are fixed. All chains of the figures have one thread, and
time is its processor time. That of several threads, in `targets`, is time on the wall.
"""

import argparse
import contextlib
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
from skdpm.mixture.blocks.program import WARMUP
from skdpm.mixture.likelihoods import Gaussian, Multinomial
from skdpm.mixture.samplers import SAMS, BlockedGibbs, Gibbs, SubCluster

sys.path.append(str(Path(__file__).parents[1] / "pgsm"))
import traces

traces.LABELS["log_joint"] = "log joint (nats per row)"
traces.LABELS["v_measure"] = "NMI (V-measure)"

SAMPLERS = {
    "GIBBS": Gibbs(),
    "GIBBS+SUPC": Gibbs.from_paper("GIBBS+SUPC"),
    "GIBBS+SAMS": SAMS(),
    "SUBC": SubCluster.from_paper("SUBC"),
    "SUBC+SUPC": SubCluster.from_paper("SUBC+SUPC"),
    "SUBC+SUPC APPROX": SubCluster.from_paper("SUBC+SUPC APPROX"),
    "FSD": BlockedGibbs(),
    "SubCluster()": SubCluster(),
}
N_COMPONENTS = 100  # of FSD
WORDS = Multinomial(concentration=1.0)
STYLES = {
    "GIBBS": {"color": "0.3"},
    "GIBBS+SUPC": {"color": "0.3", "linestyle": "--"},
    "GIBBS+SAMS": {"color": "C1"},
    "SUBC": {"color": "C0"},
    "SUBC+SUPC": {"color": "C3"},
    "SUBC+SUPC APPROX": {"color": "C3", "linestyle": "--"},
    "FSD": {"color": "C4"},
    "SubCluster()": {"color": "C2"},
}
N_MARKS = 40


# Chains and their clocks.


def estimator(sampler, n_threads, **params):
    """One chain of `n_threads` threads that keeps no labels; Gaussian in many columns, too."""
    settings = {
        "likelihood": Gaussian(),
        "sampler": sampler,
        "n_chains": 1,
        "n_jobs": n_threads,
        "n_warmup": 0,
        "n_draws": 1,
        "store_labels": False,
        "point_estimate": "last",
        **params,
    }
    if isinstance(sampler, BlockedGibbs):
        return FiniteMixture(N_COMPONENTS, **settings)
    return DPMixture(**settings)


class Chain(contextlib.ExitStack):
    """The chain that `fit` would run, with a clock that stands still between iterations.

    Parameters
    ----------
    model : DPMixture or FiniteMixture
    X : array
    seed : int
    wall : bool
        Measure time on the wall, not processor time of this thread.
    """

    def __init__(self, model, X, seed, *, wall=False):
        super().__init__()
        program = model._program(X, model._resolved("likelihood"), model._resolved("sampler"))
        self.live = self.enter_context(program.resume(program.chain(seed, 0)))
        self.clock = time.perf_counter if wall else time.thread_time
        self.seconds = []  # of each iteration
        self.elapsed = 0.0
        self.log_joint = np.nan

    def run(self, until=np.inf, n_iterations=np.inf):
        """Iterations until one ends after the time `until`, `n_iterations` at most."""
        stop = len(self.seconds) + n_iterations
        while self.elapsed < until and len(self.seconds) < stop:
            began = self.clock()
            self.live.step(len(self.seconds))
            self.log_joint = self.live.compute_log_joint()
            self.seconds.append(self.clock() - began)
            self.elapsed += self.seconds[-1]

    @property
    def n_clusters(self):
        return self.live.state.n_clusters

    def labels(self):
        return self.live.state.cluster_labels()

    def passes(self):
        """Share of the passes over the rows that held no row back; NaN where none can."""
        proposed, accepted = self.live.acceptance().get("sweep", (0, 0))
        return accepted / proposed if proposed else np.nan


def median_iteration(model, X, seconds, *, wall=False):
    """Median seconds of an iteration, after a first two, and the clusters at the end."""
    with Chain(model, X, 0, wall=wall) as chain:
        chain.run(n_iterations=2)
        chain.run(chain.elapsed + seconds)
        return np.median(chain.seconds[2:]), chain.n_clusters


def watch(X, y, seconds, n_seeds, *, n_start, concentration, likelihood):
    """Traces {sampler: arrays} of chains from `n_start` clusters.

    What is drawn has the shape (n_seeds, N_MARKS). It is observed at the ends of the first
    iterations that end after given times.
    """
    found = {}
    for name, sampler in SAMPLERS.items():
        seeds = []
        for seed in range(n_seeds):
            init = np.random.default_rng(seed).integers(n_start, size=X.shape[0])
            model = estimator(
                sampler,
                1,
                n_warmup=WARMUP if type(sampler) is SubCluster else 0,
                init=init,
                concentration=concentration,
                likelihood=likelihood,
            )
            with Chain(model, X, seed) as chain:
                seeds.append(observed(chain, seconds, X.shape[0], y))
            last = {key: values[-1] for key, values in seeds[-1].items() if np.ndim(values)}
            print(
                f"  {name} {seed}: {last['iteration']:.0f} iterations, log joint per row "
                f"{last['log_joint']:.4f}, {last['n_clusters']:.0f} clusters",
                flush=True,
            )
        found[name] = {key: np.array([one[key] for one in seeds]) for key in seeds[0]}
    return found


def observed(chain, seconds, n_samples, y):
    quantities = {
        "cpu_seconds": lambda: chain.elapsed,
        "iteration": lambda: len(chain.seconds),
        "log_joint": lambda: chain.log_joint / n_samples,
        "n_clusters": lambda: chain.n_clusters,
    }
    if y is not None:
        quantities["v_measure"] = lambda: v_measure_score(y, chain.labels())
    rows = []
    for mark in traces.marks(seconds, n_marks=N_MARKS, first=seconds / 500):
        if chain.elapsed < mark:
            chain.run(mark)
            row = [look() for look in quantities.values()]
        rows.append(row)
    columns = np.array(rows, dtype=np.float64).T
    return {**dict(zip(quantities, columns, strict=True)), "passes": chain.passes()}


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


def fixed_gaussian(X):
    """A Gaussian whose prior is the package's first guess from the rows."""
    guess = Gaussian().resolve(X)
    return Gaussian(**{name: getattr(guess, name) for name in guess.hyperparameters})


def synthetic(args):
    """Figure 4: 100,000 x 2 in ten clusters, starts and concentrations varied."""
    X, y = ten_gaussians()
    return starts("", X, y, fixed_gaussian(X), args.seconds, args.seeds, (1.0, 100.0))


def mnist(args):
    """Figure 5a: MNIST, 70,000 x 50 principal components, from 1 and from 50 clusters."""
    X, y = mnist_components(args.data)
    return starts("MNIST, ", X, y, fixed_gaussian(X), args.seconds_mnist, 1)


def press(args):
    """Figure 5b: Associated Press, 2246 bags of 10,473 words, from 1 and from 50 clusters."""
    return bags("ap", "AP, ", args)


def kos(args):
    """As figure 5c to e: KOS, 3430 bags of 6906 words, from 1 and from 50 clusters."""
    return bags("kos", "KOS, ", args)


def bags(name, title, args):
    X = scipy.sparse.csr_array(scipy.sparse.load_npz(Path(args.data) / f"{name}.npz"))
    return starts(title, X, None, WORDS, args.seconds, args.seeds)


def news20(args):
    """As figure 5b to e: 20 newsgroups, 16,242 sets of 100 words, from 1 and from 50 clusters."""
    with np.load(Path(args.data) / "news20_w100.npz") as arrays:
        X, y = scipy.sparse.csr_array(arrays["X"].astype(np.float64)), arrays["y"]
    return starts("20 newsgroups, ", X, y, WORDS, args.seconds, args.seeds)


def starts(data, X, y, likelihood, seconds, n_seeds, concentrations=(1.0,)):
    panels = {}
    for concentration in concentrations:
        for n_start in (1, 50):
            panel = f"{data}K₀ = {n_start}"
            if len(concentrations) > 1:
                panel += f", $\\alpha$ = {concentration:g}"
            print(panel, flush=True)
            panels[panel] = watch(
                X,
                y,
                seconds,
                n_seeds,
                n_start=n_start,
                concentration=concentration,
                likelihood=likelihood,
            )
    return panels


def comparison_pictures(panels):
    """Pictures over seconds and over iterations, by the end of their names."""
    observed = next(iter(next(iter(panels.values())).values()))
    quantities = [name for name in ("log_joint", "v_measure", "n_clusters") if name in observed]
    return {
        end: traces.figure(panels, quantities, STYLES, against=against, width=9.5)
        for end, against in (("", "cpu_seconds"), ("_iterations", "iteration"))
    }


def log_joint_at(arrays, seconds):
    """Mean over seeds of the last log joint before a time; NaN before the first."""
    last = [np.searchsorted(at, seconds, side="right") for at in arrays["cpu_seconds"]]
    values = np.column_stack([np.full(len(last), np.nan), arrays["log_joint"]])
    return values[np.arange(len(last)), last].mean()


def comparison_table(panels):
    """Means over seeds: log joint at two times and the end, the others at the end."""
    times = (0.1, 0.3)
    header = "".join(f"{f'at {share:g}':>11}" for share in times) + f"{'at the end':>11}"
    lines = [
        f"{'log joint per row, at shares of the time':46}{header}{'clusters':>10}{'NMI':>7}"
        f"{'iterations':>12}{'ms/iter.':>9}  passes"
    ]
    for panel, found in panels.items():
        length = min(arrays["cpu_seconds"][:, -1].min() for arrays in found.values())
        for name, arrays in found.items():
            log_joint = "".join(f"{log_joint_at(arrays, share * length):11.4f}" for share in times)
            v_measure = arrays.get("v_measure", np.full((1, 1), np.nan))[:, -1].mean()
            n_iterations = arrays["iteration"][:, -1]
            cost = 1e3 * arrays["cpu_seconds"][:, -1].sum() / n_iterations.sum()
            lines.append(
                f"{panel + ': ' + name:46}{log_joint}{arrays['log_joint'][:, -1].mean():11.4f}"
                f"{arrays['n_clusters'][:, -1].mean():10.1f}{v_measure:7.3f}"
                f"{n_iterations.mean():12.1f}{cost:9.2f}{arrays['passes'].mean():8.2f}"
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
    """Speed targets of the project: processor time of one thread, time on the wall of several."""
    report("what", "measured", "target")
    X, y = make_gaussian_mixture(10**6, n_clusters=6, separation=0.2, random_state=0)
    times = {}
    for n_threads in (1, args.threads):
        model = estimator(SubCluster(), n_threads, init=y)
        with Chain(model, X, 0, wall=n_threads > 1) as chain:
            chain.run(n_iterations=30)
        costs = chain.seconds[1:]
        times[n_threads] = min(costs), np.median(costs)
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
        with Chain(model, X, 0, wall=n_threads > 1) as chain:
            chain.run(n_iterations=12)
            n_clusters = chain.n_clusters
        costs = chain.seconds[1:]
        report(
            f"MNIST-PCA50, 30 to {n_clusters} clusters, {n_threads} thread(s)",
            f"{np.median(costs):.3f} s (least {min(costs):.3f})",
            "0.6 s" if n_threads > 1 else "",
        )
    for likelihood in ("gaussian", "auto"):
        size, above = peak_memory(likelihood)
        report(
            f"memory-mapped 1,000,000 x 50, float32, {size:.0f} MB, {likelihood}",
            f"peak {above:.0f} MB, data + {above - size:.0f} MB",
            "data + 200 MB",
        )


def report(*cells):
    print(f"{cells[0]:62}{cells[1]:56}{cells[2]}", flush=True)


def first_reach(sampler, X, y, seed, level=0.95, limit=30.0):
    """Processor time and iterations of a chain from one cluster to a V-measure of `level`."""
    with Chain(estimator(sampler, 1, init="single"), X, seed) as chain:
        while chain.elapsed < limit:
            chain.run(n_iterations=1)
            if v_measure_score(y, chain.labels()) >= level:
                return chain.elapsed, len(chain.seconds)
        return np.nan, len(chain.seconds)


def peak_memory(likelihood):
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
        command += ["--likelihood", likelihood]
        above = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return size, float(above)


def fit(args):
    """Fit the rows of an .npy file, memory-mapped, and print the peak of memory in MB."""
    before = peak_resident()
    model = estimator(SubCluster(), args.threads, n_draws=5, likelihood=args.likelihood)
    model.fit(np.load(args.data, mmap_mode="r"))
    print(peak_resident() - before)


def peak_resident():
    """MB of this process, on Linux. (getrusage would count the parent before exec.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


FIGURES = {
    "synthetic": synthetic,
    "mnist": mnist,
    "press": press,
    "kos": kos,
    "news20": news20,
    "growth": growth,
}


def make(name, args):
    """The traces, the table and the pictures of a figure."""
    stem = Path(args.out) / f"subclusters_{name}"
    if not args.redraw:
        traces.save(stem.with_suffix(".npz"), FIGURES[name](args))
    panels = traces.load(stem.with_suffix(".npz"))
    if name == "growth":
        table, pictures = growth_table(panels), {"": growth_picture(panels)}
    else:
        table, pictures = comparison_table(panels), comparison_pictures(panels)
    stem.with_suffix(".txt").write_text(table + "\n")
    for end, picture in pictures.items():
        traces.write(picture, stem.with_name(f"{stem.name}{end}.png"))
    print(f"{name}: {FIGURES[name].__doc__}\n{table}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*FIGURES, "all", "targets", "fit"])
    parser.add_argument("--data", help="folder of the data sets; fit: an .npy file")
    parser.add_argument("--out", help="folder for traces, tables and pictures")
    parser.add_argument("--seeds", type=int, default=2, help="1 for MNIST")
    parser.add_argument("--seconds", type=float, default=8.0, help="per chain")
    parser.add_argument("--seconds-mnist", type=float, default=45.0, help="per chain")
    parser.add_argument("--threads", type=int, default=2, help="in the targets")
    parser.add_argument("--likelihood", default="gaussian", help="in fit")
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
