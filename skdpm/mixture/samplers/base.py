# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a sampler: a scikit-learn object that makes a kernel."""

from sklearn.base import BaseEstimator


class Sampler(BaseEstimator):
    """Base class of samplers; a subclass writes `kernel`.

    Attributes
    ----------
    requires : str
        The capability that a likelihood must state (`Likelihood.capabilities`).
    """

    requires = "joint"

    def kernel(self):
        """A fresh `PartitionSampler` of one chain, parameters checked.

        Raises
        ------
        ValueError
            Naming the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")
