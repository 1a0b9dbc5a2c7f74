"""Questions about unknown entries: scores given columns, what-if rows, imputed entries.

References integrate joint densities numerically, see `reference.conditional`.
"""

import inspect
import pickle
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import polars as pl
import pytest
from reference import conditional as reference
from reference.likelihoods import log_marginal_subspace
from scipy.special import logsumexp
from scipy.stats import invwishart, kstest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.designs import everyday, thirds
from support.examples import examples_of
from support.laws import every_product
from support.pvalues import assert_p, mean_p, whole_of, worst_p

from skdpm import DPMixture, FeatureAllocation, FiniteMixture, MixtureImputer
from skdpm._tables import filled_column
from skdpm.mixture.answers import conditional
from skdpm.mixture.answers.predictive import Predictor, StoredMixture
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    Poisson,
    Product,
    PyClone,
    Relational,
    Subspace,
    VonMisesFisher,
)
from skdpm.mixture.likelihoods.composite.registry import with_role
from skdpm.mixture.likelihoods.laws import laws
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.state._state import MixtureState

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {
    "sampler": "gibbs",
    "init": "single",
    "n_warmup": 0,
    "n_draws": 4,
    "n_chains": 1,
    "random_state": 0,
}
PRIOR = {"concentration": 1.3, "discount": 0.2}

FULL = {"mean": 0.2, "mean_precision": 0.3, "df": 4.5}
MATRIX = [[1.0, 0.6, -0.3], [0.6, 1.4, 0.2], [-0.3, 0.2, 0.8]]
COUNTS = {"shape": 1.2, "rate": 0.5}
CODES = {"concentration": 0.7, "n_categories": [3, 2, 4]}


def rows_of(kind, n=14):
    """Rows of two clusters."""
    rng = np.random.default_rng(5)
    side = (np.arange(n) % 2)[:, None]
    if kind == "counts":
        return rng.poisson(np.where(side, [1.0, 8.0, 2.0], [6.0, 1.0, 3.0])).astype(float)
    if kind == "codes":
        return (
            np.where(
                rng.random((n, 3)) < 0.8, [1, 1, 2] * side, rng.integers(0, [3, 2, 4], (n, 3))
            )
            * 1.0
        )
    if kind == "flags":
        return (rng.random((n, 3)) < np.where(side, 0.8, 0.2)).astype(float)
    X = rng.standard_normal((n, 3)) @ np.linalg.cholesky(MATRIX).T
    return X + np.where(side, [3.0, -2.0, 1.0], 0.0)


def gaussian(name, **params):
    kind = name.removeprefix("gaussian_") if name != "gaussian" else "full"
    likelihood = Gaussian(covariance_type=kind, **params)
    return likelihood, rows_of("numbers"), [(name, [0, 1, 2], params)]


def mixed():
    X = np.column_stack([rows_of("numbers"), rows_of("codes")[:, 2], rows_of("counts")[:, 0]])
    parts = [
        ("gaussian", [2, 0], {**FULL, "scale": [1.0, 0.7]}),
        ("categorical", [3], {"concentration": 0.7, "n_categories": [4]}),
        (
            "poisson",
            [
                4,
            ],
            COUNTS,
        ),
    ]
    classes = [Gaussian, Categorical, Poisson]
    likelihood = Product(
        [
            (name, cls(**params), columns)
            for cls, (name, columns, params) in zip(classes, parts, strict=True)
        ]
    )
    return likelihood, X, parts


def subspace():
    X = rows_of("numbers")
    hyper = {"mean": 0.1, "mean_precision": 0.3, "df": 3.5, "scale": 0.9}
    law = partial(log_marginal_subspace, X_fit=X, n_axes=2, **hyper)
    return Subspace(n_axes=2, **hyper), X, [(law, [0, 1, 2], {})]


# Likelihood, rows, parts for the reference.
CASES = {
    "full": lambda: gaussian("gaussian", **FULL, scale=MATRIX),
    "tied": lambda: gaussian("gaussian_tied", mean=0.2, mean_precision=0.3, scale=MATRIX),
    "diag": lambda: gaussian("gaussian_diag", **FULL, scale=[1.0, 0.5, 0.7]),
    "spherical": lambda: gaussian("gaussian_spherical", **FULL, scale=1.2),
    "bernoulli": lambda: (
        Bernoulli(a=0.8, b=1.7), rows_of("flags"), [("bernoulli", [0, 1, 2], {"a": 0.8, "b": 1.7})]
    ),
    "categorical": lambda: (
        Categorical(**CODES), rows_of("codes"), [("categorical", [0, 1, 2], CODES)]
    ),
    "poisson": lambda: (Poisson(**COUNTS), rows_of("counts"), [("poisson", [0, 1, 2], COUNTS)]),
    "product": mixed,
    "subspace": subspace,
}  # fmt: skip


def test_every_likelihood_that_answers_has_a_case():
    tried = {type(make()[0]).__name__ for make in CASES.values()}
    assert set(with_role("laws")) <= {*tried, "NegativeBinomial"}  # test_negative_binomial.py


GAUSSIAN = ("full", "tied", "diag", "spherical", "subspace")


class Question:
    """A fit, a row with unknown entries, and the law of a column of it."""

    def __init__(self, name, column=None):
        likelihood, self.X, self.parts = CASES[name]()
        self.model = DPMixture(likelihood=likelihood, **SHORT, **PRIOR).fit(self.X)
        self.draws = self.model.label_samples_.reshape(-1, len(self.X))
        self.column = column
        self.row = self.X[1] + 0.3 * (name in GAUSSIAN)
        self.known = [d for d in range(self.X.shape[1]) if d != column]

    def log_density(self, rows, **options):
        parts = [(name, columns, {**hyper, **options}) for name, columns, hyper in self.parts]
        return reference.log_mean_predictive(self.X, self.draws, rows, parts, "pitman_yor", PRIOR)

    def nodes(self, column):
        """Values of a column, with weights of a quadrature."""
        values = self.X[:, column]
        if (values != np.floor(values)).any():
            return reference.real_line(values.mean(), values.std(), 120)
        n = 4 if self.parts[0][0] != "poisson" and values.max() < 4 else 60
        for name, columns, params in self.parts:
            if column in columns and name == "categorical":
                n = params["n_categories"][columns.index(column)]
            elif column in columns and name == "bernoulli":
                n = 2
            elif column in columns and name == "poisson":
                n = 120
        return np.arange(n, dtype=float), np.ones(n)

    def law(self, row, column):
        """Values, their probabilities, and log p(the other known entries of the row)."""
        values, weights = self.nodes(column)
        rows = reference.filled(row, [column], values[:, None])
        log_p = self.log_density(rows) + np.log(weights)
        total = logsumexp(log_p)
        if isinstance(self.model.likelihood_, Subspace):  # unknown entries do not depart
            log_p = self.log_density(rows, departs=False) + np.log(weights)
        return values, np.exp(log_p - logsumexp(log_p)), total


def check_prediction(question):
    """Compare every answer about a column with the reference."""
    model, row, column = question.model, question.row, question.column
    values, p, log_b = question.law(row, column)
    asked = row.copy()
    asked[column] = np.nan
    np.testing.assert_allclose(model.score_samples(asked[None]), log_b, rtol=1e-8, atol=1e-8)
    log_joint = question.log_density(row[None])[0]
    of_column = model.score_samples(row[None], given=question.known)
    np.testing.assert_allclose(of_column, log_joint - log_b, rtol=1e-8, atol=1e-8)
    completed = model.impute(asked[None])[0]
    np.testing.assert_array_equal(completed[question.known], row[question.known])
    found = model.predict_columns(row[None], column)[column]
    if "probabilities" in found:
        np.testing.assert_allclose(found.probabilities[0], p, atol=1e-9)
        assert found.mode[0] == completed[column] == p.argmax()
    else:
        np.testing.assert_allclose(found.mean, p @ values, rtol=1e-6)
        assert found.mean[0] == completed[column]
        cumulated = np.cumsum(p)
        for q in (0.05, 0.5, 0.9):
            found = model.predict_columns(row[None], column, quantiles=q)[column].quantiles[0, 0]
            if (values == np.floor(values)).all():
                assert found == values[np.searchsorted(cumulated, q)]
            else:
                at = np.interp(found, values, cumulated - 0.5 * p)
                assert abs(at - q) < 2e-3
    return values, p


QUESTIONS = [(name, column) for name in CASES for column in (0, 2)]
QUESTIONS += [("product", 3), ("product", 4)]
every_question = thirds("name, column", QUESTIONS)


@every_question
@pytest.mark.long
def test_answers_are_those_of_the_joint_law(name, column):
    check_prediction(Question(name, column))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["full", "tied", "spherical", "product", "subspace"])
def test_two_unknown_entries(name):
    question = Question(name)
    row = question.row.copy()

    def quadrature(n, **options):
        """Nodes of both columns, and log weights of their pairs in the law of the row."""
        (v, v_weights), (u, u_weights) = (
            reference.real_line(question.X[:, d].mean(), question.X[:, d].std(), n) for d in (0, 2)
        )
        grid = np.stack(np.meshgrid(v, u, indexing="ij"), axis=-1).reshape(-1, 2)
        log_p = question.log_density(reference.filled(row, [0, 2], grid), **options)
        return v, u, log_p.reshape(n, n) + np.log(v_weights)[:, None] + np.log(u_weights)

    v, u, log_p = quadrature(80 if name == "subspace" else 40)  # rows may be far
    unknown = row.copy()
    unknown[[0, 2]] = np.nan
    log_b = logsumexp(log_p)
    np.testing.assert_allclose(question.model.score_samples(unknown[None]), log_b, atol=1e-5)
    found = question.model.predict_columns(unknown[None], [0, 2])
    if name == "subspace":  # answers leave departures out
        v, u, log_p = quadrature(40, departs=False)
    p = np.exp(log_p - logsumexp(log_p))
    np.testing.assert_allclose(found[0].mean, p.sum(axis=1) @ v, rtol=1e-4)
    np.testing.assert_allclose(found[2].mean, p.sum(axis=0) @ u, rtol=1e-4)


# Planted errors.


def each_draw_alone(self, X):
    """The mean over draws of the law of each draw."""
    stored = []
    for draw in self.scored.draws:
        stats = self.scored.stats[draw["clusters"]]
        stored.append(StoredMixture(stats, draw["log_weights"], None, draw["values"], 1.0))
    pairs = [conditional.ConditionalLaws(self.likelihood, [one]).pairs(X) for one in stored]
    first = np.cumsum([0, *(len(one.log_weights) for one in stored)])
    order = np.argsort(np.concatenate([one.rows for one in pairs]), kind="stable")
    return conditional.Pairs(
        X,
        type(pairs[0].laws).joined([one.laws for one in pairs]),
        np.concatenate([one.rows for one in pairs])[order],
        np.concatenate([one.clusters + f for one, f in zip(pairs, first, strict=False)])[order],
        np.concatenate([one.weights for one in pairs])[order] / len(pairs),
    )


@pytest.mark.parametrize("error", ["each draw alone", "marginal", "df", "factor"])
@pytest.mark.slow
def test_planted_errors_are_found(error, monkeypatch):
    question = Question("full", 0)
    if error == "each draw alone":
        predictor = question.model._predictor
        monkeypatch.setattr(
            predictor.conditional, "pairs", partial(each_draw_alone, predictor), raising=True
        )
    elif error == "marginal":
        given = laws.MatrixLaws.given
        monkeypatch.setattr(
            laws.MatrixLaws,
            "given",
            lambda self, X, *args: given(self, np.full_like(X, np.nan), *args),
        )
    else:
        right = laws.conditioned
        keep = 0 if error == "df" else 1
        monkeypatch.setattr(
            laws,
            "conditioned",
            lambda df, *args: tuple(
                plain if j == keep else new
                for j, (plain, new) in enumerate(
                    zip((df, 1.0 + 0.0 * df), right(df, *args), strict=True)
                )
            ),
        )
    with pytest.raises(AssertionError):
        check_prediction(question)


# Drawn rows and tables.


def cdf(model, rows, column):
    """Probability of at most the value of a column, given the known entries of each row."""
    asked = rows.copy()
    asked[:, column] = np.nan
    (law,) = model._predictor.conditional.pairs(asked).columns([column])
    return law._sum(law.law.cdf(rows[law.rows, column]))


@pytest.mark.parametrize(
    "name",
    everyday(
        ["full", "tied", "diag", "spherical", "poisson", "product", "subspace"],
        "full",
        "poisson",
        "product",
    ),
)
def test_sampled_rows_follow_the_law(name, seed_sequence):
    """Given one entry, the next given it, then the last given both (Rosenblatt 1952)."""
    model = Question(name).model
    row = Question(name).row

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        model.random_state = int(rng.integers(2**31))
        rows, labels = model.sample(round(1500 * factor), given={1: row[1]})
        assert (rows[:, 1] == row[1]).all() and set(labels) <= set(range(model.n_clusters_))
        seen = np.full_like(rows, np.nan)
        seen[:, 1] = row[1]
        p_values = []
        for column in [d for d in range(rows.shape[1]) if d not in (1, 3)]:
            seen[:, column] = rows[:, column]
            upper = cdf(model, seen, column)
            if (rows[:, column] == np.floor(rows[:, column])).all():
                # Made continuous.
                lower = seen.copy()
                lower[:, column] -= 1.0
                u = rng.random(len(rows))
                upper = u * upper + (1 - u) * _cdf_below(model, seen, column)
            p_values.append(kstest(upper, "uniform").pvalue)
        return worst_p({str(d): p for d, p in enumerate(p_values)}).corrected

    assert_p(run, seed_sequence=seed_sequence)


def _cdf_below(model, rows, column):
    asked = rows.copy()
    asked[:, column] = np.nan
    (law,) = model._predictor.conditional.pairs(asked).columns([column])
    return law._sum(law.law.cdf(rows[law.rows, column] - 1.0))


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_sampled_categories_follow_the_law(name, seed_sequence):
    question = Question(name)

    def run(seed, factor):
        question.model.random_state = int(np.random.default_rng(seed).integers(2**31))
        rows, _ = question.model.sample(
            round(2000 * factor), given=[np.nan, question.row[1], np.nan]
        )
        n = [len(question.nodes(d)[0]) for d in (0, 2)]
        grid = np.stack(np.meshgrid(*map(np.arange, n), indexing="ij"), axis=-1).reshape(-1, 2)
        log_p = question.log_density(reference.filled(question.row, [0, 2], grid))
        counts = np.bincount((rows[:, 0] * n[1] + rows[:, 2]).astype(int), minlength=len(grid))
        return counts, np.exp(log_p - logsumexp(log_p))

    assert_p(run, seed_sequence=seed_sequence)


def clusters_of(case):
    """Statistics of three clusters of half of the rows of a case of `support.laws`."""
    items, n = np.arange(case.n // 2), case.n
    half = case.likelihood.encode(case.X[items])
    model = case.likelihood.bind(half, case.likelihood.tables(half, n))
    return MixtureState(model, DirichletProcessPrior(len(items), 1.0), items % 3).dump()


@every_product
def test_laws_are_those_of_kernels(case):
    if case.likelihood.lacks("laws"):
        pytest.skip("no laws")
    if getattr(case.likelihood, "covariance_type", None) == "sparse":
        pytest.skip("no closed form: t laws in their place")
    stats = clusters_of(case)
    rows = conditional_rows(case)
    found = case.likelihood.laws(stats).departing().log_density(rows)
    if case.likelihood.left_out is not None:  # whether categories are those of the fit
        found += case.likelihood.left_out.log_density(rows)[:, None]
    for k, of_cluster in enumerate(stats):
        mixture = StoredMixture(of_cluster[None], np.array([0.0, -np.inf]), None, {}, 1.0)
        draws = SimpleNamespace(mixtures=[mixture])
        predictor = Predictor(case.likelihood, rows.shape[1], None, draws)
        np.testing.assert_allclose(
            found[:, k], predictor.score_samples(rows), rtol=1e-9, atol=1e-9
        )


def conditional_rows(case):
    return np.asarray(case.X, dtype=np.float64)


@every_product
def test_drawn_parameters_give_the_laws(case, seed_sequence):
    """The mean over parameters of the density of a row, and of two rows at once, which share
    them: p(x) p(y | x)."""
    if case.likelihood.lacks("laws") or np.nanmax(case.X) > 1000.0:
        pytest.skip("no laws, or the variance of the density of a large count is infinite")
    likelihood, stats = case.likelihood, clusters_of(case)[:1]
    rows = conditional_rows(case)[-3:]
    alone = likelihood.laws(stats).log_density(rows)[:, 0]
    after = likelihood.encode(case.X[[*range(0, case.n // 2, 3), case.n - 3]])
    model = likelihood.bind(after, likelihood.tables(after, case.n))
    n = model.n_samples
    with_first = MixtureState(model, DirichletProcessPrior(n, 1.0), np.zeros(n, dtype=np.intp))
    pair = alone[0] + likelihood.laws(with_first.dump()).log_density(rows[1:2])[0, 0]

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        drawn = likelihood.laws(np.repeat(stats, whole_of(2000, factor), axis=0), rng).log_density(
            rows
        )
        with np.errstate(over="ignore"):
            ratios = np.exp(drawn - alone[:, None])
            of_pair = np.exp(drawn[0] + drawn[1] - pair)
        return mean_p(np.column_stack([ratios.T, of_pair]), np.ones(4))

    assert_p(run, seed_sequence=seed_sequence)


# Rows of the fit.


def own_case(name):
    likelihood, X, parts = CASES[name]()
    X = X.copy()
    X[3, 0] = X[5, 2] = X[8, 0] = X[8, 1] = np.nan
    model = DPMixture(likelihood=likelihood, **SHORT, **PRIOR).fit(X)
    return model, X, parts, model.label_samples_.reshape(-1, len(X))


def own_laws(X, draws, parts, i, column, nodes):
    """Values and probabilities of a missing entry, a row for each draw."""
    values, weights = nodes
    log_p = [reference.own_law(X, z, i, [column], values[:, None], parts) for z in draws]
    log_p = np.array(log_p) + np.log(weights)
    return values, np.exp(log_p - logsumexp(log_p, axis=1, keepdims=True))


@pytest.mark.parametrize(
    "name",
    everyday(["diag", "spherical", "bernoulli", "categorical", "poisson"], "poisson"),
)
def test_rows_of_the_fit_are_imputed_in_their_clusters(name):
    model, X, parts, draws = own_case(name)
    completed = model.impute(X)
    np.testing.assert_array_equal(completed[~np.isnan(X)], X[~np.isnan(X)])
    for i, column in ((3, 0), (5, 2), (8, 0)):
        values, p = own_laws(X, draws, parts, i, column, Question(name).nodes(column))
        if name in ("bernoulli", "categorical"):
            assert completed[i, column] == p.mean(axis=0).argmax()
        else:
            np.testing.assert_allclose(completed[i, column], (p @ values).mean(), rtol=1e-6)
    # Not in general what a new row gets.
    if name in ("diag", "spherical", "poisson"):
        assert model.impute(X[:4])[3, 0] != completed[3, 0]


def check_drawn(model, rows, i, column, values, p, seed_sequence):
    """Compare an entry of completed tables with the law p of its values."""
    cumulated = np.cumsum(p)

    def run(seed, factor):
        model.random_state = int(np.random.default_rng(seed).integers(2**31))
        drawn = np.array([table[i, column] for table in model.impute(rows, round(600 * factor))])
        if len(values) < 10:
            return np.bincount(drawn.astype(int), minlength=len(values)), p
        cuts = np.unique(np.searchsorted(cumulated, np.arange(1, 8) / 8))
        share = np.diff(np.concatenate([[0.0], cumulated[cuts], [1.0]]))
        whole = (values == np.floor(values)).all()
        edges = values[cuts] if whole else 0.5 * (values[cuts] + values[cuts + 1])
        counts = np.bincount(np.searchsorted(edges, drawn), minlength=len(share))
        return counts, share / share.sum()

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("name", everyday(["diag", "categorical", "poisson"], "poisson"))
def test_drawn_tables_follow_the_law(name, seed_sequence):
    model, X, parts, draws = own_case(name)
    values, p = own_laws(X, draws, parts, 3, 0, Question(name).nodes(0))
    check_drawn(model, X, 3, 0, values, p.mean(axis=0), seed_sequence)


@pytest.mark.parametrize(
    "name", everyday(["full", "diag", "categorical", "poisson"], "categorical")
)
def test_drawn_new_rows_follow_the_law(name, seed_sequence):
    """The second of two new rows, each of which has many clusters."""
    question = Question(name, 0)
    values, p, _ = question.law(question.row, 0)
    rows = np.array([question.X[2], question.row])
    rows[:, 0] = np.nan
    check_drawn(question.model, rows, 1, 0, values, p, seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["diag", "full"])
def test_intervals_are_calibrated(kind):
    """90 % intervals of missing entries of simulated data: of rows of the fit (diagonal), and of
    new rows (full)."""
    rng = np.random.default_rng(11)
    inside = []
    truth = {"mean": 0.0, "mean_precision": 0.1, "df": 6.0, "scale": 4.0}
    for _ in range(60):
        labels = rng.integers(0, rng.integers(1, 5), size=80)
        params = {}
        X = np.empty((80, 3))
        for k in np.unique(labels):
            variances = truth["scale"] / rng.chisquare(truth["df"], size=3)
            covariance = np.diag(variances)
            if kind == "full":
                covariance = invwishart.rvs(
                    truth["df"], truth["scale"] * np.eye(3), random_state=rng
                )
            mean = rng.multivariate_normal(np.zeros(3), covariance / truth["mean_precision"])
            params[k] = mean, covariance
            rows = labels == k
            X[rows] = rng.multivariate_normal(mean, covariance, size=rows.sum())
        gaps = rng.random(X.shape) < 0.2
        gaps[:50] &= kind == "diag"
        given = np.where(gaps, np.nan, X)
        fit = given if kind == "diag" else given[:50]
        model = DPMixture(
            likelihood=Gaussian(covariance_type=kind, **truth),
            n_warmup=50, n_draws=50, n_chains=2, random_state=0, concentration=1.0,
        ).fit(fit)  # fmt: skip
        asked = given if kind == "diag" else given[50:]
        where = gaps if kind == "diag" else gaps[50:]
        tables = np.array(model.impute(asked, 200))[:, where]
        ranks = (tables < X[-len(asked) :][where]).mean(axis=0)
        inside.append(np.abs(ranks - 0.5) < 0.45)
    coverage = np.concatenate(inside).mean()
    assert 0.88 < coverage < 0.92, coverage


# Columns that Gaussian leaves out.


@pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
def test_columns_left_out(kind):
    X = rows_of("numbers", 40)
    combined = X @ [1.0, 0.0, -2.0] + 3.0 if kind in ("full", "tied") else np.full(40, 7.0)
    Y = np.column_stack([X, np.full(40, 5.0), combined])
    settings = {**SHORT, "likelihood": Gaussian(covariance_type=kind)}
    model = DPMixture(**settings).fit(Y)
    alone = DPMixture(**settings).fit(X)
    row = np.array([[1.0, np.nan, 0.3, np.nan, np.nan]])
    np.testing.assert_allclose(
        model.score_samples(row), alone.score_samples(row[:, :3]), rtol=1e-9
    )
    # Known columns that follow from the known entries count as in complete rows.
    complete, with_gap = np.repeat(Y[:1], 2, axis=0)
    with_gap[1] = np.nan
    left_out = model.score_samples([complete]) - alone.score_samples([complete[:3]])
    np.testing.assert_allclose(
        model.score_samples([with_gap]) - alone.score_samples([with_gap[:3]]), left_out, rtol=1e-6
    )
    filled = model.impute(row)[0]
    np.testing.assert_allclose(filled[:3], alone.impute(row[:, :3])[0], rtol=1e-9)
    assert filled[3] == 5.0
    expected = 1.0 - 0.6 + 3.0 if kind in ("full", "tied") else 7.0
    np.testing.assert_allclose(filled[4], expected, rtol=1e-9)
    assert np.isnan(model.score_samples(row)).sum() == 0
    if kind in ("full", "tied"):
        # The combination determines an entry on which it depends.
        row[0, [0, 4]] = np.nan, 2.0
        (filled,) = model.impute(row)
        np.testing.assert_allclose(filled[0], 2.0 - 3.0 + 0.6, rtol=1e-9)
        rows, _ = model.sample(5, given=row[0])
        np.testing.assert_allclose(rows[:, 0], filled[0], rtol=1e-9)
        quantiles = model.predict_columns(row, 0, quantiles=[0.1, 0.9])[0].quantiles
        np.testing.assert_allclose(quantiles, filled[0], rtol=1e-6)


# Tables.


def table(n=60, gaps=0.2, seed=1):
    rng = np.random.default_rng(seed)
    side = rng.integers(0, 2, n)
    flip = np.where(rng.random(n) < 0.1, 1 - side, side)
    full = pd.DataFrame(
        {
            "size": rng.normal(6.0 * side, 1.0),
            "city": pd.Categorical(np.array(["Bern", "Oslo"])[flip], ["Oslo", "Rom", "Bern"]),
            "smokes": pd.array(flip[::-1][::-1] == 1, dtype="boolean"),
            "kind": np.array(["a", "b"], dtype=object)[side],
        },
        index=np.arange(n) + 100,
    )
    holes = full.copy()
    for column in full:
        holes.loc[rng.random(n) < gaps, column] = pd.NA if column == "smokes" else None
    return full, holes


def test_tables_keep_their_types():
    full, holes = table()
    model = DPMixture(likelihood="mixed", **SHORT).fit(holes)
    before = holes.copy(deep=True)
    for completed in [model.impute(holes), model.impute(holes.iloc[:9]), *model.impute(holes, 2)]:
        assert completed.isna().sum().sum() == 0
        pd.testing.assert_series_equal(completed.dtypes, holes.dtypes)
        assert list(completed.index) == list(holes.index[: len(completed)])
        known = holes.iloc[: len(completed)].notna()
        assert (
            completed.astype(object).to_numpy()
            == full.iloc[: len(completed)].astype(object).to_numpy()
        )[known.to_numpy()].all()
    pd.testing.assert_frame_equal(holes, before)
    found = model.predict_columns(holes, ["city", "size"], quantiles=0.5)
    assert list(found["city"].categories) == ["Oslo", "Rom", "Bern"]
    np.testing.assert_allclose(found["city"].probabilities.sum(axis=1), 1.0)
    assert found["size"].quantiles.shape == (60, 1)
    for given in ({"city": "Oslo", "size": 6.5}, pd.Series({"city": "Oslo", "size": 6.5})):
        rows, _ = model.sample(4, given=given)
        assert (rows["city"] == "Oslo").all() and (rows["size"] == 6.5).all()
    one = holes.iloc[[0]]
    rows, _ = model.sample(2, given=one)
    assert rows["kind"].isin(["a", "b"]).all()
    scores = model.score_samples(holes)
    masked = holes.assign(size=np.nan, kind=None)
    given = model.score_samples(holes, given=["city", "smokes"])
    np.testing.assert_allclose(scores, model.score_samples(masked) + given, atol=1e-9)


def test_arrays_of_objects():
    _, holes = table()
    X = holes.astype(object).where(holes.notna(), None).to_numpy()
    model = DPMixture(likelihood="mixed", **SHORT).fit(X)
    completed = model.impute(X)
    assert completed.dtype == object and not pd.isna(completed).any()
    rows, _ = model.sample(3, given={1: "Oslo"})
    assert (rows[:, 1] == "Oslo").all()


# The transformer.


@parametrize_with_checks(
    [MixtureImputer(DPMixture(likelihood=Gaussian(covariance_type="diag"), **SHORT))]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([MixtureImputer()])
def test_scikit_learn_checks_of_the_default(estimator, check):
    check(estimator)


@pytest.mark.parametrize(
    "dtype",
    everyday(["float16", "float32", "Float32", "Int8", "Int64", object], "float32", "Int8"),
)
def test_imputation_keeps_types_of_numbers(dtype):
    """pandas refuses numbers with more digits than a column has, and integers beyond its range."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.integers(0, 120, (40, 2)).astype(float), columns=["a", "b"])
    X = X.mask(rng.random(X.shape) < 0.2).astype(dtype)
    settings = {"n_warmup": 5, "n_draws": 5, "n_chains": 1, "random_state": 0}
    for likelihood in ("gaussian", "poisson"):
        model = DPMixture(likelihood=likelihood, **settings).fit(X)
        for table in [model.impute(X), *model.impute(X, n_draws=3)]:
            assert not table.isna().any(axis=None)
            kept = X.notna().to_numpy()
            np.testing.assert_array_equal(table.to_numpy()[kept], X.to_numpy()[kept])
            if str(dtype)[0] in "fF":
                assert table.dtypes.equals(X.dtypes)


@pytest.mark.long
def test_imputer_in_a_pipeline():
    full, holes = table(200)
    labels = np.asarray(full["kind"] == "b")
    X = holes.drop(columns="kind")
    imputer = MixtureImputer(DPMixture(likelihood="mixed", **SHORT))
    completed = imputer.fit_transform(X)
    pd.testing.assert_frame_equal(completed, imputer.estimator_.impute(X))
    assert list(imputer.get_feature_names_out()) == list(X.columns)
    pd.testing.assert_frame_equal(imputer.set_output(transform="pandas").transform(X), completed)
    encoder = make_column_transformer(
        (OneHotEncoder(), ["city", "smokes"]), remainder="passthrough"
    )
    pipeline = make_pipeline(imputer, encoder, LogisticRegression()).fit(X, labels)
    assert pipeline.score(X, labels) > 0.9


@pytest.mark.slow
def test_defaults_of_the_imputer():
    X = rows_of("numbers")
    assert MixtureImputer().fit(X).estimator_.likelihood_.covariance_type == "full"
    X[0, 0] = np.nan
    assert MixtureImputer().fit(X).estimator_.likelihood_.covariance_type == "full"
    _, holes = table()
    assert isinstance(MixtureImputer().fit(holes).estimator_.likelihood_, Product)
    holes["n"] = pd.array([None, *np.arange(1, len(holes)) // 4], dtype="Int64")
    with pytest.warns(UserWarning, match="'n': whole numbers.*NegativeBinomial is proposed"):
        imputer = MixtureImputer().fit(holes)
    assert not imputer.transform(holes).isna().any(axis=None)
    holes[["x", "y", "z"]] = np.eye(3, dtype=int)[np.arange(len(holes)) % 3]  # one-hot codes
    with pytest.warns(UserWarning, match="one-hot codes"):
        imputer = MixtureImputer().fit(holes)
    assert not imputer.transform(holes).isna().any(axis=None)
    for other in (LogisticRegression(), FeatureAllocation(), "mixed", DPMixture):
        with pytest.raises(ValueError, match="estimator must be"):
            MixtureImputer(other).fit(X)


@pytest.mark.filterwarnings("ignore:.*no entries")
@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "categorical"])
def test_columns_without_values_are_as_in_simple_imputer(likelihood, keep):
    rng = np.random.default_rng(0)
    X = np.insert(rng.poisson(2.0, (30, 2)).astype(float), [0, 2], np.nan, axis=1)
    new = X[:4].copy()
    new[2, 1] = np.nan
    gap = 2, 1 if keep else 0
    new[0, 0] = new[1, 3] = 9.0  # has no effect on other entries, although no category is 9
    for as_given in (np.array, lambda X: pd.DataFrame(X, columns=list("abcd"))):
        mixture = DPMixture(likelihood=likelihood, **SHORT)
        ours = MixtureImputer(mixture, keep_empty_features=keep).fit(as_given(X))
        simple = SimpleImputer(keep_empty_features=keep).fit(as_given(X))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            found = ours.transform(as_given(new))
        assert [("drops them" in str(w.message)) for w in said] == ([] if keep else [True])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = np.array(simple.transform(as_given(new)))
        assert list(ours.get_feature_names_out()) == list(simple.get_feature_names_out())
        assert list(getattr(found, "columns", "")) in ([], list(simple.get_feature_names_out()))
        expected[gap] = np.array(found)[gap]
        np.testing.assert_array_equal(found, expected)


@pytest.mark.filterwarnings("ignore:.*no entries")
@pytest.mark.long
def test_columns_without_values_in_tables():
    _, holes = table()
    X = holes.assign(none=None, codes=pd.Categorical([None] * len(holes), ["u"]), void=np.nan)
    new = X.iloc[:3].assign(none=["x", None, "y"], void=[1.0, 2.0, np.nan])
    mixture = DPMixture(likelihood="mixed", **SHORT)
    with pytest.warns(UserWarning, match="'none', column 'codes' and column 'void' of X had no"):
        completed = MixtureImputer(mixture).fit(X).transform(new)
    pd.testing.assert_frame_equal(completed, MixtureImputer(mixture).fit_transform(holes)[:3])
    kept = MixtureImputer(mixture, keep_empty_features=True).fit(X).transform(new)
    pd.testing.assert_frame_equal(kept[completed.columns], completed)
    assert kept[["none", "codes", "void"]].to_numpy().T.tolist() == [
        ["x", 0, "y"],
        [0, 0, 0],
        [1, 2, 0],
    ]


@pytest.mark.filterwarnings("ignore:.*no entries")
def test_entries_that_stay_missing_are_named():
    X = rows_of("numbers")
    X[:, 1] = np.nan
    model = DPMixture(**SHORT).fit(X)
    with pytest.warns(UserWarning, match="^missing entries of column 1 of X are not"):
        completed = model.impute(X)
    assert np.isnan(completed[:, 1]).all()


@pytest.mark.filterwarnings("ignore:column 'code' of X has only two different values")
@pytest.mark.parametrize("kind", ["str", "object", "string", "category", "polars", "enum"])
def test_numbers_in_strings_are_filled_with_strings(kind):
    # More rows have 1 than 0.
    texts = [None, *np.where(np.arange(29) % 4, "1.0", "0").tolist()]
    numbers = np.random.default_rng(0).normal(size=30)
    X = pd.DataFrame({"code": pd.Series(texts, dtype="object"), "size": numbers})
    if kind in ("polars", "enum"):
        X = pl.DataFrame(X.to_dict("list"))
        X = X.cast({"code": pl.Enum(["0", "1.0"])}) if kind == "enum" else X
    else:
        X = X.astype({"code": kind})
    parts = [("flags", Bernoulli(), ["code"]), ("numbers", Gaussian(), ["size"])]
    filled = DPMixture(likelihood=Product(parts), **SHORT).fit(X).impute(X)
    assert filled["code"].to_list() == ["1.0", *texts[1:]]
    drawn = DPMixture(likelihood="gaussian", **SHORT).fit(X).impute(X, 1)[0]
    assert drawn["code"].dtype == filled["code"].dtype == X["code"].dtype
    entry = drawn["code"].to_list()[0]
    assert isinstance(entry, str)
    assert (entry in ("0", "1.0")) == (kind in ("category", "enum")), entry


def test_gaps_are_not_filled_with_a_category_of_that_name():
    codes = pd.Series(pd.Categorical([None, *["1", "2", "nan"] * 9]))
    assert filled_column(codes.to_frame(), 0, np.arange(28) == 0, np.full(28, 1.6))[0] == "2"


# Errors.


def test_given_values_must_be_of_the_column():
    X = pd.DataFrame({"kind": ["a", "b"] * 10, "code": ["1", "2"] * 10, "size": np.arange(20.0)})
    codes = [("codes", Categorical(), ["kind", "code"]), ("size", Gaussian(), ["size"])]
    model = DPMixture(likelihood=Product(codes), **SHORT).fit(X)
    with (
        pytest.warns(UserWarning, match="'c', a value that was not in `fit`"),
        pytest.raises(ValueError, match=r"given: column 'kind' of X had no such.*as 'a' and 'b'"),
    ):
        model.sample(given={"kind": "c"})
    for call in (
        lambda: model.sample(given={"size": "x"}),
        lambda: model.predict(X.assign(size="x")),
    ):
        with pytest.raises(ValueError, match="'x', in column 'size' of X; the column held numb"):
            call()


def test_errors():
    X = rows_of("counts")
    model = FiniteMixture(3, **SHORT, likelihood=Poisson()).fit(X)
    for columns, message in ((7, "no column 7"), ("a", "no column names"), ([1, 1], "twice")):
        for call in (model.score_samples, model.predict_columns):
            with pytest.raises(ValueError, match=message):
                call(X, columns)
    with pytest.raises(ValueError, match="between 0 and 1"):
        model.predict_columns(X, 0, quantiles=[0.5, 1.0])
    with pytest.raises(ValueError, match="one row"):
        model.sample(2, given=X[:2])
    with pytest.raises(ValueError, match="column 1"):
        model.impute([[np.nan, -1.0, 2.0]])
    with pytest.raises(ValueError, match="n_draws must be at least 1"):
        model.impute(X, 0)
    assert model.impute(X).tolist() == X.tolist()
    assert model.score_samples([[np.nan] * 3])[0] == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("cls", [Grid, Multinomial, PyClone, Relational, VonMisesFisher])
def test_likelihoods_without_laws_of_columns_say_so(cls):
    """An error says what is missing, and which likelihoods have it."""
    likelihood, X = next(examples_of(cls))
    why = (
        f"the likelihood {cls.__name__} has no law of some columns given others; use Bernoulli, "
        "Categorical, Gaussian, NegativeBinomial, Poisson, Subspace or a Product of these"
    )
    model = DPMixture(likelihood=likelihood)
    for fitted in (False, True):
        if fitted:
            model.set_params(n_chains=1, n_warmup=0, n_draws=1).fit(X)
        # Networks have no columns, but pairs to fill.
        for name in ("impute", "predict_columns")[cls is Relational :]:
            assert not hasattr(model, name)
            with pytest.raises(AttributeError, match=f"DPMixture has no {name}: {why}"):
                getattr(model, name)(X, 0)
    if cls is not PyClone:  # whose samples are given with both counts
        with pytest.raises(ValueError, match=f"given cannot be used: {why}"):
            model.score_samples(X, given=0)
    if cls is VonMisesFisher:
        with pytest.raises(ValueError, match=f"given cannot be used: {why}"):
            model.sample(2, given={0: 1.0})
    else:
        what = (
            r"set Grid\(sample=\.\.\.\)"
            if cls is Grid
            else "no law of whole rows to draw from; use"
        )
        with pytest.raises(AttributeError, match=f"DPMixture has no sample: .*{what}"):
            model.sample(2, given={0: 1.0})
    for name in ("impute", "predict_columns", "sample"):
        assert inspect.signature(getattr(DPMixture, name)).parameters["self"]
        assert hasattr(DPMixture(), name)


def test_parts_without_laws_of_columns_say_so():
    X = np.hstack([rows_of("counts"), 1.0 + rows_of("counts")])
    parts = [("counts", Poisson(), [0, 1, 2]), ("angles", VonMisesFisher(), [3, 4, 5])]
    model = DPMixture(likelihood=Product(parts), n_chains=1, n_warmup=0, n_draws=1).fit(X)
    why = r"the likelihood VonMisesFisher \(part 'angles'\) has no law of some columns"
    with pytest.raises(AttributeError, match=why):
        model.impute(X)
    with pytest.raises(ValueError, match=f"given cannot be used: {why}"):
        model.score_samples(X, given=3)
    # Without all of its columns, a direction says nothing.
    counts = np.hstack([X[:, :3], np.full((len(X), 3), np.nan)])
    expected = model.score_samples(X) - model.score_samples(counts)
    np.testing.assert_allclose(model.score_samples(X, given=[0, 1, 2]), expected)


def test_pickled_estimators_answer_alike():
    model, X, _, _ = own_case("diag")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.impute(X), model.impute(X))
    np.testing.assert_array_equal(again.impute(X, 2), model.impute(X, 2))


def test_impute_names_columns_with_infinity():
    frame = pd.DataFrame(
        np.random.default_rng(0).normal(size=(30, 2)), columns=["height", "width"]
    )
    model = DPMixture(n_chains=1, n_warmup=10, n_draws=10, random_state=0).fit(frame)
    frame.loc[3, "width"] = np.inf
    with pytest.raises(ValueError, match="column 'width'"):
        model.impute(frame)
