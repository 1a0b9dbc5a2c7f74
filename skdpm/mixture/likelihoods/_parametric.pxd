# SPDX-License-Identifier: BSD-3-Clause
from libc.math cimport exp, log
from libc.stdint cimport int32_t, int64_t, uint8_t

from skdpm._core._rng cimport bitgen_t, log_gamma_variate

cdef enum:
    TILE = 512      # most items that a kernel is handed at a time
    # Between columns of a tile: were it a power of two, they would all fall into the same few
    # lines of the cache.
    LD = TILE + 8
    MOST_DIMENSIONS = 16     # columns, beyond which boxes hold too little for bounds to be of use


ctypedef fused number:
    # Types of X that kernels read as they are; `readable` converts others.
    float
    double
    int32_t
    int64_t
    uint8_t


cdef class ParametricModel:
    """Items under drawn parameters: the capability "instantiated".

    Bound to a block of rows and light, so that one is made whenever a block is visited. Statistics
    are those of the likelihood's `ClusterModel` (its first `n_stats` doubles). Densities leave out
    the terms of `Likelihood.log_constants`. Parameters are vectors of `n_params` doubles in the
    form in which densities need them, the first of them finite unless the draw failed.
    """
    cdef readonly Py_ssize_t n_samples      # items of the block
    cdef readonly Py_ssize_t n_stats
    cdef readonly Py_ssize_t n_params
    cdef readonly Py_ssize_t n_dimensions   # of boxes around items; 0: there are no bounds
    cdef const double* points               # (n_samples, n_dimensions), where there are bounds
    cdef const Py_ssize_t* loaded           # the items of `load`
    cdef double* columns                    # (n_dimensions, LD) or more: points of those loaded

    # A likelihood overrides these three ...
    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil
    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items,              # IN (n_items,), <= TILE
        const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out                                                     # OUT (n_which, TILE)
    ) noexcept nogil
    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items    # n_items <= TILE
    ) noexcept nogil
    # ... and this where statistics do not add up.
    cdef void combine(self, double* stats, const double* other) noexcept nogil
    # ... and these if it has bounds; of what is loaded, `first` is the first item in question.
    cdef void load(self, const Py_ssize_t* items, Py_ssize_t n_items) noexcept nogil    # <= TILE
    cdef void enclose(
        self, Py_ssize_t first, Py_ssize_t n_items, double* box     # OUT: see `_culling`
    ) noexcept nogil
    cdef void log_density_bound_many(
        self, const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        const double* box,                                              # IN
        double* lower, double* upper                                    # OUT (n_which,) each
    ) noexcept nogil
    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        const Py_ssize_t* which, Py_ssize_t n_which, double* out        # OUT (n_which, TILE)
    ) noexcept nogil
    cdef void accumulate_loaded(
        self, double* stats, Py_ssize_t first, Py_ssize_t n_items,
        const Py_ssize_t* keys, Py_ssize_t key      # IN (n_items,): those with the key join
    ) noexcept nogil


cdef inline void draw_log_dirichlet(
    bitgen_t* rng, Py_ssize_t n,
    double* log_theta    # (n,): IN parameters, OUT logarithms of the draw
) noexcept nogil:
    """By Gamma variates, all in logarithms: small parameters make probabilities that are no
    doubles."""
    cdef Py_ssize_t t
    cdef double total = 0.0
    cdef double top
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
