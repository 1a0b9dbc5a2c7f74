# SPDX-License-Identifier: BSD-3-Clause
"""Data of known clusters for every likelihood, and the kernels bound to them."""

import numpy as np

from skdpm.mixture.chains.program import row_tiles
from skdpm.mixture.likelihoods import LIKELIHOODS
from skdpm.mixture.priors import DirichletProcessPrior, FiniteDirichletPrior
from skdpm.mixture.samplers import SAMPLERS
from skdpm.mixture.state._state import MixtureState

NAMES = (
    "gaussian",
    "gaussian_diag",
    "bernoulli",
    "categorical",
    "multinomial",
    "negative_binomial",
    "poisson",
    "relational",
)


def make_problem(name, n_samples, n_features, n_clusters, *, spread=None, seed=0):
    """Rows drawn from clusters of nearly equal size.

    Parameters
    ----------
    name : str
        One of NAMES.
    n_samples, n_features, n_clusters : int
        The relational likelihood has n_samples columns.
    spread : float, optional
        Gaussian: standard deviation of cluster means, in those of a row within its cluster; by
        default 3. In two columns the means lie on a grid of this step instead, by default 6.
    seed : int

    Returns
    -------
    likelihood : Likelihood
    X : ndarray of shape (n_samples, n_features)
    labels : ndarray of shape (n_samples,)
        The clusters the rows were drawn from, each in use.
    """
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n_samples) % n_clusters)
    family, _, kind = (name, "", "") if name == "negative_binomial" else name.partition("_")
    if family not in LIKELIHOODS:
        raise NotImplementedError(f"no likelihood {family!r} in this version")  # asv: skip
    likelihood = LIKELIHOODS[family]()
    if family == "gaussian":
        likelihood.set_params(covariance_type=kind or "full")
        if n_features == 2:
            side = int(np.ceil(np.sqrt(n_clusters)))
            means = (spread or 6.0) * np.column_stack(np.divmod(np.arange(n_clusters), side))
        else:
            means = rng.normal(scale=spread or 3.0, size=(n_clusters, n_features))
        X = means[labels] + rng.normal(size=(n_samples, n_features))
    elif family == "bernoulli":
        p = rng.beta(0.5, 0.5, size=(n_clusters, n_features))
        X = rng.random((n_samples, n_features)) < p[labels]
    elif family == "categorical":
        cumulated = rng.dirichlet(np.full(4, 0.5), size=(n_clusters, n_features)).cumsum(axis=-1)
        u = rng.random((n_samples, n_features, 1))
        X = (u >= cumulated[labels, :, :-1]).sum(axis=-1)
    elif family == "multinomial":
        p = rng.dirichlet(np.full(n_features, 0.5), size=n_clusters)
        X = rng.multinomial(2 * n_features, p[labels])
    elif family == "negative_binomial":
        means = rng.gamma(2.0, 3.0, size=(n_clusters, n_features))
        X = rng.poisson(means[labels] * rng.gamma(2.0, 0.5, size=(n_samples, n_features)))
    elif family == "poisson":
        rates = rng.gamma(2.0, 3.0, size=(n_clusters, n_features))
        X = rng.poisson(rates[labels])
    else:
        p = rng.beta(0.5, 0.5, size=(n_clusters, n_clusters))
        X = (
            rng.random((n_samples, n_samples))
            < np.triu(p)[np.minimum.outer(labels, labels), np.maximum.outer(labels, labels)]
        )
        X = np.triu(X, 1) | np.triu(X, 1).T
    return likelihood, np.ascontiguousarray(X, dtype=np.float64), labels


class Stepper:
    """Steps of a sampler from given clusters, without the estimator around them.

    The prior is a Dirichlet process, or a finite Dirichlet where `n_components` is given; the
    sampler is `Gibbs()` by default, a step then one sweep, in tiles of close rows if `tiled`.
    """

    def __init__(self, likelihood, X, labels, *, n_components=None, sampler=None, tiled=False):
        likelihood = likelihood.resolve(X)
        self.likelihood = likelihood
        data = likelihood.encode(X)
        self.model = likelihood.bind(data, likelihood.tables(data, len(X)))
        if n_components is None:
            prior = DirichletProcessPrior(len(X), 1.0)
        else:
            prior = FiniteDirichletPrior(len(X), 1.0, n_components)
        tiles = row_tiles(likelihood, data) if tiled else None
        self.state = MixtureState(self.model, prior, labels, tiles=tiles)
        self._kernel = (sampler or SAMPLERS["gibbs"]()).kernel()
        self._bit_generator = np.random.PCG64(0)

    def step(self):
        self._kernel.run(self.state, self._bit_generator)
