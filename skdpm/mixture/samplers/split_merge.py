# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by sequential allocation, and by restricted Gibbs scans."""

from skdpm._papers import paper_variants
from skdpm._validation import check_choice, check_integer, parameters
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
from skdpm.mixture.samplers._split_merge import JainNealKernel, SAMSKernel
from skdpm.mixture.samplers.base import Sampler


class AnchorSampler(Sampler):
    """Base class of samplers whose moves begin with `anchors`."""

    takes_noise = True

    @property
    def requires(self):
        # `kernel` refuses unknown names.
        return "product" if self.anchors in INFORMED else "joint"


@parameters
class SAMS(AnchorSampler):
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

    anchors: str = "uniform"
    gibbs_sweeps: int = 1

    def kernel(self):
        anchors = AnchorProposal(check_choice(self.anchors, "SAMS.anchors", ANCHORS))
        return SAMSKernel(anchors, check_integer(self.gibbs_sweeps, "SAMS.gibbs_sweeps", low=0))


@parameters
class SplitMerge(AnchorSampler):
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
    Jain & Neal (2004).
    """

    n_restricted_scans: int = 5
    anchors: str = "uniform"
    gibbs_sweeps: int = 1

    from_paper = paper_variants("split_merge", ("bSM",), "which Herlau et al. (2014) compare")

    def kernel(self):
        anchors = AnchorProposal(check_choice(self.anchors, "SplitMerge.anchors", ANCHORS))
        return JainNealKernel(anchors, *self._sweeps_and_scans())

    def _sweeps_and_scans(self):
        return (
            check_integer(self.gibbs_sweeps, "SplitMerge.gibbs_sweeps", low=0),
            check_integer(self.n_restricted_scans, "SplitMerge.n_restricted_scans", low=0),
        )
