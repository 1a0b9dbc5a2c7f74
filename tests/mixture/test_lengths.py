"""Lengths of chains that the fit finds, their repetition, and the verdict about the answers."""

import itertools
import math
import pickle
import signal
import types
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from support.cases import FAST
from support.designs import everyday
from support.features import subclones_rows
from support.fits import assert_same_fit

from skdpm import (
    DPMixture,
    FeatureAllocation,
    FiniteMixture,
    _convergence,
    _estimator,
    _halts,
    chains,
)
from skdpm.diagnostics import coclustering_diagnostics
from skdpm.mixture.chains.program import RowChain
from skdpm.mixture.samplers import ARM, PGSM, SubCluster

AUTO = {"random_state": 0, "n_chains": 3}
WARMUP_LOOKS, DRAW_LOOKS = chains.WARMUP_LOOKS, chains.DRAW_LOOKS


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 2)) + 5 * np.eye(3)[np.arange(30) % 3, :2]


def _repeated(model, X):
    """The fit with the numbers that another one used."""
    lengths = {"n_warmup": model.n_warmup_, "n_draws": model.draws_.n_draws, "max_time": None}
    return type(model)(**{**model.get_params(deep=False), **lengths}).fit(X)


# Lengths.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "sampler",
    everyday(["auto", "gibbs", ARM(n_history_chains=3), PGSM()], "auto"),
    ids=str,
)
def test_found_lengths_can_be_repeated(sampler, blobs):
    model = DPMixture(**AUTO, sampler=sampler).fit(blobs)
    assert model.n_warmup_ in WARMUP_LOOKS and model.draws_.n_draws in DRAW_LOOKS
    assert model.n_iter_ == model.n_warmup_ + model.draws_.n_draws
    assert_same_fit(model, _repeated(model, blobs), blobs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("n_jobs", everyday([2, 3], 2))
def test_threads_do_not_change_lengths(n_jobs, blobs):
    one = DPMixture(**AUTO, thin=2).fit(blobs)
    other = DPMixture(**AUTO, thin=2, n_jobs=n_jobs).fit(blobs)
    assert one.n_iter_ == other.n_iter_ == one.n_warmup_ + 2 * one.draws_.n_draws
    assert_same_fit(one, other, blobs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_each_length_may_be_given(blobs):
    model = DPMixture(**AUTO, n_warmup=7).fit(blobs)
    assert model.n_warmup_ == 7 and model.draws_.n_draws in DRAW_LOOKS
    model = DPMixture(**AUTO, n_draws=11).fit(blobs)
    assert model.n_warmup_ in WARMUP_LOOKS and model.draws_.n_draws == 11
    model = FiniteMixture(**AUTO, n_components=3).fit(blobs)
    assert model.n_warmup_ in WARMUP_LOOKS and model.draws_.n_draws in DRAW_LOOKS


@pytest.mark.slow
def test_blocks_have_one_warm_up(blobs):
    model = DPMixture(**AUTO, sampler=SubCluster()).fit(blobs)
    assert model.n_warmup_ == 100
    assert_same_fit(model, _repeated(model, blobs), blobs)


@pytest.mark.slow
def test_particles_have_no_warm_up(blobs):
    model = DPMixture(sampler="smc", n_chains=2, random_state=0).fit(blobs)
    assert model.n_warmup_ == 0 and model.draws_.n_draws == DRAW_LOOKS[-1]


@pytest.mark.parametrize("name", ["n_warmup", "n_draws"])
def test_other_words_are_refused(name, blobs):
    with pytest.raises(ValueError, match=f"{name} must be an integer or \"auto\", got 'long'"):
        DPMixture(**{name: "long"}).fit(blobs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_lengths_of_feature_allocations_are_found(blobs):
    blobs = blobs[:15]
    model = FeatureAllocation(**AUTO).fit(blobs)
    assert model.n_warmup_ < WARMUP_LOOKS[-1] and model.draws_.n_draws in DRAW_LOOKS
    again = _repeated(model, blobs)
    assert again.n_iter_ == model.n_iter_ and repr(again.diagnostics_) == repr(model.diagnostics_)
    assert np.array_equal(again.log_joint_samples_, model.log_joint_samples_)
    assert np.array_equal(again.score_samples(blobs), model.score_samples(blobs))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warmup_that_tempers_has_its_length():
    """The power of the law in warm-up depends on its length."""
    X = subclones_rows(2, False)
    model = FeatureAllocation(2, likelihood="subclones", init="prior", n_draws=4, **AUTO).fit(X)
    assert model.n_warmup_ == WARMUP_LOOKS[-1]
    assert np.array_equal(model.log_joint_samples_, _repeated(model, X).log_joint_samples_)


@pytest.mark.parametrize("component, known", [(0.0, True), (1.0, False)])
def test_features_that_suffice(component, known):
    rng = np.random.default_rng(0)
    draws = {
        name: rng.normal(size=(4, 100))
        for name in ("log_joint", "concentration", "likelihood__noise_precision")
    }
    draws["n_components"] = np.tile(rng.integers(3, 5, size=100), (4, 1))
    draws["likelihood__noise_precision"] += component * np.arange(4)[:, None]
    chains = [{"draws": {name: values[c] for name, values in draws.items()}} for c in range(4)]
    program = types.SimpleNamespace(compared=list(draws))
    run = types.SimpleNamespace(program=program, chains=chains)
    assert FeatureAllocation()._is_well_known(run, 100) is known
    assert FeatureAllocation()._is_well_known(run, 20) is False  # 80 draws in all


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_a_target_may_need_more_draws(blobs):
    model = DPMixture(**AUTO, target_ess=900.0).fit(blobs)
    assert model.draws_.n_draws > DRAW_LOOKS[-1]
    assert_same_fit(model, _repeated(model.set_params(target_ess=None), blobs), blobs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_warm_start_keeps_the_warm_up(blobs):
    model = DPMixture(**AUTO, warm_start=True).fit(blobs)
    n_warmup = model.n_warmup_
    with pytest.warns(UserWarning, match="draws exist already"):
        model.fit(blobs)
    model.set_params(n_draws=300).fit(blobs)
    assert model.n_warmup_ == n_warmup and model.draws_.n_draws == 300
    assert_same_fit(model, DPMixture(**AUTO, n_draws=300).fit(blobs), blobs)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "at, turn",
    everyday(itertools.product([20, 49, 60, 120], [0.0, 1e9]), (120, 1e9), n_values=2),
)
def test_an_interrupted_fit_finds_the_same_lengths(at, turn, blobs, monkeypatch):
    """Whether chains are about equally far then, or one is ahead."""
    monkeypatch.setattr(chains, "TURN", turn)
    whole = DPMixture(**AUTO).fit(blobs)
    original, pressed = RowChain.step, []

    def step(self, iteration):
        original(self, iteration)
        if iteration == at and not pressed:
            pressed.append(at)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(RowChain, "step", step)
    model = DPMixture(**AUTO, warm_start=True)
    with pytest.raises(KeyboardInterrupt):
        model.fit(blobs)
    model.fit(blobs)
    assert pressed and model.n_warmup_ == whole.n_warmup_
    assert_same_fit(model, whole, blobs)


def _settled(*columns):
    chains = [{"warmup": np.stack(chain, axis=1)} for chain in zip(*columns, strict=True)]
    whole = _halts.settled(chains, 80)
    # After an interruption one chain may be ahead.
    chains[0]["warmup"] = np.concatenate([chains[0]["warmup"], np.full((7, 2), 1e3)])
    assert _halts.settled(chains, 80) == whole
    return whole


def _noise(n_chains=4, n=80):
    return np.random.default_rng(1).normal(size=(n_chains, n))


def test_settled_chains():
    level = _noise()
    trend = np.linspace(0.0, 8.0, 80)
    apart = 10.0 * np.arange(4)[:, None]
    assert _settled(level, level)
    assert _settled(level + apart, level)  # more warm-up would not join them
    assert not _settled(level + trend, level)
    assert not _settled(level, level + trend + apart)
    # The first half does not count.
    early = np.where(np.arange(80) < 40, trend - 20.0, 0.0)
    assert _settled(level + early, level)
    # A single chain has no others that drift alike.
    assert _settled(level[:1], level[:1])
    assert not _settled(level[:1] + trend, level[:1])


@pytest.mark.parametrize(
    ("half_range", "n_components", "expected"),
    [(10.0, 26.6, True), (10.0, 26.7, False), (9.2, 60.0, True), (9.3, 60.0, False)],
)
def test_many_components_settle_slowly(half_range, n_components, expected):
    """If the standard error of the mean mass, half_range / sqrt(12), exceeds 8 / 3 nats."""
    level = _noise()
    numbers = np.where(np.arange(80) < 40, 99.0, n_components) + 0.0 * level
    masses = [
        (i, half_range * (-1) ** (i // 10) if i > 40 else 1e3 * i) for i in range(10, 91, 10)
    ]
    chains = [
        {"warmup": np.stack([*trace], axis=1), "masses": [(i, m + 99.0 * c) for i, m in masses]}
        for c, trace in enumerate(zip(level, numbers, strict=True))
    ]
    assert _halts.settled(chains, 80) == expected


def test_draws_that_suffice():
    rng = np.random.default_rng(0)
    numbers = rng.poisson(5.0, size=(4, 100))
    labels = rng.integers(3, size=(4, 100, 20))
    known = coclustering_diagnostics(labels)
    assert _convergence.are_well_known(numbers) and _convergence.are_well_known(numbers, known)
    stuck = labels.copy()
    stuck[0] = 0
    assert not _convergence.are_well_known(numbers, coclustering_diagnostics(stuck))
    slow = np.repeat(numbers[:, :10], 10, axis=1)
    assert not _convergence.are_well_known(slow, known)
    density = rng.normal(size=(4, 25))
    assert _convergence.is_well_known(density)
    apart = density + 3.0 * np.arange(4)[:, None]
    assert not _convergence.is_well_known(apart)
    assert _convergence.is_well_known(1e-3 * apart)  # by its Monte Carlo error


def test_partitions_out_of_reach():
    """An effective sample size that the longest fit would leave below 25, of several chains."""
    far = _convergence.are_out_of_reach
    assert far({"ess_bulk": 9.9}, (4, 100), 250) and not far({"ess_bulk": 10.1}, (4, 100), 250)
    assert far({"ess_bulk": 22.4}, (4, 225), 250) and not far({"ess_bulk": 22.6}, (4, 225), 250)
    assert not far({"ess_bulk": 1.0}, (1, 100), 250)
    assert not far({"ess_bulk": math.nan}, (4, 3), 250)


@pytest.mark.long
def test_draws_end_if_partitions_are_out_of_reach(monkeypatch):
    """At the first look, although no chain stands still."""
    X = np.random.default_rng(0).normal(size=(40, 1))
    model = DPMixture(n_warmup=10, n_draws="auto", random_state=0)
    monkeypatch.setattr(_convergence, "are_well_known", lambda *_: False)
    monkeypatch.setattr(_convergence, "separation", lambda labels: 0.0)
    assert clone(model).fit(X).draws_.n_draws == DRAW_LOOKS[-1]
    monkeypatch.setattr(_convergence, "OUT_OF_REACH", 1e3)
    assert clone(model).fit(X).draws_.n_draws == DRAW_LOOKS[0]


# Time.


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes on by a millisecond when it is read, on slow and fast machines alike."""
    fake = types.SimpleNamespace(monotonic=itertools.count(0.0, 1e-3).__next__)
    monkeypatch.setattr(_estimator, "time", fake)
    monkeypatch.setattr(_halts, "time", fake)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sampler", ["auto", SubCluster(), ARM(n_history_chains=3)], ids=str)
@pytest.mark.some(1)
@pytest.mark.long
def test_a_fit_shortened_by_time_can_be_repeated(sampler, blobs, ticks):
    model = DPMixture(**AUTO, sampler=sampler, max_time=0.017).fit(blobs)
    assert 1 < model.n_warmup_ < 50
    assert_same_fit(model, _repeated(model, blobs), blobs)
    # A fit that continues it has the whole warm-up first: it is the one without a limit.
    whole = DPMixture(**AUTO, sampler=sampler).fit(blobs)
    again = pickle.loads(pickle.dumps(model.set_params(warm_start=True)))
    for fit in (model.set_params(max_time=0.013), again):
        assert_same_fit(fit.fit(blobs).set_params(max_time=None).fit(blobs), whole, blobs)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sampler", ["auto", SubCluster()], ids=str)
def test_time_that_is_over_at_once(sampler, blobs):
    model = DPMixture(**AUTO, sampler=sampler, max_time=1e-6).fit(blobs)
    assert model.n_warmup_ == 1 and model.draws_.n_draws == 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.long
def test_time_is_over_for_a_fit_whose_chains_are_apart(blobs, monkeypatch):
    """After Ctrl-C one chain has done 50 iterations of warm-up and the others none."""
    monkeypatch.setattr(chains, "TURN", 1e9)
    original = RowChain.step

    def step(self, iteration):
        original(self, iteration)
        if iteration == 49:
            signal.raise_signal(signal.SIGINT)

    model = DPMixture(**AUTO, warm_start=True, n_warmup=60, n_draws=50)
    with monkeypatch.context() as patch:
        patch.setattr(RowChain, "step", step)
        with pytest.raises(KeyboardInterrupt):
            model.fit(blobs)
    model.set_params(max_time=1e-6).fit(blobs)
    assert model.n_warmup_ == 50 and model.draws_.n_draws == 1
    assert_same_fit(model, _repeated(model, blobs), blobs)


def test_long_fits_say_so_once(monkeypatch):
    program = chains.ChainProgram(
        likelihood=None,
        sampler=None,
        n_samples=10,
        prior_of=None,
        concentration=1.0,
        concentration_prior=None,
        n_warmup=None,
        n_draws=None,
        thin=1,
        n_chains=4,
    )
    assert program.n_iterations == 500
    said, time = [], types.SimpleNamespace(now=np.zeros(2))
    monkeypatch.setattr(_halts, "clocks", lambda: time.now)

    def forecast_of(began, calls, share=1.0, n_jobs=1):
        """Each call: seconds of the clock, iterations done, maybe seconds that chains waited."""
        forecast, before = _halts.Forecast(program, began, n_jobs, said.append), began
        for now, n_done, *waited in calls:
            since = before + sum(waited)
            time.now = np.array([now, 10.0 + share * (now - since)])
            forecast(n_done, np.array([since, 10.0]))
            before = now

    # The starts; a pace that nothing confirms; twice as fast as before; no news.
    start = [(103.0, 1.0), (109.0, 2.0), (111.0, 3.0), (111.0, 3.0)]
    forecast_of(0.0, start)
    assert said == []
    forecast_of(0.0, [*start, (113.0, 4.0), (114.0, 5.0)])
    # 113 s, and 496 iterations and the summaries at a pace of 2 s.
    assert said.pop() == "this fit will take about 19 minutes"
    # What chains wait for, as for a probe, is no pace.
    forecast_of(0.0, [*start, (213.0, 4.0, 100.0)])
    assert said.pop() == "this fit will take about 21 minutes"
    # With an eighth of a processor.
    forecast_of(0.0, [*start, (113.0, 4.0)], 0.125)
    said_busy = "19 minutes on this busy machine (2 minutes of processor time)"
    assert said.pop() == f"this fit will take about {said_busy}"
    # Each job has most of a processor, or less than half of one.
    for n_jobs in (1, 2, 4):
        forecast_of(0.0, [*start, (113.0, 4.0)], 0.8 * n_jobs, n_jobs)
        assert said.pop() == "this fit will take about 19 minutes"
        forecast_of(0.0, [*start, (113.0, 4.0)], 0.4 * n_jobs, n_jobs)
        assert said.pop().startswith("this fit will take about 19 minutes on this busy machine")
    forecast_of(100.0, [(102.0, 300.0), (106.0, 400.0), (110.0, 499.0)])
    assert said == []  # soon done
    # Lengths that are found: 150 to 500 iterations.
    program.finds_warmup = program.finds_draws = True
    forecast_of(90.0, [(91.0, 0.0), (101.0, 5.0), (111.0, 10.0)])
    assert said.pop() == "this fit will take about 6 to 17 minutes"
    # After 110 iterations warm-up ends with 113 at the earliest: 213 to 500.
    forecast_of(100.0, [(101.0, 10.0), (121.0, 14.0), (601.0, 110.0)])
    assert said.pop() == "this fit will take about 18 to 42 minutes"
    forecast_of(90.0, [(91.0, 0.0), (92.0, 5.0), (94.5, 10.0), (98.0, 17.0)], 0.25)
    words = "1 to 4 minutes on this busy machine (20 s to 1 minute of processor time)"
    assert said.pop() == f"this fit will take about {words}"
    # One slow iteration says little of the others.
    forecast_of(90.0, [(91.0, 0.0), (92.0, 5.0), (94.5, 10.0), (111.0, 11.0)])
    assert said.pop() == "this fit will take about 2 to 5 minutes"
    assert said == []


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.long
def test_the_forecast_names_ways_out(blobs, monkeypatch):
    monkeypatch.setattr(_halts, "PATIENCE", 0.0)
    monkeypatch.setattr(_halts, "LONG", 0.0)
    monkeypatch.setattr(chains, "TURN", 0.0)  # chains wait for each other often
    with pytest.warns(UserWarning, match="this fit will take") as record:
        DPMixture(**FAST).fit(blobs)
    message = str(record[0].message)
    assert record[0].filename == __file__
    for way in ("n_jobs=-1", "max_time=60", "verbose=1"):
        assert way in message
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="this fit will take")
        DPMixture(**FAST, max_time=100.0).fit(blobs)


# Verdict.


def test_agreement_is_the_adjusted_rand_index():
    rng = np.random.default_rng(0)
    draws = rng.integers(3, size=(2, 4, 30))
    draws[1, :2] = 0  # one cluster
    found = _convergence.agreement(draws.astype(np.uint8))
    pairs = {True: [], False: []}
    flat = draws.reshape(8, 30)
    for a in range(8):
        for b in range(a):
            pairs[a // 4 == b // 4].append(adjusted_rand_score(flat[a], flat[b]))
    assert found["ari_within"] == pytest.approx(np.mean(pairs[True]), abs=1e-12)
    assert found["ari_between"] == pytest.approx(np.mean(pairs[False]), abs=1e-12)


def test_a_single_chain_is_compared_with_its_halves():
    draws = np.zeros((1, 10, 30), dtype=np.uint8)
    draws[0, 5:, 15:] = 1
    found = _convergence.agreement(draws)
    assert found == {"ari_within": 1.0, "ari_between": 0.0}


@pytest.mark.parametrize("n_chains", [1, 7, 50, 51, 400])
def test_many_chains_are_compared_by_few_draws(n_chains, monkeypatch):
    """At most 100 draws of evenly spaced chains, at least two of each."""
    compared = []

    def recorded(a, b, *pairs):
        compared.extend((a.tobytes(), b.tobytes()))
        return 0.0

    monkeypatch.setattr(_convergence, "adjusted_rand", recorded)
    draws = np.random.default_rng(0).integers(8, size=(n_chains, 20, 30))
    _convergence.agreement(draws)
    assert 2 * min(n_chains, 25) <= len(set(compared)) <= 100


def test_draws_of_many_chains_are_compared_within_and_between():
    draws = np.random.default_rng(0).integers(3, size=(60, 20, 10))
    found = _convergence.agreement(draws)
    assert abs(found["ari_within"]) < 0.1 and abs(found["ari_between"]) < 0.1
    assert _convergence.agreement(draws[:, :1])["ari_within"] == 1.0
    assert _convergence.is_well_known(np.zeros((60, 1)))  # no R-hat


def test_levels_of_the_density():
    values = np.random.default_rng(0).normal(size=(3, 20))
    found = _convergence.level_figures(values, (10**9, 4))
    assert found["difference_chains"] == pytest.approx(np.ptp(values.mean(axis=1)) / 4)
    halves = _convergence.level_figures(values[:1], (10**9, 1))["difference_chains"]
    assert halves == pytest.approx(abs(values[0, :10].mean() - values[0, 10:].mean()))
    # With few rows chance explains 5 / n_samples.
    apart = 100.0 * np.arange(3)[:, None]
    found = _convergence.level_figures(apart + np.zeros((3, 20)), (40, 2))
    assert found["difference_chains"] == pytest.approx(200.0 / 2 - 5.0 / 40)
    assert _convergence.level_figures(values, (1, 2))["difference_chains"] == 0.0


@pytest.mark.parametrize(
    ("figures", "bad", "expected"),
    [
        ({"ari_within": 0.9, "ari_between": 0.86}, ["coclustering", "log_joint"], []),
        ({"ari_within": 0.9, "ari_between": 0.8}, ["coclustering"], ["coclustering"]),
        ({"ari_within": 0.9, "ari_between": 0.8}, ["log_joint"], []),
        ({"ari_within": np.nan, "ari_between": np.nan}, ["coclustering"], ["coclustering"]),
    ],
)
def test_what_makes_labels_unusable(figures, bad, expected):
    figures = {"coclustering": figures, "log_density": {"difference_chains": 0.0}, "log_joint": {}}
    assert _convergence.unusable(figures, bad) == expected


def test_a_chain_in_another_mode_makes_draws_unusable():
    figures = {"n_components": {}, "log_joint": {"below_highest": 5.1}}
    assert _convergence.unusable(figures, ["log_joint"]) == ["log_joint"]
    assert _convergence.unusable(figures, []) == []
    figures["log_joint"]["below_highest"] = 4.9
    assert _convergence.unusable(figures, ["log_joint"]) == []


def test_chains_that_have_not_settled_make_draws_unusable():
    """If R-hat says so, too."""
    figures = {"n_components": {}, "log_joint": {"chance_of_drift": 0.009}}
    assert _convergence.unusable(figures, ["log_joint"]) == ["log_joint"]
    assert _convergence.unusable(figures, []) == []
    assert "log_joint has not settled" in _convergence.verdict(figures, ["log_joint"])
    figures["log_joint"]["chance_of_drift"] = 0.011
    assert _convergence.unusable(figures, ["log_joint"]) == []


def test_what_makes_densities_unusable():
    figures = {"log_density": {"difference_chains": 0.2}, "n_components": {}}
    assert _convergence.unusable(figures, ["log_density"]) == ["log_density"]
    assert _convergence.unusable(figures, ["n_components"]) == ["n_components"]
    figures["log_density"]["difference_chains"] = 0.01
    assert _convergence.unusable(figures, ["log_density"]) == []
    assert _convergence.unusable({"log_evidence": {}}, ["log_evidence"]) == ["log_evidence"]


def test_density_of_rows_under_single_draws(blobs):
    model = DPMixture(**{**FAST, "n_draws": 1, "n_chains": 3}).fit(blobs)
    row = np.array([[0.3, 0.1]])
    logs = model._predictor.mean_log_densities(row)
    assert len(logs) == 3
    expected = np.log(np.mean(np.exp(logs)))
    assert model.score_samples(row) == pytest.approx([expected], rel=1e-12)


@pytest.mark.slow
def test_one_normal_law_does_not_warn():
    X = np.random.default_rng(3).normal(size=(300, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = DPMixture(random_state=0).fit(X)
    assert model.n_clusters_ == 1 and model.converged_


def test_the_warning_begins_with_the_verdict(blobs, monkeypatch):
    agreement = {"ari_within": 0.9, "ari_between": 0.5}
    figures = {"r_hat": 1.3, "ess_bulk": 20.0}
    monkeypatch.setattr(_convergence, "agreement", lambda draws: agreement)
    monkeypatch.setattr(
        _convergence.diagnostics, "coclustering_diagnostics", lambda labels: dict(figures)
    )
    monkeypatch.setattr(_convergence, "LARGEST_DIFFERENCE", np.inf)
    with pytest.warns(ConvergenceWarning) as record:
        model = DPMixture(**FAST).fit(blobs)
    message = str(record[0].message)
    assert not model.converged_
    start = (
        "the chains have not mixed: they found different clusters, so labels_ depends on chance"
    )
    assert message.startswith(start)
    assert "0.50 between chains, 0.90 within a chain" in message
    assert "chains agree on densities" in message
    # 400 effective draws would need 20 times as many; at most ten times as many are asked for.
    assert "n_warmup=500, n_draws=200, or see https://" in message
    assert record[0].filename == __file__
