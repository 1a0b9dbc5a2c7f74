# SPDX-License-Identifier: BSD-3-Clause
"""Chains that are particle systems: rows come in, particles move, and draws are made.

Each chain takes the rows in its own order. Between rows a Markov kernel moves every particle,
given the rows so far. Weights do not change by a kernel that leaves p(partition | rows,
hyperparameters) invariant, nor by draws of the hyperparameters given the partition, which follow
the move. For the move, an integrated concentration is drawn given the partition.
"""

import functools
import math
from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import logsumexp

from skdpm.chains import _moves, stream
from skdpm.draws import ChainDraws
from skdpm.mixture.chains.program import (
    REBUILD_EVERY,
    MixtureChain,
    MixtureProgram,
    RowProgram,
    StateChain,
)
from skdpm.mixture.particles._nodes import concentration_nodes, log_ratios
from skdpm.mixture.state._state import MixtureState
from skdpm.partitions import relabel_by_size

# Rows between two checks of limits and interrupts.
BLOCK = 256

# Last part of the keys of further streams of a chain.
ORDER_STREAM = 1
DRAW_STREAM = 2

# Largest lifetime of a row in half-lives: one row in a thousand would live longer.
LONGEST = 10.0

# Entries of a chain's dict that more rows need.
CARRIED = ("index", "entropy", "iteration", "system", "family_values", "bit_generator")

# Step between draws along the cumulated weights: any number of first draws is spread evenly.
GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


@dataclass(kw_only=True)
class ParticleProgram(MixtureProgram):
    """Program of chains that are particle systems. An iteration is one of the validated `rows`,
    and `stops` are rising numbers of rows at which a block ends.

    A subclass overrides `resume` and `encoded`.
    """

    rows: object
    window: object = None  # `Window` of the rows, if a stream keeps and forgets them

    halts = False  # draws are made after the last row
    n_before = 0  # rows taken earlier
    first_item = 0  # number, in the kernels, of the first row that is not taken
    makes_draws = True  # with the last row, not when draws are read
    moves_rows = True  # whether the sampler may move rows taken earlier
    complaint = "the chains, which are independent particle systems, disagree"
    remedies = "more particles (SMC(n_particles=...))"
    # R-hat of independent draws may be large by chance: for two chains of 50 draws in one case of
    # 25, for two of 20 draws in one of 4.
    fewest_compared = 50

    @property
    def n_iterations(self):
        return self.n_samples

    def encoded(self, items):
        """Rows as kernels need them: data and tables."""
        raise NotImplementedError(f"{type(self).__name__} must override `encoded`")

    def advance(self, chain, n_iterations, go_on):
        with self.resume(chain) as live:
            after = {}
            running = True
            while running and live.n_taken < n_iterations:
                n_before = live.n_taken
                live.step(n_before)
                running = go_on(n_done=live.n_taken - n_before, **live.figures())
            if self.makes_draws and live.n_taken == n_iterations:
                after = live.drawn()
            if self.keeps_rows:
                after["acceptance"] = _moves(chain.get("acceptance", {}), live.acceptance(), {})
            chain.update(live.save(), iteration=live.n_taken, **after)

    def carried(self, run):
        """The particles: statistics of their clusters, and labels of the rows that are kept."""
        stay = np.empty(0, np.intp)
        kept = None
        if self.window is not None:
            stay = self.window.after(self.n_samples)
            kept = self.window.take(stay)
        chains = []
        for chain in run.chains:
            system = chain["system"]
            labels = system["labels"][:, self.places(chain)[stay]].copy()
            system = {**system, "labels": labels, "completions": None}
            chains.append({**{name: chain[name] for name in CARRIED}, "system": system})
        return replace(
            run,
            data=None,
            likelihood=self.likelihood.own,
            noise_law=self.noise_law,
            known=self.known,
            kept=kept,
            chains=chains,
        )

    def places(self, chain):
        """Places of the rows of the window among those of a chain's kernels."""
        return np.arange(0 if self.window is None else len(self.window.leaves))

    def further_attributes(self, chains):
        log_evidence = np.array([chain["log_evidence"] for chain in chains])
        of_noise = {}
        if "noise_probabilities" in chains[0]:
            shares = [chain["noise_probabilities"] for chain in chains]
            of_noise["noise_probabilities_"] = np.mean(shares, axis=0)
        return {
            **of_noise,
            "n_samples_seen_": self.n_samples,
            "log_evidence_": float(logsumexp(log_evidence) - np.log(len(chains))),
            "log_evidence_chains_": log_evidence,
            "effective_sample_size_": np.array([c["effective_sample_size"] for c in chains]),
        }

    def diagnostics(self, figures, chains):
        if len(chains) == 1:
            return {}  # the draws of one particle system are exchangeable
        # Draws have no order in time, so there is no effective sample size. Streams keep no
        # partitions, so fits leave out their figure too.
        figures = {
            name: {"r_hat": entry["r_hat"]}
            for name, entry in figures.items()
            if name != "coclustering"
        }
        log_evidence = [chain["log_evidence"] for chain in chains]
        figures["log_evidence"] = {"std": float(np.std(log_evidence, ddof=1))}
        return figures


class ParticleChain(MixtureChain):
    """One particle system while it runs. While draws are made, `state` and `values` are those of
    the current draw.

    A subclass overrides `row_order` and `look_at`.
    """

    state = values = None

    def __init__(self, program, chain):
        super().__init__(program, chain)
        self.entropy = chain["entropy"]
        self.bit_generator = stream(self.entropy, self.index)
        self.order = chain["grouped"] if "grouped" in chain else self.row_order()
        self.encoded = program.encoded(self.order)
        self.noise = None if program.noise is None else program.noise.of(self.items())
        sampler = program.sampler
        self.system = sampler.system(
            program.make_prior(program.first_concentration),
            program.concentration_prior if program.concentration is None else None,
            program.moves_rows,
            self.noise,
        )
        if "system" in chain:
            self.bit_generator.state = chain["bit_generator"]
            self.family_values = list(chain["family_values"])
            self.system.set_state(self.kernels(), chain["system"])
            if self.kernel is not None:
                self.kernel.set_adaptation(chain.get("adaptation", {}))
        else:
            self.family_values = [{}]
            if program.likelihood.learned:
                rng = np.random.Generator(self.bit_generator)
                draw = program.likelihood.draw_hyperparameters
                self.family_values = [draw(rng) for _ in range(sampler.n_particles)]
            models = [program.bind(self.encoded, values) for values in self.family_values]
            self.system.begin(models)
        self.n_taken = chain["iteration"]
        self.system.expect(program.n_samples - self.n_taken)

    def kernels(self):
        """Kernels of the families."""
        return [self.program.bind(self.encoded, {}) for _ in self.family_values]

    def row_order(self):
        """Numbers of the rows in the order in which they come."""
        raise NotImplementedError(f"{type(self).__name__} must override `row_order`")

    def items(self):
        """Numbers of the rows of the kernels, in their order, among those of the program."""
        return self.order

    def look_at(self, p, prior):
        """Set `state` to particle p."""
        raise NotImplementedError(f"{type(self).__name__} must override `look_at`")

    def step(self, iteration):
        """Take the rows up to the next stop."""
        stops = self.program.stops
        try:
            self.take(stops[bisect_right(stops, iteration)])
        except FloatingPointError as error:
            row = self.order[self.system.row_at_hand]
            raise FloatingPointError(f"row {row}: {str(error).split(': ')[-1]}") from None

    def take(self, stop):
        """Take rows until the number of rows is `stop`."""
        first, n_rows = self.program.first_item, stop - self.n_taken
        first += self.n_taken - self.program.n_before
        self.system.run(self.bit_generator, first, first + n_rows)
        self.n_taken = stop

    def drawn(self):
        """Make the draws: entries of the chain's dict."""
        draws = ChainDraws(self.program.columns(), self.program.n_draws)
        self.draw_all(draws)
        found = {"draws": draws.save()}
        if self.program.noise_law.takes_rows and not self.program.store_labels:
            found["noise_probabilities"] = self.system.noise_probabilities()
        return found

    def draw_all(self, draws):
        """Make draws of equal weight: particles at golden-section steps along the cumulated
        weights, and a concentration given each."""
        program, system = self.program, self.system
        bit_generator = stream(self.entropy, self.index, DRAW_STREAM)
        rng = np.random.Generator(bit_generator)
        log_w = system.final_log_weights()
        cumulated = np.cumsum(np.exp(log_w - log_w.max()))
        points = (rng.random() + GOLDEN * np.arange(program.n_draws)) % 1.0
        chosen = np.searchsorted(cumulated, points * cumulated[-1], side="right")
        prior = program.make_prior(program.first_concentration)
        for draw, p in enumerate(np.minimum(chosen, len(log_w) - 1)):
            self.values = self.family_values[system.family_of(p)]
            self.look_at(p, prior)
            if program.concentration is None:
                prior.set_concentration(system.draw_concentration(p, bit_generator))
                program.resample_concentration(prior, self.state.cluster_sizes(), bit_generator)
            draws.append(**self.keep(draw, system.log_joint_of(p, prior)))

    def figures(self):
        return {"log_evidence": f"{self.system.log_evidence:.6g}"}

    def acceptance(self):
        return self.kernel.acceptance() if self.kernel else {}

    def save(self):
        return {
            **super().save(),
            "system": self.system.get_state(),
            "family_values": self.family_values,
            "bit_generator": self.bit_generator.state,
            "adaptation": self.kernel.get_adaptation() if self.kernel else {},
            "log_evidence": self.system.log_evidence,
            "effective_sample_size": self.system.effective_sample_size,
        }


@dataclass(frozen=True, eq=False)
class Window:
    """Rows that a stream keeps for a time: `rows`, (n, n_features), as chains see them, and
    `leaves`, (n,), the number of rows seen, of the whole stream, after which each is forgotten."""

    rows: object
    leaves: np.ndarray

    def after(self, n_seen):
        """Positions of the rows that are kept after n_seen rows."""
        return np.flatnonzero(self.leaves > n_seen)

    def take(self, positions):
        return Window(self.rows[positions], self.leaves[positions])

    def then(self, other):
        """These rows, then others."""
        if sp.issparse(self.rows) or sp.issparse(other.rows):
            rows = sp.vstack([self.rows, other.rows], format="csr")
        else:
            rows = np.concatenate([self.rows, other.rows]).view(type(other.rows))
        return Window(rows, np.concatenate([self.leaves, other.leaves]))


def lifetimes(first, n, half_life):
    """Numbers of rows after which the rows first, ..., first + n - 1 of a stream are forgotten:
    quantiles of the exponential law at golden-section steps, so that any rows next to each other
    leave evenly. No lifetime exceeds `LONGEST` half-lives: (n,), intp."""
    u = ((first + np.arange(1, n + 1)) * GOLDEN) % 1.0
    return np.ceil(half_life * np.clip(-np.log2(u), 1e-9, LONGEST)).astype(np.intp)


@dataclass(kw_only=True)
class FitProgram(ParticleProgram, RowProgram):
    """Program of `fit` with `SMC`: all rows are in memory, and particles move. If `grouped`,
    chains take the rows cluster by cluster of the labels that `init` gives."""

    grouped: bool = False

    bounded = False  # `partial_fit` may add rows

    def __post_init__(self):
        super().__post_init__()
        n = self.n_samples
        times = move_times(n, self.sampler.growth) if self.sampler.moves else ()
        self.move_times = {time: number for number, time in enumerate(times, start=1)}
        self.stops = sorted({*range(BLOCK, n, BLOCK), *self.move_times, n})
        if self.sampler.half_life is not None:
            leaves = n + lifetimes(0, n, self.sampler.half_life)
            self.window = Window(self._rows_as_seen, leaves)

    def places(self, chain):
        if self.window is None:
            return super().places(chain)
        return np.argsort(chain["grouped"])

    def resume(self, chain):
        return FitChain(self, chain)

    @functools.cached_property
    def _rows_as_seen(self):
        return self.likelihood.as_seen(self.rows)

    def encoded(self, items):
        likelihood = self.likelihood.for_rows(items)
        data = likelihood.encode(self._rows_as_seen[items])
        return data, likelihood.tables(data, None)


class FitChain(ParticleChain, StateChain):
    """One particle system of a fit."""

    mover = None  # the kernel of the state that moves, over the rows in their order

    def row_order(self):
        """It depends on the data, on `init` and on a separate stream only, so that the evidence
        stays unbiased. A row of each known class comes first, so that every later row has a
        component, whatever the number of components."""
        program = self.program
        order = np.arange(program.n_samples)
        if program.sampler.order != "given":
            bit_generator = stream(self.entropy, self.index, ORDER_STREAM)
            order = np.random.Generator(bit_generator).permutation(program.n_samples)
            if program.grouped:
                labels = relabel_by_size(program.first_state(program, bit_generator).labels)
                order = order[np.argsort(labels[order], kind="stable")]
        return program.known.first_of_each(order)

    def step(self, iteration):
        super().step(iteration)
        if self.system.n_rows in self.program.move_times:
            self.rejuvenate()

    def rejuvenate(self):
        """Move every particle, given the rows so far."""
        program, system, likelihood = self.program, self.system, self.program.likelihood
        n_rows = system.n_rows
        prior = program.make_prior(program.first_concentration, n_rows)
        if program.concentration is not None:
            prior.set_concentration(system.concentration)
        if self.mover is None:
            self.mover = program.bind(self.encoded, {})
        noise = None if self.noise is None else self.noise.of(slice(n_rows))
        state = self.state = MixtureState(self.mover, prior, n_samples=n_rows, noise=noise)
        for p in range(system.n_current):
            if program.concentration is None:
                prior.set_concentration(system.draw_concentration(p, self.bit_generator))
            system.lend(p, state)
            self.kernel.run(state, self.bit_generator)
            if program.move_times[n_rows] % REBUILD_EVERY == 0:
                state.rebuild()
            if likelihood.learned:
                flat = state.model.resample_hyperparameters(
                    state.cluster_slots(), likelihood.learned_priors, self.bit_generator
                )
            system.take(p, state)
            if likelihood.learned:
                self.family_values[system.family_of(p)] = likelihood.learned_values(flat)
        system.renew()
        self.state = None  # a kernel belongs to one state at a time

    def look_at(self, p, prior):
        if self.state is None:
            self.state = MixtureState(self.program.model(), prior, noise=self.program.noise)
        self.system.lend(p, self.state, self.order)

    def save(self):
        # A random order is quick to draw again; one by k-means is not, and kept rows need one.
        is_kept = self.program.grouped or self.program.window is not None
        return {**super().save(), **({"grouped": self.order} if is_kept else {})}


def move_times(n_samples, growth):
    """Numbers of rows after which particles move: list of int, rising."""
    times, t = [], 2
    while t < n_samples:
        times.append(t)
        t = max(t + 1, math.ceil(min(growth * t, n_samples)))
    return [*times, n_samples]


def log_weights_at(chain, prior, concentrations, concentration_prior=None):
    """Log weights of the particles of a chain at its end, reweighted to other concentrations:
    (n_concentrations, n_current). Each row's weights sum to an estimate of p(X | concentration).
    The further a concentration from that of the run, the noisier.

    `prior` is that of the run, at any concentration, and `concentration_prior` that of the
    concentration, if it was integrated out.
    """
    state = chain["system"]
    sizes = [
        state["stats"][f][slots, 0]
        for f, slots in zip(state["family"], state["slots"], strict=True)
    ]
    nodes, log_hyper = np.array([state["concentration"]]), np.zeros(1)
    if concentration_prior is not None:
        nodes, log_hyper = concentration_nodes(concentration_prior, state["step"])
    return state["log_w"] + log_ratios(prior, sizes, concentrations, nodes, log_hyper)
