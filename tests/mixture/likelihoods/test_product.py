"""Columns in parts: what `Product` adds to its parts.

The laws of its kernels are tested with those of the others (test_laws.py, test_hyperparameters.py,
test_batches.py, test_parametric.py); tables that are no arrays of numbers in test_tables.py.
"""

import pickle
from functools import partial

import numpy as np
import pytest
from reference.likelihoods import log_marginal_product, log_posterior
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from support.designs import everyday
from support.exactness import BlockRuns, convergence_run, invariance_run, make_prior, make_state
from support.kernels import bind
from support.probes import Probe, log_predictive_bounds, log_predictive_floors
from support.pvalues import assert_p_matrix

from skdpm import DPMixture
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.program import open_rows
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Grid,
    Multinomial,
    NegativeBinomial,
    Poisson,
    Product,
    Relational,
)
from skdpm.mixture.samplers import PGSM, SAMS, SMC, Gibbs, SplitMerge
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAN = np.nan
FAST = {"n_warmup": 5, "n_draws": 6, "n_chains": 2, "random_state": 0}

# Five rows whose posterior is neither flat nor concentrated: every part says something.
X_FEW = np.array(
    [
        [1.1, 2, 4, NAN, 7.0],
        [NAN, 0, 1, 0, 7.0],
        [-0.4, 0, NAN, 0, 7.0],
        [0.9, NAN, 5, 1, 7.0],
        [-0.1, 2, 2, 1, 7.0],
    ]
)
NORMAL = {
    "mean": 0.3,
    "mean_precision": 0.6,
    "df": 3.5,
    "scale": 0.9,
    "covariance_type": "diag",
}
CATEGORIES = {"concentration": 0.7, "n_categories": 3}
RATES = {"shape": 1.5, "rate": 0.4}
FLAGS = {"a": 0.6, "b": 1.4}
FEW = Product(
    [
        ("flags", Bernoulli(**FLAGS), [3]),
        ("cat", Categorical(**CATEGORIES), [1]),
        ("num", Gaussian(**NORMAL), [0]),
        ("counts", Poisson(**RATES), [2]),
    ]
)
FEW_REFERENCE = [
    ("bernoulli", [3], FLAGS),
    ("categorical", [1], CATEGORIES),
    ("gaussian", [0], NORMAL),
    ("poisson", [2], RATES),
]
PRIOR = {"concentration": 1.3}


def posterior(parts=FEW_REFERENCE):
    return log_posterior(
        X_FEW,
        partial(log_marginal_product, parts=parts),
        "dp",
        likelihood_params={},
        prior_params=PRIOR,
    )


def three_kinds(n=90, seed=0):
    """Rows of three clusters: two columns of numbers, two of codes, one of counts."""
    rng = np.random.default_rng(seed)
    z = rng.integers(3, size=n)
    X = np.column_stack(
        [
            rng.normal(size=(n, 2)) + 3.0 * z[:, None],
            (z[:, None] + (rng.random((n, 2)) < 0.2)) % 3,
            rng.poisson(1.0 + 6.0 * z),
        ]
    )
    return X.astype(np.float64), z


KINDS = Product(
    [
        ("num", Gaussian(covariance_type="diag"), slice(2)),
        ("cat", Categorical(), [2, 3]),
        ("counts", Poisson(), [-1]),
    ]
)


# Laws.


def test_samplers_against_the_enumerated_posterior(seed_sequence):
    law = posterior()
    assert 0.05 < law.probabilities.max() < 0.6
    prior = make_prior("dp", len(X_FEW), **PRIOR)
    runs = {}
    samplers = (
        Gibbs(),
        PGSM(n_particles=3, gibbs_sweeps=0),
        SAMS(gibbs_sweeps=0),
        SplitMerge(gibbs_sweeps=0),
    )
    for sampler in samplers:
        state = make_state(FEW, X_FEW, prior)
        runs[repr(sampler)] = invariance_run(state, sampler.kernel(), law, n_starts=4000)
    state = make_state(FEW, X_FEW, prior)
    runs["from one cluster"] = convergence_run(
        state, Gibbs().kernel(), law, np.zeros(5, np.int64), n_chains=1500, n_iterations=15
    )
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_blocks_against_the_enumerated_posterior(seed_sequence):
    prior = make_prior("dp", len(X_FEW), **PRIOR)
    kernel = SubClusterKernel(random_moves=RandomMoves(), sub_splits=False)
    runs = BlockRuns(FEW, X_FEW, prior, kernel, open_rows(X_FEW, 2))
    run = invariance_run(runs, runs, posterior(), n_starts=1000)
    assert_p_matrix({"blocks": run}, seed_sequence=seed_sequence)


def test_every_part_is_seen():
    """Each part moves the posterior by more than those tests could overlook."""
    law = posterior()
    for p in range(len(FEW_REFERENCE)):
        other = posterior([part for q, part in enumerate(FEW_REFERENCE) if q != p])
        assert np.abs(law.probabilities - other.probabilities).sum() > 0.1


def test_densities_are_sums_of_those_of_the_parts():
    """With more clusters than are asked for at a time."""
    X, _ = three_kinds()
    X[::7, 0] = X[3::7, 3] = X[5::9, 4] = NAN
    labels = np.arange(len(X)) % 40
    likelihood = KINDS.resolve(X)
    state = make_state(likelihood, X, make_prior("dp", len(X), **PRIOR), labels)
    rows = Probe(bind(likelihood, likelihood.encode_new(X), len(X)), 41).model
    rows.load(state.dump())
    slots = np.arange(41)
    total = alone = merged = tiles = 0.0
    for _, part, where in likelihood.parts:
        own = X[:, where]
        state_of_part = make_state(part, own, make_prior("dp", len(X), **PRIOR), labels)
        model = bind(part, part.encode_new(own), len(X))
        model.load(state_of_part.dump())
        tiles = tiles + model.log_predictive_rows(slots, 0, len(X))
        alone = alone + model.log_marginals(state_of_part.dump())
        probe = Probe(bind(part, part.encode(own), len(X)), 45)
        probe.model.load(state_of_part.dump(), slots, [44, 43, 42, 41])
        total = total + probe.log_predictive_many(slots, 7)
        merged = merged + probe.log_merge_many(slots[1:40], 0)
    np.testing.assert_allclose(rows.log_predictive_rows(slots, 0, len(X)), tiles, rtol=1e-12)
    np.testing.assert_allclose(rows.log_marginals(state.dump()), alone, rtol=1e-12)
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), 45)
    probe.model.load(state.dump(), slots, [44, 43, 42, 41])
    np.testing.assert_allclose(probe.log_predictive_many(slots, 7), total, rtol=1e-12)
    np.testing.assert_allclose(probe.log_merge_many(slots[1:40], 0), merged, rtol=1e-9, atol=1e-9)


def test_a_missing_entry_matters_to_its_part_alone():
    X, _ = three_kinds()
    likelihood = KINDS.resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    state = make_state(likelihood, X, make_prior("dp", len(X), **PRIOR), np.arange(len(X)) % 2)
    for hole, (_, part, where) in zip((0, 2, 4), likelihood.parts, strict=True):
        Y = X[:3].copy()
        Y[1, hole] = NAN
        own = []
        for rows, one in ((X[:3], likelihood), (Y, likelihood)):
            model = bind(one, one.encode_new(rows), None)
            model.load(state.dump())
            own.append(model.log_predictive_rows([0, 1], 0, 3))
        parts = []
        dumped = make_state(
            part, X[:, where], make_prior("dp", len(X), **PRIOR), np.arange(len(X)) % 2
        ).dump()
        for rows in (X[:3, where], Y[:, where]):
            model = bind(part, part.encode_new(rows), None)
            model.load(dumped)
            parts.append(model.log_predictive_rows([0, 1], 0, 3))
        np.testing.assert_allclose(own[1] - own[0], parts[1] - parts[0], atol=1e-12)


def test_bounds_hold_and_spare_clusters():
    """Over boxes of the parts that have some; a part of probabilities adds at most 0."""
    X, z = three_kinds(200)
    likelihood = KINDS.resolve(X)
    data = likelihood.encode(X)
    points = likelihood.box_points(data)
    assert points.shape == (200, 3)
    state = make_state(likelihood, X, make_prior("dp", len(X), **PRIOR), z)
    model = bind(likelihood, data, len(X))
    model.load(state.dump())
    rng = np.random.default_rng(0)
    for _ in range(20):
        centre = points[rng.integers(200)]
        inside = np.flatnonzero((np.abs(points - centre) <= 0.7).all(axis=1))
        box = np.array([[centre, np.full(3, 0.7)]])
        upper = log_predictive_bounds(model, [0, 1, 2], box)[0]
        for i in inside:
            exact = model.log_predictive_rows([0, 1, 2], i, i + 1)[:, 0]
            assert (exact <= upper).all()
        assert upper.min() < upper.max() - 3.0
    holes = X.copy()
    holes[0, 0] = NAN  # densities without a box have no bound
    assert likelihood.box_points(likelihood.encode(holes)) is None
    holes = X.copy()
    holes[0, 4] = NAN
    assert likelihood.box_points(likelihood.encode(holes)).shape == (200, 2)


@pytest.mark.parametrize("hole", [None, 2], ids=["many columns", "a missing count"])
def test_floors_hold_where_a_part_has_no_box(hole):
    """Of rows without themselves. The kernel of counts has floors, but of its own boxes."""
    rng = np.random.default_rng(0)
    z = np.arange(30) % 2
    X = np.column_stack([rng.normal(size=30) + 5 * z, rng.poisson(1 + 3 * z, size=(13, 30)).T])
    if hole is not None:
        X = X[:, :4]
        X[0, hole] = NAN
    where = list(range(1, X.shape[1]))
    counts = NegativeBinomial(**RATES, dispersion=0.5)
    likelihood = Product([("num", Gaussian(**NORMAL), [0]), ("counts", counts, where)])
    likelihood = likelihood.resolve(X)
    data = likelihood.encode(X)
    points = likelihood.box_points(data)
    assert points.shape == (30, 1)
    slots = Probe(bind(likelihood, data, len(X)), 2)
    slots.acquire()
    rest = slots.acquire()
    model = bind(likelihood, data, len(X))
    model.load(make_state(likelihood, X, make_prior("dp", len(X), **PRIOR), z).dump())
    floors = log_predictive_floors(model, [0, 1], np.stack([points, 0.0 * points], axis=1))
    for i in range(1, 30):
        slots.rebuild(rest, np.flatnonzero((z == z[i]) & (np.arange(30) != i)))
        assert floors[i, z[i]] <= slots.log_predictive(rest, i)


# Parameters.


def test_nested_parameters():
    product = clone(KINDS)
    assert product.get_params()["num__covariance_type"] == "diag"
    product.set_params(num__df=4.0, counts=Poisson(rate=2.0))
    assert product.parts[0][1].df == 4.0
    assert product.get_params()["counts__rate"] == 2.0
    mixture = DPMixture(likelihood=product).set_params(likelihood__cat__concentration=0.5)
    assert mixture.get_params()["likelihood__cat__concentration"] == 0.5
    assert KINDS.parts[0][1].df is None
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        product.set_params(colour=1)
    named = Product([("num", "gaussian", [0])])
    with pytest.raises(ValueError, match="num='gaussian' means an object"):
        named.set_params(num__df=3.0)
    assert "Poisson" in repr(product)


def test_parameters_may_be_about_parts_that_come_with_them():
    product = Product([("num", "gaussian", [0])])
    product.set_params(parts=[("counts", Poisson(), [0])], counts__rate=2.0)
    assert product.parts[0][1].rate == 2.0
    assert Product(None).set_params(parts=product.parts).parts is product.parts
    with pytest.raises(ValueError, match="part 'num' must be a Likelihood object or one of"):
        Product([("num", "normal", [0])]).hyperparameters  # noqa: B018


@pytest.mark.slow
def test_a_grid_over_parameters_of_parts():
    X, _ = three_kinds()
    mixture = DPMixture(likelihood=KINDS, concentration=1.0, **FAST)
    grid = {"likelihood__num__df": [3.0, 30.0], "likelihood__cat__concentration": [1.0]}
    search = GridSearchCV(mixture, grid, cv=2).fit(X)
    assert search.best_params_["likelihood__num__df"] in (3.0, 30.0)
    assert search.best_estimator_.likelihood_.num__df in (3.0, 30.0)


@pytest.mark.slow
def test_what_is_learned_is_named_by_part():
    X, z = three_kinds()
    mixture = DPMixture(likelihood=KINDS, **{**FAST, "n_warmup": 30, "n_draws": 60}).fit(X)
    assert set(mixture.cluster_params_) == {"num", "cat", "counts"}
    assert set(mixture.cluster_params_["num"]) == {"means", "covariances"}
    found = {name: columns.tolist() for name, columns in mixture.part_columns_.items()}
    assert found == {"num": [0, 1], "cat": [2, 3], "counts": [4]}
    names = {
        *("num__mean", "num__mean_precision", "num__df", "num__scale"),
        *("cat__concentration", "counts__shape", "counts__rate"),
    }
    assert set(mixture.hyperparameter_samples_) == names
    assert mixture.draws_["likelihood__cat__concentration"].shape == (2, 60, 2)
    shapes = mixture.hyperparameter_samples_["counts__shape"]
    assert np.ptp(shapes) > 0.0
    assert mixture.likelihood_.counts__shape == pytest.approx(shapes.mean())
    # Three clusters are found, and all that the fit has says so after a pickle.
    assert mixture.n_clusters_ == 3
    assert len(np.unique(np.column_stack([z, mixture.labels_]), axis=0)) == 3
    again = pickle.loads(pickle.dumps(mixture))
    np.testing.assert_array_equal(again.score_samples(X), mixture.score_samples(X))
    rows, _ = mixture.sample(50)
    assert rows.shape == (50, 5)
    assert set(np.unique(rows[:, 2])) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize(
    "sampler", everyday(["gibbs", "pgsm", "sub_cluster", SMC(10), "auto"], "gibbs", "sub_cluster")
)
@pytest.mark.some(1)
def test_every_sampler_of_all_parts(sampler):
    X, _ = three_kinds(30)
    X[0, 0] = X[1, 2] = X[2, 4] = NAN
    mixture = DPMixture(likelihood=KINDS, sampler=sampler, **FAST).fit(X)
    assert np.isfinite(mixture.score_samples(X)).all()
    assert mixture.predict_proba(X).sum(axis=1) == pytest.approx(1.0)


@pytest.mark.long
def test_a_single_part_is_its_likelihood():
    """The same chains, to the bit."""
    X = three_kinds()[0][:, :2]
    one = Product([("num", Gaussian(covariance_type="diag"), [0, 1])])
    fits = [
        DPMixture(likelihood=likelihood, **FAST).fit(X)
        for likelihood in (Gaussian(covariance_type="diag"), one)
    ]
    np.testing.assert_array_equal(*(fit.label_samples_ for fit in fits))
    np.testing.assert_array_equal(*(fit.log_joint_samples_ for fit in fits))
    np.testing.assert_array_equal(*(fit.score_samples(X) for fit in fits))
    np.testing.assert_array_equal(*(fit.labels_ for fit in fits))


# Columns.


@pytest.mark.parametrize(
    "columns",
    [
        [2, 3],
        (2, 3),
        np.array([2, 3]),
        slice(2, 4),
        [-3, -2],
        [False, False, True, True, False],
        np.array([False, False, True, True, False]),
        lambda X: [2, 3],
    ],
)
def test_ways_to_name_columns(columns):
    X, _ = three_kinds()
    likelihood = Product([("cat", Categorical(), columns), ("num", Gaussian(), 0)]).resolve(X)
    assert likelihood.parts[0][1].n_categories.tolist() == [3, 3]
    assert len(likelihood.parts[1][1].mean) == 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([], "must be a list of"),
        (None, "must be a list of"),
        ([("num", Gaussian())], "must be \\(name, likelihood, columns\\)"),
        ([(1, Gaussian(), [0])], "must be a str"),
        ([("a__b", Gaussian(), [0])], "must not contain __"),
        ([("a", Gaussian(), [0]), ("a", Gaussian(), [1])], "not unique"),
        ([("parts", Gaussian(), [0])], "conflict with constructor arguments"),
        ([("num", "normal", [0])], "part 'num' must be a Likelihood object or one of"),
        ([("net", Relational(), [0])], "part 'net' cannot be Relational"),
        ([("in", KINDS, [0])], "put its parts into this one"),
        ([("num", Gaussian(), [0, 5])], "part 'num': X has no column 5; it has 5 columns"),
        ([("num", Gaussian(), ["age"])], "names the column 'age', but X has no column names"),
        (
            [("num", Gaussian(), [1.5])],
            "part 'num': a column must be an integer or a name, got 1.5",
        ),
        ([("num", Gaussian(), [True, False])], "the mask has 2 entries, but X has 5"),
        ([("num", Gaussian(), [0, 0])], "column 0 of X is in part 'num' twice"),
        (
            [("num", Gaussian(), [0]), ("more", Gaussian(), slice(2))],
            "column 0 of X is in part 'more' and in part 'num'",
        ),
        ([("num", Gaussian(), [])], "no part has a column"),
    ],
)
def test_parts_that_are_refused(parts, message):
    with pytest.raises(ValueError, match=message):
        DPMixture(likelihood=Product(parts)).fit(three_kinds()[0])


def test_columns_in_no_part_are_left_out():
    X, _ = three_kinds()
    one = Product([("num", Gaussian(), [1])])
    mixture = DPMixture(likelihood=one, **FAST).fit(X)
    Y = X + 1.0
    Y[:, 1] = X[:, 1]
    Y[:, 0] = np.inf
    np.testing.assert_array_equal(mixture.score_samples(X), mixture.score_samples(Y))
    assert np.isnan(mixture.sample(2)[0][:, [0, 2, 3, 4]]).all()
    empty = Product([("num", Gaussian(), [1]), ("none", Poisson(), [])])
    assert list(DPMixture(likelihood=empty, **FAST).fit(X).cluster_params_) == ["num"]


@pytest.mark.long
def test_errors_name_the_column_of_all_and_the_part():
    X, _ = three_kinds()
    for d, value, words in (
        (4, 0.5, r"column 4 of X holds 0\.5 \(part 'counts'\)"),
        (3, -1.0, r"column 3 of X holds -1 \(part 'cat'\)"),
        (1, np.inf, r"infinity in column 1 of X \(part 'num'\)"),
    ):
        bad = X.copy()
        bad[7, d] = value
        for sampler in ("gibbs", "sub_cluster"):
            with pytest.raises(ValueError, match=words):
                DPMixture(likelihood=KINDS, sampler=sampler).fit(bad)
        with pytest.raises(ValueError, match=words):
            DPMixture(likelihood=KINDS, **FAST).fit(X).predict(bad)


def test_nan_is_refused_by_part():
    X, _ = three_kinds()
    holes = X.copy()
    holes[3, 1] = NAN
    parts = Product([("cat", Categorical(), [2, 3]), ("whole", Multinomial(), [4, 1])])
    with pytest.raises(ValueError, match=r"NaN in column 1 of X \(part 'whole'\)"):
        DPMixture(likelihood=parts).fit(holes)
    holes = X.copy()
    holes[3, 3] = NAN
    parts = Product([("cat", Categorical(), [2, 3]), ("num", Gaussian(), [0, 1])])
    DPMixture(likelihood=parts, **FAST).fit(holes)


def test_what_follows_from_parts_changes_with_them():
    resolved = Product([("num", Gaussian(covariance_type="diag"), [0, 1])]).resolve(X_FEW)
    assert not resolved.weighs_rows
    assert "num__tail_df" not in resolved.hyperparameters
    resolved.set_params(num__tails="t")
    assert resolved.weighs_rows
    assert "num__tail_df" in resolved.hyperparameters


def test_a_part_may_have_no_summary():
    """The rows are its summary then, as those of `Grid`. Joints are sums over the parts."""
    rng = np.random.default_rng(0)
    X, labels = np.column_stack([rng.normal(size=(8, 3)), rng.poisson(3.0, 8)]), np.arange(8) % 2
    whole = Product([("counts", Poisson(**RATES), [3]), ("table", Grid(), [0, 1, 2])])
    prior = make_prior("dp", len(X), **PRIOR)
    joint, *parts = (
        make_state(likelihood, columns, prior, labels).compute_log_joint()
        for likelihood, columns in ((whole, X), (Poisson(**RATES), X[:, 3:]), (Grid(), X[:, :3]))
    )
    log_prior = prior.log_probability(np.array([4, 4]))
    assert joint == pytest.approx(sum(parts) - log_prior, rel=1e-12)
    assert whole.resolve(X).resolve_summary(
        whole.merge_summaries(whole.summarise(X[:5]), whole.summarise(X[5:]))
    ).parts[1][1].grid.tolist() == [0.0, 1.0, 2.0]


def test_capabilities_are_those_of_all_parts():
    assert KINDS.capabilities == {"joint", "product", "instantiated"}
    plain = type("Plain", (Grid,), {"capabilities": frozenset({"joint", "product"})})()
    grid = Product([("num", Gaussian(), [0]), ("grid", plain, [1, 2])])
    assert grid.capabilities == {"joint", "product"}
    with pytest.raises(ValueError, match="cannot sample a mixture with the likelihood Product"):
        DPMixture(likelihood=grid, sampler="sub_cluster").fit(three_kinds()[0])
    numbers = Product([("num", Gaussian(), [0]), ("words", Multinomial(), [1, 2])])
    assert numbers.allow_nan and not numbers.discrete and not Product(numbers.parts[1:]).allow_nan
    assert KINDS.lacks("draw") is None
    words = Product([("words", Multinomial(), [0, 1])])
    assert words.lacks("draw") == "Multinomial (part 'words')"
    assert not KINDS.has_points
