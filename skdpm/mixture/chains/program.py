# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a mixture model: how a chain starts and advances, and what it keeps of its draws."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from skdpm._validation import is_dask
from skdpm.chains import ChainProgram, LiveChain, stream
from skdpm.draws import Candidates, Column, Snapshots, column_of
from skdpm.mixture.chains._start import load_clusters
from skdpm.mixture.chains.automatic import AutomaticStart, FirstState, most_likely
from skdpm.mixture.chains.init import dispersed_labels, first_state
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.rows.noise import NO_NOISE, laws_of_noise
from skdpm.mixture.state._scoring import MixtureRows, mixture_rows
from skdpm.mixture.state._state import MixtureState, labels_by_first_appearance, smallest
from skdpm.mixture.state._tiles import RowTiles
from skdpm.partitions import relabel_by_size

# Iterations of a chain between rebuilds: statistics are recomputed from the items to remove the
# rounding errors of updates. Each chain counts its own iterations, so that an interrupted run
# rebuilds at the same iterations as an uninterrupted one.
REBUILD_EVERY = 100

# Number of rows of the fit whose mean log density is followed.
N_DENSITY_ROWS = 500

# Rows in a tile, which a sweep visits together, and tiles in a group. Small tiles have tight
# bounds, large tiles need fewer bounds.
TILE_SIZE, GROUP_SIZE = 16, 32

# Iterations of a probe before its masses are compared.
N_SETTLING = 12

# Number of first iterations of a warm-up after which whole clusters may become noise.
N_NOISE_TRIALS = 20


@dataclass(kw_only=True)
class MixtureProgram(ChainProgram):
    """What the chains of a mixture share, for rows in memory, in blocks or in particles.

    A subclass implements `resume`, `statistics`, `kept_partition` and the class method `prepare`,
    by which a sampler makes the program.

    - `data`, `tables`: dict. Encoded rows (of the first block, if rows are in blocks) and tables
      of the likelihood. All kernels share them.
    - `first_state`: callable. Function (program, bit generator) that draws a chain's `FirstState`.
    - `given`: array or None. Validated X of `fit`, without copies. None: a stream forgets rows.
    - `copies`: Copies or None. Rows of `fit` that are left out.
    - `known`: KnownLabels or Unlabelled. Known labels of the rows of `given`.
    - `noise_law`: NoiseLaw. Law of any rows that are noise.
    - `noise`: Noise or None. Law of those of `given`, for states.
    """

    data: dict
    tables: dict
    store_labels: bool
    first_state: Callable
    given: object = None
    copies: object = None
    known: object = UNLABELLED
    noise_law: object = NO_NOISE
    noise: object = None

    shortens_warmup = True
    keeps_rows = True  # False: only the rows of the last batch are in memory

    @functools.cached_property
    def density_rows(self):
        """Evenly spaced rows whose density is followed; None if they have none under a draw."""
        if self.given is None or "product" not in self.likelihood.capabilities:
            return None
        rows = self.given[:: -(-self.given.shape[0] // N_DENSITY_ROWS)]
        if is_dask(rows):
            rows = self.rows.fetch(rows)
        return rows if sp.issparse(rows) else np.ascontiguousarray(rows, dtype=np.float64)

    def model(self, values=None):
        """Make a kernel for the rows, with these values of the learned hyperparameters."""
        return self.bind((self.data, self.tables), values)

    def bind(self, encoded, values):
        """Make a kernel over encoded rows, with values of the learned hyperparameters."""
        model = self.likelihood.bind(*encoded)
        check_capabilities(self.likelihood, model)
        self.likelihood.set_values(model, values)
        return model

    def columns(self):
        columns = super().columns()
        columns += [
            Column(column_of(name), "params", shape=np.shape(getattr(self.likelihood, name)))
            for name in self.likelihood.learned
        ]
        latent = self.make_prior(self.first_concentration).latent
        columns += [Column(name, dtype=np.int64) for name in latent]
        if self.noise_law.takes_rows:
            columns.append(Column("n_noise", dtype=np.int64))
        if self.store_labels:
            dtype = np.int8 if self.noise_law.takes_rows else np.uint8
            columns.append(Column("labels", "labels", dtype, (self.n_samples,)))
        return columns

    def log_posterior(self, log_joint, concentration, values):
        """log p(X, partition, hyperparameters), from log p(X, partition given hyperparameters)."""
        value = log_joint + float(self.log_hyperprior(concentration))
        return value + self.likelihood.log_hyperprior(values)

    def first_values(self):
        """Initial hyperparameters, by name, for starts that are not estimated from a partition."""
        return {name: getattr(self.likelihood, name) for name in self.likelihood.learned}

    def learned_after(self, iteration, model):
        """Hyperpriors of the hyperparameters that are resampled after an iteration: dict."""
        priors = self.likelihood.learned_priors if self.likelihood.learned else {}
        return {
            name: prior
            for name, prior in priors.items()
            if (iteration + 1) % model.hyper_period_of(name) == 0
        }

    def further_attributes(self, chains):
        """Attributes of the estimator that only this kind of program sets: dict of values."""
        return {}

    def statistics(self, labels, completion=None):
        """Statistics of the clusters 0, ..., K - 1 of any labels: (K, n_stats).

        `completion` has the values of missing entries, of a draw; None: those of starts.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `statistics`")

    def kept_partition(self, kept):
        """Labels by decreasing size, from `MixtureChain.kept_labels`, and clusters' statistics."""
        raise NotImplementedError(f"{type(self).__name__} must implement `kept_partition`")


class MixtureChain(LiveChain):
    """A chain of a mixture while it runs. A subclass moves `state`; this class keeps its draws.

    - `kernel`: object. Kernel of the sampler.
    - `values`: dict of str to float or ndarray. Learned hyperparameters of the likelihood.
    """

    def __init__(self, program, chain):
        self.program = program
        self.index = chain["index"]
        self.kernel = program.sampler.kernel()
        self.snapshots = Snapshots(program.n_scored_draws, chain.get("snapshots"))
        self.candidates = Candidates(chain.get("candidates"))

    def cluster_keys(self):
        """A string per cluster of the state, equal for equal clusters. Strings, not bytes: some
        formats for saving estimators allow only strings as keys of a dict."""
        raise NotImplementedError(f"{type(self).__name__} must implement `cluster_keys`")

    def completion(self):
        """The missing entries that this draw has drawn: {"completion": (n_gaps,)}, or {}."""
        return {}

    def kept_labels(self):
        """A compact record from which the labels of this draw can be reconstructed."""
        raise NotImplementedError(f"{type(self).__name__} must implement `kept_labels`")

    def log_posterior(self, log_joint):
        """The log joint density, hyperpriors included."""
        return self.program.log_posterior(log_joint, self.state.prior.concentration, self.values)

    def trace(self, log_joint):
        return log_joint, float(self.state.n_clusters)

    def figures(self):
        return {"components": self.state.n_clusters}

    def acceptance(self):
        return self.kernel.acceptance()

    def keep(self, draw, log_joint):
        program, state = self.program, self.state
        entries = {
            "log_joint": log_joint,
            "concentration": state.prior.concentration,
            "n_components": state.n_clusters,
            **{column_of(name): value for name, value in self.values.items()},
            **state.prior.latent_values(),
        }
        if program.noise_law.takes_rows:
            entries["n_noise"] = state.n_noise
        if program.scores(self.index) and self.snapshots.due():
            self.snapshots.take(*self._snapshot())
        if program.store_labels:
            entries["labels"] = labels_by_first_appearance(state)
        else:
            self.candidates.offer(draw, self.log_posterior(log_joint), self.kept_labels())
        return entries

    def _snapshot(self):
        """Make a snapshot, from which this draw scores new rows, and list the clusters that the
        pool lacks. Draws that contain the same independent cluster share its statistics."""
        state = self.state
        weight = self.program.noise_law.weight(state.n_noise, state.n_samples)
        snapshot = {
            "log_weights": state.prior.log_weights(state.cluster_sizes()) + np.log1p(-weight),
            "noise_weight": weight,
            "values": dict(self.values),
            **self.completion(),
        }
        if self.program.known.unites and self.program.keeps_rows:
            # A row of each cluster, by which it is found in the labels of the draw.
            numbers, rows = np.unique(state.cluster_labels(), return_index=True)
            snapshot["rows"] = rows[numbers >= 0]
        if "product" not in self.program.likelihood.capabilities:
            labels = state.cluster_labels()
            snapshot["labels"] = labels.astype(np.min_scalar_type(state.n_clusters - 1))
            snapshot["stats"] = state.dump()
            return snapshot, ()
        # Statistics depend only on the items, so draws with different hyperparameters share
        # clusters too. Densities are computed separately for each value.
        snapshot["n_stats"] = state.model.n_stats
        snapshot["keys"] = keys = self.cluster_keys()
        new = [k for k, key in enumerate(keys) if key not in self.snapshots.pool]
        return snapshot, zip((keys[k] for k in new), state.dump(new) if new else (), strict=True)

    def save(self):
        return {"snapshots": self.snapshots.save(), "candidates": self.candidates.save()}


@dataclass(kw_only=True)
class RowProgram(MixtureProgram):
    """Program of chains whose rows are in a `MixtureState`, which a `PartitionKernel` moves."""

    bounded = True  # no cluster can have more items than the rows of `fit`

    @classmethod
    def prepare(cls, X, likelihood, *, init, most_clusters, n_jobs, noise=None, **settings):
        """Make the program of a fit to the validated rows X.

        - `likelihood`: Likelihood. Likelihood of the user, not yet resolved.
        - `most_clusters`: int. Largest number of clusters that the prior allows.
        - `noise`: tuple (float, float) or None. Parameters of the Beta law of noise's probability.
        - `**settings`: Fields that all programs of mixtures have.

        Raises ValueError if X does not fit the likelihood.
        """
        likelihood = likelihood.resolve(X)
        data = likelihood.encode(X)
        return cls(
            likelihood=likelihood,
            data=data,
            tables=likelihood.tables(data, X.shape[0] if cls.bounded else None),
            first_state=first_state(init, X, likelihood, most_clusters),
            given=X,
            **laws_of_noise(noise, likelihood, X, settings["known"]),
            **settings,
        )

    def __post_init__(self):
        super().__post_init__()
        # Random words of the items, from which the keys of clusters are computed.
        rng = np.random.Generator(np.random.PCG64(self.n_samples))
        self.item_keys = rng.integers(2**64, size=(self.n_samples, 2), dtype=np.uint64)

    @functools.cached_property
    def tiles(self):
        """Tiles of the rows, shared by all chains; see `row_tiles`."""
        return row_tiles(self.likelihood, self.data)

    @functools.cached_property
    def regroups(self):
        # Without independent clusters, or with missing entries that chains draw, the entropy of a
        # state is not that of the labels of single rows.
        independent = "product" in self.likelihood.capabilities
        return self.n_chains > 1 and independent and self.model().n_incomplete == 0

    def resume(self, chain):
        return RowChain(self, chain)

    def probe(self, chains, n_done, differ, go_on):
        start, collapsed = self.first_state, self.have_collapsed(chains)
        starts_again = isinstance(start, AutomaticStart) and start.n_sampled == self.n_samples
        if not (starts_again and (differ or collapsed)):
            return None
        chain = self.chain(chains[0]["entropy"], self.n_chains)
        # Iterations of few clusters cost little, and clusters that overlap find each other late.
        begin = -n_done if collapsed else n_done // 2 - N_SETTLING
        chain.update(iteration=begin, start="coarsest" if collapsed else "finest")
        if "warmup" in chains[0]:
            chain["warmup"] = chains[0]["warmup"][: max(begin, 0)]
        try:
            self.advance(chain, n_done, go_on)
        except FloatingPointError:
            return None  # it is only a trial
        if "warmup" in chain:
            chain["warmup"] = chain["warmup"][-n_done:]
        return chain if chain["iteration"] == n_done else None

    def have_collapsed(self, chains):
        """Whether at the first look all chains have a state so simple that starts may be why."""
        if any(chain.get("iteration") != self.warmup_looks[0] for chain in chains):
            return False  # a later look would repeat the same probe
        # The last slot is the spare one.
        return all(len(chain["replicas"][0]["state"]["slots"]) == 2 for chain in chains)

    def restart(self, chain, other):
        streams = [replica["bit_generator"] for replica in chain["replicas"]]
        kept = {name: chain[name] for name in ("index", "entropy", "acceptance", "draws")}
        chain.update(other, **kept, origin=other.get("origin", other["index"]))
        chain["replicas"] = [
            {**replica, "bit_generator": stream}
            for replica, stream in zip(other["replicas"], streams, strict=True)
        ]

    def statistics(self, labels, completion=None):
        prior = self.make_prior(self.first_concentration)
        state = MixtureState(self.model(), prior, labels, completion=completion)
        return self.likelihood.own_stats(state.dump())

    def kept_partition(self, kept):
        labels = relabel_by_size(kept)
        return labels, self.statistics(labels)

    def most_likely(self, values, stats, log_weights):
        """The most likely cluster of each row, (n_samples,), among clusters given by their
        statistics, with these values of the learned hyperparameters."""
        rows = mixture_rows(self.likelihood, self.data, self.model(values), len(stats))
        return most_likely(rows, stats, log_weights).astype(np.intp)


def state_entropy(rows, state, known):
    """Sum of the entropies of the labels of rows given all clusters of a state. Rows that are
    noise or have a known class do not count: they cannot be in all clusters. `rows` is
    `MixtureRows` under the hyperparameters of the state, whose clusters are replaced."""
    n_clusters = state.n_clusters
    if n_clusters < 2:
        return 0.0
    load_clusters(rows.model, state.dump())
    counts = state.cluster_labels() >= 0
    counts[known.rows] = False
    log_weights = np.asarray(state.prior.log_weights(state.cluster_sizes()))
    return rows.label_entropy(log_weights[:n_clusters], counts.view(np.uint8))


def row_tiles(likelihood, data):
    """Tiles in which sweeps visit encoded rows, or None if the likelihood has no points."""
    points = likelihood.box_points(data)
    if points is None:
        return None
    complete = np.flatnonzero(~np.isnan(points).any(axis=1))
    if len(complete) == 0:
        return None
    return RowTiles(
        points[complete], TILE_SIZE, GROUP_SIZE, at_gaps=True, rows=complete.astype(np.intp)
    )


def check_capabilities(likelihood, model):
    """Raise ValueError if a kernel contradicts the capabilities of its likelihood."""
    states_product = "product" in likelihood.capabilities
    if states_product != bool(model.factorizes):
        has, factorizes = ("has", "is False") if states_product else ("lacks", "is True")
        raise ValueError(
            f'{type(likelihood).__name__} {has} the capability "product" (clusters are '
            f"independent given the partition), but `factorizes` of its kernel, "
            f"{type(model).__name__}, {factorizes}: the two must agree"
        )


class Replica:
    """One of the states of a chain, with a separate random stream and hyperparameters."""

    def __init__(self, program, saved):
        self.bit_generator = np.random.PCG64()
        self.bit_generator.state = saved["bit_generator"]
        self.values = dict(saved["values"])
        prior = program.make_prior(saved["concentration"])
        prior.set_latent(saved["latent"])
        self.state = MixtureState(
            program.model(self.values),
            prior,
            saved.get("labels"),
            saved.get("state"),
            tiles=program.tiles,
            completion=saved.get("completion"),
            noise=program.noise,
        )

    def resample(self, program, iteration):
        """Draw what the prior learns, then hyperparameters, given the partition."""
        state, sizes = self.state, self.state.cluster_sizes()
        program.resample_concentration(state.prior, sizes, self.bit_generator)
        state.prior.resample_latent(sizes, self.bit_generator)
        priors = program.learned_after(iteration, state.model)
        if priors:
            slots = state.cluster_slots()
            values = state.model.resample_hyperparameters(slots, priors, self.bit_generator)
            self.values = program.likelihood.learned_values(values)

    def save(self):
        return {
            "state": self.state.save(),
            "concentration": self.state.prior.concentration,
            "latent": self.state.prior.latent_values(),
            "values": self.values,
            "bit_generator": self.bit_generator.state,
        }


class StateChain(MixtureChain):
    """A chain whose state is a `MixtureState` of all rows."""

    def cluster_keys(self):
        """Sums of random 64-bit words of the items, 128 bits per cluster, in hexadecimal."""
        labels = self.state.cluster_labels()
        # Sorting small integers takes O(n). Rows that are noise, -1, come first and are left out.
        labels = smallest(labels, self.state.n_clusters, True)
        order = np.argsort(labels, kind="stable")
        first = np.searchsorted(labels[order], np.arange(self.state.n_clusters))
        sums = np.add.reduceat(self.program.item_keys[order], first, axis=0)
        keys = [words.tobytes().hex() for words in sums]
        if self.completion():
            # The same items have other statistics with other values of missing entries.
            digests = (hashlib.blake2b(stats, digest_size=8) for stats in self.state.dump())
            keys = [key + digest.hexdigest() for key, digest in zip(keys, digests, strict=True)]
        return keys

    def completion(self):
        model = self.state.model
        return {"completion": model.completion()} if model.n_incomplete else {}

    def kept_labels(self):
        return labels_by_first_appearance(self.state)


class RowChain(StateChain):
    """One chain: a kernel and its replicas. The first replica gives the draws. During warm-up
    some samplers add companions."""

    def __init__(self, program, chain):
        super().__init__(program, chain)
        self.kernel.set_adaptation(chain.get("adaptation", {}))
        saved = chain.get("replicas")
        if saved is None:
            n_replicas = program.sampler.n_replicas
            if program.n_warmup > 0:
                n_replicas += program.sampler.n_companions
            saved = [self._start(chain, r) for r in range(n_replicas)]
        self.replicas = [Replica(program, replica) for replica in saved]
        if chain["iteration"] >= program.n_warmup:
            self._drop_companions()  # the warm-up may have ended after the last iteration

    def _drop_companions(self):
        """End the warm-up."""
        n_replicas = self.program.sampler.n_replicas
        if len(self.replicas) > n_replicas:
            del self.replicas[n_replicas:]
            self.kernel.keep_replicas(n_replicas)

    def _start(self, chain, replica):
        """The saved form of a replica before its first iteration."""
        program = self.program
        key = (chain["index"], replica) if replica else (chain["index"],)
        bit_generator = stream(chain["entropy"], *key)
        most = program.make_prior(program.first_concentration).most_clusters
        if replica > 0:
            first = FirstState(
                dispersed_labels(replica, program.n_samples, most, bit_generator),
                program.first_values(),
                program.first_concentration,
            )
        else:
            draw = program.first_state
            first = getattr(draw, chain.pop("start", "__call__"))(program, bit_generator)
        labels = first.labels
        if labels is None:
            labels = np.zeros(program.n_samples, dtype=np.intp)
        labels = program.likelihood.separated(labels, most)
        prior = program.make_prior(first.concentration)
        sizes = np.bincount(labels)
        prior.resample_latent(sizes[sizes > 0], bit_generator)
        return {
            "labels": labels,
            "concentration": first.concentration,
            "latent": prior.latent_values(),
            "values": first.values,
            "bit_generator": bit_generator.state,
        }

    @property
    def state(self):
        return self.replicas[0].state

    @property
    def values(self):
        return self.replicas[0].values

    def step(self, iteration):
        adapting = iteration < self.program.n_warmup
        for r, replica in enumerate(self.replicas):
            self.kernel.run(replica.state, replica.bit_generator, adapting, r)
            if adapting and iteration < N_NOISE_TRIALS:
                replica.state.give_to_noise()
        for replica in self.replicas:
            replica.resample(self.program, iteration)
            if (iteration + 1) % REBUILD_EVERY == 0:
                replica.state.rebuild()
        self.kernel.record(iteration + 1, [replica.state for replica in self.replicas], adapting)
        if iteration + 1 == self.program.n_warmup:
            self._drop_companions()

    def log_mass(self, log_joint):
        program, rows = self.program, self._label_rows
        rows.model.clear(0)
        program.likelihood.set_values(rows.model, self.values)
        return self.log_posterior(log_joint) + state_entropy(rows, self.state, program.known)

    @functools.cached_property
    def _label_rows(self):
        """The rows, to be evaluated under all clusters: a second kernel."""
        tiles = self.program.tiles
        if tiles is not None and tiles.n_rows < self.program.n_samples:
            tiles = None  # without the rows that have gaps
        return MixtureRows(self.program.model(), tiles)

    def save(self):
        return {
            **super().save(),
            "replicas": [replica.save() for replica in self.replicas],
            "adaptation": self.kernel.get_adaptation(),
        }
