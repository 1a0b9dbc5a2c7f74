# SPDX-License-Identifier: BSD-3-Clause
"""Split-merge by restricted Gibbs scans."""

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers._anchors import ANCHORS, INFORMED, AnchorProposal
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
    gibbs_sweeps : int, default=1
        Sweeps of `Gibbs` after each move; 0 gives the pure kernel.

    References
    ----------
    Jain & Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
    mixture model.
    """

    def __init__(self, n_restricted_scans=5, anchors="uniform", gibbs_sweeps=1):
        self.n_restricted_scans = n_restricted_scans
        self.anchors = anchors
        self.gibbs_sweeps = gibbs_sweeps

    @property
    def requires(self):
        return "product" if self.anchors in INFORMED else "joint"

    def kernel(self):
        return JainNealKernel(
            AnchorProposal(check_choice(self.anchors, "SplitMerge.anchors", ANCHORS)),
            check_integer(self.gibbs_sweeps, "SplitMerge.gibbs_sweeps", low=0),
            check_integer(self.n_restricted_scans, "SplitMerge.n_restricted_scans", low=0),
        )
