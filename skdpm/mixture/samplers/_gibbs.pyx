# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs: every item in turn leaves its cluster and joins one by its full conditional,

    p(item i joins j | rest) ~ (n_j - sigma)          p(x_i | items of j),
    p(item i joins a new one) ~ V_{n,k+1} / V_{n,k}   p(x_i),

which is Neal (2000), algorithm 3, for any prior of Gibbs type.
"""
from numpy.random cimport bitgen_t

from skdpm._core._rng cimport categorical_log
from skdpm.mixture._state cimport MixtureState
from skdpm.mixture.samplers._base cimport PartitionKernel


cdef Py_ssize_t sweep_from(MixtureState state, bitgen_t* rng, Py_ssize_t first) noexcept nogil:
    """Update the items from `first` on. Returns the item at which it stopped: n_samples when
    done, an earlier one for want of a free slot, -1 - i when item i has no full conditional."""
    cdef Py_ssize_t i, j, k
    cdef Py_ssize_t* slots = state.slots
    cdef double* log_w = state.log_w
    cdef const double* log_v = state.prior.log_v
    cdef const double* log_join = state.prior.log_join
    for i in range(first, state.n_samples):
        if state.model.n_free == 0:
            return i
        state.detach(i)
        k = state.n_clusters
        state.model.log_predictive_many(slots, k + 1, i, log_w)
        for j in range(k):
            log_w[j] += log_join[state.sizes[slots[j]]]
        log_w[k] += log_v[k + 1] - log_v[k]
        j = categorical_log(rng, log_w, k + 1)
        if j < 0:
            return -1 - i
        state.attach(i, slots[j])
    return state.n_samples


cdef int gibbs_sweep(MixtureState state, bitgen_t* rng) except -1 nogil:
    """One sweep over all items. It allocates nothing: where clusters outgrow the arena it pauses
    between two items, and goes on with a larger one."""
    cdef Py_ssize_t i = 0
    # It ends: the arena doubles at each pause, and n_samples + 2 slots are always enough.
    while True:
        i = sweep_from(state, rng, i)
        if i == state.n_samples:
            return 0
        with gil:
            if i < 0:
                raise FloatingPointError(f"row {-1 - i}: no cluster has a positive weight")
            state.reserve(2 * state.capacity)


cdef class GibbsKernel(PartitionKernel):
    cdef Py_ssize_t n_sweeps

    def __init__(self, Py_ssize_t n_sweeps):
        self.n_sweeps = n_sweeps

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t _sweep
        for _sweep in range(self.n_sweeps):
            gibbs_sweep(state, rng)
            self.work += sweep_work(state)
        return 0
