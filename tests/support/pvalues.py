"""The only place where p-values become pass or fail.

Two-stage rule: p >= 1e-3 passes; otherwise run once more with a fresh seed and four times the
draws, and fail if that p < 1e-4. False alarms are at most 1e-7 per test, and power grows where it
is needed (cf. Gandy & Scott 2020, Unit testing for MCMC). An impossible observation (p = 0) or a
NaN fails at once.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy.stats import binom, chi2, kstest

PASS_AT = 1e-3
FAIL_BELOW = 1e-4
FACTOR = 4  # draws of the second stage, in multiples of the first
# Draws of the first stage, in multiples of a run's own number: conftest.py sets it.
first_factor = 1
MIN_EXPECTED = 5  # smaller cells are pooled (Cochran's rule)
IMPOSSIBLE = 1e-9
FEWEST_DRAWS = 150  # which a part of them is not to go below: else too few cells are left


class Cells(NamedTuple):
    """What a run observed: counts of independent draws, and their law."""

    counts: np.ndarray
    probabilities: np.ndarray
    states: object = None  # names of the cells for messages, indexable like the flat counts


class WorstP(NamedTuple):
    """The smallest of several p-values and what it is worth among so many."""

    name: str
    p: float
    corrected: float


def _flat(counts, probabilities):
    counts = np.asarray(counts).ravel()
    probabilities = np.asarray(probabilities, dtype=float).ravel()
    if counts.shape != probabilities.shape:
        raise ValueError(f"{len(counts)} counts but {len(probabilities)} probabilities")
    if (counts < 0).any() or counts.sum() == 0:
        raise ValueError("counts must be non-negative and not all zero")
    if not (probabilities >= 0).all() or abs(probabilities.sum() - 1) > 1e-8:
        raise ValueError(f"probabilities must sum to 1, got {probabilities.sum()}")
    return counts, probabilities


def chi_squared_p(counts, probabilities):
    """P-value of Pearson's chi-squared test of counts of independent draws.

    Cells with an expectation below 5 are pooled into one; if that one is still below 5 it joins
    the smallest of the others. A visit to a cell of probability 0 gives p = 0. So that pooling
    cannot hide visits to a nearly impossible cell, the binomial tail of a pooled cell (times the
    number of pooled cells) is returned instead where it is below 1e-9.

    Parameters
    ----------
    counts, probabilities : array-like of the same shape
        Probabilities sum to 1.

    Returns
    -------
    p : float
    """
    counts, probabilities = _flat(counts, probabilities)
    if counts[probabilities == 0].any():
        return 0.0
    n = counts.sum()
    rare = n * probabilities < MIN_EXPECTED
    tails = binom.sf(counts[rare] - 1, n, probabilities[rare]) * rare.sum()
    if (tails < IMPOSSIBLE).any():
        return float(tails.min())

    observed, expected = counts[~rare].astype(float), n * probabilities[~rare]
    pooled_observed, pooled_expected = counts[rare].sum(), n * probabilities[rare].sum()
    if pooled_expected >= MIN_EXPECTED:
        observed = np.append(observed, pooled_observed)
        expected = np.append(expected, pooled_expected)
    elif len(observed):
        smallest = expected.argmin()
        observed[smallest] += pooled_observed
        expected[smallest] += pooled_expected
    if len(observed) < 2:
        raise ValueError(f"{n} draws leave fewer than two cells: the test cannot fail")
    statistic = ((observed - expected) ** 2 / expected).sum()
    return float(chi2.sf(statistic, len(observed) - 1))


def worst_cells(cells, n_worst=5):
    """Lines naming the cells with the largest terms of chi-squared: observed and expected."""
    counts, probabilities = _flat(cells.counts, cells.probabilities)
    expected = counts.sum() * probabilities
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(counts == expected, 0.0, (counts - expected) ** 2 / expected)
    lines = []
    for cell in np.argsort(-terms, kind="stable")[:n_worst]:
        name = cell if cells.states is None else cells.states[cell]
        lines.append(
            f"  {name}: observed {counts[cell]}, expected {expected[cell]:.6g}, "
            f"chi-squared term {terms[cell]:.4g}"
        )
    return "\n".join(lines)


def part_of(n_draws, factor, fewest=FEWEST_DRAWS):
    """`factor` times a number of draws; if that is small, no fewer than `fewest` or all."""
    return max(round(factor * n_draws), min(n_draws, fewest))


def whole_of(n_rows, factor):
    """`factor` times a number of rows for `mean_p`, never fewer: from a part of them, covariances
    of skewed columns are too uncertain."""
    return n_rows * max(1, round(factor))


def _run(run, seed, factor):
    """The p-value of a run (NaN where it is none) and the text that explains it."""
    outcome = run(seed, factor)
    if isinstance(outcome, tuple):
        cells = Cells(*outcome)
        p, detail = chi_squared_p(cells.counts, cells.probabilities), "\n" + worst_cells(cells)
    else:
        p, detail = float(outcome), ""
    if not 0 <= p <= 1:
        p = math.nan
    where = f"p = {p:.3g}, {factor} x draws, seed {seed.entropy} spawn_key {seed.spawn_key}"
    return p, where + detail


def assert_p(run, *, seed_sequence):
    """Two-stage test of `run`.

    Parameters
    ----------
    run : callable
        run(seed_sequence, factor) makes `factor` times its own number of draws from that seed
        and returns a p-value, or `Cells` (or a plain tuple like it) to be tested by chi-squared.
    seed_sequence : numpy.random.SeedSequence
        Children are spawned from it, so that several calls may share one.

    Returns
    -------
    p : float
        Of the first stage: uniform if the law holds.
    """
    stages = []
    for factor, limit in ((first_factor, PASS_AT), (FACTOR * first_factor, FAIL_BELOW)):
        p, text = _run(run, seed_sequence.spawn(1)[0], factor)
        stages.append((p, text))
        if not p > 0:  # 0 or NaN
            break
        if p >= limit:
            return stages[0][0]
    message = "\n".join(text for _, text in stages)
    raise AssertionError(f"the draws do not follow the law\n{message}")


def mean_p(Y, mean):
    """P-value of the hypothesis that independent rows have this mean: chi-squared, from their
    estimated covariances.

    Parameters
    ----------
    Y : ndarray of shape (n, m)
        As many rows as `whole_of` gives.
    mean : ndarray of shape (m,)
        Entries below 0.01 are summed up: few rows may differ there.

    Returns
    -------
    p : float
        0 where a column that is the same in all rows has another mean.
    """
    small = np.abs(mean) < 0.01
    Y = np.column_stack([Y[:, ~small], Y[:, small].sum(axis=1)])
    gap = Y.mean(axis=0) - np.append(mean[~small], mean[small].sum())
    constant = Y.std(axis=0) < 1e-9
    if (np.abs(gap[constant]) > 1e-9).any():
        return 0.0
    gap, covariance = gap[~constant], np.atleast_2d(np.cov(Y[:, ~constant].T))
    # Columns may sum to a constant.
    statistic = len(Y) * gap @ np.linalg.pinv(covariance, rcond=1e-8, hermitian=True) @ gap
    rank = np.linalg.matrix_rank(covariance, tol=1e-8 * covariance.max(), hermitian=True)
    return float(chi2.sf(statistic, rank))


def correct_for_number(p, n_tests):
    """Chance that the smallest of `n_tests` independent p-values is at most p (Sidak)."""
    if not p < 1:  # 1 or NaN
        return p
    return -math.expm1(n_tests * math.log1p(-p))


def worst_p(p_values):
    """The smallest p-value of a matrix of tests, corrected for their number.

    Parameters
    ----------
    p_values : dict of str to float

    Returns
    -------
    worst : WorstP
        A NaN counts as the worst.
    """
    if not p_values:
        raise ValueError("no p-values")
    name = min(p_values, key=lambda key: -1 if math.isnan(p_values[key]) else p_values[key])
    return WorstP(name, p_values[name], correct_for_number(p_values[name], len(p_values)))


def assert_p_matrix(runs, *, seed_sequence):
    """Two-stage test of many runs as one, so that a matrix alarms no more often than one test.

    All run once; those whose corrected p is below 1e-3 run again with four times the draws, and
    the matrix fails if one is then below 1e-4, corrected for the number of all.

    Parameters
    ----------
    runs : dict of str to callable
        As in `assert_p`.
    seed_sequence : numpy.random.SeedSequence

    Returns
    -------
    worst : WorstP
        Of the first stage.
    """
    seeds = dict(zip(runs, seed_sequence.spawn(len(runs)), strict=True))
    first = {name: _run(run, seeds[name], first_factor) for name, run in runs.items()}
    p_values = {name: p for name, (p, _) in first.items()}
    worst = worst_p(p_values)
    failures = []
    for name, (p, text) in first.items():
        if correct_for_number(p, len(runs)) >= PASS_AT:
            continue
        if p > 0:
            p, again = _run(runs[name], seeds[name].spawn(1)[0], FACTOR * first_factor)
            if correct_for_number(p, len(runs)) >= FAIL_BELOW:
                continue
            text += "\n" + again
        failures.append(f"{name}: {text}")
    if failures:
        failures.insert(0, f"{len(failures)} of {len(runs)} runs do not follow their law")
        raise AssertionError("\n".join(failures))
    return worst


def uniform_p(p_values):
    """P-value of the hypothesis that p-values of correct tests are uniform (nightly)."""
    return float(kstest(np.asarray(p_values), "uniform").pvalue)
