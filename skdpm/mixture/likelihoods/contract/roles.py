# SPDX-License-Identifier: BSD-3-Clause
"""Roles of a likelihood: what it may have besides its kernel. Here is what it does without them.

A method that is None is an absent role. `composite.joined` joins roles of parts of a `Product`.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from skdpm._validation import check_real
from skdpm.hyperpriors import Hyperprior, Shifted, check_hyperprior

# What a likelihood may have beyond the densities of rows, by the method that is None without it.
# The guide (doc/guide/likelihoods.md) says what users can do with each.
ROLES = {
    "draw": "law of whole rows to draw from",
    "laws": "law of some columns given others",
    "background": "law of rows that are noise",
    "column_means": "columns with means or categories to describe",
    "column_posterior": "columns that are normal or Student in every cluster",
    "with_exposure": "means of counts that exposures multiply",
}
# One part of a `Product` is enough for these. All parts need the others.
OF_ONE_PART = frozenset({"column_posterior", "with_exposure"})


class Start(NamedTuple):
    """First value and prior of a hyperparameter that is learned, and the check of a given one."""

    first: float | np.ndarray
    prior: object
    check: Callable = partial(check_real, low=0.0)


class Learned:
    """Hyperparameters, of a resolved likelihood.

    - `hyperparameters`: tuple of str. Parameters that may be None, in the order of the kernel's
      `set_hyperparameters`. None: learned; the resolved object holds the initial values of chains.
    - `learned_priors`: dict of str to object. Priors of those that are learned, set by `resolve`:
      `Hyperprior`, `Shifted`, or another object with their methods `draw` and `log_density`.
    """

    hyperparameters = ()
    learned_priors = MappingProxyType({})

    @property
    def learned(self):
        """Names of the hyperparameters that are learned, in order: tuple of str."""
        return tuple(name for name in self.hyperparameters if name in self.learned_priors)

    def flat_hyperparameters(self):
        """All hyperparameters in one vector, as the kernel has them: (n_hyper,)."""
        values = [np.ravel(getattr(self, name)) for name in self.hyperparameters]
        return np.concatenate([np.empty(0), *values])

    def hyper_names(self):
        """Name of each number of `flat_hyperparameters`: tuple."""
        return tuple(
            name for name in self.hyperparameters for _ in range(np.size(getattr(self, name)))
        )

    def learned_values(self, flat):
        """Learned hyperparameters of such a vector, by name and in their shape: dict."""
        values, first = {}, 0
        for name in self.hyperparameters:
            shape = np.shape(getattr(self, name))
            stop = first + math.prod(shape)
            if name in self.learned_priors:
                values[name] = np.reshape(flat[first:stop], shape) if shape else float(flat[first])
            first = stop
        return values

    def at(self, values):
        """A copy with other values of some hyperparameters, a dict of str to float or ndarray."""
        other = copy.copy(self)
        for name, value in values.items():
            if name not in self.hyperparameters:
                raise ValueError(f"{type(self).__name__} has no hyperparameter {name!r}")
            setattr(other, name, value)
        return other

    def set_values(self, model, values):
        """Set the hyperparameters of a kernel, to other values of some, as for `at`."""
        if values:
            model.set_hyperparameters(self.at(values).flat_hyperparameters())

    def integrated(self, values, stats):
        """Hyperparameters for densities of new rows, in place of the `values` that a draw has
        learned: those with a law given its clusters may be integrated out."""
        return values

    def beyond(self, draws):
        """Hyperparameters of new clusters far beyond those of all draws, which are pairs of
        values and statistics: list of (log shares among new clusters, (n_draws,), values)."""
        return []

    def without_learning(self):
        """A copy with all hyperparameters fixed at their values."""
        other = copy.copy(self)
        other.learned_priors = {}
        return other

    def log_hyperprior(self, values):
        """log density of the priors of learned hyperparameters at `values`, as for `at`."""
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

    def _start(self, starts, **values):
        """A copy with these values of other parameters, and hyperparameters that are given, or
        learned from their `Start`, by name."""
        defaults = {}
        for name, start in starts.items():
            values[name] = given = getattr(self, name)
            if given is None:
                values[name], defaults[name] = start.first, start.prior
            else:
                values[name] = start.check(given, f"{type(self).__name__}.{name}")
        resolved = self._copy(**values)
        resolved.learned_priors = self._learn_under(defaults)
        return resolved

    def _learn_under(self, defaults):
        """Priors of learned hyperparameters, by name: the defaults, with the families of the
        parameter `hyperpriors`; lower limits and units stay. Entries for hyperparameters that are
        fixed have no effect. Raises ValueError for an entry that is not possible."""
        owner = f"{type(self).__name__}.hyperpriors"
        if not isinstance(self.hyperpriors, (Mapping, type(None))):
            raise ValueError(
                f"{owner} must be None or a dict from names of parameters to priors, got "
                f"{self.hyperpriors!r}"
            )
        possible = [
            name
            for name in self.hyperparameters
            if isinstance(defaults.get(name), (Hyperprior, Shifted, type(None)))
        ]
        priors = dict(defaults)
        for name, given in (self.hyperpriors or {}).items():
            if name not in possible:
                known = name in self.hyperparameters
                what = "whose prior cannot be changed" if known else "which is no hyperparameter"
                raise ValueError(
                    f"{owner} has an entry for {name!r}, {what}; possible names are "
                    f"{', '.join(possible)}"
                )
            family, default = check_hyperprior(given, f"{owner}[{name!r}]"), defaults.get(name)
            shifts = isinstance(default, Shifted)
            priors[name] = replace(default, family=family) if shifts else family
        return {name: priors[name] for name in defaults}


class Tables:
    """Columns, of which some may be left out or hold other values than numbers.

    - `read`: callable or None. Method read(table) that converts a `Table` to the numbers that all
      other methods take, an ndarray of shape (n_rows, n_features). A ValueError names column and
      value that cannot be converted. None: columns hold numbers.
    - `reads_numbers`: bool. Whether `read` converts numbers of arrays, too.
    - `text_hint`: str or None. Advice in errors about text, in place of that of the estimator.
    """

    read = None
    reads_numbers = False
    text_hint = None

    def for_columns(self, X):
        """A copy for the columns of the X of `fit`, unchecked, which can `read` such tables."""
        return self

    def for_batch(self, X):
        """Like `for_columns`, for a first batch, whose constant columns may vary later."""
        return self.for_columns(X).keeping_columns()

    def keeping_columns(self):
        """A copy whose `resolve` leaves out no column."""
        return self

    def rebuilt(self, X):
        """Checked rows with those missing entries that known ones determine."""
        return X

    def decode(self, X):
        """Undo `read`: list of (codes, categories) of each column, or None for numbers."""
        return [None] * X.shape[1]


class Blocks:
    """Rows in blocks, for the capability "instantiated". Samplers see the rows in blocks, possibly
    on several machines, and copy no more than a block at a time."""

    def suits_blocks(self, n_samples, n_features):
        """Whether `sampler="auto"` is `SubCluster`, much faster at little loss, for such rows."""
        return False

    def summarise(self, X):
        """What `resolve_summary` needs of a block of rows: dict of numbers, arrays and lists."""
        return {"rows": [X]}

    def merge_summaries(self, first, second):
        """The summary of the rows of two summaries, in this order: the sums of their values."""
        return {name: first[name] + second[name] for name in first}

    def resolve_summary(self, summary):
        """Like `resolve`, from the summary of all rows. Raises the errors of `encode`."""
        return self.resolve(np.concatenate(summary["rows"]))

    def parametric(self, X):
        """The `ParametricModel` of a block of summarised rows, made often, unchecked."""
        raise NotImplementedError(f"{type(self).__name__} must implement `parametric`")

    def condense(self, X):
        """A form of a block that other methods take faster: (n_rows, n_numbers). None: none."""
        rows = self.as_seen(X)
        return None if rows is X else rows

    def log_constants(self, X):
        """Terms of log p(x) that do not depend on the cluster, as in the kernel: (n_rows,)."""
        return np.zeros(X.shape[0])

    def sum_varying_constants(self):
        """Sum over the rows of `fit` of those `log_constants` that hyperparameters change."""
        return 0.0

    def divergences(self, params):
        """J-divergences, (n_clusters, n_clusters), of parameters of `ParametricModel`."""
        raise NotImplementedError(f"{type(self).__name__} must implement `divergences`")


class Answers:
    """What estimators say about clusters and rows. Methods take the statistics of clusters,
    (n_clusters, n_stats), as `ClusterModel.dump` returns them."""

    def cluster_params(self, stats):
        """Posterior means of the parameters of clusters: dict of str to ndarray with the first
        axis n_clusters."""
        raise NotImplementedError(f"{type(self).__name__} must implement `cluster_params`")

    # draw(self, stats, rng) draws a row from the posterior predictive of each cluster. Without it,
    # rows are drawn from `laws`.
    draw = None

    # laws(self, stats, rng=None) returns the `laws.Laws` of a row in each cluster: with the
    # parameters integrated out, or given parameters drawn from their posterior if `rng` is given.
    laws = None

    # background(self, X) returns the `background.Background` of the rows X of `fit`.
    background = None

    # column_means(self, stats, n_draws=None, rng=None) returns the `means.ColumnMeans` of the
    # clusters: posterior means, or n_draws draws from the posterior of the parameters.
    column_means = None

    # column_posterior(self, stats, column) returns the posterior of the mean and variance of each
    # cluster in a column, if it is normal or Student there: arrays `mean`, `mean_precision`, `df`
    # and `scale`, and a number `rest`. The variance is v + rest, with
    # v ~ InvGamma(shape=df / 2, rate=scale / 2), and the mean given v is
    # N(mean, v / mean_precision).
    column_posterior = None

    def draw_rows(self, stats, clusters, n_features, rng):
        """Draw a row from the posterior predictive of each of some clusters."""
        if self.draw is not None:
            return self.draw(stats[clusters], rng)
        return self.laws(stats).fill(np.full((len(clusters), n_features), np.nan), clusters, rng)

    def lacks(self, role):
        """Name of the likelihood or part that lacks one of the `ROLES`; None if it is there."""
        role = "laws" if role == "draw" and self.draw is None else role
        return type(self).__name__ if getattr(self, role) is None else None

    def scaled(self, X):
        """Rows on the scale of `column_means`, of the kind of X (ndarray or CSR array)."""
        return X

    def moments(self, params, directions):
        """Means and covariances of clusters along directions, (n_features, n_directions), from
        their `cluster_params`. A pair of None: rows have no mean."""
        if not {"means", "covariances"} <= params.keys():
            return None, None
        return project_moments(params["means"], params["covariances"], directions)

    def columns_with_means(self, params, n_features):
        """Positions of the columns that have a mean in each cluster; all if there are not two."""
        return np.arange(n_features)


def project_moments(means, covariances, directions):
    """Means and covariances along directions: matrices, variances of columns, or one variance."""
    if covariances.ndim == 1:
        covariances = np.repeat(covariances[:, None], means.shape[1], axis=1)
    if covariances.ndim == 2:
        covariances = np.einsum("kd,da,db->kab", covariances, directions, directions)
    else:
        covariances = directions.T @ covariances @ directions
    return means @ directions, covariances
