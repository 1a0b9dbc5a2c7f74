# SPDX-License-Identifier: BSD-3-Clause
"""Row-wise Gibbs (PGFA, algorithm 2): all 2^T values of a row's T shared features are weighed,

    p(z_i | rest) ~ p(x_i | z_i) prod_k odds_k^z_ik,

and one is drawn.
"""
from libc.stdlib cimport free
from numpy.random cimport bitgen_t

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport categorical_log
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._base cimport FeatureKernel


cdef class RowGibbsKernel(FeatureKernel):
    """Kernel of `RowGibbs`."""
    cdef Py_ssize_t max_components
    cdef double* log_w              # (2**n_bits,)
    cdef Py_ssize_t n_bits

    def __init__(self, Py_ssize_t max_components):
        self.max_components = max_components
        self.n_bits = -1

    def __dealloc__(self):
        free(self.log_w)

    cdef int reserve_values(self) except -1:
        if self.n_shared > self.max_components:
            raise ValueError(
                f"RowGibbs would have to enumerate the 2**{self.n_shared} values of a row: more "
                f"features than max_components={self.max_components}; choose "
                "DiscreteParticleFilter or ParticleGibbs"
            )
        self.log_w = <double*>resized(self.log_w, <Py_ssize_t>1 << self.n_shared, sizeof(double))
        self.n_bits = self.n_shared
        return 0

    cdef int update_row(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        cdef Py_ssize_t j, r
        if self.n_shared > self.n_bits:
            with gil:
                self.reserve_values()
        for j in range(self.n_shared):
            if self.values[j]:
                state.model.flip(0, self.features[j], False)
        state.model.log_rows(self.features, self.log_odds, self.n_shared, self.log_w)
        r = categorical_log(rng, self.log_w, (<Py_ssize_t>1) << self.n_shared)
        if r < 0:
            return -1
        for j in range(self.n_shared):
            self.values[j] = (r >> j) & 1
        return 0
