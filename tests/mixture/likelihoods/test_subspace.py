"""Clusters along the principal axes of all rows, and what "auto" stands for.

The laws of its kernels are tested with those of the others (test_laws.py, test_hyperparameters.py,
test_parametric.py); here is what only this likelihood has.
"""

import tracemalloc
from functools import partial

import numpy as np
import pytest
from reference.likelihoods import log_marginal_subspace, log_posterior, variances_of_rest
from scipy import integrate, stats
from scipy.special import gammaln, logsumexp
from sklearn.decomposition import PCA
from sklearn.metrics import normalized_mutual_info_score
from support.exactness import (
    BlockRuns,
    convergence_run,
    invariance_run,
    make_prior,
    make_state,
)
from support.kernels import bind
from support.laws import numbers_of
from support.probes import Probe
from support.pvalues import assert_p_matrix

from skdpm import DPMixture, FiniteMixture
from skdpm.datasets import make_embeddings
from skdpm.mixture.answers import conditional
from skdpm.mixture.blocks.moves.random import RandomMoves
from skdpm.mixture.blocks.program import open_rows
from skdpm.mixture.blocks.rows import MemoryRows
from skdpm.mixture.likelihoods import Gaussian, Poisson, Product, Subspace
from skdpm.mixture.likelihoods.composite.automatic import ALWAYS_FULL, MOST_FULL
from skdpm.mixture.likelihoods.laws import laws
from skdpm.mixture.likelihoods.subspace import subspace, subspace_laws
from skdpm.mixture.samplers import PGSM, SAMS, Alternate, Gibbs, SubCluster
from skdpm.mixture.samplers.sub_cluster import SubClusterKernel

X_FEW = np.array(
    [
        [1.8, 1.0, 0.3, 0.9],
        [0.1, -1.0, 0.2, -0.4],
        [-0.3, -1.4, -0.3, -0.9],
        [2.1, 0.4, -0.1, 0.8],
        [0.0, -1.2, 0.1, 0.3],
    ]
)
PARAMS = {"n_axes": 2, "mean": [0.2, -0.1], "mean_precision": 0.7, "df": 2.5, "scale": [0.9, 0.4]}
PRIOR = {"concentration": 1.3}
RNG = np.random.default_rng(0)
X_MANY = RNG.standard_normal((40, 6)) * [3.0, 2.0, 1.0, 0.5, 0.3, 0.1] + 5.0
FAST = {"n_warmup": 3, "n_draws": 3, "n_chains": 2, "random_state": 0}


def posterior():
    return log_posterior(
        X_FEW,
        partial(log_marginal_subspace, X_fit=X_FEW),
        "dp",
        likelihood_params=PARAMS,
        prior_params=PRIOR,
    )


def rows_of(X, condensed):
    """Rows in blocks of two, as samplers keep them or as they come."""
    rows = open_rows(X, 2)
    if condensed:
        rows.condense(Subspace(**PARAMS).resolve(X))
    return rows


def test_samplers_against_the_enumerated_posterior(seed_sequence):
    law = posterior()
    assert 0.05 < law.probabilities.max() < 0.6
    prior = make_prior("dp", len(X_FEW), **PRIOR)
    likelihood = Subspace(**PARAMS)
    runs = {}
    for sampler in (Gibbs(), PGSM(n_particles=3, gibbs_sweeps=0), SAMS(gibbs_sweeps=0)):
        state = make_state(likelihood, X_FEW, prior)
        runs[repr(sampler)] = invariance_run(state, sampler.kernel(), law, n_starts=5000)
    state = make_state(likelihood, X_FEW, prior)
    runs["from one cluster"] = convergence_run(
        state, Gibbs().kernel(), law, np.zeros(5, np.int64), n_chains=1500, n_iterations=15
    )
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.slow
def test_blocks_against_the_enumerated_posterior(seed_sequence):
    """Rows that are condensed and rows that are not."""
    law = posterior()
    prior = make_prior("dp", len(X_FEW), **PRIOR)
    runs = {}
    for condensed in (False, True):
        kernel = SubClusterKernel(random_moves=RandomMoves(), sub_splits=False)
        likelihood = Subspace(**PARAMS)
        block_runs = BlockRuns(likelihood, X_FEW, prior, kernel, open_rows(X_FEW, 2))
        block_runs.rows = rows_of(X_FEW, condensed)
        runs[f"condensed: {condensed}"] = invariance_run(
            block_runs, block_runs, law, n_starts=5000
        )
    assert_p_matrix(runs, seed_sequence=seed_sequence)


def test_axes_are_the_principal_ones():
    likelihood = Subspace(3).resolve(X_MANY)
    pca = PCA(3).fit(X_MANY)
    np.testing.assert_allclose(likelihood.center_, pca.mean_)
    signs = np.sign(np.sum(pca.components_ * likelihood.axes_, axis=1))
    np.testing.assert_allclose(likelihood.axes_, signs[:, None] * pca.components_, atol=1e-10)
    largest = np.abs(likelihood.axes_).argmax(axis=1)
    assert (likelihood.axes_[np.arange(3), largest] > 0.0).all()


def test_far_entries_leave_the_axes():
    """And the variances along them."""
    X = np.random.default_rng(0).normal(size=(400, 6)) * [1.0, 4.0, 1.0, 1.0, 1.0, 1.0]
    expected = Subspace(6).resolve(X)
    X[::3, 0] = 1e20
    likelihood = Subspace(6).resolve(X)
    assert abs(likelihood.axes_[0] @ expected.axes_[0]) > 0.99
    np.testing.assert_allclose(likelihood._inner._spread, expected._inner._spread, rtol=0.06)
    halves = Subspace(6).merge_summaries(*map(Subspace(6).summarise, (X[:150], X[150:])))
    merged = Subspace(6).resolve_summary(halves)
    np.testing.assert_allclose(merged._inner._spread, likelihood._inner._spread, rtol=0.02)


def test_all_axes_are_a_full_gaussian():
    """A rotation, of which neither prior nor density knows."""
    hyper = {"mean_precision": 0.4, "df": 8.5, "scale": 1.7}
    X = X_MANY
    probabilities = []
    for likelihood in (Subspace(99, mean=0.0, **hyper), Gaussian(mean=X.mean(axis=0), **hyper)):
        likelihood = likelihood.resolve(X)
        model = bind(likelihood, likelihood.encode(X), len(X))
        state = make_state(likelihood, X, make_prior("dp", len(X), **PRIOR))
        state.assign(np.arange(len(X)) % 3)
        log_marginals = model.log_marginals(state.dump())
        model.load(state.dump())
        probabilities.append((log_marginals, model.log_predictive_rows([0, 1, 2, 3], 0, len(X))))
    for actual, desired in zip(*probabilities, strict=True):
        np.testing.assert_allclose(actual, desired, rtol=1e-9, atol=1e-9)


def test_clusters_opened_after_a_change_of_hyperparameters():
    likelihood = Subspace(2).resolve(X_MANY)
    other = likelihood.at({"mean_precision": 3.0, "scale": 2.0 * likelihood.scale})
    model = bind(likelihood, likelihood.encode(X_MANY), len(X_MANY))
    probe = Probe(model, 3)
    model.set_hyperparameters(other.flat_hyperparameters())
    slot = probe.acquire()
    hyper = numbers_of(other)
    expected = [log_marginal_subspace(x[None], X_MANY, **hyper) for x in X_MANY[:5]]
    np.testing.assert_allclose([probe.log_predictive(slot, i) for i in range(5)], expected)


def test_condensed_rows_are_the_same_rows():
    likelihood = Subspace(2).resolve(X_MANY)
    condensed = likelihood.condense(X_MANY)
    assert condensed.shape == (40, 3)
    for actual, desired in zip(
        likelihood.encode(condensed).values(), likelihood.encode(X_MANY).values(), strict=True
    ):
        np.testing.assert_array_equal(actual, desired)
    np.testing.assert_array_equal(
        likelihood.log_constants(condensed), likelihood.log_constants(X_MANY)
    )
    np.testing.assert_array_equal(
        likelihood.coordinates(condensed), likelihood.coordinates(X_MANY)
    )
    # Each row by itself.
    for i in (0, 17):
        np.testing.assert_array_equal(likelihood.condense(X_MANY[i : i + 1])[0], condensed[i])


def test_rows_that_are_not_condensed_give_the_same_fit(monkeypatch):
    settings = {"likelihood": Subspace(2), "sampler": SubCluster(block_size=16), **FAST}
    one = DPMixture(**settings).fit(X_MANY)
    monkeypatch.setattr(MemoryRows, "condense", lambda self, likelihood: None)
    other = DPMixture(**settings).fit(X_MANY)
    np.testing.assert_array_equal(one.label_samples_, other.label_samples_)
    np.testing.assert_array_equal(one.log_joint_samples_, other.log_joint_samples_)


@pytest.mark.slow
def test_dask(monkeypatch):
    """Chunks are as blocks; nothing is condensed there."""
    da = pytest.importorskip("dask.array")
    settings = {
        "likelihood": Subspace(2),
        "sampler": SubCluster(block_size=20),
        "init": "single",
        "point_estimate": "last",
        "store_labels": False,
        **FAST,
    }
    one = DPMixture(**settings).fit(X_MANY)
    other = DPMixture(**settings).fit(da.from_array(X_MANY, chunks=(20, 6)))
    np.testing.assert_allclose(other.log_joint_samples_, one.log_joint_samples_, rtol=1e-9)
    np.testing.assert_array_equal(other.labels_.compute(), one.labels_)


def test_draws_follow_the_density(seed_sequence):
    """Of rows drawn from a cluster, along each axis: Student t, beyond them the common law."""
    likelihood = Subspace(2, mean=[0.5, -0.5], mean_precision=0.4, df=3.5, scale=[2.0, 1.0])
    likelihood = likelihood.resolve(X_MANY)
    pca = PCA().fit(X_MANY)
    variances = pca.explained_variance_ * 39 / 40
    spread = np.sqrt(variances_of_rest(variances[2:], 40, 2, variances.mean()))
    factor = np.sqrt(1.4 / (0.4 * 2.5))
    laws = [stats.t(2.5, m, factor * np.sqrt(s)) for m, s in ((0.5, 2.0), (-0.5, 1.0))]
    laws += [stats.norm(0.0, s) for s in spread]
    axes = np.concatenate([likelihood.axes_, pca.components_[2:]])
    n_stats = bind(likelihood, likelihood.encode(X_MANY), 40).n_stats

    def run(seed, factor, d):
        rng = np.random.default_rng(seed)
        clusters = np.zeros(round(2000 * factor), np.intp)
        X = likelihood.draw_rows(np.zeros((1, n_stats)), clusters, 6, rng)
        return stats.kstest((X - likelihood.center_) @ axes[d], laws[d].cdf).pvalue

    runs = {f"axis {d}": partial(run, d=d) for d in range(6)}
    assert_p_matrix(runs, seed_sequence=seed_sequence)


@pytest.mark.long
def test_far_rows_have_a_density():
    """Under a normal law along the other axes they lost the square of their distance: at a
    thousand standard deviations millions of nats."""
    likelihood = Subspace(2).resolve(X_MANY[:, :3])
    axis = likelihood._rest[:, 0]
    at = np.concatenate([np.linspace(0.0, 20.0, 4001), np.geomspace(20.0, 1e143, 40_000)[1:]])
    log_p = likelihood.log_constants(likelihood.center_ + at[:, None] * axis)
    density = np.linalg.norm(axis) * np.exp(log_p)
    assert 2.0 * integrate.trapezoid(density, at) == pytest.approx(1.0, abs=1e-5)
    model = DPMixture(likelihood=Subspace(2), **FAST).fit(X_MANY)
    scores = np.array([model.score_samples(10.0**k * X_MANY[:9]).min() for k in (1, 3, 5, 100)])
    assert (scores > [-80.0, -150.0, -200.0, -4000.0]).all()
    # Also of rows with gaps.
    gaps = X_MANY[:9].copy()
    gaps[:, 1] = np.nan
    scores = np.array([model.score_samples(10.0**k * gaps).min() for k in (1, 3, 5, 100)])
    assert (scores > [-80.0, -150.0, -200.0, -4000.0]).all()


def test_parameters_of_clusters():
    X = np.concatenate([X_MANY, X_MANY + [20.0, 0.0, 0.0, 0.0, 0.0, 0.0]])
    model = DPMixture(likelihood=Subspace(2), init=np.arange(80) // 40, **FAST).fit(X)
    params = model.cluster_params_
    assert {name: value.shape for name, value in params.items()} == {
        "means": (2, 6),
        "axis_means": (2, 2),
        "axis_covariances": (2, 2, 2),
    }
    expected = np.array([X[model.labels_ == k].mean(axis=0) for k in range(2)])
    # The first two columns are the axes, about.
    np.testing.assert_allclose(params["means"][:, 0], expected[:, 0], atol=0.5)
    variances = np.diagonal(params["axis_covariances"], axis1=1, axis2=2)
    np.testing.assert_allclose(variances, [[9.0, 4.0]] * 2, rtol=0.6)
    assert model.sample(5)[0].shape == (5, 6)


@pytest.mark.filterwarnings("ignore:labels_ has")
@pytest.mark.parametrize("n_axes", [3, 12])
@pytest.mark.parametrize("n_columns", [16, 40, 100])
def test_new_rows_after_few_rows(n_axes, n_columns):
    """Have nearly the density of the law they are drawn from, though most axes are unseen."""
    X = np.random.default_rng(0).normal(size=(116, n_columns))
    model = DPMixture(likelihood=Subspace(n_axes), **FAST, init="single").fit(X[:16])
    expected = stats.norm.logpdf(X[16:]).sum() / 100
    assert expected - 20.0 < model.score(X[16:]) < expected + 0.5


@pytest.mark.parametrize("n_axes", [0, 1.5, "all"])
def test_bad_number_of_axes(n_axes):
    with pytest.raises(ValueError, match=r"Subspace\.n_axes"):
        DPMixture(likelihood=Subspace(n_axes)).fit(X_MANY)


def test_collinear_and_constant_columns():
    X = np.column_stack([X_MANY[:, :3], X_MANY[:, 0], np.full(40, 7.0), np.zeros(40)])
    for n_axes in (2, 5, 6):
        model = DPMixture(likelihood=Subspace(n_axes), **FAST).fit(X)
        assert np.isfinite(model.score_samples(X)).all()
    model = DPMixture(likelihood=Subspace(2), **FAST).fit(np.full((5, 3), 4.0))
    assert model.n_clusters_ == 1


def test_no_more_axes_than_directions():
    """Columns that repeat others, or are constant, leave the clusters as they are."""
    rng = np.random.default_rng(3)
    X = 6.0 * rng.normal(size=(4, 5))[np.arange(80) % 4] + rng.normal(size=(80, 5))
    for more in (np.tile(X, 6), np.zeros((80, 30))):
        model = DPMixture(
            likelihood="subspace", n_chains=1, n_warmup=20, n_draws=5, random_state=0
        )
        model.fit(np.hstack([X, more]))
        assert model.likelihood_.n_axes == 5
        assert model.n_clusters_ == 4


@pytest.mark.filterwarnings("ignore:column .* in the rows of fit, but not in all rows")
def test_constant_columns_are_left_out():
    """Clusters are those without them, a departure costs little, and answers have them."""
    X = np.insert(X_MANY, [0, 3], [7.0, 0.0], axis=1)
    kept = [1, 2, 3, 5, 6, 7]
    model = DPMixture(likelihood=Subspace(3), **FAST).fit(X)
    without = DPMixture(likelihood=Subspace(3), **FAST).fit(X_MANY)
    np.testing.assert_array_equal(model.log_joint_samples_, without.log_joint_samples_)
    rows = X[:4].copy()
    rows[1, 0], rows[2, 4], rows[3, 0] = 8.0, -1e6, np.nan
    follows = stats.norm.logpdf([0.0, 0.0], scale=[7e-6, 1e-6]) + np.log(41 / 42)
    departs = stats.cauchy.logpdf([1.0, -1e6], scale=[0.7, 0.1]) - np.log(42)
    expected = [follows.sum(), departs[0] + follows[1], follows[0] + departs[1], follows[1]]
    gains = model.score_samples(rows) - without.score_samples(X_MANY[:4])
    np.testing.assert_allclose(gains, expected, rtol=1e-6)
    gappy, own = rows.copy(), X_MANY[:4].copy()
    gappy[:, 2] = own[:, 1] = np.nan
    gains = model.score_samples(gappy) - without.score_samples(own)
    np.testing.assert_allclose(gains, expected, rtol=1e-6)
    gappy[:, 0] = np.nan
    filled = model.impute(gappy)
    assert (filled[:, 0] == 7.0).all()
    np.testing.assert_allclose(filled[:, kept], without.impute(own), rtol=1e-8)
    drawn = model.sample(50, random_state=0)
    drawn = drawn[0] if isinstance(drawn, tuple) else drawn
    assert (drawn[:, [0, 4]] == [7.0, 0.0]).all() and (np.ptp(drawn, axis=0)[kept] > 0).all()
    assert (model.likelihood_.axes_[:, [0, 4]] == 0.0).all()
    for d, variance in ((0, 7e-6**2), (4, 1e-12)):
        mean, _, _, scale, rest = model.likelihood_.column_posterior(np.zeros((1, 10)), d)
        assert mean == X[0, d] and scale == 0.0 and rest == pytest.approx(variance)
    with pytest.warns(UserWarning, match="column"):
        model.predict(rows[1:3])


def test_probabilities_of_a_row_far_off():
    model = DPMixture(likelihood=Subspace(3), **FAST, init=np.arange(40) % 3).fit(X_MANY)
    for far in (1e3, 1e12, 1e100):
        proba = model.predict_proba(np.full((1, X_MANY.shape[1]), far))
        np.testing.assert_allclose(proba.sum(axis=1), 1.0)


def rows_with_gaps(n_rows, n_columns, share=0.3):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n_rows, n_columns))
    return np.where(rng.random(X.shape) < share, np.nan, X)


@pytest.mark.parametrize("n_others", [4, 5, 11])  # few columns may have a singular noise
@pytest.mark.parametrize("df", [np.inf, 8.5])
def test_rows_with_gaps_against_dense_covariances(n_others, df, monkeypatch):
    monkeypatch.setattr(subspace_laws, "MOST_ENTRIES", 4000)  # a few rows and clusters at once
    n_clusters, n_columns, n_axes = 4, 7, 3
    rng = np.random.default_rng(1)
    roots = rng.normal(size=(n_clusters, n_axes, n_axes))
    law = subspace_laws.SubspaceLaws(
        rng.normal(size=(n_clusters, n_axes)),
        roots @ roots.swapaxes(1, 2),
        np.full(n_clusters, df) + np.arange(n_clusters),
        rng.normal(size=n_columns),
        rng.normal(size=(n_columns, n_axes)),
        rng.normal(size=(n_columns, n_others)),
        20,
    )
    X = rows_with_gaps(12, n_columns, 0.5)
    X[[0, 3, 6]], X[1], X[2, 2:] = np.nan, np.nan, np.nan
    X[[0, 3, 6], 1:] = rng.normal(size=(3, n_columns - 1))  # of one pattern
    u = np.linspace(-12.0, 5.0, 400)
    clusters = np.arange(len(X)) % n_clusters
    columns = [5, 0, 3]
    means, deviations = np.array(
        [
            (of.mean(), np.sqrt(np.sum(of.p * (of.scale**2 + of.loc**2), 1) - of.mean() ** 2))
            for of in law.given(X, clusters, columns)
        ]
    ).swapaxes(0, 1)
    found = [law.log_density(X), law.departing().log_density(X)]
    some = law.departing().log_density(X, np.zeros(n_clusters))
    np.testing.assert_allclose(logsumexp(some, axis=1), logsumexp(found[1], axis=1), rtol=1e-9)
    shares = subspace_laws.log_shares(20)
    for i, k in np.ndindex(found[0].shape):
        known = ~np.isnan(X[i])
        a = 0.5 * law.df[k]
        w, log_prior = np.ones(1), np.zeros(1)
        if np.isfinite(df):
            w, log_prior = np.exp(u), a * np.log(a) - gammaln(a) + a * (u - np.exp(u))
            log_prior = log_prior + np.log(u[1] - u[0])
        mean = law.center + law.axes @ law.loc[k]
        along = law.axes @ law.scale[k] @ law.axes.T / w[:, None, None]
        for spread, total in ((1.0, found[0]), (subspace_laws.SPREADS[:6, None], found[1])):
            noise = np.square(spread) * (law.rest @ law.rest.T).ravel()
            S = along + noise.reshape(-1, 1, n_columns, n_columns)
            inside = S[..., known, :][..., known]
            gap = X[i, known] - mean[known]
            solved = np.linalg.solve(inside, np.broadcast_to(gap, inside.shape[:-1])[..., None])
            log_p = -0.5 * (gap * solved[..., 0]).sum(axis=-1) - 0.5 * np.log(2 * np.pi) * len(gap)
            log_p = log_p - 0.5 * np.linalg.slogdet(inside)[1] + log_prior
            if total is found[0]:
                expected = logsumexp(log_p) * known.any()
                p = np.exp(log_p[0] - logsumexp(log_p))
                first = mean + (S[0][..., known] @ solved[0])[..., 0]
                gain = np.linalg.solve(inside[0], S[0][:, known, :])
                left = np.diagonal(S[0] - S[0][..., known] @ gain, axis1=1, axis2=2)
            else:  # of the others there is too little to matter
                expected = logsumexp(shares[:6, None] + log_p) * known.any()
            assert total[i, k] == pytest.approx(expected, rel=1e-8, abs=1e-7)
        if k == clusters[i]:
            for j, d in enumerate(columns):
                if known[d]:
                    assert means[j, i] == pytest.approx(X[i, d], rel=1e-12)
                else:
                    assert means[j, i] == pytest.approx(p @ first[:, d], rel=1e-6)
                    variance = p @ (left[:, d] + first[:, d] ** 2) - (p @ first[:, d]) ** 2
                    assert deviations[j, i] == pytest.approx(np.sqrt(variance), rel=1e-5)


def peak_of(function, *args):
    """Megabytes."""
    tracemalloc.start()
    try:
        function(*args)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:labels_ has")
def test_rows_with_gaps_take_little_memory(monkeypatch):
    """Laws of their entries are those of few rows at a time, which changes no answer."""
    X = np.random.default_rng(0).normal(size=(40, 30))
    model = DPMixture(likelihood=Subspace(2), **FAST, init=np.arange(40) % 3).fit(X)
    rows = rows_with_gaps(16, 30, 0.2)
    expected = model.impute(rows)
    monkeypatch.setattr(conditional, "BLOCK_ENTRIES", 2**15)
    np.testing.assert_allclose(model.impute(rows), expected, rtol=1e-10)
    peak = peak_of(model.impute, rows)
    assert peak < 4.0, peak


def test_rows_with_the_same_gap_take_little_memory(monkeypatch):
    """Under full covariances."""
    model = DPMixture(likelihood=Gaussian(), **FAST, init=np.arange(40) % 3).fit(X_MANY)
    rows = np.random.default_rng(0).normal(size=(2000, 6)) + 5.0
    rows[:, 0] = np.nan
    log_density = model._predictor.conditional.laws.log_density
    expected = log_density(rows)
    monkeypatch.setattr(laws, "MOST_ENTRIES", 2**14)
    np.testing.assert_allclose(log_density(rows), expected, rtol=1e-10)
    peak = peak_of(log_density, rows) - expected.nbytes / 1e6
    assert peak < 1.0, peak


def test_columns_of_unequal_units():
    X = X_MANY * np.append(np.ones(X_MANY.shape[1] - 1), 1e4)
    with pytest.warns(UserWarning, match="Scale the columns"):
        Subspace(3).resolve(X)


def test_messages_are_of_axes():
    with pytest.raises(ValueError, match=r"Subspace.mean must be .* one per axis"):
        Subspace(3, mean=np.zeros(X_MANY.shape[1])).resolve(X_MANY)


# What "auto" stands for.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore:labels_ has")
def test_automatic_likelihood_of_streams():
    """Of a batch there are no axes to be told; the law of a fit stays."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((44, 2)) @ rng.standard_normal((2, ALWAYS_FULL + 1))
    X += 0.1 * rng.standard_normal(X.shape)
    batch = DPMixture(sampler="smc", **FAST).partial_fit(X[:40]).partial_fit(X[40:])
    assert type(batch.likelihood_) is Gaussian
    assert np.isfinite(batch.score_samples(X)).all()
    fitted = DPMixture(sampler="smc", **FAST).fit(X[:40])
    chosen = fitted.likelihood_
    fitted.partial_fit(X[40:]).partial_fit(X[:3])
    assert type(fitted.likelihood_) is type(chosen) is Subspace
    np.testing.assert_array_equal(fitted.likelihood_.axes_, chosen.axes_)


def chosen(shape, model):
    """Sampler of a fit, without the fit, which would take long."""
    X = np.zeros(shape)
    return type(model._resolved_sampler(model._bound_likelihood(X), X))


def test_automatic_sampler_of_many_rows_and_columns():
    shape = subspace.BLOCK_ROWS, MOST_FULL + 1
    assert chosen(shape, DPMixture()) is chosen(shape, FiniteMixture(5)) is SubCluster
    assert chosen((shape[0] - 1, shape[1]), DPMixture()) is Alternate
    assert chosen(shape, DPMixture(sampler="gibbs")) is Gibbs
    assert chosen(shape, FiniteMixture(n_components=None)) is Alternate  # has no weights


@pytest.mark.parametrize("likelihood", ["auto", "gaussian", Gaussian(df=10.0)])
def test_automatic_sampler_of_many_rows(likelihood):
    model = DPMixture(likelihood=likelihood)
    for shape, fewer in [
        ((50_000, 2), (49_999, 2)),
        ((10_000, 10), (9_999, 10)),
        ((10_000, 10), (10_000, 9)),
        ((10_000, 32), (9_999, 32)),
    ]:
        assert chosen(shape, model) is SubCluster
        assert chosen(fewer, model) is Alternate
    assert chosen((50_000, 2), FiniteMixture(5, likelihood=likelihood)) is SubCluster
    assert chosen((50_000, 2), FiniteMixture(None, likelihood=likelihood)) is Alternate


@pytest.mark.parametrize("n_columns", [2, ALWAYS_FULL + 1])
@pytest.mark.parametrize("covariance_type", ["diag", "spherical", "tied", "wrong"])
def test_automatic_sampler_of_other_covariances(covariance_type, n_columns):
    likelihood = Gaussian(covariance_type=covariance_type)
    assert chosen((50_000, n_columns), DPMixture(likelihood=likelihood)) is Alternate


@pytest.mark.parametrize(
    "name",
    [
        "poisson",
        "mixed",
        Product([("all", Gaussian(), [0, 1])]),
    ],
    ids=repr,
)
def test_automatic_sampler_of_other_likelihoods(name):
    assert chosen((50_000, 2), DPMixture(likelihood=name)) is Alternate


@pytest.mark.parametrize("covariance_type", ["full", "diag"])
def test_automatic_sampler_of_tables(covariance_type):
    def product(**params):
        numeric = Gaussian(covariance_type=covariance_type, **params)
        return Product([("numeric", numeric, slice(0, 5)), ("counts", Poisson(), slice(5, 10))])

    model = DPMixture(likelihood=product())
    assert chosen((10_000, 10), model) is SubCluster
    assert chosen((9_999, 10), model) is chosen((10_000, 9), model) is Alternate
    X = np.zeros((10_000, 10))
    X[7, 2] = np.nan  # drawn by chains under full covariances
    sampler = model._resolved_sampler(model._bound_likelihood(X), X)
    assert type(sampler) is (SubCluster if covariance_type == "diag" else Alternate)
    for other in (product(tails="t"), product().set_params(select=True)):
        assert chosen((10_000, 10), DPMixture(likelihood=other)) is Alternate
    assert chosen((10_000, 10), FiniteMixture(None, likelihood=product())) is Alternate


def test_embeddings_are_found():
    X, labels = make_embeddings(1500, 40, n_clusters=4, spread=0.2, random_state=0)
    settings = {"n_chains": 1, "n_warmup": 10, "n_draws": 10, "random_state": 0}
    model = DPMixture(likelihood="subspace", **settings).fit(X)
    assert normalized_mutual_info_score(labels, model.labels_) > 0.8
    assert normalized_mutual_info_score(labels, model.predict(X)) > 0.8
