# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Multinomial`."""

import numpy as np
import scipy.sparse as sp
from scipy.special import gammaln

from skdpm._validation import (
    WORDS_HINT,
    check_choice,
    check_count_sums,
    check_counts,
    check_positive,
    parameters,
)
from skdpm.hyperpriors import HalfCauchy
from skdpm.mixture.likelihoods.contract.base import (
    Likelihood,
    bounds,
    j_divergences,
    read_only,
    readable,
)
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.counts._multinomial import (
    LARGEST_FACTOR,
    MultinomialModel,
    ParametricMultinomial,
)
from skdpm.mixture.likelihoods.laws.means import ColumnMeans

# Rows of one kind have a large concentration. A prior that forbids it finds clusters among them.
CONCENTRATION_PRIOR = HalfCauchy(1.0)


@parameters
class Multinomial(Likelihood):
    """Rows of counts, dense or CSR, multinomial given their totals.

    The probabilities of the columns have a Dirichlet prior. A row of zeros has probability 1.

    Parameters
    ----------
    concentration : float or None, default=None
        Mean pseudo-count of the columns; if it is small, clusters differ much. None: learned.
    base : {"uniform", "frequencies"} or array-like of shape (n_features,), default="uniform"
        Relative sizes of the pseudo-counts: equal, proportional to the totals of the columns in
        `fit` plus one, or given.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Prior of a learned concentration. None: that on the page "Laws in detail" of the guide.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    hyperparameters = ("concentration",)
    accept_sparse = True
    nan_hint = "fill in 0 for words that a document does not have, or drop the rows"
    discrete = True
    positive_only = True
    cuts_again = True
    text_hint = WORDS_HINT

    concentration: float | None = None
    base: object = "uniform"
    hyperpriors: dict | None = None

    # `draw` stays None, because the model has no law of the totals of new rows.

    def summarise(self, X):
        """Sums of the columns."""
        return {"columns": _counts(X).sum(axis=0)}

    def resolve_summary(self, summary):
        columns = summary["columns"]
        base, weights = self._checked_base(columns)
        # Larger values hide the differences between rows of few words when a start is cut.
        resolved = self._start({"concentration": Start(0.05, CONCENTRATION_PRIOR)}, base=base)
        resolved._weights = weights
        # Sums over a cluster and a column, and over a cluster.
        check_count_sums(columns, "Multinomial", "column")
        check_count_sums(np.cumsum(columns), "Multinomial", "the columns up to")
        return resolved

    def _checked_base(self, columns):
        """The base ("uniform" or numbers), and weights of the columns with mean 1."""
        base = self.base
        if isinstance(base, str):
            check_choice(base, "Multinomial.base", ("uniform", "frequencies"))
            if base == "uniform":
                return base, np.ones(len(columns))
            base = columns + 1.0
        if np.ndim(base) != 1:
            raise ValueError(
                f"Multinomial.base must be a name or one number per column, got {base!r}"
            )
        weights = check_positive(base, "Multinomial.base", len(columns))
        # Divided by the largest first, because sums of huge numbers are infinite.
        weights = weights / weights.max()
        return base, weights / weights.mean()

    def _pseudo_counts(self):
        return self.concentration * self._weights

    def encode(self, X):
        X = _counts(X)
        # The kernel writes small counts as factors. Larger ones are last in each row.
        row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
        is_large = X.data > LARGEST_FACTOR
        order = np.lexsort((X.indices, is_large, row))
        n_large = np.bincount(row[is_large], minlength=X.shape[0])
        times = np.where(is_large, 0, X.data).astype(np.intp)
        ends = np.cumsum(times)
        n_factors = np.bincount(row, times, minlength=X.shape[0]).astype(np.intp)
        offsets = np.arange(times.sum()) - np.repeat(ends - times, times)
        indptr = X.indptr.astype(np.intp)
        return read_only(
            {
                "indptr": indptr,
                "large": indptr[1:] - n_large,
                "factors": np.concatenate([[0], np.cumsum(n_factors)]),
                "factor_columns": np.repeat(X.indices, times).astype(np.int32),
                "offsets": offsets.astype(np.uint8),
                "indices": X.indices[order].astype(np.int32),
                "counts": np.ascontiguousarray(X.data[order]),
                "totals": X.sum(axis=1),
                "log_constants": _log_coefficients(X),
                "n_features": X.shape[1],
            }
        )

    def tables(self, data, n_max):
        weights, classes = np.unique(self._weights, return_inverse=True)
        return read_only(
            {
                "n_max": bounds(n_max)[0],
                "weights": weights,
                "classes": classes.astype(np.int32),
                "pseudo_counts": self._pseudo_counts(),
            }
        )

    def bind(self, data, tables):
        return MultinomialModel(data, tables, self.concentration)

    def parametric(self, X):
        X = X if sp.issparse(X) else sp.csr_array(readable(X))
        entries = (
            np.ascontiguousarray(X.indptr, dtype=np.intp),
            np.ascontiguousarray(X.indices, dtype=np.int32),
            np.ascontiguousarray(X.data, dtype=np.float64),
        )
        return ParametricMultinomial(*entries, self._pseudo_counts())

    def log_constants(self, X):
        return _log_coefficients(_as_csr(X))

    def divergences(self, params):
        """Divergences of the categorical distributions of a single count."""
        return j_divergences(np.exp(params), params)

    def cluster_params(self, stats):
        """`probabilities`: (n_clusters, n_features)."""
        counts = stats[:, 2:] + self._pseudo_counts()
        return {"probabilities": counts / counts.sum(axis=1, keepdims=True)}

    def uninformative(self, X):
        return _as_csr(X).sum(axis=1) == 0.0

    def background(self, X):
        return OverallWords(X)

    def column_means(self, stats, n_draws=None, rng=None):
        """Probabilities of the columns."""
        counts = stats[:, 2:] + self._pseudo_counts()
        if n_draws is not None:
            # Variates of small pseudo-counts may underflow.
            counts = np.maximum(rng.gamma(counts, size=(n_draws, *counts.shape)), 1e-300)
        shares = counts / counts.sum(axis=-1, keepdims=True)
        n_columns = shares.shape[-1]
        codes, kinds = np.full(n_columns, -1), np.full(n_columns, "share")
        return ColumnMeans(np.arange(n_columns), codes, kinds, shares)


class OverallWords:
    """Law of a row of counts that is noise, given its total: its words are drawn from the shares
    of the columns in all rows, as if these had one more word, divided evenly.

    It is a `background.Background` that draws no rows, as `Multinomial` draws none.
    """

    def __init__(self, X):
        columns = _counts(X).sum(axis=0)
        shares = columns + 1.0 / len(columns)
        self.log_shares = np.log(shares / shares.sum())

    def log_density(self, X, new=False):
        X = _as_csr(X)
        return X @ self.log_shares + _log_coefficients(X)

    def column(self, d):
        return None


def _counts(X):
    """Copy X to a CSR array without duplicates and zeros, and check its entries."""
    X = _as_csr(X)
    check_counts(
        X.tocoo(copy=False),
        "Multinomial",
        hint="count words, or use VonMisesFisher for weights such as tf-idf",
    )
    X.eliminate_zeros()
    check_count_sums(X.sum(axis=1), "Multinomial", "row")
    return X


def _as_csr(X):
    X = sp.csr_array(X, dtype=np.float64, copy=True)
    X.sum_duplicates()
    return X


def _log_coefficients(X):
    """log of (sum_d x_d)! / prod_d x_d! for each row."""
    row = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    log_factorials = np.bincount(row, gammaln(X.data + 1.0), minlength=X.shape[0])
    return gammaln(X.sum(axis=1) + 1.0) - log_factorials
