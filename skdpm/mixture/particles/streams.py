# SPDX-License-Identifier: BSD-3-Clause
"""Particle systems that go on with rows as these come: `partial_fit`.

A row is seen once, and nothing of it is kept but what it adds to clusters. So particles do not
move here: rows come in the order given, and every step is that of the filter. A chain's dict has
the particles, the values of learned hyperparameters and the bit generator's state; its size is
that of the clusters. What a row draws depends on these alone, so the same rows give the same bits
in whatever batches they come.
"""

from dataclasses import dataclass

import numpy as np

from skdpm.mixture.chains.program import check_capabilities
from skdpm.mixture.particles.program import BLOCK, ParticleChain, ParticleProgram


@dataclass(kw_only=True)
class StreamProgram(ParticleProgram):
    """Program of a batch of rows. An iteration is a row, of all that have been seen.

    Attributes
    ----------
    n_before : int
        Rows seen before; `n_samples` is with those of the batch.
    first : int
        How errors number the first row.
    makes_draws : bool
        Whether chains make draws at the end.
    """

    n_before: int
    first: int
    makes_draws: bool

    keeps_rows = False
    remedies = "a new start with more particles (SMC(n_particles=...)), with a fit,"
    active_block = 0  # old rows are gone

    @classmethod
    def prepare(
        cls,
        X,
        likelihood,
        *,
        n_before,
        n_samples,
        init,
        store_labels,
        most_clusters,
        n_jobs,
        **settings,
    ):
        """The program of a batch.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Validated.
        likelihood : Likelihood
            Resolved.
        n_before : int
        n_samples, init, store_labels, most_clusters, n_jobs
            Not used: there are as many rows as come, and no partition of them to start from.
        **settings
            The other fields.
        """
        data = likelihood.encode(X)
        program = cls(
            likelihood=likelihood,
            data=data,
            tables=likelihood.tables(data, None),
            rows=X,
            n_before=n_before,
            n_samples=n_before + X.shape[0],
            first_state=None,
            store_labels=False,
            **settings,
        )
        check_capabilities(likelihood, program.model())
        return program

    def __post_init__(self):
        first = self.n_before
        self.stops = [*range(first + BLOCK, self.n_samples, BLOCK), self.n_samples]
        self.move_times = {}

    @property
    def n_new(self):
        """Rows of the batch."""
        return self.n_samples - self.n_before

    @property
    def scheme(self):
        return "optimal" if self.sampler.resampling == "auto" else self.sampler.resampling

    def resume(self, chain):
        return StreamChain(self, chain)

    def encoded(self, items):
        return self.data, self.tables

    def kept_partition(self, kept):
        stats = kept["stats"]
        order = np.argsort(-stats[:, 0], kind="stable")
        rank = np.argsort(order)
        return rank[kept["labels"]], stats[order]


class StreamChain(ParticleChain):
    """One particle system while it takes a batch."""

    def __init__(self, program, chain):
        super().__init__(program, chain)
        self.seen = {}

    def row_order(self):
        return self.program.first + np.arange(self.program.n_new)

    def look_at(self, p, prior):
        if p not in self.seen:
            self.seen[p] = SeenParticle(self.system, p, prior)
        self.state = self.seen[p]

    def cluster_keys(self):
        """Chain, family and slot: particles of a family share clusters that are the same."""
        state = self.state
        return [f"{self.index}-{state.family}-{slot}" for slot in state.slots]

    def kept_labels(self):
        return {"labels": self.state.labels, "stats": self.state.stats}

    def save(self):
        """As chains do, without families that have no particle any more."""
        saved = super().save()
        state = saved["system"]
        used, family = np.unique(state["family"], return_inverse=True)
        saved["family_values"] = [self.family_values[f] for f in used]
        saved["system"] = {
            **state,
            "family": family,
            "stats": [state["stats"][f] for f in used],
        }
        return saved


class SeenParticle:
    """A particle as chains look at states, without the rows that are gone.

    Attributes
    ----------
    prior : PartitionPrior
    family : int
    slots : ndarray of shape (n_clusters,)
    stats : ndarray of shape (n_clusters, n_stats)
    labels : ndarray of shape (n_new,)
        Of the last batch.
    """

    def __init__(self, system, p, prior):
        self.prior = prior
        self.family = system.family_of(p)
        self.slots = system.slots_of(p)
        self.sizes = system.sizes_of(p)
        self.stats = system.stats_of(p)
        self.n_clusters = len(self.slots)
        self.labels = system.labels_of(p).astype(np.min_scalar_type(self.n_clusters - 1))

    def cluster_sizes(self):
        return self.sizes

    def dump(self, clusters=None):
        return self.stats if clusters is None else self.stats[clusters]
