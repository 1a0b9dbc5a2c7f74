# SPDX-License-Identifier: BSD-3-Clause
"""Moves of whole clusters: the items that a move concerns, and the clusters it proposes for them.

A *closure* is the set of items of the clusters that hold a few anchors. A *trial* proposes other
clusters for them, its sides. Items join and leave sides one at a time, by the law of the sampler.
Then the sides replace the clusters (`accept`), or the state is restored (`restore`). Between
`begin` and these two, the state's sizes, slots and number of clusters are those of the current
partition, and its labels are those of the trial, -1 for an item on no side.

If clusters are independent, sides have separate slots; rows of the current clusters stay
untouched. If clusters are coupled (`model.factorizes` false), an item can be in one place only:
the items leave the rows of their clusters first and return one by one. `make_trial` chooses
between the two.
"""
from libc.math cimport NAN

import numpy as np

from skdpm._core._rng cimport bitgen_t, integer
from skdpm.mixture.state._state cimport MixtureState, as_indices
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel
from skdpm.mixture.samplers._anchors cimport MAX_ANCHORS, AnchorProposal, Members


cdef class Closure:

    def __init__(self, AnchorProposal proposal):
        self.proposal = proposal
        self.members = Members()

    cdef int reserve(self, MixtureState state) except -1:
        """Make room for all items and slots of the state; call it after `state.reserve`."""
        if state.n_samples > self.n_samples:
            self.items = np.empty(state.n_samples, dtype=np.intp)
            self.cells = np.empty(state.n_samples, dtype=np.int8)
            self.n_samples = state.n_samples
        self.members.reserve(state)
        if state.capacity > self.n_slots:
            self.cell_of = np.full(state.capacity, -1, dtype=np.int8)
            self.n_slots = state.capacity

    cdef bint pick(self, MixtureState state, Py_ssize_t n_anchors, bitgen_t* rng) noexcept nogil:
        """Draw the anchors, in random order, and find their clusters. `members` must be up to
        date. False if an anchor is noise: there is no move then. (The noise stays the same in a
        move, so this does not change the law of moves in both directions.)"""
        cdef Py_ssize_t anchors[MAX_ANCHORS], drawn[2]
        self.proposal.draw(state, self.members, rng, anchors, n_anchors)
        for j in range(n_anchors):
            if state.labels[anchors[j]] < 0:
                return False
        drawn[0], drawn[1] = anchors[0], anchors[n_anchors > 1]
        self.n_cells = 0
        for j in range(n_anchors):
            m = j + integer(rng, n_anchors - j)
            anchors[j], anchors[m] = anchors[m], anchors[j]
            for m in range(2):
                if anchors[j] == drawn[m]:
                    self.place[m] = j
            slot = state.labels[anchors[j]]
            if self.cell_of[slot] < 0:
                self.cell_of[slot] = <signed char>self.n_cells
                self.slots[self.n_cells] = slot
                self.sizes[self.n_cells] = state.sizes[slot]
                self.n_cells += 1
            self.items[j] = anchors[j]
        for j in range(n_anchors):
            self.cells[j] = self.cell_of[state.labels[anchors[j]]]
        for j in range(self.n_cells):
            self.cell_of[self.slots[j]] = -1
        self.n_anchors = n_anchors
        self.n_outside = state.n_clusters - self.n_cells
        return True

    cdef void gather(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """List the items of the anchors' clusters: the anchors, then all others in random order
        (Bouchard-Cote, Doucet & Roth 2017, algorithm 2)."""
        cdef Py_ssize_t n = self.n_anchors
        cdef bint is_anchor
        for j in range(self.n_cells):
            i = self.members.first[self.slots[j]]
            for _item in range(self.sizes[j]):
                is_anchor = False
                for m in range(self.n_anchors):
                    is_anchor = is_anchor or self.items[m] == i
                if not is_anchor:
                    self.items[n] = i
                    self.cells[n] = <signed char>j
                    n += 1
                i = self.members.next[i]
        for j in range(self.n_anchors, n):
            m = j + integer(rng, n - j)
            self.items[j], self.items[m] = self.items[m], self.items[j]
            self.cells[j], self.cells[m] = self.cells[m], self.cells[j]
        self.n_items = n

    cdef double log_anchors(
        self, MixtureState state, const signed char* cells,
        const Py_ssize_t* slots, const Py_ssize_t* sizes, Py_ssize_t n_slots
    ) noexcept nogil:
        """log q(anchors | the partition with item m of the closure in `slots[cells[m]]`); 0 if the
        law does not depend on the partition. `sizes` are those of `slots`."""
        return self.proposal.log_q_at(
            state, as_indices(self.slots, self.n_cells), slots, sizes, n_slots,
            self.items[self.place[0]], cells[self.place[0]], cells[self.place[1]]
        )

    cdef void replace(
        self, MixtureState state, const signed char* cells, Indices slots
    ) noexcept nogil:
        """Replace the closure's clusters: item m joins `slots[cells[m]]`, which contains it."""
        items = as_indices(&self.items[0], self.n_items)
        state.replace(items, cells, as_indices(self.slots, self.n_cells), slots)
        for m in range(self.n_items):
            self.members.join(slots.at[cells[m]], self.items[m])


cdef class Trial:

    def __init__(self, Closure closure):
        self.closure = closure

    cdef int reserve(self, MixtureState state) except -1:
        """Make room for all items of the state. Before this, `state.reserve` must have made a slot
        for each side, beyond the clusters and two spares."""
        self.closure.reserve(state)
        if state.n_samples > self.n_samples:
            self.sides = np.empty(state.n_samples, dtype=np.int8)
            self.n_samples = state.n_samples

    cdef void begin(self, MixtureState state, Py_ssize_t n_sides) noexcept nogil:
        """Take the items of the closure out of their clusters and open empty sides."""
        self.vacate(state, as_indices(self.closure.slots, self.closure.n_cells))
        for b in range(n_sides):
            self.side[b] = state.model.acquire()
            self.size[b] = 0
        self.n_sides = self.n_open = n_sides

    cdef double log_current(self, MixtureState state) noexcept nogil:
        """log p(partition) + log p(X | partition) of the current partition, up to terms that do
        not depend on the clusters of the closure's items. Call it before `begin`."""
        cdef double total = state.prior.log_v[self.closure.n_outside + self.closure.n_cells]
        for b in range(self.closure.n_cells):
            total += state.prior.log_cluster[self.closure.sizes[b]]
        slots = as_indices(self.closure.slots, self.closure.n_cells)
        return total + self.log_likelihood(state, slots)

    cdef double log_union_ratio(self, MixtureState state) noexcept nogil:
        """Change in log p(partition) + log p(X | partition) from uniting the closure's two
        clusters. Call it before `begin`, with a free slot."""
        # The smaller one joins the other: a model may have to move its items.
        cdef Py_ssize_t src = self.closure.sizes[1] <= self.closure.sizes[0]
        cdef double log_ratio = NAN
        state.model.log_merge_many(
            as_indices(&self.closure.slots[1 - src], 1), self.closure.slots[src], &log_ratio
        )
        return log_ratio + state.log_prior_gain(self.closure.slots[0], self.closure.slots[1])

    cdef double log_proposed(self, MixtureState state) noexcept nogil:
        """`log_current` of the proposed partition; all items are on sides."""
        cdef double total = state.prior.log_v[self.closure.n_outside + self.n_sides]
        for b in range(self.n_sides):
            total += state.prior.log_cluster[self.size[b]]
        return total + self.log_likelihood(state, as_indices(self.side, self.n_sides))

    cdef void accept(self, MixtureState state) noexcept nogil:
        """Replace the clusters by the sides, none of which is empty."""
        for b in range(self.n_sides, self.n_open):
            state.model.release(self.side[b])
        self.closure.replace(state, &self.sides[0], as_indices(self.side, self.n_sides))

    cdef void restore(self, MixtureState state) noexcept nogil:
        """Restore the state, whichever items are on sides."""
        self.vacate(state, as_indices(self.side, self.n_open))
        self.put_back(state)
        for b in range(self.n_open - 1, -1, -1):    # keeps the order of free slots
            state.model.release(self.side[b])

    cdef void vacate(self, MixtureState state, Indices slots) noexcept nogil:
        """Remove the labels of the closure's items; the rows of the slots stay as they are."""
        for m in range(self.closure.n_items):
            state.labels[self.closure.items[m]] = -1

    cdef void put_back(self, MixtureState state) noexcept nogil:
        """Return the items of the closure, on no side, to their clusters."""
        for m in range(self.closure.n_items):
            state.labels[self.closure.items[m]] = self.closure.slots[self.closure.cells[m]]

    cdef void unite(self, MixtureState state) noexcept nogil:
        """Unite all sides in the first one."""
        for b in range(1, self.n_sides):
            state.model.merge(self.side[0], self.side[b])
        for m in range(self.closure.n_items):
            self.sides[m] = 0
            state.labels[self.closure.items[m]] = self.side[0]
        self.size[0] = self.closure.n_items
        self.n_sides = 1

    cdef double log_likelihood(self, MixtureState state, Indices slots) noexcept nogil:
        """log p(X | partition) with the closure's items in `slots`, up to a constant."""
        return state.model.log_likelihood(slots)


cdef class CoupledTrial(Trial):
    """The trial of a likelihood whose clusters are not independent."""
    cdef Py_ssize_t[::1] live       # (n_slots,): scratch
    cdef Py_ssize_t n_slots

    cdef int reserve(self, MixtureState state) except -1:
        Trial.reserve(self, state)
        if state.capacity > self.n_slots:
            self.live = np.empty(state.capacity, dtype=np.intp)
            self.n_slots = state.capacity

    cdef void vacate(self, MixtureState state, Indices slots) noexcept nogil:
        """Also remove the items from the rows of the slots."""
        Trial.vacate(self, state, slots)
        for b in range(slots.n):
            state.model.reset(slots.at[b])

    cdef void put_back(self, MixtureState state) noexcept nogil:
        for m in range(self.closure.n_items):
            slot = self.closure.slots[self.closure.cells[m]]
            state.model.add(slot, self.closure.items[m])
            state.labels[self.closure.items[m]] = slot

    cdef double log_likelihood(self, MixtureState state, Indices slots) noexcept nogil:
        """The density of all clusters: those in `slots` and those outside the closure."""
        cdef Py_ssize_t n_live = 0
        cdef bint in_closure
        for b in range(slots.n):
            self.live[n_live] = slots.at[b]
            n_live += 1
        for k in range(state.n_clusters):
            in_closure = False
            for b in range(self.closure.n_cells):
                in_closure = in_closure or state.slots[k] == self.closure.slots[b]
            if not in_closure:
                self.live[n_live] = state.slots[k]
                n_live += 1
        return state.model.log_likelihood(as_indices(&self.live[0], n_live))


cdef Trial make_trial(ClusterModel model, Closure closure):
    """Make a trial for a model with independent or with coupled clusters."""
    return Trial(closure) if model.factorizes else CoupledTrial(closure)


cdef double log_predictive_block(
    MixtureState state, Indices items, Py_ssize_t slot
) noexcept nogil:
    """log p(rows of detached items, jointly | items of a slot), by the chain rule: the change in
    log p(X | partition) if all of them join the slot. A slot must be free. The state is restored,
    to the bit if clusters are independent or counts are whole numbers. If clusters are
    independent, the items may be in another slot, where they stay."""
    cdef double total = 0.0
    cdef Py_ssize_t at = slot
    if state.model.factorizes:
        at = state.model.acquire()
        state.model.copy(at, slot)
    for m in range(items.n):
        total += state.model.log_predictive(at, items.at[m])
        if m < items.n - 1:
            state.model.add(at, items.at[m])
            if not state.model.factorizes:
                state.labels[items.at[m]] = at
    if state.model.factorizes:
        state.model.release(at)
        return total
    for m in range(items.n - 2, -1, -1):
        state.labels[items.at[m]] = -1
        state.model.remove(at, items.at[m])
    return total
