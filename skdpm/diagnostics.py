# SPDX-License-Identifier: BSD-3-Clause
"""Convergence diagnostics of Markov chains: R-hat, effective sample sizes, Monte Carlo errors.

Those of numbers follow Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization,
folding, and localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis
16(2). Those of partitions are the same ratios of variances, summed over pairs of rows: of each
draw, whether the two are together.
"""

import numpy as np

__all__ = [
    "bulk_ess",
    "coclustering_diagnostics",
    "mcse_mean",
    "split_rhat",
    "stacking_weights",
    "tail_ess",
]

# Probabilities of the quantiles whose effective sample sizes make that of the tails.
TAILS = (0.05, 0.95)

# Pairs of rows by which partitions are compared, and numbers that are transformed at a time.
N_PAIRS = 300
BLOCK_SIZE = 2**17


def __dir__():
    return __all__


def split_rhat(draws):
    """Rank-normalised split R-hat: the larger of that of the draws and of the folded draws.

    Folding, abs(draw - median), detects chains that differ in scale only. Values above 1.01 say
    that the chains have not mixed.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws)
        One scalar per draw, continuous or discrete. Each chain is split in halves; the middle
        draw of an odd number is dropped.

    Returns
    -------
    rhat : float
        NaN with fewer than 4 draws or a value that is not finite. 1.0 where all draws are equal:
        a quantity that never moves gives no sign of disagreement. inf where each half chain is
        constant but they differ.

    See Also
    --------
    bulk_ess : Effective number of draws.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import split_rhat
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> split_rhat(draws) < 1.01
    True
    >>> split_rhat(draws + [[0], [0], [0], [3]]) > 1.1
    True
    """
    halves = _split(draws)
    if halves is None:
        return float("nan")
    folded = np.abs(halves - np.median(halves))
    return max(_rhat(_rank_normalise(halves)), _rhat(_rank_normalise(folded)))


def location_rhat(draws):
    """Half of `split_rhat`: that of the draws, not folded, which sees means alone."""
    halves = _split(draws)
    return float("nan") if halves is None else _rhat(_rank_normalise(halves))


def bulk_ess(draws):
    """Bulk effective sample size: that of the mean of the rank-normalised draws.

    The integrated autocorrelation time of the half chains is summed over Geyer's (1992) initial
    monotone sequence.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws)
        As in `split_rhat`.

    Returns
    -------
    ess : float
        At most n log10(n), n being the number of draws used (n_chains * n_draws, less the
        dropped middle ones): more than n where draws are antithetic. NaN with fewer than 4
        draws or a value that is not finite; n where all draws are equal; about the number of
        chains where each half chain is constant but they differ.

    See Also
    --------
    split_rhat : Do the chains agree?

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import bulk_ess
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> bulk_ess(draws) > 1500
    True
    """
    halves = _split(draws)
    if halves is None:
        return float("nan")
    return _ess(_rank_normalise(halves))


def tail_ess(draws):
    """Tail effective sample size: the smaller of those of the 5 % and the 95 % quantile.

    The effective sample size of a quantile is that of the share of draws up to it.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws)
        As in `split_rhat`.

    Returns
    -------
    ess : float
        NaN and bounds as with `bulk_ess`.

    See Also
    --------
    bulk_ess : Of the middle of the law.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import tail_ess
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> tail_ess(draws) > 1500
    True
    """
    if _split(draws) is None:
        return float("nan")
    draws = np.asarray(draws, dtype=np.float64)
    return min(_ess(_split(draws <= np.quantile(draws, tail))) for tail in TAILS)


def mcse_mean(draws):
    """Monte Carlo standard error of the mean of the draws.

    Parameters
    ----------
    draws : array-like of shape (n_chains, n_draws)
        As in `split_rhat`.

    Returns
    -------
    error : float
        Their standard deviation by the root of the effective sample size of the mean (of the
        draws themselves, not of their ranks). NaN where `bulk_ess` is; 0 where all draws are
        equal.

    See Also
    --------
    bulk_ess : Effective number of draws.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import mcse_mean
    >>> draws = np.random.default_rng(0).normal(size=(4, 500))
    >>> 0.01 < mcse_mean(draws) < 0.04
    True
    """
    halves = _split(draws)
    if halves is None:
        return float("nan")
    if np.ptp(draws) == 0:
        return 0.0
    return float(np.std(draws, ddof=1) / np.sqrt(_ess(halves)))


def coclustering_diagnostics(label_samples, n_pairs=N_PAIRS):
    """Compare the partitions of chains: split R-hat and effective sample size.

    Each draw is the vector that tells, of some pairs of rows, which are in the same cluster.
    R-hat compares within and between half chains the variance of this vector, the sum of those of
    its entries. So it needs no matching of labels, pairs that are together always or never count
    for nothing, and, as it is not the worst of many R-hats, it exceeds its limit by chance as
    seldom as that of a number.

    Parameters
    ----------
    label_samples : array-like of shape (n_chains, n_draws, n_samples)
        Partitions, labelled in any way.
    n_pairs : int, default=300
        Pairs of rows, chosen by the number of rows alone, each row as often as others. All pairs
        where there are no more.

    Returns
    -------
    figures : dict
        "r_hat", 1.0 where the partitions agree about all pairs, inf where they agree in each half
        chain but not between them; "ess_bulk", of the vector. NaN with fewer than 4 draws.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import coclustering_diagnostics
    >>> label_samples = np.random.default_rng(0).integers(3, size=(4, 100, 20))
    >>> coclustering_diagnostics(label_samples)["r_hat"] < 1.05
    True
    >>> label_samples[0] = 0
    >>> coclustering_diagnostics(label_samples)["r_hat"] > 1.05
    True
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
    return {
        "r_hat": float(r_hat),
        "ess_bulk": _ess_of(autocovariance, between, len(halves)),
    }


def stacking_weights(log_likelihood, *, tol=1e-8, max_iter=10_000):
    """Weigh chains by how well each predicts every row without itself (stacking).

    The weights maximise the mean over rows of log sum_c w_c p_c(row | the other rows), where p_c
    is estimated from the draws of chain c by importance sampling. Chains that are stuck in parts
    of the posterior that predict badly get none, whatever their number.

    Parameters
    ----------
    log_likelihood : array-like of shape (n_chains, n_draws, n_samples)
        log p(row | the other rows, draw), as `pointwise_log_likelihood` gives it.
    tol : float, default=1e-8
        Stop where no weight would gain more than this, in nats per row.
    max_iter : int, default=10000

    Returns
    -------
    weights : ndarray of shape (n_chains,)
        They sum to 1.

    Notes
    -----
    Of chains that agree all weights predict about as well, and which one has most is by chance.

    References
    ----------
    Yao, Vehtari & Gelman (2022), Stacking for non-mixing Bayesian computations: the curse and
    blessing of multimodal posteriors.

    Examples
    --------
    >>> import numpy as np
    >>> from skdpm.diagnostics import stacking_weights
    >>> log_likelihood = np.random.default_rng(0).normal(size=(3, 20, 50))
    >>> log_likelihood[1] -= 5.0
    >>> bool(stacking_weights(log_likelihood)[1] < 0.01)
    True
    """
    log_likelihood = np.asarray(log_likelihood, dtype=np.float64)
    if log_likelihood.ndim != 3 or not np.isfinite(log_likelihood).all():
        raise ValueError(
            "log_likelihood must have shape (n_chains, n_draws, n_samples) and finite entries, "
            f"got shape {log_likelihood.shape}"
        )
    # Draws given all rows weigh 1 / p(row | draw): the density without the row is the harmonic
    # mean. Rows are scaled, which no weight depends on.
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
    """Round log joint densities to a relative precision of 1e-11: those of equal states may differ
    beyond, by the order of their sums, and ranks would take that for a disagreement."""
    unit = 2.0 ** (np.ceil(np.log2(max(np.abs(draws).max(), 1.0))) - 37)
    return np.round(draws / unit) * unit


def row_pairs(n_samples, n_pairs=N_PAIRS):
    """Choose pairs of different rows by their number alone, each row about as often as others.

    Parameters
    ----------
    n_samples : int
    n_pairs : int

    Returns
    -------
    first, second : ndarrays of shape (min(n_pairs, n_samples * (n_samples - 1) / 2),)
    """
    if n_samples * (n_samples - 1) // 2 <= n_pairs:
        return np.triu_indices(n_samples, k=1)
    # Rows of a generator's order, each with one that is a number of places further: rows that
    # are next to each other in X mean nothing, and pairs at one distance are all different.
    order = np.random.Generator(np.random.PCG64(n_samples)).permutation(n_samples)
    place = np.arange(n_pairs)
    first = place % n_samples
    second = (first + 1 + place // n_samples) % n_samples
    return order[first], order[second]


def together(labels, n_pairs=N_PAIRS):
    """Tell of `row_pairs` which are in one cluster: bool of shape (n_chains, n_draws, n_pairs)."""
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
    """Effective sample size from the mean autocovariance of half chains and the variance of their
    means (eqs. 10-13)."""
    n_draws = len(autocovariance)
    n = n_halves * n_draws
    within = autocovariance[0] * n_draws / (n_draws - 1)
    rho = 1 - (within - autocovariance) / (autocovariance[0] + between)
    rho[0] = 1

    # Sums of pairs (0, 1), (2, 3), ... are positive and decreasing for a reversible chain: stop
    # at the first negative one and let those before it fall only. As in Stan, the even lag of
    # the pair that ends the sum counts once: that of the first negative pair if it is positive,
    # else of the last pair.
    n_pairs = max((n_draws - 1) // 2, 1)
    pairs = rho[: 2 * n_pairs].reshape(-1, 2).sum(axis=1)
    negative = np.flatnonzero(pairs < 0)
    stop = negative[0] if len(negative) else n_pairs - 1
    initial = np.minimum.accumulate(pairs[:stop]).sum()
    tail = max(rho[2 * stop], 0) if len(negative) else rho[2 * stop]
    time = -1 + 2 * initial + tail
    return float(n / max(time, 1 / np.log10(n)))


def _split(draws):
    """The half chains, shape (2 n_chains, n_draws // 2); None where there is no answer."""
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

    _, inverse, counts = np.unique(draws, return_inverse=True, return_counts=True)
    mean_rank = np.cumsum(counts) - (counts - 1) / 2
    scores = ndtri((mean_rank - 3 / 8) / (draws.size + 1 / 4))
    return scores[inverse].reshape(draws.shape)


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
