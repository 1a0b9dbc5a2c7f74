# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a sampler of feature allocations."""

from sklearn.base import BaseEstimator


class FeatureSampler(BaseEstimator):
    """Base class of samplers of feature allocations; a subclass writes `kernel`.

    Every sampler works with every likelihood.
    """

    def kernel(self):
        """A fresh kernel of one chain, parameters checked.

        Raises
        ------
        ValueError
            Naming the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")
