# SPDX-License-Identifier: BSD-3-Clause
"""What the values of columns of numbers say about their laws."""

import warnings
from typing import NamedTuple

import numpy as np

from skdpm._tables import listed
from skdpm.mixture.likelihoods.recorded import REMOTE

# Smallest number of values that are judged, and the number of quantiles that stand for more.
FEWEST_JUDGED, MOST_QUANTILES = 50, 500
# Most rows that are looked at, and most columns of which mixtures are made: 0.1 s for each.
MOST_ROWS, MOST_COLUMNS = 20_000, 50
# Ratio of the distances of the quantiles 0.95 and 0.05 from the median, above which a column is
# strongly skewed.
SKEWED = 2.5
# Number of components that a mixture of Gaussians must save on the logarithms of a column, by the
# Bayesian information criterion, and the largest number that is tried.
SAVED, MOST_COMPONENTS = 2.5, 5
# Share of rows that are copies of others, from which it is said.
LEAST_COPIES = 0.05


class Far(NamedTuple):
    """The farthest of the entries of a column that are far from all others."""

    row: int
    value: float
    n_far: int


def far_columns(X, low, high):
    """Columns with remote entries: dict of int to `Far`.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numbers, NaN for missing entries.
    low, high : ndarray of shape (n_features,)
        Ends of the bulk of the columns.
    """
    found = {}
    for d, (column, reach) in enumerate(zip(X.T, REMOTE * (high - low), strict=True)):
        with np.errstate(invalid="ignore", over="ignore"):
            beyond = np.maximum(low[d] - column, column - high[d])
        n_far = np.count_nonzero(beyond > reach)
        if n_far and reach > 0.0:
            row = int(np.nanargmax(beyond))
            found[d] = Far(row, float(column[row]), n_far)
    return found


def skewed_columns(X):
    """Columns whose logarithms are much closer to few Gaussian clusters.

    A column of positive amounts that is strongly skewed needs several Gaussian components for one
    cluster. It is told from clusters at different distances by mixtures of Gaussians, which are
    fitted to the column and to its logarithms.

    Parameters
    ----------
    X : ndarray of shape (n_samples, n_features)
        Numbers, NaN for missing entries.

    Returns
    -------
    logarithms : dict of int to {"np.log", "np.log1p"}
        Logarithm that suits, by the position of the column; "np.log1p" for a column with zeros.
    """
    found, n_judged = {}, 0
    X = X[:: -(-len(X) // MOST_ROWS) or 1]
    for d in range(X.shape[1]):
        x = X[:, d]
        x = x[~np.isnan(x)].astype(np.float64)
        quantiles = None if (x < 0.0).any() else _skewed_quantiles(x[x > 0.0])
        if quantiles is None or n_judged == MOST_COLUMNS:
            continue
        n_judged += 1
        if _suits_logarithms(quantiles):
            found[d] = "np.log" if (x > 0.0).all() else "np.log1p"
    return found


def _skewed_quantiles(x):
    """Quantiles of positive values, relative to the median; None without strong skewness."""
    values, counts = np.unique(x, return_counts=True)
    if len(x) < FEWEST_JUDGED or len(values) < 10:
        return None
    # Equal values are spread out between their neighbours, as if they had not been rounded.
    ends = np.concatenate([values[:1], 0.5 * values[1:] + 0.5 * values[:-1], values[-1:]])
    n = min(len(x), MOST_QUANTILES)
    shares = np.append(0.0, np.cumsum(counts) / len(x))
    quantiles = np.interp((np.arange(n) + 0.5) / n, shares, ends)
    low, middle, high = np.quantile(quantiles, [0.05, 0.5, 0.95])
    return quantiles / middle if high - middle > SKEWED * (middle - low) else None


def _suits_logarithms(x):
    logs = np.log(x)
    gain = _information_criterion(x) - _information_criterion(logs) - 2.0 * logs.sum()
    return gain > SAVED * 3.0 * np.log(len(x))  # a component has three parameters


def _information_criterion(x):
    """Smallest Bayesian information criterion of mixtures of a few Gaussians."""
    from sklearn.mixture import GaussianMixture  # not loaded by `import skdpm`

    spread = x.std()
    x = (x / spread)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fits = [GaussianMixture(k + 1, random_state=0).fit(x) for k in range(MOST_COMPONENTS)]
    return min(fit.bic(x) for fit in fits) + 2.0 * len(x) * np.log(spread)


def words_about(doubtful, n_rows, names):
    """Warning about what `Likelihood.doubtful` found.

    Parameters
    ----------
    doubtful : dict
    n_rows : int
    names : sequence of str, or None
        Names of the columns of X.
    """
    words = []
    columns = _columns_with(doubtful, "two values")
    if columns:
        have = "has" if len(columns) == 1 else "have"
        words.append(
            f"{listed(columns, names)} of X {have} only two different values. Gaussian clusters "
            "separate the two values, so labels may show little of the other columns. Use "
            'likelihood="mixed" with these columns of type bool or category in a data frame, or '
            "a Product with Bernoulli() or Categorical() for them, or drop them"
        )
    for function in ("np.log", "np.log1p"):
        columns = _columns_with(doubtful, function)
        if columns:
            are = "is" if len(columns) == 1 else "are"
            words.append(
                f"{listed(columns, names)} of X {are} positive and strongly skewed. Several "
                "Gaussian components are needed for one cluster, so labels may cut clusters. Take "
                f"logarithms before fit: {code_of_logarithm(columns, names, function)}"
            )
    for d, far in doubtful.items():
        if isinstance(far, Far):
            column = listed([d], names)
            more = "" if far.n_far == 1 else f" ({far.n_far} entries of the column are far out)"
            words.append(
                f"row {far.row} of {column} of X holds {far.value:.6g}, more than a thousand "
                f"times as far out as other entries{more}. Clusters of other rows hardly depend "
                "on it. If it means missing, make it NaN"
            )
    if None in doubtful:
        words.append(
            f"{round(doubtful[None] * n_rows)} of {n_rows} rows of X are copies of other rows. "
            "Each counts as an observation, so clusters and probabilities seem as certain as with "
            "that many different rows. If copies say nothing new, fit to different rows: "
            "np.unique(X, axis=0)"
        )
    return ". Also, ".join(words)


def _columns_with(doubtful, what):
    return sorted(d for d, found in doubtful.items() if found == what)


def code_of_logarithm(columns, names, function="np.log"):
    """Line of Python that replaces columns of X by their logarithms."""
    chosen = f"X[:, {[int(d) for d in columns]}]"
    if names is not None:
        chosen = f"X[{[str(names[d]) for d in columns]}]"
    return f"{chosen} = {function}({chosen})"
