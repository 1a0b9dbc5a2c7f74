# SPDX-License-Identifier: BSD-3-Clause
"""The likelihoods that `likelihood="auto"` and `likelihood="mixed"` choose by the columns of X."""

import functools
import itertools
import re
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp
from scipy import stats
from scipy.special import gammaln, logsumexp
from sklearn.utils.validation import check_array

from skdpm._rows import given_rows
from skdpm._tables import (
    KINDS_OF_ARRAYS,
    MARKS,
    NUMBERS,
    CodeFor,
    Column,
    Table,
    TextForm,
    as_table,
    identifies,
    listed,
    text_form,
)
from skdpm._validation import given_shape, has_nan, is_dask, warn
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.composite.product import Product
from skdpm.mixture.likelihoods.counts.bernoulli import Bernoulli
from skdpm.mixture.likelihoods.counts.categorical import Categorical
from skdpm.mixture.likelihoods.counts.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian
from skdpm.mixture.likelihoods.laws.columns import (
    SLIGHTLY_SKEWED,
    doubtful_columns,
    filled_columns,
    number_rows,
    words_about,
)
from skdpm.mixture.likelihoods.laws.recorded import random_order, step_of
from skdpm.mixture.likelihoods.subspace.subspace import Subspace

# Number of columns from which on `likelihood="auto"` chooses between laws by their held-out
# densities. With fewer columns it is `Gaussian`.
MANY_COLUMNS = 8
# Full covariances are among these laws up to MOST_FULL columns, or rows times squared columns; if
# rows are few or laws are not compared, up to ALWAYS_FULL columns.
ALWAYS_FULL, MOST_FULL, MOST_WORK = 32, 64, 2e7
# Prior of the mean precision if rows are fewer than twice the columns, or than FEW_ROWS. Means of
# clusters may then be equal: otherwise every row of noise is most probable as a cluster.
FEW_ROWS = 50
MEANS_ALIKE = Gamma(0.5, 0.005)
# Most levels of codes, as of postal codes; the fewest rows of two of them, or of half of many; and
# places of their grid for each, if they are few, or usually between two, from which on it is none.
MOST_LEVELS_OF_CODES, ROWS_OF_CODE, SPARSE, PLACES_BETWEEN = 50, 5, 1.5, 4
# The second gap between values of functions of small counts, in first gaps: sqrt(n), log(2 + n);
# and how many gaps that only grow, or only shrink, show a function of a grid.
GAPS_OF_COUNTS, MONOTONE = (0.4, 0.8), 6
# Most levels of answers, such as 0 to 10; the fewest columns of these, which tell clusters of
# categories (Allman, Matias & Rhodes 2009); the fewest rows for each probability of a cluster; the
# rows that show how columns depend on each other; and the number of rows to be expected with a
# pair of flags, from which on these exclude each other if no row has it.
MOST_LEVELS, FEWEST_ANSWERS, FEWEST_ROWS, ENOUGH_ROWS, FEWEST_EXPECTED = 11, 3, 3, 2000, 20

# Fewest rows for which a column can be one of identifiers, and a copy of another one. In fewer
# rows entries of 50 categories may all be different, and flags equal, by chance.
FEWEST_IDENTIFIED, FEWEST_ALIKE = 50, 30
# Fewest rows for which categories can be ranges of a number, log odds against chance from which
# they are, one in a million, and how many times farther apart than others a tenth of the rows at
# the end of a range may be. Where they are farther at all ends, ranges may be clusters.
FEWEST_IN_RANGES, LEAST_LOG_ODDS, TIMES_APART = 100, 14.0, 1.5
# Fewest numbers without fractions that make a column of floats one of whole numbers.
FEWEST_WHOLE = 10
# Largest codes of two and of more categories, and the first number that is too large for a count.
LARGEST_CODE, MOST_CODES, LARGEST_COUNT = 20, 7, 10_000
# Number of words of the average entry above which strings are text.
WORDS_OF_TEXT = 3
DATE = re.compile(r"\d{4}[-/]\d{1,2}[-/]\d{1,2}|\d{1,2}[./-]\d{1,2}[./-]\d{4}|\d{1,2}:\d{2}")

WHOLE = (
    "whole numbers, which may be counts (NegativeBinomial, Poisson), codes of categories "
    "(Categorical) or measurements (Gaussian)"
)
NO_INFORMATION = "as in names or identifiers, which contain no information about clusters"

# Name and class of the parts, by the kind of their columns.
PARTS = {
    "float": ("numeric", Gaussian),
    "bool": ("boolean", Bernoulli),
    "category": ("categorical", Categorical),
    "count": ("counts", NegativeBinomial),
}


class Automatic(Gaussian):
    """ "auto". Its tags, before columns are known, hold for `Gaussian` and for `Subspace`."""

    n_errors = 2.0  # by which another law must be better than the first one

    def for_columns(self, X):
        return _laws_of_numbers(X)[0]

    def for_batch(self, X):
        # A batch contains too little information about principal axes.
        return Gaussian().keeping_columns()

    def suits_blocks(self, n_samples, n_features):
        return _laws_of_shape(n_samples, n_features)[0].suits_blocks(n_samples, n_features)


def laws_for(X):
    """Laws among which "auto" chooses for these rows: list of Likelihood. The first is preferred.
    Of chunks of rows that are not in memory the number of columns alone decides."""
    table = _possibly_discrete(X)
    if table is None:
        return _laws_of_numbers(X)
    columns = [table.column(d, reads_numbers=True) for d in range(table.shape[1])]
    columns = _Numbers({d: column for d, column in enumerate(columns) if column.kind in NUMBERS})
    codes, copies = _columns_of_codes(columns)
    answers, counts, follow = _columns_of_kinds(columns, [*codes, *copies])
    codes, copies = [[d for d in own if d not in counts] for own in (codes, copies)]
    others = [d for d in range(table.shape[1]) if d not in {*codes, *copies}]
    laws = _laws_of_numbers(X, len(others))
    if codes:
        laws = [_law_of_parts(table, law, others, codes) for law in laws]
    if answers or counts:
        discrete = [*codes, *answers, *counts]
        others = [d for d in others if d not in {*discrete, *follow}]
        numbers = [d for d in others if d in columns]
        follow += [*copies, *_sums_among(numbers, columns, discrete)]
        others = [d for d in others if d not in follow]
        law = _laws_of_shape(table.shape[0], len(others))[0]
        laws.append(_law_of_parts(table, law, others, sorted([*codes, *answers]), counts, follow))
    return laws


def _law_of_parts(table, law, numbers, categories, counts=(), follow=()):
    """A law of numbers, of categories and of counts: a `Product` if there are several, or columns
    in none, which follow from others."""
    parts = (
        ("numeric", law, numbers),
        ("categorical", Categorical(reads_numbers=True), categories),
        ("counts", NegativeBinomial(), counts),
    )
    parts = [part for part in parts if len(part[2])]
    return (Product(parts) if len(parts) > 1 or follow else parts[0][1]).for_columns(table)


def _laws_of_numbers(X, n_columns=None):
    shape = (*given_shape(X), 1, 1)[:2] if n_columns is None else (given_shape(X)[0], n_columns)
    if is_dask(X):
        return [Subspace() if shape[1] > ALWAYS_FULL else Gaussian()]
    laws = _laws_of_shape(*shape)
    if laws[0].suits_blocks(*shape):
        # Many rows need a law whose sampler visits them in blocks.
        laws = [law for law in laws if law.suits_blocks(*shape)]
    if len(laws) > 1 and has_nan(X):
        laws = [law for law in laws if law.allow_nan]
    return laws


def _laws_of_shape(n_samples, n_features):
    full, diagonal, subspace = Gaussian(), Gaussian(covariance_type="diag"), Subspace()
    tied = Gaussian(covariance_type="tied")
    if n_features < MANY_COLUMNS:
        return [full]
    more = [subspace] if n_features > subspace.n_axes else []
    if n_features > MOST_FULL and n_samples * n_features**2 > MOST_WORK:
        return [*more, diagonal]
    # Fewer rows do not determine the covariances of two clusters.
    undetermined = n_samples < 2 * n_features
    if undetermined or n_samples < FEW_ROWS:
        alike = {"mean_precision": MEANS_ALIKE}
        full.hyperpriors = diagonal.hyperpriors = tied.hyperpriors = alike
    if not undetermined:
        return [full, diagonal, *more, tied]
    return [diagonal, *more] if n_features > ALWAYS_FULL else [diagonal, full, *more]


def _levels(values):
    """The different values of a column and their numbers of rows; none if they are many."""
    for some in (values[:ENOUGH_ROWS], values):
        levels, counts = np.unique(some[~np.isnan(some)], return_counts=True)
        if len(levels) > MOST_LEVELS_OF_CODES or np.isinf(levels).any():
            return np.empty((2, 0))
    return levels, counts


def _are_answers(levels):
    """Whether different values are answers, such as 1 to 5, which lie on a grid of few places,
    wherever it begins and however wide its steps are."""
    if not 2 <= len(levels) <= MOST_LEVELS:
        return False
    step = step_of(np.diff(levels))
    return step is not None and np.ptp(levels) <= (MOST_LEVELS - 0.5) * step


def _are_codes(levels, counts):
    """Whether a column has few different values far from a grid, such as postal codes or doses.
    Their distances say nothing about how probable they are: Gaussian clusters separate them."""
    often = levels[counts >= ROWS_OF_CODE]
    if len(levels) < 3 or len(often) < (2 if len(levels) <= MOST_LEVELS else 0.5 * len(levels)):
        return False
    return _are_sparse(levels) and (len(often) < 3 or _are_sparse(often))


def _are_sparse(levels):
    """Whether different values leave gaps in a grid, also if they are logarithms or roots."""
    gaps, (least, most) = np.diff(levels), GAPS_OF_COUNTS
    grow = np.diff(gaps) >= 0.0
    if len(gaps) >= MONOTONE and (grow.all() or not grow.any()):
        return False  # rounded to one digit, say
    if least < gaps[1] / gaps[0] < most and gaps.argmax() == 0:
        return False  # scaled logarithms or roots of small counts
    with np.errstate(over="ignore", invalid="ignore"):
        gaps = [np.diff(own) for own in (levels, levels**2, np.exp(levels), 10.0**levels)]
    return all(_leave_gaps(own) for own in gaps if np.isfinite(own).all() and own.min() > 0.0)


def _leave_gaps(gaps):
    """Whether these gaps are those of values on no grid, or far from filling it."""
    step = step_of(gaps)
    if step is None:
        return True
    places = np.rint(gaps / step)
    if len(gaps) >= MOST_LEVELS:
        return np.median(places) > PLACES_BETWEEN
    # Neighbours on the grid on two sides of a gap may be clusters.
    runs = np.diff([-1, *np.flatnonzero(places > 1.0), len(gaps)])
    return places.sum() > SPARSE * (len(gaps) + 1) and 2 * np.count_nonzero(runs == 1) >= len(runs)


def _possibly_discrete(X):
    """The table of rows in memory, if columns may be codes, answers or counts; otherwise None."""
    rows = given_rows(X)
    if isinstance(rows, np.ndarray) and rows.dtype.kind == "f" and rows.ndim == 2:
        if not any(map(_may_be_discrete, rows[:ENOUGH_ROWS].T)):
            return None  # without a copy of many rows
    return None if is_dask(X) else as_table(rows, numbers=True)


def _columns_of_kinds(columns, codes):
    """Positions of answers, of counts and of columns that follow from these: three lists of int. A
    third of the columns hold some. Answers need not be near a mean, and large counts vary more."""
    answers = _columns_of_answers(columns, codes)
    firsts = {d: columns.levels[d][0][:2].tolist() for d in codes}
    known = [d for d, first in firsts.items() if first not in ([0.0, 1.0], [1.0, 2.0])]
    # Small counts have as few levels as answers; other columns show that they are counts.
    certain = [d for d in answers if not _are_small_counts(columns[d].values)]
    counts, follow = _columns_of_counts(columns, [*known, *certain])
    if counts:
        answers = certain
    elif certain != answers:
        counts, follow = _columns_of_counts(columns, [*known, *answers])
    return answers, counts, follow


class _Numbers(dict):
    """Columns of numbers by their positions in a table."""

    @functools.cached_property
    def _rows(self):
        values = [column.values for column in self.values()]
        order = random_order(lambda at: np.column_stack([x[at] for x in values]), len(values[0]))
        return order[:ENOUGH_ROWS]

    @functools.cached_property
    def levels(self):
        """Different values of each column, and their numbers of rows, as of `_levels`."""
        return {d: _levels(column.values) for d, column in self.items()}

    def some_rows(self, chosen):
        """Rows of these columns that show how they depend on each other: (n_rows, n_chosen)."""
        return np.column_stack([self[d].values[self._rows] for d in chosen])


def _columns_of_codes(columns):
    """Positions of columns of codes, and of codes that follow from others: two lists of int. Many
    that follow from each other are points, such as places, which may be clusters."""
    codes = [d for d, own in columns.levels.items() if _are_codes(*own)]
    if codes:
        rows = columns.some_rows(columns)
        codes = codes if 2 * len(np.unique(rows, axis=0)) > len(rows) else []
    ranks = {d: np.unique(columns.some_rows([d]), return_inverse=True)[1].ravel() for d in codes}
    follow = {
        (d, of)
        for d, of in itertools.permutations(codes, 2)
        if (ranks[d].max(), of) <= (ranks[of].max(), d) and _are_groups(ranks[d], ranks[of])
    }
    points = {d for pair in follow if ranks[pair[0]].max() >= MOST_LEVELS for d in pair}
    copies = {d for d, _ in follow} - points
    kept = [d for d in codes if d not in copies | points]
    if len(kept) + len(copies) == len(columns) and len(kept) < FEWEST_ANSWERS:
        return [], []
    return kept, sorted(copies)


def _columns_of_answers(columns, codes):
    """Positions of columns of answers, such as 1 to 5, if they are categories: list of int."""
    levels = {d: own for d, (own, _) in columns.levels.items()}
    answers = [d for d in levels if d not in codes and _are_answers(levels[d])]
    n_others = len(columns) - len(answers) - sum(len(own) == 1 for own in levels.values())
    enough = n_others > 0 or len(answers) >= FEWEST_ANSWERS
    # Gaussian clusters separate two values, however many other columns tell clusters.
    if not enough or (2 * len(answers) < n_others and all(len(levels[d]) > 2 for d in answers)):
        return []
    n_rows = len(columns[answers[0]].values)
    few = n_rows < FEWEST_ROWS * sum(len(levels[d]) - 1 for d in answers)
    depend = few or _depend(columns.some_rows(answers), [levels[d] for d in answers])
    return [] if depend else answers


def _columns_of_counts(columns, answers):
    """Positions of columns of counts, if enough of these begin at 0 or 1 and some have more levels
    than answers, and of such that follow from these and answers: two lists of int. Those that
    begin later are counts, too, unless they vary less."""
    values = {d: columns[d].values[~columns[d].gaps] for d in columns if d not in answers}
    values = {d: own for d, own in values.items() if len(own) and own.min() < own.max()}
    whole = [d for d in values if _are_counts(values[d])]
    first = [d for d in whole if values[d].min() <= 1.0]
    enough = len(first) >= FEWEST_ANSWERS and 2 * len(first) >= len(values) - len(whole)
    are_large = any(values[d].max() >= MOST_LEVELS for d in first)
    if not enough or not (are_large or all(_are_small_counts(values[d]) for d in first)):
        return [], []
    # Three standard errors of the variance of a Poisson law.
    shares = {d: 1.0 - 3.0 * np.sqrt(2.0 / len(values[d])) for d in whole}
    counts = [d for d in whole if d in first or values[d].var() >= shares[d] * values[d].mean()]
    found = np.array([*answers, *counts])
    follow = {*found[_following(columns.some_rows(found))].tolist()}.difference(answers)
    counts = [d for d in counts if d not in follow]
    return (counts, sorted(follow)) if len(counts) >= FEWEST_ANSWERS else ([], [])


def _may_be_discrete(values):
    """Whether some rows of a column do not rule out that it holds answers or counts."""
    levels = np.unique(values[~np.isnan(values)])
    return len(levels) <= MOST_LEVELS_OF_CODES or (levels == np.rint(levels)).all()


def _are_counts(values):
    """Whether numbers may be counts, which have more than two values, and some of them twice."""
    if values.min() < 0.0 or values.max() >= LARGEST_COUNT:
        return False
    whole = (values == np.rint(values)).all()
    return bool(whole and 2 < len(np.unique(values)) < len(values))


def _are_small_counts(values):
    """Whether a negative binomial law suits answers from 0 as well as shares do, by their BIC."""
    values = values[~np.isnan(values)]
    levels, n_rows = np.unique(values, return_counts=True)
    if not np.array_equal(levels, np.arange(len(levels))):
        return False
    mean, variance, n = values.mean(), values.var(), len(values)
    size = mean**2 / max(variance - mean, 1e-3 * mean)
    found = stats.nbinom.logpmf(levels, size, size / (size + mean))
    return bool(n_rows @ (found - np.log(n_rows / n)) > -0.5 * (len(levels) - 3) * np.log(n))


def _depend(values, levels):
    """Whether columns of answers follow from others or exclude each other, as copies, totals and
    one-hot codes do: each combination of these would be a cluster of independent categories."""
    n_columns, most = len(levels), max(map(len, levels))
    levels = [np.pad(own, (0, most - len(own)), constant_values=np.nan) for own in levels]
    is_level = (values[:, :, None] == levels).reshape(len(values), -1).astype(np.float64)
    counts, by_pair = is_level.sum(axis=0), (n_columns, most, n_columns, most)
    both = (is_level.T @ is_level).reshape(by_pair)
    expected = np.outer(counts, counts).reshape(by_pair) / len(values)
    sizes = np.count_nonzero(counts.reshape(n_columns, most), axis=1)
    larger = np.maximum.outer(sizes, sizes)
    lacks = np.where(both > 0.0, 0.0, expected).max(axis=(1, 3)) >= FEWEST_EXPECTED
    depend = (np.count_nonzero(both, axis=(1, 3)) <= larger) | ((larger == 2) & lacks)
    vary = sizes > 1  # a rare answer may be in none of these rows
    if (depend & np.outer(vary, vary) & ~np.eye(n_columns, dtype=bool)).any():
        return True
    return len(_following(values)) > 0


def _sums_among(others, columns, discrete):
    """Positions of numbers that follow from answers and counts, as sums do, not from numbers."""
    if not others:
        return []
    follow = _follow(columns.some_rows([*discrete, *others]))[len(discrete) :]
    return np.array(others)[follow & ~_follow(columns.some_rows(others))].tolist()


def _following(values):
    """Positions of columns that follow from others of smaller means, as totals and copies do."""
    order = values[~np.isnan(values).any(axis=1)].sum(axis=0).argsort(kind="stable")
    return order[_follow(values[:, order])]


def _follow(values):
    """Whether each column follows from those before it: (n_columns,)."""
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) <= values.shape[1]:
        return np.zeros(values.shape[1], dtype=bool)
    values = values / np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    values -= values.mean(axis=0)
    rest = np.abs(np.diagonal(np.linalg.qr(values, mode="r")))
    return rest < 1e-9 * np.linalg.norm(values, axis=0)


def laws_by_name(asked, bound, X):
    """Laws among which short fits choose, if "auto" or "mixed" was asked for: dict from names to
    Likelihood, the preferred one first. `bound` is what was asked for, with the columns of X."""
    if isinstance(asked, Automatic):
        return {_name_of(law): law for law in laws_for(X)}
    is_table = len(given_shape(X)) == 2  # otherwise the check of X raises an error
    found = bound._bound() if isinstance(asked, Mixed) and is_table else []
    return {
        f"{name}: {law!r}": bound._with(lambda at, was, new=law, to=name: new if at == to else was)
        for name, part, own in found
        if isinstance(part, Gaussian) and _may_covary(bound, own, X)
        for law in (Gaussian(), part)
    }


def _name_of(law):
    """Code of a law; of several, with their numbers of columns."""
    words = [f"{part!r} of {len(own)} columns" for part, own in law.by_columns(0)]
    return " and ".join(words) if isinstance(law, Product) else repr(law)


def _may_covary(product, positions, X):
    """Whether the part of the columns at `positions` can have covariances: the rows determine
    them, and the sampler draws missing entries."""
    n_rows, columns = (*given_shape(X), 1)[0], _columns(X)
    if is_dask(X) or not 2 <= len(positions) <= min(ALWAYS_FULL, n_rows // 2):
        return False
    have_gaps = any(columns[d].gaps.any() for d in positions)
    # Samplers of rows in blocks cannot draw missing entries.
    return not (have_gaps and product.suits_blocks(n_rows, len(columns)))


class Mixed(Product):
    """ "mixed": a likelihood for each type of column."""

    n_errors = 1.0  # covariances of few independent columns cost little

    def __init__(self):
        super().__init__([(*_part(kind), []) for kind in ("float", "bool", "category")])

    def get_params(self, deep=True):
        return {}

    def for_columns(self, X):
        """The `Product` for the columns of X. Raises ValueError if the types of columns do not
        determine their likelihoods, and warns of floats without fractions."""
        findings = check_up(X)
        product = _of_findings(X, findings)

        # Covariances describe copies of numbers.
        described = "float" if laws_by_name(self, product, X) else None
        copies = [found.is_copy and found.type != described for found in findings]
        twice = "columns of X follow from others and count twice, which divides clusters"
        takes = 'likelihood="mixed" takes these columns of X as'
        ways = "\nskdpm.suggest_likelihood(X) returns a Product with other likelihoods for them"
        doubtful = [found.is_doubtful and found.type for found in findings]
        for chosen, words, advice in (
            (copies, f"{twice}: leave them out", ""),
            ([kind == "float" for kind in doubtful], f"{takes} measurements:", ways),
            ([kind == "category" for kind in doubtful], f"{takes} categories:", ""),
        ):
            if any(chosen):
                warn(f"{words}{_report(X, findings, chosen)}{advice}")
        return product

    def for_batch(self, X):
        """See `Likelihood`. Later rows may repeat categories of a batch, and vary in constants."""
        return _of_findings(X, check_up(X, batch=True)).keeping_columns()


@dataclass(frozen=True)
class Finding:
    """What the check-up of a table says of a column.

    - `type`: str. Kind by the type of the column, a key of `PARTS`.
    - `kind`: str or None. Proposed kind; None: the column should be left out.
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


def suggest_likelihood(X) -> Product:
    """Suggest a likelihood for a table with columns of several kinds.

    >>> import warnings
    >>> import numpy as np
    >>> import pandas as pd
    >>> from skdpm import suggest_likelihood
    >>> rng = np.random.default_rng(0)
    >>> guests = pd.DataFrame({
    ...     "guest": [f"G{i:04}" for i in range(60)],
    ...     "price": rng.normal(90.0, 15.0, 60),
    ...     "nights": rng.poisson(4.0, 60),
    ...     "meal": rng.choice(["none", "breakfast"], 60),
    ... })
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     suggest_likelihood(guests)
    Product([
        ('numeric', Gaussian(covariance_type='diag'), ['price']),
        ('categorical', Categorical(), ['meal']),
        ('counts', NegativeBinomial(), ['nights']),
    ])

    Columns are judged by their types and values. Its answer is a start: edit it where you know
    more. It also answers where ``likelihood="mixed"`` refuses to guess, as for whole numbers.

    Whole numbers, also as floats with missing entries, are codes of categories if they have two
    different values or lie between 1 and 7. Otherwise they are counts if they begin at 0 or 1 and
    stay below 10,000, and measurements if not. 0 and 1 are "boolean".

    Parameters
    ----------
    X : DataFrame or array-like of shape (n_samples, n_features)
        Rows for `fit`.

    Returns
    -------
    likelihood : Product
        Parts "numeric" (`Gaussian`, for 2 to 32 columns with two rows for each with covariances),
        "boolean" (`Bernoulli`), "categorical" (`Categorical`) and "counts" (`NegativeBinomial`),
        as far as X has columns for them. Its repr is Python code.

    Warns
    -----
    UserWarning
        About columns that are left out (identifiers, times, text, constants, and what follows from
        another column), whole numbers, measurements of two values, skewed amounts, numbers in
        strings, and marks of missing entries or other values of many rows, with lines of code.
    """
    X = given_rows(X)
    if not (isinstance(X, Table) or is_dask(X) or sp.issparse(X)):
        X = check_array(X, dtype=None, ensure_all_finite=False)
    findings = check_up(X)
    report, product = _report(X, findings), _proposal(X, findings)
    if product is None:
        raise ValueError(f"no column of X suits a likelihood:{report or ' X has no columns'}")
    if report:
        warn(f"look at these columns of X before you fit the likelihood:{report}")
    return product


def check_up(X, batch=False):
    """Judge all columns of a table by types and values.

    - `batch`: bool. Whether other rows follow, in which entries may be equal or differ.

    Returns `findings`: list of Finding
    """
    if sp.issparse(X):
        raise TypeError('X is sparse: use likelihood="relational" for a network, or X.toarray()')
    table = as_table(X)
    findings = []
    for d, column in enumerate(_columns(X)):
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
    return findings if batch or is_dask(X) else _with_copies(X, findings)


def _with_copies(X, findings):
    """Findings that name copies: earlier numbers on another scale, or categories with other names,
    of ranges of a number or of groups of others. Columns of parts are independent given the
    cluster, so copies count twice."""
    names, first, found, columns = _names(X), {}, [], _columns(X)
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
        if len(rows) < FEWEST_IN_RANGES or not _are_groups(codes[rows], finer[rows]):
            return False
    n_rows = np.unique(finer[known], return_counts=True)[1]
    shares = np.unique(codes[known], return_counts=True)[1] / len(known)
    odds = -logsumexp(n_rows[:, None] * np.log(shares), axis=1).sum()
    return len(n_rows) >= 2 * len(shares) and odds > LEAST_LOG_ODDS


def _are_groups(codes, finer):
    """Whether all rows of one of the finer codes have the same code."""
    pairs = finer.astype(np.int64) * (codes.max() + 1) + codes
    return len(np.unique(pairs)) == len(np.unique(finer))


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


def _fill_of(column):
    """`Fill` of a column of numbers, or None."""
    if column.kind not in ("float", "integer") or np.isinf(column.values).any():
        return None
    return filled_columns(column.values[:, None]).get(0)


def _of_numbers(column, batch):
    known, fill = column.values[~np.isnan(column.values)], _fill_of(column)
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


def _report(X, findings, chosen=None):
    """A line for each remarkable group of columns, of those that are chosen; None: of all, also
    about those that are skewed or have marks of missing entries or a value of many rows."""
    names, columns, groups = _names(X), _columns(X), {}
    for d, finding in enumerate(findings):
        words = finding.words
        if words and finding.kind is not None:
            words += f"; {PARTS[finding.kind][1].__name__} is proposed"
        if words and (chosen is None or chosen[d]):
            groups.setdefault((words, finding.form), []).append(d)
    lines = []
    for (words, form), own in groups.items():
        if form is not None:
            words += f"; to make numbers of them: {CodeFor(X, names).with_numbers(own, form)}"
        lines.append(f"{listed(own, names)}: {words}")
    if chosen is None and columns:
        used = {d: columns[d] for d, finding in enumerate(findings) if finding.kind is not None}
        fills = {d: fill for d, column in used.items() if (fill := _fill_of(column))}
        values = np.zeros((len(columns[0].values), len(columns)))
        for d, column in used.items():
            if findings[d].kind == "float":
                values[:, d] = column.values
        found = doubtful_columns(values, SLIGHTLY_SKEWED, {}) | fills
        lines += [words_about(found, X, values, names, "\n- ")] if found else []
    return "".join(f"\n- {line}" for line in lines)


def _proposal(X, findings):
    """The `Product` that the findings propose; None without columns."""
    names = _names(X) or range(len(findings))
    parts = _parts(names, [finding.kind for finding in findings])
    product = Product(parts) if parts else None
    numeric = [d for d, finding in enumerate(findings) if finding.kind == "float"]
    if _may_covary(product, numeric, X):
        product.set_params(numeric=Gaussian())
    return product


def _of_findings(X, findings):
    """The `Product` by the types of the columns. Raises ValueError if columns are refused."""
    if any(finding.refused for finding in findings):
        product = _proposal(X, findings)
        paste = ""
        if product is not None:
            used = sorted({type(likelihood).__name__ for _, likelihood, _ in product.parts})
            paste = (
                "\nPass a Product instead. This one is a start, which skdpm.suggest_likelihood(X) "
                "returns, too; it leaves out what cannot be used:\n"
                f"from skdpm.mixture.likelihoods import {', '.join(used)}, Product\n"
                f"likelihood = {product!r}"
            )
        raise ValueError(
            'likelihood="mixed" does not guess what columns of X mean:'
            f"{_report(X, findings)}{paste}"
        )
    parts = _parts(range(len(findings)), [finding.type for finding in findings])
    return Product(parts or [(*_part("float"), [])]).for_columns(X)


def _parts(names, kinds):
    """Parts with the columns of these names, of these kinds."""
    pairs = [*zip(names, kinds, strict=True)]
    columns = {kind: [name for name, own in pairs if own == kind] for kind in PARTS}
    return [(*_part(kind), chosen) for kind, chosen in columns.items() if chosen]


def _part(kind):
    name, cls = PARTS[kind]
    return name, cls(covariance_type="diag") if cls is Gaussian else cls()


def _names(X):
    table = as_table(X)
    return None if table is None else table.names


def _columns(X):
    """The columns of a table or of an array of numbers, without values if these are elsewhere."""
    table = as_table(X, numbers=True)
    if table is not None:
        return table.columns()
    X = X if hasattr(X, "dtype") else np.asarray(X)
    kind = KINDS_OF_ARRAYS.get(X.dtype.kind, str(X.dtype))
    return [Column(kind, np.empty(0))] * X.shape[1] if X.ndim == 2 else []
