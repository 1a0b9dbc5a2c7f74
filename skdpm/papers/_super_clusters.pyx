# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs in super-clusters (Lovell, Adams & Mansinghka 2012).

A step draws the super-cluster of every cluster from the uniform law on 1, ..., J. Sweeps then move
items among the clusters of their super-cluster. On partitions whose clusters have super-clusters,
the law is p(partition | X) J^-k, and the full conditional of item i in super-cluster s is

    p(item i joins j | rest) ~ (n_j - sigma)            p(x_i | items of j),   j in s,
    p(item i joins a new one) ~ V_{n,k+1} / (J V_{n,k}) p(x_i),                in s.

With a Dirichlet process, each super-cluster is one with the concentration alpha / J, as published.
"""
from libc.math cimport log

from skdpm._core._rng cimport bitgen_t, categorical_log, integer
from skdpm.mixture.state._state cimport MixtureState, as_indices
from skdpm.mixture.samplers._base cimport PartitionKernel

import numpy as np

from skdpm.mixture.state._state import unplaceable


cdef class SuperClusterGibbsKernel(PartitionKernel):
    cdef Py_ssize_t n_super_clusters, n_sweeps
    cdef Py_ssize_t[::1] super_cluster      # by slot
    cdef Py_ssize_t[::1] choices            # scratch: slots

    def __init__(self, Py_ssize_t n_super_clusters, Py_ssize_t n_sweeps):
        self.n_super_clusters = n_super_clusters
        self.n_sweeps = n_sweeps
        self.super_cluster = self.choices = np.zeros(0, np.intp)

    cdef int prepare(self, MixtureState state) except -1:
        cdef Py_ssize_t n_known = self.super_cluster.shape[0]
        if n_known < state.capacity:
            grown = np.zeros(state.capacity, np.intp)
            grown[:n_known] = self.super_cluster
            self.super_cluster = grown
            self.choices = np.empty(state.capacity, np.intp)

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        for j in range(state.n_clusters):
            self.super_cluster[state.slots[j]] = integer(rng, self.n_super_clusters)
        for _sweep in range(self.n_sweeps):
            for i in range(state.n_samples):
                if state.model.n_free == 0:     # `attach` may need a slot
                    with gil:
                        state.reserve(2 * state.capacity)
                        self.prepare(state)
                if not self.place(state, i, rng):
                    raise unplaceable(i)

    cdef bint place(self, MixtureState state, Py_ssize_t i, bitgen_t* rng) noexcept nogil:
        """Draw item i from its full conditional. False if the weights are no distribution."""
        cdef Py_ssize_t own = self.super_cluster[state.detach(i)]
        cdef Py_ssize_t k = state.n_clusters
        cdef Py_ssize_t n = 0
        cdef double* log_w = state.log_w
        for j in range(k):
            slot = state.slots[j]
            if self.super_cluster[slot] == own:
                self.choices[n] = slot
                n += 1
        self.choices[n] = state.slots[k]
        state.model.log_predictive_many(as_indices(&self.choices[0], n + 1), i, log_w)
        for j in range(n + 1):
            log_w[j] += state.log_prior_weight(self.choices[j])
        log_w[n] -= log(<double>self.n_super_clusters)
        self.work += n + 3
        j = categorical_log(rng, log_w, n + 1)
        if j < 0:
            return False
        self.super_cluster[self.choices[j]] = own
        state.attach(i, self.choices[j])
        return True
