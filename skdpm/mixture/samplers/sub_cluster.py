# SPDX-License-Identifier: BSD-3-Clause
"""Sub-cluster splits, launched and random splits and merges, over rows visited in blocks."""

from skdpm._papers import paper_variant
from skdpm._validation import check_integer
from skdpm.mixture.samplers.base import BlockSampler
from skdpm.mixture.samplers.sub_cluster_kernel import SubClusterKernel


class SubCluster(BlockSampler):
    """Sub-cluster splits (Chang & Fisher 2013): parallel, for many rows.

    An iteration draws the weights and parameters of clusters, then all labels in one pass over
    the rows, each independent of the others. In the first half of the warm-up every cluster has
    two sub-clusters, fitted in the same pass, into which it may be split, and close clusters are
    merged. From then on splits and merges are exact.

    Parameters
    ----------
    block_size : int, default=65536
        Maximum number of rows in a block. A block is visited by one thread, on one random stream.
        Results depend on it, but not on `n_jobs`.

    Notes
    -----
    The draws and the second half of the warm-up are exact. The pass over the rows leaves the
    posterior invariant: rows are drawn only among clusters in use, so the rows of a cluster that
    would lose all of them stay where they are, which takes a second pass (the published sampler
    lacks this rule and is not invariant). Random splits and merges are exact as well. So are
    launched splits and merges, in every tenth iteration: a split is drawn row by row under
    parameters fitted to all rows of a cluster, and a merge of two close clusters is accepted
    according to the probability of the split that undoes it (Jain & Neal 2004, for rows in
    blocks).

    The first half of the warm-up is not exact. Chains look for clusters in a sample of 20,000
    rows, as with ``init="auto"``, and move to them if they are more likely. Splits into
    sub-clusters are accepted by the ratio of eq. 21, whose reverse move is never proposed, and
    close clusters are merged if that raises the log joint. None of this happens without a warm-up.

    Two clusters that overlap much have very many partitions, each far less probable than that of
    their union. Launched splits may separate them, and the log joint then falls. Few launched
    moves are accepted if clusters have many rows, least of all merges.

    With `noise`, at least one row is always in a cluster, as no cluster can lose all its rows.

    `acceptance_rate_` has the share of iterations in which no row was held back ("sweep") and the
    shares of the proposed "random_split", "random_merge", "launched_split" and "launched_merge"
    that were accepted.

    The likelihood needs the capability "instantiated" and the partition prior the capability
    "weights", which all have except mixtures of finite mixtures.

    References
    ----------
    Chang & Fisher (2013), Parallel sampling of DP mixture models using sub-cluster splits.
    Jain & Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process
    mixture model.
    """

    takes_noise = True

    def __init__(self, block_size=65536):
        self.block_size = block_size

    @staticmethod
    def from_paper(variant, **params):
        """Make "SUBC", "SUBC+SUPC", "SUBC APPROX" or "SUBC+SUPC APPROX", which Chang & Fisher
        compare: see `skdpm.papers.sub_cluster`."""
        return paper_variant("sub_cluster", variant, **params)

    @classmethod
    def automatic(cls, likelihood, shape, make_prior):
        suits = likelihood.suits_blocks(*shape) and cls.suits(make_prior(shape[0]))
        return cls() if suits else None

    @staticmethod
    def suits(prior):
        """Whether the prior has the weights that are drawn."""
        return "weights" in prior.capabilities

    def kernel(self):
        check_integer(self.block_size, "SubCluster.block_size", low=1)
        return SubClusterKernel()

    def check_prior(self, prior):
        if not self.suits(prior):
            raise ValueError(
                "SubCluster draws the weights of clusters, whose law under "
                f"{type(prior).__name__} is not Dirichlet: choose a sampler that needs no "
                "weights, such as Gibbs or PGSM, or with FiniteMixture fix n_components"
            )
