# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of numbers follow from others, as totals and products do."""

from typing import NamedTuple

import numpy as np

from skdpm.mixture.likelihoods.laws.recorded import step_of

# Fewest rows, also for each column, that show products, and the share of rows that are positive.
FEWEST_ROWS, ROWS_OF_COLUMN, OFTEN = 30, 5, 0.95
# Largest share of the variance of the logarithms of a product that those of others do not explain:
# absolute, and as a multiple of that of rounding; and how many times larger it is at least for the
# numbers themselves. Largest ratio of shares that are alike.
MOST, SLACK, CURVED, ALIKE = 4e-4, 2.0, 9.0, 1.1
# Shares of the variance of a column in a relation: most that the others leave of it and of each of
# them, and least of each; and the smallest singular value of these, as a share of the largest.
REST, REST_OF_OTHERS, LEAST_SHARE, LEAST_ANGLE = 1e-3, 1e-2, 1e-4, 1e-6
# Largest number of columns in no part, times the square of that of others: below a second.
MOST_WORK = 300_000


def sums_among(others, columns, discrete):
    """Positions of numbers that follow from answers and counts, as sums do, not from numbers."""
    if not others:
        return []
    follow = _follow(columns.some_rows([*discrete, *others]))[len(discrete) :]
    return np.array(others)[follow & ~_follow(columns.some_rows(others))].tolist()


def following(values):
    """Positions of columns that follow from others of smaller means, as totals and copies do."""
    order = values[~np.isnan(values).any(axis=1)].sum(axis=0).argsort(kind="stable")
    return order[_follow(values[:, order])]


def _follow(values):
    """Whether each column is a linear function of those before it: (n_columns,)."""
    values = values[np.isfinite(values).all(axis=1)]
    if len(values) <= values.shape[1]:
        return np.zeros(values.shape[1], dtype=bool)
    values = values / np.maximum(np.abs(values).max(axis=0), np.finfo(float).tiny)
    values -= values.mean(axis=0)
    rest = np.abs(np.diagonal(np.linalg.qr(values, mode="r")))
    return rest < 1e-9 * np.linalg.norm(values, axis=0)


def products_among(values):
    """Positions of columns to be left out, because products of powers of others determine them up
    to rounding, as height and weight do a body mass index: list of int.

    Linear functions, as totals, may stay: covariances describe them. Products are curved, and need
    several normal clusters where there is one. Of the columns in one that leaves which the others
    explain best, so that these are least correlated; of some that they explain alike, the last.
    """
    usual, gaps, left_out = (values > 0.0) & np.isfinite(values), np.isnan(values), []
    if len(values) < FEWEST_ROWS:
        return left_out
    left = np.flatnonzero(((usual | gaps).mean(axis=0) >= OFTEN) & (gaps.mean(axis=0) < 0.5))
    values = values[usual[:, left].all(axis=1)]
    left = [d for d in left.tolist() if (values[:, d] != values[:1, d]).any()]
    if len(values) < max(FEWEST_ROWS, ROWS_OF_COLUMN * len(left)):
        return left_out
    rounding = {d: _rounding(values[:, d]) for d in left}
    while len(left) > 1:
        own, of_rounding = values[:, left], np.array([rounding[d] for d in left])
        of_powers, weights = _unexplained(np.log(own))
        of_sums, _ = _unexplained(own / own.max(axis=0))
        exact = of_powers < 1e-9 + SLACK * weights**2 @ of_rounding
        found = np.flatnonzero(exact & (of_powers < MOST) & (CURVED * of_powers < of_sums))
        if len(found) == 0:
            break
        left_out.append(left.pop(found[of_sums[found] <= ALIKE * of_sums[found].min()][-1]))
    return left_out


class Relation(NamedTuple):
    """What columns have in common: origin + weights @ x is 0, of entries x or of their logarithms.

    - `columns`, `weights`: ndarrays of shape (n_columns,). Positions, the determined one first.
    - `is_whole`, `follows`: ndarrays of bool, (n_columns,). Whether columns have whole numbers,
      and whether the others determine them.
    - `ends`: ndarray of shape (2, n_columns). Least and greatest entries that are computed.
    """

    columns: np.ndarray
    weights: np.ndarray
    origin: float
    are_logs: bool
    is_whole: np.ndarray
    follows: np.ndarray
    ends: np.ndarray

    def fill(self, X):
        """Fill the entry of each row of X that alone is missing in these columns."""
        gaps = np.isnan(X[:, self.columns])
        rows = np.flatnonzero((gaps.sum(axis=1) == 1) & gaps[:, self.follows].any(axis=1))
        own = X[np.ix_(rows, self.columns)]
        gap = np.isnan(own).argmax(axis=1)
        with np.errstate(all="ignore"):
            terms = self.weights * (np.log(own) if self.are_logs else own)
            terms[np.arange(len(rows)), gap] = 0.0
            found = -(self.origin + terms.sum(axis=1)) / self.weights[gap]
            found = np.exp(found) if self.are_logs else found
        found = np.where(self.is_whole[gap], np.rint(found), found)
        low, high = self.ends[:, gap]
        X[rows, self.columns[gap]] = np.where((low <= found) & (found <= high), found, np.nan)


def relations_among(values, columns, others):
    """How each of `columns` follows from the `others`, or is constant: list of `Relation`."""
    if len(values) < FEWEST_ROWS or len(columns) * len(others) ** 2 > MOST_WORK:
        return []
    known = ~np.isnan(values).all(axis=0)
    found = []
    for d in columns:
        own = np.array([d, *(j for j in others if known[j])])
        both = (_relation(values, own, are_logs) for are_logs in (False, True))
        found += [relation for relation in both if relation is not None][:1]
    return found


def _relation(values, columns, are_logs):
    """The relation of the first of these columns to the others, or None."""
    own = values[:, columns]
    if are_logs:
        usual = (~(own <= 0.0)).mean(axis=0) >= OFTEN
        if not usual[0]:
            return None
        columns, own = columns[usual], np.where(own > 0.0, own, np.nan)[:, usual]
    entries = own[np.isfinite(own).all(axis=1)]
    if len(entries) < max(FEWEST_ROWS, ROWS_OF_COLUMN * len(columns)):
        return None  # they may agree by chance
    own = np.log(entries) if are_logs else entries
    with np.errstate(over="ignore", invalid="ignore"):
        means, spreads = own.mean(axis=0), own.std(axis=0)
    if not np.isfinite(spreads).all():
        return None
    means, spreads = np.where(
        np.ptp(own, axis=0) > 0.0, [means, spreads], [own[0], [1.0] * len(columns)]
    )
    own = (own - means) / spreads
    weights = np.linalg.lstsq(own[:, 1:], own[:, 0], rcond=LEAST_ANGLE)[0]
    used = np.append(True, weights**2 > LEAST_SHARE)
    own, entries, columns = own[:, used], entries[:, used], columns[used]
    weights = np.append(-1.0, np.linalg.lstsq(own[:, 1:], own[:, 0], rcond=LEAST_ANGLE)[0])
    rest = np.mean((own @ weights) ** 2)
    # Clusters far apart, or a few remote rows, make correlations large, but not exact.
    rounding = np.array([_rounding(column, are_logs) for column in entries.T])
    if not rest < min(REST, 1e-9 + 2.0 * SLACK * weights**2 @ rounding):
        return None
    follows, weights = weights**2 > rest / REST_OF_OTHERS, weights / spreads[used]
    ends = np.array([entries.min(axis=0), entries.max(axis=0)])
    ends[:, 0] = -np.finfo(float).max, np.finfo(float).max  # no law has the first one
    is_whole = (entries == np.rint(entries)).all(axis=0)
    return Relation(columns, weights, -weights @ means[used], are_logs, is_whole, follows, ends)


def _unexplained(values):
    """Share of the variance of each column that is no linear function of the others, (n_columns,),
    and the weights of standardised columns in what is left, (n_columns, n_columns)."""
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        inverse = np.linalg.inv(np.corrcoef(values.T) + 1e-12 * np.eye(values.shape[1]))
        return 1.0 / np.diagonal(inverse), inverse / np.diagonal(inverse)[:, None]


def _rounding(column, are_logs=True):
    """Variance of the rounding of a column or of its logarithms, as a share of theirs."""
    if np.ptp(column) == 0.0 or (step := step_of(np.diff(np.unique(column)))) is None:
        return 0.0
    if not are_logs:
        return step**2 / 12.0 / column.var()
    return np.mean((step / column) ** 2) / 12.0 / np.log(column).var()
