# SPDX-License-Identifier: BSD-3-Clause
"""Metropolis moves of single items.

A random item leaves its cluster. The proposal is one of the k remaining clusters or a new one,
each with probability 1 / (k + 1). The remaining clusters do not depend on where the item was, so
the proposal is symmetric and the ratio is that of the item's full conditional,

    p(item i joins j | rest) ~ (n_j - sigma)          p(x_i | items of j),
    p(item i joins a new one) ~ V_{n,k+1} / V_{n,k}   p(x_i).
"""
from libc.math cimport isnan, log

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._rng cimport bitgen_t, integer, uniform
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._base cimport PartitionKernel


cdef double log_weight(MixtureState state, Py_ssize_t i, Py_ssize_t position) noexcept nogil:
    """log full conditional of detached item i joining the cluster at a position, up to a
    constant. The spare cluster is at the last position."""
    cdef Py_ssize_t slot = state.slots[position]
    cdef Py_ssize_t k = state.n_clusters
    cdef double log_prior
    SKDPM_CHECK(0 <= position <= k, "log_weight: no such cluster")
    if position < k:
        log_prior = state.prior.log_join[state.sizes[slot]]
    else:
        log_prior = state.prior.log_v[k + 1] - state.prior.log_v[k]
    return log_prior + state.model.log_predictive(slot, i)


cdef class MoveOneKernel(PartitionKernel):
    cdef Py_ssize_t n_proposals
    cdef Py_ssize_t n_proposed, n_accepted

    def __init__(self, Py_ssize_t n_proposals):
        self.n_proposals = n_proposals

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t i, k, _m, slot, old, new
        cdef double log_ratio
        for _m in range(self.n_proposals * state.n_samples):
            if state.model.n_free == 0:     # `attach` may need a slot
                with gil:
                    state.reserve(2 * state.capacity)
            i = integer(rng, state.n_samples)
            slot = state.detach(i)
            k = state.n_clusters
            old = state.position[slot] if state.sizes[slot] > 0 else k
            new = integer(rng, k + 1)
            if new != old:
                log_ratio = log_weight(state, i, new) - log_weight(state, i, old)
                if isnan(log_ratio):
                    with gil:
                        raise FloatingPointError(f"row {i}: a density is not a number")
                self.n_proposed += 1
                if log(uniform(rng)) < log_ratio:
                    self.n_accepted += 1
                    old = new
            state.attach(i, state.slots[old])

    def acceptance(self):
        return {"move_one": (self.n_proposed, self.n_accepted)}
