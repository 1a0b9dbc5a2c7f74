# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of numbers follow from others, as totals and products do."""

import numpy as np

from skdpm.mixture.likelihoods.laws.recorded import step_of

# Fewest rows, also for each column, that show products, and the share of rows that are positive.
FEWEST_ROWS, ROWS_OF_COLUMN, OFTEN = 30, 5, 0.95
# Largest share of the variance of the logarithms of a product that those of others do not explain:
# absolute, and as a multiple of that of rounding; and how many times larger it is at least for the
# numbers themselves. Largest ratio of shares that are alike.
MOST, SLACK, CURVED, ALIKE = 4e-4, 2.0, 9.0, 1.1


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
    if len(values) < FEWEST_ROWS:
        return []
    usual, left_out = (values > 0.0) & np.isfinite(values), []
    # A column that is left out cannot be imputed.
    left = np.flatnonzero((usual.mean(axis=0) >= OFTEN) & ~np.isnan(values).any(axis=0))
    values = values[usual[:, left].all(axis=1)]
    left = [d for d in left.tolist() if (values[:, d] != values[:1, d]).any()]
    if not 1 < len(left) <= len(values) / ROWS_OF_COLUMN:
        return []
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


def _unexplained(values):
    """Share of the variance of each column that is no linear function of the others, (n_columns,),
    and the weights of standardised columns in what is left, (n_columns, n_columns)."""
    with np.errstate(under="ignore", divide="ignore", invalid="ignore"):
        inverse = np.linalg.inv(np.corrcoef(values.T) + 1e-12 * np.eye(values.shape[1]))
        return 1.0 / np.diagonal(inverse), inverse / np.diagonal(inverse)[:, None]


def _rounding(column):
    """Variance of the rounding of the logarithms of a column, as a share of theirs."""
    step = step_of(np.diff(np.unique(column)))
    return 0.0 if step is None else np.mean((step / column) ** 2) / 12.0 / np.log(column).var()
