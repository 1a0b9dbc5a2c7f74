"""A noise component where rows are visited in blocks."""

import warnings

import numpy as np
import pytest
from reference.noise import NoisePosterior
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from support.designs import everyday
from support.exactness import block_case, case_rows, convergence_run, invariance_run
from support.fits import assert_same_fit
from support.noise import noise_law, noise_of
from support.probes import accumulated
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.chains import stream
from skdpm.mixture.blocks._visit import draw_and_collect
from skdpm.mixture.blocks.moves.launched import LaunchedMoves
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.records import Held, Sweep, Task, TrialSplit
from skdpm.mixture.blocks.rows import MemoryRows, row_order
from skdpm.mixture.likelihoods import Gaussian, Poisson
from skdpm.mixture.samplers import BlockedGibbs, SubCluster
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbsKernel
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel

# Of the log densities of noise, so that about half of the rows are noise.
SHIFT = 1.5

KERNELS = {
    "sweep": lambda: SubClusterKernel(random_moves=RandomMoves(n_moves=0)),
    "sweep_and_moves": lambda: SubClusterKernel(
        random_moves=RandomMoves(n_moves=2, split_share=0.5)
    ),
    "launched": lambda: SubClusterKernel(
        random_moves=RandomMoves(n_moves=0),
        launched_moves=LaunchedMoves(n_unions=2, n_passes=1),
        launch_every=1,
    ),
    "blocked_gibbs": BlockedGibbsKernel,
}


def law_of(kernel, likelihood, prior, **changes):
    """The law of a kernel: clusters are never all lost, except under `BlockedGibbs`."""
    law = noise_law(likelihood, prior, **{"shift": SHIFT, **changes})
    if kernel != "blocked_gibbs":
        is_empty = (law.partitions < 0).all(axis=1)
        law = NoisePosterior(law.partitions, np.where(is_empty, -np.inf, law.log_joint))
    return law


def chains_of(kernel, likelihood, prior, block_size):
    rows = MemoryRows(case_rows(likelihood), block_size)
    return block_case(likelihood, prior, KERNELS[kernel](), rows, noise_of(likelihood, SHIFT))


DESIGNS = [
    ("sweep", "gaussian", "dp", 2),
    ("sweep", "poisson", "pitman_yor", 5),
    ("sweep_and_moves", "gaussian_diag", "finite", 3),
    ("launched", "gaussian", "dp", 3),
    ("launched", "bernoulli", "pitman_yor_negative", 2),
    ("blocked_gibbs", "gaussian", "finite", 2),
    ("blocked_gibbs", "categorical", "finite", 5),
]


def numbers_run(chains, law, **options):
    """`invariance_run`, of which only the numbers of rows that are noise count: few cells see
    more of wrong weights."""
    run = invariance_run(chains, chains, law, **options)

    def numbers(seed, factor):
        counts, probabilities, partitions = run(seed, factor)
        n_noise = (np.asarray(partitions) < 0).sum(axis=1)
        return Cells(np.bincount(n_noise, counts), np.bincount(n_noise, probabilities))

    return numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, likelihood, prior, block_size", everyday(DESIGNS, DESIGNS[1], DESIGNS[6], n_values=4)
)
def test_invariance(kernel, likelihood, prior, block_size, seed_sequence):
    """Starts drawn from the posterior still follow it."""
    chains = chains_of(kernel, likelihood, prior, block_size)
    law = law_of(kernel, likelihood, prior)
    run = invariance_run(chains, chains, law, n_starts=600, n_iterations=4, fewest=600)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel, prior",
    everyday(
        [("sweep", "dp"), ("sweep", "finite"), ("blocked_gibbs", "finite")],
        ("blocked_gibbs", "finite"),
        n_values=2,
    ),
)
def test_number_of_rows_that_are_noise(kernel, prior, seed_sequence):
    chains = chains_of(kernel, "gaussian", prior, 5)
    law = law_of(kernel, "gaussian", prior)
    run = numbers_run(chains, law, n_starts=2_500, n_iterations=3)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_convergence(seed_sequence):
    """Chains from one cluster reach the posterior."""
    runs = {}
    for kernel, prior in (("sweep_and_moves", "dp"), ("blocked_gibbs", "finite")):
        chains = chains_of(kernel, "gaussian", prior, 3)
        law = law_of(kernel, "gaussian", prior)
        start = np.zeros(5, dtype=np.intp)
        runs[kernel] = convergence_run(chains, chains, law, start, n_chains=500, n_iterations=60)
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{"beta": (1.2, 3.0)}, {"shift": SHIFT + 0.25}])
def test_planted_errors_are_seen(changes, seed_sequence):
    chains = chains_of("blocked_gibbs", "gaussian", "finite", 5)
    law = law_of("blocked_gibbs", "gaussian", "finite", **changes)
    run = numbers_run(chains, law, n_starts=2_500, n_iterations=3)
    assert chi_squared_p(*run(seed_sequence, 1)[:2]) < 1e-4


@pytest.mark.slow
def test_log_joint():
    for kernel, likelihood, prior, block_size in DESIGNS:
        chains = chains_of(kernel, likelihood, prior, block_size)
        law = noise_law(likelihood, prior, shift=SHIFT)
        for labels, expected in zip(law.partitions, law.log_joint, strict=True):
            if not np.isfinite(expected) or labels.max() < 0:
                continue
            chains.assign(labels)
            assert chains.state.compute_log_joint() == pytest.approx(expected, abs=1e-9)
            np.testing.assert_array_equal(chains.cluster_labels(), labels)
            assert chains.state.n_noise == (labels < 0).sum()


@pytest.mark.parametrize("likelihood", ["full", "diag", "tied", "poisson"])
@pytest.mark.parametrize("spread", [3.0, 12.0])
def test_draws_in_tiles_are_those_of_all_weights(likelihood, spread):
    """To the last bit, with rows held back, sub-clusters and random splits."""
    rng = np.random.default_rng(0)
    labels = rng.integers(12, size=2_000)
    X = spread * rng.normal(size=(12, 2))[labels] + rng.normal(size=(2_000, 2))
    X[:300] = rng.uniform(X.min(), X.max(), size=(300, 2))
    if likelihood == "poisson":
        X, made = np.floor(2.0 * np.abs(X)), Poisson()
    else:
        scale = 1.0 if likelihood == "tied" else None
        made = Gaussian(covariance_type=likelihood, scale=scale)
    made = made.resolve(X)
    model = made.parametric(X)
    codes = (2 * labels + rng.integers(2, size=2_000)).astype(np.int32)
    nothing = np.zeros(model.n_stats)
    draws = [
        model.draw(
            np.array([accumulated(model, nothing, np.flatnonzero(z == k)) for k in range(n)]),
            np.ones(n),
            np.random.PCG64(n),
        )
        for z, n in ((labels, 12), (codes, 24))
    ]
    log_noise = (-3.0 if likelihood == "poisson" else -8.0) + np.sin(np.arange(2_000.0))
    splits = (TrialSplit(2, 0.4, 1), TrialSplit(3, 0.7, 2))
    held_rows = np.flatnonzero(labels == 3)[:40]
    for subs in (True, False):
        sweep = Sweep(draws[0], np.zeros(12), log_noise_weight=0.5)
        if subs:
            sweep = Sweep(draws[0], np.zeros(12), draws[1], np.zeros(24), 0.5)
        for held in (None, Held(held_rows, codes[held_rows])):
            plain, *others = (
                draw_and_collect(
                    made.parametric(X),
                    codes,
                    Task(12, sweep, splits),
                    [stream(1, 2, j) for j in range(3)],
                    held,
                    row_order(made, X),
                    size,
                    log_noise,
                )
                for size in (0, 1, 3, 32, 128)
            )
            is_noise = plain[0] == -2
            assert 50 < is_noise.sum() < 1_200
            if held is not None:
                np.testing.assert_array_equal(plain[0][held_rows], codes[held_rows])
            assert plain[1][:24, 0].sum() == (~is_noise).sum()
            for new_codes, stats, first_rows in others:
                np.testing.assert_array_equal(new_codes, plain[0])
                np.testing.assert_allclose(stats, plain[1], rtol=1e-9, atol=1e-7)
                np.testing.assert_array_equal(first_rows, plain[2])


def noisy_blobs(n_samples, n_features=2, seed=0, share=0.2):
    rng = np.random.default_rng(seed)
    labels = rng.integers(4, size=n_samples)
    centers = 12.0 * (np.arange(4)[:, None] >> np.arange(n_features) % 2 & 1)
    X = centers[labels] + rng.normal(size=(n_samples, n_features))
    n_noise = int(share * n_samples)
    X[:n_noise] = rng.uniform(-8.0, 20.0, size=(n_noise, n_features))
    labels[:n_noise] = -1
    return X, labels


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "estimator",
    everyday(
        [
            DPMixture(sampler=SubCluster(block_size=700)),
            DPMixture(
                sampler="sub_cluster", discount=0.2, likelihood=Gaussian(covariance_type="diag")
            ),
            FiniteMixture(sampler=SubCluster(), n_components=10),
            FiniteMixture(sampler=BlockedGibbs(), n_components=10),
        ],
        repr(DPMixture(sampler=SubCluster(block_size=700))),
        repr(FiniteMixture(sampler=BlockedGibbs(), n_components=10)),
    ),
    ids=repr,
)
def test_noise_is_found(estimator):
    X, labels = noisy_blobs(2_000)
    estimator.set_params(noise=True, n_chains=2, n_warmup=60, n_draws=30, random_state=0).fit(X)
    if not isinstance(estimator.sampler, BlockedGibbs):
        assert estimator.n_clusters_ == 4
        assert adjusted_rand_score(labels, estimator.labels_) > 0.9
    assert roc_auc_score(labels < 0, estimator.noise_probabilities_) > 0.95
    n_noise = (estimator.label_samples_ < 0).sum(axis=2)
    np.testing.assert_array_equal(estimator.draws_["n_noise"], n_noise)
    assert roc_auc_score(labels < 0, estimator.outlier_scores_) > 0.95
    assert (estimator.predict(X) == estimator.labels_).mean() > 0.97


@pytest.mark.slow
def test_continued_and_parallel_fits_have_the_same_bits():
    X, _ = noisy_blobs(600)
    settings = {"sampler": SubCluster(block_size=100), "noise": True, "random_state": 1}
    settings |= {"n_chains": 2, "n_warmup": 15}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole = DPMixture(**settings, n_draws=12).fit(X)
        parts = DPMixture(**settings, n_draws=5, warm_start=True, n_jobs=2).fit(X)
        assert_same_fit(parts.set_params(n_draws=12).fit(X), whole)
