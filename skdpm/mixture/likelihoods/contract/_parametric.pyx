# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the kernels of drawn parameters."""
from libc.math cimport INFINITY, NAN

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t


cdef extern from "tiles.h" nogil:
    void tile_enclose(
        const double* x, Py_ssize_t ld, Py_ssize_t n, Py_ssize_t n_features, double* box
    )


cdef class ParametricModel(MemoryOwner):

    # Methods that a likelihood must override. A forgotten one gives NaN, which samplers reject.

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        """Draw theta ~ p(theta | items), where each item counts `power` times: 1 gives the
        posterior of a cluster with these statistics, 0 the prior."""
        params[0] = NAN

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        """log p(x_i | theta_k) less `log_constants`, for the parameters `which[k]`."""
        for k in range(which.n):
            for i in range(items.n):
                out[k * TILE + i] = NAN

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        """Add the items to the statistics of a cluster."""
        stats[0] = NAN

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        """Add the items of another cluster."""
        for d in range(self.n_stats):
            stats[d] += other[d]

    # Methods that a likelihood with bounds also overrides.

    cdef void load(self, Indices items) noexcept nogil:   # <= TILE
        """Load items for the methods below. They stay loaded until densities of other items are
        computed, or other items are accumulated."""
        self.loaded = items.at
        tile_gather(self.points, self.n_dimensions, items.at, items.n, self.columns, LD)

    cdef void enclose(self, Py_ssize_t first, Py_ssize_t n_items, double* box) noexcept nogil:
        """The smallest box around the points of some loaded items, rounded up."""
        tile_enclose(self.columns + first, LD, n_items, self.n_dimensions, box)

    cdef void log_density_bound_many(
        self, const double* params, Indices which, const double* box, double* lower, double* upper
    ) noexcept nogil:
        """Lower and upper bounds of what `log_density_many` computes for items in the box, with
        rounding. Wrong ones would make samplers inexact in silence. NaN if densities may be."""
        for k in range(which.n):
            lower[k] = -INFINITY
            upper[k] = INFINITY

    cdef void log_density_loaded(
        self, Py_ssize_t first, Py_ssize_t n_items, const double* params,
        Indices which, double* out      # OUT (which.n, TILE)
    ) noexcept nogil:
        """`log_density_many` of some loaded items, to the bit."""
        self.log_density_many(as_indices(self.loaded + first, n_items), params, which, out)

    cdef void accumulate_loaded(
        self, double* stats, Py_ssize_t first, Py_ssize_t n_items,
        const Py_ssize_t* keys, Py_ssize_t key      # IN (n_items,): those with the key join
    ) noexcept nogil:
        """Add some loaded items to the statistics of a cluster."""
        cdef Py_ssize_t chosen[TILE]
        cdef Py_ssize_t n = 0
        for i in range(n_items):
            chosen[n] = self.loaded[first + i]
            n += keys[i] == key
        if n > 0:
            self.accumulate(stats, as_indices(chosen, n))

    # The Python boundary.

    def draw(self, const double[:, ::1] stats, const double[::1] powers, bit_generator):
        """Draw parameters of clusters, one after the other, from their statistics, (n_clusters,
        n_stats), and how much each item counts, (n_clusters,): ndarray (n_clusters, n_params).
        Raises FloatingPointError if rounding has spoilt the statistics of a cluster."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef double[:, ::1] params = np.empty((stats.shape[0], self.n_params))
        with bit_generator.lock, nogil:
            for k in range(stats.shape[0]):
                self.draw_params(&stats[k, 0], powers[k], &params[k, 0], rng)
        if not np.isfinite(params[:, 0]).all():
            raise FloatingPointError("a cluster's parameters have no proper posterior")
        return np.asarray(params)

    def _items(self, items):
        items = np.arange(self.n_samples) if items is None else np.asarray(items, dtype=np.intp)
        if items.size and not 0 <= items.min() <= items.max() < self.n_samples:
            raise IndexError(f"items beyond the {self.n_samples} of the block")
        return items

    def log_densities(self, const double[:, ::1] params, items=None):
        """log p(x_i | theta_k) less `log_constants`, for some items or all: (n_clusters, n)."""
        cdef Py_ssize_t n_which = params.shape[0]
        cdef const Py_ssize_t[::1] which = np.arange(n_which)
        cdef const Py_ssize_t[::1] items_view = self._items(items)
        cdef Py_ssize_t n_items = items_view.shape[0]
        cdef double[:, ::1] tile = np.empty((n_which, TILE))
        cdef double[:, ::1] out = np.empty((n_which, n_items))
        for first in range(0, n_items if n_which else 0, TILE):
            n = min(<Py_ssize_t>TILE, n_items - first)
            self.log_density_many(
                as_indices(&items_view[first], n), &params[0, 0], as_indices(&which[0], n_which),
                &tile[0, 0]
            )
            for k in range(n_which):
                for i in range(n):
                    out[k, first + i] = tile[k, i]
        return np.asarray(out)

    def combined(self, stats, other):
        """Statistics of the unions of pairs of clusters: ndarray (n_clusters, n_stats)."""
        cdef double[:, ::1] out = np.array(stats, dtype=np.float64, order="C")
        cdef const double[:, ::1] second = np.ascontiguousarray(other, dtype=np.float64)
        for k in range(out.shape[0]):
            self.combine(&out[k, 0], &second[k, 0])
        return np.asarray(out)
