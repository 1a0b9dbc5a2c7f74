# SPDX-License-Identifier: BSD-3-Clause
"""`point_estimate="peaks"`: components on the slope of one peak of the density are one cluster."""

import pickle

import numpy as np
import pytest
from reference.enumerate import canonical_labels
from reference.peaks import fused_to_peaks
from scipy.special import logsumexp
from sklearn.metrics import adjusted_rand_score, v_measure_score

from skdpm import DPMixture, FiniteMixture
from skdpm.mixture.answers import peaks as _peaks
from skdpm.mixture.answers.peaks import fuse_to_peaks

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

FAST = {"n_chains": 2, "n_warmup": 60, "n_draws": 60, "random_state": 0}


def density_of(centres, widths, weights):
    """log density of spherical Gaussians."""

    def log_density(X):
        far = ((X[:, None] - centres) ** 2).sum(axis=2) / widths**2
        return logsumexp(np.log(weights) - 0.5 * far - centres.shape[1] * np.log(widths), axis=1)

    return log_density


def random_case(rng):
    """Components in the plane, a partition, and draws in which some of its clusters meet."""
    n_clusters, n = int(rng.integers(1, 7)), 24
    labels = np.concatenate([np.arange(n_clusters), rng.integers(n_clusters, size=n - n_clusters)])
    centres = rng.normal(size=(n_clusters, 2)) * rng.choice([0.5, 1.5])
    widths, weights = rng.uniform(0.3, 1.2, size=n_clusters), rng.dirichlet(np.ones(n_clusters))
    draws = np.where(rng.random((5, n)) < 0.1, rng.integers(n_clusters, size=(5, n)), labels)
    return labels, draws, centres, density_of(centres, widths, weights)


@pytest.mark.parametrize("points_per_row", [0.1, 2.0, 1e3])
def test_fused_clusters_are_the_definition(monkeypatch, points_per_row):
    monkeypatch.setattr(_peaks, "POINTS_PER_ROW", points_per_row)
    rng = np.random.default_rng(0)
    n_found = []
    for _ in range(60):
        labels, draws, centres, log_density = random_case(rng)
        most = max(1, min(_peaks.MOST_NEIGHBOURS, int(points_per_row * 24 / (8 * len(centres)))))
        expected = fused_to_peaks(labels, draws, centres, log_density, 0.8, 8, most)
        found = fuse_to_peaks(labels, draws, centres, log_density)
        np.testing.assert_array_equal(canonical_labels(found), canonical_labels(expected))
        assert (np.diff(np.bincount(found)) <= 0).all()
        n_found.append((len(centres), found.max() + 1))
    n_before, n_after = np.array(n_found).T
    # Some are fused and some are not.
    assert (n_after < n_before).sum() > 10
    assert (n_after > 1).sum() > 10


def test_a_flank_between_two_peaks_joins_one_and_does_not_bridge_them():
    centres, widths = np.array([[-2.0], [2.0], [0.3]]), np.array([0.7, 0.7, 2.0])
    log_density = density_of(centres, widths, np.array([0.45, 0.45, 0.1]))
    labels = np.repeat([0, 1, 2], 10)
    draws = np.tile(labels, (4, 1))
    draws[0, 20:25], draws[1, 25] = 1, 0  # the flank shares more with the second
    found = fuse_to_peaks(labels, draws, centres, log_density)
    assert found.tolist() == [1] * 10 + [0] * 20
    # In no draw with another: neighbours are told by the draws.
    apart = fuse_to_peaks(labels, np.tile(labels, (4, 1)), centres, log_density)
    np.testing.assert_array_equal(apart, labels)


def test_a_density_that_is_not_a_number_is_a_valley():
    labels, centres = np.repeat([0, 1], 5), np.array([[0.0], [1.0]])
    draws = np.zeros((3, 10), dtype=np.uint8)

    def log_density(X):
        return np.where(np.isin(X[:, 0], centres), -X[:, 0], np.nan)

    np.testing.assert_array_equal(fuse_to_peaks(labels, draws, centres, log_density), labels)


def skewed_clusters(n_rows=150):
    rng = np.random.default_rng(3)
    y = np.repeat([0, 1, 2], n_rows)
    return np.array([[0, 0], [12, 0], [0, 12]])[y] + rng.gamma(2.0, size=(len(y), 2)), y


def test_skewed_clusters_take_several_components_and_stay_clusters():
    X, y = skewed_clusters()
    params = {"init": y, "sampler": "gibbs", **FAST}
    found = {name: DPMixture(**params, point_estimate=name).fit(X) for name in ("vi", "peaks")}
    np.testing.assert_array_equal(found["vi"].label_samples_, found["peaks"].label_samples_)
    vi, peaks = found["vi"].labels_, found["peaks"].labels_
    assert v_measure_score(y, peaks) > v_measure_score(y, vi) + 0.05
    assert adjusted_rand_score(y, peaks) > 0.97
    # A coarser partition than that of "vi", and everything else is about it.
    assert len(np.unique(np.column_stack([vi, peaks]), axis=0)) == vi.max() + 1
    assert found["peaks"].n_clusters_ == peaks.max() + 1 < vi.max() + 1
    assert len(found["peaks"].weights_) == len(found["peaks"].cluster_params_["means"])
    np.testing.assert_array_equal(found["peaks"].score_samples(X), found["vi"].score_samples(X))
    # Draws are read as the estimate is.
    np.testing.assert_array_equal(
        found["vi"].n_clusters_samples_, found["vi"].n_components_samples_
    )
    counts = found["peaks"].n_clusters_samples_
    assert counts.dtype == np.int64 and counts.shape[0] == FAST["n_chains"] and counts.size <= 40
    assert np.median(counts) == 3 < np.median(found["vi"].n_components_samples_)
    found["peaks"].estimate_labels(loss="vi")
    np.testing.assert_array_equal(
        found["peaks"].n_clusters_samples_, found["vi"].n_components_samples_
    )
    found["peaks"].estimate_labels()
    again = pickle.loads(pickle.dumps(found["peaks"]))
    assert "n_clusters_samples_" not in dir(again)
    with pytest.raises(
        AttributeError, match=r"n_clusters_samples_: .*pointwise_log_likelihood\(X\)"
    ):
        again.n_clusters_samples_  # noqa: B018
    again.pointwise_log_likelihood(X)
    np.testing.assert_array_equal(again.n_clusters_samples_, counts)


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_units_make_no_difference(factor):
    X, y = skewed_clusters(40)
    params = {"init": y, "sampler": "gibbs", **FAST}
    labels = DPMixture(**params).fit(X).labels_
    found = DPMixture(**params).fit(X * factor).labels_
    assert adjusted_rand_score(labels, found) > 0.9


def test_peaks_are_the_default_and_vi_where_rows_are_no_points():
    rng = np.random.default_rng(0)
    X = (rng.random((60, 6)) < np.where(np.arange(60)[:, None] < 30, 0.2, 0.8)).astype(float)
    for estimator in (DPMixture, FiniteMixture):
        assert estimator().point_estimate == "peaks"
        params = {"likelihood": "bernoulli", **FAST}
        np.testing.assert_array_equal(
            estimator(**params).fit(X).labels_,
            estimator(**params, point_estimate="vi").fit(X).labels_,
        )
