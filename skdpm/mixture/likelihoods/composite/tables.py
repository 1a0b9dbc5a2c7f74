# SPDX-License-Identifier: BSD-3-Clause
"""Tables in parts: which columns a part of a `Product` has, and how it reads them."""

import copy
from contextlib import contextmanager
from functools import partial

import numpy as np

from skdpm._tables import NUMBERS, Table, as_table, called, listed
from skdpm._validation import ColumnError, given_shape, is_dask
from skdpm.mixture.likelihoods.composite.derived import relations_among
from skdpm.mixture.likelihoods.composite.discrete import ENOUGH_ROWS

# Advice in errors about strings.
CATEGORIES = "; use Categorical for columns of categories, alone or as a part of Product"


class JoinedTables:
    """The role of tables of a `Product`. Errors of parts are about the columns of X."""

    _relations = ()  # of columns in no part

    def for_columns(self, X):
        table = as_table(X, self.reads_numbers)
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
        other._known = None  # of other parts
        rest = np.setdiff1d(np.arange(shape[1]), np.concatenate(positions))
        other._relations = _relations(X, rest, other._bound())
        return other

    def keeping_columns(self):
        if not hasattr(self, "_positions"):
            return self  # X has no columns: scikit-learn raises the error
        return self._with(lambda _, likelihood: likelihood.keeping_columns())

    def read(self, table):
        X = np.zeros(table.shape)
        for _, likelihood, positions in self._bound():
            read = likelihood.read or partial(Table.numbers, advice=CATEGORIES)
            X[:, positions] = read(table.take(positions))
        for d in self.rebuilds:
            column = table.column(d, reads_numbers=True)
            known = column.values if column.kind in NUMBERS else np.inf  # of no use, but there
            X[:, d] = np.where(column.gaps, np.nan, known)
        return X

    @property
    def rebuilds(self):
        """Positions of the columns in no part that `rebuilt` can fill: list of int."""
        return [int(relation.columns[0]) for relation in self._relations]

    def rebuilt(self, X):
        if self._relations and np.isnan(X).any():
            X = np.array(X, dtype=np.float64)
            for relation in self._relations:
                relation.fill(X)
        return X

    def decode(self, X):
        out = [None] * X.shape[1]
        for _, likelihood, positions in self._bound():
            for d, column in zip(positions, likelihood.decode(X[:, positions]), strict=True):
                out[d] = column
        return out

    def _on(self, X):
        """This likelihood with known positions of columns."""
        return self if hasattr(self, "_positions") else self.for_columns(X)

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
                likelihood.check_entries(X[:, as_slice(positions)], gaps)

    def says_nothing(self, n_features):
        sizes = list(map(len, self._positions))
        return len(sizes) == 1 and self.parts[0][1].says_nothing(sizes[0])


def positions_of(columns, n_features, names, X, who):
    """Positions of `columns` chosen as in `Product`: ndarray of intp. `names` are those of the
    columns of X, or None; X is the argument of callables. Messages begin with `who`."""

    def position(key):
        if isinstance(key, str):
            key = str(key)  # not np.str_, for messages
            if names is None:
                raise ValueError(
                    f"{who} names the column {key!r}, but X has no column names; "
                    "use positions, or pass X as a data frame"
                )
            if key not in names:
                known = listed(range(n_features), names)
                raise ValueError(f"{who}: X has no column {key!r}; it has {known}")
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


def _relations(X, rest, parts):
    """How numbers of which no part consists follow from those of parts: list of `Relation`."""
    table = None if is_dask(X) else as_table(X, numbers=True)
    if table is None or not (rest := [d for d in rest if table.column(d).kind in NUMBERS]):
        return []
    others = [d for _, part, at in parts if part.read is None for d in at]
    others = [d for d in others if table.column(d).kind in NUMBERS]
    some = slice(None, None, -(-table.shape[0] // ENOUGH_ROWS) or 1)
    values = np.full((len(table.column(rest[0]).values[some]), table.shape[1]), np.nan)
    for d in (*rest, *others):
        values[:, d] = table.column(d).values[some]
    return relations_among(values, rest, others)


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


def as_slice(positions):
    """Consecutive positions as a slice, which avoids a copy."""
    first, n = int(positions[0]), len(positions)
    return slice(first, first + n) if (np.diff(positions) == 1).all() else positions
