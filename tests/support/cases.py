"""What the tests of the estimators fit: every likelihood on rows simulated from it, every prior.

The names are those of `reference`, so that any result can be compared with it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import strategies as st
from reference import cluster_params
from reference.predictive import log_densities, log_weights
from reference.simulate import (
    COVARIANCE_NAMES,
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
    StudentTails,
    VonMisesFisher,
)

NAN, INF = np.nan, np.inf

NOT_A_NUMBER = ["1", [1.0], True, 1j, NAN, INF, -INF]
NOT_POSITIVE = [0.0, -1.0, *NOT_A_NUMBER]  # None: learned
PSEUDO_COUNTS = [*NOT_POSITIVE, [1.0], [1.0, -1.0], [1.0, NAN], ["a", "b"], np.eye(2)]
HYPERPRIORS = [1, "no such", [("a", (1, 1))], {"no such": (1, 1)}]
NUMBERS = np.random.default_rng(0).normal(size=(8, 2))
COUNTS = np.arange(12).reshape(4, 3)

# Columns that differ by less than 1e-150 are refused, as their variance underflows.
number = st.floats(-1e3, 1e3).map(lambda x: x if abs(x) > 1e-100 else 0.0)
count = st.integers(0, 40).map(float)
bit = st.sampled_from([0.0, 1.0])


def or_missing(entries):
    return st.one_of(entries, st.just(NAN))


@dataclass(frozen=True, kw_only=True)
class Case:
    """What tests know of a likelihood, besides its five rows in `reference.simulate`."""

    cls: type
    good: np.ndarray  # some rows of its domain
    bad_values: list = field(default_factory=list)  # of an entry, besides infinities
    bad_params: dict  # wrong values of each parameter
    cluster_params: Callable  # their reference, see `reference.cluster_params`
    entries: st.SearchStrategy  # of rows that must be accepted
    columns: tuple = (1, 4)  # fewest and most columns of such rows
    finish: Callable = np.copy  # makes rows of such entries
    n_features: int = 4  # of the rows of `fit_case` ...
    has_gaps: bool = False  # ... and whether some of their entries are missing
    is_sparse: bool = False  # whether it takes sparse rows
    is_positive: bool = False  # whether scikit-learn must pass no negative values
    level: float = None  # log density of its five rows as noise; None: no law of noise


def symmetric(X):
    return np.triu(X) + np.triu(X, 1).T


def with_copy_numbers(X):
    X[:, 2:] = [2.0, 1.0, 1.0, 1.0]
    return X


RELATIONAL = {
    "a": NOT_POSITIVE,
    "b": NOT_POSITIVE,
    "directed": [None, 1, "yes"],
    "degree_correction": [None, 1, "yes"],
    "degree_concentration": NOT_POSITIVE,
    "weights": ["reals", 1, [1.0], Poisson(), Gaussian(tails="t")],
    "hyperpriors": HYPERPRIORS,
}

CASES = {
    "gaussian": Case(
        cls=Gaussian,
        good=NUMBERS,
        bad_params={
            "mean": ["a", NAN, INF, [0.0], [0.0, NAN], [0.0] * 3, np.zeros((2, 2)), 1j],
            "mean_precision": NOT_POSITIVE,
            "df": [1.0, 0.5, *NOT_POSITIVE],
            "scale": [
                *("a", 0.0, -1.0, NAN, INF, [1.0], [1.0, 0.0], [1.0, NAN]),
                *(np.eye(3), -np.eye(2), np.zeros((2, 2)), np.ones((1, 2, 2))),
                *([[1.0, 2.0], [2.0, 1.0]], [[1.0, 0.5], [0.4, 1.0]], np.full((2, 2), NAN)),
                *([["a", "b"], ["c", "d"]], [[1.0, 2.0], [1.0]]),
            ],
            "covariance_type": ["band", None, 1],
            "n_parents": [0, 17, 2.0, "4", None],
            "hyperpriors": HYPERPRIORS,
            "tails": [1, "heavy", ["t"], StudentTails],
        },
        cluster_params=cluster_params.gaussian,
        entries=number,
        n_features=2,
        level=-4.0,
    ),
    "bernoulli": Case(
        cls=Bernoulli,
        good=np.eye(4)[:, :3],
        bad_values=[2.0, -1.0, 0.5, 1e300, 5e-324],
        bad_params={"a": PSEUDO_COUNTS, "b": PSEUDO_COUNTS, "hyperpriors": HYPERPRIORS},
        cluster_params=cluster_params.bernoulli,
        entries=or_missing(bit),
        has_gaps=True,
        is_sparse=True,
        level=-2.5,
    ),
    "categorical": Case(
        cls=Categorical,
        good=COUNTS % 3,
        bad_values=[-1.0, 0.5, 1e300, 1e10, 2.0**31, -5e-324],
        bad_params={
            "concentration": PSEUDO_COUNTS,
            "n_categories": [
                *(0, -1, 2.0, "3", True, [2], [2, 2, 2], [2, 0], [2.0, 2.0], [[2, 2]], "ab"),
            ],
            "handle_unknown": ["ignore", None, True, ["missing"]],
            "reads_numbers": ["values", None, 1],
            "hyperpriors": HYPERPRIORS,
        },
        cluster_params=cluster_params.categorical,
        entries=or_missing(st.integers(0, 4).map(float)),
        n_features=2,
        has_gaps=True,
        level=-3.0,
    ),
    "multinomial": Case(
        cls=Multinomial,
        good=COUNTS,
        bad_values=[-1.0, 0.5, 1e300, -1e-300],
        bad_params={
            "concentration": NOT_POSITIVE,
            "base": [
                *("words", 1.0, True, [1.0], [1.0, 0.0, 1.0, 1.0], [NAN] * 4, ["a"] * 4),
                np.eye(4),
            ],
            "hyperpriors": HYPERPRIORS,
        },
        cluster_params=cluster_params.multinomial,
        entries=count,
        is_sparse=True,
        is_positive=True,
        level=-4.0,
    ),
    "negative_binomial": Case(
        cls=NegativeBinomial,
        good=COUNTS,
        bad_values=[-1.0, 0.5, 1e300, -1e-300],
        bad_params={
            "shape": NOT_POSITIVE,
            "rate": NOT_POSITIVE,
            "dispersion": [*NOT_POSITIVE, [1.0], [1.0, 0.0, 1.0], ["a"] * 3],
            "hyperpriors": HYPERPRIORS,
        },
        cluster_params=cluster_params.negative_binomial,
        entries=or_missing(count),
        has_gaps=True,
        is_positive=True,
        level=-9.0,
    ),
    "poisson": Case(
        cls=Poisson,
        good=COUNTS,
        bad_values=[-1.0, 0.5, 1e300, -1e-300],
        bad_params={"shape": NOT_POSITIVE, "rate": NOT_POSITIVE, "hyperpriors": HYPERPRIORS},
        cluster_params=cluster_params.poisson,
        entries=or_missing(count),
        has_gaps=True,
        is_positive=True,
        level=-6.0,
    ),
    "grid": Case(
        cls=Grid,
        good=np.arange(8).reshape(4, 2) % 3,
        bad_params={
            "log_likelihood": [1.0, "normal", np.zeros((4, 6))],
            "grid": ["a", [], 0.5, [[]], [[0.0], [1.0, 2.0]], [0.0, NAN], [0.0] * 3, [INF] * 6],
            "log_weights": [
                *("a", [], 0.0, [0.0] * 5, [[0.0] * 6] * 3),
                *([NAN] + [0.0] * 5, [INF] + [0.0] * 5, [[0.0] * 6, [-INF] * 6]),
            ],
            "sample": [1.0, "normal"],
        },
        cluster_params=cluster_params.grid,
        entries=number,
        columns=(2, 2),  # its blocks
        n_features=2,
        has_gaps=True,
    ),
    "pyclone": Case(
        cls=PyClone,
        good=np.array([[7 + i, 3 + i % 3, 2, 1, 1, 1.0] for i in range(4)]),
        bad_values=[-1.0, 0.5, 1e300, 1e9, NAN],
        bad_params={
            "density": [None, 1, "normal"],
            "precision": [*NOT_POSITIVE, 1e8],
            "error_rate": [*NOT_POSITIVE, None, 0.5],
            "genotype_prior": [None, 1, "major"],
            "n_grid": [None, 1, 10.0, "many"],
            "hyperpriors": HYPERPRIORS,
        },
        cluster_params=cluster_params.pyclone,
        entries=count,
        columns=(6, 6),
        finish=with_copy_numbers,
        n_features=12,
        has_gaps=True,
    ),
    "relational": Case(
        cls=Relational,
        good=np.ones((4, 4)),
        bad_values=[2.0, -1.0, 0.5, 1e300],
        bad_params=RELATIONAL,
        cluster_params=cluster_params.link_probabilities,
        entries=or_missing(bit),
        finish=symmetric,
        has_gaps=True,
        is_sparse=True,
    ),
    "von_mises_fisher": Case(
        cls=VonMisesFisher,
        good=NUMBERS,
        bad_params={
            "concentration": NOT_POSITIVE,
            "spread": NOT_POSITIVE,
            "hyperpriors": HYPERPRIORS,
        },
        cluster_params=cluster_params.von_mises_fisher,
        entries=st.floats(0.1, 1e3),  # no row of zeros
        columns=(2, 5),
        is_sparse=True,
    ),
}
CASES["gaussian_diag"] = replace(
    CASES["gaussian"],
    bad_params={
        **CASES["gaussian"].bad_params,
        "df": NOT_POSITIVE,
        "scale": ["a", 0.0, -1.0, NAN, INF, [1.0], [1.0, 0.0], np.eye(2)],
    },
    cluster_params=cluster_params.gaussian_diag,
    entries=or_missing(number),
    has_gaps=True,
    level=-6.0,
)
CASES["relational_directed"] = replace(
    CASES["relational"], good=np.triu(np.ones((4, 4))), finish=np.copy
)
if missing := set(LIKELIHOOD_NAMES) - set(CASES):
    raise KeyError(f"tests/support/cases.py has no Case of {', '.join(sorted(missing))}")

# Levels of noise of other covariances, whose cases are in `reference.simulate`.
LEVELS = {name: case.level for name, case in CASES.items() if case.level is not None}
LEVELS |= dict(zip(COVARIANCE_NAMES, (-5.0, -4.0, -6.0), strict=True))

NAMES = LIKELIHOOD_NAMES
SPARSE = tuple(name for name in NAMES if CASES[name].is_sparse)
PRIORS = tuple(PRIOR_CASES)

# So that a fit takes milliseconds.
FAST = {"n_warmup": 10, "n_draws": 12, "n_chains": 2, "random_state": 0}


@dataclass(frozen=True)
class FitCase:
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
    case : FitCase
    """
    params = enumeration_case(name).params
    rng = np.random.default_rng(LIKELIHOOD_NAMES.index(name))
    labels = np.arange(n_samples + n_new) % 3
    hyper = (
        {**params, "totals": np.arange(1, len(labels) + 1)} if name == "multinomial" else params
    )
    X = simulate_data(name, labels, rng, n_features=CASES[name].n_features, **hyper)
    if CASES[name].has_gaps:
        missing = rng.random(X.shape) < 0.1
        if name == "pyclone":
            missing = missing_counts(missing[:, :2])
        X[missing | missing.T if name == "relational" else missing] = np.nan
    likelihood = CASES[name].cls(**params)
    if likelihood.pairwise:
        return FitCase(likelihood, params, X[:n_samples, :n_samples], X[n_samples:, :n_samples])
    return FitCase(likelihood, params, X[:n_samples], X[n_samples:])


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
