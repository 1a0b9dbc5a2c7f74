# SPDX-License-Identifier: BSD-3-Clause
"""Priors over partitions of Gibbs type (Gnedin & Pitman 2006), normalised: with k clusters of
sizes n_1, ..., n_k that sum to n,

    p(partition) = V_{n,k} prod_j (1 - sigma)_{n_j - 1},    sigma < 1,

where (x)_m is the rising factorial, and V has V_{1,1} = 1 and

    V_{n,k} = (n - sigma k) V_{n+1,k} + V_{n+1,k+1}.

So the n-th item joins a cluster of m others with a probability proportional to m - sigma, and a
new one to V_{n,k+1} / V_{n,k}, k being the number of clusters of the others. A prior is sigma and
log V, both functions of its concentration; what it does not say is NaN, which samplers refuse.
"""
from libc.math cimport INFINITY, NAN, log
from libc.stdlib cimport free

import numpy as np

from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport resized


cdef class PartitionPrior:
    """Base class of partition priors.

    Parameters
    ----------
    n_samples : int
        Items of the partitions whose V is tabulated. `log_eppf_at`, `log_v_at` and
        `log_new_weight` hold for any number, and need no tables.

    Attributes
    ----------
    concentration : float
        The parameter that can be learned.
    sigma : float
    capabilities : frozenset
        "weights": given a partition, the weights of its clusters and of all others together are
        Dirichlet, `weight_parameters`. "n_components": there are `n_components` components.
        "constant_ratios": V_{n,k+1} / V_{n,k} does not depend on n.
    lowest_concentration : float
        A fixed concentration must be larger.
    most_clusters : int
        Clusters that n_samples items can have.
    """

    capabilities = frozenset()
    lowest_concentration = 0.0

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.tabulated = self.tabulated_sigma = INFINITY    # no table yet
        self.sigma = NAN
        self.n_reserved = 1

    def __dealloc__(self):
        free(self.log_v)
        free(self.log_join)
        free(self.log_cluster)

    @property
    def most_clusters(self):
        return self.n_samples

    cdef double sigma_at(self, double concentration) noexcept nogil:
        """sigma at any concentration."""
        return NAN

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """log V_{n,k} at any concentration, 1 <= k <= n; -infinity where there are no such
        partitions."""
        return NAN

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        """log V_{n,k+1} - log V_{n,k}, 1 <= k < n: the weight of a new cluster for the n-th item,
        the others in k, beside m - sigma for a cluster of m."""
        cdef double log_v = self.log_v_at(concentration, n, k)
        if log_v == -INFINITY:
            return -INFINITY
        return self.log_v_at(concentration, n, k + 1) - log_v

    cdef void fill_log_v(
        self, double concentration, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last,
        double* log_v    # INOUT (last + 1,)
    ) noexcept nogil:
        """Write log V_{n,k} to log_v[k] for k = first, ..., last; the entries 1, ..., first - 1
        are there."""
        cdef Py_ssize_t k
        for k in range(first, last + 1):
            log_v[k] = self.log_v_at(concentration, n, k)

    cdef int tabulate(self) except -1:
        """Bring the tables up to date with the concentration: in O(n_samples) where sigma has
        changed, and as `fill_log_v` can for `n_reserved` clusters. Samplers that visit rows in
        blocks do without tables."""
        cdef Py_ssize_t m
        if self.tabulated == self.concentration:
            return 0
        if self.log_v == NULL:
            self.log_v = <double*>resized(NULL, self.n_samples + 2, sizeof(double))
            self.log_join = <double*>resized(NULL, self.n_samples + 1, sizeof(double))
            self.log_cluster = <double*>resized(NULL, self.n_samples + 1, sizeof(double))
        with nogil:     # other chains go on: it may take long
            self.fill_log_v(self.concentration, self.n_samples, 1, self.n_reserved, self.log_v)
        # V_{n,0} has no meaning, but a state whose only item is detached has no cluster, and then
        # the new one must have a finite weight.
        self.log_v[0] = self.log_v[1]
        if not self.sigma == self.tabulated_sigma:
            self.log_join[0] = -INFINITY
            self.log_cluster[0] = 0.0
            for m in range(1, self.n_samples + 1):
                self.log_join[m] = log(m - self.sigma)
            if self.n_samples > 0:
                self.log_cluster[1] = 0.0
            for m in range(1, self.n_samples):
                self.log_cluster[m + 1] = self.log_cluster[m] + self.log_join[m]
        self.tabulated = self.concentration
        self.tabulated_sigma = self.sigma
        return 0

    cdef int reserve(self, Py_ssize_t n_clusters) except -1:
        """Have log V tabulated for up to `n_clusters` clusters, now and after each change of the
        concentration."""
        n_clusters = min(n_clusters, self.n_samples + 1)
        if n_clusters <= self.n_reserved:
            return 0
        if self.tabulated == self.concentration:
            with nogil:
                self.fill_log_v(
                    self.concentration, self.n_samples, self.n_reserved + 1, n_clusters,
                    self.log_v
                )
        self.n_reserved = n_clusters
        return 0

    cdef double log_eppf_at(
        self, double concentration, const Py_ssize_t* sizes, Py_ssize_t k    # IN (k,)
    ) noexcept nogil:
        """log p(partition) at any concentration, for any number of items, without the tables."""
        cdef Py_ssize_t j
        cdef Py_ssize_t n = 0
        cdef double sigma = self.sigma_at(concentration)
        cdef double total
        if k == 0:
            return 0.0
        for j in range(k):
            n += sizes[j]
        total = self.log_v_at(concentration, n, k)
        for j in range(k):
            total += log_rising(1.0 - sigma, sizes[j] - 1.0)
        return total

    cdef double log_probability_at(
        self, double concentration, const Py_ssize_t* counts, Py_ssize_t n_counts    # IN
    ) noexcept nogil:
        return self.log_eppf_at(concentration, counts, n_counts)

    # The Python boundary.

    def set_concentration(self, double concentration):
        self.concentration = concentration
        self.sigma = self.sigma_at(concentration)

    def log_weights(self, sizes):
        """log probabilities that the next item joins clusters of the given sizes, or a new one.

        Returns
        -------
        log_weights : ndarray of shape (len(sizes) + 1,)
        """
        sizes = np.asarray(sizes, dtype=np.intp)
        if sizes.shape[0] == 0:
            return np.zeros(1)
        cdef double new = self.log_new_weight(
            self.concentration, sizes.sum() + 1, sizes.shape[0]
        )
        log_weights = np.append(np.log(sizes - self.sigma), new)
        log_weights -= log_weights.max()
        return log_weights - np.log(np.exp(log_weights).sum())

    def log_split(self, Py_ssize_t n_clusters, double left, double right):
        """log of the probability of a partition relative to that of the one in which two of its
        clusters are one: `left` and `right` are their sizes, both positive, and `n_clusters` is
        the number of clusters where they are one."""
        return (
            self.log_new_weight(self.concentration, self.n_samples, n_clusters)
            + log_rising(1.0 - self.sigma, left - 1.0) + log_rising(1.0 - self.sigma, right - 1.0)
            - log_rising(1.0 - self.sigma, left + right - 1.0)
        )

    def weight_parameters(self, sizes):
        """Parameters of the Dirichlet law of the weights of clusters of the given sizes and, last,
        of all others together. For priors with the capability "weights"."""
        raise NotImplementedError(f"{type(self).__name__} must write `weight_parameters`")
