# SPDX-License-Identifier: BSD-3-Clause
"""The likelihood `NegativeBinomial`."""

import numpy as np

from skdpm._validation import check_positive, parameters
from skdpm.hyperpriors import HalfCauchy
from skdpm.mixture.likelihoods.contract.base import j_divergences, read_only
from skdpm.mixture.likelihoods.contract.roles import Start, project_moments
from skdpm.mixture.likelihoods.counts._negative_binomial import (
    NegativeBinomialModel,
    ParametricNegativeBinomial,
    level_terms,
    sums_of_terms,
)
from skdpm.mixture.likelihoods.counts.counts import CountColumns
from skdpm.mixture.likelihoods.laws.laws import BetaNegativeBinomial, Counts

DISPERSION_PRIOR = HalfCauchy(1.0)
# Where chains start if it is learned. Too large a value would merge clusters at the start, after
# which the dispersion would stay large.
FIRST_DISPERSION = 0.1


@parameters
class NegativeBinomial(CountColumns):
    """Independent negative binomial columns: counts that vary more than Poisson ones.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import NegativeBinomial
    >>> rng = np.random.default_rng(1)
    >>> rates = rng.gamma(2.0, np.repeat([[1.0], [40.0]], 100, axis=0) / 2.0, size=(200, 2))
    >>> X = rng.poisson(rates)
    >>> DPMixture(likelihood=NegativeBinomial(), random_state=0).fit(X).n_clusters_
    2

    A count with mean mu has the variance mu + dispersion mu². All clusters have the same
    dispersion of a column. NaN marks a missing entry.

    Parameters
    ----------
    shape, rate : float or None, default=None
        Parameters of the prior of the means of columns in clusters, whose mean is shape / rate.
        None: learned.
    dispersion : float, array-like of shape (n_features,) or None, default=None
        Dispersion of each column. None: learned.
    hyperpriors : dict of str to Hyperprior, or None, default=None
        Priors of learned parameters. None: those on the page "Laws in detail" of the guide.

    References
    ----------
    Diaconis & Ylvisaker (1979), Conjugate priors for exponential families.
    """

    hyperparameters = ("shape", "rate", "dispersion")

    constants_vary = True

    shape: float | None = None
    rate: float | None = None
    dispersion: object = None
    hyperpriors: dict | None = None

    def summarise(self, X):
        """The levels of each column, their exposures, and how often they occur."""
        summary = super().summarise(X)
        X, exposure = self._parts_of(X)
        levels = []
        for column in X.T:
            known = ~np.isnan(column)
            of_known = None if exposure is None else exposure[known]
            levels.append(_tally(column[known], of_known, np.ones(np.count_nonzero(known)))[0])
        return {**summary, "n_rows": len(X), "levels": levels}

    def merge_summaries(self, first, second):
        levels = [
            _tally(*np.concatenate([one, other], axis=1))[0]
            for one, other in zip(first["levels"], second["levels"], strict=True)
        ]
        return {**super().merge_summaries(first, second), "levels": levels}

    def resolve_summary(self, summary):
        zeros = np.zeros(len(summary["totals"]))

        def check(given, name):
            return check_positive(given, name, len(zeros)) + zeros

        dispersion = Start(zeros + FIRST_DISPERSION, DISPERSION_PRIOR, check)
        resolved = self._resolved(summary, dispersion=dispersion)
        resolved._n_fitted = summary["n_rows"]
        resolved._fitted_levels = summary["levels"]
        return resolved

    def encode(self, X):
        X, exposure = self._checked_parts_of(X)
        return self._encoded(X, exposure, np.zeros(len(X)), self.exposed, **_levels(X, exposure))

    def tables(self, data, n_max):
        values, exposures, tallies = zip(*self._fitted_levels, strict=True)
        return read_only(
            {
                **super().tables(data, n_max),
                "n_fitted": self._n_fitted,
                "fitted_levels": np.concatenate(values),
                "fitted_exposures": np.concatenate(exposures),
                "fitted_starts": _starts(values),
                "fitted_tally": np.concatenate(tallies),
            }
        )

    def bind(self, data, tables):
        return NegativeBinomialModel(data, tables, self.shape, self.rate, self.dispersion)

    def parametric(self, X):
        X = np.ascontiguousarray(X, dtype=np.float64)
        return ParametricNegativeBinomial(
            X, self.shape, self.rate, np.ascontiguousarray(self.dispersion), self._fitted_missing
        )

    def log_constants(self, X):
        coded = _levels(*self._parts_of(X))
        terms = self._terms(coded["levels"], coded["level_exposures"], coded["starts"])
        return sums_of_terms(terms, coded["codes"])

    def sum_varying_constants(self):
        tables = self.tables({"missing": False}, None)
        names = ("fitted_levels", "fitted_exposures", "fitted_starts")
        return float(self._terms(*(tables[name] for name in names)) @ tables["fitted_tally"])

    def _terms(self, *levels):
        return level_terms(*levels, np.ascontiguousarray(self.dispersion))

    def divergences(self, params):
        log_rest, costs = np.split(params[:, 1:], 2, axis=1)
        # r (1 - p) / p, with log p = -dispersion * cost
        means = np.expm1(self.dispersion * costs) / self.dispersion
        return j_divergences(means, log_rest)

    def _posterior(self, stats):
        """Parameters (alpha, beta) of the Beta law of p in each cluster and column."""
        sums, counts = self._sums(stats)
        k = self.rate + self.shape * self.dispersion
        return 1.0 + (k + counts) / self.dispersion, k * (self.shape / self.rate) + sums

    def cluster_params(self, stats):
        """`means`: (n_clusters, n_features)."""
        alpha, beta = self._posterior(stats)
        return {"means": beta / (self.dispersion * (alpha - 1.0))}

    def moments(self, params, directions):
        means = params["means"]
        return project_moments(means, means + self.dispersion * means**2, directions)

    def laws(self, stats, rng=None):
        sizes = np.broadcast_to(1.0 / self.dispersion, (len(stats), len(self.dispersion)))
        alpha, beta = self._posterior(stats)
        if rng is not None:
            # (1 - p) / p. Draws of a Gamma law of a small shape may be 0.
            ratios = np.maximum(rng.gamma(beta) / rng.gamma(alpha), np.finfo(float).tiny)
            columns = zip(sizes.T, 1.0 / ratios.T, strict=True)
            return self._laws_of(Counts(*column) for column in columns)
        columns = zip(sizes.T, alpha.T, beta.T, strict=True)
        return self._laws_of(BetaNegativeBinomial(*column) for column in columns)

    @staticmethod
    def _at(law, exposure):
        if isinstance(law, Counts):
            return Counts(law.shape * exposure, law.rate)
        return BetaNegativeBinomial(law.size * exposure, law.alpha, law.beta)


def _tally(values, exposures, tallies):
    """The different values of a column with different exposures (None: all 1), these exposures,
    and the sums of their tallies, (3, n_levels); and the position of each entry."""
    pairs = values if exposures is None else values + 1j * exposures
    levels, positions = np.unique(pairs, return_inverse=True)
    of_levels = np.ones(len(levels)) if exposures is None else levels.imag
    found = np.array([levels.real, of_levels, np.bincount(positions, tallies, len(levels))])
    return found, positions


def _levels(X, exposure):
    """The levels of each column, one column after the other, their exposures, where those of each
    column begin, and the position of each entry of X among them: dict."""
    found = [_tally(column, exposure, None) for column in X.T]
    values, exposures, _ = zip(*(levels for levels, _ in found), strict=True)
    starts = _starts(values)
    codes = np.empty(X.shape, dtype=np.int32)
    for d, (_, positions) in enumerate(found):
        codes[:, d] = starts[d] + positions
    return {
        "levels": np.concatenate(values),
        "level_exposures": np.concatenate(exposures),
        "starts": starts,
        "codes": codes,
    }


def _starts(arrays):
    return np.cumsum([0, *map(len, arrays)]).astype(np.intp)
