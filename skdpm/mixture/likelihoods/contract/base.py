# SPDX-License-Identifier: BSD-3-Clause
"""Base class of likelihoods: scikit-learn objects that check data and make kernels."""

import copy

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from skdpm._validation import NO_COUNTS, OTHER_LAW, check_columns, check_finite, check_nested
from skdpm.mixture.likelihoods.contract.roles import Answers, Blocks, Learned, Tables

# Bound on the items of a cluster in a stream (doubles count exactly up to here), and the length of
# tables then, which fit into the cache.
UNBOUNDED = 2**53
TABLED = 2**14

# Largest number of columns for boxes around rows. With more, hardly any box is far from a cluster.
MOST_BOXED = 12


class Likelihood(Learned, Tables, Blocks, Answers, BaseEstimator):
    """Base class of likelihoods.

    A subclass sets the class attributes and implements `resolve` (or `summarise`,
    `merge_summaries` and `resolve_summary`), `encode`, `tables`, `bind` and `cluster_params`. The
    base classes are roles, which it may have.

    - `capabilities`: frozenset of str: "joint", "product", "instantiated" (doc/design.md).
    - `has_points`: bool. Whether rows are points of a space, in which clusters have means,
      covariances and hills. Without it, readings of hills are `"vi"`.
    - `allow_nan`, `accept_sparse`, `pairwise`, `positive_only`: bool. Input tags of scikit-learn.
      `accept_sparse` "as dense": CSR rows are made dense before use.
    - `projective`: bool. Whether the law of some rows is that of more rows with the others
      integrated out, so that a row of `fit` has a density given the others.
    - `nan_hint`: str. Advice in the error about NaN.
    - `draws_gaps`: bool. Whether chains draw missing entries with the clusters of their rows
      (`ClusterModel.complete`). Otherwise NaN is integrated out of all densities, or not allowed.
    - `weighs_rows`: bool. Whether chains draw a row's weight with its cluster (`Gaussian.tails`).
    - `discrete`: bool. Whether densities of rows are probabilities, and so at most 1.
    - `reads_directions`: bool. Whether rows count by direction alone (`VonMisesFisher`; `scaled`).
    - `cuts_again`: bool. Whether the pieces of an automatic start depend so much on the
      hyperparameters that they are cut again under the learned ones.
    - `select`: bool. Whether columns may be outside the clustering (`Product`).
    - `left_out`: object or None. What clusters are not made of: columns that others determined in
      `fit`, or entries in new categories (`Categorical`). It has the methods `log_density`,
      `log_density_known` (for rows that `needs_laws` names), and `departs` of
      `gaussian.projected.Projection`.
    - `constants_vary`: bool. Whether `log_constants` depend on hyperparameters.
    - `exposed`: bool. Whether the last column of X holds exposures: see `with_exposure`.
    - `objects`: tuple of (str, str). Parameters that may be objects or names, and examples.
    """

    capabilities = frozenset({"joint", "product"})
    has_points = False
    allow_nan = False
    accept_sparse = False
    pairwise = False
    positive_only = False
    projective = True
    nan_hint = ""
    draws_gaps = False
    weighs_rows = False
    discrete = False
    reads_directions = False
    cuts_again = False
    constants_vary = False
    select = False
    exposed = False
    left_out = None
    objects = ()

    def set_params(self, **params):
        """Set parameters, also of an object, ``name__parameter``. Returns the likelihood."""
        for name, examples in self.objects:
            check_nested(params, {name: getattr(self, name)}, f", such as {examples}")
        return super().set_params(**params)

    # Rows with known classes: see `Classified`.

    @property
    def own(self):
        """The likelihood without known classes."""
        return self

    def own_stats(self, stats):
        """Those statistics of clusters, (n_clusters, n_stats), that the kernel of `own` has."""
        return stats

    def for_rows(self, rows):
        """The likelihood of some rows of `fit`, given by their positions."""
        return self

    def separated(self, labels, most):
        """Cut the clusters of labels 0, 1, ... into at most `most` that may start a chain."""
        return labels

    # with_exposure(self), a role, returns a copy for rows with exposures, which multiply the means
    # of their counts. Its methods take X with the exposures as a further, last column.
    with_exposure = None

    def of_column(self, column, n_features):
        """A copy for one of the columns; None unless they are independent given the cluster."""

    def doubtful(self, X, least):
        """What the rows of `fit` say against clusters of points, for `columns.words_about`, with
        columns that are skewed by `least`."""
        return {}

    def by_columns(self, n_features):
        """Likelihoods that are independent given the cluster, each with positions of columns."""
        return [(self, np.arange(n_features))]

    def changed_by_columns(self, change, X):
        """A copy with change(likelihood, its columns of X) in the place of each of these."""
        return change(self, X)

    def independent(self, X, completion=None):
        """The columns that clusters are made of, with the drawn entries of a `completion`."""
        return X

    def as_seen(self, X, first=None):
        """Rows of `fit` as chains see them, or from number `first` of a stream (`Recording`)."""
        return X

    def copies(self, X, classes=None):
        """The rows of `fit` that are copies within their class: `recorded.Copies`, or None."""

    def n_drawn(self, X):
        """Number of values that chains draw for rows, of a `completion` of them."""
        return 0

    def check_entries(self, X, gaps=False):
        """Refuse infinity, and NaN unless it is allowed or, with `gaps`, there are `laws`."""
        gaps = gaps and self.lacks("laws") is None
        check_finite(X, allow_nan=self.allow_nan or gaps, hint=self.nan_hint)

    def needs_laws(self, X):
        """Whether each row has NaN that kernels cannot evaluate: ndarray of bool."""
        if self.allow_nan or sp.issparse(X):
            return np.zeros(X.shape[0], dtype=bool)
        return np.isnan(self.independent(X)).any(axis=1)

    def uninformative(self, X):
        """Whether each row says as little about its cluster as one without entries."""
        if sp.issparse(X):
            return np.zeros(X.shape[0], dtype=bool)
        nothing = np.ones(len(X), dtype=bool)
        for column in self.independent(X).T:
            if not nothing.any():
                break
            nothing &= np.isnan(column)
        return nothing

    @property
    def fitted_gaps(self):
        """Whether rows of `fit` had missing entries that chains must draw, after `resolve`."""
        return False

    def says_nothing(self, n_features):
        """Whether this number of columns contains no information about clusters."""
        return False

    def resolve(self, X):
        """A copy with checked parameters, and numbers for defaults that depend on X of `fit`."""
        if type(self).resolve_summary is Blocks.resolve_summary:
            raise NotImplementedError(f"{type(self).__name__} must implement `resolve`")
        return self.resolve_summary(self.summarise(X))

    def encode(self, X):
        """Rows of `fit` or of a batch, checked, in the form of the kernel: dict, `read_only`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `encode`")

    def encode_new(self, X):
        """Like `encode`, for new rows that are predicted or scored."""
        return self.encode(X)

    def tables(self, data, n_max):
        """Tables that kernels over encoded rows share, made once per fit: dict, `read_only`."""
        return {"n_max": bounds(n_max)[0]}

    def bind(self, data, tables):
        """A `ClusterModel` over encoded rows. Every chain, replica and particle makes one."""
        raise NotImplementedError(f"{type(self).__name__} must implement `bind`")

    def coordinates(self, X):
        """Points for k-means, finite and without units: (n_rows, n_dimensions). None: none."""

    def box_points(self, data):
        """Finite points of rows for bounds over boxes: (n_rows, n_dimensions). None: none."""

    def _copy(self, **resolved):
        """This object with some parameters replaced by their resolved values."""
        return type(self)(**{**self.get_params(deep=False), **resolved})

    def _single_column(self, column, n_features):
        """This object for one column: with its entry of what has an entry for each column."""
        other = copy.copy(self)
        for name, value in vars(self).items():
            if isinstance(value, (list, tuple)) or np.ndim(value) == 1:
                if len(value) != n_features:
                    raise ValueError(
                        f"{type(self).__name__}.{name} has {len(value)} entries for {n_features} "
                        "columns"
                    )
                setattr(other, name, value[column : column + 1])
        return other

    def _check_columns(self, X, bad, what):
        """Raise a ValueError for the first column of X with a bad entry; it names that entry."""
        marks, hint = (" (NaN = missing)", NO_COUNTS) if self.allow_nan else ("", OTHER_LAW)
        check_columns(X, bad, f"{type(self).__name__} needs {what}{marks}", hint)


def bounds(n_max):
    """Largest numbers of items of a cluster and in tables, from the `n_max` of `tables`."""
    return (UNBOUNDED, TABLED) if n_max is None else (n_max, n_max)


def read_only(shared):
    """Replace the arrays in dicts and tuples by views that cannot be written to."""
    if isinstance(shared, dict):
        return {name: read_only(value) for name, value in shared.items()}
    if isinstance(shared, tuple):
        return tuple(map(read_only, shared))
    if isinstance(shared, np.ndarray):
        shared = shared.view()
        shared.flags.writeable = False
    return shared


# `number` in _parametric.pxd.
READABLE = tuple(map(np.dtype, (np.float32, np.float64, np.int32, np.int64, np.uint8)))


def readable(X):
    """X in a dtype that kernels read; X itself if it has one."""
    X = np.asarray(X)
    if X.dtype == bool:
        return X.view(np.uint8)
    return X if X.dtype in READABLE else X.astype(np.float64)


def j_divergences(means, naturals):
    """J-divergences within an exponential family, (n_clusters, n_clusters): the inner product of
    the difference of the natural parameters and the difference of the means of the statistics,
    (n_clusters, n_statistics) each."""
    products = means @ naturals.T
    own = np.diagonal(products)
    return np.maximum(own[:, None] + own - (products + products.T), 0.0)
