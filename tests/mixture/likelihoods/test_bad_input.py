"""What a likelihood refuses, and that the message names the parameter, or the column and value."""

import re
from functools import reduce

import numpy as np
import pytest
import scipy.sparse as sp
from support.designs import everyday
from support.examples import examples_of
from support.kernels import bind
from support.probes import Probe

from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Relational,
)

COUNTS = np.array([[1.0, 0.0, 2.0], [0.0, 3.0, 1.0]])
BINARY = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
REALS = np.array([[0.5, -1.0, 2.0], [0.1, 3.0, 1.0], [0.0, 0.0, 4.0]])
GRAPH = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])

COVARIANCES = ("full", "diag", "tied", "spherical")


def with_entry(X, value, column, dtype=np.float64):
    X = np.array(X, dtype=dtype)
    X[1, column] = value
    return X


def positive(cls, name, X, **others):
    """A parameter that must be a positive number, given what is none."""
    for value in (0.0, -1.0, np.nan, np.inf, "1", None, True, [1.0, 2.0]):
        message = f"{cls.__name__}.{name} must be "
        yield pytest.param(cls(**{name: value}, **others), X, message, id=f"{message}{value!r}")


def bad_parameters():
    for cls, X, names in (
        (Poisson, COUNTS, ("shape", "rate")),
        (Bernoulli, BINARY, ("a", "b")),
        (Categorical, COUNTS, ("concentration",)),
        (Relational, GRAPH, ("a", "b")),
        (Multinomial, COUNTS, ("concentration",)),
    ):
        for name in names:
            for case in positive(cls, name, X):
                if case.values[0].get_params()[name] is not None:  # None: learned
                    yield case
    for covariance_type in COVARIANCES:
        for name in ("mean_precision", "df"):
            for case in positive(Gaussian, name, REALS, covariance_type=covariance_type):
                if case.values[0].get_params()[name] is not None:  # None: the default
                    yield case
    for likelihood, X, message in (
        (
            Bernoulli(a=[1.0, 0.0, 1.0]),
            BINARY,
            "Bernoulli.a must be finite and > 0 in every column",
        ),
        (Bernoulli(b=["1", "1", "1"]), BINARY, "Bernoulli.b must be a number or 3 numbers"),
        (Categorical(concentration=[1.0, np.nan, 1.0]), COUNTS, "concentration must be finite"),
        (Categorical(n_categories=0), COUNTS, "Categorical.n_categories must be at least 1"),
        (Categorical(n_categories=2.5), COUNTS, "Categorical.n_categories must be an integer"),
        (Categorical(n_categories="3"), COUNTS, "Categorical.n_categories must be an integer"),
        (Categorical(n_categories=[4, 4]), COUNTS, "or 3 integers, one per column of X"),
        (Categorical(n_categories=[4, 4, 0]), COUNTS, "at least 1 in every column"),
        (Categorical(n_categories=[4, 4.5, 4]), COUNTS, "or 3 integers"),
        (Relational(directed=1), GRAPH, "Relational.directed must be a bool, got 1"),
        (
            Gaussian(covariance_type="band"),
            REALS,
            "must be one of diag, full, sparse, spherical, tied; got 'band'",
        ),
        (
            Gaussian(covariance_type=None),
            REALS,
            "must be one of diag, full, sparse, spherical, tied; got",
        ),
        (
            Gaussian(scale=[1.0, 2.0, 1.0], covariance_type="spherical"),
            REALS,
            'Gaussian.scale must be a number with covariance_type="spherical"',
        ),
        (Gaussian(scale=-1.0, covariance_type="spherical"), REALS, "Gaussian.scale must be posi"),
        (Gaussian(df=2.0, covariance_type="tied"), REALS, "Gaussian.df must be finite and > 2"),
        (
            Gaussian(scale=np.ones((3, 3)), covariance_type="tied"),
            REALS,
            "Gaussian.scale must be positive definite",
        ),
        (Gaussian(df=2.0), REALS, "Gaussian.df must be finite and > 2, got 2.0"),
        (Gaussian(mean=[1.0, 2.0]), REALS, "Gaussian.mean must be finite, a number or one per"),
        (Gaussian(mean=np.nan), REALS, "Gaussian.mean must be finite"),
        (Gaussian(mean="zero"), REALS, "Gaussian.mean must be a number or one per column"),
        (Gaussian(scale=0.0), REALS, "Gaussian.scale must be positive"),
        (Gaussian(scale=[1.0, -2.0, 1.0]), REALS, "Gaussian.scale must be positive"),
        (Gaussian(scale=np.eye(2)), REALS, "Gaussian.scale must be finite, of shape (3, 3)"),
        (Gaussian(scale=np.triu(np.ones((3, 3)))), REALS, "Gaussian.scale must be symmetric"),
        (Gaussian(scale=np.ones((3, 3))), REALS, "Gaussian.scale must be positive definite"),
        (Gaussian(scale=np.diag([1.0, -1.0, 1.0])), REALS, "must be positive definite"),
        (Gaussian(scale=np.inf), REALS, "Gaussian.scale must be finite"),
        (
            Gaussian(scale=np.eye(3), covariance_type="diag"),
            REALS,
            'a number or a vector with covariance_type="diag"',
        ),
    ):
        yield pytest.param(likelihood, X, message, id=message)


@pytest.mark.parametrize(("likelihood", "X", "message"), list(bad_parameters()))
def test_bad_parameters(likelihood, X, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        likelihood.resolve(X)


def bad_rows():
    """(likelihood, good rows, bad rows, message): bad in `fit` and in `predict`."""
    for value, shown in ((2.0, "2"), (-1.0, "-1"), (0.5, "0.5"), (np.inf, "inf")):
        bad = with_entry(BINARY, value, 1)
        message = f"Bernoulli needs 0 or 1 {{}}; column 1 of X holds {shown}; make it NaN if it"
        yield Bernoulli(), BINARY, bad, message
    for value, shown in ((-1.0, "-1"), (0.5, "0.5"), (-np.inf, "-inf")):
        bad = with_entry(COUNTS, value, 2)
        message = f"Categorical needs integer codes from 0 {{}}; column 2 of X holds {shown}"
        message += "; make it NaN if it means missing, or use Gaussian for columns of other"
        yield Categorical(), COUNTS, bad, message
    bad = with_entry(COUNTS, 9.0, 1)
    for n_categories in (4, [2, 4, 9]):
        yield (
            Categorical(n_categories=n_categories),
            COUNTS,
            bad,
            ("column 1 of X holds the code 9, but its categories are 0 to 3"),
        )
    for value, shown in ((-1.0, "-1"), (0.5, "0.5"), (np.inf, "inf"), (-np.inf, "-inf")):
        bad = with_entry(COUNTS, value, 1)
        yield (
            Poisson(),
            COUNTS,
            bad,
            (
                f"Poisson needs nonnegative integer counts {{}}; column 1 of X holds {shown}; "
                "make it NaN if it means missing, or use Gaussian for columns of other numbers"
            ),
        )
        message = (
            f"Multinomial needs nonnegative integer counts; column 1 of X holds {shown}; count "
            "words, or use VonMisesFisher for weights such as tf-idf"
        )
        yield Multinomial(), COUNTS, bad, message
        yield Multinomial(), COUNTS, sp.csr_array(bad), message
        yield Multinomial(), sp.csr_array(COUNTS), sp.csr_matrix(bad), message
    bad = with_entry(COUNTS, np.nan, 0)
    message = "Multinomial needs nonnegative integer counts; column 0 of X holds nan"
    yield Multinomial(), COUNTS, bad, message
    yield Multinomial(), COUNTS, sp.csr_array(bad), message
    for cls in (Poisson, Multinomial):
        bad = with_entry(COUNTS, 2.0**53 + 2, 1)
        message = (
            "counts of at most 2**53 = 9007199254740992; column 1 of X holds 9.0072e+15; scale "
            "the column down"
        )
        yield cls(), COUNTS, bad, f"{cls.__name__} needs {message}"
    bad = with_entry(with_entry(COUNTS, 2.0**53 - 4, 1), 2.0**53 - 4, 2)
    yield Multinomial(), COUNTS, bad, "counts in row 1 of X add up to more than 2**53"
    for value, shown in ((2.0, "2"), (-1.0, "-1"), (0.5, "0.5"), (np.inf, "inf")):
        for directed in (True, False):
            bad = with_entry(GRAPH, value, 2)
            message = f"0, 1 or NaN (unobserved); column 2 of X holds {shown}"
            yield Relational(directed=directed), GRAPH, bad, f"Relational needs {message}"
            yield Relational(directed=directed), GRAPH, sp.csr_array(bad), message
    for covariance_type in COVARIANCES:
        likelihood = Gaussian(mean=-1e308, scale=1.0, covariance_type=covariance_type)
        bad = with_entry(REALS, 1e308, 1)
        yield likelihood, REALS[:, :1] * 0 - 1e308, bad, "column 1 of X holds values too large"


# The brackets of a message say that NaN is fine.
BAD_ROWS = [
    pytest.param(*case[:3], case[3].format("(NaN = missing)"), id=f"{number}: {case[3]}")
    for number, case in enumerate(bad_rows())
]


@pytest.mark.parametrize(("likelihood", "good", "bad", "message"), BAD_ROWS)
def test_bad_rows_in_fit(likelihood, good, bad, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        likelihood.resolve(bad).encode(bad)


@pytest.mark.parametrize(
    ("likelihood", "good", "bad", "message"),
    [case for case in BAD_ROWS if "instantiated" in case.values[0].capabilities],
)
def test_bad_rows_in_blocks(likelihood, good, bad, message):
    """Who visits the rows in blocks does not encode them. Rows count from the block's first."""
    message = message.replace("row 1", "row 0")
    with pytest.raises(ValueError, match=re.escape(message)):
        likelihood.resolve_summary(
            reduce(
                likelihood.merge_summaries,
                (likelihood.summarise(bad[i : i + 1]) for i in range(bad.shape[0])),
            )
        )


@pytest.mark.parametrize(("likelihood", "good", "bad", "message"), BAD_ROWS)
def test_bad_rows_in_predict(likelihood, good, bad, message):
    likelihood = likelihood.resolve(good)
    likelihood.encode(good)
    with pytest.raises(ValueError, match=re.escape(message)):
        likelihood.encode_new(bad)


def test_sums_of_counts_in_fit():
    """Statistics of clusters are sums over rows of `fit`; rows of `predict` are on their own."""
    X = np.vstack([with_entry(COUNTS, 2.0**52, 2)] * 3)
    for cls in (Poisson, Multinomial):
        with pytest.raises(ValueError, match=r"column 2 of X add up to more than 2\*\*53"):
            cls().resolve(X)
        assert cls().resolve(COUNTS).encode_new(X)
    X = np.full((2, 3), 2.0**51)
    with pytest.raises(ValueError, match="counts in the columns up to 2 of X add up"):
        Multinomial().resolve(X)
    assert Poisson().resolve(X)


def test_a_code_that_fit_has_not_seen():
    likelihood = Categorical(handle_unknown="error").resolve(COUNTS)
    with pytest.raises(
        ValueError,
        match=r"column 0 of X holds the code 2, but its categories are "
        r"0 to 1 \(from `fit`, or `n_categories`\)",
    ):
        likelihood.encode_new(with_entry(COUNTS, 2.0, 0))


def test_relational_shape_and_symmetry():
    with pytest.raises(ValueError, match=r"square adjacency matrix; X has shape \(2, 3\)"):
        Relational().resolve(GRAPH[:2])
    bad = with_entry(GRAPH, 0.0, 2)
    with pytest.raises(ValueError, match=r"the entries \(1, 2\) and \(2, 1\) differ"):
        Relational().resolve(bad)
    bad = with_entry(GRAPH, np.nan, 2)
    with pytest.raises(ValueError, match=r"the entries \(1, 2\) and \(2, 1\) differ"):
        Relational().resolve(bad)
    Relational(directed=True).resolve(bad)
    Relational().resolve(with_entry(GRAPH, 7.0, 1))  # the diagonal is ignored
    Relational().encode(with_entry(GRAPH, 7.0, 1))


def test_gaussian_variance_that_overflows():
    X = with_entry(REALS, 1e200, 2)
    for covariance_type in COVARIANCES:
        for scale in (None, 1.0):
            likelihood = Gaussian(scale=scale, covariance_type=covariance_type)
            with pytest.raises(ValueError, match="column 2 of X are so large that their variance"):
                likelihood.resolve(X).encode(X)
        # ... but a new row may lie there.
        Gaussian(covariance_type=covariance_type).resolve(REALS).encode_new(X)


@pytest.mark.filterwarnings("ignore:the grid of Grid is coarse")
@pytest.mark.parametrize(
    "value",
    everyday(
        [5e-324, 1e-300, 1e-160, 1e150, 1e160, 1e300, 1.7e308], 5e-324, 1e-160, 1e160, 1.7e308
    ),
)
@pytest.mark.parametrize("form", everyday(["column", "entry", "constant"], "column"))
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_extreme_columns(name, form, value):
    """Finite densities, or a ValueError that names the column; from blocks of rows as well."""
    cls = LIKELIHOODS[name]
    for likelihood, X in examples_of(cls):
        X = X.toarray() if sp.issparse(X) else X.copy()
        column = X.shape[1] - 1
        with np.errstate(over="ignore"):
            new = {"column": X[:, column] * value, "entry": X[:, column], "constant": value}
            X[:, column] = np.clip(new[form], -1.7e308, 1.7e308)
        if form == "entry":
            X[1, column] = value
        try:
            resolved = likelihood.resolve(X)
            data = resolved.encode(X)
        except ValueError as error:
            refusal = str(error)
        else:
            refusal = None
            model = bind(resolved, data, X.shape[0])
            if model.factorizes:
                probe = Probe(model, 3)
                slots = np.array([probe.acquire(), probe.acquire(), probe.acquire()])
                for i in range(X.shape[0]):
                    assert np.isfinite(probe.log_predictive_many(slots, i)).all()
                    probe.add(i % 2, i)
                assert np.isfinite(probe.log_likelihood(slots))
                for slot in (0, 1):
                    probe.refresh(slot)
                probe.merge(1, 0)
                assert np.isfinite(probe.log_marginal(1))
        if refusal is not None:
            assert (
                f"column {column}" in refusal
                or "columns up to" in refusal
                or (
                    name == "relational"  # every node is a column
                )
                or (name == "grid" and re.search(r"row \d+ .*block \d+", refusal))
            )
        if "instantiated" in likelihood.capabilities:
            try:
                summaries = [likelihood.summarise(block) for block in (X[:5], X[5:])]
                likelihood.resolve_summary(reduce(likelihood.merge_summaries, summaries))
            except ValueError as error:
                assert str(error) == refusal
            else:
                assert refusal is None


def test_what_is_allowed():
    """The borders, from the inside."""
    X = with_entry(COUNTS, 2.0**53 - 10, 1)
    for cls in (Poisson, Multinomial):
        assert cls().resolve(X).encode(X)
        assert cls().resolve(COUNTS).encode_new(X)
    missing = with_entry(COUNTS, np.nan, 1)
    for cls in (Poisson, Categorical):
        assert cls().resolve(missing).encode(missing)
    missing = with_entry(BINARY, np.nan, 1)
    assert Bernoulli().resolve(missing).encode(missing)
    missing = with_entry(REALS, np.nan, 1)
    for covariance_type in ("full", "diag", "tied", "spherical"):
        likelihood = Gaussian(covariance_type=covariance_type)
        assert likelihood.allow_nan
        assert likelihood.resolve(missing).encode(missing)
    for dtype in (bool, np.int32, np.float32):
        X = BINARY.astype(dtype)
        assert Multinomial().resolve(X).encode(X)


def test_all_columns_missing():
    X = np.full((3, 2), np.nan)
    for likelihood in (Poisson(), Bernoulli(), Categorical(), Gaussian(covariance_type="diag")):
        likelihood = likelihood.resolve(X)
        bind(likelihood, likelihood.encode(X), 3)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_parameters_are_checked_in_resolve_alone(name):
    """`__init__` only stores, as scikit-learn asks."""
    cls = LIKELIHOODS[name]
    for parameter in cls._get_param_names():
        marker = object()
        assert getattr(cls(**{parameter: marker}), parameter) is marker
