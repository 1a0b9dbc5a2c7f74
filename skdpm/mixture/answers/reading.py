# SPDX-License-Identifier: BSD-3-Clause
"""Clusters of the draws of a fit, read off the components of each draw."""

import hashlib
import itertools

import joblib
import numpy as np
from scipy.special import logit

from skdpm.mixture.answers import bricks
from skdpm.mixture.answers.basins import Neighbours
from skdpm.mixture.answers.components import MOST_COLUMNS, points_of, standardised_columns
from skdpm.mixture.rows.known import UNLABELLED
from skdpm.mixture.state._state import smallest
from skdpm.partitions import relabel_by_size

# Largest number of draws that are read; almost twice as many if their numbers of clusters differ.
MOST_READ = 40
# Largest number of pairs of components in them, which take up to 8 seconds: fewer, in the same
# ratio, if rows have more than FEW_COLUMNS columns, whose pairs take longer.
MOST_PAIRS, FEW_COLUMNS = 5 * 10**6, 5


def read_draws(
    X,
    draws,
    n_jobs=None,
    completed=None,
    known=UNLABELLED,
    adaptive=False,
    recorded=None,
    hills=None,
):
    """Clusters of draws of the partition into components.

    - `draws`: (n_chains, n_draws, n_samples), int. Components of the rows, -1 for rows of noise.
    - `completed`: dict of (int, int) to callable, or None. If chains drew missing entries: for
      some draws, given by chain and number, a function that returns the rows with these entries.
      Only these draws are read.
    - `adaptive`: bool. Whether the components of a hill are clusters where they are more than
      bricks of it; see `bricks`.
    - `recorded`: array-like (n_samples, n_features) or None. Rows as they were recorded, if X has
      rounded numbers that were spread out.
    - `hills`: dict or None. Hills of draws that an adaptive reading has found; others are added.

    Returns

    - `chosen`: (n_read,), int. Numbers of the draws that are read, evenly spaced in each chain; at
      most `MOST_READ`, fewer if they have many pairs of components (`MOST_PAIRS`), and at least
      one per chain. If the number of clusters differs between them, those halfway between them
      are read, too.
    - `clusters`: (n_chains, n_read, n_samples). Clusters by decreasing size, or as by
      `KnownLabels.clusters`, in the smallest unsigned type, or signed if rows are noise, -1.
    - `cells`, `likely`: The same of most probable components of the rows (`DrawnHills.clusters`),
      and if components are clusters where this is more probable than not. In these a search finds
      clusters that overlap.
    """
    numbers = np.arange(draws.shape[1])
    if completed is not None:
        numbers = np.array(sorted({s for _, s in completed}))
    has_noise = draws.min() < 0
    columns, drawn = _hills_by_draw(X, draws, completed, known, adaptive, recorded)
    pool = joblib.Parallel(n_jobs=n_jobs, require="sharedmem")
    hills = {} if hills is None else hills

    def read(chosen, columns=None, evidence=None):
        places, grid = _different(draws, chosen, completed is None)
        new = [key for key in places if key not in hills]
        found = pool(joblib.delayed(drawn)(places[key], columns) for key in new)
        hills.update(zip(new, found, strict=True))
        found = [hills[key] for key in places]
        if columns is not None:
            evidence = bricks.evidence_of(found, grid)
        odds, by_basins = zip(*(draw.log_odds(evidence) for draw in found), strict=True)

        def placed(i, divided, of_cells):
            labels = found[i].clusters(known, divided, by_basins[i], of_cells)
            return smallest(labels, labels.max(initial=0) + 1, has_noise)

        def at_levels(levels, of_cells):
            pairs = list(zip(grid.ravel(), levels.ravel(), strict=True))
            # The number of hills above a level determines which these are.
            kinds = [(i, (odds[i] > level).sum()) for i, level in pairs]
            different = dict(zip(kinds, pairs, strict=True))
            chosen = ((i, odds[i] > level, of_cells) for i, level in different.values())
            of_kinds = pool(itertools.starmap(joblib.delayed(placed), chosen))
            of_kinds = dict(zip(different, of_kinds, strict=True))
            return np.reshape([of_kinds[kind] for kind in kinds], (*grid.shape, -1))

        levels = _levels(*grid.shape)
        ways = (levels, False), (levels, True), (np.zeros(grid.shape), True)
        return evidence, *(at_levels(*way) for way in ways)

    at, between = _evenly(numbers, draws, min(X.shape[1], MOST_COLUMNS))
    evidence, *found = read(numbers[at], columns)
    if len(between) and np.ptp(found[0].max(axis=2)) > 0:
        at = np.sort(np.concatenate([at, between]))
        _, *found = read(numbers[at], None, evidence)
    return numbers[at], *found


def _hills_by_draw(X, draws, completed, known, adaptive, recorded):
    """Columns that give evidence, or None, and a function that finds the `DrawnHills` of the draw
    at a place, its chain and number. The parameters are those of `read_draws`."""
    has_noise = draws.min() < 0
    points = points_of(X) if completed is None else None
    columns = neighbours = None
    if adaptive:
        has_basins = completed is None and not has_noise and not known.unites
        has_basins = has_basins and 0 < points.shape[1] <= bricks.MOST_CELL_COLUMNS
        if has_basins and not np.isnan(points).any():
            neighbours = Neighbours.of(points, bricks.step_between(len(points)))
        columns = standardised_columns(X if recorded is None else recorded, MOST_COLUMNS)

    def drawn(place, columns):
        found = points if completed is None else points_of(completed[place]())
        given = None if completed is None else X
        options = has_noise, adaptive, columns, given, neighbours
        return bricks.DrawnHills.of(found, draws[place], known, *options)

    return columns, drawn


def _levels(n_chains, n_draws):
    """Log odds above which the components of a hill of each draw are clusters: (n_chains,
    n_draws). They are quantiles of the logistic law, evenly in each chain, so that the share of
    draws in which they are is the probability. All hills of a draw have one level, because their
    laws are often of one kind: the rule is wrong about all or none."""
    shares = (np.arange(n_chains * n_draws) + 0.5) / (n_chains * n_draws)
    shares = shares.reshape(n_draws, n_chains).T
    return logit(np.random.default_rng(0).permuted(shares, axis=1))


def _evenly(numbers, draws, n_columns):
    """Positions in `numbers` of the draws to read, and of those between them that are read if
    their numbers of clusters differ, unless pairs of components are too many."""
    n_components = draws.max(axis=2) + 1.0
    work = np.mean(n_components**2) * max(n_columns / FEW_COLUMNS, 1.0)
    most_pairs = MOST_PAIRS / max(work, 1.0)
    n_read = min(len(numbers), max(int(min(MOST_READ, most_pairs) // len(draws)), 1))
    at = np.linspace(len(numbers) - 1, 0, n_read).round().astype(int)[::-1]
    between = np.setdiff1d((at[:-1] + at[1:]) // 2, at)
    return at, between if most_pairs >= 2 * MOST_READ else between[:0]


def _different(draws, chosen, are_complete):
    """Chain and number of each different draw, by a key: dict; and which of them each draw of each
    chain is: (n_chains, n_chosen). Equal partitions of complete rows have equal hills."""
    places = [(c, s) for c in range(len(draws)) for s in chosen]
    digests = (hashlib.blake2b(draws[place].tobytes()).digest() for place in places)
    keys = list(digests) if are_complete else places
    first = dict(zip(reversed(keys), reversed(places), strict=True))
    number = {key: i for i, key in enumerate(first)}
    return first, np.array([number[key] for key in keys]).reshape(len(draws), -1)


def join_fragments(labels, draws):
    """Labels without fragments: clusters whose rows are in clusters more than twice as large in
    most draws. A search leaves rows alone that may be in each of several clusters. Each row of a
    fragment joins the cluster with whose rows it is together most often, if it ever is.

    - `labels`: (n_samples,), int. Clusters 0, ..., K - 1.
    - `draws`: (n_chains, n_draws, n_samples), int. Draws of clusters, none negative.

    Returns `joined`: (n_samples,), int64. Clusters by decreasing size.
    """
    draws = draws.reshape(-1, len(labels))
    sizes = np.bincount(labels)
    is_small = np.zeros(len(labels))
    for draw in draws:
        is_small += np.bincount(draw)[draw] <= 2 * sizes[labels]
    is_fragment = np.bincount(labels, is_small) / sizes < 0.5 * len(draws)
    if is_fragment.all() or not is_fragment.any():
        return labels
    rows = np.flatnonzero(is_fragment[labels])
    together = np.zeros((len(rows), len(sizes)))
    for draw in draws:
        shares = np.zeros((draw.max() + 1, len(sizes)))
        np.add.at(shares, (draw, labels), 1.0 / sizes[labels])
        together += shares[draw[rows]]
    together[:, is_fragment] = -1.0
    is_with = together.max(axis=1) > 0.0
    joined = labels.copy()
    joined[rows[is_with]] = together[is_with].argmax(axis=1)
    return relabel_by_size(joined)
