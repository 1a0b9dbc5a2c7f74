"""Anchors that depend on the current partition: their law is the one that enters the ratio.

The law is written here anew, from the reference's densities. `test_enumeration.py` and
`test_split_merge.py` test the samplers that use it.
"""

import numpy as np
import pytest
from reference.enumerate import canonical_labels
from scipy.special import logsumexp
from support.designs import everyday
from support.exactness import likelihood_names, record_worst
from support.probes import MoveProbe
from support.pvalues import Cells, assert_p_matrix, chi_squared_p
from support.states import case_of, log_joint_of, log_likelihood_of, new_state

N = 9


def log_predictive(name, case, labels, i, cluster):
    """log p(row i | rows of a cluster), by the reference."""
    rest = np.where(labels == cluster, 0, -1)
    base = log_likelihood_of(name, case, rest)
    rest[i] = 0
    return log_likelihood_of(name, case, rest) - base


def log_law(name, case, labels, i, j, coupled, by_size=0.5, power=0.5, floor=0.1):
    """log probability of the anchors i, j in this order, given a partition."""
    sizes = np.bincount(labels)
    a, b, k = labels[i], labels[j], len(sizes)
    first = by_size / len(labels) + (1 - by_size) / (k * sizes[a])
    same = 1.0 if k == 1 else 0.0 if sizes[a] == 1 else 0.5
    if a == b:
        return np.log(first * same / (sizes[a] - 1))
    others = [c for c in range(k) if c != a]
    weights = np.zeros(len(others))
    if not coupled:
        weights = np.array([power * log_predictive(name, case, labels, i, c) for c in others])
    chosen = np.exp(weights - logsumexp(weights))[others.index(b)]
    second = (1 - floor) * chosen + floor / len(others)
    return np.log(first * (1 - same) * second / sizes[b])


def problem(name, seed, n_labels=4, prior="dp"):
    rng = np.random.default_rng(seed)
    case = case_of(name, n_samples=N)
    labels = canonical_labels(rng.integers(n_labels, size=N))
    state = new_state(name, case, prior, labels)
    return case, labels, state, MoveProbe(state, "neighbours"), rng


def pairs_run(name, seed, n_labels, n_anchors=2, n_draws=20_000, **changes):
    """A run for `assert_p`: ordered pairs of anchors. `changes` plant another law."""
    case, labels, state, probe, _ = problem(name, seed, n_labels)
    pairs = [(i, j) for i in range(N) for j in range(N) if i != j]
    index = {pair: cell for cell, pair in enumerate(pairs)}
    coupled = not state.model.factorizes
    law = np.exp([log_law(name, case, labels, *pair, coupled, **changes) for pair in pairs])
    assert law.sum() == pytest.approx(1.0, abs=1e-9)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(len(pairs), dtype=np.int64)
        for _ in range(round(n_draws * factor)):
            probe.gather(n_anchors, bit_generator)
            counts[index[probe.drawn()]] += 1
        return Cells(counts, law, pairs)

    return run


@pytest.mark.slow
def test_law_of_neighbours(seed_sequence, record_property):
    runs = {
        f"{name} {n_labels} {n_anchors}": pairs_run(name, 3, n_labels, n_anchors)
        for name, n_labels, n_anchors in (
            ("gaussian", 3, 2),
            ("gaussian", 6, 2),
            ("bernoulli", 4, 3),
            ("relational", 3, 2),
            ("poisson", 1, 2),
        )
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"by_size": 0.0}, {"power": 1.0}, {"floor": 0.6}], ids=lambda change: str(change)
)
def test_another_law_is_seen(changes, seed_sequence):
    cells = pairs_run("gaussian", 4, 4, n_draws=40_000, **changes)(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-5


@pytest.mark.parametrize("name", everyday(likelihood_names(), *likelihood_names()[::3]))
@pytest.mark.some(2)
def test_probability_of_the_anchors(name):
    """Given the current partition as they are drawn; and given a proposed one, with the anchors in
    two clusters or in one."""
    for seed in range(12):
        case, labels, state, probe, rng = problem(name, seed, n_labels=1 + seed % 5)
        coupled = not state.model.factorizes
        items, cells = probe.gather(2, rng.bit_generator)
        i, j = probe.drawn()
        expected = log_law(name, case, labels, i, j, coupled)
        assert probe.anchors.log_q == pytest.approx(expected, abs=1e-9)
        together = canonical_labels(np.where(np.isin(np.arange(N), items), N, labels))
        expected = log_law(name, case, together, i, j, coupled)
        assert probe.log_anchors_together() == pytest.approx(expected, abs=1e-9)
        if len(set(cells)) == 2:
            current = log_joint_of(name, case, labels, "dp")
            united = log_joint_of(name, case, together, "dp")
            assert probe.log_union_ratio() == pytest.approx(united - current, abs=1e-8)
        sides = np.append([0, 1], rng.integers(2, size=len(items) - 2))
        probe.begin(2)
        for m, b in enumerate(sides):
            probe.join(m, b)
        proposed = labels.copy()
        proposed[items] = N + sides
        expected = log_law(name, case, canonical_labels(proposed), i, j, coupled)
        assert probe.log_anchors() == pytest.approx(expected, abs=1e-9)
        probe.unite()
        expected = log_law(name, case, together, i, j, coupled)
        assert probe.log_anchors() == pytest.approx(expected, abs=1e-9)
        probe.restore()


@pytest.mark.parametrize("name", ["gaussian", "relational"])
def test_members_follow_the_moves(name):
    """Lists of members are made once for several moves, and are those of the labels after each."""
    for seed in range(5):
        _, _, state, probe, rng = problem(name, seed)
        probe.gather(2, rng.bit_generator)
        for _ in range(20):
            items, _ = probe.gather_again(2, rng.bit_generator)
            probe.begin(2)
            for m in range(len(items)):
                probe.join(m, m if m < 2 else int(rng.integers(2)))
            if rng.random() < 0.5:
                probe.unite()
            if rng.random() < 0.5:
                probe.accept()
            else:
                probe.restore()
            labels = state.cluster_labels()
            for cluster in range(state.n_clusters):
                expected = np.flatnonzero(labels == cluster).tolist()
                assert sorted(probe.members(cluster)) == expected
