"""The kernels of the partition priors: their laws, and the update of the concentration."""

import math
import warnings
from functools import cache

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_sizes
from reference.likelihoods import log_posterior_concentration
from reference.priors import log_eppf, log_gamma_density
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy import stats
from scipy.special import logsumexp
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from support.designs import combinations, everyday, thirds
from support.exactness import SAMPLERS, make_likelihood, make_prior, make_state
from support.pvalues import Cells, assert_p

from skdpm import FiniteMixture
from skdpm.hyperpriors import Gamma
from skdpm.mixture.priors import (
    FiniteDirichletPrior,
    MixtureOfFiniteMixturesPrior,
    PartitionPrior,
)
from skdpm.mixture.priors._mixture_of_finite_mixtures import tabulated_law

PRIORS = {
    **PRIOR_CASES,
    "dp_small": ("dp", {"concentration": 1e-3}),
    "dp_large": ("dp", {"concentration": 1e3}),
    "pitman_yor_zero_discount": ("pitman_yor", {"concentration": 1.3, "discount": 0.0}),
    "pitman_yor_large_discount": ("pitman_yor", {"concentration": -0.5, "discount": 0.95}),
    "finite_one": ("finite", {"concentration": 0.7, "n_components": 1}),
    "finite_sparse": ("finite", {"concentration": 0.01, "n_components": 4}),
    "finite_many": ("finite", {"concentration": 1.3, "n_components": 100}),
    "mfm_geometric": ("mfm", {"concentration": 1.7, "n_components_prior": "geometric"}),
    "mfm_small": ("mfm", {"concentration": 1e-6, "n_components_prior": "geometric"}),
    "mfm_large": ("mfm", {"concentration": 1e6, "n_components_prior": "poisson"}),
}
# What stays fixed while the concentration is resampled.
RESAMPLED = {
    "dp": ("dp", {}),
    "pitman_yor": ("pitman_yor", {"discount": 0.35}),
    "pitman_yor_zero_discount": ("pitman_yor", {"discount": 0.0}),
    "finite": ("finite", {"n_components": 3}),
    "mfm": ("mfm", {"n_components_prior": "poisson"}),
}
each_prior = thirds("prior, params", PRIORS.values(), ids=PRIORS)
each_resampled = thirds("prior, params", RESAMPLED.values(), ids=RESAMPLED)


@cache
def distinct_sizes(n):
    """The sizes of blocks that partitions of n items can have, largest first."""
    padded = np.unique(-np.sort(-partition_sizes(enumerate_partitions(n)), axis=1), axis=0)
    return [sizes[sizes > 0] for sizes in padded]


def state_without_data(n, prior):
    """A state whose likelihood is 1: every entry is missing."""
    return make_state(make_likelihood("bernoulli"), np.full((n, 1), np.nan), prior)


@each_prior
@pytest.mark.parametrize("n", everyday([1, 2, 5, 8], 1, 5))
def test_log_probability_is_the_eppf(prior, params, n):
    kernel = make_prior(prior, n, **params)
    for sizes in distinct_sizes(n):
        expected = log_eppf(sizes, prior, **params)
        assert kernel.log_probability(sizes) == pytest.approx(expected, rel=1e-12, abs=1e-12)


@each_prior
@pytest.mark.parametrize("n", everyday([1, 2, 3, 5, 8], 1, 5))
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


@pytest.mark.slow
@each_prior
def test_any_number_of_items(prior, params):
    """Without tables nothing depends on the number of items that the prior was made for."""
    kernel = make_prior(prior, 3, **params)
    for n in (1, 2, 6):
        for sizes in distinct_sizes(n):
            expected = log_eppf(sizes, prior, **params)
            assert kernel.log_probability(sizes) == pytest.approx(expected, rel=1e-12, abs=1e-12)
            bigger = make_prior(prior, n + 1, **params)
            np.testing.assert_array_equal(kernel.log_weights(sizes), bigger.log_weights(sizes))
    assert kernel.log_probability([]) == 0.0
    np.testing.assert_array_equal(kernel.log_weights([]), [0.0])


@each_prior
def test_split_is_a_ratio_of_probabilities(prior, params):
    kernel = make_prior(prior, 9, **params)
    if kernel.most_clusters < 3:
        return
    for left, right in ((1, 1), (4, 1), (2, 5)):
        rest = [9 - left - right, left, right]
        expected = kernel.log_probability(rest) - kernel.log_probability([rest[0], left + right])
        assert kernel.log_split(2, left, right) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def table_of(prior, n, n_clusters, first=()):
    """log V of the tables for some numbers of clusters: of a state in which they are single items,
    but for one. `first`: numbers of clusters that the state has before."""
    state = state_without_data(n, prior)
    values = []
    for k in [*first, *n_clusters]:
        state.assign(np.minimum(np.arange(n), k - 1))
        prior.set_concentration(prior.concentration)
        values.append(state.compute_log_joint())
    return values[len(first) :]


@each_resampled
def test_tables_grow_with_the_clusters(prior, params):
    """Filled a few at a time, before and after the concentration changes, they are the same."""
    n, most = 300, 200 if prior != "finite" else 3
    numbers = sorted({1, 2, most // 4, most // 2, most} - {0})
    slowly = make_prior(prior, n, concentration=1.0, **params)
    values = table_of(slowly, n, numbers)
    assert slowly.n_reserved < n
    at_once = table_of(make_prior(prior, n, concentration=1.0, **params), n, numbers, [most])
    np.testing.assert_array_equal(values, at_once)
    expected = [
        log_eppf([n - k + 1, *[1] * (k - 1)], prior, concentration=1.0, **params) for k in numbers
    ]
    np.testing.assert_allclose(values, expected, rtol=1e-11)


# Mixtures of finite mixtures.

# log V_{n,k} computed with 60 digits: law, n, k, concentration, log V.
LOG_V = [
    ("poisson", 10, 3, 1.0, -18.88002633263066),
    ("poisson", 10, 10, 1e-06, -137.1414536203128),
    ("poisson", 10, 10, 1e6, -21.29215483272539),
    ("poisson", 1000, 1, 0.3, -5908.274843179962),
    ("poisson", 1000, 40, 2.5, -6202.312174221623),
    ("poisson", 1000, 1000, 0.8, -7360.593133814084),
    ("poisson", 100000, 1, 1.0, -1051300.221879122),
    ("poisson", 100000, 25, 1e-06, -1051619.281541391),
    ("poisson", 100000, 25, 0.5, -1051427.9852044466),
    ("poisson", 100000, 25, 1e6, -1703290.7635128528),
    ("poisson", 100000, 3000, 0.1, -1060233.0221829591),
    ("poisson", 100000, 100000, 1.0, -1189910.623103915),
    ("geometric", 10, 3, 1.0, -18.86291772674561),
    ("geometric", 10, 10, 1e-06, -104.56485671048578),
    ("geometric", 10, 10, 1e6, -3.634559775605717),
    ("geometric", 1000, 1, 0.3, -5909.58239805236),
    ("geometric", 1000, 40, 2.5, -6101.000773945648),
    ("geometric", 1000, 1000, 0.8, -682.6560732119407),
    ("geometric", 100000, 1, 1.0, -1051301.5244662147),
    ("geometric", 100000, 25, 1e-06, -1051511.7661301102),
    ("geometric", 100000, 25, 0.5, -1051376.7822056464),
    ("geometric", 100000, 25, 1e6, -1703239.8100209236),
    ("geometric", 100000, 3000, 0.1, -1037298.8372413431),
    ("geometric", 100000, 100000, 1.0, -65483.89673161929),
]


def log_v(law, n, k, concentration):
    """log V_{n,k} of a partition into singletons and one cluster of all others."""
    prior = MixtureOfFiniteMixturesPrior(n, concentration, law)
    m = np.arange(1, n - k + 1)
    return prior.log_probability([n - k + 1, *[1] * (k - 1)]) - np.log(concentration + m).sum()


@pytest.mark.parametrize("law, n, k, concentration, expected", LOG_V)
def test_v_of_a_mixture_of_finite_mixtures(law, n, k, concentration, expected):
    assert log_v(law, n, k, concentration) == pytest.approx(expected, rel=2e-12)


@pytest.mark.parametrize("law", ["poisson", "geometric"])
@pytest.mark.parametrize("concentration", [1e-6, 0.03, 1.0, 40.0, 1e6])
@pytest.mark.parametrize("n, k", [(1, 1), (6, 2), (30, 30), (2000, 17), (2000, 1500)])
def test_recursion_of_v(law, concentration, n, k):
    """V_{n,k} = (n + g k) V_{n+1,k} + V_{n+1,k+1} (Gnedin & Pitman 2006, eq. 8), g the
    concentration."""
    stay = np.log(n + concentration * k) + log_v(law, n + 1, k, concentration)
    new = log_v(law, n + 1, k + 1, concentration)
    assert np.logaddexp(stay, new) == pytest.approx(log_v(law, n, k, concentration), rel=1e-11)


def test_named_laws_and_tables_agree():
    """The two ways to end the sum: by log-concavity, and by the probability of what is left."""
    components = np.arange(1, 3_000)
    for law, log_pmf in (
        ("poisson", stats.poisson(1, loc=1).logpmf),
        ("geometric", stats.geom(0.1).logpmf),
    ):
        table = tabulated_law(log_pmf, 1)
        np.testing.assert_allclose(table, log_pmf(components[: len(table)]), rtol=1e-12)
        for concentration in (1e-6, 0.7, 1e3):
            for sizes in ([1], [4, 1], [1] * 12, [400, 30, 2, 1]):
                n = sum(sizes)
                named = MixtureOfFiniteMixturesPrior(n, concentration, law)
                tabulated = MixtureOfFiniteMixturesPrior(n, concentration, table)
                expected = named.log_probability(sizes)
                assert tabulated.log_probability(sizes) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n", everyday([1, 4, 7], 1, 4))
@pytest.mark.parametrize(
    "probabilities", [[1.0], [0, 0, 1.0], [0.2, 0, 0, 0.8], [0.4, 0.3, 0.2, 0.1, 0, 0]], ids=str
)
def test_laws_of_few_components(n, probabilities):
    """Holes, an end, a fixed number: sums to 1, as the reference says, and no more clusters."""
    with np.errstate(divide="ignore"):
        log_p = np.log(probabilities)
    law = tabulated_law(lambda K: log_p[K - 1] if K <= len(log_p) else -np.inf, n)
    most = np.flatnonzero(probabilities)[-1] + 1
    assert len(law) == most
    prior = MixtureOfFiniteMixturesPrior(n, 0.6, law)
    assert prior.most_clusters == min(n, most)
    total = 0.0
    for labels in enumerate_partitions(n):
        sizes = np.bincount(labels)
        expected = log_eppf(sizes, "mfm", concentration=0.6, n_components_prior=log_p)
        assert prior.log_probability(sizes) == pytest.approx(expected, rel=1e-12, abs=1e-12)
        total += np.exp(expected)
    assert total == pytest.approx(1.0, abs=1e-12)
    if probabilities == [0, 0, 1.0]:
        finite = FiniteDirichletPrior(n, 3 * 0.6, 3)
        np.testing.assert_allclose(prior.log_weights([1]), finite.log_weights([1]), rtol=1e-12)


@pytest.mark.parametrize("concentration", [1e-6, 0.5, 10.0])
def test_improbable_components_that_matter(concentration):
    """Six items apart are far more probable under 1000 components than under 6: a sum that ended
    where little probability is left would miss most of it."""
    log_p = np.full(1000, -np.inf)
    log_p[[5, 999]] = 0.0, np.log(1e-17)
    prior = MixtureOfFiniteMixturesPrior(6, concentration, log_p)
    expected = log_eppf([1] * 6, "mfm", concentration=concentration, n_components_prior=log_p)
    assert prior.log_probability([1] * 6) == pytest.approx(expected, rel=1e-12)


def test_law_by_a_callable_is_long_enough():
    """A far component is not overlooked, and as many clusters as rows remain possible."""
    far = tabulated_law(lambda K: np.where((K == 1) | (K == 70_000), np.log(0.5), -np.inf), 5)
    assert len(far) == 70_000 and np.exp(far[[0, -1]]).sum() == pytest.approx(1.0)
    assert len(tabulated_law(stats.poisson(1, loc=1).logpmf, 5_000)) >= 5_000
    scalar = tabulated_law(lambda K: math.log(0.5) * K, 5)
    np.testing.assert_allclose(scalar, tabulated_law(lambda K: np.log(0.5) * K, 5))


# Priors that do not say what they must.


class Forgotten(PartitionPrior):
    """A prior without sigma and V."""


@pytest.mark.parametrize("sampler", ["gibbs", "pgsm", "sams", "split_merge"])
def test_forgotten_overrides_are_refused(sampler):
    """They are no Dirichlet process: samplers refuse, and so does the concentration."""
    prior = Forgotten(6)
    prior.set_concentration(1.0)
    assert math.isnan(prior.sigma) and math.isnan(prior.log_probability([3, 2, 1]))
    assert np.isnan(prior.log_weights([3, 2, 1])).all()
    assert prior.capabilities == frozenset() and prior.most_clusters == 6
    state = state_without_data(6, prior)
    state.assign([0, 1, 1, 2, 0, 0])
    assert math.isnan(state.compute_log_joint())
    bit_generator = np.random.PCG64(0)
    with pytest.raises(FloatingPointError):
        SAMPLERS[sampler]().kernel().run(state, bit_generator)
    with pytest.raises(FloatingPointError, match="the concentration has no density"):
        prior.resample([3, 2, 1], Gamma(1.0, 1.0), bit_generator)
    assert prior.concentration == 1.0
    with pytest.raises(NotImplementedError, match="Forgotten must implement `weight_parameters`"):
        prior.weight_parameters([3, 2, 1])


def test_what_priors_say_of_themselves():
    made = {name: make_prior(prior, 8, **params) for name, (prior, params) in PRIOR_CASES.items()}
    assert {name: sorted(prior.capabilities) for name, prior in made.items()} == {
        "dp": ["constant_ratios", "weights"],
        "pitman_yor": ["constant_ratios", "weights"],
        "pitman_yor_negative": ["constant_ratios", "weights"],
        "finite": ["constant_ratios", "n_components", "weights"],
        "mfm": [],
    }
    assert made["pitman_yor_negative"].lowest_concentration == -0.5
    assert {made[name].lowest_concentration for name in ("dp", "finite", "mfm")} == {0.0}
    assert {name: prior.most_clusters for name, prior in made.items()} == {
        "dp": 8,
        "pitman_yor": 8,
        "pitman_yor_negative": 8,
        "finite": 3,
        "mfm": 8,
    }


@pytest.mark.parametrize("sampler", ["sub_cluster", "blocked_gibbs"])
def test_samplers_that_draw_weights_say_so(sampler):
    X = np.zeros((5, 2))
    model = FiniteMixture(None, sampler=sampler)
    with pytest.raises(ValueError, match=r"weights.*Gibbs or PGSM.*fix n_components"):
        model.fit(X)


@pytest.mark.slow
def test_unknown_number_of_components_in_an_estimator():
    rng = np.random.default_rng(0)
    truth = np.arange(90) % 3
    X = rng.normal(size=(90, 2)) + 8.0 * np.array([[0, 0], [1, 0], [0, 1]])[truth]
    settings = {"n_chains": 2, "n_warmup": 60, "n_draws": 60, "random_state": 0}
    for law in ("poisson", "geometric", stats.randint(1, 31).logpmf):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = FiniteMixture(None, n_components_prior=law, **settings).fit(X)
        assert adjusted_rand_score(truth, model.labels_) == 1.0
        assert model.n_clusters_ == 3 and 0.9 < model.weights_.sum() < 1.0
        assert len(np.unique(model.concentration_samples_)) > 100
        assert np.isfinite(model.score(X))
    with pytest.raises(
        ValueError, match="init has 90 clusters, more than the 30 that the prior allows"
    ):
        FiniteMixture(None, n_components_prior=law, init="singletons", **settings).fit(X)
    # With a fixed number the law is not even looked at.
    fixed = FiniteMixture(4, n_components_prior="no such", **{**settings, "n_chains": 1}).fit(X)
    assert fixed.n_clusters_ == 3


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


@pytest.mark.parametrize(
    "prior, params, concentration_prior",
    [
        # Its law by quadrature, over concentrations down to 1e-260 and up to 20 components, takes
        # as long as all others.
        pytest.param(*case, hyperprior, id=f"{name} {hyperprior}", marks=[pytest.mark.slow] * slow)
        for name, case in RESAMPLED.items()
        for hyperprior in [(2.0, 0.8), (0.1, 5.0), (1.0, 0.1), (9.0, 0.3)]
        for slow in [name == "mfm" and hyperprior != (9.0, 0.3)]
    ],
)
@pytest.mark.some(5)
def test_resampled_concentration(prior, params, concentration_prior, seed_sequence):
    """(partition, concentration) from the joint posterior; one update of the concentration given
    the partition leaves the joint law as it is."""
    shape, rate = concentration_prior
    law = concentration_law("categorical", prior, params, concentration_prior)
    kernel = make_prior(prior, 5, concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        labels, concentration = law.draw(round(10_000 * factor), rng)
        sizes = partition_sizes(labels)
        for s, (row, n_clusters) in enumerate(zip(sizes, (sizes > 0).sum(axis=1), strict=True)):
            kernel.set_concentration(concentration[s])
            kernel.resample(row[:n_clusters], Gamma(shape, rate), rng.bit_generator)
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
        kernel.resample(state.cluster_sizes(), Gamma(1.0, 1.0), bit_generator)
        assert kernel.concentration != before
        expected = log_eppf([3, 2, 1], prior, concentration=kernel.concentration, **params)
        assert state.compute_log_joint() == pytest.approx(expected, rel=1e-11)


@each_resampled
@pytest.mark.parametrize("likelihood", ["bernoulli", "relational"])
@pytest.mark.some(2)
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
        labels, concentration = law.draw(round(10_000 * factor), rng)
        for s in range(len(labels)):
            partition_prior.set_concentration(concentration[s])
            state.assign(labels[s])
            sampler.run(state, rng.bit_generator)
            partition_prior.resample(state.cluster_sizes(), Gamma(shape, rate), rng.bit_generator)
            labels[s], concentration[s] = state.cluster_labels(), partition_prior.concentration
        return Cells(law.count(labels, concentration), law.probabilities)

    assert_p(run, seed_sequence=seed_sequence)


@each_resampled
@pytest.mark.parametrize(
    "concentration_prior", everyday([(0.1, 5.0), (2.0, 0.8)], (2.0, 0.8)), ids=str
)
def test_one_row_says_nothing_about_the_concentration(
    prior, params, concentration_prior, seed_sequence
):
    """n = 1: an update, from the prior, leaves the prior; from a far start it reaches it."""
    shape, rate = concentration_prior
    kernel = make_prior(prior, 1, concentration=1.0, **params)
    edges = stats.gamma.ppf(np.linspace(0, 1, 21), shape, scale=1 / rate)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = rng.gamma(shape, 1 / rate, size=round(10_000 * factor))
        for s, start in enumerate(draws):
            kernel.set_concentration(start)
            kernel.resample([1], Gamma(shape, rate), rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.histogram(draws, edges)[0], np.full(20, 1 / 20))

    def run_from_afar(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.empty(round(1_000 * factor))
        for s in range(len(draws)):
            kernel.set_concentration(50.0)
            for _ in range(60):
                kernel.resample([1], Gamma(shape, rate), rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.histogram(draws, edges)[0], np.full(20, 1 / 20))

    assert_p(run, seed_sequence=seed_sequence)
    assert_p(run_from_afar, seed_sequence=seed_sequence)


RESAMPLED_OF_MANY = {
    "dp": {},
    "pitman_yor": {"discount": 0.6},
    "finite": {"n_components": 12},
    "mfm": {"n_components_prior": "poisson"},
}
SIZES = {"eight": [500, 300, 150, 40, 5, 3, 1, 1], "two": [999, 1], "ones": [1] * 10}


def cdf_of_log_concentration(t, sizes, prior, params, shape, rate):
    """Distribution function on a grid of log concentrations given sizes of clusters, under a Gamma
    hyperprior."""
    log_density = log_gamma_density(np.exp(t), shape, rate) + t
    log_density += log_eppf(sizes, prior, concentration=np.exp(t), **params)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    return cdf / cdf[-1]


@pytest.mark.slow
@combinations(prior=RESAMPLED_OF_MANY, sizes=SIZES)
def test_resampled_concentration_of_many_rows(prior, sizes, seed_sequence):
    """Against quadrature of p(sizes | concentration) Gamma(concentration), in 20 bins."""
    params, sizes = RESAMPLED_OF_MANY[prior], SIZES[sizes]
    shape, rate = 1.5, 0.2
    t = np.linspace(-40, 8, 8_001)
    cdf = cdf_of_log_concentration(t, sizes, prior, params, shape, rate)
    edges = np.exp(np.interp(np.arange(1, 20) / 20, cdf, t))
    kernel = make_prior(prior, sum(sizes), concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.exp(np.interp(rng.random(round(4_000 * factor)), cdf, t))
        for s, start in enumerate(draws):
            kernel.set_concentration(start)
            kernel.resample(sizes, Gamma(shape, rate), rng.bit_generator)
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
    cdf = cdf_of_log_concentration(t, sizes, prior, params, shape, rate)
    edges = np.exp(np.interp(np.arange(1, 10) / 10, cdf, t))
    kernel = make_prior(prior, sum(sizes), concentration=1.0, **params)

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        draws = np.empty(round(1_000 * factor))
        for s in range(len(draws)):
            kernel.set_concentration(np.exp(start))
            for _ in range(25):
                before = kernel.concentration
                kernel.resample(sizes, Gamma(shape, rate), rng.bit_generator)
                assert abs(np.log(kernel.concentration / before)) > 1e-13
            draws[s] = kernel.concentration
        return Cells(np.bincount(np.digitize(draws, edges), minlength=10), np.full(10, 1 / 10))

    assert_p(run, seed_sequence=seed_sequence)
