"""`FeatureAllocation` as users meet it."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from reference.features import (
    log_beta_bernoulli,
    log_linear_gaussian,
)
from scipy.special import logsumexp
from scipy.stats import norm, poisson
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.designs import combinations
from support.examples import examples_of
from support.flips import check_flips

from skdpm import FeatureAllocation
from skdpm.chains import stream
from skdpm.features.likelihoods import LIKELIHOODS, LinearGaussian
from skdpm.features.likelihoods.base import FeatureLikelihood
from skdpm.features.samplers import (
    SAMPLERS,
    DiscreteParticleFilter,
    ElementGibbs,
    ParticleGibbs,
    RowGibbs,
)
from skdpm.papers.particle_gibbs import PaperParticleGibbs

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_warmup": 20, "n_draws": 10, "n_chains": 2, "random_state": 0}
TRUE_COMPONENTS = np.array(
    [[3.0, 0.0, 2.0, 0.0, 1.0], [0.0, 3.0, 2.0, 1.0, 0.0], [1.0, -2.0, 0.0, 3.0, 2.0]]
)


def make_data(n_samples=40, missing=0.1, seed=0):
    """X with missing entries, the same complete, and Z."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n_samples, 3)) < 0.4
    complete = Z @ TRUE_COMPONENTS + 0.2 * rng.normal(size=(n_samples, 5))
    return np.where(rng.random(complete.shape) < missing, np.nan, complete), complete, Z


@pytest.fixture(scope="module")
def fitted():
    X, _, _ = make_data()
    return FeatureAllocation(n_warmup=60, n_draws=20, n_chains=2, random_state=1).fit(X)


# With its defaults in test_sklearn.py.
@parametrize_with_checks([FeatureAllocation(n_warmup=5, n_draws=3, n_chains=1)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_registries_hold_snake_cases():
    for registry in (LIKELIHOODS, SAMPLERS):
        for name, cls in registry.items():
            assert name.replace("_", "") == cls.__name__.lower()


@pytest.mark.long
def test_finds_the_components(fitted):
    X, complete, _ = make_data()
    assert fitted.allocations_.dtype == bool
    assert fitted.allocations_.shape == (40, fitted.n_components_)
    assert fitted.components_.shape == (fitted.n_components_, 5)
    sums = fitted.allocations_.sum(axis=0)
    assert (np.diff(sums) <= 0).all() and (sums > 0).all()
    reconstructed = fitted.inverse_transform(fitted.allocations_)
    assert np.sqrt(np.mean((reconstructed - complete)[~np.isnan(X)] ** 2)) < 0.3
    missing = np.isnan(X)
    imputed = fitted.impute(X)
    np.testing.assert_array_equal(imputed[~missing], X[~missing])
    assert np.sqrt(np.mean((imputed - complete)[missing] ** 2)) < 0.6


@combinations(sampler=SAMPLERS, n_components=[None, 4])
@pytest.mark.some(2)
def test_protocol(sampler, n_components):
    X, _, _ = make_data()
    before = X.copy()
    model = FeatureAllocation(sampler=sampler, n_components=n_components, **FAST)
    for method in ("transform", "predict", "impute", "score_samples", "score"):
        with pytest.raises(NotFittedError):
            getattr(model, method)(X)
    assert model.fit(X) is model
    np.testing.assert_array_equal(X, before)
    K = model.n_components_
    assert model.n_iter_ == 30
    probabilities = model.transform(X)
    assert probabilities.shape == (40, K)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    predicted = model.predict(X)
    assert predicted.dtype == np.int64 and set(np.unique(predicted)) <= {0, 1}
    for name in ("log_joint", "n_components", "concentration"):
        assert getattr(model, f"{name}_samples_").shape == (2, 10)
    assert model.hyperparameter_samples_["noise_precision"].shape == (2, 10)
    for c in range(2):
        for s in range(10):
            Z = model.allocation_samples_[c][s]
            assert Z.shape == (40, model.n_components_samples_[c, s])
            assert Z.dtype == bool and Z.any(axis=0).all()
            assert model.component_samples_[c][s].shape == (Z.shape[1], 5)
    assert set(model.diagnostics_) == {
        "log_joint",
        "n_components",
        "concentration",
        "likelihood__noise_precision",
        "likelihood__component_precision",
    }
    assert len(model.get_feature_names_out()) == K
    if n_components is not None:
        assert model.n_components_samples_.max() <= n_components
    # Row by row: neither the other rows nor their order matter.
    for method in ("transform", "predict", "impute", "score_samples"):
        whole = getattr(model, method)(X)
        parts = [getattr(model, method)(X[i : i + 1]) for i in range(40)]
        # BLAS sums in another order where there is one row: `impute` may round differently.
        np.testing.assert_allclose(whole, np.concatenate(parts), rtol=1e-12 * (method == "impute"))


def test_log_joint_is_that_of_the_draw():
    X, _, _ = make_data()
    model = FeatureAllocation(n_components=3, **FAST, likelihood=LinearGaussian(intercept=False))
    model.fit(X)
    for s in range(10):
        Z, V = model.allocation_samples_[0][s], model.component_samples_[0][s]
        if Z.shape[1] < 3:
            continue  # features without rows are not public
        tau_x, tau_v = (
            model.hyperparameter_samples_["noise_precision"][0, s],
            model.hyperparameter_samples_["component_precision"][0, s],
        )
        expected = (
            log_beta_bernoulli(Z.astype(int), model.concentration_samples_[0, s])
            + log_linear_gaussian(X, Z, V, tau_x)
            + norm.logpdf(V, 0, 1 / np.sqrt(tau_v)).sum()
        )
        assert model.log_joint_samples_[0, s] == pytest.approx(expected, rel=1e-10)


def reference_law(x, model, c, s):
    """log p(x), and p(each feature | x), of one draw, by enumeration of Z and of the number of
    further features."""
    V, Z = model.component_samples_[c][s], model.allocation_samples_[c][s]
    tau_x = model.hyperparameter_samples_["noise_precision"][c, s]
    tau_v = model.hyperparameter_samples_["component_precision"][c, s]
    n, K = Z.shape
    rho = Z.sum(axis=0) / (n + 1)
    x = x - model.intercept_samples_[c, s]
    seen = ~np.isnan(x)
    rate = model.concentration_samples_[c, s] / (n + 1)
    m = np.arange(30)
    variance = 1 / tau_x + m / tau_v
    terms, values = [], []
    for bits in range(2**K):
        z = (bits >> np.arange(K)) & 1
        log_prior = np.log(np.where(z, rho, 1 - rho)).sum()
        square = ((x - z @ V)[seen] ** 2).sum()
        log_likelihood = -0.5 * (seen.sum() * np.log(2 * np.pi * variance) + square / variance)
        terms.append(log_prior + poisson.logpmf(m, rate) + log_likelihood)
        values.append(z)
    values = np.repeat(values, len(m), axis=0)
    terms = np.concatenate(terms)
    total = logsumexp(terms)
    return total, np.exp(terms - total) @ values.reshape(len(terms), K)


def test_score_and_impute_are_exact(fitted):
    rows = np.array(
        [
            [3.1, 0.2, 2.0, np.nan, 1.0],
            [0.0, 0.1, 0.0, 0.1, 0.0],
            [9.0, -9.0, 4.0, 2.0, 0.0],
            [np.nan, np.nan, np.nan, np.nan, 1.0],
            [np.nan] * 5,
        ]
    )
    log_density, means = [], []
    for x in rows:
        logs, expected = [], []
        for c in range(2):
            for s in range(20):
                total, probabilities = reference_law(x, fitted, c, s)
                logs.append(total)
                V = fitted.component_samples_[c][s]
                expected.append(probabilities @ V + fitted.intercept_samples_[c, s])
        log_density.append(logsumexp(logs) - np.log(40))
        means.append(np.exp(np.array(logs) - logsumexp(logs)) @ np.array(expected))
    np.testing.assert_allclose(fitted.score_samples(rows), log_density, rtol=1e-9, atol=1e-9)
    missing = np.isnan(rows)
    np.testing.assert_allclose(fitted.impute(rows)[missing], np.array(means)[missing], rtol=1e-8)
    assert fitted.exact_
    assert fitted.score(rows) == pytest.approx(np.mean(log_density))


@pytest.mark.parametrize("n_components", [None, 6])
def test_density_integrates_to_one(n_components):
    X = np.array([[0.0], [0.1], [2.0], [2.1], [0.05], [4.0]])
    model = FeatureAllocation(
        n_components=n_components, n_warmup=30, n_draws=5, n_chains=1, random_state=0
    ).fit(X)
    grid = np.linspace(-60, 60, 24_001)[:, None]
    density = np.exp(model.score_samples(grid))
    assert density.sum() * (grid[1, 0] - grid[0, 0]) == pytest.approx(1, abs=2e-3)


def test_many_features_give_a_bound_near_the_truth():
    """Beyond 15 features the sum is cut: where a row's features are plain, little is lost."""
    rng = np.random.default_rng(0)
    K = 24
    Z = rng.random((120, K)) < 0.15
    V = 5 * np.eye(K)
    X = Z @ V + 0.3 * rng.normal(size=(120, K))
    model = FeatureAllocation(
        likelihood=LinearGaussian(intercept=False),
        n_warmup=5,
        n_draws=2,
        n_chains=1,
        random_state=0,
        init=Z,
    ).fit(X)
    assert not model.exact_
    assert model.n_components_ >= K
    assert np.mean(model.predict(X) != model.allocations_) < 0.01
    assert np.isfinite(model.score_samples(X)).all()


@pytest.mark.slow
def test_warm_start_continues_to_the_bit():
    X, _, _ = make_data()
    for sampler in (DiscreteParticleFilter(5), ParticleGibbs.from_paper("two_stage"), RowGibbs()):
        params = {"sampler": sampler, "n_chains": 2, "n_warmup": 10, "random_state": 3}
        whole = FeatureAllocation(n_draws=20, **params).fit(X)
        parts = FeatureAllocation(n_draws=7, warm_start=True, **params).fit(X)
        parts = pickle.loads(pickle.dumps(parts))
        parts.set_params(n_draws=20).fit(X)
        np.testing.assert_array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
        for c in range(2):
            for a, b in zip(
                whole.allocation_samples_[c], parts.allocation_samples_[c], strict=True
            ):
                np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(whole.components_, parts.components_)
        with pytest.raises(ValueError, match="but concentration changed"):
            parts.set_params(concentration=1.0, n_draws=30).fit(X)


def test_threads_do_not_show():
    X, _, _ = make_data()
    one = FeatureAllocation(n_jobs=1, **FAST).fit(X)
    two = FeatureAllocation(n_jobs=2, **FAST).fit(X)
    np.testing.assert_array_equal(one.log_joint_samples_, two.log_joint_samples_)


def test_interruption_keeps_the_draws(monkeypatch):
    import signal

    from skdpm.features.chains.program import FeatureChain

    X, _, _ = make_data()
    keep = FeatureChain.keep
    calls = []

    def keep_and_interrupt(self, *args):
        calls.append(1)
        if len(calls) == 6:
            signal.raise_signal(signal.SIGINT)
        return keep(self, *args)

    monkeypatch.setattr(FeatureChain, "keep", keep_and_interrupt)
    model = FeatureAllocation(n_warmup=5, n_draws=50, n_chains=1, random_state=0)
    with pytest.warns(RuntimeWarning, match="interrupted after 6 of 50"):
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
    assert model.log_joint_samples_.shape == (1, 6)
    assert model.transform(X).shape == (40, model.n_components_)


@pytest.mark.parametrize("n_components", [None, 3])
@pytest.mark.parametrize(
    "X",
    [
        np.zeros((5, 2)),
        np.full((4, 1), 7.0),
        np.array([[1.0, 2.0]]),
        np.array([[np.nan, np.nan], [1.0, 2.0], [3.0, np.nan]]),
        np.array([[np.nan, 1.0], [np.nan, 2.0], [np.nan, 4.0]]),
        1e6 + np.arange(12.0).reshape(6, 2),
        1e-6 * np.arange(12.0).reshape(6, 2),
    ],
    ids=["zeros", "constant", "one row", "empty row", "empty column", "shifted", "tiny"],
)
@pytest.mark.some(4)
def test_odd_data(X, n_components):
    model = FeatureAllocation(n_components=n_components, **FAST).fit(X)
    assert np.isfinite(model.log_joint_samples_).all()
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.impute(X)).all()
    assert model.transform(X).shape == (len(X), model.n_components_)


@pytest.mark.parametrize("n_components", [None, 3])
def test_chains_start_where_init_says(n_components):
    """Two equal components, each used by half of the rows: no row can leave that by itself."""
    Z = np.zeros((40, 2))
    Z[:20, 1] = Z[20:, 0] = 1
    model = FeatureAllocation(
        likelihood=LinearGaussian(25.0, component_precision=1e-4, intercept=False),
        n_components=n_components,
        sampler=ElementGibbs(column_moves=0),
        init=Z,
        **FAST,
    ).fit(np.full((40, 1), 100.0))
    for c in range(2):
        for s in range(10):
            np.testing.assert_array_equal(model.allocation_samples_[c][s][:, :2], Z)
            assert abs(model.component_samples_[c][s][:2] - 100).max() < 1


@pytest.mark.parametrize("n_components", [None, 5])
def test_initial_allocations(n_components):
    def start(init):
        X = np.zeros((40, 2))
        model = FeatureAllocation(init=init, n_components=n_components, **FAST)
        program = model._program(X, LinearGaussian(), ElementGibbs())
        return program, program.resume(program.chain(7, 1)).state.allocations()

    K = 0 if n_components is None else 5
    Z = np.eye(40, 4)
    Z[:, 2] = 0  # a feature of no row is none under the Indian buffet process
    expected = Z[:, [0, 1, 3]] if n_components is None else np.pad(Z, ((0, 0), (0, 1)))
    np.testing.assert_array_equal(start(Z)[1], expected)
    np.testing.assert_array_equal(start("empty")[1], np.zeros((40, K)))
    program, drawn = start("prior")
    rng = np.random.Generator(stream(7, 1))
    np.testing.assert_array_equal(drawn, program.make_prior(1.0).draw(rng))
    assert drawn.any()


class Opaque(LinearGaussian):
    """As a model would be whose rows hold more than what their features say."""

    reconstruct = FeatureLikelihood.reconstruct


def test_rows_without_an_expectation_cannot_be_imputed():
    X, _, _ = make_data()
    model = FeatureAllocation(likelihood=Opaque(), **FAST).fit(X)
    for name in ("impute", "inverse_transform"):
        assert hasattr(FeatureAllocation(), name)
        with pytest.raises(AttributeError, match=name):
            getattr(model, name)
    assert np.isfinite(model.score(X))


class Sparse(LinearGaussian):
    """As a model of networks would be, which come as sparse matrices."""

    accept_sparse = True

    def resolve(self, X):
        return super().resolve(X.toarray())

    def encode(self, X):
        return super().encode(X.toarray())


def test_sparse_rows():
    X = np.nan_to_num(make_data()[0])
    dense, sparse = (
        FeatureAllocation(**FAST).fit(X),
        FeatureAllocation(likelihood=Sparse(), **FAST),
    )
    assert sparse.__sklearn_tags__().input_tags.sparse
    sparse.fit(scipy.sparse.csr_array(X))
    np.testing.assert_array_equal(dense.log_joint_samples_, sparse.log_joint_samples_)
    for method in ("transform", "predict", "impute", "score_samples"):
        expected = getattr(dense, method)(X)
        np.testing.assert_array_equal(getattr(sparse, method)(scipy.sparse.csr_array(X)), expected)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        dense.transform(scipy.sparse.csr_array(X))


class Inflexible(LinearGaussian):
    """As a model would be whose features share something, so that none can be added."""

    def check_prior(self, prior):
        if prior.grows:
            name = type(prior).__name__
            raise ValueError(f"Inflexible cannot add features, as {name} does: give n_components")


def test_a_likelihood_can_refuse_a_prior(monkeypatch):
    X, _, _ = make_data()
    monkeypatch.setattr(Inflexible, "resolve", None)  # nothing is computed before
    with pytest.raises(ValueError, match="Inflexible cannot add features, as IndianBuffetPrior"):
        FeatureAllocation(likelihood=Inflexible(), **FAST).fit(X)
    monkeypatch.undo()
    assert (
        FeatureAllocation(likelihood=Inflexible(), n_components=3, **FAST).fit(X).n_components_
        <= 3
    )


@pytest.mark.parametrize(
    "params, message",
    [
        ({"n_components": 0}, "n_components must be at least 1"),
        ({"n_components": 2.5}, "n_components must be an integer"),
        ({"sampler": "gibs"}, "sampler must be .* discrete_particle_filter, element_gibbs"),
        ({"likelihood": "gaussian"}, "likelihood must be .* linear_gaussian"),
        ({"concentration": 0.0}, "concentration must be finite and > 0"),
        ({"concentration_prior": (1.0,)}, "concentration_prior must be a pair"),
        ({"init": "random"}, "init must be one of auto, empty, prior"),
        ({"init": np.zeros((3, 2))}, "binary matrix with 40 rows"),
        ({"init": np.full((40, 2), 2)}, "init must be binary"),
        ({"init": np.ones((40, 3)), "n_components": 2}, "init has 3 features"),
        ({"n_draws": 0}, "n_draws must be at least 1"),
        ({"sampler": ParticleGibbs(1)}, "ParticleGibbs.n_particles must be at least 2"),
        ({"sampler": ParticleGibbs(resample_threshold=1.5)}, "resample_threshold must be at most"),
        ({"sampler": PaperParticleGibbs(test_path="x")}, "ParticleGibbs.test_path must be one of"),
        ({"sampler": DiscreteParticleFilter(annealing_power=-1)}, "annealing_power must be"),
        ({"sampler": RowGibbs(0)}, "RowGibbs.max_components must be at least 1"),
        ({"likelihood": LinearGaussian(noise_precision=-1)}, "noise_precision must be"),
        ({"likelihood": LinearGaussian(component_precision_prior=1)}, "must be a pair"),
        ({"likelihood": LinearGaussian(intercept=1)}, "intercept must be a bool"),
    ],
)
def test_bad_parameters(params, message):
    X, _, _ = make_data()
    with pytest.raises(ValueError, match=message):
        FeatureAllocation(**{**FAST, **params}).fit(X)


def test_bad_data():
    X, _, _ = make_data()
    with pytest.raises(ValueError, match="infinity in column 2"):
        FeatureAllocation(**FAST).fit(np.where(np.arange(5) == 2, np.inf, X))
    model = FeatureAllocation(**FAST).fit(X)
    with pytest.raises(ValueError, match="features"):
        model.inverse_transform(np.zeros((2, model.n_components_ + 1)))


def test_row_gibbs_refuses_many_features():
    X, _, _ = make_data()
    model = FeatureAllocation(n_components=8, sampler=RowGibbs(max_components=4), **FAST)
    with pytest.raises(ValueError, match="max_components=4; choose DiscreteParticleFilter"):
        model.fit(X)


@pytest.mark.slow
def test_pipelines_and_searches():
    X, complete, _ = make_data()
    search = GridSearchCV(
        FeatureAllocation(sampler=DiscreteParticleFilter(), **FAST),
        {"sampler__n_particles": [2, 8]},
        cv=2,
    ).fit(X)
    assert np.isfinite(search.best_score_)
    names = list("abcde")
    pipeline = make_pipeline(StandardScaler(), FeatureAllocation(**FAST))
    pipeline.set_output(transform="pandas")
    frame = pipeline.fit_transform(pd.DataFrame(complete, columns=names))
    assert list(frame.columns) == list(pipeline[-1].get_feature_names_out())
    assert pipeline[-1].n_features_in_ == 5
    with pytest.raises(ValueError, match="means an object with"):
        FeatureAllocation().set_params(sampler__n_particles=3)
    assert clone(search.best_estimator_).get_params()["sampler__n_particles"] in (2, 8)


@pytest.mark.parametrize("init", ["auto", "none"])
def test_tables_come_back_as_tables(init):
    """As set_output says, with the names and the index of the rows; without any feature too."""
    X, _, _ = make_data()
    frame = pd.DataFrame(X, columns=list("abcde"), index=np.arange(len(X)) + 100)
    params = FAST
    if init == "none":
        params = {**FAST, "init": "empty", "concentration": 1e-9, "n_warmup": 0, "n_draws": 1}
    model = FeatureAllocation(**params).set_output(transform="pandas").fit(frame)
    assert (model.n_components_ == 0) == (init == "none")
    Z = model.transform(frame)
    assert Z.shape == (len(X), model.n_components_)
    again = model.inverse_transform(Z)
    imputed = model.impute(frame)
    for table in (again, imputed):
        assert list(table.columns) == list("abcde") and table.index.equals(frame.index)
    assert Z.index.equals(frame.index)
    model.set_output(transform="default")
    np.testing.assert_array_equal(again, model.inverse_transform(Z))
    np.testing.assert_array_equal(imputed, model.impute(frame))
    assert isinstance(model.impute(frame), np.ndarray)
    unnamed = FeatureAllocation(**params).set_output(transform="pandas").fit(X)
    assert list(unnamed.impute(X).columns) == ["x0", "x1", "x2", "x3", "x4"]


def test_no_feature_warns():
    X, _, _ = make_data()
    model = FeatureAllocation(**{**FAST, "n_draws": 1, "n_warmup": 0}, concentration=1e-9)
    with pytest.warns(ConvergenceWarning, match=r"no feature was found: .*noise_precision") as r:
        model.set_params(init="empty").fit(X)
    assert r[0].filename == __file__ and 'init="auto"' in str(r[0].message)


def test_chains_that_disagree_warn():
    X, _, _ = make_data()
    with pytest.warns(ConvergenceWarning, match="have not mixed"):
        FeatureAllocation(sampler=ElementGibbs(), n_warmup=0, n_draws=10, random_state=0).fit(X)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_laws_of_likelihoods(name):
    for likelihood, X in examples_of(LIKELIHOODS[name]):
        check_flips(likelihood, X)


@pytest.mark.parametrize("first", ["lfrm", LinearGaussian()])
def test_a_likelihood_is_no_number_of_components(first):
    with pytest.raises(ValueError, match=r"FeatureAllocation\(likelihood=...\)"):
        FeatureAllocation(first).fit(np.eye(3))
