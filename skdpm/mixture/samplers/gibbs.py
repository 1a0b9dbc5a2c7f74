# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs sampling."""

from skdpm._validation import check_choice, check_integer
from skdpm.mixture.samplers._gibbs import GibbsKernel
from skdpm.mixture.samplers._super_clusters import SuperClusterGibbsKernel
from skdpm.mixture.samplers.base import Sampler


class Gibbs(Sampler):
    """Collapsed Gibbs: each row in turn is drawn from its full conditional.

    Parameters
    ----------
    n_sweeps : int, default=1
        Sweeps over all rows per iteration.

    References
    ----------
    Neal (2000), Markov chain sampling methods for Dirichlet process mixture models, algorithm 3.
    """

    takes_noise = True

    def __init__(self, n_sweeps=1):
        self.n_sweeps = n_sweeps

    @staticmethod
    def from_paper(variant, **params):
        """Make a sampler that Chang & Fisher (2013) compare with `SubCluster`.

        Parameters
        ----------
        variant : {"GIBBS+SUPC"}
            "GIBBS+SUPC" (Lovell, Adams & Mansinghka 2012): every iteration assigns each cluster to
            one of `n_super_clusters=16` super-clusters at random, whatever its rows. Rows then
            move within their super-cluster only. Exact. Here one thread visits all super-clusters.
            Not with a noise component.
        **params
            Parameters of the sampler: `n_super_clusters` and `n_sweeps`.

        Returns
        -------
        sampler : Gibbs

        Examples
        --------
        >>> from skdpm.mixture.samplers import Gibbs
        >>> Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=4)
        SuperClusterGibbs(n_super_clusters=4)
        """
        check_choice(variant, "variant of Gibbs.from_paper", ("GIBBS+SUPC",))
        return SuperClusterGibbs(**params)

    def kernel(self):
        return GibbsKernel(self._n_sweeps())

    def _n_sweeps(self):
        return check_integer(self.n_sweeps, "Gibbs.n_sweeps", low=1)


class SuperClusterGibbs(Gibbs):
    """`Gibbs.from_paper("GIBBS+SUPC")`: rows move within random groups of clusters."""

    takes_noise = False

    def __init__(self, n_super_clusters=16, n_sweeps=1):
        super().__init__(n_sweeps)
        self.n_super_clusters = n_super_clusters

    def kernel(self):
        return SuperClusterGibbsKernel(
            check_integer(self.n_super_clusters, "Gibbs.n_super_clusters", low=1),
            self._n_sweeps(),
        )
