"""The law of a row of features when there are too many for all values to be summed."""

import numpy as np
import pytest
from reference.features import log_linear_gaussian
from scipy.special import logsumexp
from scipy.stats import poisson
from support.designs import everyday
from support.examples import examples_of
from support.features import COMPONENT, NOISE, load, make_model

from skdpm.features.answers._predictive import RowLaw
from skdpm.features.likelihoods import LIKELIHOODS

RATE = 0.4


def problem(n_latent, seed=0, n_samples=6, d=3):
    """Rows near sums of components, some entries missing, components and log odds."""
    rng = np.random.default_rng(seed)
    V = rng.normal(size=(n_latent, d))
    X = (rng.random((n_samples, n_latent)) < 0.4) @ V + rng.normal(size=(n_samples, d))
    X[rng.random(X.shape) < 0.15] = np.nan
    return X, V, rng.normal(-0.5, 1.0, size=n_latent), rng.normal(size=d)


def evaluate(X, V, log_odds, b, beam):
    model = make_model(X, intercept=(np.zeros(X.shape[1]), 1.0))
    load(model, V, b=b)
    law = RowLaw(model, log_odds, poisson.logpmf(np.arange(20), RATE), beam)
    return law.evaluate(~np.isnan(X).all(axis=1))


def reference_bound(x, V, log_odds, b, beam):
    """What the beam sums, by its definition, and how many searches that takes."""
    n_latent = len(V)

    def log_w(z, m=0):
        z = np.array(z)
        noise = 1 / (1 / NOISE + m / COMPONENT)
        return (
            poisson.logpmf(m, RATE)
            + (z * log_odds - np.logaddexp(0, log_odds)).sum()
            + log_linear_gaussian(x[None], z[None], V, noise, b)
        )

    def flipped(z, k):
        return (*z[:k], 1 - z[k], *z[k + 1 :])

    best, n_searches = (0,) * n_latent, 0
    while n_searches < 4:
        n_searches += 1
        mode = best
        while True:
            gains = np.array([log_w(flipped(mode, k)) - log_w(mode) for k in range(n_latent)])
            if gains.max() < 1e-9:
                break
            mode = flipped(mode, gains.argmax())
        kept, gone = [mode], []
        for k in np.argsort(np.abs(gains), kind="stable"):
            found = sorted(kept + [flipped(z, k) for z in kept], key=log_w, reverse=True)
            kept, gone = found[:beam], gone + found[beam:]
        best = max(gone + kept, key=log_w)
        if best == mode:
            break
    log_weights = [log_w(z) for z in gone + kept]
    log_weights += [log_w(z, m) for z in kept for m in range(1, 20)]
    return logsumexp(log_weights), n_searches


@pytest.mark.slow
@pytest.mark.parametrize("beam", everyday([1, 5, 32], 5))
def test_the_beam_by_its_definition(beam):
    X, V, log_odds, b = problem(7, d=2)
    V, b = 2 * V, 2 * b  # little noise: values of two flips are often better
    found = evaluate(X, V, log_odds, b, beam)[0]
    expected = np.array([reference_bound(x, V, log_odds, b, beam) for x in X])
    np.testing.assert_allclose(found, expected[:, 0], rtol=1e-9)
    assert expected[:, 1].max() > 1 or beam == 1


@pytest.mark.parametrize("n_latent", [1, 2, 7, 10])
def test_a_beam_of_all_values_is_exact(n_latent):
    X, V, log_odds, b = problem(n_latent)
    for sums, expected in zip(
        evaluate(X, V, log_odds, b, 2**n_latent), evaluate(X, V, log_odds, b, 0), strict=True
    ):
        np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_a_beam_bounds_from_below_and_closes_in():
    for seed in range(2):
        X, V, log_odds, b = problem(16, seed, d=36)
        exact, probabilities, best = evaluate(X, V, log_odds, b, 0)
        bounds = [evaluate(X, V, log_odds, b, beam) for beam in (2, 16, 128, 1024)]
        gaps = np.array([exact - bound[0] for bound in bounds])
        assert (gaps > -1e-10).all()
        assert (np.diff(gaps, axis=0) < 1e-10).all()
        assert gaps[-1].max() < 0.1 and gaps[0].max() > 1e-3
        assert np.abs(bounds[-1][1] - probabilities).max() < 0.1
        np.testing.assert_array_equal(bounds[-1][2], best)


def test_sixteen_features_are_left_to_the_beam():
    for n_latent, beam in ((15, 0), (16, 512), (40, 512)):
        X, V, log_odds, b = problem(n_latent, n_samples=3)
        for default, expected in zip(
            evaluate(X, V, log_odds, b, None), evaluate(X, V, log_odds, b, beam), strict=True
        ):
            np.testing.assert_array_equal(default, expected)


def test_rows_do_not_see_each_other():
    X, V, log_odds, b = problem(20)
    whole = evaluate(X, V, log_odds, b, 64)
    for i in range(len(X)):
        for all_rows, row in zip(whole, evaluate(X[i : i + 1], V, log_odds, b, 64), strict=True):
            np.testing.assert_array_equal(all_rows[i], row[0])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_every_likelihood(name):
    """A beam asks for candidates that the sums over all values do not."""
    for likelihood, X in examples_of(LIKELIHOODS[name]):
        likelihood = likelihood.resolve(X)
        chain = likelihood.bind(likelihood.encode(X))
        chain.start(5, np.random.PCG64(0))
        results = []
        for beam in (0, 32):
            model = likelihood.bind(likelihood.encode_new(X))
            model.load(chain.save())
            model.see((np.arange(5 * len(X)) % 3 == 0).reshape(-1, 5))
            law = RowLaw(model, np.linspace(-1, 1, 5), poisson.logpmf(np.arange(20), RATE), beam)
            results.append(law.evaluate(likelihood.observed(X)))
        for sums, expected in zip(*results, strict=True):
            np.testing.assert_allclose(sums, expected, rtol=1e-9, atol=1e-12)


def test_a_row_without_a_law_is_named():
    X, V, log_odds, b = problem(16)
    V[3] = np.nan
    with pytest.raises(FloatingPointError, match="row 0 of X: no value has a positive weight"):
        evaluate(X, V, log_odds, b, None)
