# SPDX-License-Identifier: BSD-3-Clause
"""Base class of likelihoods of features: scikit-learn objects that make a `FeatureModel`."""

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator

from skdpm._validation import check_finite


class FeatureLikelihood(BaseEstimator):
    """Base class of likelihoods of feature allocations.

    A subclass implements `resolve`, `encode` and `bind`, and `reconstruct` if rows have an
    expectation given their features. It overrides `check_prior`, `initial_allocations`,
    `select` and `encode_new` if their defaults do not hold.

    - `allow_nan`, `accept_sparse`, `pairwise`, `positive_only`: bool. Input tags of scikit-learn.
      Sparse matrices are passed as CSR.
    - `needs_allocations`: bool. Whether a new row depends on the features of the rows of `fit`.
      The model then gets these by `FeatureModel.see`, and `reconstruct` as
      `params["allocations"]`.
    - `tempers`: bool. Whether its `FeatureModel.anneal` uses the length of the warm-up, which then
      cannot be found during the fit.
    - `preferred_sampler`: str. Name of the sampler for `sampler="auto"`.
    - `feature_params`: tuple of str. Names of the features' parameters in `FeatureModel.save`,
      arrays with one row per feature (unless `select` is overridden). Every draw of them is kept.
    - `common_params`: tuple of str. Names of the parameters in `FeatureModel.save` that belong to
      no feature, such as an intercept: arrays of shape (n_features,). Every draw of them is kept.
    - `hyperparameters`: tuple of str. Names of the hyperparameters in `FeatureModel.save`: numbers
      that are also parameters of the likelihood. Those that are None are learned, and their draws
      are kept.
    """

    allow_nan = True
    accept_sparse = False
    pairwise = False
    positive_only = False
    read = None  # columns hold numbers
    text_hint = None
    needs_allocations = False
    tempers = False
    preferred_sampler = "discrete_particle_filter"
    feature_params = ()
    common_params = ()
    hyperparameters = ()

    @property
    def learned(self):
        """Names of the hyperparameters that are learned: those that are None."""
        return tuple(name for name in self.hyperparameters if getattr(self, name) is None)

    def check_entries(self, X):
        """Raise ValueError for the first column of X, an ndarray or CSR array, with infinity, or
        with NaN unless allowed."""
        check_finite(X, allow_nan=self.allow_nan)

    def resolve(self, X):
        """A copy with checked hyperparameters and concrete values for all defaults. A ValueError
        names a hyperparameter or a column of X that the likelihood cannot model."""
        raise NotImplementedError(f"{type(self).__name__} must implement `resolve`")

    def check_prior(self, prior):
        """Raise ValueError for a `FeaturePrior` that the model does not support. A model to which
        no feature can be added, for example, refuses priors with `grows`."""

    def encode(self, X):
        """Convert the rows of `fit` to the form of the model: a dict that all chains share. Called
        on a resolved likelihood."""
        raise NotImplementedError(f"{type(self).__name__} must implement `encode`")

    def bind(self, data):
        """Make a `FeatureModel` over encoded rows."""
        raise NotImplementedError(f"{type(self).__name__} must implement `bind`")

    def initial_allocations(self, data, most, rng):
        """Guess Z quickly and roughly, so that chains start near a good fit; by default there is
        no guess. Called on a resolved likelihood.

        - `data`: dict. Result of `encode`.
        - `most`: int. Largest number of features.
        - `rng`: numpy.random.Generator. Generator of a chain. Guesses of different chains differ.

        Returns `Z`: (n_samples, n_latent), bool; or None. With a `CollapsedFeatureModel` it may
        have superfluous features: the start removes them.
        """
        return None

    def encode_new(self, X):
        """Convert new rows to the form of the model; by default, by `encode`."""
        return self.encode(X)

    def observed(self, X):
        """Find the rows of X, an ndarray or CSR matrix, with any observed entry; by default, any
        that is not NaN. Returns an ndarray of shape (n_samples,), bool."""
        if scipy.sparse.issparse(X):
            return np.ones(X.shape[0], dtype=bool)
        return ~np.isnan(X).all(axis=1)

    def select(self, params, features):
        """Select the `feature_params` of some features from a dict of `FeatureModel.save`; by
        default, along the first axis.

        - `features`: ndarray of int. Numbers of the features, in the order of the result.
        """
        return {name: params[name][features] for name in self.feature_params}

    def reconstruct(self, Z, params):
        """Compute the expected rows. Without it the estimator has no `impute` and no
        `inverse_transform`.

        - `Z`: (n_samples, n_latent). Values or probabilities of the features.
        - `params`: dict. Parameters, and "allocations" if `needs_allocations`.

        Returns `X`: (n_samples, n_features)
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `reconstruct`")
