# SPDX-License-Identifier: BSD-3-Clause
from libc.math cimport log

from skdpm.mixture.likelihoods.contract._base cimport ClusterModel


cdef class RowWeights:
    """Weights of rows that a chain draws with the clusters: see the head of _tails."""
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
    cdef double[::1] log_values             # (G,)
    cdef double[::1] log_probabilities      # (n_lanes,), -infinity at the end

    cdef int take(self, parameters) except -1


cdef enum:
    MANY = 64           # slots that are evaluated together
    MOST_WEIGHTS = 8
    COUNTS = 1          # place of the numbers of items with each weight in a row
    PEAK = 0            # place of log of the density at the centre behind the statistics, up to
    BOUND = 1           # ... factors with weights; and of another term of `open_rest`


cdef class WeighedModel(ClusterModel):
    """Clusters of rows with weights.

    A row begins with n, and the numbers of items with each weight (G). Behind these are sets of
    moments. A subclass overrides the methods below from `log_terms` on.
    """
    cdef Py_ssize_t n_features          # D
    cdef Py_ssize_t n_weights, n_sets   # G, ...
    cdef Py_ssize_t n_lanes             # weights with those that do not exist: see tiles.h
    cdef Py_ssize_t first_set           # place of the first set of moments in a row
    cdef Py_ssize_t n_set               # numbers of a set
    cdef Py_ssize_t first_law           # first hyperparameter of the law of the weights
    cdef double half                    # power of `bound_square` in `open_rest`
    cdef const double* X
    cdef double* prior_mean             # (D,): u minus the origin
    cdef double mean_precision, df
    cdef object origin, spread, floor
    cdef const double[::1] origin_view
    cdef RowWeights weights
    cdef object _owners
    # Of the last item whose densities were summed over weights, in some slots:
    cdef Py_ssize_t n_last              # number of slots; 0 if rows have changed since
    cdef Py_ssize_t last[MANY]          # these slots
    cdef double shares[MANY * MOST_WEIGHTS]     # of the weights, up to a factor per slot

    # See `keep`:
    cdef double* kept                   # (width + n_stats,)
    cdef Py_ssize_t kept_item           # -1: none
    cdef Py_ssize_t kept_weight

    cdef int begin(self, data, tables, mean, mean_precision, df, scale, law, values) except -1
    cdef int take_prior(self) except -1
    cdef int reserve_kept(self) except -1
    cdef void keep(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    cdef void keep_rest(self, Py_ssize_t slot) noexcept nogil
    cdef bint comes_back(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    cdef void log_sum_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil
    cdef void log_predictive_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil
    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil
    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil

    cdef inline double* set_of(self, double* stats, Py_ssize_t g) noexcept nogil:
        """The moments of the items with weight number g."""
        return stats + self.first_set + self.weights.sets[g] * self.n_set

    cdef inline double rho_of(self, const double* stats) noexcept nogil:
        """r plus the weights of all items."""
        cdef Py_ssize_t g
        cdef double rho = self.mean_precision
        for g in range(self.n_weights):
            rho += stats[COUNTS + g] * self.weights.values[g]
        return rho

    cdef inline double mass_of(self, const double* stats, Py_ssize_t g) noexcept nogil:
        """Sum of the relative weights in the set of weight number g, from the numbers of items:
        without rounding errors that add up."""
        cdef Py_ssize_t k
        cdef double mass = 0.0
        for k in range(self.n_weights):
            if self.weights.sets[k] == self.weights.sets[g]:
                mass += stats[COUNTS + k] * self.weights.relative[k]
        return mass

    cdef inline void take_factors(self, const double* hyper, double* factors) noexcept nogil:
        """The factors of the sets of moments: OUT (n_sets,). Of hyperparameters of the law of the
        weights, only these, which are the last of them, may differ from the current ones."""
        cdef Py_ssize_t k
        for k in range(self.n_sets):
            factors[k] = 1.0 if k == 0 else 1.0 / hyper[self.n_hyper - 1]

    cdef inline double log_law(
        self, const double* counts, const double* entries, double free, const double* factors
    ) noexcept nogil:
        """Log probability of the weights of the items, and the powers of the weights in their
        densities: `entries` of items with each weight, each with `free` columns."""
        cdef Py_ssize_t g
        cdef double total = 0.0
        for g in range(self.n_weights):
            if counts[g] > 0.0:
                total += counts[g] * self.weights.log_probabilities[g]
                total += 0.5 * free * entries[g] * log(
                    self.weights.relative[g] * factors[self.weights.sets[g]]
                )
        return total


cdef class ScatterModel(WeighedModel):
    """Clusters whose sets of moments are a mass, a mean (D) and a scatter (packed)."""
    cdef Py_ssize_t n_packed            # D (D + 1) / 2

    cdef void count(
        self, double* stats, const double* x, Py_ssize_t g, double sign, double* gap
    ) noexcept nogil
    cdef void add_moments(self, double* stats, const double* other, double* gap) noexcept nogil


cdef extern from "tiles.h" nogil:
    void tile_weigh(
        double rho, const double* w, const double* log_p, double half, Py_ssize_t n_weights,
        double* out
    )
    void tile_mixtures(double* shares, Py_ssize_t n, Py_ssize_t n_weights, double* logs)


cdef inline void weigh(WeighedModel model, double rho, double* weighed) noexcept nogil:
    """log p(w) h^(D/2) and h = rho w / (rho + w) of each weight: OUT (2 n_lanes,)."""
    tile_weigh(
        rho, &model.weights.values[0], &model.weights.log_probabilities[0],
        0.5 * model.n_features, model.n_lanes, weighed
    )
