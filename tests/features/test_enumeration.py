"""The samplers against enumerated laws of Z: the finite prior exactly, the Indian buffet process
by the joint distribution of Z and X (Geweke 2004, in the form of restarts)."""

import itertools

import numpy as np
import pytest
from reference.features import classes_of_buffet, left_ordered
from scipy.special import logsumexp
from scipy.stats import chi2, gamma, norm, poisson
from support.designs import everyday
from support.exactness import record_worst
from support.features import (
    COMPONENT,
    NOISE,
    components_run,
    given_params_run,
    load,
    make_model,
    make_prior,
    registered_cases,
)
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm.features.likelihoods import LIKELIHOODS
from skdpm.features.samplers import (
    SAMPLERS,
    DiscreteParticleFilter,
    ElementGibbs,
    ParticleGibbs,
    RowGibbs,
)
from skdpm.features.state._state import FeatureState
from skdpm.hyperpriors import Gamma

VALID_PATHS = ("zeros", "ones", "random", "unconditional")

SETTINGS = [
    ElementGibbs(),
    RowGibbs(),
    *(
        ParticleGibbs.from_paper(
            path, n_particles=n, annealing_power=power, resample_threshold=threshold
        )
        for n, power, threshold, path in (
            (2, 0.0, 0.0, "zeros"),
            (2, 1.0, 0.5, "ones"),
            (2, 2.0, 1.0, "unconditional"),
            (2, 1.0, 1.0, "random"),
            (3, 0.0, 1.0, "random"),
            (3, 1.0, 1.0, "zeros"),
            (3, 2.0, 0.5, "ones"),
            (3, 1.0, 0.0, "unconditional"),
            (20, 1.0, 0.5, "unconditional"),
            (20, 2.0, 1.0, "random"),
            (20, 0.0, 1.0, "zeros"),
            (20, 0.0, 1.0, "ones"),
        )
    ),
    *(
        DiscreteParticleFilter.from_paper(path, n_particles=n, annealing_power=power)
        for n, power, path in (
            (2, 0.0, "zeros"),
            (2, 1.0, "ones"),
            (2, 2.0, "random"),
            (2, 1.0, "unconditional"),
            (3, 0.0, "unconditional"),
            (3, 1.0, "zeros"),
            (3, 2.0, "ones"),
            (3, 1.0, "random"),
            (20, 1.0, "zeros"),
        )
    ),
]


# Those of every day, with their numbers: of samplers of particles, two paths.
EVERYDAY = [(j, SETTINGS[j]) for j in (0, 1, 6, 7, 16, 18)]


def check(runs, seed_sequence, record_property):
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def test_every_likelihood_has_a_case():
    assert set(registered_cases()) == set(LIKELIHOODS)


def test_every_sampler_has_a_setting():
    assert all(any(isinstance(s, cls) for s in SETTINGS) for cls in SAMPLERS.values())


def given_params_runs(settings, n_starts=6_000):
    """Runs of every registered likelihood with numbered samplers."""
    return {
        f"{name} {sampler!r} {n_latent} missing={missing}": given_params_run(
            sampler.kernel(),
            n_latent,
            case=case,
            missing=missing,
            n_starts=n_starts,
        )
        for name, case in registered_cases().items()
        for j, sampler in settings
        for n_latent, missing in ((2, j % 2 == 1), (3, j % 2 == 0))
    }


@pytest.mark.slow
def test_given_params(seed_sequence, record_property):
    """Every sampler with every registered likelihood."""
    check(given_params_runs(EVERYDAY, 2_500), seed_sequence, record_property)


@pytest.mark.slow
def test_given_params_with_every_likelihood(seed_sequence, record_property):
    """Every setting of every sampler."""
    runs = given_params_runs(list(enumerate(SETTINGS)))
    check(runs, seed_sequence, record_property)


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(LIKELIHOODS, "linear_gaussian"))
def test_a_row_of_many_features(name, seed_sequence, record_property):
    """The first generations have equal weights: conditional resampling shows from the third on."""
    case = registered_cases()[name]
    runs = {
        f"{sampler!r} missing={missing}": given_params_run(
            sampler.kernel(), 5, case=case, missing=missing, n_starts=12_000
        )
        for j, sampler in EVERYDAY
        for missing in (False, True)[j % 2 :]
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.slow
def test_given_params_in_full(seed_sequence, record_property):
    """Every combination of particles, powers, thresholds and paths."""
    powers = (0.0, 1.0, 2.0)
    samplers = [
        *(
            ParticleGibbs(*setting)
            for setting in itertools.product((2, 3, 20), powers, (0.0, 0.5, 1.0), VALID_PATHS)
        ),
        *(
            DiscreteParticleFilter(*setting)
            for setting in itertools.product((2, 3, 20), powers, VALID_PATHS)
        ),
    ]
    runs = {
        f"{sampler!r} {n_latent}": given_params_run(
            sampler.kernel(), n_latent, missing=bool(j % 2), n_starts=6_000
        )
        for j, sampler in enumerate(samplers)
        for n_latent in (3, 5)
    }
    check(runs, seed_sequence, record_property)


@pytest.mark.slow
def test_with_components(seed_sequence, record_property):
    samplers = (
        ElementGibbs(),
        RowGibbs(),
        ParticleGibbs(3, resample_threshold=1.0),
        DiscreteParticleFilter(2),
    )
    runs = {
        f"{sampler!r} {n_latent} missing={missing}": components_run(
            sampler.kernel(), n_latent, missing=missing
        )
        for sampler in samplers
        for n_latent, missing in ((2, True), (3, False))
    }
    check(runs, seed_sequence, record_property)


def test_an_enumerating_filter_is_row_gibbs(seed_sequence):
    """With as many particles as a row has values, the row is a draw from its conditional law: it
    does not depend on its present value."""
    X = np.array([[0.9, -0.4], [0.2, 0.1], [0.8, 1.0]])
    model, prior = make_model(X), make_prior(3, 3)
    starts = [np.zeros((3, 3)), np.ones((3, 3))]
    others = np.array([[1, 0, 1], [0, 1, 1]])

    def run_from(first):
        def run(seed, factor):
            counts = []
            for j, kernel in enumerate((RowGibbs().kernel(), DiscreteParticleFilter(8).kernel())):
                bit_generator = np.random.PCG64(seed.spawn(2)[j])
                ends = np.zeros(8, dtype=np.int64)
                for _ in range(round(4_000 * factor)):
                    load(model, np.eye(3)[:, :2])
                    Z = np.vstack([first[:1], others])
                    state = FeatureState(model, prior, Z)
                    kernel.run(state, bit_generator)
                    ends[state.allocations()[0] @ [4, 2, 1]] += 1
                counts.append(ends)
            pooled = sum(counts) / sum(counts).sum()
            # Two samples: twice the distance of one from their mean, on as many degrees.
            return chi_squared_two(counts, pooled)

        return run

    for first in starts:
        assert_p(run_from(first), seed_sequence=seed_sequence)


def chi_squared_two(counts, pooled):
    """P-value that two samples have one law."""
    statistic = 0.0
    keep = pooled * counts[0].sum() >= 5
    for observed in counts:
        expected = observed.sum() * pooled
        statistic += ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    return float(chi2.sf(statistic, keep.sum() - 1))


def buffet_run(
    kernel,
    *,
    concentration=0.7,
    missing=False,
    collapses=True,
    adapting=False,
    updates=True,
    hyper=False,
    wrong=None,
    n_starts,
):
    """A run for `assert_p`: (Z, V, X) from the prior, then alternately a step of the chain and X
    given Z and V. The class of Z keeps its prior law, and X given Z the chi-squared law of its
    squared Mahalanobis distance. Without `updates`, components change as a row's singletons
    only, and X keeps the law of its distance to Z V (the next X would forget the components).
    With `hyper`, the precisions and the concentration are drawn and keep their Gamma laws. `wrong`
    plants another concentration, precision or prior in the chain."""
    n, d, n_bins = 3, 2, 3
    wrong = dict(wrong or {})
    concentration_prior = wrong.pop("concentration_prior", (2.0, 3.0))
    classes, probabilities = classes_of_buffet(n, 4, concentration)
    index = {c: j for j, c in enumerate(classes)}
    joint = np.append(probabilities, 1 - probabilities.sum())
    joint = np.outer(joint, np.full(n_bins, 1 / n_bins))
    holes = np.zeros((n, d), dtype=bool)
    holes[1, 0] = missing
    params = {}
    if hyper:
        params = {
            "noise_precision": None,
            "noise_precision_prior": (3.0, 1.5),
            "component_precision": None,
            "component_precision_prior": (2.0, 2.0),
            **wrong,
        }

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        counts = np.zeros(joint.shape, dtype=np.int64)
        hyper_counts = np.zeros((3, 3, 3), dtype=np.int64)
        for _ in range(round(n_starts * factor)):
            alpha = rng.gamma(2.0) / 3.0 if hyper else concentration
            tau_x = rng.gamma(3.0) / 1.5 if hyper else NOISE
            tau_v = rng.gamma(2.0) / 2.0 if hyper else COMPONENT
            Z = make_prior(n, None, alpha).draw(rng)
            prior = make_prior(n, None, wrong.get("concentration", alpha))
            V = rng.normal(size=(Z.shape[1], d)) / np.sqrt(tau_v)
            for _ in range(3):
                X = Z @ V + rng.normal(size=(n, d)) / np.sqrt(tau_x)
                model = make_model(np.where(holes, np.nan, X), **params)
                load(
                    model,
                    V,
                    wrong.get("noise_precision", tau_x),
                    wrong.get("component_precision", tau_v),
                )
                state = FeatureState(model, prior, Z, collapses)
                kernel.run(state, bit_generator, adapting)
                if updates:
                    state.update_params(bit_generator)
                Z = state.allocations()
                if hyper:
                    prior.resample(Z.sum(axis=0), Gamma(*concentration_prior), bit_generator)
                saved = model.save()
                V = saved["components"]
                if hyper:
                    tau_x, tau_v = saved["noise_precision"], saved["component_precision"]
            if hyper:
                values = np.array([tau_x, tau_v, prior.concentration])
                u = gamma.cdf(values * [1.5, 2.0, 3.0], [3.0, 2.0, 2.0])
                hyper_counts[tuple((3 * u).astype(int))] += 1
                continue
            covariance = np.eye(n) / tau_x
            if updates:
                covariance += Z @ Z.T.astype(float) / tau_v
            else:
                X = X - Z @ V
            distance = 0.0
            for x, hole in zip(X.T, holes.T, strict=True):
                seen = ~hole
                distance += x[seen] @ np.linalg.solve(covariance[np.ix_(seen, seen)], x[seen])
            u = chi2.cdf(distance, (~holes).sum())
            counts[index.get(left_ordered(Z), len(classes)), min(int(n_bins * u), n_bins - 1)] += 1
        if hyper:
            return Cells(hyper_counts, np.full((3, 3, 3), 1 / 27))
        return Cells(counts, joint)

    return run


BUFFET = [
    # collapses, missing, updates of the parameters
    (ElementGibbs(), True, True, True),
    (ElementGibbs(), False, True, True),
    (RowGibbs(), False, False, False),
    (ParticleGibbs(3), True, True, True),
    (DiscreteParticleFilter(2), True, False, True),
]
BUFFET_IN_FULL = [
    *BUFFET,
    (ElementGibbs(), True, False, True),
    (ElementGibbs(), True, True, False),
    (RowGibbs(), True, True, True),
]


def buffet_runs(settings, n_starts):
    return {
        f"{sampler!r} collapses={collapses} missing={missing} updates={updates}": buffet_run(
            sampler.kernel(),
            collapses=collapses,
            missing=missing,
            updates=updates,
            adapting=not updates,  # another step for a row's singletons, as valid
            n_starts=n_starts,
        )
        for sampler, collapses, missing, updates in settings
    }


@pytest.mark.slow
def test_indian_buffet(seed_sequence, record_property):
    check(buffet_runs(BUFFET, 500), seed_sequence, record_property)


@pytest.mark.slow
def test_indian_buffet_in_full(seed_sequence, record_property):
    check(buffet_runs(BUFFET_IN_FULL, 2_500), seed_sequence, record_property)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler, missing",
    everyday([(RowGibbs(), True), (ElementGibbs(), False)], "RowGibbs()", n_values=2),
)
def test_hyperparameters(sampler, missing, seed_sequence):
    """The precisions and the concentration keep their Gamma laws."""
    run = buffet_run(sampler.kernel(), hyper=True, missing=missing, n_starts=2_500)
    assert_p(run, seed_sequence=seed_sequence)


def singletons_run(
    kernel, *, collapses, adapting=False, missing=False, wrong=None, n_starts=10_000
):
    """A run for `assert_p`: of a single row all features are singletons, and their number has a
    law that can be written down, as has the residual given it. Both are kept. `wrong` plants
    another concentration or precision in the chain."""
    x, most, n_bins, alpha = np.array([1.6, -1.1]), 12, 3, 1.5
    seen = np.array([True, not missing])
    k = np.arange(most + 1)
    variance = 1 / NOISE + k / COMPONENT
    log_density = norm.logpdf(x[seen, None], 0, np.sqrt(variance)).sum(axis=0)
    log_w = poisson.logpmf(k, alpha) + log_density
    law = np.exp(log_w - logsumexp(log_w))  # beyond 12 there is less than 1e-7
    used = {"concentration": alpha, "noise_precision": NOISE, "component_precision": COMPONENT}
    used |= wrong or {}

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        model = make_model(np.where(seen, x, np.nan)[None])
        prior = make_prior(1, None, used["concentration"])
        counts = np.zeros((most + 1, n_bins), dtype=np.int64)
        for n in rng.choice(most + 1, size=round(n_starts * factor), p=law):
            # A draw from the prior, moved to agree with x where it is observed.
            V = rng.normal(size=(n, 2)) / np.sqrt(COMPONENT)
            gap = x - V.sum(axis=0) - rng.normal(size=2) / np.sqrt(NOISE)
            V += np.where(seen, NOISE / (COMPONENT + n * NOISE) * gap, 0.0)
            load(model, V, used["noise_precision"], used["component_precision"])
            state = FeatureState(model, prior, np.ones((1, n)), collapses)
            for _ in range(3):
                kernel.run(state, bit_generator, adapting)
            V = model.save()["components"]
            n = len(V)
            u = rng.random()
            if n > 0:
                share = 1 / NOISE / variance[n]
                deviation = np.sqrt(n / COMPONENT * share)
                u = norm.cdf(x[0] - V[:, 0].sum(), x[0] * share, deviation)
            counts[n, min(int(n_bins * u), n_bins - 1)] += 1
        return Cells(counts, np.outer(law, np.full(n_bins, 1 / n_bins)))

    return run


SINGLETONS = [
    {"collapses": True},
    {"collapses": True, "missing": True},
    {"collapses": True, "adapting": True},
    {"collapses": False},
    {"collapses": False, "missing": True},
]


@pytest.mark.slow
@pytest.mark.parametrize("how", everyday(SINGLETONS, SINGLETONS[1], SINGLETONS[3]), ids=str)
def test_singletons(how, seed_sequence):
    run = singletons_run(ElementGibbs().kernel(), n_starts=10_000, **how)
    assert_p(run, seed_sequence=seed_sequence)


def concentration_run(n_latent, rate=1.5, n_starts=10_000):
    """A run for `assert_p`: the concentration from its Gamma prior, Z given it; then the
    concentration given Z is again a draw from the prior, jointly with the number of entries of Z.
    Planted: another `rate` in the chain."""

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        before, after = np.zeros((8, 2), dtype=np.int64), np.zeros((8, 2), dtype=np.int64)
        for _ in range(round(n_starts * factor)):
            alpha = rng.gamma(2.0) / 1.5
            prior = make_prior(4, n_latent, alpha)
            sums = prior.draw(rng).sum(axis=0).astype(np.intp)
            for _ in range(3):
                prior.resample(sums, Gamma(2.0, rate), bit_generator)
            large = int(sums.sum() > 4)
            for counts, value in ((before, alpha), (after, prior.concentration)):
                counts[int(8 * gamma.cdf(1.5 * value, 2.0)), large] += 1
        # Where Z has many entries, before and after are two samples of one law.
        pooled = (before + after)[:, 1] / (before + after)[:, 1].sum()
        p_values = (
            chi_squared_p(after.sum(axis=1), np.full(8, 1 / 8)),
            chi_squared_two([before[:, 1], after[:, 1]], pooled),
        )
        return min(1.0, 2 * min(p_values))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("n_latent", everyday([None, 3], 3))
def test_concentration(n_latent, seed_sequence):
    run = concentration_run(n_latent, n_starts=10_000)
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.parametrize("n_latent", [None, 3])
@pytest.mark.slow
def test_power_concentration(n_latent, seed_sequence):
    run = concentration_run(n_latent, rate=2.2, n_starts=4_000)
    assert run(seed_sequence, 1) < 1e-6


@pytest.mark.parametrize("cls", [ParticleGibbs, DiscreteParticleFilter])
def test_paths_of_warm_up_become_zeros(cls):
    """To the bit: paths that give no valid kernel are the path of zeros after warm-up, and no
    other path is."""
    ends = {}
    for path in cls.from_paper.variants:
        for adapting in (False, True):
            model, prior = make_model(np.arange(12.0).reshape(6, 2) / 10), make_prior(6, 3)
            load(model, np.array([[1.0, 0.0], [0.5, 0.5], [0.2, 1.0]]))
            state = FeatureState(model, prior, np.eye(6, 3))
            kernel = cls.from_paper(path, n_particles=3).kernel()
            bit_generator = np.random.PCG64(0)
            for _ in range(20):
                kernel.run(state, bit_generator, adapting)
            ends[path, adapting] = state.allocations().tobytes()
    assert len({ends[path, False] for path in VALID_PATHS}) == len(VALID_PATHS)
    for path in cls.from_paper.variants:
        assert (ends[path, False] == ends[path, True]) == (path in VALID_PATHS)
        if path not in VALID_PATHS:
            assert ends[path, False] == ends["zeros", False]


def assert_seen(run, seed_sequence):
    """The run has an error planted in its chain, and no second look is needed to see it."""
    cells = run(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"concentration": 1.8}, {"noise_precision": 4.0}])
def test_power_given_params(wrong, seed_sequence):
    run = given_params_run(RowGibbs().kernel(), 2, n_starts=6_000, wrong=wrong)
    assert_seen(run, seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "n_latent, missing, wrong",
    [
        (3, False, {"concentration": 1.8}),
        (3, False, {"noise_precision": 4.0}),
        (2, True, {"component_precision": 2.4}),
    ],
)
def test_power_with_components(n_latent, missing, wrong, seed_sequence):
    run = components_run(ElementGibbs().kernel(), n_latent, missing=missing, wrong=wrong)
    assert_seen(run, seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "collapses, missing, updates, wrong",
    [
        (True, False, True, {"concentration": 1.1}),
        (True, True, False, {"noise_precision": 4.5}),
        (True, True, True, {"component_precision": 1.8}),
        (False, True, True, {"concentration": 1.1}),
        (False, False, False, {"noise_precision": 12.0}),
        (False, False, False, {"component_precision": 3.0}),
    ],
)
def test_power_indian_buffet(collapses, missing, updates, wrong, seed_sequence):
    run = buffet_run(
        ElementGibbs().kernel(),
        collapses=collapses,
        missing=missing,
        updates=updates,
        adapting=not updates,
        wrong=wrong,
        n_starts=2_500,
    )
    assert_seen(run, seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, wrong",
    [
        (SINGLETONS[0], {"noise_precision": 4.5}),
        (SINGLETONS[1], {"component_precision": 1.1}),
        (SINGLETONS[2], {"concentration": 1.8}),
        (SINGLETONS[3], {"component_precision": 2.0}),
        (SINGLETONS[4], {"concentration": 1.9}),
    ],
)
def test_power_singletons(how, wrong, seed_sequence):
    assert_seen(singletons_run(ElementGibbs().kernel(), wrong=wrong, **how), seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing, wrong",
    [
        (True, {"noise_precision_prior": (3.0, 2.2)}),
        (False, {"component_precision_prior": (2.0, 3.2)}),
        (True, {"concentration_prior": (2.0, 4.4)}),
    ],
)
def test_power_hyperparameters(missing, wrong, seed_sequence):
    run = buffet_run(
        ElementGibbs().kernel(), hyper=True, missing=missing, wrong=wrong, n_starts=2_500
    )
    assert_seen(run, seed_sequence)


def test_element_gibbs_is_trapped_and_row_gibbs_is_not():
    """Two equal components, each used by half of the rows (PGFA, figure 2)."""
    n = 40
    X = np.full((n, 1), 100.0)
    Z = np.zeros((n, 2))
    Z[: n // 2, 0] = Z[n // 2 :, 1] = 1
    used = {}
    for sampler in (ElementGibbs(), RowGibbs(), DiscreteParticleFilter(), ParticleGibbs()):
        model = make_model(X, noise_precision=25.0, component_precision=0.25)
        load(model, np.full((2, 1), 100.0), 25.0, 0.25)
        state = FeatureState(model, make_prior(n, 2, 1.0), Z)
        kernel, bit_generator = sampler.kernel(), np.random.PCG64(1)
        for _ in range(200):
            kernel.run(state, bit_generator)
        used[type(sampler)] = state.allocations().sum(axis=0).max()
    assert used[ElementGibbs] == n // 2
    assert used[RowGibbs] > 0.8 * n
    assert used[DiscreteParticleFilter] > 0.8 * n


@pytest.mark.parametrize("name", SAMPLERS)
def test_rows_without_a_law_raise(name):
    model = make_model(np.zeros((3, 2)))
    load(model, np.full((2, 2), np.nan))
    state = FeatureState(model, make_prior(3, 2), np.eye(3, 2))
    with pytest.raises(FloatingPointError, match="row 0: no value has a positive weight"):
        SAMPLERS[name]().kernel().run(state, np.random.PCG64(0))


@pytest.mark.parametrize("sampler", SETTINGS[2:])
def test_weights_of_all_sizes(sampler):
    """With next to no noise, log weights differ by thousands: nothing under- or overflows."""
    rng = np.random.default_rng(0)
    V = rng.normal(size=(8, 3))
    Z = rng.random((30, 8)) < 0.4
    model = make_model(Z @ V)
    load(model, V, 1e6)
    state = FeatureState(model, make_prior(30, 8), ~Z)
    kernel, bit_generator = sampler.kernel(), np.random.PCG64(1)
    for _ in range(30):
        kernel.run(state, bit_generator)
    assert state.allocations().shape == (30, 8)
