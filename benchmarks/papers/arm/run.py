# SPDX-License-Identifier: BSD-3-Clause
"""Herlau, Morup, Teh & Schmidt (2014), section 3: their comparisons of samplers, repeated.

    python benchmarks/papers/arm/run.py enumeration --out FOLDER
    python benchmarks/papers/arm/run.py table2 --out FOLDER
    python benchmarks/papers/arm/run.py networks --out FOLDER --data FOLDER
    python benchmarks/papers/arm/run.py networks --out FOLDER --network FILE --scale 0.8
    python benchmarks/papers/arm/run.py networks --out FOLDER --network air332
    python benchmarks/papers/arm/run.py seeds --out FOLDER --data FOLDER --names nips234
    python benchmarks/papers/arm/run.py defaults --out FOLDER --data FOLDER

FOLDER of the data holds networks as npz files, the adjacency matrix under "A": nips234,
protein230, football and karate, or those named by --names. FILE is such a file, or text with two
node names a line, or the name of a simulated network: air or connectome with a number of nodes,
as air332 or connectome1000. Results of chains are kept in FOLDER/cells, a file each: a run that
was stopped goes on where it was, and one with more chains or data sets adds to it; after a change
of the samplers, take another folder. Tables (txt) and pictures (png) are made anew every time.
--quick is for trying out, with other cells.

Two forms. "frozen", that of `ARM()`: a public chain has companions in warm-up and then a fixed
history. "growing", that of the paper (`ARM.from_paper`): all chains of a restart share their
history throughout. All hyperparameters are 1 and fixed, as in the paper.
"""

import argparse
import itertools
import sys
import time
import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from chains import Cells, Chain, Problem, autocorrelation_time, gelman_rubin, uncertain
from scipy.optimize import brentq
from scipy.special import betaln, gammaln
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from skdpm import DPMixture
from skdpm.chains import seed_entropy, stream
from skdpm.mixture.likelihoods import Bernoulli, Relational
from skdpm.mixture.samplers import ARM, SAMS, Alternate, Gibbs, SplitMerge

sys.path.append(str(Path(__file__).parents[1] / "pgsm"))
from traces import write

# Jain & Neal (2004), probabilities of ones: a line per cluster, a column per feature. Further
# features are copies of the last one.
JAIN_NEAL = np.array(
    [
        [0.95, 0.95, 0.95, 0.95, 0.95, 0.95],
        [0.05, 0.05, 0.05, 0.05, 0.95, 0.95],
        [0.95, 0.05, 0.05, 0.95, 0.95, 0.95],
        [0.05, 0.05, 0.05, 0.05, 0.05, 0.05],
        [0.95, 0.95, 0.95, 0.95, 0.05, 0.05],
    ]
)

# The paper's; Alternate, Gibbs sweeps and splits and merges of neighbouring clusters by SAMS; and
# ARM in turn with these. ARM + SM is `ARM()`.
METHODS = (
    "Gibbs",
    "SM",
    "Alternate",
    "bSM",
    "sARM",
    "ARM pair",
    "ARM all",
    "ARM + SM",
    "ARM + SAMS",
)
BLOCKS = {"sARM": "none", "ARM pair": "pair", "ARM all": "all", "ARM + SM": "all"}
COLOURS = dict(zip(METHODS, ("0.3", "C2", "0.3", "C4", "C1", "C0", "C3", "C6", "C3"), strict=True))
OURS = ("Alternate", "ARM + SM", "ARM + SAMS")
FORMS = ("frozen", "growing")


def make_sampler(method, form, n_history_chains, gibbs_sweeps=1):
    """The sampler of a method. Of those with a history, all but the paper's ARM freeze it."""
    if method == "Gibbs":
        return Gibbs()
    if method == "SM":
        return SplitMerge(gibbs_sweeps=gibbs_sweeps)
    if method == "Alternate":
        return Alternate()
    if method == "ARM + SAMS":
        arm = ARM(n_history_chains=n_history_chains, gibbs_sweeps=gibbs_sweeps, n_split_merges=0)
        return Alternate([arm, SAMS(anchors="neighbours", gibbs_sweeps=0)], move_share=0.3)
    if method == "bSM":
        return SplitMerge.from_paper(
            "bSM", n_history_chains=n_history_chains, gibbs_sweeps=gibbs_sweeps
        )
    settings = {
        "blocks": BLOCKS[method],
        "n_history_chains": n_history_chains,
        "gibbs_sweeps": gibbs_sweeps,
        "n_split_merges": ARM().n_split_merges if method == "ARM + SM" else 0,
    }
    return ARM(**settings) if form == "frozen" else ARM.from_paper("ARM", **settings)


def learns(method):
    return method not in ("Gibbs", "SM")


def has_history(method):
    return method in ("bSM", "ARM + SAMS") or method in BLOCKS


def grows(method, form):
    return form == "growing" and method in BLOCKS


# Figure 3: all partitions of four nodes.

FOUR = np.array([[0, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 1], [1, 0, 1, 0]])


def partitions_of_four():
    """All 15, labels numbered by first appearance."""
    found = [[0]]
    for _ in range(3):
        found = [[*labels, k] for labels in found for k in range(max(labels) + 2)]
    return np.array(found)


def posterior_of_four():
    """log p(partition) + log p(links | partition), normalised; from the densities themselves."""
    log_joint = []
    for labels in partitions_of_four():
        sizes = np.bincount(labels)
        total = gammaln(sizes).sum() - gammaln(5)
        for k in range(len(sizes)):
            for m in range(k + 1):
                pairs = [
                    FOUR[i, j]
                    for i in range(4)
                    for j in range(i)
                    if {labels[i], labels[j]} == {k, m}
                ]
                total += betaln(1 + sum(pairs), 1 + len(pairs) - sum(pairs))
        log_joint.append(total)
    p = np.exp(log_joint)
    return p / p.sum()


def frequencies_of_four(method, form, interlaced, n_iterations):
    """Frequencies of the 15 partitions in 100 stretches of the chain(s), (100, 15).

    Without sweeps in between, the history is given: all 15 partitions, since one found by such
    chains may hold too few states for them to get everywhere.
    """
    problem = Problem(FOUR, Relational(a=1.0, b=1.0))
    codes = {tuple(labels): code for code, labels in enumerate(partitions_of_four().tolist())}
    S = 8 if interlaced else 1
    sampler = make_sampler(method, form, S, gibbs_sweeps=int(interlaced))
    n_warmup = 250 if interlaced else 0
    adaptation = None
    if has_history(method) and not interlaced:
        adaptation = {
            "labels": partitions_of_four()[None].astype(np.uint8),
            "iterations": np.arange(1, 16),
            "frozen": True,
        }
    chain = Chain(problem, sampler, 0, 0, n_warmup=n_warmup, adaptation=adaptation)
    for _ in range(n_warmup):
        chain.step()
    counts = np.zeros((100, 15))
    n_each = n_iterations // 100 // chain.n_states
    for stretch in counts:
        for _ in range(n_each):
            chain.step()
            for state in chain.states:
                labels = state.cluster_labels().tolist()
                first = list(dict.fromkeys(labels))
                stretch[codes[tuple(first.index(k) for k in labels)]] += 1
    return {"frequencies": counts / counts.sum(axis=1, keepdims=True)}


def enumeration(args):
    """Figure 3: the posterior of a network of four nodes against frequencies in long chains."""
    n_iterations = 10_000 if args.quick else 160_000
    p = posterior_of_four()
    cases = {"moves alone, every partition in the history": ("frozen", False)}
    cases |= {"each move and a sweep, history frozen after 250": ("frozen", True)}
    cases |= {"each move and a sweep, history growing, 8 chains": ("growing", True)}
    independent = np.random.default_rng(0).multinomial(n_iterations, p, size=2000) / n_iterations
    lines = [
        f"{n_iterations} iterations; total variation of as many independent draws: "
        f"{np.abs(independent - p).sum(axis=1).mean() / 2:.5f}",
        f"{'':18}{'TV':>9}{'max |z| of 15':>16}",
    ]
    found = {}
    for case, (form, interlaced) in cases.items():
        lines.append(case)
        for method in args.methods:
            if method in (("Gibbs",) if interlaced else OURS):
                continue
            if form == "growing" and not grows(method, form):
                continue
            name = f"enumeration_{form}_{interlaced:d}_{method}_{n_iterations}"
            arguments = (method, form, interlaced, n_iterations)
            cell = args.cells.get(name, frequencies_of_four, *arguments)
            f = cell["frequencies"]
            mean, error = f.mean(axis=0), f.std(axis=0, ddof=1) / np.sqrt(len(f))
            found[case, method] = mean
            distance = np.abs(mean - p).sum() / 2
            lines.append(f"  {method:16}{distance:9.5f}{np.abs((mean - p) / error).max():16.2f}")
            print(lines[-1], flush=True)
    return "\n".join(lines), {"enumeration": enumeration_picture(p, cases, found)}


def enumeration_picture(p, cases, found):
    fig, axes = plt.subplots(len(cases), 1, figsize=(8.5, 2.2 * len(cases)), sharex=True)
    names = ["".join("abcd"[k] for k in labels) for labels in partitions_of_four()]
    for ax, case in zip(axes, cases, strict=True):
        ax.bar(np.arange(15), p, color="0.85", label="posterior")
        shown = [method for method in METHODS if (case, method) in found]
        for m, method in enumerate(shown):
            offset = 0.7 * ((m + 0.5) / len(shown) - 0.5)
            ax.plot(
                np.arange(15) + offset,
                found[case, method],
                "^" if method in OURS else "o",
                color=COLOURS[method],
                ms=2.5,
                label=method,
            )
        ax.set_title(case, fontsize=9)
        ax.set_ylabel("probability", fontsize=8)
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=7, ncols=7, loc="upper right")
        ax.set_ylim(0, 1.35 * p.max())
    axes[-1].set_xticks(np.arange(15), names)
    axes[-1].set_xlabel("clusters of the four nodes", fontsize=8)
    fig.tight_layout()
    return fig


# Table 2 and figures 4 and 6b: Bernoulli mixtures.

EXAMPLES = {1: 6, 2: 8, 3: 10}
TABLE2 = {  # the paper's: trace, indicator, normalised iterations
    (1, "Gibbs"): ("116.5(939)", "91.6(889)", "2000"),
    (1, "SM"): ("27.8(122)", "23.2(103)", "6741"),
    (1, "ARM pair"): ("14.9(77)", "13.6(71)", "6712"),
    (2, "Gibbs"): ("165.4(1656)", "131.3(1359)", "2000"),
    (2, "SM"): ("27.9(149)", "26.4(149)", "6855"),
    (2, "ARM pair"): ("8.5(50)", "9.2(49)", "6731"),
    (3, "Gibbs"): ("88.9(1374)", "99.3(1327)", "2000"),
    (3, "SM"): ("19.3(171)", "30.4(254)", "7503"),
    (3, "ARM pair"): ("10.8(125)", "14.7(140)", "6705"),
}
N_SIZES = 5


def make_jain_neal(n_features, seed):
    """100 binary rows in five clusters, and their clusters (Jain & Neal 2004, examples 1 to 3)."""
    rng = np.random.Generator(stream(seed_entropy(seed)))
    labels = rng.permutation(np.arange(100) % len(JAIN_NEAL))
    probabilities = JAIN_NEAL[:, np.minimum(np.arange(n_features), 5)][labels]
    return (rng.random(probabilities.shape) < probabilities).astype(np.float64), labels


def watch_mixture(example, seed, method, form, n_chains, n_warmup, n_iterations):
    """Autocorrelation times of the chains on one data set, and what they cost.

    The rows of the indicators, three of each planted cluster, depend on the data set alone.
    """
    X, y = make_jain_neal(EXAMPLES[example], seed)
    rng = np.random.default_rng(seed)
    rows = np.concatenate([rng.choice(np.flatnonzero(y == k), 3, replace=False) for k in range(5)])
    a, b = np.triu_indices(len(rows), 1)
    problem = Problem(X, Bernoulli(a=1.0, b=1.0))
    sampler = make_sampler(method, form, n_chains if grows(method, form) else 8)
    found = {key: [] for key in ("trace", "indicator", "cost", "moves", "sizes", "log_joint")}
    for index in range(1 if grows(method, form) else n_chains):
        chain = Chain(problem, sampler, seed, index, n_warmup=n_warmup)
        for _ in range(n_warmup):
            chain.step()
        before = chain.seconds
        sizes = np.zeros((chain.n_states, n_iterations, N_SIZES), dtype=np.uint8)
        labels = np.zeros((chain.n_states, n_iterations, len(rows)), dtype=np.uint8)
        log_joint = np.zeros((chain.n_states, n_iterations))
        for t in range(n_iterations):
            chain.step()
            for s, state in enumerate(chain.states):
                now = state.cluster_labels()
                counts = np.sort(np.bincount(now))[: -N_SIZES - 1 : -1]
                sizes[s, t, : len(counts)] = counts
                labels[s, t] = now[rows]
                log_joint[s, t] = state.compute_log_joint()
        found["trace"].extend(autocorrelation_time(sizes[:, :, 0]))
        for of_state in labels:
            together = of_state[:, a] == of_state[:, b]
            found["indicator"].append(autocorrelation_time(together.T).max())
        spent = (chain.seconds - before) / chain.sweep_seconds
        found["cost"].append(spent / chain.n_states / n_iterations)
        found["moves"].append(chain.moves())
        found["sizes"].extend(sizes)
        found["log_joint"].extend(log_joint)
    found["sizes"] = found["sizes"][:1]
    found["rhat"] = gelman_rubin(np.array(found.pop("log_joint"))[:, n_iterations // 2 :])
    return {key: np.array(values) for key, values in found.items()}


def table2(args):
    """Table 2, figures 4 and 6b: autocorrelation times on Jain & Neal's data."""
    n_warmup, n_iterations, n_chains = (50, 200, 2) if args.quick else (250, 2000, 8)
    cases = [
        (example, method, form)
        for example in EXAMPLES
        for method in args.methods
        for form in FORMS
        if form == "frozen" or grows(method, form)
    ]
    cells = {case: [] for case in cases}
    for seed in range(args.sets):  # so that a run that is stopped has some sets complete
        for example, method, form in cases:
            name = f"table2_{example}_{form}_{method}_w{n_warmup}_T{n_iterations}_{seed}"
            arguments = (example, seed, method, form, n_chains, n_warmup, n_iterations)
            cells[example, method, form].append(args.cells.get(name, watch_mixture, *arguments))
        print(f"data set {seed}", flush=True)
    found = {
        case: {key: np.array([cell[key] for cell in of_case]) for key in of_case[0]}
        for case, of_case in cells.items()
    }
    head = (
        f"{args.sets} data sets x {n_chains} chains x {n_iterations} iterations after {n_warmup}; "
        "mean (standard deviation over data sets x chains), +- standard error over data sets\n"
        f"{'':26}{'trace':>14}{'+-':>7}{'indicator':>14}{'+-':>7}{'norm. it.':>10}"
        f"{'accepted %':>11}{'Gibbs/this':>11}{'above 100':>10}{'R-hat':>7}   paper"
    )
    lines = [head, *(table2_line(*case, found, n_iterations) for case in found)]
    pictures = {}
    if {"Gibbs", "SM", "ARM all"} <= set(args.methods):
        pictures = {"sizes": sizes_picture(found), "scatter": scatter_picture(found)}
    return "\n".join(lines), pictures


def table2_line(example, method, form, found, n_iterations):
    cell = found[example, method, form]
    gibbs = np.nan
    if (example, "Gibbs", "frozen") in found:
        gibbs = found[example, "Gibbs", "frozen"]["trace"].mean()
    proposed, accepted = cell["moves"].sum(axis=(0, 1))
    texts = []
    for key in ("trace", "indicator"):
        of_sets = cell[key].mean(axis=1)
        error = of_sets.std(ddof=1) / np.sqrt(len(of_sets)) if len(of_sets) > 1 else np.nan
        texts.append(f"{uncertain(cell[key].ravel(), 1):>14}{error:7.1f}")
    accepted = f"{100 * accepted / proposed:.1f}" if proposed else "-"
    rhat = cell["rhat"].max() if form == "frozen" else np.nan  # that of sharing chains is void
    name = f"{example} {method}" + (f", {form}" if has_history(method) else "")
    rhat = "-" if np.isnan(rhat) else f"{rhat:.2f}"
    return (
        f"{name:26}{''.join(texts)}{n_iterations * cell['cost'].mean():10.0f}{accepted:>11}"
        f"{gibbs / cell['trace'].mean():11.1f}{(cell['trace'] > 100).sum():10d}"
        f"{rhat:>7}   {' '.join(TABLE2.get((example, method), ('-',)))}"
    )


def sizes_picture(found):
    """As figure 4: the largest clusters of one chain, as shares of the rows."""
    shown = ("Gibbs", "SM", "ARM all")
    fig, axes = plt.subplots(1, len(shown), figsize=(8.5, 2.6), sharey=True)
    for ax, method in zip(axes, shown, strict=True):
        shares = found[1, method, "frozen"]["sizes"][0, 0] / 100.0  # there are 100 rows
        ax.plot(np.cumsum(shares, axis=1), linewidth=0.5)
        ax.set_title(method, fontsize=9)
        ax.set_xlabel("iteration", fontsize=8)
        ax.tick_params(labelsize=7)
    axes[0].set_ylabel("rows in the largest 1, ..., 5 clusters", fontsize=8)
    fig.tight_layout()
    return fig


def scatter_picture(found):
    """As figure 6b: autocorrelation times, mean over the chains of a data set."""
    fig, axes = plt.subplots(1, 2, figsize=(8.0, 3.6))
    for ax, key in zip(axes, ("trace", "indicator"), strict=True):
        for other in ("Gibbs", "SM"):
            for example, marker in zip(EXAMPLES, "osD", strict=True):
                x = found[example, "ARM all", "frozen"][key].mean(axis=1)
                y = found[example, other, "frozen"][key].mean(axis=1)
                label = f"{other}, example {example}"
                ax.loglog(x, y, marker, color=COLOURS[other], ms=3, alpha=0.7, label=label)
        low, high = 0.8, max(ax.get_ylim()[1], ax.get_xlim()[1])
        ax.plot([low, high], [low, high], color="0.6", linewidth=0.8)
        ax.set_title(key, fontsize=9)
        ax.set_xlabel("ARM", fontsize=8)
        ax.set_ylabel("the other", fontsize=8)
        ax.tick_params(labelsize=7)
    axes[0].legend(fontsize=6)
    fig.tight_layout()
    return fig


# Tables 3 to 5, figures 5 and 6a: networks.


def draw_links(weights, blocks, affinity, n_links, rng):
    """A network in which nodes are linked with probability 1 - exp(-c w_i w_j affinity).

    The number c is such that `n_links` links are expected.
    """
    rates = np.triu(np.outer(weights, weights) * affinity[np.ix_(blocks, blocks)], 1)
    c = brentq(lambda c: -np.expm1(-c * rates).sum() - n_links, 0.0, 1e6 / rates.max())
    A = (rng.random(rates.shape) < -np.expm1(-c * rates)).astype(float)
    return A + A.T


def simulate_air(n):
    """Like USAir97, which has 332 airports and 2126 links: as many links per airport, hubs, and
    eight regions."""
    rng = np.random.default_rng(n)
    weights = np.arange(1.0, n + 1.0) ** -0.8
    affinity = np.ones((8, 8)) + 3.0 * np.eye(8)
    return draw_links(weights, rng.integers(8, size=n), affinity, round(2126 * n / 332), rng)


def simulate_connectome(n):
    """Like a connectome of n regions: twenty blocks at random places of two hemispheres, links
    that become rare with distance, unequal degrees, and a density of 3.6 %."""
    rng = np.random.default_rng(n)
    places = rng.random((20, 3)) + np.repeat([[0.0, 0, 0], [1.0, 0, 0]], 10, axis=0)
    distance = np.linalg.norm(places[:, None] - places, axis=2)
    weights = rng.lognormal(sigma=0.5, size=n)
    blocks = np.arange(n) % 20
    return draw_links(weights, blocks, np.exp(-4.0 * distance), 0.018 * n * (n - 1), rng)


def read_network(path, scale):
    """Adjacency of an npz file, of a text file with two node names a line, or simulated.

    Prepared as in the paper: links either way count, once, none of a node with itself; of the
    nodes the round(scale * n) of largest degree are kept, of equal degree those of larger index.
    """
    path = Path(path)
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            A = arrays["A"]
    elif path.name.startswith("air"):
        A = simulate_air(int(path.name.removeprefix("air")))
    elif path.name.startswith("connectome"):
        A = simulate_connectome(int(path.name.removeprefix("connectome")))
    else:
        lines = [line.split()[:2] for line in path.read_text().splitlines()]
        ends = [line for line in lines if len(line) == 2 and line[0][0] not in "#%*"]
        nodes = {
            name: k for k, name in enumerate(dict.fromkeys(itertools.chain.from_iterable(ends)))
        }
        A = np.zeros((len(nodes), len(nodes)))
        for one, other in ends:
            A[nodes[one], nodes[other]] = 1
    A = ((A + A.T.astype(float)) > 0).astype(float)
    np.fill_diagonal(A, 0)
    order = np.lexsort((np.arange(len(A)), A.sum(axis=1)))[::-1]
    kept = order[: round(scale * len(A))]
    return A[np.ix_(kept, kept)]


def watch_network(A, sampler, index, *, n_warmup, init, n_iterations=None, budget=None, seed=0):
    """Traces of one public chain, of so many iterations after warm-up, or for a budget of sweeps.

    Returns
    -------
    arrays : dict
        `log_joint` and `n_clusters`, (n_states, n_iterations), `cost`, (n_iterations,): Gibbs
        sweeps per state until the end of each iteration; `moves` proposed and accepted, (2,).
    """
    chain = Chain(
        Problem(A, Relational(a=1.0, b=1.0)), sampler, seed, index, n_warmup=n_warmup, init=init
    )
    log_joint, n_clusters, seconds = [], [], []
    while True:
        chain.step()
        log_joint.append([state.compute_log_joint() for state in chain.states])
        n_clusters.append([state.n_clusters for state in chain.states])
        seconds.append(chain.seconds)
        if n_iterations is not None and chain.iteration == n_warmup + n_iterations:
            break
        # A budget may be spent in warm-up, where states of companions cost more than the chain's.
        enough = chain.iteration >= n_warmup + 40 and chain.iteration % 20 == 0
        if budget is not None and enough and chain.cost >= budget:
            break
    return {
        "log_joint": np.array(log_joint).T,
        "n_clusters": np.array(n_clusters).T,
        "cost": np.array(seconds) / chain.sweep_seconds / chain.n_states,
        "moves": chain.moves(),
        "sweep_seconds": np.array(chain.sweep_seconds),
        "n_warmup": np.array(n_warmup),
    }


def scattered(n, index):
    """Where chains of the paper's form start: rows in twenty clusters, at random."""
    return np.random.default_rng(index).integers(20, size=n)


def run_network(name, A, form, method, n_history_chains, sizes, cells, budget=None, seed=None):
    """Public chains of a method on a network, a list of the dicts of `watch_network`.

    Frozen: independent chains from one cluster. Growing: restarts from random clusters, each of
    which is one public chain of `n_history_chains` states, or as many chains of other samplers.
    The seed is 0 unless one is given.
    """
    sampler = make_sampler(method, form, n_history_chains)
    if form == "frozen":
        n_public, n_warmup = sizes["chains"], sizes["warmup"]
    else:
        n_public, n_warmup = sizes["restarts"], sizes["first"]
        if not grows(method, form):
            n_public *= n_history_chains
    if not learns(method):
        n_warmup = 0
    limit = {"budget": budget} if budget else {"n_iterations": sizes["iterations"]}
    found = []
    for index in range(n_public):
        key = f"{name}_{form}_{method}_S{n_history_chains}_w{n_warmup}_T{sizes['iterations']}"
        key += "" if seed is None else f"_seed{seed}"  # then without a budget
        init = "single" if form == "frozen" else scattered(len(A), index)
        found.append(
            cells.get(
                f"{key}_{index}",
                watch_network,
                A,
                sampler,
                index,
                n_warmup=n_warmup,
                init=init,
                seed=seed or 0,
                **limit,
            )
        )
    return found


def second_half(cell, cost=np.inf):
    """The log joint of the later half of the iterations after warm-up and within a cost."""
    end = np.searchsorted(cell["cost"], cost, side="right")
    start = int(cell["n_warmup"])
    return cell["log_joint"][:, (start + end) // 2 : end]


def rhats(found, form, n_groups, cost=np.inf):
    """R-hat of the log joint, for each group of chains that did not share a history.

    Frozen: one group, all public chains. Growing: chain s of every restart, for each s.
    """
    halves = [row for cell in found for row in second_half(cell, cost)]
    n = min(len(row) for row in halves)
    if n < 10:
        return np.full(n_groups if form == "growing" else 1, np.nan)
    halves = np.array([row[-n:] for row in halves])
    if form == "frozen":
        return np.array([gelman_rubin(halves)])
    return np.array([gelman_rubin(halves[s::n_groups]) for s in range(n_groups)])


def network_paths(args):
    """Files of the networks that were asked for."""
    paths = (
        [Path(args.data) / f"{name}.npz" for name in args.names.split(",")] if args.data else []
    )
    paths += [Path(path) for path in args.network]
    if not paths:
        raise SystemExit("networks are in --data FOLDER, or --network FILE")
    return paths


def sizes_of_networks(args):
    """Numbers of chains and iterations."""
    sizes = {"warmup": 250, "iterations": 1000, "chains": 8, "restarts": 4, "first": 50, "S": 8}
    if args.quick:
        sizes = {"warmup": 40, "iterations": 60, "chains": 3, "restarts": 2, "first": 10, "S": 3}
    if args.iterations:
        sizes["iterations"] = args.iterations
    if args.chains:
        sizes["chains"] = args.chains
    return sizes


def networks(args):
    """Tables 3 to 5, figures 5 and 6a: R-hat and acceptance on networks."""
    sizes = sizes_of_networks(args)
    S = sizes["S"]
    lines, traces, by_S = [], {}, {}
    for path in network_paths(args):
        A = read_network(path, args.scale)
        name = path.stem if args.scale == 1 else f"{path.stem} x {args.scale:g}"
        for form in args.forms.split(","):
            # What ARM needs for its iterations, the others have too.
            reference = run_network(name, A, form, "ARM all", S, sizes, args.cells)
            budget = np.mean([cell["cost"][-1] for cell in reference])
            lines += network_head(name, A, form, sizes, budget)
            print("\n".join(lines[-3:]), flush=True)
            for method in args.methods:
                if form == "growing" and method == "ARM + SAMS":
                    continue  # the paper's form is for the paper's methods
                found = reference
                if method != "ARM all":
                    found = run_network(name, A, form, method, S, sizes, args.cells, budget)
                traces[name, form, method] = found
                lines.append(network_line(method, form, found, S))
                print(lines[-1], flush=True)
        for n_history_chains in map(int, filter(None, args.history_chains.split(","))):
            by_S[name, n_history_chains] = run_network(
                name, A, "frozen", "ARM all", n_history_chains, sizes, args.cells
            )
            line = network_line(
                f"ARM all, S = {n_history_chains}", "frozen", by_S[name, n_history_chains], S
            )
            lines.append(line)
            print(line, flush=True)
    pictures = {
        f"traces_{form}": traces_picture(traces, form) for form in args.forms.split(",")
    } | {"rhat": rhat_picture(traces, S)}
    if by_S:
        pictures["history_chains"] = history_chains_picture(by_S, traces)
    return "\n".join(lines), pictures


def seeds(args):
    """Frozen form, as many iterations for all: R-hat and levels of public chains by seed."""
    sizes = sizes_of_networks(args)
    methods = [method for method in args.methods if has_history(method)]
    lines = [f"{'':30}{'R-hat':>8}{'log joint':>11}{'means of chains, from the lowest':>36}"]
    for path in network_paths(args):
        A = read_network(path, args.scale)
        for method, seed in itertools.product(methods, range(args.seeds)):
            found = run_network(
                path.stem, A, "frozen", method, sizes["S"], sizes, args.cells, seed=seed
            )
            means = np.sort([second_half(cell).mean() for cell in found])
            lines.append(
                f"{f'{path.stem}, {method}, seed {seed}':30}{rhats(found, 'frozen', 1)[0]:8.2f}"
                f"{means.mean():11.1f}   {' '.join(f'{mean:.1f}' for mean in means)}"
            )
            print(lines[-1], flush=True)
    return "\n".join(lines), {}


def network_head(name, A, form, sizes, budget):
    if form == "frozen":
        what = (
            f"{sizes['chains']} public chains from one cluster, warm-up {sizes['warmup']}, "
            f"{sizes['S']} chains in it"
        )
    else:
        what = f"{sizes['restarts']} restarts of {sizes['S']} chains"
    return [
        "",
        f"{name}: {len(A)} nodes, {A.sum() / 2:.0f} links; {form}: {what}; ARM all "
        f"{sizes['iterations']} iterations, all others its {budget:.0f} sweeps",
        f"{'':20}{'R-hat':>12}{'accepted %':>12}{'sweeps/it.':>11}{'iterations':>11}"
        f"{'log joint':>11}{'lowest':>9}{'highest':>9}{'best':>9}{'clusters':>9}{'ms/sweep':>9}",
    ]


def network_line(method, form, found, n_groups):
    """R-hat, acceptance, cost; log joint: mean of the second half, of the lowest chain, of the
    highest, and the best single state."""
    means = np.array([row.mean() for cell in found for row in second_half(cell)])
    proposed, accepted = np.sum([cell["moves"] for cell in found], axis=0)
    costs = []
    for cell in found:
        start = int(cell["n_warmup"])
        before = cell["cost"][start - 1] if start else 0.0
        costs.append((cell["cost"][-1] - before) / (len(cell["cost"]) - start))
    clusters = np.mean([cell["n_clusters"][:, -1].mean() for cell in found])
    accepted = f"{100 * accepted / proposed:.2f}" if proposed else "-"
    return (
        f"{method:20}{uncertain(rhats(found, form, n_groups), 2):>12}{accepted:>12}"
        f"{np.mean(costs):11.2f}{np.mean([len(cell['cost']) for cell in found]):11.0f}"
        f"{means.mean():11.1f}{means.min():9.1f}{means.max():9.1f}"
        f"{max(cell['log_joint'].max() for cell in found):9.1f}{clusters:9.1f}"
        f"{1e3 * np.mean([cell['sweep_seconds'] for cell in found]):9.3f}"
    )


def traces_picture(traces, form):
    """As figure 5: log joint against Gibbs sweeps' worth of time; eight chains a panel."""
    names = list(dict.fromkeys(name for name, of, _ in traces if of == form))
    methods = list(dict.fromkeys(method for _, of, method in traces if of == form))
    fig, axes = plt.subplots(
        len(names),
        len(methods),
        figsize=(11, 0.5 + 1.9 * len(names)),
        sharex="row",
        sharey="row",
        squeeze=False,
    )
    for line, name in zip(axes, names, strict=True):
        lowest, highest = np.inf, -np.inf
        for ax, method in zip(line, methods, strict=True):
            found = traces[name, form, method]
            rows = [(cell["cost"], row) for cell in found for row in cell["log_joint"]][:8]
            for k, (cost, row) in enumerate(rows):
                step = max(1, len(row) // 1000)
                ax.plot(cost[::step], row[::step], linewidth=0.5, color=f"C{k}")
                lowest = min(lowest, np.quantile(row[len(row) // 3 :], 0.01))
                highest = max(highest, row.max())
            start = int(found[0]["n_warmup"])
            if start:
                ends = np.mean([cell["cost"][start - 1] for cell in found])
                ax.axvline(ends, color="0.4", linewidth=0.6, linestyle=":")
            ax.set_title(f"{name}: {method}" if ax is line[0] else method, fontsize=8)
            ax.tick_params(labelsize=6)
        margin = 0.15 * (highest - lowest)
        line[0].set_ylim(lowest - margin, highest + margin)
        line[0].set_ylabel("log joint (nats)", fontsize=7)
    for ax in axes[-1]:
        ax.set_xlabel("Gibbs sweeps' worth", fontsize=7)
    fig.tight_layout()
    return fig


def log_scale(ax):
    """A logarithmic scale of R-hat, with plain numbers."""
    ax.set_yscale("log")
    for axis in (ax.yaxis.set_major_formatter, ax.yaxis.set_minor_formatter):
        axis(matplotlib.ticker.LogFormatter(minor_thresholds=(2, 0.5)))


def rhat_picture(traces, n_groups):
    """R-hat of the second half so far, against time in Gibbs sweeps, a row a network."""
    names = list(dict.fromkeys(name for name, _, _ in traces))
    forms = [form for form in FORMS if any(of == form for _, of, _ in traces)]
    fig, axes = plt.subplots(
        len(names), len(forms), figsize=(4.2 * len(forms), 0.6 + 2.3 * len(names)), squeeze=False
    )
    for line, name in zip(axes, names, strict=True):
        for ax, form in zip(line, forms, strict=True):
            for method in METHODS:
                if (name, form, method) not in traces:
                    continue
                found = traces[name, form, method]
                start, end = (np.mean([cell["cost"][k] for cell in found]) for k in (0, -1))
                if int(found[0]["n_warmup"]):
                    start = np.mean([cell["cost"][int(cell["n_warmup"])] for cell in found])
                at = np.linspace(start, end, 40)
                values = [rhats(found, form, n_groups, cost).mean() for cost in at]
                dashes = "--" if method in OURS else "-"
                ax.plot(at, values, dashes, color=COLOURS[method], linewidth=1, label=method)
            ax.axhline(1.1, color="0.6", linewidth=0.6, linestyle="--")
            log_scale(ax)
            ax.set_title(f"{name}, {form}", fontsize=8)
            ax.tick_params(labelsize=6, which="both")
        line[0].set_ylabel("R-hat", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel("Gibbs sweeps' worth", fontsize=8)
    handles = axes[0, 0].get_legend_handles_labels()
    fig.legend(*handles, fontsize=6, ncols=len(METHODS), loc="upper center")
    fig.tight_layout(rect=(0, 0, 1, 0.97))
    return fig


def history_chains_picture(by_S, traces):
    """As figure 6a: R-hat of ARM against the number of chains that share a history in warm-up."""
    names = list(dict.fromkeys(name for name, _ in by_S))
    fig, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names) + 0.5, 2.6), squeeze=False)
    for ax, name in zip(axes[0], names, strict=True):
        numbers = [S for of, S in by_S if of == name]
        values = [rhats(by_S[name, S], "frozen", 1)[0] for S in numbers]
        ax.plot(numbers, values, "o-", color=COLOURS["ARM all"], ms=3, linewidth=1)
        if (name, "frozen", "SM") in traces:
            ax.axhline(
                rhats(traces[name, "frozen", "SM"], "frozen", 1)[0],
                color=COLOURS["SM"],
                linestyle="--",
                linewidth=1,
                label="SM",
            )
            ax.legend(fontsize=7)
        ax.set_xscale("log", base=2)
        log_scale(ax)
        ax.set_xticks(numbers, [str(S) for S in numbers])
        ax.set_title(name, fontsize=9)
        ax.set_xlabel("chains S that share a history", fontsize=8)
        ax.tick_params(labelsize=7, which="both")
    axes[0, 0].set_ylabel("R-hat", fontsize=8)
    fig.tight_layout()
    return fig


# The library's defaults on the same networks.


def fit_from_pieces(A, sampler, learned, n_warmup, n_draws):
    """Eight chains of a fit from the default start, all hyperparameters fixed or all learned."""
    value = None if learned else 1.0
    model = DPMixture(
        likelihood=Relational(a=value, b=value),
        concentration=value,
        sampler=sampler,
        n_chains=8,
        n_warmup=n_warmup,
        n_draws=n_draws,
        random_state=0,
        store_labels=False,
        point_estimate="last",
    )
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the table says it
        model.fit(A)
    found = {"seconds": time.process_time() - began}
    for key in ("log_joint", "n_components"):
        found[f"{key}_r_hat"] = model.diagnostics_[key]["r_hat"]
        found[f"{key}_ess"] = model.diagnostics_[key]["ess_bulk"]
    found["means"] = model.log_joint_samples_.mean(axis=1)
    return {key: np.array(value) for key, value in found.items()}


def defaults(args):
    """Networks from the default start: ARM against Alternate, in effective draws per second."""
    samplers = {"Alternate": (Alternate(), 1500, 6000), "ARM": (ARM(), 250, 1000)}
    if args.quick:
        samplers = {"Alternate": (Alternate(), 50, 100), "ARM": (ARM(), 20, 40)}
    lines = [
        f"{'':34}{'warm-up + draws':>16}{'s':>7}{'log joint':>11}{'sd':>6}{'R-hat':>7}{'of K':>6}"
        f"{'ESS/s':>7}{'of K':>7}"
    ]
    for path in network_paths(args):
        A = read_network(path, args.scale)
        for learned in (False, True):
            for name, (sampler, n_warmup, n_draws) in samplers.items():
                key = (
                    f"defaults_{path.stem}_{args.scale:g}_{learned:d}_{name}_{n_warmup}_{n_draws}"
                )
                cell = args.cells.get(key, fit_from_pieces, A, sampler, learned, n_warmup, n_draws)
                what = f"{path.stem}, {'learned' if learned else 'a = b = 1'}: {name}"
                seconds = float(cell["seconds"])
                lines.append(
                    f"{what:34}{f'{n_warmup} + {n_draws}':>16}{seconds:7.1f}"
                    f"{cell['means'].mean():11.1f}{cell['means'].std():6.1f}"
                    f"{cell['log_joint_r_hat']:7.2f}{cell['n_components_r_hat']:6.2f}"
                    f"{cell['log_joint_ess'] / seconds:7.1f}"
                    f"{cell['n_components_ess'] / seconds:7.1f}"
                )
                print(lines[-1], flush=True)
    return "\n".join(lines), {}


RESULTS = {
    "enumeration": enumeration,
    "table2": table2,
    "networks": networks,
    "seeds": seeds,
    "defaults": defaults,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=[*RESULTS, "all"])
    parser.add_argument("--out", required=True, help="folder for cells, tables and pictures")
    parser.add_argument("--quick", action="store_true", help="few and short chains, to try out")
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--sets", type=int, default=20, help="data sets of table 2")
    parser.add_argument("--data", help="folder of the networks")
    parser.add_argument("--names", default="nips234,protein230,football,karate")
    parser.add_argument("--network", action="append", default=[], help="further file; repeatable")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the nodes that is kept")
    parser.add_argument("--forms", default="frozen,growing")
    parser.add_argument("--iterations", type=int, help="of ARM on networks, default 1000")
    parser.add_argument("--chains", type=int, help="public chains on networks, default 8")
    parser.add_argument("--seeds", type=int, default=10, help="of `seeds`")
    parser.add_argument("--history-chains", default="", help="figure 6a: 1,2,4,8,16")
    args = parser.parse_args()
    args.methods = args.methods.split(",")
    threadpool_limits(1)
    out = Path(args.out)
    args.cells = Cells(out / ("cells_quick" if args.quick else "cells"))
    for name in RESULTS if args.what == "all" else [args.what]:
        table, pictures = RESULTS[name](args)
        (out / f"arm_{name}.txt").write_text(table + "\n")
        for picture, fig in pictures.items():
            write(fig, out / f"arm_{picture}.png")
        print(f"{name}: {RESULTS[name].__doc__}\n{table}", flush=True)


if __name__ == "__main__":
    main()
