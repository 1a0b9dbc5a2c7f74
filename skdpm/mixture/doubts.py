# SPDX-License-Identifier: BSD-3-Clause
"""Warnings about rows and columns that do not suit the likelihood of a fit."""

import numpy as np
import scipy.sparse as sp

from skdpm._tables import as_table, joined, listed
from skdpm._validation import is_dask, warn
from skdpm.draws import column_of
from skdpm.mixture import overdispersion
from skdpm.mixture.answers.bricks import tied
from skdpm.mixture.answers.components import AXIS_ROWS, MOST_COLUMNS, standardised_columns
from skdpm.mixture.answers.training import of_all_rows
from skdpm.mixture.likelihoods import LIKELIHOODS, Gaussian, Product, VonMisesFisher
from skdpm.mixture.likelihoods.laws.columns import (
    LEAST_COPIES,
    SKEWED,
    SLIGHTLY_SKEWED,
    words_about,
)

# Fewest rows of 0 and 1 that are symmetric by chance once in 2^28 times.
FEWEST_NODES = 8
# Difference of entries (i, j) and (j, i) by rounding, as a share of the largest entry.
SAME_PAIR = 1e-6
# Largest absolute value of directions in two columns above which they may be degrees.
LEAST_DEGREES = 20.0
# Fewest rows that are said to be alone in clusters: of fewer each may be of a kind of its own.
FEWEST_ALONE = 10
# Standard deviations by which rows that hardly differ do, and rows of clusters that have few.
NEAR, FEW_ROWS = 0.05, 10
ONE_OF_EACH = "keep one of each: pd.DataFrame(X).round(k).drop_duplicates(), with few digits k"
# Mean number of rows of a cluster below which rows fewer than columns may be noise.
FEWEST_EACH = 4
# Times the root of the number of rows: mean silhouette below which clusters may be noise. Clusters
# of noise have at most 0.5 with few exceptions, groups that k-means finds mostly more than 0.6.
LEAST_APART = 0.6
# Largest number of rows between which all distances are computed for that.
MOST_PAIRED = 2000
# Departure from 1 of the sum of the squares of a sine and a cosine, as in single precision.
ON_CIRCLE = 1e-5
# Where hours, degrees and days of a year begin, and their periods; the fewest rows of a column of
# these, the parts of its range, and rows at its ends for one in the emptiest part.
PERIODS = (0.0, 24.0), (0.0, 360.0), (-180.0, 360.0), (1.0, 366.0)
FEWEST_AROUND, N_PARTS, TIMES_EMPTIEST = 50, 12, 4
# Fewest rows of groups in a column, the parts of its range, of which three count as one, standard
# deviations between a valley and the hills beside it, and the largest share of such columns.
FEWEST_IN_GROUPS, N_BINS, CLEAR_VALLEY, MOST_WITH_GROUPS = 100, 30, 5.0, 0.25
# Rows whose departures are in memory at once.
BLOCK_ROWS = 2**16
# Learned scale, as a share of the variance of a column, that no rows with a width lead to.
SMALL_SCALE = 1e-8


def warn_of_columns(model, X, program, given):
    """Warn of copies, and of columns whose use by the likelihood of `fit` may surprise."""
    likelihood = program.likelihood
    names = getattr(model, "feature_names_in_", None)
    doubtful = likelihood.doubtful(X, SKEWED if likelihood.has_points else SLIGHTLY_SKEWED)
    if program.copies is not None and program.n_samples < (1.0 - LEAST_COPIES) * X.shape[0]:
        doubtful = {**doubtful, None: program.copies}
    if words := not likelihood.pairwise and _about_pairs(X, given, names):
        warn(f"X {words}")
    elif doubtful:
        warn(words_about(doubtful, given, X, names))
    if is_dask(X):
        return
    _warn_of_angles(likelihood, X, names)
    if _are_ends(given):
        warn(
            "two columns of X share most of their values. The likelihood takes them as properties "
            "of rows. If rows are links and the columns their ends, use "
            'likelihood="relational" with X = skdpm.networks.adjacency(X)',
        )
    if X.shape[0] > 1 and all(likelihood.uninformative(rows).all() for rows in (X[:1], X)):
        what = "0" if sp.issparse(X) or not X[0].any() else "missing"
        if what == "missing" and not np.isnan(X[0]).all():
            what = "missing or the same in all rows"
        only = "clusters follow from known_labels alone"
        so = only if program.known.unites else "no entry tells rows apart"
        warn(
            f"all entries of X are {what}. So {so}, and answers are those of the priors. "
            "Look at how X was read"
        )
    elif len(empty := _empty_columns(X, model, likelihood)):
        warn(f"X has no entries in {listed(empty, names)}; answers about it are those of priors")
    warn_of_departures(model, X, likelihood)
    own = [own for _, own in likelihood.by_columns(model.n_features_in_)]
    follow = np.setdiff1d(np.arange(model.n_features_in_), np.concatenate(own))
    if len(follow) and model.likelihood in ("auto", "mixed"):
        unknown = np.isin(follow, likelihood.rebuilds, invert=True)
        then = f"give NaN for {listed(follow[unknown], names)}" if unknown.any() else "compute it"
        warn(
            f"{listed(follow, names)} of X can be computed from other columns, as totals, "
            f'products and copies can. So the law that likelihood="{model.likelihood}" chose '
            f"leaves this out, and sample and impute {then}"
        )


def _warn_of_angles(likelihood, X, names):
    in_plane = likelihood.reads_directions and X.shape[1] == 2 and not sp.issparse(X)
    low, high = np.sort(np.nanmax(np.abs(X), axis=0, initial=0.0)) if in_plane else (0.0, 0.0)
    if LEAST_DEGREES < high <= 180.0 and low <= 90.0:
        warn(
            "VonMisesFisher takes the two columns of X as directions in a plane. If they are "
            "latitude and longitude in degrees, convert them to radians and pass three columns: "
            "cos(lat) * cos(lon), cos(lat) * sin(lon) and sin(lat)",
        )
    for d in range(X.shape[1]) if likelihood.has_points and not sp.issparse(X) else ():
        if period := _period(X[:, d]):
            warn(
                f"{listed([d], names)} of X has many rows at both ends of a period of {period:g}. "
                "If it goes round, as hours and degrees do, Gaussian clusters cut it: put "
                f"np.cos(t) and np.sin(t) of t = 2 * np.pi * x / {period:g} in the place of its "
                "values x; then fit says how to take this pair as a direction"
            )
    angles = _angles(X) if likelihood.has_points and X.shape[0] >= FEWEST_ALONE else ()
    if len(angles) == 0:
        return
    pairs = [[int(d), int(d) + 1] for d in angles]
    rest = np.setdiff1d(np.arange(X.shape[1]), pairs).tolist()
    parts = [(f"angle{k}", VonMisesFisher(), pair) for k, pair in enumerate(pairs)]
    parts += [("numeric", Gaussian(), rest)] if rest else []
    warn(
        f"{listed(np.ravel(pairs), names)} of X are sines and cosines of angles. Gaussian "
        "clusters cut a circle into pieces. Take each pair as a direction: "
        f"likelihood={Product(parts)!r}, with the classes of skdpm.mixture.likelihoods"
    )


def _period(column):
    """Period of a column whose rows are dense at its ends, and few in between; 0 for others."""
    known = column[np.isfinite(column)].astype(np.float64)  # samplers of blocks keep integers
    low, high = known.min(initial=np.inf), known.max(initial=-np.inf)
    for begin, period in PERIODS if len(known) >= FEWEST_AROUND else ():
        if begin <= low and high <= begin + period:
            n_rows = np.histogram(known, N_PARTS, (begin, begin + period))[0]
            at_ends = min(n_rows[0], n_rows[-1])
            falls = n_rows[0] > n_rows[1] and n_rows[-1] > n_rows[-2]
            if falls and at_ends >= max(len(known) / N_PARTS / 2, TIMES_EMPTIEST * n_rows.min()):
                return period
    return 0.0


def _angles(X):
    """First columns of pairs whose squares have the sum 1 in all rows, and are not 0 and 1."""
    first = np.arange(X.shape[1] - 1)
    for rows in (X[:BLOCK_ROWS], X):  # a block rules out most pairs, without a copy of all rows
        with np.errstate(over="ignore"):
            one, other = np.square(rows[:, first]), np.square(rows[:, first + 1])
        on_circle = (np.abs(one + other - 1.0) < ON_CIRCLE).all(axis=0)
        first, other = first[on_circle], other[:, on_circle]
    first = first[(np.abs(other - 0.5) < 0.49).any(axis=0)]
    return first[np.append(True, np.diff(first) > 1)] if len(first) else first


def _about_pairs(X, given, names):
    """Words about an X that looks like links, distances or similarities of pairs, or None."""
    if is_dask(X) or not FEWEST_NODES <= X.shape[0] == X.shape[1]:
        return None
    entries = X.data if sp.issparse(X) else X
    sizes, diagonal = np.abs(entries[~np.isnan(entries)]), X.diagonal()
    index = getattr(getattr(given, "X", given), "index", ())
    named = names is not None and list(index) == list(names)
    near = SAME_PAIR * sizes.max(initial=0.0)
    symmetric = (abs(X - X.T) > near).sum() == 0
    columns = "The likelihood takes each column as a property of rows. If"
    if np.isin(sizes, (0.0, 1.0)).all() and (named or symmetric):
        return (
            "has as many columns as rows, and all its entries are 0 or 1, as links between "
            f"nodes. {columns} entry (i, j) is a link from node i to node j, use "
            'likelihood="relational"'
        )
    of_same = [value for value in (0.0, 1.0) if (np.abs(diagonal - value) <= near).all()]
    if not of_same or not symmetric or (of_same[0] and sizes.max() > 1.0 + near):
        return None
    what, change, links = "similarities or correlations", "1 - X", ""
    if not of_same[0]:
        what, change, links = (
            "distances",
            "X",
            '. For weights of links use likelihood="relational"',
        )
    return (
        f"is symmetric with the diagonal {of_same[0]:g}, as {what} of pairs. {columns} X has an "
        "entry for each pair, pass the table from which X was computed, or coordinates of "
        f"{change} by sklearn.manifold.MDS{links}"
    )


def _are_ends(given):
    """Whether two columns of names, and at most one more, share most of their values."""
    table = as_table(given)
    columns = [] if table is None or table.shape[1] > 3 else table.columns()
    sets = [set(column.distinct) for column in columns if column.kind == "category"]
    n = len(set().union(*sets))
    return len(sets) == 2 and n >= FEWEST_NODES and 2 * len(sets[0] & sets[1]) > n


def words_of_silence(model):
    """Lines of `BaseMixture.summary` about rows of which nothing is known, and, while the rows of
    `fit` are at hand, about columns: dict."""
    training, lines = model._training, {}
    if training is None:
        return lines
    if training.informative is not None:
        rows = training.spread(np.zeros(len(training.informative)))
        labels = model.labels_[of_all_rows(rows, training.copies) < 0]
        where = "noise" if (labels < 0).all() else "in the largest cluster"
        lines["rows"] = (
            f"{len(labels)} of {len(model.labels_)} contain no information, as they have only "
            f"missing entries or zeros; they are {where}"
        )
    if len(empty := _empty_columns(training.X, model, model.likelihood_)):
        named = listed(empty, getattr(model, "feature_names_in_", None))
        lines["columns"] = f"{named} without entries; answers about them are those of priors"
    return lines


def _empty_columns(X, model, likelihood):
    """Columns of rows in memory without any entry: ndarray of int."""
    if not isinstance(X, np.ndarray) or likelihood.pairwise:
        return ()
    empty = np.flatnonzero(np.isnan(X[0, : model.n_features_in_]))
    return empty[np.isnan(X[:, empty]).all(axis=0)]


def warn_of_classes(y, known_labels):
    """Warn of labels in y that look like known classes of some rows."""
    if known_labels is None and isinstance(y, np.ndarray | list) and np.isin([-1, 0], y).all():
        warn(
            "fit ignores y, which has classes from 0 on and -1, as if the class of some rows is "
            "not known. To use the classes, pass known_labels=y",
        )


def warn_of_departures(model, X, likelihood):
    left_out, names = likelihood.left_out, getattr(model, "feature_names_in_", None)
    if left_out is None:
        return
    found = np.zeros(len(left_out.left_out), dtype=bool)
    for first in range(0, len(X), BLOCK_ROWS):
        block = np.asarray(X[first : first + BLOCK_ROWS], dtype=np.float64)
        found |= left_out.departs(block).any(axis=0)
    columns, values = left_out.left_out[found], left_out.constants[found]
    different = np.unique(values[~np.isnan(values)])
    value = f" ({different[0]:g})" if len(different) == 1 else " each"
    kinds = np.where(np.isnan(values), "followed from the other columns", f"had one value{value}")
    if found.any():
        said = joined(
            f"{listed(np.sort(columns[kinds == kind]), names)} of X {kind}"
            for kind in np.unique(kinds)[::-1]
        )
        warn(
            f"{said} in the rows of fit, but not in all rows now. Labels ignore such columns, and "
            "score_samples gives rows that differ a low density. Scores of folds with and without "
            "such rows are not comparable. If they should count, fit to rows in which they vary",
        )


def warn_of_overdispersion(model, program):
    if program.known.unites or program.noise_law.takes_rows or not program.store_labels:
        return
    labels = model.draws_["labels"][0, -1]
    if overdispersion.has_overdispersed_links(program, labels, np.random.PCG64(0)):
        warn(
            "the numbers of links in X vary more between clusters of nodes than Poisson "
            "numbers, as weights do. So components are parts of clusters, and labels may cut "
            'clusters. Use Relational(weights="counts"), or pass the links alone, (X > 0)',
        )
    _warn_of_parts(model, program, labels)
    if not isinstance(program.given, np.ndarray):
        return
    _warn_of_planes(model, program, labels)
    _warn_of_few_rows(model)
    _warn_of_near_rows(model)
    _warn_of_valleys(model)
    if columns := overdispersion.columns_with_totals(program, labels, np.random.PCG64(0)):
        named = "X" if len(columns) == model.n_features_in_ else f"X[:, {columns}]"
        warn(
            "some rows have larger counts than others in all columns. So clusters may show "
            "the totals of rows, not their kinds. If only the shares of columns matter, use "
            f"NegativeBinomial() and pass fit exposure={named}.sum(axis=1) / "
            f"{named}.sum(axis=1).mean()",
        )
        return
    if columns := overdispersion.overdispersed_columns(program, labels, np.random.PCG64(0)):
        named = listed(columns, getattr(model, "feature_names_in_", None))
        vary = "varies" if len(columns) == 1 else "vary"
        warn(
            f"{named} of X {vary} more within clusters than Poisson counts. So components are "
            "parts of clusters, and labels may cut clusters. Use NegativeBinomial() instead "
            "of Poisson()",
        )


def _warn_of_planes(model, program, labels):
    likelihood, training = program.likelihood, model._training
    if not isinstance(likelihood, LIKELIHOODS["gaussian"]) or "scale" not in likelihood.learned:
        return
    X = likelihood.independent(training.X)
    scale = model.draws_.mean(column_of("scale"))
    if np.ndim(scale) > 1 or X.shape[1] > MOST_COLUMNS:
        return
    some = np.nan_to_num(X[:: max(1, len(X) // AXIS_ROWS)])
    if not (scale < SMALL_SCALE * some.var(axis=0)).any():
        return
    flat = tied(standardised_columns(X), labels)
    rows = np.flatnonzero(of_all_rows(flat[labels], training.copies))
    if len(rows):
        named = joined([str(i) for i in rows[:3]])
        others = "" if len(rows) == len(training.X) else "; other rows are not"
        warn(
            f"{len(rows)} rows of X, of which the first are {named}, are on lines or planes up to "
            f"rounding{others}. So the learned scale, which all clusters share, is close to 0, "
            "densities of these rows have no limit, and clusters may show little else. Fit these "
            "rows apart, or set the scale: Gaussian(scale=...). If rows are copies up to "
            f"rounding, {ONE_OF_EACH}"
        )


def _warn_of_near_rows(model):
    if not model.likelihood_.has_points or model.n_clusters_ < FEWEST_ALONE:
        return
    labels = model._training.different(model.labels_)
    X = np.nan_to_num(standardised_columns(model._training.X))[labels.argsort(kind="stable")]
    sizes = np.unique(labels, return_counts=True)[1]
    starts = sizes.cumsum() - sizes
    ranges = np.ptp([np.maximum.reduceat(X, starts), np.minimum.reduceat(X, starts)], axis=0)
    widths = ranges.max(axis=1, initial=0.0)
    near = sizes[(widths > 0.0) & (widths < NEAR)]
    n_near, n_clusters = near.sum(), len(near)
    most = FEW_ROWS * n_clusters if n_clusters >= FEWEST_ALONE else 0
    if LEAST_COPIES * len(labels) < n_near < most:
        warn(
            f"{n_near} rows of X are in {n_clusters} clusters of few rows that hardly differ: "
            f"by at most {NEAR:g} standard deviations in each column. If they are copies up to "
            f"rounding, or measurements of the same thing, {ONE_OF_EACH}"
        )


def _warn_of_few_rows(model):
    n_samples, n_features, n_clusters = len(model.labels_), model.n_features_in_, model.n_clusters_
    is_given = getattr(model, "n_components", None) is not None
    learns = "mean_precision" in model.likelihood_.learned and n_clusters > 1 and not is_given
    if not learns:
        return
    if n_samples < FEWEST_ALONE:
        advice, is_doubtful = "Add rows", 2 * n_clusters > n_samples
    else:
        advice = "Use fewer columns, as from sklearn.decomposition.PCA"
        is_doubtful = n_samples < 2 * n_features and (
            FEWEST_EACH * n_clusters > n_samples
            or _silhouette(model) < LEAST_APART / n_samples**0.5
        )
    if is_doubtful:
        warn(
            f"labels_ has {n_clusters} clusters; X has {n_samples} rows and {n_features} "
            "columns. So few rows may not tell clusters from noise, which may have many clusters "
            f"and rows that are alone. {advice}, or use FiniteMixture(n_components=...) with the "
            "number of clusters",
        )


def _warn_of_valleys(model):
    likelihood, X = model.likelihood_, model._training.X
    is_told = getattr(model, "n_components", None) is not None or model.sampler != "auto"
    if is_told or not likelihood.has_points or model.n_components_samples_.mean() > 1.5:
        return
    columns = [d for d, column in enumerate(X.T) if _has_valley(column)]
    if 0 < len(columns) <= MOST_WITH_GROUPS * X.shape[1]:
        named = listed(columns, getattr(model, "feature_names_in_", None))
        law = Gaussian(covariance_type="diag")
        law = Product([("all", law, range(model.n_features_in_))], select=True)
        warn(
            f"labels_ is one cluster, but rows form separate groups in {named}. The other columns "
            "do not tell these apart, and outweigh them. Fit such columns alone, or let the fit "
            f"find which columns tell clusters: likelihood={law!r}"
        )


def _has_valley(column):
    """Whether a column has, between hills, a valley of half their height that is not chance."""
    known = column[np.isfinite(column)]
    if len(known) < FEWEST_IN_GROUPS or len(np.unique(known)) < 2 * N_BINS:
        return False
    ends = np.quantile(known, [0.005, 0.995])
    n_rows = np.convolve(np.histogram(known, N_BINS, ends)[0], np.ones(3), "valid")
    hills = np.minimum(np.maximum.accumulate(n_rows), np.maximum.accumulate(n_rows[::-1])[::-1])
    clear = hills - n_rows > CLEAR_VALLEY * np.sqrt(hills + n_rows)
    return bool((clear & (n_rows < hills / 2)).any())


def _silhouette(model):
    """Mean silhouette coefficient of labels_: how much nearer rows are to those of their cluster
    than to those of the nearest other one; of some rows. Missing entries are those of the mean."""
    from sklearn.metrics import silhouette_score  # not loaded by `import skdpm`

    X = np.nan_to_num(standardised_columns(model._training.X).T)
    X = of_all_rows(X, model._training.copies).T
    some = slice(None, None, -(-len(X) // MOST_PAIRED))
    labels = model.labels_[some]
    # Rows of one cluster, or all alone, have no silhouette.
    in_groups = 1 < len(np.unique(labels)) < len(labels)
    return silhouette_score(X[some], labels) if in_groups else 0.0


def _warn_of_parts(model, program, labels):
    X, is_told = program.given, getattr(model, "n_components", None) is not None
    if is_told or is_dask(X) or not isinstance(program.likelihood, LIKELIHOODS["multinomial"]):
        return
    if overdispersion.vary_in_shares(X, labels) or overdispersion.are_fragments(X, labels):
        larger = "Multinomial(concentration=1.0), or " if program.likelihood.learned else ""
        warn(
            "clusters are small, and seem to be parts of kinds of rows, because counts vary more "
            "within kinds, as words in texts on a subject, than multinomial counts. For texts use "
            f'{larger}FiniteMixture(k, likelihood="multinomial") with about k subjects. Of other '
            "counts use NegativeBinomial() and pass fit exposure=X.sum(axis=1) / "
            "X.sum(axis=1).mean(), or fit Gaussian() to logarithms of shares, "
            "np.log1p(1e4 * X / X.sum(axis=1, keepdims=True))",
        )
