"""The particle filter: against enumeration, and number by number against a slow reference."""

import numpy as np
import pytest
from reference.enumerate import partition_index
from reference.likelihoods import LOG_MARGINALS, log_posterior_concentration
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from reference.smc import filter_rows, offspring, thin
from scipy import stats
from scipy.special import logsumexp
from scipy.stats import chi2, norm
from support.cases import fit_case
from support.designs import combinations, everyday
from support.exactness import (
    case_posterior,
    case_rows,
    likelihood_names,
    make_likelihood,
    make_prior,
)
from support.laws import numbers_of
from support.probes import ResamplingProbe, audit
from support.pvalues import assert_p, mean_p, whole_of
from support.smc import (
    CONCENTRATION_PRIOR,
    INTEGRATED,
    all_labels,
    bind_rows,
    labels_of,
    sums_by_run,
)

from skdpm.hyperpriors import Gamma, HalfCauchy, LogNormal
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.particles._system import ParticleSystem

PRODUCT = [name for name in likelihood_names() if "product" in make_likelihood(name).capabilities]
SCHEMES = ("systematic", "stratified", "multinomial", "optimal")


def new_system(prior_name, n_samples, *, n_particles, scheme, threshold=0.5, integrated=False):
    prior, params = PRIOR_CASES[prior_name]
    return ParticleSystem(
        n_particles,
        scheme,
        threshold,
        make_prior(prior, n_samples, **params),
        Gamma(*CONCENTRATION_PRIOR) if integrated else None,
    )


def log_prior_of(prior_name, integrated=False):
    """log p of sizes by the reference; integrated over the kernel's nodes."""
    prior, params = PRIOR_CASES[prior_name]
    if not integrated:
        return lambda sizes: log_eppf(sizes, prior, **params)
    nodes, log_weights = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    params = {**params, "concentration": nodes}
    return lambda sizes: logsumexp(log_weights + log_eppf(sizes, prior, **params))


def log_marginal_of(name, X, params):
    return lambda rows: LOG_MARGINALS[name.removesuffix("_complete")](X[list(rows)], **params)


@combinations(prior=PRIOR_CASES, likelihood=PRODUCT)
def test_following_all_choices_is_enumeration(likelihood, prior):
    """With as many particles as partitions "optimal" drops none: their weights are the joint
    densities, and sum to the evidence."""
    X, posterior = case_rows(likelihood), case_posterior(likelihood, prior)
    system = new_system(prior, len(X), n_particles=52, scheme="optimal")
    system.begin([bind_rows(make_likelihood(likelihood), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    audit(system)
    assert abs(system.log_evidence - posterior.log_evidence) < 1e-10
    assert system.n_resampled == 0
    at = partition_index(all_labels(system))
    assert len(set(at)) == system.n_current == np.isfinite(posterior.log_joint).sum()
    np.testing.assert_allclose(system.log_weights(), posterior.log_joint[at], atol=1e-10)


@combinations(prior=INTEGRATED, likelihood=PRODUCT)
@pytest.mark.long
def test_enumeration_without_the_concentration(likelihood, prior):
    """The same where the concentration is integrated out; its law given each partition."""
    X = case_rows(likelihood)
    fixed = case_posterior(likelihood, prior)
    log_prior, (name, params) = log_prior_of(prior, integrated=True), PRIOR_CASES[prior]
    system = new_system(prior, len(X), n_particles=52, scheme="optimal", integrated=True)
    system.begin([bind_rows(make_likelihood(likelihood), X)])
    system.run(np.random.PCG64(0), 0, len(X))
    assert system.n_current == np.isfinite(fixed.log_joint).sum()
    nodes, log_hyper = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    log_joint = []
    for p, labels in enumerate(all_labels(system)):
        sizes = np.bincount(labels)
        at = int(partition_index(labels))
        log_likelihood = fixed.log_joint[at] - log_eppf(sizes, name, **params)
        log_joint.append(log_prior(sizes) + log_likelihood)
        log_law = log_hyper + log_eppf(sizes, name, **{**params, "concentration": nodes})
        grid, weights = system.concentration_weights(p)
        np.testing.assert_array_equal(grid, nodes)
        np.testing.assert_allclose(weights, np.exp(log_law - logsumexp(log_law)), atol=1e-12)
    np.testing.assert_allclose(system.log_weights(), log_joint, atol=1e-10)


@pytest.mark.parametrize("prior", ["dp", "finite"])
def test_nodes_are_a_quadrature(prior):
    """Evidence by nodes, against quadrature with ten thousands of points."""
    name, params = PRIOR_CASES[prior]
    X = case_rows("bernoulli")
    hyperpriors = {
        Gamma(1.0, 1.0): (1.0, 1.0),
        Gamma(0.2, 3.0): (0.2, 3.0),
        Gamma(30.0, 0.1): (30.0, 0.1),
        HalfCauchy(0.7): stats.halfcauchy(scale=0.7),
        LogNormal(-1.0, 2.0): stats.lognorm(2.0, scale=np.exp(-1.0)),
        LogNormal(2.0, 0.05): stats.lognorm(0.05, scale=np.exp(2.0)),
    }
    for hyperprior, density in hyperpriors.items():
        law = log_posterior_concentration(
            X,
            "bernoulli",
            name,
            likelihood_params=numbers_of(make_likelihood("bernoulli")),
            prior_params={k: v for k, v in params.items() if k != "concentration"},
            concentration_prior=density,
        )
        kernel = make_prior(name, len(X), **params)
        system = ParticleSystem(52, "optimal", 0.5, kernel, hyperprior)
        system.begin([bind_rows(make_likelihood("bernoulli"), X)])
        system.run(np.random.PCG64(0), 0, len(X))
        assert abs(system.log_evidence - law.log_evidence) < 1e-9


@combinations(
    scheme=SCHEMES,
    integrated=[False, True],
    case=[("gaussian", "dp"), ("bernoulli", "finite"), ("poisson", "pitman_yor")],
)
@pytest.mark.some(2)
def test_filter_is_the_reference(case, integrated, scheme):
    """The same uniform numbers give the same particles and weights."""
    likelihood, prior = case
    case = fit_case(likelihood, n_samples=14)
    n_resampled = 0
    for n_particles, threshold in ((6, 0.5), (3, 1.0)):
        system = new_system(
            prior,
            14,
            n_particles=n_particles,
            scheme=scheme,
            threshold=threshold,
            integrated=integrated,
        )
        system.begin([bind_rows(case.likelihood, case.X)])
        system.run(np.random.PCG64(n_particles), 0, 14)
        audit(system)
        expected = filter_rows(
            14,
            log_marginal_of(likelihood, case.X, case.params),
            log_prior_of(prior, integrated),
            np.random.Generator(np.random.PCG64(n_particles)).random,
            n_particles=n_particles,
            scheme=scheme,
            threshold=threshold,
        )
        np.testing.assert_array_equal(all_labels(system), expected.labels)
        np.testing.assert_allclose(system.log_weights(), expected.log_w, atol=1e-9)
        assert abs(system.log_evidence - expected.log_evidence) < 1e-9
        assert system.n_resampled == expected.n_resampled
        n_resampled += expected.n_resampled
    assert n_resampled > 0


@pytest.mark.parametrize("name", PRODUCT)
def test_one_component(name):
    """A finite mixture of one component: no particle has a choice."""
    case = fit_case(name, n_samples=40)
    prior = make_prior("finite", 40, concentration=1.7, n_components=1)
    for integrated in (None, Gamma(*CONCENTRATION_PRIOR)):
        system = ParticleSystem(3, "systematic", 0.5, prior, integrated)
        system.begin([bind_rows(case.likelihood, case.X)])
        system.run(np.random.PCG64(0), 0, 40)
        expected = log_marginal_of(name, case.X, case.params)(range(40))
        assert abs(system.log_evidence - expected) < 1e-10 * abs(expected)


@pytest.mark.parametrize(
    "prior, integrated",
    everyday([("dp", False), ("dp", True), ("finite", True)], ("dp", False), n_values=2),
)
def test_without_data_the_evidence_is_one(prior, integrated):
    """Weights of choices sum to 1 for any number of clusters; also where tables and the nodes
    have to be made for more."""
    n = 700
    nothing = np.full((n, 1), np.nan)
    name, params = PRIOR_CASES[prior]
    params = {**params, "concentration": 600.0}
    if prior == "finite":
        params["n_components"] = 400
    kernel = make_prior(name, n, **params)
    system = ParticleSystem(
        4, "systematic", 1.0, kernel, Gamma(600.0, 1.0) if integrated else None
    )
    system.begin([bind_rows(make_likelihood("bernoulli"), nothing)])
    system.run(np.random.PCG64(1), 0, n)
    audit(system)
    assert min(len(system.sizes_of(p)) for p in range(4)) > 260
    assert abs(system.log_evidence) < 1e-9


@pytest.mark.parametrize("prior", INTEGRATED)
def test_law_of_the_concentration_follows_the_rows(prior):
    """After many rows products of factors are still the law in closed form."""
    n = 120
    X = np.random.default_rng(3).integers(2, size=(n, 6)).astype(float)
    name, params = PRIOR_CASES[prior]
    system = new_system(prior, n, n_particles=4, scheme="systematic", integrated=True)
    system.begin([bind_rows(make_likelihood("bernoulli"), X)])
    system.run(np.random.PCG64(1), 0, n)
    nodes, log_hyper = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    for p in range(4):
        sizes = system.sizes_of(p)
        log_law = log_hyper + log_eppf(sizes, name, **{**params, "concentration": nodes})
        expected = np.exp(log_law - logsumexp(log_law))
        np.testing.assert_allclose(system.concentration_weights(p)[1], expected, atol=1e-11)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_goes_on_to_the_bit(scheme):
    """Rows in two calls, and a system made from the state of another."""
    case = fit_case("gaussian", n_samples=60)
    for integrated, prior in ((False, "pitman_yor"), (True, "dp"), (True, "finite")):
        ends = []
        for stops in ((60,), (25, 60), (25, "state", 60)):
            bit_generator = np.random.PCG64(2)
            settings = {"n_particles": 8, "scheme": scheme, "integrated": integrated}
            system = new_system(prior, 60, **settings)
            system.begin([bind_rows(case.likelihood, case.X)])
            first = 0
            for stop in stops:
                if stop == "state":
                    state = system.get_state()
                    system = new_system(prior, 60, **settings)
                    system.set_state([bind_rows(case.likelihood, case.X)], state)
                else:
                    system.run(bit_generator, first, stop)
                    first = stop
            audit(system)
            ends.append(system)
        for end in ends[1:]:
            np.testing.assert_array_equal(end.log_weights(), ends[0].log_weights())
            np.testing.assert_array_equal(all_labels(end), all_labels(ends[0]))
            for p in range(end.n_current):
                np.testing.assert_array_equal(end.stats_of(p), ends[0].stats_of(p))


@pytest.mark.parametrize("scheme", everyday(["systematic", "optimal"], "optimal"))
def test_shared_clusters_hold_their_items(scheme):
    """Clusters by reference: every particle's statistics are those of its labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) + 2.0 * rng.integers(4, size=(300, 1))
    likelihood = make_likelihood("gaussian")
    model = bind_rows(likelihood, X)
    system = new_system("dp", 300, n_particles=20, scheme=scheme, threshold=0.9)
    system.begin([model])
    bit_generator = np.random.PCG64(0)
    for first in range(0, 300, 50):
        system.run(bit_generator, first, first + 50)
        audit(system)
        for p in range(system.n_current):
            labels = system.labels_of(p)
            stats = system.stats_of(p)
            for k in range(labels.max() + 1):
                rows = X[: first + 50][labels == k]
                assert stats[k, 0] == len(rows)
                np.testing.assert_allclose(
                    model.log_marginals(stats[[k]])[0],
                    LOG_MARGINALS["gaussian"](rows, **numbers_of(likelihood)),
                    rtol=1e-9,
                )
    assert system.n_resampled > 5
    slots = [slot for p in range(20) for slot in system.slots_of(p)]
    assert len(set(slots)) < len(slots)


def test_families_share_nothing_across_hyperparameters():
    """Particles with hyperparameters of their own: each evidence is that of its own values."""
    case = fit_case("poisson", n_samples=30)
    prior = make_prior("finite", 30, concentration=1.7, n_components=1)
    for threshold, step in ((0.0, 1.05), (1.0, 2.0)):
        models = [bind_rows(case.likelihood, case.X) for _ in range(4)]
        for m, model in enumerate(models):
            model.set_hyperparameters(model.hyperparameters() * step**m)
        system = ParticleSystem(4, "systematic", threshold, prior)
        system.begin(models)
        system.run(np.random.PCG64(0), 0, 30)
        audit(system)
        own = [
            LOG_MARGINALS["poisson"](
                case.X, shape=case.params["shape"] * f, rate=case.params["rate"] * f
            )
            for f in step ** np.arange(4)
        ]
        if threshold == 0.0:
            np.testing.assert_allclose(system.log_weights(), np.array(own) - np.log(4))
        else:
            assert system.n_resampled > 0
            assert len({system.family_of(p) for p in range(4)}) < 4


def test_an_outlier_of_one_particle():
    """A row far from all clusters of one particle, on top of a tight one of another: neither
    weight underflows."""
    X = np.array([[0.0], [0.0], [0.0], [0.0], [1e4], [1e4], [1e4]])
    likelihood = make_likelihood("gaussian_diag").set_params(
        mean=0.0, mean_precision=1.0, df=400.0, scale=1e-12
    )
    prior = make_prior("finite", len(X), concentration=1.0, n_components=1)
    tight = bind_rows(likelihood, X)
    wide = bind_rows(likelihood, X)
    values = wide.hyperparameters()
    values[-1] = 1e12
    wide.set_hyperparameters(values)
    system = ParticleSystem(2, "systematic", 0.0, prior)
    system.begin([tight, wide])
    system.run(np.random.PCG64(0), 0, len(X))
    params = {"mean": 0.0, "mean_precision": 1.0, "df": 400.0}
    for log_w, scale in zip(system.log_weights(), (1e-12, 1e12), strict=True):
        expected = LOG_MARGINALS["gaussian_diag"](X, scale=scale, **params) - np.log(2)
        assert abs(log_w - expected) < 1e-6 * abs(expected)


def unbiased_run(likelihood, prior, *, n_particles, scheme, integrated=False):
    """A run for `assert_p`: the mean over systems of the weight on each partition."""
    X, posterior = case_rows(likelihood), case_posterior(likelihood, prior)
    model = bind_rows(make_likelihood(likelihood), X)
    system = new_system(
        prior, len(X), n_particles=n_particles, scheme=scheme, threshold=1.0, integrated=integrated
    )

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        n_runs, n_resampled = whole_of(4_000, factor), 0
        labels, log_weights = [], []
        for _ in range(n_runs):
            system.begin([model])
            system.run(bit_generator, 0, len(X))
            n_resampled += system.n_resampled
            labels.append(labels_of(system))
            log_weights.append(system.log_weights() - posterior.log_evidence)
        cells = partition_index(np.concatenate(labels))
        Y = sums_by_run(cells, log_weights, len(posterior.partitions))
        assert n_resampled > n_runs / 2
        return mean_p(Y, posterior.probabilities)

    return run


DESIGNS = [
    ("gaussian", "dp", "systematic"),
    ("bernoulli", "pitman_yor", "stratified"),
    ("categorical", "mfm", "multinomial"),
    ("poisson", "finite", "optimal"),
]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood, prior, scheme", everyday(DESIGNS, DESIGNS[1], n_values=3))
def test_unbiased(likelihood, prior, scheme, seed_sequence):
    """Three particles, resampled before every draw: on average the weight on each partition is
    its joint density."""
    run = unbiased_run(likelihood, prior, n_particles=3, scheme=scheme)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("scheme", ["systematic", "stratified", "multinomial"])
def test_resampling_is_unbiased(scheme, seed_sequence):
    w = np.array([0.1, 3.0, 0.0, 1.1, 0.4, 0.4])

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.array(
            [
                ResamplingProbe.resample(scheme, w, bit_generator)
                for _ in range(round(5_000 * factor))
            ]
        )
        assert (counts.sum(axis=1) == len(w)).all()
        assert (counts[:, 2] == 0).all()
        share = len(w) * w / w.sum()
        if scheme == "systematic":
            assert (np.abs(counts - share) < 1.0).all()
        at = np.arange(5)  # they sum to a constant
        keep = counts[:, at].std(axis=0) > 0
        gap = counts[:, at].mean(axis=0)[keep] - share[at][keep]
        covariance = np.cov(counts[:, at][:, keep].T)
        statistic = len(counts) * gap @ np.linalg.pinv(covariance) @ gap
        return float(chi2.sf(statistic, np.linalg.matrix_rank(covariance)))

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_reference_resampling():
    """Averages over all uniform numbers: exact up to their grid."""
    w = np.array([0.1, 3.0, 0.0, 1.1, 0.4, 0.4, 0.7])
    grid = (np.arange(20_000) + 0.5) / 20_000
    counts = np.mean([offspring("systematic", w, lambda u=u: u) for u in grid], axis=0)
    np.testing.assert_allclose(counts, len(w) * w / w.sum(), atol=1e-3)
    w = w[w > 0]
    for n_kept in range(1, len(w)):
        outcomes = [thin(np.log(w), n_kept, u) for u in grid[::20]]
        assert all(keep.sum() == n_kept for keep, _ in outcomes)
        mean = np.mean([keep * np.exp(log_w) for keep, log_w in outcomes], axis=0)
        np.testing.assert_allclose(mean, w, atol=5e-3)


def test_thinning_keeps_exactly_so_many():
    rng = np.random.default_rng(0)
    for n_kept in (1, 2, 7, 30):
        for spread in (0.0, 1.0, 30.0, 400.0):
            log_w = spread * rng.normal(size=31)
            bit_generator = np.random.PCG64(5)
            keep, after = ResamplingProbe.thin(log_w, n_kept, bit_generator)
            u = np.random.Generator(np.random.PCG64(5)).random()
            assert keep.sum() == n_kept
            if spread == 400.0:
                continue  # all weights but a few are 0
            expected, expected_log_w = thin(log_w, n_kept, u)
            np.testing.assert_array_equal(keep, expected)
            np.testing.assert_allclose(after[keep], expected_log_w[keep])


def test_thinning_of_weights_that_underflow_beside_others():
    """They are thinned among themselves, and weigh no more than before."""
    bit_generator = np.random.PCG64(0)
    log_w = np.full(30, -800.0)
    log_w[3] = 0.0
    keep, after = ResamplingProbe.thin(log_w, 10, bit_generator)
    assert keep.sum() == 10
    assert after[3] == 0.0
    light = np.delete(after[keep], np.flatnonzero(keep) == 3)
    np.testing.assert_allclose(light, -800.0 + np.log(29 / 9))
    log_w = -500.0 * np.arange(12)
    keep, after = ResamplingProbe.thin(log_w, 7, bit_generator)
    np.testing.assert_array_equal(keep, np.arange(12) < 7)
    np.testing.assert_allclose(after[:7], log_w[:7])


def test_rows_that_nothing_explains():
    X = np.array([[0.0], [1.0], [0.0]])
    model = bind_rows(make_likelihood("bernoulli"), X)
    system = ParticleSystem(2, "systematic", 0.5, make_prior("dp", 3, concentration=np.nan))
    system.begin([model])
    with pytest.raises(FloatingPointError, match="row 1"):
        system.run(np.random.PCG64(0), 0, 3)
    with pytest.raises(IndexError, match="rows 2:5"):
        system.run(np.random.PCG64(0), 2, 5)


@pytest.mark.slow
def test_evidence_estimate_has_its_error(seed_sequence):
    """Rows of a single column: exact evidence by recursion over counts of two kinds."""
    X = np.array([0.0, 1.0, 1.0, 0.0] * 3)[:, None]
    a, b = 0.6, 1.4
    model = bind_rows(make_likelihood("bernoulli").set_params(a=a, b=b), X)
    log_z = log_evidence_of_kinds(X[:, 0].astype(int), a, b, 1.3)
    system = new_system("dp", len(X), n_particles=30, scheme="systematic")

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        estimates = []
        for _ in range(round(1_000 * factor)):
            system.begin([model])
            system.run(bit_generator, 0, len(X))
            estimates.append(np.exp(system.log_evidence - log_z))
        z = (np.mean(estimates) - 1) / np.std(estimates) * np.sqrt(len(estimates))
        return float(2 * norm.sf(abs(z)))

    assert_p(run, seed_sequence=seed_sequence)


def log_evidence_of_kinds(x, a, b, concentration):
    """log p(x), x of zeros and ones, under a Dirichlet process: rows of a kind are exchangeable,
    so states are multisets of clusters by their counts of both kinds."""
    states = {(): 0.0}
    for n, one in enumerate(x):
        after = {}
        for clusters, log_p in states.items():
            for j in range(len(clusters) + 1):
                zeros, ones = clusters[j] if j < len(clusters) else (0, 0)
                size = zeros + ones
                term = np.log((size or concentration) / (n + concentration))
                term += np.log(((a + ones) if one else (b + zeros)) / (a + b + size))
                rest = clusters[:j] + clusters[j + 1 :]
                key = tuple(sorted((*rest, (zeros + (not one), ones + one))))
                after.setdefault(key, []).append(log_p + term)
        states = {key: logsumexp(terms) for key, terms in after.items()}
    return logsumexp(list(states.values()))
