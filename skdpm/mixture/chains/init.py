# SPDX-License-Identifier: BSD-3-Clause
"""Where the chains of a mixture start."""

import functools
import math

import numpy as np

from skdpm._validation import check_choice
from skdpm.mixture.chains._start import kmeans
from skdpm.mixture.chains.automatic import AutomaticStart, FirstState, without_gaps
from skdpm.mixture.likelihoods.coordinates import standardised


def first_state(init, X, likelihood, most):
    """Return a function of a program and a bit generator that draws where a chain starts.

    Parameters
    ----------
    init, X, likelihood, most
        As for `initial_labels`; `init` may also be "auto".

    Returns
    -------
    draw : callable
        Gives a `FirstState`.

    Raises
    ------
    ValueError
        As `initial_labels`.
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
    """Return a function of a bit generator that gives the labels at which a chain starts.

    Parameters
    ----------
    init : str or array-like
        The estimator's parameter.
    X : array of shape (n_samples, n_features)
        Checked.
    likelihood : Likelihood
        Resolved.
    most : int
        The largest number of clusters that the prior allows.

    Returns
    -------
    draw : callable
        Of a bit generator; labels 0, ..., K - 1, or None for a single cluster.

    Raises
    ------
    ValueError
        Where `init` does not fit X, the likelihood or the prior.
    """
    n_samples = X.shape[0]
    if isinstance(init, str):
        check_choice(init, "init", ("auto", "single", "singletons", "kmeans"))
        if init == "kmeans":
            if not isinstance(X, np.ndarray) or likelihood.pairwise or np.isnan(X).any():
                raise ValueError(
                    'init="kmeans" needs dense numeric data without NaN; choose "single"'
                )
            return functools.partial(_kmeans_labels, X, most)
        labels = None if init == "single" else np.arange(n_samples)
    else:
        labels = np.asarray(init)
        if labels.shape != (n_samples,):
            raise ValueError(
                f"init must be a name or {n_samples} labels, one per row of X; got shape "
                f"{labels.shape}"
            )
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


def dispersed_labels(replica, n_samples, most, bit_generator):
    """Draw where a replica that is not a chain's first starts, wherever that does.

    Parameters
    ----------
    replica : int
        1, 2, ...
    n_samples : int
    most : int
        The largest number of clusters that the prior allows.
    bit_generator : numpy BitGenerator

    Returns
    -------
    labels : ndarray of shape (n_samples,)
        Rows are in 4, 8, ... clusters, uniformly; those that stay empty are left out.
    """
    n_clusters = min(n_samples, most, 2 ** min(replica + 1, 62))
    labels = np.random.Generator(bit_generator).integers(n_clusters, size=n_samples)
    return without_gaps(labels)


def _kmeans_labels(X, most, bit_generator):
    """k-means on standardised columns, with as many clusters as a CRP with concentration 2 has on
    average, but no more than `most`."""
    n_distinct = len(np.unique(X, axis=0))
    n_clusters = min(most, n_distinct, 1 + round(2 * math.log(len(X))))
    return kmeans(standardised(X), n_clusters, bit_generator, n_iterations=100)
