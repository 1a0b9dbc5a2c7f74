# SPDX-License-Identifier: BSD-3-Clause
"""Questions to a fitted mixture: about unknown entries of rows, and about its clusters."""

import copy
import functools
from collections.abc import Callable, Hashable, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.stats import sem
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skdpm._rows import converted, names_columns, unit_exposure, validate_rows, with_exposure
from skdpm._tables import MOST_NAMED, called, columns_of_rows, filled_table, joined, listed
from skdpm._typing import F
from skdpm._validation import (
    check_integer,
    check_real,
    fingerprint,
    imported,
    is_dask,
    offered_if,
    warn,
)
from skdpm.chains import seed_entropy, stream
from skdpm.diagnostics import mcse_mean
from skdpm.mixture.answers.conditional import (
    NewLaws,
    OwnLaws,
    blocks,
    completed_tables,
    most_likely,
)
from skdpm.mixture.answers.description import describe
from skdpm.mixture.likelihoods.composite.registry import refusal
from skdpm.mixture.likelihoods.composite.tables import positions_of
from skdpm.networks import filled_network, is_network_of

# Streams of random numbers, beyond those of `base`.
IMPUTE_STREAM = 2**32 - 3
DESCRIBE_STREAM = 2**32 - 4


def offered_with(role: str) -> Callable[[F], F]:
    """Decorate a method that needs a role of the likelihood of the fit, or before it of that of
    the parameter."""
    return offered_if(lambda estimator: refusal(_likelihood(estimator), role))


def _without_links(estimator):
    """Why a method about links of networks is not offered, or None."""
    if hasattr(_likelihood(estimator), "expected_links"):
        return None
    return "only networks have links to expect; cluster_params_ has means of columns"


def _likelihood(estimator):
    return getattr(estimator, "likelihood_", None) or estimator._lenient_likelihood()


class Questions:
    """Methods of `BaseMixture` about unknown entries, which NaN marks, and about clusters."""

    # Types of fitted attributes. In a decorated class they would be parameters.
    labels_: np.ndarray
    n_clusters_: int
    weights_: np.ndarray
    cluster_params_: dict[str, Any]
    label_samples_: np.ndarray
    cluster_samples_: np.ndarray
    n_components_samples_: np.ndarray
    n_clusters_samples_: np.ndarray
    concentration_samples_: np.ndarray
    log_joint_samples_: np.ndarray
    hyperparameter_samples_: dict[str, np.ndarray]
    diagnostics_: dict[str, dict[str, Any]]
    converged_: bool

    def probability_of_number(self, n_clusters: int) -> tuple[float, float]:
        """Posterior probability of a number of clusters, with its Monte Carlo standard error: the
        share of `n_clusters_samples_` with this number, and an error of at least one draw's share,
        and of what differs between chains. If components may be clusters or bricks of one, as in
        skewed clusters, another seed may differ by several times as much."""
        number = check_integer(n_clusters, "n_clusters", low=1)
        self._check_label_draws("probability_of_number", "draws_")
        return _share(self.n_clusters_samples_ == number)

    def probability_together(self, first: Hashable, second: Hashable) -> tuple[float, float]:
        """Posterior probability that two rows of `fit`, given by their positions, share a cluster,
        with its Monte Carlo error, as of `probability_of_number`.
        Nodes of a network with names, `feature_names_in_`, are given by themselves or by names; an
        integer is then a position only if no node is an integer."""
        self._check_label_draws("probability_together", "draws_")
        clusters = self.cluster_samples_
        first, second = (_position(self, *row) for row in (("first", first), ("second", second)))
        of_first = clusters[:, :, first]
        together = (of_first == clusters[:, :, second]) & ((of_first >= 0) | (first == second))
        return _share(together)

    @offered_if(_without_links)
    def fitted_values(self) -> np.ndarray:
        """Posterior means of all links of a network, observed or missing: ndarray of shape
        (n_samples, n_samples). Probabilities of links or, with degree correction, expected numbers
        of links, averaged over up to 100 draws."""
        check_is_fitted(self)
        likelihood, means = self.likelihood_, 0.0
        for draw in self.draws_.scored.draws:
            labels = draw["labels"].astype(np.intp)
            links = likelihood.at(draw["values"]).expected_links(draw["stats"], labels)
            means = means + draw["weight"] * links
        return means

    @offered_with("column_means")
    def describe(self, X=None, *, level: float = 0.9) -> Any:
        """Describe how each cluster of `labels_` differs from the other rows. Needs pandas.

        Parameters
        ----------
        X : array-like, DataFrame or CSR matrix of shape (n_samples, n_features), default=None
            Rows of `fit`. Needed only after pickling.
        level : float, default=0.9
            Probability of the credible intervals, between 0 and 1.

        Returns
        -------
        table : DataFrame
            A line for each cluster, column and category, the largest differences first, with the
            columns

            - "mean", "rest": posterior mean of the column's mean or share in the cluster, and in
              the other rows;
            - "low", "high": credible interval of the mean in the cluster;
            - "lift": mean over that of the other rows, for counts and shares;
            - "kind": "number", "count" or "share" (of ones, of a category, of a word);
            - "n_rows", "share_of_rows": size of the cluster;
            - "difference_low", "difference_high", "difference": credible interval and mean of the
              difference from the other rows, in standard deviations within clusters;
            - "certainty": posterior probability that the difference has its sign.
        """
        check_is_fitted(self)
        self._check_label_draws("describe", "cluster_params_")
        level = check_real(level, "level", low=0.0, high=1.0)
        pd = imported("pandas", "describe", "pandas")
        training = self._training
        self._recall(X)
        rng = np.random.Generator(stream(training.entropy, DESCRIBE_STREAM))
        labels = training.different(self._clusters)
        key = level, labels.tobytes()
        if key not in training.described:  # many clusters and columns take seconds
            found = describe(self.likelihood_, training, self.draws_, labels, level, rng)
            training.described = {key: found}
        found = training.described[key]
        sizes = found.sizes
        if training.copies is not None:
            sizes = np.bincount(self._clusters[self._clusters >= 0])
        order = np.array([found.order(k) for k in range(len(found.sizes))])
        clusters = np.repeat(np.arange(len(order)), order.shape[1])
        entries = order.ravel()
        names = getattr(self, "feature_names_in_", getattr(self, "_columns", None))
        names = np.arange(self.n_features_in_) if names is None else names
        index = pd.MultiIndex.from_arrays(
            [
                getattr(self, "classes_", np.arange(len(order)))[clusters],
                names[found.columns[entries]],
                _categories_of_entries(self, found)[entries],
            ],
            names=["cluster", "column", "category"],
        )
        low, high = found.mean_interval
        difference_low, difference_high = map(found.standardised, found.difference_interval)
        at = clusters, entries
        columns = {  # a narrow terminal shows the first and the last
            "mean": found.mean[at],
            "rest": found.rest[at],
            "low": low[at],
            "high": high[at],
            "lift": found.lift[at],
            "kind": found.kinds[entries],
            "n_rows": sizes[clusters],
            "share_of_rows": sizes[clusters] / sizes.sum(),
            "difference_low": difference_low[at],
            "difference_high": difference_high[at],
            "difference": found.difference[at],
            "certainty": found.certainty[at],
        }
        return pd.DataFrame(columns, index=index)

    @offered_if(lambda self: _without_links(self) and refusal(_likelihood(self), "laws"))
    def impute(self, X, n_draws: int | None = None, *, exposure=None) -> Any:
        """Fill missing entries, given the others of each row; of a network, its unobserved pairs.

        >>> import numpy as np
        >>> from skdpm import DPMixture
        >>> rng = np.random.default_rng(0)
        >>> X = np.r_[rng.normal(0, 1, (50, 2)), rng.normal(9, 1, (50, 2))]
        >>> model = DPMixture(random_state=0).fit(X)
        >>> model.impute([[9.0, np.nan], [np.nan, 9.0]]).round()
        array([[9., 9.],
               [9., 9.]])

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows; NaN, None or `pandas.NA` marks a missing entry. Of a network, that of `fit`, also
            as a CSR matrix.
        n_draws : int, default=None
            Number of completed tables to draw. None: numbers are filled with their posterior
            means, binary columns and categories with the most probable value, and links with
            their probabilities, those of `fitted_values`.
        exposure : array-like of shape (n_samples,), default=None, as in `predict`

        Returns
        -------
        X : ndarray or DataFrame of shape (n_samples, n_features), or a list of these
            Completed copies of X: a list if `n_draws` is given. A warning names columns with
            entries that stay missing, as `fit` had no values there.
        """
        return complete(self, X, n_draws, exposure=exposure)

    @offered_with("laws")
    @names_columns
    def predict_columns(
        self, X, columns, quantiles: float | Sequence[float] | None = None, *, exposure=None
    ) -> dict[Any, Any]:
        """Predict columns given the other known entries of each row, under the law of `impute`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n_samples, n_features)
            Rows; NaN, None or `pandas.NA` marks an entry that is not known.
        columns : int, str or list of these
            Columns to predict, as positions or names. Their entries in X have no effect.
        quantiles : float or list of float, default=None
            Probabilities of quantiles, between 0 and 1, for columns of numbers.
        exposure : array-like of shape (n_samples,), default=None, as in `predict`

        Returns
        -------
        predictions : dict of Bunch
            An entry for each of `columns`, by name if X had names in `fit`: `mean`, and with
            `quantiles` also `quantiles`, of shape (n_samples, n_quantiles); or, for categories,
            `probabilities`, of shape (n_samples, n_categories), `categories` and `mode`, the most
            probable one. An entry that others determine, as a total, is computed from them; of a
            column left out for that, the mean is that of `impute`, and quantiles may be NaN.
        """
        check_is_fitted(self)
        positions = positions_in(self, columns, X, "columns")
        probabilities = None if quantiles is None else _checked_quantiles(quantiles)
        rows = self._predictor.modelled(rows_with_gaps(self, X, exposure, positions))
        laws = NewLaws(self._predictor.conditional, rows)
        parts = [
            [
                None if law is None else _summary(law, probabilities)
                for law in pairs.columns(positions)
            ]
            for pairs in blocks(laws, np.arange(len(rows)))
        ]
        names = getattr(self, "feature_names_in_", None)
        out = {}
        for j, d in enumerate(positions):
            key = int(d) if names is None else names[d]
            if parts[0][j] is not None:
                found = {
                    name: np.concatenate([part[j][name] for part in parts]) for name in parts[0][j]
                }
            elif d in self.likelihood_.rebuilds:
                filled = self.likelihood_.rebuilt(most_likely(laws, rows, np.arange(len(rows))))
                found = {"mean": filled[:, d]}
                if probabilities is not None:
                    found["quantiles"] = np.full((len(rows), len(probabilities)), np.nan)
            else:
                raise ValueError(
                    f"column {key!r} is in no part of the likelihood; choose other columns"
                )
            known = ~np.isnan(rows[:, d])  # relations of columns determine these entries
            for values in () if "probabilities" in found else found.values():
                values[known] = rows[known, d].reshape(-1, *[1] * (values.ndim - 1))
            out[key] = _named(self, found, d)
        return out


for _method in (Questions.probability_of_number, Questions.probability_together):
    _method.__qualname__ = _method.__name__  # errors of Python show it


def _position(estimator, parameter, row):
    """Position of a row of `fit`, which may be a node of a network, or the name of one."""
    names = list(getattr(estimator, "feature_names_in_", ()))
    names = names if estimator.likelihood_.pairwise else []
    nodes = getattr(estimator, "_nodes", names) if names else []
    places = dict(zip(nodes, range(len(nodes)), strict=True))
    if isinstance(row, Hashable) and row in places:
        return places[row]
    if isinstance(row, str) and names.count(row) == 1:
        return names.index(row)
    if any(isinstance(n, Integral) for n in nodes) or (names and not isinstance(row, Integral)):
        raise ValueError(f"{parameter} must be a node of the network of fit, got {row!r}")
    n_rows = estimator.cluster_samples_.shape[2]
    what = f"{parameter}, the position (not the name) of one of {n_rows} rows,"
    return check_integer(row, what, low=0, high=n_rows - 1)


def _share(happens):
    """Share of draws, (n_chains, n_draws), and its Monte Carlo error: at least that of one of them
    that differs, and that of the mean of the shares in chains."""
    between = sem(happens.mean(axis=1)) if len(happens) > 1 else 0.0
    error = mcse_mean(happens.astype(np.float64))
    return float(np.mean(happens)), float(np.nanmax([error, between, 1.0 / happens.size]))


@names_columns
def complete(estimator, X, n_draws=None, ignored=(), exposure=None):
    """`Questions.impute`, without a warning of the columns `ignored`."""
    check_is_fitted(estimator)
    if estimator.likelihood_.pairwise:
        return _complete_network(estimator, X, n_draws)
    rows = rows_with_gaps(estimator, X, exposure)
    incomplete = np.flatnonzero(np.isnan(rows).any(axis=1))
    laws = _laws_of(estimator, rows, incomplete)
    if n_draws is None:
        completed = [most_likely(laws, rows, incomplete)]
    else:
        n_draws = check_integer(n_draws, "n_draws", low=1)
        rng = generator(estimator, IMPUTE_STREAM)
        completed = completed_tables(laws, rows, incomplete, n_draws, rng)
    likelihood, n_columns = estimator.likelihood_, estimator.n_features_in_
    completed = [likelihood.rebuilt(table)[:, :n_columns] for table in completed]
    rows = converted(estimator, X, likelihood, reset=False, dtype=np.float64)  # with all gaps
    left = np.setdiff1d(np.flatnonzero(np.isnan(completed[0]).any(axis=0)), ignored)
    if len(left):
        named = listed(left, getattr(estimator, "feature_names_in_", None))
        warn(
            f"missing entries of {named} of X are not filled, as there was no observed value "
            f"in fit, or no part of the likelihood has the column. Drop {named} before steps "
            "that need complete rows",
        )
    tables = [filled_table(X, rows, filled, likelihood.decode(filled)) for filled in completed]
    return tables[0] if n_draws is None else tables


def _complete_network(estimator, X, n_draws):
    """`Questions.impute` of a network."""
    likelihood, draws = estimator.likelihood_, estimator.draws_.scored.draws
    rows = validate_rows(estimator, X, likelihood, reset=False)
    if not is_network_of(estimator, rows):
        raise ValueError("impute fills unobserved pairs of the network of fit: X must be that")
    if n_draws is None:
        return filled_network(X, rows, estimator.fitted_values())
    rng = generator(estimator, IMPUTE_STREAM)
    n_draws = check_integer(n_draws, "n_draws", low=1)
    chosen = rng.choice(draws, n_draws, p=[draw["weight"] for draw in draws])
    return [filled_network(X, rows, likelihood.draw_links(draw, rng)) for draw in chosen]


def _laws_of(estimator, rows, incomplete):
    """Laws of missing entries: `OwnLaws` of rows of the fit that may have gaps, else `NewLaws`."""
    training, predictor = estimator._training, estimator._predictor
    # With noise, a row may be in no cluster.
    if training is None or training.noise_law.takes_rows or fingerprint(rows) != training.key:
        if len(incomplete):
            predictor.modelled(rows[incomplete])
        return NewLaws(predictor.conditional, rows)
    if training.X is None:
        training = copy.copy(training)
        training.recall(rows)
    return OwnLaws(estimator.likelihood_, training, estimator.draws_)


@names_columns
def draw_given(estimator, n_samples, given, rng):
    """Draw rows given the known entries of one row: ndarray of numbers."""
    names = getattr(estimator, "feature_names_in_", None)
    positions_of_columns = functools.partial(positions_in, estimator)
    table = columns_of_rows(given, estimator.n_features_in_, names, positions_of_columns)
    row = rows_with_gaps(estimator, table, unit_exposure(1, estimator.likelihood_))
    if len(row) != 1:
        raise ValueError(f"given must be one row, got {len(row)}")
    for d, column in enumerate(estimator.likelihood_.decode(row[:, : estimator.n_features_in_])):
        if column is not None and column[0][0] == len(column[1]):
            known = joined(map(repr, column[1][:MOST_NAMED].tolist()))
            what = f"given: {called(d, names)} had no such value in `fit`"
            raise ValueError(f"{what}; give one that it had, such as {known}")
    predictor = estimator._predictor
    filled = predictor.conditional.completions(predictor.modelled(row), n_samples, rng)
    return filled[:, : estimator.n_features_in_]


def positions_in(estimator, columns, X, who):
    """Positions of columns that are given by position or name."""
    names = getattr(estimator, "feature_names_in_", None)
    names = None if names is None else list(names)
    positions = positions_of(columns, estimator.n_features_in_, names, X, who)
    if len(np.unique(positions)) < len(positions):
        raise ValueError(f"{who} contains a column twice")
    return positions


def rows_with_gaps(estimator, X, exposure=None, hidden=()):
    """Check rows of which any entries may be missing, and those of columns `hidden` are: a new
    ndarray."""
    if is_dask(X) or sp.issparse(X):
        raise TypeError("X must be an array or a data frame in memory, and dense")
    likelihood = estimator.likelihood_
    rows = converted(estimator, X, likelihood, reset=False, dtype=np.float64, order="C")
    likelihood.check_entries(rows, gaps=True)
    rows = with_exposure(rows, likelihood, exposure).copy()
    rows[:, hidden] = np.nan
    return likelihood.rebuilt(rows)


def generator(estimator, key, random_state=None):
    """A generator of a seed, None: the parameter `random_state`, with the stream `key`."""
    seed = estimator.random_state if random_state is None else random_state
    return np.random.Generator(stream(seed_entropy(seed), key))


def _named(estimator, found, column):
    if "probabilities" not in found:
        return Bunch(**found)
    categories = _categories(estimator, column, found["probabilities"].shape[1])
    mode = categories[found["probabilities"].argmax(axis=1)]
    return Bunch(categories=categories, mode=mode, **found)


def _categories(estimator, column, n_categories):
    """The categories of a column: ndarray of shape (n_categories,)."""
    decoded = estimator.likelihood_.decode(np.zeros((1, estimator.n_features_in_)))[column]
    return np.arange(n_categories) if decoded is None else np.asarray(decoded[1])


def _categories_of_entries(estimator, found):
    """Category of each entry of a `Description`, "" if it has none: ndarray of objects."""
    categories = np.full(len(found.columns), "", dtype=object)
    coded = found.codes >= 0
    for d in np.unique(found.columns[coded]):
        of_column = coded & (found.columns == d)
        categories[of_column] = _categories(estimator, d, np.count_nonzero(of_column))
    return categories


def _summary(law, quantiles):
    """What `predict_columns` returns of a column: dict of arrays."""
    probabilities = law.probabilities()
    if probabilities is not None:
        return {"probabilities": probabilities}
    found = {"mean": law.mean()}
    if quantiles is not None:
        found["quantiles"] = np.array([law.quantile(p) for p in quantiles]).T
    return found


def _checked_quantiles(quantiles):
    found = np.atleast_1d(np.asarray(quantiles, dtype=np.float64))
    if found.ndim != 1 or not ((found > 0.0) & (found < 1.0)).all():
        raise ValueError(f"quantiles must be between 0 and 1, got {quantiles!r}")
    return found
