# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a likelihood of features: a scikit-learn object that makes a kernel."""

from sklearn.base import BaseEstimator


class FeatureLikelihood(BaseEstimator):
    """Base class of likelihoods of feature allocations.

    A subclass writes `resolve`, `encode` and `kernel`, and, for predictions, `encode_new`,
    `reconstruct` and `new_rows`.

    Attributes
    ----------
    allow_nan : bool
        Whether X may have missing entries; becomes scikit-learn's input tag.
    """

    allow_nan = True

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

    def kernel(self, data):
        """The `FeatureModel` over encoded rows."""
        raise NotImplementedError(f"{type(self).__name__} must write `kernel`")
