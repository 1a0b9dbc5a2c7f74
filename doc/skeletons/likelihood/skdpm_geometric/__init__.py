# SPDX-License-Identifier: BSD-3-Clause
"""Geometric counts as a likelihood of skdpm's mixtures."""

from skdpm_geometric.geometric import Geometric

__all__ = ["Geometric"]
