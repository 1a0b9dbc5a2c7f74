# SPDX-License-Identifier: BSD-3-Clause
"""Particle systems that take rows in batches: `partial_fit`.

Each row is seen once, and only its contribution to cluster statistics is kept, unless rows are
forgotten: then they are kept until they leave their clusters. Particles do not move, and rows come
in the order given. A chain's dict holds the particles, the values of learned
hyperparameters and the state of the bit generator; its size is that of the clusters. What a row
draws depends on these alone, so the same rows give the same bits however they are batched.
"""

from dataclasses import dataclass

import numpy as np

from skdpm.mixture.chains.program import REBUILD_EVERY
from skdpm.mixture.particles.program import (
    BLOCK,
    ParticleChain,
    ParticleProgram,
    Window,
    lifetimes,
)
from skdpm.mixture.state._state import smallest

# Number of rows of the priors of streams. Only functions that hold for any number are called, so
# what matters is that all calls agree: a law of the number of components is tabulated to it.
STREAM_LENGTH = 2**14

# Entries of a system's state with an element for each family.
OF_FAMILIES = ("stats", "family_constants", "hyperparameters")

# Below this are log weights of particles of which a component has rows of two classes.
FORBIDDEN = -1e14


@dataclass(kw_only=True)
class StreamProgram(ParticleProgram):
    """Program of a batch of rows.

    - `n_before`: int. Number of rows taken earlier; `n_samples` counts these and the batch.
    - `first`: int. Number of the batch's first row in error messages.
    - `pool`: dict. Kernels of the last batch by the number of the chain, for use again: most of
      the time of a row is that of the kernels of its chains.
    """

    n_before: int
    first: int
    pool: dict

    keeps_rows = False
    makes_draws = False
    remedies = "a new start with more particles (SMC(n_particles=...)), with a fit,"
    moves_rows = False  # they are gone

    @classmethod
    def prepare(cls, X, likelihood, *, n_before, noise_law, known, sampler, kept, **settings):
        """Make the program of a batch of validated rows, with a resolved likelihood and the other
        fields as settings. `kept` is the `Window` of earlier rows that stay, or None."""
        seen, window = likelihood.as_seen(X, n_before), None
        n_rows = X.shape[0]
        if sampler.half_life is not None:
            numbers = n_before + np.arange(1, n_rows + 1)
            leaves = numbers + lifetimes(n_before, n_rows, sampler.half_life)
            window = Window(seen, leaves)
            window = window if kept is None else kept.then(window)
            seen = window.rows
        data = likelihood.encode(seen)
        return cls(
            likelihood=likelihood,
            data=data,
            tables=likelihood.tables(data, None),
            rows=X,
            n_before=n_before,
            n_samples=n_before + n_rows,
            sampler=sampler,
            window=window,
            first_state=None,
            store_labels=False,
            noise_law=noise_law,
            noise=noise_law.of(seen, known, new=n_before > 0),
            known=known,
            **settings,
        )

    def __post_init__(self):
        super().__post_init__()
        self.stops = [*range(self.n_before + BLOCK, self.n_samples, BLOCK), self.n_samples]

    @property
    def n_new(self):
        """Number of rows in the batch."""
        return self.n_samples - self.n_before

    @property
    def first_item(self):
        return 0 if self.window is None else len(self.window.leaves) - self.n_new

    def make_prior(self, concentration, n_samples=STREAM_LENGTH):
        return super().make_prior(concentration, n_samples)

    def resume(self, chain):
        return StreamChain(self, chain)

    def drawn(self, chain):
        """A chain that has taken the batch, with its draws."""
        with self.resume(chain) as live:
            return {**chain, **live.drawn(), **live.save()}

    def encoded(self, items):
        return self.data, self.tables

    def kept_partition(self, kept):
        stats, labels = kept["stats"], kept["labels"].astype(np.intp)
        order = np.argsort(-stats[:, 0], kind="stable")
        inside = labels >= 0  # -1 for noise
        labels[inside] = np.argsort(order)[labels[inside]]
        stats = stats[order]
        if self.window is not None and not inside.all():
            # Rows of the batch that are forgotten: the cluster that predicts them best.
            model, rows = self.model(kept["values"]), np.flatnonzero(~inside)
            model.load(stats)
            first = self.first_item
            log_p = model.log_predictive_rows(np.arange(len(stats)), first, first + self.n_new)
            labels[rows] = np.argmax(log_p + np.log(stats[:, :1]), axis=0)[rows]
        return labels, stats


class StreamChain(ParticleChain):
    """One particle system while it takes a batch."""

    def __init__(self, program, chain):
        super().__init__(program, chain)
        self.views = {}

    def kernels(self):
        program, n = self.program, len(self.family_values)
        pooled = program.pool.pop(self.index, ())[:n]
        # With known labels the kernels are others.
        if len(pooled) < n or program.known.unites:
            return super().kernels()
        return pooled if all(m.reread(program.data) for m in pooled) else super().kernels()

    def row_order(self):
        first = self.program.first_item
        return self.program.first + np.arange(-first, self.program.n_new)

    def items(self):
        return slice(None)

    def step(self, iteration):
        super().step(iteration)
        if self.program.known.unites and self.system.log_evidence < FORBIDDEN:
            raise ValueError(
                "known_labels: no particle has a component left for a class, because rows of "
                "other classes came first and took all; start again with a row of each class "
                "first, with more particles (SMC(n_particles=...)) or with more components"
            )

    def take(self, stop):
        window = self.program.window
        if window is None:
            super().take(stop)
            return
        while self.n_taken < stop:
            super().take(self.n_taken + 1)
            for item in np.flatnonzero(window.leaves == self.n_taken):
                self.system.forget(item)
            if self.n_taken % REBUILD_EVERY == 0:
                self.system.rebuild()

    def look_at(self, p, prior):
        if p not in self.views:
            self.views[p] = ParticleView(self.system, p, prior)
        self.state = self.views[p]

    def cluster_keys(self):
        """Chain, family and slot: particles of a family share equal clusters."""
        state = self.state
        return [f"{self.index}-{state.family}-{slot}" for slot in state.slots]

    def kept_labels(self):
        labels = self.state.labels[self.program.first_item :]
        return {"labels": labels, "stats": self.state.stats, "values": self.values}

    def save(self):
        """Save without the families that have lost all particles. The chain ends here."""
        saved = super().save()
        state = saved["system"]
        used, family = np.unique(state["family"], return_inverse=True)
        saved["family_values"] = [self.family_values[f] for f in used]
        self.program.pool[self.index] = [self.system.models[f] for f in used]
        saved["system"] = {
            **state,
            "family": family,
            **{name: [state[name][f] for f in used] for name in OF_FAMILIES},
        }
        return saved


class ParticleView:
    """A particle as chains read states, without the rows that are gone. Labels are the clusters of
    the rows of the last batch, -1 for noise."""

    def __init__(self, system, p, prior):
        self.prior = prior
        self.family = system.family_of(p)
        self.slots = system.slots_of(p)
        self.sizes = system.sizes_of(p)
        self.stats = system.stats_of(p)
        self.n_clusters = len(self.slots)
        self.model = system.models[self.family]
        self.n_samples, self.n_noise = system.n_rows, system.n_noise_of(p)
        labels = system.labels_of(p)
        self.labels = smallest(labels, self.n_clusters, (labels < 0).any())

    def cluster_sizes(self):
        return self.sizes

    def dump(self, clusters=None):
        return self.stats if clusters is None else self.stats[clusters]
