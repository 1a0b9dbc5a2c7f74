# SPDX-License-Identifier: BSD-3-Clause
"""Markov chains over partitions of rows in memory: their starts and their draws."""
