"""Densities of rows under mixtures: what is passed over changes no bit of them."""

import tracemalloc

import numpy as np
import pytest
from scipy.special import logsumexp
from support.exactness import make_prior, make_state

from skdpm import DPMixture
from skdpm.mixture.answers import predictive as _predictive
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, Poisson
from skdpm.mixture.state import _scoring
from skdpm.mixture.state._scoring import MixtureRows, mixture_rows
from skdpm.mixture.state._tiles import RowTiles

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

N_CLUSTERS = 25
LIKELIHOODS = {
    "full 1": (Gaussian(), 1),
    "full 2": (Gaussian(), 2),
    "full 3": (Gaussian(), 3),
    "full 9": (Gaussian(), 9),
    "diag 2": (Gaussian(covariance_type="diag"), 2),
    "poisson 2": (Poisson(), 2),
}


class Mixture:
    """Clusters of 1 to 200 rows, most of them far apart, weights of all sizes, and new rows: near
    clusters, between them and far from all."""

    def __init__(self, name):
        likelihood, n_features = LIKELIHOODS[name]
        rng = np.random.default_rng(0)
        sizes = np.append([1, 2, 3], rng.integers(20, 200, size=N_CLUSTERS - 3))
        labels = np.repeat(np.arange(N_CLUSTERS), sizes)
        centres = rng.uniform(-200.0, 200.0, size=(N_CLUSTERS, n_features))
        X = centres[labels] + rng.normal(size=(len(labels), n_features))
        counts = name.startswith("poisson")
        X = np.floor(np.abs(X)) if counts else X
        state = make_state(likelihood, X, make_prior("dp", len(X), concentration=1.0), labels)
        self.likelihood, self.stats = likelihood.resolve(X), state.dump()
        self.log_weights = np.append(np.log(sizes / len(X)), -15.0)
        self.log_weights[5:8] -= [30.0, 60.0, np.inf]
        steps = rng.uniform(-0.4, 1.4, size=(100, 1))
        ends = rng.integers(N_CLUSTERS, size=(2, 100))
        between = centres[ends[0]] + steps * (centres[ends[1]] - centres[ends[0]])
        self.X_new = np.concatenate([X[::17], between, rng.normal(size=(20, n_features)) * 3000])
        self.X_new = np.floor(np.abs(self.X_new)) if counts else self.X_new

    def model(self, X_new=None):
        data = self.likelihood.encode_new(self.X_new if X_new is None else X_new)
        model = self.likelihood.bind(data, self.likelihood.tables(data, None))
        model.load(self.stats)
        return model, data

    def rows(self, *tile_size):
        model, data = self.model()
        if not tile_size:
            return MixtureRows(model)
        return MixtureRows(model, RowTiles(self.likelihood.box_points(data), *tile_size))

    def log_densities(self):
        """Of the clusters and an empty one: (n_clusters + 1, n_rows)."""
        model, _ = self.model()
        return model.log_predictive_rows(np.arange(N_CLUSTERS + 1), 0, model.n_samples)


@pytest.fixture(params=LIKELIHOODS)
def mixture(request):
    return Mixture(request.param)


def scores(rows, *all_log_weights):
    tops, totals = np.full(rows.model.n_samples, -np.inf), np.zeros(rows.model.n_samples)
    for log_weights in all_log_weights:
        rows.add_log_densities(log_weights, tops, totals)
    return tops + np.log(totals)


def test_log_densities(mixture):
    log_densities = mixture.log_densities()
    log_weights = mixture.log_weights
    expected = logsumexp(log_densities + log_weights[:, None], axis=0)
    tolerance = {"rtol": 1e-14, "atol": 1e-14}
    np.testing.assert_allclose(scores(mixture.rows(), log_weights), expected, **tolerance)
    # Of several mixtures, the first and last of which are nothing.
    other, nothing = log_weights[::-1] - 3.0, np.full(N_CLUSTERS + 1, -np.inf)
    expected = np.logaddexp(expected, logsumexp(log_densities + other[:, None], axis=0))
    found = scores(mixture.rows(), nothing, log_weights, other, nothing)
    np.testing.assert_allclose(found, expected, **tolerance)
    assert (scores(mixture.rows(), nothing) == -np.inf).all()


def test_small_terms_are_left_out_by_the_rule():
    """A term below 2^-60 / 3 of the largest would break a tie of rounding, were it added."""
    likelihood = Gaussian(covariance_type="diag").resolve(np.arange(6.0).reshape(3, 2))
    data = likelihood.encode_new(np.full((1, 2), np.nan))  # which has the density 1
    model = likelihood.bind(data, likelihood.tables(data, None))
    model.load(np.zeros((2, model.n_stats)))
    # Together with the last, the second is just below half a unit of its last place.
    for smallest, expected in ((-42.6, 1.0 + 2.0**-52), (-42.8, 1.0)):
        top, total = np.full(1, -np.inf), np.zeros(1)
        log_weights = np.array([smallest, -53.0 * np.log(2.0) - 1e-4, 0.0])
        MixtureRows(model).add_log_densities(log_weights, top, total)
        assert (top[0], total[0]) == (0.0, expected)


def test_most_probable_cluster_and_log_probabilities(mixture):
    terms = mixture.log_densities()[:-1] + mixture.log_weights[:-1, None]
    rows = mixture.rows()
    labels = rows.most_probable(mixture.log_weights[:-1])
    np.testing.assert_array_equal(labels, terms.argmax(axis=0))
    assert len(np.unique(labels)) > N_CLUSTERS // 2
    out = np.empty(terms.T.shape)
    rows.fill_log_probabilities(mixture.log_weights[:-1], out)
    np.testing.assert_allclose(out.T, terms - logsumexp(terms, axis=0), rtol=1e-12, atol=1e-12)
    # Also those that weigh nothing in the sum.
    assert out[np.isfinite(out)].min() < -200.0
    # Of equal ones the first.
    same = np.zeros((3, mixture.stats.shape[1])) + mixture.stats[-1]
    rows.model.load(same)
    assert (rows.most_probable(np.zeros(3)) == 0).all()


@pytest.mark.parametrize("tile_size", [1, 2, 3, 32])
def test_clusters_that_are_passed_over_change_no_bit(mixture, tile_size):
    plain, culled = mixture.rows(), mixture.rows(tile_size)
    log_weights, other = mixture.log_weights, mixture.log_weights[::-1]
    np.testing.assert_array_equal(
        scores(culled, log_weights, other), scores(plain, log_weights, other)
    )
    spares = tile_size < 32  # there are few rows
    assert not spares or culled.n_evaluated < 0.7 * plain.n_evaluated
    before = culled.n_evaluated
    np.testing.assert_array_equal(
        culled.most_probable(log_weights), plain.most_probable(log_weights)
    )
    assert not spares or culled.n_evaluated - before < before / 2  # of two mixtures
    probabilities = np.empty((2, plain.model.n_samples, N_CLUSTERS))
    culled.fill_log_probabilities(log_weights[:-1], probabilities[0])
    plain.fill_log_probabilities(log_weights[:-1], probabilities[1])
    np.testing.assert_array_equal(*probabilities)


def test_bounds_that_spare_nothing_are_given_up():
    """All clusters are the same: after 1, 3, 7, ... tiles without bounds one has them."""
    mixture = Mixture("full 2")
    mixture.stats[:] = mixture.stats[-1]
    log_weights = np.zeros(N_CLUSTERS)
    culled, plain = mixture.rows(1), mixture.rows()
    np.testing.assert_array_equal(scores(culled, log_weights), scores(plain, log_weights))
    assert culled.n_evaluated == plain.n_evaluated
    n_tiles = culled.model.n_samples
    tried = np.cumsum(2 ** np.minimum(np.arange(1, n_tiles), 6)) < n_tiles
    assert culled.n_bounded == 1 + tried.sum() < 10


def test_rows_in_tiles_of_other_rows_are_refused():
    mixture = Mixture("full 2")
    model, data = mixture.model()
    for points, size in ((data["X"][1:], 32), (data["X"], 33)):
        with pytest.raises(ValueError, match="tiles are of other rows, or too large"):
            MixtureRows(model, RowTiles(np.ascontiguousarray(points), size))
    with pytest.raises(ValueError, match="weights for"):
        MixtureRows(model).most_probable(np.zeros(N_CLUSTERS + 2))


def test_rows_are_put_into_tiles_where_that_may_pay():
    mixture = Mixture("full 2")
    model, data = mixture.model(np.repeat(mixture.X_new, 4, axis=0))
    few, many = 10, 1000
    for n_clusters, has_tiles in ((few, False), (many, True)):
        rows = mixture_rows(mixture.likelihood, data, model, n_clusters)
        rows.most_probable(mixture.log_weights)
        assert (rows.n_evaluated < model.n_samples * (N_CLUSTERS + 1)) == has_tiles
    model, data = mixture.model(mixture.X_new[:20])
    rows = mixture_rows(mixture.likelihood, data, model, many)
    rows.most_probable(mixture.log_weights)
    assert rows.n_evaluated == 20 * (N_CLUSTERS + 1)


# Estimators.

METHODS = ("predict", "predict_proba", "score_samples")


@pytest.fixture(scope="module", params=["gaussian", "bernoulli"])
def fitted(request):
    """An estimator, and rows that are in tiles where these have bounds."""
    rng = np.random.default_rng(0)
    if request.param == "bernoulli":
        likelihood = Bernoulli()
        X, X_new = rng.integers(2, size=(60, 4)), rng.integers(2, size=(400, 4))
    else:
        likelihood = Gaussian()
        X = rng.normal(size=(150, 2)) + 40.0 * rng.integers(3, size=(150, 2))
        X_new = 3.0 * rng.normal(size=(400, 2)) + 40.0 * rng.integers(-1, 4, size=(400, 2))
    estimator = DPMixture(
        likelihood=likelihood, n_warmup=10, n_draws=12, n_chains=2, random_state=0
    )
    return estimator.fit(X), X_new.astype(float)


@pytest.mark.parametrize("method", METHODS)
def test_threads_blocks_and_tiles_do_not_show(fitted, method, monkeypatch):
    estimator, X_new = fitted
    call = getattr(estimator, method)
    expected = call(X_new)
    for i in (0, 1, 250):
        np.testing.assert_array_equal(call(X_new[i : i + 1])[0], expected[i])
    order = np.random.default_rng(1).permutation(len(X_new))
    np.testing.assert_array_equal(call(X_new[order]), expected[order])
    np.testing.assert_array_equal(call(X_new[order[:130]]), expected[order[:130]])
    monkeypatch.setattr(_scoring, "FEWEST_TILED", 1 << 40)
    np.testing.assert_array_equal(call(X_new), expected)
    monkeypatch.setattr(_scoring, "FEWEST_TILED", 0)
    monkeypatch.setattr(_scoring, "FEWEST_CULLED", 0)
    np.testing.assert_array_equal(call(X_new), expected)
    monkeypatch.setattr(_predictive, "BLOCK_ROWS", 70)
    monkeypatch.setattr(_predictive, "THREAD_EVALUATIONS", 10)
    for n_jobs in (1, 2, 3):
        monkeypatch.setattr(estimator, "n_jobs", n_jobs)
        np.testing.assert_array_equal(call(X_new), expected)


def test_memory_of_many_rows(fitted):
    """What the threads hold does not grow with the rows; what grows is the answer."""
    estimator, X_new = fitted
    X_new = np.repeat(X_new, 1000, axis=0)
    tracemalloc.start()
    try:
        labels = estimator.predict(X_new)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < labels.nbytes + 24e6
