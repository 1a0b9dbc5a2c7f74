"""The warning of counts that vary more within clusters than the Poisson law allows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from support.designs import everyday

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Categorical, NegativeBinomial, Poisson, Product

SHORT = {"n_chains": 1, "n_warmup": 40, "n_draws": 20, "random_state": 0}
MEANS = np.array([[5.0, 20.0], [40.0, 60.0]])


def counts(rng, n, dispersion, means=MEANS):
    labels = np.arange(n) % len(means)
    factors = rng.gamma(1.0 / dispersion, dispersion, (n, means.shape[1])) if dispersion else 1.0
    return rng.poisson(means[labels] * factors).astype(float)


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


@pytest.mark.parametrize("n_features", [1, 3, 40])
def test_fits_to_poisson_counts_do_not(n_features, seed):
    rng = np.random.default_rng(seed)
    means = rng.gamma(2.0, 10.0, size=(4, n_features))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        DPMixture(likelihood=Poisson(), **SHORT).fit(counts(rng, 600, 0.0, means))


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


@pytest.mark.parametrize("name", ["negative_binomial", "poisson"])
def test_unequal_totals_are_named(name):
    X = unequal(np.random.default_rng(0), 80, 15, 0.3, 3.0)
    model = DPMixture(likelihood=name, **SHORT)
    with pytest.warns(UserWarning, match=r"larger counts than others in all columns.*X\.sum"):
        model.fit(X)
    model.set_params(likelihood=NegativeBinomial())
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model.fit(X, exposure=X.sum(axis=1) / X.sum(axis=1).mean())


def test_clusters_that_explain_totals_do_not_warn():
    rng = np.random.default_rng(0)
    levels = np.array([[3.0], [30.0], [120.0]])[np.arange(300) % 3]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        model = DPMixture(likelihood="negative_binomial", **SHORT)
        model.fit(unequal(rng, 80, 15, 1.0, 1.0))
        model.fit(rng.poisson(levels * rng.gamma(3.0, 1.0 / 3.0, (300, 5))))


def test_counts_of_a_table_are_named_for_the_exposure():
    X = unequal(np.random.default_rng(0), 80, 15, 0.3, 3.0)
    table = np.column_stack([np.arange(80) % 2, X])
    parts = [("kind", Categorical(), [0]), ("counts", NegativeBinomial(), slice(1, None))]
    with pytest.warns(UserWarning, match=r"exposure=X\[:, \[1, 2, .*15\]\]\.sum\(axis=1\) /"):
        DPMixture(likelihood=Product(parts), **SHORT).fit(table)
