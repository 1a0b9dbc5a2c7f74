# SPDX-License-Identifier: BSD-3-Clause
"""Bayesian mixture models: estimators, and the likelihoods and samplers to give them."""

from skdpm.mixture.estimators import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import *  # noqa: F403
from skdpm.mixture.likelihoods import __all__ as _likelihoods
from skdpm.mixture.samplers import *  # noqa: F403
from skdpm.mixture.samplers import __all__ as _samplers

__all__ = ["DPMixture", "FiniteMixture", *_likelihoods, *_samplers]
