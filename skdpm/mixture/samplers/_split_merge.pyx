# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by Metropolis-Hastings: sequential allocation (Dahl 2003, "SAMS") and restricted
Gibbs scans (Jain & Neal 2004).

Two anchors are drawn. If they share a cluster, a split of it is proposed, one anchor on each side
and all other items, in one random order, by an allocation that `allocate` defines, of probability
q; else the union of their clusters is proposed. A split is accepted with probability min(1, r),

    r = p(split) p(X | split) / (p(merged) p(X | merged) q(split)),

a merge with min(1, 1 / r), where q is the probability that the allocation, in one fresh random
order, would have led to the two clusters as they are. The priors are whole ones, so r holds for
any of them.

Densities of items enter by the chain rule alone. Where clusters are independent the proposal is
built in slots of its own and the current clusters wait; where they are coupled the items first
leave their clusters, and return in case of a rejection.
"""
from libc.math cimport INFINITY, exp, fabs, log
from libc.stdlib cimport free
from numpy.random cimport bitgen_t

from skdpm._core._memory cimport resized
from skdpm._core._rng cimport uniform
from skdpm.mixture._state cimport MixtureState
from skdpm.mixture.samplers._anchors cimport AnchorProposal, Closure
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport gibbs_sweep


cdef struct LogProbability:
    # total - log(divisor): a product instead of a logarithm per factor.
    double total
    double divisor


cdef class SplitMergeKernel(PartitionKernel):
    """What both samplers share; a subclass says how items are allocated to the two sides."""
    cdef Py_ssize_t gibbs_sweeps
    cdef AnchorProposal anchors
    cdef Closure closure
    cdef signed char* blocks        # (n_samples,): side of each item of the closure
    cdef signed char* forced        # (n_samples,): that of the current partition
    cdef Py_ssize_t* live           # (n_slots,): scratch
    cdef Py_ssize_t side[2]         # slots of the two sides of a split
    cdef Py_ssize_t size[2]
    cdef Py_ssize_t n_samples, n_slots
    cdef long long n_proposed[2]    # splits, merges
    cdef long long n_accepted[2]

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps):
        self.anchors = anchors
        self.gibbs_sweeps = gibbs_sweeps
        self.closure = Closure()

    def __dealloc__(self):
        free(self.blocks)
        free(self.forced)
        free(self.live)

    cdef int prepare(self, MixtureState state) except -1:
        self.anchors.update(state, self.adapting)
        state.reserve(state.n_clusters + 4)
        self.closure.reserve(state)
        if state.n_samples > self.n_samples:
            self.blocks = <signed char*>resized(self.blocks, state.n_samples, 1)
            self.forced = <signed char*>resized(self.forced, state.n_samples, 1)
            self.n_samples = state.n_samples
        if state.capacity > self.n_slots:
            self.live = <Py_ssize_t*>resized(self.live, state.capacity, sizeof(Py_ssize_t))
            self.n_slots = state.capacity
        return 0

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        cdef Py_ssize_t _sweep
        if state.n_samples > 1 and not self.move(state, rng):
            with gil:
                raise FloatingPointError("a split has no density")
        for _sweep in range(self.gibbs_sweeps):
            gibbs_sweep(state, rng)
        return 0

    cdef bint move(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Propose a split or a merge, and decide. False where a density is NaN."""
        cdef Py_ssize_t m, n
        cdef bint is_split, accepted
        cdef double log_ratio, log_q, before
        self.closure.gather(state, self.anchors, 2, rng)
        n = self.closure.n_items
        is_split = self.closure.n_blocks == 1
        self.n_proposed[not is_split] += 1
        if is_split and state.prior.log_v[self.closure.n_outside + 2] == -INFINITY:
            return True     # a finite mixture with all components in use
        before = self.log_density(state, self.closure.slots, self.closure.n_blocks)
        for m in range(n):
            self.forced[m] = self.closure.blocks[m]
        self.vacate(state, self.closure.slots, self.closure.n_blocks)
        self.side[0] = state.model.acquire()
        self.side[1] = state.model.acquire()
        log_q = self.allocate(state, rng, not is_split)
        if is_split:
            log_ratio = self.log_density(state, self.side, 2) - before - log_q
        else:
            self.unite(state)
            log_ratio = self.log_density(state, self.side, 1) - before + log_q
        # A NaN fails this comparison too, and is reported.
        accepted = log(uniform(rng)) < log_ratio
        if accepted:
            self.n_accepted[not is_split] += 1
            if is_split:
                state.replace(
                    self.closure.items, self.blocks, n, self.closure.slots, 1, self.side, 2
                )
            else:
                state.model.release(self.side[1])
                state.replace(
                    self.closure.items, self.blocks, n, self.closure.slots, 2, self.side, 1
                )
        else:
            self.restore(state)
        return log_ratio == log_ratio

    cdef double allocate(self, MixtureState state, bitgen_t* rng, bint force) noexcept nogil:
        """Put all items into the two sides, the anchors first, one in each; with `force` as in
        the current partition. Returns the log probability of the allocation."""
        return -INFINITY

    cdef inline void choose(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t m, bint force, LogProbability* log_q
    ) noexcept nogil:
        """Item m of the closure joins a side by its conditional law given the items in both, whose
        probability enters `log_q`."""
        cdef double log_w[2]
        cdef double log_odds
        cdef Py_ssize_t b
        cdef Py_ssize_t i = self.closure.items[m]
        state.model.log_predictive_many(self.side, 2, i, log_w)
        log_odds = (
            log_w[1] - log_w[0]
            + state.prior.log_join[self.size[1]] - state.prior.log_join[self.size[0]]
        )
        if force:
            b = self.forced[m]
        else:
            b = uniform(rng) * (1.0 + exp(-log_odds)) < 1.0
        self.join(state, m, b)
        # 1 / (1 + exp(-x)), x the log odds of this side, without overflow at either end.
        if b == 0:
            log_odds = -log_odds
        if log_odds < 0.0:
            log_q.total += log_odds
        log_q.divisor *= 1.0 + exp(-fabs(log_odds))
        if not log_q.divisor < 1e300:
            log_q.total -= log(log_q.divisor)
            log_q.divisor = 1.0

    cdef inline void join(self, MixtureState state, Py_ssize_t m, Py_ssize_t b) noexcept nogil:
        cdef Py_ssize_t i = self.closure.items[m]
        state.model.add(self.side[b], i)
        state.labels[i] = self.side[b]
        self.size[b] += 1
        self.blocks[m] = <signed char>b

    cdef void vacate(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """The closure's items leave their slots; where clusters are independent the rows stay as
        they are, to be there after a rejection."""
        cdef Py_ssize_t m
        for m in range(self.closure.n_items):
            state.labels[self.closure.items[m]] = -1
        if not state.model.factorizes:
            for m in range(n_slots):
                state.model.reset(slots[m])
        self.size[0] = self.size[1] = 0

    cdef void unite(self, MixtureState state) noexcept nogil:
        """All items of the closure in the first side."""
        cdef Py_ssize_t m
        cdef Py_ssize_t n = self.closure.n_items
        if state.model.factorizes:
            state.model.merge(self.side[0], self.side[1])
            self.size[0] = n
            for m in range(n):
                self.blocks[m] = 0
        else:
            self.vacate(state, self.side, 2)
            for m in range(n):
                self.join(state, m, 0)

    cdef void restore(self, MixtureState state) noexcept nogil:
        """After a rejection: all is as it was."""
        cdef Py_ssize_t m, slot
        self.vacate(state, self.side, 2)
        for m in range(self.closure.n_items):
            slot = self.closure.slots[self.forced[m]]
            if not state.model.factorizes:
                state.model.add(slot, self.closure.items[m])
            state.labels[self.closure.items[m]] = slot
        state.model.release(self.side[0])
        state.model.release(self.side[1])

    cdef double log_density(
        self, MixtureState state, const Py_ssize_t* slots, Py_ssize_t n_slots
    ) noexcept nogil:
        """log p(partition) + log p(X | partition) with the closure's items in `slots`, up to what
        no move changes."""
        cdef Py_ssize_t k, b
        cdef Py_ssize_t n_live = 0
        cdef bint in_closure
        cdef double total = state.prior.log_v[self.closure.n_outside + n_slots]
        for b in range(n_slots):
            # The current clusters know their size; the sides of a proposal are counted here.
            in_closure = slots != self.side
            total += state.prior.log_block[
                state.sizes[slots[b]] if in_closure else self.size[b]
            ]
        if state.model.factorizes:
            for b in range(n_slots):
                total += state.model.log_marginal(slots[b])
            return total
        for b in range(n_slots):
            self.live[n_live] = slots[b]
            n_live += 1
        for k in range(state.n_clusters):
            in_closure = False
            for b in range(self.closure.n_blocks):
                in_closure = in_closure or state.slots[k] == self.closure.slots[b]
            if not in_closure:
                self.live[n_live] = state.slots[k]
                n_live += 1
        return total + state.model.log_likelihood(self.live, n_live)

    # The Python boundary.

    def acceptance(self):
        """"split" and "merge": moves proposed and accepted."""
        return {
            "split": (self.n_proposed[0], self.n_accepted[0]),
            "merge": (self.n_proposed[1], self.n_accepted[1]),
        }

    def get_adaptation(self):
        return self.anchors.get_state()

    def set_adaptation(self, adaptation):
        if adaptation:
            self.anchors.set_state(adaptation)


cdef class SAMSKernel(SplitMergeKernel):
    """Sequential allocation: each item in turn, given the items placed before it."""

    cdef double allocate(self, MixtureState state, bitgen_t* rng, bint force) noexcept nogil:
        cdef Py_ssize_t m
        cdef LogProbability log_q = LogProbability(0.0, 1.0)
        self.join(state, 0, 0)
        self.join(state, 1, 1)
        for m in range(2, self.closure.n_items):
            self.choose(state, rng, m, force, &log_q)
        return log_q.total - log(log_q.divisor)


cdef class JainNealKernel(SplitMergeKernel):
    """Restricted Gibbs scans from a launch state in which each item has a side at random; the
    last scan's probability is q."""
    cdef Py_ssize_t n_scans

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps, Py_ssize_t n_scans):
        SplitMergeKernel.__init__(self, anchors, gibbs_sweeps)
        self.n_scans = n_scans

    cdef double allocate(self, MixtureState state, bitgen_t* rng, bint force) noexcept nogil:
        cdef Py_ssize_t m, scan
        cdef LogProbability log_q
        self.join(state, 0, 0)
        self.join(state, 1, 1)
        for m in range(2, self.closure.n_items):
            self.join(state, m, uniform(rng) < 0.5)
        for scan in range(self.n_scans + 1):
            log_q = LogProbability(0.0, 1.0)
            for m in range(2, self.closure.n_items):
                self.leave(state, m)
                self.choose(state, rng, m, force and scan == self.n_scans, &log_q)
        return log_q.total - log(log_q.divisor)

    cdef inline void leave(self, MixtureState state, Py_ssize_t m) noexcept nogil:
        cdef Py_ssize_t i = self.closure.items[m]
        cdef Py_ssize_t b = self.blocks[m]
        state.labels[i] = -1
        self.size[b] -= 1
        state.model.remove(self.side[b], i)
