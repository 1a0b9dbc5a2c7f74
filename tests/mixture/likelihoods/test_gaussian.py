"""Numerics of the Gaussian likelihoods: exact references where doubles run out of digits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import multigammaln
from support.kernels import bind

from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.likelihoods._base import Probe


def log_determinant(matrix):
    """log |A| of a matrix of fractions, by elimination without rounding."""
    matrix = [list(row) for row in matrix]
    total = 0.0
    for j, row in enumerate(matrix):
        total += math.log(row[j].numerator) - math.log(row[j].denominator)
        for other in matrix[j + 1 :]:
            ratio = other[j] / row[j]
            for k in range(j, len(row)):
                other[k] -= ratio * row[k]
    return total


def exact_log_marginal(likelihood, X):
    """Murphy (2007), eq. 266, its matrices in fractions; prior mean 0 and scale s times 1."""
    n, D = X.shape
    nu, r, s = likelihood.df, likelihood.mean_precision, likelihood.scale[0, 0]
    x = [[Fraction(value) for value in row] for row in X.tolist()]
    rho = Fraction(r) + n
    sums = [sum(row[d] for row in x) for d in range(D)]
    posterior = [
        [
            sum(row[d] * row[e] for row in x) - sums[d] * sums[e] / rho + Fraction(s) * (d == e)
            for e in range(D)
        ]
        for d in range(D)
    ]
    return (
        0.5 * nu * D * math.log(s)
        - 0.5 * (nu + n) * log_determinant(posterior)
        + 0.5 * D * (math.log(r) - math.log(r + n) - n * math.log(math.pi))
        + multigammaln(0.5 * (nu + n), D)
        - multigammaln(0.5 * nu, D)
    )


def filled(probe, items):
    slot = probe.acquire()
    for i in items:
        probe.add(slot, i)
    return slot


@pytest.mark.parametrize("n_features", [1, 2, 3, 9])
@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8, 1e-9, 1e-12])
def test_clusters_far_from_the_prior_mean_on_their_own_scale(scale, n_features):
    """1e5 apart and 1e-3 wide: by one row at a time, anew from statistics, and merged."""
    rng = np.random.default_rng(0)
    X = rng.choice([-0.5e5, 0.5e5], size=(2, n_features)).repeat(8, axis=0)
    X[8:] = -X[:8]
    X += 1e-3 * rng.normal(size=X.shape)
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=n_features + 2.0, scale=scale)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 16), 8)
    exact = {}

    def log_p(items):
        key = tuple(sorted(items))
        if key not in exact:
            exact[key] = exact_log_marginal(likelihood, X[list(key)])
        return exact[key]

    def check(slot, items, others):
        # The digits of log |S_n| that the rows themselves have: 1e-16 of 1e5 in 1e-3.
        assert probe.log_marginal(slot) == pytest.approx(log_p(items), abs=1e-6)
        for i in others:
            expected = log_p([*items, i]) - log_p(items)
            assert probe.log_predictive(slot, i) == pytest.approx(expected, abs=1e-5)

    one, part, other = range(7), range(4), range(8, 15)
    added = filled(probe, one)
    check(added, one, [7, 15])
    probe.refresh(added)
    check(added, one, [7, 15])
    merged = filled(probe, part)
    probe.merge(merged, filled(probe, range(4, 7)))
    check(merged, one, [7, 15])
    stats = probe.model.dump([added])
    # Both clusters as one: from their statistics and by one row at a time.
    far = filled(probe, [*one, *other])
    check(far, [*one, *other], [7, 15])
    probe.merge(added, filled(probe, other))
    check(added, [*one, *other], [7, 15])
    # Reloaded, their scatter is all that is left, and it has no more digits: no NaN.
    probe.refresh(far)
    assert math.isfinite(probe.log_marginal(far))
    assert math.isfinite(probe.log_predictive(far, 7))
    probe.model.load(stats)
    check(0, one, [7, 15])
    assert np.isfinite(likelihood.draw(stats.repeat(5, axis=0), rng)).all()
    drawn = likelihood.parametric(X).draw(
        stats.repeat(5, axis=0), np.array([0.0, 0.5, 1.0, 1.0, 1.0]), np.random.PCG64(0)
    )
    assert np.isfinite(drawn).all()


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("entry", [1e100, -1e140, 1e152])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_an_entry_whose_square_overflows_on_the_scale(scale, entry, n_features):
    """A single enormous entry in one column of a row or in all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, n_features))
    X[4, 0] = entry
    X[5] = entry * (1.0 + np.arange(n_features) / 8)
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=n_features + 2.0, scale=scale)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 6), 3)
    for far in (4, 5):
        slot = filled(probe, [0, 1, 2, far])
        expected = exact_log_marginal(likelihood, X[[0, 1, 2, far]])
        assert probe.log_marginal(slot) == pytest.approx(expected, rel=1e-9)
        alone = probe.log_predictive(slot, 3)
        assert math.isfinite(alone)
        if n_features == 1:  # else the posterior mean has no digits left in the other directions
            after = exact_log_marginal(likelihood, X[[0, 1, 2, far, 3]])
            assert alone == pytest.approx(after - expected, abs=1e-6)
        probe.refresh(slot)
        assert math.isfinite(probe.log_marginal(slot))
        probe.release(slot)


def test_a_drawn_precision_that_is_singular_is_named():
    likelihood = Gaussian().resolve(np.arange(8.0).reshape(4, 2))
    params = np.ones((2, 6))
    params[:, 3:] = 0.0
    with pytest.raises(FloatingPointError, match="precision matrix is singular"):
        likelihood.divergences(params)
