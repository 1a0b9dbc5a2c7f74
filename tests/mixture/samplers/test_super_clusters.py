"""`Gibbs.from_paper("GIBBS+SUPC")`, against enumerated posteriors.

They were seen to fail on these planted errors: a new cluster without the factor 1 / J; rows that
move to any cluster; super-clusters that depend on sizes, or are drawn with unequal probabilities;
a new cluster in another super-cluster than its row; no new clusters.
"""

import numpy as np
import pytest
from reference.enumerate import canonical_labels
from sklearn.base import clone
from support.designs import combinations, in_shares
from support.exactness import (
    case_posterior,
    case_rows,
    case_state,
    cells,
    convergence_run,
    invariance_run,
    make_likelihood,
    make_prior,
    make_state,
    record_worst,
)
from support.pvalues import assert_p_matrix

from skdpm import DPMixture
from skdpm.mixture.samplers import Gibbs
from skdpm.papers.gibbs import SuperClusterGibbs

SAMPLERS = [Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=n) for n in (2, 5)]
with_samplers = pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)


@in_shares
@with_samplers
@pytest.mark.long
def test_invariance(sampler, share, seed_sequence, record_property):
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            sampler.kernel(),
            case_posterior(likelihood, prior),
            n_starts=2_000,
        )
        for likelihood, prior in share(cells(sampler))
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@pytest.mark.slow
def test_invariance_with_many_starts(seed_sequence, record_property):
    """Errors of the law of super-clusters are small: a row mostly meets its own cluster."""
    runs = {
        f"{likelihood} {prior}": invariance_run(
            case_state(likelihood, prior),
            SAMPLERS[0].kernel(),
            case_posterior(likelihood, prior),
            n_starts=40_000,
        )
        for likelihood, prior in (("gaussian", "dp"), ("categorical", "pitman_yor"))
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


@combinations(sampler=SAMPLERS, prior=["dp", "pitman_yor", "finite"])
def test_convergence(sampler, prior, seed_sequence, record_property):
    """Chains from one cluster reach the posterior."""
    runs = {
        likelihood: convergence_run(
            case_state(likelihood, prior),
            sampler.kernel(),
            case_posterior(likelihood, prior),
            np.zeros(5, dtype=np.int64),
            n_iterations=60,
        )
        for likelihood in ("gaussian", "categorical", "relational")
    }
    worst = assert_p_matrix(runs, seed_sequence=seed_sequence)
    record_worst(record_property, worst, len(runs))


def test_rows_stay_in_their_super_cluster():
    """If no two clusters share one, a step only divides clusters."""
    n_super_clusters = 1e9  # new clusters then have the weight of a concentration of 1
    prior = make_prior("dp", 5, concentration=n_super_clusters)
    state = make_state(make_likelihood("categorical"), case_rows("categorical"), prior)
    kernel = Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=int(n_super_clusters)).kernel()
    start = np.array([0, 0, 0, 0, 1])
    rng = np.random.PCG64(0)
    ends = set()
    for _ in range(2_000):
        state.assign(start)
        kernel.run(state, rng)
        labels = state.cluster_labels()
        assert not set(labels[start == 0]) & set(labels[start == 1])
        ends.add(tuple(canonical_labels(labels)))
    assert len(ends) == 15  # partitions of four rows; rows join new clusters of others


def test_many_clusters():
    """Clusters outgrow the arena within a step."""
    X = 1e3 * np.arange(300.0)[:, None]
    sampler = Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=2)
    model = DPMixture(
        sampler=sampler,
        likelihood="gaussian",
        concentration=1e9,
        init="single",
        n_warmup=0,
        n_draws=2,
        n_chains=1,
        random_state=0,
    )
    model.fit(X)
    assert model.n_components_samples_.min() > 200


def test_parameters():
    sampler = clone(Gibbs.from_paper("GIBBS+SUPC", n_super_clusters=3))
    assert type(sampler) is SuperClusterGibbs
    assert sampler.get_params() == {"n_super_clusters": 3, "n_sweeps": 1}
    assert list(Gibbs().get_params()) == ["n_sweeps"]
    with pytest.raises(
        ValueError, match=r"variant of Gibbs.from_paper must be one of GIBBS\+SUPC"
    ):
        Gibbs.from_paper("GIBBS")
    for params in ({"n_super_clusters": 0}, {"n_sweeps": 0}):
        with pytest.raises(ValueError, match=f"Gibbs.{next(iter(params))}"):
            DPMixture(sampler=Gibbs.from_paper("GIBBS+SUPC", **params)).fit([[0.0], [1.0]])
