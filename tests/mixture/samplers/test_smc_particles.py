"""What the particles of a fit hold while it runs: clusters that are those of their labels, under
hyperparameters of their own; the order in which rows come; many clusters."""

import numpy as np
import pytest
from reference.enumerate import partition_index
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from scipy.special import logsumexp
from support.cases import fit_case, make_estimator
from support.designs import everyday
from support.exactness import case_posterior, case_rows, make_likelihood, make_prior
from support.probes import audit

from skdpm._run import Run
from skdpm.hyperpriors import Gamma
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.particles._system import ParticleSystem
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.state._state import MixtureState
from skdpm.papers.smc import AnnealedSMC


def live_chain(name, prior, sampler, *, n_samples=120, learned=False, seed=5, **params):
    """A chain of a fit, before its first row; it stops after 10 rows at the latest."""
    case = fit_case(name, n_samples=n_samples)
    likelihood = case.likelihood
    if learned:
        likelihood = type(likelihood)(**dict.fromkeys(likelihood.hyperparameters))
        if name == "gaussian_diag":
            likelihood.set_params(covariance_type="diag")
    estimator = make_estimator(likelihood, prior, **params)
    program = estimator._program(case.X, likelihood, sampler)
    program.stops = sorted({*range(10, n_samples, 10), *program.move_times, n_samples})
    return case, program.resume(program.chain(seed, 0))


def check_particles(name, prior, case, live):
    """Every particle's statistics, cached terms and hyperparameters, against the reference."""
    system, program = live.system, live.program
    audit(system)
    t = system.n_rows
    rows = case.X[live.order[:t]]
    kernel_prior = make_prior(PRIOR_CASES[prior][0], t, **PRIOR_CASES[prior][1])
    model = program.bind(live.encoded, {})
    state = MixtureState(model, kernel_prior, n_samples=t)
    for p in range(system.n_current):
        labels = system.labels_of(p)
        sizes = np.bincount(labels)
        np.testing.assert_array_equal(system.sizes_of(p), sizes)
        family = system.family_of(p)
        likelihood = program.likelihood.at(live.family_values[family])
        np.testing.assert_array_equal(
            system.models[family].hyperparameters(), likelihood.flat_hyperparameters()
        )
        system.lend(p, state)
        np.testing.assert_array_equal(state.cluster_labels(), labels)
        params = {key: likelihood.get_params()[key] for key in case.params}
        expected = log_likelihood(rows, labels, name, **params)
        expected += log_eppf(sizes, PRIOR_CASES[prior][0], **PRIOR_CASES[prior][1])
        assert abs(state.compute_log_joint() - expected) < 1e-8 * (1.0 + abs(expected))


CASES = [
    ("gaussian", "dp", True, SMC(6)),
    ("gaussian", "pitman_yor", False, SMC(6, rejuvenation="gibbs", resample_threshold=0.9)),
    ("gaussian_diag", "mfm", True, SMC(5, resampling="multinomial", resample_threshold=1.0)),
    ("bernoulli", "finite", True, SMC(6, growth=1.05, resample_threshold=0.9)),
    ("poisson", "dp", True, SMC(5, rejuvenation="split_merge", resampling="optimal")),
    ("categorical", "dp", False, SMC(7, resampling="optimal", resample_threshold=1.0)),
    (
        "gaussian",
        "finite",
        True,
        AnnealedSMC(5, rejuvenation="sams", active_block=7, resample_threshold=0.9),
    ),
]


@pytest.mark.parametrize("name, prior, learned, sampler", everyday(CASES, CASES[4], n_values=4))
@pytest.mark.long
def test_particles_are_those_of_their_labels(name, prior, learned, sampler):
    case, live = live_chain(name, prior, sampler, learned=learned, resampled=True)
    n_samples = live.program.n_samples
    n_shared = n_private = 0
    while live.system.n_rows < n_samples:
        live.step(live.system.n_rows)
        check_particles(name, prior, case, live)
        slots = [
            (live.system.family_of(p), slot)
            for p in range(live.system.n_current)
            for slot in live.system.slots_of(p)
        ]
        n_shared += len(set(slots)) < len(slots)
        if live.system.n_rows in live.program.move_times:
            n_private += 1
            # Nothing is shared: neither clusters nor, where these are drawn, hyperparameters.
            assert len(set(slots)) == len(slots)
            families = {live.system.family_of(p) for p in range(live.system.n_current)}
            assert len(families) == (live.system.n_current if learned else 1)
    assert n_private > 10
    assert n_shared > 0
    assert live.system.n_resampled > 0


def test_order_of_rows():
    """Cluster after cluster of `init` where there is one, by size, each chain in another order."""
    n_samples = 30
    labels = np.array(list("cab"))[np.repeat([0, 1, 2], [6, 4, 20])]
    labels = labels[np.random.default_rng(0).permutation(n_samples)]
    for sampler, init in ((SMC(), labels), (SMC(rejuvenation=None), labels.tolist())):
        _, live = live_chain("gaussian", "dp", sampler, n_samples=n_samples, init=init)
        other = live.program.resume(live.program.chain(5, 1))
        for chain in (live, other):
            assert sorted(chain.order) == list(range(n_samples))
            assert "".join(labels[chain.order]) == 20 * "b" + 6 * "c" + 4 * "a"
            assert sorted(chain.order[:20]) != chain.order[:20].tolist()
        assert not np.array_equal(live.order, other.order)
        # Interrupted chains go on in their order.
        again = live.program.resume({**live.program.chain(5, 0), **live.save()})
        np.testing.assert_array_equal(again.order, live.order)
    plain = live_chain("gaussian", "dp", SMC(), n_samples=n_samples, init="single")[1].order
    assert len(set(labels[plain][:8])) > 1
    for init in ("auto", "singletons"):
        order = live_chain("gaussian", "dp", SMC(), n_samples=n_samples, init=init)[1].order
        np.testing.assert_array_equal(order, plain)
    for init in ("single", labels):
        sampler = SMC(order="given")
        order = live_chain("gaussian", "dp", sampler, n_samples=n_samples, init=init)[1].order
        np.testing.assert_array_equal(order, np.arange(n_samples))


@pytest.mark.parametrize("init", ["kmeans", [2, 0, 0, 1, 2]])
@pytest.mark.long
def test_evidence_in_grouped_order(init):
    """It is exact where all partitions are followed, and labels come back in the order given."""
    posterior = case_posterior("gaussian", "dp")
    X = case_rows("gaussian")
    estimator = make_estimator(
        make_likelihood("gaussian"), sampler=SMC(52, rejuvenation=None), init=init, n_draws=40
    ).fit(X)
    np.testing.assert_allclose(estimator.log_evidence_chains_, posterior.log_evidence, atol=1e-10)
    at = partition_index(estimator.label_samples_.reshape(-1, len(X)).astype(int))
    assert len(set(at)) > 5
    np.testing.assert_allclose(
        estimator.log_joint_samples_.ravel(), posterior.log_joint[at], atol=1e-10
    )


@pytest.mark.long
def test_grouped_order_finds_separated_clusters():
    rng = np.random.default_rng(0)
    truth = rng.integers(12, size=300)
    X = 10.0 * np.array(np.divmod(truth, 4)).T + rng.normal(size=(300, 2))
    # Wide: while rows are few, clusters join.
    likelihood = Gaussian(mean=X.mean(0), mean_precision=0.1, df=4.0, scale=0.5 * X.var(0))
    log_evidence = {
        init: make_estimator(
            likelihood, sampler=SMC(30, rejuvenation=None), init=init, n_chains=2, n_draws=2
        )
        .fit(X)
        .log_evidence_
        for init in ("single", "kmeans")
    }
    assert log_evidence["kmeans"] > log_evidence["single"] + 20.0


@pytest.mark.long
def test_labels_of_many_clusters():
    """Particles get more clusters than 16 bits can number; they are copied, saved and moved."""
    first, n_samples = 65_530, 65_545
    likelihood = make_likelihood("bernoulli")
    X = np.full((n_samples, 1), np.nan)
    likelihood = likelihood.resolve(X)
    encoded = likelihood.encode(X)

    def system():
        prior = make_prior("dp", n_samples, concentration=1e9)
        return ParticleSystem(2, "multinomial", 1.0, prior)

    def model():
        return likelihood.bind(encoded, likelihood.tables(encoded, None))

    filtered = system()
    labels = np.array([np.arange(first), np.arange(first)[::-1]])
    stats = model().dump([])
    stats = np.zeros((first, stats.shape[1]))
    stats[:, 0] = 1.0
    filtered.set_state(
        [model()],
        {
            "n_rows": first,
            "n_resampled": 0,
            "log_w": np.log([0.9, 0.1]),
            "family": np.zeros(2, np.intp),
            "slots": [np.arange(first)] * 2,
            "stats": [stats],
            "labels": labels,
        },
    )
    filtered.run(np.random.PCG64(0), first, n_samples)
    audit(filtered)
    assert filtered.n_resampled > 0
    saved = filtered.get_state()
    assert saved["labels"].dtype == np.uint32
    again = system()
    again.set_state([model()], saved)
    state = MixtureState(model(), make_prior("dp", n_samples, concentration=1e9))
    for p in range(2):
        own = filtered.labels_of(p)
        k = len(filtered.sizes_of(p))
        assert k > 65_536
        np.testing.assert_array_equal(own[first:], first + np.arange(k - first))
        assert (own[:first] == labels).all(axis=1).any()
        np.testing.assert_array_equal(again.labels_of(p), own)
        filtered.lend(p, state)
        np.testing.assert_array_equal(state.cluster_labels(), own)
        filtered.take(p, state)
        np.testing.assert_array_equal(filtered.labels_of(p), own)
    filtered.renew()
    audit(filtered)


@pytest.mark.parametrize(
    "prior", everyday(["mfm", "finite", "pitman_yor", "dp"], "finite", "pitman_yor", "dp")
)
def test_weights_of_concentrations_follow_the_rows(prior):
    """Products over many rows, with factors from polynomials where these take long to compute,
    are the law in closed form."""
    name, params = PRIOR_CASES[prior]
    case = fit_case("poisson", n_samples=150)
    likelihood = case.likelihood.resolve(case.X)
    encoded = likelihood.encode(case.X)
    system = ParticleSystem(4, "systematic", 0.5, make_prior(name, 150, **params), Gamma(2.0, 0.8))
    system.begin([likelihood.bind(encoded, likelihood.tables(encoded, None))])
    for n_rows in (63, 90, 97, 150):
        system.run(np.random.PCG64(n_rows), system.n_rows, n_rows)
        for p in range(4):
            sizes = system.sizes_of(p)
            nodes, log_hyper = concentration_nodes(Gamma(2.0, 0.8), 0.0625)
            grid, weights = system.concentration_weights(p)
            np.testing.assert_array_equal(grid, nodes)
            log_law = log_hyper + log_eppf(sizes, name, **{**params, "concentration": nodes})
            expected = np.exp(log_law - logsumexp(log_law))
            np.testing.assert_allclose(weights, expected, atol=1e-10)


def test_chains_hold_labels_until_they_are_carried():
    """In two bytes each."""
    _, live = live_chain("gaussian", "dp", SMC(5), n_samples=300)
    program, chain = live.program, live.program.chain(5, 0)
    program.advance(chain, 300, lambda **_: False)
    labels = chain["system"]["labels"]
    assert labels.dtype == np.uint16
    assert labels.shape == (5, chain["iteration"])
    while chain["iteration"] < 300:
        program.advance(chain, 300, lambda **_: True)
    run = Run(entropy=0, signature={}, chains=[chain], program=program)
    assert run.finished().chains[0]["system"]["labels"].shape == (5, 0)
    assert chain["draws"]["labels"].shape[-1] == 300
