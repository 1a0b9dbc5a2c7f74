# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs sampling."""

from skdpm._papers import paper_variants
from skdpm._validation import check_integer, parameters
from skdpm.mixture.samplers._gibbs import GibbsKernel
from skdpm.mixture.samplers.base import Sampler


@parameters
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

    n_sweeps: int = 1

    from_paper = paper_variants("gibbs", ("GIBBS+SUPC",), "to which Chang & Fisher (2013) compare")

    def kernel(self):
        return GibbsKernel(self._n_sweeps())

    def _n_sweeps(self):
        return check_integer(self.n_sweeps, "Gibbs.n_sweeps", low=1)
