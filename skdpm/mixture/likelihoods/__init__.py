# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of mixture models: what one cluster's data look like."""

from skdpm._validation import given_shape
from skdpm.mixture.likelihoods.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.categorical import Categorical
from skdpm.mixture.likelihoods.gaussian import Gaussian
from skdpm.mixture.likelihoods.grid import Grid
from skdpm.mixture.likelihoods.multinomial import Multinomial
from skdpm.mixture.likelihoods.poisson import Poisson
from skdpm.mixture.likelihoods.product import Product
from skdpm.mixture.likelihoods.pyclone import PyClone
from skdpm.mixture.likelihoods.relational import Relational
from skdpm.mixture.likelihoods.subspace import Subspace

# The registry: one line per likelihood. A name is the snake case of its class.
LIKELIHOODS = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gaussian": Gaussian,
    "grid": Grid,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "product": Product,
    "pyclone": PyClone,
    "relational": Relational,
    "subspace": Subspace,
}

# Columns from which on "auto" stands for `Subspace`, and `Gaussian` below.
MANY_COLUMNS = 33

__all__ = [cls.__name__ for cls in LIKELIHOODS.values()]


def automatic_likelihood(X):
    """What "auto" stands for with these rows, as they were given to `fit`."""
    shape = given_shape(X)
    return Subspace() if len(shape) == 2 and shape[1] >= MANY_COLUMNS else Gaussian()
