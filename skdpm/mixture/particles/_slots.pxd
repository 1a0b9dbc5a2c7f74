# SPDX-License-Identifier: BSD-3-Clause
# cython: infer_types=True
from skdpm._core._memory cimport MemoryOwner
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.likelihoods.contract._base cimport ClusterModel


cdef class SharedSlots(MemoryOwner):
    """Slots of a kernel that several holders share: clusters by reference, copied on write.

    A holder is whatever has a list of slots: a particle, or a node of a genealogy.
    """
    cdef readonly ClusterModel model
    cdef readonly Py_ssize_t capacity
    cdef Py_ssize_t* refs               # (capacity,): holders of each slot

    cdef int bind(self, ClusterModel model, Py_ssize_t n_slots) except -1

    cdef inline Py_ssize_t open(self) noexcept nogil:
        """Take an empty slot, which has no holder yet."""
        cdef Py_ssize_t slot = self.model.acquire()
        self.refs[slot] = 0
        return slot

    cdef inline void hold(self, Py_ssize_t slot) noexcept nogil:
        self.refs[slot] += 1

    cdef inline bint let_go(self, Py_ssize_t slot) noexcept nogil:
        """One holder less; returns whether it was the last one, and the slot is free."""
        self.refs[slot] -= 1
        if self.refs[slot] > 0:
            return False
        self.model.release(slot)
        return True

    cdef inline void move_holder(self, Py_ssize_t src, Py_ssize_t dst) noexcept nogil:
        """A holder of one slot, which has others, changes to another slot."""
        self.refs[src] -= 1
        self.refs[dst] += 1

    cdef inline Py_ssize_t writable(self, Py_ssize_t slot) noexcept nogil:
        """The slot itself for its only holder, otherwise a copy, to which this holder changes."""
        if self.refs[slot] == 1:
            return slot
        copy = self.open()
        self.model.copy(copy, slot)
        self.move_holder(slot, copy)
        return copy


cdef enum:
    ALONE = -2      # `Turn.heir` of a slot whose only item is the row that leaves


cdef struct Turn:                       # what the current row does to a slot
    Py_ssize_t tick                     # the last placement that touched the slot
    Py_ssize_t n_choosers               # particles that chose it
    Py_ssize_t heir                     # the slot with the row; negative: none
    Py_ssize_t first                    # of the heir: the particle that entered first


cdef class Family(SharedSlots):
    """Particles whose likelihood has the same hyperparameters: one kernel, whose slots they share.

    A row is evaluated once per slot. Of a slot that only some holders chose, one copy is made,
    with the row, for all who chose it. They share the draw of its missing entries, too.
    """
    cdef readonly Py_ssize_t number     # of the family
    cdef Py_ssize_t n_members           # particles
    cdef double sum_constants           # `log_constants` of the rows so far, if they vary
    cdef Py_ssize_t n_live
    cdef bint stuck                     # whether a law of missing entries had no draw
    cdef Py_ssize_t empty               # a slot without items
    cdef Py_ssize_t newborn             # a cluster of the current row alone ...
    cdef Py_ssize_t newborn_tick        # ... if this is the current placement
    cdef Py_ssize_t* live               # (capacity + 1,): slots with holders, then the empty one
    cdef Py_ssize_t* position           # (capacity,): index of a slot in `live`
    cdef Turn* turns                    # (capacity,)
    cdef double* sizes                  # (capacity,): items
    cdef double* by_position            # (capacity + 1,): scratch, p(row | slot), last a new one
    cdef double* log_p                  # (capacity,): log p(row | slot)
    cdef double log_p_new
    cdef double* v                      # (capacity,): p(row | slot), scaled; see `scale`
    cdef double v_new

    cdef int reserve(self, Py_ssize_t n_slots) except -1
    cdef void count_constant(self, Py_ssize_t i, double sign) noexcept nogil
    cdef double evaluate(self, Py_ssize_t i) noexcept nogil
    cdef void scale(self, double top, bint common, double sigma) noexcept nogil
    cdef void hold_all(self, const int* slots, Py_ssize_t n_slots) noexcept nogil
    cdef void let_go_all(self, const int* slots, Py_ssize_t n_slots) noexcept nogil

    cdef inline Py_ssize_t most_born(self, Py_ssize_t n_particles) noexcept nogil:
        """Largest number of slots that a row opens: a copy of each chosen one, and a new one."""
        return min(n_particles, self.n_live) + 1

    cdef inline bint has_room(self, Py_ssize_t n_particles) noexcept nogil:
        return (
            self.n_members == 0
            or self.model.n_free >= self.most_born(n_particles)
            # The kernel may have made room for others.
            and self.model.n_slots <= self.capacity
        )

    cdef inline Py_ssize_t open_live(self) noexcept nogil:
        """Take an empty slot and list it as live."""
        cdef Py_ssize_t slot = self.open()
        self.live[self.n_live] = slot
        self.position[slot] = self.n_live
        self.n_live += 1
        self.sizes[slot] = 0.0
        return slot

    cdef inline void let_go_live(self, Py_ssize_t slot) noexcept nogil:
        """One holder less; a slot that has none is no longer live."""
        if self.let_go(slot):
            self.n_live -= 1
            last = self.live[self.n_live]
            self.live[self.position[slot]] = last
            self.position[last] = self.position[slot]

    cdef inline bint leave(self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t tick) noexcept nogil:
        """Row i leaves a slot, once per placement, for all who hold it. Returns whether it is the
        only item there; then it stays."""
        cdef Turn* turn = &self.turns[slot]
        if turn.tick != tick:
            turn.tick = tick
            turn.n_choosers = 0
            turn.heir = ALONE if self.sizes[slot] == 1.0 else -1
            if turn.heir != ALONE:
                self.model.remove(slot, i)
                self.sizes[slot] -= 1.0
        return turn.heir == ALONE

    cdef inline bint has_gaps(self, Py_ssize_t i) noexcept nogil:
        return self.model.has_gaps != NULL and self.model.has_gaps[i]

    cdef inline void join(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t p, bitgen_t* rng
    ) noexcept nogil:
        """Row i joins a slot, particle p being the first; its missing entries are drawn there."""
        if self.has_gaps(i):
            self.model.open_gaps(i)
            self.stuck |= not self.model.fill_gaps(slot, i, rng)
            self.turns[slot].first = p
        self.model.add(slot, i)
        self.sizes[slot] += 1.0

    cdef inline void choose(self, Py_ssize_t slot, Py_ssize_t tick) noexcept nogil:
        """Count a particle that chose a slot."""
        cdef Turn* turn = &self.turns[slot]
        if turn.tick != tick:
            turn.tick = tick
            turn.n_choosers = 0
            turn.heir = -1
        turn.n_choosers += 1

    cdef inline Py_ssize_t enter(
        self, Py_ssize_t slot, Py_ssize_t i, Py_ssize_t p, bitgen_t* rng
    ) noexcept nogil:
        """Row i joins a slot for particle p, one of those who chose it, all of them counted.
        Returns the slot that this holder has from now on."""
        cdef Turn* turn = &self.turns[slot]
        cdef Py_ssize_t heir = turn.heir
        if heir < 0:
            heir = slot
            if turn.n_choosers < self.refs[slot]:
                heir = self.open_live()
                self.model.copy(heir, slot)
                self.sizes[heir] = self.sizes[slot]
            self.join(heir, i, p, rng)
            turn.heir = heir
        if heir != slot:
            self.move_holder(slot, heir)
        return heir

    cdef inline Py_ssize_t enter_newborn(
        self, Py_ssize_t i, Py_ssize_t tick, Py_ssize_t p, bitgen_t* rng
    ) noexcept nogil:
        """Row i alone becomes a cluster of one more particle, p. Returns its slot."""
        if self.newborn_tick != tick:
            self.newborn_tick = tick
            self.newborn = self.open_live()
            self.join(self.newborn, i, p, rng)
        self.refs[self.newborn] += 1
        return self.newborn
