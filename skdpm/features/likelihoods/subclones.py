# SPDX-License-Identifier: BSD-3-Clause
"""Mutations whose prevalences are sums over clones."""

import numpy as np

from skdpm import mutations
from skdpm._validation import check_real, parameters
from skdpm.features.likelihoods._subclones import SubclonesModel
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm.hyperpriors import check_gamma
from skdpm.mixture.likelihoods.contract.base import read_only


@parameters
class Subclones(FeatureLikelihood):
    """Reads of mutations, each of which is in some of the clones of a tumour.

    The features are clones: groups of cancer cells with the same mutations. Their prevalences in a
    sample sum to 1. The cellular prevalence of a mutation, the share of cancer cells that have it,
    is the sum of the prevalences of the clones that have it. X is that of `PyClone`.

    The clones of a sample share its cells, so no clone can be added without changing the others:
    `n_components` of the estimator must be given. Too many clones do harm: a clone with almost no
    prevalence costs a mutation nothing, so that many mutations have it by chance.
    `skdpm.mutations.mutation_table` omits these clones.

    Parameters
    ----------
    density : {"binomial", "beta_binomial"}, default="binomial"
        Law of the variant reads given their expected share.
    precision : float or None, default=None
        Precision of the beta-binomial, in units of reads; None: learned under its prior.
    precision_prior : tuple (shape, rate), default=(1.0, 1e-4)
        Gamma prior of the precision.
    prevalence_concentration : float, default=1.0
        Parameter (at least 0.1) of the symmetric Dirichlet prior of the prevalences in a sample.
    error_rate, genotype_prior : as in `PyClone`, with the same defaults

    References
    ----------
    Bouchard-Côté & Roth, section 2.5; Roth et al. (2014).
    """

    tempers = True
    feature_params = ("prevalences",)

    density: str = "binomial"
    precision: float | None = None
    precision_prior: object = (1.0, 1e-4)
    prevalence_concentration: float = 1.0
    error_rate: float = 1e-3
    genotype_prior: object = "major_copy_number"

    @property
    def hyperparameters(self):
        """The precision, if the density has one."""
        return ("precision",) if self.density == "beta_binomial" else ()

    def resolve(self, X):
        params = self.get_params(deep=False) | mutations.check_params(self)
        if self.precision is not None:
            params["precision"] = check_real(
                self.precision, "Subclones.precision", low=0.0, high=1e12
            )
        params["precision_prior"] = check_gamma(self.precision_prior, "Subclones.precision_prior")
        name = "prevalence_concentration"
        params[name] = check_real(
            self.prevalence_concentration, f"Subclones.{name}", low=0.1, high=1e6, closed=True
        )
        mutations.check_design(X)
        return type(self)(**params)

    def check_prior(self, prior):
        if prior.grows:
            raise ValueError(
                "the Subclones likelihood needs n_components, the number of clones: under the "
                "Indian buffet process (n_components=None) a new clone would take its share of "
                "a sample's cells from all others"
            )

    def encode(self, X):
        return read_only(
            mutations.encode(X, error_rate=self.error_rate, genotype_prior=self.genotype_prior)
        )

    def observed(self, X):
        return ~np.isnan(X[:, :: len(mutations.FIELDS)]).all(axis=1)

    def bind(self, data):
        return SubclonesModel(
            data, self.density, self.precision, self.precision_prior, self.prevalence_concentration
        )
