# SPDX-License-Identifier: BSD-3-Clause
"""Independent categorical columns with Dirichlet priors. Bernoulli columns have two categories.

With c_t items of category t in a cluster, pseudo-counts a_t, A_d = sum_t a_t over the categories
of column d and n_d the items whose column d is observed,

    p(x_i | cluster) = prod_d (a_t + c_t) / (A_d + n_d),    t = category of x_id,
    p(cluster)       = prod_d Gamma(A_d) / Gamma(A_d + n_d) prod_t Gamma(a_t + c_t) / Gamma(a_t).

The categories of all columns are numbered in one sequence. The next number marks a missing entry.

Densities are products of factors, and one logarithm serves as many as cannot overflow. Most
entries of a column are often in one category, the usual one. A cluster keeps the log density of a
row of usual entries (`base`), and a row lists its others: their factors, over those of usual
categories. So words of few documents cost nothing in others. Columns without one are in all lists.

Row: n and a count of each place | a factor of each place, base. The places are the usual
categories, n_d of their columns, n_d of the others, and all other categories. The counts of usual
categories and n_d are kept less n, so that a row changes those in its lists alone. The factors of
these places are computed with `base`, in one pass that is vectorised.

Factors are a_t + c_t and A_d + n_d. If entries may be missing, those of a column without a usual
category are (a_t + c_t) / (A_d + n_d), `base` has the A_d + n_d of usual categories, and the list
of a row those of entries that are missing. Otherwise the product of all A_d + n_d is a part of
`base`, which depends only on n and is tabulated.
"""
cimport cython
from libc.math cimport M_LN2, ceil, frexp, lgamma, log, log2

import numpy as np

from skdpm._core._math cimport log_gamma_function, log_rising_count
from skdpm._core._memory cimport expect_shape
from skdpm._core._rng cimport bitgen_t
from skdpm._core._tiles cimport tile_log
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, read_row, row
from skdpm.mixture.likelihoods.contract._parametric cimport (
    SKDPM_LANES, TILE, ParametricModel, draw_log_dirichlet, tile_entries
)


cdef extern from "tiles.h" nogil:
    double tile_count_product(
        const double* shifts, const double* counts, double n, Py_ssize_t m, double* out
    )


cdef enum:
    # Number of rows for which learning takes a quarter of a sweep, for any number of columns.
    LEARNING_ROWS = 4000
    MOST_PERIOD = 5
    N_LOGS = 64     # largest number of logarithms that are taken at once
    FEW = 16        # counts whose factors are multiplied one by one


cdef struct Rising:
    # exp(log_product) times `product`. `log_gamma` is that of z, the last one with a large count.
    double log_product, product, z, log_gamma


cdef Rising ONE = Rising(0.0, 1.0, 1.0, 0.0)


cdef inline void multiply(Rising* value, double z, double m) noexcept nogil:
    """Multiply by Gamma(z + m) / Gamma(z). Few logarithms are taken if counts are small."""
    if m == 0.0:
        return
    if m > FEW and z < 20.0:
        if z != value.z:
            value.z, value.log_gamma = z, lgamma(z)
        value.log_product += log_gamma_function(z + m) - value.log_gamma
        return
    if m > FEW or not 1e-5 < z < 1e5:
        value.log_product += log_rising_count(z, m)
        return
    for j in range(<Py_ssize_t>m):
        value.product *= z + j
    if not 1e-100 < value.product < 1e100:
        value.log_product += log(value.product)
        value.product = 1.0


cdef inline double log_ratio(const Rising* over, const Rising* under) noexcept nogil:
    return over.log_product - under.log_product + log(over.product / under.product)


cdef inline double product(const double* factors, const int* which, Py_ssize_t n) noexcept nogil:
    """Product of the factors at n places; 1 if n is negative."""
    cdef Py_ssize_t n_even = max(n, 0) // 4 * 4
    # Four products, so that multiplications do not wait for each other.
    cdef double a = 1.0, b = 1.0, c = 1.0, e = 1.0
    for m in range(0, n_even, 4):
        a *= factors[which[m]]
        b *= factors[which[m + 1]]
        c *= factors[which[m + 2]]
        e *= factors[which[m + 3]]
    for m in range(n_even, n):
        a *= factors[which[m]]
    return (a * b) * (c * e)


@cython.final
cdef class CategoricalModel(ClusterModel):
    """Kernel of the categorical likelihoods.

    - `data`: dict. `codes`, (n_samples, n_features), numbers of the categories, `n_levels` if
      missing; `first`, (n_features + 1,), first category of each column, then `n_levels`.
    - `tables`: dict. Result of `Levels.tables`.
    - `hyper_names`: Name of the hyperparameter of each pseudo-count.
    - `pseudo_counts`: (n_hyper,)
    """
    cdef Py_ssize_t n_features, n_levels
    cdef Py_ssize_t n_usual, n_less     # places of usual categories; of counts kept less n
    cdef const int[:, ::1] codes
    cdef const int[::1] first, kinds, usual
    cdef bint missing
    cdef int[::1] places            # (n_levels + n_features,): of each category, then of each n_d
    cdef double[::1] shifts         # the same: a_t or A_d of each place
    # Factors of item i, besides `base`, are at starts[2 i], ...; divisors at starts[2 i + 1], ...
    cdef Py_ssize_t[::1] starts     # (2 n_samples + 1,)
    cdef int[::1] listed
    # Number of factors whose product cannot overflow. 0: a quotient of two may.
    cdef Py_ssize_t n_product
    # (n_max + 1,): the part of `base` that depends only on n, and the log marginal likelihood of n
    # rows without other entries than usual ones. Empty if entries may be missing.
    cdef double[::1] norms, risings
    cdef double[::1] scratch        # (n_features,)
    cdef Py_ssize_t[::1] columns    # (n_hyper,): the only column of a pseudo-count, or -1

    def __init__(self, data, tables, hyper_names, pseudo_counts):
        self.codes, self.first = data["codes"], data["first"]
        self.kinds, self.usual = tables["kinds"], tables["usual"]
        self.n_samples = self.codes.shape[0]
        self.n_features = self.codes.shape[1]
        self.n_levels = self.kinds.shape[0]
        expect_shape("first", self.first, (self.n_features + 1,))
        expect_shape("usual", self.usual, (self.n_features,))
        expect_shape("kinds", self.kinds, (self.first[self.n_features],))
        self.n_max = tables["n_max"]
        self.missing = tables["missing"]
        self.columns = np.full(len(pseudo_counts), -2)
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                kind = self.kinds[t]
                self.columns[kind] = d if self.columns[kind] in (-2, d) else -1
        self.hyper_period = min(
            MOST_PERIOD, max(1, <Py_ssize_t>ceil(LEARNING_ROWS / <double>self.n_max))
        )
        usual = np.asarray(self.usual)
        norms = self.n_levels + np.arange(self.n_features)
        order = [usual[usual >= 0], norms[usual >= 0], norms[usual < 0]]
        self.n_usual, self.n_less = len(order[0]), len(order[0]) + self.n_features
        order.append(np.setdiff1d(np.arange(self.n_levels), order[0]))
        self.places = np.argsort(np.concatenate(order)).astype(np.int32)
        self.shifts = np.empty(self.n_levels + self.n_features)
        self.scratch = np.empty(self.n_features)
        self.starts = np.empty(2 * self.n_samples + 1, dtype=np.intp)
        self.list_entries(NULL)
        self.listed = np.empty(self.starts[2 * self.n_samples] + 1, dtype=np.int32)
        self.list_entries(&self.listed[0])
        self.declare_hyperparameters(hyper_names, pseudo_counts)
        self.allocate(
            1 + self.n_levels + self.n_features, 2 + 2 * (self.n_levels + self.n_features)
        )
        self.retabulate()

    cdef void list_entries(self, int* out) noexcept nogil:
        """Write `starts`, and the entries to `out` unless that is NULL."""
        cdef Py_ssize_t n = 0
        for i in range(self.n_samples):
            for side in range(2):
                self.starts[2 * i + side] = n
                for d in range(self.n_features):
                    t = self.codes[i, d]
                    if t == self.usual[d]:
                        continue
                    if side == 1:
                        t = self.usual[d]
                    elif t == self.n_levels:
                        t = <int>(self.n_levels + d) if self.usual[d] >= 0 else -1
                    if t >= 0:
                        if out != NULL:
                            out[n] = self.places[t]
                        n += 1
        self.starts[2 * self.n_samples] = n

    cdef int retabulate(self) except -1:
        cdef Py_ssize_t size = 0 if self.missing else self.n_max + 1
        cdef double least = 1.0, most = 1.0
        cdef double[::1] bases
        for d in range(self.n_features):
            u = self.places[self.n_levels + d]
            self.shifts[u] = 0.0
            for t in range(self.first[d], self.first[d + 1]):
                self.shifts[self.places[t]] = self.hyper[self.kinds[t]]
                self.shifts[u] += self.hyper[self.kinds[t]]
                least = min(least, self.hyper[self.kinds[t]])
            most = max(most, self.shifts[u])
        # Quotients of products stay within 2^-1000 and 2^1000. With missing entries the number
        # does not depend on `n_max`, which must not change a bit of new rows.
        most += 2.0**53 if self.missing else self.n_max
        self.n_product = <Py_ssize_t>(1000.0 / (1.0 + log2(most) - log2(least)))
        self.norms, bases = np.empty((2, size))
        for n in range(size):
            self.norms[n] = self.log_factors(
                self.empty, n, self.n_usual, self.n_features, &self.scratch[0]
            )
            bases[n] = self.log_factors(self.empty, n, 0, self.n_usual, &self.scratch[0])
            bases[n] -= self.norms[n]
        sums = np.cumsum(bases, dtype=np.longdouble)
        self.risings = np.concatenate([np.zeros(min(1, size)), sums[:-1].astype(np.float64)])
        self.refresh_row(self.empty)

    cdef inline double count(self, const double* stats, Py_ssize_t t) noexcept nogil:
        """c_t; or n_d, if t is n_levels + d."""
        cdef Py_ssize_t p = self.places[t]
        return stats[1 + p] + stats[0] if p < self.n_less else stats[1 + p]

    cdef void pack(self, Py_ssize_t slot, double* out) noexcept nogil:
        out[0] = row(self, slot)[0]
        for t in range(self.n_stats - 1):
            out[1 + t] = self.count(row(self, slot), t)

    cdef void unpack(self, Py_ssize_t slot, const double* stats) noexcept nogil:
        row(self, slot)[0] = stats[0]
        for t in range(self.n_stats - 1):
            p = self.places[t]
            row(self, slot)[1 + p] = stats[1 + t] - stats[0] if p < self.n_less else stats[1 + t]

    cdef inline void compute_column(self, double* stats, Py_ssize_t d) noexcept nogil:
        """Factors of column d, which has no usual category, if entries may be missing."""
        cdef double* factors = stats + self.n_stats
        cdef int u = self.places[self.n_levels + d]
        factors[u] = self.shifts[u] + (stats[0] + stats[1 + u])
        for t in range(self.first[d], self.first[d + 1]):
            p = self.places[t]
            factors[p] = (self.shifts[p] + stats[1 + p]) / factors[u]

    cdef void refresh_row(self, double* stats) noexcept nogil:
        for p in range(self.n_less, self.n_stats - 1):
            stats[self.n_stats + p] = self.shifts[p] + stats[1 + p]
        for d in range(self.n_features if self.missing else 0):
            if self.usual[d] < 0:
                self.compute_column(stats, d)
        self.compute_base(stats)

    cdef void compute_base(self, double* stats) noexcept nogil:
        cdef double* factors = stats + self.n_stats
        cdef double base = self.log_factors(stats, stats[0], 0, self.n_usual, factors)
        if self.missing:
            base -= self.log_factors(
                stats, stats[0], self.n_usual, self.n_usual, factors + self.n_usual
            )
        else:
            base -= self.norms[<Py_ssize_t>stats[0]]
        stats[self.width - 1] = base

    cdef double log_factors(
        self, const double* stats, double n_items, Py_ssize_t start, Py_ssize_t n, double* out
    ) noexcept nogil:
        """Compute the factors of n places from `start` on, of counts kept less the number of
        items. Returns the log of their product."""
        cdef Py_ssize_t stop = start + n
        cdef Py_ssize_t most = max(1, self.n_product)
        cdef double total = 1.0, exponent = 0.0
        cdef int e
        while start < stop:
            m = min(most, stop - start)
            total *= tile_count_product(&self.shifts[start], stats + 1 + start, n_items, m, out)
            total = frexp(total, &e)
            exponent += e
            start += m
            out += m
        return log(total) + exponent * M_LN2

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.refresh_row(row(self, slot))

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        cdef double* stats = row(self, slot)
        stats[0] += by
        for m in range(self.starts[2 * i], self.starts[2 * i + 2]):
            p = self.listed[m]
            if p < self.n_less:
                stats[1 + p] -= by
            else:
                stats[1 + p] += by
                stats[self.n_stats + p] = self.shifts[p] + stats[1 + p]
        for d in range(self.n_features if self.missing else 0):
            if self.usual[d] < 0:
                if self.codes[i, d] == self.n_levels:
                    stats[1 + self.places[self.n_levels + d]] -= by
                self.compute_column(stats, d)
        self.compute_base(stats)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """`log_marginal_at` the current hyperparameters. With u_d entries of column d that are not
        usual, Gamma(a + n - u_d) is Gamma(a + n) / (a + n - u_d)_{u_d}."""
        cdef const double* stats = row(self, slot)
        cdef const double* shifts = &self.shifts[0]
        cdef double n = stats[0]
        cdef Rising over = ONE, under = ONE
        if not n < self.risings.shape[0]:
            return self.log_marginal_at(slot, &self.hyper[0])
        for p in range(self.n_usual):
            multiply(&under, shifts[p] + (n + stats[1 + p]), -stats[1 + p])
        for p in range(self.n_less, self.n_stats - 1):
            multiply(&over, shifts[p], stats[1 + p])
        return self.risings[<Py_ssize_t>n] + log_ratio(&over, &under)

    cdef void multiply_column(
        self, const double* stats, Py_ssize_t d, const double* hyper, Py_ssize_t h,
        Rising* over, Rising* under
    ) noexcept nogil:
        """Multiply by p(column d of a cluster) under other pseudo-counts; if h is not negative, by
        its factors that depend on hyperparameter h."""
        cdef double norm = 0.0
        for t in range(self.first[d], self.first[d + 1]):
            norm += hyper[self.kinds[t]]
            if h < 0 or self.kinds[t] == h:
                multiply(over, hyper[self.kinds[t]], self.count(stats, t))
        multiply(under, norm, self.count(stats, self.n_levels + d))

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        cdef Rising over = ONE, under = ONE
        for d in range(self.n_features):
            self.multiply_column(row(self, slot), d, hyper, -1, &over, &under)
        return log_ratio(&over, &under)

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """What depends on the hyperparameter in its only column, or that of all columns."""
        cdef Rising over = ONE, under = ONE
        if self.columns[h] < 0:
            return ClusterModel.log_likelihood_at(self, slots, hyper, h)
        for k in range(slots.n):
            self.multiply_column(row(self, slots.at[k]), self.columns[h], hyper, h, &over, &under)
        return log_ratio(&over, &under)

    cdef void log_densities(
        self, const Py_ssize_t* slots, bint of_slots, const Py_ssize_t* items, bint of_items,
        Py_ssize_t n, double* out       # OUT (n,), n <= N_LOGS
    ) noexcept nogil:
        """Densities of an item under n clusters (`of_slots`), or of n items under a cluster
        (`of_items`): base, and the log of the product of the factors in the first list of the item
        over that in the second."""
        cdef Py_ssize_t done = 0, longest = 1
        cdef Py_ssize_t most = max(1, self.n_product)
        cdef const int* listed = &self.listed[0]
        cdef const Py_ssize_t* starts
        cdef double logs[N_LOGS]
        for m in range(n):
            out[m] = row(self, slots[m * of_slots])[self.width - 1]
        while done < longest:       # ends, as no list grows
            for m in range(n):
                factors = read_row(self, slots[m * of_slots]) + self.n_stats
                starts = &self.starts[2 * items[m * of_items]]
                n_up = starts[1] - starts[0]
                n_down = starts[2] - starts[1]
                longest = max(longest, n_up, n_down)
                up = product(factors, listed + starts[0] + done, min(n_up - done, most))
                down = product(factors, listed + starts[1] + done, min(n_down - done, most))
                logs[m] = up / down if self.n_product > 0 else 1.0
                if self.n_product == 0:
                    out[m] += log(up) - log(down)
            for m in range(n, (n + 7) // 8 * 8):
                logs[m] = 1.0
            tile_log(logs, (n + 7) // 8 * 8)
            for m in range(n):
                out[m] += logs[m]
            done += most

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        while slots.n > 0:
            self.log_densities(slots.at, True, &i, False, min(slots.n, <Py_ssize_t>N_LOGS), out)
            slots.at += N_LOGS
            out += N_LOGS
            slots.n -= N_LOGS

    cdef void log_predictive_tile(
        self, Indices slots, Indices items, double* out     # items.n <= STRIP < N_LOGS
    ) noexcept nogil:
        for k in range(slots.n):
            self.log_densities(&slots.at[k], False, items.at, True, items.n, out + k * items.n)


@cython.final
cdef class ParametricCategorical(ParametricModel):
    """Rows of categories under drawn probabilities theta_d ~ Dirichlet(a_t + c_t).

    Parameters: log theta_t (n_levels), and 0 for a missing entry. `codes` and `first` are those of
    `CategoricalModel`, `pseudo_counts` those of each category, (n_levels,).
    """
    cdef Py_ssize_t n_features, n_levels
    cdef const int[:, ::1] codes
    cdef const int[::1] first
    cdef const double[::1] pseudo_counts
    cdef double[::1] table      # (n_params * SKDPM_LANES,)

    def __init__(
        self, const int[:, ::1] codes, const int[::1] first, const double[::1] pseudo_counts
    ):
        expect_shape("first", first, (codes.shape[1] + 1,))
        expect_shape("pseudo_counts", pseudo_counts, (first[codes.shape[1]],))
        self.codes, self.first, self.pseudo_counts = codes, first, pseudo_counts
        self.n_samples = codes.shape[0]
        self.n_features = codes.shape[1]
        self.n_levels = first[self.n_features]
        self.n_stats = 1 + self.n_levels + self.n_features
        self.n_params = self.n_levels + 1
        self.table = np.empty(self.n_params * SKDPM_LANES)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef const double* counts = stats + 1
        for d in range(self.n_features):
            for t in range(self.first[d], self.first[d + 1]):
                params[t] = self.pseudo_counts[t] + power * counts[t]
            draw_log_dirichlet(rng, self.first[d + 1] - self.first[d], params + self.first[d])
        params[self.n_levels] = 0.0

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        tile_entries(
            params, self.n_params, which.at, which.n, self.n_params, items.at, items.n, NULL,
            self.n_features, &self.codes[0, 0], NULL, &self.table[0], out, TILE
        )

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        cdef double* counts = stats + 1
        cdef double* observed = counts + self.n_levels
        stats[0] += items.n
        for i in range(items.n):
            codes = &self.codes[items.at[i], 0]
            for d in range(self.n_features):
                t = codes[d]
                if t < self.n_levels:
                    counts[t] += 1.0
                    observed[d] += 1.0
