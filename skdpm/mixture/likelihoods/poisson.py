# SPDX-License-Identifier: BSD-3-Clause
"""Columns of counts."""

import numpy as np
from scipy.special import gammaln

from skdpm._validation import check_count_sums, check_counts, check_real
from skdpm.mixture.likelihoods._poisson import ParametricPoisson, PoissonModel
from skdpm.mixture.likelihoods.base import Likelihood, j_divergences

# The kernel's table of log Gamma ends here (8 MiB); larger counts are computed without it.
LARGEST_TABLED = 2**20 - 1


class Poisson(Likelihood):
    """Independent Poisson columns, each rate under a Gamma prior.

    Parameters
    ----------
    shape, rate : float, default=1.0
        Of the Gamma prior of the Poisson rates; its mean is shape / rate.

    Notes
    -----
    X holds counts 0, 1, ..., NaN where an entry is missing. The factorials of the counts are
    included in all densities.
    """

    capabilities = frozenset({"joint", "product", "instantiated"})
    allow_nan = True
    positive_only = True

    def __init__(self, shape=1.0, rate=1.0):
        self.shape = shape
        self.rate = rate

    def summarise(self, X):
        """Sums of the columns."""
        check_counts(X, "Poisson", allow_nan=True)
        return {
            "totals": np.nansum(X, axis=0, dtype=np.float64),
            "missing": bool(np.isnan(X).any()),
        }

    def merge_summaries(self, first, second):
        return {
            "totals": first["totals"] + second["totals"],
            "missing": first["missing"] or second["missing"],
        }

    def resolve_summary(self, summary):
        resolved = self._copy(
            shape=check_real(self.shape, "Poisson.shape", low=0.0),
            rate=check_real(self.rate, "Poisson.rate", low=0.0),
        )
        totals = summary["totals"]
        check_count_sums(totals, "Poisson", "column")
        resolved._fitted_missing = summary["missing"]
        resolved._large = totals > LARGEST_TABLED
        resolved._largest = np.max(totals, initial=0.0, where=~resolved._large)
        return resolved

    def encode(self, X):
        check_counts(X, "Poisson", allow_nan=True)
        X = np.ascontiguousarray(X, dtype=np.float64)
        log_factorials = np.nan_to_num(gammaln(X + 1.0))
        return {
            "X": X,
            "log_factorials": np.column_stack(
                [log_factorials.sum(axis=1), log_factorials[:, ~self._large].sum(axis=1)]
            ),
            "missing": bool(np.isnan(X).any()),
        }

    def bind(self, data, tables):
        return PoissonModel(
            data["X"],
            data["log_factorials"],
            self._large.astype(np.uint8),
            # New rows come on top of what a cluster can hold.
            min(int(2.0 * self._largest), LARGEST_TABLED),
            self.shape,
            self.rate,
            data["missing"] or self._fitted_missing,
            tables["n_max"],
        )

    def parametric(self, X):
        X = np.ascontiguousarray(X, dtype=np.float64)
        return ParametricPoisson(X, self.shape, self.rate, self._fitted_missing)

    def log_constant(self, X):
        return -np.nansum(gammaln(np.asarray(X, dtype=np.float64) + 1.0))

    def divergences(self, params):
        log_rates, rates = np.split(params[:, 1:], 2, axis=1)
        return j_divergences(rates, log_rates)

    def cluster_params(self, rows):
        """`rates`: (n_clusters, n_features)."""
        sums, counts = self._sums(rows)
        return {"rates": (self.shape + sums) / (self.rate + counts)}

    def draw(self, rows, rng):
        sums, counts = self._sums(rows)
        rates = rng.gamma(self.shape + sums, 1.0 / (self.rate + counts))
        return rng.poisson(rates).astype(np.float64)

    def _sums(self, rows):
        """Sums and numbers of the entries of each cluster and column."""
        return np.split(rows[:, 3:], 2, axis=1)

    @classmethod
    def _examples(cls):
        rng = np.random.default_rng(0)
        X = rng.poisson([0.5, 3.0, 20.0], size=(12, 3)).astype(np.float64)
        yield cls(), X
        Y = X.copy()
        Y[rng.random(Y.shape) < 0.3] = np.nan
        yield cls(shape=0.7, rate=0.2), Y
        # Beyond the table of log Gamma in one column.
        yield cls(shape=2.0, rate=1e-6), X * [1.0, 1.0, 1e5]
