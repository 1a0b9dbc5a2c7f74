"""Every registered prior over binary matrices, against enumeration: normalised, and one law.

What samplers see (log odds of a row's features, rate of its singletons), what new rows see and
what `draw` draws must all follow from log p(Z).
"""

import numpy as np
import pytest
from reference.features import (
    classes_of_buffet,
    enumerate_matrices,
    left_ordered,
    log_beta_bernoulli,
    log_indian_buffet,
)
from scipy.special import expit, gammaln, logsumexp
from scipy.stats import poisson
from support.probes import conditional
from support.pvalues import Cells, assert_p, chi_squared_p

from skdpm.features.priors import PRIORS

CONCENTRATION, K = 1.3, 3

# What a prior's class takes after the number of rows, and the reference's log p(Z): a line per
# prior.
CASES = {
    "beta_bernoulli": ((CONCENTRATION, K), log_beta_bernoulli),
    "indian_buffet": ((CONCENTRATION,), log_indian_buffet),
}


def make(name, n_samples, concentration=CONCENTRATION):
    return PRIORS[name](n_samples, concentration, *CASES[name][0][1:])


def test_every_prior_has_a_case():
    assert set(CASES) == set(PRIORS)


@pytest.mark.parametrize("name", PRIORS)
def test_log_probability(name):
    for n in (1, 2, 3):
        prior = make(name, n)
        for Z in enumerate_matrices(n, K):
            if prior.grows and not Z.any(axis=0).all():
                continue
            expected = CASES[name][1](Z, CONCENTRATION)
            assert prior.log_probability(Z.sum(axis=0)) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", PRIORS)
def test_it_sums_to_one(name):
    """Over all matrices, or over those of few features and the tail of their Poisson number."""
    prior = make(name, 2)
    if not prior.grows:
        sums = enumerate_matrices(2, K).sum(axis=1)
        assert logsumexp([prior.log_probability(m) for m in sums]) == pytest.approx(0, abs=1e-12)
        return
    total = 0.0
    for n_latent in range(5):
        matrices = enumerate_matrices(2, n_latent)
        sums = [Z.sum(axis=0) for Z in matrices if Z.any(axis=0).all()]
        total += np.exp([prior.log_probability(m) for m in sums]).sum()
    assert total == pytest.approx(poisson.cdf(4, CONCENTRATION * 1.5), abs=1e-12)


@pytest.mark.parametrize("name", PRIORS)
def test_conditional_laws(name):
    """The log odds of an entry, and the rate of singletons, are ratios of p(Z)."""
    n = 4
    prior = make(name, n)
    log_odds, new_rate = conditional(prior)
    for m in range(int(prior.grows), n):
        others = [2, 1]
        ratio = prior.log_probability([*others, m + 1]) - prior.log_probability([*others, m])
        assert log_odds[m] == pytest.approx(ratio, rel=1e-12)
    if not prior.grows:
        assert new_rate == 0.0
        return
    # Given two shared features, s singletons; p(Z) is over orderings of columns, of which classes
    # with s equal columns have fewer.
    s = np.arange(30)
    log_p = np.array([prior.log_probability([2, 3] + [1] * j) for j in s])
    log_p += gammaln(2 + s + 1) - gammaln(s + 1)
    np.testing.assert_allclose(
        np.exp(log_p - logsumexp(log_p)), poisson.pmf(s, new_rate), atol=1e-12
    )


@pytest.mark.parametrize("name", PRIORS)
def test_new_rows(name):
    """The law of a further row is p of the matrix with it over p of that without."""
    n = 3
    prior, larger = make(name, n), make(name, n + 1)
    Z = np.array([[1, 0], [1, 1], [0, 0]])
    sums = Z.sum(axis=0)
    padding = 0 if prior.grows else K - 2  # columns that no row has are part of a finite matrix
    log_odds = prior.log_odds_new(sums)
    log_pmf = prior.log_pmf_new(2, 40)
    assert logsumexp(log_pmf) == pytest.approx(0, abs=1e-12)
    rho = expit(log_odds)
    for row in enumerate_matrices(2, 1)[:, :, 0]:
        for m in range(3 if prior.grows else padding + 1):
            new = np.r_[np.ones(m, int), np.zeros(max(padding - m, 0), int)]
            with_row = larger.log_probability(np.r_[sums + row, new])
            without = prior.log_probability(np.r_[sums, np.zeros(padding, int)])
            # Of m new columns among the labelled ones, so many orderings.
            log_ways = gammaln(2 + m + 1) - gammaln(m + 1) - gammaln(3)
            if not prior.grows:
                log_ways = gammaln(padding + 1) - gammaln(m + 1) - gammaln(padding - m + 1)
            expected = np.log(np.where(row, rho, 1 - rho)).sum() + log_pmf[m]
            assert with_row - without + log_ways == pytest.approx(expected, rel=1e-10)


def draw_run(name, concentration=CONCENTRATION, n_draws=20_000):
    """A run for `assert_p`: the classes of matrices drawn. Planted: another concentration."""
    prior = make(name, 3, concentration)
    if prior.grows:
        classes, probabilities = classes_of_buffet(3, 4, CONCENTRATION)
    else:
        matrices = enumerate_matrices(3, K)
        names = [left_ordered(Z) for Z in matrices]
        log_p = np.array([CASES[name][1](Z, CONCENTRATION) for Z in matrices])
        classes = sorted(set(names))
        probabilities = np.zeros(len(classes))
        np.add.at(probabilities, [classes.index(c) for c in names], np.exp(log_p))
    index = {c: j for j, c in enumerate(classes)}
    probabilities = np.append(probabilities, max(0.0, 1 - probabilities.sum()))
    if not prior.grows:
        probabilities /= probabilities.sum()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        counts = np.zeros(len(probabilities), dtype=np.int64)
        for _ in range(round(n_draws * factor)):
            counts[index.get(left_ordered(prior.draw(rng)), len(classes))] += 1
        return Cells(counts, probabilities)

    return run


@pytest.mark.parametrize("name", PRIORS)
@pytest.mark.some(1)
def test_draws(name, seed_sequence):
    assert_p(draw_run(name), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("name", PRIORS)
def test_power_draws(name, seed_sequence):
    cells = draw_run(name, CONCENTRATION + 0.15)(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6
