# SPDX-License-Identifier: BSD-3-Clause
"""The density of each item given all others and their partition.

The other items are in k clusters of sizes n_j. For any prior of Gibbs type

    p(x_i | others) = [sum_j (n_j - sigma) p(x_i | items of j) + r p(x_i)] / (n - 1 - sigma k + r),
    r = V_{n,k+1} / V_{n,k},

the sum of the weights of a Gibbs step over the sum of its prior weights. If there is noise, it is
one more term of both sums.
"""
from libc.math cimport INFINITY, exp, log

import numpy as np

from skdpm.mixture.likelihoods.contract._base cimport as_indices, log_constant
from skdpm.mixture.state._state cimport NOISE, MixtureState


cdef double log_density(MixtureState state, Py_ssize_t i) noexcept nogil:
    """log p(x_i | all other items) of an item in no cluster."""
    cdef Py_ssize_t k = state.n_clusters
    cdef const double* log_v = state.prior.log_v
    cdef double* log_w = state.log_w
    cdef double of_new = exp(log_v[k + 1] - log_v[k])
    cdef double top = -INFINITY, total = 0.0
    state.model.log_predictive_many(as_indices(state.slots, k + 1), i, log_w)
    state.add_log_prior()
    for j in range(k + 1):
        if not log_w[j] <= top:     # NaN stays the top
            top = log_w[j]
    if top == INFINITY or top == -INFINITY:
        return top
    for j in range(k + 1):
        total += exp(log_w[j] - top)
    of_others = state.n_attached - state.prior.sigma * k + of_new
    if state.noise is not None:
        of_noise = state.log_noise_weight(state.n_noise, state.n_attached)
        of_others += exp(of_noise)
        of_noise = state.log_weight_as_noise(i)
        if of_noise > top:
            total = total * exp(top - of_noise) + 1.0
            top = of_noise
        else:
            total += exp(of_noise - top)
    return (
        top + log(total) - log(of_others) + log_constant(state.model, i)
        + state.model.log_apart_of(i)
    )


def log_leave_one_out(MixtureState state):
    """log p(x_i | all other items and their partition), natural logarithm, for every item:
    (n_samples,). All items are in clusters or noise. The partition does not change."""
    cdef double[::1] out = np.empty(state.n_samples)
    cdef Py_ssize_t n_placed = state.n_attached + state.n_noise
    if n_placed != state.n_samples:
        raise ValueError(f"{state.n_samples - n_placed} items are in no cluster")
    state.prior.tabulate()
    with nogil:
        for i in range(state.n_samples):
            own = state.detach(i)
            state.model.open_gaps(i)
            out[i] = log_density(state, i)
            state.model.close_gaps(i)
            if own != NOISE and state.sizes[own] == 0:
                own = state.slots[state.n_clusters]
            state.attach(i, own)
        state.model.settle()
    return np.asarray(out)


def statistics_without(MixtureState state, items):
    """Statistics of the cluster of each item without the item: (n_items, n_stats). All items are
    in clusters. The partition does not change."""
    cdef const Py_ssize_t[::1] chosen = np.ascontiguousarray(items, dtype=np.intp)
    cdef double[:, ::1] out = np.empty((chosen.shape[0], state.model.n_stats))
    for m in range(chosen.shape[0]):
        i = chosen[m]
        if not 0 <= i < state.n_samples:
            raise IndexError(f"item {i} of {state.n_samples}")
        own = state.detach(i)
        if state.sizes[own] == 0:
            own = state.slots[state.n_clusters]
        state.model.settle()
        state.model.pack(own, &out[m, 0])
        state.attach(i, own)
    return np.asarray(out)
