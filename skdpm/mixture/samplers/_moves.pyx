# SPDX-License-Identifier: BSD-3-Clause
"""What moves of whole clusters share: the items they concern, and other clusters for these.

A *closure* is the items of the clusters that hold a few anchors. A *trial* proposes other clusters
for them, its sides: the items join and leave sides one at a time, by whatever law the sampler has,
and then the sides replace the clusters (`accept`), or all is as it was (`restore`). Between
`begin` and these two the state's sizes, slots and number of clusters are those of the current
partition; its labels are those of the trial, -1 for an item in no side.

Where clusters are independent, sides are slots of their own and the rows of the current clusters
wait untouched. Where they are coupled (`model.factorizes` false) an item can be in one place only:
the items leave the rows of their clusters first, and return one by one. `make_trial` is the one
place that tells the two apart for samplers.
"""
from libc.math cimport NAN
from libc.stdlib cimport free
from libc.string cimport memset
from numpy.random cimport bitgen_t

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport integer
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.likelihoods._base cimport ClusterModel
from skdpm.mixture.samplers._anchors cimport MAX_ANCHORS, AnchorProposal, Members


cdef class Closure:

    def __init__(self, AnchorProposal proposal):
        self.proposal = proposal
        self.members = Members()

    def __dealloc__(self):
        free(self.items)
        free(self.cells)
        free(self.cell_of)

    cdef int reserve(self, MixtureState state) except -1:
        """Room for all items and slots of the state; call it once the state has reserved its."""
        if state.n_samples > self.n_samples:
            self.items = <Py_ssize_t*>resized(self.items, state.n_samples, sizeof(Py_ssize_t))
            self.cells = <signed char*>resized(self.cells, state.n_samples, 1)
            self.n_samples = state.n_samples
        self.members.reserve(state)
        if state.capacity > self.n_slots:
            self.cell_of = <signed char*>resized(self.cell_of, state.capacity, 1)
            memset(self.cell_of, -1, state.capacity)
            self.n_slots = state.capacity
        return 0

    cdef void pick(self, MixtureState state, Py_ssize_t n_anchors, bitgen_t* rng) noexcept nogil:
        """Draw the anchors, in random order, and find their clusters; `members` is up to date."""
        cdef Py_ssize_t anchors[MAX_ANCHORS]
        cdef Py_ssize_t j, m, slot
        cdef Py_ssize_t drawn[2]
        self.proposal.draw(state, self.members, rng, anchors, n_anchors)
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

    cdef void gather(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Gather the items of the anchors' clusters, the anchors first, then all others in random
        order (Bouchard-Cote, Doucet & Roth 2017, algorithm 2)."""
        cdef Py_ssize_t i, j, m
        cdef Py_ssize_t n = self.n_anchors
        cdef bint is_anchor
        cdef signed char cell
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
            i = self.items[m]
            self.items[m] = self.items[j]
            self.items[j] = i
            cell = self.cells[m]
            self.cells[m] = self.cells[j]
            self.cells[j] = cell
        self.n_items = n

    cdef double log_anchors(
        self, MixtureState state, const signed char* cells,
        const Py_ssize_t* slots, const Py_ssize_t* sizes, Py_ssize_t n_slots
    ) noexcept nogil:
        """log q(anchors | partition) where item m of the closure is in the cluster
        `slots[cells[m]]`, of `sizes`; 0 where the law does not depend on the partition."""
        return self.proposal.log_q_at(
            state, self.slots, self.n_cells, slots, sizes, n_slots,
            self.items[self.place[0]], cells[self.place[0]], cells[self.place[1]]
        )

    cdef void replace(
        self, MixtureState state, const signed char* cells,
        const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """Other clusters take the place of the closure's: item m joins `slots[cells[m]]`, whose
        row holds its items already."""
        cdef Py_ssize_t m
        state.replace(
            self.items, cells, self.n_items, self.slots, self.n_cells, slots, n_slots
        )
        for m in range(self.n_items):
            self.members.join(slots[cells[m]], self.items[m])


cdef class Trial:

    def __init__(self, Closure closure):
        self.closure = closure

    def __dealloc__(self):
        free(self.sides)

    cdef int reserve(self, MixtureState state) except -1:
        """Room for all items of the state. The slots of the sides are for `state.reserve`, before
        this: one for each beyond the clusters and the two spares."""
        self.closure.reserve(state)
        if state.n_samples > self.n_samples:
            self.sides = <signed char*>resized(self.sides, state.n_samples, 1)
            self.n_samples = state.n_samples
        return 0

    cdef void begin(self, MixtureState state, Py_ssize_t n_sides) noexcept nogil:
        """The items of the closure leave their clusters; some empty sides are there for them."""
        cdef Py_ssize_t b
        self.vacate(state, self.closure.slots, self.closure.n_cells)
        for b in range(n_sides):
            self.side[b] = state.model.acquire()
            self.size[b] = 0
        self.n_sides = self.n_open = n_sides

    cdef double log_current(self, MixtureState state) noexcept nogil:
        """log p(partition) + log p(X | partition) of the current partition, up to what no other
        clusters of the closure's items change. Not while a trial is on."""
        cdef Py_ssize_t b
        cdef double total = state.prior.log_v[self.closure.n_outside + self.closure.n_cells]
        for b in range(self.closure.n_cells):
            total += state.prior.log_cluster[self.closure.sizes[b]]
        return total + self.log_likelihood(state, self.closure.slots, self.closure.n_cells)

    cdef double log_union_ratio(self, MixtureState state) noexcept nogil:
        """What it gains if the clusters, two of them, are one. Not while a trial is on; it needs
        none. A slot must be free."""
        # The smaller one joins the other: a model may have to move its items.
        cdef Py_ssize_t src = self.closure.sizes[1] <= self.closure.sizes[0]
        cdef double log_ratio = NAN
        state.model.log_merge_many(
            &self.closure.slots[1 - src], 1, self.closure.slots[src], &log_ratio
        )
        return log_ratio + state.log_prior_gain(self.closure.slots[0], self.closure.slots[1])

    cdef double log_proposed(self, MixtureState state) noexcept nogil:
        """As `log_current`, with the sides in place of the clusters; all items are in sides."""
        cdef Py_ssize_t b
        cdef double total = state.prior.log_v[self.closure.n_outside + self.n_sides]
        for b in range(self.n_sides):
            total += state.prior.log_cluster[self.size[b]]
        return total + self.log_likelihood(state, self.side, self.n_sides)

    cdef void accept(self, MixtureState state) noexcept nogil:
        """The sides, none of them empty, replace the clusters."""
        cdef Py_ssize_t b
        for b in range(self.n_sides, self.n_open):
            state.model.release(self.side[b])
        self.closure.replace(state, self.sides, self.side, self.n_sides)

    cdef void restore(self, MixtureState state) noexcept nogil:
        """All is as it was, whichever items are in sides."""
        cdef Py_ssize_t b
        self.vacate(state, self.side, self.n_open)
        self.put_back(state)
        for b in range(self.n_open - 1, -1, -1):    # the free slots too are in the order they were
            state.model.release(self.side[b])

    cdef void vacate(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """The items of the closure are in no cluster and in no side; the rows of the slots they
        were in stay as they are, to be there after a rejection."""
        cdef Py_ssize_t m
        for m in range(self.closure.n_items):
            state.labels[self.closure.items[m]] = -1

    cdef void put_back(self, MixtureState state) noexcept nogil:
        """The items of the closure, in no side, return to their clusters."""
        cdef Py_ssize_t m
        for m in range(self.closure.n_items):
            state.labels[self.closure.items[m]] = self.closure.slots[self.closure.cells[m]]

    cdef void unite(self, MixtureState state) noexcept nogil:
        """All items of the closure, which are in sides, come into the first one."""
        cdef Py_ssize_t b, m
        for b in range(1, self.n_sides):
            state.model.merge(self.side[0], self.side[b])
        for m in range(self.closure.n_items):
            self.sides[m] = 0
            state.labels[self.closure.items[m]] = self.side[0]
        self.size[0] = self.closure.n_items
        self.n_sides = 1

    cdef double log_likelihood(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """log p(X | partition) with the closure's items in `slots`, up to a constant."""
        return state.model.log_likelihood(slots, n_slots)


cdef class CoupledTrial(Trial):
    """The trial of a likelihood whose clusters are not independent."""
    cdef Py_ssize_t* live       # (n_slots,): scratch
    cdef Py_ssize_t n_slots

    def __dealloc__(self):
        free(self.live)

    cdef int reserve(self, MixtureState state) except -1:
        Trial.reserve(self, state)
        if state.capacity > self.n_slots:
            self.live = <Py_ssize_t*>resized(self.live, state.capacity, sizeof(Py_ssize_t))
            self.n_slots = state.capacity
        return 0

    cdef void vacate(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """Also the rows of the slots lose the items."""
        cdef Py_ssize_t b
        Trial.vacate(self, state, slots, n_slots)
        for b in range(n_slots):
            state.model.reset(slots[b])

    cdef void put_back(self, MixtureState state) noexcept nogil:
        cdef Py_ssize_t m, slot
        for m in range(self.closure.n_items):
            slot = self.closure.slots[self.closure.cells[m]]
            state.model.add(slot, self.closure.items[m])
            state.labels[self.closure.items[m]] = slot

    cdef double log_likelihood(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """Of all clusters: those in `slots` and those outside the closure."""
        cdef Py_ssize_t k, b
        cdef Py_ssize_t n_live = 0
        cdef bint in_closure
        for b in range(n_slots):
            self.live[n_live] = slots[b]
            n_live += 1
        for k in range(state.n_clusters):
            in_closure = False
            for b in range(self.closure.n_cells):
                in_closure = in_closure or state.slots[k] == self.closure.slots[b]
            if not in_closure:
                self.live[n_live] = state.slots[k]
                n_live += 1
        return state.model.log_likelihood(self.live, n_live)


cdef Trial make_trial(ClusterModel model, Closure closure):
    """A trial of the kind that a model's clusters need."""
    return Trial(closure) if model.factorizes else CoupledTrial(closure)


cdef double log_predictive_block(
    MixtureState state, const Py_ssize_t* items, Py_ssize_t n_items, Py_ssize_t slot
) noexcept nogil:
    """log p(rows of some detached items, jointly | items of a slot), by the chain rule: what all
    of them joining it at once adds to log p(X | partition). A slot must be free; the state is as
    it was afterwards, to the bit where clusters are independent or counts are whole numbers. Where
    clusters are independent the items may also be in another slot, and stay there."""
    cdef Py_ssize_t m
    cdef double total = 0.0
    cdef Py_ssize_t at = slot
    if state.model.factorizes:
        at = state.model.acquire()
        state.model.copy(at, slot)
    for m in range(n_items):
        total += state.model.log_predictive(at, items[m])
        if m < n_items - 1:
            state.model.add(at, items[m])
            if not state.model.factorizes:
                state.labels[items[m]] = at
    if state.model.factorizes:
        state.model.release(at)
        return total
    for m in range(n_items - 2, -1, -1):
        state.labels[items[m]] = -1
        state.model.remove(at, items[m])
    return total
