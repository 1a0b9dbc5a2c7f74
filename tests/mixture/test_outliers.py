"""Outlier scores: against densities and tail probabilities in numpy, rates of false alarms, gaps,
and what scores must not depend on."""

import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import gammaln, logsumexp
from sklearn.metrics import roc_auc_score

from skdpm import DPMixture
from skdpm.mixture.answers.conditional import ConditionalLaws, fill
from skdpm.mixture.answers.outliers import ColumnTails, OwnClusters, Tail
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Product,
)

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SHORT = {"n_warmup": 10, "n_draws": 6, "n_chains": 1, "random_state": 0}
PRIOR = {"mean": 0.5, "mean_precision": 0.2, "df": 5.0, "scale": 1.5}


def two_groups(n=20, seed=0):
    rng = np.random.default_rng(seed)
    return np.repeat([[0.0, 0.0], [6.0, 3.0]], n, axis=0) + rng.normal(size=(2 * n, 2))


def log_blurred(x, rows, errors):
    """log density of x given other rows of its cluster, under `PRIOR`, with errors."""
    n, d = rows.shape
    mean, k, df = PRIOR["mean"] * np.ones(d), PRIOR["mean_precision"], PRIOR["df"]
    centre = (k * mean + rows.sum(axis=0)) / (k + n)
    scatter = PRIOR["scale"] * np.eye(d) + rows.T @ rows
    scatter += k * np.outer(mean, mean) - (k + n) * np.outer(centre, centre)
    free = df + n - d + 1.0
    scale = scatter * (k + n + 1.0) / ((k + n) * free) + np.diag(errors**2)
    square = (x - centre) @ np.linalg.solve(scale, x - centre)
    constant = gammaln(0.5 * (free + d)) - gammaln(0.5 * free) - 0.5 * d * np.log(free * np.pi)
    return (
        constant - 0.5 * np.linalg.slogdet(scale)[1] - 0.5 * (free + d) * np.log1p(square / free)
    )


@pytest.mark.parametrize("prior", [{}, {"discount": 0.4}, {"noise": (1.0, 3.0)}], ids=repr)
@pytest.mark.some(1)
def test_densities_are_those_of_clusters_with_errors(prior):
    """Of new rows, and of rows of the fit, whose cluster loses the row."""
    X = np.r_[two_groups(), [[14.0, -9.0]]]
    params = {"likelihood": Gaussian(**PRIOR), "concentration": 1.0, **SHORT, **prior}
    model = DPMixture(**params).fit(X)
    discount, (a, b) = prior.get("discount", 0.0), prior.get("noise", (0.0, 1.0))
    outliers, new = model._predictor.outliers, np.array([[1.0, 2.0], [30.0, -4.0], X[-1]])
    errors = outliers.errors
    assert (0.5 < errors).all() and (errors < 2.0).all()  # not those of all rows, 3.2 and 1.9

    def expected(x, draw, without=None):
        labels = model.label_samples_[draw["chain"], draw["draw"]]
        terms = []
        for k in range(labels.max() + 1):
            rows = np.setdiff1d(np.flatnonzero(labels == k), [] if without is None else [without])
            if len(rows):
                terms.append(np.log(len(rows) - discount) + log_blurred(x, X[rows], errors))
        n_inside = np.sum(labels >= 0) - (without is not None and labels[without] >= 0)
        # The weight of noise is that given all rows.
        of_clusters = (b + np.sum(labels >= 0)) / (a + b + len(X))
        return logsumexp(terms) + np.log(of_clusters / (n_inside + 1.0))

    found = outliers.blurred.log_density(new)
    terms = [[expected(x, draw) for x in new] for draw in outliers.draws]
    np.testing.assert_allclose(found, logsumexp(terms, axis=0) - np.log(len(terms)), rtol=1e-9)

    rows = np.array([3, 40, 25, 3])  # the last one is alone in its cluster
    own = OwnClusters(outliers, model._training, model.draws_)
    terms = [[expected(X[i], draw, without=i) for i in rows] for draw in outliers.draws]
    np.testing.assert_allclose(
        own.log_density(X[rows], rows), logsumexp(terms, axis=0) - np.log(len(terms)), rtol=1e-9
    )
    assert model.outlier_scores_.argmax() == 40
    assert model.outlier_scores(X).argmax() == 40
    assert ("noise" in prior) == (model.label_samples_[..., 40] < 0).any()


def test_tails():
    values = np.random.default_rng(0).gamma(3.0, size=2500)
    tail = Tail(values)
    inside = np.quantile(values, [0.0, 0.3, 0.97])
    shares = [(np.sum(values >= x) + 1.0) / 2501.0 for x in inside]
    np.testing.assert_allclose(tail.surprise(inside), -np.log(shares))
    limit = np.quantile(values, 0.98)
    excess = np.mean(values[values > limit] - limit)
    far = limit + np.array([0.5, 10.0])
    np.testing.assert_allclose(tail.surprise(far), -np.log(0.02) + (far - limit) / excess)
    assert np.isfinite(Tail(np.ones(10)).surprise(np.array([0.0, 1.0, 9.0]))).all()

    numbers = ColumnTails(np.array([1.0, 2.0, 2.0, 5.0, 7.0]), False)
    expected = [2.0 * 0.5 / 6.0, 1.0, 2.0 * 1.5 / 6.0]
    np.testing.assert_allclose(numbers.surprise(np.array([0.0, 2.0, 7.0])), -np.log(expected))
    codes = ColumnTails(np.repeat([0.0, 1.0, 3.0], [6, 1, 3]), True)
    # Categories 2 and 4 did not occur; 1 is as rare as can be.
    expected = np.array([10.5, 1.5, 0.5, 4.5, 0.5]) / 11.0
    np.testing.assert_allclose(codes.surprise(np.arange(5.0)), -np.log(expected))


def test_rate_of_false_alarms():
    X = two_groups(60)
    model = DPMixture(likelihood=Gaussian(**PRIOR), **SHORT).fit(X)
    laws, rng = model._predictor.outliers.laws, np.random.default_rng(7)
    weights = np.exp(laws.log_weights)
    clusters = rng.choice(len(weights), 4000, p=weights / weights.sum())
    rows = fill(laws.laws, np.full((4000, 2), np.nan), clusters, rng)
    scores = model.outlier_scores(rows)
    # Errors of both simulations: 0.0055, 0.0018 and 0.0013.
    for rate, error in ((0.1, 0.02), (0.02, 0.007), (0.01, 0.005)):
        assert abs(np.mean(scores > -np.log(rate)) - rate) < error


@pytest.mark.parametrize("share", [0.3, 0.1])
def test_rate_of_false_alarms_in_discrete_columns(share):
    """Rows of the fit are a little more surprising than simulated rows with the same values."""
    X = (np.random.default_rng(0).random((100, 2)) < share) * 1.0
    model = DPMixture(likelihood=Bernoulli(), **SHORT).fit(X)
    rows, _ = model.sample(4000, random_state=7)
    assert np.mean(model.outlier_scores(rows) > -np.log(0.1)) < 0.12
    for scores in (model.outlier_scores(rows), model.outlier_scores_):
        assert np.mean(scores > -np.log(0.02)) < 0.02


@pytest.mark.parametrize("kind", ["gaussian", "product"])
def test_rows_that_depart_from_what_held_in_all_rows(kind):
    groups = two_groups()
    X = np.c_[groups, groups.sum(axis=1), np.full(40, 3.0), np.arange(40) % 2]
    rows = np.repeat(X[[3]], 5, axis=0)
    rows[1, 2] += 1.0
    rows[2, 3] = np.nan
    rows[3, 3], rows[3, 0] = 4.0, np.nan
    rows[4, 0] = np.nan
    parts = [("kind", Bernoulli(), [4]), ("size", Gaussian(), slice(4))]
    if kind == "gaussian":
        model = DPMixture(likelihood=Gaussian(), **SHORT).fit(X[:, :4])
        rows = rows[:, :4]
    else:
        model = DPMixture(likelihood=Product(parts), **SHORT).fit(X)
    with pytest.warns(UserWarning, match="followed from"):
        scores = model.outlier_scores(rows)
    assert np.isinf(scores).tolist() == [False, True, False, True, False]
    assert np.isfinite(model.outlier_scores_).all()


def test_columns_alone_and_together():
    """A row is an outlier for an extreme column, or for a combination of usual values."""
    rng = np.random.default_rng(0)
    z = rng.normal(size=(150, 1))
    X = z + 0.1 * rng.normal(size=(150, 6))
    model = DPMixture(likelihood=Gaussian(df=8.0, scale=0.1), **SHORT).fit(X)
    scores = model.outlier_scores([[0.0] * 6, [4.0] * 6, [1.5, -1.5] * 3])
    assert scores[0] < -np.log(0.1) and (scores[1:] > -np.log(0.01)).all()


def test_rows_with_gaps_can_be_compared():
    rng = np.random.default_rng(1)
    X = np.repeat([[0.0] * 4, [8.0] * 4], 40, axis=0) + rng.normal(size=(80, 4))
    model = DPMixture(likelihood=Gaussian(df=6.0, scale=1.0), **SHORT).fit(X)
    rows = np.repeat([[0.0] * 4, [8.0] * 4], 20, axis=0) + rng.normal(size=(40, 4))
    outliers = rng.uniform(-4.0, 13.0, size=(10, 4))
    table = np.r_[rows, outliers]
    table[::2, 1:3] = np.nan
    scores = model.outlier_scores(table)
    assert roc_auc_score(np.arange(50) >= 40, scores) > 0.95
    # Completions add the surprise of rows that are typical: no more, no less.
    assert np.median(scores[:40:2]) == pytest.approx(np.median(scores[1:40:2]), abs=0.5)
    assert np.isfinite(model.outlier_scores(np.full((1, 4), np.nan))).all()
    # Neither other rows nor their order matter.
    order = rng.permutation(50)
    np.testing.assert_allclose(model.outlier_scores(table[order]), scores[order], rtol=1e-9)
    np.testing.assert_allclose(model.outlier_scores(table[[4]]), scores[[4]], rtol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.outlier_scores(table), scores)


def test_the_clusters_of_a_row_with_gaps_are_weighed_once_for_all_completions(monkeypatch):
    X = two_groups()
    model = DPMixture(likelihood=Gaussian(**PRIOR), **SHORT).fit(X)
    laws, n_rows, weighed = model._predictor.outliers.laws, [], ConditionalLaws.weighed
    monkeypatch.setattr(
        laws, "weighed", lambda X, of: n_rows.append(len(X)) or weighed(laws, X, of)
    )
    X[:5, 1] = np.nan
    model.outlier_scores(X)
    assert n_rows == [5, 1, 1, 1, 1, 1]


def test_rows_of_the_fit_with_gaps():
    X = np.r_[two_groups(15), [[20.0, -20.0]], [[1.0, np.nan]]]
    model = DPMixture(likelihood=Gaussian(**PRIOR), **SHORT).fit(X)
    scores = model.outlier_scores_
    assert np.isfinite(scores).all() and scores.argmax() == 30
    again = pickle.loads(pickle.dumps(model))
    del vars(again)["outlier_scores_"]
    again.pointwise_log_likelihood(X)
    np.testing.assert_array_equal(again.outlier_scores_, scores)


@pytest.mark.parametrize("kind", ["binary", "counts", "mixed", "text", "noise"])
@pytest.mark.some(2)
def test_other_likelihoods(kind):
    rng = np.random.default_rng(0)
    which = np.repeat([0, 1], 30)
    binary = (rng.random((60, 8)) < np.where(which[:, None], 0.9, 0.1)) * 1.0
    codes = np.where(rng.random(60) < 0.1, rng.integers(3, size=60), which) * 1.0
    params = dict(SHORT)
    if kind == "binary":
        X, likelihood, odd = sp.csr_array(binary), Bernoulli(), sp.csr_array([[1.0, 0.0] * 4])
    elif kind == "counts":
        X, likelihood, odd = (
            rng.poisson(2.0 + 20.0 * which[:, None], (60, 2)) * 1.0,
            Poisson(),
            [[2, 40]],
        )
    elif kind == "mixed":
        X, odd = np.c_[which * 6.0 + rng.normal(size=60), codes], [[0.0, 2.0]]
        likelihood = Product(
            [("x", Gaussian(covariance_type="diag"), [0]), ("y", Categorical(), [1])]
        )
    elif kind == "noise":
        X, likelihood, odd = two_groups(30), Gaussian(**PRIOR), [[-9.0, 9.0]]
        params["noise"] = True
    else:
        model = DPMixture(likelihood=Multinomial(), **SHORT).fit(binary + 1.0)
        assert not hasattr(model, "outlier_scores")
        assert model.outlier_scores_.shape == (60,)
        return
    model = DPMixture(likelihood=likelihood, **params).fit(X)
    typical = np.median(model.outlier_scores(X))
    assert model.outlier_scores(odd)[0] > -np.log(0.1) > typical
    assert np.isfinite(model.outlier_scores_).all()
    assert np.median(model.outlier_scores_) == pytest.approx(typical, abs=0.3)


def test_exposures_are_refused():
    X, exposure = np.random.default_rng(0).poisson(3.0, (20, 2)) * 1.0, np.ones(20)
    model = DPMixture(likelihood=Poisson(), **SHORT).fit(X, exposure=exposure)
    with pytest.raises(ValueError, match="exposure=exposure"):
        model.outlier_scores(X)
    assert model.outlier_scores_.shape == (20,)
