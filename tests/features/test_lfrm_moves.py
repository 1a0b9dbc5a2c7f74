"""Moves that replace or recode features of the latent feature relational model."""

import numpy as np
import pytest
from reference.features import (
    classes_of_buffet,
    log_beta_bernoulli,
    log_lfrm,
    matrix_posterior,
    observed_links,
)
from scipy.optimize import minimize
from scipy.special import expit
from scipy.stats import chi2, multivariate_normal, norm
from support.exactness import record_worst
from support.features import RELAUNCHES, make_move, make_prior
from support.probes import RelaunchProbe, weigh_part
from support.pvalues import assert_p, assert_p_matrix, chi_squared_p

from skdpm.features.likelihoods import LFRM
from skdpm.features.state._state import FeatureState

N, N_BINS = 4, 3
CONCENTRATION, PRECISION, BIAS_PRECISION = 0.8, 0.4, 1.5
MOVES = {
    **RELAUNCHES,
    "complement": [1],
    "recoding": [2],
    "union": [(1, 2, "union"), (2, 1, "union")],
}


def reference_weight(X, Z, W, bias, features, directed, refits):
    """log p(X, theta | Z) - log q(theta) at W and the bias, by the definition: theta are the bias
    and the weights of `features`, or all weights; q is Gaussian at the mode."""
    pairs = [(i, j) for i, j in observed_links(X) if directed or i < j]
    places = [
        (k, l)
        for k in range(len(W))
        for l in range(0 if directed else k, len(W))
        if refits or k in features or l in features
    ]
    design = np.ones((len(pairs), 1 + len(places)))
    for row, (i, j) in zip(design, pairs, strict=True):
        for p, (k, l) in enumerate(places):
            row[1 + p] = Z[i, k] * Z[j, l]
            if not directed and k != l:
                row[1 + p] += Z[i, l] * Z[j, k]
    theta = np.array([bias, *(W[place] for place in places)])
    links = np.array([X[pair] for pair in pairs])
    fixed = np.array([bias + Z[i].astype(float) @ W @ Z[j] for i, j in pairs]) - design @ theta
    precisions = np.array([BIAS_PRECISION, *[PRECISION] * len(places)])

    def derivatives(v):
        p = expit(fixed + design @ v)
        return (
            -(design.T @ (links - p) - precisions * v),
            design.T @ ((p * (1 - p))[:, None] * design) + np.diag(precisions),
        )

    def minus_log_joint(v):
        y = (2 * links - 1) * (fixed + design @ v)
        return np.logaddexp(0, -y).sum() + 0.5 * precisions @ v**2

    mode = minimize(
        minus_log_joint,
        np.zeros(len(theta)),
        jac=lambda v: derivatives(v)[0],
        hess=lambda v: derivatives(v)[1],
        method="trust-exact",
        options={"gtol": 1e-7},
    ).x
    hessian = derivatives(mode)[1]
    log_prior = norm.logpdf(theta, 0, precisions**-0.5).sum()
    log_q = multivariate_normal.logpdf(theta, mode, np.linalg.inv(hessian))
    return log_lfrm(X, Z, W, bias, directed) + log_prior - log_q


@pytest.mark.parametrize("n_latent", [4, 15])
@pytest.mark.parametrize("directed", [False, True])
def test_weights_of_proposals(directed, n_latent):
    """Of features 1 and 3 as they are, of new columns, and of unused ones. With 15 features the
    weights of the others are given."""
    rng = np.random.default_rng(n_latent)
    X = (rng.random((8, 8)) < 0.4).astype(float)
    X[rng.random((8, 8)) < 0.1] = np.nan
    Z = (rng.random((8, n_latent)) < 0.4).astype(np.uint8)
    W = rng.normal(size=(n_latent, n_latent))
    X, W = (X, W) if directed else (symmetric(X), symmetric(W))
    features, refits = np.array([1, 3]), n_latent == 4
    lfrm = LFRM(directed, bias_precision=BIAS_PRECISION, weight_precision=PRECISION).resolve(X)
    model, prior = lfrm.bind(lfrm.encode(X)), make_prior(8, n_latent)
    model.load({"weights": W, "bias": 0.4, "weight_precision": PRECISION})
    state = FeatureState(model, prior, Z)
    present = weigh_part(state, features, np.ascontiguousarray(Z[:, features]))
    expected = reference_weight(X, Z, W, 0.4, features, directed, refits)
    assert present == pytest.approx(expected, abs=2e-3)
    for columns in (rng.random((8, 2)) < 0.5, np.ones((8, 2)), np.eye(8)[:, :2] * 0):
        new = weigh_part(state, features, columns.astype(np.uint8), np.random.PCG64(1))
        Z_new, saved = state.allocations(), model.save()
        np.testing.assert_array_equal(Z_new[:, features], columns)
        rest = np.setdiff1d(np.arange(n_latent), features)
        kept = saved["weights"][np.ix_(rest, rest)] == W[np.ix_(rest, rest)]
        assert kept.all() if not refits else not kept.any()
        expected = reference_weight(
            X, Z_new, saved["weights"], saved["bias"], features, directed, refits
        )
        assert new == pytest.approx(expected, abs=2e-3)
        W = saved["weights"]
        assert directed or (W == W.T).all()


def symmetric(A):
    return np.triu(A) + np.triu(A, 1).T


def sums_of(Z):
    """Column sums of used features, in order."""
    sums = Z.sum(axis=0)
    return tuple(sorted(sums[sums > 0].tolist()))


def law_of_sums(n_latent, concentration, most=4):
    """Law of `sums_of(Z)` a priori; of at most `most` features under the buffet."""
    law = {}
    if n_latent is None:
        pairs = [
            (tuple(sorted(c.bit_count() for c in columns)), p)
            for columns, p in zip(*classes_of_buffet(N, most, concentration), strict=True)
        ]
    else:
        posterior = matrix_posterior(N, n_latent, lambda Z: log_beta_bernoulli(Z, concentration))
        pairs = [
            (sums_of(Z), p)
            for Z, p in zip(posterior.matrices, posterior.probabilities, strict=True)
        ]
    for sums, p in pairs:
        law[sums] = law.get(sums, 0.0) + p
    return law


def joint_run(
    moves, *, directed=False, n_latent=None, n_starts=1_000, n_moves=4, bias=None, wrong=None
):
    """A run for `assert_p`: Z, the weights and the bias from their prior, X given them, then some
    moves and nothing else. They still have their prior's law: the sums of Z's columns, together
    with the distance of the weights from zero; the sum of the weights; and the bias. `wrong`
    plants other priors in the chain."""
    wrong = {"concentration": CONCENTRATION, "weight_precision": PRECISION} | (wrong or {})
    law = law_of_sums(n_latent, CONCENTRATION)
    index = {sums: j for j, sums in enumerate(law)}
    probabilities = np.array([*law.values(), max(0.0, 1 - sum(law.values()))])
    prior = make_prior(N, n_latent, CONCENTRATION)
    of_chain = make_prior(N, n_latent, wrong["concentration"])
    likelihood = {
        "directed": directed,
        "bias": bias,
        "bias_precision": BIAS_PRECISION,
        "weight_precision": wrong["weight_precision"],
    }

    def run(seed, factor):
        bit_generator = np.random.PCG64(seed)
        rng = np.random.Generator(bit_generator)
        kernel = RelaunchProbe(1)
        cells = np.zeros((len(probabilities), N_BINS), dtype=int)
        u = np.empty((round(n_starts * factor), 2))
        n_changed = 0
        for s in range(len(u)):
            Z = prior.draw(rng)
            W = rng.normal(size=(Z.shape[1],) * 2) / np.sqrt(PRECISION)
            W = W if directed else symmetric(W)
            b = rng.normal() / np.sqrt(BIAS_PRECISION) if bias is None else bias
            X = (rng.random((N, N)) < expit(b + Z @ W @ Z.T)).astype(float)
            X[0, 2] = np.nan
            X = X if directed else symmetric(X)
            lfrm = LFRM(**likelihood).resolve(X)
            model = lfrm.bind(lfrm.encode(X))
            model.load({"weights": W, "bias": b, "weight_precision": wrong["weight_precision"]})
            state = FeatureState(model, of_chain, Z)
            for _ in range(n_moves):
                make_move(kernel, state, moves[rng.integers(len(moves))], bit_generator)
            Z_end, saved = state.allocations(), model.save()
            W = saved["weights"]
            n_changed += Z_end.shape != Z.shape or (Z_end != Z).any()
            assert directed or (W == W.T).all()
            free = np.sqrt(PRECISION) * (W.ravel() if directed else W[np.triu_indices(len(W))])
            distance, u[s, 0] = rng.random(2)
            if free.size:
                distance = chi2.cdf(free @ free, free.size)
                u[s, 0] = norm.cdf(free.sum() / np.sqrt(free.size))
            u[s, 1] = norm.cdf(saved["bias"] * np.sqrt(BIAS_PRECISION))
            place = index.get(sums_of(Z_end), len(law))
            cells[place, min(int(N_BINS * distance), N_BINS - 1)] += 1
        assert n_changed > 0
        p_values = [chi_squared_p(cells, np.outer(probabilities, np.full(N_BINS, 1 / N_BINS)))]
        for v in u.T[: 1 if bias is not None else 2]:
            counts = np.bincount(np.minimum(8 * v, 7).astype(int), minlength=8)
            p_values.append(chi_squared_p(counts, np.full(8, 1 / 8)))
        return min(1.0, len(p_values) * min(p_values))

    return run


def runs_of_all(settings, n_starts):
    """A run of every move in settings (directed, n_latent, bias), chosen by its number."""
    return {
        f"{name} directed={directed} n_latent={n_latent} bias={bias}": joint_run(
            moves, directed=directed, n_latent=n_latent, bias=bias, n_starts=n_starts
        )
        for j, (name, moves) in enumerate(MOVES.items())
        for directed, n_latent, bias in settings(j)
    }


@pytest.mark.slow
def test_joint_distribution(seed_sequence, record_property):
    runs = runs_of_all(lambda j: [(j % 3 == 0, (None, 3)[j % 2], (None, 0.3)[j % 4 // 2])], 1_000)
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
def test_joint_distribution_of_unions(seed_sequence):
    """Errors of their ratio show slowly, so this takes more starts and moves."""
    assert_p(joint_run(MOVES["union"], n_starts=8_000, n_moves=30), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize("bias", [None, 0.3])
def test_joint_distribution_of_unions_in_other_settings(bias, seed_sequence):
    run = joint_run(
        MOVES["union"], directed=True, n_latent=3, bias=bias, n_starts=8_000, n_moves=30
    )
    assert_p(run, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_joint_distribution_in_other_settings(seed_sequence, record_property):
    runs = runs_of_all(
        lambda j: [(j % 3 != 0, (None, 3)[j % 2], None), (j % 2 == 0, (3, None)[j % 2], 0.3)],
        2_500,
    )
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, wrong",
    [
        ("birth and death", {"concentration": 2.5}),
        ("split and merge", {"concentration": 2.5}),
        ("union", {"concentration": 2.5}),
        ("union", {"weight_precision": 1.6}),
        ("birth and death", {"weight_precision": 1.6}),
        ("complement", {"weight_precision": 1.6}),
        ("recoding", {"weight_precision": 1.6}),
    ],
)
def test_power(name, wrong, seed_sequence):
    run = joint_run(MOVES[name], wrong=wrong, n_starts=1_500)
    assert run(seed_sequence.spawn(1)[0], 1) < 1e-6


# What the moves are for.


def network(n, seed):
    """Links of four features, the largest of which most nodes have."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n, 4)) < [0.9, 0.4, 0.2, 0.1]
    W = symmetric(2.0 * rng.normal(size=(4, 4)))
    return symmetric((rng.random((n, n)) < expit(Z @ W @ Z.T)).astype(float)), Z, W


def settled(X, Z):
    """A state with features Z."""
    lfrm = LFRM().resolve(X)
    model, bit_generator = lfrm.bind(lfrm.encode(X)), np.random.PCG64(0)
    model.start(Z.shape[1], bit_generator)
    state = FeatureState(model, make_prior(len(X), None), Z)
    for _ in range(20):
        state.update_params(bit_generator)
    return state, bit_generator


def test_recodings_find_a_complement():
    """Of the second feature within the first, by exact moves without sweeps over the rows."""
    X, Z, _ = network(60, 4)
    a, b = Z[:, 0], Z[:, 1]
    state, bit_generator = settled(X, np.column_stack([a, a & ~b, Z[:, 2:]]))
    kernel, agreement = RelaunchProbe(1), []
    for _ in range(200):
        kernel.recode(state, 2, bit_generator)
        state.update_params(bit_generator)
        agreement.append((state.allocations() == b[:, None]).mean(axis=0).max())
    assert max(agreement) > 0.95


def test_moves_merge_two_halves():
    X, Z, _ = network(60, 4)
    even = np.arange(60) % 2 == 0
    halves = np.column_stack([Z[:, 0] & even, Z[:, 0] & ~even, Z[:, 1:]])
    state, bit_generator = settled(X, halves)
    kernel, n_large, agreement = RelaunchProbe(1), [], []
    for _ in range(100):
        kernel.run(state, bit_generator, True)
        state.update_params(bit_generator)
        found = state.allocations()
        n_large.append((found.sum(axis=0) >= 15).sum())  # first three: two halves and another
        agreement.append((found == Z[:, :1]).mean(axis=0).max())
    assert np.median(n_large[50:]) == 2
    assert np.median(agreement[50:]) > 0.9


def test_warm_up_unites_the_parts_of_a_feature():
    """Three parts of the first feature: by functions of two features alone."""
    X, Z, _ = network(60, 4)
    part = np.arange(60) % 3
    thirds = np.column_stack([*(Z[:, 0] & (part == p) for p in range(3)), Z[:, 1:]])
    state, bit_generator = settled(X, thirds)
    kernel = RelaunchProbe(1)
    for _ in range(150):
        kernel.propose(state, 2, 1, bit_generator, "map", adapting=True)
    found = state.allocations()
    assert 3 <= found.shape[1] <= 4  # four nodes with the last feature do not prove it
    for column in Z[:, :3].T:
        assert (found == column[:, None]).mean(axis=0).max() > 0.9
