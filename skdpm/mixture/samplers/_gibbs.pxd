# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._base cimport PartitionKernel


cdef int sweep(
    PartitionKernel kernel, MixtureState state, bitgen_t* rng, Py_ssize_t n_sweeps
) except -1 nogil
