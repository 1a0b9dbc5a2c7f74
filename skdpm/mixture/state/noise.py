# SPDX-License-Identifier: BSD-3-Clause
"""Starts of chains with noise."""

import numpy as np
from scipy.special import gammaln


def clusters_for_noise(gains, sizes, n_noise, noise, prior, least=0):
    """Find whole clusters that should be noise: those that lose least per row, as many as raise
    the log joint most, up to half of the rows.

    A state whose clusters overlap has many others like it, which the log joint of one does not
    count. So it may be less likely than a state without clusters, although the clusters are real.

    - `gains`: (n_clusters,). log density of the rows of each cluster as noise, less their marginal
      likelihood.
    - `sizes`: (n_clusters,), intp.
    - `n_noise`: int. Number of other rows that are noise.
    - `noise`: Noise.
    - `prior`: PartitionPrior.
    - `least`: int, default=0. Number of clusters that stay in any case.

    Returns `clusters`: ndarray of int.
    """

    def log_prior(left):
        m = int(sizes[left].sum())
        return noise.log_probability(n_noise + int(sizes.sum()) - m, m) + prior.log_probability(
            sizes[left]
        )

    factors = gammaln(sizes - prior.sigma) - gammaln(1.0 - prior.sigma)
    order = np.argsort(-(gains - factors) / sizes, kind="stable")
    best, chosen = log_prior(order), 0
    total = 0.0
    most = (int(sizes.sum()) + n_noise) // 2 - n_noise
    for j in range(len(order) - least):
        if sizes[order[: j + 1]].sum() > most:
            break
        total += gains[order[j]]
        value = total + log_prior(order[j + 1 :])
        if value > best:
            best, chosen = value, j + 1
    return order[:chosen]
