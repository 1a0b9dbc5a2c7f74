# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of feature allocations: what rows look like, given their features."""

from skdpm.features.likelihoods.lfrm import LFRM
from skdpm.features.likelihoods.linear_gaussian import LinearGaussian
from skdpm.features.likelihoods.pyclone import PyClone

# The registry: one line per likelihood. A name is the snake case of its class.
LIKELIHOODS = {
    "linear_gaussian": LinearGaussian,
    "lfrm": LFRM,
    "pyclone": PyClone,
}

__all__ = [cls.__name__ for cls in LIKELIHOODS.values()]
