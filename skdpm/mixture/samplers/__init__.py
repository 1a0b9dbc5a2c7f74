# SPDX-License-Identifier: BSD-3-Clause
"""Samplers of mixture models: how the posterior over partitions is explored."""

from skdpm.mixture.samplers.alternate import Alternate
from skdpm.mixture.samplers.arm import ARM
from skdpm.mixture.samplers.blocked_gibbs import BlockedGibbs
from skdpm.mixture.samplers.gibbs import Gibbs
from skdpm.mixture.samplers.pgsm import PGSM
from skdpm.mixture.samplers.sams import SAMS
from skdpm.mixture.samplers.smc import SMC
from skdpm.mixture.samplers.split_merge import SplitMerge
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
AUTOMATIC = (Alternate,)

__all__ = [cls.__name__ for cls in SAMPLERS.values()]


def automatic_sampler(likelihood, X):
    """The first of the preferred samplers that does not object to a likelihood and rows; where
    all do, the first, whose objection `fit` raises."""
    # X is not checked yet, and may be anything; a list has no shape.
    shape = X.shape if hasattr(X, "shape") else (len(X),) if hasattr(X, "__len__") else ()
    candidates = [cls.automatic(shape[0] if shape else 1) for cls in AUTOMATIC]
    willing = (sampler for sampler in candidates if sampler.objection(likelihood, X) is None)
    return next(willing, candidates[0])
