# SPDX-License-Identifier: BSD-3-Clause
"""Element-wise Gibbs sampling."""

from skdpm._validation import parameters
from skdpm.features.samplers._element_gibbs import ElementGibbsKernel
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
