# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture.state._state cimport MixtureState


cdef int gibbs_sweep(MixtureState state, bitgen_t* rng) except -1 nogil


cdef inline long long sweep_work(MixtureState state) noexcept nogil:
    """Row evaluations of the last sweep, about: all clusters and a new one, unless passed over,
    and an item's two moves."""
    if state.bounds is not None:
        return state.bounds.sweep_work
    return state.n_samples * (state.n_clusters + 3)
