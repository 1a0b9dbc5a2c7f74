# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves: Herlau, Mørup, Teh & Schmidt (2014), "Adaptive reconfiguration
moves for MCMC inference in Dirichlet process mixtures", algorithm 3.

Two past states z^a, z^b and two rows i, j on which they disagree are drawn (`_history`). If i and
j share a cluster of the current partition z, it is split; otherwise their clusters are merged. Let
U be the rows of these clusters. The *construction* places all rows anew:

    c        the common refinement of z, z^a and z^b; its blocks of i and j are c_i and c_j
    b_i, b_j new clusters of c_i and c_j; in a merge, one cluster
    loop 1   every other block of c as one unit, the largest first, ties in the random order of the
             move
    loop 2   in this order, every single row except i, j and the first of each block of loop 1

A *unit*, rows A that are placed by one choice (a block or a row), is taken out and placed by its
conditional law given all placed rows:

    cluster B      p(x_A | rows of B and all others) (1 - sigma)_{|B|+|A|-1} / (1 - sigma)_{|B|-1}
    a new one      p(x_A | all others) (1 - sigma)_{|A|-1} V_{n,k+1} / V_{n,k}

A unit of U may join any cluster. A unit of another cluster of z, an outer one, chooses between
b_i, b_j and its *home*: the slot of its old cluster, or a new one if none of its rows is left
there. If the unit is all that is left at home and others have joined it, it stays: no choice.

Every unit is placed once, the clusters of i and j stay, and each outer cluster has one home.
Therefore only one sequence of choices leads to a partition z*, and T(z -> z*), the product of the
probabilities of all choices, is its probability. z* is accepted with probability

    min(1, p(z*, X) T(z* -> z) / (p(z, X) T(z -> z*))).

The reverse is the construction from z*, with the same i, j, z^a, z^b and order, z* in place of z
in the refinement, and every choice forced so that it ends in z; T = 0 if this is not possible.
Weights and the order of units may follow any law that does not depend on the state.

The variants differ in the rows over which c is taken. "pair": over U, as published. "all": over
all rows, so that blocks of other clusters move as one; without this, a move that takes many rows
from a cluster has a negligible reverse probability. "none": no loop 1 (sARM). Without past states
i and j are uniform, c_i = {i} and c_j = {j} (sRM).

Rows that are noise stay noise: they are in no unit, and a move from one of them is no move. n is
the number of the others. A sweep follows, which draws what is noise.
"""
from libc.math cimport INFINITY, isnan, log
from libc.string cimport memcpy, memset

import numpy as np

from skdpm._core._resampling cimport exponentiate
from skdpm._core._rng cimport bitgen_t, integer, uniform
from skdpm.mixture.state._state cimport NOISE, MixtureState, StoredState, as_indices
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport sweep
from skdpm.mixture.samplers._history cimport History
from skdpm.mixture.samplers._moves cimport log_predictive_block

from skdpm.mixture.state._state import unplaceable

BLOCKS = ("all", "pair", "none")


cdef enum:
    N_FREE = 3      # slots that a unit takes at once: its cluster, the next spare, and scratch
    # If clusters are independent, units of at most FEW + width / WIDTH_OF_ROW rows are weighed row
    # by row, which is then as fast as a marginal likelihood.
    FEW = 2
    WIDTH_OF_ROW = 64


cdef class Reconfiguration:
    """Reconfiguration with `blocks`: "all", "pair" or "none"."""

    def __init__(self, str blocks):
        self.has_blocks = blocks != "none"
        self.outer_blocks = blocks == "all"

    cdef int reserve(self, MixtureState state) except -1:
        cdef Py_ssize_t n = state.n_samples
        if n > self.n_samples:
            self.order, self.start, self.members, self.block, self.begin = np.empty(
                (5, n + 1), dtype=np.intp
            )
            self.is_done = np.empty(n, dtype=np.int8)
            self.n_samples = n
        if state.capacity > self.n_slots:
            home, left = np.empty((2, state.capacity), dtype=np.intp)
            if self.n_slots > 0:    # a construction may be under way
                home[: self.n_slots], left[: self.n_slots] = self.home, self.left
            self.home, self.left = home, left
            self.options = np.empty(state.capacity, dtype=np.intp)
            self.weights = np.empty(state.capacity)
            self.n_slots = state.capacity
        # Labels are slots of the state or labels of past states.
        if max(n, state.capacity) + 1 > self.n_labels:
            owners = np.empty((2, max(n, state.capacity) + 1), dtype=np.intp)
            if self.n_labels > 0:
                owners[:, : self.n_labels] = self.owner, self.target_slot
            self.owner, self.target_slot = owners
            self.n_labels = owners.shape[1]
            self.scratch = np.empty((4, self.n_labels), dtype=np.intp)

    # The construction.

    cdef int construct(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* target, double limit
    ) except -1 nogil:
        """Draw another state, or force a target; sets `log_t` to log T.

        With a target, the construction stops with log T = -infinity as soon as log T is known to
        be at most `limit` or the target cannot be reached. The state is then another one.
        """
        cdef Py_ssize_t n = state.n_samples
        cdef bint refined = self.za != NULL
        self.log_t = 0.0
        self.target = target
        begin_from(self, state)
        for m in range(n):
            self.is_done[m] = self.start[m] == NOISE
        self.is_done[self.i] = self.is_done[self.j] = True
        if refined:
            refine(self, n)
        state.dissolve(self.slot_i)
        if self.slot_j != self.slot_i:
            state.dissolve(self.slot_j)
        self.b_i = place_first(self, state, self.i, state.slots[state.n_clusters], refined)
        self.b_j = self.b_i
        if self.slot_j == self.slot_i:
            self.b_j = state.slots[state.n_clusters]
        place_first(self, state, self.j, self.b_j, refined)
        if refined and self.has_blocks:
            for b in range(self.n_blocks):
                x = self.members[self.begin[b]]
                if self.block[self.i] == b or self.block[self.j] == b:
                    continue
                self.is_done[x] = True
                put(
                    self, state, rng, &self.members[self.begin[b]],
                    self.begin[b + 1] - self.begin[b]
                )
                if is_over(self, limit):
                    return 0
        for m in range(n):
            x = self.order[m]
            if not self.is_done[x]:
                put(self, state, rng, &x, 1)
                if is_over(self, limit):
                    return 0
        if target != NULL and not reached(self, state):
            self.log_t = -INFINITY

    cdef Py_ssize_t choose(
        self, bitgen_t* rng, const double* log_w, Py_ssize_t n, Py_ssize_t pick
    ) noexcept nogil:
        """Draw an option by its log weight, or take `pick` if it is not negative, and add its log
        probability to `log_t`. Returns the option, -1 if a weight is NaN or all are 0."""
        cdef double top = exponentiate(log_w, &self.weights[0], n)
        cdef double total = 0.0
        if isnan(top):
            return -1
        for k in range(n):
            total += self.weights[k]
        if pick < 0:
            u = uniform(rng) * total
            for k in range(n):
                if self.weights[k] > 0.0:
                    pick = k        # the last one if rounding leaves u positive
                    u -= self.weights[k]
                    if u < 0.0:
                        break
        self.log_t += log_w[pick] - top - log(total)
        return pick


cdef int make_room(Reconfiguration self, MixtureState state) except -1 nogil:
    """Make sure that slots are free for a unit; takes the lock if they are not."""
    if state.model.n_free < N_FREE or state.capacity > self.n_slots:
        with gil:
            if state.model.n_free < N_FREE:
                state.reserve(2 * state.capacity + N_FREE)
            self.reserve(state)


cdef void shuffle(Reconfiguration self, Py_ssize_t n, bitgen_t* rng) noexcept nogil:
    """Draw the order of the rows uniformly."""
    for m in range(n):      # the order must not depend on earlier moves
        self.order[m] = m
    for m in range(n - 1):
        other = m + integer(rng, n - m)
        self.order[m], self.order[other] = self.order[other], self.order[m]


# The refinement.


cdef Py_ssize_t refine_by(
    Reconfiguration self, const Py_ssize_t* labels, const Py_ssize_t* rows, Py_ssize_t n_rows,
    Py_ssize_t n_blocks
) noexcept nogil:
    """Cut blocks of rows by labels; returns the number of blocks."""
    cdef Py_ssize_t* last = &self.scratch[0, 0]         # by block: its last position
    cdef Py_ssize_t* stamp = &self.scratch[1, 0]        # by label: last block with it, plus 1
    cdef Py_ssize_t* number = &self.scratch[2, 0]       # by label: the new block
    cdef Py_ssize_t* sorted_rows = &self.scratch[3, 0]
    cdef Py_ssize_t n_new = 0
    memset(last, 0, n_blocks * sizeof(Py_ssize_t))
    memset(stamp, 0, self.n_labels * sizeof(Py_ssize_t))
    for m in range(n_rows):
        last[self.block[rows[m]]] += 1
    for b in range(1, n_blocks):
        last[b] += last[b - 1]
    for m in range(n_rows - 1, -1, -1):
        b = self.block[rows[m]]
        last[b] -= 1
        sorted_rows[last[b]] = rows[m]
    for m in range(n_rows):
        x = sorted_rows[m]
        b = self.block[x] + 1
        if stamp[labels[x]] != b:
            stamp[labels[x]] = b
            number[labels[x]] = n_new
            n_new += 1
        # Rows are sorted by block, so the blocks of later rows are still the old ones.
        self.block[x] = number[labels[x]]
    return n_new


cdef void refine(Reconfiguration self, Py_ssize_t n) noexcept nogil:
    """List the blocks of c by decreasing size, then by their first row in the order."""
    cdef Py_ssize_t* rows = &self.members[0]    # scratch until it holds the rows by block
    cdef Py_ssize_t* size = &self.scratch[0, 0]
    cdef Py_ssize_t* n_larger = &self.scratch[1, 0]
    cdef Py_ssize_t* position = &self.scratch[2, 0]
    cdef Py_ssize_t n_rows = 0, first = 0
    for m in range(n):
        x = self.order[m]
        if self.takes(x):
            rows[n_rows] = x
            n_rows += 1
            self.block[x] = 0
    self.n_blocks = refine_by(self, &self.start[0], rows, n_rows, 1)
    self.n_blocks = refine_by(self, self.za, rows, n_rows, self.n_blocks)
    self.n_blocks = refine_by(self, self.zb, rows, n_rows, self.n_blocks)
    memset(size, 0, self.n_blocks * sizeof(Py_ssize_t))
    for m in range(n_rows):
        size[self.block[rows[m]]] += 1
    # Blocks of a size begin in the list after all larger blocks.
    memset(n_larger, 0, (n + 1) * sizeof(Py_ssize_t))
    for b in range(self.n_blocks):
        n_larger[size[b] - 1] += 1
        position[b] = -1
    for m in range(n - 2, -1, -1):
        n_larger[m] += n_larger[m + 1]
    for m in range(n_rows):
        b = self.block[rows[m]]
        if position[b] < 0:
            position[b] = n_larger[size[b]]
            n_larger[size[b]] += 1
            self.begin[position[b]] = size[b]
    for b in range(self.n_blocks + 1):
        m = self.begin[b] if b < self.n_blocks else 0
        self.begin[b] = first
        first += m
    for m in range(n_rows):
        self.block[rows[m]] = position[self.block[rows[m]]]
    # From here on `size` counts the rows of each block that are listed.
    memset(size, 0, self.n_blocks * sizeof(Py_ssize_t))
    for m in range(n):
        x = self.order[m]
        if self.takes(x):
            b = self.block[x]
            self.members[self.begin[b] + size[b]] = x
            size[b] += 1


cdef bint is_over(Reconfiguration self, double limit) noexcept nogil:
    """Whether the probability of a forced construction is already too small."""
    if self.target != NULL and not self.log_t > limit and not isnan(self.log_t):
        self.log_t = -INFINITY
        return True
    return False


cdef void begin_from(Reconfiguration self, MixtureState state) noexcept nogil:
    """Remember z, and for each label of the target the outer cluster its rows come from."""
    memcpy(&self.start[0], state.labels, state.n_samples * sizeof(Py_ssize_t))
    self.slot_i = state.labels[self.i]
    self.slot_j = state.labels[self.j]
    for k in range(state.n_clusters):
        slot = state.slots[k]
        self.home[slot] = slot
        self.left[slot] = state.sizes[slot]
    if self.target == NULL:
        return
    for k in range(self.n_labels):
        self.owner[k] = self.target_slot[k] = -1
    for x in range(state.n_samples):
        if self.start[x] == NOISE:
            continue
        t = self.target[x]
        if self.inside(x) or t == self.target[self.i] or t == self.target[self.j]:
            continue
        if self.owner[t] < 0:
            self.owner[t] = self.start[x]
        elif self.owner[t] != self.start[x]:
            self.log_t = -INFINITY      # outer clusters are never merged


cdef Py_ssize_t place_first(
    Reconfiguration self, MixtureState state, Py_ssize_t x, Py_ssize_t slot, bint refined
) except -1 nogil:
    """Put row i or j, and the rows of its block of c, into a slot; return the slot."""
    make_room(self, state)
    state.attach(x, slot)
    if refined:
        b = self.block[x]
        for m in range(self.begin[b], self.begin[b + 1]):
            if self.members[m] != x:
                state.attach(self.members[m], slot)
    return slot


cdef int put(
    Reconfiguration self, MixtureState state, bitgen_t* rng, const Py_ssize_t* rows,
    Py_ssize_t n_rows
) except -1 nogil:
    """Draw the cluster of a unit, or force it with a target, and put the unit there."""
    cdef Py_ssize_t x = rows[0]
    cdef Py_ssize_t pick = -1
    make_room(self, state)
    if must_stay(self, state, x, n_rows):
        if self.target != NULL and wanted_slot(self, x) != state.labels[x]:
            self.log_t = -INFINITY
        return 0
    own = take_out(self, state, rows, n_rows)
    n = list_options(self, state, x, own)
    weigh_options(self, state, rows, n_rows, own, n)
    if self.target != NULL:
        pick = forced_option(self, x, own, n)
        if pick < 0:
            self.log_t = -INFINITY
            return 0
    pick = self.choose(rng, state.log_w, n, pick)
    if pick < 0:
        raise unplaceable(x)
    slot = self.options[pick]
    if n_rows == 1:
        state.attach(x, slot)
    elif slot != own:
        state.join(slot, own, as_indices(rows, n_rows))
    if self.inside(x):
        if self.target != NULL:
            self.target_slot[self.target[x]] = slot
    else:
        if slot == own:
            self.home[self.start[x]] = own
        if slot == self.home[self.start[x]]:
            self.left[self.start[x]] += n_rows


cdef bint must_stay(
    Reconfiguration self, MixtureState state, Py_ssize_t x, Py_ssize_t n_rows
) noexcept nogil:
    """Whether an outer unit is all that is left at home, where others have joined it."""
    cdef Py_ssize_t home = self.home[self.start[x]]
    if self.inside(x) or home < 0 or state.labels[x] != home:
        return False
    if self.left[self.start[x]] == n_rows and state.sizes[home] > n_rows:
        return True
    self.left[self.start[x]] -= n_rows
    if state.sizes[home] == n_rows:
        self.home[self.start[x]] = -1
    return False


cdef Py_ssize_t list_options(
    Reconfiguration self, MixtureState state, Py_ssize_t x, Py_ssize_t own
) noexcept nogil:
    """List the clusters that a unit may join in `options`, and last, unless it has a home, the
    slot `own` of the unit alone. Returns the number of options."""
    cdef Py_ssize_t n = 0
    if self.inside(x):
        for k in range(state.n_clusters):
            if state.slots[k] != own:
                self.options[n] = state.slots[k]
                n += 1
        self.options[n] = own
        return n + 1
    self.options[0] = self.b_i
    n = 1
    if self.b_j != self.b_i:
        self.options[n] = self.b_j
        n += 1
    self.options[n] = self.home[self.start[x]] if self.home[self.start[x]] >= 0 else own
    return n + 1


cdef void weigh_options(
    Reconfiguration self, MixtureState state, const Py_ssize_t* rows, Py_ssize_t n_rows,
    Py_ssize_t own, Py_ssize_t n
) noexcept nogil:
    """Write the log weights of n options to `state.log_w`."""
    cdef Py_ssize_t k
    cdef bint alone = self.options[n - 1] == own
    cdef Py_ssize_t n_joined = n - alone
    cdef double* log_w = state.log_w
    cdef const double* log_cluster = state.prior.log_cluster
    self.work += n + 2 * n_rows
    if n_rows == 1:
        state.model.log_predictive_many(as_indices(&self.options[0], n), rows[0], log_w)
    elif state.model.factorizes and n_rows <= FEW + state.model.width // WIDTH_OF_ROW:
        for k in range(n_joined):
            log_w[k] = log_predictive_block(state, as_indices(rows, n_rows), self.options[k])
        if alone:
            log_w[n_joined] = state.model.log_marginal(own)
    else:
        state.model.log_merge_many(as_indices(&self.options[0], n_joined), own, log_w)
        if alone:
            log_w[n_joined] = 0.0
    for k in range(n_joined):
        log_w[k] += (
            log_cluster[state.sizes[self.options[k]] + n_rows]
            - log_cluster[state.sizes[self.options[k]]]
        )
    if alone:
        k = state.n_clusters - (n_rows > 1)
        log_w[n_joined] += log_cluster[n_rows] + log_new(state, k)


cdef Py_ssize_t forced_option(
    Reconfiguration self, Py_ssize_t x, Py_ssize_t own, Py_ssize_t n
) noexcept nogil:
    """The option that leads to the target; -1: the target is impossible."""
    cdef Py_ssize_t wanted = wanted_slot(self, x)
    if wanted == -1:
        wanted = own
    for k in range(n):
        if self.options[k] == wanted:
            return k
    return -1


cdef Py_ssize_t take_out(
    Reconfiguration self, MixtureState state, const Py_ssize_t* rows, Py_ssize_t n_rows
) noexcept nogil:
    """Take a unit out of its cluster. A single row is then in no cluster, and the spare is
    returned; a block is in a separate cluster, whose slot is returned."""
    cdef Py_ssize_t at = state.labels[rows[0]]
    if n_rows == 1:
        if at >= 0:
            state.detach(rows[0])
        return state.slots[state.n_clusters]
    if at >= 0 and state.sizes[at] == n_rows:
        return at
    own = state.slots[state.n_clusters]
    for m in range(n_rows):
        if at >= 0:
            state.detach(rows[m])
        state.attach(rows[m], own)
    return own


cdef Py_ssize_t wanted_slot(Reconfiguration self, Py_ssize_t x) noexcept nogil:
    """The slot where the target has a unit; -1: a new one; -2: the target is impossible."""
    cdef Py_ssize_t t = self.target[x]
    if t == self.target[self.i]:
        return self.b_i
    if t == self.target[self.j]:
        return self.b_j
    if not self.inside(x):
        return self.home[self.start[x]]
    if self.owner[t] >= 0:
        return self.home[self.owner[t]] if self.home[self.owner[t]] >= 0 else -2
    return self.target_slot[t]


cdef bint reached(Reconfiguration self, MixtureState state) noexcept nogil:
    cdef Py_ssize_t* label_of = &self.scratch[0, 0]     # by slot
    for x in range(self.n_labels):
        label_of[x] = self.target_slot[x] = -1
    for x in range(state.n_samples):
        if self.start[x] == NOISE:
            continue
        t = self.target[x]
        slot = state.labels[x]
        if label_of[slot] < 0 and self.target_slot[t] < 0:
            label_of[slot] = t
            self.target_slot[t] = slot
        elif label_of[slot] != t or self.target_slot[t] != slot:
            return False
    return True


cdef inline double log_new(MixtureState state, Py_ssize_t k) noexcept nogil:
    """log V_{n,k+1} - log V_{n,k}; -infinity if the prior allows at most k clusters."""
    if state.prior.log_v[k] == -INFINITY:
        return -INFINITY
    return state.prior.log_v[k + 1] - state.prior.log_v[k]


cdef class ARMKernel(PartitionKernel):
    """Kernel of `ARM`. After each reconfiguration `split_merge` makes `n_split_merges` steps,
    which need no history: splits that all past states lack are found by these alone."""
    cdef readonly History history
    cdef Reconfiguration construction
    cdef Py_ssize_t gibbs_sweeps
    cdef PartitionKernel split_merge
    cdef Py_ssize_t n_split_merges
    cdef StoredState current, proposed
    cdef long long n_proposed[2]    # splits and merges of the first replica
    cdef long long n_accepted[2]

    def __init__(
        self, str blocks, History history, Py_ssize_t gibbs_sweeps, PartitionKernel split_merge,
        Py_ssize_t n_split_merges
    ):
        self.history = self.learner = history
        self.construction = Reconfiguration(blocks)
        self.gibbs_sweeps = gibbs_sweeps
        self.split_merge = split_merge
        self.n_split_merges = n_split_merges
        self.current = StoredState()
        self.proposed = StoredState()

    cdef int prepare(self, MixtureState state) except -1:
        state.reserve(2 * state.n_clusters + 16)
        self.construction.reserve(state)
        self.split_merge.prepare(state)
        return self.history.check(state.n_samples)

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef long long before = self.split_merge.work
        if state.n_samples > 1:
            self.move(state, rng)
        self.split_merge.repeat(state, rng, self.n_split_merges)
        self.work += self.split_merge.work - before
        return sweep(self, state, rng, self.gibbs_sweeps)

    cdef void draw(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Draw rows, past states and order of a move; none depends on the current state."""
        if self.history.draw(self.replica, rng):
            self.construction.i, self.construction.j = self.history.pair[0], self.history.pair[1]
            self.construction.za = &self.history.za[0]
            self.construction.zb = &self.history.zb[0]
        else:
            self.construction.i = integer(rng, state.n_samples)
            self.construction.j = integer(rng, state.n_samples - 1)
            self.construction.j += self.construction.j >= self.construction.i
            self.construction.za = NULL
        shuffle(self.construction, state.n_samples, rng)

    cdef int move(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef bint is_merge, accepted
        cdef double log_u = log(uniform(rng))
        cdef long long before = self.construction.work
        self.draw(state, rng)
        if (
            state.labels[self.construction.i] == NOISE
            or state.labels[self.construction.j] == NOISE
        ):
            return 0
        is_merge = state.labels[self.construction.i] != state.labels[self.construction.j]
        state.model.settle()
        log_ratio = -state.log_joint()
        self.current.store(state)
        self.construction.construct(state, rng, NULL, -INFINITY)
        state.model.settle()
        log_ratio += state.log_joint() - self.construction.log_t
        if isnan(log_ratio):
            raise FloatingPointError(
                f"rows {self.construction.i} and {self.construction.j}: "
                "a move between them has no density"
            )
        # T of the reverse is at most 1, so most moves are refused without it.
        limit = log_u - log_ratio
        accepted = limit < 0.0
        if accepted:
            self.proposed.store(state)
            self.construction.construct(state, rng, &self.current.labels[0], limit)
            accepted = limit < self.construction.log_t
            if accepted:
                self.proposed.recall(state)
        if not accepted:
            self.current.recall(state)
        self.work += self.construction.work - before + 2 * state.n_samples
        if self.replica == 0:
            self.n_proposed[is_merge] += 1
            self.n_accepted[is_merge] += accepted

    # The Python boundary.

    def acceptance(self):
        """Numbers of proposed and accepted moves: keys "split" and "merge"."""
        return dict(zip(("split", "merge"), zip(self.n_proposed, self.n_accepted)))
