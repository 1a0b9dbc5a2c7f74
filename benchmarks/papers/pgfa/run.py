# SPDX-License-Identifier: BSD-3-Clause
"""Bouchard-Cote & Roth on particle Gibbs for feature allocation: sections 3.1 to 3.3.3, repeated.

    python benchmarks/papers/pgfa/run.py trap --out FOLDER
    python benchmarks/papers/pgfa/run.py all --out FOLDER --seconds 2

Each figure writes its traces (npz), a table (txt) and a picture (png); `--redraw` makes the last
two anew from the traces.

Data are drawn from the finite Beta-Bernoulli prior, a tenth of the entries is missing (of links, a
twentieth), and chains start from draws of the prior, the same ones for all samplers:
`--data-sets` times `--starts` chains of each. Precisions, components or weights, and the
concentration are resampled, under Gamma(1, 1) priors. Each chain has `--seconds` of processor
time (what is measured on it does not count), and all chains of a panel take turns in one thread,
so that a busy machine disturbs all alike. `--panel` is a regular expression for the names of the
panels to make; traces of the figure's other panels in the folder stay. After the table come
Friedman's test of equal samplers and the pairs that Nemenyi's test tells apart, of the last states
of chains from the same starts.
"""

import argparse
import re
import sys
import time
from pathlib import Path

import numpy as np
from scipy import stats
from threadpoolctl import threadpool_limits

from skdpm.chains import stream
from skdpm.datasets import make_lfrm, make_linear_gaussian_features, make_subclones
from skdpm.features.likelihoods import LFRM, LinearGaussian, Subclones
from skdpm.features.priors import BetaBernoulliPrior, IndianBuffetPrior
from skdpm.features.samplers import (
    DiscreteParticleFilter,
    ElementGibbs,
    ParticleGibbs,
    RowGibbs,
)
from skdpm.features.state._state import FeatureState
from skdpm.hyperpriors import Gamma
from skdpm.metrics import b_cubed_score

sys.path.append(str(Path(__file__).parents[1] / "pgsm"))
import traces

NOISE_PRECISION = 25.0
COMPONENT_PRECISION = 0.25
WEIGHT_PRECISION = 0.25
# Standard deviations of steps of a weight, and of the log of the precision; not in the paper.
WALK = 0.5

traces.LABELS.update(
    relative_log_density="relative log density",
    rmse="RMSE of missing entries",
    errors="entries not reconstructed",
    b_cubed="B-cubed",
    n_used="features",
)

SAMPLERS = {
    "element Gibbs": ElementGibbs(),
    "particle Gibbs": ParticleGibbs(),
    "discrete particle filter": DiscreteParticleFilter(),
}
WITH_ROWS = {**SAMPLERS, "row Gibbs": RowGibbs()}
STYLES = {
    "element Gibbs": {"color": "0.3"},
    "particle Gibbs": {"color": "C1"},
    "discrete particle filter": {"color": "C0"},
    "row Gibbs": {"color": "k", "linestyle": "--"},
    "discrete filter, annealed": {"color": "C2"},
}

PARTICLES = (2, 5, 20, 50, 100)
POWERS = (0.0, 1.0, 2.0, 3.0)
TEST_PATHS = ("zeros", "ones", "random", "unconditional", "conditional", "two_stage")
TUNING = {
    "particle Gibbs, particles": {f"{n}": ParticleGibbs(n) for n in PARTICLES},
    "particle Gibbs, annealing power": {
        f"{power:g}": ParticleGibbs(annealing_power=power) for power in POWERS
    },
    "particle Gibbs, test path": {path: ParticleGibbs.from_paper(path) for path in TEST_PATHS},
    "particle Gibbs, threshold": {
        f"{threshold:g}": ParticleGibbs(resample_threshold=threshold)
        for threshold in (0.0, 0.25, 0.5, 0.75, 1.0)
    },
    "discrete filter, particles": {f"{n}": DiscreteParticleFilter(n) for n in PARTICLES},
    "discrete filter, annealing power": {
        f"{power:g}": DiscreteParticleFilter(annealing_power=power) for power in POWERS
    },
    "discrete filter, test path": {
        path: DiscreteParticleFilter.from_paper(path) for path in TEST_PATHS
    },
}


class Problem:
    """A data set with missing entries, its truth, and the model of it.

    A subclass fits `likelihood` to `data`, which has `n_samples` rows, and writes `fit_of`.

    Attributes
    ----------
    error : str
        The name of the second figure of `fit_of`.
    n_components : int or None
        None: the model has the Indian buffet process as its prior, not the finite one.
    """

    def start(self, seed):
        """A state drawn from the prior, at concentration 1."""
        if self.n_components is None:
            prior = IndianBuffetPrior(self.n_samples, 1.0)
        else:
            prior = BetaBernoulliPrior(self.n_samples, 1.0, self.n_components)
        bit_generator = stream(seed)
        Z = prior.draw(np.random.Generator(bit_generator))
        model = self.likelihood.bind(self.data)
        model.start(Z.shape[1], bit_generator)
        return FeatureState(model, prior, Z)

    def update_params(self, state, bit_generator, warming):
        """Update everything but Z, as the estimator does; returns the state."""
        state.update_params(bit_generator, warming)
        return state

    def observe(self, state):
        """The figures of a state that are plotted, by name."""
        log_density, error = self.fit_of(state.allocations(), state.model.save())
        # The paper divides by the log density of the truth itself. With its absolute value more is
        # better, whatever the sign.
        relative = (log_density - self.log_density_true) / abs(self.log_density_true)
        return {
            "relative_log_density": relative,
            self.error: error,
            "n_used": np.count_nonzero(state.column_sums()),
            "log_joint": state.compute_log_joint(),
        }


class Rows(Problem):
    """Of the linear Gaussian model, in ten columns."""

    error = "rmse"

    def __init__(self, n_samples, n_components, random_state, *, infinite=False):
        self.n_samples = n_samples
        self.complete, Z, components = make_linear_gaussian_features(
            n_samples,
            n_components,
            component_precision=COMPONENT_PRECISION,
            noise_precision=NOISE_PRECISION,
            random_state=random_state,
        )
        rng = np.random.default_rng(random_state)
        self.missing = rng.random(self.complete.shape) < 0.1
        X = np.where(self.missing, np.nan, self.complete)
        self.n_components = None if infinite else n_components
        self.likelihood = LinearGaussian(
            noise_precision_prior=(1.0, 1.0), component_precision_prior=(1.0, 1.0), intercept=False
        ).resolve(X)
        self.data = self.likelihood.encode(X)
        truth = {"components": components, "noise_precision": NOISE_PRECISION}
        self.log_density_true, self.error_true = self.fit_of(Z, truth)

    def fit_of(self, Z, params):
        """log p(observed entries | all), and RMSE of the missing ones."""
        noise_precision = params["noise_precision"]
        residual = self.complete - Z @ params["components"]
        observed = residual[~self.missing]
        log_density = 0.5 * (
            observed.size * np.log(noise_precision / (2.0 * np.pi))
            - noise_precision * (observed @ observed)
        )
        return log_density, np.sqrt(np.mean(residual[self.missing] ** 2))


class Links(Problem):
    """Of the relational model, 100 nodes, with directions and without a bias."""

    error = "errors"

    def __init__(self, n_components, random_state, *, infinite=False, walk=False):
        self.n_samples = 100
        self.walk = walk
        self.links, Z, weights = make_lfrm(
            self.n_samples,
            n_components,
            weight_precision=WEIGHT_PRECISION,
            directed=True,
            random_state=random_state,
        )
        self.pairs = ~np.eye(self.n_samples, dtype=bool)
        rng = np.random.default_rng(random_state)
        self.signs = 2.0 * self.links - 1.0
        self.observed = self.pairs & (rng.random(self.links.shape) >= 0.05)
        X = np.where(self.observed, self.links, np.nan)
        self.n_components = None if infinite else n_components
        self.likelihood = LFRM(directed=True, bias=0.0).resolve(X)
        self.data = self.likelihood.encode(X)
        self.log_density_true, self.error_true = self.fit_of(Z, {"weights": weights})

    def fit_of(self, Z, params):
        """log p(observed links | all), and the number of pairs, observed or not, that are linked
        though a link is no more probable than none, or are not though it is no less."""
        signed = self.signs * (Z.astype(float) @ params["weights"] @ Z.T)
        log_density = -np.logaddexp(0.0, -signed[self.observed]).sum()
        return log_density, np.count_nonzero(signed[self.pairs] <= 0.0)

    def update_params(self, state, bit_generator, warming):
        """With `walk` as in the paper: every weight, then their precision, by a random walk."""
        if not self.walk:
            return super().update_params(state, bit_generator, warming)
        rng = np.random.Generator(bit_generator)
        Z, params = state.allocations().astype(bool), state.model.save()
        V, precision = np.array(params["weights"]), float(params["weight_precision"])
        scores = Z.astype(float) @ V @ Z.T
        for k, m in np.ndindex(V.shape):
            change = WALK * rng.standard_normal()
            cells = np.outer(Z[:, k], Z[:, m]) & self.observed
            signs, old = self.signs[cells], scores[cells]
            log_ratio = np.logaddexp(0.0, -signs * old).sum()
            log_ratio -= np.logaddexp(0.0, -signs * (old + change)).sum()
            log_ratio -= 0.5 * precision * ((V[k, m] + change) ** 2 - V[k, m] ** 2)
            if np.log(rng.random()) < log_ratio:
                V[k, m] += change
                scores[np.ix_(Z[:, k], Z[:, m])] += change
        # Prior Gamma(1, 1), and a step of the logarithm.
        change = WALK * rng.standard_normal()
        proposed = precision * np.exp(change)
        log_ratio = (0.5 * V.size + 1.0) * change
        log_ratio -= (1.0 + 0.5 * (V**2).sum()) * (proposed - precision)
        if np.log(rng.random()) < log_ratio:
            precision = proposed
        state.model.load({**params, "weights": V, "weight_precision": precision})
        return FeatureState(state.model, state.prior, Z.astype(np.uint8))


class Mutations(Problem):
    """Of Subclones, 200 mutations, all measured in all samples."""

    error = "b_cubed"

    def __init__(self, n_components, n_tumour_samples, random_state):
        self.n_samples = 200
        X, self.Z, prevalences = make_subclones(
            self.n_samples, n_components, n_tumour_samples, random_state=random_state
        )
        self.n_components = n_components
        self.likelihood = Subclones().resolve(X)
        self.data = self.likelihood.encode(X)
        truth = {"prevalences": prevalences}
        self.log_density_true, self.error_true = self.fit_of(self.Z, truth)

    def fit_of(self, Z, params):
        """log p(reads | all), and agreement with the true clones."""
        model = self.likelihood.bind(self.data)
        model.load(params)
        prior = BetaBernoulliPrior(self.n_samples, 1.0, self.n_components)
        state = FeatureState(model, prior, Z.astype(np.uint8))
        return state.compute_log_marginal() - state.log_prior(), b_cubed_score(self.Z, Z)


class Annealed:
    """The discrete particle filter, from a start that is annealed for half of 250 iterations, as
    chains of the estimator are by default."""

    n_warmup = 250

    def kernel(self):
        return DiscreteParticleFilter().kernel()


class Chain:
    """One chain of a sampler on a problem, with a clock of its own."""

    def __init__(self, problem, sampler, start, seed, *, adapting):
        self.problem = problem
        self.state = problem.start(start)
        self.kernel = sampler.kernel()
        self.adapting = adapting
        self.bit_generator = stream(seed)
        self.n_warmup = getattr(sampler, "n_warmup", 0)
        if self.n_warmup:
            self.state.model.anneal(self.n_warmup)
        self.seconds = 0.0
        self.iteration = 0

    def step(self):
        """One iteration, as those of the estimator."""
        began = time.thread_time()
        self.kernel.run(self.state, self.bit_generator, self.adapting)
        self.state = self.problem.update_params(
            self.state, self.bit_generator, self.iteration < self.n_warmup
        )
        self.state.prior.resample(self.state.column_sums(), Gamma(1.0, 1.0), self.bit_generator)
        self.iteration += 1
        self.seconds += time.thread_time() - began

    def run_until(self, seconds):
        while self.seconds < seconds:
            self.step()


def run(make_problem, samplers, args, *, adapting=False):
    """Traces {sampler: {quantity: array of shape (n_chains, n_marks)}}.

    `adapting` keeps the test paths that are for warm-up in use throughout.
    """
    problems = [make_problem(d) for d in range(args.data_sets)]
    chains = {
        name: [
            # Starts are the same for all samplers; what follows is not a stream of a start.
            Chain(problem, sampler, start=j, seed=1000 + j, adapting=adapting)
            for j, problem in enumerate(p for p in problems for _ in range(args.starts))
        ]
        for name, sampler in samplers.items()
    }
    at = traces.marks(args.seconds, n_marks=40, first=args.seconds / 300)
    quantities = ("cpu_seconds", *problems[0].observe(problems[0].start(0)))
    found = {
        name: {quantity: np.full((len(chains[name]), len(at)), np.nan) for quantity in quantities}
        for name in samplers
    }
    for m, mark in enumerate(at):
        for name, of_sampler in chains.items():
            for j, chain in enumerate(of_sampler):
                chain.run_until(mark)
                figures = {"cpu_seconds": chain.seconds, **chain.problem.observe(chain.state)}
                for quantity, value in figures.items():
                    found[name][quantity][j, m] = value
    for name, of_sampler in chains.items():
        found[name]["iterations"] = np.array([chain.iteration for chain in of_sampler])
        found[name][f"{problems[0].error}_true"] = np.array(
            [chain.problem.error_true for chain in of_sampler]
        )
    return found


def run_panels(panels, args):
    """Traces of the panels {name: (make_problem, samplers)} whose names match `--panel`."""
    return {
        name: run(*panel, args) for name, panel in panels.items() if re.search(args.panel, name)
    }


def trap(args):
    """Figure 2: two equal components, half of the rows has each; only Z is sampled."""
    n_samples = 100
    rng = np.random.default_rng(0)
    components = np.full((2, 1), 100.0)
    Z = np.repeat(np.eye(2, dtype=np.uint8), n_samples // 2, axis=0)
    X = Z @ components + rng.standard_normal((n_samples, 1)) / np.sqrt(NOISE_PRECISION)
    likelihood = LinearGaussian(
        noise_precision=NOISE_PRECISION, component_precision=COMPONENT_PRECISION, intercept=False
    ).resolve(X)
    data = likelihood.encode(X)
    found = {}
    for name, sampler in WITH_ROWS.items():
        model = likelihood.bind(data)
        model.load({**model.save(), "components": components})
        state = FeatureState(model, BetaBernoulliPrior(n_samples, 1.0, 2), Z)
        kernel, bit_generator = sampler.kernel(), stream(0)
        n_iterations = 2000
        seconds, log_joint, counts = 0.0, [], []
        for _ in range(n_iterations):
            log_joint.append(state.compute_log_joint())
            counts.append(state.column_sums())
            began = time.thread_time()
            kernel.run(state, bit_generator, False)
            seconds += time.thread_time() - began
        found[name] = {
            "log_joint": np.array(log_joint),
            "counts": np.array(counts).T,
            "seconds": np.array([seconds]),
        }
    return {"trap": found}


def tuning(args):
    """Section 3.2, figures S5 to S15: parameters of the filters, N = 100 and K = 20."""
    return {
        panel: run(lambda d: Rows(100, 20, d), samplers, args, adapting=True)
        for panel, samplers in TUNING.items()
    }


def comparison(args):
    """Figure 3: four samplers, N = 1000, K = 5 and 20, finite and infinite priors."""
    panels = {
        "K = 5": (lambda d: Rows(1000, 5, d), WITH_ROWS),
        "K = 20": (lambda d: Rows(1000, 20, d), SAMPLERS),
        "K = 20, Indian buffet process": (lambda d: Rows(1000, 20, d, infinite=True), SAMPLERS),
    }
    return run_panels(panels, args)


def relational(args):
    """Section 3.3.2, figures S19 to S22: links of 100 nodes, K = 5 and 20, two priors."""
    panels = {
        "K = 5": (lambda d: Links(5, d), WITH_ROWS),
        "K = 5, random walk of weights": (lambda d: Links(5, d, walk=True), WITH_ROWS),
        "K = 20": (lambda d: Links(20, d), SAMPLERS),
        "K = 20, Indian buffet process": (lambda d: Links(20, d, infinite=True), SAMPLERS),
    }
    return run_panels(panels, args)


def mutations(args):
    """Section 3.3.3, figures S23 to S25: mutations, K clones in D samples."""
    samplers = {**WITH_ROWS, "discrete filter, annealed": Annealed()}
    panels = {
        f"K = {K}, D = {D}": (lambda d, K=K, D=D: Mutations(K, D, d), samplers)
        for K, D in ((4, 4), (8, 10), (12, 10))
    }
    return run_panels(panels, args)


def error_of(arrays):
    """The name of the second figure of these traces."""
    return next(name for name in ("errors", "b_cubed", "rmse") if name in arrays)


def picture(name, panels):
    plt = traces.plt
    if name == "trap":
        (found,) = panels.values()
        fig, axes = plt.subplots(1, 2, figsize=(8.5, 3.0))
        for sampler, arrays in found.items():
            # From 1, so that the start is on the logarithmic scale.
            at = np.arange(1, arrays["counts"].shape[1] + 1)
            axes[0].plot(at, arrays["log_joint"], label=sampler, **STYLES[sampler])
            for m in arrays["counts"]:
                axes[1].plot(at, m, **STYLES[sampler])
        axes[0].set_ylabel("log joint (nats)", fontsize=8)
        axes[1].set_ylabel("rows with each feature", fontsize=8)
        for ax in axes:
            ax.set_xscale("log")
            ax.set_xlabel("iteration", fontsize=8)
            ax.tick_params(labelsize=7)
            ax.grid(alpha=0.25)
        axes[0].legend(fontsize=7)
        fig.tight_layout()
        return fig
    if name == "tuning":
        return tuning_picture(panels)
    error = error_of(next(iter(next(iter(panels.values())).values())))
    fig = traces.figure(panels, ("relative_log_density", error), STYLES)
    for line, found in zip(np.reshape(fig.axes, (-1, 2)), panels.values(), strict=True):
        truth = np.median(next(iter(found.values()))[f"{error}_true"])
        for ax, level in zip(line, (0.0, truth), strict=True):
            low, high = ax.get_ylim()
            ax.axhline(level, color="C2", linewidth=1.0, linestyle=":")
            ax.set_ylim(min(low, level - 0.03 * (high - low)), max(high, level))
        if error == "b_cubed":
            # From reads that fit nowhere to the truth: orders of magnitude.
            line[0].set_yscale("symlog", linthresh=1e-3)
    return fig


def tuning_picture(panels):
    """Medians only: with so many settings, lines of single chains cannot be told apart."""
    fig, grid = traces.plt.subplots(4, 2, figsize=(8.5, 8.5))
    for ax, (panel, found) in zip(grid.T.flat, panels.items(), strict=False):
        medians = {
            setting: {
                q: np.median(arrays[q], axis=0)[None]
                for q in ("cpu_seconds", "relative_log_density")
            }
            for setting, arrays in found.items()
        }
        styles = {setting: {"color": f"C{k}"} for k, setting in enumerate(found)}
        traces.draw(ax, medians, "relative_log_density", styles)
        ax.axhline(0.0, color="0.3", linewidth=1.0, linestyle=":")
        ax.set_title(panel, fontsize=9)
        ax.set_ylabel(traces.LABELS["relative_log_density"], fontsize=8)
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=7, loc="lower right")
    for ax in grid.T.flat[len(panels) :]:
        ax.set_axis_off()
    for ax in (grid[-1, 0], grid[-2, 1]):
        ax.set_xlabel("processor time (s)", fontsize=8)
    fig.tight_layout()
    return fig


def summary(name, panels):
    """A table: medians over chains at a twentieth of the time, and at the end."""
    if name == "trap":
        (found,) = panels.values()
        return "\n".join(
            f"{sampler:26} rows with each feature at the end {arrays['counts'][:, -1]}, share of "
            f"iterations with one empty {np.mean(arrays['counts'].min(axis=0) == 0):.3f}, log "
            f"joint {arrays['log_joint'][0]:.1f} -> {arrays['log_joint'][-1]:.1f}, "
            f"{1e3 * arrays['seconds'][0] / arrays['counts'].shape[1]:.4f} ms/iter."
            for sampler, arrays in found.items()
        )
    error = error_of(next(iter(next(iter(panels.values())).values())))
    heading = {"errors": "errors", "b_cubed": "B-cubed", "rmse": "RMSE"}[error]
    worst = np.min if error == "b_cubed" else np.max
    lines = [
        f"{'':58}{'log density':>12}{heading:>9}{'log density':>13}{heading:>9}{'worst':>9}"
        f"{'features':>10}{'ms/iter.':>10}"
    ]
    for panel, found in panels.items():
        truth = next(iter(found.values()))[f"{error}_true"]
        lines.append(f"{panel + ': truth':58}{0.0:12.3f}{np.median(truth):9.3f}")
        for sampler, arrays in found.items():
            quantities = ("cpu_seconds", "relative_log_density", error, "n_used")
            median = {q: np.median(arrays[q], axis=0) for q in quantities}
            seconds = median["cpu_seconds"]
            early = np.searchsorted(seconds, seconds[-1] / 20)
            cost = 1e3 * (arrays["cpu_seconds"][:, -1] / arrays["iterations"]).mean()
            lines.append(
                f"{panel + ': ' + sampler:58}{median['relative_log_density'][early]:12.3f}"
                f"{median[error][early]:9.3f}{median['relative_log_density'][-1]:13.3f}"
                f"{median[error][-1]:9.3f}{worst(arrays[error][:, -1]):9.3f}"
                f"{median['n_used'][-1]:10.1f}{cost:10.3f}"
            )
        lines.extend(significance(panel, found, quantity) for quantity in quantities[1:3])
    return "\n".join(lines)


def significance(panel, found, quantity):
    """Friedman's test that samplers are equal in the last states, chains from the same start being
    a block, and the pairs with p <= .05 in Nemenyi's test (Demsar 2006)."""
    last = np.array([arrays[quantity][:, -1] for arrays in found.values()])
    n_samplers, n_blocks = last.shape
    if quantity == "rmse" or quantity == "errors":
        last = -last
    mean_ranks = stats.rankdata(-last, axis=0).mean(axis=1)  # 1 is the best
    p = stats.friedmanchisquare(*last).pvalue
    scale = np.sqrt(n_samplers * (n_samplers + 1) / (12.0 * n_blocks))
    apart = []
    for i, j in zip(*np.triu_indices(n_samplers, 1), strict=True):
        difference = abs(mean_ranks[i] - mean_ranks[j])
        nemenyi = stats.studentized_range.sf(difference / scale, n_samplers, np.inf)
        if nemenyi <= 0.05:
            one, other = np.array(list(found))[sorted((i, j), key=mean_ranks.__getitem__)]
            apart.append(f"{one} before {other} ({nemenyi:.2g})")
    ranks = ", ".join(f"{name} {r:.1f}" for name, r in zip(found, mean_ranks, strict=True))
    return (
        f"{panel}: {quantity}, {n_blocks} chains each: mean ranks {ranks}; Friedman p = {p:.2g}; "
        f"Nemenyi: {'; '.join(apart) or 'none'}"
    )


FIGURES = {
    "trap": trap,
    "tuning": tuning,
    "comparison": comparison,
    "relational": relational,
    "mutations": mutations,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figure", choices=[*FIGURES, "all"])
    parser.add_argument("--out", required=True, help="folder for traces, tables and pictures")
    parser.add_argument("--data-sets", type=int, default=2)
    parser.add_argument("--starts", type=int, default=2, help="per data set")
    parser.add_argument("--seconds", type=float, default=2.0, help="processor time per chain")
    parser.add_argument("--panel", default="", help="expression for the names of panels to make")
    parser.add_argument("--redraw", action="store_true", help="from the traces that are there")
    args = parser.parse_args()
    threadpool_limits(1)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for name in FIGURES if args.figure == "all" else [args.figure]:
        stem = out / f"pgfa_{name}"
        if not args.redraw:
            path = stem.with_suffix(".npz")
            kept = traces.load(path) if args.panel and path.exists() else {}
            traces.save(path, {**kept, **FIGURES[name](args)})
        panels = traces.load(stem.with_suffix(".npz"))
        if name == "tuning":
            panels = {panel: panels[panel] for panel in TUNING}
        table = summary(name, panels)
        stem.with_suffix(".txt").write_text(table + "\n")
        traces.write(picture(name, panels), stem.with_suffix(".png"))
        print(f"{name}: {FIGURES[name].__doc__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
