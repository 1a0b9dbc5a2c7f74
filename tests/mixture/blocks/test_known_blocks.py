"""Known labels where rows are visited in blocks."""

import numpy as np
import pytest
from reference.noise import log_box
from reference.simulate import enumeration_case
from sklearn.base import clone
from support.cases import make_estimator
from support.designs import everyday
from support.exactness import (
    BlockRuns,
    block_case,
    case_rows,
    convergence_run,
    invariance_run,
    make_likelihood,
    make_prior,
)
from support.fits import assert_same_fit
from support.known import CODES, case_law, noisy_law, united
from support.noise import BETA, log_noise_of
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.blocks import state as _state
from skdpm.mixture.blocks._visit import draw_in_turn
from skdpm.mixture.blocks.moves.launched import LaunchedMoves
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.records import Held, Task
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.blocks.state import BlockState
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.likelihoods.composite.classified import separated
from skdpm.mixture.rows.known import KnownLabels
from skdpm.mixture.samplers import SubCluster
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbsKernel
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel
from skdpm.mixture.state._state import Noise

NO_MOVES = RandomMoves(n_moves=0)
KERNELS = {
    "sweep": lambda: SubClusterKernel(random_moves=NO_MOVES),
    "moves": lambda: SubClusterKernel(random_moves=RandomMoves(n_moves=2, split_share=0.5)),
    "launched": lambda: SubClusterKernel(
        random_moves=NO_MOVES,
        launched_moves=LaunchedMoves(n_unions=2, n_passes=1),
        launch_every=1,
    ),
    "blocked_gibbs": BlockedGibbsKernel,
}
# Kernel, likelihood, prior, classes, size of a block, and whether rows may be noise.
DESIGNS = [
    ("sweep", "gaussian", "dp", "two", 2, False),
    ("sweep", "poisson", "pitman_yor", "three", 5, True),
    ("moves", "gaussian_diag", "finite", "two", 3, False),
    ("moves", "gaussian", "dp", "three", 2, True),
    ("launched", "gaussian", "dp", "two", 3, True),
    ("launched", "bernoulli", "pitman_yor_negative", "one", 2, False),
    ("blocked_gibbs", "gaussian", "finite", "two", 2, True),
    ("blocked_gibbs", "categorical", "finite", "three", 5, False),
]


def law_of(kernel, likelihood, prior, codes, block_size, noisy):
    law = noisy_law if noisy else case_law
    return law(likelihood, prior, CODES[codes])


def chains_of(kernel, likelihood, prior, codes, block_size, noisy):
    rows, codes, noise = MemoryRows(case_rows(likelihood), block_size), CODES[codes], None
    if noisy:
        noise = Noise(*BETA, np.where(codes >= 0, -np.inf, log_noise_of(likelihood)))
    known = KnownLabels.checked(codes, 5)
    return block_case(likelihood, prior, KERNELS[kernel](), rows, noise, known)


@pytest.mark.slow
@pytest.mark.parametrize("design", everyday(DESIGNS, DESIGNS[1], DESIGNS[4]), ids=str)
def test_invariance(design, seed_sequence):
    """Starts drawn from the restricted posterior still follow it."""
    chains = chains_of(*design)
    run = invariance_run(chains, chains, law_of(*design), n_starts=600, n_iterations=4, fewest=600)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_convergence(seed_sequence):
    """Chains from the partition with the fewest components reach the posterior."""
    runs = {}
    for design in (DESIGNS[3], DESIGNS[6]):
        chains, law = chains_of(*design), law_of(*design)
        start = separated(np.zeros(5, dtype=np.intp), CODES[design[3]], 5)
        run = convergence_run(chains, chains, law, start, n_chains=300, n_iterations=30)
        runs[str(design)] = run
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def drawn_with(**changes):
    """`draw_in_turn` with other arguments: functions of the right ones."""

    def spoiled(codes, classes, log_w, *others):
        halves, *counts, least, bit_generator = others
        right = {"classes": classes, "log_w": log_w, "least": least}
        wrong = [changes.get(name, lambda value: value)(right[name]) for name in right]
        draw_in_turn(codes, *wrong[:2], halves, *counts, wrong[2], bit_generator)

    return _state, "draw_in_turn", spoiled


may_join = BlockState.may_join
ERRORS = [
    ("sweep", *drawn_with(classes=np.zeros_like)),
    ("sweep", *drawn_with(log_w=np.zeros_like)),
    ("sweep", *drawn_with(least=lambda least: 0)),
    ("sweep", _state.records, "Task", lambda *arguments: Task(*arguments[:4])),
    ("moves", BlockState, "may_join", lambda *arguments: True),
    ("launched", BlockState, "may_join", lambda *arguments: True),
    ("moves", BlockState, "may_join", lambda *pair: may_join(*pair) and pair[1] == 0),
    ("blocked_gibbs", *drawn_with(least=lambda least: 1)),
]


@pytest.mark.slow
@pytest.mark.parametrize("kernel, owner, name, wrong", ERRORS)
def test_planted_errors_are_seen(kernel, owner, name, wrong, monkeypatch, seed_sequence):
    """Rows that forget the classes, the weights or the other rows of their component, rows that
    are drawn all at once, and merges of any pairs, or not of all."""
    monkeypatch.setattr(owner, name, wrong)
    prior = "finite" if kernel == "blocked_gibbs" else "dp"
    design = (kernel, "gaussian", prior, "two", 3, False)
    chains = chains_of(*design)
    run = invariance_run(chains, chains, law_of(*design), n_starts=1_200, n_iterations=3)
    try:
        p = chi_squared_p(*run(seed_sequence, 1)[:2])
    except (FloatingPointError, RuntimeError):  # a row has no component, or a component no row
        p = 0.0
    assert p < 1e-6


@pytest.mark.parametrize("join", [None, lambda *arguments: True], ids=["", "planted"])
def test_warm_up_never_unites_classes(join, monkeypatch):
    """Close clusters of two classes, which the warm-up would merge; statistics follow."""
    if join is not None:
        monkeypatch.setattr(BlockState, "may_join", join)
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(90, 2)), np.where(rng.random(90) < 0.5, np.arange(90) % 3, -1)
    kernel, prior = SubClusterKernel(), make_prior("dp", 90, concentration=1.0)
    known = KnownLabels.checked(codes, 90)
    chain = BlockRuns(Gaussian(), X, prior, kernel, MemoryRows(X, 40), known=known)
    chain.assign(separated(np.zeros(90, dtype=np.intp), codes, 90))
    apart = []
    for n in range(12):
        try:
            kernel.step(chain.state, rng, (0, 0, n), adapting=1.0)
        except FloatingPointError:
            apart.append(False)
            break
        apart.append(not united(chain.cluster_labels(), codes))
        _, collected = chain.state.run_task(None)
        np.testing.assert_allclose(chain.state.stats, collected.stats, atol=1e-9)
    assert all(apart) == (join is None)
    assert join is not None or chain.state.n_clusters < 8


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_sample_the_posterior(seed_sequence):
    """From the start of a fit."""
    X, codes, noise = enumeration_case("gaussian").X, CODES["two"], (1.0, 1.0)
    law = noisy_law("gaussian", "dp", codes, log_box(X, X), noise)

    def run(seed, factor):
        model = make_estimator(make_likelihood("gaussian"), "dp", noise=noise, init="auto")
        model.set_params(sampler=SubCluster(block_size=2), n_warmup=0, point_estimate="last")
        model.set_params(n_chains=round(300 * factor), n_draws=15)
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        model.fit(X, known_labels=codes)
        counts = law.count(model.label_samples_[:, -1])
        return Cells(counts, law.probabilities, law.partitions)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sampler", ["sub_cluster", "blocked_gibbs"])
@pytest.mark.some(1)
@pytest.mark.long
def test_fits_find_classes(sampler, tmp_path):
    """Also of rows that are mapped from a file, and whatever the threads."""
    rng = np.random.default_rng(0)
    y = np.repeat([4, 7, 9], 50)
    X = rng.normal(size=(150, 2)) + np.array([[0.0, 0.0], [6.0, 0.0], [0.0, 6.0]])[y // 3 - 1]
    known = np.where((np.arange(150) % 10 == 0) & (y < 9), y, -1)
    np.save(tmp_path / "rows.npy", X)
    model = FiniteMixture(4, sampler=sampler, n_warmup=20, n_draws=10, n_chains=2, random_state=0)
    model.fit(X, known_labels=known)
    assert model.classes_[:2].tolist() == [4, 7]
    assert (model.labels_[known >= 0] == known[known >= 0]).all()
    assert (model.labels_[:100] == y[:100]).mean() > 0.95 and (
        model.labels_[100:] > 7
    ).mean() > 0.9
    assert not any(united(z, known) for z in model.label_samples_.reshape(-1, 150))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    again = clone(model).set_params(n_jobs=2).fit(mapped, known_labels=known)
    assert_same_fit(model, again, X[:5])


def test_rows_that_are_held_back():
    codes = np.array([0, 3, 2, -2, 4], dtype=np.int32)
    for clusters, rows, expected in (((1,), (), [1, 2]), ((), [3], [3]), ((2,), [0, 4], [0, 4])):
        held = Held.of_clusters(codes, clusters, rows)
        np.testing.assert_array_equal(held.rows, expected)
        np.testing.assert_array_equal(held.codes, codes[expected])
    assert Held.of_clusters(codes, ()) is None


def test_dask_arrays_are_refused():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    with pytest.raises(ValueError, match="rows with known labels must be in memory"):
        DPMixture().fit(da.ones((6, 2), chunks=3), known_labels=[0, 1, -1, -1, -1, -1])
