# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a likelihood of features: a scikit-learn object that makes a kernel."""

from sklearn.base import BaseEstimator


class FeatureLikelihood(BaseEstimator):
    """Base class of likelihoods of feature allocations.

    A subclass writes `resolve`, `encode` and `kernel`, `reconstruct` where rows are sums of
    features, and `_examples`.

    Attributes
    ----------
    allow_nan : bool
        Whether X may have missing entries; becomes scikit-learn's input tag.
    feature_params, hyperparameters : tuple of str
        Names of the parameters that `FeatureModel.save` gives: arrays with one row per feature,
        and numbers. Those of every draw are kept.
    """

    allow_nan = True
    feature_params = ()
    hyperparameters = ()

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

    def encode(self, X):
        """Bring rows into the kernel's form; chains share it. Called on a resolved likelihood.

        Returns
        -------
        data : dict
        """
        raise NotImplementedError(f"{type(self).__name__} must write `encode`")

    def bind(self, data):
        """The `FeatureModel` over encoded rows."""
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")

    def reconstruct(self, Z, params):
        """Expected rows.

        Parameters
        ----------
        Z : ndarray of shape (n_samples, n_latent)
            Values, or probabilities, of the features.
        params : dict of str to ndarray
            The features' parameters.

        Returns
        -------
        X : ndarray of shape (n_samples, n_features)
        """
        raise NotImplementedError(f"{type(self).__name__} must write `reconstruct`")

    @classmethod
    def _examples(cls):
        """Pairs (likelihood, X) on which the tests check the laws that every likelihood obeys."""
        raise NotImplementedError(f"{cls.__name__} must write `_examples`")
