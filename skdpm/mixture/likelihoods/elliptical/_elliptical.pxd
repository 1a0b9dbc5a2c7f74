# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
from libc.math cimport log
from libc.string cimport memset

from skdpm._core._cholesky cimport add_square
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices
from skdpm.mixture.likelihoods.contract._parametric cimport ParametricModel
from skdpm.mixture.likelihoods.elliptical._gaps cimport Gaps
from skdpm.mixture.likelihoods.elliptical._hyper cimport log_norm_at, log_step

cdef extern from "tiles.h" nogil:
    double log_positive(double x)
    void tile_keyed_moments(
        const double* x, Py_ssize_t ld, Py_ssize_t n, const Py_ssize_t* keys, Py_ssize_t key,
        Py_ssize_t n_features, double* gaps, double* out
    )
    void tile_mixtures(double* shares, Py_ssize_t n, Py_ssize_t n_weights, double* logs)


cdef enum:
    NONE = -1
    MANY = 64           # slots that are evaluated together
    # Largest t, a distance in standard deviations, of an item that leaves. The removal divides a
    # sum of squares by 1 + t^2, which costs digits.
    LARGEST_LOSS = 100
    COUNTS = 1          # place of the numbers of items with each weight in a row
    PEAK = 0            # place of the log density at the centre behind the statistics
    # Places of the terms of weights, behind those of the shape:
    BOUND = 0           # log of a bound of the factors of PEAK: see `open_rest`
    PRECISION = 1       # rho
    WEIGHED = 2         # log p(w) h^(D/2), then h, each (n_lanes,)
    MOST_WEIGHTS = 8


cdef class RowWeights:
    """Weights of rows that a chain draws with the clusters."""
    cdef readonly Py_ssize_t n_rows
    cdef readonly Py_ssize_t n_weights      # G
    cdef readonly Py_ssize_t n_lanes        # of `values` and `log_probabilities`: see tiles.h
    cdef readonly Py_ssize_t n_sets
    cdef object law                         # tails.Tails
    cdef unsigned char[::1] chosen          # (n_rows,): number of the weight of each row
    cdef unsigned char[::1] is_open         # (n_rows,): whether the row has no weight now
    cdef bint drawn                         # whether weights are draws, not those of the start
    cdef double[::1] relative               # (G,): weights, up to the factor of their set
    cdef Py_ssize_t[::1] sets               # (G,)
    cdef double[::1] factors                # (n_sets,): for current hyperparameters
    cdef double[::1] values                 # (n_lanes,): the weights, then ones
    cdef double[::1] log_probabilities      # (n_lanes,), -infinity at the end

    cdef int take(self, parameters) except -1


cdef class EllipticalModel(ClusterModel):
    """Gaussian clusters of rows: see the head of _elliptical."""
    cdef Py_ssize_t n_features          # D
    cdef Py_ssize_t n_packed            # D (D + 1) / 2
    cdef const double* X                # the rows minus the origin, completed
    cdef double[::1] prior_mean         # (D,): u minus the origin
    cdef double mean_precision, df
    cdef const double[::1] origin
    cdef tuple units                    # spread, origin and floor: see `GaussianLaws`
    cdef double[::1] work               # scratch of the shape: (3 D,) or more
    cdef Gaps gaps                      # None: a chain draws no missing entries
    cdef RowWeights weights             # None: the weights of all rows are 1
    cdef Py_ssize_t n_weights, n_sets   # G, 0 without weights; sets of moments, 1 without
    cdef Py_ssize_t n_lanes             # weights with those that do not exist: see tiles.h
    cdef Py_ssize_t first_set           # place of the first set of moments in a row
    cdef Py_ssize_t n_set               # numbers of a set
    cdef Py_ssize_t terms               # place of the terms of weights behind the statistics
    cdef Py_ssize_t first_law           # first hyperparameter of the law of the weights
    cdef const double* factors          # (n_sets,)
    cdef double half                    # power of `bound_square` in `open_rest`
    cdef const double[:, ::1] rows      # X as given
    # Table of `log_norm_at`, n = 0, 1, ..., of `free` columns, if the shape uses one: that of
    # `tables`; NaN where it is not filled yet, if hyperparameters have changed.
    cdef const double[::1] log_norms
    cdef double[::1] own_norms
    cdef Py_ssize_t n_tabled, n_shared  # entries now, and of that in `tables`
    cdef double free
    # Of the last item whose densities were summed over weights, in some slots:
    cdef Py_ssize_t n_last              # number of slots; 0 if rows have changed since
    cdef Py_ssize_t last[MANY]          # these slots
    cdef double shares[MANY * MOST_WEIGHTS]        # of the weights, up to a factor per slot
    # A deferred removal, if the density of an item follows from its cluster with the item:
    cdef bint defers
    cdef Py_ssize_t pending_slot    # the row that still holds `pending_item`, or NONE
    cdef Py_ssize_t pending_item
    cdef Py_ssize_t pending_weight  # number of its weight
    # See `comes_back`:
    cdef bint keeps
    cdef double[::1] kept               # (width + n_stats,)
    cdef Py_ssize_t kept_item, kept_weight

    cdef int lay_out(self, Py_ssize_t n_terms) except -1
    cdef int take_hyperparameters(self) except -1
    cdef int share_norms(self, const double[::1] log_norms, double free) except -1
    cdef int renew_norms(self) except -1
    cdef void fill_norms(self, Py_ssize_t n) noexcept nogil
    cdef int take_rows(self) except -1
    cdef void weigh(self, double rho, double* weighed) noexcept nogil
    cdef void finish_weights(self, double* stats, double rho, double bound) noexcept nogil
    cdef void recover(self, Py_ssize_t slot) noexcept nogil
    cdef void leave(self) noexcept nogil
    cdef bint comes_back(self, double* stats, Py_ssize_t i) noexcept nogil
    cdef void log_weighted_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil
    cdef bint draw_weight(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil
    # A shape implements these; see _elliptical.pyx.
    cdef int begin(self, tables, scale) except -1
    cdef void combine(self, double* moments, const double* other) noexcept nogil
    cdef void compute(self, double* stats) noexcept nogil
    cdef bint shift(self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign) noexcept nogil
    cdef bint reweigh(
        self, double* stats, Py_ssize_t i, Py_ssize_t old, Py_ssize_t new
    ) noexcept nogil
    cdef void row_changes(self, Py_ssize_t slot) noexcept nogil
    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil
    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    cdef void row_changed(self, Py_ssize_t i) noexcept nogil
    cdef bint draw_missing(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil
    cdef double log_marginal_of(self, const double* stats, const double* factors) noexcept nogil
    # For speed:
    cdef void log_sum_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil
    cdef void log_predictive_some(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil

    cdef inline bint has_missing(self, Py_ssize_t i) noexcept nogil:
        """Whether a chain draws entries of this row."""
        return self.gaps is not None and self.gaps.starts[i] < self.gaps.starts[i + 1]

    cdef inline bint is_open(self, Py_ssize_t i) noexcept nogil:
        """Whether entries of this row are missing at the moment."""
        return self.gaps is not None and self.gaps.is_open[i]

    cdef inline Py_ssize_t weight_of(self, Py_ssize_t i) noexcept nogil:
        """Number of the weight of a row."""
        return 0 if self.weights is None else self.weights.chosen[i]

    cdef inline double value_of(self, Py_ssize_t g) noexcept nogil:
        """The weight of this number."""
        return 1.0 if self.weights is None else self.weights.values[g]

    cdef inline double* set_of(self, double* stats, Py_ssize_t g) noexcept nogil:
        """The moments of the items with weight number g."""
        if self.weights is None:
            return stats + self.first_set
        return stats + self.first_set + self.weights.sets[g] * self.n_set

    cdef inline double log_norm_of(self, double n) noexcept nogil:
        """log c_n; without weights, c_n h^(D/2)."""
        if n < self.n_tabled:
            value = self.log_norms[<Py_ssize_t>n]
            if value != value:
                self.fill_norms(<Py_ssize_t>n)
                value = self.log_norms[<Py_ssize_t>n]
        else:
            value = log_norm_at(n, self.mean_precision, self.df, self.free)
        if self.weights is None:
            return value
        return value + 0.5 * self.free * log_step(self.mean_precision + n, 1.0)

    cdef inline double rho_of(self, const double* stats) noexcept nogil:
        """r plus the weights of all items."""
        cdef double rho = self.mean_precision
        if self.weights is None:
            return rho + stats[0]
        for g in range(self.n_weights):
            rho += stats[COUNTS + g] * self.weights.values[g]
        return rho

    cdef inline double mass_of(self, const double* stats, Py_ssize_t g) noexcept nogil:
        """Sum of the relative weights in the set of weight number g, from the numbers of items:
        without rounding errors that add up."""
        cdef double mass = 0.0
        if self.weights is None:
            return stats[0]
        for k in range(self.n_weights):
            if self.weights.sets[k] == self.weights.sets[g]:
                mass += stats[COUNTS + k] * self.weights.relative[k]
        return mass

    cdef inline double count(self, double* stats, Py_ssize_t g, double sign) noexcept nogil:
        """An item of weight number g is counted (sign = 1) or no more (-1). Returns its weight in
        the moments of its set, with the sign."""
        stats[0] += sign
        if self.weights is None:
            return sign
        stats[COUNTS + g] += sign
        return sign * self.weights.relative[g]

    cdef inline double log_law(
        self, const double* counts, const double* entries, double free, const double* factors
    ) noexcept nogil:
        """Log probability of the weights of the items, and the powers of the weights in their
        densities: `entries` of items with each weight, each with `free` columns."""
        cdef double total = 0.0
        for g in range(self.n_weights):
            if counts[g] > 0.0:
                total += counts[g] * self.weights.log_probabilities[g]
                total += 0.5 * free * entries[g] * log(
                    self.weights.relative[g] * factors[self.weights.sets[g]]
                )
        return total

    # Of shapes whose sets of moments are a mass, a mean (D) and a scatter (packed).

    cdef inline void count_scatter(
        self, double* stats, Py_ssize_t i, Py_ssize_t g, double sign, double* gap
    ) noexcept nogil:
        """The statistics of item i, of weight number g, enter (sign = 1) or leave (-1)."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* x = self.X + i * n_features
        cdef double* moments = self.set_of(stats, g)
        cdef double* mean = moments + 1
        cdef double before = moments[0]
        cdef double by = self.count(stats, g, sign)
        moments[0] = self.mass_of(stats, g)
        if not moments[0] > 0.0:
            memset(moments, 0, self.n_set * sizeof(double))
            return
        by /= moments[0]
        for d in range(n_features):
            gap[d] = x[d] - mean[d]
            mean[d] += by * gap[d]
        add_square(mean + n_features, n_features, gap, by * before)


cdef class ParametricElliptical(ParametricModel):
    cdef Py_ssize_t n_features, n_packed
    cdef const double[:, ::1] rows
    cdef const double[::1] mean
    cdef double mean_precision, df
    cdef double[::1] work       # (n_features * LD,), zeros at first
    cdef double[::1] moments    # (n_stats,)
    cdef double* gaps           # (n_features + 1, LD), if there are bounds
