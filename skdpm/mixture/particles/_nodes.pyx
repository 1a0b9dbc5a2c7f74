# SPDX-License-Identifier: BSD-3-Clause
"""The prior's part of the weights of a row's choices, the concentration integrated out.

Row n meets k clusters of the n - 1 rows before it. Under a prior of Gibbs type (priors/_base) the
factors of its choices are

    join a cluster of m:  (m - sigma) V_{n,k} / V_{n-1,k},    a new one:  V_{n,k+1} / V_{n-1,k}.

By the recursion of V, and with r = V_{n,k+1} / V_{n,k}, both follow from r alone, without a
difference of logarithms:

    V_{n,k} / V_{n-1,k} = 1 / (n - 1 - sigma k + r),    V_{n,k+1} / V_{n-1,k} = r times that.

An unknown concentration is integrated out over nodes, each with a weight w given the particle's
partition. The factors are averages over w. Once the row has drawn its cluster, w is multiplied by
each node's own factor. If sigma is the same at all nodes, w depends on (n, k) alone: there is one
vector for each k in use. Rows that are noise count for no n here, so with noise each particle has
its own n and its own vector.
"""
from libc.math cimport INFINITY, cos, exp, fabs, log, M_PI as PI
from libc.string cimport memcpy

import functools

import numpy as np
from scipy.special import logsumexp

from skdpm._core cimport _resampling
from skdpm._core._math cimport log_rising
from skdpm._core._tiles cimport tile_exp
from skdpm.mixture.priors._base cimport PartitionPrior

from skdpm.mixture.likelihoods.contract.base import read_only

# Distance of the nodes' logarithms. With k clusters it is at most k^(-1/2): the factor of the
# concentration is then smooth between nodes.
STEP = 0.0625
# Number of single rows whose pull on the concentration nodes must cover.
MOST_PULL = 500
cdef double LARGEST_ERROR = 1e-10       # of an interpolated log r

cdef extern from "tiles.h" nogil:
    void tile_combine(
        const double* table, const double* by, Py_ssize_t n_rows, Py_ssize_t n, double* out
    )
    void tile_averages(
        const double* w, const double* sigmas, const double* r, double n_rows, double k,
        Py_ssize_t n, const double* ones, double* scratch, double* out
    )
    double tile_dot(const double* a, const double* b, Py_ssize_t n)
    void tile_multiply(
        double* w, const double* sigmas, const double* r, double n_rows, double k, double size,
        double scale, Py_ssize_t n
    )


cdef class NewClusterRatios:
    """r of many concentrations. It is constant in n for priors with the capability
    "constant_ratios". For other priors each value may be a long sum. So from n = 64 on, log r is
    interpolated in n by polynomials through 12 Chebyshev points, each valid until n has grown by a
    half. They depend on the node and on k alone, not on the earlier rows. The error is checked at
    two other points; if it exceeds 1e-10, the node is computed directly.
    """

    def __init__(self, PartitionPrior prior):
        self.prior = prior
        self.constant = "constant_ratios" in prior.capabilities

    def resize(self, const double[::1] nodes, Py_ssize_t n_k):
        """Set the concentrations, and make room for k = 0, ..., n_k - 1."""
        self.nodes = nodes
        self.n_nodes = n = nodes.shape[0]
        self.table = np.empty((n_k, n))
        self.tabulated = np.zeros(n_k, np.intp)
        if not self.constant:
            self.log_at_points = np.empty((n_k, N_POINTS, n))
            self.first = np.zeros(n_k, np.intp)
            self.inexact = np.empty((n_k, n), np.uint8)

    cdef void forget(self) noexcept nogil:
        """Forget all values after a change of the nodes."""
        for k in range(self.tabulated.shape[0]):
            self.tabulated[k] = 0
            if not self.constant:
                self.first[k] = 0

    cdef const double* at(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """r of n rows and k clusters: (n_nodes,)."""
        if self.constant:
            n = 1
        if self.tabulated[k] != n:
            self.tabulated[k] = n
            if self.constant or n < FIRST_PIECE or self.n_nodes == 1:
                for g in range(self.n_nodes):
                    self.table[k, g] = exp(self.prior.log_new_weight(self.nodes[g], n, k))
            else:
                self.interpolate(n, k)
        return &self.table[k, 0]

    cdef void interpolate(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t j
        cdef Py_ssize_t first = FIRST_PIECE
        cdef double* r = &self.table[k, 0]
        cdef Py_ssize_t points[N_POINTS]
        cdef double by[N_POINTS]
        cdef double top = -INFINITY
        while first + first // 2 <= n:      # ends: it grows by a half
            first += first // 2
        for j in range(N_POINTS):
            points[j] = first + <Py_ssize_t>(
                0.5 * (first // 2 - 1) * (1.0 - cos(PI * j / (N_POINTS - 1))) + 0.5
            )
        if self.first[k] != first:
            self.first[k] = first
            self.fit(points, k)
        lagrange(points, n, by)
        tile_combine(&self.log_at_points[k, 0, 0], by, N_POINTS, self.n_nodes, r)
        for g in range(self.n_nodes):
            if self.inexact[k, g]:
                r[g] = self.prior.log_new_weight(self.nodes[g], n, k)
            if not r[g] <= top:
                top = r[g]
        if top == -INFINITY:
            top = 0.0
        for g in range(self.n_nodes):
            r[g] -= top
        tile_exp(r, self.n_nodes)
        top = exp(top)
        for g in range(self.n_nodes):
            r[g] *= top

    cdef void fit(self, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil:
        """Compute log r at the points, and check the polynomials near an end and in the middle."""
        cdef Py_ssize_t j
        for g in range(self.n_nodes):
            self.inexact[k, g] = False
            for j in range(N_POINTS):
                self.log_at_points[k, j, g] = self.prior.log_new_weight(
                    self.nodes[g], points[j], k
                )
        self.check((points[1] + points[2]) // 2, points, k)
        self.check((points[N_POINTS // 2] + points[N_POINTS // 2 + 1]) // 2, points, k)

    cdef void check(self, Py_ssize_t n, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil:
        """Note the nodes whose polynomial is not exact at n."""
        cdef Py_ssize_t g, j
        cdef double by[N_POINTS]
        lagrange(points, n, by)
        for g in range(self.n_nodes):
            error = -self.prior.log_new_weight(self.nodes[g], n, k)
            for j in range(N_POINTS):
                error += by[j] * self.log_at_points[k, j, g]
            self.inexact[k, g] |= not fabs(error) <= LARGEST_ERROR


cdef void lagrange(const Py_ssize_t* points, Py_ssize_t n, double* by) noexcept nogil:
    """Weights, at n, of the values at N_POINTS points."""
    cdef Py_ssize_t i, j
    for j in range(N_POINTS):
        by[j] = 1.0
        for i in range(N_POINTS):
            if i != j:
                by[j] *= (n - points[i]) / <double>(points[j] - points[i])


cdef class ConcentrationNodes:

    def __init__(
        self, PartitionPrior prior, hyperprior, Py_ssize_t n_particles, bint has_noise=False
    ):
        self.prior = prior
        self.has_noise = has_noise
        self.hyperprior = hyperprior
        self.concentration = prior.concentration
        self.n_particles = n_particles
        self.ratios = NewClusterRatios(prior)
        self.step = STEP
        self.slope, self.offset, self.fresh = np.empty((3, n_particles))

    def resize(self, Py_ssize_t k_capacity, step=None):
        """Make nodes and tables for up to k_capacity clusters. No law is known afterwards."""
        cdef Py_ssize_t n_k = k_capacity + 2
        self.k_capacity, self.k_most = k_capacity, 0
        if step is not None:
            self.step = step
        while k_capacity * self.step * self.step > 1.0:
            self.step *= 0.5
        if self.hyperprior is None:
            self.values, self.log_hyper = np.array([self.concentration]), np.zeros(1)
        else:
            self.values, self.log_hyper = map(
                np.array, concentration_nodes(self.hyperprior, self.step)
            )
        self.n_nodes = n = self.values.shape[0]
        self.sigmas = sigmas = np.array([self.prior.sigma_at(value) for value in self.values])
        self.common = (sigmas == sigmas[0]).all() and not self.has_noise
        self.ones, self.scratch = np.ones(n), np.empty(n)
        self.ratios.resize(self.values, n_k)
        self.users = np.zeros(n_k, np.intp)
        self.known = np.zeros(n_k, np.uint8)
        self.join_k, self.new_k = np.empty((2, n_k))
        if self.common:
            self.by_k = np.empty((n_k, n))
        else:
            self.own = np.empty((self.n_particles, n))

    cdef Py_ssize_t count(
        self, const Py_ssize_t* n_clusters, Py_ssize_t n, Py_ssize_t n_rows    # IN (n,)
    ) noexcept nogil:
        """Count the particles by number of clusters. Make the laws of newly used numbers in closed
        form (later rows update them by products), and forget others. Returns the largest
        number of clusters."""
        for k in range(self.k_most + 1):
            self.users[k] = 0
        self.k_most = 0
        for p in range(n):
            self.users[n_clusters[p]] += 1
            self.k_most = max(self.k_most, n_clusters[p])
        for k in range(self.k_capacity + 2):
            if self.users[k] == 0:
                self.known[k] = False
            elif not self.known[k]:
                self.make_law(k, n_rows)
        return self.k_most

    cdef void make_law(self, Py_ssize_t k, Py_ssize_t n_rows) noexcept nogil:
        """The law given k clusters, in closed form."""
        self.known[k] = True
        if not self.common:
            return
        for g in range(self.n_nodes):
            self.by_k[k, g] = self.log_hyper[g]
            if k > 0:
                self.by_k[k, g] += self.prior.log_v_at(self.values[g], n_rows, k)
        normalise(&self.by_k[k, 0], self.n_nodes)

    cdef void make_own_law(
        self, Py_ssize_t p, Py_ssize_t n_rows, const double* sizes, const int* slots, Py_ssize_t k
    ) noexcept nogil:
        """The law of a particle with k clusters, in closed form; V is that of n_rows rows."""
        cdef double* w = &self.own[p, 0]
        for g in range(self.n_nodes):
            w[g] = self.log_hyper[g]
            if k > 0:
                w[g] += self.prior.log_v_at(self.values[g], n_rows, k)
            for j in range(k):
                w[g] += log_rising(1.0 - self.sigmas[g], sizes[slots[j]] - 1.0)
        normalise(w, self.n_nodes)

    cdef void weigh(
        self, const Py_ssize_t* n_clusters, const Py_ssize_t* n_noise, Py_ssize_t n,  # IN (n,)
        Py_ssize_t n_rows, bint counted
    ) noexcept nogil:
        """Compute the average factors of all choices of the row after n_rows, of which n_noise are
        noise, given that it is not; `count` has been called. If laws by k have `counted` the row,
        theirs are relative to that of V_{n,k}."""
        cdef double sums[3]
        for k in range(1, self.k_most + 1):
            if not self.common or self.users[k] == 0:
                continue
            if counted:
                self.join_k[k] = 1.0
                self.new_k[k] = tile_dot(
                    &self.by_k[k, 0], self.ratios.at(n_rows + 1, k), self.n_nodes
                )
            else:
                self.average(&self.by_k[k, 0], k, n_rows, sums)
                self.join_k[k] = sums[0]
                self.new_k[k] = sums[2]
        for p in range(n):
            k = n_clusters[p]
            if k == 0:      # the first row in a cluster
                self.slope[p] = 0.0
                self.offset[p] = 0.0
                self.fresh[p] = 1.0
            elif self.common:
                self.slope[p] = self.join_k[k]
                self.offset[p] = -self.sigmas[0]
                self.fresh[p] = self.new_k[k]
            else:
                self.average(&self.own[p, 0], k, n_rows - n_noise[p], sums)
                self.slope[p] = sums[0]
                self.offset[p] = -sums[1] / sums[0]
                self.fresh[p] = sums[2]

    cdef void average(
        self, const double* w, Py_ssize_t k, Py_ssize_t n_rows, double* sums    # OUT (3,)
    ) noexcept nogil:
        """Average, over a law, the nodes' factors of the row after n_rows in k clusters: V's, that
        times sigma, and that of a new cluster."""
        tile_averages(
            w, &self.sigmas[0], self.ratios.at(n_rows + 1, k), n_rows, k, self.n_nodes,
            &self.ones[0], &self.scratch[0], sums
        )

    cdef void follow_laws(self, Py_ssize_t n_rows) noexcept nogil:
        """Multiply each law of k clusters by the nodes' factors of a row that joined one of them.
        A particle that opened a cluster changes to the law of k + 1."""
        if not self.common or n_rows == 0 or self.n_nodes == 1:
            return
        for k in range(1, self.k_most + 1):
            if self.users[k] > 0:
                # All nodes have the same factor m - sigma.
                multiply(
                    self, &self.by_k[k, 0], k, n_rows, 1.0,
                    1.0 / (self.join_k[k] * (1.0 - self.sigmas[0]))
                )

    cdef void follow(
        self, Py_ssize_t p, Py_ssize_t k, Py_ssize_t n_rows, double size
    ) noexcept nogil:
        """Multiply the law of a particle with n_rows in k clusters by the nodes' factors of a row
        that joined a cluster of `size` others; 0: a new one."""
        cdef double* w = &self.own[p, 0]
        if k == 0:
            return
        if size > 0.0:
            multiply(self, w, k, n_rows, size, 1.0 / (self.slope[p] * (size + self.offset[p])))
            return
        r = self.ratios.at(n_rows + 1, k)
        for g in range(self.n_nodes):
            w[g] *= r[g] / (self.fresh[p] * (n_rows - self.sigmas[g] * k + r[g]))

    cdef void unfollow(
        self, Py_ssize_t p, Py_ssize_t k, Py_ssize_t n_rows, double size
    ) noexcept nogil:
        """Undo `follow`. The sum of the law is 1 again once the row has joined a cluster."""
        cdef double total = 0.0
        cdef double* w = &self.own[p, 0]
        cdef const double* sigmas = &self.sigmas[0]
        cdef const double* r = self.ratios.at(n_rows + 1, k)
        for g in range(self.n_nodes):
            w[g] *= (n_rows - sigmas[g] * k + r[g]) / (size - sigmas[g])
        if self.has_noise:      # the row may join none
            for g in range(self.n_nodes):
                total += w[g]
            for g in range(self.n_nodes):
                w[g] /= total

    cdef void branch(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Particle dst becomes a copy of particle src."""
        self.slope[dst] = self.slope[src]
        self.offset[dst] = self.offset[src]
        self.fresh[dst] = self.fresh[src]
        if not self.common:
            memcpy(&self.own[dst, 0], &self.own[src, 0], self.n_nodes * sizeof(double))

    cdef double[::1] law(self, Py_ssize_t p, Py_ssize_t k):
        """The law of a particle of k clusters, (n_nodes,); `count` has been called."""
        return self.by_k[k] if self.common else self.own[p]

    # The Python boundary.

    def arrays(self):
        """Nodes and log prior weights: two ndarrays of shape (n_nodes,)."""
        return np.array(self.values), np.array(self.log_hyper)

    def save(self, Py_ssize_t n):
        """The laws that n particles use, by k or by particle: dict of ndarray (n_nodes,)."""
        if not self.common:
            return {p: np.array(self.own[p]) for p in range(n)}
        return {k: np.array(self.by_k[k]) for k in range(self.k_most + 1) if self.users[k] > 0}

    def load(self, laws):
        """Restore the laws of `save`."""
        for j, law in laws.items():
            if self.common:
                self.known[j] = True
                np.asarray(self.by_k)[j] = law
            else:
                np.asarray(self.own)[j] = law


cdef void multiply(
    ConcentrationNodes self, double* w, Py_ssize_t k, Py_ssize_t n_rows, double size, double scale
) noexcept nogil:
    """Multiply a law by `scale` and by the nodes' factors of a row that joins a cluster of
    `size` others; n_rows others are in k clusters."""
    tile_multiply(
        w, &self.sigmas[0], self.ratios.at(n_rows + 1, k), n_rows, k, size, scale, self.n_nodes
    )


cdef inline void normalise(double* w, Py_ssize_t n) noexcept nogil:
    """Replace log weights by weights of sum 1."""
    cdef double total = 0.0
    _resampling.exponentiate(w, w, n)
    for g in range(n):
        total += w[g]
    for g in range(n):
        w[g] /= total


def log_ratios(PartitionPrior prior, sizes, concentrations, nodes, log_hyper):
    """log p(partition | concentration) - log p(partition), the latter over weighted nodes, for
    partitions of given cluster sizes: (n_concentrations, n_partitions).

    Raises ValueError for a concentration that the prior cannot have.
    """
    cdef const double[::1] at = np.concatenate([concentrations, nodes]).astype(np.float64)
    cdef const Py_ssize_t[::1] view
    cdef Py_ssize_t m = len(concentrations)
    log_p = np.empty((at.shape[0], len(sizes)))
    cdef double[:, ::1] log_p_view = log_p
    for c in range(m):
        if not prior.lowest_concentration < at[c] < INFINITY:
            raise ValueError(
                "concentrations must be finite and above "
                f"{prior.lowest_concentration}, got {at[c]}"
            )
    for p in range(log_p_view.shape[1]):
        view = np.ascontiguousarray(sizes[p], dtype=np.intp)
        if view.shape[0] == 0:      # no row yet
            log_p[:, p] = 0.0
            continue
        with nogil:
            for c in range(at.shape[0]):
                log_p_view[c, p] = prior.log_eppf_at(at[c], &view[0], view.shape[0])
    if len(nodes) == 1:     # exactly 0 at the same concentration
        return log_p[:m] - log_p[m:]
    return log_p[:m] - logsumexp(log_p[m:].T + log_hyper, axis=1)


@functools.lru_cache    # a stream asks in every call
def concentration_nodes(hyperprior, double step):
    """Nodes of a trapezoidal rule in the logarithm x of a concentration A, and their log weights.
    Nodes are at most a step apart, less where the prior is narrow; weights sum to 1.

    The factor of the concentration given a partition, A^(k-1) / (A + 1) ... (A + n - 1) or the
    like, is constant below the first node if k is 1, and negligible there otherwise: the first
    node stands for all concentrations below it, too.
    """
    density = hyperprior.density
    quartiles = np.log(np.maximum(hyperprior.ppf(np.array([0.25, 0.5, 0.75])), 1e-300))
    sd = max((quartiles[2] - quartiles[0]) / 1.349, 1e-9)
    # Points that become sparser with the distance from the median, out to |x| = 700.
    far = np.arcsinh(2.0 * 700.0 / sd)
    x = quartiles[1] + sd * np.sinh(np.linspace(-far, far, 4001))
    x = x[np.abs(x) < 700.0]
    log_mass = density(x) + np.log(np.gradient(x))
    # Rows pull the concentration down at most as exp(-30 A). Below `low`, mass or change is small.
    below = np.logaddexp.accumulate(log_mass - 30.0 * np.exp(x))
    below -= below[-1]
    is_low = (below < log(1e-13)) | (below + np.minimum(x + log(30.0), 0.0) < log(1e-14))
    low = x[np.flatnonzero(is_low)[-1]]
    # Clusters pull it up at most as MOST_PULL rows that are all alone.
    rising = np.array([log_rising(exp(value), <double>MOST_PULL) for value in x])
    above = np.logaddexp.accumulate((log_mass + MOST_PULL * x - rising)[::-1])[::-1]
    high = x[np.flatnonzero(above - above[0] < log(1e-14))[0]]
    step = min(step, 0.75 * sd)
    x = low + step * np.arange(int((high - low) / step) + 2)
    log_weights = density(x)
    # Geometric sum of the nodes that would follow below.
    log_weights[0] -= np.log(-np.expm1(density(low - step) - log_weights[0]))
    log_weights -= logsumexp(log_weights)
    return read_only((np.exp(x), log_weights))
