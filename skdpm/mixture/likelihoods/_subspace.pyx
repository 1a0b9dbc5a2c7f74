# SPDX-License-Identifier: BSD-3-Clause
"""Clusters that are told apart by some coordinates of a row, the rest having one law for all.

With y the coordinates that matter and p0 the law of the rest,

    p(X | partition) = prod_i p0(rest of x_i) * prod_k p(y_i of the items of cluster k).

The second factor is that of another kernel, of the coordinates, here the *inner* one. The first is
a constant of each item: it moves no item, but belongs to densities and marginal likelihoods.

Row: n, the items' log p0 in two parts (`split_exactly`), statistics of the inner kernel | its
cached terms. So the rows of the inner kernel stand within those of this one, from HEAD on.
"""
from libc.string cimport memcpy
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._math cimport add_exactly
from skdpm.mixture.likelihoods._base cimport ClusterModel, row
from skdpm.mixture.likelihoods._parametric cimport ParametricModel

cdef enum:
    HEAD = 3        # doubles of a row before those of the inner kernel's


cdef extern from "tiles.h" nogil:
    void tile_rotate(
        const double* x, Py_ssize_t n, Py_ssize_t n_features, const double* center,
        const double* axes, Py_ssize_t n_axes, double* out
    )


def rotate(X, const double[::1] center, const double[:, ::1] axes):
    """Coordinates of rows on some axes: those of a row have the same bits whatever the others.

    Parameters
    ----------
    X : array-like of shape (n_rows, n_features)
    center : ndarray of shape (n_features,)
        The origin.
    axes : ndarray of shape (n_features, n_axes)

    Returns
    -------
    points : ndarray of shape (n_rows, n_axes)
    """
    cdef const double[:, ::1] rows = np.ascontiguousarray(X, dtype=np.float64)
    cdef Py_ssize_t n = rows.shape[0]
    cdef Py_ssize_t n_axes = axes.shape[1]
    if rows.shape[1] != center.shape[0] or rows.shape[1] != axes.shape[0]:
        raise ValueError(f"rows of {rows.shape[1]} columns, axes of {axes.shape[0]}")
    points = np.empty((n, n_axes))
    cdef double[:, ::1] view = points
    if n > 0 and n_axes > 0:
        with nogil:
            tile_rotate(
                &rows[0, 0], n, rows.shape[1], &center[0], &axes[0, 0], n_axes, &view[0, 0]
            )
    return points


cdef class SubspaceModel(ClusterModel):
    """Kernel of clusters that share the law of the rest.

    Parameters
    ----------
    inner : ClusterModel
        Bound to the coordinates. It belongs to this kernel from now on.
    whole, fraction : ndarray of shape (n_samples,)
        log p0 of each item, in two parts, whose sums are exact.
    """
    cdef ClusterModel inner
    cdef const double* whole
    cdef const double* fraction
    cdef object _owners

    def __init__(self, ClusterModel inner, whole, fraction):
        cdef const double[::1] whole_view = whole
        cdef const double[::1] fraction_view = fraction
        if whole_view.shape[0] != inner.n_samples or fraction_view.shape[0] != inner.n_samples:
            raise ValueError(f"{len(whole)} constants of {inner.n_samples} items")
        self._owners = (whole_view, fraction_view)
        self.inner = inner
        self.whole = &whole_view[0] if inner.n_samples else NULL
        self.fraction = &fraction_view[0] if inner.n_samples else NULL
        self.n_samples = inner.n_samples
        self.n_max = inner.n_max
        self.drifts = inner.drifts
        self.hyper_period = inner.hyper_period
        self.declare_hyperparameters(inner.hyper_names, inner.hyperparameters())
        self.allocate(HEAD + inner.n_stats, HEAD + inner.width)
        self.take_empty()

    cdef void take_empty(self) noexcept nogil:
        memcpy(self.empty + HEAD, self.inner.empty, self.inner.width * sizeof(double))

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        cdef Py_ssize_t slot
        cdef Py_ssize_t n_before = self.n_slots
        if n_slots > n_before:
            ClusterModel.reserve(self, n_slots)
            # The inner kernel does not know which slots are free, and refreshes all of them.
            for slot in range(n_before, n_slots):
                self.reset(slot)
            self.inner.place(self.stats + HEAD, self.stride, n_slots)
        return 0

    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept:
        ClusterModel.place(self, stats, stride, n_slots)
        self.inner.place(stats + HEAD, stride, n_slots)

    def bind_labels(self, Py_ssize_t[::1] labels):
        """Let the model, and the inner one, read the slot of each item from `labels`."""
        ClusterModel.bind_labels(self, labels)
        self.inner.bind_labels(labels)

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        self.inner.settle()     # nothing is put off for a slot that is free
        ClusterModel.release(self, slot)

    cdef void settle(self) noexcept nogil:
        self.inner.settle()

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        stats[0] += 1.0
        add_exactly(stats + 1, self.whole[i], self.fraction[i])
        self.inner.add(slot, i)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        cdef double* stats = row(self, slot)
        stats[0] -= 1.0
        add_exactly(stats + 1, -self.whole[i], -self.fraction[i])
        self.inner.remove(slot, i)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        self.inner.refresh(slot)

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        cdef double* a = row(self, dst)
        cdef const double* b = row(self, src)
        a[0] += b[0]
        add_exactly(a + 1, b[1], b[2])
        self.inner.merge(dst, src)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef const double* stats = row(self, slot)
        return self.inner.log_marginal(slot) + (stats[1] + stats[2])

    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil:
        cdef const double* stats = row(self, slot)
        return self.inner.log_marginal_at(slot, hyper) + (stats[1] + stats[2])

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        cdef Py_ssize_t k
        cdef double constant = self.whole[i] + self.fraction[i]
        self.inner.log_predictive_many(slots, n_slots, i, out)
        for k in range(n_slots):
            out[k] += constant

    # Hyperparameters are the inner kernel's; the constants do not depend on them.

    cdef int take_hyperparameters(self) except -1:
        """Those of the inner kernel, and its empty row."""
        memcpy(self.hyper, self.inner.hyper, self.n_hyper * sizeof(double))
        self.take_empty()
        return 0

    cdef int retabulate(self) except -1:
        memcpy(self.inner.hyper, self.hyper, self.n_hyper * sizeof(double))
        self.inner.retabulate()
        self.take_empty()
        return 0

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """Draw hyperparameters given the partition and the data, as the inner kernel does.

        Parameters, Returns, Raises: see `ClusterModel`.
        """
        self.inner.resample_hyperparameters(slots, priors, bit_generator)
        self.take_hyperparameters()
        return self.hyperparameters()


cdef class ParametricSubspace(ParametricModel):
    """Rows under drawn parameters of their coordinates: the rest is the same for all clusters, and
    left out.

    Parameters
    ----------
    inner : ParametricModel
        Bound to the coordinates.
    """
    cdef ParametricModel inner

    def __init__(self, ParametricModel inner):
        self.inner = inner
        self.n_samples = inner.n_samples
        self.n_stats = HEAD + inner.n_stats
        self.n_params = inner.n_params

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        self.inner.draw_params(stats + HEAD, power, params, rng)

    cdef void log_density_many(
        self, const Py_ssize_t* items, Py_ssize_t n_items,              # IN (n_items,), <= TILE
        const double* params, const Py_ssize_t* which, Py_ssize_t n_which,
        double* out                                                     # OUT (n_which, TILE)
    ) noexcept nogil:
        self.inner.log_density_many(items, n_items, params, which, n_which, out)

    cdef void accumulate(
        self, double* stats, const Py_ssize_t* items, Py_ssize_t n_items    # n_items <= TILE
    ) noexcept nogil:
        stats[0] += n_items
        self.inner.accumulate(stats + HEAD, items, n_items)

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        stats[0] += other[0]
        add_exactly(stats + 1, other[1], other[2])
        self.inner.combine(stats + HEAD, other + HEAD)
