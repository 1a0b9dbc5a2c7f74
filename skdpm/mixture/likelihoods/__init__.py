# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of mixture models: what one cluster's data look like."""

from skdpm.mixture.likelihoods.composite.product import Product
from skdpm.mixture.likelihoods.composite.registry import (
    SINGLE,
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Poisson,
    PyClone,
    Relational,
    Subspace,
    VonMisesFisher,
)
from skdpm.mixture.likelihoods.gaussian.tails import ContaminatedTails, StudentTails

# All likelihoods by name.
LIKELIHOODS = {**SINGLE, "product": Product}

__all__ = [
    "Bernoulli",
    "Categorical",
    "ContaminatedTails",
    "Gaussian",
    "Grid",
    "Multinomial",
    "NegativeBinomial",
    "Poisson",
    "Product",
    "PyClone",
    "Relational",
    "StudentTails",
    "Subspace",
    "VonMisesFisher",
]
