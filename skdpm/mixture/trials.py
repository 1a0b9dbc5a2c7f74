# SPDX-License-Identifier: BSD-3-Clause
"""The choice between laws of many columns: held-out densities of short fits to some rows.

No law is best for all tables of many columns. Full covariances describe most of them best, but few
rows do not determine them; the columns of others are independent within clusters, or their
clusters differ along a few axes only (`laws_for`). So a short chain runs under each law, on the
same rows, and the mean log density of rows that it has not seen decides.

The first law stays unless another is better by N_ERRORS standard errors, those of the mean
difference over the held-out rows: one row far from all others must not decide. Few rows are held
out in turn. The streams are those of a fixed seed, so equal rows have equal laws.
"""

import warnings

import numpy as np

from skdpm._rows import validate_rows

# Most rows that are used, or rows times squared columns if these are at least FEWEST rows. One in
# FOLDS is held out, in turn until ENOUGH are.
MOST_ROWS, MOST_WORK, FEWEST = 1000, 2e6, 300
FOLDS, ENOUGH = 5, 50
# Length of the chains.
N_WARMUP, N_DRAWS = 15, 5
N_ERRORS = 2.0


def scores_of_laws(estimator, laws, X):
    """Log densities of held-out rows by short fits under each law.

    Returns
    -------
    scores : ndarray of shape (n_laws, n_held_out)
        Natural logarithms; -inf under a law that does not fit the rows. No rows are held out if
        the laws do not take X, which then is an error of the fit.
    """
    trial = estimator._copied()
    try:
        rows = validate_rows(trial, X, laws[0], reset=True)
    except (TypeError, ValueError):
        return np.empty((len(laws), 0))
    rng = np.random.default_rng(0)
    n_rows = min(MOST_ROWS, max(FEWEST, int(MOST_WORK / rows.shape[1] ** 2)))
    rows = rows[rng.permutation(len(rows))[:n_rows]]
    n_held_out = -(-len(rows) // FOLDS)
    if n_held_out == len(rows):
        return np.empty((len(laws), 0))
    trial.set_params(
        sampler="auto",
        n_warmup=N_WARMUP,
        n_draws=N_DRAWS,
        thin=1,
        n_chains=1,
        init="auto",
        point_estimate="last",
        store_labels=True,
        max_time=None,
        target_ess=None,
        warm_start=False,
        verbose=0,
        random_state=0,
    )
    scores = []
    for first in range(0, len(rows), n_held_out):
        held_out = rows[first : first + n_held_out]
        others = np.delete(rows, slice(first, first + n_held_out), axis=0)
        scores.append([_score(trial.set_params(likelihood=law), others, held_out) for law in laws])
        if first + n_held_out >= ENOUGH:
            break
    return np.concatenate(scores, axis=1)


def _score(trial, rows, held_out):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return trial.fit(rows).score_samples(held_out)
        except (ArithmeticError, ValueError):  # rows that this law refuses
            return np.full(len(held_out), -np.inf)


def best_law(scores):
    """Position of the law to choose, from `scores_of_laws`."""
    best, largest = 0, 0.0
    for law in range(1, len(scores)):
        with np.errstate(invalid="ignore"):
            gains = scores[law] - scores[0]
        if len(gains) < 2 or np.isnan(gains).any():
            continue
        gain = gains.mean()
        if gain > largest and gain > N_ERRORS * gains.std(ddof=1) / np.sqrt(len(gains)):
            best, largest = law, gain
    return best
