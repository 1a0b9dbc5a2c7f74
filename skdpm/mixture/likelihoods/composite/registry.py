# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of columns of one kind, by name. A `Product` may combine them."""

from skdpm.mixture.likelihoods.counts.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.counts.categorical import Categorical
from skdpm.mixture.likelihoods.counts.multinomial import Multinomial
from skdpm.mixture.likelihoods.counts.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.counts.poisson import Poisson
from skdpm.mixture.likelihoods.directions.von_mises_fisher import VonMisesFisher
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian
from skdpm.mixture.likelihoods.grid.grid import Grid
from skdpm.mixture.likelihoods.grid.pyclone import PyClone
from skdpm.mixture.likelihoods.networks.relational import Relational
from skdpm.mixture.likelihoods.subspace.subspace import Subspace

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
