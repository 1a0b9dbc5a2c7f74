# SPDX-License-Identifier: BSD-3-Clause
"""Counts of links between nodes i < j of clusters k and l: Poisson(theta_kl).

With theta_kl ~ Gamma(a, b), and S_kl the sum of the N_kl counts between clusters k <= l,

    p(X | partition) = prod_{k <= l} g(S_kl, N_kl) / prod_{i < j} x_ij!,
    g(S, N) = b^a Gamma(a + S) / (Gamma(a) (b + N)^(a + S)).

An item with s_l links to the m_l items of cluster l joins k with the density

    prod_l [g(S_kl + s_l, N_kl + m_l) / g(S_kl, N_kl)] / prod_j x_ij!,

so clusters are coupled. A row of the arena has only the size of its cluster; S is a matrix over
slots. Sums of counts are integers, so nothing drifts.
"""
from libc.math cimport lgamma, log

import numpy as np

from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, row


cdef class LinkCountsModel(ClusterModel):
    """Kernel of clusters of nodes whose links are counted.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_nodes)
        Counts, 0 on the diagonal. New nodes link to those of `fit`, which are then the columns.
    log_factorials : ndarray of the shape of X
    shape, rate : float
    n_max : int
        Largest number of items of a cluster.
    """
    cdef const double[:, ::1] X, log_factorials
    cdef double shape, rate
    cdef double[:, ::1] totals      # (n_slots, n_slots): S, symmetric, 0 where a slot has no items
    cdef double[::1] links, sizes   # (n_slots,): s and m of an item, from the labels

    def __init__(self, X, log_factorials, double shape, double rate, Py_ssize_t n_max):
        self.factorizes = False
        self.X = X
        self.log_factorials = log_factorials
        self.n_samples = X.shape[0]
        self.n_max = n_max
        self.shape = shape
        self.rate = rate
        self.totals = np.zeros((0, 0))
        self.allocate(1, 1)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        """Add (by = 1) or remove (by = -1) item i, whose label is -1."""
        cdef Py_ssize_t j, l
        for j in range(self.n_labels):
            l = self.labels[j]
            if l >= 0:
                self.totals[slot, l] += by * self.X[i, j]
                if l != slot:
                    self.totals[l, slot] = self.totals[slot, l]
        row(self, slot)[0] += by

    cdef double log_cell(self, double total, double n_pairs) noexcept nogil:
        """Compute log g(total, n_pairs)."""
        return (
            self.shape * log(self.rate) - lgamma(self.shape)
            + lgamma(self.shape + total) - (self.shape + total) * log(self.rate + n_pairs)
        )

    cdef double n_pairs(self, Py_ssize_t k, Py_ssize_t l) noexcept nogil:
        cdef double size = row(self, k)[0]
        return 0.5 * size * (size - 1.0) if k == l else size * row(self, l)[0]

    cdef double log_likelihood(self, Indices slots) noexcept nogil:
        cdef Py_ssize_t i, j, k, l
        cdef double log_constant = 0.0
        cdef double total = 0.0
        for k in range(slots.n):
            for l in range(k, slots.n):
                total += self.log_cell(
                    self.totals[slots.at[k], slots.at[l]], self.n_pairs(slots.at[k], slots.at[l])
                )
        for i in range(self.n_labels):
            if self.labels[i] >= 0:
                for j in range(i):
                    if self.labels[j] >= 0:
                        log_constant += self.log_factorials[i, j]
        return total - log_constant

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(links of item i | the item joins each slot), O(n_nodes + n_slots * all slots)."""
        cdef Py_ssize_t j, k, l, slot
        cdef double log_constant = 0.0
        cdef double total, n_pairs
        for l in range(self.n_slots):
            self.links[l] = self.sizes[l] = 0.0
        for j in range(self.n_labels):
            l = self.labels[j]
            if l >= 0:
                self.links[l] += self.X[i, j]
                self.sizes[l] += 1.0
                log_constant += self.log_factorials[i, j]
        for k in range(slots.n):
            slot = slots.at[k]
            out[k] = -log_constant
            for l in range(self.n_slots):
                if self.sizes[l] > 0.0:
                    total = self.totals[slot, l]
                    n_pairs = self.n_pairs(slot, l)
                    out[k] += self.log_cell(total + self.links[l], n_pairs + self.sizes[l])
                    out[k] -= self.log_cell(total, n_pairs)

    # The matrix grows, and is emptied, saved and loaded, together with the rows of the arena.

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        cdef Py_ssize_t n_old = self.n_slots
        if n_slots <= n_old:
            return 0
        ClusterModel.reserve(self, n_slots)
        totals = np.zeros((n_slots, n_slots))
        totals[:n_old, :n_old] = self.totals
        self.totals = totals
        self.links = np.empty(n_slots)
        self.sizes = np.empty(n_slots)

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t l
        ClusterModel.reset(self, slot)
        for l in range(self.n_slots):
            self.totals[slot, l] = self.totals[l, slot] = 0.0

    def clear(self, Py_ssize_t n_slots):
        """Forget all clusters and their links."""
        ClusterModel.clear(self, n_slots)
        self.totals[...] = 0.0

    def dump(self, slots, bint cached=False):
        """Sizes, then sums of links with each of the slots: shape (K, 1 + K)."""
        totals = np.asarray(self.totals)[np.ix_(slots, slots)]
        return np.hstack([ClusterModel.dump(self, slots, cached), totals])

    def load(self, stats, slots=None, free_slots=None):
        """Forget all clusters and take those of `stats` (from `dump`)."""
        slots = np.arange(len(stats) + 1) if slots is None else slots
        ClusterModel.load(self, stats[:, :1], slots, free_slots)
        occupied = slots[: len(stats)]
        np.asarray(self.totals)[np.ix_(occupied, occupied)] = stats[:, 1:]
