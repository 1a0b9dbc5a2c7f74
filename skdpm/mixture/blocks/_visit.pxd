# SPDX-License-Identifier: BSD-3-Clause

from skdpm._core._culling cimport Backoff
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._parametric cimport TILE, Indices, ParametricModel


cdef enum:
    NOISE_CODE = -2     # code of a row that is noise, of cluster -1


cdef class BlockTask:
    """A task on the rows of one block."""
    cdef ParametricModel model
    cdef Py_ssize_t n_clusters
    cdef const int* codes       # (n_rows,): current codes; NULL: not known
    cdef const int* order       # (n_rows,); NULL: the rows' own order
    cdef Py_ssize_t tile_rows   # 0: no bounds
    # The sweep.
    cdef bint sweeping
    cdef const double* params           # (n_clusters, n_params)
    cdef const double* log_weights      # (n_clusters,)
    cdef const double* sub_params       # (2 n_clusters, n_params); NULL: no sub-clusters
    cdef const double* sub_log_weights  # (2 n_clusters,)
    cdef const Py_ssize_t* all_clusters     # (n_clusters,): 0, 1, ...
    cdef bitgen_t* rng
    cdef const double* log_noise        # (n_rows,): log density as noise; NULL: none is noise
    cdef double log_noise_weight
    cdef const int* held_codes  # (n_rows,): -1 for a row not held back; NULL: none is
    # Random splits.
    cdef Py_ssize_t n_splits
    cdef const Py_ssize_t* split_clusters
    cdef const double* split_shares
    cdef bitgen_t** split_rngs
    # The result.
    cdef int* new_codes             # (n_rows,)
    cdef double* stats              # (2 n_clusters + 4 n_splits, n_stats)
    cdef Py_ssize_t* first_rows     # the same length; -1: no row
    cdef readonly tuple result      # the three as arrays
    cdef list arrays                # own the memory of pointers
    cdef Backoff backoff        # batches that go without bounds
    # Scratch memory.
    cdef double* log_w                  # (max(n_clusters + 1, 2), TILE)
    cdef double[TILE] u                 # uniforms of the rows of the batch, for their clusters
    cdef double[TILE] v                 # and sub-clusters; zeros if none are drawn
    cdef double[2 * TILE] u_left        # uniforms of rows that are left for later
    cdef double[2 * TILE] v_left
    cdef double[TILE] sorted_u
    cdef double[TILE] scaled_u
    cdef double[3 * TILE] scratch
    cdef Py_ssize_t[TILE] items         # rows of the batch
    cdef Py_ssize_t[2 * TILE] left      # rows that are left for later
    cdef Py_ssize_t n_left
    cdef Py_ssize_t[TILE] tile_codes
    cdef Py_ssize_t[TILE] clusters      # of rows that are placed; n_clusters: noise
    cdef Py_ssize_t[TILE] draws
    cdef Py_ssize_t[TILE] keys
    cdef Py_ssize_t[TILE] positions     # of items sorted by a key: positions before sorting
    cdef Py_ssize_t[TILE] sorted_items  # and rows
    cdef Py_ssize_t[TILE] chosen
    cdef Py_ssize_t[TILE] present       # the keys that occur
    cdef Py_ssize_t[TILE + 1] starts    # place of the first item of each of these
    cdef Py_ssize_t* ends               # (n_clusters + 1,), zero between uses
    cdef Py_ssize_t* near               # (n_clusters,) each: clusters that may weigh something
    cdef Py_ssize_t* nearest
    cdef double* lower                  # (n_clusters,) each
    cdef double* upper
    cdef double* shifts                 # (n_clusters + 1,)
    cdef double* boxes                  # (number of tiles in a batch, 2 n_dimensions)
    cdef double* box                    # (2 n_dimensions,)
    cdef double top             # the largest of `upper` of the clusters that `sift` listed

    cdef const double* doubles(self, values) except? NULL
    cdef const Py_ssize_t* indices(self, values) except? NULL
    cdef const int* integers(self, values) except? NULL
    cdef bint choose(
        self, Indices items, const double* params,
        const double* log_weights, Indices which, const double* u
    ) noexcept nogil
    cdef Py_ssize_t sort(
        self, const Py_ssize_t* keys, const Py_ssize_t* items, const double* u, Py_ssize_t n_items
    ) noexcept nogil
    cdef bint draw_clusters(
        self, const Py_ssize_t* items, const double* u, Py_ssize_t n_items
    ) noexcept nogil
