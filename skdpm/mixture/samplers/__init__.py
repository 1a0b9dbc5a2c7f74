# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of mixture models: how the posterior over partitions is explored."""

from skdpm._validation import given_shape, is_dask
from skdpm.mixture.samplers.alternate import Alternate
from skdpm.mixture.samplers.arm import ARM
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbs
from skdpm.mixture.samplers.gibbs import Gibbs
from skdpm.mixture.samplers.pgsm import PGSM
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.samplers.split_merge import SAMS, SplitMerge
from skdpm.mixture.samplers.sub_cluster import SubCluster

# The registry: one line per sampler. A name is the snake case of its class.
SAMPLERS = {
    "alternate": Alternate,
    "arm": ARM,
    "blocked_gibbs": BlockedGibbs,
    "gibbs": Gibbs,
    "pgsm": PGSM,
    "sams": SAMS,
    "smc": SMC,
    "split_merge": SplitMerge,
    "sub_cluster": SubCluster,
}

# What "auto" stands for, in order of preference.
AUTOMATIC = (SubCluster, Alternate)

__all__ = [cls.__name__ for cls in SAMPLERS.values()]


def automatic_sampler(likelihood, X, make_prior, noise=False):
    """Choose the first preferred sampler without objection, or the last: it, and its objection or
    None. For the parameters see `Sampler.automatic`; `noise` is whether rows may be noise."""
    shape = (*given_shape(X), 1, 1)[:2]
    if not noise and is_dask(X) and SubCluster.suits(make_prior(2)):
        return SubCluster(), SubCluster().objection(likelihood, X)
    for cls in AUTOMATIC:
        if noise and not cls.takes_noise:
            continue
        sampler = cls.automatic(likelihood, shape, make_prior)
        objection = None if sampler is None else sampler.objection(likelihood, X)
        if sampler is not None and objection is None:
            break
    return sampler, objection
