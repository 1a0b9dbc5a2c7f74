"""What scikit-learn expects of an estimator: its own checks, and a protocol of our own over all
likelihoods, most of which its checks cannot feed."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone, is_clusterer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted
from support.cases import CASES, FAST, NAMES, SPARSE, fit_case, make_estimator
from support.designs import combinations, everyday

from skdpm import DPMixture, FeatureAllocation, FiniteMixture
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, Multinomial, PyClone
from skdpm.mixture.samplers import PGSM, SMC, Gibbs

# Many of these fits are too short, or have too few rows, for the chains to mix.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


# What the checks ask shows in chains of a few iterations.
SHORT = {"n_warmup": 15, "n_draws": 5, "n_chains": 2}


@parametrize_with_checks(
    [
        DPMixture(**SHORT),
    ]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        DPMixture(likelihood=Gaussian(covariance_type="diag"), **SHORT),
        DPMixture(noise=True, **SHORT),
        DPMixture(noise=True, sampler=SMC(3, rejuvenation=None), n_draws=4, n_chains=2),
        FiniteMixture(**SHORT),
        DPMixture(sampler=SMC(5), n_draws=4, n_chains=2),
        FiniteMixture(sampler=SMC(5, rejuvenation=None), n_draws=4, n_chains=2),
    ]
)
def test_scikit_learn_checks_of_other_settings(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([DPMixture(), FeatureAllocation()])
def test_scikit_learn_checks_of_the_defaults(estimator, check):
    check(estimator)


@pytest.fixture(params=everyday(NAMES, "gaussian", "bernoulli", "pyclone", "relational"))
def case(request):
    return fit_case(request.param)


@combinations(name=NAMES, prior=["dp", "finite"])
@pytest.mark.some(2)
def test_protocol(name, prior):
    case = fit_case(name)
    estimator = make_estimator(case.likelihood, prior)
    X = case.X.copy()
    for method in ("predict", "predict_proba", "score_samples", "score"):
        with pytest.raises(NotFittedError):
            getattr(estimator, method)(case.X_new)
    assert estimator.fit(X) is estimator
    np.testing.assert_array_equal(X, case.X)
    assert estimator.n_features_in_ == X.shape[1]
    assert not hasattr(estimator, "feature_names_in_")
    assert not hasattr(estimator, "n_clusters")
    assert is_clusterer(estimator)

    m, K = len(case.X_new), estimator.n_clusters_
    labels = estimator.predict(case.X_new)
    probabilities = estimator.predict_proba(case.X_new)
    assert labels.shape == (m,) and labels.dtype == np.int64
    assert probabilities.shape == (m, K)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(labels, probabilities.argmax(axis=1))
    scores = estimator.score_samples(case.X_new)
    assert scores.shape == (m,) and np.isfinite(scores).all()
    assert estimator.score(case.X_new) == scores.mean()
    assert isinstance(estimator.score(case.X_new, np.zeros(m)), float)
    np.testing.assert_array_equal(clone(estimator).fit_predict(X), estimator.labels_)
    np.testing.assert_array_equal(
        clone(estimator).fit(X, y=np.arange(len(X))).labels_, estimator.labels_
    )

    wrong = case.X_new[:, :-1]
    for method in ("predict", "predict_proba", "score_samples", "score"):
        with pytest.raises(ValueError, match=f"{X.shape[1]} features"):
            getattr(estimator, method)(wrong)


def test_likelihood_and_sampler_are_left_alone(case):
    sampler = Gibbs(n_sweeps=2)
    before = [pickle.dumps(case.likelihood), pickle.dumps(sampler)]
    estimator = make_estimator(case.likelihood, sampler=sampler).fit(case.X)
    assert [pickle.dumps(case.likelihood), pickle.dumps(sampler)] == before
    assert estimator.likelihood is case.likelihood and estimator.sampler is sampler
    assert estimator.likelihood_ is not case.likelihood
    assert type(estimator.likelihood_) is type(case.likelihood)


@pytest.mark.some(2)
def test_clone_repr_params_pickle(case):
    estimator = make_estimator(case.likelihood, sampler=Gibbs(n_sweeps=2), discount=0.25)
    name = next(iter(case.params))
    assert "likelihood__" + name in estimator.get_params()
    copy = clone(estimator)
    assert repr(copy) == repr(estimator)
    assert type(case.likelihood).__name__ in repr(copy) and "n_sweeps=2" in repr(copy)
    assert copy.likelihood is not estimator.likelihood
    copy.set_params(sampler__n_sweeps=3, discount=0.5)
    assert copy.sampler.n_sweeps == 3 and estimator.sampler.n_sweeps == 2
    assert copy.discount == 0.5 and estimator.discount == 0.25

    before = pickle.loads(pickle.dumps(estimator)).fit(case.X)
    after = pickle.loads(pickle.dumps(estimator.fit(case.X)))
    for method in ("predict", "predict_proba", "score_samples"):
        expected = getattr(estimator, method)(case.X_new)
        np.testing.assert_array_equal(getattr(before, method)(case.X_new), expected)
        np.testing.assert_array_equal(getattr(after, method)(case.X_new), expected)


def test_sample_exists_where_the_likelihood_generates(case):
    estimator = make_estimator(case.likelihood)
    if case.likelihood.pairwise or isinstance(case.likelihood, (Multinomial, PyClone)):
        assert not hasattr(estimator, "sample")
        return
    assert hasattr(estimator, "sample")  # before fit as well
    with pytest.raises(NotFittedError):
        estimator.sample()
    estimator.fit(case.X)
    X, labels = estimator.sample(7)
    assert X.shape == (7, case.X.shape[1]) and labels.shape == (7,) and labels.dtype == np.int64
    assert np.isfinite(estimator.score_samples(X)).all()
    assert estimator.sample()[0].shape == (1, case.X.shape[1])


@pytest.mark.parametrize("name", NAMES)
def test_tags(name):
    tags = get_tags(make_estimator(fit_case(name).likelihood))
    assert tags.input_tags.allow_nan == (
        CASES[name].has_gaps or name in ("gaussian", "von_mises_fisher")
    )
    assert tags.input_tags.sparse == (name in SPARSE)
    assert tags.input_tags.pairwise == name.startswith("relational")
    assert tags.input_tags.positive_only == CASES[name].is_positive


@pytest.mark.parametrize("likelihood", ["no such name", None, 3, Gaussian])
def test_tags_of_a_wrong_likelihood_do_not_raise(likelihood):
    estimator = DPMixture(likelihood=likelihood)
    assert get_tags(estimator).estimator_type == "clusterer"
    assert "DPMixture" in repr(estimator)
    assert not hasattr(estimator, "sample")
    with pytest.raises(ValueError, match="likelihood must be"):
        estimator.fit(np.zeros((3, 1)))


def test_a_failed_fit_leaves_no_fitted_estimator():
    estimator = DPMixture(n_draws=0)
    with pytest.raises(ValueError):
        estimator.fit(np.zeros((3, 1)))
    with pytest.raises(NotFittedError):
        check_is_fitted(estimator)
    with pytest.raises(NotFittedError):
        estimator.sample()


@pytest.mark.some(2)
def test_pandas(case):
    names = [f"column {d}" for d in range(case.X.shape[1])]
    frame = pd.DataFrame(case.X, columns=names)
    estimator = make_estimator(case.likelihood).fit(frame)
    assert estimator.feature_names_in_.tolist() == names
    plain = make_estimator(case.likelihood).fit(case.X)
    new = pd.DataFrame(case.X_new, columns=names)
    np.testing.assert_array_equal(estimator.score_samples(new), plain.score_samples(case.X_new))
    np.testing.assert_array_equal(estimator.labels_, plain.labels_)
    with pytest.raises(ValueError, match="feature names"):
        estimator.predict(new[names[::-1]])


def _strided(X):
    wide = np.full((2 * len(X), 3 * X.shape[1]), 99.0)
    wide[::2, ::3] = X
    return wide[::2, ::3]


LAYOUTS = {
    "fortran": np.asfortranarray,
    "byte-swapped": lambda X: X.astype(X.dtype.newbyteorder()),
    "strided": _strided,
    "reversed": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "list": np.ndarray.tolist,
    "object": lambda X: X.astype(object),
    "float32": lambda X: X.astype(np.float32),
    "longdouble": lambda X: X.astype(np.longdouble),
}


@combinations(name=NAMES, layout=LAYOUTS)
@pytest.mark.some(2)
def test_memory_layout_does_not_matter(name, layout):
    case = fit_case(name)
    X, X_new = (A.astype(np.float32).astype(np.float64) for A in (case.X, case.X_new))
    expected = make_estimator(case.likelihood).fit(X)
    other = LAYOUTS[layout](X)
    before = joblib.hash(other)
    estimator = make_estimator(case.likelihood).fit(other)
    assert joblib.hash(other) == before
    np.testing.assert_array_equal(estimator.label_samples_, expected.label_samples_)
    np.testing.assert_array_equal(estimator.log_joint_samples_, expected.log_joint_samples_)
    for method in ("predict_proba", "score_samples"):
        np.testing.assert_array_equal(
            getattr(estimator, method)(LAYOUTS[layout](X_new)), getattr(expected, method)(X_new)
        )


@combinations(name=NAMES, dtype=[bool, np.int8, np.uint16, np.int64, np.float16])
@pytest.mark.some(2)
def test_integer_types(name, dtype):
    case = fit_case(name)
    X, X_new = (np.round(np.abs(np.nan_to_num(A))) for A in (case.X, case.X_new))
    if dtype is bool:
        X, X_new = np.minimum(X, 1), np.minimum(X_new, 1)
    X, X_new = np.minimum(X, 127), np.minimum(X_new, 127)
    expected = make_estimator(case.likelihood).fit(X)
    estimator = make_estimator(case.likelihood).fit(X.astype(dtype))
    np.testing.assert_array_equal(estimator.label_samples_, expected.label_samples_)
    np.testing.assert_array_equal(
        estimator.score_samples(X_new.astype(dtype)), expected.score_samples(X_new)
    )


@pytest.mark.some(2)
def test_read_only_memory_map(case, tmp_path):
    joblib.dump((case.X, case.X_new), tmp_path / "X.joblib")
    X, X_new = joblib.load(tmp_path / "X.joblib", mmap_mode="r")
    assert isinstance(X, np.memmap) and not X.flags.writeable
    estimator = make_estimator(case.likelihood).fit(X)
    expected = make_estimator(case.likelihood).fit(case.X)
    np.testing.assert_array_equal(estimator.label_samples_, expected.label_samples_)
    np.testing.assert_array_equal(
        estimator.score_samples(X_new), expected.score_samples(case.X_new)
    )


@combinations(
    form=[sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array],
    name=[name for name in NAMES if name in SPARSE],
)
@pytest.mark.some(2)
def test_sparse_equals_dense(name, form):
    case = fit_case(name)
    expected = make_estimator(case.likelihood).fit(case.X)
    X = form(case.X)
    estimator = make_estimator(case.likelihood).fit(X)
    np.testing.assert_array_equal(X.toarray(), case.X)
    np.testing.assert_array_equal(estimator.label_samples_, expected.label_samples_)
    np.testing.assert_array_equal(estimator.log_joint_samples_, expected.log_joint_samples_)
    for method in ("predict_proba", "score_samples"):
        np.testing.assert_array_equal(
            getattr(estimator, method)(form(case.X_new)), getattr(expected, method)(case.X_new)
        )


@pytest.mark.parametrize("name", [name for name in NAMES if name not in SPARSE])
def test_sparse_is_refused_elsewhere(name):
    case = fit_case(name)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        make_estimator(case.likelihood).fit(sp.csr_array(np.nan_to_num(case.X)))


# Grids and pipelines.


@pytest.fixture(scope="module")
def blobs():
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    return rng.normal(size=(60, 2)) + 6 * np.eye(3)[y, :2], y


@pytest.mark.slow
def test_grid_search_by_held_out_score(blobs):
    X, _ = blobs
    grid = GridSearchCV(
        DPMixture(likelihood=Gaussian(), sampler=Gibbs(), **FAST),
        {"sampler__n_sweeps": [1, 2], "likelihood__mean_precision": [0.01, 1e6]},
        cv=3,
        error_score="raise",
    ).fit(X)
    # The second prior nails all means to the mean of X.
    assert grid.best_params_["likelihood__mean_precision"] == 0.01
    means = grid.cv_results_["mean_test_score"]
    assert np.isfinite(means).all() and len(set(means)) == 4
    estimator = grid.best_estimator_
    assert grid.score(X) == estimator.score(X) == estimator.score_samples(X).mean()


@pytest.mark.slow
def test_grid_search_by_v_measure(blobs):
    X, y = blobs
    grid = GridSearchCV(
        FiniteMixture(sampler=PGSM(), **{**FAST, "n_warmup": 30}),
        {"sampler__n_particles": [5, 20], "n_components": [1, 10]},
        scoring="v_measure_score",
        cv=3,
        error_score="raise",
    ).fit(X, y)
    assert grid.best_params_["n_components"] == 10
    assert grid.best_score_ > 0.8


@pytest.mark.slow
def test_grid_over_likelihoods(blobs):
    X, _ = blobs
    grid = GridSearchCV(
        DPMixture(**FAST),
        {"likelihood": [Gaussian(), Gaussian(df=9.0), "gaussian"]},
        cv=2,
        error_score="raise",
    ).fit(X)
    full, other, name = grid.cv_results_["mean_test_score"]
    assert full == name != other


@pytest.mark.long
def test_pipeline(blobs):
    X, _ = blobs
    pipeline = make_pipeline(StandardScaler(), DPMixture(sampler=Gibbs(), **FAST))
    pipeline.set_params(dpmixture__sampler__n_sweeps=2)
    labels = pipeline.fit_predict(X)
    scaled = StandardScaler().fit_transform(X)
    alone = DPMixture(sampler=Gibbs(n_sweeps=2), **FAST).fit(scaled)
    np.testing.assert_array_equal(labels, alone.labels_)
    np.testing.assert_array_equal(pipeline.predict(X), alone.predict(scaled))
    np.testing.assert_array_equal(pipeline.predict_proba(X), alone.predict_proba(scaled))
    assert pipeline.score(X) == alone.score(scaled)
    clone(pipeline).fit(X)


@pytest.mark.parametrize(
    ("estimator", "params"),
    [
        (DPMixture(), {"sampler__n_sweeps": 2}),
        (DPMixture(sampler="gibbs"), {"sampler__n_sweeps": 2}),
        (DPMixture(), {"likelihood__df": 5.0}),
        (DPMixture(sampler=Gibbs()), {"sampler": "gibbs", "sampler__n_sweeps": 2}),
    ],
)
def test_set_params_of_a_name_explains_itself(estimator, params):
    nested = list(params)[-1]
    name = nested.split("__")[0]
    with pytest.raises(
        ValueError, match=f"cannot set '{nested}', because {name}=.* means an object"
    ):
        estimator.set_params(**params)


def test_set_params_of_an_object():
    estimator = DPMixture()
    estimator.set_params(likelihood=Bernoulli(), likelihood__a=2.0)
    assert estimator.likelihood.a == 2.0
    with pytest.raises(ValueError, match="n_sweps"):
        DPMixture(sampler=Gibbs()).set_params(sampler__n_sweps=2)
    with pytest.raises(ValueError, match="no_such"):
        DPMixture().set_params(no_such=1)
    fitted = DPMixture(n_warmup=2, n_draws=2, n_chains=1).fit(np.eye(5)[:, :2])
    assert "clusters" in str(fitted)
    with pytest.raises(ValueError, match=r"DPMixture\(.*n_warmup=2\)\. Valid parameters"):
        fitted.set_params(no_such=1)
