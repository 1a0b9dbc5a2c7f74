# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge whose anchors and launch states come from past states: bSM of Herlau, Mørup, Teh &
Schmidt (2014), "Adaptive reconfiguration moves for MCMC inference in Dirichlet process mixtures",
section 3.6.2.
"""
from skdpm._core._rng cimport bitgen_t
from skdpm.mixture.state._state cimport MixtureState
from skdpm.mixture.samplers._anchors cimport AnchorProposal, Members
from skdpm.mixture.samplers._history cimport History
from skdpm.mixture.samplers._split_merge cimport JainNealKernel


cdef class PastAnchors(AnchorProposal):
    """Anchors on which two past states disagree; uniform if no past states differ."""
    cdef History history
    cdef bint informed      # whether the last anchors were drawn from the history
    cdef Py_ssize_t replica

    def __init__(self, History history):
        AnchorProposal.__init__(self, "uniform")
        self.history = history

    cdef int update(self, MixtureState state, bint adapting, Py_ssize_t replica) except -1:
        self.replica = replica
        self.history.check(state.n_samples)
        return AnchorProposal.update(self, state, adapting, replica)

    cdef void draw(
        self, MixtureState state, Members members, bitgen_t* rng,
        Py_ssize_t* anchors, Py_ssize_t n_anchors
    ) noexcept nogil:
        self.informed = n_anchors == 2 and self.history.draw(self.replica, rng)
        if self.informed:
            anchors[0], anchors[1] = self.history.pair[0], self.history.pair[1]
        else:
            AnchorProposal.draw(self, state, members, rng, anchors, n_anchors)

    cdef bint together(self, Py_ssize_t x, Py_ssize_t y) noexcept nogil:
        """Whether both of the states drawn last have the two rows in one cluster."""
        return (
            self.history.za[x] == self.history.za[y] and self.history.zb[x] == self.history.zb[y]
        )


cdef class PastJainNealKernel(JainNealKernel):
    """bSM: anchors and launch state come from two past states.

    An item that both past states have together with an anchor starts on its side, any other on
    none. In the paper the launch state also depends on the current state. Its law would then
    differ between a split and the merge that reverses it.
    """
    cdef PastAnchors past
    cdef readonly History history

    def __init__(self, History history, Py_ssize_t gibbs_sweeps, Py_ssize_t n_scans):
        self.history = history
        self.past = PastAnchors(history)
        JainNealKernel.__init__(self, self.past, gibbs_sweeps, n_scans)
        self.learner = history

    cdef void launch(self, MixtureState state, bitgen_t* rng) noexcept nogil:
        if not self.past.informed:
            JainNealKernel.launch(self, state, rng)
            return
        for m in range(2, self.closure.n_items):
            for b in range(2):
                if self.past.together(self.closure.items[m], self.closure.items[b]):
                    self.trial.join(state, m, b)
                    break
