# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._memory cimport MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState


cdef class PartitionKernel(MemoryOwner):
    """A Markov kernel on partitions that leaves p(partition | X, concentration) invariant."""
    cdef readonly bint adapting     # whether the chain is in warm-up; kernels adapt only then
    cdef readonly Py_ssize_t replica    # number of the current state among the chain's replicas
    # What the kernel learns, or None: an object with `get_state` and `set_state`, and `record` and
    # `keep_replicas` as of kernels.
    cdef object learner
    # Row evaluations so far: log predictives of one row under one cluster, and rows that joined or
    # left a cluster. A measure of time that is the same in every run.
    cdef readonly long long work

    cdef int prepare(self, MixtureState state) except -1
    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil
    cdef int repeat(self, MixtureState state, bitgen_t* rng, Py_ssize_t n_steps) except -1 nogil
