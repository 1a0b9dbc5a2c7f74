# SPDX-License-Identifier: BSD-3-Clause
"""Model choice by evidence: log p(X | model), estimated with its Monte Carlo error by SMC.

p(X | model) is the density of all rows, with all constants. Parameters and partition are
integrated out over their priors, and so are the concentration and the hyperparameters that are
None. The ratio of two evidences is a Bayes factor: the posterior odds of equally likely models.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from skdpm._convergence import LARGEST_STD
from skdpm._validation import check_real
from skdpm.hyperpriors import check_hyperprior
from skdpm.mixture.base import BaseMixture
from skdpm.mixture.particles.program import log_weights_at
from skdpm.mixture.samplers.smc import SMC

__all__ = ["concentration_curve", "log_evidence"]
__dir__ = __all__.copy


def log_evidence(estimators: dict[str, Any], X) -> dict[str, Any]:
    """Estimate the log evidence of several mixture models of the same rows, and compare them.

    >>> import numpy as np
    >>> from skdpm import FiniteMixture
    >>> from skdpm.mixture.likelihoods import Gaussian
    >>> from skdpm.model_selection import log_evidence
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> one_group = Gaussian(mean=3.0, mean_precision=0.05, df=3.0, scale=0.3)
    >>> models = {
    ...     f"K = {k}": FiniteMixture(k, likelihood=one_group, random_state=0) for k in (1, 2, 3)
    ... }
    >>> results = log_evidence(models, X)
    >>> results["model"][np.argmax(results["log_evidence"])]
    'K = 2'
    >>> bool(results["std_error"].max() < 0.1)
    True

    Evidence compares models of the same rows in the same units. A density and a probability cannot
    be compared. The page "Evidence" of the guide says how priors enter.

    Parameters
    ----------
    estimators : dict of str to DPMixture, FiniteMixture or another BaseMixture
        Models by name. Clones of them are fitted. A sampler other than `SMC` is replaced by
        ``SMC()``. Errors are estimated from `n_chains` independent particle systems.
    X : array-like or CSR matrix of shape (n_samples, n_features)

    Returns
    -------
    results : dict
        Entries for the models, in the order given. ``pandas.DataFrame(results)`` is a table.

        - ``model``: list of str.
        - ``log_evidence``: ndarray of shape (n_models,), natural log of the mean of the estimates.
        - ``std_error``: ndarray of shape (n_models,), its Monte Carlo standard error by the delta
          method. NaN for one chain, and never above 1: above 0.5 one chain decides.
        - ``std``: ndarray of shape (n_models,), standard deviation of the chains' estimates of
          the log evidence. Look at it first: above 1, of which a ConvergenceWarning tells, the
          estimate is poor, whatever the standard error is. With two or three chains both may be
          small by chance.
        - ``log_bayes_factor``: ndarray of shape (n_models,), against the model of the largest log
          evidence; at most 0.
        - ``probability``: ndarray of shape (n_models,), posterior probability of each model under
          equal prior probabilities; the estimates are taken as exact.
        - ``log_evidence_chains``: list of ndarray of shape (n_chains,).
    """
    if not isinstance(estimators, Mapping) or not estimators:
        raise ValueError(f"estimators must be a dict of names and mixtures, got {estimators!r}")
    for name, estimator in estimators.items():
        _check_mixture(estimator, f"estimators[{name!r}]")
    chains, uneven, n_different = [], [], {}
    for name, estimator in estimators.items():
        try:
            fitted = _run(estimator, X)
        except ValueError as error:
            raise ValueError(f"estimators[{name!r}]: {error}") from error
        chains.append(fitted.log_evidence_chains_)
        n_different[name] = fitted._n_different
        if len(set(n_different.values())) > 1:
            raise ValueError(
                "the models have no common evidence, because some leave copies of rows of X out "
                f"(see Gaussian); rows that they count: {n_different}. Drop the copies, such as "
                "by pd.DataFrame.drop_duplicates, or compare models that leave them out"
            )
        std = _std(chains[-1])
        if std > LARGEST_STD:
            uneven.append(f"{name} (standard deviation {std:.2g})")
    if uneven:
        warnings.warn(
            f"the estimates of the log evidence of {', '.join(uneven)} differ between chains; "
            "more particles (sampler=SMC(n_particles=...)) or chains may help",
            ConvergenceWarning,
            stacklevel=2,
        )
    means, errors = np.array([_log_mean(values) for values in chains]).T
    log_bayes_factor = means - means.max()
    probability = np.exp(log_bayes_factor)
    return {
        "model": list(estimators),
        "log_evidence": means,
        "std_error": errors,
        "std": np.array([_std(values) for values in chains]),
        "log_bayes_factor": log_bayes_factor,
        "probability": probability / probability.sum(),
        "log_evidence_chains": chains,
    }


def concentration_curve(estimator, X, concentrations) -> dict[str, Any]:
    """Estimate log p(X | concentration) at many concentrations from one run of a mixture.

    >>> import numpy as np
    >>> from skdpm import DPMixture
    >>> from skdpm.mixture.likelihoods import Gaussian
    >>> from skdpm.model_selection import concentration_curve
    >>> X = np.r_[np.arange(10) / 10, 5 + np.arange(10) / 10].reshape(-1, 1)
    >>> one_group = Gaussian(mean=3.0, mean_precision=0.05, df=3.0, scale=0.3)
    >>> model = DPMixture(likelihood=one_group, random_state=0)
    >>> curve = concentration_curve(model, X, [0.01, 0.3, 10.0])
    >>> curve["concentration"][np.argmax(curve["log_evidence"])]
    np.float64(0.3)

    The particles, found under one concentration or with it integrated out (None), are reweighted
    for each of the others at almost no cost. That is as good as a separate run if the numbers of
    clusters are similar: see `effective_sample_size`.

    The curve times a prior density of the concentration is proportional to its posterior, and
    integrates to the evidence under that prior.

    Parameters
    ----------
    estimator : DPMixture, FiniteMixture or another BaseMixture
        Model, of which a clone is fitted. A sampler other than `SMC` is replaced by ``SMC()``.
        ``concentration=None`` reaches furthest.
    X : array-like or CSR matrix of shape (n_samples, n_features)
    concentrations : array-like of shape (n_concentrations,)
        Concentrations of the curve.

    Returns
    -------
    curve : dict
        - ``concentration``: ndarray of shape (n_concentrations,).
        - ``log_evidence``: ndarray of shape (n_concentrations,), natural logarithm of the mean of
          the chains' estimates.
        - ``std_error``: ndarray of shape (n_concentrations,), its Monte Carlo standard error, as
          in `log_evidence`.
        - ``effective_sample_size``: ndarray of shape (n_concentrations,), that of the particles of
          all chains, reweighted. If it is small, the curve is a guess, whatever the standard error
          is.
        - ``log_evidence_chains``: ndarray of shape (n_concentrations, n_chains).
    """
    _check_mixture(estimator, "estimator")
    if np.ndim(concentrations) != 1 or len(concentrations) == 0:
        raise ValueError(f"concentrations must be a list of numbers, got {concentrations!r}")
    lowest = estimator.make_prior(1, 1.0).lowest_concentration
    at = np.array([check_real(value, "concentrations", low=lowest) for value in concentrations])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of other concentrations
        fitted = _run(estimator, X)
    concentration, hyperprior = fitted.concentration, None
    if concentration is None:
        concentration = 1.0
        hyperprior = check_hyperprior(fitted.concentration_prior, "concentration_prior")
    prior = fitted.make_prior(fitted._n_different, concentration)
    of_chains = [log_weights_at(chain, prior, at, hyperprior) for chain in fitted._run.chains]
    sums = np.array([logsumexp(log_w, axis=1) for log_w in of_chains]).T
    log_w = np.concatenate(of_chains, axis=1)
    weights = np.exp(log_w - log_w.max(axis=1, keepdims=True))
    means, errors = np.array([_log_mean(values) for values in sums]).T
    return {
        "concentration": at,
        "log_evidence": means,
        "std_error": errors,
        "effective_sample_size": weights.sum(axis=1) ** 2 / (weights**2).sum(axis=1),
        "log_evidence_chains": sums,
    }


def _check_mixture(estimator, name):
    if not isinstance(estimator, BaseMixture):
        raise TypeError(
            f"{name} must be a DPMixture, FiniteMixture or the like, got {estimator!r}"
        )


def _run(estimator, X):
    """Fit a clone by SMC that keeps a single draw: only the weights are needed."""
    if not (isinstance(estimator.sampler, str) and estimator.sampler == "auto"):
        estimator._resolved("sampler")  # refuses unknown names
    sampler = estimator.sampler if isinstance(estimator.sampler, SMC) else SMC()
    estimator = clone(estimator).set_params(
        sampler=clone(sampler),
        n_draws=1,
        store_labels=False,
        point_estimate="last",
        warm_start=False,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # without the name of the model
        return estimator.fit(X)


def _std(values):
    """Standard deviation between chains; NaN for one."""
    return np.std(values, ddof=1) if len(values) > 1 else np.nan


def _log_mean(log_values):
    """Log of the mean of the exponentials, and its standard error."""
    values = np.exp(log_values - np.max(log_values))
    mean = values.mean()
    return np.max(log_values) + np.log(mean), _std(values) / np.sqrt(len(values)) / mean
