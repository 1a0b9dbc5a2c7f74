"""What moves of whole clusters share: trials leave no trace, and their densities are the
reference's. `test_split_merge.py` tests the laws of the samplers that use them."""

import itertools

import numpy as np
import pytest
from reference.enumerate import canonical_labels
from reference.simulate import PRIOR_CASES
from support.designs import combinations, everyday
from support.exactness import complete_names, likelihood_names, record_worst
from support.probes import MoveProbe, StateProbe
from support.pvalues import Cells, assert_p_matrix, chi_squared_p, part_of
from support.states import case_of, log_joint_of, log_likelihood_of, new_state

WITH_COMPLETE = [*likelihood_names(), *complete_names()]
N = 12


def problem(name, seed, prior="dp", n_labels=4):
    """A case, a state of it in random clusters, its probe, and a generator."""
    rng = np.random.default_rng(seed)
    case = case_of(name, n_samples=N)
    labels = np.unique(rng.integers(n_labels, size=N), return_inverse=True)[1]
    state = new_state(name, case, prior, labels)
    return case, state, MoveProbe(state), rng


def fill(probe, sides):
    """All items of the closure join sides."""
    for m, b in enumerate(sides):
        probe.join(m, b)


def labels_of_trial(before, items, sides):
    """The partition that a trial proposes."""
    labels = before.copy()
    labels[items] = before.max() + 1 + np.asarray(sides)
    return canonical_labels(labels)


@combinations(n_sides=[1, 2, 5], name=WITH_COMPLETE)
def test_restore_leaves_no_trace(name, n_sides):
    """Whatever items have joined and left, and whether the sides were united. To the bit where
    clusters are independent; where they are not, rows are made anew, from the same items."""
    for seed in range(6):
        _, state, probe, rng = problem(name, seed)
        sweep = StateProbe(state)
        for _ in range(3):  # slots in an order of their own
            sweep.detach(i := int(rng.integers(N)))
            sweep.attach(i, int(rng.integers(state.n_clusters + 1)))
        probe.reserve()
        saved, log_joint = state.save(), state.compute_log_joint()
        sizes = state.cluster_sizes()
        items, _ = probe.gather(int(rng.integers(1, 6)), rng.bit_generator)
        probe.begin(n_sides)
        assert (state.save()["labels"][items] == -1).all()
        sides = rng.integers(n_sides, size=len(items))
        fill(probe, sides)
        if seed % 2:
            probe.unite()
        for m in rng.permutation(len(items))[: len(items) // 2]:
            probe.leave(m)
            if rng.random() < 0.5:
                probe.join(m, 0)
        probe.restore()
        again = state.save()
        for key in ("labels", "slots", "free"):
            np.testing.assert_array_equal(again[key], saved[key], err_msg=key)
        np.testing.assert_array_equal(state.cluster_sizes(), sizes)
        if state.model.factorizes:
            np.testing.assert_array_equal(again["stats"], saved["stats"])
            assert state.compute_log_joint() == log_joint
        else:
            np.testing.assert_allclose(again["stats"], saved["stats"], rtol=1e-12)
            assert state.compute_log_joint() == pytest.approx(log_joint, rel=1e-12)


@pytest.mark.parametrize(
    "name", everyday(WITH_COMPLETE, "gaussian", "multinomial", "pyclone", "relational")
)
@pytest.mark.some(2)
def test_the_state_goes_on_after_a_restore(name):
    """The slots of the sides are empty again: predictive densities and the next trial, in the same
    slots, are those of the reference."""
    for seed in range(3):
        case, state, probe, rng = problem(name, seed)
        labels = state.cluster_labels()
        for _ in range(2):
            items, _ = probe.gather(2, rng.bit_generator)
            log_current = probe.log_current()
            probe.begin(2)
            sides = np.append([0, 1], rng.integers(2, size=len(items) - 2))
            fill(probe, sides)
            expected = log_joint_of(name, case, labels_of_trial(labels, items, sides), "dp")
            expected -= log_joint_of(name, case, labels, "dp")
            np.testing.assert_allclose(probe.log_proposed() - log_current, expected, atol=1e-8)
            probe.restore()
            i = int(rng.integers(N))
            state_probe, cluster = StateProbe(state), labels[i]
            if (labels == cluster).sum() == 1:
                continue
            state_probe.detach(i)
            rest = np.where(np.arange(N) == i, -1, labels)
            base = log_likelihood_of(name, case, rest)
            for k, found in enumerate(state_probe.log_predictive(i)):
                rest[i] = k
                np.testing.assert_allclose(
                    found, log_likelihood_of(name, case, rest) - base, atol=1e-8
                )
            state_probe.attach(i, cluster)


@combinations(prior=PRIOR_CASES, name=WITH_COMPLETE)
def test_densities_of_proposals(name, prior):
    """Proposed over current density, of sides and of their union, is a ratio of the reference's
    joint densities; what is accepted is what was proposed."""
    for seed in range(4):
        n_anchors = 1 + seed
        case, state, probe, rng = problem(name, seed, prior, n_labels=3)
        before = canonical_labels(state.cluster_labels())
        current = log_joint_of(name, case, before, prior)
        items, blocks = probe.gather(n_anchors, rng.bit_generator)
        np.testing.assert_array_equal(blocks, canonical_labels(before[items]))
        np.testing.assert_array_equal(
            np.sort(items), np.flatnonzero(np.isin(before, before[items[:n_anchors]]))
        )
        log_current = probe.log_current()
        n_sides = min(len(items), 1 + seed % 3)
        sides = np.append(np.arange(n_sides), rng.integers(n_sides, size=len(items) - n_sides))
        probe.begin(n_sides)
        fill(probe, sides)
        for unite in (False, True):
            if unite:
                probe.unite()
                sides[:] = 0
            proposed = labels_of_trial(before, items, sides)
            expected = log_joint_of(name, case, proposed, prior)
            found = probe.log_proposed() - log_current
            if np.isneginf(expected):
                assert found == -np.inf
            else:
                np.testing.assert_allclose(found, expected - current, rtol=1e-9, atol=1e-9)
            if unite or seed % 2:
                break
        probe.accept()
        np.testing.assert_array_equal(canonical_labels(state.cluster_labels()), proposed)
        np.testing.assert_array_equal(state.cluster_sizes(), np.bincount(state.cluster_labels()))
        if np.isfinite(expected):
            assert state.compute_log_joint() == pytest.approx(expected, rel=1e-9)
        slots = np.concatenate([StateProbe(state).slots(), state.model.free_list()])
        np.testing.assert_array_equal(np.sort(slots), np.arange(state.model.n_slots))


@combinations(n_items=[1, 2, 5], name=WITH_COMPLETE)
@pytest.mark.some(2)
def test_predictive_of_a_block(name, n_items):
    """A difference of the reference's log likelihoods, for every cluster and a new one; other
    items may be in no cluster meanwhile, and the state stays as it was."""
    for seed in range(4):
        case, state, probe, rng = problem(name, seed)
        state_probe = StateProbe(state)
        out = rng.choice(N, size=n_items + seed % 2, replace=False)
        for i in out:
            state_probe.detach(i)
        items = out[:n_items]
        probe.reserve()
        saved = state.save()
        labels = state.cluster_labels()
        base = log_likelihood_of(name, case, labels)
        for cluster in range(state.n_clusters + 1):
            found = probe.log_predictive_block(items, cluster)
            joined = labels.copy()
            joined[items] = cluster
            expected = log_likelihood_of(name, case, joined) - base
            np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
            for key, value in state.save().items():
                np.testing.assert_array_equal(value, saved[key], err_msg=key)


def anchors_run(n_anchors, tilt=1.0, n_samples=6, n_draws=20_000):
    """A run for `assert_p`: uniform anchors in their random order, among six items. `tilt` plants
    a law under which item 0 is an anchor more often."""
    tuples = list(itertools.permutations(range(n_samples), n_anchors))
    index = {anchors: cell for cell, anchors in enumerate(tuples)}
    law = np.array([tilt if 0 in anchors else 1.0 for anchors in tuples])
    case = case_of("gaussian", n_samples)
    probe = MoveProbe(new_state("gaussian", case, "dp", np.arange(n_samples) % 3))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(len(tuples), dtype=np.int64)
        for _ in range(part_of(n_draws, factor, 5_000)):
            items, _ = probe.gather(n_anchors, bit_generator)
            counts[index[tuple(items[:n_anchors].tolist())]] += 1
        return Cells(counts, law / law.sum(), tuples)

    return run


def test_uniform_anchors(seed_sequence, record_property):
    runs = {str(n): anchors_run(n) for n in (1, 2, 3, 5)}
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.parametrize("n_anchors", [1, 2, 3])
def test_anchors_that_are_not_uniform_are_seen(n_anchors, seed_sequence):
    cells = anchors_run(n_anchors, tilt=1.3)(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def test_likelihoods_of_both_kinds_are_here():
    """Else the tests above would not see one of the two trials."""
    kinds = {problem(name, 0)[1].model.factorizes for name in WITH_COMPLETE}
    assert kinds == {True, False}
