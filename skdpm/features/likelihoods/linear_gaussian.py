# SPDX-License-Identifier: BSD-3-Clause
"""Rows that are sums of an intercept, components and noise."""

import numpy as np

from skdpm._validation import check_bool, check_columns, check_real, parameters, warn
from skdpm.features.likelihoods._linear_gaussian import (
    LARGEST_PRECISION,
    LOWEST_PRECISION,
    LinearGaussianModel,
)
from skdpm.features.likelihoods._sources import BinarySources
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm.hyperpriors import check_gamma
from skdpm.mixture.likelihoods.contract.base import read_only
from skdpm.mixture.likelihoods.laws.coordinates import bulk

# Bounds of centred entries and a column's spread without over- or underflow of what is computed.
LARGEST_ENTRY = 1e60
LOWEST_SPREAD = 1e-60
# Standard deviation of the intercept's prior in units of s. With a narrow prior, complements of
# features, which are often nearer to the columns' means, would take their place.
INTERCEPT_DEVIATION = 10.0
# Standard deviations of columns are compared if there are this many rows.
MOST_UNEQUAL, FEWEST_COMPARED = 100.0, 10


@parameters
class LinearGaussian(FeatureLikelihood):
    """A row is the sum of an intercept, the components of its features, and Gaussian noise.

    x_i ~ N(b + sum_k z_ik v_k, I / tau_x) with components v_k ~ N(0, I / tau_v) and the intercept
    b ~ N(m, 100 s^2 I). Here m is the vector of the columns' means over the entries observed in
    `fit`, and s^2 is the mean of the columns' variances (1 if that is 0). NaN is a missing entry.
    Columns should have a common unit.

    Parameters
    ----------
    noise_precision, component_precision : float or None, default=None
        tau_x and tau_v, in units of 1 / variance; None: learned under their priors.
    noise_precision_prior, component_precision_prior : tuple (shape, rate) or None, default=None
        Gamma priors of these; None: (1, s^2).
    intercept : bool, default=True
        Whether there is an intercept. If not, b = 0, so that rows without features are noise about
        zero, like black images; s^2 is then the mean square of the entries.

    References
    ----------
    Griffiths & Ghahramani (2011).
    """

    feature_params = ("components",)
    common_params = ("intercept",)
    hyperparameters = ("noise_precision", "component_precision")

    noise_precision: float | None = None
    noise_precision_prior: object = None
    component_precision: float | None = None
    component_precision_prior: object = None
    intercept: bool = True

    def resolve(self, X):
        params = {}
        for name in ("noise_precision", "component_precision"):
            if getattr(self, name) is not None:
                what = f"LinearGaussian.{name}"
                params[name] = value = check_real(getattr(self, name), what, low=0.0)
                if not LOWEST_PRECISION <= value <= LARGEST_PRECISION:
                    ends = f"between {LOWEST_PRECISION:g} and {LARGEST_PRECISION:g}"
                    raise ValueError(f"{what} must be {ends}, got {value:g}")
            prior = f"{name}_prior"
            if getattr(self, prior) is not None:
                params[prior] = check_gamma(getattr(self, prior), f"LinearGaussian.{prior}")
        check_bool(self.intercept, "LinearGaussian.intercept")
        resolved = type(self)(**{**self.get_params(deep=False), **params})
        n_observed = np.count_nonzero(~np.isnan(X), axis=0)
        resolved.mean_ = np.zeros(X.shape[1])
        if self.intercept:
            # Relative to the first entry: a sum of large entries may overflow or round.
            first = np.nan_to_num(X[np.argmax(~np.isnan(X), axis=0), np.arange(X.shape[1])])
            with np.errstate(over="ignore", invalid="ignore"):
                resolved.mean_ = first + np.nansum(X - first, axis=0) / np.maximum(n_observed, 1)
        centred = resolved._centred(X)
        spread = np.fmax.reduce(np.abs(centred), axis=0, initial=0.0)
        check_columns(
            X,
            ~np.isnan(X) & (spread > 0.0) & (spread < LOWEST_SPREAD),
            f"LinearGaussian needs columns with entries more than {LOWEST_SPREAD:g} from "
            f"{'their mean' if self.intercept else 'zero'}: rescale the column",
        )
        # One row and constant columns have no scale: use 1.
        seen = n_observed > 0
        variances = np.nansum(centred[:, seen] ** 2, axis=0) / n_observed[seen]
        scale = float(variances.mean()) if (variances > 0.0).any() else 1.0
        if len(X) >= FEWEST_COMPARED:
            _warn_of_units(np.nanstd(bulk(X[:, seen])[:, variances > 0.0], axis=0))
        for name in ("noise_precision", "component_precision"):
            if getattr(self, f"{name}_prior") is None:
                resolved.set_params(**{f"{name}_prior": (1.0, scale)})
        resolved.intercept_precision_ = (
            1.0 / (INTERCEPT_DEVIATION**2 * scale) if self.intercept else None
        )
        return resolved

    def _centred(self, X):
        """Subtract the means of the fit from X. Raises ValueError if an entry is too large."""
        with np.errstate(over="ignore", invalid="ignore"):
            centred = X - self.mean_
            # An enormous entry moves the mean away from all others: name that one.
            largest = np.abs(X) == np.fmax.reduce(np.abs(X), axis=0, initial=0.0)
            check_columns(
                X,
                largest & ~(np.abs(centred) <= LARGEST_ENTRY).all(axis=0, where=~np.isnan(X)),
                f"LinearGaussian needs entries within {LARGEST_ENTRY:g} of "
                f"{'their mean' if self.intercept else 'zero'}: rescale the column",
            )
        return centred

    def encode(self, X):
        X = self._centred(X)
        missing = np.isnan(X)
        columns, rows = np.nonzero(missing.T)
        data = {
            "X": np.ascontiguousarray(np.where(missing, 0.0, X)),
            "mean": np.array(self.mean_),
            "observed": np.ascontiguousarray(~missing, dtype=np.uint8) if missing.any() else None,
            "missing_rows": rows.astype(np.intp),
            "missing_starts": np.searchsorted(columns, np.arange(X.shape[1] + 1)).astype(np.intp),
        }
        data["sources"] = BinarySources(data["X"], data["observed"])
        return read_only(data)

    def bind(self, data):
        return LinearGaussianModel(
            data,
            self.noise_precision,
            self.noise_precision_prior,
            self.component_precision,
            self.component_precision_prior,
            self.intercept_precision_,
        )

    def initial_allocations(self, data, most, rng):
        return data["sources"].draw(most, rng)

    def reconstruct(self, Z, params):
        return Z @ params["components"] + params["intercept"]


def _warn_of_units(deviations):
    if deviations.size == 0:
        return
    small, largest = np.quantile(deviations, 0.25, method="lower"), deviations.max()
    if largest > MOST_UNEQUAL * small:
        warn(
            f"standard deviations of columns of X differ from {small:.3g} to {largest:.3g}. "
            "LinearGaussian has one precision of noise for all columns, so columns of small "
            "numbers hardly count. Scale the columns, as with sklearn's StandardScaler",
        )
