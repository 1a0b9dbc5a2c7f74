# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are equal up to rounding.

Copies that went through single precision, other units or two exports differ by far less than the
spread of a column. Other rows hardly ever do: the number of pairs within a distance grows at least
in proportion to the distance. So the number of groups of rows that are linked by differences of at
most t shows copies if it is nearly the same for APART times t.
"""

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, minimum_spanning_tree
from scipy.spatial import cKDTree

from skdpm.partitions import groups_of_equal

# Largest difference of copies, in spreads of a column; how many times farther other rows are,
# except this share; the fewest rows that are copies; neighbours that are sought.
LARGEST, APART, MOST_BETWEEN, FEWEST, N_NEIGHBOURS = 5e-5, 30.0, 0.1, 3, 8
# Mean number of rows of a group, by rows, above which groups are narrow clusters.
MOST_EQUAL = 10.0
# Columns by whose means near rows of more columns are found.
MOST_COLUMNS = 16
# Number of differences that are tried, down to round-off.
N_TRIED, ROUND_OFF = 60, 1e-15
# Rows that are looked at first.
MANY_ROWS = 50_000


def rounding_in(X, told, contents):
    """Largest difference of rows that are equal up to rounding, in spreads of a column, 0 without
    such rows; and these spreads, (n_features,). Of many rows, the middle of a column tells.

    - `told`: ndarray of bool, (n_rows,). Rows that may be copies.
    - `contents`: ndarray of shape (n_rows,). Words that are the same for equal rows.
    """
    rows = np.flatnonzero(told)
    for step in (-(-len(rows) // MANY_ROWS) or 1, 1):
        values = [np.unique(column[~np.isnan(column)]) for column in X[rows[::step]].T]
        if min(map(len, values)) > 1:
            break
    units = np.array([_spread(own) if len(own) > 1 else 1.0 for own in values])
    if not np.isfinite(units).all():
        return 0.0, units
    if len(rows) > MANY_ROWS:  # neighbours in a column, as copies are
        column = X[:, np.argmax([len(own) for own in values])]
        half = 0.5 * MANY_ROWS / len(rows)
        low, high = np.nanquantile(column[rows[::step]], [0.5 - half, 0.5 + half])
        rows = np.flatnonzero(told & (column >= low) & (column <= high))[:MANY_ROWS]
    some = rows[np.unique(contents[rows], return_index=True)[1]]
    return (_rounding(_links(X[some], units)) if len(some) >= 2 * FEWEST else 0.0), units


def without_rounding(X, told, contents, largest, units):
    """Rows of which the first of those that are equal up to rounding is in the place of each, with
    equal entries where these are equal up to rounding; words that are the same for equal rows; and
    the largest difference of these, in spreads of a column. X, `contents` and 0 without such rows.
    The other parameters are those and the results of `rounding_in`.
    """
    rows = np.flatnonzero(told)
    first, group = groups_of_equal(contents[rows])
    links = _links(X[rows[first]], units)
    links.data[links.data > largest] = 0.0
    links.eliminate_zeros()
    linked = connected_components(links, directed=False)[1]
    if np.bincount(linked)[linked].mean() > MOST_EQUAL:
        return X, contents, 0.0
    equal = rows[first[np.unique(linked, return_index=True)[1][linked[group]]]]
    X, contents = np.array(X, dtype=np.float64), contents.copy()
    X[rows], contents[rows] = X[equal], contents[equal]
    largest = links.data.max()
    coarse = np.column_stack([_coarse(*own) for own in zip(X.T, largest * units, strict=True)])
    return coarse, contents, float(largest)


def _spread(values):
    """Range of the bulk of the different values of a column."""
    with np.errstate(over="ignore", invalid="ignore"):
        low, high = np.quantile(values.astype(np.float64), [0.1, 0.9])
        return high - low if np.isfinite(np.ptp(1.0 * values)) else np.inf


def _links(rows, units):
    """Links of different rows to groups: the minimum spanning forest of those that are near, by
    their largest difference in a column."""
    gaps = np.isnan(rows)
    places = np.where(gaps, 0.0, rows / units)
    places = np.hstack([places, gaps]) if gaps.any() else places
    n, ranks = len(places), np.arange(2, min(N_NEIGHBOURS + 1, len(places)) + 1)
    seen = places
    if places.shape[1] > MOST_COLUMNS:  # near rows are near in means of columns
        weights = np.random.default_rng(0).normal(size=(places.shape[1], MOST_COLUMNS))
        seen = places @ (weights / np.abs(weights).sum(axis=0))
    tree = cKDTree(seen, balanced_tree=False, compact_nodes=False)
    distances, nearest = tree.query(seen, ranks, p=np.inf, distance_upper_bound=APART * LARGEST)
    one, rank = np.nonzero(np.isfinite(distances))
    other = nearest[one, rank]
    lengths = np.maximum(np.abs(places[one] - places[other]).max(axis=1), ROUND_OFF)
    return minimum_spanning_tree(coo_array((lengths, (one, other)), shape=(n, n)).tocsr())


def _rounding(links):
    """Largest difference of copies by rounding, from the links of different rows; 0 without."""
    lengths, n_rows = np.sort(links.data), links.shape[0]
    tried = np.geomspace(ROUND_OFF, LARGEST, N_TRIED)
    n_copies = np.searchsorted(lengths, tried, "right")
    n_between = np.searchsorted(lengths, APART * tried, "right") - n_copies
    are_apart = n_between <= MOST_BETWEEN * np.minimum(n_copies, n_rows - n_copies)
    return tried[(n_copies >= FEWEST) & are_apart].max(initial=0.0)


def _coarse(column, rounding):
    """A column with one value for those that are equal up to rounding, if these are apart."""
    values, at = np.unique(column, return_inverse=True)
    is_first = np.append(True, ~(np.diff(values) <= rounding))
    firsts, lasts = values[is_first], values[np.append(is_first[1:], True)]
    group = is_first.cumsum() - 1
    narrow = lasts - firsts <= APART * rounding
    return np.where(narrow[group], firsts[group], values)[at]
