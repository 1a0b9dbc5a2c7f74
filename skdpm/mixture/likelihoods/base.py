# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a likelihood: a scikit-learn object that checks data and makes a kernel."""

import numpy as np
from sklearn.base import BaseEstimator

from skdpm._validation import check_columns


class Likelihood(BaseEstimator):
    """Base class of likelihoods.

    A subclass states its abilities in the class attributes and writes `resolve` (or `summarise`,
    `merge_summaries` and `resolve_summary`), `encode` and `bind`; `tables`, `cluster_params`,
    `draw` and `_examples` where they make sense.

    Attributes
    ----------
    capabilities : frozenset of str
        `"joint"`: the predictive density of an item given the others. `"product"`: clusters are
        independent given the partition and their statistics can be copied. `"instantiated"`:
        parameters can be drawn and rows evaluated under them.
    allow_nan, accept_sparse, pairwise, positive_only : bool
        What X may be; they become scikit-learn's input tags.
    """

    capabilities = frozenset({"joint", "product"})
    allow_nan = False
    accept_sparse = False
    pairwise = False
    positive_only = False

    def resolve(self, X):
        """A copy with every data-dependent default made concrete, hyperparameters checked.

        Parameters
        ----------
        X : ndarray or CSR array of shape (n_samples, n_features)
            The data of `fit`.

        Returns
        -------
        likelihood : Likelihood

        Raises
        ------
        ValueError
            Where a hyperparameter or a column is not what the likelihood can model.
        """
        return self.resolve_summary(self.summarise(X))

    def encode(self, X):
        """Check the rows of `fit` and bring them into the kernel's form; chains share it.

        Called on a resolved likelihood.

        Returns
        -------
        data : dict

        Raises
        ------
        ValueError
            Naming the column and a value outside the likelihood's domain.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `encode`")

    def encode_new(self, X):
        """The same for new rows, to predict or to score."""
        return self.encode(X)

    def tables(self, data, n_max):
        """Make what kernels over these rows share besides them: once per fit, read-only.

        Parameters
        ----------
        data : dict
            From `encode` or `encode_new`.
        n_max : int
            Most items that one cluster may hold.

        Returns
        -------
        tables : dict
            With `n_max`.
        """
        return {"n_max": n_max}

    def bind(self, data, tables):
        """Make a `ClusterModel` over encoded rows. Cheap: every chain, replica and particle has
        one, and all of them read the same arrays."""
        raise NotImplementedError(f"{type(self).__name__} must write `bind`")

    # Scale: what a likelihood with the capability "instantiated" writes besides. Its samplers see
    # the rows in blocks, maybe on several machines, and copy no more than a block at a time.

    def summarise(self, X):
        """What `resolve` and `check` need to know of a block of rows, as a dict of arrays.

        Parameters
        ----------
        X : ndarray or CSR array of shape (n_rows, n_features), of any numeric type

        Raises
        ------
        ValueError
            Naming the column and a value that the likelihood can never model.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `summarise`")

    def merge_summaries(self, first, second):
        """The summary of the rows of two, in this order."""
        raise NotImplementedError(f"{type(self).__name__} must write `merge_summaries`")

    def resolve_summary(self, summary):
        """As `resolve`, from the summary of all rows. Refuses what `encode` would refuse."""
        raise NotImplementedError(f"{type(self).__name__} must write `resolve_summary`")

    def parametric(self, X):
        """The `ParametricModel` of a block of rows, which have been summarised: nothing is
        checked. Called on a resolved likelihood, often: it must be fast."""
        raise NotImplementedError(f"{type(self).__name__} must write `parametric`")

    def log_constant(self, X):
        """Sum over a block of rows of the terms of log p(x) that depend on no parameter."""
        return 0.0

    def divergences(self, params):
        """Symmetric Kullback-Leibler divergences (J-divergences) of drawn parameters.

        Parameters
        ----------
        params : ndarray of shape (n_clusters, n_params)
            In the form of `ParametricModel`.

        Returns
        -------
        divergences : ndarray of shape (n_clusters, n_clusters)
        """
        raise NotImplementedError(f"{type(self).__name__} must write `divergences`")

    def cluster_params(self, rows):
        """Posterior means of the parameters of clusters.

        Parameters
        ----------
        rows : ndarray of shape (n_clusters, n_stats)
            Their statistics (`ClusterModel.dump`).

        Returns
        -------
        params : dict of str to ndarray, first axis n_clusters
        """
        raise NotImplementedError(f"{type(self).__name__} must write `cluster_params`")

    # A likelihood that can generate rows overrides this with a method
    # `draw(self, rows, rng)`: one row from the posterior predictive of each row of statistics.
    draw = None

    @classmethod
    def _examples(cls):
        """Pairs (likelihood, X) on which the tests check the laws that every likelihood obeys."""
        raise NotImplementedError(f"{cls.__name__} must write `_examples`")

    def _copy(self, **resolved):
        """This object with some parameters replaced by their resolved values."""
        return type(self)(**{**self.get_params(deep=False), **resolved})

    def _check_columns(self, X, bad, what):
        """Raise a ValueError that names the first column of X where `bad` holds and a value."""
        check_columns(X, bad, f"{type(self).__name__} needs {what}")


def column_counts(mask):
    """Number of true entries per column, as floats."""
    return np.count_nonzero(mask, axis=0).astype(np.float64)


# `number` in _parametric.pxd.
READABLE = tuple(map(np.dtype, (np.float32, np.float64, np.int32, np.int64, np.uint8)))


def readable(X):
    """X in a type that kernels read; itself where it has one."""
    X = np.asarray(X)
    if X.dtype == bool:
        return X.view(np.uint8)
    return X if X.dtype in READABLE else X.astype(np.float64)


def j_divergences(means, naturals):
    """J-divergences within an exponential family: of two members, the inner product of the gaps
    between their natural parameters and between the means of their statistics.

    Parameters
    ----------
    means, naturals : ndarray of shape (n_clusters, n_statistics)

    Returns
    -------
    divergences : ndarray of shape (n_clusters, n_clusters)
    """
    products = means @ naturals.T
    own = np.diagonal(products)
    return np.maximum(own[:, None] + own - (products + products.T), 0.0)
