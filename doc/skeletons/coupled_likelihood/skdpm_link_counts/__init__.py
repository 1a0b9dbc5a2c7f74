# SPDX-License-Identifier: BSD-3-Clause
"""Counts of links between the nodes of a network as a likelihood of skdpm's mixtures."""

from skdpm_link_counts.link_counts import LinkCounts

__all__ = ["LinkCounts"]
