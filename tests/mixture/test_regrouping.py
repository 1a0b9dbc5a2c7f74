# SPDX-License-Identifier: BSD-3-Clause
"""Chains that restart, in warm-up, from the state of a far more probable one; the log mass around
draws, by which they are compared; and the verdict about the levels of chains."""

import itertools
import types
import warnings

import numpy as np
import pytest
from scipy.special import entr
from scipy.stats import multivariate_t
from sklearn.exceptions import ConvergenceWarning
from support.fits import assert_same_fit

from skdpm import DPMixture, FiniteMixture, _convergence, _estimator, _halts
from skdpm.chains import DRAW_LOOKS
from skdpm.mixture.chains import program as chain_program
from skdpm.mixture.chains.automatic import AutomaticStart, FirstState
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.state._scoring import MixtureRows
from skdpm.mixture.state._state import MixtureState

FIXED = {"likelihood": Gaussian(0.0, 1e-6, 4.0, 1.0), "concentration": 1e-4, "sampler": "gibbs"}


@pytest.fixture(scope="module")
def four():
    """Four clusters of 25 rows, which Gibbs sweeps do not split once they are one."""
    rng = np.random.default_rng(0)
    centres = 20.0 * np.array([[0, 0], [0, 1], [1, 0], [1, 1]])
    return np.repeat(centres, 25, axis=0) + rng.normal(size=(100, 2))


def started(monkeypatch, starts):
    """Let chain c begin with the labels starts[c]."""
    order = itertools.cycle(starts)

    def first_state(*_):
        return lambda program, _: FirstState(
            next(order), program.first_values(), program.first_concentration
        )

    monkeypatch.setattr(chain_program, "first_state", first_state)


def fitted(X, **parameters):
    model = DPMixture(**{**FIXED, "n_draws": 30, "n_jobs": 1, "random_state": 0, **parameters})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        return model.fit(X), [str(w.message) for w in caught]


TRUE = np.repeat(np.arange(4), 25)
PAIRS, ONE = TRUE // 2, np.zeros(100, dtype=int)


def test_low_chains_restart_from_the_best(four, monkeypatch):
    started(monkeypatch, [ONE, TRUE, TRUE, PAIRS])
    model, said = fitted(four, n_warmup=75, n_chains=4)
    assert [chain.get("origin") for chain in model._run.chains] == [1, None, None, 1]
    assert (model.n_components_samples_ == 4).all()
    assert model.converged_ and not said
    # Their streams stay their own.
    streams = [chain["replicas"][0]["bit_generator"]["state"] for chain in model._run.chains]
    assert len({stream["inc"] for stream in streams}) == 4


def test_no_chain_restarts_after_warmup(four, monkeypatch):
    """A warm-up that ends at the first look leaves chains where they are."""
    started(monkeypatch, [ONE, TRUE, TRUE, TRUE])
    model, said = fitted(four, n_warmup=50, n_chains=4)
    assert all("origin" not in chain for chain in model._run.chains)
    assert (model.n_components_samples_[0] == 1).all()
    assert not model.converged_
    assert "Chain 0 stays" in said[0] and "estimate of the log mass" in said[0]
    assert "levels" in model.summary() and "differ about labels" in model.summary()


def test_chains_in_separate_modes_end_early(four, monkeypatch):
    started(monkeypatch, [ONE, TRUE, TRUE, PAIRS])
    model, said = fitted(four, n_warmup=50, n_draws="auto", n_chains=4)
    assert model.draws_.n_draws == DRAW_LOOKS[0]
    assert model.diagnostics_["coclustering"]["separation"] == np.inf
    assert "They stay in separate modes" in said[0] and "n_draws=" not in said[0]
    assert "4 chains, which stay in separate modes" in model.summary()


def test_separation_of_chains():
    """Of chains that mix, it is 1; a chain apart adds its distance; a slow chain moves."""
    draws = np.random.default_rng(0).integers(3, size=(6, 200, 40))
    assert _convergence.separation(draws) == pytest.approx(1.0, abs=0.1)
    apart = draws.copy()
    apart[2] = np.where(np.arange(200)[:, None] % 20 == 0, apart[2], 0)
    assert _convergence.separation(apart) > _convergence.largest_separation(len(apart))
    slow = draws.copy()
    slow[:, 100:] = 0
    assert _convergence.separation(slow) < 0.1
    stuck = np.broadcast_to(draws[:, :1], draws.shape)
    assert _convergence.separation(stuck) == np.inf
    assert _convergence.separation(np.zeros((2, 50, 9))) == 0.0
    assert _convergence.separation(draws[:1]) == 0.0
    assert _convergence.separation(draws[:, :10]) == 0.0


def test_what_one_start_found_is_not_certain(four, monkeypatch):
    started(monkeypatch, [ONE, TRUE, ONE, ONE])
    model, said = fitted(four, n_warmup=75, n_chains=4)
    assert model.diagnostics_["log_joint"]["n_starts"] == 1
    assert (model.n_components_samples_ == 4).all()
    assert not model.converged_
    assert "only one start led to this level" in said[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_threads_do_not_change_restarts(four, monkeypatch):
    fits = []
    for n_jobs in (1, 2):
        monkeypatch.undo()
        model = DPMixture(**FIXED, init="single", n_chains=3, n_jobs=n_jobs, random_state=3)
        started(monkeypatch, [ONE, TRUE, ONE])
        fits.append(model.set_params(init="auto", n_warmup=80, n_draws=10).fit(four))
    assert any("origin" in chain for chain in fits[0]._run.chains)
    assert_same_fit(*fits, four)


@pytest.mark.parametrize("limit", [{"target_ess": 20}, {"target_ess": None}])
def test_a_long_warmup_leaves_the_looks_at_draws(four, limit):
    """After the last look at the warm-up come those at the draws."""
    model, _ = fitted(four, init=TRUE, n_warmup=300, n_draws="auto", n_chains=2, **limit)
    assert model.draws_.n_draws == (50 if limit["target_ess"] else 100)


def probed(monkeypatch, starts):
    """Let chain c begin with the labels starts[c]; probes have their own starts."""
    order = itertools.cycle(starts)
    monkeypatch.setattr(
        AutomaticStart,
        "__call__",
        lambda self, program, _: FirstState(
            next(order), program.first_values(), program.first_concentration
        ),
    )


def test_a_probe_finds_what_all_chains_miss(four, monkeypatch):
    probed(monkeypatch, [ONE, PAIRS])
    model, said = fitted(four, n_warmup="auto", n_chains=2)
    assert [chain["origin"] for chain in model._run.chains] == [2, 2]
    assert (model.n_components_samples_ > 3).all()
    assert not model.converged_ and "only one start led to this level" in said[0]
    other, _ = fitted(four, n_warmup=model.n_warmup_, n_chains=2, n_jobs=2)
    assert_same_fit(model, other, four)


def weak_topics():
    rng = np.random.default_rng(2)
    topics, p = rng.integers(0, 3, 500), 0.6 * rng.beta(1, 6, (3, 60))
    return (rng.random((500, 60)) < p[topics]).astype(int)


@pytest.mark.parametrize("looks", [True, False])
@pytest.mark.long
def test_a_probe_finds_clusters_whose_rows_may_be_in_others(looks, monkeypatch):
    """The log joint of three topics is 80 below that of one, and their mass 45 above."""
    if not looks:
        monkeypatch.setattr(chain_program.RowProgram, "have_collapsed", lambda *_: False)
    settings = {"likelihood": "bernoulli", "concentration": None, "sampler": "auto"}
    model, _ = fitted(weak_topics(), **settings, n_chains=4)
    assert {c.get("origin") for c in model._run.chains} == ({4} if looks else {None})
    assert (model.n_components_samples_ >= 3).all() if looks else model.n_clusters_ == 1
    if looks:  # a given warm-up as well
        again, _ = fitted(weak_topics(), **settings, n_chains=4, n_warmup=model.n_warmup_)
        assert_same_fit(model, again, weak_topics())


@pytest.mark.long
def test_noise_stays_one_cluster(monkeypatch):
    probes, probe = [], chain_program.RowProgram.probe
    monkeypatch.setattr(
        chain_program.RowProgram,
        "probe",
        lambda *parts: probes.append(probe(*parts)) or probes[-1],
    )
    rng = np.random.default_rng(0)
    X = (rng.random((500, 60)) < 0.6 * rng.beta(1, 6, 60)).astype(int)
    settings = {"likelihood": "bernoulli", "concentration": None, "sampler": "auto"}
    model, said = fitted(X, **settings, n_chains=4)
    assert model.n_clusters_ == 1 and model.converged_ and not said
    assert not any("origin" in chain for chain in model._run.chains)
    assert [len(probe["warmup"]) for probe in probes] == [50]


def test_a_probe_that_fails_changes_nothing(four, monkeypatch):
    fits = []
    for name, error in (("finest", FloatingPointError), ("probe", None)):
        probed(monkeypatch, [ONE, TRUE])

        def replaced(*_, error=error):
            if error is not None:
                raise error

        owner = AutomaticStart if error else chain_program.RowProgram
        monkeypatch.setattr(owner, name, replaced)
        fits.append(fitted(four, n_warmup=80, n_chains=2)[0])
    assert [chain.get("origin") for chain in fits[0]._run.chains] == [1, None]
    assert_same_fit(*fits, four)


@pytest.mark.parametrize("origin", [{}, {"origin": 1}])
def test_when_chains_restart_from_a_probe(four, monkeypatch, origin):
    """If it is the best, and no chain has restarted before."""
    program = DPMixture(n_chains=3, random_state=0)._prepare(four, None).program
    probe = {"index": 3}
    restarted = []
    monkeypatch.setattr(type(program), "probe", lambda *_: probe)
    monkeypatch.setattr(
        type(program), "restart", lambda _, *two: restarted.append([c["index"] for c in two])
    )
    best = [[0, 1]] if origin else [[0, 3], [1, 3], [2, 3]]
    varies = [[0, 1]] if origin else [[0, 3]]
    for expected, values in (
        ([[0, 1]], (-9e3, 0.0, 90.0)),
        (best, (500.0, 500.0, 500.0)),
        (varies, (-200.0, 300.0, 600.0)),
    ):
        probe["masses"] = list(zip((30, 40, 50), values, strict=True))
        chains = [
            {"index": c, "masses": [(i, 100.0 * (c > 0)) for i in (30, 40, 50)], **origin}
            for c in range(3)
        ]
        assert program.regroup(chains, 50) and restarted == expected
        restarted.clear()


def test_the_finest_start_is_not_merged(four):
    program = DPMixture(random_state=0)._prepare(four, None).program
    first = program.first_state.finest(program, np.random.PCG64(0))
    assert np.bincount(first.labels).size == 10
    assert first.values["mean_precision"] != program.first_values()["mean_precision"]
    chain = program.chain(0, 0)
    program.advance(chain, 50, lambda **_: True)
    assert program.probe([chain], 50, True, lambda **_: False) is None  # as when the time is over
    assert program.probe([chain], 50, False, lambda **_: True) is None
    probe = program.probe([chain], 50, True, lambda **_: True)
    assert probe["iteration"] == len(probe["warmup"]) == 50
    assert [i for i, _ in probe["masses"]] == [20, 30, 40, 50]
    finite = FiniteMixture(n_components=3, random_state=0)._prepare(four, None).program
    assert finite.first_state.finest(finite, np.random.PCG64(0)).labels.max() == 2


def test_the_coarsest_start_has_few_pieces(four):
    program = DPMixture(random_state=0)._prepare(four, None).program
    assert program.first_state.coarsest(program, np.random.PCG64(0)).labels.max() == 5


def test_the_finest_start_keeps_known_classes_apart(four):
    known = np.where(np.arange(100) % 5 == 0, np.arange(100) // 5 % 2, -1)
    model = FiniteMixture(n_components=3, n_warmup=0, n_draws=1, n_chains=1, random_state=0)
    model.fit(four, known_labels=known)
    program = model._prepare(four, None).program
    chain = program.chain(0, 0)
    program.advance(chain, 50, lambda **_: True)
    assert program.probe([chain], 50, True, lambda **_: True)["iteration"] == 50
    labels = program.first_state.finest(program, np.random.PCG64(0)).labels
    assert labels.max() == 2
    assert not set(labels[known == 0]) & set(labels[known == 1])


def test_a_fit_that_goes_on_does_not_restart_chains_again(four, monkeypatch):
    started(monkeypatch, [ONE, TRUE, TRUE])
    model, _ = fitted(four, n_warmup=60, n_chains=3)
    chains, program = model._run.chains, model._prepare(four, None).program
    assert chains[0]["regrouped"] == 50
    chains[1]["masses"] = [(i, mass - 1e6) for i, mass in chains[1]["masses"]]
    before = [chain["replicas"] for chain in chains]
    assert program.regroup(chains, 50)
    assert [chain["replicas"] for chain in chains] == before


@pytest.mark.long
def test_networks_and_drawn_entries_have_no_masses(four):
    X = np.where(np.arange(200).reshape(100, 2) % 17 == 0, np.nan, four)
    settings = {"n_warmup": 60, "n_draws": 30, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        gaps = DPMixture(**settings).fit(X)
        links = DPMixture(likelihood="relational", **settings).fit(np.eye(20)[::-1].copy())
    for model in (gaps, links):
        assert "lost_mass" not in model.diagnostics_["log_joint"]


def test_rows_that_cannot_choose_have_no_entropy(four):
    labels = np.unique(np.random.default_rng(1).integers(5, size=100), return_inverse=True)[1]
    entropies = []
    for known in (None, np.where(np.arange(100) < 60, 0, -1), np.zeros(100, dtype=int)):
        model = DPMixture(**FIXED, n_warmup=0, n_draws=1, random_state=0)
        model.fit(four, known_labels=known)
        program = model._prepare(four, None).program
        state = MixtureState(program.model(), program.make_prior(1e-4), labels)
        rows = MixtureRows(program.model(), program.tiles)
        entropies.append(chain_program.state_entropy(rows, state, program.known))
    assert entropies[0] > entropies[1] > entropies[2] == 0.0


def test_mass_is_the_level_plus_the_entropy_of_labels(four):
    """The entropies against those of Student's laws of the clusters, with the row itself."""
    model, _ = fitted(four, n_warmup=0, n_draws=1, n_chains=2)
    program = model._prepare(four, None).program
    rng = np.random.default_rng(1)
    labels = np.unique(rng.integers(5, size=100), return_inverse=True)[1]
    state = MixtureState(program.model(), program.make_prior(1e-4), labels)
    log_p = []
    for k in range(labels.max() + 1):
        rows = four[labels == k]
        n, kappa, df = len(rows), 1e-6 + len(rows), 4.0 + len(rows)
        mean = rows.sum(axis=0) / kappa
        scatter = np.eye(2) + rows.T @ rows - kappa * np.outer(mean, mean)
        shape = scatter * (kappa + 1.0) / (kappa * (df - 1.0))
        log_p.append(np.log(n) + multivariate_t(mean, shape, df=df - 1.0).logpdf(four))
    p = np.exp(np.array(log_p) - np.logaddexp.reduce(log_p))
    rows = MixtureRows(program.model(), program.tiles)
    found = chain_program.state_entropy(rows, state, program.known)
    assert found == pytest.approx(entr(p).sum(), rel=1e-9)


def test_masses_follow_learned_values():
    X = np.random.default_rng(0).normal(size=(60, 2))
    model = DPMixture(likelihood="gaussian", n_warmup=0, n_draws=1, init=TRUE[:60], random_state=0)
    program = model._prepare(X, None).program
    with program.resume(program.chain(0, 0)) as live:
        for iteration in range(3):
            live.step(iteration)
            log_joint = live.compute_log_joint()
            rows = MixtureRows(program.model(live.values), program.tiles)
            entropy = chain_program.state_entropy(rows, live.state, program.known)
            assert entropy > 1.0
            assert live.log_mass(log_joint) == live.log_posterior(log_joint) + entropy


def test_distances_of_masses():
    rng = np.random.default_rng(0)
    masses = rng.normal(scale=2.0, size=(4, 400))
    masses[2] -= 50.0
    lost = _convergence.below_largest(masses)
    assert lost[2] == pytest.approx(44.0, abs=0.6) and (np.delete(lost, 2) == 0.0).all()
    assert (_convergence.below_largest(masses[:1]) == 0.0).all()
    assert (_convergence.below_largest(masses[:, :0]) == 0.0).all()


# The verdict.


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_draws", [1, 3, 6])
@pytest.mark.some(1)
@pytest.mark.long
def test_few_draws_are_not_judged(n_draws):
    X = np.random.default_rng(0).gamma(2.0, size=(400, 3))
    model = DPMixture(n_warmup=1, n_draws=n_draws, random_state=0).fit(X)
    assert model.converged_ is False


def test_one_short_chain_is_not_judged(four):
    model, said = fitted(four, n_chains=1, n_warmup=20, n_draws=99)
    assert model.converged_ is False and not said
    model, said = fitted(four, n_chains=1, n_warmup=20, n_draws=120, init=TRUE)
    assert model.converged_ is True and not said


@pytest.mark.long
def test_a_warmup_that_was_cut_has_not_converged(four):
    model = DPMixture(**FIXED, init=TRUE, n_warmup=10**6, n_draws=30, max_time=1.0, random_state=0)
    with pytest.warns(ConvergenceWarning, match="warm-up iterations"):
        model.fit(four)
    assert model.converged_ is False


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_that_finishes_its_warmup_is_judged_again(four, monkeypatch):
    fake = types.SimpleNamespace(monotonic=itertools.count(0.0, 1e-3).__next__)
    monkeypatch.setattr(_halts, "time", fake)
    monkeypatch.setattr(_estimator, "time", fake)
    model = DPMixture(**FIXED, init=TRUE, n_warmup=200, warm_start=True, random_state=0)
    model.set_params(n_draws=50, max_time=0.011).fit(four)
    assert model.n_warmup_ < 50 and not model.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model.set_params(max_time=None).fit(four)
    assert model.n_warmup_ == 200 and model.converged_


def test_levels_with_the_same_labels_are_a_sentence():
    figures = {"r_hat": 1.2, "difference_chains": 31.4, "difference_masses": 2.6}
    words = _convergence.words_about_levels({"log_joint": figures}, [])
    assert words.startswith("chains agree about labels, densities and the mass around their draws")
    assert words.endswith(
        "(up to 3 nats); log_joint differs by 31 nats between chains, as components do, which is "
        "no disagreement"
    )
    assert "differ about labels" in _convergence.words_about_levels(
        {"log_joint": figures}, ["coclustering"]
    )
    # R-hat of pairs may be large where labels are usable; `summary` says so in another line.
    apart = {"log_joint": figures, "coclustering": {"r_hat": 1.3}}
    assert "differ about labels" in _convergence.words_about_levels(apart, [])
    for quiet in ({"difference_chains": 20.0}, {"r_hat": 1.01}):
        assert _convergence.words_about_levels({"log_joint": {**figures, **quiet}}, []) is None


@pytest.mark.long
def test_chains_that_still_move_have_not_converged():
    """Every chain gains more than a hundred nats, and labels and densities agree."""
    X = np.random.default_rng(0).gamma(2.0, size=(200, 3))
    settings = {"init": "singletons", "n_warmup": 0, "n_draws": 40, "random_state": 0}
    with pytest.warns(ConvergenceWarning, match="log_joint has not settled.*still changes in all"):
        model = DPMixture(**settings).fit(X)
    assert model.converged_ is False
    assert "no, log_joint has not settled" in model.summary()
    assert model.diagnostics_["log_joint"]["below_highest"] < _convergence.FARTHEST_BELOW
