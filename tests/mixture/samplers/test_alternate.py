"""Samplers that take turns: the parts, their names, their shares of the work.

`test_enumeration.py` tests the law; here it is tested where parts make several steps on end.
"""

import numpy as np
import pytest
from reference.simulate import PRIOR_CASES
from sklearn.base import clone
from support.cases import fit_case
from support.designs import everyday
from support.exactness import (
    case_posterior,
    case_state,
    cells,
    invariance_run,
    make_prior,
    make_state,
    record_worst,
)
from support.pvalues import assert_p_matrix

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.samplers import PGSM, SAMS, Alternate, Gibbs, SplitMerge, SubCluster, _alternate

FEW = {"n_warmup": 10, "n_draws": 3, "n_chains": 2, "random_state": 0}  # too few for a warning


def learned(kernel):
    """Steps that each part makes per iteration, on average."""
    (pace,) = kernel.get_adaptation()["learned"]
    return pace["steps"]


def with_steps(kernel, steps):
    """The kernel as if it had learnt these numbers of steps in warm-up."""
    zeros = [0.0] * len(steps)
    saved = kernel.get_adaptation()
    kernel.set_adaptation(
        {**saved, "learned": [{"steps": list(steps), "work": zeros, "done": zeros}]}
    )
    return kernel


def blobs(n=300, n_labels=6, spread=4.0):
    rng = np.random.default_rng(0)
    labels = np.arange(n) % n_labels
    X = rng.normal(size=(n, 2)) + spread * rng.normal(size=(n_labels, 2))[labels]
    return make_state(Gaussian(), X, make_prior("dp", n, concentration=1.0), labels)


@pytest.mark.slow
def test_several_steps_on_end(seed_sequence, record_property):
    """Moves that share the lists of members, and numbers of steps with a random part."""
    sampler = Alternate(
        [
            SAMS(anchors="neighbours", gibbs_sweeps=0),
            SAMS(gibbs_sweeps=0),
            SplitMerge(n_restricted_scans=1, gibbs_sweeps=0),
        ]
    )
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            with_steps(sampler.kernel(), (3.0, 2.5, 1.25)),
            case_posterior(likelihood, prior),
            n_starts=5_000,
        )
        for likelihood, prior in cells(sampler)
        if likelihood in ("gaussian", "relational", "bernoulli")
    }
    assert len(runs) == 3 * len(PRIOR_CASES)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("move_share", everyday([0.2, 0.5, 0.8], 0.2))
def test_the_work_is_shared(move_share, monkeypatch):
    """After warm-up the parts behind the first have their share, in equal parts."""
    monkeypatch.setattr(_alternate, "LEAST", 1.0)
    state = blobs()
    parts = [Gibbs(), SAMS(gibbs_sweeps=0), PGSM(n_particles=5, gibbs_sweeps=0)]
    kernel = Alternate(parts, move_share=move_share).kernel()
    bit_generator = np.random.PCG64(1)
    for _ in range(200):
        kernel.run(state, bit_generator, True)
    before = [part.work for part in kernel.parts]
    total = kernel.work
    for _ in range(300):
        kernel.run(state, bit_generator, False)
    work = np.subtract([part.work for part in kernel.parts], before)
    assert work.sum() == kernel.work - total
    expected = [1 - move_share, move_share / 2, move_share / 2]
    np.testing.assert_allclose(work / work.sum(), expected, atol=0.08)


def test_numbers_of_steps_stay_after_warmup():
    """Else an iteration would end where steps are costly: a law of its own."""
    state = blobs()
    kernel = Alternate([Gibbs(), SAMS(gibbs_sweeps=0)]).kernel()
    bit_generator = np.random.PCG64(1)
    for _ in range(30):
        kernel.run(state, bit_generator, True)
    assert learned(kernel)[0] == 1.0 and learned(kernel)[1] > 1.5
    kernel.run(state, bit_generator, False)
    steps = learned(kernel)
    state.assign(np.arange(300))
    for _ in range(30):
        kernel.run(state, bit_generator, False)
    assert learned(kernel) == steps


@pytest.mark.parametrize(
    ("per_turn", "share"), [(0.0, 0.2), (0.008, 0.2), (0.025, 0.5), (0.05, 1.0), (3.0, 1.0)]
)
def test_moves_that_are_hardly_accepted_make_fewer_steps(per_turn, share):
    """When warm-up has ended: one accepted move in twenty turns is enough."""
    kernel = Alternate([Gibbs(), SAMS(gibbs_sweeps=0)]).kernel()
    pace = {"steps": [1.0, 8.0], "work": [1.0, 1.0], "done": [20.0, 160.0]}
    pace["accepted"] = [0.0, 20.0 * per_turn]
    kernel.set_adaptation({"parts": [{}, {}], "learned": [pace]})
    state, bit_generator = blobs(), np.random.PCG64(1)
    kernel.run(state, bit_generator, False)
    assert learned(kernel) == [1.0, pytest.approx(8.0 * share)]
    kernel.run(state, bit_generator, False)
    assert learned(kernel) == [1.0, pytest.approx(8.0 * share)]


def test_accepted_moves_are_counted_in_warmup(monkeypatch):
    """About the mean number of the last turns."""
    monkeypatch.setattr(_alternate, "MEMORY", 1e9)
    state, bit_generator = blobs(), np.random.PCG64(1)
    state.assign(np.arange(300) // 30)
    kernel = Alternate([Gibbs(), SAMS(gibbs_sweeps=0)]).kernel()
    for _ in range(20):
        kernel.run(state, bit_generator, True)
    (pace,) = kernel.get_adaptation()["learned"]
    n_accepted = sum(accepted for _, accepted in kernel.acceptance().values())
    assert pace["accepted"] == [0.0, pytest.approx(n_accepted)] and n_accepted > 3


@pytest.mark.parametrize("kind", ["no warm-up", "no share"])
def test_one_step_of_each(kind):
    """The same draws as of the samplers one by one, on the one stream."""
    samplers = [Gibbs(), SAMS(gibbs_sweeps=0), SplitMerge(gibbs_sweeps=0)]
    one, other = blobs(), blobs()
    kernel = Alternate(samplers, move_share=0.5 if kind == "no warm-up" else None).kernel()
    parts = [sampler.kernel() for sampler in samplers]
    streams = np.random.PCG64(3), np.random.PCG64(3)
    for _ in range(20):
        kernel.run(one, streams[0], kind == "no share")
        for part in parts:
            part.run(other, streams[1])
        np.testing.assert_array_equal(one.cluster_labels(), other.cluster_labels())


def test_acceptance_has_distinct_names():
    case = fit_case("gaussian")
    samplers = [SAMS(gibbs_sweeps=0), SplitMerge(gibbs_sweeps=0), PGSM(gibbs_sweeps=0)]
    estimator = DPMixture(sampler=Alternate(samplers), likelihood=case.likelihood, **FEW)
    rates = estimator.fit(case.X).acceptance_rate_
    assert set(rates) == {"split_1", "merge_1", "split_2", "merge_2", "pgsm"}


def test_parameters_and_clones():
    sampler = Alternate([Gibbs(), SAMS()], move_share=0.3)
    copy = clone(DPMixture(sampler=sampler)).sampler
    assert repr(copy) == repr(sampler) and copy.samplers[1] is not sampler.samplers[1]
    estimator = DPMixture(sampler=sampler).set_params(sampler__move_share=0.7)
    assert estimator.sampler.move_share == 0.7


def test_capabilities_are_those_of_all_parts():
    assert Alternate().requires == "joint"
    assert Alternate([Gibbs(), PGSM()]).requires == "product"
    case = fit_case("relational")
    with pytest.raises(ValueError, match=r"PGSM\(\) cannot sample .* Relational"):
        DPMixture(likelihood="relational", sampler=Alternate([Gibbs(), PGSM()]), **FEW).fit(case.X)
    DPMixture(likelihood="relational", sampler="alternate", **FEW).fit(case.X)


class TwoReplicas(Gibbs):
    n_replicas = 2


@pytest.mark.parametrize(
    "sampler, message",
    [
        (Alternate([]), "Alternate.samplers must be a list of samplers"),
        (Alternate("gibbs"), "Alternate.samplers must be a list of samplers"),
        (Alternate(3), "Alternate.samplers must be a list of samplers"),
        (Alternate([Gibbs(), SubCluster()]), r"rows in memory.*got SubCluster\(\)"),
        (Alternate(["gibbs"]), "got 'gibbs'"),
        (Alternate([Gibbs(), TwoReplicas()]), "keeps 2 states"),
        (Alternate(move_share=1.0), "Alternate.move_share must be below 1, got 1.0"),
        (Alternate(move_share=0.0), "Alternate.move_share must be finite and > 0, got 0.0"),
        (Alternate([Gibbs(n_sweeps=0)]), "Gibbs.n_sweeps must be at least 1"),
    ],
)
def test_settings_are_checked(sampler, message):
    with pytest.raises(ValueError, match=message):
        sampler.kernel()


@pytest.mark.parametrize("n_turns", [1, 3])
def test_turns_of_an_iteration(n_turns):
    sampler = Alternate([Gibbs(), SAMS(gibbs_sweeps=0)], move_share=None, n_turns=n_turns)
    kernel = sampler.kernel()
    kernel.run(blobs(), np.random.PCG64(0))
    assert sum(proposed for proposed, _ in kernel.acceptance().values()) == n_turns
    with pytest.raises(ValueError, match=r"Alternate\.n_turns"):
        Alternate(n_turns=0).kernel()


@pytest.mark.parametrize(
    ("n", "d", "kind", "n_turns"),
    [
        (3, 1, "full", 5),
        (200, 1, "full", 3),
        (601, 1, "full", 1),
        (200, 8, "full", 3),
        (200, 12, "full", 2),
        (200, 13, "full", 1),
        (200, 13, "diag", 3),
    ],
)
def test_few_rows_of_few_correlated_columns_make_more_turns(n, d, kind, n_turns):
    X = np.random.default_rng(0).normal(size=(n, d))
    found = DPMixture(likelihood=Gaussian(covariance_type=kind), **FEW).fit(X).sampler_
    assert type(found) is Alternate and found.n_turns == n_turns
