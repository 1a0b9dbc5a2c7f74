# SPDX-License-Identifier: BSD-3-Clause
"""One chain of a mixture model: how it starts, how it advances, what it keeps."""

from dataclasses import dataclass

import numpy as np

from skdpm.chains import stream
from skdpm.mixture._state import MixtureState, number_by_first_appearance
from skdpm.partitions import relabel_by_size

# Rows of statistics that round are computed anew from the items after this many iterations of a
# chain. The count is the chain's own, so that it falls alike in an interrupted and in a whole run.
REBUILD_EVERY = 100

# Draws whose clusters are kept for scoring, over all chains.
N_SCORED_DRAWS = 100


@dataclass
class RowProgram:
    """What the chains of one fit share: data, model, sampler and what to keep."""

    likelihood: object  # resolved
    data: dict  # its encoded rows
    n_samples: int
    make_prior: object  # concentration -> PartitionPrior
    sampler: object
    concentration: float | None  # None: resampled
    concentration_prior: tuple
    n_warmup: int
    n_draws: int
    thin: int
    n_chains: int
    store_labels: bool
    initial_labels: object  # (bit generator) -> labels 0, ..., K - 1; None: all in one cluster
    _item_keys: object = None  # of `cluster_keys`, made when first needed

    @property
    def first_concentration(self):
        """Where chains start: what is fixed, or 1."""
        return 1.0 if self.concentration is None else self.concentration

    @property
    def n_iterations(self):
        return self.n_warmup + self.n_draws * self.thin

    @property
    def n_scored_draws(self):
        """Draws per chain whose clusters are kept for scoring, at most."""
        return max(1, N_SCORED_DRAWS // self.n_chains)

    def log_hyperprior(self, concentration):
        """log density of the concentration under its Gamma prior, up to a constant; 0 if fixed."""
        if self.concentration is not None:
            return np.zeros_like(concentration)
        shape, rate = self.concentration_prior
        return (shape - 1.0) * np.log(concentration) - rate * concentration

    def start(self, entropy, index):
        """A chain that has done no iteration, as a plain dict."""
        bit_generator = stream(entropy, index)
        labels = self.initial_labels(bit_generator)
        if labels is None:
            labels = np.zeros(self.n_samples, dtype=np.intp)
        concentration = self.first_concentration
        state = MixtureState(self._model(), self.make_prior(concentration), labels)
        return {
            "index": index,
            "iteration": 0,
            "state": state.save(),
            "concentration": concentration,
            "bit_generator": bit_generator.state,
            "adaptation": {},
            **self._nothing_kept(),
        }

    def advance(self, chain, n_iterations, go_on):
        """See `skdpm.chains.run_chains`."""
        bit_generator = np.random.PCG64()
        bit_generator.state = chain["bit_generator"]
        prior = self.make_prior(chain["concentration"])
        state = MixtureState(self._model(), prior, saved=chain["state"])
        kernel = self.sampler.kernel()
        kernel.set_adaptation(chain["adaptation"])

        def step(iteration):
            kernel.run(state, bit_generator, iteration < self.n_warmup)
            return bit_generator

        self._iterate(chain, state, kernel, step, n_iterations, go_on)
        chain.update(bit_generator=bit_generator.state, adaptation=kernel.get_adaptation())

    def _nothing_kept(self):
        """The part of a chain that grows with its draws, before the first."""
        return {
            "acceptance": {},  # move -> (proposed, accepted), after warm-up
            "draws": KeptDraws(self).save(),
            "snapshots": Snapshots(self).save(),
        }

    def _iterate(self, chain, state, kernel, step, n_iterations, go_on):
        """Advance a chain by a function of the iteration that moves the state and returns the bit
        generator for the concentration."""
        prior = state.prior
        draws = KeptDraws(self, **chain["draws"])
        snapshots = Snapshots(self, **chain["snapshots"])
        iteration = chain["iteration"]
        moves_in_warmup = {}
        running = True
        while running and iteration < n_iterations:
            bit_generator = step(iteration)
            if self.concentration is None:
                prior.resample(state.cluster_sizes(), *self.concentration_prior, bit_generator)
            iteration += 1
            if iteration % REBUILD_EVERY == 0:
                state.rebuild()
            log_joint = state.compute_log_joint()
            if iteration <= self.n_warmup:
                moves_in_warmup = kernel.acceptance()
            elif (iteration - self.n_warmup) % self.thin == 0:
                if chain["index"] < N_SCORED_DRAWS:
                    snapshots.take(state)
                draws.take(state, log_joint)
            running = go_on(clusters=state.n_clusters, log_joint=f"{log_joint:.6g}")
        chain.update(
            iteration=iteration,
            state=state.save(),
            concentration=prior.concentration,
            acceptance=_moves(chain["acceptance"], kernel.acceptance(), moves_in_warmup),
            draws=draws.save(),
            snapshots=snapshots.save(),
        )

    # What the kept draws need of a state.

    def keep(self, state):
        """What lets the labels of this draw be told later, in little memory."""
        labels = np.empty(self.n_samples, dtype=np.min_scalar_type(state.n_clusters - 1))
        number_by_first_appearance(state.cluster_labels(), labels)
        return labels

    def kept_partition(self, kept):
        """Labels by decreasing size from what `keep` returned, and the clusters' statistics."""
        labels = relabel_by_size(kept)
        return labels, self.statistics(labels)

    def statistics(self, labels):
        """Statistics of the clusters 0, ..., K - 1 of any labels: (K, n_stats)."""
        prior = self.make_prior(self.first_concentration)
        return MixtureState(self._model(), prior, labels.astype(np.intp)).dump()

    def cluster_keys(self, state):
        """A key per cluster, equal for equal sets of items: the sum of random 64-bit words."""
        if self._item_keys is None:
            rng = np.random.Generator(np.random.PCG64(self.n_samples))
            self._item_keys = rng.integers(2**64, size=(self.n_samples, 2), dtype=np.uint64)
        labels = state.cluster_labels()
        order = np.argsort(labels, kind="stable")
        first = np.searchsorted(labels[order], np.arange(state.n_clusters))
        sums = np.add.reduceat(self._item_keys[order], first, axis=0)
        return [words.tobytes() for words in sums]

    def _model(self):
        return self.likelihood.bind(self.data, self.likelihood.tables(self.data, self.n_samples))


def _moves(before, now, in_warmup):
    """Proposals and acceptances after warm-up, earlier calls of `advance` included."""
    zero = np.zeros(2, dtype=np.int64)
    return {
        move: before.get(move, zero)
        + np.asarray(now[move])
        - np.asarray(in_warmup.get(move, zero))
        for move in now
    }


class KeptDraws:
    """The kept draws of one chain, in arrays with one entry per draw."""

    def __init__(
        self, program, log_joint=(), concentration=(), n_components=(), labels=None, best=None
    ):
        n_draws = program.n_draws
        self.program = program
        self.n_kept = len(log_joint)
        self.log_joint = _extended(log_joint, n_draws, np.float64)
        self.concentration = _extended(concentration, n_draws, np.float64)
        self.n_components = _extended(n_components, n_draws, np.int64)
        self.labels = None
        self.best = best  # without stored labels: the best draw so far and the last one
        if program.store_labels:
            if labels is None:
                labels = np.empty((0, program.n_samples), dtype=np.uint8)
            self.labels = _extended(labels, n_draws, labels.dtype)

    def take(self, state, log_joint):
        s = self.n_kept
        self.log_joint[s] = log_joint
        self.concentration[s] = state.prior.concentration
        self.n_components[s] = state.n_clusters
        self.n_kept += 1
        if self.program.store_labels:
            dtype = np.min_scalar_type(state.n_clusters - 1)
            if dtype.itemsize > self.labels.itemsize:
                self.labels = self.labels.astype(dtype)
            number_by_first_appearance(state.cluster_labels(), self.labels[s])
            return
        kept = self.program.keep(state)
        value = log_joint + self.program.log_hyperprior(state.prior.concentration)
        if self.best is None or value > self.best["value"]:
            self.best = {"value": float(value), "best": kept}
        self.best = {**self.best, "last": kept}

    def save(self):
        n = self.n_kept
        saved = {
            "log_joint": self.log_joint[:n],
            "concentration": self.concentration[:n],
            "n_components": self.n_components[:n],
        }
        if self.program.store_labels:
            saved["labels"] = self.labels[:n]
        else:
            saved["best"] = self.best
        return saved


def _extended(values, n_draws, dtype):
    values = np.asarray(values, dtype=dtype)
    extended = np.empty((max(n_draws, len(values)), *values.shape[1:]), dtype=dtype)
    extended[: len(values)] = values
    return extended


class Snapshots:
    """The clusters of some draws of one chain, evenly spaced, for scoring new rows.

    The draws kept are the multiples of the smallest power of two that leaves few enough: which
    ones depends on the number of draws alone, and continuing a chain only drops some. Where
    clusters are independent, one that stays as it is over several draws is stored once, under a
    128-bit hash of its items.
    """

    def __init__(self, program, n_seen=0, stride=1, draws=(), pool=None):
        self.program = program
        self.n_seen = n_seen
        self.stride = stride
        self.draws = list(draws)
        self.pool = {} if pool is None else dict(pool)

    def take(self, state):
        draw = self.n_seen
        self.n_seen += 1
        if draw % self.stride:
            return
        snapshot = {"draw": draw, "log_weights": state.prior.log_weights(state.cluster_sizes())}
        if state.model.factorizes:
            keys = self.program.cluster_keys(state)
            new = [k for k, key in enumerate(keys) if key not in self.pool]
            if new:
                self.pool.update(zip((keys[k] for k in new), state.dump(new), strict=True))
            snapshot["keys"] = keys
        else:
            snapshot["rows"] = state.dump()
            labels = np.empty(
                self.program.n_samples, dtype=np.min_scalar_type(state.n_clusters - 1)
            )
            labels[...] = state.cluster_labels()
            snapshot["labels"] = labels
        self.draws.append(snapshot)
        if len(self.draws) > self.program.n_scored_draws:
            self.stride *= 2
            self.draws = [kept for kept in self.draws if kept["draw"] % self.stride == 0]
            used = {key for kept in self.draws for key in kept.get("keys", ())}
            self.pool = {key: self.pool[key] for key in self.pool if key in used}

    def save(self):
        return {
            "n_seen": self.n_seen,
            "stride": self.stride,
            "draws": self.draws,
            "pool": self.pool,
        }
