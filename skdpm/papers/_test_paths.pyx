# SPDX-License-Identifier: BSD-3-Clause
"""Other test paths of the particle filters of rows (PGFA, section 2.8)."""
from libc.string cimport memcpy, memset

from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.features.state._state cimport FeatureState
from skdpm.features.samplers._particle_gibbs cimport (
    DiscreteFilterKernel, ParticleGibbsKernel, RowFilterKernel
)

from skdpm.features.samplers.particle_gibbs import TEST_PATHS

# In the order of TEST_PATHS. The last two depend on the present value: for warm-up only.
cdef enum TestPath:
    ZEROS
    ONES
    RANDOM
    UNCONDITIONAL
    CONDITIONAL
    TWO_STAGE


cdef int choose_path(
    RowFilterKernel kernel, FeatureState state, bitgen_t* rng, int path
) except? -1 nogil:
    cdef Py_ssize_t n = kernel.n_shared
    if path >= CONDITIONAL and not kernel.adapting:
        path = ZEROS
    memset(&kernel.test[0], path == ONES, n)
    if path == RANDOM:
        for j in range(n):
            kernel.test[j] = uniform(rng) < 0.5
    elif path >= CONDITIONAL:
        memcpy(&kernel.test[0], kernel.values, n)
    if path == UNCONDITIONAL or path == TWO_STAGE:
        return kernel.filter(state, rng, False, &kernel.test[0])
    return 0


cdef class PathParticleGibbsKernel(ParticleGibbsKernel):
    cdef int test_path

    def __init__(self, str test_path, *params):
        super().__init__(*params)
        self.test_path = TEST_PATHS.index(test_path)

    cdef int choose_test_path(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        return choose_path(self, state, rng, self.test_path)


cdef class PathDiscreteFilterKernel(DiscreteFilterKernel):
    cdef int test_path

    def __init__(self, str test_path, *params):
        super().__init__(*params)
        self.test_path = TEST_PATHS.index(test_path)

    cdef int choose_test_path(self, FeatureState state, bitgen_t* rng) except? -1 nogil:
        return choose_path(self, state, rng, self.test_path)
