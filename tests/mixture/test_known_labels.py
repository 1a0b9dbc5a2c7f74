"""Rows with known labels: the posterior restricted to partitions in which no component has rows of
two classes, and what users read off it."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from reference.enumerate import enumerate_partitions
from reference.noise import (
    log_box,
    log_noise_likelihood,
    log_noise_prior,
    log_open_box,
)
from reference.predictive import log_densities, log_leave_one_out, log_weights
from reference.simulate import PRIOR_CASES, enumeration_case
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.cases import NAMES, fit_case, make_estimator
from support.designs import combinations, everyday, in_shares, thirds
from support.exactness import (
    MANY_ITERATIONS,
    N_ITERATIONS,
    SAMPLER_CASES,
    convergence_run,
    invariance_run,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
    run_kernel,
)
from support.fits import assert_same_fit
from support.hills import read_hills
from support.kernels import bind
from support.known import CODES, case_law, case_rows, noisy_law, united
from support.noise import BETA, log_noise_of
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture, MixtureImputer
from skdpm.mixture.answers.components import points_of
from skdpm.mixture.chains import automatic
from skdpm.mixture.likelihoods import Bernoulli, Gaussian, Product, Relational
from skdpm.mixture.likelihoods.composite.classified import Classified, separated
from skdpm.mixture.rows.known import KnownLabels
from skdpm.mixture.rows.noise import NoiseLaw
from skdpm.mixture.samplers import ARM, SAMS, SMC, Alternate, Gibbs, SplitMerge, SubCluster
from skdpm.mixture.state._state import MixtureState, Noise

LIKELIHOODS = ("gaussian", "gaussian_diag", "bernoulli")
# An iteration of Alternate is one of Gibbs and one of SAMS.
SAMPLERS = [
    pytest.param(name, sampler, id=repr(sampler))
    for name, samplers in SAMPLER_CASES.items()
    for sampler in samplers
    if name != "alternate"
] + [
    pytest.param(
        "split_merge", SplitMerge(anchors="threshold_informed", gibbs_sweeps=0), id="informed"
    ),
    pytest.param("split_merge", SplitMerge.from_paper("bSM"), id="bSM"),
]
IRIS = load_iris(return_X_y=True)


def known_state(likelihood, prior, codes):
    name, params = PRIOR_CASES[prior]
    X = enumeration_case(likelihood).X
    likelihood = Classified(make_likelihood(likelihood), codes)
    start = separated(np.zeros(len(X), dtype=np.intp), codes, len(X))
    return make_state(likelihood, X, make_prior(name, len(X), **params), start)


def cells():
    """(likelihood, prior, codes): each likelihood under each prior, with different classes."""
    numbers = iter(range(100))
    return [
        (likelihood, prior, tuple(CODES)[next(numbers) % len(CODES)])
        for likelihood in LIKELIHOODS
        for prior in PRIOR_CASES
    ]


@in_shares
@thirds("name, sampler", SAMPLERS)
@pytest.mark.long
def test_invariance(name, sampler, share, seed_sequence, record_property):
    """Starts drawn from the restricted posterior still follow it after some iterations."""
    runs = {
        f"{likelihood} {prior} {codes}": invariance_run(
            known_state(likelihood, prior, CODES[codes]),
            sampler.kernel(),
            case_law(likelihood, prior, CODES[codes]),
            n_starts=4_000,
        )
        for likelihood, prior, codes in share(cells())
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@in_shares
@pytest.mark.parametrize(
    "name, sampler", everyday(SAMPLERS, "Gibbs()", "SAMS(gibbs_sweeps=0)", n_values=2)
)
def test_convergence(name, sampler, share, seed_sequence, record_property):
    """Chains from the partition with the fewest components reach the posterior."""
    n_iterations = N_ITERATIONS.get(name, MANY_ITERATIONS)
    runs = {}
    for likelihood, prior, codes in share(cells()):
        if (prior, codes) == ("finite", "three") and name in ("sams", "split_merge"):
            # Three components of three classes: no pair of them can merge, and none can split.
            continue
        start = separated(np.zeros(5, dtype=np.intp), CODES[codes], 5)
        runs[f"{likelihood} {prior} {codes}"] = convergence_run(
            known_state(likelihood, prior, CODES[codes]),
            sampler.kernel(),
            case_law(likelihood, prior, CODES[codes]),
            start,
            n_chains=20_000 // n_iterations,
            n_iterations=n_iterations,
        )
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("error", ["no classes", "other class", "weight of a new cluster"])
def test_planted_errors_are_seen(error, seed_sequence):
    """A chain that forgets the classes, or one of them, or weighs new clusters wrongly."""
    codes = CODES["two"]
    wrong = {"no classes": np.full(5, -1), "other class": np.array([0, -1, 1, -1, -1])}
    state = known_state("gaussian_diag", "dp", wrong.get(error, codes))
    changes = {} if error in wrong else {"concentration": 1.3 * 1.25}
    law = case_law("gaussian_diag", "dp", codes, **changes)

    rng = np.random.Generator(np.random.PCG64(seed_sequence))
    ends = run_kernel(state, Gibbs().kernel(), law.draw(20_000, rng), 2, rng)
    assert chi_squared_p(*Cells(law.count(ends), law.probabilities, law.partitions)[:2]) < 1e-6


# Rows that are noise. A row of a known class is none.


def noisy_state(likelihood, prior, codes):
    name, params = PRIOR_CASES[prior]
    X = enumeration_case(likelihood).X
    resolved = Classified(make_likelihood(likelihood), codes).resolve(X)
    log_noise = np.where(codes >= 0, -np.inf, log_noise_of(likelihood))
    return MixtureState(
        bind(resolved, resolved.encode(X), len(X)),
        make_prior(name, len(X), **params),
        separated(np.zeros(len(X), dtype=np.intp), codes, len(X)),
        noise=Noise(*BETA, log_noise),
    )


@thirds("name, sampler", SAMPLERS)
@pytest.mark.long
def test_invariance_with_noise(name, sampler, seed_sequence, record_property):
    cases = [("gaussian", "dp", "two"), ("bernoulli", "mfm", "one")]
    cases += [("gaussian_diag", "finite", "one")]
    runs = {
        f"{likelihood} {prior} {codes}": invariance_run(
            noisy_state(likelihood, prior, CODES[codes]),
            sampler.kernel(),
            noisy_law(likelihood, prior, CODES[codes]),
            n_starts=4_000,
        )
        for likelihood, prior, codes in cases
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def noisy_cells(model, law, X, codes):
    model.fit(X, known_labels=codes)
    counts = law.count(model.label_samples_[:, 0])
    return Cells(counts, law.probabilities, law.partitions)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "prior, codes", [("dp", "one"), pytest.param("mfm", "two", marks=pytest.mark.slow)]
)
@pytest.mark.long
def test_fits_with_noise_sample_the_posterior(prior, codes, seed_sequence):
    """Under the law of noise of a fit, the uniform law on the box of the rows."""
    X, codes = enumeration_case("gaussian").X, CODES[codes]
    law = noisy_law("gaussian", prior, codes, log_box(X, X), beta=(1.0, 1.0))

    def run(seed, factor):
        model = make_estimator(make_likelihood("gaussian"), prior, noise=(1.0, 1.0))
        model.set_params(n_chains=round(800 * factor), n_warmup=30, n_draws=1)
        model.set_params(point_estimate="last", random_state=int(seed.generate_state(1)[0]))
        return noisy_cells(model, law, X, codes)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("error", ["a known row may be noise", "law of noise"])
def test_planted_errors_with_noise_are_seen(error, monkeypatch):
    X, codes = enumeration_case("gaussian").X, CODES["two"]
    beta = (1.7, 1.0) if error == "law of noise" else (1.0, 1.0)
    law = noisy_law("gaussian", "dp", codes, log_box(X, X), beta)
    if error != "law of noise":
        of, others = NoiseLaw.of, KnownLabels(np.arange(2), np.where(np.arange(5) == 4, -1, codes))
        monkeypatch.setattr(NoiseLaw, "of", lambda law, X, known: of(law, X, others))
    model = make_estimator(make_likelihood("gaussian"), "dp", noise=(1.0, 1.0))
    model.set_params(n_chains=1_500, n_warmup=30, n_draws=1, point_estimate="last")
    assert chi_squared_p(*noisy_cells(model, law, X, codes)[:2]) < 1e-6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("new_cluster", everyday([False, True], True))
@pytest.mark.long
def test_predictions_with_noise_follow_from_the_draws(new_cluster):
    """P(noise | row) is its share of the density over all draws; the classes share the rest as
    without noise."""
    case, (a, b) = fit_case("gaussian"), (3.0, 5.0)
    known = np.where(np.arange(18) % 4 == 0, np.arange(18) % 3 * 5, -1)
    codes = np.where(known < 0, -1, known // 5)
    model = make_estimator(case.likelihood, "dp", noise=(a, b), point_estimate="vi", init="auto")
    model.fit(case.X, known_labels=known)
    X_new = np.vstack([case.X_new, np.full((1, case.X.shape[1]), 50.0)])
    params, total, of_noise, of_clusters = PRIOR_CASES["dp"][1], 0.0, 0.0, 0.0
    for labels in model.label_samples_.reshape(-1, 18).astype(int):
        inside, weight = labels >= 0, (a + (labels < 0).sum()) / (a + b + 18)
        terms = (1.0 - weight) * class_terms(
            case.X[inside],
            case.params,
            ("dp", "gaussian"),
            params,
            labels[inside],
            codes[inside],
            model._clusters[inside],
            X_new,
            n_clusters=model._clusters.max() + 1,  # all rows of one may be noise in this draw
        )
        log_terms = log_densities(case.X[inside], labels[inside], X_new, "gaussian", case.params)
        densities = np.exp(log_terms + log_weights(labels[inside], "dp", params))
        of_clusters += (1.0 - weight) * densities[:, : None if new_cluster else -1].sum(axis=1)
        of_noise += weight * np.exp(log_open_box(case.X, X_new))
        total = total + terms
    assert (model.labels_ < 0).any() and (model.labels_[known >= 0] == known[known >= 0]).all()
    assert (model.noise_probabilities_[known >= 0] == 0.0).all()
    total = total[:, : None if new_cluster else -1]
    shares = total / total.sum(axis=1, keepdims=True)
    expected = shares * (of_clusters / (of_clusters + of_noise))[:, None]
    found = model.predict_proba(X_new, new_cluster=new_cluster)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    if not new_cluster:
        best = np.column_stack([1.0 - expected.sum(axis=1), expected]).argmax(axis=1) - 1
        np.testing.assert_array_equal(model.predict(X_new), np.append(model.classes_, -1)[best])
        assert model.predict(X_new)[-1] == -1


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_leave_one_out_with_noise():
    """A difference of enumerated joint densities over what the row may be."""
    case, beta = fit_case("gaussian", n_samples=6), (3.0, 5.0)
    codes = np.array([0, -1, 1, -1, -1, 0])
    model = make_estimator(case.likelihood, "dp", noise=beta, n_draws=6)
    model.fit(case.X, known_labels=codes)
    found, log_noise = model.pointwise_log_likelihood(case.X), log_box(case.X, case.X)

    def log_joint(rows, labels):
        labels = np.where(labels < 0, -1, np.unique(labels, return_inverse=True)[1])
        labels[labels >= 0] -= labels[labels >= 0].min(initial=0)
        log_prior = log_noise_prior(labels, beta, "dp", PRIOR_CASES["dp"][1])
        return log_prior + log_noise_likelihood(
            case.X[rows], labels, log_noise[rows], "gaussian", case.params
        )

    for c, draws in enumerate(model.label_samples_):
        for s, labels in enumerate(draws.astype(int)):
            for i in range(6):
                rows, terms = np.delete(np.arange(6), i), []
                for k in {-1, *labels[rows], 99}:
                    placed = labels.copy()
                    placed[i] = k
                    if not united(placed, codes) and not (k < 0 <= codes[i]):
                        terms.append(log_joint(np.arange(6), placed))
                expected = logsumexp(terms) - log_joint(rows, labels[rows])
                assert found[c, s, i] == pytest.approx(expected, rel=1e-8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("point_estimate", ["modal", "vi"])
@pytest.mark.some(1)
@pytest.mark.long
def test_point_estimates_with_noise(point_estimate):
    """Two groups, a row of each with a class, a third group without, and scattered rows."""
    rng = np.random.default_rng(0)
    centres = [[0.0, 0.0]] * 40 + [[9.0, 0.0]] * 30 + [[0.0, 9.0]] * 20
    X = np.vstack([centres + rng.normal(size=(90, 2)), rng.uniform(-20, 30, (15, 2))])
    known = np.full(105, -1)
    known[[3, 50]] = 4, 2
    model = DPMixture(noise=True, n_warmup=30, n_draws=20, n_chains=2, random_state=0)
    model.set_params(point_estimate=point_estimate).fit(X, known_labels=known)
    expected = np.repeat([4, 2, 5], [40, 30, 20])
    assert (model.labels_[:90] == expected).mean() > 0.95
    assert (model.labels_[90:] == -1).mean() > 0.6
    assert model.classes_.tolist() == [2, 4, 5] and set(model.labels_) == {-1, 2, 4, 5}
    inside = model.labels_ >= 0
    np.testing.assert_array_equal(
        model.probabilities_[~inside], model.noise_probabilities_[~inside]
    )
    assert (model.probabilities_[inside] > 0.4).all() and model.labels_[3] == 4
    table = model.describe()
    assert table["n_rows"].groupby("cluster").first().sum() == inside.sum()
    assert set(model.sample(200)[1]) <= {-1, 2, 4, 5}
    assert set(model.merge_tree().cut(1)) == {-1, 0}
    assert set(model.estimate_labels(max_clusters=2).labels_) == {-1, 2, 4}


@pytest.mark.long
def test_merge_tree_names_the_classes():
    """Classes are in increasing order, clusters of a tree by decreasing size."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 7], [40, 20, 60])
    X = np.repeat([[0.0, 0.0], [9.0, 9.0], [3.5, 0.0]], [40, 20, 60], axis=0)
    model = DPMixture(n_warmup=30, n_draws=20, n_chains=2, random_state=0)
    known = np.where(rng.random(120) < 0.3, y, -1)
    model.fit(X + rng.normal(size=X.shape), known_labels=known)
    tree = model.merge_tree()
    assert tree.names.tolist() == [7, 0, 1]
    np.testing.assert_array_equal(tree.names[tree.labels], model.labels_)
    np.testing.assert_array_equal(tree.cut(2), np.where(model.labels_ == 1, 1, 0))


def test_labels_in_y_are_pointed_to_known_labels():
    X = np.repeat([[0.0], [9.0]], 4, axis=0) + np.arange(8.0)[:, None] / 8
    model = DPMixture(n_warmup=5, n_draws=5, n_chains=1, random_state=0)
    known = [0, -1, -1, 0, 3, -1, -1, 3]
    with pytest.warns(UserWarning, match="pass known_labels=y"):
        model.fit(X, known)
    model.fit(X, known, known_labels=known)
    model.fit(X, [-1, 1] * 4)
    model.fit(X, ["0", "-1"] * 4)


# Particles.


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@combinations(prior=["dp", "finite", "mfm"], codes=list(CODES), noise=[None, (1.0, 1.0)])
@pytest.mark.long
def test_evidence_of_particles_is_enumerated(prior, codes, noise):
    """A filter of as many particles as there are partitions is enumeration. The evidence is that
    of the rows, and that no component has rows of two classes."""
    X, codes = enumeration_case("gaussian").X, CODES[codes]
    law = case_law("gaussian", prior, codes)
    if noise is not None:
        law = noisy_law("gaussian", prior, codes, log_box(X, X), noise)
    model = make_estimator(make_likelihood("gaussian"), prior, noise=noise, init="auto")
    model.set_params(sampler=SMC(203, rejuvenation=None), n_chains=3).fit(X, known_labels=codes)
    np.testing.assert_allclose(model.log_evidence_chains_, law.log_evidence, atol=1e-9)
    counts = law.count(model.label_samples_.reshape(-1, 5))
    assert (counts[law.probabilities == 0.0] == 0).all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("rejuvenation, noise", [("sams", None), ("gibbs", (1.0, 1.0))])
def test_particles_sample_the_posterior(rejuvenation, noise, seed_sequence):
    X, codes = enumeration_case("gaussian").X, CODES["two"]
    law = case_law("gaussian", "dp", codes)
    if noise is not None:
        law = noisy_law("gaussian", "dp", codes, log_box(X, X), noise)

    def run(seed, factor):
        model = make_estimator(make_likelihood("gaussian"), "dp", noise=noise, init="auto")
        model.set_params(sampler=SMC(50, rejuvenation=rejuvenation), point_estimate="last")
        model.set_params(n_chains=round(500 * factor), n_draws=1)
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        return noisy_cells(model, law, X, codes)

    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("order", ["random", "given"])
@pytest.mark.long
def test_one_particle_never_unites_classes(order):
    """As many components as classes, and rows of the first class are in three groups: a row of
    each class is taken first, so these do not use up the components."""
    X, known = np.arange(40.0)[:, None], np.repeat([0, -1, 1, 2], 10)
    X[:10] = 1e3 * (X[:10] % 3.0)
    likelihood = Gaussian(mean=0.0, mean_precision=1e-6, df=3.0, scale=1.0)
    model = FiniteMixture(n_components=3, likelihood=likelihood, n_draws=3, random_state=0)
    model.set_params(sampler=SMC(1, rejuvenation=None, order=order))
    model.fit(X, known_labels=known)
    assert np.isfinite(model.log_evidence_) and model.log_evidence_ > -1e6
    assert (model.labels_[known >= 0] == known[known >= 0]).all()
    model.partial_fit(X, known_labels=known)
    assert (model.labels_[known >= 0] == known[known >= 0]).all()


FIT_CASES = [
    pytest.param("gaussian", "dp", "two", "auto", True, marks=pytest.mark.slow),
    pytest.param("gaussian", "dp", "two", "auto", False, marks=pytest.mark.slow),
    ("bernoulli", "finite", "three", "single", False),
    pytest.param("gaussian_diag", "mfm", "three", "singletons", False, marks=pytest.mark.slow),
    pytest.param("bernoulli", "pitman_yor", "one", "auto", False, marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("likelihood, prior, codes, init, gap", FIT_CASES)
def test_fits_sample_the_posterior(likelihood, prior, codes, init, gap, seed_sequence):
    """With a gap, chains draw the entry with the cluster of its row."""
    law = case_law(likelihood, prior, CODES[codes], gap)
    X = case_rows(enumeration_case(likelihood).X, gap)

    def run(seed, factor):
        model = make_estimator(make_likelihood(likelihood), prior)
        model.set_params(
            sampler=Alternate([Gibbs(), SAMS(gibbs_sweeps=0)]),
            init=init if prior != "finite" else np.zeros(5),
            n_chains=round(2_000 * factor),
            n_warmup=15,
            n_draws=1,
            point_estimate="vi",
            random_state=int(seed.generate_state(1)[0]),
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # one draw tells nothing
            model.fit(X, known_labels=CODES[codes])
        counts = law.count(model.label_samples_[:, 0])
        return Cells(counts, law.probabilities, law.partitions)

    assert_p(run, seed_sequence=seed_sequence)


def class_terms(
    case, params, prior, prior_params, labels, codes, estimate, X_new, n_clusters=None
):
    """Density of new rows in the clusters of a point estimate under one partition, and in a new
    component: (n_rows, n_clusters + 1). `estimate` numbers clusters from 0, the classes first;
    `n_clusters` is needed if it lacks the last ones."""
    log_terms = log_densities(case, labels, X_new, prior[1], params)
    terms = np.exp(log_terms + log_weights(labels, prior[0], prior_params))
    out = np.zeros((len(X_new), 1 + (n_clusters or estimate.max() + 1)))
    for c in range(labels.max() + 1):
        mine = codes[(labels == c) & (codes >= 0)]
        if len(mine):
            out[:, mine[0]] += terms[:, c]
        else:
            for k in estimate[labels == c]:
                out[:, k] += terms[:, c] / (labels == c).sum()
    out[:, -1] = terms[:, -1]
    return out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_probabilities_of_classes_follow_from_the_draws():
    """P(class | row) is the sum over draws and components of the class; components without a
    class count for the clusters of their rows."""
    for name, likelihood in (("gaussian", None), ("bernoulli", None), ("bernoulli", Bernoulli())):
        case = fit_case(name)
        known = np.where(np.arange(18) % 4 == 0, np.arange(18) % 3 * 5, -1)
        model = make_estimator(likelihood or case.likelihood, "pitman_yor", resampled=True)
        model.set_params(init="auto", point_estimate="vi", n_warmup=0)
        model.fit(case.X, known_labels=known)
        codes = np.where(known < 0, -1, known // 5)
        estimate = np.searchsorted(model.classes_, model.labels_)
        total = 0.0
        for chain, draws in enumerate(model.label_samples_):
            for s, labels in enumerate(draws):
                params = {
                    "concentration": model.concentration_samples_[chain, s],
                    "discount": model.discount,
                }
                learned = {
                    key: values[chain, s] for key, values in model.hyperparameter_samples_.items()
                }
                total = total + class_terms(
                    case.X,
                    {**case.params, **learned},
                    ("pitman_yor", name),
                    params,
                    labels.astype(int),
                    codes,
                    estimate,
                    case.X_new,
                )
        expected = total / total.sum(axis=1, keepdims=True)
        found = model.predict_proba(case.X_new, new_cluster=True)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        expected = total[:, :-1] / total[:, :-1].sum(axis=1, keepdims=True)
        np.testing.assert_allclose(model.predict_proba(case.X_new), expected, rtol=1e-9)
        best = model.classes_[expected.argmax(axis=1)]
        np.testing.assert_array_equal(model.predict(case.X_new), best)


@pytest.mark.slow
def test_probabilities_of_classes_are_enumerated_sums(seed_sequence, monkeypatch):
    """P(class | row) of many draws agrees with the sum over all partitions."""
    monkeypatch.setattr("skdpm.chains.N_SCORED_DRAWS", 10**6)
    codes, X_new = CODES["two"], np.array([[1.0, 0.0]])
    case, law = enumeration_case("gaussian"), case_law("gaussian", "dp", CODES["two"])
    prior_params = PRIOR_CASES["dp"][1]

    def run(seed, factor):
        model = make_estimator(make_likelihood("gaussian"), "dp", point_estimate="vi", n_draws=1)
        model.set_params(n_chains=round(1_500 * factor), n_warmup=15)
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(case.X, known_labels=codes)
        terms = np.array(
            [
                class_terms(
                    case.X,
                    case.params,
                    ("dp", "gaussian"),
                    prior_params,
                    z,
                    codes,
                    model._clusters,
                    X_new,
                )[0, :-1]
                for z in law.partitions
            ]
        )
        of_class, of_all = terms[:, 0], terms.sum(axis=1)
        expected = (law.probabilities @ of_class) / (law.probabilities @ of_all)
        found = model.predict_proba(X_new)[0, 0]
        # The error of a ratio of means of independent draws.
        spread = np.sqrt(law.probabilities @ (of_class - expected * of_all) ** 2)
        error = spread / (law.probabilities @ of_all) / np.sqrt(model.n_chains)
        return 2.0 * norm.sf(abs(found - expected) / error)

    assert_p(run, seed_sequence=seed_sequence)


FUZZ_SAMPLERS = [
    "auto",
    "gibbs",
    "sams",
    "pgsm",
    "arm",
    "split_merge",
    SplitMerge.from_paper("bSM"),
    ARM.from_paper("sARM"),
    SplitMerge(anchors="cluster_informed"),
    "sub_cluster",
]


@combinations(sampler=FUZZ_SAMPLERS, name=[n for n in NAMES if not n.startswith("relational")])
@pytest.mark.some(2)
@pytest.mark.long
def test_no_draw_unites_two_classes(name, sampler):
    """Whatever the classes, priors and starts, which are random here: from the very start."""
    case = fit_case(name)
    rng = np.random.default_rng(NAMES.index(name))
    priors = ("dp", "finite", "mfm", "pitman_yor_negative")
    if sampler == "sub_cluster":
        if "instantiated" not in case.likelihood.capabilities or np.isnan(case.X).any():
            return
        priors = ("dp", "finite", "pitman_yor", "pitman_yor_negative")
    for prior, init in zip(priors, ("auto", "single", "kmeans", "singletons"), strict=True):
        known = np.where(rng.random(18) < rng.random(), rng.integers(3, size=18), -1)
        known[0] = 2
        if prior == "finite" and init == "single":
            known[:3] = 0, 1, 2  # as many classes as components
        if init == "kmeans" and np.isnan(case.X).any():
            init = rng.integers(4, size=18)
        model = make_estimator(case.likelihood, prior, resampled=prior == "dp")
        model.set_params(init=init, sampler=sampler, n_warmup=0, point_estimate="vi")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(case.X, known_labels=known)
        for labels in (*model.label_samples_.reshape(-1, 18), model.labels_):
            assert not united(labels, known)
        is_known = known >= 0
        np.testing.assert_array_equal(model.labels_[is_known], known[is_known])
        # Nothing of the figures that keep classes apart.
        assert np.abs(model.log_joint_samples_).max() < 1e9
        assert np.abs(model.outlier_scores_).max() < 1e9
        found = model.predict_proba(case.X_new)
        assert found.shape == (len(case.X_new), len(model.classes_))
        np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.slow
def test_separated():
    """Starts: cut by class, and at most as many clusters as the prior allows."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = rng.integers(1, 12)
        codes = np.unique(rng.integers(-1, 4, size=n), return_inverse=True)[1] - 1
        codes[0] = max(codes[0], 0)
        _, codes[codes >= 0] = np.unique(codes[codes >= 0], return_inverse=True)
        labels = np.unique(rng.integers(4, size=n), return_inverse=True)[1]
        for most in (codes.max() + 1, n):
            found = separated(labels, codes, most)
            assert not united(found, codes)
            assert set(found) == set(range(found.max() + 1))
            assert found.max() < most
            if not united(labels, codes) and labels.max() < most:
                assert found is labels


def some_known(y, n_per_class, seed=0, classes=None):
    rng = np.random.default_rng(seed)
    known = np.full(len(y), -1)
    for k in np.unique(y) if classes is None else classes:
        known[rng.choice(np.flatnonzero(y == k), n_per_class, replace=False)] = k
    return known


@pytest.mark.slow
def test_classes_and_new_clusters_of_iris():
    """A class without a known row is a new cluster, numbered after the last class."""
    X, y = IRIS
    known = some_known(y, 5, classes=[1, 2]) * 10
    known[known < 0] = -1
    model = DPMixture(random_state=0).fit(X, known_labels=known)
    np.testing.assert_array_equal(model.classes_, [10, 20, 21])
    assert (model.labels_[y == 0] == 21).mean() > 0.95
    assert ((model.labels_ == 10 * y) & (y > 0)).sum() >= 93
    assert model.n_clusters_ == 3
    assert model.weights_.shape == (3,)
    assert model.cluster_params_["means"].shape == (3, 4)
    assert model.probabilities_[known >= 0].min() == 1.0
    assert model.cluster_samples_.max() + 1 == model.n_clusters_samples_.max()
    assert set(model.predict(X)) <= set(model.classes_)
    assert model.predict_proba(X, new_cluster=True).shape == (150, 4)
    assert set(model.sample(50)[1]) == {10, 20, 21}
    table = model.describe()
    assert list(table.index.unique("cluster")) == [10, 20, 21]
    assert model.merge_tree().cut(1).max() == 0
    model.estimate_labels(max_clusters=2, loss="vi")
    np.testing.assert_array_equal(model.classes_, [10, 20])
    with pytest.raises(ValueError, match="at least 2, the number of known classes"):
        model.estimate_labels(max_clusters=1)


@pytest.mark.slow
def test_closed_set_of_classes():
    """Without new clusters, rows of no class get the most probable one by the conditional law."""
    X, y = IRIS
    known = some_known(y, 5, classes=[0, 1])
    model = DPMixture(random_state=0).fit(X, known_labels=known)
    assert (model.labels_[y == 2] == 2).mean() > 0.8
    far = [[5.0, 3.0, 90.0, 1.0]]
    before = model.predict_proba(np.r_[X, far])
    model.estimate_labels(max_clusters=2)
    np.testing.assert_array_equal(model.classes_, [0, 1])
    given = before[:, :2] / before[:, :2].sum(axis=1, keepdims=True)
    assert (model.labels_ == given[:-1].argmax(axis=1)).mean() > 0.97
    assert (model.labels_[y == 2] == 1).mean() > 0.9
    found = model.predict_proba(np.r_[X, far])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)


@pytest.mark.slow
def test_rows_in_the_hill_of_a_class_count_for_it():
    """Two hills of one class are one cluster; a component between two classes joins one, and never
    unites them."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 0.5, 40) for m in (0, 8, 16)])[:, None]
    known = np.full(120, -1)
    known[[0, 1, 2, 80, 81, 82]] = 3
    known[[40, 41]] = 7
    model = DPMixture(random_state=0).fit(X, known_labels=known)
    np.testing.assert_array_equal(model.classes_, [3, 7])
    np.testing.assert_array_equal(model.labels_, np.repeat([3, 7, 3], 40))
    # One hill of the density, and known rows of two classes in it.
    X = rng.normal(size=(100, 1))
    known = np.full(100, -1)
    known[[X.argmin(), X.argmax()]] = 0, 1
    model = DPMixture(random_state=0).fit(X, known_labels=known)
    assert not united(model.labels_, known)
    for labels in model.cluster_samples_.reshape(-1, 100):
        assert not united(labels, known)


@pytest.mark.parametrize(
    "point_estimate", everyday(["modal", "vi", "binder", ("vi", 1.5), "map", "last"], "vi")
)
@pytest.mark.long
def test_point_estimates(point_estimate):
    X, y = IRIS
    known = some_known(y, 3)
    model = DPMixture(random_state=0, n_draws=25, n_warmup=50, point_estimate=point_estimate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, known_labels=known)
    np.testing.assert_array_equal(model.labels_[known >= 0], known[known >= 0])
    assert set(model.labels_) == set(model.classes_)
    assert list(model.classes_[:3]) == [0, 1, 2]
    assert (model.labels_ == y).mean() > 0.85
    model.estimate_labels(loss="binder")
    assert not united(model.labels_, known)


@pytest.mark.slow
def test_without_known_labels_nothing_changes():
    X, y = IRIS
    plain = DPMixture(random_state=0, n_draws=20, n_warmup=20, n_chains=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fits = [clone(plain).fit(X, y), clone(plain).fit(X, known_labels=np.full(150, -1))]
        again = clone(plain).fit(X, known_labels=some_known(y, 5)).fit(X)
    for other in (fits[1], again):
        assert_same_fit(fits[0], other, X[:5])
        assert not hasattr(other, "classes_")


@pytest.mark.slow
def test_same_bits_whatever_threads_pickles_and_halves():
    X, y = IRIS
    known = some_known(y, 5)
    settings = {"random_state": 0, "n_warmup": 20, "n_chains": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = DPMixture(**settings, n_draws=20).fit(X, known_labels=known)
        other = DPMixture(**settings, n_draws=20, n_jobs=2).fit(X, known_labels=pd.Series(known))
        assert_same_fit(one, other, X[:5])
        half = DPMixture(**settings, n_draws=10, warm_start=True).fit(X, known_labels=known)
        half = pickle.loads(pickle.dumps(half)).set_params(n_draws=20)
        with pytest.raises(ValueError, match="known_labels changed"):
            half.fit(X)
        half.fit(X, known_labels=known)
    assert_same_fit(one, half, X[:5])
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict(X), one.predict(X))
    np.testing.assert_array_equal(
        again.pointwise_log_likelihood(X), one.pointwise_log_likelihood(X)
    )
    again.estimate_labels(loss="vi", X=X)
    assert not united(again.labels_, known)
    fewer = half.drop_chains([0], X)
    np.testing.assert_array_equal(fewer.classes_, one.classes_)
    assert "known" not in repr(fewer)


@pytest.mark.long
def test_leave_one_out_sees_the_label():
    """The density of a row with a known label given the others is that in components that may
    hold its class."""
    case = enumeration_case("gaussian")
    codes = CODES["two"]
    model = make_estimator(make_likelihood("gaussian"), "dp", point_estimate="vi")
    model.fit(case.X, known_labels=codes)
    found = model.pointwise_log_likelihood(case.X)
    params = PRIOR_CASES["dp"][1]
    for s in range(4):
        labels = model.label_samples_[0, s].astype(int)
        for i in range(5):
            if codes[i] < 0:
                expected = log_leave_one_out(
                    case.X,
                    labels,
                    i,
                    "gaussian",
                    "dp",
                    likelihood_params=case.params,
                    prior_params=params,
                )
            else:
                keep = np.arange(5) != i
                others = np.unique(labels[keep], return_inverse=True)[1]
                terms = log_densities(case.X[keep], others, case.X[[i]], "gaussian", case.params)[
                    0
                ] + log_weights(others, "dp", params)
                held = [set(codes[keep][others == c]) - {-1, codes[i]} for c in others]
                banned = {c for c, classes in zip(others, held, strict=True) if classes}
                terms[list(banned)] = -np.inf
                expected = logsumexp(terms)
            assert found[0, s, i] == pytest.approx(expected, rel=1e-9)


@pytest.mark.long
def test_answers_are_those_of_the_users_likelihood():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(
        {
            "size": np.r_[rng.normal(0, 1, 40), rng.normal(6, 1, 40)],
            "kind": pd.Categorical(np.r_[["a"] * 36, ["b"] * 40, ["a"] * 4]),
        }
    )
    known = np.full(80, -1)
    known[[0, 1, 78, 79]] = 0, 0, 1, 1
    model = DPMixture(likelihood="mixed", random_state=0, n_draws=25, n_warmup=25)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, known_labels=known)
    assert isinstance(model.likelihood_, Product)
    assert len(model.likelihood_.parts) == 2
    assert all("class" not in name for name in model.hyperparameter_samples_)
    assert np.isfinite(model.score_samples(X)).all()
    X.iloc[3, 0] = np.nan
    assert model.impute(X).notna().all().all()
    rows, labels = model.sample(20, given={"size": 6.0})
    assert list(rows.columns) == ["size", "kind"]
    assert (labels == 1).mean() > 0.8


@pytest.mark.parametrize(
    "labels, message",
    [
        ([0] * 149, "one entry for each of the 150 rows"),
        (np.zeros((150, 1)), "one entry for each of the 150 rows"),
        ([0.5] * 150, "got 0.5 in row 0"),
        ([0] * 149 + [-2], "got -2 in row 149"),
        ([0.0] * 149 + [np.nan], "got nan in row 149"),
        (["a"] * 150, "LabelEncoder"),
        ([None] * 150, "must be integers"),
        ([True] * 150, "must be integers"),
        (np.arange(150) % 12, "12 classes, more than the 10 components"),
    ],
)
def test_wrong_labels(labels, message):
    with pytest.raises(ValueError, match=message):
        FiniteMixture(random_state=0).fit(IRIS[0], known_labels=labels)


@pytest.mark.long
def test_refusals():
    X, y = IRIS
    known = some_known(y, 5)
    with pytest.raises(ValueError, match="store_labels=True"):
        DPMixture(store_labels=False, point_estimate="map").fit(X, known_labels=known)
    links = (X[:20] @ X[:20].T > 20).astype(float)
    with pytest.raises(ValueError, match="clusters are independent, and those of Relational"):
        DPMixture(likelihood=Relational()).fit(links, known_labels=known[:20])
    # A fit that failed leaves the last one as it was.
    model = DPMixture(n_draws=10, n_warmup=10, n_chains=2, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, known_labels=known)
    with pytest.raises(ValueError, match="one entry"):
        model.fit(X, known_labels=known[:5])
    model.drop_chains([0], X)


@pytest.mark.slow
def test_auto_takes_labels_with_many_rows():
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(m, 1.0, size=(6_000, 10)) for m in (0, 4)])
    known = np.full(len(X), -1)
    known[[0, 6_000]] = 0, 1
    model = DPMixture(n_warmup=2, n_draws=2, n_chains=1, random_state=0)
    assert isinstance(model._resolved_sampler(Gaussian(), X), SubCluster)
    model.fit(X, known_labels=known)
    assert isinstance(model.sampler_, Alternate)
    assert (model.labels_ == np.repeat([0, 1], 6_000)).mean() > 0.95


@pytest.mark.parametrize("name", ["gaussian", "bernoulli"])
def test_pieces_of_the_automatic_start_are_cut(name, monkeypatch):
    """The start that `init="auto"` makes needs no cut: its log joint would say nothing."""
    case, cut = fit_case(name), []

    def recorded(self, labels, most):
        found = separated(labels, self.codes, most)
        cut.append(found is not labels)
        return found

    monkeypatch.setattr(Classified, "separated", recorded)
    monkeypatch.setattr(automatic, "MOST", automatic.FEWEST)  # pieces of several rows
    model = make_estimator(case.likelihood, "dp", init="auto", n_chains=1, n_draws=1, n_warmup=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(case.X, known_labels=np.arange(18) % 16)
    assert any(cut)
    assert not cut[-1]


def test_a_component_between_two_classes_joins_the_closer_hill():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [80, 60, 40])
    X = rng.normal(np.array([0.0, 1.2, 3.0])[labels], 1.0)[:, None]
    for classes in ([0, -1, 1], [1, -1, 0]):
        known = np.array(classes)[labels]
        known[np.arange(180) % 4 > 0] = -1
        found = read_hills(points_of(X), labels, KnownLabels.checked(known, 180))
        expected = np.array([classes[0], classes[0], classes[2]])[labels]
        np.testing.assert_array_equal(found, expected)
    assert read_hills(points_of(X), labels).max() == 0


def test_starts_from_a_sample_of_rows(monkeypatch):
    """Rows that are not in the sample of the start may have classes that none in it has."""
    monkeypatch.setattr("skdpm.mixture.chains.automatic.MOST_SAMPLED", 30)
    X, y = IRIS
    known = some_known(y, 1)
    for cls in (DPMixture, FiniteMixture):
        model = cls(likelihood=Gaussian(), n_warmup=0, n_draws=1, n_chains=4, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, known_labels=known)
        assert not any(united(z, known) for z in model.label_samples_[:, 0])


@pytest.mark.slow
def test_metadata_routing():
    X, y = IRIS
    known = some_known(y, 10)
    base = FiniteMixture(3, likelihood="gaussian", n_warmup=5, n_draws=5, n_chains=1)
    with warnings.catch_warnings(), config_context(enable_metadata_routing=True):
        warnings.simplefilter("ignore", ConvergenceWarning)
        folds = KFold(3, shuffle=True, random_state=0)
        model = base.set_params(random_state=0).set_fit_request(known_labels=True)
        pipeline = make_pipeline(StandardScaler(), model).fit(X, known_labels=known)
        assert list(pipeline[-1].classes_[:3]) == [0, 1, 2]
        search = GridSearchCV(model, {"concentration": [1.0, 3.0]}, scoring="accuracy", cv=folds)
        search.fit(X, y, known_labels=known)
        assert search.best_score_ > 0.8
        scores = cross_validate(
            pipeline, X, y, params={"known_labels": known}, scoring="accuracy", cv=folds
        )
        assert (scores["test_score"] > 0.7).all()
    labels = base.fit_predict(X, known_labels=known)
    np.testing.assert_array_equal(labels[known >= 0], known[known >= 0])


@pytest.mark.long
def test_an_imputer_passes_known_labels_on():
    X, y = IRIS
    X = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    known = some_known(y, 10)
    settings = {"n_warmup": 5, "n_draws": 5, "n_chains": 1, "random_state": 0}
    mixture = FiniteMixture(3, likelihood="gaussian", **settings)
    expected = clone(mixture).fit(X, known_labels=known)
    imputer = MixtureImputer(mixture).fit(X, known_labels=known)
    np.testing.assert_array_equal(imputer.estimator_.classes_, expected.classes_)
    found = MixtureImputer(mixture).fit_transform(X, known_labels=known)
    np.testing.assert_array_equal(found, expected.impute(X))
    with config_context(enable_metadata_routing=True):
        with pytest.raises(UnsetMetadataPassedError, match="known_labels"):
            MixtureImputer(mixture).fit(X, known_labels=known)
        mixture.set_fit_request(known_labels=True)
        pipeline = make_pipeline(MixtureImputer(mixture), StandardScaler())
        pipeline.fit(X, known_labels=known)
    np.testing.assert_array_equal(pipeline[0].estimator_.labels_, expected.labels_)
    with pytest.raises(TypeError, match="weights"):
        MixtureImputer(mixture).fit(X, sample_weight=np.ones(len(X)))


@pytest.mark.slow
def test_bernoulli_rows_that_say_nothing_follow_the_prior():
    """Rows without entries join the classes by their sizes."""
    X = np.full((40, 2), np.nan)
    X[0] = 0.0
    known = np.r_[np.zeros(20), np.ones(10), np.full(10, -1)].astype(int)
    model = DPMixture(
        likelihood=Bernoulli(a=1.0, b=1.0), concentration=1e-6, n_draws=250, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, known_labels=known)
    found = model.predict_proba(np.full((1, 2), np.nan))[0]
    assert found == pytest.approx([2 / 3, 1 / 3], abs=0.08)


def test_partitions_are_restricted_in_the_reference():
    """A count by hand: five rows, two classes of two and one row."""
    n = sum(not united(z, CODES["two"]) for z in enumerate_partitions(5))
    assert n == 52 - sum(z[0] == z[2] or z[2] == z[4] for z in enumerate_partitions(5))


def test_masked_labels():
    """Masked classes are not known; a start has labels of all rows."""
    labels = np.ma.array([0, 1] * 5, mask=np.arange(10) > 3)
    rows = np.arange(20.0).reshape(10, 2)
    known = DPMixture(n_warmup=5, n_draws=5, random_state=0).fit(rows, known_labels=labels)
    assert (known._known.codes == labels.filled(-1)).all()
    with pytest.raises(ValueError, match=r"init has masked entries.*init\.filled"):
        DPMixture(init=labels).fit(rows)
