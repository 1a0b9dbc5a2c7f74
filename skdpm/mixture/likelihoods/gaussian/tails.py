# SPDX-License-Identifier: BSD-3-Clause
"""Laws of the weights of rows in Gaussian clusters with heavy tails: x | w ~ N(mean, Sigma / w).

The weight of a row is one of a few numbers, and its law has hyperparameters. Statistics of
clusters must not depend on these. So the weights of a t law are fixed numbers, and the degrees of
freedom change their probabilities alone. A contaminated law has two weights, one of which changes:
its rows have separate moments, and the weight is a factor of these.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import betaln, gammainc, logsumexp, xlog1py, xlogy
from sklearn.base import BaseEstimator

from skdpm._validation import check_real, parameters
from skdpm.hyperpriors import Gamma, Shifted

# Weights of a t law: scales 1 / sqrt(w) of rows that differ by a factor of 1.5.
RATIO = 2.25
POWERS = np.arange(1, -7, -1)
# Degrees of freedom that can be learned, and their prior, by the density Gamma(shape, rate).
FREEDOMS = 2.0 ** (np.arange(33) / 4.0)
FREEDOM_SHAPE, FREEDOM_RATE = 2.0, 0.02
FIRST_FREEDOM = 4.0

# Prior of the share of contaminated rows, and of the factor of their variances less 1.
SHARE_A, SHARE_B = 1.0, 9.0
INFLATION_SHAPE, INFLATION_RATE = 2.0, 0.1
FIRST_SHARE, FIRST_INFLATION = 0.1, 10.0

# Log of the smallest probability of a weight.
LEAST = -700.0


@dataclass(frozen=True)
class Beta:
    """Prior of a probability."""

    a: float
    b: float

    def draw(self, rng, shape=()):
        """Draw independent numbers of a shape."""
        return np.clip(rng.beta(self.a, self.b, shape), 1e-300, 1.0 - 1e-16)

    def log_density(self, value):
        """Natural logarithm of the density."""
        return xlogy(self.a - 1.0, value) + xlog1py(self.b - 1.0, -value) - betaln(self.a, self.b)


@dataclass(frozen=True, eq=False)
class OnGrid:
    """Prior of a number that is one of the `values`, (n_values,), with these `log_masses`."""

    values: np.ndarray
    log_masses: np.ndarray

    def draw(self, rng, shape=()):
        """Draw independent numbers of a shape."""
        return rng.choice(self.values, shape, p=np.exp(self.log_masses))

    def log_density(self, value):
        """Natural logarithm of the probability of the nearest of the numbers."""
        return self.log_masses[np.abs(np.asarray(value)[..., None] - self.values).argmin(axis=-1)]


class Tails(BaseEstimator):
    """Law of the weight of a row.

    A subclass has one parameter in `__init__` for each of `parameters`, in their order, and

    - `parameters`: tuple of str. Names of its parameters as hyperparameters of `Gaussian`. No
      parameter of `Gaussian` has one of these names.
    - `relative`: (n_weights,). Weights, up to a factor common to those with one set of moments.
    - `sets`: (n_weights,), intp. Set of moments of the rows with each weight.
    - `first`: int. Number of the weight 1, with which chains start.
    - `start()`: Checked initial values of parameters, and priors of those that are None: dicts.
    - `log_law(values)`: Log probabilities of the weights, and factors of the sets of moments, from
      values of the parameters in their order.
    - `resample(counts, values, priors, step, rng)`: Draw the learned parameters, with `priors`, in
      the dict `values`, given the numbers of rows with each weight. step(name, prior) is a slice
      step of a parameter given everything else.
    """

    def weights(self, values):
        """Log probabilities of the weights, and the weights."""
        log_probabilities, factors = self.log_law(values)
        return log_probabilities, self.relative * factors[self.sets]

    def moments(self, stats, n_features, factors):
        """Masses, means and scatters of the weighted items of clusters, in the form of the
        statistics of a kernel without weights, from these factors of the sets of moments."""
        n_set = 1 + n_features + n_features * (n_features + 1) // 2
        upper = np.triu_indices(n_features)
        sets = stats[:, 1 + len(self.relative) :].reshape(len(stats), -1, n_set)
        out = np.zeros((len(stats), n_set))
        mean, scatter = out[:, 1 : 1 + n_features], out[:, 1 + n_features :]
        for k, factor in enumerate(factors):
            mass = factor * sets[:, k, 0]
            share = (mass / np.where(mass > 0.0, out[:, 0] + mass, 1.0))[:, None]
            gap = sets[:, k, 1 : 1 + n_features] - mean
            scatter += factor * sets[:, k, 1 + n_features :]
            scatter += out[:, :1] * share * (gap[:, upper[0]] * gap[:, upper[1]])
            mean += share * gap
            out[:, 0] += mass
        return out

    def moments_by_column(self, stats, n_features, factors):
        """Numbers of entries, masses, means and sums of squares of the columns of clusters, from
        these factors of the sets of moments: (n_clusters, n_features) each."""
        sets = stats[:, 1 + 2 * len(self.relative) :].reshape(len(stats), -1, 4, n_features)
        n, mass, mean, squares = np.zeros((4, len(stats), n_features))
        for k, factor in enumerate(factors):
            more = factor * sets[:, k, 1]
            share = more / np.where(more > 0.0, mass + more, 1.0)
            gap = sets[:, k, 2] - mean
            n += sets[:, k, 0]
            squares += factor * sets[:, k, 3] + mass * share * gap**2
            mean += share * gap
            mass += more
        return n, mass, mean, squares


@parameters
class StudentTails(Tails):
    """Heavy tails of a multivariate t law: the weight of a row is w ~ Gamma(df / 2, rate=df / 2),
    rounded to a grid.

    Parameters
    ----------
    df : float or None, default=None
        Degrees of freedom. None: learned, as the hyperparameter "tail_df".
    """

    parameters = ("tail_df",)
    relative = RATIO**POWERS
    sets = np.zeros(len(POWERS), dtype=np.intp)
    first = 1
    edges = RATIO ** (POWERS[:-1] - 0.5)

    df: float | None = None

    def start(self):
        if self.df is not None:
            return {"tail_df": check_real(self.df, "StudentTails.df", low=0.0)}, {}
        # A density of the logarithm, because the values are evenly spaced there.
        log_masses = FREEDOM_SHAPE * np.log(FREEDOMS) - FREEDOM_RATE * FREEDOMS
        prior = OnGrid(FREEDOMS, log_masses - logsumexp(log_masses))
        return {"tail_df": FIRST_FREEDOM}, {"tail_df": prior}

    def log_law(self, values):
        half = 0.5 * float(values[0])
        below = gammainc(half, half * self.edges)
        probabilities = -np.diff(below, prepend=1.0, append=0.0)
        with np.errstate(divide="ignore"):
            return np.maximum(np.log(probabilities), LEAST), np.ones(1)

    def resample(self, counts, values, priors, step, rng):
        if "tail_df" in priors:
            prior = priors["tail_df"]
            table = np.array([self.log_law([value])[0] for value in prior.values])
            log_masses = prior.log_masses + table @ counts
            masses = np.exp(log_masses - log_masses.max())
            values["tail_df"] = rng.choice(prior.values, p=masses / masses.sum())


@parameters
class ContaminatedTails(Tails):
    """Heavy tails of contaminated rows, whose covariance is a multiple of that of the others.

    Parameters
    ----------
    contamination : float or None, default=None
        Share of these rows, between 0 and 1. None: learned.
    inflation : float or None, default=None
        Factor, > 1, of their covariance. None: learned.
    """

    parameters = ("contamination", "inflation")
    relative = np.ones(2)
    sets = np.arange(2)
    first = 0

    contamination: float | None = None
    inflation: float | None = None

    def start(self):
        values, priors = {"contamination": FIRST_SHARE, "inflation": FIRST_INFLATION}, {}
        share, name = self.contamination, "ContaminatedTails.contamination"
        if share is None:
            priors["contamination"] = Beta(SHARE_A, SHARE_B)
        else:
            values["contamination"] = check_real(share, name, low=0.0)
            if not share < 1.0:
                raise ValueError(f"{name} must be below 1, got {share!r}")
        if self.inflation is None:
            priors["inflation"] = Shifted(Gamma(INFLATION_SHAPE, INFLATION_RATE), 1.0)
        else:
            name = "ContaminatedTails.inflation"
            values["inflation"] = check_real(self.inflation, name, low=1.0)
        return values, priors

    def log_law(self, values):
        share, inflation = map(float, values)
        return np.array([np.log1p(-share), np.log(share)]), np.array([1.0, 1.0 / inflation])

    def resample(self, counts, values, priors, step, rng):
        if "contamination" in priors:
            prior = priors["contamination"]
            law = Beta(prior.a + counts[1], prior.b + counts[0])
            values["contamination"] = float(law.draw(rng))
        if "inflation" in priors:
            values["inflation"] = step("inflation", priors["inflation"])


TAILS = {"contaminated": ContaminatedTails(), "t": StudentTails()}
