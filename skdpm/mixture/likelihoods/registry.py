# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of columns of one kind, by name. A `Product` may combine them."""

from skdpm.mixture.likelihoods.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.categorical import Categorical
from skdpm.mixture.likelihoods.gaussian import Gaussian
from skdpm.mixture.likelihoods.grid import Grid
from skdpm.mixture.likelihoods.multinomial import Multinomial
from skdpm.mixture.likelihoods.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.poisson import Poisson
from skdpm.mixture.likelihoods.pyclone import PyClone
from skdpm.mixture.likelihoods.relational import Relational
from skdpm.mixture.likelihoods.subspace import Subspace
from skdpm.mixture.likelihoods.von_mises_fisher import VonMisesFisher

# One line per likelihood. Its name is the snake case of its class.
SINGLE = {
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "gaussian": Gaussian,
    "grid": Grid,
    "multinomial": Multinomial,
    "negative_binomial": NegativeBinomial,
    "poisson": Poisson,
    "pyclone": PyClone,
    "relational": Relational,
    "subspace": Subspace,
    "von_mises_fisher": VonMisesFisher,
}
