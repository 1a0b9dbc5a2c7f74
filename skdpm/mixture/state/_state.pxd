# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._memory cimport MemoryOwner
from skdpm.mixture.state._tiles cimport RowTiles
from skdpm._core._culling cimport Backoff
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel, Indices, as_indices
from skdpm.mixture.priors._base cimport PartitionPrior


cdef enum:
    DETACHED = -1       # label of an item that is on its way between two places
    NOISE = -2          # label of an item that is noise


cdef class Noise:
    """The law of noise: an item is noise with probability eps ~ Beta(a, b), and then has the
    density `log_density`, whatever the clusters are. The other items follow the prior."""
    cdef readonly double a, b
    cdef readonly const double[::1] log_density     # (n_samples,)

    cdef double log_law(self, Py_ssize_t n_noise, Py_ssize_t m) noexcept nogil


cdef class TileBounds:
    """Bounds, for `samplers/_gibbs`, of weights of a state's clusters over a tile's items."""
    cdef readonly RowTiles tiles
    # For comparisons: use bounds nowhere, or everywhere whether they pay or not.
    cdef public bint off, always
    cdef readonly long long n_bounded   # visits of groups with bounds, so far
    cdef Py_ssize_t group, tile     # group and tile that these bounds are for, -1: none
    # Clusters near the group, in the order of their positions, the spare one last.
    cdef Py_ssize_t n_near
    cdef Py_ssize_t[::1] near       # (n_near,): slots
    cdef double[::1] bound          # (n_near,): bounds of log weights over the tile
    cdef double[::1] share          # (n_near,): exp(bound - top)
    cdef double top                 # at least the largest bound
    cdef double far                 # log of the sum of all other clusters' bounds over the group
    cdef readonly const double[::1] log_noise   # (n_tiles,): largest log density of noise
    cdef double noise               # bound of the log weight of noise over the tile
    # By slot, valid if `known` equals `now`, which every change of bounds increments:
    cdef Py_ssize_t now
    cdef Py_ssize_t[::1] known
    cdef double[::1] rest           # log of the sum of all other clusters' bounds
    cdef double[::1] stays          # u below which items of the tile stay in the cluster
    cdef Py_ssize_t[::1] some       # scratch: slots
    cdef double[::1] log_w          # scratch: their log weights
    # Cost, in evaluations of an item for a cluster, of this visit of the group and of the last
    # sweep; and groups that go without bounds.
    cdef long long work
    cdef long long sweep_work
    cdef readonly unsigned char[:, ::1] backoffs    # (n_groups, 2): `Backoff` of each

    cdef inline Backoff* backoff(self, Py_ssize_t group) noexcept nogil:
        return <Backoff*>&self.backoffs[group, 0]

    cdef int reserve(self, Py_ssize_t n_slots) except -1


cdef class MixtureState(MemoryOwner):
    """A partition of the items and the statistics of its clusters, kept consistent."""
    cdef readonly ClusterModel model
    cdef readonly PartitionPrior prior
    cdef readonly Py_ssize_t n_samples
    cdef readonly Py_ssize_t n_attached     # number of items that are in a cluster
    cdef readonly Noise noise               # None: all items are in clusters
    cdef readonly Py_ssize_t n_noise        # number of items that are noise
    cdef readonly Py_ssize_t n_clusters     # number of occupied clusters
    cdef Py_ssize_t capacity                # length of the arrays over slots
    cdef Py_ssize_t* labels                 # (n_samples,): slot of each item, DETACHED or NOISE
    # Occupied slots, (n_clusters,), then the spare one: an empty cluster that is always open.
    cdef Py_ssize_t* slots
    cdef Py_ssize_t* position               # index of a slot in `slots`
    cdef Py_ssize_t* sizes                  # number of items of a slot
    cdef double* log_w                      # (n_clusters + 1,): scratch
    cdef Py_ssize_t* some                   # (2, capacity): scratch
    cdef readonly double sum_constants      # sum of the items' `log_constants`
    cdef readonly TileBounds bounds         # None: sweeps visit the items in their own order
    # Whether missing entries, and which items are noise, were drawn in this step.
    cdef bint filled
    cdef object _labels_owner
    cdef object __weakref__

    cdef int reserve(self, Py_ssize_t n_slots) except -1
    cdef int adopt(
        self, ClusterModel model, const int* slots, Py_ssize_t n_clusters,  # IN (n_clusters,)
        const void* labels, bint wide, const Py_ssize_t* order              # IN (n_samples,)
    ) except -1
    cdef void attach(self, Py_ssize_t i, Py_ssize_t slot) noexcept nogil
    cdef Py_ssize_t detach(self, Py_ssize_t i) noexcept nogil
    cdef bint place(self, Py_ssize_t i, bitgen_t* rng) noexcept nogil
    cdef bint place_at(self, Py_ssize_t i, double u, bitgen_t* rng) noexcept nogil
    cdef double log_weight_as_noise(self, Py_ssize_t i) noexcept nogil
    cdef double log_noise_weight(self, Py_ssize_t n_noise, Py_ssize_t m) noexcept nogil
    cdef double log_likelihood_noise(self) noexcept nogil
    cdef inline double log_prior_weight(self, Py_ssize_t slot) noexcept nogil:
        """Prior's log weight of a cluster, or of a new one, for an item in no cluster."""
        cdef Py_ssize_t k = self.n_clusters
        if self.position[slot] == k:
            return self.prior.log_v[k + 1] - self.prior.log_v[k]
        return self.prior.log_join[self.sizes[slot]]

    cdef void add_log_prior(self) noexcept nogil
    cdef bint stays(self, Py_ssize_t i, Py_ssize_t own, double u) noexcept nogil
    cdef int place_incomplete(self, bitgen_t* rng) except -1 nogil
    cdef int place_all(self, bitgen_t* rng) except -1 nogil
    cdef int place_again(self, Py_ssize_t i, bitgen_t* rng) except -1 nogil
    cdef void open_spare(self) noexcept nogil
    cdef void close_cluster(self, Py_ssize_t slot) noexcept nogil
    cdef void dissolve(self, Py_ssize_t slot) noexcept nogil
    cdef void join(self, Py_ssize_t dst, Py_ssize_t src, Indices items) noexcept nogil
    cdef void replace(
        self, Indices items, const signed char* cells, Indices old_slots, Indices new_slots
    ) noexcept nogil
    cdef double log_prior(self) noexcept nogil
    cdef double log_prior_gain(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef double log_joint(self) noexcept nogil


cdef class StoredState:
    """A partition with its statistics, set aside."""
    cdef readonly Py_ssize_t n_samples, n_clusters
    cdef Py_ssize_t n_attached, n_noise, n_free, n_slots
    cdef Py_ssize_t[::1] labels             # (n_samples,): slots, as in the state
    cdef Py_ssize_t[::1] slots              # (n_clusters + 1,)
    cdef Py_ssize_t[::1] sizes              # (n_clusters,)
    cdef Py_ssize_t[::1] free_slots         # (n_free,)
    cdef double[::1] stats                  # of the occupied slots
    cdef Py_ssize_t capacity, n_doubles     # allocated entries

    cdef int reserve(self, MixtureState state) except -1
    cdef int store(self, MixtureState state) except -1 nogil
    cdef void recall(self, MixtureState state) noexcept nogil
