# SPDX-License-Identifier: BSD-3-Clause
"""Priors over partitions of Gibbs type, normalised; `PartitionPrior` is the base class."""

from skdpm.mixture.priors._base import PartitionPrior
from skdpm.mixture.priors._dynamic_finite_mixtures import DynamicFiniteMixturesPrior
from skdpm.mixture.priors._mixture_of_finite_mixtures import MixtureOfFiniteMixturesPrior
from skdpm.mixture.priors._two_parameter import (
    DirichletProcessPrior,
    FiniteDirichletPrior,
    PitmanYorPrior,
)

__all__ = [
    "DirichletProcessPrior",
    "DynamicFiniteMixturesPrior",
    "FiniteDirichletPrior",
    "MixtureOfFiniteMixturesPrior",
    "PartitionPrior",
    "PitmanYorPrior",
]
