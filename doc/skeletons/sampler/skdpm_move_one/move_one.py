# SPDX-License-Identifier: BSD-3-Clause
"""Metropolis moves of single rows."""

from skdpm._validation import check_integer
from skdpm.mixture.samplers.base import Sampler
from skdpm_move_one._move_one import MoveOneKernel


class MoveOne(Sampler):
    """Propose to move a random row into a random cluster, and accept by the Metropolis rule.

    A proposal costs two densities for any number of clusters.

    Parameters
    ----------
    n_proposals : int, default=10
        Mean number of proposals per row and iteration.
    """

    requires = "joint"

    def __init__(self, n_proposals=10):
        self.n_proposals = n_proposals

    def kernel(self):
        return MoveOneKernel(check_integer(self.n_proposals, "MoveOne.n_proposals", low=1))
