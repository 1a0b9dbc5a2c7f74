# SPDX-License-Identifier: BSD-3-Clause
"""Tables whose columns are of different types: data frames, and arrays of objects or strings.

`Table` reads the columns of any data frame that narwhals knows (pandas, polars, pyarrow, ...), and
of arrays of objects. What other code sees of a column, `Column`, does not depend on its container.
"""

import contextlib
import copy
import datetime
import decimal
import functools
import numbers
import re
from dataclasses import dataclass
from typing import NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
import scipy.sparse as sp

from skdpm._validation import is_dask_frame, warn

# Largest number of columns that a message names.
MOST_NAMED = 3
# Code that begins lines for frames of libraries other than pandas and polars, also once more.
TO_PANDAS = "X = X.to_pandas() if hasattr(X, 'to_pandas') else X; "
# The same for arrays, and for frames whose columns have other names than strings.
TO_FRAME = "X = pd.DataFrame(X).set_axis([str(d) for d in range(X.shape[1])], axis=1); "
# Share of different entries above which a column identifies rows.
NEARLY_ALL = 0.9
# Kinds of columns whose values are doubles, and those of arrays by their dtype.
NUMBERS = ("float", "integer", "bool")
KINDS_OF_ARRAYS = dict(f="float", i="integer", u="integer", b="bool", M="dates", m="time spans")
# Largest rounding error of numbers on a grid, as a share of its step, and of numbers that are
# categories, of the least distance of two.
ROUND_OFF = 0.01
# Advice about numbers that are new categories.
OF_NUMBERS = '. likelihood="auto" took this column as categories: if it holds measurements, use '
OF_NUMBERS += 'likelihood="gaussian"'
# Kinds of objects, in the order of search.
KINDS_OF_OBJECTS = (
    ("category", str),
    ("bool", (bool, np.bool_)),
    ("integer", numbers.Integral),
    ("float", (numbers.Real, decimal.Decimal)),
    ("dates", (datetime.date, np.datetime64)),
    ("time spans", (datetime.timedelta, np.timedelta64)),
)
# Code that makes days of dates, and hours of time spans, and what to do with times of the day.
CODE_FOR_TIME = {
    "dates": "t = pd.to_datetime({0}); t = (t - t.min()) / pd.Timedelta('1D')  # days",
    "time spans": "t = pd.to_timedelta({0}) / pd.Timedelta('1h')",
}
OF_HOURS = "; the time of the day is a direction, VonMisesFisher() on the columns np.cos(a) and "
OF_HOURS += "np.sin(a) with a = np.pi / 12 * pd.to_datetime({0}).dt.hour"


def as_table(X, numbers=False):
    """X as a `Table`; None if it is something else, or an array of numbers unless `numbers`."""
    if isinstance(X, Table):
        return X
    if is_dask_frame(X):
        return Table(X._meta)  # the columns without rows
    if is_frame(X):
        return Table(X)
    if isinstance(X, (list, tuple)) and len(X):
        with contextlib.suppress(ValueError):  # rows of different lengths: scikit-learn objects
            found = np.asarray(X)
            X = found if found.dtype.kind in "biufc" else np.array(X, dtype=object)
    kinds = "OUSTMmfiub" if numbers else "OUSTMm"
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in kinds:
        return Table(X)
    return None


def is_frame(X):
    """Whether X is a data frame in memory."""
    if hasattr(X, "iloc"):
        return getattr(X, "ndim", 2) == 2
    return nw.dependencies.is_into_dataframe(X) or _is_record_batch(X)


def _is_record_batch(X):
    return type(X).__module__.startswith("pyarrow") and type(X).__name__ == "RecordBatch"


def _known_frame(X):
    """A data frame that narwhals knows."""
    if _is_record_batch(X):
        import pyarrow

        return pyarrow.Table.from_batches([X])
    return X


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table.

    - `kind`: str. "float", "integer" or "bool", "category" (strings too), "dates", "time spans",
      or the name of the type of its entries. Objects have the kind of their entries that are not
      missing, and "float" if all are missing.
    - `values`: ndarray. Doubles, NaN if missing, for numbers; otherwise objects, None if missing.
    - `categories`: list or None. Categories of the type of the column, in their order.
    """

    kind: str
    values: np.ndarray
    categories: list | None = None

    @functools.cached_property
    def gaps(self):
        """Whether entries are missing: ndarray of bool."""
        if self.kind in NUMBERS:
            return np.isnan(self.values)
        return np.fromiter((value is None for value in self.values), bool, len(self.values))

    @functools.cached_property
    def distinct(self):
        """The different entries that are not missing, by first appearance: list."""
        return list(dict.fromkeys(self.values[~self.gaps].tolist()))

    @functools.cached_property
    def codes(self):
        """Position of each entry in `distinct`, -1 if it is missing: ndarray of int."""
        positions = {value: code for code, value in enumerate(self.distinct)}
        return np.array([positions.get(value, -1) for value in self.values.tolist()])


def refuse_repeated_names(X):
    """Raise ValueError if two columns of a data frame have the same name."""
    names = list(getattr(X, "column_names", getattr(X, "columns", ())))
    if len(set(names)) < len(names):
        name = next(name for name in names if names.count(name) > 1)
        raise ValueError(
            f"{names.count(name)} columns of X have the name {name!r}: give each column a name of "
            "its own, or drop those that are copies"
        )


class Table:
    """Columns of a data frame, or of an array of objects, each read once.

    - `names`: list of str, or None. Names of the columns of X, if all are strings.
    - `positions`: ndarray of int. Columns of X that are columns of this table.
    - `advice`: str. Advice about strings that is better than that of likelihoods.
    """

    def __init__(self, X):
        self.advice = ""
        self.X = self._frame = X = _known_frame(X)
        refuse_repeated_names(X)
        if not isinstance(X, np.ndarray) and not hasattr(X, "iloc"):
            self._frame = nw.from_native(X, eager_only=True)
        names = list(getattr(self._frame, "columns", [None]))
        self.names = names if all(isinstance(name, str) for name in names) else None
        self.positions = np.arange(X.shape[1])
        self._columns = {}

    @property
    def shape(self):
        """Numbers of rows and columns."""
        return self.X.shape[0], len(self.positions)

    def column(self, j, reads_numbers=False):
        """Column j as a `Column`; with `reads_numbers`, numbers if its entries stand for some."""
        if reads_numbers:
            with contextlib.suppress(TypeError, ValueError):
                return Column("float", self.number(j))
        d = self.positions[j]
        if d not in self._columns:
            native = self.native(d)
            if isinstance(native, np.ndarray):
                self._columns[d] = _of_array(native)
            else:
                self._columns[d] = _of_series(nw.from_native(native, series_only=True))
        return self._columns[d]

    def native(self, d):
        """Column d of X, in its container."""
        X = self._frame
        if isinstance(X, np.ndarray):
            return X[:, d]
        # By position, because names of pandas may be repeated.
        return X.iloc[:, d] if hasattr(X, "iloc") else X[X.columns[d]].to_native()

    @functools.cached_property
    def _plain(self):
        """All columns of X, read at once, if their types are those of numbers; otherwise None."""
        X = self._frame
        if hasattr(X, "iloc"):
            plain = all(isinstance(t, np.dtype) and t.kind in "biuf" for t in X.dtypes)
            return X.to_numpy(dtype=np.float64) if plain else None
        if isinstance(X, np.ndarray) or not all(t.is_float() for t in X.schema.values()):
            return None
        return X.select(nw.all().cast(nw.Float64)).to_numpy()

    def columns(self):
        """List of the columns."""
        return [self.column(j) for j in range(len(self.positions))]

    def isna(self):
        """Whether each column has missing entries, for which there are numbers: list of bool."""
        if self._plain is not None:
            return np.isnan(self._plain[:, self.positions]).any(axis=0)
        return [c.kind in (*NUMBERS, "category") and c.gaps.any() for c in self.columns()]

    def take(self, positions):
        """Return the table of some columns, which keep their names and numbers in messages."""
        other = copy.copy(self)
        other.positions = self.positions[positions]
        return other

    def called(self, j):
        """Name of column j in messages."""
        return called(self.positions[j], self.names)

    def number(self, j, advice=""):
        """Column j as doubles, NaN if missing. `advice` is about strings and categories.

        Raises TypeError, ValueError if its entries are no numbers nor stand for numbers ("1").
        """
        column, where = self.column(j), self.called(j)
        if column.kind in NUMBERS:
            return column.values
        if column.kind in ("dates", "time spans"):
            raise ValueError(
                f"{where} holds {column.kind}, not numbers: drop it, or put numbers in its place, "
                f"{self.code_for_time(j)}"
            )
        out = np.full(len(column.values), np.nan)
        try:
            np.asarray(column.categories or (), dtype=np.float64)
            out[~column.gaps] = column.values[~column.gaps].astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            kind = TypeError if isinstance(error, TypeError) else ValueError
            form = text_form(column)
            if form is not None:
                code = CodeFor(self, self.names).with_numbers([self.positions[j]], form)
                way = f"; it holds {form.words}, so make numbers of it: {code}"
            elif column.kind == "category":
                way = self.advice or advice
            else:
                way = ": drop it or convert it to numbers"
            raise kind(f"{error}, in {where}{way}") from None
        return out

    def code_for_time(self, j):
        """Code that makes numbers of column j of dates or time spans."""
        d = self.positions[j]
        if isinstance(self.X, np.ndarray):
            column = f"pd.Series(X[:, {d}])"
        else:
            column = f"X[{list(self._frame.columns)[d]!r}]"
            if str(getattr(self.native(d), "dtype", "")).startswith("period"):
                column += ".dt.to_timestamp()"
            elif not hasattr(self._frame, "iloc"):
                column += ".to_pandas()"
        entries = self.column(j).distinct  # numbers of nanoseconds, perhaps
        has_hours = any(getattr(entry, "hour", type(entry) is float) for entry in entries)
        return (CODE_FOR_TIME[self.column(j).kind] + OF_HOURS * has_hours).format(column)

    def numbers(self, advice=""):
        """The columns as doubles: ndarray of shape (n_rows, n_columns). See `number`."""
        if self._plain is not None:
            return self._plain[:, self.positions]
        out = np.empty(self.shape)
        for j in range(self.shape[1]):
            out[:, j] = self.number(j, advice)
        return out


def called(j, names=None):
    """Name of a column in messages: its number, or its name if there are names."""
    return f"column {j} of X" if names is None else f"column {names[j]!r} of X"


def listed(columns, names=None):
    """Names of columns in messages, at most `MOST_NAMED`."""
    words = [called(d, names).removesuffix(" of X") for d in columns]
    if len(words) > MOST_NAMED + 1:
        words[MOST_NAMED:] = [f"{len(words) - MOST_NAMED} more columns"]
    return joined(words)


def joined(words):
    """Words as a list in a sentence."""
    words = list(words)
    return " and ".join([*filter(None, [", ".join(words[:-1])]), words[-1]])


class CodeFor:
    """Lines of Python that change X, for its container. Columns may have no names: None."""

    def __init__(self, X, names):
        self.library = type(getattr(X, "X", X)).__module__.partition(".")[0]
        self.names = names
        self.is_polars = self.library == "polars"
        self.is_frame = names is not None or self.library == "pandas"
        self.before = ""
        if names is None and self.is_frame:
            self.before = "X = X.set_axis(range(X.shape[1]), axis=1); "
        elif names is None and getattr(getattr(X, "dtype", None), "kind", None) in ("i", "u"):
            # Arrays of whole numbers would cut off the fractions of logarithms.
            self.before = "X = X.astype(float); "
        elif self.is_frame and self.library not in ("pandas", "polars", "numpy", "dask"):
            self.before = TO_PANDAS

    def _chosen(self, columns):
        """Code that begins a line, and code of columns, in polars as an expression."""
        chosen = [int(d) if self.names is None else str(self.names[d]) for d in columns]
        before = self.before
        if len(chosen) > MOST_NAMED + 1:
            chosen, before = "columns", f"{before}columns = {chosen}; "
        if self.is_polars:
            return before, f"pl.col({chosen})"
        return before, f"X[{chosen}]" if self.is_frame else f"X[:, {chosen}]"

    def _line(self, columns, function, **codes):
        """Line that replaces columns of X by a function of their code, {x}, and of other codes."""
        before, chosen = self._chosen(columns)
        changed = function.format(x=chosen, **codes)
        if self.is_polars:
            return f"{before}X = X.with_columns({changed})"
        return f"{before}{chosen} = {changed}"

    def with_gaps(self, columns, values):
        """Line that makes values of these columns NaN."""
        values = f"[{', '.join(map(shown, values))}]"
        function = f"np.where(np.isin({{x}}, {values}), np.nan, {{x}})"
        if self.is_frame:
            function = f"{{x}}.replace({values}, {None if self.is_polars else 'np.nan'})"
        return self._line(columns, function)

    def with_logarithms(self, columns, function="np.log({x})", numbers=(0.0,), divisor=0):
        """Line that replaces columns of X by a function of each, {x}, of its number, {c}, and of
        the column `divisor`, {y}."""
        numbers, (_, y) = [*map(shown, numbers)], self._chosen([divisor])
        if self.is_polars:
            names = [f"pl.col({str(self.names[d])!r})" for d in columns]
            pairs = zip(names, numbers, strict=True)
            # "100 - column" would have the name of 100.
            logs = [f"({function.format(x=x, c=c, y=y)}).name.keep()" for x, c in pairs]
            return f"X = X.with_columns({', '.join(logs)})"
        c = numbers[0] if len({*numbers}) == 1 else f"[{', '.join(numbers)}]"
        return self._line(columns, function, c=c, y=f"{y}.to_numpy()" if self.is_frame else y)

    def with_indicators(self, values, keeps=True):
        """Line that says in columns of their own which entries have a value, and makes these NaN,
        or keeps no other entries. Without names X becomes a frame of pandas.

        - `values`: dict. Of a column its value.
        """
        named = [
            f"{str(d if self.names is None else self.names[d])!r}: {shown(value)}"
            for d, value in values.items()
        ]
        before = TO_FRAME if self.names is None else self.before
        method, mark = "assign", "f'{c} is {v:.4g}': (X[c] == v).mask(X[c].isna())"
        marks = f"**{{{mark} for c, v in values.items()}}"
        rest = "replace(values, np.nan)" if keeps else "drop(columns=[*values])"
        if self.is_polars:
            mark = "(pl.col(c).fill_nan(None) == v).alias(f'{c} is {v:.4g}')"
            method, marks = "with_columns", f"[{mark} for c, v in values.items()]"
            gaps = "with_columns([pl.col(c).replace(v, None) for c, v in values.items()])"
            rest = gaps if keeps else "drop([*values])"
        return f"{before}values = {{{', '.join(named)}}}; X = X.{method}({marks}).{rest}"

    def with_categories(self, groups):
        """Line that puts the names of columns, one for each row, in the place of each group of
        columns. X becomes a frame of pandas."""
        before = TO_FRAME if self.names is None else TO_PANDAS if self.is_polars else self.before
        names = [[str(d if self.names is None else self.names[d]) for d in own] for own in groups]
        prefixes = [own[0].rpartition("_")[0] for own in names]
        taken = ["", "", *prefixes, *(() if self.names is None else map(str, self.names))]
        new = [f"codes {own[0]}" for own in names]
        keys = [p if taken.count(p) == 1 else key for p, key in zip(prefixes, new, strict=True)]
        codes = dict(zip(keys, names, strict=True))
        new = "(X[own] == X[own].max()).idxmax(axis=1).astype('category')"
        new = f"c: {new} for c, own in codes.items()"
        drop = "X.drop(columns=sum(codes.values(), []))"
        return f"{before}codes = {codes}; X = {drop}.assign(**{{{new}}})"

    def with_numbers(self, columns, form):
        """Line that makes numbers of columns of strings of a `TextForm`."""
        polars = self.is_polars
        drop = ".str.replace_all({!r}, '', literal=True)" if polars else ".str.replace({!r}, '')"
        steps = "".join(drop.format(old) for old in form.dropped)
        steps += "".join(f".str.replace({old!r}, {new!r})" for old, new in form.replaced)
        if polars:
            strict = ", strict=False" if form.marks else ""
            return self._line(columns, f"{{x}}{steps}.cast(pl.Float64{strict})")
        errors = ", errors='coerce'" if form.marks else ""
        if self.names is None:
            numbers = f"pd.to_numeric(pd.Series(X[:, d]){steps}{errors})"
            return f"for d in {[int(d) for d in columns]}: X[:, d] = {numbers}"
        return self._line(columns, f"{{x}}.apply(lambda x: pd.to_numeric(x{steps}{errors}))")


def shown(value):
    """Code of a number."""
    if np.isinf(value):
        return f"float('{value}')"
    return f"{value:.0f}" if value == np.rint(value) and abs(value) < 1e9 else repr(value)


class TextForm(NamedTuple):
    """A form of numbers in strings: what is dropped and replaced, and whether some are marks."""

    words: str
    pattern: str
    dropped: tuple = ()
    replaced: tuple = ()
    marks: bool = False


# What is between thousands, the minus sign of typography, limits, and what makes commas points.
SPACES, MINUS, LIMITS, POINT = " \u00a0\u202f'\u2019", "\u2212", "<>\u2264\u2265", ((",", "."),)
TEXT_FORMS = (
    TextForm("", r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?"),
    TextForm("thousands separators", r"[+-]?\d{1,3}(,\d{3})*(\.\d+)?", (",",)),
    TextForm(
        "thousands separators", rf"[+-]?\d{{1,3}}([{SPACES}]\d{{3}})*(\.\d+)?", (*SPACES[3:],)
    ),
    TextForm("decimal commas", r"[+-]?\d+(,\d+)?", (), POINT),
    TextForm("decimal commas", r"[+-]?\d{1,3}(\.\d{3})*(,\d+)?", (".",), POINT),
    TextForm("limits", rf"[{LIMITS}]? ?\d+(\.\d+)?\+?", (*LIMITS, "+")),
)
# A currency before a number, and a unit, a currency or % after it; longer strings are no numbers.
LONGEST, NUMBER = 40, rf"[+-]?\d[\d.,]*(?:[{SPACES}]\d{{3}})*(?:[.,]\d+)?"
AROUND = rf"(?:[{LIMITS}] ?)?[+-]?((?:[A-Z]*[$€£¥])?) ?{NUMBER}\s?([^\d\s+.,{{}}-][^\d{{}}-]*)?"
WITH_STRINGS = re.compile(r"category|((float|int)\d* and )+str")  # kinds of columns
# Strings, in lower case, that hardly mean a category, and those that among numbers are missing.
MARKS = {"", "?", "na", "n/a", "nan", "null"}
MARKS_IN_NUMBERS = MARKS | {*"-.*\u2212\u2013\u2014", "--", "..", "...", "n.a.", "none", "missing"}


def text_form(column):
    """The `TextForm` of a column of strings, or of these and numbers; None if it has none, or a
    type of categories."""
    is_read = column.categories is None and WITH_STRINGS.fullmatch(column.kind)
    strings = [value for value in column.distinct if isinstance(value, str)] if is_read else []
    if not strings or max(map(len, strings)) > LONGEST:
        return None
    known = [text for text in map(str.strip, strings) if text.lower() not in MARKS_IN_NUMBERS]
    if column.kind != "category":
        plain = TEXT_FORMS[0]._replace(words="numbers, some as strings or marks", marks=True)
        return plain if all(re.fullmatch(plain.pattern, text) for text in known) else None
    texts = [text.replace(MINUS, "-") for text in known]
    around = {match and match.groups("") for match in (re.fullmatch(AROUND, x) for x in texts)}
    units = [unit for unit in around.pop() or () if unit] if len(around) == 1 else []
    for unit in units:
        texts = [text.replace(unit, "").strip() for text in texts]
    found = "".join(strings)
    for form in TEXT_FORMS if known else ():
        if all(re.fullmatch(form.pattern, text) for text in texts):
            spaces = sorted(filter(str.isspace, {*found}))
            dropped = *units, *(c for c in form.dropped if c in found), *spaces
            replaced = form.replaced + ((MINUS, "-"),) * (MINUS in found)
            marks = len(known) < len(strings)
            words = form.words, *map(repr, units), "marks of missing entries" * marks
            with_what = [*filter(None, words)]
            words = "numbers as strings" + (f" with {joined(with_what)}" if with_what else "")
            return TextForm(words, form.pattern, dropped, replaced, marks)
    return None


def _of_series(series):
    dtype, native = series.dtype, series.to_native()
    for kind, holds in (
        ("bool", dtype == nw.Boolean),
        ("integer", dtype.is_integer()),
        ("float", dtype.is_float() or dtype.is_decimal()),
    ):
        if holds:
            values = series.cast(nw.Float64).to_numpy()
            return Column(kind, np.asarray(values, dtype=np.float64))
    values = without_marks(series.to_list())
    if dtype.is_temporal():
        words = {nw.Duration: "time spans", nw.Time: "times of day"}
        return Column(words.get(dtype.base_type(), "dates"), values)
    if isinstance(dtype, (nw.Categorical, nw.Enum)):
        return Column("category", values, _categories_of_type(series, values))
    if dtype == nw.String and not isinstance(getattr(native, "dtype", None), np.dtype):
        return Column("category", values)
    return _of_objects(values)


def _categories_of_type(series, values):
    """The categories that the type of a Series knows, in its order. A polars Categorical has none
    of its own: its values in order."""
    native = series.to_native()
    if hasattr(getattr(native, "cat", None), "categories"):  # pandas
        return native.cat.categories.tolist()
    if isinstance(series.dtype, nw.Enum):
        return list(series.dtype.categories)
    if series.implementation.is_pyarrow():
        return series.cat.get_categories().to_list()
    return sorted({value for value in values if value is not None})


def _of_array(values):
    kind = KINDS_OF_ARRAYS.get(values.dtype.kind)
    if kind in NUMBERS:
        return Column(kind, np.asarray(values, dtype=np.float64))
    column = _of_objects(without_marks(values))
    return column if kind is None else Column(kind, column.values)


def _of_objects(values):
    """`Column` of objects, None if missing."""
    known = [value for value in values if value is not None]
    types = {type(value) for value in known}
    kinds = (name for name, own in KINDS_OF_OBJECTS if all(issubclass(t, own) for t in types))
    kind = next(kinds, " and ".join(sorted(t.__name__ for t in types))) if known else "float"
    kind = "dates" if kind == "Period" else kind
    if kind in NUMBERS:
        with contextlib.suppress(OverflowError):  # `Table.number` says so
            return Column(kind, np.where(np.equal(values, None), np.nan, values).astype(float))
        kind = "int"
    return Column(kind, values)


def without_marks(values):
    """An array of objects, with None for None, NaN, NaT, `pandas.NA` and masked entries."""
    out = np.empty(len(values), dtype=object)
    out[:] = values
    types = set(map(type, out))
    marks = {t for t in types if t.__name__ in ("NAType", "NaTType", "MaskedConstant")}
    others = {t for t in types if issubclass(t, (numbers.Number, np.generic))} - marks
    if marks:
        out[np.fromiter((type(value) in marks for value in out), bool, len(out))] = None
    if others:
        out[np.fromiter((type(v) in others and v != v for v in out), bool, len(out))] = None
    return out


def categories_of(column, where):
    """The categories of a `Column`, those of its type in their order or the sorted values: ndarray
    of objects, or of numbers. `where` is the name of the column in messages."""
    if column.kind in NUMBERS:
        return np.unique(column.values[~column.gaps])
    values = column.categories
    try:
        values = sorted(column.distinct) if values is None else values
    except TypeError:
        kinds = sorted({type(value).__name__ for value in column.values[~column.gaps]})
        raise ValueError(
            f"{where} holds values that have no order: {', '.join(kinds)}; convert them to strings"
        ) from None
    return np.array([*values, None], dtype=object)[:-1]


def to_codes(column, categories, where, handle_unknown):
    """Positions of the entries of a `Column` among known categories, NaN for missing entries.

    `where` is the name of the column in messages. Unknown values are an "error", which raises a
    ValueError that names one, "missing", or "new" with the position after the last, and a warning.
    """
    are_numbers = categories.dtype.kind == "f" and column.kind in NUMBERS
    at = slice(None)
    if are_numbers:
        values, at = np.unique(column.values, return_inverse=True)
        if len(categories) > 1:  # rounding errors
            near = categories[np.searchsorted((categories[1:] + categories[:-1]) / 2.0, values)]
            least = ROUND_OFF * np.diff(categories).min()
            values = np.where(np.abs(values - near) <= least, near, values)
        column = Column("float", values)
    position = {category: float(c) for c, category in enumerate(categories)}
    unknown = [value for value in column.distinct if value not in position]
    if unknown and handle_unknown == "error":
        raise ValueError(
            f"Categorical: {where} holds {unknown[0]!r}, a value that was not in `fit`; with "
            'handle_unknown="missing" it counts as a missing entry'
        )
    if unknown and handle_unknown == "new":
        position.update(dict.fromkeys(unknown, float(len(categories))))
        warn_of_new(where, repr(unknown[0]), OF_NUMBERS if are_numbers else "")
    return np.array([position.get(value, np.nan) for value in column.values.tolist()])[at]


def warn_of_new(where, what, advice=""):
    """Warn of a category of new rows; `where` is the name of the column, and `what` its words."""
    warn(
        f"Categorical: {where} holds {what}, a value that was not in `fit`. It says nothing about "
        "the cluster of a row, and score_samples gives it the probability 1 / (n + 2), where n is "
        f"the number of known entries of the column in `fit`{advice}"
    )


def decoded_table(X, decoded, names):
    """A table of numbers and categories: a DataFrame, or an ndarray without names or categories.
    `decoded` has codes (-1 if missing) and categories of each column of X, or None."""
    are_numbers = [column is None or column[1].dtype.kind == "f" for column in decoded]
    if names is not None and not all(are_numbers):
        import pandas as pd

        columns = {
            name: _values_of(X[:, d], decoded[d])
            if are_numbers[d]
            else pd.Categorical.from_codes(decoded[d][0], categories=list(decoded[d][1]))
            for d, name in enumerate(names)
        }
        return pd.DataFrame(columns)
    return np.column_stack([_values_of(X[:, d], column) for d, column in enumerate(decoded)])


def filled_table(X, rows, filled, decoded):
    """A copy of X, as a user passed it, with its missing entries filled.

    `rows` and `filled` are X as numbers, (n_rows, n_columns), and the same with entries in place
    of NaN. `decoded` is `Likelihood.decode` of `filled`.
    """
    if as_table(X) is None:
        return np.where(np.isnan(rows), decoded_table(filled, decoded, None), X)
    if decoded == [None] * rows.shape[1] and not is_frame(X):
        return filled
    gaps = np.isnan(rows) & ~np.isnan(filled)
    return with_columns(
        X,
        {
            d: filled_column(X, d, gaps[:, d], _values_of(filled[:, d], decoded[d]))
            for d in np.flatnonzero(gaps.any(axis=0))
        },
    )


def _values_of(filled, decoded):
    if decoded is None:
        return filled
    codes, categories = decoded
    return np.append(categories, np.nan if categories.dtype.kind == "f" else None)[codes]


def _holds(dtype, values):
    """Whether numbers are integers of a type, or any integers for objects."""
    limits = np.iinfo(dtype if dtype.kind in "iu" else np.int64)
    return ((values == np.floor(values)) & (values >= limits.min) & (values <= limits.max)).all()


def filled_column(X, d, gaps, values):
    """Column d of a table with values in some places; of the same type if it can hold these."""
    table = as_table(X, numbers=True)
    kind, values = table.column(d).kind, _as_recorded(table.column(d), values[gaps])
    values = values.astype(bool) if kind == "bool" else values
    column = table.native(d)
    if isinstance(column, np.ndarray):
        return _replaced(column, gaps, values)
    if not hasattr(column, "iloc"):
        return _filled_series(nw.from_native(column, series_only=True), kind, gaps, values)
    if hasattr(column, "sparse"):
        column = column.sparse.to_dense()
    dtype = getattr(column.dtype, "numpy_dtype", column.dtype)
    if kind == "integer" and not _holds(dtype, values):
        column = column.astype(np.float64)
    elif getattr(dtype, "kind", "") == "f":
        values = values.astype(dtype)  # pandas refuses numbers of more digits
    out = column.copy()
    if hasattr(column, "cat"):
        unknown = set(values) - set(column.cat.categories)
        out = out.cat.add_categories(sorted(unknown))
    out.iloc[np.flatnonzero(gaps)] = values
    return out


def _as_recorded(column, values):
    """Numbers as entries of a `Column` of strings or categories that stand for numbers: the
    nearest category of its type, or else the string that it has for this number, or a new one."""
    if column.kind != "category" or values.dtype.kind != "f":
        return values
    known = column.categories or column.distinct
    try:
        numbers = np.nan_to_num(np.array(known, dtype=np.float64), nan=np.inf)
    except ValueError:
        return values
    if column.categories:
        return np.array(known, object)[np.abs(values[:, None] - numbers).argmin(axis=1)]
    recorded = dict(zip(numbers.tolist(), known, strict=True))
    return np.array([recorded.get(value, shown(value)) for value in values.tolist()], object)


def _filled_series(series, kind, gaps, values):
    """The same for a Series of narwhals, of a library whose entries have one type."""
    dtype = series.dtype
    if kind == "category":
        dtype, values = nw.String, values.astype(str)
    elif kind != "bool" and not dtype.is_float():
        whole = dtype.is_integer() and _holds(np.dtype(str(dtype).lower()), values)
        dtype, values = (dtype, values.astype(np.int64)) if whole else (nw.Float64, values)
        series = series.cast(dtype)
    entries = _replaced(without_marks(series.to_list()), gaps, values).tolist()
    out = nw.new_series(series.name, entries, dtype, backend=series.implementation)
    known = getattr(series.dtype, "categories", out.unique())
    return out.cast(series.dtype) if set(out.unique()) <= {*known, None} else out


def _replaced(values, where, new):
    out = values.copy()
    out[where] = new.tolist()
    return out


def with_columns(X, columns):
    """A copy of an array or data frame with other columns: dict of int to values, or None."""
    if not isinstance(X, np.ndarray) and not hasattr(X, "iloc"):
        frame = nw.from_native(X, eager_only=True)
        names, empty = frame.columns, nw.lit(None)
        new = [
            (empty if values is None else values).alias(names[d]) for d, values in columns.items()
        ]
        return frame.with_columns(new).to_native()
    out = X.copy()
    for d, values in columns.items():
        if hasattr(out, "iloc"):
            out.isetitem(d, values)
        else:
            out[:, d] = values
    return out


def with_zeros(X, d):
    """Column d of an array or data frame, with 0 in place of missing entries."""
    column = as_table(X, numbers=True).column(d)
    if hasattr(X, "iloc") and column.kind not in NUMBERS:
        X = with_columns(X, {d: X.iloc[:, d].astype(object)})
    return filled_column(X, d, column.gaps, np.zeros(len(column.values)))


def take_columns(X, columns):
    """Columns of an array or data frame, by position."""
    if hasattr(X, "iloc"):
        return X.iloc[:, columns]
    if isinstance(X, np.ndarray):
        return X[:, columns]
    return nw.from_native(X, eager_only=True)[:, columns.tolist()].to_native()


def columns_of_rows(given, n_features, names, positions_of):
    """One row given by its known entries, as an array of objects or a table of shape (1,
    n_features). `names` are those of the columns of `fit`, or None; `positions_of` is a function
    of columns, `given` and a word that returns positions."""
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
        table = as_table(row)
        are_numbers = all(column.kind in NUMBERS for column in table.columns())
        return table.numbers() if are_numbers else row
    import pandas as pd

    return pd.DataFrame(row, columns=names)


def identifies(column):
    """Whether a column has ten or more different entries; without marks nearly all differ."""
    known = column.values[~column.gaps].tolist()
    known = [value for value in known if str(value).strip().lower() not in MARKS_IN_NUMBERS]
    return 10 <= len(set(known)) > NEARLY_ALL * len(known)


# Columns of any kind of table, for displays.


def n_rows_of(X):
    """Number of rows of an array, a table or a list."""
    return X.shape[0] if hasattr(X, "shape") else len(X)


def take_rows(X, rows):
    """Rows of an array, a table or a list, by position."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if is_frame(X):
        return nw.from_native(_known_frame(X), eager_only=True)[rows].to_native()
    return (X if hasattr(X, "shape") else np.asarray(X))[rows]


def numeric_column(X, j):
    """Column j as doubles.

    Raises TypeError, ValueError if it does not hold numbers.
    """
    X = X[:, [j]].toarray() if sp.issparse(X) else as_table(X, numbers=True)
    return X.number(j) if isinstance(X, Table) else X[:, 0]


def numeric_columns(X):
    """X as doubles, with NaN in columns that do not hold numbers."""
    table = as_table(X.toarray() if sp.issparse(X) else X, numbers=True)
    none = np.full(table.shape[0], np.nan)
    columns = [column.values if column.kind in NUMBERS else none for column in table.columns()]
    return np.column_stack(columns)
