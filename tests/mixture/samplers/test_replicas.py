"""One kernel serves several states: replicas of a chain, each with a stream of its own.

A kernel that serves two in turn does to each what a kernel of its own would have done, to the bit;
and two replicas that start independent stay independent.
"""

import pickle
import warnings
from functools import cache

import numpy as np
import pytest
from reference.enumerate import partition_index
from reference.likelihoods import log_posterior
from reference.simulate import PRIOR_CASES, enumeration_case
from support.cases import fit_case
from support.chains import run_chains
from support.designs import everyday
from support.exactness import (
    case_posterior,
    likelihood_names,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
)
from support.fits import assert_same_fit
from support.probes import StateProbe
from support.pvalues import Cells, assert_p_matrix, chi_squared_p
from support.states import case_of, new_state

from skdpm import DPMixture
from skdpm.chains import stream as make_stream
from skdpm.mixture.chains import program as _program
from skdpm.mixture.samplers import PGSM, SAMS, Alternate, Gibbs, SplitMerge

ANCHORS = ("uniform", "cluster_informed", "threshold_informed")
SAMPLERS = [
    Gibbs(),
    *(PGSM(n_particles=5, n_anchors=3, anchors=anchors) for anchors in ANCHORS),
    PGSM(resampling="optimal", anchors="threshold_informed"),
    SAMS(),
    SAMS(anchors="cluster_informed"),
    SplitMerge(n_restricted_scans=1),
    Alternate([Gibbs(), SAMS(anchors="neighbours", gibbs_sweeps=0)]),
]
INFORMED = [s for s in SAMPLERS if getattr(s, "anchors", "").endswith("informed")]
ids = {"ids": lambda value: repr(value) if not isinstance(value, str) else value}


def trajectories(kernels, states, replicas, n_warmup=6, n_draws=10):
    """Labels of several states after each iteration, all run in turn; and what kernels learnt."""
    streams = [np.random.PCG64(seed) for seed in range(len(states))]
    steps = []
    for iteration in range(n_warmup + n_draws):
        for kernel, state, stream, replica in zip(kernels, states, streams, replicas, strict=True):
            kernel.run(state, stream, iteration < n_warmup, replica)
            steps.append((state.cluster_labels().tolist(), state.compute_log_joint()))
    return steps


def unlike_states(name):
    """Of the same rows, in few and in many clusters, under different concentrations, and one with
    an arena that was large from the start."""
    case = case_of(name, n_samples=30)
    states = []
    for n_clusters, concentration in ((1, 0.1), (5, 1.0), (30, 100.0)):
        prior = make_prior("dp", 30, concentration=concentration)
        states.append(make_state(case.likelihood, case.X, prior, np.arange(30) % n_clusters))
    StateProbe(states[1]).reserve(500)
    return states


@pytest.mark.parametrize("sampler", SAMPLERS, **ids)
@pytest.mark.parametrize("name", ["gaussian", "poisson", "relational_directed"])
@pytest.mark.some(7)
def test_one_kernel_for_several_states(name, sampler):
    """The same bits as with a kernel for each."""
    if sampler.requires not in fit_case(name).likelihood.capabilities:
        pytest.skip("the sampler needs another capability")
    shared = sampler.kernel()
    together = trajectories([shared] * 3, unlike_states(name), range(3))
    own = [sampler.kernel() for _ in range(3)]
    assert together == trajectories(own, unlike_states(name), [0] * 3)
    acceptance = shared.acceptance()
    for move, counts in acceptance.items():
        expected = np.sum([kernel.acceptance()[move] for kernel in own], axis=0)
        np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("sampler", INFORMED, **ids)
def test_a_shared_snapshot_would_be_seen(sampler):
    """The power of the above: replicas under one number, which therefore share what is learnt."""
    together = trajectories([sampler.kernel()] * 3, unlike_states("gaussian"), [0] * 3)
    own = trajectories([sampler.kernel() for _ in range(3)], unlike_states("gaussian"), [0] * 3)
    assert together != own


@pytest.mark.parametrize("sampler", INFORMED, **ids)
def test_what_replicas_learnt_is_saved(sampler):
    """With an entry for each, from which another kernel goes on."""
    first, states = sampler.kernel(), unlike_states("gaussian")
    trajectories([first] * 3, states, range(3))
    starts = [state.cluster_labels() for state in states]
    second = sampler.kernel()
    second.set_adaptation(first.get_adaptation())
    assert len(first.get_adaptation()["snapshots"]) == 3
    ends = []
    for kernel in (first, second):
        for state, start in zip(states, starts, strict=True):
            state.assign(start)
        ends.append(trajectories([kernel] * 3, states, range(3), n_warmup=0))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    "sampler", everyday(SAMPLERS, SAMPLERS[0], SAMPLERS[1], SAMPLERS[-1]), **ids
)
@pytest.mark.some(1)
def test_states_of_other_models(sampler):
    """Of other likelihoods, with other numbers of rows, coupled clusters or not: a kernel takes
    them as they come."""
    names = [n for n in likelihood_names() if sampler.requires in make_likelihood(n).capabilities]
    kernel = sampler.kernel()
    for n_samples in (2, 40, 3, 17, 1):
        for name in names:
            case = case_of(name, n_samples=n_samples)
            ends = []
            for one in (kernel, sampler.kernel()):
                state = new_state(name, case, "pitman_yor", np.arange(n_samples) % 4 % n_samples)
                stream = np.random.PCG64(n_samples)
                for _ in range(5):
                    one.run(state, stream)
                ends.append((state.cluster_labels().tolist(), state.compute_log_joint()))
            assert ends[0] == ends[1]


@cache
def four_rows(name, prior_case):
    """The posterior of four rows of a case, and a function that makes a state of them."""
    prior, params = PRIOR_CASES[prior_case]
    case = enumeration_case(name)
    X = case.X[:4, :4] if name == "relational" else case.X[:4]
    posterior = log_posterior(X, name, prior, likelihood_params=case.params, prior_params=params)

    def new(factor=1.0):
        changed = {**params, "concentration": factor * params["concentration"]}
        return make_state(make_likelihood(name), X, make_prior(prior, 4, **changed))

    return posterior, new


def pair_run(sampler, name, prior, planted=None, n_starts=20_000, n_iterations=2):
    """A run for `assert_p`: two replicas that start from independent draws of the posterior stay
    such, also together. Four rows have 15 partitions, a pair of replicas 225.

    `planted`: "stream", both draw the same numbers; "concentration", the second runs under one
    that is not its own.
    """
    posterior, new = four_rows(name, prior)
    law = np.outer(posterior.probabilities, posterior.probabilities)
    states = [new(), new(2.0 if planted == "concentration" else 1.0)]

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        streams = [np.random.PCG64(word) for word in seed.spawn(2)]
        kernel = sampler.kernel()

        def step(adapting=False):
            for replica in (0, 1):
                kernel.run(states[replica], streams[replica], adapting, replica)

        def begin(pair):
            for state, labels in zip(states, pair, strict=True):
                state.assign(labels)
            if planted == "stream":
                streams[1].state = streams[0].state

        begin([[0, 0, 1, 1], [0, 1, 0, 2]])  # so that what they learn in warm-up differs
        for iteration in range(10):
            step(iteration < 9)
        starts = np.stack(
            [posterior.draw(round(n_starts * factor), rng) for _ in range(2)], axis=1
        )
        ends = run_chains(
            starts,
            n_iterations,
            begin=begin,
            step=step,
            read=lambda: [state.cluster_labels() for state in states],
        )
        counts = np.zeros(law.shape, dtype=np.int64)
        np.add.at(counts, (partition_index(ends[:, 0]), partition_index(ends[:, 1])), 1)
        return Cells(counts, law)

    return run


PURE = [
    (PGSM(n_particles=3, anchors="threshold_informed", gibbs_sweeps=0), "gaussian", "dp"),
    (SAMS(anchors="cluster_informed", gibbs_sweeps=0), "poisson", "pitman_yor"),
    (SAMS(gibbs_sweeps=0), "relational", "dp"),
    (SplitMerge(n_restricted_scans=1, gibbs_sweeps=0), "bernoulli", "finite"),
    (Gibbs(), "categorical", "dp"),
]


@pytest.mark.slow
def test_replicas_stay_independent(seed_sequence, record_property):
    runs = {
        f"{sampler!r} {name} {prior}": pair_run(sampler, name, prior)
        for sampler, name, prior in PURE
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.parametrize("sampler, name, prior", PURE, **ids)
@pytest.mark.slow
def test_the_concentration_of_another_replica_is_seen(sampler, name, prior, seed_sequence):
    cells = pair_run(sampler, name, prior, planted="concentration")(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.parametrize("sampler, name, prior", PURE[2:], **ids)
@pytest.mark.slow
def test_a_stream_for_both_is_seen(sampler, name, prior, seed_sequence):
    """Not with informed anchors, which differ, and so the meaning of the numbers."""
    cells = pair_run(sampler, name, prior, planted="stream")(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# Chains of an estimator.


class ThreeStates(Gibbs):
    n_replicas = 3


class ThreeInformed(PGSM):
    n_replicas = 3


FAST = {"n_warmup": 8, "n_draws": 12, "n_chains": 2, "random_state": 0, "concentration": 2.0}


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
@pytest.mark.some(1)
@pytest.mark.long
def test_draws_are_those_of_the_first_replica(likelihood):
    """Gibbs learns nothing, so that the first of three does what one alone would have done."""
    X = np.random.default_rng(0).poisson(np.repeat([[1.0], [9.0]], 12, axis=0), size=(24, 2))
    params = {**FAST, "likelihood": likelihood, "concentration": None}
    one = DPMixture(sampler=Gibbs(), **params).fit(X)
    three = DPMixture(sampler=ThreeStates(), **params).fit(X)
    assert_same_fit(one, three, X)
    for chain in three._run.chains:
        states = [replica["state"]["labels"].tolist() for replica in chain["replicas"]]
        assert len({str(labels) for labels in states}) == 3
        assert len({replica["concentration"] for replica in chain["replicas"]}) == 3
        values = [replica["values"] for replica in chain["replicas"]]
        assert values[0] and len({repr(v) for v in values}) == 3


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
@pytest.mark.parametrize("sampler", [ThreeStates(), ThreeInformed()])
def test_replicas_go_on_to_the_bit(sampler):
    case = fit_case("bernoulli")
    whole = DPMixture(likelihood=case.likelihood, sampler=sampler, **FAST).fit(case.X)
    params = {**FAST, "n_draws": 5}
    parts = DPMixture(likelihood=case.likelihood, sampler=sampler, warm_start=True, **params)
    parts = pickle.loads(pickle.dumps(parts.fit(case.X))).set_params(n_draws=12).fit(case.X)
    assert_same_fit(parts, whole, case.X_new)


@pytest.mark.slow
def test_each_replica_follows_the_posterior(seed_sequence):
    """The last states of all replicas of many chains, each counted as a draw."""
    case, posterior = enumeration_case("bernoulli"), case_posterior("bernoulli", "dp")
    _, prior = PRIOR_CASES["dp"]

    def run(seed, factor):
        model = DPMixture(
            likelihood=make_likelihood("bernoulli"),
            sampler=ThreeStates(),
            concentration=prior["concentration"],
            n_chains=round(500 * factor),
            n_warmup=15,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one draw tells nothing about mixing
            model.fit(case.X)
        labels = [
            np.unique(replica["state"]["labels"], return_inverse=True)[1]
            for chain in model._run.chains
            for replica in chain["replicas"]
        ]
        counts = posterior.count(np.array(labels))
        return Cells(counts, posterior.probabilities, posterior.partitions)

    assert_p_matrix({"replicas": run}, seed_sequence=seed_sequence)


@pytest.mark.filterwarnings("ignore:the chains have not mixed")
def test_replicas_on_one_stream_are_seen(monkeypatch):
    """A planted error: all replicas draw the same numbers."""
    monkeypatch.setattr(_program, "stream", lambda entropy, *key: make_stream(entropy, key[0]))
    one_start = np.zeros(24, dtype=np.intp)
    monkeypatch.setattr(_program, "dispersed_labels", lambda *arguments: one_start)
    X = np.random.default_rng(0).normal(size=(24, 2))
    model = DPMixture(sampler=ThreeStates(), init=one_start, **FAST).fit(X)
    states = [replica["state"]["labels"] for replica in model._run.chains[0]["replicas"]]
    np.testing.assert_array_equal(states[0], states[1])
