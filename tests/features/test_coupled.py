"""A likelihood under which rows see each other, and parameters belong to pairs of features.

It is a skeleton of doc/, outside the tree: compiled, then tested as skdpm's own are, against
enumeration and the joint distribution. The errors planted are those that only such a model makes.
"""

import importlib
import pickle
import sys

import numpy as np
import pytest
from reference.features import (
    classes_of_buffet,
    left_ordered,
    log_beta_bernoulli,
    log_weighted_links,
    log_weighted_links_marginal,
    matrix_posterior,
)
from scipy.special import logsumexp
from scipy.stats import chi2, norm
from sklearn.model_selection import cross_val_score
from support.exactness import record_worst
from support.features import CONCENTRATION, Case, given_params_run, make_prior
from support.flips import check_flips
from support.probes import FeatureProbe
from support.pvalues import Cells, assert_p_matrix, chi_squared_p
from support.skeletons import build

from skdpm import FeatureAllocation
from skdpm.features.samplers import SAMPLERS, ElementGibbs, RowGibbs
from skdpm.features.state._state import FeatureState

pytestmark = [
    pytest.mark.slow,  # a package to compile
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

NOISE, WEIGHT = 2.0, 0.7
W = np.array([[1.2, -0.6], [0.3, 0.9]])  # not symmetric: directions differ
X = np.array([[9.0, 0.7, 1.1], [0.2, 9.0, -0.9], [np.nan, 1.3, 9.0]])


@pytest.fixture(scope="module")
def WeightedLinks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coupled")
    build("coupled_feature_likelihood", folder)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("skdpm_weighted_links").WeightedLinks
    finally:
        sys.path.remove(str(folder))


def make_model(WeightedLinks, X, W):
    likelihood = WeightedLinks(NOISE, WEIGHT).resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    model.load({"weights": W})
    return model


def random_Z(rng, n, n_latent):
    return (rng.random((n, n_latent)) < 0.5).astype(np.uint8)


def test_densities(WeightedLinks):
    """Flips add up to differences of log likelihoods, and these are those of the reference."""
    rng = np.random.default_rng(0)
    complete = rng.normal(size=(5, 5))
    for likelihood, rows in (
        (WeightedLinks(NOISE, WEIGHT), complete),
        (WeightedLinks(), np.where(rng.random((5, 5)) < 0.3, np.nan, complete)),
    ):
        check_flips(likelihood, rows)
        resolved = likelihood.resolve(rows)
        model = resolved.bind(resolved.encode(rows))
        rng = np.random.default_rng(1)
        weights, Z = rng.normal(size=(3, 3)), random_Z(rng, len(rows), 3)
        model.load({"weights": weights})
        probe = FeatureProbe(model)
        expected = log_weighted_links(rows, Z, weights, likelihood.noise_precision)
        assert probe.log_likelihood(Z) == pytest.approx(expected, rel=1e-12)
        deviation = likelihood.weight_precision**-0.5
        assert probe.log_prior() == pytest.approx(norm.logpdf(weights, 0, deviation).sum())
        # A row's own law: all terms of the row, those of links that come in too.
        probe.begin_row(1, Z[1])
        without = rows.copy()
        without[1] = without[:, 1] = np.nan
        rest = log_weighted_links(without, Z, weights, likelihood.noise_precision)
        assert probe.log_row() == pytest.approx(expected - rest, rel=1e-10)


def test_new_rows_without_their_partners_have_no_law(WeightedLinks):
    likelihood = WeightedLinks().resolve(X)
    model = likelihood.bind(likelihood.encode_new(X[:2]))
    model.load({"weights": W})
    probe = FeatureProbe(model)
    probe.begin_row(0, np.zeros(2))
    assert np.isnan(probe.log_row())
    model.see(np.eye(3, 2))
    probe.begin_row(0, np.zeros(2))
    assert probe.log_row() == pytest.approx(norm.logpdf(X[0]).sum())


def test_features_come_and_go_with_rows_and_columns(WeightedLinks):
    """Of a removed feature the row and the column go; what is left keeps its weights, also as the
    memory grows."""
    rng = np.random.default_rng(0)
    model = make_model(WeightedLinks, X, rng.normal(size=(4, 4)))
    probe, before = FeatureProbe(model), model.save()["weights"]
    probe.remove_feature(1)
    left = [0, 3, 2]
    np.testing.assert_array_equal(model.save()["weights"], before[np.ix_(left, left)])
    probe.reserve(9)
    for seed in range(6):
        probe.add_feature(np.random.PCG64(seed))
    after = model.save()["weights"]
    assert after.shape == (9, 9) and len(np.unique(after)) == 81
    np.testing.assert_array_equal(after[:3, :3], before[np.ix_(left, left)])


def case_of(WeightedLinks):
    """Given W, for two features."""
    return Case(
        WeightedLinks(NOISE, WEIGHT),
        lambda n_latent, missing: X,
        lambda n_latent: {"weights": W},
        lambda X, Z, params: log_weighted_links(X, Z, params["weights"], NOISE),
    )


def test_given_weights(WeightedLinks, seed_sequence, record_property):
    runs = {
        name: given_params_run(cls().kernel(), 2, case=case_of(WeightedLinks), n_starts=6_000)
        for name, cls in SAMPLERS.items()
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "error",
    [
        {"spoil": lambda model, Z: model.see(Z)},  # rows see the others as before the sweep
        {"wrong": {"weights": W.T}},  # links that come in are taken for those that go out
    ],
    ids=["stale", "transposed"],
)
def test_power_given_weights(WeightedLinks, error, seed_sequence):
    """What `test_given_weights` does with an error planted in the chain."""
    kernel, case = RowGibbs().kernel(), case_of(WeightedLinks)
    cells = given_params_run(kernel, 2, case=case, n_starts=6_000, **error)(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def with_weights_run(WeightedLinks, kernel, n_starts=4_000, weight_precision=WEIGHT):
    """The same with W integrated out of the law, and drawn by the chain. W starts from its law
    given Z, which is Gaussian. Planted: another `weight_precision` in the chain."""
    links = [(i, j) for i in range(3) for j in range(3) if i != j and not np.isnan(X[i, j])]
    observed = np.array([X[i, j] for i, j in links])

    def log_weight(Z):
        return log_beta_bernoulli(Z, CONCENTRATION) + log_weighted_links_marginal(
            X, Z, NOISE, WEIGHT
        )

    law = matrix_posterior(3, 2, log_weight)
    likelihood = WeightedLinks(NOISE, weight_precision).resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    prior = make_prior(3, 2, CONCENTRATION)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        starts = law.draw(round(n_starts * factor), rng)
        ends = np.empty_like(starts)
        for s, Z in enumerate(starts):
            design = np.array([np.outer(Z[i], Z[j]).ravel() for i, j in links], dtype=float)
            covariance = np.linalg.inv(WEIGHT * np.eye(4) + NOISE * design.T @ design)
            weights = rng.multivariate_normal(NOISE * covariance @ design.T @ observed, covariance)
            model.load({"weights": weights.reshape(2, 2)})
            state = FeatureState(model, prior, Z)
            for _ in range(3):
                state.update_params(bit_generator)
                kernel.run(state, bit_generator)
            ends[s] = state.allocations()
        return Cells(law.count(ends), law.probabilities, law.matrices.tolist())

    return run


def test_with_weights(WeightedLinks, seed_sequence):
    assert_p_matrix(
        {
            name: with_weights_run(WeightedLinks, SAMPLERS[name]().kernel())
            for name in ("element_gibbs", "discrete_particle_filter")
        },
        seed_sequence=seed_sequence,
    )


@pytest.mark.slow
def test_power_with_weights(WeightedLinks, seed_sequence):
    run = with_weights_run(WeightedLinks, RowGibbs().kernel(), weight_precision=4.0)
    cells = run(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def buffet_run(WeightedLinks, kernel, n_starts=2_500, wrong=None):
    """A run for `assert_p`: (Z, W, X) from the prior, then alternately a sweep and X given Z and
    W. The class of Z keeps its law under the Indian buffet process, and W that of its distance
    from 0. Features come, beyond the memory there is, and go, with rows and columns of W. Planted:
    "stale": rows see others that have no features."""
    n, n_bins = 3, 3
    classes, probabilities = classes_of_buffet(n, 4, 0.8)
    index = {c: j for j, c in enumerate(classes)}
    joint = np.append(probabilities, 1 - probabilities.sum())
    joint = np.outer(joint, np.full(n_bins, 1 / n_bins))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        prior = make_prior(n, None, 0.8)
        counts = np.zeros(joint.shape, dtype=np.int64)
        for _ in range(round(n_starts * factor)):
            Z = prior.draw(rng)
            weights = rng.normal(size=(Z.shape[1], Z.shape[1])) / np.sqrt(WEIGHT)
            for _ in range(3):
                links = Z @ weights @ Z.T + rng.normal(size=(n, n)) / np.sqrt(NOISE)
                links[0, 2] = np.nan
                model = make_model(WeightedLinks, links, weights)
                state = FeatureState(model, prior, Z)
                if wrong == "stale":
                    model.see(np.zeros_like(Z))
                kernel.run(state, bit_generator)
                Z, weights = state.allocations(), model.save()["weights"]
            u = rng.random()
            if weights.size:
                u = chi2.cdf(WEIGHT * (weights**2).sum(), weights.size)
            counts[index.get(left_ordered(Z), len(classes)), min(int(n_bins * u), n_bins - 1)] += 1
        return Cells(counts, joint)

    return run


def test_indian_buffet(WeightedLinks, seed_sequence, record_property):
    runs = {
        name: buffet_run(WeightedLinks, SAMPLERS[name]().kernel())
        for name in ("element_gibbs", "row_gibbs", "discrete_particle_filter")
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def test_power_indian_buffet(WeightedLinks, seed_sequence):
    run = buffet_run(WeightedLinks, ElementGibbs().kernel(), wrong="stale")
    cells = run(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def network(n=30, seed=0):
    """Links between rows of two features that ignore their own kind."""
    rng = np.random.default_rng(seed)
    Z = random_Z(rng, n, 2)
    weights = np.array([[0.0, 3.0], [-2.0, 1.0]])
    return Z @ weights @ Z.T + 0.3 * rng.normal(size=(n, n)), Z, weights


def fit(WeightedLinks, X, **params):
    params = {"n_components": 3, "n_warmup": 60, "n_draws": 20, "n_chains": 2, **params}
    return FeatureAllocation(likelihood=WeightedLinks(10.0, 0.1), random_state=0, **params).fit(X)


def test_in_an_estimator(WeightedLinks, seed_sequence):
    """New rows are scored by the features of the rows of each draw, as enumeration does."""
    links, _, _ = network()
    links[2, 5] = np.nan
    most = 6
    model = fit(WeightedLinks, links, n_components=most)
    assert model.n_components_samples_.min() < most  # features are selected from those there are
    K = model.n_components_
    assert model.weights_.shape == (K, K)
    for c in range(2):
        for s in range(20):
            n_latent = model.n_components_samples_[c, s]
            assert model.weight_samples_[c][s].shape == (n_latent, n_latent)
    # Reordered features keep their weights: those of the estimate reconstruct the links.
    found = model.inverse_transform(model.allocations_)
    error = (found - links)[~np.eye(30, dtype=bool) & ~np.isnan(links)]
    assert np.sqrt(np.mean(error**2)) < 0.5
    new = links[:4] + 0.1
    new[1, 3:20] = np.nan
    log_density, means = [], []
    for x in new:
        seen = ~np.isnan(x)
        logs, expected = [], []
        for c in range(2):
            for s in range(20):
                Z, weights = model.allocation_samples_[c][s], model.weight_samples_[c][s]
                n_latent = Z.shape[1]
                z = (np.arange(2**n_latent)[:, None] >> np.arange(n_latent)) & 1
                a = model.concentration_samples_[c, s] / most
                rho = (Z.sum(axis=0) + a) / (31 + a)
                prior = np.log(np.where(z, rho, 1 - rho)).sum(axis=1)
                prior += (most - n_latent) * np.log(31 / (31 + a))  # none of those that no row has
                mean = z @ weights @ Z.T
                terms = prior + norm.logpdf(x, mean, 10**-0.5)[:, seen].sum(axis=1)
                logs.append(logsumexp(terms))
                expected.append(np.exp(terms - logs[-1]) @ mean)
        log_density.append(logsumexp(logs) - np.log(40))
        means.append(np.exp(np.array(logs) - logsumexp(logs)) @ np.array(expected))
    np.testing.assert_allclose(model.score_samples(new), log_density, rtol=1e-9)
    missing = np.isnan(new)
    np.testing.assert_allclose(
        model.impute(new)[missing], np.array(means)[missing], rtol=1e-8, atol=1e-12
    )
    assert np.isfinite(cross_val_score(model, links, cv=3)).all()  # X is cut on both sides


def test_steps_are_learnt_in_warm_up_only(WeightedLinks):
    """The proposals' step moves in warm-up, stays after it, and goes on with a warm start."""
    links, _, _ = network()

    def steps(model):
        return [chain["adaptation"]["step"] for chain in model._run.chains]

    short, long = (fit(WeightedLinks, links, n_draws=n, warm_start=True) for n in (5, 25))
    assert steps(short) == steps(long)
    assert all(0.001 < step < 0.5 for step in steps(short))
    assert steps(fit(WeightedLinks, links, n_warmup=0, n_draws=3)) == [1.0, 1.0]
    parts = pickle.loads(pickle.dumps(short)).set_params(n_draws=25).fit(links)
    np.testing.assert_array_equal(parts.log_joint_samples_, long.log_joint_samples_)
    np.testing.assert_array_equal(parts.weights_, long.weights_)


def test_a_square_X_is_asked_for(WeightedLinks):
    with pytest.raises(ValueError, match="WeightedLinks needs a square X"):
        fit(WeightedLinks, np.zeros((4, 3)))
    model = fit(WeightedLinks, network(8)[0], n_warmup=1, n_draws=2)
    with pytest.raises(ValueError, match="8 features"):
        model.transform(np.zeros((2, 5)))
    assert model.transform(np.zeros((2, 8))).shape == (2, model.n_components_)
