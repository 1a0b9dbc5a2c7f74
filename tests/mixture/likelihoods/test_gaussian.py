"""The Gaussian likelihoods: numerics, with exact references where doubles run out of digits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import likelihoods as reference
from scipy.integrate import quad
from scipy.special import multigammaln
from support.kernels import bind
from support.laws import Case, assert_equal, fill, log_reference, numbers_of, seeds
from support.probes import Probe

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian


def log_determinant(matrix):
    """log |A| of a matrix of fractions, by elimination without rounding."""
    matrix = [list(row) for row in matrix]
    total = 0.0
    for j, row in enumerate(matrix):
        total += math.log(row[j].numerator) - math.log(row[j].denominator)
        for other in matrix[j + 1 :]:
            ratio = other[j] / row[j]
            for k in range(j, len(row)):
                other[k] -= ratio * row[k]
    return total


def exact_log_marginal(likelihood, X):
    """Murphy (2007), eq. 266, its matrices in fractions; prior mean 0 and scale s times 1."""
    n, D = X.shape
    nu, r, s = likelihood.df, likelihood.mean_precision, likelihood.scale[0]
    x = [[Fraction(value) for value in row] for row in X.tolist()]
    rho = Fraction(r) + n
    sums = [sum(row[d] for row in x) for d in range(D)]
    posterior = [
        [
            sum(row[d] * row[e] for row in x) - sums[d] * sums[e] / rho + Fraction(s) * (d == e)
            for e in range(D)
        ]
        for d in range(D)
    ]
    return (
        0.5 * nu * D * math.log(s)
        - 0.5 * (nu + n) * log_determinant(posterior)
        + 0.5 * D * (math.log(r) - math.log(r + n) - n * math.log(math.pi))
        + multigammaln(0.5 * (nu + n), D)
        - multigammaln(0.5 * nu, D)
    )


def filled(probe, items):
    slot = probe.acquire()
    for i in items:
        probe.add(slot, i)
    return slot


@pytest.mark.parametrize("n_features", [1, 2, 3, 9])
@pytest.mark.parametrize("scale", [1e-4, 1e-6, 1e-8, 1e-9, 1e-12])
@pytest.mark.some(5)
def test_clusters_far_from_the_prior_mean_on_their_own_scale(scale, n_features):
    """1e5 apart and 1e-3 wide: by one row at a time, anew from statistics, and merged."""
    rng = np.random.default_rng(0)
    X = rng.choice([-0.5e5, 0.5e5], size=(2, n_features)).repeat(8, axis=0)
    X[8:] = -X[:8]
    X += 1e-3 * rng.normal(size=X.shape)
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=n_features + 2.0, scale=scale)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 16), 8)
    exact = {}

    def log_p(items):
        key = tuple(sorted(items))
        if key not in exact:
            exact[key] = exact_log_marginal(likelihood, X[list(key)])
        return exact[key]

    def check(slot, items, others):
        # The digits of log |S_n| that the rows themselves have: 1e-16 of 1e5 in 1e-3.
        assert probe.log_marginal(slot) == pytest.approx(log_p(items), abs=1e-6)
        for i in others:
            expected = log_p([*items, i]) - log_p(items)
            assert probe.log_predictive(slot, i) == pytest.approx(expected, abs=1e-5)

    one, part, other = range(7), range(4), range(8, 15)
    added = filled(probe, one)
    check(added, one, [7, 15])
    probe.refresh(added)
    check(added, one, [7, 15])
    merged = filled(probe, part)
    probe.merge(merged, filled(probe, range(4, 7)))
    check(merged, one, [7, 15])
    stats = probe.model.dump([added])
    # Both clusters as one: from their statistics and by one row at a time.
    far = filled(probe, [*one, *other])
    check(far, [*one, *other], [7, 15])
    probe.merge(added, filled(probe, other))
    check(added, [*one, *other], [7, 15])
    # Reloaded, their scatter is all that is left, and it has no more digits: no NaN.
    probe.refresh(far)
    assert math.isfinite(probe.log_marginal(far))
    assert math.isfinite(probe.log_predictive(far, 7))
    probe.model.load(stats)
    check(0, one, [7, 15])
    clusters = np.arange(len(stats)).repeat(5)
    assert np.isfinite(likelihood.draw_rows(stats, clusters, X.shape[1], rng)).all()
    drawn = likelihood.parametric(X).draw(
        stats.repeat(5, axis=0), np.array([0.0, 0.5, 1.0, 1.0, 1.0]), np.random.PCG64(0)
    )
    assert np.isfinite(drawn).all()


@pytest.mark.parametrize("sampler", ["gibbs", "pgsm", "sams", "split_merge", "sub_cluster"])
@pytest.mark.some(2)
def test_samplers_run_where_clusters_are_far_on_their_own_scale(sampler):
    means = np.repeat([[-5e4, -5e4], [5e4, 5e4], [5e4, -5e4]], 10, axis=0)
    X = means + 1e-3 * np.random.default_rng(0).normal(size=means.shape)
    mixture = DPMixture(
        likelihood=Gaussian(mean=0.0, scale=1e-6),
        sampler=sampler,
        n_warmup=20,
        n_draws=20,
        n_chains=1,
        random_state=0,
    ).fit(X)
    assert np.isfinite(mixture.log_joint_samples_).all()
    assert np.isfinite(mixture.score_samples(X)).all()
    if sampler != "gibbs":  # which moves no cluster at once, and stays where it starts
        assert mixture.n_clusters_ > 1


@pytest.mark.parametrize("n_features", [1, 2, 3])
@pytest.mark.parametrize("entry", [1e100, -1e140, 1e152])
@pytest.mark.parametrize("scale", [1.0, 1e-6])
def test_an_entry_whose_square_overflows_on_the_scale(scale, entry, n_features):
    """A single enormous entry in one column of a row or in all of them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, n_features))
    X[4, 0] = entry
    X[5] = entry * (1.0 + np.arange(n_features) / 8)
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=n_features + 2.0, scale=scale)
    likelihood = likelihood.resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 6), 3)
    for far in (4, 5):
        slot = filled(probe, [0, 1, 2, far])
        expected = exact_log_marginal(likelihood, X[[0, 1, 2, far]])
        assert probe.log_marginal(slot) == pytest.approx(expected, rel=1e-9)
        alone = probe.log_predictive(slot, 3)
        assert math.isfinite(alone)
        if n_features == 1:  # else the posterior mean has no digits left in the other directions
            after = exact_log_marginal(likelihood, X[[0, 1, 2, far, 3]])
            assert alone == pytest.approx(after - expected, abs=1e-6)
        probe.refresh(slot)
        assert math.isfinite(probe.log_marginal(slot))
        probe.release(slot)


def test_a_drawn_precision_that_is_singular_is_named():
    likelihood = Gaussian().keeping_columns().resolve(np.arange(8.0).reshape(4, 2))
    params = np.ones((2, 6))
    params[:, 3:] = 0.0
    with pytest.raises(FloatingPointError, match="precision matrix is singular"):
        likelihood.divergences(params)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied", "spherical"])
@pytest.mark.parametrize("n_items", [0, 1, 2, 5])
@pytest.mark.some(4)
def test_gaussian_predictive_integrates_to_one(covariance_type, n_items):
    X = np.array([[0.3], [1.7], [-4.0], [2.0], [2.1]])
    likelihood = Gaussian(
        mean=0.5, mean_precision=0.4, df=2.5, scale=1.3, covariance_type=covariance_type
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 5), 2)
    rows = probe.model.dump([fill(probe, range(n_items))])

    def density(u):
        x = np.array([[np.tan(u)]])  # the whole line, with the Jacobian 1 + x^2
        new = Probe(bind(likelihood, likelihood.encode_new(x), 5), 2)
        new.model.load(rows)
        return np.exp(new.log_predictive(0, 0)) * (1 + x[0, 0] ** 2)

    total, _ = quad(density, -np.pi / 2, np.pi / 2, epsabs=1e-10, limit=200)
    assert total == pytest.approx(1.0, abs=1e-8)


def test_cluster_params_gaussian_diag():
    X = np.array([[1.0, np.nan], [2.0, 4.0], [6.0, np.nan]])
    likelihood = Gaussian(
        mean=0.5, mean_precision=0.5, df=1.0, scale=[1.0, 2.0], covariance_type="diag"
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 3), 2)
    params = likelihood.cluster_params(probe.model.dump([fill(probe, [0, 1, 2])]))
    # Column 0: three entries, df 4, mean of the variance; column 1: df 2, its mode.
    scale_0 = 1.0 + 14.0 + 0.5 * 3 / 3.5 * 2.5**2
    scale_1 = 2.0 + 0.5 / 1.5 * 3.5**2
    assert_equal(params["means"], [[(0.5 * 0.5 + 9.0) / 3.5, (0.5 * 0.5 + 4.0) / 1.5]])
    assert_equal(params["covariances"], [[scale_0 / 2.0, scale_1 / 4.0]])


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied", "spherical"])
@pytest.mark.parametrize("scale", [1.0, 1e-6, 1e6])
@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_gaussian_shift_and_scale(covariance_type, scale, shift):
    """With default hyperparameters densities change by the Jacobian alone."""
    rng = np.random.default_rng(0)
    # Multiples of 2**-10: the shift rounds nothing.
    X = np.round(rng.normal(size=(12, 3)) * [1.0, 3.0, 0.5] * 1024) / 1024
    if covariance_type == "diag":
        X[rng.random(X.shape) < 0.2] = np.nan
    items = [0, 2, 3, 7, 8, 11]

    def log_marginal(X):
        case = Case(Gaussian(covariance_type=covariance_type), X)
        probe = case.probe()
        return probe.log_marginal(fill(probe, items))

    jacobian = np.log(scale) * np.count_nonzero(~np.isnan(X[items]))
    actual = log_marginal(scale * (X + shift))
    # Scaling by 1e-6 rounds the shifted data themselves.
    atol = 1e-9 if scale == 1.0 or shift == 0.0 else 1e-7
    assert_equal(actual, log_marginal(X) - jacobian, atol=atol)


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied", "spherical"])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((4, 2)),
        np.full((4, 2), 1e6),
        np.array([[1.0, 5.0], [2.0, 5.0], [4.0, 5.0], [2.0, 5.0]]),
        np.array([[3.0, -1.0]]),
        np.arange(12.0).reshape(3, 4) ** 2,
        np.array([[1.0], [2.0], [2.0]]),
        np.array([[1e-145], [2e-145], [0.0]]),
        np.array([[1e140], [-1e140], [0.0]]),
    ],
    ids=["zeros", "constant", "constant column", "n=1", "D>n", "D=1", "tiny", "huge"],
)
def test_gaussian_defaults_on_degenerate_data(covariance_type, X):
    case = Case(Gaussian(covariance_type=covariance_type), X)
    probe = case.probe()
    slot = probe.acquire()
    total = 0.0
    for i in range(case.n):
        total += probe.log_predictive(slot, i)
        probe.add(slot, i)
    assert np.isfinite(total)
    assert_equal(probe.log_marginal(slot), total, rtol=1e-8, atol=1e-7)
    for i in range(case.n):
        probe.remove(slot, i)
    assert probe.log_marginal(slot) == 0.0


@pytest.mark.parametrize("covariance_type", ["full", "diag", "tied", "spherical"])
@pytest.mark.parametrize("value", [1e20, 1e150, 1e200, -1e300, 1.7e308])
@pytest.mark.parametrize("n_features", [1, 3, 40])
@pytest.mark.some(15)
def test_gaussian_rows_far_away(covariance_type, value, n_features):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, n_features))
    case = Case(Gaussian(covariance_type=covariance_type), X)
    probe = case.probe()
    rows = probe.model.dump([fill(probe, np.arange(50))])
    new = X[:3].copy()
    new[0, 0] = value
    new[1] = value
    model = bind(case.likelihood, case.likelihood.encode_new(new), case.n)
    model.load(rows)
    log_density = model.log_predictive_rows([0, 1], 0, 3)
    assert np.isfinite(log_density).all()
    # Where a Student t has its tail, the density falls by a power of the distance.
    model = bind(case.likelihood, case.likelihood.encode_new(new / 16.0), case.n)
    model.load(rows)
    near = model.log_predictive_rows([0, 1], 0, 3)
    df = case.likelihood.df + np.array([50, 0])
    if covariance_type == "diag":
        power = np.outer(df + 1.0, [1.0, n_features])
    else:
        power = np.outer(df + 1.0, [1.0, 1.0])
    if covariance_type == "tied":  # normal, and from 1e150 on as far as possible
        assert (near[:, :2] >= log_density[:, :2]).all()
        return
    if n_features == 1:
        expected = power * np.log(16.0)
        assert_equal(near[:, :2] - log_density[:, :2], expected, rtol=1e-9)
    assert (near[:, :2] > log_density[:, :2]).all()


def test_gaussian_diag_outliers_leave_no_trace():
    """An outlier that leaves takes the digits with it; the labels bring them back."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 3))
    X[10] = 1e12
    X[20, 1] = -1e9
    likelihood = Gaussian(
        mean=0.0, mean_precision=0.1, df=4.0, scale=1.0, covariance_type="diag"
    ).resolve(X)
    model = bind(likelihood, likelihood.encode(X), 30)
    probe = Probe(model, 4)
    labels = np.zeros(30, dtype=np.intp)
    model.bind_labels(labels)
    slot = fill(probe, np.arange(30))
    assert slot == 0
    for i in (10, 20, 3):
        labels[i] = -1
        probe.remove(slot, i)
    expected = reference.log_marginal_gaussian(X[labels == 0], **numbers_of(likelihood))
    assert_equal(probe.log_marginal(slot), expected)


def test_gaussian_diag_removals_never_leave_a_negative_scatter():
    X = np.array([[1e8], [1.0], [1.0]])
    likelihood = Gaussian(
        mean=0.0, mean_precision=1e-9, df=4.0, scale=1e-12, covariance_type="diag"
    ).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 3), 2)
    slot = fill(probe, [1, 0, 2])
    probe.remove(slot, 0)
    assert probe.model.dump([slot])[0, 3] >= 0.0
    assert np.isfinite(probe.log_marginal(slot))
    assert np.isfinite(probe.log_predictive(slot, 0))


@pytest.mark.slow
@given(seed=seeds, n_features=st.integers(1, 70), log_scale=st.integers(-60, 60))
@settings(max_examples=25)
def test_gaussian_diag_many_columns(seed, n_features, log_scale):
    """Products of many factors neither overflow nor lose a column, with NaN or without."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(8, n_features)) * np.exp(log_scale * rng.random(n_features))
    X[4:] *= rng.choice([1e-4, 1.0, 1e4, 1e8], size=(4, 1))
    Y = X.copy()
    Y[rng.random(X.shape) < rng.choice([0.05, 0.4])] = np.nan
    Y[:2] = X[:2]
    for data in (X, Y):
        case = Case(Gaussian(mean=0.1, scale=0.7, covariance_type="diag"), data)
        probe = case.probe()
        slot = fill(probe, [0, 1, 2, 3])
        before = log_reference(case, [0, 1, 2, 3])
        assert_equal(probe.log_marginal(slot), before)
        for i in range(4, 8):
            expected = log_reference(case, [0, 1, 2, 3, i]) - before
            assert_equal(probe.log_predictive(slot, i), expected, rtol=1e-9)
