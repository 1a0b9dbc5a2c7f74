"""Kernels of a stream: what they say of a row depends on the row, the cluster and the likelihood,
and neither on how long tables are nor on the batch in which the row comes."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from reference.simulate import log_normal_on_grid, missing_counts, simulate_data
from support.kernels import bind
from support.probes import Probe

from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    PyClone,
    Subspace,
    VonMisesFisher,
)
from skdpm.mixture.likelihoods.contract import base

rng = np.random.default_rng(5)
N, D = 23, 11


def holes(X):
    """X with missing entries in a column or two of some rows: none of the first."""
    Y = X.copy()
    Y[[4, 6, -4, -1], 3] = np.nan
    Y[-3:, 7] = np.nan
    return Y


numbers = rng.normal(size=(N, D)) + 3.0 * rng.integers(0, 2, size=(N, 1))
counts = rng.poisson(3.0, size=(N, D)).astype(np.float64)
# Beyond the longest table, by one count or by the sum of several.
large = counts.copy()
large[4, 2] = 3e6
large[5:, 4] = 2e5
codes = rng.integers(0, np.arange(2, 2 + D), size=(N, D)).astype(np.float64)
bits = (rng.random((N, D)) < 0.4).astype(np.float64)
mutations = simulate_data(
    "pyclone",
    np.arange(N) % 2,
    rng,
    n_features=18,
    missing=missing_counts(np.arange(3 * N).reshape(N, 3) % 11 == 7),
    density="binomial",
    error_rate=1e-3,
    genotype_prior="total",
    n_grid=9,
)
full = {"mean": 0.3, "mean_precision": 0.2, "df": D + 1.5, "scale": 1.3}
diag = full | {"covariance_type": "diag", "scale": np.linspace(0.5, 2.0, D)}

# Hyperparameters are given: nothing is resolved on the rows.
GIVEN = {
    "gaussian": (Gaussian(**full), numbers),
    "diag": (Gaussian(**diag), numbers),
    "diag holes": (Gaussian(**diag), holes(numbers)),
    "bernoulli": (Bernoulli(a=0.8, b=1.7), holes(bits)),
    "categorical": (Categorical(0.7, n_categories=np.arange(2, 2 + D)), holes(codes)),
    "categorical many": (
        Categorical(np.linspace(0.5, 2.0, D), n_categories=np.arange(2, 2 + D)),
        codes,
    ),
    "poisson": (Poisson(shape=0.7, rate=0.2), holes(counts)),
    "poisson large": (Poisson(shape=2.0, rate=1e-3), large),
    "poisson large holes": (Poisson(shape=2.0, rate=1e-3), holes(large)),
    "negative_binomial": (NegativeBinomial(shape=0.7, rate=0.2, dispersion=0.3), holes(counts)),
    "negative_binomial large": (
        NegativeBinomial(shape=2.0, rate=1e-3, dispersion=np.linspace(0.1, 2.0, D)),
        holes(large),
    ),
    "multinomial": (Multinomial(concentration=0.8), counts),
    "multinomial large": (Multinomial(concentration=0.8), sp.csr_array(large)),
    "grid": (Grid(log_normal_on_grid, np.linspace(-2.0, 6.0, 13)), holes(numbers)),
    "pyclone": (PyClone("beta_binomial", 200.0, n_grid=21), mutations),
    "subspace": (Subspace(4, mean=0.3, mean_precision=0.2, df=6.5, scale=1.3), numbers),
    "von_mises_fisher": (VonMisesFisher(concentration=9.0, spread=1.5), numbers),
    "von_mises_fisher sparse": (
        VonMisesFisher(concentration=9.0, spread=1.5),
        sp.csr_array(counts + (np.arange(D) == 0)),
    ),
    "product": (
        Product(
            [
                ("numbers", Gaussian(**diag), slice(D)),
                ("whole", Gaussian(**full), slice(D, 2 * D)),
                ("codes", Categorical(0.7, n_categories=np.arange(2, 2 + D)), slice(2 * D, 3 * D)),
                ("counts", Poisson(shape=0.7, rate=0.2), slice(3 * D, None)),
            ]
        ),
        np.hstack([holes(numbers), numbers, holes(codes), holes(counts)]),
    ),
    "multinomial base": (Multinomial(3.0, base=np.linspace(0.5, 2.0, D)), counts),
}
given = pytest.mark.parametrize("name", GIVEN)


def test_every_likelihood_is_here():
    product = {name for name, cls in LIKELIHOODS.items() if "product" in cls().capabilities}
    assert product == {name.split()[0] for name in GIVEN} - {"diag"}


def history(model, values=None):
    """What a kernel says while rows come and go: two clusters, an empty one, a merger."""
    if values:
        model.clear(0)
        model.set_hyperparameters(values.flat_hyperparameters())
    probe = Probe(model, 5)
    one, two, empty, both = (probe.acquire() for _ in range(4))
    slots = np.array([one, two, empty])
    told = []
    for i in range(model.n_samples):
        told.append(probe.log_predictive_many(slots, i))
        probe.add(one if i % 3 else two, i)
    for i in range(1, model.n_samples, 4):
        slot = one if i % 3 else two
        probe.remove(slot, i)
        told.append(probe.log_predictive_many(slots, i))
        probe.add(slot, i)
    probe.copy(both, one)
    probe.merge(both, two)
    told.append(probe.log_predictive_many(np.array([both, one, two]), 0))
    told.append([probe.log_marginal(slot) for slot in (one, two, both)])
    probe.refresh(both)
    told.append([probe.log_predictive(both, 1)] * 3)
    return np.array(told)


@given
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.some(10)
def test_the_length_of_tables_changes_no_bit(name, learned, monkeypatch):
    likelihood, X = GIVEN[name]
    likelihood = likelihood.resolve(X)
    # As in predictions: rows with and without holes are added up in the same way.
    data = likelihood.encode_new(X)
    values = None
    if learned:
        values = likelihood.at(
            {key: 1.25 * getattr(likelihood, key) for key in likelihood.hyperparameters}
        )
    long, whole = (history(bind(likelihood, data, n_max), values) for n_max in (None, N))
    monkeypatch.setattr(base, "TABLED", 2)
    short = history(bind(likelihood, data, None), values)
    assert np.isfinite(long).all()
    np.testing.assert_array_equal(short, long)
    np.testing.assert_array_equal(whole, long)


@given
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("cuts", [[1], [7, 8], [3, 9, 18]])
@pytest.mark.some(30)
def test_batches_change_no_bit(name, learned, cuts, monkeypatch):
    """Rows in several batches, under a likelihood resolved on the first, give what they give in
    one. Statistics go over with the terms cached from them."""
    monkeypatch.setattr(base, "TABLED", 4)
    likelihood, X = GIVEN[name]

    def run(edges):
        # The axes of a subspace are those of the rows that it is resolved on.
        resolved = likelihood.resolve(X if name == "subspace" else X[: edges[1]])
        values = None
        if learned:
            values = resolved.at(
                {key: 1.25 * getattr(resolved, key) for key in resolved.hyperparameters}
            )
        rows, told = None, []
        for first, stop in itertools.pairwise(edges):
            model = bind(resolved, resolved.encode(X[first:stop]), None)
            if values is not None:
                model.clear(0)
                model.set_hyperparameters(values.flat_hyperparameters())
            probe = Probe(model, 3)
            slots = np.arange(3)
            if rows is None:
                slots = np.array([probe.acquire() for _ in range(3)])
            else:
                model.load(rows, slots)
            for i in range(stop - first):
                told.append(probe.log_predictive_many(slots, i))
                probe.add(slots[0 if (first + i) % 3 else 1], i)
            rows = model.dump(slots, True)
        return np.array(told), rows, model.log_marginals(model.dump(slots[:2]))

    whole, parts = run([0, N]), run([0, *cuts, N])
    assert np.isfinite(whole[0]).all()
    for expected, actual in zip(whole, parts, strict=True):
        np.testing.assert_array_equal(actual, expected)


@pytest.mark.parametrize("name", ["gaussian", "diag", "poisson"])
def test_tables_of_learned_hyperparameters_do_not_depend_on_the_batch(name):
    """Clusters beyond the end of the table that a kernel makes for other hyperparameters."""
    likelihood, X = GIVEN[name]
    likelihood = likelihood.resolve(X)
    values = {key: 1.25 * getattr(likelihood, key) for key in likelihood.hyperparameters}
    told = []
    for n_rows in (1, 500):
        model = bind(likelihood, likelihood.encode(np.tile(X[:1], (n_rows, 1))), None)
        stats = np.zeros((400, model.n_stats))
        stats[:, 0] = np.arange(2000, 2400)
        if name != "gaussian":
            stats[:, -2 * D : -D] = stats[:, 1 : 1 + D] = stats[:, :1]
            stats[:, -D:] = stats[:, :1]
        model.clear(0)
        model.set_hyperparameters(likelihood.at(values).flat_hyperparameters())
        model.load(stats)
        told.append(model.log_predictive_rows(np.arange(400), 0, 1))
    np.testing.assert_array_equal(told[0], told[1])


@pytest.mark.parametrize("name", ["poisson", "poisson large", "multinomial large"])
def test_rows_leave_nothing_behind(name):
    """Not even the factorials of large counts, whose sums round."""
    likelihood, X = GIVEN[name]
    likelihood = likelihood.resolve(X)
    data = likelihood.encode(X)
    probe = Probe(likelihood.bind(data, likelihood.tables(data, None)), 1)
    slot = probe.acquire()
    for i in range(N):
        probe.add(slot, i)
    for i in range(N):
        probe.remove(slot, i)
    np.testing.assert_array_equal(probe.model.dump([slot]), np.zeros((1, probe.model.n_stats)))


def test_a_later_batch_with_an_unnamed_category_is_refused():
    likelihood = Categorical().resolve(codes[:5])
    most = codes[:5].max(axis=0)
    later = np.tile(most, (2, 1))
    likelihood.encode(later)
    later[1, 6] += 1.0
    message = rf"column 6 of X holds the code {later[1, 6]:g}, but its categories are 0 to"
    with pytest.raises(ValueError, match=message):
        likelihood.encode(later)
