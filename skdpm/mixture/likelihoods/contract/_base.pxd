# SPDX-License-Identifier: BSD-3-Clause
from skdpm._core._memory cimport Indices, MemoryOwner, as_indices


cdef class ClusterModel(MemoryOwner):
    """Sufficient statistics of clusters, each one row ("slot") of an arena of doubles.

    A row holds `n_stats` doubles that determine the cluster, then terms cached from them. The
    first statistic of every row is the number of its items.
    """
    cdef readonly Py_ssize_t n_samples      # number of items
    cdef readonly Py_ssize_t n_max          # largest number of items of a cluster
    cdef readonly Py_ssize_t n_slots        # rows in the arena
    cdef readonly Py_ssize_t n_free         # rows not in use
    cdef readonly Py_ssize_t n_stats
    cdef readonly Py_ssize_t width          # doubles per row
    cdef readonly bint factorizes           # p(X | partition) = prod_k exp(log_marginal(k))
    cdef readonly bint drifts               # add and remove have rounding errors
    cdef readonly bint constants_vary       # `constants` depend on hyperparameters
    cdef readonly tuple hyper_names         # of each hyperparameter; a vector repeats its name
    cdef readonly Py_ssize_t n_hyper
    cdef readonly Py_ssize_t hyper_period   # iterations between draws of hyperparameters
    cdef double* hyper                      # (n_hyper,): their values
    cdef double* stats                      # (n_slots, stride)
    cdef Py_ssize_t stride                  # doubles from a row to the next: width, or more if
    cdef bint placed                        # ... the rows are inside those of another model
    cdef bint keeps_all                     # the row behind the last slot has all items
    cdef double* empty                      # (width,): the row of a cluster with no items
    cdef Py_ssize_t* free_slots             # (n_slots,): the first n_free are the rows not in use
    cdef const double* constants            # (n_samples,): see `keep_log_constants`; NULL: zeros
    cdef const Py_ssize_t* labels           # (n_labels,) slot of each item, -1 while detached
    cdef Py_ssize_t n_labels                # 0 until bound
    cdef Py_ssize_t* moving                 # (n_labels,): scratch, if clusters are coupled
    # Items with missing entries that a chain draws (see _gaps); NULL: none.
    cdef readonly Py_ssize_t n_incomplete
    cdef readonly Py_ssize_t n_gap_values   # missing entries of all of them
    cdef const Py_ssize_t* incomplete       # (n_incomplete,)
    cdef const unsigned char* has_gaps      # (n_samples,): whether each item is one of these
    cdef public bint bounds_rest            # `open_rest` is overridden; False: do not use it
    cdef public bint finds_near             # the same of `find_near`
    # Number of items whose turn to move comes next, the present one first: these, or if that is
    # NULL the present one and its successors. 0: unknown.
    cdef Py_ssize_t n_coming
    cdef const Py_ssize_t* coming           # (n_coming,)
    cdef object _labels_owner, _constants_owner, _gaps_owner

    # Slots. Not overridden.
    cdef int allocate(self, Py_ssize_t n_stats, Py_ssize_t width) except -1
    cdef int declare_hyperparameters(self, names, values) except -1
    cdef int declare_incomplete(self, gap_items) except -1
    cdef void place(self, double* stats, Py_ssize_t stride, Py_ssize_t n_slots) noexcept
    cdef int prepare(self, Py_ssize_t n_slots) except -1
    cdef int reserve(self, Py_ssize_t n_slots) except -1
    cdef Py_ssize_t acquire(self) noexcept nogil
    cdef void release(self, Py_ssize_t slot) noexcept nogil
    cdef void reset(self, Py_ssize_t slot) noexcept nogil
    # The n_stats statistics of a row, adjacent. Overridden if cached terms are between them.
    cdef void pack(self, Py_ssize_t slot, double* out) noexcept nogil       # OUT (n_stats,)
    cdef void unpack(
        self, Py_ssize_t slot, const double* stats                          # IN (n_stats,)
    ) noexcept nogil
    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil
    cdef void rebuild(self, Py_ssize_t slot, Indices items) noexcept nogil
    cdef double log_predictive(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    # Stored clusters. If clusters are coupled, all three may be overridden together, for speed.
    cdef Py_ssize_t stored_width(self, Py_ssize_t n_slots) noexcept nogil
    cdef void store(self, Indices slots, double* out) noexcept nogil
    cdef void recall(
        self, Indices slots, const double* stored, const Py_ssize_t* labels
    ) noexcept nogil

    # OUT: one number for each slot, (slots.n,), or for each slot and item, (slots.n, items.n).
    # A likelihood overrides these (`change`, or `add` and `remove` in place of it; if clusters are
    # coupled, `log_likelihood` in place of `log_marginal`), ...
    cdef void add(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil
    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil
    cdef void refresh(self, Py_ssize_t slot) noexcept nogil
    cdef double log_marginal(self, Py_ssize_t slot) noexcept nogil
    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil
    # ... these if the default does not hold, ...
    cdef double log_likelihood(self, Indices slots) noexcept nogil
    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil
    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil
    cdef void settle(self) noexcept nogil
    cdef double sum_constants(self, Py_ssize_t n_items) noexcept nogil
    cdef double log_apart(self) noexcept nogil
    cdef double log_apart_of(self, Py_ssize_t i) noexcept nogil
    cdef void log_predictive_bound_many(
        self, Indices slots, const double* box,     # IN: see `_culling`
        double* out
    ) noexcept nogil
    cdef double log_predictive_floor(
        self, Py_ssize_t slot, const double* box                            # IN: see `_culling`
    ) noexcept nogil
    cdef Py_ssize_t find_near(
        self, Indices slots, Py_ssize_t i, double* log_least, Py_ssize_t* near  # IN, spoilt; OUT
    ) noexcept nogil
    cdef void log_predictive_tile(self, Indices slots, Indices items, double* out) noexcept nogil
    # ... some of these seven if a chain draws missing entries or weights of rows, ...
    cdef void open_gaps(self, Py_ssize_t i) noexcept nogil
    cdef void close_gaps(self, Py_ssize_t i) noexcept nogil
    cdef bint log_open_bound_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil
    cdef double open_rest(
        self, Indices slots, Py_ssize_t own, Py_ssize_t i, const double* log_prior
    ) noexcept nogil
    # (`rng` is a bitgen_t*: packages with other likelihoods need no headers of numpy.)
    cdef bint fill_gaps(self, Py_ssize_t slot, Py_ssize_t i, void* rng) noexcept nogil
    cdef void read_gaps(
        self, Py_ssize_t i, double* completion          # INOUT (n_gap_values,)
    ) noexcept nogil
    cdef void write_gaps(
        self, Py_ssize_t i, const double* completion    # IN (n_gap_values,)
    ) noexcept nogil
    # ... these two if it has hyperparameters that can be learned, ...
    cdef double log_marginal_at(
        self, Py_ssize_t slot, const double* hyper      # IN (n_hyper,)
    ) noexcept nogil
    cdef int retabulate(self) except -1
    # ... and these two if the default is slow, or clusters are coupled.
    cdef int tally_slots(self, slots) except -1
    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper,       # IN (n_hyper,)
        Py_ssize_t h
    ) noexcept nogil


cdef enum:
    STRIP = 32      # largest number of items for `log_predictive_tile`


cdef inline double log_constant(ClusterModel model, Py_ssize_t i) noexcept nogil:
    """The term of log p(x_i) that rows and densities leave out."""
    return model.constants[i] if model.constants != NULL else 0.0


cdef inline double* row(ClusterModel model, Py_ssize_t slot) noexcept nogil:
    return model.stats + slot * model.stride


cdef inline const double* read_row(ClusterModel model, Py_ssize_t slot) noexcept nogil:
    """`row`, for readers."""
    return row(model, slot)
