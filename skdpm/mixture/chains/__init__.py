# SPDX-License-Identifier: BSD-3-Clause
"""Markov chains over partitions of rows in memory: where they start, what they keep."""
