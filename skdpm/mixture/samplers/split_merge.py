# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by restricted Gibbs scans."""

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
from skdpm.mixture.samplers._history import History, PastAnchors
from skdpm.mixture.samplers._split_merge import JainNealKernel
from skdpm.mixture.samplers.base import Sampler


class SplitMerge(Sampler):
    """Jain-Neal split-merge: Metropolis-Hastings splits found by restricted Gibbs scans.

    Two rows are drawn. In one cluster, they propose its split: the other rows start on
    a random side and are moved between the two by Gibbs scans; in two, the union of their
    clusters. Works with every likelihood.

    Parameters
    ----------
    n_restricted_scans : int, default=5
        Intermediate scans, before the final one whose probability counts.
    anchors : {"uniform", "neighbours", "cluster_informed", "threshold_informed"}, \
default="uniform"
        How the two rows are drawn, as in `SAMS`.
    launch : {"random", "history"}, default="random"
        Where the scans start from. "history": the anchors are rows on which two past states of the
        chain or its companions disagree, and the rows that were together with one of them in both
        start beside it, as in `ARM` ("bSM"). `anchors` must then be "uniform", which is how they
        are drawn as long as there are no such states.
    n_history_chains : int, default=8
        As in `ARM`; used with `launch="history"` only.
    n_history : int, default=16
        As in `ARM`; used with `launch="history"` only.
    gibbs_sweeps : int, default=1
        Sweeps of `Gibbs` after each move; 0 gives the pure kernel.

    References
    ----------
    Jain & Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
    mixture model. Herlau, Morup, Teh & Schmidt, Adaptive reconfiguration moves for MCMC inference
    in Dirichlet process mixtures, section 3.6.2 (where past states are refined by the current one,
    too, which is not exact).
    """

    def __init__(
        self,
        n_restricted_scans=5,
        anchors="uniform",
        launch="random",
        n_history_chains=8,
        n_history=16,
        gibbs_sweeps=1,
    ):
        self.n_restricted_scans = n_restricted_scans
        self.anchors = anchors
        self.launch = launch
        self.n_history_chains = n_history_chains
        self.n_history = n_history
        self.gibbs_sweeps = gibbs_sweeps

    @property
    def requires(self):
        # Informed anchors do not go with a history, which is for `kernel` to say.
        informed = self.anchors in INFORMED and self.launch == "random"
        return "product" if informed else "joint"

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1) if self.launch == "history" else 0

    def kernel(self):
        anchors = AnchorProposal(check_choice(self.anchors, "SplitMerge.anchors", ANCHORS))
        launch = check_choice(self.launch, "SplitMerge.launch", ("random", "history"))
        n_chains = check_integer(self.n_history_chains, "SplitMerge.n_history_chains", low=0)
        n_history = check_integer(self.n_history, "SplitMerge.n_history", low=1)
        if launch == "history":
            if self.anchors != "uniform":
                raise ValueError(
                    'SplitMerge.launch="history" draws the anchors where past states disagree: '
                    f'SplitMerge.anchors must be "uniform", got {self.anchors!r}'
                )
            anchors = PastAnchors(History(n_chains, n_history))
        return JainNealKernel(
            anchors,
            check_integer(self.gibbs_sweeps, "SplitMerge.gibbs_sweeps", low=0),
            check_integer(self.n_restricted_scans, "SplitMerge.n_restricted_scans", low=0),
        )
