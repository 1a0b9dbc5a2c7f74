# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm.mixture._state cimport MixtureState


cdef int gibbs_sweep(MixtureState state, bitgen_t* rng) except -1 nogil


cdef inline long long sweep_work(MixtureState state) noexcept nogil:
    """Row evaluations of a sweep, about: all clusters and a new one, and an item's two moves."""
    return state.n_samples * (state.n_clusters + 3)
