# SPDX-License-Identifier: BSD-3-Clause
from skdpm.mixture.priors._base cimport PartitionPrior

cdef enum:
    FIRST_PIECE = 64    # the smallest n from which on ratios are interpolated in n
    N_POINTS = 12       # of a polynomial


cdef class NewClusterRatios:
    """r = V_{n,k+1} / V_{n,k} at every node of a concentration: the weight of a new cluster."""
    cdef PartitionPrior prior
    cdef readonly bint constant             # r does not depend on n
    cdef Py_ssize_t n_nodes
    cdef const double[::1] nodes
    cdef double[:, ::1] table               # (n_k, n_nodes): r
    cdef Py_ssize_t[::1] tabulated          # (n_k,): n of the table, 0 for none
    cdef double[:, :, ::1] log_at_points    # (n_k, N_POINTS, n_nodes): log r
    cdef Py_ssize_t[::1] first              # (n_k,): the first n of the polynomials, 0 for none
    cdef unsigned char[:, ::1] inexact      # (n_k, n_nodes): polynomials that are not used

    cdef void forget(self) noexcept nogil
    cdef const double* at(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil
    cdef void interpolate(self, Py_ssize_t n, Py_ssize_t k) noexcept nogil
    cdef void fit(self, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil
    cdef void check(self, Py_ssize_t n, const Py_ssize_t* points, Py_ssize_t k) noexcept nogil


cdef class ConcentrationNodes:
    """Law of the concentration given the partition of each particle, on a grid of nodes.

    A fixed concentration is a single node.
    """
    cdef PartitionPrior prior
    cdef readonly object hyperprior         # tuple (shape, rate); None: fixed
    cdef readonly double concentration      # value of the single node
    cdef readonly bint has_noise            # particles have different numbers of rows in clusters
    cdef readonly bint common               # sigma is the same at all nodes, and no noise
    cdef readonly double step               # largest distance of the nodes' logarithms
    cdef readonly Py_ssize_t n_nodes, k_capacity
    cdef Py_ssize_t k_most                  # largest k in use
    cdef Py_ssize_t n_particles
    cdef double[::1] values, log_hyper, sigmas      # (n_nodes,); log_hyper: prior weights
    cdef double[::1] ones, scratch                  # (n_nodes,)
    cdef NewClusterRatios ratios
    # Tables by k, (k_capacity + 2,) or (k_capacity + 2, n_nodes).
    cdef Py_ssize_t[::1] users              # particles with k clusters
    cdef unsigned char[::1] known           # whether `by_k` has the law
    cdef double[:, ::1] by_k                # the law given k clusters, where sigma is common
    cdef double[::1] join_k                 # average factor to join a cluster of m, over m - sigma
    cdef double[::1] new_k                  # average factor of a new cluster
    # By particle. The factor to join a cluster of m is slope (m + offset).
    cdef double[:, ::1] own                 # (n_particles, n_nodes): law, unless common
    cdef double[::1] slope, offset, fresh   # fresh: the factor of a new cluster

    cdef Py_ssize_t count(
        self, const Py_ssize_t* n_clusters, Py_ssize_t n, Py_ssize_t n_rows    # IN (n,)
    ) noexcept nogil
    cdef void make_law(self, Py_ssize_t k, Py_ssize_t n_rows) noexcept nogil
    cdef void make_own_law(
        self, Py_ssize_t p, Py_ssize_t n_rows, const double* sizes, const int* slots, Py_ssize_t k
    ) noexcept nogil
    cdef void weigh(
        self, const Py_ssize_t* n_clusters, const Py_ssize_t* n_noise, Py_ssize_t n,  # IN (n,)
        Py_ssize_t n_rows, bint counted
    ) noexcept nogil
    cdef void average(
        self, const double* w, Py_ssize_t k, Py_ssize_t n_rows, double* sums    # OUT (3,)
    ) noexcept nogil
    cdef void follow_laws(self, Py_ssize_t n_rows) noexcept nogil
    cdef void follow(
        self, Py_ssize_t p, Py_ssize_t k, Py_ssize_t n_rows, double size
    ) noexcept nogil
    cdef void unfollow(
        self, Py_ssize_t p, Py_ssize_t k, Py_ssize_t n_rows, double size
    ) noexcept nogil
    cdef void branch(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil
    cdef double[::1] law(self, Py_ssize_t p, Py_ssize_t k)
