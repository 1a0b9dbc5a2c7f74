# SPDX-License-Identifier: BSD-3-Clause
"""skdpm.metrics against the definitions, by loops over pairs of rows."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln
from sklearn.metrics import make_scorer

from skdpm import FeatureAllocation, metrics
from skdpm.features.likelihoods import LinearGaussian
from skdpm.metrics import b_cubed_score, description_length


def one_sided(claimed, other):
    """Mean over rows of the mean over rows that share a claimed feature; None: no such row."""
    claimed, other = [[set(np.flatnonzero(z)) for z in Z] for Z in (claimed, other)]
    of_rows = []
    for i in range(len(claimed)):
        terms = []
        for j in range(len(claimed)):
            shared = len(claimed[i] & claimed[j])
            if shared > 0:
                terms.append(min(shared, len(other[i] & other[j])) / shared)
        if terms:
            of_rows.append(sum(terms) / len(terms))
    return sum(of_rows) / len(of_rows) if of_rows else None


def reference(Z_true, Z_pred):
    precision, recall = one_sided(Z_pred, Z_true), one_sided(Z_true, Z_pred)
    if precision is None and recall is None:
        return 1.0
    if not precision or not recall:
        return 0.0
    return 2 / (1 / precision + 1 / recall)


@pytest.mark.parametrize("n_true, n_pred, density", [(3, 3, 0.5), (1, 6, 0.3), (5, 2, 0.15)])
def test_b_cubed_is_the_definition(n_true, n_pred, density, monkeypatch):
    rng = np.random.default_rng(0)
    for n in (1, 2, 7, 40):
        Z_true = rng.random((n, n_true)) < density
        Z_pred = rng.random((n, n_pred)) < density
        score = b_cubed_score(Z_true, Z_pred)
        assert score == pytest.approx(reference(Z_true, Z_pred), abs=1e-12)
        assert b_cubed_score(Z_pred, Z_true) == pytest.approx(score, abs=1e-12)
        assert b_cubed_score(Z_true, Z_true[:, ::-1].astype(float)) == 1.0
        with monkeypatch.context() as patch:
            patch.setattr(metrics, "_BLOCK_PAIRS", 3)
            assert b_cubed_score(Z_true, Z_pred) == pytest.approx(score, abs=1e-12)


def test_b_cubed_of_partitions():
    """One feature per row: sums over the contingency table."""
    rng = np.random.default_rng(1)
    a, b = rng.integers(4, size=200), rng.integers(6, size=200)
    table = np.array([[np.sum((a == i) & (b == j)) for j in range(6)] for i in range(4)])
    precision = (table**2 / table.sum(axis=0)).sum() / 200
    recall = (table**2 / table.sum(axis=1)[:, None]).sum() / 200
    expected = 2 * precision * recall / (precision + recall)
    assert b_cubed_score(np.eye(4)[a], np.eye(6)[b]) == pytest.approx(expected, rel=1e-12)


def test_b_cubed_sees_multiplicity():
    """Duplicating a feature lowers the score: shared features are counted, not only found."""
    Z = np.array([[1, 0], [1, 1], [0, 1]])
    duplicated = np.hstack([Z, Z[:, :1]])
    assert b_cubed_score(Z, duplicated) < 1.0
    # By hand. Shared by (1,1), (1,2), (2,2), (2,3), (3,3): true 1 1 2 1 1, predicted 2 2 3 1 1.
    precision = ((1 / 2 + 1 / 2) / 2 + (1 / 2 + 2 / 3 + 1) / 3 + 1) / 3
    assert b_cubed_score(Z, duplicated) == pytest.approx(2 * precision / (precision + 1))


def test_b_cubed_of_rows_without_features():
    Z = np.array([[1, 0], [0, 1], [0, 0]])
    assert b_cubed_score(Z, Z) == 1.0
    assert b_cubed_score(np.zeros((3, 0)), np.zeros((3, 2))) == 1.0
    assert b_cubed_score(Z, np.zeros((3, 2))) == 0.0
    assert b_cubed_score(np.zeros((3, 0)), Z) == 0.0
    # The second row claims nothing: precision 1; of two rows with true features one is found.
    assert b_cubed_score(Z, [[1], [0], [0]]) == pytest.approx(2 * 0.5 / 1.5)
    # The third row claims a feature that it does not have: precision 2/3.
    assert b_cubed_score(Z, np.eye(3)) == pytest.approx(2 * (2 / 3) / (2 / 3 + 1))


def test_b_cubed_as_a_scorer():
    rng = np.random.default_rng(0)
    Z = rng.random((40, 2)) < 0.5
    X = Z @ [[4.0, 0.0, 4.0], [0.0, 4.0, 4.0]] + 0.1 * rng.normal(size=(40, 3))
    likelihood = LinearGaussian(noise_precision=100.0, component_precision=0.1, intercept=False)
    short = {"n_chains": 1, "n_warmup": 50, "n_draws": 20, "random_state": 0}
    model = FeatureAllocation(likelihood=likelihood, n_components=2, **short).fit(X)
    scorer = make_scorer(b_cubed_score)
    assert scorer(model, X, Z) == b_cubed_score(Z, model.predict(X))
    assert scorer(model, X, Z) > 0.9
    assert scorer(model, X, ~Z) < 0.9


@pytest.mark.parametrize(
    "Z_true, Z_pred, message",
    [
        ([[1], [0]], [[1]], "Z_true has 2 rows, but Z_pred has 1"),
        ([[2], [0]], [[1], [0]], "Z_true must be binary"),
        ([[1], [0]], [[0.5], [0.0]], "Z_pred must be binary"),
        ([1, 0], [[1], [0]], "Expected 2D array"),
        ([[1], [0]], [[np.nan], [0.0]], "Z_pred contains NaN"),
        (np.zeros((0, 2)), np.zeros((0, 2)), "Found array with 0 sample"),
    ],
)
def test_b_cubed_of_bad_input(Z_true, Z_pred, message):
    with pytest.raises(ValueError, match=message):
        b_cubed_score(Z_true, Z_pred)


def networks(n, n_links, directed):
    """All networks of n nodes with a number of links, with repeated links and self-links."""
    cells = [(i, j) for i in range(n) for j in range(n) if directed or i <= j]
    for chosen in itertools.combinations_with_replacement(cells, n_links):
        X = np.zeros((n, n))
        for i, j in chosen:
            X[i, j] += 1
            X[j, i] += not directed and i != j
        yield X


@pytest.mark.parametrize("degree_correction", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.some(2)
@pytest.mark.long
def test_description_lengths_are_those_of_a_probability(degree_correction, directed):
    """Probabilities of all networks of three nodes and two links, with all labelled partitions."""
    total = 0.0
    for labels in itertools.product(range(3), repeat=3):
        if set(labels) == set(range(max(labels) + 1)):
            for X in networks(3, 2, directed):
                length = description_length(
                    X, labels, degree_correction=degree_correction, directed=directed
                )
                total += np.exp(-length)
    assert total == pytest.approx(1.0, rel=1e-12)


def test_description_length_of_one_group_by_its_definition():
    """Five nodes on a ring: 2 E = 10 ends of 5 links, of which 2 at each node."""
    ring = np.roll(np.eye(5), 1, axis=1)
    ring += ring.T
    # Pairings of ten ends, those that give the ring, and the partitions of 10 into at most five.
    pairings, of_ring, partitions = 9 * 7 * 5 * 3, 2**5, 30
    # One group of five: the number of groups is one of five. Degrees alike: one order.
    expected = np.log(5) + np.log(partitions) + np.log(pairings / of_ring)
    assert description_length(ring, np.zeros(5)) == pytest.approx(expected, rel=1e-12)


def test_numbers_of_partitions_of_integers_and_their_approximation(monkeypatch):
    def number(m, n):
        return 1 if m == 0 else 0 if n == 0 or m < 0 else number(m, n - 1) + number(m - n, n)

    for m, n in [(12, 3), (30, 8), (40, 40), (7, 1), (0, 2)]:
        assert metrics._log_partitions(m, n) == pytest.approx(np.log(number(m, n)), abs=1e-12)
    monkeypatch.setattr(metrics, "_MOST_ADDITIONS", 2 * 10**6)  # twice the limit: exact around it
    # Among them are the worst n found by a search at each of these m.
    around = [(1001, 1000), (1500, 667), (20_000, 51), (65_537, 16), (83_522, 17), (500_000, 3)]
    exact = [metrics._log_partitions(m, n) for m, n in around]
    monkeypatch.setattr(metrics, "_MOST_ADDITIONS", 0)
    close = [metrics._log_partitions(m, n) for m, n in around]
    np.testing.assert_allclose(close, exact, rtol=0.0, atol=0.02)


def test_description_length_of_many_groups_needs_no_matrix_of_pairs_of_groups():
    """A ring whose nodes are groups: a dense matrix of their pairs would have 320 GB."""
    n = 200_000
    nodes = np.arange(n)
    ring = sp.coo_array((np.ones(n), (nodes, (nodes + 1) % n)), shape=(n, n))
    ring = ring + ring.T
    # The links between groups are the network. What remains is the choice of the partition, with
    # an order of the groups, and that of the links.
    n_pairs = n * (n + 1) // 2
    chosen = gammaln(n_pairs + n) - gammaln(n + 1) - gammaln(n_pairs)
    expected = np.log(n) + gammaln(n + 1) + chosen
    length = description_length(ring, nodes, degree_correction=False)
    assert length == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("X", "labels", "message"),
    [
        ([[0, 1], [0, 0]], [0, 0], "needs a symmetric X, but"),
        (
            [[0, 0.5], [0.5, 0]],
            [0, 0],
            "column 0 of X holds 0.5; for links without weights pass X != 0",
        ),
        ([[0, 1, 0], [1, 0, 0]], [0, 0], "shape"),
        ([[0, 1], [1, 0]], [0, 0, 1], "3 labels"),
        ([[0, 1], [1, 0]], [np.nan, 0], "labels contains NaN"),
        ([[0, 1], [1, 0]], np.array([np.nan, 0], dtype=object), "labels contains NaN"),
    ],
)
def test_description_length_refuses_what_is_no_network(X, labels, message):
    with pytest.raises(ValueError, match=message):
        description_length(X, labels)


def test_links_that_a_matrix_holds_twice_are_two_links():
    twice = sp.csr_array(([1.0, 1.0, 1.0], [1, 1, 0], [0, 2, 3]), shape=(2, 2))
    once = twice.toarray()
    found = description_length(twice, [0, 1], directed=True)
    assert found == description_length(once, [0, 1], directed=True)
    assert twice.nnz == 3  # as before
