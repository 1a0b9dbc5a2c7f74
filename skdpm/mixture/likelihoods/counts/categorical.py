# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Categorical`, and its base class, shared with `Bernoulli`."""

import copy
import itertools
from functools import partial

import numpy as np

from skdpm._tables import NUMBERS, as_table, categories_of, to_codes, warn_of_new
from skdpm._validation import (
    ColumnError,
    check_bool,
    check_choice,
    check_integer,
    check_positive,
    parameters,
)
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.contract.base import (
    Likelihood,
    bounds,
    j_divergences,
    read_only,
    readable,
)
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.counts._categorical import CategoricalModel, ParametricCategorical
from skdpm.mixture.likelihoods.laws.background import shares
from skdpm.mixture.likelihoods.laws.laws import IndependentLaws, Shares, log_succession
from skdpm.mixture.likelihoods.laws.means import ColumnMeans, means_of_columns

# Categories that no row has, of each column of numbers: correlated ones have fewer clusters so.
N_EMPTY = 1
# Largest number of categories of all columns. A cluster keeps a count of each, so a column of
# identifiers could exhaust the memory.
MOST_CATEGORIES = 1_000_000

# Smallest share of a pseudo-count in its column for which quotients do not underflow.
LEAST_SHARE = 1e-300

# With its long tail, a column in which clusters do not differ can say so: under a prior that keeps
# the pseudo-count near 1, ten such columns divide the clusters of all others.
PSEUDO_COUNT_PRIOR = Gamma(0.5, 0.005)


class Levels(Likelihood):
    """Base class of `Categorical` and `Bernoulli`, for columns with a few different values.

    The categories of all columns are numbered in one sequence. A subclass sets `_fitted_missing`
    when it is resolved, and implements

    - `_sizes(n_features)`: Number of categories of each column: ndarray of shape (n_features,).
    - `_kinds(n_features)`: Position of the pseudo-count of each category in the hyperparameters.
    - `_checked(X)`: Rows as integer codes from 0, checked; NaN marks a missing entry.
    - `_of_columns(stats)`: Pseudo-counts plus counts, (n_clusters, n_categories), of each column.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    allow_nan = True
    discrete = True

    def says_nothing(self, n_features):
        return n_features < 2

    def of_column(self, column, n_features):
        """See `Likelihood`. Pseudo-counts are 1 instead of learned, unless their prior is given:
        selection says whether clusters differ in the column, and large ones would say it again."""
        unit = self._single_column(column, n_features)
        for name in self.hyperparameters:
            if getattr(self, name) is None and name not in (self.hyperpriors or {}):
                setattr(unit, name, 1.0)
        return unit

    def _numbered(self, X):
        """Numbers of categories of codes, and the first of each column (`CategoricalModel`)."""
        first = np.zeros(X.shape[1] + 1, dtype=np.int32)
        np.cumsum(self._sizes(X.shape[1]), out=first[1:])
        codes = np.empty(X.shape, dtype=np.int32)
        with np.errstate(invalid="ignore"):
            np.add(readable(X), first[:-1], out=codes, casting="unsafe")
        np.copyto(codes, first[-1], where=np.isnan(X))
        return codes, first

    def encode(self, X):
        codes, first = self._numbered(self._checked(X))
        counts = np.bincount(codes.ravel(), minlength=first[-1] + 1)
        missing = bool(counts[-1])
        usual = [a + counts[a:b].argmax() for a, b in itertools.pairwise(first)]
        # With fewer entries in the category, a row would list more numbers than it has entries.
        usual = np.where(2 * counts[usual] > len(codes), usual, -1).astype(np.int32)
        return read_only({"codes": codes, "first": first, "usual": usual, "missing": missing})

    def encode_new(self, X):
        # As if entries were missing, so that the bits of a row do not depend on other rows.
        data = self.encode(X)
        return read_only({**data, "usual": np.full_like(data["usual"], -1), "missing": True})

    def tables(self, data, n_max):
        """`kinds`, (n_levels,), position of the pseudo-count of each category; `usual`,
        (n_features,), usual category of each column, or -1, as for rows in batches, where terms of
        a cluster go over to other rows; `missing`, whether entries may be missing."""
        kinds = self._kinds(len(data["first"]) - 1).astype(np.int32)
        if self._fitted_missing:
            columns = np.split(self.flat_hyperparameters()[kinds], data["first"][1:-1])
            for d, values in enumerate(columns):
                if values.min() < LEAST_SHARE * values.sum():
                    what = " has pseudo-counts that differ too much for missing entries; use "
                    what += "pseudo-counts that differ by less than a factor of 1e300"
                    raise ColumnError(f"{type(self).__name__}: ", d, what)
        missing = data["missing"] or self._fitted_missing or n_max is None
        usual = data["usual"] if n_max is not None else np.full_like(data["usual"], -1)
        return read_only(
            {"n_max": bounds(n_max)[0], "missing": missing, "kinds": kinds, "usual": usual}
        )

    def bind(self, data, tables):
        return CategoricalModel(data, tables, self.hyper_names(), self.flat_hyperparameters())

    def parametric(self, X):
        codes, first = self._numbered(X)
        pseudo_counts = self.flat_hyperparameters()[self._kinds(X.shape[1])]
        return ParametricCategorical(codes, first, pseudo_counts)

    def divergences(self, params):
        log_probabilities = params[:, :-1]
        return j_divergences(np.exp(log_probabilities), log_probabilities)

    def laws(self, stats, rng=None):
        columns = self._of_columns(stats)
        if rng is not None:
            # Logarithms of Gamma variates, because small ones underflow.
            columns = [
                np.log(rng.gamma(column + 1.0)) + np.log(rng.random(column.shape)) / column
                for column in columns
            ]
            columns = [np.exp(column - column.max(axis=1, keepdims=True)) for column in columns]
        return IndependentLaws(
            [Shares(column / column.sum(axis=1, keepdims=True)) for column in columns]
        )

    def background(self, X):
        return shares(self._checked(X), self._sizes(X.shape[1]))

    def column_means(self, stats, n_draws=None, rng=None):
        values = means_of_columns(self, stats, n_draws, rng)
        return ColumnMeans.of_columns("share", values, coded=True)


class UnseenCategories:
    """The law of whether entries of new rows are in categories of the fit: `Likelihood.left_out`.
    `sizes` and `n_known` are the numbers of categories and of known entries of its columns."""

    left_out = constants = np.zeros(0, dtype=np.intp)  # all columns may tell clusters

    def __init__(self, sizes, n_known):
        self.sizes = sizes
        self.log_seen, self.log_unseen = log_succession(n_known)

    def log_density(self, X):
        """log probability of what is known of each row: (n_rows,)."""
        found = np.where(X >= self.sizes, self.log_unseen, self.log_seen)
        return np.where(np.isnan(X), 0.0, found).sum(axis=1)

    log_density_known = log_density

    def departs(self, X):
        """Nothing follows from other columns: (n_rows, 0)."""
        return np.zeros((len(X), 0), dtype=bool)


@parameters
class Categorical(Levels):
    """Independent categorical columns, each with a symmetric Dirichlet prior.

    X holds integer codes, or strings or pandas categories in columns of a data frame or an array
    of objects. NaN, None and `pandas.NA` mark missing entries.

    Parameters
    ----------
    concentration : float, array-like of shape (n_features,) or None, default=None
        Pseudo-count of each category, for all columns or for each. None: learned for each column.
    n_categories : int, array-like of shape (n_features,) or None, default=None
        Number of categories per column. None: that of `fit`, up to the largest code.
    handle_unknown : {"new", "missing", "error"}, default="new"
        Treatment of unknown categories of new rows. "new": a category that says nothing about the
        cluster, with the probability 1 / (n + 2) after n known entries of the column in `fit`;
        known ones share the rest. "missing": a missing entry. "error": a ValueError. In streams,
        and if `n_categories` is given, "new" is also an error.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.
    reads_numbers : bool, default=False
        Whether different numbers of rows in memory, also as strings, are categories, as with
        `likelihood="auto"`, instead of codes 0, 1, ...

    Attributes
    ----------
    categories_ : list of ndarray or None
        Categories of each column in the order of their codes; None for a column of codes. Set in
        `likelihood_` after a fit to categories.
    """

    hyperparameters = ("concentration",)

    concentration: object = None
    n_categories: object = None
    handle_unknown: str = "new"
    hyperpriors: dict | None = None
    reads_numbers: bool = False

    # (n_features,): number of known entries of `fit`. None: unknown categories are not "new".
    _n_known = None

    def for_columns(self, X):
        check_bool(self.reads_numbers, "Categorical.reads_numbers")
        table = as_table(X, self.reads_numbers)
        if table is None:
            return self
        other = copy.copy(self)
        other.categories_ = []
        for j in range(table.shape[1]):
            column, name = table.column(j, self.reads_numbers), table.called(j)
            if column.kind in ("dates", "time spans"):
                raise ValueError(
                    f"Categorical: {name} holds {column.kind}, neither codes nor categories; "
                    "convert it to strings"
                )
            is_coded = column.kind in NUMBERS and not self.reads_numbers
            other.categories_.append(None if is_coded else categories_of(column, name))
        return other

    def keeping_columns(self):
        # The next batches of a stream may contain an unknown category many times.
        other = copy.copy(self)
        other.handle_unknown = "error" if self.handle_unknown == "new" else self.handle_unknown
        return other

    def read(self, table):
        X = np.empty(table.shape)
        is_closed = self.handle_unknown == "new" and self._n_known is None
        treatment = "error" if is_closed else self.handle_unknown
        for j, categories in enumerate(self._known(table.shape[1])):
            if categories is None:
                X[:, j] = table.number(j)
            else:
                column, name = table.column(j, self.reads_numbers), table.called(j)
                X[:, j] = to_codes(column, categories, name, treatment)
        return X

    def decode(self, X):
        return [
            None if own is None else (np.nan_to_num(X[:, j], nan=-1.0).astype(np.intp), own)
            for j, own in enumerate(self._known(X.shape[1]))
        ]

    def _known(self, n_features):
        """Categories of each column; None for a column of codes."""
        return getattr(self, "categories_", None) or [None] * n_features

    @property
    def left_out(self):
        if self._n_known is None:
            return None
        return UnseenCategories(self.n_categories, self._n_known)

    def check_entries(self, X, gaps=False):
        super().check_entries(X, gaps)
        if self._n_known is not None:
            coded = [categories is None for categories in self._known(X.shape[1])]
            new = X[(X >= self.n_categories) & coded]
            if len(new):
                warn_of_new("a column of codes", f"{new[0]:g}")

    def encode_new(self, X):
        if self._n_known is not None:
            X = np.where((X >= self.n_categories) & (X == np.floor(X)), np.nan, X)
        return super().encode_new(X)

    def _seen(self, X, n_categories):
        """Check codes. Unknown ones are made missing or refused, as `handle_unknown` states."""
        with np.errstate(invalid="ignore"):
            bad = (X < 0) | ((X != np.floor(X)) & ~np.isnan(X))
            unseen = np.zeros(X.shape, bool) if n_categories is None else X >= n_categories
        self._check_columns(X, bad, "integer codes from 0")
        if not unseen.any():
            return X
        if self.handle_unknown == "missing":
            return np.where(unseen, np.nan, X)
        column = int(np.flatnonzero(unseen.any(axis=0))[0])
        value = X[np.flatnonzero(unseen[:, column])[0], column]
        raise ColumnError(
            "Categorical: ",
            column,
            f" holds the code {value:g}, but its categories are 0 to "
            f"{n_categories[column] - 1} (from `fit`, or `n_categories`); with "
            'handle_unknown="missing" it counts as a missing entry',
        )

    def summarise(self, X):
        """Largest code of each column, and whether an entry is missing."""
        treatments = ("new", "missing", "error")
        check_choice(self.handle_unknown, "Categorical.handle_unknown", treatments)
        X = self._seen(X, self._given_categories(X.shape[1]))
        return {
            "largest": np.fmax.reduce(X, axis=0, initial=0.0).astype(np.float64),
            "missing": bool(np.isnan(X).any()),
            "n_known": np.count_nonzero(~np.isnan(X), axis=0),
        }

    def merge_summaries(self, first, second):
        return {
            "largest": np.maximum(first["largest"], second["largest"]),
            "missing": first["missing"] or second["missing"],
            "n_known": first["n_known"] + second["n_known"],
        }

    def resolve_summary(self, summary):
        n_features = len(summary["largest"])
        check = partial(check_positive, n_entries=n_features)
        start = Start(np.ones(n_features), PSEUDO_COUNT_PRIOR, check)
        n_categories = self._given_categories(n_features)
        known = self._known(n_features)
        sizes = np.array([0 if own is None else max(1, len(own)) for own in known])
        if n_categories is None:
            n_categories = np.where(sizes > 0, sizes, 1.0 + summary["largest"])
        self._check_number(n_categories)
        n_categories = n_categories.astype(np.intp)
        for j in np.flatnonzero(sizes > n_categories):
            what = f" has {sizes[j]} categories, but n_categories is {n_categories[j]}"
            raise ColumnError("Categorical: ", j, what)
        resolved = self._start({"concentration": start}, n_categories=n_categories)
        resolved._fitted_missing = summary["missing"]
        is_open = self.handle_unknown == "new" and self.n_categories is None
        resolved._n_known = summary["n_known"] if is_open else None
        if hasattr(self, "categories_"):
            resolved.categories_ = known
        return resolved

    def _given_categories(self, n_features):
        """Number of categories per column by the parameter, or None."""
        if self.n_categories is None:
            return None
        if np.ndim(self.n_categories) == 0:
            n = check_integer(self.n_categories, "Categorical.n_categories", low=1)
            return np.full(n_features, n)
        n_categories = np.asarray(self.n_categories)
        are_integers = n_categories.shape == (n_features,) and n_categories.dtype.kind in "iu"
        if not are_integers or n_categories.min() < 1:
            raise ValueError(
                f"Categorical.n_categories must be an integer or {n_features} integers, one "
                f"per column of X, and at least 1 in every column; got {self.n_categories!r}"
            )
        return n_categories

    def _check_number(self, n_categories):
        n_categories = np.asarray(n_categories, dtype=np.float64)  # sums of integers may wrap
        if n_categories.sum() > MOST_CATEGORIES:
            raise ColumnError(
                "Categorical: ",
                np.argmax(n_categories),
                f" would have {n_categories.max():g} categories; all columns together may have at "
                f"most {MOST_CATEGORIES}",
            )

    def _sizes(self, n_features):
        return self.n_categories + N_EMPTY * self.reads_numbers

    def _kinds(self, n_features):
        columns = np.arange(n_features)
        kinds = columns if np.ndim(self.concentration) else 0 * columns
        return np.repeat(kinds, self._sizes(n_features))

    def _checked(self, X):
        return self._seen(X, self.n_categories)

    def parametric(self, X):
        if self.handle_unknown == "missing":
            X = self._checked(X)
        return super().parametric(X)

    def cluster_params(self, stats):
        """`probabilities`: (n_clusters, n_features, largest number of categories), 0 beyond the
        categories of a column."""
        probabilities = np.zeros((len(stats), len(self.n_categories), max(self.n_categories)))
        for d, column in enumerate(self._of_columns(stats)):
            shares = column / column.sum(axis=1, keepdims=True)
            probabilities[:, d, : self.n_categories[d]] = shares
        return {"probabilities": probabilities}

    def _of_columns(self, stats):
        ends = np.cumsum(self._sizes(n_features := len(self.n_categories)))
        counts = stats[:, 1 : 1 + ends[-1]] + self.flat_hyperparameters()[self._kinds(n_features)]
        columns = zip(np.split(counts, ends[:-1], axis=1), self.n_categories, strict=True)
        return [column[:, :n] for column, n in columns]
