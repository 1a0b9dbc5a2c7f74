"""Draw partitions from the priors and data given partitions; small cases for enumeration."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.stats import invwishart

from reference.likelihoods import (
    LOG_LIKELIHOODS,
    LOG_MARGINALS,
    PARENTS,
    as_matrix,
    pyclone_shares,
    pyclone_states,
    von_mises_fisher_grid,
)

NAN = np.nan


def _draw_categories(weights, rng):
    """One category per row of unnormalised weights, shape (..., k); never one of weight 0."""
    cumulative = np.cumsum(weights, axis=-1)
    u = rng.random(cumulative.shape[:-1]) * cumulative[..., -1]
    return (u[..., None] >= cumulative).sum(axis=-1)


def simulate_partitions(
    prior,
    n_samples,
    size,
    rng,
    *,
    concentration,
    discount=0.0,
    n_components=None,
    n_components_prior=None,
):
    """Independent draws by the sequential rule of the prior (Chinese restaurant and kin).

    Parameters
    ----------
    prior : {"dp", "pitman_yor", "finite", "mfm"}
    n_samples, size : int
        Items in a partition, number of partitions.
    rng : numpy.random.Generator
    concentration : float or ndarray of shape (size,)
        The total over components where `prior` is "finite", of each where it is "mfm".
    discount, n_components
        As in `log_eppf`.
    n_components_prior : {"poisson", "geometric"}

    Returns
    -------
    labels : ndarray of shape (size, n_samples), dtype=int64
        Canonical.
    """
    concentration = np.broadcast_to(concentration, size)
    rows = np.arange(size)
    labels = np.zeros((size, n_samples), dtype=np.int64)
    counts = np.zeros((size, n_samples + 1))
    counts[:, 0] = 1
    n_clusters = np.ones(size, dtype=np.int64)
    if prior == "mfm":
        poisson = n_components_prior == "poisson"
        n_components = 1 + rng.poisson(1.0, size) if poisson else rng.geometric(0.1, size)
        prior, concentration = "finite", concentration * n_components
    for i in range(1, n_samples):
        if prior == "dp":
            join, fresh = counts, concentration
        elif prior == "pitman_yor":
            join, fresh = counts - discount, concentration + discount * n_clusters
        elif prior == "finite":
            a = concentration / n_components
            join, fresh = counts + a[:, None], (n_components - n_clusters) * a
        else:
            raise ValueError(f"unknown prior {prior!r}; known: dp, pitman_yor, finite, mfm")
        weights = np.where(counts > 0, join, 0.0)
        weights[rows, n_clusters] = fresh
        labels[:, i] = _draw_categories(weights, rng)
        counts[rows, labels[:, i]] += 1
        n_clusters = np.maximum(n_clusters, labels[:, i] + 1)
    return labels


def _gaussian(
    rng,
    labels,
    n_features,
    *,
    mean,
    mean_precision,
    scale,
    df=None,
    covariance_type="full",
    n_parents=None,
):
    size, n = labels.shape
    mean = np.broadcast_to(np.asarray(mean, dtype=float), n_features)
    z_mean, z = rng.standard_normal((2, size, n, n_features))
    if covariance_type == "diag":
        shape = (size, n, n_features)
        variance = np.asarray(scale) / 2 / rng.standard_gamma(np.asarray(df) / 2, shape)
        root = np.sqrt(variance)
        centre = mean + root / np.sqrt(mean_precision) * z_mean
        return _rows(centre, labels) + _rows(root, labels) * z
    if covariance_type == "sparse":
        variance = np.asarray(scale) / 2 / rng.standard_gamma(df / 2, (size, n, n_features))
        system = np.tile(np.eye(n_features), (size, n, 1, 1))
        for d, others in PARENTS.items():
            slopes = rng.standard_normal((size, n, len(others)))
            system[:, :, d, others] = -slopes * np.sqrt(variance[:, :, d, None] / scale[others])
        root = np.linalg.inv(system) * np.sqrt(variance)[:, :, None]
        centre = mean + np.einsum("skij,skj->ski", root, z_mean) / np.sqrt(mean_precision)
        return _rows(centre, labels) + np.einsum("skij,skj->ski", _rows(root, labels), z)
    if covariance_type == "spherical":
        variance = np.asarray(scale) / 2 / rng.standard_gamma(df / 2, (size, n, 1))
        root = np.sqrt(variance)
        centre = mean + root / np.sqrt(mean_precision) * z_mean
        return _rows(centre, labels) + _rows(root, labels) * z
    scale = as_matrix(scale, n_features)
    if covariance_type == "tied":
        root = np.linalg.cholesky(scale)
        centre = mean + z_mean @ root.T / np.sqrt(mean_precision)
        return _rows(centre, labels) + z @ root.T
    covariance = invwishart.rvs(df, scale, size=size * n, random_state=rng)
    root = np.linalg.cholesky(covariance.reshape(size, n, n_features, n_features))
    centre = mean + np.einsum("skij,skj->ski", root, z_mean) / np.sqrt(mean_precision)
    return _rows(centre, labels) + np.einsum("skij,skj->ski", _rows(root, labels), z)


def _rows(params, labels):
    """The parameters of each item's block: params (size, n_blocks, ...), labels (size, n)."""
    return params[np.arange(len(labels))[:, None], labels]


def _bernoulli(rng, labels, n_features, *, a, b):
    probability = _rows(rng.beta(a, b, (*labels.shape, n_features)), labels)
    return (rng.random(probability.shape) < probability).astype(float)


def _categorical(rng, labels, n_features, *, concentration, n_categories):
    X = np.empty((*labels.shape, n_features))
    for d, n_codes in enumerate(np.broadcast_to(n_categories, n_features)):
        probabilities = rng.dirichlet([concentration] * n_codes, size=labels.shape)
        X[:, :, d] = _draw_categories(_rows(probabilities, labels), rng)
    return X


def _multinomial(rng, labels, n_features, *, concentration, totals):
    weights = np.broadcast_to(np.asarray(concentration, dtype=float), n_features)
    probabilities = _rows(rng.dirichlet(weights, size=labels.shape), labels)
    return rng.multinomial(totals, probabilities).astype(float)


def _negative_binomial(rng, labels, n_features, *, shape, rate, dispersion):
    r = 1 / np.broadcast_to(np.asarray(dispersion, dtype=float), n_features)
    k = rate + shape / r
    p = rng.beta(1 + k * r, k * shape / rate, (*labels.shape, n_features))
    return rng.negative_binomial(r, _rows(p, labels)).astype(float)


def _poisson(rng, labels, n_features, *, shape, rate):
    mean = rng.gamma(shape, 1 / np.asarray(rate), (*labels.shape, n_features))
    return rng.poisson(_rows(mean, labels)).astype(float)


GRID_SD = 0.8


def log_normal_on_grid(X, grid):
    """Each column a block of its own, normal about a point of the grid; NaN is missing."""
    gaps = (np.asarray(X)[:, :, None] - grid) / GRID_SD
    return np.nan_to_num(-0.5 * gaps**2 - np.log(GRID_SD * np.sqrt(2 * np.pi)))


def draw_normal_on_grid(theta, rng):
    return rng.normal(theta, GRID_SD)


def _grid(rng, labels, n_features, *, log_likelihood, grid, log_weights, sample):
    weights = np.broadcast_to(np.exp(log_weights), (*labels.shape, n_features, len(grid)))
    theta = np.asarray(grid)[_draw_categories(weights, rng)]
    return sample(_rows(theta, labels), rng)


PYCLONE_KINDS = np.array([[2, 1, 1, 1.0], [2, 0, 1, 0.6], [1, 1, 2, 0.8], [2, 1, 1, 0.7]])


def _pyclone(rng, labels, n_features, *, depth=80, **params):
    """Copy numbers and tumour contents are given, and alike in every fourth row."""
    size, n = labels.shape
    n_tumours, grid = n_features // 6, np.linspace(0, 1, params["n_grid"])
    phi = _rows(rng.choice(grid, (size, n, n_tumours)), labels)
    X = np.empty((size, n, n_tumours, 6))
    for i in range(n):
        for d in range(n_tumours):
            kind = PYCLONE_KINDS[(i + d) % len(PYCLONE_KINDS)]
            pairs = sorted(pyclone_states(*kind[:3].astype(int), params["genotype_prior"]))
            shares = [pyclone_shares(kind, c, phi[:, i, d], params["error_rate"]) for c in pairs]
            xi = np.array(shares)[rng.integers(len(pairs), size=size), np.arange(size)]
            if params["density"] == "beta_binomial":
                xi = rng.beta(params["precision"] * xi, params["precision"] * (1 - xi))
            X[:, i, d, 1] = rng.binomial(depth, xi)
            X[:, i, d, 2:] = kind
    X[..., 0] = depth - X[..., 1]
    return X.reshape(size, n, n_features)


def missing_counts(missing):
    """Where a row has NaN if these mutations are missing in these samples, (n, n_samples)."""
    return np.kron(missing, [[1, 1, 0, 0, 0, 0]]).astype(bool)


def _relational(rng, labels, n_features, *, a, b, directed=False, degree_concentration=None):
    size, n = labels.shape
    if degree_concentration is not None:
        return _degree_corrected(rng, labels, a, b, degree_concentration, directed)
    probability = rng.beta(a, b, (size, n, n))
    links = rng.random((size, n, n))
    if not directed:  # one probability for the blocks k <= l, one link for the items i < j
        probability, links = (
            np.triu(M) + np.triu(M, 1).transpose(0, 2, 1) for M in (probability, links)
        )
    rows = np.arange(size)[:, None, None]
    A = (links < probability[rows, labels[:, :, None], labels[:, None, :]]).astype(float)
    A[:, np.arange(n), np.arange(n)] = 0
    return A


def _degree_corrected(rng, labels, a, b, gamma, directed):
    """Numbers of links; those of nodes with themselves on the diagonal."""
    size, n = labels.shape
    together = labels[:, :, None] == labels[:, None, :]
    # log Gamma(gamma) by Gamma(gamma + 1) U^(1 / gamma), which a small gamma does not make 0 / 0.
    shape = (1 + directed, size, n)
    parts = np.log(rng.gamma(gamma + 1, size=shape)) + np.log(rng.random(shape)) / gamma
    parts = np.exp(parts - np.where(together, parts[:, :, None], -np.inf).max(axis=3))
    # Each divided by the mean of its cluster: n_k times Dirichlet(gamma, ..., gamma).
    parts *= together.sum(axis=2) / np.einsum("sij,tsj->tsi", together, parts)
    rates = rng.gamma(a, 1 / b, size=(size, n, n))
    if not directed:
        rates = np.triu(rates) + np.triu(rates, 1).transpose(0, 2, 1)
    rows = np.arange(size)[:, None, None]
    mean = rates[rows, labels[:, :, None], labels[:, None, :]]
    mean = mean * parts[0][:, :, None] * parts[-1][:, None, :]
    if directed:
        return rng.poisson(mean).astype(float)
    A = np.triu(rng.poisson(mean), 1).astype(float)
    items = np.arange(n)
    A = A + A.transpose(0, 2, 1)
    A[:, items, items] = rng.poisson(mean[:, items, items] / 2)
    return A


def _von_mises_fisher(rng, labels, n_features, *, concentration, spread):
    """The angle to the mean from a table of its distribution function, then any direction at right
    angles to the mean."""
    size, n = labels.shape
    kappa = rng.choice(von_mises_fisher_grid(concentration, spread), (size, n))
    mean = rng.standard_normal((size, n, n_features))
    mean /= np.sqrt((mean**2).sum(axis=2, keepdims=True))
    kappa, mean = _rows(kappa, labels), _rows(mean, labels)
    angle, u = np.empty((2, size, n))
    u[:] = rng.random((size, n))
    for k in np.unique(kappa):
        # The angle is of the size (D / k)^(1/2).
        widest = min(np.pi, 12 * np.sqrt(n_features / k))
        grid = np.linspace(0, widest, 20_001)
        density = np.sin(grid) ** (n_features - 2) * np.exp(k * (np.cos(grid) - 1))
        mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
        angle[kappa == k] = np.interp(u[kappa == k] * mass[-1], mass, grid)
    across = rng.standard_normal(mean.shape)
    across -= (across * mean).sum(axis=2, keepdims=True) * mean
    across /= np.sqrt((across**2).sum(axis=2, keepdims=True))
    return np.cos(angle)[..., None] * mean + np.sin(angle)[..., None] * across


_SIMULATORS = {
    "gaussian": _gaussian,
    "gaussian_diag": partial(_gaussian, covariance_type="diag"),
    "gaussian_spherical": partial(_gaussian, covariance_type="spherical"),
    "gaussian_tied": partial(_gaussian, covariance_type="tied"),
    "gaussian_sparse": partial(_gaussian, covariance_type="sparse"),
    "bernoulli": _bernoulli,
    "categorical": _categorical,
    "multinomial": _multinomial,
    "negative_binomial": _negative_binomial,
    "poisson": _poisson,
    "grid": _grid,
    "pyclone": _pyclone,
    "relational": _relational,
    "relational_directed": partial(_relational, directed=True),
    "von_mises_fisher": _von_mises_fisher,
}


def simulate_data(likelihood, labels, rng, *, n_features=None, missing=None, **hyper):
    """Draw X given partitions: parameters from their prior, then rows.

    Parameters
    ----------
    likelihood : str
        As in `log_likelihood`.
    labels : ndarray of int, shape (n,) or (size, n), values in 0..n-1
    rng : numpy.random.Generator
    n_features : int
        Not used by relational likelihoods.
    missing : ndarray of bool, shape of one X, default=None
        Where to put NaN.
    **hyper
        As in the log marginal; multinomial also needs `totals`, the sum of each row, shape (n,).

    Returns
    -------
    X : ndarray of shape labels.shape + (n_features,), relational: labels.shape + (n,)
    """
    labels = np.asarray(labels)
    batch = np.atleast_2d(labels)
    X = _SIMULATORS[likelihood](rng, batch, n_features, **hyper)
    if missing is not None:
        X[:, missing] = NAN
    return X.reshape(*labels.shape, -1)


# Settings of each prior for enumeration, keywords of `log_eppf`. The finite one has fewer
# components than items, so that partitions of probability 0 exist.
PRIOR_CASES = {
    "dp": ("dp", {"concentration": 1.3}),
    "pitman_yor": ("pitman_yor", {"concentration": 0.8, "discount": 0.35}),
    "pitman_yor_negative": ("pitman_yor", {"concentration": -0.2, "discount": 0.5}),
    "finite": ("finite", {"concentration": 2.4, "n_components": 3}),
    "mfm": ("mfm", {"concentration": 0.8, "n_components_prior": "poisson"}),
}


class EnumerationCase(NamedTuple):
    """Five rows whose posterior over the 52 partitions is neither flat nor concentrated.

    Under each prior with concentration near 1 a hyperparameter wrong by 10 % (means: by 0.1) has a
    chi-squared noncentrality above 50 at 20,000 draws; `test_reference.py` checks it.
    """

    X: np.ndarray
    params: dict  # of the likelihood object; keywords of `reference` as well
    reference: Callable  # log_marginal(X_subset, **params); relational: (A, labels, **params)


_CASES = {
    "gaussian": (
        [[1.8, 1.0], [0.1, -1.0], [-0.3, -1.4], [2.1, 0.4], [0.0, -1.2]],
        {
            "mean": [0.3, -0.5],
            "mean_precision": 0.7,
            "df": 4.5,
            "scale": [[1.2, 0.4], [0.4, 0.8]],
        },
    ),
    "gaussian_diag": (
        [[-1.5, -2.7], [NAN, 0.2], [-0.8, 0.5], [-0.1, NAN], [-1.2, 3.6]],
        {
            "mean": [0.3, -0.5],
            "mean_precision": 0.6,
            "df": 3.5,
            "scale": [1.5, 0.6],
            "covariance_type": "diag",
        },
    ),
    "bernoulli": (
        [[1, 1, 1], [NAN, 1, 1], [1, 0, 1], [1, NAN, 1], [0, 1, 1]],
        {"a": 0.6, "b": 1.4},
    ),
    "categorical": (
        [[2, 1], [NAN, 2], [2, 1], [0, NAN], [0, 2]],
        {"concentration": 0.7, "n_categories": [3, 4]},
    ),
    "multinomial": (
        [[2, 0, 2], [2, 0, 4], [1, 0, 2], [5, 0, 0], [0, 2, 0]],
        {"concentration": 0.8},
    ),
    "poisson": (
        [[8, 11], [NAN, 10], [11, 5], [7, NAN], [4, 7]],
        {"shape": 1.5, "rate": 0.4},
    ),
    "relational": (
        [[0, 1, 1, 1, 1], [1, 0, 1, NAN, 0], [1, 1, 0, 0, 1], [1, NAN, 0, 0, 1], [1, 0, 1, 1, 0]],
        {"a": 0.6, "b": 0.9, "directed": False},
    ),
    "relational_directed": (
        [[0, 1, 0, 1, 1], [1, 0, 1, 1, 1], [1, 1, 0, 0, 1], [1, NAN, 1, 0, 0], [1, 1, 1, 0, 0]],
        {"a": 0.6, "b": 0.9, "directed": True},
    ),
    "grid": (
        [[3.4, -0.3], [NAN, 0.8], [1.8, 3.3], [1.7, NAN], [-0.3, 1.9]],
        {
            "log_likelihood": log_normal_on_grid,
            "grid": [-2.0, -1.1, -0.3, 0.4, 1.3, 2.5],
            "log_weights": [
                [-2.0, -1.0, -4.0, -0.5, -1.5, -3.0],
                [0.0, -3.0, -1.0, -2.5, -0.5, -4.0],
            ],
            "sample": draw_normal_on_grid,
        },
    ),
    # Genotypes of one, two and three states.
    "pyclone": (
        [
            [32, 48, 2, 1, 1, 1.0, 36, 44, 2, 0, 1, 0.6],
            [35, 45, 2, 0, 1, 0.6, NAN, NAN, 1, 1, 2, 0.8],
            [72, 8, 1, 1, 2, 0.8, 63, 17, 2, 1, 1, 0.7],
            [73, 7, 2, 1, 1, 0.7, 31, 49, 2, 1, 1, 1.0],
            [32, 48, 2, 1, 1, 1.0, 45, 35, 2, 0, 1, 0.6],
        ],
        {
            "density": "beta_binomial",
            "precision": 20.0,
            "error_rate": 0.2,
            "genotype_prior": "major_copy_number",
            "n_grid": 11,
        },
    ),
    "negative_binomial": (
        [[30, 90], [NAN, 80], [35, 3], [2, NAN], [1, 4]],
        {"shape": 1.5, "rate": 0.1, "dispersion": 0.4},
    ),
    # Rows of any length.
    "von_mises_fisher": (
        [[1.5, 1.3, 0.5], [1.6, 0.9, 0.7], [3.7, 0.0, -0.1], [3.6, -0.3, -0.1], [3.4, 0.1, 0.6]],
        {"concentration": 2.0, "spread": 4.0},
    ),
}

LIKELIHOOD_NAMES = tuple(_CASES)

# Further structures of Gaussian covariances, tested in likelihoods/test_covariances.py.
_CASES |= {
    "gaussian_spherical": (
        [[1.3, 1.6], [NAN, -0.9], [-0.7, -1.4], [1.6, NAN], [0.4, -0.6]],
        {
            "mean": [0.3, -0.5],
            "mean_precision": 0.6,
            "df": 3.5,
            "scale": 1.7,
            "covariance_type": "spherical",
        },
    ),
    "gaussian_tied": (
        [[1.8, 1.0], [0.1, -1.0], [-0.3, -1.4], [2.1, 0.4], [0.0, -1.2]],
        {
            "mean": [0.3, -0.5],
            "mean_precision": 0.3,
            "scale": [[0.9, 0.3], [0.3, 0.7]],
            "covariance_type": "tied",
        },
    ),
    "gaussian_sparse": (
        [
            [1.0, 1.9, 0.2],
            [-1.0, 0.1, -0.9],
            [-1.4, -0.3, -0.2],
            [0.9, 2.3, 1.6],
            [-0.8, 0.3, 0.3],
        ],
        {
            "mean": [0.3, -0.5, 0.1],
            "mean_precision": 0.4,
            "df": 2.5,
            "scale": np.array([0.9, 0.7, 1.1]),
            "covariance_type": "sparse",
            "n_parents": 2,
        },
    ),
}
COVARIANCE_NAMES = tuple(_CASES)[len(LIKELIHOOD_NAMES) :]


def enumeration_case(likelihood_name):
    """The small data set, keywords and reference of a likelihood.

    Parameters
    ----------
    likelihood_name : str
        One of LIKELIHOOD_NAMES.

    Returns
    -------
    case : EnumerationCase
        X is a fresh float array, params a fresh dict with covariance_type or directed where the
        default of the estimator's object is another one.
    """
    X, params = _CASES[likelihood_name]
    reference = {**LOG_MARGINALS, **LOG_LIKELIHOODS}[likelihood_name]
    return EnumerationCase(np.array(X, dtype=float), dict(params), reference)
