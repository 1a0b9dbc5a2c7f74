# SPDX-License-Identifier: BSD-3-Clause
"""Gibbs in super-clusters (Lovell, Adams & Mansinghka 2012)."""

from skdpm._validation import check_integer, parameters
from skdpm.mixture.samplers.gibbs import Gibbs
from skdpm.papers._super_clusters import SuperClusterGibbsKernel


def make(variant, **params):
    """Make a sampler that Chang & Fisher (2013) compare with `SubCluster`.

    >>> from skdpm.mixture.samplers import Gibbs
    >>> Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=4)
    SuperClusterGibbs(n_super_clusters=4)

    Parameters
    ----------
    variant : {"GIBBS+SUPC"}
        "GIBBS+SUPC" (Lovell, Adams & Mansinghka 2012): every iteration assigns each cluster to
        one of `n_super_clusters=16` super-clusters at random, whatever its rows. Rows then
        move within their super-cluster only. Exact. Here one thread visits all super-clusters.
        Not with a noise component.
    **params
        Parameters of the sampler: `n_super_clusters` and `n_sweeps`.
    """
    return SuperClusterGibbs(**params)


@parameters
class SuperClusterGibbs(Gibbs):
    """`Gibbs.from_paper("GIBBS+SUPC")`: rows move within random groups of clusters."""

    takes_noise = False

    n_super_clusters: int = 16

    def kernel(self):
        return SuperClusterGibbsKernel(
            check_integer(self.n_super_clusters, "Gibbs.n_super_clusters", low=1), self._n_sweeps()
        )
