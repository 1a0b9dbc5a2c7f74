"""Learned hyperparameters: kernels under other values, and the slice steps that draw them.

The laws hold for every likelihood that declares hyperparameters. Draws are tested in two ways:
from values and data drawn from the model the values must come out with their prior law again, and
from a fixed start they must reach the posterior, which is computed on a grid by the reference.
"""

import copy
import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from reference.hyperparameters import poisson_posterior
from scipy import stats
from sklearn.base import clone
from support.designs import thirds
from support.examples import examples_of
from support.kernels import bind
from support.laws import example, numbers_of, reference_of
from support.probes import Probe, log_likelihoods_at, log_marginals_at
from support.pvalues import assert_p_matrix, worst_p

from skdpm.hyperpriors import Gamma, Shifted
from skdpm.mixture.likelihoods import LIKELIHOODS, Gaussian, Poisson, Product, Subspace
from skdpm.mixture.likelihoods.contract._base import ClusterModel


def examples():
    for name, cls in LIKELIHOODS.items():
        for number, (likelihood, X) in enumerate(examples_of(cls)):
            if likelihood.hyperparameters:
                yield example(name, number, likelihood, X)


def product_examples():
    yield from (case for case in examples() if "product" in case.values[0].capabilities)


every = pytest.mark.parametrize(("likelihood", "X"), list(examples()))
every_product = thirds("likelihood, X", list(product_examples()))
# Those whose kernels take slice steps on `log_marginal_at`.
every_with_slices = thirds(
    "likelihood, X",
    [
        case
        for case in product_examples()
        if not isinstance(case.values[0], (Gaussian, Product, Subspace))
    ],
)
# Of the first items, as in a state.
CLUSTERS = ([0, 3, 4], [1], [2, 5, 6, 7])


def filled(likelihood, X, n_slots=5):
    """A probe with CLUSTERS in its first slots, and an empty cluster."""
    probe = Probe(bind(likelihood, likelihood.encode(X), X.shape[0]), n_slots)
    for items in CLUSTERS:
        slot = probe.acquire()
        for i in items:
            probe.add(slot, i)
    probe.acquire()
    return probe


def named(likelihood, flat):
    """Values of a kernel's vector by name, in the shape that they have in the likelihood."""
    values, first = {}, 0
    for name in likelihood.hyperparameters:
        shape = np.shape(getattr(likelihood, name))
        stop = first + int(np.prod(shape))
        values[name] = np.reshape(flat[first:stop], shape) if shape else float(flat[first])
        first = stop
    assert first == len(flat)
    return values


def other_values(likelihood, rng, scale=1.0):
    """A random vector for the kernel: values that the hyperparameters may have."""
    values = named(likelihood, likelihood.flat_hyperparameters())
    lows = {"df": len(likelihood.mean) - 1.0} if is_full(likelihood) else {}
    if isinstance(likelihood, Product) and likelihood.num__covariance_type == "full":
        lows = {"num__df": len(likelihood.num__mean) - 1.0}
    for name, value in values.items():
        # A matrix is multiplied by a number.
        by = rng.normal(scale=scale, size=np.shape(value) if np.ndim(value) == 1 else None)
        low = lows.get(name, 0.0)
        values[name] = (
            value + by if name in ("mean", "num__mean") else low + (value - low) * np.exp(by)
        )
    return likelihood.at(values).flat_hyperparameters()


def is_full(likelihood):
    return getattr(likelihood, "covariance_type", None) == "full" or hasattr(likelihood, "n_axes")


def log_marginal(likelihood, X, items, values):
    """That of a kernel, which leaves out the constants of the items."""
    hyper = numbers_of(likelihood.at(named(likelihood, values)))
    rows = X[items]
    log_marginal = reference_of(likelihood, X)
    constants = log_constants(likelihood, X, items, values)
    return log_marginal(rows.toarray() if sp.issparse(rows) else rows, **hyper) - constants


def log_constants(likelihood, X, items, values):
    return likelihood.at(named(likelihood, values)).log_constants(X[items]).sum()


@every_with_slices
@pytest.mark.some(2)
def test_other_values_equal_the_reference(likelihood, X):
    likelihood = likelihood.resolve(X)
    probe = filled(likelihood, X)
    start = probe.model.hyperparameters()
    np.testing.assert_array_equal(start, likelihood.flat_hyperparameters())
    rng = np.random.default_rng(0)
    before = probe.model.dump(range(4), True)
    for _ in range(20):
        values = other_values(likelihood, rng, 2.0)
        expected = [log_marginal(likelihood, X, items, values) for items in CLUSTERS]
        actual = log_marginals_at(probe.model, range(4), values)
        np.testing.assert_allclose(actual[:3], expected, rtol=1e-9, atol=1e-9)
        assert actual[3] == 0.0
    # ... as a function of one of them, up to a constant.
    for h in range(len(start)):
        values = start * np.ones((3, 1))
        values[1:, h] *= [0.3, 4.0]
        expected = [
            log_marginals_at(probe.model, range(3), value).sum()
            + log_constants(likelihood, X, range(8), value)
            for value in values
        ]
        actual = log_likelihoods_at(probe.model, [0, 1, 2], values, h)
        np.testing.assert_allclose(np.diff(actual), np.diff(expected), rtol=1e-8, atol=1e-9)
    # ... and touches nothing.
    np.testing.assert_array_equal(probe.model.dump(range(4), True), before)
    np.testing.assert_array_equal(probe.model.hyperparameters(), start)
    current = [probe.log_marginal(slot) for slot in range(4)]
    np.testing.assert_allclose(log_marginals_at(probe.model, range(4), start), current, rtol=1e-9)


@every_product
@pytest.mark.some(4)
def test_a_copy_with_values_of_a_kernel_has_these(likelihood, X):
    likelihood = likelihood.resolve(X)
    flat = likelihood.flat_hyperparameters()
    again = likelihood.at(named(likelihood, flat)).flat_hyperparameters()
    np.testing.assert_allclose(again, flat, rtol=1e-14)


def test_a_copy_keeps_the_degrees_of_freedom_of_rows():
    X = np.random.default_rng(0).normal(size=(20, 2))
    likelihood = Gaussian(covariance_type="tied").resolve(X)
    for df in (0.0, 7.5):
        flat = likelihood.at({"df": df}).flat_hyperparameters()
        again = likelihood.at(named(likelihood, flat)).flat_hyperparameters()
        assert flat[3] == again[3] == df


@every_product
@pytest.mark.some(2)
def test_the_laws_hold_after_a_change(likelihood, X):
    likelihood = likelihood.resolve(X)
    data = likelihood.encode(X)
    tables = likelihood.tables(data, X.shape[0])
    shared = copy.deepcopy(tables)
    probe = filled(likelihood, X)
    start = probe.model.hyperparameters()
    rng = np.random.default_rng(1)
    for _ in range(5):
        values = other_values(likelihood, rng)
        probe.model.set_hyperparameters(values)
        np.testing.assert_array_equal(probe.model.hyperparameters(), values)
        for slot, items in enumerate(CLUSTERS):
            expected = log_marginal(likelihood, X, items, values)
            assert probe.log_marginal(slot) == pytest.approx(expected, rel=1e-9)
            for i in (8, 9):
                expected = log_marginal(likelihood, X, [*items, i], values) - expected
                expected += log_constants(likelihood, X, [i], values)
                assert probe.log_predictive(slot, i) == pytest.approx(expected, rel=1e-8)
                expected = log_marginal(likelihood, X, items, values)
        assert probe.log_predictive(3, 8) == pytest.approx(
            log_marginal(likelihood, X, [8], values) + log_constants(likelihood, X, [8], values),
            rel=1e-9,
        )
        # A slot that was free meanwhile, an item that comes and goes, and a merger.
        slot = probe.acquire()
        probe.add(slot, 8)
        probe.add(slot, 9)
        probe.remove(slot, 8)
        probe.merge(slot, 1)
        expected = log_marginal(likelihood, X, [1, 9], values)
        assert probe.log_marginal(slot) == pytest.approx(expected, rel=1e-9)
        probe.release(slot)
        # As if the values had been there from the start.
        other = likelihood.at(named(likelihood, values))
        fresh = Probe(other.bind(data, other.tables(data, X.shape[0])), 5)
        fresh.model.load(probe.model.dump(range(3)))
        np.testing.assert_allclose(
            fresh.model.dump(range(4), True),
            probe.model.dump(range(4), True),
            rtol=1e-12,
            atol=1e-14,
        )
    np.testing.assert_equal(tables, shared)
    probe.model.set_hyperparameters(start)
    np.testing.assert_allclose(
        probe.model.dump(range(4), True),
        filled(likelihood, X).model.dump(range(4), True),
        atol=1e-13,
    )


@every
def test_values_of_the_wrong_form_are_refused(likelihood, X):
    likelihood = likelihood.resolve(X)
    model = bind(likelihood, likelihood.encode(X), X.shape[0])
    n_hyper = model.n_hyper
    for values in ([1.0] * (n_hyper - 1), [np.nan] * n_hyper, [1.0] * (n_hyper + 1)):
        with pytest.raises(ValueError, match=f"{model.n_hyper} finite hyperparameters"):
            model.set_hyperparameters(values)
    with pytest.raises(ValueError, match="has no hyperparameter 'colour'"):
        likelihood.at({"colour": 1.0})
    with pytest.raises(ValueError, match="has no hyperparameter 'colour'"):
        model.resample_hyperparameters([], {"colour": Gamma(1.0, 1.0)}, np.random.PCG64(0))


def test_a_kernel_that_forgets_its_methods_is_refused():
    """No answer where a likelihood has hyperparameters but its kernel cannot change them."""
    model = ClusterModel()
    assert model.hyperparameters().shape == (0,)
    assert np.isnan(log_marginals_at(model, [0], [])).all()


# The face.


@every
@pytest.mark.some(4)
def test_none_is_learned_and_a_number_fixed(likelihood, X):
    hyperparameters = likelihood.hyperparameters
    free = likelihood.get_params()
    resolved = likelihood.resolve(X)
    # That of tied Gaussians is a number of the hyperprior.
    tied = getattr(likelihood, "covariance_type", None) == "tied"
    assert resolved.learned == tuple(
        n for n in hyperparameters if free[n] is None and not (tied and n == "df")
    )
    assert set(resolved.learned_priors) == set(resolved.learned)
    for n in range(len(hyperparameters) + 1) if len(hyperparameters) < 5 else (0, 1, 9):
        for names in itertools.combinations(hyperparameters, n):
            one = clone(likelihood).set_params(**dict.fromkeys(names))
            one = one.resolve(X)
            names = tuple(set(names) - ({"df"} if tied else set()))
            assert set(names) <= set(one.learned)
            values = {name: getattr(one, name) for name in hyperparameters}
            assert all(np.isfinite(value).all() for value in values.values())
            assert np.isfinite(one.log_hyperprior(values))
            other = one.at({name: 2.0 * values[name] for name in names})
            assert vars(other).keys() == vars(one).keys()
            for name in names:
                np.testing.assert_array_equal(getattr(other, name), 2.0 * values[name])
                np.testing.assert_array_equal(getattr(one, name), values[name])
            assert other.learned == one.learned
    # A resolved one holds numbers: nothing is learned from then on.
    fixed = clone(resolved)
    assert fixed.learned == fixed.resolve(X).learned == ()
    assert fixed.log_hyperprior({}) == 0.0


@pytest.mark.parametrize("names", [("shape", "rate"), ("rate",)])
def test_hyperpriors_of_poisson_add_up(names):
    X = np.array([[0.0, 3.0], [1.0, 4.0]])
    likelihood = Poisson(shape=1.5, rate=0.5).set_params(**dict.fromkeys(names)).resolve(X)
    values = {"shape": 1.4, "rate": 0.3}
    expected = sum(likelihood.learned_priors[name].log_density(values[name]) for name in names)
    assert likelihood.log_hyperprior(values) == expected


def test_gamma_is_the_density_of_scipy():
    law = Shifted(Gamma(2.5, 0.4), 1.0)
    assert law.log_density(3.0) == pytest.approx(stats.gamma.logpdf(2.0, 2.5, scale=2.5))
    values = np.array([1.5, 9.0])
    expected = stats.gamma.logpdf(values - 1.0, 2.5, scale=2.5)
    np.testing.assert_allclose(law.log_density(values), expected)
    assert law.log_density(1.0) == -np.inf


def test_hyperpriors_of_poisson_follow_the_mean_count():
    X = np.random.default_rng(0).poisson(3.0, size=(50, 2)).astype(float)
    for factor in (1.0, 1000.0):
        resolved = Poisson().resolve(factor * X)
        rate = resolved.learned_priors["rate"]
        assert rate.shape / rate.rate * factor * X.mean() == pytest.approx(2.0)
        assert resolved.shape / resolved.rate == pytest.approx(factor * X.mean())
    expected = {"rate": Gamma(2.0, 2.0 * X.mean() / 5.0)}
    assert Poisson(shape=5.0).resolve(X).learned_priors == expected
    assert Poisson(rate=5.0).resolve(X).learned == ("shape",)
    for empty in (np.zeros((4, 2)), np.full((4, 2), np.nan)):
        resolved = Poisson().resolve(empty)
        assert 0.0 < resolved.rate < np.inf


@pytest.mark.parametrize("values", [{"shape": 0.3, "rate": 2.0}, {"rate": 0.1}])
def test_parameters_of_blocks_are_drawn_at_other_values(values):
    X = np.random.default_rng(0).poisson(3.0, size=(50, 2)).astype(float)
    resolved = Poisson().resolve(X)
    fixed = Poisson(**{"shape": resolved.shape, "rate": resolved.rate, **values}).resolve(X)
    row = np.zeros((3, 7))
    drawn = [
        likelihood.parametric(X).draw(row, np.ones(3), np.random.PCG64(0))
        for likelihood in (resolved.at(values), fixed, resolved)
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).all()


# Draws: Poisson.

PRIORS = {"shape": Gamma(2.0, 1.0), "rate": Gamma(2.0, 3.0)}
LABELS = np.array([0, 0, 0, 1, 1, 2, 0, 2])
# What a sampler might get wrong, as a change of the priors that it is given: the density of the
# logarithm without its Jacobian is that of a Gamma with one less for its shape.
PLANTED = {
    "no Jacobian": {"shape": Gamma(1.0, 1.0), "rate": Gamma(1.0, 3.0)},
    "wrong rate": {"shape": Gamma(2.0, 1.0), "rate": Gamma(2.0, 5.0)},
    "shape as rate": {"shape": Gamma(2.0, 3.0), "rate": Gamma(2.0, 1.0)},
}


def clustered(X, shape, rate, labels=LABELS):
    likelihood = Poisson(shape, rate).resolve(X)
    probe = Probe(bind(likelihood, likelihood.encode(X), len(X)), labels.max() + 1)
    for k in range(labels.max() + 1):
        assert probe.acquire() == k
    for i, k in enumerate(labels):
        probe.add(k, i)
    return probe.model


def invariance_p(seed, n_starts, priors=PRIORS, names=("shape", "rate"), n_steps=4):
    """p-values of hyperparameters after some steps, from i.i.d. draws of values and data."""
    rng = np.random.default_rng(seed)
    drawn, functions = np.empty((n_starts, 2)), np.empty((2, n_starts))
    slots = np.arange(LABELS.max() + 1)
    for m in range(n_starts):
        theta = [rng.gamma(p.shape) / p.rate for p in (PRIORS["shape"], PRIORS["rate"])]
        rates = rng.gamma(theta[0], 1.0 / theta[1], size=(len(slots), 2))
        X = rng.poisson(rates[LABELS]).astype(float)
        model = clustered(X, *theta)
        for _ in range(n_steps):
            values = model.resample_hyperparameters(
                slots, {name: priors[name] for name in names}, rng.bit_generator
            )
        drawn[m] = values
        # Of values and data together, against those of other starts.
        functions[:, m] = [shape / rate - X.mean() for shape, rate in (theta, values)]
    half = n_starts // 2
    return {
        "shape": stats.kstest(drawn[:, 0], stats.gamma(2.0).cdf).pvalue,
        "rate": stats.kstest(drawn[:, 1], stats.gamma(2.0, scale=1.0 / 3.0).cdf).pvalue,
        "both": stats.ks_2samp(functions[0, :half], functions[1, half:]).pvalue,
    }


X_FIXED = np.array(
    [[0, 9], [1, 4], [2, 7], [5, 0], [9, 1], [0, 0], [1, 3], [2, 1.0]]
)  # clusters by LABELS


@pytest.fixture(scope="module")
def posterior():
    return poisson_posterior(X_FIXED, LABELS, shape_prior=(2.0, 1.0), rate_prior=(2.0, 3.0))


def convergence_p(posterior, seed, n_chains, priors=PRIORS, n_steps=25):
    """p-values of hyperparameters after some steps from one start, far out, against the grid."""
    rng = np.random.default_rng(seed)
    drawn = np.empty((n_chains, 2))
    slots = np.arange(LABELS.max() + 1)
    model = clustered(X_FIXED, 1.0, 1.0)
    for m in range(n_chains):
        model.set_hyperparameters([20.0, 0.01])
        for _ in range(n_steps):
            drawn[m] = model.resample_hyperparameters(slots, priors, rng.bit_generator)
    return {
        name: stats.kstest(np.log(values), posterior[name]).pvalue
        for name, values in zip(("shape", "rate"), drawn.T, strict=True)
    }


def runs(function, n, quantities, **options):
    """One run for each p-value that `function` gives."""
    return {
        name: lambda seed, factor, name=name: function(seed, round(n * factor), **options)[name]
        for name in quantities
    }


def test_steps_keep_the_law_of_hyperparameters(seed_sequence):
    every_p = runs(invariance_p, 400, ("shape", "rate", "both"))
    one = runs(invariance_p, 400, ("rate", "both"), names=("rate",))
    assert_p_matrix(
        {**every_p, **{f"{name}, shape fixed": run for name, run in one.items()}},
        seed_sequence=seed_sequence,
    )


def test_steps_reach_the_posterior_of_hyperparameters(posterior, seed_sequence):
    def run(seed, n):
        return convergence_p(posterior, seed, n)

    assert_p_matrix(runs(run, 300, ("shape", "rate")), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("error", PLANTED)
def test_planted_errors_are_seen(error, posterior, seed_sequence):
    invariance, convergence = (np.random.default_rng(s) for s in seed_sequence.spawn(2))
    p = invariance_p(invariance, 1600, priors=PLANTED[error])
    assert worst_p(p).corrected < 1e-6
    p = convergence_p(posterior, convergence, 1200, priors=PLANTED[error])
    assert worst_p(p).corrected < 1e-6


@pytest.mark.slow
def test_a_wrong_marginal_likelihood_is_seen(posterior, seed_sequence):
    """Clusters left out of the product."""
    rng = np.random.default_rng(seed_sequence)
    model = clustered(X_FIXED, 1.0, 1.0)
    drawn = np.empty((1200, 2))
    for m in range(len(drawn)):
        for _ in range(10):
            drawn[m] = model.resample_hyperparameters([0, 1], PRIORS, rng.bit_generator)
    p = {
        name: stats.kstest(np.log(values[::2]), posterior[name]).pvalue
        for name, values in zip(("shape", "rate"), drawn.T, strict=True)
    }
    assert worst_p(p).corrected < 1e-6


def test_a_density_that_is_not_a_number_names_the_hyperparameter():
    model = clustered(X_FIXED, 1.0, 1.0)
    broken = {"shape": Gamma(2.0, 1.0), "rate": Gamma(2.0, np.nan)}
    with pytest.raises(FloatingPointError, match="hyperparameter 'rate' is NaN"):
        model.resample_hyperparameters([0, 1, 2], broken, np.random.PCG64(0))


def test_fixed_hyperparameters_draw_nothing():
    model = clustered(X_FIXED, 1.5, 0.5)
    bit_generator = np.random.PCG64(0)
    before = bit_generator.state
    values = model.resample_hyperparameters([0, 1, 2], {}, bit_generator)
    assert values.tolist() == [1.5, 0.5]
    assert bit_generator.state == before
