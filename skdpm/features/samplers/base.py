# SPDX-License-Identifier: BSD-3-Clause
"""Base class of samplers of feature allocations."""

from sklearn.base import BaseEstimator

from skdpm._validation import check_integer
from skdpm.features.chains.program import FeatureProgram
from skdpm.features.samplers._columns import ColumnKernel


class FeatureSampler(BaseEstimator):
    """Base class of samplers of feature allocations of any likelihood; a subclass writes `kernel`.

    - `column_moves`: int. Number of proposals of the `ColumnKernel` after each sweep.
    """

    column_moves = 0

    def program(self, X, likelihood, **settings):
        """Make the `FeatureProgram` of a fit."""
        return FeatureProgram.prepare(X, likelihood, **settings)

    def check_params(self):
        """Check all parameters. Raises ValueError naming a bad one."""
        self.kernel()
        self.column_kernel()

    def kernel(self):
        """Make a new kernel for one chain. Raises ValueError naming a bad parameter."""
        raise NotImplementedError(f"{type(self).__name__} must implement `kernel`")

    def column_kernel(self):
        """Make the kernel of whole columns for one chain, which runs after each sweep."""
        name = f"{type(self).__name__}.column_moves"
        return ColumnKernel(check_integer(self.column_moves, name, low=0))
