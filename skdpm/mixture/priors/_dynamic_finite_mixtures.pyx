# SPDX-License-Identifier: BSD-3-Clause
"""Dynamic mixtures of finite mixtures (Fruehwirth-Schnatter, Malsiner-Walli & Gruen 2021):

    K ~ p, weights ~ Dirichlet(A / K, ..., A / K),

with a concentration A that all components share. Given K this is the finite Dirichlet prior, so
samplers move partitions given K, and K is drawn given the partition (telescoping). With k clusters
of sizes n_1, ..., n_k that sum to n,

    p(K | partition) ~ p(K) f(K) g(K),
    f(K) = K! / (K - k)! K^-k,
    g(K) = prod_j Gamma(n_j + A / K) / Gamma(1 + A / K),

and p(partition) is the sum over K times A^k Gamma(A) / Gamma(A + n). As f is at most 1 and g
falls, the terms after K sum to at most g(K) P(more than K components).
"""
from libc.math cimport INFINITY, lgamma, log, log1p

import numpy as np
from scipy.special import gammaln

from skdpm._core._math cimport add_term, log_rising
from skdpm.mixture.priors._two_parameter cimport FiniteDirichletPrior

from skdpm.mixture.priors._mixture_of_finite_mixtures import log_tails

# Bound of the terms left out, relative to the sum; rounding is as large.
cdef double LOG_NEGLIGIBLE = -54.0 * log(2.0)


cdef class DynamicFiniteMixturesPrior(FiniteDirichletPrior):
    """Dynamic mixture of finite mixtures: the number of components is drawn with the partition.

    The tables and `log_new_weight` hold given `total_components`; `log_probability` and
    `log_weights` are summed over it. It begins at the largest possible value.

    - `concentration`: Total of the Dirichlet parameters of all components.
    - `law`: (m,). Log probabilities of 1, ..., m components (`tabulated_law`).
    """
    cdef object law, log_more
    cdef object _key, _last     # the last arguments of `_terms`, and its result

    capabilities = frozenset()
    latent = ("total_components",)

    def __init__(self, Py_ssize_t n_samples, double concentration, law):
        self.law = np.asarray(law, dtype=np.float64)
        self.log_more = log_tails(self.law)
        FiniteDirichletPrior.__init__(
            self, n_samples, concentration, min(max(n_samples, 1), len(self.law))
        )

    @property
    def most_clusters(self):
        return min(len(self.law), self.n_samples)

    @property
    def total_components(self):
        """Number of components, empty ones included."""
        return self.n_components

    @total_components.setter
    def total_components(self, value):
        self.n_components = value
        self.set_concentration(self.concentration)
        self.forget_tables()

    def _terms(self, sizes):
        """Values of K and log p(K, partition) of each: two arrays of shape (m,)."""
        if len(sizes) == 0:     # no row
            return np.arange(1, len(self.law) + 1), np.array(self.law)
        sizes = np.sort(np.asarray(sizes, dtype=np.intp))
        key = self.concentration, sizes.tobytes()
        if key != self._key:
            self._last = self._summed(sizes)
            self._key = key
        return self._last

    cdef _summed(self, sorted_sizes):
        cdef const Py_ssize_t[::1] sizes = sorted_sizes
        cdef const double[::1] law = self.law
        cdef const double[::1] log_more = self.log_more
        cdef Py_ssize_t k = sizes.shape[0]
        cdef double A = self.concentration
        cdef double log_f = lgamma(k + 1.0) - k * log(<double>k)
        cdef double top = -INFINITY, total = 0.0
        constant = k * np.log(A) + gammaln(A) - gammaln(A + sorted_sizes.sum())
        log_terms = np.empty(law.shape[0] - k + 1)
        cdef double[::1] out = log_terms
        for K in range(k, law.shape[0] + 1):
            log_g = of_size = 0.0
            for j in range(k):
                if j == 0 or sizes[j] != sizes[j - 1]:
                    of_size = log_rising(1.0 + A / K, sizes[j] - 1.0)
                log_g += of_size
            log_term = law[K - 1] + log_f + log_g
            out[K - k] = log_term
            add_term(log_term, &top, &total)
            if log_g + log_more[K - 1] <= top + log(total) + LOG_NEGLIGIBLE:
                break
            log_f += log1p(k / (K + 1.0 - k)) - k * log1p(1.0 / K)
        return np.arange(k, K + 1), constant + log_terms[:K - k + 1]

    def _posterior(self, sizes):
        """Values of K and the probability of each given a partition."""
        K, log_terms = self._terms(sizes)
        terms = np.exp(log_terms - log_terms.max())
        return K, terms / terms.sum()

    def resample_latent(self, sizes, bit_generator):
        """Draw the number of components given a partition with clusters of these sizes."""
        K, probabilities = self._posterior(sizes)
        u = np.random.Generator(bit_generator).random()
        cumulative = np.cumsum(probabilities)
        at = np.searchsorted(cumulative, u * cumulative[-1], side="right")
        self.total_components = K[min(at, len(K) - 1)]

    def log_probability(self, counts):
        """log probability of a partition, summed over the number of components."""
        counts = np.asarray(counts)
        if counts.shape[0] == 0:
            return 0.0
        if len(counts) > len(self.law):
            return -np.inf
        _, log_terms = self._terms(counts)
        top = log_terms.max()
        return top + np.log(np.exp(log_terms - top).sum())

    def log_weights(self, sizes):
        """As in `PartitionPrior`, averaged over the number of components given the sizes: n_j +
        A E(1 / K), and A E((K - k) / K)."""
        sizes = np.asarray(sizes, dtype=np.intp)
        if sizes.shape[0] == 0:
            return np.zeros(1)
        K, probabilities = self._posterior(sizes)
        A = self.concentration
        join = sizes + A * (probabilities @ (1.0 / K))
        new = A * (probabilities @ (1.0 - sizes.shape[0] / K))
        with np.errstate(divide="ignore"):
            return np.log(np.append(join, new)) - np.log(sizes.sum() + A)
