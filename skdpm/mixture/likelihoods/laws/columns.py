# SPDX-License-Identifier: BSD-3-Clause
"""What the values of columns of numbers say about their laws."""

import warnings
from typing import NamedTuple

import numpy as np

from skdpm._tables import TO_FRAME, TO_PANDAS, CodeFor, joined, listed, shown
from skdpm._validation import named_row
from skdpm.mixture.likelihoods.laws.coordinates import FAR_SHARE
from skdpm.mixture.likelihoods.laws.recorded import REMOTE, Copies

# Smallest number of values that are judged, and the number of quantiles that stand for more.
FEWEST_JUDGED, MOST_QUANTILES = 50, 500
# Most rows that are looked at, and most columns of which mixtures are made: 0.1 s for each.
MOST_ROWS, MOST_COLUMNS = 20_000, 50
# Ratio of the distances of the quantiles 0.95 and 0.05 from the median, above which a column is
# skewed so that labels may cut clusters of points, and clusters that are components.
SKEWED, SLIGHTLY_SKEWED = 2.5, 1.5
# Rows with the largest value, for one with the next, from which it is a limit.
LEAST_AT_LIMIT = 5
# Number of components that a mixture of Gaussians must save on the logarithms of a column, by the
# Bayesian information criterion; the same if logarithms are one Gaussian; and the largest number
# that is tried.
SAVED, SAVED_BY_ONE, MOST_COMPONENTS = 2.5, 1.5, 5
# Most components of logarithms of distances below a number.
FEW = 3
# Share of rows that are copies of others, from which it is said.
LEAST_COPIES = 0.05
# Numbers without a sign that may mark missing entries, as do 9, 99, 999, ..., 8, 88, ... and
# 7, 77, ..., and the size from which any number may; the most of a column, the fewest other
# entries, and the share of these from which zeros are none.
MARKS = {0.0, 1.0, 999.25, 9999.25, 32767.0, 32768.0, 65535.0, 1e5, 1e6, 1e7, 1e8}
LARGE_MARK, MOST_MARKS, FEWEST_UNMARKED, RARE_MARK = 1e9, 6, 10, 0.1
# Ranges of the other values beyond which a mark is one: in several rows; in one row or of one
# digit; and in several rows if only marks are negative.
RANGES_TO_FILL, RANGES_IF_DOUBTFUL, RANGES_BELOW_ZERO = 2.0, 20.0, 0.01

# Rows that share a value, their share, and their number for each row of another value, from which
# it is a spike if half of the other rows differ; most columns with one: more are the nature of X.
FEWEST_IN_SPIKE, SHARE_IN_SPIKE, TIMES_OTHERS, MOST_SPIKED = 10, 0.05, 5, 8

# Most groups of columns with other marks.
MOST_GROUPS = 3
# Ranges of the bulk beyond which an entry is named if clusters share a covariance.
FAR_IF_SHARED = 20.0


class Far(NamedTuple):
    """The farthest of the entries of a column that are far from all others."""

    row: int
    value: float
    n_far: int
    n_ranges: float


class Fill(NamedTuple):
    """Values of a column that look like marks of missing entries, the number of their rows, and
    the first of these."""

    values: tuple
    n_rows: int
    row: int


class Spike(Fill):
    """The same of a value that many rows have, although the others hardly have any value twice."""


def far_columns(X, low, high, n_ranges=REMOTE):
    """Columns with entries beyond so many ranges of the bulk, from `low` to `high`: dict of int to
    `Far`."""
    found = {}
    for d, (column, reach) in enumerate(zip(X.T, n_ranges * (high - low), strict=True)):
        with np.errstate(invalid="ignore", over="ignore"):
            beyond = np.maximum(low[d] - column, column - high[d])
        n_far = np.count_nonzero(beyond > reach)
        if n_far and reach > 0.0:
            row = int(np.nanargmax(beyond))
            found[d] = Far(row, float(column[row]), n_far, n_ranges)
    return found


def filled_columns(X, far=()):
    """Columns in which values look like marks of missing entries: dict of int to `Fill`.

    These values are the smallest or largest of their column, in less than half of the rows, and
    conventional marks (`_is_mark`), and they are far from the other values (`_needed`).

    - `X`: (n_samples, n_features). Numbers, NaN for missing entries.
    - `far`: container of int. Columns with far entries. A mark in a single row of these is only a
      far entry.
    """
    fills = {d: _fill(column) for d, column in enumerate(X.T)}
    return {d: fill for d, fill in fills.items() if fill and (fill.n_rows > 1 or d not in far)}


def _fill(column):
    known = others = column[~np.isnan(column)]
    found = {}
    # What may be marks is taken away from both ends, until the ends are other values.
    while len(others) >= FEWEST_UNMARKED and len(found) < MOST_MARKS:
        ends = {float(end): int((others == end).sum()) for end in (others.min(), others.max())}
        marks = {end: n_rows for end, n_rows in ends.items() if _is_mark(end, n_rows)}
        if not marks:
            break
        found |= marks
        others = others[~np.isin(others, list(marks))]
    if not found or len(others) < FEWEST_UNMARKED:
        return None
    fills = {}
    for mark, n_rows in sorted(found.items(), key=lambda item: abs(item[0])):
        if _is_far(mark, n_rows, others):
            fills[mark] = n_rows
        else:
            others = np.append(others, np.full(n_rows, mark))
    n_rows = sum(fills.values())
    if not 0 < n_rows < len(known) / 2:
        return None
    return Fill(tuple(sorted(fills)), n_rows, int(np.isin(column, list(fills)).argmax()))


def _is_mark(value, n_rows):
    """Whether a number of some rows may mark a missing entry."""
    size = abs(value)
    digits = f"{size:.7g}"
    repeated = digits[0] in "789" and digits.replace(".", "").strip(digits[0]) == ""
    repeated = repeated and np.float32(digits) == np.float32(size)
    return bool(repeated or size in MARKS or (size >= LARGE_MARK and n_rows > 1))


def _is_far(mark, n_rows, others):
    """Whether what may be a mark is so many ranges of the other values away as it needs."""
    last = int(FAR_SHARE * len(others))
    low, high = np.partition(others, (last, len(others) - 1 - last))[[last, -1 - last]]
    if low == high:
        low, high = others.min(), others.max()
    if low == high:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        n_ranges = max(low - mark, mark - high) / (high - low)
    return n_ranges > _needed(mark, n_rows, others)


def _needed(mark, n_rows, others):
    """Ranges of the other values beyond which a number that may be a mark is one."""
    if mark == 0.0 and n_rows > RARE_MARK * len(others):
        return np.inf
    # -1 beside 0 and 1 may be a value.
    n_whole = np.count_nonzero(others == np.rint(others))
    is_value = mark == -1.0 and others.min() < 1.0 and 2 * n_whole > len(others)
    if mark < 0.0 <= others.min() and not is_value:
        return RANGES_TO_FILL if n_rows == 1 else RANGES_BELOW_ZERO
    return RANGES_IF_DOUBTFUL if n_rows == 1 or abs(mark) < 10.0 else RANGES_TO_FILL


def spiked_columns(X):
    """Columns with a value of many rows, such as no amount, whose other values are measured: dict
    of int to `Spike`."""
    found = {}
    for d, column in enumerate(X[:: -(-len(X) // MOST_ROWS) or 1].T):
        known = column[~np.isnan(column)]
        values, counts = np.unique(known, return_counts=True)
        n_next, n_rows = np.sort(np.append(counts, [0, 0]))[-2:]
        n_least = max(FEWEST_IN_SPIKE, 0.5 * (len(known) - n_rows))
        n_in_spike = max(FEWEST_IN_SPIKE, SHARE_IN_SPIKE * len(known), TIMES_OTHERS * n_next)
        if n_rows >= n_in_spike and len(values) > n_least:
            value = float(values[counts.argmax()])
            is_value = X[:, d] == value
            found[d] = Spike((value,), int(is_value.sum()), int(is_value.argmax()))
    return found if len(found) <= MOST_SPIKED else {}


def skewed_columns(X, least=SKEWED):
    """Columns whose logarithms are much closer to few Gaussian clusters: dict of int to str.

    A column of positive amounts that is skewed by `least` needs several Gaussian components for
    one cluster. It is told from clusters at different distances by mixtures of Gaussians, which
    are fitted to the column and to its logarithms. The result has the code of the logarithm, with
    {} for the column: "np.log({})", "np.log1p({})" for a column with zeros, and that of the
    distance below a number for a column with a long tail of small values.
    """
    found, n_judged = {}, 0
    X = X[:: -(-len(X) // MOST_ROWS) or 1]
    for d in range(X.shape[1]):
        x = X[:, d]
        x = x[~np.isnan(x)].astype(np.float64)
        code = "np.log1p({})" if (x == 0.0).any() else "np.log({})"
        quantiles = None if (x < 0.0).any() else _skewed_quantiles(x[x > 0.0], least)
        if quantiles is None and len(x) >= FEWEST_JUDGED:
            top = _number_above(x)
            quantiles = _skewed_quantiles(top - x, least)
            code = f"-np.log({shown(top)} - {{}})" if top else "-np.log(-{})"
        if quantiles is None or n_judged == MOST_COLUMNS:
            continue
        n_judged += 1
        # Distances below a number, which follows from them, suit many clusters too.
        if _suits_logarithms(quantiles, MOST_COMPONENTS if code.startswith("np") else FEW):
            found[d] = code
    return found


def _number_above(x):
    """A number above all values, of few digits, for which the logarithms of distances to it are
    about symmetric; NaN if there is none, as where many values are at a limit."""
    largest = x.max()
    if largest < 0.0:
        return 0.0
    n_largest, rest = np.count_nonzero(x == largest), x[x < largest]
    if n_largest > LEAST_AT_LIMIT * np.count_nonzero(rest == rest.max(initial=-np.inf)):
        return np.nan
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        # Relative to the median: (low - c)(high - c) = (middle - c)^2.
        top = middle + (low - middle) * (high - middle) / (low + high - 2.0 * middle)
        distance = max(top - largest, 0.1 * (largest - high))
        unit = 10.0 ** np.floor(np.log10(distance))
        top = np.ceil((largest + distance) / unit) * unit
    return float(f"{top:.12g}") if np.isfinite(top) else np.nan


def _skewed_quantiles(x, least):
    """Quantiles of positive values, relative to the median; None if they are less skewed."""
    values, counts = np.unique(x, return_counts=True)
    if len(x) < FEWEST_JUDGED or len(values) < 10:
        return None
    # Equal values are spread out between their neighbours, as if they had not been rounded.
    ends = np.concatenate([values[:1], 0.5 * values[1:] + 0.5 * values[:-1], values[-1:]])
    n = min(len(x), MOST_QUANTILES)
    shares = np.append(0.0, np.cumsum(counts) / len(x))
    quantiles = np.interp((np.arange(n) + 0.5) / n, shares, ends)
    low, middle, high = np.quantile(quantiles, [0.05, 0.5, 0.95])
    return quantiles / middle if high - middle > least * (middle - low) else None


def _suits_logarithms(x, most_components):
    logs = np.log(x)
    of_logs, n_components = _information_criterion(logs)
    if n_components > most_components:
        return False
    gain = _information_criterion(x)[0] - of_logs - 2.0 * logs.sum()
    # A component has three parameters.
    saved = SAVED_BY_ONE if n_components == 1 else SAVED
    return gain > saved * 3.0 * np.log(len(x))


def _information_criterion(x):
    """Smallest Bayesian information criterion of mixtures of a few Gaussians, and their number."""
    from sklearn.mixture import GaussianMixture  # not loaded by `import skdpm`

    spread = x.std()
    x = (x / spread)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [GaussianMixture(k + 1, random_state=0).fit(x) for k in range(MOST_COMPONENTS)]
    criteria = [fit.bic(x) for fit in fits]
    return min(criteria) + 2.0 * len(x) * np.log(spread), int(np.argmin(criteria)) + 1


def words_about(doubtful, given, X, names):
    """Warning about what `Likelihood.doubtful` found in X, the rows of what users gave.

    - `doubtful`: dict. For a column, "two values", the code of a logarithm, a `Far`, a `Fill` or a
      `Spike`; for None, `Copies` or the share of rows that are copies and their columns.
    """
    words, code, n_rows = [], CodeFor(given, names), X.shape[0]
    frame = getattr(given, "X", given)
    if hasattr(frame, "iloc"):
        doubtful = doubtful | {
            d: found._replace(row=named_row(frame.index, found.row))
            for d, found in doubtful.items()
            if isinstance(found, (Far, Fill))
        }
    if None in doubtful:
        words.append(_about_copies(doubtful[None], n_rows, names))
    if columns := _columns_with(doubtful, "two values"):
        have = "has" if len(columns) == 1 else "have"
        way = 'likelihood="bernoulli" for 0 and 1, or "categorical"'
        rest = np.delete(np.arange(X.shape[1]), columns)
        n_values = (len(np.unique(X[~np.isnan(X[:, d]), d])) for d in rest)
        if len(rest) and not (isinstance(X, np.ndarray) and all(n <= 2 for n in n_values)):
            way = 'likelihood="mixed" with these columns of type bool or category in a data frame'
            way += ", or a Product with Bernoulli() or Categorical() for them, or drop them"
        words.append(
            f"{listed(columns, names)} of X {have} only two different values. Gaussian clusters "
            f"separate the two values, so labels may show little of the other columns. Use {way}"
        )
    functions = {found for found in doubtful.values() if isinstance(found, str) and "{}" in found}
    for function in sorted(functions):
        columns = _columns_with(doubtful, function)
        are = "is" if len(columns) == 1 else "are"
        words.append(
            f"{listed(columns, names)} of X {are} {how_skewed(function)}. Several Gaussian "
            "components are needed for one cluster, so labels may cut clusters. Take logarithms "
            f"before fit: {code.with_logarithms(columns, function)}"
        )
    if fills := groups_of_fills(_of_kind(doubtful, Fill), n_rows):
        facts = _facts(fills, names)
        values = {value for _, marks, _ in fills for value in marks}
        it_means, it = ("it means", "it") if len(values) == 1 else ("they mean", "them")
        its = "its" if len(fills) == len(fills[0][0]) == 1 else "their"
        lines = "; ".join(code.with_gaps(columns, marks) for columns, marks, _ in fills)
        words.append(
            f"{facts}, far from {its} other values. Clusters may show which rows have {it}. If "
            f"{it_means} missing, make {it} NaN: {lines}"
        )
    if spikes := groups_of_fills(_of_kind(doubtful, Spike), n_rows, MOST_SPIKED):
        lines = "; ".join(code.with_indicators(columns, mark) for columns, (mark,), _ in spikes)
        words.append(
            f"{_facts(spikes, names)}, and hardly any other value twice. Gaussian clusters "
            "separate these rows from the others, so labels may show little else. Give them a "
            f'column of their own, and use likelihood="mixed": {lines}'
        )
    if far := _of_kind(doubtful, Far):
        words.append(_about_far(far, names))
    text = ". Also, ".join(words)
    for conversion in (TO_PANDAS, TO_FRAME):  # lines follow one another
        before, converted, after = text.partition(conversion)
        text = before + converted + after.replace(conversion, "")
    return text


def _about_copies(found, n_rows, names):
    """Words about `Copies`, or the share of rows that are copies and their columns."""
    if isinstance(found, Copies):
        n_different = len(found.first)
        return (
            f"{n_rows - n_different} of {n_rows} rows of X are copies of other rows. Copies say "
            f"nothing new, so clusters, weights and densities are those of the {n_different} "
            "different rows, whose labels their copies have"
        )
    share, copied = found
    where, way = "; points that many rows share are clusters of their own", "drop them"
    if copied:
        where = f" in {listed(copied, names)}"
        way = "put one row, with means of the other columns, in the place of equal ones"
    return (
        f"{round(share * n_rows)} of {n_rows} rows of X are copies of other rows{where}. "
        "Each counts as an observation, so clusters and probabilities seem as certain as with "
        f"that many different rows. If copies say nothing new, {way}"
    )


def groups_of_fills(fills, n_rows, most=MOST_GROUPS):
    """Columns with the same values, these, and words about both: list of tuples. More groups than
    `most` become one.

    - `fills`: dict of int to `Fill` or `Spike`
    """
    groups = {}
    for d, fill in fills.items():
        groups.setdefault(fill.values, []).append(d)
    if len(groups) > most:
        groups = {tuple(sorted(set().union(*groups))): sorted(fills)}
    described = []
    for values, columns in groups.items():
        n_filled = max(fills[d].n_rows for d in columns)
        rows = f"{'up to ' if len(columns) > 1 else ''}{n_filled} of {n_rows} rows"
        if len(columns) == n_filled == 1:
            rows = f"row {fills[columns[0]].row}"
        described.append((columns, values, f"{joined(map(shown, values))} in {rows}"))
    return described


def _facts(groups, names):
    return joined(
        f"{listed(columns, names)} of X {'has' if len(columns) == 1 else 'have'} {what}"
        for columns, _, what in groups
    )


def _about_far(far, names):
    first = next(iter(far))
    row, value, _, n_ranges = far[first]
    n_entries = sum(found.n_far for found in far.values())
    words = f"row {row} of {listed([first], names)} of X holds {value:.6g}"
    times = f"more than {n_ranges:g} times as far out as other entries"
    if len(far) > 1:
        words = f"{listed(far, names)} of X have {n_entries} entries {times}: {words}"
    else:
        more = f" ({n_entries} entries of the column are far out)" if n_entries > 1 else ""
        words += f", {times}{more}"
    return f"{words}. Clusters of other rows hardly depend on it. If it means missing, make it NaN"


def how_skewed(function):
    """Words about columns that a logarithm of `skewed_columns` suits."""
    return "skewed to small values" if function.startswith("-") else "positive and skewed"


def _columns_with(doubtful, what):
    return sorted(d for d, found in doubtful.items() if found == what)


def _of_kind(doubtful, kind):
    return {d: found for d, found in doubtful.items() if type(found) is kind}
