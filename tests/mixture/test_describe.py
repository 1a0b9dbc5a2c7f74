"""Descriptions of clusters.

Clusters are so far apart that all draws have the same components. Then means and shares of the
components have known posteriors, which the references compute from the rows alone.
"""

import pickle
import sys

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy import stats
from support.designs import everyday
from support.examples import examples_of
from support.laws import example
from support.pvalues import assert_p

from skdpm import DPMixture
from skdpm.mixture import questions
from skdpm.mixture.answers import description
from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Product,
    PyClone,
    Relational,
    Subspace,
    VonMisesFisher,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NORMAL = {"mean": 1.0, "mean_precision": 0.2, "df": 5.0}
SCALE = np.array([2.0, 1.0, 1.5])
MATRIX = np.array([[2.0, 0.5, 0.1], [0.5, 1.0, 0.2], [0.1, 0.2, 1.5]])
SIZES = (30, 20, 10)
TRUE = np.repeat(np.arange(3), SIZES)

# Standard errors of quantiles of 2000 draws, in standard deviations of a normal law: at most 0.05.
TOLERANCE = 0.25


def fitted(likelihood, X, labels=TRUE, **params):
    """Short chains that start from labels, which are then the point estimate."""
    model = DPMixture(
        likelihood=likelihood,
        sampler="gibbs",
        init=labels,
        n_warmup=0,
        **{
            "concentration": 1e-6,
            "n_draws": 2,
            "n_chains": 2,
            "random_state": 0,
            "point_estimate": "vi",
            **params,
        },
    ).fit(X)
    np.testing.assert_array_equal(model.labels_, labels)
    return model


def numbers():
    rng = np.random.default_rng(1)
    centres = np.array([[0.0, 0.0, 0.0], [30.0, -20.0, 1.0], [-30.0, 25.0, 1.0]])
    return centres[TRUE] + rng.standard_normal((60, 3)) @ np.linalg.cholesky(MATRIX).T


def student(X, d, kind):
    """Posterior of the mean of column d of a Gaussian cluster, rows with NaN left out."""
    m0, rho0, df0 = NORMAL["mean"], NORMAL["mean_precision"], NORMAL["df"]

    def of(x):
        n = len(x)
        gap = x.mean() - m0
        squares = np.sum((x - x.mean()) ** 2) + rho0 * n / (rho0 + n) * gap**2
        return n, m0 + n / (rho0 + n) * gap, squares

    x = X[~np.isnan(X[:, d]), d]
    n, loc, squares = of(x)
    if kind == "tied":
        return stats.norm(loc, np.sqrt(MATRIX[d, d] / (rho0 + n)))
    if kind == "full":
        df, scale = df0 + n - 2, MATRIX[d, d] + squares
    elif kind == "diag":
        df, scale = df0 + n, SCALE[d] + squares
    else:
        df, scale = df0 + X.size, 1.5 + sum(of(column)[2] for column in X.T)
    return stats.t(df, loc, np.sqrt(scale / df / (rho0 + n)))


def gaussian_case(kind, scale):
    X = numbers()
    if kind == "diag":
        X[::7, 1] = np.nan
    params = NORMAL if kind != "tied" else {k: v for k, v in NORMAL.items() if k != "df"}
    likelihood = Gaussian(**params, scale=scale, covariance_type=kind)
    return likelihood, X, lambda Y, d, _: student(Y, d, kind)


def flags():
    rng = np.random.default_rng(2)
    p = np.array([[0.02] * 12, [0.98] * 12, [0.02] * 6 + [0.98] * 6])
    X = (rng.random((60, 12)) < p[TRUE]).astype(float)
    X[::9, 3] = np.nan
    return X


def beta(Y, d, code):
    known = Y[~np.isnan(Y[:, d]), d]
    return stats.beta(0.8 + np.sum(known == 1), 1.7 + np.sum(known == 0))


def codes():
    rng = np.random.default_rng(3)
    X = np.where(rng.random((60, 5)) < 0.95, TRUE[:, None], rng.integers(0, 4, (60, 5)))
    return X.astype(float)


def dirichlet(Y, d, code):
    n = np.bincount(Y[:, d].astype(int), minlength=4) + 0.7
    return stats.beta(n[code], n.sum() - n[code])


def counts():
    rng = np.random.default_rng(4)
    return rng.poisson(np.array([[2.0, 40.0], [50.0, 3.0], [120.0, 90.0]])[TRUE]).astype(float)


def gamma(Y, d, code):
    return stats.gamma(1.2 + Y[:, d].sum(), scale=1.0 / (0.5 + len(Y)))


def words():
    rng = np.random.default_rng(5)
    p = np.eye(3) * 5.0 + 0.5
    p = np.column_stack([p, np.ones(3)])
    return np.array([rng.multinomial(40, p[k] / p[k].sum()) for k in TRUE]).astype(float)


def words_beta(Y, d, code):
    n = Y.sum(axis=0) + 0.8
    return stats.beta(n[d], n.sum() - n[d])


# Likelihood, rows, and the posterior of a mean given the rows of a component, column and code.
CASES = {
    "full": lambda: gaussian_case("full", MATRIX),
    "tied": lambda: gaussian_case("tied", MATRIX),
    "diag": lambda: gaussian_case("diag", SCALE),
    "spherical": lambda: gaussian_case("spherical", 1.5),
    "bernoulli": lambda: (Bernoulli(a=0.8, b=1.7), flags(), beta),
    "categorical": lambda: (Categorical(concentration=0.7, n_categories=4), codes(), dirichlet),
    "poisson": lambda: (Poisson(shape=1.2, rate=0.5), counts(), gamma),
    "multinomial": lambda: (Multinomial(concentration=0.8), words(), words_beta),
}


def check(table, X, labels, components, posterior, level=0.9):
    """Compare a table with draws and means of the reference."""
    rng = np.random.default_rng(6)
    n_clusters = labels.max() + 1
    assert len(table) and (table.index.unique("cluster") == np.arange(n_clusters)).all()
    n = 40_000
    tail = 0.5 * (1.0 - level)

    def of(rows, d, code):
        """Expectation and draws of the mean over the components of rows."""
        inside, sizes = np.unique(components[rows], return_counts=True)
        laws = [posterior(X[components == k], d, code) for k in inside]
        expected = np.array([law.mean() for law in laws]) @ sizes / sizes.sum()
        drawn = np.column_stack([law.rvs(n, random_state=rng) for law in laws])
        return expected, np.sum(rng.dirichlet(sizes, n) * drawn, axis=1)

    for (k, d, category), line in table.iterrows():
        code = category if category != "" else None
        mean, drawn = of(labels == k, d, code)
        rest, others = of(labels != k, d, code)
        np.testing.assert_allclose([line["mean"], line["rest"]], [mean, rest], rtol=1e-6)
        assert line["n_rows"] == np.sum(labels == k)
        assert line["share_of_rows"] == np.mean(labels == k)
        spread = (mean - rest) / line["difference"]  # tested elsewhere
        for values, low, high, unit in (
            (drawn, "low", "high", 1.0),
            (drawn - others, "difference_low", "difference_high", spread),
        ):
            found = np.array([line[low], line[high]]) * unit
            gap = found - np.quantile(values, [tail, 1.0 - tail])
            # In units of the distances from the quantiles, because laws may be skewed.
            wide = np.abs(np.quantile(values, [tail, 1.0 - tail]) - np.median(values))
            wide = wide / stats.norm.ppf(1.0 - tail)
            assert (np.abs(gap) < TOLERANCE * np.maximum(wide, 0.2 * wide.max())).all()
        sure = max(np.mean(drawn > others), np.mean(drawn < others))
        assert abs(line["certainty"] - sure) < 0.06
        if line["kind"] == "number":
            assert np.isnan(line["lift"])
        else:
            np.testing.assert_allclose(line["lift"], mean / rest, rtol=1e-6)


@pytest.mark.parametrize("name", everyday(CASES, "full", "diag", "poisson"))
def test_means_and_intervals_are_those_of_conjugate_posteriors(name):
    likelihood, X, posterior = CASES[name]()
    model = fitted(likelihood, X)
    assert (model.label_samples_ == TRUE).all()
    table = model.describe()
    n_lines = X.shape[1] * (4 if name == "categorical" else 1)
    assert len(table) == 3 * n_lines
    check(table, X, TRUE, TRUE, posterior)


def merged():
    """Clusters of several components: 0 and 1 are one cluster."""
    likelihood, X, posterior = CASES["diag"]()
    model = fitted(likelihood, X)
    model.labels_ = np.minimum(np.maximum(TRUE - 1, 0), 1)
    return model, X, posterior


def test_means_of_several_components_contain_the_uncertainty_of_their_shares():
    model, X, posterior = merged()
    check(model.describe(), X, model.labels_, TRUE, posterior)
    check(model.describe(level=0.6), X, model.labels_, TRUE, posterior, level=0.6)


def test_modal_clusters_are_described_component_by_component():
    """The mean of a cluster is the mean of its rows, nearly: also if components are many."""
    rng = np.random.default_rng(7)
    along = rng.uniform(0.0, 30.0, 300)
    X = np.r_[np.c_[along, 0.1 * rng.standard_normal(300)], rng.normal([15.0, 9.0], 0.3, (80, 2))]
    short = {"n_chains": 1, "n_warmup": 60, "n_draws": 20, "random_state": 0}
    model = DPMixture(likelihood="gaussian", point_estimate="modal", **short).fit(X)
    assert model.n_clusters_ == 2 and model.n_components_samples_.min() > 2
    table = model.describe()
    for k, d in ((0, 0), (0, 1), (1, 0), (1, 1)):
        x = X[model.labels_ == k, d]
        line = table.loc[(k, d, "")]
        assert abs(line["mean"] - x.mean()) < 0.2 * x.std()
        error = x.std() / np.sqrt(len(x))
        assert 0.7 < (line["high"] - line["low"]) / (2 * 1.645 * error) < 1.5


def with_the_cluster(masses):
    return np.broadcast_to(masses.sum(axis=-2, keepdims=True), masses.shape)


def fixed_shares(self, counts, means, rng):
    class Fixed:
        def gamma(self, shapes, size):
            return np.broadcast_to(shapes, size)

    return RIGHT(self, counts, means, Fixed())


RIGHT = description._Kept.add


def of_rows(likelihood, stats_of_clusters, n_columns, n_draws, rng):
    """Rows in place of means."""
    from skdpm.mixture.likelihoods.laws import means

    values = []
    for column in range(n_columns):
        mean, rho, df, scale, _ = likelihood.column_posterior(stats_of_clusters, column)
        if n_draws is not None:
            spread = np.sqrt(scale / df * (1.0 + 1.0 / rho))
            mean = mean + spread * rng.standard_t(df, (n_draws, len(mean)))
        values.append(mean[..., None])
    return means.ColumnMeans.of_columns("number", values)


@pytest.mark.parametrize("error", ["rest", "shares", "rows", "level", "plug-in"])
def test_planted_errors_are_found(error, monkeypatch):
    model, X, posterior = merged()
    level = 0.9
    if error == "rest":
        monkeypatch.setattr(description, "_others", with_the_cluster)
    elif error == "shares":
        monkeypatch.setattr(description._Kept, "add", fixed_shares)
    elif error == "level":
        level = 0.8
    else:
        from skdpm.mixture.likelihoods.gaussian import gaussian

        law = of_rows
        if error == "plug-in":

            def law(*args):
                found = of_rows(*args[:3], None, None)
                if args[3] is not None:
                    values = np.repeat(found.values[None], args[3], axis=0)
                    found = type(found)(found.columns, found.codes, found.kinds, values)
                return found

        monkeypatch.setattr(gaussian, "normal_means", law)
    with pytest.raises(AssertionError):
        check(model.describe(level=level), X, model.labels_, TRUE, posterior)


def test_a_split_that_no_draw_makes_is_no_difference():
    """Tests of the rows of clusters would find one: clusters are cut where rows differ."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((80, 2))
    likelihood = Gaussian(mean=0.0, mean_precision=0.1, df=5.0, scale=3.0)
    model = fitted(likelihood, X, np.zeros(80, dtype=int), concentration=1e-9)
    model.labels_ = (X[:, 0] > 0.0).astype(int)
    table = model.describe()
    assert (table["difference"] == 0.0).all() and (table["certainty"] == 0.0).all()
    assert (table["difference_low"] == 0.0).all()
    # Half of the draws separate them.
    assert stats.ttest_ind(*(X[model.labels_ == k, 0] for k in (0, 1))).pvalue < 1e-9
    model.draws_["labels"][0] = model.labels_ != model.labels_[0]
    model._training.described.clear()
    assert abs(model.describe().loc[(0, 0, ""), "certainty"] - 0.5) < 0.01


def test_standard_deviations_are_those_within_clusters():
    _, X, _ = CASES["diag"]()
    table = fitted(CASES["diag"]()[0], X).describe()
    for d in range(3):
        squares = freedom = 0.0
        for k in range(3):
            x = X[(TRUE == k) & ~np.isnan(X[:, d]), d]
            squares, freedom = squares + np.sum((x - x.mean()) ** 2), freedom + len(x) - 1
        for k in range(3):
            line = table.loc[(k, d, "")]
            gap = line["mean"] - line["rest"]
            np.testing.assert_allclose(line["difference"], gap / np.sqrt(squares / freedom))
    likelihood, X, _ = CASES["bernoulli"]()
    table = fitted(likelihood, X).describe()
    share = np.array(SIZES) / 60.0
    for d in range(12):
        p = np.array([table.loc[(k, d, ""), "mean"] for k in range(3)])
        line = table.loc[(1, d, "")]
        sd = np.sqrt(share @ (p * (1.0 - p)))
        np.testing.assert_allclose(line["difference"], (p[1] - line["rest"]) / sd)


@pytest.mark.slow
def test_intervals_are_calibrated(seed_sequence):
    """Clusters drawn from the prior. Cluster 0 has two components with uniform shares."""

    def run(seed_sequence, factor):
        rng = np.random.default_rng(seed_sequence)
        n, covered = round(400 * factor), np.zeros(3)
        likelihood = Gaussian(
            mean=0.0, mean_precision=1e-6, df=6.0, scale=4.0, covariance_type="diag"
        )
        made = 0
        while made < n:
            v = 4.0 / rng.chisquare(6.0, 3)
            mu = rng.normal(0.0, np.sqrt(v / 1e-6))
            w = rng.dirichlet([1.0, 1.0, 1.0])
            z = np.sort(rng.choice(3, 150, p=w))
            if len(np.unique(z)) < 3:
                continue
            _, z = np.unique(z, return_inverse=True)
            X = rng.normal(mu[z], np.sqrt(v[z]))[:, None]
            model = DPMixture(
                likelihood=likelihood, sampler="gibbs", init=z, n_warmup=0, n_draws=1, n_chains=1,
                concentration=1e-6, point_estimate="last", random_state=0,
            ).fit(X)  # fmt: skip
            made += 1
            model.labels_ = (z == 2).astype(int)
            table = model.describe()
            truth = (w[0] * mu[0] + w[1] * mu[1]) / (w[0] + w[1]), mu[2]
            for k in (0, 1):
                line = table.loc[(k, 0, "")]
                covered[k] += line["low"] <= truth[k] <= line["high"]
            sd = (line["mean"] - line["rest"]) / line["difference"]
            gap = (truth[1] - truth[0]) / sd
            covered[2] += line["difference_low"] <= gap <= line["difference_high"]
        print(covered / n)
        return min(3 * min(stats.binomtest(int(c), n, 0.9).pvalue for c in covered), 1.0)

    assert_p(run, seed_sequence=seed_sequence)


EXAMPLES = [
    example(name, i, likelihood, X)
    for name, cls in LIKELIHOODS.items()
    if cls().lacks("column_means") is None
    for i, (likelihood, X) in enumerate(examples_of(cls))
]


@pytest.mark.parametrize(("likelihood", "X"), EXAMPLES)
@pytest.mark.filterwarnings("ignore:a single column of categories")
@pytest.mark.some(3)
def test_means_of_columns_are_those_of_the_laws_of_rows(likelihood, X):
    """Of every likelihood: posterior means, and means of draws."""
    model = DPMixture(
        likelihood=likelihood, sampler="gibbs", n_warmup=2, n_draws=1, n_chains=1, random_state=0
    ).fit(X)
    found, clusters = model.likelihood_, model._predictor.partition.stats
    means = found.column_means(clusters)
    assert means.values.shape == (len(clusters), len(means.columns))
    if found.lacks("laws") is None:
        n = len(clusters)
        columns = np.unique(means.columns)
        unknown = np.full((n, model.n_features_in_), np.nan)
        laws = found.laws(clusters).given(unknown, np.arange(n), list(columns))
        for d, law in zip(columns, laws, strict=True):
            of_column = means.columns == d
            expected = law.probabilities()
            if expected is None:
                expected = law.mean()[:, None]
            elif (means.codes[of_column] < 0).all():
                expected = expected[:, 1:]
            np.testing.assert_allclose(means.values[:, of_column], expected, rtol=1e-9)
    drawn = found.column_means(clusters, 4000, np.random.default_rng(0))
    assert drawn.values.shape == (4000, *means.values.shape)
    # Means of laws without a variance converge slowly, but all medians are close to means.
    spread = np.subtract(*np.quantile(drawn.values, [0.75, 0.25], axis=0))
    gap = np.median(drawn.values, axis=0) - means.values
    assert (np.abs(gap) <= 0.9 * spread + 0.05).all()


# Tables of users.


@pytest.fixture(scope="module")
def guests():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(
        {
            "noise": rng.standard_normal(60),
            "price": rng.normal(np.array([70.0, 90.0, 180.0])[TRUE], 3.0),
            "identifier": np.arange(60.0),
            "nights": rng.poisson(np.array([1.0, 30.0, 90.0])[TRUE]).astype(float),
            "meal": np.array(["none", "half board", "breakfast"])[TRUE],
            "pets": rng.random(60) < np.array([0.05, 0.95, 0.5])[TRUE],
        }
    )
    table = table.astype({"pets": "boolean"})
    table.loc[[3, 40], ["price", "meal", "pets"]] = None
    return table


@pytest.fixture(scope="module")
def model(guests):
    parts = [
        ("amounts", Gaussian(covariance_type="diag"), ["price", "noise"]),
        ("choices", Categorical(), ["meal"]),
        ("flags", Bernoulli(), ["pets"]),
        ("counts", Poisson(), ["nights"]),
    ]
    return fitted(Product(parts), guests)


def test_names_and_categories_are_those_of_the_table(model):
    table = model.describe()
    assert table.index.names == ["cluster", "column", "category"]
    assert list(table.index.unique("column").sort_values()) == [
        "meal", "nights", "noise", "pets", "price"
    ]  # fmt: skip
    meals = table.xs("meal", level="column")
    assert set(meals.loc[0].index) == {"none", "half board", "breakfast"}
    for k, meal in enumerate(["none", "half board", "breakfast"]):
        assert meals.loc[(k, meal), "mean"] > 0.8
        assert meals.loc[(k, meal), "lift"] > 5.0
    assert set(table.loc[table.index.get_level_values("category") == "", "kind"]) == {
        "number", "count", "share"
    }  # fmt: skip
    assert abs(table.loc[(1, "price", ""), "mean"] - 90.0) < 3.0
    assert abs(table.loc[(2, "nights", ""), "mean"] - 90.0) < 10.0
    assert table.loc[(0, "nights", ""), "lift"] < 1.0 < table.loc[(2, "nights", ""), "lift"]
    assert table.loc[(1, "pets", ""), "kind"] == "share"


def test_sums(model):
    table = model.describe()
    sizes = table.groupby("cluster")["n_rows"].first()
    np.testing.assert_array_equal(sizes, np.bincount(model.labels_))
    assert table.groupby("cluster")["share_of_rows"].first().sum() == pytest.approx(1.0)
    meals = table.xs("meal", level="column").groupby("cluster")[["mean", "rest"]].sum()
    np.testing.assert_allclose(meals, 1.0)
    shares = table[table["kind"] == "share"]
    assert (shares["low"] >= 0.0).all() and (shares["high"] <= 1.0).all()
    assert (table["low"] <= table["mean"]).all() and (table["mean"] <= table["high"]).all()
    assert table["certainty"].between(0.0, 1.0).all()


def test_columns_that_distinguish_a_cluster_come_first(model):
    table = model.describe()
    for k in range(3):
        lines = table.loc[k]
        size = lines["difference"].abs()
        of_columns = size.groupby("column").max().sort_values(ascending=False)
        assert list(lines.index.unique("column")) == list(of_columns.index)
        for _, of_column in size.groupby("column"):
            assert of_column.is_monotonic_decreasing
        assert lines.index.unique("column")[-1] in ("noise", "pets")
        assert lines["certainty"].iloc[0] > 0.99 and size["noise"].iloc[0] < 1.0


def test_codes_of_categories_have_numbers():
    likelihood, X, _ = CASES["categorical"]()
    table = fitted(likelihood, X).describe()
    assert set(table.index.get_level_values("category")) == {0, 1, 2, 3}
    assert table.loc[(2, 4, 2), "mean"] > 0.7


def test_reduced_columns_and_constants_are_described():
    X = numbers()
    X = np.column_stack([X, X[:, 0] - 2.0 * X[:, 1], np.full(60, 7.0)])
    table = fitted(Gaussian(), X).describe()
    for k in range(3):
        inside = X[TRUE == k].mean(axis=0)
        for d in range(5):
            assert abs(table.loc[(k, d, ""), "mean"] - inside[d]) < 1.0
        assert table.loc[(k, 4, ""), "difference"] == 0.0
        assert table.loc[k].index.get_level_values("column")[-1] == 4


def test_a_category_that_all_rows_have_differs_nowhere():
    X = np.column_stack([*8 * [TRUE], np.zeros(60)])
    with np.errstate(all="raise"):
        table = fitted(Categorical(), X).describe()
    lines = table.xs(8, level="column")
    assert (lines["mean"] == 1.0).all() and (lines["rest"] == 1.0).all()
    names = ["difference", "difference_low", "difference_high"]
    assert (lines[names] == 0.0).all(axis=None) and (lines["lift"] == 1.0).all()


def test_subspace_describes_all_columns():
    rng = np.random.default_rng(9)
    X = 0.3 * rng.standard_normal((60, 6)) + np.eye(6)[TRUE] * 20.0
    table = fitted(Subspace(n_axes=2), X).describe()
    assert len(table) == 18
    for k in range(3):
        assert table.loc[k].index.get_level_values("column")[0] < 3
        line = table.loc[(k, k, "")]
        assert abs(line["mean"] - 20.0) < 1.5 and line["certainty"] == 1.0


def test_sparse_words_are_described_by_shares():
    X = words()
    dense = fitted(Multinomial(), X).describe()
    sparse = fitted(Multinomial(), sp.csr_array(X)).describe()
    pd.testing.assert_frame_equal(dense, sparse)
    for k in range(3):
        assert sparse.loc[k]["lift"].idxmax() == (k, "")


def directions():
    rng = np.random.default_rng(11)
    X = rng.poisson(np.array([[9, 1, 0.2, 2], [0.2, 9, 1, 2], [1, 0.2, 9, 2]])[TRUE]) + 0.0
    return X * rng.choice([0.1, 1.0, 20.0], (60, 1))


DIRECTIONS = VonMisesFisher(concentration=20.0, spread=1.0)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_directions_have_no_lengths(form):
    """All columns of the table are those of rows of unit length, dense or CSR."""
    X = directions()
    table = fitted(DIRECTIONS, form(X)).describe()
    pd.testing.assert_frame_equal(table, fitted(DIRECTIONS, form(1000.0 * X)).describe())
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    within = sum(n * unit[TRUE == k].var(axis=0) for k, n in enumerate(SIZES)) / (60 - 3)
    for (_, d, _), line in table.iterrows():
        spread = (line["mean"] - line["rest"]) / line["difference"]
        np.testing.assert_allclose(spread, np.sqrt(within[d]))


def test_sparse_directions_are_described_as_dense_ones():
    X = directions()
    dense = fitted(DIRECTIONS, X).describe()
    pd.testing.assert_frame_equal(dense, fitted(DIRECTIONS, sp.csr_array(X)).describe())


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", [Gaussian(), Poisson(), Bernoulli()])
def test_draws_without_clusters_say_nothing(likelihood):
    """All rows are noise in some of the draws."""
    X = np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    if isinstance(likelihood, Gaussian):
        X = np.array([[100.0, 101.0], [103.2, 100.4], [101.1, 104.7], [104.9, 103.3]])
    model = DPMixture(
        likelihood=likelihood, noise=(1.0, 1.0), n_warmup=20, n_draws=200, random_state=0
    )
    model.fit(X)
    empty = (model.draws_["labels"] < 0).all(axis=-1)
    assert 0.05 < empty.mean() < 0.95
    model.labels_ = np.zeros(4, dtype=int)
    table = model.describe()
    low, high = table["low"].to_numpy(float), table["high"].to_numpy(float)
    assert np.isfinite(low).all() and np.isfinite(high).all()
    if isinstance(likelihood, Gaussian):
        assert table["mean"].min() > 90.0  # a mean of 0 for such draws would be far below


def test_parts_of_directions_are_described_as_alone():
    X = directions()
    heights = TRUE + np.random.default_rng(0).standard_normal(60)
    parts = [("height", Gaussian(), [0]), ("words", DIRECTIONS, [4, 2, 3, 1])]
    table = fitted(Product(parts), np.c_[heights, X]).describe()
    alone = fitted(DIRECTIONS, X).describe()
    for (k, d, _), line in alone.iterrows():
        of_part = table.loc[(k, d + 1, "")]
        names = ["mean", "rest", "difference"]
        np.testing.assert_allclose(of_part[names].astype(float), line[names].astype(float))


def test_one_cluster_has_no_rest():
    X = np.random.default_rng(0).standard_normal((30, 2))
    table = fitted(Gaussian(), X, np.zeros(30, dtype=int), concentration=1e-9).describe()
    assert table[["rest", "difference", "lift", "certainty"]].isna().all().all()
    assert table[["mean", "low", "high"]].notna().all().all()
    assert list(table.index.get_level_values("column")) == [0, 1]


def test_a_column_constant_within_clusters_has_the_scale_of_its_steps():
    likelihood = Gaussian(mean=0.0, mean_precision=1e-4, df=9.0, scale=1.0)
    table = fitted(likelihood, np.array([[0.0, 1.0], [50.0, 1.0], [100.0, 1.0]]), np.arange(3))
    assert table.describe()["difference"].notna().all()
    # Means of equal values differ from these by rounding; distances are 50, 1 and 40.
    values = np.array([0.1, 50.1, 51.1, 91.1])
    labels = np.repeat(np.arange(4), 6)
    X = np.column_stack([values[labels], np.tile([0.0, 0.1, 0.2], 8) + 0.3 * (labels == 1)])
    table = fitted(likelihood, X, labels).describe()
    for k in range(4):
        line = table.loc[(k, 0, "")]
        gap = line["mean"] - line["rest"]
        np.testing.assert_allclose(line["difference"], gap / (40.0 / np.sqrt(12.0)))
        assert line["difference_low"] < line["difference"] < line["difference_high"]
    # Column 0 does not come first in clusters that are close to the mean of the others there.
    first = [table.loc[k].index.get_level_values("column")[0] for k in range(4)]
    assert first == [0, 1, 1, 0]


def test_weights_of_draws_count():
    """Draws with weight 0 do not."""
    likelihood, X, posterior = CASES["poisson"]()
    model = fitted(likelihood, X)
    expected = model.describe()
    draws = model.draws_.scored.draws
    for draw, weight in zip(draws, [0.5, 0.0, 0.5, 0.0], strict=True):
        draw["weight"] = weight
    model.draws_["labels"][:, 1] = 0
    table = model.describe()
    np.testing.assert_allclose(table["mean"], expected["mean"])
    check(table, X, TRUE, TRUE, posterior)


def test_many_clusters_and_columns_need_few_draws(monkeypatch):
    likelihood, X, _ = CASES["diag"]()
    model = fitted(likelihood, X)
    expected = model.describe()
    monkeypatch.setattr(description, "MOST_KEPT", 1)
    monkeypatch.setattr(description, "BLOCK_MEANS", 30)
    table = model.describe()
    np.testing.assert_allclose(table["mean"], expected["mean"])
    np.testing.assert_allclose(table["high"], expected["high"], rtol=0.1, atol=0.3)


def test_the_same_fit_has_the_same_description(model):
    pd.testing.assert_frame_equal(model.describe(), model.describe())


def test_a_description_is_kept_until_clusters_or_the_level_change(guests, monkeypatch):
    calls, of_clusters = [], questions.describe
    monkeypatch.setattr(questions, "describe", lambda *a: calls.append(a) or of_clusters(*a))
    numbers = guests[["noise", "price", "nights"]]
    model = DPMixture(n_warmup=5, n_draws=5, n_chains=1, random_state=0).fit(numbers)
    first = model.describe()
    pd.testing.assert_frame_equal(model.describe(), first)
    assert len(calls) == 1
    assert not model.describe(level=0.5)["low"].equals(first["low"]) and len(calls) == 2
    n_clusters = model.estimate_labels(max_clusters=1).n_clusters_
    assert model.describe().index.get_level_values(0).nunique() == n_clusters
    assert pickle.loads(pickle.dumps(model))._training.described == {}


def test_after_pickling_the_rows_must_be_passed(model, guests):
    again = pickle.loads(pickle.dumps(model))
    with pytest.raises(ValueError, match="not pickled with the estimator: pass them as X"):
        again.describe()
    with pytest.raises(ValueError, match="X must be the rows of fit"):
        again.describe(guests[:50])
    pd.testing.assert_frame_equal(again.describe(guests), model.describe())


def test_another_point_estimate_is_described(model, guests):
    again = pickle.loads(pickle.dumps(model)).estimate_labels(max_clusters=2, X=guests)
    table = again.describe()
    np.testing.assert_array_equal(
        table.groupby("cluster")["n_rows"].first(), np.bincount(again.labels_)
    )


@pytest.mark.parametrize("likelihood", [Relational(), PyClone()])
def test_other_likelihoods_are_refused(likelihood):
    model = DPMixture(likelihood=likelihood)
    assert not hasattr(model, "describe")
    with pytest.raises(AttributeError, match="no columns with means or categories to describe"):
        _ = model.describe


def test_bad_calls_are_refused(model, monkeypatch):
    with pytest.raises(ValueError, match="level must be"):
        model.describe(level=1.5)
    with pytest.raises(ValueError, match="level must be"):
        model.describe(level=0.0)
    X = numbers()
    short = {"n_draws": 2, "n_chains": 1, "n_warmup": 0, "likelihood": Gaussian()}
    without = DPMixture(store_labels=False, point_estimate="last", **short).fit(X)
    with pytest.raises(AttributeError, match=r"describe needs label draws.*cluster_params_"):
        without.describe()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="describe needs pandas: pip install pandas"):
        model.describe()


def test_names_that_are_no_strings():
    X = np.random.default_rng(0).normal(size=(30, 2))
    for names in ([("a", "x"), ("b", "x")], [7, 3]):
        columns = pd.MultiIndex.from_tuples(names) if names[0] != 7 else names
        model = DPMixture(n_warmup=2, n_draws=2, n_chains=1).fit(pd.DataFrame(X, columns=columns))
        assert set(model.describe().index.get_level_values("column")) == set(names)
        found = model.fit(X).describe()
        assert set(found.index.get_level_values("column")) == {0, 1}
