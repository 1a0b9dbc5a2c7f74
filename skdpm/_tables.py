# SPDX-License-Identifier: BSD-3-Clause
"""Tables whose columns are of different types: data frames, and arrays of objects or strings.

A likelihood with `reads_tables` converts them to numbers, column by column. No library of data
frames is imported here; the methods of the given data frame are used.
"""

import contextlib
import numbers
import sys

import numpy as np
import scipy.sparse as sp

# Largest number of columns that a message names.
MOST_NAMED = 4
# Share of different entries above which a column identifies rows.
NEARLY_ALL = 0.9


def as_table(X):
    """X as a `Table`; None if it is an array of numbers, or something else."""
    if hasattr(X, "iloc") and getattr(X, "ndim", 2) == 2:
        return Table(X)
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], (list, tuple)):
        if not any(isinstance(value, str) for row in X for value in row):
            return None
        rows = np.empty((len(X), len(X[0])), dtype=object)
        try:
            for i, row in enumerate(X):
                rows[i] = row
        except ValueError:
            return None  # rows of different lengths: scikit-learn raises the error
        X = rows
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUST":
        return Table(X.astype(object) if X.dtype.kind != "O" else X)
    return None


class Table:
    """Columns of a data frame, or of an array of objects.

    Attributes
    ----------
    X : DataFrame or ndarray of objects
    names : list of str, or None
        Names of the columns, if all are strings.
    numbers : ndarray of int, or None
        Numbers of the columns in messages. None: from 0.
    """

    def __init__(self, X, numbers=None):
        self.X = X
        self.numbers = numbers
        names = list(getattr(X, "columns", [None]))
        self.names = names if all(isinstance(name, str) for name in names) else None

    @property
    def shape(self):
        """Numbers of rows and columns."""
        return self.X.shape

    def column(self, j):
        """Return column j: a Series, or an ndarray of objects."""
        return self.X.iloc[:, j] if hasattr(self.X, "iloc") else self.X[:, j]

    def take(self, positions):
        """Return the table of some columns, which keep their names and numbers in messages."""
        X = self.X.iloc[:, positions] if hasattr(self.X, "iloc") else self.X[:, positions]
        return Table(X, positions)

    def called(self, j):
        """Name of column j in messages."""
        if self.names is None and self.numbers is not None:
            j = self.numbers[j]
        return called(j, self.names)


def called(j, names=None):
    """Name of a column in messages: its number, or its name if there are names."""
    return f"column {j} of X" if names is None else f"column {names[j]!r} of X"


def listed(columns, names=None):
    """Names of columns in messages, at most `MOST_NAMED`."""
    words = [called(d, names).removesuffix(" of X") for d in columns]
    if len(words) > MOST_NAMED + 1:
        words[MOST_NAMED:] = [f"{len(words) - MOST_NAMED} others"]
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


def kind_of(column):
    """Kind of a column: "float", "integer", "bool", "category" or another word.

    Strings are also "category". The kind of a column of objects is that of its entries that are
    not missing, and "float" if all are missing.
    """
    if hasattr(column, "cat"):
        return "category"
    kind = getattr(column.dtype, "kind", "O")
    if kind in "OUST":
        values = _objects(column)
        return _kind_of_objects(values[~missing(values)])
    return {"f": "float", "i": "integer", "u": "integer", "b": "bool"}.get(kind, str(column.dtype))


def _kind_of_objects(values):
    for kind, types in (
        ("category", str),
        ("bool", (bool, np.bool_)),
        ("integer", numbers.Integral),
        ("float", numbers.Real),
    ):
        if len(values) and all(isinstance(value, types) for value in values):
            return kind
    return type(values[0]).__name__ if len(values) else "float"


def missing(values):
    """Whether entries of an array of objects are missing: None, NaN or pandas.NA."""
    pandas = sys.modules.get("pandas")
    if pandas is not None:
        return np.asarray(pandas.isna(values), dtype=bool)
    return np.array([value is None or value != value for value in values], dtype=bool)


def to_numbers(column, where):
    """A column of numbers as doubles, with NaN for missing entries.

    Parameters
    ----------
    column : Series or ndarray of objects
    where : str
        Name of the column in messages.

    Raises
    ------
    ValueError
        If it holds anything else.
    """
    kind = kind_of(column)
    if kind not in ("float", "integer", "bool"):
        what = "strings or categories" if kind == "category" else kind
        raise ValueError(
            f"{where} holds {what}, not numbers; use Categorical for columns of categories, alone "
            "or as a part of Product"
        )
    if column.dtype.kind in "OUST":
        values = _objects(column)
        gaps = missing(values)
        out = np.full(len(values), np.nan)
        out[~gaps] = values[~gaps].astype(np.float64)
        return out
    if hasattr(column, "to_numpy"):
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.asarray(column, dtype=np.float64)


def categories_of(column, where):
    """The categories of a column: those of its type, in their order, or the sorted values.

    Parameters
    ----------
    column : Series or ndarray of objects
    where : str
        Name of the column in messages.

    Returns
    -------
    categories : ndarray of objects
    """
    if hasattr(column, "cat"):
        return np.array([*column.cat.categories, None], dtype=object)[:-1]
    _, values = _factors(column)
    try:
        values = sorted(values)
    except TypeError:
        kinds = sorted({type(value).__name__ for value in values})
        raise ValueError(
            f"{where} holds values that have no order: {', '.join(kinds)}; convert them to strings"
        ) from None
    return np.array([*values, None], dtype=object)[:-1]


def to_codes(column, categories, where, handle_unknown):
    """Positions of the entries of a column among known categories, NaN for missing entries.

    Parameters
    ----------
    column : Series or ndarray of objects
    categories : ndarray of objects
        Known categories.
    where : str
        Name of the column in messages.
    handle_unknown : {"error", "missing"}
        Treatment of other values.

    Raises
    ------
    ValueError
        If a value is unknown; the message names it.
    """
    position = {category: float(c) for c, category in enumerate(categories)}
    codes, values = _factors(column)
    unknown = [value for value in values if value not in position]
    if unknown and handle_unknown == "error":
        raise ValueError(
            f"Categorical: {where} holds {unknown[0]!r}, a value that was not in `fit`; with "
            'handle_unknown="missing" it counts as a missing entry'
        )
    found = np.array([*(position.get(value, np.nan) for value in values), np.nan])
    return found[codes]


def decoded_table(X, decoded, names):
    """A table of numbers and categories.

    Parameters
    ----------
    X : ndarray of shape (n_rows, n_columns)
        Numbers.
    decoded : list of (codes, categories) or None
        Codes (-1 if missing) and categories of each column; None for a column of numbers.
    names : sequence of str, or None

    Returns
    -------
    table : DataFrame, or an ndarray of objects if columns have no names
    """
    if names is not None:
        import pandas as pd

        columns = {
            name: X[:, d]
            if decoded[d] is None
            else pd.Categorical.from_codes(decoded[d][0], categories=list(decoded[d][1]))
            for d, name in enumerate(names)
        }
        return pd.DataFrame(columns)
    out = X.astype(object)
    for d, column in enumerate(decoded):
        if column is not None:
            codes, categories = column
            out[:, d] = np.append(categories, None)[codes]
    return out


def filled_table(X, rows, filled, decoded):
    """A copy of X with its missing entries filled.

    Parameters
    ----------
    X : array-like or DataFrame of shape (n_rows, n_columns)
        As a user passed it.
    rows, filled : ndarray of shape (n_rows, n_columns)
        X as numbers, and the same with entries in place of NaN.
    decoded : list of (codes, categories) or None, or None
        `Likelihood.decode` of `filled`.

    Returns
    -------
    table : DataFrame or ndarray
    """
    table = as_table(X)
    if table is None or (decoded is None and not hasattr(X, "iloc")):
        return filled
    gaps = np.isnan(rows) & ~np.isnan(filled)
    decoded = [None] * rows.shape[1] if decoded is None else decoded
    if not hasattr(table.X, "iloc"):
        out = table.X.copy()
        for d in np.flatnonzero(gaps.any(axis=0)):
            out[gaps[:, d], d] = _values_of(filled[:, d], decoded[d])[gaps[:, d]]
        return out
    # By position, because names may be repeated.
    columns = [
        _filled_column(table.column(d), gaps[:, d], _values_of(filled[:, d], decoded[d]))
        for d in range(rows.shape[1])
    ]
    import pandas as pd

    out = pd.concat(columns, axis=1)
    out.columns = table.X.columns
    return out


def _values_of(filled, decoded):
    """Numbers, or the categories of codes."""
    if decoded is None:
        return filled
    codes, categories = decoded
    return np.append(categories, None)[codes]


def _holds(dtype, values):
    """Whether numbers are integers of a type, or any integers for objects."""
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    return ((values == np.floor(values)) & (values >= limits.min) & (values <= limits.max)).all()


def _filled_column(column, gaps, values):
    """A Series with values in some places; of the same type, unless integers of this type cannot
    hold the values."""
    if not gaps.any():
        return column
    kind, values = kind_of(column), values[gaps]
    dtype = getattr(column.dtype, "numpy_dtype", column.dtype)
    if kind == "bool":
        values = values.astype(bool)
    elif kind == "integer" and not _holds(dtype, values):
        column = column.astype(np.float64)
    elif getattr(dtype, "kind", "") == "f":
        values = values.astype(dtype)  # pandas refuses numbers of more digits
    out = column.copy()
    if hasattr(column, "cat"):
        unknown = set(values) - set(column.cat.categories)
        out = out.cat.add_categories(sorted(unknown))
    out.iloc[np.flatnonzero(gaps)] = values
    return out


def with_columns(X, columns):
    """A copy of an array or data frame with other columns: a dict from positions to values."""
    out = X.copy()
    for d, values in columns.items():
        if hasattr(out, "iloc"):
            out.isetitem(d, values)
        else:
            out[:, d] = values
    return out


def with_zeros(X, d):
    """Column d of an array or data frame, with 0 in place of missing entries."""
    if hasattr(X, "iloc"):
        column = X.iloc[:, d]
        if kind_of(column) not in ("float", "integer", "bool"):
            column = column.astype(object)
        return _filled_column(column, missing(_objects(column)), np.zeros(len(column)))
    return np.where(missing(X[:, d]), 0, X[:, d])


def take_columns(X, columns):
    """Columns of an array or data frame, by position."""
    return X.iloc[:, columns] if hasattr(X, "iloc") else X[:, columns]


def columns_of_rows(given, n_features, names, positions_of):
    """One row given by its known entries, as an array of objects or a table of shape
    (1, n_features).

    Parameters
    ----------
    given : dict, Series, array-like or DataFrame
    n_features : int
    names : ndarray of str, or None
        Names of the columns of `fit`.
    positions_of : callable
        Function of columns, `given` and a word that returns positions.
    """
    if hasattr(given, "to_dict") and getattr(given, "ndim", 0) == 1:
        given = given.to_dict()  # a Series
    if not isinstance(given, dict):
        if getattr(given, "ndim", None) == 2 or np.ndim(given) == 2:
            return given
        given = dict(enumerate(given))
    row = np.full((1, n_features), np.nan, dtype=object)
    for column, value in given.items():
        row[0, positions_of(column, given, "given")[0]] = value
    if names is None:
        return row if any(isinstance(value, str) for value in row[0]) else _objects_as_numbers(row)
    import pandas as pd

    return pd.DataFrame(row, columns=names)


def _objects_as_numbers(row):
    out = np.full(row.shape, np.nan)
    known = ~missing(row[0])
    out[0, known] = row[0, known].astype(np.float64)
    return out


def _factors(column):
    """Codes of the entries of a column, -1 if missing, and the values of the codes."""
    if hasattr(column, "factorize"):
        codes, values = column.factorize()
        return codes, list(values)
    numbered = {}
    codes = np.full(len(column), -1)
    for i in np.flatnonzero(~missing(column)):
        codes[i] = numbered.setdefault(column[i], len(numbered))
    return codes, list(numbered)


def identifies(column):
    """Whether a column has ten or more different entries, and nearly all are different."""
    codes, values = _factors(column)
    return 10 <= len(values) and len(values) > NEARLY_ALL * np.count_nonzero(codes >= 0)


def _objects(column):
    if hasattr(column, "to_numpy"):
        return column.to_numpy(dtype=object)
    return np.asarray(column, dtype=object)


# Columns of any kind of table, for displays.


def n_rows_of(X):
    """Number of rows of an array, a table or a list."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def take_rows(X, rows):
    """Rows of an array, a table or a list, by position."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]


def numeric_column(X, j):
    """Column j as doubles.

    Raises
    ------
    TypeError, ValueError
        If it does not hold numbers.
    """
    if hasattr(X, "iloc"):
        column = X.iloc[:, j].to_numpy(dtype=np.float64, na_value=np.nan)
    elif sp.issparse(X):
        column = X[:, [j]].toarray()[:, 0]
    else:
        column = np.asarray(X)[:, j]
    return np.asarray(column, dtype=np.float64)


def numeric_columns(X):
    """X as doubles, with NaN in columns that do not hold numbers."""
    if not hasattr(X, "iloc"):
        return X.toarray() if sp.issparse(X) else np.asarray(X, dtype=np.float64)
    columns = np.full(X.shape, np.nan)
    for j in range(X.shape[1]):
        # Codes of categories are numbers without a meaning.
        if X.dtypes.iloc[j].name != "category":
            with contextlib.suppress(TypeError, ValueError):
                columns[:, j] = numeric_column(X, j)
    return columns
