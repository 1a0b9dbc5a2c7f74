# SPDX-License-Identifier: BSD-3-Clause
"""State of a chain whose rows are visited in blocks: clusters by their statistics."""

import numpy as np

from skdpm.chains import stream
from skdpm.mixture.blocks import records
from skdpm.mixture.blocks._visit import draw_in_turn
from skdpm.mixture.rows.known import UNLABELLED

# Number of rows with known labels whose densities are computed at a time.
N_KNOWN = 4096


class BlockState:
    """Clusters of a partition by their statistics. The rows keep the labels.

    - `likelihood`: Likelihood. Resolved.
    - `model`: ClusterModel. Bound to any rows: it computes marginal likelihoods.
    - `saved`: dict. From `start`, `draw` or `save`.
    - `noise`: Noise or None. Law of rows that are noise.
    - `known`: KnownLabels or Unlabelled. Known labels of the rows. Rows with one are in memory.
    - `codes`: object. Labels, as the rows keep them.
    - `collected`: Collected. Statistics of each code; those of cluster k are 2 k and 2 k + 1.
    """

    def __init__(self, rows, likelihood, prior, model, saved, noise=None, known=UNLABELLED):
        self.noise = noise
        self.known = known
        self.rows = rows
        self.replace_likelihood(likelihood)
        self.prior = prior
        self.model = model
        self.codes = saved["codes"]
        self.collected = saved["collected"]
        self.log_constant = saved["log_constant"]

    @staticmethod
    def start(rows, likelihood, labels, n_slots):
        """Return a first state, as if saved, with n_slots clusters, empty ones included. Labels of
        None put all rows in one cluster."""
        codes = rows.codes(labels)
        _, collected = rows.visit(likelihood, codes, records.Task(n_slots), None)
        return _saved(codes, collected, _fixed_log_constant(rows, likelihood))

    @staticmethod
    def draw(rows, likelihood, stats, n_slots, key):
        """Return a first state, as if saved: all rows are drawn among clusters given by the
        statistics of some rows, (n_clusters, n_stats), with weights in proportion to the numbers
        of these rows. `n_slots` turns a number of clusters into the number with empty ones."""
        model = likelihood.parametric(rows.first_row()[:0])
        params = model.draw(stats, np.ones(len(stats)), stream(*key, 0))
        task = records.Task(len(stats), records.Sweep(params, np.log(stats[:, 0])))
        codes, collected = rows.visit(likelihood, rows.codes(None), task, key)
        used = np.flatnonzero(collected.stats[0::2, 0])
        n_slots = n_slots(len(used))
        if len(used) < len(stats):
            table = np.zeros(2 * len(stats), dtype=np.int32)
            table[2 * used] = 2 * np.arange(len(used))
            codes = rows.changed(codes, [records.Relabelling(table)])
        first = records.Collected.of_no_rows(2 * n_slots, stats.shape[1])
        first.put(slice(0, 2 * len(used), 2), collected[2 * used])
        return _saved(codes, first, _fixed_log_constant(rows, likelihood))

    def save(self):
        """Return all that the state needs to continue with the same bits."""
        return _saved(self.codes, self.collected, self.log_constant)

    def replace_likelihood(self, likelihood):
        """Go on, between iterations, with other hyperparameters."""
        self.likelihood = likelihood
        self.parametric = likelihood.parametric(self.rows.first_row()[:0])

    @property
    def stats(self):
        return self.collected.stats

    @property
    def n_slots(self):
        """Number of clusters, empty ones included."""
        return len(self.stats) // 2

    def totals(self, clusters=slice(None)):
        """Return the statistics of the given clusters, by default all: (n_clusters, n_stats)."""
        return self.parametric.combined(self.stats[0::2][clusters], self.stats[1::2][clusters])

    def run_task(self, key, sweep=None, splits=(), held_clusters=()):
        """Do a `Task` on the rows and return what `Rows.visit` does; the state does not change."""
        known = self.known.rows if sweep is not None and self.known.unites else ()
        task = records.Task(self.n_slots, sweep, tuple(splits), tuple(held_clusters), known)
        return self.rows.visit(self.likelihood, self.codes, task, key)

    def accept(self, codes, collected):
        """Go on with the codes and statistics that `run_task` returned."""
        self.codes, self.collected = codes, collected[: 2 * self.n_slots]

    def launch(self, key, launch):
        """Do a `Launch` on the rows and return what `Rows.launch` does."""
        return self.rows.launch(self.likelihood, self.codes, launch, key)

    # Rows of known classes.

    def draw_known(self, sweep, rng, least=1):
        """Draw the codes of rows with known labels in turn, given all others: each is in a cluster
        without rows of another class. A cluster keeps `least` rows. Statistics do not change."""
        rows = self.known.rows
        if len(rows) == 0:
            return
        codes, sizes = self.codes.copy(), self._sizes()
        counts = np.bincount(codes[rows] >> 1, minlength=self.n_slots)
        owners = np.zeros(self.n_slots, dtype=np.intp)
        owners[codes[rows] >> 1] = self.known.codes[rows]
        for first in range(0, len(rows), N_KNOWN):
            some = rows[first : first + N_KNOWN]
            new, classes = codes[some], self.known.codes[some]
            log_w = self._log_weights(some, sweep.params, sweep.log_weights)
            halves = self._log_weights(some, sweep.sub_params, sweep.sub_log_weights)
            draw_in_turn(
                new, classes, log_w, halves, sizes, counts, owners, least, rng.bit_generator
            )
            codes[some] = new
        self.codes = codes

    def _log_weights(self, rows, params, log_weights):
        """Logarithms of weights times densities of some rows: (len(params), n_rows), or None."""
        if params is None:
            return None
        log_density = self.likelihood.parametric(self.rows.X[rows]).log_densities(params)
        return log_density + log_weights[:, None]

    def may_join(self, one, other):
        """Whether two clusters have no rows of two classes."""
        rows = self.known.rows
        if len(rows):
            rows = rows[np.isin(self.codes[rows] >> 1, (one, other))]
        return len(rows) == 0 or np.ptp(self.known.codes[rows]) == 0

    # Splits and merges.

    def relabel(self, table, n_clusters):
        """Change codes by a table of the new code of each code, (2 n_slots,), int32; codes with
        the same new code are united. Afterwards there are n_clusters clusters."""
        old = self.collected
        united = records.Collected.of_no_rows(2 * n_clusters, old.stats.shape[1])
        stats, first_rows = united.stats, united.first_rows
        codes = np.flatnonzero(old.stats[:, 0])
        while len(codes):
            new, which = np.unique(table[codes], return_index=True)
            now = codes[which]
            stats[new] = self.parametric.combined(stats[new], old.stats[now])
            # As unsigned numbers, -1 (no row) is the largest.
            first = np.minimum(first_rows[new].view(np.uintp), old.first_rows[now].view(np.uintp))
            first_rows[new] = first.view(np.intp)
            codes = np.delete(codes, which)
        self.codes = self.rows.changed(self.codes, [records.Relabelling(table)])
        self.collected = united

    def split_clusters(self, changes, collected):
        """Split clusters in two by `RandomSplit`s or `LaunchedSplit`s; the second sides become
        new, last clusters. `collected` has the statistics of the two sides of each or, in this
        order, of their sub-clusters."""
        n, n_stats = self.stats.shape
        split = records.Collected.of_no_rows(n + 2 * len(changes), n_stats)
        split.put(slice(n), self.collected)
        for m, (change, groups) in enumerate(zip(changes, collected, strict=True)):
            codes = np.array([0, 1, n + 2 * m, n + 2 * m + 1])
            codes[:2] += 2 * change.cluster
            split.put(codes, records.Collected.of_no_rows(4, n_stats))
            split.put(codes[:: 4 // len(groups)], groups)
        self.codes = self.rows.changed(self.codes, changes, self.likelihood)
        self.collected = split

    def join_clusters(self, pairs):
        """Merge disjoint pairs of clusters: the rows of the second cluster of a pair go to the
        left sub-cluster of the first. Returns the old numbers of those left, in the new order."""
        kept = np.ones(self.n_slots, dtype=bool)
        table = np.arange(2 * self.n_slots, dtype=np.int32)
        for one, other in pairs:
            kept[other] = False
            table[2 * other : 2 * other + 2] = 2 * one
        numbers = np.cumsum(kept) - 1
        table = 2 * numbers[table >> 1] + table % 2
        self.relabel(table.astype(np.int32), int(kept.sum()))
        return np.flatnonzero(kept)

    def give_to_noise(self, n_slots):
        """Make whole clusters noise if this raises the log joint, as `MixtureState.give_to_noise`
        does. At least one cluster stays. `n_slots` turns their number into the number with empty
        ones. Returns whether clusters have changed."""
        occupied, sizes = self._occupied(), self.cluster_sizes()
        gains = self.rows.sum_noise(self.codes, self.n_slots)[occupied]
        gains -= self.model.log_marginals(self.dump())
        given = self.noise.clusters_for_noise(gains, sizes, self.n_noise, self.prior, least=1)
        if len(given) == 0:
            return False
        kept = np.delete(occupied, given)
        table = np.full(2 * self.n_slots, records.NOISE_CODE, dtype=np.int32)
        old = np.repeat(2 * kept, 2) + np.tile([0, 1], len(kept))
        table[old] = np.arange(len(old))
        first = records.Collected.of_no_rows(2 * n_slots(len(kept)), self.stats.shape[1])
        first.put(slice(len(old)), self.collected[old])
        self.codes = self.rows.changed(self.codes, [records.Relabelling(table)])
        self.collected = first
        return True

    # What chains read of any state: occupied clusters, in their order.

    @property
    def n_samples(self):
        return self.rows.n_samples

    @property
    def n_noise(self):
        """Number of rows that are noise."""
        return self.n_samples - int(self._sizes().sum())

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
        cluster_numbers = np.zeros(self.n_slots, dtype=np.intp)
        cluster_numbers[self._occupied()] = np.arange(self.n_clusters)
        return self.rows.labels(self.codes, cluster_numbers)

    def dump(self, clusters=slice(None)):
        """Return the statistics of the given occupied clusters, by default all."""
        return self.totals(self._occupied()[clusters])

    def compute_log_joint(self):
        """Compute log p(partition, X) at the current concentration, natural logarithm."""
        constants = self.log_constant + self.likelihood.sum_varying_constants()
        log_likelihood = self.model.log_marginals(self.dump()).sum() + constants
        if len(self.rows.log_noise):
            n_noise = self.n_noise
            log_likelihood += self.noise.log_probability(n_noise, self.n_samples - n_noise)
            log_likelihood += self.rows.sum_noise(self.codes, 0)[-1]
        return float(self.prior.log_probability(self.cluster_sizes()) + log_likelihood)

    def rebuild(self):
        """Do nothing: every visit computes the statistics anew."""

    def keep(self):
        """Return a record of the labels and clusters of this draw: KeptPartition."""
        occupied = self._occupied()
        # As unsigned numbers, -1 (no row) is the largest.
        first_rows = self.collected.first_rows.reshape(-1, 2).astype(np.uintp).min(axis=1)
        order = np.lexsort((first_rows[occupied], -self.cluster_sizes()))
        cluster_numbers = np.zeros(self.n_slots, dtype=np.int64)
        cluster_numbers[occupied[order]] = np.arange(len(occupied))
        return records.KeptPartition(self.rows.keep(self.codes), cluster_numbers, self.dump(order))


def _saved(codes, collected, log_constant):
    return {"codes": codes, "collected": collected, "log_constant": log_constant}


def _fixed_log_constant(rows, likelihood):
    """Sum of the `log_constants` of all rows that do not depend on hyperparameters."""
    return rows.log_constant(likelihood) - likelihood.sum_varying_constants()
