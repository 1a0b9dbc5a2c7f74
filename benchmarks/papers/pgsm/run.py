# SPDX-License-Identifier: BSD-3-Clause
"""Bouchard-Cote, Doucet & Roth (2017), sections 4.3 to 4.5: their comparisons, repeated.

    python benchmarks/papers/pgsm/run.py tuning --data FOLDER --out FOLDER
    python benchmarks/papers/pgsm/run.py all --data FOLDER --out FOLDER --seeds 3 --seconds 5

FOLDER of the data holds npz files with arrays X and, where known, y: s1, s2, dim064 and
mopsi_finland; s3, s4 and dim128 are used where they are there, else data of the same kind come
from `skdpm.datasets`. Each figure writes its traces (npz), a table (txt) and a picture (png);
`--redraw` makes the last two anew from the traces.

Every chain starts from one cluster. A tenth of the rows is held out, the same ones throughout.
Each chain has `--seconds` of processor time (what is measured on it does not count), and all
chains of a panel take turns in one thread, so that a busy machine disturbs all alike.
"""

import argparse
from pathlib import Path

import numpy as np
import traces
from threadpoolctl import threadpool_limits

from skdpm.datasets import make_gaussian_mixture, make_high_dimensional_gaussians, make_pyclone
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, PyClone
from skdpm.mixture.samplers import PGSM, SAMS, Gibbs, SplitMerge


def make_bernoulli_mixture(uninformative):
    """Ber-0.25 and Ber-0.5, by the share of columns in which ones have the probability 0.5. In the
    others it is uniform for each of 16 clusters."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(5000) % 16)
    probabilities = rng.random((16, 50))
    probabilities[:, 50 - round(uninformative * 50) :] = 0.5
    return (rng.random((5000, 50)) < probabilities[labels]).astype(np.float64), labels


def make_ring():
    """A standard Gaussian cluster inside a ring, as C1, which the paper shows in a figure only. Of
    five components, the best fit uses one for the centre and four for the ring."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(2000) % 2)
    angle, distance = rng.uniform(0.0, 2.0 * np.pi, 2000), 5.0 + 0.5 * rng.standard_normal(2000)
    ring = distance[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return np.where(labels[:, None] == 1, ring, rng.standard_normal((2000, 2))), labels


GENERATORS = {
    "s3": lambda: make_gaussian_mixture(spread=0.05, random_state=3),
    "s4": lambda: make_gaussian_mixture(spread=0.06, random_state=4),
    "dim128": lambda: make_high_dimensional_gaussians(1024, 128, random_state=0),
    "ber_0.25": lambda: make_bernoulli_mixture(0.25),
    "ber_0.5": lambda: make_bernoulli_mixture(0.5),
    "mutations": lambda: make_pyclone(
        10_000,
        1,
        depth=200,
        copy_numbers=((1, 1), (1, 2), (0, 2)),
        tumour_content=0.8,
        random_state=0,
    )[:2],
    "ring": make_ring,
}

GIBBS = {"Gibbs": Gibbs()}
PURE = {
    **GIBBS,
    "SAMS": SAMS("cluster_informed", gibbs_sweeps=0),
    "Jain-Neal": SplitMerge(gibbs_sweeps=0),
    "PGSM": PGSM(gibbs_sweeps=0),
}
MIXED = {
    **GIBBS,
    "SAMS + Gibbs": SAMS("cluster_informed"),
    "Jain-Neal + Gibbs": SplitMerge(),
    "PGSM + Gibbs": PGSM(),
}
LEVELS = {
    **GIBBS,
    "SAMS + Gibbs": MIXED["SAMS + Gibbs"],
    "SAMS, uniform anchors, + Gibbs": SAMS("uniform"),
    "PGSM + Gibbs": MIXED["PGSM + Gibbs"],
}
COLOURS = {"Gibbs": "0.3", "SAMS": "C1", "Jain-Neal": "C2", "PGSM": "C0"}
STYLES = {
    **{name: {"color": COLOURS[name], "linestyle": "--"} for name in PURE},
    **{name: {"color": COLOURS[name.partition(" ")[0]]} for name in MIXED},
}

TUNING = {
    "number of particles": {f"{n}": PGSM(n, gibbs_sweeps=0) for n in (5, 20, 50, 100)},
    "second anchor": {
        kind.replace("_", " "): PGSM(anchors=kind, gibbs_sweeps=0)
        for kind in ("uniform", "cluster_informed", "threshold_informed")
    },
    "number of anchors": {
        f"{n}, uniform": PGSM(n_anchors=n, anchors="uniform", gibbs_sweeps=0) for n in (2, 3, 4)
    },
    "resampling threshold": {
        f"{threshold:g}": PGSM(resample_threshold=threshold, gibbs_sweeps=0)
        for threshold in (0.0, 0.25, 0.5, 0.75, 1.0)
    },
}
ANCHORS = TUNING["second anchor"]
FINITE = {
    "Gibbs": Gibbs(),
    "PGSM, 2 anchors": PGSM(anchors="uniform", gibbs_sweeps=0),
    "PGSM, 3 anchors": PGSM(n_anchors=3, anchors="uniform", gibbs_sweeps=0),
}


def data_set(name, folder):
    """X and true clusters (or None) of a data set of the folder, or of a generator."""
    path = Path(folder) / f"{name}.npz"
    if path.exists() or name not in GENERATORS:
        with np.load(path) as arrays:
            return arrays["X"].astype(float), arrays["y"] if "y" in arrays.files else None
    return GENERATORS[name]()


def title(panel, folder):
    """Of a panel; says where data of a fixed set's name were generated."""
    path = Path(folder) / f"{panel.lower()}.npz"
    if panel.lower() in ("s3", "s4", "dim128") and not path.exists():
        return f"{panel}-like (generated)"
    return panel.replace("BER_", "Ber-").replace("_FINLAND", "")


def problem(name, folder):
    """The data set under the paper's prior, or one near it."""
    X, y = data_set(name, folder)
    if name.startswith("ber"):
        return traces.Problem(X, y, Bernoulli(a=1.0, b=1.0))
    if name == "mutations":
        # As fine a grid as that of the paper's code: a thousand mutations determine a prevalence.
        return traces.Problem(X, y, PyClone("binomial", n_grid=1000))
    if name.startswith("dim"):
        return traces.Problem(X, y, high_dimensional_prior(X))
    # The paper's hyperparameters, for columns of unit variance.
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    likelihood = Gaussian(mean=0.0, mean_precision=1.0, df=X.shape[1] + 2, scale=1.0)
    return traces.Problem(X, y, likelihood, n_components=5 if name == "ring" else None)


def high_dimensional_prior(X):
    """A prior in the units of DIM064 and DIM128, whose clusters have variances of 1 to 7.

    With the paper's, S = I on D + 2 degrees of freedom, the true partition is far from the mode:
    64 rows of a cluster do not determine a covariance of 64 columns, so the prior decides what a
    cluster is. This one expects variances of 4, on 2 D degrees of freedom.
    """
    n_features = X.shape[1]
    df = 2 * n_features
    return Gaussian(mean_precision=1e-3, df=df, scale=4.0 * (df - n_features - 1))


def sampled(names, samplers, folder, args):
    """Traces of the same samplers on several data sets."""
    return {
        name.upper(): traces.run(
            problem(name, folder), samplers, n_seeds=args.seeds, seconds=args.seconds
        )
        for name in names
    }


def high_dimensional_names():
    return ("ber_0.25", "ber_0.5", "dim064", "dim128")


def tuning(args):
    """Figure 3: parameters of the pure PGSM on S1, each varied about the defaults."""
    data = problem("s1", args.data)
    return {
        panel: traces.run(data, samplers, n_seeds=args.seeds, seconds=args.seconds)
        for panel, samplers in TUNING.items()
    }


def anchors(args):
    """Figure 4: anchor proposals of the pure PGSM in many columns."""
    return sampled(("ber_0.5", "dim128"), ANCHORS, args.data, args)


def finite(args):
    """Figure 5: a finite mixture of five components, two and three anchors."""
    return sampled(("ring",), FINITE, args.data, args)


def pure(args):
    """Figure 6: single kernels on S1 to S4."""
    return sampled(("s1", "s2", "s3", "s4"), PURE, args.data, args)


def mixed(args):
    """Figure 7: split-merge moves in turn with Gibbs sweeps, on S1 to S4."""
    return sampled(("s1", "s2", "s3", "s4"), MIXED, args.data, args)


def high_dimensional(args):
    """Figure 8: binary data and Gaussian clusters in many columns, single and mixed kernels."""
    return sampled(high_dimensional_names(), PURE | MIXED, args.data, args)


def levels(args):
    """Whether mixed kernels reach the same level on binary data from one cluster and from the true
    ones; the later halves of `--seconds`."""
    found = {}
    for name in ("ber_0.25", "ber_0.5"):
        data = problem(name, args.data)
        found[name.upper()] = {
            f"{sampler}, from {start}": later_half(data, LEVELS[sampler], labels, args)
            for sampler in LEVELS
            for start, labels in (("one cluster", None), ("the truth", data.y))
        }
    return found


def later_half(data, sampler, labels, args):
    """Figures of the chains of a sampler at twelve times, arrays of shape (n_seeds, 12)."""
    rows = []
    for seed in range(args.seeds):
        adapt_seconds = traces.ADAPTING * args.seconds
        chain = traces.Chain(data, sampler, seed, adapt_seconds=adapt_seconds, labels=labels)
        for mark in np.linspace(0.5, 1.0, 12) * args.seconds:
            chain.run_until(mark)
            rows.append({**data.observe(chain.state), "cpu_seconds": chain.seconds})
    return {key: np.reshape([row[key] for row in rows], (args.seeds, -1)) for key in rows[0]}


def mopsi(args):
    """Figure 9: locations of users in Finland; there are no true clusters."""
    return sampled(("mopsi_finland",), PURE | MIXED, args.data, args)


def maps(args):
    """Figure 9 d to j: predictive densities of MOPSI after a sweep from a cluster for each row,
    after PGSM from one cluster for the same time, and after `--seconds` of Gibbs."""
    data = problem("mopsi_finland", args.data)
    grid = np.stack(np.meshgrid(*map_axes(data.X)), axis=-1)
    new = data.bind_new(grid.reshape(-1, 2))
    found = {}

    def look(name, chain):
        figures = data.observe(chain.state) | {"cpu_seconds": chain.seconds}
        densities = data.log_densities(chain.state, new).reshape(grid.shape[:2])
        found[name] = {name: np.array(value) for name, value in figures.items()}
        found[name]["log_density"] = densities

    apart = np.arange(len(data.X))
    gibbs = traces.Chain(data, Gibbs(), 0, adapt_seconds=0.0, labels=apart)
    gibbs.step()
    look("Gibbs from a cluster for each row, one sweep", gibbs)
    seconds = gibbs.seconds
    mixed = traces.Chain(data, PGSM(), 0, adapt_seconds=traces.ADAPTING * seconds)
    mixed.run_until(seconds)
    look("PGSM + Gibbs from one cluster, as long", mixed)
    gibbs.run_until(seconds + args.seconds)
    look("Gibbs from a cluster for each row, at the end", gibbs)
    return {"MOPSI": found}


def map_axes(X):
    """The grid of the maps: 160 longitudes, 160 latitudes, in the columns' units."""
    return [np.linspace(*np.quantile(column, [0.0, 1.0]), 160) for column in X[:, ::-1].T]


def mutations(args):
    """Figure 10: 10,000 simulated mutations in one sample of a tumour."""
    return sampled(("mutations",), PURE | MIXED, args.data, args)


def picture(name, panels, args):
    if name in ("tuning", "anchors"):
        colours = [f"C{k}" for k in range(10)]
        styles = {
            panel: {sampler: {"color": c} for sampler, c in zip(found, colours, strict=False)}
            for panel, found in panels.items()
        }
        return traces.figure(panels, ("log_predictive", "v_measure"), styles)
    if name == "finite":
        return finite_picture(panels, problem("ring", args.data))
    if name == "maps":
        return maps_picture(panels, problem("mopsi_finland", args.data))
    second = "n_clusters" if name == "mopsi" else "v_measure"
    return traces.figure(panels, ("log_predictive", second), STYLES)


def finite_picture(panels, data):
    """Traces above, the last state of the first seed of each sampler below."""
    colours = {"Gibbs": "0.3", "PGSM, 2 anchors": "C0", "PGSM, 3 anchors": "C3"}
    styles = {sampler: {"color": colour} for sampler, colour in colours.items()}
    (found,) = panels.values()
    plt = traces.plt
    fig = plt.figure(figsize=(8.5, 5.0))
    grid = fig.add_gridspec(2, 6, height_ratios=(1.0, 1.1))
    for j, quantity in enumerate(("log_predictive", "log_joint")):
        axes = fig.add_subplot(grid[0, 3 * j : 3 * j + 3])
        traces.draw(axes, found, quantity, styles)
        axes.set_ylabel(traces.LABELS[quantity], fontsize=8)
        axes.set_xlabel("processor time (s)", fontsize=8)
        axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, loc="lower right")
    for j, sampler in enumerate(found):
        axes = fig.add_subplot(grid[1, 2 * j : 2 * j + 2])
        labels = found[sampler]["labels"][0]
        axes.scatter(*data.X.T, c=labels, s=1.5, cmap="tab10", vmin=0, vmax=9, rasterized=True)
        axes.set_title(f"{sampler}: last state", fontsize=8)
        axes.set_xlabel("first column (standard deviations)", fontsize=7)
        if j == 0:
            axes.set_ylabel("second column", fontsize=7)
        axes.tick_params(labelsize=6)
        axes.set_aspect("equal")
    fig.tight_layout()
    return fig


def maps_picture(panels, data):
    """The rows, and log densities on one scale."""
    (found,) = panels.values()
    fig, axes = traces.plt.subplots(1, 4, figsize=(10.0, 3.4), sharex=True, sharey=True)
    axes[0].plot(data.X[:, 1], data.X[:, 0], ".", markersize=1.0, color="0.3", rasterized=True)
    axes[0].set_title("rows", fontsize=7)
    across, up = map_axes(data.X)
    for ax, (name, arrays) in zip(axes[1:], found.items(), strict=True):
        ax.pcolormesh(across, up, arrays["log_density"], vmin=-12.0, vmax=4.0, rasterized=True)
        first, _, second = name.partition(", ")
        ax.set_title(f"{first},\n{second}: {arrays['n_clusters']:.0f} clusters", fontsize=7)
    for ax in axes:
        ax.set_xlabel("second column (standard deviations)", fontsize=7)
        ax.tick_params(labelsize=6)
    axes[0].set_ylabel("first column", fontsize=7)
    fig.tight_layout()
    return fig


def levels_table(panels):
    lines = [f"{'means of the times':56}{'held-out log density, each seed':>34}{'V':>8}"]
    for panel, found in panels.items():
        for name, arrays in found.items():
            densities = ", ".join(f"{x:.3f}" for x in arrays["log_predictive"].mean(axis=1))
            lines.append(f"{panel}: {name:46}{densities:>34}{arrays['v_measure'].mean():8.3f}")
    return "\n".join(lines)


def maps_table(panels):
    (found,) = panels.values()
    return "\n".join(
        f"{name:46} held-out log density {arrays['log_predictive']:.4f}, "
        f"{arrays['n_clusters']:.0f} clusters, log joint {arrays['log_joint']:.0f}, "
        f"{arrays['cpu_seconds']:.1f} s"
        for name, arrays in found.items()
    )


FIGURES = {
    "tuning": tuning,
    "anchors": anchors,
    "finite": finite,
    "pure": pure,
    "mixed": mixed,
    "high_dimensional": high_dimensional,
    "levels": levels,
    "mopsi": mopsi,
    "maps": maps,
    "mutations": mutations,
}
TABLES = {"levels": levels_table, "maps": maps_table}  # `traces.summary` of the others


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figure", choices=[*FIGURES, "all"])
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--out", required=True, help="folder for traces, tables and pictures")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="processor time per chain")
    parser.add_argument("--redraw", action="store_true", help="from the traces that are there")
    args = parser.parse_args()
    threadpool_limits(1)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES if args.figure == "all" else [args.figure]:
        stem = out / f"pgsm_{name}"
        if not args.redraw:
            traces.save(stem.with_suffix(".npz"), FIGURES[name](args))
        loaded = traces.load(stem.with_suffix(".npz"))
        panels = {title(panel, args.data): found for panel, found in loaded.items()}
        table = TABLES.get(name, traces.summary)(panels)
        stem.with_suffix(".txt").write_text(table + "\n")
        if name != "levels":
            traces.write(picture(name, panels, args), stem.with_suffix(".png"))
        print(f"{name}: {FIGURES[name].__doc__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
