# SPDX-License-Identifier: BSD-3-Clause
"""Densities of new rows under clusters that a fit has stored.

A *mixture* here is a plain dict: `rows` (statistics of clusters, as `ClusterModel.dump` gives
them), `log_weights` (their log weights, then that of an empty cluster) and, where clusters are
coupled, the `labels` that go with the rows. Memory grows with the number of clusters, and rows of
X are taken in blocks.
"""

import numpy as np

from skdpm._core._numerics import log_sum_exp

# Log densities computed at a time: clusters times rows, 8 MiB of doubles.
BLOCK_ENTRIES = 2**20


def pool_draws(snapshots, n_draws, factorizes):
    """The mean predictive density over draws, as mixtures of equal weight.

    Parameters
    ----------
    snapshots : list of dict
        Of each chain (`Snapshots.save`).
    n_draws : int
        Draws from this one on are left out.
    factorizes : bool
        Whether clusters are independent. Then the mean over draws is itself one mixture over the
        distinct clusters of all draws.

    Returns
    -------
    mixtures : list of dict
    """
    stride = max(chain["stride"] for chain in snapshots)
    draws = [
        (chain, draw)
        for chain in snapshots
        for draw in chain["draws"]
        if draw["draw"] < n_draws and draw["draw"] % stride == 0
    ]
    if not factorizes:
        return [
            {name: draw[name] for name in ("rows", "log_weights", "labels")} for _, draw in draws
        ]
    position, rows = {}, []
    for chain, draw in draws:
        for key in draw["keys"]:
            if key not in position:
                position[key] = len(rows)
                rows.append(chain["pool"][key])
    weights = np.zeros(len(rows) + 1)
    for _, draw in draws:
        at = [position[key] for key in draw["keys"]] + [len(rows)]
        weights[at] += np.exp(draw["log_weights"])
    with np.errstate(divide="ignore"):
        log_weights = np.log(weights / len(draws))
    return [{"rows": np.array(rows), "log_weights": log_weights}]


def log_densities(model, mixture):
    """Yield (first row, log weights + log densities) over blocks of the rows that `model` holds.

    The array has a line per cluster and, last, one for the empty cluster.
    """
    model.load(mixture["rows"])
    if "labels" in mixture:
        model.bind_labels(mixture["labels"].astype(np.intp))
    n_clusters = len(mixture["rows"])
    slots = np.arange(n_clusters + 1)
    step = max(1, BLOCK_ENTRIES // (n_clusters + 1))
    for first in range(0, model.n_samples, step):
        stop = min(first + step, model.n_samples)
        block = model.log_predictive_rows(slots, first, stop)
        block += mixture["log_weights"][:, None]
        yield first, block


def mean_log_density(model, mixtures):
    """log of the mean over the mixtures of the density of each row: (n_samples,)."""
    total = np.full(model.n_samples, -np.inf)
    for mixture in mixtures:
        for first, block in log_densities(model, mixture):
            part = total[first : first + block.shape[1]]
            part[...] = np.logaddexp(part, log_sum_exp(block))
    return total - np.log(len(mixtures))


def cluster_log_probabilities(model, mixture):
    """log probability of each occupied cluster given each row: (n_samples, n_clusters)."""
    out = np.empty((model.n_samples, len(mixture["rows"])))
    for first, block in log_densities(model, mixture):
        block = block[:-1]
        out[first : first + block.shape[1]] = (block - log_sum_exp(block)).T
    return out
