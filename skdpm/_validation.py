# SPDX-License-Identifier: BSD-3-Clause
"""Checks of parameters and data, with messages that name the culprit."""

import difflib
import functools
import hashlib
import importlib
import inspect
import math
import numbers
import sys
import types
import typing
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_array

from skdpm._typing import F, T

# Doubles count exactly up to here.
LARGEST_COUNT = 2.0**53

# Advice about columns that are no counts.
OTHER_LAW = 'use Gaussian for columns of other numbers: likelihood="gaussian", not "auto"'
NO_COUNTS = f"make it NaN if it means missing, or {OTHER_LAW}"

# Advice about texts in the place of rows.
WORDS_HINT = '; for texts, count words by CountVectorizer, for likelihood="multinomial"'

# Names of this package, and of what wraps methods of its estimators.
OURS = ("skdpm.", "sklearn.callback.", "sklearn.utils._set_output.")


def warn(message, category=UserWarning):
    """Warn with the line that called into this package as the origin."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(OURS):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def imported(module, who, extra):
    """Import a module that may be missing. The error says who needs it, and how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise ImportError(f"{who} needs {package}: pip install {extra}") from error


# In place of a row.
FARTHEST = -1


def named_row(index, row):
    """Code of the name of a row in the index of a data frame."""
    return repr(index[[row]].tolist()[0])


class ColumnError(ValueError):
    """An error about a column of X.

    - `before`, `after`: str. Parts of the message before and after the name of the column.
    - `name`: str, optional. Name of the column; by default its number, as "column 3 of X".
    - `row`: int, optional. Number of a row of X that is meant. It is shown if it has a name.
      `FARTHEST`: the row whose value is the farthest from the others, which `names_columns` finds.
    """

    def __init__(self, before, column, after="", name=None, row=None):
        super().__init__(before, column, after, name, row)
        self.before, self.column, self.after, self.row = before, int(column), after, row
        self.name = f"column {column} of X" if name is None else name

    def __str__(self):
        return f"{self.before}{self.name}{self.after}"

    def with_farthest(self, values, index=None):
        """The same error with the value of the column that is the farthest from the others."""
        halves = values / 2.0  # whose differences do not overflow
        row = int(np.nanargmax(np.abs(halves - np.nanmedian(halves))))
        what, mark, advice = self.after.partition("; ")
        place = row if index is None else named_row(index, row)
        after = f"{what}, such as {values[row]:.6g} in row {place}{mark}{advice}"
        return ColumnError(self.before, self.column, after, self.name)

    def named(self, names, index=None):
        """The same error with names of the column and of the row in the index; None: no names."""
        name = self.name
        if names is not None and self.column < len(names):
            name = f"column {names[self.column]!r} of X"
        what, mark, advice = self.after.partition("; ")
        if self.row not in (None, FARTHEST) and index is not None:
            what += f" in row {named_row(index, self.row)}"
        return ColumnError(self.before, self.column, f"{what}{mark}{advice}", name)


def offered_if(objection) -> Callable[[F], F]:
    """Decorate a method that some objects of its class do not have: the function `objection` of
    the object returns why it has no such method and what to do, or None.

    It is `available_if` of scikit-learn, except that the error says why the method is missing.
    """

    class Offered:
        def __init__(self, method):
            functools.update_wrapper(self, method)

        def __get__(self, instance, owner=None):
            method = self.__wrapped__
            if instance is None:
                return method
            why = objection(instance)
            if why is not None:
                raise AttributeError(f"{type(instance).__name__} has no {method.__name__}: {why}")
            return types.MethodType(method, instance)

    return cast(Any, Offered)


@typing.dataclass_transform(eq_default=False)
def parameters(cls: type[T]) -> type[T]:
    """Decorate a class whose annotated attributes are its parameters: its `__init__` stores them,
    and does nothing else, as scikit-learn asks. The signature has no types, as docstrings do.

    The class is no dataclass itself: others, such as the tokens of dask, would take an object for
    its parameters and not see that it is fitted.
    """
    bases = (getattr(cls, "_declared", object),)
    made = type(cls.__name__, bases, {"__module__": cls.__module__})
    made.__annotations__ = inspect.get_annotations(cls)
    for name in made.__annotations__.keys() & vars(cls).keys():
        setattr(made, name, vars(cls)[name])
        delattr(cls, name)  # defaults, which `help` would list again
    cls._declared = dataclass(eq=False, repr=False, match_args=False)(made)
    cls.__init__ = made.__init__
    signature = inspect.signature(cls.__init__)
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    cls.__init__.__signature__ = signature.replace(
        parameters=plain, return_annotation=signature.empty
    )
    return cls


def explains(**hints: str) -> Callable[[F], F]:
    """Decorate a method, or `__init__` and `set_params` of a class, with helpful errors for
    keywords of other libraries, each with a hint, for misspelt ones and for positional values
    that need a name. The signature does not change."""

    def decorate(method):
        if isinstance(method, type):
            method.__init__ = decorate(method.__init__)
            method.set_params = decorate(method.set_params)
            return method
        signature = inspect.signature(method)
        taken = list(signature.parameters.values())[1:]
        n_positional = sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in taken)
        names = [p.name for p in taken if p.kind is not p.VAR_KEYWORD]

        @functools.wraps(method)
        def explained(self, *args, **kwargs):
            what = type(self).__name__
            if method.__name__ != "__init__":
                what += f".{method.__name__}"
            if len(args) > n_positional and len(taken) > n_positional:
                raise TypeError(
                    f"{what} got {args[n_positional]!r} without a name: name the parameter, as in "
                    f"{what}({taken[n_positional].name}=...)"
                )
            for name in sorted(kwargs.keys() - names):
                # `set_params` takes any name, and scikit-learn checks it.
                near = difflib.get_close_matches(name, hints, 1, cutoff=0.8 if names else 1.0)
                near = near or difflib.get_close_matches(name, names, 1)
                if near:
                    error = ValueError if method.__name__ == "set_params" else TypeError
                    hint = hints.get(near[0], f"did you mean {near[0]}?")
                    raise error(f"{what} has no parameter {name!r}: {hint}")
            try:
                signature.bind(self, *args, **kwargs)
            except TypeError as error:  # Python's names the class that defines the method
                raise TypeError(f"{what}: {error}") from None
            return method(self, *args, **kwargs)

        return explained

    return decorate


def is_dask(X):
    """Whether X is a dask array or a dask data frame. Dask need not be installed."""
    return type(X).__module__.startswith("dask.array") or is_dask_frame(X)


def is_dask_frame(X):
    """Whether X is a dask data frame."""
    return type(X).__module__.startswith("dask.dataframe")


def given_shape(X):
    """What can be found, without a copy, of the shape (n_rows, n_columns) of an unchecked X."""
    shape = []
    while len(shape) < 2:
        if is_dask_frame(X):
            return (math.nan, len(X.columns))
        if hasattr(X, "shape"):
            return (*shape, *X.shape)[:2]
        if isinstance(X, str) or not hasattr(X, "__len__"):
            break
        shape.append(len(X))
        X = next(iter(X), None)
    return tuple(shape)


def fingerprint(X):
    """Shape and hash of X, equal for equal entries (of a dask array, for the same graph)."""
    if is_dask(X):
        return (X.shape, X.name)
    if sp.issparse(X) and not (X.has_canonical_format and X.data.all()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    digest = hashlib.sha256()
    for part in (X.indptr, X.indices, X.data) if sp.issparse(X) else (X,):
        # In small steps, so that X is not copied as a whole.
        step = max(1, 2**20 // max(1, math.prod(part.shape[1:])))
        for first in range(0, len(part), step):
            digest.update(np.ascontiguousarray(part[first : first + step], dtype=np.float64))
    return (X.shape, digest.hexdigest())


def check_real(value, name, *, low=-np.inf, high=np.inf, closed=False):
    """A finite float in (low, high), or [low, high) if `closed`; else a ValueError names it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise ValueError(f"{name} must be a number, got {value!r}")
    value = float(value)
    inside = (value >= low if closed else value > low) and value < high
    if not (np.isfinite(value) and inside):
        if low == -np.inf and high == np.inf:
            raise ValueError(f"{name} must be finite, got {value!r}")
        bounds = f"{'>=' if closed else '>'} {low:g}"
        if high < np.inf:
            bounds += f" and < {high:g}"
        raise ValueError(f"{name} must be finite and {bounds}, got {value!r}")
    return value


def check_share(value, name):
    """Return a float from 0 to 1. Raises ValueError that names the parameter."""
    share = check_real(value, name, low=0.0, closed=True)
    if share > 1.0:
        raise ValueError(f"{name} must be at most 1, got {share!r}")
    return share


def check_positive(value, name, n_entries):
    """A positive float, or an array of n_entries of them; else a ValueError names it."""
    if np.ndim(value) == 0:
        return check_real(value, name, low=0.0)
    vector = np.asarray(value)
    if vector.shape != (n_entries,) or vector.dtype.kind not in "iuf":
        raise ValueError(
            f"{name} must be a number or {n_entries} numbers, one per column of X; got {value!r}"
        )
    vector = vector.astype(np.float64)
    if not (np.isfinite(vector) & (vector > 0.0)).all():
        raise ValueError(f"{name} must be finite and > 0 in every column, got {value!r}")
    return vector


def check_bool(value, name):
    """Return a bool. Raises ValueError that names the parameter."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be a bool, got {value!r}")
    return bool(value)


def check_integer(value, name, *, low, high=2**31 - 1):
    """Return an integer from `low` to `high`. Raises ValueError that names the parameter."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise ValueError(f"{name} must be an integer, got {value!r}")
    value = int(value)  # messages show numbers of NumPy as plain numbers
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value!r}")
    if value > high:
        raise ValueError(f"{name} must be at most {high}, got {value!r}")
    return value


def check_choice(value, name, known):
    """Return one of the known names. Raises ValueError that lists them."""
    if not isinstance(value, str) or value not in known:
        hint = closest(str(value), known)
        raise ValueError(f"{name} must be one of {', '.join(sorted(known))}; got {value!r}{hint}")
    return value


def closest(word, known):
    """End of an error about a word: the known one that may be meant, if there is one."""
    names = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), names, n=1)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def check_nested(params, present, hint=""):
    """Refuse to set parameters ``name__parameter`` of what is no object: a name or None.

    `params` are the arguments of `set_params`, `present` the values of the parameters that may be
    objects, and `hint` is the end of the error.
    """
    for key in params:
        name, nested, _ = key.partition("__")
        value = params.get(name, present.get(name))
        if nested and name in present and (value is None or isinstance(value, str)):
            means = "is no object" if value is None else "means an object with default parameters"
            raise ValueError(
                f"cannot set {key!r}, because {name}={value!r} {means}; pass an object as {name} "
                f"to set its parameters{hint}"
            )


def check_binary(Z, name):
    """Check a matrix of 0 and 1, which may have no columns: ndarray of bool."""
    if isinstance(Z, np.ndarray) and Z.dtype == bool and Z.ndim == 2 and len(Z):
        return Z
    Z = check_array(Z, dtype=None, ensure_min_features=0, input_name=name)
    if not np.isin(Z, (0, 1)).all():
        raise ValueError(f"{name} must be binary, 0 or 1")
    return Z.astype(bool)


def check_finite(X, *, allow_nan, hint=""):
    """Raise a ColumnError for the first column of X with infinity, or with NaN unless allowed.
    `hint` is advice about NaN."""
    entries = X.data if sp.issparse(X) else X
    for what, is_bad in (("infinity", np.isinf), ("NaN", np.isnan)):
        if what == "NaN" and allow_nan:
            continue
        bad = is_bad(entries)
        if bad.any():
            columns = X.indices[bad] if sp.issparse(X) else np.flatnonzero(bad.any(axis=0))
            remedy = hint if what == "NaN" else "replace it by a number, or drop the row"
            more = f"; {remedy}" if remedy else ""
            raise ColumnError(f"Input contains {what} in ", columns.min(), more)


def has_nan(X):
    """Whether X, in memory and not checked yet, has NaN or another mark of a missing entry."""
    if hasattr(X, "isna"):  # a table
        return bool(np.any(X.isna()))
    entries = X.tocsr().data if sp.issparse(X) else X
    if not hasattr(entries, "dtype"):
        try:
            entries = np.asarray(entries, dtype=np.float64)
        except (TypeError, ValueError):
            return False  # the checks of X raise an error
    return entries.dtype.kind == "f" and bool(np.isnan(entries).any())


def check_columns(X, bad, what, hint=""):
    """Raise a ColumnError for the first column with a bad entry, which the message shows. `what`
    begins the message: who needs what. `hint` ends it: what to do. Of a COO matrix `bad` is about
    the entries that it lists."""
    if bad.any() and sp.issparse(X):
        at = np.flatnonzero(bad)
        at = at[np.argmin(X.col[at])]
        raise _bad_entry(what, X.col[at], X.data[at], hint)
    if bad.any():
        column = int(np.flatnonzero(bad.any(axis=0))[0])
        row = int(np.flatnonzero(bad[:, column])[0])
        raise _bad_entry(what, column, X[row, column], hint, row)


def _bad_entry(what, column, value, hint, row=None):
    after = f" holds {value:g}{'; ' if hint else ''}{hint}"
    return ColumnError(f"{what}; ", column, after, row=row)


def check_counts(X, name, *, allow_nan=False, hint=""):
    """Raise a ColumnError unless X holds nonnegative integer counts that doubles hold exactly.
    `name` is the class that needs counts; `hint` is advice about entries that are no counts."""
    values = X.data if sp.issparse(X) else X
    with np.errstate(invalid="ignore"):
        bad = ~((values >= 0) & (values < np.inf) & (values == np.floor(values)))
        large = values > LARGEST_COUNT
    if allow_nan:
        bad &= ~np.isnan(values)
    for entries, what, remedy in (
        (bad, f"nonnegative integer counts{' (NaN = missing)' if allow_nan else ''}", hint),
        (large, f"counts of at most 2**53 = {LARGEST_COUNT:.0f}", "scale the column down"),
    ):
        check_columns(X, entries, f"{name} needs {what}", remedy)


def check_count_sums(sums, name, what):
    """Raise ValueError if a sum of counts exceeds what doubles count exactly. `what` is "row",
    "column" or words that precede a column."""
    large = np.flatnonzero(~(sums <= LARGEST_COUNT))
    if large.size:
        before = f"{name}: the counts in {what.removesuffix('column')}"
        after = " add up to more than 2**53, which doubles cannot count exactly; scale them down"
        if what.endswith("column"):
            raise ColumnError(before, large[0], after)
        raise ValueError(f"{before} {large[0]} of X{after}")


def refuse_nan(values, what):
    """Raise FloatingPointError if a density or a ratio of densities is NaN; `what` names it."""
    if np.isnan(values).any():
        raise FloatingPointError(f"{what} is NaN")
