"""Bad input: a ValueError before any sampling, whose message names the parameter or the column."""

import decimal
import math

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from support.cases import CASES, NAMES, fit_case, make_estimator

from skdpm import DPMixture, FiniteMixture
from skdpm.chains import ChainProgram
from skdpm.mixture import likelihoods, samplers
from skdpm.mixture.likelihoods import Bernoulli, Categorical, Gaussian, Relational
from skdpm.mixture.samplers import Gibbs
from skdpm.mixture.samplers.base import Sampler

NAN, INF = np.nan, np.inf
X = np.random.default_rng(0).normal(size=(8, 2))


@pytest.fixture(autouse=True)
def no_sampling(monkeypatch, request):
    """Fail where a chain is advanced: all checks come before."""
    if "fitted" in request.fixturenames:
        return

    def start(*args):
        raise AssertionError("sampling began")

    monkeypatch.setattr(ChainProgram, "advance", start)


NOT_A_NUMBER = ["1", None, [1.0], True, 1j, NAN, INF, -INF]
NOT_AN_INTEGER = ["1", None, 1.0, [1], True, NAN, decimal.Decimal(1)]

PARAMETERS = {
    "likelihood": ["no such", None, 3, Gaussian, Gibbs(), ["gaussian"]],
    "sampler": ["no such", None, 3, Gibbs, Gaussian(), "Gibbs"],
    "noise": ["yes", 1, 0.1, (1.0,), (1.0, 1.0, 1.0), (0.0, 1.0), (1.0, -1.0), (1.0, math.nan)],
    "concentration": [0.0, -1.0, 0, *[value for value in NOT_A_NUMBER if value is not None]],
    "concentration_prior": [
        None,
        1.0,
        "ab",
        (1.0,),
        (1.0, 1.0, 1.0),
        (0.0, 1.0),
        (1.0, 0.0),
        (-1.0, 1.0),
        (1.0, NAN),
        (INF, 1.0),
        ("1", "2"),
        (None, 1.0),
    ],
    "n_warmup": [-1, *NOT_AN_INTEGER],
    "n_draws": [0, -1, *NOT_AN_INTEGER],
    "thin": [0, -1, *NOT_AN_INTEGER],
    "n_chains": [0, -1, *NOT_AN_INTEGER],
    "n_jobs": [0, 1.5, "2", [1], NAN],
    "init": [
        "no such",
        None,
        3,
        np.arange(7),
        np.arange(9),
        np.zeros((8, 1)),
        [[0] * 8],
        [0.0] * 7 + [NAN],
        [0.0] * 7 + [INF],
        ["a"] * 7 + [None],
        [0] * 7 + ["a"] * 2,
        [],
    ],
    "store_labels": [None, 0, 1, "yes", []],
    "point_estimate": ["no such", None, 3, "MAP", ["vi"], ("map", 1.0), ("vi", 2.0), ("vi",)],
    "max_time": [0.0, -1.0, *(value for value in NOT_A_NUMBER if value is not None)],
    "target_ess": [0, -1.0, *(value for value in NOT_A_NUMBER if value is not None)],
    "warm_start": [None, 0, 1, "yes"],
    "random_state": [-1, 1.5, "0", [1, 2], True, np.random.SeedSequence(0)],
    "verbose": [-1, 0.5, "yes", None],
}
DP_ONLY = {"discount": [-0.1, 1.0, 2.0, *NOT_A_NUMBER]}
FINITE_ONLY = {"n_components": [0, -3, 2**53 + 1, *(v for v in NOT_AN_INTEGER if v is not None)]}
# Where n_components is None.
UNKNOWN_ONLY = {
    "dynamic": ["yes", 1, None],
    "n_components_prior": [
        "no such",
        None,
        1.0,
        lambda K: 0.0,
        lambda K: -2.0 * np.log(K),
        lambda K: -math.inf,
        lambda K: math.nan,
        lambda K: np.log(6.0 / (np.pi * K) ** 2),  # a law whose tail is too heavy
    ],
}


def _all(estimator, *tables):
    def case(name, k, value):
        # The address of a function would differ between the processes of a run.
        what = f"function {k}" if callable(value) else f"{value!r:.40}"
        return pytest.param(estimator, name, value, id=f"{type(estimator).__name__}-{name}-{what}")

    return [
        case(name, k, value)
        for table in tables
        for name, values in table.items()
        for k, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("estimator", "name", "value"),
    _all(DPMixture(), PARAMETERS, DP_ONLY)
    + _all(FiniteMixture(), PARAMETERS, FINITE_ONLY)
    + _all(FiniteMixture(None), UNKNOWN_ONLY),
)
def test_parameters_of_the_estimators(estimator, name, value):
    estimator = clone(estimator).set_params(**{name: value})
    with pytest.raises(ValueError, match=rf"(?<!\w){name}(?!\w)"):
        estimator.fit(X)


def test_every_parameter_is_tried():
    """Those of a Gaussian are below."""
    assert set(DPMixture().get_params()) == {*PARAMETERS, *DP_ONLY}
    assert set(FiniteMixture().get_params()) == {*PARAMETERS, *FINITE_ONLY, *UNKNOWN_ONLY}


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture])
@pytest.mark.parametrize("name", ["likelihood", "sampler", "init", "point_estimate"])
def test_unknown_names_list_the_known(cls, name):
    known = {
        "likelihood": sorted(likelihoods.LIKELIHOODS),
        "sampler": ["auto", *sorted(samplers.SAMPLERS)],
        "init": ["single", "singletons", "kmeans"],
        "point_estimate": ["vi", "binder", "map", "last"],
    }[name]
    with pytest.raises(ValueError, match="no_such") as error:
        cls(**{name: "no_such"}).fit(X)
    for word in known:
        assert word in str(error.value)


def test_pitman_yor_concentration():
    for concentration in (-0.5, -0.6):
        with pytest.raises(ValueError, match=r"concentration must be finite and > -0.5"):
            DPMixture(discount=0.5, concentration=concentration).fit(X)
    with pytest.raises(ValueError, match=r"concentration must be finite and > 0,"):
        DPMixture(concentration=0).fit(X)


@pytest.mark.parametrize("point_estimate", ["vi", "binder", ("vi", 1.5)])
def test_point_estimates_that_need_labels(point_estimate):
    with pytest.raises(ValueError, match=r"point_estimate.*store_labels=False.*map.*last"):
        DPMixture(store_labels=False, point_estimate=point_estimate).fit(X)


def test_init_with_more_blocks_than_components():
    with pytest.raises(
        ValueError, match="init has 8 clusters, more than the 7 that the prior allows"
    ):
        FiniteMixture(7, init="singletons").fit(X)


@pytest.mark.parametrize(
    ("likelihood", "data"),
    [
        (Bernoulli(), np.array([[0.0, 1.0], [NAN, 1.0]])),
        ("relational", np.eye(4)),
        ("relational", sp.csr_array(np.eye(4))),
    ],
)
def test_kmeans_needs_plain_numbers(likelihood, data):
    with pytest.raises(ValueError, match='init="kmeans" needs dense numeric data without NaN'):
        DPMixture(likelihood=likelihood, init="kmeans").fit(data)


class Fancy(Sampler):
    """A sampler that no likelihood has the capability for."""

    requires = "magic"


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture])
def test_a_missing_capability_names_both_classes(cls):
    match = r"Fancy.*Gaussian, which lacks the capability 'magic'; sampler=\"auto\" chooses"
    with pytest.raises(ValueError, match=match):
        cls(sampler=Fancy()).fit(X)


@pytest.mark.parametrize(
    ("sampler", "why"),
    [
        ("pgsm", r"PGSM\(\) .*, whose clusters depend on each other"),
        ("sub_cluster", r"SubCluster\(\) .*, whose parameters of clusters cannot be drawn"),
    ],
)
def test_a_sampler_says_why_it_refuses_a_likelihood(sampler, why):
    with pytest.raises(ValueError, match=why.replace(".*", "cannot sample .* Relational")):
        DPMixture(likelihood=Relational(), sampler=sampler).fit(np.eye(3))


# Parameters of likelihoods and samplers.


@pytest.mark.parametrize(
    ("name", "parameter", "value"),
    [
        pytest.param(name, parameter, value, id=f"{name}-{parameter}-{value!r:.40}")
        for name in NAMES
        for parameter, values in CASES[name].bad_params.items()
        for value in values
    ],
)
def test_parameters_of_likelihoods(name, parameter, value):
    case = fit_case(name)
    data = case.X if name != "bernoulli" else case.X[:, :2]
    likelihood = clone(case.likelihood).set_params(**{parameter: value})
    with pytest.raises(ValueError, match=rf"{type(likelihood).__name__}\.{parameter}"):
        DPMixture(likelihood=likelihood).fit(data)


@pytest.mark.parametrize("name", NAMES)
def test_every_hyperparameter_is_tried(name):
    assert set(fit_case(name).likelihood.get_params()) == set(CASES[name].bad_params)


@pytest.mark.parametrize("value", [0, -1, *NOT_AN_INTEGER])
def test_parameters_of_gibbs(value):
    with pytest.raises(ValueError, match=r"Gibbs\.n_sweeps"):
        DPMixture(sampler=Gibbs(n_sweeps=value)).fit(X)


# Data.


def _with(data, *entries):
    """Other values at some (row, column), last row of the second column by default."""
    data = np.array(data, dtype=float)
    for row, column, value in entries:
        data[row, column] = value
    return data


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in NAMES for value in [INF, -INF, *CASES[name].bad_values]],
)
def test_values_outside_the_domain(name, value):
    data, column = _with(CASES[name].good, (3, 1, value)), "1"
    if name == "relational":
        data, column = _with(data, (1, 3, value)), "[13]"
    likelihood = fit_case(name).likelihood
    if name == "categorical":
        likelihood = Categorical()
    with pytest.raises(ValueError, match=rf"column {column}\b"):
        make_estimator(likelihood).fit(data)


@pytest.fixture(scope="module")
def fitted():
    """An estimator for each likelihood."""
    out = {}
    with pytest.warns():
        for name in NAMES:
            likelihood = fit_case(name).likelihood
            if name == "categorical":
                likelihood = Categorical(handle_unknown="error")
            out[name] = make_estimator(likelihood).fit(CASES[name].good)
    return out


@pytest.mark.parametrize("method", ["predict", "predict_proba", "score_samples", "score"])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.long
def test_values_outside_the_domain_in_new_rows(name, method, fitted):
    good = _with(CASES[name].good)
    getattr(fitted[name], method)(good)
    likelihood = fitted[name].likelihood
    scores_gaps = likelihood.lacks("laws") is None and method.startswith("score")
    gaps = likelihood.allow_nan or scores_gaps
    for value in [INF, *CASES[name].bad_values, *[NAN] * (not gaps)]:
        with pytest.raises(ValueError, match=r"column 1\b"):
            getattr(fitted[name], method)(_with(good, (3, 1, value)))
    n_features = good.shape[1]
    for data, message in [
        (good[:, :-1], rf"{n_features} features"),
        (np.hstack([good, good]), rf"{n_features} features"),
        (good[0], "1D array"),
        (good[None], "dim 3"),
        (good[:0], r"0 sample"),
    ]:
        with pytest.raises(ValueError, match=message):
            getattr(fitted[name], method)(data)


@pytest.mark.parametrize("name", [n for n in NAMES if not fit_case(n).likelihood.allow_nan])
def test_nan_where_it_is_not_allowed(name):
    with pytest.raises(ValueError, match="NaN in column 1"):
        make_estimator(fit_case(name).likelihood).fit(_with(CASES[name].good, (3, 1, NAN)))


@pytest.mark.long
def test_an_unseen_category_names_column_and_value(fitted):
    with pytest.raises(ValueError, match=r"column 2 .* code 3, .* 0 to 2"):
        fitted["categorical"].predict([[0, 1, 3]])
    with pytest.raises(ValueError, match=r"column 0 .* code 2, .* 0 to 1"):
        DPMixture(likelihood=Categorical(n_categories=2)).fit([[2.0, 0.0]])


def test_a_code_that_is_no_category():
    """Statistics have an entry per category: a column of identifiers would take all memory."""
    with pytest.raises(ValueError, match=r"column 1 of X.*categories"):
        DPMixture(likelihood="categorical").fit([[0, 5], [1, 30_000_000]])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.ones((3, 4)), "square.*(3, 4)"),
        (np.ones((4, 3)), "square.*(4, 3)"),
        ([[0.0, 1.0], [0.0, 0.0]], r"symmetric.*\(0, 1\) and \(1, 0\)"),
        ([[0.0, NAN], [0.0, 0.0]], r"symmetric.*\(0, 1\) and \(1, 0\)"),
        (sp.csr_array([[0.0, 1.0], [0.0, 0.0]]), "symmetric"),
        (sp.csr_array([[0.0, 2.0], [2.0, 0.0]]), r"column [01] of X holds 2"),
        (sp.csr_array([[0.0, INF], [INF, 0.0]]), r"infinity in column 0"),
    ],
)
def test_adjacency_matrices(data, message):
    with pytest.raises(ValueError, match=message):
        DPMixture(likelihood="relational").fit(data)


@pytest.mark.parametrize("scale", [1e-160, 1e-300])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
@pytest.mark.parametrize("sampler", ["gibbs", "sub_cluster"])
def test_values_whose_squares_underflow(sampler, covariance_type, scale):
    data = np.random.default_rng(0).normal(size=(6, 3)) * [1.0, 1.0, scale]
    for params in ({}, {"mean": 0.0, "scale": 1.0}):
        likelihood = Gaussian(covariance_type=covariance_type, **params)
        with pytest.raises(ValueError, match=r"column 2\b.*underflows"):
            DPMixture(likelihood=likelihood, sampler=sampler).fit(data)


@pytest.mark.parametrize("value", [1.7e308, 1e200])
@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_values_whose_squares_overflow(covariance_type, value):
    data = np.random.default_rng(0).normal(size=(6, 3))
    data[0, 2], data[1, 2] = value, -value
    with pytest.raises(ValueError, match=r"column 2\b"):
        DPMixture(likelihood=Gaussian(covariance_type=covariance_type)).fit(data)
    with pytest.raises(ValueError, match=r"column 2\b"):
        DPMixture(likelihood=Gaussian(mean=0.0, scale=1.0, covariance_type=covariance_type)).fit(
            data
        )


@pytest.mark.parametrize("cls", [DPMixture, FiniteMixture])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.zeros(5), "1D array"),
        (np.zeros((2, 2, 2)), "dim 3"),
        (3.0, "scalar"),
        ([], "1D array"),
        (np.zeros((0, 2)), r"0 sample"),
        (np.zeros((3, 0)), r"0 feature"),
        ([["a", "b"], ["c", "d"]], "could not convert string"),
        (np.array([[1.0, 2j], [1.0, 1.0]]), "[Cc]omplex"),
        ([[1.0, 2.0], [1.0]], "inhomogeneous"),
        (None, "None|array"),
    ],
)
def test_shapes_and_types(cls, data, message):
    with pytest.raises((ValueError, TypeError), match=message):
        cls().fit(data)


def test_sparse_where_it_makes_no_sense():
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        DPMixture().fit(sp.csr_array(np.eye(3)))
    with pytest.raises(TypeError, match="otherwise one of Bernoulli, Multinomial, Rel"):
        DPMixture(likelihood="poisson").fit(sp.csr_array(np.eye(3)))


def test_a_failed_fit_does_not_touch_an_earlier_one(fitted):
    estimator = fitted["gaussian"]
    labels = estimator.labels_
    estimator.set_params(n_draws=0)
    with pytest.raises(ValueError, match="n_draws"):
        estimator.fit(X)
    estimator.set_params(n_draws=12)
    assert estimator.labels_ is labels
    assert np.isfinite(estimator.score(X))


@pytest.mark.parametrize(
    "sampler, name",
    [
        (samplers.Gibbs(n_sweeps=10**30), "Gibbs.n_sweeps"),
        (samplers.PGSM(n_particles=10**30), "PGSM.n_particles"),
        (samplers.PGSM(gibbs_sweeps=10**30), "PGSM.gibbs_sweeps"),
        (samplers.SAMS(gibbs_sweeps=10**30), "SAMS.gibbs_sweeps"),
        (samplers.SplitMerge(n_restricted_scans=10**30), "SplitMerge.n_restricted_scans"),
    ],
)
def test_absurd_settings_of_samplers_are_refused(sampler, name):
    with pytest.raises(ValueError, match=f"{name} must be at most"):
        DPMixture(sampler=sampler).fit(X)


@pytest.mark.parametrize("X", [np.array(3.0), 3.0, [], [1.0, 2.0]], ids=repr)
def test_what_is_no_table_is_refused(X):
    with pytest.raises(ValueError, match="Expected 2D array"):
        DPMixture().fit(X)


def test_no_rows_are_refused_in_words_of_the_user():
    with pytest.raises(TypeError, match=r"^X is None, .*pass the rows$"):
        DPMixture().fit(None)
    with pytest.raises(TypeError, match=r"^DPMixture\.fit: missing a required argument: 'X'$"):
        DPMixture().fit()


def test_an_estimator_that_is_taken_for_labels_names_them():
    for name in ("shape", "max", "tolist"):
        assert not hasattr(DPMixture(), name)
        with pytest.raises(AttributeError, match="labels_ has the labels"):
            getattr(DPMixture(), name)
