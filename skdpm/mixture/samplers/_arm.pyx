# SPDX-License-Identifier: BSD-3-Clause
"""Adaptive reconfiguration moves: Herlau, Mørup, Teh & Schmidt (2014), "Adaptive reconfiguration
moves for MCMC inference in Dirichlet process mixtures", algorithm 3.

Two past states z^a, z^b and two rows i, j on which they disagree are drawn (`_history`). Where the
current partition z has i and j together their cluster is split, else their clusters are merged;
the rows of these, U = z_i + z_j, go through the *construction*:

    c        the common refinement of z, z^a and z^b; its blocks of i and j are c_i and c_j
    b_i, b_j new clusters of c_i and c_j; of a merge they are one
    loop 1   every other block of c as one, the largest first: ties in the random order of the move
    loop 2   then, in this order, every row but i, j and the first one of each block of loop 1

A unit of rows A (a block, or a row), taken out, is put by its conditional law given all rows that
are placed,

    cluster B      p(x_A | rows of B and all others) (1 - sigma)_{|B|+|A|-1} / (1 - sigma)_{|B|-1}
    a new one      p(x_A | all others) (1 - sigma)_{|A|-1} V_{n,k+1} / V_{n,k},

into any cluster where its rows are of U. A unit of another cluster of z chooses between b_i, b_j
and *home*, what its cluster has become: the slot of this, or a new one where none of its rows is
left; it stays without a choice where it is all that is left and others have come.

Every unit is decided once, the clusters of i and j stay, and each outer cluster has one home: so
no two ways lead to one partition, and T(z -> z*), the product of the probabilities of all choices,
is the probability of z*. It is accepted with the probability

    min(1, p(z*, X) T(z* -> z) / (p(z, X) T(z -> z*))),

where the reverse is the construction from z*, of the same i, j, z^a, z^b and order, with z* in
place of z in the refinement, and every choice forced to end in z; T = 0 where one of them is not
to be had. What depends on no state (the weights, the order of the units) may be any law.

Over which rows c is taken distinguishes the variants. "pair", of U, is the algorithm as printed;
"all", of all rows, lets the blocks of other clusters move as one, without which a move that takes
many rows from a cluster has hardly a way back; "none" has no loop 1 (sARM). Without past states i
and j are uniform, c_i = {i} and c_j = {j} (sRM).
"""
from libc.math cimport INFINITY, isnan, log
from libc.stdlib cimport free
from libc.string cimport memcpy, memset
from numpy.random cimport bitgen_t

from skdpm._core._memory cimport resized
from skdpm._core._resampling cimport exponentiate
from skdpm._core._rng cimport integer, uniform
from skdpm.mixture.state._state cimport MixtureState, StoredState
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport gibbs_sweep, sweep_work
from skdpm.mixture.samplers._history cimport History
from skdpm.mixture.samplers._moves cimport log_predictive_block

BLOCKS = ("all", "pair", "none")


cdef enum:
    N_FREE = 3      # slots that a unit takes at once: its own, the next spare, and scratch
    # To weigh so many rows one by one takes as long as a marginal likelihood of independent
    # clusters: about so many, and one more for so many numbers of a cluster.
    FEW = 2
    WIDTH_OF_ROW = 64


cdef class Reconfiguration:
    """
    Parameters
    ----------
    blocks : {"all", "pair", "none"}
    """

    def __init__(self, str blocks):
        self.has_blocks = blocks != "none"
        self.outer_blocks = blocks == "all"

    def __dealloc__(self):
        free(self.order)
        free(self.start)
        free(self.home)
        free(self.left)
        free(self.owner)
        free(self.target_slot)
        free(self.begin)
        free(self.members)
        free(self.block)
        free(self.is_done)
        free(self.scratch)
        free(self.options)
        free(self.weights)

    cdef int reserve(self, MixtureState state) except -1:
        """Room for the rows and slots of a state."""
        cdef Py_ssize_t n = state.n_samples
        cdef Py_ssize_t size = sizeof(Py_ssize_t)
        if n > self.n_samples:
            self.order = <Py_ssize_t*>resized(self.order, n, size)
            self.start = <Py_ssize_t*>resized(self.start, n, size)
            self.members = <Py_ssize_t*>resized(self.members, n, size)
            self.block = <Py_ssize_t*>resized(self.block, n, size)
            self.begin = <Py_ssize_t*>resized(self.begin, n + 1, size)
            self.is_done = <signed char*>resized(self.is_done, n, 1)
            self.n_samples = n
        if state.capacity > self.n_slots:
            self.home = <Py_ssize_t*>resized(self.home, state.capacity, size)
            self.left = <Py_ssize_t*>resized(self.left, state.capacity, size)
            self.options = <Py_ssize_t*>resized(self.options, state.capacity, size)
            self.weights = <double*>resized(self.weights, state.capacity, sizeof(double))
            self.n_slots = state.capacity
        # Labels are slots of a state, or those of a past one.
        if max(n, state.capacity) + 1 > self.n_labels:
            self.n_labels = max(n, state.capacity) + 1
            self.owner = <Py_ssize_t*>resized(self.owner, self.n_labels, size)
            self.target_slot = <Py_ssize_t*>resized(self.target_slot, self.n_labels, size)
            self.scratch = <Py_ssize_t*>resized(self.scratch, 4 * self.n_labels, size)
        return 0

    cdef int make_room(self, MixtureState state) except -1 nogil:
        """Make sure that slots are free for a unit; it takes the lock where they are not."""
        if state.model.n_free < N_FREE or state.capacity > self.n_slots:
            with gil:
                if state.model.n_free < N_FREE:
                    state.reserve(2 * state.capacity + N_FREE)
                self.reserve(state)
        return 0

    cdef void shuffle(self, Py_ssize_t n, bitgen_t* rng) noexcept nogil:
        """Draw the order, uniformly among all."""
        cdef Py_ssize_t m, other
        for m in range(n):      # from the start: what a move leaves behind must not matter
            self.order[m] = m
        for m in range(n - 1):
            other = m + integer(rng, n - m)
            self.order[m], self.order[other] = self.order[other], self.order[m]

    # The refinement.

    cdef Py_ssize_t refine_by(
        self, const Py_ssize_t* labels, const Py_ssize_t* rows, Py_ssize_t n_rows,
        Py_ssize_t n_blocks
    ) noexcept nogil:
        """Cut the blocks of some rows by labels; returns the number of blocks."""
        cdef Py_ssize_t* last = self.scratch                # by block: its last position
        cdef Py_ssize_t* stamp = last + self.n_labels       # by label: the block it was met in
        cdef Py_ssize_t* number = stamp + self.n_labels     # by label: the new block
        cdef Py_ssize_t* sorted_rows = number + self.n_labels
        cdef Py_ssize_t b, m, x
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
            # Rows of a block stand together: the old numbers of later ones are still to be read.
            self.block[x] = number[labels[x]]
        return n_new

    cdef void refine(self, Py_ssize_t n) noexcept nogil:
        """List the blocks of c, by decreasing size and then by their first row in the order."""
        cdef Py_ssize_t* rows = self.members        # until it holds the rows by block
        cdef Py_ssize_t* size = self.scratch
        cdef Py_ssize_t* n_larger = size + self.n_labels
        cdef Py_ssize_t* position = n_larger + self.n_labels
        cdef Py_ssize_t b, m, x
        cdef Py_ssize_t n_rows = 0
        cdef Py_ssize_t first = 0
        for m in range(n):
            x = self.order[m]
            if self.outer_blocks or self.inside(x):
                rows[n_rows] = x
                n_rows += 1
                self.block[x] = 0
        self.n_blocks = self.refine_by(self.start, rows, n_rows, 1)
        self.n_blocks = self.refine_by(self.za, rows, n_rows, self.n_blocks)
        self.n_blocks = self.refine_by(self.zb, rows, n_rows, self.n_blocks)
        memset(size, 0, self.n_blocks * sizeof(Py_ssize_t))
        for m in range(n_rows):
            size[self.block[rows[m]]] += 1
        # Where blocks of a size begin in the list of blocks: a count of those that are larger.
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
        # From here on `size` counts the rows of each block that are in place.
        memset(size, 0, self.n_blocks * sizeof(Py_ssize_t))
        for m in range(n):
            x = self.order[m]
            if self.outer_blocks or self.inside(x):
                b = self.block[x]
                self.members[self.begin[b] + size[b]] = x
                size[b] += 1

    # The construction.

    cdef int construct(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* target, double limit
    ) except -1 nogil:
        """Turn the state into another, drawn, or with a target forced; `log_t` is then log T.

        With a target it stops, with log T = -infinity, as soon as log T is known to be no more
        than `limit`, or the target not to be reached. The state is then another one.
        """
        cdef Py_ssize_t b, m, x
        cdef Py_ssize_t n = state.n_samples
        cdef bint refined = self.za != NULL
        self.log_t = 0.0
        self.target = target
        self.begin_from(state)
        memset(self.is_done, 0, n)
        self.is_done[self.i] = self.is_done[self.j] = True
        if refined:
            self.refine(n)
        state.dissolve(self.slot_i)
        if self.slot_j != self.slot_i:
            state.dissolve(self.slot_j)
        self.b_i = self.place_first(state, self.i, state.slots[state.n_clusters], refined)
        self.b_j = self.b_i
        if self.slot_j == self.slot_i:
            self.b_j = state.slots[state.n_clusters]
        self.place_first(state, self.j, self.b_j, refined)
        if refined and self.has_blocks:
            for b in range(self.n_blocks):
                x = self.members[self.begin[b]]
                if self.block[self.i] == b or self.block[self.j] == b:
                    continue
                self.is_done[x] = True
                self.put(
                    state, rng, self.members + self.begin[b], self.begin[b + 1] - self.begin[b]
                )
                if self.is_over(limit):
                    return 0
        for m in range(n):
            x = self.order[m]
            if not self.is_done[x]:
                self.put(state, rng, &x, 1)
                if self.is_over(limit):
                    return 0
        if target != NULL and not self.reached(state):
            self.log_t = -INFINITY
        return 0

    cdef bint is_over(self, double limit) noexcept nogil:
        """Has a forced construction no chance any more?"""
        if self.target != NULL and not self.log_t > limit and not isnan(self.log_t):
            self.log_t = -INFINITY
            return True
        return False

    cdef void begin_from(self, MixtureState state) noexcept nogil:
        """Remember z, and where rows of each label of the target are to be found."""
        cdef Py_ssize_t k, slot, x, t
        memcpy(self.start, state.labels, state.n_samples * sizeof(Py_ssize_t))
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
            t = self.target[x]
            if self.inside(x) or t == self.target[self.i] or t == self.target[self.j]:
                continue
            if self.owner[t] < 0:
                self.owner[t] = self.start[x]
            elif self.owner[t] != self.start[x]:
                self.log_t = -INFINITY      # outer clusters never meet

    cdef Py_ssize_t place_first(
        self, MixtureState state, Py_ssize_t x, Py_ssize_t slot, bint refined
    ) except -1 nogil:
        """Row i or j, with the rows of its block of c, joins a slot; returns it."""
        cdef Py_ssize_t b, m
        self.make_room(state)
        state.attach(x, slot)
        if refined:
            b = self.block[x]
            for m in range(self.begin[b], self.begin[b + 1]):
                if self.members[m] != x:
                    state.attach(self.members[m], slot)
        return slot

    cdef int put(
        self, MixtureState state, bitgen_t* rng, const Py_ssize_t* rows, Py_ssize_t n_rows
    ) except -1 nogil:
        """Draw the cluster of a unit, or force it with a target, and put the unit there."""
        cdef Py_ssize_t x = rows[0]
        cdef Py_ssize_t origin = self.start[x]
        cdef bint inside = self.inside(x)
        cdef bint at_home, alone
        cdef Py_ssize_t own, n, k, pick, wanted
        cdef double* log_w
        self.make_room(state)
        log_w = state.log_w
        if not inside:
            at_home = self.home[origin] >= 0 and state.labels[x] == self.home[origin]
            if at_home:
                if self.left[origin] == n_rows and state.sizes[self.home[origin]] > n_rows:
                    if self.target != NULL and self.wanted_slot(x) != self.home[origin]:
                        self.log_t = -INFINITY
                    return 0
                self.left[origin] -= n_rows
                if state.sizes[self.home[origin]] == n_rows:
                    self.home[origin] = -1
        own = self.take_out(state, rows, n_rows)
        # The clusters to choose from, then its own.
        n = 0
        if inside:
            for k in range(state.n_clusters):
                if state.slots[k] != own:
                    self.options[n] = state.slots[k]
                    n += 1
        else:
            self.options[n] = self.b_i
            n += 1
            if self.b_j != self.b_i:
                self.options[n] = self.b_j
                n += 1
            if self.home[origin] >= 0:
                self.options[n] = self.home[origin]
                n += 1
        alone = inside or self.home[origin] < 0
        self.options[n] = own
        self.work += n + alone + 2 * n_rows
        if n_rows == 1:
            state.model.log_predictive_many(self.options, n + alone, x, log_w)
        elif state.model.factorizes and n_rows <= FEW + state.model.width // WIDTH_OF_ROW:
            for k in range(n):
                log_w[k] = log_predictive_block(state, rows, n_rows, self.options[k])
            log_w[n] = state.model.log_marginal(own)
        else:
            state.model.log_merge_many(self.options, n, own, log_w)
            log_w[n] = 0.0
        for k in range(n):
            log_w[k] += (
                state.prior.log_cluster[state.sizes[self.options[k]] + n_rows]
                - state.prior.log_cluster[state.sizes[self.options[k]]]
            )
        if alone:
            log_w[n] += state.prior.log_cluster[n_rows] + log_new(
                state, state.n_clusters - (n_rows > 1)
            )
        pick = -1
        if self.target != NULL:
            wanted = self.wanted_slot(x)
            if wanted == -2:
                self.log_t = -INFINITY
                return 0
            if wanted < 0:
                wanted = own
            for k in range(n + alone):
                if self.options[k] == wanted:
                    pick = k
            if pick < 0:
                self.log_t = -INFINITY
                return 0
        pick = self.choose(rng, log_w, n + alone, pick)
        if pick < 0:
            with gil:
                raise FloatingPointError(f"row {x}: no cluster has a positive weight")
        k = self.options[pick]
        if n_rows == 1:
            state.attach(x, k)
        elif k != own:
            state.join(k, own, rows, n_rows)
        if inside:
            if self.target != NULL:
                self.target_slot[self.target[x]] = k
        else:
            if k == own:
                self.home[origin] = own
            if k == self.home[origin]:
                self.left[origin] += n_rows
        return 0

    cdef Py_ssize_t take_out(
        self, MixtureState state, const Py_ssize_t* rows, Py_ssize_t n_rows
    ) noexcept nogil:
        """Take a unit out: a row is then in no cluster, and a block in one of its own. Returns the
        slot of this cluster, which for a row is the spare."""
        cdef Py_ssize_t m, own
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

    cdef Py_ssize_t wanted_slot(self, Py_ssize_t x) noexcept nogil:
        """Where a unit must go for the target: a slot; -1: a new one; -2: it is not to be had."""
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

    cdef Py_ssize_t choose(
        self, bitgen_t* rng, const double* log_w, Py_ssize_t n, Py_ssize_t pick
    ) noexcept nogil:
        """Draw an option by its log weight, or take `pick` where that is not negative, and count
        its probability. Returns it; -1 where the weights are no distribution."""
        cdef Py_ssize_t k
        cdef double top = exponentiate(log_w, self.weights, n)
        cdef double total = 0.0
        cdef double u
        if isnan(top):
            return -1
        for k in range(n):
            total += self.weights[k]
        if pick < 0:
            u = uniform(rng) * total
            for k in range(n):
                if self.weights[k] > 0.0:
                    pick = k        # the last of these where rounding leaves u positive
                    u -= self.weights[k]
                    if u < 0.0:
                        break
        self.log_t += log_w[pick] - top - log(total)
        return pick

    cdef bint reached(self, MixtureState state) noexcept nogil:
        """Is the state's partition the target?"""
        cdef Py_ssize_t x, t, slot
        cdef Py_ssize_t* label_of = self.scratch    # by slot
        for x in range(self.n_labels):
            label_of[x] = self.target_slot[x] = -1
        for x in range(state.n_samples):
            t = self.target[x]
            slot = state.labels[x]
            if label_of[slot] < 0 and self.target_slot[t] < 0:
                label_of[slot] = t
                self.target_slot[t] = slot
            elif label_of[slot] != t or self.target_slot[t] != slot:
                return False
        return True


cdef inline double log_new(MixtureState state, Py_ssize_t k) noexcept nogil:
    """log V_{n,k+1} - log V_{n,k}: -infinity where there are k components or fewer."""
    if state.prior.log_v[k] == -INFINITY:
        return -INFINITY
    return state.prior.log_v[k + 1] - state.prior.log_v[k]


cdef class ARMKernel(PartitionKernel):
    """Kernel of `ARM`.

    Parameters
    ----------
    blocks : {"all", "pair", "none"}
    history : History
    gibbs_sweeps : int
    """
    cdef readonly History history
    cdef Reconfiguration construction
    cdef Py_ssize_t gibbs_sweeps
    cdef StoredState current, proposed
    cdef long long n_proposed[2]    # splits, merges: of the first replica
    cdef long long n_accepted[2]

    def __init__(self, str blocks, History history, Py_ssize_t gibbs_sweeps):
        self.history = history
        self.construction = Reconfiguration(blocks)
        self.gibbs_sweeps = gibbs_sweeps
        self.current = StoredState()
        self.proposed = StoredState()

    cdef int prepare(self, MixtureState state) except -1:
        state.reserve(2 * state.n_clusters + 16)
        self.construction.reserve(state)
        return self.history.check(state.n_samples)

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t _sweep
        if state.n_samples > 1:
            self.move(state, rng)
        for _sweep in range(self.gibbs_sweeps):
            gibbs_sweep(state, rng)
            self.work += sweep_work(state)
        return 0

    cdef void draw(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Draw what the move is drawn by: nothing of it depends on the current state."""
        if self.history.draw(self.replica, rng):
            self.construction.i, self.construction.j = self.history.pair[0], self.history.pair[1]
            self.construction.za = self.history.za
            self.construction.zb = self.history.zb
        else:
            self.construction.i = integer(rng, state.n_samples)
            self.construction.j = integer(rng, state.n_samples - 1)
            self.construction.j += self.construction.j >= self.construction.i
            self.construction.za = NULL
        self.construction.shuffle(state.n_samples, rng)

    cdef int move(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        """Propose another partition, and decide."""
        cdef bint is_merge, accepted
        cdef double log_ratio, limit
        cdef double log_u = log(uniform(rng))
        cdef long long before = self.construction.work
        self.draw(state, rng)
        is_merge = state.labels[self.construction.i] != state.labels[self.construction.j]
        state.model.settle()
        log_ratio = -state.log_joint()
        self.current.store(state)
        self.construction.construct(state, rng, NULL, -INFINITY)
        state.model.settle()
        log_ratio += state.log_joint() - self.construction.log_t
        if isnan(log_ratio):
            with gil:
                raise FloatingPointError(
                    f"rows {self.construction.i} and {self.construction.j}: "
                    "a move between them has no density"
                )
        # T of the reverse is at most 1: most moves can be refused without it.
        limit = log_u - log_ratio
        accepted = limit < 0.0
        if accepted:
            self.proposed.store(state)
            self.construction.construct(state, rng, self.current.labels, limit)
            accepted = limit < self.construction.log_t
            if accepted:
                self.proposed.recall(state)
        if not accepted:
            self.current.recall(state)
        self.work += self.construction.work - before + 2 * state.n_samples
        if self.replica == 0:
            self.n_proposed[is_merge] += 1
            self.n_accepted[is_merge] += accepted
        return 0

    # The Python boundary.

    def record(self, Py_ssize_t t, states, bint adapting):
        self.history.record(t, states, adapting)

    def acceptance(self):
        """"split" and "merge": moves proposed and accepted."""
        return {
            "split": (self.n_proposed[0], self.n_accepted[0]),
            "merge": (self.n_proposed[1], self.n_accepted[1]),
        }

    def get_adaptation(self):
        return self.history.get_state()

    def set_adaptation(self, adaptation):
        if adaptation:
            self.history.set_state(adaptation)
