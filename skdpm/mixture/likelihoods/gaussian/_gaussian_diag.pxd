# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel
from skdpm.mixture.likelihoods.gaussian._gaussian_hyper cimport GaussianLaws
from skdpm.mixture.likelihoods.contract._parametric cimport ParametricModel

cdef enum:
    N_TERMS = 3     # cached terms before those of columns


cdef class GaussianDiagModel(ClusterModel):
    cdef Py_ssize_t n_features      # D
    cdef const double* X
    cdef double* prior_mean         # (D,): u minus the origin
    cdef const double* scale
    cdef double mean_precision, df
    cdef bint missing
    cdef const double* log_gain
    cdef const double* log_norm
    cdef Py_ssize_t n_tabled        # entries of these
    cdef Py_ssize_t n_shared        # entries of these in `tables`
    cdef const double* log_scale
    cdef double* own                # tables for hyperparameters that have changed
    cdef object origin, spread, floor
    cdef const double[::1] origin_view
    cdef object _owners

    cdef object take_tables(self, tables)
    cdef void take_hyperparameters(self) noexcept nogil
    cdef double log_gain_of(self, double n) noexcept nogil
    cdef double log_norm_of(self, double n) noexcept nogil
    cdef void compute(self, double* stats) noexcept nogil
    cdef void change(self, double* stats, const double* x, double by) noexcept nogil
    cdef bint lost(self, const double* stats, const double* x) noexcept nogil
    cdef void recover(self, Py_ssize_t slot) noexcept nogil
    cdef double log_predictive_entries(self, const double* stats, const double* x) noexcept nogil


cdef class DiagLaws(GaussianLaws):
    cdef const double[:, :, ::1] stats  # (K, 3, D): n, x_bar and C, in units of the spreads
    cdef const double[:, ::1] masses    # (K, D): precisions of the means, in units of 1 / v: n
    cdef double[:, ::1] squares         # (K, D): C + w (x_bar - u)^2
    cdef const double[::1] entries      # (D,): entries of each column, over all clusters
    cdef const double[::1] scale        # (D,): s, if it is fixed

    cdef double log_ratios(self, Py_ssize_t k, double r, double excess) noexcept nogil

    cdef inline double any_scale(self, Py_ssize_t d, double excess) noexcept nogil:
        """s, learned or fixed."""
        return self.scale_of(d, excess, self.t[d]) if self.learns_scale else self.scale[d]

    cdef inline double square(self, Py_ssize_t k, Py_ssize_t d, double r) noexcept nogil:
        """C + w (x_bar - u)^2 of a column with entries."""
        cdef double gap = self.stats[k, 1, d] - self.u[d]
        return self.stats[k, 2, d] + gap * gap / (1.0 / r + 1.0 / self.masses[k, d])


cdef class ParametricGaussianDiag(ParametricModel):
    cdef Py_ssize_t n_features
    cdef const double* X
    cdef const double* mean
    cdef const double* scale
    cdef double mean_precision, df
    cdef bint missing
    cdef double* work       # (n_features, LD)
    cdef double* gaps       # (n_features + 1, LD)
    cdef double* moments    # (n_stats,)
    cdef object _owners
