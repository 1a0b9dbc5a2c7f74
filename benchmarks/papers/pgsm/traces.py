# SPDX-License-Identifier: BSD-3-Clause
"""Chains that are stopped at given amounts of processor time, and pictures of their traces.

The estimators keep draws per iteration; to compare samplers whose iterations cost differently,
chains here run kernels directly (as `skdpm.mixture.chains.program` does) and are looked at when
their own processor time passes a mark. What is recorded there costs no time of the chain.
"""

import io
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from PIL import Image
from scipy.special import logsumexp
from sklearn.metrics import v_measure_score

from skdpm.chains import stream
from skdpm.hyperpriors import Gamma
from skdpm.mixture.chains.program import REBUILD_EVERY
from skdpm.mixture.priors import DirichletProcessPrior, FiniteDirichletPrior
from skdpm.mixture.state._state import MixtureState

# Share of the time in which samplers may adapt their anchors: warm-up and draws, half and half.
ADAPTING = 0.5

QUANTITIES = ("cpu_seconds", "log_predictive", "v_measure", "n_clusters", "log_joint")
LABELS = {
    "log_predictive": "held-out log density\n(nats per row)",
    "v_measure": "V-measure",
    "n_clusters": "clusters",
    "log_joint": "log joint (nats)",
    "cpu_seconds": "processor time (s)",
    "iteration": "iterations",
}


class Problem:
    """Data with a part held out, and the model of them.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,) or None
        True clusters, for the V-measure of the rows that are not held out.
    likelihood : Likelihood
    n_components : int or None
        Of a finite Dirichlet prior; None: a Dirichlet process.
    concentration_prior : tuple (shape, rate)
        Gamma prior of the concentration, which is resampled in every iteration, from 1.
    held_out : float
        Share of the rows that are held out, the same ones for all samplers and seeds.
    """

    def __init__(
        self,
        X,
        y,
        likelihood,
        *,
        n_components=None,
        concentration_prior=(1.0, 0.1),
        held_out=0.1,
    ):
        order = np.random.default_rng(0).permutation(len(X))
        test, train = np.split(order, [round(held_out * len(X))])
        self.X, self.y = X[train], None if y is None else y[train]
        self.n_components = n_components
        self.concentration_prior = concentration_prior
        self.likelihood = likelihood.resolve(self.X)
        self.data = self.likelihood.encode(self.X)
        self.tested = None
        if len(test):
            self.tested = self.bind_new(X[test])

    def bind_new(self, X):
        """The kernel of new rows, whose densities `log_densities` computes."""
        data = self.likelihood.encode_new(X)
        return self.likelihood.bind(data, self.likelihood.tables(data, len(self.X) + len(X)))

    def log_densities(self, state, new):
        """Log predictive density, at a state, of every row of `new`."""
        stats = state.dump()
        new.load(stats)
        slots, out = np.arange(len(stats) + 1), []
        log_weights = state.prior.log_weights(state.cluster_sizes())[:, None]
        for first in range(0, new.n_samples, 1000):
            last = min(first + 1000, new.n_samples)
            out.append(
                logsumexp(new.log_predictive_rows(slots, first, last) + log_weights, axis=0)
            )
        return np.concatenate(out)

    def start(self, labels=None):
        """A state: of the given labels, or of one cluster."""
        n_samples = len(self.X)
        tables = self.likelihood.tables(self.data, n_samples)
        model = self.likelihood.bind(self.data, tables)
        if self.n_components is None:
            prior = DirichletProcessPrior(n_samples, 1.0)
        else:
            prior = FiniteDirichletPrior(n_samples, 1.0, self.n_components)
        return MixtureState(model, prior, np.zeros(n_samples, int) if labels is None else labels)

    def observe(self, state):
        """The figures of a state that are plotted, by name."""
        figures = {"n_clusters": state.n_clusters, "log_joint": state.compute_log_joint()}
        if self.y is not None:
            figures["v_measure"] = v_measure_score(self.y, state.cluster_labels())
        if self.tested is not None:
            figures["log_predictive"] = self.log_densities(state, self.tested).mean()
        return figures


class Chain:
    """One chain of a sampler on a problem, from given labels or one cluster, with a clock of its
    own."""

    def __init__(self, problem, sampler, seed, *, adapt_seconds, labels=None):
        self.problem = problem
        self.adapt_seconds = adapt_seconds
        self.state = problem.start(labels)
        self.kernel = sampler.kernel()
        self.bit_generator = stream(seed)
        self.seconds = 0.0
        self.iteration = 0

    def step(self):
        """One iteration, as those of the estimators."""
        began = time.thread_time()
        self.kernel.run(self.state, self.bit_generator, self.seconds < self.adapt_seconds)
        self.state.prior.resample(
            self.state.cluster_sizes(),
            Gamma(*self.problem.concentration_prior),
            self.bit_generator,
        )
        self.iteration += 1
        if self.iteration % REBUILD_EVERY == 0:
            self.state.rebuild()
        self.seconds += time.thread_time() - began

    def run_until(self, seconds):
        """At least one iteration, until the clock shows `seconds`."""
        self.step()
        while self.seconds < seconds:
            self.step()


def marks(seconds, n_marks=60, first=0.003):
    """Times at which chains are looked at, evenly spaced in their logarithm."""
    return np.geomspace(first, seconds, n_marks)


def run(problem, samplers, *, n_seeds, seconds):
    """Chains of several samplers, in turn from mark to mark, so that all meet the same machine.

    Parameters
    ----------
    problem : Problem
    samplers : dict of str to Sampler
    n_seeds : int
    seconds : float
        Processor time of each chain.

    Returns
    -------
    traces : dict of str to dict
        By sampler: arrays of shape (n_seeds, n_marks) by quantity, and of shape (n_seeds,)
        `iterations`, and the labels of the last state of each seed.
    """
    chains = {
        name: [
            Chain(problem, sampler, seed, adapt_seconds=ADAPTING * seconds)
            for seed in range(n_seeds)
        ]
        for name, sampler in samplers.items()
    }
    at = marks(seconds)
    traces = {
        name: {quantity: np.full((n_seeds, len(at)), np.nan) for quantity in QUANTITIES}
        for name in samplers
    }
    for m, mark in enumerate(at):
        for name, of_sampler in chains.items():
            for seed, chain in enumerate(of_sampler):
                chain.run_until(mark)
                figures = {"cpu_seconds": chain.seconds, **problem.observe(chain.state)}
                for quantity, value in figures.items():
                    traces[name][quantity][seed, m] = value
    for name, of_sampler in chains.items():
        traces[name]["iterations"] = np.array([chain.iteration for chain in of_sampler])
        traces[name]["labels"] = np.array(
            [chain.state.cluster_labels() for chain in of_sampler], dtype=np.uint16
        )
    return traces


def save(path, panels):
    """Write {panel: traces} to one compressed npz file, keys "panel|sampler|quantity"."""
    np.savez_compressed(
        path,
        **{
            f"{panel}|{sampler}|{quantity}": values.astype(
                np.float32 if values.dtype == np.float64 else values.dtype
            )
            for panel, traces in panels.items()
            for sampler, arrays in traces.items()
            for quantity, values in arrays.items()
        },
    )


def load(path):
    """The {panel: traces} that `save` wrote."""
    panels = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            panel, sampler, quantity = key.split("|")
            panels.setdefault(panel, {}).setdefault(sampler, {})[quantity] = arrays[key]
    return panels


def summary(panels):
    """A table: figures at the end, medians over seeds and the last tenth of the marks."""
    lines = [
        f"{'':44}{'log density':>12}{'V':>8}{'clusters':>10}{'log joint':>12}{'ms/iter.':>10}"
        f"{'V>=.95 at':>11}"
    ]
    for panel, traces in panels.items():
        for sampler, arrays in traces.items():
            tail = slice(-max(1, arrays["v_measure"].shape[1] // 10), None)
            median = {q: np.median(arrays[q][:, tail]) for q in QUANTITIES if q != "cpu_seconds"}
            cost = 1e3 * (arrays["cpu_seconds"][:, -1] / arrays["iterations"]).mean()
            lines.append(
                f"{panel + ': ' + sampler:44}{median['log_predictive']:12.4f}"
                f"{median['v_measure']:8.3f}{median['n_clusters']:10.1f}"
                f"{median['log_joint']:12.0f}{cost:10.3f}  {first_reach(arrays, 0.95)}"
            )
    return "\n".join(lines)


def first_reach(arrays, level):
    """CPU seconds at which each seed is first seen at a V-measure of `level`, as text."""
    texts = []
    for v, seconds in zip(arrays["v_measure"], arrays["cpu_seconds"], strict=True):
        reached = np.flatnonzero(v >= level)
        texts.append(f"{seconds[reached[0]]:.2f}" if reached.size else "-")
    return " ".join(texts)


def draw(axes, traces, quantity, styles, against="cpu_seconds"):
    """One panel: a thin line per seed and their median, against another quantity, on a log
    scale."""
    best, worst = -np.inf, np.inf
    for sampler, arrays in traces.items():
        x, values = arrays[against], arrays[quantity]
        style = styles[sampler]
        for one, v in zip(x, values, strict=True):
            axes.plot(one, v, linewidth=0.5, alpha=0.35, **style)
        axes.plot(
            np.median(x, axis=0),
            np.median(values, axis=0),
            linewidth=1.6,
            label=sampler,
            **style,
        )
        settled = values[:, values.shape[1] // 3 :]
        best = max(best, np.nanmax(values))
        worst = min(worst, np.nanmin(settled))
    axes.set_xscale("log")
    if quantity != "v_measure" and best > worst:
        # What all samplers leave within the first instants says little and would squash the rest.
        axes.set_ylim(worst - 0.05 * (best - worst), best + 0.05 * (best - worst))
    elif quantity == "v_measure":
        axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.25)
    axes.margins(x=0.01)


def figure(panels, quantities, styles, *, against="cpu_seconds", width=8.5, legend_columns=4):
    """Panels below each other, a column per quantity, one legend above for all samplers.

    Parameters
    ----------
    panels : dict of str to traces
    quantities : sequence of str
    styles : dict of str to dict
        Of `plot`, by sampler; or, by panel, such a dict, where the panels have samplers of their
        own: each row then has its own legend.
    against : str
        Quantity of the horizontal axes.
    """
    own_legends = next(iter(panels)) in styles
    n_rows = len(panels)
    height = 2.1 if n_rows > 2 else 2.6
    fig, grid = plt.subplots(
        n_rows, len(quantities), figsize=(width, 0.6 + height * n_rows), squeeze=False
    )
    for line, (panel, traces) in zip(grid, panels.items(), strict=True):
        for axes, quantity in zip(line, quantities, strict=True):
            draw(axes, traces, quantity, styles[panel] if own_legends else styles, against)
            axes.set_ylabel(LABELS[quantity], fontsize=8)
            axes.set_title(panel, fontsize=9)
            axes.tick_params(labelsize=7)
        if own_legends:
            line[-1].legend(fontsize=7, loc="lower right")
    for axes in grid[-1]:
        axes.set_xlabel(LABELS[against], fontsize=8)
    top = 1.0
    if not own_legends:
        handles, names = grid[0, 0].get_legend_handles_labels()
        fig.legend(
            handles, names, loc="upper center", ncols=legend_columns, fontsize=8, frameon=False
        )
        n_lines = -(-len(names) // legend_columns)
        top -= 0.2 * (1 + n_lines) / fig.get_figheight()
    fig.tight_layout(rect=(0, 0, 1, top))
    return fig


def write(fig, path):
    """A small PNG, with a palette of 64 colours."""
    buffer = io.BytesIO()
    fig.savefig(buffer, dpi=80, format="png")
    plt.close(fig)
    Image.open(buffer).convert("RGB").quantize(64).save(path, optimize=True)
