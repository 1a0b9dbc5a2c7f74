# SPDX-License-Identifier: BSD-3-Clause
"""Row-wise Gibbs (PGFA, algorithm 2): one of the 2^T values of a row's T shared features is drawn
from

    p(z_i | rest) ~ p(x_i | z_i) prod_k odds_k^z_ik.
"""

import numpy as np

from skdpm._core._rng cimport bitgen_t, categorical_log
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel


cdef class RowGibbsKernel(FeatureKernel):
    """Kernel of `RowGibbs`."""
    cdef Py_ssize_t max_components
    cdef double[::1] log_w          # (2**n,), n >= n_shared

    def __init__(self, Py_ssize_t max_components):
        self.max_components = max_components
        self.log_w = np.empty(1)

    cdef int reserve_values(self) except -1:
        if self.n_shared > self.max_components:
            raise ValueError(
                f"RowGibbs would have to enumerate the 2**{self.n_shared} values of a row: more "
                f"features than max_components={self.max_components}; choose "
                "DiscreteParticleFilter or ParticleGibbs"
            )
        self.log_w = np.empty(1 << self.n_shared)
        return 0

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        cdef Py_ssize_t j, r
        cdef Py_ssize_t n_values = (<Py_ssize_t>1) << self.n_shared
        if n_values > self.log_w.shape[0]:
            with gil:
                self.reserve_values()
        for j in range(self.n_shared):
            if self.values[j]:
                state.model.flip(0, self.features[j], False)
        state.model.log_rows(self.features, self.log_odds, self.n_shared, &self.log_w[0])
        r = categorical_log(rng, &self.log_w[0], n_values)
        if r < 0:
            return -1
        for j in range(self.n_shared):
            self.values[j] = (r >> j) & 1
        return 0
