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

Densities of items enter by the chain rule alone, and clusters through a `Trial`, so that they need
not be independent. What is written here is the allocation, and the decision.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, log
from numpy.random cimport bitgen_t

import numpy as np

from skdpm._core._rng cimport bit_generator_pointer, uniform
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._anchors cimport AnchorProposal
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport gibbs_sweep, sweep_work
from skdpm.mixture.samplers._history cimport PastAnchors
from skdpm.mixture.samplers._moves cimport Closure, Trial, make_trial


cdef enum:
    N_FREE = 3      # slots that a move takes at once: two sides, and scratch
    # In row evaluations, about: a move that is refused at once; the choice of one of two sides,
    # and joining it.
    MOVE_WORK = 20
    CHOICE_WORK = 6


cdef struct LogProbability:
    # total - log(divisor): a product instead of a logarithm per factor.
    double total
    double divisor


cdef class SplitMergeKernel(PartitionKernel):
    """What both samplers share; a subclass says how items are allocated to the two sides."""
    cdef Py_ssize_t gibbs_sweeps
    cdef readonly AnchorProposal anchors
    cdef Closure closure
    cdef Trial trial
    cdef bint factorizes            # of the model that the trial is for
    cdef long long n_proposed[2]    # splits, merges
    cdef long long n_accepted[2]

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps):
        self.anchors = anchors
        self.gibbs_sweeps = gibbs_sweeps
        self.closure = Closure(anchors)

    cdef int prepare(self, MixtureState state) except -1:
        if self.trial is None or self.factorizes != state.model.factorizes:
            self.trial = make_trial(state.model, self.closure)
            self.factorizes = state.model.factorizes
        self.anchors.update(state, self.adapting, self.replica)
        return self.reserve(state)

    cdef int reserve(self, MixtureState state) except -1:
        """Room for a move; some more, as every split takes a slot of it."""
        state.reserve(2 * state.n_clusters + 16)
        self.trial.reserve(state)
        return 0

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        self.repeat(state, rng, 1)
        return 0

    cdef int repeat(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t n_steps
    ) except -1 nogil:
        """Moves on end, with no sweeps between them, share the lists of the clusters' items."""
        cdef Py_ssize_t step, _sweep
        for step in range(n_steps):
            # A split has taken a slot, or a sweep has made more of them.
            if state.model.n_free < N_FREE or state.capacity > self.closure.n_slots:
                with gil:
                    self.reserve(state)
            if step == 0 or self.gibbs_sweeps > 0:
                self.closure.members.collect(state)
            self.work += MOVE_WORK + state.n_clusters
            if state.n_samples > 1 and not self.move(state, rng):
                with gil:
                    raise FloatingPointError(
                        f"rows {self.closure.items[0]} and {self.closure.items[1]}: "
                        "a split between them has no density"
                    )
            for _sweep in range(self.gibbs_sweeps):
                gibbs_sweep(state, rng)
                self.work += sweep_work(state)
        return 0

    cdef bint move(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Propose a split or a merge, and decide. False where a density is NaN."""
        cdef bint is_split
        cdef double log_ratio, log_q
        cdef double limit = -INFINITY
        cdef double log_u = log(uniform(rng))
        self.closure.pick(state, 2, rng)
        is_split = self.closure.n_cells == 1
        self.n_proposed[not is_split] += 1
        if is_split and state.prior.log_v[self.closure.n_outside + 2] == -INFINITY:
            return True     # a finite mixture with all components in use
        log_ratio = -self.anchors.log_q
        if is_split:
            log_ratio -= self.trial.log_current(state)
        else:
            log_ratio += self.trial.log_union_ratio(state) + self.anchors.log_q_together(
                state, self.closure.n_outside + 1, self.closure.sizes[0] + self.closure.sizes[1]
            )
            # As q is at most 1, most merges can be refused before a row is looked at, and others
            # as soon as q is known to be small enough.
            limit = log_u - log_ratio
            if limit > 0.0:
                return True
        self.closure.gather(state, rng)
        self.trial.begin(state, 2)
        log_q = self.allocate(state, rng, not is_split, limit)
        if is_split:
            log_ratio += self.trial.log_proposed(state) - log_q
            # The probability of the second anchor's cluster is at most 1 too.
            if self.anchors.extended and not log_ratio < log_u:
                log_ratio += self.closure.log_anchors(
                    state, self.trial.sides, self.trial.side, self.trial.size, 2
                )
        elif log_q < limit:
            log_ratio = -INFINITY
        else:
            log_ratio += log_q
        # A NaN fails this comparison too, and is reported.
        if log_u < log_ratio:
            self.n_accepted[not is_split] += 1
            if not is_split:
                self.trial.unite(state)
            self.trial.accept(state)
        else:
            self.trial.restore(state)
        return log_ratio == log_ratio

    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil:
        """Put all items into the two sides, the anchors first, one in each; with `force` as in
        the current partition. Returns the log probability of the allocation, or anything below
        `limit` as soon as it is known to be below."""
        return NAN

    cdef inline void choose(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t m, bint force, LogProbability* log_q
    ) noexcept nogil:
        """Item m of the closure joins a side by its conditional law given the items in both, whose
        probability enters `log_q`."""
        cdef double log_w[2]
        cdef double log_odds
        cdef Py_ssize_t b
        cdef Py_ssize_t i = self.closure.items[m]
        state.model.log_predictive_many(self.trial.side, 2, i, log_w)
        self.work += CHOICE_WORK
        log_odds = (
            log_w[1] - log_w[0]
            + state.prior.log_join[self.trial.size[1]] - state.prior.log_join[self.trial.size[0]]
        )
        if force:
            b = self.closure.cells[m]
        else:
            b = uniform(rng) * (1.0 + exp(-log_odds)) < 1.0
        self.trial.join(state, m, b)
        # 1 / (1 + exp(-x)), x the log odds of this side, without overflow at either end.
        if b == 0:
            log_odds = -log_odds
        if log_odds < 0.0:
            log_q.total += log_odds
        log_q.divisor *= 1.0 + exp(-fabs(log_odds))
        if not log_q.divisor < 1e300:
            log_q.total -= log(log_q.divisor)
            log_q.divisor = 1.0

    # The Python boundary.

    def allocation(self, MixtureState state, bit_generator, sides=None):
        """Allocate a random closure to two sides, and leave the state as it was; for tests.

        Parameters
        ----------
        state : MixtureState
        bit_generator : numpy BitGenerator
        sides : sequence of int, optional
            To force it: 0 and 1 for the anchors, then a side per item. Default: drawn.

        Returns
        -------
        items, sides : ndarray of int
            In the order of the move.
        log_q : float
            Log probability of these sides in this order.
        """
        cdef bitgen_t* rng = bit_generator_pointer(bit_generator)
        cdef Py_ssize_t m, n
        if state.n_samples < 2:
            raise ValueError("a split needs two items")
        state.prior.tabulate()
        self.prepare(state)
        self.closure.members.collect(state)
        self.closure.pick(state, 2, rng)
        self.closure.gather(state, rng)
        n = self.closure.n_items
        cells = [self.closure.cells[m] for m in range(n)]
        if sides is not None:
            if len(sides) != n or tuple(sides[:2]) != (0, 1) or not set(sides) <= {0, 1}:
                raise ValueError(f"{n} items need 0, 1 and further sides, got {sides}")
            for m in range(n):
                self.closure.cells[m] = sides[m]
        self.trial.begin(state, 2)
        log_q = self.allocate(state, rng, sides is not None, -INFINITY)
        drawn = np.array([self.trial.sides[m] for m in range(n)], dtype=np.intp)
        for m in range(n):
            self.closure.cells[m] = cells[m]
        self.trial.restore(state)
        return np.array([self.closure.items[m] for m in range(n)], np.intp), drawn, log_q

    def acceptance(self):
        """"split" and "merge": moves proposed and accepted."""
        return {
            "split": (self.n_proposed[0], self.n_accepted[0]),
            "merge": (self.n_proposed[1], self.n_accepted[1]),
        }

    def record(self, Py_ssize_t t, states, bint adapting):
        self.anchors.record(t, states, adapting)

    def keep_replicas(self, Py_ssize_t n):
        self.anchors.keep_replicas(n)

    def get_adaptation(self):
        return self.anchors.get_state()

    def set_adaptation(self, adaptation):
        if adaptation:
            self.anchors.set_state(adaptation)


cdef class SAMSKernel(SplitMergeKernel):
    """Sequential allocation: each item in turn, given the items placed before it."""

    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil:
        cdef Py_ssize_t m
        cdef LogProbability log_q = LogProbability(0.0, 1.0)
        self.trial.join(state, 0, 0)
        self.trial.join(state, 1, 1)
        for m in range(2, self.closure.n_items):
            self.choose(state, rng, m, force, &log_q)
            if log_q.total < limit:
                return log_q.total
        return log_q.total - log(log_q.divisor)


cdef class JainNealKernel(SplitMergeKernel):
    """Restricted Gibbs scans from a launch state, in which each item has a side at random; the
    last scan's probability is q.

    With `PastAnchors` the launch state is what two past states say: the items that both of them
    have with an anchor are on its side, and the others on none until the first scan comes to them
    (Herlau et al., section 3.6.2; without the current state, on which the law of the launch state
    would otherwise depend, and differ between a split and the merge that undoes it).
    """
    cdef Py_ssize_t n_scans
    cdef PastAnchors past       # the anchors, if they are of this kind

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps, Py_ssize_t n_scans):
        SplitMergeKernel.__init__(self, anchors, gibbs_sweeps)
        self.n_scans = n_scans
        self.past = anchors if isinstance(anchors, PastAnchors) else None

    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil:
        cdef Py_ssize_t m, scan
        cdef bint informed = self.past is not None and self.past.informed
        cdef LogProbability log_q
        self.trial.join(state, 0, 0)
        self.trial.join(state, 1, 1)
        for m in range(2, self.closure.n_items):
            if not informed:
                self.trial.join(state, m, uniform(rng) < 0.5)
            elif self.past.together(self.closure.items[m], self.closure.items[0]):
                self.trial.join(state, m, 0)
            elif self.past.together(self.closure.items[m], self.closure.items[1]):
                self.trial.join(state, m, 1)
        for scan in range(self.n_scans + 1):
            log_q = LogProbability(0.0, 1.0)
            for m in range(2, self.closure.n_items):
                if state.labels[self.closure.items[m]] >= 0:
                    self.trial.leave(state, m)
                self.work += CHOICE_WORK // 2
                self.choose(state, rng, m, force and scan == self.n_scans, &log_q)
                if scan == self.n_scans and log_q.total < limit:
                    return log_q.total
        return log_q.total - log(log_q.divisor)

    @property
    def history(self):
        """The past states that moves are drawn from, or None."""
        return None if self.past is None else self.past.history
