# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.elliptical._elliptical cimport EllipticalModel, ParametricElliptical
from skdpm.mixture.likelihoods.elliptical._hyper cimport GaussianLaws

cdef enum:
    N_TERMS = 3     # cached terms before those of columns


cdef class DiagonalModel(EllipticalModel):
    cdef const double* scale
    cdef bint missing
    cdef Py_ssize_t place_of_mean   # in a set of moments, behind numbers of entries and masses
    # Tables; None with weights or spherical covariances.
    cdef const double[::1] log_gain, log_norm, log_scale
    cdef Py_ssize_t n_tabled        # entries of the first two
    cdef Py_ssize_t n_shared        # entries of these in `tables`

    cdef int make_tables(self) except -1
    cdef double log_gain_of(self, double n) noexcept nogil
    cdef double log_norm_of(self, double n) noexcept nogil
    cdef void compute_terms(self, double* stats) noexcept nogil
    cdef void finish(self, double* stats) noexcept nogil
    cdef bint lost(self, const double* stats, const double* x, double w) noexcept nogil
    cdef double log_bound(self, Py_ssize_t slot, const double* box) noexcept nogil
    cdef double log_predictive_entries(self, const double* stats, Py_ssize_t i) noexcept nogil
    cdef double log_predictive_complete(self, const double* stats, Py_ssize_t i) noexcept nogil
    cdef void log_terms_entries(
        self, Py_ssize_t slot, const double* x, Py_ssize_t first, Py_ssize_t n_terms, double* out
    ) noexcept nogil

    cdef inline bint is_complete(self, const double* cached, const double* x) noexcept nogil:
        """Whether neither the cluster nor the item has a missing entry."""
        cdef Py_ssize_t d
        cdef bint complete = cached[1] == 1.0
        if self.missing:
            for d in range(self.n_features):
                complete &= x[d] == x[d]
        return complete

    cdef inline double pool(
        self, const double* stats, Py_ssize_t d, const double* factors, double r, double u,
        double* n, double* rho, double* m       # OUT
    ) noexcept nogil:
        """C + (r W / rho) (x_bar - u)^2 of a column, from all sets of moments."""
        cdef Py_ssize_t k
        cdef Py_ssize_t place = self.place_of_mean
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* moments = stats + self.first_set + d
        cdef double mass = 0.0
        cdef double mean = 0.0
        cdef double squares = 0.0
        cdef double gap, more
        n[0] = 0.0
        for k in range(self.n_sets):
            if moments[0] > 0.0:
                more = factors[k] * moments[place - n_features]
                gap = moments[place] - mean
                n[0] += moments[0]
                squares += factors[k] * moments[place + n_features]
                squares += mass * (more / (mass + more)) * gap * gap
                mean += more / (mass + more) * gap
                mass += more
            moments += self.n_set
        gap = mean - u if mass > 0.0 else 0.0
        rho[0] = r + mass
        m[0] = u + mass / rho[0] * gap
        return squares + r * mass / rho[0] * gap * gap


cdef class DiagLaws(GaussianLaws):
    cdef const double[:, :, ::1] stats  # (K, 3, D): n, x_bar and C, in units of the spreads
    cdef const double[:, ::1] masses    # (K, D): precisions of the means, in units of 1 / v: n
    cdef double[:, ::1] squares         # (K, D): C + w (x_bar - u)^2
    cdef const double[::1] entries      # (D,): entries of each column, over all clusters

    cdef double log_ratios(self, Py_ssize_t k, double r, double excess) noexcept nogil
    cdef double draw_precision(self, Py_ssize_t k, Py_ssize_t d, bitgen_t* rng) noexcept nogil

    cdef inline double square(self, Py_ssize_t k, Py_ssize_t d, double r) noexcept nogil:
        """C + w (x_bar - u)^2 of a column with entries."""
        cdef double gap = self.stats[k, 1, d] - self.u[d]
        return self.stats[k, 2, d] + gap * gap / (1.0 / r + 1.0 / self.masses[k, d])


cdef class ParametricGaussianDiag(ParametricElliptical):
    cdef const double[::1] scale
    cdef bint missing
