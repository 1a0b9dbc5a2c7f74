# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by restricted Gibbs scans."""

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
from skdpm.mixture.samplers._history import History
from skdpm.mixture.samplers._split_merge import JainNealKernel, PastJainNealKernel
from skdpm.mixture.samplers.base import Sampler


class SplitMerge(Sampler):
    """Jain-Neal split-merge: Metropolis-Hastings splits found by restricted Gibbs scans.

    Each move draws two rows. If they share a cluster, its split is proposed: the other rows start
    on a random side, and Gibbs scans move them between the two. Otherwise the union of their
    clusters is proposed. Works with every likelihood.

    Parameters
    ----------
    n_restricted_scans : int, default=5
        Number of intermediate scans before the final one, whose probability enters the ratio.
    anchors : {"uniform", "neighbours", "cluster_informed", "threshold_informed"}, \
default="uniform"
        Law of the two rows, as in `SAMS`.
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move; 0 gives the pure kernel.

    References
    ----------
    Jain & Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
    mixture model.
    """

    takes_noise = True

    def __init__(self, n_restricted_scans=5, anchors="uniform", gibbs_sweeps=1):
        self.n_restricted_scans = n_restricted_scans
        self.anchors = anchors
        self.gibbs_sweeps = gibbs_sweeps

    @staticmethod
    def from_paper(variant, **params):
        """Make a sampler that Herlau, Morup, Teh & Schmidt compare with `ARM`.

        Parameters
        ----------
        variant : {"bSM"}
            "bSM" (section 3.6.2): the two rows are rows on which two past states of the chain or
            its companions disagree. Rows that both past states put together with one of the two
            start on its side. In the paper past states are also refined by the current one, which
            is not exact; here they are not.
        **params
            Parameters of the sampler: `n_restricted_scans` and `gibbs_sweeps` as above,
            `n_history_chains=8` and `n_history=16` as in `ARM`.

        Returns
        -------
        sampler : SplitMerge

        Examples
        --------
        >>> from skdpm.mixture.samplers import SplitMerge
        >>> SplitMerge.from_paper("bSM", n_history_chains=4)
        PastSplitMerge(n_history_chains=4)
        """
        check_choice(variant, "variant of SplitMerge.from_paper", ("bSM",))
        return PastSplitMerge(**params)

    @property
    def requires(self):
        # `kernel` refuses unknown names.
        return "product" if self.anchors in INFORMED else "joint"

    def kernel(self):
        anchors = AnchorProposal(check_choice(self.anchors, "SplitMerge.anchors", ANCHORS))
        return JainNealKernel(anchors, *self._sweeps_and_scans())

    def _sweeps_and_scans(self):
        return (
            check_integer(self.gibbs_sweeps, "SplitMerge.gibbs_sweeps", low=0),
            check_integer(self.n_restricted_scans, "SplitMerge.n_restricted_scans", low=0),
        )


class PastSplitMerge(SplitMerge):
    """`SplitMerge.from_paper("bSM")`: anchors and launch states come from past states."""

    requires = "joint"

    def __init__(self, n_restricted_scans=5, n_history_chains=8, n_history=16, gibbs_sweeps=1):
        self.n_restricted_scans = n_restricted_scans
        self.n_history_chains = n_history_chains
        self.n_history = n_history
        self.gibbs_sweeps = gibbs_sweeps

    @property
    def n_companions(self):
        return max(0, self.n_history_chains - 1)

    def kernel(self):
        history = History(
            check_integer(self.n_history_chains, "SplitMerge.n_history_chains", low=0),
            check_integer(self.n_history, "SplitMerge.n_history", low=1),
        )
        return PastJainNealKernel(history, *self._sweeps_and_scans())
