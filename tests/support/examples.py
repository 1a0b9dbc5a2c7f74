"""Examples of every registered likelihood: pairs (likelihood, X) for the laws that all obey."""

import numpy as np
import scipy.sparse as sp

from skdpm.features.likelihoods import LFRM, LinearGaussian, Subclones
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    PyClone,
    Relational,
    Subspace,
    VonMisesFisher,
)


def gaussian():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3)) * [1.0, 2.0, 0.5] + 1.0
    yield Gaussian(), X
    yield Gaussian(mean=0.5, mean_precision=0.3, df=4.5, scale=[1.0, 2.0, 0.7]), X
    yield Gaussian(), X[:, :1]
    diag = {"covariance_type": "diag"}
    yield Gaussian(**diag), X
    yield Gaussian(mean=0.5, mean_precision=0.3, df=0.5, scale=[1.0, 2.0, 0.7], **diag), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    yield Gaussian(**diag), Y
    spherical = {"covariance_type": "spherical"}
    yield Gaussian(**spherical), Y
    yield Gaussian(mean=0.5, mean_precision=0.3, df=0.5, scale=1.3, **spherical), X
    tied = {"covariance_type": "tied"}
    yield Gaussian(**tied), X
    yield Gaussian(mean=0.5, mean_precision=0.3, scale=[1.0, 2.0, 0.7], **tied), X
    sparse = {"covariance_type": "sparse"}
    wide = X @ rng.standard_normal((3, 5)) + rng.standard_normal((12, 5))
    yield Gaussian(n_parents=2, **sparse), wide
    yield Gaussian(mean=0.5, mean_precision=0.3, df=4.5, scale=[1.0, 2.0, 0.7], **sparse), X


def subspace():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((12, 3)) * [1.0, 2.0, 0.5] + 1.0
    yield Subspace(n_axes=2), X
    yield Subspace(n_axes=1, mean=0.5, mean_precision=0.3, df=1.5, scale=0.7), X
    yield Subspace(), X


def bernoulli():
    rng = np.random.default_rng(0)
    X = (rng.random((12, 3)) < 0.4).astype(np.float64)
    yield Bernoulli(a=0.8, b=1.7), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    yield Bernoulli(), Y
    yield Bernoulli(a=[0.4, 2.0, 1.0], b=1.3), X


def categorical():
    rng = np.random.default_rng(0)
    X = rng.integers(0, [2, 3, 4], size=(12, 3)).astype(np.float64)
    yield Categorical(concentration=0.7), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    yield Categorical(n_categories=[2, 4, 5]), Y
    yield Categorical(concentration=[0.4, 2.0, 1.0]), X


def multinomial():
    rng = np.random.default_rng(0)
    X = rng.multinomial([6] * 6 + [1] * 5 + [0], [0.5, 0.3, 0.1, 0.1]).astype(np.float64)
    yield Multinomial(concentration=0.8), X
    yield Multinomial(), X
    yield Multinomial(concentration=3.0, base=[1.0, 2.0, 0.5, 0.5]), X
    yield Multinomial(concentration=0.3), sp.csr_array(X[::-1] * rng.integers(1, 4, size=(12, 1)))


def negative_binomial():
    rng = np.random.default_rng(0)
    means = np.array([0.5, 3.0, 20.0])
    X = rng.poisson(means * rng.gamma(1.5, 1 / 1.5, size=(12, 3))).astype(np.float64)
    yield NegativeBinomial(), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    yield NegativeBinomial(shape=0.7, rate=0.2, dispersion=[0.3, 2.0, 1e-3]), Y
    # One column has large counts.
    yield NegativeBinomial(shape=2.0, rate=1e-4, dispersion=0.5), X * [1.0, 1.0, 1e3]


def poisson():
    rng = np.random.default_rng(0)
    X = rng.poisson([0.5, 3.0, 20.0], size=(12, 3)).astype(np.float64)
    yield Poisson(), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    yield Poisson(shape=0.7, rate=0.2), Y
    # One column has counts beyond the table of log Gamma.
    yield Poisson(shape=2.0, rate=1e-6), X * [1.0, 1.0, 1e5]


def von_mises_fisher():
    rng = np.random.default_rng(0)
    X = rng.normal([3.0, -1.0, 0.5], size=(12, 3)) * rng.choice([-1.0, 1.0, 2.0], (12, 1))
    yield VonMisesFisher(), X
    yield VonMisesFisher(concentration=4.0, spread=1.2), X[:, :2]
    yield VonMisesFisher(concentration=300.0), rng.normal(size=(12, 50)) + 2.0
    X = rng.poisson(0.6, size=(12, 6)).astype(np.float64)
    X[:, 0] += 1.0
    yield VonMisesFisher(spread=0.5), sp.csr_array(X)
    X[[3, 7]] = 0.0
    yield VonMisesFisher(concentration=4.0), X


def _binomial(X, grid, n):
    """Columns of counts of successes out of n, up to the coefficients; NaN marks a missing
    entry."""
    X = X[:, :, None]
    inside = (X >= 0) & (X <= n)
    counts = np.where(inside, X, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_successes = np.where(counts > 0, counts * np.log(grid), 0.0)
        log_failures = np.where(counts < n, (n - counts) * np.log1p(-grid), 0.0)
    return np.where(inside, log_successes + log_failures, np.where(np.isnan(X), 0.0, -np.inf))


def _binomial_of_30(X, grid):
    return _binomial(X, grid, 30)


def _binomial_of_3000(X, grid):
    return _binomial(X, grid, 3000)


def grid():
    rng = np.random.default_rng(0)
    yield Grid(), rng.normal(size=(12, 7))
    grid = np.linspace(0.02, 0.98, 25)
    counts = rng.binomial(30, [0.2, 0.7], size=(12, 2)).astype(np.float64)
    yield Grid(_binomial_of_30, grid, np.array([np.sin(grid), grid**2])), counts
    # Deep enough that the points of single rows exclude each other in doubles.
    counts = rng.binomial(3000, rng.choice([0.1, 0.5, 0.9], size=(12, 1)))
    yield Grid(_binomial_of_3000, np.linspace(0.0, 1.0, 301)), counts.astype(np.float64)


def pyclone():
    rng = np.random.default_rng(0)
    n = 12
    X = np.empty((n, 2, 6))
    X[..., 2:] = [[2.0, 1.0, 1.0, 1.0], [2.0, 1.0, 2.0, 0.7]]
    X[::3, 0, 3:5] = [0.0, 3.0]
    X[..., 1] = rng.binomial(40, rng.choice([0.1, 0.3, 0.5], size=(n, 1)), size=(n, 2))
    X[..., 0] = 40.0 - X[..., 1]
    yield PyClone("binomial", n_grid=21), X.reshape(n, 12).copy()
    X[[1, 4, 4], [0, 0, 1], :2] = np.nan
    X[5, 1] = np.nan
    yield (
        PyClone("beta_binomial", 60.0, 0.01, genotype_prior="total", n_grid=31),
        X.reshape(n, 12),
    )
    yield PyClone("beta_binomial", n_grid=11), X.reshape(n, 12)


def relational():
    rng = np.random.default_rng(0)
    X = (rng.random((10, 10)) < 0.4).astype(np.float64)
    yield Relational(a=0.8, b=1.3, directed=True), X
    Y = np.triu(X, 1) + np.triu(X, 1).T
    yield Relational(), Y
    Z = np.where(rng.random(Y.shape) < 0.1, np.nan, Y)
    yield Relational(b=0.6), Z + Z.T - Y
    counts = rng.poisson(0.6, X.shape).astype(np.float64)
    fixed = {"a": 0.8, "b": 1.3, "degree_concentration": 0.7}
    yield Relational(**fixed, directed=True, degree_correction=True), counts
    yield Relational(degree_correction=True), counts + counts.T
    # Multiples of 1/4, whose sums and squares have no rounding errors.
    weights = np.where(X > 0.0, rng.integers(-8, 9, X.shape) / 4.0, 0.0)
    real = Gaussian(mean=0.5, mean_precision=0.3, df=4.5, scale=1.2)
    yield Relational(a=0.8, b=1.3, directed=True, weights=real), weights
    counts = np.where(rng.random(Y.shape) < 0.1, np.nan, np.triu(Y * rng.poisson(3.0, Y.shape), 1))
    yield Relational(weights=NegativeBinomial()), counts + counts.T
    loops = counts + np.diag(rng.integers(3, size=len(X)))
    loops = np.nan_to_num(loops)
    yield Relational(degree_correction=True, weights=NegativeBinomial()), loops + loops.T
    yield Relational(**fixed, directed=True, degree_correction=True, weights=real), weights


def product():
    rng = np.random.default_rng(0)
    X = np.column_stack(
        [
            rng.standard_normal((12, 2)) * [1.0, 2.0],
            rng.integers(0, [2, 3], size=(12, 2)),
            rng.poisson([0.7, 5.0], size=(12, 2)),
            rng.random((12, 2)) < 0.4,
        ]
    ).astype(np.float64)
    parts = {
        "num": Gaussian(),
        "cat": Categorical(),
        "counts": Poisson(),
        "flags": Bernoulli(),
    }
    columns = {"num": [1, 0], "cat": slice(2, 4), "counts": [4, 5], "flags": [7]}
    yield Product([(name, part, columns[name]) for name, part in parts.items()]), X
    parts["num"] = Gaussian(0.5, 0.3, 0.5, [1.0, 2.0], covariance_type="diag")
    yield Product([(name, parts[name], columns[name]) for name in ("counts", "num")]), X
    Y = X.copy()
    Y[rng.random(Y.shape) < 0.3] = np.nan
    parts["num"] = Gaussian(covariance_type="diag")
    parts["cat"] = Categorical(concentration=0.7, n_categories=4)
    yield Product([(name, part, columns[name]) for name, part in parts.items()]), Y


def lfrm():
    rng = np.random.default_rng(0)
    X = (rng.random((6, 6)) < 0.4).astype(np.float64)
    holes = np.where(rng.random((6, 6)) < 0.3, np.nan, X)
    yield LFRM(directed=True), X
    yield LFRM(directed=True, bias=0.3, weight_precision=0.5), holes
    upper = np.triu(holes, 1)
    yield LFRM(weight_precision=0.7), upper + upper.T
    upper = np.triu(X, 1)
    yield LFRM(bias=0.0), upper + upper.T


def linear_gaussian():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 3))
    missing = X.copy()
    missing[[0, 2, 2], [1, 0, 2]] = np.nan
    missing[4] = np.nan
    yield LinearGaussian(noise_precision=3.0, component_precision=0.5), X
    yield LinearGaussian(noise_precision=0.7, component_precision=2.0, intercept=False), missing
    yield LinearGaussian(), 10.0 + missing


def subclones():
    rng = np.random.default_rng(0)
    X = np.empty((6, 3, 6))
    X[..., 2:] = [[2.0, 1.0, 1.0, 1.0], [2.0, 0.0, 2.0, 0.6], [1.0, 1.0, 3.0, 0.9]]
    X[..., 1] = rng.binomial(30, rng.random((6, 3)) / 2)
    X[..., 0] = 30.0 - X[..., 1]
    yield Subclones(), X.reshape(6, 18).copy()
    X[[1, 4, 4], [0, 0, 1], :2] = np.nan
    X[5] = np.nan
    yield (
        Subclones("beta_binomial", 25.0, error_rate=0.01, genotype_prior="total"),
        X.reshape(6, 18),
    )
    yield Subclones("beta_binomial", prevalence_concentration=0.5), X.reshape(6, 18)


EXAMPLES = {
    Gaussian: gaussian,
    Subspace: subspace,
    Bernoulli: bernoulli,
    Categorical: categorical,
    Multinomial: multinomial,
    NegativeBinomial: negative_binomial,
    Poisson: poisson,
    VonMisesFisher: von_mises_fisher,
    Grid: grid,
    PyClone: pyclone,
    Relational: relational,
    Product: product,
    LFRM: lfrm,
    LinearGaussian: linear_gaussian,
    Subclones: subclones,
}


def examples_of(cls):
    """Pairs (likelihood, X) of a class."""
    if cls not in EXAMPLES:
        raise KeyError(f"tests/support/examples.py has no examples of {cls.__name__}")
    return EXAMPLES[cls]()
