# SPDX-License-Identifier: BSD-3-Clause
"""A task on a block of rows in which each row draws its cluster from a group of clusters.

See `GroupedSweep`. Every cluster of the group is evaluated for each of its rows.
"""
import numpy as np

from skdpm.mixture.blocks._visit cimport BlockTask
from skdpm.mixture.likelihoods.contract._parametric cimport ParametricModel, as_indices


cdef class GroupedTask(BlockTask):
    """`BlockTask` with a `GroupedSweep`; it needs the rows' codes."""
    cdef const Py_ssize_t* groups           # (n_clusters,): group of each cluster
    cdef const Py_ssize_t* members          # (n_clusters,): clusters by group
    cdef const Py_ssize_t* group_starts     # (n_groups + 1,): place of each group in `members`

    def __cinit__(
        self, ParametricModel model, codes, task, list bit_generators, held, order,
        Py_ssize_t tile_rows, log_noise=None
    ):
        if codes is None:
            raise ValueError("a sweep in groups needs codes")
        groups = np.asarray(task.sweep.groups, dtype=np.intp)
        self.groups = self.indices(groups)
        self.members = self.indices(np.argsort(groups, kind="stable"))
        self.group_starts = self.indices(np.cumsum(np.bincount(groups + 1)))
        self.tile_rows = 0

    cdef bint draw_clusters(
        self, const Py_ssize_t* items, const double* u, Py_ssize_t n_items
    ) noexcept nogil:
        """Draw `clusters` of items from their groups. False if weights are no distribution."""
        for i in range(n_items):
            self.keys[i] = self.groups[self.codes[items[i]] // 2]
        n = self.sort(self.keys, items, u, n_items)
        for j in range(n):
            g = self.present[j]
            which = self.members + self.group_starts[g]
            first = self.starts[j]
            if not self.choose(
                as_indices(self.sorted_items + first, self.starts[j + 1] - first), self.params,
                self.log_weights,
                as_indices(which, self.group_starts[g + 1] - self.group_starts[g]),
                self.sorted_u + first
            ):
                return False
            for i in range(first, self.starts[j + 1]):
                self.clusters[self.positions[i]] = which[self.draws[i - first]]
        return True
