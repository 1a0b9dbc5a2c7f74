# SPDX-License-Identifier: BSD-3-Clause
"""What the kernels of samplers that visit rows in blocks have in common."""

import abc

import numpy as np


class BlockKernel(abc.ABC):
    """Base class of the kernels of block samplers: one per chain, on a `BlockState`.

    Attributes
    ----------
    looks_around : bool
        Whether chains that start elsewhere go, in warm-up, to clusters found in a sample of rows,
        where these are more likely.
    """

    looks_around = False

    def n_slots(self, prior, n_clusters):
        """Return the clusters that a chain starts with, empty ones included.

        Parameters
        ----------
        prior : PartitionPrior
        n_clusters : int
            Of the labels that it starts from.
        """
        return n_clusters

    @abc.abstractmethod
    def step(self, state, rng, key, adapting=0.0):
        """Do one iteration.

        Parameters
        ----------
        state : BlockState
        rng : numpy.random.Generator
            Decides what concerns clusters.
        key : tuple of int
            Entropy, chain and iteration: names the streams of the rows.
        adapting : float, default=0
            Share of the warm-up that is left. While it is positive the posterior need not be left
            as it is.
        """

    def acceptance(self):
        """Return the moves so far: dict, move -> (proposed, accepted)."""
        return {}

    def get_adaptation(self):
        """Return what the kernel carries from iteration to iteration beside the state: dict."""
        return {}

    def set_adaptation(self, adaptation):
        """Go on from `get_adaptation`; an empty dict is the beginning."""
        return None


def log_gamma_variates(shapes, rng):
    """Draw logarithms of Gamma(shape, 1) variates, which underflow for no shape:
    G(a) = G(a + 1) U^(1/a)."""
    with np.errstate(divide="ignore"):
        return np.log(rng.standard_gamma(shapes + 1.0)) + np.log(rng.random(len(shapes))) / shapes
