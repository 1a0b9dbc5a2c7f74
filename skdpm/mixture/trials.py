# SPDX-License-Identifier: BSD-3-Clause
"""The choice between laws of many columns or answers: held-out densities of short fits.

No law is best for all tables of many columns. Full covariances describe most of them best, but few
rows do not determine them; the columns of others are independent within clusters, or their
clusters differ along a few axes only (`laws_for`). So a short chain runs under each law, on the
same rows, and log densities of rows that it has not seen decide. Columns that are categories under
the last law are their codes 0, 1, ... under all: elsewhere, too, probabilities of codes decide.

`best_law` goes by standard errors of the mean difference over the held-out rows: a few rows far
from all others must not decide. Few rows are held out in turn until the first law is better than
the others by N_ERRORS. Streams have a fixed seed, and the order of the rows of X says nothing.
"""

import warnings
from numbers import Real

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import _num_samples

from skdpm._rows import validate_rows
from skdpm._tables import take_rows
from skdpm.mixture.likelihoods.composite.automatic import Automatic
from skdpm.mixture.likelihoods.composite.product import Product
from skdpm.mixture.likelihoods.counts.negative_binomial import NegativeBinomial
from skdpm.mixture.likelihoods.gaussian.gaussian import Gaussian
from skdpm.mixture.likelihoods.laws.recorded import Recording, random_order, with_spikes

# Most rows that are used, or rows times squared columns if these are at least FEWEST rows. One in
# FOLDS is held out, in turn until ENOUGH are, or FEWEST_DECISIVE if the first law is clearly best.
MOST_ROWS, MOST_WORK, FEWEST = 1000, 2e6, 300
FOLDS, ENOUGH, FEWEST_DECISIVE = 5, 30, 10
# Parameters of the fits, their share of `max_time`, and places in the cells of a row.
SHORT = {"n_warmup": 15, "n_draws": 5, "thin": 1, "n_chains": 1, "target_ess": None, "verbose": 0}
USUAL = {"sampler": "auto", "init": "auto", "point_estimate": "last", "warm_start": False}
SHARE_OF_TIME, N_PLACES = 0.05, 16
N_ERRORS = Automatic.n_errors
# Components of a law of counts, for each one of logarithms, above which they are parts of ranges.
PARTS = 1.8


def scores_of_laws(estimator, laws, X):
    """Log densities of held-out rows by short fits under each law.

    Returns
    -------
    scores : ndarray of shape (n_laws, n_held_out)
        Natural logarithms; -inf under a law that does not fit the rows, or if the best one, of
        answers or counts, needs more components than numbers. Of no rows if X is wrong.
    """
    trial, limit = estimator._copied(), estimator.max_time
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
    time = SHARE_OF_TIME * limit if isinstance(limit, Real) else None
    has_noise = estimator.noise is not None
    trial.set_params(**SHORT, **USUAL, max_time=time, store_labels=has_noise, random_state=0)
    tried = _tried(laws, rows)
    compared = any(cells.moves for _, _, cells, _ in tried)
    scored, sizes = np.empty((2, len(tried), 0)), np.zeros(len(tried))
    for first in range(0, len(rows), n_held_out):
        held_out = slice(first, first + n_held_out)
        found, of_fold = zip(*(_score(trial, *own, held_out) for own in tried), strict=True)
        scored, sizes = np.append(scored, np.swapaxes(found, 0, 1), axis=2), sizes + of_fold
        scores, cells = scored[0, : len(laws)], scored[1]
        if compared:
            # Few places in a cell of many columns say less about narrow laws: densities choose
            # between laws of numbers, and the cells of the best one compare it with the last law.
            best, last = best_law(scores[:-1]), len(laws) - 1
            shift = np.nan_to_num(cells[best] - scores[best], nan=0.0)
            scores = np.append(scores[:-1] + shift, scores[-1:], axis=0)
        decided = all(_is_better(scores[0], other) for other in scores[1:])
        if scores.shape[1] >= (FEWEST_DECISIVE if decided else ENOUGH) or limit is not None:
            break
    # Zeros or tails of their own cause, as in images, would be components of a law of counts, and
    # so would parts of the range of amounts, whose logarithms have far fewer.
    if compared and best_law(scores) == last:
        are_parts = cells[-1].mean() > cells[last].mean() and sizes[last] > PARTS * sizes[-1]
        scores[-1] = np.where(are_parts or sizes[last] > sizes[best], -np.inf, scores[-1])
    return scores


def _tried(laws, rows):
    """Each law with what `_score` needs: list of tuples. Laws of numbers are fitted without the
    columns that the last law leaves out. Cells are those of columns that are discrete under other
    laws but not under this one. Logarithms of counts, log(1 + x), are the last element."""
    by_law = [law.by_columns(rows.shape[1]) for law in laws]
    used = np.unique(np.concatenate([own for _, own in by_law[-1]]))
    coded = [{int(d) for part, own in law if part.discrete for d in own} for law in by_law]
    compared = set.union(*coded) - set.intersection(*coded)
    tried = []
    for law, by_part, own in zip(laws, by_law, coded, strict=True):
        some = rows if law is laws[-1] else rows[:, used]
        if law is not laws[-1] and isinstance(law, Product):
            kept = [(part, np.isin(used, at).nonzero()[0]) for part, at in by_part]
            law = Product([(f"part_{k}", *own) for k, own in enumerate(kept)])
        tried.append((law, some, *_cells(some, np.searchsorted(used, [*compared - own]))))
    for own in (own for part, own in by_law[-1] if isinstance(part, NegativeBinomial)):
        law, some = laws[-1].changed_by_columns(_of_logarithms, rows), rows.astype(np.float64)
        some[:, own] = np.log1p(some[:, own])
        tried.append((law, some, *_cells(some, own, are_logs=True)))
    return tried


def _cells(rows, columns, are_logs=False):
    """Cells of whole numbers, or of their logarithms: `Recording`; and logarithms of the volumes
    of those of each row. Those of spikes are as wide as chains see them."""
    cells, volumes = {}, np.zeros(len(rows))
    for d in columns:
        known = ~np.isnan(rows[:, d])
        values, at, counts = np.unique(rows[known, d], return_inverse=True, return_counts=True)
        halves = with_spikes(values, 0.5 * np.exp(-values * are_logs), counts)
        cells[int(d)] = values, halves
        volumes[known] += np.log(2.0 * halves[at])
    return Recording(cells), volumes


def _of_logarithms(law, _):
    return Gaussian(covariance_type="diag") if isinstance(law, NegativeBinomial) else law


def _score(trial, law, rows, cells, volumes, held_out):
    """Log densities of held-out rows under a fit of a law to the others, and log probabilities of
    their cells, the mean over N_PLACES places; and the mean number of components."""
    others, rows = np.delete(rows, held_out, axis=0), rows[held_out]
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            trial.set_params(likelihood=law).fit(others)
            size, found = trial.n_components_samples_.mean(), trial.score_samples(rows)
            if not cells.moves:
                return (found, found), size
            firsts = len(rows) * np.arange(N_PLACES)
            spread = np.concatenate([cells.spread(rows, first) for first in firsts])
            scores = trial.score_samples(np.asarray(spread)).reshape(N_PLACES, -1)
            return (found, logsumexp(scores, axis=0) - np.log(N_PLACES) + volumes[held_out]), size
        except (ArithmeticError, ValueError):  # rows that this law refuses
            return np.full((2, len(rows)), -np.inf), 0.0


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
