# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a likelihood of features: a scikit-learn object that makes its kernel, a
`FeatureModel`."""

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator

from skdpm._validation import check_finite


class FeatureLikelihood(BaseEstimator):
    """Base class of likelihoods of feature allocations.

    A subclass writes `resolve`, `encode`, `bind` and `_examples`, and `reconstruct` where rows
    have an expectation given their features. It overrides `check_prior`, `initial_allocations`,
    `select` and `encode_new` where the defaults do not hold for it.

    Attributes
    ----------
    allow_nan, accept_sparse, pairwise, positive_only : bool
        What X may be; they become scikit-learn's input tags. Sparse matrices come as CSR.
    reads_tables : bool
        Whether columns may hold something else than numbers: not here.
    needs_allocations : bool
        Whether a new row depends on the features of the rows of `fit`: these are then shown to the
        model (`FeatureModel.see`) and given to `reconstruct` as `params["allocations"]`.
    preferred_sampler : str
        The name of the sampler that `sampler="auto"` stands for.
    feature_params : tuple of str
        Names of the features' parameters in `FeatureModel.save`: arrays with one row per feature
        (or as `select` knows). Those of every draw are kept.
    common_params : tuple of str
        Names of the parameters in `FeatureModel.save` that belong to no feature, such as an
        intercept: arrays of shape (n_features,). Those of every draw are kept.
    hyperparameters : tuple of str
        Names of the hyperparameters in `FeatureModel.save`: numbers, which are parameters of the
        likelihood as well. Those that are None there are learned and kept.
    """

    allow_nan = True
    accept_sparse = False
    pairwise = False
    positive_only = False
    reads_tables = False
    needs_allocations = False
    preferred_sampler = "discrete_particle_filter"
    feature_params = ()
    common_params = ()
    hyperparameters = ()

    @property
    def learned(self):
        """Names of the hyperparameters that are learned: those that are None."""
        return tuple(name for name in self.hyperparameters if getattr(self, name) is None)

    def check_entries(self, X):
        """Refuse infinities, and NaN where it has no meaning.

        Parameters
        ----------
        X : ndarray or CSR array of shape (n_rows, n_features)

        Raises
        ------
        ValueError
            Naming the first bad column.
        """
        check_finite(X, allow_nan=self.allow_nan)

    def resolve(self, X):
        """A copy bound to the data of `fit`: hyperparameters checked, defaults made concrete.

        Parameters
        ----------
        X : ndarray of shape (n_samples, n_features)

        Returns
        -------
        likelihood : FeatureLikelihood

        Raises
        ------
        ValueError
            Naming the hyperparameter or the column.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `resolve`")

    def check_prior(self, prior):
        """Refuse a prior that the model does not go with, before any sampling.

        Parameters
        ----------
        prior : FeaturePrior
            For one, a model to which no feature can be added refuses those where `prior.grows`.

        Raises
        ------
        ValueError
            Naming both.
        """

    def encode(self, X):
        """Bring the rows of `fit` into the model's form; chains share it. Called on a resolved
        likelihood.

        Returns
        -------
        data : dict
        """
        raise NotImplementedError(f"{type(self).__name__} must write `encode`")

    def bind(self, data):
        """Make a `FeatureModel` over encoded rows."""
        raise NotImplementedError(f"{type(self).__name__} must write `bind`")

    def initial_allocations(self, data, most, rng):
        """Guess Z, quickly and roughly, so that chains start near something that fits; by default
        there is no guess. Called on a resolved likelihood.

        Parameters
        ----------
        data : dict
            Of `encode`.
        most : int
            The largest number of features.
        rng : numpy.random.Generator
            For guesses that differ between chains as far as the data leave it open.

        Returns
        -------
        Z : ndarray of shape (n_samples, n_latent), bool; or None
            Under a `CollapsedFeatureModel` there may be superfluous features: the start removes
            them.
        """
        return None

    def encode_new(self, X):
        """Bring rows that are no part of the data of `fit` into the model's form; by default, as
        those are.

        Returns
        -------
        data : dict
        """
        return self.encode(X)

    def observed(self, X):
        """Tell which new rows have any entry that their law depends on; by default, any but NaN.

        Parameters
        ----------
        X : ndarray or CSR matrix of shape (n_samples, n_features)

        Returns
        -------
        observed : ndarray of shape (n_samples,), bool
        """
        if scipy.sparse.issparse(X):
            return np.ones(X.shape[0], dtype=bool)
        return ~np.isnan(X).all(axis=1)

    def select(self, params, features):
        """Pick the parameters of some features, in that order; by default, along the first axis.

        Parameters
        ----------
        params : dict
            As `FeatureModel.save` gives it.
        features : ndarray of int

        Returns
        -------
        params : dict of str to ndarray
            Those in `feature_params`.
        """
        return {name: params[name][features] for name in self.feature_params}

    def reconstruct(self, Z, params):
        """Compute the expected rows. Where a likelihood does not write it, the estimator cannot
        `impute` nor `inverse_transform`.

        Parameters
        ----------
        Z : ndarray of shape (n_samples, n_latent)
            Values, or probabilities, of the features.
        params : dict
            The parameters, and "allocations" where `needs_allocations`.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        """
        raise NotImplementedError(f"{type(self).__name__} must write `reconstruct`")

    @classmethod
    def _examples(cls):
        """Pairs (likelihood, X) on which the tests check the laws that every likelihood obeys."""
        raise NotImplementedError(f"{cls.__name__} must write `_examples`")
