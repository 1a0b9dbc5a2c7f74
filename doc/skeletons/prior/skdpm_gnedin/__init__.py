# SPDX-License-Identifier: BSD-3-Clause
"""Gnedin's partition prior as a mixture of skdpm's."""

from skdpm_gnedin._gnedin import GnedinPrior
from skdpm_gnedin.gnedin import GnedinMixture

__all__ = ["GnedinMixture", "GnedinPrior"]
