# SPDX-License-Identifier: BSD-3-Clause
from skdpm._concentration cimport ConcentrationSampled


cdef class PartitionPrior(ConcentrationSampled):
    """A Gibbs-type prior over partitions: p = V_{n,k} prod_j (1 - sigma)_{n_j - 1}, as tables."""
    cdef readonly double sigma      # of the current concentration; m - sigma joins a cluster of m
    # Tables, of the concentration for which `tabulate` was last called.
    cdef double tabulated, tabulated_sigma
    # log V_{n,k} for n = n_samples and k <= n_reserved; finite at k = 0, see `tabulate`. The
    # memory is for all k <= n_samples + 1, and stays where it is.
    cdef double* log_v
    # While items are noise, `log_v` is of the number of items in clusters (`focus`).
    cdef bint has_constant_ratios   # whether differences of log V do not depend on n
    cdef double[:, ::1] tables      # (3, n_samples + 2): `whole`, `log_join` and `log_cluster`
    cdef double* whole              # the table of n_samples items
    cdef double[:, ::1] others      # (N_TABLES, n_samples + 2): of n items at n % N_TABLES
    cdef Py_ssize_t[::1] tabled     # (N_TABLES,): the number of items of each, -1: none yet
    cdef Py_ssize_t n_focus         # number of items of `log_v`
    cdef double* log_join           # (n_samples + 1,): log(m - sigma), an existing cluster of m
    cdef double* log_cluster          # (n_samples + 1,): log (1 - sigma)_{m-1}
    cdef readonly Py_ssize_t n_reserved

    cdef int tabulate(self) except -1
    cdef int reserve(self, Py_ssize_t n_clusters) except -1
    cdef int prepare_focus(self) except -1
    cdef void focus(self, Py_ssize_t n) noexcept nogil
    cdef void refocus(self) noexcept nogil
    cdef double log_eppf_at(
        self, double concentration, const Py_ssize_t* sizes, Py_ssize_t k    # IN (k,)
    ) noexcept nogil
    # A prior overrides these two ...
    cdef double sigma_at(self, double concentration) noexcept nogil
    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil
    # ... and these where it knows better than to call the second one again and again.
    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil
    cdef void fill_log_v(
        self, double concentration, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last,
        double* log_v    # INOUT (last + 1,)
    ) noexcept nogil
