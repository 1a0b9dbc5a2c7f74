"""Data frames, and arrays of objects, whose columns are of different types."""

import io
import pathlib
import pickle
import re
import warnings
from datetime import time, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy.stats import skew, spearmanr
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.datasets import load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from support.designs import everyday

from skdpm import DPMixture, FeatureAllocation, MixtureImputer, suggest_likelihood
from skdpm._tables import as_table
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Subspace,
    VonMisesFisher,
)
from skdpm.mixture.likelihoods.laws.columns import (
    SKEWED,
    SLIGHTLY_SKEWED,
    Skewed,
    Spike,
    doubtful_columns,
    skewed_columns,
    spiked_columns,
)
from skdpm.mutations import mutation_design

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_warmup": 5, "n_draws": 6, "n_chains": 1, "random_state": 0}
TWO_CHAINS = {**FAST, "n_chains": 2}
N = 60
RNG = np.random.default_rng(0)
Z = np.arange(N) % 3


def noisy(values, share=0.1):
    return np.where(RNG.random(N) < share, RNG.permutation(values), values)


def holes(values, missing):
    """The values in a list, with a sign for missing ones in two places."""
    values = list(values)
    values[4] = values[11] = missing
    return values


TABLE = pd.DataFrame(
    {
        "age": holes(RNG.normal(size=N) + 4.0 * Z, np.nan),
        "town": pd.Series(holes(noisy(np.array(["Rome", "Oslo", "Bonn"])[Z]), None)),
        "size": pd.Categorical(
            holes(noisy(np.array(["small", "large", "tiny"])[Z]), None),
            categories=["tiny", "small", "large", "huge"],
        ),
        "owner": pd.array(holes(noisy(Z == 1), pd.NA), dtype="boolean"),
        "member": noisy(Z == 2),
    }
)
NUMBERS = pd.DataFrame(
    {
        "age": TABLE["age"],
        "town": holes(
            pd.Series(TABLE["town"].fillna("Rome")).map({"Bonn": 0, "Oslo": 1, "Rome": 2}), np.nan
        ),
        "size": TABLE["size"].cat.codes.replace(-1, np.nan).astype(float),
        "owner": TABLE["owner"].astype("Float64").to_numpy(dtype=float, na_value=np.nan),
        "member": TABLE["member"].astype(float),
    }
)
PRODUCT = Product(
    [
        ("num", Gaussian(covariance_type="diag"), ["age"]),
        ("cat", Categorical(), ["size", "town"]),
        ("flags", Bernoulli(), make_column_selector("owner|member")),
    ]
)


def assert_same_fit(one, other):
    np.testing.assert_array_equal(one.label_samples_, other.label_samples_)
    np.testing.assert_array_equal(one.log_joint_samples_, other.log_joint_samples_)
    np.testing.assert_array_equal(one.labels_, other.labels_)


# Categories.


@pytest.mark.parametrize(
    "X",
    [
        TABLE[["town", "size"]],
        TABLE[["town", "size"]].astype({"town": object}),
        TABLE[["town", "size"]].astype({"town": "string"}),
        TABLE[["town", "size"]].astype({"town": "category"}),
    ],
    ids=["strings", "objects", "string dtype", "category dtype"],
)
def test_categories_are_their_codes(X):
    codes = NUMBERS[["town", "size"]].to_numpy()
    likelihood = Categorical(n_categories=[3, 4])
    one = DPMixture(likelihood=likelihood, **FAST).fit(codes)
    other = DPMixture(likelihood=Categorical(), **FAST).fit(X)
    assert_same_fit(one, other)
    assert other.likelihood_.n_categories.tolist() == [3, 4]
    town, size = other.likelihood_.categories_
    assert town.tolist() == ["Bonn", "Oslo", "Rome"]
    assert size.tolist() == ["tiny", "small", "large", "huge"]
    np.testing.assert_array_equal(other.predict_proba(X), one.predict_proba(codes))


@pytest.mark.parametrize("kind", [object, str])
def test_arrays_of_strings(kind):
    X = TABLE[["town", "size"]].dropna().to_numpy(dtype=object).astype(kind)
    mixture = DPMixture(likelihood="categorical", **FAST).fit(X)
    # Sorted, as there is no type that says otherwise.
    assert [c.tolist() for c in mixture.likelihood_.categories_] == [
        ["Bonn", "Oslo", "Rome"],
        ["large", "small", "tiny"],
    ]
    expected = DPMixture(likelihood="categorical", **FAST).fit(OrdinalEncoder().fit_transform(X))
    assert_same_fit(mixture, expected)
    assert_same_fit(mixture, DPMixture(likelihood="categorical", **FAST).fit(X.tolist()))
    rows, _ = mixture.sample(5)
    assert rows.dtype == object
    assert set(rows[:, 0]) <= {"Bonn", "Oslo", "Rome"}


def test_categories_at_predict_are_those_of_fit():
    """Whatever their order in the type, or among the values, of new rows."""
    X = TABLE[["town", "size"]]
    mixture = DPMixture(likelihood="categorical", **FAST).fit(X)
    expected = mixture.score_samples(X)
    other = X.assign(
        size=X["size"].cat.reorder_categories(["huge", "large", "small", "tiny"]),
        town=pd.Categorical(X["town"], categories=["Rome", "Paris", "Oslo", "Bonn"]),
    )
    np.testing.assert_array_equal(mixture.score_samples(other), expected)
    few = np.flatnonzero(X["town"] == "Rome")
    np.testing.assert_array_equal(mixture.score_samples(X.iloc[few]), expected[few])
    np.testing.assert_array_equal(mixture.score_samples(X.astype(object)), expected)
    again = pickle.loads(pickle.dumps(mixture))
    np.testing.assert_array_equal(again.score_samples(other), expected)


@pytest.mark.filterwarnings("ignore:Categorical.*('Paris'|codes holds 7)")
@pytest.mark.parametrize("kind", ["table", "select", "noise", "codes"])
@pytest.mark.long
def test_new_categories_have_the_probability_of_the_rule_of_succession(kind):
    """That of known categories sums to the rest; clusters are those of rows with a gap."""
    likelihood, X, towns = clone(PRODUCT), TABLE, ["Rome", "Oslo", "Bonn", "Paris"]
    if kind == "select":
        likelihood.set_params(select=True)
    if kind == "codes":
        likelihood, X, towns = Categorical(), NUMBERS[["size", "town"]], [0.0, 1.0, 2.0, 7.0]
    mixture = DPMixture(likelihood=likelihood, noise=kind == "noise" or None, **TWO_CHAINS).fit(X)
    # The last rows have gaps: in the town alone, and in the age, too.
    rows = X.iloc[[0, 1, 2, 11]]
    new, gap = rows.assign(town=towns[-1]), rows.assign(town=np.nan if kind == "codes" else None)
    n_known = np.count_nonzero(X["town"].notna())
    scores = mixture.score_samples(gap)
    odds = [np.exp(mixture.score_samples(rows.assign(town=t)) - scores) for t in towns]
    np.testing.assert_allclose(odds[-1], 1.0 / (n_known + 2.0), rtol=1e-9)
    np.testing.assert_allclose(np.sum(odds, axis=0), 1.0, rtol=1e-9)
    np.testing.assert_array_equal(mixture.predict(new), mixture.predict(gap))
    np.testing.assert_allclose(mixture.predict_proba(new), mixture.predict_proba(gap), rtol=1e-9)
    given = mixture.score_samples(new, given=["town"])
    np.testing.assert_allclose(given, scores, rtol=1e-9)
    assert (mixture.outlier_scores(new) > mixture.outlier_scores(gap)).all()
    if kind == "codes":
        for value in (-1.0, 7.5):
            with pytest.raises(ValueError, match=r"integer codes.*column 'town' of X"):
                mixture.score_samples(rows.assign(town=value))
    completed = mixture.impute(new)
    assert (completed["town"] == towns[-1]).all() and completed.notna().all(axis=None)


def test_folds_with_new_categories_have_scores():
    X = TABLE.assign(town=[*TABLE["town"][:-1], "Paris"])
    with pytest.warns(UserWarning, match="column 'town' of X holds 'Paris'") as caught:
        scores = cross_val_score(DPMixture(likelihood="mixed", **FAST), X, cv=3)
    assert np.isfinite(scores).all()
    assert sum("'Paris'" in str(warning.message) for warning in caught) == 1


def test_new_codes_are_named():
    X = np.random.default_rng(0).integers(3, size=(30, 4)).astype(float)
    parts = [("a", Gaussian(mean_precision=0.1), [3]), ("b", Categorical(), [0, 2])]
    model = DPMixture(likelihood=Product([*parts, ("c", Poisson(), [1])]), **FAST).fit(X)
    model.predict(X)
    X[4, 2] = 7.0
    with pytest.warns(UserWarning, match="a column of codes holds 7, a value that was not"):
        model.predict(X)


def test_messages_show_strings_of_numpy_as_strings():
    """Rows of an array of strings, in a list, hold np.str_."""
    X = TABLE[["town", "size"]]
    mixture = DPMixture(likelihood=Categorical(), **FAST).fit(X.to_numpy(dtype=object))
    rows = [[np.str_("Paris"), np.str_(X["size"][0])]]
    with pytest.warns(UserWarning, match="column 0 of X holds 'Paris'"):
        mixture.predict(rows)
    mixture = DPMixture(likelihood=Product([("ages", Gaussian(), [0])]), **FAST)
    with pytest.raises(ValueError, match=r"string to float: 'Paris', in column 0 of X"):
        mixture.fit(rows * 5)
    with pytest.raises(ValueError, match=r"columns: X has no column 'age'"):
        DPMixture(likelihood="mixed", **FAST).fit(X).predict_columns(X, np.array(["age"]))


@pytest.mark.slow
def test_unknown_categories():
    X = TABLE[["town", "size"]]
    new = X.iloc[:3].assign(town=["Paris", "Rome", None])
    likelihood = Categorical(handle_unknown="missing")
    mixture = DPMixture(likelihood=clone(likelihood), **FAST).fit(X)
    scores = mixture.score_samples(new.assign(town=[None, "Rome", None]))
    np.testing.assert_array_equal(mixture.score_samples(new), scores)
    mixture.set_params(likelihood__handle_unknown="error").fit(X)
    with pytest.raises(ValueError, match=r"column 'town' of X holds 'Paris'.*handle_unknown"):
        mixture.predict(new)
    # Codes in the same way.
    codes = NUMBERS[["town", "size"]].to_numpy()
    beyond, hole = codes[:2].copy(), codes[:2].copy()
    beyond[0, 1], hole[0, 1] = 7.0, np.nan
    for sampler in ("gibbs", "sub_cluster"):
        mixture = DPMixture(likelihood=likelihood, sampler=sampler, **FAST).fit(codes)
        np.testing.assert_array_equal(mixture.score_samples(beyond), mixture.score_samples(hole))
    with pytest.raises(ValueError, match=r"column 1 of X holds the code 7.*handle_unknown"):
        DPMixture(likelihood=Categorical(handle_unknown="error"), **FAST).fit(codes).predict(
            beyond
        )
    given = Categorical(n_categories=3, handle_unknown="missing")
    for sampler in ("gibbs", "sub_cluster"):
        one, other = (
            DPMixture(likelihood=given, sampler=sampler, **FAST).fit(rows)
            for rows in (codes, np.where(codes >= 3, np.nan, codes))
        )
        np.testing.assert_array_equal(one.labels_, other.labels_)
        np.testing.assert_array_equal(one.score_samples(codes), other.score_samples(codes))


def test_streams_of_tables():
    mixture = DPMixture(likelihood=PRODUCT, sampler="smc", random_state=0, n_draws=4, n_chains=2)
    mixture.partial_fit(TABLE.iloc[:40]).partial_fit(TABLE.iloc[40:])
    assert mixture.n_samples_seen_ == N
    with pytest.raises(ValueError, match="column 'town' of X holds 'Paris'"):
        mixture.partial_fit(TABLE.iloc[:2].assign(town="Paris"))
    assert mixture.n_samples_seen_ == N


def test_streams_of_mixed_columns():
    """Types are those of the first batch: pandas has another one for a column without entries."""
    mixture = DPMixture(
        likelihood="mixed", sampler="smc", random_state=0, n_draws=4, n_chains=2
    ).partial_fit(TABLE.iloc[:40])
    mixture = pickle.loads(pickle.dumps(mixture))
    empty = TABLE.iloc[40:45].assign(owner=None, age=None)
    whole = mixture.partial_fit(empty).partial_fit(TABLE.iloc[45:])
    assert whole.n_samples_seen_ == N
    with pytest.raises(ValueError, match="now missing:\n- member"):
        whole.partial_fit(TABLE.iloc[:2].drop(columns="member"))
    with pytest.raises(ValueError, match="but likelihood changed"):
        whole.set_params(likelihood=PRODUCT).partial_fit(TABLE.iloc[:2])


# Products.


@pytest.mark.slow
def test_a_product_of_a_data_frame():
    longer = {**TWO_CHAINS, "n_warmup": 40, "n_draws": 40}
    mixture = DPMixture(likelihood=PRODUCT, **longer).fit(TABLE)
    assert adjusted_rand_score(Z, mixture.labels_) > 0.9
    assert mixture.feature_names_in_.tolist() == list(TABLE.columns)
    assert mixture.n_features_in_ == 5
    columns = clone(PRODUCT).set_params(cat__n_categories=[4, 3])
    numbers = DPMixture(likelihood=columns, **longer).fit(NUMBERS)
    assert_same_fit(mixture, numbers)
    np.testing.assert_array_equal(mixture.predict(TABLE), numbers.predict(NUMBERS))
    with pytest.raises(ValueError, match="feature names"):
        mixture.predict(TABLE[TABLE.columns[::-1]])
    with pytest.raises(ValueError, match="feature names"):
        mixture.predict(TABLE.drop(columns="town"))
    rows, labels = mixture.sample(20)
    assert isinstance(rows, pd.DataFrame)
    assert set(rows["town"]) <= {"Rome", "Oslo", "Bonn"}
    assert rows["age"].dtype == np.float64
    assert mixture.predict(rows).shape == labels.shape
    assert mixture.pointwise_log_likelihood(TABLE).shape == (2, 40, N)
    blocks = DPMixture(likelihood=PRODUCT, sampler="sub_cluster", **TWO_CHAINS).fit(TABLE)
    assert np.isfinite(blocks.score_samples(TABLE)).all()


@pytest.mark.parametrize("likelihood", ["mixed", Categorical()], ids=["mixed", "categories"])
@pytest.mark.long
def test_chains_of_a_table_are_left_out(likelihood):
    X = TABLE if likelihood == "mixed" else TABLE[["town", "size"]]
    mixture = DPMixture(likelihood=likelihood, **{**TWO_CHAINS, "n_chains": 3}).fit(X)
    two = DPMixture(likelihood=likelihood, **TWO_CHAINS).fit(X)
    assert_same_fit(mixture.drop_chains(2, X), two)
    np.testing.assert_array_equal(mixture.predict(X), two.predict(X))


def test_names_of_columns():
    likelihood = Product(
        [("cat", Categorical(), slice("town", "size")), ("age", Gaussian(), "age")]
    )
    X = TABLE.dropna()
    fitted = DPMixture(likelihood=likelihood, **FAST).fit(X).likelihood_
    assert fitted.cat__n_categories.tolist() == [3, 4]
    with pytest.raises(ValueError, match="part 'x': X has no column 'weight'"):
        DPMixture(likelihood=Product([("x", Gaussian(), ["weight"])])).fit(X)
    with pytest.raises(ValueError, match="float: 'Rome', in column 'town' of X; use Categorical"):
        DPMixture(likelihood=Product([("x", Gaussian(), ["age", "town"])])).fit(X)
    with pytest.raises(ValueError, match=r"NaN in column 'age' of X \(part 'x'\); use Gaussian"):
        DPMixture(likelihood=Product([("x", Subspace(), ["age", "member"])])).fit(TABLE)
    counts = TABLE.assign(age=-1.0)
    with pytest.raises(ValueError, match=r"column 'age' of X holds -1 \(part 'x'\)"):
        DPMixture(likelihood=Product([("x", Poisson(), ["age"])])).fit(counts)


def test_a_pipeline():
    mixture = DPMixture(likelihood=PRODUCT, **FAST)
    whole = make_pipeline(FunctionTransformer(lambda X: X), mixture).fit(TABLE)
    assert whole.predict(TABLE).shape == (N,)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pd.Series([1, 2]), "integer"),
        (pd.Series([1, pd.NA], dtype="UInt8"), "integer"),
        (pd.Series([1.0, pd.NA], dtype="Float64"), "float"),
        (pd.Series([True, None]), "bool"),
        (pd.Series([True, None], dtype="boolean"), "bool"),
        (pd.Series([1, None], dtype=object), "integer"),
        (pd.Series([1, 2.5, None], dtype=object), "float"),
        (pd.Series([None, None], dtype=object), "float"),
        (pd.Series(["a", None], dtype=object), "category"),
        (pd.Series(["a", None], dtype="string"), "category"),
        (pd.Series(["a", "b"]), "category"),
        (pd.Series([1, 2], dtype="category"), "category"),
        (pd.Series(pd.to_datetime(["2020-01-01"])), "dates"),
        (pd.Series([{1}, {2}]), "set"),
    ],
)
def test_kinds_of_columns(column, kind):
    assert as_table(column.to_frame()).column(0).kind == kind


@pytest.mark.long
def test_columns_that_follow_from_another_one_are_left_out():
    """By values, whatever their units, signs and names, and only if there are enough rows."""
    rng = np.random.default_rng(0)
    a, city, flag = rng.normal(size=40), rng.choice(["x", "y", "w"], 40), rng.random(40) < 0.5
    X = pd.DataFrame({"a": a, "city": city, "flag": flag, "near": a + 1e-3 * rng.normal(size=40)})
    X["gap"] = X["a"].where(np.arange(40) > 0)
    X["coarse"] = X["city"].map({"x": "p", "y": "p", "w": "q"})
    copies = pd.DataFrame(
        {"b": 3.0 - 2.54 * a, "town": X["city"].map({"x": "u", "y": "v", "w": "t"})}
    )
    copies["not"] = ~X["flag"]
    copies["gap2"] = X["gap"] * 7.0
    table = pd.concat([X, copies], axis=1)
    words = "- column 'b': follows from column 'a', so it would count twice"
    with pytest.warns(UserWarning, match=re.escape(words)) as caught:
        parts = suggest_likelihood(table).parts
    named = re.findall("column '(.*)': follows from column '(.*)',", str(caught[0].message))
    assert named == [("b", "a"), ("town", "city"), ("not", "flag"), ("gap2", "gap")]
    assert sorted(name for _, _, columns in parts for name in columns) == sorted(X.columns)
    everyday_fit = {"n_chains": 1, "n_warmup": 3, "n_draws": 3, "random_state": 0}
    with pytest.warns(UserWarning, match="which divides clusters: leave them out") as caught:
        DPMixture(likelihood="mixed", **everyday_fit).fit(table)
    # Covariances describe those of numbers.
    named = re.findall("column '(.*)': follows from column '(.*)',", str(caught[0].message))
    assert named == [("town", "city"), ("not", "flag")]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        warnings.filterwarnings("error", message="columns of X follow")
        DPMixture(likelihood="mixed", **everyday_fit).fit(X)
        DPMixture(likelihood="mixed", **everyday_fit).fit(table[:29])


def test_groups_of_categories_follow_from_these_unless_by_chance():
    rng = np.random.default_rng(0)
    town = rng.integers(12, size=300)
    X = pd.DataFrame({"region": np.array(list("NSE"))[town % 3], "town": [f"t{k}" for k in town]})
    X["rare"] = np.where(town == 5, "yes", "no")
    X["name"] = [f"n{k}" for k in rng.permutation(300) // 2]  # hardly a name is twice
    X["of_names"] = np.where(X["name"].str[-1].isin(["1", "2"]), "u", "v")
    X.loc[:9, "region"] = None
    X["moved"] = X["region"].where(np.arange(300) > 20, "E")
    X["size"] = np.where(np.isin(X["region"], ["N", "S"]), "big", "small")  # a group of one region
    words = (
        "- column 'region' and column 'rare': follows from column 'town', so it would count twice"
    )
    with pytest.warns(UserWarning, match=re.escape(words)) as caught:
        suggest_likelihood(X)
    named = re.findall("column '(.*)': follows from column '(.*)',", str(caught[0].message))
    assert named == [("region' and column 'rare", "town"), ("of_names", "name")]
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*follows from")
        suggest_likelihood(X[["region", "town"]][:99])
        suggest_likelihood(X[["region", "size", "moved"]])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.long
def test_ranges_of_a_number_follow_from_it(seed):
    """But not categories with another order, the clusters of a number, or a rare one by chance."""
    rng = np.random.default_rng(seed)
    age = rng.normal(size=300) + 30.0 * (kind := rng.choice(2, 300))
    X = pd.DataFrame({"age": age, "whole": np.rint(5.0 * age), "even": rng.random(300)})
    X["bins"] = pd.cut(age, [-99.0, -0.5, 0.5, 29.5, 99.0], labels=list("xyzw")).astype(str)
    X["typed"] = pd.qcut(X["whole"], 5).cat.rename_categories(list("edcba"))
    X["is_high"] = age > np.quantile(age, 0.8)
    X["gappy"] = X["bins"].where(rng.random(300) < 0.7)
    X["kind"] = np.array(["p", "q"])[kind]
    X["first"] = X["even"] == X["even"].min()
    X["moved"] = X["bins"].where(age < age.max(), "x")
    with pytest.warns(UserWarning, match="column 'bins'.* from column 'age', so"):
        product = suggest_likelihood(X)
    used = {name for _, _, columns in product.parts for name in columns}
    assert used == {"age", "whole", "even", "kind", "first", "moved"}
    named = r"twice, which divides clusters: leave them out\n- column 'is_high': [^']*'age'[^']*$"
    with pytest.warns(UserWarning, match=named):
        DPMixture(likelihood="mixed", **TWO_CHAINS).fit(X[["age", "is_high", "kind"]])


def test_one_row_elsewhere_makes_categories_more_than_ranges():
    for row in range(3):  # not of every third row alone
        number = np.random.default_rng(0).normal(size=5000)
        is_high = (number > 0.0) != (np.arange(5000) == row)
        product = suggest_likelihood(pd.DataFrame({"number": number, "is_high": is_high}))
        assert [list(columns) for _, _, columns in product.parts] == [["number"], ["is_high"]]


def test_columns_that_no_likelihood_takes():
    time = pd.DataFrame({"age": [1.0, 2.0], "when": pd.to_datetime(["2020-01-01"] * 2)})
    for likelihood in (Categorical(), Product([("x", Gaussian(), ["age", "when"])])):
        with pytest.raises(ValueError, match="column 'when' of X holds dates"):
            DPMixture(likelihood=likelihood).fit(time)
    with pytest.raises(ValueError, match="column 'a' of X holds values that have no order"):
        DPMixture(likelihood="categorical").fit(pd.DataFrame({"a": ["x", 1], "b": ["x", "y"]}))
    assert as_table(np.eye(2)) is None
    assert as_table([[1, 2]]) is None
    assert as_table(pd.Series([1.0])) is None


# "mixed".


@pytest.mark.long
def test_mixed_chooses_by_type():
    mixture = DPMixture(likelihood="mixed", **TWO_CHAINS).fit(TABLE)
    assert [
        (name, type(part).__name__, columns) for name, part, columns in mixture.likelihood_.parts
    ] == [
        ("numeric", "Gaussian", [0]),
        ("boolean", "Bernoulli", [3, 4]),
        ("categorical", "Categorical", [1, 2]),
    ]
    assert mixture.likelihood_.numeric__covariance_type == "diag"
    by_hand = Product(
        [
            ("numeric", Gaussian(covariance_type="diag"), ["age"]),
            ("boolean", Bernoulli(), ["owner", "member"]),
            ("categorical", Categorical(), ["town", "size"]),
        ]
    )
    assert_same_fit(mixture, DPMixture(likelihood=by_hand, **TWO_CHAINS).fit(TABLE))
    assert mixture.__sklearn_tags__().input_tags.allow_nan
    X = NUMBERS[["age"]].to_numpy() ** [1.0, 2.0]
    parts = DPMixture(likelihood="mixed", **TWO_CHAINS).fit(X).likelihood_.parts
    assert [part[0] for part in parts] == ["numeric"]
    stream = DPMixture(likelihood="mixed", sampler="smc", random_state=0, n_draws=4, n_chains=2)
    assert stream.partial_fit(TABLE[:40]).partial_fit(TABLE[40:]).n_samples_seen_ == N
    warm = DPMixture(likelihood="mixed", warm_start=True, **TWO_CHAINS).fit(TABLE)
    assert warm.set_params(n_draws=8).fit(TABLE).label_samples_.shape == (2, 8, N)


def refusal(X):
    """Lines of the refusal of "mixed" about columns, by their names; and the proposed code."""
    with pytest.raises(ValueError, match='likelihood="mixed" does not guess') as caught:
        DPMixture(likelihood="mixed", **FAST).fit(X)
    found, _, code = str(caught.value).partition("\nPass a Product")
    lines = {}
    for line in found.split("\n- ")[1:]:
        columns, _, words = re.sub(" of X ha(s|ve) ", ": ", line).partition(": ")
        for name in re.findall(r"column '?([^',]*\w)'?(?:,| and|$)", columns):
            lines[name] = f"{lines[name]}; {words}" if name in lines else words
    return lines, code.partition(":\n")[2]


def customers(n=300):
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    return pd.DataFrame(
        {
            "id": [f"C{i:05}" for i in range(n)],
            "row": np.arange(n),
            "signup": pd.Timestamp("2020-01-01") + days,
            "member": days,
            "note": [" ".join(rng.choice(list("abcdefgh"), 6)) for _ in range(n)],
            "sent": [f"2024-{i // 28 + 1:02}-{i % 28 + 1:02}" for i in range(n)],
            "typed": [f"{value:.4f}" for value in rng.normal(size=n)],
            "visits": rng.poisson(4.0, n),
            "stays": np.where(rng.random(n) < 0.1, np.nan, rng.poisson(4.0, n)),
            "stars": pd.array(rng.integers(1, 6, n), dtype="Int64"),
            "age": np.where(rng.random(n) < 0.1, np.nan, rng.integers(18, 90, n)),
            "income": rng.lognormal(10.0, 1.0, n),
            "gifts": np.where(rng.random(n) < 0.2, 0.0, rng.lognormal(3.0, 1.0, n)),
            "size": rng.normal(170.0, 10.0, n),
            "vat": 0.2,
            "shop": "Rome",
            "news": np.where(rng.random(n) < 0.1, np.nan, rng.random(n) < 0.4),
            "owner": rng.random(n) < 0.4,
            "town": rng.choice(["Rome", "Oslo", "Bonn"], n),
        }
    )


@pytest.mark.slow
def test_mixed_says_all_at_once():
    lines, code = refusal(customers())
    for columns, words in {
        "id": "identifiers",
        "row": "consecutive whole numbers",
        "signup": "dates; ",
        "member": "time spans",
        "note": "text; ",
        "sent": "dates or times as strings",
        "typed": "numbers as strings",
        "visits stays": "whole numbers.*NegativeBinomial is proposed",
        "stars": "whole numbers.*Categorical is proposed",
        "age": "whole numbers.*Gaussian is proposed",
        "income": r"skewed .*Take logarithms .*: X\[\['income'\]\] = np.log\(X\[\['income'\]\]\)",
        "gifts": "0 in .* rows, far more often than any other.*'gifts': 0}; X = X.assign",
        "vat shop": "one value",
        "news": "two values.*Bernoulli is proposed",
    }.items():
        for column in columns.split():
            assert re.search(words, lines.pop(column)), column
    assert not lines  # "size", "owner" and "town" are fitted as they are
    with pytest.warns(UserWarning, match="look at these columns of X.*"):
        suggested = suggest_likelihood(customers())
    scope = {}
    exec(code, scope)
    assert repr(scope["likelihood"]) == repr(suggested)
    assert [(name, columns) for name, _, columns in suggested.parts] == [
        ("numeric", ["age", "income", "gifts", "size"]),
        ("boolean", ["news", "owner"]),
        ("categorical", ["stars", "town"]),
        ("counts", ["visits", "stays"]),
    ]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(skewed|more often)", category=UserWarning)
        assert DPMixture(likelihood=suggested, **FAST).fit(customers()).n_features_in_ == 19


@pytest.mark.parametrize(
    ("values", "part"),
    [
        (np.arange(80) % 2, "boolean"),
        (np.arange(80) % 2 + 3, "categorical"),
        (np.arange(80) % 7 + 1, "categorical"),
        (np.arange(80) % 7, "counts"),
        (np.arange(80) % 7 * 5000, "numeric"),
        (np.arange(80) % 7 - 3, "numeric"),
        (np.arange(80) % 50 + 20, "numeric"),
        (np.arange(80) * 997, "numeric"),
    ],
)
def test_whole_numbers(values, part):
    """Their type and gaps make no difference."""
    table = pd.DataFrame({"town": ["Rome", "Oslo"] * 40, "x": values})
    gaps = table.astype({"x": float})
    gaps.loc[11, "x"] = np.nan
    for X in (table, gaps, gaps.convert_dtypes(), table.astype(object)):
        with pytest.warns(UserWarning, match="column 'x'"):
            suggested = suggest_likelihood(X)
        assert {name: columns for name, _, columns in suggested.parts}[part][-1] == "x"
        if len(np.unique(values)) == 2:
            continue
        if X["x"].dtype == np.float64:
            with pytest.warns(UserWarning, match="as measurements:\n- column 'x': whole numbers"):
                DPMixture(likelihood="mixed", **FAST).fit(X)
        else:
            assert "whole numbers" in refusal(X)[0]["x"]


def test_mixed_does_not_guess():
    lines, code = refusal(np.tile([[3, 0], [4, 7], [5, 1]], (4, 1)))
    assert list(lines) == ["0", "1"]
    assert "('categorical', Categorical(), [0])" in code
    with pytest.raises(ValueError, match="column 'when': dates"):
        DPMixture(likelihood="mixed").fit(
            TABLE.assign(when=pd.date_range("2020-01-01", periods=N))
        )
    with pytest.raises(ValueError, match=r"no column of X suits.*\n- column 'id': .*identifiers"):
        suggest_likelihood(customers()[["id", "vat"]])
    few = pd.DataFrame({"x": np.arange(9.0)})  # may be whole by chance
    assert suggest_likelihood(few).parts[0][0] == "numeric"


def test_the_code_of_many_columns_is_complete():
    X = np.random.default_rng(0).normal(size=(20, 120))
    suggested = suggest_likelihood(X)
    assert eval(repr(suggested)).parts[0][2] == list(range(120))


def test_parts_are_learned_as_often_as_alone():
    """Pseudo-counts of few rows take longer than a sweep, and are drawn every fifth time."""
    model = DPMixture(likelihood="mixed", **{**TWO_CHAINS, "n_draws": 20}).fit(TABLE)
    assert model.n_warmup % 5 == 0
    for name, period in (("numeric__df", 1), ("boolean__a", 5), ("categorical__concentration", 5)):
        values = model.hyperparameter_samples_[name].reshape(2, 20, -1)
        changed = np.any(np.diff(values, axis=1) != 0.0, axis=2)
        expected = np.arange(2, 21) % period == 0
        np.testing.assert_array_equal(changed, [expected, expected], err_msg=name)


def test_mixed_refuses_identifiers():
    """Also if a few entries are equal or missing."""
    names = [f"guest {i}" for i in range(N)]
    names[7] = names[20]
    lines, _ = refusal(TABLE.assign(name=holes(names, None), id=pd.Categorical(range(N))))
    assert list(lines) == ["name", "id"] and "nearly all entries different" in lines["id"]
    for d in range(8):
        names[d] = names[20]
    assert len(set(names)) < 0.9 * N
    DPMixture(likelihood="mixed", **FAST).fit(TABLE.assign(name=names))
    few = TABLE[:49].assign(name=[f"guest {i}" for i in range(49)])
    words = "column 'name': all entries different, as in names or identifiers"
    with pytest.warns(UserWarning, match=words):
        DPMixture(likelihood="mixed", **FAST).fit(few)
    with pytest.warns(UserWarning, match=words):
        suggest_likelihood(few[["name", "age"]][:10])
    suggest_likelihood(few[["name", "age"]][:9])  # may differ by chance


def test_categories_of_a_batch_may_all_be_different():
    """Later batches may have them again."""
    names = pd.Categorical([f"guest {i % 55}" for i in range(N)])
    table = TABLE.assign(name=names)
    stream = DPMixture(likelihood="mixed", sampler="smc", random_state=0, n_draws=4, n_chains=2)
    assert len(set(names[:55])) == 55
    for batch in (table[:55], table[55:]):
        stream.partial_fit(batch)
    assert stream.n_samples_seen_ == N
    assert list(refusal(table[:55])[0]) == ["name"]


@pytest.mark.parametrize("sampler", everyday(["auto", "sub_cluster"], "auto"))
@pytest.mark.long
def test_columns_of_two_values_are_reported(sampler):
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 3)), columns=["a", "b", "c"])
    X["b"] = np.where(X["b"] > 0.3, 2.5, -1.0)
    params = {**FAST, "sampler": sampler}
    with pytest.warns(UserWarning, match=r"^column 'b' of X has only two different values"):
        DPMixture(likelihood="gaussian", **params).fit(X)
    with pytest.warns(UserWarning, match=r"^column 1 of X has only two different values"):
        DPMixture(likelihood="gaussian", **params).fit(X.to_numpy())
    for d in range(5):
        X[f"flag {d}"] = (rng.random(60) < 0.4).astype(float)
    named = "^column 'b', column 'flag 0', column 'flag 1' and 3 more columns of X have"
    for likelihood in ("gaussian", "mixed"):
        with pytest.warns(UserWarning, match=named):
            DPMixture(likelihood=likelihood, **params).fit(X)
    flags = X.filter(like="flag").to_numpy()
    constant, rare = np.ones((60, 1)), (np.arange(240).reshape(60, 4) < 4) * 2.0
    for part in (flags.tolist(), np.c_[flags, constant], np.c_[flags, rare]):
        with pytest.warns(UserWarning, match='of X have .* use likelihood="bernoulli" for 0'):
            DPMixture(likelihood="gaussian", **params).fit(part)
    with pytest.warns(UserWarning, match=r"use likelihood=skdpm.suggest_likelihood\(X\), which"):
        DPMixture(likelihood="gaussian", **params).fit(np.c_[flags, np.arange(60.0)])


@pytest.mark.parametrize(
    "form", ["bool", "floats", "shifted", "array", "standardised", "polars", "pyarrow"]
)
@pytest.mark.long
def test_the_advice_about_one_hot_codes_finds_clusters(form):
    """Whatever the two values, also where one is rare and where another flag is beside them."""
    rng = np.random.default_rng(0)
    kind = np.arange(300) % 3
    own = np.where(rng.random((2, 300)) < 0.1, rng.integers(3, size=(2, 300)), kind)
    town = np.where(np.arange(300) < 3, "D", np.array(list("ABC"))[own[1]])
    table = pd.DataFrame({"size": 2.0 * kind + rng.normal(size=300), "x": rng.normal(size=300)})
    table["flag"] = rng.random(300) < 0.5
    table = table.assign(colour=np.array(["red", "blue", "green"])[own[0]], town=town)
    X = pd.get_dummies(table, columns=["colour", "town"], dtype=bool if form == "bool" else float)
    X["flag"] = X["flag"].astype(float)
    if form == "shifted":  # as where a scaler divides by the range about the median
        X["colour_green"] -= 1.0
    if form in ("array", "standardised"):
        X = X.to_numpy(dtype=float)
        X = (X - X.mean(axis=0)) / X.std(axis=0) if form == "standardised" else X
    X = {"polars": pl.DataFrame, "pyarrow": pa.Table.from_pandas}.get(form, lambda X: X)(X)
    with pytest.warns(
        UserWarning, match="only two different values.*each row has one. Put"
    ) as caught:
        DPMixture(likelihood="gaussian", **FAST).fit(X)
    (words,) = {str(w.message) for w in caught if "two different" in str(w.message)}
    scope = {"X": X, "np": np, "pd": pd}
    exec(words.partition('use likelihood="mixed": ')[2], scope)
    made = scope["X"]
    assert made.shape[1] == 5
    for column, name in zip(made.columns[-2:], ("colour", "town"), strict=True):
        pairs = set(zip(made[column], table[name], strict=True))
        assert len(pairs) == table[name].nunique() == made[column].nunique()
        assert column == ("codes 3" if name == "colour" else "codes 6") or pairs == {
            (f"{name}_{value}", value) for value in table[name].unique()
        }
    made["flag" if "flag" in made else "2"] = table["flag"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(likelihood="mixed", **FAST).fit(made)
    assert adjusted_rand_score(kind, model.labels_) > 0.8


@pytest.mark.filterwarnings("ignore:X has no entries in column 'empty'")
def test_the_advice_about_one_hot_codes_keeps_other_columns():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 1)), columns=["income"]).assign(empty=np.nan)
    for names in (["income_low", "income_high"], ["is_f", "is_m"], ["is_old", "is_young"]):
        X[names] = np.eye(2)[rng.integers(2, size=60)]
    with pytest.warns(UserWarning, match="only two different values") as caught:
        DPMixture(likelihood="gaussian", **FAST).fit(X)
    words = next(str(w.message) for w in caught if "two different" in str(w.message))
    scope = {"X": X, "pd": pd}
    exec(words.partition('use likelihood="mixed": ')[2].partition(". Also")[0], scope)
    made = scope["X"]
    assert list(made) == ["income", "empty", "codes income_low", "codes is_f", "codes is_old"]
    assert made["income"].equals(X["income"]) and (made.nunique()[2:] == 2).all()


@pytest.mark.parametrize("values", [[1, 2, 5], ["1", "2", "5"], [0.5, 1.0, 1.5]])
def test_a_column_of_a_type_of_categories_is_one(values):
    """Also if the categories are numbers on a grid, or stand for numbers."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    X["kind"] = pd.Categorical(rng.choice(values, 60))
    model = DPMixture(**FAST).fit(X)
    assert [(type(part), own) for _, part, own in model.likelihood_.parts] == [
        (Gaussian, [0, 1]),
        (Categorical, [2]),
    ]
    drawn = model.sample(20, random_state=0)[0][:, 2]
    assert {*drawn} <= {float(value) for value in values}


@pytest.mark.parametrize("form", ["bool", "integers", "array"])
def test_one_hot_codes_are_one_category(form):
    """Also where a category is rare."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=100), "flag": rng.random(100) < 0.5})
    for name, n_values in (("colour", 3), ("town", 4)):
        values = np.where(np.arange(100) < n_values - 1, n_values, rng.integers(1, n_values, 100))
        table[name] = [f"{value}" for value in values]
    X = pd.get_dummies(table, dtype=bool if form == "bool" else int)
    groups = [[name for name in X if name.startswith(f"{own}_")] for own in ("colour", "town")]
    if form == "array":
        groups = [[X.columns.get_loc(name) for name in own] for own in groups]
        X = X.to_numpy(dtype=float)
    with pytest.warns(UserWarning, match="one-hot codes, of which each row has one; Multinomial"):
        likelihood = suggest_likelihood(X)
    parts = {name: (type(part), own) for name, part, own in likelihood.parts}
    assert [parts[f"one_hot_{k}"] for k in (1, 2)] == [(Multinomial, own) for own in groups]
    model = DPMixture(likelihood=likelihood, **FAST).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    if form == "bool":  # "mixed" refuses integers, and takes floats as measurements
        with pytest.warns(UserWarning, match="as independent flags, .*\n- .*: one-hot codes, "):
            DPMixture(likelihood="mixed", **FAST).fit(X)


@pytest.mark.long
def test_a_column_that_numbers_the_rows_is_reported():
    """In any order, also with gaps. Measurements are as whole or as different, but not both."""
    rng = np.random.default_rng(0)
    numbers = holes(rng.permutation(70)[:60] + 1_000.0, np.nan)
    whole, spread = np.rint(rng.normal(30.0, 20.0, 60)), rng.choice(10_000, 60, replace=False)
    X = pd.DataFrame({"size": rng.normal(size=60), "whole": whole, "sum": spread, "id": numbers})
    with pytest.warns(UserWarning, match="^column 'id' of X has consecutive whole .*: drop them$"):
        DPMixture(**FAST).fit(X)
    left = X.drop(columns="id").assign(dense=np.arange(60) + 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for rows in (left, X[:49].assign(id=np.arange(49)), X[["id"]], left["whole"].to_frame()):
            DPMixture(**FAST).fit(rows)


@pytest.mark.long
def test_columns_of_two_values_are_reported_once():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), rng.random(60) < 0.4])
    model = DPMixture(likelihood="gaussian", warm_start=True, **TWO_CHAINS)
    with pytest.warns(UserWarning, match="only two different values"):
        model.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.set_params(n_draws=8).fit(X)
        model.drop_chains(1, X)


@pytest.mark.parametrize(
    ("n_columns", "n_rare", "is_reported"), [(8, 3, False), (8, 5, True), (7, 3, True)]
)
@pytest.mark.parametrize("values", [(0.0, 1.0), (3.0, -1.0)])
def test_a_rare_value_in_many_columns_is_not_reported(n_columns, n_rare, is_reported, values):
    X = np.random.default_rng(0).normal(size=(200, n_columns))
    X[:, 2] = values[0]
    X[:n_rare, 2] = values[1]
    found = Gaussian().resolve(X).doubtful(X, SKEWED)
    assert found == ({2: "two values"} if is_reported else {})


def test_other_columns_are_not_reported():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=60), np.arange(60) % 3, np.ones(60)])
    X[:30, 1] = X[:30, 1] % 2  # two values in the first block
    likelihood = Gaussian()
    first, second = likelihood.summarise(X[:30]), likelihood.summarise(X[30:])
    assert first["at_ends"].tolist() == [False, True, True]
    merged = likelihood.merge_summaries(first, second)
    assert merged["at_ends"].tolist() == [False, False, True]
    assert likelihood.resolve_summary(merged).doubtful(X, SKEWED) == {}
    third = likelihood.summarise(np.full((30, 3), 2.0))
    assert not likelihood.merge_summaries(first, third)["at_ends"][1]
    two = likelihood.merge_summaries(
        likelihood.summarise(X[:30] * 0.0), likelihood.summarise(X[:30] * 0.0 + 1.0)
    )
    assert likelihood.resolve_summary(two).doubtful(X, SKEWED) == dict.fromkeys(
        range(3), "two values"
    )
    assert Gaussian(scale=1.0).resolve(X[:30]).doubtful(X, SKEWED) == {}
    assert Gaussian().resolve(X[:9]).doubtful(X, SKEWED) == {}


# Messages.


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (
            ["a", "b"] * 30,
            "could not convert string to float: 'a', in column 'x' of X; use likelihood=",
        ),
        (pd.Categorical(["a", "b"] * 30), "'a', in column 'x' of X; use likelihood=\"mixed\""),
        (pd.array(["a", None] * 30, dtype="string"), "column 'x' of X; use likelihood=\"mixed\""),
        (pd.Timestamp("2020-01-01"), "column 'x' of X holds dates, not numbers: drop it"),
        (pd.Timedelta("1s"), "column 'x' of X holds time spans, not numbers: drop it"),
        (np.inf, "infinity in column 'x' of X; replace it"),
    ],
)
@pytest.mark.parametrize("others", ["floats", "nullable", "catnum"])
def test_columns_that_are_no_numbers_are_named(column, message, others):
    """Also where columns beside them are of types that have no numpy array of their own."""
    X = pd.DataFrame({"y": np.arange(60.0), "z": np.arange(60.0)})
    if others == "nullable":
        X["z"] = X["z"].astype("Int64")
    elif others == "catnum":
        X["z"] = pd.Categorical(Z)
        message = message.replace("; replace", r" \(part 'numeric'\); replace")
    with pytest.raises(ValueError, match=message):
        DPMixture(**FAST).fit(X.assign(x=column))


@pytest.mark.parametrize(
    "likelihood",
    [
        Categorical(),
        Bernoulli(),
        Product([("only", Categorical(), [0])]),
        Product([("only", Bernoulli(), [0]), ("none", Gaussian(), [])]),
    ],
)
def test_a_single_column_of_categories_says_nothing(likelihood):
    X = (Z[:, None] == 1).astype(float)
    with pytest.warns(UserWarning, match="single column of categories contains no information"):
        model = DPMixture(likelihood=likelihood, **TWO_CHAINS).fit(X)
    model.drop_chains([0], X)  # which says it no second time
    both = np.hstack([X, X])
    if isinstance(likelihood, Product):
        likelihood = clone(likelihood).set_params(parts=[("only", "bernoulli", [0, 1])])
    DPMixture(likelihood=likelihood, **TWO_CHAINS).fit(both)


def test_nan_is_refused_with_a_way_out():
    with pytest.raises(ValueError, match=r"NaN in column 1 of X; use Gaussian\(\)"):
        DPMixture(likelihood=Subspace()).fit([[0.0, np.nan], [1.0, 2.0]])


def amounts(n=400):
    """Clusters of log-normal amounts, with gaps."""
    rng = np.random.default_rng(0)
    X = rng.lognormal(np.array([[1.0, 4.0], [3.0, 7.0]])[np.arange(n) % 2], 0.8)
    return np.where(rng.random(X.shape) < 0.1, np.nan, X)


@pytest.mark.parametrize(
    "likelihood",
    everyday(
        ["auto", Gaussian(covariance_type="diag"), "mixed", Product([("a", "gaussian", [1, 0])])],
        "mixed",
    ),
    ids=["auto", "diag", "mixed", "product"],
)
@pytest.mark.long
def test_skewed_columns_are_reported(likelihood):
    X = pd.DataFrame(amounts(), columns=["cost", "income"])
    model = DPMixture(likelihood=likelihood, **FAST)
    code = re.escape("X[['cost', 'income']] = np.log(X[['cost', 'income']])")
    with pytest.warns(UserWarning, match=f"column 'cost' and column 'income' of X have.*{code}"):
        model.fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(np.log(X))


@pytest.mark.slow
def test_skewness_has_no_unit_and_zeros_stay():
    X = amounts()[:, [0]]
    X = np.hstack([X, 1e200 * X, 1e-200 * X, np.round(X, 1) + 0.1, np.where(X < 2.0, 0.0, X), -X])
    code = {
        **dict.fromkeys(range(4), "np.log({x})"),
        4: "np.log({x} + {c})",
        5: "-np.log({c} - {x})",
    }
    assert {d: skewed.function for d, skewed in skewed_columns(X).items()} == code
    assert skewed_columns(X[:40]) == {} == skewed_columns(X[:0])


@pytest.mark.parametrize("data", [load_iris, load_wine])
@pytest.mark.long
def test_ordinary_columns_are_not_skewed(data):
    assert skewed_columns(data().data, SLIGHTLY_SKEWED) == {}


@pytest.mark.long
def test_slightly_skewed_columns_are_reported_beside_categories():
    """Where components are clusters. Of numbers alone the labels do not cut these."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"cost": rng.lognormal(3.0, 0.5, 600), "size": rng.gamma(30.0, size=600)})
    model = DPMixture(likelihood="mixed", **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(table)
    table["kind"] = rng.choice(["a", "b"], 600)
    with pytest.warns(UserWarning, match=r"^column 'cost' of X .*skewed.*X\[\['cost'\]\] = np"):
        model.fit(table)
    with pytest.warns(UserWarning, match="\n- column 'cost' of X has values skewed to large"):
        suggest_likelihood(table)


@pytest.mark.parametrize("likelihood", [Gaussian(), Product([("a", "gaussian", [1, 0])]), "mixed"])
@pytest.mark.long
def test_columns_are_judged_once(likelihood, monkeypatch):
    judged, table = [], pd.DataFrame(amounts(), columns=["cost", "income"])
    monkeypatch.setattr(
        "skdpm.mixture.likelihoods.gaussian.gaussian.doubtful_columns",
        lambda X, least, far: judged.append((X.shape[1], least)) or {},
    )
    if likelihood == "mixed":
        table["kind"] = np.where(np.arange(len(table)) % 3, "a", "b")
    DPMixture(likelihood=likelihood, **FAST).fit(table)
    assert judged == [(2, SLIGHTLY_SKEWED if likelihood == "mixed" else SKEWED)]


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "uniform", "t", "two", "counts"])
def test_other_laws_are_not_slightly_skewed(law):
    rng = np.random.default_rng(0)
    for n in (100, 400):
        shape = (n, 10)
        X = {
            "normal": rng.normal(5.0, 1.0, shape),
            "uniform": rng.uniform(size=shape),
            "t": np.abs(12.0 + rng.standard_t(3, shape)),
            "two": rng.normal(np.where(rng.random(shape) < 0.8, 10.0, 14.0), 1.0),
            "counts": rng.poisson(6.0, shape),
        }[law]
        assert skewed_columns(X, SLIGHTLY_SKEWED) == {}


@pytest.mark.slow
def test_clusters_at_all_distances_are_not_skewed():
    """Their logarithms are no closer to few Gaussian clusters."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        centres = np.exp(rng.normal(3.0, 1.0, 4))
        x = rng.normal(centres[rng.choice(4, 500, p=rng.dirichlet([1.0] * 4))], 1.0)
        x = np.abs(x)
        scaled = StandardScaler().fit_transform(x[:, None])
        assert skewed_columns(np.column_stack([x, -x, 1_000.0 - x, scaled])) == {}


@pytest.mark.parametrize("seed", [4, 5, 7])
def test_clusters_below_a_number_and_limits_are_not_tails(seed):
    rng = np.random.default_rng(seed)
    centres = np.repeat([0.0, -4.0, -12.0, -40.0], [200, 120, 60, 40])
    marks = np.minimum(np.random.default_rng(3).normal(95.0, 8.0, 300), 100.0)
    x = rng.normal(centres)
    X = np.column_stack([x, -x - 5.0, (np.mean(x) - x) / np.std(x)])
    assert skewed_columns(X) == {} == skewed_columns(marks[:, None])
    rng = np.random.default_rng(82)
    x = rng.normal(rng.choice([0.0, 4.0, 12.0, 40.0], 500, p=[0.5, 0.25, 0.15, 0.1]))
    assert skewed_columns(((x - x.mean()) / x.std())[:, None]) == {}


@pytest.mark.parametrize("scaler", [StandardScaler(), RobustScaler(), MinMaxScaler(), None])
@pytest.mark.long
def test_skewed_columns_are_seen_after_a_scaler(scaler):
    """The code makes them logarithms again, whatever their unit."""
    logarithms = np.log(amounts(600))
    X = np.exp(logarithms)
    if scaler is None:  # large amounts, one of which is 0
        X[0] = 0.0
    X = X if scaler is None else scaler.fit_transform(X)
    found = []
    for unit in (1e6, 1.0, 1e-6):
        with pytest.warns(
            UserWarning, match="column 1 of X have values skewed to large"
        ) as caught:
            DPMixture(**FAST).fit(X * unit)
        (words,) = {str(w.message) for w in caught if "skewed" in str(w.message)}
        scope = {"X": X * unit, "np": np}
        exec(words.rpartition("before fit: ")[2], scope)
        found.append(scope["X"] - np.log(unit))
        assert skewed_columns(scope["X"]) == {}
    np.testing.assert_allclose(found[1:], [found[0]] * 2)
    known = ~np.isnan(logarithms[:, 0])
    known[0] = False
    assert np.corrcoef(logarithms[known, 0], found[0][known, 0])[0, 1] > 0.95


@pytest.mark.parametrize("whole", [1.0, 100.0])
@pytest.mark.long
def test_parts_of_a_whole_need_log_ratios(whole):
    rng = np.random.default_rng(0)
    shares = np.exp(rng.normal([-4.0, 0.0, 0.0], [1.2, 0.3, 0.3], (300, 3)))
    shares /= shares.sum(axis=1, keepdims=True)
    table = pd.DataFrame(whole * shares, columns=["a", "b", "c"]).assign(d=rng.normal(size=300))
    words = words_of_skew(table)
    assert re.match("column 'a', column 'b' and column 'c' of X have shares of a whole", words)
    scope = {"X": table.copy(), "np": np}
    exec(words.rpartition("before fit: ")[2], scope)
    (divisor,) = [c for c in "abc" if (scope["X"][c] == 0.0).all()]
    assert divisor != "a"  # which varies most
    expected = np.log(table[["a", "b", "c"]].div(table[divisor], axis=0)).assign(d=table["d"])
    np.testing.assert_allclose(scope["X"], expected)
    # Zeros have no logarithm.
    table.loc[0, ["a", "b", "c"]] = 0.0, 0.3 * whole, 0.7 * whole
    scope = {"X": table.copy(), "np": np}
    exec(words_of_skew(table).rpartition("before fit: ")[2], scope)
    assert np.isfinite(scope["X"]).all(axis=None)
    # Columns of another sum are amounts.
    assert "shares" not in words_of_skew(table.assign(a=1.5 * table["a"]))


def words_of_skew(table):
    """The warning of `fit` about skewed columns."""
    model = DPMixture(likelihood=Gaussian(covariance_type="diag"), **FAST)
    with pytest.warns(UserWarning, match="before fit: ") as caught:
        model.fit(table)
    (words,) = {str(w.message) for w in caught if "before fit: " in str(w.message)}
    return words


@pytest.mark.parametrize("library", [np.asarray, pd.DataFrame, pl.DataFrame])
@pytest.mark.long
def test_many_columns_of_zeros_and_amounts_are_reported(library):
    """The code says which entries are 0, as in baskets of which the amounts tell little."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((300, 12)) < 0.3, rng.exponential(size=(300, 12)), 0.0)
    X[0, 0] = np.nan
    X = np.column_stack([X, rng.normal(size=300)])
    names = list("abcdefghijklm")
    table = X if library is np.asarray else library(dict(zip(names, X.T, strict=True)))
    with pytest.warns(UserWarning, match="0 in up to 2.. of 300 rows, far more often") as caught:
        DPMixture(**FAST).fit(table)
    (words,) = {str(w.message) for w in caught if "more often" in str(w.message)}
    scope = {"X": table, "np": np, "pd": pd, "pl": pl}
    exec(words.partition('"mixed": ')[2].partition(". Also, ")[0], scope)
    expected = np.roll(np.where(np.isnan(X), np.nan, X == 0.0), 1, axis=1)
    expected[:, 0] = X[:, 12]
    columns = [column.values for column in as_table(scope["X"]).columns()]
    columns = [[np.nan if v is None else float(v) for v in values] for values in columns]
    np.testing.assert_array_equal(np.transpose(columns), expected)
    model = DPMixture(likelihood="mixed", **FAST).fit(scope["X"])
    assert [(name, len(own)) for name, _, own in model.likelihood_.parts] == [
        ("numeric", 1),
        ("boolean", 12),
    ]


@pytest.mark.parametrize("library", [np.asarray, pd.DataFrame, pl.DataFrame])
def test_columns_with_a_tail_of_small_values_are_reported(library):
    """The code makes them as ordinary as logarithms make amounts."""
    rng = np.random.default_rng(0)
    tails = np.exp(rng.normal(1.0, 1.0, (300, 2)))
    table = library({"score": 100.0 - tails[:, 0], "b": rng.normal(size=300)})
    if library is np.asarray:
        table = np.column_stack([100.0 - tails[:, 0], rng.normal(size=300)])
    with pytest.warns(UserWarning, match="skewed to small ones") as caught:
        DPMixture(**FAST).fit(table)
    (words,) = {str(w.message) for w in caught if "skewed" in str(w.message)}
    scope = {"X": table, "np": np, "pl": pl}
    exec(words.rpartition("before fit: ")[2], scope)
    x = np.asarray(scope["X"])[:, 0]
    assert abs(skew(x)) < 0.5 < 2.0 < abs(skew(tails[:, 0]))
    assert spearmanr(x, -tails[:, 0]).statistic == pytest.approx(1.0)


@pytest.mark.parametrize("library", [np.asarray, pd.DataFrame, pl.DataFrame])
@pytest.mark.some(1)
@pytest.mark.long
def test_columns_with_a_spike_are_reported(library):
    """The code makes a column of the spike, and "mixed" takes what it makes."""
    rng = np.random.default_rng(0)
    is_zero = rng.random((200, 2)) < [0.3, 0.6]
    columns = np.where(is_zero, 0.0, np.exp(rng.normal(3.0, 0.3, (200, 2))))
    X = np.column_stack([columns, rng.normal(size=200)])
    names = ["spent", "won", "x"]
    table = X if library is np.asarray else library(dict(zip(names, X.T, strict=True)))
    with pytest.warns(UserWarning, match="far more often than") as caught:
        DPMixture(**FAST).fit(table)
    (words,) = {str(w.message) for w in caught if "more often" in str(w.message)}
    assert f"have 0 in up to {is_zero.sum(axis=0).max()} of 200 rows" in words
    scope = {"X": table, "np": np, "pd": pd, "pl": pl}
    exec(words.partition('"mixed": ')[2].partition(". Also, ")[0], scope)
    names = ["0", "1", "2"] if library is np.asarray else names
    assert list(scope["X"].columns) == [*names, *(f"{name} is 0" for name in names[:2])]
    made = np.asarray(scope["X"].to_numpy(), dtype=float)
    np.testing.assert_array_equal(made[:, :3], np.where(X == 0.0, np.nan, X))
    np.testing.assert_array_equal(made[:, 3:], is_zero)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(likelihood="mixed", **FAST).fit(scope["X"])
    assert [name for name, *_ in model.likelihood_.parts] == ["numeric", "boolean"]


@pytest.mark.parametrize("library", [np.asarray, pd.DataFrame, pl.DataFrame, pa.table])
@pytest.mark.long
def test_the_advice_about_limits_of_detection_finds_clusters(library):
    """Values below the limits are missing, and skewness is that of the others."""
    rng = np.random.default_rng(0)
    kind = np.arange(200) % 2
    X = np.exp(rng.normal(size=(200, 3)) + 5.0 * kind[:, None] * [0.0, 1.0, 1.0])
    limits = np.quantile(X, 0.1, axis=0)
    X = np.maximum(X, limits)
    names = ["a", "b", "c"]

    def as_given():
        return X.copy() if library is np.asarray else library(dict(zip(names, X.T, strict=True)))

    with pytest.warns(UserWarning, match="far more often than") as caught:
        DPMixture(**FAST).fit(as_given())
    (words,) = {str(w.message) for w in caught if "more often" in str(w.message)}
    _, _, advice = words.partition("beyond a limit of measurement, make it NaN and take log")
    line, _, other = advice.partition(": ")[2].partition(". Otherwise, ")
    found, flags = [{"X": as_given(), "np": np, "pd": pd, "pl": pl} for _ in range(2)]
    exec(line, found)
    exec(other.partition('"mixed": ')[2], flags)
    expected = np.log(np.where(X == limits, np.nan, X))
    np.testing.assert_allclose(np.asarray(found["X"]), expected)
    assert flags["X"].shape == (200, 6)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(**FAST).fit(found["X"])
    assert adjusted_rand_score(kind, model.labels_) > 0.9


@pytest.mark.parametrize("share", [0.1, 0.3])
@pytest.mark.long
def test_skewness_beside_a_limit_is_that_of_the_other_values(share):
    x = np.exp(np.random.default_rng(0).normal(size=(300, 2)))
    X = np.maximum(x, [0.0, np.quantile(x[:, 1], share)])
    found = doubtful_columns(X, SKEWED, {})
    plain = Skewed("np.log({x})", 0.0)
    assert found[0] == found[1].skewed == plain
    assert share == 0.1 or skewed_columns(X)[1] != plain
    # Of many such columns it is advised only to use which entries have the value.
    assert {spike.skewed for spike in doubtful_columns(X[:, 9 * [1]], SKEWED, {}).values()} == {
        None
    }


def test_equal_values_that_are_no_spikes():
    rng = np.random.default_rng(0)
    x, is_zero = rng.normal(5.0, 1.0, 300), np.arange(300) < 90
    others = [x, x.round(1), rng.poisson(0.4, 300), rng.integers(18, 95, 300), is_zero]
    counts = rng.poisson(6.0, 300)
    others += [np.where(np.arange(300) < 9, 0.0, x), np.where(is_zero, 0.0, np.exp(x).round(-1))]
    others += [np.where(is_zero, 0, counts), np.where(is_zero, 0, 5 * counts)]
    assert spiked_columns(np.column_stack(others).astype(float)) == {}
    assert spiked_columns(load_wine().data[::2]) == {}  # rounded numbers
    heaps = np.where(np.arange(300) % 9 < 3, np.arange(300) % 3 + 0.5, x)
    assert spiked_columns(heaps[:, None]) == {}
    spike = np.where(is_zero, 0.0, x)
    spike[:5] = np.nan
    assert spiked_columns(spike[:, None]) == {0: Spike((0.0,), 85, 5)}
    # Rounded values far from the spike, as of a measurement that some rows lack.
    assert spiked_columns(np.where(is_zero, 0.0, x.round(1))[:, None]) == {0: Spike((0.0,), 90, 0)}
    assert spiked_columns(np.column_stack([*[spike] * 9, *[x] * 9])) == {}
    assert len(spiked_columns(np.column_stack([*[spike] * 9, *[x] * 8]))) == 9


@pytest.mark.parametrize("multi_index", [False, True])
def test_lines_of_spikes_follow_those_of_marks(multi_index):
    """Two spikes beside a mark of missing entries, in columns without names."""
    rng = np.random.default_rng(0)
    X = rng.normal(5.0, 1.0, (200, 3))
    X[:50, 0], X[60:99, 1], X[::20, 2] = 0.0, 7.0, -999.0
    names = pd.MultiIndex.from_product([["a"], ["x", "y", "z"]])
    table = pd.DataFrame(X, columns=names) if multi_index else X
    with pytest.warns(UserWarning, match="far more often than") as caught:
        DPMixture(**FAST).fit(table)
    (words,) = {str(w.message) for w in caught if "more often" in str(w.message)}
    scope = {"X": table, "np": np, "pd": pd}
    exec(words.partition("NaN: ")[2].partition(". Also, ")[0], scope)
    exec(words.partition('"mixed": ')[2], scope)
    assert list(scope["X"].columns) == ["0", "1", "2", "0 is 0", "1 is 7"]
    gaps = np.isin(X, [0.0, 7.0, -999.0])
    np.testing.assert_array_equal(scope["X"].iloc[:, :3], np.where(gaps, np.nan, X))
    assert scope["X"].dtypes.tolist() == [np.float64] * 3 + [bool] * 2


def test_numbers_in_strings_are_reported():
    """ "mixed" refuses those that identify rows, and takes others as categories with a warning."""
    rng = np.random.default_rng(0)
    x = rng.uniform(1_000.0, 9_000.0, 60).round(2)
    forms = {
        "plain": [f"{v:.2f}" for v in x],
        "gaps": [f"{v:.2f}" if v > 2_000.0 else "?" for v in x],
        "spaces": [f" {v:.2f}" if v > 2_000.0 else "-" for v in x],
        "thousands": [f"{v:,.2f}" for v in x],
        "commas": [f"{v:.2f}".replace(".", ",") for v in x],
        "continental": [f"{v:,.2f}".translate(str.maketrans(",.", ".,")) for v in x],
        "dollars": [f"${v:,.2f}" for v in x],
        "percent": [f"{v:.2f} %" for v in x],
        "dots": [f"{v:.2f}" if v > 2_000.0 else ".." for v in x],
        "apart": [f"{v:,.2f}".replace(",", "\u202f") for v in x],
        "weights": [f"{v:,.2f} kg" for v in x],
        "euros": [f"{v:,.2f} \u20ac".translate(str.maketrans(",.", ".,")) for v in x],
        "negative": [f"\u2212{v:.2f}" for v in x],
        "miles": [f"{v:.2f}\u00a0miles" for v in x],
        "limits": [f"<{v:.2f}" if v < 2_000.0 else f"{v:.2f}" for v in x],
        "doses": [f"<{v:.2f} mg" if v < 2_000.0 else f"{v:.2f} mg" for v in x],
        "lines": [f"\t{v:.2f}\n" for v in x],
        "dashes": [f"{v:.2f}" if v > 2_000.0 else "\u2013\u2212"[int(v > 1_500.0)] for v in x],
    }
    few = {f"few {form}": np.repeat(text[:6], 10) for form, text in forms.items()}
    size = rng.normal(size=60)
    for library in (pd.DataFrame, pl.DataFrame, pa.table):
        table = library({"size": size, **forms})
        lines, _ = refusal(table)
        for form in forms:
            scope = {"X": table, "pd": pd, "pl": pl}
            exec(lines[form].rpartition("numbers of them: ")[2], scope)
            found = np.asarray(scope["X"][form], dtype=float)
            expected = -x if form == "negative" else x
            assert (np.where(np.isnan(found), expected, found) == expected).all(), form
            assert np.isnan(found).any() == (form in ("gaps", "spaces", "dots", "dashes"))
        assert "with thousands separators and 'kg'" in lines["weights"]
    for n_missing, mark in [(40, ""), (20, "NA"), (5, " "), (20, None)]:
        gaps = [mark] * n_missing + forms["plain"][n_missing:]
        assert list(refusal(pd.DataFrame({"size": size, "x": gaps}))[0]) == ["x"]
    table = pd.DataFrame({"size": size, **few})
    with pytest.warns(UserWarning, match="as categories:\n- column 'few plain': numbers as str"):
        DPMixture(likelihood="mixed", **FAST).fit(table)
    with pytest.raises(ValueError, match=r"thousands sep.*\.str\.replace\(',', ''\)"):
        DPMixture(**FAST).fit(pd.DataFrame({"size": size, "x": forms["thousands"]}))
    for other in ("5 {beats}/min", "5 a\u2212b", "5-", "1" * 50 + "x1"):
        column = pd.DataFrame({"size": size, "x": [other, "6" + other[1:]] * 30})
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*as categories")
            DPMixture(likelihood="mixed", **FAST).fit(column)
    ranges = pd.DataFrame({"size": size, "x": ["1-2", "3-4", "5+"] * 20, "code": ["A1", "7"] * 30})
    for X in (ranges, table.astype("category").assign(size=size)):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*as categories")
            warnings.filterwarnings("ignore", message="columns of X follow")  # they do here
            DPMixture(likelihood="mixed", **FAST).fit(X)


def test_numbers_beside_strings_are_reported():
    """Marks of missing entries, and numbers in strings, make objects of a column of floats."""
    x = np.random.default_rng(0).normal(size=60)
    mixed = np.array([*x[:40], *(f" {v!r}" for v in x[40:].tolist())], dtype=object)
    mixed[:5] = "?"
    for X in (pd.DataFrame({"x": mixed, "size": x}), np.column_stack([mixed, x.astype(object)])):
        scope = {"X": X.copy(), "pd": pd}
        with pytest.raises(ValueError, match=r"some as strings or marks.*to_numeric") as error:
            DPMixture(likelihood="mixed", **FAST).fit(X)
        exec(str(error.value).splitlines()[1].rpartition("numbers of them: ")[2], scope)
        found = np.asarray(scope["X"], dtype=float)[:, 0]
        assert np.isnan(found[:5]).all() and (found[5:] == x[5:]).all()
        with pytest.raises(ValueError, match=r"('x'|column 0) of X; .*numbers of it: .*to_num"):
            DPMixture(**FAST).fit(X)
    mixed[0] = "unknown"
    with pytest.raises(ValueError, match=r"type float64 and str, .* make str of all"):
        DPMixture(likelihood="mixed", **FAST).fit(pd.DataFrame({"x": mixed, "size": x}))


def test_repeated_names_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 3))
    names = ["a", "b", "a"]
    for table in (pd.DataFrame(X, columns=names), pa.table(list(X.T), names=names)):
        for function in (suggest_likelihood, DPMixture(**FAST).fit, MixtureImputer().fit):
            with pytest.raises(ValueError, match="2 columns of X have the name 'a': give"):
                function(table)


def test_suggest_likelihood_refuses_what_is_no_table():
    for X, words in (
        ("x.csv", "pandas.read_csv"),
        ({"a": [1]}, "pandas.DataFrame"),
        (5, "2D"),
        (None, "X is None"),
        (pd.DataFrame(), "X has no columns"),
    ):
        with pytest.raises((TypeError, ValueError), match=words):
            suggest_likelihood(X)


def test_record_batches_have_names():
    batch = pa.RecordBatch.from_pandas(TABLE[["age"]].assign(b=RNG.normal(size=N)))
    model = DPMixture(**FAST).fit(batch)
    assert model.feature_names_in_.tolist() == ["age", "b"]
    whole = pa.Table.from_batches([batch])
    np.testing.assert_array_equal(model.score_samples(batch), model.score_samples(whole))
    assert suggest_likelihood(batch).parts[0][2] == ["age", "b"]


# Containers.

CODES = RNG.poisson(2.0 + 4.0 * Z).astype(float)
HOLES = np.column_stack([TABLE["age"], holes(CODES, np.nan)])
GAPS = np.isnan(HOLES)
FILLED = np.where(GAPS, -999.0, HOLES)
WITH_GAPS = {
    "masked": np.ma.array(FILLED, mask=GAPS),
    "masked rows": list(np.ma.array(FILLED, mask=GAPS)),
    "masked objects": np.ma.array(FILLED.astype(object), mask=GAPS),
    "masked integers": np.ma.array(FILLED.astype(int), mask=GAPS),
    "None": np.where(GAPS, None, HOLES.astype(object)),
    "NA": np.where(GAPS, pd.NA, HOLES.astype(object)),
    "NaT": np.where(GAPS, pd.NaT, HOLES.astype(object)),
    "lists": np.where(GAPS, None, HOLES.astype(object)).tolist(),
    "pandas": pd.DataFrame(HOLES, columns=["a", "b"]),
    "Float64": pd.DataFrame(HOLES, columns=["a", "b"]).astype("Float64"),
    "arrow types": pd.DataFrame(HOLES, columns=["a", "b"]).astype("float64[pyarrow]"),
    "sparse types": pd.DataFrame(HOLES, columns=["a", "b"]).astype(pd.SparseDtype(float)),
    "objects": pd.DataFrame(np.where(GAPS, pd.NA, HOLES.astype(object)), columns=["a", "b"]),
    "polars": pl.DataFrame(HOLES, schema=["a", "b"], nan_to_null=True),
    "pyarrow": pa.table([pa.array(x, from_pandas=True) for x in HOLES.T], names=["a", "b"]),
}


def answers(X):
    """What the methods of a mixture and of a feature allocation return, as arrays of numbers."""
    model = DPMixture(**FAST).fit(X)
    stream = DPMixture(sampler="smc", random_state=0, n_draws=3, n_chains=1).partial_fit(X)
    known = np.where(np.arange(N) < 6, Z, -1)
    features = FeatureAllocation(**FAST).fit(X)
    found = [
        *(getattr(model, name)(X) for name in ("predict", "predict_proba", "score_samples")),
        [model.score(X)],
        model.impute(X),
        next(iter(model.predict_columns(X, 0).values())).mean,
        MixtureImputer(DPMixture(**FAST)).fit_transform(X),
        DPMixture(**FAST).fit_predict(X),
        DPMixture(**FAST).fit(X, known_labels=known).labels_,
        stream.labels_,
        features.transform(X),
        features.score_samples(X),
        features.impute(X),
    ]
    return [np.asarray(values, dtype=float) for values in found]


@pytest.fixture(scope="module")
def expected():
    return {kind: answers(rows) for kind, rows in {"i": HOLES.round(), "f": HOLES}.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", everyday(WITH_GAPS, "Float64", "polars"))
@pytest.mark.long
def test_missing_entries_are_nan_in_every_container(name, expected):
    X = WITH_GAPS[name]
    whole = name == "masked integers"
    if whole:
        X = np.ma.array(np.where(GAPS, -999, HOLES.round()).astype(int), mask=GAPS)
    for found, wanted in zip(answers(X), expected["i" if whole else "f"], strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("likelihood", ["subspace", "multinomial"])
def test_masked_entries_are_refused_where_nan_is(likelihood):
    X = np.ma.array(np.abs(FILLED), mask=GAPS)
    with pytest.raises(ValueError, match="Input contains NaN in column 0 of X"):
        DPMixture(likelihood=likelihood, **FAST).fit(X)


WHEN = pd.Series(
    pd.Timestamp("2024-01-01 12:00") + pd.to_timedelta(holes(CODES, np.nan), unit="h")
)
SPANS = WHEN - WHEN.min()
TIMES = {
    "pandas": pd.DataFrame({"t": WHEN}),
    "time zone": pd.DataFrame({"t": WHEN.dt.tz_localize("UTC")}),
    "periods": pd.DataFrame({"t": WHEN.dt.to_period("h")}),
    "days": pd.DataFrame({"t": WHEN.dt.date}),
    "objects": pd.DataFrame({"t": WHEN.astype(object)}),
    "arrow types": pd.DataFrame({"t": WHEN.astype("timestamp[ns][pyarrow]")}),
    "numpy": WHEN.to_numpy()[:, None],
    "array of objects": WHEN.astype(object).to_numpy()[:, None],
    "masked": np.ma.array(WHEN.to_numpy()[:, None], mask=GAPS[:, :1]),
    "lists": [[value] for value in WHEN],
    "polars": pl.DataFrame({"t": WHEN}),
    "polars days": pl.DataFrame({"t": WHEN}).cast(pl.Date),
    "pyarrow": pa.table({"t": pa.array(WHEN)}),
    "spans": pd.DataFrame({"t": SPANS}),
    "spans of numpy": SPANS.to_numpy()[:, None],
    "spans of polars": pl.DataFrame({"t": SPANS}),
    "spans of pyarrow": pa.table({"t": pa.array(SPANS)}),
    "spans in lists": [[timedelta(hours=int(z))] for z in Z],
}


@pytest.fixture(scope="module")
def of_one_column():
    X = CODES[:, None]
    return DPMixture(**FAST).fit(X), FeatureAllocation(**FAST).fit(X)


def uses(model, features):
    """Methods that take X, by name."""
    fast = DPMixture(**FAST)
    return {
        "fit": fast.fit,
        "fit of blocks": DPMixture(sampler="sub_cluster", **FAST).fit,
        "fit_predict": fast.fit_predict,
        "known labels": lambda X: DPMixture(**FAST).fit(X, known_labels=np.full(N, -1)),
        "partial_fit": DPMixture(sampler="smc", random_state=0).partial_fit,
        "counts": DPMixture(likelihood="poisson", **FAST).fit,
        **{
            name: getattr(model, name)
            for name in ("predict", "predict_proba", "score_samples", "score", "impute")
        },
        "predict_columns": lambda X: model.predict_columns(X, 0),
        "imputer": MixtureImputer(DPMixture(**FAST)).fit,
        "features": FeatureAllocation(**FAST).fit,
        "transform": features.transform,
        "features score": features.score_samples,
    }


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", TIMES)
def test_times_are_refused_with_code_that_makes_numbers(name, of_one_column):
    X = TIMES[name]
    kind = "time spans" if "spans" in name else "dates"
    told = set()
    for method in uses(*of_one_column).values():
        with pytest.raises(ValueError, match=f"^column ('t'|0) of X holds {kind}, not ") as error:
            method(X)
        told.add(str(error.value))
    (message,) = told
    scope = {"np": np, "pd": pd, "X": np.asarray(X) if isinstance(X, list) else X}
    exec(message.partition("in its place, ")[2], scope)
    hours = np.asarray(scope["t"], dtype=float).ravel() * (1.0 if kind == "time spans" else 24.0)
    assert np.nanmin(hours) == 0.0
    if kind == "dates":
        code = message.partition("with a = ")[2]
        assert bool(code) is not name.endswith("days")
        hour = 12.0 / np.pi * eval(code, scope) if code else pd.Series(0.0 * hours)
        assert set(hour.dropna().round(9)) <= set(range(24)) and len(hour) == len(hours)
    wanted = CODES if name != "spans in lists" else Z
    if not name.endswith("days"):
        known = ~np.isnan(hours)
        wanted = (wanted - np.nanmin(wanted))[known]
        np.testing.assert_allclose(hours[known], wanted, rtol=1e-13)


NO_TABLES = {
    "path": ("table.csv", "X is a str, 'table.csv'.*read the file first"),
    "bytes": (b"table.csv", "X is a bytes, b'table.csv'.*read the file first"),
    "Path": (pathlib.Path("table.csv"), "table.csv.*read the file first"),
    "file": (io.StringIO("1,2"), "X is a StringIO.*read the file first"),
    "dict": ({"a": [1.0]}, "X is a dict.*DataFrame"),
    "lazy": (pl.LazyFrame({"a": [1.0]}), r"X is a LazyFrame.*X\.collect\(\)"),
    "generator": ((row for row in HOLES), "X is a generator.*all rows at once"),
    "structured": (np.zeros(3, dtype=[("a", float)]), "X is a structured array.*DataFrame"),
    "records": (np.ma.zeros(3, dtype=[("a", float)]), r"structured array.*filled\(np\.nan\)"),
    "complex": (CODES[:, None] * 1j, "Complex data not supported"),
    "complex column": (pd.DataFrame({"a": CODES * 1j}), "'complex', in column 'a' of X: drop it"),
    "times of day": (pl.DataFrame({"a": [time(3)] * N}), "'datetime.time', in column 'a' of X"),
    "sets": (pd.DataFrame({"a": [{1}] * N}), "'set', in column 'a' of X: drop it"),
    "large": ([[10**400]] * N, "int too large to convert to float, in column 0 of X"),
    "mixed": ([[pd.Timestamp(0)], ["a"]] * (N // 2), "'Timestamp', in column 0 of X"),
}


@pytest.mark.filterwarnings("ignore:X has feature names")
@pytest.mark.parametrize("name", NO_TABLES)
def test_what_is_no_table_has_a_message(name, of_one_column):
    X, message = NO_TABLES[name]
    for method in uses(*of_one_column).values():
        with pytest.raises((TypeError, ValueError), match=message):
            method(X)


OF_LIBRARIES = TABLE.assign(
    visits=holes(CODES, np.nan),
    size=TABLE["size"].astype(str).where(TABLE["size"].notna()).astype("category"),
)
LIBRARIES = {
    "polars": pl.from_pandas,
    "pyarrow": pa.Table.from_pandas,
    "nullable": lambda X: X.astype(
        {c: "Float64" for c in X.select_dtypes("float")}
    ).convert_dtypes(),
    "arrow types": lambda X: pa.Table.from_pandas(X).to_pandas(types_mapper=pd.ArrowDtype),
    "objects": lambda X: X.astype(object).where(X.notna(), None),
}
LIKELIHOODS = {
    "mixed": ("mixed", list(TABLE)),
    "product": (
        Product(
            [
                ("num", Gaussian(covariance_type="diag"), ["age"]),
                ("cat", Categorical(), slice("town", "size")),
                ("flags", Bernoulli(), ["owner", "member"]),
                ("counts", NegativeBinomial(), "visits"),
            ]
        ),
        list(OF_LIBRARIES),
    ),
    "categorical": ("categorical", ["town", "size"]),
    "gaussian": ("gaussian", ["age", "visits"]),
    "bernoulli": ("bernoulli", ["owner", "member"]),
}


def told_by(likelihood, X):
    model = DPMixture(likelihood=likelihood, **FAST).fit(X)
    completed = model.impute(X)
    assert type(completed) is type(X)
    frame = completed if isinstance(completed, pd.DataFrame) else completed.to_pandas()
    return [
        model.label_samples_,
        model.log_joint_samples_,
        model.predict_proba(X),
        model.score_samples(X),
        model.feature_names_in_,
        DPMixture(likelihood=likelihood, sampler="smc", random_state=0, n_draws=3, n_chains=1)
        .partial_fit(X)
        .score_samples(X),
        *(frame[column].astype(str).to_numpy() for column in frame),
    ]


@pytest.fixture(scope="module")
def of_pandas():
    return {
        name: told_by(given, OF_LIBRARIES[columns])
        for name, (given, columns) in LIKELIHOODS.items()
    }


@pytest.mark.parametrize("library", everyday(LIBRARIES, "polars", "arrow types"))
@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.long
def test_libraries_give_the_same_bits(name, library, of_pandas):
    likelihood, columns = LIKELIHOODS[name]
    found = told_by(likelihood, LIBRARIES[library](OF_LIBRARIES[columns]))
    for one, other in zip(found, of_pandas[name], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_have_the_same_suggestion(library):
    columns = ["id", "signup", "note", "visits", "stays", "stars", "size", "news", "owner", "town"]
    with pytest.warns(UserWarning):
        expected = suggest_likelihood(customers()[columns])
    X = LIBRARIES[library](customers()[columns])
    with pytest.warns(UserWarning, match="column 'signup': dates; make numbers of them by"):
        assert repr(suggest_likelihood(X)) == repr(expected)
    with pytest.raises(ValueError, match=re.escape(repr(expected))):
        DPMixture(likelihood="mixed").fit(X)


def test_order_of_categories_of_each_library():
    """That of the type; a Categorical of polars has none, so its values are sorted."""
    sizes = ["tiny", "small", "large", "huge"]
    values = ["small", "large", None, "tiny"] * 10
    pandas = pd.DataFrame({"a": pd.Categorical(values, sizes), "b": values})
    for X, wanted in [
        (pandas, sizes),
        (pa.Table.from_pandas(pandas), sizes),
        (pl.DataFrame(pandas[["b"]]).select(a=pl.col("b").cast(pl.Enum(sizes)), b="b"), sizes),
        (
            pl.DataFrame(pandas[["b"]]).select(a=pl.col("b").cast(pl.Categorical), b="b"),
            ["large", "small", "tiny"],
        ),
    ]:
        model = DPMixture(likelihood="categorical", **FAST).fit(X)
        assert [c.tolist() for c in model.likelihood_.categories_] == [
            wanted,
            ["large", "small", "tiny"],
        ]


# Names.

NAMED = pd.DataFrame({"stays": CODES, "visits": CODES + 1.0}, index=[f"p{i}" for i in range(N)])


@pytest.mark.parametrize(
    ("likelihood", "value", "row"),
    [
        ("poisson", -1.0, " in row 'p7'"),
        ("negative_binomial", 0.5, " in row 'p7'"),
        ("bernoulli", 2.0, " in row 'p7'"),
        ("categorical", -1.0, " in row 'p7'"),
        ("multinomial", -1.0, ""),
        (Product([("x", Poisson(), ["visits"])]), -1.0, " in row 'p7'"),
    ],
)
def test_errors_name_columns_and_rows(likelihood, value, row):
    X = NAMED.clip(upper=1.0) if likelihood == "bernoulli" else NAMED
    bad = X.copy()
    bad.loc["p7", "visits"] = value
    model = DPMixture(likelihood=likelihood, **FAST).fit(X)
    stream = DPMixture(likelihood=likelihood, sampler="smc", random_state=0, n_chains=1, n_draws=3)
    for method, with_row in [
        (DPMixture(likelihood=likelihood, **FAST).fit, True),
        (lambda X: DPMixture(likelihood=likelihood, **FAST).fit(X, known_labels=Z), True),
        (stream.partial_fit, True),
        (stream.partial_fit(X).partial_fit, True),
        (model.predict, False),
        (model.predict_proba, False),
        (model.score_samples, False),
    ]:
        told = rf"column 'visits' of X holds {value:g}( \(part 'x'\))?" + row * with_row
        with pytest.raises(ValueError, match=told):
            method(bad)


def test_errors_of_mutations_name_them():
    lines = pd.DataFrame(
        {
            "mutation_id": ["m0", "m1"],
            "sample_id": "T1",
            "ref_counts": [60, 80],
            "alt_counts": [40, 20],
            "normal_cn": 2,
            "minor_cn": 1,
            "major_cn": [1, 1.4],
        }
    )
    told = "column 'T1:major_cn' of X holds 1.4 in row 'm1'"
    with pytest.raises(ValueError, match=told):
        DPMixture(likelihood="pyclone").fit(mutation_design(lines))
    with pytest.raises(ValueError, match=told):
        FeatureAllocation(2, likelihood="subclones").fit(mutation_design(lines))


def test_errors_of_features_and_directions_name_columns(of_one_column):
    bad = NAMED.assign(visits=np.where(np.arange(N) == 7, np.inf, CODES))
    for method in (
        DPMixture(likelihood=VonMisesFisher()).fit,
        FeatureAllocation().fit,
        FeatureAllocation(**FAST).fit(NAMED).transform,
        DPMixture(sampler="sub_cluster", **FAST).fit,
        DPMixture(**FAST).fit(NAMED).impute,
    ):
        with pytest.raises(ValueError, match="infinity in column 'visits' of X"):
            method(bad)


@pytest.mark.parametrize(
    "strings, words",
    [
        ([f"2024-01-{d:02}" for d in range(1, 29)], r"dates or times as strings.*to_datetime"),
        ([f"{d:02}/05/2024" for d in range(1, 29)], "dates or times as strings"),
        (["13:00", "14:30", "n/a"], "dates or times as strings"),
        (["red", "?", "blue"], r"if \['\?'\] mean missing, make them NaN"),
        (["red", "none", "-"], None),
        (["2024", "spring"], None),
    ],
)
@pytest.mark.long
def test_strings_that_repeat_but_are_no_categories_are_named(strings, words):
    X = pd.DataFrame({"when": np.resize(strings, 100), "size": np.linspace(0.0, 1.0, 100) ** 0.5})
    if words is None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            suggest_likelihood(X)
        return
    with pytest.warns(UserWarning, match=f"'when': {words}.*Categorical is proposed"):
        suggest_likelihood(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        suggest_likelihood(X.astype({"when": "category"}))  # the user says what they are
    with pytest.warns(UserWarning, match=f"'when': {words}"):
        short = {"n_chains": 1, "n_warmup": 1, "n_draws": 1}
        DPMixture(likelihood="mixed", **short, random_state=0).fit(X)


def test_summaries_name_the_columns_of_parts():
    """Whole numbers among measurements, such as years, are named as such."""
    rng = np.random.default_rng(0)
    gaussian = Gaussian(covariance_type="diag")
    parts = [("numbers", gaussian, slice(2)), ("flag", Bernoulli(), ["flag"])]
    X = pd.DataFrame({"year": rng.integers(1990, 2025, 60), "b": rng.normal(size=60)})
    X["flag"] = rng.random(60) < 0.4
    for options in ({}, {"select": True}):
        model = DPMixture(likelihood=Product(parts, **options), **FAST).fit(X)
        line = next(x for x in model.summary().splitlines() if x.startswith("likelihood"))
        words = "for column 'year' and column 'b', Bernoulli for column 'flag'"
        assert line.split(maxsplit=1)[1] == f"Gaussian(covariance_type='diag') {words}"
    # The name of a part may begin with that of another one.
    parts = [("a.b", "poisson", ["year"]), ("a", Gaussian(), ["b"])]
    model = DPMixture(likelihood=Product(parts), **FAST).fit(X.astype(float))
    assert "  Poisson for column 'year', Gaussian for column 'b'\n" in model.summary()


@pytest.mark.filterwarnings("ignore:.*no entries")
@pytest.mark.parametrize("other", [[], [np.ones(60)], [np.full(60, np.nan)]])
def test_summaries_name_gaussians_that_leave_out_columns(other):
    X = np.column_stack([np.random.default_rng(0).normal(size=(60, 2)), *other])
    model = DPMixture(**FAST).fit(X)
    assert re.search(r"\nlikelihood +Gaussian\n", model.summary())
    assert len(model.likelihood_.mean) == 2


def test_summaries_show_tails():
    X = np.random.default_rng(0).standard_t(3, size=(60, 2))
    summary = DPMixture(likelihood=Gaussian(tails="t"), **FAST).fit(X).summary()
    assert re.search(r"\nlikelihood +Gaussian with StudentTails\n", summary)


def test_columns_may_have_names_of_methods():
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(20, 2)), columns=["read", "__next__"])
    model = DPMixture(n_draws=5, n_warmup=5, n_chains=1, random_state=0).fit(X)
    assert list(model.feature_names_in_) == ["read", "__next__"]


def test_numbers_beside_text_do_not_change_the_advice_about_it():
    """Columns of numbers that "auto" would take as categories or counts."""
    columns = {
        "size": np.linspace(1.0, 9.0, 395) ** 2,
        "day": np.tile([152, 174, 201, 227, 258], 79),
    }
    X = pd.DataFrame(columns | {"group": np.where(np.arange(395) < 270, "ozone", "control")})
    with pytest.raises(ValueError, match=r'ozone.*use likelihood="mixed" for tables'):
        DPMixture().fit(X)


def test_code_about_infinite_entries_runs():
    X = pd.DataFrame({"end": np.r_[np.full(20, np.inf), np.linspace(0.1, 5.0, 80) ** 2]})
    with pytest.warns(UserWarning, match="has inf in 20 of 100 rows") as caught:
        suggest_likelihood(X)
    line = re.search(r"X\[\['end'\]\] = X\[\['end'\]\]\.replace\(.*?nan\)", str(caught[0].message))
    scope = {"X": X, "np": np}
    exec(line[0], scope)
    assert scope["X"]["end"].isna().sum() == 20
