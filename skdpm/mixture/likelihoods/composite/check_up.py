# SPDX-License-Identifier: BSD-3-Clause
"""What the columns of a table are, by their types and values: the check-up of "mixed"."""

import re
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp

from skdpm._tables import (
    KINDS_OF_ARRAYS,
    MARKS,
    NUMBERS,
    Column,
    TextForm,
    as_table,
    identifies,
    listed,
    text_form,
)
from skdpm._validation import is_dask
from skdpm.mixture.likelihoods.composite.derived import products_among
from skdpm.mixture.likelihoods.composite.discrete import (
    ENOUGH_ROWS,
    LARGEST_COUNT,
    Numbers,
    are_groups,
)
from skdpm.mixture.likelihoods.laws.columns import filled_columns, number_rows, one_hot

# Fewest rows for which a column can be one of identifiers, and a copy of another one. In fewer
# rows entries of 50 categories may all be different, and flags equal, by chance.
FEWEST_IDENTIFIED, FEWEST_ALIKE = 50, 30
# Fewest rows for which categories can be ranges of a number, log odds against chance from which
# they are, one in a million, and how many times farther apart than others a tenth of the rows at
# the end of a range may be. Where they are farther at all ends, ranges may be clusters.
FEWEST_IN_RANGES, LEAST_LOG_ODDS, TIMES_APART = 100, 14.0, 1.5
# Fewest numbers without fractions that make a column of floats one of whole numbers.
FEWEST_WHOLE = 10
# Largest codes of two and of more categories.
LARGEST_CODE, MOST_CODES = 20, 7
# Number of words of the average entry above which strings are text.
WORDS_OF_TEXT = 3
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{1,2}:\d{2}")

WHOLE = (
    "whole numbers, which may be counts (NegativeBinomial, Poisson), codes of categories "
    "(Categorical) or measurements (Gaussian)"
)
ONE_HOT = "one-hot codes, of which each row has one"
NO_INFORMATION = "as in names or identifiers, which contain no information about clusters"


@dataclass(frozen=True)
class Finding:
    """What the check-up of a table says of a column.

    - `type`: str. Kind by the type of the column, a key of `PARTS`; "": it is in no part.
    - `kind`: str or None. Proposed kind, "one_hot" with a number for each group of one-hot codes;
      None: the column should be left out.
    - `words`: str. What is special, "" for nothing.
    - `refused`: bool. Whether "mixed" refuses the column.
    - `form`: TextForm or None. Form of the numbers, for a column of numbers in strings.
    - `is_copy`: bool. Whether the column follows from an earlier one of its type.
    """

    type: str
    kind: str | None
    words: str = ""
    refused: bool = False
    form: TextForm | None = None
    is_copy: bool = False

    @property
    def is_doubtful(self):
        """Whether "mixed" warns of the column, which may hold something else."""
        return self.words == WHOLE or (bool(self.words) and self.type == self.kind == "category")


def check_up(X, batch=False):
    """Judge all columns of a table by types and values.

    - `batch`: bool. Whether other rows follow, in which entries may be equal or differ.

    Returns `findings`: list of Finding
    """
    if sp.issparse(X):
        raise TypeError('X is sparse: use likelihood="relational" for a network, or X.toarray()')
    table = as_table(X)
    findings = []
    for d, column in enumerate(columns_of(X)):
        if column.kind in ("float", "integer"):
            findings.append(_of_numbers(column, batch or is_dask(X)))
        elif column.kind == "category":
            findings.append(_of_categories(column, batch))
        elif column.kind == "bool":
            findings.append(Finding("bool", "bool"))
        else:
            form = text_form(column)
            words = f"type {column.kind}, which has no likelihood"
            words += "; make str of all entries, or numbers" if "str" in column.kind else ""
            words = form.words if form else words
            if column.kind in ("dates", "time spans"):
                words = f"{column.kind}; make numbers of them by {table.code_for_time(d)}"
            findings.append(Finding("float", None, words, refused=True, form=form))
    if batch or is_dask(X):
        return findings
    return _with_one_hot(X, _with_copies(X, _without_products(X, findings)))


def _without_products(X, findings):
    """Findings that leave out numbers that are products of powers of others."""
    columns, found = columns_of(X), [*findings]
    floats = [d for d, finding in enumerate(findings) if finding.kind == finding.type == "float"]
    if floats:
        rows = Numbers({d: columns[d] for d in floats}).some_rows(floats)
        for d in [floats[j] for j in products_among(rows)]:
            words = "product of powers of other columns, along which clusters curve"
            found[d] = Finding("", None, words)
    return found


def _with_one_hot(X, findings):
    """Findings that name groups of flags of which each row has one: one-hot codes."""
    columns, found = columns_of(X), [*findings]
    if not columns or len(columns[0].values) < FEWEST_ALIKE:
        return found
    values = np.full((len(columns[0].values), len(columns)), np.nan)
    for d, finding in enumerate(findings):
        if finding.kind == "bool" and np.ptp(columns[d].values):
            values[:, d] = columns[d].values
    for k, own in enumerate(own for own in one_hot(values) if len(own) > 2):  # two are copies
        for d in own:
            found[d] = replace(findings[d], kind=f"one_hot_{k + 1}", words=ONE_HOT)
    return found


def _with_copies(X, findings):
    """Findings that name copies: earlier numbers on another scale, or categories with other names,
    of ranges of a number or of groups of others. Columns of parts are independent given the
    cluster, so copies count twice."""
    names, first, found, columns = names_of(X), {}, [], columns_of(X)
    numbers = [d for d, finding in enumerate(findings) if finding.kind in ("float", "count")]
    finer = [d for d, found in enumerate(findings) if found.kind == "category" and not found.form]
    for d, (finding, column) in enumerate(zip(findings, columns, strict=True)):
        same = d
        if finding.kind and finding.form is None and len(column.values) >= FEWEST_ALIKE:
            key = _pattern(column)
            same = d if key is None else first.setdefault(key, d)
            if same == d and finding.kind in ("bool", "category"):
                over = [j for j in numbers if _are_ranges(column.codes, columns[j].values)]
                over += [j for j in finer if _determine(columns[j].codes, column.codes)]
                same = next(iter(over), d)
        if same != d:
            words = f"follows from {listed([same], names)}, so it would count twice"
            finding = replace(finding, kind=None, words=words, is_copy=True)
        found.append(finding)
    return found


def _pattern(column):
    """What is equal for columns of which each follows from the other one: bytes, or None."""
    known = ~column.gaps
    if column.kind in NUMBERS and column.kind != "bool":
        values = column.values[known]
        ends = np.array([values.min(initial=np.inf), values.max(initial=-np.inf)]) / 2.0
        if not 0.0 < ends[1] - ends[0] < np.inf:
            return None
        origin = ends[int(values.argmax() < values.argmin())]
        values = np.round(np.abs(values / 2.0 - origin) / (ends[1] - ends[0]), 6)
    else:
        values = column.codes[known]
    return known.tobytes() + values.tobytes()


def _determine(finer, codes):
    """Whether categories, -1 if missing, are groups of finer ones, as regions of towns, neither by
    chance nor because clusters have their own categories, which are few."""
    known = np.flatnonzero((finer >= 0) & (codes >= 0))
    for rows in (known[:FEWEST_IN_RANGES], known):  # few rows show most others
        if len(rows) < FEWEST_IN_RANGES or not are_groups(codes[rows], finer[rows]):
            return False
    n_rows = np.unique(finer[known], return_counts=True)[1]
    shares = np.unique(codes[known], return_counts=True)[1] / len(known)
    odds = -logsumexp(n_rows[:, None] * np.log(shares), axis=1).sum()
    return len(n_rows) >= 2 * len(shares) and odds > LEAST_LOG_ODDS


def _are_ranges(codes, number):
    """Whether categories, -1 if missing, are ranges of a number, neither by chance nor as clusters
    are, which have few rows at the ends of ranges."""
    known = np.flatnonzero((codes >= 0) & np.isfinite(number))
    for rows in (known[:: -(-len(known) // ENOUGH_ROWS) or 1], known):  # few rows show most others
        rows = rows[np.lexsort((codes[rows], number[rows]))]
        own, values, n_rows = codes[rows], number[rows], len(rows)
        counts, ends = np.unique(own, return_counts=True)[1], np.flatnonzero(np.diff(own))
        if len(ends) >= len(counts) or (values[ends] == values[ends + 1]).any():
            return False
    if len(ends) == 0 or n_rows < FEWEST_IN_RANGES:
        return False
    odds = gammaln(n_rows + 1) - gammaln(counts + 1).sum() - gammaln(len(counts) + 1)
    with np.errstate(over="ignore"):
        widths = values[n_rows // 10 :] - values[: -(n_rows // 10)]
    at_ends = widths[np.clip(ends - n_rows // 20, 0, len(widths) - 1)]
    return bool(odds > LEAST_LOG_ODDS and at_ends.min() <= TIMES_APART * np.median(widths))


def fill_of(column):
    """`Fill` of a column of numbers, or None."""
    if column.kind not in ("float", "integer") or np.isinf(column.values).any():
        return None
    return filled_columns(column.values[:, None]).get(0)


def _of_numbers(column, batch):
    known, fill = column.values[~np.isnan(column.values)], fill_of(column)
    if fill is not None:
        known = known[~np.isin(known, fill.values)]
    values = np.unique(known)
    if len(values) < 2 and not batch:
        return Finding("float", None, "one value" if len(values) else "no value")
    whole = column.kind == "integer" or len(known) >= FEWEST_WHOLE
    if not (whole and np.isfinite(values).all() and (values == np.rint(values)).all()):
        return Finding("float", "float")
    kind = _kind_of_whole(values) if len(values) else "float"
    if column.kind == "float" and len(values) == 2:
        return Finding("float", kind, "two values, which are no measurements")
    if not batch and number_rows(known):
        return Finding("float", None, f"consecutive whole numbers, {NO_INFORMATION}", refused=True)
    return Finding("float", kind, WHOLE, refused=column.kind == "integer")


def _kind_of_whole(values):
    """Kind of a column with these whole numbers, in ascending order."""
    low, high = values[[0, -1]]
    if low in (0, 1) and high <= 1:
        return "bool"
    pair = len(values) == 2 and low >= 0
    if (pair and high <= LARGEST_CODE) or (low >= 1 and high <= MOST_CODES):
        return "category"
    return "count" if 0 <= low <= 1 and high < LARGEST_COUNT else "float"


def _of_categories(column, batch):
    values = column.distinct
    if batch:
        return Finding("category", "category")
    if len(values) < 2:
        return Finding("category", None, "one value" if len(values) else "no value")
    n_known = np.count_nonzero(~column.gaps)
    few = len(column.values) < FEWEST_IDENTIFIED or len(values) < 0.5 * n_known
    form = text_form(column)
    if form is not None:
        refused = len(column.values) >= FEWEST_IDENTIFIED and identifies(column)
        return Finding("category", None if refused else "category", form.words, refused, form)
    strings = [value for value in values if isinstance(value, str)]
    marks = [value for value in strings if value.strip().lower() in MARKS]
    times = [bool(DATE.match(value)) for value in strings]
    doubt, are_times = "", any(times) and sum(times) + len(marks) == len(values)
    if are_times:
        doubt = "dates or times as strings; if t is pd.to_datetime of them, "
        doubt += "(t - t.min()) / pd.Timedelta('1D') is a number"
    elif marks:
        doubt = f"if {marks} mean missing, make them NaN, in pandas X.replace({marks}, np.nan)"
    elif few and identifies(column) and len(values) == n_known:
        doubt = f"all entries different, {NO_INFORMATION}; leave the column out if it names rows"
    n_words = sum(len(value.split()) for value in strings)
    if not few and n_words >= WORDS_OF_TEXT * len(values):
        words = "text; counts of words or embeddings are numbers (doc/recipes/text.md)"
    elif not few and identifies(column):
        words = doubt if are_times else f"nearly all entries different, {NO_INFORMATION}"
    else:
        is_declared = column.categories is not None  # by the type of the column
        return Finding("category", "category", "" if is_declared else doubt)
    return Finding("category", None, words, refused=True)


def names_of(X):
    table = as_table(X)
    return None if table is None else table.names


def columns_of(X):
    """The columns of a table or of an array of numbers, without values if these are elsewhere."""
    table = as_table(X, numbers=True)
    if table is not None:
        return table.columns()
    X = X if hasattr(X, "dtype") else np.asarray(X)
    kind = KINDS_OF_ARRAYS.get(X.dtype.kind, str(X.dtype))
    return [Column(kind, np.empty(0))] * X.shape[1] if X.ndim == 2 else []
