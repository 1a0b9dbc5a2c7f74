# SPDX-License-Identifier: BSD-3-Clause
"""Interface of the kernels of samplers that visit rows in blocks."""

import abc

import numpy as np


class BlockKernel(abc.ABC):
    """Base class of the kernels of block samplers: one per chain, on a `BlockState`. If it
    `looks_around`, chains move, in warm-up, to clusters found in a sample of rows if these are
    more likely."""

    looks_around = False

    def n_slots(self, prior, n_clusters):
        """Return the number of clusters that a chain starts with, empty ones included, from labels
        of `n_clusters` clusters."""
        return n_clusters

    @abc.abstractmethod
    def step(self, state, rng, key, adapting=0.0):
        """Do one iteration on a `BlockState`. `rng` has the random numbers of the clusters; the
        key (entropy, chain, iteration) names the streams of the rows. While `adapting`, the share
        of the warm-up that is left, is positive, the posterior need not be invariant."""

    def acceptance(self):
        """Return the numbers of moves so far: dict, move -> (proposed, accepted)."""
        return {}

    def get_adaptation(self):
        """Return what the kernel keeps between iterations, apart from the state: dict."""
        return {}

    def set_adaptation(self, adaptation):
        """Continue from `get_adaptation`; an empty dict is the beginning."""
        return None


def draw_log_weights(state, shapes, rng):
    """Draw the weights of clusters, and of noise if there is any: their logarithms, those of
    clusters up to a constant. `shapes` has the parameters of the Dirichlet law of the weights,
    (n_clusters + 1,); the last is that of all other clusters."""
    if not len(state.rows.log_noise):
        return log_gamma_variates(shapes[:-1], rng), None
    log_weights = log_gamma_variates(shapes, rng)
    n_noise = state.n_noise
    beta = np.array([state.noise.a + n_noise, state.noise.b + (state.n_samples - n_noise)])
    log_odds = np.subtract(*log_gamma_variates(beta, rng))
    # On the scale of the weights of the clusters, which sum to 1 together with the others.
    return log_weights[:-1], float(log_odds + np.logaddexp.reduce(log_weights))


def log_gamma_variates(shapes, rng):
    """Logarithms of Gamma(shape, 1) variates: G(a) = G(a + 1) U^(1/a) underflows for no shape."""
    with np.errstate(divide="ignore"):
        return np.log(rng.standard_gamma(shapes + 1.0)) + np.log(rng.random(len(shapes))) / shapes
