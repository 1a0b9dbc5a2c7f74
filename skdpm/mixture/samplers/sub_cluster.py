# SPDX-License-Identifier: BSD-3-Clause
"""Sub-cluster splits, launched and random splits and merges, over rows visited in blocks."""

from skdpm._papers import paper_variants
from skdpm._validation import check_integer
from skdpm.mixture.samplers.base import BlockSampler
from skdpm.mixture.samplers.sub_cluster_kernel import SubClusterKernel


class SubCluster(BlockSampler):
    """Sub-cluster splits (Chang & Fisher 2013): parallel, for many rows.

    An iteration draws the weights and parameters of clusters, then all labels in one pass over the
    rows, each independent of the others. In the first half of the warm-up every cluster has two
    sub-clusters, fitted in the same pass, into which it may be split, and close clusters are
    merged. From then on all moves are exact. The guide has the details.

    Parameters
    ----------
    block_size : int, default=65536
        Maximum number of rows in a block, which is visited by one thread on one random stream.

    References
    ----------
    Chang & Fisher (2013), Parallel sampling of DP mixture models using sub-cluster splits. Jain &
    Neal (2004), A split-merge Markov chain Monte Carlo procedure for the Dirichlet process mixture
    model.
    """

    takes_noise = True

    def __init__(self, block_size=65536):
        self.block_size = block_size

    from_paper = paper_variants(
        "sub_cluster", '"SUBC", "SUBC+SUPC", "SUBC APPROX" or "SUBC+SUPC APPROX" of Chang & Fisher'
    )

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
