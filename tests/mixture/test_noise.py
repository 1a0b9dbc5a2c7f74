"""A noise component: the law of noise and partition, and what users read off it."""

import itertools
import pickle
import warnings
from functools import cache, partial

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from reference.gaps import log_known
from reference.likelihoods import LOG_MARGINALS
from reference.noise import (
    NoisePosterior,
    log_box,
    log_noise_likelihood,
    log_noise_posterior,
    log_noise_prior,
    log_open_box,
    noise_labels,
    share_between,
)
from reference.predictive import log_predictive
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from scipy.stats import gamma, multinomial
from sklearn.base import clone
from sklearn.datasets import load_iris, make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, roc_auc_score
from support.cases import fit_case, make_estimator, prior_name, prior_params
from support.departures import leave_out_departures
from support.designs import combinations, everyday, in_shares, thirds
from support.exactness import (
    MANY_ITERATIONS,
    N_ITERATIONS,
    convergence_run,
    invariance_run,
    make_likelihood,
    make_prior,
    record_worst,
    run_kernel,
)
from support.fits import assert_same_fit
from support.kernels import bind
from support.noise import BETA, log_noise_of, noise_law, noise_of
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.chains.program import row_tiles
from skdpm.mixture.likelihoods import (
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Subspace,
)
from skdpm.mixture.rows.noise import alone, components_of
from skdpm.mixture.samplers import (
    ARM,
    PGSM,
    SAMS,
    Alternate,
    Gibbs,
    SplitMerge,
    SubCluster,
)
from skdpm.mixture.samplers._arm import BLOCKS
from skdpm.mixture.state._state import MixtureState, Noise
from skdpm.mixture.state._tiles import RowTiles

LIKELIHOODS = ("gaussian", "gaussian_diag", "bernoulli", "poisson")
COUNTS = ("poisson", "negative_binomial")
OTHERS = (
    *("gaussian_tied", "gaussian_spherical", "categorical", "negative_binomial", "multinomial"),
)
SAMPLERS = [
    pytest.param(name, sampler, id=repr(sampler))
    for name, sampler in [
        ("gibbs", Gibbs()),
        ("sams", SAMS(anchors="uniform", gibbs_sweeps=0)),
        ("sams", SAMS(anchors="neighbours", gibbs_sweeps=0)),
        ("split_merge", SplitMerge(n_restricted_scans=1, gibbs_sweeps=0)),
        ("pgsm", PGSM(n_particles=3, anchors="uniform", gibbs_sweeps=0)),
        ("pgsm", PGSM(n_particles=4, n_anchors=3, anchors="uniform", gibbs_sweeps=0)),
        ("arm", ARM(n_history_chains=0, gibbs_sweeps=0, n_split_merges=0)),
        ("arm", ARM(n_history_chains=0, gibbs_sweeps=0, n_split_merges=1)),
    ]
]


def noise_state(likelihood, prior, tile_size=None):
    name, params = PRIOR_CASES[prior]
    X = enumeration_case(likelihood).X
    resolved = make_likelihood(likelihood).resolve(X)
    data = resolved.encode(X)
    tiles = None
    if tile_size is not None:
        tiles = RowTiles(resolved.box_points(data), tile_size, 2)
    state = MixtureState(
        bind(resolved, data, len(X)),
        make_prior(name, len(X), **params),
        np.zeros(len(X), dtype=np.intp),
        tiles=tiles,
        noise=noise_of(likelihood),
    )
    if tiles is not None:
        state.bounds.always = True
    return state


def cells():
    return [(likelihood, prior) for likelihood in LIKELIHOODS for prior in PRIOR_CASES]


@pytest.mark.parametrize("likelihood, prior", [("gaussian", "dp"), ("poisson", "mfm")])
def test_log_joint(likelihood, prior):
    state, law = noise_state(likelihood, prior), noise_law(likelihood, prior)
    for labels, expected in zip(law.partitions, law.log_joint, strict=True):
        state.assign(labels)
        assert state.compute_log_joint() == pytest.approx(expected, abs=1e-9)
        np.testing.assert_array_equal(state.cluster_labels() < 0, labels < 0)


@in_shares
@thirds("name, sampler", SAMPLERS)
@pytest.mark.long
def test_invariance(name, sampler, share, seed_sequence, record_property):
    """Starts drawn from the posterior still follow it after some iterations."""
    runs = {
        f"{likelihood} {prior}": invariance_run(
            noise_state(likelihood, prior),
            sampler.kernel(),
            noise_law(likelihood, prior),
            n_starts=4_000,
        )
        for likelihood, prior in share(cells())
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@combinations(
    sampler=[PGSM(n_particles=3, gibbs_sweeps=0), SAMS(gibbs_sweeps=0)],
    anchors=["cluster_informed", "threshold_informed"],
)
def test_invariance_with_informed_anchors(anchors, sampler, seed_sequence, record_property):
    """Anchors follow a clustering of the warm-up, in which a row was noise."""
    runs = {}
    for prior in ("dp", "finite", "mfm"):
        state = noise_state("gaussian", prior)
        kernel = clone(sampler).set_params(anchors=anchors).kernel()
        for adapting in (True, False):
            state.assign(np.array([0, 0, 1, 1, -1]))
            kernel.run(state, np.random.PCG64(0), adapting)
        (snapshot,) = kernel.anchors.get_state()["snapshots"]
        np.testing.assert_array_equal(snapshot["arrays"]["labels"], [0, 0, 1, 1, -1])
        kernel.anchors.set_state(kernel.anchors.get_state())
        law = noise_law("gaussian", prior)
        runs[prior] = invariance_run(state, kernel, law, n_starts=8_000)
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


PAST = [[0, 0, 1, 1, -1], [0, 1, 1, 0, 0], [-1, 0, 0, 0, -1], [0, 1, 2, 2, 0]]
LEARNERS = [
    *(
        ARM(blocks=blocks, n_history_chains=1, gibbs_sweeps=0, n_split_merges=0)
        for blocks in BLOCKS
    ),
    SplitMerge.from_paper("bSM", n_restricted_scans=1, n_history_chains=1, gibbs_sweeps=0),
]


@pytest.mark.slow
@pytest.mark.parametrize("sampler", everyday(LEARNERS, LEARNERS[0], LEARNERS[-1]), ids=repr)
def test_invariance_with_a_history(sampler, seed_sequence, record_property):
    """Moves from past states, in some of which rows were noise."""
    runs, kernels = {}, []
    for likelihood, prior in [("gaussian", "dp"), ("poisson", "mfm"), ("bernoulli", "finite")]:
        state, kernel = noise_state(likelihood, prior), sampler.kernel()
        for t, labels in enumerate(PAST, start=len(PAST) + 1):
            state.assign(np.array(labels))
            kernel.record(t, [state], True)
        past = kernel.get_adaptation()["labels"][0]
        assert past[0].tolist() == [0, 0, 1, 1, 2] and past[-1].tolist() == [0, 1, 2, 2, 0]
        assert past[2].tolist() == [0, 1, 1, 1, 2]
        law = noise_law(likelihood, prior)
        runs[f"{likelihood} {prior}"] = invariance_run(state, kernel, law, n_starts=8_000)
        kernels.append(kernel)
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    for kernel in kernels:
        assert all(accepted > 0 for _, accepted in kernel.acceptance().values())
    record_worst(record_property, worst, len(runs))


def test_invariance_under_other_likelihoods(seed_sequence, record_property):
    runs = {
        likelihood: invariance_run(
            noise_state(likelihood, "dp"),
            Alternate([Gibbs(), SAMS(anchors="neighbours", gibbs_sweeps=0)]).kernel(),
            noise_law(likelihood, "dp"),
            n_starts=4_000,
        )
        for likelihood in OTHERS
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@combinations(sampler=[Gibbs(), SAMS(gibbs_sweeps=0)], in_tiles=[False, True])
def test_invariance_with_a_gap(sampler, in_tiles, seed_sequence, record_property):
    """The missing entry is drawn with the cluster of its row; noise knows the other entry."""
    case, runs = enumeration_case("gaussian"), {}
    X = case.X.copy()
    X[1, 1] = np.nan
    known = cache(
        lambda rows: log_known(X[list(rows)], partial(LOG_MARGINALS["gaussian"], **case.params))
    )
    items = {row.tobytes(): i for i, row in enumerate(X)}
    log_noise = log_noise_of("gaussian")
    log_noise[1] = -2.0
    for prior in ("dp", "mfm"):
        name, params = PRIOR_CASES[prior]
        law = log_noise_posterior(
            X,
            lambda rows: known(tuple(items[row.tobytes()] for row in rows)),
            name,
            likelihood_params={},
            prior_params=params,
            log_noise=log_noise,
            beta=BETA,
        )
        resolved = make_likelihood("gaussian").resolve(X)
        data = resolved.encode(X)
        state = MixtureState(
            bind(resolved, data, len(X)),
            make_prior(name, len(X), **params),
            np.zeros(len(X), dtype=np.intp),
            tiles=row_tiles(resolved, data) if in_tiles else None,
            noise=Noise(*BETA, log_noise),
        )
        state.assign(law.partitions[0])

        def run(seed, factor, state=state, law=law):
            # The entry has another law in starts: it is forgotten in two sweeps.
            rng = np.random.Generator(np.random.PCG64(seed))
            starts = law.draw(round(6_000 * factor), rng)
            ends = run_kernel(state, sampler.kernel(), starts, 25, rng)
            return Cells(law.count(ends), law.probabilities, law.partitions)

        runs[prior] = run
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("tile_size", everyday([1, 2, 5], 2))
def test_invariance_in_tiles(tile_size, seed_sequence, record_property):
    runs = {
        prior: invariance_run(
            noise_state("gaussian", prior, tile_size),
            Gibbs().kernel(),
            noise_law("gaussian", prior),
            n_starts=8_000,
        )
        for prior in PRIOR_CASES
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def noisy_rows(n_samples, seed):
    """Nine clusters on a grid and a third of uniform noise in two columns."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(9, size=n_samples)
    X = 8.0 * np.column_stack([labels % 3, labels // 3]) + rng.normal(size=(n_samples, 2))
    labels[: n_samples // 3] = -1
    X[: n_samples // 3] = rng.uniform(-5.0, 21.0, size=(n_samples // 3, 2))
    return X, labels


@pytest.mark.parametrize("likelihood", [*("full", "diag", "tied", "spherical"), "poisson"])
@pytest.mark.parametrize("prior", ["dp", "finite", "mfm"])
@pytest.mark.some(4)
def test_draws_in_tiles_are_those_of_all_weights(likelihood, prior):
    """The same draws with bounds and without, while rows become noise and cease to be."""
    X, labels = noisy_rows(400, seed=0)
    labels[:60] = np.arange(60) % 9
    log_noise = -np.log(26.0**2) + 0.3 * np.sin(np.arange(len(X)))
    if likelihood == "poisson":
        X, resolved = np.floor(5.0 * np.abs(X)), Poisson(shape=0.5, rate=0.05)
        log_noise -= 3.0
    else:
        resolved = Gaussian(
            covariance_type=likelihood, mean=8.0, mean_precision=0.01, df=6.0, scale=4.0
        )
    resolved = resolved.resolve(X)
    data = resolved.encode(X)
    params = {"dp": {"concentration": 1.0}, "finite": {"concentration": 2.0, "n_components": 9}}
    params = params.get(prior, {"concentration": 1.0})
    for sizes in ((1, 1), (3, 2), (16, 4)):
        states = [
            MixtureState(
                bind(resolved, data, len(X)),
                make_prior(prior, len(X), **params),
                labels,
                tiles=RowTiles(resolved.box_points(data), *sizes),
                noise=Noise(1.0, 9.0, log_noise),
            )
            for _ in range(2)
        ]
        states[0].bounds.always, states[1].bounds.off = True, True
        streams, kernel = [np.random.PCG64(3) for _ in states], Gibbs().kernel()
        seen = set()
        for _ in range(10):
            for state, stream in zip(states, streams, strict=True):
                kernel.run(state, stream)
            np.testing.assert_array_equal(*(state.cluster_labels() for state in states))
            seen.add((states[0].n_noise, states[0].n_clusters))
        assert len(seen) > 5
        assert 20 < states[0].n_noise < 200


@pytest.mark.slow
@in_shares
@pytest.mark.parametrize("name, sampler", [SAMPLERS[0], SAMPLERS[2]])
def test_convergence(name, sampler, share, seed_sequence, record_property):
    """Chains from a single cluster reach the posterior."""
    n_iterations = N_ITERATIONS.get(name, MANY_ITERATIONS // 4)
    runs = {
        f"{likelihood} {prior}": convergence_run(
            noise_state(likelihood, prior),
            sampler.kernel(),
            noise_law(likelihood, prior),
            np.zeros(5, dtype=np.intp),
            n_chains=2_000,
            n_iterations=n_iterations,
        )
        for likelihood, prior in share(cells())
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("error", ["no a", "density", "weight of a new cluster"])
def test_planted_errors_are_seen(error, seed_sequence):
    """Chains under a law with another beta, another density or another concentration."""
    law = {
        "no a": lambda: noise_law("gaussian", "dp", beta=(1.2, 3.0)),
        "density": lambda: noise_law("gaussian", "dp", shift=0.2),
        "weight of a new cluster": lambda: noise_law("gaussian", "dp", concentration=1.6),
    }[error]()
    state = noise_state("gaussian", "dp")
    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    ends = run_kernel(state, Gibbs().kernel(), law.draw(20_000, rng), 2, rng)
    assert chi_squared_p(*Cells(law.count(ends), law.probabilities, law.partitions)[:2]) < 1e-6


# Fits. The law of noise is computed here from its definition.


@pytest.mark.slow
@pytest.mark.parametrize("prior", everyday(["dp", "mfm"], "dp"))
@pytest.mark.parametrize(
    "sampler", everyday([Gibbs(), Alternate([Gibbs(), SAMS(gibbs_sweeps=0)])], "Gibbs()"), ids=repr
)
def test_fits_sample_the_posterior(prior, sampler, seed_sequence):
    """With a learned concentration, which is drawn given the rows that are in clusters."""
    case = enumeration_case("gaussian")
    name, settings = PRIOR_CASES[prior]
    shape, rate, beta = 2.0, 0.8, (1.0, 1.0)
    log_noise = log_box(case.X, case.X)
    t = np.linspace(-9.0, 4.0, 4_001)
    others = {key: value for key, value in settings.items() if key != "concentration"}
    log_weights = gamma.logpdf(np.exp(t), shape, scale=1.0 / rate) + t
    log_joint = []
    for labels in noise_labels(5):
        params = {"concentration": np.exp(t), **others}
        log_prior = log_noise_prior(labels, beta, name, params) + log_weights
        log_joint.append(
            logsumexp(log_prior)
            + log_noise_likelihood(case.X, labels, log_noise, "gaussian", case.params)
        )
    law = NoisePosterior(noise_labels(5), np.array(log_joint))

    def run(seed, factor):
        model = make_estimator(make_likelihood("gaussian"), prior, resampled=True, noise=beta)
        model.set_params(
            sampler=sampler,
            concentration_prior=(shape, rate),
            n_chains=round(2_000 * factor),
            # Whole clusters become noise in the first 20 iterations, which keep no law.
            n_warmup=35,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one draw tells nothing
            model.fit(case.X)
        counts = law.count(model.label_samples_[:, 0])
        return Cells(counts, law.probabilities, law.partitions)

    assert_p(run, seed_sequence=seed_sequence)


def scores_of(model, case, name, X_new, log_noise):
    """log of the mean over draws of the density of new rows, (n_rows,)."""
    a, b = model.noise
    out = []
    for c, draws in enumerate(model.label_samples_):
        for s, labels in enumerate(draws.astype(int)):
            weight = (a + (labels < 0).sum()) / (a + b + len(labels))
            terms = [np.log(weight) + log_noise]
            inside = labels >= 0
            if inside.any():
                clusters = log_predictive(
                    case.X[inside],
                    labels[inside],
                    X_new,
                    name,
                    prior_name(model),
                    likelihood_params=case.params,
                    prior_params=prior_params(model, model.concentration_samples_[c, s]),
                )
                terms.append(np.log1p(-weight) + clusters)
            out.append(logsumexp(terms, axis=0))
    return logsumexp(out, axis=0) - np.log(len(out))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@combinations(name=["gaussian", "gaussian_diag"], prior=["pitman_yor", "finite", "mfm"])
@pytest.mark.some(1)
@pytest.mark.long
def test_scores(name, prior):
    """The density of new rows, also of rows outside the box and far from it."""
    case = fit_case(name)
    model = make_estimator(case.likelihood, prior, resampled=True, noise=(3.0, 5.0)).fit(case.X)
    assert 0 < model.noise_probabilities_.mean() < 1
    X_new = np.vstack([case.X_new, np.outer([50.0, 1e3], np.ones(case.X.shape[1]))])
    expected = scores_of(model, case, name, X_new, log_open_box(case.X, X_new))
    np.testing.assert_allclose(model.score_samples(X_new), expected, rtol=1e-9)
    shares = (model.label_samples_ < 0).mean(axis=(0, 1))
    np.testing.assert_allclose(model.noise_probabilities_, shares)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.slow
def test_densities_integrate_to_one(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(0, 1, 30), rng.normal(9, 1, 30), rng.uniform(-20, 30, 20)][:, None]
    short = {"noise": True, "n_warmup": 20, "n_draws": 20, "n_chains": 2, "random_state": 0}
    model = DPMixture(**short).fit(X)
    assert model.noise_probabilities_.mean() > 0.05
    half = 1.05 * np.ptp(X) / 2.0
    edges = np.array([-3_000.0, *((X.max() + X.min()) / 2.0 + np.array([-half, half])), 3_000.0])
    total = 0.0
    for low, high in itertools.pairwise(edges):
        grid = np.linspace(low, high, 60_001)[1:-1]
        total += np.exp(model.score_samples(grid[:, None])).sum() * (grid[1] - grid[0])
    weight = model.draws_.scored.noise_weight
    expected = 1.0 - weight + weight * share_between(X[:, 0], -3_000.0, 3_000.0)
    assert total == pytest.approx(expected, abs=3e-4)

    X = np.round(np.abs(X))
    model = DPMixture(likelihood="poisson", **short).fit(X)
    total = np.exp(model.score_samples(np.arange(4_000.0)[:, None])).sum()
    beyond = 1.0 / (len(X) + 1) / (1.0 + np.log1p(4_000.0 / (X.max() + 1.0)))
    assert total == pytest.approx(1.0 - model.draws_.scored.noise_weight * beyond)

    X = (rng.random((40, 4)) < 0.5).astype(float)
    model = DPMixture(likelihood="bernoulli", **short).fit(X)
    every = (np.arange(16)[:, None] >> np.arange(4) & 1).astype(float)
    assert np.exp(model.score_samples(every)).sum() == pytest.approx(1.0)

    # Under `Subspace` the kernels see one of the two columns.
    leave_out_departures(monkeypatch)
    X = np.c_[rng.normal(0, 1, 60), np.repeat([0.0, 9.0], 30) + rng.normal(0, 1, 60)]
    X[:15] = rng.uniform(-8, 16, (15, 2))
    model = DPMixture(likelihood=Subspace(n_axes=1), **short).fit(X)
    grid = np.linspace(-60, 60, 801)
    points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
    total = np.exp(model.score_samples(points)).sum() * (grid[1] - grid[0]) ** 2
    weight = model.draws_.scored.noise_weight
    inside = np.prod([share_between(x, -60.0, 60.0) for x in X.T])
    assert total == pytest.approx(1.0 - weight + weight * inside, abs=2e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("prior", everyday(["dp", "mfm"], "dp"))
def test_leave_one_out(prior):
    """The density of a row given the others, as a difference of enumerated joint densities."""
    name, beta = "gaussian", (3.0, 5.0)
    case = fit_case(name, n_samples=6)
    model = make_estimator(case.likelihood, prior, noise=beta, n_draws=6).fit(case.X)
    log_noise = log_box(case.X, case.X)
    found = model.pointwise_log_likelihood(case.X)
    assert (model.label_samples_ < 0).any()
    assert not (model.label_samples_ < 0).all()
    for c, draws in enumerate(model.label_samples_):
        params = prior_params(model, model.concentration_samples_[c, 0])

        def log_joint(X, labels, log_noise, params=params):
            inside = labels >= 0
            labels = labels.copy()
            labels[inside] = np.unique(labels[inside], return_inverse=True)[1]
            return log_noise_prior(labels, beta, prior_name(model), params) + (
                log_noise_likelihood(X, labels, log_noise, name, case.params)
            )

        for s, labels in enumerate(draws.astype(int)):
            for i in range(len(labels)):
                others = np.delete(labels, i)
                choices = [-1, *np.unique(others[others >= 0]), 99]
                with_row = [log_joint(case.X, np.insert(others, i, k), log_noise) for k in choices]
                rest = log_joint(np.delete(case.X, i, axis=0), others, np.delete(log_noise, i))
                assert found[c, s, i] == pytest.approx(logsumexp(with_row) - rest, rel=1e-8)


def noisy_blobs(n_features, n_samples=400, seed=0, share=0.2):
    """Four clusters and a share of uniform noise."""
    rng = np.random.default_rng(seed)
    centers = 12.0 * (np.arange(4)[:, None] >> np.arange(n_features) % 2 & 1)
    labels = rng.integers(4, size=n_samples)
    X = centers[labels] + rng.normal(size=(n_samples, n_features))
    n_noise = int(share * n_samples)
    labels[:n_noise] = -1
    X[:n_noise] = rng.uniform(-8.0, 20.0, size=(n_noise, n_features))
    return X, labels


@pytest.mark.slow
@pytest.mark.parametrize("n_features", everyday([2, 5, 10], 2))
def test_noise_is_found(n_features):
    X, labels = noisy_blobs(n_features)
    model = DPMixture(noise=True, random_state=0).fit(X)
    assert model.n_clusters_ == 4
    assert roc_auc_score(labels < 0, model.noise_probabilities_) >= 0.95
    assert set(model.labels_) == {-1, 0, 1, 2, 3}
    assert (model.predict(X) == model.labels_).mean() > 0.98
    assert (model.labels_[labels >= 0] < 0).mean() < 0.05
    if n_features == 2:
        held_out = noisy_blobs(n_features, 2_000, seed=1)[0]
        without = DPMixture(random_state=0).fit(X)
        assert model.score(held_out) > without.score(held_out)


@pytest.mark.slow
def test_no_noise_is_claimed():
    for X in [load_iris().data, make_blobs(300, centers=3, random_state=1)[0]]:
        model = DPMixture(noise=True, random_state=0).fit(X)
        assert (model.labels_ < 0).mean() < 0.01
        assert model.noise_probabilities_.mean() < 0.01
        labels = DPMixture(random_state=0).fit(X).labels_
        assert adjusted_rand_score(labels, model.labels_) > 0.95


@pytest.mark.slow
def test_a_ring_in_noise():
    rng = np.random.default_rng(0)
    angle = rng.uniform(0.0, 2.0 * np.pi, 500)
    ring = np.column_stack([np.cos(angle), np.sin(angle)]) + 0.05 * rng.normal(size=(500, 2))
    X = np.vstack([ring, rng.uniform(-2.0, 2.0, size=(120, 2))])
    model = DPMixture(noise=True, random_state=0).fit(X)
    assert np.bincount(model.labels_ + 1)[1] > 450  # one cluster of any shape
    assert roc_auc_score(np.arange(620) >= 500, model.noise_probabilities_) > 0.85


@pytest.mark.slow
@pytest.mark.parametrize(
    "law_of_number, n_chains",
    everyday([("poisson", 1_000), ("geometric", 2_000)], "'poisson'", n_values=2),
)
def test_fits_with_a_dynamic_number_of_components(law_of_number, n_chains, seed_sequence):
    """The number of components is drawn given the rows that are in clusters."""
    case, beta = enumeration_case("gaussian"), (1.0, 1.0)
    settings = {"concentration": 1.6, "n_components_prior": law_of_number}
    log_noise = log_box(case.X, case.X)
    states = noise_labels(5)
    log_joint = [
        log_noise_prior(labels, beta, "dynamic", settings)
        + log_noise_likelihood(case.X, labels, log_noise, "gaussian", case.params)
        for labels in states
    ]
    law = NoisePosterior(states, np.array(log_joint))

    def run(seed, factor):
        model = FiniteMixture(
            None,
            dynamic=True,
            likelihood=make_likelihood("gaussian"),
            noise=beta,
            sampler="gibbs",
            n_chains=round(n_chains * factor),
            n_warmup=35,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
            **settings,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(case.X)
        at = law.index(model.label_samples_[:, 0])
        found = model.log_joint_samples_[:, 0]
        np.testing.assert_allclose(found, law.log_joint[at], atol=1e-8)
        return Cells(law.count(model.label_samples_[:, 0]), law.probabilities, law.partitions)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sampler", everyday(["auto", "sub_cluster", "smc"], "auto"))
def test_texts_of_all_words_are_noise(sampler):
    """Three clusters of texts, each with words of its own, and texts of all words."""
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=240)
    shares = np.kron(np.eye(3), np.ones(10)) + 1e-3
    shares = np.vstack([shares, np.ones(30)])
    labels[:40] = -1
    X = np.array(
        [rng.multinomial(rng.integers(1, 40), shares[k] / shares[k].sum()) for k in labels]
    )
    rows = sp.csr_array(X)
    columns = X.sum(axis=0) + 1.0 / 30
    law = multinomial(X.sum(axis=1), columns / columns.sum())
    background = Multinomial().resolve(rows).background(rows)
    np.testing.assert_allclose(background.log_density(rows), law.logpmf(X), rtol=1e-10, atol=1e-10)
    model = DPMixture(
        likelihood=Multinomial(), sampler=sampler, noise=True, n_chains=2, random_state=0
    )
    model.set_params(n_warmup=60, n_draws=40).fit(rows)
    long = X.sum(axis=1) > 8
    assert roc_auc_score((labels < 0)[long], model.noise_probabilities_[long]) > 0.95
    assert adjusted_rand_score(labels[long], model.labels_[long]) > 0.9
    assert (model.predict(rows) == model.labels_)[long].mean() > 0.95
    np.testing.assert_allclose(model.score_samples(rows), model.score_samples(X), rtol=1e-12)
    assert not hasattr(model, "sample")


SHORT = {"n_warmup": 30, "n_draws": 30, "n_chains": 2, "random_state": 0}


@pytest.fixture(scope="module")
def fitted():
    X, _ = noisy_blobs(2, 200)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return X, DPMixture(noise=True, **SHORT).fit(X)


@pytest.mark.long
def test_predictions(fitted):
    X, model = fitted
    shares = model.predict_proba(X, new_cluster=True)
    assert shares.shape == (200, 5)
    of_noise = 1.0 - shares.sum(axis=1)
    assert (of_noise > -1e-12).all()
    assert model.predict_proba([[6.0, 6.0]]).sum() < 0.1
    shares = model.predict_proba(X)
    shares = np.column_stack([1.0 - shares.sum(axis=1), shares])
    np.testing.assert_array_equal(model.predict(X), shares.argmax(axis=1) - 1)
    assert model.weights_.sum() == pytest.approx(1.0 - shares[:, 0].mean(), abs=0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.long
def test_far_rows_are_noise():
    """Clusters have next to none of the rows outside the box, and from 1.5 times its size on the
    less the farther out. Noise is so sparse that no draw has a cluster at the edge of the box."""
    ring = 60.0 * np.column_stack([np.cos(np.arange(12) / 1.9), np.sin(np.arange(12) / 1.9)])
    X = np.concatenate([noisy_blobs(2, 160, share=0.0)[0], 6.0 + ring])
    model = DPMixture(noise=True, **SHORT).fit(X)
    reach = np.array([0.99, 1.0, 1.01, 1.1, 1.5, 2.0, 5.0, 1e2, 1e9, 1e100, 1e300])
    middle, half = (X.min(axis=0) + X.max(axis=0)) / 2.0, 1.05 * np.ptp(X, axis=0) / 2.0
    for direction in ([1.0, 0.0], [0.0, -1.0], [1.0, 0.9]):
        rows = middle + half * direction * reach[:, None]
        of_clusters = model.predict_proba(rows).sum(axis=1)
        assert (of_clusters[1:] < 1e-9).all() and of_clusters[-1] < 1e-100
        assert (np.diff(of_clusters[4:]) <= 1e-12).all()
        assert (model.predict(rows[3:]) == -1).all()
        assert np.isfinite(model.score_samples(rows)).all()
    law = model._predictor.background
    np.testing.assert_allclose(law.log_density(X, new=True), log_open_box(X, X), rtol=1e-12)
    np.testing.assert_allclose(law.log_density(X), log_box(X, X), rtol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "likelihood",
    everyday(["diag", "tied", "subspace", *COUNTS, "mixed"], "mixed"),
)
@pytest.mark.long
def test_far_rows_are_noise_under(likelihood):
    """Also beside gaps, and if one column alone is far."""
    X, _ = noisy_blobs(2, 120)
    X = pd.DataFrame(np.round(np.abs(X)) if likelihood in COUNTS else X, columns=["a", "b"])
    if likelihood == "mixed":
        X["b"] = pd.Categorical(X["b"] > 6.0)
    elif likelihood == "subspace":
        likelihood = Subspace(n_axes=1)
    else:
        X.iloc[0, 0] = np.nan
        if likelihood not in COUNTS:
            likelihood = Gaussian(covariance_type=likelihood)
    model = DPMixture(likelihood=likelihood, noise=True, **SHORT).fit(X)
    for columns in (["a"], ["a", "b"][: 1 + (likelihood != "mixed")]):
        rows = X.iloc[1:4].copy()
        for far in (1e4, 1e9, 1e15):
            rows[columns] = far
            assert (model.predict(rows) == -1).all()
            assert (model.predict_proba(rows).sum(axis=1) < 0.01).all()
            assert np.isfinite(model.score_samples(rows)).all()


@pytest.mark.long
def test_samples(fitted):
    X, model = fitted
    rows, labels = model.sample(4_000)
    assert labels.min() == -1 and labels.max() == 3
    assert (labels < 0).mean() == pytest.approx(model.noise_probabilities_.mean(), abs=0.04)
    middle, half = (X.min(axis=0) + X.max(axis=0)) / 2.0, 1.05 * np.ptp(X, axis=0) / 2.0
    scattered = rows[labels < 0]
    # Noise is drawn in the box. Rows of clusters outside look like noise.
    assert (np.abs(scattered - middle) <= half).mean() > 0.98
    assert (np.ptp(scattered, axis=0) > 1.8 * half).all()


@pytest.mark.long
def test_what_is_read_off_draws(fitted):
    X, model = fitted
    assert model.label_samples_.dtype == np.int8 and model.label_samples_.min() == -1
    n_noise = (model.label_samples_ < 0).sum(axis=2)
    np.testing.assert_array_equal(model.draws_["n_noise"], n_noise)
    is_noise = model.labels_ < 0
    np.testing.assert_array_equal(
        model.probabilities_[is_noise], model.noise_probabilities_[is_noise]
    )
    assert (model.noise_probabilities_[is_noise] > 0.3).all()
    assert (model.noise_probabilities_[~is_noise] < 0.5).all()
    scores = model.outlier_scores_
    assert roc_auc_score(is_noise, scores) > 0.95
    table = model.describe()
    assert table["n_rows"].groupby("cluster").first().sum() == (~is_noise).sum()
    np.testing.assert_array_equal(model.merge_tree().cut(1), np.where(is_noise, -1, 0))
    other = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(other.predict(X), model.predict(X))
    other.estimate_labels(max_clusters=2, X=X)
    assert set(other.labels_) == {-1, 0, 1}
    assert np.isfinite(model.impute([[np.nan, 12.0]])).all()
    joint = model.score_samples([[12.0, 0.0]]) - model.score_samples([[12.0, np.nan]])
    np.testing.assert_allclose(model.score_samples([[12.0, 0.0]], given=0), joint)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "point_estimate", everyday(["modal", "vi", "binder", "map", "last"], "modal", "last")
)
def test_point_estimates(fitted, point_estimate):
    X, _ = fitted
    model = DPMixture(noise=True, **SHORT).set_params(point_estimate=point_estimate).fit(X)
    found, sizes = np.unique(model.labels_, return_counts=True)
    np.testing.assert_array_equal(found, np.arange(-1, model.n_clusters_))
    assert (np.diff(sizes[1:]) <= 0).all()
    assert model.weights_.shape == (model.n_clusters_,)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_continued_and_parallel_fits_have_the_same_bits(fitted):
    X, model = fitted
    assert_same_fit(clone(model).set_params(n_jobs=2).fit(X), model)
    shorter = clone(model).set_params(n_draws=12, warm_start=True).fit(X)
    shorter = pickle.loads(pickle.dumps(shorter))
    assert_same_fit(shorter.set_params(n_draws=30).fit(X), model)
    with pytest.raises(ValueError, match="noise"):
        shorter.set_params(n_draws=40, noise=None).fit(X)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_all_rows_may_be_noise():
    X = np.random.default_rng(0).uniform(size=(60, 2))
    model = DPMixture(noise=(60.0, 1.0), **SHORT).fit(X)
    assert model.n_clusters_ == 0 and (model.labels_ == -1).all()
    assert model.predict_proba(X).shape == (60, 0)
    assert (model.predict(X) == -1).all() and (model.sample(50)[1] == -1).all()
    assert np.isfinite(model.score_samples(X)).all() and np.isfinite(model.outlier_scores_).all()
    for method in (model.merge_tree, model.describe):
        with pytest.raises(ValueError, match="all rows are noise"):
            method()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_of_any_kind():
    """Constant and dependent columns, counts, categories and missing entries."""
    X, labels = noisy_blobs(2, 200)
    rng = np.random.default_rng(0)
    wide = np.column_stack([X, np.ones(200), 2.0 * X[:, 0] - X[:, 1]])
    model = DPMixture(noise=True, **SHORT).fit(wide)
    assert roc_auc_score(labels < 0, model.noise_probabilities_) > 0.9
    np.testing.assert_allclose(model.sample(20)[0][:, 2], 1.0)
    with pytest.warns(UserWarning, match="the same in all rows"):
        constant = DPMixture(noise=True, **SHORT).fit(np.ones((20, 2)))
    assert (constant.labels_ == 0).all()

    table = pd.DataFrame(X, columns=["x", "y"])
    table["kind"] = pd.Categorical(np.where(labels < 0, rng.integers(4, size=200), labels))
    model = DPMixture(likelihood="mixed", noise=True, **SHORT).fit(table)
    assert roc_auc_score(labels < 0, model.noise_probabilities_) > 0.95
    assert set(model.sample(50)[0]["kind"]) <= set(range(4))

    X[rng.random(X.shape) < 0.1] = np.nan
    model = DPMixture(likelihood=Gaussian(covariance_type="diag"), noise=True, **SHORT).fit(X)
    assert roc_auc_score(labels < 0, model.noise_probabilities_) > 0.85
    assert np.isfinite(model.impute(X)).all()

    model = DPMixture(noise=True, **SHORT).fit(X)  # full covariances
    assert roc_auc_score(labels < 0, model.noise_probabilities_) > 0.85
    assert np.isfinite(model.impute(X)).all()
    assert np.isfinite(model.outlier_scores_).all() and np.isfinite(model.score_samples(X)).all()
    assert len(model.describe()) == 2 * model.n_clusters_


@pytest.mark.parametrize("noise", [np.True_, np.array(True), np.False_, np.array([1.0, 49.0])])
@pytest.mark.some(2)
def test_flags_and_pairs_of_numpy_are_those_of_python(noise):
    X = np.r_[np.zeros(5), np.ones(5), 9.0][:, None] + 0.01 * np.arange(11)[:, None]
    fits = [
        DPMixture(noise=given, **{**SHORT, "n_draws": 3}).fit(X) for given in (noise, noise.any())
    ]
    np.testing.assert_array_equal(fits[0].label_samples_, fits[1].label_samples_)
    assert hasattr(fits[0], "noise_probabilities_") == bool(noise.any())


REFUSED = [
    ({"noise": 3}, "noise must be"),
    ({"noise": (1.0, -1.0)}, r"noise\[1\] must be"),
    ({"sampler": SubCluster.from_paper("SUBC+SUPC")}, "cannot have a noise component"),
    ({"store_labels": False, "point_estimate": "map"}, "store_labels=True"),
    ({"likelihood": NegativeBinomial(), "sampler": "sub_cluster"}, "SubCluster"),
    (
        {"likelihood": Product([("a", NegativeBinomial(), [0, 1])]), "sampler": "sub_cluster"},
        "SubCluster",
    ),
    (
        {"likelihood": Product([("a", "gaussian", [0]), ("b", "gaussian", [1])], select=True)},
        "cannot be selected",
    ),
]


@pytest.mark.parametrize("params, message", REFUSED)
def test_what_cannot_have_noise_is_refused(params, message):
    X = np.arange(20.0).reshape(10, 2)
    with pytest.raises(ValueError, match=message):
        DPMixture(**{"noise": True, **params}).fit(X)


def test_many_rows_have_a_sampler_with_noise():
    X, _ = noisy_blobs(10, 12_000)
    model = DPMixture(noise=True)
    likelihood = model._bound_likelihood(X)
    assert isinstance(model._resolved_sampler(likelihood, X), SubCluster)
    X = da.from_array(X)
    with pytest.raises(ValueError, match="dask array"):
        model.fit(X)


def test_labels_of_noise():
    draws = np.array([[[0, -1, 0, -1], [-1, -1, -1, -1]]], dtype=np.int8)
    np.testing.assert_array_equal(alone(draws), [[[0, 1, 0, 2], [0, 1, 2, 3]]])
    # The third row counts for no component, the last two are all of their cluster.
    labels = np.array([0, 0, 0, -1, 1, 1])
    found = components_of(labels, np.array([0, 0, -1, 0, -1, -1]))
    np.testing.assert_array_equal(found, [0, 0, -1, -1, 1, 1])
    found = components_of(labels, np.array([0, 1, 1, 1, 1, 0]))
    np.testing.assert_array_equal(found, [1, 0, 0, -1, 2, 3])


def test_most_rows_never_become_noise_at_once():
    """Clusters that overlap much: a state of one cluster each is less likely than no cluster."""
    gains, sizes = np.array([5.0, 400.0, 300.0, 900.0]), np.array([2, 40, 30, 90])
    prior = make_prior("dp", 200, concentration=1.0)
    noise = Noise(1.0, 1.0, np.zeros(200))
    given = noise.clusters_for_noise(gains, sizes, 0, prior)
    assert 0 < sizes[given].sum() <= sizes.sum() // 2
    assert len(noise.clusters_for_noise(gains, sizes, 162, prior)) == 0
    assert len(noise.clusters_for_noise(-gains - 1e3, sizes, 0, prior)) == 0
    one = noise.clusters_for_noise(np.array([10.0, -1e4]), np.array([3, 90]), 0, prior)
    assert one.tolist() == [0]
