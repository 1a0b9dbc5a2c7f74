"""Degree correction of the relational likelihood: its reference from the model itself, posteriors
of five nodes under every sampler, and what it takes and answers. The laws of its kernel are in
test_coupled.py, and those of its hyperparameters in test_pseudo_counts.py."""

import itertools
import re

import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import log_likelihood_relational, log_posterior
from reference.simulate import PRIOR_CASES, simulate_data
from scipy.special import logsumexp, roots_genlaguerre, roots_jacobi
from scipy.stats import poisson
from sklearn.metrics import v_measure_score
from support.designs import everyday, thirds
from support.exactness import SAMPLER_CASES, invariance_run, make_prior, make_state
from support.pvalues import assert_p, chi_squared_p

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Relational

HYPER = {"a": 0.7, "b": 1.4, "degree_concentration": 0.6, "degree_correction": True}

# Few links, or the posterior would know nothing but the degrees; of counts, one with itself.
LINKS = {
    False: [[0, 1, 0, 3, 0], [1, 0, 0, 2, 0], [0, 0, 1, 0, 4], [3, 2, 0, 0, 0], [0, 0, 4, 0, 0]],
    True: [[0, 1, 0, 3, 0], [0, 0, 1, 2, 0], [0, 0, 1, 0, 4], [0, 2, 0, 0, 1], [1, 0, 2, 0, 0]],
}


def _by_quadrature(A, labels, *, a, b, degree_concentration, directed, **_):
    """p(A | partition) of two nodes: propensities and rates summed over nodes of Gauss's rules."""
    together = labels[0] == labels[1]
    pairs = [(0, 1), (0, 0), (1, 1)] + [(1, 0)] * directed
    x, w = roots_jacobi(30, degree_concentration - 1, degree_concentration - 1)
    shares = [[1.0, 1.0]] if not together else np.transpose([1 + x, 1 - x])
    weights = w / w.sum() if together else [1.0]
    rates, rate_weights = roots_genlaguerre(80, a - 1)
    rates, rate_weights = rates / b, rate_weights / rate_weights.sum()
    total = 0.0
    kinds = [(u, p) for u, p in zip(shares, weights, strict=True)]
    for (u, p), (v, q) in (
        itertools.product(kinds, kinds) if directed else zip(kinds, kinds, strict=True)
    ):
        product = p * (q if directed else 1.0)
        cells = {}
        for i, j in pairs:
            mean = u[i] * v[j] / (1 if directed or i != j else 2)
            cell = (labels[i], labels[j]) if directed else (labels[min(i, j)], labels[max(i, j)])
            cells[cell] = cells.get(cell, 1.0) * poisson.pmf(A[i][j], mean * rates)
        for density in cells.values():
            product *= rate_weights @ density
        total += product
    return total


@pytest.mark.parametrize("directed", everyday([False, True], False))
def test_the_reference_is_the_model(directed):
    for labels in ([0, 0], [0, 1]):
        for A in ([[0, 1], [1, 0]], [[0, 3], [3, 0]], [[1, 2], [2, 0]], [[2, 0], [0, 1]]):
            if directed:
                A = [[A[0][0], A[0][1]], [A[1][0] + 1, A[1][1]]]
            value = np.exp(log_likelihood_relational(A, labels, directed=directed, **HYPER))
            expected = _by_quadrature(A, labels, directed=directed, **HYPER)
            assert value == pytest.approx(expected, rel=1e-6)


@pytest.mark.slow
def test_reference_sums_to_one():
    """Of two nodes, over all networks with so few links that others have no weight."""
    hyper = {**HYPER, "a": 3.0, "b": 12.0}
    counts = np.arange(14)
    for labels in ([0, 0], [0, 1]):
        terms = [
            log_likelihood_relational([[i, j], [j, k]], labels, **hyper)
            for i, j, k in itertools.product(counts, repeat=3)
        ]
        assert logsumexp(terms) == pytest.approx(0.0, abs=1e-6)


def _posterior(directed):
    prior, params = PRIOR_CASES["dp"]
    hyper = {**HYPER, "directed": directed}
    A = np.array(LINKS[directed], dtype=float)
    return log_posterior(A, "relational", prior, likelihood_params=hyper, prior_params=params)


def _run(sampler, directed, n_starts, **planted):
    prior, params = PRIOR_CASES["dp"]
    likelihood = Relational(**{**HYPER, "directed": directed, **planted})
    A = np.array(LINKS[directed], dtype=float)
    state = make_state(likelihood, A, make_prior(prior, 5, **params))
    return invariance_run(state, sampler.kernel(), _posterior(directed), n_starts=n_starts)


SAMPLERS = [
    pytest.param(sampler, id=repr(sampler))
    for cases in SAMPLER_CASES.values()
    for sampler in cases
    if sampler.requires == "joint"
]


@pytest.mark.parametrize("directed", everyday([False, True], True))
@thirds("sampler", SAMPLERS)
@pytest.mark.long
def test_posterior_of_five_nodes(sampler, directed, seed_sequence):
    assert_p(_run(sampler, directed, 20_000), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    "planted", [{"degree_concentration": 0.9}, {"a": 1.0}, {"b": 2.0}], ids=repr
)
def test_wrong_hyperparameters_are_seen(planted, seed_sequence):
    run = _run(SAMPLER_CASES["gibbs"][0], False, 20_000, **planted)
    assert chi_squared_p(*run(seed_sequence, 1)[:2]) < 1e-6


# What it takes.


def _network(seed=0, directed=False):
    """Two clusters of 15 nodes, one with a hub in each."""
    rng = np.random.default_rng(seed)
    labels = np.arange(30) % 2
    hyper = {"a": 2.0, "b": 4.0, "degree_concentration": 1.0, "directed": directed}
    return labels, simulate_data("relational", labels, rng, **hyper)


@pytest.mark.parametrize("directed", [False, True])
def test_sparse_equals_dense(directed):
    _, X = _network(directed=directed)
    likelihood = Relational(degree_correction=True, directed=directed)
    settings = {"n_warmup": 5, "n_draws": 5, "n_chains": 1, "random_state": 0}
    dense = DPMixture(likelihood=likelihood, **settings).fit(X)
    for X_sparse in (sp.csr_array(X), sp.csr_matrix(X), sp.coo_array(X)):
        other = DPMixture(likelihood=likelihood, **settings).fit(X_sparse)
        np.testing.assert_array_equal(other.label_samples_, dense.label_samples_)
        np.testing.assert_array_equal(
            other.score_samples(X_sparse[:4]), dense.score_samples(X[:4])
        )


def test_entries_given_twice_add_up():
    row, column = [0, 0, 1, 1, 1, 2], [1, 1, 0, 0, 2, 1]
    twice = sp.csr_array((np.ones(6), column, [0, 2, 5, 6]), shape=(3, 3))
    assert twice.nnz == 6
    dense = np.zeros((3, 3))
    np.add.at(dense, (row, column), 1.0)
    likelihood = Relational(**HYPER)
    for part in ("degrees", "log_constants"):
        one, other = (likelihood.resolve(X).encode(X)[part] for X in (twice, dense))
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.nan, "column 1 of X holds nan; use degree_correction=False"),
        (-1.0, "column 1 of X holds -1; for links alone use X"),
        (np.inf, "column 1 of X holds inf"),
        (0.5, "column 1 of X holds 0.5; for links alone use X"),
    ],
)
def test_entries_that_are_no_numbers_of_links(value, message):
    X = np.zeros((4, 4))
    X[1, 2] = X[2, 1] = value
    likelihood = Relational(degree_correction=True)
    resolved = likelihood.resolve(np.zeros((4, 4)))
    for check in (likelihood.resolve, resolved.encode, resolved.encode_new):
        for given in (X, sp.csr_array(X)):
            with pytest.raises(ValueError, match=re.escape(message)):
                check(given)


def test_nan_and_weights_are_refused_where_they_have_no_meaning():
    X = np.eye(4)[::-1].copy()
    X[1, 2] = X[2, 1] = 4.0
    with pytest.raises(ValueError, match=r"column 1 of X holds 4; .*use degree_correction=True"):
        DPMixture(likelihood="relational").fit(X)
    X[1, 2] = X[2, 1] = np.nan
    with pytest.raises(ValueError, match="contains NaN in column 1"):
        DPMixture(likelihood=Relational(degree_correction=True)).fit(X)
    X[1, 2] = 1.0
    X[2, 1] = 0.0
    with pytest.raises(ValueError, match=r"the entries \(1, 2\) and \(2, 1\) differ"):
        DPMixture(likelihood=Relational(degree_correction=True)).fit(X)


@pytest.mark.parametrize("directed", [False, True])
def test_rates_of_clusters(directed):
    labels, X = _network(directed=directed)
    likelihood = Relational(**HYPER, directed=directed)
    settings = {"n_warmup": 0, "n_draws": 1, "n_chains": 1, "concentration": 1.0}
    model = DPMixture(likelihood=likelihood, init=labels, random_state=0, **settings).fit(X)
    for k, m in itertools.product(range(model.n_clusters_), repeat=2):
        block = X[np.ix_(model.labels_ == k, model.labels_ == m)]
        count, exposure = block.sum(), block.size
        if k == m and not directed:
            count, exposure = np.triu(block).sum(), block.size / 2
        rate = model.cluster_params_["link_rates"][k, m]
        assert rate == pytest.approx((0.7 + count) / (1.4 + exposure))


@pytest.mark.slow
def test_hubs_do_not_divide_groups():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1], 40)
    propensity = np.tile(np.geomspace(0.3, 5.0, 40), 2)
    mean = np.outer(propensity, propensity) * np.where(group[:, None] == group, 0.2, 0.02)
    X = np.triu(rng.random(mean.shape) < mean, 1)
    X = (X | X.T).astype(float)
    settings = {"n_warmup": 100, "n_draws": 100, "n_chains": 2, "random_state": 0}
    settings |= {"concentration": 1.0}
    fits = {
        degree_correction: DPMixture(
            likelihood=Relational(a=1.0, b=1.0, degree_correction=degree_correction), **settings
        ).fit(X)
        for degree_correction in (False, True)
    }
    assert v_measure_score(group, fits[False].labels_) < 0.7
    assert v_measure_score(group, fits[True].labels_) == 1.0
    # New nodes, of few links and of many, that link to the one group or the other.
    new = np.zeros((4, 80))
    new[0, [35, 38]] = new[1, 25:39] = new[2, [75, 78]] = new[3, 65:79] = 1
    np.testing.assert_array_equal(fits[True].predict(new), fits[True].labels_[[0, 0, 40, 40]])
