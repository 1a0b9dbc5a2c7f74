"""The dynamic mixture of finite mixtures: its law, the draws of the number of components, and
chains of estimators against enumerated posteriors. `Unmoved`, `Static` and `Unbounded` are planted
errors."""

import pickle
import warnings

import numpy as np
import pytest
from reference.enumerate import enumerate_partitions, partition_index, partition_sizes
from reference.likelihoods import log_likelihoods
from reference.priors import log_eppf, log_eppf_finite, log_terms_mfm
from reference.simulate import enumeration_case
from scipy.special import gammaln, logsumexp
from sklearn.metrics import adjusted_rand_score
from support.designs import everyday
from support.exactness import estimator_run, make_likelihood
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm import FiniteMixture
from skdpm.mixture.estimators import NAMED_LAWS
from skdpm.mixture.priors import DynamicFiniteMixturesPrior
from skdpm.mixture.priors._mixture_of_finite_mixtures import tabulated_law

SIZES = [[1], [5], [1, 1, 1, 1], [3, 2, 2, 1], [40, 7, 1], [200, 200, 3]]
TABLE = np.log([0.1, 0.0, 0.3, 0.2, 0.25, 0.15], where=np.arange(6) != 1, out=np.full(6, -np.inf))

LAWS = {"poisson": "poisson", "geometric": "geometric", "table": TABLE}


def make_prior(concentration, law="geometric", n_samples=8, cls=DynamicFiniteMixturesPrior):
    table = tabulated_law(NAMED_LAWS[law], n_samples) if isinstance(law, str) else law
    return cls(n_samples, concentration, table)


@pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("concentration", everyday([1e-4, 0.7, 3.0, 1e4], 0.7))
def test_law_is_the_mean_over_numbers_of_components(concentration, law):
    prior = make_prior(concentration, law)
    for sizes in SIZES:
        keywords = {"concentration": concentration, "n_components_prior": law}
        expected = log_eppf(sizes, "dynamic", **keywords)
        np.testing.assert_allclose(prior.log_probability(sizes), expected, rtol=1e-9, atol=1e-9)
        nexts = [np.add(sizes, np.eye(len(sizes), dtype=int)[j]) for j in range(len(sizes))]
        nexts.append([*sizes, 1])
        of_next = [log_eppf(s, "dynamic", **keywords) - expected for s in nexts]
        np.testing.assert_allclose(
            np.exp(prior.log_weights(sizes)), np.exp(of_next), rtol=1e-8, atol=1e-14
        )


def test_probabilities_sum_to_one():
    for n in range(1, 7):
        sizes = [s[s > 0] for s in partition_sizes(enumerate_partitions(n))]
        total = logsumexp([make_prior(1.7).log_probability(s) for s in sizes])
        assert total == pytest.approx(0.0, abs=1e-12)


def test_share_of_the_number_of_components():
    prior = make_prior(0.9)
    prior.total_components = 6
    expected = prior.log_probability([3, 2, 1]) - log_eppf_finite([3, 2, 1], 0.9, 6)
    assert prior.log_latent_share([3, 2, 1]) == pytest.approx(expected, abs=1e-12)


def test_impossible_partitions():
    prior = make_prior(1.0, TABLE)
    assert prior.most_clusters == 6
    assert prior.log_probability([1] * 7) == -np.inf


def numbers_run(prior, sizes, concentration=0.8, law="geometric"):
    """Draws of the number of components given a partition, against the reference."""

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(200, dtype=int)
        for _ in range(round(4_000 * factor)):
            prior.resample_latent(sizes, bit_generator)
            counts[min(prior.total_components, 200) - 1] += 1
        terms = log_terms_mfm(sizes, concentration, law, dynamic=True)
        log_p = np.full(max(terms), -np.inf)
        log_p[[k - 1 for k in terms]] = list(terms.values())
        p = np.exp(log_p - logsumexp(log_p))
        return Cells(counts, np.append(p[:199], p[199:].sum()))

    return run


def test_draws_of_the_number_of_components(seed_sequence):
    for sizes in ([3, 2], [1, 1, 1], [9]):
        assert_p(numbers_run(make_prior(0.8), sizes), seed_sequence=seed_sequence)


class Unmoved(DynamicFiniteMixturesPrior):
    """The number of components stays at its largest value."""

    def resample_latent(self, sizes, bit_generator):
        pass


class Static(DynamicFiniteMixturesPrior):
    """The number is drawn as if each component had the whole concentration."""

    def _posterior(self, sizes):
        K, _ = self._terms(sizes)
        log_p = gammaln(K + 1) - gammaln(K - len(sizes) + 1) + self.log_pmf(K)
        log_p += gammaln(self.concentration * K) - gammaln(self.concentration * K + sum(sizes))
        return K, np.exp(log_p - logsumexp(log_p))

    @staticmethod
    def log_pmf(K):
        return NAMED_LAWS["geometric"](K)


class Unbounded(DynamicFiniteMixturesPrior):
    """Without the number of ways to choose the components that hold rows."""

    def _posterior(self, sizes):
        K, log_terms = self._terms(sizes)
        k = len(sizes)
        log_p = log_terms - gammaln(K + 1.0) + gammaln(K - k + 1.0) + k * np.log(K)
        return K, np.exp(log_p - logsumexp(log_p))


ERRORS = [Unmoved, Static, Unbounded]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.slow
def test_wrong_numbers_are_seen(error, seed_sequence):
    cells = numbers_run(make_prior(0.8, cls=error), [3, 2])(seed_sequence, 1)
    assert chi_squared_p(*cells[:2]) < 1e-6


def dynamic_run(likelihood, *, resampled, n_chains=1_500, law="geometric"):
    """`estimator_run` under this prior."""
    settings = {"n_components_prior": law}
    estimator = FiniteMixture(
        None, dynamic=True, likelihood=make_likelihood(likelihood), **settings
    )
    return estimator_run(
        estimator,
        likelihood,
        "dynamic",
        {"concentration": 1.6, **settings},
        resampled=resampled,
        n_chains=n_chains,
        n_warmup=30,
    )


@pytest.mark.slow
@pytest.mark.parametrize("law", everyday(["poisson", "geometric"], "poisson"))
def test_estimators_sample_the_posterior(law, seed_sequence):
    run = dynamic_run("bernoulli", resampled=True, law=law)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_estimators_sample_every_posterior(seed_sequence):
    runs = {
        f"{name} {resampled}": dynamic_run(name, resampled=resampled, n_chains=2_500)
        for name, resampled in [("gaussian", True), ("relational", False), ("poisson", True)]
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("error", [Unmoved, Static])
def test_wrong_chains_are_seen(error, seed_sequence, monkeypatch):
    monkeypatch.setattr("skdpm.mixture.estimators.priors.DynamicFiniteMixturesPrior", error)
    cells = dynamic_run("bernoulli", resampled=False, n_chains=2_500)(seed_sequence, 1)
    assert chi_squared_p(*cells[:2]) < 1e-6


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(3)
    X = np.concatenate([rng.normal(0, 1, (30, 2)), rng.normal(6, 1, (30, 2))])
    settings = {"n_warmup": 20, "n_chains": 2, "random_state": 0}
    model = FiniteMixture(None, dynamic=True, n_draws=30, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return X, model.fit(X)


def test_total_components_are_kept(fitted):
    _, model = fitted
    total = model.draws_["total_components"]
    assert total.shape == (2, 30)
    assert (total >= model.n_components_samples_).all()
    assert (total > model.n_components_samples_).any()
    assert len(np.unique(total)) > 2


@pytest.mark.filterwarnings("ignore")
def test_continued_chains_have_the_same_bits(fitted):
    X, model = fitted
    short = FiniteMixture(**{**model.get_params(), "n_draws": 12, "warm_start": True}).fit(X)
    longer = pickle.loads(pickle.dumps(short)).set_params(n_draws=30).fit(X)
    for name in model.draws_:
        np.testing.assert_array_equal(longer.draws_[name], model.draws_[name])


@pytest.fixture(scope="module")
def enumerated():
    """A fit to the five rows of a case, and log p(rows | partition) of any of these rows."""
    case = enumeration_case("bernoulli")
    model = FiniteMixture(
        None,
        n_components_prior="geometric",
        dynamic=True,
        concentration=1.6,
        likelihood=make_likelihood("bernoulli"),
        n_chains=1,
        n_warmup=5,
        n_draws=20,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(case.X)

    def log_likelihood(rows, labels):
        partitions = enumerate_partitions(len(rows))
        at = partition_index(np.unique(labels, return_inverse=True)[1][None])[0]
        assert adjusted_rand_score(partitions[at], labels) == 1
        return log_likelihoods(case.X[rows], "bernoulli", **case.params)[at]

    return model, log_likelihood


@pytest.mark.slow
def test_log_joint_is_summed_over_the_number_of_components(enumerated):
    model, log_likelihood = enumerated
    for labels, value in zip(model.label_samples_[0], model.log_joint_samples_[0], strict=True):
        prior = {"concentration": 1.6, "n_components_prior": "geometric"}
        expected = log_eppf(np.bincount(labels), "dynamic", **prior)
        expected += log_likelihood(range(5), labels)
        assert value == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_leave_one_out_is_given_the_number_of_components(enumerated):
    """p(row | others, partition, number of components) by the sum over the places of the row."""
    model, log_likelihood = enumerated
    draws = model.draws_
    densities = model._training.log_leave_one_out(model.likelihood_, draws)
    for row, draw in zip(densities, draws.scored.draws, strict=True):
        labels = draws["labels"][0, draw["draw"]].astype(int)
        number = draws["total_components"][0, draw["draw"]]
        for i in range(5):
            others = np.delete(np.arange(5), i)
            places = []
            for place in {*labels[others], 5}:
                moved = np.where(np.arange(5) == i, place, labels)
                log_prior = log_eppf_finite(np.bincount(moved), 1.6, number)
                places.append(log_prior + log_likelihood(range(5), moved))
            expected = logsumexp(places)
            expected -= log_eppf_finite(np.bincount(labels[others]), 1.6, number)
            expected -= log_likelihood(others, labels[others])
            assert row[i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("sampler", ["smc", "sub_cluster", "blocked_gibbs"])
def test_samplers_without_the_number_are_refused(sampler):
    model = FiniteMixture(None, dynamic=True, sampler=sampler)
    with pytest.raises(ValueError, match="DynamicFiniteMixturesPrior"):
        model.fit(np.random.default_rng(0).normal(size=(20, 2)))
