"""A likelihood from elsewhere whose clusters are coupled, with no more than the guide asks for.

It is a skeleton of doc/, outside the tree: compiled, then tested as skdpm's own are. It leaves
merges, log_merge_many and states set aside to the base class, which moves items one by one.
"""

import importlib
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from reference.arm import canonical, partition_tuples, paths
from reference.likelihoods import (
    LOG_LIKELIHOODS,
    log_likelihood_link_counts,
    log_posterior,
)
from reference.simulate import PRIOR_CASES
from sklearn.base import clone
from sklearn.metrics import v_measure_score
from support.arm import VARIANTS, all_past, draw_phi, kernel_with, partial_posterior
from support.cases import FAST, reference_scores
from support.exactness import (
    convergence_run,
    invariance_run,
    make_prior,
    make_state,
    record_worst,
)
from support.kernels import bind
from support.probes import ARMProbe, Probe, StateProbe, draw_pair
from support.pvalues import assert_p_matrix, chi_squared_p
from support.skeletons import build

from skdpm import DPMixture
from skdpm.mixture.samplers import ARM, SAMS, Gibbs, SplitMerge

pytestmark = [
    pytest.mark.slow,  # a package to compile
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

PARAMS = {"shape": 0.8, "rate": 0.6}


@pytest.fixture(scope="module")
def LinkCounts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coupled")
    build("coupled_likelihood", folder)
    sys.path.insert(0, str(folder))
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(LOG_LIKELIHOODS, "link_counts", log_likelihood_link_counts)
            yield importlib.import_module("skdpm_link_counts").LinkCounts
    finally:
        sys.path.remove(str(folder))


def network(n, seed=0):
    """Counts between nodes of three clusters, and on the diagonal, which is to be ignored."""
    rng = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    means = np.array([[6.0, 1.0, 0.2], [1.0, 0.3, 3.0], [0.2, 3.0, 2.0]])[truth][:, truth]
    X = np.triu(rng.poisson(means)).astype(float)
    return X + X.T, truth


def state_of(LinkCounts, n, prior_case="dp", **changes):
    prior, params = PRIOR_CASES[prior_case]
    return make_state(
        LinkCounts(**{**PARAMS, **changes}), network(n)[0], make_prior(prior, n, **params)
    )


def log_p(X, labels):
    """By the reference, of the nodes that have a label."""
    kept = np.flatnonzero(np.asarray(labels) >= 0)
    return log_likelihood_link_counts(X[np.ix_(kept, kept)], np.asarray(labels)[kept], **PARAMS)


# Laws.


def test_states_agree_with_their_labels(LinkCounts, seed_sequence):
    """Whatever has been done to a state: its densities, and those of a node that is to join."""
    rng = np.random.default_rng(seed_sequence)
    n = 14
    X, state = network(n)[0], state_of(LinkCounts, n)
    probe, stored = StateProbe(state), None
    for _ in range(400):
        labels = state.cluster_labels()
        inside, outside = np.flatnonzero(labels >= 0), np.flatnonzero(labels < 0)
        what = rng.choice(
            ["detach", "attach", "dissolve", "join", "store", "recall", "grow"],
            p=[0.3, 0.42, 0.03, 0.07, 0.06, 0.08, 0.04],
        )
        if what == "detach" and len(inside):
            probe.detach(int(rng.choice(inside)))
        elif what == "attach" and len(outside):
            probe.reserve(state.n_clusters + 2)
            probe.attach(int(rng.choice(outside)), int(rng.integers(state.n_clusters + 1)))
        elif what == "dissolve" and state.n_clusters:
            probe.dissolve(int(rng.integers(state.n_clusters)))
        elif what == "join" and state.n_clusters > 1:
            probe.join(*rng.permutation(state.n_clusters)[:2].tolist())
        elif what == "store":
            stored = probe.store(), labels, probe.slots(), state.dump(), probe.log_likelihood()
        elif what == "recall" and stored:
            probe.recall(stored[0])
            np.testing.assert_array_equal(state.cluster_labels(), stored[1])
            np.testing.assert_array_equal(probe.slots(), stored[2])
            np.testing.assert_array_equal(state.dump(), stored[3])
            assert probe.log_likelihood() == stored[4]
        elif what == "grow":
            probe.reserve(state.model.n_slots + 1)
        labels = state.cluster_labels()
        assert probe.log_likelihood() == pytest.approx(log_p(X, labels), rel=1e-11, abs=1e-11)
        if (labels < 0).any():
            i = int(rng.choice(np.flatnonzero(labels < 0)))
            expected = []
            for k in range(state.n_clusters + 1):
                expected.append(log_p(X, np.where(np.arange(n) == i, k, labels)))
            expected = np.array(expected) - log_p(X, labels)
            np.testing.assert_allclose(probe.log_predictive(i), expected, rtol=1e-9, atol=1e-9)


def bound(LinkCounts, X, labels, n_slots):
    """A probe of the clusters 0, ..., `n_slots` - 1 of some nodes, and the labels."""
    likelihood = LinkCounts(**PARAMS).resolve(X)
    model = bind(likelihood, likelihood.encode(X), len(X))
    probe, at = Probe(model, n_slots), np.full(len(X), -1, dtype=np.intp)
    model.bind_labels(at)
    for k in range(n_slots):
        assert probe.acquire() == k
    for i in np.flatnonzero(labels >= 0):
        probe.add(labels[i], i)
        at[i] = labels[i]
    return probe, at


def test_merges(LinkCounts, seed_sequence):
    """What a merge would gain, which leaves no trace, as nothing does that computes rows anew; and
    what it leaves."""
    rng = np.random.default_rng(seed_sequence)
    for n_labels in (2, 3, 5):
        X = network(12, n_labels)[0]
        labels = np.unique([-1, *rng.integers(-1, n_labels, size=11)], return_inverse=True)[1] - 1
        slots = np.arange(labels.max() + 2)  # the last one is empty
        probe, at = bound(LinkCounts, X, labels, len(slots))
        rows = probe.model.dump(slots)
        for src in slots:
            others = rng.permutation(np.delete(slots, src))
            merged = [np.where(labels == src, k, labels) for k in others]
            expected = np.array([log_p(X, z) for z in merged]) - log_p(X, labels)
            found = probe.log_merge_many(others, src)
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)
            np.testing.assert_array_equal(probe.model.dump(slots), rows)
            np.testing.assert_array_equal(at, labels)
        for k in slots:
            probe.rebuild(k, np.flatnonzero(labels == k))
            np.testing.assert_array_equal(probe.model.dump(slots), rows)
            np.testing.assert_array_equal(at, labels)
        dst, src = (int(k) for k in rng.permutation(slots)[:2])
        probe.merge(dst, src)
        at[labels == src] = dst
        direct, _ = bound(LinkCounts, X, np.where(labels == src, dst, labels), len(slots))
        np.testing.assert_array_equal(probe.model.dump(slots), direct.model.dump(slots))


# Proposals of ARM.


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_proposals(LinkCounts, n, variant, seed_sequence):
    """From every partition: those of the reference, with its probabilities, which sum to one."""
    rng = np.random.default_rng(seed_sequence)
    for prior in PRIOR_CASES:
        case = SimpleNamespace(X=network(n)[0], params=PARAMS)
        posterior = partial_posterior("link_counts", case, prior)
        state = state_of(LinkCounts, n, prior)
        phi, blocks = draw_phi(n, rng, variant)
        probe = ARMProbe(state, blocks)
        targets = partition_tuples(n)
        for z in targets:
            if posterior.log_v[max(z) + 1] == -np.inf:
                continue
            found = np.full(len(targets), -np.inf)
            for t, target in enumerate(targets):
                labels, found[t] = probe.propose(z, *phi, target=target)
                assert found[t] == -np.inf or tuple(labels) == canonical(target)
            assert np.exp(found).sum() == pytest.approx(1.0, rel=0, abs=1e-12)
            law = dict(paths(posterior, z, phi, blocks))
            expected = [law.get(target, -np.inf) for target in targets]
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


# Samplers.

SAMPLERS = [
    Gibbs(),
    SAMS(gibbs_sweeps=0),
    SAMS(anchors="neighbours", gibbs_sweeps=0),
    SplitMerge(n_restricted_scans=1, gibbs_sweeps=0),
    SplitMerge.from_paper("bSM", n_restricted_scans=1, gibbs_sweeps=0),
    *(ARM(blocks=blocks, gibbs_sweeps=0) for blocks in ("all", "pair", "none")),
    ARM(n_history_chains=0, gibbs_sweeps=0),
]


def kernel_of(sampler):
    """With every partition as a past state, where the sampler looks at past states."""
    return kernel_with(sampler, all_past(5) if getattr(sampler, "n_companions", 0) else {})


def posterior_of(prior_case):
    prior, params = PRIOR_CASES[prior_case]
    return log_posterior(
        network(5)[0], "link_counts", prior, likelihood_params=PARAMS, prior_params=params
    )


def test_samplers_that_learn_have_learnt():
    """What the next tests give them."""
    with_past = [s for s in SAMPLERS if getattr(s, "n_companions", 0)]
    assert len(with_past) == 4
    for sampler in with_past:
        assert draw_pair(kernel_of(sampler).history, 0, np.random.PCG64(0)) is not None


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_invariance(LinkCounts, sampler, seed_sequence, record_property):
    """Draws from the enumerated posterior stay such draws."""
    runs = {
        prior: invariance_run(
            state_of(LinkCounts, 5, prior), kernel_of(sampler), posterior_of(prior), n_starts=6_000
        )
        for prior in PRIOR_CASES
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_convergence(LinkCounts, sampler, seed_sequence, record_property):
    """From one cluster to the enumerated posterior."""
    runs = {
        prior: convergence_run(
            state_of(LinkCounts, 5, prior),
            kernel_of(sampler),
            posterior_of(prior),
            np.zeros(5, dtype=np.int64),
            n_chains=1_000,
            n_iterations=60,
        )
        for prior in PRIOR_CASES
    }
    record_worst(record_property, assert_p_matrix(runs, seed_sequence=seed_sequence), len(runs))


@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_enumeration_sees_a_wrong_likelihood(LinkCounts, sampler, seed_sequence):
    run = invariance_run(
        state_of(LinkCounts, 5, shape=1.6), kernel_of(sampler), posterior_of("dp"), n_starts=40_000
    )
    cells = run(seed_sequence, 1)
    assert chi_squared_p(cells.counts, cells.probabilities) < 1e-6


# In an estimator.


@pytest.mark.parametrize("sampler", ["auto", ARM(), SplitMerge.from_paper("bSM")], ids=repr)
def test_in_an_estimator(LinkCounts, sampler):
    """Clusters are found, of new nodes too, whose densities are those of the reference."""
    X, truth = network(45)
    X, new, truth_new = X[:36, :36], X[36:, :36], truth[36:]
    model = DPMixture(
        likelihood=LinkCounts(),
        sampler=sampler,
        n_chains=2,
        n_warmup=50,
        n_draws=50,
        concentration=1.0,
        random_state=0,
    )
    model = clone(model).set_params(likelihood__shape=0.8, likelihood__rate=0.6).fit(X)
    assert v_measure_score(truth[:36], model.labels_) == 1.0
    np.testing.assert_array_equal(
        model.predict(new), [model.labels_[np.flatnonzero(truth == k)[0]] for k in truth_new]
    )
    means = model.cluster_params_["means"]
    np.testing.assert_array_equal(means, means.T)
    k, l = model.labels_[0], model.labels_[1]
    counts = X[np.ix_(model.labels_ == k, model.labels_ == l)]
    assert means[k, l] == pytest.approx((0.8 + counts.sum()) / (0.6 + counts.size), rel=1e-12)
    within = X[np.ix_(model.labels_ == k, model.labels_ == k)][np.triu_indices(12, 1)]
    assert means[k, k] == pytest.approx((0.8 + within.sum()) / (0.6 + within.size), rel=1e-12)


@pytest.mark.parametrize(
    "sampler",
    ["auto", "gibbs", ARM(), ARM.from_paper("ARM", blocks="all"), SplitMerge.from_paper("bSM")],
    ids=repr,
)
def test_continuation(LinkCounts, sampler):
    """In parts, pickled on the way, or in two threads: the same bits as at once."""
    X = network(16)[0]
    settings = {**FAST, "sampler": sampler, "likelihood": LinkCounts(**PARAMS)}
    settings |= {"n_warmup": 21}
    whole = DPMixture(**settings).set_params(n_draws=30).fit(X)
    parts = DPMixture(**settings, warm_start=True, n_jobs=2).fit(X)
    parts = pickle.loads(pickle.dumps(parts)).set_params(n_draws=30).fit(X)
    np.testing.assert_array_equal(whole.label_samples_, parts.label_samples_)
    np.testing.assert_array_equal(whole.log_joint_samples_, parts.log_joint_samples_)
    assert len(np.unique(whole.log_joint_samples_)) > 5
    new = network(20)[0][16:, :16]
    scores = whole.score_samples(new)
    np.testing.assert_array_equal(scores, parts.score_samples(new))
    assert np.isfinite(scores).all()


def test_scores_of_new_nodes(LinkCounts):
    X = network(16)[0]
    case = SimpleNamespace(X=X, params=PARAMS)
    settings = {**FAST, "sampler": ARM(), "concentration": 1.0}
    model = DPMixture(likelihood=LinkCounts(**PARAMS), **settings).fit(X)
    new = network(20)[0][16:, :16]
    expected = reference_scores(model, case, "link_counts", new)
    np.testing.assert_allclose(model.score_samples(new), expected, rtol=1e-10)


def test_bad_input(LinkCounts):
    X = network(6)[0]
    asymmetric, halves, short = X.copy(), X.copy(), X[:, :5]
    asymmetric[0, 1] += 1
    halves[0, 1] = halves[1, 0] = 0.5
    model = DPMixture(likelihood=LinkCounts())
    for bad in (asymmetric, short):
        with pytest.raises(ValueError, match="square, symmetric"):
            model.fit(bad)
    with pytest.raises(ValueError, match=r"LinkCounts needs counts.*column [01] of X holds 0\.5"):
        model.fit(halves)
    with pytest.raises(ValueError, match=r"LinkCounts\.rate"):
        model.set_params(likelihood__rate=0.0).fit(X)
