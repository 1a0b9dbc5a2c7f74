# SPDX-License-Identifier: BSD-3-Clause
"""Columns in parts with separate likelihoods, independent given the clusters:

    p(X | partition) = prod_parts p_part(columns of the part | partition).

Row: the rows of the parts' kernels side by side, each with its statistics and then its cached
terms. The first number is the first part's count of items. `dump` and `load` (by `pack` and
`unpack`) and `ParametricProduct` have the statistics of the parts without cached terms in between.

Parts may be *selected*: with gamma_p = 0 the part has one law for all rows, in any cluster,

    p(X | partition, gamma) = prod_{gamma_p = 1} prod_c m_p(x_c) prod_{gamma_p = 0} m_p(x_all),

where m_p is the marginal likelihood of a part. gamma_p ~ Bernoulli(theta), theta ~ Beta(1, 1):

    odds of gamma_p = 1 given the rest = (1 + s) / (P - s) prod_c m_p(x_c) / m_p(x_all)

with s of the other P - 1 parts selected (Tadesse, Sha & Vannucci 2005). Densities of clusters are
those of the selected parts; `log_apart` and `log_apart_of` are those of the others. Statistics of
all parts are kept in every row. The row of all items is behind the last slot, in no slot itself.
"""
from libc.math cimport INFINITY, NAN, exp, log
from libc.string cimport memcmp, memcpy, memset

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer, bitgen_t, uniform
from skdpm.mixture.likelihoods.contract._base cimport STRIP, ClusterModel, Indices, as_indices, row
from skdpm.mixture.likelihoods.contract._parametric cimport TILE, ParametricModel

cdef enum:
    SOME = 32               # largest number of clusters that a part evaluates at a time
    MOST_COORDINATES = 64   # of a box

# Rounding may raise the log of a probability above 0, by far less than this.
cdef double ROUNDING = 1e-6

# Share of the iterations in which hyperparameters of a part that is not selected are drawn. They
# matter only when it is selected again.
cdef double OUTSIDE = 0.25


cdef class ProductModel(ClusterModel):
    """Kernel of clusters whose columns are in parts.

    - `parts`: Kernels bound to the same items. They belong to this kernel from now on.
    - `hyper_names`: Names of the hyperparameters of all parts.
    - `n_coordinates`: Number of coordinates of a box for each part; 0 if it has no bounds.
    - `discrete`: Whether the densities of each part are probabilities, and so at most 1.
    - `selected`: 1 for a part that is selected, 0 for the others: the last hyperparameters, with
      the name "selected". None: all are, and this is no question.
    - `places`: Position of each part in tuples of priors of hyperparameters of one name.
    """
    cdef Py_ssize_t n_parts
    cdef void** parts               # (n_parts,): ClusterModels, which `_owners` keeps alive
    cdef Py_ssize_t[::1] starts     # (n_parts + 1,): in a row, the first double of each part,
    cdef Py_ssize_t[::1] hyper_starts   # ... in all hyperparameters,
    cdef Py_ssize_t[::1] box_starts     # ... and among the coordinates of a box
    cdef Py_ssize_t[::1] discrete   # (n_parts,)
    cdef bint selects
    cdef Py_ssize_t[::1] active     # the first n_active: the selected parts
    cdef Py_ssize_t n_active
    cdef double[:, ::1] extremes    # (n_parts, 2): smallest and largest `log_constants`
    cdef double lowest_apart, highest_apart     # sums of these over the other parts
    cdef bint among_all             # whether the items are among those of the row of all items
    cdef tuple places
    cdef double[::1] own_constants  # (n_samples,): `constants`; empty unless they vary
    cdef double* more               # (n_most * STRIP,): densities of a part
    cdef Py_ssize_t n_most          # largest number of clusters evaluated together
    cdef tuple _owners

    def __init__(self, parts, hyper_names, n_coordinates, discrete, selected=None, places=None):
        cdef ClusterModel part
        self._owners = tuple(parts)
        self.n_parts = len(self._owners)
        self.parts = <void**>self.resized(NULL, self.n_parts, sizeof(void*))
        self.starts, self.hyper_starts, self.box_starts = np.zeros((3, self.n_parts + 1), np.intp)
        self.discrete = np.array(discrete, dtype=np.intp)
        self.active = np.empty(self.n_parts, dtype=np.intp)
        self.extremes = np.zeros((self.n_parts, 2))
        self.own_constants = np.empty(0)
        self.selects = self.keeps_all = selected is not None
        self.places = None if places is None else tuple(places)
        n_stats = 0
        values = []
        constants = None
        for p in range(self.n_parts):
            part = self._owners[p]
            if not part.factorizes:
                raise ValueError(f"{type(part).__name__}: clusters of a part must be independent")
            if p > 0 and part.n_samples != self.n_samples:
                raise ValueError(f"parts of {self.n_samples} and of {part.n_samples} items")
            self.parts[p] = <void*>part
            self.starts[p + 1] = self.starts[p] + part.width
            self.hyper_starts[p + 1] = self.hyper_starts[p] + part.n_hyper
            self.box_starts[p + 1] = self.box_starts[p] + n_coordinates[p]
            self.n_samples = part.n_samples
            self.n_max = part.n_max
            self.drifts = self.drifts or part.drifts
            self.constants_vary = self.constants_vary or part.constants_vary
            self.keeps_all = self.keeps_all or part.keeps_all
            n_stats += part.n_stats
            values.extend(part.hyperparameters())
            if part.log_constants is not None:
                if self.selects and part.n_samples > 0:
                    self.extremes[p, 0] = np.min(part.log_constants)
                    self.extremes[p, 1] = np.max(part.log_constants)
                constants = part.log_constants + (0.0 if constants is None else constants)
        if self.box_starts[self.n_parts] > MOST_COORDINATES:
            raise ValueError(f"boxes of {self.box_starts[self.n_parts]} coordinates")
        if self.selects:
            values.extend(selected)
        if len(hyper_names) != len(values):
            raise ValueError(f"{len(hyper_names)} names of {len(values)} hyperparameters")
        self.declare_hyperparameters(hyper_names, values)
        self.allocate(n_stats, self.starts[self.n_parts])
        self.take_empty()
        self.take_selected()
        if self.keeps_all:
            self.stats = <double*>self.resized(NULL, self.width, sizeof(double))
            self.prepare(0)
            self.place_parts()
        if self.selects:
            self.reset(0)
        if constants is not None:
            if self.constants_vary:
                self.own_constants = constants = np.array(constants)
            self.keep_log_constants(constants)
        self.declare_incomplete(np.concatenate([part.gap_items for part in self._owners]))

    def bind_labels(self, Py_ssize_t[::1] labels):
        ClusterModel.bind_labels(self, labels)
        for part in self._owners:
            part.bind_labels(labels)

    cdef void take_constants(self) noexcept nogil:
        """Add up the `log_constants` of the parts anew, if some have changed."""
        if self.own_constants.shape[0] == 0:
            return
        self.own_constants[:] = 0.0
        for p in range(self.n_parts):
            of_part = (<ClusterModel>self.parts[p]).constants
            if of_part == NULL:
                continue
            for i in range(self.n_samples):
                self.own_constants[i] += of_part[i]
            if self.selects and (<ClusterModel>self.parts[p]).constants_vary:
                self.extremes[p, :] = of_part[0]
                for i in range(1, self.n_samples):
                    self.extremes[p, 0] = min(self.extremes[p, 0], of_part[i])
                    self.extremes[p, 1] = max(self.extremes[p, 1], of_part[i])

    cdef void take_selected(self) noexcept nogil:
        """List the selected parts. `log_constants` has the terms of all parts, also in bounds."""
        self.n_active = 0
        self.lowest_apart = self.highest_apart = 0.0
        for p in range(self.n_parts):
            if self.is_selected(p):
                self.active[self.n_active] = p
                self.n_active += 1
            else:
                self.lowest_apart += self.extremes[p, 0]
                self.highest_apart += self.extremes[p, 1]

    cdef bint is_selected(self, Py_ssize_t p) noexcept nogil:
        """Whether a part is selected."""
        return not self.selects or self.hyper[self.hyper_starts[self.n_parts] + p] > 0.5

    def take_all(self, totals=None):
        """Set the row of all items from its statistics, if there are items beyond this kernel."""
        cdef const double[::1] view
        self.among_all = totals is None
        self.reset(self.n_slots)
        if totals is None:
            for i in range(self.n_samples):
                self.add(self.n_slots, i)
            self.settle()
        else:
            view = np.ascontiguousarray(totals, dtype=np.float64)
            self.unpack(self.n_slots, &view[0])
            self.refresh(self.n_slots)

    def all_items(self):
        """Statistics of the row of all items: ndarray of shape (n_stats,)."""
        cdef double[::1] totals = np.empty(self.n_stats)
        self.settle()
        self.pack(self.n_slots, &totals[0])
        return np.asarray(totals)

    cdef double log_apart(self) noexcept nogil:
        cdef double total = 0.0
        if self.keeps_all:
            self.settle()
        for p in range(self.n_parts if self.keeps_all else 0):
            if self.is_selected(p):
                total += (<ClusterModel>self.parts[p]).log_apart()
            else:
                total += (<ClusterModel>self.parts[p]).log_marginal(self.n_slots)
        return total

    cdef double log_apart_of(self, Py_ssize_t i) noexcept nogil:
        cdef double total = 0.0
        for p in range(self.n_parts if self.keeps_all else 0):
            if self.is_selected(p):
                total += (<ClusterModel>self.parts[p]).log_apart_of(i)
                continue
            if self.among_all:
                (<ClusterModel>self.parts[p]).remove(self.n_slots, i)
            total += (<ClusterModel>self.parts[p]).log_predictive(self.n_slots, i)
            if self.among_all:
                (<ClusterModel>self.parts[p]).add(self.n_slots, i)
        return total

    cdef void take_empty(self) noexcept nogil:
        for p in range(self.n_parts):
            memcpy(
                self.empty + self.starts[p], (<ClusterModel>self.parts[p]).empty,
                (<ClusterModel>self.parts[p]).width * sizeof(double),
            )

    # Slots: those of the parts are this kernel's.

    cdef int prepare(self, Py_ssize_t n_slots) except -1:
        ClusterModel.prepare(self, n_slots)
        self.n_most = max(n_slots, self.n_most)
        self.more = <double*>self.resized(self.more, self.n_most * STRIP, sizeof(double))
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).prepare(n_slots + self.selects)

    cdef void place_parts(self) noexcept:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).place(
                self.stats + self.starts[p], self.stride, self.n_slots + self.selects
            )

    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept:
        if self.keeps_all and not self.placed:
            memcpy(stats + n_slots * stride, row(self, self.n_slots), self.width * sizeof(double))
        ClusterModel.place(self, stats, stride, n_slots)
        self.place_parts()

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        cdef Py_ssize_t n_before = self.n_slots
        if n_slots > n_before:
            ClusterModel.reserve(self, n_slots)
            if self.keeps_all:
                memcpy(row(self, n_slots), row(self, n_before), self.width * sizeof(double))
            # Parts have no list of free slots.
            for slot in range(n_before, n_slots):
                memcpy(row(self, slot), self.empty, self.width * sizeof(double))
            self.place_parts()

    cdef void release(self, Py_ssize_t slot) noexcept nogil:
        self.settle()     # no deferred work for a free slot
        ClusterModel.release(self, slot)

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).reset(slot)

    cdef void settle(self) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).settle()

    cdef void pack(self, Py_ssize_t slot, double* out) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).pack(slot, out)
            out += (<ClusterModel>self.parts[p]).n_stats

    cdef void unpack(self, Py_ssize_t slot, const double* stats) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).unpack(slot, stats)
            stats += (<ClusterModel>self.parts[p]).n_stats

    # Missing entries that a chain draws.

    def complete(self, values=None):
        for part in self._owners:
            n_values = part.n_gap_values
            part.complete(None if values is None else values[:n_values])
            values = None if values is None else values[n_values:]

    def completion(self):
        values = [part.completion() for part in self._owners if part.n_gap_values]
        return np.concatenate(values) if values else np.empty(0)

    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).open_gaps(i)

    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).close_gaps(i)

    cdef bint log_open_bound_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        cdef bint cheaper = slots.n == 0
        for k in range(slots.n):
            out[k] = 0.0
        for p in range(self.n_parts):
            if (<ClusterModel>self.parts[p]).log_open_bound_many(slots, i, self.more):
                cheaper = True
            else:
                (<ClusterModel>self.parts[p]).log_predictive_many(slots, i, self.more)
            for k in range(slots.n):
                out[k] += self.more[k]
        return cheaper

    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil:
        cdef bint good = True
        for p in range(self.n_parts):
            good &= (<ClusterModel>self.parts[p]).fill_gaps(slot, i, rng)
        return good

    cdef void read_gaps(self, Py_ssize_t i, double* completion) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).read_gaps(i, completion)
            completion += (<ClusterModel>self.parts[p]).n_gap_values

    cdef void write_gaps(self, Py_ssize_t i, const double* completion) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).write_gaps(i, completion)
            completion += (<ClusterModel>self.parts[p]).n_gap_values

    # Items and clusters.

    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).add(slot, i)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).remove(slot, i)

    cdef void refresh(self, Py_ssize_t slot) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).refresh(slot)

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        for p in range(self.n_parts):
            (<ClusterModel>self.parts[p]).merge(dst, src)

    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil:
        cdef double total = 0.0
        for q in range(self.n_active):
            total += (<ClusterModel>self.parts[self.active[q]]).log_marginal(slot)
        return total

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        memset(out, 0, slots.n * sizeof(double))
        for q in range(self.n_active):
            (<ClusterModel>self.parts[self.active[q]]).log_predictive_many(slots, i, self.more)
            for k in range(slots.n):
                out[k] += self.more[k]

    cdef void log_predictive_tile(self, Indices slots, Indices items, double* out) noexcept nogil:
        memset(out, 0, slots.n * items.n * sizeof(double))
        for q in range(self.n_active):
            (<ClusterModel>self.parts[self.active[q]]).log_predictive_tile(slots, items, self.more)
            for k in range(slots.n * items.n):
                out[k] += self.more[k]

    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil:
        """Each part may acquire one free slot, which it gets from this kernel."""
        cdef Py_ssize_t scratch = self.acquire()
        memset(out, 0, slots.n * sizeof(double))
        for q in range(self.n_active):
            p = self.active[q]
            (<ClusterModel>self.parts[p]).free_slots[0] = scratch
            (<ClusterModel>self.parts[p]).n_free = 1
            (<ClusterModel>self.parts[p]).log_merge_many(slots, src, self.more)
            for k in range(slots.n):
                out[k] += self.more[k]
            (<ClusterModel>self.parts[p]).n_free = 0
        self.release(scratch)

    # Boxes. Each part gets its coordinates. If it has none, its probabilities are bounded by 1,
    # and its kernel, which may have bounds for other rows, is not called.

    cdef void part_box(self, Py_ssize_t p, const double* box, double* out) noexcept nogil:
        cdef Py_ssize_t first = self.box_starts[p]
        cdef Py_ssize_t n = self.box_starts[p + 1] - first
        memcpy(out, box + first, n * sizeof(double))
        memcpy(out + n, box + self.box_starts[self.n_parts] + first, n * sizeof(double))

    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box, double* out
    ) noexcept nogil:
        cdef double part[2 * MOST_COORDINATES]
        for k in range(slots.n):
            out[k] = self.highest_apart
        for q in range(self.n_active):
            p = self.active[q]
            if self.box_starts[p + 1] == self.box_starts[p]:
                above = ROUNDING if self.discrete[p] else INFINITY
                for k in range(slots.n):
                    out[k] += above
                continue
            self.part_box(p, box, part)
            (<ClusterModel>self.parts[p]).log_predictive_bound_many(slots, part, self.more)
            for k in range(slots.n):
                out[k] += self.more[k]

    cdef double log_predictive_floor(self, Py_ssize_t slot, const double* box) noexcept nogil:
        cdef double part[2 * MOST_COORDINATES]
        cdef double total = self.lowest_apart
        for q in range(self.n_active):
            p = self.active[q]
            if self.box_starts[p + 1] == self.box_starts[p]:
                return -INFINITY
            self.part_box(p, box, part)
            total += (<ClusterModel>self.parts[p]).log_predictive_floor(slot, part)
        return total

    # Hyperparameters: side by side, then which parts are selected.

    cdef int retabulate(self) except -1:
        cdef ClusterModel part
        for p in range(self.n_parts):
            part = <ClusterModel>self.parts[p]
            if part.n_hyper > 0:
                n_bytes = part.n_hyper * sizeof(double)
                # Tables of the same values may have other digits: selection leaves them.
                if self.selects and not memcmp(
                    part.hyper, self.hyper + self.hyper_starts[p], n_bytes
                ):
                    continue
                memcpy(part.hyper, self.hyper + self.hyper_starts[p], n_bytes)
                part.retabulate()
        self.take_empty()
        self.take_constants()
        self.take_selected()
        if self.selects:
            self.refresh(self.n_slots)

    def hyper_period_of(self, name):
        """The period of the hyperparameter's part: a slow part must not slow down the others."""
        cdef ClusterModel part
        for p in range(self.n_parts):
            part = <ClusterModel>self.parts[p]
            for h in range(part.n_hyper):
                if self.hyper_names[self.hyper_starts[p] + h] == name:
                    return part.hyper_period_of(part.hyper_names[h])
        if self.selects and name == "selected":
            return 1
        raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """First which parts are selected, then part by part, as each does. If several parts have
        a hyperparameter under one name, `priors` has a tuple of their priors."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef ClusterModel part
        self.settle()
        for name in priors:
            if name not in self.hyper_names:
                raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")
        if self.selects and "selected" in priors:
            self.select(slots, bit_generator)
        everything = np.array([self.n_slots])
        for p in range(self.n_parts):
            part = <ClusterModel>self.parts[p]
            own = self.priors_of(p, priors)
            if not own or (not self.is_selected(p) and uniform(rng) > OUTSIDE):
                continue
            # The part refreshes rows in use, so it needs the free slots.
            memcpy(part.free_slots, self.free_slots, self.n_free * sizeof(Py_ssize_t))
            part.n_free = self.n_free
            try:
                part.resample_hyperparameters(
                    slots if self.is_selected(p) else everything, own, bit_generator
                )
            finally:
                part.n_free = 0
            memcpy(self.hyper + self.hyper_starts[p], part.hyper, part.n_hyper * sizeof(double))
        self.take_empty()
        if self.own_constants.shape[0] > 0:
            self.take_constants()
            self.take_selected()
        return self.hyperparameters()

    cdef dict priors_of(self, Py_ssize_t p, priors):
        """Priors of the hyperparameters of a part, by their names in the part. Without `places`, a
        tuple belongs to parts of the part."""
        cdef ClusterModel part = <ClusterModel>self.parts[p]
        own = {}
        for h in range(part.n_hyper):
            prior = priors.get(self.hyper_names[self.hyper_starts[p] + h])
            if prior is not None:
                if self.places is not None and isinstance(prior, tuple):
                    prior = prior[self.places[p]]
                own[part.hyper_names[h]] = prior
        return own

    cdef int select(self, slots, bit_generator) except -1:
        """Draw, part after part, whether it is selected, given everything else."""
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef double* gamma = self.hyper + self.hyper_starts[self.n_parts]
        cdef ClusterModel part
        cdef Py_ssize_t others = self.n_active
        with bit_generator.lock:
            for p in range(self.n_parts):
                others -= gamma[p] > 0.5
                # log p(part | its rows in clusters) - log p(part | one law for all rows).
                part = <ClusterModel>self.parts[p]
                log_gain = -part.log_marginal(self.n_slots)
                for k in range(view.shape[0]):
                    log_gain += part.log_marginal(view[k])
                log_odds = log((1.0 + others) / (self.n_parts - others)) + log_gain
                if log_odds != log_odds:
                    raise FloatingPointError(
                        f"the density of part {p} is not a number; rescale the columns of X"
                    )
                gamma[p] = uniform(rng) < 1.0 / (1.0 + exp(-log_odds))
                others += gamma[p] > 0.5
        self.take_selected()


cdef class ParametricProduct(ParametricModel):
    """Rows whose columns are in parts, under drawn parameters of each: side by side. `parts` are
    kernels bound to the same rows."""
    cdef Py_ssize_t n_parts
    cdef void** parts               # (n_parts,): ParametricModels, which `_owners` keeps alive
    cdef Py_ssize_t[::1] numbers    # (SOME,): 0, 1, ...
    cdef double[::1] own            # (SOME, n_params) of a part
    cdef double[::1] more           # (SOME, TILE)
    cdef tuple _owners

    def __init__(self, parts):
        cdef ParametricModel part
        self._owners = tuple(parts)
        self.n_parts = len(self._owners)
        self.parts = <void**>self.resized(NULL, self.n_parts, sizeof(void*))
        most = 0
        for p in range(self.n_parts):
            part = self._owners[p]
            self.parts[p] = <void*>part
            self.n_samples = part.n_samples
            self.n_stats += part.n_stats
            self.n_params += part.n_params
            most = max(most, part.n_params)
        self.numbers = np.arange(SOME)
        self.own = np.empty(SOME * most)
        self.more = np.empty(SOME * TILE)

    cdef void draw_params(
        self, const double* stats, double power, double* params, bitgen_t* rng
    ) noexcept nogil:
        cdef double* own = params
        cdef bint good = True
        for p in range(self.n_parts):
            (<ParametricModel>self.parts[p]).draw_params(stats, power, own, rng)
            good = good and own[0] - own[0] == 0.0
            stats += (<ParametricModel>self.parts[p]).n_stats
            own += (<ParametricModel>self.parts[p]).n_params
        if not good:
            params[0] = NAN

    cdef void log_density_many(
        self, Indices items, const double* params, Indices which, double* out
    ) noexcept nogil:
        cdef Py_ssize_t start = 0
        for p in range(self.n_parts):
            n_own = (<ParametricModel>self.parts[p]).n_params
            for j in range((which.n + SOME - 1) // SOME):
                first = j * SOME
                n = min(<Py_ssize_t>SOME, which.n - first)
                for k in range(n):
                    memcpy(
                        &self.own[k * n_own], params + which.at[first + k] * self.n_params + start,
                        n_own * sizeof(double),
                    )
                some = out + first * TILE
                (<ParametricModel>self.parts[p]).log_density_many(
                    items, &self.own[0], as_indices(&self.numbers[0], n),
                    some if p == 0 else &self.more[0]
                )
                if p > 0:
                    for k in range(n):
                        for i in range(items.n):
                            some[k * TILE + i] += self.more[k * TILE + i]
            start += n_own

    cdef void accumulate(self, double* stats, Indices items) noexcept nogil:
        for p in range(self.n_parts):
            (<ParametricModel>self.parts[p]).accumulate(stats, items)
            stats += (<ParametricModel>self.parts[p]).n_stats

    cdef void combine(self, double* stats, const double* other) noexcept nogil:
        for p in range(self.n_parts):
            (<ParametricModel>self.parts[p]).combine(stats, other)
            stats += (<ParametricModel>self.parts[p]).n_stats
            other += (<ParametricModel>self.parts[p]).n_stats
