"""Adaptive reconfiguration moves: their proposals against the reference, their law against
enumeration.

Most mistakes in a proposal do no harm to its law as long as the way back is reckoned alike: they
only cost acceptance. So the log probability T of every proposal is compared with the reference's,
and its sum over all proposals is one.
"""

import numpy as np
import pytest
from reference.arm import (
    Construction,
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
)
from reference.enumerate import enumerate_partitions, partition_index
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES
from scipy.special import logsumexp
from sklearn.base import clone
from support.arm import (
    VARIANTS,
    all_past,
    draw_phi,
    kernel_with,
    partial_posterior,
    past,
)
from support.chains import run_chains
from support.designs import combinations, everyday, in_shares
from support.exactness import (
    case_posterior,
    case_state,
    cells,
    complete_names,
    convergence_run,
    invariance_run,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
)
from support.kernels import bind
from support.probes import ARMProbe, StateProbe, draw_pair
from support.pvalues import Cells, assert_p, assert_p_matrix
from support.states import case_of, new_state

from skdpm.mixture.samplers import ARM, SplitMerge
from skdpm.mixture.samplers._history import History
from skdpm.mixture.state._state import MixtureState
from skdpm.papers.arm import GrowingHistory

NAMES = [*likelihood_names(), *complete_names()]
PAIRS = [(name, prior) for name in likelihood_names() for prior in PRIOR_CASES]
BSM = SplitMerge.from_paper("bSM", n_restricted_scans=1, gibbs_sweeps=0)


def arm(blocks):
    """The pure kernel's sampler of a variant."""
    if blocks == "srm":
        return ARM(n_history_chains=0, gibbs_sweeps=0, n_split_merges=0)
    return ARM(blocks=blocks, gibbs_sweeps=0, n_split_merges=0)


# The probability of proposals.


class Problem:
    """A state of a few rows, its probes, and the reference."""

    def __init__(self, name, prior, n):
        self.case = case_of(name, n_samples=n)
        self.posterior = partial_posterior(name, self.case, prior)
        self.state = new_state(name, self.case, prior)
        self.probes = {blocks: ARMProbe(self.state, blocks) for blocks in VARIANTS[:3]}
        self.n = n
        self.z = [z for z in partition_tuples(n) if self.possible(z)] if n < 6 else None

    def possible(self, z):
        return self.posterior.log_v[max(z) + 1] > -np.inf

    def log_t(self, z, phi, target, blocks):
        """The kernel's; where it finds a way, it has gone it."""
        labels, log_t = self.probes[blocks].propose(z, *phi, target=target)
        assert log_t == -np.inf or tuple(labels) == canonical(target)
        return log_t

    def draw(self, z, phi, blocks, rng):
        labels, log_t = self.probes[blocks].propose(z, *phi, bit_generator=rng.bit_generator)
        return canonical(labels.tolist()), log_t

    def coarse(self, rng, n_labels=3):
        """A random partition that the prior allows."""
        return canonical(rng.integers(n_labels, size=self.n).tolist())


def check_log_t(problem, phi, blocks):
    """log T from every partition to every one."""
    partitions = partition_tuples(problem.n)
    for z in problem.z:
        law = dict(paths(problem.posterior, z, phi, blocks))
        expected = [law.get(target, -np.inf) for target in partitions]
        found = [problem.log_t(z, phi, target, blocks) for target in partitions]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9, err_msg=f"{z} {phi}")


@pytest.mark.slow
@pytest.mark.parametrize("variant", everyday(VARIANTS, "all"))
@pytest.mark.parametrize("n", everyday([2, 3, 4], 4))
def test_log_t_of_all_proposals(n, variant, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for name in NAMES:
        for prior in (
            PRIOR_CASES if n == 3 else [list(PRIOR_CASES)[rng.integers(len(PRIOR_CASES))]]
        ):
            check_log_t(Problem(name, prior, n), *draw_phi(n, rng, variant))


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [4, 5])
def test_log_t_of_all_proposals_in_depth(n, variant, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for name, prior in PAIRS:
        problem = Problem(name, prior, n)
        for _ in range(2 if n == 4 else 1):
            check_log_t(problem, *draw_phi(n, rng, variant))


def check_draws(problem, rng, variant, n_draws):
    """log T of proposals that were drawn, and of the way back."""
    for _ in range(n_draws):
        z = problem.coarse(rng)
        phi, blocks = draw_phi(problem.n, rng, variant, n_labels=3)
        end, log_t = problem.draw(z, phi, blocks, rng)
        assert log_t == pytest.approx(
            forced(problem.posterior, z, phi, end, blocks), rel=0, abs=1e-9
        )
        if problem.possible(end):
            expected = forced(problem.posterior, end, phi, z, blocks)
            found = problem.log_t(end, phi, z, blocks)
            assert found == pytest.approx(expected, rel=0, abs=1e-9)
        # Ends that may be out of reach: those of another variant, and any.
        target = problem.coarse(rng, 4)
        if phi.za is not None:
            other = VARIANTS[rng.integers(3)]
            target, _ = Construction(problem.posterior, z, phi, other).draw(rng)
        assert problem.log_t(z, phi, target, blocks) == pytest.approx(
            forced(problem.posterior, z, phi, target, blocks), rel=0, abs=1e-9
        )


@pytest.mark.slow
@pytest.mark.parametrize("n", everyday([5, 6, 7], 6))
@pytest.mark.parametrize("variant", everyday(VARIANTS, "all"))
def test_log_t_of_random_proposals(n, variant, seed_sequence):
    """Two blocks of two rows in two clusters need six rows."""
    rng = np.random.default_rng(seed_sequence)
    for k, name in enumerate(NAMES):
        prior = list(PRIOR_CASES)[(k + n) % len(PRIOR_CASES)]
        check_draws(Problem(name, prior, n), rng, variant, 6)


@pytest.mark.slow
@pytest.mark.parametrize("n", [5, 6, 7, 9])
@pytest.mark.parametrize("variant", VARIANTS)
def test_log_t_of_random_proposals_in_depth(n, variant, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for name, prior in PAIRS:
        check_draws(Problem(name, prior, n), rng, variant, 6)


def check_sums(problem, phi, blocks, zs):
    partitions = partition_tuples(problem.n)
    for z in zs:
        total = sum(np.exp(problem.log_t(z, phi, target, blocks)) for target in partitions)
        assert total == pytest.approx(1.0, rel=0, abs=1e-12), (z, phi)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", everyday([2, 3, 4, 5], 4))
@pytest.mark.some(2)
def test_proposals_sum_to_one(n, variant, seed_sequence):
    """From every partition."""
    rng = np.random.default_rng(seed_sequence)
    for name, prior in (
        ("bernoulli", "dp"),
        ("relational", "pitman_yor"),
        ("gaussian", "mfm"),
        ("relational_directed", "finite"),
        ("poisson_complete", "pitman_yor_negative"),
    ):
        problem = Problem(name, prior, n)
        for _ in range(2):
            check_sums(problem, *draw_phi(n, rng, variant), problem.z)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_proposals_sum_to_one_in_depth(n, variant, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for name, prior in PAIRS:
        problem = Problem(name, prior, n)
        for _ in range(2):
            check_sums(problem, *draw_phi(n, rng, variant), problem.z)


def check_sums_of_coarse(name, prior, n, variant, rng, n_phi):
    """Blocks of two rows and more, that leave some of their cluster behind."""
    problem = Problem(name, prior, n)
    for _ in range(n_phi):
        phi, blocks = draw_phi(n, rng, variant, n_labels=2)
        check_sums(problem, phi, blocks, [problem.coarse(rng, 3) for _ in range(5)])


@pytest.mark.parametrize("variant", ["all", "pair"])
@pytest.mark.slow
def test_proposals_of_six_rows_sum_to_one(variant, seed_sequence):
    check_sums_of_coarse("bernoulli", "dp", 6, variant, np.random.default_rng(seed_sequence), 20)


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n, n_phi", [(6, 60), (7, 12)])
def test_proposals_of_more_rows_sum_to_one(n, n_phi, variant, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    for name, prior in (("bernoulli", "dp"), ("relational", "finite")):
        check_sums_of_coarse(name, prior, n, variant, rng, n_phi)


@pytest.mark.parametrize("variant", everyday(VARIANTS, "all", "pair"))
@pytest.mark.some(1)
def test_slots_do_not_matter(variant, seed_sequence):
    """One partition in other slots, that were taken and given back in another order, or with other
    numbers for its clusters and those of the past: log T is the same."""
    rng = np.random.default_rng(seed_sequence)
    for name in NAMES:
        problem = Problem(name, "pitman_yor", 7)
        sweep = StateProbe(problem.state)
        for _ in range(8):
            z = problem.coarse(rng, 4)
            phi, blocks = draw_phi(7, rng, variant, n_labels=3)
            target, log_t = problem.draw(z, phi, blocks, rng)
            if phi.za is not None:
                numbers = rng.permutation(3)
                phi = phi._replace(za=numbers[list(phi.za)], zb=numbers[list(phi.zb)])
            for _ in range(3):
                renamed = rng.permutation(max(z) + 1)[list(z)]
                problem.state.assign(renamed)
                for i in rng.integers(7, size=10):
                    sweep.detach(i)
                    sweep.attach(i, int(rng.integers(problem.state.n_clusters + 1)))
                for i in rng.permutation(7):
                    sweep.detach(i)
                for i in rng.permutation(7):
                    mates = [y for y in range(7) if z[y] == z[i] and sweep.cluster(y) >= 0]
                    at = sweep.cluster(mates[0]) if mates else problem.state.n_clusters
                    sweep.attach(i, at)
                labels, found = problem.probes[blocks].propose(None, *phi, target=target)
                assert canonical(labels.tolist()) == target
                assert found == pytest.approx(log_t, rel=0, abs=1e-10)


@pytest.mark.parametrize("variant", everyday(["pair", "none", "srm"], "pair"))
def test_there_is_always_a_way_back(variant, seed_sequence):
    """Where no cluster is refused: what stayed of a cluster keeps its place."""
    rng = np.random.default_rng(seed_sequence)
    for name, prior in (
        ("bernoulli", "dp"),
        ("relational", "pitman_yor"),
        ("poisson", "pitman_yor_negative"),
    ):
        for n in (4, 7, 12):
            problem = Problem(name, prior, n)
            for _ in range(60):
                z = problem.coarse(rng, 4)
                phi, blocks = draw_phi(n, rng, variant, n_labels=3)
                end, log_t = problem.draw(z, phi, blocks, rng)
                assert log_t > -np.inf
                assert problem.log_t(end, phi, z, blocks) > -np.inf


@pytest.mark.slow
@combinations(
    blocks=VARIANTS[:3], name=["gaussian", "relational", "relational_directed", "bernoulli"]
)
def test_more_clusters_than_there_is_room_for(name, blocks):
    """The arena grows in the middle of a move, of the way back, and of one that is forgotten."""
    n = 24
    posterior, state = few_rows(name, "pitman_yor", n, concentration=1e4)
    probe, bit_generator = ARMProbe(state, blocks), np.random.PCG64(0)
    start, apart = (0,) * n, tuple(range(n))
    phi = Phi(0, 1, start, apart, tuple(np.random.default_rng(0).permutation(n).tolist()))
    end, log_t = probe.propose(start, *phi, bit_generator=bit_generator)
    end = tuple(end.tolist())
    assert max(end) > 18  # slots that there are at first
    assert log_t == pytest.approx(forced(posterior, start, phi, end, blocks), rel=0, abs=1e-8)
    for fresh in (False, True):
        if fresh:
            _, state = few_rows(name, "pitman_yor", n, concentration=1e4)
            probe = ARMProbe(state, blocks)
        labels, found = probe.propose(start, *phi, target=end)
        assert tuple(labels.tolist()) == end
        assert found == pytest.approx(log_t, rel=0, abs=1e-9)
    sampler = arm(blocks)
    _, state = few_rows(name, "pitman_yor", n, concentration=1e4)
    kernel = kernel_with(sampler, past(start, apart))
    for _ in range(20):
        kernel.run(state, bit_generator)
        labels = state.cluster_labels().tolist()
        assert state.compute_log_joint() == pytest.approx(posterior.log_joint(labels), abs=1e-8)


@pytest.mark.parametrize("name", everyday(NAMES, *NAMES[::3]))
@pytest.mark.some(2)
def test_states_agree_with_their_labels(name):
    """After moves that were accepted, and after those that were not, the way back tried or not."""
    n = 12
    posterior, state = few_rows(name, "pitman_yor", n)
    rng = np.random.default_rng(0)
    adaptation = past(*rng.integers(3, size=(4, n)))
    for variant in VARIANTS:
        kernel = kernel_with(arm(variant), {} if variant == "srm" else adaptation)
        for _ in range(40):
            kernel.run(state, rng.bit_generator)
            labels = state.cluster_labels()
            expected = posterior.log_joint(labels.tolist())
            assert state.compute_log_joint() == pytest.approx(expected, abs=1e-8)
            np.testing.assert_array_equal(state.cluster_sizes(), np.bincount(labels))
        assert sum(accepted for _, accepted in kernel.acceptance().values()) > 0


@pytest.mark.parametrize("sampler", [*(arm(v) for v in VARIANTS[:3]), BSM], ids=repr)
@pytest.mark.some(2)
def test_one_kernel_for_states_of_other_rows(sampler):
    """Nothing is left of a move, or of the rows it was for: a kernel of its own does the same."""
    kernel = sampler.kernel()
    rng = np.random.default_rng(0)
    for n in (2, 40, 3, 17, 1, 30):
        for name in ("gaussian", "poisson", "relational"):
            adaptation = past(*rng.integers(4, size=(3, n)))
            ends = []
            for one in (kernel, sampler.kernel()):
                one.set_adaptation(adaptation)
                _, state = few_rows(name, "pitman_yor", n)
                state.assign(np.arange(n) % 4 % n)
                bit_generator = np.random.PCG64(n)
                for _ in range(6):
                    one.run(state, bit_generator)
                ends.append((state.cluster_labels().tolist(), state.compute_log_joint()))
            assert ends[0] == ends[1]


# The law of moves.


def few_rows(name, prior_case, n=4, **changes):
    """The reference of a case of few rows, and a state of them."""
    prior, params = PRIOR_CASES[prior_case]
    case = case_of(name, n_samples=n)
    posterior = partial_posterior(name, case, prior_case, **changes)
    state = make_state(case.likelihood, case.X, make_prior(prior, n, **{**params, **changes}))
    return posterior, state


class TransitionLaw:
    """Which partition one move leads to from which: exactly, and by a kernel.

    Parameters
    ----------
    posterior : PartialPosterior
    state : MixtureState
    kernel : PartitionKernel
    transition : ndarray
        The law, over `enumerate_partitions`.
    own : int
        The number of the replica.
    """

    def __init__(self, posterior, state, kernel, transition, own=0):
        self.state, self.kernel, self.own = state, kernel, own
        self.transition = transition
        possible = log_joints(posterior) > -np.inf
        self.starts = enumerate_partitions(posterior.n_samples)[possible]

    def run(self, n_each):
        """A run for `assert_p`: as many moves from every partition that the prior allows; the law
        of where they lead."""

        def run(seed, factor):
            rng = np.random.Generator(np.random.PCG64(seed))
            starts = np.repeat(self.starts, round(n_each * factor), axis=0)
            ends = run_chains(
                starts,
                1,
                begin=self.state.assign,
                step=lambda: self.kernel.run(self.state, rng.bit_generator, False, self.own),
                read=self.state.cluster_labels,
            )
            law = self.transition[partition_index(self.starts)].clip(0.0) / len(self.starts)
            counts = np.zeros(self.transition.shape, dtype=np.int64)
            np.add.at(counts, (partition_index(starts), partition_index(ends)), 1)
            return Cells(counts[partition_index(self.starts)], law)

        return run


def arm_law(name, prior, variant, n=4, histories=(), own=0, **changes):
    """The law of a move of ARM given past states of some chains, and the summary."""
    posterior, state = few_rows(name, prior, n, **changes)
    if variant == "srm":
        kernel, law = arm("srm").kernel(), law_of_phi(n)
    else:
        states = [z for states in histories for z in states]
        kernel = kernel_with(arm(variant), past(*states, n_chains=len(histories)))
        law = law_of_phi(n, histories[own], states)
    blocks = "all" if variant == "srm" else variant
    log_joint = log_joints(posterior)
    exact = summarise(
        law, lambda phi: metropolis(proposals(posterior, phi, blocks)[0], log_joint), log_joint
    )
    return TransitionLaw(posterior, state, kernel, exact.transition, own), exact


# Of the first chain and of another: states that say different things.
TWO_CHAINS = [[(0, 0, 0, 0), (0, 0, 1, 1)], [(0, 1, 1, 2), (0, 1, 0, 1)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant",
    everyday(["all", "srm", "pair", "none"], "all"),
)
def test_law_of_a_move(variant, seed_sequence, record_property):
    """Where moves lead from each partition, and how often they stay: the choice of past states and
    rows, the random order, the proposal and what is accepted all have their part in this."""
    runs = {
        f"{name} {prior} {own}": arm_law(name, prior, variant, histories=TWO_CHAINS, own=own)[
            0
        ].run(1_000)
        for name, prior, own in (
            ("bernoulli", "dp", 0),
            ("relational", "pitman_yor", 1),
            ("gaussian", "mfm", 0),
            ("poisson", "finite", 1),
        )
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("n_split_merges", [1, 2])
@pytest.mark.slow
def test_law_of_a_move_and_split_merges(n_split_merges, seed_sequence, record_property):
    """Their number is fixed: it must not depend on what happened to the move before."""
    runs = {}
    for name, prior in (("bernoulli", "dp"), ("relational", "pitman_yor")):
        law, _ = arm_law(name, prior, "all", histories=TWO_CHAINS)
        sampler = arm("all").set_params(n_split_merges=n_split_merges)
        law.kernel = kernel_with(sampler, law.kernel.get_adaptation())
        posterior, _ = few_rows(name, prior)
        n_scans = SplitMerge().n_restricted_scans
        one = sum(
            p * split_merge_transition(posterior, phi, n_scans) for phi, p in law_of_phi(4).items()
        )
        law.transition = law.transition @ np.linalg.matrix_power(one, n_split_merges)
        runs[f"{name} {prior}"] = law.run(3_000)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


def test_a_wrong_consensus_is_left():
    """All past states have two cliques together. No pair on which they disagree separates them."""
    cliques = np.arange(36) // 12
    X = (cliques[:, None] == cliques).astype(float)
    np.fill_diagonal(X, 0.0)
    together = np.where(cliques == 2, 1, 0)
    other = together.copy()
    other[-1] = 2
    state = make_state(
        make_likelihood("relational", a=1.0, b=1.0), X, make_prior("dp", 36, concentration=1.0)
    )
    ends = {}
    for n_split_merges in (0, 1):
        kernel = kernel_with(ARM(n_split_merges=n_split_merges), past(together, other))
        state.assign(together)
        bit_generator = np.random.PCG64(0)
        for _ in range(200):
            kernel.run(state, bit_generator)
        ends[n_split_merges] = state.n_clusters
    assert ends == {0: 2, 1: 3}


@pytest.mark.slow
def test_finite_mixtures_with_all_components_in_use(seed_sequence):
    """Splits are proposed there too, and accepted where another cluster has given up its rows."""
    for variant in VARIANTS:
        law, _ = arm_law("bernoulli", "finite", variant, histories=TWO_CHAINS, n_components=2)
        law.starts = law.starts[law.starts.max(axis=1) == 1]
        assert_p(law.run(1_000), seed_sequence=seed_sequence)
        proposed, accepted = law.kernel.acceptance()["split"]
        assert proposed > 500
        assert accepted > 20


@combinations(blocks=["all", "pair", "none"], states=[(), ("0121",), ("0011", "0011")])
@pytest.mark.some(1)
def test_without_two_different_past_states(states, blocks, seed_sequence):
    """Rows are then uniform, and no blocks move."""
    law, _ = arm_law("bernoulli", "dp", "srm")
    law.kernel = arm(blocks).kernel()
    if states:
        law.kernel.set_adaptation(past(*states))
        law.kernel.set_adaptation(law.kernel.get_adaptation())
    assert_p(law.run(1_000), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "variant, n_moves", [("all", 60_000), *((variant, 1_000_000) for variant in VARIANTS)]
)
def test_acceptance(variant, n_moves, seed_sequence):
    """Of moves from the posterior of five rows: a multinomial law of splits and merges, accepted
    or not. A million moves tell rates apart that differ by one in a hundred."""
    states = [(0, 0, 1, 2, 2), (0, 1, 0, 1, 1)]
    law, exact = arm_law("bernoulli", "pitman_yor", variant, 5, [states])
    posterior, _ = few_rows("bernoulli", "pitman_yor", 5)
    pi = np.exp(log_joints(posterior) - logsumexp(log_joints(posterior)))
    expected = []
    for move in ("split", "merge"):
        expected += [exact.accepted[move], exact.proposed[move] - exact.accepted[move]]
    partitions = enumerate_partitions(5)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        before = law.kernel.acceptance()
        starts = partitions[rng.choice(52, round(n_moves * factor), p=pi)]
        run_chains(
            starts,
            1,
            begin=law.state.assign,
            step=lambda: law.kernel.run(law.state, rng.bit_generator),
            read=lambda: 0,
        )
        counts = []
        for move, (proposed, accepted) in law.kernel.acceptance().items():
            proposed, accepted = proposed - before[move][0], accepted - before[move][1]
            counts += [accepted, proposed - accepted]
        return Cells(counts, expected)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("own", [0, 1])
def test_law_of_rows_and_past_states(own, seed_sequence):
    """Pairs of different states, one of the chain's own; rows on which they disagree, all alike
    and in either order."""
    chains = [
        [(0, 0, 0, 0, 0), (0, 0, 1, 1, 1), (0, 0, 1, 1, 1)],
        [(0, 1, 2, 0, 0), (0, 0, 1, 1, 1), (0, 1, 2, 3, 4)],
    ]
    states = [z for chain in chains for z in chain]
    history = kernel_with(ARM(), past(*states, n_chains=2)).history
    law = {}
    choices = [(za, zb) for za in chains[own] for zb in states if za != zb]
    for za, zb in choices:
        pairs = disagreements(za, zb)
        for i, j in pairs + [(j, i) for i, j in pairs]:
            key = (i, j, za, zb)
            law[key] = law.get(key, 0.0) + 1 / len(choices) / 2 / len(pairs)
    index = {key: k for k, key in enumerate(law)}

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(len(law), dtype=np.int64)
        for _ in range(round(20_000 * factor)):
            i, j, za, zb = draw_pair(history, own, bit_generator)
            counts[index[i, j, tuple(za.tolist()), tuple(zb.tolist())]] += 1
        return Cells(counts, list(law.values()))

    assert_p(run, seed_sequence=seed_sequence)


def test_no_pair_of_past_states():
    for states in ((), ("000",), ("001", "001", "001")):
        history = kernel_with(ARM(), past(*states) if states else {}).history
        assert draw_pair(history, 0, np.random.PCG64(0)) is None


# Invariance.

FIXTURES = {
    # name: (likelihood, its parameters, concentration, rows or links, past states, starts)
    "F1": ("relational", {"a": 1.0, "b": 1.0}, 1.0, "01 02 12 13 14 23", "01000 00000", 20_000),
    "F2": ("bernoulli", {"a": 0.5, "b": 0.5}, 0.3, "01 10 00 10 01", "00122 01011", 12_000),
    "F3": ("bernoulli", {"a": 0.5, "b": 0.5}, 1.0, "1 0 0 1 0", "00102 00123", 60_000),
    "F4": ("bernoulli", {"a": 0.5, "b": 0.5}, 1.0, "10 10 11 10", "0000 0011", 20_000),
    "F5": ("relational", {"a": 1.0, "b": 1.0}, 1.0, "03 04 14 23 24 34", "01232 01234", 150_000),
    "F6": ("bernoulli", {"a": 0.5, "b": 0.5}, 2.0, "10 11 00 01", "0120 0110", 40_000),
}


def fixture_run(fixture, sampler):
    """Ten moves from each start, which is drawn from the posterior."""
    name, params, concentration, data, states, n_starts = FIXTURES[fixture]
    states = states.split()
    n = len(states[0])
    if name == "relational":
        X = np.zeros((n, n))
        for i, j in data.split():
            X[int(i), int(j)] = X[int(j), int(i)] = 1.0
    else:
        X = np.array([[float(x) for x in row] for row in data.split()])
    posterior = log_posterior(
        X, name, "dp", likelihood_params=params, prior_params={"concentration": concentration}
    )
    state = make_state(
        make_likelihood(name, **params), X, make_prior("dp", n, concentration=concentration)
    )
    kernel = kernel_with(sampler, past(*states))

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = run_chains(
            posterior.draw(round(n_starts * factor), rng),
            10,
            begin=state.assign,
            step=lambda: kernel.run(state, rng.bit_generator),
            read=state.cluster_labels,
        )
        return Cells(posterior.count(ends), posterior.probabilities, posterior.partitions)

    return run


@pytest.mark.parametrize(
    "fixture, blocks",
    [
        *(("F1", "pair"), ("F2", "all")),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                *(("F1", "all"), ("F2", "pair"), ("F3", "all"), ("F3", "pair")),
                *(("F6", "all"), ("F6", "pair")),
            )
        ),
    ],
)
@pytest.mark.some(1)
def test_fixtures(fixture, blocks, seed_sequence):
    """Where mistakes show most: the refinement of the way back (F1, F2), the lock (F3, F6)."""
    assert_p(fixture_run(fixture, arm(blocks)), seed_sequence=seed_sequence)


@pytest.mark.slow
def test_fixture_of_blocks_that_leave(seed_sequence):
    assert_p(fixture_run("F5", arm("all")), seed_sequence=seed_sequence)


@pytest.mark.parametrize("n_scans", [0, 1])
@pytest.mark.some(1)
def test_fixture_of_split_merge(n_scans, seed_sequence):
    """The launch state must not look at the current partition."""
    sampler = SplitMerge.from_paper("bSM", n_restricted_scans=n_scans, gibbs_sweeps=0)
    assert_p(fixture_run("F4", sampler), seed_sequence=seed_sequence)


def kernel_with_all_past(sampler):
    """A kernel whose past states are all partitions of five rows, if it has a past."""
    return kernel_with(sampler, all_past(5) if sampler.n_history_chains else {})


PURE = [
    pytest.param(arm("all"), id="all"),
    pytest.param(arm("pair"), id="pair", marks=pytest.mark.slow),
    pytest.param(arm("none"), id="none", marks=pytest.mark.slow),
    pytest.param(arm("srm"), id="srm", marks=pytest.mark.slow),
    pytest.param(ARM(gibbs_sweeps=0), id="with split-merges", marks=pytest.mark.slow),
    pytest.param(BSM, id="bsm"),
]


@pytest.mark.slow
@in_shares
@pytest.mark.parametrize("sampler", PURE)
def test_invariance(sampler, share, seed_sequence, record_property):
    """`test_enumeration.py` with any two partitions as past states."""
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            kernel_with_all_past(sampler),
            case_posterior(likelihood, prior),
            n_starts=3_000,
        )
        for likelihood, prior in share(cells(sampler))
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@in_shares
@pytest.mark.parametrize("sampler", PURE)
def test_convergence(sampler, share, seed_sequence, record_property):
    runs = {
        f"{likelihood} {prior}": convergence_run(
            case_state(likelihood, prior),
            kernel_with_all_past(sampler),
            case_posterior(likelihood, prior),
            np.zeros(5, dtype=np.int64),
            n_chains=250,
            n_iterations=40,
        )
        for likelihood, prior in share(cells(sampler))
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("blocks", everyday(["all", "pair", "none"], "all"))
def test_convergence_with_sweeps(blocks, seed_sequence, record_property):
    """With a sweep after each move any history will do, two states that differ little included."""
    runs = {
        f"{likelihood} {prior}": convergence_run(
            case_state(likelihood, prior),
            kernel_with(ARM(blocks=blocks), past("00001", "00011")),
            case_posterior(likelihood, prior),
            [0, 0, 0, 0, 0],
            n_chains=2_000,
            n_iterations=15,
        )
        for likelihood, prior in (("bernoulli", "dp"), ("relational", "finite"))
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_scans", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))]
)
def test_law_of_a_split_merge_from_the_past(n_scans, seed_sequence, record_property):
    """Rows outside c_i and c_j are in no cluster until a scan reaches them."""
    sampler = SplitMerge.from_paper("bSM", n_restricted_scans=n_scans, gibbs_sweeps=0)
    runs = {}
    for name, prior, own in (
        ("bernoulli", "dp", 0),
        ("relational", "pitman_yor", 1),
        ("poisson", "finite", 0),
    ):
        posterior, state = few_rows(name, prior)
        states = [z for states in TWO_CHAINS for z in states]
        kernel = kernel_with(sampler, past(*states, n_chains=2))
        law = law_of_phi(4, TWO_CHAINS[own], states)
        runs[f"{name} {prior}"] = TransitionLaw(
            posterior,
            state,
            kernel,
            sum(p * split_merge_transition(posterior, phi, n_scans) for phi, p in law.items()),
            own,
        ).run(1_000)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


# Ends of the range.


@pytest.mark.parametrize("sampler", [*(arm(v) for v in VARIANTS), ARM(), BSM], ids=repr)
@pytest.mark.parametrize("n", [1, 2])
def test_one_row_and_two(n, sampler, seed_sequence):
    posterior, state = few_rows("bernoulli", "dp", n)
    kernel = kernel_with(sampler, all_past(n))
    if n == 1:
        for _ in range(5):
            kernel.run(state, np.random.PCG64(0))
        assert state.cluster_labels().tolist() == [0]
        assert set(kernel.acceptance().values()) == {(0, 0)}
        return
    log_joint = log_joints(posterior)
    pi = np.exp(log_joint - logsumexp(log_joint))

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        together = rng.random(round(4_000 * factor)) < pi[0]
        ends = run_chains(
            np.where(together[:, None], [[0, 0]], [[0, 1]]),
            3,
            begin=state.assign,
            step=lambda: kernel.run(state, rng.bit_generator),
            read=state.cluster_labels,
        )
        return Cells(np.bincount(partition_index(ends), minlength=2), pi)

    assert_p(run, seed_sequence=seed_sequence)
    assert all(accepted > 0 for _, accepted in kernel.acceptance().values())


@pytest.mark.parametrize("gibbs_sweeps", [0, 1])
@pytest.mark.parametrize("row", [None, 4])
@pytest.mark.parametrize("blocks", ["all", "pair", "none"])
@pytest.mark.parametrize("states", [(), ("000011", "001122")])
def test_what_is_no_density_is_refused(states, blocks, row, gibbs_sweeps):
    """A row of the kernel, or the concentration, is NaN: no move is rejected for it,
    and the message names rows."""
    X = np.random.default_rng(0).normal(size=(6, 2))
    likelihood = make_likelihood("gaussian").resolve(X)
    data = likelihood.encode(X)
    concentration = 1.0
    if row is None:
        concentration = np.nan
    else:
        X[row] = np.nan
    model = bind(likelihood, {**data, "X": X}, 6)
    prior = make_prior("dp", 6, concentration=concentration)
    state = MixtureState(model, prior, np.zeros(6, np.intp))
    for labels in ([0] * 6, [0, 1, 0, 1, 0, 1]):
        state.assign(np.array(labels))
        kernel = arm(blocks).set_params(gibbs_sweeps=gibbs_sweeps).kernel()
        if states:
            kernel.set_adaptation(past(*states))
        bit_generator = np.random.PCG64(1)
        with pytest.raises(FloatingPointError, match=r"^rows? \d"):
            for _ in range(20):
                kernel.run(state, bit_generator)


def test_histories_of_other_rows_are_refused():
    """Labels of five rows say nothing about six."""
    state = new_state("bernoulli", case_of("bernoulli", n_samples=6), "dp")
    for sampler in (ARM(), BSM):
        kernel = kernel_with(sampler, all_past(5))
        with pytest.raises(ValueError, match="5 rows"):
            kernel.run(state, np.random.PCG64(0))


def test_settings_are_checked():
    with pytest.raises(ValueError, match=r"ARM.blocks must be one of"):
        ARM(blocks="both").kernel()
    with pytest.raises(ValueError, match=r"ARM.n_history_chains must be at least 0, got -1"):
        ARM(n_history_chains=-1).kernel()
    with pytest.raises(ValueError, match=r"ARM.n_history must be at least 1, got 0"):
        ARM(n_history=0).kernel()
    with pytest.raises(ValueError, match=r"ARM.gibbs_sweeps"):
        ARM(gibbs_sweeps=-1).kernel()
    with pytest.raises(ValueError, match=r"ARM.n_split_merges must be at least 0, got -1"):
        ARM(n_split_merges=-1).kernel()
    for cls in (ARM, SplitMerge):
        with pytest.raises(
            ValueError, match=rf"variant of {cls.__name__}.from_paper must be one of"
        ):
            cls.from_paper("SM")
    assert ARM().requires == "joint"
    assert SplitMerge.from_paper("bSM").requires == "joint"


@pytest.mark.parametrize("variant", ["ARM", "sARM", "sRM", "bSM"])
def test_samplers_of_the_paper_have_parameters(variant):
    """They can be cloned and set, and accept what the everyday sampler does."""
    cls = SplitMerge if variant == "bSM" else ARM
    sampler = cls.from_paper(variant, n_history=4, gibbs_sweeps=2)
    assert isinstance(sampler, cls)
    other = clone(sampler).set_params(n_history=5)
    assert type(other) is type(sampler)
    assert other.get_params() == {**sampler.get_params(), "n_history": 5}
    assert other.kernel().history.n_kept == 5
    assert type(other.kernel().history) is (History if variant == "bSM" else GrowingHistory)
    growing, chains = variant in ("ARM", "sARM"), sampler.n_history_chains
    assert (sampler.n_replicas, sampler.n_companions) == (
        (chains, 0) if growing else (1, max(0, chains - 1))
    )


def test_a_large_history_of_wide_labels():
    """Labels of 16 and of 32 bits."""
    for n, dtype in ((300, np.uint16), (70_000, np.uint32)):
        labels = np.stack([np.arange(n), np.arange(n) // 2]).astype(dtype)[None]
        kernel = ARM().kernel()
        kernel.set_adaptation({"labels": labels, "iterations": np.arange(2), "frozen": True})
        assert kernel.get_adaptation()["labels"].dtype == dtype
        for seed in range(20):
            i, j, za, zb = draw_pair(kernel.history, 0, np.random.PCG64(seed))
            assert abs(i - j) == 1 and min(i, j) % 2 == 0
            assert {za[-1], zb[-1]} == {n - 1, (n - 1) // 2}
