# SPDX-License-Identifier: BSD-3-Clause
"""Row-wise Gibbs sampling."""

from skdpm._validation import check_integer, parameters
from skdpm.features.samplers._row_gibbs import RowGibbsKernel
from skdpm.features.samplers.base import FeatureSampler


@parameters
class RowGibbs(FeatureSampler):
    """Gibbs sampling of a whole row of Z, by enumeration of its 2^K values.

    Parameters
    ----------
    max_components : int, default=20
        Largest number of features that other rows have too; more are an error. Time and memory
        double with each.
    column_moves : int, default=1
        As in `DiscreteParticleFilter`; 0: none, as in the paper.

    References
    ----------
    Bouchard-Côté & Roth, Particle-Gibbs sampling for Bayesian feature allocation models,
    algorithm 2.
    """

    max_components: int = 20
    column_moves: int = 1

    def kernel(self):
        return RowGibbsKernel(
            check_integer(self.max_components, "RowGibbs.max_components", low=1, high=30)
        )
