"""Particle systems over many rows: the exact evidence of rows of two kinds, learned Gaussian
hyperparameters, and what no enumeration sees."""

from functools import cache, partial

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions
from reference.hyperparameters import gaussian_log_marginals
from reference.likelihoods import LOG_MARGINALS
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from reference.smc import kinds_evidence
from scipy.special import logsumexp
from scipy.stats import chi2, gamma, norm
from support.cases import fit_case, make_estimator
from support.designs import everyday
from support.exactness import make_likelihood, make_prior
from support.kernels import bind
from support.probes import audit
from support.pvalues import assert_p
from support.smc import CONCENTRATION_PRIOR, fitted

from skdpm.hyperpriors import Gamma
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.samplers.smc import SMC

A, B = 0.1, 0.15
ORDERS = {
    "alternating": np.tile([0.0, 1.0], 24),
    "sorted": np.repeat([0.0, 1.0], 24),
}


def kinds_model(rows):
    likelihood = make_likelihood("bernoulli").set_params(a=A, b=B).resolve(rows[:, None])
    return bind(likelihood, likelihood.encode(rows[:, None]), None)


def priors_of(name, concentrations=None):
    """log p of sizes, at a concentration or averaged over nodes."""
    prior, params = PRIOR_CASES[name]
    if concentrations is None:
        return lambda sizes: log_eppf(sizes, prior, **params)
    nodes, log_weights = concentrations
    params = {**params, "concentration": nodes}
    return lambda sizes: logsumexp(log_weights + log_eppf(sizes, prior, **params))


@cache
def exact_kinds(name, integrated=False, concentration=None):
    """log evidence and E K of 24 rows of either kind."""
    prior, params = PRIOR_CASES[name]
    at = None
    if integrated:
        at = concentration_nodes(Gamma(*CONCENTRATION_PRIOR), 0.0625)
    elif concentration is not None:
        at = np.array([concentration]), np.zeros(1)
    # A law of Gibbs type: V_{n,k} times a factor of each size.
    sigma = {
        "dp": 0.0,
        "pitman_yor": params.get("discount", 0.0),
        "finite": -params["concentration"] / params.get("n_components", 1),
        "mfm": -params["concentration"],
    }[prior]
    return kinds_evidence(24, 24, priors_of(name, at), sigma, A, B)


def test_reference_of_two_kinds():
    """Against the sum over all partitions of few rows."""
    X = np.array([0.0, 1.0, 1.0, 0.0, 1.0])[:, None]
    for name, sigma in (("dp", 0.0), ("pitman_yor", PRIOR_CASES["pitman_yor"][1]["discount"])):
        log_prior = priors_of(name)
        partitions = enumerate_partitions(5)
        log_joint = [
            log_prior(np.bincount(z))
            + sum(LOG_MARGINALS["bernoulli"](X[z == k], a=A, b=B) for k in range(z.max() + 1))
            for z in partitions
        ]
        log_z, mean_k = kinds_evidence(2, 3, log_prior, sigma, A, B)
        assert abs(log_z - logsumexp(log_joint)) < 1e-12
        p = np.exp(log_joint - logsumexp(log_joint))
        assert abs(mean_k - p @ (1 + partitions.max(axis=1))) < 1e-12


def z_p(Y):
    """P-value of the hypothesis that rows of Y have mean zero: chi-squared."""
    gap = Y.mean(axis=0)
    statistic = len(Y) * gap @ np.linalg.solve(np.cov(Y.T), gap)
    return float(chi2.sf(statistic, len(gap)))


def kinds_run(prior, scheme, order="alternating", *, integrated=False, other=None, n_runs=300):
    """A run for `assert_p`: evidence and evidence times the number of clusters, both unbiased;
    with `other` those of particles weighed anew at another concentration."""
    log_z, mean_k = exact_kinds(prior, integrated, other)
    name, params = PRIOR_CASES[prior]
    system = ParticleSystem(
        40,
        scheme,
        1.0,
        make_prior(name, 48, **params),
        Gamma(*CONCENTRATION_PRIOR) if integrated else None,
    )
    model = kinds_model(ORDERS[order])

    def run(seed, factor):
        bit_generator, n_resampled = np.random.PCG64(seed), 0
        Y = np.empty((round(n_runs * factor), 2))
        for y in Y:
            system.begin([model])
            system.run(bit_generator, 0, 48)
            n_resampled += system.n_resampled
            log_w = system.log_weights()
            if other is not None:
                log_w = log_w + system.log_ratios([other])[0]
            w = np.exp(log_w - log_z)
            k = [len(system.slots_of(p)) for p in range(system.n_current)]
            y[:] = w.sum() - 1.0, w @ k - mean_k
        assert n_resampled > 20 * len(Y)
        return z_p(Y)

    return run


RUNS = {
    "dp": partial(kinds_run, "dp", "systematic"),
    "dp sorted": partial(kinds_run, "dp", "stratified", "sorted"),
    "dp integrated": partial(kinds_run, "dp", "systematic", integrated=True),
    "dp weighed anew": partial(kinds_run, "dp", "systematic", other=0.6),
    "pitman_yor": partial(kinds_run, "pitman_yor", "systematic", "sorted"),
    "finite": partial(kinds_run, "finite", "optimal"),
    "mfm": partial(kinds_run, "mfm", "optimal", "sorted"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(RUNS, "dp integrated", "finite"))
def test_unbiased_over_many_rows(name, seed_sequence):
    """Evidence and number of clusters of 48 rows, resampled many times: also in an order that
    shows one kind after the other, and at a concentration other than that of the run."""
    assert_p(RUNS[name](), seed_sequence=seed_sequence)


def learned_gaussian_evidence(X):
    """log p(X) of one column under a Dirichlet process, all four hyperparameters integrated out
    over their documented laws, by quadrature."""
    m, v = X.mean(), X.var()
    t, w = np.polynomial.hermite_e.hermegauss(12)
    mean, log_mean = m + np.sqrt(v) * t, np.log(w / w.sum())
    x = np.linspace(-15.0, 4.0, 49)
    step = np.log(x[1] - x[0])
    r, log_r = np.exp(x), gamma.logpdf(np.exp(x), 0.5, scale=1 / 5.0) + x + step
    y = np.linspace(-7.0, 5.0, 37)
    k = 1.0 + np.exp(y)
    log_k = gamma.logpdf(np.exp(y), 2.0, scale=1 / 0.2) + y + np.log(y[1] - y[0])
    s, log_s = v * (np.exp(x) + 1e-8), gamma.logpdf(np.exp(x), 0.5) + x + step
    grids = np.meshgrid(mean, r, k, s, indexing="ij")
    log_law = sum(np.meshgrid(log_mean, log_r, log_k, log_s, indexing="ij")).ravel()
    assert abs(logsumexp(log_law)) < 1e-2
    u, r, k, s = (grid.ravel() for grid in grids)
    values = {"mean": u[:, None], "mean_precision": r, "df": k, "scale": (s * k)[:, None]}
    known, log_p = {}, []
    for z in enumerate_partitions(len(X)):
        total = log_eppf(np.bincount(z), "dp", **PRIOR_CASES["dp"][1])
        for members in {tuple(z == j) for j in z}:
            if members not in known:
                rows = X[list(members)]
                known[members] = gaussian_log_marginals(rows, full=False, **values)
            total = total + known[members]
        log_p.append(logsumexp(log_law + total))
    return logsumexp(log_p)


@pytest.mark.slow
@pytest.mark.parametrize("rejuvenation", ["gibbs", None])
def test_learned_gaussian_hyperparameters_are_integrated_out(rejuvenation, seed_sequence):
    X = np.array([[0.3], [1.2], [-0.9]])
    log_z = learned_gaussian_evidence(X)

    def run(seed, factor):
        estimator = fitted(
            make_likelihood("gaussian_diag").set_params(
                mean=None, mean_precision=None, df=None, scale=None
            ),
            "dp",
            X,
            SMC(8, rejuvenation=rejuvenation, growth=1.01, resample_threshold=1.0),
            n_chains=round(500 * factor),
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        z = np.exp(estimator.log_evidence_chains_ - log_z) - 1.0
        return float(2 * norm.sf(abs(z.mean()) / z.std() * np.sqrt(len(z))))

    assert_p(run, seed_sequence=seed_sequence)


def test_moves_that_are_never_due_are_no_moves():
    case = fit_case("gaussian", n_samples=90)
    ends = []
    for sampler in (SMC(7), SMC(7, rejuvenation=None, resampling="systematic")):
        estimator = make_estimator(case.likelihood, "dp", sampler=sampler, n_chains=1)
        program = estimator._program(case.X, case.likelihood, sampler)
        program.move_times = []
        chain = program.chain(3, 0)
        program.advance(chain, program.n_iterations, lambda **_: True)
        ends.append(chain)
    assert ends[0]["log_evidence"] == ends[1]["log_evidence"]
    np.testing.assert_array_equal(ends[0]["draws"]["labels"], ends[1]["draws"]["labels"])


@pytest.mark.parametrize("likelihood", ["poisson", "gaussian_diag"])
def test_families_have_the_hyperparameters_that_their_particles_drew(likelihood):
    """Also once several have been resampled to one family; clusters' cached terms are those of
    their kernel."""
    case = fit_case(likelihood, n_samples=40)
    params = dict.fromkeys(case.likelihood.hyperparameters)
    sampler = SMC(6, rejuvenation="gibbs", growth=1.3, resample_threshold=1.0)
    estimator = make_estimator(case.likelihood.set_params(**params), "dp", sampler=sampler)
    program = estimator._program(case.X, case.likelihood, sampler)
    with program.resume(program.chain(3, 0)) as live:
        values = None
        for stop in program.stops:
            live.step(live.system.n_rows)
            assert live.system.n_rows == stop
            system, last = live.system, values
            used = [system.family_of(p) for p in range(6)]
            values = {f: system.models[f].hyperparameters() for f in used}
            assert len(used) == len(set(used))  # all have moved, and drawn
            for p, f in enumerate(used):
                named = program.likelihood.learned_values(values[f])
                for name, value in live.family_values[f].items():
                    np.testing.assert_array_equal(value, named[name])
                fresh = program.bind(live.encoded, live.family_values[f])
                stats = system.models[f].dump(system.slots_of(p), True)
                fresh.load(stats[:, : fresh.n_stats])
                again = fresh.dump(np.arange(len(stats)), True)
                np.testing.assert_allclose(stats, again, rtol=1e-6, atol=1e-9)
            if last is not None:
                assert all((values[f] != last[f]).any() for f in values.keys() & last.keys())
        assert system.n_resampled > 20


@pytest.mark.slow
@pytest.mark.parametrize(
    "scheme", everyday(["systematic", "stratified", "multinomial", "optimal"], "optimal")
)
@pytest.mark.parametrize("n_families", [1, 9])
def test_slots_and_labels_after_every_row(scheme, n_families):
    """Rows of a dozen clusters, resampled before every draw: arenas grow while all particles
    choose differently, whole families die out, and no slot is lost."""
    rng = np.random.default_rng(4)
    X = np.floor(3.0 * rng.normal(size=(70, 2)) * rng.choice([0.1, 30.0], size=(70, 1)))
    likelihood = make_likelihood("gaussian_diag").resolve(X)
    data = likelihood.encode(X)
    n = 9
    models = [likelihood.bind(data, likelihood.tables(data, None)) for _ in range(n_families)]
    for f, model in enumerate(models):
        values = model.hyperparameters()
        values[-4:] *= 1.0 + 0.1 * f
        model.set_hyperparameters(values)
    system = ParticleSystem(n, scheme, 1.0, make_prior("dp", 70, concentration=30.0))
    system.begin(models)
    bit_generator = np.random.PCG64(1)
    most = [0] * n_families
    for i in range(70):
        system.run(bit_generator, i, i + 1)
        audit(system)
        for f, model in enumerate(models):
            most[f] = max(most[f], model.n_slots)
        for p in range(system.n_current):
            labels, model = system.labels_of(p), models[system.family_of(p)]
            items = [np.flatnonzero(labels == k) for k in range(labels.max() + 1)]
            stats = system.stats_of(p)
            np.testing.assert_array_equal(stats[:, 0], [len(rows) for rows in items])
            means = np.array([data["X"][rows].mean(axis=0) for rows in items])
            np.testing.assert_allclose(stats[:, 3:5], means, rtol=1e-9, atol=1e-9)
    assert system.n_resampled > 20
    assert max(most) > 40
    assert len({system.family_of(p) for p in range(n)}) < max(n_families, 2)


def test_a_row_may_split_every_cluster():
    """Particles that all hold the same clusters, and a row of which each chooses another one: as
    many copies as there are slots. Kernels have room for no more when they begin."""
    likelihood = make_likelihood("bernoulli").resolve(np.zeros((1, 1)))
    data = likelihood.encode(np.full((9, 1), np.nan))
    prior = make_prior("dp", 9, concentration=1e-3)
    for n_particles in (2, 8, 40):
        model = likelihood.bind(data, likelihood.tables(data, None))
        stats = np.zeros((8, model.n_stats))
        stats[:, 0] = 1.0
        system = ParticleSystem(n_particles, "systematic", 0.5, prior)
        system.set_state(
            [model],
            {
                "n_rows": 8,
                "n_resampled": 0,
                "log_w": np.zeros(n_particles),
                "family": np.zeros(n_particles, np.intp),
                "slots": [np.arange(8)] * n_particles,
                "stats": [stats],
                "labels": np.tile(np.arange(8), (n_particles, 1)),
            },
        )
        n_slots = model.n_slots
        system.run(np.random.PCG64(0), 8, 9)
        audit(system)
        assert model.n_slots > n_slots
        chosen = {int(system.labels_of(p)[-1]) for p in range(n_particles)}
        assert len(chosen) > min(n_particles, 5) / 2
        for p in range(n_particles):
            sizes = np.ones(9)
            sizes[system.labels_of(p)[-1]] += 1.0
            np.testing.assert_array_equal(system.sizes_of(p), sizes[: len(system.sizes_of(p))])


@pytest.mark.slow
def test_terms_near_underflow_keep_their_digits():
    """Two rows, of which each particle's weight is an exact sum of two terms. The second row is an
    outlier by some 700 nats to particles whose clusters are tighter than those of the
    first: where one of the terms underflows relative to the best particle the other may not."""
    X = np.array([[2.0], [40.0]])
    gaps = np.concatenate([[1.0], np.linspace(690.0, 720.0, 301)])
    params = {"mean": 0.0, "mean_precision": 100.0, "df": 1e6}
    scales = X[1, 0] ** 2 / (2.0 * gaps) * params["df"]
    likelihood = make_likelihood("gaussian_diag").set_params(**params, scale=float(scales[0]))
    models = [bind(likelihood.resolve(X), likelihood.resolve(X).encode(X), None) for _ in gaps]
    for model, scale in zip(models, scales, strict=True):
        values = model.hyperparameters()
        values[-1] = scale
        model.set_hyperparameters(values)
    prior = make_prior("dp", 2, concentration=1.3)
    system = ParticleSystem(len(gaps), "systematic", 0.0, prior)
    system.begin(models)
    system.run(np.random.PCG64(0), 0, 2)

    def log_p(rows, scale):
        return LOG_MARGINALS["gaussian_diag"](rows, scale=scale, **params)

    terms = np.array(
        [
            (
                log_p(X, scale) + np.log(1.0 / 2.3),
                log_p(X[:1], scale) + log_p(X[1:], scale) + np.log(1.3 / 2.3),
            )
            for scale in scales
        ]
    )
    assert (np.abs(np.diff(terms[1:], axis=1)) < 10.0).all()
    expected = logsumexp(terms, axis=1) - np.log(len(gaps))
    np.testing.assert_allclose(system.log_weights(), expected, rtol=0.0, atol=1e-6)
