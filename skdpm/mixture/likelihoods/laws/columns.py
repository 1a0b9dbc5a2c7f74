# SPDX-License-Identifier: BSD-3-Clause
"""What the values of columns of numbers say about their laws."""

import warnings
from typing import NamedTuple

import numpy as np

from skdpm._tables import TO_FRAME, CodeFor, joined, listed, shown
from skdpm._validation import named_row
from skdpm.mixture.likelihoods.laws.coordinates import FAR_SHARE, bulk
from skdpm.mixture.likelihoods.laws.recorded import REMOTE, SHARE_IN_SPIKE, TIMES_SPACING, Copies

# Smallest number of values that are judged, the number of quantiles that stand for more, and a
# size whose differences do not overflow.
FEWEST_JUDGED, MOST_QUANTILES, LARGEST_JUDGED = 50, 500, 1e300
# Most rows that are looked at, and most columns of which mixtures are made: 0.1 s for each.
MOST_ROWS, MOST_COLUMNS = 20_000, 50
# Ratio of the distances of the quantiles 0.95 and 0.05 from the median, above which a column is
# skewed so that labels may cut clusters of points, and clusters that are components.
SKEWED, SLIGHTLY_SKEWED = 2.5, 1.5
# The same of logarithms, where the least third of the values may be missing.
SKEWED_IF_CUT = 2.2
# Rows with the largest value, for one with the next, from which it is a limit.
LEAST_AT_LIMIT = 5
# Number of components that a mixture of Gaussians must save on the logarithms of a column, by the
# Bayesian information criterion; the same if logarithms are one Gaussian; the largest number that
# is tried; and the most components of logarithms of distances below a number.
SAVED, SAVED_BY_ONE, MOST_COMPONENTS, FEW = 2.5, 1.5, 5, 3
# Logarithms are those of distances that are larger by this quantile of the distances to the end.
LOW_QUANTILE = 0.05
# Variance of the sum of parts of a whole, in variances of the parts, which rounding may cause.
ROUNDED_SUM = 1e-3
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
# The same, of several zeros among positive values. The gap must also be wider, by TIMES_SPACING,
# than the median distance of neighbouring values: counts and amounts go on to 0.
RANGES_TO_ZERO = 0.2

# Rows that share a value, at least SHARE_IN_SPIKE of all, and their number for each row of another
# value, from which it is a spike if half of the other rows differ or if a gap is beside it. With
# more such columns they must be most, and zeros alone may tell more than amounts.
FEWEST_IN_SPIKE, TIMES_OTHERS, MOST_SPIKED = 10, 5, 8

# Most groups of columns with other marks, and ranges of the bulk beyond which an entry is named if
# clusters share a covariance.
MOST_GROUPS, FAR_IF_SHARED = 3, 20.0
OF_FAR = "Clusters of other rows hardly depend on it"


class Far(NamedTuple):
    """The farthest of the entries of a column that are far from all others."""

    row: int
    value: float
    n_far: int
    n_ranges: float


class Skewed(NamedTuple):
    """Code of a logarithm that suits a column, {x}, and the number {c} in it."""

    function: str
    number: float


class Fill(NamedTuple):
    """Values of a column that may mark missing entries, the number of these, the first row, and of
    a `Spike` the logarithm that suits the other values."""

    values: tuple
    n_rows: int
    row: int
    skewed: Skewed | None = None


class Spike(Fill):
    """The same of a value that many rows have, although the others hardly have any value twice."""


def far_columns(X, low, high, n_ranges=REMOTE):
    """Columns with entries beyond ranges of the bulk, `low` to `high`: dict of int to `Far`."""
    found = {}
    for d, (column, reach) in enumerate(zip(X.T, n_ranges * (high - low), strict=True)):
        with np.errstate(invalid="ignore", over="ignore"):
            beyond = np.maximum(low[d] - column, column - high[d])
        n_far = np.count_nonzero(beyond > reach)
        if n_far and reach > 0.0:
            row = int(np.nanargmax(beyond))
            found[d] = Far(row, float(column[row]), n_far, n_ranges)
    return found


def words_about_far(X, given, names):
    """Warning about entries far from others if all rows have the same noise, or None."""
    most = bulk(X)
    if most is X:
        return None
    far = far_columns(X, np.fmin.reduce(most), np.fmax.reduce(most), FAR_IF_SHARED)
    outcome = "The noise of all rows grows with it and may hide features: leave such rows out"
    return words_about(far, given, X, names, outcome=outcome) if far else None


def filled_columns(X, far=()):
    """Columns in which values look like marks of missing entries: dict of int to `Fill`.

    These values are the smallest or largest of their column, in less than half of the rows, and
    conventional marks (`_is_mark`), and they are far from the other values (`_needed`).

    - `X`: (n_samples, n_features). Numbers, NaN for missing entries.
    - `far`: container of int. Columns with far entries. There a mark in a single row is only far.
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
    with np.errstate(over="ignore", invalid="ignore"):
        least = _needed(mark, n_rows, others) * (high - low)
        return max(low - mark, mark - high) > least > 0.0


def _needed(mark, n_rows, others):
    """Ranges of the other values beyond which a number that may be a mark is one."""
    if mark == 0.0 and n_rows > RARE_MARK * len(others):
        return np.inf
    if mark == 0.0 < others.min() and _is_apart(0.0, np.unique(others)):
        return RANGES_TO_FILL if n_rows == 1 else RANGES_TO_ZERO
    # -1 beside 0 and 1 may be a value.
    n_whole = np.count_nonzero(others == np.rint(others))
    is_value = mark == -1.0 and others.min() < 1.0 and 2 * n_whole > len(others)
    if mark < 0.0 <= others.min() and not is_value:
        return RANGES_TO_FILL if n_rows == 1 else RANGES_BELOW_ZERO
    return RANGES_IF_DOUBTFUL if n_rows == 1 or abs(mark) < 10.0 else RANGES_TO_FILL


def _is_apart(value, others):
    """Whether the gap between a value and others, in order, is far wider than most of theirs."""
    if len(others) < FEWEST_UNMARKED:
        return False
    return np.abs(others - value).min() > TIMES_SPACING * np.median(np.diff(others))


def number_rows(x):
    """Whether the values of a column number rows: whole, all different and nearly consecutive."""
    x = 1.0 * x[~np.isnan(x)]  # of flags, too
    if len(x) < FEWEST_JUDGED or not np.ptp(x) < 2 * len(x) or (x != np.rint(x)).any():
        return False
    return len(np.unique(x)) == len(x)


def spiked_columns(X):
    """Columns with a value of many rows, such as no amount, whose other values are measured or far
    from it: dict of int to `Spike`."""
    found = {}
    for d, column in enumerate(X[:: -(-len(X) // MOST_ROWS) or 1].T):
        known = column[~np.isnan(column)]
        values, counts = np.unique(known, return_counts=True)
        n_next, n_rows = np.sort(np.append(counts, [0, 0]))[-2:]
        n_least = max(FEWEST_IN_SPIKE, 0.5 * (len(known) - n_rows))
        n_in_spike = max(FEWEST_IN_SPIKE, SHARE_IN_SPIKE * len(known), TIMES_OTHERS * n_next)
        if n_rows < n_in_spike:
            continue
        value = float(values[counts.argmax()])
        if len(values) > n_least or _is_apart(value, values[values != value]):
            is_value = X[:, d] == value
            found[d] = Spike((value,), int(is_value.sum()), int(is_value.argmax()))
    return found if len(found) <= MOST_SPIKED or 2 * len(found) > len(X.T) else {}


def doubtful_columns(X, least, far):
    """Columns that are skewed, have values of many rows or marks of missing ones, are `far`, or
    number the rows: dict, as for `words_about`."""
    spiked, fills = spiked_columns(X), filled_columns(X, far)
    numbered = [d for d, x in enumerate(X.T) if number_rows(x)] if len(X.T) > 1 else ()
    X = np.array(X[:: -(-len(X) // MOST_ROWS) or 1], dtype=np.float64)
    others = X[:, [*spiked]]
    others[others == [spike.values[0] for spike in spiked.values()]] = X[:, [*spiked]] = np.nan
    own = skewed_columns(others, least, SKEWED_IF_CUT) if len(spiked) <= MOST_SPIKED else {}
    spiked = {d: spike._replace(skewed=own.get(j)) for j, (d, spike) in enumerate(spiked.items())}
    found = skewed_columns(X, least) | spiked | far | fills
    return found | dict.fromkeys(numbered, "row numbers")


def skewed_columns(X, least=SKEWED, most_of_logs=SLIGHTLY_SKEWED):
    """Columns whose logarithms are much closer to few Gaussian clusters: dict of int to `Skewed`.

    A column that is skewed by `least` needs several Gaussian components for one cluster. Mixtures
    of Gaussians of the column and of its logarithms tell it from clusters at different distances.
    Logarithms are those of positive values, or of distances to a number beyond one end of it.
    """
    X = np.asarray(X[:: -(-len(X) // MOST_ROWS) or 1], dtype=np.float64)
    found = {d: _candidate(x, least, most_of_logs) for d, x in enumerate(X.T)}
    judged = [(d, *candidate) for d, candidate in found.items() if candidate][:MOST_COLUMNS]
    return {d: skewed for d, skewed, *values in judged if _suits_logarithms(*values)}


def _candidate(x, least, most_of_logs):
    """The `Skewed` that may suit values, quantiles to judge it by, and whether these are amounts;
    None if they are not skewed, or many are at the end of a long tail."""
    for sign, function in ((1.0, "np.log({x} + {c})"), (-1.0, "-np.log({c} - {x})")):
        y = sign * x[np.abs(x) < LARGEST_JUDGED]
        low = y.min(initial=np.inf)
        rest = y if low > 0.0 else y[y > low]
        quantiles = _skewed_quantiles(rest, least)
        if quantiles is None:
            continue
        n_low, rest = np.count_nonzero(y == low), y[y > low]
        are_many = n_low > LEAST_AT_LIMIT * np.count_nonzero(rest == rest.min())
        if sign < 0.0 and are_many:
            return None
        if min(sign, low) > 0.0 and not _are_skewed(np.log(quantiles), most_of_logs):
            return Skewed("np.log({x})", 0.0), quantiles, True
        distance = float(np.quantile(rest, LOW_QUANTILE)) - float(low)
        # Two digits of the distance that the least value has then.
        number = round(distance - float(low), 1 - int(np.floor(np.log10(distance))))
        if are_many and low == 0.0:
            return Skewed(function, number), quantiles, True
        return Skewed(function, number), quantiles + number, False
    return None


def _skewed_quantiles(x, least):
    """Quantiles of values; None if they are less skewed."""
    values, counts = np.unique(x, return_counts=True)
    if len(x) < FEWEST_JUDGED or len(values) < 10:
        return None
    # Equal values are spread out between their neighbours, as if they had not been rounded.
    ends = np.concatenate([values[:1], 0.5 * values[1:] + 0.5 * values[:-1], values[-1:]])
    n = min(len(x), MOST_QUANTILES)
    shares = np.append(0.0, np.cumsum(counts) / len(x))
    quantiles = np.interp((np.arange(n) + 0.5) / n, shares, ends)
    return quantiles if _are_skewed(quantiles, least) else None


def _are_skewed(x, least):
    low, middle, high = np.quantile(x, [0.05, 0.5, 0.95])
    return high - middle > least * (middle - low)


def _suits_logarithms(x, is_plain):
    x = x / np.median(x)
    logs = np.log(x)
    of_logs, n_components = _information_criterion(logs)
    # Distances to a number, which follows from them, suit many clusters too.
    if n_components > (MOST_COMPONENTS if is_plain else FEW):
        return False
    gain = _information_criterion(x)[0] - of_logs - 2.0 * logs.sum()
    # A component has three parameters.
    saved = SAVED_BY_ONE if n_components == 1 and is_plain else SAVED
    return gain > saved * 3.0 * np.log(len(x))


def _parts_of_whole(X):
    """Columns of shares of a whole, whose sum is the same in all rows, up to rounding."""
    known = X[np.isfinite(X).all(axis=1)]
    for whole in (np.inf, 100.0, 1.0) if len(known) >= FEWEST_JUDGED else ():
        is_part = ((known >= 0.0) & (known <= whole)).all(axis=0) & (np.ptp(known, axis=0) > 0.0)
        parts = known[:, is_part]
        if parts.shape[1] > 1 and parts.sum(axis=1).var() < ROUNDED_SUM * parts.var(axis=0).sum():
            return np.flatnonzero(is_part).tolist()
    return []


def _about_skewed(skewed, X, code):
    """Sentences about skewed shares of a whole, and columns of the same logarithm: list of str."""
    found, parts = [], _parts_of_whole(X) if skewed else []
    if not skewed.keys().isdisjoint(parts):
        shares = X[:, parts]
        has_zeros = (shares == 0.0).any()
        constant = float(f"{shares[shares > 0.0].min():.2g}") if has_zeros else 0.0
        divisor = parts[int(np.nanstd(np.log(shares + constant), axis=0).argmin())]
        function = "np.log(({x} + {c}) / ({y} + {c}))" if has_zeros else "np.log({x} / {y})"
        line = code.with_logarithms(parts, function, [constant] * len(parts), divisor)
        found.append((parts, "shares of a whole, of the same sum in all rows", "log-ratios", line))
        skewed = {d: own for d, own in skewed.items() if d not in parts}
    for columns, function, line in _logarithms(skewed, code):
        tail = "small" if function.startswith("-") else "large"
        found.append((columns, f"values skewed to {tail} ones", "logarithms", line))
    return [
        f"{_facts([(columns, None, what)], code.names)}. Several Gaussian components are needed "
        f"for one cluster, so labels may cut clusters. Take {way} before scaling and before fit: "
        f"{line}"
        for columns, what, way, line in found
    ]


def _logarithms(skewed, code):
    """Columns of the same logarithm, its code, and the line that takes it: tuples."""
    for function in sorted({own.function for own in skewed.values()}):
        columns = [d for d, own in skewed.items() if own.function == function]
        numbers = [skewed[d].number for d in columns]
        yield columns, function, code.with_logarithms(columns, function, numbers)


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


def words_about(doubtful, given, X, names, between=". Also, ", outcome=OF_FAR):
    """Warning about what `Likelihood.doubtful` found in X, the rows of what users gave.

    - `doubtful`: dict. For a column, "two values", "row numbers", a `Skewed`, a `Far`, a `Fill` or
      a `Spike`; for None, `Copies` or the share of rows that are copies and their columns.
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
    if columns := sorted(d for d, found in doubtful.items() if found == "row numbers"):
        words.append(
            f"{_facts([(columns, None, 'consecutive whole numbers, all different')], names)}. If "
            "they number the rows, they say nothing about clusters, which they may cut: drop them"
        )
    words += _about_skewed(_of_kind(doubtful, Skewed), X, code)
    if fills := _groups(_of_kind(doubtful, Fill), n_rows):
        lines = "; ".join(code.with_gaps(columns, values) for columns, values, _ in fills)
        words.append(
            f"{_facts(fills, names)}, far from other values. Clusters may show which rows have "
            f"such a value. If it means missing, make it NaN: {lines}"
        )
    if spikes := _of_kind(doubtful, Spike):
        words.append(_about_spikes(spikes, X, code))
    if far := _of_kind(doubtful, Far):
        words.append(_about_far(far, names, outcome))
    if columns := sorted(d for d, found in doubtful.items() if found == "two values"):
        words.append(_about_two_values(columns, X, code))
    before, converted, after = between.join(words).partition(TO_FRAME)
    return before + converted + after.replace(TO_FRAME, "")  # lines follow one another


def _about_two_values(columns, X, code):
    way = (
        'If no column has more values, use likelihood="bernoulli" for 0 and 1, or "categorical". '
        "Otherwise use likelihood=skdpm.suggest_likelihood(X), which takes these columns as "
        "categories, or drop them"
    )
    groups = one_hot(X) if isinstance(X, np.ndarray) else []
    if groups := [own for own in groups if not set(own).isdisjoint(columns)]:
        way = (
            "Of one-hot codes, as of get_dummies, each row has one. Put the column of categories "
            "back in their place, give other columns of two values the type bool, and use "
            f'likelihood="mixed": {code.with_categories(groups)}'
        )
    return (
        f"{_facts([(columns, None, 'only two different values')], code.names)}. Gaussian clusters "
        f"separate the two values, so labels may show little of the others. {way}"
    )


def one_hot(X):
    """Groups of neighbouring columns of two values, the larger one in one column of each row."""
    is_high, none = np.fmax.reduce(X) == X, np.zeros(len(X), dtype=int)
    two = (is_high | (np.fmin.reduce(X) == X)).all(axis=0)
    groups, own, n_high = [], [], none
    for d in range(X.shape[1]):
        if not two[d]:
            own, n_high = [], none
            continue
        own, n_high = [*own, d], n_high + is_high[:, d]
        while n_high.max() > 1:
            own, n_high = own[1:], n_high - is_high[:, own[0]]
        if len(own) > 1 and n_high.min() == 1:
            groups, own, n_high = [*groups, own], [], none
    return groups


def _about_spikes(spikes, X, code):
    are_many = len(spikes) > MOST_SPIKED
    values = {d: spike.values[0] for d, spike in spikes.items()}
    gaps, way = "If it means missing, make it NaN", "try only which entries have it"
    if not are_many:
        columns = {value: [d for d in values if values[d] == value] for value in values.values()}
        lines = [code.with_gaps(own, [value]) for value, own in columns.items()]
        if any(value in (np.nanmin(X[:, d]), np.nanmax(X[:, d])) for d, value in values.items()):
            gaps = "If it means missing, or a value beyond a limit of measurement, make it NaN"
        if skewed := {d: spike.skewed for d, spike in spikes.items() if spike.skewed}:
            lines += [line for *_, line in _logarithms(skewed, code)]
            gaps += " and take logarithms of the other values"
        gaps, way = f"{gaps}: {'; '.join(lines)}", "give it a column of its own"
    return (
        f"{_facts(_groups(spikes, len(X)), code.names)}, far more often than any other value. "
        "Gaussian clusters separate these rows from the others, so labels may show little else. "
        f"{gaps}. Otherwise, as where an amount may be none, {way}, and use "
        f'likelihood="mixed": {code.with_indicators(values, not are_many)}'
    )


def _about_copies(found, n_rows, names):
    if isinstance(found, Copies):
        n_different, by = len(found.first), f"{found.rounding:.1g}"
        where = f" up to rounding (by {by} of the spread of a column)" if found.rounding else ""
        return (
            f"{n_rows - n_different} of {n_rows} rows of X are copies of other rows{where}. "
            "Copies say nothing new, so clusters, weights and densities are those of the "
            f"{n_different} different rows, whose labels their copies have"
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


def _groups(fills, n_rows):
    """Columns with the same values, these, and words: tuples. More than `MOST_GROUPS` are one.

    - `fills`: dict of int to `Fill` or `Spike`
    """
    groups = {}
    for d, fill in fills.items():
        groups.setdefault(fill.values, []).append(d)
    if len(groups) > MOST_GROUPS:
        groups = {tuple(sorted(set().union(*groups))): sorted(fills)}
    described = []
    for values, columns in groups.items():
        n_filled = max(fills[d].n_rows for d in columns)
        rows = f"{'up to ' if len(columns) > 1 else ''}{n_filled} of {n_rows} rows"
        if len(columns) == n_filled == 1:
            rows = f"row {fills[columns[0]].row}"
        short = [min(shown(value), f"{value:.4g}", key=len) for value in values]
        what = joined(short) if len(short) <= MOST_MARKS else "one value"
        described.append((columns, values, f"{what} in {rows}"))
    return described


def _facts(groups, names):
    return joined(
        f"{listed(columns, names)} of X {'has' if len(columns) == 1 else 'have'} {what}"
        for columns, _, what in groups
    )


def _about_far(far, names, outcome):
    first = next(iter(far))
    row, value, _, n_ranges = far[first]
    n_entries = sum(found.n_far for found in far.values())
    more = f" ({n_entries} such entries in {listed(far, names)})" if n_entries > 1 else ""
    return (
        f"row {row} of {listed([first], names)} of X holds {value:.6g}, more than {n_ranges:g} "
        f"times as far out as other entries{more}. {outcome}. If it means missing, make it NaN"
    )


def _of_kind(doubtful, kind):
    return {d: doubtful[d] for d in sorted(doubtful.keys() - {None}) if type(doubtful[d]) is kind}
