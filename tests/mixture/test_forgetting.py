"""Streams that forget: against enumerated partitions of the rows that are kept."""

import pickle
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import log_posterior, log_posterior_concentration
from reference.simulate import LIKELIHOOD_NAMES, PRIOR_CASES, enumeration_case
from support.cases import make_estimator
from support.designs import combinations, everyday
from support.exactness import case_rows, make_likelihood

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, Poisson
from skdpm.mixture.samplers import SMC
from skdpm.papers.smc import AnnealedSMC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

PRODUCT = [name for name in LIKELIHOOD_NAMES if not name.startswith("relational")]
N_ROWS = 7
HALF_LIFE = 1.5


def kept(n_rows, half_life, n_fitted=0):
    """Numbers of the rows that are kept after n_rows. Those of a fit come at once."""
    number = np.arange(n_rows)
    u = np.mod((number + 1) * (np.sqrt(5.0) - 1.0) / 2.0, 1.0)
    lifetime = np.ceil(half_life * np.minimum(-np.log2(u), 10.0))
    age = n_rows - np.maximum(number + 1, n_fitted)
    return number[age < lifetime]


def rows_of(name):
    """Rows, some twice; without missing entries if particles draw these."""
    whole = make_likelihood(name).draws_gaps
    X = case_rows(f"{name}_complete" if whole else name)
    return np.concatenate([X, X])[:N_ROWS]


@combinations(likelihood=PRODUCT, prior=PRIOR_CASES, how=["partial_fit", "fit"])
def test_forgetting_is_enumeration(likelihood, prior, how):
    """Particles for all partitions: each row raises the evidence by its log predictive density
    given the rows that are kept, and draws are partitions of these."""
    X, (name, prior_params) = rows_of(likelihood), PRIOR_CASES[prior]
    params = {"likelihood_params": enumeration_case(likelihood).params}
    n_fitted = 2 if how == "fit" else 0
    model = make_estimator(
        make_likelihood(likelihood),
        prior,
        sampler=SMC(880, rejuvenation=None, order="given", half_life=HALF_LIFE),
        n_draws=4,
    )

    def law(numbers):
        return log_posterior(X[numbers], likelihood, name, prior_params=prior_params, **params)

    getattr(model, how)(X[:2])
    expected = law([0, 1]).log_evidence
    for first, stop in ((2, 3), (3, 6), (6, 7)):
        model = pickle.loads(pickle.dumps(model)).partial_fit(X[first:stop])
        for n in range(first, stop):
            before = kept(n, HALF_LIFE, n_fitted)
            expected += law([*before, n]).log_evidence - law(before).log_evidence
        np.testing.assert_allclose(model.log_evidence_chains_, expected, atol=1e-8)
        left = law(kept(stop, HALF_LIFE, n_fitted))
        found = np.round(model.log_joint_samples_, 7)
        assert np.isin(found, np.round(left.log_joint, 7)).all()
    assert 1 < left.partitions.shape[1] < N_ROWS - 2
    assert model.n_samples_seen_ == model.n_iter_ == N_ROWS


@pytest.mark.parametrize("prior", ["dp", "pitman_yor_negative"])
def test_the_concentration_is_that_of_the_rows_that_are_kept(prior):
    X, (name, params) = rows_of("bernoulli"), PRIOR_CASES[prior]
    concentration_prior = (2.0, 0.8)

    def log_evidence(numbers):
        return log_posterior_concentration(
            X[numbers],
            "bernoulli",
            name,
            likelihood_params=enumeration_case("bernoulli").params,
            prior_params={k: v for k, v in params.items() if k != "concentration"},
            concentration_prior=concentration_prior,
        ).log_evidence

    model = make_estimator(
        make_likelihood("bernoulli"),
        prior,
        sampler=SMC(880, half_life=HALF_LIFE),
        resampled=True,
        concentration_prior=concentration_prior,
    ).partial_fit(X)
    expected = log_evidence([0])
    for n in range(1, N_ROWS):
        before = kept(n, HALF_LIFE)
        expected += log_evidence([*before, n]) - log_evidence(before)
    np.testing.assert_allclose(model.log_evidence_chains_, expected, atol=1e-8)


@pytest.mark.parametrize("likelihood", everyday([Gaussian(), Poisson()], "Gaussian()"), ids=repr)
@pytest.mark.long
def test_batches_give_the_bits_of_one(likelihood):
    """After a fit that moves and learns, pickled in between, and with statistics computed anew on
    the way. Labels count the rows of each cluster, and rows of the call that are forgotten have
    one, too."""
    rng = np.random.default_rng(0)
    X = rng.poisson(rng.choice([1.0, 9.0], size=(270, 1)), size=(270, 2)).astype(float)
    sampler = SMC(6, half_life=20.0)
    fit = make_estimator(likelihood, sampler=sampler, resampled=True).fit(X[:50])
    copies = [pickle.loads(pickle.dumps(fit)) for _ in range(2)]
    whole, parts = copies[0].partial_fit(X[50:]), copies[1]
    for batch in np.split(X[50:], [1, 2, 9, 60, 170]):
        parts = pickle.loads(pickle.dumps(parts)).partial_fit(batch)
    assert whole.log_evidence_ == parts.log_evidence_
    np.testing.assert_array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
    np.testing.assert_array_equal(whole.weights_, parts.weights_)
    np.testing.assert_allclose(whole.score_samples(X), parts.score_samples(X), rtol=1e-12)
    numbers = kept(270, 20.0, 50)
    for model in (whole, parts):
        # Integers are spread for Gaussian clusters.
        np.testing.assert_allclose(model._run.kept.rows, X[numbers], atol=0.51)
        for chain in model._run.chains:
            system = chain["system"]
            assert system["n_rows"] == system["labels"].shape[1] == len(numbers)
            for p, labels in enumerate(system["labels"]):
                stats = system["stats"][system["family"][p]][system["slots"][p]]
                np.testing.assert_array_equal(np.bincount(labels), stats[:, 0])
    assert whole.labels_.shape == (220,) and (whole.labels_ >= 0).all()
    np.testing.assert_array_equal(whole.labels_[-20:], parts.labels_[-20:])
    agree = whole.labels_ == whole.predict(X[50:])
    assert agree.mean() > 0.9


@pytest.mark.long
def test_a_drift_is_followed():
    """One cluster moves and one ends: its rows are forgotten, and rows in memory are few."""
    rng = np.random.default_rng(0)
    first = np.concatenate([rng.normal(-8.0, 1.0, size=(60, 1)), rng.normal(0.0, 1.0, (60, 1))])
    later = rng.normal(np.linspace(0.0, 30.0, 600), 1.0)[:, None]
    ends = []
    for half_life in (None, 30.0):
        sampler = SMC(10, half_life=half_life)
        model = DPMixture(sampler=sampler, n_chains=1, n_draws=10, random_state=0).fit(first)
        before = model.log_evidence_
        model.partial_fit(later)
        ends.append(model.log_evidence_ - before)
    assert ends[1] > ends[0] + 100.0
    assert model.n_clusters_ == 1
    # The rows that are kept are half_life / log(2) rows old on average.
    assert abs(model.cluster_params_["means"][0, 0] - (30.0 - 30.0 / np.log(2.0) / 20.0)) < 0.5
    assert 30 < len(model._run.kept.leaves) < 60


@pytest.mark.parametrize("half_life", [0.3, 1.0, 50.0])
@pytest.mark.some(1)
def test_shares_of_rows_that_are_kept(half_life):
    n = 5000
    age = n - 1 - kept(n, half_life)
    rows = {n: kept(n, half_life) for n in range(4000, 5000)}
    for a in (0, 1, 2, 20, 49, 149):
        share = np.mean([n - 1 - a in rows[n] for n in rows])
        assert abs(share - 0.5 ** (a / half_life)) < 0.01
    assert age.max() <= 10.0 * half_life
    model = make_estimator(Poisson(shape=1.0, rate=1.0), sampler=SMC(1, half_life=half_life))
    model.partial_fit(np.ones((200, 1)))
    left = model._run.kept.leaves
    assert len(left) == len(kept(200, half_life)) and left.min() > 200


def test_refusals():
    whole = np.random.default_rng(0).normal(size=(30, 2))
    gaps = np.where(np.arange(60).reshape(30, 2) == 7, np.nan, whole)

    def model(half_life=5.0, **params):
        return DPMixture(sampler=SMC(3, half_life=half_life), n_draws=2, n_chains=1, **params)

    for how in ("fit", "partial_fit"):
        for estimator, rows, known, reason in (
            (model(), gaps, None, "missing entries"),
            (model(likelihood=Gaussian(tails="t")), whole, None, "weights of rows"),
            (model(noise=(1.0, 10.0)), whole, None, "noise"),
            (model(), whole, np.arange(30) % 3 - 1, "known labels"),
        ):
            with pytest.raises(ValueError, match=f"SMC.half_life .* {reason}.*half_life=None"):
                getattr(estimator, how)(rows, known_labels=known)
    for value in (0.0, -1.0, np.nan):
        with pytest.raises(ValueError, match=r"SMC\.half_life must be"):
            model(value).partial_fit(whole)
    annealed = DPMixture(sampler=AnnealedSMC(3, half_life=5.0))
    with pytest.raises(ValueError, match="AnnealedSMC has no half_life"):
        annealed.fit(whole)
    stream = model().partial_fit(whole[:10])
    with pytest.raises(ValueError, match="but sampler changed"):
        stream.set_params(sampler__half_life=6.0).partial_fit(whole[10:])
    stream.set_params(sampler__half_life=5.0)
    with pytest.raises(ValueError, match="missing entries"):
        stream.partial_fit(gaps)
    assert stream.partial_fit(whole[10:]).n_samples_seen_ == 30


def test_known_labels_of_a_later_call_are_refused():
    whole = np.random.default_rng(0).normal(size=(12, 2))
    stream = DPMixture(sampler=SMC(3, half_life=50.0), n_draws=2, n_chains=1)
    stream.partial_fit(whole[:10])
    with pytest.raises(ValueError, match=r"SMC\.half_life .* known labels"):
        stream.partial_fit(whole[10:], known_labels=[0, 1])


def test_rows_may_come_dense_after_sparse():
    X = np.random.default_rng(0).poisson(1.0, (20, 4)).astype(float) + np.eye(4)[0]
    settings = {"sampler": SMC(5, half_life=8.0), "n_chains": 1, "random_state": 0}
    labels = [
        DPMixture(likelihood="multinomial", **settings)
        .partial_fit(first)
        .partial_fit(second)
        .labels_
        for first, second in [(sp.csr_array(X[:9]), X[9:]), (X[:9], X[9:])]
    ]
    np.testing.assert_array_equal(*labels)


def test_threads_read_the_draws_of_a_stream():
    """The first read makes the draws; the others wait for it."""
    X = np.random.default_rng(0).normal(size=(110, 2))
    stream, twin = (
        DPMixture(sampler=SMC(50), n_chains=2, n_draws=50, random_state=0)
        .partial_fit(X[:100])
        .partial_fit(X[100:])
        for _ in range(2)
    )
    unread, found = vars(twin)["_unread"], []

    def slow():
        time.sleep(0.05)
        return unread()

    def read():
        found.append(twin.labels_)

    twin._unread = slow

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for labels in found:
        np.testing.assert_array_equal(labels, stream.labels_)
