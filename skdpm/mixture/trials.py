# SPDX-License-Identifier: BSD-3-Clause
"""The choice between laws of many columns or answers: held-out densities of short fits.

No law is best for all tables of many columns. Full covariances describe most of them best, but few
rows do not determine them; the columns of others are independent within clusters, or their
clusters differ along a few axes only (`laws_for`). So a short chain runs under each law, on the
same rows, and log densities of rows that it has not seen decide. Columns that are categories under
the last law are their codes 0, 1, ... under all: elsewhere, too, probabilities of codes decide.

`best_law` goes by standard errors of the mean difference over the held-out rows: a few rows far
from all others must not decide. Few rows are held out in turn until the first law is better than
the others by N_ERRORS. The streams are those of a fixed seed, and the order of rows in X says
nothing.
"""

import warnings
from numbers import Real

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import _num_samples

from skdpm._rows import validate_rows
from skdpm._tables import take_rows
from skdpm.mixture.likelihoods.composite.automatic import Automatic
from skdpm.mixture.likelihoods.laws.recorded import Recording, random_order

# Most rows that are used, or rows times squared columns if these are at least FEWEST rows. One in
# FOLDS is held out, in turn until ENOUGH are, or FEWEST_DECISIVE if the first law is clearly best.
MOST_ROWS, MOST_WORK, FEWEST = 1000, 2e6, 300
FOLDS, ENOUGH, FEWEST_DECISIVE = 5, 30, 10
# Length of the chains.
N_WARMUP, N_DRAWS = 15, 5
# Places in the cells of a row.
N_PLACES = 16
N_ERRORS = Automatic.n_errors
# Share of `max_time` for a short fit.
SHARE_OF_TIME = 0.05


def scores_of_laws(estimator, laws, X):
    """Log densities of held-out rows by short fits under each law.

    Returns
    -------
    scores : ndarray of shape (n_laws, n_held_out)
        Natural logarithms; -inf under a law that does not fit the rows, or if the best one, of
        answers or counts, needs more components than numbers. Of no rows if X is wrong.
    """
    trial = estimator._copied()
    trial._warn_of_columns = lambda *_: None  # `fit` itself warns; looking at columns takes time

    X = take_rows(getattr(X, "X", X), slice(None))

    def taken(at):
        return validate_rows(trial, take_rows(X, at), laws[-1], True)

    try:
        rows = taken(random_order(taken, _num_samples(X))[:MOST_ROWS])
        rows = rows[: max(FEWEST, int(MOST_WORK / rows.shape[1] ** 2))]
    except (TypeError, ValueError):
        return np.empty((len(laws), 0))
    n_held_out = -(-len(rows) // FOLDS)
    if n_held_out == len(rows):
        return np.empty((len(laws), 0))
    limit = estimator.max_time
    trial.set_params(
        sampler="auto",
        n_warmup=N_WARMUP,
        n_draws=N_DRAWS,
        thin=1,
        n_chains=1,
        init="auto",
        point_estimate="last",
        store_labels=estimator.noise is not None,
        max_time=SHARE_OF_TIME * limit if isinstance(limit, Real) else None,
        target_ess=None,
        warm_start=False,
        verbose=0,
        random_state=0,
    )
    views = _views(laws, rows.shape[1])
    compared = any(recorded.moves for _, recorded in views)
    scored, sizes = np.empty((2, len(laws), 0)), np.zeros(len(laws))
    for first in range(0, len(rows), n_held_out):
        of_fold, of_law = _scores_of_fold(trial, laws, views, rows, first, first + n_held_out)
        scored, sizes = np.append(scored, of_fold, axis=2), sizes + of_law
        scores, cells = scored
        if compared:
            # Few places in a cell of many columns say less about narrow laws: densities choose
            # between laws of numbers, and the cells of the best one compare it with the last law.
            best = best_law(scores[:-1])
            shift = np.nan_to_num(cells[best] - scores[best], nan=0.0)
            scores = np.append(scores[:-1] + shift, scores[-1:], axis=0)
        decided = all(_is_better(scores[0], other) for other in scores[1:])
        if scores.shape[1] >= (FEWEST_DECISIVE if decided else ENOUGH) or limit is not None:
            break
    # Zeros or tails of their own cause, as in images, would be components of a law of counts.
    if compared and best_law(scores) == len(laws) - 1 and sizes[-1] > sizes[best]:
        scores[-1] = -np.inf
    return scores


def _views(laws, n_features):
    """For each law the columns to fit it to, without those that the last law leaves out, as sums
    of others; and the `Recording`, of cells of width 1, of those of these that are discrete under
    other laws but not under this one: list of tuples."""
    by_law = [law.by_columns(n_features) for law in laws]
    used = np.unique(np.concatenate([own for _, own in by_law[-1]]))
    coded = [{int(d) for part, own in law if part.discrete for d in own} for law in by_law]
    compared = set.union(*coded) - set.intersection(*coded)
    places = [np.searchsorted(used, [*compared - own]).tolist() for own in coded]
    recorded = [Recording(dict.fromkeys(own, (None, 0.5))) for own in places]
    return [*zip([used] * (len(laws) - 1) + [slice(None)], recorded, strict=True)]


def _scores_of_fold(trial, laws, views, rows, start, stop):
    """Scores of rows from `start` to `stop` by fits to the others, (2, n_laws, n_held_out), of
    densities and of cells; and mean numbers of components, (n_laws,)."""
    found = []
    for law, (columns, recorded) in zip(laws, views, strict=True):
        seen = rows[:, columns]
        others = np.delete(seen, slice(start, stop), axis=0)
        trial.set_params(likelihood=law)
        found.append(_score(trial, others, seen[start:stop], recorded))
    scores, sizes = zip(*found, strict=True)
    return np.swapaxes(scores, 0, 1), np.array(sizes)


def _score(trial, rows, held_out, recorded):
    """Log densities of held-out rows, and those of the cells of `recorded`, of width 1, the mean
    over N_PLACES places; and the mean number of components."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trial.fit(rows)
            size, scores = trial.n_components_samples_.mean(), trial.score_samples(held_out)
            if not recorded.moves:
                return (scores, scores), size
            firsts = len(held_out) * np.arange(N_PLACES)
            places = [trial.score_samples(recorded.spread(held_out, first)) for first in firsts]
            return (scores, logsumexp(places, axis=0) - np.log(N_PLACES)), size
        except (ArithmeticError, ValueError):  # rows that this law refuses
            return np.full((2, len(held_out)), -np.inf), 0.0


def best_law(scores, n_errors=N_ERRORS):
    """Position of the law to choose, from `scores_of_laws`: the first one than which no other is
    better by `n_errors` standard errors."""
    usable = np.flatnonzero(np.isfinite(scores).all(axis=1))
    for law in usable:
        if not any(_is_better(scores[other], scores[law], n_errors) for other in usable):
            return int(law)
    return 0


def _is_better(scores, others, n_errors=N_ERRORS):
    """Whether the mean of scores is above that of others of the same rows, beyond chance."""
    if len(scores) < 2:
        return False
    if np.isneginf(others).any():
        return bool(np.isfinite(scores).all())
    with np.errstate(invalid="ignore"):  # infinite scores
        gains = scores - others
        return gains.mean() > n_errors * gains.std(ddof=1) / np.sqrt(len(gains))
