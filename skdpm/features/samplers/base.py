# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a sampler of feature allocations."""

from sklearn.base import BaseEstimator

from skdpm.features._program import FeatureProgram


class FeatureSampler(BaseEstimator):
    """Base class of samplers of feature allocations; a subclass writes `kernel`.

    Every sampler works with every likelihood.
    """

    def program(self, X, likelihood, **settings):
        """Make the `ChainProgram` of a fit: see `FeatureProgram.prepare`."""
        return FeatureProgram.prepare(X, likelihood, **settings)

    def kernel(self):
        """Make a fresh kernel of one chain, parameters checked.

        Raises
        ------
        ValueError
            Naming the parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")
