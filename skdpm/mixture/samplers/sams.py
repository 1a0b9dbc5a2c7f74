# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by sequential allocation."""

from skdpm._validation import check_choice, check_integer, parameters
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
from skdpm.mixture.samplers._split_merge import SAMSKernel
from skdpm.mixture.samplers.base import Sampler


@parameters
class SAMS(Sampler):
    """Sequentially allocated merge-split: Metropolis-Hastings splits and merges of clusters.

    Each move draws two anchor rows. If they share a cluster, its split is proposed: the other rows
    join one anchor or the other, one after another in random order. Otherwise the union of their
    clusters is proposed. Works with every likelihood.

    Parameters
    ----------
    anchors : {"uniform", "neighbours", "cluster_informed", "threshold_informed"}, \
default="uniform"
        Law of the anchors. "neighbours" depends on the current partition: small clusters are drawn
        about as often as large ones, and the other cluster of a merge is likely to be one that the
        first anchor fits (any other one, if clusters are not independent). The informed laws are
        those of `PGSM` and need the capability "product".
    gibbs_sweeps : int, default=1
        Number of `Gibbs` sweeps after each move; 0 gives the pure kernel.

    References
    ----------
    Dahl (2003), An improved merge-split sampler for conjugate Dirichlet process mixture models.
    """

    takes_noise = True

    anchors: str = "uniform"
    gibbs_sweeps: int = 1

    @property
    def requires(self):
        # `kernel` refuses unknown names.
        return "product" if self.anchors in INFORMED else "joint"

    def kernel(self):
        anchors = AnchorProposal(check_choice(self.anchors, "SAMS.anchors", ANCHORS))
        return SAMSKernel(anchors, check_integer(self.gibbs_sweeps, "SAMS.gibbs_sweeps", low=0))
