# SPDX-License-Identifier: BSD-3-Clause
"""Rows as chains see them: recorded values, copies and remote entries.

A density can be arbitrarily high at a value or a row that occurs several times. Chains see such
rows moved a little, once for all, so that equal entries say what they can and no more.

*Recorded values*. A column of answers, whole numbers or rounded prices has few different values.
Each only says in which cell of width g the quantity lies. Chains see x + u with u about uniform on
the cell. No cluster can then gain by being narrower than a cell. This is uniform dequantisation
(Machado & Santos Silva 2005; Theis, van den Oord & Bethge 2016). By Jensen's inequality the mean
log density of x + u is a lower bound of the mean log probability of cells over their volume, so
densities are those of x + u with respect to Lebesgue measure, whatever the grid.

*Copies*. Rows that are equal in every column, more often than cells explain, come from sampling
with replacement or from repeated records. They say nothing new, and fits to rows in memory leave
them out (`copies_in`). Where they cannot, as in chunks of Dask, in a part of a product whose
other parts differ, and if rows are equal in some columns only, let m and V be the mean and the
covariance of the different rows near a row x that occurs c times, in the columns that are equal.
Chains see its second and further copies as draws of N(m + (x - m) / sqrt(c), (1 - 1 / c) V), which
have this mean and covariance over all x: a smoothed bootstrap (Silverman & Young 1987).
A few points that take many rows each are no copies, but values of their own. In `copies_in`, rows
that are equal up to rounding are copies (`without_rounding`).

*Remote entries*, such as fill values, would leave no digits to the other entries of a sum. Chains
see them at distances that grow with the logarithm of their own.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import ndtri

from skdpm._tables import ROUND_OFF
from skdpm.mixture.likelihoods.laws.rounded import MANY_ROWS, rounding_in, without_rounding
from skdpm.partitions import groups_of_equal

# Most steps between the smallest and the largest value: a finer grid matters to no cluster; and
# digits after the point that a recorded number may have.
MOST_STEPS, MOST_DIGITS = 1e6, 12
# Most values that need not fill a grid: they may be set points, recorded more finely; and largest
# ratio of the width of a cell to that of the next one where there is no grid.
FEW_VALUES, WIDEST_RATIO = 3, 3.0
# Median steps between values above which they are those of a function of a coarser grid.
MOST_GAPS = 2.25
# Least share of the entries of a spike; the gap beside it, in median gaps; most others in its
# cell; the gap, as a share of their distance; and ranges of their bulk beyond which it is far.
SHARE_IN_SPIKE, TIMES_SPACING, MOST_BESIDE, LEAST_GAP, FARTHEST_SPIKE = 0.05, 5.0, 0.1, 0.25, 10.0

# Pairs of rows that differ in one column, for each equal pair, from which on these are chance.
MOST_EXPLAINED = 0.5
# Rows of coarse columns are copies after all if pairs of equal rows are so many, in units of those
# that rows near them lead one to expect, and so many more; and if pairs that differ in one column
# are so few, in units of those that independent columns lead one to expect.
TIMES_EXPECTED, FEWEST_PAIRS, LEAST_CLOSE = 3.0, 10, 0.08
# So are those of a table that was repeated as a whole, of at least so many different rows, in less
# than this share of the combinations of values: other tables are balanced designs.
FEWEST_REPEATED, SHARE_OF_COMBINATIONS = 10, 0.5
# Different rows whose surroundings are looked at.
MOST_CENTRES = 500

# Equal entries of a column from which on they fill most of the cell. Few are hardly moved.
MANY = 5.0
# Share of entries that equal others, below which a column is not coarse if no value has MANY.
RARE = 0.05
# Different rows near a copy, in addition to the number of columns, and the number of nearest ones
# whose distance times FARTHEST others do not exceed.
N_NEAREST, N_CLOSE, FARTHEST = 6, 3, 2.5

# Ranges of the bulk beyond which an entry is remote: squares of others lose six digits by it. If
# clusters share a covariance: where a cluster of its own costs less than a wide one.
REMOTE, REMOTE_IF_SHARED = 1000.0, 3.0

# Widths of the cells of heaps, in steps of the grid: hundreds, minutes, tens, fives. A heap
# has TIMES_ABOVE as many entries as any other value of its cell, which is judged from LEAST_HEAP
# entries on. A column has heaps in this share of its cells, and at least this number, or none.
HEAPS = (1000, 500, 100, 60, 50, 30, 20, 15, 12, 10, 6, 5, 2)
TIMES_ABOVE, LEAST_HEAP, SHARE_OF_HEAPS, FEWEST_HEAPS = 2.0, 5.0, 0.75, 4

# Mean number of copies of a repeated row, by its rows, for each repeated row: more are points.
MOST_ALIKE = 1.5

# Constants of the SplitMix64 generator (Steele, Lea & Flood 2014).
GAMMA, MIX_1, MIX_2 = (
    np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


class Copies(NamedTuple):
    """Rows that are copies of earlier ones.

    first : ndarray of shape (n_different,)
        Positions of the different rows, in increasing order.
    of_row : ndarray of shape (n_rows,)
        Position, among these, of the row that each row is equal to.
    rounding : float
        Largest difference of equal rows in a column, as a share of its spread.
    """

    first: np.ndarray
    of_row: np.ndarray
    rounding: float = 0.0


def copies_in(X, classes=None):
    """Rows that are copies within their class, up to rounding: `Copies`, or None if there are
    none, or they are a few points, or coarse columns explain them."""
    told, contents = np.empty(len(X), dtype=bool), np.empty(len(X), dtype=np.uint64)
    for part in _parts(len(X)):  # all at once takes the memory of several copies of X
        told[part], contents[part] = _are_told(X[part]), _contents(X[part])
    contents[~told] = np.flatnonzero(~told)
    rounding, units = rounding_in(X, told, contents)
    if rounding == 0.0 and len(X) > MANY_ROWS:
        # Words are random, and rows with the least ones are here with all their copies.
        least = contents < np.uint64(2.0**64 * MANY_ROWS / len(X))
        if not _are_copies(X[told & least]):
            return None
    if rounding > 0.0:
        X, contents, rounding = without_rounding(X, told, contents, rounding, units)
    if not _are_copies(X):
        return None
    if classes is not None:
        contents = _mixed(contents + _mixed(classes.astype(np.uint64)))
    return Copies(*groups_of_equal(contents), rounding)


def random_order(take, n_rows):
    """Positions of rows in a random order that follows from the rows, whatever their own order.
    take(slice) returns some of them, (n_some, n_features)."""
    words = [_contents(take(part)) for part in _parts(n_rows)]
    contents = np.concatenate([np.empty(0, dtype=np.uint64), *words])
    return _mixed(contents + _ranks(contents) * MIX_2).argsort()


def _parts(n_rows):
    return [slice(at, at + MANY_ROWS) for at in range(0, n_rows, MANY_ROWS)]


def _are_copies(X):
    share, few = _share_of_copies(np.array(X, dtype=np.float64), True)
    return share > 0.0 and not few


class Spread(np.ndarray):
    """Result of `Recording.spread`."""


class Recording:
    """How rows of `fit` are recorded.

    - `cells`: dict of int to (ndarray or None, ndarray). For a column, its values and half the
      width of the cell of each. None in place of the values: all entries have the same width.
    - `scales`: (n_features,), or None. Standard deviations of the columns in which rows are
      copies, for distances of rows; 0 of others. None: no row is a copy.
    - `share`: float. Share of the rows that are copies of earlier rows.
    - `copied`: list of int, or None. Columns in which rows are copies; None: in all.
    - `ends`: (ndarray, ndarray) or None. Least and greatest entries of the bulk of the columns, if
      some entry is remote.
    - `n_ranges`: float. Ranges of the bulk beyond which entries are remote.
    """

    def __init__(self, cells, scales=None, share=0.0, copied=None, ends=None, n_ranges=REMOTE):
        self.cells = cells
        self.scales = scales
        self.share = share
        self.copied = copied
        self.ends = ends
        self.n_ranges = n_ranges

    @property
    def moves(self):
        """Whether chains see any row elsewhere."""
        return bool(self.cells) or self.scales is not None or self.ends is not None

    def spread(self, X, first=None):
        """Rows as chains see them: a `Spread`, or X itself if no row moves.

        The result is a function of the rows, whatever their order, except that equal rows may
        exchange their noise. From number `first` of a stream on it is a function of each row and
        its number: entries are anywhere in their cells, and copies stay.
        """
        if isinstance(X, Spread) or not self.moves:
            return X
        rows = np.array(X, dtype=np.float64)
        contents = _contents(rows)
        if first is None:
            ranks = _ranks(contents)
            # The sum over all rows, so that equal rows of two blocks have different noise.
            keys = _mixed(contents + contents.sum(dtype=np.uint64) + ranks * MIX_2)
        else:
            keys = _mixed(contents + np.arange(first, first + len(X), dtype=np.uint64) * MIX_2)
        for column, (values, halves) in self.cells.items():
            entries, words = rows[:, column], _words_of(keys, column)
            if values is not None:
                at = np.minimum(np.searchsorted(values, entries), len(values) - 1)
                halves = np.where(values[at] == entries, halves[at], 0.0)  # not of new values
            place = _even(entries, words) if first is None else 2.0 * _uniforms(words) - 1.0
            rows[:, column] = entries + halves * place
        if self.scales is not None and first is None:
            contents = _contents(np.asarray(X, dtype=np.float64), self.scales > 0.0)
            # Which of different rows stays does not depend on their order.
            _move_copies(rows, contents, _ranks(contents, keys, ranks), keys, self.scales)
        if self.ends is not None:
            rows = _drawn_near(rows, *self.ends, self.n_ranges)
        return rows.view(Spread)


def remote(smallest, largest, low, high, n_ranges):
    """Columns with entries from `smallest` to `largest` that are too far from the bulk, `low` to
    `high`: ndarray of bool, shape (n_columns,)."""
    with np.errstate(over="ignore", invalid="ignore"):
        return n_ranges * (high - low) < np.maximum(low - smallest, largest - high)


def _drawn_near(rows, low, high, n_ranges):
    """Rows whose remote entries are nearer, in their order: at logarithms of their distance."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        reach = n_ranges * (high - low)
        beyond = np.maximum(low - rows, rows - high)
        near = reach * (1.0 + np.log(beyond / reach) / 100.0)
        moved = np.where(rows > high, high + near, low - near)
        return np.where((reach > 0.0) & (beyond > reach), moved, rows)


def recording_of(rows, variances, ends=None, n_ranges=REMOTE, of_stream=False):
    """How rows are recorded, from their equal entries: `Recording`. `variances` of the columns are
    0 in columns without different values. Streams would divide wide cells of spikes."""
    repeated, found = [], {}
    for d, column in enumerate(rows.T):
        column = column[~np.isnan(column)]
        values, counts = np.unique(column, return_counts=True)
        if 2 * len(values) <= len(column):
            repeated.append(d)
        # A few equal pairs among very many rows of single precision are no sign of a grid.
        rare = len(values) > (1.0 - RARE) * len(column) and counts.max() <= MANY
        if 1 < len(values) < len(column) and not rare:
            found[d] = values, counts
    cells = _cells_of(found, of_stream)
    varies = np.flatnonzero(variances > 0.0)
    share, few = _share_of_copies(rows[:, varies], True)
    if few and all(d in cells and cells[d][0] is None for d in varies):
        share = 0.0  # points of a grid
    copied = None
    if share == 0.0:
        # Rows may be copies but for some columns, as places with a measurement of each day.
        repeated = [d for d in repeated if variances[d] > 0.0]
        varies = copied = [d for d in repeated if not _is_filled(rows[:, d])]
        share, few = _share_of_copies(rows[:, varies])
        share = 0.0 if few else share
    scales = None
    if share > 0.0 and not few:
        scales = np.zeros(len(variances))
        scales[varies] = np.sqrt(variances[varies])
    return Recording(cells, scales, share, copied, ends, n_ranges)


def _share_of_copies(rows, are_whole=False):
    """Share of the rows that are copies of earlier rows, 0 if coarse columns explain that rows are
    equal, which may be copies only if whole; and whether the copies are those of a few points."""
    n_rows = len(rows)
    rows = rows[_are_told(rows)]
    if rows.size == 0:
        return 0.0, False
    words = _words(rows)
    keys = words.sum(axis=1, dtype=np.uint64)
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    copies = counts[counts > 1]
    if len(copies) == 0 or len(counts) == 1:
        return 0.0, False
    # Equal rows are chance if rows that differ in one column are not much rarer.
    same = _n_pairs(counts)
    close = sum(_equal_pairs(keys - column) - same for column in words.T)
    filled = all(_is_filled(column) for column in rows.T)
    if filled or close > MOST_EXPLAINED * same:
        odds = [_n_pairs(np.array([len(rows)])) / _equal_pairs(word) - 1.0 for word in words.T]
        rare = close < LEAST_CLOSE * same * sum(odds)
        if not are_whole or not _are_coarse_copies(rows[first], counts, rare):
            return 0.0, False
    share = (copies.sum() - len(copies)) / n_rows
    # The mean number of copies of a repeated row, by its rows.
    return share, bool(MOST_ALIKE * len(copies) * copies.sum() < copies @ copies)


def _are_coarse_copies(rows, counts, are_rare):
    """Whether different rows of coarse columns, with these counts, have copies: all equally often,
    or, if rows that differ in one column are rare, far more often than those near them suggest.

    The number of rows within t places of a row, in each column, grows as (2 t + 1)^k if rows have
    k dimensions. t = 1 and 2 give k, and so the number to expect at t = 0. The dimension is at
    most the number of columns, as these may depend on each other.
    """
    places = [np.unique(column, return_inverse=True)[1] for column in rows.T]
    n_combinations = np.prod([column.max() + 1.0 for column in places])
    are_few = FEWEST_REPEATED <= len(counts) < SHARE_OF_COMBINATIONS * n_combinations
    are_repeated = are_few and bool(np.gcd.reduce(counts) > 1)
    if are_repeated or not are_rare:
        return are_repeated
    places = np.column_stack(places)
    # Rows are in the order of their words, which is random.
    centres, weights = places[:MOST_CENTRES], counts[:MOST_CENTRES]
    equal, within, beyond = cKDTree(centres).count_neighbors(
        cKDTree(places), [0.0, 1.0, 2.0], p=np.inf, weights=(weights * 1.0, counts * 1.0)
    )
    same, near, nearby = equal - weights.sum(), within - equal, beyond - equal
    expected = 0.0
    if near > 0.0:
        k = np.linspace(0.01, 30.0, 3000)
        k = np.interp(nearby / near, (5.0**k - 1.0) / (3.0**k - 1.0), k)
        expected = near / (3.0**k - 1.0)
    return bool(same > TIMES_EXPECTED * expected + 2.0 * FEWEST_PAIRS)


def _are_told(rows):
    """Which rows have enough known entries to tell copies from coincidences."""
    return np.count_nonzero(~np.isnan(rows), axis=1) >= min(2, rows.shape[1])


def _is_filled(column):
    """Whether most neighbouring values of a column are one step of a grid apart: then equal
    entries are no more than chance."""
    gaps = np.diff(np.unique(column[~np.isnan(column)]))
    if len(gaps) == 0:
        return True
    return 2 * np.count_nonzero(gaps < (1.0 + ROUND_OFF) * gaps.min()) > len(gaps)


def _equal_pairs(words):
    return _n_pairs(np.unique(words, return_counts=True)[1])


def _n_pairs(counts):
    counts = counts.astype(np.float64)
    return float(counts @ (counts - 1.0)) / 2.0


def _move_copies(rows, contents, ranks, keys, scales):
    """Replace the second and further copies of rows, equal where `scales` are positive, by draws
    from the laws of the rows near them."""
    copies, first = np.flatnonzero(ranks > 0), np.flatnonzero(ranks == 0)
    varies = np.flatnonzero(scales > 0.0)
    if len(copies) == 0 or len(first) < 2:
        return
    first = first[np.argsort(contents[first])]
    points, missing = rows[np.ix_(first, varies)], np.isnan(rows[np.ix_(copies, varies)])
    gaps = np.isnan(points)
    if gaps.any():
        centre = np.nansum(points, axis=0) / np.maximum((~gaps).sum(axis=0), 1)
        points = np.where(gaps, centre, points)
    at, own = np.unique(np.searchsorted(contents[first], contents[copies]), return_inverse=True)
    tree = cKDTree(points / scales[varies])
    n_nearest = min(len(first), len(varies) + N_NEAREST)
    distances, nearest = tree.query(tree.data[at], n_nearest)
    # The rows of another cluster are much farther.
    near = distances <= FARTHEST * distances[:, [min(N_CLOSE, n_nearest - 1)]]
    shares = near / near.sum(axis=1, keepdims=True)
    centres = sum(shares[:, [k]] * points[nearest[:, k]] for k in range(n_nearest))
    n_copies = 1.0 + np.bincount(own)[own]
    smooth = 1.0 - 1.0 / n_copies
    moved = centres[own] + np.sqrt(1.0 - smooth)[:, None] * (
        points[nearest[own, 0]] - centres[own]
    )
    for k in range(n_nearest):
        normals = ndtri(_uniforms(_words_of(~keys[copies], k)))  # of another stream of each key
        weight = normals * np.sqrt(smooth * shares[own, k])
        moved += weight[:, None] * (points[nearest[own, k]] - centres[own])
    rows[np.ix_(copies, varies)] = np.where(missing, np.nan, moved)


def _cells_of(columns, of_stream):
    """Cells of columns, as in `Recording`, from their different values and the counts of these.
    Columns without cells are points."""
    gaps, halves, uneven = {}, {}, []
    for d, (values, counts) in columns.items():
        with np.errstate(over="ignore"):
            own = np.diff(values)
        if not np.isfinite(own).all():
            continue
        gaps[d], (halves[d], is_grid) = own, _halves_of_grid(values, own, counts)
        if not is_grid and len(values) > FEW_VALUES:
            uneven.append(d)
            halves[d] = _halves_of_function(own)
    # The first values of another column show the function, such as logarithms, up to units.
    shown = [gaps[d][0] / gaps[d][1] for d in uneven]
    for d, own in gaps.items():
        if len(own) == 2 and np.isclose(own[0] / own[1], shown, rtol=1e-6, atol=0.0).any():
            halves[d] = _halves_of_function(own)
    cells = {d: (columns[d][0], own) for d, own in halves.items() if own is not None}
    for d, (values, own) in cells.items():
        own = own if of_stream else with_spikes(values, own, columns[d][1])
        is_even = (own == own[0]).all() and d not in uneven
        cells[d] = (None, own[0]) if is_even else (values, own)
    return cells


def _halves_of_grid(values, gaps, counts):
    """Half the widths of cells of a grid, None without one; and whether the values are those of a
    grid, rather than of a function of a coarser one that was rounded."""
    step = step_of(gaps)
    if len(values) <= FEW_VALUES:
        # The smallest place that they have in decimal notation, unless there are many digits.
        places = range(MOST_DIGITS + 1)
        exact = (10.0**-d for d in places if (np.round(values, d) == values).all())
        step = next(exact, step)
    if step is None:
        return None, False
    widths = _steps_of_heaps(np.rint((values - values[0]) / step), counts)
    are_many = 2 * len(values) <= counts.sum() and len(values) > FEW_VALUES
    is_sparse = are_many and widths.max() == 1.0 and np.median(np.rint(gaps / step)) > MOST_GAPS
    return 0.5 * step * widths, not is_sparse


def _halves_of_function(gaps):
    """Half the widths of cells of a function of a grid, such as logarithms of whole numbers. Cells
    have similar neighbours; that of a value far from all others is not as wide as the gap."""
    width = np.minimum(np.append(gaps[0], gaps), np.append(gaps, gaps[-1]))
    before, after = np.append(width[1], width[:-1]), np.append(width[1:], width[-2])
    return 0.5 * np.minimum(width, WIDEST_RATIO * np.minimum(before, after))


def with_spikes(values, halves, counts):
    """Half the widths of cells if those of spikes, such as 0 among amounts, are wider. A spike has
    the entries of more than SHARE_IN_SPIKE, and a wide gap beside it, unlike a limit of
    measurement. Its cell and the neighbourhood of the same width have as many others, or a share
    MOST_BESIDE of these; a spike far from others has a cell as wide as their bulk."""
    halves, n = halves.copy(), counts.sum()
    are_many = (counts > max(MANY, SHARE_IN_SPIKE * n)) & (len(values) > FEW_VALUES)
    for k in np.flatnonzero(are_many):
        distances = np.abs(values - values[k])
        order = distances.argsort()[1:]
        distances, beside = distances[order], np.cumsum(counts[order])
        few, most = np.array([MOST_BESIDE, 1.0 - MOST_BESIDE]) * (n - counts[k])
        near, low, high = distances[np.searchsorted(beside, [min(counts[k], few), few, most])]
        if distances[0] > max(TIMES_SPACING * np.median(np.diff(values)), LEAST_GAP * low):
            is_far = near > FARTHEST_SPIKE * (high - low)
            halves[k] = max(halves[k], 0.5 * (high - low if is_far else near))
    return halves


def _steps_of_heaps(places, counts):
    """Widths of cells, in steps of the grid. In a column with heaps, such as ages of which many
    are multiples of 5 or 10, some entries are recorded more coarsely than others."""
    widths = np.ones(len(places))
    # A heap has more entries than this: on > TIMES_ABOVE * most and on + most >= LEAST_HEAP.
    fewest = LEAST_HEAP / (1.0 + 1.0 / TIMES_ABOVE)
    if np.count_nonzero(counts > fewest) < FEWEST_HEAPS:
        return widths
    for width in HEAPS:
        if np.ptp(places) // width < FEWEST_HEAPS:
            continue
        classes = (places % width).astype(np.intp)
        left = np.where(widths == 1.0, counts, 0)
        is_heap = classes == np.bincount(classes, left, width).argmax()
        # Cells about the heaps, without those of wider heaps.
        cells = (places - classes[is_heap][0] + width // 2) // width
        cells = np.unique(cells, return_inverse=True)[1]
        on = np.bincount(cells, np.where(is_heap, left, 0))
        most = np.zeros(len(on))
        np.maximum.at(most, cells, np.where(is_heap, 0, left))
        wider = np.bincount(cells, is_heap & (widths > 1.0)) > 0
        seen = (on + most >= LEAST_HEAP) & ~wider
        above = seen & (on > TIMES_ABOVE * most)
        if above.sum() >= max(FEWEST_HEAPS, SHARE_OF_HEAPS * seen.sum()):
            widths[is_heap & (widths == 1.0)] = width
    return widths


def step_of(gaps):
    """The largest number of which all gaps are multiples, by Euclid's algorithm; None if it is
    less than 1 / MOST_STEPS of their sum."""
    total, rest = gaps.sum(), np.unique(gaps)
    while True:
        step = rest[0]
        if not step * MOST_STEPS > total:
            return None
        residuals = np.abs(rest - step * np.rint(rest / step))
        residuals = residuals[residuals > ROUND_OFF * step]
        if len(residuals) == 0:
            break
        rest = np.unique(np.append(residuals, step))
    steps = np.rint(gaps / step)
    if (np.abs(gaps - step * steps) > 2.0 * ROUND_OFF * step).any():
        return None
    return (gaps @ steps) / (steps @ steps)


def _words(rows):
    """Random words of the entries of rows, (n_rows, n_columns), that depend on the column."""
    rows = np.where(np.isnan(rows), np.nan, rows + 0.0)
    bits = np.ascontiguousarray(rows, dtype=np.float64).view(np.uint64)
    return _mixed(bits ^ (np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * MIX_2))


def _contents(rows, columns=slice(None)):
    """A random word for each row, equal for rows that are equal in these columns."""
    return _mixed(_words(rows)[:, columns].sum(axis=1, dtype=np.uint64))


def _ranks(contents, *keys):
    """Numbers of earlier equal words, by keys (the last one first) and by position."""
    order = np.lexsort((*keys, contents))
    ranks = np.empty(len(contents), dtype=np.uint64)
    ranks[order] = _in_runs(contents[order])[0]
    return ranks


def _in_runs(ordered):
    """Place of each element of a sorted array in the run of equal ones, and the run's length."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    sizes = np.diff(np.append(starts, len(ordered)))
    return np.arange(len(ordered)) - np.repeat(starts, sizes), np.repeat(sizes, sizes)


def _even(entries, words):
    """Positions in the cells, -1 to 1, of equal entries evenly spaced, in order of their words."""
    order = np.lexsort((words, entries))
    ranks, sizes = _in_runs(entries[order])
    positions = np.empty(len(entries))
    positions[order] = ((2.0 * ranks + 1.0) / sizes - 1.0) * (sizes / (sizes + MANY))
    return positions


def _words_of(keys, number):
    """Random words of a stream of each key."""
    return _mixed(keys + np.uint64((number + 1) * int(GAMMA) % 2**64))


def _uniforms(words):
    """Numbers between 0 and 1, of 53 bits, centred in their intervals: never 0 or 1."""
    return ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def _mixed(words):
    """The output function of SplitMix64."""
    words = (words ^ (words >> np.uint64(30))) * MIX_1
    words = (words ^ (words >> np.uint64(27))) * MIX_2
    return words ^ (words >> np.uint64(31))
