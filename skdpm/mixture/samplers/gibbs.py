# SPDX-License-Identifier: BSD-3-Clause
"""Collapsed Gibbs sampling."""

from skdpm._validation import check_integer
from skdpm.mixture.samplers._gibbs import GibbsKernel
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

    def kernel(self):
        return GibbsKernel(check_integer(self.n_sweeps, "Gibbs.n_sweeps", low=1))
