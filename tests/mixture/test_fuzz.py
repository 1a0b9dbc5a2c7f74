"""Nothing crashes: any array gives a fitted estimator with finite figures, or an error with a
message. Shapes, types, strides, byte orders, NaN, infinities, huge and tiny values."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from support.cases import CASES, NAMES, SPARSE, fit_case
from support.designs import combinations, everyday

from skdpm import DPMixture, FiniteMixture

DTYPES = [
    *(np.dtype(f"{kind}{size}") for kind in "iu" for size in (1, 2, 4, 8)),
    np.dtype(bool),
    np.dtype("f2"),
    np.dtype("f4"),
    np.dtype("f8"),
    np.dtype(np.longdouble),
    np.dtype("c8"),
    np.dtype("c16"),
    np.dtype(object),
    np.dtype("U8"),
    np.dtype("S8"),
]
EDGES = [
    0.0,
    -0.0,
    1.0,
    2.0,
    -1.0,
    0.5,
    1e-300,
    5e-324,
    -5e-324,
    2.2e-308,
    1e-160,
    1e-8,
    1e8,
    65504.0,
    2.0**31,
    2.0**53,
    2.0**63,
    1e22,
    1e100,
    1e154,
    -1e154,
    1e155,
    1e300,
    1.7e308,
    -1.7e308,
    np.nan,
    np.inf,
    -np.inf,
]


def entries(domain):
    """Values in which a likelihood is at home, with some that lie at the edge of doubles."""
    inside = {
        "gaussian": st.floats(-100, 100),
        "binary": st.sampled_from([0.0, 1.0]),
        "counts": st.integers(0, 30).map(float),
        "edges": st.sampled_from(EDGES),
        "any": st.floats(),
        "scaled": st.tuples(st.floats(-4, 4), st.integers(-320, 308)).map(
            lambda pair: pair[0] * float(f"1e{pair[1]}")
        ),
    }
    return inside[domain]


@st.composite
def arrays(draw, n_features=None):
    """A 2-D array, mostly; of any type, memory layout and byte order."""
    n = draw(st.integers(1, 7))
    d = n_features or draw(st.sampled_from([1, 1, 2, 3, 6]))
    if n_features is None and draw(st.integers(0, 3)) == 0:
        d = n  # for networks
    domain = draw(st.sampled_from(["gaussian", "binary", "counts", "edges", "any", "scaled"]))
    values = draw(st.lists(entries(domain), min_size=n * d, max_size=n * d))
    X = np.array(values, dtype=float).reshape(n, d)
    if draw(st.booleans()):
        rare = draw(st.lists(st.sampled_from(EDGES), min_size=1, max_size=2))
        for value in rare:
            X[draw(st.integers(0, n - 1)), draw(st.integers(0, d - 1))] = value
    if draw(st.integers(0, 3)) == 0:
        X[:, draw(st.integers(0, d - 1))] = draw(st.sampled_from(EDGES))  # a constant column
    if draw(st.integers(0, 3)) == 0:
        X[:] = X[0]  # duplicates
    if draw(st.integers(0, 3)) == 0 and n == d:
        X = np.triu(X) + np.triu(X, 1).T
    dtype = draw(st.one_of(st.just(np.dtype(float)), st.sampled_from(DTYPES)))
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        X = X.astype(dtype)
    layout = draw(
        st.sampled_from(["C", "F", "strided", "reversed", "swapped", "read-only", "list"])
    )
    if layout == "F":
        X = np.asfortranarray(X)
    elif layout == "strided":
        X = np.repeat(np.repeat(X, 2, axis=0), 3, axis=1)[::2, ::3]
    elif layout == "reversed":
        X = X[::-1, ::-1]
    elif layout == "swapped" and dtype.kind in "iufc":
        X = X.astype(dtype.newbyteorder())
    elif layout == "read-only":
        X.flags.writeable = False
    elif layout == "list":
        X = X.tolist()
    return X


@st.composite
def estimators(draw, name):
    likelihood = type(fit_case(name).likelihood)()
    if name == "gaussian_diag":
        likelihood.set_params(covariance_type="diag")
    elif name == "relational_directed":
        likelihood.set_params(directed=True)
    if draw(st.booleans()):
        return FiniteMixture(
            draw(st.sampled_from([1, 3])),
            likelihood=likelihood,
            concentration=draw(st.sampled_from([None, 1e-8, 1.0, 1e6])),
        )
    return DPMixture(
        likelihood=likelihood,
        concentration=draw(st.sampled_from([None, 1e-8, 1.0, 1e6])),
        discount=draw(st.sampled_from([0.0, 0.5])),
        init=draw(st.sampled_from(["single", "singletons", "kmeans"])),
    )


class Refused(Exception):
    """The estimator said why not."""


def _or_refusal(function, *args):
    """Its value; `Refused` where it raises a ValueError or a TypeError with a message.

    All other errors and all warnings but that about convergence come through.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", "a single column of categories")
        warnings.filterwarnings("ignore", ".*in the rows of fit, but not in all rows")
        warnings.filterwarnings("ignore", "all entries of X are (missing|0)")
        warnings.filterwarnings("ignore", "X has no entries in column")
        warnings.filterwarnings("ignore", "Categorical: a column of codes holds")
        warnings.filterwarnings("ignore", "labels_ has .* clusters; X has . rows")
        try:
            return function(*args)
        except (ValueError, TypeError) as error:
            if isinstance(error, UnicodeError) or len(str(error)) < 10:
                raise
            raise Refused(str(error)) from error


def _of_known_columns(value, X):
    """A parameter of clusters without columns of X that have no entry: Gaussians leave these out,
    with parameters NaN."""
    known = np.ones(0, dtype=bool)
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        known = ~np.isnan(X).all(axis=0)
    for axis in range(1, np.ndim(value)):
        if value.shape[axis] == len(known):
            value = np.compress(known, value, axis=axis)
    return value


def check_fit(estimator, X, X_new):
    """Whether the fit went through."""
    estimator.set_params(n_warmup=2, n_draws=4, n_chains=1, random_state=0)
    try:
        _or_refusal(estimator.fit, X)
    except Refused:
        return False
    n = X.shape[0] if hasattr(X, "shape") else len(X)
    K = estimator.n_clusters_
    assert np.isfinite(estimator.log_joint_samples_).all()
    assert np.isfinite(estimator.concentration_samples_).all()
    assert np.isfinite(estimator.weights_).all()
    assert estimator.labels_.shape == (n,)
    for name, value in estimator.cluster_params_.items():
        assert not np.isnan(_of_known_columns(value, X)).any(), name
    # Rows of the fit, or as many new nodes, always have a density.
    if estimator.likelihood.pairwise:
        X = without_diagonal(X)  # `fit` ignores it, to new nodes it is a link like any other
    scores = _score(estimator, X)
    assert np.isfinite(scores).all(), scores
    probabilities = estimator.predict_proba(X)
    assert probabilities.shape == (n, K)
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-9
    try:
        scores = _or_refusal(estimator.score_samples, X_new)
        probabilities = _or_refusal(estimator.predict_proba, X_new)
    except Refused:
        return True
    assert not np.isnan(scores).any() and (scores < np.inf).all()
    assert np.abs(probabilities.sum(axis=1) - 1).max() < 1e-9
    return True


def without_diagonal(X):
    X = X.toarray() if sp.issparse(X) else np.array(X)
    if X.dtype.kind in "SUO":
        X = X.astype(float)
    np.fill_diagonal(X, 0)
    return X


def _score(estimator, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return estimator.score_samples(X)


# Half of the examples of a profile.
SETTINGS = settings(
    max_examples=settings.default.max_examples // 2,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.parametrize("name", everyday(NAMES, "gaussian", "categorical", "relational"))
@SETTINGS
@given(data=st.data())
@pytest.mark.some(1)
@pytest.mark.long
def test_any_array(name, data):
    X = data.draw(arrays())
    n_features = np.shape(X)[1] if np.ndim(X) == 2 else None
    check_fit(data.draw(estimators(name)), X, data.draw(arrays(n_features=n_features)))


@pytest.mark.parametrize("name", [name for name in NAMES if name in SPARSE])
@SETTINGS
@given(data=st.data())
@pytest.mark.some(2)
@pytest.mark.long
def test_any_sparse_matrix(name, data):
    n = data.draw(st.integers(1, 6))
    d = n if name.startswith("rel") else data.draw(st.integers(1, 4))
    form = data.draw(st.sampled_from([sp.csr_array, sp.csc_matrix, sp.coo_array]))
    entry = data.draw(st.sampled_from(["binary", "counts", "edges"]))
    nnz = data.draw(st.integers(0, 8))
    rows = data.draw(st.lists(st.integers(0, n - 1), min_size=nnz, max_size=nnz))
    columns = data.draw(st.lists(st.integers(0, d - 1), min_size=nnz, max_size=nnz))
    values = np.array(data.draw(st.lists(entries(entry), min_size=nnz, max_size=nnz)))
    if name == "relational":  # symmetric, and entries given twice as in any COO matrix
        rows, columns, values = rows + columns, columns + rows, np.append(values, values)
    X = form(sp.coo_array((values, (rows, columns)), shape=(n, d)))
    check_fit(data.draw(estimators(name)), X, X)


@pytest.mark.parametrize("name", everyday(NAMES, "gaussian", "categorical", "relational"))
@SETTINGS
@given(data=st.data())
@pytest.mark.some(1)
@pytest.mark.long
def test_rows_of_its_own_domain(name, data):
    """The same with data that must be accepted: a refusal is an error here."""
    case = CASES[name]
    n, d = data.draw(st.integers(1, 7)), data.draw(st.integers(*case.columns))
    if case.cls().pairwise:
        d = n
    X = np.array(data.draw(st.lists(case.entries, min_size=n * d, max_size=n * d)))
    X = case.finish(X.reshape(n, d))
    estimator = data.draw(estimators(name))
    if estimator.get_params().get("init") == "kmeans":
        estimator.set_params(init="singletons")
    assert check_fit(estimator, X, X)


@combinations(
    covariance_type=["full", "diag"],
    exponent=[-320, -300, -200, -160, -100, -20, 20, 100, 140, 150, 153],
)
def test_gaussian_rows_on_every_scale(covariance_type, exponent):
    """Defaults follow the data: what changes is the log joint, by the Jacobian."""
    from skdpm.mixture.likelihoods import Gaussian

    rng = np.random.default_rng(0)
    for d in (1, 3):
        X = rng.normal(size=(12, d)) * float(f"1e{exponent}")
        estimator = DPMixture(likelihood=Gaussian(covariance_type=covariance_type))
        fitted = check_fit(estimator, X, X * 2)
        if -150 <= exponent <= 140:
            assert fitted
