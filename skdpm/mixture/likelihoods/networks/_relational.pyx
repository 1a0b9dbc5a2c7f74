# SPDX-License-Identifier: BSD-3-Clause
"""Infinite relational models: links between items depend on the clusters of both.

Links between the items of clusters k and l are counted in one *cell*: all ordered (k, l) if links
are directed, k <= l otherwise. A model is the law of a cell with m links among e pairs:

    RelationalModel, links are Bernoulli(theta_kl), theta_kl ~ Beta(a, b):
        B(a + m, b + e - m) / B(a, b)
    DegreeCorrectedModel, numbers of links are Poisson with the rate eta_kl ~ Gamma(a, rate b):
        b^a (a)_m / (b + e)^(a + m),

where (z)_m = Gamma(z + m) / Gamma(z). p(X | partition) is the product over cells, times factors of
degrees in the second model. Unobserved pairs are not counted. An item i with s_l links to and e_l
pairs with the items of cluster l joins k with the probability

    prod_l cell(m_kl + s_l, e_kl + e_l) / cell(m_kl, e_kl).

A row of the arena is only the size of its cluster; the counts of cells are two matrices over
slots, multiples of 1/2, so they have no rounding errors.

Links may have weights. Given the links, those of a cell are one cluster of another likelihood of
one column (Peixoto 2018), so its kernel has their law: the law of a cell is multiplied by
`log_marginal_at` of its number of links and of the sum and the sum of squares of their weights,
two more matrices over slots.

Degree correction (Karrer & Newman 2011, in the collapsed form of Herlau, Schmidt & Morup 2014):
X_ij ~ Poisson(theta_i theta_j eta_kl) links of items i < j of clusters k and l, and of an item
with itself Poisson(theta_i^2 eta_kk / 2), where the propensities theta of the n_k items of a
cluster are n_k times Dirichlet(gamma, ..., gamma). So e_kl = n_k n_l, and e_kk = n_k^2 / 2: an
item brings half a pair with itself. With d_i ends of links at an item, d_k at a cluster,

    p(X | partition) = prod_i (gamma)_{d_i} prod_k n_k^{d_k} / (n_k gamma)_{d_k}
                       prod_{k <= l} cell(m_kl, e_kl) / multiplicities,

where the multiplicities are prod_{i < j} X_ij! prod_i 2^X_ii X_ii!. If links are directed, an item
has two propensities and an end of each link is of one kind: there are two factors of degrees, an
item brings one pair with itself, e_kk = n_k^2, and X_ii is one link.

The sum of propensities is fixed for a cluster with all its items. So the law of fewer items is not
the marginal of the law of more items: `log_predictive_many` is the ratio of the two, and its
factors (gamma)_{d_i} have the degrees with all items of `fit`.
"""
from libc.math cimport NAN, ceil, log, log1p

import numpy as np

from skdpm._core._math cimport CountTable, count_table, fill_log_gamma, log_gamma, log_rising_count
from skdpm.mixture.likelihoods.contract._base cimport (
    ClusterModel, Indices, as_indices, log_constant, row,
)


cdef enum:
    OWN_TABLE = 4096        # entries of the tables of hyperparameters that are learned
    # Learning takes a quarter of a sweep over so many items; both grow with pairs of clusters.
    LEARNING_ITEMS = 350
    MOST_PERIOD = 5

PREFIX = "weights__"        # of the names of hyperparameters of weights


def apart(values):
    """What belongs to hyperparameters of links, and of weights, by name: two dicts."""
    of_weights = [name for name in values if name.startswith(PREFIX)]
    return (
        {name: values[name] for name in values if name not in of_weights},
        {name.removeprefix(PREFIX): values[name] for name in of_weights},
    )


cdef const int* first_of(const int[::1] numbers) except? NULL:
    """The first of some numbers; NULL: there are none."""
    return &numbers[0] if numbers.shape[0] else NULL


cdef class LinkModel(ClusterModel):
    """Base class of the kernels: counts of cells, for any law of a cell (`log_cell`).

    `tables` has `n_max`, `gamma_a`, log Gamma(a + m), m = 0, 1, ..., and others. `data` has

    - `shape`: (n_samples, n_columns). Items of this model and items that they link to.
    - `out`: (links, holes), each (indptr, indices), CSR over items and columns: items to which
      each item has a link, and with which its pair is unobserved, without the diagonal.
    - `in`: The same for incoming links, if directed. None: undirected, or unknown for new items.
    - `weights`: None, or a dict: `of_links`, the weight of each listed link of `out` and of `in`,
      and `of_selves`, that of the link of each item with itself (-1: none), as positions in
      `values`, (n,), the entries of the kernel of the weights less an origin; and `centred`,
      whether its statistics are n, n, their mean and sum of squares about it (`Gaussian`), or
      those of `_counts`.
    """
    cdef Py_ssize_t n_columns
    cdef bint directed, incoming
    cdef const int* link_start[2]       # out, in
    cdef const int* link_item[2]
    cdef const double* link_count[2]    # number of links of each listed item; NULL: one
    cdef const int* hole_start[2]
    cdef const int* hole_item[2]
    cdef const double* self_links       # (n_samples,): links of items with themselves; NULL: none
    cdef double self_pairs              # number of pairs of an item with itself
    cdef ClusterModel weights           # None: links have no weights
    cdef const double* values           # of the weights
    cdef const int* link_weight[2]
    cdef const int* self_weight         # NULL: links of items with themselves do not count
    cdef bint centred
    cdef Py_ssize_t n_parts             # numbers of a cell: 2, or 4 with weights
    cdef double[:, :, ::1] matrices     # (n_parts, n_slots, n_slots):
    cdef double* n_links                # m_kl; symmetric if undirected
    cdef double* n_pairs                # e_kl
    cdef double[:, :, ::1] of_item      # (n_parts, 2, n_slots), of the item in `counted`:
    cdef double* linked[2]              # (n_slots,): s_l
    cdef double* observed[2]            # (n_slots,): e_l
    cdef double[4] of_self              # its numbers of links and pairs with itself, and sums
    cdef double log_of_weights          # sum of the terms of its weights that no cell changes
    cdef Py_ssize_t counted             # the item whose links were counted last, or -1
    # Slots with items, ascending: sums do not depend on their history. Cells of others are zero.
    cdef Py_ssize_t[::1] live           # the first n_live
    cdef Py_ssize_t n_live, n_tables
    cdef CountTable gamma[3]            # log Gamma(a + m), and others for b and a + b if needed
    cdef double[:, ::1] own             # tables for hyperparameters that have changed
    # Cells with pairs, listed for a slice step: links and pairs.
    cdef Py_ssize_t n_cells
    cdef double[:, ::1] cells           # (n_parts, n_slots^2)
    cdef Py_ssize_t n_own               # hyperparameters before those of the weights
    cdef object _owners

    cdef double log_cell(self, double n_links, double n_pairs) noexcept nogil:
        """log of the law of a cell, up to a constant common to all cells."""
        return NAN

    cdef int take_links(self, data, tables, bint directed, weights) except -1:
        """Keep pointers to the links of all items, and the kernel of their weights."""
        cdef const double[::1] values
        cdef Py_ssize_t side
        self.factorizes = False
        self.n_samples, self.n_columns = data["shape"]
        self.n_max = tables["n_max"]
        self.directed = directed
        self.incoming = data["in"] is not None
        self.counted = -1
        self._owners = (data, tables)
        for side, parts in enumerate((data["out"], data["in"])):
            if parts is None:
                continue
            (start, links), (hole_start, holes) = parts
            self.link_start[side], self.link_item[side] = first_of(start), first_of(links)
            self.hole_start[side], self.hole_item[side] = first_of(hole_start), first_of(holes)
        self.weights = weights
        self.n_parts = 2
        if weights is not None:
            self.n_parts = 4
            self.drifts = self.centred = data["weights"]["centred"]
            values = data["weights"]["values"]
            self.values = &values[0]
            for side, listed in enumerate(data["weights"]["of_links"]):
                self.link_weight[side] = first_of(listed)
            self.self_weight = first_of(data["weights"]["of_selves"])
            weights.clear(1)

    cdef int declare_own(self, tuple names, tuple values) except -1:
        """Declare these hyperparameters and those of the weights."""
        self.n_own = len(names)
        if self.weights is not None:
            names += tuple([PREFIX + name for name in self.weights.hyper_names])
            values += tuple(self.weights.hyperparameters())
        return self.declare_hyperparameters(names, values)

    cdef double table_shift(self, Py_ssize_t t) noexcept nogil:
        """a, b or a + b: the shift of the counts of a table."""
        return self.hyper[t] if t < 2 else self.hyper[0] + self.hyper[1]

    cdef int take_tables(self, tables, names) except -1:
        """Keep the tables of log Gamma, once hyperparameters are declared."""
        self.n_tables = len(names)
        for t in range(self.n_tables):
            self.gamma[t] = count_table(tables[names[t]], self.table_shift(t))

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        """Also grow the matrices over slots."""
        cdef Py_ssize_t old = self.n_slots
        if n_slots <= old:
            return 0
        ClusterModel.reserve(self, n_slots)
        matrices = np.zeros((self.n_parts, n_slots, n_slots))
        live = np.empty(n_slots, dtype=np.intp)
        if old > 0:
            matrices[:, :old, :old] = self.matrices
            live[:old] = self.live
        self.matrices, self.live = matrices, live
        self.n_links, self.n_pairs = &self.matrices[0, 0, 0], &self.matrices[1, 0, 0]
        for k in range(old, n_slots):
            row(self, k)[0] = 0.0
        self.of_item = np.empty((self.n_parts, 2, n_slots))
        for side in range(2):
            self.linked[side] = &self.of_item[0, side, 0]
            self.observed[side] = &self.of_item[1, side, 0]
        self.counted = -1

    cdef void set_size(self, Py_ssize_t slot, double size) noexcept nogil:
        """Set the size of a cluster; it is listed while that is not zero."""
        cdef Py_ssize_t m = 0
        cdef bint was_live = row(self, slot)[0] > 0.0
        row(self, slot)[0] = size
        if was_live == (size > 0.0):
            return
        if was_live:
            while self.live[m] != slot:     # ends: the slot is listed
                m += 1
            self.n_live -= 1
            for m in range(m, self.n_live):
                self.live[m] = self.live[m + 1]
            return
        m = self.n_live
        while m > 0 and self.live[m - 1] > slot:
            self.live[m] = self.live[m - 1]
            m -= 1
        self.live[m] = slot
        self.n_live += 1

    cdef void count(self, Py_ssize_t i) noexcept nogil:
        """Links and pairs of item i, which is in no cluster, with every slot that has items.

        Valid until the label of another item changes; each change recounts its item.
        """
        cdef Py_ssize_t side
        if self.counted == i:
            return
        self.counted = i
        self.of_self[0] = self.of_self[2] = self.of_self[3] = self.log_of_weights = 0.0
        self.of_self[1] = self.self_pairs
        if self.self_pairs > 0.0:
            self.of_self[0] = self.self_links[i]
            if self.weights is not None and self.self_weight[i] >= 0:
                self.count_weight(self.self_weight[i], self.of_self, 1)
        for side in range(2 if self.incoming else 1):
            for m in range(self.n_live):
                slot = self.live[m]
                self.linked[side][slot] = 0.0
                self.observed[side][slot] = row(self, slot)[0]
                if self.weights is not None:
                    self.of_item[2, side, slot] = self.of_item[3, side, slot] = 0.0
            times = self.link_count[side]
            for m in range(self.link_start[side][i], self.link_start[side][i + 1]):
                slot = self.labels[self.link_item[side][m]]
                if slot >= 0:
                    self.linked[side][slot] += 1.0 if times == NULL else times[m]
                    if self.weights is not None:
                        self.count_weight(
                            self.link_weight[side][m], self.linked[side] + slot, 2 * self.n_slots
                        )
            for m in range(self.hole_start[side][i], self.hole_start[side][i + 1]):
                slot = self.labels[self.hole_item[side][m]]
                if slot >= 0:
                    self.observed[side][slot] -= 1.0

    cdef void count_weight(
        self, Py_ssize_t v, double* numbers, Py_ssize_t step    # INOUT
    ) noexcept nogil:
        """Add a weight of the item in `counted` to the sums in a cell's numbers, `step` apart."""
        numbers[2 * step] += self.values[v]
        numbers[3 * step] += self.values[v] * self.values[v]
        self.log_of_weights += log_constant(self.weights, v)

    cdef void change(self, Py_ssize_t slot, Py_ssize_t i, double by) noexcept nogil:
        """Add the pairs of item i with all clusters to `slot`, or remove them."""
        cdef Py_ssize_t n = self.n_slots
        cdef const double* gains[2]
        self.count(i)
        for p in range(self.n_parts):
            cells = self.n_links + p * n * n
            gains[0], gains[1] = self.linked[0] + 2 * p * n, self.linked[1] + 2 * p * n
            for m in range(self.n_live):
                l = self.live[m]
                cells[slot * n + l] += by * gains[0][l]
                if self.directed:
                    cells[l * n + slot] += by * gains[1][l]
                elif l != slot:
                    cells[l * n + slot] = cells[slot * n + l]
            cells[slot * n + slot] += by * self.of_self[p]
        self.set_size(slot, row(self, slot)[0] + by)

    cdef void remove(self, Py_ssize_t slot, Py_ssize_t i) noexcept nogil:
        # The counts of links within the slot are those to its other items.
        row(self, slot)[0] -= 1.0
        self.counted = -1
        self.count(i)
        row(self, slot)[0] += 1.0
        self.change(slot, i, -1.0)

    cdef double log_likelihood(self, Indices slots) noexcept nogil:
        cdef double none = self.log_cell(0.0, 0.0)
        cdef double total = 0.0
        for k in range(slots.n):
            for l in range(0 if self.directed else k, slots.n):
                cell = slots.at[k] * self.n_slots + slots.at[l]
                total += self.log_whole(cell) - none
        return total + self.log_constants_of_weights()

    cdef double log_whole(self, Py_ssize_t cell) noexcept nogil:
        """log of the law of a cell and of the weights of its links."""
        cdef double total = self.log_cell(self.n_links[cell], self.n_pairs[cell])
        if self.weights is not None:
            total += self.log_weights(cell, self.of_self, 0)
        return total

    cdef double log_weights(
        self, Py_ssize_t cell, const double* gains, Py_ssize_t step     # IN
    ) noexcept nogil:
        """log of the law of the weights of a cell that gains numbers, `step` apart; 0: none."""
        cdef Py_ssize_t n = self.n_slots * self.n_slots
        cdef double links = self.n_links[cell]
        cdef double total = self.n_links[cell + 2 * n]
        cdef double squares = self.n_links[cell + 3 * n]
        if step > 0:
            links += gains[0]
            total += gains[2 * step]
            squares += gains[3 * step]
        if links == 0.0:
            return 0.0
        self.put_weights(0, links, total, squares)
        return self.weights.log_marginal_at(0, self.weights.hyper)

    cdef void put_weights(
        self, Py_ssize_t slot, double n, double total, double squares
    ) noexcept nogil:
        """Make n weights with these sums a cluster of their kernel."""
        cdef double* stats = self.weights.stats + slot * self.weights.stride
        stats[0] = stats[1] = n
        if self.centred:
            stats[2] = total / n
            stats[3] = max(0.0, squares - total * stats[2])
        else:
            stats[1] = stats[2] = 0.0
            stats[3] = total
            stats[4] = n

    cdef double log_constants_of_weights(self) noexcept nogil:
        """Sum of the terms of all weights, between items in clusters, that no cell changes."""
        cdef Py_ssize_t m
        cdef double total = 0.0, own = 0.0
        if self.weights is None:
            return 0.0
        for i in range(self.n_labels):
            if self.labels[i] < 0:
                continue
            for m in range(self.link_start[0][i], self.link_start[0][i + 1]):
                if self.labels[self.link_item[0][m]] >= 0:
                    total += log_constant(self.weights, self.link_weight[0][m])
            if self.self_weight[i] >= 0:
                own += log_constant(self.weights, self.self_weight[i])
        return own + (total if self.directed else 0.5 * total)

    # Hyperparameters.

    cdef int retabulate(self) except -1:
        """Tables for the most frequent counts; short, because they are filled for every value."""
        cdef Py_ssize_t size = min(self.gamma[0].size, OWN_TABLE)
        self.own = np.empty((self.n_tables, size))
        for t in range(self.n_tables):
            self.gamma[t].shift = self.table_shift(t)
            self.gamma[t].values = &self.own[t, 0]
            self.gamma[t].size = size
            with nogil:
                fill_log_gamma(&self.own[t, 0], size, self.gamma[t].shift)
        if self.weights is not None:
            self.weights.set_hyperparameters(self.hyperparameters()[self.n_own:])
            self.counted = -1

    def resample_hyperparameters(self, slots, priors, bit_generator):
        """Those of the weights are drawn by their kernel, whose clusters are the cells."""
        cdef Py_ssize_t n = 0
        own, of_weights = apart(priors)
        values = ClusterModel.resample_hyperparameters(self, slots, own, bit_generator)
        if not of_weights:
            return values
        self.weights.clear(self.n_cells + 1)
        for m in range(self.n_cells):
            if self.cells[0, m] > 0.0:
                self.put_weights(n, self.cells[0, m], self.cells[2, m], self.cells[3, m])
                n += 1
        drawn = self.weights.resample_hyperparameters(np.arange(n), of_weights, bit_generator)
        self.set_hyperparameters(np.concatenate([values[:self.n_own], drawn]))
        return self.hyperparameters()

    cdef int tally_slots(self, slots) except -1:
        """List the cells with pairs."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef Py_ssize_t n = view.shape[0]
        self.n_cells = 0
        self.cells = np.empty((self.n_parts, n * n))
        for k in range(n):
            for l in range(0 if self.directed else k, n):
                cell = view[k] * self.n_slots + view[l]
                if self.n_pairs[cell] > 0.0:
                    for p in range(self.n_parts):
                        self.cells[p, self.n_cells] = (&self.matrices[p, 0, 0])[cell]
                    self.n_cells += 1

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """Change of the log law of all cells if item i joins each slot, O(n_slots * n_live)."""
        cdef Py_ssize_t side
        cdef Py_ssize_t n = self.n_slots
        cdef double[4] within
        self.count(i)
        for k in range(slots.n):
            slot = slots.at[k]
            total = self.log_of_weights
            for p in range(self.n_parts):
                within[p] = self.of_self[p]
            for m in range(self.n_live):
                l = self.live[m]
                for side in range(2 if self.incoming else 1):
                    if l == slot:
                        # Both directions are in the same cell within the cluster.
                        for p in range(self.n_parts):
                            within[p] += self.linked[side][l + 2 * p * n]
                        continue
                    total += log_gain(
                        self, l * n + slot if side else slot * n + l, self.linked[side] + l, 2 * n
                    )
            if within[1] > 0.0:
                total += log_gain(self, slot * n + slot, within, 1)
            out[k] = total

    cdef void forget(self) noexcept nogil:
        """Remove all items and links from all slots."""
        for k in range(self.n_parts * self.n_slots * self.n_slots):
            self.n_links[k] = 0.0
        for k in range(self.n_slots):
            row(self, k)[0] = 0.0
        self.n_live = 0
        self.counted = -1

    # Clusters are coupled: a row cannot be copied without its cells, and a merge merges cells too.

    cdef void reset(self, Py_ssize_t slot) noexcept nogil:
        for m in range(self.n_live):
            l = self.live[m]
            for p in range(self.n_parts):
                self.matrices[p, slot, l] = self.matrices[p, l, slot] = 0.0
        self.set_size(slot, 0.0)
        self.counted = -1

    cdef void copy(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        row(self, dst)[0] = NAN

    cdef void merge(self, Py_ssize_t dst, Py_ssize_t src) noexcept nogil:
        for p in range(self.n_parts):
            self.merge_cells(&self.matrices[p, 0, 0], dst, src)
        self.set_size(dst, row(self, dst)[0] + row(self, src)[0])
        self.set_size(src, 0.0)
        self.counted = -1

    cdef void merge_cells(
        self, double* counts,       # INOUT (n_slots, n_slots)
        Py_ssize_t dst, Py_ssize_t src
    ) noexcept nogil:
        """Move the pairs of `src` to `dst`."""
        cdef Py_ssize_t n = self.n_slots
        cdef double* to = counts + dst * n
        cdef double* of = counts + src * n
        to[dst] += of[src] + of[dst]
        if self.directed:
            to[dst] += to[src]
        for m in range(self.n_live):
            l = self.live[m]
            if l != dst and l != src:
                to[l] += of[l]
                counts[l * n + dst] += counts[l * n + src]
            of[l] = counts[l * n + src] = 0.0

    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil:
        """Change of the log law of all cells for each slot, O(n_slots * n_live)."""
        cdef Py_ssize_t n = self.n_slots
        cdef Py_ssize_t of = src * n
        cdef double none = self.log_cell(0.0, 0.0)
        cdef double alone = 0.0
        cdef double[4] within
        for m in range(self.n_live):
            l = self.live[m]
            alone += self.log_whole(of + l) - none
            if self.directed and l != src:
                alone += self.log_whole(l * n + src) - none
        for k in range(slots.n):
            slot = slots.at[k]
            # The pairs between the two clusters move to the cell within the merged cluster.
            for p in range(self.n_parts):
                within[p] = self.matrices[p, src, src] + self.matrices[p, src, slot]
                if self.directed:
                    within[p] += self.matrices[p, slot, src]
            gain = log_gain(self, slot * n + slot, within, 1)
            for m in range(self.n_live):
                l = self.live[m]
                if l == slot or l == src:
                    continue
                gain += log_gain(self, slot * n + l, self.n_links + of + l, n * n)
                if self.directed:
                    gain += log_gain(self, l * n + slot, self.n_links + l * n + src, n * n)
            out[k] = gain - alone

    def bind_labels(self, Py_ssize_t[::1] labels):
        """Bind the array from which the model reads the slot of each item of the columns."""
        if labels.shape[0] != self.n_columns:
            raise ValueError(f"{labels.shape[0]} labels for {self.n_columns} columns")
        ClusterModel.bind_labels(self, labels)
        self.counted = -1

    def clear(self, Py_ssize_t n_slots):
        """Remove all clusters and their links."""
        ClusterModel.clear(self, n_slots)
        self.forget()

    # A stored cluster: its size, then links and pairs with each cluster, and perhaps sums.

    cdef Py_ssize_t stored_width(self, Py_ssize_t n_slots) noexcept nogil:
        return 1 + self.n_parts * n_slots

    cdef void store(self, Indices slots, double* out) noexcept nogil:
        for k in range(slots.n):
            out[0] = row(self, slots.at[k])[0]
            for p in range(self.n_parts):
                for l in range(slots.n):
                    out[1 + p * slots.n + l] = self.matrices[p, slots.at[k], slots.at[l]]
            out += self.stored_width(slots.n)

    cdef void recall(
        self, Indices slots, const double* stored, const Py_ssize_t* labels
    ) noexcept nogil:
        while self.n_live > 0:
            self.reset(self.live[self.n_live - 1])
        for k in range(slots.n):
            self.set_size(slots.at[k], stored[0])
            for p in range(self.n_parts):
                for l in range(slots.n):
                    self.matrices[p, slots.at[k], slots.at[l]] = stored[1 + p * slots.n + l]
            stored += self.stored_width(slots.n)

    def dump(self, slots, bint cached=False):
        """Sizes, then links, pairs and sums with each other slot: shape (K, stored_width(K))."""
        cdef const Py_ssize_t[::1] view = np.ascontiguousarray(slots, dtype=np.intp)
        cdef Py_ssize_t n = view.shape[0]
        cdef double[:, ::1] stats = np.empty((n, self.stored_width(n)))
        if n > 0:
            self.store(as_indices(&view[0], n), &stats[0, 0])
        return np.asarray(stats)

    def load(self, stats, slots=None, free_slots=None):
        """Replace all clusters by those of `stats` (from `dump`), as the base class does."""
        cdef const double[:, ::1] view = np.ascontiguousarray(stats, dtype=np.float64)
        cdef Py_ssize_t n = view.shape[0]
        if view.shape[1] != self.stored_width(n):
            expected = (n, self.stored_width(n))
            raise ValueError(f"statistics of shape {stats.shape}; expected {expected}")
        slots = np.arange(n + 1) if slots is None else slots
        cdef const Py_ssize_t[::1] at = np.ascontiguousarray(slots, dtype=np.intp)
        ClusterModel.load(self, stats[:, :1], slots, free_slots)
        self.forget()
        self.recall(as_indices(&at[0], n), &view[0, 0] if n > 0 else NULL, NULL)


cdef inline double log_gain(
    LinkModel model, Py_ssize_t cell, const double* gains, Py_ssize_t step      # IN
) noexcept nogil:
    """Change of the log law of a cell that gains numbers, `step` apart."""
    cdef double links = model.n_links[cell], pairs = model.n_pairs[cell]
    cdef double total = (
        model.log_cell(links + gains[0], pairs + gains[step]) - model.log_cell(links, pairs)
    )
    if model.weights is not None and gains[0] > 0.0:
        total += model.log_weights(cell, gains, step) - model.log_weights(cell, gains, 0)
    return total


cdef class RelationalModel(LinkModel):
    """Kernel of the infinite relational model: links are Bernoulli."""

    def __init__(self, data, tables, double a, double b, bint directed, weights=None):
        self.take_links(data, tables, directed, weights)
        self.hyper_period = min(
            MOST_PERIOD, max(1, <Py_ssize_t>ceil(LEARNING_ITEMS / <double>self.n_columns))
        )
        self.declare_own(("a", "b"), (a, b))
        self.take_tables(tables, ("gamma_a", "gamma_b", "gamma_ab"))
        self.allocate(1, 1)

    cdef double log_cell(self, double n_links, double n_pairs) noexcept nogil:
        """log B(a + links, b + pairs - links)."""
        return (
            log_gamma(&self.gamma[0], n_links)
            + log_gamma(&self.gamma[1], n_pairs - n_links)
            - log_gamma(&self.gamma[2], n_pairs)
        )

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        """From the listed cells of the same slots."""
        cdef double total = 0.0
        for m in range(self.n_cells):
            count = self.cells[0, m] if h == 0 else self.cells[1, m] - self.cells[0, m]
            if count > 0.0:
                total += log_rising_count(hyper[h], count)
            total -= log_rising_count(hyper[0] + hyper[1], self.cells[1, m])
        return total


cdef class DegreeCorrectedModel(LinkModel):
    """Kernel of the model with degree correction: numbers of links are Poisson.

    `data` is that of `LinkModel`, with no unobserved pair, and

    - `counts`: Number of links of each item listed in `out`, and in `in`.
    - `self_links`: (n_samples,). Links of items with themselves.
    - `degrees`: (n_sides, n_columns). Numbers of ends of links of the items of `fit`; outgoing
      and incoming if directed.
    - `log_constants`: (n_samples,). Terms whose sum is minus the logarithm of all multiplicities.
    - `new`: Whether items are new, not among the columns.
    """
    cdef bint new
    cdef Py_ssize_t n_sides             # kinds of ends of a link
    cdef Py_ssize_t n_joining           # number of these kinds that a joining item has
    cdef const double[:, ::1] degrees   # (n_sides, n_columns)
    cdef double[:, ::1] of_slots        # (5, n_slots):
    cdef double* ends[2]                # (n_slots,): d_k of each kind
    cdef double* gains[2]               # (n_slots,): ends that the item in `counted` adds
    cdef double* shifts                 # (n_slots,): change of the factor of degrees by these
    # Distinct numbers of ends of items, of both kinds, and the number of items with each.
    cdef const double[::1] distinct, n_distinct
    # Sizes of listed clusters and their ends, in turn.
    cdef Py_ssize_t n_listed
    cdef double[::1] listed

    def __init__(
        self, data, tables, double a, double b, double gamma, bint directed, weights=None
    ):
        cdef const double[::1] view
        cdef Py_ssize_t side
        self.take_links(data, tables, directed, weights)
        self.new = data["new"]
        self.n_sides = 2 if directed else 1
        # New items of a directed network have only outgoing links.
        self.n_joining = 2 if self.incoming else 1
        for side, counts in enumerate(data["counts"]):
            view = counts
            self.link_count[side] = &view[0] if view.shape[0] else NULL
        view = data["self_links"]
        self.self_links = &view[0]
        self.self_pairs = 0.5 if not directed else 1.0 if self.incoming else 0.0
        self.keep_log_constants(data["log_constants"])
        self.degrees = data["degrees"]
        self.distinct, times = np.unique(data["degrees"], return_counts=True)
        self.n_distinct = times.astype(np.float64)
        self.hyper_period = 1       # a tenth of the time for 34 nodes, less for more nodes
        self.declare_own(("a", "b", "degree_concentration"), (a, b, gamma))
        self.take_tables(tables, ("gamma_a",))
        self.allocate(1, 1)

    cdef int reserve(self, Py_ssize_t n_slots) except -1:
        if n_slots > self.n_slots:
            LinkModel.reserve(self, n_slots)
            self.of_slots = np.empty((5, n_slots))
            for side in range(2):
                self.ends[side] = &self.of_slots[side, 0]
                self.gains[side] = &self.of_slots[2 + side, 0]
            self.shifts = &self.of_slots[4, 0]

    cdef double log_cell(self, double n_links, double n_pairs) noexcept nogil:
        """log of the integral over eta, without the constant b^a / Gamma(a)."""
        return (
            log_gamma(&self.gamma[0], n_links)
            - (self.hyper[0] + n_links) * log(self.hyper[1] + n_pairs)
        )

    cdef double log_degrees(self, double size, double ends) noexcept nogil:
        """log n_k^{d_k} / (n_k gamma)_{d_k}."""
        if ends == 0.0:
            return 0.0
        return ends * log(size) - log_rising_count(size * self.hyper[2], ends)

    cdef double log_item(self, Py_ssize_t i) noexcept nogil:
        """The factor (gamma)_{d_i} of an item of `fit`."""
        cdef double total = 0.0
        for side in range(self.n_sides):
            total += log_rising_count(self.hyper[2], self.degrees[side, i])
        return total

    cdef void count_ends(self, Py_ssize_t slot) noexcept nogil:
        """d_k of a slot, of each kind."""
        cdef double going = 0.0, coming = 0.0
        for m in range(self.n_live):
            l = self.live[m]
            going += self.n_links[slot * self.n_slots + l]
            if self.directed:
                coming += self.n_links[l * self.n_slots + slot]
        if not self.directed:
            going += self.n_links[slot * self.n_slots + slot]
        self.ends[0][slot] = going
        self.ends[1][slot] = coming

    cdef double log_degrees_of(self, Py_ssize_t slot) noexcept nogil:
        """The factor of degrees of a slot whose ends are counted."""
        cdef double total = 0.0
        for side in range(self.n_sides):
            total += self.log_degrees(row(self, slot)[0], self.ends[side][slot])
        return total

    cdef double log_likelihood(self, Indices slots) noexcept nogil:
        cdef double total = LinkModel.log_likelihood(self, slots)
        for k in range(slots.n):
            self.count_ends(slots.at[k])
            total += self.log_degrees_of(slots.at[k])
        for i in range(self.n_labels):
            if self.labels[i] >= 0:
                total += self.log_item(i)
        return total

    cdef double count_gains(self, Py_ssize_t i) noexcept nogil:
        """Count the ends that item i adds to every slot with items, whichever slot it joins.
        Returns the sum of the changes of their factors of degrees."""
        cdef double total = 0.0
        self.count(i)
        for m in range(self.n_live):
            slot = self.live[m]
            self.count_ends(slot)
            if self.directed:
                self.gains[0][slot] = self.linked[1][slot] if self.incoming else 0.0
                self.gains[1][slot] = self.linked[0][slot]
            else:
                self.gains[0][slot] = self.linked[0][slot]
            change = 0.0
            for side in range(self.n_sides):
                if self.gains[side][slot] > 0.0:
                    change += self.log_degrees(
                        row(self, slot)[0], self.ends[side][slot] + self.gains[side][slot]
                    ) - self.log_degrees(row(self, slot)[0], self.ends[side][slot])
            self.shifts[slot] = change
            total += change
        return total

    cdef double log_new(self, Py_ssize_t i) noexcept nogil:
        """`log_item` of a new item, and the change for items of `fit`, whose degrees it raises."""
        cdef Py_ssize_t m
        cdef double degree = 0.0, total = 0.0
        # If links are directed, those of a new item raise numbers of incoming links.
        cdef const double* degrees = &self.degrees[self.n_sides - 1, 0]
        for m in range(self.link_start[0][i], self.link_start[0][i + 1]):
            times = self.link_count[0][m]
            degree += times
            total += log_rising_count(self.hyper[2] + degrees[self.link_item[0][m]], times)
        return total + log_rising_count(self.hyper[2], degree)

    cdef void log_predictive_many(self, Indices slots, Py_ssize_t i, double* out) noexcept nogil:
        """log of p(X with item i in each slot) / p(X without), O(n_live (n_slots + n_live))."""
        cdef double mine[2]
        cdef double others = self.count_gains(i)
        others += self.log_new(i) if self.new else self.log_item(i)
        LinkModel.log_predictive_many(self, slots, i, out)
        for side in range(self.n_joining):
            mine[side] = self.self_links[i] if self.directed else 2.0 * self.self_links[i]
            for m in range(self.n_live):
                mine[side] += self.linked[side][self.live[m]]
        for k in range(slots.n):
            slot = slots.at[k]
            size = row(self, slot)[0]
            total = others - self.shifts[slot] if size > 0.0 else others
            for side in range(self.n_sides):
                ends = self.ends[side][slot] if size > 0.0 else 0.0
                gains = self.gains[side][slot] if size > 0.0 else 0.0
                if side < self.n_joining:
                    total += self.log_degrees(size + 1.0, ends + gains + mine[side])
                else:
                    total += self.log_degrees(size, ends + gains)
                total -= self.log_degrees(size, ends)
            out[k] += total

    cdef void log_merge_many(self, Indices slots, Py_ssize_t src, double* out) noexcept nogil:
        LinkModel.log_merge_many(self, slots, src, out)
        self.count_ends(src)
        alone = self.log_degrees_of(src)
        for k in range(slots.n):
            slot = slots.at[k]
            self.count_ends(slot)
            both = row(self, slot)[0] + row(self, src)[0]
            for side in range(self.n_sides):
                out[k] += self.log_degrees(both, self.ends[side][slot] + self.ends[side][src])
            out[k] -= self.log_degrees_of(slot) + alone

    # Hyperparameters, of a partition of all items.

    cdef int tally_slots(self, slots) except -1:
        """Also list the sizes and ends of the clusters."""
        cdef Py_ssize_t slot
        LinkModel.tally_slots(self, slots)
        self.n_listed = 0
        self.listed = np.empty(4 * len(slots))
        for slot in slots:
            if row(self, slot)[0] == 0.0:
                continue
            self.count_ends(slot)
            for side in range(self.n_sides):
                self.listed[self.n_listed] = row(self, slot)[0]
                self.listed[self.n_listed + 1] = self.ends[side][slot]
                self.n_listed += 2

    cdef double log_likelihood_at(
        self, Indices slots, const double* hyper, Py_ssize_t h
    ) noexcept nogil:
        cdef double total = 0.0
        if h == 2:
            for m in range(0, self.n_listed, 2):
                total -= log_rising_count(self.listed[m] * hyper[2], self.listed[m + 1])
            for m in range(self.distinct.shape[0]):
                total += self.n_distinct[m] * log_rising_count(hyper[2], self.distinct[m])
            return total
        for m in range(self.n_cells):
            links = self.cells[0, m]
            total -= (
                hyper[0] * log1p(self.cells[1, m] / hyper[1])
                + links * log(hyper[1] + self.cells[1, m])
            )
            if h == 0:
                total += log_rising_count(hyper[0], links)
        return total
