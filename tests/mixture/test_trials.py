# SPDX-License-Identifier: BSD-3-Clause
"""Tests of the law that `likelihood="auto"` chooses for rows of many columns or of answers."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import MinMaxScaler, StandardScaler

from skdpm import DPMixture, FiniteMixture, suggest_likelihood
from skdpm.mixture import trials
from skdpm.mixture.likelihoods import Categorical, Gaussian, NegativeBinomial, Product
from skdpm.mixture.likelihoods.composite.automatic import (
    ALWAYS_FULL,
    MANY_COLUMNS,
    MOST_FULL,
    Mixed,
    laws_by_name,
    laws_for,
)
from skdpm.mixture.likelihoods.composite.derived import products_among
from skdpm.mixture.likelihoods.composite.discrete import FEWEST_ROWS
from skdpm.mixture.likelihoods.gaussian.gaussian import BLOCK_ROWS
from skdpm.mixture.likelihoods.laws.recorded import random_order
from skdpm.mixture.trials import (
    MOST_ROWS,
    _is_better,
    _score,
    _tried,
    best_law,
    scores_of_laws,
)
from skdpm.plotting import DensityDisplay

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"n_chains": 2, "n_warmup": 3, "n_draws": 4, "random_state": 0}


def names(laws):
    return [getattr(law, "covariance_type", "subspace") for law in laws]


def rows(kind, n_samples=150, n_features=14, seed=0):
    """Three clusters whose columns are independent or correlated."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_samples) % 3
    X = rng.standard_normal((n_samples, n_features)) * rng.uniform(0.3, 3.0, n_features)
    if kind == "correlated":
        X = X @ rng.standard_normal((n_features, n_features))
    return X + 3.0 * X.std(axis=0) * rng.standard_normal((3, n_features))[labels]


# Which laws are tried.


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((500, MANY_COLUMNS - 1), ["full"]),
        ((500, MANY_COLUMNS), ["full", "diag", "tied"]),
        ((500, 13), ["full", "diag", "subspace", "tied"]),
        ((500, ALWAYS_FULL + 1), ["full", "diag", "subspace", "tied"]),
        ((36, 19), ["diag", "full", "subspace"]),
        ((35, 19), ["diag", "full"]),
        ((35, ALWAYS_FULL + 1), ["diag"]),
        ((35, 1000), ["diag"]),
        ((60, ALWAYS_FULL + 1), ["diag", "subspace"]),
        ((9000, ALWAYS_FULL), ["full", "diag", "subspace", "tied"]),
        ((9000, MOST_FULL), ["full", "diag", "subspace", "tied"]),
        ((9000, MOST_FULL + 1), ["subspace", "diag"]),
        ((15_000, 20), ["full"]),
        ((30_000, 20), ["full", "subspace"]),
        ((30_000, 60), ["full", "subspace"]),
        ((30_000, 80), ["subspace"]),
    ],
)
def test_laws_that_are_tried(shape, expected):
    assert names(laws_for(np.zeros(shape))) == expected


@pytest.mark.parametrize("shape", [(10, 12), (10, 40)])
def test_priors_of_a_fit_are_its_own(shape):
    changed, other = (laws_for(np.zeros(shape))[0] for _ in range(2))
    changed.hyperpriors["mean_precision"] = None
    assert other.hyperpriors["mean_precision"] is not None
    assert laws_for(np.zeros(shape))[0].hyperpriors == other.hyperpriors


def test_laws_with_missing_entries_take_them():
    X = np.zeros((500, 40))
    X[7, 3] = np.nan
    assert names(laws_for(X)) == ["full", "diag", "tied"]
    assert all(law.allow_nan for law in laws_for(X))


def test_chunks_are_not_tried():
    da = pytest.importorskip("dask.array")
    assert names(laws_for(da.zeros((90, ALWAYS_FULL)))) == ["full"]
    assert names(laws_for(da.zeros((90, ALWAYS_FULL + 1)))) == ["subspace"]


# Which one is chosen.


def test_the_first_law_stays_unless_another_is_clearly_better():
    rng = np.random.default_rng(0)
    first = rng.standard_normal(100)
    noise = rng.standard_normal((2, 100))
    assert best_law(np.array([first, first - 1.0 + noise[0]])) == 0
    assert best_law(np.array([first, first + 1.0 + noise[0]])) == 1
    # By 0.14 of its standard deviation: 1.4 standard errors.
    standard = (noise[0] - noise[0].mean()) / noise[0].std(ddof=1)
    assert best_law(np.array([first, first + standard + 0.14])) == 0
    assert best_law(np.array([first, first + standard + 0.28])) == 1
    assert best_law(np.array([first, first + 1.0 + noise[0], first + 2.0 + noise[1]])) == 2
    # Of two that are clearly better than the first one, a little more does not decide.
    assert best_law(np.array([first, first + 1.0 + noise[0], first + 1.05 + noise[1]])) == 1


def test_one_row_does_not_decide():
    scores = np.random.default_rng(0).standard_normal((2, 100))
    scores[0, 3] = -1e4
    assert scores.mean(axis=1).argmax() == 1
    assert best_law(scores) == 0


def test_laws_that_refuse_the_rows_are_not_chosen():
    scores = np.zeros((3, 10))
    scores[1] = -np.inf
    scores[2] = np.arange(10) + 1.0
    assert best_law(scores) == 2
    assert best_law(scores[:2]) == 0
    assert best_law(np.full((2, 10), -np.inf)) == 0
    assert best_law(scores[[1, 0, 2]]) == 2  # nor kept
    assert best_law(np.array([[0.0], [1.0]])) == 0  # no standard error
    refused = np.full(3, -np.inf)
    assert _is_better(np.arange(3.0), refused) and not _is_better(refused, np.arange(3.0))
    assert not _is_better(refused, refused)


@pytest.mark.parametrize(
    ("kind", "covariance_type"), [("independent", "diag"), ("correlated", "tied")]
)
@pytest.mark.long
def test_the_law_of_the_rows_is_found(kind, covariance_type):
    X = rows(kind, n_samples=300, seed=12)
    model = DPMixture(**SHORT).fit(X)
    assert model.likelihood_.covariance_type == covariance_type
    scores = model.likelihood_scores_
    assert len(scores) == 4
    assert next(iter(scores.values())) == max(scores.values())
    named = DPMixture(likelihood=Gaussian(covariance_type=covariance_type), **SHORT)
    named.fit(X)
    np.testing.assert_array_equal(model.log_joint_samples_, named.log_joint_samples_)
    assert not hasattr(named, "likelihood_scores_")
    assert f"covariance_type={covariance_type!r}" in repr(model.likelihood_)
    (said,) = [line for line in model.summary().splitlines() if line.startswith("likelihood ")]
    law = f"Gaussian({covariance_type=})"
    chosen, *others = (f"{name} {score:.4g}" for name, score in scores.items())
    assert said.endswith(
        f"  {law}; nats a held-out row in short fits: {chosen} (chosen), {', '.join(others)}"
    )


@pytest.mark.long
def test_scores_are_those_of_rows_that_were_not_fitted():
    X = rows("independent", n_samples=100)
    laws = laws_for(X)[1:3]
    scores = scores_of_laws(DPMixture(random_state=7), laws, X)
    assert scores.shape == (2, 20)  # the first law is clearly better
    more = scores_of_laws(DPMixture(), laws[::-1], X)
    assert more.shape == (2, 40)  # until there are enough
    np.testing.assert_array_equal(more[::-1, :20], scores)
    order = random_order(X.__getitem__, 100)
    model = DPMixture(likelihood=laws[0], **trials.SHORT, **trials.USUAL, random_state=0).fit(
        X[order[20:]]
    )
    np.testing.assert_array_equal(scores[0, :20], model.score_samples(X[order[:20]]))


def spoilt(X):
    """Rows with copies and gaps."""
    X = np.concatenate([X, X[:99]])
    X[::7, 1] = np.nan
    return X


@pytest.mark.long
@pytest.mark.parametrize(
    ("likelihood", "X"),
    [
        ("auto", rows("independent", 1200)),
        ("auto", spoilt(rows("correlated"))),
        ("mixed", pd.DataFrame(spoilt(rows("independent"))).rename(columns="{:02}".format)),
    ],
    ids=["many", "copies and gaps", "table"],
)
def test_the_order_of_rows_says_nothing(likelihood, X):
    if likelihood == "mixed":
        X = X.assign(kind=np.where(np.arange(len(X)) % 3, "x", None), at="here")
    order = np.random.default_rng(1).permutation(len(X))
    shuffled = X.iloc[order] if likelihood == "mixed" else X[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # copies, and columns of one value
        models = [DPMixture(likelihood=likelihood, **SHORT).fit(Z) for Z in (X, shuffled)]
    assert models[0].likelihood_scores_ == models[1].likelihood_scores_
    assert len(models[0].likelihood_scores_) > 1


def test_random_orders_of_rows(monkeypatch):
    monkeypatch.setattr("skdpm.mixture.likelihoods.laws.recorded.MANY_ROWS", 64)
    X = np.repeat(np.random.default_rng(0).normal(size=(3, 2)), 1000, axis=0)
    X[:, 1] = 0.0
    order = random_order(X.__getitem__, 3000)
    np.testing.assert_array_equal(np.sort(order), np.arange(3000))
    # Equal rows are not next to each other.
    counts = np.unique(X[order[:300], 0], return_counts=True)[1]
    assert (abs(counts - 100.0) < 4.0 * np.sqrt(300.0 * 2.0 / 9.0)).all() and len(counts) == 3
    assert np.mean(order[:1500] < order[1500:]) < 0.6


def test_trials_end_in_time():
    X = rows("independent", n_samples=60)
    scores = scores_of_laws(DPMixture(max_time=100.0), laws_for(X), X)
    assert scores.shape == (4, 12)  # once
    assert np.isfinite(scores).all()


@pytest.mark.parametrize(
    "wrong", [{"n_draws": -1}, {"n_chains": 0}, {"sampler": "nope"}, {"thin": 0}], ids=repr
)
def test_wrong_parameters_are_refused_before_the_trials(wrong, monkeypatch):
    monkeypatch.setattr("skdpm.mixture.base.scores_of_laws", None)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        DPMixture(**{**SHORT, **wrong}).fit(rows("independent"))


def test_few_of_many_rows_are_tried():
    X = rows("independent", n_samples=1200)
    assert scores_of_laws(DPMixture(), laws_for(X)[1:2], X).shape == (1, MOST_ROWS // 5)


@pytest.mark.parametrize("n_clusters", [1, 3])
def test_clusters_of_one_covariance_have_it_in_common(n_clusters):
    """Five readings of three quantities: each cluster of its own covariance costs more than three
    clusters gain."""
    rng = np.random.default_rng(2)
    labels = rng.choice(3, 500, p=[0.5, 0.3, 0.2]) % n_clusters
    means = np.array([[0.0, 0.0, 0.0], [4.0, 0.0, 3.0], [0.0, 5.0, 2.0]])
    X = means[labels] + rng.normal(size=(500, 3))
    X = np.tile(X, 5) + 0.1 * rng.normal(size=(500, 15))
    full, *_, tied = laws = laws_for(X)
    scores = scores_of_laws(DPMixture(), [full, tied], X)
    gains = scores[1] - scores[0]
    if n_clusters == 1:
        assert best_law(scores) == 0 and abs(gains.mean()) < 0.1
    else:
        assert best_law(scores_of_laws(DPMixture(), laws, X)) > 0 and gains.mean() > 0.4
        model = DPMixture(likelihood=tied, random_state=0).fit(X)
        assert adjusted_rand_score(labels, model.labels_) > 0.9


@pytest.mark.long
def test_going_on_keeps_the_law():
    X = rows("independent")
    whole = DPMixture(**SHORT).fit(X)
    model = DPMixture(warm_start=True, **{**SHORT, "n_draws": 2}).fit(X)
    scores = model.likelihood_scores_
    model.set_params(n_draws=4).fit(X)
    assert model.likelihood_scores_ == scores
    np.testing.assert_array_equal(model.log_joint_samples_, whole.log_joint_samples_)


@pytest.mark.long
def test_going_on_with_other_rows_is_refused():
    X = rows("independent")
    model = DPMixture(warm_start=True, **SHORT).fit(X)
    few = np.where(np.arange(len(X)) < 20, 1, 0).astype(bool)
    for other in (X[few], np.where(X == X[3, 3], np.nan, X)):
        with pytest.raises(ValueError, match="needs the rows of the last fit"):
            model.set_params(n_draws=8).fit(other)


# The numbers of "mixed".


def table(correlation, n_numbers=3, n_samples=100):
    """Three clusters of numbers with gaps, and a column of categories."""
    rng = np.random.default_rng(2)
    labels = np.arange(n_samples) % 3
    shared = np.sqrt(correlation) * rng.standard_normal((n_samples, 1))
    X = shared + np.sqrt(1.0 - correlation) * rng.standard_normal((n_samples, n_numbers))
    X += 3.0 * rng.standard_normal((3, n_numbers))[labels]
    X[::7, 0] = np.nan
    frame = pd.DataFrame(X, columns=list("abcdefghijkl")[:n_numbers])
    return frame.assign(kind=np.array(["x", "y", "w"])[labels]), labels


@pytest.mark.parametrize(
    ("correlation", "n_numbers", "chosen"),
    [(0.0, 12, "diag"), (0.5, 3, "full"), (0.9, 3, "full"), (1.0, 3, "full")],
)
@pytest.mark.some(2)
@pytest.mark.long
def test_mixed_gives_correlated_numbers_covariances(correlation, n_numbers, chosen):
    X, labels = table(correlation, n_numbers)
    model = DPMixture(likelihood="mixed", random_state=0, n_chains=2).fit(X)
    assert model.likelihood_.numeric__covariance_type == chosen
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert model.n_clusters_ == 3
    scores = model.likelihood_scores_
    assert {*scores} == {"numeric: Gaussian()", "numeric: Gaussian(covariance_type='diag')"}
    said = model.summary()
    chosen, other = scores
    assert f"short fits: {chosen} " in said and f"(chosen), {other} " in said
    assert ("(not clearly better)" in said) == (scores[other] > scores[chosen])
    assert "Categorical for column" in said  # the parts are named too
    assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.parametrize(
    ("n_samples", "n_numbers", "expected"),
    [(60, 1, "diag"), (60, 2, "full"), (23, 12, "diag"), (24, 12, "full"), (99, 33, "diag")],
)
@pytest.mark.long
def test_suggestions_have_covariances_where_mixed_tries_them(n_samples, n_numbers, expected):
    X = np.random.default_rng(0).normal(size=(n_samples, n_numbers))
    X = pd.DataFrame(X).rename(columns=str).assign(kind=np.resize(["x", "y"], n_samples))
    suggested = suggest_likelihood(X)
    assert suggested.numeric__covariance_type == expected
    asked = DPMixture(likelihood="mixed")._resolved("likelihood")
    assert bool(laws_by_name(asked, asked.for_columns(X), X)) == (expected == "full")
    with pytest.raises(ValueError, match=re.escape(repr(suggested))):
        DPMixture(likelihood="mixed").fit(X.assign(when=pd.Timestamp(0)))


def test_suggestions_have_no_covariances_that_no_sampler_of_blocks_could_complete():
    X = np.random.default_rng(0).normal(size=(40_000, 12))
    X = pd.DataFrame(X).rename(columns=str).assign(kind=np.resize(["x", "y"], len(X)))
    assert suggest_likelihood(X).numeric__covariance_type == "full"
    X.loc[3, "0"] = np.nan
    assert suggest_likelihood(X).numeric__covariance_type == "diag"


def test_which_numbers_of_mixed_are_tried():
    def tried(X):
        return [*laws_by_name(Mixed(), Mixed().for_columns(X), X)]

    X, _ = table(0.0)
    assert len(tried(X)) == 2
    assert tried(X[:5]) == tried(X[["a", "kind"]]) == tried(X[["kind"]]) == []
    many = pd.concat([X] * 250, ignore_index=True)
    assert tried(many) == []  # samplers of blocks draw no entries
    assert len(tried(many.fillna(0.0))) == 2


@pytest.mark.long
def test_finite_mixtures_and_single_rows():
    X = rows("independent", n_samples=60)
    assert FiniteMixture(3, **SHORT).fit(X).likelihood_.covariance_type == "diag"
    single = DPMixture(**SHORT).fit(X[:1])
    assert single.n_clusters_ == 1
    assert not hasattr(single, "likelihood_scores_")


# Answers: columns of few whole numbers.


def answers(n_samples=300, n_features=6, n_values=5, seed=0):
    """Rows of three classes with answers from 1 on, and their classes."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(n_values, 0.4), size=(3, n_features))
    labels = np.arange(n_samples) % 3
    drawn = (rng.random((n_samples, n_features, 1)) > shares[labels].cumsum(axis=2)).sum(axis=2)
    return 1.0 + np.minimum(drawn, n_values - 1), labels


def with_gap(X):
    X = X.copy()
    X[0, 0] = np.nan
    return X


def last(X):
    """The columns of the parts of the law of answers and counts, "all" if all are answers and
    "counts" if they are counts; None if only numbers are tried."""
    *_, law = laws_for(X)
    if isinstance(law, Categorical | NegativeBinomial):
        return "all" if isinstance(law, Categorical) else "counts"
    return [own for _, _, own in law.parts] if isinstance(law, Product) else None


def test_which_columns_are_answers():
    X, _ = answers(n_features=3)
    others = np.random.default_rng(0).normal(size=(len(X), 7))
    for given in (X, X.tolist(), X.astype(int), pd.DataFrame(X), with_gap(X), np.ma.array(X)):
        assert last(given) == "all"
    assert last(np.c_[others[:, 0], X]) == [[0], [1, 2, 3]]
    assert last(np.c_[X, np.ones((len(X), 9))]) == [[*range(3, 12)], [0, 1, 2]]
    assert last(np.c_[X, others[:, :6]]) == [[*range(3, 9)], [0, 1, 2]]
    # A single column tells clusters if there are other numbers, however many.
    assert last(np.c_[X[:, :1], others[:, :2]]) == [[1, 2], [0]]
    assert last(np.c_[X[:, :1], others]) == [[*range(1, 8)], [0]]
    assert last(X[:, :2]) is None  # two columns alone do not tell classes
    late = X.copy()
    late[-1, 0] = 1.55
    assert last(late) == [[0], [1, 2]]
    for other in (X[:1], np.sqrt(X), X * np.inf, X[0]):
        assert last(other) is None
    assert last(np.c_[X, 12.0 * others[:, 0]]) == [[3], [0, 1, 2]]
    codes = X.astype(int)
    for given in (codes.astype(str), codes.astype(object), codes.astype("M8[D]"), X + 1j):
        assert last(given) == ("all" if given.dtype.kind in "UO" else None)
    words = np.array(["never", "seldom", "often", "mostly", "always"])[codes - 1]
    assert last(pd.DataFrame(words)) is None
    # Two clusters of them have more probabilities than these rows can tell.
    assert last(X[: FEWEST_ROWS * 12]) == "all" and last(X[: FEWEST_ROWS * 12 - 1]) is None


@pytest.mark.parametrize(
    ("levels", "are_codes"),
    [
        ([8001.0, 8002.0, 8400.0, 1204.0, 3011.0], True),
        ([276.0, 756.0, 840.0], True),
        ([20.0, 25.0, 37.0], True),
        ([0.0, 5.0, 10.0, 50.0], True),
        ([0.1, 1.0, 10.0, 100.0], True),
        ([1.0, 2.0, 4.0, 8.0], True),
        ([0.0, 1.0, 2.0, 3.0, 4.0, 99.0], True),
        (np.random.default_rng(9).integers(1000, 9999, 40), True),
        ([0.0, 1.0], True),
        ([7.0, 900.0], True),
        ([*range(5)], False),
        ([1.0, 2.0, 3.0, 5.0, 6.0, 8.0], False),
        ([*range(40)], False),
        (np.cumsum(np.arange(40) % 3 + 1), False),
        (np.log1p(range(6)), False),
        (np.sqrt(range(5)), False),
        (3.0 * np.log([1.0, 2.0, 3.0, 5.0, 9.0]), False),
        ([1.0, 2.0, 3.0, 6.0, 10.0, 20.0, 50.0], False),
        ([1.0, 2.0, 3.0, 11.0, 12.0, 13.0], False),
        (np.random.default_rng(9).normal(size=51), False),
    ],
    ids=str,
)
def test_codes_are_two_values_or_few_off_a_grid(levels, are_codes):
    """They are categories under every law. Gaussian clusters would be the codes."""
    rng = np.random.default_rng(0)
    column, numbers = rng.choice(levels, size=400), rng.normal(size=(400, 9))
    gap = np.where(np.arange(400) % 9 == 0, np.nan, column)
    for n_others, given in ((4, column), (4, gap), (4, column / 3.0), (9, column)):
        laws = laws_for(np.c_[given, numbers[:, :n_others]])
        found = [isinstance(law, Product) and law.parts[-1][2] == [0] for law in laws]
        assert all(found) if are_codes else not found[0]
        assert len(laws) > n_others // 5
        assert all(len(law.parts[0][2]) == n_others for law in laws if are_codes)


def test_codes_that_are_left_to_other_laws():
    rng = np.random.default_rng(0)
    codes, numbers = rng.choice([8001.0, 8400.0, 1204.0], size=(400, 3)), rng.normal(size=(400, 2))
    region = np.where(codes[:, :1] > 5000.0, 17.0, np.where(codes[:, :1] > 8100.0, 3.0, 99.0))
    station = np.column_stack([codes[:, 0], np.log(codes[:, 0]), numbers])
    nested = np.column_stack([codes[:, :1], region + (codes[:, 1:2] > 8100.0) * 30.0, numbers])
    assert [part[2] for part in laws_for(station)[0].parts] == [[2, 3], [0]]
    assert [part[2] for part in laws_for(nested)[0].parts] == [[2, 3], [0, 1]]
    # Codes alone are categories from three columns on, and an entry that differs is no code.
    assert names(laws_for(codes[:, :2])) == ["full"]
    assert last(rng.choice([1.0, 4.0, 9.0, 20.0, 90.0, 91.0, 300.0], size=(200, 4))) == "all"
    # Rows at few points are clusters; so are places, and values on two sides of a gap.
    for points in (codes, codes[:, [0, 0, 0]]):
        assert last(points) is None
    places = rng.normal(size=(20, 2))[rng.integers(20, size=400)]
    gap = rng.choice([1.0, 2.0, 3.0, 11.0, 12.0, 13.0], size=400)
    for column in (places, gap, *(of(4.0 + rng.poisson(2.0, 400)) for of in (np.log, np.log10))):
        assert names(laws_for(np.c_[column, numbers])) == ["full"]
    late = rng.integers(1, 9, size=400).astype(float)
    late[-1] = 1.55
    assert names(laws_for(np.c_[late, numbers])) == ["full"]
    # Counts may have few values, the first of which are 0 and 1.
    many = np.where(rng.random(400) < 0.02, 40, rng.poisson(0.5, size=400))
    table = np.c_[counts(3, 400)[0], many, codes[:, 0]]
    assert last(table) == [[4], [0, 1, 2, 3]]


def test_flags_that_are_left_to_other_laws():
    rng = np.random.default_rng(0)
    flags, numbers = rng.integers(2, size=(400, 3)), rng.normal(size=(400, 30))
    found = [[0, 1, 2], [3, 4]]
    assert [
        own for law in laws_for(np.c_[numbers[:, :3], flags[:, :2]]) for *_, own in law.parts
    ] == found
    # Wide tables may be images, and rows as few as these tell nothing of categories.
    wide = np.c_[numbers, flags]
    assert names(laws_for(wide))[0] == "full" and last(wide) == [[*range(30)], [30, 31, 32]]
    few = np.c_[numbers[:, :3], flags]
    assert names(laws_for(few[: FEWEST_ROWS * 3 - 1])) == ["full"]
    # So do flags of which one excludes another. Beside answers or counts alone they are tried.
    for other in (flags[:, 0], 1 - flags[:, 0], flags[:, 0] * (1 - flags[:, 1])):
        assert names(laws_for(np.c_[numbers[:, :3], flags[:, :2], other])) == ["full"]
    for table in (flags, np.c_[flags, rng.integers(5, size=400)], np.c_[flags, counts(3, 400)[0]]):
        assert names(laws_for(table))[0] == "full" and last(table) is not None


@pytest.mark.parametrize("seed", [0, 5])
def test_flags_tell_clusters_of_numbers(seed):
    """As numbers they hid these. Densities of short fits were nearly the same."""
    rng = np.random.default_rng(seed)
    labels = np.arange(120) % 2
    X = rng.normal(size=(120, 2)) * [1.0, 0.5] + np.outer(labels, [3.5, 0.0])
    flags = rng.random((120, 2)) < np.array([[0.2, 0.1], [0.8, 0.6]])[labels]
    model = DPMixture(random_state=0, n_chains=2, n_draws=40).fit(np.c_[X, 1.0 + flags])
    assert adjusted_rand_score(labels, model.labels_) > 0.8


@pytest.mark.parametrize("n_clusters", [1, 3])
@pytest.mark.parametrize("levels", [[8001, 8002, 8400, 1204, 3011], [0, 5, 10, 50]], ids=str)
def test_codes_make_no_clusters(levels, n_clusters):
    rng = np.random.default_rng(1)
    labels = np.arange(300) % n_clusters
    X = np.array([[0.0, 0.0, 0.0], [5.0, 0.0, 3.0], [0.0, 5.0, 2.0]])[labels]
    X = np.column_stack([X + rng.normal(size=X.shape), rng.choice(levels, size=300)])
    model = DPMixture(random_state=0, n_chains=2, n_draws=40).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.95
    assert list(model.cluster_params_) == ["numeric", "categorical"]
    assert set(np.unique(model.sample(50)[0][:, 3])) <= {*levels}


@pytest.mark.parametrize(
    ("levels", "are_answers"),
    [
        ([0.0, 1.0], True),
        ([0.5, 1.0, 1.5, 2.0, 4.5, 5.0], True),
        ([-3.0, -1.0, 0.0, 3.0], True),
        ([0.0, 25.0, 50.0, 100.0], True),
        ([0.1, 0.3, 0.6], True),  # three places of six
        ([0.0, 2.0, 5.0], True),
        ([*range(11)], True),
        ([*range(12)], False),
        ([*range(0, 120, 10)], False),
        ([1.0, 1.5, 1.83], False),
    ],
    ids=str,
)
def test_answers_are_few_places_of_a_grid(levels, are_answers):
    X = np.random.default_rng(0).choice(levels, size=(300, 4))
    assert (last(X) == "all") == are_answers
    assert (last((X / 7.0 + 0.1).astype(np.float32)) == "all") == are_answers


def test_answers_that_follow_from_others_are_no_categories():
    X, _ = answers(n_features=3)
    codes = np.eye(3)[np.random.default_rng(0).integers(3, size=len(X))]
    steps = codes @ [[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]
    flags = np.random.default_rng(1).random((len(X), 2)) < 0.4
    assert last(np.c_[X, flags]) == last(np.c_[flags, codes[:, :1]]) == "all"
    total = flags @ [1.0, 1.0] + codes[:, 0]
    for other in (X[:, :1], 6.0 - X[:, :1], X[:, :1] > 2.0, codes, codes[:, :2], steps):
        assert last(np.c_[X, other]) is None
    assert last(np.c_[flags, codes[:, :1], total]) is None
    gaps = np.c_[X, codes[:, :2]]
    gaps[::7, 3] = np.nan
    assert last(gaps) is None


def test_many_answers_are_tried():
    X, _ = answers(BLOCK_ROWS, 10)
    assert names(laws_for(X)[:-1]) == ["full"] and last(X) == "all"
    X[:2000] = np.repeat(X[:2], 1000, axis=0)  # sorted
    assert last(X) == "all"
    rare = np.where(np.arange(len(X)) == 1, 2.0, 1.0)  # in no row that shows dependence
    assert last(np.c_[X, rare]) == "all"


def counts(n_features=8, n_samples=300, n_clusters=3, seed=2):
    """Counts with more zeros and large numbers than Poisson laws have, and their clusters."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n_samples) % n_clusters
    means = rng.gamma(0.5, 16.0, size=(n_clusters, n_features))[labels]
    return rng.negative_binomial(1.5, 1.5 / (1.5 + means)).astype(float), labels


def test_which_columns_are_counts():
    X, _ = counts(3)
    rng = np.random.default_rng(0)
    others, late = rng.normal(size=(len(X), 7)), 20.0 + rng.poisson(3.0, size=len(X))
    for given in (X, X.tolist(), X.astype(int), pd.DataFrame(X), with_gap(X), X + 1.0):
        assert last(given) == "counts"
    assert last(np.c_[others[:, 0], X]) == [[0], [1, 2, 3]]
    assert last(np.c_[X, np.minimum(X[:, ::-1], 5.0)]) == [[3, 4, 5], [0, 1, 2]]  # few levels
    # Whole numbers that begin later are counts unless they vary less.
    assert last(np.c_[X, 2.0 + X[:, 0] + X[:, 1] ** 2]) == "counts"
    assert last(np.c_[X, late]) == [[3], [0, 1, 2]]
    assert last(np.c_[X, rng.poisson(20.0, size=(len(X), 6))]) == "counts"
    assert last(np.c_[X, np.arange(len(X))]) == [[3], [0, 1, 2]]  # numbers of rows
    assert last(np.c_[X, others[:, 0] > 0.0]) == [[3], [0, 1, 2]]
    few = np.minimum(X, 9.0)[:40]  # levels, and rows
    for other in (X[:, :2], np.c_[X, others], X / 2.0, X - 1.0, 5.0 + X, X * 1e4, few):
        assert last(other) is None


def test_small_counts_are_no_answers():
    rng = np.random.default_rng(1)
    X = rng.poisson([2.0, 2.0, 2.0, 9.0], size=(500, 4)).astype(float)
    assert (X.max(axis=0) < 11).tolist() == [True, True, True, False]
    for given in (X, with_gap(X), X[:, :3]):
        assert last(given) == "counts"
    # Answers are no counts: they stop where many are, vary less, or prefer some levels.
    ends = np.minimum(X[:, :3], 3.0) + rng.integers(2, size=(500, 3))
    scores = rng.binomial(8, 0.5, size=(500, 3)).astype(float)
    halves = 4.0 * rng.integers(2, size=(500, 3)) + rng.integers(2, size=(500, 3))
    for answers in (ends, scores, halves):
        assert last(answers) == "all"
        assert last(np.c_[answers, X]) == [[0, 1, 2], [3, 4, 5, 6]]


def test_what_follows_from_other_columns_is_left_out_of_counts():
    X, _ = counts(3)
    total, marks = X.sum(axis=1), np.random.default_rng(0).integers(1, 6, size=(len(X), 3))
    for given in (np.c_[X, total], with_gap(np.c_[X, total]), np.c_[X, X[:, 0], 2.0 * X[:, 1]]):
        assert last(given) == [[0, 1, 2]]
    assert last(np.c_[total, X, X[:, :2].sum(axis=1)]) == [[1, 2, 3]]
    assert last(np.c_[X, marks, total + marks.sum(axis=1)]) == [[3, 4, 5], [0, 1, 2]]
    assert last(np.c_[800.0 - total, X]) == [[1, 2, 3]]
    # Two columns do not tell clusters.
    assert last(np.c_[X[:, :2], X[:, 0] + X[:, 1]]) is None
    # Nor does a sum of answers, of any scale; numbers that follow from numbers are theirs.
    other = np.random.default_rng(1).normal(size=(len(X), 1))
    given = np.c_[marks, (marks.sum(axis=1) - 9.0) / 7.0, other, 1.0 - 2.0 * other]
    assert last(with_gap(given)) == [[4, 5], [0, 1, 2]]


def test_products_of_powers():
    rng = np.random.default_rng(0)
    height = rng.normal(170.0, 9.0, 200).round(1)
    mass = np.exp(rng.normal(4.2, 0.15, 200)).round(1)
    index = (1e4 * mass / height**2).round(1)
    age = rng.normal(40.0, 9.0, 200).round(1)
    # The column that others explain best, whatever the units and the order.
    assert products_among(np.c_[height, mass, index, age]) == [2]
    assert products_among(np.c_[index, age, 2.2 * mass, height / 2.54]) == [0]
    assert products_among(np.c_[height, index, age]) == []
    # What is left beyond rounding may tell clusters.
    assert products_among(np.c_[height, mass, index * np.exp(rng.normal(0.0, 2e-3, 200))]) == []
    # Of two columns the last; of two relations one column each.
    assert products_among(np.c_[age, age**2, mass]) == [1]
    assert sorted(products_among(np.c_[height, mass, index, age, age**2])) == [2, 4]
    # Covariances describe linear functions, and a few rows or negative numbers show no product.
    assert products_among(np.c_[height, 2.54 * height, mass, height + mass]) == []
    assert products_among(np.c_[height, mass, index, age][:20]) == []
    assert products_among(np.c_[height, mass, -index, age]) == []
    rows = np.c_[height, mass, index, age]
    rows[::50] = [[0.0, 1.0, np.inf, 2.0]] * 4
    assert products_among(rows) == [2]
    rows[7, 3] = np.nan
    assert products_among(rows) == [2]
    rows[8, 1] = np.nan
    assert products_among(rows) == [2]
    rows[29:, 2] = np.nan  # too few complete rows
    assert products_among(rows) == []


@pytest.mark.parametrize("change", [np.asfortranarray, np.float32, lambda X: X[::-1, ::-1]])
def test_products_in_any_array(change):
    a, b = np.exp(np.random.default_rng(0).normal(0.0, 0.3, (2, 100)))
    assert len(laws_for(change(np.c_[a, b, a * b]))[0].parts[0][2]) == 2
    assert names(laws_for(change(np.c_[a, b, a + b]))) == ["full"]


@pytest.mark.parametrize("likelihood", ["auto", "mixed"])
def test_products_do_not_cut_clusters(likelihood):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 2, 150)
    price = np.exp(rng.normal(8.0 + 0.8 * labels, 0.15)).round(1)
    area = rng.normal(70.0, 15.0, 150).round(1)
    X = np.c_[area, price, (area * price / 1e3).round(1)]
    model = DPMixture(likelihood=likelihood, n_chains=2, random_state=0)
    with pytest.warns(UserWarning, match="column 2 of X can be computed from .* products"):
        model.fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.9
    assert model.likelihood_.has_points
    np.testing.assert_array_equal(model.predict(X * [1.0, 1.0, np.nan]), model.predict(X))
    # Columns that are left out are computed from the others, and these from them.
    rows = model.sample(5)[0]
    np.testing.assert_allclose(rows[:, 0] * rows[:, 1] / 1e3, rows[:, 2], rtol=2e-3)
    gaps = np.where(np.eye(3, dtype=bool), np.nan, X[:3])
    np.testing.assert_allclose(model.impute(gaps), X[:3], rtol=2e-3)
    rows = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    with pytest.warns(UserWarning, match="leaves this out, and sample and impute compute it"):
        filled = model.fit(rows).impute(rows)
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    np.testing.assert_array_equal(filled[~np.isnan(rows)], rows[~np.isnan(rows)])
    alone = np.isnan(rows).sum(axis=1) == 1
    np.testing.assert_allclose(filled[alone], X[alone], rtol=2e-3)


def test_totals_in_no_part_are_whole():
    X = np.random.default_rng(0).poisson(9.0, (60, 3))
    X = np.c_[X, X.sum(axis=1), np.random.default_rng(1).normal(size=60)]
    likelihood = Product([("counts", "poisson", [0, 1, 2])])
    model = DPMixture(likelihood=likelihood, **SHORT).fit(X)
    rows = model.sample(4)[0]
    np.testing.assert_array_equal(rows[:, 3], rows[:, :3].sum(axis=1))
    assert np.isnan(rows[:, 4]).all()  # nothing determines it
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.loc[0, "d"] = frame.loc[1, "b"] = np.nan
    filled = model.fit(frame).impute(frame)
    np.testing.assert_array_equal(filled, X)
    # What is computed is an entry that the law of its column takes.
    frame.loc[2, ["a", "d"]] = np.nan, 1.0
    assert model.fit(frame).impute(frame).loc[2, "a"] >= 0.0
    # Text in a column that is left out says nothing.
    rows = frame[:2].astype({"d": object})
    rows.loc[1, "d"] = "unknown"
    filled = model.impute(rows)
    assert filled["d"].tolist() == [X[0, 3], "unknown"] and filled["b"].notna().all()
    selecting = DPMixture(likelihood=Product(likelihood.parts, select=True), **SHORT).fit(X)
    rows = selecting.sample(4)[0]
    np.testing.assert_array_equal(rows[:, 3], rows[:, :3].sum(axis=1))


def test_columns_that_others_determine_are_predicted():
    X = np.random.default_rng(0).normal(9.0, 2.0, (60, 2)).round(1)
    X = np.c_[X, X.sum(axis=1), np.random.default_rng(1).normal(size=60)]
    model = DPMixture(likelihood=Product([("numbers", Gaussian(), [0, 1])]), **SHORT).fit(X)
    rows = X[:3].copy()
    rows[1, 1] = rows[2, 0] = np.nan
    for d, is_known in [(2, [True, False, False]), (0, [True, False, True])]:
        found = model.predict_columns(rows, d, quantiles=[0.1, 0.9])[d]
        np.testing.assert_allclose(found.mean[is_known], X[:3, d][is_known])
        np.testing.assert_allclose(
            found.quantiles[is_known].T - X[:3, d][is_known], 0.0, atol=1e-9
        )
        assert (np.abs(found.mean - X[:3, d]) > 0.01).tolist() == np.invert(is_known).tolist()
        # The other rows know nothing of the column, not even by others computed from it.
        hidden = rows.copy()
        hidden[:, d] = np.nan
        other = model.predict_columns(hidden, d, quantiles=[0.1, 0.9])[d]
        np.testing.assert_array_equal(other.mean, found.mean)
        np.testing.assert_array_equal(other.quantiles, found.quantiles)
    hidden = rows.copy()
    hidden[:, 2] = np.nan
    filled = model.impute(hidden)
    np.testing.assert_array_equal(model.predict_columns(rows, 2)[2].mean, filled[:, 2])
    with pytest.raises(ValueError, match="column 3 is in no part"):
        model.predict_columns(rows, 3)


def test_constants_in_no_part_are_known():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 2)), columns=["a", "b"])
    frame = frame.assign(share=0.1, year=2020, kind="x")
    likelihood = Product([("numbers", Gaussian(), ["a", "b"])])
    model = DPMixture(likelihood=likelihood, **SHORT).fit(frame)
    rows = model.sample(4)[0]
    assert (rows[:, 2] == 0.1).all() and (rows[:, 3] == 2020).all() and np.isnan(rows[:, 4]).all()
    gap = frame[:3].assign(share=[np.nan, 0.1, 0.3])
    assert model.impute(gap)["share"].tolist() == [0.1, 0.1, 0.3]
    assert model.predict_columns(gap, "year")["year"].mean.tolist() == [2020.0] * 3


@pytest.mark.parametrize("kind", ["clusters", "marks", "noise"])
def test_correlations_are_no_relations(kind):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 2)).round(2)
    if kind == "clusters":
        X += 100.0 * rng.integers(0, 2, (100, 1))
    elif kind == "marks":
        X[:3] = -999.0
    bound = Product([("a", Gaussian(), [0])]).for_columns(X)
    assert bound.rebuilds == []
    X[:, 1] = 2.0 * X[:, 0] + 1.0
    assert bound.for_columns(X).rebuilds == [1]


@pytest.mark.long
def test_counts_with_their_total():
    X, labels = counts(6)
    alone = DPMixture(n_chains=2, random_state=0).fit(X)
    with pytest.warns(
        UserWarning, match="'all' of X can be computed from other columns, as totals"
    ):
        model = DPMixture(n_chains=2, random_state=0).fit(
            pd.DataFrame(X).rename(columns=str).assign(all=X.sum(axis=1))
        )
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    assert adjusted_rand_score(alone.labels_, model.labels_) > 0.9
    assert next(iter(model.likelihood_scores_)) == "NegativeBinomial() of 6 columns"
    # Of other rows, but of the same columns.
    gains = [np.ptp([*fit.likelihood_scores_.values()]) for fit in (model, alone)]
    np.testing.assert_allclose(*gains, atol=0.2)


@pytest.mark.long
def test_counts_are_counts_where_these_predict_better():
    X, labels = counts()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(n_chains=2, random_state=0).fit(X)
    assert isinstance(model.likelihood_, NegativeBinomial)
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    with pytest.raises(
        ValueError, match=r'column 0 of X holds .*\.5; .* likelihood="gaussian", not "auto"'
    ):
        model.predict(X + 0.5)
    # Normal clusters of whole numbers stay numbers.
    X = np.round(np.random.default_rng(0).normal(40.0, 8.0, size=(300, 3)).clip(0.0))
    X[0] = 0.0
    assert isinstance(DPMixture(n_chains=1, random_state=0).fit(X).likelihood_, Gaussian)


@pytest.mark.long
def test_a_law_of_counts_that_needs_more_components_is_refused():
    rng = np.random.default_rng(0)
    means = rng.gamma(2.0, 4.0, size=(3, 6))[np.arange(300) % 3]
    X = rng.poisson(means) * (rng.random((300, 6)) < 0.6)  # zeros by chance
    scores = scores_of_laws(DPMixture(random_state=0), laws_for(X), X)
    assert last(X) == "counts" and np.isneginf(scores[-1]).all()


@pytest.mark.long
def test_rounded_amounts_are_no_counts():
    """One cluster, whose logarithms a law of one component predicts better than counts."""
    rng = np.random.default_rng(0)
    X = np.rint(rng.lognormal(3.0, 1.0, size=(200, 4)))
    assert last(X) == "counts"
    with pytest.warns(UserWarning, match="Take logarithms before scaling and before fit"):
        model = DPMixture(n_chains=2, random_state=0).fit(X)
    assert isinstance(model.likelihood_, Gaussian) and model.n_clusters_ == 1
    assert "NegativeBinomial() (ruled out)" in model.summary()
    # Also beside answers and measurements.
    X = np.c_[X, answers(200, 3)[0], rng.normal(size=200)]
    assert last(X) == [[7], [4, 5, 6], [0, 1, 2, 3]]
    assert np.isneginf(scores_of_laws(DPMixture(), laws_for(X), X)[-1]).all()


def test_scores_of_logarithms_are_probabilities_of_their_numbers(monkeypatch):
    """Up to the width of cells. The cell of 0 reaches the other values."""
    monkeypatch.setattr("skdpm.mixture.trials.N_PLACES", 200)
    rng = np.random.default_rng(0)
    X = np.c_[np.rint(rng.lognormal(3.0, 0.3, size=(100, 3))), rng.normal(size=100)]
    X[::9, 1] = np.nan
    X[::4, 2] = X[50, :3] = 0.0
    (*_, numbers, _), _, (found, logs, cells, volumes) = _tried(laws_for(X), X)
    np.testing.assert_allclose(logs, np.c_[np.log1p(X[:, :3]), X[:, 3]])
    for of_law, step in ((numbers, 0.5), (cells, 0.5 / (1.0 + np.unique(X[:, 2])[1:]))):
        assert sorted(of_law.cells) == [0, 1, 2]
        values, halves = of_law.cells[2]
        np.testing.assert_allclose(halves[1:], step)
        assert values[1] < 2.0 * halves[0] < values[-1]
    model = FiniteMixture(1, **SHORT)
    (_, scores), _ = _score(model, found, logs, cells, volumes, slice(0, 30))
    fitted = FiniteMixture(1, likelihood=found, **SHORT).fit(logs[30:])
    expected = fitted.score_samples(np.c_[np.full((30, 3), np.nan), logs[:30, 3]])
    for d, (values, halves) in cells.cells.items():
        half = halves[np.searchsorted(values, logs[:30, d]).clip(0, len(values) - 1)]
        places = logs[:30, [d]] + half[:, None] * (np.arange(400) + 0.5 - 200.0) / 200.0
        points = np.full((30, 400, 4), np.nan)
        points[:, :, d] = places
        densities = np.exp(fitted.score_samples(points.reshape(-1, 4))).reshape(30, 400)
        expected += np.where(np.isnan(X[:30, d]), 0.0, np.log(2.0 * half * densities.mean(axis=1)))
    np.testing.assert_allclose(scores, expected, atol=0.3)
    np.testing.assert_allclose(scores.mean(), expected.mean(), atol=0.03)


@pytest.mark.parametrize("n_clusters", [1, 3])
@pytest.mark.long
def test_counts_may_be_clusters_of_amounts_but_no_parts_of_one(n_clusters):
    """Logarithms predict both better, and have as many components for three clusters."""
    rng = np.random.default_rng(20)
    labels = np.arange(400) % n_clusters
    means = rng.normal(2.0, 1.5 * (n_clusters > 1), size=(n_clusters, 8))[labels]
    X = np.rint(np.exp(rng.normal(means, 0.6 if n_clusters > 1 else 1.0)))
    scores = scores_of_laws(DPMixture(random_state=0), laws_for(X), X)
    assert last(X) == "counts" and np.isneginf(scores[-1]).all() == (n_clusters == 1)


@pytest.mark.long
def test_a_law_of_counts_leaves_the_choice_between_numbers_to_densities():
    X, _ = counts(9, 120)
    estimator, laws = DPMixture(random_state=0), laws_for(X)
    assert last(X) == "counts" and len(laws) == 4
    found, alone = (scores_of_laws(estimator, some, X) for some in (laws, laws[:-1]))
    gains, expected = found[1] - found[0], alone[1] - alone[0]
    n_both = min(len(gains), len(expected))
    np.testing.assert_allclose(gains[:n_both], expected[:n_both], atol=1e-9)


@pytest.mark.parametrize("n_others", [0, 2])
@pytest.mark.long
def test_answers_are_categories_where_these_predict_better(n_others):
    X, labels = answers(n_features=10)
    X = np.c_[X, np.random.default_rng(1).normal(size=(len(X), n_others))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(n_chains=2, random_state=0).fit(X)
    assert adjusted_rand_score(labels, model.labels_) > 0.8
    assert isinstance(model.likelihood_, Product if n_others else Categorical)
    chosen, *others = model.likelihood_scores_
    law = "Categorical(reads_numbers=True)"
    assert chosen == (f"Gaussian() of 2 columns and {law} of 10 columns" if n_others else law)
    assert f"short fits: {chosen} " in model.summary()
    assert not any("Categorical" in name for name in others)
    named = DPMixture(likelihood=laws_for(X)[-1], n_chains=2, random_state=0).fit(X)
    np.testing.assert_array_equal(model.log_joint_samples_, named.log_joint_samples_)
    frame = pd.DataFrame(X).rename(columns="column {}".format)
    np.testing.assert_array_equal(
        DPMixture(n_chains=2, random_state=0).fit(frame).labels_, model.labels_
    )
    gaussian = DPMixture(likelihood="gaussian", n_chains=2, random_state=0).fit(X)
    assert adjusted_rand_score(labels, gaussian.labels_) < 0.5


@pytest.mark.long
def test_answers_that_follow_from_others_are_numbers():
    """Rounded, they are close to a line."""
    rng = np.random.default_rng(0)
    X = np.rint(rng.uniform(0.0, 10.0, size=(300, 1)) + 0.3 * rng.normal(size=(300, 3)))
    X = X.clip(0.0, 10.0)
    assert last(X) == "all"
    model = DPMixture(**SHORT).fit(X)
    assert isinstance(model.likelihood_, Gaussian)
    assert len(model.likelihood_scores_) == 2
    assert np.isfinite([*model.likelihood_scores_.values()]).all()


SCALED = {
    "standardised": lambda X: StandardScaler().fit_transform(X),
    "0 to 1, single": lambda X: MinMaxScaler().fit_transform(X).astype(np.float32),
    "half stars": lambda X: X / 2.0,
    "-2 to 2": lambda X: X.astype(int) - 3,
    "percents": lambda X: 25 * X - 25,
    "strings": lambda X: pd.DataFrame(X.astype(int).astype(str)),
    "ordered": lambda X: pd.DataFrame(X.astype(int)).astype(
        pd.CategoricalDtype([*range(1, 6)], True)
    ),
}


@pytest.fixture(scope="module")
def surveyed():
    X, _ = answers(n_samples=200, n_features=8)
    return X, DPMixture(**SHORT).fit(X)


@pytest.mark.parametrize("change", SCALED)
@pytest.mark.long
def test_other_numbers_for_answers_change_no_label(surveyed, change):
    X, model = surveyed
    Z = SCALED[change](X)
    scaled = DPMixture(**SHORT).fit(Z)
    assert scaled.likelihood_scores_ == model.likelihood_scores_
    np.testing.assert_array_equal(scaled.log_joint_samples_, model.log_joint_samples_)
    np.testing.assert_array_equal(scaled.labels_, model.labels_)
    np.testing.assert_array_equal(scaled.score_samples(Z[:9]), model.score_samples(X[:9]))
    drawn, plain = scaled.sample(50)[0], model.sample(50)[0]
    order = [np.unique(column, return_inverse=True)[1] for column in plain.T]
    assert drawn.dtype == np.float64
    numbers = np.asarray(Z, dtype=np.float64)
    for column, own, places in zip(drawn.T, numbers.T, order, strict=True):
        assert np.isin(column, own).all()
        np.testing.assert_array_equal(np.unique(column, return_inverse=True)[1], places)


def test_a_type_of_categories_is_no_count():
    """Beside counts, a column of a type of categories keeps it, also from 0 to 11."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.poisson(3.0, (300, 4))).assign(kind=pd.Categorical(np.arange(300) % 12))
    for law in laws_for(X):
        parts = {type(part): own for _, part, own in law.parts}
        assert list(parts[Categorical]) == [4]


@pytest.mark.long
def test_flags_are_answers_of_any_type():
    flags = answers(200, 8, 2)[0] > 1.0
    model = DPMixture(**SHORT).fit(1.0 * flags)
    assert isinstance(model.likelihood_, Categorical)
    for given in (flags, pd.DataFrame(flags), flags.astype(object)):
        np.testing.assert_array_equal(DPMixture(**SHORT).fit(given).labels_, model.labels_)


@pytest.mark.long
def test_new_answers_are_named_and_say_nothing(surveyed):
    X, model = surveyed
    new, gap = X[:3].copy(), X[:3].copy()
    new[1, 2], gap[1, 2] = 2.5, np.nan
    says = (
        r"column 2 of X holds 2\.5, a value that was not in `fit`.*\"auto\" took this column as "
    )
    says += 'categories: if it holds measurements, use likelihood="gaussian"'
    with pytest.warns(UserWarning, match=says):
        found = model.predict_proba(new)
    np.testing.assert_array_equal(found, model.predict_proba(gap))
    with pytest.warns(UserWarning, match=says):
        scores = model.score_samples(new)
    # Other entries of the column are known with probability 1 - 1 / (n + 2).
    expected = model.score_samples(gap) + np.where(np.arange(3) == 1, np.log(1.0 / 202), 0.0)
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        almost = np.float32(X + 1e-6)
        np.testing.assert_array_equal(model.predict(almost), model.predict(X))
    new[0, 0] = np.nan
    with pytest.warns(UserWarning, match=says):
        filled = model.impute(new)
    assert np.isin(filled[0, 0], X[:, 0])
    np.testing.assert_array_equal(filled[1:], new[1:])
    given, _ = model.sample(5, given={0: 2.0})
    assert (given[:, 0] == 2.0).all()


def test_answers_have_a_category_that_no_row_has():
    X = np.array([[0.5, -1.0], [1.0, -1.0], [1.0, 0.0], [2.5, np.nan]])
    law = Categorical(concentration=0.7, reads_numbers=True)
    model = FiniteMixture(1, likelihood=law, n_chains=1, n_warmup=1, n_draws=1).fit(X)
    known = (np.array([1, 2, 2, 1]) + 0.7) / (4 + 4 * 0.7) * (1.0 - 1.0 / 6.0)
    other = np.array([2, 2, 1, 0]) + 0.7
    other = np.where(np.isnan(X[:, 1]), 1.0, other / (3 + 3 * 0.7) * (1.0 - 1.0 / 5.0))
    np.testing.assert_allclose(model.score_samples(X), np.log(known * other), rtol=1e-12)
    probabilities = model.cluster_params_["probabilities"][0]
    np.testing.assert_allclose(probabilities[0], np.array([1.7, 2.7, 1.7]) / 6.1)
    assert set(np.unique(model.sample(300)[0])) == {-1.0, 0.0, 0.5, 1.0, 2.5}


@pytest.mark.long
def test_new_answers_in_chunks(surveyed):
    da = pytest.importorskip("dask.array")
    X, model = surveyed
    frames = pytest.importorskip("dask.dataframe").from_pandas
    chunks = [da.from_array(X, chunks=(60, 3)), frames(pd.DataFrame(X), npartitions=2).values]
    for lazy in (*chunks, frames(pd.DataFrame(X), npartitions=2)):
        np.testing.assert_array_equal(np.asarray(model.predict(lazy)), model.predict(X))
        found = np.asarray(model.score_samples(lazy))
        np.testing.assert_array_equal(found, model.score_samples(X))


@pytest.mark.long
def test_answers_are_in_descriptions(surveyed):
    X, _ = surveyed
    model = DPMixture(**SHORT).fit(X / 2.0)
    assert set(model.describe().index.unique("category")) <= {0.5, 1.0, 1.5, 2.0, 2.5}
    with pytest.raises(ValueError, match='Use ProfilesDisplay, or likelihood="gaussian" if'):
        DensityDisplay.from_estimator(model, X / 2.0, 0)


@pytest.mark.filterwarnings("ignore:column 0 of X has only two different values")
@pytest.mark.long
def test_scores_of_numbers_are_those_of_their_cells(monkeypatch):
    """One cluster of three columns, one of two values, one with gaps and steps of 2."""
    monkeypatch.setattr("skdpm.mixture.trials.N_PLACES", 400)
    rng = np.random.default_rng(0)
    X = rng.integers(1, [3, 5, 5], size=(300, 3)) * np.array([1.0, 1.0, 2.0])
    X[::3, 2] = np.nan
    laws = [Gaussian(covariance_type="diag"), laws_for(X)[-1]]
    scores = scores_of_laws(FiniteMixture(1), laws, X)
    X[:, 2] /= 2.0  # the codes but for 1
    order = random_order((X - 1.0).__getitem__, 300)
    fitted, held_out = X[order[60:]], X[order[:60]]
    params = {**trials.SHORT, "random_state": 0}
    numbers = FiniteMixture(1, likelihood=laws[0], **params).fit(fitted)
    expected = np.zeros(60)
    for d in range(3):
        places = (np.arange(200) + 0.5 - 100.0) / 200.0
        known = ~np.isnan(held_out[:, d])
        points = np.full((60, 200, 3), np.nan)
        points[:, :, d] = held_out[:, [d]] + places
        densities = np.exp(numbers.score_samples(points.reshape(-1, 3))).reshape(60, 200)
        expected += np.where(known, np.log(densities.mean(axis=1)), 0.0)
    np.testing.assert_allclose(scores[0], expected, atol=0.1)
    np.testing.assert_allclose(scores[0].mean(), expected.mean(), atol=0.004)
    categories = FiniteMixture(1, likelihood=laws[1], **params).fit(fitted)
    np.testing.assert_array_equal(scores[1], categories.score_samples(held_out))
    assert abs(scores[0] - scores[1]).mean() > 0.02


# Fewer rows than columns.


@pytest.mark.parametrize(
    ("n_samples", "n_features"), [(12, 9), (10, 33), (8, 50), (25, 45), (10, 200)]
)
@pytest.mark.some(1)
@pytest.mark.long
def test_noise_is_one_cluster(n_samples, n_features):
    X = np.random.default_rng(n_samples).standard_normal((n_samples, n_features))
    assert DPMixture(n_chains=2, random_state=0).fit(X).n_clusters_ == 1


@pytest.mark.long
def test_few_rows_of_very_many_columns_keep_their_clusters():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=30)
    X = rng.standard_normal((30, 1000)) + 0.4 * rng.standard_normal((3, 1000))[y]
    model = DPMixture(n_chains=2, n_warmup=100, n_draws=50, random_state=0)
    with pytest.warns(UserWarning, match="labels_ has 3 clusters; .* So few rows may not tell"):
        model.fit(X)
    assert adjusted_rand_score(y, model.labels_) == 1.0


@pytest.mark.long
def test_clusters_of_few_rows_of_many_columns_may_be_noise():
    X = np.random.default_rng(0).standard_normal((10, 200))
    params = {**SHORT, "n_warmup": 10, "n_draws": 5}
    params["likelihood"] = Gaussian(covariance_type="diag")
    model = DPMixture(**params)
    with pytest.warns(UserWarning, match="clusters; X has 10 rows and 200 columns. So few"):
        model.fit(X)
    groups = X + 100.0 * (np.arange(10) < 5)[:, np.newaxis]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        assert model.fit(groups).n_clusters_ == 2
        # A given number of clusters is what the warning advises.
        groups = X + 100.0 * (np.arange(10) % 4)[:, np.newaxis]
        assert FiniteMixture(4, **params).fit(groups).n_clusters_ == 4


@pytest.mark.parametrize("n", [2, 3])
def test_a_cluster_for_each_of_a_few_rows_may_be_noise(n):
    X = np.random.default_rng(0).standard_normal((n, 30))
    with pytest.warns(UserWarning, match=f"{n} rows and 30 columns. So few .* Add rows, or use"):
        assert DPMixture(**SHORT).fit(X).n_clusters_ == n
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        X = [[0.0], [0.1], [9.0], [9.1]]
        assert DPMixture(**SHORT).fit(X).n_clusters_ == 2


@pytest.mark.long
def test_trials_do_not_search_columns_for_warnings(monkeypatch):
    monkeypatch.setattr("skdpm.mixture.likelihoods.gaussian.gaussian.doubtful_columns", None)
    X = rows("independent", n_samples=100)
    assert np.isfinite(scores_of_laws(DPMixture(), laws_for(X), X)).all()


@pytest.mark.parametrize(("shape", "df", "n_clusters"), [((12, 20), 5, 2), ((15, 64), 3, 5)])
@pytest.mark.some(1)
@pytest.mark.long
def test_clusters_of_noise_that_are_hardly_apart_are_named(shape, df, n_clusters):
    X = np.random.default_rng(10).standard_t(df, shape)
    words = f"labels_ has {n_clusters} clusters; .* So few rows may not tell"
    with pytest.warns(UserWarning, match=words):
        DPMixture(n_chains=2, random_state=10).fit(X)


@pytest.mark.parametrize(("n_samples", "n_features"), [(24, 20), (30, 33), (30, 60)])
@pytest.mark.some(1)
@pytest.mark.long
def test_clear_groups_are_found(n_samples, n_features):
    rng = np.random.default_rng(5)
    labels = np.arange(n_samples) % 3
    X = rng.standard_normal((n_samples, n_features))
    X += 2.0 * rng.standard_normal((3, n_features))[labels]
    model = DPMixture(n_chains=2, random_state=0).fit(X)
    assert model.n_clusters_ == 3
    assert all(len(np.unique(model.labels_[labels == k])) == 1 for k in range(3))
