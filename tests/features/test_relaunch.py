"""Moves that replace features of Z by others, launched from anchor rows."""

from functools import partial

import numpy as np
import pytest
from reference.features import (
    classes_of_buffet,
    left_ordered,
    log_beta_bernoulli,
    log_linear_gaussian_marginal,
    matrix_posterior,
)
from scipy.special import logsumexp
from scipy.stats import norm
from support.designs import everyday
from support.exactness import record_worst
from support.features import (
    COMPONENT,
    CONCENTRATION,
    NOISE,
    RELAUNCHES,
    load,
    make_model,
    make_move,
    make_prior,
)
from support.probes import RelaunchProbe
from support.pvalues import Cells, assert_p, assert_p_matrix, chi_squared_p

from skdpm.features.state._state import FeatureState

INTERCEPT = np.array([0.3, -0.2]), 0.9
X3 = np.array([[1.0, -0.6], [1.2, 0.5], [0.3, 1.0]])
N_BINS, N_MOVES = 3, 8
MOVES = {**RELAUNCHES, "codes of two": [2], "codes of three": [3]}
# Recodings of few rows matter if the rows are far apart.
SCALES = {"codes of two": 2.0, "codes of three": 2.0}


def rows(missing, scale=1.0):
    X = scale * X3
    if missing:
        X[1, 0] = np.nan
    return X


def bin_of_components(X, Z, V, intercept):
    """Where the sum of V's last column lies in its law given Z, in N_BINS parts. Without features,
    anywhere: 0, and `bins` knows."""
    n = Z.shape[1]
    x = X[:, -1]
    design, precisions = Z.astype(float), np.full(n, COMPONENT)
    if intercept is not None:
        design = np.column_stack([design, np.ones(len(Z))])
        precisions = np.append(precisions, intercept[1])
        x = x - intercept[0][-1]
    covariance = np.linalg.inv(np.diag(precisions) + NOISE * design.T @ design)
    mean = NOISE * covariance @ design.T @ x
    u = norm.cdf(V[:, -1].sum(), mean[:n].sum(), np.sqrt(covariance[:n, :n].sum()))
    return min(int(N_BINS * u), N_BINS - 1)


def finite_run(
    moves,
    n_latent,
    *,
    concentration=CONCENTRATION,
    missing=False,
    intercept=None,
    n_starts=3_000,
    scale=1.0,
    wrong=None,
):
    """A run for `assert_p`: Z starts from its law given X under the finite prior, the components
    from theirs given Z, and both keep them through some moves and nothing else. `wrong` plants
    another concentration in the chain."""
    X = rows(missing, scale)

    def log_weight(Z):
        return log_beta_bernoulli(Z, concentration) + log_linear_gaussian_marginal(
            X, Z, NOISE, COMPONENT, intercept
        )

    law = matrix_posterior(3, n_latent, log_weight)
    model = make_model(X, intercept=intercept)
    prior = make_prior(3, n_latent, wrong or concentration)
    joint = np.outer(law.probabilities, np.full(N_BINS, 1 / N_BINS))
    kernel = RelaunchProbe(1)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        starts = law.draw(round(n_starts * factor), rng)
        ends, bins = np.empty_like(starts), np.empty(len(starts), dtype=int)
        for s, Z in enumerate(starts):
            load(model, np.zeros((n_latent, 2)))
            state = FeatureState(model, prior, Z)
            state.update_params(bit_generator)
            for _ in range(N_MOVES):
                make_move(kernel, state, moves[rng.integers(len(moves))], bit_generator)
            ends[s] = state.allocations()
            bins[s] = bin_of_components(X, ends[s], model.save()["components"], intercept)
        assert (ends != starts).any()
        counts = np.stack([law.count(ends[bins == b]) for b in range(N_BINS)], axis=1)
        return Cells(counts, joint)

    return run


def buffet_law(X, most, concentration, intercept):
    """Classes of matrices with at most `most` features, and their probabilities given X."""
    classes, probabilities = classes_of_buffet(3, most, concentration)
    log_w = np.log(probabilities)
    for j, columns in enumerate(classes):
        log_w[j] += log_linear_gaussian_marginal(
            X, matrix_of(columns), NOISE, COMPONENT, intercept
        )
    return classes, np.exp(log_w - logsumexp(log_w))


def matrix_of(columns):
    """The matrix whose columns these are as binary numbers."""
    Z = (np.array(columns, dtype=np.int64)[None, :] >> np.arange(2, -1, -1)[:, None]) & 1
    return Z.reshape(3, len(columns)).astype(np.uint8)


def buffet_run(moves, *, missing=False, intercept=None, n_starts=3_000, scale=1.0, wrong=None):
    """The same under the Indian buffet process, of classes of Z. There are more than six features
    with a probability below 1e-5."""
    X, most, concentration = rows(missing, scale), 6, 0.5
    classes, probabilities = buffet_law(X, most, concentration, intercept)
    index = {c: j for j, c in enumerate(classes)}
    joint = np.outer(probabilities, np.full(N_BINS, 1 / N_BINS))
    joint[0] = probabilities[0], *np.zeros(N_BINS - 1)  # no features
    model = make_model(X, intercept=intercept)
    prior = make_prior(3, None, wrong or concentration)
    kernel = RelaunchProbe(1)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        counts = np.zeros(joint.shape, dtype=np.int64)
        n_changed = 0
        for j in rng.choice(len(classes), size=round(n_starts * factor), p=probabilities):
            Z = matrix_of(classes[j])
            load(model, np.zeros((Z.shape[1], 2)))
            state = FeatureState(model, prior, Z)
            state.update_params(bit_generator)
            for _ in range(N_MOVES):
                make_move(kernel, state, moves[rng.integers(len(moves))], bit_generator)
            Z = state.allocations()
            assert Z.any(axis=0).all()
            if Z.shape[1] > most:
                continue
            b = 0
            if Z.shape[1] > 0:
                b = bin_of_components(X, Z, model.save()["components"], intercept)
            counts[index[left_ordered(Z)], b] += 1
            n_changed += left_ordered(Z) != classes[j]
        assert n_changed > 0
        return Cells(counts, joint)

    return run


def check(runs, seed_sequence, record_property):
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
@pytest.mark.parametrize("name", everyday(MOVES, "split and merge", "codes of two"))
def test_finite_prior(name, seed_sequence, record_property):
    j, moves = list(MOVES).index(name), MOVES[name]
    runs = {
        f"{name} {n_latent} missing={missing} intercept={intercept is not None}": finite_run(
            moves,
            n_latent,
            missing=missing,
            intercept=intercept,
            # Of three features that are used, two can be chosen.
            concentration=6.0 if n_latent == 3 else CONCENTRATION,
            scale=SCALES.get(name, 1.0),
            n_starts=6_000 if name == "split and merge" else 3_000,
        )
        for n_latent in (2, 3)
        if np.max(moves) <= n_latent
        for missing, intercept in (((False, True)[j % 2], (None, INTERCEPT)[n_latent % 2]),)
    }
    check(runs, seed_sequence, record_property)


def choice_run(adapting):
    """A run for `assert_p`: which two of three features, in order, a move replaces. After warm-up
    they are equally probable. The first two columns go together; the third is a bit of both."""
    Z = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 1], [0, 0, 0]])
    model = make_model(np.zeros((4, 2)))
    load(model, np.zeros((3, 2)))
    state, kernel = FeatureState(model, make_prior(4, 3), Z), RelaunchProbe(1)

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        counts = np.zeros(9, dtype=np.int64)
        for _ in range(round(3_000 * factor)):
            counts[[3, 1] @ kernel.draw_choice(state, 2, bit_generator, adapting)] += 1
        return Cells(counts, (1 - np.eye(3).ravel()) / 6)

    return run


def test_choice_of_features(seed_sequence):
    assert_p(choice_run(False), seed_sequence=seed_sequence)


def test_choice_goes_together_in_warm_up(seed_sequence):
    cells = choice_run(True)(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6
    together = cells.counts[[1, 3]].sum()  # weight 1/4 + 1, against 1/4 of the third
    assert together > 0.45 * cells.counts.sum()


@pytest.mark.parametrize("name", everyday(MOVES, "split and merge"))
@pytest.mark.long
def test_indian_buffet(name, seed_sequence):
    j, moves = list(MOVES).index(name), MOVES[name]
    missing, intercept = j % 2 == 0, (None, INTERCEPT)[j % 2]
    run = buffet_run(moves, missing=missing, intercept=intercept, scale=SCALES.get(name, 1.0))
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_run",
    [
        partial(finite_run, MOVES["birth and death"], 2, wrong=2.6),
        partial(finite_run, MOVES["split and merge"], 3, concentration=6.0, wrong=12.0),
        partial(buffet_run, MOVES["birth and death"], wrong=1.5),
        partial(buffet_run, MOVES["split and merge"], wrong=1.5),
        partial(finite_run, MOVES["codes of two"], 3, concentration=6.0, wrong=24.0),
    ],
)
def test_power(make_run, seed_sequence):
    cells = make_run()(seed_sequence.spawn(1)[0], 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# Columns that explain the rows with too many features.


def part_rows(n_samples=60, n_parts=3):
    """Rows of parts, and Z."""
    rng = np.random.default_rng(0)
    Z = (rng.random((n_samples, n_parts)) < 0.4).astype(np.uint8)
    V = 2 * rng.normal(size=(n_parts, 8))
    return Z @ V + rng.normal(size=(n_samples, 8)) / np.sqrt(NOISE), Z


def poor_columns(Z):
    """Allocations that explain rows of Z, but not with as few features."""
    a, b, c = Z.astype(bool).T
    half = np.arange(len(Z)) % 2 == 0
    either, both = a | b, a & b
    return {
        "two halves": (a & half, a & ~half, b, c),
        "alone and together": (a & ~b, b & ~a, a & b, c),
        # With components a, a again, and b - a.
        "copies": ((either & half) | both, (either & ~half) | both, b, c),
        # With components (a + b - c) / 2, ..., (a + b + c) / 2.
        "majorities": (
            (a & ~c) | (b & ~c) | (a & b),
            (b & ~a) | (c & ~a) | (b & c),
            (a & ~b) | (c & ~b) | (a & c),
            (a & b) | (b & c) | (a & c),
        ),
        "a further one": (a, b, c, half),
    }


@pytest.mark.parametrize("name", poor_columns(np.zeros((1, 3))))
@pytest.mark.some(2)
def test_warm_up_mends_poor_columns(name):
    """Without any sweep over the rows."""
    X, Z = part_rows()
    poor = np.column_stack(poor_columns(Z)[name]).astype(np.uint8)
    model, prior = make_model(X), make_prior(len(X), None)
    load(model, np.zeros((poor.shape[1], 8)))
    state, bit_generator = FeatureState(model, prior, poor), np.random.PCG64(0)
    state.update_params(bit_generator)
    kernel = RelaunchProbe(1)
    for _ in range(150):
        kernel.run(state, bit_generator, True)
    found = state.allocations()
    assert found.shape[1] <= 4
    for column in Z.T:
        assert (found == column[:, None]).mean(axis=0).max() > 0.95


def test_exact_moves_merge_two_halves():
    X, Z = part_rows(n_parts=1)
    half = np.arange(len(Z)) % 2 == 0
    model, prior = make_model(X), make_prior(len(X), None)
    load(model, np.zeros((2, 8)))
    state = FeatureState(model, prior, np.column_stack([Z[:, 0] & half, Z[:, 0] & ~half]))
    bit_generator, kernel = np.random.PCG64(0), RelaunchProbe(1)
    for _ in range(500):
        kernel.run(state, bit_generator)
    found = state.allocations()
    assert (found == Z).mean(axis=0).max() > 0.95
    counts = kernel.acceptance()
    assert set(counts) == {(0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)}
    assert 100 < sum(proposed for proposed, _ in counts.values()) <= 500  # some lack features
    assert all(0 <= accepted <= proposed for proposed, accepted in counts.values())
    assert counts[2, 1][1] > 0


def test_recodings_find_the_groups():
    """Three small groups of rows, each with two of three features, are better told apart by one
    feature each."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.eye(4, 3, dtype=np.uint8), [10, 12, 14, 64], axis=0)
    V = 2 * rng.normal(size=(3, 8))
    X = groups @ V + rng.normal(size=(100, 8)) / np.sqrt(NOISE)
    model, prior = make_model(X), make_prior(100, None)
    load(model, np.zeros((3, 8)))
    poor = (groups @ (1 - np.eye(3))).astype(np.uint8)
    state, bit_generator = FeatureState(model, prior, poor), np.random.PCG64(0)
    state.update_params(bit_generator)
    kernel = RelaunchProbe(1)
    for _ in range(40):
        kernel.recode(state, 3, bit_generator)
    found = state.allocations()
    assert sorted(map(tuple, found.T)) == sorted(map(tuple, groups.T))


@pytest.mark.parametrize("sizes", [-1, 0, 4, (-1, 0), (4, 5), (5, 5)])
def test_no_such_move(sizes):
    X, Z = part_rows(5)
    model = make_model(X)
    load(model, np.zeros((3, 8)))
    state = FeatureState(model, make_prior(5, 3), Z)
    if isinstance(sizes, int):
        message = f"no recoding of {sizes} features"
    else:
        message = f"no move from {sizes[0]} features to {sizes[1]}"
    with pytest.raises(ValueError, match=message):
        make_move(RelaunchProbe(1), state, sizes, np.random.PCG64(0))


def test_all_columns_of_the_finite_prior_stay():
    """However many moves: features without rows have parameters, too."""
    X, Z = part_rows(20)
    model, prior = make_model(X), make_prior(20, 5)
    load(model, np.arange(40.0).reshape(5, 8))
    state = FeatureState(model, prior, np.pad(Z, ((0, 0), (0, 2))))
    bit_generator, kernel = np.random.PCG64(0), RelaunchProbe(20)
    for adapting in (True, False):
        for _ in range(20):
            kernel.run(state, bit_generator, adapting)
            V = model.save()["components"]
            assert V.shape == (5, 8)
            assert np.unique(V[:, 0]).size == 5
    assert state.allocations().shape == (20, 5)


def test_kernels_keep_nothing_of_a_state():
    """A chain that is continued has a new one."""
    X, Z = part_rows(30)
    model, prior = make_model(X), make_prior(30, None)
    V = np.random.default_rng(1).normal(size=(3, 8))
    used, ends = RelaunchProbe(1), []
    load(model, 2 * V, 7 * NOISE, 5 * COMPONENT)
    used.run(FeatureState(model, prior, Z), np.random.PCG64(1))
    for kernel in (used, RelaunchProbe(1)):
        load(model, V)
        state, bit_generator = FeatureState(model, prior, Z), np.random.PCG64(0)
        for _ in range(50):
            kernel.run(state, bit_generator)
        V_end = model.save()["components"]
        ends.append((state.allocations().tolist(), V_end.tolist(), bit_generator.state))
    assert ends[0] == ends[1]
