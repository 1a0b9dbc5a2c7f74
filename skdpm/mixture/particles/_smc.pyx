# SPDX-License-Identifier: BSD-3-Clause
"""Sequential Monte Carlo: weighted partitions of the rows so far, the particles, take one row
after the other. With unnormalised weights W, over all randomness and for every partition z,

    E sum_i W_i 1(z_i = z) = p(z) p(X | z);    the sum of weights estimates the evidence p(X).

Row n, y, meets k clusters of the n - 1 rows before it. With a prior of Gibbs type (priors/_base)
its choices, and the factor of W, are

    join a cluster of m:  (m - sigma) V_{n,k} / V_{n-1,k} p(y | cluster)
    a new one:            V_{n,k+1} / V_{n-1,k} p(y)              W *= the sum of all,

whatever cluster it then draws with these probabilities. By the recursion of V, and with
r = V_{n,k+1} / V_{n,k}, both come from r alone, without a difference of logarithms:

    V_{n,k} / V_{n-1,k} = 1 / (n - 1 - sigma k + r),    V_{n,k+1} / V_{n-1,k} = r times that.

A concentration that is unknown is integrated out over nodes, each with a weight w given the
particle's partition: the two factors are averages over w, and w is multiplied by the own factor of
each node once the row has drawn its cluster. Where sigma is the same at all nodes, w depends on
(n, k) alone: there is one vector for each k in use. A fixed concentration is a single node.

A fixed concentration may change with n (annealing; Ulker, Gunsel & Cemgil 2010): the prior p_n of
n rows goes over from alpha_1 to kappa, the concentration of the model. Before row n a weight is
multiplied by p_n(z) / p_{n-1}(z), z being the partition of the rows before it, and where results
are read by p_kappa(z) / p_n(z).

After row n, and where asked, Gibbs draws some old rows anew given all others: the *active block*,
the next rows in turn, whatever their labels. That leaves p_n(z) p(X | z) as it is, and the
weights. All particles that hold a cluster lose the row at once; then it joins as a new row does.

Between weighing and drawing, particles are resampled (_core/_resampling) where their effective
sample size is small. "Optimal" follows every choice of every particle while that makes at most N
particles, and thins all choices to N where there are more and the sample size is small.

Particles whose likelihood has the same hyperparameters are a *family*, with one kernel: equal sets
of rows are one slot, which all holders share, and each is evaluated once per row. Of a slot that
some holders chose and others did not there is a copy, with the row, for all who chose it.
"""
from libc.math cimport INFINITY, cos, exp, fabs, log, pow
from libc.math cimport M_PI as PI
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from numpy.random cimport bitgen_t

import numpy as np
from scipy.special import gammaln, logsumexp

from skdpm._core cimport _resampling
from skdpm._core._math cimport log_rising
from skdpm._core._memory cimport resized
from skdpm._core._resampling cimport MULTINOMIAL, OPTIMAL, STRATIFIED, SYSTEMATIC
from skdpm._core._rng cimport bit_generator_pointer, uniform
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.priors._base cimport PartitionPrior
from skdpm.mixture.priors._two_parameter cimport TwoParameterPrior

RESAMPLING = {
    "systematic": SYSTEMATIC,
    "stratified": STRATIFIED,
    "multinomial": MULTINOMIAL,
    "optimal": OPTIMAL,
}

# Terms are relative to the best cluster of all particles. One whose terms sum to less than this is
# looked at again, relative to its own best.
cdef double FAINT = 1e-200

# Most columns of labels that 16 bits can number.
cdef enum:
    NARROW = 65535
    FEWEST_CLUSTERS = 64
    # Polynomials in n: the first n, and points of each.
    FIRST_PIECE = 64
    N_POINTS = 12

# Distance of the nodes' logarithms. With k clusters it is at most k^(-1/2): the factor of the
# concentration is then smooth between nodes.
cdef double STEP = 0.0625


cdef extern from "tiles.h" nogil:
    void tile_exp(double* x, Py_ssize_t n)
    void tile_combine(
        const double* table, const double* by, Py_ssize_t n_rows, Py_ssize_t n, double* out
    )
    void tile_averages(
        const double* w, const double* a, const double* b, const double* c, Py_ssize_t n,
        double* out
    )
    void tile_multiply(
        double* w, const double* a, const double* b, double by, double scale, Py_ssize_t n
    )


cdef enum:
    # Not an heir: the row at hand is all there is in the slot.
    ALONE = -2


# Where a polynomial is off by more, r is computed.
cdef double PIECE_ERROR = 1e-10


cdef struct Family:
    void* model             # a ClusterModel, which `models` keeps alive
    Py_ssize_t n_members    # particles
    Py_ssize_t n_live
    Py_ssize_t capacity     # length of the arrays over slots
    Py_ssize_t empty        # a slot without items
    Py_ssize_t newborn      # where the row at hand is alone ...
    Py_ssize_t born         # ... if this is the placement
    Py_ssize_t* live        # (capacity + 1,): slots that a particle holds, then the empty one
    Py_ssize_t* position    # of a slot in `live`
    Py_ssize_t* refs        # particles that hold a slot
    Py_ssize_t* stamp       # the last placement that touched a slot, and in it:
    Py_ssize_t* choosers    # particles that chose the slot
    Py_ssize_t* heir        # where it went with the row, -1 as long as it is nowhere, or ALONE
    double* sizes           # items
    double* by_position     # (capacity + 1,): scratch, p(row | cluster), last of a new one
    double* log_p           # its logarithm by slot: positions change when particles are resampled
    double log_p_new
    double* v               # p(row | cluster), scaled; times (size - sigma) where sigma is common
    double v_new


cdef struct Child:
    Py_ssize_t parent
    Py_ssize_t choice


cdef class ParticleSystem:
    """Particles of one chain, and the rows they have taken.

    Parameters
    ----------
    n_particles : int
        The most there may be.
    resampling : {"systematic", "stratified", "multinomial", "optimal"}
    resample_threshold : float
        Of the effective sample size, divided by n_particles.
    prior : PartitionPrior
        Only functions of it are called that need no tables: n_samples does not matter.
    concentration_prior : tuple (shape, rate) or None
        Of a concentration that is integrated out; None: it is that of the prior.
    annealing : tuple (first, rate) or None
        The concentration of n rows is then that of the prior plus its distance to `first` times
        (1 - rate)^(n - 1).

    Attributes
    ----------
    n_rows : int
        Rows taken so far.
    n_current : int
        Particles.
    n_resampled : int
        Times that they were resampled.
    row_at_hand : int
        Of the kernels, the last that was placed.
    block_start : int
        The first row of the next active block.
    work : int
        Row evaluations, see `PartitionKernel`.
    """
    cdef readonly Py_ssize_t n_particles, n_current, n_rows, row_at_hand, block_start
    cdef readonly long long n_resampled, work
    cdef int scheme
    cdef double threshold
    cdef readonly list models           # of the families
    cdef Family* families
    cdef Py_ssize_t n_families

    # Particles: arrays over n_particles.
    cdef double* log_w
    cdef Py_ssize_t* family
    cdef Py_ssize_t* n_clusters
    cdef int* slots                     # (n_particles, k_capacity): of the clusters, in order
    cdef double* tops                   # what terms of a particle are relative to, and ...
    cdef double* totals                 # ... their sum
    cdef Py_ssize_t* choices            # the cluster that the row at hand joins; n_clusters: new
    cdef double* weights                # scratch
    cdef Py_ssize_t* counts             # scratch
    cdef Py_ssize_t k_capacity, k_most
    cdef double top                     # the best log density of the row at hand
    cdef Py_ssize_t tick                # number of its placement, of new rows and of old ones
    cdef Py_ssize_t* origins            # the cluster that an old row comes from ...
    cdef bint* alone                    # ... and whether it was alone there

    # Choices of all particles, for "optimal".
    cdef Child* children
    cdef double* child_log_w
    cdef double* child_w
    cdef Py_ssize_t* child_counts
    cdef Py_ssize_t child_capacity

    # Labels of rows n_before, ..., n_rows - 1: positions in `slots`.
    cdef Py_ssize_t n_before, label_capacity
    cdef bint wide                      # 32 bits rather than 16
    cdef char* labels                   # (n_particles, label_capacity)

    # The concentration.
    cdef PartitionPrior prior
    cdef object concentration_prior
    cdef bint annealed
    cdef double first_concentration, annealing_rate
    cdef bint two_parameter             # does r not depend on n, and its factor not on k?
    cdef bint common                    # is sigma the same at all nodes?
    cdef double step
    cdef Py_ssize_t n_nodes
    cdef double* nodes                  # (n_nodes,) concentrations
    cdef double* log_hyper              # (n_nodes,) log prior weights, to be summed over nodes
    cdef double* sigmas                 # (n_nodes,)
    cdef double* inverse                # (n_nodes,): 1 / (n - 1 + concentration)
    cdef double* ratios                 # (k_capacity + 2, n_nodes): r
    cdef double* factors                # the same: 1 / (n - 1 - sigma k + r), or one row `inverse`
    cdef double* by_k                   # the same: w given k clusters, where sigma is common
    cdef double* own                    # (n_particles, n_nodes): w of each particle, elsewhere
    cdef Py_ssize_t* users              # (k_capacity + 2,): particles with k clusters
    cdef bint* known                    # (k_capacity + 2,): is there a vector?
    cdef Py_ssize_t* tabulated          # (k_capacity + 2,): n of the `ratios`, see `ratios_at`
    cdef double* pieces                 # (k_capacity + 2, N_POINTS, n_nodes): see `interpolate`
    cdef Py_ssize_t* pieces_from        # (k_capacity + 2,): the first n of them, 0: none
    cdef bint* off_piece                # (k_capacity + 2, n_nodes)
    # The factors, elsewhere, times sigma, and times r: (k_capacity + 2, n_nodes).
    cdef double* factors_sigma
    cdef double* factors_new
    cdef double* join_k                 # (k_capacity + 2,): average factor to join, but m - sigma
    cdef double* new_k                  # (k_capacity + 2,): and of a new cluster
    # Of each particle: slope (m + offset) to join a cluster of m, and for a new one.
    cdef double* slope
    cdef double* offset
    cdef double* fresh

    def __init__(
        self, Py_ssize_t n_particles, str resampling, double resample_threshold,
        PartitionPrior prior, concentration_prior=None, annealing=None
    ):
        cdef Py_ssize_t n = n_particles
        self.n_particles = n
        self.scheme = RESAMPLING[resampling]
        self.threshold = resample_threshold
        self.prior = prior
        self.concentration_prior = concentration_prior
        if annealing is not None:
            if concentration_prior is not None:
                raise ValueError("annealing needs a fixed concentration")
            self.annealed = True
            self.first_concentration, self.annealing_rate = annealing
        self.two_parameter = isinstance(prior, TwoParameterPrior)
        self.models = []
        self.log_w = <double*>resized(NULL, n, sizeof(double))
        self.tops = <double*>resized(NULL, n, sizeof(double))
        self.totals = <double*>resized(NULL, n, sizeof(double))
        self.weights = <double*>resized(NULL, n, sizeof(double))
        self.slope = <double*>resized(NULL, n, sizeof(double))
        self.offset = <double*>resized(NULL, n, sizeof(double))
        self.fresh = <double*>resized(NULL, n, sizeof(double))
        self.family = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))
        self.n_clusters = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))
        self.choices = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))
        self.origins = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))
        self.alone = <bint*>resized(NULL, n, sizeof(bint))
        self.counts = <Py_ssize_t*>resized(NULL, n, sizeof(Py_ssize_t))

    def __dealloc__(self):
        self.drop_families()
        free(self.families)
        free(self.log_w)
        free(self.tops)
        free(self.totals)
        free(self.weights)
        free(self.slope)
        free(self.offset)
        free(self.fresh)
        free(self.family)
        free(self.n_clusters)
        free(self.choices)
        free(self.origins)
        free(self.alone)
        free(self.counts)
        free(self.slots)
        free(self.children)
        free(self.child_log_w)
        free(self.child_w)
        free(self.child_counts)
        free(self.labels)
        free(self.nodes)
        free(self.log_hyper)
        free(self.sigmas)
        free(self.inverse)
        free(self.ratios)
        free(self.factors)
        free(self.pieces)
        free(self.pieces_from)
        free(self.off_piece)
        free(self.factors_sigma)
        free(self.factors_new)
        free(self.by_k)
        free(self.own)
        free(self.users)
        free(self.known)
        free(self.tabulated)
        free(self.join_k)
        free(self.new_k)

    # Memory: with the lock.

    cdef void drop_families(self) noexcept:
        cdef Py_ssize_t f
        cdef Family* family
        for f in range(self.n_families):
            family = &self.families[f]
            free(family.live)
            free(family.position)
            free(family.refs)
            free(family.stamp)
            free(family.choosers)
            free(family.heir)
            free(family.sizes)
            free(family.by_position)
            free(family.log_p)
            free(family.v)
        self.n_families = 0

    cdef int reserve_slots(self, Family* family, Py_ssize_t n_slots) except -1:
        """Make room for so many slots in a family, the empty one included."""
        cdef Py_ssize_t slot
        cdef ClusterModel model = <ClusterModel>family.model
        model.reserve(n_slots)
        n_slots = model.n_slots
        if n_slots <= family.capacity:
            return 0
        family.live = <Py_ssize_t*>resized(family.live, n_slots + 1, sizeof(Py_ssize_t))
        family.position = <Py_ssize_t*>resized(family.position, n_slots, sizeof(Py_ssize_t))
        family.refs = <Py_ssize_t*>resized(family.refs, n_slots, sizeof(Py_ssize_t))
        family.stamp = <Py_ssize_t*>resized(family.stamp, n_slots, sizeof(Py_ssize_t))
        family.choosers = <Py_ssize_t*>resized(family.choosers, n_slots, sizeof(Py_ssize_t))
        family.heir = <Py_ssize_t*>resized(family.heir, n_slots, sizeof(Py_ssize_t))
        family.sizes = <double*>resized(family.sizes, n_slots, sizeof(double))
        family.by_position = <double*>resized(family.by_position, n_slots + 1, sizeof(double))
        family.log_p = <double*>resized(family.log_p, n_slots, sizeof(double))
        family.v = <double*>resized(family.v, n_slots, sizeof(double))
        for slot in range(family.capacity, n_slots):
            family.refs[slot] = 0
            family.stamp[slot] = -1
        family.capacity = n_slots
        return 0

    cdef int reserve_clusters(self, Py_ssize_t k) except -1:
        """Make room for particles of k clusters, and for the nodes that these need."""
        cdef Py_ssize_t p
        cdef Py_ssize_t capacity = max(self.k_capacity, FEWEST_CLUSTERS)
        cdef int* slots
        while capacity < k:
            capacity *= 2
        if capacity == self.k_capacity:
            return 0
        slots = <int*>resized(NULL, self.n_particles * capacity, sizeof(int))
        for p in range(self.n_current):
            memcpy(
                slots + p * capacity, self.slots + p * self.k_capacity,
                self.n_clusters[p] * sizeof(int)
            )
        free(self.slots)
        self.slots = slots
        self.k_capacity = capacity
        if self.step == 0.0:
            self.step = STEP
        while capacity * self.step * self.step > 1.0:
            self.step *= 0.5
        self.make_nodes()
        return 0

    cdef int make_nodes(self) except -1:
        """Nodes at the current distance, and what they know of the particles, in closed form."""
        cdef Py_ssize_t g, p
        cdef Py_ssize_t n_rows_k = self.k_capacity + 2
        cdef const double[::1] nodes, log_hyper
        if self.concentration_prior is None:
            nodes, log_hyper = np.array([self.concentration_of(self.n_rows)]), np.zeros(1)
        else:
            nodes, log_hyper = concentration_nodes(*self.concentration_prior, self.step)
        self.n_nodes = nodes.shape[0]
        self.nodes = <double*>resized(self.nodes, self.n_nodes, sizeof(double))
        self.log_hyper = <double*>resized(self.log_hyper, self.n_nodes, sizeof(double))
        self.sigmas = <double*>resized(self.sigmas, self.n_nodes, sizeof(double))
        self.inverse = <double*>resized(self.inverse, self.n_nodes, sizeof(double))
        self.common = True
        for g in range(self.n_nodes):
            self.nodes[g] = nodes[g]
            self.log_hyper[g] = log_hyper[g]
            self.sigmas[g] = self.prior.sigma_at(nodes[g])
            self.common = self.common and self.sigmas[g] == self.sigmas[0]
        self.ratios = <double*>resized(self.ratios, n_rows_k * self.n_nodes, sizeof(double))
        if not self.two_parameter:
            self.factors = <double*>resized(self.factors, n_rows_k * self.n_nodes, sizeof(double))
            self.pieces = <double*>resized(
                self.pieces, n_rows_k * N_POINTS * self.n_nodes, sizeof(double)
            )
            self.pieces_from = <Py_ssize_t*>resized(
                self.pieces_from, n_rows_k, sizeof(Py_ssize_t)
            )
            self.off_piece = <bint*>resized(
                self.off_piece, n_rows_k * self.n_nodes, sizeof(bint)
            )
        if self.common:
            self.by_k = <double*>resized(self.by_k, n_rows_k * self.n_nodes, sizeof(double))
        else:
            self.own = <double*>resized(
                self.own, self.n_particles * self.n_nodes, sizeof(double)
            )
            self.factors_sigma = <double*>resized(
                self.factors_sigma, n_rows_k * self.n_nodes, sizeof(double)
            )
            self.factors_new = <double*>resized(
                self.factors_new, n_rows_k * self.n_nodes, sizeof(double)
            )
        self.users = <Py_ssize_t*>resized(self.users, n_rows_k, sizeof(Py_ssize_t))
        self.known = <bint*>resized(self.known, n_rows_k, sizeof(bint))
        self.tabulated = <Py_ssize_t*>resized(self.tabulated, n_rows_k, sizeof(Py_ssize_t))
        self.join_k = <double*>resized(self.join_k, n_rows_k, sizeof(double))
        self.new_k = <double*>resized(self.new_k, n_rows_k, sizeof(double))
        memset(self.users, 0, n_rows_k * sizeof(Py_ssize_t))
        memset(self.known, 0, n_rows_k * sizeof(bint))
        self.forget_averages()
        if not self.common:
            for p in range(self.n_current):
                self.weigh_nodes(p, -1)
        return 0

    cdef int reserve_children(self, Py_ssize_t n_children) except -1:
        if n_children <= self.child_capacity:
            return 0
        n_children *= 2
        self.children = <Child*>resized(self.children, n_children, sizeof(Child))
        self.child_log_w = <double*>resized(self.child_log_w, n_children, sizeof(double))
        self.child_w = <double*>resized(self.child_w, n_children, sizeof(double))
        self.child_counts = <Py_ssize_t*>resized(
            self.child_counts, n_children, sizeof(Py_ssize_t)
        )
        self.child_capacity = n_children
        return 0

    cdef int reserve_labels(self, Py_ssize_t n_labels, bint wide) except -1:
        """Make room for so many labels of each particle."""
        cdef Py_ssize_t m, p
        cdef Py_ssize_t n_kept = self.n_rows - self.n_before
        cdef char* labels
        if n_labels <= self.label_capacity and wide == self.wide:
            return 0
        if n_labels > self.label_capacity:
            n_labels = max(n_labels, self.label_capacity + self.label_capacity // 2)
        labels = <char*>resized(NULL, self.n_particles * n_labels, 4 if wide else 2)
        for p in range(self.n_current):
            for m in range(n_kept):
                if wide:
                    (<unsigned int*>labels)[p * n_labels + m] = self.label(p, m)
                else:
                    (<unsigned short*>labels)[p * n_labels + m] = self.label(p, m)
        free(self.labels)
        self.labels = labels
        self.label_capacity = n_labels
        self.wide = wide
        return 0

    cdef int make_room(self, Py_ssize_t n_new) except -1:
        """Take the memory that one more placement may need, of so many new rows."""
        cdef Py_ssize_t f
        cdef Family* family
        for f in range(self.n_families):
            family = &self.families[f]
            if not self.has_slots(family):
                self.reserve_slots(family, 2 * family.n_live + self.most_born(family) + 2)
        self.reserve_clusters(self.k_most + 1)
        self.reserve_labels(
            self.n_rows - self.n_before + n_new, self.wide or self.k_most >= NARROW
        )
        self.reserve_children(self.most_children(n_new))
        return 0

    cdef Py_ssize_t most_children(self, Py_ssize_t n_new) noexcept nogil:
        """Choices that are listed at a time: of one particle, or all that "optimal" follows."""
        cdef Py_ssize_t p
        cdef Py_ssize_t n_children = self.k_capacity + 1
        if self.scheme == OPTIMAL and n_new > 0:
            for p in range(self.n_current):
                n_children += self.n_clusters[p] + 1
        return n_children

    cdef inline Py_ssize_t most_born(self, Family* family) noexcept nogil:
        """Slots that a row may open in a family: of each chosen one a copy, and a new one."""
        return min(self.n_particles, family.n_live) + 1

    cdef inline bint has_slots(self, Family* family) noexcept nogil:
        return (
            family.n_members == 0
            or (<ClusterModel>family.model).n_free >= self.most_born(family)
            # The kernel may have made room for others.
            and (<ClusterModel>family.model).n_slots <= family.capacity
        )

    cdef bint has_room(self, Py_ssize_t n_new) noexcept nogil:
        cdef Py_ssize_t f
        for f in range(self.n_families):
            if not self.has_slots(&self.families[f]):
                return False
        return (
            self.k_most < self.k_capacity
            and self.n_rows - self.n_before + n_new <= self.label_capacity
            and (self.wide or self.k_most < NARROW)
            and self.most_children(n_new) <= self.child_capacity
        )

    # Particles.

    cdef inline Py_ssize_t label(self, Py_ssize_t p, Py_ssize_t m) noexcept nogil:
        """Label of the m-th row whose label is kept."""
        cdef Py_ssize_t at = p * self.label_capacity + m
        return (<unsigned int*>self.labels)[at] if self.wide else (
            <unsigned short*>self.labels
        )[at]

    cdef inline void set_label(self, Py_ssize_t p, Py_ssize_t m, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t at = p * self.label_capacity + m
        if self.wide:
            (<unsigned int*>self.labels)[at] = <unsigned int>k
        else:
            (<unsigned short*>self.labels)[at] = <unsigned short>k

    cdef void drop(self, Py_ssize_t p) noexcept nogil:
        """A particle lets go of its slots; those that no other shares become free."""
        cdef Py_ssize_t j
        cdef Family* family = &self.families[self.family[p]]
        for j in range(self.n_clusters[p]):
            self.let_go(family, self.slots[p * self.k_capacity + j])
        family.n_members -= 1

    cdef inline void let_go(self, Family* family, Py_ssize_t slot) noexcept nogil:
        cdef Py_ssize_t last
        family.refs[slot] -= 1
        if family.refs[slot] == 0:
            family.n_live -= 1
            last = family.live[family.n_live]
            family.live[family.position[slot]] = last
            family.position[last] = family.position[slot]
            (<ClusterModel>family.model).release(slot)

    cdef void branch(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Another particle becomes a copy, but for its weight and its choice."""
        cdef Py_ssize_t j
        cdef Py_ssize_t width = 4 if self.wide else 2
        cdef Family* family = &self.families[self.family[src]]
        cdef const int* slots = self.slots + src * self.k_capacity
        self.family[dst] = self.family[src]
        self.n_clusters[dst] = self.n_clusters[src]
        self.tops[dst] = self.tops[src]
        self.totals[dst] = self.totals[src]
        self.slope[dst] = self.slope[src]
        self.offset[dst] = self.offset[src]
        self.fresh[dst] = self.fresh[src]
        for j in range(self.n_clusters[src]):
            family.refs[slots[j]] += 1
        memcpy(self.slots + dst * self.k_capacity, slots, self.n_clusters[src] * sizeof(int))
        memcpy(
            self.labels + dst * self.label_capacity * width,
            self.labels + src * self.label_capacity * width,
            (self.n_rows - self.n_before) * width
        )
        if not self.common:
            memcpy(
                self.own + dst * self.n_nodes, self.own + src * self.n_nodes,
                self.n_nodes * sizeof(double)
            )
        family.n_members += 1

    cdef inline Py_ssize_t open_slot(self, Family* family) noexcept nogil:
        """An empty slot that nobody holds yet."""
        cdef Py_ssize_t slot = (<ClusterModel>family.model).acquire()
        family.live[family.n_live] = slot
        family.position[slot] = family.n_live
        family.n_live += 1
        family.refs[slot] = 0
        family.sizes[slot] = 0.0
        return slot

    # The concentration.

    cdef double concentration_of(self, Py_ssize_t n) noexcept nogil:
        """The concentration, where it is fixed, of the prior of n rows."""
        cdef double last = self.prior.concentration
        if not self.annealed:
            return last
        return last + (self.first_concentration - last) * pow(
            1.0 - self.annealing_rate, max(n - 1.0, 0.0)
        )

    cdef void anneal(self) noexcept nogil:
        """Go over to the prior that has one more row. A particle's weight follows the probability
        of its partition, V_{n,k} and, where sigma changes, the factors of its clusters."""
        cdef Py_ssize_t f, j, k, p, slot
        cdef double before = self.nodes[0]
        cdef double after = self.concentration_of(self.n_rows + 1)
        cdef double old_sigma = self.sigmas[0]
        cdef double sigma = self.prior.sigma_at(after)
        cdef double* log_ratio = self.join_k    # by k; filled anew for each row
        cdef Family* family
        if after == before:
            return
        self.count_users()
        for k in range(1, self.k_most + 1):
            if self.users[k] > 0:
                log_ratio[k] = (
                    self.prior.log_v_at(after, self.n_rows, k)
                    - self.prior.log_v_at(before, self.n_rows, k)
                )
            self.known[k] = False
        self.forget_averages()
        for p in range(self.n_current):
            if self.n_clusters[p] > 0:
                self.log_w[p] += log_ratio[self.n_clusters[p]]
        self.nodes[0] = after
        self.sigmas[0] = sigma
        if sigma == old_sigma:
            return
        for f in range(self.n_families):
            family = &self.families[f]
            for j in range(family.n_live):
                slot = family.live[j]
                family.v[slot] = (      # until the row at hand is evaluated
                    log_rising(1.0 - sigma, family.sizes[slot] - 1.0)
                    - log_rising(1.0 - old_sigma, family.sizes[slot] - 1.0)
                )
        for p in range(self.n_current):
            family = &self.families[self.family[p]]
            for j in range(self.n_clusters[p]):
                self.log_w[p] += family.v[self.slots[p * self.k_capacity + j]]

    cdef void weigh_nodes(self, Py_ssize_t p, Py_ssize_t left_out) noexcept nogil:
        """w of a particle, in closed form; without one of its clusters, unless that is -1, but
        with V of all rows."""
        cdef Py_ssize_t g, j
        cdef Py_ssize_t k = self.n_clusters[p] - (left_out >= 0)
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef double* w = self.own + p * self.n_nodes
        for g in range(self.n_nodes):
            w[g] = self.log_hyper[g]
            if k > 0:
                w[g] += self.prior.log_v_at(self.nodes[g], self.n_rows, k)
            for j in range(self.n_clusters[p]):
                if j != left_out:
                    w[g] += log_rising(1.0 - self.sigmas[g], family.sizes[slots[j]] - 1.0)
        self.normalise(w)

    cdef void normalise(self, double* w) noexcept nogil:
        """From logarithms to weights of sum 1."""
        cdef Py_ssize_t g
        cdef double total = 0.0
        _resampling.exponentiate(w, w, self.n_nodes)
        for g in range(self.n_nodes):
            total += w[g]
        for g in range(self.n_nodes):
            w[g] /= total

    cdef void count_users(self) noexcept nogil:
        """Make the vectors of those numbers of clusters that have come into use, in closed form:
        from then on products follow the rows. Forget those that are in use no more."""
        cdef Py_ssize_t k, p
        for k in range(self.k_most + 1):
            self.users[k] = 0
        self.k_most = 0
        for p in range(self.n_current):
            k = self.n_clusters[p]
            self.users[k] += 1
            self.k_most = max(self.k_most, k)
        for k in range(self.k_capacity + 2):
            if k > self.k_most or self.users[k] == 0:
                self.known[k] = False
            elif not self.known[k]:
                self.make_vector(k)

    cdef void make_vector(self, Py_ssize_t k) noexcept nogil:
        cdef Py_ssize_t g
        cdef double* w = self.by_k + k * self.n_nodes
        self.known[k] = True
        if not self.common:
            return
        for g in range(self.n_nodes):
            w[g] = self.log_hyper[g]
            if k > 0:
                w[g] += self.prior.log_v_at(self.nodes[g], self.n_rows, k)
        self.normalise(w)

    cdef void forget_averages(self) noexcept nogil:
        """Of other nodes: see `ratios_at` and `average_ratio`."""
        cdef Py_ssize_t k
        for k in range(self.k_capacity + 2):
            self.tabulated[k] = 0
            self.new_k[k] = -1.0
            if not self.two_parameter:
                self.pieces_from[k] = 0

    cdef const double* ratios_at(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """r = V_{n,k+1} / V_{n,k} at all nodes."""
        cdef Py_ssize_t g
        if self.two_parameter:
            n = 1       # whatever it is
        if self.tabulated[k] != n:
            self.tabulated[k] = n
            if self.two_parameter or n < FIRST_PIECE or self.n_nodes == 1:
                for g in range(self.n_nodes):
                    self.ratios[k * self.n_nodes + g] = exp(
                        self.prior.log_new_weight(self.nodes[g], n, k)
                    )
            else:
                self.interpolate(n, k)
        return self.ratios + k * self.n_nodes

    cdef void interpolate(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil:
        """`ratios_at` from polynomials in n, through log r at some points; each serves until n has
        grown by a half. They depend on the node, n and k alone: not on the rows before."""
        cdef Py_ssize_t g, j
        cdef Py_ssize_t n_nodes = self.n_nodes
        cdef Py_ssize_t first = FIRST_PIECE
        cdef double* table = self.pieces + k * N_POINTS * n_nodes
        cdef double* r = self.ratios + k * n_nodes
        cdef bint* off = self.off_piece + k * n_nodes
        cdef Py_ssize_t points[N_POINTS]
        cdef double by[N_POINTS]
        cdef double top = -INFINITY
        cdef double total
        cdef Py_ssize_t i, m
        while first + first // 2 <= n:      # ends: it grows by a half
            first += first // 2
        for j in range(N_POINTS):
            # Dense towards both ends (Chebyshev).
            points[j] = first + <Py_ssize_t>(
                0.5 * (first // 2 - 1) * (1.0 - cos(PI * j / (N_POINTS - 1))) + 0.5
            )
        if self.pieces_from[k] != first:
            self.pieces_from[k] = first
            for g in range(n_nodes):
                off[g] = False
                for j in range(N_POINTS):
                    table[j * n_nodes + g] = self.prior.log_new_weight(
                        self.nodes[g], points[j], k
                    )
            for i in range(2):
                m = 1 + i * (N_POINTS // 2 - 1)     # near an end, and in the middle
                lagrange(points, (points[m] + points[m + 1]) // 2, by)
                for g in range(n_nodes):
                    total = 0.0
                    for j in range(N_POINTS):
                        total += by[j] * table[j * n_nodes + g]
                    total -= self.prior.log_new_weight(
                        self.nodes[g], (points[m] + points[m + 1]) // 2, k
                    )
                    off[g] |= not fabs(total) <= PIECE_ERROR
        lagrange(points, n, by)
        tile_combine(table, by, N_POINTS, n_nodes, r)
        for g in range(n_nodes):
            if off[g]:
                r[g] = self.prior.log_new_weight(self.nodes[g], n, k)
            if not r[g] <= top:
                top = r[g]
        if top == -INFINITY:
            top = 0.0
        for g in range(n_nodes):
            r[g] -= top
        tile_exp(r, n_nodes)
        top = exp(top)
        for g in range(n_nodes):
            r[g] *= top

    cdef inline const double* factors_of(self, Py_ssize_t k) noexcept nogil:
        return self.inverse if self.two_parameter else self.factors + k * self.n_nodes

    cdef void weigh_prior(self) noexcept nogil:
        """Average factors of every choice of the next row."""
        cdef Py_ssize_t g, k, p
        cdef Py_ssize_t m = self.n_rows
        cdef Py_ssize_t n_nodes = self.n_nodes
        cdef double s_join, s_new, a
        cdef double sums[3]
        cdef const double* w
        cdef const double* r
        cdef const double* factors
        self.count_users()
        for g in range(n_nodes):
            self.inverse[g] = 1.0 / (m + self.nodes[g])
        for k in range(1, self.k_most + 1):
            if self.users[k] == 0:
                continue
            r = self.ratios_at(m + 1, k)
            if not self.two_parameter:
                for g in range(n_nodes):
                    self.factors[k * n_nodes + g] = 1.0 / (m - self.sigmas[g] * k + r[g])
            if not self.common:
                factors = self.factors_of(k)
                for g in range(n_nodes):
                    self.factors_sigma[k * n_nodes + g] = factors[g] * self.sigmas[g]
                    self.factors_new[k * n_nodes + g] = factors[g] * r[g]
        if self.common:
            for k in range(1, self.k_most + 1):
                if self.users[k] == 0:
                    continue
                w = self.by_k + k * n_nodes
                r = self.ratios + k * n_nodes
                factors = self.factors_of(k)
                s_join = s_new = 0.0
                for g in range(n_nodes):
                    a = w[g] * factors[g]
                    s_join += a
                    s_new += a * r[g]
                self.join_k[k] = s_join
                self.new_k[k] = s_new
        for p in range(self.n_current):
            k = self.n_clusters[p]
            if k == 0:      # the first row
                self.slope[p] = 0.0
                self.offset[p] = 0.0
                self.fresh[p] = 1.0
            elif self.common:
                self.slope[p] = self.join_k[k]
                self.offset[p] = -self.sigmas[0]
                self.fresh[p] = self.new_k[k]
            else:
                tile_averages(
                    self.own + p * n_nodes, self.factors_of(k), self.factors_sigma + k * n_nodes,
                    self.factors_new + k * n_nodes, n_nodes, sums
                )
                self.slope[p] = sums[0]
                self.offset[p] = -sums[1] / sums[0]
                self.fresh[p] = sums[2]

    cdef void follow_vectors(self) noexcept nogil:
        """Of each vector: the own factor of each node, now that the row has joined a cluster. A
        particle to which it is a new one goes over to another vector."""
        cdef Py_ssize_t g, k
        cdef double* w
        cdef const double* factors
        if not self.common or self.n_rows == 0 or self.n_nodes == 1:
            return
        for k in range(1, self.k_most + 1):
            if self.users[k] == 0:
                continue
            w = self.by_k + k * self.n_nodes
            factors = self.factors_of(k)
            for g in range(self.n_nodes):
                w[g] *= factors[g] / self.join_k[k]

    cdef void follow_particle(self, Py_ssize_t p, double size) noexcept nogil:
        """The same of one particle, whose row has joined a cluster of `size` others."""
        cdef Py_ssize_t g
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef double* w = self.own + p * self.n_nodes
        cdef const double* new = self.factors_new + k * self.n_nodes
        if k == 0:
            return
        if size > 0.0:
            tile_multiply(
                w, self.factors_of(k), self.factors_sigma + k * self.n_nodes, size,
                1.0 / (self.slope[p] * (size + self.offset[p])), self.n_nodes
            )
        else:
            for g in range(self.n_nodes):
                w[g] *= new[g] / self.fresh[p]

    # A row.

    cdef void evaluate(self, Py_ssize_t i) noexcept nogil:
        """The density of row i in all clusters."""
        cdef Py_ssize_t f, j, slot
        cdef double top = -INFINITY
        cdef double sigma = self.sigmas[0]
        cdef Family* family
        for f in range(self.n_families):
            family = &self.families[f]
            if family.n_members == 0:
                continue
            family.live[family.n_live] = family.empty
            (<ClusterModel>family.model).log_predictive_many(
                family.live, family.n_live + 1, i, family.by_position
            )
            self.work += family.n_live + 1
            for j in range(family.n_live + 1):
                if not (family.by_position[j] <= top):
                    top = family.by_position[j]
        for f in range(self.n_families):
            family = &self.families[f]
            if family.n_members == 0:
                continue
            for j in range(family.n_live):
                family.log_p[family.live[j]] = family.by_position[j]
            family.log_p_new = family.by_position[family.n_live]
            for j in range(family.n_live + 1):
                family.by_position[j] -= top
            tile_exp(family.by_position, family.n_live + 1)
            for j in range(family.n_live):
                slot = family.live[j]
                family.v[slot] = family.by_position[j]
                if self.common:
                    family.v[slot] *= family.sizes[slot] - sigma
            family.v_new = family.by_position[family.n_live]
        self.top = top

    cdef double list_terms(self, Py_ssize_t p, double top, double* terms) noexcept nogil:
        """Terms of all choices, exp(-top) times, (n_clusters + 1,). Returns their sum."""
        cdef Py_ssize_t j
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef double total = 0.0
        if top == self.top and self.common:
            for j in range(k):
                terms[j] = self.slope[p] * family.v[slots[j]]
                total += terms[j]
            terms[k] = family.v_new * self.fresh[p]
            return total + terms[k]
        for j in range(k):
            terms[j] = family.log_p[slots[j]] - top
        terms[k] = family.log_p_new - top
        tile_exp(terms, k + 1)
        for j in range(k):
            terms[j] *= self.slope[p] * (family.sizes[slots[j]] + self.offset[p])
            total += terms[j]
        terms[k] *= self.fresh[p]
        return total + terms[k]

    cdef double top_of(self, Py_ssize_t p, Py_ssize_t without) noexcept nogil:
        """The best log density of the row among the choices of a particle, one left out unless it
        is -1."""
        cdef Py_ssize_t j
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef double top = family.log_p_new if self.fresh[p] > 0.0 else -INFINITY
        for j in range(self.n_clusters[p]):
            if j != without and family.log_p[slots[j]] > top:
                top = family.log_p[slots[j]]
        return top

    cdef inline Py_ssize_t pick(self, const double* terms, Py_ssize_t k, double u) noexcept nogil:
        """The choice, of k clusters and a new one, that u falls on, which is below the sum of the
        terms; the new one comes first."""
        cdef Py_ssize_t j
        u -= terms[k]
        if u < 0.0:
            return k
        for j in range(k):
            u -= terms[j]
            if u < 0.0:
                return j
        # Rounding may leave u at 0: never a choice of weight zero.
        j = k
        while j > 0 and terms[j] == 0.0:
            j -= 1
        return j

    cdef bint weigh(self, Py_ssize_t p) noexcept nogil:
        """Multiply a particle's weight by the sum of its terms. False where that is no positive
        number."""
        cdef Py_ssize_t j
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef const double* v = family.v
        cdef double total = 0.0
        cdef double offset = self.offset[p]
        if self.common:
            for j in range(k):
                total += v[slots[j]]
        else:
            for j in range(k):
                total += v[slots[j]] * (family.sizes[slots[j]] + offset)
        total = total * self.slope[p] + family.v_new * self.fresh[p]
        self.tops[p] = self.top
        if total < FAINT:
            # A row may be an outlier to this particle, and none to others.
            self.tops[p] = self.top_of(p, -1)
            if self.tops[p] == -INFINITY:
                return False
            total = self.list_terms(p, self.tops[p], self.child_w)
        if not (0.0 < total < INFINITY):
            return False
        self.totals[p] = total
        self.log_w[p] += self.tops[p] + log(total)
        return True

    cdef Py_ssize_t draw(self, Py_ssize_t p, bitgen_t* rng) noexcept nogil:
        """The cluster that the row joins in a particle. Uses one uniform number."""
        cdef Py_ssize_t j
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef const double* v = family.v
        cdef double u = uniform(rng) * self.totals[p]
        if self.tops[p] != self.top or not self.common:
            self.list_terms(p, self.tops[p], self.child_w)
            return self.pick(self.child_w, k, u)
        u -= family.v_new * self.fresh[p]
        if u < 0.0:
            return k
        u /= self.slope[p]
        for j in range(k):
            u -= v[slots[j]]
            if u < 0.0:
                return j
        j = k - 1       # as in `pick`
        while j > 0 and v[slots[j]] == 0.0:
            j -= 1
        return j

    cdef int place(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil:
        """Row i of the kernels is the next row."""
        cdef Py_ssize_t p
        if not self.has_room(1):
            with gil:
                self.make_room(1)
        self.row_at_hand = i
        if self.annealed:
            self.anneal()
        self.evaluate(i)
        self.weigh_prior()
        for p in range(self.n_current):
            if not self.weigh(p):
                with gil:
                    raise FloatingPointError(f"row {i}: no cluster has a positive weight")
        if self.scheme != OPTIMAL:
            if self.is_degenerate():
                self.resample(rng)
            self.draw_all(rng)
        elif not self.follow_children(rng):
            with gil:
                raise FloatingPointError(f"row {i}: the weights are no distribution")
        self.follow_vectors()
        self.grow(i)
        self.n_rows += 1
        return 0

    cdef double sample_size(self) noexcept nogil:
        """Effective sample size."""
        cdef Py_ssize_t p
        cdef double total = 0.0
        cdef double squares = 0.0
        _resampling.exponentiate(self.log_w, self.weights, self.n_current)
        for p in range(self.n_current):
            total += self.weights[p]
            squares += self.weights[p] * self.weights[p]
        return total * total / squares

    cdef inline bint is_degenerate(self) noexcept nogil:
        """Equal weights are not, whatever the rounding."""
        return self.sample_size() < self.threshold * self.n_current * (1.0 - 1e-9)

    cdef double log_total(self) noexcept nogil:
        """log of the sum of the weights, which are then in `weights`, relative to the largest."""
        cdef Py_ssize_t p
        cdef double total = 0.0
        cdef double top = _resampling.exponentiate(self.log_w, self.weights, self.n_current)
        for p in range(self.n_current):
            total += self.weights[p]
        return top + log(total)

    cdef void resample(self, bitgen_t* rng) noexcept nogil:
        """As many particles again, all of the mean weight. Those that survive stay where they
        are."""
        cdef Py_ssize_t p, _copy
        cdef Py_ssize_t place = 0
        cdef Py_ssize_t n = self.n_current
        cdef double log_mean = self.log_total() - log(<double>n)
        _resampling.resample_freely(rng, self.scheme, self.weights, self.counts, n)
        for p in range(n):
            self.log_w[p] = log_mean
            if self.counts[p] == 0:
                self.drop(p)
        for p in range(n):
            for _copy in range(self.counts[p] - 1):
                while self.counts[place] > 0:       # ends: there are as many places as copies
                    place += 1
                self.branch(place, p)
                place += 1
        self.n_resampled += 1

    cdef void draw_all(self, bitgen_t* rng) noexcept nogil:
        cdef Py_ssize_t p
        for p in range(self.n_current):
            self.choices[p] = self.draw(p, rng)

    cdef bint follow_children(self, bitgen_t* rng) noexcept nogil:
        """All choices of all particles become particles, or as many as there may be; where there
        are as many already, of even weights, each draws one. False where their weights are no
        distribution."""
        cdef Py_ssize_t c, j, p, place
        cdef Py_ssize_t n_children = 0
        cdef Py_ssize_t n = self.n_current
        cdef double* terms = self.child_w
        cdef double log_scale
        if n == self.n_particles and not self.is_degenerate():
            self.draw_all(rng)
            return True
        for p in range(n):
            self.list_terms(p, self.tops[p], terms)
            log_scale = self.log_w[p] - log(self.totals[p])
            for j in range(self.n_clusters[p] + 1):
                if terms[j] > 0.0:
                    self.child_log_w[n_children] = log_scale + log(terms[j])
                    self.children[n_children].parent = p
                    self.children[n_children].choice = j
                    n_children += 1
        if n_children <= self.n_particles:
            for c in range(n_children):
                self.child_counts[c] = 1
        else:
            if not _resampling.thin_exactly(
                rng, self.child_log_w, self.child_counts, self.child_w, n_children,
                self.n_particles
            ):
                return False
            self.n_resampled += 1
        for p in range(n):
            self.counts[p] = 0
        for c in range(n_children):
            self.counts[self.children[c].parent] += self.child_counts[c]
        for p in range(n):
            if self.counts[p] == 0:
                self.drop(p)
        # The first child takes its parent's place, others one that is free.
        place = 0
        for c in range(n_children):
            if self.child_counts[c] == 0:
                continue
            p = self.children[c].parent
            if self.counts[p] > 0:
                self.counts[p] = -1
                j = p
            else:
                while place < n and self.counts[place] != 0:
                    place += 1
                j = place
                place += 1
                self.branch(j, p)
            self.choices[j] = self.children[c].choice
            self.log_w[j] = self.child_log_w[c]
        self.n_current = max(n, place)
        return True

    cdef void grow(self, Py_ssize_t i) noexcept nogil:
        """The row joins the cluster that each particle has chosen."""
        cdef Py_ssize_t j, p, slot
        cdef Family* family
        self.tick += 1
        for p in range(self.n_current):
            family = &self.families[self.family[p]]
            j = self.choices[p]
            if j == self.n_clusters[p]:
                if not self.common:
                    self.follow_particle(p, 0.0)
                continue
            slot = self.slots[p * self.k_capacity + j]
            if not self.common:
                self.follow_particle(p, family.sizes[slot])
            self.count_chooser(family, slot)
        for p in range(self.n_current):
            self.set_label(p, self.n_rows - self.n_before, self.choices[p])
            self.enter(p, self.choices[p], i)

    cdef inline void count_chooser(self, Family* family, Py_ssize_t slot) noexcept nogil:
        if family.stamp[slot] != self.tick:
            family.stamp[slot] = self.tick
            family.choosers[slot] = 0
            family.heir[slot] = -1
        family.choosers[slot] += 1

    cdef inline void enter(self, Py_ssize_t p, Py_ssize_t j, Py_ssize_t i) noexcept nogil:
        """The row joins cluster j of a particle, or a new one; choosers have been counted."""
        cdef Py_ssize_t heir, slot
        cdef Family* family = &self.families[self.family[p]]
        cdef int* slots = self.slots + p * self.k_capacity
        if j == self.n_clusters[p]:
            self.enter_newborn(p, j, i)
            self.n_clusters[p] += 1
            self.k_most = max(self.k_most, self.n_clusters[p])
            return
        slot = slots[j]
        heir = family.heir[slot]
        if heir < 0:
            heir = slot
            if family.choosers[slot] < family.refs[slot]:
                heir = self.open_slot(family)
                (<ClusterModel>family.model).copy(heir, slot)
                family.sizes[heir] = family.sizes[slot]
            self.join(family, heir, i)
            family.heir[slot] = heir
        if heir != slot:
            family.refs[slot] -= 1
            family.refs[heir] += 1
            slots[j] = <int>heir

    cdef inline void enter_newborn(self, Py_ssize_t p, Py_ssize_t j, Py_ssize_t i) noexcept nogil:
        """The row alone becomes cluster j of a particle."""
        cdef Family* family = &self.families[self.family[p]]
        if family.born != self.tick:
            family.born = self.tick
            family.newborn = self.open_slot(family)
            self.join(family, family.newborn, i)
        self.slots[p * self.k_capacity + j] = <int>family.newborn
        family.refs[family.newborn] += 1

    cdef inline void join(self, Family* family, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        (<ClusterModel>family.model).add(slot, i)
        family.sizes[slot] += 1.0
        self.work += 1

    # Old rows.

    cdef int move_block(self, Py_ssize_t n_block, bitgen_t* rng) except -1 nogil:
        """Draw the rows of the active block anew, one after the other. It ends before the newest
        row; one that gets there is the last of a cycle."""
        cdef Py_ssize_t i, k, p
        cdef Py_ssize_t n_old = self.n_rows - 1
        cdef Py_ssize_t stop = min(self.block_start + n_block, n_old)
        self.count_users()
        for k in range(self.k_capacity + 2):
            self.new_k[k] = -1.0        # not known, see `average_ratio`
        for i in range(self.block_start, stop):
            if not self.has_room(0):
                with gil:
                    self.make_room(0)
            self.row_at_hand = i
            self.detach(i)
            self.evaluate(i)
            for p in range(self.n_current):
                if not self.redraw(p, rng):
                    with gil:
                        raise FloatingPointError(f"row {i}: no cluster has a positive weight")
            self.reattach(i)
        self.block_start = stop if stop < n_old else 0
        return 0

    cdef void detach(self, Py_ssize_t i) noexcept nogil:
        """An old row leaves its cluster in all particles. One that is nothing else stays, but is
        no choice."""
        cdef Py_ssize_t p, slot
        cdef Family* family
        self.tick += 1
        for p in range(self.n_current):
            family = &self.families[self.family[p]]
            self.origins[p] = self.label(p, i)
            slot = self.slots[p * self.k_capacity + self.origins[p]]
            if family.stamp[slot] != self.tick:
                family.stamp[slot] = self.tick
                family.choosers[slot] = 0
                family.heir[slot] = ALONE if family.sizes[slot] == 1.0 else -1
                if family.heir[slot] != ALONE:
                    (<ClusterModel>family.model).remove(slot, i)
                    family.sizes[slot] -= 1.0
                    self.work += 1
            self.alone[p] = family.heir[slot] == ALONE

    cdef double average_ratio(self, Py_ssize_t k) noexcept nogil:
        """r of all rows over the nodes' law given k clusters, where sigma is common: then a new
        cluster weighs this much for an old row, the others in k, and another one m - sigma."""
        cdef Py_ssize_t g
        cdef const double* r
        cdef const double* w = self.by_k + k * self.n_nodes
        if self.new_k[k] < 0.0:
            if not self.known[k]:
                self.make_vector(k)
            r = self.ratios_at(self.n_rows, k)
            self.new_k[k] = 0.0
            for g in range(self.n_nodes):
                self.new_k[k] += w[g] * r[g]
        return self.new_k[k]

    cdef void take_out(self, Py_ssize_t p) noexcept nogil:
        """w of a particle without the factor of the row at hand, where each has its own, and the
        averages of every choice."""
        cdef Py_ssize_t g, k
        cdef double s_join = 0.0
        cdef double s_new = 0.0
        cdef double s_sigma = 0.0
        cdef double size
        cdef double* w = self.own + p * self.n_nodes
        cdef const double* r
        if self.alone[p]:
            # A product would not come back from underflow.
            k = self.n_clusters[p] - 1
            self.weigh_nodes(p, self.origins[p])
        else:
            k = self.n_clusters[p]
            size = self.families[self.family[p]].sizes[
                self.slots[p * self.k_capacity + self.origins[p]]
            ]
            for g in range(self.n_nodes):
                w[g] /= size - self.sigmas[g]
        r = self.ratios_at(self.n_rows, k)
        for g in range(self.n_nodes):
            s_join += w[g]
            s_sigma -= w[g] * self.sigmas[g]
            s_new += w[g] * r[g]
        self.slope[p] = s_join
        self.offset[p] = s_sigma / s_join
        self.fresh[p] = s_new

    cdef void put_back(self, Py_ssize_t p, Py_ssize_t j) noexcept nogil:
        """The same with the factor of the row's new cluster."""
        cdef Py_ssize_t g
        cdef double size, scale
        cdef double* w = self.own + p * self.n_nodes
        cdef const double* r
        if j < self.n_clusters[p]:
            size = self.families[self.family[p]].sizes[self.slots[p * self.k_capacity + j]]
            scale = 1.0 / (self.slope[p] * (size + self.offset[p]))
            for g in range(self.n_nodes):
                w[g] *= (size - self.sigmas[g]) * scale
        else:
            r = self.ratios_at(self.n_rows, self.n_clusters[p] - self.alone[p])
            scale = 1.0 / self.fresh[p]
            for g in range(self.n_nodes):
                w[g] *= r[g] * scale

    cdef inline double sum_without(
        self, double* terms, Py_ssize_t n, Py_ssize_t without
    ) noexcept nogil:
        cdef Py_ssize_t j
        cdef double total = 0.0
        if without >= 0:
            terms[without] = 0.0
        for j in range(n):
            total += terms[j]
        return total

    cdef bint redraw(self, Py_ssize_t p, bitgen_t* rng) noexcept nogil:
        """Draw the cluster of an old row given all other rows. Uses one uniform number. False
        where no choice has a positive weight."""
        cdef Py_ssize_t j
        cdef Py_ssize_t k = self.n_clusters[p]
        cdef Py_ssize_t without = self.origins[p] if self.alone[p] else -1
        cdef Family* family = &self.families[self.family[p]]
        cdef const int* slots = self.slots + p * self.k_capacity
        cdef double* terms = self.child_w
        cdef double total
        if self.common:
            self.slope[p] = 1.0
            self.offset[p] = -self.sigmas[0]
            self.fresh[p] = self.average_ratio(k - self.alone[p])
            for j in range(k):
                terms[j] = family.v[slots[j]]
            terms[k] = family.v_new * self.fresh[p]
        else:
            self.take_out(p)
            self.list_terms(p, self.top, terms)
        total = self.sum_without(terms, k + 1, without)
        if total < FAINT:
            self.list_terms(p, self.top_of(p, without), terms)
            total = self.sum_without(terms, k + 1, without)
        if not (0.0 < total < INFINITY):
            return False
        self.choices[p] = self.pick(terms, k, uniform(rng) * total)
        if not self.common:
            self.put_back(p, self.choices[p])
        return True

    cdef void reattach(self, Py_ssize_t i) noexcept nogil:
        """The old row joins the cluster that each particle has chosen."""
        cdef Py_ssize_t j, p
        for p in range(self.n_current):
            j = self.choices[p]
            if j < self.n_clusters[p]:
                self.count_chooser(
                    &self.families[self.family[p]], self.slots[p * self.k_capacity + j]
                )
        for p in range(self.n_current):
            j = self.choices[p]
            if self.alone[p]:
                self.let_go(
                    &self.families[self.family[p]],
                    self.slots[p * self.k_capacity + self.origins[p]]
                )
                if j == self.n_clusters[p]:     # alone again
                    self.enter_newborn(p, self.origins[p], i)
                    continue
                j = self.close(p, self.origins[p], j)
            self.set_label(p, i, j)
            self.enter(p, j, i)

    cdef Py_ssize_t close(self, Py_ssize_t p, Py_ssize_t place, Py_ssize_t j) noexcept nogil:
        """The last cluster of a particle comes into the place of one that is empty. Returns the
        number that cluster j has then."""
        cdef Py_ssize_t m
        cdef Py_ssize_t last = self.n_clusters[p] - 1
        cdef int* slots = self.slots + p * self.k_capacity
        self.n_clusters[p] = last
        if place == last:
            return j
        slots[place] = slots[last]
        for m in range(self.n_rows - self.n_before):
            if self.label(p, m) == last:
                self.set_label(p, m, place)
        return place if j == last else j

    # The Python boundary.

    def begin(self, models):
        """Start without rows.

        Parameters
        ----------
        models : list of ClusterModel
            One, for all particles, or one for each.
        """
        cdef Py_ssize_t n = self.n_particles
        if len(models) == 1 and self.scheme == OPTIMAL:
            n = 1       # its choices are followed
        self.set_state(models, {
            "n_rows": 0,
            "n_resampled": 0,
            "block_start": 0,
            "log_w": np.full(n, -np.log(n)),
            "family": np.arange(n) if len(models) > 1 else np.zeros(n, np.intp),
            "slots": [np.empty(0, np.intp)] * n,
            "stats": [np.empty((0, model.n_stats)) for model in models],
            "labels": np.empty((n, 0), np.intp),
        })

    def run(
        self, bit_generator, Py_ssize_t first, Py_ssize_t stop, Py_ssize_t active_block=0
    ):
        """Take the rows first, ..., stop - 1 of the kernels.

        Parameters
        ----------
        bit_generator : numpy BitGenerator
        first, stop : int
        active_block : int
            Old rows that are drawn anew after each row. The kernels must have them all.

        Raises
        ------
        FloatingPointError
            Naming the row that no cluster can explain.
        """
        cdef Py_ssize_t i
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        for model in self.models:
            if not 0 <= first <= stop <= model.n_samples:
                raise IndexError(f"rows {first}:{stop} of {model.n_samples}")
        if active_block > 0 and (first != self.n_rows or self.n_before > 0):
            raise ValueError("an active block needs the labels of all rows")
        self.reserve_labels(self.n_rows - self.n_before + stop - first, self.wide)
        with bit_generator.lock, nogil:
            for i in range(first, stop):
                self.place(i, rng)
                if active_block > 0:
                    self.move_block(active_block, rng)

    def expect(self, Py_ssize_t n_rows):
        """Take memory for the labels of so many rows, all those so far included."""
        self.reserve_labels(n_rows - self.n_before, self.wide)

    @property
    def log_evidence(self):
        """log of the sum of the final weights: of the estimate of p(rows so far)."""
        return float(logsumexp(self.final_log_weights())) if self.annealed else self.log_total()

    @property
    def effective_sample_size(self):
        """Of the final weights."""
        if not self.annealed:
            return self.sample_size()
        log_w = self.final_log_weights()
        return float(np.exp(2.0 * logsumexp(log_w) - logsumexp(2.0 * log_w)))

    @property
    def concentration(self):
        """Of the prior that the weights are of; None where it is integrated out."""
        return self.concentration_of(self.n_rows) if self.concentration_prior is None else None

    def log_weights(self):
        """Unnormalised, those that go on: ndarray of shape (n_current,)."""
        return np.array([self.log_w[p] for p in range(self.n_current)])

    def final_log_weights(self):
        """Unnormalised, of the prior as it is without annealing: ndarray of shape (n_current,)."""
        log_w = self.log_weights()
        return log_w + self.log_ratios([self.prior.concentration])[0] if self.annealed else log_w

    def labels_of(self, Py_ssize_t p):
        """Labels of the rows whose labels are kept, in a particle: ndarray, positions of clusters
        in `sizes_of` and `stats_of`."""
        cdef Py_ssize_t m
        self._check_particle(p)
        labels = np.empty(self.n_rows - self.n_before, dtype=np.intp)
        cdef Py_ssize_t[::1] view = labels
        for m in range(view.shape[0]):
            view[m] = self.label(p, m)
        return labels

    def all_labels(self):
        """The same of all particles, in as many bits as they are kept: ndarray of shape
        (n_current, n_kept)."""
        cdef Py_ssize_t p
        cdef Py_ssize_t width = 4 if self.wide else 2
        cdef Py_ssize_t n_kept = self.n_rows - self.n_before
        labels = np.empty((self.n_current, n_kept), np.uint32 if self.wide else np.uint16)
        cdef unsigned char[:, ::1] view = labels.view(np.uint8)
        if n_kept > 0:
            for p in range(self.n_current):
                memcpy(
                    &view[p, 0], self.labels + p * self.label_capacity * width, n_kept * width
                )
        return labels

    def sizes_of(self, Py_ssize_t p):
        """Items of the clusters of a particle, (n_clusters,)."""
        cdef Py_ssize_t j
        self._check_particle(p)
        cdef Family* family = &self.families[self.family[p]]
        return np.array(
            [family.sizes[self.slots[p * self.k_capacity + j]] for j in range(self.n_clusters[p])],
            dtype=np.intp,
        )

    def slots_of(self, Py_ssize_t p):
        """Slots of the clusters of a particle in the kernel of its family, (n_clusters,)."""
        cdef Py_ssize_t j
        self._check_particle(p)
        return np.array(
            [self.slots[p * self.k_capacity + j] for j in range(self.n_clusters[p])],
            dtype=np.intp,
        )

    def family_of(self, Py_ssize_t p):
        """Number of the family of a particle, an index of `models`."""
        self._check_particle(p)
        return self.family[p]

    def stats_of(self, Py_ssize_t p):
        """Statistics of the clusters of a particle, (n_clusters, n_stats)."""
        return self.models[self.family_of(p)].dump(self.slots_of(p))

    def log_ratios(self, concentrations):
        """log p(partition | concentration) of every particle, less the same as it was weighed
        with: (len(concentrations), n_current)."""
        cdef Py_ssize_t g
        sizes = [self.sizes_of(p) for p in range(self.n_current)]
        nodes = np.array([self.nodes[g] for g in range(self.n_nodes)])
        log_hyper = np.array([self.log_hyper[g] for g in range(self.n_nodes)])
        return log_ratios(self.prior, sizes, concentrations, nodes, log_hyper)

    def log_evidence_at(self, concentrations):
        """log of the estimate of p(rows so far | concentration), for each of some concentrations:
        (len(concentrations),). The particles are those of one concentration, or of none, weighed
        anew: the further away, the noisier."""
        return logsumexp(self.log_weights() + self.log_ratios(concentrations), axis=1)

    def log_joint_of(self, Py_ssize_t p, PartitionPrior prior):
        """log p(partition) + log p(rows so far | partition) of a particle, at the concentration of
        a prior, without its tables."""
        cdef Py_ssize_t j
        cdef double total
        self._check_particle(p)
        cdef Family* family = &self.families[self.family[p]]
        cdef ClusterModel model = <ClusterModel>family.model
        cdef const Py_ssize_t[::1] slots = self.slots_of(p)
        model.settle()
        total = prior.log_probability(self.sizes_of(p))
        for j in range(slots.shape[0]):
            total += model.log_marginal(slots[j])
        return total

    def concentration_weights(self, Py_ssize_t p):
        """Law of the concentration given the partition of a particle.

        Returns
        -------
        nodes, weights : ndarray of shape (n_nodes,)
        """
        cdef Py_ssize_t g
        cdef const double* w
        self._check_particle(p)
        w = self.node_weights(p)
        return (
            np.array([self.nodes[g] for g in range(self.n_nodes)]),
            np.array([w[g] for g in range(self.n_nodes)]),
        )

    def draw_concentration(self, Py_ssize_t p, bit_generator):
        """Draw one of the nodes by that law. Uses one uniform number."""
        cdef Py_ssize_t g
        cdef const double* w
        cdef double u, total = 0.0
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self._check_particle(p)
        w = self.node_weights(p)
        for g in range(self.n_nodes):
            total += w[g]
        with bit_generator.lock:
            u = uniform(rng) * total
        g = 0
        while g < self.n_nodes - 1 and u >= w[g]:       # ends at the last node
            u -= w[g]
            g += 1
        return self.nodes[g]

    cdef const double* node_weights(self, Py_ssize_t p) noexcept nogil:
        self.count_users()
        if self.common:
            return self.by_k + self.n_clusters[p] * self.n_nodes
        return self.own + p * self.n_nodes

    def lend(self, Py_ssize_t p, MixtureState state, order=None):
        """Let a state have the partition of a particle: a copy of its clusters.

        Parameters
        ----------
        p : int
        state : MixtureState
            Of as many items as there are rows, all of whose labels are kept. Its kernel takes over
            the hyperparameters.
        order : ndarray of shape (n_rows,), intp, optional
            The state's number of each row. Default: 0, 1, ...
        """
        cdef const Py_ssize_t[::1] items
        cdef const Py_ssize_t* first = NULL
        self._check_state(p, state)
        if order is not None:
            items = order
            if items.shape[0] != self.n_rows:
                raise ValueError(f"an order of {items.shape[0]} items, not {self.n_rows}")
            first = &items[0]
        state.adopt(
            <ClusterModel>self.families[self.family[p]].model, self.slots + p * self.k_capacity,
            self.n_clusters[p],
            self.labels + p * self.label_capacity * (4 if self.wide else 2), self.wide, first
        )

    def take(self, Py_ssize_t p, MixtureState state):
        """Replace a particle by the partition of a state, under its hyperparameters: clusters of
        its own, a family of its own where there are several. `renew` is to follow.

        Parameters
        ----------
        p : int
        state : MixtureState
            As for `lend`, in the order of the rows.
        """
        cdef Py_ssize_t f, k, m, slot
        cdef Py_ssize_t n_clusters = state.n_clusters
        cdef Family* family
        cdef ClusterModel model
        self._check_state(p, state)
        f = self.family[p]
        if self.n_families > 1 and self.families[f].n_members > 1:
            # The others stay with their hyperparameters.
            f = 0
            while f < self.n_families and self.families[f].n_members > 0:
                f += 1
            if f == self.n_families:
                raise ValueError(f"{self.n_families} families for {self.n_current} particles")
        self.reserve_clusters(n_clusters + 1)
        self.reserve_labels(self.n_rows - self.n_before, self.wide or n_clusters >= NARROW)
        self.drop(p)
        self.family[p] = f
        family = &self.families[f]
        model = <ClusterModel>family.model
        if family.n_members == 0:
            model.set_hyperparameters(state.model.hyperparameters())
            model.reset(family.empty)
        if model.n_free < n_clusters:
            self.reserve_slots(family, 2 * family.n_live + n_clusters + 2)
        state.model.settle()
        for k in range(n_clusters):
            slot = self.open_slot(family)
            memcpy(
                row(model, slot), row(state.model, state.slots[k]), model.width * sizeof(double)
            )
            family.sizes[slot] = state.sizes[state.slots[k]]
            family.refs[slot] = 1
            self.slots[p * self.k_capacity + k] = <int>slot
        family.n_members += 1
        self.n_clusters[p] = n_clusters
        self.k_most = max(self.k_most, n_clusters)
        with nogil:
            for m in range(self.n_rows):
                self.set_label(p, m, state.position[state.labels[m]])

    def renew(self):
        """Laws of the concentration in closed form again: once particles have been replaced."""
        cdef Py_ssize_t k, p
        for k in range(self.k_capacity + 2):
            self.known[k] = False
        self.count_users()
        if not self.common:
            for p in range(self.n_current):
                self.weigh_nodes(p, -1)

    def get_state(self):
        """All that `set_state` needs, as a dict of plain objects; slots are numbered by family."""
        cdef Py_ssize_t f, g, k, p
        cdef Family* family
        self.count_users()
        stats, slots = [], []
        for f in range(self.n_families):
            family = &self.families[f]
            live = np.array([family.live[k] for k in range(family.n_live)], dtype=np.intp)
            stats.append(self.models[f].dump(live, True))
        for p in range(self.n_current):
            family = &self.families[self.family[p]]
            slots.append(
                np.array([family.position[slot] for slot in self.slots_of(p)], dtype=np.intp)
            )
        vectors = {}
        if self.common:
            for k in range(self.k_most + 1):
                if self.users[k] > 0:
                    vectors[k] = np.array(
                        [self.by_k[k * self.n_nodes + g] for g in range(self.n_nodes)]
                    )
        else:
            for p in range(self.n_current):
                vectors[p] = np.array(
                    [self.own[p * self.n_nodes + g] for g in range(self.n_nodes)]
                )
        return {
            "n_rows": self.n_rows,
            "n_resampled": self.n_resampled,
            "concentration": self.concentration,
            "block_start": self.block_start,
            "log_w": self.log_weights(),
            "family": np.array([self.family[p] for p in range(self.n_current)], dtype=np.intp),
            "slots": slots,
            "stats": stats,
            "labels": self.all_labels(),
            "step": self.step,
            "k_capacity": self.k_capacity,
            "vectors": vectors,
        }

    def set_state(self, models, state):
        """Go on from `get_state`, or from partitions made elsewhere.

        Parameters
        ----------
        models : list of ClusterModel
            Of the families, at their hyperparameters. Their slots are replaced.
        state : dict
            n_rows, n_resampled : int
            log_w : (n_current,)
            family : (n_current,) indices of `models`
            slots : list of (n_clusters,) indices of the stats of the particle's family
            stats : list of (n, n_stats) or, with the terms cached from them, (n, width)
            labels : (n_current, n_kept), of the last rows
            step, k_capacity, vectors : of the nodes; without them these are computed in closed
                form, as they are whenever the capacity has grown
            block_start : int; without it that of before
        """
        cdef Py_ssize_t f, g, j, p, slot
        cdef Py_ssize_t n = len(state["log_w"])
        cdef Family* family
        cdef const double[::1] vector
        cdef const unsigned char[:, ::1] labels
        if not 1 <= n <= self.n_particles:
            raise ValueError(f"{n} particles; expected 1 to {self.n_particles}")
        for model in models:
            if not (<ClusterModel?>model).factorizes:
                raise ValueError(f"clusters of {type(model).__name__} are not independent")
        self.drop_families()
        self.models = list(models)
        self.families = <Family*>resized(self.families, len(models), sizeof(Family))
        memset(self.families, 0, len(models) * sizeof(Family))
        self.n_families = len(models)
        for f in range(self.n_families):
            family = &self.families[f]
            family.model = <void*>self.models[f]
            family.n_live = len(state["stats"][f])
            family.empty = family.n_live
            family.born = -1
            model = self.models[f]
            model.load(
                state["stats"][f], np.arange(family.n_live + 1),
                np.arange(model.n_slots - 1, family.n_live, -1),
            )
            self.reserve_slots(family, model.n_slots)
            for slot in range(family.n_live):
                family.live[slot] = family.position[slot] = slot
                family.sizes[slot] = state["stats"][f][slot, 0]
        self.n_rows = state["n_rows"]
        self.n_resampled = state["n_resampled"]
        self.block_start = state.get("block_start", self.block_start)
        self.n_current = 0
        self.k_most = max(len(slots) for slots in state["slots"])
        self.step = state.get("step", STEP)
        self.k_capacity = 0
        self.reserve_clusters(max(self.k_most + 1, state.get("k_capacity", 0)))
        kept = np.shape(state["labels"])[1]
        self.n_before = self.n_rows - kept
        self.label_capacity = 0
        self.wide = self.k_most >= NARROW
        self.reserve_labels(kept, self.wide)
        # As bytes.
        labels = np.ascontiguousarray(
            state["labels"], np.uint32 if self.wide else np.uint16
        ).view(np.uint8)
        self.n_current = n
        for p in range(n):
            self.log_w[p] = state["log_w"][p]
            self.family[p] = state["family"][p]
            family = &self.families[self.family[p]]
            family.n_members += 1
            self.n_clusters[p] = len(state["slots"][p])
            for j in range(self.n_clusters[p]):
                slot = state["slots"][p][j]
                self.slots[p * self.k_capacity + j] = <int>slot
                family.refs[slot] += 1
            if labels.shape[1] > 0:
                memcpy(
                    self.labels + p * self.label_capacity * (4 if self.wide else 2),
                    &labels[p, 0], labels.shape[1]
                )
        if "vectors" not in state:
            self.renew()
            return
        for j, vector in state["vectors"].items():
            if self.common:
                self.known[j] = True
            for g in range(self.n_nodes):
                if self.common:
                    self.by_k[j * self.n_nodes + g] = vector[g]
                else:
                    self.own[j * self.n_nodes + g] = vector[g]
        self.count_users()

    def forget_labels(self):
        """Keep no label of the rows so far."""
        self.n_before = self.n_rows

    def audit(self):
        """Raise an AssertionError where slots and particles disagree; for tests."""
        cdef Py_ssize_t f, j, p
        cdef Family* family
        held = [np.zeros(self.families[f].capacity, int) for f in range(self.n_families)]
        members = np.zeros(self.n_families, int)
        for p in range(self.n_current):
            members[self.family[p]] += 1
            np.add.at(held[self.family[p]], self.slots_of(p), 1)
            assert self.sizes_of(p).sum() == self.n_rows
            assert (self.stats_of(p)[:, 0] == self.sizes_of(p)).all()
        for f in range(self.n_families):
            family = &self.families[f]
            model = self.models[f]
            assert members[f] == family.n_members
            assert family.n_live + 1 + model.n_free == model.n_slots
            live = [family.live[j] for j in range(family.n_live)]
            assert [family.position[slot] for slot in live] == list(range(family.n_live))
            assert sorted(live) == np.flatnonzero(held[f]).tolist()
            assert [family.refs[slot] for slot in live] == held[f][live].tolist()

    def _check_state(self, Py_ssize_t p, MixtureState state):
        self._check_particle(p)
        if self.n_before > 0:
            raise ValueError("labels of rows have been forgotten")
        if state.n_samples != self.n_rows:
            raise ValueError(f"a state of {state.n_samples} items, not {self.n_rows}")
        model = self.models[self.family[p]]
        if type(state.model) is not type(model) or state.model.width != model.width:
            raise ValueError("the state has another kind of kernel")

    def _check_particle(self, Py_ssize_t p):
        if not 0 <= p < self.n_current:
            raise IndexError(f"particle {p} of {self.n_current}")


def log_ratios(PartitionPrior prior, sizes, concentrations, nodes, log_hyper):
    """log p(partition | concentration) - log p(partition), the latter over weighted nodes.

    Parameters
    ----------
    prior : PartitionPrior
    sizes : list of ndarray of shape (n_clusters,)
        Of each partition.
    concentrations : array-like
        Above the lowest concentration of the prior.
    nodes, log_hyper : ndarray of shape (n_nodes,)

    Returns
    -------
    log_ratios : ndarray of shape (len(concentrations), len(sizes))

    Raises
    ------
    ValueError
        For a concentration that the prior cannot have.
    """
    cdef Py_ssize_t c, p
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
    if len(nodes) == 1:     # without an error of rounding where it is the same concentration
        return log_p[:m] - log_p[m:]
    return log_p[:m] - logsumexp(log_p[m:].T + log_hyper, axis=1)


cdef void lagrange(const Py_ssize_t* points, Py_ssize_t n, double* by) noexcept nogil:
    """How much the value at each of N_POINTS points counts at n."""
    cdef Py_ssize_t i, j
    for j in range(N_POINTS):
        by[j] = 1.0
        for i in range(N_POINTS):
            if i != j:
                by[j] *= (n - points[i]) / <double>(points[j] - points[i])


def concentration_nodes(double shape, double rate, double step):
    """Nodes of a trapezoidal rule in the logarithm of a concentration ~ Gamma(shape, rate).

    The factor of the concentration given a partition, concentration^(k-1) / (concentration + 1)
    ... (concentration + n - 1) or the like, is constant below the first node where k is 1, and
    next to nothing elsewhere: the first node stands for all nodes below it, too.

    Parameters
    ----------
    shape, rate : float
    step : float
        Distance of the logarithms, at most; smaller where the prior is narrow.

    Returns
    -------
    nodes, log_weights : ndarray of shape (n_nodes,)
        The weights sum to 1.
    """
    # Given rows the rate is greater, by log n at most; given clusters the mean is.
    low = max(np.log(1e-14) / (1.0 + shape), (np.log(1e-13) + gammaln(shape + 1.0)) / shape)
    low -= np.log(rate + 30.0)
    high = np.log(shape + 10.0 * np.sqrt(shape) + 500.0) - np.log(rate)
    step = min(step, 0.75 / np.sqrt(shape))
    x = low + step * np.arange(int((high - low) / step) + 2)
    log_weights = shape * x - rate * np.exp(x)
    log_weights[0] -= np.log(-np.expm1(-shape * step))
    log_weights -= log_weights.max()
    return np.exp(x), log_weights - np.log(np.exp(log_weights).sum())
