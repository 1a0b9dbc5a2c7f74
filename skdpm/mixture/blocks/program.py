# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a mixture model whose rows are visited in blocks.

A chain needs little to continue: the statistics of its clusters, the memory of its sampler, and
the codes of the rows, which are kept with the rows or computed again from the last sweep.
"""

import functools
import hashlib
from dataclasses import dataclass

import joblib
import numpy as np

from skdpm._validation import is_dask
from skdpm.chains import stream
from skdpm.mixture.blocks.records import Task
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.chains.automatic import MOST_SAMPLED, FirstState, find_clusters
from skdpm.mixture.chains.init import first_state
from skdpm.mixture.chains.program import N_NOISE_TRIALS, MixtureChain, MixtureProgram
from skdpm.mixture.rows.noise import laws_of_noise


class SampledClusters:
    """Start of chains from clusters of a sample of rows, or of all if there are few, found as in
    `chains.automatic`. Called with a program and a bit generator."""

    def __init__(self, rows, likelihood):
        self.rows = rows
        self.likelihood = likelihood

    def __call__(self, program, bit_generator):
        X = self.rows.sample(MOST_SAMPLED, tuple(bit_generator.random_raw(2).tolist()))
        points = self.likelihood.coordinates(X)
        data = self.likelihood.encode(X)
        model = self.likelihood.bind(data, self.likelihood.tables(data, X.shape[0] + 1))
        _, merged = find_clusters(program, self.likelihood, model, points, bit_generator)
        return FirstState(None, merged.values, merged.concentration, merged.stats)


# Number of iterations in which samplers adapt, at most the warm-up. It does not depend on the
# warm-up, which a time limit may shorten.
WARMUP = 100
# Numbers of draws of each chain after which `n_draws="auto"` may end the fit. Few, because draws
# of many rows take long, and more do not make numbers of components agree.
DRAW_LOOKS = (100, 150)
# Iterations before which chains try clusters of a sample of rows.
LOOKS = 0, 20
# Iterations from these clusters before they are compared with those of the chain.
N_SETTLING = 6


@dataclass(kw_only=True)
class BlockProgram(MixtureProgram):
    """Chains whose rows a sampler visits in blocks."""

    rows: object
    found: object

    warmup_looks = (WARMUP,)
    draw_looks = DRAW_LOOKS
    summaries = 60.0

    @classmethod
    def prepare(
        cls,
        X,
        likelihood,
        *,
        block_size,
        init,
        most_clusters,
        n_jobs,
        store_labels,
        noise=None,
        **settings,
    ):
        """The program of a fit to X: see `RowProgram.prepare`.

        Threads that the chains leave idle visit the blocks.
        """
        likelihood = likelihood.own  # rows of known classes are drawn apart
        rows = open_rows(X, block_size, idle_threads(n_jobs, settings["n_chains"]))
        with rows:
            likelihood = likelihood.resolve_summary(rows.summary(likelihood))
            if likelihood.fitted_gaps:
                raise ValueError(gaps_objection(type(settings["sampler"]).__name__))
            rows.condense(likelihood)
        laws = laws_of_noise(noise, likelihood, X, settings["known"])
        if "noise" in laws:
            rows.admit_noise(laws["noise"], likelihood)
        data = likelihood.encode(rows.first_row())
        found = SampledClusters(rows, likelihood)
        automatic = isinstance(init, str) and init == "auto"
        return cls(
            likelihood=likelihood,
            rows=rows,
            data=data,
            tables=likelihood.tables(data, settings["n_samples"]),
            store_labels=store_labels and rows.keeps_labels,
            found=found,
            first_state=found if automatic else first_state(init, X, likelihood, most_clusters),
            given=X,
            **laws,
            **settings,
        )

    def resume(self, chain):
        return BlockChain(self, chain)

    def statistics(self, labels, completion=None):
        codes = self.rows.codes(labels)
        task = Task(int(labels.max()) + 1)
        with self.rows as rows:
            return rows.visit(self.likelihood, codes, task, None)[1].stats[0::2]

    def kept_partition(self, kept):
        labels = self.rows.kept_labels(kept.labels, kept.cluster_numbers, self.likelihood)
        return labels, kept.stats


def open_rows(X, block_size, n_threads=1):
    """Cut X into blocks: `MemoryRows`, or `DaskRows` for an array from `dask_rows.check_dask`."""
    if is_dask(X):
        from skdpm.mixture.blocks.dask_rows import DaskRows  # dask is optional

        return DaskRows(X, block_size)
    return MemoryRows(X, block_size, n_threads)


def idle_threads(n_jobs, n_chains):
    """Number of threads for the blocks of each chain: those of n_jobs that the chains leave."""
    return max(1, joblib.effective_n_jobs(n_jobs) // n_chains)


class BlockChain(MixtureChain):
    """One chain while it runs: a kernel and a `BlockState`."""

    def __init__(self, program, chain):
        super().__init__(program, chain)
        self.kernel.set_adaptation(chain.get("adaptation", {}))
        self.key = (chain["entropy"], self.index)
        self.rows = program.rows
        self._saved = chain

    def __enter__(self):
        self.rows.__enter__()
        try:
            saved = self._saved
            if "state" not in saved:
                first = self.program.first_state(self.program, stream(*self.key))
                saved = self._from(first, (*self.key, 0))
            self._resume(saved)
        except BaseException:
            self.rows.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        self.rows.__exit__(*exception)

    def _resume(self, saved):
        program = self.program
        self.values = dict(saved["values"])
        self.state = BlockState(
            self.rows,
            program.likelihood.at(self.values) if self.values else program.likelihood,
            program.make_prior(saved["concentration"]),
            program.model(self.values),
            saved["state"],
            program.noise,
            program.known,
        )

    def _from(self, first, key):
        """What a chain at a `FirstState` would save. The key names streams of no iteration."""
        likelihood, prior = self.program.likelihood, self.program.make_prior(first.concentration)
        n_slots, known = functools.partial(self.kernel.n_slots, prior), self.program.known
        labels, state = first.labels, None
        if first.stats is not None:
            at = likelihood.at(first.values) if first.values else likelihood
            state = BlockState.draw(self.rows, at, first.stats, n_slots, key)
        if known.unites:
            labels = state["codes"] >> 1 if state is not None else labels
            labels = np.zeros(self.rows.n_samples, dtype=np.intp) if labels is None else labels
            labels = known.restricted(likelihood).separated(labels, prior.most_clusters)
        if known.unites or state is None:
            n_clusters = 1 if labels is None else int(labels.max()) + 1
            state = BlockState.start(self.rows, likelihood, labels, n_slots(n_clusters))
        return {"state": state, "concentration": first.concentration, "values": first.values}

    def _looks(self):
        """Iterations before which sampled clusters are tried: not the first if they start it."""
        program = self.program
        return set(LOOKS) - {0} if program.first_state is program.found else set(LOOKS)

    def _look_around(self, bit_generator, key, adapting):
        """Move, in warm-up, to clusters of a sample of rows if these are more likely."""
        before, value = self.save(), self.log_posterior(self.compute_log_joint())
        self._resume(self._from(self.program.found(self.program, bit_generator), key))
        self.kernel.set_adaptation({})
        rng = np.random.Generator(bit_generator)
        # The clusters of the sample are clearer than those of any draw: let them settle first.
        for n in range(N_SETTLING):
            self.kernel.step(self.state, rng, (*key, n), adapting)
        if not self.log_posterior(self.compute_log_joint()) > value:
            self._resume(before)
            self.kernel.set_adaptation(before["adaptation"])

    def step(self, iteration):
        program = self.program
        adapting = max(0.0, 1.0 - iteration / WARMUP) if iteration < program.n_warmup else 0.0
        key = (*self.key, iteration + 1)
        bit_generator = stream(*key, 0)
        if adapting and self.kernel.looks_around and iteration in self._looks():
            self._look_around(bit_generator, (*key, 0), adapting)
        state = self.state
        self.kernel.step(state, np.random.Generator(bit_generator), key, adapting)
        if program.noise_law.takes_rows and adapting and iteration < N_NOISE_TRIALS:
            if state.give_to_noise(functools.partial(self.kernel.n_slots, state.prior)):
                self.kernel.set_adaptation({})
        program.resample_concentration(state.prior, state.cluster_sizes(), bit_generator)
        priors = program.learned_after(iteration, state.model)
        if priors:
            stats = state.dump()
            state.model.load(stats)
            slots = np.arange(len(stats))
            values = state.model.resample_hyperparameters(slots, priors, bit_generator)
            state.model.clear(0)  # marginal likelihoods need no slot
            self.values = program.likelihood.learned_values(values)
            state.replace_likelihood(program.likelihood.at(self.values))

    def cluster_keys(self):
        """Hashes of the statistics."""
        return [
            hashlib.blake2b(stats.tobytes(), digest_size=16).hexdigest()
            for stats in self.state.dump()
        ]

    def kept_labels(self):
        return self.state.keep()

    def save(self):
        return {
            **super().save(),
            "state": self.state.save(),
            "concentration": self.state.prior.concentration,
            "values": self.values,
            "adaptation": self.kernel.get_adaptation(),
        }


def gaps_objection(sampler):
    """Why a sampler refuses missing entries that have to be drawn."""
    return (
        f"NaN in X: {sampler} cannot draw the missing entries of columns that are correlated "
        'within clusters; use a sampler of rows in memory, such as "auto", "gibbs" or "sams", or '
        'Gaussian(covariance_type="diag")'
    )
