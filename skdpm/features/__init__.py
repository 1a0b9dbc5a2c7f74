# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian feature allocation models: the estimator, its likelihoods and samplers."""

from skdpm.features.estimators import FeatureAllocation
from skdpm.features.likelihoods import *  # noqa: F403
from skdpm.features.likelihoods import __all__ as _likelihoods
from skdpm.features.samplers import *  # noqa: F403
from skdpm.features.samplers import __all__ as _samplers

__all__ = ["FeatureAllocation", *_likelihoods, *_samplers]
