"""Subclones for features: mutations, and the clones of a tumour that have them."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
from reference.features import (
    log_beta_bernoulli,
    log_subclones,
    matrix_index,
    matrix_posterior,
)
from reference.likelihoods import log_pyclone
from scipy.special import logsumexp
from scipy.stats import beta, dirichlet, gamma, kstest
from support.exactness import record_worst
from support.examples import examples_of
from support.features import CASES as FEATURE_CASES
from support.features import CONCENTRATION, given_params_run, make_prior, subclones_rows
from support.flips import check_flips
from support.probes import FeatureProbe
from support.pvalues import (
    Cells,
    assert_p,
    assert_p_matrix,
    chi_squared_p,
    correct_for_number,
)

from skdpm import DPMixture, FeatureAllocation
from skdpm.datasets import make_subclones
from skdpm.features.likelihoods import Subclones
from skdpm.features.samplers import SAMPLERS, ElementGibbs, RowGibbs
from skdpm.features.state._state import FeatureState
from skdpm.metrics import b_cubed_score
from skdpm.mutations import FIELDS, mutation_table

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

READS = {
    "density": "binomial",
    "error_rate": 1e-3,
    "genotype_prior": "major_copy_number",
}


def make_model(X, F=None, *, precision=None, **params):
    likelihood = Subclones(precision=precision, **params).resolve(X)
    model = likelihood.bind(likelihood.encode(X))
    if F is not None:
        model.load({"prevalences": F, **({} if precision is None else {"precision": precision})})
    return model


def random_prevalences(rng, n_latent, n_tumours):
    return np.ascontiguousarray(rng.dirichlet(np.ones(n_latent), size=n_tumours).T)


@pytest.mark.parametrize("example", range(3))
def test_densities(example):
    """Flips add up to differences of log likelihoods, and these are those of the reference."""
    likelihood, X = list(examples_of(Subclones))[example]
    check_flips(likelihood, X)
    rng = np.random.default_rng(1)
    Z, F = rng.random((6, 4)) < 0.5, random_prevalences(rng, 4, 3)
    resolved = likelihood.resolve(X)
    model = resolved.bind(resolved.encode(X))
    model.load({"prevalences": F, "precision": 31.0})
    probe = FeatureProbe(model)
    params = {name: getattr(likelihood, name) for name in READS} | {"precision": 31.0}
    expected = log_subclones(X, Z, F, **params)
    assert probe.log_likelihood(Z) == pytest.approx(expected, rel=1e-12)
    a = likelihood.prevalence_concentration
    expected = sum(dirichlet.logpdf(f / f.sum(), np.full(4, a)) for f in F.T)
    assert probe.log_prior() == pytest.approx(expected, rel=1e-10)
    for i in range(6):
        probe.begin_row(i, Z[i])
        expected = log_subclones(X[i : i + 1], Z[i : i + 1], F, **params)
        assert probe.log_row() == pytest.approx(expected, rel=1e-12, abs=1e-12)
        # What the last flip evaluated would have given is of no use for another one.
        z = Z[i].copy()
        for k in (1, 2):
            probe.log_flip_many([0], 3, not z[3])
            z[k] = not z[k]
            probe.flip(0, k, z[k])
            expected = log_subclones(X[i : i + 1], z[None], F, **params)
            assert probe.log_row() == pytest.approx(expected, rel=1e-10, abs=1e-10)


@pytest.mark.parametrize("error_rate", [1e-3, 1e-20])
def test_sums_of_prevalences_that_round(error_rate):
    """Above 1 with all features on, below 0 after many flips: prevalences of 1 and 0. Where there
    are next to no errors, no share of reads could be less."""
    X = np.array([[0.0, 50, 2, 0, 1, 1.0], [50.0, 0, 2, 0, 1, 1.0]])
    F = np.full((7, 1), 1 / 7)
    F[0] += 1e-15
    probe = FeatureProbe(make_model(X, F, error_rate=error_rate))
    params = {**READS, "precision": None, "error_rate": error_rate}
    for i, z in ((0, [1] * 7), (1, [0] * 7)):
        expected = log_pyclone(X[i], [float(z[0])], **params)[0]
        probe.begin_row(i, z)
        assert probe.log_row() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        for _ in range(500):
            for k in range(7):
                probe.flip(0, k, not z[0])
            for k in (3, 5, 0, 1, 6, 2, 4):
                probe.flip(0, k, z[0])
        assert probe.log_row() == pytest.approx(expected, rel=1e-9, abs=1e-12)
        assert np.isfinite(probe.log_flip_many([0], 2, not z[0])).all()


def test_clones_share_the_cells_of_a_sample(seed_sequence):
    """Prevalences are Dirichlet while clones come and go."""

    def run(seed, factor):
        model = make_model(subclones_rows(2, False), prevalence_concentration=0.7)
        bit_generator = np.random.PCG64(seed)
        first = []
        for _ in range(round(1_000 * factor)):
            model.start(4, bit_generator)
            probe = FeatureProbe(model)
            probe.remove_feature(1)
            F = model.save()["prevalences"]
            np.testing.assert_allclose(F.sum(axis=0), 1.0, rtol=1e-12)
            first.append(F)
        u = beta.cdf(first, 0.7, 2 * 0.7)
        p = [kstest(u[:, k, m], "uniform").pvalue for k in range(3) for m in range(2)]
        return correct_for_number(min(p), len(p))

    assert_p(run, seed_sequence=seed_sequence)


def test_a_removed_clone_gives_way_to_the_last():
    F = random_prevalences(np.random.default_rng(0), 4, 2)
    model = make_model(subclones_rows(2, False), F)
    FeatureProbe(model).remove_feature(1)
    left = F[[0, 3, 2]]
    np.testing.assert_allclose(model.save()["prevalences"], left / left.sum(axis=0), rtol=1e-14)


# Prevalences given Z and X.


def simplex(n_latent, n_points):
    """Centres of cells of equal size that tile the prevalences of 2 or 3 clones; no cell lies on
    both sides of a multiple of 1 / n_points."""
    if n_latent == 2:
        f = (np.arange(n_points) + 0.5) / n_points
        return np.column_stack([f, 1 - f])
    centres = [
        (i + shift, j + shift)
        for i, j in itertools.product(range(n_points), repeat=2)
        for shift in (1 / 3, 2 / 3)
        if i + j + 2 * shift < n_points
    ]
    f = np.array(centres) / n_points
    return np.column_stack([f, 1 - f.sum(axis=1)])


FEW_READS = np.array(
    [
        [[7.0, 2, 2, 1, 1, 1.0], [3, 4, 2, 0, 1, 0.6]],
        [[4.0, 5, 2, 0, 1, 0.8], [6, 3, 1, 1, 2, 0.7]],
        [[6.0, 1, 1, 1, 1, 0.7], [np.nan, np.nan, 2, 1, 1, 0.9]],
    ]
)
BINS = (0.2, 0.45)


def with_prevalences_run(kernel, n_latent, n_samples, a, n_starts, density="binomial", wrong=None):
    """A run for `assert_p`: Z and the prevalences start from their law given X, which is computed
    on a grid, and keep it under sweeps and updates; counted are Z and, in three bins, what the
    first clone has in the first sample. Planted: `wrong` parameters of the chain's likelihood."""
    cells = FEW_READS[:n_samples]
    X = cells.reshape(n_samples, -1)
    params = {**READS, "density": density, "precision": 9.0}
    points = simplex(n_latent, 400 if n_latent == 2 else 40)
    log_weights = dirichlet.logpdf((points / points.sum(axis=1, keepdims=True)).T, [a] * n_latent)
    patterns = np.array(list(itertools.product((0, 1), repeat=n_latent)))
    table = np.array(
        [[[log_pyclone(c, points @ z, **params) for z in patterns] for c in row] for row in cells]
    )

    def log_posterior(Z):
        """Of the points, in each sample: (n_tumours, n_points)."""
        which = Z @ (1 << np.arange(n_latent - 1, -1, -1))
        return log_weights + sum(table[i, :, which[i]] for i in range(n_samples))

    def log_weight(Z):
        evidence = logsumexp(log_posterior(Z), axis=1) - logsumexp(log_weights)
        return log_beta_bernoulli(Z, CONCENTRATION) + evidence.sum()

    law = matrix_posterior(n_samples, n_latent, log_weight)
    below = np.array([np.exp(log_posterior(Z)) for Z in law.matrices])
    below /= below.sum(axis=2, keepdims=True)
    bins = np.digitize(points[:, 0], BINS)
    shares = np.array([[p[0, bins == b].sum() for b in range(3)] for p in below])
    joint = law.probabilities[:, None] * shares
    below = below.cumsum(axis=2)
    changes = {"density": density, "precision": 9.0, "prevalence_concentration": a}
    model = make_model(X, **{**changes, **(wrong or {})})
    prior = make_prior(n_samples, n_latent, CONCENTRATION)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        counts = np.zeros(joint.shape, dtype=np.int64)
        for Z in law.draw(round(n_starts * factor), rng):
            at = [np.searchsorted(p, rng.random() * p[-1]) for p in below[matrix_index(Z)]]
            model.load({"prevalences": points[at].T, "precision": 9.0})
            state = FeatureState(model, prior, Z)
            for _ in range(2):
                kernel.run(state, bit_generator)
                state.update_params(bit_generator)
            first = model.save()["prevalences"][0, 0]
            counts[matrix_index(state.allocations()), np.digitize(first, BINS)] += 1
        return Cells(counts, joint)

    return run


@pytest.mark.slow
def test_with_prevalences(seed_sequence, record_property):
    """Under every sampler; Dirichlet with 1 in two entries and 2 in three."""
    runs = {
        f"{name} {n_latent}": with_prevalences_run(
            cls().kernel(),
            n_latent,
            n_samples,
            a,
            3_000,
            density=density,
        )
        for (name, cls), (n_latent, n_samples, a, density) in zip(
            SAMPLERS.items(),
            itertools.cycle([(2, 3, 1.0, "binomial"), (3, 2, 2.0, "beta_binomial")]),
            strict=False,
        )
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def prevalences_run(n_latent, a, wrong=None):
    """A run for `assert_p`: given Z, prevalences start from their law given X and keep it under a
    single update; of the first two clones, in both samples."""
    Z = np.array([[1, 0, 1], [0, 1, 1], [1, 1, 0]], dtype=np.uint8)[:, :n_latent]
    X = FEW_READS.reshape(3, -1)
    params = {**READS, "precision": None}
    points = simplex(n_latent, 400 if n_latent == 2 else 60)
    log_law = dirichlet.logpdf((points / points.sum(axis=1, keepdims=True)).T, [a] * n_latent)
    laws = []
    for m in range(2):
        terms = [log_pyclone(FEW_READS[i, m], points @ Z[i], **params) for i in range(3)]
        law = np.exp(log_law + sum(terms))
        laws.append(law / law.sum())
    model = make_model(X, **{"prevalence_concentration": a, **(wrong or {})})

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        n_starts = round(10_000 * factor)
        starts = [points[rng.choice(len(points), size=n_starts, p=law)] for law in laws]
        ends = np.empty((n_starts, n_latent, 2))
        model.load({"prevalences": points[:2].T})
        state = FeatureState(model, make_prior(3, n_latent), Z)
        for s, F in enumerate(np.stack(starts, axis=2)):
            model.load({"prevalences": F})
            state.update_params(bit_generator)
            ends[s] = model.save()["prevalences"]
        p = []
        for m, k in itertools.product(range(2), range(n_latent)):
            order = np.argsort(points[:, k], kind="stable")
            edges = np.linspace(0.0, 1.0, 21)
            below = np.add.reduceat(laws[m][order], np.searchsorted(points[order, k], edges[:-1]))
            counts = np.histogram(ends[:, k, m], edges)[0]
            p.append(chi_squared_p(counts, below / below.sum()))
        return correct_for_number(min(p), len(p))

    return run


@pytest.mark.parametrize(("n_latent", "a"), [(2, 1.0), (2, 3.0), (3, 2.0)])
def test_prevalences(n_latent, a, seed_sequence):
    assert_p(prevalences_run(n_latent, a), seed_sequence=seed_sequence)


@pytest.mark.parametrize(
    ("n_latent", "a", "wrong"),
    [(2, 1.0, {"prevalence_concentration": 1.3}), (3, 2.0, {"error_rate": 0.2})],
)
def test_power_prevalences(n_latent, a, wrong, seed_sequence):
    assert prevalences_run(n_latent, a, wrong)(seed_sequence.spawn(1)[0], 1) < 1e-6


@pytest.mark.parametrize(
    "wrong",
    [{"prevalence_concentration": 2.0}, {"error_rate": 0.1}, {"genotype_prior": "total"}],
    ids=lambda wrong: next(iter(wrong)),
)
@pytest.mark.slow
def test_power_with_prevalences(wrong, seed_sequence):
    run = with_prevalences_run(RowGibbs().kernel(), 2, 3, 1.0, 3_000, wrong=wrong)
    cells = run(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


def precision_run(wrong=None):
    """A run for `assert_p`: the precision of reads starts from its law given X, which is computed
    on a grid, and keeps it. There is one clone, whose prevalence is 1. Planted: another prior."""
    X = np.array([[12.0, 3, 2, 1, 1, 1.0], [5, 14, 2, 0, 1, 0.7], [2.0, 9, 1, 1, 1, 0.9]])
    Z = np.ones((3, 1), dtype=np.uint8)
    prior = (3.0, 0.2)
    log_s = np.linspace(np.log(0.1), np.log(400.0), 401)
    law = np.array(
        [
            gamma.logpdf(s, prior[0], scale=1 / prior[1])
            + np.log(s)
            + log_subclones(X, Z, np.ones((1, 1)), **{**READS, **BETA}, precision=s)
            for s in np.exp(log_s)
        ]
    )
    below = np.append(0.0, np.cumsum(np.exp(law[1:]) + np.exp(law[:-1])))
    below /= below[-1]
    likelihood = Subclones(**BETA, precision_prior=wrong or prior).resolve(X)
    model = likelihood.bind(likelihood.encode(X))

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        ends = []
        for x in np.interp(rng.random(round(4_000 * factor)), below, log_s):
            model.load({"prevalences": np.ones((1, 1)), "precision": np.exp(x)})
            state = FeatureState(model, make_prior(3, 1), Z)
            for _ in range(2):
                state.update_params(bit_generator)
            ends.append(np.log(model.save()["precision"]))
        return kstest(np.interp(ends, log_s, below), "uniform").pvalue

    return run


BETA = {"density": "beta_binomial"}


@pytest.mark.slow
def test_precision(seed_sequence):
    assert_p(precision_run(), seed_sequence=seed_sequence)


@pytest.mark.slow
def test_power_precision(seed_sequence):
    assert precision_run(wrong=(4.5, 0.3))(seed_sequence.spawn(1)[0], 1) < 1e-6


@pytest.mark.slow
def test_power_given_prevalences(seed_sequence):
    """What `test_given_params` does with an error planted in the chain."""
    wrong = {"prevalences": np.array([[0.45, 0.5], [0.55, 0.5]])}
    run = given_params_run(
        ElementGibbs().kernel(), 2, case=FEATURE_CASES["subclones"], n_starts=6_000, wrong=wrong
    )
    cells = run(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# Annealing.


def test_annealing():
    """The power of the likelihood grows from one read for each cell to 1, half-way in warm-up."""
    X = subclones_rows(2, False)
    F = random_prevalences(np.random.default_rng(0), 2, 2)
    model, full = make_model(X, F), make_model(X, F)
    Z = np.array([[1, 0], [0, 1], [1, 1]], dtype=np.uint8)
    expected = FeatureProbe(full).log_likelihood(Z)
    bit_generator = np.random.PCG64(0)
    depth = np.nanmean(X.reshape(3, 2, 6)[..., :2].sum(axis=2))
    state = FeatureState(model, make_prior(3, 2), Z)
    model.anneal(8)

    def power():
        F, saved = model.save()["prevalences"], model.get_adaptation()
        full.load({"prevalences": F})
        other = make_model(X, F)
        other.set_adaptation(saved)  # as a chain that goes on does
        found = FeatureProbe(model).log_likelihood(Z)
        assert FeatureProbe(other).log_likelihood(Z) == found
        return found / FeatureProbe(full).log_likelihood(Z)

    powers = [power()]
    for _ in range(5):
        state.update_params(bit_generator, True)
        powers.append(power())
    np.testing.assert_allclose(powers, [*depth ** (np.arange(4) / 4 - 1), 1.0, 1.0], rtol=1e-12)
    # At the end of warm-up at the latest.
    model.anneal(8)
    assert power() < 0.5
    state.update_params(bit_generator, False)
    assert power() == 1.0
    assert FeatureProbe(make_model(X, F)).log_likelihood(Z) == expected


def test_a_given_start_is_kept():
    X, Z, _ = make_subclones(60, 3, 3, random_state=1)
    model = FeatureAllocation(
        likelihood="subclones", n_components=3, init=Z, n_warmup=4, n_draws=2, n_chains=2,
        random_state=0,
    ).fit(X)  # fmt: skip
    assert b_cubed_score(Z, model.allocations_) == 1.0


# In an estimator.


def fit(X, n_components, likelihood="subclones", **params):
    params = {"n_warmup": 100, "n_draws": 30, "n_chains": 2, "random_state": 0, **params}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return FeatureAllocation(likelihood=likelihood, n_components=n_components, **params).fit(X)


@pytest.mark.slow
def test_finds_the_clones():
    X, Z, F = make_subclones(random_state=1)
    X.reshape(200, 4, 6)[::7, 2, :2] = np.nan
    model = fit(X, 4, n_warmup=200, n_chains=4)
    assert b_cubed_score(Z, model.allocations_) > 0.98
    assert model.prevalences_.shape == (4, 4)
    np.testing.assert_allclose(model.allocations_ @ model.prevalences_, Z @ F, atol=0.03)
    assert not model.exact_  # clones that no mutation of `fit` has
    assert (model.predict(X) == model.allocations_).mean() > 0.95
    for method in ("impute", "inverse_transform"):
        assert not hasattr(model, method)
    assert model.hyperparameter_samples_ == {}


def test_scores_with_clones_that_no_mutation_has():
    """Prevalences are not blown up to sum to 1 again: cells of these clones have no mutation."""
    X, _, _ = make_subclones(30, 2, 2, depth=40, random_state=3)
    most = 4
    likelihood = Subclones("beta_binomial", precision=80.0)
    model = fit(X, most, likelihood, concentration=0.5, n_draws=20)
    assert model.n_components_samples_.min() < most
    assert model.hyperparameter_samples_ == {}
    np.testing.assert_array_equal(model.draws_["likelihood__precision"], 80.0)
    new = X[:3].copy()
    new[0, 6:8] = new[2, [0, 1, 6, 7]] = np.nan
    logs = []
    for c, s in np.ndindex(2, 20):
        Z, F = model.allocation_samples_[c][s], model.prevalence_samples_[c][s]
        n_latent = Z.shape[1]
        assert F.shape == (n_latent, 2)
        a = 0.5 / most
        rho = (Z.sum(axis=0) + a) / (31 + a)
        patterns = np.array(list(itertools.product((0, 1), repeat=n_latent)))
        # None of the clones that no mutation has.
        log_prior = np.log(np.where(patterns, rho, 1 - rho)).sum(axis=1)
        log_prior += (most - n_latent) * np.log(31 / (31 + a))
        params = {**READS, "density": "beta_binomial", "precision": 80.0}
        terms = [[log_subclones(x[None], z[None], F, **params) for z in patterns] for x in new]
        logs.append(logsumexp(log_prior + np.array(terms), axis=1))
    expected = logsumexp(logs, axis=0) - np.log(40)
    expected[2] = 0.0  # nothing was measured
    np.testing.assert_allclose(model.score_samples(new), expected, rtol=1e-10, atol=1e-12)


def test_prevalences_are_means_over_the_draws_near_the_estimate():
    X, _, _ = make_subclones(30, 3, 2, depth=20, random_state=3)
    model = fit(X, 3, Subclones("beta_binomial"), n_draws=20)
    found = model.allocations_
    near = []
    for c, s in np.ndindex(2, 20):
        Z, F = model.allocation_samples_[c][s], model.prevalence_samples_[c][s]
        orders = map(list, itertools.permutations(range(Z.shape[1]), found.shape[1]))
        kept = min(orders, key=lambda order: (Z[:, order] != found).sum(), default=None)
        if kept is not None:
            far = (Z[:, kept] != found).sum() + np.delete(Z, kept, axis=1).sum()
            near.append((far, c, s, F[kept]))
    near = sorted(near, key=lambda draw: draw[:3])[:4]
    assert near[0][0] < near[3][0]
    expected = np.mean([F for *_, F in near], axis=0)
    np.testing.assert_allclose(model.prevalences_, expected, rtol=1e-12)
    precisions = model.hyperparameter_samples_["precision"]
    expected = np.mean([precisions[c, s] for _, c, s, _ in near])
    assert model._estimate["params"]["precision"] == pytest.approx(expected, rel=1e-12)


@pytest.mark.slow
def test_a_learned_precision_has_draws():
    X, _, _ = make_subclones(80, 2, 3, precision=40.0, random_state=0)
    model = fit(X, 2, Subclones("beta_binomial"), n_draws=100)
    samples = model.hyperparameter_samples_["precision"]
    assert samples.shape == (2, 100) and 25.0 < samples.mean() < 60.0
    assert {"likelihood__precision"} <= model.diagnostics_.keys()


def test_continued_chains():
    X, _, _ = make_subclones(30, 3, 2, random_state=0)
    short = fit(X, 3, Subclones("beta_binomial"), n_draws=5, warm_start=True)
    long = fit(X, 3, Subclones("beta_binomial"), n_draws=15)
    short.set_params(n_draws=15).fit(X)
    np.testing.assert_array_equal(short.log_joint_samples_, long.log_joint_samples_)
    np.testing.assert_array_equal(short.prevalences_, long.prevalences_)


def test_an_unbounded_number_of_clones_is_refused():
    with pytest.raises(ValueError, match=r"Subclones likelihood.*n_components.*Indian buffet"):
        FeatureAllocation(likelihood="subclones").fit(subclones_rows(2, False))


BAD = [
    *itertools.product(["density"], [None, 1, "normal"]),
    *itertools.product(["precision"], [0.0, -1.0, np.nan, "a", True]),
    *itertools.product(["precision_prior"], [None, 1.0, (1.0, 0.0), (1.0, 2.0, 3.0)]),
    *itertools.product(["prevalence_concentration"], [0.0, 0.09, np.inf, None]),
    *itertools.product(["error_rate"], [0.0, 0.5, np.nan, None]),
    *itertools.product(["genotype_prior"], [None, 1, "major"]),
]


@pytest.mark.parametrize(("parameter", "value"), BAD)
def test_parameters_that_cannot_be(parameter, value):
    model = FeatureAllocation(likelihood=Subclones(**{parameter: value}), n_components=2)
    with pytest.raises(ValueError, match=rf"Subclones\.{parameter}"):
        model.fit(subclones_rows(2, False))
    assert {name for name, _ in BAD} == set(Subclones().get_params())


def test_rows_that_cannot_be():
    X = subclones_rows(2, False)
    model = fit(X, 2, n_warmup=5, n_draws=3)
    X[1, 9] = 5
    for call in (FeatureAllocation(likelihood="subclones", n_components=2).fit, model.predict):
        with pytest.raises(ValueError, match="minor_cn of at most major_cn; column 9"):
            call(X)


@pytest.mark.slow
def test_table_of_clones():
    X, Z, _ = make_subclones(60, 3, 2, concentration=4.0, random_state=1)
    names = [f"{sample}:{field}" for sample in "AB" for field in FIELDS]
    frame = pd.DataFrame(X, index=[f"m{i}" for i in range(60)], columns=names)
    model = fit(frame, 7, n_draws=40)
    table = mutation_table(model, frame)
    assert table["sample_id"].tolist() == ["A", "B"] * 60
    one = table.iloc[::2].reset_index()
    kept = np.flatnonzero((model.prevalences_ > 0.02).any(axis=1))
    assert 0 < len(kept) < model.n_components_
    found = model.allocations_[:, kept]
    # Clusters are mutations with the same clones, the largest first.
    for i, j in itertools.combinations(range(60), 2):
        same = one["cluster_id"][i] == one["cluster_id"][j]
        assert same == (found[i] == found[j]).all()
        assert same == (one["clones"][i] == one["clones"][j])
    sizes = np.bincount(one["cluster_id"])
    assert (np.diff(sizes) <= 0).all()
    for i in (0, 7):
        expected = "+".join(str(k) for k, has in zip(kept, found[i], strict=True) if has)
        assert one["clones"][i] == expected
    draws = [
        (Z, F)
        for c in range(2)
        for Z, F in zip(model.allocation_samples_[c], model.prevalence_samples_[c], strict=True)
    ]
    phi = np.array([Z @ F for Z, F in draws])
    wide = {
        name: table[name].to_numpy().reshape(60, 2)
        for name in table.columns
        if "prevalence" in name
    }
    np.testing.assert_allclose(wide["mutation_prevalence"], phi.mean(axis=0))
    np.testing.assert_allclose(wide["mutation_prevalence_std"], phi.std(axis=0), atol=1e-7)
    for cluster in range(len(sizes)):
        inside = (one["cluster_id"] == cluster).to_numpy()
        means = phi[:, inside].mean(axis=1)
        np.testing.assert_allclose(
            wide["cellular_prevalence"][inside], [means.mean(axis=0)] * inside.sum()
        )
        np.testing.assert_allclose(
            wide["cellular_prevalence_std"][inside], [means.std(axis=0)] * inside.sum(), atol=1e-7
        )
    i = int(np.flatnonzero((one["cluster_id"] == 0).to_numpy())[0])
    others = [j for j in range(60) if one["cluster_id"][j] == 0 and j != i]
    together = []
    for Z, F in draws:
        shown = Z[:, (F > 0.02).any(axis=1)]
        together.append((shown[others] == shown[i]).all(axis=1).mean())
    assert one["cluster_assignment_prob"][i] == pytest.approx(np.mean(together))
    every = mutation_table(model, frame, min_prevalence=0.0)
    assert every["cluster_id"].max() >= table["cluster_id"].max()
    assert every["cluster_assignment_prob"].mean() < table["cluster_assignment_prob"].mean()


def test_a_table_of_other_features_is_refused():
    X = np.random.default_rng(0).normal(size=(12, 6))
    model = FeatureAllocation(n_warmup=2, n_draws=2, n_chains=1, random_state=0).fit(X)
    with pytest.raises(ValueError, match=r"with a PyClone likelihood .*; got FeatureAllocation"):
        mutation_table(model, X)
    assert not hasattr(DPMixture(likelihood="pyclone"), "label_samples_")
