"""The warning of counts that vary more within clusters than the Poisson law allows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from scipy.sparse import csr_array
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from support.designs import everyday

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture import overdispersion
from skdpm.mixture.likelihoods import (
    Categorical,
    NegativeBinomial,
    Poisson,
    Product,
    Relational,
)

SHORT = {"n_chains": 1, "n_warmup": 40, "n_draws": 20, "random_state": 0}
MEANS = np.array([[5.0, 20.0], [40.0, 60.0]])


def counts(rng, n, dispersion, means=MEANS):
    labels = np.arange(n) % len(means)
    factors = rng.gamma(1.0 / dispersion, dispersion, (n, means.shape[1])) if dispersion else 1.0
    return rng.poisson(means[labels] * factors).astype(float)


@pytest.mark.slow
@pytest.mark.parametrize("columns", everyday([[0], [0, 1]], [0, 1]))
@pytest.mark.parametrize("sampler", everyday(["auto", "sub_cluster"], "auto"))
def test_fits_to_overdispersed_counts_warn(columns, sampler, seed):
    X = counts(np.random.default_rng(seed), 1000, 1 / 3)[:, columns]
    model = DPMixture(likelihood=Poisson(), sampler=sampler, **SHORT)
    named = "column 0 and column 1" if len(columns) == 2 else "column 0"
    with pytest.warns(UserWarning, match=rf"{named} of X .*Use NegativeBinomial\(\)"):
        model.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.set_params(likelihood=NegativeBinomial()).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("n_features", everyday([1, 3, 40], 3))
def test_fits_to_poisson_counts_do_not(n_features, seed):
    rng = np.random.default_rng(seed)
    means = rng.gamma(2.0, 10.0, size=(4, n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        DPMixture(likelihood=Poisson(), **SHORT).fit(counts(rng, 600, 0.0, means))


@pytest.mark.slow
def test_columns_of_a_table_are_named():
    rng = np.random.default_rng(0)
    X = counts(rng, 800, 0.5)
    table = pd.DataFrame(
        {
            "kind": np.array(["a", "b"])[np.arange(800) % 2],
            "even": rng.poisson(7.0, size=800),
            "visits": X[:, 0],
            "stays": X[:, 1],
        }
    )
    parts = [
        ("kind", Categorical(), ["kind"]),
        ("counts", Poisson(), ["even", "visits", "stays"]),
    ]
    with pytest.warns(UserWarning, match="column 'visits' and column 'stays' of X vary"):
        DPMixture(likelihood=Product(parts), **SHORT).fit(table)


@pytest.mark.slow
def test_few_rows_known_labels_and_missing_entries():
    X = counts(np.random.default_rng(0), 600, 0.5)
    quiet = DPMixture(likelihood=Poisson(), **SHORT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        quiet.fit(X[:40])
        quiet.fit(X, known_labels=np.where(np.arange(600) < 4, np.arange(600) % 2, -1))
    X[::7, 0] = np.nan
    with pytest.warns(UserWarning, match="NegativeBinomial"):
        quiet.fit(X)


def unequal(rng, n, n_features, low, high, shape=5.0):
    """Two kinds of rows that differ in a third of the columns, of unequal depth."""
    means = rng.gamma(2.0, 20.0, n_features) * np.where(
        rng.random((2, n_features)) < 0.3, 4.0, 1.0
    )
    rates = means[np.arange(n) % 2] * rng.uniform(low, high, (n, 1))
    return rng.poisson(rates * rng.gamma(shape, 1.0 / shape, rates.shape))


@pytest.mark.parametrize("name", everyday(["negative_binomial", "poisson"], "poisson"))
@pytest.mark.long
def test_unequal_totals_are_named(name):
    X = unequal(np.random.default_rng(0), 80, 15, 0.3, 3.0)
    model = DPMixture(likelihood=name, **SHORT)
    with pytest.warns(UserWarning, match=r"larger counts than others in all columns.*X\.sum"):
        model.fit(X)
    model.set_params(likelihood=NegativeBinomial())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, exposure=X.sum(axis=1) / X.sum(axis=1).mean())


@pytest.mark.slow
def test_clusters_that_explain_totals_do_not_warn():
    rng = np.random.default_rng(0)
    levels = np.array([[3.0], [30.0], [120.0]])[np.arange(300) % 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = DPMixture(likelihood="negative_binomial", **SHORT)
        model.fit(unequal(rng, 80, 15, 1.0, 1.0))
        model.fit(rng.poisson(levels * rng.gamma(3.0, 1.0 / 3.0, (300, 5))))


@pytest.mark.slow
def test_counts_of_a_table_are_named_for_the_exposure():
    X = unequal(np.random.default_rng(0), 80, 15, 0.3, 3.0)
    table = np.column_stack([np.arange(80) % 2, X])
    parts = [("kind", Categorical(), [0]), ("counts", NegativeBinomial(), slice(1, None))]
    with pytest.warns(UserWarning, match=r"exposure=X\[:, \[1, 2, .*15\]\]\.sum\(axis=1\) /"):
        DPMixture(likelihood=Product(parts), **SHORT).fit(table)


def network(dispersion, directed, n=60, n_groups=2):
    """Two groups with hubs, and numbers of links with a dispersion for each pair."""
    rng = np.random.default_rng(0)
    group = np.arange(n) % n_groups
    propensity = rng.gamma(3.0, 1.0 / 3.0, n)
    means = np.where(group[:, None] == group, 3.0, 0.5) * np.outer(propensity, propensity)
    if dispersion:
        means *= rng.gamma(1.0 / dispersion, dispersion, means.shape)
    X = rng.poisson(means).astype(float)
    return X if directed else np.triu(X, 1) + np.triu(X, 1).T


def fit_network(X, directed):
    likelihood = Relational(degree_correction=True, directed=directed)
    return DPMixture(likelihood=likelihood, **{**SHORT, "n_warmup": 20, "n_draws": 5}).fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("directed", everyday([False, True], False))
def test_weights_of_networks_are_reported(directed):
    X = network(1.0, directed)
    message = "numbers of links in X vary more .* than Poisson numbers"
    with pytest.warns(UserWarning, match=message):
        fit_network(X if directed else csr_array(X), directed)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit_network(network(0.0, directed), directed)
        fit_network(network(0.0, directed, n_groups=5), directed)
        fit_network((X > 0).astype(float), directed)


def test_the_gain_of_a_network_is_that_of_its_laws():
    X, labels = network(1.0, False), np.arange(60) % 2
    i, j = np.triu_indices(60, 1)
    ends = X.sum(axis=1)
    sums = np.array([ends[labels == k].sum() for k in (0, 1)])
    between = np.array([[X[labels == k][:, labels == l].sum() for l in (0, 1)] for k in (0, 1)])
    k, l = labels[i], labels[j]
    m = between[k, l] * ends[i] * ends[j] / (sums[k] * sums[l])
    x = X[i, j]
    phi = np.sum((x - m) ** 2 - x) / np.sum(m**2)
    expected = stats.nbinom(1.0 / phi, 1.0 / (1.0 + phi * m)).logpmf(x)
    expected -= stats.poisson(m).logpmf(x)
    found = overdispersion._gain_of_dispersion(X, labels, False)
    np.testing.assert_allclose(found, expected.sum() - 0.5 * np.log(len(x)))
    assert overdispersion._gain_of_dispersion(network(0.0, False), labels, False) == 0.0


@pytest.mark.parametrize("shape", [5.0, 50.0])
def test_counts_that_vary_more_than_multinomial_ones(shape):
    X = unequal(np.random.default_rng(0), 40, 30, 0.3, 3.0, shape)
    with pytest.warns(UserWarning, match=r"parts of kinds.*NegativeBinomial.*exposure=X"):
        DPMixture(likelihood="multinomial", **SHORT).fit(X)


def texts(rng, n, n_kinds, spread, n_words=30.0):
    """Counts of 300 words in texts whose words vary more within a kind if the spread is small."""
    kinds = rng.dirichlet(np.full(300, 0.05), n_kinds)
    labels = rng.integers(n_kinds, size=n)
    X = [
        rng.multinomial(rng.poisson(n_words) + 1, rng.dirichlet(spread * kinds[k] + 1e-3))
        for k in labels
    ]
    return csr_array(np.array(X, dtype=np.float64)), labels


@pytest.mark.long
def test_words_that_vary_within_a_subject():
    X, _ = texts(np.random.default_rng(0), 200, 5, 12.0)
    with pytest.warns(UserWarning, match=r'parts of kinds.*FiniteMixture\(k, likelihood="multin'):
        assert DPMixture(likelihood="multinomial", **SHORT).fit(X).n_clusters_ > 20
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        FiniteMixture(60, likelihood="multinomial", **SHORT).fit(X)  # the number is given
        X, labels = texts(np.random.default_rng(0), 200, 25, 1e9)
        model = DPMixture(likelihood="multinomial", **SHORT).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.9


@pytest.mark.parametrize("n_kinds, n_words", [(20, 10.0), (40, 100.0), (80, 30.0)])
@pytest.mark.some(1)
@pytest.mark.long
def test_pairs_of_words(n_kinds, n_words):
    """False alarms are too rare to be seen, and words that vary are found, in small clusters."""
    found = {}
    for spread in (1e9, 20.0):
        rng = np.random.default_rng(0)
        drawn = [texts(rng, 200, n_kinds, spread, n_words) for _ in range(20)]
        found[spread] = sum(overdispersion.vary_in_shares(*text) for text in drawn)
        assert not overdispersion.vary_in_shares(drawn[0][0], np.zeros(200, int))  # a large one
        assert not overdispersion.vary_in_shares(drawn[0][0], np.arange(200))  # alone
        assert not overdispersion.vary_in_shares(drawn[0][0] * 0.0, np.arange(200) // 2)
        long = csr_array(np.r_[drawn[0][0].toarray(), np.full((1, 300), 1e3)])  # alone, long
        assert overdispersion.vary_in_shares(long, np.r_[drawn[0][1], 99]) == (spread == 20.0)
    assert found == {1e9: 0, 20.0: 20}


def kinds_by_crp(rng, n, alpha, n_columns, n_words):
    """Counts under the law, whose partition is that of a Chinese restaurant process."""
    labels = np.zeros(n, dtype=int)
    for i in range(1, n):
        sizes = np.append(np.bincount(labels[:i]), alpha)
        labels[i] = rng.choice(len(sizes), p=sizes / sizes.sum())
    kinds = rng.dirichlet(np.full(n_columns, 0.1), labels.max() + 1)
    return csr_array(rng.multinomial(rng.poisson(n_words, n) + 1, kinds[labels]) * 1.0), labels


@pytest.mark.parametrize(
    "n, alpha, n_columns, n_words", [(60, 20, 300, 10), (200, 50, 100, 50), (100, 90, 12, 200)]
)
@pytest.mark.long
def test_fragments(n, alpha, n_columns, n_words):
    """Kinds of one or two rows are no fragments, and the rows of few kinds are."""
    n_alarms = n_found = 0
    for seed in range(20):
        X, labels = kinds_by_crp(np.random.default_rng(seed), n, alpha, n_columns, n_words)
        n_alarms += overdispersion.are_fragments(X, labels)
        few = csr_array(X.toarray()[:, :9])
        assert not overdispersion.are_fragments(few, labels)
        X, labels = kinds_by_crp(np.random.default_rng(seed), n, 1.0, n_columns, n_words)
        assert not overdispersion.are_fragments(X, labels)
        n_found += overdispersion.are_fragments(X, np.arange(n) // 2)
        assert not overdispersion.are_fragments(X, np.arange(n) // 3)  # too large
        assert not overdispersion.are_fragments(X * 0.0, np.arange(n))
    assert (n_alarms, n_found) == (0, 20)


@pytest.mark.long
def test_pairs_of_fragments_follow_from_permutations(monkeypatch):
    """The excess and the standard deviation are those of columns permuted in each cluster."""
    rng = np.random.default_rng(0)
    X = rng.poisson(0.4, (18, 12)) * 1.0
    labels = np.r_[np.arange(6), np.repeat([6, 7], 6)]

    def pairs(X):
        sums = np.array([X[labels == k].sum(axis=0) for k in range(8)])
        products = sums @ sums.T
        return (products.sum() - products[6:, 6:].sum() - np.trace(products[:6, :6])) / 2.0

    drawn = []
    for _ in range(4000):
        orders = np.array([rng.permutation(12) for _ in range(8)])
        drawn.append(pairs(np.take_along_axis(X, orders[labels], axis=1)))
    excess = (pairs(X) - np.mean(drawn)) / np.std(drawn)
    for by, found in ((-0.1, True), (0.1, False)):
        monkeypatch.setattr(overdispersion, "CLEAR_OF_SHARES", excess + by)
        assert overdispersion.are_fragments(csr_array(X), labels) == found


def test_words_of_two_texts_and_of_a_subject():
    """Pairs of texts have most words to themselves, so that only pairs with other texts tell."""
    rng = np.random.default_rng(0)
    subjects, own = rng.dirichlet(np.full(200, 0.05), 3), rng.dirichlet(np.full(200, 0.02), 40)
    text = np.arange(80)
    X = csr_array(rng.multinomial(40, 0.3 * subjects[text % 3] + 0.7 * own[text // 2]) * 1.0)
    model = DPMixture(likelihood="multinomial", **SHORT)
    with pytest.warns(UserWarning, match=r"Multinomial\(concentration=1.0\), or FiniteM"):
        labels = model.fit(X).draws_["labels"][0, -1]
    assert not overdispersion.vary_in_shares(X, labels)


@pytest.mark.slow
@pytest.mark.parametrize("mean", everyday([1.0, 10.0], 10.0))
def test_multinomial_noise_is_one_cluster(mean):
    rng = np.random.default_rng(0)
    model = DPMixture(likelihood="multinomial", random_state=0, n_chains=1)
    kinds = rng.dirichlet(np.full(30, 2.0), 2)[np.arange(40) % 2]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert model.fit(rng.poisson(mean, (40, 50))).n_clusters_ == 1
        assert model.fit(rng.multinomial(100, kinds)).n_clusters_ == 2
