"""Diagnostics of chains: known chains, and formulas written a second time."""

import subprocess
import sys

import numpy as np
import pytest
from scipy.stats import norm, rankdata

from skdpm import diagnostics
from skdpm.diagnostics import (
    bulk_ess,
    coclustering_diagnostics,
    mcse_mean,
    row_pairs,
    split_rhat,
    stacking_weights,
    tail_ess,
)


def autoregressive(rng, phi, n_chains, n_draws):
    """Stationary AR(1) with unit variance; the ESS of its mean is n (1 - phi) / (1 + phi)."""
    x = np.empty((n_chains, n_draws))
    x[:, 0] = rng.standard_normal(n_chains)
    noise = np.sqrt(1 - phi**2) * rng.standard_normal((n_chains, n_draws))
    for t in range(1, n_draws):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


def halves_by_slices(draws):
    """Loops and lists, no reuse of the module's helpers."""
    halves = []
    for chain in draws:
        half = len(chain) // 2
        halves += [list(chain[:half]), list(chain[len(chain) - half :])]
    return np.array(halves)


def normal_scores(chains):
    ranks = rankdata(chains.ravel(), method="average").reshape(chains.shape)
    return norm.ppf((ranks - 0.375) / (chains.size + 0.25))


def rhat_by_sums(chains):
    m, n = chains.shape
    means = [sum(c) / n for c in chains]
    within = (
        sum(sum((x - mu) ** 2 for x in c) / (n - 1) for c, mu in zip(chains, means, strict=True))
        / m
    )
    grand = sum(means) / m
    between = n * sum((mu - grand) ** 2 for mu in means) / (m - 1)
    return (((n - 1) / n * within + between / n) / within) ** 0.5


def ess_by_sums(z):
    """Vehtari et al. (2021), eqs. 10-13, as a loop over lags in the manner of Stan."""
    m, n = z.shape

    def covariance(t):
        return np.mean([sum((c[: n - t] - c.mean()) * (c[t:] - c.mean())) / n for c in z])

    return ess_of_lags(covariance, np.var([c.mean() for c in z], ddof=1), m, n)


def ess_of_lags(covariance, between, m, n):
    within = covariance(0) * n / (n - 1)
    total = covariance(0) + between
    rho = [1.0, 1 - (within - covariance(1)) / total]
    even, odd, t = rho[0], rho[1], 1
    while t < n - 3 and even + odd > 0:
        even = 1 - (within - covariance(t + 1)) / total
        odd = 1 - (within - covariance(t + 2)) / total
        rho += [even, odd]
        t += 2
    last = t - 1  # the first lag of the pair that ended the sum
    for t in range(2, last, 2):
        if rho[t] + rho[t + 1] > rho[t - 2] + rho[t - 1]:
            rho[t] = rho[t + 1] = (rho[t - 2] + rho[t - 1]) / 2
    if even + odd < 0:
        rho[last] = max(rho[last], 0)
    time = -1 + 2 * sum(rho[:last]) + rho[last]
    return m * n / max(time, 1 / np.log10(m * n))


def examples():
    rng = np.random.default_rng(1)
    for phi in (-0.5, 0.0, 0.6, 0.95):
        for shape in ((1, 40), (2, 9), (3, 100), (4, 61)):
            x = autoregressive(rng, phi, *shape)
            yield x
            yield np.round(2 * x)  # ties
            yield np.exp(3 * x) - 1e3
            yield x + np.arange(len(x))[:, None]
            yield x * (1 + np.arange(len(x))[:, None])


@pytest.mark.slow
def test_equal_to_formulas_written_independently():
    for draws in examples():
        halves = halves_by_slices(draws)
        folded = abs(halves - np.median(halves))
        expected = max(rhat_by_sums(normal_scores(halves)), rhat_by_sums(normal_scores(folded)))
        assert split_rhat(draws) == pytest.approx(expected, rel=1e-10)
        assert bulk_ess(draws) == pytest.approx(ess_by_sums(normal_scores(halves)), rel=1e-10)
        ess_of_mean = ess_by_sums(halves)
        assert mcse_mean(draws) == pytest.approx(draws.std(ddof=1) / ess_of_mean**0.5, rel=1e-10)
        below = [halves <= np.quantile(draws, p) for p in (0.05, 0.95)]
        tails = [x.size if np.ptp(x) == 0 else ess_by_sums(x) for x in map(np.float64, below)]
        assert tail_ess(draws) == pytest.approx(min(tails), rel=1e-10)


@pytest.mark.slow
def test_equal_to_arviz():
    array_stats = pytest.importorskip("arviz_stats.base").array_stats
    for draws in examples():
        axes = {"chain_axis": 0, "draw_axis": 1}
        if len(draws) > 1:  # arviz gives no R-hat of one chain
            assert split_rhat(draws) == pytest.approx(array_stats.rhat(draws, **axes), rel=1e-10)
        expected = array_stats.ess(draws, method="bulk", **axes)
        assert bulk_ess(draws) == pytest.approx(expected, rel=1e-10)
        expected = array_stats.ess(draws, method="tail", prob=(0.05, 0.95), **axes)
        assert tail_ess(draws) == pytest.approx(expected, rel=1e-10)
        expected = array_stats.mcse(draws, method="mean", **axes)
        assert mcse_mean(draws) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("phi", [-0.4, 0.0, 0.5, 0.9])
@pytest.mark.some(2)
def test_ess_of_an_autoregression(phi):
    n_chains, n_draws = 4, 20_000
    draws = autoregressive(np.random.default_rng(2), phi, n_chains, n_draws)
    ess = n_chains * n_draws * (1 - phi) / (1 + phi)
    # 0.1 is five standard errors and more: over 20 seeds the largest error was 0.06
    assert abs(bulk_ess(draws) / ess - 1) < 0.1
    assert split_rhat(draws) < 1.01


def test_either_tail_counts():
    """Chains that disagree in one tail alone."""
    draws = np.random.default_rng(9).standard_normal((4, 1000))
    assert tail_ess(draws) > 3000
    low = np.where(draws < -1, draws * [[1], [1], [1], [3]], draws)
    assert max(tail_ess(low), tail_ess(-low)) < 1000 < bulk_ess(low)


@pytest.mark.long
def test_errors_of_means():
    """Of an autoregression, by the spread of the means of many runs."""
    rng = np.random.default_rng(10)
    runs = [autoregressive(rng, 0.6, 2, 400) for _ in range(200)]
    spread = np.std([draws.mean() for draws in runs])
    errors = [mcse_mean(draws) for draws in runs]
    assert 0.8 < np.mean(errors) / spread < 1.25  # the spread has a standard error of 5 %


def test_disagreement_is_detected():
    draws = np.random.default_rng(3).standard_normal((4, 1000))
    assert split_rhat(draws) < 1.01
    assert bulk_ess(draws) > 3000

    shifted = draws + np.array([[0], [0], [0], [1.0]])
    assert split_rhat(shifted) > 1.05
    assert bulk_ess(shifted) < 100

    wider = draws * np.array([[1], [1], [1], [3.0]])  # equal means: only folding sees it
    assert split_rhat(wider) > 1.05
    assert rhat_by_sums(normal_scores(halves_by_slices(wider))) < 1.01

    trend = draws + np.linspace(-1, 1, 1000)  # every chain alike: only splitting sees it
    assert split_rhat(trend) > 1.05
    assert rhat_by_sums(normal_scores(trend)) < 1.01


def test_heavy_tails_and_monotone_maps_change_nothing():
    draws = np.random.default_rng(4).standard_normal((4, 400))
    assert bulk_ess(np.exp(draws)) == bulk_ess(draws)
    assert bulk_ess(1e6 + 1e-3 * draws) == pytest.approx(bulk_ess(draws), rel=1e-6)
    assert split_rhat(1e6 + 1e-3 * draws) == pytest.approx(split_rhat(draws), rel=1e-6)
    cauchy = np.random.default_rng(5).standard_cauchy((4, 1000))
    assert split_rhat(cauchy) < 1.01
    assert bulk_ess(cauchy) > 3000


def test_discrete_draws():
    draws = np.random.default_rng(6).integers(3, 6, size=(4, 1000))
    assert draws.dtype == np.int64
    assert split_rhat(draws) < 1.01
    assert bulk_ess(draws) > 3000
    rare = np.zeros((4, 1000))
    rare[1, 17] = 1
    assert np.isfinite([split_rhat(rare), bulk_ess(rare)]).all()


def test_the_middle_draw_of_an_odd_number_is_dropped():
    draws = np.random.default_rng(7).standard_normal((3, 11))
    without = np.delete(draws, 5, axis=1)
    assert split_rhat(draws) == split_rhat(without)
    assert bulk_ess(draws) == bulk_ess(without)
    once = np.zeros((2, 5))
    once[0, 2] = 1.0  # in the mean all the same
    assert mcse_mean(once) == np.std(once, ddof=1) / np.sqrt(8)


def test_degenerate_draws():
    rng = np.random.default_rng(8)
    assert np.isnan([split_rhat(np.ones((4, 3))), bulk_ess(np.ones((4, 3)))]).all()
    for bad in (np.nan, np.inf, -np.inf):
        draws = rng.standard_normal((2, 10))
        draws[1, 3] = bad
        assert np.isnan([split_rhat(draws), bulk_ess(draws)]).all()

    assert split_rhat(np.full((4, 10), 0.1)) == 1.0
    assert bulk_ess(np.full((4, 10), 0.1)) == 40
    assert bulk_ess(np.full((4, 11), 0.1)) == 40

    for values in ([0, 1, 2, 3], [0, 0, 0, 1], [-1, 1], [0.1, 0.3]):
        stuck = np.repeat(np.array(values, dtype=float)[:, None], 100, axis=1)
        assert split_rhat(stuck) == np.inf
        assert bulk_ess(stuck) < 2 * len(values)
    assert split_rhat(np.repeat([[0.0, 1.0]], 50, axis=1).reshape(1, -1)) == np.inf

    one = rng.standard_normal((1, 500))  # a single chain is split as well
    assert split_rhat(one) < 1.05
    assert np.isfinite(split_rhat(one[:, :4]))
    assert np.isfinite(bulk_ess(one[:, :4]))
    for shape in ((10,), (2, 2, 5)):
        with pytest.raises(ValueError, match=r"shape \(n_chains, n_draws\)"):
            split_rhat(np.zeros(shape))


# Partitions.


def independent_labels(rng, shape, n_samples, n_blocks=4):
    """Rows 0, 1, ... in blocks, of which each draw splits some at random."""
    blocks = np.arange(n_samples) * n_blocks // n_samples
    side = rng.integers(2, size=(*shape, n_samples))
    return 2 * blocks + side * rng.integers(2, size=(*shape, n_blocks))[..., blocks]


def test_pairs_of_rows_are_distinct_and_spread():
    for n_samples in (1, 2, 25, 26, 40, 299, 300, 301, 5000):
        first, second = row_pairs(n_samples)
        n_pairs = min(300, n_samples * (n_samples - 1) // 2)
        assert len({frozenset(pair) for pair in zip(first, second, strict=True)}) == n_pairs
        if n_pairs:
            assert (first != second).all()
            rows, counts = np.unique([first, second], return_counts=True)
            assert counts.max() <= np.ceil(2 * n_pairs / n_samples) + 1
            assert len(rows) >= min(n_samples, n_pairs)


def test_partitions_by_loops(monkeypatch):
    monkeypatch.setattr(diagnostics, "BLOCK_SIZE", 500)  # several blocks of pairs
    labels = independent_labels(np.random.default_rng(11), (3, 41), 9)
    labels[2, 10:] = np.roll(labels[2, 10:], 3, axis=1)
    within, between, covariances = 0.0, 0.0, np.zeros(20)
    for i, j in np.column_stack(np.triu_indices(9, 1)):
        halves = halves_by_slices((labels[..., i] == labels[..., j]).astype(float))
        within += halves.var(axis=1, ddof=1).mean()
        between += halves.mean(axis=1).var(ddof=1)
        centred = halves - halves.mean(axis=1, keepdims=True)
        for lag in range(20):
            covariances[lag] += (centred[:, : 20 - lag] * centred[:, lag:]).sum(axis=1).mean() / 20
    figures = coclustering_diagnostics(labels)
    assert figures["r_hat"] == pytest.approx(np.sqrt(19 / 20 + between / within), rel=1e-10)
    expected = ess_of_lags(covariances.__getitem__, between, 6, 20)
    assert figures["ess_bulk"] == pytest.approx(expected, rel=1e-10)


def test_partitions_of_stuck_chains():
    rng = np.random.default_rng(12)
    labels = independent_labels(rng, (4, 200), 60)
    figures = coclustering_diagnostics(labels)
    assert figures["r_hat"] < 1.01 and figures["ess_bulk"] > 600
    names = rng.permuted(np.tile(np.arange(8), (4, 200, 1)), axis=2)
    renamed = np.take_along_axis(names, labels, axis=2)
    assert coclustering_diagnostics(renamed) == figures
    stuck = labels.copy()
    stuck[1, :, 15:30] = labels[1, :, :15]  # chain 1 has two of the blocks in one
    figures = coclustering_diagnostics(stuck)
    assert figures["r_hat"] > 1.05 and figures["ess_bulk"] < 100

    constant = np.tile(labels[:1, :1], (4, 200, 1))
    assert coclustering_diagnostics(constant) == {"r_hat": 1.0, "ess_bulk": 800.0}
    constant[0] = 0
    assert coclustering_diagnostics(constant)["r_hat"] == np.inf
    assert coclustering_diagnostics(labels[..., :1])["r_hat"] == 1.0  # one row: no pairs
    assert np.isnan(list(coclustering_diagnostics(labels[:, :3]).values())).all()
    with pytest.raises(ValueError, match=r"shape \(n_chains, n_draws, n_samples\)"):
        coclustering_diagnostics(labels[0])


def test_stacking_weights_are_the_best():
    rng = np.random.default_rng(13)
    log_likelihood = rng.normal(size=(4, 30, 80))
    log_likelihood[0, :, :40] += 2.0
    log_likelihood[1, :, 40:] += 2.0
    log_likelihood[2] *= 2.5  # high in some draws, and low as often
    log_likelihood[3] -= 1.0
    density = 1.0 / np.exp(-log_likelihood).mean(axis=1)

    def score(weights):
        return np.log(weights @ density).mean()

    weights = stacking_weights(log_likelihood)
    assert abs(weights.sum() - 1) < 1e-12 and (weights >= 0).all()
    best = max(score(w) for w in rng.dirichlet(np.full(4, 0.5), size=20_000))
    assert best - 1e-6 < score(weights) < best + 0.01
    assert weights[:2].min() > 0.2 and weights[2:].max() < 0.05
    # Chains that say the same share; a row's own scale is nothing.
    np.testing.assert_allclose(stacking_weights(np.zeros((2, 3, 5))), [0.5, 0.5])
    shifted = stacking_weights(log_likelihood - 1e4 * rng.random(80))
    np.testing.assert_allclose(shifted, weights, atol=1e-6)
    for bad in (np.zeros((2, 3)), np.full((2, 3, 4), np.nan)):
        with pytest.raises(ValueError, match="log_likelihood must have shape"):
            stacking_weights(bad)


def test_the_import_loads_no_scipy():
    code = "import runpy, sys; runpy.run_path(sys.argv[1]); assert 'scipy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code, diagnostics.__file__], check=True)
