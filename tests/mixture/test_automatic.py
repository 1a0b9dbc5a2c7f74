"""The automatic start: pieces, greedy merging, and where chains begin."""

import itertools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from reference.enumerate import canonical_labels
from reference.likelihoods import log_marginal_gaussian
from reference.simulate import PRIOR_CASES
from scipy.special import gammaln
from sklearn.metrics import adjusted_rand_score
from support.cases import FAST, make_estimator
from support.designs import combinations, everyday, thirds
from support.exactness import VARIANTS, likelihood_names, make_prior, make_state
from support.fits import assert_same_fit
from support.states import case_of, log_joint_of, log_likelihood_of, new_state

from skdpm import DPMixture, FiniteMixture
from skdpm._core._kmeans import kmeans
from skdpm.mixture.blocks import program as block_program
from skdpm.mixture.blocks.program import open_rows
from skdpm.mixture.chains import automatic as _automatic
from skdpm.mixture.chains._start import Merger, assign_in_turn, merge_coupled
from skdpm.mixture.likelihoods import (
    LIKELIHOODS,
    Bernoulli,
    Gaussian,
    Multinomial,
    Poisson,
    Relational,
)
from skdpm.mixture.likelihoods.laws.coordinates import principal, standardised
from skdpm.mixture.samplers import BlockedGibbs, SubCluster
from skdpm.mixture.state._scoring import MixtureRows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

NAMES = likelihood_names()
COUPLED = [n for n in NAMES if not LIKELIHOODS[VARIANTS.get(n, n)]().capabilities >= {"product"}]
INDEPENDENT = [name for name in NAMES if name not in COUPLED]


def pairs(labels):
    """Labels after the merge of each pair of clusters, canonical."""
    for a, b in itertools.combinations(np.unique(labels), 2):
        yield canonical_labels(np.where(labels == b, a, labels))


def merged_by_reference(labels, log_joint, most):
    """Greedy merging, every log joint density computed anew."""
    labels = canonical_labels(labels)
    while labels.max() > 0:
        best = max(pairs(labels), key=log_joint)
        if labels.max() < most and log_joint(best) <= log_joint(labels):
            break
        labels = best
    return labels


def merged_in_any_order(labels, log_joint):
    """Greedy merging, as each choice among pairs that are equally good would have it."""
    values = [(log_joint(other), other) for other in pairs(labels)]
    best = max((value for value, _ in values), default=-np.inf)
    if best <= log_joint(labels) + 1e-9:
        yield labels
    if best >= log_joint(labels) - 1e-9:
        for value, other in values:
            if value > best - 1e-9:
                yield from merged_in_any_order(other, log_joint)


def without_limit(log_joint, name, case, prior):
    """A log joint density that orders partitions with more clusters than there are components:
    with as many clusters each, they differ by the factors of the clusters alone."""
    _, params = PRIOR_CASES[prior]
    a = params["concentration"] / params["n_components"]

    def value(labels):
        if labels.max() < params["n_components"]:
            return log_joint(labels)
        factors = gammaln(np.bincount(labels) + a) - gammaln(a)
        return log_likelihood_of(name, case, labels) + factors.sum()

    return value


def impure_pieces(rng, n_samples=18):
    """Pieces of the three clusters of `fit_case`, with a few rows among the wrong ones."""
    pieces = 3 * (np.arange(n_samples) % 3) + rng.integers(0, 3, n_samples)
    wrong = rng.choice(n_samples, 3, replace=False)
    pieces[wrong] = rng.integers(0, 9, 3)
    return canonical_labels(pieces)


# Merging.


@combinations(name=INDEPENDENT, prior=PRIOR_CASES)
@pytest.mark.some(2)
def test_merging_takes_the_best_pair_until_none_gains(name, prior, seed):
    case = case_of(name)
    pieces = impure_pieces(np.random.default_rng(seed))
    state = new_state(name, case, prior, pieces)
    slots, clusters = Merger(state.model, state.prior, state.dump()).merge_all()

    def log_joint(labels):
        return log_joint_of(name, case, labels, prior)

    most = state.prior.most_clusters
    if prior == "finite":
        log_joint = without_limit(log_joint, name, case, prior)
    expected = merged_by_reference(pieces, log_joint, most)
    merged = clusters[pieces]
    np.testing.assert_array_equal(canonical_labels(merged), expected)
    assert len(slots) == expected.max() + 1 <= most
    # The kernel holds the clusters.
    held = state.model.dump(slots)
    np.testing.assert_allclose(held, new_state(name, case, "dp", merged).dump(), atol=1e-10)


def test_as_many_clusters_as_components_may_stay():
    X = np.repeat([0.0, 50.0, 100.0], 10)[:, None] + np.random.default_rng(0).normal(size=(30, 1))
    state = make_state(
        Gaussian(scale=1.0, df=3.0, mean=50.0, mean_precision=0.01),
        X,
        make_prior("finite", 30, concentration=1.0, n_components=3),
        np.repeat(np.arange(9), [4, 3, 3] * 3),
    )
    _, clusters = Merger(state.model, state.prior, state.dump()).merge_all()
    np.testing.assert_array_equal(clusters, np.repeat([0, 1, 2], 3))


@pytest.mark.slow
@combinations(name=COUPLED, prior=PRIOR_CASES)
def test_merging_takes_the_best_pair_of_coupled_clusters(name, prior, seed):
    """Two pairs may gain the same but for rounding: then either is merged."""
    case = case_of(name)
    rng = np.random.default_rng(seed)

    def log_joint(labels):
        return log_joint_of(name, case, labels, prior)

    for _ in range(6):
        pieces = impure_pieces(rng)
        if prior == "finite":
            pieces = canonical_labels(pieces % 3)
        state = new_state(name, case, prior, pieces)
        merge_coupled(state)
        labels = canonical_labels(state.cluster_labels())
        assert state.n_attached == 18 and state.n_clusters == labels.max() + 1
        assert state.compute_log_joint() == pytest.approx(log_joint(labels))
        assert any(
            (labels == expected).all() for expected in merged_in_any_order(pieces, log_joint)
        )


def test_coupled_clusters_merge_best_first():
    """Where groups of nodes differ by far, the order does not matter and pieces find them."""
    rng = np.random.default_rng(0)
    groups = np.arange(60) % 3
    links = np.triu(rng.random((60, 60)) < np.where(groups[:, None] == groups, 0.9, 0.1), 1)
    X = (links + links.T).astype(float)
    state = make_state(
        Relational(), X, make_prior("dp", 60, concentration=1.0), np.arange(60) % 15
    )
    merge_coupled(state)
    np.testing.assert_array_equal(canonical_labels(state.cluster_labels()), groups)


# Pieces.


def test_kmeans_is_a_fixed_point_that_uses_all_centres(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 3))
    labels = kmeans(X, 12, np.random.PCG64(seed), 1000)
    assert len(np.unique(labels)) == 12 == labels.max() + 1
    centres = np.array([X[labels == k].mean(axis=0) for k in range(12)])
    squares = ((X[:, None] - centres) ** 2).sum(axis=2)
    np.testing.assert_array_equal(squares.argmin(axis=1), labels)
    again = kmeans(X, 12, np.random.PCG64(seed), 1000)
    np.testing.assert_array_equal(again, labels)


def test_kmeans_seeds_far_groups(seed):
    """By k-means++ a group of 1 % of the points, far away, has a centre; by chance it rarely
    would."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(500, 2))
    X[:5] += 100.0
    for s in range(20):
        labels = kmeans(X, 4, np.random.PCG64(s), 0)
        assert not set(labels[:5]) & set(labels[5:])


def test_kmeans_of_few_distinct_points():
    X = np.repeat([[0.0, 1.0], [2.0, 1.0]], 5, axis=0)
    labels = kmeans(X, 7, np.random.PCG64(0))
    np.testing.assert_array_equal(canonical_labels(labels), np.repeat([0, 1], 5))
    assert (kmeans(np.ones((4, 2)), 3, np.random.PCG64(0)) == 0).all()
    assert (kmeans(np.zeros((1, 0)), 1, np.random.PCG64(0)) == 0).all()


@thirds("name", NAMES)
def test_items_join_the_piece_under_which_they_are_most_likely(name):
    case = case_of(name)
    labels = np.full(18, -1)
    labels[[3, 7, 11, 2]] = np.arange(4)
    state = new_state(name, case, "dp", labels)
    order = [i for i in range(17, -1, -1) if labels[i] < 0]
    assign_in_turn(state, order)
    chosen = state.cluster_labels()
    for i in order:
        values = []
        for k in range(4):
            labels[i] = k
            values.append(log_likelihood_of(name, case, labels))
        labels[i] = chosen[i]
        # A row without entries fits all pieces alike.
        assert values[chosen[i]] > max(values) - 1e-9


@combinations(prior=["dp", "pitman_yor", "finite"], name=NAMES)
def test_items_change_to_where_the_log_joint_is_largest(name, prior, seed):
    case = case_of(name)
    rng = np.random.default_rng(seed)
    labels = canonical_labels(np.append(rng.integers(0, 2, 17), 2))
    state = new_state(name, case, prior, labels)
    order = rng.permutation(18)
    first = state.compute_log_joint()
    assign_in_turn(state, order, by_size=True)
    for i in order:
        if (labels == labels[i]).sum() > 1:
            choices = [np.where(np.arange(18) == i, k, labels) for k in range(3)]
            labels = max(choices, key=lambda z: log_joint_of(name, case, z, prior))
    np.testing.assert_array_equal(state.cluster_labels(), labels)
    assert state.compute_log_joint() >= first - 1e-9


def test_rows_join_by_weight_and_density():
    rng = np.random.default_rng(0)
    X = np.array([0.0, 10.0])[rng.integers(0, 2, 50), None] + rng.normal(size=(50, 1)) * 3
    params = {"mean": 0.0, "mean_precision": 0.1, "df": 3.0, "scale": 9.0}
    likelihood = Gaussian(**params)
    labels = (X[:, 0] > 5).astype(int)
    prior = make_prior("dp", 50, concentration=1.0)
    stats = make_state(likelihood, X, prior, labels).dump()
    model = make_state(likelihood, X, prior).model
    log_weights = np.array([0.0, 3.0])
    joint = log_weights + np.array(
        [
            [
                log_marginal_gaussian(np.append(X[labels == k], X[i : i + 1], axis=0), **params)
                - log_marginal_gaussian(X[labels == k], **params)
                for k in range(2)
            ]
            for i in range(50)
        ]
    )
    found = _automatic.most_likely(MixtureRows(model), stats, log_weights)
    np.testing.assert_array_equal(found, joint.argmax(axis=1))
    assert (found != (joint - log_weights).argmax(axis=1)).any()


@pytest.mark.parametrize("directed", [False, True])
def test_coordinates_of_a_network_tell_its_groups(directed):
    """Also groups whose nodes link to those of other groups only, and, of a directed network,
    groups that have the same outgoing links."""
    rng = np.random.default_rng(0)
    groups = np.arange(90) % 3
    shares = np.array([[0.05, 0.8, 0.1], [0.8, 0.05, 0.1], [0.1, 0.1, 0.6]])
    if directed:
        shares = np.array([[0.1, 0.5, 0.9], [0.1, 0.5, 0.9], [0.9, 0.5, 0.1]])
    X = (rng.random((90, 90)) < shares[groups[:, None], groups]).astype(float)
    if not directed:
        X = np.triu(X, 1) + np.triu(X, 1).T
    points = Relational(directed=directed).resolve(X).coordinates(X)
    assert points.shape == (90, 10)
    labels = kmeans(points, 3, np.random.PCG64(0), 100)
    assert len(np.unique(np.stack([labels, groups]), axis=1).T) == 3
    np.testing.assert_array_equal(points, Relational(directed=directed).resolve(X).coordinates(X))
    assert np.isfinite(principal(sp.csr_array((4, 4)))).all()


def test_standardised_points():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 3)) * [1e-150, 1.0, 1e150] + [0.0, 1e6, 0.0]
    X = np.c_[X, np.full(50, 0.3), np.tile([0.3, np.nextafter(0.3, 1.0)], 25), np.zeros(50)]
    points = standardised(X)
    np.testing.assert_allclose(points.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(points.std(axis=0), [1.0, 1.0, 1.0, 0.0, 0.0, 0.0], atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000, 10**6])
def test_number_of_pieces(n):
    numbers = [_automatic.number_of_pieces(n, u) for u in (0.0, 0.5, 0.999)]
    assert 1 <= numbers[0] <= numbers[1] <= numbers[2] <= min(n, _automatic.MOST_PIECES)
    if n == 1000:
        assert len(set(numbers)) == 3
        assert _automatic.number_of_pieces(n, 0.5, 0.1) < numbers[0]


# The start of a fit.


def starts(estimator, X, n_chains=4):
    """The program of a fit, and the first replica of each chain before its first iteration."""
    estimator.set_params(n_chains=n_chains, sampler="gibbs")
    likelihood, sampler = estimator._resolved("likelihood"), estimator._resolved("sampler")
    X = estimator._validate_fit(X, likelihood, sampler, True)
    program = estimator._program(X, likelihood, sampler)
    chains = [program.resume(program.chain(0, c)) for c in range(n_chains)]
    return program, [chain.replicas[0] for chain in chains]


@pytest.fixture(scope="module")
def groups():
    """300 rows of five groups that are far apart, in columns of unlike units."""
    rng = np.random.default_rng(0)
    labels = np.arange(300) % 5
    centres = np.array([[0, 0], [30, 0], [0, 30], [-30, 0], [0, -30]])
    return (centres[labels] + rng.normal(size=(300, 2))) * [1e-6, 1e6], labels


def test_merging_goes_on_from_the_pieces_if_a_single_cluster_is_best():
    """In between there are many clusters, which are less probable than one: a covariance that they
    share is that of the pieces until they are few."""
    rng = np.random.default_rng(0)
    mixed = np.eye(12) + 0.2 * rng.normal(size=(12, 12))
    labels = np.arange(600) % 3
    X = rng.normal(size=(3, 12))[labels] + rng.normal(size=(600, 12)) @ mixed
    _, replicas = starts(DPMixture(likelihood=Gaussian(covariance_type="tied"), random_state=0), X)
    for replica in replicas:
        assert adjusted_rand_score(labels, replica.state.cluster_labels()) > 0.7


def test_chains_start_at_the_clusters(groups):
    X, labels = groups
    _, replicas = starts(DPMixture(init="auto"), X)
    for replica in replicas:
        np.testing.assert_array_equal(canonical_labels(replica.state.cluster_labels()), labels)


def test_chains_start_dispersed():
    X = np.random.default_rng(0).normal(size=(400, 2))
    _, replicas = starts(DPMixture(init="auto"), np.vstack([X, X * 4 + 1]))
    partitions = {tuple(canonical_labels(r.state.cluster_labels())) for r in replicas}
    assert len(partitions) == 4


@combinations(name=NAMES, prior=["dp", "pitman_yor", "finite", "mfm"])
@pytest.mark.some(2)
def test_every_likelihood_and_prior(name, prior):
    case = case_of(name)
    estimator = make_estimator(case.likelihood, prior, init="auto")
    one = estimator.fit(case.X)
    two = make_estimator(case.likelihood, prior, init="auto", n_jobs=2).fit(case.X)
    assert_same_fit(one, two, case.X_new)
    assert one.n_components_samples_.max() <= one.make_prior(18, 1.0).most_clusters


def test_learned_values_are_where_a_chain_starts():
    rng = np.random.default_rng(0)
    X = rng.poisson(np.array([1.0, 30.0, 200.0])[np.arange(90) % 3][:, None], size=(90, 4))
    program, replicas = starts(DPMixture(likelihood=Poisson(), init="auto"), X.astype(float))
    values = program.first_values()
    for replica in replicas:
        assert replica.values != values
        assert replica.state.prior.concentration != program.first_concentration
        np.testing.assert_array_equal(
            replica.state.model.hyperparameters(),
            program.likelihood.at(replica.values).flat_hyperparameters(),
        )
        np.testing.assert_array_equal(
            canonical_labels(replica.state.cluster_labels()), np.arange(90) % 3
        )
    _, replicas = starts(
        DPMixture(likelihood=Poisson(1.0, 0.1), concentration=2.0, init="auto"), X.astype(float)
    )
    assert replicas[0].values == {} and replicas[0].state.prior.concentration == 2.0


def test_the_best_turn_is_kept():
    """The log joint density of the start, hyperpriors included, is that of the best turn, and at
    least that of merging at the first values."""
    rng = np.random.default_rng(1)
    X = rng.poisson(np.array([1.0, 30.0, 200.0])[np.arange(90) % 3][:, None], size=(90, 4)).astype(
        float
    )
    program, _ = starts(DPMixture(likelihood=Poisson(), init="auto", concentration=1.0), X)
    pieces = program.statistics(np.arange(90) % 30)
    prior = program.make_prior(1.0)

    def value(stats, values):
        sizes = stats[:, 0].astype(int)
        likelihood = program.model(values).log_marginals(stats).sum()
        return (
            likelihood + prior.log_probability(sizes) + program.likelihood.log_hyperprior(values)
        )

    model = program.model()
    slots, _ = Merger(model, prior, pieces).merge_all()
    at_first_values = value(model.dump(slots), program.first_values())
    for seed in range(5):
        merged = _automatic.merge_pieces(
            program, program.model(), program.make_prior(1.0), pieces, np.random.PCG64(seed)
        )
        assert value(merged.stats, merged.values) > at_first_values
        sums = np.array(
            [pieces[merged.clusters == k].sum(axis=0) for k in range(len(merged.stats))]
        )
        np.testing.assert_allclose(sums[:, 0], merged.stats[:, 0])


def test_noise_is_one_cluster():
    """Binary noise, cut into pieces that are alike, looks like columns without noise: merging at
    the first values stops at once."""
    X = (np.random.default_rng(0).random((500, 40)) < 0.5) * 1.0
    _, replicas = starts(DPMixture(likelihood=Bernoulli(), init="auto"), X)
    assert [replica.state.n_clusters for replica in replicas] == [1] * 4


EDGES = {
    "one row": np.ones((1, 2)),
    "two rows": np.array([[0.0, 1.0], [0.0, 2.0]]),
    "three rows": np.arange(3.0)[:, None],
    "duplicates": np.ones((20, 2)),
    "constant column": np.c_[np.full(20, 0.1), np.arange(20.0)],
    "rounding": np.c_[
        0.1 + 1e-17 * np.arange(20) + np.tile([0.2, 0.2 + 3e-17], 10), np.arange(20.0)
    ],
    "more columns than rows": np.random.default_rng(0).normal(size=(5, 30)),
    "far away": np.random.default_rng(0).normal(size=(30, 2)) + 1e9,
    "large": np.random.default_rng(0).normal(size=(30, 2)) * 1e100,
    "small": np.random.default_rng(0).normal(size=(30, 2)) * 1e-100,
    "integers": np.random.default_rng(0).integers(0, 4, size=(60, 2)).astype(float),
}


@combinations(
    edge=EDGES, sampler=["gibbs", SubCluster(block_size=7)], covariance_type=["full", "diag"]
)
@pytest.mark.filterwarnings("ignore:all entries of X are missing or the same:UserWarning")
@pytest.mark.some(2)
def test_edges(edge, sampler, covariance_type):
    likelihood = Gaussian(covariance_type=covariance_type)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        estimator = DPMixture(likelihood=likelihood, sampler=sampler, init="auto", **FAST).fit(
            EDGES[edge]
        )
    assert np.isfinite(estimator.log_joint_samples_).all()


@pytest.mark.parametrize(
    "shift, factor",
    everyday([(0.0, 2.0**20), (1024.0, 1.0), (0.0, 2.0**-20)], (0.0, 2.0**20), n_values=2),
)
def test_units_do_not_matter(shift, factor, groups):
    X = groups[0] * [1e6, 1e-6]
    X = np.round(X * 64) / 64
    _, one = starts(DPMixture(init="auto"), X)
    _, other = starts(DPMixture(init="auto"), X * [factor, 1.0] + [shift, 0.0])
    for a, b in zip(one, other, strict=True):
        partitions = [canonical_labels(c.state.cluster_labels()) for c in (a, b)]
        np.testing.assert_array_equal(*partitions)


# Rows beyond those that are cut into pieces, and rows in blocks.


@pytest.fixture
def small_sample(monkeypatch):
    monkeypatch.setattr(_automatic, "MOST_SAMPLED", 100)


def test_rows_beyond_the_sample_join_the_clusters(groups, small_sample):
    X, labels = groups
    _, replicas = starts(DPMixture(init="auto"), X)
    for replica in replicas:
        np.testing.assert_array_equal(canonical_labels(replica.state.cluster_labels()), labels)


@combinations(
    sampled=[100, 20_000], sampler=[SubCluster(block_size=64), BlockedGibbs(block_size=64)]
)
@pytest.mark.some(1)
@pytest.mark.long
def test_blocks_start_at_the_clusters(sampler, sampled, groups, monkeypatch, tmp_path):
    monkeypatch.setattr(_automatic, "MOST_SAMPLED", sampled)
    X, labels = groups
    X = (X * [1e6, 1e-6]).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    settings = {**FAST, "n_warmup": 0, "init": "auto", "sampler": sampler}
    settings["concentration"] = 1e-6  # no row stands alone after the first iteration
    fits = [
        FiniteMixture(8, n_jobs=n_jobs, **settings).fit(rows)
        for rows, n_jobs in [(X, None), (mapped, 4), (np.asfortranarray(X), 2)]
    ]
    estimator = FiniteMixture(8, **settings)
    program = estimator._program(X, Gaussian(), sampler)
    for c in range(2):
        with program.resume(program.chain(0, c)) as chain:
            found = canonical_labels(chain.state.cluster_labels())
            np.testing.assert_array_equal(found, labels)
            assert chain.values.keys() == set(Gaussian().hyperparameters)
    for other in fits[1:]:
        assert_same_fit(fits[0], other, X)


@combinations(
    kind=["multinomial", "bernoulli"],
    sampler=["gibbs", SubCluster(block_size=16)],
    sampled=[15, 20_000],
)
def test_samples_of_other_rows(kind, sampler, sampled, monkeypatch):
    monkeypatch.setattr(_automatic, "MOST_SAMPLED", sampled)
    rng = np.random.default_rng(0)
    shares = np.where(np.arange(6) // 2 == np.arange(60)[:, None] % 3, 0.32, 0.01)
    if kind == "multinomial":
        likelihood = Multinomial(concentration=1.0)
        X = sp.csr_array(np.array([rng.multinomial(40, p / p.sum()) for p in shares]))
    else:
        likelihood = Bernoulli(a=1.0, b=1.0)
        X = (rng.random((60, 6)) < 3 * shares).astype(float)
        X[0, 0] = np.nan
    settings = {**FAST, "n_warmup": 0, "init": "auto", "sampler": sampler}
    one = DPMixture(likelihood=likelihood, **settings).fit(X)
    two = DPMixture(likelihood=likelihood, n_jobs=2, **settings).fit(X)
    assert_same_fit(one, two)
    if kind == "multinomial":
        np.testing.assert_array_equal(
            canonical_labels(one.label_samples_[0, 0]), np.arange(60) % 3
        )


@pytest.mark.slow
def test_dask_starts_in_a_single_cluster(groups, monkeypatch):
    da = pytest.importorskip("dask.array")
    # Until the second look at clusters of a sample of rows.
    monkeypatch.setattr(block_program, "LOOKS", (0, 2))
    settings = {**FAST, "sampler": SubCluster(), "point_estimate": "last"}
    rows = da.from_array(groups[0], chunks=(100, 2))
    auto = DPMixture(init="auto", **settings).fit(rows)
    assert_same_fit(auto, DPMixture(init="single", **settings).fit(rows))


def test_codes_of_labels_of_a_small_type():
    rows = open_rows(np.zeros((200, 1)), 64, 1)
    with rows:
        codes = rows.codes(np.arange(200, dtype=np.uint8))
    np.testing.assert_array_equal(codes, 2 * np.arange(200))
