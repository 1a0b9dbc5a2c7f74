"""Known labels in streams: particles remember the classes of components."""

import pickle

import numpy as np
import pytest
from reference.likelihoods import log_posterior
from reference.noise import log_box, log_noise_posterior, log_open_box
from reference.simulate import PRIOR_CASES, enumeration_case
from sklearn.base import clone
from support.cases import fit_case, make_estimator
from support.designs import combinations
from support.exactness import make_likelihood
from support.known import CODES, allowed, restricted

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import Gaussian
from skdpm.mixture.rows import known as _known
from skdpm.mixture.samplers import SMC

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

# Names of the classes. New ones come before others in their order.
NAMES = np.array([7, 2, 4, -1])


def law_of(prior, codes, n_samples, noise=None):
    """The enumerated law of the first rows. The box of noise is that of the first two."""
    name, prior_params = PRIOR_CASES[prior]
    case, codes = enumeration_case("gaussian"), codes[:n_samples]
    X = case.X[:n_samples]
    params = {"likelihood_params": case.params, "prior_params": prior_params}
    if noise is None:
        return restricted(log_posterior(X, "gaussian", name, **params), codes)
    log_noise = np.append(log_box(X[:2], X[:2]), log_open_box(X[:2], X[2:]))
    law = log_noise_posterior(X, "gaussian", name, log_noise=log_noise, beta=noise, **params)
    may_be = allowed(law.partitions, codes)
    return law._replace(log_joint=np.where(may_be, law.log_joint, -np.inf))


def stream(prior="dp", **settings):
    return make_estimator(make_likelihood("gaussian"), prior, sampler=SMC(203), **settings)


def assert_enumerated(model, law):
    np.testing.assert_allclose(model.log_evidence_chains_, law.log_evidence, atol=1e-9)
    found = np.round(model.log_joint_samples_, 8)
    assert np.isin(found, np.round(law.log_joint[np.isfinite(law.log_joint)], 8)).all()


@combinations(prior=PRIOR_CASES, codes=list(CODES), noise=[None, (1.0, 1.0)])
def test_following_all_choices_is_enumeration(prior, codes, noise):
    """The evidence of each batch is that of its rows, and that no component has rows of two
    classes; the first batch has no labels."""
    X, codes = enumeration_case("gaussian").X, CODES[codes][::-1].copy()
    codes[:2] = -1
    model = stream(prior, noise=noise).partial_fit(X[:2])
    assert_enumerated(model, law_of(prior, codes, 2, noise))
    for first, stop in ((2, 3), (3, 5)):
        model = pickle.loads(pickle.dumps(model))
        model.partial_fit(X[first:stop], known_labels=NAMES[codes[first:stop]])
        assert_enumerated(model, law_of(prior, codes, stop, noise))
        known = codes[first:stop] >= 0
        assert (model.labels_[known] == NAMES[codes[first:stop][known]]).all()
    assert set(NAMES[codes[codes >= 0]]) <= set(model.classes_)


@pytest.mark.parametrize("labelled", [(0, 3), (0,), (1, 2)])
@pytest.mark.parametrize("how", ["fit", "partial_fit"])
@pytest.mark.some(2)
def test_later_rows_meet_the_classes_of_earlier_ones(how, labelled):
    """Whichever batches have labels; after a fit as well."""
    X, codes = enumeration_case("gaussian").X, np.array([1, -1, 0, 1, 0])
    batches = [slice(2), slice(2, 3), slice(3, 4), slice(4, 5)]
    for b, batch in enumerate(batches):
        if b not in labelled:
            codes[batch] = -1
    model = stream().set_params(sampler=SMC(52, rejuvenation=None))
    for b, batch in enumerate(batches):
        labels = NAMES[codes[batch]] if b in labelled else None
        getattr(model, "partial_fit" if b else how)(X[batch], known_labels=labels)
    assert_enumerated(model, law_of("dp", codes, 5))


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["systematic", "optimal"])
def test_few_particles_are_unbiased(scheme):
    """The mean of the evidence of small systems."""
    X, codes = enumeration_case("gaussian").X, np.array([0, -1, 1, 0, 1])
    model = stream("finite", n_chains=300, n_draws=1, point_estimate="last", random_state=1)
    model.set_params(sampler=SMC(3, resampling=scheme, resample_threshold=1.0))
    model.partial_fit(X[:2], known_labels=NAMES[codes[:2]])
    model.partial_fit(X[2:], known_labels=NAMES[codes[2:]])
    ratios = np.exp(model.log_evidence_chains_ - law_of("finite", codes, 5).log_evidence)
    assert ratios.std() > 0.01
    assert abs(ratios.mean() - 1.0) < 3.5 * ratios.std() / np.sqrt(len(ratios))


@pytest.mark.parametrize("error", ["numbers", "classes"])
def test_planted_errors_are_seen(error, monkeypatch):
    """Classes that keep their old numbers, and components that forget theirs."""
    wrong = {
        "numbers": lambda stats, numbers: stats if numbers is not None else right(stats, None),
        "classes": lambda stats, numbers: right(right(stats, numbers)[:, :-3], None),
    }
    right = _known.renumbered
    monkeypatch.setattr(_known, "renumbered", wrong[error])
    X, codes = enumeration_case("gaussian").X, np.array([0, 0, 1, 0, 1])
    model = stream().partial_fit(X[:2], known_labels=NAMES[codes[:2]])
    model.partial_fit(X[2:], known_labels=NAMES[codes[2:]])
    assert abs(model.log_evidence_ - law_of("dp", codes, 5).log_evidence) > 0.1


@pytest.mark.parametrize("noise", [None, True])
@pytest.mark.some(1)
def test_batches_give_the_bits_of_one(noise):
    """New classes renumber the others, and change nothing."""
    case = fit_case("gaussian", n_samples=41)
    X = case.X[~np.isnan(case.X).any(axis=1)]
    known = np.where(np.arange(len(X)) % 3 == 0, 9 - np.arange(len(X)) // 12, -1)
    settings = {"sampler": SMC(6), "noise": noise}
    first = make_estimator(case.likelihood, "dp", **settings).partial_fit(X[:4])
    whole = pickle.loads(pickle.dumps(first)).partial_fit(X[4:], known_labels=known[4:])
    for stops in ([5, 9, 30], [20]):
        parts, start = pickle.loads(pickle.dumps(first)), 4
        for stop in (*stops, len(X)):
            batch = slice(start, stop)
            parts = pickle.loads(pickle.dumps(parts)).partial_fit(
                X[batch], known_labels=known[batch]
            )
            start = stop
        assert parts.log_evidence_ == whole.log_evidence_
        np.testing.assert_array_equal(parts.log_joint_samples_, whole.log_joint_samples_)
        np.testing.assert_array_equal(parts.classes_, whole.classes_)
        np.testing.assert_array_equal(parts.predict_proba(X), whole.predict_proba(X))
        np.testing.assert_array_equal(parts.labels_, whole.labels_[-len(parts.labels_) :])


@pytest.mark.long
def test_answers():
    """A class of two components, a class, and a cluster without a class: as after a fit."""
    rng = np.random.default_rng(0)
    y = np.tile([5, 3, 5, 8], 30)
    X = rng.normal(size=(120, 2)) + np.tile(
        [[-9.0, 0.0], [0.0, 9.0], [9.0, 0.0], [0.0, -9.0]], (30, 1)
    )
    known = np.where((np.arange(120) < 80) & (y < 8), y, -1)
    likelihood = Gaussian(mean=0.0, mean_precision=0.01, df=4.0, scale=np.eye(2))
    model = DPMixture(likelihood=likelihood, sampler=SMC(20, rejuvenation=None), random_state=0)
    fit = clone(model).fit(X, known_labels=known)
    for start in range(0, 120, 40):
        batch = slice(start, start + 40)
        model.partial_fit(X[batch], known_labels=known[batch])
    assert model.classes_.tolist() == [3, 5, 6] and model.n_clusters_ == 3
    names = np.where(y == 8, 6, y)
    np.testing.assert_array_equal(model.labels_, names[80:])
    np.testing.assert_array_equal(model.predict(X), names)
    np.testing.assert_allclose(model.weights_, [0.25, 0.5, 0.25], atol=0.02)
    for name, values in fit.cluster_params_.items():
        np.testing.assert_allclose(model.cluster_params_[name], values, err_msg=name)
    assert model.predict_proba(X, new_cluster=True).shape == (120, 4)
    assert set(model.sample(100)[1]) == {3, 5, 6}
    # Rows without labels keep the classes, and another class may come late.
    model.partial_fit(X[:4])
    np.testing.assert_array_equal(model.labels_, names[:4])
    model.partial_fit(X[3:4], known_labels=[1])
    assert model.classes_.tolist() == [1, 3, 5] and model.labels_.tolist() == [1]
    np.testing.assert_array_equal(model.predict(X[:8]), np.where(y == 8, 1, y)[:8])


def test_chunks_of_a_dask_array():
    da = pytest.importorskip("dask.array", reason="dask is not installed")
    X, known = enumeration_case("gaussian").X, NAMES[CODES["three"]]
    model, other = stream(), stream()
    model.partial_fit(da.from_array(X, chunks=(2, 2)), known_labels=known)
    for start in range(0, 5, 2):
        other.partial_fit(X[start : start + 2], known_labels=known[start : start + 2])
    assert model.log_evidence_ == other.log_evidence_
    np.testing.assert_array_equal(model.labels_, other.labels_)


def test_refusals_change_nothing():
    X = np.r_[np.zeros(20), np.full(20, 9.0)][:, None] + np.random.default_rng(0).normal(
        size=(40, 1)
    )
    settings = {"sampler": SMC(1), "n_chains": 1, "random_state": 0}
    model = FiniteMixture(2, **settings).partial_fit(X, known_labels=np.zeros(40))
    before = pickle.dumps(vars(model))
    with pytest.raises(ValueError, match="no particle has a component left for a class"):
        model.partial_fit(X[:3], known_labels=[-1, 1, 1])
    with pytest.raises(ValueError, match="known_labels has 3 classes, more than the 2"):
        model.partial_fit(X[:3], known_labels=[-1, 1, 2])
    with pytest.raises(ValueError, match="one entry for each of the 3 rows"):
        model.partial_fit(X[:3], known_labels=[0, 1])
    assert pickle.dumps(vars(model)) == before
    assert (model.partial_fit(X[:3]).labels_ == 0).all()
