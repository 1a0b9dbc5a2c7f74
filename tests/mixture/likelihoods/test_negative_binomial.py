"""Negative binomial columns: the Poisson limit, priors of means, laws, bounds and dispersions."""

import itertools

import numpy as np
import pytest
from reference.likelihoods import (
    log_likelihood,
    log_marginal_negative_binomial,
    log_marginal_poisson,
    log_posterior,
)
from reference.noise import log_noise_prior, noise_labels
from reference.priors import log_eppf
from reference.simulate import simulate_data, simulate_partitions
from scipy import stats
from scipy.special import gammaln
from support.designs import everyday
from support.kernels import bind
from support.probes import (
    Probe,
    log_likelihoods_at,
    log_marginals_at,
    log_predictive_bounds,
    log_predictive_floors,
)
from support.pvalues import assert_p_matrix, worst_p

from skdpm import DPMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Bernoulli, NegativeBinomial, Product
from skdpm.mixture.likelihoods.laws.laws import BetaNegativeBinomial
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import SMC, Gibbs
from skdpm.mixture.state._state import MixtureState, Noise
from skdpm.mixture.state._tiles import RowTiles

NOISE_BETA = 1.5, 3.0
NOISE_LAW = stats.nbinom(1.5, 0.05)


def filled(likelihood, X, clusters, n_max=None):
    probe = Probe(bind(likelihood, likelihood.encode(X), n_max or len(X)), len(clusters) + 1)
    for items in clusters:
        slot = probe.acquire()
        for i in items:
            probe.add(slot, i)
    probe.acquire()
    return probe


def counts(n=40, unit=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return np.floor(rng.gamma(0.7, 10.0 * unit, size=(n, 2)))


@pytest.mark.parametrize("unit", [1.0, 1e3])
def test_poisson_limit(unit):
    X = counts(unit=unit)
    prior = {"shape": 1.3, "rate": 0.2 / unit}
    for dispersion, rtol in ((1e-7 / unit, 1e-4), (1e-11 / unit, 1e-8)):
        likelihood = NegativeBinomial(**prior, dispersion=dispersion).resolve(X)
        probe = filled(likelihood, X, [range(10), range(10, 13)])
        for slot, stop in ((0, 10), (1, 13)):
            items = X[10:stop] if slot else X[:stop]
            constants = likelihood.log_constants(items).sum()
            np.testing.assert_allclose(
                probe.log_marginal(slot) + constants, log_marginal_poisson(items, **prior), rtol
            )
        for i in (20, 30):
            both = np.vstack([X[10:13], X[i]])
            expected = log_marginal_poisson(both, **prior)
            expected -= log_marginal_poisson(X[10:13], **prior)
            assert probe.log_predictive(1, i) == pytest.approx(expected, rel=10 * rtol)


@pytest.mark.parametrize("dispersion", [1e-3, 0.4, 5.0, 1e3])
def test_the_prior_of_a_mean_is_sensible_for_every_dispersion(dispersion):
    """Its mean is shape / rate, and it is spread by a factor that depends on the shape only."""
    shape, rate = 3.0, 0.1
    likelihood = NegativeBinomial(shape, rate, dispersion).resolve(np.ones((2, 1)))
    empty = np.zeros((1, 5))
    assert likelihood.cluster_params(empty)["means"].item() == pytest.approx(shape / rate)
    assert likelihood.laws(empty).columns[0].mean().item() == pytest.approx(shape / rate)
    drawn = likelihood.laws(np.zeros((20_000, 5)), np.random.default_rng(0))
    means = drawn.columns[0].mean()
    assert 0.3 < np.std(np.log(means)) < 0.8  # Gamma(3): 0.63, InvGamma(4): 0.53
    # Of many entries, the mean of a cluster is that of the data.
    stat = np.array([[1e10, 0.0, 0.0, 7e10, 1e10]])
    assert likelihood.cluster_params(stat)["means"].item() == pytest.approx(7.0, rel=1e-5)


@pytest.mark.parametrize("dispersion", [0.01, 0.6, 3.0])
def test_predictives_sum_to_one(dispersion):
    X = np.concatenate([[[3.0], [9.0], [0.0], [5.0]], np.arange(20_000.0)[:, None]])
    likelihood = NegativeBinomial(2.0, 0.5, dispersion).resolve(X)
    probe = filled(likelihood, X, [range(4)], n_max=len(X) + 1)
    densities = np.exp(probe.model.log_predictive_rows([0, 1], 4, len(X)))
    law = likelihood.laws(probe.model.dump([0, 1])).columns[0]
    x = np.arange(20_000.0)
    np.testing.assert_allclose(densities, np.exp(law.log_density(x)).T, rtol=1e-7)
    # Tails beyond the last count, from the law's distribution function.
    rest = 1.0 - law.cdf(np.full(2, 19_999.0))
    np.testing.assert_allclose(densities.sum(axis=1) + rest, 1.0, atol=1e-8)
    for at in (0, 2, 30, 500):
        expected = densities[:, : at + 1].sum(axis=1)
        np.testing.assert_allclose(law.cdf(np.full(2, at + 0.5)), expected, atol=1e-9)
    cumulated = densities.cumsum(axis=1)
    for p in (0.001, 0.3, 0.9):
        expected = (cumulated < p).sum(axis=1)
        np.testing.assert_array_equal(law.quantile(p), expected)
    assert (law.cdf(np.full(2, -1.0)) == 0.0).all()


def test_draws_follow_the_law():
    law = BetaNegativeBinomial(*np.repeat([[1.5], [4.0], [6.0]], 40_000, axis=1))
    drawn = law.draw(np.random.default_rng(0))
    one = BetaNegativeBinomial(*np.array([[1.5], [4.0], [6.0]]))
    assert drawn.mean() == pytest.approx(one.mean().item(), rel=0.05)
    for x in (0.0, 2.0, 10.0):
        assert np.mean(drawn <= x) == pytest.approx(one.cdf(np.array([x])).item(), abs=0.01)


# Bounds.

LAWS = [(1.0, 1.0, 0.5), (0.3, 1e-3, 2.0), (50.0, 1e-6, 1e-3), (2.0, 1.0, 30.0), (1.0, 0.1, 1e-7)]


@pytest.mark.parametrize("hyper", LAWS)
def test_bounds_by_all_counts_of_boxes(hyper, seed_sequence):
    rng = np.random.default_rng(seed_sequence)
    X = counts(seed=rng)
    likelihood = NegativeBinomial(*hyper).resolve(X)
    clusters = [range(1), range(1, 12), range(12, 40)]
    stats_ = filled(likelihood, X, clusters).model.dump(range(4))
    for _ in range(25):
        low = rng.integers(0, [3, 100])[rng.permutation(2)]
        width = rng.integers(0, 8, size=2) * rng.integers(0, 2, size=2)
        ranges = [np.arange(a, a + w + 1.0) for a, w in zip(low, width, strict=True)]
        rows = np.array(list(itertools.product(*ranges)))
        data = likelihood.encode_new(rows)
        model = bind(likelihood, data, None)
        model.load(stats_)
        tiles = RowTiles(likelihood.box_points(data), len(rows))
        (bound,) = log_predictive_bounds(model, range(4), tiles.boxes)
        highest = model.log_predictive_rows(range(4), 0, len(rows)).max(axis=1)
        assert (bound >= highest).all()
        np.testing.assert_allclose(bound, highest, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("hyper", LAWS)
@pytest.mark.parametrize("unit", [1.0, 300.0])
def test_floors_of_items_without_themselves(hyper, unit):
    X = counts(unit=unit)
    likelihood = NegativeBinomial(*hyper).resolve(X)
    probe = filled(likelihood, X, [range(40)])
    points = np.ascontiguousarray(likelihood.box_points(likelihood.encode(X)))
    alone = []
    for i in range(40):
        probe.remove(0, i)
        alone.append(probe.log_predictive(0, i))
        probe.add(0, i)
    alone = np.array(alone)
    for size in (1, 3, 16):
        tiles = RowTiles(points, size)
        floors = log_predictive_floors(probe.model, [0], tiles.boxes)[:, 0]
        order, starts = np.asarray(tiles.order), np.asarray(tiles.starts)
        for t, floor in enumerate(floors):
            here = alone[order[starts[t] : starts[t + 1]]]
            assert floor <= here.min()
            if size == 1:
                assert floor >= here.min() - 1e-2


# Tables of densities.


@pytest.mark.parametrize("move, n_columns", [(0.05, 4), (0.5, 4), (0.1, 1)])
def test_densities_do_not_depend_on_tables(move, n_columns, seed_sequence):
    """A kernel in which items leave clusters and mostly return has the same bits as one that has
    just been filled."""
    rng = np.random.default_rng(seed_sequence)
    X = np.arange(40.0)
    X = np.column_stack([rng.integers(0, 3, size=40), X // 5, X, counts(40, seed=rng)[:, 0]])
    X = np.ascontiguousarray(X[:, :n_columns])
    X[rng.random(X.shape) < 0.1] = np.nan
    likelihood = NegativeBinomial(1.3, 0.2, 0.6).resolve(X)
    data = likelihood.encode(X)
    labels = rng.integers(3, size=40)
    probe = filled(likelihood, X, [np.flatnonzero(labels == k) for k in range(3)])
    values = probe.model.hyperparameters()
    for turn in range(400):
        if turn in (150, 300):
            values = values * rng.gamma(9.0, 1.0 / 9.0, size=len(values))
            probe.model.set_hyperparameters(values)
        else:  # otherwise the same item again
            i = rng.integers(40)
        probe.remove(labels[i], i)
        fresh = bind(likelihood, data, 40)
        fresh.set_hyperparameters(values)
        fresh.load(probe.model.dump(range(4)))
        expected = fresh.log_predictive_rows(range(4), i, i + 1)[:, 0]
        found = [probe.log_predictive(slot, i) for slot in range(4)]
        np.testing.assert_array_equal(found, expected)
        if rng.random() < move:
            labels[i] = rng.integers(3)
        probe.add(labels[i], i)


# Dispersions.


@pytest.mark.parametrize("noise", [False, True])
def test_a_product_has_the_log_joint_of_its_parts(noise):
    """Also after changes of the dispersions, which change the constants of rows, those that are
    noise too."""
    rng = np.random.default_rng(0)
    X = np.column_stack([counts(12), rng.integers(0, 2, size=12)])
    X[3, 0] = np.nan
    likelihood = Product(
        [("n", NegativeBinomial(1.0, 0.1), [0, 1]), ("b", Bernoulli(1.0, 1.0), [2])]
    ).resolve(X)
    model = bind(likelihood, likelihood.encode(X), 12)
    labels = np.arange(12) % 3
    log_noise, prior = np.linspace(-9.0, -7.0, 12), ("dp", {"concentration": 1.0})
    if noise:
        labels[[0, 4, 5]] = -1
    law = Noise(*NOISE_BETA, log_noise) if noise else None
    state = MixtureState(model, DirichletProcessPrior(12, 1.0), noise=law)
    state.assign(labels)
    inside = labels >= 0
    for _ in range(3):
        flat = model.resample_hyperparameters(
            state.cluster_slots(), likelihood.learned_priors, rng.bit_generator
        )
        phi = likelihood.at(likelihood.learned_values(flat)).n__dispersion
        hyper = {"shape": 1.0, "rate": 0.1, "dispersion": phi}
        expected = log_eppf(state.cluster_sizes(), "dp", concentration=1.0)
        if noise:
            expected = log_noise_prior(labels, NOISE_BETA, *prior) + log_noise[~inside].sum()
        for columns, name, params in (
            (slice(2), "negative_binomial", hyper),
            ([2], "bernoulli", {"a": 1.0, "b": 1.0}),
        ):
            expected += log_likelihood(X[inside][:, columns], labels[inside], name, **params)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-10)
        constants = NegativeBinomial(**hyper).resolve(X[:, :2]).log_constants(X[:, :2])
        np.testing.assert_allclose(model.log_constants, constants, rtol=1e-12, atol=1e-12)


def test_dispersions_are_drawn_for_the_items_of_the_clusters():
    X = counts(10)
    likelihood = NegativeBinomial(1.0, 0.1).resolve(X)
    probe = filled(likelihood, X, [[0, 2], [1, 3]])
    values = probe.model.hyperparameters() * np.ones((2, 1))
    values[1, 2] *= 3.0
    first, second = (
        sum(
            log_marginal_negative_binomial(
                X[rows], shape=1.0, rate=0.1, dispersion=[phi, values[0, 3]]
            )
            for rows in ([0, 2], [1, 3])
        )
        for phi in values[:, 2]
    )
    found = log_likelihoods_at(probe.model, [0, 1], values, 2)
    np.testing.assert_allclose(np.diff(found), second - first, rtol=1e-9)
    # All rows of the fit, of which the kernel has one.
    one = bind(likelihood, likelihood.encode(X[:1]), 10)
    one.load(filled(likelihood, X, [range(6), range(6, 10)]).model.dump([0, 1]))
    found = log_likelihoods_at(one, [0, 1], values, 2)
    whole = filled(likelihood, X, [range(6), range(6, 10)])
    expected = log_likelihoods_at(whole.model, [0, 1], values, 2)
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-12)
    with pytest.raises(ValueError, match="first items"):
        log_likelihoods_at(filled(likelihood, X, [[4, 5]]).model, [0], values, 2)
    with pytest.raises(ValueError, match="clusters of 4 items"):
        one.load(probe.model.dump([0, 1]))
        log_likelihoods_at(one, [0, 1], values, 2)


@pytest.mark.slow
def test_particles_of_several_dispersions(seed_sequence):
    """Constants of rows depend on the particle: log joints are those of the reference, and the
    weights estimate the evidence without bias."""
    X = np.array([[0.0], [9.0], [2.0], [30.0]])
    dispersions = 0.05, 3.0
    hyper = {"shape": 1.5, "rate": 0.2}
    models = []
    for phi in dispersions:
        likelihood = NegativeBinomial(**hyper, dispersion=phi).resolve(X)
        models.append(bind(likelihood, likelihood.encode(X), None))
    prior = DirichletProcessPrior(4, 1.0)
    exact = [
        log_posterior(
            X,
            "negative_binomial",
            "dp",
            likelihood_params={**hyper, "dispersion": phi},
            prior_params={"concentration": 1.0},
        ).log_evidence
        for phi in dispersions
    ]
    bit_generator = np.random.PCG64(seed_sequence)

    def run(resample_threshold):
        sampler = SMC(2, resampling="systematic", resample_threshold=resample_threshold)
        system = sampler.system(prior, None, True)
        system.begin(models)
        system.run(bit_generator, 0, 4)
        return system

    system = run(0.0)
    saved = system.get_state()
    for again in (False, True):
        if again:
            system.set_state(models, saved)
        for p, phi in enumerate(dispersions):
            expected = log_likelihood(
                X, system.labels_of(p), "negative_binomial", **hyper, dispersion=phi
            )
            expected += prior.log_probability(system.sizes_of(p))
            assert system.log_joint_of(p, prior) == pytest.approx(expected, rel=1e-10)
    ratios = np.array([np.exp(run(0.9).log_evidence) for _ in range(2000)])
    ratios /= np.mean(np.exp(exact))
    assert abs(ratios.mean() - 1.0) < 4.5 * ratios.std() / np.sqrt(len(ratios))
    assert ratios.std() < 1.0  # so that the test has power


PRIOR = Gamma(2.0, 2.0)
GRID = np.exp(np.linspace(-7.0, 4.0, 400))


def by_slices(model, state, rng, X):
    slots = state.cluster_slots()
    model.resample_hyperparameters(slots, {"dispersion": PRIOR}, rng.bit_generator)


def with_terms_of(rows_of):
    """Draws on a grid. Terms log h(x_i) are those of the rows that a state has chosen by its
    labels; other rows than those in clusters are a planted error."""

    def draw(model, state, rng, X):
        values = model.hyperparameters() * np.ones((len(GRID), 1))
        values[:, 2] = GRID
        x, r = X[rows_of(state.cluster_labels())].ravel(), 1.0 / GRID[:, None]
        log_p = PRIOR.log_density(GRID) + np.log(GRID)
        log_p += (gammaln(x + r) - gammaln(r)).sum(axis=1)
        slots = state.cluster_slots()
        log_p += [log_marginals_at(model, slots, value).sum() for value in values]
        p = np.exp(log_p - log_p.max())
        model.set_hyperparameters(values[rng.choice(len(GRID), p=p / p.sum())])

    return draw


def first_labels(n, n_starts, rng, noise):
    """Labels drawn from the prior, -1 for noise."""
    if not noise:
        return simulate_partitions("dp", n, n_starts, rng, concentration=1.0)
    labels = noise_labels(n)
    prior = "dp", {"concentration": 1.0}
    p = np.exp([log_noise_prior(z, NOISE_BETA, *prior) for z in labels])
    return labels[rng.choice(len(labels), n_starts, p=p / p.sum())]


def simulated(z, rng, phi, hyper):
    X = NOISE_LAW.rvs((len(z), 1), random_state=rng).astype(float)
    inside = z >= 0
    if inside.any():
        X[inside] = simulate_data(
            "negative_binomial", z[inside], rng, n_features=1, dispersion=phi, **hyper
        )
    return X


def joint_p(seed, n_starts, draw=by_slices, noise=False, n=5):
    """p-values of dispersion and labels after some alternations of a Gibbs sweep, a draw of the
    dispersion and new data, from i.i.d. draws of all three."""
    rng = np.random.default_rng(seed)
    kernel = Gibbs().kernel()
    labels = first_labels(n, n_starts, rng, noise)
    drawn, sizes, both = np.empty(n_starts), np.empty((2, n_starts)), np.empty((2, n_starts))
    hyper = {"shape": 1.5, "rate": 0.2}
    for m in range(n_starts):
        z, phi = labels[m], PRIOR.draw(rng)
        for turn in range(4):
            X = simulated(z, rng, phi, hyper)
            if turn == 0:
                both[0, m] = np.std(X) / (1.0 + X.mean()) - phi
            likelihood = NegativeBinomial(**hyper, dispersion=float(phi)).resolve(X)
            model = bind(likelihood, likelihood.encode(X), n)
            law = Noise(*NOISE_BETA, NOISE_LAW.logpmf(X[:, 0])) if noise else None
            state = MixtureState(model, DirichletProcessPrior(n, 1.0), noise=law)
            state.assign(z.astype(np.intp))
            kernel.run(state, rng.bit_generator)
            draw(model, state, rng, X)
            z, phi = state.cluster_labels(), model.hyperparameters()[2]
        drawn[m], sizes[:, m] = phi, (z.max() + 1, (z < 0).sum())
        X = simulated(z, rng, phi, hyper)
        both[1, m] = np.std(X) / (1.0 + X.mean()) - phi
    half = n_starts // 2
    n_clusters, n_noise = labels.max(axis=1) + 1, (labels < 0).sum(axis=1)
    return {
        "dispersion": stats.kstest(drawn, stats.gamma(2.0, scale=0.5).cdf).pvalue,
        "clusters": stats.ks_2samp(n_clusters[:half], sizes[0, half:]).pvalue,
        "noise": stats.ks_2samp(n_noise[:half], sizes[1, half:]).pvalue,
        "both": stats.ks_2samp(both[0, :half], both[1, half:]).pvalue,
    }


@pytest.mark.slow
@pytest.mark.parametrize("noise", everyday([False, True], False))
def test_sweeps_and_draws_keep_the_joint_law(noise, seed_sequence):
    runs = {
        name: lambda seed, factor, name=name: joint_p(seed, round(400 * factor), noise=noise)[name]
        for name in ("dispersion", "clusters", "both", *(["noise"] if noise else []))
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("noise, rows_of", [(False, lambda z: z < -1), (True, lambda z: z >= -1)])
def test_a_planted_error_is_seen(noise, rows_of, seed_sequence):
    """No terms of rows in the law of a dispersion; those of rows that are noise too."""
    p = joint_p(np.random.default_rng(seed_sequence), 300, with_terms_of(rows_of), noise)
    assert worst_p(p).corrected < 1e-6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_fits_with_noise():
    rng = np.random.default_rng(0)
    X = rng.negative_binomial(20, 20 / (20 + np.repeat([[5.0], [100.0]], 40, axis=0)))
    X[::10] = rng.integers(40, 250, size=(8, 1))
    short = {"n_warmup": 20, "n_draws": 20, "n_chains": 2, "random_state": 0}
    model = DPMixture(likelihood=NegativeBinomial(), noise=True, **short).fit(X)
    assert 0.0 < model.noise_probabilities_.mean() < 0.5
    scores = model.score_samples(np.arange(60_000.0)[:, None])
    # Noise beyond the largest count has a tail as heavy as 1 / log.
    assert 0.9999 < np.exp(scores).sum() < 1.0
    again = DPMixture(likelihood=NegativeBinomial(), noise=True, n_jobs=2, **short).fit(X)
    np.testing.assert_array_equal(model.log_joint_samples_, again.log_joint_samples_)


def test_means_of_columns_without_events_may_be_zero():
    """Draws of their ratios are too small for doubles."""
    likelihood = NegativeBinomial(shape=1e-4, rate=1.0, dispersion=0.1)
    short = {"n_warmup": 5, "n_draws": 5, "n_chains": 2, "random_state": 0}
    X = np.repeat([[0.0, 90.0], [50.0, 0.0]], 10, axis=0)
    table = DPMixture(likelihood=likelihood, **short).fit(X).describe()
    assert table["low"].min() < 1e-9
    assert np.isfinite(table[["mean", "rest", "low", "high", "certainty"]]).all(axis=None)
