# SPDX-License-Identifier: BSD-3-Clause
"""Columns that the other columns of X determine: constants and affine combinations.

Rows of all columns have a density as if each column had been recorded with a small error. Let r be
the differences between the m columns left out and their values that follow from the others. They
are linear in normal errors, with a covariance C. If a new row follows the map, r has this law.
Density times p(independent columns) then does not depend on which of several dependent columns are
left out: it is the density within the plane of the rows times that of the distance from it.

After n rows that follow, the next one does not with the probability 1 / (n + 2), by Laplace's
rule of succession. So each of the m entries of r, made independent one after the other, has a
Cauchy law instead with this probability. It is as wide as the column.
"""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.stats import cauchy, norm

from skdpm._core._numerics import rotate
from skdpm._validation import ColumnError
from skdpm.mixture.likelihoods.laws.laws import depends, factors, log_succession, patterns

# Largest residual of a dependent column in the first rows, and root of the mean square in all
# rows, in standard deviations. The latter comes from a scatter matrix, which has fewer digits.
RESIDUAL, RESIDUAL_OF_SCATTER = 1e-6, 1e-5
# Share of the variance of a column that rounding of the scatter matrix may leave.
LEAST_REST = 1e-13
# Relative rounding error of an entry of a combination, several units in the last place.
ROUNDING = 2.0**-50
# Error of a column: share of its standard deviation; share of the absolute value of a constant,
# or the error itself of a constant 0.
ERROR, ERROR_OF_CONSTANT = 1e-5, 1e-6
SMALLEST_ERROR = 1e-150  # its square is a normal double
# Largest standard deviation of a column, and largest residual in units of its error.
LARGEST = 1e150
# Errors beyond which a new row departs from what held in all rows.
DEPARTURE = 10.0
# Standard errors beyond which a weight is not noise.
LARGE_ERRORS = 10.0
# First rows in which a combination must hold closely.
FIRST_ROWS = 4096


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """Independent columns, and the affine map from them to all columns.

    - `columns`: (n_independent,), intp. Positions of the independent columns, increasing.
    - `origin`: (n_features,). A row of the plane. NaN in columns that are missing in all rows.
    - `weights`: (n_features, n_independent). A row with the independent entries x is origin +
      weights @ (x - origin[columns]).
    - `n_rows`: int. Number of rows from which the map was found.
    - `left_out`: (n_left_out,), intp. Positions of the other columns, increasing.
    - `errors`: (n_left_out,). Standard deviations of their residuals.
    - `whitening`: (n_left_out, n_left_out). Lower triangular matrix A such that A r has
      uncorrelated entries of variance 1 for residuals r.
    """

    columns: np.ndarray
    origin: np.ndarray
    weights: np.ndarray
    n_rows: int
    left_out: np.ndarray
    errors: np.ndarray
    whitening: np.ndarray

    def __repr__(self):
        return f"Projection(columns={self.columns.tolist()}, n_features={len(self.origin)})"

    @classmethod
    def with_errors(cls, columns, origin, weights, n_rows, errors):
        """Make a projection, given the errors of all columns."""
        left_out = np.setdiff1d(np.arange(len(origin)), columns)
        unit = errors[left_out]
        slope = weights[left_out] * errors[columns] / unit[:, None]
        # The Cholesky factor of 1 + slope slope', which may be singular in doubles.
        root = np.linalg.qr(np.vstack([np.eye(len(unit)), slope.T]), mode="r").T
        root *= np.sign(np.diagonal(root))
        whitening = solve_triangular(root, np.eye(len(unit)), lower=True) / unit
        spreads = unit * np.sqrt(1.0 + np.sum(slope**2, axis=1))
        return cls(columns, origin, weights, n_rows, left_out, spreads, whitening)

    def project(self, X):
        """Return the independent columns of rows, C-contiguous. Without any, rows are one column
        without entries, which says nothing about clusters."""
        if not len(self.columns):
            return np.full((len(X), 1), np.nan)
        return np.ascontiguousarray(X[:, self.columns])

    def rebuild(self, points):
        """Return all columns of rows, given the independent ones."""
        points = points[:, : len(self.columns)]
        X = self.origin + (points - self.origin[self.columns]) @ self.weights.T
        X[:, self.columns] = points
        return X

    def residuals(self, X):
        """Entries of the columns left out, less those that follow from the other columns; NaN if
        missing. Their bits do not depend on other rows: (n_rows, n_left_out)."""
        slopes = np.ascontiguousarray(self.weights[self.left_out].T)
        base, origin = np.ascontiguousarray(X[:, self.columns]), self.origin[self.columns]
        gaps = np.isnan(base)
        found = rotate(np.where(gaps, origin, base), origin, slopes)
        # A constant does not depend on entries that are missing.
        found[(gaps @ (slopes != 0.0)) > 0] = np.nan
        return X[:, self.left_out] - self.origin[self.left_out] - found

    def log_density(self, X):
        """log density of the columns left out given the others: (n_rows,)."""
        zeros, whitening = np.zeros(len(self.left_out)), np.ascontiguousarray(self.whitening.T)
        with np.errstate(over="ignore"):
            residuals = self.residuals(np.asarray(X, dtype=np.float64))
            observed = ~np.isnan(residuals)
            # Entries are missing only if all residuals are independent.
            white = rotate(np.where(observed, residuals, 0.0), zeros, whitening)
            found = observed * self._log_law(white)
        peaks = np.ascontiguousarray(np.log(np.diagonal(whitening))[:, None])
        return found.sum(axis=1) + rotate(observed, zeros, peaks)[:, 0]

    def _log_law(self, white):
        """log density of independent entries of residuals, in units of their errors."""
        white = np.clip(white, -LARGEST, LARGEST)
        follows, departs = log_succession(self.n_rows)
        departs = departs + cauchy.logpdf(white, scale=1.0 / ERROR)
        return np.logaddexp(follows + norm.logpdf(white), departs)

    def log_density_known(self, X):
        """`log_density` of columns left out that known entries give, if any lack: (n_rows,)."""
        root = np.linalg.inv(self.whitening)
        out = np.zeros(len(X))
        for rows, known in patterns(X):
            base = known[self.columns]
            weights = self.weights[self.left_out]
            used = known[self.left_out] & ~depends(weights, ~base)
            used &= ~np.isnan(self.origin[self.left_out])
            chosen = self.left_out[used]
            gaps = np.where(base, X[np.ix_(rows, self.columns)] - self.origin[self.columns], 0.0)
            gaps = X[np.ix_(rows, chosen)] - self.origin[chosen] - gaps @ self.weights[chosen].T
            factor = factors((root[used] @ root[used].T)[None])[0]
            white = np.linalg.solve(factor, gaps.T)
            out[rows] = self._log_law(white).sum(axis=0) - np.log(np.diagonal(factor)).sum()
        return out

    def departs(self, X):
        """Whether the columns left out do not follow from the others: (n_rows, n_left_out)."""
        return np.abs(self.residuals(X)) > DEPARTURE * self.errors

    @property
    def constants(self):
        """Values of the columns left out that had one, NaN for others: (n_left_out,)."""
        varied = self.weights[self.left_out].any(axis=1)
        return np.where(varied, np.nan, self.origin[self.left_out])

    @contextmanager
    def translated(self):
        """Translate columns in errors to columns of X."""
        try:
            yield
        except ColumnError as error:
            column = self.columns[error.column]
            raise ColumnError(error.before, column, error.after, row=error.row) from None


def projection_of(summary):
    """The `Projection` of the columns that others determine, from `Gaussian.summarise` (without
    "scatter" or with None, of constants); None if there are none."""
    smallest, largest = summary["smallest"], summary["largest"]
    n_features = len(smallest)
    varies = largest > smallest
    if not summary["n"].any():
        return None
    weights, origin = np.zeros((n_features, n_features)), summary["mean"].copy()
    # A column without entries is missing everywhere.
    origin[~varies] = np.where(summary["n"] > 0, smallest, np.nan)[~varies]
    independent = np.flatnonzero(varies)
    if summary.get("scatter") is not None and len(independent):
        independent = _without_combinations(summary, independent, weights, origin)
    if len(independent) == n_features:
        return None
    weights[independent, independent] = 1.0
    with np.errstate(invalid="ignore"):
        sizes = np.abs(origin)
        errors = ERROR_OF_CONSTANT * np.where(sizes > 0.0, sizes, 1.0)
        # Sums of squares may overflow; infinity times a weight of 0 would be NaN.
        spreads = np.fmin(np.sqrt(summary["squares"] / np.maximum(summary["n"], 1)), LARGEST)
    magnitudes = np.where(varies, np.abs(origin) + spreads, 0.0)
    noise = ROUNDING * (magnitudes + np.abs(weights) @ magnitudes)
    errors[varies] = np.maximum(ERROR * spreads, noise)[varies]
    errors = np.fmax(errors, SMALLEST_ERROR)
    return Projection.with_errors(
        independent, origin, weights[:, independent], int(summary["n"].max()), errors
    )


def _without_combinations(summary, columns, weights, origin):
    """Leave out combinations of earlier columns; write their weights and origins."""
    head, n_features = summary["head"][:FIRST_ROWS, columns], len(columns)
    rows, lacks = summary["rows"][:FIRST_ROWS, columns], np.isnan(head).any(axis=1)
    head, far = head[~lacks], rows[lacks & ~np.isnan(rows).any(axis=1)]
    scatter = summary["scatter"][np.ix_(columns, columns)]
    n_rows = summary["n_rows"]
    spreads = np.sqrt(np.diagonal(scatter) / n_rows)
    # Any n_features + 1 rows lie in a hyperplane.
    if not np.isfinite(scatter).all() or not (spreads > 0.0).all():
        return columns
    if len(head) < n_features + 2 or len(np.unique(head, axis=0)) < n_features + 2:
        return columns
    scatter = scatter / np.outer(spreads, spreads) / n_rows
    # Entries have no more digits than doubles, however small the standard deviation is.
    rounding = ROUNDING * np.abs(head).max(axis=0) / spreads
    head = (head - origin[columns]) / spreads
    centre = head.mean(axis=0)
    head = head - centre
    # A column that differs from a combination in far entries alone is none.
    with np.errstate(over="ignore", invalid="ignore"):
        far = (far - origin[columns]) / spreads - centre
        far /= np.abs(far).max(axis=1, keepdims=True, initial=1.0)
    head = np.concatenate([head, far[np.isfinite(far).all(axis=1)]])
    kept, basis, factor = [], [], np.zeros((n_features, n_features))
    for d in range(n_features):
        m = len(basis)
        along = solve_triangular(factor[:m, :m], scatter[basis, d], lower=True) if m else []
        rest = scatter[d, d] - np.dot(along, along)
        # Weights are not known yet; a combination of large ones is found in the first rows.
        blur = rounding[d] + rounding[kept].sum()
        if m and rest < (RESIDUAL_OF_SCATTER + blur) ** 2:
            found = _combination(head[:, kept], head[:, d], rounding[kept], rounding[d])
            if found is not None:
                weights[columns[d], columns[kept]] = found * spreads[d] / spreads[kept]
                origin[columns[d]] += (centre[d] - centre[kept] @ found) * spreads[d]
                continue
        # What rounding leaves of a column would spoil those that come after it.
        if rest > LEAST_REST:
            factor[m, :m] = along
            factor[m, m] = np.sqrt(rest)
            basis.append(d)
        kept.append(d)
    return columns[kept]


def _combination(columns, target, rounding, own_rounding):
    """Weights of the combination of columns that a target column is; None if it is none. Weights
    that noise can explain are 0: a column would else seem to follow from them."""
    found = np.linalg.lstsq(columns, target)[0]
    blur = own_rounding + np.abs(found) @ rounding
    rest = target - columns @ found
    if not np.abs(rest).max() < max(RESIDUAL, blur):
        return None
    noise = max(blur, np.sqrt(rest @ rest / (len(target) - len(found))))
    triangle = np.linalg.qr(columns, mode="r")
    errors = noise * np.linalg.norm(np.linalg.pinv(triangle), axis=1)
    # Weights below the residuals are noise too, however small their errors are; and only these,
    # if errors are large as columns nearly follow from each other.
    errors, largest = LARGE_ERRORS * errors, np.abs(rest).max()
    for least in (np.maximum(errors, largest), errors, largest):
        used = np.abs(found) > least
        simpler = np.zeros_like(found)
        simpler[used] = np.linalg.lstsq(columns[:, used], target)[0]
        # What noise explains does not matter: without it the combination is as good.
        if np.abs(target - columns @ simpler).max() <= 2.0 * largest:
            return simpler
    return found


def columns_of(summary, columns):
    """The summary of some columns."""
    return {
        name: value
        if name in ("missing", "n_rows")
        else value[:, columns]
        if name in ("head", "rows")
        else value[np.ix_(columns, columns)]
        if name == "scatter"
        else value[columns]
        for name, value in summary.items()
    }
