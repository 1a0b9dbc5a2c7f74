# SPDX-License-Identifier: BSD-3-Clause
"""Blocked Gibbs sampling of finite mixtures, over rows visited in blocks."""

import numpy as np

from skdpm.mixture.blocks.kernel import BlockKernel, draw_log_weights
from skdpm.mixture.blocks.records import Sweep
from skdpm.mixture.samplers.base import BlockSampler

# With this number of components a tile of densities takes 4 GB.
MOST_COMPONENTS = 2**20


class BlockedGibbs(BlockSampler):
    """Weights, parameters and labels in turn: the finite symmetric Dirichlet sampler ("FSD").

    For `FiniteMixture`. Given the weights and parameters of all components, empty ones included,
    the labels are independent and are drawn in one pass over the rows. It is exact and parallel,
    but has no splits and merges, so that it is slow to find clusters. Start it from labels
    (`init`), or use `SubCluster`.

    Parameters
    ----------
    block_size : int, default=65536
        Maximum number of rows in a block. A block is visited by one thread, on one random stream.
        Results depend on it, but not on `n_jobs`.

    References
    ----------
    Ishwaran & Zarepour (2002); Chang & Fisher (2013), section 3.1.
    """

    takes_noise = True

    def kernel(self):
        return BlockedGibbsKernel()

    def check_prior(self, prior):
        if "n_components" not in prior.capabilities:
            reason = (
                "DPMixture does not have: use FiniteMixture, or the sampler SubCluster"
                if "weights" in prior.capabilities
                else f"{type(prior).__name__} does not have: choose a sampler that needs no "
                "weights, such as Gibbs or PGSM, or with FiniteMixture fix n_components"
            )
            raise ValueError(
                f"BlockedGibbs draws the weights of a given number of components, which {reason}"
            )
        if prior.n_components > MOST_COMPONENTS:
            raise ValueError(
                "BlockedGibbs holds all components, empty ones included: n_components must be at "
                f"most {MOST_COMPONENTS}, got {prior.n_components}; SubCluster holds those in use"
            )


class BlockedGibbsKernel(BlockKernel):
    """One iteration of `BlockedGibbs` on a `BlockState`."""

    def n_slots(self, prior, n_clusters):
        return prior.n_components

    def step(self, state, rng, key, adapting=0.0):
        totals = state.totals()
        shapes = totals[:, 0] + state.prior.concentration / state.prior.n_components
        params = state.parametric.draw(totals, np.ones(len(totals)), rng.bit_generator)
        # No other clusters: all components are here.
        log_weights, of_noise = draw_log_weights(state, np.append(shapes, 0.0), rng)
        sweep = Sweep(params, log_weights, log_noise_weight=of_noise)
        state.draw_known(sweep, rng, least=0)
        state.accept(*state.run_task(key, sweep))
