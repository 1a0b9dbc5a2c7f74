"""Weights of links of the relational likelihood: posteriors of five nodes under every sampler,
expected and drawn networks, and what it takes. The laws of its kernel are in test_coupled.py, and
those of its hyperparameters in test_pseudo_counts.py."""

import itertools
import re

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import (
    log_likelihood_relational,
    log_likelihood_weights,
    log_posterior,
)
from reference.priors import log_eppf
from reference.simulate import PRIOR_CASES
from sklearn.metrics import adjusted_rand_score
from support import pvalues
from support.designs import everyday, thirds
from support.exactness import SAMPLER_CASES, invariance_run, make_prior, make_state
from support.pvalues import assert_p, chi_squared_p, part_of

from skdpm import DPMixture
from skdpm.mixture.likelihoods import Gaussian, NegativeBinomial, Poisson, Relational
from skdpm.networks import adjacency

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAN = np.nan
SHORT = {"n_warmup": 5, "n_draws": 3, "n_chains": 1, "random_state": 0}
REAL = {"mean": 0.3, "mean_precision": 0.6, "df": 3.5, "scale": 1.5}
COUNTS = {"shape": 1.5, "rate": 0.7, "dispersion": 0.4}
DEGREES = {"degree_correction": True, "degree_concentration": 0.6}
# Links of five nodes, with weights, and the other parameters. With degree correction a node may
# link to itself.
CASES = {
    "counts": (
        [[0, 6, 1, 0, 1], [6, 0, 1, NAN, 0], [1, 1, 0, 0, 5], [0, NAN, 0, 0, 7], [1, 0, 5, 7, 0]],
        {"directed": False, "weights": ("negative_binomial", COUNTS)},
    ),
    "real": (
        [
            [0, 1, 0, -2, 3],
            [-1, 0, 2, 2, 0],
            [0, 0.5, 0, NAN, 1],
            [4, NAN, 1, 0, 0],
            [1, 1, 2, 0, 0],
        ],
        {"directed": True, "weights": ("gaussian_diag", REAL)},
    ),
    "counts, degrees": (
        [[0, 6, 1, 0, 1], [1, 2, 0, 3, 0], [1, 1, 0, 0, 5], [0, 0, 0, 1, 7], [1, 0, 5, 0, 0]],
        {"directed": True, "weights": ("negative_binomial", COUNTS), **DEGREES},
    ),
    "real, degrees": (
        [[2, 1, 0, -2, 0], [1, 0, 3, 0, 0], [0, 3, -1, 0, 1], [-2, 0, 0, 0, 4], [0, 0, 1, 4, 0]],
        {"directed": False, "weights": ("gaussian_diag", REAL), **DEGREES},
    ),
}
# Real numbers but 0, and their weights in an integral.
_GRID = np.arange(-5.1, 5.2, 0.2)
REALS = np.sinh(_GRID), 0.2 * np.cosh(_GRID)
LAWS = {"negative_binomial": NegativeBinomial, "gaussian_diag": Gaussian}


def problem(name, **planted):
    """X, keywords of the reference, and a likelihood, perhaps with other parameters of weights."""
    X, hyper = CASES[name]
    hyper = {"a": 0.7, "b": 1.4, **hyper}
    law, params = hyper["weights"]
    likelihood = Relational(**{**hyper, "weights": LAWS[law](**{**params, **planted})})
    return np.array(X, dtype=float), hyper, likelihood


def _run(name, sampler, n_starts, **planted):
    prior, params = PRIOR_CASES["dp"]
    X, hyper, likelihood = problem(name, **planted)
    posterior = log_posterior(X, "relational", prior, likelihood_params=hyper, prior_params=params)
    state = make_state(likelihood, X, make_prior(prior, 5, **params))
    return invariance_run(state, sampler.kernel(), posterior, n_starts=n_starts)


SAMPLERS = [
    pytest.param(sampler, id=repr(sampler))
    for cases in SAMPLER_CASES.values()
    for sampler in cases
    if sampler.requires == "joint"
]


@pytest.mark.parametrize("name", everyday(list(CASES), "counts"))
@thirds("sampler", SAMPLERS)
@pytest.mark.long
def test_posterior_of_five_nodes(sampler, name, seed_sequence):
    assert_p(_run(name, sampler, 20_000), seed_sequence=seed_sequence)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("counts", {"dispersion": 0.8}),
        ("counts", {"shape": 2.0}),
        ("counts, degrees", {"rate": 1.0}),
        ("real", {"mean": 0.8}),
        ("real", {"df": 5.0}),
        ("real, degrees", {"scale": 2.0}),
        ("real, degrees", {"mean_precision": 0.8}),
    ],
)
def test_wrong_laws_of_weights_are_seen(name, planted, seed_sequence):
    run = _run(name, SAMPLER_CASES["gibbs"][0], 40_000, **planted)
    assert chi_squared_p(*run(seed_sequence, 1)[:2]) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_log_joint_has_all_terms(name):
    X, hyper, likelihood = problem(name)
    model = DPMixture(likelihood=likelihood, concentration=1.2, **SHORT).fit(X)
    for labels, found in zip(
        model.label_samples_[0].astype(int), model.log_joint_samples_[0], strict=True
    ):
        expected = log_likelihood_relational(X, labels, **hyper)
        assert found == pytest.approx(
            expected + log_eppf(np.bincount(labels), "dp", concentration=1.2)
        )


@pytest.mark.parametrize("weights", [NegativeBinomial(2.0, 2.0, 0.3), Gaussian(**REAL)])
def test_densities_of_new_nodes_sum_to_one(weights):
    X = np.array([[0, 2, 0], [2, 0, 1], [0, 1, 0]], dtype=float)
    likelihood = Relational(a=0.8, b=1.3, weights=weights)
    model = DPMixture(likelihood=likelihood, concentration=1.0, **SHORT).fit(X)
    if isinstance(weights, NegativeBinomial):
        new = np.array(list(itertools.product(range(25), repeat=3)), dtype=float)
        assert np.exp(model.score_samples(new)).sum() == pytest.approx(1.0, abs=1e-3)
        return
    x, steps = REALS
    for one in np.eye(3, dtype=bool):  # this link may have any weight
        others = np.where(one, NAN, 0.0)[None]
        densities = np.exp(model.score_samples(np.vstack([np.outer(x, one), np.zeros((1, 3))])))
        total = steps @ densities[:-1] + densities[-1]
        assert total == pytest.approx(np.exp(model.score_samples(others))[0], rel=1e-3)


# Expected and drawn networks.


def all_partitions(model, X, hyper):
    """Put all partitions into a fit as its draws, with their probabilities; return these draws."""
    posterior = log_posterior(
        X, "relational", "dp", likelihood_params=hyper, prior_params={"concentration": 1.0}
    )
    kept = model.draws_.scored.draws
    first = np.array(hyper["weights"][0] == "negative_binomial", dtype=float)
    origin = 0.0 if first else REAL["mean"]
    linked = ~np.isnan(X) & (X != 0) & ~np.eye(len(X), dtype=bool)
    values = np.where(linked, X - first - origin, 0.0)
    kept[1:] = [dict(kept[0]) for _ in posterior.partitions[1:]]
    parts = linked, ~np.isnan(X) & ~np.eye(len(X), dtype=bool), values, values**2
    for draw, z, p in zip(kept, posterior.partitions, posterior.log_prob, strict=True):
        member = np.eye(z.max() + 1)[z]
        cells = [member.T @ part @ member for part in parts]
        for cell in cells if not hyper["directed"] else ():
            cell[np.diag_indices_from(cell)] /= 2.0
        stats = np.column_stack([member.sum(axis=0), *cells])
        draw.update(labels=z, weight=np.exp(p), stats=stats)
    return posterior


def moments(X, posterior, hyper, pair, other):
    """E x and E x y of the entries of two unobserved pairs, by ratios of reference marginals."""
    directed, loops = hyper["directed"], hyper.get("degree_correction", False)
    of_links = {name: value for name, value in hyper.items() if name != "weights"}

    def filled(x, y):
        Y = X.copy()
        for (i, j), value in ((pair, x), (other, y)):
            Y[i, j] = value
            if not directed:
                Y[j, i] = value
        return Y

    def links(Y):
        Y = np.where(np.isnan(Y), Y, Y != 0)
        terms = (log_likelihood_relational(Y, z, **of_links) for z in posterior.partitions)
        return np.array([*terms])

    def weights(Y):
        options = {"directed": directed, "loops": loops}
        terms = (
            log_likelihood_weights(Y, z, *hyper["weights"], **options)
            for z in posterior.partitions
        )
        return np.array([*terms])

    x, steps = np.arange(1.0, 70.0), 1.0
    if hyper["weights"][0] != "negative_binomial":
        x, steps = REALS
    before = links(X) + weights(X) - posterior.log_prob
    of_weights = [weights(filled(v, NAN)) for v in x]  # a pair without a link has none

    def mean(y):
        ratios = np.exp(links(filled(1.0, y)) + of_weights - before)
        return (steps * x * ratios.sum(axis=1)).sum()

    return mean(NAN), mean(0.0)


@pytest.mark.parametrize("name", everyday(["counts", "real"], "counts"))
@pytest.mark.long
def test_pairs_are_imputed_as_all_partitions_say(name, seed_sequence):
    X, hyper, likelihood = problem(name)
    pair, other = (1, 3), (0, 2)
    X[pair] = X[other] = NAN
    if not hyper["directed"]:
        X[pair[::-1]] = X[other[::-1]] = NAN
    model = DPMixture(likelihood=likelihood, concentration=1.0, **SHORT).fit(X)
    posterior = all_partitions(model, X, hyper)
    mean, mean_without = moments(X, posterior, hyper, pair, other)
    filled = model.impute(X)
    assert filled[pair] == pytest.approx(mean, rel=1e-3)
    assert filled[pair] == model.fitted_values()[pair]
    np.testing.assert_array_equal(filled[~np.isnan(X)], X[~np.isnan(X)])

    def run(seed, factor):
        """Of the mean of one pair, and of the same if there is no link between the other."""
        size = part_of(2000, factor)
        model.set_params(random_state=int(seed.generate_state(1)[0]))
        drawn = model.impute(X, n_draws=size)
        assert all(hyper["directed"] or (Y == Y.T).all() for Y in drawn)
        x, without = (np.array([Y[pair] * (Y[other] == 0) ** k for Y in drawn]) for k in (0, 1))
        errors = [
            np.sqrt(size) * (v.mean() - m) / v.std()
            for v, m in ((x, mean), (without, mean_without))
        ]
        return max(np.abs(errors))

    assert run(seed_sequence, pvalues.first_factor) < 4.5


# What it takes, and what it is for.


def groups(kind, n=20, seed=0, directed=False):
    """Three groups that only weights show: links between all nodes are equally likely."""
    rng = np.random.default_rng(seed)
    group = np.repeat([0, 1, 2], n)
    means = np.array([[1.0, 3.0, 1.0], [3.0, 1.0, 1.0], [1.0, 1.0, 4.0]])[group][:, group]
    if kind == "real":
        weights = rng.normal(means, 0.5)
    else:
        weights = 1.0 + rng.poisson(rng.gamma(2.0, 2.0 * means))
    X = np.where(rng.random(means.shape) < 0.3, weights, 0.0)
    np.fill_diagonal(X, 0.0)
    return group, X if directed else np.triu(X) + np.triu(X, 1).T


@pytest.mark.parametrize("kind", ["real", "counts"])
@pytest.mark.long
def test_groups_that_only_weights_show(kind):
    group, X = groups(kind, n=25)
    settings = {"n_warmup": 60, "n_draws": 40, "n_chains": 1, "random_state": 0}
    found = DPMixture(likelihood=Relational(weights=kind), **settings).fit(X)
    assert adjusted_rand_score(group, found.labels_) > 0.9
    without = DPMixture(likelihood=Relational(), **settings).fit((X != 0).astype(float))
    assert adjusted_rand_score(group, without.labels_) < 0.2
    np.testing.assert_array_equal(found.predict(X[[0, 30, 70]]), found.labels_[[0, 30, 70]])
    means = found.cluster_params_["weight_means"][found.labels_][:, found.labels_]
    assert abs(np.mean(means[X != 0]) - np.mean(X[X != 0])) < 0.1 * np.mean(X[X != 0])
    names = [name for name in found.hyperparameter_samples_ if name.startswith("weights__")]
    assert names and all(len(np.unique(found.hyperparameter_samples_[k])) > 5 for k in names)


@pytest.mark.parametrize("kind", ["real", "counts"])
@pytest.mark.parametrize("directed", everyday([False, True], True))
@pytest.mark.long
def test_forms_of_weighted_networks(kind, directed):
    _, X = groups(kind, n=5, directed=directed)
    likelihood = Relational(weights=kind, directed=directed)
    dense = DPMixture(likelihood=likelihood, **SHORT).fit(X)
    graph = nx.from_numpy_array(X, create_using=nx.DiGraph if directed else nx.Graph)
    for other in (sp.csr_array(X), sp.coo_array(X), adjacency(graph, weight="weight")):
        model = DPMixture(likelihood=likelihood, **SHORT).fit(other)
        np.testing.assert_array_equal(model.label_samples_, dense.label_samples_)
        np.testing.assert_array_equal(model.log_joint_samples_, dense.log_joint_samples_)
        np.testing.assert_array_equal(model.score_samples(other), dense.score_samples(X))
    without = dense.score_samples(np.zeros((1, 15)))
    assert np.isfinite(without).all()


def test_explicit_zeros_are_no_links():
    _, X = groups("real", n=5)
    listed = sp.coo_array(np.ones_like(X))
    zeros = sp.csr_array((X[listed.row, listed.col], (listed.row, listed.col)))
    assert zeros.nnz > np.count_nonzero(X)
    fits = [DPMixture(likelihood=Relational(weights="real"), **SHORT).fit(Y) for Y in (X, zeros)]
    np.testing.assert_array_equal(fits[0].log_joint_samples_, fits[1].log_joint_samples_)


@pytest.mark.parametrize("degree_correction", [False, True])
def test_weights_of_links_of_nodes_with_themselves(degree_correction):
    """They count with degree correction alone."""
    _, X = groups("counts", n=5)
    likelihood = Relational(weights="counts", degree_correction=degree_correction)
    sums = [
        DPMixture(likelihood=likelihood, **SHORT).fit(X + loop * np.eye(15)).log_joint_samples_
        for loop in (0.0, 2.0, 9.0)
    ]
    assert np.array_equal(sums[1], sums[2]) != degree_correction
    assert np.array_equal(sums[0], sums[1]) != degree_correction


def test_continued_fits_and_fixed_parameters():
    _, X = groups("real", n=5)
    likelihood = Relational(weights=Gaussian(mean=1.0))
    whole = DPMixture(likelihood=likelihood, **(SHORT | {"n_draws": 6})).fit(X)
    part = DPMixture(likelihood=likelihood, **SHORT, warm_start=True).fit(X)
    part.set_params(n_draws=6).fit(X)
    np.testing.assert_array_equal(part.log_joint_samples_, whole.log_joint_samples_)
    assert "weights__mean" not in whole.hyperparameter_samples_
    assert whole.likelihood_.weights.mean == 1.0
    assert likelihood.set_params(weights__mean=2.0).weights.mean == 2.0


@pytest.mark.parametrize(
    ("weights", "value", "message"),
    [
        ("counts", -1.0, 'column 1 of X holds -1; use weights="real" for other numbers'),
        ("counts", 0.5, 'column 1 of X holds 0.5; use weights="real" for other numbers'),
        ("real", np.inf, "infinity in column 1 of X"),
        ("reals", 2.0, 'Relational.weights must be "counts", "real", a NegativeBinomial'),
        (Poisson(), 2.0, 'Relational.weights must be "counts", "real", a NegativeBinomial'),
        (Gaussian(tails="t"), 2.0, "a Gaussian without tails or None, got Gaussian(tails='t')"),
        (3, 2.0, 'Relational.weights must be "counts", "real", a NegativeBinomial'),
        ("counts", 1.0, "links of different weights, but those in X are all the same"),
        ("real", 0.0, "links of different weights, but those in X are none"),
    ],
)
def test_weights_that_are_refused(weights, value, message):
    X = np.zeros((6, 6))
    X[1, 2] = X[2, 1] = value
    if value != 0.0:
        X[3, 4] = X[4, 3] = 1.0
    for form in (X, sp.csr_array(X)):
        with pytest.raises(ValueError, match=re.escape(message)):
            DPMixture(likelihood=Relational(weights=weights), **SHORT).fit(form)


@pytest.mark.parametrize("weights", ["counts", "real", None])
def test_parameters_of_weights_need_an_object(weights):
    likelihood = Relational(weights=weights)
    message = f"'weights__mean', because weights={weights!r} .*, such as NegativeBinomial"
    with pytest.raises(ValueError, match=message):
        likelihood.set_params(weights__mean=2.0)
    with pytest.raises(ValueError, match=message):
        DPMixture(likelihood=likelihood).set_params(likelihood__weights__mean=2.0)
    assert likelihood.set_params(weights=Gaussian(), weights__mean=2.0).weights.mean == 2.0


def test_directions_and_nan():
    X = np.zeros((4, 4))
    X[0, 1], X[1, 0] = 2.0, 3.0
    with pytest.raises(ValueError, match=r"the entries \(0, 1\) and \(1, 0\) differ"):
        DPMixture(likelihood=Relational(weights="counts")).fit(X)
    X[1, 0] = X[0, 1] = NAN
    X[2, 3] = X[3, 2] = 4.0
    X[0, 3] = X[3, 0] = 1.0
    with pytest.raises(ValueError, match="use degree_correction=False"):
        DPMixture(likelihood=Relational(weights="counts", degree_correction=True)).fit(X)
    with pytest.raises(ValueError, match=r'adjacency\(G, weight="weight"\)'):
        DPMixture(likelihood=Relational(weights="counts")).fit(nx.path_graph(5))


def test_drawn_pairs_of_two_clusters_share_their_parameters():
    """Of an undirected network those of k and l are those of l and k, whichever node is first."""
    X = np.zeros((4, 4))
    X[0, 1] = X[1, 0] = 2.0
    X[2, 3] = X[3, 2] = 5.0
    law = Relational(a=0.5, b=0.5, weights="real").resolve(X)
    labels = np.arange(200) % 2
    of_k_l = np.triu(labels[:, None] < labels)
    of_l_k = np.triu(labels[:, None] > labels)
    values = {name: np.ravel(getattr(law, name)) for name in law.hyperparameters}
    stats = np.hstack([[[100.0]] * 2, np.zeros((2, 8))])
    for seed in range(5):
        draw = {"values": values, "labels": labels, "stats": stats}
        drawn = law.draw_links(draw, np.random.default_rng(seed))
        np.testing.assert_array_equal(drawn, drawn.T)
        one, other = drawn[of_k_l], drawn[of_l_k]
        assert np.mean(one != 0.0) == pytest.approx(np.mean(other != 0.0), abs=0.05)
        one, other = one[one != 0.0], other[other != 0.0]
        assert np.mean(one) == pytest.approx(np.mean(other), abs=0.3 * np.std(one) + 1e-9)
