# SPDX-License-Identifier: BSD-3-Clause
"""Mixtures with Gnedin's partition prior."""

from skdpm.mixture.base import BaseMixture
from skdpm_gnedin._gnedin import GnedinPrior


class GnedinMixture(BaseMixture):
    """Mixture with an unknown, finite number of components, whose prior has a heavy tail.

    The prior of the weights given the number of components is uniform. The most probable number is
    1, and the mean is infinite.

    Parameters
    ----------
    likelihood, sampler
        See `skdpm.DPMixture`. The sampler must be one that does not draw weights.
    concentration : float or None, default=None
        Concentration. Larger values favour more clusters: a single component has probability
        1 / (1 + concentration). None: drawn in every iteration under its prior, starting at 1.
    concentration_prior, n_warmup, n_draws, thin, n_chains, n_jobs, init, store_labels, \
point_estimate, max_time, target_ess, warm_start, random_state, verbose
        As in `skdpm.DPMixture`.
    """

    def __init__(
        self,
        *,
        likelihood="gaussian",
        sampler="auto",
        concentration=None,
        concentration_prior=(1.0, 1.0),
        n_warmup="auto",
        n_draws="auto",
        thin=1,
        n_chains=4,
        n_jobs=None,
        init="single",
        store_labels=True,
        point_estimate="vi",
        max_time=None,
        target_ess=None,
        warm_start=False,
        random_state=None,
        verbose=0,
    ):
        self.likelihood = likelihood
        self.sampler = sampler
        self.concentration = concentration
        self.concentration_prior = concentration_prior
        self.n_warmup = n_warmup
        self.n_draws = n_draws
        self.thin = thin
        self.n_chains = n_chains
        self.n_jobs = n_jobs
        self.init = init
        self.store_labels = store_labels
        self.point_estimate = point_estimate
        self.max_time = max_time
        self.target_ess = target_ess
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose

    def make_prior(self, n_samples, concentration):
        """Make the prior over partitions, as in `BaseMixture`."""
        return GnedinPrior(n_samples, concentration)
