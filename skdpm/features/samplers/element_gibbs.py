# SPDX-License-Identifier: BSD-3-Clause
"""Element-wise Gibbs sampling."""

from skdpm.features.samplers._element_gibbs import ElementGibbsKernel
from skdpm.features.samplers.base import FeatureSampler


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

    def __init__(self, column_moves=1):
        self.column_moves = column_moves

    def kernel(self):
        return ElementGibbsKernel()
