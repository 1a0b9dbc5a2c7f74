# SPDX-License-Identifier: BSD-3-Clause
"""Which columns of numbers follow from others, as totals, products and logarithms do."""

import numpy as np

from skdpm.mixture.likelihoods.laws.recorded import step_of

# Fewest rows, also for each column, that show a product; and shares of rows that are positive, and
# in which it holds up to rounding.
FEWEST_ROWS, ROWS_OF_COLUMN, OFTEN = 30, 5, 0.95
# Largest share of the variance of a product that others do not explain, before rounding is looked
# at; largest error by rounding, in standard deviations; and by how much estimates enlarge it.
UNEXPLAINED, COARSE, SLACK = 0.01, 0.1, 1.5


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
    """Positions of columns to be left out, because products of powers of the others determine
    them up to rounding, as height and weight do a body mass index: list of int.

    Linear functions, as totals, may stay: covariances describe them. A product is curved, and
    needs several normal clusters where there is one. Of the columns in it that one leaves without
    which the others are least correlated: the others may be nearly independent.
    """
    positive = (values > 0.0).mean(axis=0) >= OFTEN
    positive &= ~(values < 0.0).any(axis=0) & ~np.isinf(values).any(axis=0)
    left, left_out = np.flatnonzero(positive), []
    values = values[(values[:, left] > 0.0).all(axis=1)]
    left = left[np.ptp(values[:, left], axis=0) > 0.0] if len(values) else left
    if len(values) < max(FEWEST_ROWS, ROWS_OF_COLUMN * len(left)):
        return []
    steps = [step_of(np.diff(np.unique(column))) for column in values[:, left].T]
    errors = np.zeros(values.shape[1])
    errors[left] = [0.0 if step is None else 0.5 * step for step in steps]
    while len(left) > 1:
        own, error = values[:, left], np.broadcast_to(errors[left], (len(values), len(left)))
        logs, ridge = np.log(own), 1e-12 * np.eye(len(left))
        unexplained = 1.0 / np.diagonal(np.linalg.inv(np.corrcoef(logs.T) + ridge))
        found = [
            j
            for j in np.flatnonzero(unexplained < UNEXPLAINED)
            if _is_linear(logs, error / own, j) and not _is_linear(own, error, j)
        ]
        if not found:
            break
        correlations = np.corrcoef(own.T) + ridge
        rest = [np.delete(np.delete(correlations, j, axis=0), j, axis=1) for j in found]
        j = found[np.argmax([np.linalg.slogdet(own)[1] for own in rest])]
        left_out.append(int(left[j]))
        left = np.delete(left, j)
    return left_out


def _is_linear(values, errors, j):
    """Whether column j is a linear function of the others up to small errors of rounding."""
    errors, own = np.delete(errors, j, axis=1), errors[:, j]
    others, column = np.delete(values, j, axis=1), values[:, j] - values[:, j].mean()
    others = (others - others.mean(axis=0)) / (spreads := others.std(axis=0))
    weights = np.linalg.lstsq(others, column, rcond=None)[0]
    error = SLACK * (own + errors @ np.abs(weights / spreads)) + 1e-9 * column.std()
    few = np.abs(column - others @ weights) > error
    return np.median(error) <= COARSE * column.std() and few.mean() <= 1.0 - OFTEN
