# SPDX-License-Identifier: BSD-3-Clause
"""What every likelihood's kernel shares: the arena of sufficient statistics.

A cluster is a row of doubles: opening one copies the empty row, copying is memcpy, merging adds
the leading `n_stats` doubles. A likelihood therefore writes only how one item enters and leaves a
row and the two densities. All memory is taken in `reserve`, under the GIL; the `nogil` methods
neither allocate nor raise.
"""
from libc.math cimport NAN
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy

import numpy as np

from skdpm._core._check cimport SKDPM_CHECK


cdef class ClusterModel:

    def __cinit__(self, *args, **kwargs):
        self.factorizes = True

    def __dealloc__(self):
        free(self.stats)
        free(self.empty)
        free(self.free_slots)

    cdef int allocate(self, Py_ssize_t n_stats, Py_ssize_t width) except -1:
        """Fix the layout of a row; the subclass then writes the empty row's cached terms."""
        self.n_stats = n_stats
        self.width = width
        self.empty = <double*>calloc(width, sizeof(double))
        if self.empty == NULL:
            raise MemoryError
        return 0

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        """Make room for `n_slots` clusters; slots in use keep their number and their row."""
        cdef Py_ssize_t slot
        cdef void* memory
        if n_slots <= self.n_slots:
            return 0
        memory = realloc(self.stats, n_slots * self.width * sizeof(double))
        if memory == NULL:
            raise MemoryError(f"no memory for the statistics of {n_slots} clusters")
        self.stats = <double*>memory
        memory = realloc(self.free_slots, n_slots * sizeof(Py_ssize_t))
        if memory == NULL:
            raise MemoryError(f"no memory for {n_slots} clusters")
        self.free_slots = <Py_ssize_t*>memory
        for slot in range(n_slots - 1, self.n_slots - 1, -1):
            self.free_slots[self.n_free] = slot
            self.n_free += 1
        self.n_slots = n_slots
        return 0

    cdef Py_ssize_t acquire(self) noexcept nogil:
        """Take a free slot, as an empty cluster. The caller has made sure that one is free."""
        cdef Py_ssize_t slot
        SKDPM_CHECK(self.n_free > 0, "acquire: no free slot")
        self.n_free -= 1
        slot = self.free_slots[self.n_free]
        memcpy(row(self, slot), self.empty, self.width * sizeof(double))
        return slot

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        SKDPM_CHECK(0 <= slot < self.n_slots, "release: no such slot")
        SKDPM_CHECK(self.n_free < self.n_slots, "release: all slots are free already")
        self.free_slots[self.n_free] = slot
        self.n_free += 1

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        """Make a slot in use an empty cluster; its items have no label any more."""
        memcpy(row(self, slot), self.empty, self.width * sizeof(double))

    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        self.settle()
        memcpy(row(self, dst), row(self, src), self.width * sizeof(double))

    cdef void rebuild(
        self, Py_ssize_t slot, const Py_ssize_t* items, Py_ssize_t n_items    # IN (n_items,)
    ) noexcept nogil:
        """Recompute a row from its items: the defence against accumulated rounding."""
        cdef Py_ssize_t m
        self.settle()
        memcpy(row(self, slot), self.empty, self.width * sizeof(double))
        for m in range(n_items):
            self.add(slot, items[m])

    cdef double log_predictive(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """log p(x_i | items of the slot). Final: no likelihood writes the density twice."""
        cdef double out = NAN
        self.log_predictive_many(&slot, 1, i, &out)
        return out

    # What a likelihood must override. A forgotten override gives NaN, which samplers refuse.

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Item i, which is in no cluster, joins the slot."""
        row(self, slot)[0] = NAN

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Item i leaves the slot. Its label already says that it is in no cluster."""
        row(self, slot)[0] = NAN

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        """Recompute the cached terms of a row from its statistics."""
        row(self, slot)[0] = NAN

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """log p(items of the slot), parameters integrated out, all constants included."""
        return NAN

    cdef void log_predictive_many(
        self, const Py_ssize_t* slots, Py_ssize_t n_slots, Py_ssize_t i,    # IN (n_slots,)
        double* out                                                         # OUT (n_slots,)
    ) noexcept nogil:
        """log p(x_i | items of each slot), for an item in no cluster; an empty slot gives the
        prior predictive."""
        cdef Py_ssize_t k
        for k in range(n_slots):
            out[k] = NAN

    # Defaults that hold where clusters are independent and rows add up.

    cdef double log_likelihood(self, const Py_ssize_t* slots, Py_ssize_t n_slots) noexcept nogil:
        """log p(X | partition) of the clusters in `slots`."""
        cdef Py_ssize_t k
        cdef double total = 0.0
        for k in range(n_slots):
            total += self.log_marginal(slots[k])
        return total

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """The items of `src` join `dst`; the row of `src` stays as it is."""
        cdef Py_ssize_t d
        cdef double* a = row(self, dst)
        cdef double* b = row(self, src)
        for d in range(self.n_stats):
            a[d] += b[d]
        self.refresh(dst)

    cdef void settle(self) noexcept nogil:
        """Bring every row up to date, for likelihoods that defer work."""
        pass

    # The Python boundary: chain states, scoring, predictions.

    def bind_labels(self, Py_ssize_t[::1] labels):
        """Let the model read the slot of each item from `labels`."""
        self._labels_owner = labels
        self.n_labels = labels.shape[0]
        self.labels = &labels[0] if labels.shape[0] else NULL

    def dump(self, slots, bint cached=False):
        """Rows of the given slots: their statistics, with `cached` also the cached terms.

        Returns
        -------
        rows : ndarray of shape (len(slots), n_stats) or (len(slots), width)
        """
        cdef Py_ssize_t k
        cdef Py_ssize_t width = self.width if cached else self.n_stats
        cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
        rows = np.empty((slots_view.shape[0], width))
        cdef double[:, ::1] rows_view = rows
        self.settle()
        for k in range(slots_view.shape[0]):
            if not 0 <= slots_view[k] < self.n_slots:
                raise IndexError(f"slot {slots_view[k]} of {self.n_slots}")
            memcpy(&rows_view[k, 0], row(self, slots_view[k]), width * sizeof(double))
        return rows

    def load(self, rows, slots=None, free_slots=None):
        """Forget all clusters and take those of `rows` (from `dump`).

        Parameters
        ----------
        rows : ndarray of shape (K, n_stats) or (K, width)
        slots : ndarray of shape (m,), m >= K, optional
            Slots of the rows; those behind the first K become empty clusters. Default: 0, ..., K,
            of which the last is then an empty cluster.
        free_slots : ndarray of int, optional
            All other slots, from the last to be taken to the first. Default: none.
        """
        cdef Py_ssize_t k
        cdef const double[:, ::1] rows_view = np.ascontiguousarray(rows, dtype=np.float64)
        cdef Py_ssize_t n_rows = rows_view.shape[0]
        cdef Py_ssize_t width = rows_view.shape[1]
        if width != self.n_stats and width != self.width:
            raise ValueError(f"rows of {width} doubles; expected {self.n_stats} or {self.width}")
        slots = np.arange(n_rows + 1) if slots is None else slots
        free_slots = np.empty(0, dtype=np.intp) if free_slots is None else free_slots
        cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef const Py_ssize_t[::1] free_view = np.ascontiguousarray(free_slots, dtype=np.intp)
        self.clear(slots_view.shape[0] + free_view.shape[0])
        self.n_free = free_view.shape[0]
        for k in range(self.n_free):
            self.free_slots[k] = free_view[k]
        for k in range(slots_view.shape[0]):
            memcpy(row(self, slots_view[k]), self.empty, self.width * sizeof(double))
            if k < n_rows:
                memcpy(row(self, slots_view[k]), &rows_view[k, 0], width * sizeof(double))
                if width != self.width:
                    self.refresh(slots_view[k])

    def log_marginals(self, rows):
        """log p(items) of clusters by their statistics, in a slot of its own.

        Parameters
        ----------
        rows : ndarray of shape (K, n_stats)

        Returns
        -------
        log_marginals : ndarray of shape (K,)
        """
        cdef Py_ssize_t k
        cdef const double[:, ::1] rows_view = np.ascontiguousarray(rows, dtype=np.float64)
        cdef Py_ssize_t slot
        if rows_view.shape[1] != self.n_stats:
            raise ValueError(f"rows of {rows_view.shape[1]} doubles; expected {self.n_stats}")
        if self.n_free == 0:
            self.reserve(self.n_slots + 1)
        slot = self.acquire()
        out = np.empty(rows_view.shape[0])
        cdef double[::1] out_view = out
        for k in range(rows_view.shape[0]):
            memcpy(row(self, slot), &rows_view[k, 0], self.n_stats * sizeof(double))
            self.refresh(slot)
            out_view[k] = self.log_marginal(slot)
        self.release(slot)
        return out

    def clear(self, Py_ssize_t n_slots):
        """Forget all clusters and make room for `n_slots`; the lowest free slot is taken first."""
        cdef Py_ssize_t slot
        self.settle()
        self.reserve(n_slots)
        self.n_free = self.n_slots
        for slot in range(self.n_slots):
            self.free_slots[slot] = self.n_slots - 1 - slot

    def free_list(self):
        """The slots not in use, from the last to be taken to the first."""
        return np.array([self.free_slots[k] for k in range(self.n_free)], dtype=np.intp)

    def log_predictive_rows(self, slots, Py_ssize_t first, Py_ssize_t stop):
        """log p(x_i | items of each slot) for the items first <= i < stop.

        Returns
        -------
        log_densities : ndarray of shape (len(slots), stop - first)
        """
        cdef Py_ssize_t i, k
        cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef Py_ssize_t n_slots = slots_view.shape[0]
        if not 0 <= first <= stop <= self.n_samples:
            raise IndexError(f"items {first}:{stop} of {self.n_samples}")
        out = np.empty((n_slots, stop - first))
        cdef double[:, ::1] out_view = out
        cdef double[::1] one
        if stop == first or n_slots == 0:
            return out
        if self.factorizes:
            # Cluster by cluster: its row stays in the cache while the items go by.
            with nogil:
                for k in range(n_slots):
                    for i in range(first, stop):
                        self.log_predictive_many(&slots_view[k], 1, i, &out_view[k, i - first])
        else:
            one = np.empty(n_slots)
            with nogil:
                for i in range(first, stop):
                    self.log_predictive_many(&slots_view[0], n_slots, i, &one[0])
                    for k in range(n_slots):
                        out_view[k, i - first] = one[k]
        return out


cdef class Probe:
    """The kernel methods of a model for Python; the tests of the laws go through it."""
    cdef readonly ClusterModel model

    def __init__(self, ClusterModel model, Py_ssize_t n_slots):
        self.model = model
        model.clear(n_slots)

    def _slot(self, Py_ssize_t slot):
        if not 0 <= slot < self.model.n_slots:
            raise IndexError(f"slot {slot} of {self.model.n_slots}")
        return slot

    def _item(self, Py_ssize_t i):
        if not 0 <= i < self.model.n_samples:
            raise IndexError(f"item {i} of {self.model.n_samples}")
        return i

    def acquire(self):
        if self.model.n_free == 0:
            raise IndexError("no free slot")
        return self.model.acquire()

    def release(self, Py_ssize_t slot):
        self.model.release(self._slot(slot))

    def copy(self, Py_ssize_t dst, Py_ssize_t src):
        self.model.copy(self._slot(dst), self._slot(src))

    def merge(self, Py_ssize_t dst, Py_ssize_t src):
        self.model.merge(self._slot(dst), self._slot(src))

    def add(self, Py_ssize_t slot, Py_ssize_t i):
        self.model.add(self._slot(slot), self._item(i))

    def remove(self, Py_ssize_t slot, Py_ssize_t i):
        self.model.remove(self._slot(slot), self._item(i))

    def shuffle(self, Py_ssize_t slot, const Py_ssize_t[::1] leave, const Py_ssize_t[::1] join):
        """Many times: one item leaves, one joins."""
        cdef Py_ssize_t m
        self._slot(slot)
        for m in range(leave.shape[0]):
            self.model.remove(slot, leave[m])
            self.model.add(slot, join[m])

    def refresh(self, Py_ssize_t slot):
        self.model.settle()
        self.model.refresh(self._slot(slot))

    def rebuild(self, Py_ssize_t slot, const Py_ssize_t[::1] items):
        self.model.rebuild(
            self._slot(slot), &items[0] if items.shape[0] else NULL, items.shape[0]
        )

    def log_marginal(self, Py_ssize_t slot):
        return self.model.log_marginal(self._slot(slot))

    def log_predictive(self, Py_ssize_t slot, Py_ssize_t i):
        return self.model.log_predictive(self._slot(slot), self._item(i))

    def log_predictive_many(self, const Py_ssize_t[::1] slots, Py_ssize_t i):
        out = np.empty(slots.shape[0])
        cdef double[::1] out_view = out
        self.model.log_predictive_many(&slots[0], slots.shape[0], self._item(i), &out_view[0])
        return out

    def log_likelihood(self, const Py_ssize_t[::1] slots):
        return self.model.log_likelihood(&slots[0], slots.shape[0])
