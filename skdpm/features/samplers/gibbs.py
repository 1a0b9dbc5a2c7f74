# SPDX-License-Identifier: BSD-3-Clause
"""Gibbs sampling of the entries of a row, one at a time or all together."""

from skdpm._validation import check_integer, parameters
from skdpm.features.samplers._gibbs import ElementGibbsKernel, RowGibbsKernel
from skdpm.features.samplers.base import FeatureSampler


@parameters
class ElementGibbs(FeatureSampler):
    """Gibbs sampling of one entry of Z at a time, in random order within a row.

    It is cheap, but hardly leaves a state in which two entries of a row have to change at once.

    Parameters
    ----------
    column_moves : int, default=1
        As in `DiscreteParticleFilter`; 0: none, as in the paper.

    References
    ----------
    Griffiths & Ghahramani (2011), The Indian buffet process: an introduction and review.
    """

    column_moves: int = 1

    def kernel(self):
        return ElementGibbsKernel()


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
    Bouchard-Côté & Roth, algorithm 2.
    """

    max_components: int = 20
    column_moves: int = 1

    def kernel(self):
        return RowGibbsKernel(
            check_integer(self.max_components, "RowGibbs.max_components", low=1, high=30)
        )
