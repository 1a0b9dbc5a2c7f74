# SPDX-License-Identifier: BSD-3-Clause
"""Priors over partitions, normalised: p(partition) sums to 1 over all partitions of n items.

All three are of Gibbs type (Gnedin & Pitman 2006), with k clusters of sizes n_1, ..., n_k:

    p = V_{n,k} prod_j (1 - sigma)_{n_j - 1},   V_{n,1} = Gamma(A + 1) / Gamma(A + n),

                         sigma    V_{n,k+1} / V_{n,k}
    Dirichlet process      0      A
    Pitman-Yor             d      A + k d
    finite Dirichlet      -a      (k0 - k) a,    a = A / k0

where A is the concentration, (x)_m the rising factorial, d the discount and k0 the number of
components. The ratio is the weight of a new cluster and m - sigma that of a cluster of m items.
"""
from libc.math cimport INFINITY, exp, lgamma, log, log1p
from libc.stdlib cimport free
from numpy.random cimport bitgen_t
from numpy.random.c_distributions cimport random_standard_gamma

import numpy as np

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport bit_generator_pointer, uniform


cdef double log_rising(double x, double m) noexcept nogil:
    """log Gamma(x + m) / Gamma(x). For large x the two agree in most of their digits, or overflow:
    there by the difference of Stirling's series."""
    if x < 1e5:
        return lgamma(x + m) - lgamma(x)
    return m * log(x) + (x + m - 0.5) * log1p(m / x) - m + (1.0 / (x + m) - 1.0 / x) / 12.0


cdef class PartitionPrior:

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.tabulated = self.tabulated_sigma = INFINITY    # no table yet

    def __dealloc__(self):
        free(self.log_v)
        free(self.log_join)
        free(self.log_block)

    cdef int tabulate(self) except -1:
        """Bring the tables up to date with the concentration, in O(n). Samplers that visit rows
        in blocks do without tables."""
        cdef Py_ssize_t k, m
        if self.tabulated == self.concentration:
            return 0
        if self.log_v == NULL:
            self.log_v = <double*>resized(NULL, self.n_samples + 2, sizeof(double))
            self.log_join = <double*>resized(NULL, self.n_samples + 1, sizeof(double))
            self.log_block = <double*>resized(NULL, self.n_samples + 1, sizeof(double))
        self.log_v[1] = -log_rising(self.concentration + 1.0, self.n_samples - 1.0)
        # V_{n,0} has no meaning (with A <= 0 not even a logarithm), but a state whose only item
        # is detached has no cluster, and then the new one must have a finite weight.
        self.log_v[0] = self.log_v[1]
        for k in range(1, self.n_samples + 1):
            self.log_v[k + 1] = self.log_v[k] + self.log_ratio(self.concentration, k)
        if self.sigma != self.tabulated_sigma:
            self.log_join[0] = -INFINITY
            self.log_block[0] = 0.0
            for m in range(1, self.n_samples + 1):
                self.log_join[m] = log(m - self.sigma)
            if self.n_samples > 0:
                self.log_block[1] = 0.0
            for m in range(1, self.n_samples):
                self.log_block[m + 1] = self.log_block[m] + self.log_join[m]
        self.tabulated = self.concentration
        self.tabulated_sigma = self.sigma
        return 0

    cdef double log_eppf_at(
        self, double concentration, const Py_ssize_t* sizes, Py_ssize_t k    # IN (k,)
    ) noexcept nogil:
        """log p(partition) at any concentration, in O(k) and without the tables."""
        cdef Py_ssize_t j
        cdef double sigma = self.sigma_at(concentration)
        cdef double total = -log_rising(concentration + 1.0, self.n_samples - 1.0)
        for j in range(1, k):
            total += self.log_ratio(concentration, j)
        for j in range(k):
            total += log_rising(1.0 - sigma, sizes[j] - 1.0)
        return total

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return 0.0

    cdef double log_ratio(self, double concentration, Py_ssize_t k) noexcept nogil:
        """log V_{n,k+1} - log V_{n,k}, k >= 1; it depends on n for none of the three."""
        return log(concentration)

    cdef double log_density(self, double x) noexcept nogil:
        """log density of the logarithm of the concentration given the partition, up to a constant.
        The factor A in the density of log A is the Jacobian."""
        cdef double concentration
        if not -700.0 < x < 700.0:
            return -INFINITY
        concentration = exp(x)
        return (
            self.shape * x - self.rate * concentration
            + self.log_eppf_at(concentration, self.sizes, self.n_clusters)
        )

    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil:
        return exp(self.slice_step(log(self.concentration), rng))

    # The Python boundary.

    @property
    def lowest_concentration(self):
        return 0.0

    @property
    def most_clusters(self):
        return self.n_samples

    def set_concentration(self, double concentration):
        self.concentration = concentration
        self.sigma = self.sigma_at(concentration)

    def log_weights(self, sizes):
        """log of the weights of clusters of the given sizes and of a new one, summing to 1.

        Returns
        -------
        log_weights : ndarray of shape (len(sizes) + 1,)
        """
        sizes = np.asarray(sizes, dtype=np.intp)
        cdef double total = self.concentration + sizes.sum()
        cdef double ratio = self.log_ratio(self.concentration, sizes.shape[0])
        with np.errstate(divide="ignore"):
            return np.append(np.log(sizes - self.sigma), ratio) - np.log(total)

    def log_probability(self, sizes):
        """log p(partition) for clusters of the given sizes, at the current concentration."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(sizes, dtype=np.intp)
        return self.log_eppf_at(self.concentration, &view[0], view.shape[0])

    def resample(self, sizes, double shape, double rate, bit_generator):
        """Draw the concentration given the partition under its Gamma(shape, rate) prior."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(sizes, dtype=np.intp)
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef double concentration
        self.sizes = &view[0]
        self.n_clusters = view.shape[0]
        self.shape = shape
        self.rate = rate
        with bit_generator.lock, nogil:
            concentration = self.draw_concentration(rng)
        self.sizes = NULL
        self.set_concentration(concentration)

    def log_split(self, Py_ssize_t n_clusters, double left, double right):
        """log p of a partition over that of one with n_clusters clusters, of which one of
        left + right items is split in two; 0 is the size of no cluster.
        """
        return (
            self.log_ratio(self.concentration, n_clusters)
            + log_rising(1.0 - self.sigma, left - 1.0) + log_rising(1.0 - self.sigma, right - 1.0)
            - log_rising(1.0 - self.sigma, left + right - 1.0)
        )

    def weight_parameters(self, sizes):
        """Parameters of the Dirichlet law of the weights of clusters of the given sizes and, last,
        of all others together: n_k - sigma, and A + K sigma, which is 0 where there are no others.

        Pitman (1996), Some developments of the Blackwell-MacQueen urn scheme, corollary 20.
        """
        sizes = np.asarray(sizes, dtype=np.float64)
        rest = max(self.concentration + len(sizes) * self.sigma, 0.0)
        return np.append(sizes - self.sigma, rest)


cdef class DirichletProcessPrior(PartitionPrior):
    """Chinese restaurant process: A^k Gamma(A) / Gamma(A + n) prod_j Gamma(n_j)."""

    def __init__(self, Py_ssize_t n_samples, double concentration):
        self.set_concentration(concentration)

    cdef double draw_concentration(self, bitgen_t* rng) noexcept nogil:
        """Escobar & West (1995), eqs. (13)-(14): exact, through eta ~ Beta(A + 1, n)."""
        cdef double g = random_standard_gamma(rng, self.concentration + 1.0)
        cdef double h = random_standard_gamma(rng, <double>self.n_samples)
        cdef double new_rate = self.rate - log(g / (g + h))
        cdef double odds = (self.shape + self.n_clusters - 1.0) / (self.n_samples * new_rate)
        cdef double new_shape = self.shape + self.n_clusters
        if uniform(rng) * (1.0 + odds) >= odds:
            new_shape -= 1.0
        # A tiny shape can underflow to 0, whose logarithm would end the chain.
        return max(random_standard_gamma(rng, new_shape) / new_rate, 1e-300)


cdef class PitmanYorPrior(PartitionPrior):
    """prod_{i<k} (A + i d) / prod_{i<n} (A + i) prod_j Gamma(n_j - d) / Gamma(1 - d)."""
    cdef readonly double discount

    @property
    def lowest_concentration(self):
        return -self.discount

    def __init__(self, Py_ssize_t n_samples, double concentration, double discount):
        self.discount = discount
        self.set_concentration(concentration)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return self.discount

    cdef double log_ratio(self, double concentration, Py_ssize_t k) noexcept nogil:
        return log(concentration + k * self.discount)


cdef class FiniteDirichletPrior(PartitionPrior):
    """k0!/(k0-k)! Gamma(A)/Gamma(n + A) prod_j Gamma(n_j + a)/Gamma(a), a = A/k0, k <= k0."""
    cdef readonly Py_ssize_t n_components

    @property
    def most_clusters(self):
        return min(self.n_components, self.n_samples)

    def __init__(self, Py_ssize_t n_samples, double concentration, Py_ssize_t n_components):
        self.n_components = n_components
        self.set_concentration(concentration)

    cdef double sigma_at(self, double concentration) noexcept nogil:
        return -concentration / self.n_components

    cdef double log_ratio(self, double concentration, Py_ssize_t k) noexcept nogil:
        if k >= self.n_components:
            return -INFINITY
        return log((self.n_components - k) * (concentration / self.n_components))
