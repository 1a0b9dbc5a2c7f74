"""Normalised partition priors (exchangeable partition probability functions, EPPFs).

Each sums to 1 over all partitions of n items. Formulas: errata 1 and 2 of the project to
Bouchard-Côté, Doucet & Roth (2017); Pitman (2006), Combinatorial stochastic processes, ch. 3.

`sizes` holds the block sizes, zeros are ignored. `concentration` may be an array; the result has
its shape.
"""

import numpy as np
from scipy.special import gammaln, logsumexp
from scipy.stats import geom, poisson


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
    log_rising = np.log(alpha[..., None] + np.arange(n)).sum(axis=-1)
    return j * np.log(alpha) - log_rising + gammaln(sizes).sum()


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

    k0!/(k0-j)! Γ(A)/Γ(n+A) Π_b Γ(|b|+a)/Γ(a) for j <= k0 blocks, else probability 0. A and k0
    may be arrays.
    """
    sizes = _positive_sizes(sizes)
    total, n_components = np.broadcast_arrays(
        np.asarray(concentration_total, dtype=float), n_components
    )
    if (n_components < 1).any() or not (total > 0).all():
        raise ValueError(
            f"needs n_components >= 1 and a positive concentration, "
            f"got {n_components} and {concentration_total}"
        )
    n, j = sizes.sum(), len(sizes)
    a = (total / n_components)[..., None]
    within = np.concatenate([np.arange(size) for size in sizes])
    left = np.maximum(n_components[..., None] - np.arange(j), 0)
    with np.errstate(divide="ignore"):  # fewer components than blocks
        log_choices = np.log(left).sum(axis=-1)
    return (
        log_choices
        - np.log(total[..., None] + np.arange(n)).sum(axis=-1)
        + np.log(a + within).sum(axis=-1)
    )


# Laws of the number of components: log p, and how many more components than clusters to look at
# (beyond, nothing is left that double precision would show).
LAWS = {"poisson": (poisson(1, loc=1).logpmf, 20), "geometric": (geom(0.1).logpmf, 500)}


def log_terms_mfm(sizes, concentration, n_components_prior, dynamic=False):
    """log p(partition, k0 components): dict from k0, as long as there is any probability.

    Arguments as in `log_eppf_mfm`. With `dynamic` (Fruehwirth-Schnatter, Malsiner-Walli & Gruen
    2021) the concentration is the total of all components.
    """
    concentration = np.asarray(concentration, dtype=float)
    j = len(_positive_sizes(sizes))
    if isinstance(n_components_prior, str):
        log_pmf, n_more = LAWS[n_components_prior]
        log_p = log_pmf(np.arange(1, j + n_more))
    else:
        log_p = np.asarray(n_components_prior)
    numbers = np.arange(j, len(log_p) + 1)
    numbers = numbers[log_p[numbers - 1] > -np.inf]
    # All at once, but for grids of concentrations.
    parts = numbers[:, None] if concentration.ndim else [numbers]
    terms = [
        log_eppf_finite(sizes, concentration * (1 if dynamic else k0), k0) + log_p[k0 - 1]
        for k0 in parts
    ]
    return dict(zip(numbers.tolist(), terms if concentration.ndim else terms[0], strict=True))


def log_eppf_mfm(sizes, concentration, n_components_prior, dynamic=False):
    """Mixture of finite mixtures (Miller & Harrison 2018): the finite prior of k0 components, of
    this concentration each, averaged over k0.

    `n_components_prior` is a name of LAWS, or log probabilities of 1, 2, ..., m.
    """
    terms = list(log_terms_mfm(sizes, concentration, n_components_prior, dynamic).values())
    return logsumexp(terms, axis=0) if terms else np.full(np.shape(concentration), -np.inf)[()]


def log_eppf(
    sizes, prior, *, concentration, discount=None, n_components=None, n_components_prior=None
):
    """The log EPPF of the prior called `prior`: "dp", "pitman_yor", "finite", "mfm" or "dynamic".

    `concentration` is the total over components where `prior` is "finite" or "dynamic", and that
    of each where it is "mfm".
    """
    if prior in ("mfm", "dynamic"):
        return log_eppf_mfm(sizes, concentration, n_components_prior, prior == "dynamic")
    if prior == "dp":
        return log_eppf_dp(sizes, concentration)
    if prior == "pitman_yor":
        return log_eppf_pitman_yor(sizes, concentration, discount)
    if prior == "finite":
        return log_eppf_finite(sizes, concentration, n_components)
    raise ValueError(f"unknown prior {prior!r}; known: dp, pitman_yor, finite, mfm, dynamic")


def log_gamma_density(x, shape, rate):
    """Log density at x > 0 of the Gamma law with mean shape / rate."""
    return shape * np.log(rate) - gammaln(shape) + (shape - 1) * np.log(x) - rate * x
