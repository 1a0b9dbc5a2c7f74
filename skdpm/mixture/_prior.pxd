# SPDX-License-Identifier: BSD-3-Clause
from numpy.random cimport bitgen_t

from skdpm._core._slice cimport SliceSampled


cdef class PartitionPrior(SliceSampled):
    """A Gibbs-type prior over partitions: p = V_{n,k} prod_j (1 - sigma)_{n_j - 1}, as tables."""
    cdef readonly Py_ssize_t n_samples
    cdef readonly double concentration
    cdef readonly double sigma      # 0: Dirichlet process, d: Pitman-Yor, -a: finite Dirichlet
    # Tables, of the concentration for which `tabulate` was last called.
    cdef double tabulated, tabulated_sigma
    cdef double* log_v              # (n_samples + 2,): log V_{n,k}; finite at k = 0, see tabulate
    cdef double* log_join           # (n_samples + 1,): log(m - sigma), an existing cluster of m
    cdef double* log_block          # (n_samples + 1,): log (1 - sigma)_{m-1}
    # The conditional law of the concentration, while it is resampled.
    cdef const Py_ssize_t* sizes
    cdef Py_ssize_t n_clusters
    cdef double shape, rate

    cdef int tabulate(self) except -1
    cdef double log_eppf_at(
        self, double concentration, const Py_ssize_t* sizes, Py_ssize_t k    # IN (k,)
    ) noexcept nogil
    # A prior overrides these two ...
    cdef double sigma_at(self, double concentration) noexcept nogil
    cdef double log_ratio(self, double concentration, Py_ssize_t k) noexcept nogil
    # ... and this where it knows better than a slice step.
    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil
