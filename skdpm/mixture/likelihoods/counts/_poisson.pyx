# SPDX-License-Identifier: BSD-3-Clause
"""Independent Poisson columns with Gamma priors; missing entries drop out.

    rate ~ Gamma(a, rate b),  x ~ Poisson(rate).

With n entries of sum s in a column of a cluster, and rho = b + n,

    p(x | cluster) = Gamma(a + s + x) / (Gamma(a + s) x!) (rho / (rho + 1))^(a + s) (rho + 1)^-x,
    p(cluster)     = b^a / Gamma(a) Gamma(a + s) / rho^(a + s) prod_i 1 / x_i!.

The terms log 1 / x! are the item's `log_constants` and left out below, except for counts of LARGE
or more: their densities are accurate as a whole, but the log density plus log x! would not be.

Only Gamma(a + s + x) depends on item, cluster and column together. If s or x is large, the density
is computed without Gamma functions, which have too few digits then.

If items have exposures e, x ~ Poisson(e rate): rho is b plus the sum of the exposures, and

    p(x | cluster) = Gamma(a + s + x) / (Gamma(a + s) x!)
                     (rho / (rho + e))^(a + s) (e / (rho + e))^x.

The factors e^x are constants as well. Nothing is cached then.

Row: that of `_counts` | log of the factors without x (all columns), log(rho + 1), a flag: 1 if all
n_d are n and no s is large, so that the first two are valid; otherwise 0. Then, if entries may be
missing, the first two for each column (D, D).
"""
cimport cython
from libc.math cimport M_PI as PI, ceil, exp, fabs, floor, log, log1p

import numpy as np

from skdpm._core._math cimport (
    CountTable, count_table, fill_log_gamma, log_gamma,
    log_gamma_function, log_rising, stirling_error
)
from skdpm._core._numerics import log_gamma_table
from skdpm._core._rng cimport bitgen_t, log_gamma_variate
from skdpm.mixture.likelihoods.contract._base cimport Indices, row
from skdpm.mixture.likelihoods.counts._counts cimport LARGE, N_HEAD, CountModel, ParametricCounts


cdef enum:
    OWN_TABLE = 2048
    N_TERMS = 3     # cached terms before those of columns


# Rounding error of a density, as a share of its largest term.
cdef double ROUNDING = 1e-13

cdef const double[::1] LOG_FACTORIAL = log_gamma_table(1.0, 4096)


cdef inline double deviance(double x, double mean) noexcept nogil:
    """x log(x / mean) + mean - x, accurate also if x is close to the mean: Loader (2000)."""
    if fabs(x - mean) > 0.1 * (x + mean):
        return x * log(x / mean) + mean - x
    v = (x - mean) / (x + mean)
    s = (x - mean) * v
    term = 2.0 * x * v
    for j in range(3, 40, 2):
        term *= v * v
        s += term / j
    return s


cdef inline double log_negative_binomial(double x, double size, double rho) noexcept nogil:
    """log of Gamma(size + x) / (Gamma(size) x!) (rho / (rho + 1))^size (rho + 1)^-x by Loader's
    saddle point. The error is 1e-10 at counts of 1e12, and 1e-2 for the difference of log Gammas.
    """
    cdef double n = size + x
    if x == 0.0:
        return -size * log1p(1.0 / rho)
    return (
        0.5 * log(size / (2.0 * PI * x * n))
        + (stirling_error(n) - stirling_error(size) - stirling_error(x))
        - deviance(size, n * rho / (rho + 1.0)) - deviance(x, n / (rho + 1.0))
    )


cdef class PoissonModel(CountModel):
    """Kernel of Poisson columns.

    - `data`: dict. See `CountModel.take_counts`; `totals`, sums of the entries of the items, NaN
      if one is missing; and `log_constants`, sums of log 1 / x! over the entries of an item that
      are not large, and of x log e over all.
    - `tables`: dict. See `CountModel.take_counts`; `log_gamma`, log Gamma(a + m), m = 0, 1, ...
    - `shape`, `rate`: a and b.
    """
    cdef const double[::1] totals
    cdef double shape, rate
    cdef const double[::1] log_gammas
    cdef CountTable gamma           # `log_gammas`, of the current shape
    cdef CountTable log_factorial
    cdef double[::1] likeliest      # (n_features,): scratch

    def __init__(self, data, tables, double shape, double rate):
        self.take_counts(data, tables)
        self.totals = data["totals"]
        self.keep_log_constants(data["log_constants"])
        self.log_gammas = tables["log_gamma"]
        self.likeliest = np.empty(self.n_features)
        self.gamma = count_table(self.log_gammas, shape)
        self.log_factorial = count_table(LOG_FACTORIAL, 1.0)
        self.shape = shape
        self.rate = rate
        self.declare_hyperparameters(("shape", "rate"), (shape, rate))
        self.allocate(
            N_HEAD + 2 * self.n_features,
            N_HEAD + N_TERMS + (4 if self.missing else 2) * self.n_features
        )
        self.compute(self.empty)

    cdef int retabulate(self) except -1:
        # The table is filled for every value, so it is only as long as it saves time in a sweep
        # over the rows. Beyond it, Gamma functions are computed.
        cdef Py_ssize_t size = min(
            self.gamma.size, max(OWN_TABLE, self.n_samples * self.n_features // 4)
        )
        cdef double[::1] log_gammas = np.empty(size)
        self.shape = self.hyper[0]
        self.rate = self.hyper[1]
        with nogil:
            fill_log_gamma(&log_gammas[0], size, self.shape)
        self.log_gammas = log_gammas
        self.gamma = count_table(self.log_gammas, self.shape)
        self.compute(self.empty)

    cdef inline double fixed_of(self, double total, double log_step) noexcept nogil:
        """Log of the factors of a column without x."""
        return -(self.shape + total) * log_step - log_gamma(&self.gamma, total)

    cdef void compute(self, double* stats) noexcept nogil:
        """Cached terms from the statistics, O(D)."""
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + self.n_features
        cdef double* terms = stats + self.n_stats
        cdef double sizes = self.n_features * self.shape
        cdef double gammas = 0.0
        n = -1.0
        log_next = log_step = 0.0
        cdef bint valid = self.exposure is None
        terms[0] = terms[1] = terms[2] = 0.0
        if self.missing and valid:
            for d in range(self.n_features):
                if counts[d] != n:
                    n = counts[d]
                    log_next = log(self.rate + n + 1.0)
                    log_step = log1p(1.0 / (self.rate + n))
                terms[N_TERMS + d] = self.fixed_of(sums[d], log_step)
                terms[N_TERMS + self.n_features + d] = log_next
            for d in range(self.n_features):
                valid &= counts[d] == stats[0]
        if not valid:
            return
        for d in range(self.n_features):
            sizes += sums[d]
            gammas += log_gamma(&self.gamma, sums[d])
        if sizes >= LARGE:
            for d in range(self.n_features):
                valid &= sums[d] < LARGE
        if valid:
            terms[0] = -sizes * log1p(1.0 / (self.rate + stats[0])) - gammas
            terms[1] = log(self.rate + stats[0] + 1.0)
            terms[2] = 1.0

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        """Accurate relative to s log s, the size of its largest terms."""
        cdef const double* stats = row(self, slot)
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + self.n_features
        cdef double shape = hyper[0], rate = hyper[1]
        cdef double none = log_gamma_function(shape)
        cdef double total = 0.0
        for d in range(self.n_features):
            if counts[d] > 0.0:
                # For large shapes, the difference of log Gammas loses digits.
                total += (
                    log_rising(shape, sums[d]) if shape >= 20.0
                    else log_gamma_function(shape + sums[d]) - none
                )
                total -= shape * log1p(counts[d] / rate) + sums[d] * log(rate + counts[d])
        return total - stats[1] - stats[2]

    cdef double log_predictive_entries(
        self, const double* stats, const double* x, double e        # IN x: (n_features,)
    ) noexcept nogil:
        """log p(x | cluster) with exposure e, entry by entry, without log x! unless x is large."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + n_features
        cdef const double* fixed = stats + self.n_stats + N_TERMS
        cdef const double* log_nexts = fixed + n_features
        cdef bint cached = self.missing and self.exposure is None
        cdef double total = 0.0
        n = -1.0
        log_next = log_step = 0.0
        for d in range(n_features):
            z = sums[d] + x[d]
            if cached and z < LARGE:
                total += log_gamma(&self.gamma, z) + fixed[d] - x[d] * log_nexts[d]
                continue
            if not x[d] == x[d]:
                continue
            if x[d] >= LARGE or sums[d] >= LARGE:
                total += (
                    log_negative_binomial(x[d], self.shape + sums[d], (self.rate + counts[d]) / e)
                    - x[d] * log(e) + (log_gamma_function(x[d] + 1.0) if x[d] < LARGE else 0.0)
                )
                continue
            if counts[d] != n:
                n = counts[d]
                log_next = log(self.rate + n + e)
                log_step = log1p(e / (self.rate + n))
            total += log_gamma(&self.gamma, z) + self.fixed_of(sums[d], log_step) - x[d] * log_next
        return total

    cdef inline double log_predictive_complete(
        self, const double* stats, const double* x, double total
    ) noexcept nogil:
        """The same for complete rows, from their total, if terms for all columns are cached."""
        cdef Py_ssize_t n_paired = self.n_features - self.n_features % 2
        cdef const double* sums = stats + N_HEAD
        # Two sums, so that additions do not wait for each other.
        a = stats[self.n_stats] - total * stats[self.n_stats + 1]
        b = 0.0
        for d in range(0, n_paired, 2):
            a += log_gamma(&self.gamma, sums[d] + x[d])
            b += log_gamma(&self.gamma, sums[d + 1] + x[d + 1])
        for d in range(n_paired, self.n_features):
            a += log_gamma(&self.gamma, sums[d] + x[d])
        return a + b

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef const double* x = &self.X[i, 0]
        cdef bint complete = self.totals[i] < LARGE
        cdef double e = 1.0 if self.exposure is None else self.exposure[i]
        for k in range(slots.n):
            stats = row(self, slots.at[k])
            if complete and stats[self.n_stats + 2] != 0.0:
                out[k] = self.log_predictive_complete(stats, x, self.totals[i])
            else:
                out[k] = self.log_predictive_entries(stats, x, e)

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        """The largest p(x) for the counts x in an interval, column by column. With z = a + s,

            p(x + 1) / p(x) = (z + x) / ((x + 1) (rho + 1)).

        For z <= 1 this is below 1. For z > 1 it falls with x, and is at least 1 while x + 1 <=
        (z - 1) / rho. So p rises up to the mode floor((z - 1) / rho), or 0 if that is negative,
        and then falls: p is largest at the count nearest to the mode. (If rounding moves it, p is
        equal there up to rounding.) The errors of densities are some units in the last place of
        the largest terms, those of the counts at the upper end. Only for complete rows."""
        cdef Py_ssize_t n_features = self.n_features
        cdef const double* half = box + n_features
        cdef double highest = 0.0       # sum of the upper ends
        cdef double tiny = fabs(log_gamma(&self.gamma, 0.0))
        cdef double x_total
        for d in range(n_features):
            highest += box[d] + half[d]
        for k in range(slots.n):
            stats = row(self, slots.at[k])
            sums = stats + N_HEAD
            counts = sums + n_features
            largest = highest + n_features * self.shape
            total = x_total = 0.0
            for d in range(n_features):
                largest += sums[d]
                x = self.nearest_to_mode(sums[d], counts[d], box[d], half[d])
                self.likeliest[d] = x
                x_total += x
                if x < LARGE:
                    total -= log_gamma(&self.log_factorial, x)
            if stats[self.n_stats + 2] > 0.0 and highest < LARGE:
                total += self.log_predictive_complete(stats, &self.likeliest[0], x_total)
            else:
                total += self.log_predictive_entries(stats, &self.likeliest[0], 1.0)
            # log Gamma(z) <= z log z for z > 1.
            largest *= 2.0 * log(2.0 + largest) + log(self.rate + stats[0] + 1.0)
            largest += n_features * (1.0 + tiny) + fabs(stats[self.n_stats])
            out[k] = total + ROUNDING * largest

    cdef inline double nearest_to_mode(
        self, double total, double n, double centre, double half
    ) noexcept nogil:
        """The count nearest to the mode between centre - half and centre + half."""
        cdef double mode = floor((self.shape + total - 1.0) / (self.rate + n))
        return max(0.0, max(ceil(centre - half), min(mode, floor(centre + half))))


@cython.final
cdef class ParametricPoisson(ParametricCounts):
    """Rows of counts under drawn rates ~ Gamma(a + s, rate b + n), column by column.

    Parameters: minus the sum of the rates, their logarithms (D), the rates (D).
    """
    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef const double* sums = stats + N_HEAD
        cdef const double* counts = sums + self.n_features
        cdef double* log_rates = params + 1
        cdef double* rates = log_rates + self.n_features
        params[0] = 0.0
        for d in range(self.n_features):
            log_rates[d] = (
                log_gamma_variate(rng, self.shape + power * sums[d])
                - log(self.rate + power * counts[d])
            )
            rates[d] = exp(log_rates[d])
            params[0] -= rates[d]
