"""Directions: the normalising constant, the density on the sphere, and fits.

Exactness of the samplers is tested with all other likelihoods (test_enumeration.py, test_power.py,
test_parametric.py).
"""

import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import log_marginal_von_mises_fisher
from reference.simulate import simulate_data
from scipy import integrate, stats
from scipy.special import gammaln, ive
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from support.designs import everyday
from support.kernels import bind
from support.probes import Probe
from support.pvalues import assert_p_matrix

from skdpm import DPMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Gaussian, Product, VonMisesFisher
from skdpm.mixture.likelihoods.directions._von_mises_fisher import (
    draw_directions,
    log_hypergeometric,
)

# The normalising constant.

# D, t and log 0F1(; D / 2; t^2 / 4), from 60 digits of mpmath 1.3.
EXACT = [
    (2, 1e-06, 2.4999999999998434e-13),
    (2, 0.01, 2.499984375173609e-05),
    (2, 0.3, 0.022374688622041904),
    (2, 1.0, 0.23591435850717865),
    (2, 3.0, 1.585307621813421),
    (2, 30.0, 27.384701433171937),
    (2, 1000.0, 995.6273088898695),
    (3, 1e-06, 1.666666666666611e-13),
    (3, 0.01, 1.666661111146384e-05),
    (3, 0.3, 0.014955255419671121),
    (3, 1.0, 0.16143936157119562),
    (3, 3.0, 1.2057587014029856),
    (3, 30.0, 25.9056554377779),
    (3, 1000.0, 992.3990975404579),
    (10, 4e-06, 7.999999999999466e-13),
    (10, 0.04, 7.99994666747935e-05),
    (10, 1.2, 0.07157382322622395),
    (10, 4.0, 0.7534957932213027),
    (10, 12.0, 5.171001611266502),
    (10, 120.0, 103.42209656423609),
    (10, 4000.0, 3967.7065116429303),
    (43, 2.05e-05, 4.886627906976214e-12),
    (43, 0.20500000000000002, 0.0004886574843709491),
    (43, 6.1499999999999995, 0.43560201778450663),
    (43, 20.5, 4.46417592498534),
    (43, 61.5, 28.731961214852618),
    (43, 615.0, 536.9467271677199),
    (43, 20500.0, 20348.640476909844),
    (100, 4.9e-05, 1.2004999999998586e-11),
    (100, 0.49, 0.0012004858710206981),
    (100, 14.7, 1.0693105979390765),
    (100, 49.0, 10.902075267022857),
    (100, 147.0, 69.46548549652836),
    (100, 1470.0, 1285.7898582720004),
    (100, 49000.0, 48643.00752849757),
    (384, 0.00019099999999999998, 4.750130208332748e-11),
    (384, 1.9100000000000001, 0.004750071754964441),
    (384, 57.3, 4.229105038767823),
    (384, 191.0, 42.990772767434535),
    (384, 573.0, 272.4331813145864),
    (384, 5730.0, 5016.8789546608605),
    (384, 191000.0, 189618.46091227405),
    (1024, 0.000511, 1.2750048828123414e-10),
    (1024, 5.11, 0.012749890389169127),
    (1024, 153.29999999999998, 11.350372271681767),
    (1024, 511.0, 115.30634169426303),
    (1024, 1533.0, 729.8287686105693),
    (1024, 15330.0, 13424.969763786738),
    (1024, 511000.0, 507309.6260471616),
    (4096, 0.0020469999999999998, 5.115001220702486e-10),
    (4096, 20.47, 0.051149373789092685),
    (4096, 614.1, 45.532738387507536),
    (4096, 2047.0, 462.42246926075194),
    (4096, 6141.0, 2925.32924706103),
    (4096, 61410.0, 53783.806896001464),
    (4096, 2047000.0, 2032227.2198854967),
]


@pytest.mark.parametrize(("n_features", "t", "expected"), EXACT)
def test_the_constant_has_all_digits(n_features, t, expected):
    actual = log_hypergeometric([t], 0.5 * n_features - 1.0)[0]
    assert actual == pytest.approx(expected, rel=2e-15, abs=3e-13)


@pytest.mark.parametrize("n_features", [2, 3, 4, 9, 30, 51, 52, 53, 80, 128, 300])
def test_the_constant_is_that_of_scipy(n_features):
    nu = 0.5 * n_features - 1.0
    t = np.geomspace(1e-3, 1e5, 60) * max(nu, 1.0)
    with np.errstate(divide="ignore"):
        expected = np.log(ive(nu, t)) + t + gammaln(nu + 1.0) + nu * np.log(2.0 / t)
    known = np.isfinite(expected)
    assert known.sum() > 50
    actual = log_hypergeometric(t, nu)
    np.testing.assert_allclose(actual[known], expected[known], rtol=1e-12, atol=1e-12)


def test_the_constant_at_zero_and_far_out():
    for n_features in (2, 3, 100, 4096):
        nu = 0.5 * n_features - 1.0
        values = log_hypergeometric([0.0, 1e-9, 1e12], nu)
        assert np.abs(values[:2]).max() < 1e-15  # rounding of polynomials
        t = 1e12
        expected = t - (nu + 0.5) * np.log(t) + gammaln(nu + 1.0) + nu * np.log(2.0)
        expected -= 0.5 * np.log(2.0 * np.pi)
        assert values[2] == pytest.approx(expected, rel=1e-15)


# The law of rows.


def predictive(X, items, X_new, **params):
    """log p(each new row | the rows `items` of X)."""
    everything = np.vstack([X, X_new])
    likelihood = VonMisesFisher(**params).resolve(everything)
    model = bind(likelihood, likelihood.encode(everything), len(everything))
    probe = Probe(model, 1)
    slot = probe.acquire()
    for i in items:
        probe.add(slot, i)
    return model.log_predictive_rows([slot], len(X), len(everything))[0]


@pytest.mark.parametrize("params", [{}, {"concentration": 30.0, "spread": 1.0}])
@pytest.mark.parametrize("items", [[], [0], [0, 1, 2, 3], [4, 5]])
@pytest.mark.some(2)
def test_densities_integrate_to_one(params, items):
    X = np.array([[3.0, 1.0], [1.0, 1.0], [2.0, 0.1], [0.1, 0.2], [1.0, 0.0], [-1.0, 0.0]])
    angle = np.linspace(0.0, 2.0 * np.pi, 4001)[:-1]
    circle = np.column_stack([np.cos(angle), np.sin(angle)])
    total = np.exp(predictive(X, items, circle, **params)).mean() * 2.0 * np.pi
    assert total == pytest.approx(1.0, rel=1e-9)
    X = np.column_stack([X, X[::-1, 0]])
    nodes, weights = np.polynomial.legendre.leggauss(200)
    angle = angle[::10]
    z, angle = (a.ravel() for a in np.meshgrid(nodes, angle))
    across = np.sqrt(1.0 - z**2)
    sphere = np.column_stack([across * np.cos(angle), across * np.sin(angle), z])
    density = np.exp(predictive(X, items, sphere, **params)).reshape(-1, len(nodes))
    assert (density.mean(axis=0) @ weights) * 2.0 * np.pi == pytest.approx(1.0, rel=1e-9)


@pytest.mark.parametrize("n_features", [2, 7, 60])
@pytest.mark.parametrize("kappa", [1e-3, 5.0, 1e3, 1e7])
@pytest.mark.some(3)
def test_sums_leave_out_nothing(n_features, kappa):
    """Clusters and rows of other concentrations than that at which a sum starts."""
    rng = np.random.default_rng(0)
    means = np.zeros((40, n_features))
    means[:, 0] = 1.0
    tight = draw_directions(means, np.full(40, kappa), rng.bit_generator)
    X = np.vstack([tight, rng.normal(size=(3, n_features)), -tight[:1], tight[:1]])
    params = {"concentration": 50.0, "spread": 9.0}
    likelihood = VonMisesFisher(**params).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), 1)
    slot = probe.acquire()
    constant = likelihood.log_constants(X)[0]
    for i in range(40):
        probe.add(slot, i)
        before = log_marginal_von_mises_fisher(X[: i + 1], **params)
        assert probe.log_marginal(slot) == pytest.approx(
            before - (i + 1) * constant, rel=1e-9, abs=1e-6
        )
        if i in (0, 1, 39):
            for j in range(40, 45):
                items = [*range(i + 1), j]
                expected = log_marginal_von_mises_fisher(X[items], **params) - before
                actual = probe.log_predictive(slot, j)
                assert actual == pytest.approx(expected, rel=1e-7, abs=1e-6)


def test_the_length_of_rows_does_not_matter():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 4)) + 1.0
    scales = np.exp2(rng.integers(-500, 500, size=(10, 1)))
    likelihood = VonMisesFisher().resolve(X)
    np.testing.assert_array_equal(
        likelihood.encode(X)["X"], VonMisesFisher().resolve(X * scales).encode(X * scales)["X"]
    )
    lengths = np.linalg.norm(likelihood.encode(X * 1e-300)["X"], axis=1)
    np.testing.assert_allclose(lengths, 1.0, rtol=1e-15)


def test_draws_of_rows_follow_their_law(seed_sequence):
    """The cosine with the mean direction, and the part across, of `sample` and `SubCluster`."""

    def run(seed, factor, n_features, kappa, part):
        rng = np.random.default_rng(seed)
        mean = np.linspace(-1.0, 2.0, n_features)
        mean /= np.linalg.norm(mean)
        n = round(1000 * factor)
        X = draw_directions(np.tile(mean, (n, 1)), np.full(n, kappa), rng.bit_generator)
        np.testing.assert_allclose(np.linalg.norm(X, axis=1), 1.0)
        along = X @ mean
        if part == "across":
            across = X - along[:, None] * mean
            side = np.linalg.svd(mean[None])[2][-1]
            w = across @ side / np.linalg.norm(across, axis=1)
            a = 0.5 * n_features - 1.0
            return stats.kstest(0.5 + 0.5 * w, stats.beta(a, a).cdf).pvalue
        grid = np.linspace(0.0, min(np.pi, 12.0 * np.sqrt(n_features / kappa)), 20_001)
        density = np.sin(grid) ** (n_features - 2) * np.exp(kappa * (np.cos(grid) - 1.0))
        mass = integrate.cumulative_trapezoid(density, grid, initial=0.0)
        chord = np.linalg.norm(X - mean, axis=1)  # arccos loses digits near 0
        u = np.interp(2.0 * np.arcsin(np.minimum(0.5 * chord, 1.0)), grid, mass / mass[-1])
        return stats.kstest(u, stats.uniform.cdf).pvalue

    assert_p_matrix(
        {
            f"{n_features} {kappa} {part}": lambda seed, factor, args=(n_features, kappa, part): (
                run(seed, factor, *args)
            )
            for n_features in (2, 3, 20)
            for kappa in (0.1, 20.0, 1e6)
            for part in ("along", "across")
            if n_features > 2 or part == "along"
        },
        seed_sequence=seed_sequence,
    )


# Hyperparameters.


def hyper_run(names, priors):
    """Draws of hyperparameters and rows from the model, then steps given the rows: the law stays.
    `priors` are those that the kernel is given."""
    labels = np.repeat(np.arange(4), [6, 3, 2, 1])
    laws = {"concentration": Gamma(2.0, 0.4), "spread": Gamma(3.0, 3.0)}

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        ends = np.empty((round(400 * factor), 2))
        for m in range(len(ends)):
            theta = {name: rng.gamma(law.shape) / law.rate for name, law in laws.items()}
            X = simulate_data("von_mises_fisher", labels, rng, n_features=3, **theta)
            likelihood = VonMisesFisher(**theta).resolve(X)
            probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), 4)
            for k in range(4):
                assert probe.acquire() == k
            for i, k in enumerate(labels):
                probe.add(k, i)
            for _ in range(3):
                ends[m] = probe.model.resample_hyperparameters(
                    np.arange(4), {n: priors.get(n, laws[n]) for n in laws}, rng.bit_generator
                )
        return min(
            stats.kstest(
                ends[:, j], stats.gamma(laws[n].shape, scale=1.0 / laws[n].rate).cdf
            ).pvalue
            for j, n in enumerate(laws)
            if n in names
        )

    return run


@pytest.mark.slow
def test_steps_keep_the_law_of_hyperparameters(seed_sequence):
    runs = {name: hyper_run([name], {}) for name in ("concentration", "spread")}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_wrong_hyperpriors_are_seen(seed_sequence):
    assert hyper_run(["spread"], {"spread": Gamma(2.0, 3.0)})(seed_sequence, 2) < 1e-6


# What users see.


def test_rows_of_zeros_change_no_density():
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, size=(12, 4)) + np.eye(4)[rng.integers(4, size=12)]
    X[[2, 7, 8]] = 0.0
    likelihood = VonMisesFisher(concentration=5.0, spread=1.0).resolve(X)
    for rows in (X, sp.csr_array(X)):
        probe = Probe(bind(likelihood, likelihood.encode(rows), 12), 2)
        slots = [probe.acquire(), probe.acquire()]
        for i in range(8):
            probe.add(slots[i % 2], i)
        expected = [
            log_marginal_von_mises_fisher(X[k:8:2], concentration=5.0, spread=1.0)
            for k in range(2)
        ]
        constants = likelihood.log_constants(rows)
        for k in range(2):
            found = probe.log_marginal(slots[k]) + constants[k:8:2].sum()
            assert found == pytest.approx(expected[k])
        assert probe.log_predictive_many(np.array(slots), 8).tolist() == [0.0, 0.0]
        np.testing.assert_array_equal(constants == 0.0, ~X.any(axis=1))
        np.testing.assert_array_equal(likelihood.background(X).log_density(rows), constants)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("sampler", everyday(["auto", "sub_cluster", "smc"], "sub_cluster"))
def test_empty_documents_pass_in_pipelines(sampler):
    texts = ["red green blue", "cat dog cow"] * 12 + ["green red", "dog cat", "", "", "the"]
    short = {"n_warmup": 20, "n_draws": 10, "n_chains": 1, "random_state": 0}
    mixture = DPMixture(likelihood="von_mises_fisher", sampler=sampler, **short)
    model = make_pipeline(TfidfVectorizer(stop_words="english"), mixture)
    labels = model.fit(texts).predict(["", "blue red green", "nothing", "cow cat dog"])
    assert labels[0] == labels[2] == 0 and labels[1] != labels[3]
    assert (mixture.labels_[-3:] == 0).all() and mixture.labels_[0] != mixture.labels_[1]
    np.testing.assert_allclose(model.score_samples(["", "unseen"]), 0.0, atol=1e-12)


@pytest.mark.parametrize("sampler", ["alternate", "sub_cluster"])
@pytest.mark.long
def test_rows_of_nan_say_nothing(sampler):
    """They are rows of zeros. A direction that lacks some entries is refused."""
    rng = np.random.default_rng(1)
    X, labels, _, _ = directions(rng, 60, n_clusters=3, n_features=3)
    gaps, zeros = X.copy(), X.copy()
    gaps[::7], zeros[::7] = np.nan, 0.0
    fits = [
        DPMixture(
            likelihood="von_mises_fisher",
            sampler=sampler,
            n_chains=2,
            n_warmup=5,
            n_draws=5,
            random_state=0,
        ).fit(rows)
        for rows in (gaps, zeros)
    ]
    for answer in ("labels_", "log_joint_samples_", "probabilities_"):
        np.testing.assert_array_equal(*(getattr(model, answer) for model in fits))
    np.testing.assert_array_equal(fits[0].predict_proba(gaps), fits[1].predict_proba(zeros))
    np.testing.assert_allclose(fits[0].score_samples(gaps[:1]), 0.0, atol=1e-12)
    amounts = 4.0 * labels[:, None] + rng.normal(size=(60, 1))
    table = np.hstack([gaps, amounts])
    amount = Gaussian(covariance_type="diag")
    parts = [("angle", VonMisesFisher(), [0, 1, 2]), ("amount", amount, [3])]
    both = DPMixture(likelihood=Product(parts), sampler=sampler, **FAST).fit(table)
    assert adjusted_rand_score(labels, both.labels_) > 0.9
    table[3, 3] = np.nan
    assert np.isfinite(both.score_samples(table)).all()
    table[5, 0] = np.nan
    with pytest.raises(
        ValueError, match="VonMisesFisher needs all columns: set all of the row to NaN"
    ):
        both.predict(table)


@pytest.mark.long
def test_rows_whose_score_needs_a_law_are_refused():
    X, labels, _, _ = directions(np.random.default_rng(1), 40, n_clusters=2, n_features=3)
    table = np.column_stack([X, labels + 0.1 * X[:, 0]])
    parts = [("angle", VonMisesFisher(), [0, 1, 2]), ("amount", Gaussian(), [3])]
    table[3, 3] = np.nan
    model = DPMixture(likelihood=Product(parts), **FAST).fit(table)
    with pytest.raises(ValueError, match="have no score: the likelihood VonMisesFisher"):
        model.score_samples(table)


def test_nan_and_a_single_column_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(ValueError, match="two columns"):
        DPMixture(likelihood="von_mises_fisher").fit(X[:, :1])
    X[2, 1] = np.nan
    with pytest.raises(ValueError, match="NaN in column 1 of X; VonMisesFisher needs all columns"):
        DPMixture(likelihood="von_mises_fisher").fit(X)
    for name in ("concentration", "spread"):
        with pytest.raises(ValueError, match=f"VonMisesFisher.{name} must be finite and > 0"):
            VonMisesFisher(**{name: 0.0}).resolve(X)


def directions(rng, n_rows, n_clusters=12, n_features=100, low=60.0, high=600.0):
    """Rows of clusters of unequal tightness."""
    means = rng.normal(size=(n_clusters, n_features))
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    kappa = np.geomspace(low, high, n_clusters)
    labels = rng.integers(n_clusters, size=n_rows)
    X = draw_directions(means[labels], kappa[labels], rng.bit_generator)
    return X, labels, means, kappa


FAST = {"n_chains": 2, "n_warmup": 60, "n_draws": 40, "random_state": 0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler, sparse",
    everyday(
        [(name, sparse) for name in ("auto", "sub_cluster", "smc") for sparse in (False, True)],
        *(("auto", False), ("sub_cluster", True)),
        n_values=2,
    ),
)
def test_fits_find_directions(sampler, sparse):
    rng = np.random.default_rng(1)
    X, labels, means, kappa = directions(rng, 400, 5, 40, 60.0, 400.0)
    if sparse:
        X[np.abs(X) < 0.05] = 0.0
    lengths = rng.exponential(size=(400, 1))
    rows = sp.csr_array(X * lengths) if sparse else X * lengths
    model = DPMixture(likelihood=VonMisesFisher(), sampler=sampler, **FAST).fit(rows)
    assert adjusted_rand_score(labels, model.labels_) > 0.97
    np.testing.assert_array_equal(model.predict(rows), model.labels_)
    params = model.cluster_params_
    np.testing.assert_allclose(np.linalg.norm(params["mean_directions"], axis=1), 1.0)
    for k, direction in enumerate(params["mean_directions"]):
        nearest = (means @ direction).argmax()
        assert means[nearest] @ direction > 0.95
        if np.count_nonzero(model.labels_ == k) > 20 and not sparse:
            assert params["concentrations"][k] == pytest.approx(kappa[nearest], rel=0.3)
    drawn, _ = model.sample(2000)
    np.testing.assert_allclose(np.linalg.norm(drawn, axis=1), 1.0)
    if not sparse:
        gap = np.mean(drawn, axis=0) - X.mean(axis=0)
        assert np.linalg.norm(gap) < 0.1


@pytest.mark.parametrize("n_features", [2, 64, 150])
def test_densities_of_many_columns_are_those_of_the_formula(n_features):
    """Kernels take columns and rows in blocks, of which the last may be smaller."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(70, n_features))
    params = 10.0 * rng.normal(size=(3, 1 + n_features))
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    np.testing.assert_allclose(
        VonMisesFisher(concentration=50.0, spread=1.0).parametric(X).log_densities(params),
        params[:, :1] + params[:, 1:] @ rows.T,
        rtol=1e-11,
        atol=1e-11,
    )


@pytest.mark.slow
def test_rows_in_all_directions_are_noise():
    rng = np.random.default_rng(0)
    X, labels, *_ = directions(rng, 300, 3, 20, 200.0, 400.0)
    X = np.vstack([X, rng.normal(size=(60, 20))])
    likelihood = VonMisesFisher(concentration=250.0, spread=1.0)
    model = DPMixture(likelihood=likelihood, noise=True, **FAST).fit(X)
    assert adjusted_rand_score(labels, model.labels_[:300]) > 0.97
    assert np.mean(model.labels_[300:] == -1) > 0.9
    assert np.mean(model.labels_[:300] == -1) < 0.05


@pytest.mark.slow
def test_clusters_of_unequal_tightness_in_many_columns():
    X, labels, *_ = directions(np.random.default_rng(1), 1000)
    model = DPMixture(likelihood=VonMisesFisher(), random_state=0).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.97
    assert model.diagnostics_["coclustering"]["r_hat"] < 1.1
