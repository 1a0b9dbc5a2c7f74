"""Scores and predictions of new rows against differences of enumerated joint densities, and the
properties that make them usable: row by row, no random numbers, little memory."""

import itertools
import tracemalloc
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from reference.predictive import log_densities, log_predictive, log_weights
from scipy.special import betaln, logsumexp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from support.cases import (
    FAST,
    NAMES,
    PRIORS,
    fit_case,
    make_estimator,
    prior_name,
    prior_params,
    reference_scores,
)
from support.designs import combinations, everyday
from support.pvalues import Cells, assert_p

from skdpm import DPMixture
from skdpm.mixture.answers import predictive as _predictive
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Gaussian, Relational

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

METHODS = ("predict", "predict_proba", "score_samples")


@combinations(name=NAMES, prior=PRIORS)
@pytest.mark.long
def test_score_samples(name, prior):
    case = fit_case(name, n_samples=12)
    # Of 12 iterations every third is kept, from the start, so that draws differ.
    params = {"resampled": prior != "pitman_yor_negative", "n_warmup": 0, "thin": 3, "n_draws": 4}
    estimator = make_estimator(case.likelihood, prior, **params).fit(case.X)
    scores = estimator.score_samples(case.X_new)
    expected = reference_scores(estimator, case, name, case.X_new)
    np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
    # The mean of densities is not the mean of their logarithms, nor the density of one draw.
    one = reference_scores(estimator, case, name, case.X_new, slice(-1, None))
    assert not np.allclose(scores, one, rtol=1e-6, atol=1e-6)


@combinations(name=NAMES, prior=PRIORS)
def test_predict_proba(name, prior):
    case = fit_case(name, n_samples=12)
    resampled = prior != "pitman_yor_negative"
    estimator = make_estimator(case.likelihood, prior, resampled=resampled)
    estimator.set_params(point_estimate="vi").fit(case.X)
    mean = estimator.concentration_samples_.mean()
    terms = log_densities(case.X, estimator.labels_, case.X_new, name, case.params) + log_weights(
        estimator.labels_, prior_name(estimator), prior_params(estimator, mean)
    )
    expected = np.exp(terms - logsumexp(terms, axis=1, keepdims=True))
    probabilities = estimator.predict_proba(case.X_new, new_cluster=True)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)
    terms = terms[:, :-1]  # without the new cluster
    expected = np.exp(terms - logsumexp(terms, axis=1, keepdims=True))
    probabilities = estimator.predict_proba(case.X_new)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)
    # Clusters with equal rows are equally probable.
    predicted = estimator.predict(case.X_new)
    chosen = expected[np.arange(len(predicted)), predicted]
    np.testing.assert_allclose(chosen, expected.max(axis=1), rtol=1e-12)


# Which draws are scored.


@pytest.mark.parametrize(
    ("n_chains", "n_draws", "stride"),
    everyday(
        [(1, 100, 1), (1, 101, 2), (1, 200, 2), (1, 201, 4), (3, 33, 1), (3, 34, 2), (4, 60, 4)],
        (3, 34, 2),
        n_values=3,
    ),
)
@pytest.mark.parametrize("store_labels", [True, False])
@pytest.mark.long
def test_scored_draws_are_evenly_spaced(n_chains, n_draws, stride, store_labels):
    case = fit_case("bernoulli", n_samples=8)
    params = {"n_chains": n_chains, "n_draws": n_draws, "point_estimate": "last"}
    estimator = make_estimator(case.likelihood, resampled=True, **params).fit(case.X)
    every = slice(None, None, stride)
    assert estimator.label_samples_[:, every].shape[:2] != (0, 0)
    assert n_chains * len(range(n_draws)[every]) <= 100
    expected = reference_scores(estimator, case, "bernoulli", case.X_new, every)
    other = clone(estimator).set_params(store_labels=store_labels).fit(case.X)
    np.testing.assert_allclose(other.score_samples(case.X_new), expected, rtol=1e-10)


@pytest.mark.slow
def test_more_chains_than_scored_draws():
    case = fit_case("bernoulli", n_samples=5)
    estimator = make_estimator(case.likelihood, n_chains=120, n_draws=3, resampled=True)
    estimator.fit(case.X)
    firsts = np.array([chain[0] for chain in estimator.label_samples_[:100]]).astype(int)
    expected = [
        log_predictive(
            case.X,
            z,
            case.X_new,
            "bernoulli",
            "dp",
            likelihood_params=case.params,
            prior_params={"concentration": a},
        )
        for z, a in zip(firsts, estimator.concentration_samples_[:100, 0], strict=True)
    ]
    expected = logsumexp(expected, axis=0) - np.log(100)
    np.testing.assert_allclose(estimator.score_samples(case.X_new), expected, rtol=1e-10)


# Row by row, without random numbers.


@pytest.fixture(
    scope="module", params=everyday(NAMES, "gaussian", "multinomial", "poisson", "relational")
)
def fitted(request):
    case = fit_case(request.param, n_new=23)
    estimator = make_estimator(case.likelihood, resampled=True, n_draws=30, n_warmup=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        estimator.fit(case.X)
    return estimator, case.X_new


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.long
def test_rows_do_not_depend_on_each_other(fitted, method):
    estimator, X_new = fitted
    together = getattr(estimator, method)(X_new)
    for i in range(len(X_new)):
        np.testing.assert_array_equal(getattr(estimator, method)(X_new[i : i + 1])[0], together[i])
    order = np.random.default_rng(0).permutation(len(X_new))
    np.testing.assert_array_equal(getattr(estimator, method)(X_new[order]), together[order])
    some = order[:7]
    np.testing.assert_array_equal(getattr(estimator, method)(X_new[some]), together[some])
    twice = np.concatenate([X_new, X_new])
    np.testing.assert_array_equal(
        getattr(estimator, method)(twice), np.concatenate([together, together])
    )


@pytest.mark.parametrize("method", METHODS)
def test_blocks_of_rows_do_not_show(fitted, method, monkeypatch):
    estimator, X_new = fitted
    together = getattr(estimator, method)(X_new)
    for entries in (1, 60):
        monkeypatch.setattr(_predictive, "BLOCK_ENTRIES", entries)
        np.testing.assert_array_equal(getattr(estimator, method)(X_new), together)


@pytest.mark.parametrize(
    "random_state",
    everyday(
        [None, np.random.RandomState(0), np.random.default_rng(0)],
        None,
    ),
)
@pytest.mark.long
def test_nothing_is_drawn(fitted, random_state):
    estimator, X_new = fitted
    estimator = clone(estimator).set_params(random_state=random_state).fit(fit_of(estimator))
    before = joblib.hash((np.random.get_state(), estimator.random_state, vars(estimator)))
    for method in (*METHODS, "score"):
        first = getattr(estimator, method)(X_new)
        np.testing.assert_array_equal(getattr(estimator, method)(X_new), first)
    after = joblib.hash((np.random.get_state(), estimator.random_state, vars(estimator)))
    assert after == before


def fit_of(estimator):
    """The rows that a `fitted` estimator has seen."""
    for name in NAMES:
        case = fit_case(name, n_new=23)
        if repr(case.likelihood) == repr(estimator.likelihood):
            return case.X
    raise LookupError


def test_score_is_the_mean(fitted):
    estimator, X_new = fitted
    assert estimator.score(X_new) == estimator.score_samples(X_new).mean()


@pytest.mark.slow
def test_memory_of_scoring():
    rng = np.random.default_rng(0)
    estimator = DPMixture(
        likelihood="bernoulli",
        concentration=5.0,
        n_warmup=0,
        n_draws=100,
        n_chains=1,
        random_state=0,
    ).fit(rng.integers(0, 2, size=(40, 3)))
    clusters = len(estimator.draws_.scored.stats)
    assert clusters > 100
    X_new = rng.integers(0, 2, size=(50_000, 3)).astype(float)
    tracemalloc.start()
    try:
        scores = estimator.score_samples(X_new)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.isfinite(scores).all()
    # Draws x rows would be 40 MB, clusters x rows more; blocks take 8 MiB and its logarithms.
    assert peak < 20e6


def test_stored_clusters_do_not_grow_with_draws_that_repeat():
    """Draws that share a cluster share its statistics."""
    X = np.repeat(np.eye(2), 20, axis=0) * 100
    estimator = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=1e-6, df=10.0, scale=1.0),
        concentration=1e-3,
        init=np.repeat([0, 1], 20),
        n_warmup=20,
        n_draws=100,
        n_chains=1,
        random_state=0,
    ).fit(X)
    assert (estimator.n_components_samples_ == 2).all()
    assert len(estimator.draws_.scored.stats) == 2


@pytest.mark.parametrize("known", [False, True])
def test_equal_clusters_of_a_draw_count_twice(known):
    """A draw may have two clusters with the same statistics, of rows that are equal. Densities of
    all rows then still sum to 1."""
    X = np.repeat(np.eye(4), 3, axis=0)
    settings = {"n_chains": 1, "n_warmup": 10, "n_draws": 12, "random_state": 0}
    model = DPMixture(
        likelihood=Bernoulli(0.3, 0.3), concentration=8.0, sampler="sub_cluster", **settings
    )
    classes = np.where(np.arange(12) < 3, 0, -1) if known else None
    model.fit(X, known_labels=classes)
    draws = model._predictor.scored.draws
    assert any(len(set(draw["clusters"])) < len(draw["clusters"]) for draw in draws)
    rows = np.array(list(itertools.product([0.0, 1.0], repeat=4)))
    assert np.exp(model.score_samples(rows)).sum() == pytest.approx(1.0)
    np.testing.assert_allclose(model.predict_proba(rows).sum(axis=1), 1.0)


def test_a_new_cluster_far_away():
    """Far from all data the density is that of a new cluster: its weight counts."""
    X = np.random.default_rng(0).normal(size=(20, 1))
    likelihood = Gaussian(mean=0.0, mean_precision=1e-4, df=50.0, scale=50.0)
    scores = [
        DPMixture(likelihood=likelihood, concentration=a, **FAST).fit(X).score([[60.0]])
        for a in (1e-3, 1e-1)
    ]
    # 20 rows: the weight is a / (a + 20).
    assert scores[1] - scores[0] == pytest.approx(np.log(100 * 20.001 / 20.1), rel=1e-3)


# Draws from the predictive.


def _fit_for_sampling(likelihood, X):
    return DPMixture(
        likelihood=likelihood, n_warmup=20, n_draws=10, n_chains=2, random_state=0
    ).fit(X)


def _draw(estimator, n, seed):
    estimator.random_state = int(seed.generate_state(1)[0])
    return estimator.sample(n)


# With few rows and degrees of freedom the tails are heavy, and errors in them large.
CONTINUOUS = [Gaussian(), Gaussian(mean=1.0, mean_precision=0.2, df=1.5, scale=2.0)]
CONTINUOUS += [
    Gaussian(covariance_type="diag"),
    Gaussian(mean=1.0, mean_precision=0.2, df=1.5, scale=2.0, covariance_type="diag"),
]


@pytest.mark.parametrize("n_rows", everyday([2, 20], 20))
@pytest.mark.parametrize("likelihood", CONTINUOUS)
@pytest.mark.long
def test_sampled_rows_follow_the_score_in_one_dimension(likelihood, n_rows, seed_sequence):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 1))
    X[n_rows // 2 :] += 4
    estimator = _fit_for_sampling(likelihood, X)
    # Quantiles of exp(score_samples) by quadrature; the tails together are a cell of their own.
    grid = np.sinh(np.linspace(-9.0, 9.0, 20_001))
    density = np.exp(estimator.score_samples(grid[:, None]))
    mass = np.append(0, np.cumsum((density[1:] + density[:-1]) / 2 * np.diff(grid)))
    assert 0.98 < mass[-1] < 1 + 1e-6
    edges = np.interp(np.linspace(0.01, 0.97, 25) * mass[-1], mass, grid)
    inner = np.diff(np.interp(edges, grid, mass))
    probabilities = np.append(inner, 1 - inner.sum())

    def run(seed, factor):
        X, labels = _draw(estimator, round(20_000 * factor), seed)
        assert labels.min() >= 0 and labels.max() < estimator.n_clusters_
        cell = np.searchsorted(edges, X[:, 0])
        counts = np.bincount(cell, minlength=len(edges) + 1)
        return Cells(np.append(counts[1:-1], counts[0] + counts[-1]), probabilities)

    assert_p(run, seed_sequence=seed_sequence)


def test_sampled_rows_follow_the_score_in_two_dimensions(seed_sequence):
    """The correlation as well: cells of a rotated plane."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(25, 2)) @ [[1.0, 0.9], [0.0, 0.4]]
    estimator = _fit_for_sampling(Gaussian(), X)
    axis = np.linspace(-12, 12, 241)
    at = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    density = np.exp(estimator.score_samples(at)) * 0.1**2
    assert 0.95 < density.sum() < 1.001
    directions = np.array([[1.0, -1.0], [1.0, 1.0]])

    def cell(rows):
        u, v = (rows @ directions.T).T
        inside = (np.abs(rows) < 12.05).all(axis=1)
        cells = np.digitize(u, [-1.03, -0.43, 0.17, 0.83]) * 4 + np.digitize(
            v, [-2.03, 0.07, 2.03]
        )
        return np.where(inside, cells, 20)

    probabilities = np.bincount(cell(at), density, minlength=21)
    probabilities[20] = 1 - probabilities.sum()

    def run(seed, factor):
        rows, _ = _draw(estimator, round(2000 * factor), seed)
        return Cells(np.bincount(cell(rows), minlength=21), probabilities)

    assert_p(run, seed_sequence=seed_sequence)


DISCRETE = {
    "bernoulli": (Bernoulli(a=0.7, b=1.2), (2, 2, 2)),
    "categorical": (Categorical(concentration=0.6, n_categories=[3, 2]), (3, 2)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_sampled_rows_and_labels_follow_their_joint_law(name, seed_sequence):
    likelihood, levels = DISCRETE[name]
    X = np.random.default_rng(1).integers(0, levels, size=(15, len(levels)))
    estimator = _fit_for_sampling(likelihood, X).set_params(point_estimate="last")
    estimator.set_params(init=np.arange(15) % 3, n_warmup=0, n_draws=3, concentration=3.0).fit(X)
    K = estimator.n_clusters_
    assert K > 1
    support = np.indices(levels).reshape(len(levels), -1).T
    density = np.exp(estimator.score_samples(support))
    assert density.sum() == pytest.approx(1, abs=1e-12)
    joint = density[:, None] * estimator.predict_proba(support)

    def run(seed, factor):
        rows, labels = _draw(estimator, round(20_000 * factor), seed)
        at = np.ravel_multi_index(rows.astype(int).T, levels)
        return Cells(np.bincount(at * K + labels, minlength=joint.size), joint / joint.sum())

    assert_p(run, seed_sequence=seed_sequence)


def test_sampled_counts_follow_the_score(seed_sequence):
    X = np.random.default_rng(1).poisson([3] * 10 + [12] * 10)[:, None]
    estimator = _fit_for_sampling("poisson", X)
    density = np.exp(estimator.score_samples(np.arange(400)[:, None]))
    assert density.sum() == pytest.approx(1, abs=1e-6)
    density[-1] += 1 - density.sum()

    def run(seed, factor):
        rows, _ = _draw(estimator, round(20_000 * factor), seed)
        counts = np.bincount(np.minimum(rows[:, 0], 399).astype(int), minlength=400)
        return Cells(counts, np.abs(density))

    assert_p(run, seed_sequence=seed_sequence)


def test_sample_repeats_with_an_int_seed():
    X = np.random.default_rng(0).normal(size=(20, 2))
    estimator = DPMixture(**FAST).fit(X)
    one, other = estimator.sample(10), estimator.sample(10)
    np.testing.assert_array_equal(one[0], other[0])
    np.testing.assert_array_equal(one[1], other[1])
    estimator.random_state = 1
    assert not np.array_equal(estimator.sample(10)[0], one[0])
    # A generator goes on.
    estimator.random_state = np.random.default_rng(0)
    assert not np.array_equal(estimator.sample(10)[0], estimator.sample(10)[0])


def test_sample_after_a_data_frame_does_not_warn_of_feature_names():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["a", "b"])
    rows, labels = DPMixture(**FAST).fit(X).sample(10)
    assert rows.shape == (10, 2) and labels.shape == (10,)


@pytest.mark.parametrize("n_samples", [0, -1, 1.5, "3", None, True])
def test_sample_checks_its_argument(n_samples):
    estimator = DPMixture(**FAST).fit(np.random.default_rng(0).normal(size=(20, 2)))
    with pytest.raises(ValueError, match="n_samples must be"):
        estimator.sample(n_samples)


# New nodes of a network.


def _relational_score(A, labels, x, a, b, directed, weights):
    """The formula of the design, for one node and one partition."""
    A = A.copy()
    np.fill_diagonal(A, np.nan)
    K = labels.max() + 1
    terms = []
    for k in range(K + 1):
        total = 0.0
        for l in range(K):
            to_l = x[labels == l]
            s, f = (to_l == 1).sum(), (to_l == 0).sum()
            block = A[np.ix_(labels == k, labels == l)] if k < K else np.empty((0, 0))
            links, absent = (block == 1).sum(), (block == 0).sum()
            if k == l and not directed:
                links, absent = links // 2, absent // 2
            total += betaln(a + links + s, b + absent + f) - betaln(a + links, b + absent)
        terms.append(total)
    return logsumexp(np.array(terms) + np.log(weights))


@pytest.mark.slow
@pytest.mark.parametrize("directed", [False, True])
def test_new_nodes(directed):
    n, alpha = 10, 1.7
    rng = np.random.default_rng(0)
    A = rng.integers(0, 2, size=(n, n)).astype(float)
    A[rng.random((n, n)) < 0.15] = np.nan
    if not directed:
        A = np.triu(A, 1) + np.triu(A, 1).T
    estimator = DPMixture(
        likelihood=Relational(a=0.6, b=0.9, directed=directed),
        concentration=alpha,
        **{**FAST, "n_draws": 4},
    ).fit(A)
    assert estimator.n_components_samples_.max() > 1
    X_new = rng.integers(0, 2, size=(n, n)).astype(float)
    X_new[rng.random((n, n)) < 0.2] = np.nan
    X_new[3] = np.nan

    def expected(X_new):
        out = []
        for x in X_new:
            per_draw = []
            for z in estimator.label_samples_.reshape(-1, n).astype(int):
                weights = np.append(np.bincount(z), alpha) / (n + alpha)
                per_draw.append(_relational_score(A, z, x, 0.6, 0.9, directed, weights))
            out.append(logsumexp(per_draw) - np.log(len(per_draw)))
        return out

    scores = estimator.score_samples(X_new)
    np.testing.assert_allclose(scores, expected(X_new), rtol=1e-10, atol=1e-12)
    # No link is known: nothing is said.
    assert scores[3] == pytest.approx(0, abs=1e-12)
    # As many new nodes as old ones: entry (i, i) is the link of a new node to node i.
    for value in (0.0, 1.0, np.nan):
        np.fill_diagonal(X_new, value)
        np.testing.assert_allclose(
            estimator.score_samples(X_new), expected(X_new), rtol=1e-10, atol=1e-12
        )
    with_link, without = X_new.copy(), X_new.copy()
    np.fill_diagonal(with_link, 1.0)
    np.fill_diagonal(without, 0.0)
    assert (estimator.score_samples(with_link) != estimator.score_samples(without)).all()
    assert not np.array_equal(estimator.predict_proba(with_link), estimator.predict_proba(without))


def test_directed_links_of_new_nodes_are_outgoing_ones():
    """Nodes of group 0 link to group 1 and to nobody else; a new node that does belongs to 0."""
    group = np.repeat([0, 1], 10)
    A = ((group[:, None] == 0) & (group == 1)).astype(float)
    estimator = DPMixture(
        likelihood=Relational(directed=True), init=group, concentration=1.0, **FAST
    ).fit(A)
    assert estimator.n_clusters_ == 2
    sends, receives = (group == 1).astype(float), np.zeros(20)
    np.testing.assert_array_equal(estimator.predict([sends, receives]), estimator.labels_[[0, 19]])
