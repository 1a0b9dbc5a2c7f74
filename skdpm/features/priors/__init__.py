# SPDX-License-Identifier: BSD-3-Clause
"""Priors over binary matrices, in which rows have features.

`FeatureAllocation` takes the Indian buffet process, or Beta-Bernoulli if `n_components` is given.
`FeaturePrior` is the base class of both.
"""

from skdpm.features.priors._base import FeaturePrior
from skdpm.features.priors._priors import BetaBernoulliPrior, IndianBuffetPrior

# The registry. A name is the snake case of its class, less "Prior".
PRIORS = {"beta_bernoulli": BetaBernoulliPrior, "indian_buffet": IndianBuffetPrior}

__all__ = ["FeaturePrior", *(cls.__name__ for cls in PRIORS.values())]
