# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t, uint8_t

from skdpm._core._memory cimport Indices, MemoryOwner, as_indices
from skdpm._core._rng cimport bitgen_t, log_gamma_variate

cdef extern from "tiles.h" nogil:
    const int SKDPM_LANES
    void tile_gather(
        const double* x, Py_ssize_t n_features, const Py_ssize_t* items, Py_ssize_t n,
        double* out, Py_ssize_t ld
    )
    void tile_entries(
        const double* params, Py_ssize_t n_params, const Py_ssize_t* which, Py_ssize_t n_which,
        Py_ssize_t n_levels, const Py_ssize_t* items, Py_ssize_t n, const Py_ssize_t* indptr,
        Py_ssize_t n_entries, const int* indices, const double* counts, double* table,
        double* out, Py_ssize_t ld
    )

cdef enum:
    TILE = 512      # largest number of items for a kernel at a time
    # Distance of columns of a tile. With a power of two, they would share few lines of the cache.
    LD = TILE + 8
    MOST_DIMENSIONS = 16     # largest number of columns for which bounds over boxes are useful


ctypedef fused number:
    # Types of X that kernels read; `readable` converts others.
    float
    double
    int32_t
    int64_t
    uint8_t


cdef class ParametricModel(MemoryOwner):
    """Items under drawn parameters: the capability "instantiated".

    A model is bound to a block of rows. It is light, because one is made for each visit of a
    block. Statistics are those of the `ClusterModel` (the first `n_stats` doubles). Densities
    leave out the terms of `Likelihood.log_constants`. Parameters are vectors of `n_params` doubles
    in the form that densities need; the first is finite unless the draw failed.
    """
    cdef readonly Py_ssize_t n_samples      # items of the block
    cdef readonly Py_ssize_t n_stats, n_params
    cdef readonly Py_ssize_t n_dimensions   # of boxes around items; 0: no bounds
    cdef const double* points               # (n_samples, n_dimensions), if there are bounds
    cdef const Py_ssize_t* loaded           # items of `load`
    cdef double* columns                    # (n_dimensions, LD) or more: points of loaded items

    # A likelihood overrides these three ...
    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil
    cdef void log_density_many(
        self, Indices items, const double* params, Indices which,       # items.n <= TILE
        double* out                                                     # OUT (which.n, TILE)
    ) noexcept nogil
    cdef void accumulate(self, double* stats, Indices items) noexcept nogil     # items.n <= TILE
    # ... this if statistics are not additive, ...
    cdef void combine(self, double* stats, const double* other) noexcept nogil
    # ... and these if it has bounds; `first` is the position of the first item among the loaded.
    cdef void load(self, Indices items) noexcept nogil    # items.n <= TILE
    cdef void enclose(
        self, Py_ssize_t first, Py_ssize_t n_items, double* box     # OUT: see `_culling`
    ) noexcept nogil
    cdef void log_density_bound_many(
        self, const double* params, Indices which, const double* box,
        double* lower, double* upper                                    # OUT (which.n,) each
    ) noexcept nogil
    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        Indices which, double* out      # OUT (which.n, TILE)
    ) noexcept nogil
    cdef void accumulate_loaded(
        self, double* stats, Py_ssize_t first, Py_ssize_t n_items,
        const Py_ssize_t* keys, Py_ssize_t key      # IN (n_items,): items with the key are added
    ) noexcept nogil


cdef inline void draw_log_dirichlet(
    bitgen_t* rng, Py_ssize_t n,
    double* log_theta    # (n,): IN parameters, OUT logarithms of the draw
) noexcept nogil:
    """Draw from a Dirichlet law by Gamma variates, in logarithms: small ones may underflow."""
    cdef double total = 0.0
    for t in range(n):
        log_theta[t] = log_gamma_variate(rng, log_theta[t])
    top = log_theta[0]
    for t in range(1, n):
        top = max(top, log_theta[t])
    for t in range(n):
        total += exp(log_theta[t] - top)
    top += log(total)
    for t in range(n):
        log_theta[t] -= top
