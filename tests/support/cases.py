"""What the tests of the estimators fit: every likelihood on rows simulated from it, every prior.

The names are those of `reference`, so that any result can be compared with it.
"""

from typing import NamedTuple

import numpy as np
from reference.predictive import log_densities, log_weights
from reference.simulate import (
    LIKELIHOOD_NAMES,
    PRIOR_CASES,
    enumeration_case,
    missing_counts,
    simulate_data,
)
from scipy.special import logsumexp

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Poisson,
    PyClone,
    Relational,
    VonMisesFisher,
)

CLASSES = {
    "gaussian": Gaussian,
    "gaussian_diag": Gaussian,
    "bernoulli": Bernoulli,
    "categorical": Categorical,
    "multinomial": Multinomial,
    "negative_binomial": NegativeBinomial,
    "poisson": Poisson,
    "grid": Grid,
    "pyclone": PyClone,
    "relational": Relational,
    "relational_directed": Relational,
    "von_mises_fisher": VonMisesFisher,
}
NAMES = LIKELIHOOD_NAMES
# Rows of these cases have missing entries. Others may have some (test_gaps.py).
WITH_NAN = (
    "gaussian_diag",
    "bernoulli",
    "categorical",
    "negative_binomial",
    "poisson",
    "grid",
    "pyclone",
    "relational",
    "relational_directed",
)
SPARSE = ("bernoulli", "multinomial", "relational", "relational_directed", "von_mises_fisher")
PRIORS = tuple(PRIOR_CASES)

# So that a fit takes milliseconds.
FAST = {"n_warmup": 10, "n_draws": 12, "n_chains": 2, "random_state": 0}


class Case(NamedTuple):
    likelihood: object  # with its hyperparameters
    params: dict  # those, for `reference`
    X: np.ndarray
    X_new: np.ndarray  # relational: new nodes, links to the nodes of X


def fit_case(name, n_samples=18, n_new=5):
    """A likelihood and rows from three clusters; NaN where it is allowed.

    Parameters
    ----------
    name : str
        One of LIKELIHOOD_NAMES.

    Returns
    -------
    case : Case
    """
    params = enumeration_case(name).params
    rng = np.random.default_rng(LIKELIHOOD_NAMES.index(name))
    labels = np.arange(n_samples + n_new) % 3
    hyper = (
        {**params, "totals": np.arange(1, len(labels) + 1)} if name == "multinomial" else params
    )
    n_features = 2 if name in ("gaussian", "gaussian_diag", "categorical", "grid") else 4
    if name == "pyclone":
        n_features = 12
    X = simulate_data(name, labels, rng, n_features=n_features, **hyper)
    if name in WITH_NAN:
        missing = rng.random(X.shape) < 0.1
        if name == "pyclone":
            missing = missing_counts(missing[:, :2])
        X[missing | missing.T if name == "relational" else missing] = np.nan
    likelihood = CLASSES[name](**params)
    if likelihood.pairwise:
        return Case(likelihood, params, X[:n_samples, :n_samples], X[n_samples:, :n_samples])
    return Case(likelihood, params, X[:n_samples], X[n_samples:])


def make_estimator(likelihood, prior="dp", *, resampled=False, **params):
    """An estimator with the settings of one of PRIORS, that runs for milliseconds.

    Parameters
    ----------
    likelihood : Likelihood
    prior : str
    resampled : bool
        Whether to leave the concentration to its Gamma prior.
    **params
        Of the estimator, over the above.
    """
    _, settings = PRIOR_CASES[prior]
    if resampled:
        settings = {**settings, "concentration": None}
    cls = FiniteMixture if prior in ("finite", "mfm") else DPMixture
    if prior == "mfm":
        settings = {"n_components": None, **settings}
    # From a bad start Gibbs moves a little in every iteration: few draws then differ enough to
    # tell things apart.
    settings = {"sampler": "gibbs", "init": "single", **FAST, **settings}
    return cls(likelihood=likelihood, **{**settings, **params})


def prior_params(estimator, concentration):
    """Keywords of `reference.priors.log_eppf` at a concentration."""
    name = {"mfm": "n_components_prior", "finite": "n_components"}.get(
        prior_name(estimator), "discount"
    )
    return {"concentration": concentration, name: getattr(estimator, name)}


def prior_name(estimator):
    """The prior of an estimator, as `reference` calls it."""
    if not isinstance(estimator, FiniteMixture):
        return "pitman_yor"
    return "mfm" if estimator.n_components is None else "finite"


def reference_scores(estimator, case, name, X_new, draws=slice(None)):
    """log of the mean over draws of the predictive density, as `score_samples` gives it."""
    labels = estimator.label_samples_[:, draws].reshape(-1, len(case.X)).astype(int)
    concentrations = estimator.concentration_samples_[:, draws].ravel()
    terms, known = [], {}
    for z, concentration in zip(labels, concentrations, strict=True):
        if z.tobytes() not in known:
            known[z.tobytes()] = log_densities(case.X, z, X_new, name, case.params)
        weights = log_weights(z, prior_name(estimator), prior_params(estimator, concentration))
        terms.append(logsumexp(known[z.tobytes()] + weights, axis=1))
    return logsumexp(terms, axis=0) - np.log(len(terms))
