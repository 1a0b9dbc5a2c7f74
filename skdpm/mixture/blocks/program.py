# SPDX-License-Identifier: BSD-3-Clause
"""Chains of a mixture model whose rows are visited in blocks.

What a chain needs to go on is small: the statistics of its clusters, what its sampler remembers
of them, and the rows' codes, which are kept beside the rows or computed again from the last sweep.
"""

import hashlib
from dataclasses import dataclass

import joblib
import numpy as np

from skdpm.chains import stream
from skdpm.mixture._init import first_state
from skdpm.mixture._program import MixtureChain, MixtureProgram, check_capabilities
from skdpm.mixture.blocks.records import Task
from skdpm.mixture.blocks.rows import open_rows
from skdpm.mixture.blocks.state import BlockState


@dataclass(kw_only=True)
class BlockProgram(MixtureProgram):
    """Chains whose rows a sampler visits in blocks.

    Attributes
    ----------
    rows : Rows
    """

    rows: object

    @classmethod
    def prepare(
        cls, X, likelihood, *, block_size, init, most_clusters, n_jobs, store_labels, **settings
    ):
        """The program of a fit to X: see `RowProgram.prepare`.

        Threads that chains leave idle visit the blocks.
        """
        rows = open_rows(X, block_size, idle_threads(n_jobs, settings["n_chains"]))
        with rows:
            likelihood = likelihood.resolve_summary(rows.summary(likelihood))
            rows.condense(likelihood)
        data = likelihood.encode(rows.first_row())
        program = cls(
            likelihood=likelihood,
            rows=rows,
            data=data,
            tables=likelihood.tables(data, settings["n_samples"]),
            store_labels=store_labels and rows.keeps_labels,
            first_state=first_state(init, X, likelihood, most_clusters),
            **settings,
        )
        check_capabilities(likelihood, program.model())
        return program

    def resume(self, chain):
        return BlockChain(self, chain)

    def most_likely(self, values, stats, log_weights):
        return self.rows.most_likely(self.likelihood.at(values), stats, log_weights)

    def statistics(self, labels):
        codes = self.rows.codes(labels)
        task = Task(int(labels.max()) + 1)
        with self.rows as rows:
            return rows.visit(self.likelihood, codes, task, None)[1].stats[0::2]

    def kept_partition(self, kept):
        labels = self.rows.kept_labels(kept.labels, kept.cluster_numbers, self.likelihood)
        return labels, kept.stats


def idle_threads(n_jobs, n_chains):
    """Threads that visit the blocks of each chain: what the chains leave of n_jobs."""
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
            self._resume()
        except BaseException:
            self.rows.__exit__()
            raise
        return self

    def __exit__(self, *exception):
        self.rows.__exit__(*exception)

    def _resume(self):
        """Make the state from what was saved, or the first one."""
        program = self.program
        saved = self._saved if "state" in self._saved else self._start()
        self.values = dict(saved["values"])
        self.state = BlockState(
            self.rows,
            program.likelihood,
            program.make_prior(saved["concentration"]),
            program.model(self.values),
            saved["state"],
        )
        if self.values:
            self.state.likelihood = program.likelihood.at(self.values)

    def _start(self):
        """Start the chain: return what it would have saved before the first iteration."""
        program = self.program
        first = program.first_state(program, stream(*self.key))
        n_clusters = 1 if first.labels is None else int(first.labels.max()) + 1
        prior = program.make_prior(first.concentration)
        n_slots = self.kernel.n_slots(prior, n_clusters)
        return {
            "state": BlockState.start(self.rows, program.likelihood, first.labels, n_slots),
            "concentration": first.concentration,
            "values": first.values,
        }

    def step(self, iteration):
        program, state = self.program, self.state
        key = (*self.key, iteration + 1)
        bit_generator = stream(*key, 0)
        self.kernel.step(state, np.random.Generator(bit_generator), key)
        program.resample_concentration(state.prior, state.cluster_sizes(), bit_generator)
        if program.learns_after(iteration, state.model):
            stats = state.dump()
            state.model.load(stats)
            values = state.model.resample_hyperparameters(
                np.arange(len(stats)), program.likelihood.hyperpriors, bit_generator
            )
            state.model.clear(0)  # only its own slot is needed to compute marginal likelihoods
            self.values = program.likelihood.learned_values(values)
            state.likelihood = program.likelihood.at(self.values)

    def cluster_keys(self):
        """Hashes of the statistics."""
        return [
            hashlib.blake2b(stats.tobytes(), digest_size=16).digest()
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
