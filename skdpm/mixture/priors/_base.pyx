# SPDX-License-Identifier: BSD-3-Clause
"""Priors over partitions of Gibbs type (Gnedin & Pitman 2006), normalised: with k clusters of
sizes n_1, ..., n_k that sum to n,

    p(partition) = V_{n,k} prod_j (1 - sigma)_{n_j - 1},    sigma < 1,

where (x)_m is the rising factorial, and V has V_{1,1} = 1 and

    V_{n,k} = (n - sigma k) V_{n+1,k} + V_{n+1,k+1}.

Given k clusters of the others, the n-th item joins a cluster of m with probability proportional
to m - sigma, and a new one with probability proportional to V_{n,k+1} / V_{n,k}. A prior defines
sigma and log V as functions of its concentration. Undefined ones are NaN, which samplers refuse.
"""
from libc.math cimport INFINITY, NAN, log

import numpy as np

from skdpm._core._math cimport log_rising

cdef enum:
    N_TABLES = 64       # tables of log V for other numbers of items than n_samples


cdef class PartitionPrior:
    """Base class of partition priors. Its tables are those of partitions of `n_samples` items;
    `log_eppf_at`, `log_v_at` and `log_new_weight` need no tables and hold for any number.

    - `concentration`: The parameter that can be learned.
    - `sigma`: See the docstring of the module.
    - `capabilities`: frozenset. "weights": given a partition, the weights of its clusters and the
      total weight of all others have a Dirichlet law (`weight_parameters`). "n_components": the
      attribute `n_components` bounds the number of clusters. "constant_ratios": the ratio
      V_{n,k+1} / V_{n,k} does not depend on n.
    - `lowest_concentration`: Lower bound, exclusive, of a fixed concentration.
    - `most_clusters`: Maximum number of clusters of n_samples items.
    - `latent`: tuple of str. Names of attributes that are drawn with the partition
      (`resample_latent`). Given these the prior is of Gibbs type, and its tables and C methods
      hold; `log_probability` and `log_weights` are averages over them.
    """

    capabilities = frozenset()
    latent = ()
    lowest_concentration = 0.0

    def __cinit__(self, Py_ssize_t n_samples, *args, **kwargs):
        self.n_samples = n_samples
        self.tabulated = self.tabulated_sigma = INFINITY    # no table yet
        self.sigma = NAN
        self.n_reserved = 1
        self.n_focus = n_samples
        self.others = np.empty((0, 0))
        self.has_constant_ratios = "constant_ratios" in self.capabilities

    @property
    def most_clusters(self):
        return self.n_samples

    cdef double sigma_at(self, double concentration) noexcept nogil:
        """sigma at any concentration."""
        return NAN

    cdef double log_v_at(self, double concentration, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """log V_{n,k} at any concentration, 1 <= k <= n; -infinity if there are no partitions into
        k clusters."""
        return NAN

    cdef double log_new_weight(
        self, double concentration, Py_ssize_t n, Py_ssize_t k
    ) noexcept nogil:
        """log V_{n,k+1} - log V_{n,k}, 1 <= k < n: the log weight of a new cluster for the n-th
        item, on the scale where a cluster of m has the weight m - sigma."""
        cdef double log_v = self.log_v_at(concentration, n, k)
        if log_v == -INFINITY:
            return -INFINITY
        return self.log_v_at(concentration, n, k + 1) - log_v

    cdef void fill_log_v(
        self, double concentration, Py_ssize_t n, Py_ssize_t first, Py_ssize_t last, double* log_v
    ) noexcept nogil:
        """Write log V_{n,k} to log_v[k] for k = first, ..., last, given the entries before."""
        for k in range(first, last + 1):
            log_v[k] = self.log_v_at(concentration, n, k)

    cdef int tabulate(self) except -1:
        """Update the tables to the concentration: log V for `n_reserved` clusters and, in
        O(n_samples) steps, the others if sigma has changed. Block samplers use no tables."""
        if self.tabulated == self.concentration:
            return 0
        if self.whole == NULL:
            self.tables = np.empty((3, self.n_samples + 2))
            self.whole = self.log_v = &self.tables[0, 0]
            self.log_join = &self.tables[1, 0]
            self.log_cluster = &self.tables[2, 0]
        with nogil:     # this may take long
            self.fill_log_v(self.concentration, self.n_samples, 1, self.n_reserved, self.whole)
        # V_{n,0} means nothing, but a new cluster of the only item must have a finite weight.
        self.whole[0] = self.whole[1]
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
        self.refocus()

    cdef int reserve(self, Py_ssize_t n_clusters) except -1:
        """Tabulate log V for at most `n_clusters`, now and after each change of concentration."""
        n_clusters = min(n_clusters, self.n_samples + 1)
        if n_clusters <= self.n_reserved:
            return 0
        if self.tabulated == self.concentration:
            with nogil:
                self.fill_log_v(
                    self.concentration, self.n_samples, self.n_reserved + 1, n_clusters, self.whole
                )
        self.n_reserved = n_clusters
        self.refocus()

    cdef int prepare_focus(self) except -1:
        """Allocate what `focus` needs."""
        if not self.has_constant_ratios and self.others.shape[0] == 0:
            self.tabled = np.full(N_TABLES, -1, dtype=np.intp)
            self.others = np.empty((N_TABLES, self.n_samples + 2))

    cdef void focus(self, Py_ssize_t n) noexcept nogil:
        """Make `log_v` the table of n items, up to a constant: only differences count if some
        items are in no cluster. Call `prepare_focus` before."""
        cdef Py_ssize_t t = n % N_TABLES
        if self.has_constant_ratios or n == self.n_focus or n < 1:
            return
        self.n_focus = n
        if n == self.n_samples:
            self.log_v = self.whole
            return
        self.log_v = &self.others[t, 0]
        if self.tabled[t] != n:
            self.tabled[t] = n
            self.fill_log_v(self.concentration, n, 1, min(self.n_reserved, n + 1), self.log_v)
            self.log_v[0] = self.log_v[1]

    cdef void refocus(self) noexcept nogil:
        """Compute the tables of other numbers of items anew, when they are needed."""
        cdef Py_ssize_t n = self.n_focus
        if self.others.shape[0] == 0:
            return
        self.tabled[:] = -1
        self.n_focus = -1
        self.focus(n)

    cdef double log_eppf_at(
        self, double concentration, const Py_ssize_t* sizes, Py_ssize_t k    # IN (k,)
    ) noexcept nogil:
        """log p(partition) at any concentration, for any number of items, without the tables."""
        cdef Py_ssize_t n = 0
        cdef double sigma = self.sigma_at(concentration)
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

    def forget_tables(self):
        """Make the next `tabulate` fill all tables: more has changed than the concentration."""
        self.tabulated = INFINITY

    def resample_latent(self, sizes, bit_generator):
        """Draw the `latent` attributes given a partition with clusters of these sizes."""

    def latent_values(self):
        """The `latent` attributes: dict."""
        return {name: getattr(self, name) for name in self.latent}

    def set_latent(self, values):
        """Set `latent` attributes."""
        for name, value in values.items():
            setattr(self, name, value)

    def log_latent_share(self, sizes):
        """log of p(partition) over p(partition given the `latent` attributes)."""
        return self.log_probability(sizes) - PartitionPrior.log_probability(self, sizes)

    def log_weights(self, sizes):
        """log probabilities that an item joins clusters of given sizes or, last, a new one."""
        sizes = np.asarray(sizes, dtype=np.intp)
        if sizes.shape[0] == 0:
            return np.zeros(1)
        cdef double new = self.log_new_weight(self.concentration, sizes.sum() + 1, sizes.shape[0])
        log_weights = np.append(np.log(sizes - self.sigma), new)
        log_weights -= log_weights.max()
        return log_weights - np.log(np.exp(log_weights).sum())

    def log_split(self, Py_ssize_t n_clusters, double left, double right):
        """log ratio of the probabilities of two partitions: one with two clusters of sizes `left`
        and `right`, both positive, and one of `n_clusters` clusters in which these are united."""
        return (
            self.log_new_weight(self.concentration, self.n_samples, n_clusters)
            + log_rising(1.0 - self.sigma, left - 1.0) + log_rising(1.0 - self.sigma, right - 1.0)
            - log_rising(1.0 - self.sigma, left + right - 1.0)
        )

    def weight_parameters(self, sizes):
        """Parameters of the Dirichlet law of the weights of clusters of the given sizes and, last,
        of the total weight of all others. For priors with the capability "weights"."""
        raise NotImplementedError(f"{type(self).__name__} must implement `weight_parameters`")
