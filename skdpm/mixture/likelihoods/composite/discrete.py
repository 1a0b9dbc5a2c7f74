# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of numbers are codes, answers or counts, and which follow from these."""

import functools
import itertools

import numpy as np
from scipy import stats

from skdpm.mixture.likelihoods.composite.derived import following
from skdpm.mixture.likelihoods.laws.recorded import random_order, step_of

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
# First number that is too large for a count.
LARGEST_COUNT = 10_000


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


def may_be_discrete(values):
    """Whether some rows of a column do not rule out that it holds answers or counts."""
    levels = np.unique(values[~np.isnan(values)])
    return len(levels) <= MOST_LEVELS_OF_CODES or (levels == np.rint(levels)).all()


class Numbers(dict):
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


def columns_of_codes(columns):
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
        if (ranks[d].max(), of) <= (ranks[of].max(), d) and are_groups(ranks[d], ranks[of])
    }
    points = {d for pair in follow if ranks[pair[0]].max() >= MOST_LEVELS for d in pair}
    copies = {d for d, _ in follow} - points
    kept = [d for d in codes if d not in copies | points]
    if len(kept) + len(copies) == len(columns) and len(kept) < FEWEST_ANSWERS:
        return [], []
    return kept, sorted(copies)


def columns_of_kinds(columns, codes):
    """Positions of answers, of counts and of columns that follow from these: three lists of int.
    Answers need not be near a mean, and large counts vary more."""
    answers = _columns_of_answers(columns, codes)
    firsts = {d: columns.levels[d][0][:2].tolist() for d in codes}
    known = [d for d, first in firsts.items() if first not in ([0.0, 1.0], [1.0, 2.0])]
    # Small counts have as few levels as answers; other columns show that they are counts.
    few = 3 * len(answers) < sum(len(own) != 1 for own, _ in columns.levels.values())
    certain = [
        d
        for d in answers
        if len(columns.levels[d][0]) == 2 or not (few or _are_small_counts(columns[d].values))
    ]
    counts, follow = _columns_of_counts(columns, [*known, *certain])
    if counts:
        answers = certain
    elif certain != answers:
        counts, follow = _columns_of_counts(columns, [*known, *answers])
    return answers, counts, follow


def _columns_of_answers(columns, codes):
    """Positions of columns of answers, such as 1 to 5, if they are categories: list of int."""
    levels = {d: own for d, (own, _) in columns.levels.items()}
    answers = [d for d in levels if d not in codes and _are_answers(levels[d])]
    n_others = len(columns) - len(answers) - sum(len(own) == 1 for own in levels.values())
    if not answers or not (n_others > 0 or len(answers) >= FEWEST_ANSWERS):
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
    follow = {*found[following(columns.some_rows(found))].tolist()}.difference(answers)
    counts = [d for d in counts if d not in follow]
    return (counts, sorted(follow)) if len(counts) >= FEWEST_ANSWERS else ([], [])


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
    return len(following(values)) > 0


def are_groups(codes, finer):
    """Whether all rows of one of the finer codes have the same code."""
    pairs = finer.astype(np.int64) * (codes.max() + 1) + codes
    return len(np.unique(pairs)) == len(np.unique(finer))
