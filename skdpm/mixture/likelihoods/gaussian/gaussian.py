# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Gaussian`. The structure of its covariances is an object of covariances.py."""

import copy

import numpy as np

from skdpm._validation import FARTHEST, ColumnError, check_choice, check_real
from skdpm.hyperpriors import Gamma, Shifted
from skdpm.mixture.likelihoods.contract.base import (
    MOST_BOXED,
    Likelihood,
    bounds,
    read_only,
)
from skdpm.mixture.likelihoods.gaussian.covariances import (
    COVARIANCES,
    KNOWN,
    SMALLEST_SHARE,
    SMALLEST_WITH_GAPS,
    TAILED,
    Normal,
    as_vector,
)
from skdpm.mixture.likelihoods.gaussian.projected import Projection, columns_of, projection_of
from skdpm.mixture.likelihoods.gaussian.tails import TAILS
from skdpm.mixture.likelihoods.laws.background import box
from skdpm.mixture.likelihoods.laws.columns import (
    FAR_IF_SHARED,
    LEAST_COPIES,
    far_columns,
    filled_columns,
    skewed_columns,
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

# Largest variance of a column. With a larger one, draws of a learned scale could be infinite.
LARGEST_VARIANCE = 1e290

# Smallest spread of a column, so that its square is a normal double.
SMALLEST_SPREAD = 1e-150


class Gaussian(Likelihood):
    """Gaussian clusters.

    The covariance of cluster k is, by `covariance_type`,

    - `"full"`: Sigma_k ~ IW(df, scale), a matrix for each cluster;
    - `"diag"`: diagonal, with variance_kd ~ InvGamma(shape=df / 2, rate=scale_d / 2), independent
      over columns and clusters;
    - `"spherical"`: variance_k times the identity, with variance_k ~ InvGamma(shape=df / 2,
      rate=scale / 2), one number for each cluster;
    - `"tied"`: the matrix `scale` itself, the same for all clusters.

    Given its covariance, the mean of a cluster is N(mean, covariance / mean_precision).

    Parameters
    ----------
    mean : float, array-like of shape (n_features,) or None, default=None
        Prior mean. None: learned, see the notes.
    mean_precision : float or None, default=None
        Number of observations that the prior mean counts as. None: learned.
    df : float or None, default=None
        Degrees of freedom, > n_features - 1 (full, tied) or > 0 (diagonal, spherical). None:
        learned. With tied covariances they belong to the hyperprior of `scale`; None: \
n_features + 2.
    scale : float, array-like of shape (n_features,) or (n_features, n_features), or None, \
default=None
        Scale of the covariances, in squared units of the columns. A number s means s times the
        identity, a vector a diagonal matrix. Diagonal covariances take no matrix, spherical ones
        only a number. With tied covariances this is the covariance matrix itself. None: learned;
        a matrix if tied, a number if spherical, otherwise a diagonal.
    covariance_type : {"full", "diag", "tied", "spherical"}, default="full"
        Structure of the covariances.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters in place of the Gamma priors in the notes: families of
        `skdpm.hyperpriors` or pairs (shape, rate). The prior of `"mean_precision"` is that of the
        number itself, that of `"df"` applies to k - 1, and that of `"scale"` to the entries of
        (scale_d / k - f_d) / v_d. That of `"inflation"` applies to inflation - 1.
        The priors of `mean`, of a tied `scale`, of `tail_df` and of `contamination` are fixed.
        Entries of fixed parameters have no effect.
    tails : {"contaminated", "t"} or None, default=None
        Heavy tails of the clusters: a row of cluster k is N(mean_k, covariance_k / w), with one
        weight w of all its columns, which the chains draw for each row. "t": w is
        Gamma(tail_df / 2, rate=tail_df / 2) on a grid of 8 values, so that clusters are about
        multivariate t with `tail_df` degrees of freedom. "contaminated": w = 1 / inflation with
        probability `contamination`, otherwise w = 1. None: clusters are Gaussian. See the notes.
    tail_df : float or None, default=None
        Degrees of freedom of the weights with tails="t". None: learned.
    contamination : float or None, default=None
        Share of rows with a larger covariance with tails="contaminated", between 0 and 1. None:
        learned.
    inflation : float or None, default=None
        Factor, > 1, of the covariance of these rows. None: learned.

    Notes
    -----
    A parameter that is None is learned: drawn in every iteration or, with many columns and few
    rows, in every second to tenth. Let m_d and v_d be the mean and the variance of the bulk of
    column d in `fit`, and k = df - (n_features - 1) (full) or k = df (diagonal). The priors are::

        mean_d                ~ Normal(m_d, v_d)
        mean_precision        ~ Gamma(0.5, rate=5)
        k - 1                 ~ Gamma(2, rate=0.2)
        scale_d / k - f_d     ~ Gamma(0.5, rate=1 / v_d)

    so that the unit of a column does not matter. f_d is 1e-16 v_d: clusters may be as narrow as
    1e-8 standard deviations of a column. It is 1e-8 v_d if chains draw missing entries.

    The *bulk* of a column is without far entries. These are more than 3 ranges beyond the range of
    the other entries, without the 2 % smallest and the 2 % largest, or more than 1e10 times as far
    from the median as half of the entries. So one fill value moves neither priors nor starts. It
    is part of the rows all the same. Chains see an entry that is 1000 ranges of the bulk beyond
    it, or more, at a distance that grows with the logarithm of its own, because sums with it would
    leave no digits to other entries. With tied covariances this begins at 3 ranges, or else one
    wide covariance would be more probable than a cluster of the far row. `fit` names such an
    entry, from 20 ranges on if covariances are tied.

    *Recorded values*. A column of answers, whole numbers or rounded prices has few different
    values, and clusters of no width would fit them best. Let g_d be the distance of neighbouring
    values on the finest grid that the column needs, or for other columns with ties the distance of
    a value to the next one. Heaps, such as multiples of 5 and 10 among ages, have cells of their
    own distance. A heap has more than twice as many entries as any other value of its cell. Chains
    see the entry x of a row of `fit` as x + u, with u in a cell of width g_d around 0. The entries
    of c rows with the same value are evenly spaced in a share c / (c + 5) of the cell, in an order
    that is drawn once from the rows themselves. Densities are those of x + u, a density with
    respect to Lebesgue measure. So they are comparable between fits, and no cluster is much
    narrower than the grid. New rows are taken as they are.

    *Copies* are rows that are equal in every column, more often than a grid explains: rows of a
    bootstrap sample, or of a class that was sampled up. With `scale` to be learned, each different
    row counts once, in the likelihood and in the prior over partitions, and copies have the label
    of their row. `fit` warns if more than a twentieth of the rows are copies. Rows with fewer than
    two known entries are no copies. Nor are points that take many rows each: a row then has on
    average more than 1.5 times as many copies as there are different rows with copies. Rows of a
    part of a `Product` may be copies while other parts differ, and so may rows of chunks of Dask.
    They stay, moved: let m and V be the mean and the covariance of the different rows near a row x
    that occurs c times. Chains see its copies after the first as draws of N(m + (x - m) / sqrt(c),
    (1 - 1 / c) V), a smoothed bootstrap. Near are at most the n_features + 6 nearest rows, no
    farther than 2.5 times the distance of the third.

    *Spherical* clusters have k = df and one scale. Its v, also in the prior of `mean`, is the mean
    of v_d over the columns that vary, so that only a common unit of the columns does not matter.

    *Tied* clusters have scale ~ IW(df, diag(v_d / 2 * (df - n_features - 1))). `scale` is drawn
    given the partition, with the means integrated out: an inverse Wishart law.

    The parameters affect the number of clusters as follows. `scale` / k is about the variance of
    a column inside a cluster; the smaller, the more clusters. `df` is large if the covariances of
    clusters are alike: small or elongated groups then do not become clusters. If it is small, each
    cluster has its own form. `mean_precision` is small if clusters are far apart. With 0.01 their
    means spread over ten times the width of a cluster; a larger value puts clusters closer
    together and makes a new one cheaper. `mean` is the point around which clusters lie, and
    matters least.

    Chains start at mean = m, mean_precision = 0.1, df = n_features + 2 (full) or 4 (diagonal,
    spherical), and `scale = 0.5 * v * (df - n_features - 1)` (full), `0.5 * v * (df - 2)`
    (diagonal, spherical; a factor 1 if the bracket is not positive) or `0.5 * v` (tied). Half of
    the variance is then expected inside a cluster.

    *Missing entries*, which NaN marks, do not affect the cluster of their row. With diagonal and
    spherical covariances they are integrated out of all densities. With full and tied ones every
    chain draws them, together with the cluster of the row, given its other entries and the rows of
    the cluster. Log joints are then those of the completed rows; the evidence by `SMC` is that
    of the known entries. Samplers of blocks of rows refuse such rows. With a tenth of the entries
    missing, a sweep takes about two to three times as long in up to 20 columns. The fitted
    estimator, and its pickle, keeps the values that each scored draw gave to the entries: 8 bytes
    per draw, so up to 800 bytes per missing entry. `cluster_params_` describes the rows that one
    of these draws completed.

    *Heavy tails*. The weight of a row is drawn together with its cluster, so rows far from the
    centre of a cluster need no clusters of their own. Choose "t" for clusters with tails on all
    scales, and "contaminated" if a few rows are less accurate than the others. The eight weights
    of "t" are 2.25 to the powers 1, 0, ..., -6, each with the probability of the values nearest to
    it by their logarithms. The priors are::

        tail_df        on 33 values from 1 to 256, each 2^(1/4) times the last, with
                       probabilities proportional to tail_df^2 exp(-tail_df / 50)
        contamination  ~ Beta(1, 9)
        inflation - 1  ~ Gamma(2, rate=0.1)

    Chains start with weights of 1, tail_df = 4, contamination = 0.1 and inflation = 10. Log joints
    include the probabilities of the weights; the evidence by `SMC` is summed over the weights.
    `covariances` of `cluster_params_` are those of rows with the weight 1. Samplers of blocks of
    rows refuse tails. With diagonal and spherical covariances entries of rows may be missing; with
    full and tied ones `fit` refuses missing entries. A sweep bounds the densities of all clusters
    for every row. It takes 1.5 to 3 times as long as one without tails that computes all
    densities, and longest with few columns. Sweeps without tails are faster still for many
    clusters in few columns, where they pass over far clusters.

    *Constant columns*, columns without entries, and with full or tied covariances columns that are
    affine combinations of earlier ones, contain no information about clusters. If `scale` and `df`
    are learned, `fit` leaves them out: labels are those without these columns. n_features is then
    the number of the other columns, to which `mean`, `scale`, log joints and the evidence refer.
    `sample` and `cluster_params_` have all columns, as the others determine them, with a variance
    of 0 in constant ones and NaN in columns without entries. `impute` leaves the
    latter missing. A combination must hold in the first 4096 rows up to 1e-7 standard deviations,
    and up to 1e-5 in all rows, of which at least n_features + 2 must be different. Rounding of
    large values also counts. `partial_fit` without `fit` keeps all columns.

    *Densities of rows* (`score_samples`, `outlier_scores_`) are densities of all columns with
    entries, so that models can be compared that leave out different columns, as under "full" and
    "diag". The columns left out have a density given the others, as if each column had been
    recorded with a small independent error. Its standard deviation is 1e-5 times that of the
    column; in a constant c, 1e-6 times abs(c), or 1e-6 if c = 0. Let r be the differences between
    the m columns left out and the values that follow from the others, C the covariance of r if
    these errors are normal, and n the number of rows of `fit`. Then r has the density of a
    Student law with n degrees of freedom and scale matrix C. So a row that departs from what all
    rows of `fit` had in common has a low density. Methods of new rows warn if a difference exceeds
    ten of its standard deviations; `predict` and `predict_proba` ignore it. If entries of the
    other columns are missing, known columns that depend on them count in their place, as far as
    known columns do not determine them.

    In columns that are kept, the variance of a constant counts as the square of 1e-6 times its
    absolute value, or as 1 if that is 0, so that the priors exist for any data and for one row.
    Half of it is added to `scale_d` (full, diagonal, spherical), and once per row to the diagonal
    of the hyperprior's scale matrix (tied), so that a constant favours no number of clusters.

    References
    ----------
    Rasmussen (2000), The infinite Gaussian mixture model. Goerur & Rasmussen (2010), Dirichlet
    process Gaussian mixture models: choice of the base distribution. Murphy (2007), Conjugate
    Bayesian analysis of the Gaussian distribution. Tukey (1960), A survey of sampling from
    contaminated distributions. Peel & McLachlan (2000), Robust mixture modelling using the t
    distribution.
    """

    has_points = True
    nan_hint = (
        'with tails and covariance_type="full" or "tied" no entry may be missing; choose "diag" '
        'or "spherical", use tails=None, or fill the entries first'
    )

    def __init__(
        self,
        mean=None,
        mean_precision=None,
        df=None,
        scale=None,
        covariance_type="full",
        hyperpriors=None,
        tails=None,
        tail_df=None,
        contamination=None,
        inflation=None,
    ):
        self.mean = mean
        self.mean_precision = mean_precision
        self.df = df
        self.scale = scale
        self.covariance_type = covariance_type
        self.hyperpriors = hyperpriors
        self.tails = tails
        self.tail_df = tail_df
        self.contamination = contamination
        self.inflation = inflation

    @property
    def fitted_gaps(self):
        return self.draws_gaps and self._fitted_missing

    @property
    def _structure(self):
        structure = COVARIANCES[
            check_choice(self.covariance_type, "Gaussian.covariance_type", tuple(COVARIANCES))
        ]
        return structure if self.law_of_weights is None else TAILED[self.covariance_type]

    @property
    def law_of_weights(self):
        """Law of the weights of rows: a `Tails`; None without tails."""
        if self.tails is None:
            return None
        return TAILS[check_choice(self.tails, "Gaussian.tails, if not None,", tuple(TAILS))]

    @property
    def tail_values(self):
        """Values of its parameters, in their order."""
        return [getattr(self, name) for name in self.law_of_weights.parameters]

    @property
    def capabilities(self):
        drawn = {"instantiated"} if self.tails is None else {}
        return frozenset({"joint", "product", *drawn})

    @property
    def hyperparameters(self):
        more = TAILS[self.tails].parameters if self.weighs_rows else ()
        return ("mean", "mean_precision", "df", "scale", *more)

    @property
    def allow_nan(self):
        return not (self.weighs_rows and self._correlates)

    @property
    def weighs_rows(self):
        return isinstance(self.tails, str) and self.tails in TAILS

    @property
    def draws_gaps(self):
        return self.tails is None and self._correlates

    @property
    def _correlates(self):
        structure = COVARIANCES.get(self.covariance_type)
        return structure is not None and structure.correlates

    def n_drawn(self, X):
        if self.weighs_rows:
            return len(X)
        return np.count_nonzero(np.isnan(self.independent(X))) if self.draws_gaps else 0

    def suits_blocks(self, n_samples, n_features):
        many = n_samples >= BLOCK_ROWS and n_samples * n_features >= BLOCK_ENTRIES
        return many and self.covariance_type == "full" and self.tails is None

    def of_column(self, column, n_features):
        if self.covariance_type != "diag":
            return None
        return self._single_column(column, n_features)

    def keeping_columns(self):
        other = copy.copy(self)
        other._keeps_columns = True
        return other

    def summarise(self, X, n_head=HEAD_ROWS):
        """Counts, means, sums of squares, ends (`low`, `high`) and first rows of the bulk of the
        columns, and its scatter matrix for covariances with correlations; the ends of the columns
        (`smallest`, `largest`), and whether all entries are at these."""
        structure = self._structure  # raises an error for unknown names
        X = np.asarray(X, dtype=np.float64)
        missing = bool(np.isnan(X).any())
        smallest, largest = _ends(X)
        at_ends = ((X == smallest) | (X == largest) | np.isnan(X)).all(axis=0)
        X = bulk(X)
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
        }

    def merge_summaries(self, first, second):
        n = first["n"] + second["n"]
        share = second["n"] / np.maximum(n, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            gap = second["mean"] - first["mean"]
            scatter = {}
            if "scatter" in first:
                between = np.outer(gap, gap) * (first["n"] * share)
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
                "head": np.concatenate([first["head"], second["head"]])[:HEAD_ROWS],
            }

    def resolve(self, X):
        # A summary of the columns alone: sums over one column are rounded in another order.
        n_head = max(HEAD_ROWS, HEAD_ENTRIES // max(X.shape[1], 1))
        return self._reduced(
            self.summarise(X, n_head), lambda found: self.summarise(found.project(X), n_head)
        )

    def resolve_summary(self, summary):
        return self._reduced(summary, lambda found: columns_of(summary, found.columns))

    def _reduced(self, summary, summary_of):
        resolved = self._resolve_independent(summary, summary_of)
        if self.scale is None:
            two = summary["at_ends"] & (summary["smallest"] < summary["largest"])
            resolved._two_valued = np.flatnonzero(two & (summary["n"] >= FEWEST_TWO_VALUED))
        return resolved

    def doubtful(self, X):
        if not hasattr(self, "_two_valued"):
            return {}
        found = dict.fromkeys(self._two_valued, "two values")
        if isinstance(X, np.ndarray):
            far = self._far_columns(X)
            found = skewed_columns(X) | found | far | filled_columns(X, far)
        share, copied = self._recording.share, self._recording.copied
        if share > LEAST_COPIES:
            found[None] = share, copied and [int(self._kept_columns[d]) for d in copied]
        return found

    def _far_columns(self, X):
        ends = self._recording.ends
        if ends is None:
            return {}
        n_ranges = max(self._recording.n_ranges, FAR_IF_SHARED)
        far = far_columns(self.independent(X), *ends, n_ranges)
        return {int(self._kept_columns[d]): entry for d, entry in far.items()}

    def _resolve_independent(self, summary, summary_of):
        """Resolve, without columns that others determine if `scale` and `df` are learned."""
        given = self.scale is not None or self.df is not None
        if given or getattr(self, "_keeps_columns", False):
            return self._resolve_all(summary)
        projection = projection_of(summary)
        if projection is None:
            return self._resolve_all(summary)
        mean = self.mean
        if mean is not None:
            n_features = len(summary["mean"])
            mean = as_vector(mean, n_features, "Gaussian.mean")[projection.columns]
        with projection.translated():
            inner = self._copy(mean=mean)._resolve_all(summary_of(projection))
        reduced = ReducedGaussian(projection=projection, **inner.get_params(deep=False))
        reduced.__dict__.update(inner.__dict__)
        return reduced

    def _resolve_all(self, summary):
        structure = self._structure
        n_features = len(summary["mean"])
        low = structure.low(n_features)
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
            recording = recording_in(summary, np.where(varies, variances, 0.0), n_ranges)
            scale, hyperpriors["scale"], floor = structure.learn_scale(
                variances,
                varies,
                summary["n"],
                df,
                SMALLEST_WITH_GAPS if summary["missing"] and self.draws_gaps else SMALLEST_SHARE,
            )
        else:
            scale = structure.check_scale(_as_numbers(self.scale), n_features)
        of_tails, priors = self._resolve_tails()
        resolved = self._copy(
            mean=mean, mean_precision=mean_precision, df=df, scale=scale, **of_tails
        )
        hyperpriors |= priors
        resolved._hyperpriors = self._learn_under(hyperpriors)
        resolved._origin = mean
        resolved._floor = floor
        resolved._recording = recording
        # Units in which the kernels learn.
        if "mean" in hyperpriors or "scale" in hyperpriors:
            resolved._spread = np.sqrt(variances)
        else:
            resolved._spread = np.sqrt(structure.variances(resolved))
        resolved._fitted_missing = summary["missing"]
        with np.errstate(over="ignore", invalid="ignore"):
            extreme = np.maximum(mean - summary["smallest"], summary["largest"] - mean)
            _refuse_uncentred((extreme == np.inf) & (summary["n"] > 0))
            # Sum of squares about the prior mean, to which the scatters of clusters add up.
            squares = summary["squares"] + summary["n"] * (summary["mean"] - mean) ** 2
            squares = np.where(summary["n"] > 0, np.maximum(squares, extreme**2), 0.0)
        _refuse_overflow(squares)
        _refuse_underflow(summary["largest"] - summary["smallest"])
        return resolved

    def _resolve_tails(self):
        """Values of the parameters of tails, and the priors of those that are learned."""
        law = self.law_of_weights
        used = () if law is None else law.parameters
        for kind, other in TAILS.items():
            for name in other.parameters:
                if name not in used and getattr(self, name) is not None:
                    raise ValueError(
                        f"Gaussian.{name} has no meaning with tails={self.tails!r}; use "
                        f"tails={kind!r}, or leave it out"
                    )
        return ({}, {}) if law is None else law.start({n: getattr(self, n) for n in used})

    def as_seen(self, X, first=None):
        return self._recording.spread(X, first)

    def copies(self, X, classes=None):
        return copies_in(X, classes) if self.scale is None else None

    def encode(self, X):
        data = self.encode_new(self.as_seen(X))
        if "gap_columns" in data:
            centred = data["X"]
            data["gap_values"] = read_only(completed(centred)[np.isnan(centred)])
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
        if self.weighs_rows:
            data["incomplete"] = np.arange(len(centred))
        return read_only(data)

    def independent(self, X, completion=None):
        if completion is None or self.weighs_rows:
            return X
        X = np.array(X, dtype=np.float64)
        missing = np.isnan(X)
        X[missing] = completion + np.broadcast_to(self._origin, X.shape)[missing]
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
        return self._structure.parametric(
            self, _centred(self.independent(self.as_seen(X)), self._origin)
        )

    def log_hyperprior(self, values):
        """See `Likelihood`. The prior of `scale` is a density of a function of it: see the
        class."""
        values, log_jacobian = dict(values), 0.0
        if "scale" in self.learned_priors:
            values["scale"], log_jacobian = self._structure.scale_to_share(self, values)
        return super().log_hyperprior(values) + log_jacobian

    def draw_hyperparameters(self, rng):
        values = super().draw_hyperparameters(rng)
        if "scale" in values:
            values["scale"] = self._structure.share_to_scale(self, values)
        return values

    def divergences(self, params):
        return self._structure.divergences(len(self.mean), params)

    def cluster_params(self, stats):
        """Posterior means of the parameters of clusters.

        Returns
        -------
        params : dict
            `means` : (n_clusters, n_features). `covariances` : (n_clusters, n_features,
            n_features) if full or tied; the variances of the columns, (n_clusters, n_features), if
            diagonal or spherical. The posterior mean of a covariance exists if df + n >
            n_features + 1 (full; otherwise > 2, with n entries of the column, or of the cluster if
            spherical); else its mode.
        """
        return self._structure.cluster_params(self, stats)

    def draw(self, stats, rng):
        return self._structure.draw(self, stats, rng)

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

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = rng.standard_normal((12, 3)) * [1.0, 2.0, 0.5] + 1.0
        yield cls(), X
        yield cls(mean=0.5, mean_precision=0.3, df=4.5, scale=[1.0, 2.0, 0.7]), X
        yield cls(), X[:, :1]
        diag = {"covariance_type": "diag"}
        yield cls(**diag), X
        yield cls(mean=0.5, mean_precision=0.3, df=0.5, scale=[1.0, 2.0, 0.7], **diag), X
        Y = X.copy()
        Y[rng.random(Y.shape) < 0.3] = np.nan
        yield cls(**diag), Y
        spherical = {"covariance_type": "spherical"}
        yield cls(**spherical), Y
        yield cls(mean=0.5, mean_precision=0.3, df=0.5, scale=1.3, **spherical), X
        tied = {"covariance_type": "tied"}
        yield cls(**tied), X
        yield cls(mean=0.5, mean_precision=0.3, scale=[1.0, 2.0, 0.7], **tied), X


class ReducedGaussian(Gaussian):
    """A resolved `Gaussian` of rows in which some columns determine the others.

    Parameters
    ----------
    projection : Projection
        Independent columns, and how the others follow from them.
    mean, mean_precision, df, scale, covariance_type, hyperpriors, tails, tail_df, contamination, \
inflation : object
        Parameters of `Gaussian`, for the independent columns.
    """

    def __init__(
        self,
        projection,
        mean=None,
        mean_precision=None,
        df=None,
        scale=None,
        covariance_type="full",
        hyperpriors=None,
        tails=None,
        tail_df=None,
        contamination=None,
        inflation=None,
    ):
        super().__init__(
            mean,
            mean_precision,
            df,
            scale,
            covariance_type,
            hyperpriors,
            tails,
            tail_df,
            contamination,
            inflation,
        )
        self.projection = projection

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
            return self._resolve_all(columns_of(summary, self.projection.columns))

    def as_seen(self, X, first=None):
        if isinstance(X, Spread) or not self._recording.moves:
            return X
        rows = np.array(X, dtype=np.float64)
        rows[:, self.projection.columns] = super().as_seen(self.projection.project(X), first)
        return rows.view(Spread)

    def encode_new(self, X):
        with self.projection.translated():
            return super().encode_new(self.projection.project(X))

    def log_density_left_out(self, X):
        return self.projection.log_density(X)

    def log_density_known(self, X):
        return self.projection.log_density_known(X)

    def departures(self, X):
        return self.projection.departures(X)

    def coordinates(self, X):
        return super().coordinates(self.projection.project(X))

    def independent(self, X, completion=None):
        return super().independent(self.projection.project(X), completion)

    def cluster_params(self, stats):
        """Posterior means as in `Gaussian`, of all columns."""
        params = super().cluster_params(stats)
        found, covariances = self.projection, params["covariances"]
        if covariances.ndim == 3:
            covariances = found.weights @ covariances @ found.weights.T
        else:
            covariances = covariances @ found.weights.T  # other columns are constant
        return {"means": found.rebuild(params["means"]), "covariances": covariances}

    def draw(self, stats, rng):
        return self.projection.rebuild(super().draw(stats, rng))

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
    """Variances of the columns, with a floor: see the notes of `Gaussian`."""
    low, high = summary["low"], summary["high"]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        variances = summary["squares"] / np.maximum(summary["n"], 1)
        farthest = np.fmax(
            summary["mean"] - summary["smallest"], summary["largest"] - summary["mean"]
        )
        far = np.where(
            summary["largest"] > summary["smallest"], farthest**2 / max(summary["n_rows"], 1), 0.0
        )
        extent = np.where(summary["n"] > 0, np.maximum(np.abs(low), np.abs(high)), 0.0)
        # Variation of a column below 1e-12 of its values is mostly rounding.
        floor = np.where(extent > 0, (np.where(high > low, 1e-12, 1e-6) * extent) ** 2, 1.0)
    variances = np.maximum(variances, np.maximum(floor, np.finfo(float).tiny))
    # A learned scale may be many times larger than the variance.
    _refuse_overflow(np.where(np.maximum(variances, far) < LARGEST_VARIANCE, variances, np.inf))
    return variances


def recording_in(summary, variances, n_ranges=REMOTE):
    """`recording_of` the rows of a summary."""
    low, high = summary["low"], summary["high"]
    far = remote(summary["smallest"], summary["largest"], low, high, n_ranges)
    return recording_of(summary["head"], variances, (low, high) if far.any() else None, n_ranges)


def _ends(X):
    """Smallest and largest entries of the columns; inf and -inf without entries."""
    return (
        np.fmin.reduce(X, axis=0, initial=np.inf),
        np.fmax.reduce(X, axis=0, initial=-np.inf),
    )


def _refuse_overflow(per_column):
    if not np.isfinite(per_column).all():
        column = int(np.flatnonzero(~np.isfinite(per_column))[0])
        raise ColumnError(
            "Gaussian: the values in ",
            column,
            f" are so large that their variance {OVERFLOWS}",
            row=FARTHEST,
        )


def _refuse_underflow(spreads):
    tiny = np.flatnonzero((spreads > 0.0) & (spreads < SMALLEST_SPREAD))
    if tiny.size:
        raise ColumnError(
            "Gaussian: the values in ",
            tiny[0],
            " differ by so little that their variance underflows; rescale the column",
        )


def _centred(X, origin):
    """Rows minus the origin, C-contiguous doubles."""
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


def _refuse_uncentred(columns):
    if columns.any():
        column = int(np.flatnonzero(columns)[0])
        raise ColumnError(
            "Gaussian: ",
            column,
            f" holds values too large to centre, as their distance {OVERFLOWS}",
            row=FARTHEST,
        )


def _as_numbers(scale):
    try:
        return np.asarray(scale, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"Gaussian.scale must be a number, a vector or a matrix, got {scale!r}"
        ) from None
