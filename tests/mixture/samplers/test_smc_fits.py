"""`fit` with SMC: every output against enumeration, moves and hyperparameters included."""

import pickle
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index
from reference.likelihoods import log_marginal_bernoulli, log_posterior_concentration
from reference.priors import log_eppf, log_gamma_density
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from support.cases import fit_case, make_estimator
from support.exactness import case_posterior, make_likelihood
from support.pvalues import Cells, assert_p, assert_p_matrix, mean_p, whole_of
from support.smc import CONCENTRATION_PRIOR, fitted
from support.states import log_joint_of

from skdpm.chains import stream
from skdpm.diagnostics import split_rhat
from skdpm.hyperpriors import Gamma
from skdpm.mixture.particles._nodes import concentration_nodes
from skdpm.mixture.particles.program import move_times
from skdpm.mixture.samplers.smc import SMC
from skdpm.papers.smc import AnnealedSMC


def fit_run(name, prior, sampler, *, resampled=False, n_chains=600):
    """A run for `assert_p`: the evidence times the indicator of the one draw, of each chain, has
    the joint density for its mean. Partitions of small probability are one cell."""
    case = enumeration_case(name)
    if resampled:
        law = log_posterior_concentration(
            case.X,
            name,
            PRIOR_CASES[prior][0],
            likelihood_params=case.params,
            prior_params={k: v for k, v in PRIOR_CASES[prior][1].items() if k != "concentration"},
            concentration_prior=CONCENTRATION_PRIOR,
            n_bins=2,
        )
    else:
        law = case_posterior(name, prior)
    p = law.probabilities.reshape(len(law.partitions), -1)
    cell = np.zeros(p.shape, dtype=int)
    common = p > 0.02
    cell[common] = 1 + np.arange(common.sum())
    expected = np.bincount(cell.ravel(), weights=p.ravel())

    def run(seed, factor):
        estimator = fitted(
            make_likelihood(name),
            prior,
            case.X,
            sampler,
            resampled=resampled,
            concentration_prior=CONCENTRATION_PRIOR,
            n_chains=whole_of(n_chains, factor),
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        if sampler.resample_threshold == 1.0:
            chains = estimator._run.chains
            assert sum(chain["system"]["n_resampled"] for chain in chains) > len(chains)
        z = np.exp(estimator.log_evidence_chains_ - law.log_evidence)
        at = partition_index(estimator.label_samples_[:, 0].astype(int))
        second = np.zeros(len(at), dtype=int)
        if resampled:
            second = np.digitize(estimator.concentration_samples_[:, 0], law.edges)
        Y = np.zeros((len(z), len(expected)))
        Y[np.arange(len(z)), cell[at, second]] = z
        return mean_p(Y, expected)

    return run


@pytest.mark.slow
def test_fits_have_the_evidence_and_the_posterior(seed_sequence):
    """A few particles, moved after nearly every row and resampled before every draw; or never,
    and then draws go by the last weights."""
    gibbs = SMC(3, rejuvenation="gibbs", growth=1.01, resample_threshold=1.0)
    sams = SMC(2, growth=1.3, resample_threshold=1.0, resampling="stratified")
    optimal = SMC(3, rejuvenation="gibbs", resampling="optimal", resample_threshold=1.0)
    uneven = SMC(4, rejuvenation=None, resampling="systematic", resample_threshold=0.0)
    designs = {
        "gaussian dp": (gibbs, False),
        "gaussian_diag dp": (uneven, False),
        "bernoulli mfm": (gibbs, False),
        "poisson pitman_yor": (sams, False),
        "categorical dp": (optimal, True),
        "bernoulli finite": (gibbs, True),
    }
    runs = {
        name: fit_run(*name.split(), sampler, resampled=resampled)
        for name, (sampler, resampled) in designs.items()
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_annealed_and_redrawn_fits(seed_sequence):
    """The same where the concentration changes while rows come in, and where some old rows are
    drawn anew after each row; with moves and without."""
    pure = {"rejuvenation": None, "resample_threshold": 1.0}
    gibbs = {"rejuvenation": "gibbs", "growth": 1.01, "resample_threshold": 1.0}
    designs = {
        "bernoulli dp": AnnealedSMC(
            2, **gibbs, initial_concentration=15.0, annealing_rate=0.4, active_block=0
        ),
        "poisson finite": AnnealedSMC(
            2, **gibbs, initial_concentration=40.0, annealing_rate=0.5, active_block=2
        ),
        "gaussian pitman_yor": AnnealedSMC(
            3, **pure, initial_concentration=-0.3, annealing_rate=0.3, active_block=3
        ),
        "categorical mfm": AnnealedSMC(
            3, **pure, initial_concentration=9.0, annealing_rate=0.3, active_block=0
        ),
    }
    runs = {
        name: fit_run(*name.split(), sampler, n_chains=300) for name, sampler in designs.items()
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_learned_hyperparameters_are_integrated_out(seed_sequence):
    """One component: the evidence against quadrature over both pseudo-counts."""
    X = np.array([[1.0], [1.0], [0.0], [1.0], [1.0], [1.0]])
    x = np.linspace(-12.0, 4.0, 400)
    log_prior = log_gamma_density(np.exp(x), 1.0, 1.0) + x + np.log(x[1] - x[0])
    log_z = logsumexp(
        [
            log_prior[i] + log_prior[j] + log_marginal_bernoulli(X, a=np.exp(x[i]), b=np.exp(x[j]))
            for i in range(0, 400, 4)
            for j in range(0, 400, 4)
        ]
    ) + np.log(16.0)

    def run(seed, factor):
        estimator = fitted(
            make_likelihood("bernoulli", a=None, b=None),
            "finite",
            X,
            AnnealedSMC(4, rejuvenation="gibbs", active_block=2, resample_threshold=0.5),
            n_components=1,
            n_chains=round(400 * factor),
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        z = np.exp(estimator.log_evidence_chains_ - log_z) - 1.0
        return float(2 * norm.sf(abs(z.mean()) / z.std() * np.sqrt(len(z))))

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_moves_draw_the_concentration_given_the_partition(seed_sequence):
    """Rows without data and a wide hyperprior: moves leave the prior law of partitions as it is,
    the concentration integrated out."""
    shape, rate = 0.3, 0.05
    nodes, log_weights = concentration_nodes(Gamma(shape, rate), 0.0625)
    partitions = enumerate_partitions(4)
    probabilities = [
        np.exp(logsumexp(log_weights + log_eppf(np.bincount(z), "dp", concentration=nodes)))
        for z in partitions
    ]

    def run(seed, factor):
        estimator = fitted(
            make_likelihood("bernoulli"),
            "dp",
            np.full((4, 1), np.nan),
            SMC(1, rejuvenation="gibbs"),
            resampled=True,
            concentration_prior=(shape, rate),
            n_chains=round(1_500 * factor),
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        )
        np.testing.assert_allclose(estimator.log_evidence_chains_, 0.0, atol=1e-12)
        at = partition_index(estimator.label_samples_[:, 0].astype(int))
        return Cells(np.bincount(at, minlength=len(partitions)), probabilities, partitions)

    assert_p(run, seed_sequence=seed_sequence)


def test_times_of_moves():
    assert move_times(12, 1.25) == [2, 3, 4, 5, 7, 9, 12]
    assert move_times(7, 1.0001) == [2, 3, 4, 5, 6, 7]
    assert move_times(5, 2.0) == [2, 4, 5]
    assert move_times(1, 1.25) == [1]
    assert move_times(5, 1e308) == [2, 5]


@pytest.mark.parametrize("sampler", [SMC(8), SMC(8, rejuvenation=None, order="given")])
@pytest.mark.long
def test_attributes(sampler):
    case = fit_case("gaussian")
    estimator = fitted(case.likelihood, "dp", case.X, sampler, n_draws=12)
    c, s, n = 2, 12, len(case.X)
    assert estimator.label_samples_.shape == (c, s, n)
    assert estimator.log_evidence_chains_.shape == estimator.effective_sample_size_.shape == (c,)
    expected = logsumexp(estimator.log_evidence_chains_) - np.log(c)
    assert abs(estimator.log_evidence_ - expected) < 1e-12
    std = np.std(estimator.log_evidence_chains_, ddof=1)
    assert abs(estimator.diagnostics_["log_evidence"]["std"] - std) < 1e-12
    # Draws of one system of particles have no order.
    expected = {"r_hat": split_rhat(estimator.n_clusters_samples_)}
    assert estimator.diagnostics_["n_clusters"] == expected
    alone = clone(estimator).set_params(n_chains=1).fit(case.X)
    assert alone.diagnostics_ == alone.estimate_labels(max_clusters=2).diagnostics_ == {}
    assert (1.0 <= estimator.effective_sample_size_).all()
    assert (estimator.effective_sample_size_ <= 8.0 + 1e-9).all()
    assert estimator.labels_.shape == (n,)
    assert np.isfinite(estimator.score_samples(case.X_new)).all()
    assert (set(estimator.acceptance_rate_) == {"split", "merge"}) == sampler.moves
    # A fit with another sampler has no evidence.
    estimator.set_params(sampler="gibbs")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator.fit(case.X)
    assert not hasattr(estimator, "log_evidence_")


@pytest.mark.long
def test_log_joint_of_draws_is_that_of_their_labels():
    """Labels come back in the order of the rows given."""
    case = fit_case("gaussian")
    estimator = fitted(case.likelihood, "dp", case.X, SMC(6), n_draws=5)
    for c, s in np.ndindex(2, 5):
        labels = estimator.label_samples_[c, s].astype(int)
        assert (
            abs(log_joint_of("gaussian", case, labels, "dp") - estimator.log_joint_samples_[c, s])
            < 1e-8
        )


@pytest.mark.parametrize("sampler", [SMC(5), AnnealedSMC(5, active_block=3)])
def test_resumes_to_the_bit(sampler):
    """A chain that is interrupted after every block of rows."""
    case = fit_case("poisson")
    params = {"n_chains": 1, "n_draws": 6, "resampled": True}
    whole = make_estimator(case.likelihood, sampler=sampler, **params)
    program = whole._program(case.X, case.likelihood, sampler)
    program.stops = sorted({*program.stops, 5, 11})
    ends = []
    for go_on in (lambda **_: True, lambda **_: False):
        chain = program.chain(17, 0)
        while chain["iteration"] < program.n_iterations:
            program.advance(chain, program.n_iterations, go_on)
        ends.append(chain)
    np.testing.assert_array_equal(ends[0]["draws"]["labels"], ends[1]["draws"]["labels"])
    for name in ("log_joint", "concentration"):
        np.testing.assert_array_equal(ends[0]["draws"][name], ends[1]["draws"][name])
    assert ends[0]["log_evidence"] == ends[1]["log_evidence"]
    moves = [{k: list(v) for k, v in chain["acceptance"].items()} for chain in ends]
    assert moves[0] == moves[1]
    assert stream(17, 0).state != ends[0]["bit_generator"]


def test_all_partitions_of_a_few_rows_are_followed():
    """Without moves and with enough particles `fit` is enumeration: the evidence is exact."""
    posterior = case_posterior("bernoulli", "dp")
    sampler = SMC(len(enumerate_partitions(5)), rejuvenation=None)
    estimator = fitted(
        make_likelihood("bernoulli"), "dp", enumeration_case("bernoulli").X, sampler
    )
    np.testing.assert_allclose(estimator.log_evidence_chains_, posterior.log_evidence, atol=1e-10)


@pytest.mark.parametrize(
    "params",
    [
        {"n_particles": 0},
        {"rejuvenation": "sub_cluster"},
        {"rejuvenation": "nothing"},
        {"growth": 1.0},
        {"active_block": -1},
        {"initial_concentration": 0.0},
        {"annealing_rate": 1.5},
        {"resampling": "residual"},
        {"resample_threshold": 1.5},
        {"order": "sorted"},
    ],
)
def test_refuses(params):
    case = fit_case("gaussian")
    name = next(iter(params))
    cls = SMC if hasattr(SMC(), name) else AnnealedSMC
    with pytest.raises(ValueError, match=rf"^{cls.__name__}\.{name}"):
        fitted(case.likelihood, "dp", case.X, cls(**params))


def test_refuses_annealing_of_a_learned_concentration():
    case = fit_case("gaussian")
    sampler = SMC.from_paper("SMC-A")
    with pytest.raises(ValueError, match=r"SMC\.initial_concentration .* concentration=None"):
        fitted(case.likelihood, "dp", case.X, sampler, resampled=True)


def test_refuses_coupled_clusters():
    case = fit_case("relational")
    with pytest.raises(ValueError, match="clusters depend on each other"):
        fitted(case.likelihood, "dp", case.X, SMC())


def test_refuses_a_warm_start():
    case = fit_case("gaussian")
    with pytest.raises(ValueError, match=r"warm_start .* partial_fit"):
        fitted(case.likelihood, "dp", case.X, "smc", warm_start=True)


@pytest.mark.long
def test_chains_that_disagree_are_warned_of():
    """Two particles over many rows; the advice is that of particle systems."""
    X = np.random.default_rng(0).normal(size=(200, 3)).cumsum(axis=0)
    model = make_estimator("gaussian", sampler=SMC(2, rejuvenation=None), n_chains=4)
    message = r"disagree: .*log_evidence: .* \(standard deviation .*n_particles"
    with pytest.warns(ConvergenceWarning, match=message):
        model.fit(X)
    assert model.diagnostics_["log_evidence"]["std"] > 1.0
    assert "ess_bulk" not in model.diagnostics_["log_joint"]


@pytest.mark.long
def test_iterations_and_progress_are_rows(capsys):
    case = fit_case("gaussian", n_samples=300)
    model = fitted(case.likelihood, "dp", case.X, SMC(4), verbose=1)
    assert model.n_iter_ == 300
    assert "600/600" in capsys.readouterr().err


@pytest.mark.long
def test_few_draws_are_not_warned_of():
    """R-hat of 20 free draws is above its limit by chance, in every other fit or so."""
    case = fit_case("gaussian", n_samples=12)
    model = fitted(case.likelihood, "dp", case.X, SMC(50), n_draws=20)
    program = model._program(case.X, case.likelihood, model.sampler)
    model.diagnostics_ = {"log_joint": {"r_hat": 1.2}}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model._warn_if_not_converged(program)
    model = fitted(case.likelihood, "dp", case.X, SMC(50), n_draws=50)
    model.diagnostics_ = {"log_joint": {"r_hat": 1.2}}
    with pytest.warns(ConvergenceWarning, match=r"disagree: log_joint: .* \(R-hat 1.20\)"):
        model._warn_if_not_converged(program)


def test_variants_of_the_paper():
    """Settings by name; they are estimators like others."""
    pf = SMC.from_paper("PF")
    assert type(pf) is SMC
    assert pf.get_params() == {
        **SMC().get_params(),
        "n_particles": 1000,
        "rejuvenation": None,
        "resampling": "systematic",
        "resample_threshold": 0.8,
        "order": "given",
    }
    plain, annealed = SMC.from_paper("SMC-G"), SMC.from_paper("SMC-A", n_particles=7)
    assert repr(plain) == "AnnealedSMC()"
    assert repr(annealed) == "AnnealedSMC(initial_concentration=1.0, n_particles=7)"
    assert clone(annealed).get_params() == annealed.get_params()
    assert clone(annealed).set_params(active_block=3).get_params()["active_block"] == 3
    with pytest.raises(ValueError, match=r"variant of SMC.from_paper must be one of .*SMC-G"):
        SMC.from_paper("SMC")
    case = fit_case("gaussian")
    estimator = fitted(case.likelihood, "dp", case.X, annealed)
    again = pickle.loads(pickle.dumps(clone(estimator))).fit(case.X)
    np.testing.assert_array_equal(again.log_evidence_chains_, estimator.log_evidence_chains_)


def test_the_everyday_sampler_knows_no_setting_of_the_paper():
    assert len(SMC().get_params()) == 7
