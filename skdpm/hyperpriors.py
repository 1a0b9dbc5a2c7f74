# SPDX-License-Identifier: BSD-3-Clause
"""Families of priors of concentrations and of hyperparameters of likelihoods: of positive numbers,
and of a covariance matrix."""

from dataclasses import astuple, dataclass, fields
from functools import cached_property

import numpy as np
from scipy.special import gammaincinv, gammaln, multigammaln, ndtri

from skdpm._hyperpriors import GammaDensity, HalfCauchyDensity, LogNormalDensity
from skdpm._validation import check_real

__all__ = ["LKJ", "Gamma", "HalfCauchy", "Hyperprior", "LogNormal"]
__dir__ = __all__.copy

# Draws are not below this, because samplers work with logarithms.
SMALLEST_DRAW = 1e-300


class Hyperprior:
    """Base class of families of priors of a positive number.

    A family is a frozen dataclass whose fields are its parameters. It writes `density` and `ppf`.
    Objects can be compared and pickled, and their `repr` makes an equal object.

    - `signed`: frozenset of str. Parameters that may be negative or zero.
    - `low`, `unit`: float. 0 and 1. A likelihood may have a prior of (value - low) / unit instead.
    """

    signed = frozenset()
    low = 0.0
    unit = 1.0
    _kernel = None  # class of the density, made with the parameters

    @property
    def family(self):
        """This object."""
        return self

    @cached_property
    def density(self):
        """Kernel's density of the logarithm of the number: a `LogDensity`."""
        if self._kernel is None:
            raise NotImplementedError(f"{type(self).__name__} must implement `density`")
        return self._kernel(*astuple(self))

    def __getstate__(self):
        # Without the cached density, which is made anew.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def ppf(self, q):
        """Quantiles at the probabilities q: ndarray of the shape of q."""
        raise NotImplementedError(f"{type(self).__name__} must implement `ppf`")

    def draw(self, rng, shape=()):
        """Draw independent numbers with a numpy Generator: ndarray of a shape."""
        return np.maximum(self.ppf(rng.random(shape)), SMALLEST_DRAW)

    def log_density(self, value):
        """Natural logarithm of the density at each entry of an array: ndarray of its shape."""
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(np.asarray(value, dtype=np.float64))
            return np.where(np.isfinite(x), self.density(x) - x, -np.inf)

    def check(self, name):
        """This family with its parameters as floats; `name` is that of the prior, for errors."""
        checked = {
            field.name: check_real(
                getattr(self, field.name),
                f"{name}: {type(self).__name__}.{field.name}",
                low=-np.inf if field.name in self.signed else 0.0,
            )
            for field in fields(self)
        }
        return type(self)(**checked)


@dataclass(frozen=True)
class Gamma(Hyperprior):
    """Gamma distribution.

    The concentration of `DPMixture` and of the Indian buffet process is drawn from its full
    conditional under this family, in closed form.

    Parameters
    ----------
    shape : float
        Shape; the mean is shape / rate.
    rate : float
        Rate, the inverse of the scale.
    """

    shape: float
    rate: float

    _kernel = GammaDensity

    def ppf(self, q):
        return gammaincinv(self.shape, q) / self.rate


@dataclass(frozen=True)
class HalfCauchy(Hyperprior):
    """Half-Cauchy distribution: the absolute value of a Cauchy variable with its centre at 0.

    Parameters
    ----------
    scale : float
        Scale, which is the median.

    References
    ----------
    Gelman (2006), Prior distributions for variance parameters in hierarchical models.
    """

    scale: float

    _kernel = HalfCauchyDensity

    def ppf(self, q):
        return self.scale * np.tan(0.5 * np.pi * np.asarray(q))


@dataclass(frozen=True)
class LogNormal(Hyperprior):
    """Log-normal distribution: the logarithm of the number is normal.

    Parameters
    ----------
    mean : float
        Mean of the natural logarithm.
    sd : float
        Standard deviation of the natural logarithm.
    """

    mean: float
    sd: float

    signed = frozenset({"mean"})
    _kernel = LogNormalDensity

    def ppf(self, q):
        return np.exp(self.mean + self.sd * ndtri(q))


@dataclass(frozen=True)
class LKJ:
    """Prior of a covariance matrix: correlations R of density proportional to
    det(R) ** (concentration - 1), and independent variances.

    It is for the `scale` of `Gaussian` with full covariances.

    Parameters
    ----------
    concentration : float, default=1.0
        Concentration, at least 0.1; 1 is uniform over correlation matrices, and with more the
        correlations are nearer to 0.
    variances : Gamma, default=Gamma(0.5, 1.0)
        Prior of the variances, in units of those of the columns; its shape must be below
        concentration + 1 / 2.

    References
    ----------
    Lewandowski, Kurowicka & Joe (2009).
    """

    concentration: float = 1.0
    variances: Gamma = Gamma(0.5, 1.0)

    @property
    def density(self):
        """Kernel's density of the logarithm of a variance."""
        return self.variances.density

    def check(self, name):
        """This prior with its parameters as floats; `name` is that of the prior, for errors."""
        concentration = check_real(self.concentration, f"{name}: LKJ.concentration", low=0.0)
        if concentration < 0.1:  # draws would be singular
            raise ValueError(
                f"{name}: LKJ.concentration must be at least 0.1, got {concentration}"
            )
        variances = Gamma(*check_gamma(self.variances, f"{name}: LKJ.variances"))
        if not variances.shape < concentration + 0.5:
            raise ValueError(
                f"{name}: the shape of LKJ.variances must be below LKJ.concentration + 1/2 = "
                f"{concentration + 0.5}, got {variances.shape}"
            )
        return LKJ(concentration, variances)

    def draw_correlations(self, n_features, rng):
        """Draw the correlations of a Wishart matrix: ndarray of shape (n_features, n_features)."""
        root = wishart_root(2.0 * self.concentration + n_features - 1.0, n_features, rng)
        root /= np.linalg.norm(root, axis=1)[:, None]
        return root @ root.T

    def log_density_correlations(self, matrix):
        """Natural logarithm of the density of a matrix of correlations."""
        n = len(matrix)
        half = self.concentration + 0.5 * (n - 1.0)
        log_constant = n * gammaln(half) - multigammaln(half, n)
        return log_constant + (self.concentration - 1.0) * np.linalg.slogdet(matrix)[1]


@dataclass(frozen=True)
class Shifted:
    """Prior of numbers above a lower limit: (value - low) / unit is of a family. Limit and unit
    may be arrays with an entry per number."""

    family: Hyperprior
    low: float = 0.0
    unit: float = 1.0

    def draw(self, rng, shape=()):
        """See `Hyperprior.draw`."""
        return self.low + self.unit * self.family.draw(rng, shape)

    def log_density(self, value):
        """See `Hyperprior.log_density`."""
        return self.family.log_density((value - self.low) / self.unit) - np.log(self.unit)


def wishart_root(df, n, rng):
    """Draw the triangular root of a Wishart matrix of order n: Bartlett's decomposition."""
    root = np.tril(rng.standard_normal((n, n)), -1)
    root[np.diag_indices(n)] = np.sqrt(rng.chisquare(df - np.arange(n)))
    return root


def check_hyperprior(value, name):
    """Make a family of a pair (shape, rate), or check one: Hyperprior."""
    if isinstance(value, Hyperprior):
        return value.check(name)
    if isinstance(value, LKJ):
        raise ValueError(
            f"{name}: LKJ is a prior of matrices, for the scale of Gaussian with "
            'covariance_type="full"; use a prior of numbers such as skdpm.hyperpriors.Gamma(1, 1)'
        )
    try:
        shape, rate = value
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} must be a pair (shape, rate) of a Gamma prior or a family such as "
            f"skdpm.hyperpriors.HalfCauchy(1.0), got {value!r}"
        ) from None
    return Gamma(shape, rate).check(name)


def check_gamma(value, name):
    """Pair (shape, rate) of a Gamma prior that is given as a pair or as an object."""
    prior = check_hyperprior(value, name)
    if not isinstance(prior, Gamma):
        raise ValueError(
            f"{name} must be a pair (shape, rate) or a Gamma, because the draws use its "
            f"conjugacy; got {value!r}"
        )
    return astuple(prior)
