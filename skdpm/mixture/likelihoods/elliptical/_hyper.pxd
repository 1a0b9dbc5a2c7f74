# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
"""What the Gaussian kernels share: constants of their densities, and draws of hyperparameters."""
from libc.math cimport M_PI as PI, log, log1p

from skdpm._core._math cimport log_rising
from skdpm._core._rng cimport bitgen_t
from skdpm._core._slice cimport SliceSampled
from skdpm._hyperpriors cimport LogDensity
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel


cdef enum:
    # Number of entries, beyond the number of rows, in tables for hyperparameters that change.
    # Tables of a stream have no more than these, so that no value depends on how many rows come at
    # a time. Values beyond the end are computed.
    OWN_TABLE = 2048
    RUN = 64    # entries of a table from one value of log Gamma to the next


cdef inline double log_step(double x, double by) noexcept nogil:
    """log((x + by) / x), x and by > 0; for a small step by a series in y = by / (2 x + by)."""
    cdef double y = by / (2.0 * x + by)
    cdef double s = y * y
    if y > 0.05:
        return log1p(by / x)
    return 2.0 * y * (1.0 + s * (1.0 / 3 + s * (1.0 / 5 + s * (1.0 / 7 + s * (1.0 / 9 + s / 11)))))


cdef inline Py_ssize_t own_size(
    Py_ssize_t n_max, Py_ssize_t n_tabled, Py_ssize_t n_samples
) noexcept nogil:
    """Entries of a table for hyperparameters that change; `n_tabled` of those that are shared."""
    if n_max >= n_tabled:
        return OWN_TABLE
    # A longer table would cost more to fill than it saves in a sweep over the rows.
    return min(n_max + 1, OWN_TABLE + n_samples)


cdef inline double log_norm_at(double n, double r, double nu, double free) noexcept nogil:
    """log of pi^(-f/2) (rho / (rho + 1))^(f/2) Gamma((nu + n + 1) / 2) / Gamma((nu + n + 1 - f) /
    2), with rho = r + n."""
    return (
        log_rising(0.5 * (nu + n + 1.0 - free), 0.5 * free)
        - 0.5 * free * (log_step(r + n, 1.0) + log(PI))
    )


cdef inline void fill_log_norm(
    double* values, Py_ssize_t begin, Py_ssize_t end, double r, double nu, double free  # OUT
) noexcept nogil:
    """`log_norm_at` for n = begin, ..., end - 1; `begin` is a multiple of RUN. From n to n + 2 the
    ratio of Gamma functions grows by the factor (nu + n + 1) / (nu + n + 1 - f)."""
    cdef double both[2]
    cdef double constant = 0.5 * free * log(PI)
    for _run in range((end - begin + RUN - 1) // RUN):
        first = begin + _run * RUN
        stop = min(first + RUN, end)
        for n in range(2):
            both[n] = log_rising(0.5 * (nu + (first + n) + 1.0 - free), 0.5 * free) - constant
        for n in range(first, stop):
            values[n - begin] = both[n & 1] - 0.5 * free * log_step(r + n, 1.0)
            both[n & 1] += log_step(nu + n + 1.0 - free, free)


cdef inline double log_evidence_norm(double n, double r, double nu) noexcept nogil:
    """log of pi^(-n/2) (r / (r + n))^(1/2) Gamma((nu + n) / 2) / Gamma(nu / 2): the sum of
    `log_norm_at` of one column over 0, ..., n - 1."""
    return log_rising(0.5 * nu, 0.5 * n) - 0.5 * (log1p(n / r) + n * log(PI))


cdef inline bint labels_show(ClusterModel model, Py_ssize_t slot, double n) noexcept nogil:
    """Whether the labels show all n > 0 items of a cluster."""
    cdef Py_ssize_t n_items = 0
    if model.n_labels != model.n_samples:
        return False
    for i in range(model.n_samples):
        n_items += model.labels[i] == slot
    return n_items > 0 and n_items == n


cdef class GaussianLaws(SliceSampled):
    cdef Py_ssize_t n_features      # D
    cdef Py_ssize_t n_scales        # entries of t: D; 1 if covariances are spherical
    cdef bint learns_matrix         # whether S = A (nu - low) diag(t) A', and A is learned too
    cdef Py_ssize_t n_clusters      # K, all with items
    cdef bint learns_mean, learns_precision, learns_df, learns_scale
    cdef double low                 # D - 1; 0 if covariances are diagonal or spherical
    cdef double r, excess           # excess: nu - low
    cdef double least               # lower limit of a learned excess
    cdef double[::1] u              # (D,): u, in units of the spreads, like all arrays below
    cdef double[::1] center         # (D,): prior means of u
    cdef double[::1] floor          # (D,): see `scale_of`
    cdef double[::1] t              # (n_scales,) used: t, or a diagonal S that is fixed
    cdef double[::1] t_low          # (D,)
    cdef double[::1] t_log_unit     # (D,): log units of t in its hyperprior
    cdef tuple given                # values, spread, origin and floor, in the units of the data
    cdef LogDensity r_density, excess_density, t_density
    cdef Py_ssize_t current         # parameter that is drawn: the column of t, or PRECISION or DF

    cdef inline double any_scale(self, Py_ssize_t d, double excess) noexcept nogil:
        """S_dd of a diagonal S, learned or fixed."""
        return self.scale_of(d, excess, self.t[d]) if self.learns_scale else self.t[d]

    cdef double log_prior_scale(self, Py_ssize_t d, double x) noexcept nogil
    cdef double scale_of(self, Py_ssize_t d, double excess, double t) noexcept nogil
    cdef double least_step(self, Py_ssize_t d, double excess) noexcept nogil
    cdef bint below_support(self, double excess) noexcept nogil
    cdef bint draw(self, bitgen_t* rng) noexcept nogil
    cdef bint draw_mean_of(
        self, double* system, double* b, double* noise, bitgen_t* rng       # INOUT
    ) noexcept nogil
    # A subclass overrides these: see _hyper.pyx.
    cdef bint prepare_precision(self) noexcept nogil
    cdef double log_evidence_precision(self, double r) noexcept nogil
    cdef double log_evidence_df(self, double excess) noexcept nogil
    cdef bint prepare_scale(self) noexcept nogil
    cdef bint prepare_column(self, Py_ssize_t d) noexcept nogil
    cdef double log_evidence_scale(self, Py_ssize_t d, double t) noexcept nogil
    cdef bint take_column(self, Py_ssize_t d, double t) noexcept nogil
    cdef bint draw_given_covariances(self, bitgen_t* rng) noexcept nogil
