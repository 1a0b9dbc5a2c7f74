# SPDX-License-Identifier: BSD-3-Clause
"""The state of a chain whose rows are visited in blocks: clusters by their statistics."""

import numpy as np

from skdpm.mixture.blocks.rows import visit_task


class BlockState:
    """Clusters of a partition by their statistics; its labels are left to the rows.

    Parameters
    ----------
    rows : RowBlocks or DaskRows
    likelihood : Likelihood
        Resolved.
    prior : PartitionPrior
    model : ClusterModel
        Of any rows: it computes marginal likelihoods.
    saved : dict
        From `save`.
    """

    def __init__(self, rows, likelihood, prior, model, saved):
        self.rows = rows
        self.likelihood = likelihood
        self.prior = prior
        self.model = model
        self.parametric = likelihood.parametric(rows.first_row()[:0])
        self.codes = saved["codes"]
        self.stats = saved["stats"]  # (2 K, n_stats): of each code
        self.firsts = saved["firsts"]  # (2 K,): the first row of each, -1 where there is none
        # The sampler's own: arrays with an entry per cluster.
        self.memory = {name: values.copy() for name, values in saved["memory"].items()}
        self.log_constant = saved["log_constant"]

    def save(self):
        """All that the chain needs to go on to the bit."""
        return {
            "codes": self.codes,
            "stats": self.stats,
            "firsts": self.firsts,
            "memory": self.memory,
            "log_constant": self.log_constant,
        }

    @property
    def n_slots(self):
        """Clusters, empty ones included."""
        return len(self.stats) // 2

    def totals(self, clusters=slice(None)):
        """Statistics of the clusters, or of some: (n_slots, n_stats)."""
        return self.parametric.combined(self.stats[0::2][clusters], self.stats[1::2][clusters])

    def visit(self, key, sweep=None, halves=(), numbers=(), held=()):
        """See `RowBlocks.visit`."""
        task = visit_task(self.n_slots, sweep, halves, numbers, held)
        return self.rows.visit(self.likelihood, self.codes, task, key)

    def change(self, change):
        """Relabel rows: a table of codes, or a random split (`change_codes`)."""
        self.codes = self.rows.changed(self.codes, [change])

    # Clusters that come and go.

    def memory_of(self, cluster):
        return {name: values[cluster : cluster + 1] for name, values in self.memory.items()}

    def append_cluster(self, cluster, parts, firsts, memory):
        """A cluster has been split and its second half become a new one, the last.

        Parameters
        ----------
        parts : ndarray of shape (4, n_stats)
            Statistics of the sub-clusters of both.
        firsts : ndarray of shape (4,)
            First rows of these.
        memory : dict of arrays with one entry
            Of both.
        """
        self.stats = np.concatenate([self.stats, parts[2:]])
        self.stats[2 * cluster : 2 * cluster + 2] = parts[:2]
        self.firsts = np.concatenate([self.firsts, firsts[2:]])
        self.firsts[2 * cluster : 2 * cluster + 2] = firsts[:2]
        self.memory = {name: np.append(self.memory[name], memory[name]) for name in memory}
        for name in memory:
            self.memory[name][cluster] = memory[name][0]

    def merge_clusters(self, one, other):
        """The rows of the smaller of two clusters join the left sub-cluster of the larger; the
        last cluster takes the free place."""
        sizes = self._sizes()
        large, small = (one, other) if sizes[one] >= sizes[other] else (other, one)
        last = self.n_slots - 1
        table = np.arange(2 * self.n_slots, dtype=np.int32)
        table[2 * small : 2 * small + 2] = 2 * large
        table[table >= 2 * last] += 2 * (small - last)
        self.change(table)
        stats, firsts = self.stats.copy(), self.firsts.copy()
        for code in (2 * small, 2 * small + 1):
            stats[2 * large] = self.parametric.combined(stats[[2 * large]], stats[[code]])[0]
        rows = firsts[[2 * large, 2 * small, 2 * small + 1]]
        firsts[2 * large] = rows[rows >= 0].min()
        for values in (stats, firsts):
            values[2 * small : 2 * small + 2] = values[2 * last :]
        self.stats, self.firsts = stats[:-2], firsts[:-2]
        for name, values in self.memory.items():
            values[small] = values[last]
            self.memory[name] = values[:-1]

    # What `KeptDraws` and `Snapshots` ask of a state, in the order of the occupied clusters.

    def _sizes(self):
        return self.stats[0::2, 0] + self.stats[1::2, 0]

    def _occupied(self):
        return np.flatnonzero(self._sizes())

    @property
    def n_clusters(self):
        return len(self._occupied())

    def cluster_sizes(self):
        return self._sizes()[self._occupied()].astype(np.intp)

    def cluster_labels(self):
        numbers = np.zeros(self.n_slots, dtype=np.intp)
        numbers[self._occupied()] = np.arange(self.n_clusters)
        return self.rows.labels(self.codes, numbers)

    def dump(self, clusters=slice(None)):
        return self.totals(self._occupied()[clusters])

    def compute_log_joint(self):
        """log p(partition, X) at the current concentration, natural logarithm."""
        log_likelihood = self.model.log_marginals(self.dump()).sum() + self.log_constant
        return float(self.prior.log_probability(self.cluster_sizes()) + log_likelihood)

    def rebuild(self):
        """Nothing to do: statistics are computed anew in every visit."""

    def keep(self):
        """What tells the labels and the clusters of this draw later."""
        occupied = self._occupied()
        # -1, which says that there is none, becomes the largest of all.
        firsts = self.firsts.reshape(-1, 2).astype(np.uintp).min(axis=1)[occupied]
        order = np.lexsort((firsts, -self.cluster_sizes()))
        numbers = np.zeros(self.n_slots, dtype=np.int64)
        numbers[occupied[order]] = np.arange(len(occupied))
        return {
            "labels": self.rows.keep(self.codes),
            "numbers": numbers,
            "rows": self.dump(order),
        }
