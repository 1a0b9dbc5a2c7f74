# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by restricted Gibbs scans."""

from skdpm._papers import paper_variants
from skdpm._validation import check_choice, check_integer, parameters
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
from skdpm.mixture.samplers._split_merge import JainNealKernel
from skdpm.mixture.samplers.base import Sampler


@parameters
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

    n_restricted_scans: int = 5
    anchors: str = "uniform"
    gibbs_sweeps: int = 1

    from_paper = paper_variants("split_merge", '"bSM", which Herlau et al. (2014) compare')

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
