# SPDX-License-Identifier: BSD-3-Clause
"""What likelihoods of independent columns of counts share."""

import copy

import numpy as np

from skdpm._validation import NO_COUNTS, check_count_sums, check_counts, check_real
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods.contract.base import MOST_BOXED, Likelihood, bounds, read_only
from skdpm.mixture.likelihoods.contract.roles import Start
from skdpm.mixture.likelihoods.laws.background import overall_counts
from skdpm.mixture.likelihoods.laws.columns import filled_columns
from skdpm.mixture.likelihoods.laws.laws import ExposedLaws, IndependentLaws
from skdpm.mixture.likelihoods.laws.means import ColumnMeans, means_of_columns

SHAPE_PRIOR = Gamma(2.0, 1.0)


class CountColumns(Likelihood):
    """Base class of likelihoods of independent columns of counts whose means in clusters have a
    prior with the parameters `shape` and `rate` and the mean shape / rate.

    Statistics of a cluster end with the sum and the number of entries of each column. If rows have
    exposures (`exposed`), the last column of X holds them, and their sum is in place of the number
    of entries.
    """

    allow_nan = True
    discrete = True
    positive_only = True

    @property
    def capabilities(self):
        # Samplers of rows in blocks know no exposures.
        found = {"joint", "product"}
        return frozenset(found if self.exposed else found | {"instantiated"})

    def with_exposure(self):
        other = copy.copy(self)
        other.exposed = True
        return other

    def _resolved(self, summary, **more):
        """A copy that starts from these rows, with more hyperparameters and what kernels need."""
        owner = type(self).__name__
        check_count_sums(summary["totals"], owner, "column")
        # A sum of 0 counts as 1.
        mean = float(max(summary["totals"].sum(), 1.0) / (summary["entries"] or 1))
        shape, typical = 1.0, SHAPE_PRIOR.shape / SHAPE_PRIOR.rate
        if self.shape is not None:
            shape = typical = check_real(self.shape, f"{owner}.shape", low=0.0)
        rate = Start(shape / mean, Gamma(2.0, 2.0 * mean / typical))
        other = self._start({"shape": Start(shape, SHAPE_PRIOR), "rate": rate, **more})
        other.exposed = self.exposed
        other._fitted_missing = bool(summary["missing"])
        return other

    def _parts_of(self, X):
        """The counts as contiguous doubles, and the exposures or None."""
        counts = X[:, :-1] if self.exposed else X
        exposure = np.array(X[:, -1], dtype=np.float64) if self.exposed else None
        return np.ascontiguousarray(counts, dtype=np.float64), exposure

    def _checked_parts_of(self, X):
        X, exposure = self._parts_of(X)
        check_counts(X, type(self).__name__, allow_nan=True, hint=NO_COUNTS)
        return X, exposure

    def _encoded(self, X, exposure, log_large, drifts, **own):
        """Checked parts of X for kernels, with what is their own."""
        own |= {"exposure": exposure} if self.exposed else {}
        missing = bool(np.isnan(X).any())
        return read_only(
            {"X": X, "log_large": log_large, "drifts": drifts, "missing": missing, **own}
        )

    def tables(self, data, n_max):
        missing = n_max is None or data["missing"] or self._fitted_missing
        return {"n_max": bounds(n_max)[0], "missing": missing}

    def of_column(self, column, n_features):
        return self._single_column(column, n_features)

    def summarise(self, X):
        """Sums of columns, numbers of entries or sums of exposures, numbers of missing entries."""
        X, exposure = self._checked_parts_of(X)
        known = ~np.isnan(X)
        of_rows = np.count_nonzero(known, axis=1)
        return {
            "totals": np.nansum(X, axis=0, dtype=np.float64),
            "entries": of_rows.sum() if exposure is None else of_rows @ exposure,
            "missing": known.size - of_rows.sum(),
        }

    def doubtful(self, X, least):
        return filled_columns(self.independent(X)) if isinstance(X, np.ndarray) else {}

    def box_points(self, data):
        X = data["X"]
        return None if data["missing"] or self.exposed or X.shape[1] > MOST_BOXED else X

    def background(self, X):
        return overall_counts(X)

    def independent(self, X, completion=None):
        return X[:, :-1] if self.exposed else X

    def scaled(self, X):
        return X[:, :-1] / X[:, -1:] if self.exposed else X

    def _laws_of(self, columns):
        columns = list(columns)
        return ExposedLaws(columns, self._at) if self.exposed else IndependentLaws(columns)

    def column_means(self, stats, n_draws=None, rng=None):
        return ColumnMeans.of_columns("count", means_of_columns(self, stats, n_draws, rng))

    def _sums(self, stats):
        """Sums and numbers of entries of each cluster and column."""
        return np.split(stats[:, 3:], 2, axis=1)
