# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures of finite mixtures (Miller & Harrison 2018): K ~ p, weights ~ Dirichlet(g, ..., g).

The prior is of Gibbs type with sigma = -g, where g is the concentration of a component. By their
eq. 3.2, with g^k in V (their factors of the clusters are prod_j g (1 + g)_{n_j - 1}),

    V_{n,k} = g^k sum_{K >= k} f(K) p(K),    f(K) = K! / (K - k)! Gamma(g K) / Gamma(g K + n).

The end of the sum. The derivative of log f is s(K) / K with

    s(K) = sum_{i<k} K / (K - i) - sum_{i<n} K / (K + i / g),

which decreases: f rises to one mode and falls from there (k = n: it rises to g^-n), and while it
rises the ratio f(K + 1) / f(K) falls. So the terms after K sum to at most

    f(K) P(more than K components)        beyond the mode, for any p,
    t(K) R / (1 - R),    R < 1            for log-concave p, everywhere,

where t = f p is the term at K and R = p(K + 1) / p(K) max(1, f(K + 1) / f(K)).

The f of k + 1 clusters is (K - k) times that of k. So the weight of a new cluster is V_{n,k+1} /
V_{n,k} = g E(K - k), the mean under the terms of V_{n,k}. This is one sum, in which f follows from
one K to the next by ratios, without differences of large logarithms.
"""
from libc.math cimport INFINITY, NAN, expm1, lgamma, log, log1p

import numpy as np
from scipy.special import gammaln

from skdpm._core._math cimport add_term, log_rising
from skdpm.mixture.priors._base cimport PartitionPrior

cdef enum:
    POISSON
    GEOMETRIC
    TABLE

cdef enum:
    # Largest number of components under a law given by a callable.
    MOST_COMPONENTS = 1 << 20

# The named laws. Poisson: of K - 1, with mean 1. Geometric: p(K) = r (1 - r)^(K - 1), mean 10.
NAMES = {"poisson": POISSON, "geometric": GEOMETRIC}
cdef double LOG_R = log(0.1)
cdef double LOG_Q = log(0.9)

# The same as functions of K.
NAMED_LAWS = {
    "poisson": lambda K: -1.0 - gammaln(K),
    "geometric": lambda K: LOG_R + (K - 1) * LOG_Q,
}

# Bound of the terms left out, relative to the sum; rounding is as large.
cdef double LOG_NEGLIGIBLE = -54.0 * log(2.0)


cdef class MixtureOfFiniteMixturesPrior(PartitionPrior):
    """Mixture of finite mixtures: the number of components is random.

    - `concentration`: Dirichlet parameter of each component.
    - `law`: "poisson", "geometric" or (m,). Law of the number of components; an array has the log
      probabilities of 1, 2, ..., m (see `tabulated_law`).
    """
    cdef int law
    cdef Py_ssize_t n_support       # the largest number of components, for a table
    cdef const double* log_p        # (n_support,): log p(K) of K - 1 = 0, 1, ...
    cdef const double* log_more     # (n_support,): log P(more than K components)
    cdef object _owners

    def __init__(self, Py_ssize_t n_samples, double concentration, law):
        cdef const double[::1] log_p, log_more
        self.law = NAMES.get(law, TABLE) if isinstance(law, str) else TABLE
        if self.law == TABLE:
            log_p = law = np.ascontiguousarray(law, dtype=np.float64)
            log_more = more = log_tails(law)
            self._owners = (law, more)
            self.log_p = &log_p[0]
            self.log_more = &log_more[0]
            self.n_support = log_p.shape[0]
        self.set_concentration(concentration)

    @property
    def most_clusters(self):
        return self.n_samples if self.law != TABLE else min(self.n_support, self.n_samples)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return -concentration

    cdef double log_pmf(self, Py_ssize_t K) noexcept nogil:
        """log p(K)."""
        if self.law == POISSON:
            return -1.0 - lgamma(<double>K)
        if self.law == GEOMETRIC:
            return LOG_R + (K - 1) * LOG_Q
        return self.log_p[K - 1] if K <= self.n_support else -INFINITY

    cdef double log_rest(
        self, Py_ssize_t K, double log_f, double gain, double log_p, double next_log_p
    ) noexcept nogil:
        """log bound of the sum of the terms after K, as in the head of this file; `gain` is the
        log ratio of f at K + 1 and at K. Infinity if there is no bound yet."""
        if self.law == TABLE:
            return log_f + self.log_more[K - 1] if gain <= 0.0 else INFINITY
        log_r = next_log_p - log_p + max(0.0, gain)
        if log_r < 0.0:
            return log_f + log_p + log_r - log(-expm1(log_r))
        return INFINITY

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """The sum from K = k on, relative to the largest term so far. It ends: a table is finite,
        for the named laws R falls below 1 and stays there, and a NaN ends it at once."""
        cdef Py_ssize_t K = k
        cdef double falling = lgamma(k + 1.0)      # log K! / (K - k)!
        cdef double log_f = falling - log_gamma_ratio(concentration, K, n)
        cdef double log_p = self.log_pmf(K)
        cdef double top = -INFINITY, total = 0.0
        while True:
            log_term = log_f + log_p
            if not log_term < INFINITY:
                return NAN
            add_term(log_term, &top, &total)
            if self.law == TABLE and K >= self.n_support:
                break
            falling += log1p(k / (K + 1.0 - k))
            next_log_f = falling - log_gamma_ratio(concentration, K + 1, n)
            next_log_p = self.log_pmf(K + 1)
            log_rest = self.log_rest(K, log_f, next_log_f - log_f, log_p, next_log_p)
            if log_rest <= top + log(total) + LOG_NEGLIGIBLE:
                break
            K += 1
            log_f = next_log_f
            log_p = next_log_p
        return k * log(concentration) + top + log(total)

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        """The sum for k + 1 clusters has the larger terms and decides when to end."""
        cdef double g = concentration
        cdef Py_ssize_t K = k
        cdef double log_f = 0.0         # relative to that of K = k
        cdef double log_p = self.log_pmf(K)
        cdef double log_more = -INFINITY        # log(K - k)
        # Sums of the terms of V_{n,k}, and of these times K - k, relative to their largest ones.
        cdef double[2] top = [-INFINITY, -INFINITY]
        cdef double[2] total = [0.0, 0.0]
        # Gamma(a + b + c) Gamma(a) / Gamma(a + b) / Gamma(a + c) by its smaller step.
        cdef double step = min(g, n - 1.0)
        cdef double other = max(g, n - 1.0)
        while True:
            if not log_f + log_p < INFINITY:
                return NAN
            add_term(log_f + log_p, &top[0], &total[0])
            add_term(log_f + log_p + log_more, &top[1], &total[1])
            if self.law == TABLE and K >= self.n_support:
                break
            next_log_f = (
                log_f + log(K / (K + 1.0 - k))
                + (log_rising(g * K + 1.0, step) - log_rising(g * K + 1.0 + other, step))
            )
            next_log_more = log(K + 1.0 - k)
            next_log_p = self.log_pmf(K + 1)
            log_rest = INFINITY
            if K > k:
                log_rest = self.log_rest(
                    K, log_f + log_more, next_log_f + next_log_more - log_f - log_more, log_p,
                    next_log_p
                )
            if log_rest <= top[1] + log(total[1]) + LOG_NEGLIGIBLE:
                break
            K += 1
            log_f = next_log_f
            log_p = next_log_p
            log_more = next_log_more
        if total[1] == 0.0:
            return -INFINITY
        return log(g) + (top[1] - top[0]) + log(total[1] / total[0])


cdef inline double log_gamma_ratio(double g, Py_ssize_t K, Py_ssize_t n) noexcept nogil:
    """log Gamma(g K + n) / Gamma(g K), accurate also for g K close to 0."""
    return log(g * K) + log_rising(g * K + 1.0, n - 1.0)


def log_tails(law):
    """log P(more than K components), K = 1, ..., m, of a table as `tabulated_law` makes it."""
    return np.append(np.logaddexp.accumulate(law[:0:-1])[::-1], -np.inf)


def tabulated_law(log_pmf, Py_ssize_t n_samples):
    """Normalised log probabilities of 1, ..., m components, (m,), from `log_pmf`, log p(K) of an
    int array of values of K or of a single one.

    m is at least n_samples, if that is below 16,384. At most 1e-12 of the law is left out, or 1e-9
    at the largest m, 2^20. Raises ValueError if this is no log pmf, or its tail is too heavy.
    """
    name = "n_components_prior"
    m = 1024
    least = min(n_samples, 16_384)
    values = _evaluated(log_pmf, 1, m)
    while True:
        total = np.exp(values).sum()
        if total > 1.0 + 1e-9:
            raise ValueError(
                f"{name} must be the log pmf of a law on 1, 2, ...: the probabilities of 1 to {m} "
                f"sum to {total:.10g}"
            )
        if m >= least and abs(total - 1.0) <= 1e-12:
            break
        if m >= MOST_COMPONENTS:
            if total < 1.0 - 1e-9:
                raise ValueError(
                    f"{name} must be a normalised log pmf on 1, 2, ... without a heavy tail: the "
                    f"probabilities of 1 to {m} sum to {total:.10g}, not to 1"
                )
            break
        values = np.append(values, _evaluated(log_pmf, m + 1, 2 * m))
        m *= 2
    return values[:np.flatnonzero(values > -np.inf)[-1] + 1] - np.log(total)


def _number(value, K):
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(
            f"n_components_prior must return a number, log p(K); got {value!r} for K = {K}"
        ) from None


def _evaluated(log_pmf, first, last):
    """log p(K) for K = first, ..., last, from a callable of an array or of an int."""
    components = np.arange(first, last + 1)
    values = None
    try:
        values = np.asarray(log_pmf(components), dtype=np.float64)
    except (TypeError, ValueError):
        pass    # it takes a single number
    if values is None or values.shape != components.shape:
        values = np.array([_number(log_pmf(int(K)), K) for K in components])
    bad = np.isnan(values) | (values > 0.0)
    if bad.any():
        K = components[np.argmax(bad)]
        raise ValueError(
            f"n_components_prior must return a log pmf, at most 0; got {values[K - first]} for "
            f"K = {K}"
        )
    return values
