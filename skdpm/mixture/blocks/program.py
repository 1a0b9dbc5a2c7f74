# SPDX-License-Identifier: BSD-3-Clause
"""One chain of a mixture model whose rows are visited in blocks.

What a chain needs to go on is small: the statistics of its clusters, what its sampler remembers
of them, and the rows' codes, which are kept beside the rows or computed again from the last sweep.
"""

import hashlib
from dataclasses import dataclass, field

import numpy as np

from skdpm.chains import stream
from skdpm.mixture._program import RowProgram
from skdpm.mixture.blocks.rows import visit_task
from skdpm.mixture.blocks.state import BlockState


@dataclass
class BlockProgram(RowProgram):
    """What the chains of one fit share where the sampler visits rows in blocks."""

    rows: object = None
    models: dict = field(default_factory=dict)  # of each chain; its tables are slow to make

    def start(self, entropy, index):
        """A chain that has done no iteration, as a plain dict."""
        labels = self.initial_labels(stream(entropy, index))
        concentration = self.first_concentration
        n_clusters = 1 if labels is None else int(labels.max()) + 1
        n_slots = self.sampler.kernel().n_slots(self.make_prior(concentration), n_clusters)
        codes = self.rows.codes(labels)
        _, stats, firsts = self.rows.visit(
            self.likelihood, codes, visit_task(n_slots), (entropy, index, 0)
        )
        return {
            "index": index,
            "iteration": 0,
            "entropy": entropy,
            "state": {
                "codes": codes,
                "stats": stats,
                "firsts": firsts,
                "memory": {},
                "log_constant": self.rows.log_constant(self.likelihood),
            },
            "concentration": concentration,
            **self._nothing_kept(),
        }

    def advance(self, chain, n_iterations, go_on):
        """See `skdpm.chains.run_chains`."""
        prior = self.make_prior(chain["concentration"])
        model = self._chain_model(chain["index"])
        kernel = self.sampler.kernel()
        with self.rows as rows:
            state = BlockState(rows, self.likelihood, prior, model, chain["state"])

            def step(iteration):
                key = (chain["entropy"], chain["index"], iteration + 1)
                bit_generator = stream(*key, 0)
                kernel.step(state, np.random.Generator(bit_generator), key)
                return bit_generator

            self._iterate(chain, state, kernel, step, n_iterations, go_on)

    def keep(self, state):
        return state.keep()

    def kept_partition(self, kept):
        labels = self.rows.kept_labels(kept["labels"], kept["numbers"], self.likelihood)
        return labels, kept["rows"]

    def statistics(self, labels):
        codes = self.rows.codes(labels)
        task = visit_task(int(labels.max()) + 1)
        with self.rows as rows:
            return rows.visit(self.likelihood, codes, task, None)[1][0::2]

    def cluster_keys(self, state):
        return [hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in state.dump()]

    def _chain_model(self, index):
        if index not in self.models:
            X = self.rows.first_row()
            data = self.likelihood.encode(X)
            tables = self.likelihood.tables(data, self.n_samples)
            self.models[index] = self.likelihood.bind(data, tables)
        return self.models[index]
