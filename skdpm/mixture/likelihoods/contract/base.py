# SPDX-License-Identifier: BSD-3-Clause
"""Base class of likelihoods: scikit-learn objects that check data and make kernels."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator

from skdpm._validation import check_columns, check_finite
from skdpm.hyperpriors import Hyperprior, Shifted, check_hyperprior

# Bound on the items of a cluster in a stream (doubles count exactly up to here), and the length of
# tables then, which fit into the cache.
UNBOUNDED = 2**53
TABLED = 2**14

# Largest number of columns for boxes around rows. With more columns hardly any box is far from a
# cluster.
MOST_BOXED = 12

# What a likelihood may have beyond the densities of rows, by the method that is None without it.
# The guide (doc/guide/likelihoods.md) says what users can do with each.
ROLES = {
    "draw": "law of whole rows to draw from",
    "laws": "law of some columns given others",
    "background": "law of rows that are noise",
    "column_means": "columns with means or categories to describe",
}

WORDS_HINT = "; for texts, use sklearn's CountVectorizer or TfidfVectorizer first"


class Likelihood(BaseEstimator):
    """Base class of likelihoods.

    A subclass sets the class attributes and implements `resolve` (or `summarise`,
    `merge_summaries` and `resolve_summary`), `encode` and `bind`; also `tables`,
    `cluster_params`, `draw` and `_examples` if they make sense.

    Attributes
    ----------
    capabilities : frozenset of str
        `"joint"`: the predictive density of an item given the others. `"product"`: clusters are
        independent given the partition and their statistics can be copied. `"instantiated"`:
        parameters can be drawn and rows evaluated under them.
    hyperparameters : tuple of str
        Parameters that may be None, in the order of the kernel's `set_hyperparameters`. None:
        learned under a prior that `resolve` puts into `_hyperpriors`; the resolved object holds
        the initial values of chains.
    has_points : bool
        Whether rows are points of a space, in which clusters have means, covariances and hills.
        Without it, `point_estimate="modal"` is `"vi"`.
    allow_nan, accept_sparse, pairwise, positive_only : bool
        Input tags of scikit-learn. `accept_sparse` "as dense": CSR rows are made dense before
        use.
    projective : bool
        Whether the law of some rows is that of more rows with the others integrated out, so that
        a row of `fit` has a density given the others.
    nan_hint : str
        Advice in the error about NaN.
    reads_tables : bool
        Whether columns may hold other values than numbers. The subclass then implements
        `for_columns`, `read` and `decode`.
    draws_gaps : bool
        Whether chains draw missing entries with the clusters of their rows
        (`ClusterModel.complete`).
        Otherwise NaN is integrated out of all densities, or not allowed.
    weighs_rows : bool
        Whether chains draw a weight of every row with its cluster (`Gaussian.tails`).
    discrete : bool
        Whether densities of rows are probabilities, and so at most 1.
    reads_directions : bool
        Whether a row counts by its direction alone (`VonMisesFisher`), at unit length (`scaled`).
    text_hint : str or None
        Advice in errors about text, in place of that of the estimator.
    cuts_again : bool
        Whether the pieces of an automatic start depend so much on the hyperparameters that they
        are cut again under the learned ones.
    select : bool
        Whether columns may be outside the clustering, with one law for all rows (`Product`).
    fewest_columns : int
        Smallest number of columns that contain information about clusters.
    """

    capabilities = frozenset({"joint", "product"})
    hyperparameters = ()
    has_points = False
    allow_nan = False
    accept_sparse = False
    pairwise = False
    positive_only = False
    projective = True
    nan_hint = ""
    reads_tables = False
    draws_gaps = False
    weighs_rows = False
    discrete = False
    reads_directions = False
    text_hint = None
    cuts_again = False
    constants_vary = False  # whether `log_constants` depend on hyperparameters
    select = False
    fewest_columns = 1
    exposed = False  # whether the last column of X holds exposures: see `with_exposure`

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
        """Cut the clusters of labels 0, 1, ... so that they are allowed as the start of a chain,
        into at most `most` clusters."""
        return labels

    # Tables whose columns may hold other values than numbers.

    def for_columns(self, X):
        """A copy made for the columns of X, which can `read` tables with these columns.

        Parameters
        ----------
        X : array-like or Table
            X of `fit`, unchecked.

        Returns
        -------
        likelihood : Likelihood
            This object if columns hold numbers and have no names.
        """
        return self

    def for_batch(self, X):
        """Like `for_columns`, for the first batch of `partial_fit` without a fit. Columns that are
        constant or dependent in it may vary in later batches."""
        return self.for_columns(X).keeping_columns()

    def with_exposure(self):
        """A copy for rows with exposures, by which the means of their counts are multiplied. Its
        methods take X with the exposures as a further, last column. None: there is none."""
        return None

    def of_column(self, column, n_features):
        """A copy for one of the columns, if they are independent given the cluster; otherwise
        None.

        Parameters
        ----------
        column : int
        n_features : int
            Number of the columns for which this likelihood is made.
        """
        return None

    def keeping_columns(self):
        """A copy whose `resolve` leaves out no column."""
        return self

    def doubtful(self, X):
        """What the rows of `fit` say against clusters of points: a dict from positions of columns
        to "two values", to the logarithm that would suit (`columns.skewed_columns`), to a
        `columns.Far` or to a `columns.Fill`, and from None to the share of the rows that are
        copies of others and the columns in which they are (None: all)."""
        return {}

    # Columns that clusters are not made of, because the others determined them in `fit`: an object
    # with the methods of `gaussian.projected.Projection`. log_density(X) is the log density of
    # these given the others, which kernels leave out; log_density_known(X) that of those that
    # follow from known entries, for rows that `needs_laws` names; departures(X) has the positions
    # of those that do not follow from the others in some rows.
    left_out = None

    def by_columns(self, n_features):
        """Likelihoods that are independent given the cluster, and the positions of their columns:
        list of tuples (Likelihood, ndarray)."""
        return [(self, np.arange(n_features))]

    def changed_by_columns(self, change, X):
        """A copy with change(likelihood, its columns of X) in the place of each of these."""
        return change(self, X)

    def independent(self, X, completion=None):
        """The columns of X that clusters are made of. With a `completion`, the missing entries
        that chains draw have these values (`ClusterModel.completion`)."""
        return X

    def as_seen(self, X, first=None):
        """Rows as chains see them: moved by a `recorded.Recording`, if there is one. `first` is
        the number of the first row in a stream; None: X are the rows of `fit`."""
        return X

    def copies(self, X, classes=None):
        """The rows of `fit` that are copies and say nothing new: `recorded.Copies`, or None. Rows
        of different `classes`, (n_rows,), are no copies."""
        return None

    def n_drawn(self, X):
        """Number of values that chains draw for rows, of a `completion` of them."""
        return 0

    def read(self, table):
        """Convert a `Table` to the numbers that all other methods take.

        Returns
        -------
        X : ndarray of shape (n_rows, n_features)

        Raises
        ------
        ValueError
            If a column holds a value that cannot be converted; the message names both.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `read`")

    def decode(self, X):
        """Undo `read`.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)

        Returns
        -------
        columns : list of (codes, categories) or None, or None
            Codes (-1 if missing) and categories of each column; None for a column of numbers.
            None instead of a list: all columns hold numbers.
        """
        return None

    def check_entries(self, X, gaps=False):
        """Raise ValueError for the first column with infinity, or with NaN unless allowed. With
        `gaps`, NaN is also allowed if there are `laws` of the other entries."""
        gaps = gaps and self.lacks("laws") is None
        check_finite(X, allow_nan=self.allow_nan or gaps, hint=self.nan_hint)

    def needs_laws(self, X):
        """Whether each row has NaN that kernels cannot evaluate: ndarray of bool."""
        if self.allow_nan or sp.issparse(X):
            return np.zeros(X.shape[0], dtype=bool)
        return np.isnan(self.independent(X)).any(axis=1)

    def uninformative(self, X):
        """Whether each row says nothing about its cluster, as if all its entries were missing:
        ndarray of bool."""
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
        return n_features < self.fewest_columns

    def suits_blocks(self, n_samples, n_features):
        """Whether a sampler that visits these rows in blocks is much faster than one that moves
        them one at a time, at little loss. `sampler="auto"` is then `SubCluster`.

        It is called before any parameter is checked.
        """
        return False

    def resolve(self, X):
        """Check hyperparameters and make a copy with concrete values for all defaults that depend
        on the data.

        Parameters
        ----------
        X : ndarray or CSR array of shape (n_samples, n_features)
            Rows of `fit`.

        Returns
        -------
        likelihood : Likelihood

        Raises
        ------
        ValueError
            If the likelihood cannot model a hyperparameter or a column.
        """
        return self.resolve_summary(self.summarise(X))

    def encode(self, X):
        """Check rows that will be learned (of `fit` or of a batch of a stream) and convert them to
        the form of the kernel, which all chains share.

        The likelihood is resolved, but later batches of a stream did not take part in that. A
        value without a place, such as an unknown category, raises an error.

        Returns
        -------
        data : dict
            Arrays made `read_only`.

        Raises
        ------
        ValueError
            If a value is outside the domain of the likelihood; the message names its column.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `encode`")

    def encode_new(self, X):
        """Like `encode`, for new rows that are predicted or scored."""
        return self.encode(X)

    def tables(self, data, n_max):
        """Make the tables that kernels over these rows share, once per fit.

        Parameters
        ----------
        data : dict
            Result of `encode` or `encode_new`.
        n_max : int or None
            Largest number of items of a cluster. None: unbounded, as in a stream. Tables then
            have a fixed length, and densities of a row depend, to the bit, only on the row, the
            cluster and the likelihood, not on other rows.

        Returns
        -------
        tables : dict
            `n_max` (see `bounds`), and arrays made `read_only`. Beyond the end of a table, kernels
            compute the values of a longer one, to the bit.
        """
        return {"n_max": bounds(n_max)[0]}

    def bind(self, data, tables):
        """Make a `ClusterModel` over encoded rows. It must be cheap: every chain, replica and
        particle has one. All of them read the same arrays."""
        raise NotImplementedError(f"{type(self).__name__} must implement `bind`")

    def coordinates(self, X):
        """Points for k-means, such that similar rows are close.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows of `fit`.

        Returns
        -------
        points : ndarray of shape (n_rows, n_dimensions), or None
            Finite coordinates that do not depend on the units of columns. None: the likelihood has
            no coordinates, and densities determine which rows are similar.
        """
        return None

    def box_points(self, data):
        """Points for which `ClusterModel.log_predictive_bound_many` bounds the densities of the
        rows in a box. Samplers can then visit rows tile by tile (`_tiles`) and skip clusters that
        are far away.

        Parameters
        ----------
        data : dict
            Result of `encode` or `encode_new`.

        Returns
        -------
        points : ndarray of shape (n_rows, n_dimensions), or None
            Finite coordinates. None: kernels have no bounds, or no useful ones for these rows.
        """
        return None

    # Learned hyperparameters, of a resolved likelihood.

    @property
    def learned_priors(self):
        """Priors of the learned hyperparameters: dict of str to `Hyperprior`, `Shifted`,
        or another object with their methods `draw` and `log_density`."""
        return dict(getattr(self, "_hyperpriors", {}))

    @property
    def learned(self):
        """Names of the hyperparameters that are learned, in order: tuple of str."""
        priors = self.learned_priors
        return tuple(name for name in self.hyperparameters if name in priors)

    def flat_hyperparameters(self):
        """All hyperparameters in one vector, in the form of the kernel's `set_hyperparameters`:
        ndarray of shape (n_hyper,)."""
        values = [np.ravel(getattr(self, name)) for name in self.hyperparameters]
        return np.concatenate([np.empty(0), *values])

    def hyper_names(self):
        """Name of each number of `flat_hyperparameters`: tuple."""
        return tuple(
            name for name in self.hyperparameters for _ in range(np.size(getattr(self, name)))
        )

    def learned_values(self, flat):
        """Learned hyperparameters of such a vector, by name and in their shape: dict of str to
        float or ndarray."""
        values, first = {}, 0
        for name in self.hyperparameters:
            shape = np.shape(getattr(self, name))
            stop = first + math.prod(shape)
            if name in self.learned:
                values[name] = np.reshape(flat[first:stop], shape) if shape else float(flat[first])
            first = stop
        return values

    def at(self, values):
        """A copy of this resolved likelihood with other values of some hyperparameters. `values`
        is a dict of str to float or ndarray."""
        other = copy.copy(self)
        for name, value in values.items():
            if name not in self.hyperparameters:
                raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")
            setattr(other, name, value)
        return other

    def without_learning(self):
        """A copy of this resolved likelihood with all hyperparameters fixed at their values."""
        other = copy.copy(self)
        other._hyperpriors = {}
        return other

    def log_hyperprior(self, values):
        """log density of the priors of learned hyperparameters at `values`, a dict as for `at`; 0
        if none is learned."""
        priors = self.learned_priors.items()
        return float(sum(np.sum(prior.log_density(values[name])) for name, prior in priors))

    def draw_hyperparameters(self, rng):
        """Draw the learned hyperparameters from their priors: dict of str to float or ndarray."""
        values = {}
        for name, prior in self.learned_priors.items():
            shape = np.shape(getattr(self, name))
            draw = prior.draw(rng, shape)
            values[name] = draw if shape else float(draw)
        return values

    # Rows in blocks: methods for the capability "instantiated". Samplers see the rows in blocks,
    # possibly on several machines, and copy no more than a block at a time.

    def summarise(self, X):
        """Summarise a block of rows for `resolve`: dict of arrays.

        Parameters
        ----------
        X : ndarray or CSR array of shape (n_rows, n_features), of any numeric type

        Raises
        ------
        ValueError
            If the likelihood can never model a value; the message names its column.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `summarise`")

    def merge_summaries(self, first, second):
        """The summary of the rows of two summaries, in this order."""
        raise NotImplementedError(f"{type(self).__name__} must implement `merge_summaries`")

    def resolve_summary(self, summary):
        """Like `resolve`, from the summary of all rows. Raises the errors of `encode`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `resolve_summary`")

    def parametric(self, X):
        """The `ParametricModel` of a block of rows that have been summarised. It is called often
        and must be fast; nothing is checked."""
        raise NotImplementedError(f"{type(self).__name__} must implement `parametric`")

    def condense(self, X):
        """A form of a block of rows that `parametric`, `encode` and `log_constants` also take, and
        faster. It is kept in memory in place of the rows.

        Returns
        -------
        rows : ndarray of shape (n_rows, n_numbers), or None
            None: there is no better form than X.
        """
        rows = self.as_seen(X)
        return None if rows is X else rows

    def log_constants(self, X):
        """Terms of log p(x) that do not depend on the cluster, equal to `log_constants` of the
        kernel: ndarray of shape (n_rows,)."""
        return np.zeros(X.shape[0])

    def sum_varying_constants(self):
        """Sum over all rows of `fit` of those `log_constants` that depend on hyperparameters, at
        their current values, after `resolve`. Chains that visit rows in blocks add it."""
        return 0.0

    def divergences(self, params):
        """Symmetric Kullback-Leibler divergences (J-divergences) of drawn parameters.

        Parameters
        ----------
        params : ndarray of shape (n_clusters, n_params)
            Parameters in the form of `ParametricModel`.

        Returns
        -------
        divergences : ndarray of shape (n_clusters, n_clusters)
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `divergences`")

    def cluster_params(self, stats):
        """Posterior means of the parameters of clusters.

        Parameters
        ----------
        stats : ndarray of shape (n_clusters, n_stats)
            Statistics of the clusters (`ClusterModel.dump`).

        Returns
        -------
        params : dict of str to ndarray, first axis n_clusters
        """
        raise NotImplementedError(f"{type(self).__name__} must implement `cluster_params`")

    # Roles, which a likelihood may have (see `ROLES`): it overrides None with a method.

    # draw(self, stats, rng) draws a row from the posterior predictive of each cluster.
    draw = None

    # laws(self, stats, rng=None) returns the `laws.Laws` of a row in each cluster: with the
    # parameters integrated out, or given parameters drawn from their posterior if `rng` is given.
    laws = None

    # background(self, X) returns the `background.Background` of the rows X of `fit`.
    background = None

    # column_means(self, stats, n_draws=None, rng=None) returns the `means.ColumnMeans` of the
    # clusters: posterior means, or n_draws draws from the posterior of the parameters.
    column_means = None

    def lacks(self, role):
        """Name of the likelihood, or the part of it, that lacks one of the `ROLES`; None if it is
        there."""
        return type(self).__name__ if getattr(self, role) is None else None

    def scaled(self, X):
        """Rows on the scale of `column_means`: X itself, or a copy of the same kind (ndarray or
        CSR array)."""
        return X

    # A likelihood whose clusters are normal or Student in every column overrides this with a
    # method `column_posterior(self, stats, column)`. It returns the posterior of the mean and
    # variance of each cluster in a column: arrays `mean`, `mean_precision`, `df` and `scale`, and
    # a number `rest`. The variance is v + rest, with v ~ InvGamma(shape=df / 2, rate=scale / 2),
    # and the mean given v is N(mean, v / mean_precision).
    column_posterior = None

    def moments(self, params, directions):
        """Posterior means of the clusters' means and covariances along directions.

        Parameters
        ----------
        params : dict
            `cluster_params` of the clusters.
        directions : ndarray of shape (n_features, n_directions)

        Returns
        -------
        means : ndarray of shape (n_clusters, n_directions), or None
            None if rows have no mean.
        covariances : ndarray of shape (n_clusters, n_directions, n_directions), or None
        """
        if not {"means", "covariances"} <= params.keys():
            return None, None
        return project_moments(params["means"], params["covariances"], directions)

    def columns_with_means(self, params, n_features):
        """Positions of the columns that have a mean in each cluster; all if there are not two."""
        return np.arange(n_features)

    @classmethod
    def _examples(cls):
        """Pairs (likelihood, X) on which the tests check the laws that every likelihood obeys."""
        raise NotImplementedError(f"{cls.__name__} must implement `_examples`")

    def _copy(self, **resolved):
        """This object with some parameters replaced by their resolved values."""
        return type(self)(**{**self.get_params(deep=False), **resolved})

    def _single_column(self, column, n_features):
        """This object for one of its columns: with one entry of every parameter, and of fitted
        categories, that has an entry for each column."""
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

    def _learn_under(self, defaults):
        """Priors of learned hyperparameters, with the families of the parameter `hyperpriors`.
        Entries for hyperparameters that are fixed have no effect.

        Parameters
        ----------
        defaults : dict of str to hyperprior
            Default prior of each learned hyperparameter. A given family replaces the family of the
            default; the lower limit and the unit stay.

        Raises
        ------
        ValueError
            If an entry of `hyperpriors` is not possible; the message names it.
        """
        owner = f"{type(self).__name__}.hyperpriors"
        if not isinstance(self.hyperpriors, (Mapping, type(None))):
            raise ValueError(
                f"{owner} must be None or a dict from names of parameters to priors, got "
                f"{self.hyperpriors!r}"
            )
        priors = dict(defaults)
        for name, given in (self.hyperpriors or {}).items():
            if name not in self.hyperparameters:
                raise ValueError(
                    f"{owner} has an entry for {name!r}, which is not a learned parameter; "
                    f"possible names are {', '.join(self.hyperparameters)}"
                )
            family = check_hyperprior(given, f"{owner}[{name!r}]")
            default = defaults.get(name, family)
            if isinstance(default, Shifted):
                priors[name] = replace(default, family=family)
            elif isinstance(default, Hyperprior):
                priors[name] = family
            else:
                raise ValueError(
                    f"{owner} has an entry for {name!r}, whose prior cannot be changed; leave it "
                    "out"
                )
        return {name: priors[name] for name in defaults}

    def _check_columns(self, X, bad, what):
        """Raise a ValueError for the first column of X with a bad entry; it names that entry."""
        check_columns(X, bad, f"{type(self).__name__} needs {what}")


def bounds(n_max):
    """Largest number of items of a cluster, and the last number of items in tables: (int, int),
    from the `n_max` of `Likelihood.tables`."""
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
    """J-divergences within an exponential family: the inner product of the difference of the
    natural parameters and the difference of the means of the statistics.

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


def project_moments(means, covariances, directions):
    """Means and covariances along directions: matrices, variances of columns, or one variance."""
    if covariances.ndim == 1:
        covariances = np.repeat(covariances[:, None], means.shape[1], axis=1)
    if covariances.ndim == 2:
        covariances = np.einsum("kd,da,db->kab", covariances, directions, directions)
    else:
        covariances = directions.T @ covariances @ directions
    return means @ directions, covariances


def set_hyperparameters(model, likelihood):
    """Set the hyperparameters of a kernel to those of a likelihood."""
    model.set_hyperparameters(likelihood.flat_hyperparameters())
