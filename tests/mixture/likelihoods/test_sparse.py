"""Sparse covariances: which columns depend on which, and the law of a cluster. Samplers are tested
in test_covariances.py, and the laws that every kernel obeys for all examples of `Gaussian`."""

import numpy as np
import pytest
from reference.likelihoods import PARENTS, log_marginal_sparse
from reference.simulate import enumeration_case
from scipy import stats
from support.exactness import make_likelihood
from support.kernels import bind
from support.probes import Probe

from skdpm import DPMixture
from skdpm.hyperpriors import LKJ
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.likelihoods.gaussian.families import parents_of


def parents_in(likelihood):
    """Parents of the columns: dict in their order."""
    parents = likelihood.parents_
    return {int(d): [int(p) for p in parents[d] if p >= 0] for d in likelihood._order}


def wide_rows(n_rows=40, n_features=11):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, n_features)) @ rng.normal(size=(n_features, n_features))
    return X + 5.0 * (np.arange(n_rows) % 2)[:, None]


# Parents.


def test_the_case_of_the_enumeration_has_these_parents():
    X = enumeration_case("gaussian_sparse").X
    assert parents_in(make_likelihood("gaussian_sparse").resolve(X)) == PARENTS


def test_a_chain_of_columns_is_found():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 12))
    for d in range(1, 12):
        X[:, d] += 3.0 * X[:, d - 1]
    order = rng.permutation(12)
    # Two clusters whose centres are correlated otherwise.
    X[:300] += 200.0 * rng.normal(size=12)
    _, parents = parents_of(X[:, order], 1)
    pairs = {
        frozenset(order[[d, parent]]) for d, parent in enumerate(parents[:, 0]) if parent >= 0
    }
    assert pairs == {frozenset([d, d + 1]) for d in range(11)}


@pytest.mark.parametrize("change", ["rows", "columns", "units"])
def test_parents_do_not_depend_on_order_or_units(change):
    rng = np.random.default_rng(1)
    X = wide_rows()
    order, parents = parents_of(X, 3)
    if change == "rows":
        again = parents_of(X[rng.permutation(len(X))], 3)
        np.testing.assert_array_equal(again[1], parents)
    elif change == "units":
        again = parents_of(X * 10.0 ** rng.integers(-9, 9, 11) + 3.0, 3)
        np.testing.assert_array_equal(again[1], parents)
    else:
        by = rng.permutation(11)
        found_order, found = parents_of(X[:, by], 3)
        np.testing.assert_array_equal(by[found_order], order)
        found = np.where(found < 0, -1, by[found])
        np.testing.assert_array_equal(found, parents[by])


BITS = (np.random.default_rng(0).random((300, 4)) < 0.5) * 1.0
DEGENERATE = [np.ones((1, 3)), np.ones((7, 3)), np.eye(3), np.eye(4)[:, :1], BITS]


@pytest.mark.parametrize("X", DEGENERATE)
def test_parents_precede_their_columns_whatever_the_rows(X):
    order, parents = parents_of(X, 2)
    place = np.argsort(order)
    assert sorted(order) == list(range(X.shape[1]))
    for d, few in enumerate(parents):
        assert (place[few[few >= 0]] < place[d]).all()
        assert len(set(few[few >= 0])) == np.count_nonzero(few >= 0)
        assert np.count_nonzero(few >= 0) == min(2, place[d])


# The law of a cluster.


@pytest.mark.parametrize("n_parents", [1, 3, 12])
def test_marginals_are_those_of_regressions(n_parents):
    X = wide_rows()
    params = {"mean": 0.3, "mean_precision": 0.4, "df": 1.7, "scale": np.linspace(0.5, 3.0, 11)}
    likelihood = Gaussian(covariance_type="sparse", n_parents=n_parents, **params).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), 3)
    slot = probe.acquire()
    for n in range(25):
        reference = log_marginal_sparse(X[:n], *params.values(), parents_in(likelihood))
        assert probe.log_marginal(slot) == pytest.approx(reference, abs=1e-8)
        more = log_marginal_sparse(X[: n + 1], *params.values(), parents_in(likelihood))
        predictive = probe.log_predictive_many(np.array([slot]), n)[0]
        assert predictive == pytest.approx(more - reference, abs=1e-8)
        probe.add(slot, n)


def test_units_of_columns_change_densities_by_their_logarithms():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4)) @ rng.normal(size=(4, 4))
    params = {"mean": 0.0, "mean_precision": 0.4, "df": 1.7}
    found = []
    for units in (np.ones(4), np.array([1e80, 1e80, 1e-50, 1e-50])):
        likelihood = Gaussian(
            covariance_type="sparse", n_parents=2, scale=units**2, **params
        ).resolve(X * units)
        probe = Probe(bind(likelihood, likelihood.encode(X * units), 20), 2)
        slot = probe.acquire()
        for i in range(19):
            probe.add(slot, i)
        log_unit = np.log(units).sum()
        log_predictive = probe.log_predictive_many(np.array([slot]), 19)[0]
        found.append((probe.log_marginal(slot) + 19 * log_unit, log_predictive + log_unit))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_an_item_that_leaves_leaves_no_trace():
    X = wide_rows()
    X[10] = 1e9
    params = {"mean": 0.0, "mean_precision": 0.1, "df": 3.0, "scale": 1.0}
    assert_no_trace(Gaussian(covariance_type="sparse", **params).resolve(X), X, 10, 1e-7)


def assert_no_trace(likelihood, X, item, atol):
    """A cluster that an item has left is that of the others."""
    data = likelihood.encode(X)
    values = []
    for items in (range(len(X)), [i for i in range(len(X)) if i != item]):
        kernel = bind(likelihood, data, len(X))
        probe, labels = Probe(kernel, 2), np.full(len(X), -1, dtype=np.intp)
        kernel.bind_labels(labels)
        slot = probe.acquire()
        for i in items:
            probe.add(slot, i)
            labels[i] = slot
        if item in items:
            labels[item] = -1
            probe.remove(slot, item)
        values.append(probe.log_marginal(slot))
    assert values[0] == pytest.approx(values[1], abs=atol)


def fitted(**params):
    X = wide_rows(80, 5)
    likelihood = Gaussian(covariance_type="sparse", n_parents=2, **params)
    model = DPMixture(likelihood=likelihood, n_chains=1, n_warmup=20, n_draws=20, random_state=0)
    return model.fit(X), X


def test_means_and_covariances_are_those_of_drawn_clusters(seed_sequence):
    params = {"mean": 0.3, "mean_precision": 0.4, "df": 3.0, "scale": 2.0}
    X = wide_rows(30, 5)
    likelihood = Gaussian(covariance_type="sparse", n_parents=2, **params).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 30), 2)
    slot = probe.acquire()
    for i in range(30):
        probe.add(slot, i)
    stats_of = probe.model.dump([slot])
    found = likelihood.cluster_params(stats_of)
    rng = np.random.default_rng(seed_sequence)
    laws = likelihood.laws(np.tile(stats_of, (4000, 1)), rng)
    covariances = laws.root @ laws.root.swapaxes(1, 2)
    error = covariances.std(axis=0) / np.sqrt(4000)
    assert (np.abs(covariances.mean(axis=0) - found["covariances"][0]) < 5.0 * error).all()
    error = laws.loc.std(axis=0) / np.sqrt(4000)
    assert (np.abs(laws.loc.mean(axis=0) - found["means"][0]) < 5.0 * error).all()


def test_columns_that_nearly_determine_others_keep_their_covariances():
    rng = np.random.default_rng(0)
    shapes = np.exp(-((np.linspace(0, 1, 40) - np.linspace(0, 1, 6)[:, None]) ** 2) / 0.02)
    X = rng.normal(size=(300, 6)) @ shapes + 1e-5 * rng.normal(size=(300, 40))
    X += 5.0 * (np.arange(300) % 2)[:, None] * shapes.sum(axis=0)
    likelihood = Gaussian(covariance_type="sparse", n_parents=4)
    params = {"n_chains": 1, "n_warmup": 10, "n_draws": 5, "random_state": 0}
    model = DPMixture(likelihood=likelihood, **params).fit(X)
    for covariance in model.cluster_params_["covariances"]:
        spread = np.sqrt(np.diagonal(covariance))
        assert np.abs(covariance / spread / spread[:, None]).max() < 1.0 + 1e-9
    assert np.isfinite(model.outlier_scores(X)).all()


def test_laws_of_the_first_column_are_exact():
    """It has no parents. Laws of the others are close (see `Sparse.laws_given`)."""
    params = {"mean": 0.3, "mean_precision": 0.4, "df": 3.0, "scale": 2.0}
    X = wide_rows(30, 5)
    likelihood = Gaussian(covariance_type="sparse", n_parents=2, **params).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 30), 2)
    slot = probe.acquire()
    for i in range(20):
        probe.add(slot, i)
    first = likelihood._order[0]
    rows = np.full((10, 5), np.nan)
    rows[:, first] = X[20:, first]
    found = likelihood.laws(probe.model.dump([slot])).log_density(rows)[:, 0]

    def log_marginal(items):
        return log_marginal_sparse(X[items][:, [first]], *params.values(), {0: []})

    together = [log_marginal([*range(20), i]) for i in range(20, 30)]
    np.testing.assert_allclose(found, np.subtract(together, log_marginal([*range(20)])))


def test_an_item_that_stays_is_weighed_by_the_others():
    """Its removal is deferred, except that of row 30, which makes up nearly all of the scatter."""
    X = wide_rows(40, 5)
    X[30] *= 3e3
    params = {"mean": 0.3, "mean_precision": 0.4, "df": 1.7, "scale": 2.0}
    likelihood = Gaussian(covariance_type="sparse", n_parents=3, **params).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 40), 2)
    slot = probe.acquire()
    for i in range(40):
        probe.add(slot, i)
    everything = log_marginal_sparse(X, *params.values(), parents_in(likelihood))
    for i in (*range(40), 0):
        probe.remove(slot, i)
        others = log_marginal_sparse(
            np.delete(X, i, axis=0), *params.values(), parents_in(likelihood)
        )
        found = probe.log_predictive_many(np.array([slot]), i)[0]
        assert found == pytest.approx(everything - others, rel=1e-6), i
        probe.add(slot, i)


def derivatives(model, likelihood, flat, step=1e-4):
    """Of the log density of the mean precision, df and the scales, by their logarithms."""
    n_features, found = len(likelihood.mean), []
    stats = model.dump(range(3))
    for h in range(n_features, len(flat)):
        low = likelihood.learned_priors["df"].low if h == n_features + 1 else 0.0
        sides = []
        for by in (step, -step):
            moved = flat.copy()
            moved[h] = low + (flat[h] - low) * np.exp(by)
            r, df, *scale = moved[n_features:]
            values = {"mean_precision": r, "df": df, "scale": np.array(scale)}
            prior = likelihood.log_hyperprior({"mean": flat[:n_features], **values})
            model.set_hyperparameters(moved)
            sides.append(model.log_marginals(stats).sum() + prior + by)
        found.append((sides[0] - sides[1]) / (2.0 * step))
    model.set_hyperparameters(flat)
    return found


@pytest.mark.parametrize("n_parents", [1, 3])
@pytest.mark.long
def test_hyperparameters_are_drawn_given_all_others(n_parents, seed_sequence):
    """Derivatives of a log density have the mean 0 under it."""
    X = wide_rows(30, 5)
    likelihood = Gaussian(covariance_type="sparse", n_parents=n_parents).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), 30), 4)
    for k in range(3):
        assert probe.acquire() == k
    for i in range(30):
        probe.add(i % 3, i)
    rng = np.random.default_rng(seed_sequence)
    priors = {name: law for name, law in likelihood.learned_priors.items() if name != "mean"}
    assert np.isfinite(
        probe.model.resample_hyperparameters([], likelihood.learned_priors, rng.bit_generator)
    ).all()
    found = []
    for _ in range(300):
        for _ in range(3):  # derivatives take longer than draws
            flat = probe.model.resample_hyperparameters(range(3), priors, rng.bit_generator)
        found.append(derivatives(probe.model, likelihood, flat))
    means = np.reshape(found, (30, 10, -1)).mean(axis=1)
    error = means.std(axis=0) / np.sqrt(len(means))
    assert (np.abs(means.mean(axis=0)) < 5.0 * error).all(), means.mean(axis=0) / error


def test_a_given_scale_leaves_the_others_to_be_learned():
    model, _ = fitted(scale=1.0)
    assert np.ptp(model.hyperparameter_samples_["mean_precision"]) > 0.0
    np.testing.assert_array_equal(model.likelihood_.scale, np.ones(5))


def test_an_item_off_a_narrow_relation_leaves_no_trace():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(41, 2))
    X[:, 1] = X[:, 0] + 1e-7 * rng.normal(size=41)
    X[40, 1] += 1.0
    params = {"mean": 0.0, "mean_precision": 0.1, "df": 3.0, "scale": 4e-13}
    likelihood = Gaussian(covariance_type="sparse", **params).keeping_columns().resolve(X)
    assert_no_trace(likelihood, X, 40, 1e-3)


def test_rows_are_drawn_from_the_predictive_law(seed_sequence):
    """Of no cluster: given its parents a column is Student t, and their gaps widen its scale."""
    params = {"mean": 0.3, "mean_precision": 0.4, "df": 3.0, "scale": 2.0}
    X = wide_rows(30, 5)
    likelihood = Gaussian(covariance_type="sparse", n_parents=2, **params).resolve(X)
    empty = np.zeros((1, bind(likelihood, likelihood.encode(X), 30).n_stats))
    clusters = np.zeros(3000, np.intp)
    rows = likelihood.draw_rows(empty, clusters, 5, np.random.default_rng(seed_sequence))
    parents = parents_in(likelihood)
    for d, others in parents.items():
        wide = 1.0 + 1.0 / 0.4 + ((rows - 0.3)[:, others] ** 2 / 2.0).sum(axis=1)
        t = (rows[:, d] - 0.3) / np.sqrt(2.0 / 3.0 * wide)
        assert stats.kstest(t, stats.t(3.0).cdf).pvalue > 1e-4, d


# What users see.


def test_a_fit_answers_questions():
    model, X = fitted()
    assert model.n_clusters_ == 2
    assert model.likelihood_.parents_.shape == (5, 2)
    assert model.cluster_params_["covariances"].shape == (2, 5, 5)
    assert np.isfinite(model.outlier_scores(X)).all()
    assert model.sample(4, random_state=0)[0].shape == (4, 5)
    np.testing.assert_array_equal(model.predict(X), model.labels_)


def test_wrong_use_is_named():
    X = wide_rows()
    sparse = {"covariance_type": "sparse"}
    with pytest.raises(ValueError, match="n_parents"):
        Gaussian(n_parents=0, **sparse).resolve(X)
    with pytest.raises(ValueError, match="n_parents"):
        Gaussian(n_parents=17, **sparse).resolve(X)
    with pytest.raises(ValueError, match=r"scale must be a number or a vector"):
        Gaussian(scale=np.eye(11), **sparse).resolve(X)
    with pytest.raises(ValueError, match="tails must be None"):
        Gaussian(tails="t", **sparse).resolve(X)
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match=r'NaN.*use covariance_type="full" or "diag"'):
        DPMixture(likelihood=Gaussian(**sparse)).fit(X)
    with pytest.raises(ValueError, match="LKJ"):
        Gaussian(hyperpriors={"scale": LKJ()}, **sparse).resolve(wide_rows())
