"""Rows of which nothing is known: they say nothing about clusters, and join the largest one."""

import pickle
import re

import numpy as np
import pytest
from support.designs import combinations

from skdpm import DPMixture, partitions
from skdpm.mixture.estimate import state_of_estimate
from skdpm.mixture.likelihoods import (
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Product,
    Relational,
    VonMisesFisher,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"n_warmup": 15, "n_draws": 10, "n_chains": 2, "random_state": 1}
EMPTY = np.array([2, 30, 31, 32, 33, 50])


def rows_of(name):
    """A likelihood, and sixty rows in three clusters, six of them empty."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1, 2], [30, 18, 12])
    numbers = 7.0 * kind[:, None] + rng.normal(size=(60, 2))
    codes = np.where(rng.random((60, 4)) < 0.1, rng.integers(3, size=(60, 4)), kind[:, None])
    likelihood, X = {
        "full": (Gaussian(), numbers),
        "diag": (Gaussian(covariance_type="diag"), numbers),
        "poisson": (Poisson(), rng.poisson(1.0 + 9.0 * kind[:, None] * np.ones(3))),
        "categorical": (Categorical(), codes),
        "multinomial": (Multinomial(), 9 * np.eye(3)[kind] + rng.integers(2, size=(60, 3))),
        "directions": (VonMisesFisher(30.0, 1.0), np.eye(3)[kind] + 0.1 * rng.random((60, 3))),
        "product": (
            Product([("a", Gaussian(), [0, 1]), ("b", Categorical(), [2, 3, 4, 5])]),
            np.hstack([numbers, codes]),
        ),
    }[name]
    X = X.astype(float)
    X[EMPTY] = 0.0 if name in ("multinomial", "directions") else np.nan
    return likelihood, X


@combinations(
    name=["full", "diag", "poisson", "categorical", "multinomial", "directions", "product"],
    point_estimate=["modal", "vi", "binder", "map", "last"],
    kind=["plain", "noise", "known"],
)
@pytest.mark.some(1)
def test_clusters_are_those_of_the_other_rows(name, point_estimate, kind):
    likelihood, X = rows_of(name)
    model = DPMixture(likelihood=likelihood, point_estimate=point_estimate, **SHORT)
    known = None
    if kind == "known":
        known = np.full(60, -1)
        known[[0, 40, 2]] = 0, 1, 1
    empty = EMPTY if known is None else EMPTY[1:]
    model.set_params(noise=kind == "noise" or None).fit(X, known_labels=known)
    others = np.delete(np.arange(60), empty)
    labels, draws = model.labels_, model.label_samples_[:, :, others].astype(int)

    sizes = np.bincount(labels[others][labels[others] >= 0])
    assert (labels[empty] == sizes.argmax()).all() and model.n_clusters_ == len(sizes)
    np.testing.assert_array_equal(model.predict(X[empty]), labels[empty])
    assert model.probabilities_[empty] == pytest.approx(model.weights_.max())
    assert model.weights_.max() < 0.9
    np.testing.assert_allclose(model.weights_ / model.weights_.sum(), sizes / 54, atol=0.03)

    clusters = model.cluster_samples_[:, :, others]
    found = [[len(np.unique(draw[draw >= 0])) for draw in chain] for chain in clusters]
    np.testing.assert_array_equal(model.n_clusters_samples_, found)
    if point_estimate in ("vi", "binder") and kind == "plain":
        state = state_of_estimate(model._training.entropy)
        expected = partitions.point_estimate(draws, point_estimate, random_state=state)
        np.testing.assert_array_equal(labels[others], expected)
        distances = partitions.partition_distances(draws, draws[0, 0])
        found = partitions.partition_distances(clusters, draws[0, 0])
        np.testing.assert_allclose(found, distances, atol=1e-12)
        probabilities = partitions.label_probabilities(draws, expected)
        np.testing.assert_array_equal(model.probabilities_[others], probabilities)
    if known is None:
        assert set(model.merge_tree().cut(1)) <= {-1, 0}
        assert set(model.estimate_labels(max_clusters=2).labels_) <= {-1, 0, 1}
        assert (model.labels_[empty] == 0).all()


@pytest.mark.long
def test_parameters_do_not_depend_on_empty_rows():
    """Neither those of clusters nor weights of predictions, given the partition of the others."""
    likelihood, X = rows_of("full")
    model = DPMixture(likelihood=likelihood, **SHORT).fit(X)
    likelihood, labels = model.likelihood_, np.delete(model.labels_, EMPTY)
    for k, mean in enumerate(model.cluster_params_["means"]):
        rows = np.delete(X, EMPTY, axis=0)[labels == k]
        weight = likelihood.mean_precision / (likelihood.mean_precision + len(rows))
        expected = weight * likelihood.mean + (1.0 - weight) * rows.mean(axis=0)
        np.testing.assert_allclose(mean, expected, rtol=1e-9)


@pytest.mark.parametrize("directed", [False, True])
def test_nodes_without_known_links(directed):
    """A node of which only incoming links are known is informative."""
    rng = np.random.default_rng(0)
    kind = np.repeat([0, 1], [14, 10])
    X = (rng.random((24, 24)) < np.where(kind[:, None] == kind, 0.95, 0.05)).astype(float)
    if not directed:
        X = np.triu(X, 1) + np.triu(X, 1).T
    X[[15, 20]] = X[:, [15, 20]] = np.nan
    X[np.diag_indices(24)] = 0.0
    if directed:
        X[18] = np.nan
    model = DPMixture(likelihood=Relational(directed=directed), **SHORT)
    model.fit(X)
    others = np.delete(np.arange(24), [15, 20])
    np.testing.assert_array_equal(model.labels_[others], kind[others])
    assert model.labels_[[15, 20]].tolist() == [0, 0] and model.weights_.max() < 0.7
    assert model.probabilities_[[15, 20]] == pytest.approx(model.weights_[0])
    assert np.isfinite(model.predict_proba(X)).all()


def test_exposures_say_nothing():
    likelihood, X = rows_of("poisson")
    model = DPMixture(likelihood=likelihood, point_estimate="last", **SHORT)
    model.fit(X, exposure=np.linspace(0.5, 2.0, 60))
    assert (model.labels_[EMPTY] == 0).all()
    assert model.probabilities_[EMPTY] == pytest.approx(model.weights_[0])


def test_all_rows_may_be_empty():
    X = np.full((12, 2), np.nan)
    with pytest.warns(UserWarning, match="all entries of X are missing"):
        model = DPMixture(likelihood=Gaussian(covariance_type="diag"), **SHORT).fit(X)
    with pytest.warns(UserWarning, match="all entries of X are missing"):
        DPMixture(likelihood="poisson", **SHORT).fit(X, exposure=np.ones(12))
    assert model.labels_.min() == 0 and np.isfinite(model.probabilities_).all()
    with pytest.warns(UserWarning, match="all entries of X are 0"):
        DPMixture(likelihood="von_mises_fisher", **SHORT).fit(np.zeros((12, 2)))


def test_known_labels_may_be_all_that_is_known():
    known = np.repeat([0, 1, -1], 4)
    with pytest.warns(UserWarning, match="So clusters follow from known_labels alone, and"):
        model = DPMixture(**SHORT).fit(np.full((12, 2), np.nan), known_labels=known)
    assert model.n_clusters_ == 2 and (model.labels_[:8] == known[:8]).all()


@pytest.mark.long
def test_empty_columns_and_rows_are_named():
    _, X = rows_of("directions")
    model = DPMixture(likelihood="von_mises_fisher", **SHORT).fit(X)
    model = pickle.loads(pickle.dumps(model))
    assert re.search(r"\nrows +6 of 60 contain no information", model.summary())
    assert "they are in the largest cluster" in model.summary()
    model.labels_ = np.full(60, -1)  # as if all rows were noise
    del model._other_readings
    assert "they are noise" in model.summary()
    X = np.where(np.arange(3) == 1, np.nan, np.random.default_rng(0).normal(size=(60, 3)))
    model = DPMixture(likelihood=Gaussian(covariance_type="diag"), **SHORT)
    with pytest.warns(UserWarning, match="^X has no entries in column 1; answers about it"):
        model.fit(X)
    assert re.search(r"\ncolumns +column 1 without entries", model.summary())
    assert "\nrows" not in model.summary()
