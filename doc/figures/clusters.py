# SPDX-License-Identifier: BSD-3-Clause
"""Two crescents, and two clusters that overlap without a valley, by three readings."""

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

from skdpm import DPMixture
from skdpm.plotting import ClustersDisplay

rng = np.random.default_rng(0)
crescents = make_moons(600, noise=0.07, random_state=0)[0]
overlap = np.concatenate(
    [rng.normal([0.0, 0.0], [1.0, 1.0], (400, 2)), rng.normal([1.5, 0.0], [0.25, 2.5], (400, 2))]
)
figure, axes = plt.subplots(2, 3, figsize=(11.4, 6.4), layout="compressed")
for row, (X, words) in zip(
    axes, [(crescents, "two crescents"), (overlap, "overlap without a valley")], strict=True
):
    with warnings.catch_warnings():
        # Chains need not agree about the components of a crescent.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = DPMixture(random_state=0, n_draws=150, n_warmup=150).fit(X)
    for ax, loss in zip(row, ("adaptive", "modal", "vi"), strict=True):
        model.estimate_labels(loss=loss)
        ClustersDisplay.from_estimator(model, X, columns=[0, 1], ax=ax)
        ax.set_title(f'{words}, "{loss}": {model.n_clusters_} clusters', size=10, pad=24)
        ax.set(xlabel="", ylabel="")
