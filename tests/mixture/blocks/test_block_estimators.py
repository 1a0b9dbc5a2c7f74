"""Estimators whose sampler visits rows in blocks: the same bits however the rows are visited."""

import pickle
import signal
import threading
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp
from reference.likelihoods import log_likelihood
from reference.priors import log_eppf
from sklearn.base import clone
from sklearn.metrics import v_measure_score
from support.cases import prior_name, prior_params
from support.designs import everyday
from support.fits import assert_same_fit

from skdpm import DPMixture, FiniteMixture, chains
from skdpm.mixture.blocks import program
from skdpm.mixture.blocks.program import BlockChain, idle_threads, open_rows
from skdpm.mixture.blocks.rows import MemoryRows, even_blocks
from skdpm.mixture.likelihoods import Gaussian, Multinomial
from skdpm.mixture.samplers import BlockedGibbs, SubCluster
from skdpm.papers import sub_cluster

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

SETTINGS = {"n_warmup": 5, "n_draws": 12, "n_chains": 2, "random_state": 0}
SAMPLERS = [
    SubCluster(block_size=50),
    SubCluster.from_paper("SUBC+SUPC APPROX", block_size=50),
    BlockedGibbs(block_size=50),
]
with_samplers = pytest.mark.parametrize("sampler", everyday(SAMPLERS, SAMPLERS[2]), ids=repr)


def make(sampler, **params):
    cls = FiniteMixture if isinstance(sampler, BlockedGibbs) else DPMixture
    return cls(sampler=sampler, **{**SETTINGS, **params})


@pytest.fixture(scope="module")
def X():
    """300 rows of four clusters that overlap a little; float32 holds them exactly."""
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0.0], [4.0, 1.0], [-3.0, 5.0], [1.0, -4.0]])
    rows = rng.normal(size=(300, 2)) + centres[rng.integers(0, 4, 300)]
    return rows.astype(np.float32).astype(float)


# Threads.


@pytest.mark.slow
@with_samplers
@pytest.mark.parametrize("n_chains", everyday([1, 2], 2))
def test_draws_do_not_depend_on_the_number_of_threads(sampler, n_chains, X):
    whole = make(sampler, n_chains=n_chains, init="kmeans").fit(X)
    assert whole.n_components_samples_.max() > 1
    for n_jobs in (2, 5):
        parts = make(sampler, n_chains=n_chains, n_jobs=n_jobs, init="kmeans").fit(X)
        assert_same_fit(parts, whole, X)


@pytest.mark.parametrize(
    "n_jobs, n_chains, n_threads", [(1, 1, 1), (3, 1, 3), (4, 2, 2), (5, 2, 2), (2, 4, 1)]
)
def test_threads_are_what_chains_leave(n_jobs, n_chains, n_threads, X):
    assert idle_threads(n_jobs, n_chains) == n_threads
    assert open_rows(X, 50, n_threads).n_threads == n_threads
    assert open_rows(X, 300, n_threads).n_threads == 1


def test_blocks():
    np.testing.assert_array_equal(even_blocks(300, 50), np.arange(0, 301, 50))
    np.testing.assert_array_equal(even_blocks(7, 3), [0, 2, 4, 7])
    np.testing.assert_array_equal(even_blocks(7, 7), [0, 7])
    np.testing.assert_array_equal(even_blocks(1, 100), [0, 1])


@pytest.mark.slow
@with_samplers
def test_blocks_larger_than_the_rows_are_one(sampler, X):
    whole = make(clone(sampler).set_params(block_size=300)).fit(X)
    assert_same_fit(make(clone(sampler).set_params(block_size=10**6)).fit(X), whole, X)


# Where chains start.


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_samples_of_rows(kind):
    """In their order, none of them twice, of each block its share; all where all are asked for."""
    X = np.arange(1.0, 101.0)[:, None]
    rows = open_rows(kind(X), 30)  # four blocks of 25

    def sample(n, number):
        found = rows.sample(n, (0, number))
        return found.toarray() if sp.issparse(found) else found

    np.testing.assert_array_equal(sample(100, 0), X)
    np.testing.assert_array_equal(sample(1000, 0), X)
    seen = np.concatenate([sample(10, number) for number in range(30)])
    assert (np.diff(seen.reshape(30, 10)) > 0).all()
    shares = np.bincount((seen[:10, 0].astype(int) - 1) // 25)
    assert shares.sum() == 10 and shares.min() >= 2 and shares.max() <= 3
    # 2.5 or so times in 30 draws each.
    assert len(np.unique(seen)) > 85


@with_samplers
def test_chains_start_from_clusters_of_a_sample(sampler, monkeypatch):
    """Before the first iteration, of 60 rows in 300 or of all."""
    rows = np.random.default_rng(0).normal(size=(300, 2)) + 100 * (np.arange(300) % 3)[:, None]
    for most in (60, 20_000):
        monkeypatch.setattr(program, "MOST_SAMPLED", most)
        fitted = make(sampler, n_warmup=0, n_draws=1, init="auto").fit(rows)
        assert (fitted.n_components_samples_ == 3).all()


@pytest.mark.parametrize("init", ["single", "random"])
def test_warm_up_finds_clusters_from_anywhere(init):
    """Sixteen of 25 rows each."""
    rng = np.random.default_rng(0)
    y = np.arange(400) % 16
    X = rng.normal(size=(400, 2)) + 9.0 * np.stack([y // 4, y % 4], axis=1)
    init = rng.integers(8, size=400) if init == "random" else init
    for n_warmup, found in ((0, False), (10, True)):
        settings = {"n_warmup": n_warmup, "n_draws": 2, "n_chains": 1, "point_estimate": "last"}
        fitted = make(SubCluster(), init=init, **settings).fit(X)
        assert (v_measure_score(y, fitted.labels_) > 0.98) == found


# Fits that go on.


@with_samplers
@pytest.mark.parametrize(
    "settings",
    [{"point_estimate": "vi"}, {"point_estimate": "map", "store_labels": False}],
    ids=["stored", "not stored"],
)
@pytest.mark.some(1)
@pytest.mark.long
def test_warm_start(sampler, settings, X):
    whole = make(sampler, **settings).fit(X)
    parts = make(sampler, **settings, warm_start=True, n_draws=5).fit(X)
    other = pickle.loads(pickle.dumps(parts)).set_params(n_draws=12).fit(X)
    assert_same_fit(other, whole, X)
    parts.set_params(n_draws=12, n_jobs=3).fit(X)
    assert_same_fit(parts, whole, X)


@with_samplers
@pytest.mark.long
def test_interruption(sampler, X, monkeypatch):
    """After Ctrl-C the attributes hold the draws so far, and a warm start goes on from there."""
    whole = make(sampler).fit(X)
    original, count = BlockChain.step, 0

    def step(self, *args):
        nonlocal count
        original(self, *args)
        count += 1
        if count == 20:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(chains, "TURN", 0.0)
    monkeypatch.setattr(BlockChain, "step", step)
    parts = make(sampler, warm_start=True)
    with pytest.warns(RuntimeWarning, match="interrupted"), pytest.raises(KeyboardInterrupt):
        parts.fit(X)
    assert parts.log_joint_samples_.shape == (2, 5)
    assert_same_fit(parts.fit(X), whole, X)


@with_samplers
@pytest.mark.parametrize("point_estimate", everyday(["map", "last"], "map"))
@pytest.mark.long
def test_labels_without_stored_draws(sampler, point_estimate, X):
    kept = make(sampler, point_estimate=point_estimate).fit(X)
    loose = make(sampler, point_estimate=point_estimate, store_labels=False).fit(X)
    assert not hasattr(loose, "label_samples_")
    np.testing.assert_array_equal(loose.labels_, kept.labels_)
    assert loose.labels_.dtype == kept.labels_.dtype
    np.testing.assert_allclose(loose.weights_, kept.weights_, rtol=1e-12)
    for name, values in loose.cluster_params_.items():
        np.testing.assert_allclose(values, kept.cluster_params_[name], rtol=1e-9, atol=1e-12)


# Rows of all kinds.


@pytest.mark.slow
@pytest.mark.parametrize("sampler", everyday(SAMPLERS, SAMPLERS[0]), ids=repr)
def test_rows_in_another_guise(sampler, X, tmp_path):
    np.save(tmp_path / "X.npy", X.astype(np.float32))
    whole = make(sampler).fit(X)
    for guise in (
        X.astype(np.float32),
        np.asfortranarray(X),
        np.load(tmp_path / "X.npy", mmap_mode="r"),
        X.astype(">f8"),
        np.repeat(X, 2, axis=0)[::2],
        X.tolist(),
    ):
        assert_same_fit(make(sampler).fit(guise), whole, X)


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
@pytest.mark.filterwarnings("ignore")
def test_numbers_without_fractions_are_judged(dtype, X):
    """Samplers of blocks do not copy them to doubles, nor may the checks of columns fail."""
    rows = np.round(X - X.min()).astype(dtype)
    assert np.isfinite(make(SubCluster()).fit(rows).log_joint_samples_).all()


@pytest.mark.slow
@with_samplers
def test_integers(sampler, X):
    rows = np.round(X - X.min())
    whole = make(sampler).fit(rows)
    for dtype in (np.int64, np.uint8):
        assert_same_fit(make(sampler).fit(rows.astype(dtype)), whole, rows)


@with_samplers
@pytest.mark.long
def test_sparse_rows(sampler):
    rng = np.random.default_rng(0)
    profiles = np.array([[5, 1, 1, 1, 0.2], [0.2, 1, 1, 1, 5]])
    rows = rng.poisson(profiles[rng.integers(0, 2, 120)]).astype(float)
    whole = make(sampler, likelihood="multinomial").fit(rows)
    # The coefficients of the rows are no part of the statistics, but of the log joint.
    labels, concentration = whole.label_samples_[1, -1], whole.concentration_samples_[1, -1]
    sizes = np.unique(labels, return_counts=True)[1]
    hyper = {"concentration": whole.hyperparameter_samples_["concentration"][1, -1]}
    expected = log_likelihood(rows, labels, "multinomial", **hyper)
    expected += log_eppf(sizes, prior_name(whole), **prior_params(whole, concentration))
    assert whole.log_joint_samples_[1, -1] == pytest.approx(expected, rel=1e-9)
    for guise in (sp.csr_array(rows), sp.csr_matrix(rows.astype(np.int32))):
        parts = make(sampler, likelihood="multinomial").fit(guise)
        np.testing.assert_array_equal(parts.label_samples_, whole.label_samples_)
        np.testing.assert_allclose(parts.log_joint_samples_, whole.log_joint_samples_)


@with_samplers
@pytest.mark.parametrize("value, what", [(np.nan, "NaN"), (np.inf, "infinity")])
def test_a_bad_entry_names_its_column(sampler, value, what, X, monkeypatch):
    def start(*args):
        raise AssertionError("sampling began")

    monkeypatch.setattr("skdpm.mixture.blocks.program.BlockProgram.advance", start)
    for dtype in (float, np.float32):
        rows = X.astype(dtype)
        rows[270, 1] = value
        with pytest.raises(ValueError, match=f"{what} in (column 1|X: .*cannot draw)"):
            make(sampler).fit(rows)


@with_samplers
def test_a_single_row(sampler):
    rows = np.array([[0.5, -1.0]])
    likelihood = Gaussian(mean=0.0, scale=1.0)
    estimator = make(sampler, likelihood=likelihood).fit(rows)
    assert estimator.labels_.tolist() == [0]
    assert (estimator.n_components_samples_ == 1).all()


@pytest.mark.slow
def test_rows_are_not_copied():
    """A fit takes little memory beside rows and labels."""
    rows = np.random.default_rng(0).normal(size=(1_600_000, 8)).astype(np.float32)
    params = {"n_chains": 1, "n_warmup": 0, "n_draws": 3, "point_estimate": "last"}
    estimator = make(SubCluster(), store_labels=False, **params)
    tracemalloc.start()
    try:
        estimator.fit(rows)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    labels = 8 * len(rows)  # of the result
    print(f"peak {peak / 1e6:.1f} MB, rows {rows.nbytes / 1e6:.1f}, labels {labels / 1e6:.1f}")
    assert peak - labels < 0.5 * rows.nbytes


# Results.


@with_samplers
@pytest.mark.parametrize("resampled", [True, False])
def test_log_joint_of_every_draw(sampler, resampled, X):
    params = {"mean": [0.2, 0.1], "mean_precision": 0.3, "df": 4.0, "scale": np.eye(2)}
    rows = X[:40]
    settings = {} if resampled else {"concentration": 1.5}
    estimator = make(sampler, likelihood=Gaussian(**params), **settings).fit(rows)
    assert (len(np.unique(estimator.concentration_samples_)) > 1) == resampled
    for chain in range(2):
        for s, labels in enumerate(estimator.label_samples_[chain]):
            concentration = estimator.concentration_samples_[chain, s]
            sizes = np.unique(labels, return_counts=True)[1]
            expected = log_likelihood(rows, labels, "gaussian", **params) + log_eppf(
                sizes, prior_name(estimator), **prior_params(estimator, concentration)
            )
            assert estimator.log_joint_samples_[chain, s] == pytest.approx(expected, rel=1e-9)
            assert estimator.n_components_samples_[chain, s] == len(sizes)


@with_samplers
@pytest.mark.parametrize("init", everyday(["kmeans", "labels"], "labels"))
@pytest.mark.long
def test_init(sampler, init, X):
    if init == "labels":
        init = np.where(X[:, 0] > 2, "right", "left")
    estimator = make(sampler, init=init).fit(X)
    assert estimator.labels_.shape == (300,)
    assert (make(sampler, init=init).fit(X).labels_ == estimator.labels_).all()


@with_samplers
@pytest.mark.long
def test_new_rows(sampler, X):
    estimator = make(sampler, n_warmup=20).fit(X)
    new = X[:50] + 0.01
    probabilities = estimator.predict_proba(new)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    np.testing.assert_array_equal(estimator.predict(new), probabilities.argmax(axis=1))
    assert np.isfinite(estimator.score_samples(new)).all()
    rows, labels = estimator.sample(20)
    assert rows.shape == (20, 2) and labels.max() < estimator.n_clusters_
    if isinstance(sampler, SubCluster):
        moves = {"sweep", "random_split", "random_merge"}
        if isinstance(sampler, sub_cluster.PaperSubCluster):
            moves |= {"sub_cluster_split"}
        else:
            moves |= {"launched_split", "launched_merge"}
        assert set(estimator.acceptance_rate_) == moves
        assert all(values.shape == (2,) for values in estimator.acceptance_rate_.values())
        assert (estimator.acceptance_rate_["sweep"] > 0).all()
    else:
        assert estimator.acceptance_rate_ == {}


@pytest.mark.slow
def test_clusters_far_apart_are_found():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, 2000)
    rows = rng.normal(size=(2000, 2)) + 12 * rng.normal(size=(5, 2))[truth]
    estimator = DPMixture(sampler="sub_cluster", n_warmup=60, n_draws=20, n_chains=2)
    estimator.set_params(random_state=1, point_estimate="map").fit(rows)
    sizes = [len(np.unique(truth[estimator.labels_ == k])) for k in range(5)]
    assert sizes == [1] * 5 and (estimator.labels_ < 5).mean() > 0.99


# Bad parameters.


@pytest.mark.parametrize(
    "sampler, name",
    [
        (SubCluster(block_size=0), "SubCluster.block_size"),
        (SubCluster(block_size=2.0), "SubCluster.block_size"),
        (SubCluster(block_size=None), "SubCluster.block_size"),
        (SubCluster.from_paper("SUBC+SUPC", block_size=0), "SubCluster.block_size"),
        (SubCluster.from_paper("SUBC+SUPC").set_params(variant="SUPC"), "SubCluster.variant"),
        (BlockedGibbs(block_size=-1), "BlockedGibbs.block_size"),
        (BlockedGibbs(block_size="1"), "BlockedGibbs.block_size"),
    ],
    ids=repr,
)
def test_bad_parameters(sampler, name, X):
    with pytest.raises(ValueError, match=name):
        FiniteMixture(sampler=sampler).fit(X)


def test_variants_of_the_paper():
    """They are scikit-learn objects, and none of their settings is in the everyday signature."""
    assert list(SubCluster().get_params()) == ["block_size"]
    with pytest.raises(ValueError, match=r"from_paper must be one of SUBC, .*; got 'X'"):
        SubCluster.from_paper("X")
    for variant in SubCluster.from_paper.variants:
        sampler = clone(SubCluster.from_paper(variant, block_size=50))
        assert sampler.get_params() == {"variant": variant, "block_size": 50}
        in_groups, wait = "SUPC" in variant, "APPROX" not in variant
        assert sampler.needs_labels == in_groups
        kernel = sampler.kernel()
        assert (kernel.in_groups, kernel.wait, kernel.looks_around) == (in_groups, wait, False)


@pytest.mark.parametrize("variant", everyday(["SUBC", "SUBC APPROX"], "SUBC"))
@pytest.mark.long
def test_published_splits_go_on_after_the_warm_up(variant):
    """Sub-clusters are split in draws, and no close clusters are merged but at random."""
    rows = np.repeat(np.arange(3.0), 9)[:, None]
    sampler = SubCluster.from_paper(variant)
    settings = {"n_warmup": 5, "n_draws": 60, "n_chains": 1, "init": "single"}
    estimator = DPMixture(sampler=sampler, random_state=0, **settings).fit(rows)
    assert list(estimator.acceptance_rate_) == [
        "sweep",
        "sub_cluster_split",
        "random_split",
        "random_merge",
    ]
    assert estimator.acceptance_rate_["sub_cluster_split"] > 0


@pytest.mark.parametrize("discount", [0.0, 0.3])
def test_blocked_gibbs_needs_a_number_of_components(discount, X):
    with pytest.raises(ValueError, match=r"BlockedGibbs.*FiniteMixture.*SubCluster"):
        DPMixture(sampler="blocked_gibbs", discount=discount).fit(X)


def test_blocked_gibbs_refuses_more_components_than_fit_into_memory(X):
    with pytest.raises(ValueError, match="n_components must be at most"):
        FiniteMixture(2**53, sampler="blocked_gibbs").fit(X)


@pytest.mark.parametrize("sampler", ["sub_cluster", "blocked_gibbs"])
def test_likelihoods_that_cannot_be_instantiated(sampler):
    with pytest.raises(ValueError, match=r"Relational.*parameters of clusters cannot be drawn"):
        FiniteMixture(likelihood="relational", sampler=sampler).fit(np.ones((4, 4)))


def test_a_failing_block_ends_the_fit(X, monkeypatch):
    """What a thread raises reaches the caller."""

    def visit_block(*args):
        raise FloatingPointError("a row has no cluster of positive weight")

    monkeypatch.setattr("skdpm.mixture.blocks.rows.visit_block", visit_block)
    with pytest.raises(FloatingPointError, match="positive weight"):
        DPMixture(sampler=SubCluster(block_size=50), n_jobs=2, n_chains=1).fit(X)


def test_chains_have_threads_of_their_own(X):
    """One chain that ends does not end the threads of another."""
    rows = MemoryRows(X, 50, n_threads=2)

    def other_chain():
        with rows:
            pass

    with rows:
        thread = threading.Thread(target=other_chain)
        thread.start()
        thread.join()
        assert rows.log_constant(Gaussian().resolve(X)) == 0.0


@pytest.mark.slow
def test_clusters_that_are_clear_are_found():
    """Sub-clusters whose labels no longer change have burned in, too."""
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(60, 0.05), size=3)
    truth = rng.integers(0, 3, 900)
    X = rng.multinomial(40, topics[truth])
    estimator = DPMixture(
        likelihood=Multinomial(concentration=1.0),
        sampler="sub_cluster",
        n_warmup=150,
        n_draws=2,
        n_chains=1,
        point_estimate="last",
        random_state=0,
    ).fit(X)
    for cluster in range(3):
        assert (np.bincount(estimator.labels_[truth == cluster]).max()) > 0.98 * (
            truth == cluster
        ).sum()
    assert estimator.n_clusters_ >= 3
