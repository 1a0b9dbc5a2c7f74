# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge: sequential allocation (Dahl 2003, "SAMS"), restricted Gibbs (Jain & Neal 2004).

Two anchors are drawn. If they share a cluster, its split is proposed: each anchor starts a side,
and `allocate` puts the other items on the sides, in one random order, with probability q.
Otherwise the union of their clusters is proposed. A split is accepted with probability min(1, r),

    r = p(split) p(X | split) / (p(merged) p(X | merged) q(split)),

a merge with probability min(1, 1 / r). There q is the probability that the allocation, in one new
random order, leads to the two current clusters. As r contains the whole prior, any prior will do.

Densities enter by the chain rule alone and clusters by a `Trial`: these need not be independent.
"""
from libc.math cimport INFINITY, NAN, exp, fabs, log

from skdpm._core._rng cimport bitgen_t, uniform
from skdpm.mixture.state._state cimport MixtureState, as_indices
from skdpm.mixture.samplers._anchors cimport AnchorProposal
from skdpm.mixture.samplers._base cimport PartitionKernel
from skdpm.mixture.samplers._gibbs cimport sweep
from skdpm.mixture.samplers._moves cimport Closure, make_trial


cdef enum:
    N_FREE = 3      # slots that a move takes at once: two sides and one of scratch
    # Costs in row evaluations, roughly: of a move refused at once; of choosing and joining a side.
    MOVE_WORK = 20
    CHOICE_WORK = 6


cdef class SplitMergeKernel(PartitionKernel):
    """Base class; a subclass defines how items are allocated to the two sides."""

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps):
        self.anchors = self.learner = anchors
        self.gibbs_sweeps = gibbs_sweeps
        self.closure = Closure(anchors)

    cdef int prepare(self, MixtureState state) except -1:
        if self.trial is None or self.factorizes != state.model.factorizes:
            self.trial = make_trial(state.model, self.closure)
            self.factorizes = state.model.factorizes
        self.anchors.update(state, self.adapting, self.replica)
        return self.reserve(state)

    cdef int reserve(self, MixtureState state) except -1:
        """Make room for a move, and for some more, as every split takes a slot."""
        state.reserve(2 * state.n_clusters + 16)
        self.trial.reserve(state)

    cdef int step(self, MixtureState state, bitgen_t* rng) except -1 nogil:
        self.repeat(state, rng, 1)

    cdef int repeat(self, MixtureState state, bitgen_t* rng, Py_ssize_t n_steps) except -1 nogil:
        """Consecutive moves without sweeps between them share the lists of the clusters' items."""
        for step in range(n_steps):
            # A split may have taken a slot, or a sweep made more of them.
            if state.model.n_free < N_FREE or state.capacity > self.closure.n_slots:
                with gil:
                    self.reserve(state)
            if step == 0 or self.gibbs_sweeps > 0:
                self.closure.members.collect(state)
            self.work += MOVE_WORK + state.n_clusters
            if state.n_samples > 1 and not self.move(state, rng):
                raise FloatingPointError(
                    f"rows {self.closure.items[0]} and {self.closure.items[1]}: "
                    "a split between them has no density"
                )
            sweep(self, state, rng, self.gibbs_sweeps)

    cdef bint move(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Propose a split or a merge, and decide. Returns False if a density is NaN."""
        cdef bint is_split
        cdef double limit = -INFINITY
        cdef double log_u = log(uniform(rng))
        if not self.closure.pick(state, 2, rng):
            return True
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
            # As q is at most 1, most merges are refused before a row is evaluated, and others as
            # soon as q is known to be small enough.
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
                    state, &self.trial.sides[0], self.trial.side, self.trial.size, 2
                )
        elif log_q < limit:
            log_ratio = -INFINITY
        else:
            log_ratio += log_q
        # A NaN fails this comparison too and is reported.
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
        """Put all items into the two sides, the anchors first, one in each; with `force`, as in
        the current partition. Returns the log probability of the allocation, or any number below
        `limit` as soon as it is known to be below."""
        return NAN

    cdef void choose(
        self, MixtureState state, bitgen_t* rng, Py_ssize_t m, bint force, LogProbability* log_q
    ) noexcept nogil:
        """Draw the side of item m given those on both; multiply `log_q` by its probability."""
        cdef double log_w[2]
        cdef Py_ssize_t b
        cdef Py_ssize_t i = self.closure.items[m]
        state.model.log_predictive_many(as_indices(self.trial.side, 2), i, log_w)
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

    def acceptance(self):
        """Numbers of proposed and accepted moves: keys "split" and "merge"."""
        return dict(zip(("split", "merge"), zip(self.n_proposed, self.n_accepted)))


cdef class SAMSKernel(SplitMergeKernel):
    """Sequential allocation: each item in turn, given the items before it."""

    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil:
        cdef LogProbability log_q = LogProbability(0.0, 1.0)
        self.trial.join(state, 0, 0)
        self.trial.join(state, 1, 1)
        for m in range(2, self.closure.n_items):
            self.choose(state, rng, m, force, &log_q)
            if log_q.total < limit:
                return log_q.total
        return log_q.total - log(log_q.divisor)


cdef class JainNealKernel(SplitMergeKernel):
    """Restricted Gibbs scans from a launch state; q is the probability of the last scan."""

    def __init__(self, AnchorProposal anchors, Py_ssize_t gibbs_sweeps, Py_ssize_t n_scans):
        SplitMergeKernel.__init__(self, anchors, gibbs_sweeps)
        self.n_scans = n_scans

    cdef void launch(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        """Draw the launch state: the side of each item except the anchors, or none until the first
        scan reaches it. Its law must not depend on the current partition."""
        for m in range(2, self.closure.n_items):
            self.trial.join(state, m, uniform(rng) < 0.5)

    cdef double allocate(
        self, MixtureState state, bitgen_t* rng, bint force, double limit
    ) noexcept nogil:
        cdef LogProbability log_q
        self.trial.join(state, 0, 0)
        self.trial.join(state, 1, 1)
        self.launch(state, rng)
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
