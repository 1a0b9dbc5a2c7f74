# SPDX-License-Identifier: BSD-3-Clause
"""Base class of the kernels of likelihoods: the arena of sufficient statistics.

doc/design.md has the plan. `reserve` allocates all memory, under the GIL; the `nogil` methods
neither allocate nor raise. Rows, densities and marginal likelihoods leave `log_constants` out;
MixtureState, SMC and scores add them once. Only bounds over boxes include them. If they depend on
hyperparameters (`constants_vary`), the model computes them anew in `retabulate`.

Hyperparameters, common to all clusters, may change while rows stay: statistics do not depend on
them, and cached terms are recomputed. Slice steps leave p(theta | partition, X) invariant.
"""
from libc.math cimport INFINITY, NAN, exp, isfinite, log
from libc.string cimport memcpy, memset


import numpy as np

from skdpm._core._check cimport SKDPM_CHECK
from skdpm._core._rng cimport bit_generator_pointer, bitgen_t
from skdpm._core._slice cimport SliceSampled
from skdpm._hyperpriors cimport LogDensity


cdef class ClusterModel(MemoryOwner):

    def __cinit__(self, *args, **kwargs):
        self.factorizes = True
        self.hyper_names = ()
        self.hyper_period = 1

    cdef int allocate(self, Py_ssize_t n_stats, Py_ssize_t width) except -1:
        """Fix the layout of a row; the subclass then writes the empty row's cached terms."""
        self.n_stats = n_stats
        self.width = self.stride = width
        self.empty = <double*>self.resized(NULL, width, sizeof(double))
        memset(self.empty, 0, width * sizeof(double))

    cdef int declare_hyperparameters(self, names, values) except -1:
        """Declare the numbers that `set_hyperparameters` takes, before `allocate`. Names are in
        the order of `Likelihood.hyperparameters`; the numbers of a vector have the same name."""
        self.hyper_names = tuple(names)
        self.n_hyper = len(self.hyper_names)
        if len(values) != self.n_hyper:
            raise ValueError(f"{len(values)} values of {self.n_hyper} hyperparameters")
        self.hyper = <double*>self.resized(self.hyper, self.n_hyper, sizeof(double))
        for h in range(self.n_hyper):
            self.hyper[h] = values[h]

    cdef int declare_incomplete(self, gap_items) except -1:
        """Declare the missing entries that a chain draws: the item of each, an ndarray of intp, in
        the order of `completion`. Subclasses override gap methods, `complete`, `completion`."""
        cdef const Py_ssize_t[::1] listed
        cdef const unsigned char[::1] flags
        self.n_gap_values = len(gap_items)
        if self.n_gap_values == 0:
            return 0
        items = np.unique(gap_items)
        listed = items
        self.n_incomplete = listed.shape[0]
        has_gaps = np.zeros(self.n_samples, dtype=np.uint8)
        has_gaps[items] = 1
        flags = has_gaps
        self._gaps_owner = (items, has_gaps, gap_items)
        self.incomplete = &listed[0]
        self.has_gaps = &flags[0]

    def complete(self, values=None):
        """Give all missing entries that a chain draws a value; None: those from which chains
        start. Until then densities of their items are of other entries, and these can join no
        cluster."""

    @property
    def gap_items(self):
        """Item of each missing entry that a chain draws: ndarray of shape (n_gap_values,)."""
        return np.empty(0, dtype=np.intp) if self.n_incomplete == 0 else self._gaps_owner[2]

    def completion(self):
        """Values of the missing entries that a chain draws: ndarray of shape (n_gap_values,)."""
        return np.empty(0)

    def reread(self, data):
        """Change to other encoded rows, before all clusters are replaced. Returns whether the
        kernel can, which one cannot that has made something of the rows: bool."""
        return False

    def keep_log_constants(self, const double[::1] log_constants):
        """Set the terms of log p(x_i) that do not depend on the cluster. Returns the kernel."""
        if log_constants.shape[0] != self.n_samples:
            raise ValueError(f"{len(log_constants)} constants for {self.n_samples} items")
        self._constants_owner = log_constants
        self.constants = &log_constants[0] if self.n_samples else NULL
        return self

    @property
    def log_constants(self):
        """The term of each item, ndarray of shape (n_samples,); None: they are all zero."""
        return None if self._constants_owner is None else np.asarray(self._constants_owner)

    @property
    def merge_width(self):
        """Number of numbers that the merge of two small clusters visits: int."""
        return self.width

    def sum_log_constants(self, Py_ssize_t n_items):
        """Sum of the terms of the first items, rounded once per pair: float."""
        return 0.0 if self.constants == NULL else float(self.log_constants[:n_items].sum())

    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept:
        """Put the rows inside those of another model, which then acquires and releases slots, and
        calls this again whenever its rows have moved. It has called `prepare` before."""
        if not self.placed:
            self.freed(self.stats)
        self.placed = True
        self.stats = stats
        self.stride = stride
        self.n_slots = n_slots
        self.n_free = 0

    cdef int prepare(self, Py_ssize_t n_slots) except -1:
        """Allocate what `n_slots` clusters need besides their rows. Nothing else changes."""
        self.free_slots = <Py_ssize_t*>self.resized(
            self.free_slots, max(n_slots, self.n_slots), sizeof(Py_ssize_t)
        )

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        """Make room for `n_slots` clusters; slots in use keep their number and their row."""
        if n_slots <= self.n_slots:
            return 0
        self.prepare(n_slots)
        self.stats = <double*>self.resized(
            self.stats, (n_slots + self.keeps_all) * self.stride, sizeof(double)
        )
        for slot in range(n_slots - 1, self.n_slots - 1, -1):
            self.free_slots[self.n_free] = slot
            self.n_free += 1
        self.n_slots = n_slots

    cdef Py_ssize_t acquire(self) noexcept nogil:
        """Take a free slot as an empty cluster. The caller ensures that one is free."""
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
        """Empty the cluster of a slot, whose items no longer have labels."""
        memcpy(row(self, slot), self.empty, self.width * sizeof(double))

    cdef void pack(self, Py_ssize_t slot, double* out) noexcept nogil:      # OUT (n_stats,)
        """Copy the statistics of a row, without its cached terms. The kernel is settled."""
        memcpy(out, row(self, slot), self.n_stats * sizeof(double))

    cdef void unpack(self, Py_ssize_t slot, const double* stats) noexcept nogil:
        """Write statistics into a row. The caller then computes cached terms by `refresh`."""
        memcpy(row(self, slot), stats, self.n_stats * sizeof(double))

    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        self.settle()
        memcpy(row(self, dst), row(self, src), self.width * sizeof(double))

    cdef void rebuild(self, Py_ssize_t slot, Indices items) noexcept nogil:
        """Recompute a row from its items, to remove accumulated rounding errors. If clusters are
        coupled, these must be the items of the slot by their labels."""
        self.settle()
        if not self.factorizes:
            for m in range(items.n):
                (<Py_ssize_t*>self.labels)[items.at[m]] = -1
        self.reset(slot)
        for m in range(items.n):
            self.add(slot, items.at[m])
            if not self.factorizes:
                (<Py_ssize_t*>self.labels)[items.at[m]] = slot

    cdef Py_ssize_t stored_width(self, Py_ssize_t n_slots) noexcept nogil:
        """Number of doubles per cluster for storing n_slots clusters together."""
        return self.width

    cdef void store(self, Indices slots, double* out) noexcept nogil:
        """Store all clusters, which are in these slots: (slots.n, stored_width(slots.n))."""
        self.settle()
        for k in range(slots.n):
            memcpy(out + k * self.width, row(self, slots.at[k]), self.width * sizeof(double))

    cdef void recall(
        self, Indices slots, const double* stored, const Py_ssize_t* labels
    ) noexcept nogil:
        """Replace all clusters by those of `store`, at whose time `labels` were those of items.
        Before, rows agree with the model's labels. Afterwards, the caller sets the free slots and
        the labels. By default the items of coupled clusters join again."""
        self.settle()
        if self.factorizes:
            for k in range(slots.n):
                stats = stored + k * self.width
                memcpy(row(self, slots.at[k]), stats, self.width * sizeof(double))
            return
        for i in range(self.n_labels):
            k = self.labels[i]
            (<Py_ssize_t*>self.labels)[i] = -1
            if k >= 0 and row(self, k)[0] > 0.0:
                self.reset(k)
        for i in range(self.n_labels):
            if labels[i] >= 0:
                self.add(labels[i], i)
                (<Py_ssize_t*>self.labels)[i] = labels[i]

    cdef double log_predictive(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """log p(x_i | items of the slot). Not overridden: a likelihood has one density."""
        cdef double out = NAN
        self.log_predictive_many(as_indices(&slot, 1), i, &out)
        return out

    # Methods that a likelihood must override. A forgotten one gives NaN, which samplers reject.

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Add item i, which is in no cluster, to the slot."""
        self.change(slot, i, 1.0)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        """Remove item i from the slot. Its label is already -1."""
        self.change(slot, i, -1.0)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        """Add the item (by = 1) or remove it (by = -1), for `add` and `remove`."""
        row(self, slot)[0] = NAN

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        """Recompute the cached terms of a row, if it has any, from its statistics."""
        if self.width > self.n_stats:
            row(self, slot)[0] = NAN

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        """log p(items of the slot) less their `log_constants`, parameters integrated out."""
        return self.log_marginal_at(slot, self.hyper)

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log p(x_i | items of each slot) less the item's `log_constants`, for an item in no
        cluster; an empty slot gives the prior predictive."""
        for k in range(slots.n):
            out[k] = NAN

    # Defaults. That of `log_likelihood` is for independent clusters. Those of merges need additive
    # rows if clusters are independent, and `add`, `remove` and predictives if they are coupled.

    cdef double log_likelihood(self, Indices slots) noexcept nogil:
        """log p(X | partition) of the clusters in `slots`, less `log_constants`."""
        cdef double total = 0.0
        for k in range(slots.n):
            total += self.log_marginal(slots.at[k])
        return total

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        """Move the items of `src` to another slot, `dst`. The caller then sets their labels before
        any other call. The row of an independent `src` does not change; a coupled one is empty
        afterwards, and labels agree with the rows before, unless those of the items are set."""
        cdef double* a = row(self, dst)
        cdef double* b = row(self, src)
        SKDPM_CHECK(dst != src, "merge: a cluster with itself")
        if not self.factorizes:
            n_items = list_items(self, src)
            pull(self, src, n_items)
            push(self, dst, n_items)
            return
        for d in range(self.n_stats):
            a[d] += b[d]
        self.refresh(dst)

    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil:
        """log p(X | `src` and a slot are one cluster) - log p(X | they are two), for each of some
        slots; 0 if one is empty. A slot must be free, or labels of coupled clusters agree with the
        rows. Rows and labels do not change, to the bit if statistics are integers."""
        if self.factorizes:
            alone = self.log_marginal(src)
            scratch = self.acquire()
            for k in range(slots.n):
                self.copy(scratch, slots.at[k])
                self.merge(scratch, src)
                out[k] = self.log_marginal(scratch) - self.log_marginal(slots.at[k]) - alone
            self.release(scratch)
            return
        n_items = list_items(self, src)
        pull(self, src, n_items)
        for k in range(slots.n):
            out[k] = push(self, slots.at[k], n_items)
            pull(self, slots.at[k], n_items)
        alone = push(self, src, n_items)
        for k in range(slots.n):
            out[k] -= alone

    cdef void settle(self) noexcept nogil:
        """Bring every row up to date, for likelihoods that defer work."""

    cdef Py_ssize_t find_near(
        self, Indices slots, Py_ssize_t i, double* log_least, Py_ssize_t* near
    ) noexcept nogil:
        """List the indices of slots whose `log_predictive_many` may be at least `log_least`,
        ascending, for an item without gaps. There must be room for eight more numbers behind
        `log_least`. Returns their number; -1 if that would save no time."""
        return -1

    # Missing entries that a chain draws. By default there are none.

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        """Forget the missing entries of item i, which is in no cluster: its densities are those of
        the other entries until the gaps are closed or filled. Other items: no effect."""

    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil:
        """Undo `open_gaps`."""

    cdef bint log_open_bound_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """Upper bounds of `log_predictive_many` for an item with open gaps. Returns whether they
        are much cheaper than these; otherwise `out` is not set."""
        return False

    cdef double open_rest(
        self, Indices slots, Py_ssize_t own, Py_ssize_t i, const double* log_prior
    ) noexcept nogil:
        """Upper bound of the sum of the weights of all slots but number `own` for an item with
        open gaps, as a multiple of the weight of that one; infinity if no cheap bound is known.
        Weights are densities times exp(log_prior)."""
        return INFINITY

    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        """Draw the missing entries of item i given its other entries and the items of a slot, and
        close its gaps. Returns False if the law has no draw."""
        return True

    cdef void read_gaps(self, Py_ssize_t i, double* completion) noexcept nogil:
        """Copy the values of the missing entries of item i to their places in a completion."""

    cdef void write_gaps(self, Py_ssize_t i, const double* completion) noexcept nogil:
        """Give the missing entries of item i, which is in no cluster, their values in a
        completion. Its gaps are closed."""

    cdef double sum_constants(self, Py_ssize_t n_items) noexcept nogil:
        """Sum of `log_constants` of the first items, at the current hyperparameters."""
        cdef double total = 0.0
        for i in range(n_items if self.constants != NULL else 0):
            total += self.constants[i]
        return total

    cdef double log_apart(self) noexcept nogil:
        """log density of what has one law for all rows, given the hyperparameters, for all items.
        Densities of clusters leave it out, and log joints add it."""
        return 0.0

    cdef double log_apart_of(self, Py_ssize_t i) noexcept nogil:
        """The same for an item, given all others if it is one of the fit. Scores add it."""
        return 0.0

    def log_density_apart(self):
        """What marginal likelihoods leave out and depends on hyperparameters, for all items:
        `log_apart`, and `log_constants` if they vary. A float."""
        self.settle()
        return self.log_apart() + (
            self.sum_constants(self.n_samples) if self.constants_vary else 0.0
        )

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        """Upper bound of `log_predictive_many` plus the row's `log_constants` for any row that is
        not among the items and whose point (`Likelihood.box_points`) is in a box. It includes
        rounding: one too low makes samplers inexact, without a message. The kernel is settled."""
        for k in range(slots.n):
            out[k] = INFINITY

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        """Lower bound, likewise, of log p(x | the other items of the slot) for any of its items
        whose point is in a box. The slot has at least two items."""
        return -INFINITY

    cdef void log_predictive_tile(self, Indices slots, Indices items, double* out) noexcept nogil:
        """log p(x_i | items of each slot) for at most STRIP items that are in none of them. The
        bits of an item's densities do not depend on the other items."""
        # Cluster by cluster: its row stays in the cache while the items go by.
        for k in range(slots.n):
            for m in range(items.n):
                slot = as_indices(slots.at + k, 1)
                self.log_predictive_many(slot, items.at[m], out + k * items.n + m)

    # Overridden by likelihoods with hyperparameters that can be learned. Those that override
    # `resample_hyperparameters` need no log marginal likelihoods under other ones.

    cdef double log_marginal_at(self, Py_ssize_t slot, const double* hyper) noexcept nogil:
        """`log_marginal` under other hyperparameters, from the statistics alone."""
        return NAN

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """log p(X | partition) of the clusters in `slots` under other hyperparameters, as a
        function of hyper[h]: terms without it may be left out."""
        cdef double total = 0.0
        for k in range(slots.n):
            total += self.log_marginal_at(slots.at[k], hyper)
        return total

    cdef int tally_slots(self, slots) except -1:
        """Prepare `log_likelihood_at` of clusters in these slots, which are all, if need be."""

    cdef int retabulate(self) except -1:
        """Update everything that depends on `hyper`, including the empty row but not the rows.
        Tables that kernels share do not change: this kernel allocates new ones."""
        raise NotImplementedError(f"{type(self).__name__} must implement `retabulate`")

    # The Python boundary: chain states, scoring, predictions.

    def bind_labels(self, Py_ssize_t[::1] labels):
        """Bind the array from which the model reads the slot of each item, -1 or less if it is in
        no cluster. A kernel with independent clusters reads it only to draw hyperparameters."""
        self._labels_owner = labels
        self.n_labels = labels.shape[0]
        self.labels = &labels[0] if labels.shape[0] else NULL
        if not self.factorizes:
            self.moving = <Py_ssize_t*>self.resized(self.moving, self.n_labels, sizeof(Py_ssize_t))

    def dump(self, slots, bint cached=False):
        """Statistics of the given slots, (len(slots), n_stats); with `cached`, followed by the
        cached terms, (len(slots), width)."""
        cdef Py_ssize_t width = self.width if cached else self.n_stats
        cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef double[:, ::1] stats = np.empty((slots_view.shape[0], width))
        self.settle()
        for k in range(slots_view.shape[0]):
            if not 0 <= slots_view[k] < self.n_slots:
                raise IndexError(f"slot {slots_view[k]} of {self.n_slots}")
            if cached:
                memcpy(&stats[k, 0], row(self, slots_view[k]), width * sizeof(double))
            else:
                self.pack(slots_view[k], &stats[k, 0])
        return np.asarray(stats)

    def load(self, stats, slots=None, free_slots=None):
        """Replace all clusters by those of `stats` (from `dump`).

        - `stats`: (K, n_stats) or (K, width)
        - `slots`: (m,), m >= K. Slots of the clusters; slots after the first K become empty
          clusters. None: 0, ..., K, with an empty cluster in the last.
        - `free_slots`: ndarray of int. All other slots, the last acquired first. None: no others.
        """
        cdef const double[:, ::1] view = np.ascontiguousarray(stats, dtype=np.float64)
        cdef Py_ssize_t n_rows = view.shape[0], width = view.shape[1]
        if width != self.n_stats and width != self.width:
            raise ValueError(
                f"statistics have {width} doubles, expected {self.n_stats} or {self.width}"
            )
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
                if width == self.width:
                    memcpy(row(self, slots_view[k]), &view[k, 0], width * sizeof(double))
                else:
                    self.unpack(slots_view[k], &view[k, 0])
                    self.refresh(slots_view[k])

    def log_marginals(self, stats):
        """log p(items) of clusters given by their statistics, (K, n_stats), less `log_constants`:
        ndarray (K,)."""
        cdef const double[:, ::1] view = np.ascontiguousarray(stats, dtype=np.float64)
        if view.shape[1] != self.n_stats:
            raise ValueError(f"statistics have {view.shape[1]} doubles, expected {self.n_stats}")
        if self.n_free == 0:
            self.reserve(self.n_slots + 1)
        slot = self.acquire()
        cdef double[::1] out = np.empty(view.shape[0])
        for k in range(view.shape[0]):
            self.unpack(slot, &view[k, 0])
            self.refresh(slot)
            out[k] = self.log_marginal(slot)
        self.release(slot)
        return np.asarray(out)

    def clear(self, Py_ssize_t n_slots):
        """Remove all clusters; make room for `n_slots`. The lowest free slot is acquired first."""
        self.settle()
        self.reserve(n_slots)
        self.n_free = self.n_slots
        for slot in range(self.n_slots):
            self.free_slots[slot] = self.n_slots - 1 - slot

    def hyperparameters(self):
        """Values of the hyperparameters: ndarray of shape (n_hyper,)."""
        return np.array([self.hyper[h] for h in range(self.n_hyper)], dtype=np.float64)

    def named_hyperparameters(self):
        """Values of the hyperparameters by name: dict of ndarrays in the order of the vector."""
        flat, values, first = self.hyperparameters(), {}, 0
        while first < self.n_hyper:
            name = self.hyper_names[first]
            stop = first + self.hyper_names.count(name)
            values[name] = flat[first:stop]
            first = stop
        return values

    def set_hyperparameters(self, values):
        """Set the values of the hyperparameters, (n_hyper,); the clusters stay."""
        cdef bint finite = True, same = True
        cdef const double[::1] view = np.ascontiguousarray(values, dtype=np.float64)
        if view.shape[0] == self.n_hyper:
            for h in range(self.n_hyper):
                finite = finite and isfinite(view[h])
                same = same and view[h] == self.hyper[h]
        if view.shape[0] != self.n_hyper or not finite:
            raise ValueError(f"expected {self.n_hyper} finite hyperparameters, got {values!r}")
        if same:
            return
        self.settle()
        for h in range(self.n_hyper):
            self.hyper[h] = view[h]
        self.retabulate()
        if self.n_slots == self.n_free:
            return
        free_slots = np.zeros(self.n_slots, dtype=np.uint8)
        free_slots[self.free_list()] = 1
        cdef const unsigned char[::1] is_free = free_slots
        with nogil:
            for slot in range(self.n_slots):
                if not is_free[slot]:
                    self.refresh(slot)

    def hyper_period_of(self, name):
        """Number of iterations between draws of a hyperparameter."""
        return self.hyper_period

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """Draw the hyperparameters with `priors` (`Likelihood.learned_priors`) given the clusters
        in these slots, which are all, by a slice step for each. Returns the values of all,
        (n_hyper,). Raises FloatingPointError if the density of one is NaN."""
        cdef HyperSampler sampler = HyperSampler(self, slots)
        self.settle()
        self.tally_slots(slots)
        for name in priors:
            if name not in self.hyper_names:
                raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")
        for h in range(self.n_hyper):
            prior = priors.get(self.hyper_names[h])
            if prior is not None:
                sampler.draw(h, prior, bit_generator)
        self.set_hyperparameters(sampler.values)
        return self.hyperparameters()

    def free_list(self):
        """Free slots; the last one is acquired first."""
        return np.array([self.free_slots[k] for k in range(self.n_free)], dtype=np.intp)

    def log_predictive_rows(self, slots, Py_ssize_t first, Py_ssize_t stop):
        """log p(x_i | items of each slot) for the items first <= i < stop, with all constants:
        ndarray (len(slots), stop - first)."""
        cdef Py_ssize_t step = STRIP if self.factorizes else 1
        cdef const Py_ssize_t[::1] slots_view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef Py_ssize_t n_slots = slots_view.shape[0]
        if not 0 <= first <= stop <= self.n_samples:
            raise IndexError(f"items {first}:{stop} of {self.n_samples}")
        cdef double[:, ::1] out = np.empty((n_slots, stop - first))
        cdef Py_ssize_t[::1] items = np.arange(first, stop)
        cdef double[::1] some
        if stop == first or n_slots == 0:
            return np.asarray(out)
        some = np.empty(STRIP * n_slots)
        chosen = as_indices(&slots_view[0], n_slots)
        with nogil:
            for t in range((stop - first + step - 1) // step):
                i = t * step
                n = min(step, stop - first - i)
                if self.factorizes:
                    self.log_predictive_tile(chosen, as_indices(&items[i], n), &some[0])
                else:
                    self.log_predictive_many(chosen, items[i], &some[0])
                for k in range(n_slots):
                    for m in range(n):
                        out[k, i + m] = some[k * n + m] + log_constant(self, first + i + m)
        return np.asarray(out)


# All items of a coupled cluster, by their labels. The model writes into the labels here, which
# `bind_labels` has checked to be writable.

cdef Py_ssize_t list_items(ClusterModel self, Py_ssize_t slot) noexcept nogil:
    """List the items of a slot in `moving`. Returns their number."""
    cdef Py_ssize_t n_items = 0
    for i in range(self.n_labels):
        if self.labels[i] == slot:
            self.moving[n_items] = i
            n_items += 1
    return n_items


cdef void pull(ClusterModel self, Py_ssize_t slot, Py_ssize_t n_items) noexcept nogil:
    """Remove the listed items from their slot, one by one."""
    for m in range(n_items):
        (<Py_ssize_t*>self.labels)[self.moving[m]] = -1
        self.remove(slot, self.moving[m])


cdef double push(ClusterModel self, Py_ssize_t slot, Py_ssize_t n_items) noexcept nogil:
    """Add listed items, in no cluster, to a slot. Returns the change of log p(X | partition)."""
    cdef double total = 0.0
    for m in range(n_items):
        total += self.log_predictive(slot, self.moving[m])
        self.add(slot, self.moving[m])
        (<Py_ssize_t*>self.labels)[self.moving[m]] = slot
    return total


cdef class HyperSampler(SliceSampled):
    """Conditional laws of single hyperparameters of a kernel, in x = log(value - low): the
    hyperprior of (value - low) / unit on this scale, times the marginal likelihoods."""
    cdef ClusterModel model
    cdef const Py_ssize_t[::1] slots
    cdef readonly object values
    cdef double[::1] hyper                      # `values`
    cdef Py_ssize_t current                     # its number, with its hyperprior:
    cdef LogDensity density
    cdef double low, log_unit

    def __init__(self, ClusterModel model, slots):
        self.model = model
        self.slots = np.ascontiguousarray(slots, dtype=np.intp)
        self.values = model.hyperparameters()
        self.hyper = self.values

    cdef double log_density(self, double x) noexcept nogil:
        if not -700.0 < x < 700.0:
            return -INFINITY
        self.hyper[self.current] = self.low + exp(x)
        total = self.density.at(x - self.log_unit)
        if self.slots.shape[0] > 0:
            total += self.model.log_likelihood_at(
                as_indices(&self.slots[0], self.slots.shape[0]), &self.hyper[0], self.current
            )
        return total

    def draw(self, Py_ssize_t h, prior, bit_generator):
        """Draw the hyperparameter h under a prior given all others. Returns its value."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        self.density = prior.family.density
        self.low, self.log_unit = prior.low, log(prior.unit)
        self.current = h
        with bit_generator.lock, nogil:
            x = self.slice_step(log(self.hyper[h] - self.low), rng)
        self.hyper[h] = self.low + exp(x)
        if x != x:
            raise FloatingPointError(
                f"the density of the hyperparameter {self.model.hyper_names[h]!r} is NaN (its "
                f"value was {self.model.hyper[h]:g}); rescale the columns of X, or fix this "
                "parameter"
            )
        return self.hyper[h]
