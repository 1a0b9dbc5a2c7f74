"""Selection of columns: `Product(select=True)`.

Three units have 8 choices and four rows 15 partitions, so the joint posterior of both is known
exactly, from a reference that imports no kernel.
"""

import pickle

import numpy as np
import pandas as pd
import pytest
from reference.enumerate import canonical_labels, enumerate_partitions, partition_index
from reference.likelihoods import log_likelihood, log_likelihoods
from reference.predictive import log_densities, log_weights
from reference.priors import log_eppf
from scipy.special import betaln, logsumexp
from scipy.stats import gamma
from sklearn.base import clone
from sklearn.metrics import adjusted_rand_score
from support.chains import run_chains
from support.designs import everyday
from support.exactness import SAMPLER_CASES, make_prior, make_state
from support.kernels import bind
from support.probes import Probe, log_predictive_bounds, log_predictive_floors
from support.pvalues import Cells, assert_p_matrix, chi_squared_p

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Multinomial,
    Poisson,
    Product,
)
from skdpm.mixture.likelihoods.composite.classified import Classified
from skdpm.mixture.likelihoods.composite.selection import Inclusion
from skdpm.mixture.samplers import SAMS, SMC, BlockedGibbs, Gibbs, SubCluster
from skdpm.mixture.state._state import MixtureState

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAN = np.nan
PRIOR = {"concentration": 1.3}
FLAGS = {"a": 0.4, "b": 0.5}
RATES = {"shape": 1.1, "rate": 0.3}
CATEGORIES = {"concentration": 0.4, "n_categories": 3}
NORMAL = {"mean": 0.3, "mean_precision": 0.2, "df": 3.5, "scale": 0.6}
FULL = {"mean": [0.3, -0.1], "mean_precision": 0.3, "df": 3.5, "scale": 0.6}

# Likelihood, four rows, and (law, columns, hyperparameters) of the three units.
CASES = {
    "columns": (
        [
            ("flags", Bernoulli(**FLAGS), [0]),
            ("num", Gaussian(**NORMAL, covariance_type="diag"), [1]),
            ("counts", Poisson(**RATES), [2]),
        ],
        [[1, 1.1, 4], [0, NAN, 1], [1, 0.9, 2], [0, 0.2, 2]],
        [
            ("bernoulli", [0], FLAGS),
            ("gaussian_diag", [1], NORMAL),
            ("poisson", [2], RATES),
        ],
    ),
    "whole part": (
        [("cat", Categorical(**CATEGORIES), [0, 3]), ("num", Gaussian(**FULL), [2, 1])],
        [[1, 0.1, 1.2, 2], [0, -1.0, 0.1, 0], [1, 0.6, 1.4, 2], [2, -0.8, 0.0, 1]],
        [
            ("categorical", [0], CATEGORIES),
            ("categorical", [3], CATEGORIES),
            ("gaussian", [2, 1], FULL),
        ],
    ),
}
CHOICES = np.array(list(np.ndindex(2, 2, 2)))
PARTITIONS = enumerate_partitions(4)


def log_prior_of(sizes):
    return log_eppf(np.unique(sizes, return_counts=True)[1], "dp", **PRIOR)


def law_of(units, X, log_inclusion=None):
    """p(choice, partition | X): (8, 15), and log p(X | partition) of each unit, (3, 15)."""
    of_units = np.array(
        [
            [log_likelihood(X[:, columns], z, name, **params) for z in PARTITIONS]
            for name, columns, params in units
        ]
    )
    return joint_law(of_units, log_inclusion)


def joint_law(of_units, log_inclusion=None):
    """p(choice, partition | X) from log p(X | partition) of each unit. The first partition is one
    cluster."""
    assert not PARTITIONS[0].any()
    prior = np.array([log_prior_of(z) for z in PARTITIONS])
    log_joint = np.empty((len(CHOICES), len(PARTITIONS)))
    for c, choice in enumerate(CHOICES):
        of_choice = log_inclusion or (lambda choice: betaln(1 + sum(choice), 4 - sum(choice)))
        log_joint[c] = of_choice(choice) + prior
        for u, chosen in enumerate(choice):
            log_joint[c] += of_units[u] if chosen else of_units[u, 0]
    return np.exp(log_joint - logsumexp(log_joint))


def selecting(parts):
    return Product(parts, select=True)


def selection_run(name, sampler, *, n_starts=2_000, law=None, codes=None):
    """A run for `assert_p`: i.i.d. starts from the joint posterior stay i.i.d. from it, after a
    step of the sampler and of the selection."""
    parts, X, units = CASES[name]
    X = np.array(X, dtype=float)
    exact = law_of(units, X) if law is None else law
    likelihood = selecting(parts)
    if codes is not None:
        likelihood = Classified(likelihood, np.array(codes))
    state = make_state(likelihood, X, make_prior("dp", len(X), **PRIOR))
    model, kernel = state.model, sampler.kernel()
    flat = model.hyperparameters()

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))

        def begin(cell):
            choice, partition = divmod(cell, len(PARTITIONS))
            state.assign(PARTITIONS[partition])
            flat[-3:] = CHOICES[choice]
            model.set_hyperparameters(flat)

        def step():
            kernel.run(state, rng.bit_generator)
            model.resample_hyperparameters(
                state.cluster_slots(), {"selected": Inclusion()}, rng.bit_generator
            )

        def read():
            choice = model.hyperparameters()[-3:] @ [4, 2, 1]
            labels = canonical_labels(state.cluster_labels()[None])
            return int(choice) * len(PARTITIONS) + partition_index(labels)[0]

        starts = rng.choice(exact.size, size=round(n_starts * factor), p=exact.ravel())
        ends = run_chains(
            starts, 1 + np.arange(len(starts)) % 3, begin=begin, step=step, read=read
        )
        return Cells(np.bincount(ends, minlength=exact.size), exact.ravel())

    return run


SAMPLERS = [sampler for samplers in SAMPLER_CASES.values() for sampler in samplers]


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(CASES, "columns"))
def test_samplers_against_the_enumerated_posterior(name, seed_sequence):
    law = law_of(CASES[name][2], np.array(CASES[name][1], dtype=float))
    # No choice and no partition is certain.
    assert law.sum(axis=0).max() < 0.7 and 0.01 < law.sum(axis=1).min() < 0.6
    runs = {repr(sampler): selection_run(name, sampler) for sampler in SAMPLERS}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def test_known_classes_leave_hyperparameters_their_priors():
    """Units whose priors differ, because their columns do. One of them is nearly constant."""
    rng = np.random.default_rng(0)
    X = rng.normal([70.0, 2.0, -5.0], [20.0, 1e-4, 1.0], size=(30, 3))
    parts = [("x", Gaussian(covariance_type="diag"), [0, 1, 2])]
    likelihood = Product(parts, select=True).for_columns(X).resolve(X)
    found = []
    for own in (likelihood, Classified(likelihood, np.full(30, -1, dtype=np.intp))):
        model = bind(own, own.encode(X), 30)
        state = MixtureState(model, make_prior("dp", 30, concentration=1.0), np.arange(30) % 2)
        bit_generator = np.random.PCG64(1)
        for _ in range(20):
            model.resample_hyperparameters(
                state.cluster_slots(), own.learned_priors, bit_generator
            )
        found.append(model.hyperparameters())
    np.testing.assert_array_equal(*found)
    known = np.where(np.arange(30) < 6, np.arange(30) % 2, -1)
    fitted = DPMixture(likelihood=Product(parts, select=True), **FAST).fit(X, known_labels=known)
    assert abs(fitted.likelihood_.x__mean[1] - 2.0) < 1e-3


@pytest.mark.slow
def test_with_known_classes(seed_sequence):
    """Rows 0 and 2 are known to be of different classes: their kernel is inside another one."""
    X = np.array(CASES["columns"][1], dtype=float)
    law = law_of(CASES["columns"][2], X)
    law[:, PARTITIONS[:, 0] == PARTITIONS[:, 2]] = 0.0
    law /= law.sum()
    runs = {
        repr(sampler): selection_run("columns", sampler, law=law, codes=[0, -1, 1, -1])
        for sampler in (Gibbs(), SAMS(gibbs_sweeps=0))
    }
    assert_p_matrix(runs, seed_sequence=seed_sequence)
    likelihood = selecting(CASES["columns"][0])
    model = DPMixture(likelihood=likelihood, **FAST).fit(X, known_labels=[0, -1, 1, -1])
    for (z, choice), found in zip(
        draws_of(model, CASES["columns"][2]), model.log_joint_samples_.ravel(), strict=True
    ):
        expected = log_prior_of(z) + apart(X, CASES["columns"][2], choice)
        for (name, columns, params), chosen in zip(CASES["columns"][2], choice, strict=True):
            expected += log_likelihood(X[:, columns], z, name, **params) if chosen else 0.0
        assert z[0] != z[2] and found == pytest.approx(expected, rel=1e-10)


def fixed_theta(choice):
    return 0.0


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_test_sees_another_prior(name, seed_sequence):
    """Columns that are selected independently, with theta = 1/2."""
    law = law_of(CASES[name][2], np.array(CASES[name][1], dtype=float), fixed_theta)
    run = selection_run(name, Gibbs(), n_starts=20_000, law=law)
    assert chi_squared_p(*run(seed_sequence, 1)[:2]) < 1e-6


# Selection and learned hyperparameters together.

BITS = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 0, 1]], dtype=float)
EDGE = 0.7  # of the first pseudo-count


def log_beta_columns(X, log_weights, a, b):
    """log p(column | each partition), pseudo-counts integrated out over a grid."""
    return logsumexp(
        log_weights[:, None]
        + np.array([log_likelihoods(X, "bernoulli", a=p, b=q) for p, q in zip(a, b, strict=True)]),
        axis=0,
    )


def learned_law():
    """p(choice, partition, whether a of the first column is above EDGE): (8, 15, 2)."""
    # Quantiles of Gamma(1, 1), which EDGE separates.
    share = gamma(1.0).cdf(EDGE)
    nodes, weights = np.polynomial.legendre.leggauss(20)
    nodes, weights = 0.5 * (nodes + 1.0), 0.5 * weights
    a = np.concatenate([share * nodes, share + (1.0 - share) * nodes])
    wa = np.concatenate([share * weights, (1.0 - share) * weights])
    a = gamma(1.0).ppf(a)
    A, B = (grid.ravel() for grid in np.meshgrid(a, a, indexing="ij"))
    log_w = np.log(np.outer(wa, wa)).ravel()
    columns = [BITS[:, [d]] for d in range(3)]
    others = [log_beta_columns(X, log_w, A, B) for X in columns[1:]]
    law = np.empty((8, 15, 2))
    sides = [log_beta_columns(columns[0], log_w[k], A[k], B[k]) for k in (A < EDGE, A > EDGE)]
    whole = [joint_law(np.array([np.logaddexp(*sides), *others]))]
    for side in range(2):
        # The share of the side, given choice and partition.
        share = np.exp(sides[side] - np.logaddexp(*sides))
        chosen = CHOICES[:, 0] == 1
        law[chosen, :, side] = share
        law[~chosen, :, side] = share[0]
    return law * whole[0][:, :, None]


def learned_run(n_chains, error=None):
    law = learned_law()
    flags = Bernoulli(hyperpriors={"a": (1.0, 1.0), "b": (1.0, 1.0)})
    likelihood = selecting([("flags", flags, slice(None))])

    def run(seed, factor):
        fit = DPMixture(
            likelihood=likelihood,
            sampler="gibbs",
            init="single",
            concentration=PRIOR["concentration"],
            n_chains=round(n_chains * factor),
            n_warmup=60,
            n_draws=1,
            point_estimate="last",
            random_state=int(seed.generate_state(1)[0]),
        ).fit(BITS)
        choice = fit.hyperparameter_samples_["selected"][:, 0] @ [4, 2, 1]
        a = fit.hyperparameter_samples_["flags__a"][:, 0, 0]
        seen = np.zeros(law.shape, dtype=int)
        labels = canonical_labels(fit.label_samples_[:, 0].astype(int))
        np.add.at(seen, (choice.astype(int), partition_index(labels), (a > EDGE) * 1), 1)
        return Cells(seen, law)

    return run


@pytest.mark.slow
def test_learned_hyperparameters_and_selection(seed_sequence):
    """Fits draw partition, selection and hyperparameters from their joint posterior."""
    assert_p_matrix({"learned": learned_run(2_000)}, seed_sequence=seed_sequence)


def outside_run(inside):
    """A run for `assert_p`: the pseudo-count of ones of a column, given that it is inside or
    outside, in clusters of ones alone and of zeros alone."""
    flags = Bernoulli(b=1.0, hyperpriors={"a": (1.0, 1.0)})
    X = np.repeat([[1.0, 0.0], [0.0, 1.0]], 6, axis=0)
    likelihood = selecting([("flags", flags, slice(None))])
    labels = np.arange(12) // 6
    state = make_state(likelihood, X, make_prior("dp", 12, **PRIOR), labels)
    prior = likelihood.resolve(X).learned_priors["flags__a"]
    a = gamma(1.0).ppf((np.arange(4000) + 0.5) / 4000)
    clusters = labels if inside else 0 * labels
    law = [log_likelihood(X[:, :1], clusters, "bernoulli", a=value, b=1.0) for value in a]
    law = np.exp(law - logsumexp(law))
    edges = (0.5, 1.0, 2.0)
    law = np.bincount(np.searchsorted(edges, a), law)
    start = state.model.hyperparameters()
    start[-2:] = inside

    def run(seed, factor):
        rng = np.random.Generator(np.random.PCG64(seed))
        ends = run_chains(
            [start] * (round(1_000 * factor)),
            15 if inside else 60,
            begin=state.model.set_hyperparameters,
            step=lambda: state.model.resample_hyperparameters(
                state.cluster_slots(), {"flags__a": prior}, rng.bit_generator
            ),
            read=lambda: state.model.hyperparameters()[0],
        )
        return Cells(np.bincount(np.searchsorted(edges, ends), minlength=4), law)

    return run


@pytest.mark.slow
def test_hyperparameters_of_a_column_outside(seed_sequence):
    """They follow the law of all rows as one cluster."""
    assert_p_matrix(
        {"inside": outside_run(True), "outside": outside_run(False)}, seed_sequence=seed_sequence
    )
    other = outside_run(True)(seed_sequence, 1).probabilities
    assert chi_squared_p(outside_run(False)(seed_sequence, 1).counts, other) < 1e-6


# Fits: draws, scores and answers under them.

FAST = {"n_warmup": 5, "n_draws": 12, "n_chains": 2, "random_state": 0, "concentration": 1.3}


def rows_of(name):
    """More rows like those of a case."""
    rng = np.random.default_rng(3)
    X = np.array(CASES[name][1], dtype=float)[rng.integers(4, size=14)]
    units = CASES[name][2]
    for law, columns, _ in units:
        if "gaussian" in law:
            X[:, columns] += 0.4 * rng.standard_normal((len(X), len(columns)))
        if law == "poisson":
            X[:, columns] += rng.poisson(1.0, size=(len(X), len(columns)))
        if law in ("bernoulli", "categorical"):
            X[:, columns] = rng.permutation(X[:, columns])
    return X


def fitted(name, **params):
    return DPMixture(likelihood=selecting(CASES[name][0]), **{**FAST, **params}).fit(rows_of(name))


def draws_of(model, units):
    """Labels and choice of units of each draw."""
    selected = model.hyperparameter_samples_["selected"].reshape(-1, model.n_features_in_)
    labels = model.label_samples_.reshape(len(selected), -1).astype(int)
    return [
        (z, s[[c[0] for _, c, _ in units]] > 0.5) for z, s in zip(labels, selected, strict=True)
    ]


def apart(X, units, choice):
    """log p(X) of the units that are not selected."""
    nobody = np.zeros(len(X), dtype=int)
    return sum(
        log_likelihood(X[:, columns], nobody, name, **params)
        for (name, columns, params), chosen in zip(units, choice, strict=True)
        if not chosen
    )


def reference_scores(model, X, X_new, units):
    """log of the mean density of new rows over the draws, from ratios of joint densities."""
    scores = []
    for z, choice in draws_of(model, units):
        terms = log_weights(z, "dp", PRIOR)
        for (name, columns, params), chosen in zip(units, choice, strict=True):
            if chosen:
                terms = terms + log_densities(X[:, columns], z, X_new[:, columns], name, params)
        terms = np.broadcast_to(terms, (len(X_new), np.shape(terms)[-1]))
        rest = [apart(np.vstack([X, x]), units, choice) - apart(X, units, choice) for x in X_new]
        scores.append(logsumexp(terms, axis=1) + rest)
    return logsumexp(scores, axis=0) - np.log(len(scores))


@pytest.mark.parametrize("name", everyday(CASES, "columns"))
def test_log_joints_and_scores(name):
    X, units = rows_of(name), CASES[name][2]
    model = fitted(name)
    draws = draws_of(model, units)
    assert len({tuple(choice) for _, choice in draws}) > 2
    for (z, choice), found in zip(draws, model.log_joint_samples_.ravel(), strict=True):
        expected = log_prior_of(z) + apart(X, units, choice)
        for (law, columns, params), chosen in zip(units, choice, strict=True):
            expected += log_likelihood(X[:, columns], z, law, **params) if chosen else 0.0
        assert found == pytest.approx(expected, rel=1e-10)
    rows = rows_of(name)[::3]
    rows[:, 0] = 1 - rows[:, 0] % 2
    expected = reference_scores(model, X, rows, units)
    np.testing.assert_allclose(model.score_samples(rows), expected, rtol=1e-9)
    np.testing.assert_allclose(model.score(rows), expected.mean(), rtol=1e-9)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.score_samples(rows), model.score_samples(rows))


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(CASES, "columns"))
def test_leave_one_out(name):
    X, units = rows_of(name), CASES[name][2]
    model = fitted(name)
    found = model.pointwise_log_likelihood(X).reshape(-1, len(X))
    for (z, choice), row in zip(draws_of(model, units), found, strict=True):
        for i in (0, 5, 13):
            others = np.delete(X, i, axis=0)
            labels = np.unique(np.delete(z, i), return_inverse=True)[1]
            terms = log_weights(labels, "dp", PRIOR)
            for (law, columns, params), chosen in zip(units, choice, strict=True):
                if chosen:
                    x = X[i : i + 1, columns]
                    terms = terms + log_densities(others[:, columns], labels, x, law, params)[0]
            expected = logsumexp(terms) + apart(X, units, choice) - apart(others, units, choice)
            assert row[i] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_conditional_laws_agree_with_scores():
    """p(a, b) = p(b) p(a | b), with scores of kernels on one side and laws on the other."""
    X, units = rows_of("columns"), CASES["columns"][2]
    model = fitted("columns")
    rows = X[~np.isnan(X).any(axis=1)][:4]
    joint = model.score_samples(rows)
    for d in range(3):
        others = [e for e in range(3) if e != d]
        gap = rows.copy()
        gap[:, d] = NAN
        np.testing.assert_allclose(
            model.score_samples(gap) + model.score_samples(rows, given=others), joint, rtol=1e-10
        )
        np.testing.assert_allclose(
            model.score_samples(gap), reference_scores(model, X, gap, units), rtol=1e-9
        )
    ones, zeros = rows.copy(), rows.copy()
    ones[:, 0], zeros[:, 0] = 1.0, 0.0
    ones, zeros = model.score_samples(ones), model.score_samples(zeros)
    unknown = rows.copy()
    unknown[:, 0] = NAN
    np.testing.assert_allclose(
        model.predict_columns(unknown, [0])[0].probabilities[:, 1],
        np.exp(ones - np.logaddexp(ones, zeros)),
    )


def test_samples_follow_the_scores(seed_sequence):
    model = fitted("columns", n_draws=40)
    cells = np.array([[a, NAN, c] for a in (0.0, 1.0) for c in range(12)])
    law = np.exp(model.score_samples(cells))

    def run(seed, factor):
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        rows = model.sample(round(8_000 * factor))[0]
        inside = rows[:, 2] < 12
        seen = np.zeros(25, dtype=int)
        np.add.at(seen, np.where(inside, rows[:, 0] * 12 + rows[:, 2], 24).astype(int), 1)
        return Cells(seen, np.append(law, 1.0 - law.sum()))

    assert_p_matrix({"cells": run}, seed_sequence=seed_sequence)


def test_warm_start_equals_one_run():
    whole = fitted("columns", n_draws=17)
    parts = DPMixture(likelihood=selecting(CASES["columns"][0]), **FAST, warm_start=True)
    for n_draws in (1, 6, 17):
        parts.set_params(n_draws=n_draws).fit(rows_of("columns"))
    for name in whole.draws_:
        np.testing.assert_array_equal(parts.draws_[name], whole.draws_[name])
    X = rows_of("columns")
    np.testing.assert_array_equal(parts.score_samples(X), whole.score_samples(X))
    np.testing.assert_array_equal(parts.relevance_, whole.relevance_)


@pytest.mark.long
def test_relevance_is_the_share_of_draws():
    """A number per column of X, which the columns of a unit share; NaN in no part."""
    X = np.column_stack([rows_of("whole part"), np.zeros(14)])
    model = DPMixture(likelihood=selecting(CASES["whole part"][0]), **FAST).fit(X)
    draws = model.draws_["likelihood__selected"]
    assert draws is model.hyperparameter_samples_["selected"] and draws.shape == (2, 12, 5)
    np.testing.assert_allclose(model.relevance_[:4], draws.mean(axis=(0, 1))[:4])
    assert model.relevance_[1] == model.relevance_[2] and np.isnan(model.relevance_[4])
    assert set(model.cluster_params_) == {"cat", "num"}
    assert model.cluster_params_["cat"]["probabilities"].shape == (model.n_clusters_, 2, 3)
    named = DPMixture(likelihood=model.likelihood, **FAST)
    named.fit(pd.DataFrame(X, columns=list("abcde")))
    for name, columns in model.part_columns_.items():
        assert named.part_columns_[name].tolist() == [*np.array(list("abcde"))[columns]]
        width = next(iter(model.cluster_params_[name].values())).shape[1]
        assert len(columns) == width
    assert not hasattr(model.set_params(likelihood="gaussian").fit(X), "part_columns_")
    model.set_params(likelihood=named.likelihood)
    again = model.set_params(likelihood__select=False).fit(X)
    assert not hasattr(again, "relevance_") and "selected" not in again.hyperparameter_samples_


# Kernels.


def pair_of_kernels(name, choice):
    """Probes of a kernel that selects, and of one with the chosen units alone, with three clusters
    and an empty one."""
    X = rows_of(name)
    units = CASES[name][0]
    probes = []
    whole = selecting(units).resolve(X)
    chosen = [part for part, gamma in zip(whole.parts, choice, strict=True) if gamma]
    parts = [(part.replace(".", " "), unit, list(columns)) for part, unit, columns in chosen]
    alone = Product(parts).resolve(X)
    for likelihood in (whole, alone):
        model = likelihood.bind(data := likelihood.encode(X), likelihood.tables(data, len(X)))
        values = model.hyperparameters()
        if likelihood is whole:
            values[-3:] = choice
            model.set_hyperparameters(values)
        probe = Probe(model, 5)
        for slot in range(5):
            assert probe.acquire() == slot
        for i in range(12):
            probe.add(i % 3, i)
        probe.release(4)
        probes.append(probe)
    return probes


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("choice", [(1, 0, 1), (0, 0, 1), (1, 1, 1)])
def test_densities_of_clusters_are_those_of_selected_units(name, choice):
    one, other = pair_of_kernels(name, choice)
    slots = np.arange(4)
    # Terms of items that no cluster changes are those of all units.
    extra = constants_of(one) - constants_of(other)
    np.testing.assert_allclose(
        one.log_predictive_many(slots, 13) - extra[13],
        other.log_predictive_many(slots, 13),
        rtol=1e-12,
    )
    np.testing.assert_allclose(
        one.model.log_predictive_rows(slots, 12, 14) - extra[12:14],
        other.model.log_predictive_rows(slots, 12, 14),
        rtol=1e-12,
    )
    merged = one.log_merge_many(slots[:2], 2)
    np.testing.assert_allclose(merged, other.log_merge_many(slots[:2], 2), rtol=1e-12)
    values = 1.1 * one.model.hyperparameters()
    values[-3:] = choice
    for at_others in (False, True):
        if at_others:
            one.model.set_hyperparameters(values)
            other.model.set_hyperparameters(1.1 * other.model.hyperparameters())
        found, expected = (p.model.log_marginals(p.model.dump(slots)) for p in (one, other))
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_answers_about_a_unit_outside_are_those_of_all_rows():
    """They are those of every cluster, also with drawn parameters."""
    X = rows_of("columns")
    likelihood = selecting(CASES["columns"][0]).resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    prior = make_prior("dp", len(X), concentration=1.0)
    clusters = MixtureState(model, prior, np.arange(len(X)) % 2).dump()
    outside = likelihood.at({"selected": np.array([1.0, 0.0, 1.0])})
    for draws in ((), (3, np.random.default_rng(0))):
        values = outside.column_means(clusters, *draws).values[..., 1]
        np.testing.assert_array_equal(values[..., 0], values[..., 1])
    everything = likelihood.column_means(likelihood._all[None]).values[0, 1]
    assert outside.column_means(clusters).values[:, 1].tolist() == [everything] * 2
    for rng in (None, np.random.default_rng(0)):
        unknown = np.full((2, 3), NAN)
        law = outside.laws(clusters, rng).given(unknown, np.arange(2), [1])[0]
        assert law.mean()[0] == law.mean()[1]
        if rng is None:
            assert law.mean()[0] == everything


def constants_of(probe):
    constants = probe.model.log_constants
    return np.zeros(14) if constants is None else constants


def test_no_unit_selected():
    """Then clusters do not differ, and the prior alone moves rows."""
    X = rows_of("columns")
    likelihood = selecting(CASES["columns"][0]).resolve(X)
    model = likelihood.bind(data := likelihood.encode(X), likelihood.tables(data, len(X)))
    values = model.hyperparameters()
    values[-3:] = 0.0
    model.set_hyperparameters(values)
    probe = Probe(model, 4)
    for slot in range(3):
        probe.acquire()
        probe.add(slot, slot)
    slots = np.arange(3)
    assert (probe.log_predictive_many(slots, 5) == model.log_constants[5]).all()
    assert not probe.log_merge_many(slots[:2], 2).any()
    np.testing.assert_allclose(
        model.log_density_apart() + (model.log_constants.sum()),
        apart(X, CASES["columns"][2], [0, 0, 0]),
    )
    rows = model.log_predictive_rows(slots, 4, 6)
    np.testing.assert_array_equal(rows, np.tile(model.log_constants[4:6], (3, 1)))


def test_bounds_of_selected_units():
    """Bounds of boxes hold, also with the terms of items from units outside."""
    rng = np.random.default_rng(0)
    words = rng.multinomial(9, [0.3, 0.3, 0.4], 40)
    X = np.column_stack([rng.normal(size=(40, 2)), rng.poisson(4.0, 40), words])
    parts = [
        ("x", Gaussian(**NORMAL, covariance_type="diag"), [0, 1]),
        ("n", Poisson(**RATES), [2]),
        ("words", Multinomial(concentration=0.7), [3, 4, 5]),
    ]
    likelihood = selecting(parts).resolve(X)
    data = likelihood.encode(X)
    points = likelihood.box_points(data)
    boxes = np.stack([points, np.full_like(points, 0.1)], axis=1)
    for choice in np.ndindex(2, 2, 2, 2):
        if not any(choice[:3]):
            continue
        model = likelihood.bind(data, likelihood.tables(data, len(X)))
        values = model.hyperparameters()
        values[-4:] = choice
        model.set_hyperparameters(values)
        probe = Probe(model, 4)
        for _ in range(3):
            probe.acquire()
        for i in range(20):
            probe.add(i % 2, i)
        bounds = log_predictive_bounds(model, np.arange(3), boxes)
        floors = log_predictive_floors(model, np.arange(2), boxes[:20])
        at = np.array([probe.log_predictive_many(np.arange(3), i) for i in range(20, 40)])
        assert (at <= bounds[20:]).all() and np.isfinite(bounds).all()
        for i in range(20):
            probe.remove(i % 2, i)
            assert floors[i, i % 2] <= probe.log_predictive(i % 2, i)
            probe.add(i % 2, i)


# What is found.


def twenty(kind, seed):
    """300 rows of which columns 0, 1 and 2 of twenty have clusters."""
    rng = np.random.default_rng(seed)
    z = rng.permutation(np.repeat([0, 1, 2], 100))
    if kind == "gaussian":
        X = rng.standard_normal((300, 20))
        X[:, :3] += np.array([[0, 0, 0], [4, 0, 3], [0, 4, -3]])[z]
        return X, z, Gaussian(covariance_type="diag")
    if kind == "poisson":
        rates = np.tile(rng.uniform(1, 8, 20), (3, 1))
        rates[:, :3] = [[2, 8, 5], [8, 2, 2], [8, 8, 12]]
        return rng.poisson(rates[z]).astype(float), z, Poisson()
    if kind == "bernoulli":
        z = z % 2
        p = np.tile(rng.uniform(0.2, 0.8, 20), (2, 1))
        p[:, :3] = [[0.95, 0.05, 0.95], [0.05, 0.95, 0.05]]
        return (rng.random((300, 20)) < p[z]).astype(float), z, Bernoulli()
    X = rng.integers(4, size=(300, 20)).astype(float)
    for d in range(3):
        X[:, d] = np.where(rng.random(300) < 0.9, (z + d) % 3, X[:, d])
    return X, z, Categorical()


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", everyday(["gaussian", "poisson", "bernoulli", "categorical"], "bernoulli")
)
def test_three_columns_of_twenty(kind):
    X, z, likelihood = twenty(kind, 1)
    model = DPMixture(likelihood=selecting([("x", likelihood, slice(None))]), random_state=0)
    model.fit(X)
    assert model.relevance_[:3].min() > 0.9 and model.relevance_[3:].max() < 0.5
    assert adjusted_rand_score(z, model.labels_) > 0.85


@pytest.mark.slow
def test_a_column_outside_is_the_same_in_all_clusters():
    X, _, likelihood = twenty("gaussian", 0)
    model = DPMixture(
        likelihood=selecting([("x", likelihood, slice(None))]), random_state=0, n_draws=40
    ).fit(X)
    table = model.describe().reset_index()
    always = model.relevance_ == 0.0
    assert always.sum() > 5
    outside = table[table.column.isin(np.flatnonzero(always))]
    assert len(outside) == always.sum() * model.n_clusters_
    assert (outside[["difference_low", "difference_high", "certainty"]] == 0.0).all(axis=None)
    means = model.cluster_params_["x"]["means"]
    assert np.ptp(means[:, always], axis=0).max() == 0.0 < np.ptp(means[:, :3], axis=0).min()
    X[0, always] = NAN
    X[1, :3] = 100.0
    for law in model.predict_columns(X[:2], np.flatnonzero(always)).values():
        np.testing.assert_allclose(law.mean[0], law.mean[1], atol=0.01)
    # Nor does it matter to labels.
    other = X.copy()
    other[:, always] = 7.0
    np.testing.assert_array_equal(model.predict(other[2:]), model.predict(X[2:]))


@pytest.mark.slow
def test_tables_with_names():
    X, z, _ = twenty("categorical", 1)
    table = pd.DataFrame(X[:, :8].astype(int).astype(str), columns=list("abcdefgh"))
    table["h"] = table["h"].replace("3", "0")  # fewer categories
    table["size"] = np.random.default_rng(0).standard_normal(len(X)) + 6.0 * z
    likelihood = selecting(
        [("kind", Categorical(), list("abcdefgh")), ("num", Gaussian(), ["size"])]
    )
    model = DPMixture(likelihood=likelihood, random_state=0).fit(table)
    assert model.relevance_[[0, 1, 2, 8]].min() > 0.9 and model.relevance_[3:8].max() < 0.5
    assert adjusted_rand_score(z, model.predict(table)) > 0.95
    assert list(map(len, model.likelihood_.kind__categories_)) == [4] * 7 + [3]
    assert model.cluster_params_["kind"]["probabilities"].shape[1:] == (8, 4)
    with pytest.raises(ValueError, match=r"\(part 'num'\)"):
        model.predict(table.assign(size=np.inf))


@pytest.mark.filterwarnings("ignore:.*no entries")
@pytest.mark.long
def test_constant_and_empty_columns():
    X, _, _ = twenty("gaussian", 0)
    X[:, 5], X[:, 6] = 3.0, NAN
    likelihood = selecting([("x", Gaussian(covariance_type="diag"), slice(8))])
    model = DPMixture(likelihood=likelihood, **FAST).fit(X[:60])
    assert np.isfinite(model.score_samples(X[60:70])).all()
    assert np.isfinite(model.relevance_[:8]).all()


# What is refused.


@pytest.mark.parametrize(
    "estimator",
    [
        DPMixture(sampler=SMC()),
        DPMixture(sampler=SubCluster()),
        FiniteMixture(2, sampler=BlockedGibbs()),
    ],
)
def test_samplers_that_cannot_select(estimator):
    estimator = clone(estimator).set_params(likelihood=selecting(CASES["columns"][0]))
    with pytest.raises(ValueError, match="cannot select columns"):
        estimator.fit(rows_of("columns"))


@pytest.mark.slow
def test_a_second_fit_with_fixed_hyperparameters():
    """`likelihood_` and its clones select again."""
    X = rows_of("columns")
    first = fitted("columns")
    for likelihood in (first.likelihood_, clone(first.likelihood_)):
        again = DPMixture(likelihood=likelihood, **FAST).fit(X)
        np.testing.assert_array_equal(again.log_joint_samples_, first.log_joint_samples_)
        np.testing.assert_array_equal(again.relevance_, first.relevance_)
        assert list(again.hyperparameter_samples_) == ["selected"]


def test_gaps_that_chains_draw():
    """Whole parts whose gaps are drawn are refused: their row of all items would change."""
    X = rows_of("whole part")
    X[3, 1] = NAN
    model = DPMixture(likelihood=selecting(CASES["whole part"][0]), **FAST)
    with pytest.raises(ValueError, match=r"part 'num' has missing entries"):
        model.fit(X)
    X = rows_of("whole part")
    X[3, 0] = NAN
    model.fit(X)
    X[:, 1] = NAN
    assert np.isfinite(model.score_samples(X)).all()


def test_bad_parameters():
    X = rows_of("columns")
    with pytest.raises(ValueError, match=r"Product\.select must be a bool"):
        DPMixture(likelihood=Product(CASES["columns"][0], select="yes"), **FAST).fit(X)
    wrong = Categorical(concentration=[1.0, 2.0])
    with pytest.raises(ValueError, match="3 columns"):
        DPMixture(likelihood=selecting([("x", wrong, slice(3))]), **FAST).fit(np.zeros((5, 3)))
    model = DPMixture(likelihood=selecting(CASES["columns"][0]), sampler=SMC(), **FAST)
    with pytest.raises(ValueError, match="select"):
        model.partial_fit(X)
