"""Convergence diagnostics of Markov chains: rank-normalised split R-hat, bulk ESS.

Both follow Vehtari, Gelman, Simpson, Carpenter & Bürkner (2021), Rank-normalization, folding,
and localization: an improved R-hat for assessing convergence of MCMC, Bayesian Analysis 16(2).
"""

import numpy as np

__all__ = ["bulk_ess", "split_rhat"]


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
    if np.ptp(halves) == 0:
        return float(halves.size)
    z = _rank_normalise(halves)
    n_draws = z.shape[1]

    autocovariance = _autocovariance(z).mean(axis=0)
    within = autocovariance[0] * n_draws / (n_draws - 1)
    between = z.mean(axis=1).var(ddof=1)  # two half chains at least
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
    return float(z.size / max(time, 1 / np.log10(z.size)))


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
    n_draws = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    spectrum = np.fft.rfft(centred, n=2 * n_draws, axis=1)
    products = np.fft.irfft(np.abs(spectrum) ** 2, n=2 * n_draws, axis=1)
    return products[:, :n_draws] / n_draws
