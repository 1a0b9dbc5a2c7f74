# SPDX-License-Identifier: BSD-3-Clause
"""What a user writes, for mypy (`mypy` in the root): the types of the public face. It is not run.

scikit-learn has no types, so mypy lets estimators have any attribute and any parameter; those that
have types here are checked.
"""

from typing import Any, assert_type

import numpy as np

from skdpm import DPMixture, FeatureAllocation, FiniteMixture, MixtureImputer, datasets
from skdpm.diagnostics import bulk_ess, mcse_mean
from skdpm.metrics import b_cubed_score
from skdpm.mixture.likelihoods import Gaussian, Product
from skdpm.mixture.samplers import PGSM, SMC, SubCluster
from skdpm.partitions import (
    CredibleBall,
    MergeTree,
    coclustering_matrix,
    credible_ball,
    expected_loss,
    point_estimate,
)
from skdpm.plotting import ClustersDisplay, NumberOfClustersDisplay, cluster_colors

X, labels = datasets.make_gaussian_mixture(100, random_state=0)
assert_type(X, np.ndarray)

model = DPMixture(likelihood=Gaussian(covariance_type="diag"), sampler=PGSM(), n_draws="auto")
assert_type(model.fit(X, known_labels=labels), DPMixture)
assert_type(model.predict(X), np.ndarray)
assert_type(model.predict_proba(X, new_cluster=True), np.ndarray)
assert_type(model.score(X), float)
assert_type(model.sample(3, random_state=1), tuple[Any, np.ndarray])
assert_type(model.estimate_labels(max_clusters=3, loss=("vi", 1.5)), DPMixture)
assert_type(model.merge_tree(), MergeTree)
assert_type(model.probability_of_number(3), tuple[float, float])
assert_type(model.summary(), str)
assert_type(model.labels_, np.ndarray)
assert_type(model.n_clusters_, int)
assert_type(model.cluster_params_, dict[str, Any])
assert_type(FiniteMixture(n_components=3, sampler=SubCluster()).fit(X), FiniteMixture)
assert_type(DPMixture(sampler=SMC(n_particles=10)).partial_fit(X), DPMixture)
assert_type(FeatureAllocation(n_chains=2).fit(X), FeatureAllocation)
assert_type(MixtureImputer().fit(X), MixtureImputer)
Product([("numbers", Gaussian(), [0, 1])], select=True)

assert_type(coclustering_matrix(model.label_samples_), np.ndarray)
assert_type(point_estimate([[0, 0], [0, 1]], max_clusters=1), np.ndarray)
assert_type(expected_loss(model.label_samples_, labels), float)
assert_type(credible_ball(model.label_samples_), CredibleBall)
assert_type(bulk_ess(model.log_joint_samples_), float)
assert_type(mcse_mean([[0.0, 1.0]]), float)
assert_type(b_cubed_score([[1]], [[1]]), float)
assert_type(ClustersDisplay.from_estimator(model, X), ClustersDisplay)
assert_type(NumberOfClustersDisplay.from_estimator(model).plot(), NumberOfClustersDisplay)
assert_type(cluster_colors(3), np.ndarray)

# Errors that mypy must find: an unused comment is one too.
Gaussian(covariance_type=3)  # type: ignore[arg-type]
DPMixture(n_draws=1.5)  # type: ignore[arg-type]
model.estimate_labels(max_clusters="3")  # type: ignore[arg-type]
model.predict()  # type: ignore[call-arg]
point_estimate([[0]], loss=3)  # type: ignore[arg-type]
