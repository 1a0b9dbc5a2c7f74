# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Product`, for tables of columns of different kinds."""

import copy
from contextlib import contextmanager

import numpy as np
from sklearn.base import clone
from sklearn.utils.metaestimators import _BaseComposition

from skdpm._tables import as_table, called
from skdpm._validation import ColumnError, check_bool, given_shape
from skdpm.mixture.likelihoods.composite._product import ParametricProduct, ProductModel
from skdpm.mixture.likelihoods.composite.joined import (
    JoinedHyperparameters,
    LeftOut,
    OfParts,
    OfRows,
    Once,
)
from skdpm.mixture.likelihoods.composite.registry import SINGLE
from skdpm.mixture.likelihoods.composite.selection import Selection
from skdpm.mixture.likelihoods.contract.base import MOST_BOXED, Likelihood, bounds, read_only
from skdpm.mixture.likelihoods.counts.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.counts.categorical import Categorical
from skdpm.mixture.likelihoods.counts.poisson import Poisson
from skdpm.mixture.likelihoods.gaussian.gaussian import BLOCK_ENTRIES, BLOCK_ROWS, Gaussian
from skdpm.mixture.likelihoods.laws.background import JointBackground
from skdpm.mixture.likelihoods.laws.laws import JointLaws
from skdpm.mixture.likelihoods.laws.means import ColumnMeans
from skdpm.mixture.likelihoods.laws.recorded import Spread, copies_in

# Advice in errors about strings.
CATEGORIES = "; use Categorical for columns of categories, alone or as a part of Product"


class Product(JoinedHyperparameters, _BaseComposition, Likelihood):
    """Columns in parts, each part with its likelihood.

    >>> import pandas as pd
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Categorical, Gaussian, Poisson, Product
    >>> X = pd.DataFrame({
    ...     "height": [1.2, 1.1, 1.3, 9.8, 9.7, 9.9],
    ...     "visits": [0, 1, 0, 40, 37, 45],
    ...     "colour": ["red", "red", None, "blue", "blue", "blue"],
    ... })
    >>> likelihood = Product([
    ...     ("size", Gaussian(covariance_type="diag"), ["height"]),
    ...     ("counts", Poisson(), ["visits"]),
    ...     ("kind", Categorical(), ["colour"]),
    ... ])
    >>> mixture = DPMixture(likelihood=likelihood, n_draws=50, n_chains=1, random_state=0).fit(X)
    >>> mixture.labels_
    array([0, 0, 0, 1, 1, 1])
    >>> list(mixture.cluster_params_)
    ['size', 'counts', 'kind']

    The parts of a row are independent given its cluster: their log densities add up. Columns in no
    part are not modelled.

    Parameters
    ----------
    parts : list of tuples (name, likelihood, columns)
        Parts: a name, for parameters ``name__parameter``; a likelihood or its name, not
        `Relational`; and columns as in `sklearn.compose.ColumnTransformer`.
    select : bool, default=False
        Whether to learn which columns are in the clustering (`relevance_` of the estimator). The
        others have one law for all rows.

    Attributes
    ----------
    hyperparameters : tuple of str
        Names ``name__parameter`` for all parts, also used for draws.

    References
    ----------
    Tadesse, Sha & Vannucci (2005), Bayesian variable selection in clustering high-dimensional
    data.
    """

    # What is computed once, after `resolve`, and the units of selection.
    _known = None
    _selected = _places = None

    allow_nan = OfParts(any)
    constants_vary = OfParts(any)
    draws_gaps = OfParts(any)
    exposed = OfParts(any)
    fitted_gaps = OfParts(any)
    weighs_rows = OfParts(any)
    discrete = OfParts(all)

    log_constants = OfRows(sum)
    n_drawn = OfRows(sum)
    needs_laws = OfRows(np.logical_or.reduce)
    uninformative = OfRows(np.logical_and.reduce)

    def __init__(self, parts=(), select=False):
        self.parts = parts
        self.select = select

    def __repr__(self, N_CHAR_MAX=700):
        """Python code of the whole object. That of scikit-learn shortens long lists of columns."""
        if not isinstance(self.parts, (list, tuple)):
            return super().__repr__(N_CHAR_MAX)
        parts = "".join(f"\n    {part!r}," for part in self.parts)
        select = f", select={self.select!r}" if self.select else ""
        return f"{type(self).__name__}([{parts}\n]{select})"

    # Nested parameters.

    @property
    def _named(self):
        """Names and likelihoods of the parts, in the form of `_BaseComposition`."""
        try:
            return [(name, likelihood) for name, likelihood, _ in self.parts]
        except (TypeError, ValueError):
            return self.parts

    @_named.setter
    def _named(self, named):
        self.parts = [
            (name, likelihood, columns)
            for (name, likelihood), (_, _, columns) in zip(named, self.parts, strict=True)
        ]

    def get_params(self, deep=True):
        """Get the parameters.

        Parameters
        ----------
        deep : bool, default=True
            Whether to include the parameters of the parts, ``name__parameter``.

        Returns
        -------
        params : dict
        """
        return self._get_params("_named", deep=deep)

    def set_params(self, **params):
        """Set parameters, including those of the parts, ``name__parameter``.

        Returns
        -------
        self : object
        """
        if "parts" in params:
            self.parts = params.pop("parts")  # first, because the others may belong to these
        before = self.get_params()
        for key in params:
            name, _, parameter = key.partition("__")
            if parameter and name not in params and isinstance(before.get(name), str):
                raise ValueError(
                    f"cannot set {key!r}, because {name}={before[name]!r} means an object with "
                    f"default parameters; pass an object as {name} to set its parameters"
                )
        self._set_params("_named", **params)
        return self

    def _checked_parts(self):
        """Check the parts, and replace names of likelihoods by objects: list of tuples."""
        parts = self.parts
        check_bool(self.select, "Product.select")
        if not isinstance(parts, (list, tuple)) or len(parts) == 0:
            raise ValueError(
                f"Product.parts must be a list of (name, likelihood, columns), got {parts!r}"
            )
        checked = []
        for part in parts:
            try:
                name, likelihood, columns = part
            except (TypeError, ValueError):
                raise ValueError(
                    f"a part of Product must be (name, likelihood, columns), got {part!r}"
                ) from None
            if not isinstance(name, str):
                raise ValueError(f"the name of a part of Product must be a str, got {name!r}")
            if isinstance(likelihood, str) and likelihood in SINGLE:
                likelihood = SINGLE[likelihood]()
            if not isinstance(likelihood, Likelihood):
                raise ValueError(
                    f"Product: part {name!r} must be a Likelihood object or one of "
                    f"{', '.join(sorted(SINGLE))}; got {likelihood!r}"
                )
            if isinstance(likelihood, Product):
                raise ValueError(
                    f"Product: part {name!r} is a Product; put its parts into this one"
                )
            if "product" not in likelihood.capabilities:
                raise ValueError(
                    f"Product: part {name!r} cannot be {type(likelihood).__name__}, because its "
                    "clusters are not independent given the partition"
                )
            checked.append((name, likelihood, columns))
        self._validate_names([name for name, _, _ in checked])
        return checked

    def _with_objects(self):
        """The parts, checked unless their columns are known."""
        return self.parts if hasattr(self, "_positions") else self._checked_parts()

    def _likelihoods(self):
        """Likelihoods of the parts. Empty if parts are invalid, which tags must not raise for."""
        try:
            return [likelihood for _, likelihood, _ in self._with_objects()]
        except ValueError:
            return []

    @Once
    def capabilities(self):
        of_parts = [likelihood.capabilities for likelihood in self._likelihoods()]
        if self.select:
            of_parts.append(Likelihood.capabilities)  # rows are not independent given parameters
        return frozenset.intersection(*of_parts) if of_parts else Likelihood.capabilities

    def suits_blocks(self, n_samples, n_features):
        """Whether X is large and has several parts, of which none draws weights of rows."""
        large = n_samples >= BLOCK_ROWS and n_samples * n_features >= BLOCK_ENTRIES
        return large and len(self._likelihoods()) > 1 and not self.weighs_rows

    # Columns.

    def for_columns(self, X):
        table = as_table(X)
        shape = given_shape(X)
        if len(shape) < 2:
            return self  # scikit-learn raises the error
        names, given = (None, X) if table is None else (table.names, table.X)
        parts, positions = [], []
        for name, likelihood, columns in self._checked_parts():
            chosen = positions_of(columns, shape[1], names, given, f"Product: part {name!r}")
            if len(chosen) == 0:
                continue
            if likelihood.read is not None and table is not None:
                likelihood = likelihood.for_columns(table.take(chosen))
            parts.append((name, likelihood, columns))
            positions.append(chosen)
        _check_positions([name for name, _, _ in parts], positions, names)
        other = copy.copy(self)
        other.parts = parts
        other._positions, other._columns, other._n_features = positions, names, shape[1]
        return SelectingProduct.of(other) if self.select else other

    def keeping_columns(self):
        if not hasattr(self, "_positions"):
            return self  # X has no columns: scikit-learn raises the error
        return self._with(lambda _, likelihood: likelihood.keeping_columns())

    def doubtful(self, X):
        return {
            positions[d]: what
            for _, likelihood, positions in self._bound()
            for d, what in likelihood.doubtful(X[:, positions]).items()
            if d is not None  # rows may differ in other parts
        }

    @property
    def left_out(self):
        parts = [
            (positions, likelihood.left_out)
            for _, likelihood, positions in self._bound()
            if likelihood.left_out is not None
        ]
        return LeftOut(parts) if parts else None

    def independent(self, X, completion=None):
        """The columns of the parts, side by side."""
        parts = []
        for _, likelihood, part in self._split(X):
            values = None
            n_drawn = 0 if completion is None else likelihood.n_drawn(part)
            if n_drawn > 0:
                values, completion = completion[:n_drawn], completion[n_drawn:]
            parts.append(likelihood.independent(part, values))
        return np.hstack(parts)

    def read(self, table):
        X = np.zeros(table.shape)
        for _, likelihood, positions in self._bound():
            columns = table.take(positions)
            if likelihood.read is not None:
                X[:, positions] = likelihood.read(columns)
            else:
                X[:, positions] = columns.numbers(CATEGORIES)
        return X

    def decode(self, X):
        out = [None] * X.shape[1]
        for _, likelihood, positions in self._bound():
            decoded = likelihood.decode(X[:, positions])
            if decoded is not None:
                for j, d in enumerate(positions):
                    out[d] = decoded[j]
        return out if any(column is not None for column in out) else None

    def _on(self, X):
        """This likelihood with known positions of columns."""
        return self if hasattr(self, "_positions") else self.for_columns(X)

    def columns_of_parts(self):
        """Positions of the columns of each part, by its name: dict. Only after a fit."""
        return {name: positions for name, _, positions in self._grouped()}

    def _grouped(self):
        """Name, likelihood and positions of the columns of each part of the user."""
        return self._bound()

    def _bound(self):
        """Name, likelihood and positions of the columns of each part."""
        return [
            (name, likelihood, positions)
            for (name, likelihood, _), positions in zip(self.parts, self._positions, strict=True)
        ]

    def with_exposure(self):
        """The exposures go to the parts that take them."""
        exposed = {
            name: likelihood.with_exposure() for name, likelihood, _ in self._with_objects()
        }
        if self.select or not any(exposed.values()):
            return None
        return self._with(lambda name, likelihood: exposed[name] or likelihood)

    def _columns_of(self, likelihood, positions):
        """Positions of the columns of a part, and of the exposures if it takes them."""
        return np.append(positions, self._n_features) if likelihood.exposed else positions

    def _split(self, X):
        """Names and likelihoods of the parts, with their columns of the rows X."""
        return [
            (name, likelihood, X[:, _as_slice(self._columns_of(likelihood, positions))])
            for name, likelihood, positions in self._bound()
        ]

    def _part_of(self, name):
        """Name of the user's part that has the part with this name."""
        return name

    @contextmanager
    def _errors_of(self, name):
        """Translate columns in errors of a part to columns of X."""
        part = f" (part {self._part_of(name)!r})"
        try:
            yield
        except ColumnError as error:
            column = dict((own, at) for own, _, at in self._bound())[name][error.column]
            what, mark, advice = error.after.partition("; ")
            after = f"{what}{part}{mark}{advice}"
            name = called(column, self._columns)
            raise ColumnError(error.before, column, after, name, error.row) from None
        except ValueError as error:
            raise ValueError(f"{error}{part}") from None

    def check_entries(self, X, gaps=False):
        bound = self._on(X)
        for name, likelihood, positions in bound._bound():
            with bound._errors_of(name):
                likelihood.check_entries(X[:, _as_slice(positions)], gaps)

    def says_nothing(self, n_features):
        sizes = list(map(len, self._positions))
        return len(sizes) == 1 and self.parts[0][1].says_nothing(sizes[0])

    # Summaries, for `resolve`.

    def summarise(self, X):
        """Summaries of the parts, and the first row."""
        bound = self._on(X)
        summaries = []
        for name, likelihood, part in bound._split(X):
            with bound._errors_of(name):
                summaries.append(likelihood.summarise(part))
        return {"parts": summaries, "row": np.array(X[:1], dtype=np.float64)}

    def merge_summaries(self, first, second):
        merged = [
            likelihood.merge_summaries(a, b)
            for (_, likelihood, _), a, b in zip(
                self._on(first["row"]).parts, first["parts"], second["parts"], strict=True
            )
        ]
        return {"parts": merged, "row": first["row"] if len(first["row"]) else second["row"]}

    def resolve(self, X):
        bound = self._on(X)
        return super().resolve(X) if type(bound) is type(self) else bound.resolve(X)

    def resolve_summary(self, summary):
        row = summary["row"]
        bound, summaries = self._on(row), iter(summary["parts"])

        def resolve(name, likelihood):
            with bound._errors_of(name):
                return likelihood.resolve_summary(next(summaries))

        resolved = bound._with(resolve)
        resolved._known, resolved._n_stats, resolved._n_params = {}, [], []
        for _, likelihood, part in resolved._split(row):
            data = likelihood.encode(part)
            resolved._n_stats.append(likelihood.bind(data, likelihood.tables(data, 1)).n_stats)
            if "instantiated" in likelihood.capabilities:
                resolved._n_params.append(likelihood.parametric(part).n_params)
        return resolved

    def by_columns(self, n_features):
        return [(likelihood, positions) for _, likelihood, positions in self._bound()]

    def changed_by_columns(self, change, X):
        parts = {name: part for name, _, part in self._split(X)}
        return self._with(lambda name, likelihood: change(likelihood, parts[name]))

    # Rows.

    def as_seen(self, X, first=None):
        rows = X
        if not isinstance(X, Spread):
            for (_, likelihood, part), columns in zip(
                self._split(X), self._positions, strict=True
            ):
                found = likelihood.as_seen(part, first)
                if found is not part:
                    rows = np.array(X, dtype=np.float64) if rows is X else rows
                    rows[:, columns] = found
        return rows if rows is X else rows.view(Spread)

    def copies(self, X, classes=None):
        parts = [(likelihood, part) for _, likelihood, part in self._split(X)]
        if all(likelihood.copies(part, classes) is None for likelihood, part in parts):
            return None
        return copies_in(np.hstack([part for _, part in parts]), classes)

    def encode(self, X):
        return self._encode(X, lambda likelihood, part: likelihood.encode(part))

    def encode_new(self, X):
        return self._encode(X, lambda likelihood, part: likelihood.encode_new(part))

    def _encode(self, X, encode):
        parts, points = [], []
        bounded = True
        for name, likelihood, columns in self._split(X):
            with self._errors_of(name):
                parts.append(encode(likelihood, columns))
            found = likelihood.box_points(parts[-1])
            points.append(np.empty((len(X), 0)) if found is None else found)
            # Probabilities are bounded by 1 without a box. Densities are not.
            bounded = bounded and (found is not None or likelihood.discrete)
        n_coordinates = tuple(part.shape[1] for part in points)
        bounded = bounded and 0 < sum(n_coordinates) <= MOST_BOXED
        return read_only(
            {
                "parts": tuple(parts),
                "points": np.ascontiguousarray(np.hstack(points)) if bounded else None,
                "n_coordinates": n_coordinates if bounded else (0,) * len(parts),
            }
        )

    def box_points(self, data):
        return data["points"]

    def tables(self, data, n_max):
        parts = tuple(
            likelihood.tables(part, n_max)
            for (_, likelihood, _), part in zip(self.parts, data["parts"], strict=True)
        )
        return read_only({"n_max": bounds(n_max)[0], "parts": parts})

    def bind(self, data, tables):
        likelihoods = self._likelihoods()
        models = [
            likelihood.bind(*part)
            for likelihood, *part in zip(likelihoods, data["parts"], tables["parts"], strict=True)
        ]
        return ProductModel(
            models,
            self.hyper_names(),
            data["n_coordinates"],
            [likelihood.discrete for likelihood in likelihoods],
            self._selected,
            self._places,
        )

    def coordinates(self, X):
        """Coordinates of the parts side by side; None if a part has none, because k-means would
        ignore it."""
        points = []
        for _, likelihood, part in self._split(X):
            points.append(likelihood.coordinates(part))
            if points[-1] is None:
                return None
        return np.hstack(points)

    def parametric(self, X):
        return ParametricProduct(
            [likelihood.parametric(part) for _, likelihood, part in self._split(X)]
        )

    def sum_varying_constants(self):
        return sum(likelihood.sum_varying_constants() for likelihood in self._likelihoods())

    def divergences(self, params):
        parts = np.split(params, np.cumsum(self._n_params)[:-1], axis=1)
        return sum(
            likelihood.divergences(part)
            for (_, likelihood, _), part in zip(self.parts, parts, strict=True)
        )

    # Clusters.

    def _split_stats(self, stats):
        """Name, likelihood, positions and statistics of clusters of each part."""
        parts = np.split(stats, np.cumsum(self._n_stats)[:-1], axis=1)
        return [(*bound, part) for bound, part in zip(self._bound(), parts, strict=True)]

    def cluster_params(self, stats):
        """Parameters of the parts: a dict of dicts, by name."""
        return {
            name: likelihood.cluster_params(part)
            for name, likelihood, _, part in self._split_stats(stats)
        }

    def moments(self, params, directions):
        means = covariances = 0.0
        known = np.zeros(len(directions), dtype=bool)
        for name, likelihood, positions in self._grouped():
            known[positions] = True
            if directions[positions].any():
                # Parts are independent given the cluster, so their terms are summed.
                mean, covariance = likelihood.moments(params[name], directions[positions])
                if mean is None:
                    return None, None
                means, covariances = means + mean, covariances + covariance
        return (None, None) if directions[~known].any() else (means, covariances)

    def columns_with_means(self, params, n_features):
        columns = [
            positions
            for name, likelihood, positions in self._grouped()
            if likelihood.moments(params[name], np.zeros((len(positions), 0)))[0] is not None
        ]
        columns = np.sort(np.concatenate(columns)) if columns else columns
        return columns if len(columns) > 1 else np.arange(n_features)

    def column_posterior(self, stats, column):
        for _, likelihood, positions, part in self._split_stats(stats):
            if column in positions and likelihood.column_posterior is not None:
                return likelihood.column_posterior(part, list(positions).index(column))
        return None

    @property
    def has_points(self):
        """Whether all parts have points and every column is in a part."""
        n_columns = sum(map(len, getattr(self, "_positions", ())))
        has_all = all(likelihood.has_points for likelihood in self._likelihoods())
        return has_all and 0 < n_columns == self._n_features

    def lacks(self, role):
        """See `Likelihood`. All parts need the role."""
        for name, likelihood, _ in self.parts if self._likelihoods() else ():
            who = likelihood.lacks(role)
            if who is not None:
                return f"{who} (part {self._part_of(name)!r})"
        return None

    def draw(self, stats, rng):
        """Rows, with NaN in columns that are in no part."""
        X = np.full((len(stats), self._n_features), np.nan)
        for _, likelihood, positions, part in self._split_stats(stats):
            X[:, positions] = likelihood.draw(part, rng)
        return X

    def laws(self, stats, rng=None):
        split = self._split_stats(stats)
        return JointLaws(
            self._n_features,
            [self._columns_of(likelihood, at) for _, likelihood, at, _ in split],
            [likelihood.laws(part, rng) for _, likelihood, _, part in split],
        )

    def background(self, X):
        return JointBackground(
            self._n_features,
            [(at, likelihood.background(X[:, at])) for _, likelihood, at in self._bound()],
        )

    def column_means(self, stats, n_draws=None, rng=None):
        split = self._split_stats(stats)
        return ColumnMeans.joined(
            [likelihood.column_means(part, n_draws, rng) for _, likelihood, _, part in split],
            [positions for _, _, positions, _ in split],
        )

    def scaled(self, X):
        out = X
        for (_, likelihood, part), positions in zip(self._split(X), self._positions, strict=True):
            scaled = likelihood.scaled(part)
            if scaled is not part:
                out = np.array(X, dtype=np.float64) if out is X else out
                out[:, positions] = scaled
        return out

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = np.column_stack(
            [
                rng.standard_normal((12, 2)) * [1.0, 2.0],
                rng.integers(0, [2, 3], size=(12, 2)),
                rng.poisson([0.7, 5.0], size=(12, 2)),
                rng.random((12, 2)) < 0.4,
            ]
        ).astype(np.float64)
        parts = {
            "num": Gaussian(),
            "cat": Categorical(),
            "counts": Poisson(),
            "flags": Bernoulli(),
        }
        columns = {"num": [1, 0], "cat": slice(2, 4), "counts": [4, 5], "flags": [7]}
        yield cls([(name, part, columns[name]) for name, part in parts.items()]), X
        parts["num"] = Gaussian(0.5, 0.3, 0.5, [1.0, 2.0], covariance_type="diag")
        yield cls([(name, parts[name], columns[name]) for name in ("counts", "num")]), X
        Y = X.copy()
        Y[rng.random(Y.shape) < 0.3] = np.nan
        parts["num"] = Gaussian(covariance_type="diag")
        parts["cat"] = Categorical(concentration=0.7, n_categories=4)
        yield cls([(name, part, columns[name]) for name, part in parts.items()]), Y


class SelectingProduct(Selection, Product):
    """A `Product` with select=True for known columns."""

    def __sklearn_clone__(self):
        return Product([(name, clone(unit), columns) for name, unit, columns in self.parts], True)


def _as_slice(positions):
    """Consecutive positions as a slice, which avoids a copy."""
    first, n = int(positions[0]), len(positions)
    return slice(first, first + n) if (np.diff(positions) == 1).all() else positions


def positions_of(columns, n_features, names, X, who):
    """Positions of chosen columns: ndarray of intp.

    Parameters
    ----------
    columns : int, str, slice, list or callable
        Columns as in `Product`.
    n_features : int
    names : list of str, or None
        Names of the columns of X.
    X : array-like
        Argument for callables.
    who : str
        Begin of messages: who chose the columns.
    """

    def position(key):
        if isinstance(key, str):
            if names is None:
                raise ValueError(
                    f"{who} names the column {key!r}, but X has no column names; "
                    "use positions, or pass X as a data frame"
                )
            if key not in names:
                raise ValueError(f"{who}: X has no column {key!r}")
            return names.index(key)
        if isinstance(key, (bool, np.bool_)) or not isinstance(key, (int, np.integer)):
            raise ValueError(f"{who}: a column must be an integer or a name, got {key!r}")
        if not -n_features <= key < n_features:
            raise ValueError(f"{who}: X has no column {key}; it has {n_features} columns")
        return int(key) % n_features

    if callable(columns):
        columns = columns(X)
    if isinstance(columns, slice):
        start, stop = columns.start, columns.stop
        if isinstance(start, str) or isinstance(stop, str):
            start = None if start is None else position(start)
            stop = None if stop is None else position(stop) + 1  # as pandas and scikit-learn do
            columns = slice(start, stop, columns.step)
        return np.arange(n_features)[columns]
    if isinstance(columns, str) or np.ndim(columns) == 0:
        columns = [columns]
    columns = list(columns)
    if columns and all(isinstance(key, (bool, np.bool_)) for key in columns):
        if len(columns) != n_features:
            raise ValueError(
                f"{who}: the mask has {len(columns)} entries, but X has {n_features} columns"
            )
        return np.flatnonzero(columns)
    return np.array([position(key) for key in columns], dtype=np.intp)


def _check_positions(parts, positions, names):
    """Raise ValueError if no part has a column, or a column is in two parts."""
    if not parts:
        raise ValueError("Product: no part has a column of X; check the columns of its parts")
    owner = {}
    for name, columns in zip(parts, positions, strict=True):
        for d in columns:
            if d in owner:
                again = "twice" if owner[d] == name else f"and in part {owner[d]!r}"
                raise ValueError(
                    f"Product: {called(d, names)} is in part {name!r} {again}; a column may be in "
                    "one part only"
                )
            owner[d] = name
