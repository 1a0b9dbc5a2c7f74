# SPDX-License-Identifier: BSD-3-Clause
"""What users see of a likelihood: a scikit-learn object that checks data and makes a kernel."""

import copy
import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from sklearn.base import BaseEstimator

from skdpm._validation import check_columns, check_finite
from skdpm.hyperpriors import Hyperprior, Shifted, check_hyperprior

# Where clusters are unbounded: more items than doubles can count, and the length of tables, which
# stay in the cache.
UNBOUNDED = 2**53
TABLED = 2**14

# In more columns a box around rows is hardly ever far from a cluster.
MOST_BOXED = 12


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
    hyperparameters : tuple of str
        Parameters that may be None: learned, under a prior that `resolve` states in
        `_hyperpriors`; the resolved object holds the values that a chain starts from. In the
        order of the kernel's `set_hyperparameters`.
    many_columns : bool
        Whether it is for these: with many rows besides, `sampler="auto"` is `SubCluster`.
    allow_nan, accept_sparse, pairwise, positive_only : bool
        What X may be; they become scikit-learn's input tags.
    projective : bool
        Whether the law of some rows is that of more, the others integrated out, so that a row of
        `fit` has a density given the others.
    nan_hint : str
        What to do about NaN where it is refused, for the message.
    reads_tables : bool
        Whether columns may hold something else than numbers: then it writes `for_columns`, `read`
        and `decode`.
    discrete : bool
        Whether densities of rows are probabilities, and so at most 1.
    fewest_columns : int
        Of fewer columns than these nothing can be learned about clusters.
    """

    capabilities = frozenset({"joint", "product"})
    hyperparameters = ()
    many_columns = False
    allow_nan = False
    accept_sparse = False
    pairwise = False
    positive_only = False
    projective = True
    nan_hint = ""
    reads_tables = False
    discrete = False
    fewest_columns = 1

    # Tables of columns that may hold something else than numbers.

    def for_columns(self, X):
        """A copy that knows the columns of X, so that it can `read` tables like it.

        Parameters
        ----------
        X : array-like or Table
            As it was given to `fit`.

        Returns
        -------
        likelihood : Likelihood
            Itself, where columns are numbers and have no names.
        """
        return self

    def for_batch(self, X):
        """As `for_columns`, for the first batch given to `partial_fit` without a fit."""
        return self.for_columns(X)

    def read(self, table):
        """Make numbers of a `Table`, as all other methods want them.

        Returns
        -------
        X : ndarray of shape (n_rows, n_features)

        Raises
        ------
        ValueError
            Naming a column, and a value in it.
        """
        raise NotImplementedError(f"{type(self).__name__} must write `read`")

    def decode(self, X):
        """Undo `read`.

        Parameters
        ----------
        X : ndarray of shape (n_rows, n_features)

        Returns
        -------
        columns : list of (codes, categories) or None, or None
            For each column that holds categories their codes, -1 where missing, and what these
            stand for. None: all columns hold numbers.
        """
        return None

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
        check_finite(X, allow_nan=self.allow_nan, hint=self.nan_hint)

    def says_nothing(self, n_features):
        """Whether nothing can be learned about clusters from so many columns."""
        return n_features < self.fewest_columns

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
        """Check rows that are learned, those of `fit` or of a batch of a stream, and bring them
        into the kernel's form; chains share it.

        Called on a resolved likelihood, which the rows of later batches of a stream had no part
        in: a value that it has no place for, such as a category that was never named, is refused.

        Returns
        -------
        data : dict
            Arrays made `read_only`.

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
        """Make what kernels over these rows share besides them: once per fit.

        Parameters
        ----------
        data : dict
            From `encode` or `encode_new`.
        n_max : int or None
            Most items that one cluster may hold. None: there is no bound, as in a stream. Tables
            are then of a fixed length, and what they say of a row, and kernels over them, depends
            on the row, the cluster and the likelihood alone, to the bit: not on the other rows,
            such as whether one of them has a missing entry.

        Returns
        -------
        tables : dict
            `n_max` (`bounds`), and arrays made `read_only`. Beyond their end kernels compute what
            longer ones would hold, to the bit.
        """
        return {"n_max": bounds(n_max)[0]}

    def bind(self, data, tables):
        """Make a `ClusterModel` over encoded rows. Cheap: every chain, replica and particle has
        one, and all of them read the same arrays."""
        raise NotImplementedError(f"{type(self).__name__} must write `bind`")

    def coordinates(self, X):
        """Rows as points for k-means: small distances between them mean that they are alike.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            Rows of `fit`.

        Returns
        -------
        points : ndarray of shape (n_rows, n_dimensions), or None
            Finite, whatever the units of the columns. None: there are none; what rows are alike
            is then told by their densities.
        """
        return None

    def box_points(self, data):
        """Encoded rows as points, such that what a kernel says of a box of points
        (`ClusterModel.log_predictive_bound_many`) holds for the rows in it: samplers may visit
        them tile by tile (`_tiles`) and pass over the clusters that are far away.

        Parameters
        ----------
        data : dict
            From `encode` or `encode_new`.

        Returns
        -------
        points : ndarray of shape (n_rows, n_dimensions), or None
            Finite. None: kernels have no bounds, or none of use with these rows.
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
        """Return all hyperparameters in one vector, as the kernel's `set_hyperparameters` takes
        them: ndarray of shape (n_hyper,)."""
        values = [np.ravel(getattr(self, name)) for name in self.hyperparameters]
        return np.concatenate([np.empty(0), *values])

    def hyper_names(self):
        """The name of each number of `flat_hyperparameters`, as kernels declare them: tuple."""
        return tuple(
            name for name in self.hyperparameters for _ in range(np.size(getattr(self, name)))
        )

    def learned_values(self, flat):
        """Return those of such a vector that are learned, by name, in the shape that they have
        here: dict of str to float or ndarray."""
        values, first = {}, 0
        for name in self.hyperparameters:
            shape = np.shape(getattr(self, name))
            stop = first + math.prod(shape)
            if name in self.learned:
                values[name] = np.reshape(flat[first:stop], shape) if shape else float(flat[first])
            first = stop
        return values

    def at(self, values):
        """This likelihood, with all that `resolve` has learnt from the data, at other values of
        some hyperparameters.

        Parameters
        ----------
        values : dict of str to float or ndarray

        Returns
        -------
        likelihood : Likelihood
        """
        other = copy.copy(self)
        for name, value in values.items():
            if name not in self.hyperparameters:
                raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")
            setattr(other, name, value)
        return other

    def without_learning(self):
        """This likelihood, with hyperparameters that are learned at the values they have here."""
        other = copy.copy(self)
        other._hyperpriors = {}
        return other

    def log_hyperprior(self, values):
        """log density of the hyperpriors, of those among `values` (as for `at`) that are learned;
        0 if none is."""
        priors = self.learned_priors.items()
        return float(sum(np.sum(prior.log_density(values[name])) for name, prior in priors))

    def draw_hyperparameters(self, rng):
        """Draw those that are learned from their hyperpriors: dict of str to float or ndarray, in
        the shape that they have here."""
        values = {}
        for name, prior in self.learned_priors.items():
            shape = np.shape(getattr(self, name))
            draw = prior.draw(rng, shape)
            values[name] = draw if shape else float(draw)
        return values

    # Scale: what a likelihood with the capability "instantiated" writes besides. Its samplers see
    # the rows in blocks, maybe on several machines, and copy no more than a block at a time.

    def summarise(self, X):
        """Tell what `resolve` needs to know of a block of rows, as a dict of arrays.

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

    def condense(self, X):
        """Rows in a form that `parametric`, `encode` and `log_constants` take as well, and faster:
        kept in memory in place of the rows.

        Parameters
        ----------
        X : array of shape (n_rows, n_features)
            A block of rows.

        Returns
        -------
        rows : ndarray of shape (n_rows, n_numbers), or None
            None: X is as good.
        """
        return None

    def log_constants(self, X):
        """Terms of log p(x) that depend on neither the cluster nor the hyperparameters, as the
        kernel's `log_constants`: ndarray of shape (n_rows,)."""
        return np.zeros(X.shape[0])

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

    def cluster_params(self, stats):
        """Posterior means of the parameters of clusters.

        Parameters
        ----------
        stats : ndarray of shape (n_clusters, n_stats)
            Their statistics (`ClusterModel.dump`).

        Returns
        -------
        params : dict of str to ndarray, first axis n_clusters
        """
        raise NotImplementedError(f"{type(self).__name__} must write `cluster_params`")

    # A likelihood whose rows are points of a space, with a density on it, overrides this with a
    # method `centres(self, stats)`: where each cluster's density is highest, (n_clusters,
    # n_features). `point_estimate="peaks"` needs it, and is "vi" elsewhere.
    centres = None

    # A likelihood that can generate rows overrides this with a method
    # `draw(self, stats, rng)`: a row of data from the posterior predictive of each cluster.
    draw = None

    # A likelihood of rows of real numbers whose clusters are normal, or Student, in every column
    # overrides this with a method `column_posterior(self, stats, column)`: what is known of the
    # mean and the variance of each cluster there, as arrays `mean`, `mean_precision`, `df` and
    # `scale`, and a number `rest`. The variance is v + rest, v ~ InvGamma(shape=df / 2,
    # rate=scale / 2), and the cluster's mean given v ~ N(mean, v / mean_precision).
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
        raise NotImplementedError(f"{cls.__name__} must write `_examples`")

    def _copy(self, **resolved):
        """This object with some parameters replaced by their resolved values."""
        return type(self)(**{**self.get_params(deep=False), **resolved})

    def _learn_under(self, defaults):
        """Priors of learned hyperparameters, with the families of the parameter `hyperpriors`.

        Parameters
        ----------
        defaults : dict of str to hyperprior
            Of each hyperparameter that is learned. A given family takes the place of the
            default's, with the same lower limit and unit.

        Raises
        ------
        ValueError
            Naming an entry of `hyperpriors` that is not possible.
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
        """Raise a ValueError that names the first column of X where `bad` holds and a value."""
        check_columns(X, bad, f"{type(self).__name__} needs {what}")


def bounds(n_max):
    """Tell a kernel's bound and how far tables go, from what `Likelihood.tables` is given.

    Parameters
    ----------
    n_max : int or None

    Returns
    -------
    n_max, n_tabled : int
        Most items that a cluster may hold, and the last number of items in a table of functions
        of that number.
    """
    return (UNBOUNDED, TABLED) if n_max is None else (n_max, n_max)


def read_only(shared):
    """Return what kernels share with its arrays, also those in tuples, as views that nobody can
    write to."""
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
    """Give a kernel the hyperparameters of a likelihood."""
    model.set_hyperparameters(likelihood.flat_hyperparameters())
