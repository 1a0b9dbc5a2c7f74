# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `Poisson`."""

import numpy as np
from scipy.special import gammaln, logsumexp

from skdpm._core._numerics import log_gamma_table
from skdpm._validation import parameters
from skdpm.mixture.likelihoods.contract.base import j_divergences, read_only
from skdpm.mixture.likelihoods.contract.roles import project_moments
from skdpm.mixture.likelihoods.counts._counts import LARGE_COUNT
from skdpm.mixture.likelihoods.counts._poisson import ParametricPoisson, PoissonModel
from skdpm.mixture.likelihoods.counts.counts import CountColumns
from skdpm.mixture.likelihoods.laws.laws import Counts, Rates

# Largest argument in the kernel's table of log Gamma (8 MiB).
LARGEST_TABLED = 2**20 - 1
# Number and ratio of rates of the prior below those of draws: down to those of the largest counts.
N_BEYOND, RATIO = 55, 2.0


@parameters
class Poisson(CountColumns):
    """Independent Poisson columns, each rate under a Gamma prior.

    X holds counts 0, 1, ...; NaN marks a missing entry.

    Parameters
    ----------
    shape, rate : float or None, default=None
        Shape and rate of the Gamma prior of Poisson rates (its mean: shape / rate). None: learned.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.
    """

    hyperparameters = ("shape", "rate")

    shape: float | None = None
    rate: float | None = None
    hyperpriors: dict | None = None

    def resolve_summary(self, summary):
        resolved = self._resolved(summary)
        resolved._largest = np.max(summary["totals"], initial=0.0)
        return resolved

    def encode(self, X):
        constants = self.log_constants(X)
        X, exposure = self._checked_parts_of(X)
        large = X >= LARGE_COUNT
        log_large = np.zeros(len(X))
        if large.any():
            log_large = np.where(large, gammaln(X + 1.0), 0.0).sum(axis=1)
        drifts = self.exposed or bool(large.any())
        own = {"totals": X.sum(axis=1), "log_constants": constants}
        return self._encoded(X, exposure, log_large, drifts, **own)

    def tables(self, data, n_max):
        # Twice the largest sum, to have room for new rows.
        log_gamma = log_gamma_table(self.shape, min(2.0 * self._largest, LARGEST_TABLED))
        return read_only({**super().tables(data, n_max), "log_gamma": log_gamma})

    def bind(self, data, tables):
        return PoissonModel(data, tables, self.shape, self.rate)

    def parametric(self, X):
        X = np.ascontiguousarray(X, dtype=np.float64)
        large = self._largest >= LARGE_COUNT
        return ParametricPoisson(X, self.shape, self.rate, self._fitted_missing, large)

    def log_constants(self, X):
        X, exposure = self._parts_of(X)
        # The kernel adds the factorials of large entries.
        constants = -np.where(X < LARGE_COUNT, gammaln(X + 1.0), 0.0).sum(axis=1)
        if exposure is not None:
            constants += np.nansum(X, axis=1) * np.log(exposure)
        return constants

    def beyond(self, draws):
        """See `Likelihood`. Under any rate of the prior the density of a far count falls
        exponentially, but as a power of the count where the rate is unknown. Given the clusters
        and the shape, its logarithm u has a log-concave density if its prior is Gamma."""
        if "rate" not in self.learned_priors:
            return []
        far = min(values["rate"] for values, _ in draws) * RATIO ** -np.arange(1.0, N_BEYOND)
        log_shares = []
        for values, stats in draws:
            sums, counts = self._sums(stats)
            shape, known = values.get("shape", self.shape), counts > 0.0
            size = 1.0 + shape * np.count_nonzero(known)
            n, which = np.unique(counts[known], return_inverse=True)
            sizes = np.bincount(which, shape + sums[known])
            u = np.log(values["rate"]) + np.arange(-100, 101) * 0.5 / np.sqrt(size)
            rates = np.append(np.exp(u), far)
            logs = size * np.log(rates) - np.log(rates[:, None] + n) @ sizes
            logs += self.learned_priors["rate"].log_density(rates)
            log_total = logsumexp(logs[: len(u)]) + np.log(u[1] - u[0])
            log_shares.append(logs[len(u) :] - log_total + np.log(np.log(RATIO)))
        pairs = zip(np.transpose(log_shares), far, strict=True)
        return [(of_draws, {"rate": rate}) for of_draws, rate in pairs]

    def divergences(self, params):
        log_rates, rates = np.split(params[:, 1:], 2, axis=1)
        return j_divergences(rates, log_rates)

    def cluster_params(self, stats):
        """`rates`: (n_clusters, n_features)."""
        sums, counts = self._sums(stats)
        return {"rates": (self.shape + sums) / (self.rate + counts)}

    def moments(self, params, directions):
        # The variance of a Poisson law is its mean.
        return project_moments(params["rates"], params["rates"], directions)

    def laws(self, stats, rng=None):
        sums, counts = self._sums(stats)
        shapes, rates = self.shape + sums, self.rate + counts
        if rng is not None:
            return self._laws_of(Rates(column) for column in rng.gamma(shapes, 1.0 / rates).T)
        return self._laws_of(Counts(*column) for column in zip(shapes.T, rates.T, strict=True))

    @staticmethod
    def _at(law, exposure):
        if isinstance(law, Rates):
            return Rates(law.rate * exposure)
        return Counts(law.shape, law.rate / exposure)
