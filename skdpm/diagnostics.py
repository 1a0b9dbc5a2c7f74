# SPDX-License-Identifier: BSD-3-Clause
"""Convergence diagnostics of Markov chains: R-hat, effective sample sizes, Monte Carlo errors.

Diagnostics of scalars follow Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021),
Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of MCMC,
Bayesian Analysis 16(2). Diagnostics of partitions are the same ratios of variances for indicators
of pairs of rows (together or not), summed over the pairs.
"""

from typing import Any

import numpy as np

__all__ = [
    "bulk_ess",
    "coclustering_diagnostics",
    "mcse_mean",
    "split_rhat",
    "stacking_weights",
    "tail_ess",
]
__dir__ = __all__.copy

# Probabilities of the quantiles of the tail effective sample size.
TAILS = (0.05, 0.95)

# Number of pairs of rows that are compared, and of entries in one Fourier transform.
N_PAIRS = 300
BLOCK_SIZE = 2**17


def split_rhat(draws) -> float:
    """Rank-normalised split R-hat: the larger of those of the draws and of the folded draws.

    >>> import numpy as np
    >>> from skdpm.diagnostics import split_rhat
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> split_rhat(draws) < 1.01
    True
    >>> split_rhat(draws + [[0], [0], [0], [3]]) > 1.1
    True

    Folding, abs(draw - median), detects chains that differ in scale only. Values above 1.01 mean
    that the chains have not mixed.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws)
        One scalar per draw, continuous or discrete. Each chain is split in halves; the middle
        draw of an odd number is dropped.

    Returns
    -------
    rhat : float
        NaN with fewer than 4 draws or a value that is not finite; 1.0 if all draws are equal; inf
        if each half chain is constant but they differ.
    """
    halves = _split(draws)
    if halves is None:
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_rank_normalise(halves)), _rhat(_rank_normalise(folded)))


def location_rhat(draws):
    """R-hat of the draws without folding, which compares locations only."""
    halves = _split(draws)
    return float("nan") if halves is None else _rhat(_rank_normalise(halves))


def bulk_ess(draws) -> float:
    """Bulk effective sample size: that of the mean of the rank-normalised draws.

    >>> import numpy as np
    >>> from skdpm.diagnostics import bulk_ess
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> bulk_ess(draws) > 1500
    True

    The autocorrelation time of half chains is that of Geyer's (1992) initial monotone sequence.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws), as in `split_rhat`

    Returns
    -------
    ess : float
        At most n log10(n), where n is the number of draws used (n_chains * n_draws without the
        dropped middle ones); it exceeds n if draws are antithetic. NaN with fewer than 4 draws or
        a value that is not finite; n if all draws are equal; about the number of chains if each
        half chain is constant but they differ.
    """
    halves = _split(draws)
    return float("nan") if halves is None else _ess(_rank_normalise(halves))


def tail_ess(draws) -> float:
    """Tail effective sample size: the smaller of those of the 5 % and the 95 % quantile.

    >>> import numpy as np
    >>> from skdpm.diagnostics import tail_ess
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> tail_ess(draws) > 1500
    True

    For a quantile it is the effective sample size of the indicator of draws below it.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws), as in `split_rhat`

    Returns
    -------
    ess : float
        NaN and bounds as for `bulk_ess`.
    """
    if _split(draws) is None:
        return float("nan")
    draws = np.asarray(draws, dtype=np.float64)
    return min(_ess(_split(draws <= np.quantile(draws, tail))) for tail in TAILS)


def mcse_mean(draws) -> float:
    """Monte Carlo standard error of the mean of the draws.

    >>> import numpy as np
    >>> from skdpm.diagnostics import mcse_mean
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> 0.01 < mcse_mean(draws) < 0.04
    True

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws), as in `split_rhat`

    Returns
    -------
    error : float
        Standard deviation of the draws over the square root of the effective sample size of their
        mean (not of ranks). NaN if `bulk_ess` is NaN; 0 if all draws are equal.
    """
    halves = _split(draws)
    if halves is None:
        return float("nan")
    draws = np.asarray(draws, dtype=np.float64)
    if np.ptp(draws) == 0:
        return 0.0
    return float(np.std(draws, ddof=1) / np.sqrt(_ess(halves)))


def coclustering_diagnostics(label_samples, n_pairs: int = N_PAIRS) -> dict[str, Any]:
    """Compare the partitions of chains: split R-hat and effective sample size.

    >>> import numpy as np
    >>> from skdpm.diagnostics import coclustering_diagnostics
    >>> label_samples = np.random.default_rng(0).integers(3, size=(4, 100, 20))
    >>> coclustering_diagnostics(label_samples)["r_hat"] < 1.05
    True
    >>> label_samples[0] = 0
    >>> coclustering_diagnostics(label_samples)["r_hat"] > 1.05
    True

    Each draw becomes a vector of indicators: which of some pairs of rows share a cluster. R-hat
    compares the total variance of this vector within and between half chains. It does not depend
    on how clusters are labelled, and pairs that are always or never together do not contribute. It
    is one R-hat, not the worst of many: it exceeds its limit by chance as rarely as a scalar's.

    Parameters
    ----------
    label_samples : array-like of shape (n_chains, n_draws, n_samples)
        Draws of a partition.
    n_pairs : int, default=300
        Number of pairs of rows; all pairs if there are fewer. The choice depends on n_samples
        only, and every row is chosen about equally often.

    Returns
    -------
    figures : dict
        "r_hat" (1.0 if all draws agree about all pairs, inf if they agree within each half chain
        only) and "ess_bulk", the effective sample size of the vector. NaN with fewer than 4 draws.
    """
    pairs = together(label_samples, n_pairs)
    n_draws = pairs.shape[1]
    half = n_draws // 2
    if n_draws < 4:
        return {"r_hat": float("nan"), "ess_bulk": float("nan")}
    halves = np.concatenate([pairs[:, :half], pairs[:, n_draws - half :]])
    shares = halves.mean(axis=(0, 1))
    halves = halves[:, :, (shares > 0) & (shares < 1)]
    if halves.shape[2] == 0:
        return {"r_hat": 1.0, "ess_bulk": float(len(halves) * half)}
    autocovariance, between = np.zeros(half), 0.0
    n_block = max(1, BLOCK_SIZE // (len(halves) * half))
    for start in range(0, halves.shape[2], n_block):
        block = np.moveaxis(halves[:, :, start : start + n_block], 2, 0).astype(np.float64)
        autocovariance += _autocovariance(block).sum(axis=(0, 1)) / len(halves)
        between += block.mean(axis=2).var(axis=1, ddof=1).sum()
    within = autocovariance[0] * half / (half - 1)
    r_hat = np.sqrt((half - 1) / half + between / within) if within > 0 else np.inf
    return {"r_hat": float(r_hat), "ess_bulk": _ess_of(autocovariance, between, len(halves))}


def stacking_weights(log_likelihood, *, tol: float = 1e-8, max_iter: int = 10_000) -> np.ndarray:
    """Weigh chains by how well each predicts every row without itself (stacking).

    >>> import numpy as np
    >>> from skdpm.diagnostics import stacking_weights
    >>> log_likelihood = np.random.default_rng(0).normal(size=(3, 20, 50))
    >>> log_likelihood[1] -= 5.0
    >>> bool(stacking_weights(log_likelihood)[1] < 0.01)
    True

    The weights maximise the mean over rows of log sum_c w_c p_c(row | the other rows), where p_c
    is estimated from the draws of chain c by importance sampling. Chains stuck in parts of the
    posterior that predict badly get no weight, however many there are.

    If chains agree, all weights predict about equally well, and chance decides between them.

    Parameters
    ----------
    log_likelihood : array-like of shape (n_chains, n_draws, n_samples)
        log p(row | the other rows, draw), natural logarithm, from `pointwise_log_likelihood`.
    tol : float, default=1e-8
        Largest gain that a change of the weights could still bring, in nats per row.
    max_iter : int, default=10000
        Largest number of iterations.

    Returns
    -------
    weights : ndarray of shape (n_chains,)
        Weights of the chains, which sum to 1.

    References
    ----------
    Yao, Vehtari & Gelman (2022).
    """
    log_likelihood = np.asarray(log_likelihood, dtype=np.float64)
    if log_likelihood.ndim != 3 or not np.isfinite(log_likelihood).all():
        raise ValueError(
            "log_likelihood must have shape (n_chains, n_draws, n_samples) and finite entries, "
            f"got shape {log_likelihood.shape}"
        )
    # Draws given all rows have weight 1 / p(row | draw), so that the density without the row is a
    # harmonic mean. Scaling the density of a row changes no weight.
    lowest = log_likelihood.min(axis=1, keepdims=True)
    log_density = lowest[:, 0] - np.log(np.exp(lowest - log_likelihood).mean(axis=1))
    density = np.exp(log_density - log_density.max(axis=0))
    # A concave function on the simplex: the EM algorithm of a mixture with known components.
    weights = np.full(len(density), 1.0 / len(density))
    for _ in range(max_iter):
        gain = (density / (weights @ density)).mean(axis=1)  # the gradient; 1 where it is best
        weights = weights * gain
        if gain.max() < 1.0 + tol:
            break
    return weights / weights.sum()


def without_last_bits(draws):
    """Round log joint densities to a relative precision of 1e-11.

    Densities of equal states may differ by the order of their sums, which is no disagreement."""
    unit = 2.0 ** (np.ceil(np.log2(max(np.abs(draws).max(), 1.0))) - 37)
    return np.round(draws / unit) * unit


def row_pairs(n_samples, n_pairs=N_PAIRS):
    """Choose at most n_pairs pairs of different rows, all if there are fewer; the choice depends
    on the number of rows only. Returns `first`, `second`: (n_chosen,)."""
    if n_samples * (n_samples - 1) // 2 <= n_pairs:
        return np.triu_indices(n_samples, k=1)
    # Rows in random order, each paired with the row one place further, then two, and so on: the
    # order of X does not matter, and all pairs differ.
    order = np.random.Generator(np.random.PCG64(n_samples)).permutation(n_samples)
    place = np.arange(n_pairs)
    first = place % n_samples
    return order[first], order[(first + 1 + place // n_samples) % n_samples]


def together(labels, n_pairs=N_PAIRS):
    """Which of `row_pairs` share a cluster: bool of shape (n_chains, n_draws, n_pairs)."""
    labels = np.asarray(labels)
    if labels.ndim != 3:
        raise ValueError(
            "label_samples must have shape (n_chains, n_draws, n_samples), got shape "
            f"{labels.shape}"
        )
    first, second = row_pairs(labels.shape[2], n_pairs)
    return labels[:, :, first] == labels[:, :, second]


def _ess(halves):
    """Effective sample size of half chains, (n_halves, n_draws)."""
    if np.ptp(halves) == 0:
        return float(halves.size)
    between = halves.mean(axis=1).var(ddof=1)  # two half chains at least
    return _ess_of(_autocovariance(halves).mean(axis=0), between, len(halves))


def _ess_of(autocovariance, between, n_halves):
    """ESS from mean autocovariance of half chains and the variance of their means (eqs. 10-13)."""
    n_draws = len(autocovariance)
    n = n_halves * n_draws
    within = autocovariance[0] * n_draws / (n_draws - 1)
    rho = 1 - (within - autocovariance) / (autocovariance[0] + between)
    rho[0] = 1

    # Sums of pairs (0, 1), (2, 3), ... are positive and decreasing for a reversible chain. Stop at
    # the first negative pair and make those before it monotone. As in Stan, the even lag of the
    # pair that ends the sum counts once: the first negative pair, if that lag is positive, else
    # the last pair.
    n_pairs = max((n_draws - 1) // 2, 1)
    pairs = rho[: 2 * n_pairs].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    stop = negative[0] if len(negative) else n_pairs - 1
    initial = np.minimum.accumulate(pairs[:stop]).sum()
    tail = max(rho[2 * stop], 0) if len(negative) else rho[2 * stop]
    time = -1 + 2 * initial + tail
    return float(n / max(time, 1 / np.log10(n)))


def _split(draws):
    """Half chains, shape (2 n_chains, n_draws // 2); None if the diagnostic is undefined."""
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim != 2:
        raise ValueError(f"draws must have shape (n_chains, n_draws), got shape {draws.shape}")
    n_chains, n_draws = draws.shape
    if n_chains == 0 or n_draws < 4 or not np.isfinite(draws).all():
        return None
    half = n_draws // 2
    return np.concatenate([draws[:, :half], draws[:, n_draws - half :]])


def _rank_normalise(draws):
    """Normal scores of the ranks in all chains together, ties sharing their mean rank (eq. 14)."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    ranks = rankdata(draws, axis=None).reshape(draws.shape)
    return ndtri((ranks - 3 / 8) / (draws.size + 1 / 4))


def _rhat(chains):
    """Square root of total over within variance (eqs. 1-4)."""
    if (np.ptp(chains, axis=1) == 0).all():
        return 1.0 if np.ptp(chains) == 0 else float("inf")
    n_draws = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean()
    between = chains.mean(axis=1).var(ddof=1)
    return float(np.sqrt((n_draws - 1) / n_draws + between / within))


def _autocovariance(chains):
    """Biased autocovariance of each chain at every lag, by FFT (zero padded: no wrap-around)."""
    n_draws = chains.shape[-1]
    centred = chains - chains.mean(axis=-1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * n_draws, axis=-1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n_draws, axis=-1)
    return products[..., :n_draws] / n_draws
