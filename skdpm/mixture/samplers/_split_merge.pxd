# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._anchors cimport AnchorProposal
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._moves cimport Closure, Trial


cdef struct LogProbability:
    # The value is total - log(divisor): a product in place of a logarithm per factor.
    double total
    double divisor


cdef class SplitMergeKernel(PartitionKernel):
    cdef Py_ssize_t gibbs_sweeps
    cdef readonly AnchorProposal anchors
    cdef Closure closure
    cdef Trial trial
    cdef bint factorizes            # of the model that the trial is for
    cdef long long n_proposed[2]    # splits, merges
    cdef long long n_accepted[2]

    cdef int reserve(self, MixtureState state) except -1
    cdef bint move(self, MixtureState state, bitgen_t* rng) noexcept nogil
    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil
    cdef void choose(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t m, bint force, LogProbability* log_q
    ) noexcept nogil


cdef class JainNealKernel(SplitMergeKernel):
    cdef Py_ssize_t n_scans

    cdef void launch(self, MixtureState state, bitgen_t* rng) noexcept nogil
