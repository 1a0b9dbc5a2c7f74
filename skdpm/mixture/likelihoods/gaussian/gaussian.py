# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Gaussian`. The structure of its covariances is an object of covariances.py."""

import copy

import numpy as np

from skdpm._validation import (
    FARTHEST,
    ColumnError,
    check_choice,
    check_integer,
    check_real,
    explains,
    parameters,
)
from skdpm.hyperpriors import LKJ, Gamma, Shifted
from skdpm.mixture.likelihoods.contract.base import MOST_BOXED, Likelihood, bounds, read_only
from skdpm.mixture.likelihoods.elliptical._sparse import MOST_PARENTS
from skdpm.mixture.likelihoods.gaussian.covariances import (
    COVARIANCES,
    KNOWN,
    SMALLEST_SHARE,
    SMALLEST_WITH_GAPS,
    Normal,
    as_vector,
)
from skdpm.mixture.likelihoods.gaussian.projected import Projection, columns_of, projection_of
from skdpm.mixture.likelihoods.gaussian.tails import TAILS, Tails
from skdpm.mixture.likelihoods.laws.background import box
from skdpm.mixture.likelihoods.laws.columns import (
    FAR_IF_SHARED,
    LEAST_COPIES,
    doubtful_columns,
    far_columns,
)
from skdpm.mixture.likelihoods.laws.coordinates import bulk, completed, standardised
from skdpm.mixture.likelihoods.laws.means import normal_means
from skdpm.mixture.likelihoods.laws.recorded import (
    REMOTE,
    REMOTE_IF_SHARED,
    Recording,
    Spread,
    copies_in,
    recording_of,
    remote,
)

# Hyperpriors without units. That of the scale is in covariances.py.
R_SHAPE, R_RATE = 0.5, 5.0  # mean_precision ~ Gamma
DF_LOW, DF_SHAPE, DF_RATE = 1.0, 2.0, 0.2  # k = df - lower limit; k - DF_LOW ~ Gamma

# End of errors about numbers that are too large for their squares.
OVERFLOWS = "overflows; if such a value means missing, make it NaN, else rescale the column"

# Initial mean_precision: the prior mean counts as a tenth of a row.
MEAN_PRECISION = 0.1

# Fewest rows, and fewest entries of X, for which full covariances are drawn. With less, chains
# that move rows one at a time take about a minute and mix better (doc/guide/many_rows.md).
BLOCK_ROWS, BLOCK_ENTRIES = 10_000, 100_000

# First rows from which the recording of columns is read, and number of entries of the first rows
# that are read instead if all are in memory and in no blocks.
HEAD_ROWS, HEAD_ENTRIES = 4096, 2**20

# Smallest number of entries of a column of two values that is reported.
FEWEST_TWO_VALUED = 10
# A rare value, at most this share, in one of so many columns changes labels little, and is no flag
# in images. On simulated tables ARI is the same with such a flag; with three columns it loses .07.
RARE_VALUE, MANY_COLUMNS = 0.02, 8

# Largest variance of a column. With a larger one, draws of a learned scale could be infinite.
LARGEST_VARIANCE = 1e290

# Smallest spread of a column, so that its square is a normal double.
SMALLEST_SPREAD = 1e-150


@explains(
    tail_df="set it in the tails: tails=StudentTails(df=3)",
    contamination="set it in the tails: tails=ContaminatedTails(contamination=0.1)",
    inflation="set it in the tails: tails=ContaminatedTails(inflation=10)",
)
@parameters
class Gaussian(Likelihood):
    """Gaussian clusters.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Gaussian
    >>> X = np.random.default_rng(0).normal(size=(60, 2)) + np.repeat([[0.0], [9.0]], 30, axis=0)
    >>> model = DPMixture(likelihood=Gaussian(covariance_type="diag"), random_state=0).fit(X)
    >>> model.cluster_params_["means"].shape
    (2, 2)

    The covariance of cluster k is, by `covariance_type`,

    - `"full"`: Sigma_k ~ IW(df, scale), a matrix for each cluster;
    - `"diag"`: diagonal, with variance_kd ~ InvGamma(shape=df / 2, rate=scale_d / 2), independent
      over columns and clusters;
    - `"spherical"`: variance_k times the identity, with variance_k ~ InvGamma(shape=df / 2,
      rate=scale / 2), one number for each cluster;
    - `"tied"`: the matrix `scale` itself, the same for all clusters;
    - `"sparse"`: that of columns which depend on at most `n_parents` others each, chosen by `fit`.
      Given these, a column is a linear regression with slopes N(0, variance_kd / scale_p) for
      parent p and variance_kd as for `"diag"`. For many columns: a row costs
      n_features n_parents² operations per cluster.

    Given its covariance, the mean of a cluster is N(mean, covariance / mean_precision).

    Priors of learned parameters do not depend on the unit of a column. `scale` is about the
    variance inside a cluster, times `df`: the smaller, the more clusters.

    NaN marks missing entries, which do not affect the cluster of their row. With full and tied
    covariances chains draw them.

    Chains see rounded values spread over their cells, and rows that were copied once. Columns that
    are constant, or that others determine (full, tied), do not change clusters. The page "Gaussian
    in detail" of the guide has priors, starts and rules.

    Parameters
    ----------
    mean : float, array-like of shape (n_features,) or None, default=None
        Prior mean. None: learned.
    mean_precision : float or None, default=None
        Number of observations that the prior mean counts as. None: learned.
    df : float or None, default=None
        Degrees of freedom, > n_features - 1 (full, tied) or > 0 (others). None: learned, or
        n_features + 2 if tied.
    scale : float, array-like of shape (n_features,) or (n_features, n_features), or None, \
default=None
        Scale of the covariances, in squared units: a number times the identity, a diagonal, or a
        matrix (full, tied); with tied covariances the covariance itself. None: learned.
    covariance_type : {"full", "diag", "sparse", "tied", "spherical"}, default="full"
        Structure of the covariances.
    n_parents : int, default=8
        Largest number of columns on which a column depends, 1 to 16, with sparse covariances. With
        1 the columns are a tree.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of the learned "mean_precision", "df", "scale" and "inflation" in place of Gamma
        priors: families of `skdpm.hyperpriors` or pairs (shape, rate). With full covariances,
        "scale" may be of the family `LKJ`: then it is a matrix whose correlations are learned too,
        otherwise diagonal.
    tails : {"contaminated", "t"}, Tails or None, default=None
        Heavy tails: row i of cluster k is N(mean_k, covariance_k / w_i). "t" is `StudentTails()`,
        "contaminated" is `ContaminatedTails()`; arguments fix what is else learned. None: w_i = 1.

    Attributes
    ----------
    parents_ : ndarray of shape (n_features, n_parents)
        Columns on which each column depends, -1 for none, numbered without columns that others
        determine; at most n_features - 1. Set in `likelihood_`, with sparse covariances.

    References
    ----------
    Rasmussen (2000); Goerur & Rasmussen (2010); Murphy (2007); Geiger & Heckerman (2002); Huang &
    Wand (2013); Tukey (1960); Peel & McLachlan (2000).
    """

    has_points = True
    _keeps_columns = False
    objects = (("tails", "StudentTails(df=4) or ContaminatedTails(contamination=0.1)"),)

    mean: object = None
    mean_precision: float | None = None
    df: float | None = None
    scale: object = None
    covariance_type: str = "full"
    n_parents: int = 8
    hyperpriors: dict | None = None
    tails: object = None
    # Degrees of freedom of rows; 0 if tied covariances are known and not `integrated` out.
    _row_df = 0.0

    @property
    def fitted_gaps(self):
        return self.draws_gaps and self._fitted_missing

    @property
    def _structure(self):
        types = tuple(COVARIANCES)
        return COVARIANCES[check_choice(self.covariance_type, "Gaussian.covariance_type", types)]

    @property
    def _law_of_matrix(self):
        """Prior of a `scale` with correlations: `LKJ` or None."""
        given = self.hyperpriors.get("scale") if isinstance(self.hyperpriors, dict) else None
        if self.covariance_type != "full" or not isinstance(given, LKJ):
            return None
        return given.check("Gaussian.hyperpriors['scale']")

    def _learn_under(self, defaults):
        if self._law_of_matrix is None:
            return super()._learn_under(defaults)
        others = {name: law for name, law in self.hyperpriors.items() if name != "scale"}
        return self._copy(hyperpriors=others)._learn_under(defaults)

    @property
    def _law_of_weights(self):
        """Law of the weights of rows: a `Tails`; None without tails."""
        if self.tails is None or isinstance(self.tails, Tails):
            return self.tails
        name = "Gaussian.tails, if it is neither None nor an object such as StudentTails(df=4),"
        return TAILS[check_choice(self.tails, name, tuple(TAILS))]

    @property
    def _tail_values(self):
        return [getattr(self, name) for name in self._law_of_weights.parameters]

    def at(self, values):
        other = super().at(values)
        law = other._law_of_weights
        if law is not None:  # a fit with the copy takes these values
            other.tails = type(law)(*map(float, other._tail_values))
        if self.covariance_type == "tied" and "df" in values:  # it is never learned
            other._row_df = float(other.df)
        return other

    def flat_hyperparameters(self):
        flat = super().flat_hyperparameters()
        flat[len(self.mean) + 1] = self._structure.df(self)
        return flat

    @property
    def capabilities(self):
        drawn = {"instantiated"} if self.tails is None and self._takes("blocks") else {}
        return frozenset({"joint", "product", *drawn})

    @property
    def allow_nan(self):
        return self._takes("gaps")

    @property
    def nan_hint(self):
        hint = 'use covariance_type="full" or "diag" for missing entries, which "sparse" refuses'
        return "" if self.allow_nan else hint

    def _takes(self, what):
        structure = COVARIANCES.get(self.covariance_type)
        return structure is None or what in structure.takes

    @property
    def hyperparameters(self):
        more = self._law_of_weights.parameters if self.weighs_rows else ()
        return ("mean", "mean_precision", "df", "scale", *more)

    @property
    def weighs_rows(self):
        return isinstance(self.tails, Tails) or str(self.tails) in TAILS

    @property
    def draws_gaps(self):
        structure = COVARIANCES.get(self.covariance_type)
        return structure is not None and structure.correlates and self._takes("gaps")

    def n_drawn(self, X):
        n_gaps = np.count_nonzero(np.isnan(self.independent(X))) if self.draws_gaps else 0
        return n_gaps + (len(X) if self.weighs_rows else 0)

    def suits_blocks(self, n_samples, n_features):
        many = n_samples >= BLOCK_ROWS and n_samples * n_features >= BLOCK_ENTRIES
        return many and self.covariance_type in ("full", "sparse") and self.tails is None

    def of_column(self, column, n_features):
        if self.covariance_type != "diag":
            return None
        return self._single_column(column, n_features)

    def keeping_columns(self):
        other = copy.copy(self)
        other._keeps_columns = True
        return other

    def summarise(self, X, n_head=HEAD_ROWS):
        """Counts, means, sums of squares, ends, first rows and perhaps scatter matrix of the bulk
        of the columns; the ends and first rows of the columns, and whether all entries are at
        these ends."""
        structure = self._structure  # raises an error for unknown names
        X = np.asarray(X, dtype=np.float64)
        missing = bool(np.isnan(X).any())
        smallest, largest = _ends(X)
        at_ends = ((X == smallest) | (X == largest) | np.isnan(X)).all(axis=0)
        rows, X = X[:n_head], bulk(X)
        counts = np.count_nonzero(~np.isnan(X), axis=0)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            means = np.nansum(X / np.maximum(counts, 1), axis=0)
            squares = np.nansum((X - means) ** 2, axis=0)
            scatter = {"scatter": _scatter(X - means)} if structure.correlates else {}
        low, high = _ends(X)
        return {
            **scatter,
            "n_rows": len(X),
            "n": counts,
            "mean": means,
            "squares": squares,
            "smallest": smallest,
            "largest": largest,
            "low": low,
            "high": high,
            "at_ends": at_ends,
            "missing": missing,
            "head": X[:n_head].copy(),
            "rows": rows.copy(),
        }

    def merge_summaries(self, first, second):
        n = first["n"] + second["n"]
        share = second["n"] / np.maximum(n, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = second["mean"] - first["mean"]
            scatter = {}
            if "scatter" in first:
                pull = np.sqrt(first["n"] * share) * gap
                between = np.outer(pull, pull)
                scatter["scatter"] = first["scatter"] + second["scatter"] + between
            smallest = np.minimum(first["smallest"], second["smallest"])
            largest = np.maximum(first["largest"], second["largest"])
            at_ends = first["at_ends"] & second["at_ends"]
            for part in (first, second):
                for end in (part["smallest"], part["largest"]):
                    at_ends &= (end == smallest) | (end == largest) | (part["n"] == 0)
            return {
                **scatter,
                "n_rows": first["n_rows"] + second["n_rows"],
                "n": n,
                "mean": first["mean"] + gap * share,
                "squares": first["squares"] + second["squares"] + gap**2 * first["n"] * share,
                "smallest": smallest,
                "largest": largest,
                "low": np.minimum(first["low"], second["low"]),
                "high": np.maximum(first["high"], second["high"]),
                "at_ends": at_ends,
                "missing": first["missing"] or second["missing"],
                **{
                    name: np.concatenate([first[name], second[name]])[:HEAD_ROWS]
                    for name in ("head", "rows")
                },
            }

    def resolve(self, X):
        # A summary of the columns alone: sums over one column are rounded in another order.
        n_head = max(HEAD_ROWS, HEAD_ENTRIES // max(X.shape[1], 1))
        return self._reduced(
            self.summarise(X, n_head), lambda found: self.summarise(found.project(X), n_head)
        )

    def resolve_summary(self, summary):
        return self._reduced(summary, lambda found: self._summary_of(summary, found))

    def _summary_of(self, summary, projection):
        if len(projection.columns):
            return columns_of(summary, projection.columns)
        return self.summarise(projection.project(summary["head"][:1]))

    def _reduced(self, summary, summary_of):
        resolved = self._resolve_independent(summary, summary_of)
        if self.scale is None:
            spread = summary["largest"] - summary["smallest"]
            two = summary["at_ends"] & (spread > 0.0) & (summary["n"] >= FEWEST_TWO_VALUED)
            shares = (summary["mean"] - summary["smallest"]) / np.where(two, spread, 1.0)
            is_flag = (np.abs(shares - 0.5) < 0.5 - RARE_VALUE) | (len(two) < MANY_COLUMNS)
            resolved._two_valued = {int(d): is_flag[d] for d in np.flatnonzero(two)}
        return resolved

    def doubtful(self, X, least):
        if not hasattr(self, "_two_valued"):
            return {}
        found = dict.fromkeys(self._two_valued, "two values")
        if isinstance(X, np.ndarray):
            found |= doubtful_columns(X, least, self._far_columns(X))
        found = {d: doubt for d, doubt in found.items() if self._two_valued.get(d, True)}
        share, copied = self._recording.share, self._recording.copied
        if share > LEAST_COPIES:
            found[None] = share, copied and [int(self._kept_columns[d]) for d in copied]
        return found

    def _far_columns(self, X):
        ends = self._recording.ends
        if ends is None:
            return {}
        far = far_columns(self.independent(X), *ends, max(self._recording.n_ranges, FAR_IF_SHARED))
        return {int(self._kept_columns[d]): entry for d, entry in far.items()}

    def _resolve_independent(self, summary, summary_of):
        """Resolve, without columns that others determine if `scale` and `df` are learned."""
        given = self.scale is not None or self.df is not None
        projection = None if given or self._keeps_columns else projection_of(summary)
        if projection is None:
            return self._resolve_all(summary)
        mean = self.mean
        if mean is not None:
            mean = as_vector(mean, len(summary["mean"]), "Gaussian.mean")[projection.columns]
        reduced = ReducedGaussian(
            projection=projection, **self._copy(mean=mean).get_params(deep=False)
        )
        if not len(projection.columns):
            reduced.mean = reduced.hyperpriors = None
        with projection.translated():
            return reduced._resolve_all(summary_of(projection))

    def _resolve_all(self, summary):
        structure = self._structure
        n_features = len(summary["mean"])
        low = structure.low(n_features)
        check_integer(self.n_parents, "Gaussian.n_parents", low=1, high=MOST_PARENTS)
        hyperpriors = {}
        floor, recording = np.zeros(n_features), Recording({})
        if self.mean is None or self.scale is None:
            varies = summary["high"] > summary["low"]
            variances = structure.pooled(_column_variances(summary), varies)
        if self.mean is None:
            mean = summary["mean"]
            _refuse_overflow(mean)
            hyperpriors["mean"] = Normal(mean, variances)
        else:
            mean = as_vector(self.mean, n_features, "Gaussian.mean")
        if self.mean_precision is None:
            mean_precision = MEAN_PRECISION
            hyperpriors["mean_precision"] = Gamma(R_SHAPE, R_RATE)
        else:
            mean_precision = check_real(self.mean_precision, "Gaussian.mean_precision", low=0.0)
        if self.df is None:
            df = low + structure.start
            if structure.learns_df:
                hyperpriors["df"] = Shifted(Gamma(DF_SHAPE, DF_RATE), low + DF_LOW)
        else:
            df = check_real(self.df, "Gaussian.df", low=low)
        if self.scale is None:
            n_ranges = REMOTE_IF_SHARED if self.covariance_type == "tied" else REMOTE
            vary = np.where(varies, variances, 0.0)
            recording = recording_in(summary, vary, n_ranges, self._keeps_columns)
            draws_gaps = summary["missing"] and self.draws_gaps
            smallest = SMALLEST_WITH_GAPS if draws_gaps else SMALLEST_SHARE
            scale, hyperpriors["scale"], floor = structure.learn_scale(
                variances, varies, summary["n"], df, smallest, self._law_of_matrix
            )
        else:
            scale = structure.check_scale(_as_numbers(self.scale), n_features)
        tails, of_tails, priors = self._start_of_tails()
        hyperpriors |= priors
        resolved = self._copy(
            mean=mean, mean_precision=mean_precision, df=df, scale=scale, tails=tails
        )
        # Hyperparameters that have no parameter of the same name.
        vars(resolved).update(of_tails)
        resolved.learned_priors = self._learn_under(hyperpriors)
        resolved._origin = mean
        resolved._floor = floor
        resolved._recording = recording
        # Units in which the kernels learn.
        if "mean" in hyperpriors or "scale" in hyperpriors:
            resolved._spread = np.sqrt(variances)
        else:
            resolved._spread = np.sqrt(structure.variances(resolved))
        resolved._fitted_missing = summary["missing"]
        _refuse_extremes(summary, mean)
        vars(resolved).update(structure.families(self.n_parents, summary))
        return resolved

    def _start_of_tails(self):
        """At the start: the law of weights, hyperparameters by name, priors of those learned."""
        law = self._law_of_weights
        if law is None:
            return None, {}, {}
        if not self._takes("tails"):
            raise ValueError(
                f'Gaussian.tails must be None with covariance_type="{self.covariance_type}"'
            )
        start, priors = law.start()
        return type(law)(*start.values()), start, priors

    def as_seen(self, X, first=None):
        return self._recording.spread(X, first)

    def copies(self, X, classes=None):
        return copies_in(X, classes) if self.scale is None else None

    def encode(self, X):
        data = self.encode_new(self.as_seen(X))
        if "gap_columns" in data:
            centred = data["X"]
            data["gap_values"] = read_only(completed(centred, drawn=True)[np.isnan(centred)])
        return data

    def encode_new(self, X):
        with np.errstate(over="ignore"):
            centred = np.ascontiguousarray(X - self._origin, dtype=np.float64)
        _refuse_uncentred(np.isinf(centred).any(axis=0))
        missing = np.isnan(centred)
        data = {"X": centred, "missing": bool(missing.any())}
        if data["missing"] and self.draws_gaps:
            data["incomplete"] = np.flatnonzero(missing.any(axis=1))
            data["gap_starts"] = np.append(0, np.cumsum(missing.sum(axis=1)))
            data["gap_columns"] = np.ascontiguousarray(np.nonzero(missing)[1])
        return read_only(data)

    def independent(self, X, completion=None):
        if completion is None or not self.draws_gaps:
            return X
        X = np.array(X, dtype=np.float64)
        missing = np.isnan(X)
        # Values of entries follow the weights of rows, if there are any.
        gaps = completion[len(X) if self.weighs_rows else 0 :]
        X[missing] = gaps + np.broadcast_to(self._origin, X.shape)[missing]
        return X

    def needs_laws(self, X):
        # Kernels know the independent columns alone.
        if not self.draws_gaps:
            return super().needs_laws(X)
        return np.isnan(self.independent(X)).any(axis=1)

    def coordinates(self, X):
        if np.isnan(X).any():
            return standardised(completed(X)) if self.draws_gaps else None
        return standardised(X)

    def box_points(self, data):
        X = data["X"]
        boxed = X.shape[1] <= MOST_BOXED and not self.weighs_rows
        if not boxed or (data["missing"] and not self.draws_gaps):
            return None
        return X

    def tables(self, data, n_max):
        # Clusters of earlier batches may have missing entries even if this batch has none.
        missing = n_max is None or data["missing"] or self._fitted_missing
        n_max, n_tabled = bounds(n_max)
        return read_only(
            {
                "n_max": n_max,
                "origin": self._origin,
                "spread": self._spread,
                "floor": self._floor,
                **self._structure.tables(self, data, n_tabled, missing),
            }
        )

    def bind(self, data, tables):
        return self._structure.bind(self, data, tables)

    def parametric(self, X):
        rows = _centred(self.independent(self.as_seen(X)), self._origin)
        return self._structure.parametric(self, rows)

    def log_hyperprior(self, values):
        # The prior of `scale` is a density of a function of it.
        values, log_jacobian = dict(values), 0.0
        if "scale" in self.learned_priors:
            values["scale"], log_jacobian = self._structure.scale_to_share(self, values)
        return super().log_hyperprior(values) + log_jacobian

    def draw_hyperparameters(self, rng):
        values = super().draw_hyperparameters(rng)
        if "scale" in values:
            values["scale"] = self._structure.share_to_scale(self, values)
        return values

    def integrated(self, values, stats):
        return self._structure.integrated(self, values, stats)

    def divergences(self, params):
        return self._structure.divergences(self, params)

    def cluster_params(self, stats):
        """Posterior `means`, (n_clusters, n_features), and `covariances`, (n_clusters, n_features,
        n_features), of clusters; the variances of the columns, (n_clusters, n_features), if
        diagonal or spherical. A covariance whose posterior has no mean is its mode."""
        return self._structure.cluster_params(self, stats)

    def draw_rows(self, stats, clusters, n_features, rng):
        return self._structure.draw_rows(self, stats, clusters, rng)

    def laws(self, stats, rng=None):
        return self._structure.laws(self, stats, rng)

    def background(self, X):
        return box(X)

    def column_posterior(self, stats, column):
        return self._structure.column_posterior(self, stats, column)

    def column_means(self, stats, n_draws=None, rng=None):
        return normal_means(self, stats, self._n_columns, n_draws, rng)

    @property
    def _n_columns(self):
        return len(self.mean)

    @property
    def _kept_columns(self):
        return np.arange(len(self.mean))


@parameters
class ReducedGaussian(Gaussian):
    """A resolved `Gaussian` of rows in which some columns determine the others. The projection
    says which columns are independent, and how the others follow from them. Other parameters are
    those of `Gaussian`, for the independent columns."""

    projection: Projection | None = None

    @property
    def _structure(self):
        # One column without entries, if all are constant.
        return super()._structure if self._has_columns else COVARIANCES["diag"]

    @property
    def _has_columns(self):
        return not isinstance(self.projection, Projection) or len(self.projection.columns) > 0

    @property
    def draws_gaps(self):
        return self._has_columns and super().draws_gaps

    def needs_laws(self, X):
        return super().needs_laws(X) & self._has_columns

    def resolve(self, X):
        return self.resolve_summary(self.summarise(X))

    def resolve_summary(self, summary):
        if not isinstance(self.projection, Projection):
            raise ValueError(
                "ReducedGaussian.projection must be that of the likelihood_ of a fit, got "
                f"{self.projection!r}; use Gaussian() without one"
            )
        n_features, n_given = len(self.projection.origin), len(summary["mean"])
        if n_given != n_features:
            raise ValueError(
                f"ReducedGaussian, the likelihood_ of another fit, needs X with {n_features} "
                f"columns, got {n_given}; use Gaussian() for other columns"
            )
        with self.projection.translated():
            return self._resolve_all(self._summary_of(summary, self.projection))

    def as_seen(self, X, first=None):
        if isinstance(X, Spread) or not self._recording.moves:
            return X
        rows = np.array(X, dtype=np.float64)
        rows[:, self.projection.columns] = super().as_seen(self.projection.project(X), first)
        return rows.view(Spread)

    def encode_new(self, X):
        with self.projection.translated():
            return super().encode_new(self.projection.project(X))

    @property
    def left_out(self):
        return self.projection

    def coordinates(self, X):
        return super().coordinates(self.projection.project(X))

    def independent(self, X, completion=None):
        return super().independent(self.projection.project(X), completion)

    def cluster_params(self, stats):
        """Posterior means as in `Gaussian`, of all columns."""
        params = super().cluster_params(stats)
        found, covariances = self.projection, params["covariances"]
        if not self._has_columns:
            n_axes = 1 + COVARIANCES[self.covariance_type].correlates
            covariances = np.zeros((len(stats), *[len(found.origin)] * n_axes))
        elif covariances.ndim == 3:
            covariances = found.weights @ covariances @ found.weights.T
        else:
            covariances = covariances @ found.weights.T  # other columns are constant
        return {"means": found.rebuild(params["means"]), "covariances": covariances}

    def draw_rows(self, stats, clusters, n_features, rng):
        return self.projection.rebuild(super().draw_rows(stats, clusters, n_features, rng))

    def laws(self, stats, rng=None):
        return super().laws(stats, rng).rebuilt(self.projection)

    def background(self, X):
        return box(X, self.projection)

    @property
    def _n_columns(self):
        return len(self.projection.origin)

    @property
    def _kept_columns(self):
        return self.projection.columns

    def column_posterior(self, stats, column):
        found = self.projection
        weights = found.weights[column]
        if column in found.columns:
            return super().column_posterior(stats, int(np.searchsorted(found.columns, column)))
        _, rho, _, scale, rest = super().column_posterior(stats, 0)
        if weights.any():
            return self._structure.combination_posterior(
                self, stats, weights, found.origin[column] - weights @ found.origin[found.columns]
            )
        variance = found.errors[np.searchsorted(found.left_out, column)] ** 2
        ones = np.ones_like(scale)
        return found.origin[column] * ones, rho, KNOWN * ones, KNOWN * variance * ones, rest


def _scatter(gaps):
    """Scatter matrix of rows that are centred up to the rounding of their mean, which adds up over
    many rows. If entries are missing, that of the rows without gaps, as if all rows were such.
    Columns without entries count as constant."""
    n_rows, missing = len(gaps), np.isnan(gaps)
    empty = missing.all(axis=0)
    if empty.any():
        gaps = np.where(empty, 0.0, gaps)
    complete = ~(missing & ~empty).any(axis=1)
    if not complete.all():
        gaps = gaps[complete] - gaps[complete].mean(axis=0) if complete.any() else gaps[:0]
        return gaps.T @ gaps * (n_rows / max(len(gaps), 1))
    centre = gaps.sum(axis=0)
    return gaps.T @ gaps - np.outer(centre, centre) / max(n_rows, 1)


def _column_variances(summary):
    """Variances of the columns, with a floor: the guide has the rule."""
    low, high = summary["low"], summary["high"]
    smallest, largest = summary["smallest"], summary["largest"]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        variances = summary["squares"] / np.maximum(summary["n"], 1)
        farthest = np.fmax(summary["mean"] - smallest, largest - summary["mean"])
        far = np.where(largest > smallest, farthest**2 / max(summary["n_rows"], 1), 0.0)
        extent = np.where(summary["n"] > 0, np.maximum(np.abs(low), np.abs(high)), 0.0)
        # Variation of a column below 1e-12 of its values is mostly rounding.
        floor = np.where(extent > 0, (np.where(high > low, 1e-12, 1e-6) * extent) ** 2, 1.0)
    variances = np.maximum(variances, np.maximum(floor, np.finfo(float).tiny))
    # A learned scale may be many times larger than the variance.
    _refuse_overflow(np.where(np.maximum(variances, far) < LARGEST_VARIANCE, variances, np.inf))
    return variances


def recording_in(summary, variances, n_ranges=REMOTE, of_stream=False):
    """`recording_of` the rows of a summary."""
    low, high = summary["low"], summary["high"]
    far = remote(summary["smallest"], summary["largest"], low, high, n_ranges)
    ends = (low, high) if far.any() else None
    return recording_of(summary["head"], variances, ends, n_ranges, of_stream)


def _ends(X):
    """Smallest and largest entries of the columns; inf and -inf without entries."""
    return (np.fmin.reduce(X, axis=0, initial=np.inf), np.fmax.reduce(X, axis=0, initial=-np.inf))


def _refuse(bad, before, after, row=None):
    if bad.any():
        column = int(np.flatnonzero(bad)[0])
        raise ColumnError(f"Gaussian: {before}", column, after, row=row)


def _refuse_overflow(per_column):
    words = f" are so large that their variance {OVERFLOWS}"
    _refuse(~np.isfinite(per_column), "the values in ", words, FARTHEST)


def _refuse_uncentred(columns):
    words = f" holds values too large to centre, as their distance {OVERFLOWS}"
    _refuse(columns, "", words, FARTHEST)


def _refuse_extremes(summary, mean):
    """Refuse columns whose squares about the prior mean are beyond the range of doubles."""
    words = " differ by so little that their variance underflows; rescale the column"
    with np.errstate(over="ignore", invalid="ignore"):
        extreme = np.maximum(mean - summary["smallest"], summary["largest"] - mean)
        _refuse_uncentred((extreme == np.inf) & (summary["n"] > 0))
        # The scatters of clusters add up to the sum of squares about the prior mean.
        squares = summary["squares"] + summary["n"] * (summary["mean"] - mean) ** 2
        squares = np.where(summary["n"] > 0, np.maximum(squares, extreme**2), 0.0)
    _refuse_overflow(squares)
    spreads = summary["largest"] - summary["smallest"]
    _refuse((spreads > 0.0) & (spreads < SMALLEST_SPREAD), "the values in ", words)


def _centred(X, origin):
    n_rows, n_features = X.shape
    if n_features > 16 or X.dtype != np.float64 or not X.flags.c_contiguous:
        return np.ascontiguousarray(np.subtract(X, origin, dtype=np.float64))
    # Many short rows are combined into one, because NumPy has an overhead per row.
    out = np.empty((n_rows, n_features))
    n_long = n_rows // 64
    shape = (n_long, 64 * n_features)
    n_rows = 64 * n_long
    np.subtract(X[:n_rows].reshape(shape), np.tile(origin, 64), out=out[:n_rows].reshape(shape))
    np.subtract(X[n_rows:], origin, out=out[n_rows:])
    return out


def _as_numbers(scale):
    try:
        return np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Gaussian.scale must be a number, a vector or a matrix, got {scale!r}"
        ) from None
