# SPDX-License-Identifier: BSD-3-Clause
"""Element-wise Gibbs: every shared feature of a row, in random order, from

    p(z_ik = 1 | rest) / p(z_ik = 0 | rest) = odds_k p(x_i | z_ik = 1) / p(x_i | z_ik = 0).
"""
from libc.math cimport exp

from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel


cdef class ElementGibbsKernel(FeatureKernel):

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        cdef Py_ssize_t j
        cdef Py_ssize_t candidate = 0
        cdef double log_ratio       # of the other value to this one
        for j in range(self.n_shared):
            state.model.log_flip_many(
                &candidate, 1, self.features[j], not self.values[j], &log_ratio
            )
            log_ratio += -self.log_odds[j] if self.values[j] else self.log_odds[j]
            if log_ratio != log_ratio:
                return -1
            # The other value has probability 1 / (1 + exp(-log_ratio)).
            if uniform(rng) * (1.0 + exp(-log_ratio)) < 1.0:
                state.model.flip(0, self.features[j], not self.values[j])
                self.values[j] = not self.values[j]
        return 0
