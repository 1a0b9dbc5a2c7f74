"""Families of hyperpriors: their faces, and samplers under them."""

import pickle

import numpy as np
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.hyperparameters import learned_joint
from reference.likelihoods import log_likelihood, log_posterior_concentration
from reference.priors import log_eppf
from reference.simulate import enumeration_case
from scipy import stats
from sklearn.base import clone
from support.designs import combinations, everyday
from support.exactness import make_likelihood, make_prior, make_state
from support.pvalues import Cells, assert_p, chi_squared_p

from skdpm import DPMixture, FeatureAllocation
from skdpm.features.likelihoods import LinearGaussian
from skdpm.features.priors import IndianBuffetPrior
from skdpm.hyperpriors import Gamma, HalfCauchy, LogNormal, check_hyperprior
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, Poisson, Subspace
from skdpm.mixture.priors import DirichletProcessPrior
from skdpm.mixture.samplers import SMC, Gibbs
from skdpm.mixture.state._state import MixtureState

# Families, and their laws by scipy.
FAMILIES = {
    Gamma(2.5, 0.4): stats.gamma(2.5, scale=2.5),
    HalfCauchy(0.7): stats.halfcauchy(scale=0.7),
    LogNormal(-0.4, 0.8): stats.lognorm(0.8, scale=np.exp(-0.4)),
}
OTHERS = list(FAMILIES)[1:]
PRIORS = {
    "dp": {},
    "pitman_yor": {"discount": 0.35},
    "finite": {"n_components": 3},
    "mfm": {"n_components_prior": "poisson"},
}
each_family = pytest.mark.parametrize("family", FAMILIES, ids=repr)
X = np.random.default_rng(0).normal(size=(30, 2)) + np.repeat([[0.0], [6.0]], 15, axis=0)
FEW = {"n_chains": 2, "n_warmup": 5, "n_draws": 5, "random_state": 0}


@each_family
def test_a_family_is_that_of_scipy(family):
    law = FAMILIES[family]
    x = np.array([[1e-12, 0.03, 0.7], [1.0, 40.0, 1e9]])
    np.testing.assert_allclose(family.log_density(x), law.logpdf(x), rtol=1e-12)
    np.testing.assert_allclose(family.density(np.log(x)), law.logpdf(x) + np.log(x), rtol=1e-12)
    assert family.log_density(0.0) == family.log_density(-1.0) == -np.inf
    q = np.array([1e-9, 0.2, 0.5, 0.999])
    np.testing.assert_allclose(family.ppf(q), law.ppf(q))
    draws = family.draw(np.random.default_rng(0), (2_000,))
    assert stats.kstest(draws, law.cdf).pvalue > 1e-3
    assert np.shape(family.draw(np.random.default_rng(0))) == ()


@each_family
def test_a_family_is_a_value(family):
    names = {"Gamma": Gamma, "HalfCauchy": HalfCauchy, "LogNormal": LogNormal}
    assert eval(repr(family), names) == pickle.loads(pickle.dumps(family)) == family
    assert len({family, *FAMILIES}) == len(FAMILIES)
    model = DPMixture(concentration_prior=family)
    assert clone(model).concentration_prior == family
    assert pickle.loads(pickle.dumps(model)).get_params()["concentration_prior"] == family


@pytest.mark.filterwarnings("ignore")
def test_a_pair_is_a_gamma():
    assert check_hyperprior((2, 0.5), "prior") == Gamma(2.0, 0.5)
    first, second = (
        DPMixture(concentration_prior=prior, **FEW).fit(X) for prior in ((2, 0.5), Gamma(2, 0.5))
    )
    np.testing.assert_array_equal(first.concentration_samples_, second.concentration_samples_)


@pytest.mark.parametrize(
    "prior, message",
    [
        (1.0, r"must be a pair \(shape, rate\) of a Gamma prior or a family"),
        ("gamma", "must be a pair"),
        ((1.0, -1.0), r"concentration_prior: Gamma.rate must be finite and > 0, got -1.0"),
        (HalfCauchy(0.0), "HalfCauchy.scale must be finite and > 0"),
        (HalfCauchy("wide"), "HalfCauchy.scale must be a number"),
        (LogNormal(np.nan, 1.0), "LogNormal.mean must be finite"),
        (LogNormal(-1.0, -1.0), "LogNormal.sd must be finite and > 0"),
    ],
)
def test_wrong_priors_of_the_concentration(prior, message):
    for model in (DPMixture(), FeatureAllocation()):
        with pytest.raises(ValueError, match=message):
            model.set_params(concentration_prior=prior, **FEW).fit(X)


@pytest.mark.parametrize(
    "likelihood, message",
    [
        (Poisson(hyperpriors=HalfCauchy(1.0)), "Poisson.hyperpriors must be None or a dict"),
        (Poisson(hyperpriors={"scale": (1, 1)}), "entry for 'scale', .* names are shape, rate"),
        (Poisson(hyperpriors={"rate": 1.0}), r"Poisson.hyperpriors\['rate'\] must be a pair"),
        (Poisson(rate=1.0, hyperpriors={"rate": (0, 1)}), "Gamma.shape must be finite and > 0"),
        (Gaussian(hyperpriors={"mean": (1, 1)}), "'mean', whose prior cannot be changed"),
        (Gaussian(hyperpriors={"a": (1, 1)}, tails="t"), "names are mean_precision, df, scale$"),
        (Gaussian(hyperpriors={"a": (1, 1)}, tails="contaminated"), "df, scale, inflation$"),
        (Subspace(2, hyperpriors={"mean": (1, 1)}), "Subspace.hyperpriors has .*'mean'"),
    ],
)
def test_wrong_hyperpriors(likelihood, message):
    with pytest.raises(ValueError, match=message):
        likelihood.resolve(np.abs(np.round(X)))


def test_features_under_conjugate_priors_take_gammas_only():
    params = {"noise_precision_prior": Gamma(2.0, 3.0)}
    assert LinearGaussian(**params).resolve(X).noise_precision_prior == (2.0, 3.0)
    with pytest.raises(ValueError, match=r"a pair .* or a Gamma"):
        LinearGaussian(noise_precision_prior=HalfCauchy(1.0)).resolve(X)


def test_given_families_replace_defaults():
    given = {"df": HalfCauchy(3.0), "scale": (0.5, 2.0)}
    default, other = (Gaussian(hyperpriors=h).resolve(X).learned_priors for h in (None, given))
    assert other["mean_precision"] == default["mean_precision"]
    assert other["df"].family == HalfCauchy(3.0) and other["df"].low == default["df"].low
    assert other["scale"].family == Gamma(0.5, 2.0)
    np.testing.assert_array_equal(other["scale"].unit, default["scale"].unit)
    # A resolved likelihood has fixed values, to which the families do not matter.
    resolved = Gaussian(hyperpriors=given).resolve(X)
    assert clone(resolved).resolve(X).learned == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("sampler", everyday(["gibbs", SMC(10)], "gibbs"), ids=str)
def test_fits_and_continuations(sampler):
    likelihood = Gaussian(hyperpriors={"scale": LogNormal(-1.0, 1.0), "df": HalfCauchy(5.0)})
    model = DPMixture(
        likelihood=likelihood, concentration_prior=HalfCauchy(1.0), sampler=sampler, **FEW
    )
    once = clone(model).fit(X)
    again = pickle.loads(pickle.dumps(once))
    np.testing.assert_array_equal(once.label_samples_, clone(again).fit(X).label_samples_)
    if sampler == "gibbs":
        twice = clone(model).set_params(n_draws=3, warm_start=True).fit(X)
        twice = pickle.loads(pickle.dumps(twice)).set_params(n_draws=5).fit(X)
        np.testing.assert_array_equal(twice.concentration_samples_, once.concentration_samples_)


# Exactness: against enumeration of all partitions, with quadrature over the number.


def concentration_run(prior, drawn_under, law_of, data="bernoulli"):
    """A run for `assert_p`: starts from the joint posterior of partition and concentration, a
    sweep of Gibbs and an update of the concentration."""
    case = enumeration_case(data)
    params = PRIORS[prior]
    law = log_posterior_concentration(
        case.X,
        data,
        prior,
        likelihood_params=case.params,
        prior_params=params,
        concentration_prior=law_of,
        n_bins=5,
    )
    kernel = make_prior(prior, len(case.X), concentration=1.0, **params)
    state = make_state(make_likelihood(data), case.X, kernel)
    sampler = Gibbs().kernel()

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels, concentration = law.draw(round(8_000 * factor), rng)
        for s in range(len(labels)):
            kernel.set_concentration(concentration[s])
            state.assign(labels[s])
            sampler.run(state, rng.bit_generator)
            kernel.resample(state.cluster_sizes(), drawn_under, rng.bit_generator)
            labels[s], concentration[s] = state.cluster_labels(), kernel.concentration
        return Cells(law.count(labels, concentration), law.probabilities)

    return run


@combinations(prior=PRIORS, family=OTHERS)
@pytest.mark.long
def test_the_concentration_keeps_the_joint_posterior(family, prior, seed_sequence):
    assert_p(concentration_run(prior, family, FAMILIES[family]), seed_sequence=seed_sequence)


@pytest.mark.parametrize(
    "planted, family",
    [
        (LogNormal(-0.4 - 0.8**2, 0.8), LogNormal(-0.4, 0.8)),  # without the Jacobian
        (LogNormal(-0.4, 0.8**2), LogNormal(-0.4, 0.8)),
        (HalfCauchy(1.4), HalfCauchy(0.7)),
        (Gamma(3.0, 1.0), HalfCauchy(0.7)),
    ],
    ids=repr,
)
@pytest.mark.slow
def test_planted_priors_of_the_concentration_are_seen(planted, family, seed_sequence):
    run = concentration_run("dp", planted, FAMILIES[family])
    assert chi_squared_p(*run(seed_sequence, 2)[:2]) < 1e-6


@pytest.mark.parametrize("family", OTHERS, ids=repr)
def test_the_concentration_of_features(family, seed_sequence):
    """Against quadrature of p(column sums | concentration), in 20 bins."""
    n, sums = 6, [4, 1, 2]
    t = np.linspace(-30.0, 30.0, 60_001)
    harmonic = (1.0 / np.arange(1, n + 1)).sum()
    log_density = FAMILIES[family].logpdf(np.exp(t)) + t
    log_density += len(sums) * t - harmonic * np.exp(t)
    cdf = np.cumsum(np.exp(log_density - log_density.max()))
    edges = np.exp(np.interp(np.arange(1, 20) / 20, cdf / cdf[-1], t))
    kernel = IndianBuffetPrior(n, 1.0)

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        draws = np.exp(np.interp(rng.random(round(4_000 * factor)), cdf / cdf[-1], t))
        for s, start in enumerate(draws):
            kernel.set_concentration(start)
            kernel.resample(sums, family, rng.bit_generator)
            draws[s] = kernel.concentration
        return Cells(np.bincount(np.digitize(draws, edges), minlength=20), np.full(20, 1 / 20))

    assert_p(run, seed_sequence=seed_sequence)


ONES = np.array([[1.0], [1.0], [0.0], [1.0], [0.0]])
EDGES = (0.3, 0.8, 1.6)


def pseudo_count_run(drawn_under, law_of):
    """The same for a learned pseudo-count."""
    law = learned_joint(
        lambda labels, value: log_likelihood(ONES, labels, "bernoulli", a=value, b=1.4),
        lambda sizes: log_eppf(sizes, "dp", concentration=1.2),
        enumerate_partitions(len(ONES)),
        log_hyperprior=law_of.logpdf,
        edges=EDGES,
    )
    likelihood = Bernoulli(b=1.4, hyperpriors={"a": drawn_under}).resolve(ONES)
    data = likelihood.encode(ONES)
    model = likelihood.bind(data, likelihood.tables(data, len(ONES)))
    prior = DirichletProcessPrior(len(ONES), 1.2)
    state = MixtureState(model, prior, np.zeros(len(ONES), dtype=np.intp))
    sampler = Gibbs().kernel()
    h = model.hyper_names.index("a")

    def run(seed, factor):
        rng = np.random.default_rng(seed)
        labels, values = law.draw(round(4_000 * factor), rng)
        for s in range(len(values)):
            hyper = model.hyperparameters()
            hyper[h] = values[s]
            model.set_hyperparameters(hyper)
            state.assign(labels[s].astype(np.intp))
            for _ in range(2):
                sampler.run(state, rng.bit_generator)
                hyper = model.resample_hyperparameters(
                    state.cluster_slots(), likelihood.learned_priors, rng.bit_generator
                )
            labels[s], values[s] = state.cluster_labels(), hyper[h]
        index = partition_index(canonical_labels(labels))
        seen = np.zeros(law.bins.shape, dtype=int)
        np.add.at(seen, (index, np.searchsorted(EDGES, values)), 1)
        return Cells(seen, law.bins)

    return run


@pytest.mark.slow
def test_a_pseudo_count_keeps_its_joint_posterior(seed_sequence):
    family = LogNormal(-0.4, 0.8)
    assert_p(pseudo_count_run(family, FAMILIES[family]), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", [LogNormal(-0.4 - 0.8**2, 0.8), LogNormal(-0.4, 1.4)], ids=["no Jacobian", "sd"]
)
def test_planted_priors_of_a_pseudo_count_are_seen(planted, seed_sequence):
    run = pseudo_count_run(planted, FAMILIES[LogNormal(-0.4, 0.8)])
    assert chi_squared_p(*run(seed_sequence, 2)[:2]) < 1e-6
