"""The reference of adaptive reconfiguration moves, against what makes a move exact."""

import numpy as np
import pytest
from reference.arm import (
    BLOCKS,
    Construction,
    PartialPosterior,
    Phi,
    canonical,
    disagreements,
    forced,
    law_of_phi,
    log_joints,
    metropolis,
    partition_tuples,
    paths,
    proposals,
    split_merge_transition,
    summarise,
    transition,
)
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from support.designs import everyday

VARIANTS = (*BLOCKS, "srm")
CASES = [
    ("bernoulli", "dp"),
    ("relational", "pitman_yor"),
    ("gaussian", "finite"),
    ("relational_directed", "mfm"),
]


def first_rows(name, n):
    X = enumeration_case(name).X[:n]
    return X[:, :n] if name.startswith("relational") else X


def new_posterior(name, prior_case, n, **changes):
    prior, params = PRIOR_CASES[prior_case]
    return PartialPosterior(
        first_rows(name, n), name, enumeration_case(name).params, prior, {**params, **changes}
    )


def draw_phi(n, rng, variant):
    """A phi, and the blocks to move."""
    order = tuple(rng.permutation(n).tolist())
    if variant == "srm":
        return Phi(*rng.permutation(n)[:2].tolist(), None, None, order), "all"
    partitions = partition_tuples(n)
    za, zb = (partitions[k] for k in rng.choice(len(partitions), 2, replace=False))
    pairs = disagreements(za, zb)
    return Phi(*pairs[rng.integers(len(pairs))], za, zb, order), variant


def flows(K, log_joint):
    """pi(z) K(z, z*): symmetric under detailed balance."""
    pi = np.exp(log_joint - logsumexp(log_joint))
    return pi[:, None] * K


@pytest.mark.parametrize("name, prior", CASES)
def test_partial_posterior_of_all_rows(name, prior):
    """It is the enumerated one."""
    for n in (1, 2, 4):
        expected = log_posterior(
            first_rows(name, n),
            name,
            PRIOR_CASES[prior][0],
            likelihood_params=enumeration_case(name).params,
            prior_params=PRIOR_CASES[prior][1],
        ).log_joint
        np.testing.assert_allclose(log_joints(new_posterior(name, prior, n)), expected, atol=1e-12)


def test_a_proposal_by_hand():
    """Three rows, i = 0, j = 1, no past states: row 2 may join either, or open a cluster."""
    posterior = new_posterior("bernoulli", "dp", 3)
    ends = [(0, 1, 0), (0, 1, 1), (0, 1, 2)]
    log_w = np.array([posterior.log_joint(end) for end in ends])
    law = dict(paths(posterior, (0, 0, 0), Phi(0, 1, None, None, (2, 0, 1))))
    np.testing.assert_allclose([law[end] for end in ends], log_w - logsumexp(log_w), atol=1e-14)
    # From 0|1|2 rows 0 and 1 merge, and row 2 is a cluster of its own that they may take in.
    ends = [(0, 0, 0), (0, 0, 1)]
    log_w = np.array([posterior.log_joint(end) for end in ends])
    law = dict(paths(posterior, (0, 1, 2), Phi(0, 1, None, None, (0, 1, 2))))
    np.testing.assert_allclose([law[end] for end in ends], log_w - logsumexp(log_w), atol=1e-14)
    assert len(law) == 2


def check_exactness(name, prior, n, n_phi, rng):
    posterior = new_posterior(name, prior, n)
    log_joint, partitions = log_joints(posterior), partition_tuples(n)
    possible = log_joint > -np.inf
    for variant in VARIANTS:
        for _ in range(n_phi):
            phi, blocks = draw_phi(n, rng, variant)
            T, n_paths = proposals(posterior, phi, blocks)
            np.testing.assert_allclose(T[possible].sum(axis=1), 1.0, atol=1e-12)
            assert n_paths.max() == 1
            kernel = metropolis(T, log_joint)
            flow = flows(kernel.transition, log_joint)
            np.testing.assert_allclose(flow, flow.T, atol=1e-14)
            if prior != "finite" and (variant != "all" or n < 5):
                assert kernel.reversible
            for z in rng.choice(np.flatnonzero(possible), 6):
                by_rule = [
                    forced(posterior, partitions[z], phi, end, blocks) for end in partitions
                ]
                np.testing.assert_allclose(np.exp(by_rule), T[z], atol=1e-14)


@pytest.mark.slow
@pytest.mark.parametrize("n, n_phi", everyday([(2, 2), (3, 8), (4, 4)], (3, 8), n_values=2))
@pytest.mark.parametrize("name, prior", CASES)
def test_exactness(name, prior, n, n_phi, seed_sequence):
    """One path at most leads anywhere, probabilities of all sum to one, `forced` finds each; and
    the Metropolis-Hastings kernel of one phi is in detailed balance."""
    check_exactness(name, prior, n, n_phi, np.random.default_rng(seed_sequence))


@pytest.mark.slow
@pytest.mark.parametrize("prior", PRIOR_CASES)
@pytest.mark.parametrize("name", ["bernoulli", "relational", "relational_directed"])
def test_exactness_of_five_rows(name, prior, seed_sequence):
    check_exactness(name, prior, 5, 6, np.random.default_rng(seed_sequence))


class Unlocked(Construction):
    """The last row of a cluster may leave others behind that have joined it."""

    def options(self, place, unit):
        moved = [None if y in unit and y not in self.inside else n for y, n in enumerate(place)]
        names, log_p = super().options(moved, unit)
        return names, log_p


def test_without_the_lock_paths_are_not_unique():
    posterior = new_posterior("bernoulli", "dp", 4)
    rng = np.random.default_rng(0)
    most = 0
    for _ in range(10):
        phi, blocks = draw_phi(4, rng, "pair")
        for z in partition_tuples(4):
            ends = [end for end, _ in Unlocked(posterior, z, phi, blocks).paths()]
            most = max(most, len(ends) - len(set(ends)))
    assert most > 0


@pytest.mark.slow
def test_draws_follow_the_paths():
    posterior = new_posterior("relational", "pitman_yor", 5)
    rng = np.random.default_rng(0)
    for variant in VARIANTS:
        phi, blocks = draw_phi(5, rng, variant)
        construction = Construction(posterior, (0, 1, 0, 2, 1), phi, blocks)
        law = dict(construction.paths())
        for _ in range(50):
            end, log_t = construction.draw(rng)
            assert log_t == pytest.approx(law[end], abs=1e-13)
            assert log_t == pytest.approx(construction.forced(end), abs=1e-13)


def test_splits_from_full_mixtures_have_a_way():
    """With all components in use i and j come apart while another cluster gives up its rows."""
    posterior = new_posterior("bernoulli", "finite", 4, n_components=2)
    log_joint = log_joints(posterior)
    partitions = partition_tuples(4)
    full = [k for k, z in enumerate(partitions) if max(z) == 1]
    moved = 0.0
    for phi in law_of_phi(4):
        together = [k for k in full if partitions[k][phi.i] == partitions[k][phi.j]]
        moved += transition(posterior, phi).accepted[together].sum()
    assert moved > 0.1
    assert np.isneginf(log_joint[len(partitions) - 1])


def test_law_of_phi():
    """Weights of pairs of states, of rows and of orders, and what is there without a history."""
    law = law_of_phi(4)
    assert sum(law.values()) == pytest.approx(1.0)
    assert len(law) == 6 * 2 and {phi.za for phi in law} == {None}
    assert law == law_of_phi(4, [(0, 1, 1, 0)], [(5, 2, 2, 5)])
    own, other = [(0, 0, 1, 1), (0, 0, 0, 0)], [(0, 1, 1, 1)]
    law = law_of_phi(4, own, own + other)
    by_states = {}
    for phi, p in law.items():
        assert (phi.i, phi.j) in disagreements(phi.za, phi.zb)
        by_states[phi.za, phi.zb] = by_states.get((phi.za, phi.zb), 0.0) + p
    a, b, c = canonical(own[0]), canonical(own[1]), canonical(other[0])
    pairs = {tuple(sorted(pair)): p for pair, p in by_states.items()}
    assert pairs == pytest.approx(
        {tuple(sorted(pair)): p for pair, p in (((a, b), 0.5), ((a, c), 0.25), ((b, c), 0.25))}
    )


def test_summary_keeps_the_posterior():
    posterior = new_posterior("bernoulli", "dp", 4)
    log_joint = log_joints(posterior)
    states = [(0, 0, 1, 2), (0, 1, 0, 1)]
    law = law_of_phi(4, states, states)
    summary = summarise(law, lambda phi: transition(posterior, phi), log_joint)
    pi = np.exp(log_joint - logsumexp(log_joint))
    np.testing.assert_allclose(pi @ summary.transition, pi, atol=1e-15)
    assert sum(summary.proposed.values()) == pytest.approx(1.0)
    for move, accepted in summary.accepted.items():
        assert 0 < accepted < summary.proposed[move]


@pytest.mark.slow
@pytest.mark.parametrize("n_scans", everyday([0, 1, 2], 0))
def test_split_merge_from_the_past(n_scans, seed_sequence):
    """Exact where the launch state does not look at z; with z, as printed, it is not (seen)."""
    rng = np.random.default_rng(seed_sequence)
    worst = 0.0
    for name, prior in CASES:
        posterior = new_posterior(name, prior, 4)
        log_joint = log_joints(posterior)
        for variant in ("pair", "srm", "pair", "pair"):
            phi, _ = draw_phi(4, rng, variant)
            K = split_merge_transition(posterior, phi, n_scans)
            assert K.min() >= -1e-13
            flow = flows(K, log_joint)
            np.testing.assert_allclose(flow, flow.T, atol=1e-14)
            K = split_merge_transition(posterior, phi, n_scans, include_z=True)
            flow = flows(K, log_joint)
            worst = max(worst, abs(flow - flow.T).max())
    assert worst > 1e-4
