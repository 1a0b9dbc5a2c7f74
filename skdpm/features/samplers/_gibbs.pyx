# SPDX-License-Identifier: BSD-3-Clause
"""Gibbs sampling of the entries of a row, one at a time or all together."""
from libc.math cimport exp

import numpy as np

from skdpm._core._rng cimport bitgen_t, categorical_log, uniform
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel


cdef class ElementGibbsKernel(FeatureKernel):
    """Kernel of `ElementGibbs`: every shared feature of a row, in random order, from

        p(z_ik = 1 | rest) / p(z_ik = 0 | rest) = odds_k p(x_i | z_ik = 1) / p(x_i | z_ik = 0).
    """

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        for j in range(self.n_shared):
            log_ratio = state.model.log_flip(self.features[j], not self.values[j])
            log_ratio += -self.log_odds[j] if self.values[j] else self.log_odds[j]
            if log_ratio != log_ratio:
                return -1
            # The other value has probability 1 / (1 + exp(-log_ratio)).
            if uniform(rng) * (1.0 + exp(-log_ratio)) < 1.0:
                state.model.flip(0, self.features[j], not self.values[j])
                self.values[j] = not self.values[j]
        return 0


cdef class RowGibbsKernel(FeatureKernel):
    """Kernel of `RowGibbs` (PGFA, algorithm 2): one of the 2^T values of a row's T shared features
    is drawn from

        p(z_i | rest) ~ p(x_i | z_i) prod_k odds_k^z_ik.
    """
    cdef Py_ssize_t max_components
    cdef double[::1] log_w          # (2**n,), n >= n_shared

    def __init__(self, Py_ssize_t max_components):
        self.max_components = max_components
        self.log_w = np.empty(1)

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        cdef Py_ssize_t n_values = (<Py_ssize_t>1) << self.n_shared
        if n_values > self.log_w.shape[0]:
            with gil:
                if self.n_shared > self.max_components:
                    raise ValueError(
                        f"RowGibbs would have to enumerate the 2**{self.n_shared} values of a "
                        f"row: more features than max_components={self.max_components}; choose "
                        "DiscreteParticleFilter or ParticleGibbs"
                    )
                self.log_w = np.empty(n_values)
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
