"""What is said of chains that have not mixed, and how often."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.designs import everyday

from skdpm import DPMixture, _convergence
from skdpm._convergence import (
    below_highest,
    chance_of_drift,
    describe,
    describe_partitions,
    disagreements,
)
from skdpm.diagnostics import coclustering_diagnostics, split_rhat
from skdpm.mixture.chains import program as chain_program
from skdpm.mixture.chains.automatic import FirstState
from skdpm.mixture.likelihoods import Relational


def words(draws):
    draws = np.asarray(draws)
    return describe({"r_hat": split_rhat(draws)}, draws)


def chains(*levels, spread=1.0, n_draws=200):
    noise = np.random.default_rng(0).normal(size=(len(levels), n_draws))
    noise -= (noise[:, ::2].sum(axis=1, keepdims=True)) / (n_draws // 2)
    return np.array(levels)[:, None] + spread * noise


@pytest.mark.parametrize(
    "levels, expected",
    [
        ([-2849, -2829, -2829, -2829], "chain 0 at -2849, others at -2829"),
        ([0.1, 0.1, 0.14, 0.1], "chain 2 at 0.140, others at 0.100"),
        ([5, 9], "chain 0 at 5.0, chain 1 at 9.0"),
        ([30, 10, 30, 10], "chains 0, 2 at 30, others at 10"),
        ([0, 20, 40, 60], "from 0 (chain 0) to 60 (chain 3)"),
        ([0] * 17 + [50] * 3, "chains 17, 18, 19 at 50, others at 0"),
        ([0] * 12 + [50] * 8, "8 of 20 chains at 50, others at 0"),
    ],
)
def test_the_chain_and_its_level_are_named(levels, expected):
    draws = chains(*levels, spread=0.01 * np.ptp(levels))
    # The means, which noise would change in the last digit.
    draws += (np.array(levels) - draws.mean(axis=1))[:, None]
    found = words(draws).replace("-0.0 ", "0.0 ").replace("-0", "0")
    r_hat = split_rhat(draws)
    assert found == f"{expected} (R-hat {r_hat:.2f})" and r_hat > 1.05


def test_moving_spreading_and_constant_chains():
    draws = chains(0, 0, 0)
    draws[1, 100:] += 30
    assert words(draws).startswith("chain 1 goes from ")
    assert words(draws[1:2]).startswith("it goes from ")
    wide = chains(0, 0, 0, 0) * [[1], [1], [4], [1]]
    assert words(wide).startswith("standard deviation: chain 2 at ")
    stuck = np.repeat([[3], [5], [5], [5]], 50, axis=1)
    assert words(stuck) == "constant at different values, chain 0 at 3.0, others at 5.0"
    halves = np.repeat([[3, 3], [3, 8]], 25, axis=1)
    assert words(halves) == "constant at different values, chain 1 goes from 3.0 to 8.0"
    assert words(halves[1:]) == "constant at different values, it goes from 3.0 to 8.0"
    found = describe({"std": 3.21}, np.array([-700.0, -705.0]))
    assert found == "chain 0 at -700.0, chain 1 at -705.0 (standard deviation 3.2)"


def test_the_chain_with_a_partition_of_its_own_is_named():
    labels = np.random.default_rng(1).integers(3, size=(4, 100, 30))
    labels[2] = 0
    entry = coclustering_diagnostics(labels)
    expected = "chain 2 groups rows differently from the others"
    assert describe_partitions(entry, labels) == f"{expected} (R-hat {entry['r_hat']:.2f})"
    labels[0] = 0
    assert describe_partitions(entry, labels).startswith("chains group rows differently")
    assert describe_partitions(entry, labels[:2]).startswith("chains group rows differently")
    assert describe_partitions(entry, labels[:1]).startswith("the halves of the chain group")


def test_what_counts_as_a_disagreement():
    figures = {"a": {"r_hat": 1.06}, "b": {"r_hat": 1.04}, "c": {"r_hat": np.nan}, "d": {"std": 2}}
    assert disagreements(figures, 4, 4, 4) == ["a", "c", "d"]
    assert disagreements(figures, 4, 3, 4) == ["d"]
    assert disagreements(figures, 1, 99, 4) == ["d"]
    assert disagreements(figures, 1, 100, 4) == ["a", "c", "d"]


def test_how_far_chains_stay_below_the_highest():
    draws = chains(0, -20, -3, 0, spread=2.0)
    found = below_highest(draws)
    assert 8 < found[1] < 11 and found[2] < 2.5 and found[3] < 0.5
    # The larger standard deviation counts, of the low chain or of the highest one.
    found = below_highest(draws[:2])[1]
    for wide in (0, 1):
        spread = draws[:2] - draws[:2].mean(axis=1, keepdims=True)
        wider = draws[:2] + 3 * spread * (np.arange(2) == wide)[:, None]
        assert below_highest(wider)[1] == pytest.approx(found / 4, rel=0.1)
    # A chain that arrives, or leaves, does not stay below.
    for half in (slice(None, 100), slice(100, None)):
        moving = chains(0, 0, 0)
        moving[1, half] -= 40
        assert below_highest(moving).max() < 0.5
    # Without a spread within chains, nats count.
    constant = np.repeat([[-3.0], [0.0], [-8.0]], 50, axis=1)
    assert below_highest(constant).tolist() == [3, 0, 8]
    assert below_highest(chains(0, 0)[:1]).tolist() == [0]
    assert below_highest(constant[:, :3]).tolist() == [0, 0, 0]
    constant[1, 7] = np.nan
    assert below_highest(constant).tolist() == [0, 0, 0]


def test_chains_that_all_rise_have_not_settled():
    """Against the tail of Student's law with four degrees of freedom, in closed form."""
    draws = np.zeros((3, 11))
    draws[:, 6:] = np.array([1.0, 2.0, 6.0])[:, None]
    draws[:, :5] = np.array([0.0, 0.0, 1.0])[:, None]
    # Differences 1, 2, 5 and sums 1, 2, 7 of the halves.
    t = (8.0 / 3.0) / np.sqrt((13.0 / 3.0 + 31.0 / 3.0) / 2.0 / 3.0)
    x = t / np.sqrt(4.0 + t**2)
    tails = 1.0 - 1.5 * (x - x**3 / 3.0)
    for same in (draws, -draws, draws[:, ::-1]):
        assert chance_of_drift(same) == pytest.approx(tails, rel=1e-9)
    draws[0] *= -3.0
    assert chance_of_drift(draws) > 0.2
    settled = np.random.default_rng(0).normal(size=(500, 4, 20))
    found = np.array([chance_of_drift(four) for four in settled])
    assert np.mean(found < 0.05) == pytest.approx(0.05, abs=0.03)
    steps = np.repeat([[0.0], [1.0]], 4, axis=1)
    assert chance_of_drift(np.array([[0.0, 0, 1, 1]] * 3)) == 0.0
    for nothing in (steps, steps[:1], steps[:, :3], np.full((3, 9), np.nan)):
        assert chance_of_drift(nothing) == 1.0


@pytest.mark.parametrize("low", everyday([(), (2,), (0, 3), (0, 1, 3)], (), (2,)), ids=str)
def test_a_chain_in_a_lower_mode_is_seen(low, monkeypatch):
    """Dense groups of a network. Some chains start, and stay, with two groups in one cluster: 37
    nats lower, though all labels agree nearly as well as in one chain."""
    groups = np.arange(96) // 8
    rng = np.random.default_rng(0)
    A = np.triu(rng.random((96, 96)) < np.where(groups[:, None] == groups, 0.95, 0.03), 1)
    starts = iter([np.minimum(groups, 10) if c in low else groups for c in range(4)])
    monkeypatch.setattr(
        chain_program,
        "first_state",
        lambda *_: (
            lambda program, _: FirstState(
                next(starts), program.first_values(), program.first_concentration
            )
        ),
    )
    model = DPMixture(
        likelihood=Relational(a=1.0, b=1.0),
        concentration=1.0,
        sampler="gibbs",
        n_warmup=20,
        n_draws=50,
        n_jobs=1,
        random_state=0,
    )
    model, found = caught(lambda: model.fit((A | A.T).astype(float)))
    levels = model.log_joint_samples_.mean(axis=1)
    assert np.flatnonzero(levels < levels.max() - 20).tolist() == list(low)
    assert model.converged_ is not bool(low) and len(found) == bool(low)
    if not low:
        return
    message = str(found[0].message)
    assert "they stay at different levels" in message and "37 nats below the highest" in message
    if len(low) == 1:
        assert "chains agree on labels_" in message
        assert model.drop_chains(low, (A | A.T).astype(float)).converged_


@pytest.fixture
def unmixed(monkeypatch):
    """Rows, and an estimator whose chains stay apart: Gibbs from other labels. Every disagreement
    counts."""
    monkeypatch.setattr(_convergence, "LARGEST_ARI_LOSS", -np.inf)
    X = np.random.default_rng(2).normal(size=(45, 2)) + np.tile([0, 3, 6], 15)[:, None]
    return X, DPMixture(
        likelihood="gaussian",
        sampler="gibbs",
        n_chains=2,
        n_warmup=0,
        n_draws=8,
        init="singletons",
    ).set_params(random_state=0)


def caught(function):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        result = function()
    assert {warning.category for warning in found} <= {ConvergenceWarning}
    return result, found


@pytest.mark.slow
def test_a_search_warns_once_for_each_fit(unmixed):
    X, model = unmixed
    pipeline = make_pipeline(StandardScaler(), model)
    grid = {"dpmixture__concentration": [0.5, 1.0, 2.0]}
    search, found = caught(lambda: GridSearchCV(pipeline, grid, cv=3).fit(X))
    last = search.best_estimator_[-1]
    assert last.converged_ is False and 1 < len(found) <= 3 * 3 + 1
    assert all("(R-hat " in str(warning.message) for warning in found)
    for _ in range(2):
        _, found = caught(lambda: model.fit(X))
        assert len(found) == 1 and found[0].filename == __file__


def test_a_warning_that_is_an_error_is_one_in_every_fit(unmixed):
    X, model = unmixed
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for _ in range(2):
            with pytest.raises(ConvergenceWarning):
                cross_val_score(model, X, cv=2, error_score="raise")


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int64])
def test_labels_of_a_small_type_have_the_same_rand_index(dtype):
    a, b = np.random.default_rng(0).integers(60, size=(2, 500))
    b[:250] = a[:250]
    expected = adjusted_rand_score(a, b)
    assert _convergence.adjusted_rand(a.astype(dtype), b.astype(dtype)) == pytest.approx(expected)


@pytest.mark.long
def test_one_chain_that_moves_is_not_judged():
    """R-hat of its halves is 1.7 to 2.1 of the log joint or the density, with any seed."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1200, 2)) + 3 * rng.integers(0, 60, size=(1200, 1))
    short = {"n_chains": 1, "n_draws": 100, "random_state": 1}
    moving = DPMixture(n_warmup=0, sampler="gibbs", init="singletons", **short)
    model, found = caught(lambda: moving.fit(X))
    assert max(f["r_hat"] for f in _convergence.judged(model.diagnostics_).values()) > 1.5
    assert not model.converged_ and not found and "converged      not judged" in model.summary()
    model = DPMixture(n_warmup=50, **short).fit(X[:60])
    assert model.converged_ and "converged      yes" in model.summary()
    few = DPMixture(n_warmup=0, n_chains=2, n_draws=2, init="single", random_state=0)
    few, _ = caught(lambda: few.fit(np.random.default_rng(0).normal(size=(9, 1)) / 1e3))
    few.diagnostics_["n_components"]["r_hat"] = np.inf
    assert "largest R-hat  too few draws to compare" in few.summary()


@pytest.mark.long
def test_chains_at_other_levels_are_no_plain_yes():
    """Without masses, nothing tells whether their components are as probable."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    model = DPMixture(n_warmup=50, n_draws=100, n_chains=2, random_state=0).fit(X)
    entry = model.diagnostics_["log_joint"] | {"r_hat": 1.2, "difference_chains": 859.0}
    model.diagnostics_["log_joint"] = entry
    assert model.converged_ and "converged      yes\n" in model.summary()
    del entry["difference_masses"]
    words = "converged      for labels and densities, not for components\n"
    assert words in model.summary()
