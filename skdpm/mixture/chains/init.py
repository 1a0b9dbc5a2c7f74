# SPDX-License-Identifier: BSD-3-Clause
"""Starts of the chains of a mixture, by the parameter `init`."""

import functools
import math

import numpy as np

from skdpm._core._kmeans import kmeans
from skdpm._validation import check_choice
from skdpm.mixture.chains.automatic import AutomaticStart, FirstState
from skdpm.mixture.likelihoods.laws.coordinates import standardised
from skdpm.partitions import without_gaps


def first_state(init, X, likelihood, most):
    """Return a function (program, bit generator) that draws the start of a chain, a `FirstState`.

    Parameters and errors are those of `initial_labels`; `init` may also be "auto".
    """
    if isinstance(init, str) and init == "auto":
        return AutomaticStart(X, likelihood)
    draw_labels = initial_labels(init, X, likelihood, most)

    def draw(program, bit_generator):
        return FirstState(
            draw_labels(bit_generator), program.first_values(), program.first_concentration
        )

    return draw


def initial_labels(init, X, likelihood, most):
    """Return a function of a bit generator that draws the initial labels of a chain, of at most
    `most` clusters: 0, ..., K - 1, or None for a single cluster.

    Raises ValueError if `init` does not fit X, the likelihood or the prior.
    """
    n_samples = X.shape[0]
    if isinstance(init, str):
        check_choice(init, "init", ("auto", "single", "singletons", "kmeans"))
        if init == "kmeans":
            if not isinstance(X, np.ndarray) or likelihood.pairwise or np.isnan(X).any():
                raise ValueError(
                    'init="kmeans" needs dense numeric data without NaN; use init="single"'
                )
            return functools.partial(_kmeans_labels, X, most)
        labels = None if init == "single" else np.arange(n_samples)
    else:
        labels = labels_of_rows(init, n_samples)
        if labels.dtype.kind == "f" and not np.isfinite(labels).all():
            raise ValueError("init must hold finite labels")
        try:
            labels = np.unique(labels, return_inverse=True)[1]
        except TypeError as error:
            raise ValueError(f"init must hold labels of one type: {error}") from None
    if labels is not None and labels.max() >= most:
        raise ValueError(
            f"init has {labels.max() + 1} clusters, more than the {most} that the prior allows"
        )
    return lambda bit_generator: labels


def labels_of_rows(init, n_samples):
    """The parameter `init`, which is no name, as an ndarray of shape (n_samples,)."""
    if np.ma.is_masked(init):
        raise ValueError("init has masked entries: pass labels of all rows, init.filled(label)")
    labels = np.asarray(init)
    if labels.shape != (n_samples,):
        raise ValueError(
            f"init must be a name or {n_samples} labels, one per row of X; got shape "
            f"{labels.shape}"
        )
    return labels


def dispersed_labels(replica, n_samples, most, bit_generator):
    """Draw the initial labels, (n_samples,), of the replicas 1, 2, ... of a chain: rows uniformly
    in 4, 8, ... clusters, at most `most`. Empty clusters are left out."""
    n_clusters = min(n_samples, most, 2 ** min(replica + 1, 62))
    return without_gaps(np.random.Generator(bit_generator).integers(n_clusters, size=n_samples))


def _kmeans_labels(X, most, bit_generator):
    """k-means on standardised columns. The number of clusters is the mean under a CRP with
    concentration 2, at most `most`."""
    n_clusters = min(most, len(np.unique(X, axis=0)), 1 + round(2 * math.log(len(X))))
    return kmeans(standardised(X), n_clusters, bit_generator, n_iterations=100)
