# SPDX-License-Identifier: BSD-3-Clause
"""What `fit` says of columns of numbers: marks of missing entries, far entries and copies."""

import copy
import re
import warnings

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support.designs import everyday

from skdpm import DPMixture, suggest_likelihood
from skdpm._tables import CodeFor
from skdpm.mixture.likelihoods import Gaussian, Poisson, Product, Subspace
from skdpm.mixture.likelihoods.laws.columns import (
    Fill,
    Skewed,
    Spike,
    filled_columns,
    words_about,
)

N = 240
FAST = {"n_chains": 1, "n_warmup": 1, "n_draws": 1, "random_state": 0}


def ordinary(rng):
    """Columns of numbers without marks."""
    some = rng.random(N) < 0.3
    return {
        "uniform": rng.uniform(0.0, 10.0, N),
        "normal": rng.normal(10.0, 1.0, N),
        "amounts": rng.lognormal(0.0, 1.0, N),
        "answers": rng.integers(1, 6, N),
        "ages": rng.integers(18, 90, N),
        "counts": rng.poisson(4.0, N),
        "seconds": 1.7e9 + rng.uniform(0.0, 3e7, N),
        "zeros and amounts": np.where(some, 0.0, rng.lognormal(3.0, 1.0, N)),
        "zeros far away": np.where(some, 0.0, rng.normal(1_000.0, 1.0, N)),
        "counts with more zeros": np.where(some, 0, rng.poisson(6.0, N)),
        "few zeros among counts": np.where(rng.random(N) < 0.06, 0, rng.poisson(9.0, N)),
        "few zeros among amounts": np.where(rng.random(N) < 0.06, 0, rng.gamma(2, 9, N).round()),
        "doses": rng.choice([0, 10, 20, 50, 100], N, p=[0.06, 0.3, 0.3, 0.3, 0.04]),
        "flags": some,
        "signs": rng.integers(-1, 2, N),
        "changes": np.where(rng.random(N) < 0.05, -1, rng.integers(0, 4, N)),
        "prices": rng.choice([9, 19, 29, 49, 99, 199, 499, 999], N),
        "percent": rng.integers(0, 100, N),
        "heavy": rng.standard_cauchy(N).round(),
        "large": rng.lognormal(20.0, 2.0, N),
        "identifiers": rng.integers(10**9, 2 * 10**9, N),
        "cluster": np.where(some, rng.normal(999.0, 0.01, N), rng.normal(size=N)),
        "value": np.where(some, 500.0, rng.normal(size=N)),
    }


@pytest.mark.parametrize("seed", range(5))
def test_ordinary_columns_hold_no_marks(seed):
    columns = ordinary(np.random.default_rng(seed))
    X = np.column_stack([column.astype(float) for column in columns.values()])
    names = list(columns)
    assert [names[d] for d in filled_columns(X)] == []
    assert filled_columns(X[:9]) == {} == filled_columns(np.full((30, 1), np.nan))


@pytest.mark.parametrize(
    ("name", "mark"),
    [
        *(("uniform", mark) for mark in (-1, -9, -99, 99, 999, -999, 9999, -999.9, 1e9, 1e20)),
        *(("normal", mark) for mark in (0, -99, -999.25, 9999, -32768, 9.969209968386869e36)),
        *(("amounts", mark) for mark in (-1, -9, -8888, 999, 1e6, -3.4028234663852886e38)),
        *(("answers", mark) for mark in (-1, -9, 88, 99, 999)),
        *(("ages", mark) for mark in (0, -1, -9, -99, 999, -999, 9999)),
        *(("counts", mark) for mark in (-9, 99, 999, 2147483647)),
        *(("seconds", mark) for mark in (0, -1, 1e20)),
    ],
)
def test_marks_of_missing_entries_are_found(name, mark):
    rng = np.random.default_rng(1)
    for share in (0.05, 0.06 if mark == 0 else 0.4):
        column = ordinary(rng)[name].astype(float)
        column[rng.random(N) < 0.1] = np.nan
        column[: int(share * N)] = mark
        assert filled_columns(column[:, None]) == {0: Fill((mark,), int(share * N), 0)}
    # Most entries are no mark.
    column[: int(0.8 * N)] = mark
    assert filled_columns(column[:, None]) == {}


def test_several_marks_of_a_column():
    X = ordinary(np.random.default_rng(2))["answers"][:, None].astype(float)
    X[5:35, 0] = np.repeat([77.0, 88.0, -99.0], 10)
    assert filled_columns(X) == {0: Fill((-99.0, 77.0, 88.0), 30, 5)}
    # One of a row is a far entry if it is far enough.
    X[5:35, 0] = 3.0
    X[7, 0] = 999.0
    assert filled_columns(X) == {0: Fill((999.0,), 1, 7)}
    assert filled_columns(X, {0}) == {}


def words_of(X, likelihood="auto", **params):
    """The warning of `fit` about columns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        DPMixture(likelihood=likelihood, **FAST).fit(X, **params)
    (words,) = {
        str(w.message) for w in caught if re.search("far from|as far out|cop", str(w.message))
    }
    return words


def run_code(words, X):
    """X after the line of code at the end of a warning."""
    space = {"np": np, "pl": pl, "X": copy.deepcopy(X)}
    exec(words.partition("NaN: ")[2].partition(". Also, ")[0], space)
    return space["X"]


@pytest.mark.parametrize("n_columns", everyday([2, 6], 2))
@pytest.mark.long
def test_marks_are_named_with_code_for_the_container(n_columns):
    rng = np.random.default_rng(0)
    X = np.abs(rng.normal(5.0, 1.0, (N, n_columns)))
    full = X.copy()
    X[:12] = -999.0
    names = [f"c{d}" for d in range(n_columns)]
    expected = np.where(X == -999.0, np.nan, full)
    for table in (X, pd.DataFrame(X, columns=names), pl.DataFrame(X, names)):
        words = words_of(table)
        assert "have -999 in up to 12 of 240 rows, far from other values" in words
        if n_columns == 6:
            assert re.match("column .*, column .*, column .* and 3 more columns of X", words)
        if table is not X:
            assert "'c0'" in words
        code = run_code(words, table)
        np.testing.assert_array_equal(np.array(code, dtype=float), expected)
    X[20:25], X[7, 0] = 888.0, 777.0
    words = words_of(X)
    assert "column 0 of X has -999, 777 and 888 in 17 of 240 rows" in words
    assert "have -999 and 888 in up to 17 of 240 rows" in words or n_columns == 2
    assert np.count_nonzero(np.isnan(run_code(words, X)[:, 0])) == 17
    X[:25], X[9, 1] = full[:25], 999.0
    assert words_of(X).startswith("column 1 of X has 999 in row 9, far from other values")


def test_the_check_up_sees_marks():
    """They do not make measurements or counts of codes."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"size": rng.normal(size=N), "answer": rng.integers(1, 6, N)})
    table.loc[:9, "answer"] = 99
    with pytest.warns(UserWarning, match="look at") as caught:
        suggested = suggest_likelihood(table)
    assert suggested.parts[1][::2] == ("categorical", ["answer"])
    line = r"column 'answer' of X has 99 in 10 of 240 rows, far from .*replace\(\[99\], np.nan"
    (words,) = {str(w.message) for w in caught}
    assert re.search(line, words)
    with pytest.raises(ValueError, match=line):
        DPMixture(likelihood="mixed", **FAST).fit(table)
    with pytest.warns(UserWarning) as caught:
        DPMixture(likelihood="mixed", **FAST).fit(table.astype(float))
    assert sum("replace([99]" in str(w.message) for w in caught) == 1


def test_marks_under_other_likelihoods():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(4.0, (N, 2)), rng.normal(size=(N, 38))]).astype(float)
    X[:12, 1] = 999.0
    named = "column 1 of X has 999 in 12 of 240 rows"
    assert named in words_of(X[:, :2], Poisson())
    assert named in words_of(X[:, :2], Poisson(), exposure=np.ones(N))
    assert named in words_of(X, Subspace())
    parts = Product([("counts", Poisson(), [0, 1]), ("rest", Gaussian(), [2, 3])])
    assert named in words_of(X[:, :4], parts)


@pytest.mark.long
def test_far_entries_of_many_columns_are_one_sentence():
    X = np.random.default_rng(0).normal(size=(60, 9))
    X[7], X[8, 3] = 3e11, 5e11
    words = words_of(X)
    assert words.count("make it NaN") == 1
    assert "(10 such entries in column 0, column 1, column 2 and 6 more columns)" in words
    assert words.startswith("row 7 of column 0 of X holds 3e+11, more than 1000 times")
    X[:, 1:] = np.random.default_rng(0).normal(size=(60, 8))
    assert re.match(r"row 7 of column 0 of X holds 3e\+11, more than 1000 times", words_of(X))


def test_far_entries_under_a_shared_covariance_are_named_from_nearer():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[7, 0] = 456.0
    assert "456, more than 20 times" in words_of(X, Gaussian(covariance_type="tied"))


@pytest.mark.parametrize("value", [1e160, -1e300, 1.7e308])
def test_values_too_large_for_squares_are_named(value):
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 40)))
    X.index = [f"sample {i}" for i in range(60)]
    X.loc["sample 5", 1] = value
    X["kind"] = ["a", "b"] * 30
    X.columns = X.columns.map(str)
    ways = f"'1' of X .*such as {re.escape(f'{value:g}')} in row 'sample 5'; if .*means missing"
    for columns, likelihood in (
        (["0", "1"], "auto"),
        (list("0123"), "mixed"),
        (X.columns, "mixed"),
    ):
        with pytest.raises(ValueError, match=ways):
            DPMixture(likelihood=likelihood, **FAST).fit(X[columns])
    with pytest.raises(ValueError, match=re.escape(f"{value:g} in row 5; if such a value means")):
        DPMixture(likelihood=Subspace(), **FAST).fit(X.drop(columns="kind").to_numpy())


def test_rows_have_the_names_of_the_index():
    x = np.random.default_rng(0).normal(size=(60, 2))
    for value, words in ((1e9, "row 377 of column 'b' of X"), (1e200, r"1e\+200 in row 377;")):
        x[7, 1] = value
        table = pd.DataFrame(x, columns=["a", "b"], index=np.arange(370, 430))
        with pytest.raises((ValueError, UserWarning), match=words), warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            DPMixture(**FAST).fit(table)


# Tables of rows and names.
MAKERS = {
    "numpy": lambda X, names: X,
    "pandas": lambda X, names: pd.DataFrame(X, columns=names),
    "polars": pl.DataFrame,
    "pyarrow": lambda X, names: pa.table(list(X.T), names=names),
}


@pytest.mark.parametrize("n_columns", [2, 6])
@pytest.mark.parametrize("library", MAKERS)
def test_code_changes_its_columns(library, n_columns):
    X = np.random.default_rng(0).lognormal(size=(8, 7))
    X[2, 0] = X[3, 6] = -99.0
    names = None if library == "numpy" else list("abcdefg")
    table = MAKERS[library](X, names)
    code, chosen = CodeFor(table, names), list(range(1, 1 + n_columns))

    def run(line):
        space = {"X": copy.deepcopy(table), "np": np, "pl": pl}
        exec(line, space)
        return np.asarray(space["X"], dtype=float)

    for constants in ([200.0] * n_columns, [200.0 + d for d in chosen]):
        expected = X.copy()
        expected[:, chosen] = np.log1p(np.array(constants) - X[:, chosen])
        line = code.with_logarithms(chosen, "np.log1p({c} - {x})", constants)
        np.testing.assert_allclose(run(line), expected)
    gaps = np.isnan(run(code.with_gaps(chosen, (-99.0,))))
    assert np.argwhere(gaps).tolist() == ([] if n_columns == 2 else [[3, 6]])
    X = np.abs(X)
    table = MAKERS[library](X, names)
    for constant in (0.0, 0.25):
        expected = X.copy()
        expected[:, chosen] = np.log((X[:, chosen] + constant) / (X[:, [2]] + constant))
        function = "np.log(({x} + {c}) / ({y} + {c}))" if constant else "np.log({x} / {y})"
        found = run(code.with_logarithms(chosen, function, [constant] * n_columns, 2))
        np.testing.assert_allclose(found, expected)


def test_lines_of_a_warning_follow_one_another():
    marks = {"a": Fill((-9.0,), 2, 2), "b": Fill((99.0,), 2, 3), "c": Skewed("np.log({x})", 0.0)}
    table = pa.table({"a": [1.0, 2.0, -9.0], "b": [1.0, 99.0, 3.0], "c": [1.0, 1.0, 1.0]})
    words = words_about(dict(enumerate(marks.values())), table, np.ones((3, 3)), list(marks))
    logs, gaps = words.split(". Also, ")
    space = {"X": table, "np": np}
    exec(logs.partition("before fit: ")[2], space)
    exec(gaps.partition("make it NaN: ")[2], space)
    np.testing.assert_array_equal(space["X"], [[1, 1, 0], [2, np.nan, 0], [np.nan, 3, 0]])


def test_code_for_logarithms_of_whole_numbers_keeps_fractions():
    X = np.array([[1, 20], [3, 400]])
    expected = np.log(X)
    names = {"X": X, "np": np}
    exec(CodeFor(X, None).with_logarithms([0, 1]), names)
    np.testing.assert_array_equal(names["X"], expected)


def test_zeros_far_from_others_are_named_in_their_columns_alone():
    """As where a pulse of 0 is a missing one, beside counts that have zeros."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(1.5, N), rng.normal(70.0, 12.0, N).round()]).astype(float)
    X[:9, 1] = 0.0
    assert filled_columns(X) == {1: Fill((0.0,), 9, 0)}
    words = words_of(X)
    assert "column 1 of X has 0 in 9 of 240 rows, far from other values" in words
    expected = np.column_stack([X[:, 0], np.where(X[:, 1] == 0.0, np.nan, X[:, 1])])
    np.testing.assert_array_equal(run_code(words, X), expected)
    # A row alone must be farther.
    X[1:9, 1] = 70.0
    assert filled_columns(X) == {}
    X[:, 1] = np.where(X[:, 1], 36.0 + X[:, 1] / 50.0, 0.0)
    assert filled_columns(X) == {1: Fill((0.0,), 1, 0)}


def test_messages_have_few_digits_and_code_all():
    x = np.random.default_rng(0).normal(size=(60, 1))
    value = -0.2367752231871581
    x[:30] = value
    words = words_about({0: Spike((value,), 30, 0)}, x, x, None)
    assert "column 0 of X has -0.2368 in 30 of 60 rows" in words
    scope = {"X": x, "np": np, "pd": pd}
    exec(words.partition('"mixed": ')[2], scope)
    assert list(scope["X"].columns) == ["0", "0 is -0.2368"]
    assert scope["X"].iloc[:, 1].sum() == 30 == scope["X"].iloc[:, 0].isna().sum()
