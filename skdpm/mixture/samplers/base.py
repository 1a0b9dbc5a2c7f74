# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a sampler: a scikit-learn object that makes a kernel."""

import numpy as np
from sklearn.base import BaseEstimator


class Sampler(BaseEstimator):
    """Base class of samplers; a subclass writes `kernel`.

    Attributes
    ----------
    requires : str
        The capability that a likelihood must state (`Likelihood.capabilities`).
    blockwise : bool
        Whether rows are visited in blocks (`BlockSampler`).
    """

    requires = "joint"
    blockwise = False

    def kernel(self):
        """A fresh `PartitionKernel` of one chain, parameters checked.

        Raises
        ------
        ValueError
            Naming the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")

    def check_prior(self, prior):
        """Raise a ValueError where the sampler cannot deal with a `PartitionPrior`."""


class BlockSampler(Sampler):
    """Base class of samplers that visit the rows in blocks, given drawn parameters.

    They have a parameter `block_size`, and their kernel is an object with the methods `n_slots`,
    `step` and `acceptance` (see `SubClusterKernel`).
    """

    requires = "instantiated"
    blockwise = True
    needs_labels = False  # do new labels depend on the last ones?


def log_gamma_variates(shapes, rng):
    """log of Gamma(shape, 1) variates, which underflows for no shape: G(a) = G(a + 1) U^(1/a)."""
    with np.errstate(divide="ignore"):
        return np.log(rng.standard_gamma(shapes + 1.0)) + np.log(rng.random(len(shapes))) / shapes
