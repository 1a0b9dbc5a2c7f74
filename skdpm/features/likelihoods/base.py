# SPDX-License-Identifier: BSD-3-Clause
"""Base class of likelihoods of features: scikit-learn objects that make a `FeatureModel`."""

import numpy as np
import scipy.sparse
from sklearn.base import BaseEstimator

from skdpm._validation import check_finite


class FeatureLikelihood(BaseEstimator):
    """Base class of likelihoods of feature allocations.

    A subclass implements `resolve`, `encode` and `bind`, and `reconstruct` if rows have an
    expectation given their features.

    - `allow_nan`, `accept_sparse`, `pairwise`, `positive_only`: bool. Input tags of scikit-learn.
      Sparse matrices are passed as CSR.
    - `needs_allocations`: bool. Whether a new row depends on the features of the rows of `fit`.
      The model gets these by `FeatureModel.see`, `reconstruct` as `params["allocations"]`.
    - `tempers`: bool. Whether its `FeatureModel.anneal` uses the length of the warm-up, which then
      cannot be found during the fit.
    - `preferred_sampler`: str. Name of the sampler for `sampler="auto"`.
    - `feature_params`: tuple of str. Names of the features' parameters in `FeatureModel.save`,
      arrays with one row per feature (unless `select` is overridden). Every draw of them is kept.
    - `common_params`: tuple of str. Names of the parameters in `FeatureModel.save` that belong to
      no feature, such as an intercept: arrays of shape (n_features,). Every draw of them is kept.
    - `hyperparameters`: tuple of str. Names of the hyperparameters in `FeatureModel.save`: numbers
      that are parameters of the likelihood. Those that are None are learned, and draws are kept.
    """

    allow_nan = True
    accept_sparse = False
    pairwise = False
    positive_only = False
    read = None  # columns hold numbers
    text_hint = None
    reads_numbers = False
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
        """Raise ValueError for the first column of X with infinity, or with NaN unless allowed."""
        check_finite(X, allow_nan=self.allow_nan)

    def rebuilt(self, X):
        """Checked rows with those missing entries that known ones determine."""
        return X

    def resolve(self, X):
        """A copy with checked hyperparameters and concrete values for all defaults. A ValueError
        names a hyperparameter or a column of X that the likelihood cannot model."""
        raise NotImplementedError(f"{type(self).__name__} must implement `resolve`")

    def check_prior(self, prior):
        """Raise ValueError for a `FeaturePrior` that the model does not support. A model to which
        no feature can be added, for example, refuses priors with `grows`."""

    def encode(self, X):
        """The rows of `fit` in the form of the model: a dict that all chains share."""
        raise NotImplementedError(f"{type(self).__name__} must implement `encode`")

    def bind(self, data):
        """Make a `FeatureModel` over encoded rows."""
        raise NotImplementedError(f"{type(self).__name__} must implement `bind`")

    def initial_allocations(self, data, most, rng):
        """A quick and rough guess of Z for the start of a chain, from the result of `encode`:
        (n_samples, n_latent), bool, with at most `most` features. None: no guess. With a
        `CollapsedFeatureModel` the start removes superfluous features."""

    def encode_new(self, X):
        """Convert new rows to the form of the model; by default, by `encode`."""
        return self.encode(X)

    def observed(self, X):
        """Whether rows of X, an ndarray or CSR matrix, have any observed entry: (n_samples,)."""
        if scipy.sparse.issparse(X):
            return np.ones(X.shape[0], dtype=bool)
        return ~np.isnan(X).all(axis=1)

    def select(self, params, features):
        """The `feature_params` of some features, in their order, of a `FeatureModel.save`."""
        return {name: params[name][features] for name in self.feature_params}

    def reconstruct(self, Z, params):
        """Expected rows, (n_samples, n_features), from values or probabilities of the features,
        (n_samples, n_latent), and parameters, with "allocations" if `needs_allocations`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `reconstruct`")
