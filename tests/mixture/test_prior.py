"""The kernels of the partition priors: their laws, and the update of the concentration."""

from functools import cache

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_sizes
from reference.likelihoods import log_posterior_concentration
from reference.priors import log_eppf, log_gamma_density
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy import stats
from scipy.special import logsumexp
from support.exactness import SAMPLERS, make_likelihood, make_prior, make_state
from support.pvalues import Cells, assert_p

PRIORS = {
    **PRIOR_CASES,
    "dp_small": ("dp", {"concentration": 1e-3}),
    "dp_large": ("dp", {"concentration": 1e3}),
    "pitman_yor_zero_discount": ("pitman_yor", {"concentration": 1.3, "discount": 0.0}),
    "pitman_yor_large_discount": ("pitman_yor", {"concentration": -0.5, "discount": 0.95}),
    "finite_one": ("finite", {"concentration": 0.7, "n_components": 1}),
    "finite_sparse": ("finite", {"concentration": 0.01, "n_components": 4}),
    "finite_many": ("finite", {"concentration": 1.3, "n_components": 100}),
}
# What stays fixed while the concentration is resampled.
RESAMPLED = {
    "dp": ("dp", {}),
    "pitman_yor": ("pitman_yor", {"discount": 0.35}),
    "pitman_yor_zero_discount": ("pitman_yor", {"discount": 0.0}),
    "finite": ("finite", {"n_components": 3}),
}
each_prior = pytest.mark.parametrize("prior, params", PRIORS.values(), ids=PRIORS)
each_resampled = pytest.mark.parametrize("prior, params", RESAMPLED.values(), ids=RESAMPLED)


@cache
def distinct_sizes(n):
    """The sizes of blocks that partitions of n items can have, largest first."""
    padded = np.unique(-np.sort(-partition_sizes(enumerate_partitions(n)), axis=1), axis=0)
    return [sizes[sizes > 0] for sizes in padded]


def state_without_data(n, prior):
    """A state whose likelihood is 1: every entry is missing."""
    return make_state(make_likelihood("bernoulli"), np.full((n, 1), np.nan), prior)


@each_prior
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_log_probability_is_the_eppf(prior, params, n):
    kernel = make_prior(prior, n, **params)
    for sizes in distinct_sizes(n):
        expected = log_eppf(sizes, prior, **params)
        assert kernel.log_probability(sizes) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@each_prior
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8])
def test_tables_hold_the_eppf(prior, params, n):
    """What the samplers read: a state's log joint where the data say nothing. Sums to 1."""
    state = state_without_data(n, make_prior(prior, n, **params))
    most = params.get("n_components", n)
    eppf = {tuple(sizes): log_eppf(sizes, prior, **params) for sizes in distinct_sizes(n)}
    values, expected = [], []
    for labels in enumerate_partitions(n):
        if labels.max() < most:
            state.assign(labels)
            values.append(state.compute_log_joint())
            expected.append(eppf[tuple(sorted(state.cluster_sizes(), reverse=True))])
    np.testing.assert_allclose(values, expected, rtol=1e-12, atol=1e-12)
    assert logsumexp(values) == pytest.approx(0, abs=1e-11)


@pytest.mark.parametrize("n", [3, 4, 5])
def test_more_clusters_than_components_have_probability_zero(n):
    kernel = make_prior("finite", n, concentration=2.4, n_components=2)
    state = state_without_data(n, kernel)
    for labels in enumerate_partitions(n):
        state.assign(labels)
        possible = labels.max() < 2
        assert np.isfinite(state.compute_log_joint()) == possible
        assert np.isfinite(kernel.log_probability(state.cluster_sizes())) == possible
    assert np.isneginf(kernel.log_weights([n - 1, 1])[-1])


@each_prior
def test_addition_rule_and_weights(prior, params):
    """p_n(sizes) is the sum of p_{n+1} over where the next item goes, and the weights are the
    ratios (Pitman 2006, eq. 2.9)."""
    most = params.get("n_components", 9)
    for n in (1, 2, 4, 7):
        kernel, bigger = make_prior(prior, n, **params), make_prior(prior, n + 1, **params)
        for sizes in distinct_sizes(n):
            if len(sizes) > most:
                continue
            steps = [sizes + one for one in np.eye(len(sizes), dtype=int)]
            parts = [bigger.log_probability(s) for s in [*steps, np.append(sizes, 1)]]
            log_p = kernel.log_probability(sizes)
            assert logsumexp(parts) == pytest.approx(log_p, rel=1e-11, abs=1e-11)
            weights = kernel.log_weights(sizes)
            np.testing.assert_allclose(weights, np.array(parts) - log_p, rtol=1e-10, atol=1e-10)
            assert logsumexp(weights) == pytest.approx(0, abs=1e-12)


@each_resampled
def test_new_concentration_refills_the_tables(prior, params):
    """After any number of changes the tables are those of a fresh prior."""
    n, labels = 9, np.array([0, 0, 0, 1, 1, 0, 2, 1, 0])
    kernel = make_prior(prior, n, concentration=0.3, **params)
    state = state_without_data(n, kernel)
    state.assign(labels)
    for concentration in (2.0, 1e-8, 300.0, 0.3, 0.3):
        kernel.set_concentration(concentration)
        assert kernel.concentration == concentration
        expected = log_eppf([5, 3, 1], prior, concentration=concentration, **params)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)
        assert kernel.log_probability([5, 3, 1]) == pytest.approx(expected, rel=1e-11)
        fresh = make_prior(prior, n, concentration=concentration, **params)
        np.testing.assert_array_equal(fresh.log_weights([5, 3, 1]), kernel.log_weights([5, 3, 1]))


@pytest.mark.parametrize("prior, params", PRIOR_CASES.values(), ids=PRIOR_CASES)
def test_large_n(prior, params):
    """The tables are cumulative sums: at n = 20,000 they still agree with lgamma."""
    n = 20_000
    rng = np.random.default_rng(0)
    labels = np.sort(rng.integers(0, params.get("n_components", 400), size=n))
    labels = np.unique(labels, return_inverse=True)[1]
    kernel = make_prior(prior, n, **params)
    state = state_without_data(n, kernel)
    state.assign(labels)
    expected = log_eppf(np.bincount(labels), prior, **params)
    assert state.compute_log_joint() == pytest.approx(expected, rel=1e-10)
    assert kernel.log_probability(np.bincount(labels)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("concentration", [0.99e5, 1.01e5, 1e7, 1e11, 1e16])
@pytest.mark.parametrize("prior", ["dp", "pitman_yor", "finite"])
def test_large_concentrations_keep_their_digits(prior, concentration):
    """Against a sum of logarithms, which loses none: lgamma of the concentration would."""
    sizes = [300, 80, 15, 4, 1]
    n, j = sum(sizes), len(sizes)
    i = np.arange(1, n)
    log_v = -np.log1p(i / concentration).sum() - (n - j) * np.log(concentration)
    params = {"dp": {}, "pitman_yor": {"discount": 0.35}, "finite": {"n_components": 7}}[prior]
    if prior == "finite":
        a = concentration / 7
        log_v += np.log1p(-np.arange(1, j) / 7).sum()
        expected = log_v + sum(np.log1p(np.arange(1, s) / a).sum() for s in sizes)
        expected += (n - j) * np.log(a)
    else:
        d = params.get("discount", 0.0)
        expected = log_v + np.log1p(d * np.arange(1, j) / concentration).sum()
        expected += sum(np.log(np.arange(1, s) - d).sum() for s in sizes)
    kernel = make_prior(prior, n, concentration=concentration, **params)
    state = state_without_data(n, kernel)
    state.assign(np.repeat(np.arange(j), sizes))
    assert kernel.log_probability(sizes) == pytest.approx(expected, rel=1e-12, abs=1e-10)
    assert state.compute_log_joint() == pytest.approx(expected, rel=1e-12, abs=1e-10)


# The update of the concentration given the partition.


def concentration_law(likelihood, prior, params, concentration_prior, n_bins=8):
    case = enumeration_case(likelihood)
    return log_posterior_concentration(
        case.X,
        likelihood,
        prior,
        likelihood_params=case.params,
        prior_params=params,
        concentration_prior=concentration_prior,
        n_bins=n_bins,
    )


@each_resampled
@pytest.mark.parametrize(
    "concentration_prior", [(2.0, 0.8), (0.1, 5.0), (1.0, 0.1), (9.0, 0.3)], ids=str
)
def test_resampled_concentration(prior, params, concentration_prior, seed_sequence):
    """(partition, concentration) from the joint posterior; one update of the concentration given
    the partition leaves the joint law as it is."""
    shape, rate = concentration_prior
    law = concentration_law("categorical", prior, params, concentration_prior)
    kernel = make_prior(prior, 5, concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        labels, concentration = law.draw(10_000 * factor, rng)
        sizes = partition_sizes(labels)
        for s, (row, n_clusters) in enumerate(zip(sizes, (sizes > 0).sum(axis=1), strict=True)):
            kernel.set_concentration(concentration[s])
            kernel.resample(row[:n_clusters], shape, rate, rng.bit_generator)
            concentration[s] = kernel.concentration
        assert (concentration > 0).all()
        return Cells(law.count(labels, concentration), law.probabilities)

    assert_p(run, seed_sequence=seed_sequence)


@each_resampled
def test_resampled_concentration_is_in_the_tables(prior, params):
    """What the samplers read next is that of the new concentration."""
    kernel = make_prior(prior, 6, concentration=1.0, **params)
    state = state_without_data(6, kernel)
    state.assign([0, 1, 1, 2, 0, 0])
    bit_generator = np.random.PCG64(0)
    for _ in range(5):
        before = kernel.concentration
        kernel.resample(state.cluster_sizes(), 1.0, 1.0, bit_generator)
        assert kernel.concentration != before
        expected = log_eppf([3, 2, 1], prior, concentration=kernel.concentration, **params)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)


@each_resampled
@pytest.mark.parametrize("likelihood", ["bernoulli", "relational"])
def test_sweep_and_resampled_concentration(prior, params, likelihood, seed_sequence):
    """One iteration of a chain: a sweep at the current concentration, then its update."""
    shape, rate = 2.0, 0.8
    law = concentration_law(likelihood, prior, params, (shape, rate), n_bins=5)
    partition_prior = make_prior(prior, 5, concentration=1.0, **params)
    state = make_state(
        make_likelihood(likelihood), enumeration_case(likelihood).X, partition_prior
    )
    sampler = SAMPLERS["gibbs"]().kernel()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        labels, concentration = law.draw(10_000 * factor, rng)
        for s in range(len(labels)):
            partition_prior.set_concentration(concentration[s])
            state.assign(labels[s])
            sampler.run(state, rng.bit_generator)
            partition_prior.resample(state.cluster_sizes(), shape, rate, rng.bit_generator)
            labels[s], concentration[s] = state.cluster_labels(), partition_prior.concentration
        return Cells(law.count(labels, concentration), law.probabilities)

    assert_p(run, seed_sequence=seed_sequence)


@each_resampled
@pytest.mark.parametrize("concentration_prior", [(0.1, 5.0), (2.0, 0.8)], ids=str)
def test_one_row_says_nothing_about_the_concentration(
    prior, params, concentration_prior, seed_sequence
):
    """n = 1: an update, from the prior, leaves the prior; from a far start it reaches it."""
    shape, rate = concentration_prior
    kernel = make_prior(prior, 1, concentration=1.0, **params)
    edges = stats.gamma.ppf(np.linspace(0, 1, 21), shape, scale=1 / rate)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = rng.gamma(shape, 1 / rate, size=10_000 * factor)
        for s, start in enumerate(draws):
            kernel.set_concentration(start)
            kernel.resample([1], shape, rate, rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.histogram(draws, edges)[0], np.full(20, 1 / 20))

    def run_from_afar(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.empty(1_000 * factor)
        for s in range(len(draws)):
            kernel.set_concentration(50.0)
            for _ in range(60):
                kernel.resample([1], shape, rate, rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.histogram(draws, edges)[0], np.full(20, 1 / 20))

    assert_p(run, seed_sequence=seed_sequence)
    assert_p(run_from_afar, seed_sequence=seed_sequence)


@pytest.mark.parametrize(
    "prior, params",
    [("dp", {}), ("pitman_yor", {"discount": 0.6}), ("finite", {"n_components": 12})],
)
@pytest.mark.parametrize(
    "sizes", [[500, 300, 150, 40, 5, 3, 1, 1], [999, 1], [1] * 10], ids=["eight", "two", "ones"]
)
def test_resampled_concentration_of_many_rows(prior, params, sizes, seed_sequence):
    """Against quadrature of p(sizes | concentration) Gamma(concentration), in 20 bins."""
    shape, rate = 1.5, 0.2
    t = np.linspace(-40, 8, 8_001)
    log_density = log_gamma_density(np.exp(t), shape, rate) + t
    log_density += log_eppf(sizes, prior, concentration=np.exp(t), **params)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    cdf /= cdf[-1]
    edges = np.exp(np.interp(np.arange(1, 20) / 20, cdf, t))
    kernel = make_prior(prior, sum(sizes), concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.exp(np.interp(rng.random(4_000 * factor), cdf, t))
        for s, start in enumerate(draws):
            kernel.set_concentration(start)
            kernel.resample(sizes, shape, rate, rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.bincount(np.digitize(draws, edges), minlength=20), np.full(20, 1 / 20))

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize(
    "prior, params", [("pitman_yor", {"discount": 0.6}), ("finite", {"n_components": 12})]
)
@pytest.mark.parametrize("start", [-18.0, 6.0])
def test_slice_step_goes_far(prior, params, start, seed_sequence):
    """Chains from far out in a tail, where the slice is many steps wide, are soon at the law; and
    no step ends where it began, as one that gives up the part of the slice it began in would."""
    sizes, (shape, rate) = [50, 30, 15, 4, 1], (0.3, 0.2)
    t = np.linspace(-60, 8, 12_001)
    log_density = log_gamma_density(np.exp(t), shape, rate) + t
    log_density += log_eppf(sizes, prior, concentration=np.exp(t), **params)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    cdf /= cdf[-1]
    edges = np.exp(np.interp(np.arange(1, 10) / 10, cdf, t))
    kernel = make_prior(prior, sum(sizes), concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.empty(1_000 * factor)
        for s in range(len(draws)):
            kernel.set_concentration(np.exp(start))
            for _ in range(25):
                before = kernel.concentration
                kernel.resample(sizes, shape, rate, rng.bit_generator)
                assert abs(np.log(kernel.concentration / before)) > 1e-13
            draws[s] = kernel.concentration
        return Cells(np.bincount(np.digitize(draws, edges), minlength=10), np.full(10, 1 / 10))

    assert_p(run, seed_sequence=seed_sequence)
