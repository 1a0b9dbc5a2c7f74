# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of columns of one kind, by name, and which have a role. `Product` combines them."""

from skdpm.mixture.likelihoods.contract.roles import OF_ONE_PART, ROLES
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


def with_role(role):
    """Names of the classes that have a role by default: list of str."""
    return names_with(lambda likelihood: likelihood.lacks(role) is None)


def names_with(has):
    """Names of the classes whose default objects have something, by a function: list of str."""
    return [cls.__name__ for cls in SINGLE.values() if has(cls())]


def refusal(likelihood, role):
    """Why a likelihood, or None, cannot answer, and what to do: str. None: it has the role."""
    if likelihood is None:
        return "the parameter likelihood is none of skdpm.mixture.likelihoods"
    who = likelihood.lacks(role)
    if who is None:
        return None
    names, of = ", ".join(with_role(role)), "with one of" if role in OF_ONE_PART else "of"
    return f"the likelihood {who} has no {ROLES[role]}; use {names} or a Product {of} these"
