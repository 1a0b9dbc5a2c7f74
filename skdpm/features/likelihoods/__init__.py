# SPDX-License-Identifier: BSD-3-Clause
"""Likelihoods of feature allocations: what rows look like, given their features."""

from skdpm.features.likelihoods.lfrm import LFRM
from skdpm.features.likelihoods.linear_gaussian import LinearGaussian
from skdpm.features.likelihoods.subclones import Subclones

# The registry. A name is the snake case of its class.
LIKELIHOODS = {"linear_gaussian": LinearGaussian, "lfrm": LFRM, "subclones": Subclones}

__all__ = [cls.__name__ for cls in LIKELIHOODS.values()]
