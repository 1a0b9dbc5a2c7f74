"""Chains that learn from past states: companions in warm-up, and the history that they leave.

A chain's dict holds all of it, so that it goes on to the bit wherever it stopped; chains of a fit
know nothing of each other.
"""

import pickle
import warnings

import numpy as np
import pytest
from reference.enumerate import canonical_labels
from reference.simulate import PRIOR_CASES, enumeration_case
from sklearn.base import clone
from support.arm import past
from support.cases import FAST, fit_case, make_estimator
from support.designs import everyday, thirds
from support.exactness import case_posterior, make_likelihood
from support.fits import assert_same_fit
from support.probes import draw_pair
from support.pvalues import Cells, assert_p
from support.states import case_of, new_state

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.samplers import ARM, Alternate, Gibbs, SplitMerge
from skdpm.mixture.samplers._history import History
from skdpm.papers.arm import GrowingHistory

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N_WARMUP, N_DRAWS = 11, 6
SAMPLERS = [
    ARM(n_history_chains=3, n_history=4),
    ARM(blocks="pair", n_history_chains=3, n_history=2, gibbs_sweeps=0),
    ARM(blocks="none", n_history_chains=1, n_history=4),
    ARM(n_history_chains=0),
    ARM.from_paper("ARM", blocks="all", n_history_chains=3, n_history=4),
    SplitMerge.from_paper("bSM", n_history_chains=3, n_history=4, n_restricted_scans=1),
    Alternate([Gibbs(), ARM(n_history_chains=3, n_history=4, gibbs_sweeps=0)]),
]
samplers = thirds("sampler", SAMPLERS, ids=repr)
ARMS = [sampler for sampler in SAMPLERS if isinstance(sampler, ARM)]


def make_program(sampler, name="relational", n_samples=18, **params):
    """What the chains of a fit share."""
    case = fit_case(name, n_samples=n_samples)
    params = {"n_warmup": N_WARMUP, "n_draws": N_DRAWS, "sampler": sampler, **params}
    estimator = make_estimator(case.likelihood, resampled=True, **params)
    return estimator._program(case.X, case.likelihood, sampler)


def advance(program, chain, n_iterations=None):
    program.advance(chain, n_iterations or program.n_iterations, lambda **figures: True)
    return chain


def assert_same(one, other, where="chain"):
    """Bits of all that a chain consists of."""
    assert type(one) is type(other), where
    if isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}[{key!r}]")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for k, pair in enumerate(zip(one, other, strict=True)):
            assert_same(*pair, f"{where}[{k}]")
    elif isinstance(one, np.ndarray):
        assert one.dtype == other.dtype, where
        np.testing.assert_array_equal(one, other, err_msg=where)
    elif hasattr(one, "__dict__"):
        assert_same(vars(one), vars(other), where)
    else:
        assert one == other, where


def history_of(chain):
    """What the history in a chain's dict holds: of ARM itself, or as a part of `Alternate`."""
    adaptation = chain["adaptation"]
    return adaptation["parts"][1] if "parts" in adaptation else adaptation


def window(t, n_history):
    """The iterations that a history holds after iteration t, by the specification."""
    stride = 1
    while t / (2 * stride) > n_history:
        stride *= 2
    return [u for u in range(1, t + 1) if 2 * u > t and u % stride == 0]


# The history.


@pytest.mark.parametrize("n_history", everyday([1, 2, 3, 16], 3))
def test_window(n_history):
    """After each of 200 iterations, also of a history that was saved after each: states of the
    later half, evenly spaced, no more than there may be, a byte per row."""
    n = 12
    states = [new_state("bernoulli", case_of("bernoulli", n_samples=n), "dp") for _ in range(2)]
    rng = np.random.default_rng(0)
    whole, seen = History(9, n_history), []
    for t in range(1, 201):
        labels = canonical_labels(rng.integers(4, size=(2, n)))
        seen.append(labels)
        for state, z in zip(states, labels, strict=True):
            state.assign(z)
        saved = pickle.loads(pickle.dumps(whole.get_state()))
        part = History(9, n_history)
        part.set_state(saved)
        for history in (whole, part):
            history.record(t, states, True)
            kept = history.get_state()
            expected = window(t, n_history)
            assert kept["iterations"].tolist() == expected
            assert len(expected) <= n_history
            assert kept["labels"].shape == (2, len(expected), n)
            assert kept["labels"].dtype == np.uint8
            assert kept["labels"].nbytes <= 2 * n_history * n
            for m, u in enumerate(expected):
                np.testing.assert_array_equal(kept["labels"][:, m], seen[u - 1])
    frozen = whole.get_state()
    whole.record(201, states, False)
    assert_same(whole.get_state(), frozen)
    growing = GrowingHistory(9, n_history)
    for t in range(1, 8):
        growing.record(t, states, False)
    assert growing.get_state()["iterations"].tolist() == window(7, n_history)
    published = ARM.from_paper("ARM").kernel().history
    for t in range(1, 102):
        published.record(t, states, False)
    assert published.get_state()["iterations"].tolist() == list(range(51, 102))


def test_labels_are_as_narrow_as_the_states_that_are_kept():
    """Also when a state of many clusters was among them before."""
    n = 400
    state = new_state("bernoulli", case_of("bernoulli", n_samples=n), "dp")
    history = History(9, 4)
    for t in range(1, 40):
        state.assign(np.arange(n) if t < 5 else np.arange(n) % 3)
        history.record(t, [state], True)
        kept = history.get_state()
        wide = kept["iterations"].min() < 5
        assert kept["labels"].dtype == (np.uint16 if wide else np.uint8)
        assert kept["labels"].max() == (n - 1 if wide else 2)


def test_window_is_never_empty():
    for n_history in (1, 3, 16):
        assert all(window(t, n_history) for t in range(1, 1_000))


# Chains.


@samplers
@pytest.mark.parametrize("name", ["relational", "gaussian"])
def test_a_chain_that_stops_after_every_iteration(name, sampler):
    """And is pickled there, is the chain that runs through: companions, streams, history."""
    program = make_program(sampler, name)
    whole = advance(program, program.chain(7, 0))
    chain = program.chain(7, 0)
    for t in range(1, program.n_iterations + 1):
        chain = pickle.loads(pickle.dumps(advance(program, chain, t)))
        assert chain["iteration"] == t
    assert_same(chain, whole)


@samplers
def test_companions_live_as_long_as_the_warm_up(sampler):
    """And the history is that of its last iteration, to the last draw."""
    program = make_program(sampler)
    chain = program.chain(3, 1)
    n_all = 3 if "n_history_chains=3" in repr(sampler) else 1
    growing = sampler.n_replicas > 1
    n_history = 2 if "n_history=2" in repr(sampler) else 4
    frozen = None
    for t in range(1, program.n_iterations + 1):
        advance(program, chain, t)
        in_warmup = t < N_WARMUP
        assert len(chain["replicas"]) == (n_all if in_warmup or growing else 1)
        history = history_of(chain)
        if sampler is SAMPLERS[3]:
            assert history["labels"].size == 0
            continue
        since = t if growing else min(t, N_WARMUP)
        assert history["iterations"].tolist() == window(since, n_history)
        assert history["labels"].shape == (n_all, len(history["iterations"]), program.n_samples)
        np.testing.assert_array_equal(canonical_labels(history["labels"]), history["labels"])
        if t == N_WARMUP:
            frozen = pickle.loads(pickle.dumps(history))
        if t > N_WARMUP and not growing:
            assert_same(history, frozen)
    # Chains that differ, and states that do.
    if n_all == 3:
        states = {row.tobytes() for row in history["labels"].reshape(-1, program.n_samples)}
        assert len(states) > 1


def test_the_history_is_of_the_states():
    """The last one of each chain is the state that its dict has at the time."""
    program = make_program(SAMPLERS[0])
    chain = program.chain(3, 1)
    for t in range(1, 9):
        advance(program, chain, t)
        states = [np.asarray(replica["state"]["labels"]) for replica in chain["replicas"]]
        np.testing.assert_array_equal(history_of(chain)["labels"][:, -1], canonical_labels(states))


@pytest.mark.parametrize("n_components", [None, 3])
def test_companions_start_dispersed(n_components):
    """In 4, 8, 16, ... random clusters, wherever the chain itself starts, on streams and with
    hyperparameters of their own; another chain's are others."""
    case = fit_case("poisson", n_samples=200)
    sampler = ARM(n_history_chains=5)
    params = {**FAST, "likelihood": "poisson", "sampler": sampler, "init": "single"}
    estimator = DPMixture(**params)
    if n_components:
        estimator = FiniteMixture(n_components, **params)
    likelihood = estimator._resolved("likelihood")
    program = estimator._program(case.X, likelihood, sampler)
    starts, streams = [], set()
    for index in (0, 1):
        with program.resume(program.chain(0, index)) as live:
            counts = [replica.state.n_clusters for replica in live.replicas]
            assert counts == ([1, 3, 3, 3, 3] if n_components else [1, 4, 8, 16, 32])
            for replica in live.replicas[1:]:
                starts.append(tuple(canonical_labels(replica.state.cluster_labels()).tolist()))
            streams |= {str(replica.bit_generator.state) for replica in live.replicas}
            live.step(0)
            assert len({replica.state.prior.concentration for replica in live.replicas}) == 5
    assert len(set(starts)) == 8
    assert len(streams) == 10


@samplers
def test_chains_are_independent_of_each_other(sampler):
    """A chain of three is the chain alone; chains differ."""
    chains = {}
    draws = {}
    for n_chains in (1, 3):
        model = make_estimator(
            fit_case("relational").likelihood,
            sampler=sampler,
            resampled=True,
            n_chains=n_chains,
            n_warmup=N_WARMUP,
        ).fit(fit_case("relational").X)
        chains[n_chains], draws[n_chains] = model._run.chains, model.log_joint_samples_
    (alone,), (first, second, third) = chains[1], chains[3]
    assert_same(alone["replicas"], first["replicas"])
    assert_same(alone["adaptation"], first["adaptation"])
    np.testing.assert_array_equal(draws[1][0], draws[3][0])
    for one, other in ((first, second), (first, third), (second, third)):
        assert one["replicas"][0]["bit_generator"] != other["replicas"][0]["bit_generator"]
    assert len({row.tobytes() for row in draws[3]}) == 3


@samplers
def test_the_number_of_jobs_changes_no_bit(sampler):
    case = fit_case("relational")
    params = {"sampler": sampler, "resampled": True, "n_chains": 4, "n_warmup": N_WARMUP}
    one, four = (
        make_estimator(case.likelihood, n_jobs=n_jobs, **params).fit(case.X) for n_jobs in (1, 4)
    )
    assert_same_fit(one, four, case.X_new)
    assert_same(one._run.chains, four._run.chains)


@samplers
def test_warm_continuation(sampler):
    case = fit_case("relational")
    params = {"sampler": sampler, "resampled": True, "n_warmup": N_WARMUP}
    whole = make_estimator(case.likelihood, n_draws=14, **params).fit(case.X)
    parts = make_estimator(case.likelihood, n_draws=5, warm_start=True, **params).fit(case.X)
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=14).fit(case.X)
    assert_same_fit(parts, whole, case.X_new)
    assert_same(parts._run.chains, whole._run.chains)


@pytest.mark.parametrize("sampler", [*ARMS, SAMPLERS[5]], ids=repr)
@pytest.mark.some(2)
def test_without_warm_up_there_is_no_history(sampler):
    """All moves are then of two random rows, or have a random launch state."""
    case = fit_case("bernoulli")
    params = {"n_warmup": 0, "n_chains": 1}
    if sampler.n_replicas > 1:
        model = make_estimator(case.likelihood, sampler=sampler, **params).fit(case.X)
        assert len(history_of(model._run.chains[0])["iterations"]) > 0
        return
    if isinstance(sampler, SplitMerge):
        plain = SplitMerge(sampler.n_restricted_scans)
    else:
        plain = clone(sampler).set_params(n_history_chains=0)
    one, other = (
        make_estimator(case.likelihood, sampler=s, **params).fit(case.X) for s in (sampler, plain)
    )
    assert_same_fit(one, other, case.X_new)
    (chain,) = one._run.chains
    assert len(chain["replicas"]) == 1
    assert history_of(chain)["labels"].size == 0


@pytest.mark.parametrize("sampler", [*ARMS, SAMPLERS[5]], ids=repr)
@pytest.mark.some(2)
def test_acceptance_rates(sampler):
    """Of the chain's own moves after warm-up."""
    program = make_program(sampler, "bernoulli", n_draws=30)
    chain = advance(program, program.chain(0, 0))
    counts = chain["acceptance"]
    assert set(counts) == {"split", "merge"}
    assert sum(proposed for proposed, _ in counts.values()) == 30
    model = make_estimator(fit_case("bernoulli").likelihood, sampler=sampler, n_draws=30)
    rates = model.fit(fit_case("bernoulli").X).acceptance_rate_
    assert set(rates) == {"split", "merge"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler",
    [
        ARM(n_history_chains=2, n_history=4),
        pytest.param(ARM(blocks="pair", n_history_chains=3, n_history=2), marks=pytest.mark.slow),
        pytest.param(
            SplitMerge.from_paper("bSM", n_history_chains=2, n_history=4, n_restricted_scans=1),
            marks=pytest.mark.slow,
        ),
    ],
    ids=repr,
)
def test_draws_follow_the_posterior(sampler, seed_sequence):
    """The last draws of the chains of a fit, each with a history of its own."""
    case, posterior = enumeration_case("relational"), case_posterior("relational", "dp")
    _, prior = PRIOR_CASES["dp"]

    def run(seed, factor):
        model = DPMixture(
            likelihood=make_likelihood("relational"),
            sampler=sampler,
            concentration=prior["concentration"],
            init="single",
            n_chains=round(700 * factor),
            n_warmup=8,
            n_draws=12,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few draws tell nothing about mixing
            model.fit(case.X)
        counts = posterior.count(model.label_samples_[:, -1])
        return Cells(counts, posterior.probabilities, posterior.partitions)

    assert_p(run, seed_sequence=seed_sequence)


def test_saved_states_are_those_that_moves_use():
    """A kernel that takes over a history draws what the first one draws."""
    program = make_program(SAMPLERS[0])
    chain = advance(program, program.chain(5, 0))
    kernels = [SAMPLERS[0].kernel(), SAMPLERS[0].kernel()]
    kernels[0].set_adaptation(chain["adaptation"])
    kernels[1].set_adaptation(pickle.loads(pickle.dumps(kernels[0].get_adaptation())))
    pairs = [
        [str(draw_pair(kernel.history, 1, np.random.PCG64(seed))) for seed in range(50)]
        for kernel in kernels
    ]
    assert pairs[0] == pairs[1]
    assert len(set(pairs[0])) > 10
    kernels[1].set_adaptation(past("0" * 18, "01" * 9))
    assert draw_pair(kernels[1].history, 0, np.random.PCG64(0)) is not None
