"""The state of a chain: labels, clusters and their statistics always agree."""

import contextlib
import pickle

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from reference.enumerate import canonical_labels, enumerate_partitions
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from support.cases import fit_case
from support.designs import combinations, everyday, thirds
from support.exactness import (
    SAMPLER_CASES,
    case_posterior,
    case_rows,
    case_state,
    complete_names,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
)
from support.kernels import bind
from support.probes import Probe, StateProbe
from support.states import case_of, log_joint_of, log_likelihood_of, new_model, new_state

from skdpm.mixture.likelihoods import Gaussian, Product
from skdpm.mixture.state._state import MixtureState

LIKELIHOODS = likelihood_names()
WITH_COMPLETE = [*LIKELIHOODS, *complete_names()]
SAMPLERS = [sampler for samplers in SAMPLER_CASES.values() for sampler in samplers]


@combinations(prior=PRIOR_CASES, name=WITH_COMPLETE)
def test_log_joint_of_every_partition(name, prior):
    """log prior + log likelihood, both normalised, of a state that goes from one to the next."""
    state, posterior = case_state(name, prior), case_posterior(name, prior)
    possible = np.isfinite(posterior.log_joint)
    found = []
    for labels in posterior.partitions:
        state.assign(labels)
        found.append(state.compute_log_joint())
    np.testing.assert_allclose(
        np.array(found)[possible], posterior.log_joint[possible], rtol=1e-11, atol=1e-11
    )
    assert np.isneginf(np.array(found)[~possible]).all()


@thirds("name", WITH_COMPLETE)
def test_log_joint_of_random_partitions(name):
    """18 rows, fresh states and reused ones."""
    case = case_of(name)
    rng = np.random.default_rng(1)
    reused = new_state(name, case, "pitman_yor")
    for n_labels in (1, 2, 3, 5, 9, 18, 30):
        labels = np.unique(rng.integers(0, n_labels, size=18), return_inverse=True)[1]
        expected = log_joint_of(name, case, labels, "pitman_yor")
        fresh = new_state(name, case, "pitman_yor", labels)
        reused.assign(labels)
        for state in (fresh, reused):
            np.testing.assert_array_equal(state.cluster_labels(), labels)
            np.testing.assert_array_equal(state.cluster_sizes(), np.bincount(labels))
            assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)
        np.testing.assert_allclose(fresh.dump(), reused.dump(), rtol=1e-9, atol=1e-9)


@thirds("name", WITH_COMPLETE)
def test_clusters_join(name):
    """One after the other, down to one; slots of those that are closed are used again."""
    case = case_of(name)
    rng = np.random.default_rng(2)
    labels = np.arange(18) % 6
    state = new_state(name, case, "pitman_yor", labels)
    probe = StateProbe(state)
    while state.n_clusters > 1:
        dst, src = (int(k) for k in rng.permutation(state.n_clusters)[:2])
        before = state.cluster_labels()
        expected = canonical_labels(np.where(before == src, dst, before))
        probe.join(dst, src)
        labels = state.cluster_labels()
        np.testing.assert_array_equal(canonical_labels(labels), expected)
        np.testing.assert_array_equal(state.cluster_sizes(), np.bincount(labels))
        log_joint = log_joint_of(name, case, labels, "pitman_yor")
        assert state.compute_log_joint() == pytest.approx(log_joint, rel=1e-11)
        probe.detach(i := int(rng.integers(18)))
        probe.attach(i, state.n_clusters)
        log_joint = log_joint_of(name, case, state.cluster_labels(), "pitman_yor")
        assert state.compute_log_joint() == pytest.approx(log_joint, rel=1e-11)
        probe.detach(i)
        probe.attach(i, 0)


@thirds("name", WITH_COMPLETE)
def test_stored_states_are_brought_back(name):
    """With some items in no cluster, after any other partition and a larger arena: labels, slots
    and densities are what they were, those of a new cluster included."""
    case = case_of(name)
    rng = np.random.default_rng(3)
    state = new_state(name, case, "pitman_yor", np.arange(18) % 4)
    probe = StateProbe(state)
    for n_labels in (1, 4, 3, 7, 18, 2):
        labels = np.unique([-1, *rng.integers(-1, n_labels, size=17)], return_inverse=True)[1] - 1
        state.assign(labels)
        stored, slots = probe.store(), probe.slots()
        densities = probe.log_predictive(0)
        state.assign(rng.permutation(18))
        probe.reserve(2 * state.model.n_slots)
        probe.recall(stored)
        np.testing.assert_array_equal(state.cluster_labels(), labels)
        np.testing.assert_array_equal(state.cluster_sizes(), np.bincount(labels[labels >= 0]))
        np.testing.assert_array_equal(probe.slots(), slots)
        np.testing.assert_array_equal(
            np.sort([*slots, *state.model.free_list()]), np.arange(state.model.n_slots)
        )
        np.testing.assert_array_equal(probe.log_predictive(0), densities)
        probe.attach(0, state.n_clusters)
        labels[0] = state.n_clusters - 1
        expected = log_likelihood_of(name, case, labels)
        assert probe.log_likelihood() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0, 0, 0, 0], "4 labels for 5 items"),
        ([0, 0, 0, 0, 5], "got 5"),
        ([0, 0, 0, -2, 0], "got -2"),
        ([0, 0, 3, 0, 1], "cluster 2 of 4 is empty"),
    ],
)
def test_what_is_no_partition_is_refused(labels, message):
    """By `assign`, which leaves the state as it was, and by a new state."""
    state = case_state("bernoulli", "dp")
    state.assign([0, 1, 1, 2, 0])
    before = state.compute_log_joint()
    with pytest.raises(ValueError, match=message):
        state.assign(labels)
    np.testing.assert_array_equal(state.cluster_labels(), [0, 1, 1, 2, 0])
    assert state.compute_log_joint() == before
    with pytest.raises(ValueError, match=message):
        make_state(make_likelihood("bernoulli"), case_rows("bernoulli"), state.prior, labels)


@pytest.mark.parametrize("labels", [[0, 3, 3, 5, 4], [0, 3, 3, 3, 0], [0, 3, 3, 5, -2]])
def test_saved_labels_must_be_those_of_the_clusters(labels):
    """A slot that is no cluster, a cluster without items, a number that means nothing."""
    state = case_state("bernoulli", "dp")
    state.assign([0, 1, 1, 2, 0])
    saved = state.save()
    named = {slot: name for name, slot in zip((0, 3, 5, 4), saved["slots"], strict=True)}
    known = {name: slot for slot, name in named.items()}
    saved["labels"] = np.array([known.get(name, name) for name in labels])
    with pytest.raises(ValueError, match="clusters of the saved state disagree"):
        MixtureState(new_model("bernoulli"), state.prior, saved=saved)


def test_a_model_belongs_to_one_state():
    """A second state would clear the clusters of the first behind its back."""
    model = new_model("bernoulli")
    prior, params = PRIOR_CASES["dp"]
    prior = make_prior(prior, 5, **params)
    state = MixtureState(model, prior, [0, 1, 1, 2, 0])
    before = state.compute_log_joint()
    with pytest.raises(ValueError, match="belongs to another state"):
        MixtureState(model, prior, [0, 0, 0, 0, 0])
    assert state.compute_log_joint() == before
    other = MixtureState(new_model("bernoulli"), prior, [0, 0, 0, 0, 0])
    assert state.compute_log_joint() == before
    del state, other
    MixtureState(model, prior, [0, 0, 0, 0, 0])


def test_a_state_grows_from_nothing():
    """Items that are in no cluster yet: each joins in turn, and densities are those of the rows so
    far. Only then is there a p(partition), and may a sampler run."""
    case = case_of("gaussian", n_samples=7)
    state = new_state("gaussian", case, "pitman_yor", np.full(7, -1))
    probe, kernel = StateProbe(state), SAMPLER_CASES["gibbs"][0].kernel()
    labels = np.full(7, -1)
    for n, cluster in enumerate([0, 1, 0, 2, 1, 1, 0]):
        assert state.n_attached == n
        np.testing.assert_array_equal(state.cluster_labels(), labels)
        assert np.isnan(state.compute_log_joint())
        with pytest.raises(ValueError, match=f"{7 - n} items are in no cluster"):
            kernel.run(state, np.random.PCG64(0))
        probe.attach(n, cluster)
        labels[n] = cluster
        expected = log_likelihood_of("gaussian", case, labels)
        assert probe.log_likelihood() == pytest.approx(expected, rel=1e-12)
    expected = log_joint_of("gaussian", case, labels, "pitman_yor")
    assert state.compute_log_joint() == pytest.approx(expected, rel=1e-12)
    kernel.run(state, np.random.PCG64(0))


class StateMachine(RuleBasedStateMachine):
    """A state against a dict: item -> block, and the reference's log likelihood."""

    name = None  # of the likelihood

    @initialize(
        start=st.lists(st.integers(-1, 4), min_size=7, max_size=7),
        prior=st.sampled_from(sorted(PRIOR_CASES)),
    )
    def start(self, start, prior):
        self.case = case_of(self.name, n_samples=7)
        self.prior_name = prior
        labels = np.unique([-1, *start], return_inverse=True)[1][1:] - 1
        self.state = new_state(self.name, self.case, prior, labels)
        self.probe = StateProbe(self.state)
        self.block = {i: label for i, label in enumerate(labels.tolist()) if label >= 0}
        self.n_blocks = 7  # numbers of blocks used so far
        self.stored = None

    def labels(self):
        """Block of each item, -1 where it is in none."""
        return np.array([self.block.get(i, -1) for i in range(7)])

    def positions(self):
        """Position of the cluster that each block has become."""
        return {block: self.probe.cluster(i) for i, block in self.block.items()}

    @rule(i=st.integers(0, 6))
    def detach(self, i):
        if i in self.block:
            self.probe.detach(i)
            del self.block[i]

    @rule(i=st.integers(0, 6), choice=st.integers(0, 7))
    def attach(self, i, choice):
        """To one of the clusters there are, or to the spare one."""
        if i in self.block:
            return
        positions = self.positions()
        blocks = {position: block for block, position in positions.items()}
        cluster = choice % (len(blocks) + 1)
        if cluster == len(blocks):
            blocks[cluster] = self.n_blocks
            self.n_blocks += 1
        self.probe.attach(i, cluster)
        self.block[i] = blocks[cluster]

    @rule(i=st.integers(0, 6), other=st.integers(0, 6), there_and_back=st.booleans())
    def log_predictive(self, i, other, there_and_back):
        """The predictive densities of a detached item are differences of the log likelihood, also
        when another item was the last to leave, or the item itself came and went."""
        self.detach(i)
        if there_and_back:
            self.attach(i, 0)
            self.detach(i)
        self.detach(other)
        found = self.probe.log_predictive(i)
        base = log_likelihood_of(self.name, self.case, self.labels())
        positions = self.positions()
        assert len(found) == len(positions) + 1
        for block, position in [*positions.items(), (self.n_blocks, len(positions))]:
            labels = self.labels()
            labels[i] = block
            expected = log_likelihood_of(self.name, self.case, labels) - base
            assert abs(found[position] - expected) < 1e-8

    @rule(n_slots=st.integers(1, 60))
    def reserve(self, n_slots):
        self.probe.reserve(n_slots)

    @rule(start=st.lists(st.integers(-1, 4), min_size=7, max_size=7))
    def assign(self, start):
        """Also of some items only, the others in no cluster."""
        labels = np.unique([-1, *start], return_inverse=True)[1][1:] - 1
        self.state.assign(labels)
        self.block = {i: label for i, label in enumerate(labels.tolist()) if label >= 0}

    @rule(i=st.integers(0, 6))
    def dissolve(self, i):
        if i in self.block:
            self.probe.dissolve(self.probe.cluster(i))
            gone = self.block[i]
            self.block = {m: block for m, block in self.block.items() if block != gone}

    @rule(i=st.integers(0, 6), other=st.integers(0, 6))
    def join(self, i, other):
        """The cluster of one item joins that of another."""
        dst, src = self.block.get(i), self.block.get(other)
        if dst is not None and src is not None and dst != src:
            self.probe.join(self.probe.cluster(i), self.probe.cluster(other))
            self.block = {m: dst if b == src else b for m, b in self.block.items()}

    @rule()
    def store(self):
        self.stored = self.probe.store(), dict(self.block), self.probe.slots()

    @rule()
    def recall(self):
        """Bring back what was set aside, in the same slots; it can be brought back again."""
        if self.stored is not None:
            stored, block, slots = self.stored
            self.probe.recall(stored)
            self.block = dict(block)
            np.testing.assert_array_equal(self.probe.slots(), slots)

    @rule()
    def rebuild(self):
        self.state.rebuild()

    @rule()
    def restore(self):
        saved = pickle.loads(pickle.dumps(self.state.save()))
        log_joint = self.state.compute_log_joint()
        kernel = self.case.likelihood.resolve(self.case.X)
        model = bind(kernel, kernel.encode(self.case.X), 7)
        self.state = MixtureState(model, self.state.prior, saved=saved)
        self.probe = StateProbe(self.state)
        self.stored = None
        np.testing.assert_equal(self.state.compute_log_joint(), log_joint)

    @precondition(lambda self: len(self.block) == 7)
    @rule(seed=st.integers(0, 99))
    def sweep(self, seed):
        most = PRIOR_CASES[self.prior_name][1].get("n_components", 7)
        if self.state.n_clusters > most:
            return
        kernel = SAMPLER_CASES["gibbs"][0].kernel()
        kernel.run(self.state, np.random.PCG64(seed))
        self.block = dict(enumerate(self.state.cluster_labels().tolist()))
        self.n_blocks = 7
        assert self.state.n_clusters <= most

    @invariant()
    def agrees(self):
        if not hasattr(self, "state"):
            return
        found = np.array([self.probe.cluster(i) for i in range(7)])
        labels = self.labels()
        np.testing.assert_array_equal(found >= 0, labels >= 0)
        inside = labels >= 0
        if inside.any():
            np.testing.assert_array_equal(
                canonical_labels(found[inside]), canonical_labels(labels[inside])
            )
        n_clusters = len(set(self.block.values()))
        assert self.state.n_clusters == n_clusters
        assert self.state.n_attached == len(self.block)
        np.testing.assert_array_equal(self.state.cluster_labels(), found)
        np.testing.assert_array_equal(
            self.state.cluster_sizes(), np.bincount(found[inside], minlength=n_clusters)
        )
        # Slots in use, the spare one and the free ones are all there are, each once.
        model = self.state.model
        slots = np.concatenate([self.probe.slots(), model.free_list()])
        np.testing.assert_array_equal(np.sort(slots), np.arange(model.n_slots))
        expected = log_likelihood_of(self.name, self.case, labels) if inside.any() else 0.0
        assert abs(self.probe.log_likelihood() - expected) < 1e-8
        if len(self.block) == 7:
            expected = log_joint_of(self.name, self.case, found, self.prior_name)
            log_joint = self.state.compute_log_joint()
            assert log_joint == expected or abs(log_joint - expected) < 1e-8


@pytest.mark.parametrize("name", everyday(WITH_COMPLETE, "gaussian", "categorical", "relational"))
def test_state_machine(name):
    """All that a state can do, in any order, against a dict."""
    machine = type("StateMachine", (StateMachine,), {"name": name})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=6, stateful_step_count=30, deadline=None)
    )


@pytest.mark.slow
@thirds("name", WITH_COMPLETE)
def test_state_machine_in_depth(name):
    machine = type("StateMachine", (StateMachine,), {"name": name})
    n = max(6, 6 * settings.default.max_examples // 10)
    run_state_machine_as_test(
        machine, settings=settings(max_examples=n, stateful_step_count=60, deadline=None)
    )


# Chains of states.


def trajectory(state, kernel, bit_generator, n_iterations):
    """Labels, log joint and all that is saved after each iteration, to the bit."""
    steps = []
    for _ in range(n_iterations):
        kernel.run(state, bit_generator)
        saved = {key: np.asarray(value).tolist() for key, value in state.save().items()}
        steps.append((state.cluster_labels().tolist(), state.compute_log_joint(), saved))
    return steps


@combinations(sampler=SAMPLERS, name=LIKELIHOODS)
def test_saved_state_goes_on_to_the_bit(name, sampler):
    """A chain cut after any iteration equals the uninterrupted one."""
    case = case_of(name, n_samples=40)
    if sampler.requires not in case.likelihood.capabilities:
        pytest.skip("the sampler needs another capability")
    start = np.arange(40) % 4
    whole = new_state(name, case, "pitman_yor", start)
    expected = trajectory(whole, sampler.kernel(), np.random.PCG64(5), 24)
    # A pure split-merge move may be refused many times in a row.
    assert len({tuple(labels) for labels, *_ in expected}) > (5 if "Gibbs" in repr(sampler) else 2)

    bit_generator = np.random.PCG64(5)
    state = new_state(name, case, "pitman_yor", start)
    kernel = sampler.kernel()
    steps = []
    for _ in range(8):
        steps += trajectory(state, kernel, bit_generator, 3)
        saved = pickle.loads(pickle.dumps(state.save()))
        adaptation = pickle.loads(pickle.dumps(kernel.get_adaptation()))
        likelihood = case.likelihood.resolve(case.X)
        model = bind(likelihood, likelihood.encode(case.X), 40)
        prior, params = PRIOR_CASES["pitman_yor"]
        state = MixtureState(model, make_prior(prior, 40, **params), saved=saved)
        kernel = sampler.kernel()
        kernel.set_adaptation(adaptation)
    assert steps == expected


@combinations(sampler=SAMPLERS, name=LIKELIHOODS)
def test_clusters_outgrow_the_arena(name, sampler):
    """From one cluster to nearly as many as rows, within one sweep: the arena grows several times
    in mid-sweep, and the chain is that of an arena that was large enough from the start."""
    n = 100
    sampler = type(sampler)()  # with the Gibbs sweep that follows each move
    case = case_of(name, n_samples=n)
    if sampler.requires not in case.likelihood.capabilities:
        pytest.skip("the sampler needs another capability")
    concentration = 1e6
    states = [
        make_state(case.likelihood, case.X, make_prior("dp", n, concentration=concentration))
        for _ in range(2)
    ]
    StateProbe(states[1]).reserve(8 * n)
    small, large = (trajectory(state, sampler.kernel(), np.random.PCG64(3), 2) for state in states)
    assert 64 <= states[0].model.n_slots < states[1].model.n_slots  # 16 at first: doubled twice
    for (labels, log_joint, _), (expected_labels, expected_log_joint, _) in zip(
        small, large, strict=True
    ):
        assert labels == expected_labels
        assert log_joint == expected_log_joint
        expected = log_eppf_and_likelihood(name, case, np.array(labels), concentration)
        assert log_joint == pytest.approx(expected, rel=1e-11)


def log_eppf_and_likelihood(name, case, labels, concentration):
    prior = log_eppf(np.bincount(labels), "dp", concentration=concentration)
    return prior + log_likelihood_of(name, case, labels)


@thirds("name", WITH_COMPLETE)
def test_slots_are_reused(name):
    """Clusters come and go without end in a fixed arena, and an emptied slot keeps nothing of the
    clusters it held."""
    case = case_of(name, n_samples=12)
    state = new_state(name, case, "dp", np.zeros(12, dtype=np.intp))
    probe = StateProbe(state)
    n_slots = state.model.n_slots
    rng = np.random.default_rng(2)
    for _ in range(300):
        i = rng.integers(12)
        probe.detach(i)
        probe.attach(i, rng.integers(state.n_clusters + 1))
    assert state.model.n_slots == n_slots
    labels = state.cluster_labels()
    fresh = new_state(name, case, "dp", labels)
    np.testing.assert_allclose(state.dump(), fresh.dump(), rtol=1e-9, atol=1e-9)
    for i in range(12):
        probe.detach(i)
    assert state.n_clusters == 0
    assert probe.log_likelihood() == 0
    fresh = new_state(name, case, "dp", np.zeros(12, dtype=np.intp))
    for i in range(12):
        probe.attach(i, 0)
    np.testing.assert_array_equal(state.dump(), fresh.dump())


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_one_row(name):
    """A sweep over one row finds no cluster but the spare one."""
    case = case_of(name, n_samples=1)
    for prior_name in PRIOR_CASES:
        state = new_state(name, case, prior_name)
        trajectory(state, SAMPLER_CASES["gibbs"][0].kernel(), np.random.PCG64(0), 3)
        assert state.cluster_labels().tolist() == [0]
        expected = log_joint_of(name, case, np.array([0]), prior_name)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)


def test_every_partition_is_assigned_as_given():
    """`assign` keeps the numbers of the clusters, whatever their order of appearance."""
    state = case_state("bernoulli", "dp")
    for labels in enumerate_partitions(5):
        for permuted in (labels, labels.max() - labels):
            state.assign(permuted)
            np.testing.assert_array_equal(state.cluster_labels(), permuted)


def test_likelihood_objects_are_what_the_cases_say():
    """The two sources of cases (`fit_case`, `enumeration_case`) agree on the hyperparameters."""
    for name in LIKELIHOODS:
        assert repr(fit_case(name).likelihood) == repr(make_likelihood(name))


def test_tables_of_a_prior_cover_all_items():
    """A prior of fewer items has no weight of a cluster of all."""
    likelihood, X = Gaussian().resolve(np.eye(5)), np.eye(5)
    for n, fits in ((4, False), (5, True)):
        with contextlib.nullcontext() if fits else pytest.raises(ValueError, match="prior of 4"):
            MixtureState(
                bind(likelihood, likelihood.encode(X), 5), make_prior("dp", n, concentration=1.0)
            )


def test_no_memory_is_an_error_that_leaves_a_kernel_as_it_was(monkeypatch):
    """Also in parts, whose rows are inside those of the whole."""
    X = np.random.default_rng(0).normal(size=(9, 4))
    X[::4, 1] = np.nan
    parts = [("gaps", Gaussian(), [0, 1]), ("rest", Gaussian(), [2, 3])]
    likelihood = Product(parts).resolve(X)

    def kernel():
        probe = Probe(bind(likelihood, likelihood.encode(X), None), 3)
        slots = np.array([probe.acquire() for _ in range(3)])
        for i in (1, 2, 3):
            probe.add(slots[0], i)
        return probe, slots

    def fail(*arguments, **settings):
        raise MemoryError("no memory")

    (probe, slots), (control, others) = kernel(), kernel()
    with monkeypatch.context() as patch:
        patch.setattr(np, "full", fail)
        with pytest.raises(MemoryError, match="no memory"):
            probe.reserve(300)
    for some, places in ((probe, slots), (control, others)):
        some.reserve(40)
        some.add(places[1], 5)
    np.testing.assert_array_equal(
        probe.log_predictive_many(slots, 6), control.log_predictive_many(others, 6)
    )
