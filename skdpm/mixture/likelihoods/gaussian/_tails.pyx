# SPDX-License-Identifier: BSD-3-Clause
"""Weights of rows under Gaussian laws with heavy tails: x | w ~ N(mean, Sigma / w).

A kernel with `RowWeights` holds a weight of each row. Samplers that move partitions take the
weights as given. A Gibbs update of a row draws its weight with its cluster: it weighs the clusters
by densities that are sums over the weights, and draws the weight given the cluster
(`MixtureState.place`). So a weight is to the state what the missing entries of a row are (_gaps).

A subclass of `WeighedModel` defines the density of a row and its weight in a cluster. The rest,
from the draws of weights to those of the parameters of their law, is here.
"""
from libc.math cimport INFINITY, NAN, fabs
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from skdpm._core._memory cimport expect_shape, resized
from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.likelihoods.contract._base cimport row
from skdpm.mixture.likelihoods.gaussian._gaussian cimport combine_moments

from skdpm.mixture.likelihoods.contract._base import HyperSampler

cdef extern from "tiles.h" nogil:
    double log_below(double x)
    double exp_above(double x)


cdef class RowWeights:
    """Weights of rows.

    Parameters
    ----------
    law : Tails
        Law of a weight.
    n_rows : int
    """

    def __init__(self, law, Py_ssize_t n_rows):
        self.law = law
        self.n_rows = n_rows
        self.relative = np.array(law.relative, dtype=np.float64)
        self.sets = np.array(law.sets, dtype=np.intp)
        self.n_weights = self.relative.shape[0]
        if self.n_weights > 8:
            raise ValueError(f"at most 8 weights, got {self.n_weights}")
        self.n_lanes = 2 if self.n_weights <= 2 else 8
        self.n_sets = max(law.sets) + 1
        self.chosen = np.full(n_rows, law.first, dtype=np.uint8)
        self.is_open = np.ones(n_rows, dtype=np.uint8)

    cdef int take(self, parameters) except -1:
        """Set what follows from the parameters of the law."""
        log_probabilities, factors = self.law.log_law(parameters)
        values = self.law.weights(parameters)[1]
        more = 0, self.n_lanes - self.n_weights
        self.log_probabilities = np.pad(log_probabilities, more, constant_values=-np.inf)
        self.factors = np.array(factors)
        self.values = np.pad(values, more, constant_values=1.0)
        self.log_values = np.log(values)
        return 0

    def complete(self, chosen=None):
        """Give every row a weight; see `ClusterModel.complete`."""
        if chosen is None:
            self.chosen[:] = self.law.first
        else:
            chosen = np.asarray(chosen)
            if chosen.shape != (self.n_rows,) or not (
                (0 <= chosen) & (chosen < self.n_weights)
            ).all():
                raise ValueError(
                    f"expected {self.n_rows} numbers of weights below {self.n_weights}"
                )
            self.chosen = chosen.astype(np.uint8)
        self.is_open[:] = 0
        self.drawn = chosen is not None

    def completion(self):
        """Numbers of the weights: ndarray of shape (n_rows,), uint8."""
        return np.array(self.chosen)


cdef class WeighedModel(ClusterModel):
    """Kernel of clusters of rows with weights."""

    def __dealloc__(self):
        free(self.prior_mean)
        free(self.kept)

    cdef int begin(self, data, tables, mean, mean_precision, df, scale, law, values) except -1:
        """Set what subclasses share, before the arena is allocated."""
        cdef const double[:, ::1] X = data["X"]
        self._owners = data["X"]
        self.drifts = True
        self.bounds_rest = True
        self.n_samples = X.shape[0]
        self.n_features = X.shape[1]
        self.half = 0.5 * self.n_features
        self.n_max = tables["n_max"]
        self.X = &X[0, 0]
        expect_shape("scale", scale, (self.n_features,) * scale.ndim)
        expect_shape("origin", tables["origin"], (self.n_features,))
        self.origin = self.origin_view = tables["origin"]
        self.spread = tables["spread"]
        self.floor = tables["floor"]
        self.weights = RowWeights(law, self.n_samples)
        self.n_weights = self.weights.n_weights
        self.n_lanes = self.weights.n_lanes
        self.n_sets = self.weights.n_sets
        self.first_set = COUNTS + self.n_weights
        self.prior_mean = <double*>resized(self.prior_mean, self.n_features, sizeof(double))
        self.first_law = self.n_features + 2 + scale.size
        self.declare_hyperparameters(
            ("mean",) * self.n_features + ("mean_precision", "df") + ("scale",) * scale.size
            + law.parameters,
            np.concatenate([mean, [mean_precision, df], np.ravel(scale), values]),
        )
        return 0

    cdef int take_prior(self) except -1:
        """Set the attributes that follow from `hyper`, except the scale."""
        cdef Py_ssize_t d
        for d in range(self.n_features):
            self.prior_mean[d] = self.hyper[d] - self.origin_view[d]
        self.mean_precision = self.hyper[self.n_features]
        self.df = self.hyper[self.n_features + 1]
        if not self.mean_precision > 0.0:
            raise ValueError("Gaussian.mean_precision must be positive")
        self.weights.take([self.hyper[d] for d in range(self.first_law, self.n_hyper)])
        self.kept_item = -1
        return 0

    # Rows of clusters that an item leaves and mostly enters again.

    cdef int reserve_kept(self) except -1:
        """Make memory for `keep`, after the arena is allocated."""
        self.kept = <double*>resized(self.kept, self.width + self.n_stats, sizeof(double))
        return 0

    cdef void keep(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Keep the row of a cluster that item i is about to leave."""
        self.kept_item = i
        self.kept_weight = self.weights.chosen[i]
        memcpy(self.kept, row(self, slot), self.width * sizeof(double))

    cdef void keep_rest(self, Py_ssize_t slot) noexcept nogil:
        """Keep the statistics of this row without the item."""
        memcpy(self.kept + self.width, row(self, slot), self.n_stats * sizeof(double))

    cdef bint comes_back(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Whether item i enters a cluster with the statistics and the weight of the item as they
        were when it left. Its row is then that which was kept. What was kept serves once, so that
        continued chains have the same bits."""
        cdef bint is_kept = i == self.kept_item
        self.kept_item = -1
        if (
            not is_kept or self.weights.chosen[i] != self.kept_weight
            or memcmp(row(self, slot), self.kept + self.width, self.n_stats * sizeof(double)) != 0
        ):
            return False
        self.n_last = 0
        memcpy(row(self, slot), self.kept, self.width * sizeof(double))
        return True

    # Weights of rows.

    def complete(self, values=None):
        self.settle()
        self.weights.complete(values)

    def completion(self):
        return self.weights.completion()

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        self.weights.is_open[i] = 1
        self.n_last = 0

    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil:
        self.weights.is_open[i] = 0

    cdef void read_gaps(self, Py_ssize_t i, double* completion) noexcept nogil:
        completion[i] = self.weights.chosen[i]

    cdef void write_gaps(self, Py_ssize_t i, const double* completion) noexcept nogil:
        self.weights.chosen[i] = <unsigned char>completion[i]
        self.weights.is_open[i] = 0

    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        cdef Py_ssize_t g
        cdef Py_ssize_t k = 0
        cdef const double* shares
        cdef double ignored
        cdef double total = 0.0
        while k < self.n_last and self.last[k] != slot:
            k += 1
        if k >= self.n_last:
            k = 0
            self.log_sum_some(&slot, 1, i, &ignored)
        shares = self.shares + k * self.n_lanes
        for g in range(self.n_weights):
            total += shares[g]
        if not 0.0 < total < INFINITY:
            return False
        total *= uniform(<bitgen_t*>rng)
        # Rounding may leave nothing of the total; never choose a share of zero.
        for g in range(self.n_weights):
            if shares[g] > 0.0:
                self.weights.chosen[i] = g
                total -= shares[g]
                if total < 0.0:
                    break
        self.weights.is_open[i] = 0
        self.weights.drawn = True
        return True

    # Densities.

    cdef void log_terms(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t first, Py_ssize_t n, double* out
    ) noexcept nogil:
        """log p(x_i, w | items of a slot) for n weights, of these numbers."""

    cdef void log_sum_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """log p(x_i | items of each slot), at most MANY, summed over weights; sets `last` and
        `shares`."""
        cdef Py_ssize_t k
        cdef double logs[MANY]
        for k in range(n_slots):
            self.log_terms(slots[k], i, 0, self.n_lanes, self.shares + k * self.n_lanes)
            self.last[k] = slots[k]
        tile_mixtures(self.shares, n_slots, self.n_lanes, logs)
        for k in range(n_slots):
            out[k] = logs[k]
        self.n_last = n_slots

    cdef void log_predictive_some(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i, double* out
    ) noexcept nogil:
        """The same given the weight of the item: log p(x_i, its weight | items of each slot)."""
        cdef Py_ssize_t k
        for k in range(n_slots):
            self.log_terms(slots[k], i, self.weights.chosen[i], 1, out + k)

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i, its weight | items of each slot); the sum over weights if that of the item is
        open."""
        cdef Py_ssize_t m
        while n_slots > 0:
            m = min(n_slots, <Py_ssize_t>MANY)
            if self.weights.is_open[i]:
                self.log_sum_some(slots, m, i, out)
            else:
                self.log_predictive_some(slots, m, i, out)
            slots += m
            out += m
            n_slots -= m

    cdef double bound_square(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """A number q for item i: the sum over weights of p(x_i, w | items of the slot) is at most
        exp(PEAK + BOUND) q^-half. NaN: no bound."""
        return NAN

    cdef double open_rest(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t own, Py_ssize_t i,
        const double* log_prior                                     # IN (n_slots,)
    ) noexcept nogil:
        """The sum over weights p(w) f(h) is at most the largest f(h) for any h. So bounds of one
        logarithm and of one exponential serve all weights of a cluster."""
        cdef Py_ssize_t k
        cdef Py_ssize_t slot = slots[own]
        cdef const double* cached
        cdef double log_least, square, value
        cdef double total = 0.0
        self.log_predictive_many(&slot, 1, i, &log_least)
        log_least += log_prior[own]
        if not -1e300 < log_least < 1e300:
            return INFINITY
        log_least -= 1e-10 * (1.0 + fabs(log_least))
        for k in range(n_slots):
            if k == own:
                continue
            square = self.bound_square(slots[k], i)
            if not square == square:
                return INFINITY
            # A smaller square has a larger bound.
            square = 1e-300 if square < 1e-300 else 1e300 if square > 1e300 else square
            cached = row(self, slots[k]) + self.n_stats
            value = cached[PEAK] + cached[BOUND] - self.half * log_below(square)
            value += log_prior[k] - log_least + 1e-10 * (1.0 + fabs(cached[PEAK]))
            if not value <= 0.0:
                return INFINITY
            total += exp_above(value)
        return total

    # Hyperparameters.

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """Draw hyperparameters given the partition, the weights of the rows and the data. Those of
        the law of the weights stay as long as the weights are those of the start.

        Parameters, Returns, Raises: see `ClusterModel`.
        """
        law = self.weights.law
        stats = self.dump(slots)
        of_law = {name: priors[name] for name in law.parameters if name in priors}
        if of_law and self.weights.drawn and len(stats):
            values = self.named_hyperparameters()
            parameters = {name: float(values[name][0]) for name in law.parameters}
            law.resample(
                stats[:, COUNTS : COUNTS + self.n_weights].sum(axis=0), parameters, of_law,
                lambda name, prior: self.slice_hyperparameter(slots, name, prior, bit_generator),
                np.random.Generator(bit_generator),
            )
            for name, value in parameters.items():
                values[name] = [value]
            self.set_hyperparameters(np.concatenate(list(values.values())))
        rest = {name: prior for name, prior in priors.items() if name not in of_law}
        if not rest:
            return self.hyperparameters()
        laws = self.gaussian_laws(
            rest, self.named_hyperparameters(), stats, np.asarray(self.weights.factors),
            bit_generator
        )
        return laws.resample(self, bit_generator)

    def gaussian_laws(self, priors, values, stats, factors, bit_generator):
        """The `GaussianLaws` of hyperparameters, from statistics and factors of sets of
        moments. `values` may change before, in place."""
        raise NotImplementedError

    def slice_hyperparameter(self, slots, name, prior, bit_generator):
        """Draw a hyperparameter, a number, by a slice step: see `HyperSampler`."""
        sampler = HyperSampler(self, slots)
        return sampler.draw(self.hyper_names.index(name), prior, bit_generator)


cdef class ScatterModel(WeighedModel):
    """Kernel of clusters of rows with weights, with a scatter matrix."""

    cdef void count(
        self, double* stats, const double* x, Py_ssize_t g, double sign, double* gap
    ) noexcept nogil:
        """The statistics of an item of weight number g enter (sign = 1) or leave (-1)."""
        cdef Py_ssize_t d, e
        cdef Py_ssize_t n_features = self.n_features
        cdef double* moments = self.set_of(stats, g)
        cdef double* mean = moments + 1
        cdef double* scatter = mean + n_features
        cdef double by
        cdef double before = moments[0]
        stats[0] += sign
        stats[COUNTS + g] += sign
        moments[0] = self.mass_of(stats, g)
        if not moments[0] > 0.0:
            memset(moments, 0, self.n_set * sizeof(double))
            return
        by = sign * self.weights.relative[g] / moments[0]
        for d in range(n_features):
            gap[d] = x[d] - mean[d]
            mean[d] += by * gap[d]
        by *= before
        for d in range(n_features):
            for e in range(d, n_features):
                scatter[e - d] += by * gap[d] * gap[e]
            scatter += n_features - d

    cdef void add_moments(self, double* stats, const double* other, double* gap) noexcept nogil:
        """Statistics of two clusters combine."""
        cdef Py_ssize_t k
        for k in range(self.first_set):
            stats[k] += other[k]
        for k in range(self.n_sets):
            combine_moments(
                stats + self.first_set + k * self.n_set, other + self.first_set + k * self.n_set,
                self.n_features, gap
            )
