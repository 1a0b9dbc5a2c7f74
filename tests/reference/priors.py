"""Normalised partition priors (exchangeable partition probability functions, EPPFs).

Each sums to 1 over all partitions of n items. Formulas: errata 1 and 2 of the project to
Bouchard-Côté, Doucet & Roth (2017); Pitman (2006), Combinatorial stochastic processes, ch. 3.

`sizes` holds the block sizes, zeros are ignored. `concentration` may be an array; the result has
its shape.
"""

import numpy as np
from scipy.special import gammaln


def _positive_sizes(sizes):
    sizes = np.asarray(sizes)
    if sizes.ndim != 1 or (sizes < 0).any() or sizes.sum() < 1:
        raise ValueError(f"sizes must be a list of block sizes, got {sizes!r}")
    return sizes[sizes > 0]


def log_eppf_dp(sizes, concentration):
    """Dirichlet process: α^j Γ(α)/Γ(α+n) Π_b Γ(|b|), α > 0 (Ewens 1972; Antoniak 1974)."""
    sizes = _positive_sizes(sizes)
    alpha = np.asarray(concentration, dtype=float)
    if not (alpha > 0).all():
        raise ValueError(f"concentration must be positive, got {concentration}")
    n, j = sizes.sum(), len(sizes)
    return j * np.log(alpha) + gammaln(alpha) - gammaln(alpha + n) + gammaln(sizes).sum()


def log_eppf_pitman_yor(sizes, concentration, discount):
    """Pitman-Yor: Π_{i<j}(α+id) / Π_{i<n}(α+i) Π_b Γ(|b|-d)/Γ(1-d), 0 <= d < 1, α > -d.

    The products start at i = 1, so that α in (-d, 0] is allowed.
    """
    sizes = _positive_sizes(sizes)
    alpha = np.asarray(concentration, dtype=float)
    if not 0 <= discount < 1 or not (alpha > -discount).all():
        raise ValueError(
            f"needs 0 <= discount < 1 and concentration > -discount, "
            f"got {discount} and {concentration}"
        )
    n, j = sizes.sum(), len(sizes)
    log_v = np.log(alpha[..., None] + discount * np.arange(1, j)).sum(axis=-1) - np.log(
        alpha[..., None] + np.arange(1, n)
    ).sum(axis=-1)
    return log_v + (gammaln(sizes - discount) - gammaln(1 - discount)).sum()


def log_eppf_finite(sizes, concentration_total, n_components):
    """Finite symmetric Dirichlet, A = total, a = A/k0, labels of components forgotten.

    k0!/(k0-j)! Γ(A)/Γ(n+A) Π_b Γ(|b|+a)/Γ(a) for j <= k0 blocks, else probability 0.
    """
    sizes = _positive_sizes(sizes)
    total = np.asarray(concentration_total, dtype=float)
    if n_components < 1 or not (total > 0).all():
        raise ValueError(
            f"needs n_components >= 1 and a positive concentration, "
            f"got {n_components} and {concentration_total}"
        )
    n, j = sizes.sum(), len(sizes)
    if j > n_components:
        return np.full(total.shape, -np.inf)[()]
    a = total[..., None] / n_components
    return (
        gammaln(n_components + 1)
        - gammaln(n_components - j + 1)
        + gammaln(total)
        - gammaln(total + n)
        + (gammaln(sizes + a) - gammaln(a)).sum(axis=-1)
    )


def log_eppf(sizes, prior, *, concentration, discount=None, n_components=None):
    """The log EPPF of the prior called `prior`: "dp", "pitman_yor" or "finite".

    `concentration` is the total over components where `prior` is "finite".
    """
    if prior == "dp":
        return log_eppf_dp(sizes, concentration)
    if prior == "pitman_yor":
        return log_eppf_pitman_yor(sizes, concentration, discount)
    if prior == "finite":
        return log_eppf_finite(sizes, concentration, n_components)
    raise ValueError(f"unknown prior {prior!r}; known: dp, pitman_yor, finite")


def log_gamma_density(x, shape, rate):
    """Log density at x > 0 of the Gamma law with mean shape / rate."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x
