# SPDX-License-Identifier: BSD-3-Clause
"""The likelihoods that model columns of one kind, by name: those that a `Product` may join."""

from skdpm.mixture.likelihoods.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.categorical import Categorical
from skdpm.mixture.likelihoods.gaussian import Gaussian
from skdpm.mixture.likelihoods.grid import Grid
from skdpm.mixture.likelihoods.multinomial import Multinomial
from skdpm.mixture.likelihoods.poisson import Poisson
from skdpm.mixture.likelihoods.pyclone import PyClone
from skdpm.mixture.likelihoods.relational import Relational
from skdpm.mixture.likelihoods.subspace import Subspace

# One line per likelihood. A name is the snake case of its class.
SINGLE = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gaussian": Gaussian,
    "grid": Grid,
    "multinomial": Multinomial,
    "poisson": Poisson,
    "pyclone": PyClone,
    "relational": Relational,
    "subspace": Subspace,
}
