"""What `fit` leaves behind: each attribute of the two mixtures against its definition."""

import io
import pickle
import sys
import types
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from reference.enumerate import canonical_labels
from reference.likelihoods import log_likelihood
from reference.predictive import log_weights
from reference.priors import log_eppf, log_gamma_density
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from support.cases import (
    CASES,
    FAST,
    NAMES,
    PRIORS,
    fit_case,
    make_estimator,
    prior_name,
    prior_params,
)
from support.designs import combinations, everyday, thirds
from support.fits import DRAWS, assert_same_fit

from skdpm import DPMixture, FiniteMixture, _convergence, diagnostics, partitions
from skdpm.mixture.chains.init import initial_labels
from skdpm.mixture.estimate import DrawnClusters
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Gaussian

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    return rng.normal(size=(30, 2)) + 5 * np.eye(3)[np.arange(30) % 3, :2]


def fixed_gaussian(X):
    """Gaussian clusters of which nothing is learned: half of the variance within."""
    return clone(Gaussian(mean_precision=0.01).resolve(X))


def log_joint(estimator, case, name, labels, concentration):
    """log p(partition) + log p(X | partition), by the reference."""
    sizes = np.unique(labels, return_counts=True)[1]
    prior = log_eppf(sizes, prior_name(estimator), **prior_params(estimator, concentration))
    return prior + log_likelihood(case.X, labels, name, **case.params)


@combinations(name=NAMES, prior=PRIORS, resampled=[False, True])
@pytest.mark.some(2)
def test_draws(name, prior, resampled):
    case = fit_case(name)
    estimator = make_estimator(case.likelihood, prior, resampled=resampled).fit(case.X)
    C, S, n = 2, 12, len(case.X)
    assert estimator.label_samples_.shape == (C, S, n)
    assert estimator.label_samples_.dtype == np.uint8
    for name_of in DRAWS[1:]:
        assert getattr(estimator, name_of).shape == (C, S)
    assert estimator.log_joint_samples_.dtype == np.float64
    assert estimator.concentration_samples_.dtype == np.float64
    assert estimator.n_components_samples_.dtype == np.int64
    np.testing.assert_array_equal(
        estimator.label_samples_, canonical_labels(estimator.label_samples_)
    )
    np.testing.assert_array_equal(
        estimator.n_components_samples_, estimator.label_samples_.max(axis=2) + 1
    )
    if prior == "finite":
        assert estimator.n_components_samples_.max() <= estimator.n_components
    concentrations = estimator.concentration_samples_
    if resampled:
        assert len(np.unique(concentrations)) == C * S and (concentrations > 0).all()
    else:
        assert (concentrations == estimator.concentration).all()
    expected = [
        [
            log_joint(estimator, case, name, labels, concentration)
            for labels, concentration in zip(*chain, strict=True)
        ]
        for chain in zip(estimator.label_samples_, concentrations, strict=True)
    ]
    np.testing.assert_allclose(estimator.log_joint_samples_, expected, rtol=1e-10, atol=1e-10)
    assert len(np.unique(estimator.log_joint_samples_)) > 4  # the chains moved
    assert estimator.n_iter_ == 22
    assert estimator.acceptance_rate_ == {}


@pytest.mark.parametrize("concentration", [1e-300, 1e6, 1e12, 1e300])
def test_log_joint_at_extreme_concentrations(concentration):
    """Where a difference of two logarithms of Gamma functions has no digits left."""
    case = fit_case("gaussian")
    estimator = make_estimator(case.likelihood, concentration=concentration).fit(case.X)
    labels = estimator.label_samples_[0, -1]
    sizes = np.bincount(labels)
    log_prior = len(sizes) * np.log(concentration) + gammaln(sizes).sum()
    log_prior -= np.log(concentration + np.arange(len(case.X))).sum()
    expected = log_prior + log_likelihood(case.X, labels, "gaussian", **case.params)
    np.testing.assert_allclose(estimator.log_joint_samples_[0, -1], expected, rtol=1e-12)
    assert np.isfinite(estimator.score(case.X_new))


@combinations(name=NAMES, prior=PRIORS)
def test_point_estimate_attributes(name, prior):
    case = fit_case(name)
    estimator = make_estimator(case.likelihood, prior, resampled=True)
    estimator.set_params(point_estimate="vi").fit(case.X)
    labels = estimator.labels_
    assert labels.shape == (len(case.X),) and labels.dtype == np.int64
    sizes = np.bincount(labels)
    assert (sizes > 0).all() and (np.diff(sizes) <= 0).all()
    assert type(estimator.n_clusters_) is int and estimator.n_clusters_ == len(sizes)
    mean = estimator.concentration_samples_.mean()
    # Rows of which nothing is known do not count.
    known = labels[~estimator.likelihood_.uninformative(case.X)]
    expected = log_weights(known, prior_name(estimator), prior_params(estimator, mean))
    np.testing.assert_allclose(estimator.weights_, np.exp(expected[:-1]), rtol=1e-10)
    if prior == "finite":
        assert estimator.n_clusters_ <= estimator.n_components


@thirds("name", NAMES)
def test_cluster_params(name):
    case = fit_case(name)
    init = np.arange(len(case.X)) % 3
    estimator = make_estimator(
        case.likelihood, init=init, n_warmup=0, n_draws=2, point_estimate="last"
    ).fit(case.X)
    assert estimator.n_clusters_ > 1
    labels, reference = estimator.labels_, CASES[name].cluster_params
    if case.likelihood.pairwise:
        expected = reference(case.X, labels, **case.params)
    else:
        blocks = [case.X[labels == k] for k in range(labels.max() + 1)]
        found = [reference(block, **case.params) for block in blocks]
        expected = {key: [params[key] for params in found] for key in found[0]}
    assert set(estimator.cluster_params_) == set(expected)
    for key in expected:
        np.testing.assert_allclose(
            estimator.cluster_params_[key], np.array(expected[key]), rtol=1e-9, err_msg=key
        )


@pytest.mark.parametrize(
    ("n_clusters", "dtype"), [(255, np.uint8), (256, np.uint8), (257, np.uint16)]
)
@pytest.mark.parametrize("store_labels", [True, False])
def test_label_samples_take_the_smallest_type(n_clusters, dtype, store_labels):
    # Rows far apart, and clusters as narrow as a point expected: what `init` says stays.
    init = np.append(np.arange(n_clusters), [0, 1, 2])
    estimator = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=1e-12, df=10.0, scale=1e-6),
        concentration=1.0,
        init=init,
        n_warmup=0,
        n_draws=2,
        n_chains=1,
        point_estimate="last",
        store_labels=store_labels,
        random_state=0,
    ).fit(init[:, None] * 1000.0)
    assert estimator.n_clusters_ == n_clusters
    np.testing.assert_array_equal(canonical_labels(estimator.labels_[None])[0], init)
    assert (np.bincount(estimator.labels_)[:3] == 2).all()
    if store_labels:
        assert estimator.label_samples_.dtype == dtype
        np.testing.assert_array_equal(estimator.label_samples_[0, 1], init)


@pytest.mark.long
def test_label_type_when_chains_differ(blobs):
    """A chain of many clusters widens the array of all; going on keeps what is there."""
    X = np.repeat(blobs, 10, axis=0) + np.arange(300)[:, None] * 10
    params = {**FAST, "concentration": 1e6, "init": "singletons", "warm_start": True}
    params["point_estimate"] = "last"
    whole = DPMixture(**{**params, "n_warmup": 0, "n_draws": 4}).fit(X)
    assert whole.label_samples_.dtype == np.uint16
    parts = DPMixture(**{**params, "n_warmup": 0, "n_draws": 2}).fit(X)
    parts.set_params(n_draws=4).fit(X)
    assert_same_fit(parts, whole, X)


# Point estimates.


def _loss(draws, labels, loss):
    """Mean loss of a partition against draws, from contingency tables."""
    total = 0.0
    n = len(labels)
    for draw in draws:
        table = np.zeros((draw.max() + 1, labels.max() + 1))
        np.add.at(table, (draw, labels), 1)
        if loss == "binder":

            def f(m):
                return m**2
        else:

            def f(m):
                return m * np.log2(np.maximum(m, 1))

        rows, columns = table.sum(1), table.sum(0)
        total += (f(rows).sum() + f(columns).sum() - 2 * f(table).sum()) / n
    return total / len(draws)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["vi", "binder"])
def test_point_estimate_has_the_least_expected_loss(blobs, loss):
    X = blobs * 0.3  # clusters that overlap: the draws differ
    params = {**FAST, "n_draws": 30, "sampler": "gibbs", "point_estimate": loss}
    params |= {"likelihood": fixed_gaussian(X), "init": "single", "concentration": 3.0}
    estimator = DPMixture(**params).fit(X)
    draws = estimator.label_samples_.reshape(-1, len(X)).astype(int)
    assert len(np.unique(draws, axis=0)) > 20
    found = _loss(draws, estimator.labels_, loss)
    losses = [_loss(draws, draw, loss) for draw in draws]
    assert found <= min(losses) + 1e-12 and found < max(losses)
    other = clone(estimator).set_params(point_estimate="last").fit(X)
    np.testing.assert_array_equal(other.label_samples_, estimator.label_samples_)
    assert _loss(draws, other.labels_, loss) == pytest.approx(losses[29])


@pytest.mark.slow
@combinations(sampler=["alternate", "sub_cluster"], loss=["modal", "vi", "binder", ("vi", 1.6)])
def test_estimate_labels_is_as_if_fit_had_done_so(blobs, loss, sampler):
    X = blobs * 0.4
    params = {**FAST, "n_draws": 30, "n_warmup": 30, "sampler": sampler, "concentration": 3.0}
    params["likelihood"] = fixed_gaussian(X)
    expected = DPMixture(**params, point_estimate=loss).fit(X)
    model = DPMixture(**params, point_estimate="last", warm_start=True).fit(X.tolist())
    first = model.labels_
    scores = model.score_samples(X)
    assert model.estimate_labels(loss=loss) is model
    for name in ("labels_", "weights_", "n_clusters_", "probabilities_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(expected, name))
    for name, values in expected.cluster_params_.items():
        np.testing.assert_allclose(model.cluster_params_[name], values, rtol=1e-10)
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), rtol=1e-8)
    np.testing.assert_array_equal(model.sample(9)[1], expected.sample(9)[1])
    np.testing.assert_array_equal(model.score_samples(X), scores)
    with pytest.warns(UserWarning, match="all 30 draws exist already"):
        model.fit(X.tolist())
    np.testing.assert_array_equal(model.labels_, first)


@pytest.mark.long
def test_labels_of_components_are_no_coarser_than_the_draws():
    """Where most rows may be in either of two components, "vi" unites these against all draws."""
    rng = np.random.default_rng(2)
    classes = rng.integers(0, 4, 300)
    X = rng.poisson(np.exp(1.0 + 0.5 * rng.normal(size=(4, 4)))[classes])
    model = DPMixture(likelihood="poisson", n_warmup=150, n_draws=50, random_state=0).fit(X)
    draws = model.label_samples_

    def n_large(labels):
        return (np.bincount(labels) >= 3).sum()

    fewest = int(np.quantile(model.n_clusters_samples_, 0.05, method="lower"))
    labels = model.labels_
    large = [n_large(draw) for draw in draws.reshape(-1, 300)]
    # One draw in twenty has as few clusters, or fewer. There are four classes.
    assert n_large(labels) == model.n_clusters_ == fewest >= 4
    best = partitions.point_estimate(draws, "binder", max_clusters=fewest, random_state=0)
    losses = [partitions.expected_loss(draws, found, "binder") for found in (labels, best)]
    assert losses[0] <= 1.001 * losses[1]
    assert model.merge_tree().loss == "binder" and model.merge_tree("vi").loss == "vi"
    assert model.estimate_labels(max_clusters=2).n_clusters_ == 2
    coarse = model.estimate_labels(loss="vi").labels_
    assert np.mean(np.array(large) <= n_large(coarse)) < 0.05
    assert adjusted_rand_score(classes, coarse) < adjusted_rand_score(classes, labels)


@pytest.mark.parametrize("n_categories", [3, 4])
@pytest.mark.long
def test_a_table_without_clusters_is_one_cluster(n_categories):
    """Its draws have many components, and share none, if a prior wants clusters to differ."""
    likelihood = Categorical(hyperpriors={"concentration": (1.0, 1.0)})
    X = np.random.default_rng(1).integers(0, n_categories, (200, 5))
    short = {"n_warmup": 100, "n_draws": 40, "n_chains": 2, "random_state": 0}
    model = DPMixture(likelihood=likelihood, **short).fit(X)
    assert np.quantile([(np.bincount(d) > 2).sum() for d in model.draws_["labels"][0]], 0.05) > 5
    assert model.n_clusters_ == 1


def test_estimate_labels_with_fewer_components(blobs):
    model = DPMixture(**FAST, likelihood=fixed_gaussian(blobs)).fit(blobs)
    before = model.n_clusters_, model.probabilities_
    draws = model.label_samples_
    fewer = partitions.point_estimate(draws, max_clusters=2, random_state=0)
    assert before[0] > 2
    model.estimate_labels(max_clusters=2)
    assert model.n_clusters_ == len(model.weights_) == 2
    found, expected = (partitions.expected_loss(draws, z) for z in (model.labels_, fewer))
    assert found == pytest.approx(expected)
    assert model.predict_proba(blobs, new_cluster=True).shape == (len(blobs), 3)
    np.testing.assert_array_equal(model.predict(blobs), model.labels_)
    assert not np.array_equal(model.probabilities_, before[1])
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="rows of fit are not pickled with the estimator: pass"):
        again.estimate_labels()
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        again.estimate_labels(X=blobs[::-1])
    assert again.estimate_labels(X=blobs).n_clusters_ == before[0]
    np.testing.assert_array_equal(again.probabilities_, before[1])


def test_dask_tells_fits_apart(blobs):
    tokenize = pytest.importorskip("dask.base").tokenize
    params = {"n_warmup": 0, "n_draws": 1, "n_chains": 1, "random_state": 0}
    fits = [DPMixture(**params).fit(X) for X in (blobs, blobs[::2])]
    assert len({tokenize(fit.predict) for fit in (*fits, DPMixture(**params))}) == 3
    assert len({tokenize(fit.likelihood_) for fit in fits}) == 2


@pytest.mark.parametrize("loss", ["modal", "vi", "binder"])
def test_labels_have_no_more_clusters_than_the_draws(blobs, loss, monkeypatch):
    """Five groups, of which each draw joins another two: the least loss has five clusters."""
    groups = np.repeat(np.arange(5), 6)
    pairs = [(i, j) for i in range(5) for j in range(i)]
    draws = [partitions.relabel_by_size(np.where(groups == i, j, groups)) for i, j in pairs]
    draws = np.array(draws)[None]
    free = partitions.point_estimate(draws, "vi" if loss == "modal" else loss, random_state=0)
    assert free.max() == 4 and draws.max() == 3
    model = DPMixture(**FAST, likelihood=fixed_gaussian(blobs)).fit(blobs)
    scored = model.draws_.scored

    class GivenDraws(dict):
        pass

    model.draws_ = GivenDraws(labels=draws, n_components=draws.max(axis=2) + 1)
    model.draws_.scored = scored
    monkeypatch.setattr(
        "skdpm.mixture.estimate.read_draws",
        lambda X, draws, **others: (np.arange(len(pairs)), draws, draws, draws),
    )
    drawn = DrawnClusters(model, loss, lambda labels: np.zeros((5, 1)))
    found = drawn.least_expected_loss(30)
    assert found.labels.max() == 3


def test_merge_tree_is_that_of_the_labels(blobs):
    X = blobs * 0.25
    params = {**FAST, "n_draws": 30, "sampler": "gibbs", "likelihood": fixed_gaussian(X)}
    for loss, meant in [("modal", "vi"), (("vi", 0.4), ("vi", 0.4)), ("last", "vi")]:
        model = DPMixture(**params, point_estimate=loss, concentration=5.0).fit(X)
        tree = model.merge_tree()
        expected = partitions.merge_tree(model.cluster_samples_, model.labels_, meant)
        assert tree.loss == meant
        np.testing.assert_array_equal(tree.linkage, expected.linkage)
        np.testing.assert_array_equal(tree.labels, model.labels_)
        expected = partitions.label_probabilities(model.cluster_samples_, model.labels_)
        np.testing.assert_array_equal(model.probabilities_, expected)
    assert model.merge_tree("binder").loss == "binder"


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"max_clusters": 0}, "max_clusters must be"),
        ({"max_clusters": 1.5}, "max_clusters must be"),
        ({"loss": "map"}, "loss must be one of"),
        ({"loss": ("vi", 3.0)}, "split_cost"),
    ],
)
@pytest.mark.some(2)
def test_estimate_labels_refuses(blobs, params, message):
    model = DPMixture(**FAST, likelihood=fixed_gaussian(blobs)).fit(blobs)
    with pytest.raises(ValueError, match=message):
        model.estimate_labels(**params)
    model = DPMixture(**FAST, store_labels=False, point_estimate="map").fit(blobs)
    with pytest.raises(AttributeError, match="estimate_labels needs label draws"):
        model.estimate_labels()


def test_point_estimate_takes_the_parameter_of_its_loss(blobs):
    X = blobs * 0.25
    params = {**FAST, "n_draws": 30, "sampler": "gibbs", "concentration": 5.0}
    params["likelihood"] = fixed_gaussian(X)
    found = [DPMixture(**params, point_estimate=("vi", cost)).fit(X) for cost in (0.2, 1.9)]
    draws = found[0].label_samples_
    np.testing.assert_array_equal(draws, found[1].label_samples_)
    losses = np.array(
        [
            [partitions.expected_loss(draws, e.labels_, ("vi", cost)) for cost in (0.2, 1.9)]
            for e in found
        ]
    )
    assert losses[0, 0] < losses[1, 0] and losses[1, 1] < losses[0, 1]
    assert [len(np.unique(e.labels_)) for e in found] == [e.n_clusters_ for e in found]
    assert found[0].n_clusters_ > found[1].n_clusters_


@pytest.mark.parametrize("concentration", [None, 0.7])
@pytest.mark.parametrize("store_labels", [True, False])
@pytest.mark.some(2)
def test_map_and_last(blobs, concentration, store_labels):
    params = {
        **FAST,
        "n_draws": 40,
        "sampler": "gibbs",
        "concentration": concentration,
        "concentration_prior": (0.2, 0.05),
        "init": "single",
        "random_state": 1,
    }
    X = blobs * 0.4
    params["likelihood"] = fixed_gaussian(X)
    estimator = DPMixture(**params, point_estimate="last").fit(X)
    labels = estimator.label_samples_[0, -1]
    np.testing.assert_array_equal(canonical_labels(estimator.labels_[None])[0], labels)

    value = estimator.log_joint_samples_
    labels = estimator.label_samples_[np.unravel_index(value.argmax(), value.shape)]
    if concentration is None:
        value = value + log_gamma_density(estimator.concentration_samples_, 0.2, 0.05)
        without_prior = labels
        labels = estimator.label_samples_[np.unravel_index(value.argmax(), value.shape)]
        assert (labels != without_prior).any()  # else the test would not see the hyperprior
    other = DPMixture(**params, point_estimate="map", store_labels=store_labels).fit(X)
    np.testing.assert_array_equal(canonical_labels(other.labels_[None])[0], labels)


@combinations(point_estimate=["map", "last"], name=NAMES)
@pytest.mark.some(2)
def test_without_stored_labels(name, point_estimate):
    case = fit_case(name)
    params = {"point_estimate": point_estimate, "resampled": True}
    stored = make_estimator(case.likelihood, **params).fit(case.X)
    estimator = make_estimator(case.likelihood, **params, store_labels=False).fit(case.X)
    assert not hasattr(estimator, "label_samples_")
    for name_of in (*DRAWS[1:], "labels_", "weights_"):
        np.testing.assert_array_equal(getattr(estimator, name_of), getattr(stored, name_of))
    for method in ("predict", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(
            getattr(estimator, method)(case.X_new), getattr(stored, method)(case.X_new)
        )


def test_a_second_fit_without_stored_labels_drops_the_first_ones(blobs):
    estimator = DPMixture(**FAST, point_estimate="last").fit(blobs)
    estimator.set_params(store_labels=False).fit(blobs)
    assert not hasattr(estimator, "label_samples_")


# Where chains start.


def _start(X, init):
    """The partitions at which two chains of a fit start."""
    start = initial_labels(init, X, Gaussian(), len(X))
    labels = [start(np.random.PCG64(seed)) for seed in range(2)]
    zeros = np.zeros(len(X), dtype=int)
    return canonical_labels(np.array([zeros if one is None else one for one in labels]))


def test_init_single_and_singletons(blobs):
    assert (_start(blobs, init="single") == 0).all()
    assert (_start(blobs, init="singletons") == np.arange(30)).all()


@pytest.mark.parametrize(
    "init",
    [
        np.arange(30) % 4,
        (np.arange(30) % 4).tolist(),
        np.array([7, -3, 1000, 12])[np.arange(30) % 4],
        np.array(["d", "a", "c", "b"])[np.arange(30) % 4],
        pd.Series(np.array(["d", "a", "c", "b"])[np.arange(30) % 4]),
        np.array(["d", "a", "c", "b"], dtype=object)[np.arange(30) % 4],
        np.array([0.5, 2.5, 1.5, -1.0])[np.arange(30) % 4],
    ],
    ids=["ints", "list", "any ints", "strings", "series", "objects", "floats"],
)
def test_init_array(blobs, init):
    before = joblib.hash(init)
    assert (_start(blobs, init=init) == np.arange(30) % 4).all()
    assert joblib.hash(init) == before


def test_init_kmeans(blobs):
    X = np.vstack([blobs * 0.01, blobs * 0.01 + 50, blobs * 0.01 - 50])
    starts = _start(X, init="kmeans")
    groups = np.repeat([0, 1, 2], 30)
    for labels in starts:
        assert labels.max() + 1 >= 3
        # No cluster of the start mixes far groups.
        assert len(np.unique(np.stack([labels, groups]), axis=1).T) == labels.max() + 1
    # Constant columns and fewer distinct rows than clusters.
    assert _start(np.ones((6, 2)), init="kmeans").max() == 0
    finite = FiniteMixture(2, init="kmeans", **FAST).fit(X)
    assert finite.n_components_samples_.max() <= 2


@pytest.mark.long
def test_kmeans_start_does_not_depend_on_threads(blobs):
    one = DPMixture(init="kmeans", **FAST).fit(blobs)
    other = DPMixture(init="kmeans", n_jobs=2, **FAST).fit(blobs)
    assert_same_fit(one, other, blobs)


@pytest.mark.parametrize("init", ["singletons", np.arange(30) % 4])
def test_finite_mixture_refuses_too_many_blocks(blobs, init):
    message = r"init has (30|4) clusters, more than the 3 that the prior allows"
    with pytest.raises(ValueError, match=message):
        FiniteMixture(3, init=init, **FAST).fit(blobs)


def test_finite_mixture_stays_within_its_components(blobs):
    estimator = FiniteMixture(2, concentration=50.0, **FAST).fit(blobs)
    assert estimator.n_components_samples_.max() == 2
    assert estimator.n_clusters_ == 2
    assert estimator.predict_proba(blobs).shape == (30, 2)
    # Draws of ten clusters each, all different: without a bound, the partition of least expected
    # loss has more.
    for point_estimate in ("vi", "binder"):
        many = FiniteMixture(
            sampler="gibbs", concentration=1e9, point_estimate=point_estimate, **FAST
        )
        many.fit(np.random.default_rng(0).normal(size=(20, 2)))
        assert many.n_components_samples_.max() == 10
        assert many.n_clusters_ <= 10
        assert many.weights_.sum() < 1 + 1e-12
    one = FiniteMixture(1, **FAST).fit(blobs)
    assert (one.label_samples_ == 0).all()
    np.testing.assert_allclose(one.weights_, [1.0])


# Thinning, seeds, threads.


@pytest.mark.parametrize("thin", everyday([2, 3], 3))
@pytest.mark.long
def test_thin(blobs, thin):
    n_kept = 12 // thin
    all_draws = DPMixture(**FAST).fit(blobs)
    thinned = DPMixture(**{**FAST, "n_draws": n_kept, "thin": thin}).fit(blobs)
    for name in DRAWS:
        np.testing.assert_array_equal(
            getattr(thinned, name), getattr(all_draws, name)[:, thin - 1 :: thin]
        )
    assert thinned.n_iter_ == all_draws.n_iter_ == 22


@pytest.mark.long
def test_warm_up_is_dropped(blobs):
    params = {**FAST, "sampler": "gibbs"}  # which does not adapt
    whole = DPMixture(**{**params, "n_warmup": 0, "n_draws": 22}).fit(blobs)
    estimator = DPMixture(**params).fit(blobs)
    for name in DRAWS:
        np.testing.assert_array_equal(getattr(estimator, name), getattr(whole, name)[:, 10:])


@combinations(name=NAMES, n_jobs=[2, 3, -1])
@pytest.mark.some(2)
def test_bits_do_not_depend_on_n_jobs(name, n_jobs):
    case = fit_case(name)
    one = make_estimator(case.likelihood, n_chains=3, resampled=True).fit(case.X)
    other = make_estimator(case.likelihood, n_chains=3, resampled=True, n_jobs=n_jobs)
    assert_same_fit(other.fit(case.X), one, case.X_new)


@combinations(backend=["loky", "threading", "sequential"], n_jobs=[None, 2])
@pytest.mark.some(1)
@pytest.mark.long
def test_bits_do_not_depend_on_the_joblib_backend(blobs, backend, n_jobs):
    expected = DPMixture(**FAST).fit(blobs)
    with joblib.parallel_config(backend=backend, n_jobs=2 if backend != "sequential" else 1):
        estimator = DPMixture(**FAST, n_jobs=n_jobs).fit(blobs)
    assert_same_fit(estimator, expected, blobs)


@pytest.mark.long
def test_bits_do_not_depend_on_the_number_of_chains(blobs):
    two = DPMixture(**FAST).fit(blobs)
    three = DPMixture(**{**FAST, "n_chains": 3}).fit(blobs)
    for name in DRAWS:
        np.testing.assert_array_equal(getattr(two, name), getattr(three, name)[:2])


SEEDS = {
    "int": lambda: 3,
    "int32": lambda: np.int32(3),
    "large int": lambda: 2**40,
    "RandomState": lambda: np.random.RandomState(3),
    "Generator": lambda: np.random.default_rng(3),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(3)),
}


@pytest.mark.parametrize("seed", everyday(SEEDS, "RandomState"))
@pytest.mark.long
def test_random_state(blobs, seed):
    seed = SEEDS[seed]
    params = {**FAST, "random_state": seed()}
    one = DPMixture(**params)
    copy = clone(one)
    other = DPMixture(**{**params, "random_state": seed()})
    assert_same_fit(one.fit(blobs), other.fit(blobs), blobs)
    assert_same_fit(copy.fit(blobs), other, blobs)
    again = clone(other, safe=False)
    first = other.log_joint_samples_
    other.fit(blobs)
    # A generator goes on from fit to fit, an int starts anew; so do their clones.
    is_int = isinstance(other.random_state, (int, np.integer))
    assert np.array_equal(other.log_joint_samples_, first) == is_int
    assert_same_fit(again.fit(blobs), other, blobs)


@pytest.mark.long
def test_int_types_of_one_seed_agree(blobs):
    one = DPMixture(**{**FAST, "random_state": 3}).fit(blobs)
    assert_same_fit(one, DPMixture(**{**FAST, "random_state": np.uint8(3)}).fit(blobs), blobs)
    other = DPMixture(**{**FAST, "random_state": 4}).fit(blobs)
    assert not np.array_equal(one.log_joint_samples_, other.log_joint_samples_)


def test_random_state_none_draws_a_fresh_seed_and_leaves_numpy_alone(blobs):
    before = joblib.hash(np.random.get_state())
    fits = [DPMixture(**{**FAST, "random_state": None}).fit(blobs) for _ in range(2)]
    assert joblib.hash(np.random.get_state()) == before
    assert not np.array_equal(fits[0].log_joint_samples_, fits[1].log_joint_samples_)


# Diagnostics.


@pytest.mark.long
def test_diagnostics(blobs):
    estimator = DPMixture(**{**FAST, "n_chains": 3}).fit(blobs)
    quantities = {
        "log_joint": diagnostics.without_last_bits(estimator.log_joint_samples_),
        "n_components": estimator.n_components_samples_,
        "concentration": estimator.concentration_samples_,
        "likelihood__mean_precision": estimator.hyperparameter_samples_["mean_precision"],
        "likelihood__df": estimator.hyperparameter_samples_["df"],
        "n_clusters": estimator.n_clusters_samples_,
    }
    assert set(estimator.diagnostics_) == {*quantities, "coclustering", "log_density"}
    for name, draws in quantities.items():
        figures = estimator.diagnostics_[name]
        assert all(type(value) is float for value in figures.values())
        expected = {
            "r_hat": diagnostics.split_rhat(draws),
            "ess_bulk": diagnostics.bulk_ess(draws),
            "ess_tail": diagnostics.tail_ess(draws),
            "mcse_mean": diagnostics.mcse_mean(draws),
        }
        if name == "log_joint":
            masses = [
                [mass for i, mass in chain["masses"] if i > estimator.n_warmup_]
                for chain in estimator._run.chains
            ]
            expected["below_highest"] = _convergence.below_highest(draws).max()
            expected["chance_of_drift"] = _convergence.chance_of_drift(draws)
            expected["difference_chains"] = np.ptp(estimator.log_joint_samples_.mean(axis=1))
            expected["difference_masses"] = np.ptp(np.mean(masses, axis=1))
            expected["lost_mass"] = _convergence.below_largest(np.array(masses)).max()
            expected["n_starts"] = 3.0
        assert figures == pytest.approx(expected, rel=1e-9)
    expected = diagnostics.coclustering_diagnostics(estimator.label_samples_)
    found = estimator.diagnostics_["coclustering"]
    assert {name: found[name] for name in expected} == expected
    assert set(found) - set(expected) == {"ari_between", "ari_within", "separation"}
    likelihood = fixed_gaussian(blobs)
    fixed = FiniteMixture(concentration=1.0, likelihood=likelihood, **FAST).fit(blobs)
    expected = {"log_joint", "n_components", "coclustering", "log_density", "n_clusters"}
    assert set(fixed.diagnostics_) == expected
    params = {**FAST, "store_labels": False, "point_estimate": "map"}
    assert "coclustering" not in DPMixture(**params).fit(blobs).diagnostics_


def test_one_chain_is_compared_with_itself():
    """Warned of where there are enough draws to tell."""
    X = np.random.default_rng(0).normal(size=(40, 2)) + np.repeat([0.0, 2.0], 20)[:, None]
    model = DPMixture(
        likelihood=Gaussian(mean=0.0, mean_precision=0.1, df=5.0, scale=0.02),  # far too small
        sampler="gibbs",
        init="singletons",
        concentration=1.0,
        n_chains=1,
        n_warmup=0,
        n_draws=99,
        point_estimate="vi",
        random_state=1,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X)
    assert model.diagnostics_["log_joint"]["r_hat"] > 1.05 and model.converged_ is False
    with pytest.warns(ConvergenceWarning, match=r"log_joint: it goes from .* to .* \(R-hat"):
        model.set_params(n_draws=100).fit(X)
    assert model.converged_ is False


def test_equal_states_agree():
    """Log joints of one partition differ in their last bits, by the order of clusters."""
    X = np.random.default_rng(0).normal(size=(60, 3)) + np.repeat([0.0, 50.0, 100.0], 20)[:, None]
    likelihood = Gaussian(mean=50.0, mean_precision=1e-3, df=9.0, scale=6.0)
    params = {"sampler": "gibbs", "init": "kmeans", "concentration": 1.0, "n_warmup": 20}
    model = DPMixture(likelihood=likelihood, **params, n_draws=20, random_state=0).fit(X)
    assert (model.n_components_samples_ == 3).all()
    draws = model.log_joint_samples_
    assert 0 < np.ptp(draws) < 1e-8
    assert diagnostics.split_rhat(draws) > 1.05
    assert model.diagnostics_["log_joint"]["r_hat"] == 1.0 and model.converged_


def test_convergence_warning_names_what_has_not_mixed(blobs, monkeypatch):
    for limit in ("LARGEST_ARI_LOSS", "LARGEST_DIFFERENCE"):
        monkeypatch.setattr(_convergence, limit, -np.inf)  # every disagreement counts
    # Without a warm-up the first half of each chain differs from the second.
    with pytest.warns(ConvergenceWarning) as record:
        estimator = DPMixture(
            **{**FAST, "n_warmup": 0, "concentration": 1.0, "init": "singletons"}
        ).fit(blobs)
    judged = _convergence.judged(estimator.diagnostics_)
    bad = [k for k, figures in judged.items() if figures["r_hat"] > 1.05]
    assert bad
    message = str(record[0].message)
    assert estimator.converged_ is False
    for name in estimator.diagnostics_:
        assert (name in message) == (name in bad)
    assert record[0].filename == __file__


def test_no_warning_once_mixed(blobs):
    X = blobs[:8] * 0.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator = DPMixture(
            concentration=1.0,
            n_warmup=50,
            n_draws=400,
            random_state=0,
            likelihood=fixed_gaussian(X),
        ).fit(X)
    judged = _convergence.judged(estimator.diagnostics_)
    assert all(figures["r_hat"] < 1.05 for figures in judged.values())
    assert estimator.converged_ is True


# What is kept, and what is shown.


def _walk(value, seen, path):
    """Every object that can be reached, with the way to it."""
    if id(value) in seen:
        return
    seen[id(value)] = value
    yield path, value
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _walk(item, seen, f"{path}[{key!r}]")
    elif isinstance(value, (list, tuple, set, frozenset)):
        for k, item in enumerate(value):
            yield from _walk(item, seen, f"{path}[{k}]")
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        for key, item in vars(value).items():
            yield from _walk(item, seen, f"{path}.{key}")


PLAIN = (int, float, complex, str, bytes, bool, type(None), dict, list, tuple, np.generic)


@combinations(name=NAMES, warm_start=[False, True])
def test_fitted_attributes_are_plain_objects(name, warm_start):
    case = fit_case(name)
    estimator = make_estimator(case.likelihood, warm_start=warm_start).fit(case.X)
    assert not hasattr(estimator, "n_clusters")
    for path, value in _walk(vars(estimator), {}, "estimator"):
        if path.endswith((".log_likelihood", ".sample")):
            continue  # what the user gave
        if path == "estimator['_training'].X":
            continue  # the rows, by reference: not pickled (test_X_is_not_pickled)
        if isinstance(value, np.ndarray):
            assert type(value) is np.ndarray and value.dtype != object, path
            assert not np.shares_memory(value, case.X), path
        elif not isinstance(value, PLAIN):
            # Objects of Python; no kernel, no function, no generator of random numbers.
            module = type(value).__module__
            assert module.startswith("skdpm."), (path, value)
            assert sys.modules[module].__file__.endswith(".py"), (path, value)
        assert not isinstance(value, types.FunctionType), path


@pytest.mark.parametrize("warm_start", [False, True])
def test_X_is_not_pickled(warm_start):
    rng = np.random.default_rng(0)
    X = (rng.random((500, 40)) < 0.5) * 1.0
    estimator = DPMixture(
        likelihood=Bernoulli(1.0, 1.0),
        init="single",
        n_warmup=0,
        n_draws=1,
        n_chains=1,
        warm_start=warm_start,
        random_state=0,
    ).fit(X)
    # 160 kB of data. Labels of 500 rows, statistics of few clusters: far less.
    assert len(pickle.dumps(estimator)) < X.nbytes / 4


@pytest.mark.long
def test_progress_bar(blobs, capsys):
    estimator = DPMixture(**FAST, verbose=1).fit(blobs)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "44/44" in shown.err  # 2 chains of 22 iterations
    assert "components=" in shown.err and "log_joint=" in shown.err
    quiet = DPMixture(**FAST).fit(blobs)
    assert capsys.readouterr() == ("", "")
    assert_same_fit(estimator, quiet, blobs)


@pytest.mark.long
def test_progress_bar_of_threads_and_of_a_warm_start(blobs, capsys):
    estimator = DPMixture(**FAST, verbose=True, n_jobs=2, warm_start=True).fit(blobs)
    assert "44/44" in capsys.readouterr().err
    estimator.set_params(n_draws=15).fit(blobs)
    assert "6/6" in capsys.readouterr().err


def test_repr_is_short():
    assert repr(DPMixture()) == "DPMixture()"
    assert repr(FiniteMixture(3)) == "FiniteMixture(n_components=3)"
    buffer = io.BytesIO()
    pickle.dump(DPMixture(), buffer)
    assert len(buffer.getvalue()) < 2000


@pytest.mark.parametrize("loss", [None, "vi"])
@pytest.mark.some(1)
def test_fewer_clusters_join_the_nearest(loss):
    """A large and a small cluster in each corner: no draw joins any."""
    rng = np.random.default_rng(0)
    corner = np.repeat(np.arange(4), 50)
    X = np.column_stack([corner // 2, corner % 2]) * 200.0 + rng.normal(size=(200, 2))
    X[::5, 0] += 14.0
    model = DPMixture(n_chains=2, n_warmup=60, n_draws=40, random_state=0).fit(X)
    assert model.n_clusters_ == 8
    tree = model.estimate_labels(loss=loss).merge_tree()
    assert adjusted_rand_score(tree.cut(4), corner) == 1.0
    model.estimate_labels(max_clusters=4, loss=loss)
    assert adjusted_rand_score(model.labels_, corner) == 1.0
    assert adjusted_rand_score(pickle.loads(pickle.dumps(model)).merge_tree().cut(2), corner) > 0.4
