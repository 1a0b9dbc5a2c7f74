"""Columns that other columns determine: the fit is that of the other columns."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_iris
from support.designs import combinations, everyday

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Categorical, Gaussian, Product

TYPES = ("full", "tied", "diag", "spherical")
FAST = {"n_chains": 2, "n_warmup": 8, "n_draws": 8, "random_state": 0, "n_jobs": 1}
X = load_iris().data[::2]


def fitted(rows, covariance_type, sampler="auto", likelihood=None):
    likelihood = likelihood or Gaussian(covariance_type=covariance_type)
    model = DPMixture(likelihood=likelihood, sampler=sampler, **FAST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows)


def with_constants(rows):
    return np.column_stack(
        [rows[:, :2], np.full(len(rows), 7.1), rows[:, 2:], np.zeros(len(rows))]
    )


def with_combinations(rows):
    return np.column_stack(
        [rows, rows @ [1.0, 2.0, -1.0, 0.5] + 3.0, 1e3 * rows[:, 0], 100.0 - rows.sum(axis=1)]
    )


def same(model, other, rows, wide):
    for name in ("label_samples_", "labels_", "n_clusters_samples_", "weights_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name))
    for name, draws in model.hyperparameter_samples_.items():
        np.testing.assert_array_equal(other.hyperparameter_samples_[name], draws)
    scores = model.score_samples(rows) + other.likelihood_.left_out.log_density(wide)
    np.testing.assert_array_equal(other.score_samples(wide), scores)
    np.testing.assert_array_equal(model.predict_proba(rows), other.predict_proba(wide))
    np.testing.assert_array_equal(model.sample(9)[1], other.sample(9)[1])


@combinations(sampler=["auto", "sub_cluster"], covariance_type=TYPES)
@pytest.mark.some(2)
@pytest.mark.long
def test_constants_change_no_bit(covariance_type, sampler):
    model = fitted(X, covariance_type, sampler)
    wide = with_constants(X)
    other = fitted(wide, covariance_type, sampler)
    same(model, other, X, wide)
    np.testing.assert_array_equal(other.sample(9)[0], with_constants(model.sample(9)[0]))
    params, wider = model.cluster_params_, other.cluster_params_
    np.testing.assert_allclose(wider["means"], with_constants(params["means"]))
    kept = [0, 1, 3, 4]
    if covariance_type in ("full", "tied"):
        np.testing.assert_array_equal(
            wider["covariances"][:, kept][:, :, kept], params["covariances"]
        )
        assert not wider["covariances"][:, [2, 5]].any()
    else:
        np.testing.assert_array_equal(wider["covariances"][:, kept], params["covariances"])
        assert not wider["covariances"][:, [2, 5]].any()
    again = pickle.loads(pickle.dumps(other))
    np.testing.assert_array_equal(again.predict(wide), other.predict(wide))


@pytest.mark.parametrize("covariance_type", everyday(["diag", "spherical"], "diag"))
@pytest.mark.long
def test_columns_without_entries_change_no_bit(covariance_type):
    model = fitted(X, covariance_type)
    wide = np.column_stack([X[:, :1], np.full(len(X), np.nan), X[:, 1:]])
    other = fitted(wide, covariance_type)
    same(model, other, X, wide)
    assert np.isnan(other.sample(5)[0][:, 1]).all()
    np.testing.assert_array_equal(other.score_samples(wide), model.score_samples(X))
    wide[:, 1] = 3.0
    np.testing.assert_array_equal(other.score_samples(wide), model.score_samples(X))


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-7, 1e-9, 0.0])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("draw", everyday(range(3), 0))
def test_smooth_curves_can_be_fitted(noise, dtype, draw):
    """Columns that others nearly determine, as in spectra: rounding must not grow from column to
    column."""
    shapes = np.exp(-((np.linspace(0, 1, 40) - np.linspace(0, 1, 6)[:, None]) ** 2) / 0.02)
    rng = np.random.default_rng(draw)
    X = (rng.normal(size=(60, 6)) + 5.0 * (np.arange(60) % 2)[:, None]) @ shapes
    X = (X + noise * rng.normal(size=X.shape)).astype(dtype)
    model = DPMixture(likelihood=Gaussian(), n_chains=1, n_warmup=5, n_draws=5, random_state=0)
    assert np.isfinite(model.fit(X).score_samples(X)).all()


def test_summaries_are_those_of_the_columns_alone():
    """Sums over a single column are rounded in another order."""
    x = np.random.default_rng(0).normal(size=(999, 1))
    expected = Gaussian().resolve(x)
    found = Gaussian().resolve(np.column_stack([np.ones(999), x]))
    for name in Gaussian().hyperparameters:
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.mark.parametrize("covariance_type", everyday(["full", "tied"], "full"))
@pytest.mark.long
def test_combinations_change_no_bit(covariance_type):
    model = fitted(X, covariance_type)
    wide = with_combinations(X)
    other = fitted(wide, covariance_type)
    same(model, other, X, wide)
    np.testing.assert_allclose(other.sample(9)[0], with_combinations(model.sample(9)[0]))
    params, wider = model.cluster_params_, other.cluster_params_
    np.testing.assert_allclose(wider["means"], with_combinations(params["means"]))
    slope = with_combinations(np.eye(4)).T - with_combinations(np.zeros((4, 4))).T
    np.testing.assert_allclose(
        wider["covariances"], slope @ params["covariances"] @ slope.T, rtol=1e-6, atol=1e-9
    )
    # A column of the posterior is that of the combination.
    stats = other._predictor.partition.stats
    mean, _, df, scale, _ = other.likelihood_.column_posterior(stats, 5)
    first = other.likelihood_.column_posterior(stats, 0)
    np.testing.assert_allclose([mean, scale, df], [1e3 * first[0], 1e6 * first[3], first[2]])
    constant = fitted(with_constants(X), covariance_type).likelihood_
    np.testing.assert_array_equal(constant.column_posterior(stats, 2)[0], 7.1)


@pytest.mark.slow
def test_parts_of_products_are_reduced():
    wide = with_constants(X)
    parts = [("a", Gaussian(), [0, 1, 2]), ("b", Gaussian(covariance_type="diag"), [3, 4, 5])]
    other = fitted(wide, None, likelihood=Product(parts))
    parts = [("a", Gaussian(), [0, 1]), ("b", Gaussian(covariance_type="diag"), [2, 3])]
    same(fitted(X, None, likelihood=Product(parts)), other, X, wide)


def test_columns_that_are_not_dependent_are_kept():
    rng = np.random.default_rng(0)
    wide = np.column_stack([X, X[:, 0] + 1e-4 * rng.normal(size=len(X))])
    few = rng.normal(size=(6, 8))  # any six rows lie in a hyperplane
    late = with_combinations(rng.normal(size=(5000, 4)))
    late[4500:] += rng.normal(size=(500, 7))  # after the head
    for rows in (wide, few, late):
        assert type(Gaussian().resolve(rows)) is Gaussian
    # A scale or df that is given applies to all columns.
    for given in ({"scale": 1.0}, {"df": 9.0}):
        assert type(Gaussian(**given).resolve(with_constants(X))) is Gaussian
    first = with_constants(X)[:1]
    model = DPMixture(likelihood=Gaussian(), sampler="smc", n_chains=5).partial_fit(first)
    assert type(model.likelihood_) is Gaussian


def test_dependence_is_found_in_merged_summaries():
    wide = with_combinations(X)
    likelihood = Gaussian()
    first, second = likelihood.summarise(wide[:20]), likelihood.summarise(wide[20:])
    found = likelihood.resolve_summary(likelihood.merge_summaries(first, second))
    np.testing.assert_array_equal(found.projection.columns, np.arange(4))
    np.testing.assert_allclose(found.projection.rebuild(X), wide)


def test_errors_name_columns_of_the_table():
    wide = with_constants(X)
    model = fitted(wide, "full")
    wide[3, 3] = 1e308
    model.likelihood_._origin = model.likelihood_._origin - 1.7e308
    with pytest.raises(ValueError, match="column 3 of X holds values too large"):
        model.likelihood_.encode_new(wide)


# Likelihoods of a fit as parameters.


@pytest.mark.slow
@pytest.mark.parametrize("covariance_type", everyday(TYPES, "full"))
def test_fitted_likelihoods_can_be_cloned_and_fitted(covariance_type):
    wide = with_constants(X)
    found = fitted(wide, covariance_type).likelihood_
    other = clone(found).set_params(**found.get_params())
    assert other.learned == ()
    one, two, three = (
        fitted(wide, None, likelihood=likelihood)
        for likelihood in (found, other, pickle.loads(pickle.dumps(other)))
    )
    plain = Gaussian(**{name: getattr(found, name) for name in Gaussian().get_params()})
    expected = fitted(X, None, likelihood=plain)
    for model in (one, two, three):
        same(expected, model, X, wide)
    again = clone(one).set_params(warm_start=True)
    np.testing.assert_array_equal(again.fit(wide).labels_, one.labels_)
    assert again.set_params(n_draws=30).fit(wide).draws_.n_draws == 30
    with pytest.raises(ValueError, match="needs X with 6 columns, got 4"):
        fitted(X, None, likelihood=found)
    with pytest.raises(ValueError, match="projection must be that of the likelihood_ of a fit"):
        fitted(wide, None, likelihood=clone(found).set_params(projection=None))
    assert "projection=Projection(columns=[0, 1, 3, 4], n_features=6)" in repr(found)


@pytest.mark.slow
def test_fitted_products_can_be_cloned_and_fitted():
    wide = with_constants(X)
    parts = [("a", Gaussian(), [0, 1, 2]), ("b", Gaussian(covariance_type="diag"), [3, 4, 5])]
    model = fitted(wide, None, likelihood=Product(parts))
    one, other = (
        fitted(wide, None, likelihood=likelihood)
        for likelihood in (model.likelihood_, clone(model.likelihood_))
    )
    np.testing.assert_array_equal(one.label_samples_, other.label_samples_)
    np.testing.assert_array_equal(one.score_samples(wide), other.score_samples(wide))


# Densities of all columns.


def errors_of(rows):
    """Standard deviations of the errors of columns."""
    spreads, sizes = rows.std(axis=0), np.abs(rows[0])
    return np.where(spreads > 0.0, 1e-5 * spreads, 1e-6 * np.where(sizes > 0.0, sizes, 1.0))


def log_law(white):
    """log density of residuals in units of their errors: normal, or after the 75 rows of X of
    which none departs, with the probability 1 / 77 as wide as the column."""
    far = stats.cauchy.logpdf(white, scale=1e5) - np.log(77.0)
    return np.logaddexp(stats.norm.logpdf(white) + np.log(76.0 / 77.0), far)


def test_density_of_columns_left_out_is_the_documented_one():
    wide = with_combinations(X)
    wide = np.column_stack([wide, np.full(len(X), -7.0), np.zeros(len(X))])
    likelihood = Gaussian().resolve(wide)
    slope = with_combinations(np.eye(4)) - with_combinations(np.zeros((4, 4)))
    weights = np.vstack([slope[:, 4:].T, np.zeros((2, 4))])
    error = errors_of(wide)
    scatter = np.diag(error[4:] ** 2) + weights @ np.diag(error[:4] ** 2) @ weights.T
    rng = np.random.default_rng(0)
    moved = wide + error * rng.normal(size=wide.shape) * np.resize([1.0, 30.0, 0.0], (75, 1))
    constant = with_combinations(np.zeros((1, 4)))[0, 4:]
    residuals = moved[:, 4:] - moved[:, :4] @ weights.T - [*constant, -7.0, 0.0]
    root = np.linalg.cholesky(scatter)
    expected = log_law(np.linalg.solve(root, residuals.T)).sum(axis=0)
    expected -= np.log(np.diagonal(root)).sum()
    found = likelihood.left_out.log_density(moved)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)
    # Bits depend on no other row, and huge departures have a finite density.
    assert likelihood.left_out.log_density(moved[7:8]) == found[7]
    assert np.isfinite(likelihood.left_out.log_density(wide[:2] + 1e300)).all()


@pytest.mark.parametrize("constant", [1e-320, 1e-300, 0.0, -1e300])
def test_constants_of_any_size_have_a_density(constant):
    likelihood = Gaussian().resolve(np.column_stack([X, np.full(len(X), constant)]))
    rows = np.column_stack([np.repeat(X[:1], 3, axis=0), [constant, constant * 1.1, 7.0]])
    found = likelihood.left_out.log_density(rows)
    assert np.isfinite(found).all()
    assert found[0] >= found[1]
    assert found[0] > found[2] + 12.0


def test_density_hardly_depends_on_the_columns_left_out():
    """Which columns are left out depends on their order. The densities of the independent
    columns differ by the Jacobian of the map between them, and so must the others."""
    wide = np.column_stack([X[:, :2], X[:, 0] + 2.0 * X[:, 1], 1e3 * X[:, 1]])
    order = [3, 2, 1, 0]
    one, other = Gaussian().resolve(wide), Gaussian().resolve(wide[:, order])
    assert one.projection.columns.tolist() == other.projection.columns.tolist() == [0, 1]
    # Residuals of several errors could be departures, column by column.
    rows = wide + 0.3 * errors_of(wide) * np.random.default_rng(0).normal(size=wide.shape)
    gap = other.left_out.log_density(rows[:, order]) - one.left_out.log_density(rows)
    jacobian = np.abs(np.linalg.det([[0.0, 1e3], [1.0, 2.0]]))
    np.testing.assert_allclose(gap, np.log(jacobian), atol=1e-6)


def test_missing_entries_of_constants_are_integrated_out():
    wide = with_constants(X)
    likelihood = Gaussian(covariance_type="diag").resolve(wide)
    hole, both = wide.copy(), wide.copy()
    hole[:, 2] = both[:, [2, 5]] = np.nan
    expected = log_law(0.0) - np.log(1e-6)
    np.testing.assert_allclose(likelihood.left_out.log_density(hole), expected)
    np.testing.assert_array_equal(likelihood.left_out.log_density(both), 0.0)


def test_rows_that_depart_are_reported_and_unlikely():
    wide = np.column_stack([with_constants(X), X[:, 0] + X[:, 1]])
    names = list("abcdefg")
    model = fitted(pd.DataFrame(wide, columns=names), "full")
    rows = wide[:6].copy()
    rows[2, 2] += 1.0  # the constant 7.1
    rows[3, 6] -= 0.1  # the sum
    before = model.score_samples(pd.DataFrame(wide[:6], columns=names))
    expected = model.predict_proba(pd.DataFrame(wide[:6], columns=names))
    message = r"^column 'c' of X had one value \(7.1\) and column 'g' of X followed from the other"
    table = pd.DataFrame(rows, columns=names)
    for method in (model.score_samples, model.predict, model.predict_proba):
        with pytest.warns(UserWarning, match=message):
            found = method(table)
    np.testing.assert_array_equal(found, expected)
    with pytest.warns(UserWarning, match=message):
        scores = model.score_samples(table)
    others = [0, 1, 4, 5]
    np.testing.assert_array_equal(scores[others], before[others])
    cost = before[[2, 3]] - scores[[2, 3]]
    assert (cost > 14.0).all() and (cost < 25.0).all()
    # Rounding to single precision is no departure.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rounded = model.score_samples(pd.DataFrame(wide[:6].astype(np.float32), columns=names))
    np.testing.assert_allclose(rounded, before, atol=0.1)
    # The likelihood of a fit, with other rows.
    table = pd.DataFrame(np.vstack([wide, rows]), columns=names)
    with pytest.warns(UserWarning, match=message):
        DPMixture(likelihood=model.likelihood_, **FAST).fit(table)


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_a_column_that_hardly_varies_decides_no_score(covariance_type):
    """Among the rows of the fit two columns are 0 but for two rows, where both are the same, and a
    third is constant. Their density at other rows is that of columns as wide."""
    wide = np.column_stack([X, np.zeros((len(X), 3))])
    wide[:2, 4] = wide[:2, 5] = [3.0, 4.0]
    model = fitted(wide, covariance_type)
    rows = wide[2:5].copy()
    rows[0, 4], rows[1, 5], rows[2, 6] = 5.0, 5.0, 5.0
    before = model.score_samples(wide[2:5])
    with pytest.warns(UserWarning, match="but not in all rows now"):
        cost = before - model.score_samples(rows)
    assert (cost > 10.0).all() and (cost < 60.0).all()


CONSTANTS = {
    **{kind: Gaussian(covariance_type=kind) for kind in (*TYPES, "sparse")},
    "tails": Gaussian(tails="t"),
}


@pytest.mark.parametrize("name", everyday(CONSTANTS, "full", "sparse"))
@pytest.mark.long
def test_constants_alone_have_the_same_density(name):
    """Without any other column, rows say nothing about clusters. With one Gaussian law of tiny
    variance, the cost of a departure grew with the number of rows, to 10,000 nats."""
    likelihood, n = CONSTANTS[name], len(X)
    constants, rows = (
        np.tile([7.1, 0.0], (n, 1)),
        np.array([[7.1, 0.0], [7.1, 1e-6], [8.1, -40.0]]),
    )
    error = np.array([7.1e-6, 1e-6])
    expected = (log_law((rows - [7.1, 0.0]) / error) - np.log(error)).sum(axis=1)
    with pytest.warns(UserWarning, match="the same in all rows. So no entry tells rows apart"):
        model = DPMixture(likelihood=likelihood, **FAST).fit(constants)
    assert not model.labels_.any()
    covariances = np.zeros((1, 2) if name in ("diag", "spherical") else (1, 2, 2))
    np.testing.assert_array_equal(model.cluster_params_["means"], constants[:1])
    np.testing.assert_array_equal(model.cluster_params_["covariances"], covariances)
    np.testing.assert_array_equal(model.sample(3)[0], constants[:3])
    parts = [("other", Gaussian(), [0, 1]), ("same", likelihood, [2, 3])]
    product = fitted(np.hstack([X[:, :2], constants]), None, likelihood=Product(parts))
    with pytest.warns(UserWarning, match="but not in all rows now"):
        np.testing.assert_allclose(model.score_samples(rows), expected, rtol=1e-7)
    with pytest.warns(UserWarning, match="but not in all rows now"):
        found = product.score_samples(np.hstack([np.tile(X[:1, :2], (3, 1)), rows]))
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-6)
    other = clone(model.likelihood_)
    again = fitted(constants, None, likelihood=other)
    np.testing.assert_array_equal(again.score_samples(constants), model.score_samples(constants))


def test_columns_that_may_be_selected_have_the_same_density():
    wide = np.column_stack([X[:, :2], np.full(len(X), 7.1)])
    parts = [("x", Gaussian(covariance_type="diag"), slice(3))]
    model = fitted(wide, None, likelihood=Product(parts, select=True))
    rows = wide[:2].copy()
    rows[1] = [*X[0, :2], 8.1]
    with pytest.warns(UserWarning, match="^column 2 of X (had one value|followed)"):
        near, far = model.score_samples(rows)
    assert far - near == pytest.approx(log_law(1.0 / 7.1e-6) - log_law(0.0), rel=1e-6)


def test_one_row_is_constant():
    model = fitted(X[:1], "full")
    assert not model.labels_.any()
    with pytest.warns(UserWarning, match="but not in all rows now"):
        assert model.score_samples(X[:1] + 1e3)[0] > -100.0


@pytest.mark.long
def test_parts_report_departures_by_their_columns():
    wide = np.column_stack([np.arange(len(X)) % 3, with_constants(X)])
    kinds = Categorical(n_categories=3)  # without a law of new ones
    parts = [("kind", kinds, [0]), ("size", Gaussian(), slice(1, None))]
    model = fitted(wide, None, likelihood=Product(parts))
    before = model.score_samples(wide)
    rows = wide.copy()
    rows[5, 3] = 7.0
    with pytest.warns(
        UserWarning, match=r"^column 3 of X had one value \(7.1\) in the rows of fit"
    ):
        scores = model.score_samples(rows)
    assert (scores != before).nonzero()[0].tolist() == [5]
    # Also given all other rows of the fit.
    found = model.pointwise_log_likelihood(wide)
    size = Product([("kind", kinds, [0]), ("size", Gaussian(), slice(1, None))])
    alone = fitted(wide[:, [0, 1, 2, 4, 5]], None, likelihood=size)
    left_out = model.likelihood_.left_out.log_density(wide)
    np.testing.assert_array_equal(
        found, alone.pointwise_log_likelihood(wide[:, [0, 1, 2, 4, 5]]) + left_out
    )


def test_parts_add_up_the_densities_of_columns_left_out():
    wide = with_constants(X)
    n = wide.shape[1]
    whole = Product([("one", Gaussian(), slice(n)), ("two", Gaussian(), slice(n, None))])
    rows = np.hstack([wide, 2.0 * wide])
    left_out = whole.resolve(rows).left_out
    one, two = (Gaussian().resolve(part).left_out for part in (wide, 2.0 * wide))
    assert (one.log_density(wide) != 0.0).all()
    expected = one.log_density(wide) + two.log_density(2.0 * wide)
    np.testing.assert_array_equal(left_out.log_density(rows), expected)
    rows[:, 0] = np.nan
    expected = one.log_density_known(rows[:, :n]) + two.log_density_known(rows[:, n:])
    np.testing.assert_array_equal(left_out.log_density_known(rows), expected)
    assert (
        Product([("kind", Categorical(n_categories=1), [0])]).resolve(rows[:, :1] * 0.0).left_out
        is None
    )


@pytest.mark.parametrize(
    ("offset", "n_rows"),
    everyday(
        [
            *((offset, 300) for offset in (0.0, 1e6, 1e9, 1e10, 1e11, -1e12)),
            (1e10, 300_000),
        ],
        *((0.0, 300), (1e10, 300), (-1e12, 300)),
        n_values=2,
    ),
)
def test_combinations_are_found_at_any_offset(offset, n_rows):
    """Up to the rounding of the entries, and that of means of many rows."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_rows, 3)) + offset
    wide = np.column_stack([rows, rows[:, 0] - rows[:, 1], 2.0 * rows[:, 0] + rows[:, 2]])
    likelihood = Gaussian().resolve(wide)
    assert likelihood.projection.columns.tolist() == [0, 1, 2]
    assert not likelihood.left_out.departs(wide).any()
    rounding = 2.0**-50 * abs(offset)
    np.testing.assert_allclose(
        likelihood.projection.rebuild(rows), wide, rtol=0.0, atol=1e-9 + 2.0 * rounding
    )
    # Columns that differ from a combination by much more than rounding are kept.
    noisy = wide.copy()
    noisy[:, 4] += max(1e-4, 1e3 * rounding) * rng.normal(size=n_rows)
    assert Gaussian().resolve(noisy).projection.left_out.tolist() == [3]
    departs = likelihood.left_out.departs(wide + [0, 0, 0, 1, 0])
    assert (departs == (likelihood.left_out.left_out == 3)).all()


@pytest.mark.parametrize("in_blocks", [False, True])
def test_columns_that_differ_from_others_in_far_entries_alone_are_kept(in_blocks):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(60, 2))
    wide = np.column_stack([rows, rows[:, 0], rows.sum(axis=1)])
    wide[7, 2] = 400.0
    likelihood = Gaussian()
    if in_blocks:
        parts = [likelihood.summarise(part) for part in np.array_split(wide, 2)]
        resolved = likelihood.resolve_summary(likelihood.merge_summaries(*parts))
    else:
        resolved = likelihood.resolve(wide)
    assert resolved.projection.left_out.tolist() == [3]
    assert not resolved.left_out.departs(wide).any()
    # A far row that follows is none of these.
    wide[7] = [400.0, 7.0, 400.0, 407.0]
    resolved = Gaussian().resolve(wide)
    assert resolved.projection.left_out.tolist() == [2, 3]


def test_rounding_determines_no_column():
    """A known combination would else determine each of its columns, also those that hardly count:
    guesses of these would be rounding errors divided by their weights."""
    rng = np.random.default_rng(0)
    flag = rng.random(2000) < 0.3
    rows = np.column_stack([flag, rng.normal(size=(2000, 2))])
    # The total is that of slightly different numbers.
    mean = np.float32(rows[:, 1:].sum(axis=1)) + 3e-7 * flag
    found = Gaussian().resolve(np.column_stack([rows, mean])).projection
    assert found.left_out.tolist() == [3]
    assert (found.weights[3] != 0.0).tolist() == [False, True, True]
    # Two columns are nearly the same, so their weights are known less well than to a tenth.
    rows = rng.normal(size=(48, 5))
    rows[:, 1] = rows[:, 0] + 2e-6 * rows[:, 1]
    fit = rows @ [0.1, 0.1, 1.0, 0.0, 0.0] + 3e-7 * rng.normal(size=48)
    found = Gaussian().resolve(np.column_stack([rows, fit])).projection
    assert found.left_out.tolist() == [5]
    assert (found.weights[5] != 0.0).tolist() == [True, True, True, False, False]
